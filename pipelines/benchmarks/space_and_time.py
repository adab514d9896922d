"""Measured cases of space and time: days on a whole grid, a window of swaths, hours of a region."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import cagp_dist as cagp
from cagp_dist.arrays import Array
from cagp_dist.fields.sources import open_source
from pipelines.benchmarks.maps import map_points
from pipelines.benchmarks.measuring import Figures, T, named, peak_mebibytes, timed
from pipelines.benchmarks.scattered import drawn
from pipelines.experiments.real_fields import UNITED_KINGDOM

DAYS = 30
IN_SPACE = cagp.Matern32(0.041, 22.4)
"""Maximum likelihood for the built-in field, K^2."""

NOISE_VARIANCE = 0.53
WINDOW_DAYS, SWATH = 10, 1_000_000
ORBIT_HOURS, INCLINATION_DEGREES, PIXELS = 1.68, 98.6, 20
"""Of a polar orbit, and how many pixels lie across its swath."""

SWATH_PRIOR = cagp.Prior(cagp.SpaceTime(cagp.Matern32(0.04, 1.0), lengthscale_time=60.0), 0.024)
PART_OBSERVED = 0.05


def days_on_grid() -> Figures:
    """Exact posterior and likelihood of 30 days of 721 x 1440 points, with noise by latitude."""
    _days(19, 36, 3)  # compiled
    return _days(721, 1440, DAYS)


def swath_window() -> Figures:
    """Fit to 10^6 observations of a swath within 10 days, and map 64,800 cells of one day."""
    _window(3_000, map_points(10.0))
    return _window(SWATH, map_points(1.0))


def observed_hours() -> Figures:
    """744 hours of 1,617 cells of ERA5, a twentieth observed: `cagp.krige`, fit and all maps."""
    _hours(30, 0.2)
    return _hours(744, PART_OBSERVED)


def _days(rings: int, longitudes: int, days: int) -> Figures:
    grid = cagp.LatLonGrid(np.linspace(-90.0, 90.0, rings), longitudes)
    by_latitude = NOISE_VARIANCE * (0.5 + np.cos(np.deg2rad(grid.latitude_degrees)))
    noise = np.repeat(by_latitude, longitudes).reshape(grid.shape)
    prior = cagp.Prior(cagp.SpaceTime(IN_SPACE, cagp.Matern32(36.0)), noise)
    hours = 24.0 * np.arange(days)
    y = 4.0 * np.random.default_rng(0).standard_normal((days, *grid.shape), dtype=np.float32)

    def posterior() -> None:
        cagp.condition_over_times(prior, grid, hours, y, grid)

    def likelihood() -> None:
        cagp.log_likelihood_over_times(prior, grid, hours, y)

    return _measured(likelihood, "likelihood")[0] | _measured(posterior, "posterior")[0]


def _window(count: int, targets: Array) -> Figures:
    X = swath(count)
    y = drawn(SWATH_PRIOR, X)
    noon = np.column_stack([targets, np.full(len(targets), 12.0 * WINDOW_DAYS)])
    figures, found = _measured(lambda: cagp.fit(SWATH_PRIOR.kernel.family, X, y, mean=0.0), "fit")
    fitted = found.prior

    def daily_map() -> None:
        cagp.condition(fitted, X, y, noon, solver=cagp.Neighbours("auto"))

    chord, hours = fitted.kernel.lengthscale
    return {**figures, **_measured(daily_map, "map")[0], "lengthscale": chord, "lengthscale_hours": hours}


def _hours(hours: int, part: float) -> Figures:
    with tempfile.TemporaryDirectory() as scratch:
        field = open_source(f"file:{UNITED_KINGDOM}", cache_directory=Path(scratch))["t2m"][:hours].load()
    kept = np.random.default_rng(0).random(field.shape) < part
    when, row, column = np.nonzero(kept)
    table = pd.DataFrame(
        {
            "time": field.time.values[when],
            "latitude": field.latitude.values[row],
            "longitude": field.longitude.values[column],
            "temperature (K)": field.values[kept].astype(np.float64),
        }
    )
    places = pd.DataFrame(
        {
            "latitude": np.repeat(field.latitude.values, field.longitude.size),
            "longitude": np.tile(field.longitude.values, field.latitude.size),
        }
    )
    figures, found = _measured(
        lambda: cagp.krige(table, to=places, at="observed", progress=False), "fit_and_maps"
    )
    mean = found["mean"].values.reshape(field.shape)
    rmse = float(np.sqrt(np.mean((mean - field.values)[~kept] ** 2)))
    return {**figures, "observations": float(len(table)), "rmse_kelvin": rmse}


def swath(count: int) -> Array:
    """Points (count, 4) of the swath of a satellite in a polar orbit: unit vectors and hours."""
    lines = -(-count // PIXELS)
    hours = np.linspace(0.0, 24.0 * WINDOW_DAYS, lines, endpoint=False)
    along, turned = 2.0 * np.pi * hours / ORBIT_HOURS, -2.0 * np.pi * hours / 24.0
    tilt = np.deg2rad(INCLINATION_DEGREES)
    track = np.stack([np.cos(along), np.sin(along) * np.cos(tilt), np.sin(along) * np.sin(tilt)], axis=1)
    normal = np.array([0.0, -np.sin(tilt), np.cos(tilt)])
    across = np.linspace(-0.1, 0.1, PIXELS)
    seen = np.cos(across)[:, None] * track[:, None] + np.sin(across)[:, None] * normal  # (lines, PIXELS, 3)
    x, y, z = seen.reshape(-1, 3).T
    turned = np.repeat(turned, PIXELS)
    x, y = x * np.cos(turned) - y * np.sin(turned), x * np.sin(turned) + y * np.cos(turned)
    return np.column_stack([x, y, z, np.repeat(hours, PIXELS)])[:count]


def _measured(function: Callable[[], T], name: str) -> tuple[Figures, T]:
    """Seconds of both kinds, and the most memory that was held so far."""
    figures, value = timed(function)
    return named({**figures, "peak_mebibytes": peak_mebibytes()}, name), value
