"""What the measured cases have in common: points of the sphere, seconds of both kinds, and memory."""

import resource
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array

Figures = dict[str, float]
T = TypeVar("T")


def on_sphere(count: int, *, seed: int, block_size: int | None = None) -> Array:
    """Points drawn uniformly, in no order or in blocks of so many neighbours; shape (count, 3)."""
    points = np.random.default_rng(seed).standard_normal((count, 3))
    points /= np.linalg.norm(points, axis=1)[:, None]
    return points if block_size is None else points[cagp.space_filling_order(points, block_size=block_size)]


def timed(function: Callable[[], T]) -> tuple[Figures, T]:
    """Seconds by the clock and of all processors, which tell of the work where others run beside it."""
    start, worked = time.perf_counter(), time.process_time()
    value = function()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "processor_seconds": time.process_time() - worked}, value


def named(figures: Figures, what: str) -> Figures:
    """Add what they are of to the names of figures."""
    return {f"{name}_{what}": value for name, value in figures.items()}


def peak_mebibytes() -> float:
    """Most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def exponents(sizes: Sequence[int], times: Sequence[Figures]) -> Figures:
    """Exponents of both kinds of seconds in what grows."""
    return {
        f"exponent_of_{name}": float(
            np.polyfit(np.log(sizes), np.log([figures[name] for figures in times]), 1)[0]
        )
        for name in ("seconds", "processor_seconds")
    }
