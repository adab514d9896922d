"""Regular latitude-longitude grids: rings of equispaced points, one ring per latitude."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.checks import as_numbers, check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import SAME_DEGREES, area_weights, degrees, is_pole, unit_sphere

NEAREST_DEGREES = 1e-9  # latitudes closer than this count as equal
MIRRORED_DEGREES = 1e-12  # tolerance for mirror images: the rounding of an axis, without effect on the result
NEAREST_LONGITUDE_DEGREES = 3e-5  # tolerance for equispaced longitudes: the rounding of float32 degrees


@dataclass(frozen=True, eq=False)
class LatLonGrid:
    """A full-circle grid: any P latitudes, each with the same Q equispaced longitudes.

    Fields on it are arrays (P, Q), a row for each latitude in the order given.

    Parameters
    ----------
    latitude_degrees : array_like, shape (P,)
        Strictly ascending or descending, any spacing (regular, Gaussian, with or without poles).
    n_longitudes : int
        Points of a ring, Q.
    first_longitude_degrees : float
        Longitude of the first column; the others follow ``360 / Q`` degrees apart, eastward.

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

    latitude_degrees: Array
    n_longitudes: int
    first_longitude_degrees: float

    def __init__(
        self, latitude_degrees: ArrayLike, n_longitudes: int, *, first_longitude_degrees: float = 0.0
    ) -> None:
        latitude = as_numbers("latitude_degrees", latitude_degrees)
        if latitude.ndim != 1 or latitude.size == 0:
            raise ArgumentError(
                f"latitude_degrees has shape {latitude.shape}; expected (P,), one entry for each ring. "
                "Give the latitude axis of the grid, not the latitude of every point.",
                key="shapes",
            )
        check_count("n_longitudes", n_longitudes, least=1)
        area_weights(latitude)  # finite, and within -90..90
        first = as_numbers("first_longitude_degrees", first_longitude_degrees)
        if first.shape != () or not np.isfinite(first):
            raise ArgumentError(
                f"first_longitude_degrees is {first_longitude_degrees!r}; expected a finite "
                "number of degrees.",
                key="not-finite",
            )
        steps = np.diff(latitude)
        if steps.size and np.abs(steps).min() < NEAREST_DEGREES:
            where = int(np.abs(steps).argmin())
            raise ArgumentError(
                f"latitude {latitude[where]:g} appears twice (rows {where} and {where + 1}); a ring may "
                "appear once. Drop or average one of the rows.",
                key="latitude-twice",
            )
        if steps.size and not ((steps > 0.0).all() or (steps < 0.0).all()):
            raise ArgumentError(
                "latitude_degrees goes up and down; expected ascending or descending. Sort the rows of the "
                "field by latitude, or use cagp_dist.condition, which takes points in any order.",
                key="axis-order",
            )
        latitude = latitude.copy()
        latitude.flags.writeable = False
        object.__setattr__(self, "latitude_degrees", latitude)
        object.__setattr__(self, "n_longitudes", int(n_longitudes))
        object.__setattr__(self, "first_longitude_degrees", float(first))

    @classmethod
    def from_axes(cls, latitude_degrees: ArrayLike, longitude_degrees: ArrayLike) -> Self:
        """Recognise the grid of a field from its axes, (P,) and (Q,); longitudes eastward, of any convention.

        Raises
        ------
        ArgumentError
            If the longitudes are not equispaced around the full circle.

        Examples
        --------
        >>> import cagp_dist as cagp
        >>> cagp.LatLonGrid.from_axes([-45.0, 0.0, 45.0], [-180.0, -90.0, 0.0, 90.0]).first_longitude_degrees
        -180.0
        """
        longitude = as_numbers("longitude_degrees", longitude_degrees)
        if longitude.ndim != 1 or longitude.size == 0 or not np.isfinite(longitude).all():
            raise ArgumentError(
                f"longitude_degrees has shape {longitude.shape}; expected (Q,) finite values, "
                "the longitude axis.",
                key="shapes",
            )
        if longitude.size > 1 and abs(longitude[-1] - longitude[0] - 360.0) < NEAREST_LONGITUDE_DEGREES:
            raise ArgumentError(
                f"the last longitude, {longitude[-1]:g}, is the first one again; drop the last "
                "column of the field.",
                key="cyclic-column",
            )
        if longitude.size > 2 and (np.diff(longitude) < 0.0).sum() > longitude.size / 2:
            raise ArgumentError(
                "longitude_degrees runs westward; expected eastward. Reverse the columns of the field: "
                "field[..., ::-1], longitude_degrees[::-1].",
                key="axis-order",
            )
        wanted = longitude[0] + np.arange(longitude.size) * (360.0 / longitude.size)
        # float32 axes, as some files have them, are 1e-5 degrees off; 360 and 0 are one
        away = np.abs(np.mod(longitude - wanted + 180.0, 360.0) - 180.0)
        if away.max() > NEAREST_LONGITUDE_DEGREES:
            where = int((away > NEAREST_LONGITUDE_DEGREES).argmax())
            raise ArgumentError(
                f"longitude {where} is {longitude[where]:g}; {longitude.size} equispaced longitudes around "
                f"the full circle would have {wanted[where]:g}. For a part of the globe, or an "
                "irregular grid, use cagp_dist.condition with cagp_dist.unit_sphere points.",
                key="uneven-longitudes",
            )
        return cls(latitude_degrees, longitude.size, first_longitude_degrees=float(longitude[0]))

    def of_rows(self, rows: Mask) -> "LatLonGrid":
        """Grid of some of the latitudes, rows (P,)."""
        return LatLonGrid(
            self.latitude_degrees[rows],
            self.n_longitudes,
            first_longitude_degrees=self.first_longitude_degrees,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(P, Q)."""
        return self.latitude_degrees.size, self.n_longitudes

    def same_points(self, other: "LatLonGrid") -> bool:
        """Whether another grid has the same points in the same order."""
        return (
            self.n_longitudes == other.n_longitudes
            and self.first_longitude_degrees == other.first_longitude_degrees
            and np.array_equal(self.latitude_degrees, other.latitude_degrees)
        )

    @property
    def size(self) -> int:
        """Number of points, P Q."""
        return self.latitude_degrees.size * self.n_longitudes

    @property
    def longitude_degrees(self) -> Array:
        """Longitudes of every ring, shape (Q,), eastward from the first."""
        steps = np.arange(self.n_longitudes, dtype=np.float64)
        return self.first_longitude_degrees + steps * (360.0 / self.n_longitudes)

    @cached_property
    def mirrored(self) -> bool:
        """Whether every latitude has its mirror image beyond the equator."""
        latitude = self.latitude_degrees
        return bool(np.abs(latitude + latitude[::-1]).max() < MIRRORED_DEGREES)

    @property
    def points(self) -> Array:
        """Points on the unit sphere, latitude by latitude, shape (P Q, 3)."""
        latitude = np.repeat(self.latitude_degrees, self.n_longitudes)
        return unit_sphere(latitude, np.tile(self.longitude_degrees, self.latitude_degrees.size))

    def places(self, points: Array) -> Indices:
        """Index in the flattened grid of each of points (q, 3) on the unit sphere, -1 where it is none of it.

        A pole, all copies of which are one place, is in its first column.
        """
        latitude, longitude = degrees(points)
        order = np.argsort(self.latitude_degrees)
        ascending = self.latitude_degrees[order]
        above = np.searchsorted(ascending, latitude).clip(1 if order.size > 1 else 0, order.size - 1)
        near = np.where(latitude - ascending[above - 1] < ascending[above] - latitude, above - 1, above)
        row = order[near]
        eastward = np.mod(longitude - self.first_longitude_degrees, 360.0) * (self.n_longitudes / 360.0)
        column = np.rint(eastward)
        off = np.maximum(np.abs(eastward - column) * (360.0 / self.n_longitudes), 0.0)
        pole = is_pole(latitude)
        off[pole], column[pole] = 0.0, 0.0
        here = (np.abs(latitude - self.latitude_degrees[row]) < SAME_DEGREES) & (off < SAME_DEGREES)
        return np.where(here, row * self.n_longitudes + column.astype(np.intp) % self.n_longitudes, -1)

    @property
    def area_weights(self) -> Array:
        """Weights proportional to cell areas, mean 1, shape (P, Q)."""
        return np.repeat(area_weights(self.latitude_degrees)[:, None], self.n_longitudes, axis=1)


def as_fields(name: str, values: ArrayLike, grid: LatLonGrid) -> tuple[Array, Callable[[Array], Array]]:
    """Return values as fields (T, P, Q), and a function that gives results the shape of the values."""
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
            f"fields (T, {grid.shape[0]}, {grid.shape[1]}), or columns ({grid.size},) or ({grid.size}, r).",
            key="shapes",
        )
    if not np.isfinite(fields).all():
        missing = int((~np.isfinite(fields)).sum())
        raise ArgumentError(
            f"{name} holds NaN or infinite values ({missing} of {fields.size}); a whole grid is needed. With "
            "missing points use cagp_dist.MaskedRings.",
            key="not-finite",
        )
    return fields, lambda result: result.reshape(given.shape)
