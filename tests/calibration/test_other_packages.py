"""Conformal intervals, predictive systems and scores against other packages, where they are installed.

``pip install --no-deps MAPIE crepes uncertainty-toolbox`` beside the packages of requirements-dev.lock; they
are in no lock file.
"""

import numpy as np
import pytest

from cagp_dist.calibration.conformal import Conformal, SplitConformal
from cagp_dist.calibration.scores import scores_of
from cagp_dist.predictive import Gaussian

N, NEW = 99, 300
NOT_INSTALLED = "other packages are compared with where they are installed: see the head of this file"


@pytest.fixture(scope="module")
def drawn():
    """Laws of N calibration points and NEW others, and the values there."""
    rng = np.random.default_rng(0)
    law = Gaussian(3.0 * rng.standard_normal(N + NEW), np.exp(0.5 * rng.standard_normal(N + NEW)))
    return law, law.mean + law.std * (rng.gamma(2.0, size=N + NEW) - 1.5)


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

    law, values = drawn
    points = law.mean[:, None]
    theirs = regression.SplitConformalRegressor(
        Mean().fit(points, values), confidence_level=percent / 100.0, prefit=True
    )
    theirs.conformalize(points[:N], values[:N])
    _, intervals = theirs.predict_interval(points[N:])
    one_width = Gaussian(law.mean, np.ones(N + NEW))
    fitted = SplitConformal(knots=N).fit(one_width[:N], values[:N])
    lower, upper = fitted(one_width[N:]).interval(percent / 100.0)
    np.testing.assert_allclose(lower, intervals[:, 0, 0], atol=1e-9)
    np.testing.assert_allclose(upper, intervals[:, 1, 0], atol=1e-9)


@pytest.mark.filterwarnings("default")
def test_predictive_systems_are_those_of_crepes(drawn):
    """``F(y) = (#{z_j < z} + tau (#{z_j = z} + 1)) / (N + 1)``: the same numbers tau give the same F."""
    crepes = pytest.importorskip("crepes", reason=NOT_INSTALLED)
    law, values = drawn
    system = crepes.ConformalPredictiveSystem().fit(values[:N] - law.mean[:N], sigmas=law.std[:N])
    ours = Conformal(randomised=True).fit(law[:N], values[:N])(law[N:])
    theirs = system.predict_p(law.mean[N:], values[N:], sigmas=law.std[N:], smoothing=True, seed=0)
    low, high = (np.floor(p * (N + 1) + 1e-9) for p in (np.asarray(theirs).ravel(), ours.cdf(values[N:])))
    np.testing.assert_array_equal(low, high)  # within a step of 1 / (N + 1) both add a random part
    percentiles = [10.0, 50.0, 90.0]
    found = system.predict_percentiles(law.mean[N:], sigmas=law.std[N:], higher_percentiles=percentiles)
    # the level l / (N + 1) of 99 scores is the l-th smallest
    z = np.sort((values[:N] - law.mean[:N]) / law.std[:N])[[9, 49, 89]]
    np.testing.assert_allclose(found, law.mean[N:, None] + law.std[N:, None] * z, rtol=1e-9)
    curve = Conformal(knots=N).fit(law[:N], values[:N])(law[N:])
    np.testing.assert_allclose(found, curve.quantile([0.1, 0.5, 0.9]).T, rtol=1e-9)


@pytest.mark.filterwarnings("default")
def test_scores_are_those_of_uncertainty_toolbox(drawn):
    scoring = pytest.importorskip("uncertainty_toolbox.metrics_scoring_rule", reason=NOT_INSTALLED)
    law, values = drawn
    found = scores_of(law, values, levels=[0.9])
    given = law.mean, law.std, values
    assert found.crps == pytest.approx(scoring.crps_gaussian(*given), rel=1e-9)
    assert found.nll == pytest.approx(scoring.nll_gaussian(*given), rel=1e-9)
    levels = np.linspace(0.01, 0.99, 99)
    ours = scores_of(law, values, levels=levels.tolist()).interval_score.mean()
    assert ours == pytest.approx(scoring.interval_score(*given, resolution=99), rel=1e-9)
