"""Fields on a latitude-longitude grid, interpolated to any points: the seam and the poles are closed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array

_TOLERANCE_DEGREES = 1e-5
NEGLIGIBLE = 1e-6  # weight of neighbours that are not known, which a value may lack


@dataclass(frozen=True, eq=False)
class BilinearGrid:
    """Layers on one grid."""

    latitude_degrees: Array  # (P,), ascending; the poles are rows if the grid covers the globe
    west_degrees: float  # longitude of the first column
    eastward_degrees: Array  # (Q,) from the first column; of a full circle the last is 360, the first again
    values: Array  # (P, Q, layers)

    @property
    def extent(self) -> str:
        """What it covers, for people."""
        south, north = self.latitude_degrees[[0, -1]]
        return (
            f"latitudes {south:g}..{north:g} and {self.eastward_degrees[-1]:g} degrees east of "
            f"longitude {self.west_degrees:g}"
        )

    def outside(self, latitude_degrees: Array, longitude_degrees: Array) -> NDArray[np.bool_]:
        """Which points (n,) lie outside."""
        south, north = self.latitude_degrees[[0, -1]]
        return np.asarray(
            (latitude_degrees < south - _TOLERANCE_DEGREES)
            | (latitude_degrees > north + _TOLERANCE_DEGREES)
            | (self._eastward(longitude_degrees) > self.eastward_degrees[-1] + _TOLERANCE_DEGREES)
        )

    def at(self, latitude_degrees: Array, longitude_degrees: Array) -> Array:
        """Interpolate bilinearly in latitude and longitude to points that are not outside, shape (n, M)."""
        rows = np.clip(latitude_degrees, self.latitude_degrees[0], self.latitude_degrees[-1])
        columns = np.clip(self._eastward(longitude_degrees), 0.0, self.eastward_degrees[-1])
        return bilinear((self.latitude_degrees, self.eastward_degrees), self.values, (rows, columns))

    def _eastward(self, longitude_degrees: Array) -> Array:
        """Degrees east of the first column; what rounding put just west of it is slightly negative."""
        shifted = longitude_degrees - self.west_degrees + _TOLERANCE_DEGREES
        return np.asarray(np.mod(shifted, 360.0) - _TOLERANCE_DEGREES, dtype=np.float64)


def bilinear(axes: tuple[Array, Array], values: Array, at: tuple[Array, Array]) -> Array:
    """Interpolate values (P, Q, ...) on ascending axes to points (n,); NaN outside, and where NaN counts."""
    from scipy.interpolate import RegularGridInterpolator

    def interpolated(of: Array) -> Array:
        field = RegularGridInterpolator(axes, of, method="linear", bounds_error=False)
        return np.asarray(field(np.stack(at, axis=1)), dtype=np.float64)

    holes = np.isnan(values)
    if not holes.any():
        return interpolated(values)
    # of a point on the grid its neighbours have no weight, but for rounding
    lost = interpolated(holes.astype(np.float64)) > NEGLIGIBLE
    return np.where(lost, np.nan, interpolated(np.where(holes, 0.0, values)))


def closed(latitude: Array, longitude: Array, values: Array) -> tuple[Array, float, Array, Array]:
    """Count longitudes from behind the widest gap; on a full circle close the seam and reach the poles."""
    gaps = np.diff(longitude, append=longitude[0] + 360.0)
    if gaps.max() <= 1.5 * float(np.median(gaps)):
        eastward = np.append(longitude - longitude[0], 360.0)
        latitude, values = _with_poles(latitude, np.concatenate([values, values[:, :1]], axis=1))
        return latitude, float(longitude[0]), eastward, values
    first = (int(np.argmax(gaps)) + 1) % longitude.size
    west = float(longitude[first])
    eastward = np.mod(np.roll(longitude, -first) - west, 360.0)
    return latitude, west, eastward, np.roll(values, -first, axis=1)


def _with_poles(latitude: Array, values: Array) -> tuple[Array, Array]:
    """One value at each pole that is a row or within one row of the last one; values have a closed seam."""
    row = float(np.median(np.diff(latitude)))
    for end, pole in ((0, -90.0), (-1, 90.0)):
        distance = abs(pole - float(latitude[end]))
        average = np.broadcast_to(values[end, :-1].mean(axis=0), values[end].shape)
        if distance < _TOLERANCE_DEGREES:
            values[end] = average
        elif distance < row + _TOLERANCE_DEGREES:
            place = 0 if end == 0 else len(latitude)
            latitude, values = np.insert(latitude, place, pole), np.insert(values, place, average, axis=0)
    return latitude, values
