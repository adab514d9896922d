"""Charts beside the maps: PIT, reliability, parts of the observations, convergence, scores by time."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array
from cagp_dist.calibration.verification.pit import Histogram, histogram
from cagp_dist.calibration.verification.strata import CHANCE
from cagp_dist.cartography.chart_style import ACCENT, BAND, INK, MUTED, RULE, date_axis, quiet_grid
from cagp_dist.cartography.error_bars import INCHES_PER_NAME, MOST_NAMES, draw_error_bars
from cagp_dist.report.by_stratum import KINDS, ByStratum
from cagp_dist.report.drawing import WIDTH_INCHES, Drawing, chart, title
from cagp_dist.report.published import PublishedRun
from cagp_dist.report.report_tables import ByTime, by_time
from cagp_dist.report.wording import when
from cagp_dist.variables.units import amount, spoken, symbol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# The prior gets an arrow instead of a point when it lies further off than this many ranges of the rest
PRIOR_BEYOND = 0.8
FEWEST_STEPS = 3  # Points of a convergence chart, the prior included; the table of scores says all of fewer
MOST_REGIONS = 6  # Regions whose means over time are drawn
# Room beyond the data, in ranges: for the label of the last value, for the note on the prior
LABEL_ROOM, NOTE_ROOM = 0.2, 0.36


def draw_charts(run: PublishedRun, *, pit_height_inches: float = 3.9) -> list[Drawing]:
    """Draw ``pit``, as tall as the map beside it, and what else the run has."""
    scored = run.calibration
    by_area = None if scored.by_area_is_the_same else histogram(scored.pit, weights=scored.area_weight)
    heading = "Are the error bars right? PIT histogram"
    known = histogram(scored.pit)
    drawings = [_histogram("pit", known, by_area, pit_height_inches, heading, "test points", "observed")]
    if scored.by_stratum is not None:
        drawings.append(draw_reliability(scored.by_stratum))
        if len(scored.by_stratum.names) > 1:
            drawings.append(draw_strata(scored.by_stratum))
    if run.simulation is not None:
        known, heading = histogram(run.simulation.pit), "On fields drawn from the prior: PIT histogram"
        drawings.append(_histogram("simulation", known, None, 4.3, heading, "simulated fields", "true"))
    if len(run.trace["iteration"]) >= FEWEST_STEPS:
        drawings.append(
            draw_convergence(run.trace, run.variable.units, recalibrated=run.calibration.recalibrated)
        )
    if run.biases is not None:
        drawings.append(draw_biases(run))
    if len(run.times) > 1:
        drawings.append(draw_times(by_time(run)))
        if run.regions is not None:
            drawings.append(draw_regions(run))
    return drawings


def _histogram(
    name: str,
    pit: Histogram,
    by_area: Histogram | None,
    height: float,
    heading: str,
    counted: str,
    value: str,
) -> Drawing:
    """Draw PIT values against uniform ones with the 95 % range of each count under independence."""
    subtitle = "U-shape: too narrow. Hump: too wide. Flat: as wide as the errors."
    figure, axes = chart(heading, subtitle, height)
    quiet_grid(axes)
    axes.axhspan(pit.lower, pit.upper, color=BAND, linewidth=0, label="95 % range if uniform", zorder=1)
    widths = 0.94 * np.diff(pit.edges)
    axes.bar(pit.edges[:-1], pit.counts, width=widths, align="edge", color=ACCENT, zorder=2)
    axes.axhline(pit.expected, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), label="uniform", zorder=3)
    top = max(float(pit.counts.max()), float(pit.upper))
    if by_area is not None:
        line = axes.stairs(by_area.counts, by_area.edges, color=INK, linewidth=1.2, zorder=4)
        line.set_label("weighted by area")
        top = max(top, float(by_area.counts.max()))
    axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.22 * top))
    axes.set_xlabel(f"predicted probability of a value below the {value} one")
    axes.set_ylabel(counted)
    axes.legend(frameon=False, fontsize=8, loc="upper center", ncols=3, labelcolor=INK)
    return Drawing(
        name,
        figure,
        f"Histogram of {int(pit.counts.sum()):,} PIT values in {len(pit.counts)} intervals: "
        f"{pit.counts.min():.0f} to {pit.counts.max():.0f} per interval, "
        f"{pit.expected:.0f} expected, {pit.lower:.0f} to {pit.upper:.0f} in the 95 % range.",
    )


def draw_convergence(trace: Mapping[str, Array], units: str = "K", *, recalibrated: bool = False) -> Drawing:
    """RMSE and NLL of the Gaussian distributions after each iteration; iteration 0 is the prior."""
    which = (
        f"Scores at the test points{', not recalibrated' if recalibrated else ''}; iteration 0 is the prior. "
    )
    figure, left, right = _two_panels(
        "Convergence by iteration", f"{which}NLL: negative log likelihood", 0.61
    )
    iteration, rmse, nll = (trace[name] for name in ("iteration", "rmse", "nll"))
    _progress(left, iteration, rmse, labelled("RMSE", units), units)
    _progress(right, iteration, nll, "NLL [nats per point]", None)
    return Drawing(
        "convergence",
        figure,
        f"RMSE from {_plain(rmse[0], units)} {spoken(units)} of the prior to "
        f"{_plain(rmse[-1], units)} after {int(iteration[-1])} iterations; negative log "
        f"likelihood from {nll[0]:.2f} to {nll[-1]:.2f}.",
    )


def draw_times(scored: ByTime) -> Drawing:
    """RMSE and coverage of the 90 % error bar at each time."""
    count, order = len(scored.times), np.argsort(scored.times)
    subtitle = f"{count} times; each point pools the test points of one time"
    figure, left, right = _two_panels("Scores by time", subtitle, 0.605)
    right.axhline(100.0 * scored.level, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
    inside = f"inside the {100.0 * scored.level:.0f} % error bar [%]"
    for axes, values, name in (
        (left, scored.rmse, labelled("RMSE", scored.units)),
        (right, 100.0 * scored.coverage, inside),
    ):
        _over_time(axes, scored.times[order], values[order], heading=name)
    return Drawing(
        "times",
        figure,
        f"RMSE between {_plain(np.nanmin(scored.rmse), scored.units)} and "
        f"{_plain(np.nanmax(scored.rmse), scored.units)} {spoken(scored.units)} over "
        f"{count} times; coverage between {100.0 * np.nanmin(scored.coverage):.0f} and "
        f"{100.0 * np.nanmax(scored.coverage):.0f} per cent.",
    )


def draw_biases(run: PublishedRun) -> Drawing:
    """Largest of the errors that observations share, at the first time, with bars of 90 %."""
    found, units = run.biases, run.variable.units
    assert found is not None
    several = len({*found.columns}) > 1
    names = [
        f"{column}: {name}" if several else name
        for column, name in zip(found.columns, found.names, strict=True)
    ]
    shown = min(len(names), MOST_NAMES)
    which = f"the largest {shown} of {len(names)}" if shown < len(names) else f"{len(names)} groups"
    which += f", {when(run.times[0], run.times)}" if len(run.times) > 1 else ""
    longest = max(map(len, names))
    figure, axes = chart(
        "Errors that observations share",
        f"by {', '.join(dict.fromkeys(found.columns))}; {which}; bars of 90 %",
        1.2 + INCHES_PER_NAME * shown,
        left=min(0.06 + 0.011 * longest, 0.4),
    )
    draw_error_bars(axes, names, found.mean[0], found.std[0], labelled("error", units))
    low, high = found.mean[0].min(), found.mean[0].max()
    return Drawing(
        "biases",
        figure,
        f"Errors of {len(names)} groups of observations, between {_plain(low, units)} and "
        f"{_plain(high, units)} {spoken(units)}.",
    )


def draw_regions(run: PublishedRun) -> Drawing:
    """Means over up to six regions at each time, with their error bars, a panel for each."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    regions = run.regions
    assert regions is not None
    shown = min(len(regions.names), MOST_REGIONS)
    rows, height = -(-shown // 2), 0.8 + 1.32 * -(-shown // 2)
    figure = Figure(figsize=(WIDTH_INCHES, height))
    which = f"the first {shown} of {len(regions.names)}" if shown < len(regions.names) else "one panel each"
    title(figure, "Regions over time", f"{len(run.times)} times; {which}, each with its own scale")
    order = np.argsort(run.times)
    for index in range(shown):
        row, column = divmod(index, 2)
        axes = figure.add_axes(
            (0.11 + 0.5 * column, (0.44 + 1.32 * (rows - 1 - row)) / height, 0.37, 0.86 / height)
        )
        mean, std = regions.mean[order, index], regions.std[order, index]
        axes.fill_between(run.times[order], mean - std, mean + std, color=BAND, linewidth=0, zorder=1)
        heading = labelled(regions.names[index], run.variable.units)
        _over_time(axes, run.times[order], mean, heading=heading, shows_offset=row == rows - 1)
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.ticklabel_format(axis="y", useOffset=False)
    units = run.variable.units
    said = ", ".join(
        f"{name} between {_plain(mean.min(), units)} and {_plain(mean.max(), units)}"
        for name, mean in zip(regions.names[:shown], regions.mean.T, strict=False)
    )
    return Drawing("regions", figure, f"Means over regions in {spoken(run.variable.units)}: {said}.")


def _two_panels(heading: str, subtitle: str, second: float) -> "tuple[Figure, Axes, Axes]":
    """Figure with two pairs of axes side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, 3.1))
    title(figure, heading, subtitle)
    left, right = (figure.add_axes((start, 0.145, 0.36, 0.60)) for start in (0.095, second))
    return figure, left, right


def _over_time(
    axes: "Axes", times: NDArray[np.datetime64], values: Array, *, heading: str, shows_offset: bool = True
) -> None:
    """Draw one line over ascending times, with a mark at each where there are few."""
    quiet_grid(axes, heading)
    marker = "o" if len(times) <= 60 else ""
    axes.plot(times, values, color=ACCENT, linewidth=1.3, marker=marker, markersize=3.2)
    date_axis(axes, fewest=2, most=5, show_offset=shows_offset)


def labelled(name: str, units: str) -> str:
    """Name of a quantity with its unit in brackets, if it has one."""
    return f"{name} [{symbol(units)}]" if symbol(units) else name


def _plain(value: float, units: str) -> str:
    return f"{value:.2f}" if units == "K" else f"{value:.3g}"


def window(values: Array) -> tuple[float, float, int]:
    """Limits of the ordinate; a prior, the first, that is far off is above (1) or below them (-1)."""
    rest = values[1:] if len(values) > 1 else values
    low, high = float(rest.min()), float(rest.max())
    span = max(high - low, 1e-3 * max(abs(high), 1e-6))
    beyond = int(values[0] > high + PRIOR_BEYOND * span) - int(values[0] < low - PRIOR_BEYOND * span)
    if beyond == 0:
        low, high = min(low, float(values[0])), max(high, float(values[0]))
        span = max(span, high - low)
    return (
        low - span * (NOTE_ROOM if beyond < 0 else LABEL_ROOM),
        high + span * (NOTE_ROOM if beyond > 0 else LABEL_ROOM),
        beyond,
    )


def _progress(axes: "Axes", iteration: Array, values: Array, heading: str, units: str | None) -> None:
    """One line of scores; a prior that is off the scale is named beside an arrow that points to it."""
    from matplotlib.ticker import MaxNLocator

    quiet_grid(axes, heading)
    low, high, beyond = window(values)
    shown = slice(1 if beyond else 0, None)
    marker = "o" if len(values) <= 40 else ""
    axes.plot(iteration[shown], values[shown], color=ACCENT, marker=marker, markersize=3.6)
    reach = max(float(iteration[-1]), 1.0)
    axes.set(ylim=(low, high), xlim=(-0.05 * reach, 1.08 * reach))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("iteration", labelpad=2)
    if beyond:
        edge = high if beyond > 0 else low
        inner = edge - beyond * 0.17 * (high - low)
        arrow = {"arrowstyle": "-|>", "color": MUTED, "linewidth": 1.0, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", xy=(iteration[0], edge), xytext=(iteration[0], inner), arrowprops=arrow)
        axes.annotate(
            f"prior: {_number(values[0], units, 2)}",
            (iteration[0], 0.5 * (edge + inner)),
            xytext=(6, 0),
            textcoords="offset points",
            fontsize=8,
            color=MUTED,
            va="center",
        )
    rising = len(values) > 1 and values[-1] > values[-2]
    axes.annotate(
        _number(values[-1], units, 3),
        (iteration[-1], values[-1]),
        xytext=(5, 6 if rising else -6),
        textcoords="offset points",
        ha="right",
        va="bottom" if rising else "top",
        fontsize=8,
        color=INK,
    )


def _number(value: float, units: str | None, digits: int) -> str:
    """Write a score; one without a unit has so many decimals."""
    return f"{value:.{digits}f}" if units is None else amount(value, units, digits)


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
