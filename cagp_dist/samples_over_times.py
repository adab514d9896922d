"""Fields at several times: samples of their joint posterior, and each observation from all others."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.checks import check_count, check_generator
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.leave_one_out import LeaveOneOut
from cagp_dist.gram.series_gaps import FEW_IN_SERIES
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.prior import Prior
from cagp_dist.series_solves import gappy_series, in_hours, mean_at_hour, series_of

if TYPE_CHECKING:
    from cagp_dist.runtime import ExecutorLike
    from cagp_dist.solvers import Cholesky, Rings


def sample_over_times(
    prior: Prior,
    X: "ArrayLike | LatLonGrid",
    hours: ArrayLike,
    y: ArrayLike,
    *,
    at: ArrayLike | None = None,
    solver: "Cholesky | Rings",
    samples: int,
    generator: np.random.Generator,
    executor: "ExecutorLike" = None,
    memory_limit_bytes: int | None = None,
) -> Array:
    """Draw the fields of all places and hours together, given the observations.

    With fields f' and observations y' of them drawn from the prior, a sample is
    ``f' + K (weights of y - weights of y')`` (Matheron's rule): exactly the posterior of
    `condition_over_times`, jointly in space and time.

    Parameters
    ----------
    prior, X, hours, y, at, executor, memory_limit_bytes
        As for `condition_over_times`; gaps may differ between times, and be as many as they are.
    solver : Rings or Cholesky
        Of a grid, with noise by latitude; or of places.
    samples : int
        How many.
    generator : numpy.random.Generator
        Source of randomness: equal states give equal samples.

    Returns
    -------
    array of float64, shape (samples, A, n), or (samples, A, P, Q)
        Latent fields at the places of the observations, unit of y. Cost of each: one solve of the gaps, to a
        relative residual of 1e-6, and (T + A)^3 flops.

    Raises
    ------
    ArgumentError, BudgetError, NumericalError
        As `condition_over_times`.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> kernel = cagp.SpaceTime(cagp.Matern32(lengthscale=0.3, variance=2.0), cagp.Matern12(lengthscale=6.0))
    >>> X = cagp.unit_sphere([48.1, 52.5, 50.1], [11.6, 13.4, 8.7])
    >>> y = [[1.0, np.nan, 0.2], [1.4, -0.1, 0.3]]                              # at 0 and at 6 hours
    >>> drawn = cagp.sample_over_times(
    ...     *(cagp.Prior(kernel, 0.1), X, [0.0, 6.0], y),
    ...     at=[0.0, 3.0, 6.0],
    ...     solver=cagp.Cholesky(),
    ...     samples=500,
    ...     generator=np.random.default_rng(0),
    ... )
    >>> drawn.shape, bool(drawn[:, 0, 1].std() > 1.5 * drawn[:, 0, 0].std())
    ((500, 3, 3), True)
    """
    check_count("samples", samples, least=1)
    check_generator(generator)
    series = series_of(prior, X, hours, y)
    wanted = series.times if at is None else in_hours("at", at)
    mean = np.stack([mean_at_hour(prior, series.where, hour) for hour in wanted])
    found = np.empty((samples, wanted.size, *series.values.shape[1:]))
    with gappy_series(
        prior, series, solver, executor=executor, memory_limit_bytes=memory_limit_bytes
    ) as gaps:
        weights = gaps.weights(gaps.merged(series.values))
        for sample in found:
            field, drawn, _ = gaps.draw(generator, wanted)
            sample[:] = field + gaps.series.prior_product(weights - drawn, wanted)
    return found + mean.reshape(found.shape[1:])


def leave_one_out_over_times(
    prior: Prior,
    X: "ArrayLike | LatLonGrid",
    hours: ArrayLike,
    y: ArrayLike,
    *,
    solver: "Cholesky | Rings",
    executor: "ExecutorLike" = None,
    memory_limit_bytes: int | None = None,
) -> LeaveOneOut:
    """Predict each observation from all others, of its own and of all other times, exactly.

    Parameters
    ----------
    prior, X, hours, y, executor, memory_limit_bytes
        As for `condition_over_times`; with at most 2,048 gaps.
    solver : Rings or Cholesky
        Of a grid, with noise by latitude; or of places.

    Returns
    -------
    LeaveOneOut
        Mean and variance, noise included, shape (T, n), or (T, P, Q); NaN where nothing was observed. The
        copies of a pole are left out together. Cost of the modes, of a solve, and of two for each gap.

    Raises
    ------
    ArgumentError
        As `condition_over_times`; or if there are too many gaps.
    BudgetError, NumericalError
        As `condition_over_times`.
    """
    series = series_of(prior, X, hours, y)
    with gappy_series(
        prior, series, solver, executor=executor, memory_limit_bytes=memory_limit_bytes
    ) as gaps:
        if not gaps.few:
            raise ArgumentError(
                f"{gaps.missing.size:,} values are missing; expected at most {FEW_IN_SERIES:,}. Leave blocks "
                "or days out with cagp.Kriging(at=...).cross_validate."
            )
        values, gram = gaps.merged(series.values), gaps.series
        precision = gram.inverse_diagonal()
        if gram.rings is not None:
            precision = np.repeat(precision[..., None], gram.copies, axis=2)
        for uncertain in gaps.uncertain_weights():
            precision -= gram.of_observations(uncertain) ** 2
        solved = gram.of_observations(gaps.weights(values))
    there = gaps.observed
    mean, variance = (np.full(values.shape, np.nan) for _ in range(2))
    about = np.stack([mean_at_hour(prior, series.where, hour) for hour in series.times]).reshape(values.shape)
    mean[there] = (about + values)[there] - solved[there] / precision[there]
    variance[there] = 1.0 / precision[there]
    return LeaveOneOut(mean, variance)
