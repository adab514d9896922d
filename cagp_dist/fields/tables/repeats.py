"""What rows of a table say of each other: which repeat, what tells them apart, what people should know."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.column_names import ANY, EMPTY, plain
from cagp_dist.fields.tables.columns import Columns
from cagp_dist.fields.tables.grouping import Places
from cagp_dist.fields.tables.neighbours import iso_time, iso_times
from cagp_dist.remedies import Setting
from cagp_dist.space import SPHERE
from cagp_dist.text import counted, place_text

MOST_SHOWN = 5
WRITTEN_INDEX = re.compile(r"unnamed.*|index|level_0")  # as pandas writes it, which no copy keeps

FEWEST = 20  # places among which one can be far from all others
FAR, FAR_KILOMETRES = 20.0, 500.0  # how many times farther than usual the next place is, and how far at least
FAR_IN_PLANE = 10.0
USUAL = 0.9  # part of the places that have the next within the usual distance, or the middle


def words_for_missing(name: str, frame: Columns, column: str, missed: Mask, said: Collection[str]) -> str:
    """Say how many cells without a value hold a word that was not said, such as n/a; empty if none does."""
    if not missed.any():
        return ""
    words = [cell.strip() for cell in frame.as_written(column)[missed].tolist() if isinstance(cell, str)]
    words = [word for word in words if word not in said and word.lower() != "nan"]
    words = [word for word in words if word and not re.search(r"\d", word)]
    if not words:
        return ""
    s, each = ("s", "") if len(words) == 1 else ("", "s")
    said = " or ".join(map(repr, sorted(set(words))))
    return f"{len(words):,} cell{each} of {name!r} say{s} {said} and count{s} as missing."


def said_of_copies(count: int) -> str:
    """Say how many rows did not count; empty if all did."""
    if not count:
        return ""
    are = "is a copy of another row" if count == 1 else "are copies of other rows"
    return f"{counted(count, 'row')} {are}, equal in every column: such rows count once."


def far_away(places: Places) -> str:
    """Say which places lie far from all others; empty if none does."""
    once = np.unique(places.keys if places.plane is None else places.plane.xy, axis=0)
    if len(once) < FEWEST:
        return ""
    return _far_on_globe(once) if places.plane is None else _far_in_plane(once)


def _far_on_globe(places: Array) -> str:
    """Say which places (n, 2) in degrees north and east do."""
    from scipy.spatial import cKDTree

    X = SPHERE.positions(*places.T)
    next_one = SPHERE.kilometres(np.asarray(cKDTree(X, balanced_tree=False).query(X, k=[2])[0])[:, 0])
    usual = float(np.quantile(next_one, USUAL))
    far = np.flatnonzero(next_one > max(FAR * usual, FAR_KILOMETRES))
    if far.size == 0:
        return ""
    which = "; ".join(f"{place_text(*places[at])} ({next_one[at]:,.0f} km)" for at in far[:3])
    return (
        f"{counted(far.size, 'place')} lie{'s' if far.size == 1 else ''} far from all others: {which}"
        f"{' and others' if far.size > 3 else ''} from the next, which is within {usual:,.0f} km of most. "
        "Check the degrees."
    )


def _far_in_plane(places: Array) -> str:
    """Say which places (n, 2) of a plane do."""
    away = np.hypot(*(places - np.median(places, axis=0)).T)
    far = np.flatnonzero(away > FAR_IN_PLANE * np.quantile(away, USUAL))
    if far.size == 0:
        return ""
    which = "; ".join(", ".join(f"{number:.8g}" for number in places[at]) for at in far[:3])
    return (
        f"{counted(far.size, 'place')} lie{'s' if far.size == 1 else ''} more than {FAR_IN_PLANE:g} times as "
        f"far from the middle as {USUAL:.0%} of all: {which}{' and others' if far.size > 3 else ''}. Check "
        "x, y and their units."
    )


def copied_rows(
    frame: Columns, keys: Sequence[NDArray[np.generic]], kept: Indices, axes: Collection[str]
) -> Mask:
    """Which rows equal an earlier one in every column, at the same place and time, which ``keys`` tell.

    Where other rows of this place and time are there fewer times, they are measurements that agree by chance.
    """
    import pandas as pd

    cells: list[NDArray[Any]] = [*keys]
    for name, column in frame.columns.items():
        if name not in axes and not WRITTEN_INDEX.fullmatch(plain(name)):
            held = column[kept]
            cells.append(held if held.dtype.kind in "biufmM" else held.astype(str))
    rows = pd.DataFrame(dict(enumerate(cells)))
    copied = np.asarray(rows.duplicated())
    if not copied.any():
        return copied
    times = rows.groupby(list(rows.columns), dropna=False)[0].transform("size")
    of_place = times.groupby([rows[at] for at in range(len(keys))], dropna=False)
    return np.asarray(copied & (of_place.transform("min") == of_place.transform("max")))


def chosen_rows(
    frame: Columns, where: Mapping[str, object] | None
) -> tuple[Columns, frozenset[str], frozenset[str]]:
    """Keep the rows that have the wanted value, or one of several, in each column.

    Also gives these columns, and those of them of which all values are wanted, as they do not count.
    """
    looked_at, ignored = set(), set()
    for given, wanted in (where or {}).items():
        name = str(frame.find("where", given, ()))
        looked_at.add(name)
        if isinstance(wanted, str) and wanted == ANY:
            ignored.add(name)
            continue
        several = list(wanted) if isinstance(wanted, (list, tuple, set, np.ndarray)) else [wanted]
        column = frame.columns[name]
        empty = "" in map(str, several)
        several = [value for value in several if str(value) != ""]
        if column.dtype.kind == "M":
            column, several = iso_times(column), [iso_time(value) for value in several]
        if column.dtype.kind in "iufb" and all(isinstance(each, (int, float, np.number)) for each in several):
            numbers = np.array(several, dtype=np.float64)
            rows = np.isin(column.astype(np.float64), numbers)
            if column.dtype == np.float32 or any(isinstance(each, np.float32) for each in several):
                rows |= np.isin(column.astype(np.float32), numbers.astype(np.float32))  # 0.1 of both
        else:
            texts = {str(value).strip() for value in several}
            rows = np.array([str(cell).strip() in texts for cell in column.tolist()], dtype=bool)
        if empty:
            rows |= np.array([str(cell).strip().lower() in EMPTY for cell in column.tolist()], dtype=bool)
        if not rows.any():
            there = list(dict.fromkeys(map(str, column.tolist())))
            more = f" and {len(there) - MOST_SHOWN:,} others" if len(there) > MOST_SHOWN else ""
            raise ArgumentError(
                f"no row of {frame.title} has {', '.join(map(repr, several[:MOST_SHOWN]))} in column "
                f"{name!r}; it holds {', '.join(map(repr, there[:MOST_SHOWN]))}{more}.",
                key="no-such-row",
                remedies=tuple(Setting("where", {name: there[0]}) for _ in there[:1]),
            )
        frame = frame.of_rows(np.flatnonzero(rows))
    return frame, frozenset(looked_at), frozenset(ignored)
