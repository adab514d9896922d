"""What a flipped bit makes of a field in a file without checksums, such as GRIB and NetCDF-3, where it shows.

Three things that no whole field has are refused: axes that turn back, a value out of line on an axis that is
equally spaced otherwise, and a single value that stands out from its neighbours far more than any two
neighbours differ elsewhere. What is smaller cannot be told from data.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Times
from cagp_dist.errors import DataError
from cagp_dist.remedies import Setting
from cagp_dist.space import Space
from cagp_dist.text import shown_time
from cagp_dist.variables import VARIABLES, Variable

LEAST_POINTS = 8  # shorter axes have no spacing to be out of line with
EQUAL_SHARE = 0.75  # share of the steps of an axis that are equal where it counts as equally spaced

STEP_TOLERANCE = {"latitude": 0.02, "longitude": 0.002, "y": 0.02, "x": 0.02}
"""Of a step: latitudes of Gaussian grids are 1 % closer near the poles. GRIB 1 rounds to 0.001 degrees."""

KNOWN_FACTOR, FREE_FACTOR = 4.0, 1000.0
"""How many times the largest difference elsewhere a value may stand out: of the continuous quantities of
`cagp_dist.variables.VARIABLES`, and of others, whose fields may have peaks. An island in a small window of a
real field came to 8.5."""

KNOWN_SHARE = 0.15
"""Share of its plausible range by which a value of a known quantity may stand out in any case: 30 K of t2m.
In the fields of ECMWF at 0.25 to 1 degree that this was tried on, the largest was 16 K."""

_ADVICE = "The file is probably damaged: fetch it again."
_IF_RIGHT = (Setting("check_range", False, "if it is right"),)


def check_axis(degrees: Array, name: str, *, spacing: bool = True) -> None:
    """Refuse an axis (P,) of a file, latitude, longitude, y or x, that turns back or has one out of line."""
    if degrees.size < 3:
        return
    steps = np.diff(degrees)
    if name == "longitude":
        eastward, westward = (np.mod(np.round(sign * steps, 9), 360.0) for sign in (1.0, -1.0))
        steps = eastward if eastward.sum() <= westward.sum() else westward
        steps = np.where(steps.sum() > 360.0 + 1e-6, (steps + 180.0) % 360.0 - 180.0, steps)
    else:
        steps = steps * (np.sign(np.median(steps)) or 1.0)
    back = np.flatnonzero(steps < 0.0)
    if back.size:
        row = int(back[0])
        raise DataError(
            f"the {name}s of the field turn back, from {degrees[row]:g} to {degrees[row + 1]:g}; expected "
            f"them to ascend or to descend. {_ADVICE}",
            key="damaged",
        )
    step = float(np.median(steps))
    rounded = 0.002  # y and x as numbers of 32 bits have them, far from zero
    if name in ("y", "x"):
        rounded = 4.0 * float(np.finfo(np.float32).eps) * float(np.abs(degrees).max())
    tolerance = max(rounded, STEP_TOLERANCE[name] * step)
    off = np.abs(steps - step) > tolerance
    if not spacing or degrees.size < LEAST_POINTS or step <= 0.0 or np.mean(~off) < EQUAL_SHARE:
        return
    # one value between two that are two steps apart; an end, unless half a step away, as cells at poles are
    halfway = np.abs(steps[1:] + steps[:-1] - 2.0 * step) <= 2.0 * tolerance
    inside = np.flatnonzero(halfway & off[1:] & off[:-1]) + 1
    ends = np.flatnonzero(off[[0, -1]] & (np.abs(steps[[0, -1]] - step / 2.0) > tolerance)) * len(steps)
    for odd in (*inside, *ends):
        raise DataError(
            f"{name} {degrees[odd]:g} is out of line: the others are {step:g} apart. {_ADVICE}",
            key="damaged",
            remedies=_IF_RIGHT,
        )


def check_jumps(
    values: NDArray[np.floating], moments: Times, north: Array, east: Array, variable: Variable, space: Space
) -> None:
    """Refuse fields (T, P, Q) of which one value is far from all its neighbours."""
    if min(values.shape[1:]) < LEAST_POINTS:
        return
    known = variable.name in VARIABLES and not variable.measure
    factor, least = FREE_FACTOR, 0.0
    if known:
        factor, least = KNOWN_FACTOR, KNOWN_SHARE * (variable.high - variable.low)
    for moment, field in zip(moments, values, strict=True):
        found = _largest_jump(field)
        if found is None:
            continue
        row, column, excess, elsewhere = found
        if excess > max(factor * elsewhere, least):
            where = f"{space.place_text(north[row], east[column])} and {shown_time(moment)}"
            far = f"{excess:g} {variable.units}".rstrip()
            raise DataError(
                f"the value {field[row, column]:g} at {where} stands out from all its neighbours by at least "
                f"{far}; elsewhere neighbours differ by up to {elsewhere:g}. {_ADVICE}",
                key="damaged",
                remedies=_IF_RIGHT,
            )


def _largest_jump(field: NDArray[np.floating]) -> tuple[int, int, float, float] | None:
    """Find the value that stands out most, by how much, and how far neighbours differ elsewhere at most."""
    with np.errstate(invalid="ignore", over="ignore"):
        down, along = (np.nan_to_num(np.abs(np.diff(field, axis=axis)), nan=0.0) for axis in (0, 1))
    if np.count_nonzero(down) + np.count_nonzero(along) < (down.size + along.size) / 2:
        return None
    vertical = down.max() >= along.max()
    largest = down if vertical else along
    first, second = (int(index) for index in np.unravel_index(np.argmax(largest), largest.shape))
    ends = [(first, second), (first + 1, second) if vertical else (first, second + 1)]
    # of the two, the one that all its neighbours are far from
    excess, (row, column) = max((_excess(field, *end), end) for end in ends)
    down[max(row - 1, 0) : row + 1, column] = 0.0
    along[row, max(column - 1, 0) : column + 1] = 0.0
    return row, column, excess, float(max(down.max(), along.max()))


def _excess(field: NDArray[Any], row: int, column: int) -> float:
    """How far a value is above all its neighbours, or below all of them; 0 if it is between."""
    around = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
    inside = [(i, j) for i, j in around if 0 <= i < field.shape[0] and 0 <= j < field.shape[1]]
    near = np.array([field[place] for place in inside], dtype=np.float64)
    near = near[~np.isnan(near)]
    if near.size < 2:
        return 0.0
    value = float(field[row, column])
    return max(value - float(near.max()), float(near.min()) - value, 0.0)
