"""PIT values, their histogram and the tests of uniformity against independent computations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cagp_dist.calibration.verification.pit import (
    CORRELATED_TEST_POINTS,
    histogram,
    ks_test,
    normal_tests,
    pit,
    standardised_errors,
)
from cagp_dist.errors import ArgumentError

from ..joined import one_after_another


def test_pit_is_the_cdf_of_the_prediction_at_the_observation():
    rng = np.random.default_rng(3)
    mean, std, observed = rng.normal(size=(4, 9)), rng.uniform(0.5, 2.0, (4, 9)), rng.normal(size=(4, 9))
    np.testing.assert_allclose(pit(mean, std, observed), stats.norm.cdf(observed, mean, std), rtol=1e-13)


def test_a_standard_deviation_per_point_is_shared_by_all_fields():
    rng = np.random.default_rng(4)
    mean, std, observed = rng.normal(size=(4, 9)), rng.uniform(0.5, 2.0, 9), rng.normal(size=(4, 9))
    repeated = np.tile(std, (4, 1))
    np.testing.assert_array_equal(pit(mean, std, observed), pit(mean, repeated, observed))


@given(z=st.floats(-60.0, 60.0), mean=st.floats(-300.0, 300.0), std=st.floats(1e-3, 1e3))
def test_pit_lies_in_the_unit_interval_and_grows_with_the_observation(z, mean, std):
    low, high = pit([mean, mean], [std, std], [mean + z * std, mean + (z + 1.0) * std])
    assert 0.0 <= low <= high <= 1.0


def test_single_precision_input_is_computed_in_double():
    mean = np.array([280.125], dtype=np.float32)
    z = standardised_errors(mean, np.array([0.1], dtype=np.float32), mean + np.float32(0.25))
    assert z.dtype == np.float64
    assert z[0] == pytest.approx(0.25 / float(np.float32(0.1)), rel=1e-15)


@one_after_another
@pytest.mark.parametrize(
    ("mean", "std", "observed", "key"),
    [
        ([1.0, 2.0], [1.0, 1.0], [1.0], "shapes"),
        ([1.0, 2.0], [1.0], [1.0, 2.0], "shapes"),
        (np.zeros((3, 2)), np.ones(3), np.zeros((3, 2)), "shapes"),
        (np.zeros((1, 1, 1)), np.ones(1), np.zeros((1, 1, 1)), "shapes"),
        (0.0, 1.0, 0.0, "shapes"),
        (np.zeros((0,)), np.zeros((0,)), np.zeros((0,)), "nothing-to-score"),
        ([1.0, np.nan], [1.0, 1.0], [1.0, 2.0], "not-finite"),
        ([1.0, 2.0], [np.inf, 1.0], [1.0, 2.0], "not-finite"),
        ([1.0, 2.0], [1.0, 1.0], [np.nan, np.nan], "not-finite"),
        ([1.0, 2.0], [1.0, 0.0], [1.0, 2.0], "not-positive"),
        ([1.0, 2.0], [1.0, -0.5], [1.0, 2.0], "not-positive"),
    ],
)
def test_wrong_input_is_refused(mean, std, observed, key):
    with pytest.raises(ArgumentError) as refusal:
        pit(mean, std, observed)
    assert refusal.value.key == key


def test_histogram_counts_every_value_once():
    result = histogram([[0.0, 0.049, 0.05], [0.999, 1.0, 0.5]])
    assert result.edges.tolist() == pytest.approx([i / 20 for i in range(21)])
    assert result.counts.sum() == 6
    assert (result.counts[0], result.counts[1], result.counts[10], result.counts[19]) == (2, 1, 1, 2)
    assert result.expected == pytest.approx(0.3)


@pytest.mark.parametrize("size", [20, 1_000, 24_000])
def test_band_is_the_exact_binomial_one(size):
    result = histogram(np.linspace(0.0, 1.0, size))
    distribution = stats.binom(size, 1.0 / 20.0)
    # Quantiles by definition: the smallest count whose cumulative probability reaches the level.
    assert distribution.cdf(result.lower) >= 0.025 > distribution.cdf(result.lower - 1)
    assert distribution.cdf(result.upper) >= 0.975 > distribution.cdf(result.upper - 1)
    assert result.lower <= result.expected <= result.upper


def test_band_holds_its_share_of_uniform_counts():
    # 500 histograms x 20 intervals; a count lies inside with the exact probability p, close to 0.95. Counts
    # of one histogram are negatively correlated, so the standard error is near sqrt(p (1 - p) / 10,000).
    rng = np.random.default_rng(11)
    results = [histogram(rng.uniform(size=1_000)) for _ in range(500)]
    inside = np.mean([(r.counts >= r.lower) & (r.counts <= r.upper) for r in results])
    distribution = stats.binom(1_000, 0.05)
    expected = distribution.cdf(results[0].upper) - distribution.cdf(results[0].lower - 1)
    assert abs(inside - expected) < 4.0 * np.sqrt(expected * (1.0 - expected) / 10_000)
    assert expected >= 0.95


@one_after_another
@pytest.mark.parametrize("values", [[1.1], [-0.1], [np.nan], [0.5, np.nan]])
def test_values_outside_the_unit_interval_are_refused(values):
    with pytest.raises(ArgumentError) as refusal:
        histogram(values)
    assert refusal.value.key == "pit-range"


def test_empty_input_is_refused():
    with pytest.raises(ArgumentError) as refusal:
        histogram([])
    assert refusal.value.key == "nothing-to-score"
    with pytest.raises(ArgumentError) as refusal:
        normal_tests([])
    assert refusal.value.key == "nothing-to-score"
    with pytest.raises(ArgumentError) as refusal:
        histogram([0.5], intervals=0)
    assert refusal.value.key == "intervals"


def test_ks_statistic_is_the_largest_gap_of_the_empirical_cdf():
    rng = np.random.default_rng(5)
    values = np.sort(rng.uniform(size=37))
    step = np.arange(38) / 37
    by_hand = max(np.max(step[1:] - values), np.max(values - step[:-1]))
    statistic, pvalue = ks_test(values.reshape(1, 37))
    assert statistic == pytest.approx(by_hand, rel=1e-14)
    assert pvalue == pytest.approx(stats.kstwo.sf(by_hand, 37), rel=1e-12)


def test_ks_of_many_pooled_values_needs_no_warning():
    _, pvalue = ks_test(np.random.default_rng(6).uniform(size=(24, 1_000)))
    assert pvalue > 1e-3


def test_weighted_histogram_and_ks_count_by_weight():
    values = np.array([[0.1, 0.3, 0.9], [0.2, 0.6, 0.8]])
    result = histogram(values, intervals=2, weights=[3.0, 1.0, 2.0])
    np.testing.assert_allclose(result.counts, [0.5 * (3 + 1 + 3), 0.5 * (2 + 1 + 2)])
    assert result.expected == 3.0
    # six values of weights 3, 1, 2 are worth (2 * 6)^2 / (2 * 14) = 5.1 equal ones
    distribution = stats.binom(5, 0.5)
    assert (result.lower, result.upper) == (distribution.ppf(0.025) * 6 / 5, distribution.ppf(0.975) * 6 / 5)
    statistic, pvalue = ks_test(values, weights=[3.0, 1.0, 2.0])
    steps = np.array([0, 3, 6, 7, 8, 10, 12]) / 12
    ordered = np.sort(values.ravel())
    assert statistic == pytest.approx(max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))
    assert pvalue == pytest.approx(stats.kstwo.sf(statistic, 5))


def test_equal_weights_change_nothing():
    values = np.random.default_rng(1).uniform(size=(3, 50))
    np.testing.assert_allclose(histogram(values, weights=np.full(50, 7.0)).counts, histogram(values).counts)
    assert ks_test(values, weights=np.full(50, 7.0)) == pytest.approx(ks_test(values), rel=1e-9)


def test_normal_tests_follow_their_formulae():
    z = np.random.default_rng(7).normal(size=(5, 40))
    result = normal_tests(z)
    squares, size = np.sum(z**2), z.size
    assert result.z_std == pytest.approx(np.sqrt(squares / size))
    assert result.z_mean == pytest.approx(z.mean())
    chi2 = stats.chi2(size)
    assert result.variance_pvalue == pytest.approx(2.0 * min(chi2.cdf(squares), chi2.sf(squares)))
    assert result.mean_pvalue == pytest.approx(_z_test(z.ravel()))
    assert (result.ks_statistic, result.ks_pvalue) == ks_test(stats.norm.cdf(z))


def _z_test(z):
    return 2.0 * (1.0 - stats.norm.cdf(abs(z.sum()) / np.sqrt(z.size)))


def test_pvalues_are_uniform_under_the_hypothesis():
    # 400 data sets: each p-value must be uniform. A KS test of 400 p-values at level 1e-4, three times,
    # with a fixed generator: a correct implementation fails for 3 generators in 10,000.
    rng = np.random.default_rng(8)
    results = [normal_tests(rng.normal(size=60)) for _ in range(400)]
    for name in ("ks_pvalue", "variance_pvalue", "mean_pvalue"):
        pvalues = [getattr(result, name) for result in results]
        assert stats.kstest(pvalues, "uniform").pvalue > 1e-4, name


def test_variance_test_sees_a_wrong_scale_that_ks_does_not():
    # Scale wrong by 10 %, N = 1,000: sum z^2 / N has mean 1.21 and standard error 1.21 sqrt(2 / 1000) =
    # 0.054; p < 1e-2 needs it above 1.115 (2.58 null standard errors of 0.045), 1.8 of its own below 1.21.
    # KS moves by max |Phi(x / 1.1) - Phi(x)| = 0.023, under its 5 % critical value 1.36 / sqrt(1000) = 0.043.
    z = 1.1 * np.random.default_rng(9).normal(size=1_000)
    result = normal_tests(z)
    assert result.variance_pvalue < 1e-2
    assert result.ks_pvalue > 0.05


def test_mean_test_sees_a_shift():
    # Shift 0.2 with N = 1,000: 6.3 standard errors; below 3.3 (p = 1e-3) with probability 1.4e-3.
    assert normal_tests(np.random.default_rng(10).normal(0.2, 1.0, size=1_000)).mean_pvalue < 1e-3


def test_standardised_errors_that_are_not_finite_are_refused():
    with pytest.raises(ArgumentError) as refusal:
        normal_tests([0.0, np.inf])
    assert refusal.value.key == "not-finite"


def test_the_warning_for_reports_says_why():
    assert "correlated" in CORRELATED_TEST_POINTS
    assert "p-value" in CORRELATED_TEST_POINTS
