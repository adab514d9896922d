"""What was observed, from an xarray object or a table, as arrays of places and times."""

import warnings
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices, Mask, Times
from cagp_dist.checks import as_numbers
from cagp_dist.era5.calendars import standard_dates
from cagp_dist.era5.selection import shown_time
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.geometry import is_pole, unit_sphere
from cagp_dist.kriging.axes import Horizontal, choose_variable, field_dimension, horizontal, time_coordinate
from cagp_dist.kriging.named_sources import is_source, open_named
from cagp_dist.latlon import LatLonGrid, LatLonWindow
from cagp_dist.mapping.solver_order import solver_order
from cagp_dist.missing import Marks, observations
from cagp_dist.posterior.patterns import fields_by_pattern
from cagp_dist.tables import Names, TableLike, by_time_and_place, noise_in, read_table
from cagp_dist.variables.units import cf_units

if TYPE_CHECKING:
    from cagp_dist.solvers import Solver

Source: TypeAlias = "xr.DataArray | xr.Dataset | TableLike"

KEPT_ATTRIBUTES = ("units", "standard_name", "long_name")


@dataclass(frozen=True, eq=False)
class ObservedObject:
    """Fields observed at places, in the order of the source.

    Attributes
    ----------
    latitude_degrees, longitude_degrees : array of float64, shape (n,)
        Of the places; of a grid row by row.
    values : array of float64, shape (T, n)
        NaN where nothing was observed.
    noise_std : array of float64, shape (n,), or None
        Standard deviation of the error of an observation, where it was given.
    dimension : str or None
        Name of the dimension of the fields; None where there is one field without such a dimension.
    coordinates : dict of xarray.Variable
        Of the fields: their times, under the name that the source has for them.
    where : Horizontal or None
        Coordinates of the places in the source; None for a table.
    name : str
        Of the variable.
    attributes : dict of str
        Units, standard_name and long_name, where the source has them.
    dropped_missing : int
        Values that were not there.
    names : array of str, shape (n,), or None
        Of the places of a table.
    static : mapping of str to array of float64, shape (n,)
        Columns of a table that a drift has, with a number for each place.
    """

    latitude_degrees: Array
    longitude_degrees: Array
    values: Array
    noise_std: Array | None
    dimension: str | None
    coordinates: Mapping[str, xr.Variable]
    where: Horizontal | None
    name: str
    attributes: Mapping[str, str]
    dropped_missing: int
    names: Names | None = None
    static: Mapping[str, Array] = field(default_factory=dict)

    @property
    def times(self) -> Times | None:
        """Moments of the fields, shape (T,), where they are dates, also of another calendar; else None."""
        for variable in self.coordinates.values():
            if variable.size != len(self.values):
                continue
            if variable.dtype.kind == "M":
                return np.atleast_1d(variable.values)
            if variable.dtype.kind == "O" and hasattr(variable.values.flat[0], "month"):
                return np.atleast_1d(standard_dates(np.asarray(variable.values)))
        return None

    @property
    def window(self) -> LatLonWindow | None:
        """The grid that the places form, as a part of a full circle; None if they do not."""
        axes = None if self.where is None else self.where.axes
        if self.where is None or axes is None or self.noise_std is not None:
            return None
        if self.where.dims[0] not in self.where.latitude.dims:
            return None
        for recognise in (_whole, LatLonWindow.from_axes):
            try:
                return recognise(*axes)
            except ArgumentError:  # a part of the circle, or spaced unequally
                continue
        return None

    @property
    def grid(self) -> LatLonGrid | None:
        """The grid that the places are all of, row by row, eastward from its first longitude."""
        window = self.window
        if window is None or not np.array_equal(window.columns, np.arange(window.grid.n_longitudes)):
            return None
        return window.grid

    @property
    def count(self) -> int:
        """Values that were observed."""
        return int(np.count_nonzero(~np.isnan(self.values)))

    @cached_property
    def there(self) -> Indices:
        """Places with a value: of a grid by latitude, then eastward from Greenwich, as jobs have it."""
        there = np.flatnonzero((~np.isnan(self.values)).any(axis=0))
        if self.where is None or self.where.axes is None:
            return there
        keys = np.mod(self.longitude_degrees[there], 360.0), self.latitude_degrees[there]
        return there[np.lexsort(keys)]

    def patterns(self, solver: "Solver | None" = None) -> list[tuple[Indices, Indices]]:
        """Places observed, in solver order, and the fields observed there, for each pattern of gaps."""
        places = self.there[solver_order(points_of(self)[self.there], solver)]
        seen = ~np.isnan(self.values)
        return [(places[seen[group[0], places]], group) for group in fields_by_pattern(seen)]

    def names_of(self, what: str) -> list[str]:
        """Names of the coordinates that are the latitude, longitude or time of an xarray object."""
        if what == "time":
            return list(self.coordinates)
        if self.where is None:
            return []
        axis = getattr(self.where, what)
        return [name for name, held in self.where.coordinates.items() if held is axis]

    def without(self, places: Mask) -> "ObservedObject":
        """Leave out some places (n,)."""
        return replace(self, values=np.where(places, np.nan, self.values))

    def with_poles_merged(self) -> "ObservedObject":
        """Make the copies of a pole, which are one place, one observation: their mean.

        Its noise variance is the mean of those of the copies that were observed at any time.
        """
        poles = is_pole(self.latitude_degrees)
        if self.where is None or self.where.axes is None or not poles.any():
            return self
        values = self.values.copy()
        noise_std = None if self.noise_std is None else self.noise_std.copy()
        for sign in (-1.0, 1.0):
            copies = np.flatnonzero(poles & (sign * self.latitude_degrees > 0.0))
            if copies.size < 2:
                continue
            observed = copies[~np.isnan(values[:, copies]).all(axis=0)]
            if noise_std is not None and observed.size:
                noise_std[copies[0]] = np.sqrt(np.mean(noise_std[observed] ** 2))
            for row in values:
                there = copies[~np.isnan(row[copies])]
                if there.size:
                    mean = row[there].mean()
                    row[copies] = np.nan
                    row[copies[0]] = mean
        return replace(self, values=values, noise_std=noise_std)


def observe(
    source: Source,
    *,
    value: str | None = None,
    noise_std: str | float | None = None,
    latitude: str | None = None,
    longitude: str | None = None,
    time: str | None = None,
    units: str | None = None,
    missing: Marks = None,
    where: Mapping[str, object] | None = None,
    static: Collection[str] = (),
) -> ObservedObject:
    """Take observations from an xarray object, or from a table by `cagp_dist.tables.read_table`."""
    if is_source(source):
        if isinstance(noise_std, str):
            raise ArgumentError(
                f"noise_std is {noise_std!r}, and sources have no noise for each place; expected a number. "
                "Open the file with xarray, and pass the dataset."
            )
        source = open_named(source, value=value, units=units, missing=missing, where=where)
        value, units, missing, where = None, None, None, None
    if isinstance(source, str) and source.startswith("table:"):
        source = source.removeprefix("table:")
    if isinstance(source, (xr.DataArray, xr.Dataset)):
        if where is not None:
            raise ArgumentError(
                f"where is {where!r}, which chooses rows of a table; of xarray objects select before: "
                "data.sel(...)."
            )
        observed = _from_xarray(source, value=value, noise_std=noise_std, missing=missing)
        for what, name in (("latitude", latitude), ("longitude", longitude), ("time", time)):
            if name is not None and name not in observed.names_of(what):
                raise ArgumentError(
                    f"{what} is {name!r}, which names a column of a table; of xarray objects coordinates are "
                    f"found by their attributes and names, here {' or '.join(observed.names_of(what))}. "
                    "Rename another one: data.rename(...)."
                )
        return (
            observed
            if units is None
            else replace(observed, attributes={**observed.attributes, "units": cf_units(units)})
        )
    table = read_table(
        source,
        value=value,
        latitude=latitude,
        longitude=longitude,
        time=time,
        noise_std=noise_std,
        units=units,
        missing=missing,
        where=where,
        static=static,
    )
    for note in table.notes:
        warnings.warn(note, stacklevel=4)
    fields = by_time_and_place(table)
    coordinates = {}
    if fields.times is not None:
        attributes = {"standard_name": "time", "long_name": "time", "axis": "T"}
        coordinates["time"] = xr.Variable("time", fields.times, attributes)
    return ObservedObject(
        latitude_degrees=fields.latitude_degrees,
        longitude_degrees=fields.longitude_degrees,
        values=fields.values,
        noise_std=fields.noise_std,
        dimension=None if fields.times is None else "time",
        coordinates=coordinates,
        where=None,
        name=table.name,
        attributes={"units": cf_units(table.units)} if table.units else {},
        dropped_missing=table.dropped_missing,
        names=fields.names,
        static=fields.static,
    )


def observe_arrays(X: ArrayLike, y: ArrayLike, *, missing: Marks = None) -> ObservedObject:
    """Take observations y (n,) or (n, T) at latitudes and longitudes X (n, 2), in degrees."""
    places = as_numbers("X", X)
    values = np.asarray(observations(as_numbers("y", y), what="y", missing=missing), dtype=np.float64)
    check_pairs(places)
    if values.ndim not in (1, 2) or len(values) != len(places):
        raise ArgumentError(f"y has shape {values.shape}; expected ({len(places)},), or ({len(places)}, T).")
    if np.isinf(values).any():
        raise ArgumentError("y holds infinity; expected finite numbers, or NaN where there is none.")
    columns = values if values.ndim == 2 else values[:, None]
    return ObservedObject(
        latitude_degrees=places[:, 0],
        longitude_degrees=places[:, 1],
        values=np.ascontiguousarray(columns.T),
        noise_std=None,
        dimension=None if values.ndim == 1 else "field",
        coordinates={},
        where=None,
        name="y",
        attributes={},
        dropped_missing=int(np.isnan(columns).sum()),
    )


def check_pairs(X: Array) -> None:
    """Refuse what is no latitudes and longitudes (n, 2)."""
    if X.ndim != 2 or X.shape[1] != 2 or not np.isfinite(X).all():
        raise ArgumentError(
            f"X has shape {X.shape}; expected (n, 2) finite numbers, latitude and longitude in degrees. For "
            "points that are not on a globe use cagp.condition."
        )


def check_every_field(observed: ObservedObject) -> None:
    """Refuse fields without any observation, which have no prior mean."""
    empty = np.flatnonzero(np.isnan(observed.values).all(axis=1))
    if empty.size:
        moments = observed.times
        which = f"field {empty[0]}" if moments is None else f"the field of {shown_time(moments[empty[0]])}"
        raise ArgumentError(
            f"{which} has no observation ({empty.size} of {len(observed.values)} have none); expected one at "
            "least. Leave these fields out."
        )


def _whole(latitude_degrees: Array, longitude_degrees: Array) -> LatLonWindow:
    grid = LatLonGrid.from_axes(latitude_degrees, longitude_degrees)
    return LatLonWindow(grid, np.arange(grid.n_longitudes))


def points_of(observed: ObservedObject) -> Array:
    """Give the unit vectors of the places, shape (n, 3)."""
    return unit_sphere(observed.latitude_degrees, observed.longitude_degrees)


def _from_xarray(
    source: xr.DataArray | xr.Dataset,
    *,
    value: str | None,
    noise_std: str | float | None,
    missing: Marks,
) -> ObservedObject:
    field = choose_variable(source, value) if isinstance(source, xr.Dataset) else source
    where = horizontal(source if isinstance(source, xr.Dataset) else field)
    if not set(where.dims) <= set(map(str, field.dims)):
        raise ArgumentError(
            f"{field.name!r} has the dimensions {tuple(field.dims)}, and its latitudes and longitudes lie "
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
        missing=missing,
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
    }
    lost = int(np.count_nonzero(~np.isnan(values[:, where.nowhere]).all(axis=0)))
    if lost:
        raise DataError(
            f"{lost} points of {field.name!r} have values and no latitude or longitude; expected both, or "
            "neither. Correct the coordinates, or leave these values out with data.where(...)."
        )
    latitude, longitude = where.points
    return ObservedObject(
        latitude_degrees=latitude,
        longitude_degrees=longitude,
        values=values,
        noise_std=_noise(source, noise_std, where, str(field.attrs.get("units", ""))),
        dimension=dimension,
        coordinates=coordinates,
        where=where,
        name=str(field.name) if field.name is not None else "value",
        attributes=_kept(field.attrs),
        dropped_missing=int(np.isnan(values).sum()),
    )


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
    """Noise of each place in the units of the values, if it is a variable of the dataset.

    A number is the same everywhere.
    """
    if noise_std is None:
        return None
    if not isinstance(noise_std, str):
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
    factor = noise_in(units, str(field.attrs.get("units", "")), f"the noise {noise_std!r}")
    what, held = f"the noise {noise_std!r}", field.transpose(*where.dims).values
    found = observations(held, field.attrs, what=what, encoding=field.encoding)
    return factor * np.asarray(found, dtype=np.float64).reshape(-1)
