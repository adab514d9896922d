"""Charts of where error bars hold: at levels of every width, and in parts of the observations."""

from functools import partial

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.calibration.verification.strata import CHANCE
from cagp_dist.report.by_stratum import KINDS, ByStratum
from cagp_dist.report.drawing import ACCENT, BAND, INK, MUTED, RULE, Drawing, chart, quiet_grid


def draw_reliability(found: ByStratum) -> Drawing:
    """Share of all observations inside error bars of each level, before and after, with what is chance."""
    heading, subtitle = (
        "Reliability of error bars of every width",
        "Above the diagonal: too wide. Below: too narrow.",
    )
    figure, axes = chart(heading, subtitle, _strata_height(found), left=0.105)
    quiet_grid(axes)
    levels, reliability = 100.0 * found.reliability_levels, found.measures["reliability"]
    chance = CHANCE * found.measures["reliability_standard_error"]
    low, high = np.maximum(levels - 100.0 * chance, 0.0), np.minimum(levels + 100.0 * chance, 100.0)
    axes.fill_between(levels, low, high, color=BAND, linewidth=0, label="what chance explains", zorder=1)
    axes.plot([0.0, 100.0], [0.0, 100.0], color=INK, linewidth=0.9, linestyle=(0, (4, 2)), zorder=2)
    mark = partial(axes.plot, levels, marker="o", markersize=4.0)
    for before in found.distributions[1:]:
        inside, said = 100.0 * found.measures[f"reliability{before}"], "before recalibration"
        mark(inside, color=MUTED, markerfacecolor="none", linewidth=1.0, label=said, zorder=3)
    name = "after" if found.distributions[1:] else "this run"
    mark(100.0 * reliability, color=ACCENT, linewidth=1.4, label=name, zorder=4)
    axes.set(xlim=(0.0, 100.0), ylim=(0.0, 103.0))
    axes.set_xlabel("level of the error bars [%]")
    axes.set_ylabel("observations inside [%]")
    axes.legend(frameon=False, fontsize=8, loc="lower right", labelcolor=INK)
    outside = np.abs(reliability - found.reliability_levels) > chance
    return Drawing(
        "reliability",
        figure,
        f"Share of observations inside error bars of {outside.size} levels: "
        f"{np.count_nonzero(outside)} are further from the level than chance explains.",
    )


def draw_strata(found: ByStratum) -> Drawing:
    """Share of the observations of each stratum inside the headline error bars, before and after."""
    level = 100.0 * found.level
    heading = f"Where the error bars hold: share inside {level:g} %"
    subtitle = "Right of the line: too wide. Left: too narrow."
    figure, axes = chart(heading, subtitle, _strata_height(found), left=0.255, right=0.975)
    axes.grid(axis="x", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    rows = _rows_of(found)
    reach = 100.0 * found.reach()
    low, high = np.maximum(level - reach, 0.0), np.minimum(level + reach, 100.0)
    axes.barh(rows, high - low, left=low, height=0.72, color=BAND, linewidth=0, zorder=1, label="chance")
    axes.axvline(level, color=INK, linewidth=0.9, linestyle=(0, (4, 2)), zorder=2)
    mark = partial(axes.plot, marker="o", markersize=5.0, linestyle="none")
    for before in found.distributions[1:]:
        mark(
            100.0 * found.inside(before), rows, color=MUTED, markerfacecolor="none", label="before", zorder=3
        )
    name = "after" if found.distributions[1:] else "this run"
    mark(100.0 * found.inside(), rows, color=ACCENT, label=name, zorder=4)
    shown = [found.inside(each) for each in found.distributions]
    left = min(float(low.min()), 100.0 * float(np.min(shown)))
    axes.set(xlim=(max(0.0, left - 3.0), 101.0), ylim=(rows.max() + 0.7, rows.min() - 0.7))
    named = zip(found.kinds, found.names, strict=True)
    axes.set_yticks(rows, ["all" if kind == "all" else name for kind, name in named])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"observations inside their {level:g} % error bars [%]")
    legend = axes.legend(frameon=False, fontsize=8, loc="lower right", ncols=3, labelcolor=INK, borderpad=0.0)
    legend.set_bbox_to_anchor((1.0, 0.985), transform=axes.transAxes)
    shares = zip(found.names, found.inside(), strict=True)
    said = "; ".join(f"{name} {100.0 * share:.0f} per cent" for name, share in shares)
    return Drawing("strata", figure, f"Share inside the {level:g} per cent error bars: {said}.")


def _strata_height(found: ByStratum) -> float:
    """Inches: a row each, and room between kinds."""
    return max(3.6, 1.25 + 0.23 * (float(_rows_of(found).max()) + 1.0))


def _rows_of(found: ByStratum) -> Array:
    """Ordinates of the strata, from the top, with a gap before each kind."""
    new = [
        int(kind in KINDS and kind != before)
        for before, kind in zip(found.kinds, found.kinds[1:], strict=False)
    ]
    return np.arange(len(found.kinds)) + 0.6 * np.cumsum([0, *new])
