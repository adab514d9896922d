"""Within which limits parameters are sought, and from where: decided from a few numbers about the data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import TypeVar, cast

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.checks import LARGEST, check_count, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.likelihood.model import NAMES, Numbering

T = TypeVar("T")

Limits = tuple[float, float]
OwnLimits = Limits | tuple[Limits, ...]
"""Of a lengthscale, or of one for each coordinate."""

SMALLEST_RATIO, LARGEST_RATIO = 1e-8, 1e8
"""Noise variance in units of the variance: below, R is singular in floating point; above, all is noise."""

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-4, 1e4
"""Variance of another part of a sum in units of that of the first."""

WIDEST, WIDEST_OWN = 10.0, 100.0
"""Largest lengthscale, in extents: of all coordinates, and of one by itself, on which nothing may depend."""

TOUCHING = 1e-6
"""A parameter this close to a limit, in its logarithm, is on it."""


@dataclass(frozen=True)
class Scales:
    """What is known before the fit.

    Attributes
    ----------
    spacing : float
        Distance of neighbouring points, unit of X.
    extent : float
        Size of the region they cover.
    power : float
        Mean square of the residuals, squared unit of y.
    sides : tuple of float or None
        Where each coordinate has a lengthscale of its own: extents by coordinate, unit of X. Spacing and
        extent are then in units of these.
    """

    spacing: float
    extent: float
    power: float
    sides: tuple[float, ...] | None = None

    @property
    def spacings(self) -> tuple[float, ...]:
        """Spacing, unit of X, or one for each coordinate."""
        return tuple(self.spacing * side for side in self.sides or (1.0,))


@dataclass(frozen=True)
class Bounds:
    """Lower and upper limit of each parameter; equal limits hold a parameter fixed.

    Attributes
    ----------
    lengthscale, variance, noise_variance : (float, float)
        Of a kernel, or of the first part of a sum; of the lengthscale a tuple of pairs where each coordinate
        has its own.
    others : tuple of pairs of (float, float)
        Lengthscale and variance of each further part.
    """

    lengthscale: OwnLimits
    variance: Limits
    noise_variance: Limits
    others: tuple[tuple[OwnLimits, Limits], ...] = ()

    @property
    def numbering(self) -> Numbering:
        """Which number stands where."""
        pairs = _pairs(self.lengthscale)
        return Numbering(1 + len(self.others), None if pairs == (self.lengthscale,) else len(pairs))

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
            self._over_variance(limits, smallest=SMALLEST_WEIGHT, largest=LARGEST_WEIGHT)
            for _, limits in self.others
        )

    @property
    def ratio(self) -> Limits:
        """Limits of noise variance over variance that some pair within the limits has."""
        return self._over_variance(self.noise_variance, smallest=SMALLEST_RATIO, largest=LARGEST_RATIO)

    def _over_variance(self, limits: Limits, *, smallest: float, largest: float) -> Limits:
        low = min(max(limits[0] / self.variance[1], smallest), largest)
        high = max(min(limits[1] / self.variance[0], largest), low)
        return low, high

    def variance_at(self, factors: float | Sequence[float], best: float) -> tuple[float, int]:
        """Admissible variance (of the first part) nearest to ``best``, and what limits it.

        Parameters
        ----------
        factors : float or sequence of float
            Ratio; of a sum the weights, then the ratio: what the other variances are in units of this one.
        best : float
            Where the likelihood is largest.

        Returns
        -------
        variance : float
            Within the limits of this one and of those that follow it.
        follows : int
            Which of the factors belongs to the variance that limits it, counted from 1; 0 if none does.
        """
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

    def coarser(self, *spacings: float) -> "Bounds":
        """Limits for thinned data of a sum: lengthscales of at least half the spacing of its points.

        Below, a part cannot be told from noise, and the search would be left where nothing changes. Where
        each coordinate has a lengthscale of its own, it has a spacing of its own.
        """

        def raised(limits: OwnLimits) -> OwnLimits:
            pairs = tuple(
                (min(max(low, 0.5 * spacing), high), high)
                for (low, high), spacing in zip(_pairs(limits), spacings, strict=True)
            )
            return pairs if self.numbering.coordinates is not None else pairs[0]

        others = tuple((raised(lengthscale), variance) for lengthscale, variance in self.others)
        return replace(self, lengthscale=raised(self.lengthscale), others=others)


def _pairs(limits: OwnLimits) -> tuple[Limits, ...]:
    """Limits of each lengthscale of a part."""
    return tuple(pair for pair in limits if isinstance(pair, tuple)) or (cast("Limits", limits),)


Given = Mapping[str, Sequence[object]]
"""(lower, upper) by name; of a sum also several of these, one for each part.

Where each coordinate has a lengthscale of its own, several of these in place of one, one for each coordinate.
"""

Start = Mapping[str, float | Sequence[float | Sequence[float]]]
"""Numbers by name; of a sum one for each part. A lengthscale may be a tuple, one for each coordinate."""


def make_bounds(given: Given | None, scales: Scales, *, parts: int = 1) -> Bounds:
    """Limits that were given, and defaults for the others.

    Raises
    ------
    ArgumentError
        If a name is unknown, or limits are no two numbers above zero, the lower one first.
    """
    chosen = _checked_names("bounds", given)
    variance, noise_variance = (
        (1e-4 * scales.power, 1e4 * scales.power),
        (1e-8 * scales.power, 1e2 * scales.power),
    )
    lengthscales = _part_by_part("lengthscale", chosen, parts, lambda pairs: _own_pairs(pairs, scales.sides))
    variances = _part_by_part("variance", chosen, parts, lambda pair: _pair("variance", pair))
    if "noise_variance" in chosen:
        noise_variance = _pair("noise_variance", chosen["noise_variance"])
    if lengthscales is None:
        lengthscales = [_default_lengthscale(scales)] * parts
    if variances is None:
        variances = [variance] * parts
    others = tuple(zip(lengthscales[1:], variances[1:], strict=True))
    return Bounds(lengthscales[0], variances[0], noise_variance, others)


def _default_lengthscale(scales: Scales) -> OwnLimits:
    if scales.sides is None:
        return scales.spacing / 5.0, WIDEST * scales.extent
    return tuple((scales.spacing / 5.0 * side, WIDEST_OWN * side) for side in scales.sides)


def _part_by_part(
    name: str, chosen: Mapping[str, Sequence[object]], parts: int, read: Callable[[object], T]
) -> list[T] | None:
    """Limits of each part, as they were given for all of them or one by one; None if they were not."""
    if name not in chosen:
        return None
    pairs = chosen[name]
    several = isinstance(pairs, Sequence) and all(isinstance(pair, list | tuple) for pair in pairs)
    if not several or not pairs or parts == 1:
        return [read(pairs)] * parts
    if len(pairs) != parts:
        raise ArgumentError(
            f"bounds of {name} are {pairs!r}; expected (lower, upper), or {parts} of these, one for "
            "each part of the sum."
        )
    return [read(pair) for pair in pairs]


def _own_pairs(pairs: object, sides: tuple[float, ...] | None) -> OwnLimits:
    """Limits of the lengthscale of one part, or of one for each coordinate."""
    if sides is None:
        return _pair("lengthscale", pairs)
    if not isinstance(pairs, Sequence) or not all(isinstance(pair, list | tuple) for pair in pairs):
        return (_pair("lengthscale", pairs),) * len(sides)
    if len(pairs) != len(sides):
        raise ArgumentError(
            f"bounds of lengthscale are {pairs!r}; expected (lower, upper), or {len(sides)} of these, one "
            "for each coordinate."
        )
    return tuple(_pair("lengthscale", pair) for pair in pairs)


def _pair(name: str, pair: object) -> Limits:
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
        raise ArgumentError(f"bounds of {name} are {pair!r}; expected (lower, upper).")
    low, high = pair
    check_positive(f"lower bound of {name}", low, least=1.0 / LARGEST)
    check_positive(f"upper bound of {name}", high, most=LARGEST)
    if low > high:
        raise ArgumentError(
            f"bounds of {name} are ({low:g}, {high:g}), reversed; expected the lower one first. Equal "
            "bounds hold the parameter fixed."
        )
    return float(low), float(high)


def make_starts(given: Start | None, bounds: Bounds, scales: Scales, *, starts: int) -> list[Array]:
    """Points to start from, each (log lengthscale, log ratio).

    The start that was given comes first; the others are spread over lengthscales from the spacing to the
    extent and ratios from 0.001 to 1, by multiples of irrational numbers, so that any number of them is
    spread evenly. Where each coordinate has a lengthscale of its own, they are the same parts of the extents
    of all coordinates.

    Raises
    ------
    ArgumentError
        If a name is unknown, or a start is no number above zero, or outside its bounds.
    """
    check_count("starts", starts, least=1)
    low = np.log([2.0 * scales.spacing, 1e-3])
    high = np.log([max(0.5 * scales.extent, 2.0 * scales.spacing), 1.0])
    limits, sides = np.log([*bounds.lengthscales, bounds.ratio]).T, np.log(scales.sides or (1.0,))

    def start(k: int) -> Array:
        even = np.modf(0.5 + k * np.array([0.6180339887, 0.7548776662]))[0]
        lengthscale, ratio = low + even * (high - low)
        return np.asarray(np.clip([*(lengthscale + sides), ratio], *limits))

    spread = [start(k) for k in range(starts)]
    chosen = _guessed(given, bounds)
    if not chosen:
        return spread
    first = spread[0].copy()
    if "lengthscale" in chosen:
        first[:-1] = np.log(chosen["lengthscale"])
    if "variance" in chosen or "noise_variance" in chosen:
        (variance,) = chosen.get("variance", (np.clip(scales.power, *bounds.variance),))
        (noise,) = chosen.get("noise_variance", (np.clip(0.1 * variance, *bounds.noise_variance),))
        first[-1] = np.clip(log(noise / variance), *limits[:, -1])
    return [first, *spread[: starts - 1]]


def make_sum_starts(
    given: Start | None, bounds: Bounds, single: Sequence[float], *, starts: int, mixed: bool
) -> list[Array]:
    """Points to start from for a sum, each of logarithms of (lengthscales, weights, ratio).

    The fit of one kernel is taken apart: its lengthscale lies between those of the parts, its variance is
    shared equally, and some of its noise becomes a part of the field.

    Parameters
    ----------
    given : mapping, optional
        A guess, tried first: a sequence for lengthscale and variance, one number for each part.
    bounds : Bounds
        Of the sum.
    single : sequence of float
        Lengthscale (or one for each coordinate), variance and noise variance of one kernel alone.
    starts : int
        Number of starts.
    mixed : bool
        Whether the parts are of several families; then each start is tried in both orders.

    Raises
    ------
    ArgumentError
        If a name is unknown, or a start is no number above zero, outside its bounds, or not one for each
        part.
    """
    check_count("starts", starts, least=1)
    parts = bounds.numbering.parts
    *own, variance, noise = single
    limits = np.log([*bounds.lengthscales, *bounds.weights, bounds.ratio]).T

    def start(lengthscales: Sequence[float], variances: Sequence[float], noise_variance: float) -> Array:
        weights = [variance / variances[0] for variance in (*variances[1:], noise_variance)]
        return np.asarray(np.clip(np.log([*lengthscales, *weights]), *limits))

    found = []
    for k in range(starts):
        shorter, longer = np.modf(0.5 + k * np.array([0.6180339887, 0.7548776662]))[0]
        lengthscales = np.outer(np.geomspace(np.exp(-2.3 * shorter), np.exp(3.0 * longer), parts), own)
        for order in (1, -1) if mixed else (1,):
            found.append(
                start(lengthscales[::order].ravel().tolist(), [variance / parts] * parts, 0.5 * noise)
            )
    chosen = _guessed(given, bounds)
    if not chosen:
        return found
    return [
        start(
            chosen.get("lengthscale", np.exp(found[0][: len(bounds.lengthscales)]).tolist()),
            chosen.get("variance", [variance / parts] * parts),
            chosen.get("noise_variance", [0.5 * noise])[0],
        ),
        *found,
    ]


def _guessed(given: Start | None, bounds: Bounds) -> dict[str, list[float]]:
    """Check the guesses, by name: lengthscales part by part and coordinate by coordinate."""
    parts, coordinates = bounds.numbering.parts, bounds.numbering.coordinates
    found = {}
    for name, guess in _checked_names("start", given).items():
        expected = 1 if name == "noise_variance" else parts
        of_parts = guess if expected > 1 and isinstance(guess, list | tuple) else (guess,)
        if len(of_parts) != expected:
            raise ArgumentError(
                f"start of {name} is {guess!r}; expected {expected} numbers, one for each part of the sum."
            )
        own = coordinates if name == "lengthscale" else None
        numbers = [number for part in of_parts for number in _own_numbers(name, part, own)]
        for number, limits in zip(numbers, _limits_of(name, bounds), strict=True):
            check_positive(f"start of {name}", number)
            _check_start(name, number, *limits)
        found[name] = numbers
    return found


def _own_numbers(name: str, guess: object, coordinates: int | None) -> list[float]:
    """Give the guess for one part: one number, or one for each coordinate."""
    if not isinstance(guess, list | tuple):
        return [cast("float", guess)] * (coordinates or 1)
    if coordinates is None:
        hint = (
            " With anisotropic=True a number for each coordinate is fitted." if name == "lengthscale" else ""
        )
        raise ArgumentError(f"start of {name} is {guess!r}; expected one number.{hint}")
    if len(guess) != coordinates:
        raise ArgumentError(
            f"start of {name} is {guess!r} for points of {coordinates} coordinates; expected one number, or "
            "one for each coordinate."
        )
    return list(guess)


def _limits_of(name: str, bounds: Bounds) -> tuple[Limits, ...]:
    if name == "lengthscale":
        return bounds.lengthscales
    if name == "noise_variance":
        return (bounds.noise_variance,)
    return (bounds.variance, *(variance for _, variance in bounds.others))


def _check_start(name: str, value: float, lower: float, upper: float) -> None:
    if not lower <= value <= upper:
        raise ArgumentError(
            f"start of {name} is {value:g}, outside its bounds ({lower:g}, {upper:g}). Choose another "
            f'start, or give bounds={{"{name}": (lower, upper)}} that hold it.'
        )


def _checked_names(what: str, given: Mapping[str, T] | None) -> dict[str, T]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not set(given) <= set(NAMES):
        raise ArgumentError(
            f"{what} is {given!r}; expected a mapping with some of the names {', '.join(NAMES)}."
        )
    return dict(given)
