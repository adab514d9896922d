"""The sharp GP of a job: lengthscales of its own for every quantile, by solves like that of the job.

One solve for each of `FACTORS` lengthscales predicts calibration points, and one for each that was chosen the
rest of them, test points, map and places. All go through the solver and the workers of the job.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.calibration.recalibration.sharp import FittedSharp, Sharp
from cagp_dist.calibration.recalibration.stretched import FieldByField, SolvedModel, StretchedModel
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.geometry import unit_sphere
from cagp_dist.prior import Prior
from cagp_dist.runtime import Executor
from cagp_dist.service.known_errors import known_errors
from cagp_dist.service.solve import Sharpened, Solution, prior_of_times, sampled_map
from cagp_dist.service.task import PreparedJob
from cagp_dist.solvers import Neighbours, Solver

FACTORS = 17
"""Multiples of the lengthscale that every level chooses from, 1/20 to 20 in ratios of 1.45."""


class SharpPoints(NamedTuple):
    """Where a sharp GP is wanted, (q, 3) each; empty where its laws are not published."""

    test: Array
    cells: Array
    places: Array


def sharpened(
    task: PreparedJob,
    prior: Prior,
    solution: Solution,
    *,
    executor: Executor,
    memory_limit_bytes: int | None = None,
    progress: Callable[[float, str], None],
) -> Sharpened:
    """Fit the sharp GP of a task to its calibration points, and solve for what it says elsewhere."""
    found, wanted = task.recalibration, sharp_points(task)
    errors = known_errors(task, solution, 0.0, nugget=prior.noise_number)
    assert errors is not None  # a sharp GP has calibration points: [recalibration] is refused without them
    sharp = Sharp(
        _model(task, prior, executor, memory_limit_bytes),
        found.levels,
        split="two-way" if found.split == "two-way" else "three-way",
        factors=FACTORS,
    )
    most = FACTORS + min(FACTORS, len(found.levels))

    def report(solved: int) -> None:
        which = f"lengthscale {solved + 1} of {FACTORS}" if solved < FACTORS else "the lengthscales chosen"
        progress(solved / most, which)

    progress(0.0, f"lengthscale 1 of {FACTORS}")
    try:
        fitted = sharp.fit(
            errors.law, errors.observed, errors.X, beside=np.concatenate(wanted), report=report
        )
    except ArgumentError as error:
        raise ConfigurationError(f'[recalibration] method = "{found.method}": {error}') from error
    assert fitted.beside is not None
    variance = fitted.beside.reshape(len(fitted.different), -1, fitted.beside.shape[-1])
    std = np.sqrt(np.maximum(variance, 0.0))  # the solve raises where they are negative beyond rounding
    ends = np.cumsum([len(points) for points in wanted])[:-1]
    test, cells, places = np.split(std, ends, axis=-1)
    if task.sampled_inputs is not None and _has_laws(task):
        cells = _sampled(task, prior, fitted, executor, memory_limit_bytes, progress)
    return Sharpened(fitted, test, cells, places)


def sharp_points(task: PreparedJob) -> SharpPoints:
    """Test points, map cells and places of a table at which the laws of a task are published.

    Without cells whose means are wanted, which nobody observes, and those whose error bars come from samples.
    """
    none, cells = np.empty((0, 3)), task.design.cells
    by_columns = cells is not None and _has_laws(task) and not task.design.samples
    return SharpPoints(
        task.inputs_at(task.design.test),
        unit_sphere(*cells.points()) if cells is not None and by_columns else none,
        none
        if task.wanted is None
        else unit_sphere(task.wanted.latitude_degrees, task.wanted.longitude_degrees),
    )


def _has_laws(task: PreparedJob) -> bool:
    """Whether the map of a task has laws of observations: its cells are points."""
    return task.design.cells is not None and task.design.cells.sides_degrees is None


def _model(
    task: PreparedJob, prior: Prior, executor: Executor, memory_limit_bytes: int | None
) -> StretchedModel:
    """Observed points of a task, its solver and its prior; time by time where the solver needs that."""
    X, y = task.observations
    of_all = task.conditioned(prior)
    on_grid, fields = task.places is not None, task.points.times.size
    times = [slice(None)] if task.solver.many_fields else [slice(t, t + 1) for t in range(fields)]
    models = tuple(
        SolvedModel(
            prior_of_times(of_all, some),
            X,
            y[some] if on_grid else y[:, some],
            _alone(task.solver),
            executor,
            memory_limit_bytes=memory_limit_bytes,
        )
        for some in times
    )
    return models[0] if len(models) == 1 else FieldByField(of_all, models)


def _alone(solver: Solver) -> Solver:
    """Give a solver whose variance at a point does not depend on the others: the guarantee rests on that."""
    if not isinstance(solver, Neighbours):
        return solver
    return replace(solver, neighbours=64 if solver.neighbours == "auto" else solver.neighbours, group=1)


def _sampled(
    task: PreparedJob,
    prior: Prior,
    fitted: FittedSharp,
    executor: Executor,
    memory_limit_bytes: int | None,
    progress: Callable[[float, str], None],
) -> Array:
    """Estimate standard deviations of a map from samples, the same for each stretch: shape (S, T, r)."""
    X, y = task.observations
    inputs, of_all = task.sampled_inputs, task.conditioned(prior)
    assert inputs is not None
    count, found = len(fitted.different), []
    for number, x in enumerate(fitted.different):

        def report(part: float, text: str, number: int = number) -> None:
            progress((number + part) / count, f"lengthscale {number + 1} of {count} chosen, {text}")

        found.append(
            sampled_map(
                Prior(fitted.stretch.kernel(of_all.kernel, x), of_all.noise_variance, of_all.mean),
                X,
                y,
                inputs,
                solver=task.solver,
                samples=task.design.samples,
                executor=executor,
                memory_limit_bytes=memory_limit_bytes,
                on_plan=lambda plan: None,
                progress=report,
            ).std
        )
    return np.array(found)
