"""Colours of a quantity between two limits."""

from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array


@dataclass(frozen=True)
class ColourScale:
    """Colours of one quantity between two limits; ``extend`` tells which values lie beyond them."""

    colours: str
    low: float
    high: float
    extend: str
    label: str


def spanning(values: Array, *, colours: str, label: str, percentile: float = 0.0) -> ColourScale:
    """Scale between two outer percentiles of the values; a constant field gets half a unit each way."""
    values = values[np.isfinite(values)]  # cells may be blank
    values = values if values.size else np.array([0.5])
    low, high = (float(edge) for edge in np.percentile(values, [percentile, 100.0 - percentile]))
    if high - low <= 1e-8 * max(abs(low), abs(high)):
        low, high = low - 0.5, high + 0.5
    below, above = float(values.min()) < low, float(values.max()) > high
    extend = "both" if below and above else "min" if below else "max" if above else "neither"
    return ColourScale(colours, low, high, extend, label)


def symmetric(values: Array, *, colours: str, label: str) -> ColourScale:
    """Scale about zero that holds 98 % of the values, so that one outlier does not bleach the rest."""
    reach = float(np.percentile(np.abs(values), 98.0)) or 1.0
    extend = "both" if float(np.abs(values).max()) > reach else "neither"
    return ColourScale(colours, -reach, reach, extend, label)
