"""Latitudes and longitudes as people write them: 50.1182, 50.1182N, 50 07 05 N, 50d07m05sN."""

import re

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import DataError
from cagp_dist.tables.column_names import EMPTY
from cagp_dist.tables.columns import Columns

_NUMBER = r"\d+(?:[.,]\d+)?"
_WRITTEN = re.compile(
    rf"(?P<before>[NSEW])?\s*(?P<sign>[-+\u2212])?(?P<degrees>{_NUMBER})"
    rf"(?:(?:\s*(?:[\u00b0\u00ba:-]|deg|d)\s*|\s+)(?P<minutes>{_NUMBER})"
    rf"(?:(?:\s*['\u2032\u2019:m-]\s*|\s+)(?P<seconds>{_NUMBER})\s*(?:[\"\u2033\u201ds]|'')?"
    r"|\s*['\u2032\u2019m]?)"
    r"|\s*(?:[\u00b0\u00ba]|deg|d)?)\s*(?P<after>[NSEW])?"
)
_SEPARATES = re.compile(r"[\u00b0\u00ba:d'\u2032]")


def read_degrees(frame: Columns, name: str, kept: Indices, *, letters: str) -> Array:
    """Read degrees of some rows, positive towards the first of two letters, NaN where a cell is empty."""
    column = frame.columns[name]
    if column.dtype.kind in "fiub" or np.ma.isMaskedArray(column):
        return frame.numbers(name)[kept]
    out = np.full(kept.size, np.nan)
    for at, row in enumerate(kept):
        text = str(column[row]).strip()
        if text.lower() in EMPTY:
            continue
        out[at] = _degrees(text, letters)
        if np.isnan(out[at]):
            raise DataError(
                f"column {name!r} of {frame.title} holds {text!r} in {frame.where(int(row))}, which is no "
                f"{'latitude' if letters == 'NS' else 'longitude'}; expected degrees, such as 50.1182, "
                f"50.1182{letters[0]}, 50 07 05 {letters[0]} or 50d07m05s{letters[0]}."
            )
    return out


def _degrees(text: str, letters: str) -> float:
    """Read degrees; NaN where they are none, or it cannot be told what they are."""
    found = _WRITTEN.fullmatch(text)
    if found is None:
        return _number(text)
    letter = found["before"] or found["after"]
    minutes, seconds = found["minutes"], found["seconds"]
    said_twice = bool(found["before"] and found["after"]) or bool(letter and found["sign"])
    if said_twice or (letter and letter not in letters):
        return np.nan
    if minutes and not (letter or seconds or _SEPARATES.search(text)):  # 50 07 alone may be anything
        return np.nan
    parts = [part for part in (found["degrees"], minutes, seconds) if part is not None]
    numbers = [float(part.replace(",", ".")) for part in parts]
    if not all(part.isdigit() for part in parts[:-1]) or any(number >= 60.0 for number in numbers[1:]):
        return np.nan
    size = sum(number / 60.0**power for power, number in enumerate(numbers))
    return -size if letter == letters[1] or found["sign"] in ("-", "\u2212") else size


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan
