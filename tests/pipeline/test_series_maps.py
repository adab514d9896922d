"""Maps at times from stations and grids that were observed at all times: exact, by modes."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.pipeline import maps_at_times, series_maps

PRODUCT = cagp.SpaceTime(cagp.Matern32(0.08, 9.0), cagp.Matern12(12.0))
SETTINGS = {"noise_std": 0.5, "mean": 10.0, "progress": False}
AT = ["2024-07-01T07:00", "2024-07-02T12:00", "2024-07-04"]


def complete_grid(missing=0.0):
    rng = np.random.default_rng(0)
    field = xr.DataArray(
        10.0 + rng.normal(0.0, 3.0, (16, 4, 5)),
        dims=("time", "latitude", "longitude"),
        coords={
            "time": pd.date_range("2024-07-01", periods=16, freq="6h"),
            "latitude": [46.0, 48.0, 50.0, 52.0],
            "longitude": [5.0, 7.0, 9.0, 11.0, 13.0],
        },
        name="temperature",
        attrs={"units": "degC"},
    )
    return field.where(rng.random(field.shape) >= missing)


@pytest.fixture
def small(monkeypatch):
    """Few observations count as many."""
    monkeypatch.setattr(series_maps, "MOST_SOLVED_DENSE", 0)


def test_complete_grids_are_mapped_exactly_by_modes_and_say_so(small):
    """On their own grid, elsewhere, and for a table of stations with a noise of each."""
    field = complete_grid()
    for to in (None, {"resolution": 1.5, "region": [53, 4, 45, 14]}):
        found, exact = (
            cagp.krige(field, to=to, at=AT, kernel=PRODUCT, solver=solver, **SETTINGS)
            for solver in ("auto", "cholesky")
        )
        assert found.attrs["solver"] == "modes in space and time of 20 places at 16 times"
        assert found.attrs["status"] == "exact"
        xr.testing.assert_allclose(found["mean"], exact["mean"], rtol=0.0, atol=1e-9)
        xr.testing.assert_allclose(found["std"], exact["std"], rtol=0.0, atol=1e-9)
        assert not found["std_computational"].any()
    table = field.to_dataframe().reset_index().dropna()
    table["noise_std"] = 0.3 + 0.01 * table.latitude * (table.longitude > 8.0)
    found, exact = (
        cagp.krige(table, to=3.0, at="observed", kernel=PRODUCT, mean=10.0, solver=solver, progress=False)
        for solver in ("auto", "cholesky")
    )
    assert "modes" in found.attrs["solver"]
    np.testing.assert_allclose(found["mean"], exact["mean"], rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(found["std"], exact["std"], rtol=0.0, atol=1e-9)


def test_whole_grids_are_mapped_by_the_modes_of_their_wavenumbers(small):
    """With both poles, and a noise by latitude; at points of the grid and beside it."""
    latitude, longitude = np.linspace(-90.0, 90.0, 7), np.arange(0.0, 360.0, 45.0)
    field = xr.DataArray(
        10.0 + np.random.default_rng(1).normal(0.0, 3.0, (4, 7, 8)),
        dims=("time", "latitude", "longitude"),
        coords={
            "time": pd.date_range("2024-07-01", periods=4, freq="6h"),
            "latitude": latitude,
            "longitude": longitude,
        },
        name="temperature",
        attrs={"units": "degC"},
    )
    field.values[:, [0, -1]] = field.values[:, [0, -1], :1]
    noise = 0.5 + 0.002 * np.abs(field.latitude) + 0.0 * field[0].drop_vars("time")
    own = {"value": "temperature", "noise_std": "noise"}
    for to in (None, {"resolution": 20.0, "region": [53, 4, -45, 64]}):
        for source, settings in (
            (field, SETTINGS),
            (xr.Dataset({"temperature": field, "noise": noise}), SETTINGS | own),
        ):
            found, exact = (
                cagp.krige(source, to=to, at=AT[:2], kernel=PRODUCT, solver=solver, **settings)
                for solver in ("auto", "cholesky")
            )
            assert found.attrs["solver"] == "modes in space and time of 42 places of a grid at 4 times"
            xr.testing.assert_allclose(found["mean"], exact["mean"], rtol=0.0, atol=1e-9)
            xr.testing.assert_allclose(found["std"], exact["std"], rtol=0.0, atol=1e-9)


def test_smooth_kernels_with_little_noise_are_solved_as_far_as_rounding_allows(small):
    """Means agree to some 1e-7 of their size, as factors do."""
    field, smooth = complete_grid(), cagp.SpaceTime(cagp.Matern52(0.5, 9.0), cagp.Matern52(120.0))
    found, exact = (
        cagp.krige(field, at=AT, kernel=smooth, solver=solver, **SETTINGS | {"noise_std": 1e-3})
        for solver in ("auto", "cholesky")
    )
    assert "modes" in found.attrs["solver"]
    scale = float(np.abs(exact["mean"] - 10.0).max())
    assert float(np.abs(found["mean"] - exact["mean"]).max()) < 1e-5 * scale
    np.testing.assert_allclose(found["std"], exact["std"], rtol=1e-5)


def test_an_observation_exactly_at_the_lead_counts_whatever_the_minute():
    hours, lead = np.arange(0, 2000) / 60.0, 24.0
    observed = SimpleNamespace(X=np.stack([hours], axis=1), there=np.arange(hours.size))
    for number in range(1440, 2000, 7):
        targets = SimpleNamespace(X=np.array([[number / 60.0]]))
        ((_, seen),) = maps_at_times._groups(observed, targets, lead, None)
        assert seen[-1] == number - 1440


@pytest.mark.parametrize(
    "changed",
    [
        {"kernel": cagp.SpaceTime(cagp.Matern32(0.08, 9.0), lengthscale_time=12.0)},
        {"causal": True},
        {"kind": "cells", "to": 3.0},
        {"field": "a gap"},
        {"field": "noise that changes with time"},
    ],
)
def test_what_is_no_series_is_left_to_other_solvers(small, changed):
    settings = {"kernel": PRODUCT, "at": AT, **SETTINGS} | changed
    source = complete_grid()
    if (which := settings.pop("field", None)) == "a gap":
        source[3, 2, 1] = np.nan
    elif which is not None:
        source = source.to_dataframe().reset_index().dropna()
        source["noise_std"] = np.linspace(0.3, 0.6, len(source))
        settings.update(noise_std=None, to=3.0)
    assert "modes" not in cagp.krige(source, **settings).attrs["solver"]
