"""The solver that is taken where nobody names one, from integers alone: the same on every machine."""

from cagp_dist.budget.demand import MOST_MISSING
from cagp_dist.solvers.exact.exact_solvers import Cholesky, Rings
from cagp_dist.solvers.interface import Solver
from cagp_dist.solvers.local.neighbours import Neighbours

MOST_SOLVED_DENSE = 5_000  # Observed points up to which a dense factor is the solver: a second or two, 0.4 GB

# Part of the grid that missing points may be where rings are chosen: beyond, they are more than the observed
LARGEST_GAP = 0.5

# Points of such a grid: inverses of all wavenumbers, P^2 Q / 4 numbers or more, are kept, and a likelihood of
# 360 x 720 points takes six seconds, of 721 x 1440 forty-eight and 5 GB
LARGEST_WITH_GAPS = 300_000

NEIGHBOURS = Neighbours("auto")


def few_gaps(size: int, missing: int) -> bool:
    """Whether a full-circle grid of so many points, some of them missing, is one for rings."""
    few = missing <= MOST_MISSING and missing <= LARGEST_GAP * size
    return missing == 0 or (few and size <= LARGEST_WITH_GAPS)


def chosen_solver(n: int, *, size: int = 0, missing: int = 0) -> Solver:
    """Choose rings on a whole grid, else a dense factor of few points, rings with few gaps, or neighbours.

    Parameters
    ----------
    n : int
        Points that were observed at one time, at most.
    size, missing : int
        Points of the full-circle grid that they lie on, and how many of these were not observed at some time;
        0 where they lie on none, or where noise varies along a latitude.
    """
    whole = size > 0 and missing == 0
    if n <= MOST_SOLVED_DENSE and not whole:
        return Cholesky()
    return Rings() if size > 0 and few_gaps(size, missing) else NEIGHBOURS
