"""Dense textbook formulas, written without the package: what its results are compared with.

Everything is n x n and slow on purpose. Symbols are those of the mathematics page: ``G = K + noise I``,
``V = k(X', X)``, ``b = y - m0(X)``, ``A`` the matrix of a solver, ``D = A + A' - A G A'``.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, cho_factor, cho_solve
from scipy.spatial.distance import cdist

import cagp_dist as cagp

Array = NDArray[np.float64]

PROFILES: dict[str, Callable[[Array], Array]] = {
    "Matern12": lambda u: np.exp(-u),
    "Matern32": lambda u: (1.0 + np.sqrt(3.0) * u) * np.exp(-np.sqrt(3.0) * u),
    "Matern52": lambda u: (1.0 + np.sqrt(5.0) * u + 5.0 * u**2 / 3.0) * np.exp(-np.sqrt(5.0) * u),
    "SquaredExponential": lambda u: np.exp(-(u**2) / 2.0),
}
KERNELS = [getattr(cagp, name) for name in PROFILES]


def short_and_long(lengthscale: float, variance: float = 1.0) -> cagp.Sum:
    """A rough part with a quarter of the lengthscale and of the variance, and a smooth part."""
    return cagp.Matern32(lengthscale / 4.0, variance / 4.0) + cagp.Matern52(lengthscale, 0.75 * variance)


KERNELS_AND_SUMS = [*KERNELS, short_and_long]


def kernel_matrix(kernel: cagp.Matern32 | cagp.Sum, X: Array, Z: Array) -> Array:
    """``k(X, Z)`` by the formulas of the kernel's name, or those of its parts, and SciPy's distances."""
    if isinstance(kernel, cagp.Sum):
        return np.sum([kernel_matrix(part, X, Z) for part in kernel.parts], axis=0)
    if isinstance(kernel.lengthscale, tuple):
        X, Z = X / np.array(kernel.lengthscale), Z / np.array(kernel.lengthscale)
        return kernel.variance * PROFILES[type(kernel).__name__](cdist(X, Z))
    return kernel.variance * PROFILES[type(kernel).__name__](cdist(X, Z) / kernel.lengthscale)


def ring_points(latitude_degrees: Array, n_longitudes: int) -> Array:
    """Points of a full-circle grid on the unit sphere, latitude by latitude, shape (P Q, 3)."""
    phi = np.repeat(np.deg2rad(latitude_degrees), n_longitudes)
    lam = np.tile(2.0 * np.pi * np.arange(n_longitudes) / n_longitudes, len(latitude_degrees))
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=1)


def ring_matrix(kernel: cagp.Matern32, latitude_degrees: Array, n_longitudes: int) -> Array:
    """K of all points of a grid, shape (n, n): the brute-force counterpart of `cagp_dist.RingGram`."""
    X = ring_points(latitude_degrees, n_longitudes)
    return kernel_matrix(kernel, X, X)


class Kriged(NamedTuple):
    """Universal kriging: mean (q, T) and covariance (q, q), coefficients (k, T) and covariance (k, k)."""

    mean: Array
    covariance: Array
    coefficients: Array
    coefficient_covariance: Array


def universal_kriging(G: Array, V: Array, K2: Array, H: Array, H2: Array, y: Array) -> Kriged:
    """Rasmussen & Williams (2006), equations 2.41 and 2.42 with nothing known of the coefficients."""
    inverse = np.linalg.inv(G)
    covariance = np.linalg.inv(H.T @ inverse @ H)
    coefficients = covariance @ (H.T @ (inverse @ y))
    left = H2 - V @ inverse @ H
    return Kriged(
        H2 @ coefficients + V @ inverse @ (y - H @ coefficients),
        K2 - V @ inverse @ V.T + left @ covariance @ left.T,
        coefficients,
        covariance,
    )


@dataclass(frozen=True)
class Dense:
    """A regression problem as matrices: G (n, n), V (q, n), K2 = K'' (q, q), b (n, T) and the prior mean."""

    G: Array
    V: Array
    K2: Array
    b: Array
    centre: Array

    def belief(self, A: Array) -> tuple[Array, Array]:
        """Mean and covariance of theorem 1.1 (math 1.1, equation 1) for the solver's matrix A."""
        return self.centre + self.V @ (A @ self.b), self.K2 - self.V @ downdate(A, self.G) @ self.V.T

    def exact(self) -> tuple[Array, Array]:
        """The posterior by a Cholesky solve."""
        factor = cho_factor(self.G, lower=True)
        mean = self.centre + self.V @ cho_solve(factor, self.b)
        return mean, self.K2 - self.V @ cho_solve(factor, self.V.T)

    def projected(self, S: Array) -> tuple[Array, Array]:
        """The belief after the actions S (n, i): ``A = D = S (S'GS)^-1 S'`` (math 4)."""
        SV, T = self.V @ S, S.T @ self.G @ S
        return (
            self.centre + SV @ np.linalg.solve(T, S.T @ self.b),
            self.K2 - SV @ np.linalg.solve(T, SV.T),
        )


def dense(prior: cagp.Prior, X: Array, y: Array, X_test: Array) -> Dense:
    """Matrices of the problem that `cagp.condition` is given."""

    def mean(points: Array) -> Array:
        values = prior.mean(points) if callable(prior.mean) else np.full(len(points), prior.mean)
        return np.asarray(values).reshape(len(points), *np.shape(y)[1:])

    return Dense(
        G=kernel_matrix(prior.kernel, X, X) + prior.noise_variance * np.eye(len(X)),
        V=kernel_matrix(prior.kernel, X_test, X),
        K2=kernel_matrix(prior.kernel, X_test, X_test),
        b=y - mean(X),
        centre=mean(X_test),
    )


def downdate(A: Array, G: Array) -> Array:
    """``D(A) = A + A' - A G A'``."""
    return A + A.T - A @ G @ A.T


def compose(G: Array, stages: Iterable[Array]) -> tuple[Array, Array, Array]:
    """A, D and M of the affine stages ``v <- v + Mt (b - G v)``, by the recursion (2) of math 1.2."""
    n = len(G)
    A, D, M_total = np.zeros((n, n)), np.zeros((n, n)), np.eye(n)
    for Mt in stages:
        M = np.eye(n) - Mt @ G
        A = Mt + M @ A
        D = Mt + Mt.T - Mt @ G @ Mt.T + M @ D @ M.T
        M_total = M @ M_total
    return A, D, M_total


def point_stage(G: Array) -> Array:
    """``Mt = (D + L)^-1`` of point Gauss-Seidel."""
    return np.linalg.inv(np.tril(G))


def block_stage(G: Array, block_size: int) -> Array:
    """``Mt`` of block Gauss-Seidel: the inverse of the block lower triangle, diagonal blocks included."""
    return np.linalg.inv(block_lower(G, block_size))


def block_lower(G: Array, block_size: int) -> Array:
    """Entries of G on and below the diagonal blocks."""
    index = np.arange(len(G)) // block_size
    return np.where(index[:, None] >= index[None, :], G, 0.0)


def block_diagonal(G: Array, block_size: int) -> Array:
    """The diagonal blocks of G."""
    edges = range(0, len(G), block_size)
    return block_diag(*[G[i : i + block_size, i : i + block_size] for i in edges])


def algorithm_2(G: Array, V: Array, b: Array, iterations: int) -> tuple[Array, Array]:
    """Algorithm 2 of [Hegde, Adil & Cockayne 2025]: ``V v_m`` and the downdate.

    With the factor ``(-1)^(i-1)`` that the printed recursion of Z leaves out, so that ``sum_i Z_i' b``
    is the mean as well (math 3).
    """
    L, U = np.tril(G), np.triu(G, 1)
    root = np.sqrt(np.diag(G))[:, None]
    Z = np.linalg.solve(L.T, V.T)
    start = np.linalg.solve(L, b)
    v, total = start, (root * Z).T @ (root * Z)
    mean = Z.T @ b
    for i in range(2, iterations + 1):
        v = start - np.linalg.solve(L, U @ v)
        Z = np.linalg.solve(L.T, U.T @ Z)
        total = total + (root * Z).T @ (root * Z)
        mean = mean + (-1.0) ** (i - 1) * Z.T @ b
    np.testing.assert_allclose(mean, V @ v, rtol=1e-8, atol=1e-8 * np.abs(V @ v).max())
    return V @ v, total


def conjugate_gradients(G: Array, b: Array, iterations: int) -> tuple[list[Array], Array]:
    """Textbook conjugate gradients, residuals made orthogonal to all earlier ones: iterates, directions."""
    v, r = np.zeros_like(b), b.copy()
    residuals, directions, iterates = [], [np.empty((len(b), 0))], []
    d = r.copy()
    for _ in range(iterations):
        residuals.append(r / np.linalg.norm(r))
        Gd = G @ d
        step = (r @ r) / (d @ Gd)
        directions.append(d[:, None])
        v = v + step * d
        iterates.append(v)
        successor = r - step * Gd
        for _ in range(2):
            for earlier in residuals:
                successor = successor - (earlier @ successor) * earlier
        d = successor + (successor @ successor) / (r @ r) * d
        r = successor
    return iterates, np.concatenate(directions, axis=1)


def assert_close(actual: Array, expected: Array, *, relative: float = 1e-9) -> None:
    """Largest difference at most ``relative`` times the largest expected magnitude."""
    assert np.shape(actual) == np.shape(expected)
    scale = np.abs(expected).max(initial=0.0)
    assert np.abs(actual - expected).max(initial=0.0) <= relative * scale


def assert_same_bits(posterior: cagp.Posterior, reference: cagp.Posterior) -> None:
    """Mean, variance, covariance and every step of the trace agree to the last bit."""
    pairs: list[tuple[Sequence[float] | Array | None, Array | None]] = [
        (posterior.mean, reference.mean),
        (posterior.variance, reference.variance),
        (posterior.covariance, reference.covariance),
    ]
    assert len(posterior.trace) == len(reference.trace)
    for step, other in zip(posterior.trace, reference.trace, strict=True):
        assert step.iteration == other.iteration
        pairs += [(step.mean, other.mean), (step.variance, other.variance)]
    for actual, expected in pairs:
        assert (actual is None) == (expected is None)
        if expected is not None:
            np.testing.assert_array_equal(actual, expected)
