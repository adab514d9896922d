"""A job on fields of its own prior: its points, its prior and its solver, to see what its error bars do."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Plan
from cagp_dist.calibration.simulation.laboratory import Calibration, calibrate
from cagp_dist.errors import BudgetError
from cagp_dist.geometry import unit_sphere
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.prior import Prior
from cagp_dist.runtime import Executor
from cagp_dist.service.task import PreparedJob, Simulations
from cagp_dist.solvers.engine.solve_checkpoints import SolveCheckpoints

MOST_POINTS = 2000
"""Test points at which errors are looked at; of more, as many are drawn at random."""


@dataclass(frozen=True, eq=False)
class Simulated:
    """What simulated fields found, and where errors were looked at.

    Attributes
    ----------
    asked : Simulations
        Number and seed.
    calibration : Calibration
        What was found.
    points : array of int, shape (q,)
        Points of the field, in the order of ``calibration.point_std``.
    area_weight : array, shape (q,)
        Area that each of them stands for.
    observed : int
        Points that were observed.
    """

    asked: Simulations
    calibration: Calibration
    points: Indices
    area_weight: Array
    observed: int


def simulate_task(
    task: PreparedJob,
    prior: Prior,
    asked: Simulations,
    *,
    executor: Executor,
    memory_limit_bytes: int | None = None,
    checkpoints: SolveCheckpoints | None = None,
    on_plan: Callable[[Plan], None] = lambda _: None,
    progress: Callable[[float, str], None],
    note: Callable[[str], None] = lambda _: None,
) -> Simulated:
    """Draw fields from the prior of a job, observe them where the job does, and solve for each.

    Each is observed at the points that the first time of the job has, with their noise. A prior mean that is
    known moves all values, and with them no error; the coefficients of one that is not are estimated for each
    field. Of folds all points are observed, and errors looked at in all of them.
    """
    train = task.design.train[~np.isnan(task.points.values[0, task.design.train])]
    generator = np.random.default_rng([asked.seed, 2025])
    test, weights = task.design.test, task.design.test_weights
    if test.size > MOST_POINTS:
        chosen = np.sort(generator.choice(test.size, MOST_POINTS, replace=False))
        test, weights = test[chosen], weights[chosen]
    observed = replace(task, design=replace(task.design, train=train))
    X: Array | LatLonGrid = observed.inputs
    mask = None
    if task.places is not None:
        kept = task.places.at(np.isin(task.design.train, train))
        X, mask = kept.grid, kept.mask()
        observed = replace(observed, places=kept)
    if not task.solver.many_fields:
        note(
            f"{asked.count:,} fields take directions of their own, as much work as {asked.count:,} solves; "
            "--simulations takes fewer"
        )
    progress(0.0, f"drawing {asked.count:,} fields at {train.size + test.size:,} points")

    def report(fraction: float) -> None:
        progress(fraction, f"{asked.count:,} fields")

    solved = observed.conditioned(prior)
    try:
        found = calibrate(
            Prior(solved.kernel, solved.noise_variance, solved.mean if solved.estimates_mean else 0.0),
            X,
            unit_sphere(task.points.latitude_degrees[test], task.points.longitude_degrees[test]),
            solver=task.solver,
            simulations=asked.count,
            generator=generator,
            observed=mask,
            weights=weights,
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
            checkpoints=checkpoints,
            progress=report,
            on_plan=on_plan,
        )
    except BudgetError as error:
        raise BudgetError(
            f"fields of the prior cannot be simulated for this job: {error} In a job: fewer points in "
            "[design] train and test, fewer --simulations, or a larger memory_limit in [cluster]."
        ) from error
    return Simulated(asked, found, test, weights, train.size)
