"""Sparse Gaussian-process regression: Titsias' lower bound of the likelihood from a few inducing points.

For m inducing points Z, T fields b (n, T) with noise variance ``s2``, and ``Q = k(X, Z) k(Z, Z)^-1 k(Z, X)``,
the bound is the log likelihood under Q in place of K, less what Q leaves out of the prior variance
([Titsias 2009], math 11)::

    L L' = k(Z, Z),   a = L^-1 k(Z, X),   B = I + a a' / s2 = R R',   c = R^-1 a b / s2

    bound = -1/2 [ T (n log(2 pi s2) + log|B|) + b'b / s2 - c'c + T (tr K - tr a a') / s2 ]

at most the log likelihood, and equal to it with Z = X (T35). It is a function of the hyperparameters and,
where that is asked for, of the coordinates of Z, with analytic gradient. With ``u = R^-T c`` and
``N = T (I - B^-1) - u u'`` its derivatives by the kernel matrices are::

    by k(Z, X):   L^-T (N a + u b') / s2           by k(Z, Z):   L^-T (N - T a a' / s2) L^-1 / 2

An evaluation holds three matrices of m x n numbers.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.kernels import Kernel, point_columns
from cagp_dist.likelihood.learned.objective import Hyperparameters, KernelArrays
from cagp_dist.likelihood.numbering import Families, Model

JITTER = 1e-8
"""Of the variance, on the diagonal of k(Z, Z) in `variational`: points may coincide."""


class SparsePosterior(NamedTuple):
    """What a few inducing points make of the field at q targets."""

    mean: Array  # (q, T): unit of y, without the prior mean
    variance: Array  # (q,): latent, squared unit of y


@dataclass(frozen=True, eq=False)
class _Seen:
    """What the inducing points see at one vector; the names are those of the module."""

    kernel: Kernel
    noise_variance: float  # ``s2``
    Z: Array  # (m, p)
    # factor, inner: (m, m): L and R
    factor: Array
    inner: Array
    a: Array  # (m, n)
    squares: Array  # (m, m): ``a a'``
    c: Array  # (m, T)


@final
class Sgpr:
    """Titsias' bound by hyperparameters and, where they are learnt, inducing points; see `Objective`.

    Shapes: ``X`` (n, p), ``residuals`` (n, T), ``inducing`` (m, p).
    """

    def __init__(
        self,
        kernel: Families | Model,
        X: Array,
        residuals: Array,
        *,
        inducing: Array,
        learn_inducing: bool = False,
        jitter: float = 0.0,
        anisotropic: bool = False,
    ) -> None:
        self.hyperparameters = Hyperparameters.of(kernel, X, anisotropic=anisotropic)
        self.inducing = inducing
        self._X, self._b, self._learns, self._jitter = X, residuals, learn_inducing, jitter

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hyperparameters."""
        return self.hyperparameters.names

    @property
    def size(self) -> int:
        """Hyperparameters, and the coordinates of the inducing points where they are learnt."""
        return self.hyperparameters.size + self._learns * self.inducing.size

    def vector(self, kernel: Kernel, noise_variance: float) -> Array:
        """Give the vector of a kernel of this model and a noise variance, Z where it begins."""
        logarithms = self.hyperparameters.write(kernel, noise_variance)
        return np.concatenate([logarithms, self.inducing.ravel()]) if self._learns else logarithms

    def __call__(self, vector: Array) -> tuple[float, Array]:
        """Evaluate at logarithms of hyperparameters, and coordinates of Z."""
        seen = self._at(vector)
        return self._value(seen), self._gradient(seen)

    def posterior(self, vector: Array, targets: Array) -> SparsePosterior:
        """Give mean and variance of the field at targets (q, p).

        ``mean = k(x, Z) L^-T R^-T c`` and ``variance = k(x, x) - |L^-1 k(Z, x)|^2 + |R^-1 L^-1 k(Z, x)|^2``.
        """
        seen = self._at(vector)
        explained = solve_triangular(seen.factor, seen.kernel(seen.Z, targets), lower=True)
        left = solve_triangular(seen.inner, explained, lower=True)
        variance = seen.kernel.variance - (explained**2).sum(axis=0) + (left**2).sum(axis=0)
        return SparsePosterior(left.T @ seen.c, variance)

    def _at(self, vector: Array) -> _Seen:
        """Whiten k(Z, X), and factor what is seen of the data."""
        kernel, s2 = self.hyperparameters.read(vector)
        Z = self.inducing
        if self._learns:
            Z = vector[self.hyperparameters.size :].reshape(Z.shape)
        own = kernel(Z, Z)
        own[np.diag_indices(len(Z))] += self._jitter * kernel.variance
        factor = cholesky(own, lower=True)
        a = solve_triangular(factor, kernel(Z, self._X), lower=True)
        squares = a @ a.T
        inner = cholesky(np.eye(len(Z)) + squares / s2, lower=True)
        c = solve_triangular(inner, a @ self._b / s2, lower=True)
        return _Seen(kernel, s2, Z, factor, inner, a, squares, c)

    def _left_out(self, seen: _Seen) -> float:
        """``tr K - tr a a'``."""
        return len(self._X) * seen.kernel.variance - float(seen.squares.trace())

    def _value(self, seen: _Seen) -> float:
        (n, T), s2 = self._b.shape, seen.noise_variance
        log_determinant = 2.0 * np.log(seen.inner.diagonal()).sum()
        constant = T * (n * np.log(2.0 * np.pi * s2) + log_determinant)
        misfit = (np.vdot(self._b, self._b) + T * self._left_out(seen)) / s2
        return -0.5 * float(constant + misfit - np.vdot(seen.c, seen.c))

    def _gradient(self, seen: _Seen) -> Array:
        (n, T), s2, m = self._b.shape, seen.noise_variance, len(seen.Z)

        def back(columns: Array) -> Array:
            return solve_triangular(seen.factor, columns, lower=True, trans="T")

        u = solve_triangular(seen.inner, seen.c, lower=True, trans="T")
        inverse = cho_solve((seen.inner, True), np.eye(m))
        N = T * (np.eye(m) - inverse) - u @ u.T
        by_own = 0.5 * back(back(N - (T / s2) * seen.squares).T)
        by_cross = back(N @ seen.a + u @ self._b.T) / s2
        arrays, Z = self.hyperparameters.arrays(seen.kernel), point_columns(seen.Z)
        total = pair_gradients(arrays, Z, point_columns(self._X), by_cross, by_points=self._learns)
        own = pair_gradients(arrays, Z, Z, by_own, by_points=self._learns)
        shape = len(arrays.families), len(Z) + 1
        own[shape[0] * shape[1] :] *= 2.0  # each inducing point stands on both sides
        by_kernel, by_point = np.split(total + own, [shape[0] * shape[1]])
        by_kernel = by_kernel.reshape(shape)
        by_kernel[:, -1] += arrays.variances * (self._jitter * float(by_own.trace()) - 0.5 * T * n / s2)
        # by the logarithm of the noise variance
        traces = T * (m - n + self._left_out(seen) / s2 - inverse.trace())
        squares = np.vdot(self._b, self._b) / s2 - np.vdot(seen.c, seen.c) - np.vdot(u, u)
        by_hyperparameter = self.hyperparameters.gradient(by_kernel, 0.5 * float(traces + squares))
        return np.concatenate([by_hyperparameter, by_point.reshape(len(Z), -1).T.ravel()])


def pair_gradients(arrays: KernelArrays, Z: Array, X: Array, weights: Array, *, by_points: bool) -> Array:
    """Differentiate ``<W, k(Z, X)>`` by the kernel, and by the points Z where that is asked for.

    Shapes: ``Z, X`` (p, m) and (p, n), ``weights`` (m, n); returns (parts (p + 1),), then the p m entries.
    """
    from cagp_dist.compiled import add_pair_gradients

    p, m = Z.shape
    by_kernel = np.zeros((len(arrays.families), p + 1))
    by_point = np.zeros((p, m if by_points else 0))
    add_pair_gradients(*arrays, Z, X, np.ascontiguousarray(weights), by_kernel, by_point)
    return np.concatenate([by_kernel.ravel(), by_point.ravel()])


def variational(
    family: Families, prior: cagp.Prior, X: Array, y: Array, targets: Array, *, inducing: Array
) -> SparsePosterior:
    """Give the best variational posterior for a prior, whose kernel is of a family, and inducing points.

    SVGP ends there if both are held [Titsias 2009]. Shapes: ``X`` (n, p), ``y`` (n,), ``targets`` (q, p),
    ``inducing`` (m, p).
    """
    bound = Sgpr(family, X, y[:, None], inducing=inducing, jitter=JITTER)
    return bound.posterior(bound.vector(prior.kernel, prior.noise_number), targets)
