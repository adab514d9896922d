"""Small maps of many runs on one scale of colours, to be looked at side by side."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array
from cagp_dist.cartography.basemap import clipping_rim
from cagp_dist.cartography.chart_style import MUTED, PANEL, drawing_style
from cagp_dist.cartography.colour_scale import FIELD, ColourScale, scale_of
from cagp_dist.cartography.frame import Frame, PlaneFrame, coastlines, frame_of, frame_of_plane
from cagp_dist.cartography.raster import resample
from cagp_dist.errors import StoreError
from cagp_dist.kernels import DEPTH
from cagp_dist.report.published import MeanMap
from cagp_dist.store.group_dataset import AXES, own_dims
from cagp_dist.store.zarr_arrays import open_group

WIDE_DEGREES = 90.0  # Of a map on which coastlines of 1:110 million cannot be told from finer ones
PIXELS_WIDE = 360  # Of a thumbnail: enough for screens with two pixels to a point
SHAPE = (0.5, 0.75)  # Height over width, at least and at most; a map that is taller leaves its sides empty


@dataclass(frozen=True, eq=False)
class Picture:
    """The posterior mean of the first time of a run, before it has colours.

    ``pixels`` has shape (rows, PIXELS_WIDE), NaN where there is no map, and is None if the run has scattered
    points only: ``places``, x and y in the plane of the frame, with their ``values``.
    """

    variable: str
    units: str
    frame: Frame | PlaneFrame
    values: Array
    pixels: Array | None = None
    places: tuple[Array, Array] = (np.empty(0), np.empty(0))


def picture_of(run_path: Path) -> Picture | None:
    """Take the map of a run, or its test points; None if it has neither or cannot be read."""
    for group in ("map", "posterior"):
        if (run_path / group / "zarr.json").is_file():
            try:
                with open_group(run_path, group) as opened:
                    return _picture(opened)
            except (StoreError, ValueError, RuntimeError):
                return None  # the list names what is wrong with the run
    return None


def thumbnail_scales(pictures: Sequence[Picture]) -> Mapping[str, ColourScale]:
    """Give the pictures of each variable one scale."""
    alike: dict[str, list[Picture]] = {}
    for picture in pictures:
        alike.setdefault(picture.variable, []).append(picture)
    return {
        variable: scale_of(np.concatenate([one.values for one in those]), colours=FIELD, label=those[0].units)
        for variable, those in alike.items()
    }


def thumbnail(picture: Picture, scale: ColourScale) -> str:
    """Draw a picture as the ``data:`` address of a PNG image, about 20 kB."""
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    frame = picture.frame
    left, right, bottom, top = frame.extent()
    tall = float(np.clip(frame.height, *SHAPE))
    width = min(1.0, tall / frame.height)
    height = width * frame.height / tall
    with drawing_style():
        figure = Figure(figsize=(3.6, 3.6 * tall))
        axes = figure.add_axes((0.5 - 0.5 * width, 0.5 - 0.5 * height, width, height), frame_on=False)
        axes.set(xlim=(left, right), ylim=(bottom, top), xticks=[], yticks=[])
        rim = clipping_rim(axes, frame)
        limits = Normalize(scale.low, scale.high)
        if picture.pixels is not None:
            image = axes.imshow(
                picture.pixels,
                extent=(left, right, bottom, top),
                interpolation="none",
                aspect="auto",
                cmap=scale.colours,
                norm=limits,
            )
            image.set_clip_path(rim)
            ink, strength = "white", 0.9
        else:
            axes.fill(*frame.outline(), facecolor=PANEL, edgecolor="none", zorder=0)
            axes.scatter(
                *picture.places,
                c=picture.values,
                s=4.0,
                linewidths=0,
                zorder=3,
                cmap=scale.colours,
                norm=limits,
            )
            ink, strength = MUTED, 0.8
        shore = coastlines(frame, scale=_scale_of(frame))
        line = axes.plot(*shore, color=ink, linewidth=0.5, alpha=strength, zorder=2)[0]
        line.set_clip_path(rim)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=PIXELS_WIDE / 3.6, transparent=True)
    return f"data:image/png;base64,{base64.b64encode(_fewer_colours(buffer)).decode('ascii')}"


def _picture(group: xr.Dataset) -> Picture | None:
    """Take the map or the points of a group; None if it has no mean."""
    means = [name for name in group.data_vars if str(name).endswith("_mean")]
    if not means:
        return None
    variable = group[means[0]]
    first = variable.isel({dim: 0 for dim in ("time", DEPTH) if dim in variable.dims})
    name, units = str(means[0]).removesuffix("_mean"), str(variable.attrs.get("units", ""))
    axes = own_dims(AXES, group.coords)
    latitude, longitude = (np.asarray(group[axis].values) for axis in axes)
    frame: Frame | PlaneFrame
    unit = None if axes == AXES else str(group[axes[0]].attrs.get("units", ""))
    if "point" in first.dims:
        values = np.asarray(first.values, dtype=np.float64)
        known = np.isfinite(values)
        frame = (
            frame_of(longitude, latitude) if unit is None else frame_of_plane(longitude, latitude, unit=unit)
        )
        places = frame.project(longitude[known], latitude[known])
        return Picture(name, units, frame, values[known], places=places)
    field = np.asarray(first.transpose(*axes).values, dtype=np.float64)
    if unit is None:
        frame = frame_of(longitude, latitude, margin_degrees=0.5 * _spacing(latitude))
        pixels = nearest_cells(latitude, longitude, field, *frame.pixels(PIXELS_WIDE))
    else:
        frame = frame_of_plane(longitude[:1], latitude[:1], cells=(longitude, latitude), unit=unit)
        grid = MeanMap(longitude, latitude, field)
        pixels = resample(grid, field, *frame.pixels(PIXELS_WIDE), around=False)
    return Picture(name, units, frame, pixels[np.isfinite(pixels)], pixels=pixels)


def nearest_cells(
    latitude_degrees: Array, longitude_degrees: Array, field: Array, longitude: Array, latitude: Array
) -> Array:
    """Value of the cell of a field (P, Q) that each place lies in, NaN outside; the cells are equal."""
    dy, dx = _spacing(latitude_degrees), _spacing(longitude_degrees)
    rows = np.floor((latitude - latitude_degrees[0]) / dy + 0.5)
    columns = np.floor(((longitude - longitude_degrees[0] + 0.5 * dx) % 360.0) / dx)
    with np.errstate(invalid="ignore"):
        inside = (rows >= 0) & (rows < field.shape[0]) & (columns < field.shape[1])
    rows, columns = (np.where(inside, index, 0).astype(np.intp) for index in (rows, columns))
    return np.where(inside, field[rows, columns], np.nan)


def _spacing(axis_degrees: Array) -> float:
    """Mean spacing of an axis; a degree of one value."""
    return float(np.diff(axis_degrees).mean()) if axis_degrees.size > 1 else 1.0


def _fewer_colours(png: io.BytesIO) -> bytes:
    """Give an image a palette, which makes it a third of the size."""
    from PIL import Image

    reduced = io.BytesIO()
    with Image.open(png) as image:
        image.quantize(colors=96, method=Image.Quantize.FASTOCTREE).save(reduced, format="png", optimize=True)
    return reduced.getvalue()


def _scale_of(frame: Frame | PlaneFrame) -> Literal["50m", "110m"]:
    """Choose coastlines: coarse ones where the map is wide."""
    wide = isinstance(frame, Frame) and frame.east - frame.west > WIDE_DEGREES
    return "110m" if wide else "50m"
