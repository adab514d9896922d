"""Observations predicted from others: how well, and the errors that correct error bars.

Each is left out alone where an exact solve tells what all others say of it, which costs little more than the
solve. Else many places are left out together, or blocks of them, each fold with a solve of its own.
"""

from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.recalibration.methods import RECALIBRATIONS, REMOVED, SHARP
from cagp_dist.calibration.verification.scores import PointScores
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.targets import part
from cagp_dist.pipeline.censoring import quantiles_of
from cagp_dist.pipeline.defaults import FEWEST_DRAWN, MOST_DRAWN, OBSERVED_FOR_EACH
from cagp_dist.pipeline.field_solves import DrawnFields, Execution, LeftOut, Solution
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.left_out import has_left_out, leave_one_out
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.recalibration import (
    NOT_ASKED,
    Errors,
    OutOfSampleErrors,
    Recalibration,
    learn_distributions,
    unchanged,
)
from cagp_dist.pipeline.split import Split
from cagp_dist.pipeline.steps import check_left, score, solve
from cagp_dist.pipeline.task import HeldOut, Priors, Task
from cagp_dist.predictive import Gaussian
from cagp_dist.solvers import Solver
from cagp_dist.text import alternatives

MOST_LEARNED = 20  # Times that a method learns for the scores of folds, each of which can take a second
DRAWN = 0x647277  # Names the stream of random numbers of places that are drawn


def out_of_sample(
    task: Task, priors: Priors, solution: Solution, execution: Execution
) -> OutOfSampleErrors | None:
    """Give errors of predictions that did not use what they are compared with; None if none are asked for.

    Those at calibration points are in the solution; the others take solves of their own, with the prior that
    was fitted to all.
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
            drawn = drawn_places(observed, task.recalibration.places)
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
            blocks: float | Literal["auto"] = task.recalibration.blocks or "auto"
            split = Split.into_folds(observed, count="auto", blocks=blocks, seed=0)
            plain = replace(task, recalibration=NOT_ASKED)
            of_blocks = cross_validate(plain, model, execution, split=split)
            return OutOfSampleErrors(
                Gaussian(of_blocks.mean, of_blocks.predictive_std),
                observed.values[:, split.held_out],
                observed.positions[split.held_out],
            )
    return None


def errors_of_folds(task: Task, priors: Priors, solution: Solution) -> OutOfSampleErrors | None:
    """Give the errors of what a task predicts in folds, each from the others; None without folds."""
    if not task.folds or task.held_out is None:
        return None
    held, at = task.held_out, task.targets.of_kind("held out")
    std = np.sqrt(solution.std[:, at] ** 2 + priors.noise_of(held))
    return OutOfSampleErrors(Gaussian(solution.mean[:, at], std), held.values, held.X, held.folds)


class LeftOutFolds(NamedTuple):
    """What the places (or points in space and time) of all other folds say of each that a split holds out."""

    split: Split
    mean: Array  # (T, k)
    std: Array  # (T, k), latent
    predictive_std: Array  # (T, k), with noise
    scores: PointScores  # (T, k); NaN where nothing was observed
    # (T, L, k) of the field and of observations, where these are not normal
    quantiles: Array | None = None
    predictive_quantiles: Array | None = None
    recalibration: Recalibration = NOT_ASKED
    drawn: DrawnFields | None = None  # what draws of censored values say of the field
    noise_variance: Array | None = None  # (k,) of observations


def cross_validate(task: Task, model: FittedModel, execution: Execution, *, split: Split) -> LeftOutFolds:
    """Predict each place from those of all other folds, with kernel and noise that were fitted to all.

    What corrects its distribution is learned from errors of other folds. More than `MOST_LEARNED` folds are
    put into that many groups, and the errors of a whole group are left out.
    """
    assert split.folds is not None
    recalibration = _of_folds(task.recalibration, split.folds)
    alone = int(split.folds.max()) + 1 == split.held_out.size and model.integrated is None
    alone &= task.observations.censored is None
    if alone and task.sees_all_times:
        found = leave_one_out(task.observed, model, task.solver, execution)
        if found is not None:
            return _scored_alone(task, model, split, found, recalibration)
    of_folds, priors = _in_folds(task, model, split), Priors(model)
    assert of_folds.held_out is not None
    solution = solve(of_folds, priors, execution)
    learned = unchanged()
    if recalibration.method != "none":
        errors = errors_of_folds(of_folds, priors, solution)
        assert errors is not None
        errors = replace(errors, folds=split.folds % MOST_LEARNED)
        learned = learn_distributions(recalibration, errors, errors)
        if of_groups := learned.by_fold:
            of_each = tuple(of_groups[fold % MOST_LEARNED] for fold in range(of_folds.folds))
            learned = replace(learned, by_fold=of_each)
    result = score(of_folds, priors, solution, learned)
    assert result.scores is not None
    std, noise = solution.std, priors.noise_of(of_folds.held_out)
    predictive = np.sqrt(std**2 + noise)
    if result.of_held_out is not None:
        predictive = result.of_held_out.std
        std = std * result.of_held_out.correction(std, noise)
    return LeftOutFolds(
        split,
        solution.mean,
        std,
        predictive,
        result.scores,
        None if solution.drawn is None else quantiles_of(solution.drawn),
        None if result.of_held_out is None else result.of_held_out.quantiles,
        learned.found,
        solution.drawn,
        noise,
    )


def _of_folds(asked: Recalibration, folds: Indices) -> Recalibration:
    """Give the recalibration of places of folds; without each group of these it must have errors enough."""
    if asked.method == "none":
        return NOT_ASKED
    groups = np.bincount(folds % MOST_LEARNED)
    _check_enough(asked.method, folds.size - int(groups.max()))
    return Recalibration(asked.method, "folds", folds.size, scored_by_folds=True)


def _in_folds(task: Task, model: FittedModel, split: Split) -> Task:
    """Give the task that predicts each place of a split from the other folds."""
    points, held = task.observed, split.held_out
    known = np.broadcast_to(model.known_noise, points.north.shape)
    return replace(
        task,
        split=split,
        targets=Targets(MapPoints.of(part(points.sites, held)), {"held out": slice(0, held.size)}),
        held_out=HeldOut(
            points.values[:, held],
            points.positions[held],
            known[held],
            split.folds,
            limits=None if points.limits is None else points.limits[:, held],
        ),
        recalibration=NOT_ASKED,
        calibrating=None,
        times=None,  # each is a target of its own time
    )


def _scored_alone(
    task: Task, model: FittedModel, split: Split, found: LeftOut, recalibration: Recalibration
) -> LeftOutFolds:
    """Score observations that were left out one by one."""
    places = split.held_out
    values = task.observed.values[:, places]
    mean, predictive = found.mean[:, places], found.std[:, places]
    noise = np.broadcast_to(model.usual_noise_variance, task.observed.north.shape)[places]
    known = ~np.isnan(values) & ~np.isnan(mean)
    plain = Gaussian(np.where(known, mean, 0.0), np.where(known, predictive, 1.0))
    assert split.folds is not None
    groups = split.folds % MOST_LEARNED
    errors = OutOfSampleErrors(
        plain, np.where(known, values, np.nan), task.observed.positions[places], groups
    )
    learned = learn_distributions(recalibration, errors, errors)
    scores = learned.scored(
        plain, errors.X, errors.observed, folds=groups, transform=task.observations.transform
    )
    std, quantiles = np.sqrt(np.maximum(predictive**2 - noise, 0.0)), None
    if learned.corrected:
        corrected = learned.at(plain, errors.X, folds=groups)
        by = np.where(known, corrected.std / plain.std, np.nan)
        std, predictive = by * std, by * predictive
        quantiles = np.where(known[:, None], corrected.quantiles, np.nan)
    return LeftOutFolds(
        split, mean, std, predictive, scores, predictive_quantiles=quantiles, recalibration=learned.found
    )


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


def usual_recalibration(
    method: str,
    observed: Observations,
    solver: str | Solver,
    *,
    reads_mean: bool = False,
    near: bool = True,
    blocks: float | None = None,
    kept: tuple[Errors, int] | None = None,
) -> Recalibration:
    """Choose the errors that a method learns from, before anything is fitted: the same whoever asks.

    Parameters
    ----------
    method : str
        What corrects distributions; "none" for nothing.
    observed : Observations
        Those that the solve uses.
    solver : str or Solver
        Of all of them.
    reads_mean : bool
        Whether the mean is read: its shift was fitted to the value that would be left out alone.
    near : bool
        Whether targets lie no further from observations than these from each other. What a place itself says
        an hour before is nearer, and in a gap observations are further away: whole blocks are left out then.
    blocks : float, optional
        Their size in the unit of the space, where it is given.
    kept : optional
        Errors that come with the solve itself, and at how many places: at points that are not observed, or of
        each observation of a state that goes on.
    """
    if method == "none":
        return NOT_ASKED
    if kept is not None:
        errors, places = kept
    else:
        alone = near and not reads_mean and has_left_out(observed, solver)
        errors, places = usual_errors(observed.there.size, alone=alone, near=near)
        if errors != "drawn":
            places = len(np.unique(observed.positions[observed.there], axis=0))
    if method != SHARP:
        _check_enough(method, places)
    return Recalibration(method, errors, places, blocks=blocks if errors in ("points", "blocks") else None)


def usual_errors(places: int, *, alone: bool, near: bool = True) -> tuple[Errors, int]:
    """Choose which errors of so many observed places are learned from, and how many places have one.

    Each is left out ``alone`` where that is cheap; of many others some are drawn and left out together; else
    ten folds of blocks.
    """
    if alone:
        return "leave-one-out", places
    drawn = min(MOST_DRAWN, places // OBSERVED_FOR_EACH)
    return ("drawn", drawn) if near and drawn >= FEWEST_DRAWN else ("blocks", places)


def _check_enough(method: str, places: int) -> None:
    """Raise `ArgumentError` if a method cannot learn from so many places: before anything is solved."""
    if places >= FEWEST_DRAWN:
        return
    generator = np.random.default_rng(0)
    distribution = Gaussian(np.zeros(places), np.ones(places))
    try:
        RECALIBRATIONS[method]().fit(
            distribution, generator.standard_normal(places), generator.standard_normal((places, 3))
        )
    except ArgumentError as error:
        raise ArgumentError(f"recalibration {method!r}: {error}", key="few-errors") from error


def drawn_places(points: Observations, count: int) -> Indices:
    """Draw so many places whose errors correct those of all, of a grid by area."""
    there, areas = points.there, points.areas[points.there]
    generator = np.random.default_rng(np.random.SeedSequence(count, spawn_key=(DRAWN,)))
    return np.sort(generator.choice(there, size=count, replace=False, p=areas / areas.sum()))
