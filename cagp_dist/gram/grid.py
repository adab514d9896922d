"""Regular latitude-longitude grids: rings of equispaced points, one ring per latitude."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.checks import as_numbers, check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import area_weights, unit_sphere
from cagp_dist.gram.base import Array

NEAREST_DEGREES = 1e-9
"""Latitudes closer than this are taken for one latitude; mirror images may be this far from exact."""


@dataclass(frozen=True, eq=False)
class LatLonGrid:
    """A full-circle grid: any P latitudes, each with Q equispaced longitudes from longitude zero.

    Fields on it are arrays (P, Q), a row for each latitude in the order given.

    Parameters
    ----------
    latitude_degrees : array_like, shape (P,)
        Strictly ascending or descending, any spacing (regular, Gaussian, with or without poles).
    n_longitudes : int
        Points of a ring, Q, at longitudes ``360 s / Q`` degrees, s = 0 .. Q - 1.

    Raises
    ------
    ArgumentError
        If latitudes repeat, are out of order or outside -90..90, or Q is below 1.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> grid = cagp.LatLonGrid(np.linspace(-90.0, 90.0, 181), 360)
    >>> grid.shape, grid.size, grid.mirrored
    ((181, 360), 65160, True)
    """

    latitude_degrees: Array = field()
    n_longitudes: int

    def __init__(self, latitude_degrees: ArrayLike, n_longitudes: int) -> None:
        latitude = as_numbers("latitude_degrees", latitude_degrees)
        if latitude.ndim != 1 or latitude.size == 0:
            raise ArgumentError(
                f"latitude_degrees has shape {latitude.shape}; expected (P,), one entry for each ring. "
                "Give the latitude axis of the grid, not the latitude of every point."
            )
        check_count("n_longitudes", n_longitudes, least=1)
        area_weights(latitude)  # finite, and within -90..90
        steps = np.diff(latitude)
        if steps.size and np.abs(steps).min() < NEAREST_DEGREES:
            where = int(np.abs(steps).argmin())
            raise ArgumentError(
                f"latitude {latitude[where]:g} is there twice (rows {where} and {where + 1}); a ring may "
                "appear once. Drop or average one of the rows."
            )
        if steps.size and not ((steps > 0.0).all() or (steps < 0.0).all()):
            raise ArgumentError(
                "latitude_degrees goes up and down; expected ascending or descending. Sort the rows of the "
                "field by latitude, or use cagp_dist.condition, which takes points in any order."
            )
        latitude = latitude.copy()
        latitude.flags.writeable = False
        object.__setattr__(self, "latitude_degrees", latitude)
        object.__setattr__(self, "n_longitudes", int(n_longitudes))

    @property
    def shape(self) -> tuple[int, int]:
        """(P, Q)."""
        return self.latitude_degrees.size, self.n_longitudes

    @property
    def size(self) -> int:
        """Number of points, P Q."""
        return self.latitude_degrees.size * self.n_longitudes

    @property
    def longitude_degrees(self) -> Array:
        """Longitudes of every ring, shape (Q,), in [0, 360)."""
        return np.arange(self.n_longitudes, dtype=np.float64) * (360.0 / self.n_longitudes)

    @cached_property
    def mirrored(self) -> bool:
        """Whether every latitude has its mirror image beyond the equator."""
        latitude = self.latitude_degrees
        return bool(np.abs(latitude + latitude[::-1]).max() < NEAREST_DEGREES)

    @property
    def points(self) -> Array:
        """Points on the unit sphere, latitude by latitude, shape (P Q, 3)."""
        latitude = np.repeat(self.latitude_degrees, self.n_longitudes)
        return unit_sphere(latitude, np.tile(self.longitude_degrees, self.latitude_degrees.size))

    @property
    def area_weights(self) -> Array:
        """Weights proportional to cell areas, mean 1, shape (P, Q)."""
        return np.repeat(area_weights(self.latitude_degrees)[:, None], self.n_longitudes, axis=1)


def as_fields(name: str, values: ArrayLike, grid: LatLonGrid) -> tuple[Array, Callable[[Array], Array]]:
    """Fields (T, P, Q) of what was given, and a function that gives results the shape of what was given.

    Raises
    ------
    ArgumentError
        If the shape is neither (P, Q), (T, P, Q), (n,) nor (n, r), or a value is not finite.
    """
    given = as_numbers(name, values)
    if given.ndim == 3 and given.shape[1:] == grid.shape:
        fields = given
    elif given.shape in (grid.shape, (grid.size,)):
        fields = given.reshape(1, *grid.shape)
    elif given.ndim == 2 and len(given) == grid.size:
        fields = given.T.reshape(-1, *grid.shape)
        if np.isfinite(fields).all():
            return fields, lambda result: np.ascontiguousarray(result.reshape(-1, grid.size).T)
    else:
        raise ArgumentError(
            f"{name} has shape {given.shape}; expected {grid.shape} (latitude, longitude), a stack of such "
            f"fields (T, {grid.shape[0]}, {grid.shape[1]}), or columns ({grid.size},) or ({grid.size}, r)."
        )
    if not np.isfinite(fields).all():
        missing = int((~np.isfinite(fields)).sum())
        raise ArgumentError(
            f"{name} holds {missing} values that are NaN or infinite; a whole grid is needed. With missing "
            "points use cagp_dist.MaskedRings."
        )
    return fields, lambda result: result.reshape(given.shape)
