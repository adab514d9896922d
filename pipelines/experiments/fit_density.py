"""What a job loses with numbers that were fitted to the whole field, by the density of its observed points.

    python -m pipelines.experiments.fit_density [--quick] [--output FOLDER]

Points of the built-in field are observed at random, and 1,000 others are predicted exactly: with the numbers
that maximum likelihood gives for the observed points, which is the default of a job, and with those of the
whole field (``fit_to = "field"``).
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import cagp_dist as cagp
from cagp_dist.fields.sources import open_source
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.runtime import ThreadExecutor
from cagp_dist.service.job_fit import FittedPrior, fit_prior
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.task import PreparedJob, prepare_job
from pipelines.experiments.output import parser, print_table
from pipelines.experiments.sample_field import by_area

COUNTS = (1_000, 2_000, 10_000)
SEEDS = (0, 1, 2)

JOB = """
[observations]
source = "sample"

[design]
train = {{ kind = "random", count = {count}, seed = {seed} }}
test = {{ kind = "random", count = 1000, seed = 1 }}

[prior]
{prior}

[solver]
name = "cholesky"
"""


PRIOR = """kernel = "matern32"
mean = "quadratic-latitude"
fit_to = "{fit_to}"
"""


def fitted_job(count: int, seed: int, prior: str) -> tuple[PreparedJob, FittedPrior]:
    """Choose the points of a job and fit its prior, whose section of the job is given."""
    job = parse_job(JOB.format(count=count, seed=seed, prior=prior))
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare_job(job, open_source("sample", cache_directory=Path(folder)))
    with ThreadExecutor() as executor:
        return prepared, fit_prior(prepared, Execution(executor))


def line(count: int, seed: int, fitted_to: str, prepared: PreparedJob, fitted: FittedPrior) -> Sequence[str]:
    """Give a line of the table."""
    return (
        f"{count:,}",
        str(seed),
        fitted_to,
        *(f"{value:.4g}" for _, value, _ in fitted.estimates()),
        f"{fitted.result.seconds:.1f}",
        *(f"{value:.3f}" for value in held_out(prepared, fitted)),
    )


def held_out(prepared: PreparedJob, fitted: FittedPrior) -> list[float]:
    """RMSE, NLL, CRPS and coverage of 95 % intervals at the held-out points, weighted by area."""
    test, prior = prepared.design.test, fitted.model.prior(prepared.points, prepared.design.train)
    posterior = cagp.condition(
        prior, prepared.X, prepared.y, prepared.predicted.points.wanted, solver=prepared.solver
    )
    given = posterior.mean[:, 0], np.sqrt(posterior.variance + prior.noise_variance)
    observed = prepared.points.values[0, test]
    return by_area(*given, observed, prepared.design.test_weights)


def table(counts: Sequence[int], seeds: Sequence[int]) -> Iterator[Sequence[str]]:
    """Fit and score: a line for each design and for what was fitted to."""
    for count in counts:
        for seed in seeds:
            for fit_to in ("observed", "field"):
                prepared, fitted = fitted_job(count, seed, PRIOR.format(fit_to=fit_to))
                yield line(count, seed, fit_to, prepared, fitted)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, score and print."""
    chosen = parser(__doc__).parse_args(arguments)
    print_table(
        (
            "observed",
            "seed",
            "fitted to",
            "lengthscale",
            "variance [K²]",
            "noise variance [K²]",
            "seconds of the fit",
            "RMSE [K]",
            "NLL",
            "CRPS [K]",
            "95 % coverage",
        ),
        table((300,) if chosen.quick else COUNTS, SEEDS[:1] if chosen.quick else SEEDS),
    )


if __name__ == "__main__":
    main()
