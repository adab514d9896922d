"""Error bars in space and time, on fields drawn from the prior: of maps between times, and of forecasts."""

import numpy as np
import pandas as pd
import pytest

import cagp_dist as cagp
from cagp_dist.space_time import SpaceTimeOf

PRODUCT = cagp.SpaceTime(cagp.Matern32(0.08, 2.0), cagp.Matern12(15.0))
METRIC = cagp.SpaceTime(cagp.Matern32(0.08, 2.0), lengthscale_time=20.0)
DAY = cagp.SpaceTime(cagp.Matern32(0.5, 3.0), cagp.Periodic(cagp.Matern52(8.0), period=24.0))
KERNELS = {
    "product": PRODUCT,
    "metric": METRIC,
    "sum": METRIC + cagp.SpaceTime(cagp.Matern32(0.4, 3.0), cagp.Matern52(90.0)),
    "cycle and weather": DAY + PRODUCT,
    "gneiting": cagp.SpaceTime(cagp.Matern32(0.08, 2.0), cagp.Gneiting(15.0)),
}
NOISE, START = 0.1, pd.Timestamp("2024-07-01")


def drawn(kernel, places, hours, fields, seed):
    """Places of Europe, latitude and longitude (p,), and fields (fields, hours, p) at them."""
    rng = np.random.default_rng(seed)
    latitude, longitude = rng.uniform(47.0, 55.0, places), rng.uniform(5.0, 16.0, places)
    X = points(latitude, longitude, hours)
    root = np.linalg.cholesky(kernel(X, X) + 1e-9 * np.eye(len(X)))
    field = (root @ rng.standard_normal((len(X), fields))).T
    return latitude, longitude, field.reshape(fields, len(hours), places), rng


def points(latitude, longitude, hours):
    vectors = cagp.unit_sphere(latitude, longitude)
    return np.column_stack([np.tile(vectors, (len(hours), 1)), np.repeat(hours, len(latitude))])


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_errors_between_and_after_the_times_have_the_stated_law(kernel):
    """The sum of squares of 400 x 30 errors, made independent, over their number: 1 +- sqrt(2 / 12,000)."""
    hours = np.arange(0.0, 40.0, 2.0)
    latitude, longitude, fields, rng = drawn(kernel, 20, hours, 400, seed=1)
    X, values = points(latitude, longitude, hours), fields.reshape(400, -1).T
    target = rng.permutation(len(X))[:30]
    target = np.append(target[X[target, 3] < 30.0], np.flatnonzero(X[:, 3] > 34.0))[:30]
    known = np.setdiff1d(np.flatnonzero(X[:, 3] < 30.0), target)
    y = values[known] + np.sqrt(NOISE) * rng.standard_normal((known.size, 400))

    def mean_square(prior):
        found = cagp.condition(prior, X[known], y, X[target], solver=cagp.Neighbours(8), covariance="full")
        errors = found.mean - values[target]
        return np.mean(errors * np.linalg.solve(found.covariance, errors))

    tolerance = 4.0 * np.sqrt(2.0 / (400 * target.size))
    assert abs(mean_square(cagp.Prior(kernel, NOISE)) - 1.0) < tolerance
    assert abs(mean_square(cagp.Prior(1.2 * kernel, NOISE)) - 1.0) > tolerance  # it would be seen


def coverage_by_lead(distribution, fields, *, history, seed, **settings):
    """Part (fields, 24) of 12 places that was in the 90 % interval, 1 to 24 hours after the last one."""
    hours = np.arange(history + 24.0)
    latitude, longitude, truth, rng = drawn(distribution, 24, hours, fields, seed)
    times = START + pd.to_timedelta(hours[:history], unit="h")
    later = START + pd.to_timedelta(hours[history:], unit="h")
    places = pd.DataFrame({"lat": latitude, "lon": longitude})[12:]
    table = pd.DataFrame({"lat": np.tile(latitude[:18], history), "lon": np.tile(longitude[:18], history)})
    table["time"] = np.repeat(times, 18)
    inside = np.empty((fields, 24))
    for field, whole in enumerate(truth):
        noise = np.sqrt(NOISE) * rng.standard_normal((history, 18))
        rows = table.assign(value=(whole[:history, :18] + noise).ravel())
        found = cagp.krige(
            rows, to=places, at=later, causal=True, mean=0.0, progress=False, value="value", **settings
        )
        error = np.abs(found["mean"].values - whole[history:, 12:])
        inside[field] = (error < 1.6448536 * found["std"].values).mean(axis=1)
        assert (found.evidence > 0).all()
    return inside


def within(inside, level=0.9):
    """Whether means over fields are within four standard errors of the level, fields being independent."""
    error = inside.std(axis=0, ddof=1) / np.sqrt(len(inside))
    return np.abs(inside.mean(axis=0) - level) < 4.0 * error


@pytest.mark.exhaustive
def test_forecasts_hold_their_intervals():
    """Half of the places were observed; 25 fields, all hours together."""
    known = {"kernel": KERNELS["sum"], "noise_std": NOISE**0.5}
    inside = coverage_by_lead(KERNELS["sum"], 25, history=12, seed=3, **known)
    assert within(inside.mean(axis=1))
    assert inside.mean(axis=1).std() / 5.0 < 0.03  # 25 fields say that much


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["product", "metric", "sum"])
def test_forecasts_hold_their_intervals_at_every_lead(name):
    """300 fields, each of 24 hours by itself."""
    known = {"kernel": KERNELS[name], "noise_std": NOISE**0.5}
    assert within(coverage_by_lead(KERNELS[name], 300, history=24, seed=4, **known)).all()


@pytest.mark.exhaustive
def test_forecasts_with_numbers_that_were_fitted_hold_their_intervals():
    """28 hours of 18 stations say enough of the numbers of one kernel; 40 fields tell 0.9 from 0.83."""
    family = SpaceTimeOf(cagp.Matern32, cagp.Matern12)
    inside = coverage_by_lead(PRODUCT, 40, history=28, seed=5, kernel=family).mean(axis=1)
    assert within(inside)
    assert inside.std() / 40**0.5 < 0.02
