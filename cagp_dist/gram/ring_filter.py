"""Fields of a whole grid, one time after another: filter and smoother of kernels that are Markov in time."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.checks import as_numbers
from cagp_dist.errors import ArgumentError, FitError
from cagp_dist.geometry import is_pole
from cagp_dist.gram.gaps import batches
from cagp_dist.gram.ring_gram import RingGram, cross_on_grid
from cagp_dist.gram.targets import prior_variance, seen_from
from cagp_dist.kernels import Elementary, Matern12, Matern32
from cagp_dist.latlon.entries import PlacesOnGrid
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.grid_layout import Views
from cagp_dist.latlon.ring_states import (
    RangeModes,
    SeriesStep,
    explained_range,
    field_range,
    forecast_states,
    innovation_blocks_range,
    innovation_range,
    modes_range,
    projected_modes,
    series_log_density,
    smooth_range,
    update_range,
    variance_range,
)
from cagp_dist.runtime import Executor, Handle
from cagp_dist.space_time import SpaceTime

T = TypeVar("T")

CURVED = 0.05  # step in the logarithm of a lengthscale by which the curvature of a likelihood is found
AT_AN_END = 0.01  # of the logarithm of a lengthscale: as near to a limit of the search it has ended there


@dataclass(frozen=True, eq=False)
class RingState:
    """What is known of the fields of a grid after the observations up to an hour."""

    hour: float
    #: (m, P, Q): of the kernel in space. The mean at a place is ``k(place, grid)`` times the first of them; m
    #: is 1 for Matern 1/2 in time and 2 for Matern 3/2, of which the second belongs to the rate of change
    weights: Array
    #: (m, m, Q // 2 + 1, P): of each mode of each wavenumber, in units of its prior variance
    covariance: Array


@dataclass(frozen=True, eq=False)
class RingInnovation:
    """What of the field of an hour the hours before it did not tell, ``b``."""

    before: RingState  # Before the hour
    hour: float
    values: Array  # (P, Q): the field; copies of a pole are their mean
    # (P, Q) and (P,): ``G^-1 b``, and the diagonal of ``G^-1``, of the covariance G of values expected before
    solved: Array
    diagonal: Array


class RingFilter:
    """The posterior of today's field on a grid from that of yesterday, exactly.

    For fields that are observed at all points each time, with the same noise, and a product kernel that is
    Markov in time. A further time costs a few products of the grid instead of a solve with all times.

    Parameters
    ----------
    grid : LatLonGrid
        Full-circle grid. The copies of a pole are one observation, their mean.
    kernel : SpaceTime
        A product with `Matern12` or `Matern32` in time.
    noise_variance : float or array_like, shape (P,)
        Noise variance of each value, for all points or by latitude; above zero.
    executor : Executor, optional
        Where modes are made and kept; by default all cores of this process.
    memory_limit_bytes : int, optional
        What the modes may take.

    Raises
    ------
    ArgumentError
        If the kernel is none of these, or another argument has the wrong type or shape.
    BudgetError
        On the first use, if the modes do not fit into memory.

    Notes
    -----
    Modes cost an eigendecomposition of each wavenumber once, 9 P^3 Q / 2 flops (a quarter on a mirrored
    grid), and 4 P^2 Q bytes; each time 4 P^2 Q flops for the mean, P^2 Q for the variance. A state
    has m P Q weights and m^2 P Q / 2 variances. Source: math 21.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> grid = cagp.LatLonGrid(np.linspace(-60.0, 60.0, 5), 8)
    >>> kernel = cagp.SpaceTime(cagp.Matern32(0.5, 2.0), cagp.Matern12(24.0))
    >>> days = cagp.RingFilter(grid, kernel, noise_variance=0.5)
    >>> state, fields = None, np.random.default_rng(0).normal(size=(3, *grid.shape))
    >>> for hour, field in zip([0.0, 24.0, 72.0], fields):      # a day is missing
    ...     state = days.updated(state, hour, field)
    >>> mean, variance = days.on_grid(days.forecast(state, 96.0))
    >>> mean.shape, variance.round(2)
    ((5, 8), array([1.77, 1.78, 1.78, 1.78, 1.77]))
    """

    def __init__(
        self,
        grid: LatLonGrid,
        kernel: SpaceTime,
        *,
        noise_variance: float | ArrayLike,
        executor: Executor | None = None,
        memory_limit_bytes: int | None = None,
    ) -> None:
        if not isinstance(kernel, SpaceTime) or not isinstance(kernel.time, MARKOV):
            raise ArgumentError(
                f"the kernel is {kernel!r}; expected a product whose kernel in time is Markov, such as "
                "cagp.SpaceTime(cagp.Matern32(0.3), cagp.Matern12(24.0)): Matern12 or Matern32."
            )
        self.time: Elementary = kernel.time
        self.executor = executor
        rings = RingGram(grid, kernel.space, noise_variance=noise_variance)
        noise = rings.noise_by_latitude.copy()
        self.poles = np.flatnonzero(is_pole(grid.latitude_degrees))
        noise[self.poles] *= grid.n_longitudes  # so many observations of one place, each with that noise
        self.rings = RingGram(
            grid, kernel.space, noise_variance=noise, executor=executor, memory_limit_bytes=memory_limit_bytes
        )
        self._modes: Sequence[Handle[RangeModes] | RangeModes] = []

    def updated(self, state: RingState | None, hour: float, field: ArrayLike) -> RingState:
        """State after the field (P, Q) of an hour, without its prior mean; of the first hour from None."""
        before = self._before(state, hour)
        values = self._checked(field, self.rings.grid.shape)[None]
        new, covariances = _by_sector_and_number(self._each(update_range, self._news(before, hour, values)))
        covariance = [np.concatenate(parts, axis=2) for parts in covariances]
        return RingState(hour, self._joined(new), np.concatenate(covariance, axis=3))

    def forecast(self, state: RingState, hour: float) -> RingState:
        """State of a later hour from the same observations."""
        weights, covariance = forecast_states(
            state.weights, state.covariance, self._transition(hour - state.hour)
        )
        return RingState(hour, weights, covariance)

    def with_time(self, time: Elementary) -> "RingFilter":
        """Give the same filter with another kernel in time, on which the modes do not depend."""
        found = copy(self)
        found.time = time
        return found

    def fitted_hours(self, hours: ArrayLike, fields: ArrayLike) -> tuple[float, float]:
        """Lengthscale in time of largest likelihood of the fields (T, P, Q) of some hours, all else as it is.

        Between a twentieth of the shortest gap and twenty times the whole series; raises `FitError` where it
        ends at one of these. Each likelihood is T P Q flops. With its standard error, were all else known.
        """
        from scipy.optimize import minimize_scalar

        times = np.asarray(hours, dtype=np.float64)
        if times.ndim != 1 or times.size < 2 or np.unique(times).size < times.size:
            raise ArgumentError(f"hours is {times!r}; expected two or more, no two the same.")
        order = np.argsort(times)
        columns = self._split(self._checked(fields, (times.size, *self.rings.grid.shape))[order])
        gaps = np.diff(times[order], prepend=times[order[0]])
        wavenumbers = self.rings.wavenumbers
        parts = self._each(projected_modes, lambda first, last: ([part[first:last] for part in columns],))

        def loss(log_hours: float) -> float:
            kernel = type(self.time)(float(np.exp(log_hours)))
            steps = [transition_of(kernel, gap) for gap in gaps.tolist()]
            return -sum(
                series_log_density(z, mu, wavenumbers.weights[first:last], steps)
                for (first, last), sectors in zip(wavenumbers.ranges(), parts, strict=True)
                for z, mu in sectors
            )

        ends = np.log(0.05 * gaps[1:].min()), np.log(20.0 * gaps.sum())
        found = minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-3})
        if min(found.x - ends[0], ends[1] - found.x) < AT_AN_END:
            raise FitError(
                f"the lengthscale in time ended at a limit, {np.exp(found.x):.3g} hours: these fields do not "
                "tell it. Give it, or fields of hours that lie closer together or further apart."
            )
        best = float(np.exp(found.x))
        curvature = (loss(found.x + CURVED) - 2.0 * found.fun + loss(found.x - CURVED)) / CURVED**2
        return best, best / float(np.sqrt(curvature)) if curvature > 0.0 else float("nan")

    def on_grid(self, state: RingState) -> tuple[Array, Array]:
        """Mean (P, Q) of the field and its variance by latitude (P,)."""
        weights, sectors = self._split(state.weights[:1]), self._by_sector(state.covariance[0, 0])
        count = self.rings.wavenumbers.weights
        fields = self._each(field_range, lambda first, last: ([part[first:last] for part in weights],))
        variances = self._each(
            variance_range,
            lambda first, last: ([part[first:last] for part in sectors], count[first:last]),
        )
        return self._joined(list(zip(*fields, strict=True)))[0], self._by_latitude(
            list(zip(*variances, strict=True))
        )

    def at(self, state: RingState, points: Array) -> tuple[Array, Array]:
        """Mean and variance (q,) of the field at unit vectors (q, 3) anywhere."""
        grid, kernel = self.rings.grid, self.rings.kernel
        columns = state.weights[0].reshape(-1, 1)
        with self.rings.workers() as executor:
            mean = cross_on_grid(
                self.rings,
                grid,
                points,
                columns,
                lambda: self.on_grid(state)[0].reshape(-1, 1),
                lambda: columns.T,
                executor=executor,
            )[:, 0]
        views = Views.of(points, grid)
        explained = np.concatenate(
            [
                self._explained(state, seen_from(kernel, views.points[group], grid.points))
                for group in batches(len(views.points))
            ]
        )
        return mean, np.maximum(prior_variance(kernel, points) - explained[views.view], 0.0)

    def _explained(self, state: RingState, seen: Array) -> Array:
        """Part (v,) of the variance of places that is known, by their covariances (v, P Q) with the grid."""
        columns = self._split(seen.reshape(-1, *self.rings.grid.shape))
        sectors = self._by_sector(state.covariance[0, 0])
        count = self.rings.wavenumbers.weights
        parts = self._each(
            explained_range,
            lambda first, last: (
                [part[first:last] for part in sectors],
                count[first:last],
                [part[first:last] for part in columns],
            ),
        )
        return np.asarray(np.sum(parts, axis=0))

    def innovation(self, state: RingState | None, hour: float, field: ArrayLike) -> RingInnovation:
        """Compare the field (P, Q) of an hour with what the state before it told."""
        before, values = self._before(state, hour), self._checked(field, self.rings.grid.shape)
        weights, news = self.rings.wavenumbers.weights, self._news(before, hour, values[None])
        solved, diagonal = _by_sector_and_number(
            self._each(innovation_range, lambda first, last: (*news(first, last), weights[first:last]))
        )
        return RingInnovation(before, hour, values, self._joined(solved)[0], self._by_latitude(diagonal))

    def left_out(self, new: RingInnovation) -> tuple[Array, Array]:
        """Predict each value of the field of an hour from all others of it and the state before.

        Mean (P, Q) and variance (P,) are of an observation, noise included; copies of a pole are left out
        together.
        """
        mean, variance = new.values - new.solved / new.diagonal[:, None], 1.0 / new.diagonal
        for pole in self.poles:  # one place, whose copies say the same
            at, latent = self.held_out(new, np.array([pole * self.rings.grid.n_longitudes]))
            noise = self.rings.noise_by_latitude[pole] / self.rings.grid.n_longitudes
            mean[pole], variance[pole] = at[0], latent[0] + noise
        return mean, variance

    def held_out(self, new: RingInnovation, index: Indices) -> tuple[Array, Array]:
        """Predict the field of an hour at some points from all others of it and the state before.

        ``index`` (r,) are places in the flattened grid; of a pole all copies are held out. Mean and variance
        (r,) are latent, without noise.
        """
        mask = np.zeros(self.rings.grid.shape, dtype=bool)
        mask.flat[index] = True
        mask[self.poles] |= mask[self.poles].any(axis=1, keepdims=True)
        places = PlacesOnGrid.of(self.rings.wavenumbers, mask)
        sectors = self._by_sector(new.before.covariance)
        transition = self._transition(new.hour - new.before.hour)
        parts = self._each(
            innovation_blocks_range,
            lambda first, last: (
                [part[:, :, first:last] for part in sectors],
                transition,
                places.sector_rows,
            ),
        )
        inverse = places.entries([np.concatenate(blocks, axis=2) for blocks in zip(*parts, strict=True)])
        covariance = np.linalg.inv(inverse)
        mean, variance = new.values.copy(), np.zeros(new.values.shape)
        mean[mask] -= covariance @ new.solved[mask]
        variance[mask] = np.diagonal(covariance) - self.rings.noise_by_latitude[places.rows]
        return mean.flat[index], np.maximum(variance.flat[index], 0.0)

    def _news(
        self, before: RingState, hour: float, values: Array
    ) -> Callable[[int, int], tuple[object, ...]]:
        """Give what a range of wavenumbers takes to compare fields (1, P, Q) with the state before them."""
        transition = self._transition(hour - before.hour)
        columns, weights = self._split(values), self._split(before.weights)
        covariances = self._by_sector(before.covariance)
        return lambda first, last: (
            [part[first:last] for part in weights],
            [part[:, :, first:last] for part in covariances],
            [part[first:last] for part in columns],
            transition,
        )

    def smoothed(self, hours: ArrayLike, fields: ArrayLike, at: ArrayLike) -> tuple[Array, Array]:
        """Mean (A, P, Q) and variance by latitude (A, P) at hours, from the fields (T, P, Q) of all hours.

        Modes are not kept: memory is that of the fields, the means, and a range of wavenumbers by worker.
        """
        times, wanted = np.asarray(hours, dtype=np.float64), np.asarray(at, dtype=np.float64)
        for name, each in (("hours", times), ("at", wanted)):
            if each.ndim != 1 or not each.size or np.unique(each).size < each.size:
                raise ArgumentError(f"{name} is {each!r}; expected numbers (T,), no two the same.")
        columns = self._split(self._checked(fields, (times.size, *self.rings.grid.shape)))
        steps = self._steps(times, wanted)
        rings, spans = self.rings, self.rings.wavenumbers.ranges()
        parts: list[list[tuple[Array, Array]]] = []
        with rings.workers() as executor:
            for start in range(0, len(spans), executor.workers):
                parts += executor.gather(
                    [
                        executor.submit(
                            smooth_range,
                            rings.kernel.parameters,
                            rings.wavenumbers,
                            (first, last),
                            rings.noise_by_latitude,
                            [part[first:last] for part in columns],
                            steps,
                        )
                        for first, last in spans[start : start + executor.workers]
                    ]
                )
        means, variances = _by_sector_and_number(parts)
        by_hour = zip(*([*zip(*ranges, strict=True)] for ranges in variances), strict=True)
        return self._joined(means), np.stack([self._by_latitude(list(sectors)) for sectors in by_hour])

    def _steps(self, times: Array, wanted: Array) -> list[SeriesStep]:
        """All hours in order: what was observed then, and which result it is."""
        hours = np.union1d(times, wanted)
        column, out = (dict(zip(each.tolist(), range(each.size), strict=True)) for each in (times, wanted))
        gaps = np.diff(hours, prepend=hours[:1])
        return [
            SeriesStep(self._transition(gap), column.get(hour), out.get(hour))
            for gap, hour in zip(gaps.tolist(), hours.tolist(), strict=True)
        ]

    def _transition(self, hours: float) -> Array:
        """Matrix that carries a state so many hours on."""
        if hours < 0.0:
            raise ArgumentError(f"the hour lies {-hours:g} hours before the state; expected a later one.")
        return transition_of(self.time, hours)

    def _before(self, state: RingState | None, hour: float) -> RingState:
        """State before an hour; None: nothing was observed."""
        if state is not None:
            return state
        m, grid = self._transition(0.0).shape[0], self.rings.grid
        covariance = np.zeros((m, m, self.rings.wavenumbers.count, grid.shape[0]))
        covariance[range(m), range(m)] = 1.0
        return RingState(hour, np.zeros((m, *grid.shape)), covariance)

    def _checked(self, fields: ArrayLike, shape: tuple[int, ...]) -> Array:
        """Fields without gaps; the copies of a pole are replaced by their mean."""
        values = as_numbers("field", fields)
        if values.shape != shape or not np.isfinite(values).all():
            raise ArgumentError(
                f"fields have shape {values.shape} and {np.count_nonzero(~np.isfinite(values)):,} values "
                f"that are not finite; expected {shape}, without gaps."
            )
        values = values.astype(np.float64)
        values[..., self.poles, :] = values[..., self.poles, :].mean(axis=-1, keepdims=True)
        return values

    def _joined(self, sectors: "Sequence[Sequence[Array]]") -> Array:
        """Fields (r, P, Q) from the columns of each range of wavenumbers, for each sector."""
        return self.rings.wavenumbers.join([np.concatenate(ranges) for ranges in sectors])

    def _by_latitude(self, sectors: "Sequence[Sequence[Array]]") -> Array:
        """Mean along each latitude (P,) from sums of each range of wavenumbers, for each sector."""
        summed = [np.sum(ranges, axis=0) for ranges in sectors]
        return self.rings.wavenumbers.to_rings(summed) / self.rings.grid.n_longitudes

    def _split(self, fields: Array) -> list[Array]:
        """Columns of each sector."""
        return self.rings.wavenumbers.split(fields)

    def _by_sector(self, covariance: Array) -> list[Array]:
        """Parts (..., wavenumbers, size) of what is kept of all modes (..., wavenumbers, P)."""
        return np.split(covariance, np.cumsum(self.rings.wavenumbers.sizes)[:-1], axis=-1)

    def _each(
        self, function: Callable[..., T], arguments: Callable[[int, int], tuple[object, ...]]
    ) -> list[T]:
        """Call a function of the modes of each range, which are made at first."""
        if not self._modes:
            self._modes = self.rings.make(modes_range, self.rings.noise_by_latitude, copies=2.0)
        with self.rings.workers() as executor:
            return executor.gather(
                [
                    executor.submit(function, modes, *arguments(first, last), home=home)
                    for home, (modes, (first, last)) in enumerate(
                        zip(self._modes, self.rings.wavenumbers.ranges(), strict=True)
                    )
                ]
            )


def _by_sector_and_number(
    parts: Sequence[Sequence[tuple[Array, Array]]],
) -> tuple[list[list[Array]], list[list[Array]]]:
    """Sort pairs of each sector of each range into the first and the second ones, range by range."""
    sectors = list(zip(*parts, strict=True))
    first, second = ([[part[number] for part in ranges] for ranges in sectors] for number in (0, 1))
    return first, second


MARKOV = Matern12, Matern32
"""Kernels whose present tells of their past all that the future needs."""


def transition_of(kernel: Elementary, hours: float) -> Array:
    """Matrix that carries the state of a Markov kernel so many hours on; in units of its prior variance."""
    if isinstance(kernel, Matern12):
        return np.exp([[-hours / kernel.common_lengthscale]])
    assert isinstance(kernel, Matern32)
    lag = np.sqrt(3.0) * hours / kernel.common_lengthscale
    return np.asarray(np.exp(-lag) * np.array([[1.0 + lag, lag], [-lag, 1.0 - lag]]))
