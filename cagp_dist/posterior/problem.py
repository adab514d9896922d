"""From observations to a problem for the solvers: check them, remove the prior mean, choose the Gram matrix.

The Gram matrix of points is made of tiles, that of a latitude-longitude grid of rings. With gaps, or with a
pole (Q points that are one place), it is that of the observed points of the grid.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Mask
from cagp_dist.budget import Demand, GridSize
from cagp_dist.checks import as_numbers, as_points
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import is_pole
from cagp_dist.gram import Gram, MaskedRings, RingGram, TiledGram
from cagp_dist.gram.base import Targets, target_points
from cagp_dist.kernels import Kernel
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.layout import Layout
from cagp_dist.runtime import Executor
from cagp_dist.solvers.base import Problem


class PriorLike(Protocol):
    """What a problem needs from a prior."""

    @property
    def kernel(self) -> Kernel: ...

    @property
    def noise_variance(self) -> float | Array: ...

    def mean_at(self, X: Array) -> Array: ...


@dataclass(frozen=True, eq=False)
class Observed:
    """Checked observations.

    Attributes
    ----------
    X : array, shape (n, p)
        Points where something was observed, in solver order.
    values : array, shape (n, T)
        What was observed there.
    single : bool
        Whether one field was given, without an axis for fields.
    layout : Layout or None
        Where they lie on a grid; None for points.
    given : array of bool, shape (m,) of X, or (P, Q) of the grid
        Which of the given points have values.
    grid : LatLonGrid or None
        The grid that was given, of which latitudes without any value are left out of ``layout``.
    """

    X: Array
    values: Array
    single: bool
    given: Mask
    layout: Layout | None = None
    grid: LatLonGrid | None = None

    @property
    def columns(self) -> int:
        """Coordinates of a point."""
        return int(self.X.shape[1])


def observed(X: ArrayLike | LatLonGrid, y: ArrayLike) -> Observed:
    """Check points (n, p) and values (n,) or (n, T), or a grid and fields (P, Q) or (T, P, Q).

    Raises
    ------
    ArgumentError
        If shapes do not fit, values are not finite, or fields of a grid have different gaps.
    """
    if isinstance(X, LatLonGrid):
        return _on_grid(X, y)
    points = as_points("X", X)
    if len(points) == 0:
        raise ArgumentError(f"X has shape {points.shape}: nothing was observed; expected at least one point.")
    values = as_numbers("y", y)
    if values.ndim not in (1, 2) or len(values) != len(points) or values.size == 0:
        raise ArgumentError(
            f"y has shape {values.shape} but X has {len(points)} points; expected ({len(points)},), or "
            f"({len(points)}, T) for T fields."
        )
    if not np.isfinite(values).all():
        raise ArgumentError("y holds NaN or infinity; drop those points first.")
    given = np.ones(len(points), dtype=bool)
    return Observed(points, values if values.ndim == 2 else values[:, None], values.ndim == 1, given)


def _on_grid(grid: LatLonGrid, y: ArrayLike) -> Observed:
    if np.ma.is_masked(y):
        raise ArgumentError(
            "y has masked entries; on a grid NaN is where nothing was observed: give y.filled(numpy.nan)."
        )
    fields = as_numbers("y", y)
    if fields.ndim not in (2, 3) or fields.shape[-2:] != grid.shape or fields.size == 0:
        raise ArgumentError(
            f"y has shape {fields.shape}; expected {grid.shape} (latitude, longitude), or T such fields."
        )
    single = fields.ndim == 2
    fields = fields.reshape(-1, *grid.shape)
    if np.isinf(fields).any():
        raise ArgumentError("y holds infinity; expected finite values, or NaN where nothing was observed.")
    present = ~np.isnan(fields[0])
    if (np.isnan(fields) == present).any():
        raise ArgumentError(
            "the fields of y have gaps at different points; fields that share a solve are observed at the "
            "same points. Call condition() once for each pattern of gaps."
        )
    given, whole = present, grid
    fields, present = _merged_poles(fields, present, grid)
    if not present.any():
        raise ArgumentError("y is NaN everywhere: nothing was observed; expected at least one value.")
    rows = present.any(axis=1)
    if not rows.all():  # a latitude without observations would be missing points for nothing
        grid = LatLonGrid(
            grid.latitude_degrees[rows],
            grid.n_longitudes,
            first_longitude_degrees=grid.first_longitude_degrees,
        )
        fields, present = fields[:, rows], present[rows]
    layout = Layout.of(grid, present)
    values = np.ascontiguousarray(layout.restrict(fields).T)
    return Observed(grid.points[layout.index], values, single, given, layout, whole)


def _merged_poles(fields: Array, present: Mask, grid: LatLonGrid) -> tuple[Array, Mask]:
    """Replace the observed copies of a pole by one observation in column zero, their mean."""
    poles = np.flatnonzero(is_pole(grid.latitude_degrees))
    if poles.size == 0:
        return fields, present
    fields, present = fields.copy(), present.copy()
    for row in poles:
        copies = present[row].copy()
        present[row] = False
        if copies.any():
            fields[:, row, 0] = fields[:, row, copies].mean(axis=-1)
            present[row, 0] = True
    return fields, present


def noise_of(noise_variance: float | Array, seen: Observed) -> Array:
    """Noise variance of every observation (n,), from one number, or one for each point that was given.

    A pole of which several copies were observed has the mean of their noise variances.

    Raises
    ------
    ArgumentError
        If there is not one for each point.
    """
    if not isinstance(noise_variance, np.ndarray):
        return np.full(len(seen.X), float(noise_variance))
    if noise_variance.shape != seen.given.shape:
        shape = seen.given.shape
        where = f"{shape[0]} points, in their order" if seen.grid is None else "grid (latitude, longitude)"
        raise ArgumentError(
            f"the prior has a noise_variance of shape {noise_variance.shape}; expected one number, or an "
            f"array of shape {shape}, one for each of the {where}. Make a Prior for these observations."
        )
    if seen.layout is None or seen.grid is None:
        return np.asarray(noise_variance[seen.given])
    merged, _ = _merged_poles(noise_variance[None], seen.given, seen.grid)
    return np.asarray(seen.layout.restrict(merged[:, seen.given.any(axis=1)])[0])


def as_targets(X_test: ArrayLike | LatLonGrid, *, columns: int) -> Targets:
    """Check targets: points with ``columns`` coordinates, or a grid.

    Raises
    ------
    ArgumentError
        If they have other coordinates than the observed points.
    """
    targets: Targets = X_test if isinstance(X_test, LatLonGrid) else as_points("X_test", X_test)
    found = 3 if isinstance(targets, LatLonGrid) else targets.shape[1]
    if found != columns:
        raise ArgumentError(
            f"X has {columns} columns, X_test {found}; both need the same coordinates (those of a grid are "
            "cagp_dist.unit_sphere's)."
        )
    return targets


def make_problem(
    prior: PriorLike,
    seen: Observed,
    targets: Targets,
    *,
    full_covariance: bool,
    executor: Executor,
    memory_limit_bytes: int,
) -> Problem:
    """Remove the prior mean and choose the Gram matrix.

    Raises
    ------
    ArgumentError
        If the prior mean has neither one column nor one for each field, or the noise not one variance for
        each point.
    """
    centre = prior.mean_at(seen.X)
    if centre.shape[1] not in (1, seen.values.shape[1]):
        raise ArgumentError(
            f"the prior mean has {centre.shape[1]} columns for {seen.values.shape[1]} fields; expected one "
            "column, or one per field."
        )
    gram: Gram
    noise = noise_of(prior.noise_variance, seen)
    if seen.layout is None:
        gram = TiledGram(prior.kernel, seen.X, noise_variance=noise)
    else:
        by_latitude = mean_by_latitude(seen.layout, noise)
        rings = RingGram(
            seen.layout.grid,
            prior.kernel,
            noise_variance=by_latitude,
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
        )
        observed = seen.layout.observed
        even = np.array_equal(noise, rings.noise_variance[seen.layout.index])
        whole = even and observed.all()
        gram = rings if whole else MaskedRings(rings, observed, noise_variance=None if even else noise)
    return Problem(gram, seen.values - centre, targets, full_covariance=full_covariance)


def mean_by_latitude(layout: Layout, noise_variance: Array) -> Array:
    """Geometric mean (P,) of the noise (n,) of the observed points of each latitude; equal ones exactly."""
    field = np.full(layout.grid.shape, np.nan)
    field[layout.observed] = noise_variance
    low, high = np.nanmin(field, axis=1), np.nanmax(field, axis=1)
    return np.asarray(np.where(low == high, low, np.exp(np.nanmean(np.log(field), axis=1))))


def demand_of(problem: Problem, executor: Executor, memory_limit_bytes: int) -> Demand:
    """Give the size of a problem, from which its solve is planned."""
    gram, targets = problem.gram, problem.targets
    return Demand(
        n=gram.shape[0],
        q=problem.q,
        fields=problem.residuals.shape[1],
        full_covariance=problem.full_covariance,
        workers=executor.workers,
        shares_memory=executor.shares_memory,
        memory_limit_bytes=memory_limit_bytes,
        p=target_points(targets).shape[1],
        grid=None
        if not isinstance(gram, (RingGram, MaskedRings))
        else _size_of(gram, targets if isinstance(targets, LatLonGrid) else None),
    )


def _size_of(gram: RingGram | MaskedRings, targets: LatLonGrid | None) -> GridSize:
    if isinstance(gram, RingGram):
        return grid_size(gram.layout, targets, noise_by_latitude=gram.noise_by_latitude)
    low, high = gram.noise_range
    return grid_size(
        gram.layout, targets, noise_by_latitude=gram.rings.noise_by_latitude, noise_spread=high / low
    )


def grid_size(
    layout: Layout,
    targets: LatLonGrid | None = None,
    *,
    noise_by_latitude: Array | None = None,
    noise_spread: float = 1.0,
) -> GridSize:
    """Say in numbers what a solve needs to know of a grid, and of targets that are a grid.

    Without ``noise_by_latitude`` (P,) the noise is the same everywhere.
    """
    grid = layout.grid
    # poles that were observed once may make equal noise uneven
    rows = layout.row_noise(np.ones(grid.shape[0]) if noise_by_latitude is None else noise_by_latitude)
    views = None
    if targets is not None:
        # longitudes of the targets that no whole steps of this grid turn into each other, at each latitude
        steps = math.gcd(targets.n_longitudes, grid.n_longitudes)
        views = targets.shape[0] * (targets.n_longitudes // steps)
    return GridSize(
        *grid.shape,
        missing=int(np.count_nonzero(layout.missing)),
        mirrored=grid.mirrored and np.array_equal(rows, rows[::-1]),
        targets_are_grid=targets is not None and targets.same_points(grid),
        target_views=views,
        noise_spread=noise_spread,
        window=layout.window[1],
        missing_in_window=layout.missing_in_window,
    )
