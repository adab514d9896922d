"""What stands in the cells of a table: degrees as people write them, places and their names, noise."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from cagp_dist.arrays import Array, Indices, Marks, Names
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.column_names import EMPTY, NAME, counted_from, plain, unit_of_length
from cagp_dist.fields.missing import observations
from cagp_dist.fields.tables.columns import NUMBER, Columns, refuse_rows, shown_number
from cagp_dist.fields.tables.degrees import (
    LATITUDE_AXIS,
    LONGITUDE_AXIS,
    check_degrees,
    check_nowhere,
    check_sides,
    is_stated_decimal,
    read_axis,
)
from cagp_dist.fields.tables.grouping import Depths, Places, PlaneColumns
from cagp_dist.kernels import NO_LABEL
from cagp_dist.remedies import Setting
from cagp_dist.text import nearest
from cagp_dist.variables import bare
from cagp_dist.variables.stated_units import Units
from cagp_dist.variables.units import difference_factor

SIMILAR = 0.75  # of the names of a column and of what was asked for, from where on the one may be meant
NAMES_PER_PLACE = 1.5  # a column with more names for each place names something else, such as rows


def read_row_places(
    frame: Columns,
    axes: tuple[str, str],
    kept: Indices,
    *,
    plane: bool,
    taken: Collection[str],
    named: str | None = None,
    ignored: Collection[str] = (),
    of_targets: bool = False,
) -> Places:
    """Read the places of some rows, with names of this column, or of a usual one that is not taken.

    Columns ``ignored`` do not change degrees, and degrees of such columns are right as they are.
    """
    if plane:
        found = _on_plane(frame, axes, kept)
    else:
        north = read_axis(frame, axes[0], kept, LATITUDE_AXIS, ignored)
        east = read_axis(frame, axes[1], kept, LONGITUDE_AXIS, ignored)
        if not of_targets and not set(axes) <= set(ignored):
            check_nowhere(frame, axes, kept, north, east)
        if not set(axes) <= set(ignored) and not is_stated_decimal(frame, axes):
            check_degrees(axes, north, east, of_targets=of_targets)
        check_sides(frame, kept, {"latitude": north, "longitude": east}, ignored)
        found = Places(north, east)
    names = _names(frame, found.keys, kept, taken) if named is None else _written(frame, named, kept)
    return replace(found, names=names)


def _on_plane(frame: Columns, axes: tuple[str, str], kept: Indices) -> Places:
    """Read x and y, in one unit."""
    if backward := [name for name in axes if counted_from(name)]:
        raise DataError(
            f"column {backward[0]!r} of {frame.title} counts to the {counted_from(backward[0])} by its name; "
            "expected x to the east and y to the north. Turn its sign, and its name.",
            key="sign",
        )
    xy, units = [], [frame.units(name) or unit_of_length(name) for name in axes]
    if units[0] != units[1]:
        raise DataError(
            f"column {axes[0]!r} of {frame.title} is in {units[0] or 'no unit that is stated'} and "
            f"{axes[1]!r} in {units[1] or 'none'}; expected x and y in one unit.",
            key="units",
        )
    for name in axes:
        numbers = frame.numbers(name)[kept]
        said = partial(_said_of, f"column {name!r} of {frame.title}", numbers)
        refuse_rows(frame, kept, ~np.isfinite(numbers), said, "a number for each place.")
        xy.append(numbers)
    nowhere = np.full(kept.size, np.nan)
    columns = PlaneColumns(np.column_stack(xy), (bare(axes[0]), bare(axes[1])), units[0])
    return Places(nowhere, nowhere, plane=columns)


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


@dataclass(frozen=True)
class MissingMarks:
    """What stands for a missing value: texts of cells, and numbers."""

    texts: frozenset[str]
    numbers: Marks

    @classmethod
    def of(cls, missing: Marks) -> "MissingMarks":
        """Take a mark, or a sequence of all marks."""
        several = np.ndim(missing) > 0  # type: ignore[arg-type]
        given: list[Any] = list(missing) if several else [missing]  # type: ignore[arg-type]
        texts = frozenset(each.strip() for each in given if isinstance(each, str))
        numbers = [float(text) for text in texts if NUMBER.fullmatch(text)]
        numbers += [each for each in given if each is not None and not isinstance(each, str)]
        return cls(texts, numbers if several else next(iter(numbers), None))

    def observations(self, frame: Columns, name: str, what: str) -> Array:
        """Give a column as observations, NaN where a cell is a mark or empty."""
        found = observations(
            frame.numbers(name, self.texts),
            {key: held for key, held in frame.attributes.get(name, {}).items() if key != "units"},
            what=what,
            missing=self.numbers,
            noun="row",
        )
        return np.asarray(found, dtype=np.float64)


def static_columns(frame: Columns, names: Collection[str]) -> dict[str, str]:
    """Columns of these names, or of these before a unit in brackets, as far as there are any."""
    alone = {bare(column): column for column in frame.columns}
    found = {name: name if name in frame.columns else alone.get(bare(name)) for name in names}
    return {name: column for name, column in found.items() if column is not None}


def read_labels(
    frame: Columns, names: Collection[str], kept: Indices
) -> tuple[dict[str, Array], dict[str, tuple[str, ...]]]:
    """Read columns of names as integers from 0, and the names; an empty cell is `NO_LABEL`."""
    codes, called = {}, {}
    for name in names:
        column = str(frame.find("bias_by", name, ()))
        written = _written(frame, column, kept)
        texts = [""] * kept.size if written is None else list(map(str, written))
        called[name] = tuple(dict.fromkeys(filter(None, texts)))
        codes[name] = codes_of(texts, called[name])
    return codes, called


def codes_of(texts: Sequence[str], names: Sequence[str]) -> Array:
    """Give the place of each text among names; of empty ones `NO_LABEL`."""
    order = {"": NO_LABEL, **{name: float(at) for at, name in enumerate(names)}}
    return np.array([order[text] for text in texts])


def read_depths(frame: Columns, name: str, kept: Indices, marks: MissingMarks) -> Depths:
    """Read depths, which are known and not below zero."""
    what = f"column {name!r} of {frame.title}"
    depths = marks.observations(frame, name, what)[kept]
    said = partial(_said_of, what, depths)
    refuse_rows(frame, kept, ~np.isfinite(depths), said, "a depth of each row; leave the others out.")
    refuse_rows(
        frame,
        kept,
        depths < 0.0,
        said,
        "depths from 0 at the surface, positive downward; turn the sign of heights.",
        key="depth-sign",
    )
    return Depths(depths, bare(name), frame.units(name))


def refuse_similar(frame: Columns, names: Collection[str], taken: Collection[str]) -> None:
    """Refuse a term of a mean that is no column where one that is not ``taken`` has nearly its name."""
    there, others = static_columns(frame, names), [name for name in frame.columns if name not in taken]
    for name in names:
        if name not in there and (near := nearest(name, others, least=SIMILAR)):
            raise ArgumentError(
                f"mean has the term {name!r}, which is no column of {frame.title}; expected one of its "
                f"columns, such as {near!r}.",
                key="mean",
                remedies=(Setting("mean", near),),
            )


def read_static(
    frame: Columns, names: Collection[str], kept: Indices, marks: MissingMarks
) -> tuple[dict[str, Array], dict[str, str]]:
    """Read columns with a number for each place, NaN where it is not known, and their units."""
    static, units = {}, {}
    for name, column in static_columns(frame, names).items():
        what = f"column {column!r} of {frame.title}"
        static[name] = marks.observations(frame, column, what)[kept]
        refuse_rows(frame, kept, np.isinf(static[name]), f"{what} is infinite", "finite numbers.")
        units[name] = frame.units(column)
    return static, units


def read_noise(
    frame: Columns,
    name: str | None,
    given: str | float | None,
    kept: Indices,
    *,
    units: Units,
    marks: MissingMarks,
) -> Array | None:
    """Read the noise in the units of the values; a column that states none was in theirs as they were."""
    whose = "noise_std"
    if name is not None:
        whose = f"column {name!r} of {frame.title}"
        check_says_std(name, frame.attributes.get(name, {}), whose)
        own = frame.units(name)
        factor = noise_factor(units.name, own, whose) if own else abs(units.factor)
        there = marks.observations(frame, name, whose)
        noise = factor * there[kept]
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


_NO_STD = re.compile(
    r"(.*[\W_])?((var(iance)?|mse|(2|two)[\W_]?(sigma|sd|std|se|s|standard[\W_].*)|expanded|confidence|"
    r"95[\W_]?(%|pct|percent|ci)|k[ _=]*2|1\.96.*)([\W_].*)?|(ci|u|err|unc\w*)([\W_]?9\d)|ci)",
    re.IGNORECASE,
)


def check_says_std(name: str, attributes: Mapping[Any, Any], whose: str) -> None:
    """Refuse as a noise what its name or its attributes call a variance, or several standard deviations."""
    texts = (plain(name), *(str(attributes.get(key, "")) for key in ("long_name", "standard_name")))
    said = next((text for text in texts if _NO_STD.fullmatch(text)), "")
    multiple = np.ravel(attributes.get("standard_error_multiplier", 1.0))
    if not said and multiple.size == 1 and float(multiple[0]) != 1.0:
        said = f"standard_error_multiplier = {float(multiple[0]):g}"
    if said:
        raise DataError(
            f"{whose} is no standard deviation by what it states, {said!r}; expected one in the units of the "
            "values. Take the square root of a variance, half of 2 sigma, or an interval of 95 % by 3.92, "
            "and give it another name.",
            key="no-standard-deviation",
        )


def noise_factor(units: str, stated: str, whose: str) -> float:
    """Factor that brings a noise from the units that are stated for it to those of the values."""
    factor = difference_factor(stated, units)
    if factor is None:
        raise DataError(
            f"{whose} is in {stated!r} and the values are in {units!r}; expected a standard deviation in the "
            "units of the values. Convert one of them, or name its units in the same way.",
            key="units",
        )
    return factor
