"""Recalibration: what a finite number of calibration points guarantees, exactly, and what is refused."""

import numpy as np
import pytest
from scipy import stats

from cagp_dist.calibration.conformal import Conformal, SplitConformal
from cagp_dist.calibration.curves import Kuleshov, Marx
from cagp_dist.calibration.order_statistics import between, fewest, q_lin
from cagp_dist.calibration.recalibration import RECALIBRATIONS
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive import Gaussian, StudentT

N, NEW = 24, 40


def _draw(seed: int, count: int) -> tuple[Gaussian, np.ndarray, np.ndarray]:
    """Predictions with wrong widths and lopsided errors at points of a line, all exchangeable."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(count, 1))
    law = Gaussian(3.0 * rng.standard_normal(count), np.exp(0.5 * rng.standard_normal(count)))
    errors = (1.0 + 4.0 * X[:, 0]) * (rng.gamma(2.0, size=count) - 1.0)
    return law, law.mean + law.std * errors, X


def _simulated(method, seeds: range) -> np.ndarray:
    """PIT values (S, NEW) of new points after a fit to N others, one row for each simulation."""
    found = []
    for seed in seeds:
        law, values, X = _draw(seed, N + NEW)
        fitted = method.fit(law[:N], values[:N], X[:N])
        found.append(fitted(law[N:], X[N:]).cdf(values[N:]))
    return np.array(found)


def _spread(rank: int, simulations: int) -> float:
    """Standard error of a share of PIT values below the level of a rank.

    Given the calibration points the share has the law Beta(l, N + 1 - l), and NEW draws are made of it.
    """
    level = rank / (N + 1)
    own = level * (1.0 - level) / (N + 2)
    return float(np.sqrt((own + (level * (1.0 - level) - own) / NEW) / simulations))


@pytest.mark.parametrize("start", [0, 10_000])
@pytest.mark.parametrize(
    "method",
    [Kuleshov(), Marx(), Marx("standardised"), Marx(lambda law: StudentT(law.mean, law.std, 3.0))],
    ids=["kuleshov", "marx", "marx standardised", "marx student"],
)
def test_probabilities_are_exact_at_every_order_statistic(method, start: int) -> None:
    """``P(F(y) <= l / (N + 1)) = l / (N + 1)`` (math 12) over 300 draws of calibration points: 4 errors."""
    simulations = 300
    pit = _simulated(method, range(start, start + simulations))
    for rank in (1, 2, 8, 16, 24):
        share = np.mean(pit <= rank / (N + 1) + 1e-9)
        assert abs(share - rank / (N + 1)) < 4.0 * _spread(rank, simulations)


@pytest.mark.parametrize("seed", [0, 1])
def test_randomised_system_has_uniform_pit_values(seed: int) -> None:
    """One new point for each of 1,000 draws, so that all are independent; ties change nothing.

    A KS statistic exceeds 2.2 / sqrt(N) once in 8,000.
    """
    rng = np.random.default_rng(seed)
    for rounded in (False, True):
        pit = []
        for simulation in range(1000):
            errors = rng.gamma(2.0, size=21)
            errors = np.round(2.0 * errors) / 2.0 if rounded else errors
            fitted = Conformal(True, seed=simulation).fit(Gaussian(np.zeros(20), 1.0), errors[:20])
            pit.append(float(fitted(Gaussian([0.0], 1.0)).cdf(errors[20])[0]))
        assert stats.kstest(pit, "uniform").statistic < 2.2 / np.sqrt(1000)


def test_system_is_that_of_the_definition() -> None:
    """Counts of math 12, and the curve without random numbers between the laws of tau 0 and 1."""
    rng = np.random.default_rng(0)
    law, values, _ = _draw(0, 300)
    fitted = Conformal(True, seed=3).fit(law[:30], values[:30])
    z = np.sort((values[:30] - law.mean[:30]) / law.std[:30])
    steps = fitted(law[30:])
    y = law.mean[30:] + law.std[30:] * np.where(rng.uniform(size=270) < 0.5, rng.choice(z, 270), 2.0)
    new = (y - law.mean[30:]) / law.std[30:]
    new = np.where(
        np.abs(new[:, None] - z).min(axis=1) < 1e-12, z[np.abs(new[:, None] - z).argmin(axis=1)], new
    )
    y = law.mean[30:] + law.std[30:] * new
    seen = law[30:].normal_score(y)[:, None]
    expected = ((z < seen).sum(axis=1) + steps.tau * ((z == seen).sum(axis=1) + 1)) / 31
    np.testing.assert_allclose(steps.cdf(y), expected, rtol=1e-12)
    assert bool(np.all(steps.log_density(y) == -np.inf))

    for level in (0.001, 0.1, 0.33, 0.5, 0.97, 0.999):
        value = steps.quantile(level)
        inside = (level > steps.cdf(steps.base.at_normal_score(z[0]) - 1e-6)) & (
            level <= steps.cdf(steps.base.at_normal_score(z[-1]) + 1e-6)
        )
        assert bool(np.all(steps.cdf(value + 1e-9)[inside] >= level - 1e-12))
        assert bool(np.all(steps.cdf(value - 1e-6)[inside] < level))
    assert steps[2:5].quantile(0.4).tolist() == steps.quantile(0.4)[2:5].tolist()

    curve = Conformal(knots=30).fit(law[:30], values[:30])(law[30:])
    for level in np.linspace(0.02, 0.98, 49):
        at = (curve.quantile(level) - law.mean[30:]) / law.std[30:]
        rank = np.searchsorted(z, at, side="right")
        off = np.abs(at[:, None] - z).min(axis=1) > 1e-9
        assert bool(np.all((rank / 31 <= level) & (level <= (rank + 1) / 31) | ~off))


@pytest.mark.parametrize("neighbours", [0, 6])
@pytest.mark.parametrize("start", [0, 10_000])
def test_split_conformal_intervals_hold_what_they_say(neighbours: int, start: int) -> None:
    """Central intervals of level ``l / (M + 1)``, M scores, over 300 draws: 4 errors; share of Beta draws."""
    method = SplitConformal(neighbours=neighbours, share=0.5, smallest_level=0.1)
    pit = _simulated(method, range(start, start + 300))
    count = N // 2 if neighbours else N
    for rank in (1, count // 2, count):
        level = rank / (count + 1)
        own = level * (1.0 - level) / (count + 2)
        error = np.sqrt((own + (level * (1.0 - level) - own) / NEW) / 300)
        assert abs(np.mean(np.abs(2.0 * pit - 1.0) <= level + 1e-9) - level) < 4.0 * error


def test_local_sizes_widen_intervals_where_errors_are_large() -> None:
    """Errors double along the line: coverage of 80 % intervals by thirds; 5 errors of 1,300 draws: 0.06."""
    law, values, X = _draw(5, 8000)
    for neighbours, bound in ((0, None), (40, 0.06)):
        fitted = SplitConformal(neighbours=neighbours).fit(law[:4000], values[:4000], X[:4000])
        lower, upper = fitted(law[4000:], X[4000:]).interval(0.8)
        inside = (lower <= values[4000:]) & (values[4000:] <= upper)
        thirds = [inside[X[4000:, 0] // (1 / 3) == third].mean() for third in (0, 1, 2)]
        if bound is None:
            assert thirds[0] > 0.9 > 0.7 > thirds[2]
        else:
            assert max(abs(share - 0.8) for share in thirds) < bound


def test_methods_that_are_registered_give_laws_with_a_density() -> None:
    """Of one field and of several, with gaps; gaps are as if they had not been there."""
    rng = np.random.default_rng(1)
    law = Gaussian(rng.standard_normal((3, 40)), 1.0)
    values = law.mean + 2.0 * rng.standard_normal((3, 40))
    values[0, :5] = np.nan
    X = rng.standard_normal((40, 3))
    for name, method in RECALIBRATIONS.items():
        if name in ("local-scale", "none"):  # the one is tested by itself, the other learns nothing
            continue
        recalibrated = method().fit(law, values, X)(law, X)
        assert recalibrated.shape == law.shape
        assert bool(np.isfinite(recalibrated.log_density(np.nan_to_num(values))).all())
        lower, upper = recalibrated.interval(0.9)
        assert 0.8 < np.mean(((lower <= values) & (values <= upper))[~np.isnan(values)]) < 1.0
        if name != "split-conformal":
            flat = ~np.isnan(values.ravel())
            alone = method().fit(Gaussian(law.mean.ravel()[flat], 1.0), values.ravel()[flat], None)(law)
            np.testing.assert_array_equal(alone.quantile(0.3), recalibrated.quantile(0.3))


def test_curve_of_levels_has_the_quantiles_of_standardised_errors() -> None:
    law, values, _ = _draw(2, 200)
    levels = (0.1, 0.25, 0.5, 0.9)
    curve = Kuleshov(levels=levels).fit(law, values)(law)
    expected = law.mean + law.std * q_lin(levels, law.normal_score(values))[:, None]
    np.testing.assert_allclose(curve.quantile(levels), expected, rtol=1e-9)


def test_quantiles_between_order_statistics_are_within_one_in_n() -> None:
    """A new score lies below ``q_lin(level)`` with a probability within 1 / (N + 1) of it, for N = 9."""
    rng = np.random.default_rng(4)
    scores = rng.standard_exponential((5000, 10))
    levels = np.array([0.1112, 0.25, 0.5, 0.77, 0.88])
    found = np.mean([new <= q_lin(levels, row) for *row, new in scores], axis=0)
    # 4 standard errors of a share of 5,000
    assert bool(np.all(np.abs(found - levels) < 0.1 + 4.0 * np.sqrt(0.25 / 5000)))
    below, share = between(0.35, 9)
    assert (int(below), float(share)) == pytest.approx((2, 0.5))


@pytest.mark.parametrize("level", [0.01, 0.05, 0.1, 0.3, 0.9, 0.95, 0.99, 0.999])
def test_fewest_points_are_one_over_the_tail(level: float) -> None:
    needed = fewest(level)
    assert needed == round(1.0 / min(level, 1.0 - level) + 0.49)
    q_lin(level, np.arange(float(needed)))
    with pytest.raises(
        ArgumentError, match=f"cannot resolve the level {level:g}; expected at least {needed}"
    ):
        q_lin(level, np.arange(needed - 1.0))


NORMAL = Gaussian(np.zeros(30), 1.0)
VALUES = np.linspace(-1.0, 1.0, 30)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Kuleshov().fit(NORMAL[:19], VALUES[:19]),
            "19 calibration points cannot resolve the level 0.05",
        ),
        (lambda: Conformal(smallest_level=0.01).fit(NORMAL, VALUES), "expected at least 100"),
        (lambda: Marx().fit(NORMAL, np.full(30, np.nan)), "0 calibration points cannot resolve"),
        (
            lambda: Kuleshov().fit(NORMAL, np.full(30, 0.3)),
            "the same multiple, 0.3, of their standard deviation",
        ),
        (lambda: Marx().fit(NORMAL, np.zeros(30)), "they tell no width"),
        (
            lambda: Kuleshov().fit(NORMAL, VALUES[:5]),
            r"observed has shape \(5,\) and the predictions \(30,\)",
        ),
        (lambda: Marx("erorr").fit(NORMAL, VALUES), 'expected "error", "standardised" or a function'),
        (lambda: Kuleshov().fit(NORMAL, np.append(VALUES[1:], np.inf)), "1 of them not finite"),
        (lambda: SplitConformal(neighbours=3).fit(NORMAL, VALUES), "X is missing"),
        (lambda: SplitConformal(neighbours=16).fit(NORMAL, VALUES, VALUES[:, None]), "expected at least 16"),
        (lambda: SplitConformal(neighbours=3).fit(NORMAL, VALUES, VALUES[:9, None]), "X holds 9 points"),
        (lambda: q_lin([0.5, 1.0], VALUES), "expected numbers between 0 and 1"),
    ],
)
def test_what_cannot_be_recalibrated_is_refused(call, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()


@pytest.mark.parametrize("method", sorted(set(RECALIBRATIONS) - {"none"}))
@pytest.mark.parametrize("offset", [0.0, 0.3])
def test_errors_that_are_rounding_are_refused(method: str, offset: float) -> None:
    """As of a constant field, whatever standard deviations were said; 1e-4 K is an error."""
    rng = np.random.default_rng(0)
    X, std = rng.uniform(-1.0, 1.0, (600, 3)), rng.uniform(1.0, 2.0, 600)
    X /= np.linalg.norm(X, axis=1)[:, None]
    noise = rng.standard_normal(600)
    values = np.full(600, 280.0)
    with pytest.raises(ArgumentError, match=r"errors of all \d+ calibration values are .* up to rounding"):
        RECALIBRATIONS[method]().fit(Gaussian(values - offset + 1e-12 * noise, std), values, X)
    RECALIBRATIONS[method]().fit(Gaussian(values - offset + 1e-4 * noise, std), values, X)
