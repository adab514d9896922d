"""Which points of a latitude-longitude grid were observed, and how other points see it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import degrees, is_pole, unit_sphere
from cagp_dist.latlon.grid import LatLonGrid


@dataclass(frozen=True, eq=False)
class Layout:
    """Observed points of a grid, latitude by latitude.

    A pole of which one copy was observed is one observation; on the whole grid it becomes a complete row of
    equal values, each with Q times the noise: the same information (`spread`, `summed`, `row_noise`).
    """

    grid: LatLonGrid  # All points
    observed: Mask  # (P, Q): which of them were observed; read-only

    @classmethod
    def of(cls, grid: LatLonGrid, observed: ArrayLike) -> "Layout":
        """Check a mask; `ArgumentError` if it is not a boolean mask of the grid or is False everywhere."""
        mask = np.asarray(observed)
        if mask.dtype != np.bool_ or mask.shape != grid.shape:
            raise ArgumentError(
                f"observed has shape {mask.shape} and type {mask.dtype}; expected {grid.shape} of "
                "bool, True where a point is observed. From a field with NaN: numpy.isfinite(field).",
                key="shapes",
            )
        if not mask.any():
            raise ArgumentError(
                "observed is False everywhere: nothing was observed; expected at least one point.",
                key="nothing-observed",
            )
        mask = mask.copy()
        mask.flags.writeable = False
        return cls(grid, mask)

    @cached_property
    def index(self) -> Indices:
        """Index of each observed point in the flattened grid, shape (n,)."""
        return np.flatnonzero(self.observed)

    @cached_property
    def poles(self) -> Indices:
        """Pole rows of which one copy was observed."""
        single = self.observed.sum(axis=1) == 1
        return np.flatnonzero(is_pole(self.grid.latitude_degrees) & single)

    @cached_property
    def missing(self) -> Mask:
        """Points of the grid that were not observed, shape (P, Q), without copies of an observed pole."""
        missing = ~self.observed
        missing[self.poles] = False
        return missing

    def row_noise(self, noise_by_latitude: Array) -> Array:
        """Noise variance of the points of each row (P,) when poles are complete rows."""
        noise = noise_by_latitude.copy()
        noise[self.poles] *= self.grid.n_longitudes
        return noise

    def embed(self, values: Array) -> Array:
        """Rows of values (r, n) as fields (r, P, Q), zero where nothing was observed."""
        fields = np.zeros((len(values), self.grid.size))
        fields[:, self.index] = values
        return fields.reshape(-1, *self.grid.shape)

    def spread(self, values: Array) -> Array:
        """Rows of observations (r, n) as fields (r, P, Q), a pole repeated along its row."""
        fields = self.embed(values)
        for row in self.poles:
            fields[:, row] = fields[:, row].sum(axis=1)[:, None]
        return fields

    def restrict(self, fields: Array) -> Array:
        """Values of fields (r, P, Q) at the observed points, rows (r, n)."""
        return np.ascontiguousarray(fields.reshape(-1, self.grid.size)[:, self.index])

    def summed(self, fields: Array) -> Array:
        """Weights (r, P, Q) of the points of the grid as weights (r, n): the adjoint of `spread`."""
        values = fields.copy()
        for row in self.poles:
            values[:, row] = fields[:, row].sum(axis=1)[:, None]
        return self.restrict(values)


VIEW_ROUNDING = 1e-9  # of positions in degrees, of which equal ones are one view, and of grid steps


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
        steps = np.floor(eastward / spacing + VIEW_ROUNDING)
        offset = grid.first_longitude_degrees + np.maximum(eastward - steps * spacing, 0.0)
        pairs = np.stack([latitude, offset], axis=1)
        _, first, view = np.unique(
            np.round(pairs / VIEW_ROUNDING), axis=0, return_index=True, return_inverse=True
        )
        chosen = pairs[first]
        return cls(chosen[:, 0], chosen[:, 1], view.reshape(-1), steps.astype(np.intp))

    @property
    def points(self) -> Array:
        """The point of each view on the unit sphere, shape (v, 3)."""
        return unit_sphere(self.latitude_degrees, self.longitude_degrees)
