"""Where the values of an xarray object lie: latitude, longitude and time, whatever their names.

Latitude and longitude may be the axes of a grid, coordinates along one dimension (stations), or have two
dimensions (rotated and other curvilinear grids). Where there are none, or where that is asked for, it is x
and y of a plane.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Mask
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.coordinates import find_axis, in_degrees, is_length, planes_among
from cagp_dist.fields.tables.column_names import X_NAMES, Y_NAMES, plain
from cagp_dist.space import SPHERE, CRSLike, Plane, Space, plane_of
from cagp_dist.space.systems import system_in, system_of_cf, variables_of

XarrayObject = xr.DataArray | xr.Dataset

TIMES = ("time", "valid_time", "date", "datetime")
# Names of dimensions along which fields are told apart like times
MEMBERS = ("member", "number", "realization", "ensemble", "ensemble_member", "replicate", "sample")


class Asked(NamedTuple):
    """What was said of a plane: names of x and y, and its system; nothing of places of the globe."""

    x: str | None = None
    y: str | None = None
    crs: CRSLike = None

    @property
    def any(self) -> bool:
        """Whether a plane is meant."""
        return any(each is not None for each in self)


ANYWHERE = Asked()


@dataclass(frozen=True, eq=False)
class Horizontal:
    """Where the values of an object lie: axes of a grid, or along the same dimensions."""

    north: xr.Variable  # latitude in degrees, or y of a plane
    east: xr.Variable  # longitude, or x
    dims: tuple[str, ...]  # those of north first
    coordinates: dict[str, xr.Variable]  # these two, and every other along nothing but their dimensions
    space: Space = SPHERE

    @property
    def axes(self) -> tuple[Array, Array] | None:
        """Axes of latitude and longitude, or of y and x, if this is a grid, else None."""
        if len(self.dims) == 2 and self.north.ndim == self.east.ndim == 1:
            return self._on_globe(_numbers(self.north)), _numbers(self.east)
        return None

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each dimension."""
        sizes = {**self.north.sizes, **self.east.sizes}
        return tuple(int(sizes[name]) for name in self.dims)

    @property
    def points(self) -> tuple[Array, Array]:
        """Latitude and longitude (n,), or y and x, of every point; one without is put to one with both."""
        north, east = self._on_globe(self._flat(self.north)), self._flat(self.east)
        nowhere = self.nowhere
        if nowhere.any():
            known = int(np.argmin(nowhere))
            north, east = (np.where(nowhere, axis[known], axis) for axis in (north, east))
        return north, east

    @property
    def nowhere(self) -> Mask:
        """Points (n,) without coordinates, such as the corners of a curvilinear grid."""
        return np.isnan(self._flat(self.north)) | np.isnan(self._flat(self.east))

    def _on_globe(self, north: Array) -> Array:
        """Latitudes without a rounding beyond the poles."""
        return np.clip(north, -90.0, 90.0) if self.space.has_latitudes else north

    def _flat(self, axis: xr.Variable) -> Array:
        sizes = dict(zip(self.dims, self.shape, strict=True))
        return np.ascontiguousarray(_numbers(axis.set_dims(sizes).transpose(*self.dims))).reshape(-1)


def located(given: XarrayObject, values: xr.DataArray | None = None, asked: Asked = ANYWHERE) -> Horizontal:
    """Find where an object lies: on a plane that is asked for or alone there, else on the globe."""
    on_globe = all(find_axis(variables_of(given), what) is not None for what in ("latitude", "longitude"))
    flat = None if on_globe and not asked.any else on_plane(given, values, asked)
    return horizontal(given) if flat is None else flat


def on_plane(
    given: XarrayObject, values: xr.DataArray | None = None, asked: Asked = ANYWHERE
) -> Horizontal | None:
    """Find x and y, and the system that is said or written; None where there are none and none are said."""
    written = system_in(given, values) if asked.crs is None else None
    pool = {
        name: axis for name, axis in variables_of(given).items() if axis.ndim > 0 and axis.dtype.kind in "fiu"
    }
    known = written is not None or asked.crs is not None
    found = [
        _plane_axis(pool, letter, name, known=known) for letter, name in (("x", asked.x), ("y", asked.y))
    ]
    if None in found:
        if not asked.any:
            return None
        raise ArgumentError(
            f"no {'x' if found[0] is None else 'y'} was found; the coordinates are "
            f"{', '.join(map(repr, pool)) or 'none'}. Name both of a plane in columns, as x and y."
        )
    names = str(found[0]), str(found[1])
    east, north = (pool[name].variable for name in names)
    units = [str(axis.attrs.get("units", "")).strip() for axis in (east, north)]
    if units[0] != units[1]:
        raise DataError(
            f"{names[0]!r} is in {units[0]!r} and {names[1]!r} in {units[1]!r}; expected one unit."
        )
    for name, axis in zip(names, (east, north), strict=True):
        if not np.isfinite(_numbers(axis)).all():
            raise DataError(f"{name!r} is not finite everywhere; expected a number for each row of a grid.")
    crs, mapping = asked.crs, None
    if written is not None:
        crs, mapping = system_of_cf(written[0], written[1].attrs), dict([written])
    plane = plane_of(crs, names=names, unit=units[0], mapping=mapping)
    dims = tuple(str(dim) for dim in dict.fromkeys((*north.dims, *east.dims)))
    east, north = (_described(axis, plane, letter) for letter, axis in (("x", east), ("y", north)))
    return Horizontal(north, east, dims, {**_beside(given, dims), names[1]: north, names[0]: east}, plane)


def _described(axis: xr.Variable, plane: Plane, letter: str) -> xr.Variable:
    """Give x or y CF attributes and its own long name."""
    about = plane.axes[letter] | {key: text for key, text in axis.attrs.items() if key == "long_name"}
    return xr.Variable(axis.dims, _numbers(axis), about)


def _plane_axis(pool: dict[str, xr.DataArray], letter: str, name: str | None, *, known: bool) -> str | None:
    """Name of the x or y of a plane: as said, by its standard name, else by its name where it is a length."""
    if name is not None:
        if name not in pool:
            raise ArgumentError(
                f"{letter} is {name!r}; expected the name of a coordinate, "
                f"{' or '.join(map(repr, pool)) or 'of which there is none'}."
            )
        return name
    usual = X_NAMES if letter == "x" else Y_NAMES
    tests = (
        lambda name, axis: axis.attrs.get("standard_name") == f"projection_{letter}_coordinate",
        lambda name, axis: axis.attrs.get("axis") == letter.upper() and (known or is_length(axis.attrs)),
        lambda name, axis: plain(name) in usual and (known or is_length(axis.attrs)),
    )
    for test in tests:
        for name, axis in pool.items():
            if test(name, axis):
                return name
    return None


def _beside(given: XarrayObject, dims: Iterable[str]) -> dict[str, xr.Variable]:
    """Coordinates along nothing but some dimensions."""
    return {
        str(name): coordinate.variable
        for name, coordinate in given.coords.items()
        if coordinate.ndim > 0 and set(coordinate.dims) <= set(dims)
    }


def horizontal(given: XarrayObject) -> Horizontal:
    """Find latitude and longitude of an object."""
    found = {what: _find(given, what) for what in ("latitude", "longitude")}
    latitude, longitude = (_checked(name, given[name].variable, what) for what, name in found.items())
    dims = tuple(str(dim) for dim in dict.fromkeys((*latitude.dims, *longitude.dims)))
    for what, axis in (("latitude", latitude), ("longitude", longitude)):
        missing = np.isnan(_numbers(axis))
        if missing.all() or (missing.any() and latitude.dims != longitude.dims):
            raise DataError(
                f"{found[what]!r} has nan, which is no {what}; expected a number for each row of a grid. "
                f"Leave the others out: data.dropna({str(axis.dims[0])!r}) drops rows."
                if latitude.dims != longitude.dims
                else f"{found[what]!r} has nan alone, which is no {what}; expected degrees."
            )
    return Horizontal(
        latitude,
        longitude,
        dims,
        {**_beside(given, dims), found["latitude"]: latitude, found["longitude"]: longitude},
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


def choose_variable(given: xr.Dataset, value: str | None, asked: Asked = ANYWHERE) -> xr.DataArray:
    """Find the variable of a dataset that holds the values."""
    names = [str(name) for name in given.data_vars]
    listed = ", ".join(map(repr, names)) or "none"
    if value is not None:
        if value not in given.data_vars:
            raise ArgumentError(f"the dataset has no variable {value!r}; it has {listed}.")
        return given[value]
    where = located(given, None, asked)
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
            f"the dataset has {len(fields)} variables on its {where.space.what} "
            f"""({", ".join(map(repr, fields)) or listed}); say which one is meant: value="NAME"."""
        )
    return given[fields[0]]


def _find(given: XarrayObject, what: str) -> str:
    """Name of the coordinate (or variable) that is a latitude or longitude."""
    pool = variables_of(given)
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


def _numbers(axis: xr.Variable) -> Array:
    return np.asarray(axis.values, dtype=np.float64)
