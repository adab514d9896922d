"""Tables as they come: paths of files, whose layout is found out, data frames, mappings of columns."""

import bz2
import csv
import gzip
import lzma
import os
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeAlias, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cagp_dist.errors import DataError

WHITESPACE = r"\s+"

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


@dataclass(frozen=True)
class Layout:
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


def frame_row(source: object, row: int) -> str:
    """Say which row of a frame is meant, with its index where that is another number."""
    index = getattr(source, "index", None)
    label = row if index is None or callable(index) else index[row]
    return f"row {row}, counted from 0" + ("" if label == row else f", index {label}")


def index_levels(frame: Frame) -> dict[str, NDArray[Any]]:
    """Named levels of the index of a pandas frame, as `xarray.Dataset.to_dataframe` has its coordinates."""
    index = getattr(frame, "index", None)
    names = [name for name in getattr(index, "names", ()) if name is not None]
    return (
        {str(name): np.asarray(index.get_level_values(name)) for name in names} if index is not None else {}
    )


def read_file(path: Path) -> tuple[Frame, Layout | None]:
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
        return _read_text(layout), layout
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


def _read_text(layout: Layout) -> Frame:
    """Read a text file.

    Raises
    ------
    ValueError
        If it cannot be told which cells of its rows the first line names.
    """
    import pandas as pd

    source: Path | StringIO = layout.path
    comment: str | None = layout.comment
    with _text(layout.path) as lines:
        within = any(layout.comment in line and not line.startswith(layout.comment) for line in lines)
    if within:  # pandas would end lines there
        with _text(layout.path) as lines:
            source, comment = StringIO("".join(_without_comments(lines, layout))), None
    read = partial(pd.read_csv, sep=layout.separator, comment=comment, skipinitialspace=True)
    frame = read(source)
    index = frame.index
    if index.equals(pd.RangeIndex(len(frame))):
        return cast("Frame", frame)
    # rows have a cell more than the first line
    if index.nlevels == 1 and frame.iloc[:, -1].isna().all():  # a separator ends each line
        if isinstance(source, StringIO):
            source.seek(0)
        return cast("Frame", read(source, index_col=False))
    numbered = index.equals(pd.RangeIndex(1, len(frame) + 1))
    if index.nlevels > 1 or not (index.dtype.kind == "O" or numbered):
        raise ValueError(
            f"its first line names {frame.shape[1]} columns, and rows have more cells. Name each column"
        )
    return cast("Frame", frame)  # names or numbers of rows, as R writes them


def _without_comments(lines: Iterable[str], layout: Layout) -> Iterator[str]:
    """Leave out comments: whole lines, and what stands behind the last cell of a line.

    A mark before that is text, as in ``Site #2`` or ``humidity (%)``.
    """
    cells = 0
    for line in lines:
        if line.startswith(layout.comment):
            continue
        before, mark, after = line.partition(layout.comment)
        if mark and cells == 0:
            ends = before[-1].isspace() and layout.separator not in after
        else:
            ends = bool(mark) and len(_cells(before, layout)) >= cells
        kept = f"{before}\n" if ends else line
        cells = cells or len(_cells(kept, layout))
        yield kept


def _cells(line: str, layout: Layout) -> list[str]:
    text = line.strip()
    return text.split(None if layout.separator == WHITESPACE else layout.separator) if text else []


def _layout(path: Path) -> Layout:
    """Find what stands between the columns of a text file, by its first line, and what begins a comment."""
    header = comment = ""
    with _text(path) as lines:
        for line in lines:
            header = str(line)
            if header.strip() and header[0] not in "#%":
                break
            comment = header[:1].strip() or comment
    marks = max((",", ";", "\t"), key=header.count)
    return Layout(path, marks if marks in header else WHITESPACE, comment or "#")


def _text(path: Path) -> AbstractContextManager[TextIO]:
    """Open a text file that may be compressed."""
    packed: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    opened: AbstractContextManager[TextIO] = packed.get(path.suffix.lower(), open)(path, "rt")
    return opened
