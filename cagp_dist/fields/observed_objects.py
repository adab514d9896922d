"""What was observed, from an xarray object, a table or arrays, and what results take over from it."""

import warnings
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from cagp_dist.arrays import Array, Marks
from cagp_dist.checks import as_numbers
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.axes import (
    Asked,
    Horizontal,
    choose_variable,
    field_dimension,
    located,
    time_coordinate,
)
from cagp_dist.fields.calendars import SOURCE_CALENDAR, calendar_of_dates, evenly_counted
from cagp_dist.fields.column_roles import in_roles
from cagp_dist.fields.missing import observations
from cagp_dist.fields.named_sources import is_source, open_named
from cagp_dist.fields.selection import shown_time
from cagp_dist.fields.sources import noise_of_transformed
from cagp_dist.fields.tables import Table, TableLike, by_time_and_place, noise_factor, read_table, row_by_row
from cagp_dist.mapping import Observations
from cagp_dist.space import SPHERE, CRSLike, Space, plane_of
from cagp_dist.space.systems import describes_system
from cagp_dist.store.published_variables import COORDINATES
from cagp_dist.variables import Transform, log1p_of, variable_named
from cagp_dist.variables.units import cf_units

Source: TypeAlias = "xr.DataArray | xr.Dataset | TableLike"
# Noise variance that was given, instead of that of a source: of each place in its order, or of all
Noise: TypeAlias = Array | float | None

KEPT_ATTRIBUTES = ("units", "standard_name", "long_name")


@dataclass(frozen=True, eq=False)
class ObservedObject:
    """Observations, and the names and coordinates that their source has."""

    points: Observations
    name: str  # of the variable
    dimension: str | None = None  # of the fields; None where there is one field without it
    coordinates: Mapping[str, xr.Variable] = field(default_factory=dict)  # of the fields, such as their times
    where: Horizontal | None = None  # of the places in an object
    attributes: Mapping[str, str] = field(default_factory=dict)  # units, standard_name, long_name, if there
    missing: int = 0  # values that were not there
    static: Mapping[str, Array] = field(default_factory=dict)  # columns of a table that a drift has, (n,)
    static_units: Mapping[str, str] = field(default_factory=dict)  # of these, empty where none is stated
    # all times of the source as it has them, where they are dates, and the calendar that they are counted in
    moments: NDArray[np.generic] | None = None
    calendar: str = ""
    read_with: str = ""  # settings with which the source was read, as JSON; empty if there were none

    @property
    def what(self) -> str:
        """The variable, for people."""
        return self.attributes.get("long_name", self.name)

    @property
    def space(self) -> Space:
        """Where the places are."""
        return self.points.space

    @property
    def units(self) -> dict[str, str]:
        """Attribute of what has the units of the observations."""
        return {name: text for name, text in self.attributes.items() if name == "units"}


@dataclass(frozen=True, eq=False)
class Reading:
    """How a source is read: what `krige` was told of it, under the names that it has there."""

    value: str | None = None
    noise_std: str | float | None = None
    noise: Noise = None
    columns: Mapping[str, str] = field(default_factory=dict)  # names of columns or coordinates by their roles
    units: str | None = None
    missing: Marks = None
    where: Mapping[str, object] | None = None
    static: Collection[str] = ()  # columns that a drift may have
    in_time: bool = False  # whether each value is a point in space and time
    crs: CRSLike = None
    transform: Transform = "none"

    @property
    def asked(self) -> Asked:
        """What is said of a plane."""
        return Asked(self.columns.get("x"), self.columns.get("y"), self.crs)


def observe(source: Source, how: Reading = Reading()) -> ObservedObject:
    """Take observations of an xarray object, table or source."""
    observed = _observed(source, how)
    if how.transform != "none" and observed.points.noise_variance is not None and how.noise is None:
        raise noise_of_transformed()
    observed = transformed(observed, how.transform)
    return _in_time(observed) if how.in_time else observed


def transformed(observed: ObservedObject, transform: Transform) -> ObservedObject:
    """Take the logarithms of values, if these are asked for."""
    if transform == "none":
        return observed
    points = observed.points
    said = observed.attributes.get("long_name", "")
    about: dict[object, object] = {"units": points.units, "long_name": said}
    variable, values = log1p_of(points.values, observed.name, about)
    points = replace(points, values=values, variable=variable, stated_units="1")
    return replace(observed, points=points, attributes=variable.attributes())


def _observed(source: Source, how: Reading) -> ObservedObject:
    """Read observations of an xarray object, table or source."""
    where, asked = how.where, how.asked
    if is_source(source):
        if asked.any:
            raise ArgumentError(
                f"{source!r} is read on latitudes and longitudes, and x, y or crs was given; expected an "
                "object of xarray for a plane: xarray.open_dataset(PATH)."
            )
        if isinstance(how.noise_std, str):
            raise ArgumentError(
                f"noise_std is {how.noise_std!r}, and sources have no noise for each place; expected a "
                "number. Open the file with xarray, and pass the dataset."
            )
        source = open_named(source, value=how.value, units=how.units, missing=how.missing, where=where)
        how, where = replace(how, value=None, units=None, missing=None), None
    if isinstance(source, str) and source.startswith("table:"):
        source = source.removeprefix("table:")
    if isinstance(source, (xr.DataArray, xr.Dataset)):
        if where is not None:
            raise ArgumentError(
                f"where is {where!r}, which chooses rows of a table; of xarray select before: data.sel(...)."
            )
        observed = _from_xarray(in_roles(source, how.columns), how)
        return observed
    table = read_table(
        source,
        value=how.value,
        columns=how.columns,
        noise_std=how.noise_std,
        units=how.units,
        missing=how.missing,
        where=where,
        static=how.static,
        plane=asked.any,
    )
    for note in table.notes:
        warnings.warn(note, stacklevel=4)
    observed = _from_table(table, how)
    return observed


def _from_table(table: Table, how: Reading) -> ObservedObject:
    """Take rows as they are, or by time and place."""
    in_time = how.in_time
    fields = row_by_row(table) if in_time else by_time_and_place(table)
    coordinates = {}
    if fields.times is not None and not in_time:
        coordinates["time"] = xr.Variable("time", fields.times, dict(COORDINATES["time"]))
    own = cf_units(table.units) if table.units else ""
    north, east = fields.latitude_degrees, fields.longitude_degrees
    space: Space = SPHERE
    if held := fields.plane:
        space = plane_of(how.asked.crs, names=held.names, unit=held.unit)
        east, north = held.xy.T
    points = Observations.from_points(
        north,
        east,
        fields.values,
        space=space,
        variable=replace(variable_named(table.name), name=table.name),
        stated_units=own,
        times=None if in_time else fields.times,
        noise_variance=_noise_variance(how.noise, fields.noise_std, north.shape),
        names=fields.names,
    )
    return ObservedObject(
        points,
        name=table.name,
        dimension="time" if coordinates else None,
        coordinates=coordinates,
        attributes={"units": own} if own else {},
        missing=table.dropped_missing,
        static=fields.static,
        static_units=fields.static_units,
        moments=fields.times if in_time else None,
    )


def _in_time(observed: ObservedObject) -> ObservedObject:
    """Give each value as a point in space and time."""
    moments = observed.moments
    counted = None if moments is None else evenly_counted(moments, observed.calendar)
    if moments is None or counted is None or np.isnat(counted).any():
        some = "no times" if moments is None else "dates that are not known"
        raise ArgumentError(
            f"the observations have {some}, and maps at times were asked for; expected a column or "
            'coordinate of times. Name it, columns={"time": "..."}, or leave at= out.'
        )
    return replace(
        observed,
        points=observed.points.in_space_and_time(counted),
        dimension=None,
        coordinates={},
        moments=np.unique(moments),
    )


def observe_arrays(
    X: ArrayLike,
    y: ArrayLike,
    *,
    noise: Noise = None,
    missing: Marks = None,
    space: Space = SPHERE,
    transform: Transform = "none",
) -> ObservedObject:
    """Take observations y (n,) or (n, T) at latitudes and longitudes X (n, 2), or x and y of a plane."""
    places = as_numbers("X", X)
    if isinstance(y, np.ma.MaskedArray):
        y = np.ma.filled(y.astype(np.float64), np.nan)
    values = np.asarray(observations(as_numbers("y", y), what="y", missing=missing), dtype=np.float64)
    check_pairs(places, space)
    if values.ndim not in (1, 2) or len(values) != len(places):
        raise ArgumentError(f"y has shape {values.shape}; expected ({len(places)},), or ({len(places)}, T).")
    if np.isinf(values).any():
        raise ArgumentError("y holds infinity; expected finite numbers, or NaN where there is none.")
    columns = values if values.ndim == 2 else values[:, None]
    points = Observations.from_points(
        *space.of_columns(places),
        np.ascontiguousarray(columns.T),
        space=space,
        variable=variable_named("y"),
        noise_variance=_noise_variance(noise, None, (len(places),)),
    )
    dimension = None if values.ndim == 1 else "field"
    observed = ObservedObject(points, "y", dimension, missing=int(np.isnan(columns).sum()))
    return transformed(observed, transform)


def check_pairs(X: Array, space: Space) -> None:
    """Refuse what is no latitudes and longitudes (n, 2), or no x and y."""
    if X.ndim != 2 or X.shape[1] != 2 or not np.isfinite(X).all():
        raise ArgumentError(
            f"X has shape {X.shape}; expected (n, 2) finite numbers, {space.what}. Points of a plane are "
            "asked for by crs=."
        )


def check_every_field(observed: Observations) -> None:
    """Refuse fields without any observation, which have no prior mean."""
    empty = np.flatnonzero(~observed.present.any(axis=1))
    if empty.size:
        dates = observed.dates(empty)
        which = f"field {empty[0]}" if dates is None else f"the field of {shown_time(dates[0])}"
        raise ArgumentError(
            f"{which} has no observation ({empty.size} of {observed.fields} have none); leave these out."
        )


def _noise_variance(given: Noise, noise_std: Array | None, *shapes: tuple[int, ...]) -> Array | None:
    """Noise variance of each place, in the order of the source; None where it is not known, or one number."""
    if given is None:
        return None if noise_std is None else noise_std**2
    if not isinstance(given, np.ndarray):
        return None
    if given.shape not in shapes:
        expected = " or ".join(map(str, dict.fromkeys(shapes)))
        raise ArgumentError(
            f"the prior has a noise_variance of shape {given.shape}; expected one number, or an array of "
            f"shape {expected}, one for each place in the order of the observations."
        )
    return given.reshape(-1)


def _from_xarray(source: xr.DataArray | xr.Dataset, how: Reading) -> ObservedObject:
    field = choose_variable(source, how.value, how.asked) if isinstance(source, xr.Dataset) else source
    where = located(source, field, how.asked)
    if not set(where.dims) <= set(map(str, field.dims)):
        raise ArgumentError(
            f"{field.name!r} has the dimensions {tuple(field.dims)}, and its {where.space.what} lie "
            f"along {where.dims}; expected a value for each of them."
        )
    single = [dim for dim in field.dims if str(dim) not in where.dims and field.sizes[dim] == 1]
    time = time_coordinate(field)
    along = None if time is None or field[time].ndim == 0 else field[time].dims[0]
    field = field.squeeze([dim for dim in single if dim != along])
    dimension = field_dimension(field, where)
    order = where.dims if dimension is None else (dimension, *where.dims)
    if field.dtype.kind not in "fiub":
        raise DataError(f"{field.name!r} has the type {field.dtype}; expected numbers.")
    found = observations(
        field.transpose(*order).values,
        field.attrs,
        what=repr(field.name or "the field"),
        encoding=field.encoding,
        missing=how.missing,
    )
    values = np.ascontiguousarray(found, dtype=np.float64).reshape(-1, int(np.prod(where.shape)))
    if np.isinf(values).any():
        raise DataError(
            f"{field.name!r} holds infinity; expected finite numbers, or NaN where there is none."
        )
    if np.isnan(values).all():
        raise DataError(f"{field.name!r} is NaN everywhere: nothing was observed.")
    coordinates = {
        str(name): coordinate.variable
        for name, coordinate in field.coords.items()
        if str(name) not in where.coordinates and set(coordinate.dims) <= {dimension}
        # the result says the system of its targets
        if not describes_system(coordinate.variable)
    }
    lost = int(np.count_nonzero(~np.isnan(values[:, where.nowhere]).all(axis=0)))
    if lost:
        raise DataError(
            f"{lost} points of {field.name!r} have values and no latitude or longitude; expected both, or "
            "neither. Correct the coordinates, or leave these values out with data.where(...)."
        )
    name = str(field.name) if field.name is not None else "value"
    attributes = _kept(field.attrs) | ({} if how.units is None else {"units": cf_units(how.units)})
    known = _noise(source, how.noise_std, where, str(field.attrs.get("units", "")))
    n, moments = values.shape[1], _moments(coordinates, len(values))
    calendar = "" if moments is None else calendar_of_dates(moments)
    points = _points(
        where,
        values,
        noise_variance=_noise_variance(how.noise, known, (n,), where.shape),
        variable=replace(variable_named(name), name=name),
        stated_units=attributes.get("units", ""),
        times=None if how.in_time or moments is None else evenly_counted(moments, ""),
    )
    return ObservedObject(
        points,
        name=name,
        dimension=dimension,
        coordinates=coordinates,
        where=where,
        attributes=attributes,
        missing=int(np.isnan(values).sum()),
        moments=moments,
        calendar=calendar or str(source.attrs.get(SOURCE_CALENDAR, "")),
    )


def _points(where: Horizontal, values: Array, *, noise_variance: Array | None, **about: Any) -> Observations:
    """Place values (T, n) and their noise (n,), in the order of the object."""
    if where.axes is None or not where.space.has_latitudes:
        return Observations.from_points(
            *where.points, values, space=where.space, noise_variance=noise_variance, **about
        )
    fields = values.reshape(-1, *where.shape)
    noise = None if noise_variance is None else noise_variance.reshape(where.shape)
    return Observations.from_grid(*where.axes, fields, noise_variance=noise, **about)


def _moments(coordinates: Mapping[str, xr.Variable], fields: int) -> NDArray[np.generic] | None:
    """Moments of the fields where they are dates, also of another calendar; else None."""
    for variable in coordinates.values():
        is_date = variable.dtype.kind == "M"
        if variable.size == fields and not is_date and variable.dtype.kind == "O":
            is_date = hasattr(variable.values.flat[0], "month")
        if variable.size == fields and is_date:
            return np.atleast_1d(np.asarray(variable.values))
    return None


def _kept(attributes: Mapping[Hashable, object]) -> dict[str, str]:
    """Attributes that results have too, units as CF writes them."""
    kept = {
        key: str(attributes[key])
        for key in KEPT_ATTRIBUTES
        if attributes.get(key) not in (None, "", "unknown")  # as cfgrib calls what has no standard name
    }
    return kept | ({"units": cf_units(kept["units"])} if "units" in kept else {})


def _noise(
    source: xr.DataArray | xr.Dataset, noise_std: str | float | None, where: Horizontal, units: str
) -> Array | None:
    """Noise of each place in the units of the values, if it is a variable of the dataset."""
    if not isinstance(noise_std, str):  # a number is the same everywhere
        return None
    if not isinstance(source, xr.Dataset) or noise_std not in source.data_vars:
        there = ", ".join(map(repr, getattr(source, "data_vars", ()))) or "none"
        raise ArgumentError(
            f"noise_std is {noise_std!r}; expected a number, or a variable of the dataset, which has {there}."
        )
    field = source[noise_std].squeeze(
        [dim for dim in source[noise_std].dims if source.sizes[dim] == 1 and str(dim) not in where.dims]
    )
    if set(map(str, field.dims)) != set(where.dims):
        raise ArgumentError(
            f"the noise {noise_std!r} has the dimensions {tuple(field.dims)}; expected {where.dims}, the "
            "noise of each place at all times."
        )
    factor = noise_factor(units, str(field.attrs.get("units", "")), f"the noise {noise_std!r}")
    what, held = f"the noise {noise_std!r}", field.transpose(*where.dims).values
    found = observations(held, field.attrs, what=what, encoding=field.encoding)
    return factor * np.asarray(found, dtype=np.float64).reshape(-1)
