"""How text files of tables are laid out: encoding, names of columns and units, separators, comments."""

import bz2
import codecs
import csv
import gzip
import lzma
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from cagp_dist.errors import DataError
from cagp_dist.fields.column_names import BREADTHS, LATITUDE, LENGTHS, LONGITUDE, plain
from cagp_dist.memory import available_bytes
from cagp_dist.text import bytes_text, printable

WHITESPACE = r"\s+"
MARKS = "#%"  # what a comment begins with
LOOKED_AT = 50  # lines in which names of columns are looked for behind the first

MOST_COLUMNS = 20_000
CHUNK_BYTES = 2**20
MOST_LINE_BYTES = 2 * 2**20  # with as many cells as a line of a table may have, and more
# times the size of a file; measurements pack 20 times at most
MOST_PACKED, FREELY_UNPACKED_BYTES = 100, 64 * 2**20
READ_BYTES = 6  # of memory, for a byte of text

_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f"))
_SEPARATOR = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
_DEGREES = re.compile(r"deg(rees?)?([ _](north|east|n|e))?|\u00b0 ?[ne]?", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True)
class TextLayout:
    """How a text file is laid out; lines are counted from 1."""

    path: Path
    separator: str  # what stands between columns
    comment: str  # what begins a comment
    encoding: str
    header: int  # line of the names of the columns
    behind_mark: bool = False  # whether they stand behind a mark of comments
    skipped: frozenset[int] = frozenset()  # lines that are neither names nor rows
    units: tuple[str, ...] = ()  # of the columns, from a line below the names; empty if there is none

    @property
    def is_plain(self) -> bool:
        """Whether the first line that is no comment has the names, and rows follow."""
        return not (self.skipped or self.behind_mark)

    @property
    def packed(self) -> str | None:
        """How pandas calls what it is packed by; None of plain text."""
        return _PACKED.get(self.path.suffix.lower(), (None,))[0]

    def open(self) -> AbstractContextManager[TextIO]:
        """Open the file as text."""
        opened: AbstractContextManager[TextIO] = _opened(self.path, "rt", self.encoding)
        return opened

    def lines(self) -> Iterator[tuple[int, str]]:
        """Give the line of the names and all behind it that are no comments, with their numbers."""
        with self.open() as stream:
            for number, line in enumerate(stream, start=1):
                if number == self.header:
                    yield number, line.lstrip(f"{MARKS} ") if self.behind_mark else line
                elif number < self.header or number in self.skipped or not line.strip():
                    continue
                elif not line.startswith(self.comment):
                    yield number, line

    def repeated_names(self) -> frozenset[str]:
        """Names that several columns have."""
        names = Counter(self.cells(next(self.lines(), (0, ""))[1]))
        return frozenset(name for name, count in names.items() if name and count > 1)

    def cells(self, line: str) -> list[str]:
        """Cut a line."""
        return split_cells(line, self.separator)

    def line(self, row: int) -> str:
        """Say in which line a row stands, all lines counted from 1."""
        number = 0

        def lines() -> Iterator[str]:
            nonlocal number
            for number, line in self.lines():  # noqa: B007
                yield line

        between = " " if self.separator == WHITESPACE else self.separator
        records = csv.reader(lines(), delimiter=between, skipinitialspace=True)
        next(islice(records, row + 1, None), None)  # the first is the header
        return f"line {number}"


def layout_of(path: Path) -> TextLayout:
    """Find out how a text file is laid out, by its first lines."""
    with _opened(path, "rb") as stream:
        _check_kind(path, stream.read(512))
    encoding = _encoding(path)
    comments: list[tuple[int, str]] = []
    skipped: set[int] = set()
    stated, number, header, following = "", 0, "", []
    with _opened(path, "rt", encoding) as lines:
        for number, line in enumerate(lines, start=1):
            if found := _SEPARATOR.fullmatch(line) if number == 1 else None:
                stated = found[1]
                skipped.add(number)
            elif line.strip() and line[0] in MARKS:
                comments.append((number, line))
            elif line.strip():
                header = line
                following = list(enumerate(islice(lines, LOOKED_AT), start=number + 1))
                break
    separator = stated or _separator(header)
    comment = comments[-1][1][0] if comments else "#"
    cells = split_cells(header, separator)
    between = None if separator == WHITESPACE else separator
    widest = max(len(line.split(between)) for line in (header, *(row for _, row in following)))
    if widest > MOST_COLUMNS:
        raise DataError(
            f"{path} has {widest:,} columns; expected {MOST_COLUMNS:,} at most.", key="not-a-table"
        )
    units: tuple[str, ...] = ()
    behind_mark = False
    if _names_places(cells):
        if following and _are_units(split_cells(following[0][1], separator), following[1:2], separator):
            units = tuple(split_cells(following[0][1], separator))
            units = units if len(units) == len(cells) else ()
            skipped |= {following[0][0]} if units else set()
    elif sum(map(_is_number, cells)) > 1 and (above := _above(comments, separator, len(cells))):
        number, behind_mark = above, True
    else:
        _check_preamble(path, number, following)
    return TextLayout(path, separator, comment, encoding, number, behind_mark, frozenset(skipped), units)


def split_cells(line: str, separator: str) -> list[str]:
    """Cut a line into cells; none of an empty line."""
    text = line.strip(None if separator == WHITESPACE else " \r\n")
    if not text.strip():
        return []
    if separator == WHITESPACE:
        return text.split()
    return [cell.strip() for cell in next(csv.reader([text], delimiter=separator, skipinitialspace=True))]


def _separator(line: str) -> str:
    marks = max((",", ";", "\t"), key=line.count)
    return marks if marks in line else WHITESPACE


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None


def _names_places(cells: Sequence[str]) -> bool:
    """Whether a latitude and a longitude are among names of columns."""
    names = {plain(cell) for cell in cells}
    return not (names.isdisjoint((*LATITUDE, *BREADTHS)) or names.isdisjoint((*LONGITUDE, *LENGTHS)))


def _above(comments: Sequence[tuple[int, str]], separator: str, count: int) -> int:
    """Line of a comment that names so many columns; 0 if there is none."""
    for number, line in reversed(comments):
        cells = split_cells(line.lstrip(f"{MARKS} "), separator)
        if len(cells) == count and _names_places(cells):
            return number
    return 0


def _are_units(cells: Sequence[str], row: Sequence[tuple[int, str]], separator: str) -> bool:
    """Whether these are units, of degrees among others, above a row with numbers."""
    if any(map(_is_number, cells)) or not any(_DEGREES.fullmatch(cell) for cell in cells):
        return False
    return any(sum(map(_is_number, split_cells(line, separator))) > 1 for _, line in row)


def _check_preamble(path: Path, first: int, following: Sequence[tuple[int, str]]) -> None:
    """Refuse lines above the names of the columns."""
    for number, line in following:
        if _names_places(split_cells(line, _separator(line))):
            raise DataError(
                f"{path} begins with a preamble: line {first} does not name the columns, and line {number} "
                f"does, {printable(line.strip())[:80]!r}. Begin the lines above it with #, or delete them.",
                key="preamble",
            )


def _check_kind(path: Path, head: bytes) -> None:
    """Refuse files of other kinds that people have tables in, by their first bytes."""
    suffix = path.suffix.lower()
    if head.startswith(b"\xd0\xcf\x11\xe0") or (head.startswith(b"PK\x03\x04") and suffix != ".zip"):
        raise DataError(
            f"{path} is a workbook of a spreadsheet, such as Excel; expected a CSV or Parquet file. Save its "
            "sheet as CSV, or pass it as a data frame: pandas.read_excel(path).",
            key="not-a-table",
        )
    if head.startswith(b"PK\x03\x04"):
        raise DataError(
            f"{path} is a zip archive; expected a CSV or Parquet file. Unpack it.", key="not-a-table"
        )
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        kind = "GeoJSON" if suffix == ".geojson" or b"Feature" in head else "JSON"
        frame = (
            'places = geopandas.read_file(path), then {"latitude": places.geometry.y, "longitude": '
            'places.geometry.x, "t": places["t"]}'
            if kind == "GeoJSON"
            else "pandas.read_json(path)"
        )
        raise DataError(
            f"{path} is {kind}; expected a CSV or Parquet file. Save it as CSV, or pass columns: {frame}.",
            key="not-a-table",
        )


def _encoding(path: Path) -> str:
    """UTF-8, or UTF-16 or that of Windows; refuses what no memory holds, as the first to read the file."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    encoding, binary = "utf-8-sig", False
    with _opened(path, "rb") as stream:
        chunks = _limited(path, stream)
        first = next(chunks, b"")
        if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            encoding = "utf-16"
        try:
            for chunk in chain([first], chunks):
                if encoding == "utf-8-sig":
                    binary = binary or len(chunk.translate(None, _CONTROL)) < len(chunk)
                    decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            if binary:
                raise
            for _ in chunks:
                pass
            return "cp1252"
    return encoding


def _limited(path: Path, stream: BinaryIO) -> Iterator[bytes]:
    """Read a file in pieces; `DataError` where it, or a line of it, is longer than a table can be."""
    free, unpacked, line = available_bytes(), 0, 0
    while chunk := stream.read(CHUNK_BYTES):
        unpacked += len(chunk)
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
        line = line + len(chunk) if end < 0 else len(chunk) - end - 1
        if line > MOST_LINE_BYTES:
            raise DataError(
                f"{path} has a line of more than {bytes_text(MOST_LINE_BYTES)}; expected a table, with a "
                "line for each measurement. Check what the file is, or fetch it again.",
                key="not-a-table",
            )
        check_unpacked(path, unpacked, free)
        yield chunk


_PACKED: dict[str, tuple[str, Callable[..., Any]]] = {
    ".gz": ("gzip", gzip.open), ".bz2": ("bz2", bz2.open), ".xz": ("xz", lzma.open),
}  # fmt: skip
"""How pandas calls what a file is packed by, and what opens it."""


def check_unpacked(path: Path, unpacked: int, free: int) -> None:
    """Refuse a file that unpacks to more than measurements do, or than the free memory holds."""
    size = path.stat().st_size
    if unpacked > max(MOST_PACKED * size, FREELY_UNPACKED_BYTES):
        raise DataError(
            f"{path} has {bytes_text(size)} and unpacks to {bytes_text(unpacked)} or more, as no "
            "measurements do; it was not unpacked further. If it is right, write it again unpacked.",
            key="unpacked-size",
        )
    if READ_BYTES * unpacked > free:
        raise DataError(
            f"{path} has {bytes_text(unpacked)} or more unpacked, which takes some {READ_BYTES} times that "
            f"to read, and {bytes_text(free)} of memory are free. Cut it into parts, or free memory.",
            key="memory",
        )


def _opened(path: Path, mode: str, encoding: str | None = None) -> Any:
    """Open a file that may be compressed."""
    return _PACKED.get(path.suffix.lower(), ("", open))[1](path, mode, encoding=encoding)
