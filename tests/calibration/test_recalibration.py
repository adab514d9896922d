"""Recalibration: what a finite number of calibration points guarantees, exactly, and what is refused."""

import numpy as np
import pytest

from cagp_dist.calibration.recalibration.methods import RECALIBRATIONS
from cagp_dist.calibration.recalibration.order_statistics import between, fewest, q_lin
from cagp_dist.calibration.recalibration.quantile_curve import Kuleshov
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive import Gaussian

from ..joined import one_after_another

NORMAL = Gaussian(np.zeros(30), 1.0)
VALUES = np.linspace(-1.0, 1.0, 30)


def test_methods_that_are_registered_give_laws_with_a_density() -> None:
    """Of one field and of several, with gaps; gaps are as if they had not been there."""
    rng = np.random.default_rng(1)
    distribution = Gaussian(rng.standard_normal((3, 40)), 1.0)
    values = distribution.mean + 2.0 * rng.standard_normal((3, 40))
    values[0, :5] = np.nan
    X = rng.standard_normal((40, 3))
    for name, method in RECALIBRATIONS.items():
        if name in ("local-scale", "none"):  # the one is tested by itself, the other learns nothing
            continue
        recalibrated = method().fit(distribution, values, X)(distribution, X)
        assert recalibrated.shape == distribution.shape
        assert bool(np.isfinite(recalibrated.log_density(np.nan_to_num(values))).all())
        lower, upper = recalibrated.interval(0.9)
        assert 0.8 < np.mean(((lower <= values) & (values <= upper))[~np.isnan(values)]) < 1.0
        flat = ~np.isnan(values.ravel())
        alone = method().fit(Gaussian(distribution.mean.ravel()[flat], 1.0), values.ravel()[flat], None)(
            distribution
        )
        np.testing.assert_array_equal(alone.quantile(0.3), recalibrated.quantile(0.3))


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
    with pytest.raises(ArgumentError) as refusal:
        q_lin(level, np.arange(needed - 1.0))
    assert refusal.value.key == "few-errors"


@one_after_another
@pytest.mark.parametrize(
    ("call", "key"),
    [
        (
            lambda: Kuleshov().fit(NORMAL[:19], VALUES[:19]),
            "few-errors",
        ),
        (lambda: Kuleshov().fit(NORMAL, np.full(30, np.nan)), "few-errors"),
        (
            lambda: Kuleshov().fit(NORMAL, np.full(30, 0.3)),
            "constant",
        ),
        (lambda: Kuleshov().fit(NORMAL, np.zeros(30)), "constant"),
        (
            lambda: Kuleshov().fit(NORMAL, VALUES[:5]),
            "shapes",
        ),
        (lambda: Kuleshov().fit(NORMAL, np.append(VALUES[1:], np.inf)), "not-finite"),
        (lambda: q_lin([0.5, 1.0], VALUES), "levels"),
    ],
)
def test_what_cannot_be_recalibrated_is_refused(call, key: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        call()
    assert refusal.value.key == key


@pytest.mark.parametrize("method", sorted(set(RECALIBRATIONS) - {"none"}))
@pytest.mark.parametrize("offset", [0.0, 0.3])
def test_errors_that_are_rounding_are_refused(method: str, offset: float) -> None:
    """As of a constant field, whatever standard deviations were said; 1e-4 K is an error."""
    rng = np.random.default_rng(0)
    X, std = rng.uniform(-1.0, 1.0, (600, 3)), rng.uniform(1.0, 2.0, 600)
    X /= np.linalg.norm(X, axis=1)[:, None]
    noise = rng.standard_normal(600)
    values = np.full(600, 280.0)
    with pytest.raises(ArgumentError) as refusal:
        RECALIBRATIONS[method]().fit(Gaussian(values - offset + 1e-12 * noise, std), values, X)
    assert refusal.value.key == "constant"
    RECALIBRATIONS[method]().fit(Gaussian(values - offset + 1e-4 * noise, std), values, X)
