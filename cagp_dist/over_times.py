"""The posterior in space and time of the same places at several times, by solves in space and in time.

With a product ``k_s k_t``, the same n places at T times and the same noise D at each (math 21), let
``k_t(t, t') = U diag(lam) U'``. The fields ``g_j = (U' f)_j`` are independent, ``g_j`` has the kernel
``lam_j k_s``, and ``(U' y)_j`` observes it with noise D. So T solves in space, by whatever solver fits the
places, give the posterior at all times (T44)::

    f(x, t) = sum_j (a_j / lam_j) g_j(x) + rest,   a = U' k_t(times, t)
    variance  sum_j (a_j / lam_j)^2 var g_j(x) + (k_t(t, t) - sum_j a_j^2 / lam_j) k_s(x, x)

and the likelihood of all times is the product of theirs, for U is a rotation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.checks import check_count, check_generator
from cagp_dist.errors import ArgumentError
from cagp_dist.gp import condition
from cagp_dist.gram.ring_filter import MARKOV, RingFilter
from cagp_dist.gram.series_gaps import FEW_IN_SERIES, SeriesWithGaps
from cagp_dist.gram.targets import prior_variance
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.posterior.coefficients import MeanCoefficients, check_estimable
from cagp_dist.prior import Prior
from cagp_dist.series_solves import (
    Series,
    basis_at_hours,
    gappy_series,
    in_hours,
    mean_at_hour,
    series_of,
    unit_vectors,
)
from cagp_dist.solvers.interface import no_op
from cagp_dist.solvers.status import Status

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
    relative_error : float
        Standard error of the variance by chance, relative to it, at most; 0 where it is not from samples.
    relative_residual : float
        Of the mean, where gaps are solved for.
    coefficients : MeanCoefficients or None
        Of the prior mean, where they are estimated.
    """

    hours: Array
    mean: Array
    variance: Array
    status: Status
    relative_error: float = 0.0
    relative_residual: float = 0.0
    coefficients: MeanCoefficients | None = None


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
    samples: int = 200,
    generator: np.random.Generator | None = None,
    progress: Callable[[float], None] | None = None,
) -> PosteriorOverTimes:
    """Condition a prior of space and time on fields of the same places at several times.

    Of places that were all observed at every time it takes T solves in space instead of one with n T points,
    and is exact where they are. Error bars of solvers that stop early stay calibrated: the modes are
    independent. Gaps that differ between times are solved for by way of the complete series.

    Parameters
    ----------
    prior : Prior
        Its kernel is a `SpaceTime` product. Noise: one number, or one for each place. Mean: a number, a
        function of points (m, 4), unit vectors and hours; or a basis of these whose coefficients are
        estimated from all times, which takes the solvers of gaps that differ.
    X : array_like, shape (n, 3), or LatLonGrid
        Places, as unit vectors.
    hours : array_like, shape (T,)
        Times of the observations, each once, in any order and spacing.
    y : array_like, shape (T, n), or (T, P, Q) on a grid
        Observations, NaN where nothing was observed. Gaps that differ between times take `Rings` of a grid,
        with noise by latitude, or `Cholesky` of places.
    X_test : array_like (q, 3) or LatLonGrid
        Where the field is wanted.
    at : array_like, shape (A,), optional
        When, in hours; by default at the times of the observations.
    solver : Solver
        Of each solve in space.
    executor, memory_limit_bytes
        As for `condition`.
    samples : int
        Variances of more than 2,048 gaps that differ between times come from so many draws, with a relative
        standard error of at most ``sqrt(2 / samples)``: of the part alone that is due to gaps.
    generator : numpy.random.Generator, optional
        Of these draws; by default always the same.
    progress : callable, optional
        Gets the part of the work that is done.

    Returns
    -------
    PosteriorOverTimes

    Raises
    ------
    ArgumentError
        If the kernel is no product, times repeat, or gaps that differ between times meet another solver;
        points X (n T, 4) and `condition` take these.
    BudgetError, NumericalError
        As `condition`.

    Notes
    -----
    Cost: T times that of `condition` for one field, T^3 flops, and 24 T q bytes. A whole grid with `Rings`,
    noise by latitude and Matern 1/2 or 3/2 in time is smoothed instead of that, for its own points: see
    `RingFilter`. Gaps that differ take eigenvectors in space once, 9 P^3 Q / 2 flops on a grid, 9 n^3 of
    places; then for the mean some 20 to 200 iterations, for each sample fewer, of 8 P^2 Q T, or 8 n^2 T, and
    8 T^2 n flops. The mean is solved to a relative residual of 1e-11, or as far as rounding allows where
    noise is small; draws to 1e-6.

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
    places = unit_vectors("X_test", X_test)
    series = series_of(prior, X, hours, y)
    wanted = series.times if at is None else in_hours("at", at)
    if series.gaps_differ or prior.estimates_mean:
        return posterior_by_modes(
            prior,
            series,
            X_test,
            wanted,
            solver=solver,
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
            samples=samples,
            generator=generator,
            progress=progress,
        )
    smoothed = _by_states(prior, series, X_test, wanted, solver, executor, memory_limit_bytes)
    if smoothed is not None:
        return smoothed
    lam, U, rotated = _modes(series)
    kept = np.flatnonzero(lam > NO_MODE * lam[-1])
    shares = (series.in_time(wanted[:, None], series.times[:, None]) @ U)[:, kept] / lam[kept]
    rest = np.maximum(1.0 - shares**2 @ lam[kept], 0.0)

    mean, variance = (
        np.empty((len(wanted), len(places))),
        np.outer(rest, prior_variance(series.kernel.space, places)),
    )
    for row, hour in enumerate(wanted):
        mean[row] = mean_at_hour(prior, places, hour)
    statuses = []
    for done, (j, share) in enumerate(zip(kept, shares.T, strict=True), start=1):
        found = condition(
            replace(prior, kernel=lam[j] * series.kernel.space, mean=0.0),
            X,
            rotated[j],
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
    """Logarithm of the density of fields of the same places at several times, exactly.

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
        latitude beside gaps; or if gaps that differ between times are more than 2,048.
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
    from cagp_dist.posterior.problem import Problems, patterns
    from cagp_dist.runtime import given_or_threads
    from cagp_dist.solvers.exact.exact_solvers import ExactSolver

    if not isinstance(solver, ExactSolver):
        raise ArgumentError(
            f"solver is {solver!r}; expected cagp.Cholesky(), or cagp.Rings() on a grid: others know no "
            "determinant."
        )
    if prior.estimates_mean:
        raise ArgumentError(
            "the mean has coefficients to estimate; expected a number or a function here.", key="mean"
        )
    series = series_of(prior, X, hours, y)
    if series.gaps_differ:
        settings: Any = {"executor": executor, "memory_limit_bytes": memory_limit_bytes}
        with gappy_series(prior, series, cast("Solver", solver), **settings) as gaps:
            return _gappy_likelihood(series, gaps)
    (modes, _, rotated), total = _modes(series), 0.0
    with given_or_threads(executor, memory_limit_bytes) as (executor, limit):
        for lam, field in zip(np.maximum(modes, NO_MODE * modes[-1]), rotated, strict=True):
            problem = Problems(
                replace(prior, kernel=lam * series.kernel.space, mean=0.0),
                series.where,
                full_covariance=False,
                executor=executor,
                memory_limit_bytes=limit,
            ).of(patterns(X, field)[0])
            with solver.threads(problem):
                _, solve = solver.opened(problem, executor)
                residuals = problem.residuals
                squares = float(np.vdot(residuals, solve.weights(residuals)))
                total -= 0.5 * (squares + solve.logdet() + residuals.size * np.log(2.0 * np.pi))
    return total


def _by_states(
    prior: Prior,
    series: Series,
    X_test: "Targets",
    wanted: Array,
    solver: "Solver",
    executor: "ExecutorLike",
    memory_limit_bytes: int | None,
) -> PosteriorOverTimes | None:
    """Smooth fields of a whole grid at its own points; None where that is not what they are."""
    from cagp_dist.runtime import executor_from
    from cagp_dist.solvers.exact.exact_solvers import Rings

    X = series.X
    if not isinstance(X, LatLonGrid) or not isinstance(X_test, LatLonGrid) or not X.same_points(X_test):
        return None
    noise = np.asarray(prior.noise_variance, dtype=np.float64)
    noise = np.broadcast_to(noise.reshape(X.shape) if noise.size > 1 else noise, X.shape)
    by_latitude = bool((noise == noise[:, :1]).all()) and bool((noise > 0.0).all())
    whole = by_latitude and not np.isnan(series.values).any()
    if not whole or not isinstance(solver, Rings) or not isinstance(series.in_time, MARKOV):
        return None
    at, of_wanted = np.unique(wanted, return_inverse=True)
    with executor_from(executor) as opened:
        days = RingFilter(
            X,
            series.kernel,
            noise_variance=noise[:, 0],
            executor=opened,
            memory_limit_bytes=memory_limit_bytes,
        )
        mean, variance = days.smoothed(series.times, series.values, at)
    about = np.stack([mean_at_hour(prior, series.where, hour).reshape(X.shape) for hour in wanted])
    spread = np.repeat(variance[of_wanted][:, :, None], X.n_longitudes, axis=2)
    return PosteriorOverTimes(wanted, about + mean[of_wanted], spread, Status.EXACT)


def posterior_by_modes(
    prior: Prior,
    series: Series,
    X_test: "Targets",
    wanted: Array,
    *,
    solver: "Solver",
    executor: "ExecutorLike" = None,
    memory_limit_bytes: int | None = None,
    samples: int = 200,
    generator: np.random.Generator | None = None,
    progress: Callable[[float], None] | None = None,
) -> PosteriorOverTimes:
    """Condition on fields with any gaps by modes in space and in time; see `condition_over_times`."""
    random = np.random.default_rng(0) if generator is None else generator
    check_count("samples", samples, least=1)
    check_generator(random)
    places, report = unit_vectors("X_test", X_test), progress or no_op
    points = None if _same_places(series, X_test) else places
    shape = (wanted.size, *(X_test.shape if isinstance(X_test, LatLonGrid) else (len(places),)))
    settings: Any = {"executor": executor, "memory_limit_bytes": memory_limit_bytes}
    with gappy_series(prior, series, solver, **settings) as gaps:
        gram, exact = gaps.series, gaps.few
        weights = gaps.weights(gaps.merged(series.values))
        residual = gaps.relative_residual  # of the mean, and not of the draws
        estimated = _estimated(prior, series, gaps, weights) if prior.estimates_mean else None
        if estimated is not None:
            weights = weights - np.tensordot(estimated.values, estimated.weights, axes=1)
        mean = gram.field(weights, wanted, points).reshape(shape)
        mean += (
            np.stack([mean_at_hour(prior, places, hour).reshape(shape[1:]) for hour in wanted])
            if estimated is None
            else np.tensordot(estimated.values, basis_at_hours(prior, places, wanted), axes=1).reshape(shape)
        )
        variance = gram.variance(wanted) if points is None else gram.variance_at(points, wanted)
        if points is None and gram.rings is not None:
            variance = np.repeat(variance[..., None], gram.copies, axis=2)
        variance, added = variance.reshape(shape), np.zeros(shape)
        if estimated is not None:  # math 1.7, with W = G^-1 H
            seen = np.stack([gram.field(each, wanted, points).ravel() for each in estimated.weights])
            unseen = basis_at_hours(prior, places, wanted).reshape(seen.shape) - seen
            counted = np.einsum("ix,ij,jx->x", unseen, estimated.covariance, unseen)
            variance = variance + counted.reshape(shape)
        roots = gaps.uncertain_weights() if exact else gaps.draws(random, samples)
        for number, uncertain in enumerate(roots, start=1):
            added += gram.field(uncertain, wanted, points).reshape(shape) ** 2
            report(number / (gaps.missing.size if exact else samples))
        status = Status.of_direct_solve(gram.condition_bound()) if exact else Status.SOLVED
    return PosteriorOverTimes(
        wanted,
        mean,
        variance + added / (1 if exact else samples),
        status,
        0.0 if exact else float(np.sqrt(2.0 / samples)),
        residual,
        None if estimated is None else estimated.coefficients(prior.coefficient_names),
    )


@dataclass(frozen=True, eq=False)
class _Estimated:
    """Generalised least squares: coefficients (k,), their covariance (k, k), ``G^-1 H`` (k, T, ...)."""

    values: Array
    covariance: Array
    weights: Array

    def coefficients(self, names: Sequence[str]) -> MeanCoefficients:
        return MeanCoefficients(tuple(names), self.values, self.covariance)


def _estimated(prior: Prior, series: Series, gaps: SeriesWithGaps, weights: Array) -> _Estimated:
    """Estimate the coefficients of a mean from all times; ``weights`` are ``G^-1 y``."""
    missing = np.isnan(series.values)
    given = basis_at_hours(prior, series.where, series.times).reshape(-1, *series.values.shape)
    basis = np.stack([gaps.merged(np.where(missing, np.nan, each)) for each in given])
    check_estimable(basis.reshape(len(basis), -1)[:, ~missing.ravel()].T, prior.coefficient_names)
    solved = np.stack([gaps.weights(each) for each in basis])
    flat = basis.reshape(len(basis), -1)
    covariance = np.linalg.inv(flat @ solved.reshape(len(basis), -1).T)
    return _Estimated(covariance @ (flat @ weights.ravel()), 0.5 * (covariance + covariance.T), solved)


def _same_places(series: Series, X_test: "Targets") -> bool:
    """Whether the targets are the places of the observations."""
    if isinstance(series.X, LatLonGrid):
        return isinstance(X_test, LatLonGrid) and series.X.same_points(X_test)
    return np.array_equal(series.where, unit_vectors("X_test", X_test))


def _gappy_likelihood(series: Series, gaps: SeriesWithGaps) -> float:
    """Logarithm of the density of fields whose gaps differ."""
    if not gaps.few:
        raise ArgumentError(
            f"{gaps.missing.size:,} values are missing, at different places at different times; expected at "
            f"most {FEW_IN_SERIES:,} for the determinant. Fit to points X (n, 4), unit vectors and hours, "
            'with cagp.fit(..., method="vecchia").'
        )
    values = gaps.merged(series.values)
    squares = float(np.vdot(values, gaps.weights(values)))
    return -0.5 * (squares + gaps.logdet() + gaps.count * float(np.log(2.0 * np.pi)))


def _modes(series: Series) -> tuple[Array, Array, Array]:
    """Eigenvalues (T,), ascending, and eigenvectors U (T, T) of ``k_t(times, times)``; fields ``U' y``."""
    lam, U = np.linalg.eigh(series.in_time(series.times[:, None], series.times[:, None]))
    return lam, U, np.tensordot(U.T, series.values, axes=1)
