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
from cagp_dist.fields.tables.column_names import DATE, EMPTY, NO_VALUE, VALUE, plain
from cagp_dist.fields.tables.table_files import (
    DataFrameLike,
    TableLike,
    frame_row,
    index_levels,
    read_file,
    read_words,
)
from cagp_dist.text import counted, nearest, printable

_DECIMAL_COMMA = re.compile(r"\d,\d")
_NUMBER = re.compile(r"[-+]?\d*(?:[.,]\d+)?(?:[eE][-+]?\d+)?")
_TENTHS = re.compile(r"[-+]\d{4},[0-9A-Z]")
_WEATHER = re.compile(r"temp|^t(2m|_?max|_?min|avg|mean)?$|^ta[vs]|precip|rain|prcp|wind|humid|dew|slp")

MOST_SHOWN, LONGEST_SHOWN = 20, 60  # columns that a message names, and letters of each
MOST_COMPARED = 1000  # columns that a name is compared with, to find what was meant


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a table by their names, and what messages call the table and its rows."""

    columns: Mapping[str, NDArray[Any]]
    title: str
    decimal_comma: bool
    where: Callable[[int], str]
    as_written: Callable[[str], NDArray[Any]]

    @classmethod
    def open(cls, source: TableLike) -> "Columns":
        """Take the columns of a file, of a frame with its index, or of a mapping."""
        title, layout = "the table", None
        if isinstance(source, (str, os.PathLike)):
            title = str(Path(source))
            source, layout = read_file(Path(source))
        if isinstance(source, Mapping):
            columns = {str(name): np.asarray(column) for name, column in source.items()}
        elif isinstance(source, DataFrameLike):
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
        if layout is None:
            return cls(columns, title, False, partial(frame_row, source), columns.__getitem__)
        return cls(
            columns,
            title,
            layout.separator == ";",
            layout.line,
            lambda name: np.asarray(read_words(layout)[name]),
        )

    def of_rows(self, rows: Indices) -> "Columns":
        """Keep some rows; messages name them as before."""
        return replace(
            self,
            columns={name: column[rows] for name, column in self.columns.items()},
            where=lambda row: self.where(int(rows[row])),
            as_written=lambda name: self.as_written(name)[rows],
        )

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return next((len(column) for column in self.columns.values()), 0)

    @property
    def listed(self) -> str:
        """Name the columns, for messages: the first ones, where there are many."""
        names = [shown_text(name) for name in islice(self.columns, MOST_SHOWN)]
        if len(self.columns) > MOST_SHOWN:
            names.append(f"and {len(self.columns) - MOST_SHOWN:,} others")
        return ", ".join(names) or "no column"

    def find(self, what: str, given: str | None, usual: tuple[str, ...], needed: bool = True) -> str | None:
        """Name of a column as the table spells it."""
        if given is not None:
            if given in self.columns:
                return given
            alike = [name for name in self.columns if plain(name) == plain(given)]
            if len(alike) == 1:
                return alike[0]
            near = nearest(given, islice(self.columns, MOST_COMPARED))
            hint = f' Did you mean "{printable(near)}"?' if near else ""
            raise ArgumentError(f"{self.title} has no column {given!r}; it has {self.listed}.{hint}")
        found = sorted(
            (name for name in self.columns if plain(name) in usual), key=lambda name: usual.index(plain(name))
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
        """Give the columns, none of those in ``apart``, that make a time together by the names of `DATE`."""
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

    def with_commas_as_in(self, *names: str) -> "Columns":
        """Take commas as those of decimals if degrees in these columns have such: 50,1182."""
        found = any(
            _DECIMAL_COMMA.search(str(cell)) is not None
            for name in names
            if self.columns[name].dtype.kind not in "biufmM"
            for cell in self.columns[name].tolist()
        )
        return replace(self, decimal_comma=True) if found else self

    def is_numeric(self, name: str) -> bool:
        """Whether a column holds numbers, also as texts with decimal commas."""
        column = self.columns[name]
        if column.dtype.kind in "biumfM":
            return column.dtype.kind in "fiu"
        cells = [str(cell).strip() for cell in column.tolist()]
        cells = [cell for cell in cells if cell.lower() not in EMPTY]
        return self.decimal_comma and bool(cells) and all(map(_NUMBER.fullmatch, cells))

    def numbers(self, name: str) -> Array:
        """Give a column as float64; NaN where a cell is empty.

        In NOAA's Integrated Surface Database "+0053,1" is tenths of a degree and a mark of quality.
        """
        column = self.columns[name]
        if np.ma.isMaskedArray(column):
            column = np.ma.filled(column.astype(np.float64), np.nan)
        if column.dtype.kind in "fiub":
            return column.astype(np.float64)
        texts = [str(cell).strip() for cell in column.tolist()]
        if texts and texts[0][1:2] == "0" and all(map(_TENTHS.fullmatch, texts)):
            return np.array([_tenths(text) for text in texts])
        if self.decimal_comma and any("," in text for text in texts):
            point = next((row for row, text in enumerate(texts) if "." in text), None)
            if point is not None:
                raise DataError(
                    f"column {name!r} of {self.title} holds {shown_text(texts[point])} in "
                    f"{self.where(point)}, but other cells have decimal commas; expected one decimal mark, "
                    "and no thousands separator."
                )
        return np.array([self._number(text, name, row) for row, text in enumerate(texts)], dtype=np.float64)

    def _number(self, text: str, name: str, row: int) -> float:
        if text.lower() in EMPTY:
            return np.nan
        try:
            return float(text.replace(",", ".") if self.decimal_comma else text)
        except ValueError as error:
            raise DataError(
                f"column {name!r} of {self.title} holds {shown_text(text)} in {self.where(row)}; expected a "
                "number, or an empty cell where there is none."
            ) from error


def value_column(frame: Columns, used: set[str]) -> str:
    """Find the column that holds the values, if that can be told."""
    others = [name for name in frame.columns if name not in used and not NO_VALUE.fullmatch(plain(name))]
    numeric = [name for name in others if frame.is_numeric(name)]
    usual = [name for name in others if plain(name) in VALUE]
    for found in (usual, numeric, others):
        if len(found) == 1:
            return found[0]
    reason = "several columns that may be the value" if numeric else "no column for the value"
    likely = min(numeric, key=lambda name: not _WEATHER.search(plain(name)), default="COLUMN")
    raise ArgumentError(
        f"{frame.title} has {reason}; it has {frame.listed}. Say which one to use: "
        f'value="{printable(likely)}".'
    )


def _tenths(text: str) -> float:
    """Read "+0053,1"."""
    number, quality = text.split(",")
    return np.nan if number.endswith("9999") or quality in ("3", "7") else float(number) / 10.0


def shown_text(text: str) -> str:
    """Write a cell or a name for messages, shortened and without control characters."""
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}...")


def shown_number(number: float) -> str:
    """Write a number of a cell for messages."""
    return "empty" if np.isnan(number) else "infinite" if np.isinf(number) else f"{number:g}"


def such_rows(wrong: Mask) -> str:
    """``3 such rows``."""
    return counted(int(wrong.sum()), "such row")


def refuse_rows(
    frame: Columns,
    kept: Indices,
    wrong: Mask,
    said: str | Callable[[int], str],
    expected: str,
    *,
    why: str = "",
) -> None:
    """Raise `DataError` if some of the rows ``kept`` are wrong: what is said of the first, and how many."""
    if wrong.any():
        first = int(wrong.argmax())
        where = frame.where(int(kept[first]))
        found = said if isinstance(said, str) else said(first)
        raise DataError(f"{found} in {where}{why} ({such_rows(wrong)}); expected {expected}")
