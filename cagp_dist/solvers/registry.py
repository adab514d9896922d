"""The solvers by the names that job files give them: a new solver is one class and one line here."""

from cagp_dist import solvers

SOLVERS: dict[str, type[solvers.Solver]] = {
    "gauss-seidel": solvers.GaussSeidel,
    "block-gauss-seidel": solvers.BlockGaussSeidel,
    "sor": solvers.SOR,
    "ssor": solvers.SSOR,
    "jacobi": solvers.Jacobi,
    "block-jacobi": solvers.BlockJacobi,
    "richardson": solvers.Richardson,
    "chebyshev": solvers.Chebyshev,
    "two-level-block-gauss-seidel": solvers.TwoLevelBlockGaussSeidel,
    "two-level-block-jacobi": solvers.TwoLevelBlockJacobi,
    "conjugate-gradient": solvers.ConjugateGradient,
    "random-actions": solvers.RandomActions,
    "unit-vectors": solvers.UnitVectors,
    "subset-of-data": solvers.SubsetOfData,
    "pseudo-inputs": solvers.PseudoInputs,
    "sparse-actions": solvers.SparseActions,
    "eigenvectors": solvers.Eigenvectors,
    "krylov-actions": solvers.KrylovActions,
    "mixed-actions": solvers.MixedActions,
    "hybrid": solvers.Hybrid,
    "cholesky": solvers.Cholesky,
    "rings": solvers.Rings,
    "neighbours": solvers.Neighbours,
}


def solver_name(solver: solvers.Solver) -> str:
    """Name of a solver in job files."""
    return next(name for name, known in SOLVERS.items() if known is type(solver))
