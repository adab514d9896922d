"""The maps of a group as a Zarr store of version 2, laid out as GDAL and QGIS read it."""

import json
from pathlib import Path

import xarray as xr

from cagp_dist.export.groups import was_exported
from cagp_dist.store.geotiff import geotiff_variables, north_up
from cagp_dist.store.lock import whole_folder
from cagp_dist.store.zarr_arrays import chunk_shape


def write_gis_zarr(group: xr.Dataset, path: Path, *, epsg: int | None = None) -> Path:
    """Write the variables of a gridded group that are maps: float64, north up.

    Chunks have at most 8 MiB (`chunk_shape`), each of one time. Columns run as those of `write_geotiff` do.
    The system is that of an EPSG number, or WGS 84; the attribute ``_CRS`` is where GDAL looks for it [GDAL,
    driver Zarr].
    """
    from numcodecs import Zlib  # which every GDAL reads; Blosc, the default of Zarr, is optional there

    maps = north_up(group[geotiff_variables(group)]).drop_encoding()
    system = {"url": f"http://www.opengis.net/def/crs/EPSG/0/{epsg or 4326}"}
    encoding: dict[str, dict[str, object]] = {str(name): {"compressors": Zlib(4)} for name in maps.variables}
    for name, variable in maps.data_vars.items():
        variable.attrs["_CRS"] = system
        shape = tuple(1 if dim == "time" else length for dim, length in variable.sizes.items())
        encoding[str(name)]["chunks"] = chunk_shape(shape, item_bytes=variable.dtype.itemsize)
    for coordinate in maps.coords.values():
        coordinate.attrs.pop("bounds", None)
    if "time" in maps.coords:
        encoding["time"]["units"] = "seconds since 1970-01-01"
    with whole_folder(path) as stage:
        maps.to_zarr(stage, mode="w", zarr_format=2, consolidated=True, encoding=encoding)
    return path


def is_gis_zarr(path: Path) -> bool:
    """Whether a folder is a store that `write_gis_zarr` wrote, or empty."""
    try:
        return not any(path.iterdir()) or was_exported(json.loads((path / ".zattrs").read_bytes()))
    except (OSError, ValueError, AttributeError):
        return False
