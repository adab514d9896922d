"""The solvers by the names that job files give them: a new solver is one class and one line here."""

from cagp_dist.solvers.actions.action_solvers import ConjugateGradient, RandomActions
from cagp_dist.solvers.actions.eigenvectors import Eigenvectors
from cagp_dist.solvers.actions.krylov_actions import KrylovActions
from cagp_dist.solvers.actions.mixed import MixedActions
from cagp_dist.solvers.actions.pseudo_inputs import PseudoInputs
from cagp_dist.solvers.actions.sparse_actions import SparseActions
from cagp_dist.solvers.actions.subsets import SubsetOfData, UnitVectors
from cagp_dist.solvers.engine.hybrid import Hybrid
from cagp_dist.solvers.exact.exact_solvers import Cholesky, Rings
from cagp_dist.solvers.interface import Solver
from cagp_dist.solvers.local.neighbours import Neighbours
from cagp_dist.solvers.stationary.chebyshev import Chebyshev
from cagp_dist.solvers.stationary.gauss_seidel import BlockGaussSeidel, GaussSeidel
from cagp_dist.solvers.stationary.jacobi import BlockJacobi, Jacobi
from cagp_dist.solvers.stationary.relaxation import SOR, SSOR
from cagp_dist.solvers.stationary.richardson import Richardson
from cagp_dist.solvers.stationary.two_level import TwoLevelBlockGaussSeidel, TwoLevelBlockJacobi

SOLVERS: dict[str, type[Solver]] = {
    "gauss-seidel": GaussSeidel,
    "block-gauss-seidel": BlockGaussSeidel,
    "sor": SOR,
    "ssor": SSOR,
    "jacobi": Jacobi,
    "block-jacobi": BlockJacobi,
    "richardson": Richardson,
    "chebyshev": Chebyshev,
    "two-level-block-gauss-seidel": TwoLevelBlockGaussSeidel,
    "two-level-block-jacobi": TwoLevelBlockJacobi,
    "conjugate-gradient": ConjugateGradient,
    "random-actions": RandomActions,
    "unit-vectors": UnitVectors,
    "subset-of-data": SubsetOfData,
    "pseudo-inputs": PseudoInputs,
    "sparse-actions": SparseActions,
    "eigenvectors": Eigenvectors,
    "krylov-actions": KrylovActions,
    "mixed-actions": MixedActions,
    "hybrid": Hybrid,
    "cholesky": Cholesky,
    "rings": Rings,
    "neighbours": Neighbours,
}


def solver_name(solver: Solver) -> str:
    """Name of a solver in job files."""
    return next(name for name, known in SOLVERS.items() if known is type(solver))
