"""From where parameters are sought: decided from the limits and a few numbers about the data."""

from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, cast

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.checks import check_count, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.likelihood.bounds import Bounds, Limits, Scales, checked_names
from cagp_dist.likelihood.numbering import NAMES

LEAST_POWER = 0.1  # Part of the mean square that starts leave to the field where the noise has an upper limit
ROUNDING = 1e-12  # By which part of itself a start may be outside its bounds

if TYPE_CHECKING:
    from cagp_dist.likelihood.exact.profile_likelihood import Place

# Numbers by name; of a sum one for each part. A lengthscale may be a tuple, one for each coordinate.
Start = Mapping[str, float | Sequence[float | Sequence[float]]]


class FoundStart(dict[str, float | Sequence[float | Sequence[float]]]):
    """Numbers that another fit has found, whose bounds may be others: it is moved into those of this one."""


def make_starts(given: Start | None, bounds: Bounds, scales: Scales, *, starts: int) -> list[Array]:
    """Points to start from, each (log lengthscale, log ratio): the one that was given, then others.

    They are spread over lengthscales from the spacing to the extent and ratios from 0.001 to 1, by multiples
    of irrational numbers, so that any number of them is spread evenly.
    """
    check_count("starts", starts, least=1)
    low = np.log([2.0 * scales.spacing, 1e-3])
    high = np.log([max(0.5 * scales.extent, 2.0 * scales.spacing), 1.0])
    power = min(max(scales.power, bounds.variance[0]), bounds.variance[1])
    known = np.array(bounds.noise_variance) / [power, LEAST_POWER * power]
    ratio = np.clip(known, *bounds.ratio)
    limits, sides = np.log([*bounds.lengthscales, tuple(ratio.tolist())]).T, np.log(scales.sides or (1.0,))
    axes = [axis for own in bounds.numbering.along for axis in own]

    def start(k: int) -> Array:
        even = np.modf(0.5 + k * np.array([0.6180339887, 0.7548776662]))[0]
        lengthscale, ratio = low + even * (high - low)
        own = [0.0 if axis is None else lengthscale + sides[axis] for axis in axes]
        return np.asarray(np.clip([*own, ratio], *limits))

    spread = [start(k) for k in range(starts)]
    chosen = _guessed(given, bounds)
    if not chosen:
        return spread
    first = spread[0].copy()
    if "lengthscale" in chosen:
        first[:-1] = np.log(chosen["lengthscale"])
    if "variance" in chosen or "noise_variance" in chosen:
        (variance,) = chosen.get("variance", (power,))
        (noise,) = chosen.get("noise_variance", (np.clip(0.1 * variance, *bounds.noise_variance),))
        first[-1] = np.clip(log(noise / variance), *np.log(bounds.ratio))
    return [first, *spread[: starts - 1]]


def without_nugget(
    spread: Sequence[Array], bounds: Bounds, *, noise_variance: float, residuals: Array, deviations: Array
) -> list[Array]:
    """Make starts of the same lengthscales whose noise is the known one alone, where that differs by point.

    Where few points carry most of the mean noise, that is many times the variance of the field, to which a
    fit of one noise for all points does not come near. ``residuals`` (n, T), ``deviations`` (n,).
    """
    own = noise_variance + deviations
    squares = np.mean(residuals**2, axis=1)
    power = float(squares.mean())
    weights = 1.0 / (own + 0.1 * power) ** 2
    variance = max(float(weights @ (squares - own) / weights.sum()), 0.01 * power)
    low, high = np.log(bounds.ratio)
    ratio = np.clip(log(noise_variance / variance), low, high)
    return [np.append(start[:-1], ratio) for start in spread]


def make_sum_starts(
    given: Start | None,
    bounds: Bounds,
    climb: "Callable[[], Place]",
    *,
    starts: int,
    mixed: bool,
) -> list[Array]:
    """Points to start from for a sum, each of logarithms of (lengthscales, weights, ratio).

    One kernel alone is not climbed for where a guess of all numbers is the only start.
    """
    check_count("starts", starts, least=1)
    parts, chosen = bounds.numbering.parts, _guessed(given, bounds)
    limits = np.log([*bounds.lengthscales, *bounds.weights, bounds.ratio]).T

    def start(lengthscales: Sequence[float], variances: Sequence[float], noise_variance: float) -> Array:
        weights = [variance / variances[0] for variance in (*variances[1:], noise_variance)]
        return np.asarray(np.clip(np.log([*lengthscales, *weights]), *limits))

    if starts == 1 and len(chosen) == len(NAMES):
        return [start(chosen["lengthscale"], chosen["variance"], chosen["noise_variance"][0])]
    *own, variance, noise = climb().parameters
    found = []
    for k in range(starts):
        shorter, longer = np.modf(0.5 + k * np.array([0.6180339887, 0.7548776662]))[0]
        lengthscales = np.outer(np.geomspace(np.exp(-2.3 * shorter), np.exp(3.0 * longer), parts), own)
        for order in (1, -1) if mixed else (1,):
            found.append(
                start(lengthscales[::order].ravel().tolist(), [variance / parts] * parts, 0.5 * noise)
            )
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
    numbering, parts = bounds.numbering, bounds.numbering.parts
    # of a part with one lengthscale None
    each = [
        None if own == NAMES[:1] else axes for own, axes in zip(numbering.own, numbering.along, strict=True)
    ]
    found: dict[str, list[float]] = {}
    for name, guess in checked_names("start", given).items():
        expected = 1 if name == "noise_variance" else parts
        of_parts = guess if expected > 1 and isinstance(guess, list | tuple) else (guess,)
        if len(of_parts) != expected:
            raise ArgumentError(
                f"start of {name} is {guess!r}; expected {expected} numbers, one for each part of the sum.",
                key="start",
            )
        own = [None] * parts if name != NAMES[0] else each
        numbers = [
            number
            for part, axes in zip(of_parts, own, strict=False)
            for number in _own_numbers(name, part, axes)
        ]
        found[name] = []
        for number, limits in zip(numbers, _limits_of(name, bounds), strict=True):
            check_positive(f"start of {name}", number)
            if isinstance(given, FoundStart):
                found[name].append(float(np.clip(number, *limits)))
            else:
                found[name].append(_within(name, number, *limits))
    return found


def _own_numbers(name: str, guess: object, axes: tuple[int | None, ...] | None) -> list[float]:
    """Give the guess for one part: one number, or one for each; what is no lengthscale begins at one."""
    if not isinstance(guess, list | tuple):
        number = cast("float", guess)
        return [number] if axes is None else [1.0 if axis is None else number for axis in axes]
    if axes is None:
        hint = (
            " With anisotropic=True a number for each coordinate is fitted." if name == "lengthscale" else ""
        )
        raise ArgumentError(f"start of {name} is {guess!r}; expected one number.{hint}", key="start")
    if len(guess) != len(axes):
        raise ArgumentError(
            f"start of {name} is {guess!r} for points of {len(axes)} coordinates; expected one number, or "
            "one for each coordinate.",
            key="start",
        )
    return list(guess)


def _limits_of(name: str, bounds: Bounds) -> tuple[Limits, ...]:
    if name == "lengthscale":
        return bounds.lengthscales
    if name == "noise_variance":
        return (bounds.noise_variance,)
    return (bounds.variance, *(variance for _, variance in bounds.others))


def _within(name: str, value: float, lower: float, upper: float) -> float:
    """Give a start within its bounds, which it may miss by the rounding of logarithms."""
    if not (1.0 - ROUNDING) * lower <= value <= (1.0 + ROUNDING) * upper:
        raise ArgumentError(
            f"start of {name} is {value:g}, outside its bounds ({lower:g}, {upper:g}). Choose another "
            f'start, or give bounds={{"{name}": (lower, upper)}} that hold it.',
            key="start-outside-bounds",
        )
    return min(max(value, lower), upper)
