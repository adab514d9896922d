"""The quantile network: starts as what was predicted, learns what one curve cannot, is repeatable."""

import re
import sys

import numpy as np
import pytest

from cagp_dist.calibration.recalibration.quantile_curve import Kuleshov
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.predictive import Gaussian
from cagp_dist.remedies import installation
from pipelines.experiments.quantile_network import QuantileNetwork

from ..joined import one_after_another


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="the extra [baselines] is not installed")


def _draw(seed: int, count: int):
    """Narrow distributions are twice too wide, wide ones half as wide as they should be."""
    rng = np.random.default_rng(seed)
    std = rng.choice([0.5, 3.0], size=count)
    distribution = Gaussian(280.0 + 5.0 * rng.standard_normal(count), std)
    return distribution, distribution.mean + std * np.where(std < 1.0, 0.5, 2.0) * rng.standard_normal(count)


def test_untrained_it_gives_the_laws_that_were_predicted(torch):
    distribution, values = _draw(0, 60)
    found = QuantileNetwork(epochs=0).fit(distribution, values)(distribution)
    for level in (0.01, 0.05, 0.3, 0.5, 0.9, 0.999):
        np.testing.assert_allclose(found.quantile(level), distribution.quantile(level), rtol=1e-12)


def test_it_learns_for_narrow_and_wide_laws_what_one_curve_cannot(torch):
    distribution, values = _draw(1, 800)
    fitted = QuantileNetwork(rate=0.01).fit(distribution, values)
    new, others = _draw(2, 4000)
    found, curve = fitted(new), Kuleshov().fit(distribution, values)(new)
    right = Gaussian(new.mean, new.std * np.where(new.std < 1.0, 0.5, 2.0)).crps(others).mean()
    assert right < found.crps(others).mean() < 1.03 * right < curve.crps(others).mean()
    lower, upper = found.interval(0.9)
    for kind in (new.std < 1.0, new.std > 1.0):
        # of 400 calibration values of each kind: 4 sqrt(0.09 (1 / 400 + 1 / 2000)) = 0.066
        assert abs(np.mean((lower <= others)[kind] & (others <= upper)[kind]) - 0.9) < 0.066
    assert np.all(np.diff(found.values, axis=0) > 0.0)
    # the distribution of NumPy has the loss that PyTorch has gone down
    level = fitted.levels[:, None]
    error = values - fitted(distribution).quantile(fitted.levels)
    assert np.mean(np.maximum(level * error, (level - 1.0) * error)) <= fitted.losses[-1] * 1.001
    start = values - distribution.quantile(fitted.levels)
    assert fitted.losses[0] == pytest.approx(np.mean(np.maximum(level * start, (level - 1.0) * start)))


def test_seeds_repeat_and_leave_other_random_numbers_alone(torch):
    distribution, values = _draw(3, 60)
    state = torch.random.get_rng_state()
    first, again, other = (
        QuantileNetwork(seed=seed, epochs=20, rate=0.01).fit(distribution, values) for seed in (0, 0, 1)
    )
    assert torch.equal(state, torch.random.get_rng_state())
    np.testing.assert_array_equal(first(distribution).values, again(distribution).values)
    assert np.abs(first(distribution).values - other(distribution).values).max() > 1e-6


def test_fields_with_gaps_are_their_values(torch):
    distribution, values = _draw(4, 60)
    network = QuantileNetwork(epochs=5)
    there = np.arange(60) >= 10
    gaps = np.where(there, values, np.nan)
    fields = Gaussian(
        np.stack([distribution.mean, distribution.mean]), np.stack([distribution.std, distribution.std])
    )
    both = network.fit(fields, np.stack([gaps, np.full(60, np.nan)]))(fields)
    np.testing.assert_allclose(
        both.values[:, 1], network.fit(distribution[there], values[there])(distribution).values
    )


@one_after_another
@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"levels": (0.5, 0.5)}, "levels"),
        ({"levels": (0.01, 0.5)}, "few-errors"),
        ({"width": 0}, "no-count"),
        ({"epochs": -1}, "no-count"),
        ({"rate": 0.0}, "not-positive"),
        ({"seed": -1}, "no-count"),
    ],
)
def test_wrong_settings_are_refused(settings, key):
    with pytest.raises(ArgumentError) as refusal:
        QuantileNetwork(**settings).fit(*_draw(0, 60))
    assert refusal.value.key == key


def test_without_pytorch_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigurationError, match=re.escape(f"Run: {installation('baselines')}")):
        QuantileNetwork().fit(*_draw(0, 60))
