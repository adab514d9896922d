"""How sure a fit is: standard errors from curvature, and whether the search has arrived."""

from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.likelihood.bounds import TOUCHING
from cagp_dist.likelihood.evaluation import NAMES, NATURAL
from cagp_dist.likelihood.profile import Place, Profile
from cagp_dist.likelihood.result import FitStatus, StandardErrors
from cagp_dist.likelihood.search import arrived

LOOSE = 3.0
"""A standard error of a logarithm beyond this (a factor of 20) says that the likelihood is flat."""


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """What curvature and gradient at the end of a search say.

    Attributes
    ----------
    covariance : array of float64, shape (3, 3)
        Of the logarithms of the parameters; NaN in rows and columns of those without standard error.
    standard_errors : StandardErrors
        In natural units.
    gradient_norm : float
        Of the log likelihood by the logarithms of the parameters, along what is free to move.
    at_bound : tuple of str
        Parameters on a bound that does not fix them.
    status : FitStatus
        How the search ended.
    """

    covariance: Array
    standard_errors: StandardErrors
    gradient_norm: float
    at_bound: tuple[str, ...]
    status: FitStatus


def uncertainty(profile: Profile, place: Place, information: Array) -> Uncertainty:
    """Judge the end of a search.

    Parameters
    ----------
    profile : Profile
        What was maximised, with its bounds.
    place : Place
        Where the search ended.
    information : array of float64, shape (3, 3)
        Observed information by the logarithms of (lengthscale, variance, ratio).

    Returns
    -------
    Uncertainty
        The covariance is that of the free directions, parameters on bounds being held there. Where the
        gradient is estimated by sampling, the variance this leaves in the estimates is added.
    """
    bounds = profile.bounds
    on_limit = bounds.touched(place.parameters)
    free = [index for index, name in enumerate(NAMES) if name not in on_limit]
    directions = np.eye(3)[:, free]
    ratio_low, ratio_high = np.abs(profile.box[:, 1] - place.x[1]) < TOUCHING
    if (ratio_low or ratio_high) and not {"variance", "noise_variance"} & set(on_limit):
        # only the ratio is limited: variance and noise variance can move together
        directions = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]).T[:, [0, 1] if 0 in free else [1]]
        on_limit += ("noise_variance",) if ratio_low else ("variance",)
    at_bound = tuple(name for name in on_limit if name not in bounds.fixed)
    gradient = directions.T @ place.gradient
    covariance = np.full((3, 3), np.nan)
    there = loose = False
    inner = directions.T @ NATURAL.T @ information @ NATURAL @ directions
    if np.linalg.eigvalsh(inner).min(initial=np.inf) > 0.0:
        inverse = np.linalg.inv(inner)
        sampled = np.zeros((3, 3))
        sampled[np.ix_([0, 2], [0, 2])] = place.evaluation.gradient_covariance()
        noise = directions.T @ NATURAL.T @ sampled @ NATURAL @ directions
        total = inverse + inverse @ noise @ inverse
        there = arrived(inverse @ gradient, inverse, noise)
        loose = bool(np.sqrt(np.diag(total)).max(initial=0.0) > LOOSE)
        covariance = directions @ total @ directions.T
        for index, name in enumerate(NAMES):
            if name in on_limit:
                covariance[index] = covariance[:, index] = np.nan
    else:
        loose = True
    errors = np.sqrt(np.diag(covariance)) * np.array(place.parameters)
    if at_bound:
        status = FitStatus.AT_BOUND
    elif loose and place.evaluation.solved:
        status = FitStatus.FLAT
    else:
        status = FitStatus.CONVERGED if there and place.evaluation.solved else FitStatus.NOT_CONVERGED
    return Uncertainty(
        covariance, StandardErrors(*errors.tolist()), float(np.linalg.norm(gradient)), at_bound, status
    )
