"""What rows of a table say of each other: which repeat, what tells them apart, what people should know."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.tables.column_names import NAME, plain
from cagp_dist.fields.tables.columns import Columns
from cagp_dist.text import counted, place_text

FEWEST = 20  # places among which one can be far from all others
FAR, FAR_KILOMETRES = 20.0, 500.0  # how many times farther than usual the next place is, and how far at least
FAR_IN_PLANE = 10.0
USUAL = 0.9  # part of the places that have the next within the usual distance, or the middle

_EARTH_KILOMETRES = 6371.0


def words_for_missing(name: str, cells: NDArray[Any]) -> str:
    """Say how many cells without a value hold a word such as n/a, but for NaN; empty if none does."""
    words = [cell.strip() for cell in cells.tolist() if isinstance(cell, str)]
    words = [word for word in words if word and word.lower() != "nan" and not re.search(r"\d", word)]
    if not words:
        return ""
    s, each = ("s", "") if len(words) == 1 else ("", "s")
    said = " or ".join(map(repr, sorted(set(words))))
    return f"{len(words):,} cell{each} of {name!r} say{s} {said} and count{s} as missing."


def repeated_rows(keys: Sequence[NDArray[np.generic]]) -> str:
    """Say how many rows have the keys (places, times, names, values) of another one; empty if none has."""
    import pandas as pd

    count = int(pd.DataFrame(dict(enumerate(keys))).duplicated().sum())
    if not count:
        return ""
    return (
        f"{counted(count, 'row')} repeat{'s' if count == 1 else ''} place, time and value of another row "
        "and count as separate measurements: if they are copies, error bars are too small."
    )


def far_places(latitude_degrees: Array, longitude_degrees: Array) -> str:
    """Say which places lie far from all others, such as 0 N, 0 E; empty if none does."""
    from scipy.spatial import cKDTree

    if latitude_degrees.size < FEWEST:
        return ""
    east = np.mod(longitude_degrees, 360.0)
    places = np.column_stack([latitude_degrees, east])[np.lexsort((east, latitude_degrees))]
    places = places[np.append(True, (np.diff(places, axis=0) != 0.0).any(axis=1))]
    if len(places) < FEWEST:
        return ""
    north, east = np.deg2rad(places).T
    X = np.column_stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)])
    chord = np.asarray(cKDTree(X, balanced_tree=False).query(X, k=[2])[0])[:, 0]
    next_one = 2.0 * np.arcsin(0.5 * np.minimum(chord, 2.0)) * _EARTH_KILOMETRES
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


def far_in_plane(xy: Array) -> str:
    """Say which places (n, 2) of a plane lie far from all others, such as 0, 0; empty if none does."""
    places = np.unique(xy, axis=0)
    if len(places) < FEWEST:
        return ""
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


ANY = "*"  # instead of a value: rows with all values of the column are meant

WHAT = re.compile(
    r"(pressure_|model_)?levels?|z|depth.*|height.*|pressure|step|lead.*|forecast.*|member|number|realization|"
    r"ensemble.*|quantile|percentile|season|doy|yday|julian.*|week|month|day|hour.*|minute|second|.*time.*|"
    r".*date.*"
)
"""Names of columns that say what was measured, or when, even where they hold many numbers."""

NUMBERS = re.compile(r"unnamed.*|(.*_)?(index|row|nr|id)")  # columns that number rows, or name places

MOST_SHOWN = 5


def check_repeats(
    frame: Columns, looked_at: Collection[str], keys: Sequence[NDArray[np.generic]], kept: Indices
) -> None:
    """Refuse rows that have the same keys (places, times, names) and differ in a column not looked at.

    Texts count where they tell over half of the rows apart, numbers if few or if their name tells.
    """
    import pandas as pd

    own = [name for name in frame.columns if plain(name) in NAME[1:-1]]
    keys = [*keys, *(frame.columns[name][kept].astype(str) for name in own)]
    group = pd.DataFrame(dict(enumerate(keys))).groupby(list(range(len(keys))), dropna=False, sort=False)
    number, size = group.ngroup().to_numpy(), group[0].transform("size").to_numpy()
    repeated = np.flatnonzero(size > 1)
    if repeated.size == 0:
        return
    groups = len(np.unique(number[repeated]))
    found = []
    for name, column in frame.columns.items():
        if name in looked_at or NUMBERS.fullmatch(plain(name)) or name in own:
            continue
        cells = column[kept]
        codes, distinct = pd.factorize(cells if cells.dtype.kind in "biufM" else cells.astype(str))
        if cells.dtype.kind in "iuf" and not WHAT.fullmatch(plain(name)):
            few = len(distinct) <= size.max() and 2 * len(distinct) <= kept.size
            if not few or (cells != np.round(cells)).any():
                continue
        apart = len(pd.unique(number[repeated] * (len(distinct) + 1) + codes[repeated])) - groups
        if 2 * apart > repeated.size - groups:
            found.append((-apart, len(distinct), name, distinct))
    if not found:
        return
    _, many, name, distinct = min(found, key=lambda entry: entry[:2])
    values = np.asarray(distinct[:MOST_SHOWN])
    values = _iso(values) if values.dtype.kind == "M" else values
    shown = [value if isinstance(value, (int, float)) else str(value) for value in values.tolist()]
    others = f" and {many - len(shown):,} others" if many > len(shown) else ""
    raise ArgumentError(
        f"{counted(repeated.size, 'row')} of {frame.title} have the same place and time as another row and "
        f"differ in column {name!r} ({', '.join(map(repr, shown))}{others}), about which the call says "
        f"nothing. Say which rows to use, where={{{name!r}: {shown[0]!r}}}, or that all of them measure the "
        f"same quantity, where={{{name!r}: {ANY!r}}}."
    )


def chosen_rows(frame: Columns, where: Mapping[str, object] | None) -> tuple[Columns, frozenset[str]]:
    """Keep the rows that have the wanted value, or one of several, in each column; and these columns."""
    looked_at = set()
    for given, wanted in (where or {}).items():
        name = str(frame.find("where", given, ()))
        looked_at.add(name)
        if isinstance(wanted, str) and wanted == ANY:
            continue
        several = list(wanted) if isinstance(wanted, (list, tuple, set, np.ndarray)) else [wanted]
        column = frame.columns[name]
        if column.dtype.kind == "M":
            column, several = _iso(column), [_iso_text(value) for value in several]
        if column.dtype.kind in "iufb" and all(isinstance(each, (int, float, np.number)) for each in several):
            rows = np.isin(column.astype(np.float64), np.array(several, dtype=np.float64))
        else:
            texts = {str(value).strip() for value in several}
            rows = np.array([str(cell).strip() in texts for cell in column.tolist()], dtype=bool)
        if not rows.any():
            there = list(dict.fromkeys(map(str, column.tolist())))
            more = f" and {len(there) - MOST_SHOWN:,} others" if len(there) > MOST_SHOWN else ""
            raise ArgumentError(
                f"no row of {frame.title} has {', '.join(map(repr, several[:MOST_SHOWN]))} in column "
                f"{name!r}; it holds {', '.join(map(repr, there[:MOST_SHOWN]))}{more}."
            )
        frame = frame.of_rows(np.flatnonzero(rows))
    return frame, frozenset(looked_at)


def _iso(column: NDArray[np.generic]) -> NDArray[np.object_]:
    """Write times of a column as ISO 8601."""
    import pandas as pd

    codes, distinct = pd.factorize(column, use_na_sentinel=False)
    return np.asarray(np.array([_iso_text(value) for value in distinct], dtype=object)[codes])


def _iso_text(value: object) -> str:
    """Write a time as ISO 8601, without the time of day at midnight; what is no time as it is."""
    import pandas as pd

    time = pd.to_datetime(str(value).strip(), errors="coerce")
    return str(value).strip() if pd.isna(time) else time.isoformat().removesuffix("T00:00:00")
