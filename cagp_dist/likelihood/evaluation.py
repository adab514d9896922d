"""The log marginal likelihood as a function of two numbers, the third taken out (math 9).

With ``G = variance R``, ``R = k1(X, X) + ratio I`` (k1 the kernel of variance one, ratio the noise variance
in units of the variance) and T fields ``b`` of n residuals that share the three numbers::

    L = -1/2 [ T log|R| + n T log(2 pi variance) + q / variance ],      q = sum over fields of b' R^-1 b

Everything expensive depends on lengthscale and ratio alone. What one `Evaluation` holds gives value and
gradient for every variance, the best variance ``q / (n T)``, and, at three points, second derivatives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, pi
from typing import Protocol

import numpy as np

from cagp_dist.arrays import Array

NAMES = ("lengthscale", "variance", "noise_variance")

NATURAL = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 1.0]])
"""Logarithms of (lengthscale, variance, ratio) from those of `NAMES`."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What the likelihood needs to know of R at one lengthscale and ratio.

    Attributes
    ----------
    points, fields : int
        n and T.
    log_determinant : float or None
        ``log|R|``; None where only the gradient is estimated.
    quadratic : float
        ``q``, summed over fields, squared unit of y.
    traces : array of float64, shape (2,)
        ``tr(R^-1 dR)`` with dR the derivative by log lengthscale and by log ratio.
    slopes : array of float64, shape (2,)
        ``sum over fields of v' dR v`` with ``v = R^-1 b``, squared unit of y.
    trace_covariance : array of float64, shape (2, 2)
        Covariance of the traces where they are estimated by sampling; else zero.
    solved : bool
        Whether the linear systems behind it were solved to their tolerance.
    """

    points: int
    fields: int
    log_determinant: float | None
    quadratic: float
    traces: Array
    slopes: Array
    trace_covariance: Array
    solved: bool = True

    @property
    def values(self) -> int:
        """Number of observations, n T."""
        return self.points * self.fields

    def log_likelihood(self, variance: float) -> float:
        """Evaluate L, Gaussian constant included; NaN where the determinant is not known."""
        if self.log_determinant is None:
            return float("nan")
        constant = self.values * log(2.0 * pi * variance)
        return -0.5 * (self.fields * self.log_determinant + constant + self.quadratic / variance)

    def gradient(self, variance: float) -> Array:
        """Differentiate L by the logarithms of (lengthscale, variance, ratio), shape (3,)."""
        by_lengthscale, by_ratio = -0.5 * (self.fields * self.traces - self.slopes / variance)
        by_variance = -0.5 * (self.values - self.quadratic / variance)
        return np.array([by_lengthscale, by_variance, by_ratio])

    def gradient_covariance(self) -> Array:
        """Covariance of the sampled part of the gradient by (log lengthscale, log ratio), shape (2, 2)."""
        return 0.25 * self.fields**2 * self.trace_covariance


class Likelihood(Protocol):
    """The likelihood of some residuals under one family of kernels.

    Attributes
    ----------
    points, fields : int
        n and T.
    difference : float
        Step in log parameters with which differences of its gradient are taken.
    """

    @property
    def points(self) -> int: ...

    @property
    def fields(self) -> int: ...

    @property
    def difference(self) -> float: ...

    def evaluate(self, lengthscale: float, ratio: float) -> Evaluation:
        """Evaluate at one lengthscale and ratio."""
        ...


def information(evaluate: Callable[[Array], Evaluation], x: Array, variance: float, *, step: float) -> Array:
    """Observed information: minus the second derivatives of L by log (lengthscale, variance, ratio).

    Central differences of the analytic gradient by lengthscale and ratio; the rows of the variance are known
    in closed form. Costs four evaluations. With `NATURAL` it becomes that of the logarithms of `NAMES`.

    Parameters
    ----------
    evaluate : callable
        From (log lengthscale, log ratio).
    x : array, shape (2,)
        Where.
    variance : float
        Where.
    step : float
        Of the differences.

    Returns
    -------
    array of float64, shape (3, 3)
        Symmetric; positive definite at a proper optimum.
    """
    columns, quadratic = [], 0.0
    for direction in np.eye(2):
        up, down = evaluate(x + step * direction), evaluate(x - step * direction)
        columns.append((up.gradient(variance) - down.gradient(variance)) / (2.0 * step))
        quadratic += 0.25 * (up.quadratic + down.quadratic)
    by_lengthscale, by_ratio = columns
    by_variance = np.array([by_lengthscale[1], -0.5 * quadratic / variance, by_ratio[1]])
    second = np.stack([by_lengthscale, by_variance, by_ratio])
    return np.asarray(-0.5 * (second + second.T))
