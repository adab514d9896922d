"""Where a map is wanted, in numbers alone."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.gram.cell_means import CellMeans
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import part
from cagp_dist.latlon import LatLonGrid


@dataclass(frozen=True, eq=False)
class MapPoints:
    """Points of the unit sphere, or means over the cells around them; at hours, if these are a coordinate."""

    X: Array  # (q, 3), or (q, 4) in space and time
    grid: LatLonGrid | None = None  # the full-circle grid that the points are, row by row
    cells: LinearFunctionals | None = None

    @property
    def wanted(self) -> Array | LinearFunctionals:
        """Points (q, 3), or means."""
        return self.X if self.cells is None else self.cells

    def at_hours(self, hours: Array) -> "MapPoints":
        """Give all of them at each hour (A,), hour after hour."""
        cells = self.cells
        if cells is not None:
            nodes, weights, counts = (
                np.tile(each, (hours.size, *[1] * (each.ndim - 1)))
                for each in (cells.places, cells.weights, cells.counts)
            )
            nodes = np.column_stack([nodes, np.repeat(hours, len(cells.places))])
            cells = CellMeans(nodes, weights, counts)
        X = np.column_stack([np.tile(self.X, (hours.size, 1)), np.repeat(hours, len(self.X))])
        return MapPoints(X, cells=cells)

    def part(self, chosen: Indices) -> Self:
        """Take some of the points."""
        cells = None if self.cells is None else part(self.cells, chosen)
        assert cells is None or isinstance(cells, LinearFunctionals)
        return type(self)(self.X[chosen], cells=cells)
