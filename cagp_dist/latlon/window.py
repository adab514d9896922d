"""Regional grids, and points on a common one: windows of a full-circle grid, whose rest was not observed.

Equispaced longitudes whose spacing divides the circle are a part of every ring of a `LatLonGrid`.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.checks import as_numbers
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import degrees, is_pole
from cagp_dist.latlon.grid import LatLonGrid

OFF_DEGREES = 4e-5  # tolerance for longitudes on a circle: the rounding of two float32 values near 360
FINEST_DEGREES = 4e-3  # longitudes closer than this are no grid: the tolerance would let any longitudes pass
MOST_SKIPPED = 8  # steps of the circle between neighbouring longitudes: columns may be absent


@dataclass(frozen=True, eq=False)
class LatLonWindow:
    """A latitude-longitude grid of a region, as a part of a full-circle grid.

    Attributes
    ----------
    grid : LatLonGrid
        The latitudes of the region, in their order, on full circles; its first longitude is the westernmost
        one of the region.
    columns : array of int, shape (W,)
        Column of the full circle on which each longitude of the region lies; ascending if these run eastward.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> window = cagp.LatLonWindow.from_axes([50.0, 49.75, 49.5], np.arange(-0.5, 0.75, 0.25))
    >>> window.grid.shape, window.shape, window.columns.tolist()
    ((3, 1440), (3, 5), [0, 1, 2, 3, 4])
    >>> window.cut(np.ones(window.grid.shape)).shape          # of a field on the full circle
    (3, 5)
    """

    grid: LatLonGrid
    columns: Indices

    @classmethod
    def from_axes(cls, latitude_degrees: ArrayLike, longitude_degrees: ArrayLike) -> Self:
        """Recognise the grid of a regional field, or of a global one, from its two axes, (P,) and (W,).

        Latitudes ascend or descend strictly, with any spacing. Longitudes stand in any order and convention,
        across Greenwich or the date line, float32 or float64: equispaced, up to columns that are absent, and
        their spacing divides 360.

        Raises
        ------
        ArgumentError
            If the longitudes do not lie on one circle of equispaced points, or one appears twice.
        """
        n_longitudes, first, columns = place_longitudes(longitude_degrees)
        if np.unique(columns).size < columns.size:
            raise ArgumentError(
                "two of longitude_degrees are one place on the circle; a column may appear once. "
                "Drop the column of the field that appears again.",
                key="longitude-twice",
            )
        return cls(LatLonGrid(latitude_degrees, n_longitudes, first_longitude_degrees=first), columns)

    @property
    def shape(self) -> tuple[int, int]:
        """(P, W)."""
        return self.grid.shape[0], self.columns.size

    def cut(self, field: ArrayLike) -> Array:
        """Cut the region out of fields (..., P, Q) on the full circle, shape (..., P, W)."""
        values = as_numbers("field", field)
        if values.shape[-2:] != self.grid.shape:
            raise ArgumentError(
                f"field has shape {values.shape}; expected {self.grid.shape} (latitude, longitude), or a "
                "stack of such fields.",
                key="shapes",
            )
        return np.ascontiguousarray(values[..., self.columns])


def place_longitudes(longitude_degrees: ArrayLike) -> tuple[int, float, Indices]:
    """Find the circle of equispaced longitudes on which given ones (n,) lie, and their columns."""
    longitude = as_numbers("longitude_degrees", longitude_degrees)
    if longitude.ndim != 1 or longitude.size == 0 or not np.isfinite(longitude).all():
        raise ArgumentError(
            f"longitude_degrees has shape {longitude.shape}; expected (n,) finite values, the longitude "
            "axis.",
            key="shapes",
        )
    wrapped = np.mod(longitude, 360.0)
    distinct, index = np.unique(wrapped, return_index=True)
    gaps = np.diff(distinct, append=distinct[0] + 360.0)
    west = (int(gaps.argmax()) + 1) % distinct.size
    first = float(longitude[index[west]])
    eastward = np.mod(longitude - first, 360.0)
    eastward[eastward > 360.0 - OFF_DEGREES] = 0.0
    steps = np.diff(np.unique(eastward), append=360.0)
    steps = steps[steps > 2.0 * OFF_DEGREES]
    spacing = float(steps[steps < 1.5 * steps.min()].mean())
    for part in range(1, MOST_SKIPPED + 1):
        n_longitudes = _division(eastward, spacing / part)
        if 360.0 / n_longitudes < FINEST_DEGREES:
            break
        step = 360.0 / n_longitudes
        columns = np.rint(eastward / step).astype(np.intp)
        if np.abs(eastward - columns * step).max() <= OFF_DEGREES:
            return n_longitudes, first, columns % n_longitudes
    raise ArgumentError(
        f"the longitudes, {distinct.size} of them and {steps.min():g} degrees apart at the least, lie on no "
        "full circle of equispaced ones: expected a spacing that divides 360. For an irregular grid use "
        "cagp_dist.condition with cagp_dist.unit_sphere points.",
        key="no-full-circle",
    )


def _division(eastward: Array, spacing: float) -> int:
    """Points of the circle for a spacing that is rounded, from the farthest longitude within reach of it."""
    # a spacing that is off by 8e-5 miscounts a long way; farther points, once counted, sharpen it
    for _ in range(4):
        reach = eastward[eastward <= spacing**2 / (8.0 * OFF_DEGREES)]
        farthest = float(reach.max(initial=0.0))
        count = round(farthest / spacing)
        if count < 1:
            break
        spacing = farthest / count
    return max(1, round(360.0 / spacing))


NEAR_DEGREES = 1e-6  # how far a point may lie from its place on the grid: a tenth of a metre on the ground
MOST_POINTS = 2**22  # points of a common grid, at most


def common_grid(*places: Array) -> tuple[LatLonGrid, list[Indices]] | None:
    """Find the grid that all points of some sets (n, p) are points of, and where they are on it."""
    X = np.concatenate(places)
    if X.shape[1] != 3 or not np.allclose(np.einsum("ij,ij->i", X, X), 1.0, rtol=0.0, atol=1e-9):
        return None
    latitude, longitude = degrees(X)
    rows, row = np.unique(np.rint(latitude / NEAR_DEGREES), return_inverse=True)
    pole = is_pole(latitude)
    try:
        circle = 1, 0.0, np.arange(0)  # of poles alone
        n_longitudes, first, column = circle if pole.all() else place_longitudes(longitude[~pole])
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
