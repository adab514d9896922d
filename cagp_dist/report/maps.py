"""Maps of the posterior mean, its standard deviation, and observed minus predicted."""

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.cartography.basemap import dots, empty_map, marks, shade
from cagp_dist.cartography.chart_style import MUTED, PANEL
from cagp_dist.cartography.colour_scale import DIFFERENCES, ERROR_BARS, FIELD, ColourScale, scale_of
from cagp_dist.cartography.frame import Frame, PlaneFrame, frame_of, frame_of_cells, frame_of_plane
from cagp_dist.report.drawing import WIDTH_INCHES, Drawing, title
from cagp_dist.report.published import MeanMap, PublishedRun, TestPoints
from cagp_dist.report.wording import at_depth, listed, when
from cagp_dist.variables.units import spoken

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.colorbar import Colorbar
    from matplotlib.figure import Figure
    from matplotlib.patches import Polygon


ERRORS = ("std", "computational")  # Maps of error bars, which may be the same at all times

MOST_MARKED = 2_000  # observations on the map of error bars; more hide it
ZERO_CELSIUS_KELVIN = 273.15
TALLEST_MAP_INCHES = 4.3
MOST_LETTERS = 66  # of a line above a map
# Room around the map, inches: labels of the parallels, edge, headline, colour bar
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.42, 0.16, 0.70, 0.98


def map_scales(run: PublishedRun, values: Mapping[str, Array]) -> dict[str, ColourScale]:
    """Colours of the maps by values of the times that are drawn; no ``computational`` where it is nothing."""
    variable, unit = run.variable, spoken(run.variable.units)
    label = f"{variable.long_name} [{unit}]" if unit else variable.long_name
    if variable.is_temperature:
        label = "degrees Celsius (above: kelvin)"
    redder = f"{unit} (red: {variable.comparatives[0]} than predicted)".strip()
    unfinished = np.nan_to_num(values.get("computational", np.zeros(1))).any()
    bars = ERRORS if unfinished else ERRORS[:1]
    return {
        "mean": scale_of(shown_mean(run, values["mean"]), colours=FIELD, label=label),
        "residual": scale_of(values["residual"], colours=DIFFERENCES, label=redder),
        **{
            name: scale_of(values[name], colours=ERROR_BARS, label=unit, transformed=run.transformed)
            for name in bars
        },
    }


def shown_mean(run: PublishedRun, mean: Array) -> Array:
    """Means in the unit in which they are drawn: degrees Celsius for temperatures."""
    return mean - ZERO_CELSIUS_KELVIN if run.variable.is_temperature else mean


def draw_maps(
    run: PublishedRun, scales: Mapping[str, ColourScale] | None = None, *, varying: Container[str] = ERRORS
) -> list[Drawing]:
    """Draw the maps of the first time: mean, std and residual; computational and scale if there.

    ``scales`` are those of all times; ``varying`` says which error bars are not one map for all of these.
    """
    points, grid, frame = run.points, run.grid, map_frame(run)
    stamp = f"{when(run.times[0], run.times)}{at_depth(run)}".removeprefix(", ")
    where = "at the test points" if not grid else "means over cells" if grid.of_cells else "on the map grid"
    mean, std = (grid.mean, grid.std) if grid else (points.mean[0], points.std[0])
    unfinished = grid.computational_std if grid else points.computational_std
    mean_grid: MeanMap | None = grid
    if run.fine is not None:
        mean_grid, mean = run.fine, run.fine.mean
    variable, noun = run.variable, run.variable.noun
    observed, residual = points.residuals(0)
    here = None if unfinished is None else unfinished if grid else unfinished[0]
    known = {"mean": mean, "std": std, "residual": residual}
    chosen = scales or map_scales(run, known if here is None else known | {"computational": here})

    used = _marked(run, frame, std_varies="std" in varying)

    def drawn(
        name: str, values: Array, heading: str, subtitle: str, said: str, on: MeanMap | None, at: TestPoints
    ) -> Drawing:
        figure, axes, rim = _blank(frame, heading, subtitle, _region_and_source(run, frame))
        shown = _field(axes, frame, rim, at, on, values, chosen[name])
        if name == "std" and used is not None:
            marks(axes, frame, *used)
        celsius = name == "mean" and variable.is_temperature
        _colour_bar(figure, shown, chosen[name], kelvin_above=celsius)
        return Drawing(name, figure, said)

    alike = stamp if len(run.times) == 1 else f"the same at all {len(run.times)} times"
    std_stamp, unfinished_stamp = (stamp if name in varying else alike for name in ERRORS)
    shown, spread = shown_mean(run, mean), f"{value_range(mean, variable.units, 1)}."
    if variable.is_temperature:
        spread = f"{np.nanmin(shown):.1f} to {np.nanmax(shown):.1f} degrees Celsius."
    drawings = [
        drawn(
            "mean",
            shown,
            f"{noun[:1].upper()}{noun[1:]}: posterior mean",
            listed(stamp, where),
            f"{listed(f'Map of the posterior mean {noun}', stamp)}: {spread}",
            mean_grid,
            points,
        ),
        drawn(
            "std",
            std,
            "Error bar: posterior standard deviation",
            f"{listed(std_stamp, where)}{'' if used is None else '; points: observations'}",
            f"{listed('Map of the posterior standard deviation', std_stamp)}: "
            f"{value_range(std, variable.units, 2)}.",
            grid,
            points,
        ),
    ]
    if here is not None and "computational" in chosen:
        heading = "Unfinished computation in the error bar"
        about = listed(
            "Map of the part of the standard deviation that is unfinished computation", unfinished_stamp
        )
        said = f"{about}: at most {value_range(here, variable.units, 2)}."
        subtitle = listed(unfinished_stamp, where, "at most")
        drawings.append(drawn("computational", here, heading, subtitle, said, grid, points))
    drawings += _scale_map(run, frame, stamp)
    stamp = when(run.times[0], run.times)  # of all depths
    subtitle = listed(stamp, f"at {residual.size:,} test points the solver did not see")
    about = listed(f"Map of observed minus predicted {noun} at the test points", stamp)
    said = f"{about}: {value_range(residual, variable.units, 1)}."
    if not residual.size:
        subtitle, said = listed(stamp, "no test point has a measured value"), f"{about}: of none."
    heading = "Observed minus predicted"
    return [*drawings, drawn("residual", residual, heading, subtitle, said, None, observed)]


def _scale_map(run: PublishedRun, frame: Frame | PlaneFrame, stamp: str) -> list[Drawing]:
    """Draw what the error bars were multiplied with, on a logarithmic scale; nothing if there is none."""
    grid, of_points = run.grid, run.points.local_scale
    factor = None if of_points is None else of_points[0]
    if grid is not None and grid.local_scale is not None:
        factor, where = grid.local_scale, "on the map grid"
    else:
        grid, where = None, "at the test points"
    if factor is None:
        return []
    doublings = np.log2(factor)
    inner = float(np.ceil(np.nanpercentile(np.abs(doublings), 98.0))) or 1.0
    beyond = float(np.nanmax(np.abs(doublings))) > inner
    scale = ColourScale(
        "RdBu_r", -inner, inner, "both" if beyond else "neither", "times the error bar before (red: wider)"
    )
    figure, axes, rim = _blank(
        frame,
        "Local scale: how recalibration changed the error bars",
        listed(stamp, where),
        _region_and_source(run, frame),
    )
    bar = _colour_bar(figure, _field(axes, frame, rim, run.points, grid, doublings, scale), scale)
    ticks = np.arange(-inner, inner + 1.0)
    bar.set_ticks(
        ticks.tolist(), labels=[f"1/{2.0**-tick:g}" if tick < 0 else f"{2.0**tick:g}" for tick in ticks]
    )
    low, high = float(np.nanmin(factor)), float(np.nanmax(factor))
    about = listed("Map of the local scale of the error bars", stamp)
    said = f"{about}: {low:.2g} to {high:.2g} times."
    return [Drawing("scale", figure, said)]


def _marked(run: PublishedRun, frame: Frame | PlaneFrame, *, std_varies: bool) -> tuple[Array, Array] | None:
    """Longitudes and latitudes of observations that the map of error bars shows; those of all its times."""
    if run.grid is None or run.used is None or (std_varies and len(run.times) > 1):
        return None
    held = frame.holds(*run.used)
    return (run.used[0][held], run.used[1][held]) if 0 < held.sum() <= MOST_MARKED else None


def value_range(values: Array, units: str, digits: int) -> str:
    """Smallest and largest value with their unit: kelvin with so many decimals, else four digits."""
    values = values[np.isfinite(values)]  # cells may be blank
    if not values.size:
        return "none"
    form = f".{digits}f" if units == "K" else ".4g"
    return f"{values.min():{form}} to {values.max():{form}} {spoken(units)}".strip()


def map_frame(run: PublishedRun) -> Frame | PlaneFrame:
    """Frame of all maps of a run: grid cells to their edges and all test points, or these with a margin."""
    grid, points = run.grid, run.points
    longitude, latitude = points.longitude_degrees, points.latitude_degrees
    if not run.space.has_latitudes:
        cells = None if grid is None else (grid.longitude_degrees, grid.latitude_degrees)
        return frame_of_plane(longitude, latitude, cells=cells, unit=run.space.unit)
    if grid is None:
        return frame_of(longitude, latitude)
    return frame_of_cells(grid.longitude_degrees, grid.latitude_degrees, longitude, latitude)


def drawing_order(values: Array, scale: ColourScale) -> Indices:
    """Order in which dots are drawn: those in the middle of the scale first, the others on top of them."""
    return np.argsort(np.abs(values - 0.5 * (scale.low + scale.high)))


def _region_and_source(run: PublishedRun, frame: Frame | PlaneFrame) -> str:
    """Say in a line which region a map shows, and where the observations are from."""
    source = str(run.attributes.table("provenance").get("source", ""))
    region = frame.text
    room = MOST_LETTERS - len(region)
    if len(source) > room:  # of a path, its end tells files apart
        source = f"\N{HORIZONTAL ELLIPSIS}{source[1 - room :]}"
    return "; ".join(filter(None, [region, source and f"observations from {source}"]))


def _blank(frame: Frame | PlaneFrame, heading: str, *lines: str) -> "tuple[Figure, Axes, Polygon]":
    """Figure with a headline and an empty map of the right shape, and the rim of the map."""
    from matplotlib.figure import Figure

    width = WIDTH_INCHES - _LEFT - _RIGHT
    height = width * frame.height
    if height > TALLEST_MAP_INCHES:
        width, height = width * TALLEST_MAP_INCHES / height, TALLEST_MAP_INCHES
    tall = height + _TOP + _BOTTOM
    figure = Figure(figsize=(WIDTH_INCHES, tall))
    title(figure, heading, *lines)
    start = _LEFT + 0.5 * (WIDTH_INCHES - _LEFT - _RIGHT - width)
    axes = figure.add_axes((start / WIDTH_INCHES, _BOTTOM / tall, width / WIDTH_INCHES, height / tall))
    return figure, axes, empty_map(axes, frame, color=MUTED, aspect="auto")


def _field(
    axes: "Axes",
    frame: Frame | PlaneFrame,
    rim: "Polygon",
    points: TestPoints,
    grid: MeanMap | None,
    values: Array,
    scale: ColourScale,
) -> "ScalarMappable":
    """Shade a gridded field, or dot the test points if there is no grid, and lay the coastlines on it."""
    from matplotlib.colors import Normalize

    limits = Normalize(scale.low, scale.high)
    if grid is not None:
        return shade(axes, frame, rim, grid, values, colours=scale.colours, norm=limits)
    # A fixed pale ground under diverging dots: on a dark page, too, small residuals are the quiet ones.
    axes.fill(*frame.outline(), facecolor=PANEL, edgecolor="none", zorder=0)
    furthest_last = drawing_order(values, scale)
    return dots(
        axes,
        frame,
        rim,
        points.longitude_degrees[furthest_last],
        points.latitude_degrees[furthest_last],
        values[furthest_last],
        colours=scale.colours,
        norm=limits,
    )


def _colour_bar(
    figure: "Figure", shown: "ScalarMappable", scale: ColourScale, *, kelvin_above: bool = False
) -> "Colorbar":
    """Horizontal colour bar under the map; temperatures carry kelvin on its upper side."""
    tall = figure.get_size_inches()[1]
    bar_axes = figure.add_axes((0.16, 0.40 / tall, 0.68, 0.11 / tall))
    bar = figure.colorbar(shown, cax=bar_axes, orientation="horizontal", extend=scale.extend)
    bar.outline.set_linewidth(0.5)
    bar.ax.tick_params(length=2.5, pad=2)
    bar.set_label(scale.label, fontsize=8, labelpad=2)
    if kelvin_above:
        kelvin = (lambda celsius: celsius + ZERO_CELSIUS_KELVIN), (lambda of: of - ZERO_CELSIUS_KELVIN)
        upper = bar.ax.secondary_xaxis("top", functions=kelvin)
        upper.tick_params(length=2.5, pad=1, labelsize=7, labelcolor=MUTED)
    return bar
