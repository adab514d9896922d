"""How fast this machine is just now, beside the one on which the constants of plans were measured."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from time import perf_counter, thread_time
from typing import NamedTuple

import numpy as np

from cagp_dist.budget.plan import ENTRY_NANOSECONDS, FLOP_NANOSECONDS
from cagp_dist.kernels import Matern32
from cagp_dist.runtime.executor import single_threaded_blas
from cagp_dist.tiling import subtile_shape

MEASURED_SECONDS = 0.3  # long enough to see what other processes leave

SIDE, COLUMNS = 1024, 25
"""Points and columns of a tile that is evaluated and multiplied, again and again: as long for the one as for
the other."""


class Slowness(NamedTuple):
    """Seconds that work takes here for each second that the constants of plans say: just now, and alone."""

    now: float
    alone: float


def slowness(workers: int) -> Slowness:
    """Measure it on as many threads as workers; what other programs take is not counted in ``alone``."""
    with single_threaded_blas(), ThreadPoolExecutor(workers) as threads:
        now, alone = zip(*threads.map(_speeds, [Barrier(workers)] * workers), strict=True)
    return Slowness(workers / sum(now), workers / sum(alone))


def _speeds(barrier: Barrier) -> tuple[float, float]:
    """Seconds of work, by the constants of plans, that one thread does in a second, and in one of its own."""
    from cagp_dist.compiled import add_product

    points = np.random.default_rng(0).uniform(size=(3, SIDE))
    columns, out = np.ones((SIDE, COLUMNS)), np.zeros((SIDE, COLUMNS))
    parameters, shape, not_stored = Matern32(0.5).parameters, subtile_shape(COLUMNS), np.empty(0)

    def work() -> None:
        add_product(*parameters, points, points, not_stored, False, columns, *shape, out)

    work()  # compiled and loaded
    barrier.wait()
    started, own, rounds = perf_counter(), thread_time(), 0
    while (elapsed := perf_counter() - started) < MEASURED_SECONDS:
        work()
        rounds += 1
    done = rounds * 1e-9 * SIDE**2 * (ENTRY_NANOSECONDS + 2 * COLUMNS * FLOP_NANOSECONDS)
    return done / elapsed, done / (thread_time() - own)
