"""What one would write without the package: blocked NumPy products, dense SciPy."""

import numpy as np
import scipy.linalg
import scipy.sparse
from scipy.spatial.distance import cdist

from cagp_dist.arrays import Array, Indices


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


def elbo(
    X: Array,
    y: Array,
    values: Array,
    block_of: Indices,
    *,
    lengthscales: Array,
    variance: float,
    noise_variance: float,
    room: Array,
) -> tuple[float, Array]:
    """Evidence lower bound of block-sparse actions with all of K stored, Matern 3/2, and its gradient.

    By the logarithms of the p lengthscales, of variance and noise variance, then by the n entries of the
    actions; formulae as in `cagp_dist.likelihood.learned.elbo`. ``room`` (3, n, n) is overwritten: whoever
    calls again and again does not wait for new memory.
    """
    n, scaled = len(X), X / lengthscales
    S = scipy.sparse.csr_array((values, (np.arange(n), block_of)))
    K, slope, weights = room
    cdist(scaled, scaled, out=K)
    K *= np.sqrt(3.0)
    np.negative(K, out=slope)
    np.exp(slope, out=slope)
    slope *= variance
    K += 1.0
    K *= slope
    slope *= 3.0  # times a squared difference the derivative by the logarithm of its lengthscale
    U, lengths = np.ascontiguousarray((S.T @ K).T), np.bincount(block_of, values**2)
    A, squares, projected = S.T @ U, U.T @ U, S.T @ y
    factor = scipy.linalg.cho_factor(A + np.diag(noise_variance * lengths), lower=True, check_finite=False)
    inverse = scipy.linalg.cho_solve(factor, np.eye(len(A)), check_finite=False)
    v = inverse @ projected
    residual, i = y - U @ v, len(A)
    logdet = 2.0 * np.log(np.diag(factor[0])).sum() - np.log(lengths).sum()
    misfit = residual @ residual + n * variance - np.vdot(inverse, squares)
    value = -0.5 * (
        misfit / noise_variance
        + (n - i) * np.log(noise_variance)
        + n * np.log(2.0 * np.pi)
        + v @ A @ v
        - np.vdot(inverse, A)
        + logdet
    )
    half = inverse @ (A @ v - U.T @ residual / noise_variance)
    by_matrix = np.outer(v, v) - inverse
    by_inverted = inverse @ squares @ inverse / noise_variance + inverse @ A @ inverse + inverse
    by_inverted -= np.outer(half, v) + np.outer(v, half)
    by_own = by_matrix + by_inverted
    by_image = S @ by_own - 2.0 / noise_variance * (np.outer(residual, v) + U @ inverse)
    by_lengths = noise_variance * np.diag(by_inverted) - 1.0 / lengths
    by_value = np.einsum("xi,xi->x", U, by_own[block_of]) + 2.0 * values * by_lengths[block_of]
    by_value += 2.0 * y * half[block_of]
    by_variance = np.vdot(by_image, U) + n * variance / noise_variance
    by_noise = n - i - misfit / noise_variance + noise_variance * (np.diag(by_inverted) @ lengths)
    np.take(by_image, block_of, axis=1, out=weights, mode="clip")
    by_value += np.einsum("ax,ax->x", K, weights)
    weights *= values
    weights *= slope
    by_lengthscale, difference = [], slope
    for column in scaled.T:
        np.subtract.outer(column, column, out=difference)
        difference *= difference
        by_lengthscale.append(np.vdot(weights, difference))
    return value, -0.5 * np.concatenate([by_lengthscale, [by_variance, by_noise], by_value])
