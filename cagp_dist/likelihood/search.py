"""The way up: quasi-Newton steps where values are known, roots where only the gradient is estimated."""

from collections.abc import Sequence

import numpy as np

from cagp_dist.gram.base import Array
from cagp_dist.likelihood.profile import Place, Profile

GAIN = 1e-5
"""A climb ends when a step raises the log likelihood by less: half a percent of a standard error."""

MOST_STEPS = 100

MOST_ROOT_STEPS = 20

CLOSE = 0.05
"""A search for a root ends where the next step is below this many standard errors."""

LONGEST_STEP = 0.7
"""Of a step towards a root, in log parameters: a factor of two."""


def best_climb(profile: Profile, starts: Sequence[Array]) -> Place:
    """Climb from every start and return the highest place; the first of equals."""
    return max((climb(profile, start) for start in starts), key=lambda place: place.log_likelihood)


def climb(profile: Profile, start: Array, curvature: Array | None = None) -> Place:
    """Maximise the profile likelihood by L-BFGS-B from one start.

    Parameters
    ----------
    profile : Profile
        What to maximise.
    start : array, shape (2,)
        (log lengthscale, log ratio), within the bounds.
    curvature : array, shape (3, 3), optional
        Information expected at the optimum, by log (lengthscale, variance, ratio): it sets the length of the
        first step.

    Returns
    -------
    Place
        The highest one seen.
    """
    from scipy.optimize import minimize

    values = profile.likelihood.points * profile.likelihood.fields
    unit = np.ones(2)
    if curvature is not None and (expected := np.diag(profile_information(curvature))).min() > 0.0:
        unit = np.sqrt(values / expected)  # unit curvature per value
    seen: list[Place] = []

    def descent(z: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> tuple[float, Array]:
        place = profile.at(np.clip(start + unit * z, *profile.box))
        if not seen or place.log_likelihood > seen[0].log_likelihood:
            seen[:] = [place]
        return -place.log_likelihood / values, -unit * place.slope / values

    minimize(
        descent,
        np.zeros(2),
        jac=True,
        method="L-BFGS-B",
        bounds=[(low, high) for low, high in ((profile.box - start) / unit).T],
        options={"maxiter": MOST_STEPS, "ftol": GAIN / values, "gtol": 1e-12},
    )
    return seen[0]


def profile_information(information: Array) -> Array:
    """Information of (log lengthscale, log ratio) with the best variance put in: a Schur complement."""
    kept, out = np.ix_([0, 2], [0, 2]), information[[0, 2], 1]
    return np.asarray(information[kept] - np.outer(out, out) / information[1, 1])


def settle(profile: Profile, start: Array, curvature: Array) -> Place:
    """Find where the estimated gradient vanishes: quasi-Newton steps with symmetric rank-one updates.

    Parameters
    ----------
    profile : Profile
        A likelihood whose gradient alone is known.
    start : array, shape (2,)
        (log lengthscale, log ratio), within the bounds.
    curvature : array, shape (3, 3)
        Information expected at the root, by log (lengthscale, variance, ratio).

    Returns
    -------
    Place
        The last one; the search ends where the next step is below `CLOSE` standard errors, Monte Carlo error
        included, after `MOST_ROOT_STEPS`.
    """
    low, high = profile.box
    place = profile.at(start)
    matrix = profile_information(curvature)
    if np.linalg.eigvalsh(matrix).min() <= 0.0:
        matrix = np.eye(2) * place.evaluation.values / 8.0
    for _ in range(MOST_ROOT_STEPS):
        inverse = np.linalg.inv(matrix)
        step = inverse @ place.slope
        step *= min(1.0, LONGEST_STEP / np.abs(step).max())
        target = np.clip(place.x + step, low, high)
        taken = target - place.x
        total = inverse + inverse @ place.evaluation.gradient_covariance() @ inverse
        if taken @ np.linalg.solve(total, taken) <= CLOSE**2:
            break
        following = profile.at(target)
        missed = place.slope - following.slope - matrix @ taken
        updated = matrix + np.outer(missed, missed) / (missed @ taken)
        if abs(missed @ taken) > 1e-8 * np.linalg.norm(missed) * np.linalg.norm(taken) and (
            np.linalg.eigvalsh(updated).min() > 0.0
        ):
            matrix = updated
        place = following
    return place
