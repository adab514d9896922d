"""Within which limits parameters are sought, and from where: decided from a few numbers about the data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import TypeVar

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.checks import LARGEST, check_count, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.likelihood.evaluation import NAMES

T = TypeVar("T")

Limits = tuple[float, float]

SMALLEST_RATIO, LARGEST_RATIO = 1e-8, 1e8
"""Noise variance in units of the variance: below, R is singular in floating point; above, all is noise."""

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
    """Lower and upper limit of each parameter; equal limits hold a parameter fixed."""

    lengthscale: Limits
    variance: Limits
    noise_variance: Limits

    @property
    def ratio(self) -> Limits:
        """Limits of noise variance over variance that some pair within the limits has."""
        low = min(max(self.noise_variance[0] / self.variance[1], SMALLEST_RATIO), LARGEST_RATIO)
        high = max(min(self.noise_variance[1] / self.variance[0], LARGEST_RATIO), low)
        return low, high

    def variance_at(self, ratio: float, best: float) -> tuple[float, bool]:
        """Admissible variance nearest to ``best``, and whether it is the noise variance that limits it."""
        low, high = self.variance
        noise_low, noise_high = (limit / ratio for limit in self.noise_variance)
        if best < max(low, noise_low):
            return max(low, noise_low), noise_low > low
        if best > min(high, noise_high):
            return min(high, noise_high), noise_high < high
        return best, False

    def touched(self, values: Sequence[float]) -> tuple[str, ...]:
        """Names of parameters that are on a limit, or fixed; ``values`` in the order of `NAMES`."""
        found = []
        for name, value in zip(NAMES, values, strict=True):
            low, high = getattr(self, name)
            if min(abs(log(value / low)), abs(log(value / high))) < TOUCHING:
                found.append(name)
        return tuple(found)

    @property
    def fixed(self) -> tuple[str, ...]:
        """Names of parameters whose limits are equal."""
        return tuple(name for name in NAMES if getattr(self, name)[0] == getattr(self, name)[1])


def make_bounds(given: Mapping[str, Sequence[float]] | None, scales: Scales) -> Bounds:
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
    limits = dict(default)
    for name, pair in _checked_names("bounds", given).items():
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
        limits[name] = float(low), float(high)
    return Bounds(**limits)


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
        lower, upper = getattr(bounds, name)
        if not lower <= value <= upper:
            raise ArgumentError(
                f"start of {name} is {value:g}, outside its bounds ({lower:g}, {upper:g}). Choose another "
                f'start, or give bounds={{"{name}": (lower, upper)}} that hold it.'
            )
    first = spread[0].copy()
    if "lengthscale" in chosen:
        first[0] = log(chosen["lengthscale"])
    if "variance" in chosen or "noise_variance" in chosen:
        variance = chosen.get("variance", np.clip(scales.power, *bounds.variance))
        noise = chosen.get("noise_variance", np.clip(0.1 * variance, *bounds.noise_variance))
        first[1] = np.clip(log(noise / variance), *limits[1])
    return [first, *spread[: starts - 1]]


def _checked_names(what: str, given: Mapping[str, T] | None) -> dict[str, T]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not set(given) <= set(NAMES):
        raise ArgumentError(
            f"{what} is {given!r}; expected a mapping with some of the names {', '.join(NAMES)}."
        )
    return dict(given)
