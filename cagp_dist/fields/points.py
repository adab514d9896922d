"""Points of an xarray object, each with a value, a place and a time of its own, as the columns of a table.

The discrete sampling geometries of CF (chapter 9) are such: points, trajectories, profiles, time series whose
times differ, in arrays of samples, of stations by samples, or ragged. They take the way of every table.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.arrays import Marks
from cagp_dist.errors import CagpError, DataError
from cagp_dist.fields.axes import Clock, Horizontal, Role, are_dates, clock_of, located, moments_of, role_of
from cagp_dist.fields.column_names import counted_from
from cagp_dist.fields.gridded import check_fits
from cagp_dist.fields.missing import observations, unpacked
from cagp_dist.fields.selection import ANYWHERE, Asked, Selection
from cagp_dist.fields.tables import Column, Table, read_rows
from cagp_dist.fields.zones import zone_of
from cagp_dist.kernels import DEPTH, ROW
from cagp_dist.space import CRSLike, Plane
from cagp_dist.space.systems import same_system, variables_of
from cagp_dist.text import counted

FEWEST_COLUMNS = 3  # of rows: two of places, and the value
MOST_RAGGED = 4  # one kind of ragged array within another, at most


@dataclass(frozen=True, eq=False)
class Points:
    """Columns of a table, and which of them says what."""

    columns: Mapping[str, NDArray[Any]]
    value: str
    axes: tuple[str, str] | None  # columns of latitude and longitude, or of y and x; None: as in any table
    time: str | None
    attributes: Mapping[str, Any]  # of the values, such as units
    where: Horizontal | None = None  # of the rows, in the object that they come from
    # of columns of numbers beside the values, places and times, where they are stated, such as of a noise
    units_beside: Mapping[str, str] = field(default_factory=dict)
    zones: Mapping[str, str] = field(default_factory=dict)  # of times, where they are stated
    pair: tuple[str, str] = ("latitude", "longitude")  # roles of the axes
    crs: CRSLike = None  # of y and x

    @property
    def roles(self) -> dict[str, str]:
        """Which columns say where and when, as far as that was found out."""
        axes = {} if self.axes is None else dict(zip(self.pair, self.axes, strict=True))
        return axes if self.time is None else {**axes, "time": self.time}

    @property
    def units(self) -> str:
        """Of the values, empty if they are not stated."""
        return str(self.attributes.get("units", ""))


def points_in(
    given: xr.Dataset, name: str, *, asked: Asked = ANYWHERE, missing: Marks = None
) -> Points | None:
    """Take a variable of points as a table; None if it is one of fields. ``asked`` says of a plane."""
    given = _unravelled(given)
    field = given[name]
    if not field.ndim:
        return None
    try:
        where = located(given, field, asked)
    except CagpError:
        if field.ndim > 1 or field.dims[0] in given.indexes or len(given.variables) < FEWEST_COLUMNS:
            raise
        where = None  # rows whose places are written as in a table: as texts, or in parts
    if where is not None and not _are_points(given, field, where):
        return None
    check_fits(field, field.size * len(given.variables))
    rows = {str(dim): field.sizes[dim] for dim in field.dims}
    columns: dict[str, NDArray[Any]] = {}
    for key, axis in {**variables_of(given), **variables_of(field)}.items():
        told = role_of(key, axis) not in (Role.REFERENCE, Role.STEP)  # which the time comes from
        if told and axis.ndim and {*axis.dims} <= {*rows}:
            columns[key] = _spread(axis.dims, _column(axis, key), rows)
    if field.dtype.kind in "fiu":
        values = observations(
            field.values, field.attrs, what=repr(name), encoding=field.encoding or None, missing=missing
        )
        columns[name] = np.asarray(values, dtype=np.float64).reshape(-1)
    axes = None
    if where is not None:
        named = {id(axis): key for key, axis in where.coordinates.items()}
        axes = named[id(where.north)], named[id(where.east)]
        for key, degrees in zip(axes, where.points, strict=True):
            placed = np.where(where.nowhere, np.nan, degrees).reshape(where.shape)
            columns[key] = _spread(where.dims, placed, rows)
        if not where.space.has_latitudes and where.space.unit:
            for key in axes:
                columns[f"{key} ({where.space.unit})"] = columns.pop(key)
    clock = clock_of(given, field)
    stated_zones = ((str(key), zone_of("", axis.attrs)) for key, axis in given.variables.items())
    zones = {key: zone.said for key, zone in stated_zones if zone is not None}
    if clock is not None:
        moments = clock.moments()
        when = clock.axis.values if moments is None else moments
        zones |= {} if moments is None else {clock.name: "UTC"}
        columns[clock.name] = _spread(clock.axis.dims, when, rows)
    time = None if clock is None or _is_one_of_several(clock, columns) else clock.name
    stated = {
        key: str(given.variables[key].attrs.get("units", "")) for key in columns if key in given.variables
    }
    beside = {
        key: units
        for key, units in stated.items()
        if units and key not in (name, *(axes or ())) and columns[key].dtype.kind in "fiu"
    }
    points = Points(columns, name, axes, time, dict(field.attrs), where, beside, zones, crs=asked.crs)
    if where is None or not isinstance(where.space, Plane):
        return points
    return replace(points, pair=("y", "x"), crs=where.space.crs)


def _is_one_of_several(clock: Clock, columns: Mapping[str, NDArray[Any]]) -> bool:
    """Whether other columns say when as well, and no attribute tells which: a table compares them."""
    told = {"standard_name", "axis"} & {*clock.axis.attrs}
    return not told and sum(role_of(name) is Role.TIME for name in columns) > 1


def with_rows_of_depths(given: xr.Dataset, name: str, selection: Selection) -> xr.Dataset:
    """Give profiles, or fields on levels, a row for each value, where the depth is a dimension of them."""
    if selection.columns.get(DEPTH) not in given[name].dims:
        return given
    check_fits(given[name], given[name].size * len(given.variables))
    beside = {*selection.static, *selection.labels, selection.noise_std, "noise_std"}
    own = [key for key in given.data_vars if key == name or (key in beside and given[key].ndim)]
    return given[own].stack({ROW: given[name].dims}, create_index=False)


def table_of(points: Points, selection: Selection) -> Table:
    """Read points as a table; what is chosen of dimensions is chosen of columns."""
    told = {key: {"units": units} for key, units in points.units_beside.items()}
    for key, zone in points.zones.items():
        told.setdefault(key, {})["time_zone"] = zone
    for key, direction in zip(points.axes or (), ("north", "east"), strict=False):
        if counted_from(key):  # its degrees have been brought to these
            told.setdefault(key, {})["units"] = f"degrees_{direction}"
    names = "units", "standard_name", "long_name"
    told[points.value] = {name: str(points.attributes[name]) for name in names if name in points.attributes}
    rows = {key: Column(held, told.get(key, {})) for key, held in points.columns.items()}
    columns = {**points.roles, **selection.columns}
    return read_rows(rows, replace(selection, value=points.value, columns=columns, crs=points.crs))


def _spread(dims: Sequence[Hashable], values: NDArray[Any], rows: Mapping[str, int]) -> NDArray[Any]:
    """Repeat what lies along some of the dimensions of the rows for each of them."""
    spread = xr.Variable(dims, values).set_dims(rows).transpose(*rows)
    return np.asarray(spread.values).reshape(-1)


def joined_points(parts: Sequence[Points]) -> Points:
    """Put the points of several files together, with the columns that all of them have."""
    first = parts[0]
    for part in parts[1:]:
        own, others = ((each.units, each.time, each.axes, each.pair) for each in (first, part))
        if own != others or not same_system(first.crs, part.crs):
            raise DataError(
                f"the parts hold {first.value!r} in {first.units!r} and {part.units!r}, with the times "
                f"{first.time!r} and {part.time!r}; expected one quantity in one unit, under the same names, "
                "in one system.",
                key="parts",
            )
    common = [key for key in first.columns if all(key in part.columns for part in parts)]
    for key in common:
        units = {part.units_beside.get(key, "") for part in parts}
        zones = {part.zones.get(key, "") for part in parts}
        for stated, what in ((units, "unit"), (zones, "zone")):
            if len(stated) > 1:
                raise DataError(
                    f"the parts hold {key!r} in {' and '.join(map(repr, sorted(stated)))}; expected "
                    f"one {what}.",
                    key="parts",
                )
    return replace(
        first, columns={key: np.concatenate([part.columns[key] for part in parts]) for key in common}
    )


def _are_points(given: xr.Dataset, field: xr.DataArray, where: Horizontal) -> bool:
    """Whether each value has a place, and perhaps a time, of its own: no grid, and no fields at places."""
    places, others = {*where.dims}, {*map(str, field.dims)} - {*where.dims}
    if where.axes is not None or not places:
        return False
    timed = [
        {*map(str, axis.dims)}
        for key, axis in variables_of(given).items()
        if axis.ndim and {*axis.dims} <= {*field.dims} and role_of(key, axis) is Role.TIME
    ]
    if len(places) == 1:
        return not others or any(places <= dims for dims in timed)
    # of a swath, lines have times; drifters have places at times that are an axis
    moving = any(dims == places or (dims < places and dims <= {*map(str, given.indexes)}) for dims in timed)
    return not others and (moving or "featureType" in given.attrs)


def _column(axis: xr.Variable, name: str) -> NDArray[Any]:
    """Give a variable as a column: decoded numbers, dates of the standard calendar, texts."""
    values = np.asarray(axis.values)
    if are_dates(axis) and (moments := moments_of(axis)) is not None:
        return moments
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8", "replace")
    if values.dtype.kind == "O":
        return np.array([each.decode() if isinstance(each, bytes) else str(each) for each in values.ravel()])
    if values.dtype.kind in "fiu" and {"scale_factor", "add_offset"} & {*axis.attrs}:
        return unpacked(values, axis.attrs, what=repr(name))
    return values


def _unravelled(given: xr.Dataset) -> xr.Dataset:
    """Give what is known of each station or trajectory to each of its samples, in ragged arrays of CF."""
    for _ in range(MOST_RAGGED):
        for key, held in given.variables.items():  # noqa: B007
            instance = str(held.attrs.get("instance_dimension", next(iter(held.dims), "")))
            sample = str(held.attrs.get("sample_dimension", next(iter(held.dims), "")))
            if held.ndim == 1 and instance != sample and {instance, sample} <= {*map(str, given.dims)}:
                break
        else:
            return given
        counts = held.values
        of_instance = held.dims == (instance,)
        total, most = given.sizes[sample], given.sizes[instance]
        whole = np.nan_to_num(counts.astype(np.float64), nan=-1.0).astype(np.int64)
        wrong = (whole < 0).any() or (whole.sum() != total if of_instance else (whole >= most).any())
        if wrong:
            expected = (
                f"that its numbers make {total:,} together"
                if of_instance
                else f"numbers from 0 to {most - 1:,}"
            )
            raise DataError(
                f"{key!r} says which of the {counted(total, 'sample')} belong to which of the "
                f"{most:,} along {instance!r}, and its numbers do not fit; expected {expected}.",
                key="ragged",
            )
        index = np.repeat(np.arange(most), whole) if of_instance else whole
        spread = {
            other: axis.isel({instance: index})
            .to_base_variable()
            ._replace(dims=tuple(sample if dim == instance else dim for dim in axis.dims))
            for other, axis in given.variables.items()
            if instance in axis.dims and sample not in axis.dims and other != key
        }
        coordinates = [other for other in spread if other in given.coords]
        given = given.drop_vars([key, *spread]).assign(spread).set_coords(coordinates)
    return given
