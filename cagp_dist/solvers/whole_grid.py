"""The exact posterior where the observed points fill a latitude-longitude grid, or nearly (math 7).

The grid is recognised from the points, in whatever order they come; its structure solves the complete system
(`cagp_dist.gram.rings`), and points that are missing or held out are taken into account exactly, or by
preconditioned conjugate gradients where they are many (`cagp_dist.gram.held_out`).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cagp_dist.budget import FEW_MISSING
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import is_pole
from cagp_dist.gram.base import Array
from cagp_dist.gram.grid import LatLonGrid
from cagp_dist.gram.held_out import FewMissing, ManyMissing, ObservedSystem, as_targets
from cagp_dist.gram.rings import RingGram
from cagp_dist.gram.tiled import cross_product
from cagp_dist.runtime import Executor
from cagp_dist.solvers.base import Problem, State
from cagp_dist.solvers.status import Status

SAME_DEGREES = 1e-6
"""Latitudes and longitudes closer than this are one."""

OFF_GRID_DEGREES = 3e-5
"""A point may be this far from where the grid has it, as float32 axes make it."""

LEAST_FILLED = 0.5
"""Part of a grid that must be observed to recognise it; below, its points are better taken one by one."""

ELSEWHERE = "Use BlockGaussSeidel or Cholesky, which take points anywhere."


class Placed(NamedTuple):
    """Points on a grid: where each of them is, shape (n,)."""

    grid: LatLonGrid
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]


def whole_grid_state(problem: Problem, *, grid: LatLonGrid | None, executor: Executor) -> Iterator[State]:
    """Yield the one, exact state.

    Raises
    ------
    ArgumentError
        If the points do not fill a full-circle grid, or the noise varies along a latitude.
    """
    gram = problem.gram
    placed = _without_empty_rows(place_on_grid(gram.X, grid))
    rows, columns = placed.rows, placed.columns
    poles = is_pole(placed.grid.latitude_degrees)
    # a pole with noise s^2 is Q equal observations with noise Q s^2: its row is complete
    noise = _noise_by_latitude(placed, gram.noise_variance)
    noise[poles] *= placed.grid.n_longitudes
    rings = RingGram(placed.grid, gram.kernel, noise_variance=noise, executor=executor)
    observed = np.repeat(poles[:, None], placed.grid.n_longitudes, axis=1)
    observed[rows, columns] = True
    fields = np.zeros((problem.residuals.shape[1], *placed.grid.shape))
    fields[:, rows, columns] = problem.residuals.T
    fields[:, poles] = fields[:, poles, :1]
    few = np.count_nonzero(~observed) <= FEW_MISSING
    system: ObservedSystem = FewMissing.of(rings, ~observed) if few else ManyMissing(rings, observed)
    found = system.weights(fields)
    found[:, poles, 0] = found[:, poles].sum(axis=2)
    weights = np.ascontiguousarray(found[:, rows, columns].T)
    new = problem.test_points
    yield State(
        iteration=1,
        columns=slice(0, len(new)),
        mean=cross_product(gram.kernel, new, gram.X, weights, executor=executor),
        downdate=system.downdate(as_targets(*degrees(new)), full=problem.full_covariance),
        status=Status.EXACT if few else Status.SOLVED,
        relative_residual=system.relative_residual,
    )


def _without_empty_rows(placed: Placed) -> Placed:
    """Leave out latitudes at which nothing was observed: they would be missing points for nothing."""
    present, rows = np.unique(placed.rows, return_inverse=True)
    if present.size == placed.grid.shape[0]:
        return placed
    grid = LatLonGrid(
        placed.grid.latitude_degrees[present],
        placed.grid.n_longitudes,
        first_longitude_degrees=placed.grid.first_longitude_degrees,
    )
    return Placed(grid, rows, placed.columns)


def _noise_by_latitude(placed: Placed, noise_variance: Array) -> Array:
    """Noise of each row (P,); raises `ArgumentError` if it varies along a row."""
    noise = np.empty(placed.grid.shape[0])
    noise[placed.rows] = noise_variance
    if (noise[placed.rows] != noise_variance).any():
        raise ArgumentError(
            "the noise variance varies along a latitude; Rings needs one value for each latitude. "
            f"{ELSEWHERE}"
        )
    return noise


def place_on_grid(X: Array, grid: LatLonGrid | None = None) -> Placed:
    """Find where on a full-circle grid points of the unit sphere lie, and the grid, if it is not given.

    Parameters
    ----------
    X : array of float64, shape (n, 3)
        Unit vectors, in any order.
    grid : LatLonGrid, optional
        The grid they are on; without it, the points have to show all of its latitudes and longitudes.

    Returns
    -------
    Placed
        A pole is in column zero of its row.

    Raises
    ------
    ArgumentError
        If X is not on the unit sphere or not on the grid, longitudes are not equispaced around the full
        circle, or two points are at one place; without a grid, also if more than half of it is missing.
    """
    if X.shape[1] != 3 or np.abs(np.einsum("ij,ij->i", X, X) - 1.0).max() > 1e-9:
        raise ArgumentError(
            f"X has shape {X.shape} and is not on the unit sphere; Rings needs cagp_dist.unit_sphere points. "
            f"{ELSEWHERE}"
        )
    latitude, longitude = degrees(X)
    pole = is_pole(latitude)
    found = _recognised(latitude, longitude[~pole]) if grid is None else grid
    north = np.sort(found.latitude_degrees)
    rows = _nearest(north, latitude)
    if found.latitude_degrees[0] > found.latitude_degrees[-1]:
        rows = found.shape[0] - 1 - rows
    steps = (longitude - found.first_longitude_degrees) * (found.n_longitudes / 360.0)
    columns = np.where(pole, 0, np.rint(steps).astype(np.intp) % found.n_longitudes)
    away = np.maximum(
        np.abs(found.latitude_degrees[rows] - latitude),
        np.where(pole, 0.0, np.abs(steps - np.rint(steps)) * (360.0 / found.n_longitudes)),
    )
    if away.max() > OFF_GRID_DEGREES:
        worst = int(away.argmax())
        raise ArgumentError(
            f"point {worst} at latitude {latitude[worst]:g}, longitude {longitude[worst]:g} is not on "
            f"the grid. {ELSEWHERE}"
        )
    if np.unique(rows * found.n_longitudes + columns).size != len(X):
        raise ArgumentError(
            f"two observed points are at one place of the grid; drop one of them. {ELSEWHERE}"
        )
    if grid is None and len(X) < LEAST_FILLED * found.size:
        raise ArgumentError(
            f"the {len(X):,} observed points fill {len(X) / found.size:.0%} of a grid of "
            f"{found.shape[0]} x {found.shape[1]}; Rings needs most of it. Observe all of the grid (in a "
            'job: train = { kind = "all" }) or every k-th row and column (kind = "stride"). ' + ELSEWHERE
        )
    return Placed(found, rows, columns)


def _recognised(latitude: Array, longitude: Array) -> LatLonGrid:
    if longitude.size == 0:
        raise ArgumentError(f"all points are poles, which lie on no grid of longitudes. {ELSEWHERE}")
    try:
        return LatLonGrid.from_axes(_distinct(latitude), _distinct(longitude))
    except ArgumentError as error:
        raise ArgumentError(
            f"the {latitude.size:,} observed points lie on no full-circle latitude-longitude grid: {error}"
        ) from error


def _nearest(ascending: Array, values: Array) -> NDArray[np.intp]:
    """Index of the nearest of ascending numbers."""
    after = np.clip(np.searchsorted(ascending, values), 1, max(ascending.size - 1, 1))
    if ascending.size == 1:
        return np.zeros(len(values), dtype=np.intp)
    before = after - 1
    return np.where(values - ascending[before] <= ascending[after] - values, before, after)


def degrees(X: Array) -> tuple[Array, Array]:
    """Latitude, and longitude in [0, 360), of unit vectors (n, 3)."""
    x, y, z = X.T
    longitude = np.mod(np.rad2deg(np.arctan2(y, x)), 360.0)
    # what rounds to a full turn is the first column
    longitude[longitude > 360.0 - SAME_DEGREES] = 0.0
    return np.rad2deg(np.arctan2(z, np.hypot(x, y))), longitude


def _distinct(values: Array) -> Array:
    """Distinct values up to `SAME_DEGREES`, ascending."""
    ascending = np.sort(values)
    return np.asarray(ascending[np.concatenate([[True], np.diff(ascending) > SAME_DEGREES])])
