"""The likelihood of irregular points by a dense Cholesky factor (math 9)."""

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.errors import BudgetError
from cagp_dist.gram.functionals import LinearFunctionals, covariance_of_functionals
from cagp_dist.kernels import Parameters, diagonal_of, point_columns
from cagp_dist.lapack import cholesky_in_place, solve_lower
from cagp_dist.likelihood.exact.likelihood_evaluation import Evaluation, ModelLikelihood
from cagp_dist.likelihood.exact.restricted import column_space, sum_of_products
from cagp_dist.likelihood.numbering import Families, Model, UnitModel
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import blas_threads_for
from cagp_dist.text import bytes_text
from cagp_dist.tiling import block_ranges

STRIP_ROWS = 256  # Rows of the slope matrix that exist at a time


class DenseLikelihood(ModelLikelihood):
    """Exact likelihood and gradient of points X (n, p), residuals (n, T), deviations (n,), basis (n, k).

    X may be n weighted sums of the field, whose covariances are those of their nodes, summed.
    """

    def __init__(
        self,
        kernel: Families | Model,
        X: Array | LinearFunctionals,
        residuals: Array,
        *,
        memory_limit_bytes: int,
        deviations: Array | None = None,
        basis: Array | None = None,
    ) -> None:
        columns, coefficients = with_basis(residuals, basis)
        super().__init__(kernel, len(residuals), residuals.shape[1], coefficients)
        needed = dense_bytes(*columns.shape)
        if needed > memory_limit_bytes:
            raise BudgetError(
                f"the exact likelihood of {len(X):,} points needs {bytes_text(needed)}, more than the "
                f"{bytes_text(memory_limit_bytes)} that may be used.",
                key="memory",
                remedies=(Remedy.MORE_MEMORY, Remedy.VECCHIA, Remedy.FEWER_OBSERVED),
            )
        self._points = X if isinstance(X, LinearFunctionals) else point_columns(X)
        self._residuals = columns
        self._deviations = deviations

    def evaluate(self, *numbers: float) -> Evaluation:
        """Evaluate at (lengthscale, ratio), or (lengthscales, weights, ratio) of a sum."""
        numbers, scale = without_scale(numbers, self._deviations is not None)
        with blas_threads_for(self.points):
            total = dense_sums(
                self._model.at(numbers),
                self._points,
                self._residuals,
                self._deviations,
                scale,
                self._coefficients,
            )
        return self._evaluation(total)


def with_basis(residuals: Array, basis: Array | None) -> tuple[Array, int]:
    """Columns of the residuals (n, T) and of the basis of a mean beside them, and how many these are."""
    if basis is None:
        return residuals, 0
    columns = column_space(basis)
    return np.concatenate([residuals, columns], axis=1), columns.shape[1]


def without_scale(numbers: tuple[float, ...], deviate: bool) -> tuple[tuple[float, ...], float]:
    """Part the numbers from one over the variance, which stands behind them where noises deviate."""
    return (numbers[:-1], numbers[-1]) if deviate else (numbers, 0.0)


def dense_sums(
    model: UnitModel,
    points: Array | LinearFunctionals,
    residuals: Array,
    deviations: Array | None,
    scale: float,
    coefficients: int,
) -> Array:
    """Give log|R|, q, traces and slopes of points (p, n), or what `restrict` takes: (2 + 2 k,), or 2 more."""
    from scipy.linalg.lapack import dpotri

    n, ratio = len(residuals), model.ratio
    matrix = _covariances(model.kernel, points, slice(0, n), n)
    own = None if deviations is None else scale * deviations
    matrix[np.diag_indices(n)] += ratio if own is None else ratio + own
    stack = matrix[None]
    cholesky_in_place(stack)
    log_determinant = 2.0 * float(np.log(matrix.diagonal()).sum())
    weights = residuals.copy()
    solve_lower(stack, weights[None])
    quadratic = sum_of_products(weights, weights, coefficients)
    solve_lower(stack, weights[None], transposed=True)
    # in place: the transpose, in Fortran order, keeps the factor in its upper triangle
    matrix = dpotri(matrix.T, lower=0, overwrite_c=1)[0].T
    sums = [_derivative_sums(each, points, matrix, weights, coefficients) for each in model.derivatives]
    sums.append(
        (ratio * float(matrix.diagonal().sum()), ratio * sum_of_products(weights, weights, coefficients))
    )
    if own is not None:
        form = np.einsum("n,nt,nt->", own, weights, weights)
        if coefficients:
            form = (own[:, None] * weights).T @ weights
        sums.append((float(own @ matrix.diagonal()), form))
    traces, forms = zip(*sums, strict=True)
    if coefficients:
        return np.concatenate([[log_determinant], traces, *map(np.ravel, (quadratic, *forms))])
    return np.concatenate([[log_determinant, quadratic], traces, forms])


def _covariances(parameters: Parameters, points: Array | LinearFunctionals, rows: slice, stop: int) -> Array:
    """Covariances of some of the points (p, n), or sums of the field, with the first ones, (rows, stop)."""
    from cagp_dist.compiled import evaluate

    if isinstance(points, LinearFunctionals):
        return covariance_of_functionals(parameters, points.part(rows), points.part(slice(0, stop)))
    found = np.empty((rows.stop - rows.start, stop))
    evaluate(
        *parameters, np.ascontiguousarray(points[:, rows]), np.ascontiguousarray(points[:, :stop]), found
    )
    return found


def _derivative_sums(
    derivative: Parameters,
    points: Array | LinearFunctionals,
    inverse: Array,
    weights: Array,
    coefficients: int,
) -> tuple[float, float | Array]:
    """``tr(R^-1 dR)`` and ``v' dR v``, from the lower triangle of the inverse: strips end at the diagonal."""
    trace: float = 0.0
    form: float | Array = 0.0
    diagonal = np.zeros(len(weights))
    for start, stop in block_ranges(len(weights), STRIP_ROWS):
        strip = _covariances(derivative, points, slice(start, stop), stop)
        diagonal[start:stop] = strip[:, start:].diagonal()
        strip[:, start:] = np.tril(strip[:, start:])
        trace += 2.0 * float(np.einsum("ij,ij->", strip, inverse[start:stop, :stop]))
        part = sum_of_products(weights[start:stop], strip @ weights[:stop], coefficients)
        form = form + (2.0 * part if isinstance(part, float) else part + part.T)
    if isinstance(points, np.ndarray):
        diagonal = diagonal_of(derivative, points)
    if diagonal.any():  # it was counted twice; that of slopes is zero at points
        trace -= float(diagonal @ inverse.diagonal())
        form = form - sum_of_products(diagonal[:, None] * weights, weights, coefficients)
    return trace, form


def dense_bytes(n: int, fields: int) -> int:
    """Bytes of one evaluation: the matrix, two strips of its slope, points, residuals and weights."""
    return DOUBLE * (n * n + 3 * STRIP_ROWS * n + n * (3 * fields + 8))
