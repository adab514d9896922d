"""A fit beside values that may be wrong: noise that is wider for a few of them (math 26)."""

from dataclasses import replace

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import chosen_by
from cagp_dist.pipeline.background import Background
from cagp_dist.pipeline.checking import some_places
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.left_out import LeftOutNear
from cagp_dist.pipeline.map_mean import is_read
from cagp_dist.pipeline.model_settings import ModelSettings
from cagp_dist.pipeline.narration import Narrator
from cagp_dist.pipeline.observations import Observations
from cagp_dist.pipeline.outliers import TOLD, Contamination, contamination, log_densities
from cagp_dist.pipeline.steps import fit
from cagp_dist.pipeline.task import Task
from cagp_dist.remedies import Setting
from cagp_dist.runtime import Executor

ROUNDS = 5
SETTLED = 0.02  # change of probabilities from where on nothing more is fitted
HINT = 2.0  # gain of the likelihood at the numbers of a plain fit, below which there is nothing to look for
# Places and fields by which it is told whether values look wrong; values that tell it, at least
MOST_LOOKED_AT, MOST_FIELDS, FEWEST = 4_000, 5, 20


def fit_beside_outliers(task: Task, execution: Execution, *, narrator: Narrator | None = None) -> FittedModel:
    """Fit as `fit`; if that is asked for, with noise that is wider for values that may be wrong.

    Share and width of wider noise maximise the likelihood of each value given all others, and kernel and
    noise that of all values with it, in turn. It is taken where the first likelihood gains 6 or more.
    """
    if task.model.outliers != "keep":
        check_robust(task)
    plain = fit(task, execution, narrator=narrator)
    if task.model.outliers == "keep":
        return plain
    observed = task.observed
    errors, variance = LeftOutNear(observed, plain, execution.executor).errors()
    found, before = contamination(errors, variance, rescaled=True), log_densities(errors, variance)
    if found.gain < HINT:
        return replace(plain, outliers=replace(found, probability=np.zeros_like(found.probability)))
    settings = replace(task.model, hyperparameters="plug-in")
    if chosen_by(settings.kernel) is not None and not observed.in_time:
        settings = replace(settings, kernel="matern32")  # the kernel is chosen at the end
    model = plain
    for _ in range(1 if observed.in_time else ROUNDS):
        last = np.nan_to_num(found.probability)
        model = fit(_weighted(task, found, model, settings), execution, narrator=narrator)
        found = _contamination(observed, model, execution.executor, before)
        if np.abs(np.nan_to_num(found.probability) - last).max() <= SETTLED:
            break
    model = fit(_weighted(task, found, model, task.model), execution, narrator=narrator)
    found = _contamination(observed, model, execution.executor, before)
    if not found.taken:
        return replace(plain, outliers=replace(found, probability=np.zeros_like(found.probability)))
    return replace(model, outliers=found)


def check_robust(task: Task) -> None:
    """Refuse what has no noise that is wider for values that may be wrong."""
    observed, asked = task.observed, task.model
    if observed.fields > 1:
        raise ArgumentError(
            f'outliers is "robust" and there are {observed.fields} fields, each with outliers of its own; '
            "expected one field, or times that are mapped together. cagp.check looks at several.",
            key="outliers-of-fields",
            remedies=(Setting("at", "observed"),),
        )
    refused = {
        "several variables, bias_by or depths": bool(observed.beside),
        "a prior": asked.prior is not None,
        "a background with an error that varies": isinstance(asked.mean, Background) and asked.mean.scales,
        "a mean that is read": is_read(asked.mean),
        "censored values": observed.censored is not None,
        "means over areas": observed.functionals is not None,
        "numbers that are fitted to other values": task.fitted_to is not None,
        "a recalibration": task.recalibration.method != "none",
    }
    if given := [name for name, there in refused.items() if there]:
        raise ArgumentError(
            f'outliers is "robust" beside {" and ".join(given)}, which do not go together yet; expected '
            'outliers "keep", after what cagp.check flags was left out, or none of these.',
            key="outliers-with-others",
            remedies=(Setting("outliers", "keep"),),
        )


def looks_wrong(observed: Observations, model: FittedModel, executor: Executor) -> str:
    """Say how much likelier values are with wider noise for a few; empty where that is little."""
    scales = isinstance(model.mean, Background) and model.mean.scales
    if observed.beside or observed.functionals is not None or observed.censored is not None:
        return ""
    if is_read(model.mean) or scales:
        return ""
    if observed.count < FEWEST:
        return ""
    some, known = observed, model.known_noise
    if observed.there.size > MOST_LOOKED_AT:
        # by their own numbers: in space and time a place of the source has many values
        some = some_places(replace(observed, source_index=np.arange(observed.north.size)), MOST_LOOKED_AT)
        known = known[some.source_index] if known.ndim else known
    if some.fields > MOST_FIELDS:
        fields = np.linspace(0, some.fields - 1, MOST_FIELDS).round().astype(np.intp)
        some = replace(some, values=some.values[fields], times=some.times[fields])
    left = LeftOutNear(some, replace(model, known_noise=known), executor)
    found = contamination(*left.errors(), rescaled=True)
    if found.gain < TOLD:
        return ""
    whole = f" (chosen evenly from {observed.count:,})" if some.count < observed.count else ""
    return (
        f"A few of {some.count:,} values{whole} look wrong, or belong to places unlike their surroundings, "
        f"such as mountains. Wider noise for these few raises the log-likelihood by {found.gain:.0f}; more "
        "than about 10 is strong evidence."
    )


def _weighted(task: Task, found: Contamination, model: FittedModel, settings: ModelSettings) -> Task:
    """Give the noise of each value as it may be wrong."""
    noise = np.broadcast_to(model.usual_noise_variance, task.observed.north.shape)
    excess = found.excess(noise[None])[0]
    return replace(task, observations=replace(task.observations, excess=excess), model=settings)


def _contamination(
    observed: Observations, model: FittedModel, executor: Executor, before: Array
) -> Contamination:
    """Fit share and width to what the others say of each value by a model with excess noise."""
    excess = model.excess
    assert excess is not None
    errors, variance = LeftOutNear(observed, model, executor).errors()
    return contamination(errors, variance - excess, before=before)
