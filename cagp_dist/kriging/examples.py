"""Small files to try kriging with, made from the built-in field: stations, places, a gappy grid, a month."""

from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import xarray as xr

from cagp_dist.era5.sample import open_sample
from cagp_dist.gram import RingGram
from cagp_dist.kernels import Matern32
from cagp_dist.latlon import LatLonWindow

STATIONS = 250
NOISE_STD = (0.3, 1.0)
"""Kelvin; what a station differs from the field, least and most."""

CLOUDY = 0.35
"""Part of the grid that has no values."""

DAYS = 30
PLACES = {"Lisbon": (38.7, -9.1), "Munich": (48.1, 11.6), "Kiruna": (67.9, 20.2), "Athens": (38.0, 23.7)}


def write_examples(folder: str | PathLike[str]) -> None:
    """Write ``stations.csv``, ``places.csv``, ``era5.nc`` and ``month.nc`` to a folder.

    Parameters
    ----------
    folder : path
        It must exist. 0.3 MB are written.

    Notes
    -----
    Stations are points of the built-in field in Europe with an error of their own, in degrees Celsius; the
    grid is the field at 1.5 degrees where clouds leave a third of it out; the month is the same part of the
    world with a random field added for each day.
    """
    where, generator = Path(folder), np.random.default_rng(2017)
    with TemporaryDirectory() as scratch:
        field = open_sample(area=(70.0, -15.0, 33.0, 36.0), scratch=Path(scratch))["t2m"]
    field = field.assign_coords(
        longitude=("longitude", (field.longitude.values + 180.0) % 360.0 - 180.0, field.longitude.attrs)
    ).sortby("longitude")
    _stations(field, generator).to_csv(where / "stations.csv", index=False)
    places = [(name, *position) for name, position in PLACES.items()]
    pd.DataFrame(places, columns=["name", "latitude", "longitude"]).to_csv(where / "places.csv", index=False)
    coarse = field.isel(latitude=slice(None, None, 2), longitude=slice(None, None, 2))
    clouds = _weather(coarse.isel(time=0), generator, days=1)[0]
    cloudy = coarse.where(clouds < np.quantile(clouds, 1.0 - CLOUDY))
    cloudy.to_netcdf(where / "era5.nc", engine="h5netcdf")
    _month(coarse, generator).to_netcdf(where / "month.nc", engine="h5netcdf")


def _stations(field: xr.DataArray, generator: np.random.Generator) -> pd.DataFrame:
    chosen = generator.choice(field[0].size, STATIONS, replace=False)
    rows, columns = np.unravel_index(chosen, field[0].shape)
    noise = generator.uniform(*NOISE_STD, STATIONS)
    values = field[0].values[rows, columns] - 273.15 + noise * generator.standard_normal(STATIONS)
    values[generator.choice(STATIONS, 5, replace=False)] = np.nan
    return pd.DataFrame(
        {
            "station": [f"S{number:03}" for number in range(STATIONS)],
            "latitude": field.latitude.values[rows],
            "longitude": field.longitude.values[columns],
            "temperature (degC)": values.round(2),
            "noise_std": noise.round(2),
        }
    )


def _month(field: xr.DataArray, generator: np.random.Generator) -> xr.DataArray:
    days = field.time.values[0] + np.arange(DAYS) * np.timedelta64(1, "D")
    weather = 4.0 * _weather(field.isel(time=0), generator, days=DAYS)
    month = xr.DataArray(
        field.values + weather,
        dims=field.dims,
        coords={**field.coords, "time": ("time", days, field.time.attrs)},
        name=field.name,
        attrs=field.attrs,
    )
    return month.where(generator.random(month.shape[1:]) < 0.25)  # some places, the same on all days


def _weather(field: xr.DataArray, generator: np.random.Generator, *, days: int) -> np.ndarray:
    """Random fields of variance one on the grid of a field, shape (days, P, Q)."""
    window = LatLonWindow.from_axes(field.latitude.values, field.longitude.values)
    rings = RingGram(window.grid, Matern32(lengthscale=0.15), noise_variance=1e-3)
    return np.stack([window.cut(rings.sample(generator, noise=False)) for _ in range(days)])
