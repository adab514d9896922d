"""Latitude and longitude on the unit sphere: coordinates, area weights and the order of points."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cagp_dist.arrays import Array, Indices
from cagp_dist.checks import as_points, check_count
from cagp_dist.errors import ArgumentError

EARTH_RADIUS_KILOMETRES = 6371.0088  # mean radius of the Earth (IUGG)
POLE_DEGREES = 1e-6  # latitudes this close to a pole (11 cm) are the pole
SAME_DEGREES = 1e-8  # longitudes closer than this (1 mm) to a full turn are zero
LEAF = 64  # points of the smallest cell of the space-filling order


def unit_sphere(latitude_degrees: ArrayLike, longitude_degrees: ArrayLike) -> Array:
    """Cartesian coordinates of points on the unit sphere.

    ``(cos(lat) cos(lon), cos(lat) sin(lon), sin(lat))``; the Euclidean distance of two such points is
    the chord ``2 sin(angle / 2)``, for which every Matern kernel is positive definite (math 8).

    Parameters
    ----------
    latitude_degrees, longitude_degrees : array_like, shape (n,)
        Degrees north in [-90, 90] and degrees east, any convention (-180..180 or 0..360), which
        decides nothing: -12 and 348 are one point to the last bit.

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
            "expected two vectors of one length, one entry per point. Use .ravel() on gridded coordinates.",
            key="shapes",
        )
    _check_latitude(latitude)
    if not np.isfinite(longitude).all():
        raise ArgumentError("longitude holds NaN or infinity; drop those points first.", key="not-finite")
    phi, lam = np.deg2rad(latitude), np.deg2rad(np.mod(longitude, 360.0))
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=1)


def degrees(X: Array) -> tuple[Array, Array]:
    """Latitude, and longitude in [0, 360), of unit vectors X (n, 3), in degrees: `unit_sphere` backwards."""
    x, y, z = X.T
    longitude = np.mod(np.rad2deg(np.arctan2(y, x)), 360.0)
    # what rounds to a full turn is longitude zero
    longitude[longitude > 360.0 - SAME_DEGREES] = 0.0
    return np.rad2deg(np.arctan2(z, np.hypot(x, y))), longitude


def east_and_north(latitude_degrees: Array, longitude_degrees: Array) -> tuple[Array, Array]:
    """Give unit vectors (n, 3) along the surface at places (n,), to the east and to the north."""
    turn = np.deg2rad(longitude_degrees)
    east = np.stack([-np.sin(turn), np.cos(turn), np.zeros_like(turn)], axis=-1)
    return east, np.cross(unit_sphere(latitude_degrees, longitude_degrees), east)


def chord_of_kilometres(kilometres: float) -> float:
    """Straight distance on the unit sphere of two points that are so far apart on the ground."""
    longest = np.pi * EARTH_RADIUS_KILOMETRES
    if not 0.0 <= kilometres <= longest * (1.0 + 1e-9):
        raise ArgumentError(
            f"{kilometres:g} km were given as a distance on the ground; expected 0 to {longest:.0f} km, half "
            "the circumference of the Earth. A longer lengthscale is given as a chord, with the kernel: "
            "kernel=cagp.Matern32(lengthscale=3.0, variance=1.0).",
            key="distance-range",
        )
    return float(2.0 * np.sin(0.5 * kilometres / EARTH_RADIUS_KILOMETRES))


def kilometres_of_chord(chord: float) -> float:
    """Distance on the ground of two points of the unit sphere; NaN beyond its diameter."""
    return float(2.0 * EARTH_RADIUS_KILOMETRES * np.arcsin(0.5 * chord)) if chord <= 2.0 else float("nan")


def area_weights(latitude_degrees: ArrayLike) -> Array:
    """Weights (n,) proportional to the area of a latitude-longitude cell, ``cos(lat)``, of mean 1 (math 13).

    Raises
    ------
    ArgumentError
        If a latitude (degrees north) is not finite or lies outside [-90, 90].

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> cagp.area_weights([0.0, 60.0]).round(3)
    array([1.333, 0.667])
    """
    latitude = np.asarray(latitude_degrees, dtype=np.float64)
    _check_latitude(latitude)
    weights = np.cos(np.deg2rad(latitude))
    weights = np.maximum(weights, 0.0)  # cos(90 degrees) is 6e-17, of either sign
    total = weights.sum()
    return weights * (weights.size / total) if total > 0.0 else np.ones_like(weights)


def widest_gap(longitude_degrees: ArrayLike) -> tuple[float, float]:
    """Eastern end and width of the widest gap between longitudes (n,): the end is where a region begins."""
    around = np.unique(np.asarray(longitude_degrees, dtype=np.float64) % 360.0)
    gaps = np.diff(around, append=around[0] + 360.0)
    widest = int(np.argmax(gaps))
    return float(around[(widest + 1) % around.size]), float(gaps[widest])


def cell_areas(latitude_degrees: Array) -> Array:
    """Area of the cell of each point of a grid, in units of a cell at the equator: ``cos(latitude)``.

    A pole has the cap half way to the next row of Q points at a distance D, ``Q tan(D / 4) / 2``.
    """
    areas = np.asarray(np.cos(np.deg2rad(latitude_degrees)), dtype=np.float64)
    for pole in np.flatnonzero(is_pole(latitude_degrees)):
        distances = np.abs(latitude_degrees - latitude_degrees[pole])
        others = distances[~is_pole(latitude_degrees)]
        if others.size == 0:
            return np.ones_like(areas)
        row = np.count_nonzero(np.abs(others - others.min()) < 1e-6)
        areas[pole] = 0.5 * row * np.tan(0.25 * np.deg2rad(others.min()))
    return areas


def cell_edges(centres: Array) -> Array:
    """Edges of the cells of an axis, half way between their centres, shape (n + 1,); n is at least 2."""
    between = 0.5 * (centres[1:] + centres[:-1])
    first, last = 2.0 * centres[0] - between[0], 2.0 * centres[-1] - between[-1]
    return np.concatenate([[first], between, [last]])


def median_spacing(X: Array) -> float:
    """Median distance between a point X (n, p) and the one next to it; infinite for one point."""
    from scipy.spatial import cKDTree

    return float(np.median(np.asarray(cKDTree(X).query(X, k=2)[0])[:, 1])) if len(X) > 1 else np.inf


def coinciding(keys: Array, others: Array) -> NDArray[np.intp]:
    """Find the other place (N, 2) that is where each place (n, 2) is, to a millionth; -1 for none."""
    here, there = (np.round(each[:, 0], 6) + 1j * np.round(each[:, 1], 6) for each in (keys, others))
    if there.size == 0:
        return np.full(here.shape, -1, dtype=np.intp)
    order = np.argsort(there)
    found = order[np.minimum(np.searchsorted(there[order], here), there.size - 1)]
    return np.where(there[found] == here, found, -1)


def is_pole(latitude_degrees: ArrayLike) -> NDArray[np.bool_]:
    """Whether a latitude is a pole, up to `POLE_DEGREES`: there all longitudes are one place."""
    return np.abs(np.asarray(latitude_degrees, dtype=np.float64)) > 90.0 - POLE_DEGREES


def space_filling_order(X: ArrayLike, *, block_size: int) -> NDArray[np.intp]:
    """Order of points in which every block of ``block_size`` neighbours is a cell of a k-d tree.

    The set is halved along its widest axis, at a multiple of ``block_size``, until a block is left, and
    blocks are halved further down to `LEAF` points. Compact blocks make block Gauss-Seidel converge
    fast, and compact leaves let far-apart tiles be skipped; the order depends on X alone, so that it
    does not break calibration (math 1.6).

    Parameters
    ----------
    X : array_like, shape (n, p)
        Points.
    block_size : int
        Number of points of a block, at least 1.

    Returns
    -------
    array of int, shape (n,)
        A permutation: ``X[order]`` is the solver order. Cost O(n log^2 n) time, O(n) memory.

    Raises
    ------
    ArgumentError
        If X is not a finite (n, p) array or ``block_size`` is below 1.

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> cagp.space_filling_order([[0.0], [2.0], [1.0], [3.0]], block_size=2)
    array([0, 2, 1, 3])
    """
    points = as_points("X", X)
    check_count("block_size", block_size, least=1)
    return cells_in_order(points, block_size, leaf=min(LEAF, block_size))


def coarse_first(count: int) -> NDArray[np.intp]:
    """Order of 0, 1, ..., ``count - 1`` that leaps: the first few of it are spread evenly, however many.

    The binary digits of each number are read backwards. Applied to a `space_filling_order`, it visits
    single points coarse scale first, as sweeps over them should (math 2).

    Examples
    --------
    >>> from cagp_dist.geometry import coarse_first
    >>> coarse_first(6)
    array([0, 4, 2, 1, 5, 3])
    """
    digits = max(count - 1, 0).bit_length()
    numbers, reversed_ = np.arange(1 << digits), np.zeros(1 << digits, dtype=np.intp)
    for digit in range(digits):
        reversed_ |= ((numbers >> digit) & 1) << (digits - 1 - digit)
    return reversed_[reversed_ < count]


def cells_in_order(
    points: Array, size: int, *, leaf: int, only: NDArray[np.intp] | None = None
) -> NDArray[np.intp]:
    """Order of points (n, p) by halves, down to cells of a size, and within these down to leaves.

    With ``only``, numbers of cells in ascending order, just these are as they would be without; others are
    not divided further than they need.
    """
    order, columns = np.arange(len(points)), np.array(points.T, order="C")  # moved with the order
    pending = [(0, len(points))]
    while pending:
        start, stop = pending.pop()
        unit = size if stop - start > size else leaf
        parts = -(-(stop - start) // unit)
        if parts < 2:
            continue
        if only is not None and not ((only * size < stop) & ((only + 1) * size > start)).any():
            continue
        own = columns[:, start:stop]
        by = _stable_order(own[int(np.argmax(own.max(axis=1) - own.min(axis=1)))])
        order[start:stop] = order[start:stop][by]
        columns[:, start:stop] = own[:, by]
        middle = start + (parts // 2) * unit
        pending += [(start, middle), (middle, stop)]
    return order


def _stable_order(values: Array) -> NDArray[np.intp]:
    """Sort stably: by the fastest way, whose order is the only one unless there are ties."""
    order = np.argsort(values)
    ordered = values[order]
    return np.argsort(values, kind="stable") if (ordered[1:] == ordered[:-1]).any() else order


def _check_latitude(latitude_degrees: Array) -> None:
    if not np.isfinite(latitude_degrees).all():
        raise ArgumentError("latitude holds NaN or infinity; drop those points first.", key="not-finite")
    if latitude_degrees.size and np.abs(latitude_degrees).max() > 90.0:
        raise ArgumentError(
            f"latitude reaches {latitude_degrees[np.abs(latitude_degrees).argmax()]:g} degrees; expected "
            "-90..90. Check that latitude and longitude were not swapped.",
            key="latitude-range",
        )


def unwrapped_longitudes(longitude_degrees: Array) -> Array:
    """Longitudes without a jump: counted from behind the widest gap between them, west in [-180, 360)."""
    wrapped = np.mod(longitude_degrees, 360.0)
    values = np.unique(wrapped)
    gaps = np.diff(values, append=values[0] + 360.0)
    if gaps[-1] >= gaps.max() - 1e-6:
        return wrapped
    west = values[int(np.argmax(gaps)) + 1]
    return np.where(wrapped >= west, wrapped - 360.0, wrapped)


def box_nodes(
    south: Array, north: Array, west: Array, east: Array, *, nodes_per_side: int
) -> tuple[Array, Array, Array]:
    """Latitude and longitude of the nodes of boxes in degrees, and weights, each (q, k^2)."""
    if len(south) and not (south.min() >= -90.0 - 1e-9 and north.max() <= 90.0 + 1e-9):
        raise ArgumentError(
            f"cells reach from latitude {south.min():g} to {north.max():g}; expected -90 to 90 degrees.",
            key="latitude-range",
        )
    position, share = np.polynomial.legendre.leggauss(nodes_per_side)
    position, share = 0.5 * (1.0 + position), 0.5 * share
    low, high = (np.sin(np.deg2rad(np.clip(edge, -90.0, 90.0)))[:, None] for edge in (south, north))
    latitude = np.rad2deg(np.arcsin(np.clip(low + (high - low) * position, -1.0, 1.0)))
    longitude = west[:, None] + (east - west)[:, None] * position
    k = nodes_per_side
    weights = np.tile(np.outer(share, share).ravel(), (len(south), 1))
    return np.repeat(latitude, k, axis=1), np.tile(longitude, (1, k)), weights


def bands_and_pieces(latitude: Array, longitude: Array, height: float) -> Indices:
    """Block of each place, longitudes in [0, 360): its band of latitude and its piece of it, shape (n, 2)."""
    bands = max(1, round(180.0 / height))
    band = np.minimum((latitude + 90.0) / 180.0 * bands, bands - 1).astype(np.intp)
    middle = (band + 0.5) / bands * 180.0 - 90.0
    pieces = np.maximum(1, np.round(2.0 * bands * np.cos(np.deg2rad(middle)))).astype(np.intp)
    piece = np.minimum(longitude / 360.0 * pieces, pieces - 1).astype(np.intp)
    return np.stack([band, piece], axis=1)
