"""Values that are known only to be no larger than a limit of detection: "< 0.1", ND, or a column."""

import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Mask
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.tables.cells import MissingMarks
from cagp_dist.fields.tables.columns import Columns, refuse_rows, shown_text
from cagp_dist.remedies import Setting
from cagp_dist.variables.units import plain_units

_BELOW = re.compile(r"[<\u2264]\s*=?\s*([-+\u2212]?[\d.,].*)")
_NOT_DETECTED = re.compile(
    r"n\.?d\.?|b\.?d\.?l\.?|<\s*(lod|loq|lld|mdl|dl|rl)|not[ _-]?detect(ed|able)?|non[ _-]?detect(s|ed)?|"
    r"below (the )?(limit of )?detection( limit)?",
    re.IGNORECASE,
)
SAME = 1e-9  # part by which a value may differ from the limit that it is


class LimitedValues(NamedTuple):
    """A column of values: numbers, limits where a value is known to be no larger, NaN where there is none."""

    values: Array  # (n,)
    below: Mask  # (n,), which are limits


def read_limited(
    frame: Columns, column: str, limit: str | None, marks: MissingMarks, what: str
) -> LimitedValues:
    """Read values with those below limits: written as "< 0.1", as ND with a column of limits, or as these.

    A value that equals its limit is one of those below; one above it was measured.
    """
    cells, below, undetected = _plain_cells(frame, column, marks)
    values = marks.observations(replace(frame, columns={**frame.columns, column: cells}), column, what)
    rows = np.arange(values.size)
    if limit is None:
        refuse_rows(
            frame,
            rows,
            undetected,
            lambda row: f"{what} holds {shown_text(str(frame.columns[column][row]).strip())}",
            "the limit of detection, written as < 0.1 or in a column.",
            key="limit",
            remedies=(
                Setting("columns", {"limit": "NAME"}),
                Setting("missing", _first(frame, column, undetected), "if such cells count as missing"),
            ),
        )
        return LimitedValues(values, below)
    own, stated = frame.units(limit), frame.units(column)
    if own and stated and plain_units(own) != plain_units(stated):
        raise ArgumentError(
            f"the limits {limit!r} of {frame.title} are in {own!r} and the values in {stated!r}; expected "
            "one unit. Convert them.",
            key="units",
        )
    limits = marks.observations(frame, limit, f"column {limit!r} of {frame.title}")
    refuse_rows(frame, rows, np.isinf(limits), f"limit {limit!r} is infinite", "finite numbers.")
    known = ~np.isnan(limits)
    near = np.abs(values - limits) <= SAME * np.abs(limits)
    refuse_rows(
        frame,
        rows,
        undetected & ~known,
        f"{what} was not detected, and {limit!r} is empty",
        "the limit of such a value.",
        key="limit",
    )
    refuse_rows(
        frame,
        rows,
        known & np.isnan(values) & ~undetected,
        f"{what} is empty beside a limit {limit!r}",
        "ND, < or the limit itself where nothing was detected, and no limit where nothing was measured.",
        key="limit-without-value",
    )
    refuse_rows(
        frame,
        rows,
        below & known & ~near,
        lambda row: f"{what} is below {values[row]:g}, and {limit!r} is {limits[row]:g}",
        "one limit.",
        key="limit-above-value",
    )
    refuse_rows(
        frame,
        rows,
        known & (values < limits) & ~near,
        lambda row: f"{what} is {values[row]:g}, below its limit of {limits[row]:g}",
        "values above their limits, and the limit itself, < or ND where a value is not known.",
        key="limit-above-value",
    )
    values = np.where(undetected, limits, values)
    return LimitedValues(values, below | undetected | (known & near))


def _plain_cells(frame: Columns, column: str, marks: MissingMarks) -> tuple[np.ndarray, Mask, Mask]:
    """Give the cells of a column without "<" and ND, and which had them."""
    cells = frame.columns[column]
    below, undetected = np.zeros((2, cells.size), dtype=bool)
    if cells.dtype.kind not in "OUT":
        return cells, below, undetected
    plain = [str(cell).strip() for cell in cells.tolist()]
    for row, text in enumerate(plain):
        if not text or text[0].isdigit() or text in marks.texts:
            continue
        if found := _BELOW.fullmatch(text):
            plain[row], below[row] = found[1], True
        elif _NOT_DETECTED.fullmatch(text):
            plain[row], undetected[row] = "", True
    if not (below.any() or undetected.any()):
        return cells, below, undetected
    return np.array(plain, dtype=object), below, undetected


def _first(frame: Columns, column: str, rows: Mask) -> str:
    """Give the text of the first of some rows; empty where there is none."""
    return str(frame.columns[column][int(rows.argmax())]).strip() if rows.any() else ""
