"""Small files to try kriging with, made from the built-in field: tables, a month, a gappy grid, a job."""

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import xarray as xr

from cagp_dist.errors import ArgumentError, ConfigurationError, StoreError
from cagp_dist.fields.sample import open_sample
from cagp_dist.fields.selection import Selection
from cagp_dist.geometry import unit_sphere
from cagp_dist.gram import RingGram
from cagp_dist.kernels import Matern32
from cagp_dist.latlon import LatLonWindow
from cagp_dist.space_time import SpaceTime
from cagp_dist.text import alternatives

STATIONS = 250
NOISE_STD = (0.3, 1.0)  # Kelvin; what a station differs from the field, least and most
CLOUDY = 0.35  # Part of the grid that has no values

DAYS = 30
PLACES = {"Lisbon": (38.7, -9.1), "Munich": (48.1, 11.6), "Kiruna": (67.9, 20.2), "Athens": (38.0, 23.7)}

FILES = ("stations.csv", "places.csv", "hours.csv", "era5.nc", "month.nc")
HOURS, HOURLY_STATIONS = 48, 40
JOB = "job.toml"
JOB_FILES = (JOB, "stations.csv", "places.csv")  # The job on stations, and the tables that it names

STATIONS_JOB = """\
[observations]
source = {stations}
variable = "temperature"          # the column of the values; its unit is in brackets, temperature (degC)
noise_std = "noise_std"           # a column, or one number: standard deviation of the error of a measurement
times = ["2017-04-27T12:00"]      # the table has no column of times

[design]
train = {{ kind = "all" }}
test = {{ kind = "folds", count = 10, blocks_degrees = 5.0 }}
map = {{ kind = "grid", resolution_degrees = 1.0 }}
targets = {places}

[prior]                           # its numbers are fitted first
kernel = "matern32"
mean = "constant"

[solver]
name = "auto"                     # exact up to 5,000 stations, by neighbours beyond

[output]
root = {root}
"""


def write_examples(
    folder: str | PathLike[str], names: Sequence[str] = FILES, *, replace: bool = True
) -> list[Path]:
    """Write example files: by default ``stations.csv``, ``places.csv``, ``era5.nc`` and ``month.nc``."""
    where, known = Path(folder), (*FILES, JOB)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ArgumentError(
            f"there is no example file {unknown[0]!r}; expected {alternatives(known)}.", key="example-unknown"
        )
    paths = [where / name for name in names]
    for path in paths:
        if path.exists() and not replace:
            raise ConfigurationError(
                f"{path} exists; it is not replaced. Name another folder.", key="file-exists"
            )
    generator, field = np.random.default_rng(2017), _europe()
    stations = _stations(field, generator)  # first: the fields take the random numbers that follow
    try:
        where.mkdir(parents=True, exist_ok=True)
        if JOB in names:
            (where / JOB).write_text(_job(where))
        if "stations.csv" in names:
            stations.to_csv(where / "stations.csv", index=False)
        if "places.csv" in names:
            _places().to_csv(where / "places.csv", index=False)
        if "hours.csv" in names:
            _hours(field).to_csv(where / "hours.csv", index=False)
        if {"era5.nc", "month.nc"} & set(names):
            for name, values in zip(("era5.nc", "month.nc"), _fields(field, generator), strict=True):
                if name in names:
                    values.to_netcdf(where / name, engine="h5netcdf")
    except OSError as error:
        raise StoreError(
            f"cannot write to {where}: {error.strerror}. Name another folder.", key="not-writable"
        ) from error
    return paths


def _job(where: Path) -> str:
    named = {
        "stations": f"table:{where / 'stations.csv'}",
        "places": f"table:{where / 'places.csv'}",
        "root": str(where / "out"),
    }
    return STATIONS_JOB.format(**{name: json.dumps(text) for name, text in named.items()})


def _europe() -> xr.DataArray:
    """Open the built-in field over Europe, longitudes ascending from west of Greenwich."""
    with TemporaryDirectory() as scratch:
        field = open_sample(Selection(area=(70.0, -15.0, 33.0, 36.0)), scratch=Path(scratch))["t2m"]
    return field.assign_coords(
        longitude=("longitude", (field.longitude.values + 180.0) % 360.0 - 180.0, field.longitude.attrs)
    ).sortby("longitude")


def _places() -> pd.DataFrame:
    places = [(name, *position) for name, position in PLACES.items()]
    return pd.DataFrame(places, columns=["name", "latitude", "longitude"])


def _fields(field: xr.DataArray, generator: np.random.Generator) -> tuple[xr.DataArray, xr.DataArray]:
    """Make the field with clouds and the month of fields, at every second latitude and longitude."""
    coarse = field.isel(latitude=slice(None, None, 2), longitude=slice(None, None, 2))
    clouds = _weather(coarse.isel(time=0), generator, days=1)[0]
    return coarse.where(clouds < np.quantile(clouds, 1.0 - CLOUDY)), _month(coarse, generator)


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


def _hours(field: xr.DataArray) -> pd.DataFrame:
    """Two days of hourly stations in Central Europe: field and weather, a fifth of it missing."""
    generator = np.random.default_rng(2018)
    latitude = generator.uniform(46.0, 55.0, HOURLY_STATIONS).round(2)
    longitude = generator.uniform(5.0, 17.0, HOURLY_STATIONS).round(2)
    places = unit_sphere(latitude, longitude)
    X = np.column_stack([np.tile(places, (HOURS, 1)), np.repeat(np.arange(HOURS), HOURLY_STATIONS)])
    kernel = SpaceTime(Matern32(0.08, 9.0), lengthscale_time=12.0)
    weather = np.linalg.cholesky(kernel(X, X) + 1e-6 * np.eye(len(X))) @ generator.standard_normal(len(X))
    climate = field[0].interp(
        latitude=xr.DataArray(latitude, dims="station"), longitude=xr.DataArray(longitude, dims="station")
    )
    values = np.tile(climate.values - 273.15, HOURS) + weather + 0.3 * generator.standard_normal(len(X))
    table = pd.DataFrame(
        {
            "station": np.tile([f"H{number:02}" for number in range(HOURLY_STATIONS)], HOURS),
            "latitude": np.tile(latitude, HOURS),
            "longitude": np.tile(longitude, HOURS),
            "time": np.repeat(pd.date_range("2017-04-27", periods=HOURS, freq="h"), HOURLY_STATIONS),
            "temperature (degC)": values.round(2),
        }
    )
    return table[generator.random(len(table)) > 0.2]


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
