"""Observations of a map predicted from others: how well, and error bars corrected by these errors.

Each is left out alone where an exact solve tells what all others say of it, which costs little more than the
solve; else blocks of places are left out, each fold with a solve of its own.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget.demand import GridSize
from cagp_dist.budget.grid_plans import inverse_diagonal_flops
from cagp_dist.calibration.recalibration.corrected import corrected_distributions
from cagp_dist.calibration.recalibration.methods import RECALIBRATIONS, REMOVED, SHARP
from cagp_dist.calibration.verification.scores import PointScores, point_scores, unscored
from cagp_dist.errors import ArgumentError
from cagp_dist.pipeline.defaults import FOLDS, MOST_LEFT_OUT_FLOPS, QUANTILE_LEVELS
from cagp_dist.pipeline.field_solves import Execution, Solution, solve_left_out
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.integration import (
    distribution_of_observations,
    fields_of,
    predict_fields,
    usual_noise_variance,
)
from cagp_dist.pipeline.map_mean import is_read
from cagp_dist.pipeline.map_points import MapPoints
from cagp_dist.pipeline.map_solves import problem_of_map, solver_of
from cagp_dist.pipeline.maps_at_times import predict_in_time
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.resources import SolveSettings
from cagp_dist.pipeline.split import Split, usual_blocks
from cagp_dist.posterior.patterns import fields_by_pattern
from cagp_dist.predictive import Gaussian, Mixture
from cagp_dist.solvers import Cholesky, Rings, Solver
from cagp_dist.solvers.interface import no_op
from cagp_dist.text import alternatives


class LeftOutFolds(NamedTuple):
    """What the places (or points in space and time) of all other folds say of each that a split holds out."""

    split: Split
    mean: Array  # (T, k)
    std: Array  # (T, k), latent
    predictive_std: Array  # (T, k), with noise
    scores: PointScores  # (T, k); NaN where nothing was observed


def cross_validate(
    observed: Observations,
    learned: FittedModel,
    settings: SolveSettings,
    *,
    split: Split,
    report: Callable[[float], None] = no_op,
) -> LeftOutFolds:
    """Predict each place from those of all other folds, with kernel and noise that were fitted to all."""
    assert split.folds is not None
    folds = int(split.folds.max()) + 1
    places = split.held_out
    values = observed.values[:, places]
    alone = folds == places.size and learned.integrated is None
    if alone and (by_others := leave_one_out(observed, learned, settings)) is not None:
        return _scored_alone(observed, learned, split, *(each[:, places] for each in by_others))
    mean, std, predictive = np.full((3, *values.shape), np.nan)
    scores = unscored(values.shape)
    for number, part in enumerate(split.parts()):
        kept, left = observed.only(part.observed), np.flatnonzero(split.folds == number)
        empty = ~kept.present.any(axis=1)
        if empty.any():
            raise ArgumentError(
                f"without fold {number} field {int(empty.argmax())} is empty; make the blocks smaller."
            )
        targets = MapPoints(observed.X[part.held_out])
        execution = Execution.on(settings, report=partial(_said, report, number, folds))
        if observed.in_time:
            prediction = predict_in_time(kept, learned, targets, settings, execution=execution)
        else:
            solver = solver_of(settings.solver, kept)
            prediction = predict_fields(kept, learned, targets, solver=solver, execution=execution)
        mean[:, left], std[:, left] = prediction.mean, prediction.std
        noise = learned.noise_variance
        noise = noise if noise.ndim == 0 else noise[part.held_out]
        distribution = distribution_of_observations(prediction, kept, learned, targets, noise)
        predictive[:, left] = distribution.std
        times, some = np.nonzero(~np.isnan(values[:, left]))
        at = times, left[some]
        scores.put(at, point_scores(distribution[times, some], values[at]))
        report((number + 1) / folds)
    return LeftOutFolds(split, mean, std, predictive, scores)


def _scored_alone(
    observed: Observations, learned: FittedModel, split: Split, mean: Array, predictive: Array
) -> LeftOutFolds:
    """Score observations that were left out one by one."""
    values, noise = observed.values[:, split.held_out], learned.noise_variance
    noise = noise if noise.ndim == 0 else noise[split.held_out]
    scores, at = unscored(values.shape), np.nonzero(~np.isnan(values) & ~np.isnan(mean))
    scores.put(at, point_scores(Gaussian(mean[at], predictive[at]), values[at]))
    std = np.sqrt(np.maximum(predictive**2 - noise, 0.0))
    return LeftOutFolds(split, mean, std, predictive, scores)


def leave_one_out(
    observed: Observations, learned: FittedModel, settings: SolveSettings
) -> tuple[Array, Array] | None:
    """Mean and standard deviation (T, N), noise included, of each observation by all others.

    NaN where nothing was observed; None where the solver is not exact, or this would take long, and where
    the shift of a mean that is read was fitted to all observations.
    """
    if is_read(learned.mean):
        return None
    mean, std = np.full((2, *observed.values.shape), np.nan)
    if (found := learned.integrated) is not None:
        patterns = zip(observed.patterns(), fields_of(learned, observed, found.held), strict=True)
        for (places, _), (fields, chosen) in patterns:
            if places.size <= len(fields.mean.coefficient_names):  # without one, the mean is not estimated
                continue
            distribution, at = Mixture(*found.left_out(fields)), np.ix_(chosen, places)
            mean[at], std[at] = distribution.mean, distribution.std
        return mean, std
    if settings.lead_hours is not None or settings.window_hours is not None:
        return None
    solver = solver_of(settings.solver, observed)
    places = observed.in_order(solver)
    present, grid = observed.present[:, places], observed.grid_of(places) if solver.needs_grid else None
    sizes = [None if grid is None else grid.size(present[some[0]]) for some in fields_by_pattern(present)]
    if not all(left_out_is_cheap(solver, size) for size in sizes):
        return None
    prior, X, y, _ = problem_of_map(observed, learned, MapPoints(observed.X[:1]), solver)
    by_others = solve_left_out(prior, X, y, grid, Execution.on(settings))
    mean[:, places], std[:, places] = by_others.mean, by_others.std
    return mean, std


def left_out_is_cheap(solver: Solver, grid: GridSize | None) -> bool:
    """Whether a solve of points, or of a grid with gaps, gives leave-one-out errors at its own cost."""
    if isinstance(solver, Cholesky):
        return True
    flops = inverse_diagonal_flops(grid) if isinstance(solver, Rings) and grid is not None else None
    return flops is not None and flops <= MOST_LEFT_OUT_FLOPS


def _said(report: Callable[[float], None], done: int, folds: int, part: float) -> None:
    """Say which part of all folds is done."""
    report((done + part) / folds)


class RecalibratedMap(NamedTuple):
    """Distributions of observations with the usual noise at the targets of a map."""

    std: Array  # (T, q)
    by: Array  # (T, q): the factor of the standard deviation, that of the field too, which keeps its share
    quantiles: Array  # (T, L, q), at `QUANTILE_LEVELS`
    noise_variance: float  # the median of all places
    places: int  # whose errors correct them
    left_out: str  # how these were predicted, for people
    local_scale: Array | None = None  # (T, q): of Student t distributions, over the Gaussian std


def check_recalibration(method: str) -> None:
    """Raise `ArgumentError` if there is no such recalibration."""
    if method == SHARP:
        raise ArgumentError(
            f'recalibration is "{SHARP}", which needs one model behind all errors, and here each of '
            f"the places is predicted by its own; expected {alternatives(RECALIBRATIONS)}. Jobs with "
            "calibration points have it, and cagp_dist.calibration.recalibration.sharp.Sharp."
        )
    if method in REMOVED:
        raise ArgumentError(f"recalibration is {method!r}, which was removed; {REMOVED[method]}.")
    if method not in RECALIBRATIONS:
        raise ArgumentError(f"recalibration is {method!r}; expected {alternatives(RECALIBRATIONS)}.")


def recalibrate_map(
    prediction: Solution,
    observed: Observations,
    learned: FittedModel,
    targets: MapPoints,
    settings: SolveSettings,
    *,
    method: str,
    report: Callable[[float], None],
) -> RecalibratedMap:
    """Correct the distribution of an observation at each target."""
    if targets.cells is not None:
        raise ArgumentError(
            f"recalibration is {method!r} and kind is 'cells', but errors at places do not say how the mean "
            "over a cell errs. Leave one of the two out."
        )
    places, values = observed.there, observed.values
    sites = len(np.unique(observed.positions[observed.there], axis=0))
    # what a place itself says an hour before is nearer to it than observations are to a target
    found_errors = None if observed.in_time else leave_one_out(observed, learned, settings)
    how = "all others"
    if found_errors is None:
        count = max(2, min(FOLDS, sites))
        split = Split.into_folds(observed, count=count, blocks=usual_blocks(observed, count), seed=0)
        errors = cross_validate(observed, learned, settings, split=split, report=report)
        places, distribution = errors.split.held_out, Gaussian(errors.mean, errors.predictive_std)
        how = f"those of the other {count - 1} of {count} folds of blocks"
    else:
        mean, std = (each[:, places] for each in found_errors)
        known = ~np.isnan(mean)
        distribution = Gaussian(np.where(known, mean, 0.0), np.where(known, std, 1.0))
        values = np.full(values.shape, np.nan)
        values[:, places] = np.where(known, observed.values[:, places], np.nan)
    try:
        fitted = RECALIBRATIONS[method]().fit(distribution, values[:, places], observed.positions[places])
    except ArgumentError as error:
        raise ArgumentError(f"recalibration {method!r}: {error}") from error
    noise = usual_noise_variance(learned, places)
    shape, told = prediction.mean.shape, ~np.isnan(prediction.mean).any(axis=0)  # not before an observation
    plain = Gaussian(prediction.mean[:, told], np.sqrt(prediction.std[:, told] ** 2 + noise))
    X = targets.X[told, : observed.positions.shape[1]]
    found = corrected_distributions(fitted, plain, X, levels=QUANTILE_LEVELS)
    std, by, scale = np.full((3, *shape), np.nan)
    quantiles = np.full((shape[0], len(QUANTILE_LEVELS), shape[1]), np.nan)
    std[:, told], by[:, told], quantiles[..., told] = found.std, found.std / plain.std, found.quantiles
    if method == "local-scale":
        scale[:, told] = found.scale
    scales = scale if method == "local-scale" else None
    return RecalibratedMap(std, by, quantiles, noise, sites, how, scales)
