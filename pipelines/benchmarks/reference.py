"""What one would write without the package: blocked NumPy products, Algorithm 2 with dense SciPy."""

import numpy as np
import scipy.linalg
from scipy.spatial.distance import cdist

from cagp_dist.arrays import Array


def matern32(X: Array, Z: Array, lengthscale: float, variance: float) -> Array:
    """Matern-3/2 kernel matrix (n, m) by NumPy expressions on squared differences."""
    squared = np.zeros((len(X), len(Z)))
    for k in range(X.shape[1]):
        squared += (X[:, k, None] - Z[None, :, k]) ** 2
    scaled = np.sqrt(squared)
    scaled *= np.sqrt(3.0) / lengthscale
    return variance * (1.0 + scaled) * np.exp(-scaled)


def blocked_product(
    X: Array, columns: Array, lengthscale: float, variance: float, *, side: int = 256
) -> Array:
    """``k(X, X) @ columns`` by square tiles that stay in cache (the fastest side for NumPy here)."""
    out = np.zeros((len(X), columns.shape[1]))
    for row in range(0, len(X), side):
        for start in range(0, len(X), side):
            tile = matern32(X[row : row + side], X[start : start + side], lengthscale, variance)
            out[row : row + side] += tile @ columns[start : start + side]
    return out


def likelihood(
    X: Array, y: Array, *, lengthscale: float, variance: float, noise_variance: float
) -> tuple[float, Array]:
    """Log marginal likelihood and its gradient by log (lengthscale, variance, noise variance), dense."""
    scaled = cdist(X, X)
    scaled *= np.sqrt(3.0) / lengthscale
    values = np.exp(-scaled)
    values *= variance
    slope = scaled**2 * values  # dK / d log(lengthscale)
    scaled += 1.0
    values *= scaled
    values[np.diag_indices(len(X))] += noise_variance
    factor = scipy.linalg.cholesky(values, lower=True, overwrite_a=False, check_finite=False)
    weights = scipy.linalg.cho_solve((factor, True), y, check_finite=False)
    logdet = 2.0 * np.log(np.diag(factor)).sum()
    inverse, _ = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    inverse_trace = np.trace(inverse)
    trace = 2.0 * np.einsum("ij,ij->", np.tril(inverse), slope)  # the slope vanishes on the diagonal
    quadratic = float(y @ weights)
    by_noise = 0.5 * noise_variance * (weights @ weights - inverse_trace)
    both = 0.5 * (quadratic - len(y))  # variance and noise scaled together
    value = -0.5 * (quadratic + logdet + len(y) * np.log(2.0 * np.pi))
    return value, np.array([0.5 * (weights @ slope @ weights - trace), both - by_noise, by_noise])


def algorithm2(
    X: Array, y: Array, X_test: Array, *, lengthscale: float, noise_variance: float, iterations: int
) -> tuple[Array, Array]:
    """CAGP-GS of Hegde, Adil & Cockayne (Algorithm 2) with dense triangles; mean and variance (q,).

    m covariance terms for m mean sweeps; unit prior variance, zero prior mean.
    """

    def kernel(A: Array, B: Array) -> Array:
        scaled = cdist(A, B)
        scaled *= np.sqrt(3.0) / lengthscale
        values = np.exp(-scaled)
        scaled += 1.0
        values *= scaled
        return values

    G = kernel(X, X)
    G[np.diag_indices(len(X))] += noise_variance
    lower, upper = np.tril(G), np.triu(G, 1)
    diagonal = G.diagonal()[:, None]
    V = kernel(X_test, X)
    Z = scipy.linalg.solve_triangular(lower, V.T, lower=True, trans="T", check_finite=False)
    z = v = scipy.linalg.solve_triangular(lower, y, lower=True, check_finite=False)
    downdate = np.sum(diagonal * Z**2, axis=0)
    for _ in range(iterations - 1):
        v = z - scipy.linalg.solve_triangular(lower, upper @ v, lower=True, check_finite=False)
        Z = scipy.linalg.solve_triangular(lower, upper.T @ Z, lower=True, trans="T", check_finite=False)
        downdate += np.sum(diagonal * Z**2, axis=0)
    return V @ v, 1.0 - downdate
