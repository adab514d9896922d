"""Solvers: each returns a belief about ``G^-1 b``, by families.

- `engine`: the loop of all affine solvers, Algorithm 2 of [Hegde et al. 2025], and what goes beside it.
- `stationary`: sweeps and polynomials, as classes of settings for that loop.
- `actions`: projections of the data onto actions.
- `local`: neighbours. `exact`: nothing is left.
- `interface` says what a solver gets and yields, `status` how a solve ends, `registry` has the solvers by
  name, `solver_choice` the one that is taken where nobody names one.
"""

from cagp_dist.solvers.actions.action_solvers import ConjugateGradient, RandomActions
from cagp_dist.solvers.actions.eigenvectors import Eigenvectors
from cagp_dist.solvers.actions.krylov_actions import KrylovActions
from cagp_dist.solvers.actions.mixed import MixedActions
from cagp_dist.solvers.actions.pseudo_inputs import PseudoInputs
from cagp_dist.solvers.actions.sparse_actions import SparseActions
from cagp_dist.solvers.actions.subsets import SubsetOfData, UnitVectors
from cagp_dist.solvers.engine.hybrid import Hybrid
from cagp_dist.solvers.exact.exact_solvers import Cholesky, Rings
from cagp_dist.solvers.interface import Problem, Solver, State
from cagp_dist.solvers.local.neighbours import Neighbours
from cagp_dist.solvers.stationary.chebyshev import Chebyshev
from cagp_dist.solvers.stationary.gauss_seidel import BlockGaussSeidel, GaussSeidel
from cagp_dist.solvers.stationary.jacobi import BlockJacobi, Jacobi
from cagp_dist.solvers.stationary.relaxation import SOR, SSOR
from cagp_dist.solvers.stationary.richardson import Richardson
from cagp_dist.solvers.stationary.two_level import TwoLevelBlockGaussSeidel, TwoLevelBlockJacobi
from cagp_dist.solvers.status import Stats, Status

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
