"""Prior means of a temperature field that are estimated from the observed values."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cagp_dist.geometry import area_weights
from cagp_dist.service.tables import MeanName

Array = NDArray[np.float64]
_DEGREE: dict[MeanName, int] = {"constant": 0, "quadratic-latitude": 2}


@dataclass(frozen=True, eq=False)
class LatitudeMean:
    """A polynomial in latitude for every time, as a function of points on the unit sphere.

    Attributes
    ----------
    coefficients : array of float64, shape (degree + 1, T)
        Kelvin, of the powers of latitude / 90 degrees.
    """

    coefficients: Array

    def __call__(self, X: Array) -> Array:
        """Mean in kelvin at unit vectors X (n, 3), shape (n, T)."""
        latitude_degrees = np.rad2deg(np.arcsin(np.clip(X[:, 2], -1.0, 1.0)))
        return _powers(latitude_degrees, len(self.coefficients) - 1) @ self.coefficients


def fit_mean(name: MeanName, latitude_degrees: Array, values_kelvin: Array) -> LatitudeMean:
    """Fit a prior mean by least squares, each point weighted with the area of its cell.

    ``min over c of sum_i w_i (y_i - sum_k c_k (lat_i / 90)^k)^2`` for every time, ``w = cos(lat)``; a
    constant mean is the area-weighted average. The fitted mean is plugged in as if it had been
    known, so calibration holds given the mean, not for the mean's own error (math 1.6, 8), which is
    small when the points are many.

    Parameters
    ----------
    name : {"constant", "quadratic-latitude"}
        Degree 0 or 2 in latitude.
    latitude_degrees : array of float64, shape (n,)
        Observed points.
    values_kelvin : array of float64, shape (n, T)
        Observed values.

    Returns
    -------
    LatitudeMean
        Of minimal norm where the points do not determine it, as on a single latitude.
    """
    root = np.sqrt(area_weights(latitude_degrees))[:, None]
    powers = _powers(latitude_degrees, _DEGREE[name])
    coefficients = np.linalg.lstsq(root * powers, root * values_kelvin, rcond=None)[0]
    return LatitudeMean(coefficients=np.asarray(coefficients, dtype=np.float64))


def _powers(latitude_degrees: Array, degree: int) -> Array:
    return np.vander(latitude_degrees / 90.0, degree + 1, increasing=True)
