"""Any ERA5-like dataset in canonical form: one unit, latitude ascending, longitude in [0, 360)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Indices, Marks, Times
from cagp_dist.errors import ConfigurationError, DataError
from cagp_dist.fields.axis_layout import (
    LEVEL,
    PLACE,
    SELECTED,
    STEPS,
    VERSION_IS_PRELIMINARY,
    check_fits,
    explain_absent,
    fields_in,
    find_variable,
    held_times,
    standard_fields,
)
from cagp_dist.fields.calendars import noting
from cagp_dist.fields.field_points import field_variable, observation_points
from cagp_dist.fields.files.damage import check_axis, check_jumps
from cagp_dist.fields.missing import observations
from cagp_dist.fields.selection import (
    Area,
    Choice,
    area_masks,
    inside_area,
    on_grid,
    parse_times,
    shown_time,
    time_positions,
)
from cagp_dist.geometry import is_pole
from cagp_dist.store.batches import marked, preliminary_times, still_preliminary
from cagp_dist.variables import T2M, Variable, canonical_name, describe_variable, range_error

__all__ = ["assemble", "canonical", "field_variable", "joined_times", "observation_points", "time_axis"]

Values = NDArray[np.float32]


def canonical(
    *datasets: xr.Dataset,
    variable: str = "t2m",
    times: Sequence[str] | None = None,
    area: Area | None = None,
    grid_degrees: float | None = None,
    level: float | None = None,
    select: Mapping[str, Choice] | None = None,
    units: str | None = None,
    check_range: bool = True,
    missing: Marks = None,
) -> xr.Dataset:
    """Bring the selected part of a field into canonical form, checked and in memory."""
    published = canonical_name(variable)
    wanted = None if times is None else parse_times(times)
    fields = [
        field
        for holder in _holders(datasets, variable)
        for field in standard_fields(holder, variable, level=level, select=select)
    ]
    found, scales = _described(fields, published, units, checked=check_range)
    reading = _Reading(fields, scales, wanted, missing)
    if "longitude" in fields[0].dims:
        values, moments, latitude, longitude, preliminary = _on_grid(reading, area, grid_degrees, check_range)
    else:
        values, moments, latitude, longitude, preliminary = _at_places(reading, area, grid_degrees)
    _check_values(values, moments, found, str(fields[0].attrs.get("units", "")))
    if check_range and values.ndim == 3:
        check_jumps(values, moments, latitude, longitude, found)
    return noting(marked(assemble(values, moments, latitude, longitude, found), preliminary), datasets)


_Part = tuple[Values, Times, Array, Array, Times]  # times, latitudes, longitudes, preliminary times


def _on_grid(reading: "_Reading", area: Area | None, grid_degrees: float | None, checked: bool) -> _Part:
    """Part of a field on a grid."""
    latitude, longitude = _common_grid(reading.fields, checked=checked)
    rows, columns = np.arange(latitude.size), np.arange(longitude.size)
    if grid_degrees is not None:
        rows, columns = on_grid(latitude, grid_degrees), on_grid(longitude, grid_degrees)
    if area is not None:
        north_south, west_east = inside_area(latitude[rows], longitude[columns], area)
        rows, columns = rows[north_south], columns[west_east]
    values, moments, preliminary = _load(reading, rows, columns)
    values, latitude = _ascending_rows(values, latitude[rows])
    values, longitude = _ascending_columns(values, longitude[columns])
    return values, moments, latitude, longitude, preliminary


def _at_places(reading: "_Reading", area: Area | None, grid_degrees: float | None) -> _Part:
    """Part of a field of places without axes: those without coordinates are left out."""
    if grid_degrees is not None:
        raise ConfigurationError(
            "grid_degrees is for a grid with axes of latitude and longitude, and the field has a latitude "
            "and a longitude for each place; leave it out."
        )
    latitude, longitude = _common_places(reading.fields)
    known = np.isfinite(latitude) & np.isfinite(longitude)
    if not known.all():
        lost = _load(reading, np.flatnonzero(~known))[0]
        if not np.isnan(lost).all():
            raise DataError(
                f"{np.count_nonzero(~np.isnan(lost).all(axis=0))} places of the field have values and no "
                "latitude or longitude; expected both, or neither. Correct the coordinates."
            )
    inside = known
    if area is not None:
        inside = np.logical_and.reduce([known, *area_masks(latitude, longitude, area)])
    if not inside.any():
        raise ConfigurationError(f"the field has no place in the area {area} (north, west, south, east).")
    latitude, longitude = np.clip(latitude[inside], -90.0, 90.0), np.mod(longitude[inside], 360.0)
    values, moments, preliminary = _load(reading, np.flatnonzero(inside))
    kept = _each_once(values, latitude, longitude)
    return values[:, kept], moments, latitude[kept], longitude[kept], preliminary


def _common_places(fields: list[xr.DataArray]) -> tuple[Array, Array]:
    """Latitude and longitude of every place (n,), NaN where it has none."""
    latitude, longitude = (fields[0][name].values.ravel() for name in ("latitude", "longitude"))
    for other in fields[1:]:
        same = (
            np.array_equal(fields[0][name], other[name], equal_nan=True) for name in ("latitude", "longitude")
        )
        if not all(same):
            raise DataError("the parts have different places; expected the same ones at all times.")
    low, high = np.nanmin(latitude, initial=0.0), np.nanmax(latitude, initial=0.0)
    if max(-low, high) > 90.0 + 1e-4 or np.nanmax(np.abs(longitude), initial=0.0) > 540.0:
        raise DataError(
            f"the places have latitudes {low:g}..{high:g} and longitudes up to "
            f"{np.nanmax(np.abs(longitude)):g}; expected -90..90 and -180..360 degrees. Check which is which."
        )
    return latitude, longitude


def _each_once(values: Values, latitude: Array, longitude: Array) -> Indices:
    """Positions of the places (n,), each once; refuses one that has two values at a time."""
    east = np.where(is_pole(latitude), 0.0, longitude)
    places = np.stack([latitude, east], axis=1).round(6)
    _, first, place = np.unique(places, axis=0, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[place.ravel()] != np.arange(latitude.size))
    copies = values[:, first[place.ravel()][again]]
    here = values[:, again]
    same = (here == copies) | (np.isnan(here) & np.isnan(copies))
    differ = np.flatnonzero(~same.all(axis=0))
    if differ.size:
        at = again[differ[0]]
        raise DataError(
            f"latitude {latitude[at]:g}, longitude {longitude[at]:g} appears twice with different values "
            f"({differ.size} such places); expected each place once. Leave one of them out."
        )
    return np.sort(first)


def time_axis(
    *datasets: xr.Dataset, variable: str = "t2m", select: Mapping[str, Choice] | None = None
) -> Times:
    """List the times of a field; no value of it is read."""
    canonical_name(variable)
    held = [held_times(part, variable, select=select) for part in _holders(datasets, variable)]
    found = np.unique(np.concatenate(held))
    if found.size == 0:
        raise DataError("the source holds no time at all; expected at least one field.")
    return found


def _holders(datasets: Sequence[xr.Dataset], variable: str) -> list[xr.Dataset]:
    """Choose the datasets that hold the variable; there must be one."""
    holders = [dataset for dataset in datasets if find_variable(dataset.data_vars, variable)]
    if not holders:
        raise explain_absent(
            variable, dict.fromkeys(name for dataset in datasets for name in fields_in(dataset))
        )
    return holders


def assemble(
    values: Values,
    moments: NDArray[np.datetime64],
    latitude: Array,
    longitude: Array,
    variable: Variable = T2M,
) -> xr.Dataset:
    """Wrap arrays in canonical order, values (T, P, Q) or (T, n), as a dataset with CF attributes."""
    gridded = values.ndim == 3
    dimensions = ("time", "latitude", "longitude") if gridded else ("time", PLACE)

    def axis(name: str, units: str, letter: str) -> dict[str, str]:
        said = {"standard_name": name, "long_name": name, "units": units}
        return said | ({"axis": letter} if gridded else {})

    return xr.Dataset(
        {variable.name: (dimensions, np.ascontiguousarray(values), variable.attributes())},
        coords={
            "time": ("time", moments, {"standard_name": "time", "long_name": "time", "axis": "T"}),
            "latitude": (dimensions[1], latitude, axis("latitude", "degrees_north", "Y")),
            "longitude": (dimensions[-1], longitude, axis("longitude", "degrees_east", "X")),
        },
        attrs={"Conventions": "CF-1.13"},
    )


def joined_times(parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """Join fields in canonical form that hold one variable on one grid at different times."""
    variables = [field_variable(part) for part in parts]
    first, latitude, longitude = variables[0], parts[0]["latitude"].values, parts[0]["longitude"].values
    for part, variable in zip(parts, variables, strict=True):
        _check_same(first, variable)
        _check_same_grid((latitude, longitude), (part["latitude"].values, part["longitude"].values))
    preliminary = still_preliminary(parts)
    values, moments = [], []
    for part in parts:
        best = ~np.isin(part["time"].values, np.setdiff1d(preliminary_times(part), preliminary))
        values.append(part[first.name].values[best])
        moments.append(part["time"].values[best])
    merged = _merge_times(np.concatenate(values), np.concatenate(moments))
    return noting(marked(assemble(*merged, latitude, longitude, first), preliminary), parts)


def _check_same(first: Variable, other: Variable) -> None:
    if (other.name, other.units, other.long_name) != (first.name, first.units, first.long_name):
        raise DataError(
            f"the parts hold {first.long_name!r} [{first.units}] and {other.long_name!r} [{other.units}] "
            f"under the name {first.name!r}; expected one quantity in one unit."
        )


def _described(
    fields: list[xr.DataArray], name: str, units: str | None, *, checked: bool
) -> tuple[Variable, list[tuple[float, float]]]:
    """Say what the fields are, and how the values of each come to its unit; they must be one quantity."""
    found = []
    for field in fields:
        variable, scale = describe_variable(
            name, field.attrs, units=units, level=str(field.attrs.get(LEVEL, ""))
        )
        if SELECTED in field.attrs:
            variable = replace(variable, long_name=f"{variable.long_name} ({field.attrs[SELECTED]})")
        found.append((variable, scale))
    first = found[0][0]
    for other, _ in found[1:]:
        _check_same(first, other)
    return replace(first, checked=checked), [scale for _, scale in found]


def _common_grid(fields: list[xr.DataArray], *, checked: bool) -> tuple[Array, Array]:
    latitude, longitude = fields[0].latitude.values, fields[0].longitude.values
    for other in fields[1:]:
        _check_same_grid((latitude, longitude), (other.latitude.values, other.longitude.values))
    if latitude.size == 0 or longitude.size == 0:
        raise DataError(f"the grid is {latitude.size} x {longitude.size}; expected at least one point.")
    if not (np.isfinite(latitude).all() and np.isfinite(longitude).all()):
        raise DataError("a latitude or longitude of the grid is missing; the file is damaged.")
    if np.abs(latitude).max() > 90.0 + 1e-6 or np.abs(longitude).max() > 360.0 + 1e-6:
        raise DataError(
            f"the grid has latitudes {latitude.min():g}..{latitude.max():g} and longitudes "
            f"{longitude.min():g}..{longitude.max():g}; expected -90..90 and -180..360 degrees. "
            "The file is damaged or its axes are swapped."
        )
    check_axis(latitude, "latitude", spacing=checked)
    check_axis(longitude, "longitude", spacing=checked)
    return latitude, longitude


def _check_same_grid(first: tuple[Array, Array], other: tuple[Array, Array]) -> None:
    if not all(map(np.array_equal, first, other)):
        sizes = [" x ".join(str(axis.size) for axis in axes) for axes in (first, other)]
        raise DataError(
            f"the parts have different grids, {sizes[0]} and {sizes[1]}; expected one grid for all times."
        )


@dataclass(frozen=True, eq=False)
class _Reading:
    """Fields, what brings each to the unit, the times that are wanted, and marks of missing values."""

    fields: list[xr.DataArray]
    scales: list[tuple[float, float]]
    wanted: NDArray[np.datetime64] | None
    missing: Marks


def _cut(field: xr.DataArray, *kept: Indices) -> xr.DataArray:
    """Take rows and columns out of a field, or places, which are those of its last dimensions."""
    if len(kept) == 2:
        return field.isel(latitude=_runs(kept[0]), longitude=_runs(kept[1]))
    dim, *others = field["latitude"].dims
    if others:
        field, dim = field.load().stack(any_place=[dim, *others], create_index=False), "any_place"
    return field.isel({dim: _runs(kept[0])})


def _load(reading: _Reading, *kept: Indices) -> tuple[Values, Times, Times]:
    """Read the selection, final values before preliminary ones: values, times, those without a final one."""
    fields, wanted = reading.fields, reading.wanted
    available = np.concatenate([field.time.values for field in fields])
    positions = time_positions(available, wanted)
    owner = np.repeat(np.arange(len(fields)), [field.time.size for field in fields])[positions]
    start = np.cumsum([0, *(field.time.size for field in fields)])
    pieces, moments, preliminary = [], [], []
    for number, (field, scale) in enumerate(zip(fields, reading.scales, strict=True)):
        steps = positions[owner == number] - start[number]
        if not steps.size:
            continue
        check_fits(field, steps.size * prod(axis.size for axis in kept))
        box = _cut(field.isel(time=_runs(steps)), *kept)
        versions = observations(
            box.values, box.attrs, what=repr(box.name), encoding=box.encoding or None, missing=reading.missing
        )
        piece, times = _scaled(_best_version(box, versions), scale), field.time.values[steps]
        early = _preliminary(box, versions)
        if field.attrs.get(STEPS):  # of a table of starts and steps, what was never computed is empty
            there = ~_empty(piece)
            piece, times, early = piece[there], times[there], early[there]
        pieces.append(piece)
        moments.append(times)
        preliminary.append(early)
    values, found = np.concatenate(pieces), np.concatenate(moments)
    only_early = np.concatenate(preliminary)
    if found.size == 0:
        raise DataError(
            f"no forecast step of the source has values at {shown_time(available[positions[0]])} or at "
            "another selected time; fetch these steps, or select other times."
        )
    time_positions(found, wanted)
    best = ~(only_early & np.isin(found, found[~only_early]))  # where both are there, the final one
    merged = _merge_times(values if best.all() else values[best], found[best])
    return *merged, found[only_early & best]


def _scaled(values: NDArray[np.floating], scale: tuple[float, float]) -> Values:
    """Bring values to another unit, worked out in double precision."""
    factor, offset = scale
    if scale == (1.0, 0.0):
        return values.astype(np.float32, copy=False)
    return (factor * values.astype(np.float64) + offset).astype(np.float32)


def _runs(positions: Indices) -> slice | Indices:
    """Turn contiguous positions into a slice, which files and remote stores read far quicker."""
    first, last = int(positions[0]), int(positions[-1])
    return slice(first, last + 1) if last - first + 1 == positions.size else positions


def _empty(values: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Tell at which of the first dimension all values are missing."""
    found: NDArray[np.bool_] = np.isnan(values).reshape(len(values), -1).all(axis=1)
    return found


def _best_version(box: xr.DataArray, values: NDArray[np.floating]) -> NDArray[np.floating]:
    if box.dims[0] == "time":
        return values
    best: NDArray[np.floating] = values[0]
    for preliminary in values[1:]:
        best = np.where(np.isnan(best), preliminary, best)
    return best


def _preliminary(box: xr.DataArray, values: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Tell at which times of a field a value is that of a preliminary version, for want of a final one."""
    stated = box.coords.get(VERSION_IS_PRELIMINARY)
    if stated is None:
        return np.zeros(box.sizes["time"], dtype=bool)
    if box.dims[0] == "time":
        return np.asarray(stated.values)
    final = ~np.isnan(values[~stated.values]).all(axis=0)
    early = ~np.isnan(values[stated.values]).all(axis=0)
    found: NDArray[np.bool_] = (early & ~final).reshape(len(early), -1).any(axis=1)
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
                "field per time. Remove the one that is not wanted."
            )
    return (values, moments) if first.all() else (values[first], moments[first])


def _ascending_rows(values: Values, latitude: Array) -> tuple[Values, Array]:
    order = np.argsort(latitude, kind="stable")
    latitude = np.clip(latitude[order], -90.0, 90.0).round(6)
    if (np.diff(latitude) <= 0.0).any():
        raise DataError("a latitude appears twice; expected every row of the grid once.")
    return values[:, order], latitude


def _ascending_columns(values: Values, longitude: Array) -> tuple[Values, Array]:
    wrapped = np.mod(longitude, 360.0).round(6)
    wrapped[wrapped >= 360.0] = 0.0  # a tiny negative longitude
    order = np.argsort(wrapped, kind="stable")
    wrapped, values = wrapped[order], values[:, :, order]
    first = np.append(True, np.diff(wrapped) > 0.0)
    for repeated in np.flatnonzero(~first):
        if not np.array_equal(values[..., repeated], values[..., repeated - 1], equal_nan=True):
            raise DataError(
                f"longitude {wrapped[repeated]:g} appears twice (0 and 360 are one meridian) with different "
                "values; expected every column of the grid once."
            )
    return (values, wrapped) if first.all() else (values[..., first], wrapped[first])


def _check_values(values: Values, moments: NDArray[np.datetime64], variable: Variable, units: str) -> None:
    missing = np.isnan(values)
    if missing.all():
        expected = "temperatures" if variable.is_temperature else "values"
        raise DataError(
            f"the field is NaN everywhere; expected {expected}. Check times and area of the source."
        )
    empty = np.flatnonzero(_empty(values))
    if empty.size:
        raise DataError(
            f"the field is NaN everywhere at {shown_time(moments[empty[0]])} ({empty.size} of {moments.size} "
            "times); the source has a hole there. Leave these times out or use another source."
        )
    wrong = range_error(variable, float(np.nanmin(values)), float(np.nanmax(values)), units)
    if wrong is not None:
        raise wrong
    if np.isinf(values).any():
        raise DataError(
            f"the field holds infinite values ({np.count_nonzero(np.isinf(values))} of {values.size}); "
            "expected numbers, or NaN where there is none. Check _FillValue of the file."
        )
