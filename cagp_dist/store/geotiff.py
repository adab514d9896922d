"""One variable of a map as GeoTIFF: north up, EPSG:4326 or that of a plane, a band for each time.

The tags are those of OGC GeoTIFF 1.1; names of bands, units and attributes are in the tag in which GDAL keeps
its metadata, which QGIS and ArcGIS read as well. They are written by hand with ``tifffile`` (0.2 MB): wheels
of rasterio and pyproj, which rioxarray needs, have 45 MB, and would spare some fifty of these lines.
"""

from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.arrays import Array
from cagp_dist.errors import ConfigurationError
from cagp_dist.extras import from_extra
from cagp_dist.geometry import cell_edges
from cagp_dist.store.atomic_files import whole_file
from cagp_dist.store.group_dataset import AXES, own_dims

_MODEL_PIXEL_SCALE, _MODEL_TIEPOINT, _GEO_KEY_DIRECTORY = 33550, 33922, 34735
_GDAL_METADATA, _GDAL_NODATA = 42112, 42113
_DOUBLE, _SHORT, _ASCII = 12, 3, 2
_AREA = (1025, 0, 1, 1)  # GTRasterType: a pixel is an area, its value that of the whole cell
_GEO_KEYS = (
    *(1, 1, 1, 4),  # version 1.1 of the directory, four keys
    *(1024, 0, 1, 2),  # GTModelType: geographic 2D
    *_AREA,
    *(2048, 0, 1, 4326),  # GeodeticCRS: WGS 84
    *(2054, 0, 1, 9102),  # GeogAngularUnits: degree
)
_SPACING_TOLERANCE = 1e-6


def geotiff_variables(group: xr.Dataset) -> list[str]:
    """Names of the variables that are maps."""
    plane, found = set(own_dims(AXES, group.coords)), group.data_vars.items()
    return [str(name) for name, each in found if plane <= set(each.dims) <= {"time", *plane}]


def write_geotiff(group: xr.Dataset, name: str, path: Path, *, epsg: int | None = None) -> Path:
    """Write one variable of a gridded group: float32, NaN is no data, rows from north to south.

    Columns run eastward without a jump: a full circle from the date line on, a region across it beyond 180.
    With an EPSG number the axes are y and x of that system.
    """
    tifffile = from_extra("geotiff", "tifffile", "writing GeoTIFF")
    group = north_up(group[[name]])
    variable = group[name]
    if epsg is None:
        (down, across), keys = ("latitude", "longitude"), [*_GEO_KEYS]
    else:  # GTModelType: projected 2D; ProjectedCRS
        (down, across), keys = ("y", "x"), [1, 1, 1, 3, 1024, 0, 1, 1, *_AREA, 3072, 0, 1, epsg]
    west, width = _first_edge_and_width(group[across].values)
    north, height = _first_edge_and_width(group[down].values)
    rows, columns = variable.sizes[down], variable.sizes[across]
    times = variable.sizes.get("time", 1)
    bands = np.empty((times, rows, columns), dtype=np.float32)
    for step in range(times):
        plane = variable.isel(time=step) if "time" in variable.dims else variable
        bands[step] = plane.transpose(down, across).values
    corner = (0.0, 0.0, 0.0, west, north, 0.0)
    tags = [
        (_MODEL_PIXEL_SCALE, _DOUBLE, 3, (width, height, 0.0), True),
        (_MODEL_TIEPOINT, _DOUBLE, 6, corner, True),
        (_GEO_KEY_DIRECTORY, _SHORT, len(keys), tuple(keys), True),
        (_GDAL_METADATA, _ASCII, 0, _metadata(group, variable), True),
        (_GDAL_NODATA, _ASCII, 0, "nan", True),
    ]
    with whole_file(path) as temporary:
        tifffile.imwrite(
            temporary,
            bands if times > 1 else bands[0],
            photometric="minisblack",
            planarconfig="separate" if times > 1 else None,
            compression="zlib",
            metadata=None,
            software="cagp_dist",
            extratags=tags,
        )
    return path


def north_up(group: xr.Dataset) -> xr.Dataset:
    """Give a map with rows from north to south and columns from west to east, as `westmost_first` counts.

    Its cells are equal, as those of rasters must be, or it is refused.
    """
    down, across = ("latitude", "longitude") if "latitude" in group.dims else ("y", "x")
    order, eastward = np.arange(group.sizes[across]), group[across].values
    if across == "longitude":
        order, eastward = westmost_first(eastward)
    turned = group.isel({down: slice(None, None, -1), across: order})
    turned = turned.assign_coords({across: (across, eastward, group[across].attrs)})
    for axis in (across, down):
        _refuse_unequal_cells(axis, turned[axis].values)
    return turned


def westmost_first(longitude_degrees: Array) -> tuple[NDArray[np.intp], Array]:
    """Order of the columns (n,) from west to east, and their longitudes in it, without a jump."""
    count = longitude_degrees.size
    spacing = (longitude_degrees[-1] - longitude_degrees[0]) / max(count - 1, 1)
    if count > 1 and longitude_degrees[-1] + spacing - longitude_degrees[0] > 360.0 - _SPACING_TOLERANCE:
        wrapped = (longitude_degrees + 180.0) % 360.0 - 180.0
        order = np.argsort(wrapped)
        return order, wrapped[order]
    turns = 360.0 if longitude_degrees[0] >= 180.0 else 0.0
    return np.arange(count), longitude_degrees - turns


def _refuse_unequal_cells(axis: str, centres: Array) -> None:
    """Raise where programs that read rasters would place cells wrongly, or could not place them."""
    if centres.size < 2:
        raise ConfigurationError(
            f"the map has one {axis}, and the width of its cell is not known; expected two or more. "
            'Export it to "netcdf".',
            key="one-cell",
        )
    widths = np.abs(np.diff(cell_edges(centres)))
    unit = "degrees " if axis in ("latitude", "longitude") else ""
    if np.ptp(widths) > _SPACING_TOLERANCE * widths.mean():
        raise ConfigurationError(
            f"the cells of the map have {axis}s {widths.min():g} to {widths.max():g} {unit}apart; a raster "
            'holds equal cells only. Export it to "netcdf".',
            key="unequal-cells",
        )


def _first_edge_and_width(centres: Array) -> tuple[float, float]:
    """First edge of an axis of equal cells, and the width of one."""
    ends = cell_edges(centres)
    return float(ends[0]), float(abs(ends[-1] - ends[0]) / centres.size)


def _metadata(group: xr.Dataset, variable: xr.DataArray) -> str:
    """Attributes, names and units of the bands, as GDAL writes them."""
    items = [(str(key), "", value) for key, value in group.attrs.items()]
    items += [(f"variable_{key}", "", value) for key, value in variable.attrs.items()]
    stamps = [""]
    if "time" in variable.dims:
        stamps = [f"{stamp}Z" for stamp in np.datetime_as_string(group["time"].values, unit="s")]
    for band, stamp in enumerate(stamps):
        of_band = f' sample="{band}"'
        items.append(("DESCRIPTION", f'{of_band} role="description"', f"{variable.name} {stamp}".strip()))
        items.append(("UNITTYPE", f'{of_band} role="unittype"', variable.attrs.get("units", "")))
    lines = [f"<Item name={quoteattr(name)}{more}>{escape(str(value))}</Item>" for name, more, value in items]
    text = "\n".join(["<GDALMetadata>", *lines, "</GDALMetadata>"])
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")
