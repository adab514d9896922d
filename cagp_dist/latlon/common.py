"""One full-circle grid on which several sets of points lie: an exact draw of a field there is one at them."""

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import degrees, is_pole
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.window import place_longitudes

NEAR_DEGREES = 1e-6
"""How far a point may lie from its place on the grid: a tenth of a metre on the ground."""

MOST_POINTS = 2**22
"""Points of a common grid, at most."""


def common_grid(*places: Array) -> tuple[LatLonGrid, list[Indices]] | None:
    """Find the grid that all points of some sets (n, p) are points of, and where they are on it."""
    X = np.concatenate(places)
    if X.shape[1] != 3 or not np.allclose(np.einsum("ij,ij->i", X, X), 1.0, rtol=0.0, atol=1e-9):
        return None
    latitude, longitude = degrees(X)
    rows, row = np.unique(np.rint(latitude / NEAR_DEGREES), return_inverse=True)
    pole = is_pole(latitude)
    try:
        n_longitudes, first, column = _circle(longitude[~pole])
        if rows.size * n_longitudes > MOST_POINTS:
            return None
        grid = LatLonGrid(
            np.clip(rows * NEAR_DEGREES, -90.0, 90.0), n_longitudes, first_longitude_degrees=first
        )
    except ArgumentError:
        return None
    index = row.reshape(-1) * n_longitudes
    index[~pole] += column
    off = np.abs(np.mod(longitude - grid.longitude_degrees[index % n_longitudes] + 180.0, 360.0) - 180.0)
    if off[~pole].max(initial=0.0) > NEAR_DEGREES:
        return None
    ends = np.cumsum([len(part) for part in places])[:-1]
    return grid, [np.asarray(part, dtype=np.intp) for part in np.split(index, ends)]


def _circle(longitude: Array) -> tuple[int, float, Indices]:
    """Give the circle of equispaced longitudes; of no points at all, one."""
    if longitude.size == 0:
        return 1, 0.0, np.arange(0)
    return place_longitudes(longitude)
