"""Scores of each family of predictive distributions against scoringrules."""

import numpy as np
import pytest

from cagp_dist.calibration.verification.scores import scores_of
from cagp_dist.predictive import Gaussian, Mixture, QuantileTable, StudentT

pytestmark = pytest.mark.exhaustive  # definitions are tested elsewhere; the package compiles when imported

N = 300


@pytest.fixture(scope="module")
def scoringrules():
    import scoringrules

    return scoringrules


@pytest.fixture(scope="module")
def drawn():
    """Centres, scales, degrees of freedom and values: some far out, none beyond 30 scales."""
    rng = np.random.default_rng(0)
    centre, scale = 3.0 * rng.standard_normal(N), np.exp(0.5 * rng.standard_normal(N))
    return centre, scale, 2.1 + 10.0 * rng.random(N), centre + scale * rng.uniform(-30.0, 30.0, N)


def test_scores_of_gaussian_and_student_distributions(scoringrules, drawn):
    centre, scale, degrees, y = drawn
    gaussian, student = Gaussian(centre, scale), StudentT(centre, scale, degrees)
    np.testing.assert_allclose(gaussian.crps(y), scoringrules.crps_normal(y, centre, scale), rtol=1e-12)
    np.testing.assert_allclose(
        -gaussian.log_density(y), scoringrules.logs_normal(y, centre, scale), rtol=1e-12
    )
    np.testing.assert_allclose(student.crps(y), scoringrules.crps_t(y, degrees, centre, scale), rtol=1e-12)
    np.testing.assert_allclose(
        -student.log_density(y), scoringrules.logs_t(y, degrees, centre, scale), rtol=1e-10, atol=1e-12
    )


def test_the_log_score_is_finite_where_that_of_scoringrules_underflows():
    assert Gaussian([0.0], 1.0).log_density(50.0)[0] == pytest.approx(-0.5 * (50.0**2 + np.log(2.0 * np.pi)))


def test_scores_of_mixtures(scoringrules, drawn):
    """Components whose scales differ by a factor of ten at most."""
    rng = np.random.default_rng(1)
    weights, (centre, scale, _, y) = np.array([0.2, 0.3, 0.5]), drawn
    location = centre + rng.standard_normal((3, N))
    scales = scale * np.exp(rng.uniform(0.0, np.log(10.0), (3, N)))
    given = location.T, scales.T, np.tile(weights, (N, 1))
    distribution = Mixture(weights, location, scales)
    np.testing.assert_allclose(distribution.crps(y), scoringrules.crps_mixnorm(y, *given), rtol=1e-4)
    near = centre + scale
    np.testing.assert_allclose(
        -distribution.log_density(near), scoringrules.logs_mixnorm(near, *given), rtol=1e-12
    )


def test_scores_of_tables_of_quantiles(scoringrules, drawn):
    """The score by quantiles alone is within the distance of their levels of the integral."""
    centre, scale, degrees, _ = drawn
    nodes, levels = np.linspace(0.05, 0.95, 19), np.arange(0.5, 4000.0) / 4000.0
    distribution = QuantileTable(nodes, StudentT(centre, scale, degrees).quantile(nodes))
    y = centre + 2.0 * scale
    by_quantiles = scoringrules.crps_quantile(y, distribution.quantile(levels).T, levels)
    np.testing.assert_allclose(distribution.crps(y), by_quantiles, rtol=2e-3)


def test_scores_of_intervals(scoringrules, drawn):
    centre, scale, degrees, y = drawn
    distribution = StudentT(centre, scale, degrees)
    lower, upper = distribution.interval(0.9)
    expected = scoringrules.interval_score(y, lower, upper, 0.1).mean()
    assert scores_of(distribution, y, levels=[0.9]).interval_score[0] == pytest.approx(expected, rel=1e-12)
