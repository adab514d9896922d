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

X is taken in tiles, twice: for the sums ``a a'`` and ``a b``, and for the derivatives. Of ``k(Z, X)`` there
is never more than a tile for each worker.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.checks import as_points, check_positive
from cagp_dist.errors import ArgumentError, BudgetError, NumericalError
from cagp_dist.gram.tiled import kernel_panel, put_value
from cagp_dist.kernels import Kernel, point_columns
from cagp_dist.lapack import cholesky_in_place, invert_in_place, mirror_lower, solve_lower
from cagp_dist.likelihood.learned.objective import Hyperparameters
from cagp_dist.likelihood.numbering import Families, Model
from cagp_dist.posterior.trace import VARIANCE_ROUNDING
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, Handle, SerialExecutor, single_threaded_blas
from cagp_dist.runtime.memo import key_of
from cagp_dist.text import bytes_text, counted
from cagp_dist.tiling import STRIPS, block_ranges
from pipelines.experiments.inducing_tiles import (
    TILE,
    pair_gradients,
    strip_gradients,
    strip_sums,
    strips_of,
    target_moments,
)

SQUARES = 9
"""Matrices (m, m) that are there at a time beside those of tasks, at most."""

JITTER, VARIATIONAL_BYTES = 1e-8, 2**30
"""Of `variational`; the first because points may coincide."""


class SparsePosterior(NamedTuple):
    """What a few inducing points make of the field at q targets."""

    mean: Array  # (q, T): unit of y, without the prior mean
    variance: Array  # (q,): latent, squared unit of y


@dataclass(frozen=True, eq=False)
class _Seen:
    """What the inducing points see at one vector; the names are those of the module."""

    kernel: Kernel
    noise_variance: float  # ``s2``
    points: Array  # (p, m): Z, by coordinate
    # factor, inner: (m, m): L and R, in the lower triangles
    factor: Array
    inner: Array
    squares: Array  # (m, m): ``a a'``
    whitened: Array  # (m, T): c


@final
class Sgpr:
    """Titsias' bound by hyperparameters and, where they are learnt, inducing points.

    Shapes: ``X`` (n, p), ``residuals`` (n, T), ``inducing`` (m, p).
    """

    def __init__(
        self,
        kernel: Families | Model,
        X: Array,
        residuals: Array,
        *,
        inducing: Array,
        executor: Executor,
        memory_limit_bytes: int,
        learn_inducing: bool = False,
        jitter: float = 0.0,
        anisotropic: bool = False,
    ) -> None:
        self.inducing = as_points("inducing", inducing)
        if residuals.shape[:1] != X.shape[:1] or residuals.ndim != 2:
            raise ArgumentError(
                f"residuals have shape {residuals.shape}; expected ({len(X)}, T).", key="shapes"
            )
        if self.inducing.shape[1] != X.shape[1] or len(self.inducing) == 0:
            raise ArgumentError(
                f"inducing has shape {self.inducing.shape}; expected (m, {X.shape[1]}), at least one point "
                "with the coordinates of X.",
                key="shapes",
            )
        if jitter != 0.0:
            check_positive("jitter", jitter)
        self.hyperparameters = Hyperparameters.of(kernel, X, anisotropic=anisotropic)
        self.points, self.fields = int(residuals.shape[0]), int(residuals.shape[1])
        self._learns, self._jitter, self._executor = learn_inducing, float(jitter), executor
        m = len(self.inducing)
        needed = sgpr_bytes(self.points, m, p=X.shape[1], fields=self.fields, workers=executor.workers)
        if needed > memory_limit_bytes:
            raise BudgetError(
                f"the bound of {counted(m, 'inducing point')} for {self.points:,} points needs "
                f"{bytes_text(needed)} on {counted(executor.workers, 'worker')}, more than the "
                f"{bytes_text(memory_limit_bytes)} that may be used. Take fewer inducing points.",
                key="memory",
                remedies=(Remedy.MORE_MEMORY,),
            )
        self._power = float(np.vdot(residuals, residuals))
        self.fingerprint = self._digest(X, residuals)
        self._strips = [
            (
                executor.submit(put_value, point_columns(X[start:stop]), home=index),
                executor.submit(put_value, np.array(residuals[start:stop]), home=index),
            )
            for index, (start, stop) in enumerate(strips_of(self.points))
        ]

    def _digest(self, X: Array, residuals: Array) -> str:
        settings = (self.hyperparameters, self._learns, self._jitter, TILE, STRIPS)
        return key_of("sgpr", settings, X, residuals, self.inducing)

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
        """Evaluate at logarithms of hyperparameters, and coordinates of Z; see `Objective`."""
        with single_threaded_blas():
            seen = self._at(vector)
            return self._value(seen), self._gradient(seen)

    def posterior(self, vector: Array, targets: Array) -> SparsePosterior:
        """Give mean and variance of the field at targets (q, p), in 2 m^2 (n + q) flops.

        ``mean = k(x, Z) L^-T R^-T c`` and ``variance = k(x, x) - |L^-1 k(Z, x)|^2 + |R^-1 L^-1 k(Z, x)|^2``.
        """
        with single_threaded_blas():
            seen = self._at(vector)
            shared = [
                self._executor.submit(put_value, array)
                for array in (seen.points, seen.factor, seen.inner, seen.whitened)
            ]
            rows = [
                self._executor.submit(
                    target_moments,
                    seen.kernel.parameters,
                    *shared,
                    point_columns(targets[start:stop]),
                    home=k,
                )
                for k, (start, stop) in enumerate(block_ranges(len(targets), TILE))
            ]
            found = np.concatenate([np.empty((0, 1 + self.fields)), *self._executor.gather(rows)])
        variance = seen.kernel.variance + found[:, 0]
        if (least := variance.min(initial=0.0)) < -VARIANCE_ROUNDING * seen.kernel.variance:
            raise NumericalError(
                f"a posterior variance is {least:.3g}, below zero beyond rounding: k(Z, Z) is all but "
                "singular. Give jitter=1e-10, or fewer inducing points.",
                key="negative-variance",
            )
        return SparsePosterior(found[:, 1:], variance)

    def _read(self, vector: Array) -> tuple[Kernel, float, Array]:
        """Kernel, noise variance and Z (p, m) of a vector."""
        if vector.shape != (self.size,):
            raise ArgumentError(
                f"the vector has shape {vector.shape}; expected ({self.size},): logarithms of "
                f"{', '.join(self.names)}{', then the coordinates of Z' if self._learns else ''}.",
                key="shapes",
            )
        kernel, noise_variance = self.hyperparameters.read(vector)
        Z = self.inducing
        if self._learns:
            Z = as_points("Z", vector[self.hyperparameters.size :].reshape(Z.shape))
        return kernel, noise_variance, point_columns(Z)

    def _at(self, vector: Array) -> _Seen:
        """Go through the tiles of X for the sums, and factor what they give."""
        kernel, s2, points = self._read(vector)
        m = points.shape[1]
        factor = kernel_panel(kernel.parameters, points, points)
        factor[np.diag_indices(m)] += self._jitter * kernel.variance
        try:
            cholesky_in_place(factor[None])
        except NumericalError as error:
            raise NumericalError(
                f"k(Z, Z) of {counted(m, 'inducing point')} is not positive definite in floating point with "
                f"{kernel}: some coincide, or are nearer than the kernel can tell apart. Give "
                f"jitter={max(1e-10, 100.0 * self._jitter):.0e}, fewer inducing points, or bounds that keep "
                "lengthscales shorter.",
                key="not-positive-definite",
            ) from error
        shared = [self._executor.submit(put_value, array) for array in (points, factor)]
        strips = [
            self._executor.submit(strip_sums, kernel.parameters, *shared, *strip, home=index)
            for index, strip in enumerate(self._strips)
        ]
        total = _in_order(self._executor, strips)
        squares, whitened = np.ascontiguousarray(total[:, :m]), total[:, m:] / s2
        inner = squares / s2
        inner[np.diag_indices(m)] += 1.0
        cholesky_in_place(inner[None])
        solve_lower(inner[None], whitened[None])
        return _Seen(kernel, s2, points, factor, inner, squares, whitened)

    def _value(self, seen: _Seen) -> float:
        n, T, s2 = self.points, self.fields, seen.noise_variance
        log_determinant = 2.0 * float(np.log(seen.inner.diagonal()).sum())
        left_out = n * seen.kernel.variance - float(seen.squares.trace())
        explained = float(np.vdot(seen.whitened, seen.whitened))
        constant = T * (n * np.log(2.0 * np.pi * s2) + log_determinant)
        return -0.5 * float(constant + (self._power + T * left_out) / s2 - explained)

    def _gradient(self, seen: _Seen) -> Array:
        n, T, s2, m = self.points, self.fields, seen.noise_variance, len(seen.factor)
        factor = seen.factor[None]
        weights = seen.whitened.copy()  # u
        solve_lower(seen.inner[None], weights[None], transposed=True)
        inverse = seen.inner.copy()
        invert_in_place(inverse[None])
        mirror_lower(inverse)
        by_square = -T * inverse - weights @ weights.T  # N
        by_square[np.diag_indices(m)] += T
        by_own = 0.5 * (by_square - (T / s2) * seen.squares)
        for _ in range(2):  # from both sides
            solve_lower(factor, by_own[None], transposed=True)
            by_own = np.ascontiguousarray(by_own.T)
        left, dual = by_square, weights.copy()
        for columns in (left, dual):
            solve_lower(factor, columns[None], transposed=True)
        arrays = self.hyperparameters.arrays(seen.kernel)
        shape = len(arrays.families), len(seen.points) + 1
        shared = [self._executor.submit(put_value, array) for array in (seen.points, seen.factor, left, dual)]
        strips = [
            self._executor.submit(
                strip_gradients, seen.kernel.parameters, arrays, *shared, self._learns, *strip, home=index
            )
            for index, strip in enumerate(self._strips)
        ]
        total = _in_order(self._executor, strips) / s2
        own = pair_gradients(arrays, seen.points, seen.points, by_own, by_points=self._learns)
        own[shape[0] * shape[1] :] *= 2.0  # each inducing point stands on both sides
        total += own
        by_kernel = total[: shape[0] * shape[1]].reshape(shape)
        by_kernel[:, -1] += arrays.variances * (self._jitter * float(by_own.trace()) - 0.5 * T * n / s2)
        # by the logarithm of the noise variance
        left_out = n * seen.kernel.variance - float(seen.squares.trace())
        traces = T * (m - n + left_out / s2 - float(inverse.trace()))
        squares = self._power / s2 - np.vdot(seen.whitened, seen.whitened) - np.vdot(weights, weights)
        by_hyperparameter = self.hyperparameters.gradient(by_kernel, 0.5 * float(traces + squares))
        by_point = total[shape[0] * shape[1] :].reshape(-1, m) if self._learns else np.empty((0, 0))
        return np.concatenate([by_hyperparameter, by_point.T.ravel()])


def variational(
    family: Families, prior: cagp.Prior, X: Array, y: Array, targets: Array, *, inducing: Array
) -> SparsePosterior:
    """Give the best variational posterior for a prior, whose kernel is of a family, and inducing points.

    SVGP ends there if both are held [Titsias 2009]. Shapes: ``X`` (n, p), ``y`` (n,), ``targets`` (q, p),
    ``inducing`` (m, p).
    """
    bound = Sgpr(
        family,
        X,
        y[:, None],
        inducing=inducing,
        executor=SerialExecutor(),
        memory_limit_bytes=VARIATIONAL_BYTES,
        jitter=JITTER,
    )
    return bound.posterior(bound.vector(prior.kernel, prior.noise_number), targets)


def _in_order(executor: Executor, strips: Sequence[Handle[Array]]) -> Array:
    """Sum of the results, in the order of the strips, whoever finishes first."""
    first, *others = executor.gather(strips)
    total = first.copy()
    for other in others:
        total += other
    return total


def sgpr_bytes(n: int, m: int, *, p: int, fields: int, workers: int) -> int:
    """Bytes of the data and of an evaluation, at most: small matrices, sums of strips, tiles of workers."""
    tiles = min(workers, STRIPS) * (2 * m * min(TILE, n) + 4 * m * (m + fields))
    strips = min(STRIPS, -(-n // TILE)) * m * (m + fields)
    return DOUBLE * (n * (2 * p + 2 * fields) + SQUARES * m * (m + fields) + strips + tiles + 8 * m * p)
