"""The posterior in space and time of places that were observed at every time, by solves in space alone.

With a product ``k_s k_t``, the same n places at T times and the same noise D at each (math 21), let
``k_t(t, t') = U diag(lam) U'``. The fields ``g_j = (U' f)_j`` are independent, ``g_j`` has the kernel
``lam_j k_s``, and ``(U' y)_j`` observes it with noise D. So T solves in space, by whatever solver fits the
places, give the posterior at all times (T44)::

    f(x, t) = sum_j (a_j / lam_j) g_j(x) + rest,   a = U' k_t(times, t)
    variance  sum_j (a_j / lam_j)^2 var g_j(x) + (k_t(t, t) - sum_j a_j^2 / lam_j) k_s(x, x)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.checks import as_points
from cagp_dist.errors import ArgumentError
from cagp_dist.gp import condition
from cagp_dist.gram.targets import prior_variance
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.prior import Prior
from cagp_dist.solvers.status import Status
from cagp_dist.space_time import SpaceTime, check_space_time

if TYPE_CHECKING:
    from cagp_dist.gram.targets import Targets
    from cagp_dist.runtime import Executor
    from cagp_dist.solvers import Solver

NO_MODE = 1e-14
"""Part of the largest eigenvalue below which a mode is rounding, and is left out."""


@dataclass(frozen=True, eq=False)
class PosteriorOverTimes:
    """The field at A times.

    Attributes
    ----------
    hours : array, shape (A,)
        When.
    mean, variance : array, shape (A, q), or (A, P, Q) with a grid as target
        Posterior mean, unit of y, and variance of the latent field about it, without noise.
    status : Status
        The worst of those of the solves.
    """

    hours: Array
    mean: Array
    variance: Array
    status: Status


def condition_over_times(
    prior: Prior,
    X: "ArrayLike | LatLonGrid",
    hours: ArrayLike,
    y: ArrayLike,
    X_test: "Targets",
    *,
    at: ArrayLike | None = None,
    solver: "Solver",
    executor: "Executor | None" = None,
    memory_limit_bytes: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> PosteriorOverTimes:
    """Condition a prior of space and time on places that were all observed at every time.

    It takes T solves in space in place of one with n T points, and is exact where they are. Error bars of
    solvers that stop early stay calibrated: the modes are independent.

    Parameters
    ----------
    prior : Prior
        Its kernel is a `SpaceTime` product. Noise: one number, or one for each place. Mean: a number, or a
        function of points (m, 4), unit vectors and hours.
    X : array_like, shape (n, 3), or LatLonGrid
        Places, as unit vectors.
    hours : array_like, shape (T,)
        Times of the observations, each once, in any order and spacing.
    y : array_like, shape (T, n), or (T, P, Q) on a grid
        Observations. On a grid NaN where nothing was observed, at the same places each time.
    X_test : array_like (q, 3) or LatLonGrid
        Where the field is wanted.
    at : array_like, shape (A,), optional
        When, in hours; by default at the times of the observations.
    solver : Solver
        Of each solve in space.
    executor, memory_limit_bytes
        As for `condition`.
    progress : callable, optional
        Gets the part of the work that is done.

    Returns
    -------
    PosteriorOverTimes

    Raises
    ------
    ArgumentError
        If the kernel is no product, times repeat, or places lack a value at some of the times only; points
        X (n T, 4) and `condition` take these.
    BudgetError, NumericalError
        As `condition`.

    Notes
    -----
    Cost: T times that of `condition` for one field, T^3 flops, and 24 T q bytes.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> kernel = cagp.SpaceTime(cagp.Matern32(lengthscale=0.3, variance=2.0), cagp.Matern12(lengthscale=6.0))
    >>> X = cagp.unit_sphere([48.1, 52.5, 50.1], [11.6, 13.4, 8.7])
    >>> y = [[1.0, -0.5, 0.2], [1.4, -0.1, 0.3]]                                # at 0 and at 6 hours
    >>> found = cagp.condition_over_times(
    ...     cagp.Prior(kernel, 0.1), X, [0.0, 6.0], y, X[:1], at=[3.0, 12.0], solver=cagp.Cholesky()
    ... )
    >>> found.mean.round(2), np.sqrt(found.variance).round(2)
    (array([[0.78],
           [0.38]]), array([[0.98],
           [1.32]]))
    """
    kernel = prior.kernel
    if not isinstance(kernel, SpaceTime) or kernel.time is None:
        raise ArgumentError(
            f"the kernel is {kernel!r}; expected a product, cagp.SpaceTime(in_space, in_time). With "
            "other kernels of space and time condition on points X (n, 4)."
        )
    if prior.estimates_mean:
        raise ArgumentError("the mean has coefficients to estimate; expected a number or a function here.")
    where, places = _unit_vectors("X", X), _unit_vectors("X_test", X_test)
    times, values = _in_hours("hours", hours), np.asarray(y, dtype=np.float64)
    _check(times, values, where, gridded=isinstance(X, LatLonGrid))
    wanted = times if at is None else _in_hours("at", at)
    values = values - _mean(prior, where, times).reshape(values.shape)

    lam, U = np.linalg.eigh(kernel.time(times[:, None], times[:, None]))
    kept = lam > NO_MODE * lam[-1]
    lam, U = lam[kept], U[:, kept]
    shares = kernel.time(wanted[:, None], times[:, None]) @ U / lam  # (A, modes)
    rest = 1.0 - np.einsum("aj,aj->a", shares**2, np.broadcast_to(lam, shares.shape))
    rotated = np.tensordot(U.T, values, axes=1)

    mean: Array | None = None
    statuses = []
    for j, share in enumerate(shares.T):
        in_space = replace(prior, kernel=lam[j] * kernel.space, mean=0.0)
        found = condition(
            in_space,
            X,
            rotated[j],
            X_test,
            solver=solver,
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
        )
        statuses.append(found.status)
        if mean is None:
            whole = prior_variance(kernel.space, places).reshape(found.mean.shape)
            mean = _mean(prior, places, wanted).reshape(len(wanted), *found.mean.shape)
            variance = np.multiply.outer(np.maximum(rest, 0.0), whole)
        mean += np.multiply.outer(share, found.mean)
        variance += np.multiply.outer(share**2, found.variance)
        if progress is not None:
            progress((j + 1) / lam.size)
    assert mean is not None  # the largest eigenvalue is kept
    return PosteriorOverTimes(wanted, mean, variance, Status.worst(statuses))


def _unit_vectors(name: str, where: object) -> Array:
    """Give the unit vectors (n, 3) of places or of a grid."""
    if isinstance(where, LatLonGrid):
        return where.points
    points = as_points(name, cast("ArrayLike", where))
    if points.shape[1] != 3:
        raise ArgumentError(
            f"{name} has {points.shape[1]} columns; expected unit vectors (n, 3), without hours."
        )
    check_space_time(np.column_stack([points, np.zeros(len(points))]))
    return points


def _in_hours(name: str, hours: ArrayLike) -> Array:
    """Hours (A,) that are numbers."""
    given = np.atleast_1d(np.asarray(hours))
    if given.ndim != 1 or given.dtype.kind not in "iuf" or not np.isfinite(given).all():
        raise ArgumentError(
            f"{name} is {hours!r}; expected hours, finite numbers. Of dates: (dates - dates.min()) / "
            'np.timedelta64(1, "h").'
        )
    return given.astype(np.float64)


def _check(times: Array, values: Array, where: Array, *, gridded: bool) -> None:
    """Refuse what is no complete series of fields at the same places."""
    if times.ndim != 1 or np.unique(times).size != times.size or times.size == 0:
        raise ArgumentError(f"hours is {times!r}; expected one number for each time, no two the same.")
    if len(values) != times.size or values.size != times.size * len(where):
        shape = "(T, P, Q)" if gridded else "(T, n)"
        raise ArgumentError(
            f"y has shape {values.shape}; expected {shape} with T = {times.size} times and "
            f"{len(where)} places."
        )
    missing = np.isnan(values.reshape(times.size, -1))
    if (missing.any(axis=0) != missing.all(axis=0)).any() or (missing.any() and not gridded):
        raise ArgumentError(
            "some places have a value at some of the times only; expected all places at all times (on a grid "
            "the same gaps). Condition on points X (n, 4), unit vectors and hours, with cagp.Neighbours."
        )


def _mean(prior: Prior, where: Array, times: Array) -> Array:
    """Prior mean (T, n) at places and times."""
    points = np.column_stack([np.tile(where, (times.size, 1)), np.repeat(times, len(where))])
    return np.asarray(prior.mean_at(points)).reshape(times.size, len(where))
