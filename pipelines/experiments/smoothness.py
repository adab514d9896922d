"""How smooth a field on a latitude-longitude grid is: rms gradient, and power by zonal wavenumber."""

import numpy as np

import cagp_dist as cagp
from cagp_dist.arrays import Array

EARTH_RADIUS_KM = 6371.0
POLEWARD_LIMIT_DEGREES = 60.0
TROPICS_DEGREES = 30.0


def gradient_rms(field: Array, grid: cagp.LatLonGrid) -> float:
    """Area-weighted rms gradient between 60 S and 60 N, by differences of neighbours.

    Nearer to the poles neighbours along a ring stand closer together, so that differences would resolve
    finer scales there than elsewhere.

    Parameters
    ----------
    field : array of float64, shape (P, Q)
    grid : LatLonGrid

    Returns
    -------
    float
        Unit of the field per 100 km.
    """
    latitude = np.deg2rad(grid.latitude_degrees)
    inside = np.abs(grid.latitude_degrees) <= POLEWARD_LIMIT_DEGREES
    rings, cosine = field[inside], np.cos(latitude[inside])
    spacing = 2.0 * np.pi / grid.n_longitudes
    eastward = (np.roll(rings, -1, axis=1) - rings) / (spacing * cosine[:, None])
    northward = np.diff(rings, axis=0) / np.diff(latitude[inside])[:, None]
    between = 0.5 * (cosine[1:] + cosine[:-1])
    energy = np.average((eastward**2).mean(axis=1), weights=cosine)
    energy += np.average((northward**2).mean(axis=1), weights=between)
    return float(np.sqrt(energy) * 100.0 / EARTH_RADIUS_KM)


def zonal_power(field: Array, grid: cagp.LatLonGrid) -> Array:
    """Power by zonal wavenumber k = 1 .. Q / 2, area-weighted mean over the rings between 30 S and 30 N.

    Near the equator a wavenumber is a length, 40,000 km / k. The sum over all k is the mean variance along
    a ring.

    Parameters
    ----------
    field : array of float64, shape (P, Q)
    grid : LatLonGrid

    Returns
    -------
    array of float64, shape (Q // 2,)
        Squared unit of the field.
    """
    inside = np.abs(grid.latitude_degrees) <= TROPICS_DEGREES
    Q = grid.n_longitudes
    power = np.abs(np.fft.rfft(field[inside], axis=1) / Q) ** 2
    power[:, 1 : (Q + 1) // 2] *= 2.0  # k and Q - k
    weights = np.cos(np.deg2rad(grid.latitude_degrees[inside]))
    return np.asarray(np.average(power, axis=0, weights=weights)[1:])
