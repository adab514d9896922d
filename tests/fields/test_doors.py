"""Every door gives one answer to a table: frames, files and points of xarray, in `krige` and in jobs.

A layout is a table of one smooth field in another spelling. It goes through each door that can take it.
Either all of them read the same places, times and values, or all refuse it by the same key; what is refused
goes through half of them by turns.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
import xarray as xr

import cagp_dist as cagp
from cagp_dist.errors import CagpError
from cagp_dist.fields.canonical import observation_points
from cagp_dist.fields.tables import table_files
from cagp_dist.kriging.given_observations import read
from cagp_dist.service.ingest import ingest
from cagp_dist.service.jobfile.config import parse_job

from ..jobs import job_text

N = 40
RNG = np.random.default_rng(12)
NORTH, EAST = RNG.uniform(46.013, 54.0, N).round(4), RNG.uniform(5.0, 16.0, N).round(4)
WARM = (15.0 - 0.7 * (NORTH - 50.0) + 2.0 * np.sin(EAST / 3.0)).round(3)
DAYS = pd.to_datetime(["2024-07-01", "2024-07-02"])

Columns = dict[str, Any]


@dataclass(frozen=True)
class Layout:
    """A spelling of observations: what was written, how it is read, and the answer."""

    make: Callable[[], Any]
    # places, times, values and noise, if it is known; or the key of an error; None: NORTH, EAST and WARM
    answer: Any = None
    how: dict[str, Any] = field(default_factory=dict)
    only: tuple[str, ...] = ()  # doors that can take it, if not all
    says: str = ""  # what people are told of it, by each door


def rows(**columns: Any) -> Columns:
    """Stations with a temperature."""
    return {"lat": NORTH, "lon": EAST, "temperature (degC)": WARM} | columns


def twice(**columns: Any) -> Columns:
    """Stations with two rows each, the second 5 K colder."""
    own = {"lat": np.tile(NORTH, 2), "lon": np.tile(EAST, 2), "temperature (degC)": both()}
    return own | columns


def both() -> np.ndarray:
    return np.concatenate([WARM, WARM - 5.0])


def each(first: Any, second: Any) -> np.ndarray:
    """A column that is one thing in the first row of each station, and another in the second."""
    return np.repeat(np.array([first, second]), N)


def without(name: str, **columns: Any) -> Columns:
    return {key: held for key, held in rows(**columns).items() if key != name}


def minutes(degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    whole = np.floor(degrees)
    return whole.astype(int), (60.0 * (degrees - whole)).round(6)


def dotted(degrees: np.ndarray) -> np.ndarray:
    whole, part = minutes(degrees)
    return (whole + np.floor(part) / 100.0).round(2)


def two_days() -> tuple[Any, ...]:
    return NORTH, EAST, DAYS, np.stack([WARM, WARM - 5.0])


IN_TABLES = ("mapping", "frame", "polars", "arrow", "csv", "parquet")

TABLES: dict[str, Layout] = {
    "plain": Layout(rows),
    "other names and order": Layout(
        lambda: {
            "Name": [f"S{n}" for n in range(N)],
            "Temperature (degC)": WARM,
            "Longitude": EAST,
            "LATITUDE": NORTH,
        }
    ),
    "letters in cells": Layout(
        lambda: rows(lat=[f"{north:.4f}N" for north in NORTH], lon=[f"{east:.4f}E" for east in EAST])
    ),
    "hemisphere columns": Layout(
        lambda: rows(lat=NORTH, lat_dir=["S"] * N, lon=EAST, lon_dir=["W"] * N),
        answer=(-NORTH, -EAST, None, WARM),
    ),
    "minutes columns": Layout(
        lambda: {
            "lat_deg": minutes(NORTH)[0],
            "lat_min": minutes(NORTH)[1],
            "lon_deg": minutes(EAST)[0],
            "lon_min": minutes(EAST)[1],
            "temperature (degC)": WARM,
        }
    ),
    "longitudes to the west, colatitudes": Layout(
        lambda: {"colat": (90.0 - NORTH).round(4), "lon_W": EAST, "temperature (degC)": WARM},
        how={"columns": {"latitude": "colat", "longitude": "lon_W"}},
        answer=(NORTH, -EAST, None, WARM),
    ),
    "a German header": Layout(
        lambda: {"Länge": EAST, "Breite": NORTH, "temperature (degC)": WARM},
        only=("mapping", "csv", "netcdf", "job of a csv"),
    ),
    "kilometres by the name": Layout(
        lambda: {"x_km": EAST + 500.0, "y_km": NORTH + 5300.0, "temperature (degC)": WARM},
        how={"crs": 32632},
        answer=(NORTH + 5300.0, EAST + 500.0, None, WARM),
        only=("frame", "points", "job of a csv"),
    ),
    "southings": Layout(
        lambda: {"westing": EAST, "southing": NORTH, "temperature (degC)": WARM},
        how={"columns": {"x": "westing", "y": "southing"}},
        answer="sign",
        only=("mapping", "netcdf"),
    ),
    "degrees.minutes": Layout(
        lambda: rows(lat=dotted(NORTH), lon=dotted(EAST)), answer="degrees-and-minutes"
    ),
    "longitudes to 360": Layout(
        lambda: rows(lon=np.mod(EAST - 10.0, 360.0)), answer=(NORTH, EAST - 10.0, None, WARM)
    ),
    "latitude 91": Layout(lambda: rows(lat=np.append(NORTH[1:], 91.0)), answer="row"),
    "standardised places": Layout(
        lambda: rows(lat=(NORTH - NORTH.mean()) / NORTH.std(), lon=(EAST - EAST.mean()) / EAST.std()),
        answer="scaled",
    ),
    "one time": Layout(lambda: rows(time=["2024-07-01"] * N), answer=(NORTH, EAST, DAYS[:1], WARM[None])),
    "two times": Layout(lambda: twice(time=np.repeat(DAYS.values, N)), answer=two_days()),
    "date and hour": Layout(
        lambda: rows(date=["2024-07-01"] * N, hour=[6] * N),
        answer=(NORTH, EAST, DAYS[:1] + pd.Timedelta("6h"), WARM[None]),
    ),
    "an offset in the header": Layout(
        lambda: rows(**{"time (UTC+2)": ["2024-07-01 02:00"] * N}),
        answer=(NORTH, EAST, DAYS[:1], WARM[None]),
        only=("mapping", "polars", "csv", "points", "job of a netcdf"),
    ),
    "a zone in the header of a named column": Layout(
        lambda: rows(**{"Zeit (MEZ)": ["2024-07-01 01:00"] * N}),
        how={"columns": {"time": "Zeit"}},
        answer=(NORTH, EAST, DAYS[:1], WARM[None]),
        only=("frame", "netcdf", "job of a csv"),
    ),
    "a clock of its place": Layout(
        lambda: rows(date=["2024-07-01"] * N, **{"hour (LT)": [6] * N}),
        answer="time-zone",
        only=("parquet", "points", "job of a csv"),
    ),
    "a place of the tz database": Layout(
        lambda: rows(**{"time (Europe/Berlin)": ["2024-07-01 02:00"] * N}),
        answer=(NORTH, EAST, DAYS[:1], WARM[None]),
        only=("arrow", "netcdf"),
    ),
    "hour 24": Layout(
        lambda: rows(time=["2024-06-30 24:00"] * N), answer=(NORTH, EAST, DAYS[:1], WARM[None])
    ),
    "year and day of year": Layout(lambda: twice(year=[2024] * 2 * N, doy=each(183, 184)), answer=two_days()),
    "year and week": Layout(lambda: twice(year=[2024] * 2 * N, week=each(26, 27)), answer="no-time"),
    "reference time": Layout(
        lambda: rows(time=["2024-07-01"] * N, valid_time=["2024-07-02"] * N), answer="times-disagree"
    ),
    "which time is said": Layout(
        lambda: rows(time=["2024-06-30"] * N, valid_time=["2024-07-01"] * N),
        how={"columns": {"time": "valid_time"}},
        answer=(NORTH, EAST, DAYS[:1], WARM[None]),
    ),
    "levels": Layout(lambda: twice(pres=each(5.4, 100.3)), answer="levels-differ"),
    "levels, one chosen": Layout(lambda: twice(pres=each(5.4, 100.3)), how={"where": {"pres": 5.4}}),
    "members": Layout(lambda: twice(member=each(1, 2)), answer="levels-differ"),
    "elements": Layout(lambda: twice(element=each("TMAX", "TMIN")), answer="elements-differ"),
    "a row twice": Layout(
        lambda: {name: np.tile(held, 2) for name, held in rows().items()},
        says="40 rows are copies of other rows",
    ),
    "a counter called obs": Layout(
        lambda: {"obs": np.arange(N), **rows()}, how={"value": None}, only=IN_TABLES
    ),
    "two candidates": Layout(
        lambda: rows(dewpoint=WARM - 4.0), how={"value": None}, answer="which-value", only=IN_TABLES
    ),
    "a flag beside": Layout(lambda: rows(quality_flag=np.zeros(N, dtype=int))),
    "a mark declared": Layout(
        lambda: rows(**{"temperature (degC)": np.append(WARM[:-1], -9999.0)}),
        how={"missing": -9999.0},
        answer=(NORTH[:-1], EAST[:-1], None, WARM[:-1]),
    ),
    "a mark not declared": Layout(
        lambda: rows(**{"temperature (degC)": np.append(WARM[:-1], -9999.0)}), answer="missing-mark"
    ),
    "an underscore in a number": Layout(
        lambda: rows(**{"temperature (degC)": ["16_14", *map(str, WARM[1:])]}), answer="no-number"
    ),
    "commas of thousands": Layout(
        lambda: without("temperature (degC)", **{"p (hPa)": [f"{warm:,.3f}" for warm in WARM + 990.0]}),
        answer=(NORTH, EAST, None, WARM + 990.0),
        only=("mapping", "csv", "job of a csv"),
        how={"value": "p"},
    ),
    "infinity": Layout(lambda: rows(**{"temperature (degC)": np.append(WARM[1:], np.inf)}), answer="row"),
    "fahrenheit with noise in kelvin": Layout(
        lambda: without(
            "temperature (degC)",
            **{"temperature (degF)": 1.8 * WARM + 32.0, "noise_std (K)": np.full(N, 0.5)},
        ),
        answer=(NORTH, EAST, None, WARM, np.full(N, 0.5)),
    ),
    "noise of each place": Layout(
        lambda: twice(time=np.repeat(DAYS.values, N), **{"err (K)": np.tile(0.01 * NORTH, 2)}),
        how={"noise_std": "err"},
        answer=(*two_days(), 0.01 * NORTH),
    ),
    "wind direction": Layout(
        lambda: without("temperature (degC)", **{"wind_dir (degree)": WARM}),
        how={"value": "wind_dir"},
        answer="direction",
    ),
    "units asked for": Layout(
        lambda: without("temperature (degC)", **{"temperature (K)": WARM + 273.15}),
        how={"units": "degC"},
        says="converted",
        only=("mapping", "points", "job of a netcdf"),
    ),
    "units that are no others": Layout(
        rows, how={"units": "hPa"}, answer="units", only=("csv", "netcdf", "job of a csv")
    ),
    "logarithms": Layout(
        lambda: without("temperature (degC)", **{"log10_chl (mg m-3)": WARM}),
        how={"value": "log10_chl"},
        says="logarithms",
        only=("frame", "points", "job of a csv"),
    ),
    "signs beside": Layout(
        lambda: rows(sign=["+", "-"] * (N // 2)),
        answer="values-scaled",
        only=("mapping", "csv", "job of a netcdf"),
    ),
    "powers of ten beside": Layout(
        lambda: rows(exponent=[1] * N), answer="values-scaled", only=("arrow", "netcdf", "job of a csv")
    ),
    "rejected ones among": Layout(
        lambda: rows(status=["rejected", "valid"] * (N // 2)),
        answer="flags-differ",
        only=("frame", "netcdf", "job of a csv"),
    ),
    "outliers left out": Layout(
        lambda: twice(is_outlier=each(False, True)),
        how={"where": {"is_outlier": False}},
        only=("mapping", "points", "job of a csv", "job of a netcdf"),
    ),
    "forecasts among": Layout(
        lambda: rows(type=["observed", "forecast"] * (N // 2)),
        answer="categories-differ",
        only=("polars", "points", "job of a netcdf"),
    ),
    "kinds of stations": Layout(
        lambda: rows(type=["SYNOP", "METAR"] * (N // 2)), only=("parquet", "points", "job of a csv")
    ),
    "durations": Layout(
        lambda: without("temperature (degC)", wave=pd.to_timedelta(WARM, unit="s").values),
        how={"value": "wave"},
        only=("frame", "points"),
    ),
    "a clock of another language": Layout(
        lambda: twice(date="2024-07-01", Uhrzeit=each("06:00", "18:00")),
        answer=(NORTH, EAST, pd.to_datetime(["2024-07-01T06", "2024-07-01T18"]), both().reshape(2, N)),
        only=("frame", "csv", "job of a csv"),
    ),
    "short parts of dates": Layout(
        lambda: rows(YY=2024, MM=7, DD=2, hh=0, mm=0),
        answer=(NORTH, EAST, DAYS[1:], WARM[None]),
        only=("frame", "job of a csv"),
    ),
    "whole numbers that are times": Layout(
        lambda: rows(MESS_DATUM=[2024070112, 2024070118] * (N // 2)),
        answer="no-time",
        only=("mapping", "csv", "job of a csv"),
    ),
    "fractions in percent": Layout(
        lambda: without("temperature (degC)", **{"ice (1)": WARM / 100.0}),
        how={"value": "ice", "units": "%"},
        answer=(NORTH, EAST, None, WARM),
        only=("frame", "points", "job of a csv"),
    ),
    "units of each row": Layout(
        lambda: rows(Einheit=["mg/l", "µg/l"] * (N // 2)),
        answer="several-units",
        only=("frame", "csv", "job of a csv"),
    ),
    "grades of each row": Layout(
        lambda: rows(Q_TG=[0, 9] * (N // 2)), answer="flags-differ", only=("frame", "points", "job of a csv")
    ),
    "times since": Layout(
        lambda: rows(time=["2024-07-01"] * N, sst_dtime=np.arange(N)),
        answer="time-offset",
        only=("frame", "netcdf", "job of a csv"),
    ),
    "two standard deviations": Layout(
        lambda: rows(u_2sigma=np.ones(N)),
        how={"noise_std": "u_2sigma"},
        answer="no-standard-deviation",
        only=("mapping", "points", "job of a csv"),
    ),
    "kinds of pressure": Layout(
        lambda: rows(pressure_type=["QNH", "QFE"] * (N // 2)),
        answer="categories-differ",
        only=("frame", "netcdf", "job of a csv"),
    ),
    "decimal commas in every cell": Layout(
        lambda: rows(**{"temperature (degC)": [f"{warm:.2f}".replace(".", ",") for warm in WARM.round(2)]}),
        answer=(NORTH, EAST, None, WARM.round(2)),
        only=("frame", "csv", "job of a csv"),
    ),
    "signs of percent": Layout(
        lambda: without("temperature (degC)", rh=[f"{warm:.2f} %" for warm in WARM.round(2)]),
        how={"value": "rh"},
        answer=(NORTH, EAST, None, WARM.round(2)),
        only=("mapping", "csv"),
    ),
    "halves of days": Layout(
        lambda: rows(time=["2024-07-02 12:00 AM"] * N),
        answer=(NORTH, EAST, DAYS[1:], WARM[None]),
        only=("frame", "job of a csv"),
    ),
    "x and y not said": Layout(
        lambda: {"x": 1e3 * EAST, "y": 1e3 * NORTH, "temperature (degC)": WARM}, answer="plane-not-said"
    ),
}


def prepared(columns: Columns) -> pd.DataFrame:
    return pd.DataFrame({name: np.asarray(held) for name, held in columns.items()})


def as_points(columns: Columns) -> xr.Dataset:
    """The columns along a dimension of rows, with units as attributes."""
    found = {}
    for name, held in columns.items():
        bare, _, unit = name.partition(" (")
        values = np.asarray(held)
        values = values.astype(object) if values.dtype.kind == "U" else values
        found[bare] = xr.Variable("obs", values, {"units": unit.rstrip(")")} if unit else {})
    return xr.Dataset(found)


def of_krige(source: Any, how: dict[str, Any]) -> tuple[Any, ...]:
    observed, _ = read(cagp.Kriging(**how), source)
    return kelvin_of(observed.points, observed.attributes.get("units", ""))


def how_in_job(how: dict[str, Any]) -> dict[str, Any]:
    return {"variable": how["value"], **{name: held for name, held in how.items() if name != "value"}}


def of_job(source: str, how: dict[str, Any], folder: Path) -> tuple[Any, ...]:
    job = parse_job(
        job_text(observations={"source": source} | how_in_job(how), output={"root": folder / "out"})
    )
    points = observation_points(ingest(job, report=print))
    return kelvin_of(points, points.units)


def kelvin_of(points: Any, units: str) -> tuple[Any, ...]:
    """Places, times, values and noise in degrees Celsius, of whatever a door has read."""
    values = points.values
    if units == "K":
        values = values - 273.15
    elif units == "degF":
        values = (values - 32.0) / 1.8
    noise = points.noise_variance
    noise = None if noise is None else np.sqrt(noise) / (1.8 if units == "degF" else 1.0)
    return points.north, points.east, points.times, values, noise


DOORS: dict[str, Callable[[Columns, dict[str, Any], Path], tuple[Any, ...]]] = {
    "mapping": lambda columns, how, _: of_krige(columns, how),
    "frame": lambda columns, how, _: of_krige(prepared(columns), how),
    "polars": lambda columns, how, _: of_krige(polars.from_pandas(prepared(columns)).lazy(), how),
    "arrow": lambda columns, how, _: of_krige(pyarrow.Table.from_pandas(prepared(columns)), how),
    "csv": lambda columns, how, folder: of_krige(written(columns, folder / "t.csv"), how),
    "parquet": lambda columns, how, folder: of_krige(written(columns, folder / "t.parquet"), how),
    "points": lambda columns, how, _: of_krige(as_points(columns), how),
    "netcdf": lambda columns, how, folder: of_krige(f"file:{written(columns, folder / 't.nc')}", how),
    "job of a csv": lambda columns, how, folder: of_job(
        f"table:{written(columns, folder / 't.csv')}", how, folder
    ),
    "job of a netcdf": lambda columns, how, folder: of_job(
        f"file:{written(columns, folder / 't.nc')}", how, folder
    ),
}


def written(columns: Columns, path: Path) -> str:
    if path.suffix == ".nc":
        as_points(columns).to_netcdf(path, engine="h5netcdf")
    elif path.suffix == ".parquet":
        prepared(columns).to_parquet(path)
    else:
        prepared(columns).to_csv(path, index=False)
    return str(path)


def answered(door: str, layout: Layout, folder: Path) -> Any:
    """What a door reads, or the key of its refusal."""
    how = {"value": "temperature"} | layout.how
    try:
        return DOORS[door](layout.make(), how, folder)
    except CagpError as error:
        return error.key or str(error)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_alike_whatever_brings_it(name, tmp_path, capsys, monkeypatch):
    # by a process that takes longer to start; `tests.fields.test_endless_tables` has it
    monkeypatch.setattr(table_files, "_check_parquet", lambda path: None)
    layout = TABLES[name]
    expected = (NORTH, EAST, None, WARM) if layout.answer is None else layout.answer
    said = {}
    refused, turn = isinstance(layout.answer, str), [*TABLES].index(name) % 2
    for number, door in enumerate(layout.only or ([*DOORS][turn::2] if refused else DOORS)):
        folder = tmp_path / str(number)
        folder.mkdir()
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            said[door] = answered(door, layout, folder)
        told = f"{[str(note.message) for note in noted]} {capsys.readouterr().out}"
        assert layout.says in told, (door, told)
    wrong = {door: shown(found) for door, found in said.items() if not agrees(found, expected)}
    assert not wrong, wrong


def shown(found: Any) -> str:
    """What a door answered, for people."""
    if isinstance(found, str):
        return found
    north, east, times, values, _ = found
    return f"{values.shape} values {values.ravel()[:2]} at {north[:2]} N, {east[:2]} E, {times[:2]}"


def agrees(found: Any, expected: Any) -> bool:
    """Whether these are the same places, in any order, with the same values; or the same refusal."""
    if isinstance(expected, str) or isinstance(found, str):
        return bool(isinstance(found, str) and found == expected)
    north, east, times, values, noise = found
    there = None if times is None or np.isnat(times).any() else times
    if (there is None) != (expected[2] is None):
        return False
    if there is not None and not np.array_equal(there, expected[2].values):
        return False
    in_plane = np.abs(expected[1]).max() > 360.0 or np.abs(expected[0]).max() > 90.0
    easts = [places if in_plane else np.mod(places, 360.0) for places in (east, expected[1])]
    orders = [
        np.lexsort((places.round(4), rows.round(4)))
        for places, rows in zip(easts, (north, expected[0]), strict=True)
    ]
    pairs = [
        (north[orders[0]], expected[0][orders[1]]),
        (easts[0][orders[0]], easts[1][orders[1]]),
        (np.atleast_2d(values)[:, orders[0]], np.atleast_2d(expected[3])[:, orders[1]]),
    ]
    known = expected[4] if len(expected) > 4 else None
    if (noise is None) != (known is None):
        return False
    if noise is not None:
        pairs.append((noise[orders[0]], known[orders[1]]))
    return all(own.shape == other.shape and np.allclose(own, other, atol=2e-5) for own, other in pairs)
