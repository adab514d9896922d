"""Observations of a map predicted from others: how well, and error bars corrected by these errors.

Each is left out alone where an exact solve tells what all others say of it, which costs little more than the
solve. Else many places are left out together, or blocks of them, each fold with a solve of its own.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.recalibration.methods import RECALIBRATIONS, REMOVED, SHARP
from cagp_dist.calibration.verification.scores import PointScores, point_scores, unscored
from cagp_dist.errors import ArgumentError
from cagp_dist.pipeline.defaults import FOLDS, MOST_DRAWN, OBSERVED_FOR_EACH
from cagp_dist.pipeline.field_solves import Execution, LeftOut, Solution
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.left_out import leave_one_out
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.recalibration import Distributions, OutOfSampleErrors, Recalibration, unchanged
from cagp_dist.pipeline.split import Split, usual_blocks
from cagp_dist.pipeline.task import Fitted, HeldOut, Result, Task, noise_held_out, recalibrate, score, solve
from cagp_dist.predictive import Gaussian
from cagp_dist.text import alternatives

FEWEST_DRAWN = 500  # Places with errors, below which folds of blocks say more
LEAST_AREA = 1e-3  # Of a place of a grid, over that of one at the equator
DRAWN = 0x647277  # Names the stream of random numbers of places that are drawn


class LeftOutFolds(NamedTuple):
    """What the places (or points in space and time) of all other folds say of each that a split holds out."""

    split: Split
    mean: Array  # (T, k)
    std: Array  # (T, k), latent
    predictive_std: Array  # (T, k), with noise
    scores: PointScores  # (T, k); NaN where nothing was observed


def cross_validate(task: Task, learned: FittedModel, execution: Execution, *, split: Split) -> LeftOutFolds:
    """Predict each place from those of all other folds, with kernel and noise that were fitted to all."""
    assert split.folds is not None
    alone = int(split.folds.max()) + 1 == split.held_out.size and learned.integrated is None
    if alone and task.sees_all_times:
        found = leave_one_out(task.observed, learned, task.solver, execution)
        if found is not None:
            return _scored_alone(task, learned, split, found)
    of_folds = _in_folds(task, learned, split)
    fitted = Fitted(learned)
    solution = solve(of_folds, fitted, execution)
    result = score(of_folds, fitted, solution, unchanged())
    assert result.scores is not None
    predictive = np.sqrt(solution.std**2 + noise_held_out(of_folds, fitted))
    if result.of_held_out is not None:
        predictive = result.of_held_out.std
    return LeftOutFolds(split, solution.mean, solution.std, predictive, result.scores)


def _in_folds(task: Task, learned: FittedModel, split: Split) -> Task:
    """Give the task that predicts each place of a split from the other folds."""
    points, held = task.observations, split.held_out
    known = np.broadcast_to(learned.known_noise, points.north.shape)
    return replace(
        task,
        split=split,
        targets=Targets(MapPoints(points.X[held]), {"held out": slice(0, held.size)}),
        held_out=HeldOut(points.values[:, held], points.positions[held], known[held], split.folds),
        fold_solver=task.solver,
    )


def _scored_alone(task: Task, learned: FittedModel, split: Split, found: LeftOut) -> LeftOutFolds:
    """Score observations that were left out one by one."""
    places = split.held_out
    values = task.observations.values[:, places]
    mean, predictive = found.mean[:, places], found.std[:, places]
    noise = np.broadcast_to(learned.noise_variance, task.observations.north.shape)[places]
    scores, at = unscored(values.shape), np.nonzero(~np.isnan(values) & ~np.isnan(mean))
    scores.put(at, point_scores(Gaussian(mean[at], predictive[at]), values[at]))
    std = np.sqrt(np.maximum(predictive**2 - noise, 0.0))
    return LeftOutFolds(split, mean, std, predictive, scores)


class RecalibratedMap(NamedTuple):
    """Distributions of observations with the usual noise at the targets of a map."""

    std: Array  # (T, q)
    by: Array  # (T, q): the factor of the standard deviation, that of the field too, which keeps its share
    quantiles: Array  # (T, L, q), at `QUANTILE_LEVELS`
    noise_variance: float  # the median of all places
    statement: str  # what corrected them, for people
    local_scale: Array | None = None  # (T, q): of Student t distributions, over the Gaussian std
    corrected: bool = True  # whether errors changed anything


def check_recalibration(method: str) -> None:
    """Raise `ArgumentError` if there is no such recalibration."""
    if method == SHARP:
        raise ArgumentError(
            f'recalibration is "{SHARP}", which needs one model behind all errors, and here each of '
            f"the places is predicted by its own; expected {alternatives(RECALIBRATIONS)}. Jobs with "
            "calibration points have it, and cagp_dist.calibration.recalibration.sharp.Sharp.",
            key="recalibration",
        )
    if method in REMOVED:
        raise ArgumentError(
            f"recalibration is {method!r}, which was removed; {REMOVED[method]}.", key="recalibration"
        )
    if method not in RECALIBRATIONS:
        raise ArgumentError(
            f"recalibration is {method!r}; expected {alternatives(RECALIBRATIONS)}.", key="recalibration"
        )


def recalibrate_map(
    task: Task, learned: FittedModel, prediction: Solution, execution: Execution, *, method: str
) -> RecalibratedMap:
    """Correct the distribution of an observation at each target."""
    if task.targets.points.cells is not None:
        raise ArgumentError(
            f"recalibration is {method!r} and kind is 'cells', but errors at places do not say how the mean "
            "over a cell errs. Leave one of the two out.",
            key="recalibration-of-cells",
        )
    distributions = learn_from_errors(task, learned, execution, method=method)
    result = Result(task, Fitted(learned), prediction, distributions)
    found = result.distribution_at()
    noise = learned.usual_noise(task.observed)
    plain = np.sqrt(prediction.std**2 + noise)
    if learned.integrated is not None and not result.corrected:
        plain = found.std
    statement = distributions.found.statement()
    return RecalibratedMap(
        found.std,
        found.std / plain,
        found.quantiles,
        noise,
        statement,
        found.local_scale,
        corrected=result.corrected,
    )


def learn_from_errors(
    task: Task, learned: FittedModel, execution: Execution, *, method: str
) -> Distributions:
    """Learn what corrects distributions.

    Observations are left out one by one where that is cheap; of many others some are drawn and left out
    together; of fewer ten folds of blocks are left out, and of points in space and time.
    """
    points, there = task.observations, task.observed.there
    sites = len(np.unique(points.positions[there], axis=0))
    # what a place itself says an hour before is nearer to it than observations are to a target
    found = None
    if not points.in_time:
        found = leave_one_out(task.observed, learned, task.solver, execution)
    if found is not None:
        mean, std = found.mean[:, there], found.std[:, there]
        told = ~np.isnan(mean)
        distribution = Gaussian(np.where(told, mean, 0.0), np.where(told, std, 1.0))
        values = np.where(told, points.values[:, there], np.nan)
        errors = OutOfSampleErrors(distribution, values, points.positions[there])
        return recalibrate(replace(task, recalibration=Recalibration(method, "leave-one-out", sites)), errors)
    if not points.in_time and (drawn := _drawn(points, there)) is not None:
        return _learn_from_drawn(task, learned, execution, drawn, method=method)
    count = max(2, min(FOLDS, sites))
    split = Split.into_folds(points, count=count, blocks=usual_blocks(points, count), seed=0)
    of_folds = cross_validate(task, learned, execution, split=split)
    errors = OutOfSampleErrors(
        Gaussian(of_folds.mean, of_folds.predictive_std),
        points.values[:, split.held_out],
        points.positions[split.held_out],
    )
    return recalibrate(replace(task, recalibration=Recalibration(method, "blocks", sites)), errors)


def _drawn(points: Observations, there: Indices) -> Indices | None:
    """Draw places whose errors correct those of all, of a grid by area; None where too few would be left."""
    count = min(MOST_DRAWN, there.size // OBSERVED_FOR_EACH)
    if count < FEWEST_DRAWN:
        return None
    areas = np.ones(there.size)
    if points.gridded and points.space.has_latitudes:  # a pole has the area of its cap, about
        areas = np.maximum(np.cos(np.deg2rad(points.north[there])), LEAST_AREA)
    generator = np.random.default_rng(np.random.SeedSequence(count, spawn_key=(DRAWN,)))
    return np.sort(generator.choice(there, size=count, replace=False, p=areas / areas.sum()))


def _learn_from_drawn(
    task: Task, learned: FittedModel, execution: Execution, drawn: Indices, *, method: str
) -> Distributions:
    """Learn from one solve without the places that were drawn, as far from others as targets are."""
    points = task.observations
    rest = np.setdiff1d(task.observed.there, drawn)
    part = replace(
        _in_folds(task, learned, Split(rest, drawn)),
        recalibration=Recalibration(method, "drawn", drawn.size),
    )
    if not part.observed.present.any(axis=1).all():
        raise ArgumentError(
            f"without {drawn.size:,} places whose errors would correct the others a field is empty; leave "
            'such fields out, or recalibration="none".',
            key="empty-fold",
        )
    found = solve(part, Fitted(learned), execution)
    known = np.broadcast_to(learned.known_noise, points.north.shape)[drawn]
    std = np.sqrt(found.std**2 + learned.noise_of(known))
    errors = OutOfSampleErrors(
        Gaussian(found.mean, std),
        points.values[:, drawn],
        points.positions[drawn],
        training=(points.positions[rest], points.values[:, rest]),
    )
    return recalibrate(part, errors)
