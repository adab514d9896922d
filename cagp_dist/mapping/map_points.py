"""Where a map is wanted, in numbers alone."""

from dataclasses import dataclass

from cagp_dist.arrays import Array
from cagp_dist.gram.cell_means import CellMeans
from cagp_dist.latlon import LatLonGrid


@dataclass(frozen=True, eq=False)
class MapPoints:
    """Points of the unit sphere, or means over the cells around them."""

    X: Array  # (q, 3)
    grid: LatLonGrid | None = None  # the full-circle grid that the points are, row by row
    cells: CellMeans | None = None

    @property
    def wanted(self) -> Array | CellMeans:
        """Points (q, 3), or means."""
        return self.X if self.cells is None else self.cells
