"""Colours of a quantity between two limits."""

import math
from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array

FIELD, ERROR_BARS, DIFFERENCES = "plasma", "viridis", "RdBu_r"  # colours of each kind of quantity
_MOST_MEDIANS = 30.0  # of error bars of transformed values


@dataclass(frozen=True)
class ColourScale:
    """Colours of one quantity between two limits; ``extend`` tells which values lie beyond them."""

    colours: str
    low: float
    high: float
    extend: str
    label: str


def scale_of(values: Array, *, colours: str, label: str = "", transformed: bool = False) -> ColourScale:
    """Scale in round numbers, wherever a field is drawn: all values but a hundredth at each end.

    `DIFFERENCES` are symmetric about zero. Standard deviations of ``transformed`` values, such as logarithms,
    may grow exponentially far from the data: their scale ends at thirty times the median at most. The page of
    a run has the same rule (``colours.js``).
    """
    values = values[np.isfinite(values)]  # cells may be blank
    values = values if values.size else np.array([0.0, 1.0])
    share = 1.0 if values.size > 50 else 0.0
    low, high = (float(edge) for edge in np.percentile(values, [share, 100.0 - share]))
    if transformed and (most := _MOST_MEDIANS * float(np.median(values))) > 0.0:
        high = min(high, most)
    if colours == DIFFERENCES:
        low, high = -max(-low, high), max(-low, high)
    if not high > low:
        low, high = low - max(1e-6, 1e-3 * abs(low)), high + max(1e-6, 1e-3 * abs(high))
    step = 0.5 * _round_step((high - low) / 5.0)
    low, high = step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9)
    below, above = float(values.min()) < low, float(values.max()) > high
    extend = "both" if below and above else "min" if below else "max" if above else "neither"
    return ColourScale(colours, low, high, extend, label)


def _round_step(span: float) -> float:
    """Give the least of 1, 2, 2.5, 5 and 10 times a power of ten that is no shorter."""
    power = 10.0 ** math.floor(math.log10(span))
    return power * next((each for each in (1.0, 2.0, 2.5, 5.0) if each * power >= span), 10.0)
