"""Observations at places of their own, such as weather stations, from a table: one row per measurement.

They take the way of a field, (time, place), in the unit of the variable; NaN is what was not measured. Points
of an xarray object are such a table.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr

from cagp_dist.arrays import Times
from cagp_dist.digest import file_sha256
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.fields.gridded import LABEL, NAMED, PLACE
from cagp_dist.fields.points import Points, table_of
from cagp_dist.fields.selection import (
    Selection,
    area_masks,
    no_area_in_plane,
    not_thinned,
    parse_times,
    the_time,
    time_positions,
)
from cagp_dist.fields.tables import MeasuredFields, Table, by_time_and_place, read_rows
from cagp_dist.kernels import DEPTH
from cagp_dist.space import CRSLike
from cagp_dist.store.published_variables import BELOW_LIMIT, CONVENTIONS, STATION_NAME, about_depth
from cagp_dist.variables import Variable, describe_variable, range_error


def open_stations(path: Path, selection: Selection) -> xr.Dataset:
    """Read the selected measurements of a table."""
    field = _field(_read(path, selection), selection, str(path), selection.crs)
    return field.assign_attrs(source=f"table {path.name}", source_sha256=file_sha256(path))


def field_of_points(points: Points, selection: Selection, what: str) -> xr.Dataset:
    """Take the selected points of an xarray object, which are a table, in the form of a field."""
    return _field(table_of(points, selection), selection, what, points.crs or selection.crs)


def _field(table: Table, selection: Selection, what: str, crs: CRSLike = None) -> xr.Dataset:
    """Give the selected measurements of a table the form of a field, in the unit of the variable."""
    if selection.grid_degrees is not None:
        raise not_thinned(what)
    units = table.units
    variable, (factor, offset) = _variable_of(selection.variable, units)
    variable = replace(variable, checked=selection.check_range)
    fields = _selected(by_time_and_place(table), what, selection)
    values = factor * fields.values + offset
    wrong = range_error(variable, float(np.nanmin(values)), float(np.nanmax(values)), units)
    if wrong is not None:
        raise wrong
    noise = fields.noise_std if fields.noise_std is None else abs(factor) * fields.noise_std
    north, east, space = fields.located(crs)
    north, east = space.keys(north, east).T
    space.check(north, east)
    coordinates: dict[str, object] = {
        name: (PLACE, axis, {key: text for key, text in about.items() if key != "axis"})
        for (name, about), axis in zip(space.axes.items(), (north, east), strict=True)
    }
    coordinates |= space.mapping
    if noise is not None:
        coordinates["noise_std"] = (PLACE, noise)
    if fields.names is not None:
        coordinates[STATION_NAME] = (PLACE, fields.names.astype(str))
    for axis, names in fields.labels.items():
        called = np.array([*names, ""])  # the last one is that of `NO_LABEL`
        coordinates[axis] = (PLACE, called[fields.static[axis].astype(np.intp)], LABEL)
    if fields.below is not None:
        coordinates[BELOW_LIMIT] = (("time", PLACE), fields.below)
    if (deep := fields.depths) is not None:
        coordinates[DEPTH] = (PLACE, deep.values, {NAMED: deep.name, **about_depth(deep.units)})
    return xr.Dataset(
        {variable.name: (("time", PLACE), values, variable.attributes())},
        coords={"time": ("time", fields.times), **coordinates},
        attrs={
            "Conventions": CONVENTIONS,
            "dropped_missing": table.dropped_missing,
            "notes": list(table.notes),
        },
    )


def _variable_of(name: str, units: str) -> tuple[Variable, tuple[float, float]]:
    """Variable of a column, and what brings its values to its unit; without units it may be anything."""
    variable, scale = describe_variable(name, {"units": units}, units=units)
    if not units and not variable.is_temperature:
        return Variable(variable.name, variable.name.replace("_", " ")), (1.0, 0.0)
    return variable, scale


def station_times(path: Path, selection: Selection) -> Times:
    """List the times of a table, ascending, each once, NaT of one without; raises as `open_stations`."""
    times = _read(path, selection).times
    return np.array(["NaT"], "datetime64[ns]") if times is None else np.unique(times)


def _read(path: Path, selection: Selection) -> Table:
    try:
        return read_rows(path, replace(selection, value=selection.variable))
    except ArgumentError as error:
        raise ConfigurationError(error.text, key=error.key, remedies=error.remedies) from error


def _selected(fields: MeasuredFields, what: str, selection: Selection) -> MeasuredFields:
    """Keep the wanted times and area, and the places that measured something then."""
    times, area = selection.times, selection.area
    chosen = None if times is None else parse_times(times)
    moments = fields.times
    if moments is None:
        moments = np.array(["NaT"], "datetime64[ns]") if chosen is None else the_time(chosen, what)
    rows = time_positions(moments, chosen)
    inside = np.ones(fields.latitude_degrees.size, dtype=bool)
    if fields.plane:
        no_area_in_plane(area, fields.plane.names)
    elif area is not None:
        inside = np.logical_and(*area_masks(fields.latitude_degrees, fields.longitude_degrees, area))
    kept = np.flatnonzero(inside & np.isfinite(fields.values[rows]).any(axis=0))
    if kept.size == 0:
        raise ConfigurationError(
            f"{what} has no measurement in the area and at the times of the job.", key="empty-area"
        )
    chosen_values = np.ix_(rows, kept)
    below = None if fields.below is None else fields.below[chosen_values]
    return replace(
        fields,
        **vars(fields.at(kept)),
        values=fields.values[chosen_values],
        below=below if below is not None and below.any() else None,
        times=moments[rows],
        noise_std=None if fields.noise_std is None else fields.noise_std[kept],
    )
