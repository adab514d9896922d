"""What was observed, from an xarray object, a table or arrays, and what results take over from it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from cagp_dist.arrays import Array, Indices, Marks
from cagp_dist.checks import as_numbers
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.axes import Horizontal, are_dates
from cagp_dist.fields.calendars import SOURCE_CALENDAR, calendar_of_dates, evenly_counted
from cagp_dist.fields.column_roles import check_of_fields, in_roles
from cagp_dist.fields.gridded import (
    GROUP,
    Gridded,
    check_finite,
    chosen_variable,
    grid_once,
    laid_out,
    listed,
    load,
    named_dataset,
    places_once,
    values_along,
)
from cagp_dist.fields.groups import dataset_of
from cagp_dist.fields.missing import observations
from cagp_dist.fields.named_sources import is_source, open_named
from cagp_dist.fields.points import points_in, table_of, with_rows_of_depths
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.sources import noise_of_transformed
from cagp_dist.fields.tables import (
    Depths,
    Table,
    TableLike,
    by_time_and_place,
    check_says_std,
    noise_factor,
    read_rows,
    row_by_row,
)
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.kernels import DEPTH
from cagp_dist.pipeline import Observations
from cagp_dist.remedies import Setting
from cagp_dist.space import SPHERE, CRSLike, Space
from cagp_dist.space.systems import describes_system
from cagp_dist.store.published_variables import BELOW_LIMIT, COORDINATES
from cagp_dist.text import counted, shown_time
from cagp_dist.variables import Transform, field_name, log1p_of, variable_named
from cagp_dist.variables.stated_units import extremes, stated_units
from cagp_dist.variables.units import cf_units
from cagp_dist.warned import warn

Source: TypeAlias = "xr.DataArray | xr.Dataset | xr.DataTree | TableLike"
# Noise variance that was given, instead of that of a source: of each place in its order, or of all
Noise: TypeAlias = Array | float | None

ROW = "observation"  # dimension of values that are rows of a table
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
    # of axes beside space, names of the labels; and the variables, where there are several
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    variables: tuple["ObservedObject", ...] = ()
    depths: Depths | None = None
    rows: Indices | None = None  # of a table, of the values that are there, by time, then by place
    # of means over areas that were observed: some of them by nodes that are twice as close
    finer: Callable[[Indices], LinearFunctionals] | None = None
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


def read(
    source: Source,
    *,
    value: str | None = None,
    columns: Mapping[str, str] | None = None,
    noise_std: str | float | None = None,
    units: str | None = None,
    missing: Marks = None,
    where: Mapping[str, object] | None = None,
    crs: CRSLike = None,
    transform: Transform = "none",
    static: Collection[str] = (),
    labels: Collection[str] = (),
    in_time: bool = False,
    noise: Noise = None,
    limits: bool = False,
    progress: Callable[[str], None] | None = None,
) -> ObservedObject:
    """Read observations, whatever brings them: a table, a frame, an object of xarray, a file or a store.

    Parameters
    ----------
    source : DataArray, Dataset, DataTree, data frame, mapping of columns, record array, path or str
        As `cagp_dist.krige` takes it; also a source of a job, ``"file:PATH"``, ``"zarr:URL"``, ``"cds"``.
    value : str, optional
        Variable or column of the values, if there are several.
    columns : mapping of str to str, optional
        Names of columns and coordinates by their roles: latitude, longitude, x, y, time, depth, name and
        limit.
    noise_std : str or number, optional
        Standard deviation of the error of a value, in its units, or the column or variable that has it.
    units, missing, where : optional
        Units of the values, marks of missing ones, and which rows, levels or members are meant.
    crs : int, str or pyproj.CRS, optional
        System of x and y of a plane.
    transform : {"none", "log1p"}
        What is done with the values.
    static : collection of str
        Columns with a number for each place that are read too, where they are there.
    labels : collection of str
        Columns with a name for each value, such as that of a ship, which observations have as integers.
    in_time : bool
        Whether each value becomes a point in space and time.
    noise : array or number, optional
        Noise variance that stands in the place of that of the source.
    limits : bool
        Whether values may be known only to be no larger than a limit; otherwise such values are refused.
    progress : callable, optional
        Told in words how far a source is that takes long to read; by default the log is.

    Returns
    -------
    ObservedObject
        ``points`` are the `cagp_dist.pipeline.Observations`: places, values (T, n) with NaN where there is
        none, times and noise; the other fields say what results take over from the source.

    Raises
    ------
    ArgumentError, ConfigurationError
        If which column, level or coordinate is meant cannot be told; ``error.key`` names the fault, and
        ``error.remedies`` are the settings that help.
    DataError
        If the source cannot be read, or holds what cannot be an observation.

    Examples
    --------
    >>> from cagp_dist.fields.observed_objects import read
    >>> table = {"lat": [48.1, 52.5, 50.1], "lon": [11.6, 13.4, 8.7], "t (degC)": [21.0, None, 19.5]}
    >>> points = read(table).points
    >>> points.north, points.values, points.units
    (array([48.1, 50.1]), array([[21. , 19.5]]), 'degC')
    """
    selection = Selection(
        value=value,
        columns=columns or {},
        noise_std=noise_std,
        units=units,
        missing=missing,
        where=where or {},
        crs=crs,
        transform=transform,
        static=static,
        labels=labels,
        limits=limits,
    )
    observed = _observed(source, selection, noise, in_time=in_time, progress=progress)
    if transform != "none" and observed.points.noise_variance is not None and noise is None:
        raise noise_of_transformed()
    observed = transformed(observed, transform)
    return _in_time(observed) if in_time else observed


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


def _observed(
    source: Source,
    wanted: Selection,
    noise: Noise,
    *,
    in_time: bool,
    progress: Callable[[str], None] | None,
) -> ObservedObject:
    """Read observations of an xarray object, table or source."""
    if is_source(source):
        source = open_named(source, wanted, progress)
        known = "noise_std" if "noise_std" in source.coords else None  # of points
        columns = {DEPTH: DEPTH} if DEPTH in wanted.columns else {}
        if (limits := source.coords.get(BELOW_LIMIT)) is not None:  # each is its value there
            source = source.assign_coords(limit=source.where(limits)).drop_vars(BELOW_LIMIT)
            columns["limit"] = "limit"
        wanted = Selection(noise_std=known, static=wanted.static, columns=columns, limits=wanted.limits)
    if isinstance(source, str) and source.startswith("table:"):
        source = source.removeprefix("table:")
    if not isinstance(source, (xr.DataArray, xr.Dataset, xr.DataTree)):
        return _from_table(read_rows(source, wanted), noise, wanted.crs, in_time=in_time)
    data, name = _dataset(source, wanted)
    data = with_rows_of_depths(data, name, wanted)
    points = points_in(data, name, asked=wanted.asked, missing=wanted.missing)
    if points is None:
        check_of_fields(wanted.columns, wanted.labels, name)
        return _of_fields(data, name, wanted, noise, in_time=in_time)
    observed = _from_table(table_of(points, wanted), noise, points.crs, in_time=in_time)
    if points.where is None:
        return observed
    kept = {**_kept(points.attributes), **observed.attributes}
    return replace(observed, where=points.where, attributes=kept)


def _dataset(source: "xr.DataArray | xr.Dataset | xr.DataTree", wanted: Selection) -> tuple[xr.Dataset, str]:
    """Give an object as a dataset with the variable that is meant, and the name of it there."""
    if isinstance(source, xr.DataTree):
        source = dataset_of(source, wanted.value, wanted.where.get(GROUP))
    if isinstance(source, xr.DataArray):
        return named_dataset(in_roles(source, wanted.columns), "value")
    source = in_roles(source, wanted.columns)
    return source, chosen_variable(source, wanted.value, wanted.asked)


def _from_table(table: Table, noise: Noise, crs: CRSLike, *, in_time: bool) -> ObservedObject:
    """Take rows as they are, or by time and place, and say what people should know of them."""
    for note in table.notes:
        warn(note)
    name = field_name(table.name)
    fields = row_by_row(table) if in_time else by_time_and_place(table)
    coordinates = {}
    if fields.times is not None and not in_time:
        coordinates["time"] = xr.Variable("time", fields.times, dict(COORDINATES["time"]))
    own = cf_units(table.units) if table.units else ""
    north, east, space = fields.located(crs)
    points = Observations.from_points(
        north,
        east,
        fields.values,
        space=space,
        variable=replace(variable_named(name), name=name),
        stated_units=own,
        times=None if in_time else fields.times,
        noise_variance=_noise_variance(noise, fields.noise_std, north.shape),
        names=fields.names,
        beside={axis: fields.static[axis] for axis in fields.labels}
        | ({} if fields.depths is None else {DEPTH: fields.depths.values}),
        limits=fields.below,
    )
    return ObservedObject(
        points,
        name=name,
        dimension="time" if coordinates else None,
        coordinates=coordinates,
        attributes={"units": own} if own else {},
        missing=table.dropped_missing,
        static={name: held for name, held in fields.static.items() if name not in fields.labels},
        static_units=fields.static_units,
        labels=fields.labels,
        depths=fields.depths,
        moments=fields.times if in_time else None,
        rows=fields.rows,
    )


def _in_time(observed: ObservedObject) -> ObservedObject:
    """Give each value as a point in space and time."""
    moments = observed.moments
    counted = None if moments is None else evenly_counted(moments, observed.calendar)
    if moments is None or counted is None or np.isnat(counted).any():
        some = "no times" if moments is None else "dates that are not known"
        raise ArgumentError(
            f"the observations have {some}, and maps at times were asked for; expected a column or "
            "coordinate of times.",
            key="no-times",
            remedies=(Setting("columns", {"time": "NAME"}),),
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
        raise ArgumentError(
            f"y has shape {values.shape}; expected ({len(places)},), or ({len(places)}, T).", key="shapes"
        )
    if np.isinf(values).any():
        raise ArgumentError(
            "y holds infinity; expected finite numbers, or NaN where there is none.", key="infinite"
        )
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


def check_pairs(X: Array, space: Space, beside: Collection[str] = ()) -> None:
    """Refuse what is no latitudes and longitudes (n, 2), or no x and y; columns may stand beside these."""
    if X.ndim != 2 or X.shape[1] not in (2, 2 + len(beside)) or not np.isfinite(X[:, :2]).all():
        several = f" or (n, {2 + len(beside)})" if beside else ""
        raise ArgumentError(
            f"X has shape {X.shape}; expected (n, 2){several} finite numbers, "
            f"{', '.join([space.what, *beside])}.",
            key="shapes",
            remedies=(
                *(
                    (Setting("crs", 25832, "or that of your x and y, if these are points of a plane"),)
                    if space.has_latitudes
                    else ()
                ),
                *(
                    (Setting("mean", "elevation", "if a further column is a covariate of this name"),)
                    if X.ndim == 2 and X.shape[1] > 2 + len(beside)
                    else ()
                ),
            ),
        )


def check_every_field(observed: Observations) -> None:
    """Refuse fields without any observation, which have no prior mean."""
    empty = np.flatnonzero(~observed.present.any(axis=1))
    if empty.size:
        dates = observed.dates(empty)
        which = f"field {empty[0]}" if dates is None else f"the field of {shown_time(dates[0])}"
        raise ArgumentError(
            f"{which} has no observation ({empty.size} of {observed.fields} have none); leave these out.",
            key="nothing-observed",
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
            f"shape {expected}, one for each place in the order of the observations.",
            key="shapes",
        )
    return given.reshape(-1)


def _of_fields(
    data: xr.Dataset, name: str, wanted: Selection, given: Noise, *, in_time: bool
) -> ObservedObject:
    """Take a variable as fields at places: in the order of the object, under its names, in its units."""
    laid, *others = laid_out(data, name, wanted.select, level=wanted.level, asked=wanted.asked, members=True)
    if others:
        steps = [dim for dim in map(str, data[name].dims) if dim not in (laid.dimension, *laid.where.dims)]
        raise DataError(
            f"{name!r} has {counted(laid.fields, 'start')} of forecasts and {1 + len(others)} steps; "
            "expected one start or one step.",
            key="several-values",
            remedies=tuple(
                Setting("where", {dim: values_along(data, dim)[0]}) for dim in steps if data.sizes[dim] > 1
            ),
        )
    where, field = laid.where, laid.values
    found, _ = load(laid, np.arange(laid.fields), missing=wanted.missing, computed=True)
    values = np.ascontiguousarray(found, dtype=np.float64).reshape(laid.fields, *where.shape)
    check_finite(values, name)
    units = stated_units(name, field.attrs, wanted.units, partial(extremes, [values]), f"values of {name!r}")
    if units.note:
        warn(units.note)
    values = units.applied(values)
    flat = values.reshape(laid.fields, -1)
    where.check_nowhere(flat[:, where.nowhere], name)
    coordinates = {
        key: axis
        for key, axis in laid.coordinates.items()
        # the result says the system of its targets
        if not describes_system(axis)
    }
    attributes = {key: text for key, text in _kept(field.attrs).items() if key != "units"}
    attributes |= {"units": cf_units(units.name)} if units.name not in ("", "unknown") else {}
    known = _noise(data, wanted.noise_std, where, units.name)
    noise = _noise_variance(given, known, flat.shape[1:], where.shape)
    moments = _moments(laid)
    calendar = "" if moments is None else calendar_of_dates(moments)
    about: dict[str, Any] = {
        "variable": replace(variable_named(name), name=name),
        "stated_units": attributes.get("units", ""),
        "times": None if in_time or moments is None else laid.times,
        "space": where.space,
    }
    if where.axes is not None:
        rows, columns = grid_once(values, *where.axes, where.space)
        values = values[:, rows][:, :, columns]
        north, east = (axis[kept] for axis, kept in zip(where.axes, (rows, columns), strict=True))
        noise = None if noise is None else noise.reshape(where.shape)[np.ix_(rows, columns)]
        points = Observations.from_grid(north, east, values, noise_variance=noise, **about)
    else:
        there = np.flatnonzero(~where.nowhere)
        north, east = (axis[there] for axis in where.points)
        once = places_once(flat[:, there], north, east, where.space)
        values, noise = flat[:, there[once]], None if noise is None else noise[there[once]]
        points = Observations.from_points(north[once], east[once], values, noise_variance=noise, **about)
    return ObservedObject(
        points,
        name=name,
        dimension=laid.dimension,
        coordinates=coordinates,
        where=where,
        attributes=attributes,
        missing=int(np.isnan(values).sum()),
        moments=moments,
        calendar=calendar or str(data.attrs.get(SOURCE_CALENDAR, "")),
    )


def _moments(laid: Gridded) -> NDArray[np.generic] | None:
    """Moments of the fields, one of each, as the object has them; None where they are no dates."""
    if laid.clock is None or laid.clock.axis.size != laid.fields:
        return None
    axis = laid.clock.axis
    return np.atleast_1d(np.asarray(axis.values)) if are_dates(axis) else laid.times


def _kept(attributes: Mapping[Any, object]) -> dict[str, str]:
    """Attributes that results have too, units as CF writes them."""
    kept = {
        key: str(attributes[key])
        for key in KEPT_ATTRIBUTES
        if attributes.get(key) not in (None, "", "unknown")  # as cfgrib calls what has no standard name
    }
    return kept | ({"units": cf_units(kept["units"])} if "units" in kept else {})


def _noise(source: xr.Dataset, noise_std: str | float | None, where: Horizontal, units: str) -> Array | None:
    """Noise of each place in the units of the values, if it is a variable of the dataset."""
    if not isinstance(noise_std, str):  # a number is the same everywhere
        return None
    if noise_std not in source.variables:
        raise ArgumentError(
            f"noise_std is {noise_std!r}; expected a number, or a variable of the dataset, which has "
            f"{listed(source.data_vars)}.",
            key="noise-std",
        )
    field = source[noise_std].squeeze(
        [dim for dim in source[noise_std].dims if source.sizes[dim] == 1 and str(dim) not in where.dims]
    )
    if set(map(str, field.dims)) != set(where.dims):
        raise ArgumentError(
            f"the noise {noise_std!r} has the dimensions {tuple(field.dims)}; expected {where.dims}, the "
            "noise of each place at all times.",
            key="noise-std",
        )
    what = f"the noise {noise_std!r}"
    check_says_std(noise_std, field.attrs, what)
    factor = noise_factor(units, str(field.attrs.get("units", "")), what)
    held = field.transpose(*where.dims).values
    found = observations(held, field.attrs, what=what, encoding=field.encoding)
    return factor * np.asarray(found, dtype=np.float64).reshape(-1)
