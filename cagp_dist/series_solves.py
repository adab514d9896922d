"""Fields at several times, checked, and solves by modes in space and time where their gaps differ."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.checks import as_points
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.series_gaps import SeriesWithGaps
from cagp_dist.gram.series_gram import SeriesGram
from cagp_dist.kernels import Elementary
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.prior import Prior
from cagp_dist.space_time import SpaceTime, check_space_time
from cagp_dist.time_factors import Gneiting, Periodic

if TYPE_CHECKING:
    from cagp_dist.runtime import ExecutorLike
    from cagp_dist.solvers import Solver


class Series(NamedTuple):
    """Fields of the same places at some times, checked."""

    kernel: SpaceTime
    X: "LatLonGrid | ArrayLike"  # as it was given
    where: Array  # (n, 3): unit vectors
    times: Array  # (T,): hours
    values: Array  # (T, n) or (T, P, Q), without the prior mean; NaN where nothing was observed

    @property
    def in_time(self) -> Elementary | Periodic:
        """Kernel in time."""
        assert isinstance(self.kernel.time, Elementary | Periodic)
        return self.kernel.time

    @property
    def gaps_differ(self) -> bool:
        """Whether values are missing, on a grid at some of the times only: Rings knows gaps of one time."""
        missing = np.isnan(self.values)
        if not isinstance(self.X, LatLonGrid):
            return bool(missing.any())
        return bool((missing.any(axis=0) != missing.all(axis=0)).any())


def series_of(prior: Prior, X: "ArrayLike | LatLonGrid", hours: ArrayLike, y: ArrayLike) -> Series:
    """Check fields, and take their mean away if it is known."""
    kernel = prior.kernel
    if not isinstance(kernel, SpaceTime) or kernel.time is None or isinstance(kernel.time, Gneiting):
        raise ArgumentError(
            f"the kernel is {kernel!r}; expected a product, cagp.SpaceTime(in_space, in_time). With "
            "other kernels of space and time condition on points X (n, 4)."
        )
    where, times = unit_vectors("X", X), in_hours("hours", hours)
    values = np.array(y, dtype=np.float64)
    _check(times, values, where, gridded=isinstance(X, LatLonGrid))
    for field, hour in zip(values, times, strict=True) if not prior.estimates_mean else ():
        field -= mean_at_hour(prior, where, hour).reshape(field.shape)
    return Series(kernel, X, where, times, values)


@contextmanager
def gappy_series(
    prior: Prior,
    series: Series,
    solver: "Solver",
    *,
    executor: "ExecutorLike",
    memory_limit_bytes: int | None,
) -> Iterator[SeriesWithGaps]:
    """Make what solves for fields whose gaps differ: of a grid by `Rings`, of places by `Cholesky`."""
    from cagp_dist.runtime import given_or_threads
    from cagp_dist.solvers.exact.exact_solvers import Cholesky, Rings

    grid = series.X if isinstance(series.X, LatLonGrid) else None
    if not isinstance(solver, Cholesky if grid is None else Rings):
        raise ArgumentError(
            f"values are missing at some of the times, or the mean is estimated, and solver is {solver!r}; "
            "expected cagp.Rings() of a grid, or cagp.Cholesky() of unit vectors X (n, 3). Or condition on "
            "points X (n, 4), unit vectors and hours, with cagp.Neighbours."
        )
    with given_or_threads(executor, memory_limit_bytes) as (opened, limit):
        gram = SeriesGram(
            series.where if grid is None else grid,
            series.kernel,
            series.times,
            noise_variance=_noise_of(prior, series, grid),
            executor=opened,
            memory_limit_bytes=limit,
        )
        observed = ~np.isnan(series.values)
        observed[:, gram.poles] = observed[:, gram.poles].any(axis=-1, keepdims=True)
        yield SeriesWithGaps(gram, observed)


def _noise_of(prior: Prior, series: Series, grid: LatLonGrid | None) -> Array:
    """Noise by place, or by latitude."""
    noise, shape = np.asarray(prior.noise_variance, dtype=np.float64), series.values.shape[1:]
    if noise.size not in (1, len(series.where)):
        raise ArgumentError(
            f"noise_variance has shape {noise.shape}; expected one number, or one for each of the "
            f"{len(series.where):,} places."
        )
    noise = np.broadcast_to(noise.reshape(shape) if noise.size > 1 else noise, shape)
    if grid is None:
        return noise.copy()
    if not (noise == noise[:, :1]).all():
        raise ArgumentError(
            "noise_variance varies along a latitude, and gaps differ between times; expected noise by "
            "latitude, or places as unit vectors with cagp.Cholesky()."
        )
    return noise[:, 0].copy()


def unit_vectors(name: str, where: object) -> Array:
    """Give the unit vectors (n, 3) of places or of a grid."""
    if isinstance(where, LatLonGrid):
        return where.points
    points = as_points(name, cast("ArrayLike", where))
    if points.shape[1] != 3:
        raise ArgumentError(
            f"{name} has {points.shape[1]} columns; expected unit vectors (n, 3), without hours."
        )
    check_space_time(np.column_stack([points, np.zeros(len(points))]))
    return points


def in_hours(name: str, hours: ArrayLike) -> Array:
    """Hours (A,) that are numbers."""
    given = np.atleast_1d(np.asarray(hours))
    if given.ndim != 1 or given.dtype.kind not in "iuf" or not np.isfinite(given).all():
        raise ArgumentError(
            f"{name} is {hours!r}; expected hours, finite numbers. Of dates: (dates - dates.min()) / "
            'np.timedelta64(1, "h").'
        )
    return given.astype(np.float64)


def _check(times: Array, values: Array, where: Array, *, gridded: bool) -> None:
    """Refuse what is no complete series of fields at the same places."""
    if times.ndim != 1 or np.unique(times).size != times.size or times.size == 0:
        raise ArgumentError(f"hours is {times!r}; expected one number for each time, no two the same.")
    if np.isinf(values).any():
        raise ArgumentError("y holds infinity; expected numbers, and NaN where nothing was observed.")
    if len(values) != times.size or values.size != times.size * len(where):
        shape = "(T, P, Q)" if gridded else "(T, n)"
        raise ArgumentError(
            f"y has shape {values.shape}; expected {shape} with T = {times.size} times and "
            f"{len(where)} places."
        )


def basis_at_hours(prior: Prior, where: Array, hours: Array) -> Array:
    """Columns of a mean that is estimated, of places (n, 3) at hours (A,), shape (k, A, n)."""
    points = np.column_stack([np.tile(where, (hours.size, 1)), np.repeat(hours, len(where))])
    return np.ascontiguousarray(prior.basis_at(points).T).reshape(-1, hours.size, len(where))


def mean_at_hour(prior: Prior, where: Array, hour: float) -> Array:
    """Prior mean (n,) at places at one time."""
    if not callable(prior.mean):  # a number
        return np.broadcast_to(prior.mean_at(where[:1])[:, 0], len(where))
    return prior.mean_at(np.column_stack([where, np.full(len(where), hour)]))[:, 0]
