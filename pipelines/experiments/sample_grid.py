"""Solvers on the built-in field: a strided training grid and random points, two prior means, and smoothness.

    python -m pipelines.experiments.sample_grid [--quick] [--output FOLDER]

Training points are every second row and column of the field without its poles, 120 x 240 = 28,800 as
published, or 10,000 drawn at random; 500 points are held out, all drawn with probabilities proportional to
area. Kernel parameters are fitted to all 114,720 points, about a constant or a mean that is quadratic in
latitude. Gauss-Seidel visits the points latitude by latitude. Prints scores and the distance from the exact
mean beside the one that is stated; then the smoothness of the means on the whole grid, for the strided
training points.
"""

from collections.abc import Iterator, Sequence

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Mask
from pipelines.experiments.held_out import Row, judged
from pipelines.experiments.output import parser, print_table
from pipelines.experiments.sample_field import MEANS, SampleField
from pipelines.experiments.smooth_means import means, table
from pipelines.experiments.split import Split

SEED = 3
HELD_OUT, RANDOM = 500, 10_000
SOLVERS = (
    ("Gauss-Seidel", (1, 2, 5)),
    ("block Gauss-Seidel", (1, 2)),
    ("conjugate gradients", (5, 20, 80)),
)


def designs(
    grid: cagp.LatLonGrid, generator: np.random.Generator, *, held_out: int, random: int, stride: int
) -> Iterator[tuple[str, Mask, Mask]]:
    """Names, training points and points held out, as masks of the grid."""
    strided = np.zeros(grid.shape, dtype=bool)
    strided[::stride, ::stride] = True
    scattered = _some(grid, np.zeros(grid.shape, dtype=bool), random, generator)
    for name, train in ((f"strided, {int(strided.sum()):,}", strided), (f"random, {random:,}", scattered)):
        yield name, train, _some(grid, train, held_out, generator)


def _some(grid: cagp.LatLonGrid, taken: Mask, count: int, generator: np.random.Generator) -> Mask:
    share = np.where(taken, 0.0, grid.area_weights).ravel()
    chosen = np.zeros(grid.size, dtype=bool)
    chosen[generator.choice(grid.size, count, replace=False, p=share / share.sum())] = True
    return chosen.reshape(grid.shape)


def solve(
    field: SampleField, prior: cagp.Prior, train: Mask, test: Mask, *, stride: int = 1
) -> Iterator[Row]:
    """Rows of the iterations shown, of all solvers; the exact one last.

    With a stride above 1, the training points are every so many-th row and column.
    """
    points = field.grid.points
    X, X_test = points[train.ravel()], points[test.ravel()]
    y, held_out = field.residual[train], field.residual[test]
    exact = _exact(field, prior, train, test, stride)
    block_size = -(-len(X) // 16)
    order = cagp.space_filling_order(X, block_size=block_size)
    everything = np.arange(len(X))
    for name, shown in SOLVERS:
        solver, visits = {
            "Gauss-Seidel": (cagp.GaussSeidel(max(shown)), everything),
            "block Gauss-Seidel": (cagp.BlockGaussSeidel(max(shown), block_size=block_size), order),
            "conjugate gradients": (cagp.ConjugateGradient(max(shown)), everything),
        }[name]
        posterior = cagp.condition(prior, X[visits], y[visits], X_test, solver=solver)
        rows = judged(name, posterior, exact, held_out, noise_variance=prior.noise_variance)
        yield from (row for row in rows if row.iteration in shown)
    yield from judged("exact", exact, exact, held_out, noise_variance=prior.noise_variance)


def _exact(field: SampleField, prior: cagp.Prior, train: Mask, test: Mask, stride: int) -> cagp.Posterior:
    """Exact posterior: by the structure of the strided grid, else by Cholesky."""
    points = field.grid.points
    if stride > 1:
        coarse = field.strided(stride)
        return cagp.condition(prior, *coarse, points[test.ravel()], solver=cagp.Rings())
    return cagp.condition(
        prior, points[train.ravel()], field.residual[train], points[test.ravel()], solver=cagp.Cholesky()
    )


def line(design: str, mean: str, row: Row) -> Sequence[str]:
    """Line of the table."""
    exact = row.solver == "exact"
    return (
        design,
        mean,
        row.solver,
        "" if exact else str(row.iteration),
        f"{row.score.rmse:.3f}",
        f"{row.score.nll:.3f}",
        f"{row.score.coverage[list(row.score.levels).index(0.95)]:.3f}",
        f"{row.score.ks_statistic:.3f}",
        "" if exact else f"{row.actual:.3f}",
        "" if exact else f"{row.stated:.3f}",
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, solve, print."""
    chosen = parser(__doc__).parse_args(arguments)
    lines, smooth = [], []
    for mean in MEANS[1:] if chosen.quick else MEANS:
        field = SampleField.about(mean)
        prior = field.fit().prior
        print(f"{mean}: {prior.kernel}, noise variance {prior.noise_variance:.3f} K²\n")
        generator = np.random.default_rng(SEED)
        sizes = {"held_out": HELD_OUT, "random": RANDOM, "stride": 2}
        if chosen.quick:
            sizes = {"held_out": 20, "random": 500, "stride": 12}
        for design, train, test in designs(field.grid, generator, **sizes):
            stride = sizes["stride"] if design.startswith("strided") else 1
            lines += [line(design, mean, row) for row in solve(field, prior, train, test, stride=stride)]
            if stride > 1:
                rings = cagp.RingGram(field.grid, prior.kernel, noise_variance=prior.noise_variance)
                coarse = field.strided(stride)  # a complete grid of its own, which has rings
                exact = cagp.posterior_mean(prior, *coarse, field.grid, solver=cagp.Rings())
                found = {("the field", 0): field.residual}
                found |= means(Split(prior, rings, train), field.residual, exact)
                smooth += [(mean, *cells) for cells in table(found, field.grid)]
    print_table(
        (
            "training points",
            "mean",
            "solver",
            "m",
            "RMSE [K]",
            "NLL",
            "95 % coverage",
            "KS distance",
            "distance from exact mean [K]",
            "stated [K]",
        ),
        lines,
    )
    print_table(
        (
            "prior mean",
            "mean",
            "m",
            "rms gradient [K / 100 km]",
            "of the difference from exact",
            "rms difference [K]",
        ),
        smooth,
    )


if __name__ == "__main__":
    main()
