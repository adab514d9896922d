"""Maps of variables of a result: grids shaded and places as dots, with coastlines and observations."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array
from cagp_dist.cartography.basemap import borders, dots, empty_map, lakes, marks, shade
from cagp_dist.cartography.chart_style import MUTED, drawing_style
from cagp_dist.cartography.colour_scale import ERROR_BARS, FIELD, ColourScale, scale_of
from cagp_dist.cartography.frame import Frame, PlaneFrame, frame_of, frame_of_cells, frame_of_plane
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.axes import Horizontal
from cagp_dist.fields.observed_objects import ObservedObject
from cagp_dist.kernels import DEPTH
from cagp_dist.kriging.result_model import seen_in
from cagp_dist.text import are_days
from cagp_dist.variables.units import symbol

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

WIDTH_INCHES = 6.4
LETTERS_PER_INCH = 13
BESIDE_ASPECT = 1.6  # Maps that are less wide, in units of their height, stand side by side
BESIDE_INCHES = 0.6  # for the latitudes, left of a panel
PANELS_ACROSS = 3  # of small multiples
MOST_COLOURED = 2000  # observations that are drawn in the colours of the map; more hide it
ELLIPSE_POINTS = 26.0  # of the shape of an anisotropic kernel, in a corner of the map


@dataclass(frozen=True, eq=False)
class Axes2D:
    """The axes of a grid, as a map is shaded from them."""

    latitude_degrees: Array
    longitude_degrees: Array


def maps_of(
    dataset: xr.Dataset,
    where: Horizontal,
    names: Sequence[str],
    fields: Sequence[int],
    *,
    observed: Mapping[str, ObservedObject] | None = None,
    ax: "Axes | None" = None,
    scales: Mapping[str, ColourScale] | None = None,
    cmap: str | None = None,
    with_borders: bool = False,
    with_lakes: bool = False,
) -> "Figure":
    """Draw a map of each variable and field; those of a variable have one scale of colours.

    ``cmap`` has the colours of the first variable.
    """
    frame = frame_around(where)
    with drawing_style():
        figure, panels, width = _panels(frame, len(names), len(fields), ax)
        for number, name in enumerate(names):
            own = panels[number * len(fields) : (number + 1) * len(fields)]
            drawn = [one_field(dataset[name], where, field) for field in fields]
            every = np.concatenate([np.ravel(values.values) for values, _ in drawn]).astype(np.float64)
            scale = (scales or {}).get(name)
            scale = scale or scale_of(
                every, colours=_colours(dataset[name]), transformed=is_of_transformed(dataset, name)
            )
            if cmap is not None and name == names[0]:
                scale = replace(scale, colours=cmap)
            label, more = str(dataset[name].attrs.get("long_name", name)), ""
            for panel, field, (values, stamp) in zip(own, fields, drawn, strict=True):
                shown = draw_map(panel, frame, where, values, scale)
                if with_borders:
                    borders(panel, frame)
                if with_lakes:
                    lakes(panel, frame)
                if observed:
                    none = draw_observed(panel, frame, observed[name], dataset[name], where, field, scale)
                    stamp = "; ".join(filter(None, [stamp, none]))
                heading = stamp
                if len(fields) == 1:
                    heading, more = map_title(label, stamp, round(LETTERS_PER_INCH * width))
                panel.set_title(heading, fontsize=9, loc="left")
            if name == "mean" and "anisotropy_ratio" in dataset.attrs:
                for ratio, azimuth in _ellipses(dataset):
                    _draw_ellipse(own[0], ratio, azimuth)
            _colour_bar(figure, own, shown, scale, dataset[name], label if len(fields) > 1 else "", more)
        if ax is None and (about := _region_and_source(frame, dataset)):
            _draw_above(panels[0], about)
    return figure


def map_title(label: str, stamp: str, letters: int) -> tuple[str, str]:
    """Title of a map, in lines of so many letters, and what of a long name goes to its colour bar instead."""
    whole = ", ".join(filter(None, [label, stamp]))
    if len(whole) <= letters:
        return whole, ""
    name, _, more = label.partition(", ")
    short = ", ".join(filter(None, [name, stamp]))
    lines = [short] if len(short) <= letters else [name, stamp]
    return "\n".join(in_lines(line, letters) for line in lines if line), more


_NUMBER = re.compile(r"(?<![\w.,:-])([-−]?\d+(?:[.,:]\d+)*(?:e[-+]?\d+)?) (?=[^\W\d]|[%°])")
"""A number before a unit; also a time of day before UTC, but no date before a time."""


def in_lines(text: str, letters: int) -> str:
    """Write a text in lines of so many letters, where no number is parted from its unit."""
    held = _NUMBER.sub("\\1\u00a0", re.sub(r" (?=\S*[⁻¹²³])", "\u00a0", text))
    return fill(held, letters)


def _region_and_source(frame: Frame | PlaneFrame, dataset: xr.Dataset) -> str:
    """Say on a line each which region a map shows, and what it was made from."""
    _, _, source = str(dataset.attrs.get("source", "")).partition(" of ")
    return "\n".join(filter(None, [frame.text, source]))


def _draw_above(panel: "Axes", text: str) -> None:
    """Write a quiet text above the title of a map, at its left edge."""
    title_points = 6.0 + 11.0 * (1 + panel.get_title(loc="left").count("\n"))
    panel.annotate(
        text,
        (0.0, 1.0),
        xycoords="axes fraction",
        xytext=(0.0, title_points + 1.0),
        textcoords="offset points",
        va="bottom",
        fontsize=7.5,
        color=MUTED,
    )


def _panels(
    frame: Frame | PlaneFrame, variables: int, fields: int, ax: "Axes | None"
) -> "tuple[Figure, list[Axes], float]":
    """Make axes for maps of each variable, those of its fields after each other; and inches of a map."""
    import matplotlib.pyplot as plt

    if ax is not None:
        if variables * fields != 1:
            raise ArgumentError(
                f"ax is one pair of axes for {variables * fields} maps; expected it for one: name the "
                'variable, plot("mean", ax=ax), and the time of several.',
                key="one-axes",
            )
        figure = own_figure(ax)
        return figure, [ax], ax.get_window_extent().width / figure.dpi
    aspect = 1.0 / frame.height
    if fields > 1:
        across = fields if fields <= PANELS_ACROSS else min(-(-fields // 2), PANELS_ACROSS)
        whole = 1.25 * WIDTH_INCHES
        rows = variables * -(-fields // across)
    else:
        across = 2 if aspect < BESIDE_ASPECT and variables > 1 else 1
        rows = -(-variables // across)
        whole = WIDTH_INCHES if across == 2 or aspect > BESIDE_ASPECT else 0.65 * WIDTH_INCHES
    width, rows_of_each = whole / across, -(-fields // across)
    tall = (width - BESIDE_INCHES) / aspect + (0.5 + 0.75 / rows_of_each if fields > 1 else 1.25)
    figure, grid = plt.subplots(
        rows, across, figsize=(whole, rows * tall), squeeze=False, layout="compressed"
    )
    room = across * rows_of_each if fields > 1 else 1  # panels that a variable could have
    panels = []
    for number, panel in enumerate(grid.flat):
        if number % room < fields and number // room < variables:
            panels.append(panel)
        else:
            panel.remove()
    return figure, panels, width - BESIDE_INCHES


def own_figure(ax: "Axes") -> "Figure":
    """Give the figure of axes."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def draw_map(
    panel: "Axes", frame: Frame | PlaneFrame, where: Horizontal, values: xr.DataArray, scale: ColourScale
) -> "ScalarMappable":
    """Draw one map: grids are shaded, places are dots."""
    from matplotlib.colors import Normalize

    norm = Normalize(scale.low, scale.high)
    if isinstance(frame, PlaneFrame):
        return _draw_plane(panel, frame, where, values, scale.colours, norm)
    rim = empty_map(panel, frame, color=MUTED)
    if where.axes is not None:
        grid = Axes2D(*where.axes)
        return shade(panel, frame, rim, grid, grid_values(values, where), colours=scale.colours, norm=norm)
    latitude, longitude = where.points
    numbers = np.asarray(values.values, dtype=np.float64).ravel()
    there = np.isfinite(numbers)
    return dots(
        panel,
        frame,
        rim,
        longitude[there],
        latitude[there],
        numbers[there],
        colours=scale.colours,
        norm=norm,
    )


def _draw_plane(
    panel: "Axes",
    frame: PlaneFrame,
    where: Horizontal,
    values: xr.DataArray,
    colours: str,
    norm: "Normalize",
) -> "ScalarMappable":
    """Draw one map of a plane, with x and y at the rim."""
    shown: ScalarMappable
    if where.axes is not None:
        x, y = frame.project(*where.axes[::-1])
        shown = panel.pcolormesh(
            x, y, grid_values(values, where), cmap=colours, norm=norm, shading="nearest", rasterized=True
        )
    else:
        north, east = where.points
        numbers = np.asarray(values.values, dtype=np.float64).ravel()
        there = np.isfinite(numbers)
        shown = marks(panel, frame, east[there], north[there], numbers[there], colours=colours, norm=norm)
    (left, right), (bottom, top) = (
        np.multiply(frame.scale, ends) for ends in ((frame.left, frame.right), (frame.bottom, frame.top))
    )
    panel.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    panel.ticklabel_format(useOffset=False, style="plain")
    panel.locator_params(axis="x", nbins=4)  # seven digits each
    panel.tick_params(labelsize=7, length=2.5, color=MUTED)
    for label, axis in ((panel.set_xlabel, where.east), (panel.set_ylabel, where.north)):
        unit = f" [{frame.unit}]" if frame.unit else ""
        label(f"{axis.attrs.get('long_name', '')}{unit}".strip(), fontsize=8)
    return shown


def draw_observed(
    panel: "Axes",
    frame: Frame | PlaneFrame,
    observed: ObservedObject,
    values: xr.DataArray,
    where: Horizontal,
    field: int,
    scale: ColourScale,
) -> str:
    """Draw observations over a map, and say where there are none."""
    from matplotlib.colors import Normalize

    seen = seen_in(observed, values, where, field)
    seen = seen.only(frame.holds(seen.east, seen.north))
    if not seen.values.size:
        return "no observation"
    if str(values.name).endswith(("mean", "median")) and seen.values.size <= MOST_COLOURED:
        norm = Normalize(scale.low, scale.high)
        marks(
            panel,
            frame,
            seen.east,
            seen.north,
            seen.values,
            colours=scale.colours,
            norm=norm,
        )
    else:
        marks(panel, frame, seen.east, seen.north)
    return ""


def _ellipses(dataset: xr.Dataset) -> list[tuple[float, float]]:
    """Ratios and azimuths that a result says."""
    names = "anisotropy_ratio", "anisotropy_azimuth_degrees"
    return list(zip(*(np.atleast_1d(dataset.attrs[name]).tolist() for name in names), strict=True))


def _draw_ellipse(panel: "Axes", ratio: float, azimuth: float) -> None:
    """Draw the shape within which the field is alike, in a corner; its size says nothing."""
    from matplotlib.offsetbox import AnchoredOffsetbox, DrawingArea, TextArea, VPacker
    from matplotlib.patches import Ellipse

    room = DrawingArea(ELLIPSE_POINTS, ELLIPSE_POINTS)
    middle, major = 0.5 * ELLIPSE_POINTS, 0.95 * ELLIPSE_POINTS
    # angles of patches count anticlockwise from east
    shape = Ellipse((middle, middle), major, major / ratio, angle=90.0 - azimuth)
    shape.set(facecolor="white", edgecolor=MUTED, linewidth=1.2)
    room.add_artist(shape)
    words = TextArea(f"{ratio:.1f} : 1", textprops={"fontsize": 7, "color": MUTED})
    packed = VPacker(children=[room, words], align="center", pad=0.0, sep=1.0)
    corner = AnchoredOffsetbox("lower left", child=packed, frameon=True, pad=0.2, borderpad=0.4)
    corner.patch.set(edgecolor=MUTED, linewidth=0.5, alpha=0.9)
    panel.add_artist(corner)


def _colour_bar(
    figure: "Figure",
    panels: "list[Axes]",
    shown: "ScalarMappable",
    scale: ColourScale,
    values: xr.DataArray,
    label: str,
    more: str,
) -> None:
    """Draw the colour bar of the maps of one variable; probabilities and shares in per cent.

    ``label`` is the name of the variable where titles do not say it, ``more`` the part of it that they lack.
    """
    from matplotlib.ticker import PercentFormatter

    several = len(panels) > 1
    bar = figure.colorbar(
        shown,
        ax=panels if several else panels[0],
        orientation="horizontal",
        shrink=0.5 if several else 0.8,
        aspect=50 if several else 35,
        pad=0.04 if several else 0.06,
        extend=scale.extend,
        format=PercentFormatter(1.0, decimals=0) if _is_part(values) else None,
    )
    bar.outline.set_linewidth(0.5)
    bar.ax.tick_params(labelsize=8, length=2.5)
    unit = symbol(str(values.attrs.get("units", "")))
    said = f"{label} [{unit}]" if label and unit else label or unit
    bar.set_label(", ".join(filter(None, [said, more])), fontsize=8)


def _is_part(values: xr.DataArray) -> bool:
    """Whether values are probabilities, or the share of a variance, whatever they are called."""
    said = str(values.attrs.get("long_name", ""))
    return values.name == "computational_share" or (
        values.attrs.get("units") == "1" and said.startswith("probability ")
    )


def _colours(values: xr.DataArray) -> str:
    """Colours of a variable of a result, whatever stands before its name in runs; samples have the mean's."""
    return FIELD if "sample" in values.dims or str(values.name).endswith("mean") else ERROR_BARS


def is_of_transformed(dataset: xr.Dataset, name: str) -> bool:
    """Whether a variable of a result is a standard deviation, or a part of one, of transformed values."""
    return "transform" in dataset.attrs and name.endswith(("std", "std_computational"))


def grid_values(values: xr.DataArray, where: Horizontal) -> Array:
    """Values of a grid, latitude by latitude."""
    numbers = np.asarray(values.values, dtype=np.float64)
    return numbers if where.dims[0] in where.north.dims else numbers.T


def frame_around(where: Horizontal) -> Frame | PlaneFrame:
    """Choose the frame of a grid, to the edges of its cells, or of places with a margin."""
    if where.points[0].size == 0 or (where.axes is not None and min(map(len, where.axes)) == 0):
        raise ArgumentError(
            "there are no places to draw. If a region was cut out by sel(latitude=slice(...)), its limits go "
            "in the order of the coordinate: from north to south where that descends.",
            key="no-places-to-draw",
        )
    if not where.space.has_latitudes:
        north, east = where.points
        cells = None if where.axes is None else where.axes[::-1]
        return frame_of_plane(east, north, cells=cells, unit=where.space.unit)
    if where.axes is None:
        return frame_of(*where.points[::-1])
    north, east = where.axes
    return frame_of_cells(east, north)


def one_field(values: xr.DataArray, where: Horizontal, field: int) -> tuple[xr.DataArray, str]:
    """Give the values of one field, in the order of the places, and which it is."""
    stamps = []
    for name, chosen in values.coords.items():  # of a dimension that was chosen before
        if chosen.ndim == 0 and (chosen.dtype.kind == "M" or name == DEPTH):
            stamps.append(stamp_of(chosen.expand_dims(str(name)), 0))
    for dim in [dim for dim in values.dims if str(dim) not in where.dims]:
        if not -values.sizes[dim] <= field < values.sizes[dim]:
            raise ArgumentError(
                f"field is {field}; {str(dim)!r} has {values.sizes[dim]} entries.", key="field-number"
            )
        if dim in values.coords:
            stamps.append(stamp_of(values[dim], field))
        values = values.isel({dim: field})
    return values.transpose(*where.dims), ", ".join(stamps)


def stamp_of(axis: xr.DataArray, at: int) -> str:
    """Write an entry of a coordinate; of times the day, and the clock in UTC unless all are of midnight."""
    moment = axis.values[at]
    if axis.dtype.kind == "f":
        return f"{axis.name} {moment:g} {symbol(str(axis.attrs.get('units', '')))}".rstrip()
    if axis.dtype.kind != "M":
        return f"{axis.name} {moment}"
    if np.isnat(moment):
        return ""
    if are_days(axis.values):
        return str(np.datetime_as_string(moment, unit="D"))
    return f"{' '.join(str(np.datetime_as_string(moment, unit='m')).split('T'))} UTC"
