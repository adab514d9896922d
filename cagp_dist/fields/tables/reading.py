"""`read_table` and `read_places`: one row per measurement, or per place."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import cast

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Indices, Marks, Times
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.column_names import (
    BREADTHS,
    LATITUDE,
    LENGTHS,
    LONGITUDE,
    NOISE_STD,
    X_NAMES,
    Y_NAMES,
    plain,
)
from cagp_dist.fields.column_roles import IGNORED, column_roles
from cagp_dist.fields.quantities import refuse_direction
from cagp_dist.fields.selection import Selection, parse_times, time_positions
from cagp_dist.fields.tables.cells import (
    MissingMarks,
    read_depths,
    read_labels,
    read_noise,
    read_row_places,
    read_static,
    refuse_similar,
    static_columns,
)
from cagp_dist.fields.tables.columns import Columns, refuse_rows
from cagp_dist.fields.tables.degrees import degrees_among, differ
from cagp_dist.fields.tables.grouping import Places, Table
from cagp_dist.fields.tables.limits import read_limited
from cagp_dist.fields.tables.moments import about_time, moments_of
from cagp_dist.fields.tables.neighbours import Kind, check_neighbours, kinds_of, units_of, value_column
from cagp_dist.fields.tables.repeats import (
    chosen_rows,
    copied_rows,
    far_away,
    said_of_copies,
    words_for_missing,
)
from cagp_dist.fields.tables.table_files import TableLike
from cagp_dist.remedies import Setting
from cagp_dist.space import SPHERE, Plane, Space
from cagp_dist.text import counted
from cagp_dist.variables import bare

TIMES = "times"  # instead of a column: rows of these times are meant


def read_table(
    source: TableLike,
    *,
    value: str | None = None,
    columns: Mapping[str, str] | None = None,
    noise_std: str | float | None = None,
    units: str | None = None,
    missing: Marks = None,
    where: Mapping[str, object] | None = None,
    static: Collection[str] = (),
    plane: bool = False,
) -> Table:
    """Read observations from a table.

    Parameters
    ----------
    source : path, data frame, array with named fields, or mapping of names to columns
        A path of a CSV file (comma, semicolon or tab between columns, ``#`` or ``%`` before comments, also
        compressed; UTF-8, UTF-16 or Latin-1; units may stand in a line below the names) or of a Parquet file.
        One row per measurement. Frames of pandas, polars, pyarrow and dask are read, lazy ones up to ten
        million rows; masked cells are missing. A `cagp_dist.fields.tables.Column` has attributes, such as
        units.
    value : str, optional
        Column of the values; by default the one numeric column that is neither a coordinate nor a description
        of the place.
    columns : mapping of str to str, optional
        Columns by what stands in them, ``{"latitude": "lat", "longitude": "lon", "time": "date", "name":
        "site"}``; by default the usual names are looked for, whatever their letter case. A column of depths,
        positive downward, is one only where it is named: ``{"depth": "pressure"}``; so is one of limits of
        detection, which calls and jobs take. ``{"x": "easting",
        "y": "northing"}`` are coordinates of a plane, instead of latitude and longitude. Longitudes may be
        0..360 or -180..180, and degrees be written as 50.1182N, 50 07 05 N or 50d07m05sN; columns of
        hemispheres (``lat_dir``, ``ew``), minutes and seconds (``lat_min``) beside them are used.
        Times are ISO 8601 (UTC unless they have an offset), or whole numbers such as 20170427 or 2017042712.
        A column of dates and one of times of day, or of hours, make a time together (numbers up to 24 only in
        a column ``hour``; in ``hhmm`` 15 is a quarter past midnight); where no column has dates, they are put
        together from columns ``year``, ``month``, ``day``, ``hour`` and ``minute``, as many as there are, or
        from ``year`` and ``doy``, the day of the year. ``{"time": "none"}`` leaves times out: all rows are of
        one field.
        Names of the places are by default taken from a column such as ``name`` or ``station``, if there is
        one.
    noise_std : str or number, optional
        Column, or one number for all rows: standard deviation of the error of a measurement, in the units of
        the values; a column that states others, ``err (K)`` beside ``t (degC)``, is converted. By default a
        column named ``noise_std``, if there is one.
    units : str, optional
        Units of the values; by default what stands in brackets behind the name of their column. Where that
        is another unit, values are converted.
    missing : number, str or sequence of them, optional
        What the table writes instead of a missing value, such as -9999 or ``"ND"``, beside empty cells and
        NaN. Other numbers that look like such marks are refused, unless this is a sequence:
        ``[-9999, 999.9]``, or ``[]`` where every number was observed.
    where : mapping of columns to values, optional
        Which rows are meant: those with this value, or one of a list, in a column such as ``element`` or
        ``level``; or those of some times, ``{"times": ["2024-07-01T12:00"]}``. ``"*"`` stands for all values:
        they are measurements of the same thing, and the column does not count, such as one of hemispheres;
        for columns of degrees, that these are decimal as they are.
    static : collection of str, optional
        Columns with a number for each place, such as its elevation, that are wanted as far as they are there.
    plane : bool
        Whether x and y of a plane are looked for by the usual names, such as ``easting``.

    Returns
    -------
    Table
        Rows without a value are left out and counted. Rows that equal another one in every column count
        once. Places within 1e-6 degrees are one.

    Raises
    ------
    ArgumentError
        If which column is meant cannot be told, or rows of one place and time differ in a column that nothing
        was said of, and that is no other quantity, counter, noise or flag.
    DataError
        If the file cannot be read, or a row holds what cannot be an observation.

    Examples
    --------
    >>> rows = {"LAT": [48.1, 52.5, 50.1], "LON": [11.6, 13.4, 8.7], "TMAX (degC)": [21.0, None, 19.5]}
    >>> table = read_table(rows)
    >>> table.values, table.name, table.units, table.dropped_missing
    (array([21. , 19.5]), 'TMAX', 'degC', 1)
    """
    selection = Selection(
        value=value,
        columns=columns or {},
        noise_std=noise_std,
        units=units,
        missing=missing,
        where=where or {},
        static=static,
    )
    return read_rows(source, selection, plane=plane)


def read_rows(source: TableLike, selection: Selection, *, plane: bool = False) -> Table:
    """Read what is wanted of a table, as `read_table`."""
    value, noise_std, static = selection.value, selection.noise_std, selection.static
    frame, wanted = Columns.open(source), dict(selection.where)
    at = None if TIMES in frame.columns else wanted.pop(TIMES, None)
    frame, said, ignored = chosen_rows(frame, wanted)
    roles, marks = column_roles(selection.columns), MissingMarks.of(selection.missing)
    plane, time, name = plane or selection.asked.any, roles.get("time"), roles.get("name")
    axes = _axes(frame, roles, plane=plane, ignored=ignored)
    frame, kinds = frame.with_decimals_of(*axes), kinds_of(frame)
    name = None if name is None else frame.find("name", name, ())
    noise: str | None = None
    if noise_std is None or isinstance(noise_std, str):
        noise = frame.find("noise_std", noise_std, NOISE_STD, needed=False)
    depth = None if "depth" not in roles else frame.find("depth", roles["depth"], ())
    limit = None if "limit" not in roles else frame.find("limit", roles["limit"], ())
    if limit is not None and not selection.limits:
        raise ArgumentError(
            f"columns names {limit!r} as the limit of detection, and what is done here takes values alone; "
            "expected none. krige, Kriging and jobs take limits.",
            key="limit",
        )
    used = {
        column
        for column in (*axes, *degrees_among(frame), name, noise, depth, limit, *said)
        if column is not None
    }
    used |= set(static_columns(frame, [*static, *selection.labels]).values())
    when = about_time(frame) | ({str(frame.find("time", time, ()))} if time not in (None, IGNORED) else set())
    column = value_column(frame, kinds, used | when) if value is None else str(frame.find("value", value, ()))
    held = f"column {column!r} of {frame.title}"
    if selection.limits:
        values, below = read_limited(frame, column, limit, marks, held)
    else:
        values = marks.observations(frame, column, held)
        below = np.zeros(values.size, dtype=bool)
    every = np.arange(values.size)
    refuse_rows(frame, every, np.isinf(values), f"{held} is infinite", "finite numbers.")
    kept = np.flatnonzero(~np.isnan(values))
    if kept.size == 0:
        raise DataError(
            f"{held} has no value in any of its {counted(values.size, 'row')}.", key="nothing-observed"
        )
    taken = {*used, *when, column}
    places = read_row_places(frame, axes, kept, plane=plane, taken=taken, named=name, ignored=ignored)
    moments = moments_of(frame, time, kept, apart={*ignored, *axes, column})
    if at is not None:
        there, at_these = _at_times(frame, moments.times, at)
        kept, places, moments = kept[there], places.at(there), replace(moments, times=at_these)
    if depth is not None:
        places = replace(places, depths=read_depths(frame, depth, kept, marks))
    keys: list[NDArray[np.generic]] = [*places.keys.T]
    keys += [found for found in (moments.times, places.names) if found is not None]
    keys += [] if places.depths is None else [places.depths.values]
    copies = copied_rows(frame, keys, kept, axes)
    own = np.flatnonzero(~copies)
    kept, places, keys = kept[own], places.at(own), [key[own] for key in keys]
    times = None if moments.times is None else moments.times[own]
    looked_at, missed = {*used, *moments.columns, column}, np.isnan(values)
    if time == IGNORED:
        looked_at |= {name for name, kind in kinds.items() if kind in (Kind.DAY, Kind.TIME)}
    notes = (
        words_for_missing(bare(column), frame, column, missed, marks.texts),
        *moments.notes,
        said_of_copies(int(copies.sum())),
        *check_neighbours(
            frame,
            kinds,
            looked_at,
            keys,
            values[kept],
            kept,
            zoned=moments.zoned,
            plane=plane,
            keyed_by_time=times is not None,
        ),
        far_away(places),
    )
    units = units_of(frame, kinds, column, kept, said, selection.units, values[kept])
    standard_name = str(frame.attributes.get(column, {}).get("standard_name", ""))
    refuse_direction(bare(column), units.name, standard_name, values)
    refuse_similar(frame, static, used | when | {column})
    known, their_units = read_static(frame, static, kept, marks)
    codes, labels = read_labels(frame, selection.labels, kept)
    places = replace(places, static=known | codes, static_units=their_units, labels=labels)
    return Table(
        **vars(places),
        values=units.applied(values[kept]),
        below=below[kept] if below.any() else None,
        times=times,
        noise_std=read_noise(frame, noise, noise_std, kept, units=units, marks=marks),
        name=bare(column),
        units=units.name,
        rows=frame.in_source(kept).astype(np.int32 if len(missed) < 2**31 else np.int64),
        dropped_missing=int(missed.sum()),
        notes=tuple(filter(None, (*notes, units.note))),
    )


def _at_times(frame: Columns, times: Times | None, wanted: object) -> tuple[Indices, Times]:
    """Find the rows of some times, and give these."""
    if times is None:
        raise ArgumentError(
            f"where names times, and {frame.title} has no column of times; leave them out.", key="no-times"
        )
    listed = [wanted] if isinstance(wanted, str | np.datetime64) else list(cast("Iterable[object]", wanted))
    chosen = parse_times([str(each) for each in listed])
    time_positions(times, chosen)  # all of them are there
    there = np.flatnonzero(np.isin(times, chosen))
    return there, times[there]


def read_places(
    source: TableLike,
    space: Space = SPHERE,
    *,
    columns: Mapping[str, str] | None = None,
    static: Collection[str] = (),
    depth: Collection[str] = (),
    timed: bool = False,
) -> Places:
    """Read places as `read_table`; of a plane degrees stand in where there are no columns of its x and y.

    Depths are in the first column of the names ``depth`` that is there. Columns of times are refused unless
    the table may be ``timed``.
    """
    frame, roles, plane = Columns.open(source), column_roles(columns), isinstance(space, Plane)
    if isinstance(space, Plane):
        roles |= dict(zip("xy", space.names, strict=True))
        roles = {role: name for role, name in roles.items() if role not in "xy" or name in frame.columns}
        usual = _OF_A_PLANE.items()
        plane = all(role in roles or frame.find(role, None, names, needed=False) for role, names in usual)
    names = _axes(frame, roles, plane=plane)
    if frame.rows == 0:
        raise DataError(f"{frame.title} has no rows; expected at least one place.", key="no-points")
    if not timed and (when := sorted(about_time(frame))):
        raise ArgumentError(
            f"{frame.title} has the column {when[0]!r}, but places of a map have no times: it is made for "
            "each time of the observations. Leave the column out, and name places once.",
            key="times",
        )
    every, marks = np.arange(frame.rows), MissingMarks.of(None)
    places = read_row_places(frame, names, every, plane=plane, taken={*names, *static}, of_targets=True)
    known, own = read_static(frame, static, every, marks)
    deep = next(iter(static_columns(frame, depth).values()), None)
    return replace(
        places,
        static=known,
        static_units=own,
        depths=None if deep is None else read_depths(frame, deep, every, marks),
    )


_OF_THE_GLOBE = {"latitude": (*LATITUDE, *BREADTHS), "longitude": (*LONGITUDE, *LENGTHS)}
_OF_A_PLANE = {"x": X_NAMES, "y": Y_NAMES}


def _axes(
    frame: Columns, roles: Mapping[str, str], *, plane: bool, ignored: Collection[str] = ()
) -> tuple[str, str]:
    """Columns of latitude and longitude, or of x and y."""
    if not plane and "latitude" not in roles:
        every = {"latitude": _OF_THE_GLOBE["latitude"], **_OF_A_PLANE}
        found = [frame.find(role, None, usual, needed=False) for role, usual in every.items()]
        if found[0] is None and all(found[1:]):
            raise ArgumentError(
                f"{frame.title} has no column for the latitude; it has {found[1]!r} and {found[2]!r}. If "
                "they are coordinates of a plane, say so, and which system they have, where it is known.",
                key="plane-not-said",
                remedies=(Setting("columns", {"x": found[1], "y": found[2]}),),
            )
    if plane and (globe := {"latitude", "longitude"} & set(roles)):
        raise ArgumentError(
            f"columns names the {' and the '.join(sorted(globe))}, and crs the system of a plane; expected x "
            "and y beside crs, or latitude and longitude without it.",
            key="columns",
        )
    usual = _OF_A_PLANE if plane else _OF_THE_GLOBE
    for role, names in usual.items():
        alike = {*names} - {*BREADTHS, *LENGTHS}
        pairs = combinations((name for name in frame.columns if plain(name) in alike), 2)
        for one, other in () if role in roles else pairs:
            if not {one, other} & set(ignored) and differ(frame, one, other):
                raise ArgumentError(
                    f"columns {one!r} and {other!r} of {frame.title} are different places, and it cannot be "
                    "told at which of them the values were measured.",
                    key="which-column",
                    remedies=tuple(Setting("columns", {role: name}) for name in (one, other)),
                )
    first, second = (str(frame.find(role, roles.get(role), names)) for role, names in usual.items())
    return first, second
