"""Sentences on the rows of a table that are no errors, and that people should know of."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array
from cagp_dist.text import counted

FEWEST = 20
"""Places among which one can be far from all others."""

FAR, FAR_KILOMETRES = 20.0, 500.0
"""How many times farther than usual the next place is, and how far at least."""

USUAL = 0.9
"""Part of the places that have the next within the usual distance."""

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
        "and count as measurements of their own: error bars are too small if they are copies."
    )


def far_places(latitude_degrees: Array, longitude_degrees: Array) -> str:
    """Say which places lie far from all others, such as 0 N, 0 E; empty if none does."""
    from scipy.spatial import cKDTree

    places = np.unique(np.column_stack([latitude_degrees, np.mod(longitude_degrees, 360.0)]), axis=0)
    if len(places) < FEWEST:
        return ""
    north, east = np.deg2rad(places).T
    X = np.column_stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)])
    chord = np.asarray(cKDTree(X).query(X, k=[2])[0])[:, 0]
    next_one = 2.0 * np.arcsin(0.5 * np.minimum(chord, 2.0)) * _EARTH_KILOMETRES
    usual = float(np.quantile(next_one, USUAL))
    far = np.flatnonzero(next_one > max(FAR * usual, FAR_KILOMETRES))
    if far.size == 0:
        return ""
    which = "; ".join(f"{places[at, 0]:g} N, {places[at, 1]:g} E ({next_one[at]:,.0f} km)" for at in far[:3])
    return (
        f"{counted(far.size, 'place')} lie{'s' if far.size == 1 else ''} far from all others: {which}"
        f"{' and others' if far.size > 3 else ''} from the next, which is within {usual:,.0f} km of most. "
        "Check the degrees."
    )
