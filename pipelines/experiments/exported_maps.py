"""Maps of five regions as other programs read them: xarray, CDO and GDAL.

    python -m pipelines.experiments.exported_maps [--quick] [--output FOLDER]

A job on the built-in field is run and exported for each region: Europe, which lies across Greenwich, Africa,
the Pacific across the date line, and both polar caps. xarray opens the NetCDF file as it is, CDO takes it to
GRIB 2 and back, and GDAL reads the GeoTIFF and the Zarr store. GDAL also takes the GeoTIFF of a cap to a
projection about the pole. Prints how far each program is from the published run, cell by cell; draws
``export.png``. Needs ``cdo`` and ``gdal-bin``.
"""

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array
from cagp_dist.cartography.frame import lines_degrees
from cagp_dist.export import export_run
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from pipelines.experiments.output import drawn, few_colours, parser, print_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KELVIN = 273.15
METRES_PER_DEGREE = 111_694.0
"""Of latitude, at a pole of WGS 84."""

JOB = """
[observations]
source = "sample"

[design]
train = {{ kind = "random", count = {count}, seed = 0 }}
test = {{ kind = "random", count = 200, seed = 1 }}
map = {{ kind = "grid", resolution_degrees = {resolution}, area = [{area}] }}

[prior]
kernel = "matern32"
mean = "quadratic-latitude"
lengthscale = 0.1
variance = 33.0
noise_variance = 1.7

[solver]
name = "block-gauss-seidel"
iterations = 4
block_size = 1024

[output]
root = {root}
"""


@dataclass(frozen=True)
class Region:
    """A region of the figure: north, west, south, east in degrees; ``pole`` is 1, -1 or, for no cap, 0."""

    name: str
    area: tuple[int, int, int, int]
    pole: int = 0


REGIONS = (
    Region("Europe", (72, -12, 34, 42)),
    Region("Africa", (38, -20, -36, 52)),
    Region("Pacific", (60, 120, -60, -70)),
    Region("Arctic", (90, -180, 60, 180), pole=1),
    Region("Antarctic", (-60, -180, -90, 180), pole=-1),
)


@dataclass(frozen=True, eq=False)
class Field:
    """A map as a program reads it.

    Attributes
    ----------
    values : array, shape (m, n), kelvin
    x, y : array, shape (m + 1, n + 1)
        Corners of the cells in degrees: longitudes and latitudes or, at a pole, distances from it.
    """

    values: Array
    x: Array
    y: Array


def corners(centres: Array) -> Array:
    """Edges between equispaced centres, and half a cell beyond the outer ones."""
    half = 0.5 * (centres[1] - centres[0])
    return np.append(centres - half, centres[-1] + half)


def about_pole(longitude: Array, latitude: Array, pole: int) -> tuple[Array, Array]:
    """Azimuthal equidistant coordinates, in degrees from the pole; Greenwich points down in the Arctic."""
    distance, angle = 90.0 - pole * latitude, np.deg2rad(longitude)
    return distance * np.sin(angle), -pole * distance * np.cos(angle)


def field(map_: xr.DataArray, region: Region) -> Field:
    """Cells of a map with latitudes and longitudes, in the figure."""
    x, y = np.meshgrid(corners(map_["longitude"].values), corners(map_["latitude"].values))
    if region.pole:
        x, y = about_pole(x, y, region.pole)
    return Field(map_.values, x, y)


def program(*command: object) -> str:
    """Run another program and give what it prints."""
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def through_xarray(folder: Path) -> xr.DataArray:
    """Open the NetCDF file as it is."""
    with xr.open_dataset(folder / "map.nc") as found:
        return found["t2m_mean"].isel(time=0).load()


def through_cdo(folder: Path) -> xr.DataArray:
    """Let CDO write GRIB 2, which knows nothing of the NetCDF file, and read it again."""
    grib, back = folder / "map.grb2", folder / "back.nc"
    program("cdo", "-s", "-f", "grb2", "-copy", "-selname,t2m_mean", folder / "map.nc", grib)
    program("cdo", "-s", "-f", "nc4", "-copy", grib, back)
    with xr.open_dataset(back) as found:
        (map_,) = (value for value in found.data_vars.values() if value.ndim >= 2 and value.shape[-1] > 2)
        map_ = map_.squeeze(drop=True).load()
    return map_.rename(dict(zip(map_.dims, ("latitude", "longitude"), strict=True)))


def raster(source: Path | str, plain: Path) -> tuple[Array, Array, Array]:
    """Read a raster with GDAL: values, edges of the columns and edges of the rows from the top."""
    shown = json.loads(program("gdalinfo", "-json", source))
    west, dx, _, north, _, dy = shown["geoTransform"]
    columns, rows = shown["size"]
    number = {"Float32": "<f4", "Float64": "<f8"}[shown["bands"][0]["type"]]
    program("gdal_translate", "-q", "-of", "ENVI", source, plain)
    values = np.fromfile(plain, dtype=number).reshape(rows, columns)
    return values, west + dx * np.arange(columns + 1), north + dy * np.arange(rows + 1)


def through_gdal(folder: Path) -> xr.DataArray:
    """Read the GeoTIFF, cells as GDAL places them."""
    return cells_of(folder / "map_t2m_mean.tif", folder)


def zarr_through_gdal(folder: Path) -> xr.DataArray:
    """Read the first time of the Zarr store, cells as GDAL places them."""
    return cells_of(f'ZARR:"{folder / "map.zarr"}":/t2m_mean:0', folder)


def cells_of(source: Path | str, folder: Path) -> xr.DataArray:
    """Read a raster with GDAL as a map."""
    values, x, y = raster(source, folder / "plain.bin")
    axes = {"latitude": 0.5 * (y[1:] + y[:-1]), "longitude": 0.5 * (x[1:] + x[:-1])}
    return xr.DataArray(values, coords=axes, dims=tuple(axes))


def warped(folder: Path, pole: int) -> Field:
    """Let GDAL take a polar cap to a projection about the pole."""
    target = folder / "polar.tif"
    projection = f"+proj=aeqd +lat_0={90 * pole} +lon_0=0 +datum=WGS84"
    program(
        *("gdalwarp", "-q", "-t_srs", projection, "-dstnodata", "nan", "-r", "near"),
        *("-ts", 600, 600, folder / "map_t2m_mean.tif", target),
    )
    values, x, y = raster(target, target.with_suffix(".bin"))
    return Field(values, *np.meshgrid(x / METRES_PER_DEGREE, y / METRES_PER_DEGREE))


READERS: dict[str, Callable[[Path], xr.DataArray]] = {
    "xarray": through_xarray,
    "CDO (to GRIB 2 and back)": through_cdo,
    "GDAL (GeoTIFF)": through_gdal,
    "GDAL (Zarr)": zarr_through_gdal,
}


def export(region: Region, folder: Path, *, count: int, resolution: float) -> xr.DataArray:
    """Run the job of a region, export its map to the folder, and give the map that was published."""
    root, area = folder / "out", ", ".join(str(edge) for edge in region.area)
    text = JOB.format(count=count, resolution=resolution, area=area, root=json.dumps(str(root)))
    path = run(parse_job(text)).path
    assert path is not None
    for to in ("netcdf", "geotiff", "zarr"):
        export_run(path, to=to, groups=["map"], output=folder)
    with xr.open_zarr(path, group="map") as published:
        return published["t2m_mean"].isel(time=0).load()


def difference(found: xr.DataArray, published: xr.DataArray) -> float:
    """Greatest difference from the published map, kelvin, once each cell is matched by its place.

    A cell that stands elsewhere, by 10^-4 degrees or more, is an error; GRIB 2 counts steps in 10^-6 degrees.
    """
    placed = [
        map_.assign_coords(longitude=np.round(map_["longitude"], 4) % 360.0).sortby(["latitude", "longitude"])
        for map_ in (found, published)
    ]
    for axis in ("latitude", "longitude"):
        np.testing.assert_allclose(placed[0][axis].values, placed[1][axis].values, rtol=0.0, atol=1e-4)
    return float(np.abs(placed[0].values - placed[1].values).max())


def coastline(axes: "Axes", region: Region) -> None:
    """Draw coastlines over a map, which keeps its limits."""
    points = lines_degrees("coastline")
    limits = axes.get_xlim(), axes.get_ylim()
    style = {"color": "white", "linewidth": 0.6}
    if region.pole:
        axes.plot(*about_pole(points[:, 0], points[:, 1], region.pole), **style)
        limits = (-30.0, 30.0), (-30.0, 30.0)
        axes.set(aspect="equal", xticks=[], yticks=[])
    else:
        jump = np.append(np.abs(np.diff(points[:, 0])) > 180.0, False)
        for turn in (-360.0, 0.0, 360.0):
            axes.plot(np.where(jump, np.nan, points[:, 0]) + turn, points[:, 1], **style)
    axes.set(xlim=limits[0], ylim=limits[1])


def draw(path: Path, maps: dict[Region, dict[str, Field]]) -> None:
    """Draw the regions below each other and the programs side by side."""
    heights = [1.2 if region.pole else 1.0 for region in maps]
    with drawn(path, width_inches=8.2, height_inches=2.0 * sum(heights)) as figure:
        rows = figure.subplots(len(maps), len(READERS), squeeze=False, height_ratios=heights)
        for row, (region, fields) in zip(rows, maps.items(), strict=True):
            shared = np.concatenate([one.values[np.isfinite(one.values)] for one in fields.values()]) - KELVIN
            for axes, (name, one) in zip(row, fields.items(), strict=True):
                shown = axes.pcolormesh(
                    one.x, one.y, one.values - KELVIN, cmap="inferno", vmin=shared.min(), vmax=shared.max()
                )
                axes.set_title(f"{region.name}: {name}" if region is REGIONS[0] else region.name, fontsize=8)
                coastline(axes, region)
            figure.colorbar(shown, ax=list(row), label="mean [°C]", pad=0.01)
    few_colours(path)


def table(maps: dict[Region, dict[str, Field]], count: int, resolution: float) -> Iterator[Sequence[str]]:
    """Give a line for each region, and keep its maps for the figure."""
    for region in REGIONS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            published = export(region, folder, count=count, resolution=resolution)
            read = {program_: reader(folder) for program_, reader in READERS.items()}
            maps[region] = {program_: field(map_, region) for program_, map_ in read.items()}
            if region.pole:
                maps[region]["GDAL (GeoTIFF)"] = warped(folder, region.pole)
        size = " x ".join(str(length) for length in published.shape)
        yield (region.name, size, *(f"{difference(map_, published):.1g}" for map_ in read.values()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, export, read and draw."""
    chosen = parser(__doc__).parse_args(arguments)
    count, resolution = (200, 10.0) if chosen.quick else (3_000, 2.0)
    maps: dict[Region, dict[str, Field]] = {}
    print_table(
        ("region", "cells", *(f"{name}, greatest difference [K]" for name in READERS)),
        table(maps, count, resolution),
    )
    draw(chosen.output / "export.png", maps)


if __name__ == "__main__":
    main()
