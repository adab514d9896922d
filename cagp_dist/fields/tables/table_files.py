"""Tables as they come: paths of files, whose layout is found out, data frames, mappings of columns."""

import csv
import lzma
import os
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from cagp_dist.errors import CagpError, DataError
from cagp_dist.extras import from_extra
from cagp_dist.fields.tables.frames import DataFrameLike
from cagp_dist.fields.tables.table_layout import (
    FREELY_UNPACKED_BYTES,
    MOST_PACKED,
    READ_BYTES,
    TextLayout,
    check_unpacked,
    layout_of,
)
from cagp_dist.memory import available_bytes
from cagp_dist.text import bytes_text, printable

PARQUET_BYTES, PARQUET_SECONDS = 2**29, 30.0  # of memory and time of the process that decodes one first

_FIELDS = (
    'A field in NetCDF, GRIB or Zarr is named with its kind, "file:PATH" or "zarr:PATH", or opened with '
    "xarray."
)


TableLike: TypeAlias = (
    "str | os.PathLike[str] | Mapping[str, object] | DataFrameLike | np.ndarray[Any, np.dtype[np.void]]"
)


def read_file(path: Path) -> tuple[DataFrameLike, TextLayout | None]:
    """Read a file as text or Parquet; the latter has no layout."""
    import pandas as pd

    if path.is_dir():
        raise DataError(f"{path} is a folder; expected a CSV or Parquet file. {_FIELDS}", key="folder")
    if not path.exists():
        raise no_file(path)
    if not path.is_file():
        raise DataError(
            f"{path} is not a regular file, but a pipe, a socket or a device; expected a CSV or Parquet "
            "file. Copy its output into a file first.",
            key="not-a-table",
        )
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            _check_parquet(path)
            return pd.read_parquet(path, engine="pyarrow"), None
        layout = layout_of(path)
        return _read_text(layout), layout
    except CagpError:
        raise
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not a text file in UTF-8 ({error.reason} at byte {error.start}); expected CSV or "
            f"Parquet. Save a table as UTF-8. {_FIELDS}",
            key="not-a-table",
        ) from error
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(
            f"{path} is compressed, and damaged or incomplete: {error}. Fetch or compress it again.",
            key="damaged",
        ) from error
    except (OSError, ValueError, csv.Error) as error:  # of the parser, too
        raise DataError(
            f"cannot read {path} as a table: {printable(str(error))}", key="not-a-table"
        ) from error


def no_file(path: Path) -> DataError:
    """Give the error of a file that is not there."""
    return DataError(f"there is no file {path}; the path is relative to {Path.cwd()}.", key="no-file")


def _check_parquet(path: Path) -> None:
    """Refuse a Parquet file that its decoder fails on, or that unpacks to what no measurements do."""
    from_extra("parquet", "pyarrow", f"{path} is a Parquet file, and reading it")
    size, free = path.stat().st_size, available_bytes()
    memory, most = max(PARQUET_BYTES, 4 * size), max(MOST_PACKED * size, FREELY_UNPACKED_BYTES)
    program = [sys.executable, "-P", str(Path(__file__).with_name("_parquet.py"))]
    try:
        child = subprocess.run(
            [*program, str(path.absolute()), str(memory), str(min(most, free // READ_BYTES))],
            capture_output=True,
            text=True,
            timeout=PARQUET_SECONDS + size / 1e7,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(
            f"decoding {path} took longer than {error.timeout:.0f} s and was stopped.", key="time-limit"
        ) from error
    word, _, said = child.stdout.strip().partition(" ")
    if word == "error":
        raise ValueError(said)
    if not word.isdecimal():
        raise DataError(
            f"{path} cannot be decoded in {bytes_text(memory)} of memory, and has {bytes_text(size)}. It "
            "is damaged, or made to fill the memory: fetch it again from a trusted source.",
            key="damaged",
        )
    check_unpacked(path, int(word), free)


def read_words(layout: TextLayout) -> DataFrameLike:
    """Read a text file again, with numbers and words such as n/a as they stand in its cells."""
    return _read_text(layout, keep_default_na=False, na_values=[""], dtype=str)


def _read_text(layout: TextLayout, **words: Any) -> DataFrameLike:
    """Read a text file; ``words`` are settings of pandas for cells that count as missing."""
    import pandas as pd

    source: Path | StringIO = layout.path
    comment: str | None = layout.comment
    with layout.open() as lines:
        within = any(layout.comment in line and not line.startswith(layout.comment) for line in lines)
    if within or not layout.is_plain:  # pandas would end lines there
        kept = (line for _, line in layout.lines())
        source, comment = StringIO("".join(_without_comments(kept, layout) if within else kept)), None
    read = partial(
        pd.read_csv,
        sep=layout.separator,
        comment=comment,
        skipinitialspace=True,
        encoding=layout.encoding,
        compression=layout.packed if source is layout.path else None,
        **words,
    )
    frame = read(source)
    if layout.units and len(layout.units) == len(frame.columns):
        pairs = zip(frame.columns, layout.units, strict=True)
        frame.columns = [f"{name} ({unit})" if unit else str(name) for name, unit in pairs]
    index = frame.index
    if index.equals(pd.RangeIndex(len(frame))):
        return cast("DataFrameLike", frame)
    # rows have a cell more than the first line
    if index.nlevels == 1 and frame.iloc[:, -1].isna().all():  # a separator ends each line
        if isinstance(source, StringIO):
            source.seek(0)
        return cast("DataFrameLike", read(source, index_col=False))
    numbered = index.equals(pd.RangeIndex(1, len(frame) + 1))
    if index.nlevels > 1 or not (index.dtype.kind == "O" or numbered):
        raise ValueError(
            f"its first line names {frame.shape[1]} columns, and rows have more cells. Name each column"
        )
    return cast("DataFrameLike", frame)  # names or numbers of rows, as R writes them


def _without_comments(lines: Iterable[str], layout: TextLayout) -> Iterator[str]:
    """Leave out comments behind the last cell of a line; a mark before that is text, as in ``Site #2``."""
    cells = 0
    for line in lines:  # of which none is a comment as a whole
        before, mark, after = line.partition(layout.comment)
        if mark and cells == 0:
            ends = before[-1].isspace() and layout.separator not in after
        else:
            ends = bool(mark) and len(layout.cells(before)) >= cells
        kept = f"{before}\n" if ends else line
        cells = cells or len(layout.cells(kept))
        yield kept
