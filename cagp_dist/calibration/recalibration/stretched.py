"""Posterior variances as functions of the lengthscales, which a sharp calibrated GP moves.

A kernel is stretched by numbers x: every lengthscale is divided by ``exp(x)``, all by one number or those of
each coordinate by their own, and the variance may be multiplied by one more. The mean stays.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.checks import as_points
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.kernels import Elementary, Kernel, Sum, point_columns
from cagp_dist.prior import Prior, check_prior
from cagp_dist.runtime import blas_threads_for

if TYPE_CHECKING:
    from cagp_dist.latlon import LatLonGrid
    from cagp_dist.runtime import ExecutorLike
    from cagp_dist.solvers import Solver


STEP = 1e-3  # Of differences, on the scale of logarithms


@dataclass(frozen=True)
class Stretch:
    """What of a kernel is moved."""

    # Number of coordinates, each with a lengthscale of its own; None if all are divided by one number
    by_coordinate: int | None = None
    variance: bool = False  # Whether the variance is moved as well

    @property
    def lengths(self) -> int:
        """How many of the numbers divide lengthscales."""
        return self.by_coordinate or 1

    @property
    def numbers(self) -> int:
        """How many numbers there are."""
        return self.lengths + self.variance

    def kernel(self, kernel: Kernel, x: Array) -> Kernel:
        """Stretch a kernel by numbers of shape (P,)."""
        made = [self._part(part, x) for part in kernel.parts]
        stretched: Kernel = Sum(tuple(made)) if len(made) > 1 else made[0]
        return stretched * float(np.exp(x[-1])) if self.variance else stretched

    def _part(self, part: Elementary, x: Array) -> Elementary:
        if part.layout is not None:
            raise ArgumentError(
                f"the kernel is {part!r}, whose numbers are not all lengthscales in space; expected a kernel "
                "of space without an ellipse here.",
                key="stretched-kernel",
            )
        if self.by_coordinate is None and not isinstance(part.lengthscale, tuple):
            return part.family(float(part.lengthscale * np.exp(-x[0])), part.variance)
        inverse = part.inverse_lengthscales(self.by_coordinate or len(_own(part)))
        return part.family(tuple(np.exp(-x[: self.lengths]) / np.array(inverse)), part.variance)


def _own(part: Elementary) -> tuple[float, ...]:
    return part.lengthscale if isinstance(part.lengthscale, tuple) else (part.lengthscale,)


@dataclass(frozen=True, eq=False)
class Variances:
    """Latent posterior variances at N targets for one stretch, and their slopes by its numbers."""

    variance: Array  # (N,), or (T, N) where T fields have their own; squared unit of y
    # Slope (P,) of ``sum_i weights_i variance_i`` by weights of the same size, worked out where it is called
    slope_of_sum: Callable[[Array], Array]


class StretchedModel(ABC):
    """Observed points and a prior whose lengthscales may be moved."""

    prior: Prior

    @abstractmethod
    def at(self, targets: Array, x: Array, stretch: Stretch) -> Variances:
        """Latent variances at targets (N, p) with the kernel stretched by x, shape (P,)."""


@dataclass(frozen=True, eq=False)
class DenseModel(StretchedModel):
    """By Cholesky factors: ``n^3 / 3 + n^2 N`` flops, ``2 n^2 N`` for slopes, ``8 n (3 n + 3 N)`` bytes.

    Raises
    ------
    ArgumentError
        If the kernel is a sum, or points X (n, p) and kernel do not go together.
    """

    prior: Prior
    X: Array

    def __post_init__(self) -> None:
        check_prior(self.prior)
        points = as_points("X", self.X)
        self.prior.kernel.check_coordinates(points)
        if len(self.prior.kernel.parts) > 1:
            raise ArgumentError(
                "the kernel is a sum; dense slopes are those of one kernel. Use SolvedModel with a solver.",
                key="kernel-sum",
            )
        object.__setattr__(self, "X", points)

    def at(self, targets: Array, x: Array, stretch: Stretch) -> Variances:
        """Latent variances at targets (N, p)."""
        kernel = stretch.kernel(self.prior.kernel, x)
        assert isinstance(kernel, Elementary)
        made = DenseVariances(kernel, self.X, np.asarray(self.prior.noise_variance), targets, stretch)
        return Variances(made.variance, made.slope_of_sum)


@dataclass(frozen=True, eq=False)
class DenseVariances:
    """Variances by a Cholesky factor."""

    kernel: Elementary  # After the stretch
    X: Array  # (n, p)
    noise_variance: Array  # () or (n,)
    targets: Array  # (N, p)
    stretch: Stretch

    @cached_property
    def variance(self) -> Array:
        """``k(x, x) - |L^-1 v|^2``, shape (N,)."""
        with blas_threads_for(len(self.X)):
            half = self._factored[1]
        left = self.kernel.variance - np.einsum("ij,ij->j", half, half)
        if left.size and left.min() <= -1e-6 * self.kernel.variance:
            raise NumericalError(
                f"a posterior variance came out as {left.min():g}: the covariance of the observations is "
                "singular in floating point. Raise the noise variance.",
                key="negative-variance",
            )
        return np.asarray(left)

    def slope_of_sum(self, weights: Array) -> Array:
        """Slope of ``sum_i w_i (k_ii - v_i' G^-1 v_i)``, through ``G^-1 V' diag(w) V G^-1``."""
        with blas_threads_for(len(self.X)):
            return self._slope_of_sum(weights)

    def _slope_of_sum(self, weights: Array) -> Array:
        chosen = np.flatnonzero(weights)
        w, back = weights[chosen], self._weights[:, chosen]
        between, across = self._profiles
        own = 2.0 * across[chosen] * (w[:, None] * back.T)
        self_product = _weighted_product(back, w)
        self_product *= between
        slopes = _squares(own, self._scaled[1][chosen], self._scaled[0])
        slopes -= _squares(self_product, self._scaled[0], self._scaled[0])
        found = slopes if self.stretch.by_coordinate else np.array([slopes.sum()])
        if not self.stretch.variance:
            return found
        noise = np.broadcast_to(self.noise_variance, (len(self.X),))
        inner = self.kernel.variance - self.variance[chosen] + noise @ back**2
        return np.append(found, w @ (self.kernel.variance - inner))

    @cached_property
    def _factored(self) -> tuple[Array, Array]:
        """L and ``L^-1 V'``."""
        from scipy.linalg import LinAlgError, cholesky, solve_triangular

        G = self.kernel(self.X, self.X)
        G[np.diag_indices(len(G))] += self.noise_variance
        try:
            factor = cholesky(G.T, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError as error:
            raise NumericalError(
                "the covariance of the observations is not positive definite in floating point. Raise the "
                "noise variance.",
                key="not-positive-definite",
            ) from error
        cross = self.kernel(self.X, self.targets)
        return factor, np.asarray(solve_triangular(factor, cross, lower=True, check_finite=False))

    @cached_property
    def _weights(self) -> Array:
        """``G^-1 V'``, shape (n, N)."""
        from scipy.linalg import solve_triangular

        factor, half = self._factored
        return np.asarray(solve_triangular(factor, half, lower=True, trans="T", check_finite=False))

    @cached_property
    def _scaled(self) -> tuple[Array, Array]:
        """X and targets in units of the lengthscales."""
        inverse = np.array(self.kernel.inverse_lengthscales(self.X.shape[1]))
        return self.X * inverse, self.targets * inverse

    @cached_property
    def _profiles(self) -> tuple[Array, Array]:
        """``h = (dk / d log l) / u^2``: times squared differences they are slopes; (n, n), (N, n)."""
        from scipy.spatial.distance import cdist

        from cagp_dist.compiled import evaluate

        observed, targets = self._scaled
        slope = self.kernel.family(1.0, self.kernel.variance).slope_parameters()[0]
        made = []
        for points in (observed, targets):
            values = np.empty((len(points), len(observed)))
            evaluate(*slope, point_columns(points), point_columns(observed), values)
            squares = cdist(points, observed, "sqeuclidean")
            made.append(np.divide(values, squares, out=values, where=squares > 0.0))
        return made[0], made[1]


def _weighted_product(A: Array, weights: Array) -> Array:
    """Give ``A diag(weights) A'``, with half the flops where no weight differs in sign from another."""
    sign = 1.0 if bool(np.all(weights >= 0.0)) else -1.0
    if bool(np.all(sign * weights >= 0.0)):
        scaled = A * np.sqrt(sign * weights)
        return np.asarray(sign * (scaled @ scaled.T))  # NumPy sees that it is symmetric
    return np.asarray((A * weights) @ A.T)


def _squares(weights: Array, left: Array, right: Array) -> Array:
    """``sum_ik W_ik (left_ij - right_kj)^2`` for every coordinate j, shape (p,)."""
    rows, columns = weights.sum(axis=1), weights.sum(axis=0)
    mixed = np.einsum("ij,ij->j", left, weights @ right)
    return np.asarray(rows @ left**2 + columns @ right**2 - 2.0 * mixed)


@dataclass(frozen=True, eq=False)
class SolvedModel(StretchedModel):
    """By any solver: the targets are columns of its solve, and no n x n matrix is stored unless it does.

    Arguments are those of `cagp_dist.condition`; a kernel may be a sum. Variances count the computation that
    was not done. Slopes are central differences, two solves for each number. Solvers that look at the data,
    such as conjugate gradients, see the same data for all stretches.
    """

    prior: Prior
    X: "ArrayLike | LatLonGrid"
    y: ArrayLike
    solver: "Solver"
    executor: "ExecutorLike" = None
    memory_limit_bytes: int | None = None

    def __post_init__(self) -> None:
        check_prior(self.prior)

    def at(self, targets: Array, x: Array, stretch: Stretch) -> Variances:
        """Latent variances at targets (N, p)."""

        @cache
        def jacobian() -> Array:
            """Slopes of all variances, by central differences: shape (P, N), or (P, T, N)."""
            ahead, behind = (
                np.array([self.solve(targets, x + sign * step, stretch) for step in STEP * np.eye(x.size)])
                for sign in (1.0, -1.0)
            )
            return np.asarray((ahead - behind) / (2.0 * STEP))

        return Variances(
            self.solve(targets, x, stretch),
            lambda weights: jacobian().reshape(x.size, -1) @ weights.ravel(),
        )

    def solve(self, targets: Array, x: Array, stretch: Stretch) -> Array:
        """Latent variances of one solve, shape (N,), or (T, N) of fields with different gaps."""
        from cagp_dist.gp import condition

        prior = replace(self.prior, kernel=stretch.kernel(self.prior.kernel, x))
        found = condition(
            prior,
            self.X,
            self.y,
            targets,
            solver=self.solver,
            executor=self.executor,
            memory_limit_bytes=self.memory_limit_bytes,
        )
        return found.variance.T


@dataclass(frozen=True, eq=False)
class FieldByField(StretchedModel):
    """Fields that are solved one by one, of solvers that follow the values: variances (T, N)."""

    prior: Prior  # Its kernel is that of all of them
    models: tuple[StretchedModel, ...]  # One for each field

    def at(self, targets: Array, x: Array, stretch: Stretch) -> Variances:
        """Latent variances at targets (N, p)."""
        fields = [model.at(targets, x, stretch) for model in self.models]

        def slope_of_sum(weights: Array) -> Array:
            parts = np.split(weights.ravel(), len(fields))
            slopes = [each.slope_of_sum(part) for each, part in zip(fields, parts, strict=True)]
            return np.asarray(np.sum(slopes, axis=0))

        return Variances(np.concatenate([np.atleast_2d(each.variance) for each in fields]), slope_of_sum)
