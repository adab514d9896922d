"""The log marginal likelihood as a function of all numbers but one, which is taken out (math 9).

With ``G = variance R``, ``R = k1(X, X) + ratio I`` (k1 the kernel of variance one, or a sum whose first part
has it) and T fields ``b`` of n residuals::

    L = -1/2 [ T log|R| + n T log(2 pi variance) + q / variance ],      q = sum over fields of b' R^-1 b

What one `Evaluation` holds gives value and gradient for every variance, and the best one, ``q / (n T)``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, pi
from typing import Protocol

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.likelihood.exact.restricted import restrict
from cagp_dist.likelihood.numbering import Families, Model, Numbering


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What the likelihood needs to know of R at one set of k numbers, k being 2 for one kernel."""

    # points, fields: n and T
    points: int
    fields: int
    log_determinant: float  # ``log|R|``
    quadratic: float  # ``q``, summed over fields, squared unit of y
    # (k,): ``tr(R^-1 dR)`` with dR the derivative by the logarithm of each number: lengthscales, weights,
    # ratio
    traces: Array
    slopes: Array  # (k,): ``sum over fields of v' dR v`` with ``v = R^-1 b``, squared unit of y
    # Which number stands where
    numbering: Numbering = Numbering()  # noqa: RUF009 (frozen)
    # own_trace, own_slope: ``tr(R^-1 D)`` and ``sum over fields of v' D v``, where the noise of each point is
    # ``ratio + D_ii`` in units of the variance and D times the variance is known; else zero. R then depends
    # on the variance.
    own_trace: float = 0.0
    own_slope: float = 0.0
    # Of the mean of each field, where the likelihood is restricted to what does not depend on them
    # (`cagp_dist.likelihood.exact.restricted`)
    coefficients: int = 0
    # (k, k): ``tr(R^-1 dR R^-1 dR')`` for every two numbers, the last of them D, where it was asked for
    squares: Array | None = None
    # (k + 1, k + 1): by how much the covariance of the gradient under the model exceeds the expected
    # information, as some terms stand for several: a sandwich (Godambe) covariance has it [Varin, Reid &
    # Firth 2011]
    excess: Array | None = None

    @property
    def values(self) -> int:
        """Number of observations, n T, less one for each coefficient of a mean that they determine."""
        return (self.points - self.coefficients) * self.fields

    def log_likelihood(self, variance: float) -> float:
        """Evaluate L, Gaussian constant included."""
        constant = self.values * log(2.0 * pi * variance)
        return -0.5 * (self.fields * self.log_determinant + constant + self.quadratic / variance)

    def gradient(self, variance: float) -> Array:
        """Differentiate L by the logarithms of (lengthscales, variance, weights, ratio), shape (k + 1,)."""
        by_numbers = -0.5 * (self.fields * self.traces - self.slopes / variance)
        own = self.fields * self.own_trace - self.own_slope / variance
        by_variance = -0.5 * (self.values - self.quadratic / variance - own)
        first = self.numbering.lengthscales
        return np.concatenate([by_numbers[:first], [by_variance], by_numbers[first:]])

    def expected_information(self) -> Array:
        """Covariance of the gradient under the model, (k + 1, k + 1) [Rasmussen & Williams 2006, 5.9]."""
        assert self.squares is not None
        values = float(self.points - self.coefficients)
        return information_of(self.squares, self.traces, self.own_trace, values, self.fields, self.numbering)


def information_of(
    squares: Array, traces: Array, own_trace: float, values: float, fields: int, numbering: Numbering
) -> Array:
    """Work out the expected information, (k + 1, k + 1), from what `Evaluation` holds of so many values."""
    numbers, first = traces.size, numbering.lengthscales
    by_variance = traces
    if len(squares) > numbers:  # by the variance R changes by R - D
        by_variance = traces - squares[:numbers, numbers]
        values += float(squares[numbers, numbers]) - 2.0 * own_trace
    with_variance = np.insert(squares[:numbers, :numbers], first, by_variance, axis=0)
    own = np.insert(by_variance, first, values)
    return np.asarray(0.5 * fields * np.insert(with_variance, first, own, axis=1))


class Likelihood(Protocol):
    """The likelihood of some residuals under one family of kernels, or a sum of several."""

    @property
    def points(self) -> int: ...

    @property
    def fields(self) -> int: ...

    def evaluate(self, *numbers: float) -> Evaluation:
        """Evaluate at (lengthscale, ratio), or (lengthscales, weights, ratio) of a sum."""


class ModelLikelihood:
    """What likelihoods by a model share whose tasks give the sums of `dense_sums`, or of several together."""

    def __init__(self, kernel: Families | Model, points: int, fields: int, coefficients: int) -> None:
        self._model = Model.of(kernel)
        self.points, self.fields, self._coefficients = points, fields, coefficients

    def _evaluation(
        self, total: Array, *, squares: Array | None = None, excess: Array | None = None
    ) -> Evaluation:
        """Make an evaluation of the sums."""
        numbering = self._model.numbering
        if self._coefficients:
            total = restrict(total, fields=self.fields, coefficients=self._coefficients)
        both = (total.size - 2) // 2
        traces, slopes = total[2 : 2 + both], total[2 + both :]
        numbers = numbering.lengthscales + numbering.parts
        deviate = traces.size > numbers
        return Evaluation(
            self.points,
            self.fields,
            log_determinant=float(total[0]),
            quadratic=float(total[1]),
            traces=traces[:numbers],
            slopes=slopes[:numbers],
            numbering=numbering,
            own_trace=float(traces[-1]) if deviate else 0.0,
            own_slope=float(slopes[-1]) if deviate else 0.0,
            coefficients=self._coefficients,
            squares=squares,
            excess=excess,
        )


def information(
    evaluate: Callable[[Array], Evaluation],
    x: Array,
    variance: float,
    *,
    step: float,
    along_variance: Callable[[float], Evaluation] | None = None,
) -> Array:
    """Minus second derivatives of L by log (lengthscales, variance, weights, ratio): 2 k evaluations."""
    columns, quadratic, first = [], 0.0, 0
    for direction in np.eye(x.size):
        up, down = evaluate(x + step * direction), evaluate(x - step * direction)
        columns.append((up.gradient(variance) - down.gradient(variance)) / (2.0 * step))
        quadratic += 0.5 * (up.quadratic + down.quadratic) / x.size
        first = up.numbering.lengthscales
    own = -0.5 * quadratic / variance
    if along_variance is not None:
        near = [variance * np.exp(sign * step) for sign in (1.0, -1.0)]
        above, below = (along_variance(other).gradient(other)[first] for other in near)
        own = (above - below) / (2.0 * step)
    by_variance = np.insert(np.array([column[first] for column in columns]), first, own)
    second = np.insert(np.stack(columns), first, by_variance, axis=0)
    return np.asarray(-0.5 * (second + second.T))
