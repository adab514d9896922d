"""Maps at times from stations and grids that were observed at nearly all times: exact, by modes."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.mapping import series_maps

PRODUCT = cagp.SpaceTime(cagp.Matern32(0.08, 9.0), cagp.Matern12(12.0))
SETTINGS = {"noise_std": 0.5, "mean": 10.0, "progress": False}
AT = ["2024-07-01T07:00", "2024-07-02T12:00", "2024-07-04"]


def grid_with_gaps(missing=0.02):
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
    monkeypatch.setattr(series_maps, "MOST_DENSE", 0)


def test_gappy_grids_are_mapped_exactly_by_modes_and_say_so(small):
    """On their own grid, elsewhere, and for a table of stations with a noise of each."""
    field = grid_with_gaps()
    for to in (None, {"resolution": 1.5, "region": [53, 4, 45, 14]}):
        found, exact = (
            cagp.krige(field, to=to, at=AT, kernel=PRODUCT, solver=solver, **SETTINGS)
            for solver in ("auto", "cholesky")
        )
        missing = int(field.isnull().sum())
        assert (
            found.attrs["solver"]
            == f"modes in space and time of 20 places at 16 times, {missing} values missing"
        )
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


@pytest.mark.parametrize(
    "changed",
    [
        {"kernel": cagp.SpaceTime(cagp.Matern32(0.08, 9.0), lengthscale_time=12.0)},
        {"causal": True},
        {"mean": "constant", "drift": "constant"},
        {"kind": "cells", "to": 3.0},
        {"field": "many gaps"},
        {"field": "noise that changes with time"},
    ],
)
def test_what_is_no_series_is_left_to_other_solvers(small, monkeypatch, changed):
    settings = {"kernel": PRODUCT, "at": AT, **SETTINGS} | changed
    source = grid_with_gaps()
    if (which := settings.pop("field", None)) == "many gaps":
        monkeypatch.setattr(series_maps, "FEW_IN_SERIES", 2)
    elif which is not None:
        source = source.to_dataframe().reset_index().dropna()
        source["noise_std"] = np.linspace(0.3, 0.6, len(source))
        settings.update(noise_std=None, to=3.0)
    assert "modes" not in cagp.krige(source, **settings).attrs["solver"]
