"""Predictive laws of a map, corrected by errors at places that were left out."""

from collections.abc import Callable
from math import sqrt

import numpy as np
import xarray as xr

from cagp_dist.calibration.recalibration.corrected import corrected_laws
from cagp_dist.calibration.recalibration.methods import RECALIBRATIONS, REMOVED, SHARP
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import unit_sphere
from cagp_dist.kriging.integrating import usual_noise_variance
from cagp_dist.kriging.learning import FittedModel
from cagp_dist.kriging.map_dataset import field_dims, shaped
from cagp_dist.kriging.map_targets import Targets
from cagp_dist.kriging.observed_objects import ObservedObject
from cagp_dist.kriging.solving import Prediction
from cagp_dist.kriging.validation import FOLDS, cross_validate
from cagp_dist.predictive import Gaussian
from cagp_dist.runtime import Executor
from cagp_dist.solvers import Solver
from cagp_dist.store.published_variables import QUANTILE_LEVEL, QUANTILE_LEVELS
from cagp_dist.text import alternatives

LATENT = (
    "Of the field, without noise and as the prior has it: errors at places correct predictive_std and "
    "quantile alone, so that predictive_std can be the smaller one."
)


def check_method(method: str) -> None:
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


def with_laws(
    result: xr.Dataset,
    prediction: Prediction,
    observed: ObservedObject,
    learned: FittedModel,
    targets: Targets,
    *,
    method: str,
    solver: "str | Solver",
    executor: Executor,
    memory_limit_bytes: int | None,
    report: Callable[[float], None],
) -> xr.Dataset:
    """Add the corrected law of an observation at each target: ``predictive_std`` and ``quantile``."""
    if targets.cells is not None:
        raise ArgumentError(
            f"recalibration is {method!r} and kind is 'cells', but errors at places do not say how the mean "
            "over a cell errs. Leave one of the two out."
        )
    X = unit_sphere(observed.latitude_degrees, observed.longitude_degrees)
    seen = (~np.isnan(observed.values)).any(axis=0)
    errors = cross_validate(
        observed,
        learned,
        folds=max(2, min(FOLDS, int(np.count_nonzero(seen)))),
        blocks_degrees=None,
        seed=0,
        solver=solver,
        executor=executor,
        memory_limit_bytes=memory_limit_bytes,
        report=report,
    )
    names = "mean", "predictive_std", "observed"
    mean, std, values = (np.atleast_2d(errors[name].values) for name in names)
    try:
        fitted = RECALIBRATIONS[method]().fit(Gaussian(mean, std), values, X[seen])
    except ArgumentError as error:
        raise ArgumentError(f"recalibration {method!r}: {error}") from error
    noise = usual_noise_variance(learned, np.asarray(seen))
    plain = Gaussian(prediction.mean, np.sqrt(prediction.std**2 + noise))
    X_new = unit_sphere(targets.latitude_degrees, targets.longitude_degrees)
    found = corrected_laws(fitted, plain, X_new, levels=QUANTILE_LEVELS)
    units = {key: result["mean"].attrs[key] for key in ("units",) if key in result["mean"].attrs}
    what = observed.attributes.get("long_name", observed.name)
    with_noise = "with usual noise, recalibrated"
    dims = field_dims(observed, targets)
    quantiles = [shaped(of_level, observed, targets) for of_level in np.moveaxis(found.quantiles, 1, 0)]
    corrected = result.assign(
        predictive_std=(
            dims,
            shaped(found.std, observed, targets),
            {
                "long_name": f"standard deviation of an observation of {what}, {with_noise}",
                "comment": f"The noise is reference_noise_std, {sqrt(noise):.4g}, the median of all places.",
                **units,
            },
        ),
        quantile=(
            (QUANTILE_LEVEL, *dims),
            np.stack(quantiles),
            {"long_name": f"quantile of an observation of {what}, {with_noise}", **units},
        ),
    ).assign_coords({QUANTILE_LEVEL: (QUANTILE_LEVEL, np.array(QUANTILE_LEVELS), {"units": "1"})})
    corrected["std"].attrs["long_name"] += ", not recalibrated"
    corrected["std"].attrs["comment"] = LATENT
    return corrected.assign_attrs(
        recalibration=method,
        reference_noise_std=sqrt(noise),
        recalibration_statement="predictive_std and quantile are those of laws that were corrected "
        f"({method}) by errors at {int(np.count_nonzero(seen)):,} places, each of which was predicted from "
        "about nine tenths of the others. They are those of an observation with reference_noise_std.",
    )
