"""Where a map is, by the Zarr conventions ``proj:`` and ``spatial:``, for viewers and GeoZarr readers.

https://github.com/zarr-conventions/proj and /spatial. Their list ``zarr_conventions`` is left out: NetCDF has
no attributes that are mappings, and a group of a run can be written as NetCDF.
"""

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array

PREFIXES = ("proj:", "spatial:")

_AXES = ["latitude", "longitude"]


def georeferenced(group: xr.Dataset) -> xr.Dataset:
    """Add the coordinate reference system and the extent of a grid of degrees; other groups stay as they are.

    Coordinates are of the middles of cells, the extent is that of the cells.
    """
    if not set(_AXES) <= set(group.dims) or min(group.sizes[axis] for axis in _AXES) < 2:
        return group
    y, x = (np.asarray(group[axis].values, dtype=np.float64) for axis in _AXES)
    x = np.unwrap(x, period=360.0)  # across Greenwich without a jump
    (south, north), (west, east) = _edges(y), _edges(x)
    least, most = np.clip([min(south, north), max(south, north)], -90.0, 90.0).tolist()
    attributes: dict[str, object] = {
        "proj:code": "EPSG:4326",
        "spatial:dimensions": _AXES,
        "spatial:shape": [y.size, x.size],
        "spatial:bbox": [min(west, east), least, max(west, east), most],
        "spatial:registration": "pixel",
    }
    if _even(y) and _even(x):
        step_x, step_y = (east - west) / x.size, (north - south) / y.size
        attributes |= {
            "spatial:transform_type": "affine",
            "spatial:transform": [step_x, 0.0, west, 0.0, step_y, south],
        }
    else:
        attributes["spatial:transform_type"] = "lookup"
    return group.assign_attrs(attributes)


def _edges(axis: Array) -> tuple[float, float]:
    """Outer edges of the first and the last cell."""
    return float(1.5 * axis[0] - 0.5 * axis[1]), float(1.5 * axis[-1] - 0.5 * axis[-2])


def _even(axis: Array) -> bool:
    """Whether the cells of an axis have one size."""
    steps = np.diff(axis)
    return bool(np.ptp(steps) <= 1e-6 * np.abs(steps).max())
