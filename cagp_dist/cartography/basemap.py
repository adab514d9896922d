"""An empty map with its rim, parallels and meridians, and what is laid on it: fields, dots and coastlines."""

from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.cartography.frame import Frame, PlaneFrame, coastlines
from cagp_dist.cartography.raster import GridAxes, resample
from cagp_dist.text import degrees_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.colors import Normalize
    from matplotlib.image import AxesImage
    from matplotlib.patches import Polygon

RASTER_WIDTH = 1200  # pixels across a shaded map
WIDE_DEGREES = 120.0  # width of maps above which coastlines lie close together, and are thinner


def _ticks(axes: "Axes", frame: PlaneFrame, *, color: str) -> None:
    """Write x and y at the lower and left rim of a map of a plane, and their unit."""
    from matplotlib.ticker import MaxNLocator

    left, right, bottom, top = frame.extent()
    label = partial(axes.annotate, textcoords="offset points", fontsize=7, color=color, annotation_clip=False)
    for x in MaxNLocator(5).tick_values(left, right):
        if left <= x <= right:
            label(f"{x:.10g}", (x, bottom), xytext=(0, -4), ha="center", va="top")
    for y in MaxNLocator(5).tick_values(bottom, top):
        if bottom <= y <= top:
            label(f"{y:.10g}", (left, y), xytext=(-4, 0), ha="right", va="center", rotation=90)
    said = f"x, y in {frame.unit}" if frame.unit else "x, y"
    label(said, (right, top), xytext=(0, 3), ha="right", va="bottom")


def graticule(axes: "Axes", frame: Frame, *, color: str) -> None:
    """Draw parallels and meridians with their labels at the left and lower rim."""
    along = np.linspace(0.0, 1.0, 61)
    label = partial(axes.annotate, textcoords="offset points", fontsize=7, color=color, annotation_clip=False)
    for latitude in frame.parallels():
        x, y = frame.projection.forward(frame.west + (frame.east - frame.west) * along, np.full(61, latitude))
        axes.plot(x, y, color=color, linewidth=0.35, alpha=0.55, zorder=3)
        name = degrees_label(float(latitude), axis="latitude")
        label(name, (x[0], y[0]), xytext=(-4, 0), ha="right", va="center")
    for offset in frame.meridians():
        x, y = frame.projection.forward(
            np.full(61, offset), frame.south + (frame.north - frame.south) * along
        )
        axes.plot(x, y, color=color, linewidth=0.35, alpha=0.55, zorder=3)
        name = degrees_label(float(offset) + frame.centre_degrees, axis="longitude")
        label(name, (x[0], y[0]), xytext=(0, -4), ha="center", va="top")


def empty_map(
    axes: "Axes", frame: Frame | PlaneFrame, *, color: str, aspect: Literal["auto"] | None = None
) -> "Polygon":
    """Turn axes into an empty map; returns its rim, for clipping. Aspect "auto": they have its shape."""
    left, right, bottom, top = frame.extent()
    axes.set(xlim=(left, right), ylim=(bottom, top), xticks=[], yticks=[], aspect=aspect or frame.aspect)
    axes.set_frame_on(False)
    axes.fill(*frame.outline(), facecolor="none", edgecolor=color, linewidth=0.8, zorder=5, clip_on=False)
    if isinstance(frame, PlaneFrame):
        _ticks(axes, frame, color=color)
    else:
        graticule(axes, frame, color=color)
    return clipping_rim(axes, frame)


def clipping_rim(axes: "Axes", frame: Frame | PlaneFrame) -> "Polygon":
    """Add the rim of a map, which nobody sees, for clipping."""
    from matplotlib.patches import Polygon

    rim = Polygon(np.stack(frame.outline(), axis=1), closed=True, facecolor="none", edgecolor="none")
    axes.add_patch(rim)
    return rim


def shade(
    axes: "Axes",
    frame: Frame | PlaneFrame,
    rim: "Polygon",
    grid: GridAxes,
    values: Array,
    *,
    colours: str,
    norm: "Normalize",
) -> "AxesImage":
    """Shade a field (P, Q) under the coastlines."""
    left, right, bottom, top = frame.extent()
    image = axes.imshow(
        resample(grid, values, *frame.pixels(RASTER_WIDTH), around=frame.around),
        cmap=colours,
        norm=norm,
        extent=(left, right, bottom, top),
        interpolation="none",
        aspect=axes.get_aspect(),
        zorder=1,
    )
    image.set_clip_path(rim)
    # White over a wider dark line: one of the two stands out from every colour of a map.
    x, y = coastlines(frame)
    thin = 0.75 if isinstance(frame, Frame) and frame.east - frame.west > WIDE_DEGREES else 1.0
    for colour, width, alpha in (("black", 1.3, 0.3), ("white", 0.55, 0.95)):
        line = axes.plot(x, y, color=colour, linewidth=thin * width, alpha=alpha, zorder=4)[0]
        line.set_clip_path(rim)
    return image


def dots(
    axes: "Axes",
    frame: Frame | PlaneFrame,
    rim: "Polygon",
    longitude_degrees: Array,
    latitude_degrees: Array,
    values: Array,
    *,
    colours: str,
    norm: "Normalize",
) -> "PathCollection":
    """Draw values at places (n,) as dots over the coastlines."""
    line = axes.plot(*coastlines(frame), color="#8d98a3", linewidth=0.55, zorder=2)[0]
    line.set_clip_path(rim)
    return marks(axes, frame, longitude_degrees, latitude_degrees, values, colours=colours, norm=norm)


def borders(axes: "Axes", frame: Frame | PlaneFrame) -> None:
    """Draw borders between countries."""
    x, y = coastlines(frame, "border")
    line = axes.plot(x, y, color="black", linewidth=0.6, alpha=0.6, dashes=(4.0, 2.0), zorder=4)[0]
    line.set_clip_path(clipping_rim(axes, frame))


def lakes(axes: "Axes", frame: Frame | PlaneFrame) -> None:
    """Draw the shores of lakes, thinner than coastlines."""
    rim, shores = clipping_rim(axes, frame), coastlines(frame, "lake")
    for colour, width, alpha in (("black", 0.9, 0.25), ("white", 0.4, 0.95)):
        line = axes.plot(*shores, color=colour, linewidth=width, alpha=alpha, zorder=4)[0]
        line.set_clip_path(rim)


def marks(
    axes: "Axes",
    frame: Frame | PlaneFrame,
    east: Array,
    north: Array,
    values: Array | None = None,
    *,
    colours: str | None = None,
    norm: "Normalize | None" = None,
) -> "PathCollection":
    """Draw places (n,) as dots in the colours of their values, or as black points without values."""
    x, y = frame.project(east, north)
    size = 9000.0 / max(x.size, 1)
    return axes.scatter(
        x,
        y,
        c="black" if values is None else values,
        s=float(np.clip(size, 5.0, 28.0) if values is not None else np.clip(size, 0.2, 3.0)),
        cmap=colours,
        norm=norm,
        linewidths=0.25 if values is not None else 0.0,
        edgecolors="#4a545e",
        zorder=6,
        clip_on=False,  # a point on the rim is a whole dot
    )
