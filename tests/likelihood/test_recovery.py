"""Fits of fields drawn from known parameters miss them by as much as they say."""

import numpy as np
import pytest
from scipy.stats import binom, chi2

import cagp_dist as cagp
from cagp_dist.runtime import SerialExecutor

pytestmark = [pytest.mark.exhaustive, pytest.mark.usefixtures("one_blas_thread")]

DRAWS = 50
CHANCE = 1e-3
"""Each bound below is passed by chance once in a thousand seeds."""


@pytest.mark.parametrize(
    ("kernel", "noise_variance", "seed"),
    [
        (cagp.Matern32(lengthscale=0.3, variance=4.0), 0.4, 0),
        (cagp.Matern32(lengthscale=0.3, variance=4.0), 0.4, 1),
        (cagp.Matern32(lengthscale=0.3, variance=4.0), 0.4, 2),
        (cagp.Matern12(lengthscale=0.2, variance=4.0), 1.0, 0),
    ],
    ids=["Matern32-0", "Matern32-1", "Matern32-2", "Matern12"],
)
def test_errors_are_as_large_as_stated(kernel, noise_variance, seed):
    """Four fields to a fit hold 4 x 4 pi / 0.3^2 = 560 independent patches: errors should be near normal."""
    grid = cagp.LatLonGrid(np.linspace(-86.25, 86.25, 24), 48)
    rings = cagp.RingGram(grid, kernel, noise_variance=noise_variance, executor=SerialExecutor())
    fields = rings.sample(np.random.default_rng(seed), noise=True, fields=4 * DRAWS)
    truth = np.log([kernel.lengthscale, kernel.variance, noise_variance])
    standardised, distances = [], []
    for y in fields.reshape(DRAWS, 4, *grid.shape):
        result = cagp.fit(type(kernel), grid, y, mean=0.0, starts=1, executor=SerialExecutor())
        assert result.status is cagp.FitStatus.CONVERGED
        found = result.prior.kernel
        error = np.log([found.lengthscale, found.variance, result.prior.noise_variance]) - truth
        standardised.append(error / np.sqrt(np.diag(result.log_covariance)))
        distances.append(error @ np.linalg.solve(result.log_covariance, error))
    z = np.array(standardised)
    # the mean of 50 standard normals has standard deviation 50^-1/2
    assert (np.abs(z.mean(axis=0)) < 3.3 / np.sqrt(DRAWS)).all()
    # 49 times their variance is chi2 with 49 degrees
    spread = (DRAWS - 1) * z.var(axis=0, ddof=1)
    assert (spread > chi2(DRAWS - 1).ppf(CHANCE)).all()
    assert (spread < chi2(DRAWS - 1).isf(CHANCE)).all()
    # within one and two standard errors: binomial counts
    for width, level in ((1.0, 0.6827), (1.96, 0.95)):
        inside = (np.abs(z) < width).sum(axis=0)
        assert (inside >= binom(DRAWS, level).ppf(CHANCE)).all()
        assert (inside <= binom(DRAWS, level).isf(CHANCE)).all()
    # all three together, correlations included: the sum of squared distances is chi2 with 150 degrees
    assert chi2(3 * DRAWS).ppf(CHANCE) < sum(distances) < chi2(3 * DRAWS).isf(CHANCE)
