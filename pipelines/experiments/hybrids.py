"""Hybrids: how near each solver comes to the exact mean with as many products with G, and what it states.

    python -m pipelines.experiments.hybrids [--quick] [--output FOLDER] [--fields COUNT]

1,024 points, drawn uniformly on the sphere and put into space-filling order, are observed; 100 others are
predicted. Matern 3/2 of variance 1, noise variance 0.01, blocks of 128. Fields are drawn from the prior, each
solved with 8, 16 and 32 products with G of one column, and compared with the exact mean. With 16 products
`cagp_dist.calibrate` then tests the error bars. A sweep is one product, a step of conjugate gradients one, a
preconditioned one two, a coarse space of k columns k. Sweeps over single points, alone and before conjugate
gradients, are run in k-d order, as the blocks are, and *as drawn*. Prints both tables, writes them to
``hybrids.json``, and draws ``hybrids.png``.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.cartography.chart_style import MUTED
from cagp_dist.runtime import SerialExecutor, single_threaded_blas
from cagp_dist.solvers import Solver
from pipelines.experiments.limits import Points
from pipelines.experiments.output import (
    COLOURS,
    count_ticks,
    drawn,
    few_colours,
    fields_asked,
    parser,
    plain_ticks,
    print_table,
)

OBSERVED, PREDICTED, BLOCK, FIELDS, SIMULATIONS = 1024, 100, 128, 20, 100
QUICK_OBSERVED, QUICK_PREDICTED, QUICK_BLOCK, QUICK_FIELDS, QUICK_SIMULATIONS = 160, 20, 20, 3, 10
LENGTHSCALES, NOISE_VARIANCE = (0.5, 1.0), 0.01
PRODUCTS, TESTED = (8, 16, 32), 16
WORDS = ("stated", "standardised error", "KS p")


AS_DRAWN = ", as drawn"
"""End of the names of solvers that have the points in a random order."""


def methods(products: int, block: int) -> dict[str, Solver]:
    """All solvers with so many products of G with one column."""
    quarter = products // 4

    def sweeps(count: int) -> cagp.BlockGaussSeidel:
        return cagp.BlockGaussSeidel(count, block)

    def gradients(count: int) -> cagp.ConjugateGradient:
        return cagp.ConjugateGradient(count)

    def preconditioned(count: int) -> cagp.ConjugateGradient:
        return cagp.ConjugateGradient(
            count // 2, preconditioner="block-gauss-seidel", preconditioner_size=block
        )

    points = {
        "point sweeps": cagp.GaussSeidel(products),
        "point sweeps, then gradients": cagp.Hybrid([cagp.GaussSeidel(2 * quarter), gradients(2 * quarter)]),
    }
    return {
        "conjugate gradients": gradients(products),
        "block Gauss-Seidel": sweeps(products),
        "preconditioned gradients": preconditioned(products),
        "sweeps, then gradients": cagp.Hybrid([sweeps(2 * quarter), gradients(2 * quarter)]),
        "gradients, then sweeps": cagp.Hybrid([gradients(2 * quarter), sweeps(2 * quarter)]),
        "sweeps, then preconditioned": cagp.Hybrid([sweeps(quarter), preconditioned(3 * quarter)]),
        "preconditioned, then sweeps": cagp.Hybrid([preconditioned(3 * quarter), sweeps(quarter)]),
        "two-level sweeps": cagp.TwoLevelBlockGaussSeidel(2 * quarter, block, 2 * quarter),
        **points,
        **{f"{name}{AS_DRAWN}": solver for name, solver in points.items()},
    }


@dataclass(frozen=True)
class Row:
    """One solver with so many products at one lengthscale.

    ``error`` is the root mean square distance from the exact mean in exact standard deviations, ``stated``
    the median of the stated standard deviation in the same unit. Where error bars were tested,
    ``standardised`` is the root mean square error in units of the stated standard deviation (1 if
    calibrated), ``standard_error`` its own, and ``ks_pvalue`` that of a Kolmogorov-Smirnov test along a
    direction.
    """

    lengthscale: float
    method: str
    calibrated: str
    products: int
    error: float
    stated: float
    standardised: float | None = None
    standard_error: float | None = None
    ks_pvalue: float | None = None


def fields_of(points: Points, prior: cagp.Prior, generator: np.random.Generator, *, fields: int) -> Array:
    """Noisy observations (n, T) of fields of the prior."""
    covariance = prior.kernel(points.observed, points.observed)
    covariance[np.diag_indices_from(covariance)] += NOISE_VARIANCE
    return np.asarray(np.linalg.cholesky(covariance) @ generator.standard_normal((len(covariance), fields)))


def solved(points: Points, prior: cagp.Prior, y: Array, solver: Solver) -> tuple[Array, Array]:
    """Means and standard deviations (q, T) of all fields."""
    groups = [y] if solver.many_fields else list(np.split(y, y.shape[1], axis=1))
    found = [
        cagp.condition(
            prior, points.observed, group, points.predicted, solver=solver, executor=SerialExecutor()
        )
        for group in groups
    ]
    means = np.concatenate([each.mean for each in found], axis=1)
    return means, np.sqrt(np.stack([each.variance for each in found], axis=1))


def rows(
    points: Points, lengthscale: float, *, block: int, fields: int, simulations: int, seed: int
) -> Iterator[Row]:
    """Yield a row for each solver and number of products."""
    prior = cagp.Prior(cagp.Matern32(lengthscale), NOISE_VARIANCE)
    y = fields_of(points, prior, np.random.default_rng(seed), fields=fields)
    exact, spread = solved(points, prior, y, cagp.Cholesky())
    order = np.random.default_rng(seed).permutation(len(y))
    as_drawn = Points(points.observed[order], points.predicted), y[order]
    for products in PRODUCTS:
        for name, solver in methods(products, block).items():
            seen, values = as_drawn if name.endswith(AS_DRAWN) else (points, y)
            mean, stated = solved(seen, prior, values, solver)
            error = float(np.sqrt(np.mean(((mean - exact) / spread) ** 2)))
            width = float(np.median(stated / spread))
            row = Row(lengthscale, name, solver.calibrated, products, error, width)
            yield row if products != TESTED else tested(seen, prior, solver, row, simulations)


def tested(points: Points, prior: cagp.Prior, solver: Solver, row: Row, simulations: int) -> Row:
    """Test the error bars of a solver on fields of the prior."""
    found = cagp.calibrate(
        prior,
        points.observed,
        points.predicted,
        solver=solver,
        simulations=simulations,
        generator=np.random.default_rng(1),
    )
    return Row(
        row.lengthscale,
        row.method,
        row.calibrated,
        row.products,
        row.error,
        row.stated,
        found.area_std,
        found.area_std_error,
        found.tests.ks_pvalue,
    )


LINES = {
    "conjugate gradients": (COLOURS["conjugate gradients"], "-"),
    "block Gauss-Seidel": (COLOURS["block Gauss-Seidel"], "-"),
    "preconditioned gradients": (COLOURS["conjugate gradients"], "--"),
    "sweeps, then gradients": (MUTED, ":"),
    "gradients, then sweeps": (MUTED, "--"),
    "sweeps, then preconditioned": (COLOURS["Gauss-Seidel"], "-"),
    "preconditioned, then sweeps": (COLOURS["Gauss-Seidel"], ":"),
    "two-level sweeps": (COLOURS["exact"], "-"),
    "point sweeps": ("#b0508f", "--"),
    "point sweeps, then gradients": ("#b0508f", ":"),
    "point sweeps, as drawn": ("#b0508f", "-"),
    "point sweeps, then gradients, as drawn": ("#b0508f", "-."),
}


def draw(path: Path, found: Sequence[Row]) -> None:
    """Draw errors of the mean, and stated standard deviations, against products."""
    scales = list(dict.fromkeys(row.lengthscale for row in found))
    with drawn(path, height_inches=5.6) as figure:
        panels = figure.subplots(2, len(scales), sharex=True, sharey="row", squeeze=False)
        for column, scale in enumerate(scales):
            above, below = panels[:, column]
            for name, (colour, style) in LINES.items():
                mine = [row for row in found if (row.lengthscale, row.method) == (scale, name)]
                products = [row.products for row in mine]
                line = {"color": colour, "linestyle": style, "linewidth": 1.3, "marker": ".", "label": name}
                above.plot(products, [row.error for row in mine], **line)
                below.plot(products, [row.stated for row in mine], **line)
            above.set_title(f"Error of the mean, lengthscale {scale:g}", loc="left", fontsize=9)
            below.set_title("Stated standard deviation", loc="left", fontsize=9)
            below.set_xlabel("products with G")
            plain_ticks(above, (0.1, 0.2, 0.5, 1, 2, 5, 10))
            plain_ticks(below, (1, 1.2, 1.5, 2, 3, 5, 10, 20))
            count_ticks(below, PRODUCTS)
        for axes in panels[:, 0]:
            axes.set_ylabel("exact standard deviations")
        figure.legend(
            *panels[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Solve, print, write and draw."""
    chosen = parser(__doc__, fields=FIELDS, quick_fields=QUICK_FIELDS).parse_args(arguments)
    sizes = (QUICK_OBSERVED, QUICK_PREDICTED) if chosen.quick else (OBSERVED, PREDICTED)
    block = QUICK_BLOCK if chosen.quick else BLOCK
    points = Points.draw(np.random.default_rng(0), *sizes, block=block)
    with single_threaded_blas():
        found = [
            row
            for seed, lengthscale in enumerate(LENGTHSCALES)
            for row in rows(
                points,
                lengthscale,
                block=block,
                fields=fields_asked(chosen),
                simulations=QUICK_SIMULATIONS if chosen.quick else SIMULATIONS,
                seed=seed,
            )
        ]
    table = {(row.method, row.lengthscale, row.products): row for row in found}
    names = list(LINES)
    print_table(
        ["solver", *(f"{scale:g}, {products}" for scale in LENGTHSCALES for products in PRODUCTS)],
        (
            [
                name,
                *(
                    f"{table[name, scale, products].error:.2f}"
                    for scale in LENGTHSCALES
                    for products in PRODUCTS
                ),
            ]
            for name in names
        ),
    )
    print_table(
        ["solver", *(f"{word}, {scale:g}" for scale in LENGTHSCALES for word in WORDS)],
        (
            [
                name,
                *(cell for scale in LENGTHSCALES for cell in _cells(table[name, scale, TESTED])),
            ]
            for name in names
        ),
    )
    draw(chosen.output / "hybrids.png", found)
    few_colours(chosen.output / "hybrids.png")
    (chosen.output / "hybrids.json").write_text(json.dumps([asdict(row) for row in found], indent=1))


def _cells(row: Row) -> tuple[str, str, str]:
    return (
        f"{row.stated:.2f}",
        f"{row.standardised:.2f} ± {row.standard_error:.2f}",
        f"{row.ks_pvalue:.2g}",
    )


if __name__ == "__main__":
    main()
