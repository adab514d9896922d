"""Dense formulas that every answer is held against, and the exact likelihood that every fit is judged by."""

import numpy as np
import scipy.linalg
from scipy.spatial.distance import cdist

from cagp_dist.gram.vecchia_factor import vecchia_factor
from cagp_dist.kernels import Matern32
from cagp_dist.runtime import given_or_threads
from pipelines.benchmarks.peers.adapters.harness import Array, Fit, Prediction, Problem
from pipelines.benchmarks.peers.catalogue import Method, Model

TAPER_SUPPORT = 0.4

MOST_DENSE, VECCHIA = 12_000, 200
"""Points whose likelihood is worked out densely, and neighbours of a conditional beyond."""


def matern32(X: Array, Z: Array, *, lengthscale: float, variance: float) -> Array:
    """Matern-3/2 of Euclidean distance, shape (n, m)."""
    scaled = np.sqrt(3.0) * cdist(X, Z) / lengthscale
    return variance * (1.0 + scaled) * np.exp(-scaled)


def wendland(X: Array, Z: Array) -> Array:
    """``(1 - r)^4 (4 r + 1)`` with r the distance over the support, zero beyond it, shape (n, m)."""
    relative = np.minimum(cdist(X, Z) / TAPER_SUPPORT, 1.0)
    return (1.0 - relative) ** 4 * (4.0 * relative + 1.0)


def predict(problem: Problem, model: Model) -> Prediction:
    """Predict new observations at X_test by a dense solve.

    ``"ordinary"`` estimates a constant mean along: with ``g = G^-1 1``, the mean is ``1' G^-1 y / 1' g``
    and the variance grows by ``(1 - v' g)^2 / 1' g`` [Rasmussen & Williams 2006, 2.7].
    """

    def kernel(X: Array, Z: Array) -> Array:
        values = matern32(X, Z, lengthscale=problem.lengthscale, variance=problem.variance)
        return values * wendland(X, Z) if model == "tapered" else values

    G = kernel(problem.X, problem.X) + problem.noise_variance * np.eye(len(problem.X))
    V = kernel(problem.X_test, problem.X)
    weights = np.linalg.solve(G, V.T)
    mean = weights.T @ problem.y
    variance = problem.variance + problem.noise_variance - np.einsum("ij,ji->i", V, weights)
    if model == "ordinary":
        ones = np.linalg.solve(G, np.ones(len(G)))
        missing = 1.0 - weights.sum(axis=0)
        mean += missing * (ones @ problem.y) / ones.sum()
        variance += missing**2 / ones.sum()
    return Prediction(mean, np.sqrt(variance))


def difference(problem: Problem, method: Method, prediction: Prediction) -> float:
    """Largest difference to `predict`, in standard deviations of the data."""
    exact = predict(problem, method.model)
    errors = [prediction.mean - exact.mean]
    if method.exact_spread:
        errors.append(prediction.std - exact.std)
    return float(np.abs(np.concatenate(errors)).max() / problem.y.std())


def log_likelihood(problem: Problem, fit: Fit) -> float:
    """Log marginal likelihood of the observations under fitted hyperparameters, by a dense factor.

    Of more than `MOST_DENSE` points by Vecchia's factor with 200 neighbours, whose differences between fits
    are those of the likelihood to a unit or so.
    """
    n, numbers = len(problem.X), {"lengthscale": fit.lengthscale, "variance": fit.variance}
    if n > MOST_DENSE:
        with given_or_threads(None, None) as (executor, _):
            factor = vecchia_factor(
                Matern32(**numbers), problem.X, fit.noise_variance, neighbours=VECCHIA, executor=executor
            )
        data, logdet = factor.whiten(problem.y), factor.log_determinant
    else:
        G = matern32(problem.X, problem.X, **numbers)
        G[np.diag_indices(n)] += fit.noise_variance
        lower = scipy.linalg.cholesky(G, lower=True, overwrite_a=True, check_finite=False)
        data = scipy.linalg.solve_triangular(lower, problem.y, lower=True, check_finite=False)
        logdet = 2.0 * np.log(lower.diagonal()).sum()
    return float(-0.5 * (data @ data + logdet + n * np.log(2.0 * np.pi)))
