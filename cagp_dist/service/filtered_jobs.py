"""A field that goes on from the state of the run before: its kernel in time, and what is published."""

import json
from dataclasses import replace

import numpy as np
import xarray as xr

from cagp_dist.errors import ConfigurationError
from cagp_dist.gram.ring_filter import RingFilter, RingState
from cagp_dist.gram.ring_gram import many_places
from cagp_dist.kernels import KERNELS, Elementary, name_of
from cagp_dist.latlon.grid_layout import Views
from cagp_dist.pipeline import each
from cagp_dist.pipeline.carried import filter_of, grid_fields, prior_on_grid
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.observations import hours_since
from cagp_dist.prior import Prior
from cagp_dist.service.carried_state import describe_state
from cagp_dist.service.task import ChosenPoints, PreparedJob
from cagp_dist.space_time import SpaceTime
from cagp_dist.store import schema
from cagp_dist.store.published_variables import ERRORS_OF

SAME = 1e-6  # Relative difference of numbers of the prior up to which the state of the previous run goes on


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
    prior = prior_on_grid(model, points, np.arange(points.north.size))
    days = filter_of(places.grid, SpaceTime(space, family(1.0)), prior, execution)
    about = points.values - prior.mean_at(points.X).T
    execution.progress(None, "lengthscale in time")
    best, error = days.fitted_hours(hours, grid_fields(places, about))
    today = prepared.points.grid
    serves = today is not None and days.grid.same_points(today.grid)  # else its modes are dropped
    kernel = SpaceTime(space, family(best))
    return replace(model, kernel=kernel), error, days.with_time(family(best)) if serves else None


def _name(prior: Prior) -> str:
    """Name of the kernel in space."""
    assert isinstance(prior.kernel, SpaceTime)
    return name_of(prior.kernel.space)


def _numbers(prior: Prior) -> list[float]:
    """Lengthscale, variance, noise, and hours."""
    assert isinstance(prior.kernel, SpaceTime)
    chord, hours = each(prior.kernel.lengthscale)
    return [chord, prior.kernel.variance, prior.noise_number, hours]


def check_goes_on(prepared: PreparedJob, model: FittedModel) -> None:
    """Raise `ConfigurationError` unless the previous run had the same grid and prior."""
    carried, places = prepared.carried, prepared.points.grid
    if carried is None or carried.state is None:
        return
    assert places is not None
    grid, prior = places.grid, Prior(model.kernel, model.nugget)
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
