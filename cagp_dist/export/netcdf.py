"""One group as a CF-1.11 NetCDF-4 file that CDO, NCO and GDAL open as Debian packages them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import xarray as xr

from cagp_dist.export.groups import GRIDDED, kind_of
from cagp_dist.store.atomic_files import whole_file
from cagp_dist.store.zarr_arrays import chunk_shape

FILL = 9.969209968386869e36  # that of the netCDF library; some programs compare NaN wrongly

_TIME = {
    "units": "seconds since 1970-01-01 00:00:00",
    "calendar": "standard",
    "units_metadata": "leap_seconds: none",
}
_WKT = ("crs_wkt", "spatial_ref")
_WGS84 = {
    "grid_mapping_name": "latitude_longitude",
    "semi_major_axis": 6378137.0,
    "inverse_flattening": 298.257223563,
    "longitude_of_prime_meridian": 0.0,
    "crs_wkt": 'GEOGCRS["WGS 84",DATUM["World Geodetic System 1984",'
    'ELLIPSOID["WGS 84",6378137,298.257223563]],'
    'CS[ellipsoidal,2],AXIS["latitude",north],AXIS["longitude",east],ANGLEUNIT["degree",0.0174532925199433],'
    'ID["EPSG",4326]]',
}


def write_netcdf(group: xr.Dataset, path: Path) -> Path:
    """Write a group: float64, compressed; text as characters of fixed length.

    Times are seconds since 1970 along an unlimited dimension, so that files of several runs join.
    """
    degrees = kind_of(group) == GRIDDED and "latitude" in group.dims
    plain = _georeferenced(group) if degrees else group.copy()
    if "time" in plain.coords:
        time = plain["time"]
        since = time.values.astype("datetime64[us]").astype(np.int64) / 1e6  # exact to the microsecond
        plain = plain.assign_coords(time=xr.Variable(time.dims, since, time.attrs | _TIME))
    for name, variable in plain.variables.items():
        if variable.dtype.kind in "OUT":
            coded = np.array([str(text).encode() for text in variable.values.tolist()])
            described = xr.Variable(variable.dims, coded, variable.attrs | {"_Encoding": "utf-8"})
            plain = plain.assign_coords({name: described})
    for name, variable in plain.variables.items():
        plain[name].encoding = {}
        plain[name].attrs = _characters(variable.attrs | _kind_of_temperature(variable.attrs))
    plain.attrs = _characters(plain.attrs)
    with whole_file(path) as temporary:
        plain.to_netcdf(
            temporary,
            engine="h5netcdf",
            format="NETCDF4",
            encoding=_encodings(plain),
            unlimited_dims=["time"] if "time" in plain.dims else [],
        )
    return path


def _georeferenced(group: xr.Dataset) -> xr.Dataset:
    """Add a grid mapping: GDAL then knows that these are degrees on WGS 84."""
    marked = group.assign(crs=xr.Variable((), np.int32(0), _WGS84))
    for name, variable in group.data_vars.items():
        if {"latitude", "longitude"} <= set(variable.dims):
            marked[name].attrs["grid_mapping"] = "crs"
    return marked


def _kind_of_temperature(attributes: Mapping[str, object]) -> dict[str, str]:
    """Say whether a temperature is one or the difference of two, as CF-1.11 asks (section 3.1.2)."""
    name, _, modifier = str(attributes.get("standard_name", "")).partition(" ")
    if "temperature" not in name.split("_"):
        return {}
    return {"units_metadata": f"temperature: {'difference' if modifier else 'on_scale'}"}


def _encodings(group: xr.Dataset) -> dict[str, dict[str, object]]:
    """Say how each variable lies in the file."""
    encodings: dict[str, dict[str, object]] = {}
    for key, variable in group.variables.items():
        name = str(key)
        whole = name in group.coords or name.endswith("_bnds") or variable.dtype.kind != "f"
        encodings[name] = {"_FillValue": None if whole else FILL}
        if variable.ndim and name not in group.coords:
            encodings[name] |= {"zlib": True, "complevel": 4, "shuffle": True}
        if "time" in variable.dims:
            shape = tuple(
                1 if dim == "time" and variable.ndim > 1 else n for dim, n in variable.sizes.items()
            )
            encodings[name]["chunksizes"] = chunk_shape(shape, item_bytes=variable.dtype.itemsize)
        if variable.dtype.kind == "S":
            encodings[name] = {"char_dim_name": f"{name}_length"}
    return encodings


def _characters(attributes: Mapping[str, object]) -> dict[str, object]:
    """Text of fixed length: some programs do not read netCDF-4 strings, nor others than ASCII in WKT."""
    return {
        name: np.bytes_(value.encode(*(("ascii", "replace") if name in _WKT else ())))
        if isinstance(value, str)
        else value
        for name, value in attributes.items()
    }
