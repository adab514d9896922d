"""How the points of a map go into a solve."""

from cagp_dist import tiling
from cagp_dist.arrays import Array, Indices
from cagp_dist.geometry import space_filling_order
from cagp_dist.solvers import Hybrid, Solver
from cagp_dist.solvers.engine.affine import Affine


def block_size(solver: Solver | None) -> int:
    """Points of a block in solver order."""
    size = solver.points_per_block if isinstance(solver, Affine | Hybrid) else None
    return size or tiling.POINT_TILE


def solver_order(X: Array, solver: Solver | None) -> Indices:
    """Order of points (n, 3) in a solve, neighbours together: the same one whoever asks, to the last bit."""
    return space_filling_order(X, block_size=block_size(solver))
