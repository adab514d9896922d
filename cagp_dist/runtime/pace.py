"""How fast this machine is just now, beside the one on which the constants of plans were measured."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from time import perf_counter

import numpy as np

from cagp_dist.budget.plan import ENTRY_NANOSECONDS, FLOP_NANOSECONDS
from cagp_dist.kernels import Matern32
from cagp_dist.runtime.base import single_threaded_blas
from cagp_dist.tiling import subtile_shape

MEASURED_SECONDS = 0.3
"""Long enough to see what other processes leave."""

SIDE, COLUMNS = 1024, 25
"""Points and columns of a tile that is evaluated and multiplied, again and again: as long for the one as for
the other."""


def slowness(workers: int) -> float:
    """Seconds that work takes here, for each second that the constants of plans say.

    Measured on as many threads as there are workers, for `MEASURED_SECONDS`. Workers that share a core, its
    clock or its memory are slower than one alone, and so are those beside another program.
    """
    with single_threaded_blas(), ThreadPoolExecutor(workers) as threads:
        return workers / sum(threads.map(_speed, [Barrier(workers)] * workers))


def _speed(barrier: Barrier) -> float:
    """Seconds of work, by the constants of plans, that one thread does in a second."""
    from cagp_dist.compiled import add_product

    points = np.random.default_rng(0).uniform(size=(3, SIDE))
    columns, out = np.ones((SIDE, COLUMNS)), np.zeros((SIDE, COLUMNS))
    parameters, shape, not_stored = Matern32(0.5).parameters, subtile_shape(COLUMNS), np.empty(0)

    def work() -> None:
        add_product(*parameters, points, points, not_stored, False, columns, *shape, out)

    work()  # compiled and loaded
    barrier.wait()
    started, rounds = perf_counter(), 0
    while (elapsed := perf_counter() - started) < MEASURED_SECONDS:
        work()
        rounds += 1
    return rounds * 1e-9 * SIDE**2 * (ENTRY_NANOSECONDS + 2 * COLUMNS * FLOP_NANOSECONDS) / elapsed
