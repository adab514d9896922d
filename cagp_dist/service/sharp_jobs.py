"""The sharp GP of a job: lengthscales of its own for every quantile, by solves like that of the job.

One solve for each of `FACTORS` lengthscales predicts calibration points, and one for each that was chosen the
rest of them, test points, map and places. All go through the solver and the workers of the job.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget import Demand, Plan, Work
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.calibration.recalibration.sharp import FittedSharp, Sharp
from cagp_dist.calibration.recalibration.stretched import FieldByField, SolvedModel, StretchedModel
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.pipeline import Neighbours, Solver
from cagp_dist.pipeline.field_solves import (
    Execution,
    columns_of_solves,
    prior_of_times,
    sampled_map,
    values_at,
)
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.map_points import MapPoints
from cagp_dist.pipeline.map_solves import problem_of_map
from cagp_dist.pipeline.recalibration import Distributions, OutOfSampleErrors
from cagp_dist.prior import Prior
from cagp_dist.service.jobfile.job import RecalibrationTable
from cagp_dist.service.task import PreparedJob
from cagp_dist.text import counted

FACTORS = 17  # Multiples of the lengthscale that every level chooses from, 1/20 to 20 in ratios of 1.45


def sharpened(
    prepared: PreparedJob, model: FittedModel, errors: OutOfSampleErrors, execution: Execution
) -> Distributions:
    """Fit the sharp GP of a job to its calibration points, and solve for what it says elsewhere."""
    found, wanted = prepared.recalibration, sharp_points(prepared)
    sharp = Sharp(
        _model(prepared, model, execution),
        found.levels,
        split="two-way" if found.split == "two-way" else "three-way",
        factors=FACTORS,
    )
    most = FACTORS + min(FACTORS, len(found.levels))

    def report(solved: int) -> None:
        which = f"lengthscale {solved + 1} of {FACTORS}" if solved < FACTORS else "the lengthscales chosen"
        execution.progress(solved / most, which)

    execution.progress(0.0, f"lengthscale 1 of {FACTORS}")
    try:
        fitted = sharp.fit(
            errors.distribution, errors.observed, errors.X, beside=np.concatenate(wanted), report=report
        )
    except ArgumentError as error:
        raise ConfigurationError(
            f'[recalibration] method = "{found.method}": {error}', key="recalibration"
        ) from error
    assert fitted.beside is not None
    variance = fitted.beside.reshape(len(fitted.different), -1, fitted.beside.shape[-1])
    std = np.sqrt(np.maximum(variance, 0.0))  # the solve raises where they are negative beyond rounding
    ends = np.cumsum([len(points) for points in wanted])[:-1]
    test, cells, places = np.split(std, ends, axis=-1)
    if prepared.design.samples and _has_distributions(prepared):
        cells = _sampled(prepared, model, fitted, execution)
    stretched = {"held out": test, "places": places}
    if _has_distributions(prepared):
        stretched["cells"] = cells
    return Distributions(found, fitted, stretched=stretched)


def sharp_points(prepared: PreparedJob) -> tuple[Array, Array, Array]:
    """Test points, map cells and places (q, 3) whose distributions are published; of others none."""
    none, cells, wanted = prepared.points.X[:0], prepared.design.cells, prepared.wanted
    by_columns = cells is not None and _has_distributions(prepared) and not prepared.design.samples
    return (
        prepared.points.X[prepared.design.test],
        cells.X if cells is not None and by_columns else none,
        none if wanted is None else wanted.X,
    )


def _has_distributions(prepared: PreparedJob) -> bool:
    """Whether the map of a job has distributions of observations: its cells are points."""
    return prepared.design.cells is not None and prepared.design.cells.edges is None


def _problem(prepared: PreparedJob, model: FittedModel) -> "tuple[Prior, Array | LatLonGrid, Array]":
    """Prior, X and y of the solve of a job."""
    of_all, X, y, _ = problem_of_map(
        prepared.task.observed, model, MapPoints(prepared.points.X[:1]), prepared.solver
    )
    return of_all, X, y


def _model(prepared: PreparedJob, model: FittedModel, execution: Execution) -> StretchedModel:
    """Observed points of a job, its solver and its prior; time by time where the solver needs that."""
    of_all, X, y = _problem(prepared, model)
    models = tuple(
        SolvedModel(
            prior_of_times(of_all, times),
            X,
            values_at(X, y, times),
            _alone(prepared.solver),
            execution.executor,
            memory_limit_bytes=execution.memory_limit_bytes,
        )
        for times in columns_of_solves(prepared.solver, prepared.points.times.size)
    )
    return models[0] if len(models) == 1 else FieldByField(of_all, models)


def _alone(solver: Solver) -> Solver:
    """Give a solver whose variance at a point does not depend on the others: the guarantee rests on that."""
    if not isinstance(solver, Neighbours):
        return solver
    return replace(solver, neighbours=64 if solver.neighbours == "auto" else solver.neighbours, group=1)


def _sampled(prepared: PreparedJob, model: FittedModel, fitted: FittedSharp, execution: Execution) -> Array:
    """Estimate standard deviations of a map from samples, the same for each stretch: shape (S, T, r)."""
    sampled, (of_all, X, y) = prepared.predicted.sampled_at, _problem(prepared, model)
    assert sampled is not None
    count, found = len(fitted.different), []
    for number, x in enumerate(fitted.different):
        found.append(
            sampled_map(
                Prior(fitted.stretch.kernel(of_all.kernel, x), of_all.noise_variance, of_all.mean),
                X,
                y,
                sampled.wanted,
                solver=prepared.solver,
                samples=prepared.design.samples,
                execution=execution.part(number, count, f"lengthscale {number + 1} of {count} chosen"),
            ).std
        )
    return np.array(found)


@dataclass(frozen=True)
class SharpPlan:
    """Solves of a sharp GP."""

    # of one solve for the calibration points that lengthscales are chosen with, and of one for all others
    search: Plan
    last: Plan
    chosen: int  # lengthscales that may be chosen, each of which takes one of the last solves
    times: int  # how often each is done: once for all times, or once for each
    kept_bytes: int  # of the variances that are kept until distributions are published
    # of the samples of a map, which are drawn for each of the lengthscales that are chosen
    sampled: Plan | None = None

    @property
    def work(self) -> Work:
        """Count all of them; memory is that of the largest, with what is kept."""
        found = self.times * ((FACTORS + 1) * self.search.work + self.chosen * self.last.work)
        if self.sampled is not None:
            found += self.chosen * self.sampled.work
        return replace(found, peak_bytes=found.peak_bytes + self.kept_bytes)

    def lines(self) -> list[str]:
        """Return the plan as sentences for people."""
        few, all_others = counted(self.search.q, "calibration point"), counted(self.last.q, "point")
        samples = "" if self.sampled is None else " and samples of the map"
        return [
            f"sharp quantiles: {FACTORS + 1} more solves with {few}, then up to {self.chosen} with "
            f'{all_others}{samples}: {self.work}; [recalibration] method = "local-scale" learns from the '
            "same points without a solve more"
        ]


def plan_sharp(
    table: RecalibrationTable,
    demands: Sequence[Demand],
    *,
    planned: Callable[[Sequence[Demand]], Plan],
    calibrated: int,
    targets: int,
    times: int,
    sampled: Plan | None,
) -> SharpPlan:
    """Plan the sharp GP of a job."""
    two_way = table.sharp_split == "two-way"
    half = calibrated if two_way else round(0.5 * calibrated)
    last = targets + (calibrated if two_way else calibrated - half)
    chosen = min(FACTORS, len(table.sharp_levels))
    fields = times if len(demands) == 1 else sum(demand.fields for demand in demands)
    # latent and predictive standard deviations, and the latter of a part
    kept = 3 * DOUBLE * chosen * fields * (targets if sampled is None else targets + sampled.q)
    return SharpPlan(
        search=planned([_at_points(demand, half) for demand in demands]),
        last=planned([_at_points(demand, last) for demand in demands]),
        chosen=chosen,
        times=times,
        kept_bytes=kept,
        sampled=sampled,
    )


def _at_points(demand: Demand, count: int) -> Demand:
    """Ask for variances at so many points, wherever they are."""
    grid = demand.grid
    if grid is not None:
        grid = replace(grid, targets_are_grid=False, target_views=None, target_places=0)
    return replace(demand, q=count, cell_nodes=0, bounds=False, grid=grid)
