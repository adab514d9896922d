"""Values at the cells of a map, interpolated to any points: bilinearly between centres, constant beyond."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.geometry import unit_sphere
from cagp_dist.kernels import Kernel
from cagp_dist.means import latitude_of

# How far beyond the outermost centres a map holds the field, in half cells: to the edge of its cells
_REACH = 1.0 + 1e-6


FEWEST_CELLS = 2  # Of a map, along each axis: what interpolation needs


class _Nodes(NamedTuple):
    """Four cells around each of n points, their indices and weights, and where they are, each (n, 4)."""

    cell: Indices
    weight: Array
    latitude_degrees: Array
    longitude_degrees: Array


@dataclass(frozen=True, eq=False)
class CellGrid:
    """Centres of the cells of a map."""

    # (P,) and (Q,) ascending, equally spaced, at least `FEWEST_CELLS` each; a full circle of longitudes is
    # closed
    latitude_degrees: Array
    longitude_degrees: Array  # (P,) and (Q,)

    @property
    def size(self) -> int:
        """Number of cells, P Q."""
        return self.latitude_degrees.size * self.longitude_degrees.size

    @property
    def _full_circle(self) -> bool:
        columns = self.longitude_degrees
        return bool(columns[-1] - columns[0] + 1.5 * _side(columns) > 360.0)

    def outside(self, latitude_degrees: Array, longitude_degrees: Array) -> Mask:
        """Which points (n,) are in no cell."""
        rows, columns = self.latitude_degrees, self.longitude_degrees
        half_row, half_column = (0.5 * _REACH * _side(axis) for axis in (rows, columns))
        outside = (latitude_degrees < rows[0] - half_row) | (latitude_degrees > rows[-1] + half_row)
        if not self._full_circle:
            middle = 0.5 * (columns[0] + columns[-1])
            reach = 0.5 * (columns[-1] - columns[0]) + half_column
            outside |= np.abs(_around(longitude_degrees, middle) - middle) > reach
        return np.asarray(outside)

    def at(self, X: Array, values: Array) -> Array:
        """Interpolate values (P Q, N) of the cells to unit vectors X (n, 3), shape (n, N)."""
        nodes = self._nodes(X)
        found = np.zeros((len(X), values.shape[1]))
        for k in range(4):
            found += nodes.weight[:, k, None] * values[nodes.cell[:, k]]
        return found

    def missed(self, X: Array, kernel: Kernel) -> Array:
        """Variance (n,) missed at X: ``k(x, x) - 2 w' k(C, x) + w' k(C, C) w``, cells C of weights w."""
        nodes = self._nodes(X)
        cells = unit_sphere(nodes.latitude_degrees.ravel(), nodes.longitude_degrees.ravel()).reshape(-1, 4, 3)
        together = np.concatenate([X[:, None, :], cells], axis=1)
        signed = np.concatenate([np.ones((len(X), 1)), -nodes.weight], axis=1)
        found = np.zeros(len(X))
        for i in range(5):
            for j in range(5):
                distance = np.linalg.norm(together[:, i] - together[:, j], axis=1)
                found += signed[:, i] * signed[:, j] * kernel([[0.0]], distance[:, None])[0]
        return np.maximum(found, 0.0)  # rounding may leave less than nothing where a point is a cell

    def _nodes(self, X: Array) -> _Nodes:
        rows, columns = self.latitude_degrees, self.longitude_degrees
        longitude = np.rad2deg(np.arctan2(X[:, 1], X[:, 0]))
        row, up = _between(rows, latitude_of(X))
        axis, middle = columns, 0.5 * (columns[0] + columns[-1])
        if self._full_circle:
            axis, middle = np.append(columns, columns[0] + 360.0), columns[0] + 180.0
        column, east = _between(axis, _around(longitude, middle))
        upper, right = row + 1, (column + 1) % columns.size
        index = np.stack([at * columns.size + to for at in (row, upper) for to in (column, right)], axis=1)
        weight = np.stack([n * e for n in (1.0 - up, up) for e in (1.0 - east, east)], axis=1)
        at_row, at_column = np.divmod(index, columns.size)
        return _Nodes(index, weight, rows[at_row], columns[at_column])


def _side(axis: Array) -> float:
    """Give the side of a cell."""
    return float(axis[1] - axis[0])


def _around(longitude_degrees: Array, middle: float) -> Array:
    """Longitudes within half a circle of a meridian."""
    return np.asarray(middle + np.mod(longitude_degrees - middle + 180.0, 360.0) - 180.0)


def _between(axis: Array, values: Array) -> tuple[Indices, Array]:
    """Find the interval of an ascending axis that values are in, and how far into it they are, 0 to 1."""
    left = np.clip(np.searchsorted(axis, values, side="right") - 1, 0, axis.size - 2)
    return left, np.clip((values - axis[left]) / (axis[left + 1] - axis[left]), 0.0, 1.0)
