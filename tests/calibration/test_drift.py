"""The drift alarm: its formula, its false alarms on simulated histories, and the drifts it finds."""

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import t

from cagp_dist.calibration.verification.calibration_drift import BATCHES, FALSE_ALARMS, measure_drift
from cagp_dist.calibration.verification.verdict import compact_cells
from cagp_dist.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("one_blas_thread")

POINTS = 200


@pytest.fixture(scope="module")
def places():
    """Cells of random places, and factors of covariances of lengthscale 0.2 and 0.5 on the unit sphere."""
    X = np.random.default_rng(1).normal(size=(POINTS, 3))
    X /= np.linalg.norm(X, axis=1)[:, None]
    distance = np.linalg.norm(X[:, None] - X[None], axis=2)
    factors = [np.linalg.cholesky(np.exp(-distance / scale) + 1e-9 * np.eye(POINTS)) for scale in (0.2, 0.5)]
    return compact_cells(X), *factors


@pytest.mark.parametrize(
    "shared",
    [
        lambda rng: 0.3 * rng.normal(size=POINTS) + 0.3 * rng.normal(size=(14, 1)),
        lambda rng: rng.normal(size=POINTS),
        lambda rng: 2.0 * rng.normal(size=(14, 1)),
        lambda rng: np.zeros(POINTS),
    ],
    ids=["places and days", "places", "days", "nothing"],
)
def test_the_band_is_that_of_the_formula(shared, places):
    rng = np.random.default_rng(2)
    count, cells = 14, places[0]
    z = rng.normal(size=(count, POINTS)) + shared(rng)
    kept = rng.random(z.shape) < 0.8
    batch = np.arange(count) * BATCHES // count
    times, where = np.nonzero(kept)
    found = measure_drift(ndtr(z[kept]), times=times, cells=cells[where])
    square = z[kept] ** 2
    deviation = (square - square.mean()) / square.size
    # every pair of values that agree, once: the double sum that sums over clusters abbreviate
    same_cell = cells[where][:, None] == cells[where][None]
    same_batch = batch[times][:, None] == batch[times][None]
    products = deviation[:, None] * deviation[None]
    number = np.unique(cells).size
    of_cells = number / (number - 1) * products[same_cell].sum()
    of_batches = BATCHES / (BATCHES - 1) * products[same_batch].sum()
    both = products[same_cell & same_batch].sum()
    variance = max(of_cells + of_batches - both, of_cells, of_batches, 2.0 / square.size)
    margin = t.ppf(1.0 - 0.5 * FALSE_ALARMS, BATCHES - 1) * np.sqrt(variance)
    assert found.values == kept.sum()
    np.testing.assert_allclose(found.ratio**2, square.mean(), rtol=1e-10)
    np.testing.assert_allclose(
        [found.low**2, found.high**2], [max(0.0, 1.0 - margin), 1.0 + margin], rtol=1e-9
    )


def along_days(count, agreement, rng, shape=()):
    """First-order autoregression of variance 1."""
    found = np.empty((count, *shape))
    found[0] = rng.normal(size=shape)
    for day in range(1, count):
        found[day] = agreement * found[day - 1] + np.sqrt(1.0 - agreement**2) * rng.normal(size=shape)
    return found


def independent(count, near, far, rng):
    return rng.normal(size=(count, POINTS))


def neighbours(count, near, far, rng):
    return rng.normal(size=(count, POINTS)) @ far.T


def places_that_err_every_day(count, near, far, rng):
    return np.sqrt(0.5) * (near @ rng.normal(size=POINTS) + rng.normal(size=(count, POINTS)))


def fields_that_last(count, near, far, rng):
    return along_days(count, 0.8, rng, (POINTS,)) @ near.T


def weather_that_lasts(count, near, far, rng):
    day = along_days(count, 0.8, rng)[:, None]
    return np.sqrt(0.1) * day + np.sqrt(0.9) * rng.normal(size=(count, POINTS))


def size_of_the_day(count, near, far, rng):
    size = np.exp(0.2 * along_days(count, 0.5, rng) - 0.2**2)
    return size[:, None] * (rng.normal(size=(count, POINTS)) @ near.T)


def size_of_the_place(count, near, far, rng):
    return np.exp(0.4 * (near @ rng.normal(size=POINTS)) - 0.4**2) * (
        rng.normal(size=(count, POINTS)) @ near.T
    )


GENERATORS = {
    independent: 0.99,
    neighbours: 0.9,
    places_that_err_every_day: 0.9,
    fields_that_last: 0.9,
    weather_that_lasts: 0.9,
    size_of_the_day: 0.2,
    size_of_the_place: 0.2,
}
"""Histories in which errors are as large as stated, and the share in which 1.25 times that is found."""


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda generator: generator.__name__)
@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.exhaustive)])
def test_false_alarms_are_as_rare_as_stated_and_drifts_are_found(generator, count, places):
    """One in a hundred, where simulation had up to 2.2 %: at most 2.5 %, and four standard errors of that."""
    cells, near, far = places
    rng, days = np.random.default_rng(3), 30
    times, each = np.repeat(np.arange(days), POINTS), np.tile(cells, days)
    false = found = narrower = 0
    for _ in range(count):
        z = generator(days, near, far, rng).ravel()
        false += measure_drift(ndtr(z), times=times, cells=each).alarm
        wider = measure_drift(ndtr(1.25 * z), times=times, cells=each)
        found += wider.alarm
        narrower += measure_drift(ndtr(z / 1.5), times=times, cells=each).alarm
    assert false / count <= 0.025 + 4.0 * np.sqrt(0.025 * 0.975 / count)
    assert found / count >= GENERATORS[generator]
    assert narrower / count >= GENERATORS[generator]


def test_too_few_times_and_values_that_are_no_pit_are_refused():
    with pytest.raises(ArgumentError) as refusal:
        measure_drift(np.full(5, 0.5), times=np.arange(5), cells=np.zeros(5, int))
    assert refusal.value.key == "few-times"
    with pytest.raises(ArgumentError) as refusal:
        measure_drift(np.array([*[0.5] * 5, np.nan]), times=np.arange(6), cells=np.zeros(6, int))
    assert refusal.value.key == "pit-range"


def test_values_that_no_law_expected_are_an_alarm_and_not_infinite():
    pit = np.where(np.arange(1200) % 2, 1.0, 0.0)
    found = measure_drift(pit, times=np.arange(1200) // 100, cells=np.arange(1200) % 20)
    assert found.alarm
    assert np.isfinite(found.ratio)
