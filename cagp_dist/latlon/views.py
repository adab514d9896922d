"""How points see a latitude-longitude grid: points that see it alike, up to rotation, share one solve."""

from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.geometry import degrees, unit_sphere
from cagp_dist.latlon.grid import LatLonGrid

SAME_DEGREES = 1e-9  # positions closer than this count as equal


@dataclass(frozen=True, eq=False)
class Views:
    """The distinct ways in which points see a grid, up to rotation by whole grid steps."""

    latitude_degrees: Array  # (v,): a point for each view, within a grid step east of the first longitude
    longitude_degrees: Array
    view: Indices  # (q,): view of each point
    steps: Indices  # (q,): its rotation to the east

    @classmethod
    def of(cls, points: Array, grid: LatLonGrid) -> "Views":
        """Find the views of points (q, 3) on the unit sphere."""
        latitude, longitude = degrees(points)
        spacing = 360.0 / grid.n_longitudes
        eastward = np.mod(longitude - grid.first_longitude_degrees, 360.0)
        steps = np.floor(eastward / spacing + SAME_DEGREES)
        offset = grid.first_longitude_degrees + np.maximum(eastward - steps * spacing, 0.0)
        pairs = np.stack([latitude, offset], axis=1)
        _, first, view = np.unique(
            np.round(pairs / SAME_DEGREES), axis=0, return_index=True, return_inverse=True
        )
        chosen = pairs[first]
        return cls(chosen[:, 0], chosen[:, 1], view.reshape(-1), steps.astype(np.intp))

    @property
    def points(self) -> Array:
        """The point of each view on the unit sphere, shape (v, 3)."""
        return unit_sphere(self.latitude_degrees, self.longitude_degrees)
