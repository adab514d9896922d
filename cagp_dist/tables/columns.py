"""The columns of a table: which is meant, by its usual name or the one the caller says, and its numbers."""

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.tables.files import Frame, TableLike, frame_row, index_levels, read_file
from cagp_dist.text import counted, nearest

LATITUDE = ("latitude", "lat", "lat_deg", "latitude_deg", "decimal_latitude", "decimallatitude", "stn_lat")
LONGITUDE = (
    *("longitude", "lon", "long", "lng", "lon_deg", "longitude_deg", "decimal_longitude"),
    *("decimallongitude", "stn_lon"),
)
TIME = ("time", "date", "datetime", "date_time", "timestamp", "valid_time", "obs_time", "observation_time")
DATE = ("year", "month", "day", "hour", "minute")
"""Columns that make a time together, the first of them at least."""
NOISE_STD = ("noise_std", "noise_sd", "noise_stddev", "noise_standard_deviation")
VALUE = ("value", "values", "observation", "obs", "measurement", "data_value")
NAME = (
    *("name", "station_name", "station", "site_name", "site", "place", "city", "location"),
    *("station_id", "stationid", "station_code", "stn_id", "stn", "wmo_id", "wmo", "id"),
)
"""Usual names of columns, in lower case and without units; of several that name places the first is taken."""

NO_VALUE = re.compile(
    r"(.*_)?(id|index|number|nr|code|flags?|attributes|quality|qc)|unnamed.*|name|station.*|wmo|country|"
    r"site(_name)?|place|city|location|"
    r"elev(ation)?|alt(itude)?|height|z|depth|x|y|year|month|day|hour|minute|second|source"
)
"""Names of columns that say where or when something was measured, or how well, but not what."""

MOST_SHOWN, LONGEST_SHOWN = 20, 60
"""Columns that a message names, and letters of each."""

EMPTY = ("", "nan", "na", "n/a", "null", "none", "<na>", "nat", "-")
"""What stands in an empty cell, in lower case."""


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a table by their names, and what to call the table and its rows in messages."""

    columns: Mapping[str, NDArray[Any]]
    title: str
    decimal_comma: bool
    where: Callable[[int], str]

    @classmethod
    def open(cls, source: TableLike) -> "Columns":
        """Take the columns of a file, of a frame with its index, or of a mapping."""
        title, layout = "the table", None
        if isinstance(source, (str, os.PathLike)):
            title = str(Path(source))
            source, layout = read_file(Path(source))
        where = partial(frame_row, source) if layout is None else layout.line
        if isinstance(source, Mapping):
            columns = {str(name): np.asarray(column) for name, column in source.items()}
        elif isinstance(source, Frame):
            columns = {str(name): np.asarray(source[name]) for name in source.columns}
            columns = index_levels(source) | columns
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

    def of_rows(self, rows: Indices) -> "Columns":
        """Keep some rows; messages name them as before."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return replace(self, columns=columns, where=lambda row: self.where(int(rows[row])))

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return next((len(column) for column in self.columns.values()), 0)

    @property
    def listed(self) -> str:
        """Name the columns, for messages: the first ones, where there are many."""
        shown = [
            repr(name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}...")
            for name in islice(self.columns, MOST_SHOWN)
        ]
        if len(self.columns) > MOST_SHOWN:
            shown.append(f"and {len(self.columns) - MOST_SHOWN:,} others")
        return ", ".join(shown) or "no column"

    def find(self, what: str, given: str | None, usual: tuple[str, ...], needed: bool = True) -> str | None:
        """Name of a column as the table spells it."""
        if given is not None:
            if given in self.columns:
                return given
            alike = [name for name in self.columns if plain(name) == plain(given)]
            if len(alike) == 1:
                return alike[0]
            near = nearest(given, self.columns)
            hint = f' Did you mean "{near}"?' if near else ""
            raise ArgumentError(f"{self.title} has no column {given!r}; it has {self.listed}.{hint}")
        found = sorted(
            (name for name in self.columns if plain(name) in usual),
            key=lambda name: usual.index(plain(name)),
        )
        if not found:
            if needed:
                raise ArgumentError(
                    f"{self.title} has no column for the {what}; it has {self.listed}. Say which one is "
                    f'meant: {what}="COLUMN".'
                )
            return None
        if len(found) > 1 and plain(found[0]) == plain(found[1]):
            raise ArgumentError(
                f"{self.title} has the columns {found[0]!r} and {found[1]!r}; say which of them is the "
                f"{what}: {what}={found[0]!r}."
            )
        return found[0]

    def date(self, apart: Collection[str] = ()) -> dict[str, str]:
        """Give the columns that make a time together by the names of `DATE`; none where there is no year.

        Those in ``apart`` are none of them.

        Raises
        ------
        ArgumentError
            If the rows have different months, days or hours and what would make them a time is not there.
        """
        found = {
            part: name
            for part in DATE
            if (name := self.find(part, None, (part,), needed=False)) and name not in apart
        }
        there = [part in found for part in DATE]
        date = dict(list(found.items())[: there.index(False) if False in there else None])
        for part in found.keys() - date.keys():
            if len(np.unique(self.numbers(found[part]))) > 1:
                absent = DATE[there.index(False)]
                raise ArgumentError(
                    f"{self.title} has a column {found[part]!r} with different values and none for the "
                    f'{absent}, so that it does not say when. Name a column of times: time="COLUMN".'
                )
        return date

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


def value_column(frame: Columns, used: set[str]) -> str:
    """Find the column that holds the values, if that can be told."""
    others = [name for name in frame.columns if name not in used and not NO_VALUE.fullmatch(plain(name))]
    numeric = [name for name in others if frame.columns[name].dtype.kind in "fiu"]
    usual = [name for name in others if plain(name) in VALUE]
    for found in (usual, numeric, others):
        if len(found) == 1:
            return found[0]
    reason = "several columns that may be the value" if numeric else "no column for the value"
    raise ArgumentError(
        f"{frame.title} has {reason}; it has {frame.listed}. Say which one is meant: "
        f'value="{numeric[0] if numeric else "COLUMN"}".'
    )


def plain(name: str) -> str:
    """Spell a column's name in lower case, without units in brackets, with single underscores."""
    return re.sub(r"[^a-z0-9]+", "_", bare(name).lower()).strip("_")


def bare(name: str) -> str:
    """Give the name of a column without units in brackets."""
    return re.sub(r"\s*[\[(][^\])]*[\])]\s*$", "", name).strip() or name


def units_in(name: str) -> str:
    """Give the units that stand in brackets behind the name of a column; empty if there are none."""
    found = re.search(r"[\[(]([^\])]*)[\])]\s*$", name)
    return found[1].strip() if found else ""


def such(wrong: Mask) -> str:
    """``3 such rows``."""
    return counted(int(wrong.sum()), "such row")
