"""How long a fit takes, before it begins: evaluations of the likelihood by what one of each size costs.

On one core an evaluation with n points takes about ``20 n^2 + 0.016 n^3`` nanoseconds by a dense factor, by
Vecchia's likelihood 33 microseconds for each conditional; and on a grid of P latitudes with Q longitudes
``14 P^2 Q + 0.015 P^3 Q``, with m gaps ``65 P^2 Q + 0.025 m^3`` (measured).
"""

from math import sqrt
from typing import NamedTuple

from cagp_dist.likelihood.fit import (
    FIRST_RING_POINTS,
    GROWTH,
    Method,
    first_points,
)
from cagp_dist.likelihood.kernel_choice import MOST_COMPARED
from cagp_dist.likelihood.vecchia.conditionals import MOST_CONDITIONALS

# Evaluations of the first level from three starts, and of each further one, for one kernel
CLIMBS, LATER = 66, 8

OF_A_SUM = 4  # How many times more they are for each further kernel of a sum

# Evaluations instead of one where the noise of each point deviates: the best variance is searched for
DEVIATING = 4

# The same by Vecchia's likelihood, whose Fisher scoring continues from the first level in a few
SCORINGS, LATER_SCORINGS = 24, 3

GOING_ON = 2  # Of the first level, where it continues from a comparison of kernels

# Of one conditional, in one evaluation with the expected information, on one core
CONDITIONAL_SECONDS = 27e-6

ORDER_SECONDS = 14e-6  # Of the order, for each point, before the first evaluation


class FitSize(NamedTuple):
    """What a fit is done to; ``shape``: of a grid that is fitted by rings; ``deviating``: noise by point."""

    method: Method
    points: int
    parts: int
    shape: tuple[int, int] | None = None
    missing: int = 0
    deviating: bool = False
    kernels: int = 1


def evaluation_seconds(size: FitSize, points: int, *, workers: int) -> float:
    """Seconds of one evaluation with so many of the points."""
    if size.shape is not None:
        part = points / size.points
        rows = size.shape[0] * sqrt(part)
        longitudes = size.shape[1] * sqrt(part)
        gaps = size.missing * part
        if size.missing:
            return 1e-9 * (65.0 * rows**2 * longitudes + 0.025 * gaps**3) / workers
        return 1e-9 * (14.0 * rows**2 * longitudes + 0.015 * rows**3 * longitudes) / workers
    if size.method == "vecchia":
        return CONDITIONAL_SECONDS * min(points, MOST_CONDITIONALS) / workers
    return 1e-9 * (20.0 * points**2 + 0.016 * points**3)


def evaluations(size: FitSize) -> list[tuple[int, int]]:
    """Points of each level of the search, coarse to fine, and about how many evaluations it takes."""
    if size.shape is not None:
        levels = [size.points]
        while levels[0] > 2 * FIRST_RING_POINTS:
            levels.insert(0, max(FIRST_RING_POINTS, levels[0] // GROWTH))
    else:
        levels = [*first_points(size.method, size.points), size.points]
    often = OF_A_SUM ** (size.parts - 1) * (DEVIATING if size.deviating else 1)
    first, later = often * CLIMBS, often * LATER
    if size.method == "vecchia":
        first, later = often * SCORINGS if size.kernels == 1 else GOING_ON, LATER_SCORINGS
    return [(points, later if level else first) for level, points in enumerate(levels)]


def fit_seconds(size: FitSize, *, workers: int) -> float:
    """Seconds that a fit takes, about, on so many workers."""
    ordering = ORDER_SECONDS * size.points if size.method == "vecchia" else 0.0
    seconds = ordering + sum(
        count * evaluation_seconds(size, points, workers=workers) for points, count in evaluations(size)
    )
    if size.kernels == 1:
        return seconds
    whole = size.shape is not None and size.missing == 0
    if size.points <= (2 * FIRST_RING_POINTS if whole else MOST_COMPARED):
        return size.kernels * seconds
    return seconds + size.kernels * SCORINGS * MOST_COMPARED * CONDITIONAL_SECONDS / workers


class FitCourse:
    """How far a fit is: by what its evaluations so far have cost, of what all of them are planned to."""

    def __init__(self, size: FitSize, workers: int) -> None:
        self._size, self._workers = size, workers
        self._planned, self._spent = fit_seconds(size, workers=workers), 0.0

    def fraction(self, points: int) -> float:
        """Part of the work that is done after one more evaluation with so many points."""
        self._spent += evaluation_seconds(self._size, points, workers=self._workers)
        return self._spent / max(self._planned, self._spent)
