"""Fields of the same places at several times, all observed: exact, by modes in space and in time (math 21).

With a product ``k_s k_t``, the same n places at T times and the same noise D at each, the Gram matrix is
diagonal in the modes of `cagp_dist.gram.space_modes` times the eigenvectors of ``k_t(times, times)`` (T44):
one decomposition in space and one in time, whatever the number of times.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.checks import as_points, check_count, check_generator
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.leave_one_out import LeaveOneOut
from cagp_dist.gram.series_gram import SeriesGram
from cagp_dist.gram.space_modes import SpaceModes
from cagp_dist.kernels import Elementary
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.posterior.coefficients import MeanCoefficients, check_estimable
from cagp_dist.posterior.left_out import left_out_of_solves
from cagp_dist.posterior.result import Progress
from cagp_dist.prior import Prior
from cagp_dist.solvers.status import Status
from cagp_dist.space_time import LAYOUT, SpaceTime
from cagp_dist.time_factors import Periodic

if TYPE_CHECKING:
    from cagp_dist.runtime import ExecutorLike

OF_MODES = 0.8  # The part of the work that modes are, about, of not too many times


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
        Of the solve, by its condition number.
    coefficients : MeanCoefficients or None
        Of the prior mean, where they are estimated.
    """

    hours: Array
    mean: Array
    variance: Array
    status: Status
    coefficients: MeanCoefficients | None = None


def condition_over_times(
    prior: Prior,
    X: "ArrayLike | LatLonGrid",
    hours: ArrayLike,
    y: ArrayLike,
    X_test: "ArrayLike | LatLonGrid",
    *,
    at: ArrayLike | None = None,
    executor: "ExecutorLike" = None,
    memory_limit_bytes: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> PosteriorOverTimes:
    """Condition a prior of space and time on fields of the same places at several times, exactly.

    Parameters
    ----------
    prior : Prior
        Its kernel is a `SpaceTime` product. Noise above zero: one number, or one for each place, on a grid
        the same along each latitude. Mean: a number, a function of points (m, 4), unit vectors and hours; or
        a basis of these whose coefficients are estimated from all times.
    X : array_like, shape (n, 3), or LatLonGrid
        Places, as unit vectors, or a whole grid. The copies of a pole are one observation, their mean.
    hours : array_like, shape (T,)
        Times of the observations, each once, in any order and spacing.
    y : array_like, shape (T, n), or (T, P, Q) on a grid
        Observations. Where some are missing, condition on points (m, 4), unit vectors and hours, with
        `Neighbours`.
    X_test : array_like (q, 3) or LatLonGrid
        Where the field is wanted.
    at : array_like, shape (A,), optional
        When, in hours; by default at the times of the observations.
    executor, memory_limit_bytes
        As for `condition`.
    progress : callable, optional
        Called with a `Progress` after each part of the modes, and at the end.

    Returns
    -------
    PosteriorOverTimes

    Raises
    ------
    ArgumentError
        If the kernel is no product, times repeat, values are missing, or noise varies along a latitude.
    BudgetError
        If the modes of a grid do not fit into memory.

    Notes
    -----
    Cost: eigenvectors in space once, 9 P^3 Q / 2 flops on a grid (a quarter on a mirrored one), 9 n^3 of
    places; then 8 P^2 Q (T + A), or 8 n^2 (T + A), and 4 T^2 n flops. Targets beside the places take a
    transform each; on a grid one for each latitude and offset. For one time after another see `RingFilter`.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> kernel = cagp.SpaceTime(cagp.Matern32(lengthscale=0.3, variance=2.0), cagp.Matern12(lengthscale=6.0))
    >>> X = cagp.unit_sphere([48.1, 52.5, 50.1], [11.6, 13.4, 8.7])
    >>> y = [[1.0, -0.5, 0.2], [1.4, -0.1, 0.3]]                                # at 0 and at 6 hours
    >>> found = cagp.condition_over_times(cagp.Prior(kernel, 0.1), X, [0.0, 6.0], y, X[:1], at=[3.0, 12.0])
    >>> found.mean.round(2), np.sqrt(found.variance).round(2)
    (array([[0.78],
           [0.38]]), array([[0.98],
           [1.32]]))
    """
    places, began = _unit_vectors("X_test", X_test), perf_counter()

    def heard(part: float) -> None:
        if progress is not None:
            progress(Progress(1, 1, part, perf_counter() - began))

    with _series(
        prior, X, hours, y, executor, memory_limit_bytes, heard=lambda part: heard(OF_MODES * part)
    ) as series:
        wanted = series.hours if at is None else _hours("at", at)
        gram, points = series.gram, None if _same_places(series.where, X_test) else places
        shape = (wanted.size, *(X_test.shape if isinstance(X_test, LatLonGrid) else (len(places),)))
        weights, estimated = series.weights, None
        variance = gram.variance(wanted, points)
        if points is None and isinstance(series.where, LatLonGrid):
            variance = np.repeat(variance[..., None], series.where.n_longitudes, axis=2)
        variance = variance.reshape(shape)
        if prior.estimates_mean:  # generalised least squares, math 1.7, with W = G^-1 H
            basis = series.basis
            flat, names = basis.reshape(len(basis), -1), prior.coefficient_names
            check_estimable(flat.T, names)
            of_basis = np.stack([gram.solve(each) for each in basis])
            covariance = np.linalg.inv(flat @ of_basis.reshape(flat.shape).T)
            covariance = 0.5 * (covariance + covariance.T)
            values = covariance @ (flat @ weights.ravel())
            estimated = MeanCoefficients(tuple(names), values, covariance)
            weights = weights - np.tensordot(values, of_basis, axes=1)
            seen = np.stack([gram.field(each, wanted, points).ravel() for each in of_basis])
            at_targets = _basis_at(prior, places, wanted).reshape(seen.shape)
            about, unseen = (values @ at_targets).reshape(shape), at_targets - seen
            variance = variance + np.einsum("ix,ij,jx->x", unseen, covariance, unseen).reshape(shape)
        else:
            about = np.stack([_mean_at(prior, places, hour).reshape(shape[1:]) for hour in wanted])
        mean = about + gram.field(weights, wanted, points).reshape(shape)
        status = Status.of_direct_solve(gram.modes.condition_bound(float(gram.lam.max())))
    heard(1.0)
    return PosteriorOverTimes(wanted, mean, variance, status, estimated)


def log_likelihood_over_times(
    prior: Prior,
    X: "ArrayLike | LatLonGrid",
    hours: ArrayLike,
    y: ArrayLike,
    *,
    executor: "ExecutorLike" = None,
    memory_limit_bytes: int | None = None,
) -> float:
    """Logarithm of the density of fields of the same places at several times, exactly.

    Parameters
    ----------
    prior, X, hours, y, executor, memory_limit_bytes
        As for `condition_over_times`; the mean is known.

    Returns
    -------
    float
        ``log N(y; mean, K_t (x) K_s + I (x) D)``. A pole of a grid counts as one observation, their mean.

    Raises
    ------
    ArgumentError, BudgetError
        As `condition_over_times`.

    Notes
    -----
    Cost: the modes, and a solve.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = cagp.unit_sphere([48.1, 52.5, 50.1], [11.6, 13.4, 8.7])
    >>> y = [[1.0, -0.5, 0.2], [1.4, -0.1, 0.3]]                                # at 0 and at 6 hours
    >>> for lengthscale in (1.0, 6.0, 36.0):
    ...     kernel = cagp.SpaceTime(cagp.Matern32(0.3, 2.0), cagp.Matern12(lengthscale))
    ...     print(round(cagp.log_likelihood_over_times(cagp.Prior(kernel, 0.1), X, [0.0, 6.0], y), 2))
    -9.16
    -8.25
    -6.89
    """
    with _series(prior, X, hours, y, executor, memory_limit_bytes, known_mean=True) as series:
        modes = series.gram.modes
        copies = modes.poles.size * (modes.copies - 1)
        count = series.hours.size * (int(np.prod(modes.shape)) - copies)
        squares = float(np.vdot(series.values, series.weights))
        return -0.5 * (squares + series.gram.logdet() + count * float(np.log(2.0 * np.pi)))


def sample_over_times(
    prior: Prior,
    X: "ArrayLike | LatLonGrid",
    hours: ArrayLike,
    y: ArrayLike,
    *,
    at: ArrayLike | None = None,
    samples: int,
    generator: np.random.Generator,
    executor: "ExecutorLike" = None,
    memory_limit_bytes: int | None = None,
) -> Array:
    """Draw the fields of all places and hours together, given the observations.

    With fields f' and observations y' of them drawn from the prior, a sample is
    ``f' + K G^-1 (y - y')`` (Matheron's rule): exactly the posterior of `condition_over_times`, jointly in
    space and time.

    Parameters
    ----------
    prior, X, hours, y, at, executor, memory_limit_bytes
        As for `condition_over_times`; the mean is known.
    samples : int
        How many.
    generator : numpy.random.Generator
        Source of randomness: equal states give equal samples.

    Returns
    -------
    array of float64, shape (samples, A, n), or (samples, A, P, Q)
        Latent fields at the places of the observations, unit of y. Cost of each: a solve, (T + A)^3 flops.

    Raises
    ------
    ArgumentError, BudgetError
        As `condition_over_times`.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> kernel = cagp.SpaceTime(cagp.Matern32(lengthscale=0.3, variance=2.0), cagp.Matern12(lengthscale=6.0))
    >>> X = cagp.unit_sphere([48.1, 52.5, 50.1], [11.6, 13.4, 8.7])
    >>> y = [[1.0, -0.5, 0.2], [1.4, -0.1, 0.3]]                                # at 0 and at 6 hours
    >>> drawn = cagp.sample_over_times(
    ...     *(cagp.Prior(kernel, 0.1), X, [0.0, 6.0], y),
    ...     at=[0.0, 3.0, 6.0],
    ...     samples=500,
    ...     generator=np.random.default_rng(0),
    ... )
    >>> drawn.shape, bool(drawn[:, 1].std() > 1.5 * drawn[:, 0].std())
    ((500, 3, 3), True)
    """
    check_count("samples", samples, least=1)
    check_generator(generator)
    with _series(prior, X, hours, y, executor, memory_limit_bytes, known_mean=True) as series:
        wanted = series.hours if at is None else _hours("at", at)
        places, shape = series.gram.modes.X, series.values.shape[1:]
        about = np.stack([_mean_at(prior, places, hour).reshape(shape) for hour in wanted])
        found = np.empty((samples, *about.shape))
        for sample in found:
            field, observed = series.gram.draw(generator, wanted)
            weights = series.weights - series.gram.solve(observed)
            sample[:] = about + field + series.gram.field(weights, wanted)
    return found


def leave_one_out_over_times(
    prior: Prior,
    X: "ArrayLike | LatLonGrid",
    hours: ArrayLike,
    y: ArrayLike,
    *,
    executor: "ExecutorLike" = None,
    memory_limit_bytes: int | None = None,
) -> LeaveOneOut:
    """Predict each observation from all others, of its own and of all other times, exactly.

    Parameters
    ----------
    prior, X, hours, y, executor, memory_limit_bytes
        As for `condition_over_times`.

    Returns
    -------
    LeaveOneOut
        Mean and variance, noise included, shape (T, n), or (T, P, Q). The copies of a pole are left out
        together. Cost of the modes, and of a solve for the values and for each coefficient of the mean.

    Raises
    ------
    ArgumentError, BudgetError
        As `condition_over_times`.
    """
    with _series(prior, X, hours, y, executor, memory_limit_bytes) as series:
        modes, values, shape = series.gram.modes, series.values, series.values.shape
        precision = series.gram.precision()
        if isinstance(series.where, LatLonGrid):
            precision = np.repeat(precision[..., None], modes.copies, axis=2)
        places = modes.X
        if prior.estimates_mean:
            basis, about = series.basis, np.zeros(shape)
        else:
            basis = np.empty((0, *shape))
            about = np.stack([_mean_at(prior, places, hour) for hour in series.hours]).reshape(shape)
        solved = np.stack([series.weights, *(series.gram.solve(each) for each in basis)])
        flat = basis.reshape(len(basis), values.size)
        found = left_out_of_solves(
            values.reshape(-1, 1),
            flat.T,
            modes.of_observations(solved).reshape(len(solved), -1).T,
            precision.ravel(),
            quadratic=flat @ solved.reshape(len(solved), -1).T,
        )
    return LeaveOneOut(found.mean.reshape(shape) + about, found.variance.reshape(shape))


@dataclass(frozen=True, eq=False)
class _Series:
    """Fields of the same places at some times, checked, and what solves for them."""

    prior: Prior
    where: "LatLonGrid | Array"  # or unit vectors (n, 3)
    hours: Array  # (T,)
    values: Array  # (T, n) or (T, P, Q), without a mean that is known
    gram: SeriesGram
    weights: Array  # ``G^-1 values``

    @property
    def basis(self) -> Array:
        """Columns of a mean that is estimated, (k, T, ...)."""
        at = _basis_at(self.prior, self.gram.modes.X, self.hours)
        return at.reshape(-1, *self.values.shape)


@contextmanager
def _series(
    prior: Prior,
    X: "ArrayLike | LatLonGrid",
    hours: ArrayLike,
    y: ArrayLike,
    executor: "ExecutorLike",
    memory_limit_bytes: int | None,
    *,
    known_mean: bool = False,
    heard: Callable[[float], None] = lambda part: None,
) -> Iterator[_Series]:
    """Check fields, take their mean away if it is known, and solve for them."""
    from cagp_dist.runtime import given_or_threads

    kernel = prior.kernel
    if not isinstance(kernel, SpaceTime) or not isinstance(kernel.time, Elementary | Periodic):
        raise ArgumentError(
            f"the kernel is {kernel!r}; expected a product, cagp.SpaceTime(in_space, in_time). With "
            "other kernels of space and time condition on points X (n, 4).",
            key="no-product",
        )
    if known_mean and prior.estimates_mean:
        raise ArgumentError(
            "the mean has coefficients to estimate; expected a number or a function here.", key="mean"
        )
    where: LatLonGrid | Array = X if isinstance(X, LatLonGrid) else _unit_vectors("X", X)
    places, times = _unit_vectors("X", X), _hours("hours", hours)
    values = np.array(y, dtype=np.float64)
    shape = (times.size, *(where.shape if isinstance(where, LatLonGrid) else (len(where),)))
    if np.unique(times).size != times.size or times.size == 0:
        raise ArgumentError(
            f"hours is {times!r}; expected one number for each time, no two the same.", key="times"
        )
    if values.shape != shape:
        raise ArgumentError(
            f"y has shape {values.shape}; expected {shape}: times, then places.", key="shapes"
        )
    if not np.isfinite(values).all():
        raise ArgumentError(
            f"{np.count_nonzero(~np.isfinite(values)):,} values are missing or infinite; expected each place "
            "at each time. Condition on points X (m, 4), unit vectors and hours, with cagp.Neighbours or "
            "cagp.Cholesky.",
            key="gaps-over-times",
        )
    noise = np.asarray(prior.noise_variance, dtype=np.float64)
    if noise.size not in (1, len(places)):
        raise ArgumentError(
            f"noise_variance has shape {noise.shape}; expected one number, or one for each of the "
            f"{len(places):,} places.",
            key="shapes",
        )
    noise = np.broadcast_to(noise.reshape(shape[1:]) if noise.size > 1 else noise, shape[1:])
    if not (noise > 0.0).all():
        raise ArgumentError(
            f"the smallest noise_variance is {noise.min():g}; expected numbers above zero.",
            key="not-positive",
        )
    if isinstance(where, LatLonGrid):
        if not (noise == noise[:, :1]).all():
            raise ArgumentError(
                "noise_variance varies along a latitude; expected noise by latitude, or places as unit "
                "vectors.",
                key="no-rings",
            )
        noise = noise[:, 0]
    with given_or_threads(executor, memory_limit_bytes) as (opened, limit):
        modes = SpaceModes(
            where,
            kernel.space,
            noise_variance=noise,
            executor=opened,
            memory_limit_bytes=limit,
            heard=heard,
        )
        for field, hour in zip(values, times, strict=True) if not prior.estimates_mean else ():
            field -= _mean_at(prior, places, hour).reshape(field.shape)
        values, gram = modes.merged(values), SeriesGram(modes, kernel.time, times)
        assert modes.mu.size  # made first: they take longest, and are heard of
        yield _Series(prior, where, times, values, gram, gram.solve(values))


def _same_places(where: "LatLonGrid | Array", X_test: "ArrayLike | LatLonGrid") -> bool:
    """Whether the targets are the places of the observations."""
    if isinstance(where, LatLonGrid):
        return isinstance(X_test, LatLonGrid) and where.same_points(X_test)
    return np.array_equal(where, _unit_vectors("X_test", X_test))


def _unit_vectors(name: str, where: object) -> Array:
    """Give the unit vectors (n, 3) of places or of a grid."""
    if isinstance(where, LatLonGrid):
        return where.points
    points = as_points(name, cast("ArrayLike", where))
    if points.shape[1] != 3:
        raise ArgumentError(
            f"{name} has {points.shape[1]} columns; expected unit vectors (n, 3), without hours.",
            key="columns",
        )
    LAYOUT.check(np.column_stack([points, np.zeros(len(points))]))
    return points


def _hours(name: str, hours: ArrayLike) -> Array:
    """Hours (A,) that are numbers."""
    given = np.atleast_1d(np.asarray(hours))
    if given.ndim != 1 or given.dtype.kind not in "iuf" or not np.isfinite(given).all():
        raise ArgumentError(
            f"{name} is {hours!r}; expected hours, finite numbers. Of dates: (dates - dates.min()) / "
            'np.timedelta64(1, "h").',
            key="hours",
        )
    return given.astype(np.float64)


def _basis_at(prior: Prior, where: Array, hours: Array) -> Array:
    """Columns of a mean that is estimated, of places (n, 3) at hours (A,), shape (k, A, n)."""
    points = np.column_stack([np.tile(where, (hours.size, 1)), np.repeat(hours, len(where))])
    return np.ascontiguousarray(prior.basis_at(points).T).reshape(-1, hours.size, len(where))


def _mean_at(prior: Prior, where: Array, hour: float) -> Array:
    """Prior mean (n,) at places at one time."""
    if not callable(prior.mean):  # a number
        return np.broadcast_to(prior.mean_at(where[:1])[:, 0], len(where))
    return prior.mean_at(np.column_stack([where, np.full(len(where), hour)]))[:, 0]
