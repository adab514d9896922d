"""What stands in the rows of a table: values, places and what they are called, and noise."""

from collections.abc import Collection

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.coordinates import in_degrees
from cagp_dist.errors import DataError
from cagp_dist.missing import Floats, Marks, observations
from cagp_dist.tables.column_names import EMPTY, NAME, plain, units_in
from cagp_dist.tables.columns import Columns, such
from cagp_dist.tables.contents import Names, Places
from cagp_dist.tables.degrees import read_degrees
from cagp_dist.variables.units import difference_factor

NAMES_PER_PLACE = 1.5
"""A column that has more names than this for each place names something else, such as rows or elements."""


def check_finite(values: Floats, name: str, frame: Columns) -> None:
    """Refuse infinity."""
    if np.isinf(values).any():
        row = int(np.isinf(values).argmax())
        raise DataError(
            f"column {name!r} of {frame.title} is infinite in {frame.where(row)}; expected finite numbers."
        )


def read_row_places(
    frame: Columns,
    latitude: str,
    longitude: str,
    kept: Indices,
    *,
    taken: Collection[str],
    named: str | None = None,
) -> Places:
    """Read the places of some rows, with names of this column, or of a usual one that is not taken."""
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
        if wrong.any():
            first = int(wrong.argmax())
            swapped = " Check that latitude and longitude were not swapped." if name == latitude else ""
            found = "empty" if np.isnan(axis[first]) else f"{axis[first]:g}"
            raise DataError(
                f"column {name!r} of {frame.title} is {found} in {frame.where(int(kept[first]))} "
                f"({such(wrong)}); expected {low:g}..{high:g} degrees.{swapped}"
            )
    if named is not None:
        return Places(north, east, _written(frame, named, kept))
    return Places(north, east, _names(frame, np.column_stack([north, np.mod(east, 360.0)]), kept, taken))


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


def static_of(
    frame: Columns, names: Collection[str], kept: Indices, *, missing: Marks = None
) -> dict[str, Array]:
    """Read columns with a number for each place, as far as there are any of these names."""
    found = {}
    for name in names:
        if name not in frame.columns:
            continue
        what = f"column {name!r} of {frame.title}"
        numbers = np.asarray(
            observations(frame.numbers(name), what=what, missing=missing, noun="row"), dtype=np.float64
        )[kept]
        wrong = ~np.isfinite(numbers)
        if wrong.any():
            first = int(wrong.argmax())
            raise DataError(
                f"{what} has no number in {frame.where(int(kept[first]))} ({such(wrong)}); expected one for "
                "each place. Leave these rows out, or this term of the drift."
            )
        found[name] = numbers
    return found


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
    if name is not None:
        what = f"column {name!r} of {frame.title}"
        factor = noise_in(units, units_in(name), what)
        there = observations(frame.numbers(name), what=what, missing=missing, noun="row")
        noise = factor * np.asarray(there, dtype=np.float64)[kept]
    elif given is None or isinstance(given, str):
        return None
    else:
        noise = np.full(kept.size, float(given))
    wrong = ~((noise > 0.0) & np.isfinite(noise))
    if wrong.any():
        first = int(wrong.argmax())
        whose = "noise_std" if name is None else f"column {name!r} of {frame.title}"
        found = "empty" if np.isnan(noise[first]) else f"{noise[first]:g}"
        raise DataError(
            f"{whose} is {found} in {frame.where(int(kept[first]))} ({such(wrong)}); expected the standard "
            "deviation of its error, above zero."
        )
    return noise


def noise_in(units: str, stated: str, whose: str) -> float:
    """Factor that brings a noise from the units that are stated for it to those of the values."""
    factor = difference_factor(stated, units)
    if factor is None:
        raise DataError(
            f"{whose} is in {stated!r} and the values are in {units!r}; expected a standard deviation in the "
            "units of the values. Convert one of them, or name its units in the same way."
        )
    return factor
