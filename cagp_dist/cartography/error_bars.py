"""Numbers with names and their error bars, one below the other."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cagp_dist.cartography.chart_style import ACCENT, INK, MUTED, RULE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NAMES = 30  # That are drawn: the largest ones
WIDTH_OF_BARS = 1.645  # Standard deviations to each side: 90 %
INCHES_PER_NAME = 0.16


def largest(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Choose the numbers that are drawn, from the lowest to the highest."""
    chosen = np.argsort(-np.abs(values), kind="stable")[:MOST_NAMES]
    return np.asarray(chosen[np.argsort(values[chosen], kind="stable")])


def draw_error_bars(
    axes: "Axes", names: Sequence[str], values: NDArray[np.float64], std: NDArray[np.float64], label: str
) -> None:
    """Draw the largest values (g,) with bars of 90 %, about a line at zero."""
    shown = largest(values)
    rows = np.arange(shown.size)
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.errorbar(
        values[shown],
        rows,
        xerr=WIDTH_OF_BARS * std[shown],
        fmt="o",
        ms=3.0,
        color=ACCENT,
        ecolor=MUTED,
        lw=1.0,
    )
    axes.set_yticks(rows, [names[at] for at in shown])
    axes.set_ylim(-0.7, shown.size - 0.3)
    axes.set_xlabel(label)
    axes.grid(axis="x", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
