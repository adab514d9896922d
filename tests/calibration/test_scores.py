"""Scores against their definitions: numerical integration, scipy densities and simulation."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from cagp_dist.calibration.verification.pit import ks_test, pit
from cagp_dist.calibration.verification.scores import LEVELS, of_limits, point_scores, scores, scores_of
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import area_weights
from cagp_dist.predictive import Gaussian, QuantileTable, Recalibrated, StudentT

from ..joined import one_after_another


def _prediction(seed, shape=(3, 50)):
    rng = np.random.default_rng(seed)
    mean = 280.0 + 10.0 * rng.normal(size=shape)
    std = rng.uniform(0.5, 3.0, size=shape)
    return mean, std, mean + std * rng.normal(size=shape)


def test_weights_enter_every_score():
    """A point of weight 3 counts as three points of weight 1, in every score but the p-value."""
    mean, std, observed = _prediction(5, (2, 12))
    repeated = np.repeat(np.arange(12), [3, 1, 2] * 4)
    weighted = scores(mean, std, observed, weights=[3.0, 1.0, 2.0] * 4)
    plain = scores(mean[:, repeated], std[:, repeated], observed[:, repeated])
    for name in ("rmse", "nll", "crps", "coverage", "ks_statistic"):
        np.testing.assert_allclose(
            getattr(weighted.by_area, name), getattr(plain, name), rtol=1e-12, err_msg=name
        )
    unweighted = scores(mean, std, observed)
    for name in ("rmse", "nll", "crps", "coverage", "ks_statistic", "ks_pvalue"):
        np.testing.assert_array_equal(getattr(weighted, name), getattr(unweighted, name))
        np.testing.assert_allclose(getattr(unweighted.by_area, name), getattr(unweighted, name), rtol=1e-12)


@pytest.mark.parametrize(
    ("mean", "std", "observed"), [(0.0, 1.0, 0.3), (280.0, 2.5, 271.0), (-3.0, 0.1, -2.0)]
)
def test_crps_is_its_integral(mean, std, observed):
    def integrand(x):
        return (stats.norm.cdf(x, mean, std) - (x >= observed)) ** 2

    low, high = min(mean - 12 * std, observed), max(mean + 12 * std, observed)
    below = integrate.quad(integrand, low, observed, limit=400, epsabs=1e-12)[0]
    above = integrate.quad(integrand, observed, high, limit=400, epsabs=1e-12)[0]
    assert scores([mean], [std], [observed]).crps == pytest.approx(below + above, rel=1e-8)


@given(mean=st.floats(-50.0, 50.0), std=st.floats(1e-3, 50.0), observed=st.floats(-50.0, 50.0))
def test_crps_is_positive_and_at_most_the_absolute_error_plus_spread(mean, std, observed):
    # E|X - y| - E|X - X'| / 2 with E|X - X'| = 2 s / sqrt(pi): between |error| - s / sqrt(pi) and
    # |error| + s (sqrt(2 / pi) - 1 / sqrt(pi)).
    value, error = scores([mean], [std], [observed]).crps, abs(mean - observed)
    assert value > 0.0
    slack = 1e-9 * (1.0 + error + std)
    assert error - std / np.sqrt(np.pi) - slack <= value
    assert value <= error + std * (np.sqrt(2.0 / np.pi) - 1.0 / np.sqrt(np.pi)) + slack


def test_crps_of_a_sharp_prediction_is_the_absolute_error():
    assert scores([280.0], [1e-9], [283.0]).crps == pytest.approx(3.0, rel=1e-9)


def test_rmse_and_nll_are_those_of_their_definitions():
    mean, std, observed = _prediction(1)
    found = scores(mean, std, observed)
    assert found.nll == pytest.approx(-stats.norm.logpdf(observed, mean, std).mean(), rel=1e-13)
    assert found.rmse == pytest.approx(np.linalg.norm(mean - observed) / np.sqrt(mean.size), rel=1e-13)


def test_scores_of_a_true_prediction_have_their_expectations():
    # y ~ N(mean, s^2): rmse^2 / s^2 has mean 1 and se sqrt(2 / N); nll mean log(s) + log(2 pi e) / 2 and
    # se sqrt(1 / 2 N); crps mean s / sqrt(pi), sd of one value below 0.5 s; coverage has the level as mean
    # and se sqrt(p (1 - p) / N). Four standard errors each, with a fixed generator.
    size, std = 40_000, 1.7
    rng = np.random.default_rng(12)
    observed = rng.normal(5.0, std, size=size)
    result = scores(np.full(size, 5.0), np.full(size, std), observed)
    assert abs(result.rmse**2 / std**2 - 1.0) < 4.0 * np.sqrt(2.0 / size)
    assert abs(result.nll - np.log(std) - 0.5 * np.log(2 * np.pi * np.e)) < 4.0 * np.sqrt(0.5 / size)
    assert abs(result.crps - std / np.sqrt(np.pi)) < 4.0 * 0.5 * std / np.sqrt(size)
    np.testing.assert_array_less(
        np.abs(result.coverage - result.levels), 4.0 * np.sqrt(result.levels * (1 - result.levels) / size)
    )
    assert result.ks_pvalue > 1e-3


@pytest.mark.parametrize("score", ["nll", "crps"])
@pytest.mark.parametrize(("shift", "factor"), [(0.3, 1.0), (0.0, 1.3), (0.0, 0.75)])
def test_scores_are_proper(score, shift, factor):
    # Mean of 20,000 paired differences: the wrong distributions lose 0.0097 to 0.10 on average, each more
    # than a seventh of the sd of one difference (0.06 to 0.56): over twenty standard errors.
    observed = np.random.default_rng(13).normal(size=20_000)
    zero, one = np.zeros_like(observed), np.ones_like(observed)
    right, wrong = scores(zero, one, observed), scores(zero + shift, factor * one, observed)
    assert getattr(right, score) < getattr(wrong, score)


def test_coverage_counts_observations_inside_the_central_interval():
    mean, std, observed = _prediction(3)
    levels = [0.1, 0.5, 0.9]
    expected = [
        np.mean([low <= y <= high for low, high, y in zip(*interval, observed.ravel(), strict=True)])
        for interval in (stats.norm.interval(level, mean.ravel(), std.ravel()) for level in levels)
    ]
    np.testing.assert_allclose(scores(mean, std, observed, levels=levels).coverage, expected, rtol=1e-14)


def test_scores_pools_its_parts():
    mean, std, observed = _prediction(4)
    weights = area_weights(np.linspace(-80.0, 80.0, 50))
    result = scores(mean, std, observed, weights=weights)
    assert result.by_area.rmse == pytest.approx(
        np.sqrt(np.average((mean - observed) ** 2, weights=np.tile(weights, (3, 1))))
    )
    assert result.by_area.rmse != result.rmse
    assert result.levels.tolist() == list(LEVELS)
    assert (result.ks_statistic, result.ks_pvalue) == ks_test(pit(mean, std, observed))


def _laws(mean, std):
    levels = np.array([0.1, 0.4, 0.7, 0.95])
    return {
        "gaussian": Gaussian(mean, std),
        "student-t": StudentT(mean, std, 5.0),
        "recalibrated": Recalibrated(Gaussian(mean, std), scores=stats.norm.ppf(levels) - 0.3, levels=levels),
        "quantile table": QuantileTable(levels, mean + std * stats.gumbel_r.ppf(levels)[:, None, None]),
    }


@pytest.mark.parametrize("name", ["gaussian", "student-t", "recalibrated", "quantile table"])
def test_scores_of_a_law_are_those_of_their_definitions(name):
    """Each weighted mean is written out with quantiles, densities and probabilities of the distribution."""
    mean, std, observed = _prediction(8)
    distribution, weights, levels = _laws(mean, std)[name], np.linspace(0.5, 2.0, 50), [0.5, 0.9]
    result = scores_of(distribution, observed, weights=weights, levels=levels)

    def average(values):
        return np.average(values, weights=np.broadcast_to(weights, values.shape))

    assert result.by_area.rmse == pytest.approx(np.sqrt(average((distribution.mean - observed) ** 2)))
    assert result.by_area.nll == pytest.approx(-average(distribution.log_density(observed)))
    assert result.by_area.crps == pytest.approx(average(distribution.crps(observed)))
    assert (result.ks_statistic, result.ks_pvalue) == ks_test(distribution.cdf(observed))
    for index, level in enumerate(levels):
        low, high = distribution.quantile(0.5 - level / 2), distribution.quantile(0.5 + level / 2)
        below, above = observed < low, observed > high
        loss = (high - low) + 2 / (1 - level) * (below * (low - observed) + above * (observed - high))
        assert result.by_area.coverage[index] == pytest.approx(average(1.0 - below - above))
        assert result.by_area.mean_width[index] == pytest.approx(average(high - low))
        assert result.by_area.interval_score[index] == pytest.approx(average(loss))
        assert result.interval_score[index] == pytest.approx(loss.mean())


def test_scores_of_a_gaussian_law_are_those_of_its_mean_and_standard_deviation():
    mean, std, observed = _prediction(9)
    plain, of_law = scores(mean, std, observed), scores_of(Gaussian(mean, std), observed)
    for name, value in plain.named().items():
        np.testing.assert_array_equal(of_law.named()[name], value, err_msg=name)


def test_limits_count_by_their_probability_alone():
    """Errors are those of the other values, with their weights; PIT values of all are uniform."""
    mean, std, value = (each.ravel() for each in _prediction(7, (2, 2000)))
    limit = mean - 0.5 * std
    below, weights = value < limit, np.linspace(0.5, 2.0, value.size)
    every = point_scores(Gaussian(mean, std), np.maximum(value, limit))
    pooled = of_limits(every, below, np.full(below.shape, False)).pooled(weights=weights)
    measured = every[~below].pooled(weights=weights[~below])
    for name in ("rmse", "nll", "crps", "interval_score"):
        assert getattr(pooled, name) == pytest.approx(getattr(measured, name))
        assert getattr(pooled.by_area, name) == pytest.approx(getattr(measured.by_area, name))
    error, at = 4.0 * np.sqrt(0.9 * 0.1 / value.size), LEVELS.index(0.9)
    assert pooled.coverage[at] == pytest.approx(0.9, abs=error)
    assert measured.coverage[at] > 0.9 + error
    assert pooled.ks_pvalue > 0.001


def test_the_interval_score_is_proper():
    # Mean of 20,000 paired differences at level 0.9: the wrong distributions lose 0.32 to 0.63 on average,
    # and the standard errors of the means of the differences are below 0.024: over fifteen of them.
    observed = np.random.default_rng(14).normal(size=20_000)
    right = scores_of(Gaussian(np.zeros(20_000), 1.0), observed, levels=[0.9]).interval_score[0]
    for shift, factor in ((0.4, 1.0), (0.0, 1.4), (0.0, 0.7)):
        wrong = scores_of(Gaussian(np.full(20_000, shift), factor), observed, levels=[0.9])
        assert right < wrong.interval_score[0]


@pytest.mark.parametrize(
    ("observed", "key"),
    [
        (np.zeros(3), "shapes"),
        ([0.0, np.nan], "not-finite"),
    ],
)
def test_scores_of_laws_say_what_is_wrong(observed, key):
    with pytest.raises(ArgumentError) as refusal:
        scores_of(Gaussian([0.0, 1.0], 1.0), observed)
    assert refusal.value.key == key


def test_without_weights_the_area_weighted_error_is_the_plain_one():
    result = scores(*_prediction(5))
    assert result.by_area.rmse == result.rmse


def test_the_scale_of_weights_does_not_matter():
    mean, std, observed = _prediction(7)
    weights = np.linspace(0.0, 1.0, 50)
    large, small = (scores(mean, std, observed, weights=scale * weights).by_area for scale in (1e6, 1.0))
    assert large.crps == pytest.approx(small.crps, rel=1e-13)


@one_after_another
@pytest.mark.parametrize(
    ("weights", "key"),
    [
        (np.ones(3), "shapes"),
        (-np.ones(50), "weights"),
        (np.zeros(50), "weights"),
        (np.full(50, np.nan), "weights"),
    ],
)
def test_wrong_weights_are_refused(weights, key):
    with pytest.raises(ArgumentError) as refusal:
        scores(*_prediction(8), weights=weights)
    assert refusal.value.key == key


@one_after_another
@pytest.mark.parametrize("levels", [[0.0], [1.0], [95.0], [np.nan], [[0.5]]])
def test_wrong_levels_are_refused(levels):
    with pytest.raises(ArgumentError) as refusal:
        scores(*_prediction(9), levels=levels)
    assert refusal.value.key == "levels"


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan])
def test_a_standard_deviation_that_is_not_positive_is_refused(bad):
    mean, std, observed = _prediction(10)
    std[1, 7] = bad
    with pytest.raises(ArgumentError, match="predictive_std"):
        scores(mean, std, observed)


def test_scores_are_frozen():
    result = scores(*_prediction(11))
    with pytest.raises(AttributeError):
        result.rmse = 0.0


def test_a_score_that_is_not_a_number_is_not_left_out():
    """Only where all errors are unknown beside a PIT a limit of detection was compared."""
    rng = np.random.default_rng(4)
    every = point_scores(Gaussian(np.zeros(30), np.ones(30)), rng.standard_normal(30))
    nll = np.where(np.arange(30) == 3, np.nan, every.nll)
    pooled = replace(every, nll=nll).pooled()
    assert np.isnan(pooled.nll)
    assert np.isfinite([pooled.crps, pooled.rmse]).all()
    nothing = of_limits(every, np.full(30, True), np.full(30, False)).pooled(weights=np.ones(30))
    assert np.isnan([nothing.nll, nothing.by_area.crps]).all()
    assert np.isfinite(nothing.coverage).all()
