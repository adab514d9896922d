"""What the axes of an xarray object are, by the attributes of CF first, then by their names.

Latitude and longitude may be the axes of a grid, coordinates along one dimension (stations), or have two
dimensions (curvilinear grids). Where there are none, or where that is asked for, it is x and y of a plane.
The other axes are times, reference times and forecast steps, levels, members and versions.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import cast

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Mask, Times
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.calendars import STANDARD, calendar_of, decode, standard_dates
from cagp_dist.fields.column_names import X_NAMES, Y_NAMES, counted_from, plain, unit_of_length
from cagp_dist.fields.coordinates import ROTATED, find_axis, in_degrees, is_length, of_a_plane, planes_among
from cagp_dist.fields.missing import unpacked
from cagp_dist.fields.selection import ANYWHERE, Asked
from cagp_dist.fields.zones import zone_of
from cagp_dist.remedies import Setting
from cagp_dist.space import SPHERE, Plane, Space, plane_of
from cagp_dist.space.systems import describes_system, system_in, system_of_cf, variables_of
from cagp_dist.variables.units import conversion

XarrayObject = xr.DataArray | xr.Dataset

ROTATED_MAPPING = "rotated_latitude_longitude"  # name of the grid mapping of CF


class Role(Enum):
    """What an axis that does not say where tells: the standard names of CF, and usual names."""

    REFERENCE = (
        ("forecast_reference_time",),
        ("forecast_reference_time", "reference_time", "reftime", "analysis_time", "initial_time", "init_time",
         "initialization_time", "init", "base_time", "basetime", "run_time"),
    )  # fmt: skip
    STEP = (
        ("forecast_period",),
        ("step", "lead", "lead_time", "leadtime", "forecast_period", "prediction_timedelta", "forecast_hour",
         "fhour"),
    )  # fmt: skip
    TIME = (("time",), ("valid_time", "time", "date", "datetime"))
    LEVEL = (
        ("air_pressure", "height", "altitude", "depth", "model_level_number", "sea_water_pressure",
         "atmosphere_hybrid_sigma_pressure_coordinate"),
        ("level", "levels", "lev", "plev", "pressure", "pressure_level", "isobaricinhpa", "isobaricinpa",
         "height", "heightaboveground", "altitude", "depth", "depthbelowland", "depthbelowlandlayer",
         "hybrid", "model_level", "theta", "potentialvorticity", "layer", "deptht", "olevel"),
    )  # fmt: skip
    MEMBER = (
        ("realization",),
        ("member", "number", "realization", "ensemble", "ensemble_member", "replicate", "sample"),
    )
    VERSION = ((), ("expver",))


def role_of(name: str, axis: xr.Variable | xr.DataArray | None = None) -> Role | None:
    """Tell what an axis is, or a dimension without values; None of those that say where, and of others."""
    attributes = {} if axis is None else axis.attrs
    standard, spelled = attributes.get("standard_name"), name.lower()
    for position, told in enumerate((standard, spelled)):
        for role in Role:
            if told in role.value[position]:
                return role
    if attributes.get("axis") == "T" or (axis is not None and are_dates(axis)):
        return Role.TIME
    return Role.LEVEL if attributes.get("axis") == "Z" or "positive" in attributes else None


def is_axis_by_name(name: str) -> bool:
    """Whether a name alone may tell what an axis or a scalar coordinate is."""
    unknown = {name: xr.Variable((), 0.0)}
    return (
        role_of(name) is not None
        or plain(name) in (*X_NAMES, *Y_NAMES)
        or any(find_axis(unknown, what) is not None for what in ("latitude", "longitude"))
    )


def are_dates(axis: xr.Variable | xr.DataArray) -> bool:
    """Whether an axis holds dates, also of the package cftime."""
    dates = axis.dtype.kind == "O" and axis.size and hasattr(axis.values.flat[0], "month")
    return axis.dtype.kind == "M" or bool(dates)


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
        """Points (n,) without coordinates, such as the corners of a curvilinear grid.

        Of several at 0, 0 the model was not run there.
        """
        north, east = self._flat(self.north), self._flat(self.east)
        return np.isnan(north) | np.isnan(east) | self._unset(north, east)

    def _unset(self, north: Array, east: Array) -> Mask:
        """Which points of a curvilinear grid stand together at 0, 0."""
        zero = (north == 0.0) & (east == 0.0)
        together = self.north.ndim > 1 and int(np.count_nonzero(zero)) > 1
        return zero if together else np.zeros_like(zero)

    def check_nowhere(self, values: NDArray[np.floating], name: str) -> None:
        """Refuse values (T, m) of the points without coordinates: those of nothing are passed over.

        So is one number alone at points at 0, 0.
        """
        nowhere = self.nowhere
        unset = self._unset(self._flat(self.north), self._flat(self.east))[nowhere]
        there = ~np.isnan(values)
        if np.unique(values[:, unset][there[:, unset]]).size == 1:
            there[:, unset] = False
        lost = int(np.count_nonzero(there.any(axis=0)))
        if lost:
            raise DataError(
                f"{lost} points of {name!r} have values and no {self.space.what}; expected both, or neither. "
                "Correct the coordinates, or leave these values out with data.where(...).",
                key="no-place",
            )

    def _on_globe(self, north: Array) -> Array:
        """Latitudes without a rounding beyond the poles."""
        return np.clip(north, -90.0, 90.0) if self.space.has_latitudes else north

    def _flat(self, axis: xr.Variable) -> Array:
        sizes = dict(zip(self.dims, self.shape, strict=True))
        return np.ascontiguousarray(_numbers(axis.set_dims(sizes).transpose(*self.dims))).reshape(-1)


def located(given: XarrayObject, values: xr.DataArray | None = None, asked: Asked = ANYWHERE) -> Horizontal:
    """Find where an object, or a variable of it, lies: on a plane if asked for or alone, else on a globe."""
    on_globe = not asked.any and None not in _on_the_globe(given, values).values()
    flat = None if on_globe else on_plane(given, values, asked)
    return horizontal(given, values) if flat is None else flat


def _near(given: XarrayObject, values: xr.DataArray | None) -> dict[str, xr.Variable]:
    """Give the variables that may say where an object, or a variable of it, lies; WRF repeats its places."""
    every = variables_of(given)
    if values is None:
        return every
    every |= variables_of(values)
    fixed = {name: _fixed(name, axis) for name, axis in every.items() if name != values.name}
    return {name: axis for name, axis in fixed.items() if axis.ndim <= 2 and {*axis.dims} <= {*values.dims}}


def _fixed(name: str, axis: xr.Variable) -> xr.Variable:
    """Take places of the first time, where those of all times are the same."""
    if axis.ndim < 3:
        return axis
    axis = axis.squeeze([dim for dim in axis.dims if axis.sizes[dim] == 1])
    if axis.ndim == 3 and any(find_axis({name: axis}, what) for what in ("latitude", "longitude")):
        held = axis.values  # read once
        return axis[0] if bool((held == held[:1]).all()) else axis
    return axis


def _on_the_globe(given: XarrayObject, values: xr.DataArray | None) -> dict[str, str | None]:
    """Names of the latitude and the longitude, by what they are; None where there is none.

    Of a rotated grid its axes are none; of a system of degrees, as GeoTIFF has it, y and x are.
    """
    near, mapping = _near(given, values), _mapping_in(given, values)
    found = {what: find_axis(near, what) for what in ("latitude", "longitude")}
    north, east = (None if name is None else near[name] for name in found.values())
    if mapping.get("grid_mapping_name") == ROTATED_MAPPING:
        axes = north is not None and east is not None and north.dims != east.dims
        return dict.fromkeys(found) if axes else found
    system = str(mapping.get("crs_wkt", mapping.get("spatial_ref", "")))
    degrees = mapping.get("grid_mapping_name") == "latitude_longitude" or system.startswith(_GEOGRAPHIC)
    if degrees and north is None and east is None:
        letters = {"latitude": "y", "longitude": "x"}
        return {what: _plane_axis(near, letter, None, known=True) for what, letter in letters.items()}
    return found


_GEOGRAPHIC = ("GEOGCS", "GEOGCRS", "GEODCRS", "GEOGRAPHICCRS")  # how WKT of systems of degrees begins


def _mapping_in(given: XarrayObject, values: xr.DataArray | None) -> Mapping[str, object]:
    """Attributes of the grid mapping of an object; of one that is named and not there none."""
    if not any(describes_system(each) for each in variables_of(given).values()):
        return {}
    found = system_in(given, values)
    return {} if found is None else {str(key): told for key, told in found[1].attrs.items()}


def on_plane(
    given: XarrayObject, values: xr.DataArray | None = None, asked: Asked = ANYWHERE
) -> Horizontal | None:
    """Find x and y, and the system that is said or written; None where there are none and none are said."""
    if not asked.any and _mapping_in(given, values).get("grid_mapping_name") == ROTATED_MAPPING:
        return None
    written = system_in(given, values) if asked.crs is None else None
    pool = {
        name: axis
        for name, axis in _near(given, values).items()
        if axis.ndim > 0 and axis.dtype.kind in "fiu"
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
            f"{', '.join(map(repr, pool)) or 'none'}.",
            key="no-places",
            remedies=(Setting("columns", {"x": "NAME", "y": "NAME"}),),
        )
    names = str(found[0]), str(found[1])
    if backward := [name for name in names if counted_from(name)]:
        raise DataError(
            f"{backward[0]!r} counts to the {counted_from(backward[0])} by its name; expected x to the east "
            "and y to the north. Turn its sign, and its name.",
            key="sign",
        )
    east, north = (pool[name] for name in names)
    east, north = (_out_of_angles(axis, written) for axis in (east, north))
    units = [
        str(axis.attrs.get("units", "")).strip() or unit_of_length(name)
        for name, axis in zip(names, (east, north), strict=True)
    ]
    if units[0] != units[1]:
        raise DataError(
            f"{names[0]!r} is in {units[0]!r} and {names[1]!r} in {units[1]!r}; expected one unit.",
            key="units",
        )
    for name, axis in zip(names, (east, north), strict=True):
        if not np.isfinite(_numbers(axis)).all():
            raise DataError(
                f"{name!r} is not finite everywhere; expected a number for each row of a grid.", key="places"
            )
    crs, mapping = asked.crs, None
    if written is not None:
        crs, mapping = system_of_cf(written[0], written[1].attrs), dict([written])
    plane = plane_of(crs, names=names, unit=units[0], mapping=mapping)
    dims = tuple(str(dim) for dim in dict.fromkeys((*north.dims, *east.dims)))
    east, north = (_described(axis, plane, letter) for letter, axis in (("x", east), ("y", north)))
    return Horizontal(north, east, dims, {**_beside(given, dims), names[1]: north, names[0]: east}, plane)


def _out_of_angles(axis: xr.Variable, system: tuple[str, xr.Variable] | None) -> xr.Variable:
    """Bring scan angles of a geostationary satellite to metres, by the height that CF has for them."""
    angle = conversion(str(axis.attrs.get("units", "")), "rad")
    height = None if system is None else system[1].attrs.get("perspective_point_height")
    if angle is None or height is None or not str(axis.attrs.get("units", "")).strip():
        return axis
    radians = angle[0] * unpacked(axis.values, axis.attrs, what="a scan angle")
    told = {key: text for key, text in axis.attrs.items() if key in ("standard_name", "long_name", "axis")}
    return xr.Variable(axis.dims, radians * float(height), told | {"units": "m"})


def _described(axis: xr.Variable, plane: Plane, letter: str) -> xr.Variable:
    """Give x or y CF attributes and its own long name."""
    about = plane.axes[letter] | {key: text for key, text in axis.attrs.items() if key == "long_name"}
    return xr.Variable(axis.dims, _numbers(axis), about)


def _plane_axis(pool: dict[str, xr.Variable], letter: str, name: str | None, *, known: bool) -> str | None:
    """Name of the x or y of a plane: as said, by its standard name, else by its name where it is a length."""
    if name is not None:
        if name not in pool:
            raise ArgumentError(
                f"{letter} is {name!r}; expected the name of a coordinate, "
                f"{' or '.join(map(repr, pool)) or 'of which there is none'}.",
                key="columns",
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


def horizontal(given: XarrayObject, values: xr.DataArray | None = None) -> Horizontal:
    """Find latitude and longitude of an object, or of a variable of it."""
    near = _near(given, values)
    found = {}
    for what, name in _on_the_globe(given, values).items():
        if name is None:
            raise _nowhere(given, values, what)
        found[what] = name
    latitude, longitude = (_checked(name, near[name], what) for what, name in found.items())
    if latitude.dims != longitude.dims and (latitude.ndim, longitude.ndim) != (1, 1):
        raise DataError(
            f"{found['latitude']!r} has the dimensions {latitude.dims} and {found['longitude']!r} "
            f"{longitude.dims}; expected an axis each, or both along the same dimensions.",
            key="places",
        )
    dims = tuple(str(dim) for dim in dict.fromkeys((*latitude.dims, *longitude.dims)))
    for what, axis in (("latitude", latitude), ("longitude", longitude)):
        missing = np.isnan(_numbers(axis))
        if (missing.size and missing.all()) or (missing.any() and latitude.dims != longitude.dims):
            raise DataError(
                f"{found[what]!r} has nan, which is no {what}; expected a number for each row of a grid. "
                f"Leave the others out: data.dropna({str(axis.dims[0])!r}) drops rows."
                if latitude.dims != longitude.dims
                else f"{found[what]!r} has nan alone, which is no {what}; expected degrees.",
                key="degrees",
            )
    return Horizontal(
        latitude,
        longitude,
        dims,
        {**_beside(given, dims), found["latitude"]: latitude, found["longitude"]: longitude},
    )


def _nowhere(given: XarrayObject, values: xr.DataArray | None, what: str) -> DataError:
    """Say that there is no latitude or longitude, and what there is instead."""
    near, every = _near(given, values), variables_of(given)
    dims = {*given.dims} if values is None else {*values.dims}
    of = "the object" if values is None else repr(values.name)
    rotated = _mapping_in(given, values).get("grid_mapping_name") == ROTATED_MAPPING
    planes = planes_among((name, near[name].attrs) for name in near if {*near[name].dims} <= dims)
    if rotated or planes:
        said = planes or f"its axes are {ROTATED}"
        return of_a_plane(f"{of} has no {what}: {said}")
    elsewhere = find_axis(every, what)
    if values is not None and elsewhere is not None:
        return DataError(
            f"{of} has the dimensions {values.dims}, and its {what} {elsewhere!r} "
            f"has {every[elsewhere].dims}; expected a grid, or a latitude and a longitude for each of its "
            "places.",
            key="places",
        )
    return DataError(
        f"no {what} was found; the coordinates are {', '.join(map(repr, map(str, given.coords))) or 'none'}.",
        key="no-places",
        remedies=(Setting("columns", {"latitude": "NAME", "longitude": "NAME"}),),
    )


def _checked(name: str, axis: xr.Variable, what: str) -> xr.Variable:
    """Latitudes or longitudes in degrees; as they are where they are so already."""
    held = np.asarray(axis.values)
    values = in_degrees(held, axis.attrs, name=name, what=repr(name), longitude=what == "longitude")
    low, high = (-90.0, 90.0) if what == "latitude" else (-360.0, 540.0)
    # a rounding beyond the pole, as float32 axes have it, is none
    wrong = (values < low - 1e-4) | (values > high + 1e-4)
    if wrong.any():
        raise DataError(
            f"{name!r} has {float(values[wrong].ravel()[0]):g}, which is no {what}; expected {low:g}.."
            f"{high:g} degrees. Check which coordinate is the {what}.",
            key="degrees",
        )
    if np.array_equal(values, held, equal_nan=True):
        return axis
    kept = {key: value for key, value in axis.attrs.items() if key in ("standard_name", "long_name", "axis")}
    direction = "north" if what == "latitude" else "east"
    return xr.Variable(axis.dims, values, {**kept, "units": f"degrees_{direction}"})


def _numbers(axis: xr.Variable) -> Array:
    return np.asarray(axis.values, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Clock:
    """When the fields of a variable hold."""

    name: str  # of the coordinate
    axis: xr.Variable  # as the object has it, of no dimension, one or, of starts and steps, two
    of_steps: bool = False  # whether it was added up of reference times and forecast steps

    def moments(self) -> Times | None:
        """Give the axis as dates of the standard calendar; None where it has none."""
        return moments_of(self.axis)


def clock_of(given: xr.Dataset, values: xr.DataArray) -> Clock | None:
    """Find what says when a variable holds: a time, or the start of a forecast and a step; None if nothing.

    A time of another name counts where it has dates. The start of a forecast is when its fields hold only
    where there is no step.
    """
    near: dict[Role | None, dict[str, xr.Variable]] = {}
    for name, axis in {**variables_of(given), **variables_of(values)}.items():
        named = name in given.coords or name in values.coords or _is_named(name, axis)
        if name != values.name and named and axis.ndim <= 2 and {*axis.dims} <= {*values.dims}:
            near.setdefault(role_of(name, axis), {})[name] = axis
    times, starts, steps = (near.get(role, {}) for role in (Role.TIME, Role.REFERENCE, Role.STEP))

    def rank(name: str) -> tuple[bool, ...]:
        axis = times[name]
        told = axis.attrs.get("standard_name") == "time" or axis.attrs.get("axis") == "T"
        return axis.ndim == 0, name != "valid_time", not told, not _is_named(name, axis)

    ranked = sorted(times, key=rank)
    if len(ranked) > 1 and rank(ranked[0]) == rank(ranked[1]) == (False, True, True, True):
        raise DataError(
            f"{values.name!r} has the dates {ranked[0]!r} and {ranked[1]!r}, and it cannot be told which say "
            'when it holds; expected one, or one with the attribute standard_name="time".',
            key="several-times",
        )
    first = next(iter(ranked), None)
    step = next(iter(steps), None)
    if first is not None and not (
        step is not None and _is_start((first, times[first]), (step, steps[step]), str(values.name))
    ):
        return Clock(first, _in_utc(first, times[first]), of_steps=times[first].ndim == 2)
    start = first or min(starts, key=lambda name: starts[name].ndim == 0, default=None)
    if start is None:
        return None
    begins = (times | starts)[start]
    if step is None:
        return Clock(start, _in_utc(start, begins))
    after, begun = _since_start(steps[step]), moments_of(_in_utc(start, begins))
    if after is None or begun is None:
        raise DataError(
            f"{start!r} says when the forecast {values.name!r} begins, and its step {step!r} has the units "
            f"{str(steps[step].attrs.get('units', ''))!r}, so that it cannot be told when it holds; expected "
            "hours, or a coordinate valid_time.",
            key="forecast-step",
        )
    holds = xr.DataArray(begun, dims=begins.dims) + xr.DataArray(after, dims=steps[step].dims)
    about = {"standard_name": "time", "long_name": "time"}
    return Clock("valid_time", xr.Variable(holds.dims, holds.values, about), of_steps=True)


def _in_utc(name: str, axis: xr.Variable) -> xr.Variable:
    """Bring times to UTC, if they state another zone; texts are those of a table."""
    zone = zone_of(name, axis.attrs)
    moments = None if zone is None or zone.is_utc else moments_of(axis)
    if zone is None or moments is None:
        return axis
    found = zone.in_utc(moments.reshape(-1), name, column=False).reshape(axis.shape)
    if np.isnat(found).any():
        raise DataError(
            f"{name!r} has times that clocks in {zone.said} showed twice or never; expected times in UTC.",
            key="time-zone",
        )
    kept = {key: text for key, text in axis.attrs.items() if key not in ("units", "calendar")}
    return xr.Variable(axis.dims, found, {**kept, "time_zone": "UTC"})


def _is_named(name: str, axis: xr.Variable) -> bool:
    """Whether an axis is one of times or steps by its standard name or its name, not by its values alone."""
    told = axis.attrs.get("standard_name"), name.lower()
    return any(told[at] in role.value[at] for role in (Role.TIME, Role.REFERENCE, Role.STEP) for at in (0, 1))


def _is_start(dated: tuple[str, xr.Variable], stepped: tuple[str, xr.Variable], name: str) -> bool:
    """Whether a time is that at which forecasts begin: it does not say what it is, and steps have an axis."""
    (called, time), (called_step, step) = dated, stepped
    says = called == "valid_time" or time.attrs.get("standard_name") == "time"
    if says or time.ndim == 2 or not _is_named(called, time):
        return False
    if step.ndim == 1 and step.size > 1 and step.dims != time.dims:
        return True
    after = _since_start(step)
    if after is not None and (after != np.timedelta64(0)).any():
        raise DataError(
            f"{name!r} has the time {called!r} and the forecast step {called_step!r}, and it "
            "cannot be told whether it is when the forecast begins or when it holds; expected a coordinate "
            'valid_time, or the attribute standard_name of the time, "time" or "forecast_reference_time".',
            key="forecast-step",
        )
    return False


def _since_start(step: xr.Variable) -> NDArray[np.timedelta64] | None:
    """Forecast steps as differences of times; None where their unit is not known."""
    if step.dtype.kind == "m":
        return np.asarray(step.values.astype("timedelta64[ns]"))
    unit = str(step.attrs.get("units", "")).strip().lower()
    seconds = next((size for names, size in _UNITS_OF_STEPS.items() if unit in names), None)
    if step.dtype.kind not in "fiu" or (seconds is None and (step.values != 0).any()):
        return None
    return np.asarray(np.rint(step.values * (seconds or 0.0)).astype("timedelta64[s]"))


_UNITS_OF_STEPS = {
    ("h", "hr", "hrs", "hour", "hours"): 3600.0,
    ("d", "day", "days"): 86400.0,
    ("min", "minute", "minutes"): 60.0,
    ("s", "sec", "second", "seconds"): 1.0,
}


def moments_of(axis: xr.Variable) -> Times | None:
    """Give times as dates of the standard calendar, also counted ones; None where they are no dates."""
    if axis.dtype.kind == "M":
        return cast("Times", np.asarray(axis.values))
    if are_dates(axis):
        return standard_dates(axis.values)
    units = str(axis.attrs.get("units", "")).strip()
    if axis.dtype.kind in "fiu" and _YEARS.fullmatch(units.lower()):
        return _of_years(np.asarray(axis.values, dtype=np.float64))
    if axis.dtype.kind in "fiu" and " since " in units and calendar_of(axis.attrs) in STANDARD:
        decoded = decode(xr.Dataset({"times": axis})).variables["times"]
        return cast("Times", np.asarray(decoded.values)) if decoded.dtype.kind == "M" else None
    return None


_YEARS = re.compile(r"(decimal )?years?( (a\.?d\.?|c\.?e\.?))?|common_years?|calendar_years?")


def _of_years(years: Array) -> Times:
    """Give decimal years as times, to the hour: 2019.5 is the middle of 2019."""
    if not ((years >= 1678.0) & (years < 2262.0)).all():  # of NaN, too
        raise DataError(
            f"the decimal years of the field reach from {years.min():g} to {years.max():g}; expected "
            "1678..2261. Cut the file to these first.",
            key="years",
        )
    whole = np.floor(years).astype(np.int64)
    start, end = ((whole + more - 1970).astype("datetime64[Y]").astype("datetime64[h]") for more in (0, 1))
    hours = np.rint((years - whole) * (end - start).astype(np.float64)).astype("timedelta64[h]")
    return np.asarray((start + hours).astype("datetime64[ns]"))
