"""Any ERA5-like dataset in canonical form: one unit, latitude ascending, longitude in [0, 360)."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Indices, Mask, Times
from cagp_dist.errors import ArgumentError, ConfigurationError, DataError
from cagp_dist.fields.axes import on_plane
from cagp_dist.fields.calendars import noting
from cagp_dist.fields.column_roles import check_of_fields, in_roles
from cagp_dist.fields.files.damage import check_axis, check_jumps
from cagp_dist.fields.gridded import (
    LABEL,
    NAMED,
    PLACE,
    Gridded,
    check_finite,
    dates_of,
    explain_absent,
    fields_in,
    find_variable,
    grid_once,
    laid_out,
    load,
    places_once,
    times_of,
)
from cagp_dist.fields.points import Points, joined_points, points_in, table_of, with_rows_of_depths
from cagp_dist.fields.selection import (
    EVERYTHING,
    GapPolicy,
    Selection,
    area_masks,
    inside_area,
    no_area_in_plane,
    not_thinned,
    on_grid,
    parse_times,
    the_time,
    time_positions,
)
from cagp_dist.fields.tables import Depths, codes_of
from cagp_dist.kernels import DEPTH, VARIABLE
from cagp_dist.pipeline import Observations
from cagp_dist.space import SPHERE, Plane, Space
from cagp_dist.store.batches import marked, preliminary_times, still_preliminary
from cagp_dist.store.published_variables import BELOW_LIMIT, CONVENTIONS, STATION_NAME
from cagp_dist.text import shown_time
from cagp_dist.variables import T2M, Variable, canonical_name, describe_variable, range_error, variable_of
from cagp_dist.variables.stated_units import Units, extremes, stated_units

Values = NDArray[np.floating]  # in the precision of the source

# Of a field of several variables, which `cagp_dist.fields.together` makes
VALUES = "value"  # of all variables
VARIABLES = "variables"  # attribute: their names and attributes as JSON
MISSING = "missing_places"  # attribute: (k, 2) where none of them has a value


def canonical(*datasets: xr.Dataset, selection: Selection = EVERYTHING) -> xr.Dataset:
    """Bring the selected part of a field into canonical form, checked and in memory."""
    variable, area, grid_degrees = selection.variable, selection.area, selection.grid_degrees
    wanted = None if selection.times is None else parse_times(selection.times)
    check_of_fields(selection.columns, selection.labels, variable)
    if selection.noise_std is not None:
        raise ConfigurationError(
            f"noise_std is for tables and points, and {variable!r} is a field; leave it out.", key="noise-std"
        )
    fields = [
        field
        for holder in _holders(datasets, selection)
        for field in laid_out(
            holder, _name(holder, variable), selection.select, level=selection.level, asked=selection.asked
        )
    ]
    found, scales = _described(
        fields, canonical_name(variable), selection.units, checked=selection.check_range
    )
    read = partial(_load, fields, scales, wanted, selection)
    gridded, space = fields[0].where.axes is not None, _common_space(fields)
    if isinstance(space, Plane):
        no_area_in_plane(area, space.names)
    if grid_degrees is not None and not (gridded and space.has_latitudes):
        raise not_thinned(repr(variable))
    if gridded:
        north, east = _common_grid(fields, space, checked=selection.check_range)
        rows, across = np.arange(north.size), np.arange(east.size)
        if grid_degrees is not None:
            rows, across = on_grid(north, grid_degrees), on_grid(east, grid_degrees)
        if area is not None:
            north_south, west_east = inside_area(north[rows], east[across], area)
            rows, across = rows[north_south], across[west_east]
        values, moments, preliminary, notes = read(rows, across)
        north, east = north[rows], east[across]
        if space.has_latitudes:
            north, east = north.round(6), np.mod(east, 360.0).round(6)
            east[east >= 360.0] = 0.0  # a tiny negative longitude
        rows, across = grid_once(values, north, east, space)
        rows, across = rows[np.argsort(north[rows])], across[np.argsort(east[across])]
        values, north, east = values[:, rows][:, :, across], north[rows], east[across]
    else:
        north, east = _common_places(fields)
        nowhere = fields[0].where.nowhere
        inside = ~nowhere
        if area is not None:
            inside = np.logical_and.reduce([inside, *area_masks(north, east, area)])
        if not inside.any():
            raise ConfigurationError(
                f"the field has no place in the area {area} (north, west, south, east).", key="empty-area"
            )
        places = np.flatnonzero(inside | nowhere)
        values, moments, preliminary, notes = read(places)
        fields[0].where.check_nowhere(values[:, nowhere[places]], variable)
        values = values[:, inside[places]]
        north, east = space.keys(north[inside], east[inside]).T
        kept = places_once(values, north, east, space)
        values, north, east = values[:, kept], north[kept], east[kept]
    _check_values(values, moments, found, str(fields[0].values.attrs.get("units", "")))
    if selection.check_range and gridded:
        check_jumps(values, moments, north, east, found, space)
    field = assemble(values, moments, north, east, found, space).assign_attrs(
        {"notes": notes} if notes else {}
    )
    return noting(marked(field, preliminary), datasets)


def points_of(datasets: Sequence[xr.Dataset], selection: Selection) -> Points | None:
    """Take a variable as points, each with a place of its own; None where it is one of fields."""
    variable, holders = selection.variable, _holders(datasets, selection)
    found = []
    for each in holders:
        name = _name(each, variable)
        rows = with_rows_of_depths(each, name, selection)
        found.append(points_in(rows, name, asked=selection.asked, missing=selection.missing))
    points = [each for each in found if each is not None]
    if points and len(points) < len(found):
        raise DataError(f"{variable!r} has fields and points; expected one of them.", key="parts")
    return joined_points(points) if points else None


def time_axis(datasets: Sequence[xr.Dataset], selection: Selection) -> Times:
    """List the times of a field, NaT of one without any; no value of it is read, but those of points."""
    variable = selection.variable
    canonical_name(variable)
    if (points := points_of(datasets, selection)) is not None:
        times = table_of(points, selection).times
        return np.array(["NaT"], dtype="datetime64[ns]") if times is None else np.unique(times)
    holders = _holders(datasets, selection)
    held = [times_of(part, _name(part, variable), selection.select) for part in holders]
    found = np.unique(np.concatenate(held))
    time_positions(found, None)  # there is one
    return found


def _name(dataset: xr.Dataset, variable: str) -> str:
    """Name that a variable has in a dataset that holds it."""
    return str(find_variable(dataset.data_vars, variable))


def _holders(datasets: Sequence[xr.Dataset], selection: Selection) -> list[xr.Dataset]:
    """Choose the datasets that hold the variable, with coordinates in their roles; there must be one."""
    holders = [
        in_roles(dataset, selection.columns)
        for dataset in datasets
        if find_variable(dataset.data_vars, selection.variable)
    ]
    if not holders:
        raise explain_absent(
            selection.variable, dict.fromkeys(name for dataset in datasets for name in fields_in(dataset))
        )
    return holders


def assemble(
    values: Values,
    moments: NDArray[np.datetime64],
    north: Array,
    east: Array,
    variable: Variable = T2M,
    space: Space = SPHERE,
) -> xr.Dataset:
    """Wrap arrays in canonical order, values (T, P, Q) or (T, n), as a dataset with CF attributes."""
    gridded = values.ndim == 3
    dimensions = ("time", *space.axes) if gridded else ("time", PLACE)
    attributes = variable.attributes()
    if space.mapping:
        attributes["grid_mapping"] = next(iter(space.mapping))
    coordinates: dict[str, object] = {
        "time": ("time", moments, {"standard_name": "time", "long_name": "time", "axis": "T"}),
        **space.mapping,
    }
    for (name, about), dimension, axis in zip(
        space.axes.items(), (dimensions[1], dimensions[-1]), (north, east), strict=True
    ):
        coordinates[name] = (
            dimension,
            axis,
            {key: said for key, said in about.items() if gridded or key != "axis"},
        )
    return xr.Dataset(
        {variable.name: (dimensions, np.ascontiguousarray(values), attributes)},
        coords=coordinates,
        attrs={"Conventions": CONVENTIONS},
    )


def joined_times(parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """Join fields in canonical form that hold one variable on one grid at different times."""
    variables = [field_variable(part) for part in parts]
    first, space = variables[0], space_of(parts[0])
    north, east = (parts[0][name].values for name in space.axes)
    for part, variable in zip(parts, variables, strict=True):
        _check_same(first, variable)
        _check_same_space(space, space_of(part))
        other_north, other_east = (part[name].values for name in space.axes)
        _check_same_grid((north, east), (other_north, other_east))
    preliminary = still_preliminary(parts)
    values, moments = [], []
    for part in parts:
        best = ~np.isin(part["time"].values, np.setdiff1d(preliminary_times(part), preliminary))
        values.append(part[first.name].values[best])
        moments.append(part["time"].values[best])
    merged = _merge_times(np.concatenate(values), np.concatenate(moments))
    return noting(marked(assemble(*merged, north, east, first, space), preliminary), parts)


def _check_same(first: Variable, other: Variable) -> None:
    if (other.name, other.units, other.long_name) != (first.name, first.units, first.long_name):
        raise DataError(
            f"the parts hold {first.long_name!r} [{first.units}] and {other.long_name!r} [{other.units}] "
            f"under the name {first.name!r}; expected one quantity in one unit.",
            key="parts",
        )


def _described(
    fields: list[Gridded], name: str, units: str | None, *, checked: bool
) -> tuple[Variable, list[tuple[float, float]]]:
    """Say what the fields are, and how the values of each come to its unit; they must be one quantity."""
    found = []
    for field in fields:
        variable, scale = describe_variable(name, field.values.attrs, units=units, level=field.level)
        if field.chosen:
            variable = replace(variable, long_name=f"{variable.long_name} ({field.chosen})")
        found.append((variable, scale))
    first = found[0][0]
    for other, _ in found[1:]:
        _check_same(first, other)
    return replace(first, checked=checked), [scale for _, scale in found]


def _common_space(fields: list[Gridded]) -> Space:
    """Space in which every field lies."""
    first = fields[0].where.space
    for other in fields[1:]:
        _check_same_space(first, other.where.space)
    return first


def _check_same_space(first: Space, other: Space) -> None:
    if first is not other and not first.is_same(other):
        raise DataError(
            f"the parts lie in two spaces, the {first.text} and the {other.text}; expected one.", key="parts"
        )


def _common_grid(fields: list[Gridded], space: Space, *, checked: bool) -> tuple[Array, Array]:
    """Axes of every field, as they come."""
    axes = [field.where.axes for field in fields]
    first = axes[0]
    assert first is not None
    for other in axes[1:]:
        _check_same_grid(first, other or (np.empty(0), np.empty(0)))
    north, east = first
    if north.size == 0 or east.size == 0:
        raise DataError(
            f"the grid is {north.size} x {east.size}; expected at least one point.", key="no-points"
        )
    for name, axis in zip(space.axes, first, strict=True):
        check_axis(axis, name, spacing=checked)
    return north, east


def _common_places(fields: list[Gridded]) -> tuple[Array, Array]:
    """Latitude and longitude of every place (n,) of every field."""
    first = fields[0].where.points
    for other in fields[1:]:
        if not all(map(np.array_equal, first, other.where.points)):
            raise DataError(
                "the parts have different places; expected the same ones at all times.", key="parts"
            )
    return first


def _check_same_grid(first: tuple[Array, Array], other: tuple[Array, Array]) -> None:
    if not all(map(np.array_equal, first, other)):
        sizes = [" x ".join(str(axis.size) for axis in axes) for axes in (first, other)]
        raise DataError(
            f"the parts have different grids, {sizes[0]} and {sizes[1]}; expected one grid for all times.",
            key="parts",
        )


def _load(
    fields: Sequence[Gridded],
    scales: Sequence[tuple[float, float]],
    wanted: Times | None,
    selection: Selection,
    *kept: Indices,
) -> tuple[Values, Times, Times, list[str]]:
    """Read the selection, final values before preliminary ones.

    Gives values, times, those without a final one, and what people should know of the units. ``scales`` bring
    the units that are asked for, or are stated, to those of the variable.
    """
    held = [_times(field, wanted) for field in fields]
    available = np.concatenate(held)
    positions = time_positions(available, wanted)
    owner = np.repeat(np.arange(len(fields)), [times.size for times in held])[positions]
    start = np.cumsum([0, *(times.size for times in held)])
    pieces, moments, preliminary, owners = [], [], [], []
    for number, field in enumerate(fields):
        steps = positions[owner == number] - start[number]
        if not steps.size:
            continue
        piece, early = load(field, steps, *kept, missing=selection.missing)
        times = held[number][steps]
        if field.of_steps:  # of a table of starts and steps, what was never computed is empty
            there = ~_empty(piece)
            piece, times, early = piece[there], times[there], early[there]
        pieces.append(piece)
        owners.append(number)
        moments.append(times)
        preliminary.append(early)
    told = [_units_of(fields[number].values, selection.units, pieces) for number in owners]
    pieces = [
        _scaled(piece, (scales[number][0] * own.factor, scales[number][0] * own.offset + scales[number][1]))
        for piece, number, own in zip(pieces, owners, told, strict=True)
    ]
    notes = list(dict.fromkeys(own.note for own in told if own.note))
    values, found = np.concatenate(pieces), np.concatenate(moments)
    only_early = np.concatenate(preliminary)
    if found.size == 0:
        raise DataError(
            f"no forecast step of the source has values at {shown_time(available[positions[0]])} or at "
            "another selected time; fetch these steps, or select other times.",
            key="empty-times",
        )
    time_positions(found, wanted)
    best = ~(only_early & np.isin(found, found[~only_early]))  # where both are there, the final one
    merged = _merge_times(values if best.all() else values[best], found[best])
    return *merged, found[only_early & best], notes


def _units_of(field: xr.DataArray, given: str | None, pieces: Sequence[Values]) -> Units:
    """Say in which units the values of a field are, of which all ``pieces`` are part."""
    return stated_units(
        str(field.name), field.attrs, given, partial(extremes, pieces), f"values of {str(field.name)!r}"
    )


def _times(field: Gridded, wanted: Times | None) -> Times:
    """Give the times of a field; of one without any, the single one that is wanted, else NaT."""
    name = str(field.values.name)
    if field.clock is not None or wanted is None:
        return np.broadcast_to(dates_of(field.clock, name), field.fields)
    return the_time(wanted, repr(name))


def _scaled(values: NDArray[np.floating], scale: tuple[float, float]) -> Values:
    """Bring values to another unit, worked out in double precision and kept in that of the source."""
    factor, offset = scale
    if scale == (1.0, 0.0):
        return values
    return (factor * values.astype(np.float64) + offset).astype(values.dtype)


def _empty(values: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Tell at which of the first dimension all values are missing."""
    found: NDArray[np.bool_] = np.isnan(values).reshape(len(values), -1).all(axis=1)
    return found


def _merge_times(values: Values, moments: NDArray[np.datetime64]) -> tuple[Values, NDArray[np.datetime64]]:
    order = np.argsort(moments, kind="stable")
    moments = moments[order]
    if not np.array_equal(order, np.arange(order.size)):
        values = values[order]
    first = np.append(True, moments[1:] != moments[:-1])
    for repeated in np.flatnonzero(~first):
        if not np.array_equal(values[repeated], values[repeated - 1], equal_nan=True):
            raise DataError(
                f"time {shown_time(moments[repeated])} appears twice with different values; expected one "
                "field per time. Remove the one that is not wanted.",
                key="several-values",
            )
    return (values, moments) if first.all() else (values[first], moments[first])


def _check_gaps(moments: NDArray[np.datetime64], empty: NDArray[np.bool_]) -> None:
    """Refuse times without any value."""
    if empty.any():
        raise DataError(
            f"the field is NaN everywhere at {shown_time(moments[empty][0])}, and at {empty.sum()} of "
            f"{moments.size} times, a hole of the source. Leave these times out or use another source.",
            key="empty-times",
        )


def _check_values(values: Values, moments: NDArray[np.datetime64], variable: Variable, units: str) -> None:
    check_finite(values, variable.name)
    _check_gaps(moments, _empty(values))
    wrong = range_error(variable, float(np.nanmin(values)), float(np.nanmax(values)), units)
    if wrong is not None:
        raise wrong


def observation_points(field: xr.Dataset, *, gaps: GapPolicy | None = None) -> Observations:
    """List the points of a canonical field and what was observed there; those of a pole are one.

    Of several variables each has all places of any of them, also those where it was not observed.
    """
    variable, times = field_variable(field), field["time"].values
    space = space_of(field)
    north, east = (field[name].values for name in space.axes)
    values = field[variable.name].values.astype(np.float64)
    if field[variable.name].dims == ("time", PLACE):
        noise_std, names = field.coords.get("noise_std"), field.coords.get(STATION_NAME)
        beside = {axis: codes for axis, (codes, _) in labels_of(field).items()}
        if (depths := depths_of(field)) is not None:
            beside[DEPTH] = depths.values
        if several := [each.name for each in several_variables(field)]:
            beside[VARIABLE] = np.argmax(field[VARIABLE].values[:, None] == np.array(several), axis=1) * 1.0
        found = Observations.from_points(
            north,
            east,
            values,
            space=space,
            variable=variable,
            times=times,
            noise_variance=None if noise_std is None else noise_std.values.astype(np.float64) ** 2,
            dropped_missing=int(field.attrs.get("dropped_missing", 0)),
            names=None if names is None else names.values,
            beside=beside,
            limits=limits_of(field),
        )
        if several:
            return replace(found, missing_places=field.attrs[MISSING])
        found = found.without_empty_places()
        return found.without_gaps() if gaps == "drop" else found
    found = Observations.from_grid(north, east, values, space=space, variable=variable, times=times)
    _check_gaps(times, np.asarray(~found.present.any(axis=1)))
    return found if gaps == "keep" else found.without_gaps()


def several_variables(field: xr.Dataset) -> tuple[Variable, ...]:
    """Say which variables a field is of that has several; none of another one."""
    said = json.loads(field.attrs.get(VARIABLES, "[]"))
    return tuple(variable_of(str(each["name"]), each) for each in said)


def labels_of(field: xr.Dataset) -> dict[str, tuple[Array, tuple[str, ...]]]:
    """Labels of the points of a canonical field by their axes: integers from 0 (n,), and their names.

    A point without a name has an integer of its own, after those of the names.
    """
    found = {}
    for name, held in field.coords.items():
        if LABEL.items() <= held.attrs.items():
            texts = list(map(str, held.values))
            names = tuple(sorted({*texts} - {""}))
            found[str(name)] = codes_of(texts, names), names
    return found


def depths_of(field: xr.Dataset) -> Depths | None:
    """Depths of the points of a canonical field, where they have some, as their column says them."""
    if (held := field.coords.get(DEPTH)) is None:
        return None
    return Depths(held.values, str(held.attrs[NAMED]), str(held.attrs.get("units", "")))


def limits_of(field: xr.Dataset) -> Mask | None:
    """Which values (T, n) of a canonical field of points are limits of detection, where some are."""
    held = field.coords.get(BELOW_LIMIT)
    return None if held is None else np.asarray(held.values, dtype=np.bool_)


def space_of(field: xr.Dataset) -> Space:
    """Say where a field in canonical form lies."""
    if "y" not in field.coords:
        return SPHERE
    where = on_plane(field, field[field_variable(field).name])
    assert where is not None
    assert isinstance(where.space, Plane)
    x, y = (str(field[name].attrs.get("long_name", name)) for name in "xy")
    return replace(where.space, names=(x, y))


def field_variable(field: xr.Dataset) -> Variable:
    """Say what a field in canonical form holds."""
    names = [str(name) for name in field.data_vars]
    if len(names) != 1:
        raise ArgumentError(
            f"the field holds {names}; expected one variable, from canonical(...).", key="which-variable"
        )
    return variable_of(names[0], field[names[0]].attrs)
