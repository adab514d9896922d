"""Observed points that lie on a latitude-longitude grid: which grid, where in it, and how much is missing."""

from dataclasses import replace

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.budget import GridSize
from cagp_dist.era5.canonical import FieldPoints
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import is_pole
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.grid_layout import Layout
from cagp_dist.latlon.window import place_longitudes
from cagp_dist.posterior.problem import grid_size
from cagp_dist.service.point_roles import Design
from cagp_dist.solvers import Solver

LEAST_FILLED = 0.5
"""Part of a grid that must be observed; with less, its points are better taken one by one."""

ELSEWHERE = "Use neighbours or cholesky, which take points anywhere."


def places_on_grid(solver: Solver, points: FieldPoints, design: Design) -> tuple[LatLonGrid, Indices] | None:
    """Grid and places of the observed points for a solver that needs them, else None; raises as `grid_of`."""
    return grid_of(points, design.train) if solver.needs_grid else None


def found_grid(points: FieldPoints, train: Indices) -> tuple[LatLonGrid, Indices] | None:
    """Find the grid of observed points as `grid_of`; None where they lie on none."""
    rows, columns = (np.unique(each[train]) for each in (points.latitude_degrees, points.longitude_degrees))
    if train.size < LEAST_FILLED * rows.size * columns.size:  # a grid has as many of both, or more
        return None
    try:
        return grid_of(points, train)
    except ArgumentError:
        return None


def grid_of(points: FieldPoints, train: Indices) -> tuple[LatLonGrid, Indices]:
    """Find the grid of observed points, and the place of each in it; a pole is in column 0.

    The grid is a full circle; points of a region fill a part of it (`cagp_dist.latlon.window`).
    """
    latitude, longitude = points.latitude_degrees[train], points.longitude_degrees[train]
    pole = is_pole(latitude)
    if pole.all():
        raise ArgumentError(f"all points are poles, which lie on no grid of longitudes. {ELSEWHERE}")
    rows, row = np.unique(latitude, return_inverse=True)
    try:
        grid, column, width = _circle(rows, longitude[~pole])
    except ArgumentError as error:
        raise ArgumentError(
            f"the {train.size:,} observed points lie on no full-circle latitude-longitude grid: {error} "
            f"{ELSEWHERE}"
        ) from error
    if train.size < LEAST_FILLED * rows.size * width:
        raise ArgumentError(
            f"the {train.size:,} observed points fill {train.size / (rows.size * width):.0%} of a grid of "
            f"{rows.size} x {width}; Rings needs most of it. Observe all of the grid (in a "
            'job: train = { kind = "all" }) or every k-th row and column (kind = "stride"). ' + ELSEWHERE
        )
    index = row.reshape(-1) * grid.n_longitudes
    index[~pole] += column
    if np.unique(index).size < index.size:
        raise ArgumentError(f"two observed points are at one place of the grid; drop one. {ELSEWHERE}")
    return grid, index


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


def size_of_grid(
    places: tuple[LatLonGrid, Indices], there: Mask, targets: Array | LinearFunctionals | None = None
) -> GridSize:
    """Size of the grid that a solver works on, where some of the points (n,) were observed.

    With targets on the unit sphere (q, 3) it says how many of them are points of the grid.
    """
    grid, index = places
    observed = np.zeros(grid.size, dtype=bool)
    observed[index[there]] = True
    observed = observed.reshape(grid.shape)
    rows = np.asarray(observed.any(axis=1))
    kept = grid.of_rows(rows)
    size = grid_size(Layout.of(kept, observed[rows]))
    if not isinstance(targets, np.ndarray):
        return size
    return replace(size, target_places=int(np.count_nonzero(kept.places(targets) >= 0)))
