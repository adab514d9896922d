"""Fields of a whole grid, one time after another: a filter of kernels that are Markov in time (math 21).

Modes in space (`cagp_dist.gram.space_modes`) are states of one or two numbers, of unit variance times mu,
that are observed with noise of variance one. States are kept as weights ``a`` of the kernel, ``f = K a``, for
these need no division by mu, which may be zero::

    forecast  a <- F a,                      P <- F P F' + I - F F'
    update    a <- a + P_0 (z - mu a_0) / S,  P <- P - P_0 P_0' mu / S,   z = V' D^-1/2 y,  S = 1 + mu P_00
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.checks import as_numbers
from cagp_dist.errors import ArgumentError, FitError
from cagp_dist.gram.leave_one_out import LeaveOneOut, from_others
from cagp_dist.gram.ring_gram import RingGram
from cagp_dist.gram.space_modes import SpaceModes
from cagp_dist.kernels import Elementary, Matern12, Matern32
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.runtime import Executor
from cagp_dist.space_time import SpaceTime

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
    solved: Array  # (P, Q): ``G^-1 b``, of the covariance G of values expected before
    inverse: Array  # (Q // 2 + 1, P): of each mode of each wavenumber, that of G


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
    heard : callable, optional
        Gets the part of the modes that is made, 0 to 1, while that is done.

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
        heard: Callable[[float], None] = lambda part: None,
    ) -> None:
        if not isinstance(kernel, SpaceTime) or not isinstance(kernel.time, MARKOV):
            raise ArgumentError(
                f"the kernel is {kernel!r}; expected a product whose kernel in time is Markov, such as "
                "cagp.SpaceTime(cagp.Matern32(0.3), cagp.Matern12(24.0)): Matern12 or Matern32.",
                key="not-markov",
            )
        self.time: Elementary = kernel.time
        self.grid, self.executor = grid, executor
        self._modes = SpaceModes(
            grid,
            kernel.space,
            noise_variance=RingGram(grid, kernel.space, noise_variance=noise_variance).noise_by_latitude,
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
            heard=heard,
        )

    def updated(self, state: RingState | None, hour: float, field: ArrayLike) -> RingState:
        """State after the field (P, Q) of an hour, without its prior mean; of the first hour from None."""
        before, values = self._before(state, hour), self._checked(field, self.grid.shape)
        mu = self._modes.mu
        states, covariance = self._ahead(before, hour)
        z = self._modes.project(values[None])
        states, covariance = _updated(states, covariance, z, mu)
        return RingState(hour, self._modes.lift(np.concatenate(list(states), axis=-1)), covariance)

    def forecast(self, state: RingState, hour: float) -> RingState:
        """State of a later hour from the same observations."""
        return RingState(
            hour, *_forecast(state.weights, state.covariance, self._transition(hour - state.hour))
        )

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
            raise ArgumentError(
                f"hours is {times!r}; expected two or more, no two the same.", key="few-times"
            )
        order = np.argsort(times)
        z = self._modes.project(self._checked(fields, (times.size, *self.grid.shape))[order])
        gaps = np.diff(times[order], prepend=times[order[0]])

        def loss(log_hours: float) -> float:
            kernel = type(self.time)(float(np.exp(log_hours)))
            steps = [transition_of(kernel, gap) for gap in gaps.tolist()]
            return -_log_density(z, self._modes.mu, self._modes.counts, steps)

        ends = np.log(0.05 * gaps[1:].min()), np.log(20.0 * gaps.sum())
        found = minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-3})
        if min(found.x - ends[0], ends[1] - found.x) < AT_AN_END:
            raise FitError(
                f"the lengthscale in time ended at a limit, {np.exp(found.x):.3g} hours: these fields do not "
                "tell it. Give it, or fields of hours that lie closer together or further apart.",
                key="lengthscale-in-time",
            )
        best = float(np.exp(found.x))
        curvature = (loss(found.x + CURVED) - 2.0 * found.fun + loss(found.x - CURVED)) / CURVED**2
        return best, best / float(np.sqrt(curvature)) if curvature > 0.0 else float("nan")

    def on_grid(self, state: RingState) -> tuple[Array, Array]:
        """Mean (P, Q) of the field and its variance by latitude (P,)."""
        mean = self._modes.field(self._modes.of_weights(state.weights[:1]))[0]
        return mean, self._modes.variance(state.covariance[0, :1])[0]

    def at(self, state: RingState, points: Array) -> tuple[Array, Array]:
        """Mean and variance (q,) of the field at unit vectors (q, 3) anywhere."""
        mean = self._modes.field_at(points, state.weights[:1])[0]
        return mean, self._modes.variance_at(points, state.covariance[0, :1])[0]

    def innovation(self, state: RingState | None, hour: float, field: ArrayLike) -> RingInnovation:
        """Compare the field (P, Q) of an hour with what the state before it told."""
        before, values = self._before(state, hour), self._checked(field, self.grid.shape)
        (states, covariance), mu = self._ahead(before, hour), self._modes.mu
        inverse = 1.0 / (1.0 + mu * covariance[0, 0])
        news = self._modes.project(values[None]) - mu[..., None] * states[0]
        return RingInnovation(before, hour, values, self._modes.lift(inverse[..., None] * news)[0], inverse)

    def left_out(self, new: RingInnovation) -> LeaveOneOut:
        """Predict each value of the field of an hour from all others of it and the state before.

        Mean (P, Q) and variance (P, 1) are of an observation, noise included; copies of a pole are left out
        together.
        """
        precision = self._modes.precision(new.inverse[None])[0][:, None]
        return from_others(new.values, self._modes.of_observations(new.solved), precision)

    def held_out(self, new: RingInnovation, index: Indices) -> tuple[Array, Array]:
        """Predict the field of an hour at some points from all others of it and the state before.

        ``index`` (r,) are places in the flattened grid; of a pole all copies are held out. Mean and variance
        (r,) are latent, without noise.
        """
        mask, poles = np.zeros(self.grid.shape, dtype=bool), self._modes.poles
        mask.flat[index] = True
        mask[poles] |= mask[poles].any(axis=1, keepdims=True)
        inverse, rows = self._modes.inverse_at(new.inverse, mask)
        covariance = np.linalg.inv(inverse)
        mean, variance = new.values.copy(), np.zeros(new.values.shape)
        mean[mask] -= covariance @ new.solved[mask]
        variance[mask] = np.diagonal(covariance) - self._modes.noise[rows]
        return mean.flat[index], np.maximum(variance.flat[index], 0.0)

    def _ahead(self, before: RingState, hour: float) -> tuple[Array, Array]:
        """States (m, K, P, 2) of an hour and their covariance, from the state before it."""
        transition = self._transition(hour - before.hour)
        states = self._modes.of_weights(before.weights)
        by_state = np.moveaxis(states.reshape(*states.shape[:2], -1, 2), 2, 0)
        return _forecast(by_state, before.covariance, transition)

    def _transition(self, hours: float) -> Array:
        """Matrix that carries a state so many hours on."""
        if hours < 0.0:
            raise ArgumentError(
                f"the hour lies {-hours:g} hours before the state; expected a later one.",
                key="hour-before-state",
            )
        return transition_of(self.time, hours)

    def _before(self, state: RingState | None, hour: float) -> RingState:
        """State before an hour; None: nothing was observed."""
        if state is not None:
            return state
        m, rows = self._transition(0.0).shape[0], self.grid.shape[0]
        return RingState(hour, np.zeros((m, *self.grid.shape)), _prior(m, (self._modes.counts.size, rows)))

    def _checked(self, fields: ArrayLike, shape: tuple[int, ...]) -> Array:
        """Fields without gaps; the copies of a pole are replaced by their mean."""
        values = as_numbers("field", fields)
        if values.shape != shape or not np.isfinite(values).all():
            raise ArgumentError(
                f"fields have shape {values.shape} and {np.count_nonzero(~np.isfinite(values)):,} values "
                f"that are not finite; expected {shape}, without gaps.",
                key="shapes",
            )
        return self._modes.merged(values)


def _prior(m: int, shape: tuple[int, ...]) -> Array:
    """Give the covariance of states of m numbers before anything was observed."""
    covariance = np.zeros((m, m, *shape))
    covariance[range(m), range(m)] = 1.0
    return covariance


def _forecast(states: Array, covariance: Array, transition: Array) -> tuple[Array, Array]:
    """Carry states (m, ...) and their covariance (m, m, ...) on; far ahead they are those of the prior."""
    ahead = np.einsum("ij,jl...,ml->im...", transition, covariance, transition, optimize=True)
    new = np.eye(len(transition)) - transition @ transition.T
    ahead += new.reshape(*new.shape, *(1,) * (covariance.ndim - 2))
    return np.tensordot(transition, states, axes=1), ahead


def _updated(states: Array, covariance: Array, z: Array, mu: Array) -> tuple[Array, Array]:
    """Observe modes z (K, P, 2)."""
    gain = covariance[:, 0] / (1.0 + mu * covariance[0, 0])
    states = states + gain[..., None] * (z - mu[..., None] * states[0])
    return states, covariance - mu * gain[:, None] * covariance[None, 0]


def _log_density(z: Array, mu: Array, counts: Array, transitions: Sequence[Array]) -> float:
    """Log density of modes (K, P, 2 T), ``counts`` fold, but for what no kernel in time changes."""
    m, total = len(transitions[0]), 0.0
    states, covariance = np.zeros((m, *mu.shape, 2)), _prior(m, mu.shape)
    for t, transition in enumerate(transitions):
        states, covariance = _forecast(states, covariance, transition)
        seen, spread = z[..., 2 * t : 2 * t + 2], 1.0 + mu * covariance[0, 0]
        surprise = ((seen - mu[..., None] * states[0]) ** 2).sum(axis=-1) / spread
        total -= 0.5 * float(counts @ (surprise + np.log(spread)).sum(axis=1))
        states, covariance = _updated(states, covariance, seen, mu)
    return total


MARKOV = Matern12, Matern32
"""Kernels whose present tells of their past all that the future needs."""


def transition_of(kernel: Elementary, hours: float) -> Array:
    """Matrix that carries the state of a Markov kernel so many hours on; in units of its prior variance."""
    if isinstance(kernel, Matern12):
        return np.exp([[-hours / kernel.common_lengthscale]])
    assert isinstance(kernel, Matern32)
    lag = np.sqrt(3.0) * hours / kernel.common_lengthscale
    return np.asarray(np.exp(-lag) * np.array([[1.0 + lag, lag], [-lag, 1.0 - lag]]))
