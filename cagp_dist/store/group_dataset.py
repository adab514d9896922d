"""A group of a published run as a data set: shapes checked, names and CF attributes from the table."""

from collections.abc import Mapping

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from cagp_dist.errors import ArgumentError
from cagp_dist.store.published_variables import COORDINATES, MISSING, STATION_NAME, table
from cagp_dist.variables import Variable


def dataset(
    group: str,
    coordinates: Mapping[str, xr.Variable],
    arrays: Mapping[str, ArrayLike],
    variable: Variable,
    *,
    title: str,
) -> xr.Dataset:
    """Build the data set of a group; an array without its leading axis is repeated along it."""
    lengths = {str(dim): size for each in coordinates.values() for dim, size in each.sizes.items()}
    data: dict[str, xr.Variable] = {}
    for name, values in arrays.items():
        described, array = table(variable)[group][name], np.asarray(values)
        expected = tuple(
            lengths.setdefault(dim, array.shape[axis] if axis < array.ndim else 1)
            for axis, dim in enumerate(described.dims)
        )
        repeats = name.endswith(("_std", "_std_computational")) or expected[:1] == (1,)
        if array.shape != expected and not (repeats and array.shape == expected[1:]):
            raise ArgumentError(
                f"{name} of group {group!r} has shape {array.shape}; expected {expected}, "
                f"dimensions {described.dims}. A posterior mean of shape (q, T) must be transposed."
            )
        if array.dtype.kind == "f":
            array = array.astype(np.float64)
        data[name] = xr.Variable(described.dims, np.broadcast_to(array, expected), described.attributes)
    return xr.Dataset(data, dict(coordinates), {"Conventions": "CF-1.13", "title": title})


def coordinates_of(
    times: ArrayLike,
    latitude_degrees: ArrayLike,
    longitude_degrees: ArrayLike,
    names: ArrayLike | None = None,
    *,
    grid: bool = False,
) -> dict[str, xr.Variable]:
    """Coordinates of times and points (q,), with their names if they have any, or of the axes of a grid."""
    found = {"time": coordinate("time", "time", times)}
    for name, axis, degrees in (("latitude", "Y", latitude_degrees), ("longitude", "X", longitude_degrees)):
        found[name] = coordinate(name, name if grid else "point", degrees, axis=axis if grid else None)
    return found if names is None else {**found, STATION_NAME: coordinate(STATION_NAME, "point", names)}


def coordinate(name: str, dimension: str, values: ArrayLike, *, axis: str | None = None) -> xr.Variable:
    """Make a coordinate of a vector: times in nanoseconds, other numbers with a point as float64."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ArgumentError(f"{name} has shape {array.shape}; expected a vector.")
    if name == "time":
        if array.dtype.kind != "M":
            raise ArgumentError(f"time has dtype {array.dtype}; expected datetime64, UTC.")
        array = array.astype("datetime64[ns]")
    elif array.dtype.kind == "f":
        array = array.astype(np.float64)
    return xr.Variable(dimension, array, {**COORDINATES[name], **({"axis": axis} if axis else {})})


def counting_missing(group: xr.Dataset, name: str) -> xr.Dataset:
    """Say how many values of an array are missing, if there are any: else a run may not have them."""
    missing = int(np.isnan(group[name].values).sum())
    return group.assign_attrs({MISSING: missing}) if missing else group
