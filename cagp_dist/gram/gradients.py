"""Slopes of the field along the surface of the Earth, as linear functionals."""

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.checks import as_numbers, check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import EARTH_RADIUS_KILOMETRES, east_and_north, is_pole, unit_sphere
from cagp_dist.gram.functionals import LinearFunctionals

STEP_KILOMETRES = 25.0
LEAST_KILOMETRES, MOST_KILOMETRES = 0.1, 1000.0


def gradients(
    latitude_degrees: ArrayLike,
    longitude_degrees: ArrayLike,
    *,
    step_kilometres: float = STEP_KILOMETRES,
) -> LinearFunctionals:
    """Slopes of the field to the east and to the north, by central differences.

    ``(f(x + h) - f(x - h)) / 2 h``: both points lie at a distance h from x, on the great circle through it in
    that direction.

    Parameters
    ----------
    latitude_degrees, longitude_degrees : array_like, shape (n,)
        Degrees north and east; no poles, where there is no east.
    step_kilometres : float
        h, 0.1 to 1,000 km.

    Returns
    -------
    LinearFunctionals
        2 n of them: all slopes to the east, then all to the north, in units of the field per kilometre.

    Raises
    ------
    ArgumentError
        If a point is a pole, or the step out of range.

    Notes
    -----
    The posterior is that of these differences. How far they are from derivatives depends on the kernel: for
    small h the standard deviation of what lies between falls as ``h^2`` for SquaredExponential, as ``h^1.5``
    for Matern52 and as ``h^0.5`` for Matern32. Fields of Matern12 have no derivative: the prior variance of
    the difference grows as ``1 / h``, and it is a slope over 2 h kilometres and over no other distance.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> rng = np.random.default_rng(0)
    >>> latitude, longitude = rng.uniform(40.0, 50.0, 200), rng.uniform(0.0, 10.0, 200)
    >>> X, y = cagp.unit_sphere(latitude, longitude), 15.0 - 0.5 * (latitude - 45.0)
    >>> prior = cagp.Prior(cagp.Matern52(lengthscale=0.2, variance=4.0), noise_variance=1e-4, mean=15.0)
    >>> slopes = cagp.gradients([45.0], [5.0])
    >>> posterior = cagp.condition(prior, X, y, slopes, solver=cagp.Cholesky())
    >>> posterior.mean.round(4), np.sqrt(posterior.variance).round(4)
    (array([ 0.    , -0.0045]), array([0.0001, 0.0001]))
    """
    latitude = as_numbers("latitude_degrees", latitude_degrees)
    longitude = as_numbers("longitude_degrees", longitude_degrees)
    check_positive("step_kilometres", step_kilometres, least=LEAST_KILOMETRES, most=MOST_KILOMETRES)
    points = unit_sphere(latitude, longitude)
    if is_pole(latitude).any():
        raise ArgumentError(
            f"point {int(np.flatnonzero(is_pole(latitude))[0])} is a pole, where no direction is east; "
            "expected latitudes between the poles.",
            key="gradient-at-pole",
        )
    angle = step_kilometres / EARTH_RADIUS_KILOMETRES
    # two nodes of each slope, one after the other
    nodes = [
        np.cos(angle) * points + sign * np.sin(angle) * direction
        for direction in east_and_north(latitude, longitude)
        for sign in (1.0, -1.0)
    ]
    pairs = np.concatenate([np.stack(nodes[:2], axis=1), np.stack(nodes[2:], axis=1)])
    count = 2 * len(points)
    return LinearFunctionals.of_terms(
        pairs.reshape(-1, 3),
        np.tile([0.5, -0.5], count) / step_kilometres,
        np.full(count, 2),
    )
