"""Cells of maps, between lines of latitude and longitude, or of y and x."""

from dataclasses import dataclass, replace

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.cell_means import MOST_CELLS, CellMeans, means_between, nodes_per_side
from cagp_dist.space import SPHERE, Region, Space

NEARER = 1e-6  # Points whose distances differ by less, relatively, are equally near


@dataclass(frozen=True, eq=False)
class MapCells:
    """Cells of a map by their centres, and by their edges where means over them are wanted."""

    north: Array  # (rows,)
    east: Array  # (columns,)
    # (rows, columns) cells that are predicted; the others stay blank. None for all of them.
    shown: Mask | None = None
    # (2, rows) of north and (2, columns) of east; None where the field at the centres is wanted
    edges: tuple[Array, Array] | None = None
    space: Space = SPHERE

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.north.size, self.east.size

    @property
    def size(self) -> int:
        """Number of cells that are predicted."""
        rows, columns = self.shape
        return rows * columns if self.shown is None else int(np.count_nonzero(self.shown))

    @property
    def blank(self) -> int:
        """Number of cells that are not."""
        rows, columns = self.shape
        return rows * columns - self.size

    def points(self) -> tuple[Array, Array]:
        """North and east of every predicted cell, east running fastest, each (size,)."""
        rows, columns = self.index
        return self.north[rows], self.east[columns]

    @property
    def X(self) -> Array:
        """Positions of the centres of the predicted cells, (size, p)."""
        return self.space.positions(*self.points())

    @property
    def index(self) -> tuple[Indices, Indices]:
        """Row and column of every predicted cell, each (size,)."""
        rows, columns = np.nonzero(np.ones(self.shape, dtype=bool) if self.shown is None else self.shown)
        return rows, columns

    def nodes_per_side(self, spacing: float) -> int:
        """Nodes along a side of a cell whose mean is wanted; 0 where the field at the centre is."""
        if self.edges is None:
            return 0
        return nodes_per_side(max(float(np.ptp(each, axis=0).max()) for each in self.edges), spacing)

    def corners(self) -> tuple[Array, Array]:
        """North and east of where the field is wanted: centres, or corners of cells."""
        if self.edges is None:
            return self.points()
        rows, columns = self.index
        (south, north), (west, east) = self.edges[0][:, rows], self.edges[1][:, columns]
        return np.concatenate([south, south, north, north]), np.concatenate([west, east, west, east])

    def inputs(self, spacing: float) -> Array | CellMeans:
        """Predicted cells: positions of their centres (size, p), or means where these are wanted."""
        return self.X if self.edges is None else self.means(*self.index, spacing)

    def means(self, rows: Indices, columns: Indices, spacing: float) -> CellMeans:
        """Means over cells in some rows and columns (q,), for observations so far from each other."""
        assert self.edges is not None
        north, east = self.edges[0][:, rows], self.edges[1][:, columns]
        return means_between(self.space, north, east, nodes_per_side=self.nodes_per_side(spacing))

    def fields(self, values: Array) -> Array:
        """Values of the predicted cells (T, size) as fields (T, rows, columns), NaN where they are blank."""
        if self.shown is None:
            return values.reshape(-1, *self.shape)
        fields = np.full((len(values), *self.shape), np.nan)
        fields[:, self.shown] = values
        return fields

    def only(self, kept: Mask) -> "MapCells":
        """Leave blank those of the predicted cells (size,) that are not kept."""
        if kept.all():
            return self
        shown = np.ones(self.shape, dtype=bool) if self.shown is None else self.shown.copy()
        shown[shown] = kept
        return replace(self, shown=shown)

    def observed(self, X: Array, missing: Array) -> "MapCells":
        """Leave blank the cells that are nearest to a missing place (m, 2), and half a row from points X."""
        from scipy.spatial import cKDTree

        if not len(missing):
            return self
        there = np.asarray(cKDTree(X).query(self.X)[0])
        absent = np.asarray(cKDTree(self.space.positions(*missing.T)).query(self.X)[0])
        rows = np.diff(self.north)
        within = self.space.of_unit(0.5 * float(rows.min()) if rows.size else 0.0)
        return self.only(there <= np.maximum(absent * (1.0 + NEARER), within))


def tiled(region: Region, step: float, space: Space = SPHERE, *, means: bool = False) -> MapCells:
    """Cells of about a size that fill a region, north, west, south and east; their means, or centres."""
    north, west, south, east = region
    rows, columns = ((end - start) / step for start, end in ((south, north), (west, east)))
    if max(rows, 1.0) * max(columns, 1.0) > MOST_CELLS:
        raise ArgumentError(
            f"the map has {rows:.3g} x {columns:.3g} cells of {step:g} {space.unit or space.what}; expected "
            f"{MOST_CELLS:,} at most. Take a coarser resolution or a smaller region.",
            key="too-many-cells",
        )
    (upward, bands), (across, strips) = _axis(south, north, step), _axis(west, east, step)
    return MapCells(upward, across, edges=(bands, strips) if means else None, space=space)


def _axis(start: float, stop: float, step: float) -> tuple[Array, Array]:
    """Centres (n,) of the cells between two ends, and their edges (2, n)."""
    ends = np.linspace(start, stop, max(1, round((stop - start) / step)) + 1)
    return np.round(0.5 * (ends[:-1] + ends[1:]), 9), np.stack([ends[:-1], ends[1:]])
