"""Cross-validation of a map: blocks of places left out together, predicted from all others."""

from collections.abc import Callable

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.verification.scores import PointScores, point_scores, unscored
from cagp_dist.calibration.verification.spatial_folds import block_folds
from cagp_dist.errors import ArgumentError
from cagp_dist.kriging.integrating import law_of_observations, predict_fields
from cagp_dist.kriging.learning import FittedModel
from cagp_dist.kriging.map_dataset import field_dims, shaped
from cagp_dist.kriging.map_targets import Targets, of_places
from cagp_dist.kriging.narration import Outlook
from cagp_dist.kriging.observed_objects import ObservedObject
from cagp_dist.kriging.solving import OFTEN_SWEEPS, outlook_of, plan_solves
from cagp_dist.runtime import Executor
from cagp_dist.solvers import Solver
from cagp_dist.solvers.interface import no_op

FOLDS = 10
"""Where nothing else is asked for: each place is predicted from nine tenths of the others."""


def cross_validate(
    observed: ObservedObject,
    learned: FittedModel,
    *,
    folds: int,
    blocks_degrees: float | None,
    seed: int,
    solver: "str | Solver",
    executor: Executor,
    memory_limit_bytes: int | None,
    report: Callable[[float], None] = no_op,
) -> xr.Dataset:
    """Predict each place from the places of all other folds; see `Kriging.cross_validate`."""
    seen = (~np.isnan(observed.values)).any(axis=0)
    fold = np.full(seen.size, -1, dtype=np.intp)
    fold[seen] = block_folds(
        observed.latitude_degrees[seen],
        observed.longitude_degrees[seen],
        count=folds,
        blocks_degrees=blocks_degrees,
        generator=np.random.default_rng(seed),
        called="folds",
    )
    mean, std, predictive = np.full((3, *observed.values.shape), np.nan)
    scored = unscored(observed.values.shape)
    for number in range(folds):
        left_out = fold == number
        kept = observed.without(left_out)
        empty = np.isnan(kept.values).all(axis=1)
        if empty.any():
            raise ArgumentError(
                f"without fold {number} field {int(empty.argmax())} has no observation left; lower "
                "blocks_degrees or raise folds."
            )
        targets = of_places(observed.latitude_degrees[left_out], observed.longitude_degrees[left_out])
        solves = plan_solves(
            kept,
            targets,
            solver=solver,
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
            kernel_parts=len(learned.kernel.parts),
        )
        prediction = predict_fields(
            kept, learned, targets, solves=solves, executor=executor, memory_limit_bytes=memory_limit_bytes
        )
        mean[:, left_out], std[:, left_out] = prediction.mean, prediction.std
        noise = learned.noise_variance
        noise = noise if noise.ndim == 0 else noise[left_out]
        law = law_of_observations(prediction, kept, learned, targets, noise)
        predictive[:, left_out] = law.std
        times, places = np.nonzero(~np.isnan(observed.values[:, left_out]))
        at = times, np.flatnonzero(left_out)[places]
        scored.put(at, point_scores(law[times, places], observed.values[at]))
        report((number + 1) / folds)
    return _dataset(observed, learned, fold, mean, std, predictive, scored)


def outlook_of_folds(
    observed: ObservedObject,
    *,
    stage: str,
    folds: int = FOLDS,
    solver: "str | Solver",
    executor: Executor,
    memory_limit_bytes: int | None,
    kernel_parts: int,
) -> Outlook:
    """Say what a cross-validation is going to take: each fold is a solve with all other places."""
    some = slice(0, -(-observed.latitude_degrees.size // folds))
    targets = of_places(observed.latitude_degrees[some], observed.longitude_degrees[some])
    solves = plan_solves(
        observed,
        targets,
        solver=solver,
        executor=executor,
        memory_limit_bytes=memory_limit_bytes,
        kernel_parts=kernel_parts,
    )
    return outlook_of(solves, iterations=OFTEN_SWEEPS, times=folds, stage=stage)


def _dataset(
    observed: ObservedObject,
    learned: FittedModel,
    fold: Indices,
    mean: Array,
    std: Array,
    predictive: Array,
    scored: PointScores,
) -> xr.Dataset:
    """Predictions and scores; places without an observation have no values."""
    places = fold >= 0
    part = of_places(
        observed.latitude_degrees[places],
        observed.longitude_degrees[places],
        dim="observation",
        names=None if observed.names is None else observed.names[places],
    )
    values = observed.values[:, places]
    result = scored[np.nonzero(~np.isnan(observed.values))].pooled()
    of_numbers = "that were fitted to all of them"
    if learned.integrated is not None:
        of_numbers = "integrated over with the probabilities that all of them give these"
    units = {"units": observed.attributes["units"]} if "units" in observed.attributes else {}
    what = observed.attributes.get("long_name", observed.name)
    fields: dict[str, tuple[Array, dict[str, str]]] = {
        "observed": (values, {"long_name": what, **units}),
        "mean": (mean[:, places], {"long_name": f"mean of {what} from the other folds", **units}),
        "std": (std[:, places], {"long_name": "standard deviation without noise", **units}),
        "predictive_std": (predictive[:, places], {"long_name": "standard deviation with noise", **units}),
        "pit": (scored.pit[:, places], {"long_name": "probability integral transform", "units": "1"}),
    }
    return xr.Dataset(
        {name: _variable(held, observed, part, described) for name, (held, described) in fields.items()}
        | {
            "fold": ("observation", fold[places]),
            "rmse": ((), result.rmse, {"long_name": "root mean square error", **units}),
            "crps": ((), result.crps, {"long_name": "continuous ranked probability score", **units}),
            "nll": ((), result.nll, {"long_name": "negative log predictive density", "units": "1"}),
            "coverage": ("level", result.coverage, {"long_name": "observations in the central interval"}),
        },
        coords={
            **{name: held for name, held in observed.coordinates.items() if name not in part.coordinates},
            **part.coordinates,
            "level": ("level", result.levels, {"long_name": "level of the interval"}),
        },
        attrs={
            "comment": "Each place is predicted from the places of all other folds, with the kernel and "
            f"noise {of_numbers} and a prior mean that was fitted without them.",
        },
    )


def _variable(
    values: Array, observed: ObservedObject, part: Targets, described: dict[str, str]
) -> tuple[tuple[str, ...], Array, dict[str, str]]:
    return field_dims(observed, part), shaped(values, observed, part), described
