"""Tables of observations and of places: one row per measurement, read from files or data frames.

Columns are found by their usual names, whatever their letter case, or named by the caller. Everything that
cannot be an observation (latitude 91, a date that is none, noise of zero) is an error that names its row, of
a text file its line; rows without a value are left out and counted.
"""

import bz2
import csv
import gzip
import lzma
import os
import re
import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Indices, Mask, Times
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.text import nearest
from cagp_dist.variables.units import difference_factor

LATITUDE = ("latitude", "lat", "lat_deg", "latitude_deg", "decimal_latitude", "decimallatitude", "stn_lat")
LONGITUDE = (
    *("longitude", "lon", "long", "lng", "lon_deg", "longitude_deg", "decimal_longitude"),
    *("decimallongitude", "stn_lon"),
)
TIME = ("time", "date", "datetime", "date_time", "timestamp", "valid_time", "obs_time", "observation_time")
NOISE_STD = ("noise_std", "noise_sd", "noise_stddev", "noise_standard_deviation")
VALUE = ("value", "values", "observation", "obs", "measurement", "data_value")
NAME = (
    *("name", "station_name", "station", "site_name", "site", "place", "city", "location"),
    *("station_id", "stationid", "station_code", "stn_id", "stn", "wmo_id", "wmo", "id"),
)
"""Usual names of columns, in lower case and without units; of several that name places the first is taken."""

NAMES_PER_PLACE = 1.5
"""A column that has more different names than this for each place names something else, such as rows."""

NO_VALUE = re.compile(
    r"(.*_)?(id|index|number|nr|code|flags?|attributes|quality|qc)|unnamed.*|name|station.*|wmo|country|"
    r"site(_name)?|place|city|location|"
    r"elev(ation)?|alt(itude)?|height|z|depth|x|y|year|month|day|hour|minute|second|source"
)
"""Names of columns that say where or when something was measured, or how well, but not what."""

MARKERS = (-99.0, -99.9, -99.99, -999.0, -999.9, -999.99, -9999.0, -9999.9, -99999.0, 999.9, 9999.0, 9999.9)
MARKERS_BEYOND = (99999.0, 1e20, 9.969209968386869e36)
"""Numbers that files write where a value is missing."""

EMPTY = ("", "nan", "na", "n/a", "null", "none", "<na>", "nat", "-")
"""What stands in an empty cell, in lower case."""

WHITESPACE = r"\s+"

MARKER_DISTANCE = 2.0
"""A marker is suspected when it lies this many ranges of the other values away from them."""


_FIELDS = (
    "A field in NetCDF, GRIB or Zarr is opened with xarray and passed as a dataset; a job reads it with "
    'source = "file:PATH" or "zarr:PATH".'
)


@runtime_checkable
class Frame(Protocol):
    """A data frame of pandas or polars: named columns that turn into arrays."""

    @property
    def columns(self) -> Iterable[Hashable]: ...

    def __getitem__(self, name: Any, /) -> Any: ...


TableLike: TypeAlias = "str | os.PathLike[str] | Mapping[str, object] | Frame"

Names: TypeAlias = NDArray[np.object_]
"""Texts; rows of one place share theirs."""


@dataclass(frozen=True, eq=False)
class Places:
    """Places on the globe.

    Attributes
    ----------
    latitude_degrees, longitude_degrees : array of float64, shape (n,)
        Degrees north and degrees east, in the order and convention of the table.
    names : array of str, shape (n,), or None
        What they are called, empty where one has no name; None if the table does not say.
    """

    latitude_degrees: Array
    longitude_degrees: Array
    names: Names | None = None


@dataclass(frozen=True, eq=False)
class Table:
    """Measurements, one per entry; none is missing.

    Attributes
    ----------
    latitude_degrees, longitude_degrees : array of float64, shape (n,)
        Degrees north and degrees east, in the order and convention of the table.
    values : array of float64, shape (n,)
        What was measured.
    times : array of datetime64[ns], shape (n,), or None
        When, in UTC; None if the table does not say.
    noise_std : array of float64, shape (n,), or None
        Standard deviation of the error of each measurement, unit of the values; None if nothing is known.
    name : str
        Column of the values, without units.
    units : str
        Their units, where the name of the column or the caller says so; else empty.
    dropped_missing : int
        Rows that were left out because they have no value.
    names : array of str, shape (n,), or None
        Of the place of each measurement, as in `Places`.
    """

    latitude_degrees: Array
    longitude_degrees: Array
    values: Array
    times: Times | None
    noise_std: Array | None
    name: str
    units: str
    dropped_missing: int = 0
    names: Names | None = None


@dataclass(frozen=True, eq=False)
class Fields:
    """Measurements by time and place.

    Attributes
    ----------
    latitude_degrees, longitude_degrees : array of float64, shape (n,)
        Of the places. A place appears again for each measurement that it has more than one of at a time, and
        for each noise that it was measured with.
    values : array of float64, shape (T, n)
        NaN where nothing was measured.
    times : array of datetime64[ns], shape (T,), or None
        Ascending; None if the table has no times, and T is 1.
    noise_std : array of float64, shape (n,), or None
    names : array of str, shape (n,), or None
        Of the places; one whose rows have several names has them all, "A; B".
    """

    latitude_degrees: Array
    longitude_degrees: Array
    values: Array
    times: Times | None
    noise_std: Array | None
    names: Names | None = None


def read_table(
    source: TableLike,
    *,
    value: str | None = None,
    latitude: str | None = None,
    longitude: str | None = None,
    time: str | None = None,
    noise_std: str | float | None = None,
    units: str | None = None,
    missing: float | None = None,
) -> Table:
    """Read observations from a table.

    Parameters
    ----------
    source : path, pandas or polars data frame, or mapping of names to columns
        A path of a CSV file (comma, semicolon or tab between columns, ``#`` or ``%`` before comments, also
        compressed) or of a Parquet file. One row per measurement.
    value, latitude, longitude, time : str, optional
        Names of columns. By default the usual names are looked for, whatever their letter case; the value is
        the one numeric column that is neither a coordinate nor a description of the place. Longitudes may be
        0..360 or -180..180. Times are ISO 8601 (UTC unless they have an offset), or whole numbers such as
        20170427. Names of the places are taken from a column such as ``name`` or ``station``, if there is
        one.
    noise_std : str or number, optional
        Column, or one number for all rows: standard deviation of the error of a measurement, in the units of
        the values; a column that states others, ``err (K)`` beside ``t (degC)``, is converted. By default a
        column named ``noise_std``, if there is one.
    units : str, optional
        Units of the values; by default what stands in brackets behind the name of their column.
    missing : number, optional
        What the table writes in place of a missing value, such as -9999, beside empty cells and NaN.

    Returns
    -------
    Table
        Rows without a value are left out and counted.

    Raises
    ------
    ArgumentError
        If a column is not there, or which one is meant cannot be told; names the columns that are there.
    DataError
        If the file cannot be read, or a row has a latitude beyond the poles, a longitude beyond -180..360, a
        time that cannot be read, a value that is no number, or a noise that is not above zero.

    Examples
    --------
    >>> rows = {"LAT": [48.1, 52.5, 50.1], "LON": [11.6, 13.4, 8.7], "TMAX (degC)": [21.0, None, 19.5]}
    >>> table = read_table(rows)
    >>> table.values, table.name, table.units, table.dropped_missing
    (array([21. , 19.5]), 'TMAX', 'degC', 1)
    """
    frame = _Columns.open(source)
    names = {
        "latitude": frame.find("latitude", latitude, LATITUDE),
        "longitude": frame.find("longitude", longitude, LONGITUDE),
        "time": frame.find("time", time, TIME, needed=False),
    }
    noise: str | None = None
    if noise_std is None or isinstance(noise_std, str):
        noise = frame.find("noise_std", noise_std, NOISE_STD, needed=False)
    used = {name for name in (*names.values(), noise) if name is not None}
    column = _value_column(frame, used) if value is None else str(frame.find("value", value, ()))
    values = frame.numbers(column)
    if missing is not None:
        values = np.where(values == missing, np.nan, values)
    _check_values(values, column, frame)
    kept = np.flatnonzero(~np.isnan(values))
    if kept.size == 0:
        raise DataError(f"column {column!r} of {frame.title} has no value in any of its {values.size} rows.")
    places = _places(frame, str(names["latitude"]), str(names["longitude"]), kept, taken={*used, column})
    stated = _units_in(column) if units is None else units
    return Table(
        latitude_degrees=places.latitude_degrees,
        longitude_degrees=places.longitude_degrees,
        values=values[kept],
        times=None if names["time"] is None else _times(frame, names["time"], kept),
        noise_std=_noise(frame, noise, noise_std, kept, units=stated),
        name=_bare(column),
        units=stated,
        dropped_missing=values.size - kept.size,
        names=places.names,
    )


def read_places(source: TableLike, *, latitude: str | None = None, longitude: str | None = None) -> Places:
    """Read places from a table; arguments and errors as for `read_table`.

    Examples
    --------
    >>> places = read_places({"name": ["Munich"], "lat": [48.1], "lon": [11.6]})
    >>> places.names, places.longitude_degrees
    (array(['Munich'], dtype=object), array([11.6]))
    """
    frame = _Columns.open(source)
    names = frame.find("latitude", latitude, LATITUDE), frame.find("longitude", longitude, LONGITUDE)
    if frame.rows == 0:
        raise DataError(f"{frame.title} has no rows; expected at least one place.")
    return _places(frame, str(names[0]), str(names[1]), np.arange(frame.rows), taken=set(map(str, names)))


def noise_in(units: str, stated: str, whose: str) -> float:
    """Factor that brings a noise from the units that are stated for it to those of the values.

    Raises
    ------
    DataError
        If they are not known to convert.
    """
    factor = difference_factor(stated, units)
    if factor is None:
        raise DataError(
            f"{whose} is in {stated!r} and the values are in {units!r}; expected a standard deviation in the "
            "units of the values. Convert one of them, or name its units in the same way."
        )
    return factor


def by_time_and_place(table: Table) -> Fields:
    """Arrange measurements by time and place, so that times can share what is computed for their places.

    Two measurements of one place at one time stay two: the place appears twice.

    Examples
    --------
    >>> rows = {"lat": [0, 0, 10], "lon": [5, 5, 5], "date": [20200101, 20200102, 20200102], "t": [1, 2, 3]}
    >>> by_time_and_place(read_table(rows)).values
    array([[ 1., nan],
           [ 2.,  3.]])
    """
    rows = len(table.values)
    noise = np.zeros(rows) if table.noise_std is None else table.noise_std
    moments, when = (
        (None, np.zeros(rows, dtype=np.intp))
        if table.times is None
        else np.unique(table.times, return_inverse=True)
    )
    # in the order in which they appear first
    kinds = np.stack([table.latitude_degrees, np.mod(table.longitude_degrees, 360.0), noise], axis=1)
    repeats = _nth_of_its_kind(np.column_stack([kinds, when]))
    _, first, place = np.unique(
        np.column_stack([kinds, repeats]), axis=0, return_index=True, return_inverse=True
    )
    rank = np.empty(first.size, dtype=np.intp)
    rank[np.argsort(first, kind="stable")] = np.arange(first.size)
    place, first = rank[place.ravel()], np.sort(first)
    values = np.full((1 if moments is None else moments.size, first.size), np.nan)
    values[when, place] = table.values
    return Fields(
        latitude_degrees=table.latitude_degrees[first],
        longitude_degrees=table.longitude_degrees[first],
        values=values,
        times=moments,
        noise_std=None if table.noise_std is None else table.noise_std[first],
        names=None if table.names is None else _joined(table.names, place, table.names[first]),
    )


def _joined(names: Names, place: Indices, found: Names) -> Names:
    """Add to the first name of each place, ``found``, the others that its rows have."""
    others = np.flatnonzero((names != found[place]) & (names != ""))
    if others.size == 0:
        return found
    every = [dict.fromkeys([name] if name else []) for name in found.tolist()]
    for row in others:
        every[place[row]][str(names[row])] = None
    return np.array(["; ".join(several) for several in every], dtype=object)


def _nth_of_its_kind(kinds: Array) -> Indices:
    """How many equal rows stand before each row of (n, k)."""
    _, kind = np.unique(kinds, axis=0, return_inverse=True)
    order = np.argsort(kind.ravel(), kind="stable")
    ordered = kind.ravel()[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    position = np.arange(ordered.size) - np.repeat(starts, np.diff(np.append(starts, ordered.size)))
    nth = np.empty_like(position)
    nth[order] = position
    return nth


@dataclass(frozen=True, eq=False)
class _Columns:
    """The columns of a table by their names, and what to call the table and its rows in messages."""

    columns: Mapping[str, NDArray[Any]]
    title: str
    decimal_comma: bool
    where: Callable[[int], str]

    @classmethod
    def open(cls, source: TableLike) -> "_Columns":
        title, layout = "the table", None
        if isinstance(source, (str, os.PathLike)):
            title = str(Path(source))
            source, layout = _read_file(Path(source))
        where = partial(_row, source) if layout is None else layout.line
        if isinstance(source, Mapping):
            columns = {str(name): np.asarray(column) for name, column in source.items()}
        elif isinstance(source, Frame):
            columns = {str(name): np.asarray(source[name]) for name in source.columns}
            columns = _index_levels(source) | columns
        else:
            raise ArgumentError(
                f"a table came as {type(source).__name__}; expected the path of a CSV or Parquet file, a "
                "pandas or polars data frame, or a mapping of names to columns."
            )
        lengths = {column.shape for column in columns.values()}
        if len(lengths) > 1 or any(len(shape) != 1 for shape in lengths):
            raise ArgumentError(
                f"the columns of {title} have shapes {sorted(lengths)}; expected vectors of one length."
            )
        return cls(columns, title, layout is not None and layout.separator == ";", where)

    @property
    def rows(self) -> int:
        return next((len(column) for column in self.columns.values()), 0)

    @property
    def listed(self) -> str:
        return ", ".join(map(repr, self.columns)) or "no column"

    def find(self, what: str, given: str | None, usual: tuple[str, ...], needed: bool = True) -> str | None:
        """Name of a column as the table spells it."""
        if given is not None:
            if given in self.columns:
                return given
            alike = [name for name in self.columns if _plain(name) == _plain(given)]
            if len(alike) == 1:
                return alike[0]
            near = nearest(given, self.columns)
            hint = f' Did you mean "{near}"?' if near else ""
            raise ArgumentError(f"{self.title} has no column {given!r}; it has {self.listed}.{hint}")
        found = sorted(
            (name for name in self.columns if _plain(name) in usual),
            key=lambda name: usual.index(_plain(name)),
        )
        if not found:
            if needed:
                raise ArgumentError(
                    f"{self.title} has no column for the {what}; it has {self.listed}. Say which one is "
                    f'meant: {what}="COLUMN".'
                )
            return None
        if len(found) > 1 and _plain(found[0]) == _plain(found[1]):
            raise ArgumentError(
                f"{self.title} has the columns {found[0]!r} and {found[1]!r}; say which of them is the "
                f"{what}: {what}={found[0]!r}."
            )
        return found[0]

    def numbers(self, name: str) -> Array:
        """Give a column as float64; NaN where a cell is empty."""
        column = self.columns[name]
        if np.ma.isMaskedArray(column):
            column = np.ma.filled(column.astype(np.float64), np.nan)
        if column.dtype.kind in "fiub":
            return column.astype(np.float64)
        out = np.empty(column.size)
        for row, cell in enumerate(column):
            out[row] = self._number(cell, name, row)
        return out

    def _number(self, cell: object, name: str, row: int) -> float:
        text = str(cell).strip()
        if text.lower() in EMPTY:
            return np.nan
        try:
            return float(text.replace(",", ".") if self.decimal_comma else text)
        except ValueError as error:
            raise DataError(
                f"column {name!r} of {self.title} holds {text!r} in {self.where(row)}; expected a number, or "
                "an empty cell where there is none."
            ) from error


@dataclass(frozen=True)
class _Layout:
    """How a text file is laid out: what stands between its columns, and what begins a comment."""

    path: Path
    separator: str
    comment: str

    def line(self, row: int) -> str:
        """Say in which line a row stands, all lines counted from 1."""
        number = 0

        def lines() -> Iterator[str]:
            nonlocal number
            with _text(self.path) as stream:
                for number, line in enumerate(stream, start=1):  # noqa: B007
                    if line.strip() and not line.startswith(self.comment):
                        yield line

        between = " " if self.separator == WHITESPACE else self.separator
        records = csv.reader(lines(), delimiter=between, skipinitialspace=True)
        next(islice(records, row + 1, None), None)  # the first is the header
        return f"line {number}"


def _row(source: object, row: int) -> str:
    """Say which row of a frame is meant, with its index where that is another number."""
    index = getattr(source, "index", None)
    label = row if index is None or callable(index) else index[row]
    return f"row {row}, counted from 0" + ("" if label == row else f", index {label}")


def _such(wrong: Mask) -> str:
    """``3 such rows``."""
    count = int(wrong.sum())
    return f"{count:,} such row{'s' if count > 1 else ''}"


def _text(path: Path) -> AbstractContextManager[TextIO]:
    """Open a text file that may be compressed."""
    packed: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    opened: AbstractContextManager[TextIO] = packed.get(path.suffix.lower(), open)(path, "rt")
    return opened


def _read_file(path: Path) -> tuple[Frame, _Layout | None]:
    """Read a file as text or Parquet; the latter has no layout."""
    import pandas as pd

    if path.is_dir():
        raise DataError(f"{path} is a folder; expected a CSV or Parquet file. {_FIELDS}")
    if not path.is_file():
        raise DataError(f"there is no file {path}; the path is relative to {Path.cwd()}.")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            frame: Frame = pd.read_parquet(path)
            return frame, None
        layout = _layout(path)
        frame = pd.read_csv(path, sep=layout.separator, comment=layout.comment, skipinitialspace=True)
        return frame, layout
    except ImportError as error:
        raise DataError(
            f"{path} is a Parquet file, and nothing is installed that reads it; run: {sys.executable} -m pip "
            "install pyarrow."
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not a text file in UTF-8 ({error.reason} at byte {error.start}); expected CSV or "
            f"Parquet. Save a table as UTF-8. {_FIELDS}"
        ) from error
    except (OSError, ValueError) as error:  # of the parser, too
        raise DataError(f"cannot read {path} as a table: {error}") from error


def _layout(path: Path) -> _Layout:
    """Find what stands between the columns of a text file, by its first line, and what begins a comment."""
    header = comment = ""
    with _text(path) as lines:
        for line in lines:
            header = str(line)
            if header.strip() and header[0] not in "#%":
                break
            comment = header[:1].strip() or comment
    marks = max((",", ";", "\t"), key=header.count)
    return _Layout(path, marks if marks in header else WHITESPACE, comment or "#")


def _index_levels(frame: Frame) -> dict[str, NDArray[Any]]:
    """Named levels of the index of a pandas frame, as `xarray.Dataset.to_dataframe` has its coordinates."""
    index = getattr(frame, "index", None)
    names = [name for name in getattr(index, "names", ()) if name is not None]
    return (
        {str(name): np.asarray(index.get_level_values(name)) for name in names} if index is not None else {}
    )


def _plain(name: str) -> str:
    """Spell a column's name in lower case, without units in brackets, with single underscores."""
    return re.sub(r"[^a-z0-9]+", "_", _bare(name).lower()).strip("_")


def _bare(name: str) -> str:
    return re.sub(r"\s*[\[(][^\])]*[\])]\s*$", "", name).strip() or name


def _units_in(name: str) -> str:
    found = re.search(r"[\[(]([^\])]*)[\])]\s*$", name)
    return found[1].strip() if found else ""


def _value_column(frame: _Columns, used: set[str]) -> str:
    """Find the column that holds the values, if that can be told."""
    others = [name for name in frame.columns if name not in used and not NO_VALUE.fullmatch(_plain(name))]
    numeric = [name for name in others if frame.columns[name].dtype.kind in "fiu"]
    usual = [name for name in others if _plain(name) in VALUE]
    for found in (usual, numeric, others):
        if len(found) == 1:
            return found[0]
    reason = "several columns that may be the value" if numeric else "no column for the value"
    raise ArgumentError(
        f"{frame.title} has {reason}; it has {frame.listed}. Say which one is meant: "
        f'value="{numeric[0] if numeric else "COLUMN"}".'
    )


def _check_values(values: Array, name: str, frame: _Columns) -> None:
    if np.isinf(values).any():
        row = int(np.isinf(values).argmax())
        raise DataError(
            f"column {name!r} of {frame.title} is infinite in {frame.where(row)}; expected finite numbers."
        )
    known = values[~np.isnan(values)]
    for marker in (*MARKERS, *MARKERS_BEYOND):
        others = known[known != marker]
        count = known.size - others.size
        if count == 0 or others.size == 0:
            continue
        away = min(abs(marker - others.min()), abs(marker - others.max()))
        if away > MARKER_DISTANCE * max(float(np.ptp(others)), 1e-9 * abs(marker)):
            raise DataError(
                f"column {name!r} of {frame.title} holds {marker:g} in {count} rows, far from all other "
                f"values ({others.min():g} to {others.max():g}): it probably marks what is missing. Say so, "
                f"missing={marker:g}, or replace it by NaN."
            )


def _places(
    frame: _Columns, latitude: str, longitude: str, kept: Indices, *, taken: Collection[str]
) -> Places:
    """Read the places of some rows, with their names if a column that is not taken holds any."""
    north, east = frame.numbers(latitude)[kept], frame.numbers(longitude)[kept]
    for name, axis, low, high in ((latitude, north, -90.0, 90.0), (longitude, east, -180.0, 360.0)):
        wrong = ~((axis >= low) & (axis <= high))  # of NaN, too
        if wrong.any():
            first = int(wrong.argmax())
            swapped = " Check that latitude and longitude were not swapped." if name == latitude else ""
            found = "empty" if np.isnan(axis[first]) else f"{axis[first]:g}"
            raise DataError(
                f"column {name!r} of {frame.title} is {found} in {frame.where(int(kept[first]))} "
                f"({_such(wrong)}); expected {low:g}..{high:g} degrees.{swapped}"
            )
    return Places(north, east, _names(frame, np.column_stack([north, np.mod(east, 360.0)]), kept, taken))


def _names(frame: _Columns, places: Array, kept: Indices, taken: Collection[str]) -> Names | None:
    """Find what the places (n, 2) of some rows are called."""
    usual = [name for name in frame.columns if _plain(name) in NAME and name not in taken]
    for column in sorted(usual, key=lambda name: NAME.index(_plain(name))):
        cells = frame.columns[column][kept].tolist()
        cells = [cell if isinstance(cell, (str, int, float)) else str(cell) for cell in cells]
        spelled = {cell: _name(cell) for cell in set(cells)}
        different = set(spelled.values()) - {""}
        if 0 < len(different) <= NAMES_PER_PLACE * len(np.unique(places, axis=0)):
            return np.array([spelled[cell] for cell in cells], dtype=object)
    return None


def _name(cell: object) -> str:
    """Write a cell as a name: a number that is whole without decimals, nothing where the cell is empty."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    text = " ".join(str(cell).split())
    return "" if text.lower() in EMPTY else text


def _times(frame: _Columns, name: str, kept: Indices) -> Times:
    """Read times in UTC; whole numbers are read as 20170427, 201704 or 2017."""
    import pandas as pd

    column = frame.columns[name][kept]
    forms = {8: "%Y%m%d", 6: "%Y%m", 4: "%Y"}
    written = [str(cell).strip() for cell in column]
    length = len(written[0])
    numbers = length in forms and all(len(text) == length and text.isdigit() for text in written)
    for_pandas = written if numbers or column.dtype.kind != "M" else column
    if column.dtype.kind == "f":
        for_pandas = [f"{cell!r} (a number)" for cell in column.tolist()]  # days since when?
    form = forms[length] if numbers else "ISO8601"
    moments = pd.to_datetime(for_pandas, format=form, utc=True, errors="coerce")
    wrong = np.asarray(moments.isna())
    if wrong.any():
        first = int(wrong.argmax())
        raise DataError(
            f"column {name!r} of {frame.title} holds {written[first]!r} in {frame.where(int(kept[first]))}, "
            f"which is no time ({_such(wrong)}); expected ISO 8601, such as 2017-04-27T12:00, or 20170427."
        )
    return np.asarray(moments.tz_localize(None).to_numpy(), dtype="datetime64[ns]")


def _noise(
    frame: _Columns, name: str | None, given: str | float | None, kept: Indices, *, units: str
) -> Array | None:
    """Read the noise in the units of the values."""
    if name is not None:
        noise = (
            noise_in(units, _units_in(name), f"column {name!r} of {frame.title}") * frame.numbers(name)[kept]
        )
    elif given is None or isinstance(given, str):
        return None
    else:
        noise = np.full(kept.size, float(given))
    wrong = ~((noise > 0.0) & np.isfinite(noise))
    if wrong.any():
        first = int(wrong.argmax())
        whose = "noise_std" if name is None else f"column {name!r} of {frame.title}"
        found = "empty" if np.isnan(noise[first]) else f"{noise[first]:g}"
        raise DataError(
            f"{whose} is {found} in {frame.where(int(kept[first]))} ({_such(wrong)}); expected the standard "
            "deviation of its error, above zero."
        )
    return noise
