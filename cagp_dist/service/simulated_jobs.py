"""A job on fields of its own prior: its points, its prior and its solver, to see what its error bars do."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.simulation.laboratory import Calibration, calibrate
from cagp_dist.errors import BudgetError
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.map_points import MapPoints
from cagp_dist.pipeline.map_solves import problem_of_map
from cagp_dist.prior import Prior
from cagp_dist.service.task import PreparedJob, Simulations

MOST_POINTS = 2000  # Test points at which errors are looked at; of more, as many are drawn at random


@dataclass(frozen=True, eq=False)
class Simulated:
    """What simulated fields found, and where errors were looked at."""

    asked: Simulations  # number and seed
    calibration: Calibration  # what was found
    points: Indices  # (q,) points of the field, in the order of ``calibration.point_std``
    area_weight: Array  # (q,) area that each of them stands for
    observed: int  # points that were observed


def simulate_job(
    prepared: PreparedJob,
    model: FittedModel,
    asked: Simulations,
    execution: Execution,
    *,
    note: Callable[[str], None] = lambda _: None,
) -> Simulated:
    """Draw fields from the prior of a job, observe them where the job does, and solve for each.

    A known mean has no part in errors. Of folds all points are observed, and errors looked at in all.
    """
    solver, points = prepared.solver, prepared.points
    first = replace(points, values=points.values[:1], times=points.times[:1]).only(prepared.design.train)
    solved, X, y, _ = problem_of_map(first, model, MapPoints(points.X[:1]), solver)
    mask = ~np.isnan(y[0]) if isinstance(X, LatLonGrid) else None
    count = first.there.size
    generator = np.random.default_rng([asked.seed, 2025])
    test, weights = prepared.design.test, prepared.design.test_weights
    if test.size > MOST_POINTS:
        chosen = np.sort(generator.choice(test.size, MOST_POINTS, replace=False))
        test, weights = test[chosen], weights[chosen]
    if not solver.many_fields:
        note(
            f"{asked.count:,} fields take directions of their own, as much work as {asked.count:,} solves; "
            "--simulations takes fewer"
        )
    execution.progress(0.0, f"drawing {asked.count:,} fields at {count + test.size:,} points")
    try:
        found = calibrate(
            Prior(solved.kernel, solved.noise_variance, solved.mean if solved.estimates_mean else 0.0),
            X,
            points.X[test],
            solver=solver,
            simulations=asked.count,
            generator=generator,
            observed=mask,
            weights=weights,
            executor=execution.executor,
            memory_limit_bytes=execution.memory_limit_bytes,
            checkpoints=execution.checkpoints,
            progress=lambda fraction: execution.progress(fraction, f"{asked.count:,} fields"),
            on_plan=execution.on_plan,
        )
    except BudgetError as error:
        raise BudgetError(
            f"fields of the prior cannot be simulated for this job: {error} In a job: fewer points in "
            "[design] train and test, fewer --simulations, or a larger memory_limit in [cluster].",
            key="memory",
        ) from error
    return Simulated(asked, found, test, weights, count)
