"""Within which limits parameters are sought: decided from a few numbers about the data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from typing import TypeVar

from cagp_dist.arrays import Array
from cagp_dist.checks import LARGEST, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.likelihood.numbering import NAMES, Numbering

T = TypeVar("T")

Limits = tuple[float, float]
OwnLimits = Limits | tuple[Limits, ...]  # Of a lengthscale, or of one for each coordinate
SMALLEST_RATIO, LARGEST_RATIO = 1e-8, 1e8
"""Noise variance in units of the variance: below, R may be singular in floating point; above, all is noise.

They limit what is sought. Where the limits of both variances ask for more, such as a noise that is held,
these decide.
"""

# The same of the variance of another part of a sum, in units of that of the first
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-4, 1e4

# Largest lengthscale, in extents: of all coordinates, and of one by itself, on which nothing may depend
WIDEST, WIDEST_OWN = 10.0, 100.0

# Of numbers that are no lengthscales: their logarithms say how far an ellipse is stretched (a ratio of its
# axes up to 30), by how much deviations of variables differ, and how variables go together
OTHERS: dict[str, Limits] = {"stretch": (1.0 / 25.0, 25.0), "deviation": (1e-3, 1e3), "angle": (1e-8, 1e8)}

ABOVE = 1e-6  # Part of it by which the noise variance of every point stays above zero
SAME = 1e-9  # Limits of a logarithm that differ by less are the same
TOUCHING = 1e-6  # A parameter this close to a limit, in its logarithm, is on it


@dataclass(frozen=True)
class Scales:
    """What is known before the fit."""

    spacing: float  # Distance of neighbouring points, unit of X
    extent: float  # Size of the region they cover
    power: float  # Mean square of the residuals, squared unit of y
    # Where each coordinate has a lengthscale of its own: extents by coordinate, unit of X. Spacing and extent
    # are then in units of these.
    sides: tuple[float, ...] | None = None

    @property
    def spacings(self) -> tuple[float, ...]:
        """Spacing, unit of X, or one for each coordinate."""
        return tuple(self.spacing * side for side in self.sides or (1.0,))


@dataclass(frozen=True)
class Bounds:
    """Lower and upper limit of each parameter; equal limits hold a parameter fixed."""

    # lengthscale, variance, noise_variance: of a kernel, or of the first part of a sum; of the lengthscale a
    # tuple of pairs where each coordinate has its own
    lengthscale: OwnLimits
    variance: Limits
    noise_variance: Limits
    others: tuple[tuple[OwnLimits, Limits], ...] = ()  # Lengthscale and variance of each further part
    named: Numbering | None = field(default=None, compare=False)

    @property
    def numbering(self) -> Numbering:
        """Which number stands where."""
        if self.named is not None:
            return self.named
        pairs = _pairs(self.lengthscale)
        one = bool(pairs) and self.lengthscale == pairs[0]
        return Numbering.of(1 + len(self.others), None if one else len(pairs))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all parameters."""
        return self.numbering.names

    @property
    def lengthscales(self) -> tuple[Limits, ...]:
        """Limits of all lengthscales, part by part."""
        parts = (self.lengthscale, *(lengthscale for lengthscale, _ in self.others))
        return tuple(pair for part in parts for pair in _pairs(part))

    @property
    def limits(self) -> tuple[Limits, ...]:
        """Limits of all parameters, in the order of their names."""
        variances = [variance for _, variance in self.others]
        return (*self.lengthscales, self.variance, *variances, self.noise_variance)

    @property
    def weights(self) -> tuple[Limits, ...]:
        """Limits of the variance of each further part over that of the first."""
        return tuple(
            self._over_variance(limits, SMALLEST_WEIGHT, LARGEST_WEIGHT) for _, limits in self.others
        )

    @property
    def ratio(self) -> Limits:
        """Limits of noise variance over variance that some pair within the limits has."""
        return self._over_variance(self.noise_variance, SMALLEST_RATIO, LARGEST_RATIO)

    def _over_variance(self, limits: Limits, smallest: float, largest: float) -> Limits:
        """Quotients of pairs within the limits, beyond smallest and largest only if there must be some."""
        (low, high), (least, most) = limits, self.variance
        return max(low / most, min(smallest, high / most)), min(high / least, max(largest, low / least))

    def reconciled(self, x: Array) -> tuple[Array, tuple[tuple[int, int], ...]]:
        """Change the weights in x (k,) for which no variance keeps all limits, and say what they move with.

        Each limit leaves a range to the logarithm of the first variance: its own, that of the noise, then
        that of each further part. A part whose range does not meet those before it has its weight changed
        until it does.
        """
        if not self.others:
            return x, ()
        first, ratio = len(self.lengthscales), x.size - 1
        (low, high), below, above = [log(limit) for limit in self.variance], -1, -1
        changed, tied = x.copy(), []
        rest = [(ratio, self.noise_variance), *enumerate((limits for _, limits in self.others), start=first)]
        for at, limits in rest:
            least, most = (log(limit) - float(x[at]) for limit in limits)
            if at != ratio and least > high + SAME:
                changed[at] += least - high
                tied.append((at, above))
                low, below = high, above
            elif at != ratio and most < low - SAME:
                changed[at] += most - low
                tied.append((at, below))
                high, above = low, below
            else:
                low, below = max((low, below), (least, at))
                high, above = min((high, above), (most, at))
        return changed, tuple(tied)

    def variance_at(self, factors: float | Sequence[float], best: float) -> tuple[float, int]:
        """Admissible variance (of the first part) nearest to ``best``, and what limits it."""
        factors = factors if isinstance(factors, Sequence) else (factors,)
        others = [*(variance for _, variance in self.others), self.noise_variance]
        lows = [self.variance[0], *(low / by for (low, _), by in zip(others, factors, strict=True))]
        highs = [self.variance[1], *(high / by for (_, high), by in zip(others, factors, strict=True))]
        if best < max(lows):
            return max(lows), lows.index(max(lows))
        if best > min(highs):
            return min(highs), highs.index(min(highs))
        return best, 0

    def touched(self, values: Sequence[float]) -> tuple[str, ...]:
        """Names of parameters that are on a limit, or fixed; ``values`` in the order of the names."""
        found = []
        for name, value, (low, high) in zip(self.names, values, self.limits, strict=True):
            if min(abs(log(value / low)), abs(log(value / high))) < TOUCHING:
                found.append(name)
        return tuple(found)

    @property
    def fixed(self) -> tuple[str, ...]:
        """Names of parameters whose limits are equal."""
        return tuple(name for name, (low, high) in zip(self.names, self.limits, strict=True) if low == high)

    @property
    def alike(self) -> bool:
        """Whether all parts have the same limits, so that their order makes no difference."""
        return all(other == (self.lengthscale, self.variance) for other in self.others)

    def above(self, noise_variance: float) -> "Bounds":
        """Limits with a noise variance above this one."""
        low, high = self.noise_variance
        if high <= noise_variance:
            raise ArgumentError(
                f"the noise variance is at most {high:g} by its bounds, and one of noise_deviations is "
                f"{-noise_variance:g}: the noise of that point would not be above zero. Raise the bounds.",
                key="negative-noise",
            )
        least = noise_variance + ABOVE * abs(noise_variance)
        return replace(self, noise_variance=(min(max(low, least), high), high))

    def coarser(self, *spacings: float) -> "Bounds":
        """Limits for thinned data of a sum: lengthscales of at least half the spacing of its points."""

        def raised(limits: OwnLimits, axes: tuple[int | None, ...]) -> OwnLimits:
            pairs = tuple(
                (low, high) if axis is None else (min(max(low, 0.5 * spacings[axis]), high), high)
                for (low, high), axis in zip(_pairs(limits), axes, strict=True)
            )
            return pairs[0] if pairs and limits == _pairs(limits)[0] else pairs

        first, *rest = self.numbering.along
        others = tuple(
            (raised(lengthscale, axes), variance)
            for (lengthscale, variance), axes in zip(self.others, rest, strict=True)
        )
        return replace(self, lengthscale=raised(self.lengthscale, first), others=others)


def _pairs(limits: OwnLimits) -> tuple[Limits, ...]:
    """Limits of each own number of a part."""
    if limits and not isinstance(limits[0], tuple):
        return (limits,)
    return limits


Given = Mapping[str, Sequence[object]]
"""(lower, upper) by name; of a sum also several of these, one for each part.

Where each coordinate has a lengthscale of its own, several of these instead of one, one for each coordinate.
"""


def make_bounds(given: Given | None, scales: Scales, numbering: Numbering | None = None) -> Bounds:
    """Limits that were given, and defaults for the others; of one kernel if nothing else is said."""
    chosen = checked_names("bounds", given)
    numbering = numbering or Numbering.of(1, None if scales.sides is None else len(scales.sides))
    parts = numbering.parts
    each = zip(numbering.own, numbering.along, strict=True)
    lengthscales = [_default_limits(own, axes, scales) for own, axes in each]
    variances = [(1e-4 * scales.power, 1e4 * scales.power)] * parts
    noise_variance = 1e-8 * scales.power, 1e2 * scales.power
    if "lengthscale" in chosen:
        of_parts = _part_by_part("lengthscale", chosen["lengthscale"], parts)
        lengthscales = [
            _own_pairs(pairs, default, [axis is not None for axis in axes])
            for pairs, default, axes in zip(of_parts, lengthscales, numbering.along, strict=True)
        ]
    if "variance" in chosen:
        variances = [_pair("variance", pair) for pair in _part_by_part("variance", chosen["variance"], parts)]
    if "noise_variance" in chosen:
        noise_variance = _pair("noise_variance", chosen["noise_variance"])
    others = tuple(zip(lengthscales[1:], variances[1:], strict=True))
    return Bounds(lengthscales[0], variances[0], noise_variance, others, numbering)


def _default_limits(own: tuple[str, ...], axes: tuple[int | None, ...], scales: Scales) -> OwnLimits:
    """Limits of the own numbers of a part."""
    if own == NAMES[:1] and scales.sides is None:
        return scales.spacing / 5.0, WIDEST * scales.extent
    found: list[Limits] = []
    for name, axis in zip(own, axes, strict=True):
        if axis is None:
            found.append(OTHERS[name.partition("_")[0]])
        elif scales.sides is None:
            found.append((scales.spacing / 5.0, WIDEST * scales.extent))
        else:
            side = scales.sides[axis]
            found.append((scales.spacing / 5.0 * side, WIDEST_OWN * side))
    return tuple(found)


def _part_by_part(name: str, pairs: Sequence[object], parts: int) -> Sequence[object]:
    """Limits of each part, as they were given for all of them or one by one."""
    several = isinstance(pairs, Sequence) and all(isinstance(pair, list | tuple) for pair in pairs)
    if not several or not pairs or parts == 1:
        return [pairs] * parts
    if len(pairs) != parts:
        raise ArgumentError(
            f"bounds of {name} are {pairs!r}; expected (lower, upper), or {parts} of these, one for "
            "each part of the sum.",
            key="bounds",
        )
    return pairs


def _own_pairs(pairs: object, default: OwnLimits, is_lengthscale: Sequence[bool]) -> OwnLimits:
    """Limits of the own numbers of one part, in place of the default ones."""
    own = _pairs(default)
    if own and default == own[0]:
        return _pair("lengthscale", pairs)
    if not isinstance(pairs, Sequence) or not all(isinstance(pair, list | tuple) for pair in pairs):
        pair = _pair("lengthscale", pairs)
        return tuple(pair if one else other for one, other in zip(is_lengthscale, own, strict=True))
    if len(pairs) != len(own):
        raise ArgumentError(
            f"bounds of lengthscale are {pairs!r}; expected (lower, upper), or {len(own)} of these, one "
            "for each coordinate.",
            key="bounds",
        )
    return tuple(_pair("lengthscale", pair) for pair in pairs)


def _pair(name: str, pair: object) -> Limits:
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
        raise ArgumentError(f"bounds of {name} are {pair!r}; expected (lower, upper).", key="bounds")
    low, high = pair
    check_positive(f"lower bound of {name}", low, least=1.0 / LARGEST)
    check_positive(f"upper bound of {name}", high, most=LARGEST)
    if low > high:
        raise ArgumentError(
            f"bounds of {name} are ({low:g}, {high:g}), reversed; expected the lower one first. Equal "
            "bounds hold the parameter fixed.",
            key="bounds-reversed",
        )
    return float(low), float(high)


def checked_names(what: str, given: Mapping[str, T] | None) -> dict[str, T]:
    """Give what was given, by name."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not set(given) <= set(NAMES):
        raise ArgumentError(
            f"{what} is {given!r}; expected a mapping with some of the names {', '.join(NAMES)}.",
            key="parameter-unknown",
        )
    return dict(given)
