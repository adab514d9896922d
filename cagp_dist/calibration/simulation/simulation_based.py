"""Simulation-based calibration: a solver's posterior against data drawn from its own prior (math 10.2).

For draws ``f_i`` and one random direction w, ``z_i = w' (mean_i - f_i(X')) / sqrt(w' Sigma w)`` are
independent standard normal numbers if the solver is calibrated [Hegde et al., Algorithm S1]. Both sides are
latent.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from cagp_dist.arrays import Array
from cagp_dist.calibration.simulation.beliefs import SimulatedSolves, standardised
from cagp_dist.calibration.simulation.field_draws import draw
from cagp_dist.calibration.verification.pit import NormalTests, normal_tests
from cagp_dist.prior import Prior

if TYPE_CHECKING:
    from cagp_dist.runtime import ExecutorLike
    from cagp_dist.solvers import Solver


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
        kernel variance; 0 unless points nearly coincide or the kernel is very smooth, at most 1e-10.
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
    executor: "ExecutorLike" = None,
) -> SimulationResult:
    """Simulation-based calibration of a solver under a prior.

    Solvers whose matrix does not depend on the data take all draws in one pass, as columns. Conjugate
    gradients are run for all draws at once where the Gram matrix can be stored; any other solver is called
    once for each draw. `calibrate` says more.

    Parameters
    ----------
    prior : Prior
        The distribution the data is drawn from, and the prior of the solver.
    X : array_like, shape (n, p)
        Training points.
    X_test : array_like, shape (q, p)
        Test points.
    solver : Solver
        Settings of the solver under test.
    simulations : int
        Number N of draws, at least 1. The standard error of the standard deviation of z is
        ``1 / sqrt(2 N)``: 1,000 draws show a wrong scale of about 7 %.
    generator : numpy.random.Generator
        Source of the direction and of the draws.
    executor : Executor, Dask client or cluster, or str, optional
        Where `condition` runs; all cores of this process by default.

    Returns
    -------
    SimulationResult

    Raises
    ------
    ArgumentError
        If ``simulations`` is below 1 or there is no point.
    BudgetError
        If the joint covariance of all points does not fit into memory.
    NumericalError
        If the joint prior covariance cannot be factored, or the variance along the direction is not
        positive.

    Notes
    -----
    Cost beyond the solves: (n + q)^3 / 3 flops for the Cholesky factor, 2 (n + q)^2 N for the draws;
    16 (n + q)^2 + 32 (n + q) N bytes. More than 4,096 points that lie on one latitude-longitude grid are
    drawn there, where that is less work or all that fits: 4 P^2 Q flops for each field, 4 P^2 Q bytes.

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
    drawn = draw(prior, X, X_test, simulations=simulations, generator=generator)
    asked = SimulatedSolves(solver=solver, executor=executor)
    errors = standardised(drawn.fields, drawn.direction, asked)
    return SimulationResult(
        z=errors.along,
        pit=np.asarray(ndtr(errors.along), dtype=np.float64),
        tests=normal_tests(errors.along),
        direction=drawn.direction,
        relative_jitter=drawn.relative_jitter,
    )
