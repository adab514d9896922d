"""Simulation-based calibration: a solver's posterior against data drawn from its own prior.

For ``i = 1..N`` draw ``f_i`` at training and test points from the prior and ``y_i = f_i(X) + noise``,
condition on ``y_i``, and look at one fixed random direction ``w`` (math 10.2, [Hegde, Adil & Cockayne,
Algorithm S1])::

    z_i = w' (mean_i - f_i(X')) / sqrt(w' Sigma w),      t_i = Phi(z_i)

If the solver is calibrated the ``z_i`` are independent standard normal ones, exactly, after any number of
iterations. Both sides are latent: no noise is added to ``Sigma``, and ``f_i`` carries none.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from cagp_dist.arrays import Array
from cagp_dist.calibration.pit import NormalTests, normal_tests
from cagp_dist.checks import as_points
from cagp_dist.errors import ArgumentError, BudgetError, NumericalError
from cagp_dist.gp import Posterior, Prior, condition
from cagp_dist.posterior.problem import noise_of, patterns
from cagp_dist.text import bytes_text, counted

if TYPE_CHECKING:
    from cagp_dist.runtime import Executor
    from cagp_dist.solvers import Solver


LARGEST_JOINT = 6_000
"""Most points, training and test together, whose joint covariance is factored densely."""

_JITTERS = (0.0, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10)


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """What :func:`simulate` found.

    Attributes
    ----------
    z : array, shape (N,)
        Standardised errors along ``direction``.
    pit : array, shape (N,)
        ``Phi(z)``, uniform on [0, 1] if calibrated.
    tests : NormalTests
        Kolmogorov-Smirnov, variance and mean test of ``z``. The draws are independent, so that the p-values
        mean what they say.
    direction : array, shape (q,)
        The unit vector ``w``.
    relative_jitter : float
        What was added to the diagonal of the joint prior covariance to factor it, as a fraction of the
        kernel variance; 0 unless points coincide or the kernel is very smooth, at most 1e-10.
    """

    z: Array
    pit: Array
    tests: NormalTests
    direction: Array
    relative_jitter: float


def simulate(
    prior: Prior,
    X: ArrayLike,
    X_test: ArrayLike,
    *,
    solver: "Solver",
    simulations: int,
    generator: np.random.Generator,
    executor: "Executor | None" = None,
) -> SimulationResult:
    """Simulation-based calibration of a solver under a prior.

    Solvers whose matrix does not depend on the data condition on all draws in one call, one column per
    draw; the others are called once per draw.

    Parameters
    ----------
    prior : Prior
        The law the data is drawn from, and the prior of the solver.
    X : array_like, shape (n, p)
        Training points.
    X_test : array_like, shape (q, p)
        Test points; n + q at most 6,000.
    solver : Solver
        Settings of the solver under test.
    simulations : int
        Number N of draws, at least 1. The standard error of the standard deviation of z is
        ``1 / sqrt(2 N)``: 1,000 draws show a wrong scale of about 7 %.
    generator : numpy.random.Generator
        Source of the direction and of the draws.
    executor : Executor, optional
        Where `condition` runs; all cores of this process by default.

    Returns
    -------
    SimulationResult

    Raises
    ------
    ArgumentError
        If ``simulations`` is below 1 or there is no point.
    BudgetError
        If n + q exceeds 6,000.
    NumericalError
        If the joint prior covariance cannot be factored, or the variance along the direction is not
        positive.

    Notes
    -----
    Cost beyond `condition`: (n + q)^3 / 3 flops for the Cholesky factor, 2 (n + q)^2 N for the draws;
    about 24 (n + q)^2 + 16 (n + q) N bytes.

    Examples
    --------
    >>> import cagp_dist as cagp, numpy as np
    >>> X = np.linspace(0.0, 1.0, 30).reshape(-1, 1)
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.2), noise_variance=0.1)
    >>> result = simulate(prior, X, X[:5] + 0.01, solver=cagp.GaussSeidel(iterations=2),
    ...                   simulations=200, generator=np.random.default_rng(0))
    >>> bool(result.tests.variance_pvalue > 1e-3)
    True
    """
    train, test = as_points("X", X), as_points("X_test", X_test)
    if simulations < 1:
        raise ArgumentError(f"simulations is {simulations}; expected at least 1, usually 1,000.")
    if not (len(train) and len(test)):
        raise ArgumentError(
            f"there are {len(train)} training and {len(test)} test points; expected at least one of each."
        )
    if train.shape[1] != test.shape[1]:
        raise ArgumentError(
            f"X has {counted(train.shape[1], 'column')}, X_test {test.shape[1]}; both need the same "
            "coordinates."
        )
    direction = generator.standard_normal(len(test))
    direction /= np.linalg.norm(direction)
    draws, relative_jitter = _draw(prior, np.concatenate([train, test]), simulations, generator)
    latent_test = draws[len(train) :]
    noise_variance = noise_of(prior.noise_variance, patterns(train, np.zeros(len(train)))[0].observed())
    noise = np.sqrt(noise_variance)[:, None] * generator.standard_normal((len(train), simulations))
    values = draws[: len(train)] + noise

    # A solver that takes many fields has one matrix, hence one covariance, for all of them.
    fields = [values] if solver.many_fields else [values[:, [i]] for i in range(simulations)]
    latent = [latent_test] if solver.many_fields else [latent_test[:, [i]] for i in range(simulations)]
    z = np.concatenate(
        [
            _standardised(
                condition(prior, train, y, test, solver=solver, covariance="full", executor=executor),
                truth,
                direction,
            )
            for y, truth in zip(fields, latent, strict=True)
        ]
    )
    return SimulationResult(
        z=z,
        pit=np.asarray(ndtr(z), dtype=np.float64),
        tests=normal_tests(z),
        direction=direction,
        relative_jitter=relative_jitter,
    )


def _draw(
    prior: Prior, points: Array, simulations: int, generator: np.random.Generator
) -> tuple[Array, float]:
    """Joint prior draws at all points, shape (points, simulations), from one Cholesky factor."""
    count = len(points)
    if count > LARGEST_JOINT:
        raise BudgetError(
            f"{count:,} training and test points need a joint covariance and its factor of "
            f"{bytes_text(16 * count**2)}; expected at most {LARGEST_JOINT:,} points. "
            "Simulate on a subset: calibration does not depend on the number of points."
        )
    covariance = prior.kernel(points, points)
    factor, relative_jitter = _factor(covariance, scale=prior.kernel.variance)
    centre = prior.mean_at(points)
    if centre.shape[1] != 1:
        raise ArgumentError(
            f"the prior mean has {centre.shape[1]} columns; expected one value per point, as all draws come "
            "from one prior."
        )
    return centre + factor @ generator.standard_normal((count, simulations)), relative_jitter


def _factor(covariance: Array, *, scale: float) -> tuple[Array, float]:
    """Lower Cholesky factor, with the smallest diagonal addition that rounding errors call for.

    The draws then carry independent errors of at most 1e-5 prior standard deviations, far below any
    posterior standard deviation that has noise in its data.
    """
    for relative_jitter in _JITTERS:
        try:
            factor = np.linalg.cholesky(covariance + relative_jitter * scale * np.eye(len(covariance)))
        except np.linalg.LinAlgError:
            continue
        return np.asarray(factor, dtype=np.float64), relative_jitter
    raise NumericalError(
        f"the joint prior covariance of {len(covariance)} points is not positive definite, even with "
        f"{_JITTERS[-1]:g} of the kernel variance on its diagonal. Shorten the lengthscale, use a rougher "
        "kernel or thin the points."
    )


def _standardised(posterior: Posterior, truth: Array, direction: Array) -> Array:
    """``w' (mean - f) / sqrt(w' Sigma w)`` for each column of ``truth``."""
    if posterior.covariance is None:
        raise NumericalError("the solver returned no covariance although a full one was asked for.")
    variance = float(direction @ posterior.covariance @ direction)
    if not variance > 0.0:
        raise NumericalError(
            f"the posterior variance along the random direction is {variance:g}; expected a positive number. "
            "Check the solver, or raise noise_variance."
        )
    return np.asarray(direction @ (posterior.mean.reshape(truth.shape) - truth) / np.sqrt(variance))
