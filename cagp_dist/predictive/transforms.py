"""Transforms of values that are not normal, and distributions of what was transformed.

``z = t(y)`` strictly ascends, and the field is one of z. Then ``F_y(y) = F_z(t(y))``: quantiles and medians
of y are those of z taken back, probabilities stay what they are, and the density has the slope of t as a
factor. The log-likelihood of y is that of z plus ``sum log |t'(y_i)|`` (math 26, T48), so that transforms and
none are compared on one scale.
"""

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr, ndtri

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive.distribution import Predictive
from cagp_dist.predictive.families import Gaussian

MOST_KNOTS = 99  # of normal scores: more values are gone through by evenly spread ranks

# Part of the range of the values by which an inverse may miss them
INVERSE = 1e-6

# How far beyond the data an inverse is looked at, in parts of the range of what they become, and at how many
BEYOND, LOOKED_AT = 2.0, 1_001

# Of the quadrature of moments over normal scores, from the end of a transform upwards
NODES, WEIGHTS = np.polynomial.legendre.leggauss(32)
FARTHEST, FAR = 9.0, 40.0

# Part by which the slope that an object says may differ from that between values next to each other
SLOPE = 0.05


@runtime_checkable
class TransformLike(Protocol):
    """What a transform of one's own has: three functions of arrays."""

    def forward(self, values: Array) -> Array:
        """Give z of values, strictly ascending."""

    def inverse(self, scores: Array) -> Array:
        """Give the values of z."""

    def log_slope(self, values: Array) -> Array:
        """Logarithm of the derivative of `forward`."""


class Transform(ABC):
    """A strictly ascending function ``z = t(y)`` of values; arrays of any shape."""

    @abstractmethod
    def forward(self, values: ArrayLike) -> Array:
        """Give z of values; ``-inf`` at the end of an open half-line, NaN beyond."""

    @abstractmethod
    def inverse(self, scores: ArrayLike) -> Array:
        """Give the values of z; where z is below `end`, the value there."""

    @abstractmethod
    def log_slope(self, values: ArrayLike) -> Array:
        """Logarithm of the derivative of `forward`, 1 / unit of the values."""

    @property
    def end(self) -> float:
        """The z at and below which the value is the least one, which then has a probability; or ``-inf``."""
        return -np.inf

    @property
    @abstractmethod
    def text(self) -> str:
        """The function for people, with y the value."""


@dataclass(frozen=True)
class Identity(Transform):
    """No transform, where values below limits of detection are to be censored."""

    def forward(self, values: ArrayLike) -> Array:
        """Give the values."""
        return np.array(values, dtype=np.float64)

    def inverse(self, scores: ArrayLike) -> Array:
        """Give the scores."""
        return np.array(scores, dtype=np.float64)

    def log_slope(self, values: ArrayLike) -> Array:
        """Zero."""
        return np.zeros(np.shape(values))

    @property
    def text(self) -> str:
        """Y itself."""
        return "y"


@dataclass(frozen=True)
class BoxCox(Transform):
    """``((y + shift)^power - 1) / power``, and ``log(y + shift)`` of power 0; the square root is power 0.5.

    With a power above 0 the image is the half-line above ``-1 / power``: what lies beyond is at the least
    value, ``-shift``.

    Raises
    ------
    ArgumentError
        If the power is negative, as then y has no mean, or above 2; or a number is not finite.

    Examples
    --------
    >>> from cagp_dist import BoxCox
    >>> BoxCox(0.5).forward([0.0, 1.0, 4.0]).tolist(), BoxCox(0.0, shift=0.1).text
    ([-2.0, 0.0, 2.0], 'log(y + 0.1)')
    """

    power: float
    shift: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.power <= 2.0 or not np.isfinite(self.shift):
            raise ArgumentError(
                f"power is {self.power!r} and shift {self.shift!r}; expected a power from 0, the logarithm, "
                "to 2, and a finite shift. With a power below 0 the values would have no mean.",
                key="transform-number",
            )

    def forward(self, values: ArrayLike) -> Array:
        """``((y + c)^p - 1) / p``."""
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.asarray(values, dtype=np.float64) + self.shift)
        return logs if self.power == 0.0 else np.asarray(np.expm1(self.power * logs) / self.power)

    def inverse(self, scores: ArrayLike) -> Array:
        """``(1 + p z)^(1/p) - c``."""
        z = np.asarray(scores, dtype=np.float64)
        if self.power == 0.0:
            return np.asarray(np.exp(z) - self.shift)
        if self.power == 0.5:
            return np.asarray(np.maximum(1.0 + 0.5 * z, 0.0) ** 2 - self.shift)
        with np.errstate(divide="ignore"):
            logs = np.log1p(np.maximum(self.power * z, -1.0)) / self.power
        return np.asarray(np.exp(logs) - self.shift)

    def log_slope(self, values: ArrayLike) -> Array:
        """``(p - 1) log(y + c)``."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = (self.power - 1.0) * np.log(np.asarray(values, dtype=np.float64) + self.shift)
        return np.asarray(found)

    @property
    def end(self) -> float:
        """``-1 / p``."""
        return -1.0 / self.power if self.power else -np.inf

    @property
    def text(self) -> str:
        """The function, with its numbers."""
        y = f"y {'+' if self.shift > 0.0 else '-'} {abs(self.shift):.6g}" if self.shift else "y"
        if self.power == 0.0:
            return f"log({y})"
        if self.power == 0.5:
            return f"2 (sqrt({y}) - 1)"
        base = f"({y})" if self.shift else y
        return f"({base}^{self.power:.4g} - 1) / {self.power:.4g}"


@dataclass(frozen=True)
class Arcsinh(Transform):
    """``asinh(y / scale)``: a logarithm far from zero, on both sides, and linear near it.

    Raises
    ------
    ArgumentError
        If the scale is not positive.
    """

    scale: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.scale) and self.scale > 0.0):
            raise ArgumentError(
                f"scale is {self.scale!r}; expected a positive number in the unit of the values.",
                key="transform-number",
            )

    def forward(self, values: ArrayLike) -> Array:
        """``asinh(y / a)``."""
        return np.arcsinh(np.asarray(values, dtype=np.float64) / self.scale)

    def inverse(self, scores: ArrayLike) -> Array:
        """Give ``a sinh(z)``."""
        return np.asarray(self.scale * np.sinh(np.asarray(scores, dtype=np.float64)))

    def log_slope(self, values: ArrayLike) -> Array:
        """``-log(a^2 + y^2) / 2``."""
        return np.asarray(-np.log(np.hypot(self.scale, np.asarray(values, dtype=np.float64))))

    @property
    def text(self) -> str:
        """The function, with its number."""
        return f"asinh(y / {self.scale:.6g})"


@dataclass(frozen=True)
class NormalScore(Transform):
    """Linear between knots ``(values[k], scores[k])``, both ascending, and beyond them as before the ends.

    Of data the knots are ``z_i = Phi^-1((r_i - 1/2) / n)``, r the rank; equal values have the mean of theirs.

    Raises
    ------
    ArgumentError
        If there are fewer than two knots, or they do not ascend.
    """

    values: tuple[float, ...]
    scores: tuple[float, ...]

    def __post_init__(self) -> None:
        values, scores = np.array(self.values), np.array(self.scores)
        ascends = all(bool(np.all(np.diff(knots) > 0.0)) for knots in (values, scores))
        if values.size < 2 or values.shape != scores.shape or not ascends:
            raise ArgumentError(
                f"there are {values.size} values and {scores.size} scores; expected two knots or more, "
                "strictly ascending in both.",
                key="transform-number",
            )

    @classmethod
    def of(cls, values: Array, *, below: int = 0) -> Self:
        """Take the scores of values (n,), below which so many more lie that are not among them."""
        distinct, count = np.unique(values, return_counts=True)
        if distinct.size < 2:
            raise ArgumentError(
                f"there are {distinct.size} different values above the bound; expected two or more to have "
                "ranks.",
                key="transform-values",
            )
        ranks = below + np.cumsum(count) - 0.5 * (count - 1)
        scores = ndtri((ranks - 0.5) / (below + values.size))
        kept = np.unique(
            np.linspace(0, distinct.size - 1, min(distinct.size, MOST_KNOTS)).round().astype(int)
        )
        return cls(tuple(distinct[kept].tolist()), tuple(scores[kept].tolist()))

    def forward(self, values: ArrayLike) -> Array:
        """By interpolation."""
        return _through(np.asarray(values, dtype=np.float64), np.array(self.values), np.array(self.scores))

    def inverse(self, scores: ArrayLike) -> Array:
        """By interpolation."""
        return _through(np.asarray(scores, dtype=np.float64), np.array(self.scores), np.array(self.values))

    def log_slope(self, values: ArrayLike) -> Array:
        """Of the piece that a value is in."""
        knots, scores = np.array(self.values), np.array(self.scores)
        return np.asarray(np.log(np.diff(scores) / np.diff(knots))[_piece(np.asarray(values), knots)])

    @property
    def text(self) -> str:
        """What it is."""
        return f"normal score of y, through {len(self.values)} values"


@dataclass(frozen=True)
class OwnTransform(Transform):
    """A transform that a caller gives, as `TransformLike` has it; it is checked at the data."""

    given: TransformLike

    def forward(self, values: ArrayLike) -> Array:
        """As given."""
        return np.asarray(self.given.forward(np.asarray(values, dtype=np.float64)), dtype=np.float64)

    def inverse(self, scores: ArrayLike) -> Array:
        """As given."""
        return np.asarray(self.given.inverse(np.asarray(scores, dtype=np.float64)), dtype=np.float64)

    def log_slope(self, values: ArrayLike) -> Array:
        """As given."""
        return np.asarray(self.given.log_slope(np.asarray(values, dtype=np.float64)), dtype=np.float64)

    @property
    def text(self) -> str:
        """Its name."""
        return repr(self.given)


@dataclass(frozen=True)
class Censored(Transform):
    """Another transform above ``threshold`` in z; all z at and below it are one value, such as no rain.

    Values up to ``value`` have the threshold as z.
    """

    base: Transform
    threshold: float
    value: float = 0.0

    def forward(self, values: ArrayLike) -> Array:
        """Give the threshold, or z of the base."""
        y = np.asarray(values, dtype=np.float64)
        with np.errstate(all="ignore"):  # at the value itself many a transform is infinite
            above = np.maximum(self.base.forward(y), self.threshold)
        return np.where(y <= self.value, self.threshold, above)

    def inverse(self, scores: ArrayLike) -> Array:
        """Give the value, or that of the base."""
        z = np.asarray(scores, dtype=np.float64)
        return np.where(z <= self.threshold, self.value, self.base.inverse(np.maximum(z, self.threshold)))

    def log_slope(self, values: ArrayLike) -> Array:
        """Give that of the base; zero at the value, which has a probability and no density."""
        y = np.asarray(values, dtype=np.float64)
        with np.errstate(all="ignore"):
            above = self.base.log_slope(y)
        return np.where(y <= self.value, 0.0, above)

    @property
    def end(self) -> float:
        """The threshold."""
        return max(self.threshold, self.base.end)

    @property
    def text(self) -> str:
        """Both."""
        return f"{self.base.text} above {self.threshold:.6g}, else y = {self.value:g}"


@dataclass(frozen=True, eq=False)
class Transformed(Predictive):
    """Distributions of ``y = t^-1(z)``, z as the base says: exact but for the quadrature of mean and CRPS.

    Where z is at the end of the transform or below, y has its least value, with the probability of all that.
    The normal score of this value is the middle of these, and its log density the logarithm of that.

    Examples
    --------
    >>> from cagp_dist import BoxCox
    >>> from cagp_dist.predictive import Gaussian
    >>> from cagp_dist.predictive.transforms import Transformed
    >>> rain = Transformed(Gaussian([0.0], 1.0), BoxCox(0.0))
    >>> rain.mean.round(3), rain.quantile(0.5)
    (array([1.649]), array([1.]))
    """

    base: Predictive
    transform: Transform

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the points."""
        return self.base.shape

    def normal_score(self, values: ArrayLike) -> Array:
        """Give that of z; at the least value, the middle of it."""
        z = self.transform.forward(values)
        at_end = z <= self.transform.end
        score = self.base.normal_score(np.where(np.isnan(z), -np.inf, z))
        return np.where(at_end, ndtri(0.5 * ndtr(score)), score) if at_end.any() else score

    def cdf(self, values: ArrayLike) -> Array:
        """Probability of a value no larger: of the least value the probability of that, below it 0."""
        z = self.transform.forward(values)
        found = self.base.cdf(np.where(np.isnan(z) & ~np.isnan(np.asarray(values)), -np.inf, z))
        return np.where(np.asarray(values) < self.transform.inverse(-np.inf), 0.0, found)

    def above(self, values: ArrayLike) -> Array:
        """Probability of a larger value: of the least value all but the probability of that, below it 1."""
        z = self.transform.forward(values)
        found = self.base.above(np.where(np.isnan(z) & ~np.isnan(np.asarray(values)), -np.inf, z))
        return np.where(np.asarray(values) < self.transform.inverse(-np.inf), 1.0, found)

    def at_normal_score(self, scores: ArrayLike) -> Array:
        """Values of those of z."""
        return self.transform.inverse(self.base.at_normal_score(scores))

    def log_density(self, values: ArrayLike) -> Array:
        """``log f_z(t(y)) + log t'(y)``; the log probability of the least value, where it has one."""
        z = self.transform.forward(values)
        at_end = z <= self.transform.end
        beyond = np.isnan(z) & ~np.isnan(np.asarray(values, dtype=np.float64))  # below the least value
        z = np.where(beyond, 0.0, z)
        found = np.where(
            at_end, 0.0, self.base.log_density(z) + np.where(at_end, 0.0, self.transform.log_slope(values))
        )
        found = np.where(beyond, -np.inf, found)
        return np.where(at_end, log_ndtr(self.base.normal_score(z)), found) if at_end.any() else found

    def __getitem__(self, index: Any) -> Self:
        return type(self)(self.base[index], self.transform)

    @property
    def least_probability(self) -> Array:
        """Probability of the least value, 0 where that has none."""
        if np.isneginf(self.transform.end):
            return np.zeros(self.shape)
        return self.base.cdf(np.full(self.shape, self.transform.end))

    @property
    def _breaks(self) -> Array:
        return self.base._breaks

    @property
    def _own_breaks(self) -> Array:
        if np.isneginf(self.transform.end):
            return np.empty((0, *self.shape))
        return self.base.normal_score(np.full(self.shape, self.transform.end))[None]

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        """Of a normal base and a logarithm ``exp(m + s^2 / 2) - c``; of a square root in closed form, too."""
        base, transform = self.base, self.transform
        if not (isinstance(transform, BoxCox | NormalScore) and isinstance(base, Gaussian)):
            return super()._moments
        if isinstance(transform, NormalScore) or transform.power not in (0.0, 0.5):
            location, scale = base.location.reshape(1, -1), base.scale.reshape(1, -1)
            mean, std = of_normals(location, scale, transform)
            return mean.reshape(self.shape), std.reshape(self.shape)
        if transform.power:
            return _moments_of_square(1.0 + 0.5 * base.location, 0.5 * base.scale, transform.shift)
        centre = np.exp(base.location + 0.5 * base.scale**2)
        return centre - transform.shift, centre * np.sqrt(np.expm1(base.scale**2))


def of_normals(means: Array, scale: Array, transform: Transform) -> tuple[Array, Array]:
    """Mean and standard deviation of values, over D normal distributions (..., D, q) of scales (..., 1, q).

    Above the end of the transform, below which there is its least value, by quadrature, and exactly for
    normal scores.
    """
    ends = (transform.end - means) / scale
    least = transform.inverse(-np.inf) if np.isfinite(transform.end) else 0.0
    centre = transform.inverse(means.mean(axis=-2, keepdims=True))  # so that no digits cancel
    first = ndtr(ends) * (least - centre)
    second = first * (least - centre)
    base = transform.base if isinstance(transform, Censored) else transform
    if isinstance(base, NormalScore):  # whose pieces are lines: exactly
        parts = _of_lines(means, scale, base, transform.end, centre)
    else:
        parts = _of_nodes(means, scale, base, transform.end, centre)
    for part in parts:
        first += part[0]
        second += part[1]
    shift, square = first.mean(axis=-2), second.mean(axis=-2)
    return centre[..., 0, :] + shift, np.sqrt(np.maximum(square - shift**2, 0.0))


def _of_nodes(
    means: Array, scale: Array, transform: Transform, end: float, centre: Array
) -> Iterator[tuple[Array, Array]]:
    """Yield parts of first and second moments about a centre, of values of z above an end, by quadrature."""
    start = np.clip((end - means) / scale, -FARTHEST, FARTHEST)
    half = 0.5 * (FARTHEST - start)
    share = half / np.sqrt(2.0 * np.pi)
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        score = start + half * (1.0 + node)
        apart = transform.inverse(np.maximum(means + scale * score, end)) - centre
        part = np.exp(-0.5 * score**2) * share * (weight * apart)
        yield part, part * apart


def _of_lines(
    means: Array, scale: Array, transform: NormalScore, end: float, centre: Array
) -> Iterator[tuple[Array, Array]]:
    """Yield such parts for each line between knots, above an end."""
    knots, values = np.array(transform.scores), np.array(transform.values)
    slopes = np.diff(values) / np.diff(knots)
    lower = np.concatenate([[-np.inf], knots[1:-1]])
    upper = np.concatenate([knots[1:-1], [np.inf]])
    for low, high, knot, value, slope in zip(
        np.maximum(lower, end), upper, knots[:-1], values[:-1], slopes, strict=True
    ):
        if low >= high:
            continue
        a, b = (np.clip((each - means) / scale, -FAR, FAR) for each in (low, high))
        of_a, of_b = (np.exp(-0.5 * each**2) / np.sqrt(2.0 * np.pi) for each in (a, b))
        share, one, two = ndtr(b) - ndtr(a), of_a - of_b, a * of_a - b * of_b
        at_mean, by_score = value + slope * (means - knot) - centre, slope * scale
        yield (
            at_mean * share + by_score * one,
            at_mean**2 * share + 2.0 * at_mean * by_score * one + by_score**2 * (share + two),
        )


def _moments_of_square(a: Array, b: Array, shift: float) -> tuple[Array, Array]:
    """Mean and standard deviation of ``max(u, 0)^2 - c``, u normal of mean a and standard deviation b."""
    r = a / b
    below, density = ndtr(r), np.exp(-0.5 * r**2) / np.sqrt(2.0 * np.pi)
    second = np.maximum((a**2 + b**2) * below + a * b * density, 0.0)
    fourth = (a**4 + 6.0 * (a * b) ** 2 + 3.0 * b**4) * below + (a**3 * b + 5.0 * a * b**3) * density
    # without what is cut off, whose probability is 1e-15 there, no digits cancel
    variance = np.where(r > 8.0, 4.0 * (a * b) ** 2 + 2.0 * b**4, fourth - second**2)
    return second - shift, np.sqrt(np.maximum(variance, 0.0))


def transform_of(text: str) -> Transform | None:
    """Read a transform as ``repr`` writes it; None where it is none of this module."""
    try:
        found = _built(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError):
        return None
    return found if isinstance(found, Transform) else None


def checked_at(transform: Transform, values: Array) -> None:
    """Raise `ArgumentError` if a transform does not ascend at values (n,), or its parts do not fit.

    The inverse must give the values back, and the slope must be that between neighbours.
    """
    y = np.unique(values)
    z = transform.forward(y)
    wrong = ""
    if z.shape != y.shape or not np.isfinite(z).all():
        wrong = f"forward is NaN or infinite at {np.count_nonzero(~np.isfinite(z)):,} of them"
    elif bool(np.any(np.diff(z) <= 0.0)):
        at = int(np.argmax(np.diff(z) <= 0.0))
        wrong = f"forward does not ascend from {y[at]:g} to {y[at + 1]:g}"
    elif not bool(np.all(np.abs(transform.inverse(z) - y) <= INVERSE * max(float(np.ptp(y)), 1e-300))):
        at = int(np.argmax(np.abs(transform.inverse(z) - y)))
        wrong = f"inverse gives {transform.inverse(z)[at]:g} where forward had {y[at]:g}"
    elif descends := _descends(transform, z):
        wrong = descends
    else:
        step = 1e-4 * max(float(np.ptp(y)), 1e-300)
        inner = y[(y - step >= y[0]) & (y + step <= y[-1])]
        with np.errstate(all="ignore"):
            between = np.log(
                (transform.forward(inner + step) - transform.forward(inner - step)) / (2.0 * step)
            )
            apart = np.abs(transform.log_slope(inner) - between)
        if apart.size and not float(np.median(apart)) <= SLOPE:
            wrong = "log_slope is not the logarithm of the derivative of forward"
    if wrong:
        raise ArgumentError(
            f"transform is {transform.text}, and of {y.size:,} different values {wrong}; expected a strictly "
            "ascending function of arrays, its inverse, and the logarithm of its derivative.",
            key="transform-object",
        )


def _descends(transform: Transform, z: Array) -> str:
    """Say where the inverse descends or is not finite within what the data become, and beyond; or nothing."""
    span = float(z[-1] - z[0])
    scores = np.linspace(z[0] - BEYOND * span, z[-1] + BEYOND * span, LOOKED_AT)
    with np.errstate(all="ignore"):
        values = transform.inverse(scores)
    wrong = ~np.isfinite(values[1:]) | ~(np.diff(values) >= 0.0)
    if not wrong.any():
        return ""
    at = int(np.argmax(wrong))
    return (
        f"inverse goes from {values[at]:g} at z = {scores[at]:.4g} to {values[at + 1]:g} at "
        f"{scores[at + 1]:.4g}, where predictions may lie"
    )


def _built(node: ast.AST) -> Any:
    """Build what a syntax tree of constants and transforms says."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        family = {each.__name__: each for each in (Identity, BoxCox, Arcsinh, NormalScore, Censored)}.get(
            node.func.id
        )
        parts = {str(each.arg): _built(each.value) for each in node.keywords}
        return None if family is None or node.args else family(**parts)
    return ast.literal_eval(node)


def _piece(values: Array, knots: Array) -> Indices:
    """Index of the piece between knots that values are in, those beyond in the outermost."""
    return np.clip(np.searchsorted(knots, values, side="right") - 1, 0, knots.size - 2)


def _through(values: Array, start: Array, end: Array) -> Array:
    """Go along the line through knots."""
    k = _piece(values, start)
    return np.asarray(end[k] + (values - start[k]) * ((end[k + 1] - end[k]) / (start[k + 1] - start[k])))
