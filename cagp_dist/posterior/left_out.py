"""What all other observations predict at each observed point, where the solve is exact (math 7)."""

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import is_pole
from cagp_dist.gram import LeaveOneOut
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.lapack import cholesky_in_place, inverse_diagonals, solve_lower
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.posterior.coefficients import COLLINEAR, orthonormal
from cagp_dist.posterior.problem import Observed, Problems, patterns
from cagp_dist.prior import Prior
from cagp_dist.runtime import Executor, ExecutorLike, blas_threads_for, given_or_threads, single_threaded_blas


def each_left_out(
    prior: Prior,
    X: ArrayLike | LatLonGrid,
    y: ArrayLike,
    *,
    executor: ExecutorLike = None,
    memory_limit_bytes: int | None = None,
) -> LeaveOneOut:
    """Predict every observation from all the others, exactly: by a Cholesky factor, on a grid by rings."""
    parts = patterns(X, y)
    shape = (len(parts[0].y), *parts[0].given.shape)
    mean, variance = np.full(shape, np.nan), np.full(shape, np.nan)
    nowhere = np.empty((0, parts[0].columns))
    with given_or_threads(executor, memory_limit_bytes) as (executor, limit):
        problems = Problems(
            prior, nowhere, full_covariance=False, executor=executor, memory_limit_bytes=limit
        )
        for part in parts:
            problem, seen = problems.of(part), part.observed()
            basis, _ = orthonormal(prior.basis_at(problem.gram.X), prior.coefficient_names)
            columns = np.concatenate([problem.residuals, basis], axis=1)
            solved, precision = _solved_and_precision(problem.gram, columns, executor)
            weights = solved[:, : seen.values.shape[1]]
            if basis.shape[1]:
                of_basis = solved[:, seen.values.shape[1] :]
                estimate = np.linalg.solve(basis.T @ of_basis, of_basis.T)
                weights = weights - of_basis @ (estimate @ seen.values)
                left = precision - np.einsum("nk,kn->n", of_basis, estimate)
                _check_estimable(prior, problem.gram.X, left / precision)
                precision = left
            numbers = _observation_of(seen)
            found = seen.values - weights / precision[:, None]
            mean[part.fields[:, None], *_broadcast(seen.given)] = found[numbers].T
            variance[part.fields[:, None], *_broadcast(seen.given)] = 1.0 / precision[numbers]
    return LeaveOneOut(mean, variance)


def _broadcast(given: Mask) -> tuple[Indices, ...]:
    return tuple(index[None] for index in np.nonzero(given))


def _check_estimable(prior: Prior, X: Array, left: Array) -> None:
    """Refuse a mean that one point (n, p) alone tells of: nothing is ``left`` (n,) of the precision there."""
    alone = np.flatnonzero(left <= COLLINEAR)
    if alone.size:
        raise ArgumentError(
            f"without the observation at {X[alone[0]].tolist()} the coefficients of the mean "
            f"({', '.join(prior.coefficient_names)}) cannot be estimated from the others. Use a mean with "
            "fewer, or one that is known."
        )


def _solved_and_precision(gram: Gram, columns: Array, executor: Executor) -> tuple[Array, Array]:
    """``G^-1`` applied to columns (n, r), and its diagonal (n,)."""
    with single_threaded_blas():
        exact = gram.exact(executor=executor)
        if exact is not None:
            return exact.weights(columns), exact.inverse_diagonal()
    with blas_threads_for(gram.shape[0]):
        factor = gram.kernel(gram.X, gram.X)
        factor[np.diag_indices(len(factor))] += gram.noise_variance
        cholesky_in_place(factor[None])  # in place: the memory of one matrix
        solved = np.ascontiguousarray(columns)[None].copy()
        solve_lower(factor[None], solved)
        solve_lower(factor[None], solved, transposed=True)
        return solved[0], np.asarray(inverse_diagonals(factor[None])[0])


def _observation_of(seen: Observed) -> Indices:
    """Tell which observation each given point is, in the order of `Observed.given`."""
    if seen.layout is None:
        return np.arange(len(seen.X))
    numbers = np.zeros(seen.layout.grid.shape, dtype=np.intp)
    numbers[seen.layout.observed] = np.arange(len(seen.X))
    poles = is_pole(seen.layout.grid.latitude_degrees)
    numbers[poles] = numbers[poles][:, :1]
    return numbers[seen.given[seen.given.any(axis=1)]]
