"""Where the values of an xarray object lie: latitude, longitude and time, whatever their names.

Latitude and longitude may be the axes of a grid, coordinates along one dimension (stations), or have two
dimensions (rotated and other curvilinear grids).
"""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Mask
from cagp_dist.coordinates import find_axis, in_degrees, planes_among
from cagp_dist.errors import ArgumentError, DataError

XarrayObject = xr.DataArray | xr.Dataset

TIMES = ("time", "valid_time", "date", "datetime")
# Names of dimensions along which fields are told apart like times
MEMBERS = ("member", "number", "realization", "ensemble", "ensemble_member", "replicate", "sample")


@dataclass(frozen=True, eq=False)
class Horizontal:
    """Where the values of an object lie, in degrees: axes of a grid, or along the same dimensions."""

    latitude: xr.Variable
    longitude: xr.Variable
    dims: tuple[str, ...]  # latitude's first
    coordinates: dict[str, xr.Variable]  # these two, and every other along nothing but their dimensions

    @property
    def axes(self) -> tuple[Array, Array] | None:
        """Latitude and longitude axes in degrees if this is a grid, else None."""
        if len(self.dims) == 2 and self.latitude.ndim == self.longitude.ndim == 1:
            return np.clip(_degrees(self.latitude), -90.0, 90.0), _degrees(self.longitude)
        return None

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each dimension."""
        sizes = {**self.latitude.sizes, **self.longitude.sizes}
        return tuple(int(sizes[name]) for name in self.dims)

    @property
    def points(self) -> tuple[Array, Array]:
        """Latitude and longitude (n,) of every point; one that has none is put to one that has both."""
        latitude, longitude = np.clip(self._flat(self.latitude), -90.0, 90.0), self._flat(self.longitude)
        nowhere = self.nowhere
        if nowhere.any():
            known = int(np.argmin(nowhere))
            latitude, longitude = (np.where(nowhere, axis[known], axis) for axis in (latitude, longitude))
        return latitude, longitude

    @property
    def nowhere(self) -> Mask:
        """Points (n,) without latitude or longitude, such as the corners of a curvilinear grid."""
        return np.isnan(self._flat(self.latitude)) | np.isnan(self._flat(self.longitude))

    def _flat(self, axis: xr.Variable) -> Array:
        sizes = dict(zip(self.dims, self.shape, strict=True))
        return np.ascontiguousarray(_degrees(axis.set_dims(sizes).transpose(*self.dims))).reshape(-1)


def horizontal(given: XarrayObject) -> Horizontal:
    """Find latitude and longitude of an object."""
    found = {what: _find(given, what) for what in ("latitude", "longitude")}
    latitude, longitude = (_checked(name, given[name].variable, what) for what, name in found.items())
    dims = tuple(str(dim) for dim in dict.fromkeys((*latitude.dims, *longitude.dims)))
    for what, axis in (("latitude", latitude), ("longitude", longitude)):
        missing = np.isnan(_degrees(axis))
        if missing.all() or (missing.any() and latitude.dims != longitude.dims):
            raise DataError(
                f"{found[what]!r} has nan, which is no {what}; expected a number for each row of a grid. "
                f"Leave the others out: data.dropna({str(axis.dims[0])!r}) drops rows."
                if latitude.dims != longitude.dims
                else f"{found[what]!r} has nan alone, which is no {what}; expected degrees."
            )
    kept = {
        str(name): coordinate.variable
        for name, coordinate in given.coords.items()
        if coordinate.ndim > 0 and set(coordinate.dims) <= set(dims)
    }
    return Horizontal(
        latitude, longitude, dims, {**kept, found["latitude"]: latitude, found["longitude"]: longitude}
    )


def time_coordinate(given: xr.DataArray) -> str | None:
    """Name of the coordinate that says when, or None."""
    best: list[tuple[int, str]] = []
    for name, coordinate in given.coords.items():
        if coordinate.ndim > 1:
            continue
        attributes = coordinate.attrs
        is_time = coordinate.dtype.kind == "M" or str(name).lower() in TIMES
        if attributes.get("standard_name") == "time" or attributes.get("axis") == "T" or is_time:
            # valid_time before the time at which a forecast began; what spans a dimension before a scalar
            rank = (coordinate.ndim == 0) * 2 + (attributes.get("standard_name") == "forecast_reference_time")
            best.append((rank * 10 + (0 if str(name) == "valid_time" else 1), str(name)))
    return min(best)[1] if best else None


def field_dimension(values: xr.DataArray, where: Horizontal) -> str | None:
    """Name of the dimension along which fields follow each other, where there is one."""
    others = [str(dim) for dim in values.dims if dim not in where.dims]
    if not others:
        return None
    time = time_coordinate(values)
    times = {str(dim) for dim in values[time].dims} if time is not None else set()
    told = [dim for dim in others if dim in times or dim.lower() in (*TIMES, *MEMBERS)]
    if len(others) > 1 or not told:
        extra = next((dim for dim in others if dim not in told), others[-1])
        raise ArgumentError(
            f"{values.name!r} has the dimensions {tuple(values.dims)}; expected latitude, longitude and at "
            f"most a time beside them. Select one value of {extra!r} first: data.isel({extra}=0)."
        )
    return others[0]


def choose_variable(given: xr.Dataset, value: str | None) -> xr.DataArray:
    """Find the variable of a dataset that holds the values."""
    names = [str(name) for name in given.data_vars]
    listed = ", ".join(map(repr, names)) or "none"
    if value is not None:
        if value not in given.data_vars:
            raise ArgumentError(f"the dataset has no variable {value!r}; it has {listed}.")
        return given[value]
    where = horizontal(given)
    bounds = {str(variable.attrs.get("bounds")) for variable in given.variables.values()}
    fields = [
        name
        for name in names
        if set(where.dims) <= set(given[name].dims)
        and name not in bounds | set(where.coordinates)
        and given[name].dtype.kind in "fiu"
        and not name.lower().endswith(("_bnds", "_bounds", "_mask"))
    ]
    if len(fields) != 1:
        raise ArgumentError(
            f"the dataset has {len(fields)} variables on its latitudes and longitudes "
            f"""({", ".join(map(repr, fields)) or listed}); say which one is meant: value="NAME"."""
        )
    return given[fields[0]]


def _find(given: XarrayObject, what: str) -> str:
    """Name of the coordinate (or variable) that is a latitude or longitude."""
    pool = {str(name): given[name] for name in given.coords}
    if isinstance(given, xr.Dataset):
        pool |= {str(name): given[name] for name in given.data_vars}
    found = find_axis(pool, what)
    if found is not None:
        return found
    planes = planes_among((name, pool[name].attrs) for name in pool if {*pool[name].dims} <= {*given.dims})
    if planes:
        raise ArgumentError(f"no {what} was found: {planes}")
    raise ArgumentError(
        f"no {what} was found; the coordinates are {', '.join(map(repr, map(str, given.coords))) or 'none'}. "
        f"Rename one: data.rename(NAME='{what}'), or give it the attribute standard_name=\"{what}\"."
    )


def _checked(name: str, axis: xr.Variable, what: str) -> xr.Variable:
    """Latitudes or longitudes in degrees; as they are where they are so already."""
    held = np.asarray(axis.values)
    values = in_degrees(held, axis.attrs, what=repr(name), longitude=what == "longitude")
    low, high = (-90.0, 90.0) if what == "latitude" else (-360.0, 540.0)
    # a rounding beyond the pole, as float32 axes have it, is none
    wrong = (values < low - 1e-4) | (values > high + 1e-4)
    if wrong.any():
        raise DataError(
            f"{name!r} has {float(values[wrong].ravel()[0]):g}, which is no {what}; expected {low:g}.."
            f"{high:g} degrees. Check which coordinate is the {what}."
        )
    if np.array_equal(values, held, equal_nan=True):
        return axis
    kept = {key: value for key, value in axis.attrs.items() if key in ("standard_name", "long_name", "axis")}
    direction = "north" if what == "latitude" else "east"
    return xr.Variable(axis.dims, values, {**kept, "units": f"degrees_{direction}"})


def _degrees(axis: xr.Variable) -> Array:
    return np.asarray(axis.values, dtype=np.float64)
