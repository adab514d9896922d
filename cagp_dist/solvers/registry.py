"""The solvers by the names that job files give them: a new solver is one class and one line here."""

from cagp_dist.solvers.base import Solver
from cagp_dist.solvers.settings import (
    BlockGaussSeidel,
    Cholesky,
    ConjugateGradient,
    GaussSeidel,
    RandomActions,
    Rings,
)

SOLVERS: dict[str, type[Solver]] = {
    "gauss-seidel": GaussSeidel,
    "block-gauss-seidel": BlockGaussSeidel,
    "conjugate-gradient": ConjugateGradient,
    "random-actions": RandomActions,
    "cholesky": Cholesky,
    "rings": Rings,
}
