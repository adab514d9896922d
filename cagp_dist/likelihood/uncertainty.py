"""How sure a fit is: standard errors from curvature, and whether the search has arrived."""

from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.likelihood.bounds import TOUCHING
from cagp_dist.likelihood.exact.profile_likelihood import Place, ProfileLikelihood
from cagp_dist.likelihood.fit_result import FitStatus, StandardErrors, grouped
from cagp_dist.likelihood.search import arrived

LOOSE = 3.0  # A standard error of a logarithm beyond this (a factor of 20) says that the likelihood is flat


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """What curvature and gradient at the end of a search say."""

    # (k + 1, k + 1): of the logarithms of the parameters; NaN in rows and columns of those without standard
    # error
    covariance: Array
    standard_errors: StandardErrors  # In natural units
    # Of the log likelihood by the logarithms of the parameters, along what is free to move
    gradient_norm: float
    at_bound: tuple[str, ...]  # Parameters on a bound that does not fix them
    status: FitStatus  # How the search ended
    # (k + 1,): Newton step of the logarithms of the parameters to the maximum of the likelihood; NaN for
    # those that a bound holds, and for all where there is none
    step: Array


def uncertainty(profile: ProfileLikelihood, place: Place, information: Array) -> Uncertainty:
    """Judge the end of a search. Shapes: ``information`` (k + 1, k + 1)."""
    bounds, names, size = profile.bounds, profile.bounds.names, len(information)
    numbering = bounds.numbering
    first, to_natural = numbering.lengthscales, numbering.natural
    on_limit = bounds.touched(place.parameters)
    directions = np.eye(size)
    gone = {index for index, name in enumerate(names) if name in on_limit}
    for factor in range(first, first + numbering.parts):
        low, high = np.abs(profile.box[:, factor] - place.x[factor]) < TOUCHING
        if not (low or high) or gone >= {first, factor + 1}:
            continue
        if gone.isdisjoint({first, factor + 1}):
            # only the ratio is limited: variance and noise variance can move together
            directions[factor + 1, first] = 1.0
            gone.add(factor + 1)
            on_limit += (names[factor + 1 if low else first],)
        else:  # one is held, by which the limit of the ratio holds the other
            (other,) = {first, factor + 1} - gone
            gone.add(other)
            on_limit += (names[other],)
    directions = directions[:, [index for index in range(size) if index not in gone]]
    at_bound = tuple(name for name in on_limit if name not in bounds.fixed)
    gradient = directions.T @ place.gradient
    covariance = np.full((size, size), np.nan)
    step = np.full(size, np.nan)
    there = loose = False
    inner = directions.T @ to_natural.T @ information @ to_natural @ directions
    if np.linalg.eigvalsh(inner).min(initial=np.inf) > 0.0:
        inverse = np.linalg.inv(inner)
        excess = np.zeros((size, size)) if place.evaluation.excess is None else place.evaluation.excess
        noise: Array = directions.T @ to_natural.T @ excess @ to_natural @ directions
        total = inverse + inverse @ noise @ inverse
        newton = inverse @ gradient
        there = arrived(newton, np.asarray(inverse, dtype=np.float64), noise)
        loose = bool(np.sqrt(np.diag(total)).max(initial=0.0) > LOOSE)
        covariance = directions @ total @ directions.T
        step = directions @ newton
        for index, name in enumerate(names):
            if name in on_limit:
                covariance[index] = covariance[:, index] = np.nan
                step[index] = np.nan
    else:
        loose = True
    errors = np.sqrt(np.diag(covariance)) * np.array(place.parameters)
    if at_bound:
        status = FitStatus.AT_BOUND
    elif loose:
        status = FitStatus.FLAT
    else:
        status = FitStatus.CONVERGED if there else FitStatus.NOT_CONVERGED
    standard_errors = StandardErrors(*grouped(*numbering.grouped(errors.tolist())))
    norm = float(np.linalg.norm(gradient))
    return Uncertainty(covariance, standard_errors, norm, at_bound, status, step)
