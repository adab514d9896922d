"""A day of a field on a whole grid that is Markov in time: from its values and the state of the previous run.

The state has all points of the grid. Test and calibration points are predicted without their values of today.
"""

import json
from dataclasses import replace
from time import perf_counter

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import ConfigurationError
from cagp_dist.geometry import is_pole
from cagp_dist.gram.ring_filter import RingFilter, RingState
from cagp_dist.gram.ring_gram import many_places
from cagp_dist.gram.targets import prior_variance
from cagp_dist.kernels import KERNELS, Elementary, name_of
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.grid_layout import Views
from cagp_dist.pipeline import GridPlaces, Status, each
from cagp_dist.pipeline.field_solves import Execution, LeftOut, Solution, SolveStep
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.map_mean import mean_of_all
from cagp_dist.pipeline.observations import Observations, hours_since
from cagp_dist.pipeline.task import Task
from cagp_dist.prior import Prior
from cagp_dist.service.carried_state import Carried, describe_state
from cagp_dist.service.task import ChosenPoints, PreparedJob
from cagp_dist.space_time import SpaceTime
from cagp_dist.store import schema
from cagp_dist.store.published_variables import ERRORS_OF

SAME = 1e-6  # Relative difference of numbers of the prior up to which the state of the previous run goes on


def solve_filtered(
    prepared: PreparedJob, days: RingFilter | None, task: Task, model: FittedModel, execution: Execution
) -> Solution:
    """Update the state of the previous run with today's field, and predict what the job asks for.

    By the filter with which the lengthscale in time was fitted, where it has the modes of the grid.
    """
    began, points, kernel = perf_counter(), prepared.points, model.kernel
    carried, places = prepared.carried, points.grid
    assert places is not None
    assert carried is not None
    assert isinstance(kernel, SpaceTime)
    prior = _prior_of(model, points, prepared.design.train)
    grid, hour, targets = places.grid, 0.0, np.asarray(task.targets.points.wanted)
    _check_goes_on(carried, grid, prior)
    if days is None or days.executor is not execution.executor:
        days = _filter_of(grid, kernel, prior, execution)
    field = _fields(places, points.values - prior.mean_at(points.X).T)[0]
    execution.progress(None, "modes of the grid")
    state = days.updated(carried.state, hour, field)
    held = places.positions[np.concatenate([prepared.design.test, prepared.calibrating])]
    new = days.innovation(carried.state, hour, field)
    at_held, elsewhere = days.held_out(new, held), targets[held.size :]
    at_others = days.at(state, elsewhere) if len(elsewhere) else (np.empty(0), np.empty(0))
    mean, variance = (np.concatenate(parts)[None] for parts in zip(at_held, at_others, strict=True))
    known, left_out = prior.mean_at(targets).T, None
    if task.recalibration.errors == "leave-one-out":
        by_others = days.left_out(new)
        values = by_others.mean.flat[places.positions] + prior.mean_at(points.X)[:, 0]
        spread = np.broadcast_to(by_others.variance, grid.shape)
        left_out = LeftOut(values[None], np.sqrt(spread.flat[places.positions])[None])
    seconds = perf_counter() - began
    return Solution(
        steps=(
            SolveStep(0, known, np.sqrt(prior_variance(kernel.space, targets))[None], 0.0),
            SolveStep(1, known + mean, np.sqrt(variance), seconds),
        ),
        status=Status.EXACT,
        plan=(f"states of {grid.size:,} points from the previous run, updated with {points.count:,} values",),
        computational_std=np.zeros(mean.shape),
        left_out=left_out,
        state=state,
    )


def _prior_of(model: FittedModel, points: Observations, chosen: Indices) -> Prior:
    """Prior with the mean that was fitted to some of the points, and one noise for all."""
    return Prior(model.kernel, model.nugget, mean_of_all(model.mean, points, chosen))


def seen_elsewhere(chosen: ChosenPoints, held_out: int) -> tuple[int, int]:
    """Count the views that targets of a filter have of its grid, and targets that are off its points."""
    places, elsewhere = chosen.points.grid, chosen.predicted.points.X[held_out:]
    assert places is not None
    if not len(elsewhere):
        return 0, 0
    crossed = 0 if many_places(elsewhere, places.grid) is not None else len(elsewhere)
    return len(Views.of(elsewhere, places.grid).points), crossed


def state_group_of(prepared: PreparedJob, prior: Prior, state: RingState) -> xr.Dataset:
    """Arrange the state of a run for the run after it."""
    places = prepared.points.grid
    assert places is not None
    return schema.state_group(
        times=prepared.points.times,
        north=places.grid.latitude_degrees,
        east=places.grid.longitude_degrees,
        weights=state.weights,
        covariance=state.covariance,
        variable=prepared.points.variable,
    ).assign_attrs(
        {
            ERRORS_OF: json.dumps(describe_state(prepared.job, prepared.points.variable), sort_keys=True),
            "state_of": json.dumps({"kernel": _name(prior), "numbers": _numbers(prior)}),
        }
    )


def _fields(places: GridPlaces, values: Array) -> Array:
    """Values (T, n) as fields (T, P, Q), with all copies of a pole."""
    fields, poles = places.fields(values), is_pole(places.grid.latitude_degrees)
    fields[:, poles] = fields[:, poles, :1]
    return fields


def fit_in_time(
    prepared: PreparedJob, model: FittedModel, execution: Execution
) -> tuple[FittedModel, float, RingFilter | None]:
    """Add its kernel in time to a model that was fitted; a lengthscale is fitted to ``fit_times``.

    With the standard error of that, and the filter whose modes were made for it, if they are of today's grid.
    """
    table, points, space = prepared.job.prior, prepared.fit_points, model.kernel
    assert table.time_kernel is not None
    assert isinstance(space, Elementary)
    family = KERNELS[table.time_kernel]
    if (given := table.time_lengthscale_hours) is not None:
        return replace(model, kernel=SpaceTime(space, family(each(given)[0]))), float("nan"), None
    places = None if points is None else points.grid
    if points is None or places is None or not points.is_whole_grid or points.times.size < 2:
        raise ConfigurationError(
            "[prior] time_lengthscale_hours is fitted to the fields of fit_times, and these are not two or "
            "more whole grids; give it, or other fit_times.",
            key="time-lengthscale",
        )
    hours = hours_since(points.times, points.times.min())
    prior = _prior_of(model, points, np.arange(points.north.size))
    days = _filter_of(places.grid, SpaceTime(space, family(1.0)), prior, execution)
    about = points.values - prior.mean_at(points.X).T
    execution.progress(None, "lengthscale in time")
    best, error = days.fitted_hours(hours, _fields(places, about))
    today = prepared.points.grid
    serves = today is not None and days.grid.same_points(today.grid)  # else its modes are dropped
    kernel = SpaceTime(space, family(best))
    return replace(model, kernel=kernel), error, days.with_time(family(best)) if serves else None


def _filter_of(grid: LatLonGrid, kernel: SpaceTime, prior: Prior, execution: Execution) -> RingFilter:
    """Filter of a grid, whose modes are made where they are used first."""
    return RingFilter(
        grid,
        kernel,
        noise_variance=prior.noise_number,
        executor=execution.executor,
        memory_limit_bytes=execution.memory_limit_bytes,
    )


def _name(prior: Prior) -> str:
    """Name of the kernel in space."""
    assert isinstance(prior.kernel, SpaceTime)
    return name_of(prior.kernel.space)


def _numbers(prior: Prior) -> list[float]:
    """Lengthscale, variance, noise, and hours."""
    assert isinstance(prior.kernel, SpaceTime)
    chord, hours = each(prior.kernel.lengthscale)
    return [chord, prior.kernel.variance, prior.noise_number, hours]


def _check_goes_on(carried: Carried, grid: LatLonGrid, prior: Prior) -> None:
    """Raise `ConfigurationError` unless the previous run had the same grid and prior."""
    if carried.state is None:
        return
    said, differs = json.loads(carried.prior), ""
    numbers = _numbers(prior)
    if carried.axes != tuple(
        tuple(axis.tolist()) for axis in (grid.latitude_degrees, grid.longitude_degrees)
    ):
        differs = "is of another grid"
    elif said["kernel"] != _name(prior) or not np.allclose(said["numbers"], numbers, rtol=SAME, atol=0.0):
        differs = f"has the prior {carried.prior}, and this one {_name(prior)} {numbers}"
    if differs:
        raise ConfigurationError(
            f'[prior] mean = "previous": the state of the previous run, {carried.run}, {differs}, and an '
            "exact run does not continue another one. Give this job an [output] root of its own, and its "
            "times from "
            "the first on; the parameters of the prior stay the same if you give them or fixed fit_times.",
            key="previous-run",
        )
