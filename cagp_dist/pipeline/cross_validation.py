"""Observations predicted from others: how well, and the errors that correct error bars.

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
from cagp_dist.pipeline.defaults import MOST_DRAWN, OBSERVED_FOR_EACH
from cagp_dist.pipeline.field_solves import Execution, LeftOut, Solution
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.left_out import has_left_out, leave_one_out
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.recalibration import NOT_ASKED, Errors, OutOfSampleErrors, Recalibration, unchanged
from cagp_dist.pipeline.split import Split
from cagp_dist.pipeline.steps import check_left, score, solve
from cagp_dist.pipeline.task import HeldOut, Priors, Task
from cagp_dist.predictive import Gaussian
from cagp_dist.text import alternatives

FEWEST_DRAWN = 500  # Places with errors, below which folds of blocks say more
LEAST_AREA = 1e-3  # Of a place of a grid, over that of one at the equator
DRAWN = 0x647277  # Names the stream of random numbers of places that are drawn


def out_of_sample(
    task: Task, priors: Priors, solution: Solution, execution: Execution
) -> OutOfSampleErrors | None:
    """Give errors of predictions that did not use what they are compared with; None if none are asked for.

    Those at calibration points and of folds are in the solution; the others take solves of their own, with
    the prior that was fitted to all.
    """
    points, observed, model = task.observations, task.observed, priors.model
    match task.recalibration.errors:
        case "points" if task.calibrating is not None:
            held, at = task.calibrating, task.targets.of_kind("calibration")
            std = np.sqrt(solution.std[:, at] ** 2 + model.noise_of(held.known_noise))
            X, y = points.positions[observed.there], observed.values[:, observed.there]
            return OutOfSampleErrors(
                Gaussian(solution.mean[:, at], std),
                held.values,
                held.X,
                training=held.training or (X, y),
                blocks=held.blocks,
            )
        case "folds" if task.held_out is not None:
            held, at = task.held_out, task.targets.of_kind("held out")
            std = np.sqrt(solution.std[:, at] ** 2 + priors.noise_of(held))
            return OutOfSampleErrors(Gaussian(solution.mean[:, at], std), held.values, held.X, held.folds)
        case "leave-one-out":
            execution.progress(1.0, "each observation from all others")
            found = solution.left_out or leave_one_out(observed, model, task.solver, execution)
            assert found is not None  # decided before
            places = observed.there
            mean, std = (each[:, places] for each in (found.mean, found.std))
            known = ~np.isnan(mean)  # elsewhere something was observed
            distribution = Gaussian(np.where(known, mean, 0.0), np.where(known, std, 1.0))
            values = np.where(known, observed.values[:, places], np.nan)
            return OutOfSampleErrors(distribution, values, observed.positions[places])
        case "drawn":
            drawn = drawn_places(observed, observed.there)
            assert drawn is not None  # decided before
            rest = np.setdiff1d(observed.there, drawn)
            check_left(observed, [drawn], f"{drawn.size:,} places")
            of_drawn = _in_folds(task, model, Split(rest, drawn))
            assert of_drawn.held_out is not None
            predicted = solve(of_drawn, priors, execution)
            std = np.sqrt(predicted.std**2 + priors.noise_of(of_drawn.held_out))
            return OutOfSampleErrors(
                Gaussian(predicted.mean, std),
                observed.values[:, drawn],
                observed.positions[drawn],
                training=(observed.positions[rest], observed.values[:, rest]),
            )
        case "blocks":
            split = Split.into_folds(observed, count="auto", blocks="auto", seed=0)
            of_blocks = cross_validate(task, model, execution, split=split)
            return OutOfSampleErrors(
                Gaussian(of_blocks.mean, of_blocks.predictive_std),
                observed.values[:, split.held_out],
                observed.positions[split.held_out],
            )
    return None


class LeftOutFolds(NamedTuple):
    """What the places (or points in space and time) of all other folds say of each that a split holds out."""

    split: Split
    mean: Array  # (T, k)
    std: Array  # (T, k), latent
    predictive_std: Array  # (T, k), with noise
    scores: PointScores  # (T, k); NaN where nothing was observed


def cross_validate(task: Task, model: FittedModel, execution: Execution, *, split: Split) -> LeftOutFolds:
    """Predict each place from those of all other folds, with kernel and noise that were fitted to all."""
    assert split.folds is not None
    alone = int(split.folds.max()) + 1 == split.held_out.size and model.integrated is None
    if alone and task.sees_all_times:
        found = leave_one_out(task.observed, model, task.solver, execution)
        if found is not None:
            return _scored_alone(task, model, split, found)
    of_folds, priors = _in_folds(task, model, split), Priors(model)
    assert of_folds.held_out is not None
    solution = solve(of_folds, priors, execution)
    result = score(of_folds, priors, solution, unchanged())
    assert result.scores is not None
    predictive = np.sqrt(solution.std**2 + priors.noise_of(of_folds.held_out))
    if result.of_held_out is not None:
        predictive = result.of_held_out.std
    return LeftOutFolds(split, solution.mean, solution.std, predictive, result.scores)


def _in_folds(task: Task, model: FittedModel, split: Split) -> Task:
    """Give the task that predicts each place of a split from the other folds."""
    points, held = task.observed, split.held_out
    known = np.broadcast_to(model.known_noise, points.north.shape)
    return replace(
        task,
        split=split,
        targets=Targets(MapPoints(points.X[held]), {"held out": slice(0, held.size)}),
        held_out=HeldOut(points.values[:, held], points.positions[held], known[held], split.folds),
        fold_solver=task.solver,
        recalibration=NOT_ASKED,
    )


def _scored_alone(task: Task, model: FittedModel, split: Split, found: LeftOut) -> LeftOutFolds:
    """Score observations that were left out one by one."""
    places = split.held_out
    values = task.observed.values[:, places]
    mean, predictive = found.mean[:, places], found.std[:, places]
    noise = np.broadcast_to(model.noise_variance, task.observed.north.shape)[places]
    scores, at = unscored(values.shape), np.nonzero(~np.isnan(values) & ~np.isnan(mean))
    scores.put(at, point_scores(Gaussian(mean[at], predictive[at]), values[at]))
    std = np.sqrt(np.maximum(predictive**2 - noise, 0.0))
    return LeftOutFolds(split, mean, std, predictive, scores)


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


def usual_recalibration(method: str, task: Task, model: FittedModel) -> Recalibration:
    """Choose the errors that a method learns from, where nothing is held out.

    Observations are left out one by one where that is cheap; of many others some are drawn and left out
    together; of fewer ten folds of blocks are left out, and of points in space and time.
    """
    if method == "none":
        return NOT_ASKED
    if task.targets.points.cells is not None:
        raise ArgumentError(
            f"recalibration is {method!r} and kind is 'cells', but errors at places do not say how the mean "
            "over a cell errs. Leave one of the two out.",
            key="recalibration-of-cells",
        )
    points, there = task.observations, task.observed.there
    errors: Errors = "blocks"
    # what a place itself says an hour before is nearer to it than observations are to a target
    if not points.in_time:
        if model.mixes or has_left_out(task.observed, model.mean, task.solver):
            errors = "leave-one-out"
        elif (drawn := drawn_places(points, there)) is not None:
            return Recalibration(method, "drawn", drawn.size)
    return Recalibration(method, errors, _sites(points, there))


def _sites(points: Observations, there: Indices) -> int:
    """Count the places that are observed."""
    return len(np.unique(points.positions[there], axis=0))


def drawn_places(points: Observations, there: Indices) -> Indices | None:
    """Draw places whose errors correct those of all, of a grid by area; None where too few would be left."""
    count = min(MOST_DRAWN, there.size // OBSERVED_FOR_EACH)
    if count < FEWEST_DRAWN:
        return None
    areas = np.ones(there.size)
    if points.gridded and points.space.has_latitudes:  # a pole has the area of its cap, about
        areas = np.maximum(np.cos(np.deg2rad(points.north[there])), LEAST_AREA)
    generator = np.random.default_rng(np.random.SeedSequence(count, spawn_key=(DRAWN,)))
    return np.sort(generator.choice(there, size=count, replace=False, p=areas / areas.sum()))
