"""What stands in the cells of a table: degrees as people write them, places and their names, noise."""

import re
from collections.abc import Collection
from dataclasses import replace
from functools import partial

import numpy as np

from cagp_dist.arrays import Array, Indices, Marks, Names
from cagp_dist.errors import DataError
from cagp_dist.fields.coordinates import in_degrees
from cagp_dist.fields.missing import observations
from cagp_dist.fields.tables.column_names import EMPTY, NAME, bare, plain, units_in
from cagp_dist.fields.tables.columns import Columns, refuse_rows, shown_number
from cagp_dist.fields.tables.grouping import Places, PlaneColumns
from cagp_dist.variables.units import difference_factor

_NUMBER = r"\d+(?:[.,]\d+)?"
_WRITTEN = re.compile(
    rf"(?P<before>[NSEW])?\s*(?P<sign>[-+\u2212])?(?P<degrees>{_NUMBER})"
    rf"(?:(?:\s*(?:[\u00b0\u00ba:-]|deg|d)\s*|\s+)(?P<minutes>{_NUMBER})"
    rf"(?:(?:\s*['\u2032\u2019:m-]\s*|\s+)(?P<seconds>{_NUMBER})\s*(?:[\"\u2033\u201ds]|'')?"
    r"|\s*['\u2032\u2019m]?)"
    r"|\s*(?:[\u00b0\u00ba]|deg|d)?)\s*(?P<after>[NSEW])?"
)
NAMES_PER_PLACE = 1.5  # a column with more names for each place names something else, such as rows

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
        try:
            return float(text)
        except ValueError:
            return np.nan
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


def read_row_places(
    frame: Columns,
    axes: tuple[str, str],
    kept: Indices,
    *,
    plane: bool,
    taken: Collection[str],
    named: str | None = None,
) -> Places:
    """Read the places of some rows, with names of this column, or of a usual one that is not taken."""
    found = _on_plane(frame, axes, kept) if plane else _on_globe(frame, axes, kept)
    names = _names(frame, found.keys, kept, taken) if named is None else _written(frame, named, kept)
    return replace(found, names=names)


def _on_plane(frame: Columns, axes: tuple[str, str], kept: Indices) -> Places:
    """Read x and y, in one unit."""
    xy, units = [], [units_in(name) for name in axes]
    if units[0] != units[1]:
        raise DataError(
            f"column {axes[0]!r} of {frame.title} is in {units[0] or 'no unit that is stated'} and "
            f"{axes[1]!r} in {units[1] or 'none'}; expected x and y in one unit."
        )
    for name in axes:
        numbers = frame.numbers(name)[kept]
        said = partial(_said_of, f"column {name!r} of {frame.title}", numbers)
        refuse_rows(frame, kept, ~np.isfinite(numbers), said, "a number for each place.")
        xy.append(numbers)
    nowhere = np.full(kept.size, np.nan)
    columns = PlaneColumns(np.column_stack(xy), (bare(axes[0]), bare(axes[1])), units[0])
    return Places(nowhere, nowhere, plane=columns)


def _on_globe(frame: Columns, axes: tuple[str, str], kept: Indices) -> Places:
    """Read latitudes and longitudes."""
    latitude, longitude = axes
    north, east = (
        in_degrees(
            read_degrees(frame, name, kept, letters=letters),
            {"units": units_in(name)},
            what=f"column {name!r} of {frame.title}",
            longitude=name == longitude,
            column=True,
        )
        for name, letters in ((latitude, "NS"), (longitude, "EW"))
    )
    for name, axis, low, high in ((latitude, north, -90.0, 90.0), (longitude, east, -180.0, 360.0)):
        wrong = ~((axis >= low) & (axis <= high))  # of NaN, too
        swapped = " Check that latitude and longitude were not swapped." if name == latitude else ""
        said = partial(_said_of, f"column {name!r} of {frame.title}", axis)
        refuse_rows(frame, kept, wrong, said, f"{low:g}..{high:g} degrees.{swapped}")
    return Places(north, east)


def _names(frame: Columns, places: Array, kept: Indices, taken: Collection[str]) -> Names | None:
    """Find what the places (n, 2) of some rows are called."""
    usual = [name for name in frame.columns if plain(name) in NAME and name not in taken]
    for column in sorted(usual, key=lambda name: NAME.index(plain(name))):
        names = _written(frame, column, kept)
        if names is None:
            continue
        if len(set(zip(*places.T, names, strict=True))) <= NAMES_PER_PLACE * len(np.unique(places, axis=0)):
            return names
    return None


def _written(frame: Columns, column: str, kept: Indices) -> Names | None:
    """Write the cells of some rows as names; None if all are empty."""
    cells = frame.columns[column][kept].tolist()
    cells = [int(cell) if isinstance(cell, float) and cell.is_integer() else str(cell) for cell in cells]
    spelled = {cell: " ".join(str(cell).split()) for cell in set(cells)}
    names = {cell: "" if text.lower() in EMPTY else text for cell, text in spelled.items()}
    return np.array([names[cell] for cell in cells], dtype=object) if any(names.values()) else None


def static_columns(frame: Columns, names: Collection[str]) -> dict[str, str]:
    """Columns of these names, or of these before a unit in brackets, as far as there are any."""
    alone = {bare(column): column for column in frame.columns}
    found = {name: name if name in frame.columns else alone.get(bare(name)) for name in names}
    return {name: column for name, column in found.items() if column is not None}


def read_static(
    frame: Columns, names: Collection[str], kept: Indices, *, missing: Marks = None
) -> tuple[dict[str, Array], dict[str, str]]:
    """Read columns with a number for each place, NaN where it is not known, and their units."""
    static, units = {}, {}
    for name, column in static_columns(frame, names).items():
        what = f"column {column!r} of {frame.title}"
        told = observations(frame.numbers(column), what=what, missing=missing, noun="row")
        static[name] = np.asarray(told, dtype=np.float64)[kept]
        refuse_rows(frame, kept, np.isinf(static[name]), f"{what} is infinite", "finite numbers.")
        units[name] = units_in(column)
    return static, units


def read_noise(
    frame: Columns,
    name: str | None,
    given: str | float | None,
    kept: Indices,
    *,
    units: str,
    missing: Marks = None,
) -> Array | None:
    """Read the noise in the units of the values."""
    whose = "noise_std"
    if name is not None:
        whose = f"column {name!r} of {frame.title}"
        factor = noise_factor(units, units_in(name), whose)
        there = observations(frame.numbers(name), what=whose, missing=missing, noun="row")
        noise = factor * np.asarray(there, dtype=np.float64)[kept]
    elif given is None:
        return None
    else:
        noise = np.full(kept.size, float(given))
    wrong = ~((noise > 0.0) & np.isfinite(noise))
    advice = "the standard deviation of its error, above zero."
    refuse_rows(frame, kept, wrong, partial(_said_of, whose, noise), advice)
    return noise


def _said_of(what: str, numbers: Array, row: int) -> str:
    """Say which number stands in a row."""
    return f"{what} is {shown_number(numbers[row])}"


def noise_factor(units: str, stated: str, whose: str) -> float:
    """Factor that brings a noise from the units that are stated for it to those of the values."""
    factor = difference_factor(stated, units)
    if factor is None:
        raise DataError(
            f"{whose} is in {stated!r} and the values are in {units!r}; expected a standard deviation in the "
            "units of the values. Convert one of them, or name its units in the same way."
        )
    return factor
