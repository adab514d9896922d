"""Land, sea, and what is too near to a coastline of 1:110 million to tell.

Small islands are not drawn, and of lakes the Caspian Sea alone.
"""

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.cartography.frame import lines_degrees
from cagp_dist.geometry import chord_of_kilometres, unit_sphere

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

NEAR_KILOMETRES = 50.0  # the drawn coastlines are that uncertain

SURFACES = ("sea", "land", "coast")
_SEA, _LAND, _COAST = range(3)

_SPACING_KILOMETRES = 5.0


def surface_of(latitude_degrees: ArrayLike, longitude_degrees: ArrayLike) -> Indices:
    """Tell sea, land, and coast, which is within 50 km of a coastline, of places (n,)."""
    latitude = np.asarray(latitude_degrees, dtype=np.float64)
    longitude = np.asarray(longitude_degrees, dtype=np.float64)
    near = chord_of_kilometres(NEAR_KILOMETRES + 0.5 * _SPACING_KILOMETRES)
    distance, _ = _coast().query(unit_sphere(latitude, longitude), distance_upper_bound=near)
    surface = np.where(on_land(latitude, longitude), _LAND, _SEA)
    return np.where(np.isfinite(distance), _COAST, surface)


def on_land(latitude_degrees: Array, longitude_degrees: Array) -> Mask:
    """Whether each place (n,) is on land, by the drawn coastlines.

    Going north from land to the pole, which is sea, crosses an odd number of coastlines.
    """
    longitude = (longitude_degrees + 180.0) % 360.0 - 180.0
    longitude = np.where(longitude >= 180.0, -180.0, longitude)  # it may round up to a full turn
    start, end = _edges()
    west, east = (pick(start[:, 0], end[:, 0]) for pick in (np.minimum, np.maximum))
    land = np.zeros(longitude.size, dtype=bool)
    # degree by degree of longitude, so that a place is compared with the edges at its longitude alone
    order = np.argsort(longitude, kind="stable")
    bounds = np.searchsorted(longitude[order], np.arange(-180, 181))
    for degree, (first, last) in enumerate(pairwise(bounds), start=-180):
        if first == last:
            continue
        some = order[first:last]
        edges = (west < degree + 1) & (east >= degree)
        (x0, y0), (x1, y1) = start[edges].T, end[edges].T
        at = longitude[some, None]
        across = (np.minimum(x0, x1) <= at) & (at < np.maximum(x0, x1))
        share = (at - x0) / np.where(x1 == x0, 1.0, x1 - x0)
        north = y0 + share * (y1 - y0) > latitude_degrees[some, None]
        land[some] = np.count_nonzero(across & north, axis=1) % 2 == 1
    return land


@cache
def _edges() -> tuple[Array, Array]:
    """Longitude and latitude of both ends of the edges of all coastlines."""
    points = lines_degrees("coastline")
    there = np.isfinite(points[:-1, 0]) & np.isfinite(points[1:, 0])
    return points[:-1][there], points[1:][there]


@cache
def _coast() -> "cKDTree":
    """Points along all coastlines, 5 km apart or less, on the unit sphere."""
    from scipy.spatial import cKDTree

    start, end = (unit_sphere(edge[:, 1], edge[:, 0]) for edge in _edges())
    chord = np.linalg.norm(end - start, axis=1)
    pieces = np.ceil(chord / chord_of_kilometres(_SPACING_KILOMETRES)).astype(np.intp)
    edge = np.repeat(np.arange(pieces.size), pieces)
    share = (np.arange(edge.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)) / pieces[edge]
    along = start[edge] + share[:, None] * (end - start)[edge]
    return cKDTree(along / np.linalg.norm(along, axis=1, keepdims=True))
