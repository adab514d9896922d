"""How fast this machine is just now, beside the one on which the constants of plans were measured."""

from time import perf_counter

import numpy as np

from cagp_dist.budget.plan import ENTRY_NANOSECONDS, FLOP_NANOSECONDS
from cagp_dist.kernels import Matern32
from cagp_dist.runtime.base import single_threaded_blas

MEASURED_SECONDS = 0.3
"""Long enough to see what other processes leave."""

SIDE = 384
"""Points of a tile that is evaluated and multiplied, again and again."""


def slowness() -> float:
    """Seconds that work takes here, for each second that the constants of plans say.

    Measured on one thread, for `MEASURED_SECONDS`: kernel values and products of matrices, in equal parts.
    """
    points = np.random.default_rng(0).uniform(size=(SIDE, 3))
    kernel = Matern32(0.5)
    evaluations = round(2 * SIDE * FLOP_NANOSECONDS / ENTRY_NANOSECONDS)
    nominal = 1e-9 * SIDE**2 * (evaluations * ENTRY_NANOSECONDS + 2 * SIDE * FLOP_NANOSECONDS)
    tile = kernel(points, points)  # compiled and loaded
    with single_threaded_blas():
        tile @ tile
        started, rounds = perf_counter(), 0
        while (elapsed := perf_counter() - started) < MEASURED_SECONDS:
            for _ in range(evaluations):
                tile = kernel(points, points)
            tile @ tile
            rounds += 1
    return elapsed / (rounds * nominal)
