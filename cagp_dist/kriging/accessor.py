"""``dataset.cagp``: maps of a result with coastlines, and as GeoTIFF."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array
from cagp_dist.cartography.basemap import dots, empty_map, shade
from cagp_dist.cartography.frame import Frame, frame_of, frame_of_cells
from cagp_dist.cartography.raster import resample
from cagp_dist.errors import ArgumentError
from cagp_dist.kriging.axes import Horizontal, horizontal
from cagp_dist.pages import templates
from cagp_dist.store.geotiff import write_geotiff
from cagp_dist.variables.units import symbol

if TYPE_CHECKING:
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

WIDTH_INCHES = 6.4
LETTERS_PER_INCH = 13
ANIMATED_DPI = 150
BESIDE_ASPECT = 1.6  # Maps that are less wide, in units of their height, stand side by side

MUTED = "#5d6975"
COLOURS = {"mean": "RdYlBu_r", "std": "viridis", "std_computational": "viridis"}


@dataclass(frozen=True, eq=False)
class Axes2D:
    """The axes of a grid, as a map is shaded from them."""

    latitude_degrees: Array
    longitude_degrees: Array


class Maps:
    """Maps of the variables of a data set on latitudes and longitudes: ``dataset.cagp``.

    It is there from the import of `cagp_dist` on, in whichever order that and xarray are imported.

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> places = {"lat": [48.1, 52.5], "lon": [11.6, 13.4], "value": [21.0, 18.5]}
    >>> result = cagp.krige(places, to=1.0, lengthscale_km=400.0, variance=9.0, noise_std=0.3)
    >>> figure = result.cagp.plot()          # figure.savefig("map.png")
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def plot(self, variables: Sequence[str] = ("mean", "std"), *, field: int = 0) -> "Figure":
        """Draw maps of some variables, with coastlines: grids shaded, places as dots.

        Global maps are drawn in the Equal Earth projection, regions in plate carree.
        """
        import matplotlib.pyplot as plt

        names = [variables] if isinstance(variables, str) else list(variables)
        self._check_there(names, "draw")
        where = horizontal(self._dataset)
        frame = _frame(where)
        left, right, bottom, top = frame.extent()
        aspect = (right - left) / (top - bottom)
        across = 2 if aspect < BESIDE_ASPECT and len(names) > 1 else 1
        down = -(-len(names) // across)
        whole = WIDTH_INCHES if across == 2 or aspect > BESIDE_ASPECT else 0.65 * WIDTH_INCHES
        width = whole / across
        beside = 0.6  # inches for the latitudes, left of a panel
        tall = (width - beside) / aspect + 1.25
        figure, panels = plt.subplots(
            down, across, figsize=(whole, down * tall), squeeze=False, layout="compressed"
        )
        for panel in panels.flat[len(names) :]:
            panel.remove()
        for name, panel in zip(names, panels.flat, strict=False):
            values, heading = _one_field(self._dataset[name], where, field)
            wrapped = fill(heading, width=round(LETTERS_PER_INCH * (width - beside)))
            _draw(figure, panel, frame, where, values, name=name, heading=wrapped)
        return figure

    def animate(self, path: str | os.PathLike[str], variable: str = "mean") -> Path:
        """Write a page on which a browser plays the maps of all times, in the same colours.

        The page stands alone, some 20 kB for each time. Without scripts it shows the first time.
        """
        import matplotlib.pyplot as plt

        figure, where, values = self.plot([variable]), horizontal(self._dataset), self._dataset[variable]
        times = [dim for dim in values.dims if str(dim) not in where.dims]
        if len(times) != 1:
            plt.close(figure)
            raise ArgumentError(
                f"{variable!r} has the dimensions {', '.join(map(str, values.dims))}; expected one beside "
                "those of the places, such as time. Choose of the others first: dataset.isel(sample=0)."
            )
        panel, title = figure.axes[0], str(values.attrs.get("long_name", variable))
        panel.set_title(fill(title, round(LETTERS_PER_INCH * figure.get_figwidth())), fontsize=9, loc="left")
        shown = panel.images[0] if panel.images else panel.collections[-1]
        shown.set_clim(*_limits(values))
        figure.set_dpi(ANIMATED_DPI)
        frame, width, frames = _frame(where), round(ANIMATED_DPI * figure.get_figwidth()), []
        for field in range(values.sizes[times[0]]):
            one, heading = _one_field(values, where, field)
            shown.set_array(_coloured(one, where, frame, width=width))
            figure.canvas.draw()
            figure.set_layout_engine("none")  # all lie as the first does
            pixels = np.asarray(figure.canvas.buffer_rgba())  # type: ignore[attr-defined]
            stamp = heading.removeprefix(f"{title}, ")
            frames.append({"stamp": stamp, "picture": templates.picture_address(pixels)})
        plt.close(figure)
        page = templates.fill(
            "frames",
            scripts=("player.js", "frames.js"),
            title=title,
            frames=frames,
            width=round(100 * figure.get_figwidth()),
            height=round(100 * figure.get_figheight()),
        )
        Path(path).write_text(page, encoding="utf-8")
        return Path(path)

    def to_geotiff(self, path: str | os.PathLike[str], variable: str = "mean") -> Path:
        """Write one variable as GeoTIFF: north up, EPSG:4326, float32, a band for each time."""
        self._check_there([variable], "write")
        where, values = horizontal(self._dataset), self._dataset[variable]
        others = [dim for dim in values.dims if str(dim) not in where.dims]
        timed = [dim for dim in others if dim in values.coords and values[dim].dtype.kind == "M"]
        if where.axes is None or len(where.dims) != 2 or others != timed or len(others) > 1:
            raise ArgumentError(
                f"{variable!r} has the dimensions {', '.join(map(str, values.dims))}; expected axes of "
                "latitude and longitude, and times at most beside them. Choose of the others first, for "
                "example dataset.isel(sample=0), or write NetCDF, dataset.to_netcdf(path)."
            )
        latitude, longitude = where.axes
        rows, columns = where.latitude.dims[0], where.longitude.dims[0]
        moments = {"time": values[timed[0]].values} if timed else {}
        names = dict.fromkeys(timed, "time") | {rows: "latitude", columns: "longitude"}
        grid = xr.Dataset(
            {variable: (tuple(names[dim] for dim in values.dims), values.values, values.attrs)},
            {"latitude": latitude, "longitude": longitude} | moments,
            self._dataset.attrs,
        )
        grid = grid.sortby(["latitude", "longitude"])
        return write_geotiff(grid, variable, Path(path))

    def _check_there(self, names: list[str], what: str) -> None:
        """Raise `ArgumentError` where a variable is not there, or none is asked for."""
        absent = next((name for name in names or [""] if name not in self._dataset.data_vars), None)
        if absent is not None:
            there = ", ".join(map(repr, self._dataset.data_vars))
            raise ArgumentError(f"there is no variable {absent!r} to {what}; the dataset has {there}.")


def _draw(
    figure: "Figure",
    panel: object,
    frame: Frame,
    where: Horizontal,
    values: xr.DataArray,
    *,
    name: str,
    heading: str,
) -> None:
    """Draw one map and its colour bar."""
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize

    assert isinstance(panel, Axes)
    norm, colours = Normalize(*_limits(values)), COLOURS.get(name, "viridis")
    rim = empty_map(panel, frame, color=MUTED)
    axes = where.axes
    if axes is not None:
        field = _by_latitude(values, where)
        shown: ScalarMappable = shade(panel, frame, rim, Axes2D(*axes), field, colours=colours, norm=norm)
    else:
        latitude, longitude = where.points
        numbers = np.asarray(values.values, dtype=np.float64).ravel()
        there = np.isfinite(numbers)
        shown = dots(
            panel, frame, rim, longitude[there], latitude[there], numbers[there], colours=colours, norm=norm
        )
    panel.set_title(heading, fontsize=9, loc="left")
    bar = figure.colorbar(shown, ax=panel, orientation="horizontal", shrink=0.8, aspect=35, pad=0.06)
    bar.outline.set_linewidth(0.5)
    bar.ax.tick_params(labelsize=8, length=2.5)
    bar.set_label(symbol(str(values.attrs.get("units", ""))), fontsize=8)


def _limits(values: xr.DataArray) -> tuple[float, float]:
    """Smallest and largest value; half a unit beside them where they are the same."""
    numbers = np.asarray(values.values, dtype=np.float64)
    known = numbers[np.isfinite(numbers)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    return (low - 0.5, high + 0.5) if high - low < 1e-9 * max(1.0, abs(low)) else (low, high)


def _by_latitude(values: xr.DataArray, where: Horizontal) -> Array:
    """Values of a grid, latitude by latitude."""
    numbers = np.asarray(values.values, dtype=np.float64)
    return numbers if where.dims[0] in where.latitude.dims else numbers.T


def _coloured(values: xr.DataArray, where: Horizontal, frame: Frame, *, width: int) -> Array:
    """Give what a map colours: pixels of a grid, so many across, or the dots that have values."""
    if where.axes is not None:
        grid = Axes2D(*where.axes)
        return resample(grid, _by_latitude(values, where), *frame.pixels(width))
    numbers = np.asarray(values.values, dtype=np.float64).ravel()
    return numbers[np.isfinite(numbers)]


def _frame(where: Horizontal) -> Frame:
    """Choose the frame of a grid, to the edges of its cells, or of places with a margin."""
    if where.axes is None:
        return frame_of(*where.points[::-1])
    north, east = where.axes
    return frame_of_cells(east, north)


def _one_field(values: xr.DataArray, where: Horizontal, field: int) -> tuple[xr.DataArray, str]:
    """Give the values of one field, in the order of the places, and a headline."""
    heading = str(values.attrs.get("long_name", values.name))
    others = [dim for dim in values.dims if str(dim) not in where.dims]
    for dim in others:
        if not -values.sizes[dim] <= field < values.sizes[dim]:
            raise ArgumentError(f"field is {field}; {str(dim)!r} has {values.sizes[dim]} entries.")
        if dim in values.coords:
            moment, is_time = values[dim].values[field], values[dim].dtype.kind == "M"
            shown = (
                str(np.datetime_as_string(moment, unit="m")).replace("T", " ")
                if is_time
                else f"{dim} {moment}"
            )
            heading = f"{heading}, {shown}"
        values = values.isel({dim: field})
    return values.transpose(*where.dims), heading
