"""How the points of a map go into a solve."""

from cagp_dist import tiling
from cagp_dist.solvers import Hybrid, Solver
from cagp_dist.solvers.engine.affine import Affine


def block_size(solver: Solver | None) -> int:
    """Points of a block in solver order."""
    size = solver.points_per_block if isinstance(solver, Affine | Hybrid) else None
    return size or tiling.POINT_TILE
