"""The solvers by the names that job files give them: a new solver is one class and one line here."""

from cagp_dist.solvers.actions import ConjugateGradient, RandomActions
from cagp_dist.solvers.base import Solver
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
from cagp_dist.solvers.subsets import SubsetOfData, UnitVectors
from cagp_dist.solvers.two_level import TwoLevelBlockGaussSeidel, TwoLevelBlockJacobi

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
