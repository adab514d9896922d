"""Prior means of a temperature field that are estimated from the observed values."""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Indices
from cagp_dist.era5.canonical import Points
from cagp_dist.era5.climatology import Climatology
from cagp_dist.geometry import area_weights

Basis = Literal["power", "harmonic"]

_BASES: dict[str, tuple[Basis, int]] = {
    "constant": ("power", 0),
    "quadratic-latitude": ("power", 2),
    "harmonic-latitude": ("harmonic", 4),
}


class FieldMean(Protocol):
    """A prior mean that was fitted: kelvin at unit vectors X (n, 3), shape (n, T)."""

    def __call__(self, X: Array, /) -> Array: ...


@dataclass(frozen=True, eq=False)
class LatitudeMean:
    """A polynomial in latitude or in its sine for every time, as a function of points on the unit sphere.

    Attributes
    ----------
    basis : {"power", "harmonic"}
        Powers of latitude / 90 degrees, or Legendre polynomials of the sine of latitude: the zonal
        spherical harmonics.
    coefficients : array of float64, shape (degree + 1, T)
        Kelvin.
    """

    basis: Basis
    coefficients: Array

    def __call__(self, X: Array) -> Array:
        """Mean in kelvin at unit vectors X (n, 3), shape (n, T)."""
        return _basis(self.basis, len(self.coefficients) - 1, _latitude(X)) @ self.coefficients


@dataclass(frozen=True, eq=False)
class ClimatologyMean:
    """A climatology, shifted for every time by a constant.

    Attributes
    ----------
    climatology : Climatology
        Where it is by month, that of the month of each time is taken.
    times : array of datetime64, shape (T,)
    offset_kelvin : array of float64, shape (T,)
    """

    climatology: Climatology
    times: NDArray[np.datetime64]
    offset_kelvin: Array

    def __call__(self, X: Array) -> Array:
        """Mean in kelvin at unit vectors X (n, 3), shape (n, T); outside the climatology it raises."""
        longitude = np.rad2deg(np.arctan2(X[:, 1], X[:, 0]))
        return self.climatology.at(_latitude(X), longitude, self.times) + self.offset_kelvin


def fit_mean(
    name: str, points: Points, train: Indices, *, climatology: Climatology | None = None
) -> FieldMean:
    """Fit a prior mean by least squares, each point weighted with the area of its cell.

    ``min over c of sum_i w_i (y_i - a(x_i) - sum_k c_k phi_k(lat_i))^2`` for every time, ``w = cos(lat)``:

    - constant: the area-weighted average;
    - quadratic-latitude: ``phi_k = (lat / 90)^k``, k = 0, 1, 2;
    - harmonic-latitude: ``phi_k = P_k(sin lat)``, Legendre polynomials, k = 0 .. 4;
    - climatology: ``a`` is the climatology, and one constant shifts it, so that a day that was warm
      everywhere is not taken for a pattern.

    The fitted mean is plugged in as if it had been known, so calibration holds given the mean, not for the
    mean's own error (math 1.6, 8), which is small when the points are many.

    Parameters
    ----------
    name : str
        The mean of a job file.
    points : Points
        All points of the field.
    train : array of int, shape (n,)
        The observed ones.
    climatology : Climatology, optional
        Needed for a mean that names one.

    Returns
    -------
    FieldMean
        Of minimal norm where the points do not determine it, as on a single latitude.

    Raises
    ------
    ConfigurationError
        If a point, observed or not, lies outside the climatology.
    """
    values = points.values_kelvin[:, train].T
    latitude = points.latitude_degrees[train]
    if climatology is not None:
        climatology.check_covers(points.latitude_degrees, points.longitude_degrees)
        usual = climatology.at(latitude, points.longitude_degrees[train], points.times)
        offset = np.average(values - usual, axis=0, weights=area_weights(latitude))
        return ClimatologyMean(climatology, points.times, offset)
    basis, degree = _BASES[name]
    root = np.sqrt(area_weights(latitude))[:, None]
    coefficients = np.linalg.lstsq(root * _basis(basis, degree, latitude), root * values, rcond=None)[0]
    return LatitudeMean(basis=basis, coefficients=np.asarray(coefficients, dtype=np.float64))


def _latitude(X: Array) -> Array:
    """Degrees north of unit vectors; the arc tangent is exact to rounding also near the poles."""
    return np.asarray(np.rad2deg(np.arctan2(X[:, 2], np.hypot(X[:, 0], X[:, 1]))), dtype=np.float64)


def _basis(basis: Basis, degree: int, latitude_degrees: Array) -> Array:
    """Columns 0 .. degree of a basis at n latitudes, shape (n, degree + 1)."""
    if basis == "harmonic":
        sine = np.sin(np.deg2rad(latitude_degrees))
        return np.asarray(np.polynomial.legendre.legvander(sine, degree), dtype=np.float64)
    return np.vander(latitude_degrees / 90.0, degree + 1, increasing=True)
