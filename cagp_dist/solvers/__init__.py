"""Solvers that return a belief about ``G^-1 b``: affine sweeps, actions, and the exact one."""

from cagp_dist.solvers.base import Problem, Solver, State
from cagp_dist.solvers.on_rings import GridState, conjugate_gradient_on_grid, gauss_seidel_on_grid
from cagp_dist.solvers.settings import (
    BlockGaussSeidel,
    Cholesky,
    ConjugateGradient,
    GaussSeidel,
    RandomActions,
    Rings,
)
from cagp_dist.solvers.status import Stats, Status

__all__ = [
    "BlockGaussSeidel",
    "Cholesky",
    "ConjugateGradient",
    "GaussSeidel",
    "GridState",
    "Problem",
    "RandomActions",
    "Rings",
    "Solver",
    "State",
    "Stats",
    "Status",
    "conjugate_gradient_on_grid",
    "gauss_seidel_on_grid",
]
