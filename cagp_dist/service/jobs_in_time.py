"""Jobs whose times inform each other: each value is a point in space and time, as it is for `krige(at=)`."""

from dataclasses import replace
from functools import reduce
from operator import add
from time import perf_counter
from typing import cast

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import DataError
from cagp_dist.fields.selection import shown_time
from cagp_dist.gram.targets import averaged, prior_variance, target_points
from cagp_dist.kernels import AUTO, Family, Kernel, name_of
from cagp_dist.means import MeanFamily
from cagp_dist.pipeline import Observations, SolveSettings
from cagp_dist.pipeline.field_solves import Execution, Solution, SolveStep
from cagp_dist.pipeline.fitted_model import FittedModel, known_noise
from cagp_dist.pipeline.map_points import MapPoints
from cagp_dist.pipeline.maps_at_times import (
    COMPARED_IN_TIME,
    fit_in_space_and_time,
    predict_in_time,
)
from cagp_dist.pipeline.narration import Narrator
from cagp_dist.pipeline.observations import hours_since
from cagp_dist.prior import EstimatedMean, Prior
from cagp_dist.service.jobfile.design_table import DesignTable
from cagp_dist.service.jobfile.prior_table import PriorTable
from cagp_dist.service.task import TIME_KERNELS, PreparedJob
from cagp_dist.space_time import SpaceTime
from cagp_dist.text import counted

FEWEST_TIMES = 2  # to which a kernel in time is fitted


def fit_all_times(
    table: PriorTable, family: MeanFamily, points: Observations, train: Indices, execution: Execution
) -> FittedModel:
    """Fit kernel and noise to the values of some points at all times."""
    if (times := points.times[points.present[:, train].any(axis=1)]).size < FEWEST_TIMES:
        raise DataError(
            f"[prior] time_kernel is fitted to observations of {counted(times.size, 'time')}; expected two "
            "or more. Give more times, a longer window_hours in [design], or the parameters of the prior."
        )
    named = {name: (family,) for name, family in TIME_KERNELS.items()}
    compared = named.get(table.time_kernel or AUTO, COMPARED_IN_TIME)
    with Narrator(shown=False) as narrator:
        return fit_in_space_and_time(
            _in_time(points, train),
            kernel=table.kernel,
            mean=cast("EstimatedMean", family),  # others are refused by [prior]
            noise_std=None,
            resources=execution,
            narrator=narrator,
            in_time=compared,
        )


def solve_all_times(task: PreparedJob, prior: Prior, execution: Execution) -> Solution:
    """Predict all targets at all times of a job, each from what it may see."""
    began, design, points = perf_counter(), task.job.design, task.points
    assert task.seen is not None
    observed = _in_time(task.seen.points, task.design.train)
    learned = FittedModel(
        prior.kernel,
        known_noise(observed, observed.there, None) + prior.noise_number,
        cast("EstimatedMean", task.family),
    )
    wanted, hours = task.new_inputs, hours_since(points.times, observed.origin)
    places = target_points(wanted)
    cells = None if isinstance(wanted, np.ndarray) else wanted
    targets = MapPoints(averaged(wanted, places), cells=cells).at_hours(hours)
    _check_informed(task)
    settings = SolveSettings(
        execution.executor,
        execution.memory_limit_bytes,
        solver=task.job.solver.build() or "auto",
        lead_hours=design.lead,
        window_hours=design.window_hours,
    )
    found = predict_in_time(observed, learned, targets, settings, execution=execution)
    shape = hours.size, len(wanted)
    before = _before(learned, observed, targets), prior_variance(prior.kernel, targets.wanted)
    own = found.computational_std
    return replace(
        found,
        steps=(
            SolveStep(0, before[0].reshape(shape), np.sqrt(before[1]).reshape(shape), 0.0),
            SolveStep(1, found.mean.reshape(shape), found.std.reshape(shape), perf_counter() - began),
        ),
        plan=_plan_lines(observed, found, design),
        computational_std=None if own is None else own.reshape(shape),
    )


def kernel_keys(kernel: Kernel) -> dict[str, str]:
    """Write a kernel without its numbers as the keys of a job file do."""
    parts = kernel.parts
    if not all(isinstance(part, SpaceTime) for part in parts):
        return {"kernel": name_of(kernel)}
    own = cast("tuple[SpaceTime, ...]", parts)
    in_space = reduce(add, [part.space for part in own[1:]], cast("Kernel", own[0].space))
    in_time = None if own[0].time is None else own[0].time.family
    names = {family: name for name, family in TIME_KERNELS.items()}
    return {"kernel": name_of(in_space), "time_kernel": names[cast("Family | None", in_time)]}


def _in_time(points: Observations, train: Indices) -> Observations:
    """Give each value at some points as a point in space and time."""
    return points.at(np.sort(train)).in_space_and_time(points.times)


def _check_informed(task: PreparedJob) -> None:
    """Raise `DataError` where a time sees no value, from which the mean is to be estimated."""
    assert task.seen is not None
    counts = task.seen.counts(task.points.times, task.design.train)
    if not counts.all():
        time = shown_time(task.points.times[counts.argmin()])
        raise DataError(
            f"no observed point has a value that {time} may see, by "
            "[design] window_hours, causal and lead_hours; leave this time out, or give a longer window."
        )


def _before(learned: FittedModel, observed: Observations, targets: MapPoints) -> Array:
    """Mean (T q,) without the field, with coefficients of least squares."""
    mean = cast("EstimatedMean", learned.mean)
    found = np.linalg.lstsq(np.asarray(mean.basis_at(observed.X)), observed.values[0], rcond=None)[0]
    return averaged(targets.wanted, np.asarray(mean.basis_at(target_points(targets.wanted))) @ found[:, None])


def _plan_lines(observed: Observations, found: Solution, design: DesignTable) -> tuple[str, ...]:
    """Say what was done."""
    times, window = np.unique(observed.X[:, -1]).size, design.window_hours
    seen = "all of them" if window is None else f"those within {window:g} hours"
    if design.lead is not None:
        seen += f" that end {design.lead:g} hours before it" if design.lead else ", none later than itself"
    count = len(found.plans)
    return (
        *found.plan,
        f"{counted(observed.count, 'value')} at {counted(times, 'time')} are points in space and time; a "
        f"target sees {seen}: {counted(count, 'solve')}",
    )
