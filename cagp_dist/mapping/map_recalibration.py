"""Predictive distributions of a map, corrected by errors at places that were left out."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.calibration.recalibration.corrected import corrected_laws
from cagp_dist.calibration.recalibration.methods import RECALIBRATIONS, REMOVED, SHARP, Recalibration
from cagp_dist.errors import ArgumentError
from cagp_dist.mapping.cross_validation import cross_validate
from cagp_dist.mapping.defaults import FOLDS, QUANTILE_LEVELS
from cagp_dist.mapping.fitted_model import FittedModel
from cagp_dist.mapping.integration import usual_noise_variance
from cagp_dist.mapping.map_points import MapPoints
from cagp_dist.mapping.map_solves import Prediction
from cagp_dist.mapping.observations import Observations
from cagp_dist.mapping.resources import Resources
from cagp_dist.mapping.split import Split
from cagp_dist.predictive import Gaussian
from cagp_dist.solvers import Solver
from cagp_dist.text import alternatives


class RecalibratedMap(NamedTuple):
    """Distributions of observations with the usual noise at the targets of a map."""

    std: Array  # (T, q)
    quantiles: Array  # (T, L, q), at `QUANTILE_LEVELS`
    noise_variance: float  # the median of all places
    places: int  # whose errors correct them
    local_scale: Array | None = None  # (T, q): of Student t distributions, over the Gaussian std


def check_recalibration(method: str) -> None:
    """Raise `ArgumentError` if there is no such recalibration."""
    if method == SHARP:
        raise ArgumentError(
            f'recalibration is "{SHARP}", which needs one model behind all errors, and here each tenth of '
            f"the places is predicted by its own; expected {alternatives(RECALIBRATIONS)}. Jobs with "
            "calibration points have it, and cagp_dist.calibration.recalibration.sharp.Sharp."
        )
    if method in REMOVED:
        raise ArgumentError(f"recalibration is {method!r}, which was removed; {REMOVED[method]}.")
    if method not in RECALIBRATIONS:
        raise ArgumentError(f"recalibration is {method!r}; expected {alternatives(RECALIBRATIONS)}.")


def recalibrate_map(
    prediction: Prediction,
    observed: Observations,
    learned: FittedModel,
    targets: MapPoints,
    *,
    method: str,
    causal: bool = False,
    solver: "str | Solver",
    resources: Resources,
    report: Callable[[float], None],
) -> RecalibratedMap:
    """Correct the distribution of an observation at each target."""
    if targets.cells is not None:
        raise ArgumentError(
            f"recalibration is {method!r} and kind is 'cells', but errors at places do not say how the mean "
            "over a cell errs. Leave one of the two out."
        )
    errors = cross_validate(
        observed,
        learned,
        split=Split.into_folds(observed, count=_folds(observed), seed=0),
        causal=causal,
        solver=solver,
        resources=resources,
        report=report,
    )
    places, law = errors.split.held_out, Gaussian(errors.mean, errors.predictive_std)
    try:
        fitted = _method(method, observed).fit(law, observed.values[:, places], observed.positions[places])
    except ArgumentError as error:
        raise ArgumentError(f"recalibration {method!r}: {error}") from error
    noise = usual_noise_variance(learned, places)
    plain = Gaussian(prediction.mean, np.sqrt(prediction.std**2 + noise))
    found = corrected_laws(fitted, plain, targets.X[:, : observed.positions.shape[1]], levels=QUANTILE_LEVELS)
    scale = found.scale if method == "local-scale" else None
    return RecalibratedMap(found.std, found.quantiles, noise, places.size, scale)


def _method(name: str, observed: Observations) -> Recalibration:
    """Give a method; in a plane nothing is known of land and coast."""
    method = RECALIBRATIONS[name]()
    if observed.plane is None:
        return method
    from cagp_dist.calibration.recalibration.local_scale import LocalScale

    return replace(method, terms=None) if isinstance(method, LocalScale) else method


def _folds(observed: Observations) -> int:
    """Ten, or as many as there are places."""
    return max(2, min(FOLDS, len(np.unique(observed.positions[observed.there], axis=0))))
