"""Solvers that return a belief about ``G^-1 b``: cycles of affine stages, actions, and the exact ones.

Algorithm 2 of [Hegde et al. 2025] is `cagp_dist.solvers.engine` with `cagp_dist.solvers.stages`.
"""

from cagp_dist.solvers.actions import ConjugateGradient, RandomActions
from cagp_dist.solvers.base import Problem, Solver, State
from cagp_dist.solvers.chebyshev import Chebyshev
from cagp_dist.solvers.eigenvectors import Eigenvectors
from cagp_dist.solvers.exact import Cholesky, Rings
from cagp_dist.solvers.gauss_seidel import BlockGaussSeidel, GaussSeidel
from cagp_dist.solvers.hybrid import Hybrid
from cagp_dist.solvers.jacobi import BlockJacobi, Jacobi
from cagp_dist.solvers.krylov_actions import KrylovActions
from cagp_dist.solvers.mixed import MixedActions
from cagp_dist.solvers.neighbours import Neighbours
from cagp_dist.solvers.pseudo_inputs import PseudoInputs
from cagp_dist.solvers.relaxation import SOR, SSOR
from cagp_dist.solvers.richardson import Richardson
from cagp_dist.solvers.sparse_actions import SparseActions
from cagp_dist.solvers.status import Stats, Status
from cagp_dist.solvers.subsets import SubsetOfData, UnitVectors
from cagp_dist.solvers.two_level import TwoLevelBlockGaussSeidel, TwoLevelBlockJacobi

__all__ = [
    "SOR",
    "SSOR",
    "BlockGaussSeidel",
    "BlockJacobi",
    "Chebyshev",
    "Cholesky",
    "ConjugateGradient",
    "Eigenvectors",
    "GaussSeidel",
    "Hybrid",
    "Jacobi",
    "KrylovActions",
    "MixedActions",
    "Neighbours",
    "Problem",
    "PseudoInputs",
    "RandomActions",
    "Richardson",
    "Rings",
    "Solver",
    "SparseActions",
    "State",
    "Stats",
    "Status",
    "SubsetOfData",
    "TwoLevelBlockGaussSeidel",
    "TwoLevelBlockJacobi",
    "UnitVectors",
]
