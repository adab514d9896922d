"""Recalibration of the papers: what a finite number of calibration points guarantees, exactly.

The comparisons with other packages run where these are installed: ``pip install --no-deps MAPIE crepes``
beside the packages of requirements-dev.lock.
"""

import numpy as np
import pytest
from scipy import stats

from cagp_dist.calibration.recalibration.quantile_curve import Kuleshov
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive import Gaussian
from pipelines.experiments.other_recalibrations import Marx, SplitConformal, Vovk

from ..joined import one_after_another

N, NEW = 24, 40


def _draw(seed: int, count: int) -> tuple[Gaussian, np.ndarray, np.ndarray]:
    """Predictions with wrong widths and lopsided errors at points of a line, all exchangeable."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(count, 1))
    distribution = Gaussian(3.0 * rng.standard_normal(count), np.exp(0.5 * rng.standard_normal(count)))
    errors = (1.0 + 4.0 * X[:, 0]) * (rng.gamma(2.0, size=count) - 1.0)
    return distribution, distribution.mean + distribution.std * errors, X


def _simulated(method, seeds: range) -> np.ndarray:
    """PIT values (S, NEW) of new points after a fit to N others, one row for each simulation."""
    found = []
    for seed in seeds:
        distribution, values, X = _draw(seed, N + NEW)
        fitted = method.fit(distribution[:N], values[:N], X[:N])
        found.append(fitted(distribution[N:], X[N:]).cdf(values[N:]))
    return np.array(found)


def _spread(rank: int, simulations: int) -> float:
    """Standard error of a share of PIT values below the level of a rank.

    Given the calibration points the share has the distribution Beta(l, N + 1 - l), and NEW draws are made of
    it.
    """
    level = rank / (N + 1)
    own = level * (1.0 - level) / (N + 2)
    return float(np.sqrt((own + (level * (1.0 - level) - own) / NEW) / simulations))


@pytest.mark.parametrize("start", [0, 10_000])
@pytest.mark.parametrize("method", [Kuleshov(), Marx()], ids=["kuleshov", "marx"])
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
            fitted = Vovk(seed=simulation).fit(Gaussian(np.zeros(20), 1.0), errors[:20])
            pit.append(float(fitted(Gaussian([0.0], 1.0)).cdf(errors[20])[0]))
        assert stats.kstest(pit, "uniform").statistic < 2.2 / np.sqrt(1000)


def test_system_is_that_of_the_definition() -> None:
    """Counts of math 12."""
    rng = np.random.default_rng(0)
    distribution, values, _ = _draw(0, 300)
    fitted = Vovk(seed=3).fit(distribution[:30], values[:30])
    z = np.sort((values[:30] - distribution.mean[:30]) / distribution.std[:30])
    steps = fitted(distribution[30:])
    y = distribution.mean[30:] + distribution.std[30:] * np.where(
        rng.uniform(size=270) < 0.5, rng.choice(z, 270), 2.0
    )
    new = (y - distribution.mean[30:]) / distribution.std[30:]
    new = np.where(
        np.abs(new[:, None] - z).min(axis=1) < 1e-12, z[np.abs(new[:, None] - z).argmin(axis=1)], new
    )
    y = distribution.mean[30:] + distribution.std[30:] * new
    seen = distribution[30:].normal_score(y)[:, None]
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
    distribution, values, X = _draw(5, 8000)
    for neighbours, bound in ((0, None), (40, 0.06)):
        fitted = SplitConformal(neighbours=neighbours).fit(distribution[:4000], values[:4000], X[:4000])
        lower, upper = fitted(distribution[4000:], X[4000:]).interval(0.8)
        inside = (lower <= values[4000:]) & (values[4000:] <= upper)
        thirds = [inside[X[4000:, 0] // (1 / 3) == third].mean() for third in (0, 1, 2)]
        if bound is None:
            assert thirds[0] > 0.9 > 0.7 > thirds[2]
        else:
            assert max(abs(share - 0.8) for share in thirds) < bound


@one_after_another
@pytest.mark.parametrize(
    ("call", "key"),
    [
        (lambda distribution, y: SplitConformal(neighbours=3).fit(distribution, y), "no-places"),
        (
            lambda distribution, y: SplitConformal(neighbours=16).fit(distribution, y, y[:, None]),
            "few-errors",
        ),
        (
            lambda distribution, y: SplitConformal(neighbours=3).fit(distribution, y, y[:9, None]),
            "shapes",
        ),
        (
            lambda distribution, y: Vovk().fit(distribution[:19], y[:19]),
            "few-errors",
        ),
        (lambda distribution, y: Marx().fit(distribution, np.full(30, 0.3)), "constant"),
    ],
)
def test_what_cannot_be_recalibrated_is_refused(call, key: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        call(Gaussian(np.zeros(30), 1.0), np.linspace(-1.0, 1.0, 30))
    assert refusal.value.key == key


KNOWN = 99
NOT_INSTALLED = "other packages are compared with where they are installed: see the head of this file"


@pytest.fixture(scope="module")
def drawn():
    """Laws of calibration points and NEW others, and the values there."""
    rng = np.random.default_rng(0)
    distribution = Gaussian(
        3.0 * rng.standard_normal(KNOWN + NEW), np.exp(0.5 * rng.standard_normal(KNOWN + NEW))
    )
    return distribution, distribution.mean + distribution.std * (rng.gamma(2.0, size=KNOWN + NEW) - 1.5)


@pytest.mark.filterwarnings("default")  # of the other packages
@pytest.mark.parametrize("percent", [50, 80, 90, 95])
def test_split_conformal_intervals_are_those_of_mapie(drawn, percent):
    """Both reach to the l-th smallest absolute error of 99, where the level is ``l / 100``."""
    regression = pytest.importorskip("mapie.regression", reason=NOT_INSTALLED)
    from sklearn.base import BaseEstimator, RegressorMixin

    class Mean(RegressorMixin, BaseEstimator):
        """Predicts the column that it is given."""

        def fit(self, X, y):
            self.n_features_in_ = X.shape[1]
            return self

        def predict(self, X):
            return np.asarray(X)[:, 0]

    distribution, values = drawn
    points = distribution.mean[:, None]
    theirs = regression.SplitConformalRegressor(
        Mean().fit(points, values), confidence_level=percent / 100.0, prefit=True
    )
    theirs.conformalize(points[:KNOWN], values[:KNOWN])
    _, intervals = theirs.predict_interval(points[KNOWN:])
    one_width = Gaussian(distribution.mean, np.ones(KNOWN + NEW))
    fitted = SplitConformal(knots=KNOWN).fit(one_width[:KNOWN], values[:KNOWN])
    lower, upper = fitted(one_width[KNOWN:]).interval(percent / 100.0)
    np.testing.assert_allclose(lower, intervals[:, 0, 0], atol=1e-9)
    np.testing.assert_allclose(upper, intervals[:, 1, 0], atol=1e-9)


@pytest.mark.filterwarnings("default")
def test_predictive_systems_are_those_of_crepes(drawn):
    """``F(y) = (#{z_j < z} + tau (#{z_j = z} + 1)) / (KNOWN + 1)``: the same numbers tau give the same F."""
    crepes = pytest.importorskip("crepes", reason=NOT_INSTALLED)
    distribution, values = drawn
    system = crepes.ConformalPredictiveSystem().fit(
        values[:KNOWN] - distribution.mean[:KNOWN], sigmas=distribution.std[:KNOWN]
    )
    ours = Vovk().fit(distribution[:KNOWN], values[:KNOWN])(distribution[KNOWN:])
    theirs = system.predict_p(
        distribution.mean[KNOWN:], values[KNOWN:], sigmas=distribution.std[KNOWN:], smoothing=True, seed=0
    )
    low, high = (
        np.floor(p * (KNOWN + 1) + 1e-9) for p in (np.asarray(theirs).ravel(), ours.cdf(values[KNOWN:]))
    )
    np.testing.assert_array_equal(low, high)  # within a step of 1 / (KNOWN + 1) both add a random part
    percentiles = [10.0, 50.0, 90.0]
    found = system.predict_percentiles(
        distribution.mean[KNOWN:], sigmas=distribution.std[KNOWN:], higher_percentiles=percentiles
    )
    # the level l / (KNOWN + 1) of 99 scores is the l-th smallest
    z = np.sort((values[:KNOWN] - distribution.mean[:KNOWN]) / distribution.std[:KNOWN])[[9, 49, 89]]
    np.testing.assert_allclose(
        found, distribution.mean[KNOWN:, None] + distribution.std[KNOWN:, None] * z, rtol=1e-9
    )
    curve = Kuleshov(knots=KNOWN).fit(distribution[:KNOWN], values[:KNOWN])(distribution[KNOWN:])
    np.testing.assert_allclose(found, curve.quantile([0.1, 0.5, 0.9]).T, rtol=1e-9)
