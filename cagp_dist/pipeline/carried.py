"""A field on a whole grid that is Markov in time: from its values at one time and the state before it.

The state has all points of the grid. What is held out is predicted without its values of that time.
"""

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.geometry import is_pole
from cagp_dist.gram.ring_filter import RingFilter, RingState
from cagp_dist.gram.targets import prior_variance
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.over_times import OF_MODES
from cagp_dist.pipeline.field_solves import Execution, LeftOut, Solution, SolveStep
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.grid_places import GridPlaces
from cagp_dist.pipeline.map_mean import mean_of_all
from cagp_dist.pipeline.map_points import Targets
from cagp_dist.pipeline.observations import Observations
from cagp_dist.prior import Prior
from cagp_dist.solvers import Status
from cagp_dist.space_time import SpaceTime


@dataclass(frozen=True, eq=False)
class CarriedField:
    """What is known of a field from times before."""

    state: RingState | None  # its hour is counted from the time of the observations; None: nothing is known
    held_out: Indices  # (k,) observations that are predicted without their values: the first of the targets
    days: RingFilter | None = None  # by which a lengthscale in time was fitted, with the modes of the grid


def update(
    carried: CarriedField,
    points: Observations,
    observed: Indices,
    model: FittedModel,
    targets: Targets,
    execution: Execution,
    *,
    left_out: bool,
) -> Solution:
    """Update the state with the observations of one time, and predict all targets.

    A mean that is fitted before is that of the places ``observed`` (n,). With ``left_out`` also each
    observation from the state and all others.
    """
    began, places, kernel, days = perf_counter(), points.grid, model.kernel, carried.days
    assert places is not None
    assert isinstance(kernel, SpaceTime)
    prior = prior_on_grid(model, points, observed)
    hour, wanted = 0.0, np.asarray(targets.points.wanted)
    if days is None or days.executor is not execution.executor:
        days = filter_of(places.grid, kernel, prior, execution)
    field = grid_fields(places, points.values - prior.mean_at(points.X).T)[0]
    state = days.updated(carried.state, hour, field)
    execution.progress(OF_MODES, "state of the hour")
    new = days.innovation(carried.state, hour, field)
    elsewhere = wanted[carried.held_out.size :]
    at_held = days.held_out(new, places.positions[carried.held_out])
    at_others = days.at(state, elsewhere) if len(elsewhere) else (np.empty(0), np.empty(0))
    mean, variance = (np.concatenate(parts)[None] for parts in zip(at_held, at_others, strict=True))
    known, each = prior.mean_at(wanted).T, None
    if left_out:
        by_others = days.left_out(new)
        values = by_others.mean.flat[places.positions] + prior.mean_at(points.X)[:, 0]
        spread = np.broadcast_to(by_others.variance, places.grid.shape)
        each = LeftOut(values[None], np.sqrt(spread.flat[places.positions])[None])
    seconds = perf_counter() - began
    execution.progress(1.0, "state of the hour")
    return Solution(
        steps=(
            SolveStep(0, known, np.sqrt(prior_variance(kernel.space, wanted))[None], 0.0),
            SolveStep(1, known + mean, np.sqrt(variance), seconds),
        ),
        status=Status.EXACT,
        plan=(
            f"states of {places.grid.size:,} points from the previous run, updated with "
            f"{points.count:,} values",
        ),
        computational_std=np.zeros(mean.shape),
        left_out=each,
        state=state,
    )


def prior_on_grid(model: FittedModel, points: Observations, observed: Indices) -> Prior:
    """Prior with the mean that was fitted to some of the points, and one noise for all."""
    return Prior(model.kernel, model.nugget, mean_of_all(model.mean, points, observed))


def grid_fields(places: GridPlaces, values: Array) -> Array:
    """Values (T, n) as fields (T, P, Q), with all copies of a pole."""
    fields, poles = places.fields(values), is_pole(places.grid.latitude_degrees)
    fields[:, poles] = fields[:, poles, :1]
    return fields


def filter_of(grid: LatLonGrid, kernel: SpaceTime, prior: Prior, execution: Execution) -> RingFilter:
    """Filter of a grid, whose modes are made where they are used first."""
    return RingFilter(
        grid,
        kernel,
        noise_variance=prior.noise_number,
        executor=execution.executor,
        memory_limit_bytes=execution.memory_limit_bytes,
        heard=lambda part: execution.progress(OF_MODES * part, "modes of the grid"),
    )
