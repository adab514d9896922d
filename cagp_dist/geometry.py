"""Latitude and longitude on the unit sphere: coordinates, area weights and the order of points."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cagp_dist.errors import ArgumentError

Array = NDArray[np.float64]

LEAF = 64
"""Points of the smallest cell of the space-filling order."""


def unit_sphere(latitude_degrees: ArrayLike, longitude_degrees: ArrayLike) -> Array:
    """Cartesian coordinates of points on the unit sphere.

    ``(cos(lat) cos(lon), cos(lat) sin(lon), sin(lat))``; the Euclidean distance of two such points is
    the chord ``2 sin(angle / 2)``, for which every Matern kernel is positive definite (math 8).

    Parameters
    ----------
    latitude_degrees, longitude_degrees : array_like, shape (n,)
        Degrees north in [-90, 90] and degrees east, any convention (-180..180 or 0..360).

    Returns
    -------
    array of float64, shape (n, 3)
        Unit vectors, no unit.

    Raises
    ------
    ArgumentError
        If the shapes differ, a value is not finite or a latitude lies outside [-90, 90].

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> cagp.unit_sphere([0.0, 90.0], [0.0, 0.0]).round(6)
    array([[1., 0., 0.],
           [0., 0., 1.]])
    """
    latitude = np.asarray(latitude_degrees, dtype=np.float64)
    longitude = np.asarray(longitude_degrees, dtype=np.float64)
    if latitude.ndim != 1 or latitude.shape != longitude.shape:
        raise ArgumentError(
            f"latitude has shape {latitude.shape} and longitude {longitude.shape}; "
            "expected two vectors of one length, one entry per point. Use .ravel() on gridded coordinates."
        )
    if not (np.isfinite(latitude).all() and np.isfinite(longitude).all()):
        raise ArgumentError("latitude or longitude holds NaN or infinity; drop those points first.")
    if latitude.size and np.abs(latitude).max() > 90.0:
        raise ArgumentError(
            f"latitude reaches {latitude[np.abs(latitude).argmax()]:g} degrees; expected -90..90. "
            "Check that latitude and longitude were not swapped."
        )
    phi, lam = np.deg2rad(latitude), np.deg2rad(longitude)
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=1)


def area_weights(latitude_degrees: ArrayLike) -> Array:
    """Weights proportional to the area of a latitude-longitude cell, ``cos(lat)``, with mean 1 (math 13).

    Parameters
    ----------
    latitude_degrees : array_like, shape (n,)
        Degrees north.

    Returns
    -------
    array of float64, shape (n,)
    """
    weights = np.cos(np.deg2rad(np.asarray(latitude_degrees, dtype=np.float64)))
    weights = np.maximum(weights, 0.0)  # cos(90 degrees) is 6e-17, of either sign
    total = weights.sum()
    return weights * (weights.size / total) if total > 0.0 else np.ones_like(weights)


def space_filling_order(X: ArrayLike, *, block_size: int) -> NDArray[np.intp]:
    """Order of points in which every block of ``block_size`` neighbours is a cell of a k-d tree.

    The set is halved along its widest axis, at a multiple of ``block_size``, until a block is left, and
    blocks are halved further down to `LEAF` points. Compact blocks make block Gauss-Seidel converge
    fast, and compact leaves let far-apart tiles be skipped; the order depends on X alone, so the solve
    stays calibrated (math 1.6).

    Parameters
    ----------
    X : array_like, shape (n, p)
        Points.
    block_size : int
        Number of points of a block, at least 1.

    Returns
    -------
    array of int, shape (n,)
        A permutation: ``X[order]`` is the solver order. Cost O(n log n) time, O(n) memory.
    """
    points = np.asarray(X, dtype=np.float64)
    if points.ndim != 2:
        raise ArgumentError(f"X has shape {points.shape}; expected (n, p), one row per point.")
    if block_size < 1:
        raise ArgumentError(f"block_size is {block_size}; expected at least 1.")
    order = np.arange(len(points))
    pending = [(0, len(points))]
    while pending:
        start, stop = pending.pop()
        unit = block_size if stop - start > block_size else min(LEAF, block_size)
        parts = -(-(stop - start) // unit)
        if parts < 2:
            continue
        members = order[start:stop]
        extent = np.ptp(points[members], axis=0)
        along = points[members, int(np.argmax(extent))]
        middle = start + (parts // 2) * unit
        order[start:stop] = members[np.argsort(along, kind="stable")]
        pending += [(start, middle), (middle, stop)]
    return order
