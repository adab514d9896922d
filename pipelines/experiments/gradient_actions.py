"""Objectives of the posterior of conjugate gradients: the evidence lower bound, and the projected likelihood.

Actions are the directions that conjugate gradients take for the hyperparameters at hand, and follow them from
step to step (CaGP-CG of [Wenger et al. 2024]). For actions S (n, i), one field b and ``G = K + s2 I``::

    D = S L^-T with L L' = S'G S,   so that D'G D = I and D D' = S (S'G S)^-1 S'
    U = K D,   v = D D'b,   e = b - K v

    -2 ELBO = (|e|^2 + tr K - |U|^2) / s2 + (n - i) log s2 + n log 2 pi + v'K v - tr D'U - log|D'D|
    -2 L    = |D'b|^2 - log|D'D| + i log 2 pi                       of the projected data S'b alone

the objectives of `cagp_dist.likelihood.learned.elbo` and `pipelines.experiments.projected_likelihood`, which
have block-sparse actions, for dense ones. Derivatives by K, with S held::

    ELBO:   [(I - D U')(I - U D') - 2 (e - D U'e) v'] / s2 + v v' - 2 (D U'v) v' + D (D'U) D'
    L:      D D' - v v'

How the directions themselves change with the hyperparameters is left out, so that this is not the gradient of
the value. Matrices are dense: three of 8 n^2 bytes.
"""

from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular

from cagp_dist.arrays import Array
from cagp_dist.kernels import point_columns
from cagp_dist.likelihood.learned.objective import Hyperparameters
from cagp_dist.runtime import single_threaded_blas
from cagp_dist.solvers.actions.policies import residuals
from cagp_dist.solvers.actions.projection import project
from pipelines.experiments.sgpr import pair_gradients

Parts = tuple[float, Array, float]
"""Minus twice an objective, and its derivatives by K (n, n) and by the noise variance."""


def lower_bound(D: Array, U: Array, b: Array, noise_variance: float, trace: float) -> Parts:
    """Give the evidence lower bound. Shapes: ``D, U`` (n, i), ``b`` (n,); ``trace`` is that of K."""
    (n, i), s2 = D.shape, noise_variance
    lengths, seen, squares = D.T @ D, D.T @ U, U.T @ U
    a = D.T @ b
    v, e = D @ a, b - U @ a
    misfit = float(e @ e) + trace - float(np.trace(squares))
    twice = (
        misfit / s2
        + (n - i) * np.log(s2)
        + n * np.log(2.0 * np.pi)
        + float(a @ seen @ a)
        - float(np.trace(seen))
        - float(np.linalg.slogdet(lengths)[1])
    )
    back, left = D.T @ v, U.T @ v
    by_kernel = ((D @ squares - U) @ D.T - D @ U.T) / s2 + D @ seen @ D.T
    by_kernel += np.outer(v - (2.0 / s2) * (e - D @ (U.T @ e)) - 2.0 * (D @ left), v)
    by_kernel[np.diag_indices(n)] += 1.0 / s2
    by_noise = (
        (n - i) / s2
        - misfit / s2**2
        + (2.0 * float(e @ U @ back) + float(np.vdot(squares, lengths))) / s2
        - 2.0 * float(left @ back)
        + float(np.vdot(seen, lengths))
        + float(np.trace(lengths))
    )
    return float(twice), by_kernel, by_noise


def projected(D: Array, U: Array, b: Array, noise_variance: float, trace: float) -> Parts:
    """Give the log likelihood of the projected data; arguments as for `lower_bound`."""
    lengths, a = D.T @ D, D.T @ b
    v = D @ a
    twice = float(a @ a) - float(np.linalg.slogdet(lengths)[1]) + len(a) * np.log(2.0 * np.pi)
    return float(twice), D @ D.T - np.outer(v, v), float(np.trace(lengths)) - float(v @ v)


class GradientActions:
    """An objective of hyperparameters whose actions are directions of conjugate gradients; see `Objective`.

    Shapes: ``X`` (n, p), ``b`` (n,). ``objective`` is `lower_bound` or `projected`.
    """

    def __init__(
        self,
        hyperparameters: Hyperparameters,
        X: Array,
        b: Array,
        *,
        actions: int,
        objective: Callable[[Array, Array, Array, float, float], Parts],
    ) -> None:
        self.hyperparameters, self._X, self._b = hyperparameters, X, b
        self._actions, self._objective = actions, objective

    @property
    def size(self) -> int:
        """Number of hyperparameters."""
        return self.hyperparameters.size

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hyperparameters."""
        return self.hyperparameters.names

    def __call__(self, vector: Array) -> tuple[float, Array]:
        """Evaluate at logarithms of hyperparameters, with the directions of these."""
        with single_threaded_blas():
            return self.at(vector, self.directions(vector))

    def directions(self, vector: Array) -> Array:
        """Directions of conjugate gradients (n, i), fewer where the residual is at rounding level before."""
        kernel, noise_variance = self.hyperparameters.read(vector)
        G = kernel(self._X, self._X)
        G[np.diag_indices(len(G))] += noise_variance
        found = project(G.__matmul__, self._b[:, None], policy=residuals, iterations=self._actions)
        return np.stack([step.direction for step in found if step.direction.any()], axis=1)

    def at(self, vector: Array, S: Array) -> tuple[float, Array]:
        """Evaluate with actions S (n, i) that are held."""
        kernel, noise_variance = self.hyperparameters.read(vector)
        K = kernel(self._X, self._X)
        image = K @ S
        factor = np.linalg.cholesky(S.T @ image + noise_variance * (S.T @ S))
        D, U = (solve_triangular(factor, columns.T, lower=True).T for columns in (S, image))
        twice, by_kernel, by_noise = self._objective(D, U, self._b, noise_variance, float(np.trace(K)))
        arrays, points = self.hyperparameters.arrays(kernel), point_columns(self._X)
        found = pair_gradients(arrays, points, points, by_kernel, by_points=False)
        gradient = self.hyperparameters.gradient(
            found.reshape(len(arrays.families), -1), noise_variance * by_noise
        )
        return -0.5 * twice, -0.5 * gradient
