"""Lengthscales that are wider than a block: what each method states after the price of five block sweeps.

    python -m pipelines.experiments.long_lengthscales [--quick] [--output FOLDER]

4,096 points, drawn uniformly on the sphere and put into space-filling order, are observed; 500 others are
predicted. Matern 3/2 of variance 1, noise variance 0.01. For every method and lengthscale: the stated over
the exact standard deviation at the predicted points, and the processor time of one thread over that of five
sweeps of block Gauss-Seidel. Prints the table, writes it to ``long-lengthscales.json``, and draws
``long-lengthscales.png``.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.cartography.chart_style import ACCENT, MUTED
from cagp_dist.runtime import SerialExecutor, single_threaded_blas
from cagp_dist.solvers import Solver
from pipelines.experiments.limits import Points
from pipelines.experiments.output import drawn, parser, print_table

OBSERVED, PREDICTED, BLOCK = 4096, 500, 512
QUICK_OBSERVED, QUICK_PREDICTED, QUICK_BLOCK = 400, 50, 50
LENGTHSCALES, NOISE_VARIANCE = (0.2, 0.5, 1.0), 0.01
GOAL = 1.1
"""Stated over exact standard deviation that is near enough."""


def methods(block: int) -> dict[str, Solver]:
    """All methods; two-level ones and hybrids with what takes no longer than five sweeps, about."""
    coarse = block // 8
    return {
        "block Gauss-Seidel, m = 5": cagp.BlockGaussSeidel(5, block),
        "block Gauss-Seidel, random order, m = 5": cagp.BlockGaussSeidel(5, block, order="random"),
        "Gauss-Seidel, m = 5": cagp.GaussSeidel(5),
        "overrelaxed by 1.5, m = 5": cagp.SOR(5, 1.5),
        "symmetric, 1.5, m = 3": cagp.SSOR(3, 1.5),
        "Jacobi, m = 5": cagp.Jacobi(5),
        "Richardson, m = 5": cagp.Richardson(5),
        "block Jacobi, m = 5": cagp.BlockJacobi(5, block),
        "conjugate gradients, 80": cagp.ConjugateGradient(80),
        f"pseudo-inputs, {block}": cagp.PseudoInputs(block),
        f"two-level sweeps, k = {coarse}, m = 4": cagp.TwoLevelBlockGaussSeidel(4, block, coarse),
        f"two-level sweeps, k = {2 * coarse}, m = 4": cagp.TwoLevelBlockGaussSeidel(4, block, 2 * coarse),
        f"two-level sweeps, k = {4 * coarse}, m = 4": cagp.TwoLevelBlockGaussSeidel(4, block, 4 * coarse),
        f"two-level sweeps, k = {8 * coarse}, m = 3": cagp.TwoLevelBlockGaussSeidel(3, block, 8 * coarse),
        f"two-level Jacobi, k = {4 * coarse}, m = 3": cagp.TwoLevelBlockJacobi(3, block, 4 * coarse),
        f"two-level Jacobi, k = {8 * coarse}, m = 2": cagp.TwoLevelBlockJacobi(2, block, 8 * coarse),
        "3 sweeps, then 40 gradients": cagp.Hybrid(
            [cagp.BlockGaussSeidel(3, block), cagp.ConjugateGradient(40)]
        ),
        "40 gradients, then 3 sweeps": cagp.Hybrid(
            [cagp.ConjugateGradient(40), cagp.BlockGaussSeidel(3, block)]
        ),
        "2 two-level cycles, then 40 gradients": cagp.Hybrid(
            [cagp.TwoLevelBlockGaussSeidel(2, block, 4 * coarse), cagp.ConjugateGradient(40)]
        ),
    }


@dataclass(frozen=True)
class Row:
    """What one method states at one lengthscale.

    ``low``, ``median`` and ``high`` are the 5 %, 50 % and 95 % quantiles, over the predicted points, of the
    stated over the exact standard deviation; ``price`` is in units of five sweeps of block Gauss-Seidel.
    """

    lengthscale: float
    method: str
    calibrated: str
    low: float
    median: float
    high: float
    price: float


def observations(points: Points, prior: cagp.Prior, generator: np.random.Generator) -> Array:
    """One noisy field of the prior at the observed points, shape (n,)."""
    covariance = prior.kernel(points.observed, points.observed)
    covariance[np.diag_indices_from(covariance)] += NOISE_VARIANCE
    return np.asarray(np.linalg.cholesky(covariance) @ generator.standard_normal(len(covariance)))


def rows(points: Points, lengthscale: float, *, block: int, generator: np.random.Generator) -> Iterator[Row]:
    """Yield a row for each method."""
    prior = cagp.Prior(cagp.Matern32(lengthscale), NOISE_VARIANCE)
    y = observations(points, prior, generator)

    def solved(solver: Solver) -> tuple[Array, float]:
        begun = time.process_time()
        found = cagp.condition(
            prior, points.observed, y, points.predicted, solver=solver, executor=SerialExecutor()
        )
        return np.sqrt(found.variance), time.process_time() - begun

    exact, _ = solved(cagp.Cholesky())
    solved(cagp.BlockGaussSeidel(2, block))  # compiles what the times are not to count
    unit = 0.0
    for name, solver in methods(block).items():
        stated, seconds = solved(solver)
        unit = unit or seconds  # the first method is five sweeps
        low, median, high = np.quantile(stated / exact, (0.05, 0.5, 0.95))
        yield Row(lengthscale, name, solver.calibrated, low, median, high, seconds / unit)


def draw(path: Path, found: Sequence[Row]) -> None:
    """Draw medians and ranges, a panel for each lengthscale."""
    names = list(dict.fromkeys(row.method for row in found))
    lengthscales = list(dict.fromkeys(row.lengthscale for row in found))
    with drawn(path, height_inches=0.55 + 0.235 * len(names)) as figure:
        panels = figure.subplots(1, len(lengthscales), sharey=True, squeeze=False)[0]
        for axes, lengthscale in zip(panels, lengthscales, strict=True):
            mine = [row for row in found if row.lengthscale == lengthscale]
            places = [-names.index(row.method) for row in mine]
            colours = [ACCENT if row.method.startswith("two-level") else MUTED for row in mine]
            axes.hlines(places, [row.low for row in mine], [row.high for row in mine], colors=colours)
            axes.scatter([row.median for row in mine], places, c=colours, s=18, zorder=3)
            axes.axvline(GOAL, color=MUTED, linewidth=0.8, linestyle=":")
            axes.set_xscale("log")
            ticks = (1, 1.5, 2, 3, 5, 10)
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
            axes.set_xticks([], minor=True)
            axes.set_xlim(0.97, 18.0)
            axes.set_title(f"lengthscale {lengthscale:g}", loc="left", fontsize=9)
            axes.set_xlabel("stated / exact standard deviation")
        panels[0].set_yticks([-place for place in range(len(names))], names, fontsize=8)


def main(arguments: Sequence[str] | None = None) -> None:
    """Solve with every method at every lengthscale, print, write and draw."""
    chosen = parser(__doc__).parse_args(arguments)
    sizes = (QUICK_OBSERVED, QUICK_PREDICTED) if chosen.quick else (OBSERVED, PREDICTED)
    block = QUICK_BLOCK if chosen.quick else BLOCK
    generator = np.random.default_rng(0)
    points = Points.draw(generator, *sizes, block=block)
    with single_threaded_blas():
        found = [
            row
            for lengthscale in LENGTHSCALES
            for row in rows(points, lengthscale, block=block, generator=generator)
        ]
    table = {(row.method, row.lengthscale): row for row in found}
    lines = []
    for name in methods(block):
        of_name = [table[name, lengthscale] for lengthscale in LENGTHSCALES]
        cells = [f"{row.median:.2f} ({row.high:.2f})" for row in of_name]
        price = np.mean([row.price for row in of_name])
        lines.append([name, of_name[0].calibrated, *cells, f"{price:.2f}"])
    print_table(["method", "calibrated", *(f"{scale:g}" for scale in LENGTHSCALES), "price"], lines)
    draw(chosen.output / "long-lengthscales.png", found)
    (chosen.output / "long-lengthscales.json").write_text(
        json.dumps([asdict(row) for row in found], indent=1)
    )


if __name__ == "__main__":
    main()
