"""What a second lengthscale is worth on the built-in field: one Matern 3/2 against the sum of two.

    python -m pipelines.experiments.sum_kernel [--quick] [--output FOLDER]

Points are observed at random and 1,000 others predicted exactly, with all numbers fitted to the observed
points by maximum likelihood, as jobs do. The log likelihood is that of the fit: per observation, of the
observed points by Vecchia's likelihood.
"""

from collections.abc import Iterator, Sequence

import cagp_dist as cagp
from pipelines.experiments.fit_density import fitted_job, held_out
from pipelines.experiments.output import parser, print_table

DESIGNS = ((2_000, 0), (2_000, 1), (2_000, 2), (10_000, 0), (10_000, 1))
"""Number of observed points, and seed of their draw."""
KERNELS = ("matern32", "matern32 + matern32")


def line(count: int, seed: int, kernel: str) -> Sequence[str]:
    """Fit, predict and score: a line of the table."""
    prepared, fitted = fitted_job(count, seed, f'kernel = "{kernel}"')
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
