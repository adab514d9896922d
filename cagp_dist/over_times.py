"""The posterior in space and time of places that were observed at every time, by solves in space alone.

With a product ``k_s k_t``, the same n places at T times and the same noise D at each (math 21), let
``k_t(t, t') = U diag(lam) U'``. The fields ``g_j = (U' f)_j`` are independent, ``g_j`` has the kernel
``lam_j k_s``, and ``(U' y)_j`` observes it with noise D. So T solves in space, by whatever solver fits the
places, give the posterior at all times (T44)::

    f(x, t) = sum_j (a_j / lam_j) g_j(x) + rest,   a = U' k_t(times, t)
    variance  sum_j (a_j / lam_j)^2 var g_j(x) + (k_t(t, t) - sum_j a_j^2 / lam_j) k_s(x, x)

and the likelihood of all times is the product of theirs, for U is a rotation.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.checks import as_points
from cagp_dist.errors import ArgumentError
from cagp_dist.gp import condition
from cagp_dist.gram.ring_filter import MARKOV, RingFilter
from cagp_dist.gram.targets import prior_variance
from cagp_dist.kernels import Elementary
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.prior import Prior
from cagp_dist.solvers.status import Status
from cagp_dist.space_time import SpaceTime, check_space_time
from cagp_dist.time_factors import Gneiting, Periodic

if TYPE_CHECKING:
    from cagp_dist.gram.targets import Targets
    from cagp_dist.runtime import ExecutorLike
    from cagp_dist.solvers import Solver
    from cagp_dist.solvers.exact.exact_solvers import ExactSolver

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
    executor: "ExecutorLike" = None,
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
    Cost: T times that of `condition` for one field, T^3 flops, and 24 T q bytes. A whole grid with `Rings`,
    noise by latitude and Matern 1/2 or 3/2 in time is smoothed in place of that, for its own points: see
    `RingFilter`.

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
    places = _unit_vectors("X_test", X_test)
    modes = _modes(prior, X, hours, y)
    wanted = modes.times if at is None else _in_hours("at", at)
    smoothed = _by_states(prior, X, modes, X_test, wanted, solver, executor, memory_limit_bytes)
    if smoothed is not None:
        return smoothed
    lam = modes.lam
    kept = np.flatnonzero(lam > NO_MODE * lam[-1])
    shares = (modes.in_time(wanted[:, None], modes.times[:, None]) @ modes.U)[:, kept] / lam[kept]
    rest = np.maximum(1.0 - shares**2 @ lam[kept], 0.0)

    mean, variance = (
        np.empty((len(wanted), len(places))),
        np.outer(rest, prior_variance(modes.in_space, places)),
    )
    for row, hour in enumerate(wanted):
        mean[row] = _mean(prior, places, hour)
    statuses = []
    for done, (j, share) in enumerate(zip(kept, shares.T, strict=True), start=1):
        found = condition(
            replace(prior, kernel=lam[j] * modes.in_space, mean=0.0),
            X,
            modes.rotated[j],
            X_test,
            solver=solver,
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
        )
        statuses.append(found.status)
        for row, part in enumerate(share):  # row by row: fields may be as large as memory
            mean[row] += part * found.mean.ravel()
            variance[row] += part**2 * found.variance.ravel()
        if progress is not None:
            progress(done / kept.size)
    shape = (len(wanted), *found.mean.shape)
    return PosteriorOverTimes(wanted, mean.reshape(shape), variance.reshape(shape), Status.worst(statuses))


def log_likelihood_over_times(
    prior: Prior,
    X: "ArrayLike | LatLonGrid",
    hours: ArrayLike,
    y: ArrayLike,
    *,
    solver: "ExactSolver",
    executor: "ExecutorLike" = None,
    memory_limit_bytes: int | None = None,
) -> float:
    """Logarithm of the density of places that were all observed at every time, exactly.

    Parameters
    ----------
    prior, X, hours, y
        As for `condition_over_times`; noise above zero.
    solver : Cholesky or Rings
        Of each mode in time.
    executor, memory_limit_bytes
        As for `condition`.

    Returns
    -------
    float
        ``log N(y; mean, K_t (x) K_s + I (x) D)``. A pole of a grid counts as one observation, their mean.

    Raises
    ------
    ArgumentError
        As `condition_over_times`; or if a grid has more than 8,192 gaps, or noise that varies along a
        latitude beside gaps.
    BudgetError, NumericalError
        As `condition`.

    Notes
    -----
    Cost: T factors of the n places, T^3 flops.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = cagp.unit_sphere([48.1, 52.5, 50.1], [11.6, 13.4, 8.7])
    >>> y = [[1.0, -0.5, 0.2], [1.4, -0.1, 0.3]]                                # at 0 and at 6 hours
    >>> for lengthscale in (1.0, 6.0, 36.0):
    ...     kernel = cagp.SpaceTime(cagp.Matern32(0.3, 2.0), cagp.Matern12(lengthscale))
    ...     found = cagp.log_likelihood_over_times(
    ...         cagp.Prior(kernel, 0.1), X, [0.0, 6.0], y, solver=cagp.Cholesky()
    ...     )
    ...     print(round(found, 2))
    -9.16
    -8.25
    -6.89
    """
    from cagp_dist.posterior.problem import make_problem, patterns
    from cagp_dist.runtime import given_or_threads
    from cagp_dist.solvers.exact.exact_solvers import ExactSolver

    if not isinstance(solver, ExactSolver):
        raise ArgumentError(
            f"solver is {solver!r}; expected cagp.Cholesky(), or cagp.Rings() on a grid: others know no "
            "determinant."
        )
    modes, total = _modes(prior, X, hours, y), 0.0
    with given_or_threads(executor, memory_limit_bytes) as (executor, limit):
        for lam, field in zip(np.maximum(modes.lam, NO_MODE * modes.lam[-1]), modes.rotated, strict=True):
            problem = make_problem(
                replace(prior, kernel=lam * modes.in_space, mean=0.0),
                patterns(X, field)[0],
                modes.where,
                full_covariance=False,
                executor=executor,
                memory_limit_bytes=limit,
            )
            with solver.threads(problem):
                _, solve = solver.opened(problem, executor)
                residuals = problem.residuals
                squares = float(np.vdot(residuals, solve.weights(residuals)))
                total -= 0.5 * (squares + solve.logdet() + residuals.size * np.log(2.0 * np.pi))
    return total


def _by_states(
    prior: Prior,
    X: "ArrayLike | LatLonGrid",
    modes: "Modes",
    X_test: "Targets",
    wanted: Array,
    solver: "Solver",
    executor: "ExecutorLike",
    memory_limit_bytes: int | None,
) -> PosteriorOverTimes | None:
    """Smooth fields of a whole grid at its own points; None where that is not what they are."""
    from cagp_dist.runtime import executor_from
    from cagp_dist.solvers.exact.exact_solvers import Rings

    if not isinstance(X, LatLonGrid) or not isinstance(X_test, LatLonGrid) or not X.same_points(X_test):
        return None
    noise = np.asarray(prior.noise_variance, dtype=np.float64)
    noise = np.broadcast_to(noise.reshape(X.shape) if noise.size > 1 else noise, X.shape)
    by_latitude = bool((noise == noise[:, :1]).all()) and bool((noise > 0.0).all())
    whole = by_latitude and not np.isnan(modes.rotated).any()
    if not whole or not isinstance(solver, Rings) or not isinstance(modes.in_time, MARKOV):
        return None
    at, of_wanted = np.unique(wanted, return_inverse=True)
    with executor_from(executor) as opened:
        days = RingFilter(
            X,
            SpaceTime(modes.in_space, modes.in_time),
            noise_variance=noise[:, 0],
            executor=opened,
            memory_limit_bytes=memory_limit_bytes,
        )
        mean, variance = days.smoothed(modes.times, np.tensordot(modes.U, modes.rotated, axes=1), at)
    about = np.stack([_mean(prior, modes.where, hour).reshape(X.shape) for hour in wanted])
    spread = np.repeat(variance[of_wanted][:, :, None], X.n_longitudes, axis=2)
    return PosteriorOverTimes(wanted, about + mean[of_wanted], spread, Status.EXACT)


class Modes(NamedTuple):
    """Fields of places as modes in time, ``U' y``."""

    in_space: Elementary
    in_time: Elementary | Periodic
    where: Array  # (n, 3): unit vectors
    times: Array  # (T,): hours
    lam: Array  # (T,): eigenvalues of ``k_t(times, times)``, ascending
    U: Array  # (T, T)
    rotated: Array  # (T, n) or (T, P, Q): without the prior mean


def _modes(prior: Prior, X: "ArrayLike | LatLonGrid", hours: ArrayLike, y: ArrayLike) -> Modes:
    """Check a complete series of fields and rotate it."""
    kernel = prior.kernel
    if not isinstance(kernel, SpaceTime) or kernel.time is None or isinstance(kernel.time, Gneiting):
        raise ArgumentError(
            f"the kernel is {kernel!r}; expected a product, cagp.SpaceTime(in_space, in_time). With "
            "other kernels of space and time condition on points X (n, 4)."
        )
    if prior.estimates_mean:
        raise ArgumentError("the mean has coefficients to estimate; expected a number or a function here.")
    where, times = _unit_vectors("X", X), _in_hours("hours", hours)
    values = np.array(y, dtype=np.float64)
    _check(times, values, where, gridded=isinstance(X, LatLonGrid))
    for field, hour in zip(values, times, strict=True):
        field -= _mean(prior, where, hour).reshape(field.shape)
    lam, U = np.linalg.eigh(kernel.time(times[:, None], times[:, None]))
    return Modes(kernel.space, kernel.time, where, times, lam, U, np.tensordot(U.T, values, axes=1))


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


def _mean(prior: Prior, where: Array, hour: float) -> Array:
    """Prior mean (n,) at places at one time."""
    if not callable(prior.mean):  # a number
        return np.broadcast_to(prior.mean_at(where[:1])[:, 0], len(where))
    return prior.mean_at(np.column_stack([where, np.full(len(where), hour)]))[:, 0]
