"""What a second lengthscale is worth on the built-in field: one Matern 3/2 against the sum of two.

    python -m pipelines.experiments.sum_kernel [--quick] [--output FOLDER]

Points are observed at random and 1,000 others predicted exactly, with all numbers fitted to the observed
points by maximum likelihood, as jobs do. The log likelihood is that of the fit: per observation, of the
observed points by Vecchia's likelihood.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import cagp_dist as cagp
from cagp_dist.fields.sources import open_source
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.runtime import ThreadExecutor
from cagp_dist.service.job_fit import fit_prior
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.task import prepare_job
from pipelines.experiments.fit_density import held_out
from pipelines.experiments.output import parser, print_table

DESIGNS = ((2_000, 0), (2_000, 1), (2_000, 2), (10_000, 0), (10_000, 1))
"""Number of observed points, and seed of their draw."""
KERNELS = ("matern32", "matern32 + matern32")

JOB = """
[observations]
source = "sample"

[design]
train = {{ kind = "random", count = {count}, seed = {seed} }}
test = {{ kind = "random", count = 1000, seed = 1 }}

[prior]
kernel = "{kernel}"

[solver]
name = "cholesky"
"""


def line(count: int, seed: int, kernel: str) -> Sequence[str]:
    """Fit, predict and score: a line of the table."""
    job = parse_job(JOB.format(count=count, seed=seed, kernel=kernel))
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare_job(job, open_source("sample", cache_directory=Path(folder)))
    with ThreadExecutor() as executor:
        fitted = fit_prior(prepared, Execution(executor))
    parts = fitted.prior.kernel.parts
    result: cagp.FitResult = fitted.result
    assert result.log_likelihood is not None
    return (
        f"{count:,}",
        str(seed),
        kernel,
        " + ".join(f"{part.lengthscale:.3g}" for part in parts),
        " + ".join(f"{part.variance:.3g}" for part in parts),
        f"{fitted.prior.noise_variance:.3g}",
        result.status.value,
        f"{result.seconds:.0f}",
        f"{result.log_likelihood / result.points:.4f}",
        *(f"{value:.3f}" for value in held_out(prepared, fitted)),
    )


def table(designs: Sequence[tuple[int, int]]) -> Iterator[Sequence[str]]:
    """Give a line for each design and kernel."""
    for count, seed in designs:
        for kernel in KERNELS:
            yield line(count, seed, kernel)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, predict, score and print."""
    chosen = parser(__doc__).parse_args(arguments)
    print_table(
        (
            "observed",
            "seed",
            "kernel",
            "lengthscale",
            "variance [K²]",
            "noise variance [K²]",
            "fit",
            "seconds of the fit",
            "log likelihood per observation",
            "RMSE [K]",
            "NLL",
            "CRPS [K]",
            "95 % coverage",
        ),
        table(((300, 0),) if chosen.quick else DESIGNS),
    )


if __name__ == "__main__":
    main()
