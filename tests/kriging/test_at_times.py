"""Maps at given times from the observations of all times, against the dense posterior and separate maps."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError

KERNEL = cagp.SpaceTime(cagp.Matern32(0.05, 4.0), lengthscale_time=10.0)
HOURS = np.arange(12.0)


@pytest.fixture(scope="module")
def drawn():
    """Stations of twelve hours with noise .3, a third of whose values is not told; latitude, X, field."""
    rng = np.random.default_rng(0)
    latitude, longitude = rng.uniform(47.0, 55.0, 25), rng.uniform(6.0, 15.0, 25)
    X = np.column_stack([np.tile(cagp.unit_sphere(latitude, longitude), (12, 1)), np.repeat(HOURS, 25)])
    field = np.linalg.cholesky(KERNEL(X, X) + 1e-9 * np.eye(300)) @ rng.normal(size=300) + 15.0
    table = pd.DataFrame(
        {
            "lat": np.tile(latitude, 12),
            "lon": np.tile(longitude, 12),
            "time": np.repeat(pd.date_range("2024-07-01", periods=12, freq="h"), 25),
            "temperature (degC)": field + 0.3 * rng.normal(size=300),
        }
    )
    return table, X, field, rng.random(300) > 1.0 / 3.0


def test_maps_are_those_of_all_values_with_their_hours(drawn):
    """Given kernel, noise and mean: the dense posterior at an observed time, between times and after."""
    table, X, _, told = drawn
    at = ["2024-07-01T05:00", "2024-07-01T06:30", "2024-07-01T14:00"]
    found = cagp.krige(table[told], to=2.0, at=at, kernel=KERNEL, noise_std=0.3, mean=15.0)
    assert found["mean"].dims == ("time", "latitude", "longitude")
    np.testing.assert_array_equal(found.time, pd.to_datetime(at))
    latitude, longitude = np.meshgrid(found.latitude, found.longitude, indexing="ij")
    places = cagp.unit_sphere(latitude.ravel(), longitude.ravel())
    targets = np.column_stack([np.tile(places, (3, 1)), np.repeat([5.0, 6.5, 14.0], len(places))])
    y = table["temperature (degC)"].to_numpy()[told]
    expected = cagp.condition(cagp.Prior(KERNEL, 0.09, 15.0), X[told], y, targets, solver=cagp.Cholesky())
    np.testing.assert_allclose(found["mean"].values.ravel(), expected.mean, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(found["std"].values.ravel() ** 2, expected.variance, rtol=0.0, atol=1e-9)
    assert found.attrs["status"] == "exact"
    assert found.attrs["lengthscale_hours"] == 10.0
    by_prior = cagp.krige(table[told], to=2.0, at=at, prior=cagp.Prior(KERNEL, 0.09, 15.0))
    xr.testing.assert_equal(by_prior["mean"], found["mean"])
    aware = pd.to_datetime(at).tz_localize("UTC").tz_convert("Europe/Berlin")
    moved = cagp.krige(table[told], to=2.0, at=aware, kernel=KERNEL, noise_std=0.3, mean=15.0)
    xr.testing.assert_equal(moved["mean"], found["mean"])


def test_a_kernel_is_chosen_and_hours_inform_each_other(drawn):
    """Errors at values that were not told are smaller than those of separate maps, and as large as stated."""
    table, _, field, told = drawn
    places = table[["lat", "lon"]].drop_duplicates()
    found = cagp.krige(table[told], to=places, at="observed", progress=False)
    separate = cagp.krige(table[told], to=places, progress=False)
    errors = (found["mean"].values - field.reshape(12, 25))[~told.reshape(12, 25)]
    apart = (separate["mean"].values - field.reshape(12, 25))[~told.reshape(12, 25)]
    assert np.sqrt(np.mean(errors**2)) < 0.8 * np.sqrt(np.mean(apart**2))
    stated = found["std"].values[~told.reshape(12, 25)]
    assert 0.6 < np.sqrt(np.mean((errors / stated) ** 2)) < 1.6  # some ten independent errors
    assert 3.0 < found.attrs["lengthscale_hours"] < 40.0
    assert "SpaceTime" in found.attrs["kernel"]
    assert found.attrs["fit_status"] == "converged"


def test_noise_of_each_place_counts(drawn):
    table, X, _, _ = drawn
    noisy = table.assign(noise_std=np.where(table.lat > 51.0, 2.0, 0.3))
    noise = noisy["noise_std"].to_numpy() ** 2
    found = cagp.krige(noisy, to=2.0, at=["2024-07-01T05:00"], kernel=KERNEL, mean=15.0)
    latitude, longitude = np.meshgrid(found.latitude, found.longitude, indexing="ij")
    places = cagp.unit_sphere(latitude.ravel(), longitude.ravel())
    targets = np.column_stack([places, np.full(len(places), 5.0)])
    y = noisy["temperature (degC)"].to_numpy()
    expected = cagp.condition(cagp.Prior(KERNEL, noise, 15.0), X, y, targets, solver=cagp.Cholesky())
    np.testing.assert_allclose(found["std"].values.ravel() ** 2, expected.variance, rtol=0.0, atol=1e-9)


def test_what_maps_at_times_do_not_have_is_said(drawn):
    table, *_ = drawn
    at = ["2024-07-01T05:00"]
    for settings, said in (
        ({"at": ["noon"]}, 'expected "observed", or times such as'),
        ({"at": []}, "or times such as"),
        ({"at": at, "recalibration": "local-scale"}, "do not go together yet"),
        ({"at": at, "lengthscale_km": 300.0}, "kernel=cagp.SpaceTime"),
        ({"at": at, "kind": "cells"}, "do not go together yet"),
        ({"at": at, "kernel": cagp.Matern32(0.1)}, "expected a kernel of space and time"),
        ({"at": at, "kernel": KERNEL, "noise_std": 0.3, "solver": "rings"}, "solver of points"),
        ({"at": at, "drift": "constant"}, "do not go together yet"),
        ({"at": 12}, "or times such as"),  # hours
        ({"at": [3.0, 5.0]}, "or times such as"),
        ({"at": "01/07/2024"}, "in ISO 8601"),
        ({"at": "2500-01-01"}, "from 1678 to 2262"),
        ({"at": at, "prior": cagp.Prior(cagp.Matern32(0.1), 0.1)}, "expected a kernel of space and time"),
        ({"kernel": KERNEL}, r"krige\(..., at=times\)"),
        ({"prior": cagp.Prior(KERNEL, 0.1)}, r"krige\(..., at=times\)"),
    ):
        with pytest.raises(ArgumentError, match=said):
            cagp.krige(table, to=2.0, **settings)
    with pytest.raises(ArgumentError, match="the observations have no times"):
        cagp.krige(table[:25].drop(columns="time"), to=2.0, at=at, kernel=KERNEL, noise_std=0.3)
    with pytest.raises(ArgumentError, match="same time"):
        cagp.krige(table[:25], to=2.0, at=at, noise_std=0.3)


def test_times_are_read_in_every_form(drawn):
    table, *_ = drawn
    settings = {"to": 2.0, "kernel": KERNEL, "noise_std": 0.3, "mean": 15.0}
    expected = cagp.krige(table, at="2024-07-01T05:30", **settings)
    moment = dt.datetime(2024, 7, 1, 5, 30)
    for at in (
        [moment, moment],
        pd.Timestamp(moment),
        np.datetime64(moment, "s"),
        np.array([moment], "datetime64[ns]"),
        pd.DatetimeIndex([moment]),
        ["2024-07-01 07:30+02:00"],
    ):
        xr.testing.assert_equal(cagp.krige(table, at=at, **settings), expected)


def test_long_work_is_refused_before_it_begins_and_cut_where_memory_is_short(drawn):
    table, *_ = drawn
    at = pd.date_range("2024-07-01", periods=40, freq="10min")
    settings = {"to": 1.0, "at": at, "kernel": KERNEL, "noise_std": 0.3, "mean": 15.0}
    with pytest.raises(BudgetError, match=r"seconds|time"):
        cagp.krige(table, time_limit_seconds=1e-9, **settings)
    whole = cagp.krige(table, **settings)
    parts = cagp.krige(table, memory_limit_bytes=12 * 2**20, **settings)
    np.testing.assert_allclose(parts["mean"], whole["mean"], rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(parts["std"], whole["std"], rtol=0.0, atol=1e-9)


def test_a_gap_in_a_series_is_filled_and_far_times_are_said(drawn):
    """A field without any value is no obstacle; a month later the map is the prior, which is said."""
    rng = np.random.default_rng(3)
    field = xr.DataArray(
        15.0 + rng.normal(size=(4, 5, 6)),
        coords={
            "time": pd.date_range("2024-07-01", periods=4, freq="h"),
            "latitude": np.linspace(48.0, 52.0, 5),
            "longitude": np.linspace(6.0, 11.0, 6),
        },
        dims=("time", "latitude", "longitude"),
    )
    field[2] = np.nan
    settings = {"kernel": KERNEL, "noise_std": 0.3, "mean": 15.0}
    filled = cagp.krige(field, at="observed", **settings)
    assert filled.sizes["time"] == 4
    assert float(filled["std"].max()) < 1.5
    with pytest.warns(UserWarning, match="no observation is near any target at these times"):
        cagp.krige(field, at="2024-08-01", **settings)
    sweeps = cagp.BlockGaussSeidel(2, block_size=20)
    unfinished = cagp.krige(field, at="2024-07-01T02:00", solver=sweeps, **settings)
    assert (unfinished["std_computational"] > 0.0).all()
