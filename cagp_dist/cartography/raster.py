"""Values of a latitude-longitude grid at the pixels of a map."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array
from cagp_dist.geometry import widest_gap

ROUNDING_DEGREES = 1e-6


class GridAxes(Protocol):
    """The axes of a latitude-longitude grid, in degrees, in any order and convention."""

    @property
    def longitude_degrees(self) -> Array: ...

    @property
    def latitude_degrees(self) -> Array: ...


def resample(
    grid: GridAxes, values: Array, longitude_degrees: Array, latitude_degrees: Array, *, around: bool = True
) -> Array:
    """Bilinear values of a grid (P, Q) at any points; constant for half a cell beyond its edge, then NaN.

    With ``around=False`` these are x and y of a plane, which do not go round.
    Where cells are blank (NaN), the average of the others, as far as half of the weight is on them.
    """
    known = np.isfinite(values)
    if not known.all():
        weight = resample(grid, known.astype(np.float64), longitude_degrees, latitude_degrees, around=around)
        total = resample(
            grid, np.where(known, values, 0.0), longitude_degrees, latitude_degrees, around=around
        )
        there = weight >= 0.5
        return np.where(there, total / np.where(there, weight, 1.0), np.nan)
    rows, north = np.argsort(grid.latitude_degrees), np.sort(grid.latitude_degrees)
    # Unroll the longitudes from the far side of the widest gap, which is where a region has its west edge.
    west, gap = (
        widest_gap(grid.longitude_degrees) if around else (float(grid.longitude_degrees.min()), np.inf)
    )
    turn = 360.0 if around else np.inf
    offsets = (grid.longitude_degrees - west) % turn
    columns, east = np.argsort(offsets), np.sort(offsets)
    table = values[np.ix_(rows, columns)]
    x_half, y_half = half_cell(grid.longitude_degrees), half_cell(grid.latitude_degrees)
    if gap < 3.0 * x_half:  # all the way round: the first column again at the end
        east, table = np.append(east, 360.0), np.concatenate([table, table[:, :1]], axis=1)

    x = longitude_degrees - west
    if around:
        x = (x + x_half) % 360.0 - x_half
    if around and east[-1] >= 360.0:
        x = x % 360.0
    j, v = _cell(east, x)
    i, u = _cell(north, latitude_degrees)
    upper = (1.0 - v) * table[i, j] + v * table[i, np.minimum(j + 1, len(east) - 1)]
    i = np.minimum(i + 1, len(north) - 1)
    lower = (1.0 - v) * table[i, j] + v * table[i, np.minimum(j + 1, len(east) - 1)]
    inside = (
        (latitude_degrees >= north[0] - y_half - ROUNDING_DEGREES)
        & (latitude_degrees <= north[-1] + y_half + ROUNDING_DEGREES)
        & (x >= -x_half - ROUNDING_DEGREES)
        & (x <= east[-1] + x_half + ROUNDING_DEGREES)
    )
    return np.where(inside, (1.0 - u) * upper + u * lower, np.nan)


def half_cell(axis_degrees: Array) -> float:
    """Half the smallest spacing of an axis of a grid; half a degree if it has one value."""
    spacing = np.diff(np.sort(axis_degrees))
    return 0.5 * float(spacing.min()) if spacing.size else 0.5


def _cell(nodes: Array, positions: Array) -> tuple[NDArray[np.intp], Array]:
    """Index of the node at or before each position, and the fraction of the way to the next, in [0, 1]."""
    known = np.clip(np.nan_to_num(positions, nan=nodes[0]), nodes[0], nodes[-1])
    index = np.clip(np.searchsorted(nodes, known, side="right") - 1, 0, max(len(nodes) - 2, 0))
    width = nodes[np.minimum(index + 1, len(nodes) - 1)] - nodes[index]
    return index, np.where(width > 0.0, (known - nodes[index]) / np.where(width > 0.0, width, 1.0), 0.0)
