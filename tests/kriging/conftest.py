"""Small fields on the globe, and observations of them in the layouts that people have."""

import numpy as np
import pytest
import xarray as xr

import cagp_dist as cagp

KERNEL = cagp.Matern32(lengthscale=0.8, variance=9.0)
LATITUDE = np.linspace(-75.0, 75.0, 11)
LONGITUDE = np.arange(0.0, 360.0, 20.0)


@pytest.fixture(scope="session")
def truth():
    """Two fields drawn from a known prior about 280, (time, lat, lon), as CF NetCDF files have them."""
    grid = cagp.LatLonGrid.from_axes(LATITUDE, LONGITUDE)
    rings = cagp.RingGram(grid, KERNEL, noise_variance=0.25)
    generator = np.random.default_rng(3)
    fields = np.stack([rings.sample(generator, noise=True) for _ in range(2)]) + 280.0
    return xr.DataArray(
        fields,
        dims=("time", "lat", "lon"),
        coords={
            "time": np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[ns]"),
            "lat": ("lat", LATITUDE, {"units": "degrees_north"}),
            "lon": ("lon", LONGITUDE, {"units": "degrees_east"}),
        },
        name="tas",
        attrs={"units": "K", "standard_name": "air_temperature", "long_name": "near-surface temperature"},
    )


@pytest.fixture(scope="session")
def prior():
    return cagp.Prior(KERNEL, noise_variance=0.25, mean=280.0)


@pytest.fixture(scope="session")
def gappy(truth):
    """The first field with gaps."""
    gaps = np.random.default_rng(5).random(truth.shape[1:]) < 0.2
    return truth[0].where(~gaps)


@pytest.fixture(scope="session")
def stations(truth):
    """Rows of a table: 60 points of the first field, longitudes -180..180."""
    chosen = np.random.default_rng(6).choice(truth[0].size, 60, replace=False)
    rows, columns = np.unravel_index(chosen, truth[0].shape)
    return {
        "id": [f"S{number}" for number in range(60)],
        "lat": LATITUDE[rows],
        "lon": (LONGITUDE[columns] + 180.0) % 360.0 - 180.0,
        "temperature [K]": truth[0].values[rows, columns],
    }
