"""Within which limits parameters are sought, and from where: decided from a few numbers about the data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import TypeVar

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.checks import LARGEST, check_count, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.likelihood.model import NAMES, names_of

T = TypeVar("T")

Limits = tuple[float, float]

SMALLEST_RATIO, LARGEST_RATIO = 1e-8, 1e8
"""Noise variance in units of the variance: below, R is singular in floating point; above, all is noise."""

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-4, 1e4
"""Variance of another part of a sum in units of that of the first."""

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
    """

    spacing: float
    extent: float
    power: float


@dataclass(frozen=True)
class Bounds:
    """Lower and upper limit of each parameter; equal limits hold a parameter fixed.

    Attributes
    ----------
    lengthscale, variance, noise_variance : (float, float)
        Of a kernel, or of the first part of a sum.
    others : tuple of pairs of (float, float)
        Lengthscale and variance of each further part.
    """

    lengthscale: Limits
    variance: Limits
    noise_variance: Limits
    others: tuple[tuple[Limits, Limits], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all parameters."""
        return names_of(1 + len(self.others))

    @property
    def lengthscales(self) -> tuple[Limits, ...]:
        """Limits of the lengthscale of each part."""
        return (self.lengthscale, *(lengthscale for lengthscale, _ in self.others))

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

    def coarser(self, spacing: float) -> "Bounds":
        """Limits for thinned data of a sum: lengthscales of at least half the spacing of its points.

        Below, a part cannot be told from noise, and the search would be left where nothing changes.
        """

        def raised(limits: Limits) -> Limits:
            return min(max(limits[0], 0.5 * spacing), limits[1]), limits[1]

        others = tuple((raised(lengthscale), variance) for lengthscale, variance in self.others)
        return replace(self, lengthscale=raised(self.lengthscale), others=others)


Given = Mapping[str, Sequence[float] | Sequence[Sequence[float]]]
"""(lower, upper) by name; of a sum also several of these, one for each part."""


def make_bounds(given: Given | None, scales: Scales, *, parts: int = 1) -> Bounds:
    """Limits that were given, and defaults for the others.

    Raises
    ------
    ArgumentError
        If a name is unknown, or limits are no two numbers above zero, the lower one first.
    """
    default: dict[str, Limits] = {
        "lengthscale": (scales.spacing / 5.0, 10.0 * scales.extent),
        "variance": (1e-4 * scales.power, 1e4 * scales.power),
        "noise_variance": (1e-8 * scales.power, 1e2 * scales.power),
    }
    limits = {name: [pair] * parts for name, pair in default.items()}
    for name, pairs in _checked_names("bounds", given).items():
        several = isinstance(pairs, Sequence) and all(isinstance(pair, list | tuple) for pair in pairs)
        if several and pairs and parts > 1 and name != "noise_variance":
            if len(pairs) != parts:
                raise ArgumentError(
                    f"bounds of {name} are {pairs!r}; expected (lower, upper), or {parts} of these, one for "
                    "each part of the sum."
                )
            limits[name] = [_pair(name, pair) for pair in pairs]
        else:
            limits[name] = [_pair(name, pairs)] * parts
    others = tuple(zip(limits["lengthscale"][1:], limits["variance"][1:], strict=True))
    return Bounds(limits["lengthscale"][0], limits["variance"][0], limits["noise_variance"][0], others)


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


def make_starts(
    given: Mapping[str, float] | None, bounds: Bounds, scales: Scales, *, starts: int
) -> list[Array]:
    """Points to start from, each (log lengthscale, log ratio).

    The start that was given comes first; the others are spread over lengthscales from the spacing to the
    extent and ratios from 0.001 to 1, by multiples of irrational numbers, so that any number of them is
    spread evenly.

    Raises
    ------
    ArgumentError
        If a name is unknown, or a start is no number above zero, or outside its bounds.
    """
    check_count("starts", starts, least=1)
    low = np.log([2.0 * scales.spacing, 1e-3])
    high = np.log([max(0.5 * scales.extent, 2.0 * scales.spacing), 1.0])
    limits = np.log([bounds.lengthscale, bounds.ratio])
    spread = [
        np.clip(low + np.modf(0.5 + k * np.array([0.6180339887, 0.7548776662]))[0] * (high - low), *limits.T)
        for k in range(starts)
    ]
    chosen = _checked_names("start", given)
    if not chosen:
        return spread
    for name, value in chosen.items():
        check_positive(f"start of {name}", value)
        _check_start(name, value, *getattr(bounds, name))
    first = spread[0].copy()
    if "lengthscale" in chosen:
        first[0] = log(chosen["lengthscale"])
    if "variance" in chosen or "noise_variance" in chosen:
        variance = chosen.get("variance", np.clip(scales.power, *bounds.variance))
        noise = chosen.get("noise_variance", np.clip(0.1 * variance, *bounds.noise_variance))
        first[1] = np.clip(log(noise / variance), *limits[1])
    return [first, *spread[: starts - 1]]


def make_sum_starts(
    given: Mapping[str, float | Sequence[float]] | None,
    bounds: Bounds,
    single: Sequence[float],
    *,
    starts: int,
    mixed: bool,
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
    single : (float, float, float)
        Lengthscale, variance and noise variance of one kernel alone.
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
    parts = 1 + len(bounds.others)
    lengthscale, variance, noise = single
    limits = np.log([*bounds.lengthscales, *bounds.weights, bounds.ratio]).T

    def start(lengthscales: Array, variances: Array, noise_variance: float) -> Array:
        x = np.log([*lengthscales, *(variances[1:] / variances[0]), noise_variance / variances[0]])
        return np.asarray(np.clip(x, *limits))

    found = []
    for k in range(starts):
        shorter, longer = np.modf(0.5 + k * np.array([0.6180339887, 0.7548776662]))[0]
        lengthscales = lengthscale * np.geomspace(np.exp(-2.3 * shorter), np.exp(3.0 * longer), parts)
        for order in (1, -1) if mixed else (1,):
            found.append(start(lengthscales[::order], np.full(parts, variance / parts), 0.5 * noise))
    chosen = _checked_names("start", given)
    if not chosen:
        return found
    values = {
        "lengthscale": np.exp(found[0][:parts]),
        "variance": np.full(parts, variance / parts),
        "noise_variance": np.array([0.5 * noise]),
    }
    for name, guess in chosen.items():
        expected = 1 if name == "noise_variance" else parts
        numbers = guess if isinstance(guess, list | tuple) else (guess,)
        if len(numbers) != expected:
            raise ArgumentError(
                f"start of {name} is {guess!r}; expected {'one number' if expected == 1 else expected}"
                f"{'' if expected == 1 else ' numbers, one for each part of the sum'}."
            )
        own = [limit for key, limit in zip(bounds.names, bounds.limits, strict=True) if key.startswith(name)]
        for number, (lower, upper) in zip(numbers, own, strict=True):
            check_positive(f"start of {name}", number)
            _check_start(name, number, lower, upper)
        values[name] = np.array(numbers, dtype=np.float64)
    return [start(values["lengthscale"], values["variance"], float(values["noise_variance"][0])), *found]


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
