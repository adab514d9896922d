"""Columns of whatever holds a table in memory: data frames, lazy ones, arrays with names, mappings."""

import datetime as dt
import numbers
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cagp_dist.errors import ArgumentError, DataError

MOST_COLLECTED = 10_000_000  # rows of a lazy frame that are read into memory

_ROWS_ALONE = (list, tuple, set, frozenset)


@runtime_checkable
class DataFrameLike(Protocol):
    """A data frame of pandas, polars, pyarrow or dask: named columns that turn into arrays."""

    @property
    def columns(self) -> Iterable[Hashable]: ...

    def __getitem__(self, name: Any, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class Column:
    """Cells of a column, and what is stated about them, such as ``units`` and ``standard_name`` of CF."""

    cells: NDArray[Any]  # (n,), without a mask
    attributes: Mapping[str, Any] = field(default_factory=dict)


Held: TypeAlias = tuple[dict[str, Column], frozenset[str], Callable[[int], str]]
"""Columns, names that several of them had, and what says which row is meant."""


def is_table(given: object) -> bool:
    """Whether something holds named columns in memory."""
    if isinstance(given, np.ndarray):
        return bool(given.dtype.names)
    return isinstance(given, (Mapping, DataFrameLike))


def columns_of(source: object) -> Held:
    """Take the columns of a frame with its index, an array with names, or a mapping.

    A lazy frame is collected up to `MOST_COLLECTED` rows. Masked cells are NaN, NaT or None. Of several
    columns of one name the second is called ``name.1``, as pandas reads them.
    """
    package, kind = type(source).__module__.partition(".")[0], type(source).__name__
    given: Any = source
    if (package, kind) == ("polars", "LazyFrame"):
        given = given.head(MOST_COLLECTED + 1).collect()
        _check_collected(len(given), "a polars LazyFrame", ".collect()")
    elif package in ("dask", "dask_expr") and kind == "DataFrame":
        given = _computed(given)
    elif package == "pyarrow" and kind in ("Table", "RecordBatch"):
        given = given.to_pandas()
    pairs: list[tuple[str, Any]]
    if isinstance(given, Mapping):
        pairs = [(str(name), column) for name, column in given.items()]
    elif isinstance(given, np.ndarray) and is_table(given):
        pairs = [(name, given[name]) for name in given.dtype.names]
    elif is_table(given):
        named = list(given.columns)
        whole = len(set(named)) == len(named)
        pairs = [*_index_levels(given)]
        pairs += [
            (str(name), given[name] if whole else cast("Any", given).iloc[:, at])
            for at, name in enumerate(named)
        ]
    else:
        rows = isinstance(given, _ROWS_ALONE) or kind in ("Series", "ndarray", "recarray")
        remedy = " Give its columns names, such as pandas.DataFrame(rows, columns=[...])." if rows else ""
        raise ArgumentError(
            f"a table came as {kind}; expected the path of a CSV or Parquet file, a data frame of pandas, "
            f"polars, pyarrow or dask, an array with named fields, or a mapping of names to columns.{remedy}",
            key="no-table",
        )
    columns: dict[str, Column] = {}
    twice = set()
    for name, cells in pairs:
        spelled, number = name, 0
        while spelled in columns:
            twice.add(name)
            number += 1
            spelled = f"{name}.{number}"
        columns[spelled] = column_of(cells)
    return columns, frozenset(twice), partial(_frame_row, given)


def column_of(given: Any) -> Column:
    """Give cells as an array without a mask, numbers as such, and times in UTC."""
    if isinstance(given, Column):
        return Column(column_of(given.cells).cells, given.attributes)
    attributes: dict[str, Any] = dict(getattr(given, "attrs", None) or {})
    if type(given).__module__.partition(".")[0] in ("astropy", "pint"):
        unit = getattr(given, "unit", None) or getattr(given, "units", None)
        attributes |= {} if unit is None else {"units": str(unit)}
        given = getattr(given, "magnitude", getattr(given, "value", given))
    held = getattr(given, "dtype", None)
    if getattr(held, "tz", None) is not None:  # of pandas
        given = given.dt.tz_convert("UTC").dt.tz_localize(None)
        attributes["time_zone"] = "UTC"
    elif getattr(held, "time_zone", None) is not None:  # of polars, whose arrays are in UTC
        attributes["time_zone"] = "UTC"
    cells = given if isinstance(given, np.ma.MaskedArray) else np.asarray(given)
    if isinstance(cells, np.ma.MaskedArray):
        cells = _without_mask(cells)
    if cells.dtype.kind == "O":
        cells = _without_objects(cells)
    return Column(cells, attributes)


def _without_mask(cells: Any) -> NDArray[Any]:
    """Write what stands for a missing cell in place of masked ones."""
    mask, held = np.ma.getmaskarray(cells), np.asarray(cells.data)
    if not mask.any():
        return held
    if held.dtype.kind in "iub":
        held = held.astype(np.float64)
    elif held.dtype.kind not in "fcmM":
        held = held.astype(object)
    held = held.copy()
    held[mask] = {"f": np.nan, "c": np.nan, "m": np.timedelta64("NaT"), "M": np.datetime64("NaT")}.get(
        held.dtype.kind
    )
    return held


def _without_objects(cells: NDArray[Any]) -> NDArray[Any]:
    """Give Python's numbers, durations and moments as an array of them; others stay objects."""
    import pandas as pd

    empty = np.asarray(pd.isna(cells))
    kinds = {type(cell) for cell in cells[~empty].tolist()} if cells.ndim == 1 else set()
    if not kinds:
        return cells
    if all(issubclass(kind, (numbers.Real, Decimal)) and not issubclass(kind, bool) for kind in kinds):
        return np.array([np.nan if cell else float(each) for cell, each in zip(empty, cells, strict=True)])
    if all(issubclass(kind, dt.timedelta) for kind in kinds):
        return np.asarray(pd.to_timedelta(cells).to_numpy())
    return cells


def _index_levels(frame: DataFrameLike) -> list[tuple[str, Any]]:
    """Named levels of the index of a pandas frame, as `xarray.Dataset.to_dataframe` has its coordinates."""
    index: Any = getattr(frame, "index", None)
    names = [name for name in getattr(index, "names", ()) if name is not None]
    columns = set(map(str, frame.columns))
    levels = [(str(name), index.get_level_values(name).to_series()) for name in names]
    return [(name, level) for name, level in levels if name not in columns]


def _frame_row(source: object, row: int) -> str:
    """Say which row of a frame is meant, with its index where that is another number."""
    index = getattr(source, "index", None)
    label = row if index is None or callable(index) else index[row]
    return f"row {row}, counted from 0" + ("" if label == row else f", index {label}")


def _computed(frame: Any) -> Any:
    """Compute a frame of dask part by part, as far as it is small enough."""
    import pandas as pd

    parts, rows = [], 0
    for number in range(frame.npartitions):
        parts.append(frame.partitions[number].compute())
        rows += len(parts[-1])
        _check_collected(rows, "a dask DataFrame", ".compute()")
    return pd.concat(parts)


def _check_collected(rows: int, what: str, how: str) -> None:
    if rows > MOST_COLLECTED:
        raise DataError(
            f"{what} has more than {MOST_COLLECTED:,} rows; expected fewer, as all of them are read into "
            f"memory. Choose rows and columns before, or read it on purpose: frame{how}.",
            key="too-large",
        )
