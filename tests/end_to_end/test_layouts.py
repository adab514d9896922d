"""Files as archives lay them out, through the command line: GHCN-Daily, Berkeley Earth, CMIP6.

The sets are made here, with the names, units and attributes of the originals; what a run publishes is
compared with dense formulas of the numbers that were written.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from typer.testing import CliRunner

from cagp_dist.cli import app
from cagp_dist.fields.selection import Selection
from cagp_dist.fields.sources import open_source, source_times

from ..jobs import job_text, map_grid, random_points

pytestmark = pytest.mark.exhaustive

LENGTHSCALE, VARIANCE, NOISE = 0.3, 40.0, 1.5
PRIOR = {
    "mean": "constant",
    "lengthscale": LENGTHSCALE,
    "variance": VARIANCE,
    "noise_variance": NOISE,
}
DAYS = pd.date_range("2020-07-01", periods=3)


def cagp(folder, command="run", *options, design=None, prior=PRIOR, **observations):
    """Run the command on a job of these observations."""
    gridded = {"train": random_points(120), "test": random_points(40, seed=1), "map": map_grid(30.0)}
    tables = {"design": design or gridded, "prior": prior, "solver": {"name": "cholesky"}}
    job = folder / "job.toml"
    job.write_text(job_text(observations=observations, output={"root": folder / "out"}, **tables))
    return CliRunner().invoke(app, [command, str(job), *options])


def published(folder, answer):
    assert answer.exit_code == 0, answer.output
    key = (folder / "out" / "CURRENT").read_text().strip()
    assert (folder / "out" / "report" / key / "report.html").exists()
    run = folder / "out" / "runs" / f"{key}.zarr"
    return {name: xr.open_zarr(run, group=name).load() for name in ("observations", "posterior", "map")}


def refused(answer):
    assert answer.exit_code in (1, 2)
    return " ".join(answer.output.split())


def unit(latitude, longitude):
    phi, lam = np.deg2rad(latitude), np.deg2rad(longitude)
    return np.stack([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)], axis=-1)


def covariance(A, B):
    u = np.sqrt(3.0) * np.linalg.norm(A[:, None] - B[None], axis=2) / LENGTHSCALE
    return VARIANCE * (1.0 + u) * np.exp(-u)


def kriged(latitude, longitude, values, X_new):
    """Mean and standard deviation at unit vectors, about the mean weighted by cos(latitude)."""
    X = unit(latitude, longitude)
    centre = np.average(values, weights=np.cos(np.deg2rad(latitude)))
    V = covariance(X_new, X)
    weights = np.linalg.solve(covariance(X, X) + NOISE * np.eye(len(X)), V.T)
    return centre + (values - centre) @ weights, np.sqrt(VARIANCE - np.einsum("qn,nq->q", V, weights))


def cells(maps):
    """Unit vectors of all cells of a map, row by row."""
    latitude, longitude = np.meshgrid(maps.latitude.values, maps.longitude.values, indexing="ij")
    return unit(latitude.ravel(), longitude.ravel())


def check(groups, name, truth):
    """Compare test points and map with kriging from ``truth(time, latitude, longitude)`` where observed."""
    observed, tested, maps = (groups[group] for group in ("observations", "posterior", "map"))
    latitude, longitude = observed.latitude.values, observed.longitude.values
    targets = unit(tested.latitude.values, tested.longitude.values)
    for time, moment in enumerate(observed.time.values):
        y = truth(time, latitude, longitude)
        np.testing.assert_allclose(observed[name].values[time], y, rtol=1e-6, atol=1e-6)
        mean, std = kriged(latitude, longitude, y, targets)
        np.testing.assert_allclose(tested[f"{name}_mean"].sel(time=moment), mean, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(tested[f"{name}_std"].sel(time=moment), std, rtol=1e-6)
        held_out = truth(time, tested.latitude.values, tested.longitude.values)
        np.testing.assert_allclose(tested[name].sel(time=moment), held_out, rtol=1e-6, atol=1e-6)
        mean, std = kriged(latitude, longitude, y, cells(maps))
        shown = maps[f"{name}_mean"].sel(time=moment).values.ravel()
        drawn = ~np.isnan(shown)
        assert drawn.any()
        np.testing.assert_allclose(shown[drawn], mean[drawn], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(
            maps[f"{name}_std"].sel(time=moment).values.ravel()[drawn], std[drawn], rtol=1e-6
        )


# GHCN-Daily, the CSV files of stations put under each other: tenths of a degree, rows for days with data

STATIONS = 25


@pytest.fixture
def ghcn(tmp_path):
    """Write ``ghcn.csv``; returns the places and the days' temperatures in degC, NaN where there is none."""
    rng = np.random.default_rng(5)
    latitude, longitude = (
        rng.uniform(36.0, 60.0, STATIONS).round(4),
        rng.uniform(-9.0, 25.0, STATIONS).round(4),
    )
    tenths = np.rint(250.0 - 6.0 * (latitude - 45.0) + rng.normal(0.0, 20.0, (len(DAYS), STATIONS)))
    tenths[0, 3] = tenths[2, 7] = -9999.0
    absent = [(1, 4), (1, 5), (2, 5)]
    rows = [
        (
            f"XX{k:09d}",
            f"{day:%Y-%m-%d}",
            latitude[k],
            longitude[k],
            120.5,
            f"TOWN {k}, XX",
            int(tenths[t, k]),
            ",,E",
        )
        for k in range(STATIONS)
        for t, day in enumerate(DAYS)
        if (t, k) not in absent
    ]
    names = ["STATION", "DATE", "LATITUDE", "LONGITUDE", "ELEVATION", "NAME", "TMAX", "TMAX_ATTRIBUTES"]
    pd.DataFrame(rows, columns=names).to_csv(tmp_path / "ghcn.csv", index=False, quoting=1)
    celsius = np.where(tenths == -9999.0, np.nan, tenths / 10.0)
    for missing in absent:
        celsius[missing] = np.nan
    return latitude, longitude, celsius


FOLDS = {
    "train": {"kind": "all"},
    "test": {"kind": "folds", "count": 2},
    "map": {**map_grid(6.0), "area": [60.0, -9.0, 36.0, 25.0]},
}


def test_ghcn_daily_says_how_missing_values_are_named_and_then_maps_tenths_of_degrees(ghcn, tmp_path):
    source = {"source": f"table:{tmp_path}/ghcn.csv", "variable": "TMAX", "units": "0.1 degC"}
    told = refused(cagp(tmp_path, design=FOLDS, **source))
    assert "holds -9999 in 2 rows" in told
    assert "Write missing = -9999 in [observations]" in told
    groups = published(tmp_path, cagp(tmp_path, design=FOLDS, missing=-9999, **source))
    latitude, longitude, celsius = ghcn
    posterior, maps = groups["posterior"], groups["map"]
    assert posterior.TMAX.attrs["units"] == maps.TMAX_mean.attrs["units"] == "degC"
    np.testing.assert_array_equal(posterior.time.values, DAYS.values)
    # stations in the order of the table; a station without any value would not be there
    np.testing.assert_allclose(posterior.latitude, latitude)
    np.testing.assert_allclose(posterior.longitude, longitude % 360.0)
    np.testing.assert_allclose(posterior.TMAX, celsius, rtol=1e-12)
    for day, values in enumerate(celsius):
        seen = ~np.isnan(values)
        mean, std = kriged(latitude[seen], longitude[seen], values[seen], cells(maps))
        np.testing.assert_allclose(maps.TMAX_mean.values[day].ravel(), mean, rtol=1e-9)
        np.testing.assert_allclose(maps.TMAX_std.values[day].ravel(), std, rtol=1e-8)


def test_ghcn_daily_takes_days_by_rule(ghcn, tmp_path):
    source = f"table:{tmp_path}/ghcn.csv"
    moments = source_times(source, Selection(value="TMAX", missing=-9999.0), cache_directory=tmp_path)
    np.testing.assert_array_equal(moments, DAYS.values)
    told = refused(cagp(tmp_path, "plan", "--times", "last 2d", design=FOLDS, source=source, variable="TMAX"))
    assert "Write missing = -9999 in [observations]" in told
    told = cagp(
        tmp_path, "plan", "--times", "last 2d", design=FOLDS, source=source, variable="TMAX", missing=-9999
    )
    assert told.exit_code == 0
    assert "2 fields" in told.output


# Berkeley Earth, gridded: anomalies, decimal years, a climatology by month without times, a land mask

LATITUDE, LONGITUDE = np.arange(-85.0, 86.0, 10.0), np.arange(-175.0, 176.0, 10.0)


def berkeley(path, *, units="year A.D."):
    """Write a file of 2019; returns the anomalies (12, latitude, longitude)."""
    rng = np.random.default_rng(6)
    shape = (12, LATITUDE.size, LONGITUDE.size)
    anomaly = np.cos(np.deg2rad(LATITUDE))[:, None] + np.sin(np.deg2rad(LONGITUDE))
    anomaly = (anomaly + rng.normal(0.0, 0.3, shape)).astype("f4")
    anomaly[:, :2, 4:9] = np.nan
    usual = np.broadcast_to(27.0 - 40.0 * np.sin(np.deg2rad(LATITUDE))[:, None] ** 2, shape).astype("f4")
    by_month = ("month_number", "latitude", "longitude")
    xr.Dataset(
        {
            "land_mask": (("latitude", "longitude"), rng.random(shape[1:])),
            "temperature": (
                ("time", "latitude", "longitude"),
                anomaly,
                {
                    "units": "degree C",
                    "standard_name": "surface_temperature_anomaly",
                    "long_name": "Air Surface Temperature Anomaly",
                    "valid_min": -24.6,
                    "valid_max": 19.7,
                },
            ),
            "climatology": (
                by_month,
                usual,
                {
                    "units": "degree C",
                    "long_name": "Air Surface Temperature Climatology (Jan 1951 - Dec 1980)",
                },
            ),
        },
        coords={
            "time": (
                "time",
                2019.0 + (np.arange(12) + 0.5) / 12.0,
                {"units": units, "standard_name": "time"},
            ),
            "latitude": ("latitude", LATITUDE, {"units": "degrees_north"}),
            "longitude": ("longitude", LONGITUDE, {"units": "degrees_east"}),
        },
    ).to_netcdf(path, engine="h5netcdf")
    return anomaly


def test_anomalies_of_berkeley_earth_by_month(tmp_path):
    anomaly = berkeley(tmp_path / "Land_and_Ocean_LatLong1.nc").astype(float)
    source = {"source": f"file:{tmp_path}/Land_and_Ocean_LatLong1.nc", "variable": "temperature"}
    groups = published(tmp_path, cagp(tmp_path, times="2019-07", **source))
    maps, observed = groups["map"], groups["observations"]
    assert maps.temperature_mean.attrs["units"] == "degC"  # nothing was added to a difference
    middle = np.datetime64("2019-01-01") + np.timedelta64(round(365 * 24 * 6.5 / 12), "h")
    np.testing.assert_array_equal(observed.time.values, [middle.astype("datetime64[ns]")])
    assert str(middle) == "2019-07-17T17"

    def truth(_, latitude, longitude):
        rows = np.searchsorted(LATITUDE, latitude)
        return anomaly[6, rows, np.searchsorted(LONGITUDE, (longitude + 180.0) % 360.0 - 180.0)]

    check(groups, "temperature", truth)


def test_berkeley_earth_is_told_what_to_do_without_units_of_time_or_with_another_name(tmp_path):
    path = tmp_path / "berkeley.nc"
    berkeley(path, units="a.u.")
    source = {"source": f"file:{path}"}
    told = refused(cagp(tmp_path, variable="temperature", **source))
    assert "have type float64 and the units 'a.u.'; expected dates" in told
    assert '"years" for decimal years such as 2019.5' in told
    told = refused(cagp(tmp_path, **source))
    assert "variable 't2m' is missing; there is 'temperature', 'climatology'" in told
    assert "12 values along 'month_number'" in refused(cagp(tmp_path, variable="climatology", **source))


def test_temperatures_of_berkeley_earth_as_the_documentation_makes_them(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "job.md").read_text()
    script = page.partition("Berkeley Earth")[2].partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    anomaly = berkeley("Land_and_Ocean_LatLong1.nc").astype(float)
    exec(script, {})
    field = open_source("file:tas.nc", variable="tas", cache_directory=tmp_path)
    assert str(field.time.values[0]).startswith("2019-01-16T05:00")
    assert field.tas.attrs["units"] == "K"
    usual = 27.0 - 40.0 * np.sin(np.deg2rad(LATITUDE))[:, None] ** 2
    expected = np.roll(usual + anomaly + 273.15, LONGITUDE.size // 2, axis=2)  # longitudes from 5 to 355
    np.testing.assert_allclose(field.tas, expected, atol=1e-4)


# CMIP6: bounds of all axes, a scalar height, noon of every day, float32 with 1e20 for what is missing


def test_daily_near_surface_temperature_of_cmip6(tmp_path):
    latitude, longitude = np.arange(-84.0, 85.0, 12.0), np.arange(0.0, 360.0, 15.0)
    rng = np.random.default_rng(7)
    tas = 288.0 - 30.0 * np.sin(np.deg2rad(latitude))[:, None] ** 2
    tas = (tas + rng.normal(0.0, 2.0, (len(DAYS), latitude.size, longitude.size))).astype("f4")
    days = np.arange(len(DAYS), dtype=float)
    raw = xr.Dataset(
        {
            "tas": (
                ("time", "lat", "lon"),
                tas,
                {
                    "units": "K",
                    "standard_name": "air_temperature",
                    "long_name": "Near-Surface Air Temperature",
                    "cell_methods": "area: time: mean",
                    "cell_measures": "area: areacella",
                },
            ),
            "time_bnds": (("time", "bnds"), np.stack([days, days + 1.0], axis=1)),
            "lat_bnds": (("lat", "bnds"), np.stack([latitude - 6.0, latitude + 6.0], axis=1)),
            "lon_bnds": (("lon", "bnds"), np.stack([longitude - 7.5, longitude + 7.5], axis=1)),
        },
        coords={
            "time": (
                "time",
                days + 0.5,
                {
                    "units": "days since 2020-07-01",
                    "calendar": "standard",
                    "bounds": "time_bnds",
                    "axis": "T",
                    "standard_name": "time",
                },
            ),
            "lat": ("lat", latitude, {"units": "degrees_north", "bounds": "lat_bnds", "axis": "Y"}),
            "lon": ("lon", longitude, {"units": "degrees_east", "bounds": "lon_bnds", "axis": "X"}),
            "height": ((), 2.0, {"units": "m", "axis": "Z", "positive": "up", "standard_name": "height"}),
        },
        attrs={"Conventions": "CF-1.7 CMIP-6.2", "mip_era": "CMIP6", "frequency": "day"},
    )
    raw.tas.encoding["_FillValue"] = np.float32(1e20)
    raw.to_netcdf(tmp_path / "tas_day.nc", engine="h5netcdf")
    groups = published(tmp_path, cagp(tmp_path, source=f"file:{tmp_path}/tas_day.nc", variable="tas"))
    observed = groups["observations"]
    assert groups["map"].tas_mean.attrs["units"] == "K"
    np.testing.assert_array_equal(observed.time.values, DAYS.values + np.timedelta64(12, "h"))
    assert observed.longitude.values.max() > 180.0

    def truth(time, north, east):
        return tas[time, np.searchsorted(latitude, north), np.searchsorted(longitude, east)].astype(float)

    check(groups, "tas", truth)
