"""What a product with G costs in each affine solver, against the sweep of Gauss-Seidel."""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import cagp_dist as cagp
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers.engine.affine import Affine

N, TARGETS, BLOCK = 8192, 256, 512
LATITUDES, LONGITUDES = 181, 360
LENGTHSCALE = 1.0  # no two points are independent: no tile can be left out
FEW, MORE = 1, 3
MORE_BY_RINGS = 9  # a product of the smaller grid takes 40 ms
REPEATS = 3
REPEATS_BY_RINGS = 7

SOLVERS: dict[str, Affine] = {
    "gauss_seidel": cagp.GaussSeidel(1),
    "gauss_seidel_random": cagp.GaussSeidel(1, order="random"),
    "block_gauss_seidel": cagp.BlockGaussSeidel(1, BLOCK),
    "block_gauss_seidel_random": cagp.BlockGaussSeidel(1, BLOCK, order="random"),
    "block_gauss_seidel_4_colours": cagp.BlockGaussSeidel(1, BLOCK, order="multicolour"),
    "sor": cagp.SOR(1, 1.5),
    "ssor": cagp.SSOR(1, 1.5),
    "jacobi": cagp.Jacobi(1),
    "block_jacobi": cagp.BlockJacobi(1, BLOCK),
    "richardson": cagp.Richardson(1),
    "chebyshev": cagp.Chebyshev(1),
    "chebyshev_rank_100": cagp.Chebyshev(1, preconditioner="nystrom"),
    "two_level_gauss_seidel": cagp.TwoLevelBlockGaussSeidel(1, BLOCK),
    "two_level_jacobi": cagp.TwoLevelBlockJacobi(1, BLOCK),
}

BY_RINGS: dict[str, Affine] = {
    "block_gauss_seidel": cagp.BlockGaussSeidel(1, LONGITUDES),
    "block_jacobi": cagp.BlockJacobi(1, LONGITUDES),
    "jacobi": cagp.Jacobi(1),
    "richardson": cagp.Richardson(1),
    "chebyshev": cagp.Chebyshev(1),
    "two_level_gauss_seidel": cagp.TwoLevelBlockGaussSeidel(1, LONGITUDES),
    "two_level_jacobi": cagp.TwoLevelBlockJacobi(1, LONGITUDES),
}


def sweeps() -> dict[str, float]:
    """Measure seconds of one product with G, n = 8192, q = 256, one thread, and times Gauss-Seidel.

    A product is the difference of solves with one and with three cycles, and one cycle of two-stage solvers
    is two: what is done once is in neither, nor is the half sweep that the last one leaves out. Seconds are
    those of the processor, in turns with those of Gauss-Seidel, so that neighbours hit both.
    """
    generator = np.random.default_rng(0)
    X, X_test = (generator.standard_normal((count, 3)) for count in (N, TARGETS))
    X /= np.linalg.norm(X, axis=1)[:, None]
    X_test /= np.linalg.norm(X_test, axis=1)[:, None]
    X = X[cagp.space_filling_order(X, block_size=BLOCK)]
    prior, y = cagp.Prior(cagp.Matern32(LENGTHSCALE), 0.024), generator.standard_normal(N)

    def seconds(solver: Affine, iterations: int) -> float:
        start = time.process_time()
        asked = replace(solver, iterations=iterations)
        cagp.condition(prior, X, y, X_test, solver=asked, executor=SerialExecutor())
        return time.process_time() - start

    figures = _against(SOLVERS["gauss_seidel"], SOLVERS, seconds, most=MORE, repeats=REPEATS)
    return figures | _by_rings()


def _by_rings() -> dict[str, float]:
    """Measure the same on a whole 1-degree grid, all of its points targets, against bands of a ring."""
    grid = cagp.LatLonGrid(np.linspace(-90.0, 90.0, LATITUDES), LONGITUDES)
    field = np.random.default_rng(0).standard_normal(grid.shape)
    prior = cagp.Prior(cagp.Matern32(LENGTHSCALE), 0.024)

    def seconds(solver: Affine, iterations: int) -> float:
        start = time.process_time()
        asked = replace(solver, iterations=iterations)
        cagp.condition(prior, grid, field, grid, solver=asked, executor=SerialExecutor())
        return time.process_time() - start

    against = BY_RINGS["block_gauss_seidel"]
    found = _against(against, BY_RINGS, seconds, most=MORE_BY_RINGS, repeats=REPEATS_BY_RINGS)
    return {f"rings_{name}": value for name, value in found.items()}


def _against(
    reference: Affine,
    solvers: dict[str, Affine],
    seconds: Callable[[Affine, int], float],
    *,
    most: int,
    repeats: int,
) -> dict[str, float]:
    """Seconds of a product of each solver, and times those of one, in turns."""

    def of_a_product(solver: Affine) -> float:
        return (seconds(solver, most) - seconds(solver, FEW)) / ((most - FEW) * solver.stages)

    seconds(reference, 1)  # functions are compiled
    figures: dict[str, float] = {}
    for name, solver in solvers.items():
        pairs = [(of_a_product(solver), of_a_product(reference)) for _ in range(repeats)]
        figures[f"seconds_{name}"] = statistics.median(own for own, _ in pairs)
        figures[f"ratio_{name}"] = statistics.median(own / sweep for own, sweep in pairs)
    figures["largest_ratio"] = max(figures[f"ratio_{name}"] for name in solvers)
    return figures
