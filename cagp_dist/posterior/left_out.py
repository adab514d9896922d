"""What all other observations predict at each observed point, where the solve is exact (math 7)."""

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.geometry import is_pole
from cagp_dist.gram import DenseGram, LeaveOneOut
from cagp_dist.gram.base import Gram
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.posterior.problem import Observed, Problems, patterns
from cagp_dist.prior import Prior
from cagp_dist.runtime import Executor, blas_threads_for, given_or_threads, single_threaded_blas


def each_left_out(
    prior: Prior,
    X: ArrayLike | LatLonGrid,
    y: ArrayLike,
    *,
    executor: Executor | None = None,
    memory_limit_bytes: int | None = None,
) -> LeaveOneOut:
    """Predict every observation from all the others, exactly: by a Cholesky factor, on a grid by rings.

    ``mean = y - [G^-1 b]_i / [G^-1]_ii``, ``variance = 1 / [G^-1]_ii`` with ``b = y - m0(X)``. The prior is
    taken as it comes: where its mean or its numbers were fitted to y, they know of each value.

    Parameters
    ----------
    prior, X, y, executor, memory_limit_bytes
        As for `cagp_dist.condition`.

    Returns
    -------
    LeaveOneOut
        Mean and variance, noise included, each of shape (T, n) or (T, P, Q); NaN where nothing was observed.
        The Q copies of a pole of a grid are one observation. Cost of the factor, n^3 / 3 flops, and of the
        diagonal of the inverse, as much again; on a grid of one whole-grid solve for each latitude and
        r^2 n flops for r missing points (T28).

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> from cagp_dist.posterior.left_out import each_left_out
    >>> X = np.linspace(0.0, 1.0, 5).reshape(-1, 1)
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.5), noise_variance=0.01)
    >>> each_left_out(prior, X, X[:, 0]).mean.round(2).tolist()
    [[0.11, 0.22, 0.47, 0.79, 0.61]]
    """
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
            weights, precision = _weights_and_precision(problem.gram, problem.residuals, executor)
            numbers = _observation_of(seen)
            found = seen.values - weights / precision[:, None]
            mean[part.fields[:, None], *_broadcast(seen.given)] = found[numbers].T
            variance[part.fields[:, None], *_broadcast(seen.given)] = 1.0 / precision[numbers]
    return LeaveOneOut(mean, variance)


def _broadcast(given: Mask) -> tuple[Indices, ...]:
    return tuple(index[None] for index in np.nonzero(given))


def _weights_and_precision(gram: Gram, residuals: Array, executor: Executor) -> tuple[Array, Array]:
    """``G^-1 b`` (n, T) and the diagonal of ``G^-1`` (n,)."""
    with single_threaded_blas():
        exact = gram.exact(executor=executor)
        if exact is not None:
            return exact.weights(residuals), exact.inverse_diagonal()
    with blas_threads_for(gram.shape[0]):
        dense = DenseGram(gram.kernel, gram.X, noise_variance=gram.noise_variance)
        return dense.solve(residuals), dense.inverse_diagonal()


def _observation_of(seen: Observed) -> Indices:
    """Tell which observation each given point is, in the order of `Observed.given`."""
    if seen.layout is None:
        return np.arange(len(seen.X))
    numbers = np.zeros(seen.layout.grid.shape, dtype=np.intp)
    numbers[seen.layout.observed] = np.arange(len(seen.X))
    poles = is_pole(seen.layout.grid.latitude_degrees)
    numbers[poles] = numbers[poles][:, :1]
    return numbers[seen.given[seen.given.any(axis=1)]]
