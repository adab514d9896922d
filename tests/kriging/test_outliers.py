"""`outliers="robust"`: values that look wrong count less, where the likelihood says so."""

from typing import Any

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.pipeline import Observations, robust_fit
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.runtime import SerialExecutor

SETTINGS: dict[str, Any] = {"kernel": "matern32", "progress": False, "value": "t"}
WRONG = [7, 30, 61]


def table(n: int = 90, *, wrong: bool = True, seed: int = 0) -> dict[str, Array]:
    """Draw a field of standard deviation 2, with noise of 0.5; some values are off by 12."""
    generator = np.random.default_rng(seed)
    north, east = generator.uniform(45.0, 52.0, n), generator.uniform(4.0, 14.0, n)
    X = cagp.unit_sphere(north, east)
    field = 10.0 + np.linalg.cholesky(cagp.Matern32(0.05, 4.0)(X, X)) @ generator.standard_normal(n)
    values = field + 0.5 * generator.standard_normal(n)
    if wrong:
        values[WRONG] += [12.0, -12.0, 12.0]
    return {"lat": north, "lon": east, "t": values, "field": field}


def krige(rows: dict[str, Array], **settings: Any) -> xr.Dataset:
    """Map at the places themselves."""
    given = {name: rows[name] for name in ("lat", "lon", "t")}
    places = {name: rows[name] for name in ("lat", "lon")}
    return cagp.krige(given, to=places, **{**SETTINGS, **settings})


@pytest.mark.parametrize(
    "hyperparameters", [pytest.param("plug-in", marks=pytest.mark.exhaustive), "integrate"]
)
def test_values_that_are_wrong_hardly_count(hyperparameters: str) -> None:
    rows = table()
    found = krige(rows, outliers="robust", hyperparameters=hyperparameters)
    probability = found.outlier_probability
    assert np.flatnonzero(probability > 0.5).tolist() == WRONG
    assert 0.3 < found.attrs["noise_std"] < 0.8  # of a value that is right: it was 0.5
    np.testing.assert_array_equal(probability.observed_latitude, rows["lat"])
    assert found.attrs["outliers"] == "robust"
    assert found.attrs["outlier_gain"] > 20.0
    assert 8.0 < found.attrs["outlier_std"] < 18.0
    right = np.delete(np.arange(90), WRONG)
    without = krige({name: column[right] for name, column in rows.items()}, hyperparameters=hyperparameters)
    # as where they are left out, but for what a probability below 1 leaves, and another fit
    differ = (found["mean"][right].values - without["mean"].values) / without["std"].values
    assert np.sqrt(np.mean(differ**2)) < 0.1
    away = np.abs(found["mean"].values - rows["field"]) / found["std"].values
    assert np.mean(away < 1.645) > 0.9 - 3.0 * np.sqrt(0.09 / 90)


def test_keep_says_what_would_help_and_keeps_all() -> None:
    found = krige(table())
    assert found.attrs["suspicious_values"].startswith("A few of 90 values look wrong")
    assert 'outliers="robust"' in found.attrs["suspicious_values"]
    assert "outlier_probability" not in found
    assert "suspicious_values" not in krige(table(wrong=False)).attrs


def test_a_part_of_values_in_space_and_time_keeps_its_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of stations with noise of 0.1, and some whose noise of 10 is known."""
    rng, kernel = np.random.default_rng(0), cagp.SpaceTime(cagp.Matern32(0.05, 4.0), lengthscale_time=10.0)
    north, east = rng.uniform(45.0, 52.0, 30), rng.uniform(4.0, 14.0, 30)
    noise = np.where(rng.random(30) < 0.2, 10.0, 0.1)
    X = np.column_stack([np.tile(cagp.unit_sphere(north, east), (12, 1)), np.repeat(np.arange(12.0), 30)])
    field = np.linalg.cholesky(kernel(X, X) + 1e-9 * np.eye(360)) @ rng.standard_normal(360)
    values = field.reshape(12, 30) + noise * rng.standard_normal((12, 30))
    values[rng.random(values.shape) < 0.3] = np.nan
    times = np.datetime64("2024-07-01", "ns") + np.arange(12) * np.timedelta64(1, "h")
    each = Observations.from_points(north, east, values, times=times, noise_variance=noise**2)
    observed = each.in_space_and_time(times)
    assert observed.noise_variance is not None
    model = FittedModel(kernel, cagp.MEANS["constant"], observed.noise_variance)
    monkeypatch.setattr(robust_fit, "MOST_LOOKED_AT", 100)
    assert robust_fit.looks_wrong(observed, model, SerialExecutor()) == ""


def test_clean_values_are_mapped_as_ever() -> None:
    rows = table(wrong=False)
    robust, kept = krige(rows, outliers="robust"), krige(rows)
    np.testing.assert_array_equal(robust["mean"], kept["mean"])
    np.testing.assert_array_equal(robust["std"], kept["std"])
    assert robust.attrs["outliers"] == "robust: the likelihood found none"
    assert robust.attrs["outlier_share"] == 0.0


def test_folds_are_scored_with_the_usual_noise() -> None:
    rows = table()
    given = {name: rows[name] for name in ("lat", "lon", "t")}
    settings = {**SETTINGS, "hyperparameters": "plug-in"}
    model = cagp.Kriging(outliers="robust", **settings).fit(given)
    folds = model.cross_validate(None)
    noise = float(model._learned.nugget)
    spread = folds.predictive_std.values**2 - folds["std"].values ** 2
    np.testing.assert_allclose(spread, noise, rtol=1e-6)
    assert np.abs(folds.pit.values[WRONG] - 0.5).min() > 0.49


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"recalibration": "local-scale"}, "outliers-with-others"),
        ({"prior": cagp.Prior(cagp.Matern32(0.05, 4.0), 0.25), "kernel": "auto"}, "outliers-with-others"),
        ({"outliers": "drop"}, "unknown-word"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ArgumentError) as error:
        krige(table(), **{"outliers": "robust", **settings})
    assert error.value.key == key


def test_fields_that_are_maps_of_their_own_are_refused() -> None:
    rows = table(40, wrong=False)
    times = np.repeat(np.array(["2024-07-01", "2024-07-02"], dtype="datetime64[s]"), 40)
    given = {name: np.tile(rows[name], 2) for name in ("lat", "lon", "t")} | {"time": times}
    with pytest.raises(ArgumentError) as error:
        cagp.krige(given, to=1.0, outliers="robust", **SETTINGS)
    assert error.value.key == "outliers-of-fields"
