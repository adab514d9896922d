"""Distributions made of others: one monotone curve over a distribution, and tables of quantiles."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp, stdtr, stdtrit

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive.distribution import Predictive

DEGREES = np.exp(np.linspace(0.0, np.log(1e4), 400))  # of freedom of tails, between which they are found
QUARTER = 0.25


@dataclass(frozen=True, eq=False)
class Recalibrated(Predictive):
    """Distributions whose probabilities were corrected by one curve: ``F = R(F_base)``.

    The curve goes through the knots ``(Phi(scores[k]), levels[k])`` and is linear between them: within each
    gap between two knots the distribution is that of the base, given that gap, and the gap has the
    probability ``levels[k + 1] - levels[k]``. The tails are gaps too: **beyond the outermost knots the
    distribution is that of the base, given that it lies there**, with probabilities ``levels[0]`` and ``1 -
    levels[-1]``. Normal scores of the base and levels, (K,), ascend strictly, levels between 0 and 1.

    Raises
    ------
    ArgumentError
        If there is no knot, or knots do not ascend.

    Examples
    --------
    Errors that are half as large as was said:

    >>> import numpy as np
    >>> from cagp_dist.predictive import Gaussian, Recalibrated
    >>> levels = np.linspace(0.05, 0.95, 19)
    >>> said = Gaussian([0.0], 1.0)
    >>> distribution = Recalibrated(said, scores=Gaussian(0.0, 0.5).quantile(levels), levels=levels)
    >>> distribution.interval(0.8)[1].round(3).tolist()
    [0.641]
    """

    base: Predictive
    scores: Array
    levels: Array

    def __post_init__(self) -> None:
        scores, levels = (np.asarray(knots, dtype=np.float64) for knots in (self.scores, self.levels))
        if scores.ndim != 1 or scores.size == 0 or scores.shape != levels.shape:
            raise ArgumentError(
                f"scores have shape {scores.shape} and levels {levels.shape}; expected one level for each "
                "score, at least one of both.",
                key="shapes",
            )
        for name, knots in (("scores", scores), ("levels", levels)):
            if not (np.isfinite(knots).all() and bool(np.all(np.diff(knots) > 0.0))):
                raise ArgumentError(
                    f"{name} of a curve do not ascend strictly; merge knots that are equal.",
                    key="quantiles-equal",
                )
        if levels[0] <= 0.0 or levels[-1] >= 1.0:
            raise ArgumentError(
                f"levels of a curve reach from {levels[0]:g} to {levels[-1]:g}; expected numbers between 0 "
                "and 1: the tails beyond need a probability.",
                key="levels",
            )
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "levels", levels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the points."""
        return self.base.shape

    def normal_score(self, values: ArrayLike) -> Array:
        """Scores of the base, moved along the curve."""
        return _along(self.base.normal_score(values), self.scores, ndtri(self.levels))

    def at_normal_score(self, scores: ArrayLike) -> Array:
        """Values of the base at scores moved back along the curve."""
        return self.base.at_normal_score(
            _along(np.asarray(scores, dtype=np.float64), ndtri(self.levels), self.scores)
        )

    def log_density(self, values: ArrayLike) -> Array:
        """Log density of the base plus the logarithm of the slope of the curve."""
        gap = np.searchsorted(self.scores, self.base.normal_score(values), side="right")
        slopes = _log_masses(ndtri(self.levels)) - _log_masses(self.scores)
        return np.asarray(self.base.log_density(values) + slopes[gap], dtype=np.float64)

    def __getitem__(self, index: Any) -> Self:
        return type(self)(self.base[index], self.scores, self.levels)

    @property
    def _breaks(self) -> Array:
        return np.asarray(ndtri(self.levels), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class QuantileTable(Predictive):
    """Distributions given by their quantiles ``values`` (L, ...) at ``levels`` (L,), two or more.

    Between two levels the quantile is linear in the normal score ``Phi^-1(level)``, and beyond the outermost
    levels it goes on with the slope of the outermost gap: **the tails are those of a normal distribution**.
    The quantiles of a normal distribution thus give that distribution, whatever the levels. `student_tail`
    has longer tails, for probabilities far out. Equal quantiles are a value that has a probability of its
    own, which no density shows; the two outermost gaps must have a width.

    Raises
    ------
    ArgumentError
        If levels or quantiles do not ascend.

    Examples
    --------
    >>> from cagp_dist.predictive import QuantileTable
    >>> distribution = QuantileTable([0.1, 0.5, 0.9], [[278.0], [280.0], [286.0]])
    >>> distribution.quantile(0.5).tolist(), distribution.cdf(286.0).round(6).tolist()
    ([280.0], [0.9])
    """

    levels: Array
    values: Array

    def __post_init__(self) -> None:
        levels, values = (np.asarray(array, dtype=np.float64) for array in (self.levels, self.values))
        if levels.ndim != 1 or levels.size < 2 or values.shape[:1] != levels.shape:
            raise ArgumentError(
                f"levels have shape {levels.shape} and values {values.shape}; expected at least two levels, "
                "and a row of quantiles for each of them.",
                key="shapes",
            )
        inside = bool(np.all((levels > 0.0) & (levels < 1.0)))
        if not inside or bool(np.any(np.diff(levels) <= 0.0)):
            raise ArgumentError(
                "levels of a table do not ascend strictly between 0 and 1; sort them.", key="levels"
            )
        steps = np.diff(values, axis=0)
        crossing = int(np.count_nonzero(~(steps >= 0.0).all(axis=0)))
        if crossing or not np.isfinite(values).all():
            raise ArgumentError(
                f"quantiles of {crossing} of {steps[0].size} distributions cross or are not finite; expected "
                "values that do not fall from level to level.",
                key="quantiles-cross",
            )
        if not bool(np.all(steps[[0, -1]] > 0.0)):
            raise ArgumentError(
                "the outermost quantiles of some distributions are equal, and their tails would have no "
                "width; leave out levels that the data cannot tell apart.",
                key="quantiles-equal",
            )
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "values", values)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the points."""
        return self.values.shape[1:]

    def normal_score(self, values: ArrayLike) -> Array:
        """By interpolation in the table; in the middle of a value that has a probability of its own."""
        value = np.asarray(values, dtype=np.float64)
        lower, upper = (self._gap(below.sum(axis=0)) for below in (self.values < value, self.values <= value))
        return 0.5 * (self._score_in(lower, value) + self._score_in(upper, value))

    def at_normal_score(self, scores: ArrayLike) -> Array:
        """By interpolation in the table."""
        z = np.asarray(scores, dtype=np.float64)
        knots = ndtri(self.levels)
        shape = np.broadcast_shapes(z.shape, self.shape)
        gap = np.broadcast_to(np.clip(np.searchsorted(knots, z) - 1, 0, knots.size - 2), shape)
        start, end = self._ends(gap)
        share = (z - knots[gap]) / (knots[gap + 1] - knots[gap])
        return np.asarray(start + share * (end - start), dtype=np.float64)

    def log_density(self, values: ArrayLike) -> Array:
        """Multiply the normal density of the score by its slope."""
        value = np.asarray(values, dtype=np.float64)
        gap = self._gap((self.values <= value).sum(axis=0))
        z, knots = self._score_in(gap, value), ndtri(self.levels)
        start, end = self._ends(gap)
        with np.errstate(divide="ignore"):
            slope = np.log(knots[gap + 1] - knots[gap]) - np.log(end - start)
        return np.asarray(slope - 0.5 * (np.log(2.0 * np.pi) + z**2), dtype=np.float64)

    def student_tail(self, values: ArrayLike, *, above: bool) -> Array:
        """Probability beyond each value, as far as it lies beyond the outermost quantile of that side.

        The tail is that of a Student t distribution about the median with the same quartile and outermost
        quantile on its side, of at least one degree of freedom; it is normal where these are no further apart
        than those of a normal distribution. That is an estimate: mixtures of normal distributions have such
        tails about. NaN elsewhere.
        """
        value = np.broadcast_to(np.asarray(values, dtype=np.float64), self.shape)
        sign, level, outer = (1.0, self.levels[-1], -1) if above else (-1.0, 1.0 - self.levels[0], 0)
        centre = self.quantile(0.5)
        inner, outermost = (
            sign * (quantile - centre)
            for quantile in (self.quantile(1.0 - QUARTER if above else QUARTER), self.values[outer])
        )
        distance = sign * (value - centre)
        there = np.isfinite(value) & (distance > outermost) & (inner > 0.0) & (outermost > inner)
        ratios = stdtrit(DEGREES, level) / stdtrit(DEGREES, 1.0 - QUARTER)  # which fall with the degrees
        logarithms = np.log(DEGREES)[::-1]
        degrees = np.exp(
            np.interp((outermost / np.where(there, inner, 1.0))[there], ratios[::-1], logarithms)
        )
        found = np.full(self.shape, np.nan)
        relative = distance[there] / outermost[there]
        student = stdtr(degrees, -relative * stdtrit(degrees, level))
        found[there] = np.where(degrees < DEGREES[-1], student, ndtr(-relative * ndtri(level)))
        return found

    def __getitem__(self, index: Any) -> Self:
        key = index if isinstance(index, tuple) else (index,)
        return type(self)(self.levels, self.values[(slice(None), *key)])

    @property
    def _breaks(self) -> Array:
        return np.asarray(ndtri(self.levels), dtype=np.float64)

    def _gap(self, below: Indices) -> Indices:
        """Index of the gap that a value lies in, of how many quantiles are below it."""
        return np.clip(below - 1, 0, self.levels.size - 2)

    def _ends(self, gap: Indices) -> tuple[Array, Array]:
        """Quantiles at both ends of a gap of each distribution."""
        points = np.indices(self.shape, sparse=True)
        return self.values[(gap, *points)], self.values[(gap + 1, *points)]

    def _score_in(self, gap: Indices, value: Array) -> Array:
        """Give the normal score of a value of a gap; at the ends of a gap without width, its middle."""
        knots = ndtri(self.levels)
        start, end = self._ends(gap)
        width = end - start
        share = np.divide(value - start, width, out=np.full(gap.shape, 0.5), where=width > 0.0)
        return np.asarray(knots[gap] + share * (knots[gap + 1] - knots[gap]), dtype=np.float64)


def _along(z: Array, start: Array, end: Array) -> Array:
    """Move normal scores so that each gap between the knots ``start`` becomes that between ``end``.

    Probabilities are linear within a gap, and have a constant factor in the tails.
    """
    gap = np.searchsorted(start, z, side="right")
    moved = np.empty(np.shape(z))
    below, above = gap == 0, gap == start.size
    moved[below] = ndtri_exp(log_ndtr(z[below]) + log_ndtr(end[0]) - log_ndtr(start[0]))
    moved[above] = -ndtri_exp(log_ndtr(-z[above]) + log_ndtr(-end[-1]) - log_ndtr(-start[-1]))
    inner = ~(below | above)
    k = gap[inner]
    share = _mass(start[k - 1], z[inner]) / _mass(start[k - 1], start[k])
    upper = end[k - 1] + end[k] > 0.0
    # the lower tail of the score, or the upper one, whichever is smaller
    near, far = np.where(upper, -end[k], end[k - 1]), np.where(upper, -end[k - 1], end[k])
    part = np.where(upper, 1.0 - share, share)
    moved[inner] = np.where(upper, -1.0, 1.0) * ndtri(ndtr(near) + part * _mass(near, far))
    return moved


def _mass(start: Array, end: Array) -> Array:
    """Give the normal probability between two scores, by the tails on their side of zero."""
    upper = start + end > 0.0
    return np.asarray(np.where(upper, ndtr(-start) - ndtr(-end), ndtr(end) - ndtr(start)), dtype=np.float64)


def _log_masses(knots: Array) -> Array:
    """Logarithms of the normal probabilities of all gaps between knots, the two tails first and last."""
    inner = np.log(_mass(knots[:-1], knots[1:]))
    return np.concatenate([log_ndtr(knots[:1]), inner, log_ndtr(-knots[-1:])])
