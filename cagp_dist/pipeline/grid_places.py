"""Points that lie on a latitude-longitude grid: which grid, where in it, and how much of it is there."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.budget import GridSize
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import is_pole
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.grid_layout import Layout
from cagp_dist.latlon.window import place_longitudes
from cagp_dist.pipeline.defaults import LEAST_FILLED
from cagp_dist.posterior.problem import grid_size
from cagp_dist.remedies import Remedy


class GridPlaces(NamedTuple):
    """A full-circle grid, of which points of a region fill a part, and the place of each point (n,) in it."""

    grid: LatLonGrid
    positions: Indices

    def at(self, chosen: Indices | Mask) -> "GridPlaces":
        """Places of some of the points."""
        return GridPlaces(self.grid, self.positions[chosen])

    def fields(self, columns: Array, chosen: Indices | slice = slice(None)) -> Array:
        """Values (T, n) of chosen points as fields (T, P, Q), NaN elsewhere."""
        found = np.full((len(columns), self.grid.size), np.nan)
        found[:, self.positions[chosen]] = columns
        return found.reshape(-1, *self.grid.shape)

    def noise(self, noise_variance: Array, chosen: Indices | slice = slice(None)) -> Array:
        """Noise (n,) of chosen points on the grid, (P, Q); what stands elsewhere is not used."""
        found = np.full(self.grid.size, noise_variance.mean())
        found[self.positions[chosen]] = noise_variance
        return found.reshape(self.grid.shape)

    def mask(self, chosen: Indices | Mask | slice = slice(None)) -> Mask:
        """Which points of the grid the chosen ones are, shape (P, Q)."""
        found = np.zeros(self.grid.size, dtype=bool)
        found[self.positions[chosen]] = True
        return found.reshape(self.grid.shape)

    def even(self, noise_variance: Array) -> bool:
        """Whether the noise (n,) of the points is the same along each latitude."""
        row = self.positions // self.grid.n_longitudes
        first = np.unique(row, return_index=True, return_inverse=True)
        return bool((noise_variance[first[1]][first[2]] == noise_variance).all())

    def like(self, other: LatLonGrid | None) -> "GridPlaces":
        """Give the places in another grid, if that has the same points in an order of its own."""
        if other is None or other.size != self.grid.size:
            return self
        found = other.places(self.grid.points)
        return self if (found < 0).any() else GridPlaces(other, found[self.positions])

    def size(self, there: Mask, targets: Array | LinearFunctionals | LatLonGrid | None = None) -> GridSize:
        """Size of the grid that a solver works on; targets (q, 3) that are points of it are counted."""
        observed = self.mask(there)
        rows = np.asarray(observed.any(axis=1))
        kept = self.grid.of_rows(rows)
        size = grid_size(
            Layout.of(kept, observed[rows]), targets if isinstance(targets, LatLonGrid) else None
        )
        if not isinstance(targets, np.ndarray):
            return size
        return replace(size, target_places=int(np.count_nonzero(kept.places(targets) >= 0)))


def grid_of_points(latitude_degrees: Array, longitude_degrees: Array) -> GridPlaces:
    """Find the grid that points (n,) are most of, in any order; a pole is in column 0."""
    n, pole = latitude_degrees.size, is_pole(latitude_degrees)
    if pole.all():
        raise no_rings("all observed points are poles, which lie on no grid of longitudes.")
    rows, row = np.unique(latitude_degrees, return_inverse=True)
    try:
        grid, column, width = _circle(rows, longitude_degrees[~pole])
    except ArgumentError as error:
        raise no_rings(
            f"the {n:,} observed points lie on no full-circle latitude-longitude grid: {error}"
        ) from error
    if n < LEAST_FILLED * rows.size * width:
        raise no_rings(
            f"the {n:,} observed points fill {n / (rows.size * width):.0%} of a grid of {rows.size} x "
            f"{width}; Rings needs most of one: all of it, or every k-th row and column."
        )
    index = row.reshape(-1) * grid.n_longitudes
    index[~pole] += column
    if np.unique(index).size < index.size:
        raise no_rings("two observed points are at one place of the grid.")
    return GridPlaces(grid, index)


def no_rings(text: str) -> ArgumentError:
    """Say why rings do not solve some points, and what does."""
    return ArgumentError(text, key="no-rings", remedies=(Remedy.NEIGHBOURS,))


def grid_if_any(latitude_degrees: Array, longitude_degrees: Array) -> GridPlaces | None:
    """Find the grid of points (n,) as `grid_of_points`; None where they lie on none."""
    rows, columns = np.unique(latitude_degrees), np.unique(longitude_degrees)
    if latitude_degrees.size < LEAST_FILLED * rows.size * columns.size:  # a grid has as many of both, or more
        return None
    try:
        return grid_of_points(latitude_degrees, longitude_degrees)
    except ArgumentError:
        return None


def _circle(latitude: Array, longitude: Array) -> tuple[LatLonGrid, Indices, int]:
    """Grid of these rows on which longitudes lie, the column of each, and how many columns they span."""
    columns = np.unique(longitude)
    try:
        grid = LatLonGrid.from_axes(latitude, columns)
    except ArgumentError:  # a part of the circle
        n_longitudes, first, column = place_longitudes(longitude)
        grid = LatLonGrid(latitude, n_longitudes, first_longitude_degrees=first)
        return grid, column, int(column.max()) + 1
    return grid, np.searchsorted(columns, longitude) % columns.size, columns.size
