"""What hyperparameters fitted on a coarse grid lose against those fitted on all points of the built-in field.

    python -m pipelines.experiments.fit_size [--quick] [--output FOLDER]

The published fit used a strided grid of 72 x 144 = 10,368 points. The built-in field has 239 x 480 points
without its poles: every third row and column are 80 x 160 = 12,800, every fourth 60 x 120 = 7,200, one on
either side. Each set of parameters then predicts (1) every point from all the others, and (2) 7,225 points
from every second row and column (28,800 points), both exactly. The prior mean is fitted to all points, and
the same for all.
"""

from collections.abc import Iterator, Sequence

import numpy as np

import cagp_dist as cagp
from pipelines.experiments.output import parser, print_table
from pipelines.experiments.sample_field import MEANS, SampleField, by_area

STEPS = (1, 2, 3, 4)
BETWEEN_STEP, BETWEEN_SIDE = 2, 85


def all_others(field: SampleField, prior: cagp.Prior) -> list[float]:
    """Area-weighted scores of each point predicted by all others, and the log likelihood per point."""
    rings = cagp.RingGram(field.grid, prior.kernel, noise_variance=prior.noise_variance)
    found = rings.leave_one_out(field.residual)
    measured = by_area(found.mean, np.sqrt(found.variance), field.residual, field.grid.area_weights)
    quadratic = float(np.vdot(field.residual, rings.solve(field.residual)))
    n = field.grid.size
    return [*measured, -0.5 * (quadratic + rings.logdet() + n * np.log(2.0 * np.pi)) / n]


def between(field: SampleField, prior: cagp.Prior) -> list[float]:
    """Scores of 85 x 85 points between the rows and columns of a strided grid, predicted from it."""
    coarse, values = field.strided(BETWEEN_STEP)
    rows, columns = (
        np.linspace(0, size - 1, min(BETWEEN_SIDE, size)).astype(int) * BETWEEN_STEP + 1
        for size in ((field.grid.shape[0] - 1) // BETWEEN_STEP, field.grid.shape[1] // BETWEEN_STEP)
    )
    row, column = (index.ravel() for index in np.meshgrid(rows, columns, indexing="ij"))
    latitude = field.grid.latitude_degrees[row]
    X_test = cagp.unit_sphere(latitude, field.grid.longitude_degrees[column])
    posterior = cagp.condition(prior, coarse, values, X_test, solver=cagp.Rings())
    return by_area(
        posterior.mean,
        np.sqrt(posterior.variance + prior.noise_variance),
        field.residual[row, column],
        cagp.area_weights(latitude),
    )


def table(means: Sequence[str], steps: Sequence[int]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Fit and score: a line of the table of parameters and a line of the table of scores for each fit."""
    for mean in means:
        field = SampleField.about(mean)
        for step in steps:
            result = field.fit(step)
            kernel, error = result.prior.kernel, result.standard_errors
            shape = field.strided(step)[0].shape
            label = (mean, f"{shape[0]} x {shape[1]}")
            yield (
                (
                    *label,
                    f"{kernel.lengthscale:.4f} ± {error.lengthscale:.4f}",
                    f"{kernel.variance:.1f} ± {error.variance:.1f}",
                    f"{result.prior.noise_variance:.3f} ± {error.noise_variance:.3f}",
                    f"{result.seconds:.1f}",
                ),
                (
                    *label,
                    *(
                        f"{value:.3f}"
                        for value in all_others(field, result.prior) + between(field, result.prior)
                    ),
                ),
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, score and print."""
    chosen = parser(__doc__).parse_args(arguments)
    lines = list(table(MEANS[1:] if chosen.quick else MEANS, (4, 8) if chosen.quick else STEPS))
    print_table(
        ("mean", "fitted on", "lengthscale", "variance [K²]", "noise variance [K²]", "seconds"),
        (first for first, _ in lines),
    )
    print_table(
        (
            "mean",
            "fitted on",
            "all others: RMSE [K]",
            "NLL",
            "CRPS [K]",
            "95 % coverage",
            "log likelihood per point",
            "between: RMSE [K]",
            "NLL",
            "CRPS [K]",
            "95 % coverage",
        ),
        (second for _, second in lines),
    )


if __name__ == "__main__":
    main()
