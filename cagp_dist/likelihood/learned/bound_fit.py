"""Fit to the evidence lower bound of block-sparse actions, and say how far that is from the likelihood.

The bound counts what its actions do not resolve as misfit, and its optimum takes some of that for noise, or
for a smoother field (math 11): the gradient of the likelihood there says how far off it is, by a Newton step.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.likelihood.bounds import SMALLEST_RATIO, Bounds, Limits
from cagp_dist.likelihood.exact.likelihood_evaluation import Likelihood
from cagp_dist.likelihood.exact.profile_likelihood import Counter, Place, ProfileLikelihood
from cagp_dist.likelihood.fit_result import BoundOptimum, FitStatus
from cagp_dist.likelihood.learned.course import OptimiserStep, Stopping
from cagp_dist.likelihood.learned.elbo import Elbo
from cagp_dist.likelihood.learned.optimise import LBFGS, maximise
from cagp_dist.likelihood.learned.projected_data import ProjectedData, check_projection
from cagp_dist.likelihood.numbering import Model, Numbering
from cagp_dist.likelihood.observed import ResidualsAtPoints
from cagp_dist.likelihood.uncertainty import Uncertainty, uncertainty
from cagp_dist.runtime import Executor
from cagp_dist.runtime.memo import Memo
from cagp_dist.solvers.actions.block_sparse import BlockLayout

MOST_STEPS = 60  # Of L-BFGS-B. Later ones change the actions, and the hyperparameters by little (measured).
ENOUGH = Stopping(rise=1e-5, window=10)

MOST_BIAS = 2.0  # Standard errors that the optimum of the bound may lie from that of the likelihood


class BoundFit(NamedTuple):
    """Parameters in the order of their names, how the search ended, and what the bound knows beside."""

    parameters: tuple[float, ...]
    end: Uncertainty
    bound: BoundOptimum


def check_bound_fits(
    data: ResidualsAtPoints, *, actions: int, executor: Executor, memory_limit_bytes: int
) -> None:
    """Raise `BudgetError` unless the search fits into memory."""
    check_projection(
        data.size,
        min(actions, data.size),
        fields=data.fields,
        workers=executor.workers,
        memory_limit_bytes=memory_limit_bytes,
    )


def fit_bound(
    model: Model,
    data: ResidualsAtPoints,
    start: Sequence[float],
    information: Array,
    limits: Bounds,
    counter: Counter,
    *,
    judge: Likelihood,
    actions: int,
    executor: Executor,
    memory_limit_bytes: int,
    checkpoints: Memo | None,
) -> BoundFit:
    """Maximise the bound by hyperparameters and actions, means of blocks at first; ``judge`` the end."""
    seen = ProjectedData(
        model,
        data.X,
        data.residuals,
        layout=BlockLayout.of(data.X, actions),  # as `SparseActions` cuts them
        executor=executor,
        memory_limit_bytes=memory_limit_bytes,
        anisotropic=model.coordinates is not None,
    )
    objective = Elbo(seen)
    numbering = model.numbering
    told = counter.evaluations

    def tell(step: OptimiserStep) -> None:
        parameters = list(step.hyperparameters.values())
        counter.say(data.size, numbering.grouped(parameters), step.value)

    optimum = maximise(
        objective,
        np.concatenate([np.log(start), np.ones(data.size)]),
        optimiser=LBFGS(steps=MOST_STEPS),
        bounds=_box(limits, start, numbering),
        stopping=ENOUGH,
        callback=tell,
        checkpoints=checkpoints,
        fingerprint=objective.fingerprint,
    )
    counter.evaluations = told + optimum.evaluations
    numbers, variance = _numbers(tuple(optimum.hyperparameters.values()), numbering)
    if limits.alike:
        ordered = model.in_order(numbers)
        variance *= float(np.exp(numbers[-1] - ordered[-1]))  # the noise variance stays
        numbers = ordered
    # whatever variance would fit best there: the gradient at these parameters is what is asked for
    place = Place(numbers, variance, 0, judge.evaluate(*np.exp(numbers).tolist()))
    counter.tell(place)
    if place.evaluation.squares is not None:
        information = place.evaluation.expected_information()
    end = uncertainty(ProfileLikelihood(judge, limits, counter), place, information)
    bias = -end.step
    names = numbering.names
    # the least noise that leaves S'G S positive definite is no limit of `limits`
    held = tuple(name for name in optimum.at_bound if name not in end.at_bound)
    if held:
        end = replace(end, at_bound=(*end.at_bound, *held), status=FitStatus.AT_BOUND)
    return BoundFit(
        place.parameters,
        replace(end, status=_status(end, bias)),
        BoundOptimum(
            optimum.value,
            optimum.vector[len(names) :],
            dict(zip(names, bias.tolist(), strict=True)),
        ),
    )


def _box(limits: Bounds, start: Sequence[float], numbering: Numbering) -> list[Limits]:
    """Limits of each parameter, with a noise variance that leaves S'G S positive definite."""
    *others, (low, high) = limits.limits
    least = min(SMALLEST_RATIO * start[numbering.lengthscales], start[-1])
    return [*others, (max(low, least), high)]


def _numbers(parameters: Sequence[float], numbering: Numbering) -> tuple[Array, float]:
    """Logarithms of (lengthscales, weights, ratio), and the variance of the first part."""
    first = numbering.lengthscales
    variance = parameters[first]
    return np.log([*parameters[:first], *(other / variance for other in parameters[first + 1 :])]), variance


def _status(end: Uncertainty, bias: Array) -> FitStatus:
    """How the search ended: whether the actions are level as well makes no difference to the parameters."""
    if end.status in (FitStatus.AT_BOUND, FitStatus.FLAT):
        return end.status
    free = np.isfinite(np.diag(end.covariance))
    if not np.isfinite(bias[free]).all():
        return FitStatus.NOT_CONVERGED
    near = np.abs(bias[free]) <= MOST_BIAS * np.sqrt(np.diag(end.covariance)[free])
    return FitStatus.CONVERGED if near.all() else FitStatus.BIASED
