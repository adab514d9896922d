"""Solvers side by side on the built-in field: 10,000 points observed, 1,000 held out.

    python -m pipelines.experiments.sample [--quick]

Prints a Markdown table: scores at the held-out points, and the mean of the stated (latent) standard
deviation. Row m of a solver is its state after m iterations; the exact row is Cholesky.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import cagp_dist as cagp
from cagp_dist.calibration.verification.scores import scores
from cagp_dist.fields.sources import open_source
from cagp_dist.service.demo import demo_job_text
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.task import prepare_job
from cagp_dist.solvers import Solver
from pipelines.experiments.output import parser

CASES: list[tuple[str, Solver, tuple[int, ...]]] = [
    ("Gauss-Seidel", cagp.GaussSeidel(5), (1, 2, 5)),
    ("block Gauss-Seidel, blocks of 1,024", cagp.BlockGaussSeidel(5, block_size=1024), (1, 2, 5)),
    ("conjugate gradients", cagp.ConjugateGradient(80), (5, 20, 80)),
    ("random actions", cagp.RandomActions(5), (5,)),
    ("exact (Cholesky)", cagp.Cholesky(), (1,)),
]


OBSERVED, HELD_OUT, QUICK = 10_000, 1_000, 10
"""Points, and by what their numbers are divided in a quick run."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Solve with every solver and print the table."""
    by = QUICK if parser(__doc__).parse_args(arguments).quick else 1
    with tempfile.TemporaryDirectory() as folder:
        text = (
            demo_job_text(folder)
            .replace("count = 7000", f"count = {OBSERVED // by}")
            .replace("count = 2000", f"count = {HELD_OUT // by}")
        )
        job = parse_job(text, name="the experiment")
        observations = job.observations
        field = open_source(
            observations.source, times=observations.listed_times, cache_directory=Path(folder)
        )
        prepared = prepare_job(job, field)
    test = prepared.design.test
    kernel = prepared.task.model.kernel
    observed, noise = prepared.points.values[0, test], job.prior.noise_variance
    X, y, X_test = prepared.X, prepared.y, prepared.predicted.points.wanted[: len(test)]
    weights, train = prepared.design.test_weights, prepared.design.train
    # of least squares, and then known: what is compared are the solvers
    mean = prepared.mean.fit(prepared.points.north[train], prepared.points.east[train], y)
    print(f"{len(X)} observed, {len(test)} held out; {kernel}, noise variance {noise} K^2")
    print("| solver | m | RMSE [K] | NLL | CRPS [K] | 95 % coverage | mean std [K] |")
    print("|---|---|---|---|---|---|---|")
    for name, solver, iterations in CASES:
        values = y if solver.many_fields else y[:, 0]
        prior = cagp.Prior(
            kernel,
            noise,
            mean=lambda points: mean(points)[:, 0],
        )
        posterior = cagp.condition(prior, X, values, X_test, solver=solver)
        for step in posterior.trace:
            if step.iteration not in iterations:
                continue
            result = scores(
                np.ravel(step.mean), np.sqrt(step.variance + noise), observed, weights=weights, levels=(0.95,)
            )
            print(
                f"| {name} | {step.iteration} | {result.rmse:.3f} | {result.nll:.3f} | {result.crps:.3f} "
                f"| {result.coverage[0]:.3f} | {np.sqrt(step.variance).mean():.3f} |"
            )


if __name__ == "__main__":
    main()
