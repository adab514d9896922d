"""Cross-validation of a map: blocks of places left out together, predicted from all others."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.calibration.verification.scores import PointScores, point_scores, unscored
from cagp_dist.errors import ArgumentError
from cagp_dist.mapping.defaults import FEW_FOLDS, FOLDS, OFTEN_SWEEPS
from cagp_dist.mapping.fitted_model import FittedModel
from cagp_dist.mapping.integration import law_of_observations, predict_fields
from cagp_dist.mapping.map_points import MapPoints
from cagp_dist.mapping.map_solves import outlook_of, plan_solves
from cagp_dist.mapping.maps_at_times import predict_in_time
from cagp_dist.mapping.narration import Outlook, Way
from cagp_dist.mapping.observations import Observations
from cagp_dist.mapping.resources import Resources
from cagp_dist.mapping.split import Split
from cagp_dist.solvers import Solver
from cagp_dist.solvers.interface import no_op


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
    *,
    split: Split,
    causal: bool = False,
    solver: "str | Solver",
    resources: Resources,
    report: Callable[[float], None] = no_op,
) -> LeftOutFolds:
    """Predict each place from the places of all other folds."""
    assert split.folds is not None
    folds = int(split.folds.max()) + 1
    places = split.held_out
    values = observed.values[:, places]
    mean, std, predictive = np.full((3, *values.shape), np.nan)
    scores = unscored(values.shape)
    for number, part in enumerate(split.parts()):
        kept, left = observed.only(part.observed), np.flatnonzero(split.folds == number)
        empty = ~kept.present.any(axis=1)
        if empty.any():
            raise ArgumentError(
                f"without fold {number} field {int(empty.argmax())} is empty; make the blocks smaller."
            )
        targets, parts = MapPoints(observed.X[part.held_out]), len(learned.kernel.parts)
        if observed.hours is None:
            solves = plan_solves(kept, targets, solver=solver, resources=resources, kernel_parts=parts)
            prediction = predict_fields(kept, learned, targets, solves=solves, resources=resources)
        else:
            prediction = predict_in_time(
                kept, learned, targets, causal=causal, solver=solver, resources=resources
            )
        mean[:, left], std[:, left] = prediction.mean, prediction.std
        noise = learned.noise_variance
        noise = noise if noise.ndim == 0 else noise[part.held_out]
        law = law_of_observations(prediction, kept, learned, targets, noise)
        predictive[:, left] = law.std
        times, some = np.nonzero(~np.isnan(values[:, left]))
        at = times, left[some]
        scores.put(at, point_scores(law[times, some], values[at]))
        report((number + 1) / folds)
    return LeftOutFolds(split, mean, std, predictive, scores)


def outlook_of_folds(
    observed: Observations,
    *,
    stage: str,
    folds: int = FOLDS,
    solver: "str | Solver",
    resources: Resources,
    kernel_parts: int,
) -> Outlook:
    """Say what a cross-validation is going to take: each fold is a solve with all other places."""
    targets = MapPoints(observed.X[: -(-observed.latitude_degrees.size // folds)])
    solves = plan_solves(observed, targets, solver=solver, resources=resources, kernel_parts=kernel_parts)
    found = outlook_of(solves, iterations=OFTEN_SWEEPS, times=folds, stage=stage)
    way = Way('recalibration="none"', 0.0)
    if stage != "recalibration":
        way = Way(f"folds={FEW_FOLDS}", found.seconds * min(1.0, FEW_FOLDS / folds))
    return replace(found, faster=(way,))
