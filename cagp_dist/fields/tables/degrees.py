"""Degrees as tables write them: with letters, minutes and seconds, in one cell or in columns of their own."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import DataError
from cagp_dist.fields.column_names import (
    ANY,
    BREADTHS,
    EMPTY,
    LATITUDE,
    LENGTHS,
    LONGITUDE,
    counted_from,
    plain,
)
from cagp_dist.fields.coordinates import in_degrees
from cagp_dist.fields.tables.columns import NUMBER, Columns, refuse_rows, shown_number, shown_text
from cagp_dist.remedies import Setting

_NUMBER = r"[0-9]+(?:[.,][0-9]+)?"
_WRITTEN = re.compile(
    rf"(?P<before>[NSEW])?\s*(?P<sign>[-+\u2212])?(?P<degrees>{_NUMBER})"
    rf"(?:(?:\s*(?:[\u00b0\u00ba:-]|deg|d)\s*|\s+)(?P<minutes>{_NUMBER})"
    rf"(?:(?:\s*['\u2032\u2019:m-]\s*|\s+)(?P<seconds>{_NUMBER})\s*(?:[\"\u2033\u201ds]|'')?"
    r"|\s*['\u2032\u2019m]?)"
    r"|\s*(?:[\u00b0\u00ba]|deg|d)?)\s*(?P<after>[NSEW])?"
)
_FLAGS = re.compile(r"flag|qual|qc|attributes|status|code|remark")
_SEPARATES = re.compile(r"[\u00b0\u00ba:d'\u2032]")

UNLIKELY = 1e-6  # a chance that is none
SAME_PLACE = 0.02  # degrees within which two columns may be rounded differently
FEWEST_SCALED = 10  # places that tell whether coordinates were standardized


@dataclass(frozen=True)
class Axis:
    """How columns beside one of degrees are called, and which words they hold."""

    name: str
    letters: str  # of the positive and the negative hemisphere
    words: tuple[frozenset[str], frozenset[str]]
    beside: str  # pattern of how names of columns call the axis


LATITUDE_AXIS = Axis(
    "latitude",
    "NS",
    (frozenset({"n", "north", "northern", "nord", "+", "1"}),
     frozenset({"s", "south", "southern", "sud", "s\u00fcd", "-", "-1"})),
    r"lat(?:itude)?|gps_?latitude",
)  # fmt: skip
LONGITUDE_AXIS = Axis(
    "longitude",
    "EW",
    (frozenset({"e", "east", "eastern", "est", "+", "1"}),
     frozenset({"w", "west", "western", "-", "-1"})),
    r"lon(?:g(?:itude)?)?|lng|gps_?longitude",
)  # fmt: skip

_SIDE = r"dir(?:ection)?|h|hem(?:i(?:sphere)?)?|ref(?:erence)?|sign|card(?:inal)?|quadrant|indicator|letter"
_PAIRS = {
    "latitude": r"n_?(?:or_?)?s|north_?(?:or_?)?south",
    "longitude": r"e_?(?:or_?)?w|w_?e|east_?(?:or_?)?west",
}
_PARTS = {"minutes": r"m|mm|mins?|minutes?", "seconds": r"s|ss|secs?|seconds?"}


def hemisphere_of(name: str) -> Axis | None:
    """Axis whose hemisphere a column has by its name."""
    spelled = plain(name)
    if spelled in ("hemisphere", "hemi"):
        return LATITUDE_AXIS
    for axis in (LATITUDE_AXIS, LONGITUDE_AXIS):
        at, pair = f"(?:{axis.beside})", f"(?:{_PAIRS[axis.name]})"
        side = f"(?:{_SIDE}|{pair})"
        if re.fullmatch(f"{at}_?{side}|{side}_?(?:of_)?{at}|{pair}(?:_?{side})?|{side}_?{pair}", spelled):
            return axis
    return None


def part_of(name: str) -> tuple[Axis, str] | None:
    """Axis whose minutes or seconds a column has by its name, and which of both."""
    spelled = plain(name)
    for axis in (LATITUDE_AXIS, LONGITUDE_AXIS):
        for part, words in _PARTS.items():
            if re.fullmatch(
                rf"(?:{axis.beside})_?(?:{words})|(?:{words})_?(?:of_)?(?:{axis.beside})", spelled
            ):
                return axis, part
    return None


def degrees_among(frame: Columns) -> list[str]:
    """Columns of degrees, and of their hemispheres, minutes and seconds."""
    return [
        name
        for name in frame.columns
        if plain(name) in (*LATITUDE, *LONGITUDE, *BREADTHS, *LENGTHS) or hemisphere_of(name) or part_of(name)
    ]


def beside(frame: Columns, axis: Axis, degrees: str) -> dict[str, str]:
    """Columns that change what a column of degrees means: ``hemisphere``, ``minutes`` and ``seconds``."""
    spelled = {plain(name): name for name in frame.columns}
    found: dict[str, str] = {}
    for name, column in frame.columns.items():
        nanoseconds = plain(name) == "ns" and column.dtype.kind in "iuf"
        if hemisphere_of(name) is axis and not nanoseconds:
            found.setdefault("hemisphere", name)
        part = part_of(name)
        largest = spelled.get(plain(name).replace("min", "max"), name)
        # lat_min beside lat_max
        bounds = largest != name and _rise(column, frame.columns[degrees], frame.columns[largest])
        if part is not None and part[0] is axis and not bounds:
            found.setdefault(part[1], name)
    return found


def _rise(*columns: NDArray[Any]) -> bool:
    """Whether the numbers of each column are not below those of the one before it."""
    if any(column.dtype.kind not in "iuf" for column in columns):
        return False
    return all(bool((low <= high).all()) for low, high in pairwise(columns))


def read_axis(frame: Columns, name: str, kept: Indices, axis: Axis, ignored: Collection[str] = ()) -> Array:
    """Read degrees north or east of some rows, as columns beside them say; those ``ignored`` do not count."""
    what = f"column {name!r} of {frame.title}"
    numbers, lettered = _read_cells(frame, name, kept, axis)
    parts = {
        part: column for part, column in beside(frame, axis, name).items() if column not in (*ignored, name)
    }
    if "minutes" in parts or "seconds" in parts:
        numbers = _with_parts(frame, name, kept, numbers, parts)
    if "hemisphere" in parts:
        numbers = _on_side(frame, name, kept, numbers, parts["hemisphere"], axis, lettered=lettered)
    _check_edges(frame, name, axis)
    degrees = in_degrees(
        numbers,
        {**frame.attributes.get(name, {}), "units": frame.units(name)},
        name=name,
        what=what,
        longitude=axis is LONGITUDE_AXIS,
        column=True,
    )
    low, high = (-90.0, 90.0) if axis is LATITUDE_AXIS else (-180.0, 360.0)
    swapped = " Check that latitude and longitude were not swapped." if axis is LATITUDE_AXIS else ""
    refuse_rows(
        frame,
        kept,
        ~((degrees >= low) & (degrees <= high)),  # of NaN, too
        lambda row: f"{what} is {shown_number(degrees[row])}",
        f"{low:g}..{high:g} degrees.{swapped}",
    )
    return degrees


def _check_edges(frame: Columns, name: str, axis: Axis) -> None:
    """Refuse degrees west or south by their name that are an edge of cells, beside the one of the east."""
    opposite = str.maketrans({"w": "e"} if axis is LONGITUDE_AXIS else {"s": "n"})
    other = {"west": "east", "south": "north"}.get(counted_from(name))
    if other is None:
        return
    spelled = plain(name)
    edges = {
        spelled.replace("west", other).replace("south", other),
        spelled[:-1] + spelled[-1].translate(opposite),
    }
    found = [column for column in frame.columns if plain(column) in edges - {spelled}]
    if found:
        raise DataError(
            f"columns {name!r} and {found[0]!r} of {frame.title} seem to be two edges of cells; expected the "
            f"{axis.name} of each place, such as that of the middle.",
            key="which-column",
        )


def check_sides(frame: Columns, kept: Indices, places: Mapping[str, Array], ignored: Collection[str]) -> None:
    """Refuse columns of unusual names that hold hemispheres beside the degrees ``places`` without signs."""
    for name, column in frame.columns.items():
        if (
            column.dtype.kind not in "OUT"
            or name in ignored
            or hemisphere_of(name)
            or _FLAGS.search(plain(name))
        ):
            continue
        cells = {str(cell).strip().lower() for cell in column[kept].tolist()} - {*EMPTY}
        for axis in (LATITUDE_AXIS, LONGITUDE_AXIS):
            words = [side - {"+", "-", "1", "-1"} for side in axis.words]
            if cells & words[1] and cells <= words[0] | words[1] and (places[axis.name] >= 0.0).all():
                raise DataError(
                    f"column {name!r} of {frame.title} holds {' and '.join(map(repr, sorted(cells)))}, which "
                    f"may be hemispheres of the {axis.name}, which has no signs. If so, call it "
                    f"{axis.name}_hemisphere.",
                    key="hemisphere",
                    remedies=(Setting("where", {name: ANY}, "if it says something else"),),
                )


def _read_cells(frame: Columns, name: str, kept: Indices, axis: Axis) -> tuple[Array, bool]:
    """Read degrees of some rows, NaN where a cell is empty, and whether cells have letters of hemispheres."""
    column = frame.columns[name]
    if column.dtype.kind in "fiubmMc":
        return frame.numbers(name)[kept], False
    out, lettered = np.full(kept.size, np.nan), False
    for at, row in enumerate(kept):
        text = str(column[row]).strip()
        if text.lower() in EMPTY:
            continue
        out[at] = _degrees(text, axis.letters)
        lettered = lettered or text[0] in "NSEW+-\u2212" or text[-1] in "NSEW"
        if np.isnan(out[at]):
            letter = axis.letters[0]
            raise DataError(
                f"column {name!r} of {frame.title} holds {shown_text(text)} in {frame.where(int(row))}, "
                f"which is no {axis.name}; expected degrees, such as 50.1182, 50.1182{letter}, "
                f"50 07 05 {letter} or 50d07m05s{letter}.",
                key="no-degrees",
            )
    return out, lettered


def _degrees(text: str, letters: str) -> float:
    """Read degrees; NaN where they are none, or it cannot be told what they are."""
    found = _WRITTEN.fullmatch(text)
    if found is None:
        return float(text) if NUMBER.fullmatch(text) else np.nan
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


def _with_parts(frame: Columns, name: str, kept: Indices, degrees: Array, parts: dict[str, str]) -> Array:
    """Add columns of minutes and seconds to degrees."""
    read = {part: frame.numbers(parts[part])[kept] for part in ("minutes", "seconds") if part in parts}
    columns = " and ".join(repr(parts[part]) for part in read)
    where = {parts[part]: ANY for part in read}
    for part, numbers in read.items():
        refuse_rows(
            frame,
            kept,
            ~(np.abs(numbers) < 60.0),
            lambda row, part=part, numbers=numbers: (  # type: ignore[misc]
                f"column {parts[part]!r} of {frame.title} is {shown_number(numbers[row])}"
            ),
            f"{part} of degrees, below 60.",
        )
    added = sum(np.abs(numbers) / (60.0 if part == "minutes" else 3600.0) for part, numbers in read.items())
    below = np.any([numbers < 0.0 for numbers in read.values()], axis=0)
    fraction = degrees != np.trunc(degrees)
    if (fraction & ~np.isnan(degrees)).any():
        if np.allclose(np.abs(degrees) % 1.0, added, atol=1e-3):
            return degrees  # decimal degrees, and the same in minutes
        raise DataError(
            f"column {name!r} of {frame.title} has fractions of degrees, and {columns} beside it others; "
            "expected whole degrees beside minutes.",
            key="minutes",
            remedies=(Setting("where", where, "if the degrees are right without them"),),
        )
    south = np.signbit(degrees) | below
    if (degrees == 0.0).any():  # -0 of a text file, of which the parser keeps 0
        written = frame.as_written(name)[kept].tolist()
        south |= np.array([isinstance(cell, str) and cell.strip()[:1] in ("-", "\u2212") for cell in written])
    doubtful = (degrees == 0.0) & ~south & (np.asarray(added) > 0.0)
    contradicts = (degrees > 0.0) & below
    if contradicts.any() or (doubtful.any() and (degrees < 0.0).any()):
        row = int((contradicts if contradicts.any() else doubtful).argmax())
        raise DataError(
            f"column {name!r} of {frame.title} is {degrees[row]:g} in {frame.where(int(kept[row]))}, and "
            f"{columns} beside it, so that its sign cannot be told; expected the sign at the degrees, or a "
            "column of hemispheres. Write decimal degrees.",
            key="sign",
        )
    return np.where(south, -1.0, 1.0) * (np.abs(degrees) + added)


def _on_side(
    frame: Columns, name: str, kept: Indices, degrees: Array, column: str, axis: Axis, *, lettered: bool
) -> Array:
    """Give degrees the signs of the hemispheres in a column; degrees that have signs must agree."""
    cells = [str(cell).strip().rstrip(".").lower() for cell in frame.columns[column][kept].tolist()]
    cells = [cell.removesuffix(".0") for cell in cells]
    first, second = (np.array([cell in words for cell in cells]) for words in axis.words)
    empty = np.array([cell in EMPTY for cell in cells]) & ~second
    what, ignored = (
        f"column {column!r} of {frame.title}",
        Setting("where", {column: ANY}, "if it says something else"),
    )
    unread = ~(first | second | empty)
    if unread.any():
        row = int(unread.argmax())
        raise DataError(
            f"{what} holds {shown_text(cells[row])} in {frame.where(int(kept[row]))}, which is no hemisphere "
            f"of column {name!r}; expected {axis.letters[0]} or {axis.letters[1]}.",
            key="hemisphere",
            remedies=(ignored,),
        )
    beyond = (degrees < 0.0) | (degrees > 180.0)
    signed = lettered or bool(beyond.any())
    wrong = (first & beyond | second & ~beyond if signed else empty & second.any()) & (degrees != 0.0)
    if wrong.any():
        row = int(wrong.argmax())
        why = "some degrees have signs of their own, and these contradict" if signed else "other rows have"
        raise DataError(
            f"{what} holds {shown_text(cells[row])} in {frame.where(int(kept[row]))}, where {name!r} is "
            f"{degrees[row]:g}: {why} hemispheres. Correct one of them, or leave the column out.",
            key="hemisphere",
            remedies=(ignored,),
        )
    return degrees if signed else np.where(second, -degrees, degrees)


def differ(frame: Columns, one: str, other: str) -> bool:
    """Whether numbers of two columns are those of different places, and not rounded or without minutes."""
    if not (frame.is_numeric(one) and frame.is_numeric(other)):
        return False
    first, second = frame.numbers(one), frame.numbers(other)
    apart = np.abs(first - second)
    if any((axis == np.round(axis)).all() for axis in (first, second)):
        return bool((apart > 1.0).any())
    return bool((np.minimum(apart, np.abs(apart - 360.0)) > SAME_PLACE).any())


def check_nowhere(frame: Columns, names: tuple[str, str], kept: Indices, north: Array, east: Array) -> None:
    """Refuse places at 0 N 0 E among others of which none is on the equator or the meridian: of no fix."""
    zero = (north == 0.0) & (east == 0.0)
    others = ~zero
    scattered = others.sum() >= FEWEST_SCALED and not ((north == 0.0) | (east == 0.0))[others].any()
    if zero.any() and scattered and np.mean(north[others] != np.round(north[others])) > 0.5:
        refuse_rows(
            frame,
            kept,
            zero,
            f"{names[0]!r} and {names[1]!r} of {frame.title} are both 0",
            "degrees. Leave such rows out.",
            why=", as devices write that do not know where they are",
            key="nowhere",
            remedies=(Setting("where", dict.fromkeys(names, ANY), "if they were measured there"),),
        )


def is_stated_decimal(frame: Columns, names: tuple[str, str]) -> bool:
    """Whether columns state that they are degrees north and east, or decimal ones."""
    stated = [f"{frame.units(name)} {plain(name)}".lower() for name in names]
    return all(re.match(r"degrees?_(north|east|n|e) |.*decimal|dd ", text) for text in stated)


def check_degrees(names: tuple[str, str], north: Array, east: Array, *, of_targets: bool) -> None:
    """Refuse degrees that look like degrees and minutes, 50.25 for 50 d 25 m, or that were scaled."""
    right = Setting("where", dict.fromkeys(names, ANY), "if they are decimal degrees as they are")
    remedies = () if of_targets else (right,)
    for decimals, kind in ((2, "minutes"), (4, "minutes and seconds")):
        if _sexagesimal_chance(north, decimals) * _sexagesimal_chance(east, decimals) < UNLIKELY:
            raise DataError(
                f"degrees in {names[0]!r} and {names[1]!r} have {decimals} decimals, and none of the "
                f"fractions reaches 60, so that they seem to be degrees and {kind}: 50.25 for 50\u00b0 25'. "
                f"If so, write decimal degrees, or {kind} in columns of their own, lat_min; if not, "
                "call the columns latitude (decimal) and longitude (decimal).",
                key="degrees-and-minutes",
                remedies=remedies,
            )
    if north.size >= FEWEST_SCALED and _are_scaled(north) and _are_scaled(east):
        raise DataError(
            f"{names[0]!r} and {names[1]!r} both have a mean of 0 and a standard deviation of 1, or reach "
            "from 0 to 1, so that they seem to have been scaled, as by a StandardScaler; expected degrees. "
            "Take the coordinates from before that.",
            key="scaled",
            remedies=remedies,
        )


def _sexagesimal_chance(degrees: Array, decimals: int) -> float:
    """Chance that decimal degrees of so many decimals have no pair of digits of 60 or more; 1 if one has.

    It is that of the different fractions, as grids have few, and counts if they are many, in several degrees.
    """
    scaled = np.abs(degrees) * 10.0**decimals
    if (np.abs(scaled - np.round(scaled)) > 1e-5).any() or (
        decimals == 4 and (np.mod(np.round(scaled), 100.0) == 0.0).all()
    ):
        return 1.0
    every, allowed = 10**decimals, 60 ** (decimals // 2)
    whole = np.round(scaled).astype(np.int64)
    fractions = np.unique(whole % every)
    pairs = [fractions // (every // 100), *([fractions % 100] if decimals == 4 else [])]
    filled = len(np.unique(pairs[0] // 10)) == 6 and len(np.unique(whole // every)) >= 3
    if not filled or any((pair >= 60).any() for pair in pairs):
        return 1.0
    drawn = np.arange(fractions.size)
    return float(np.exp(np.log((allowed - drawn) / (every - drawn)).sum()))


def _are_scaled(degrees: Array) -> bool:
    """Whether numbers have mean 0 and standard deviation 1 to 3 percent, or reach from 0 to 1."""
    standard = abs(degrees.mean()) < 0.03 and abs(degrees.std() - 1.0) < 0.03
    return bool(standard or (degrees.min() == 0.0 and degrees.max() == 1.0 and degrees.size > 20))
