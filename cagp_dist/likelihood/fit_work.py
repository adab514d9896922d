"""Work of a fit before it begins: about how many evaluations of the likelihood, and what one takes."""

from math import sqrt
from typing import NamedTuple

from cagp_dist.budget import GridSize, Work
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.budget.plan import ENTRY_FLOPS
from cagp_dist.likelihood.exact.dense_likelihood import dense_bytes
from cagp_dist.likelihood.fit import FIRST_RING_POINTS, GROWTH, Method, first_points
from cagp_dist.likelihood.kernel_choice import MOST_COMPARED
from cagp_dist.likelihood.vecchia.conditionals import GROUP, MOST_CONDITIONALS, NEIGHBOURS
from cagp_dist.likelihood.vecchia.vecchia_likelihood import vecchia_bytes

# Evaluations of the first level from three starts, and of each further one, for one kernel (counted)
CLIMBS, LATER = 66, 8

STARTED = 32  # Of one that begins near its end, at a fit of another kernel (counted)

OF_A_SUM = 4  # How many times more they are for each further kernel of a sum

# Evaluations instead of one where the noise of each point deviates: the best variance is searched for
DEVIATING = 4

# The same by Vecchia's likelihood, whose Fisher scoring continues from the first level in a few
SCORINGS, LATER_SCORINGS = 24, 3

GOING_ON = 2  # Of the first level, where it continues from a comparison of kernels


class FitSize(NamedTuple):
    """What a fit is done to.

    ``shape``: of a grid that is fitted by rings; ``deviating``: noise by point; ``started``: near the end.
    """

    method: Method
    points: int
    parts: int
    shape: tuple[int, int] | None = None
    missing: int = 0
    deviating: bool = False
    kernels: int = 1
    fields: int = 1
    started: bool = False

    def flops(self, points: int) -> int:
        """Count the flops of one evaluation, with its gradient, with so many of the points."""
        if self.shape is not None:
            rows, longitudes = (round(size * sqrt(points / self.points)) for size in self.shape)
            gaps = self.missing * points // self.points
            return rows**2 * longitudes * (ENTRY_FLOPS * self.parts + rows) + gaps**3
        if self.method == "vecchia":
            m = GROUP + NEIGHBOURS  # a factor of each group and its inverse, and the kernel values in it
            return min(points, MOST_CONDITIONALS) // GROUP * m**2 * (m + ENTRY_FLOPS * self.parts)
        return points**2 * (points + ENTRY_FLOPS * self.parts)

    def evaluations(self) -> list[tuple[int, int]]:
        """Points of each level of the search, coarse to fine, and about how many evaluations it takes."""
        if self.shape is not None:
            levels = [self.points]
            while levels[0] > 2 * FIRST_RING_POINTS:
                levels.insert(0, max(FIRST_RING_POINTS, levels[0] // GROWTH))
        else:
            levels = [*first_points(self.method, self.points), self.points]
        often = 1 if self.started else OF_A_SUM ** (self.parts - 1)
        often *= DEVIATING if self.deviating else 1
        first, later = often * (STARTED if self.started else CLIMBS), often * LATER
        if self.method == "vecchia":
            first, later = often * SCORINGS if self.kernels == 1 else GOING_ON, LATER_SCORINGS
        return [(points, later if level else first) for level, points in enumerate(levels)]

    def peak_bytes(self, workers: int) -> int:
        """Count the bytes of one evaluation with all points."""
        if self.shape is not None:
            blocks = GridSize(*self.shape).block_bytes
            return 3 * blocks * (2 if self.missing else 1) + DOUBLE * (
                3 * self.missing**2 + 6 * self.points * self.fields
            )
        if self.method == "vecchia":
            return vecchia_bytes(
                NEIGHBOURS // GROUP * self.points,
                columns=self.fields + 4,
                numbers=2 * self.parts,
                workers=workers,
            )
        return dense_bytes(self.points, self.fields)


def fit_work(size: FitSize, *, workers: int) -> Work:
    """Count the flops of a fit, about, and its bytes; each evaluation has a task for each worker."""
    count, flops = 0, 0
    for points, often in size.evaluations():
        count, flops = count + often, flops + often * size.flops(points)
    whole = size.shape is not None and size.missing == 0
    if size.kernels > 1 and size.points <= (2 * FIRST_RING_POINTS if whole else MOST_COMPARED):
        count, flops = size.kernels * count, size.kernels * flops
    elif size.kernels > 1:
        some = size._replace(method="vecchia", points=MOST_COMPARED, shape=None, missing=0)
        count += size.kernels * SCORINGS
        flops += size.kernels * SCORINGS * some.flops(MOST_COMPARED)
    tasks = count if size.method == "dense" else count * workers
    return Work(flops, tasks, size.peak_bytes(workers))
