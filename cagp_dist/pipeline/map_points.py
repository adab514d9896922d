"""Where a map is wanted, in numbers alone."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.geometry import beside_hours
from cagp_dist.gram.cell_means import CellMeans
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import part
from cagp_dist.latlon import LatLonGrid


@dataclass(frozen=True, eq=False)
class MapPoints:
    """Points of sphere or plane, or means over the cells around them; at hours, if these are a coordinate."""

    X: Array  # (q, 3), of a plane (q, 2), or (q, 4) in space and time
    grid: LatLonGrid | None = None  # the full-circle grid that the points are, row by row
    cells: LinearFunctionals | None = None

    @property
    def wanted(self) -> Array | LinearFunctionals:
        """Points, or means."""
        return self.X if self.cells is None else self.cells

    def at_hours(self, hours: Array) -> "MapPoints":
        """Give all of them at each hour (A,), hour after hour."""
        cells = self.cells
        if cells is not None:
            weights, counts = (np.tile(each, hours.size) for each in (cells.weights, cells.counts))
            nodes = np.tile(cells.places, (hours.size, 1))
            cells = CellMeans(beside_hours(nodes, np.repeat(hours, len(cells.places))), weights, counts)
        X = beside_hours(np.tile(self.X, (hours.size, 1)), np.repeat(hours, len(self.X)))
        return MapPoints(X, cells=cells)

    def part(self, chosen: Indices) -> Self:
        """Take some of the points."""
        cells = None if self.cells is None else part(self.cells, chosen)
        assert cells is None or isinstance(cells, LinearFunctionals)
        return type(self)(self.X[chosen], cells=cells)
