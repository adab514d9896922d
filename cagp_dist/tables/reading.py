"""`read_table` and `read_places`: one row per measurement, or per place."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.missing import Marks, observations
from cagp_dist.tables.column_names import LATITUDE, LONGITUDE, NOISE_STD, bare, units_in
from cagp_dist.tables.columns import Columns, value_column
from cagp_dist.tables.contents import Places, Table
from cagp_dist.tables.moments import IGNORED, about_time, moments_of
from cagp_dist.tables.notes import far_places, repeated_rows, words_for_missing
from cagp_dist.tables.number_cells import check_finite, read_noise, read_row_places, static_of
from cagp_dist.tables.repeats import check_repeats, chosen_rows
from cagp_dist.tables.table_files import TableLike
from cagp_dist.text import counted


def read_table(
    source: TableLike,
    *,
    value: str | None = None,
    latitude: str | None = None,
    longitude: str | None = None,
    time: str | None = None,
    name: str | None = None,
    noise_std: str | float | None = None,
    units: str | None = None,
    missing: Marks = None,
    where: Mapping[str, object] | None = None,
    static: Collection[str] = (),
) -> Table:
    """Read observations from a table."""
    frame, said = chosen_rows(Columns.open(source), where)
    latitude = str(frame.find("latitude", latitude, LATITUDE))
    longitude = str(frame.find("longitude", longitude, LONGITUDE))
    frame = frame.with_commas_as_in(latitude, longitude)
    name = None if name is None else frame.find("name", name, ())
    noise: str | None = None
    if noise_std is None or isinstance(noise_std, str):
        noise = frame.find("noise_std", noise_std, NOISE_STD, needed=False)
    used = {column for column in (latitude, longitude, name, noise, *said) if column is not None}
    used |= set(static) & set(frame.columns)
    when = about_time(frame) | ({str(frame.find("time", time, ()))} if time not in (None, IGNORED) else set())
    column = value_column(frame, used | when) if value is None else str(frame.find("value", value, ()))
    held = f"column {column!r} of {frame.title}"
    values = np.asarray(
        observations(frame.numbers(column), what=held, missing=missing, noun="row"), dtype=np.float64
    )
    check_finite(values, column, frame)
    kept = np.flatnonzero(~np.isnan(values))
    if kept.size == 0:
        raise DataError(
            f"column {column!r} of {frame.title} has no value in any of its {counted(values.size, 'row')}."
        )
    places = read_row_places(frame, latitude, longitude, kept, taken={*used, *when, column}, named=name)
    moments = moments_of(frame, time, kept, apart=said)
    keys = [places.latitude_degrees, np.mod(places.longitude_degrees, 360.0)]
    keys += [found for found in (moments.times, places.names) if found is not None]
    check_repeats(frame, {*used, *moments.columns, column}, keys, kept)
    missed = np.isnan(values)
    notes = (
        words_for_missing(bare(column), frame.as_written(column)[missed]) if missed.any() else "",
        moments.note,
        repeated_rows([*keys, values[kept]]),
        far_places(places.latitude_degrees, places.longitude_degrees),
    )
    stated = units_in(column) if units is None else units
    return Table(
        latitude_degrees=places.latitude_degrees,
        longitude_degrees=places.longitude_degrees,
        values=values[kept],
        times=moments.times,
        noise_std=read_noise(frame, noise, noise_std, kept, units=stated, missing=missing),
        name=bare(column),
        units=stated,
        dropped_missing=values.size - kept.size,
        names=places.names,
        notes=tuple(filter(None, notes)),
        static=static_of(frame, static, kept, missing=missing),
    )


def read_places(
    source: TableLike,
    *,
    latitude: str | None = None,
    longitude: str | None = None,
    static: Collection[str] = (),
) -> Places:
    """Read places from a table; arguments and errors as for `read_table`."""
    frame = Columns.open(source)
    names = frame.find("latitude", latitude, LATITUDE), frame.find("longitude", longitude, LONGITUDE)
    if frame.rows == 0:
        raise DataError(f"{frame.title} has no rows; expected at least one place.")
    if when := sorted(about_time(frame)):
        raise ArgumentError(
            f"{frame.title} has the column {when[0]!r}, but places of a map have no times: it is made for "
            "each time of the observations. Leave the column out, and name places once."
        )
    every = np.arange(frame.rows)
    places = read_row_places(frame, str(names[0]), str(names[1]), every, taken={*map(str, names), *static})
    return replace(places, static=static_of(frame, static, every))
