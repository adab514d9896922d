"""Scores against another package, where it is installed.

``pip install --no-deps uncertainty-toolbox`` beside the packages of requirements-dev.lock; it is in no
lock file.
"""

import numpy as np
import pytest

from cagp_dist.calibration.verification.scores import scores_of
from cagp_dist.predictive import Gaussian

N, NEW = 99, 300
NOT_INSTALLED = "other packages are compared with where they are installed: see the head of this file"


@pytest.fixture(scope="module")
def drawn():
    """Laws of N calibration points and NEW others, and the values there."""
    rng = np.random.default_rng(0)
    law = Gaussian(3.0 * rng.standard_normal(N + NEW), np.exp(0.5 * rng.standard_normal(N + NEW)))
    return law, law.mean + law.std * (rng.gamma(2.0, size=N + NEW) - 1.5)


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
