"""The columns of a table: which is meant, by its usual name or the one the caller says, and its numbers."""

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.column_names import EMPTY, counted_from, plain, units_in
from cagp_dist.fields.tables.frames import columns_of
from cagp_dist.fields.tables.table_files import TableLike, read_file, read_words
from cagp_dist.remedies import Setting
from cagp_dist.text import counted, nearest, printable
from cagp_dist.variables.units import is_unit

_DECIMAL_COMMA = re.compile(r"\d,\d")
NUMBER = re.compile(r"[-+\u2212]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_GROUPED = re.compile(r"[-+\u2212]?[1-9]\d{0,2}([.,]\d{3})+", re.ASCII)  # 1.004 may be a thousand and four
_THOUSANDS = re.compile(r"[-+\u2212]?[1-9]\d{0,2}(,\d{3})+\.\d+", re.ASCII)  # 1,013.2 is read in one way
_SPACED = re.compile(r"[-+\u2212]?[1-9]\d{0,2}([\u00a0\u2009\u202f]\d{3})+([.,]\d+)?|"
                     r"[-+\u2212]?[1-9]\d{0,2}( \d{3})+[.,]\d+")  # fmt: skip
_WITH_COMMA = re.compile(r"[-+\u2212]?\d+,(\d{1,2}|\d{4,})", re.ASCII)  # 21,0 and no 1,004
_PERCENT = re.compile(r"[-+\u2212]?\d+([.,]\d+)?\s*%")
_HUNDREDS = re.compile(r"[-+\u2212]?\d{3,}", re.ASCII)
_WITH_UNIT = re.compile(r"[-+\u2212]?\d[\d.,]*\s*([^\W\d_][^\s\d]*|\u00b5\S+|%|\u00b0\S*)")
_LIMIT = re.compile(r"[<>\u2264\u2265]\s*=?\s*[\d.,]+.*")
_TENTHS = re.compile(r"[-+]\d{4},[0-9A-Z]")

MOST_SHOWN, LONGEST_SHOWN = 20, 60  # columns that a message names, and letters of each
MOST_COMPARED = 1000  # columns that a name is compared with, to find what was meant


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a table by their names, and what messages call the table and its rows."""

    columns: Mapping[str, NDArray[Any]]
    attributes: Mapping[str, Mapping[str, Any]]  # of columns that have some, as variables of CF do
    title: str
    where: Callable[[int], str]
    as_written: Callable[[str], NDArray[Any]]
    twice: frozenset[str] = frozenset()  # names that several columns have
    commas: bool = False  # whether a comma may be that of decimals
    points: bool | None = None  # whether degrees have decimal points; None if they do not tell
    numbers_of_rows: Indices | None = None  # in the source; None where all are here

    @classmethod
    def open(cls, source: TableLike) -> "Columns":
        """Take the columns of a file, of a frame with its index, of an array with names, or of a mapping."""
        title, layout = "the table", None
        given: object = source
        if isinstance(source, (str, os.PathLike)):
            title = str(Path(source))
            given, layout = read_file(Path(source))
        held, twice, where = columns_of(given)
        columns = {name: column.cells for name, column in held.items()}
        shapes = {name: column.shape for name, column in columns.items()}
        if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
            of_each = {shape: name for name, shape in shapes.items()}
            shown = ", ".join(f"{name!r} {shape}" for shape, name in list(of_each.items())[:MOST_SHOWN])
            raise ArgumentError(
                f"columns of {title} have other shapes than others: {shown}; expected vectors of one length.",
                key="shapes",
            )
        attributes = {name: column.attributes for name, column in held.items() if column.attributes}
        if layout is None:
            return cls(columns, attributes, title, where, columns.__getitem__, twice)
        return cls(
            columns,
            attributes,
            title,
            layout.line,
            lambda name: columns_of(read_words(layout))[0][name].cells,
            layout.repeated_names(),
            commas=layout.separator == ";",
        )

    def of_rows(self, rows: Indices) -> "Columns":
        """Keep some rows; messages name them as before."""
        return replace(
            self,
            columns={name: column[rows] for name, column in self.columns.items()},
            where=lambda row: self.where(int(rows[row])),
            as_written=lambda name: self.as_written(name)[rows],
            numbers_of_rows=self.in_source(rows),
        )

    def in_source(self, rows: Indices) -> Indices:
        """Which rows of the source some rows are."""
        return rows if self.numbers_of_rows is None else self.numbers_of_rows[rows]

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

    def units(self, name: str) -> str:
        """Give the units of a column: stated, or in brackets behind its name; seconds of durations."""
        stated = str(self.attributes.get(name, {}).get("units", "")) or units_in(name)
        return stated or (
            "s" if self.columns[name].dtype.kind == "m" else "%" if self._in_percent(name) else ""
        )

    def _in_percent(self, name: str) -> bool:
        """Whether all cells that are not empty are numbers with the sign of percent."""
        column = self.columns[name]
        if column.dtype.kind not in "OUT" or not column.size or not str(column[0]).rstrip().endswith("%"):
            return False
        texts = (str(cell).strip() for cell in column.tolist())
        return all(_PERCENT.fullmatch(text) for text in texts if text.lower() not in EMPTY)

    def find(self, what: str, given: str | None, usual: tuple[str, ...], needed: bool = True) -> str | None:
        """Name of a column as the table spells it."""
        if given is not None:
            alike = [name for name in self.columns if plain(name) == plain(given)]
            if given not in self.columns and len(alike) != 1:
                near = nearest(given, islice(self.columns, MOST_COMPARED))
                raise ArgumentError(
                    f"{self.title} has no column {shown_text(given)}; it has {self.listed}.",
                    key="no-column",
                    remedies=(replace(_as_meant(what, near), so_that="if that is meant"),) if near else (),
                )
            return self._only(given if given in self.columns else alike[0])
        found = sorted(
            (name for name in self.columns if plain(name) in usual), key=lambda name: usual.index(plain(name))
        )
        if not found:
            if needed:
                backward = {"longitude": ("west",), "latitude": ("south", "pole")}.get(what, ())
                likely = [name for name in self.columns if counted_from(name) in backward]
                raise ArgumentError(
                    f"{self.title} has no column for the {what}; it has {self.listed}.",
                    key="no-column",
                    remedies=(
                        replace(
                            _as_meant(what, likely[0]),
                            so_that=f"if it counts from the {counted_from(likely[0])}, as its name says",
                        )
                        if likely
                        else _as_meant(what, "COLUMN"),
                    ),
                )
            return None
        if len(found) > 1 and plain(found[0]) == plain(found[1]):
            raise ArgumentError(
                f"{self.title} has the columns {found[0]!r} and {found[1]!r}, of which one is the {what}.",
                key="which-column",
                remedies=tuple(_as_meant(what, name) for name in found[:2]),
            )
        return self._only(found[0])

    def _only(self, name: str) -> str:
        """Refuse a name that several columns have."""
        if name in self.twice:
            raise ArgumentError(
                f"{self.title} has several columns of the name {shown_text(name)}; expected one. Rename the "
                "others, or leave them out.",
                key="duplicate-columns",
            )
        return name

    def with_decimals_of(self, *names: str) -> "Columns":
        """Take the decimal mark of degrees in these columns, 50,1182 or 50.1182, as that of the table."""
        commas, points = self.commas, None
        for name in names:
            column = self.columns[name]
            if column.dtype.kind == "f":
                points = points or bool((column != np.round(column)).any()) or None
            elif column.dtype.kind not in "biumM":
                texts = list(map(str, column.tolist()))
                if any(map(_DECIMAL_COMMA.search, texts)):
                    return replace(self, commas=True, points=False)
                points = points or any("." in text for text in texts) or None
        return replace(self, commas=commas, points=points)

    def is_numeric(self, name: str) -> bool:
        """Whether a column holds numbers, also as texts with decimal commas."""
        column = self.columns[name]
        if column.dtype.kind in "biumfM":
            return column.dtype.kind in "fiu"
        cells = [str(cell).strip() for cell in column.tolist()]
        cells = [cell for cell in cells if cell.lower() not in EMPTY]
        return self.commas and bool(cells) and all(NUMBER.fullmatch(cell.replace(",", ".")) for cell in cells)

    def numbers(self, name: str, missing: Collection[str] = ()) -> Array:
        """Give a column as float64; NaN where a cell is empty or one of the texts ``missing``.

        Durations are in seconds. In NOAA's Integrated Surface Database "+0053,1" is tenths of a degree and a
        mark of quality.
        """
        column, what = self.columns[name], f"column {name!r} of {self.title}"
        if column.dtype.kind == "m":
            return np.where(np.isnat(column), np.nan, column / np.timedelta64(1, "s"))
        if column.dtype.kind in "Mc":
            kind = "times" if column.dtype.kind == "M" else "complex numbers"
            raise DataError(f"{what} holds {kind}; expected numbers.", key="no-numbers")
        if column.dtype.kind in "fiub":
            column = column.astype(np.float64)
            self._check_grouped(name, column)
            return column
        texts = [str(cell).strip() for cell in column.tolist()]
        texts = ["" if text.lower() in EMPTY or text in missing else text for text in texts]
        if texts and texts[0][1:2] == "0" and all(map(_TENTHS.fullmatch, texts)):
            return np.array([_tenths(text) for text in texts])
        if self._in_percent(name) and self.units(name) == "%":
            texts = [text.rstrip("% \u00a0\u202f") for text in texts]
        if self.commas:
            self._check_marks(name, texts)
        elif any(texts) and all(_WITH_COMMA.fullmatch(text) for text in texts if text):
            texts = [text.replace(",", ".") for text in texts]
        return np.array([self._number(text, name, row) for row, text in enumerate(texts)], dtype=np.float64)

    def _check_grouped(self, name: str, numbers: Array) -> None:
        """Refuse 1.004 beside 997 where commas are those of decimals: it may be a thousand and four."""
        if self.commas and not self.points:
            parts = numbers[np.isfinite(numbers) & (numbers != np.round(numbers))]
            if parts.size and (np.abs(parts) < 1000.0).all() and (np.round(parts, 3) == parts).all():
                written = self.as_written(name)
                if written.dtype.kind not in "fiu":
                    self._check_marks(name, [str(cell).strip() for cell in written.tolist()])

    def _check_marks(self, name: str, texts: Sequence[str]) -> None:
        """Refuse both marks in one column, and a mark of which it cannot be told what it separates."""
        comma = [row for row, text in enumerate(texts) if "," in text]
        point = [row for row, text in enumerate(texts) if "." in text]
        if comma and point:
            doubtful = point
        elif self.points is not None and all(
            _GROUPED.fullmatch(texts[row]) for row in (comma if self.points else point)
        ):
            doubtful = comma if self.points else point
        elif self.points is None and any(_HUNDREDS.fullmatch(text) for text in texts):
            grouped = all(_GROUPED.fullmatch(texts[row]) for row in point)
            doubtful = point if grouped else []
        else:
            return
        if not doubtful:
            return
        usual = "points" if self.points else "commas"
        raise DataError(
            f"column {name!r} of {self.title} holds {shown_text(texts[doubtful[0]])} in "
            f"{self.where(doubtful[0])}, where decimal {usual} are usual, so that it may be a mark of "
            "thousands; expected one decimal mark, and none of thousands. Write the number without it.",
            key="decimal-mark",
        )

    def _number(self, text: str, name: str, row: int) -> float:
        if not text:
            return np.nan
        written = re.sub(r"\s", "", text) if _SPACED.fullmatch(text) else text
        written = written.replace(",", ".") if self.commas else written
        if _THOUSANDS.fullmatch(written):
            written = written.replace(",", "")
        if NUMBER.fullmatch(written):
            return float(written.replace("\u2212", "-"))
        what = f"column {name!r} of {self.title} holds {shown_text(text)} in {self.where(row)}"
        as_missing = Setting("missing", text[:LONGEST_SHOWN], "if such cells count as missing")
        if _LIMIT.fullmatch(text):
            raise DataError(
                f"{what}, which is a limit and no number; expected what was measured, or an empty cell where "
                "there is none.",
                key="limit",
                remedies=(as_missing,),
            )
        units = " If the row has units, leave it out." if row == 0 and not re.search(r"\d", text) else ""
        if (found := _WITH_UNIT.fullmatch(text)) and is_unit(found[1]):
            raise DataError(
                f"{what}; expected numbers alone, and a unit that all of them have beside their name or as "
                "an argument. Leave it out of the cells.",
                key="number-with-unit",
                remedies=(Setting("units", found[1]),),
            )
        raise DataError(
            f"{what}; expected a number such as 1004.5, or an empty cell where there is none.{units}",
            key="no-number",
            remedies=() if re.search(r"\d", text) else (as_missing,),
        )


def _as_meant(what: str, name: str) -> Setting:
    """Remedy that names the column of what was looked for."""
    name = printable(name)
    if what == "where":
        return Setting(what, {name: "VALUE"})
    return Setting(what, name) if what in ("value", "noise_std") else Setting("columns", {what: name})


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
    key: str = "row",
    remedies: Sequence[Setting] = (),
) -> None:
    """Raise `DataError` if some of the rows ``kept`` are wrong: what is said of the first, and how many."""
    if wrong.any():
        first = int(wrong.argmax())
        where = frame.where(int(kept[first]))
        found = said if isinstance(said, str) else said(first)
        text = f"{found} in {where}{why} ({such_rows(wrong)}); expected {expected}"
        raise DataError(text, key=key, remedies=tuple(remedies))
