"""Fit to the evidence lower bound of block-sparse actions, and say how far that is from the likelihood.

The bound counts what its actions do not resolve as misfit, and its optimum takes some of that for noise, or
for a smoother field (math 11). How much, nobody knows beforehand: at the optimum the gradient of the log
likelihood itself is therefore estimated by samples, and a Newton step from there says where its maximum lies.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.likelihood.bounds import Bounds
from cagp_dist.likelihood.elbo import Elbo
from cagp_dist.likelihood.model import Model, Numbering
from cagp_dist.likelihood.observed import Points
from cagp_dist.likelihood.optimise import LBFGS, OptimiserStep, Stopping, maximise
from cagp_dist.likelihood.pathwise import PathwiseLikelihood
from cagp_dist.likelihood.profile import Counter, Place, Profile
from cagp_dist.likelihood.projected_data import ProjectedData
from cagp_dist.likelihood.result import BoundOptimum, FitStatus
from cagp_dist.likelihood.uncertainty import Uncertainty, uncertainty
from cagp_dist.runtime import Executor
from cagp_dist.solvers.block_sparse import BlockLayout
from cagp_dist.solvers.checkpoints import Checkpoints

MOST_STEPS = 60
"""Of L-BFGS-B. Later ones change the actions, and the hyperparameters by little (measured)."""

ENOUGH = Stopping(rise=1e-5, window=10)


MOST_BIAS = 2.0
"""Standard errors that the optimum of the bound may lie from that of the likelihood."""


class BoundFit(NamedTuple):
    """Parameters in the order of their names, how the search ended, and what the bound knows beside."""

    parameters: tuple[float, ...]
    end: Uncertainty
    bound: BoundOptimum


def fit_bound(
    model: Model,
    data: Points,
    start: Sequence[float],
    information: Array,
    limits: Bounds,
    counter: Counter,
    *,
    actions: int,
    executor: Executor,
    memory_limit_bytes: int,
    seed: int,
    checkpoints: Checkpoints | None,
) -> BoundFit:
    """Maximise the bound by hyperparameters and actions, which begin as means of blocks; then look around.

    Parameters
    ----------
    start : sequence of float
        Parameters, within the limits.
    information : array of float64, shape (k, k)
        By the logarithms of (lengthscales, variance, weights, ratio), near the optimum.
    limits : Bounds
        Of the parameters.
    counter : Counter
        Counts evaluations and tells of them.
    actions : int
        Blocks; at most n are used.
    seed : int
        Of the samples of the gradient.
    """
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

    def tell(step: OptimiserStep) -> None:
        parameters = list(step.hyperparameters.values())
        counter.say(data.size, numbering.grouped(parameters), step.value)

    optimum = maximise(
        objective,
        np.concatenate([np.log(start), np.ones(data.size)]),
        optimiser=LBFGS(steps=MOST_STEPS),
        bounds=limits.limits,
        stopping=ENOUGH,
        callback=tell,
        checkpoints=checkpoints,
        fingerprint=objective.fingerprint,
    )
    parameters = tuple(optimum.hyperparameters.values())
    likelihood = PathwiseLikelihood(
        model,
        data.X,
        data.residuals,
        executor=executor,
        memory_limit_bytes=memory_limit_bytes,
        seed=seed,
    )
    place = _place(likelihood, parameters, numbering)
    counter.tell(place)
    end = uncertainty(Profile(likelihood, limits, counter), place, information)
    bias, errors = _bias(place, information)
    names = numbering.names
    return BoundFit(
        parameters,
        replace(end, status=_status(end, bias)),
        BoundOptimum(
            optimum.value,
            optimum.vector[len(names) :],
            dict(zip(names, bias.tolist(), strict=True)),
            dict(zip(names, errors.tolist(), strict=True)),
        ),
    )


def _place(likelihood: PathwiseLikelihood, parameters: Sequence[float], numbering: Numbering) -> Place:
    """Estimate the gradient of the likelihood at these parameters, whatever variance would fit best there."""
    first = numbering.lengthscales
    numbers = np.array(
        [*parameters[:first], *(other / parameters[first] for other in parameters[first + 1 :])]
    )
    return Place(np.log(numbers), parameters[first], 0, likelihood.evaluate(*numbers.tolist()))


def _bias(place: Place, information: Array) -> tuple[Array, Array]:
    """Newton step from the maximum of the likelihood, and its standard errors."""
    numbering = place.evaluation.numbering
    to_natural, first = numbering.natural, numbering.lengthscales
    inverse = np.linalg.inv(to_natural.T @ information @ to_natural)
    sampled = np.zeros_like(information)
    others = np.delete(np.arange(len(information)), first)
    sampled[np.ix_(others, others)] = place.evaluation.gradient_covariance()
    noise = to_natural.T @ sampled @ to_natural
    return -inverse @ place.gradient, np.sqrt(np.diag(inverse @ noise @ inverse))


def _status(end: Uncertainty, bias: Array) -> FitStatus:
    """How the search ended: whether the actions are level as well makes no difference to the parameters."""
    if end.status in (FitStatus.AT_BOUND, FitStatus.FLAT):
        return end.status
    near = np.abs(bias) <= MOST_BIAS * np.sqrt(np.diag(end.covariance))
    return FitStatus.CONVERGED if near.all() else FitStatus.BIASED
