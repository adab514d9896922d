"""The verdict on a run's error bars: false alarms, power, correlated errors, words."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from cagp_dist.calibration.verification.scores import LEVELS, scores
from cagp_dist.calibration.verification.verdict import (
    SIGNIFICANCE,
    compact_cells,
    coverage_test,
    judge,
    revealed_scale,
)
from cagp_dist.geometry import area_weights, unit_sphere


def places(rng, count):
    latitude = np.rad2deg(np.arcsin(rng.uniform(-1.0, 1.0, count)))
    return latitude, unit_sphere(latitude, rng.uniform(0.0, 360.0, count))


def verdict(z, X, weights=None):
    cells, values = compact_cells(X), ndtr(z)
    plain = coverage_test(values, levels=LEVELS, cells=cells)
    by_area = coverage_test(values, levels=LEVELS, cells=cells, weights=weights)
    return judge(plain, by_area, observations=z.size)


def smooth_errors(rng, X, fields):
    """Standard normal errors that agree over a fifth of the Earth's radius."""
    distance = np.linalg.norm(X[:, None] - X[None], axis=2)
    factor = np.linalg.cholesky(np.exp(-distance / 0.2) + 1e-10 * np.eye(len(X)))
    return (factor @ rng.standard_normal((len(X), fields))).T


@pytest.mark.parametrize("count", [8, 50, 400])
@pytest.mark.exhaustive
def test_right_error_bars_are_rarely_blamed(count):
    # five levels in two weightings at 0.27 % each: 2.7 % at most; 300 runs, four standard errors of 0.94 %
    rng = np.random.default_rng(count)
    blamed = 0
    for _ in range(300):
        latitude, X = places(rng, count)
        blamed += not verdict(rng.standard_normal(count), X, area_weights(latitude)).ok
    assert blamed / 300 < 10 * SIGNIFICANCE + 4 * 0.0094


@pytest.mark.exhaustive
def test_errors_that_agree_with_their_neighbours_are_not_blamed_for_it():
    """Counted as independent, the same errors are blamed several times as often (0.24 against 0.06)."""
    rng = np.random.default_rng(3)
    _, X = places(rng, 1000)
    z = smooth_errors(rng, X, 300)
    blamed = np.mean([not verdict(row, X).ok for row in z])
    alone = np.arange(1000)
    naive = [coverage_test(ndtr(row), levels=LEVELS, cells=alone).faults.any() for row in z]
    assert np.mean(naive) > 0.15
    assert blamed < 0.5 * np.mean(naive)


@pytest.mark.parametrize(
    ("scale", "kind", "words"),
    [
        (2.0, "too-narrow", "The error bars are too narrow: "),
        (0.5, "too-wide", "The error bars are too wide: "),
        (1.0, "consistent", "no further from that share than chance explains. With 1,000 observations"),
    ],
)
def test_the_scale_of_the_errors_is_judged(scale, kind, words):
    rng = np.random.default_rng(5)
    _, X = places(rng, 1000)
    z = scale * rng.standard_normal(1000)
    found = verdict(z, X)
    assert (found.kind, found.ok) == (kind, scale == 1.0)
    assert words in found.statement
    share = scores(np.zeros(1000), np.ones(1000), z, levels=[0.9]).coverage[0]
    assert (
        f"{100.0 * share:.1f} % of the held-out observations lie inside their 90 % error bars"
        in found.statement
    )


def test_a_wrong_shape_names_a_level_on_either_side():
    rng = np.random.default_rng(6)
    _, X = places(rng, 2000)
    found = verdict(np.where(rng.random(2000) < 0.8, 0.4, 3.0) * rng.standard_normal(2000), X)
    assert found.kind == "wrong-shape"
    assert " and " in found.statement
    assert "50 % error bars" in found.statement
    assert "99 % error bars" in found.statement


def test_error_bars_that_are_too_wide_but_for_their_tails_are_said_to_be_so():
    """Three in a hundred far away, which so few points do not make a fault of their own."""
    rng = np.random.default_rng(8)
    _, X = places(rng, 200)
    z = 0.5 * rng.standard_normal(200)
    z[:6] = 8.0
    found = verdict(z, X)
    assert found.kind == "too-wide"
    assert found.statement.endswith(
        "A few errors may nevertheless be larger than stated: only 97.0 % lie inside their 99 % error bars."
    )


def test_of_error_bars_that_are_too_wide_throughout_no_tail_is_said_to_be_narrow():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        _, X = places(rng, 200)
        found = verdict(0.5 * rng.standard_normal(200), X)
        assert found.kind == "too-wide"
        assert "nevertheless" not in found.statement


def test_a_fault_that_shows_by_area_alone_is_found():
    """Too narrow in the tropics, too wide where many points stand for little ground."""
    rng = np.random.default_rng(7)
    latitude = np.concatenate([rng.uniform(-30.0, 30.0, 400), rng.uniform(75.0, 90.0, 600)])
    X = unit_sphere(latitude, rng.uniform(0.0, 360.0, 1000))
    z = np.where(latitude > 50.0, 0.8, 1.5) * rng.standard_normal(1000)
    found = verdict(z, X, area_weights(latitude))
    assert found.kind in ("too-narrow", "wrong-shape")
    plain = coverage_test(ndtr(z), levels=[0.9], cells=compact_cells(X))
    assert not plain.faults.any()
    assert "weighted by area" in verdict(z, X, area_weights(latitude)).statement


def test_few_points_decide_nothing():
    rng = np.random.default_rng(8)
    _, X = places(rng, 12)
    found = verdict(rng.standard_normal(12), X)
    assert (found.kind, found.ok) == ("undecided", True)
    assert "12 observations" in found.statement
    assert verdict(np.array([0.3]), X[:1]).kind == "undecided"


@pytest.mark.parametrize("points", [50, 300])
def test_the_scale_that_is_named_is_revealed_in_95_percent_of_cases(points):
    # 2,000 draws: four standard errors of 0.95 are 0.02; at a twentieth less the power must be lower
    rng = np.random.default_rng(points)
    scale = revealed_scale(points)

    def power(s):
        inside = (np.abs(s * rng.standard_normal((2000, points))) <= stats.norm.ppf(0.95)).sum(axis=1)
        pvalue = 2.0 * stats.binom.cdf(inside, points, 0.9)
        return np.mean(pvalue < SIGNIFICANCE)

    assert abs(power(scale) - 0.95) < 0.02
    assert power(0.95 * scale) < 0.93
    assert scale > 1.4 if points == 50 else scale < 1.4


def test_cells_are_compact_and_at_most_32():
    rng = np.random.default_rng(9)
    for count in (1, 3, 40, 1000):
        _, X = places(rng, count)
        cells = compact_cells(X)
        assert cells.shape == (count,)
        assert len(np.unique(cells)) <= 32
        assert count < 8 or np.bincount(cells)[:-1].min() >= 4
    spread = np.mean([X[cells == cell].std(axis=0).max() for cell in np.unique(cells)])
    assert spread < 0.5 * X.std(axis=0).max()


def test_all_inside_and_none_inside_have_a_standard_error():
    _, X = places(np.random.default_rng(10), 100)
    for z in (np.zeros(100), np.full(100, 9.0)):
        test = coverage_test(ndtr(z), levels=[0.9], cells=compact_cells(X))
        assert test.standard_error[0] == pytest.approx(0.03)
