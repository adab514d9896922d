"""Every column beside those that are used is looked at: one small table in many layouts."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.observed_objects import read
from cagp_dist.fields.tables import by_time_and_place, frames, read_places, read_table
from cagp_dist.fields.tables.frames import Column
from cagp_dist.remedies import Setting
from cagp_dist.service.jobfile.observations_table import ObservationsTable

RNG = np.random.default_rng(0)
NORTH = np.round(RNG.uniform(46.0, 55.0, 40), 4)
EAST = np.round(RNG.uniform(5.0, 17.0, 40), 4)
VALUES = np.round(15.0 + 5.0 * np.sin(NORTH) + 3.0 * np.cos(0.5 * EAST), 2)
TABLE = pd.DataFrame({"latitude": NORTH, "longitude": EAST, "temp": VALUES})
JULY = "2020-07-01T00:00:00Z"

DEGREES, MINUTES = np.divmod(NORTH, 1.0)[0], np.round(NORTH % 1.0 * 60.0, 6)
EAST_DEGREES, EAST_MINUTES = np.divmod(EAST, 1.0)[0], np.round(EAST % 1.0 * 60.0, 6)
PARTS = {"lat_deg": DEGREES, "lat_min": MINUTES, "lon_deg": EAST_DEGREES, "lon_min": EAST_MINUTES}
SECONDS = {"lat_min": MINUTES // 1.0, "lat_sec": np.round(MINUTES % 1.0 * 60.0, 6)}


def with_columns(**columns):
    """The table with columns changed or added."""
    return TABLE.assign(**columns)


def twice(**differing):
    """Each row twice, the second with other values, and columns that differ between both."""
    both = pd.concat([TABLE, TABLE.assign(temp=VALUES - 5.0)], ignore_index=True)
    return both.assign(**{name: np.repeat(pair, 40) for name, pair in differing.items()})


def text(separator=",", **changes):
    """The table as a text file."""
    return with_columns(**changes).to_csv(index=False, sep=separator).encode()


def comma(numbers, decimals=4):
    return [f"{number:.{decimals}f}".replace(".", ",") for number in numbers]


READ = {
    # hemispheres
    "one": (with_columns(ns="south", ew="East"), {}, (-1, 1)),
    "signs": (with_columns(lat_sign=-1, lon_hem="W"), {}, (-1, -1)),
    "agree": (with_columns(latitude=-NORTH, hemisphere="S"), {}, (-1, 1)),
    "in cells": (with_columns(latitude=[f"{x}S" for x in NORTH], latitude_ref="S"), {}, (-1, 1)),
    "not meant": (with_columns(ns="S"), {"where": {"ns": "*"}}, (1, 1)),
    # minutes and seconds
    "minutes": (pd.DataFrame({**PARTS, "temp": VALUES}), {}, (1, 1)),
    "seconds": (pd.DataFrame({**PARTS, **SECONDS, "temp": VALUES}), {}, (1, 1)),
    "below": (pd.DataFrame({**PARTS, "lat_deg": -DEGREES, "temp": VALUES}), {}, (-1, 1)),
    "beside": (pd.DataFrame({**PARTS, "lat_hem": "S", "lon_hem": "W", "temp": VALUES}), {}, (-1, -1)),
    "said twice": (with_columns(lat_min=MINUTES, lon_min=EAST_MINUTES), {}, (1, 1)),
    "bounds": (with_columns(lat_min=NORTH - 1, lat_max=NORTH + 1), {}, (1, 1)),
    # counters, flags, other quantities
    "counter": (TABLE.assign(obs=np.arange(1, 41)), {}, (1, 1)),
    "number": (TABLE.assign(foo=np.arange(40.0)), {}, (1, 1)),
    "levels": (with_columns(pres=np.linspace(5.0, 6.0, 40)), {"value": "temp"}, (1, 1)),
    "float32": (
        twice(pres=np.float32([0.1, 0.3])).astype({"pres": "float32"}),
        {"value": "temp", "where": {"pres": 0.1}},
        (1, 1),
    ),
    "flags of another": (with_columns(rh=50.5, rh_qc=[1, 4] * 20, rh_unit=["%", "1"] * 20), {"value": "temp"},
                         (1, 1)),
    "attributes": (with_columns(temp_attributes=[",,S", "H,,S"] * 20, qc=1, period_h=24), {"value": "temp"},
                   (1, 1)),
    "of the place": (with_columns(height=np.arange(40) * 7 % 41, pressure=[1012, 1013] * 20,
                                  water_depth=[1.0, 8.0] * 20), {"value": "temp"}, (1, 1)),
    "rounded": (with_columns(lat=NORTH.round(2), lon=EAST.round(2)), {}, (1, 1)),
    "flag chosen": (with_columns(qc=[1, 4] * 20), {"value": "temp", "where": {"qc": "*"}}, (1, 1)),
    # numbers
    "spaces": (with_columns(temp=[f" {x:.2f}e0 " for x in VALUES]), {}, (1, 1)),
    "commas": (text(";", latitude=comma(NORTH), longitude=comma(EAST), temp=comma(VALUES, 2)), {}, (1, 1)),
    "points between semicolons": (text(";"), {}, (1, 1)),
    "trace": (with_columns(temp=[*VALUES[:-1].astype(str), "T"]), {"missing": "T"}, (1, 1)),
    "marks": (with_columns(temp=[*VALUES[:-1].astype(str), "ND"]), {"missing": ["ND", -9999]}, (1, 1)),
    "durations": (with_columns(temp=pd.to_timedelta(VALUES, unit="s")), {"value": "temp"}, (1, 1)),
    "decimals": (with_columns(temp=[Decimal(f"{x:.2f}") for x in VALUES]), {}, (1, 1)),
    # rows
    "copies": (pd.concat([TABLE, TABLE[:3]]), {}, (1, 1)),
    "near": (pd.concat([TABLE, TABLE[:3].assign(latitude=NORTH[:3] + 1e-9)]), {}, (1, 1)),
    "masked": (
        {
            "latitude": NORTH,
            "longitude": EAST,
            "temp": np.ma.masked_array(np.where(np.arange(40) == 39, 0.0, VALUES), np.arange(40) == 39),
        },
        {},
        (1, 1),
    ),
    "record array": (TABLE.to_records(index=False), {}, (1, 1)),
    "masked records": (np.ma.array(TABLE.to_records(index=False)), {}, (1, 1)),
    "nullable": (TABLE.convert_dtypes(), {}, (1, 1)),
    "arrow dtypes": (TABLE.convert_dtypes(dtype_backend="pyarrow"), {}, (1, 1)),
    "categories": (TABLE.astype({"temp": "category"}), {}, (1, 1)),
}  # fmt: skip


def source_of(given, folder):
    if not isinstance(given, bytes):
        return given
    (folder / "table.csv").write_bytes(given)
    return folder / "table.csv"


@pytest.mark.parametrize("case", READ)
def test_what_stands_beside_is_used(tmp_path, case):
    given, how, (north, east) = READ[case]
    table = read_table(source_of(given, tmp_path), **how)
    n = len(table.values)
    assert n in (39, 40)
    np.testing.assert_allclose(table.latitude_degrees, north * NORTH[:n], atol=1e-7)
    np.testing.assert_allclose(table.longitude_degrees, east * EAST[:n], atol=1e-7)
    np.testing.assert_allclose(table.values, VALUES[:n], rtol=1e-12)
    assert table.units == ("s" if case == "durations" else "")


@pytest.mark.parametrize("form", ["batch", "dask", "polars decimals"])
def test_frames_of_other_packages_are_read(form):
    if form == "polars decimals":
        polars = pytest.importorskip("polars")
        frame = polars.DataFrame({name: TABLE[name].to_numpy() for name in TABLE})
        given = frame.with_columns(polars.col("temp").cast(polars.Decimal(scale=2)))
    elif form == "dask":
        given = pytest.importorskip("dask.dataframe").from_pandas(TABLE, npartitions=3)
    else:
        given = pytest.importorskip("pyarrow").RecordBatch.from_pandas(TABLE)
    table = read_table(given)
    assert table.latitude_degrees.tolist() == NORTH.tolist()
    np.testing.assert_allclose(table.values, VALUES, rtol=1e-12)


def test_a_lazy_frame_that_is_too_large_is_named(monkeypatch):
    monkeypatch.setattr(frames, "MOST_COLLECTED", 39)
    for lazy in (
        pytest.importorskip("polars").from_dict(TABLE.to_dict("list")).lazy(),
        pytest.importorskip("dask.dataframe").from_pandas(TABLE, npartitions=3),
    ):
        with pytest.raises(DataError) as refused:
            read_table(lazy)
        assert refused.value.key == "too-large"


SIX = ["200701", "200702"] * 20
SCALED = (NORTH - NORTH.mean()) / NORTH.std(), (EAST - EAST.mean()) / EAST.std()
MANY = RNG.uniform(46.0, 55.0, 60), RNG.uniform(5.0, 17.0, 60)
SEXAGESIMAL = [np.round(np.trunc(axis) + 0.6 * (axis % 1.0), 2) for axis in MANY]
DOTTED = pd.DataFrame({"latitude": SEXAGESIMAL[0], "longitude": SEXAGESIMAL[1], "temp": RNG.normal(size=60)})

LEVELS = {"pres": (5.4, 100.3), "upper_depth": (0.0, 0.3), "elev": (10.5, 2.0), "wavelength": (443.5, 555.0),
          "freq": (10.65, 18.7), "foo": (0.5, 1.5), "member": (0, 1), "expver": (1, 5)}  # fmt: skip
REFUSED = {
    **{
        name: (twice(**{name: pair}), "levels-differ", {name: "*"})
        for name, pair in LEVELS.items()
    },
    "seconds since 1970": (
        with_columns(unix_time=1593604800 + np.arange(40)), "no-time", {"unix_time": "*"},
    ),
    "other day": (twice(mjd=(59031.5, 59032.5)), "no-time", {"mjd": "*"}),
    "elements": (with_columns(parameter=["a", "b"] * 20), "elements-differ", {"parameter": "*"}),
    "flags": (with_columns(temp_flag_w=[2, 2, 4, 2] * 10), "flags-differ", {"temp_flag_w": 2}),
    "some flags": (with_columns(qf=["", "bad"] * 20), "flags-differ", {"qf": ""}),
    "outliers": (with_columns(is_outlier=[True, True, False, True] * 10), "flags-differ",
                 {"is_outlier": False}),
    "no good value": (with_columns(qc_text="suspect"), "flags-differ", {"qc_text": "*"}),
    "codes of flags": (with_columns(qc=[4, 4, 1, 4] * 10), "flags-differ", {"qc": 1}),
    "flags of places": (with_columns(lat_qc=[1.0, 4.0] * 20), "flags-differ", {"lat_qc": 1.0}),
    "heights": (with_columns(anemometer_height_m=[10, 10, 2, 10] * 10), "levels-differ",
                {"anemometer_height_m": 10}),
    "horizons": (with_columns(hzn_top=[0, 60] * 20), "levels-differ", {"hzn_top": 0}),
    "pollutants": (with_columns(ParameterName=["OZONE", "PM2.5"] * 20), "elements-differ",
                   {"ParameterName": "OZONE"}),
    "fractions of water": (with_columns(fraction=["total", "dissolved"] * 20), "materials-differ",
                           {"fraction": "total"}),
    "periods": (with_columns(period_h=[24, 24, 6, 12] * 10), "periods-differ", {"period_h": 24}),
    "datums": (with_columns(Datum=["MLLW", "NAVD88"] * 20), "systems-differ", {"Datum": "MLLW"}),
    "censored": (with_columns(remark_cd=["", "", "<", ""] * 10), "limit", {"remark_cd": ""}),
    "not detected": (with_columns(lab_qualifier=["U"] * 40), "limit", {"lab_qualifier": "*"}),
    "units of the value": (with_columns(temp_unit=["K", "degC"] * 20), "several-units", {"temp_unit": "K"}),
    "null island": (with_columns(latitude=np.r_[0.0, NORTH[1:]], longitude=np.r_[0.0, EAST[1:]]), "nowhere",
                    {"latitude": "*", "longitude": "*"}),
    "two places": (with_columns(lat=NORTH + 3.0, lon=EAST - 4.0), "which-column", None),
    "several units": (with_columns(unit=["degC", "degF"] * 20), "several-units", {"unit": "degC"}),
    "zone": (with_columns(time=JULY[:-1], timezone="CET"), "time-zone", {"timezone": "*"}),
    "not the signs": (with_columns(latitude=-NORTH, ns="N"), "hemisphere", {"ns": "*"}),
    "unusual name": (with_columns(side=["N", "S"] * 20), "hemisphere", {"side": "*"}),
    "time in text": (
        with_columns(valid=["2020-07-01 00:53", "2020-07-01 01:53"] * 20), "no-time", {"valid": "*"},
    ),
    "no hemisphere": (with_columns(lat_dir="up"), "hemisphere", {"lat_dir": "*"}),
    "fractions": (with_columns(lat_min=30.0), "minutes", {"lat_min": "*"}),
    "no sign": (
        pd.DataFrame({**PARTS, "lat_deg": np.where(np.arange(40) < 5, -1, 0), "temp": VALUES}), "sign", None,
    ),
    "scaled": (with_columns(latitude=SCALED[0], longitude=SCALED[1]), "scaled",
               {"latitude": "*", "longitude": "*"}),
    "degrees.minutes": (DOTTED, "degrees-and-minutes", {"latitude": "*", "longitude": "*"}),
    "lead": (with_columns(time=JULY, step=24), "reference-time", None),
    "season": (with_columns(year=2020, season="JJA"), "no-time", None),
    "week": (with_columns(week=np.arange(40) % 5), "no-time", None),
    "sampled": (with_columns(sample_date=["2020-07-01", "2020-07-02"] * 20), "no-time", {"sample_date": "*"}),
    "clock of no known name": (with_columns(date="2020-07-01", at="06:00"), "times-of-day", {"at": "*"}),
    "clock beside whole numbers": (
        with_columns(UTC_DATE=20200701, UTC_TIME=[300, 1500] * 20), "no-time", {"UTC_TIME": "*"},
    ),
    "years": (with_columns(Jahr=[1990, 2020] * 20), "no-time", {"Jahr": "*"}),
    "months": (with_columns(yyyymm=[200701, 200702] * 20), "no-time", {"yyyymm": "*"}),
    "seconds of no known name": (with_columns(dt=[1577880000, 1593604800] * 20), "no-time", {"dt": "*"}),
    "six digits": (with_columns(date=SIX), "no-time-in-cell", None),
    "short year": (with_columns(year=20, month=7), "no-time-in-cell", None),
    "hexadecimal": (with_columns(temp=[*VALUES[:-1].astype(str), "0x10"]), "no-number", None),
    "infinity": (with_columns(temp=[*VALUES[:-1].astype(str), "infinity"]), "no-number", None),
    "full width": (with_columns(temp=[*VALUES[:-1].astype(str), "\uff11\uff12"]), "no-number", None),
    "limit": (with_columns(temp=[*VALUES[:-1].astype(str), "<0.1"]), "limit", None),
    "word": (with_columns(temp=[*VALUES[:-1].astype(str), "ND"]), "no-number", None),
    "thousands": (
        text(";", latitude=comma(NORTH), longitude=comma(EAST), temp=["1.004", "997"] * 20),
        "decimal-mark", None,
    ),
    "thousands beside whole degrees": (
        text(";", latitude=NORTH.astype(int), longitude=EAST.astype(int), temp=["1.004", "997"] * 20),
        "decimal-mark", None,
    ),
    "thousands in text": (with_columns(temp=["1,004", "997"] * 20), "no-number", None),
    "points and commas": (text(";", temp=["1,004", "997"] * 20), "decimal-mark", None),
    "times": (with_columns(temp=pd.Timestamp("2020-07-01")), "no-numbers", None),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_told_is_refused(tmp_path, case):
    given, key, where = REFUSED[case]
    source = source_of(given, tmp_path)
    with pytest.raises((ArgumentError, DataError)) as refused:
        read_table(source, value="temp")
    assert refused.value.key == key
    settings = [remedy for remedy in refused.value.remedies if isinstance(remedy, Setting)]
    offered = [remedy.value for remedy in settings if remedy.name == "where"]
    assert where in offered if where is not None else not offered
    if where is not None:  # the remedy helps
        assert read_table(source, value="temp", where=where).values.size > 0


@pytest.mark.parametrize(
    ("column", "cells", "together"),
    [("utm_zone", [32, 33], "system"), ("temp_flag_w", [2, 4], "good"), ("period_h", [24, 6], "quantity")],
)
def test_all_rows_are_offered_on_a_condition_that_makes_them_right(column, cells, together):
    table = with_columns(**{column: cells * 20}).rename(columns={"latitude": "x", "longitude": "y"})
    with pytest.raises(ArgumentError) as refused:
        read_table(table, value="temp", plane=True)
    (condition,) = [each.so_that for each in refused.value.remedies if each.value == {column: "*"}]
    assert together in condition  # one quantity is measured in two zones, and under bad flags, too


@pytest.mark.parametrize(
    ("cells", "key"),
    [
        (("sign", 1, -1), "values-scaled"), (("pm", "plus", "minus"), "values-scaled"),
        (("multiplier", 0.1, 0.1), "values-scaled"), (("value_offset", 3.5, 0.0), "values-scaled"),
        (("state", "bad", "bad"), "flags-differ"), (("valid", False, False), "flags-differ"),
        (("scenario", "low", "high"), "categories-differ"), (("rcp", 4.5, 8.5), "categories-differ"),
        (("source", "station", "model"), "categories-differ"), (("imputed", 0, 1), "categories-differ"),
        (("method", "measured", "interpolated"), "categories-differ"),
        (("stage", "raw", "corrected"), "categories-differ"),
        (("what", "daily maximum", "daily mean"), "categories-differ"),
        (("is_negative", 0, 1), "values-scaled"), (("use", "yes", "no"), "flags-differ"),
        (("Validity", 1, -1), "flags-differ"), (("QN_9", 3, 1), "flags-differ"), (("q_mm", 1.5, 2.5), None),
        (("foo", "mg/l", "ug/l"), "several-units"), (("sex", "m", "f"), None),
        (("basis", "wet", "dry"), "categories-differ"), (("weight_type", "wet", "dry"), "categories-differ"),
        (("reduced_to_sea_level", "yes", "no"), "categories-differ"), (("ground", "wet", "dry"), None),
        (("baseline", "1961-1990", "1991-2020"), "categories-differ"), (("member", 0, 1), "levels-differ"),
        (("sign", "+", ""), None), (("multiplier", 1, 1), None), (("exponent", 0, 0), None),
        (("surface", "land", "sea"), None), (("station_type", "background", "traffic"), None),
        (("status", "active", "closed"), None), (("status", "provisional", "approved"), None),
        (("class", "max", "maximum"), None), (("city", "Max", "Mean"), None), (("wind_power", 1, 3), None),
        (("is_coastal", True, False), None), (("is_outlier", False, False), None),
        (("comment", "-", ""), None),
    ],
)  # fmt: skip
def test_words_and_numbers_that_change_what_a_value_is_are_asked_about(cells, key):
    name, *pair = cells
    table = with_columns(**{name: pair * 20})
    if key is None:
        assert read_table(table, value="temp").values.tolist() == VALUES.tolist()
        return
    with pytest.raises((ArgumentError, DataError)) as refused:
        read_table(table, value="temp")
    assert refused.value.key == key
    for remedy in refused.value.remedies:
        assert read_table(table, value="temp", where=remedy.value).values.size


def test_a_code_that_is_bad_in_some_schemes_is_said():
    assert "in every row" in read_table(with_columns(temp_qc=4), value="temp").notes[0]
    assert not read_table(with_columns(temp_qc=1), value="temp").notes


def test_chance_is_no_sign_of_minutes():
    for axes in (MANY, [np.round(2.0 * axis) / 2.0 for axis in MANY], [50.0 + 0.01 * np.arange(60)] * 2):
        read_table({"latitude": np.round(axes[0], 2), "longitude": np.round(axes[1], 2), "t": MANY[0]})


@pytest.mark.parametrize(
    ("columns", "how", "expected"),
    [
        ({"year": 2020, "doy": 183}, {}, "2020-07-01"),
        ({"year": [2020, 2021], "julian_day": [366, 365]}, {}, "2020-12-31"),
        ({"year": 2020, "doy": [183, 184]}, {"where": {"doy": 183}}, "2020-07-01"),
        ({"year": 2020, "month": 7, "doy": 183}, {}, "2020-07-01"),
        ({"date": "2020-07-01", "doy": 183, "season": "JJA"}, {}, "2020-07-01"),
        ({"time": "2024-06-30 24:00"}, {}, "2024-07-01"),
        ({"time": "30.06.2024 24:00:00"}, {}, "2024-07-01"),
        ({"time": "2024063024"}, {}, "2024-07-01"),
        ({"date": ["201301", "201302"]}, {}, "2013-01-01"),
        ({"Data": "2020-06-30", "Hora UTC": "2400 UTC"}, {"columns": {"time": "Data"}}, "2020-07-01"),
        ({"YEAR": 2020, "MO": 7, "DY": 1, "HR": 12.5}, {}, "2020-07-01T12:30"),
        ({"YYYYMM": [200701, 200702]}, {"columns": {"time": "YYYYMM"}}, "2007-01-01"),
        ({"date": "2020-07-01", "sunrise": "05:10"}, {"where": {"sunrise": "*"}}, "2020-07-01"),
        ({"time": "2020-07-01T00:00:01", "Uhrzeit": "05:10"}, {}, "2020-07-01T00:00:01"),
        ({"date": "2020-07-01", "score": "66:90", "mm": [3, 5]}, {}, "2020-07-01"),
        ({"time": pd.Timestamp("2020-07-01T02:00", tz="Europe/Berlin")}, {}, "2020-07-01"),
        ({"time": dt.datetime(2020, 7, 1, tzinfo=dt.UTC)}, {}, "2020-07-01"),
    ],
)
def test_times_of_other_columns(columns, how, expected):
    rows = pd.DataFrame({"lat": [1.0, 2.0], "lon": [3.0, 5.0], "t": [0.5, 1.5]}).assign(**columns)
    assert read_table(rows, value="t", **how).times[0] == np.datetime64(expected)


NOON = "2020-07-01 12:00"
ZONES = {
    "time": 12, "time (UTC)": 12, "Date/Time": 12, "time (ISO 8601)": 12, "time (24h)": 12, "time_utc": 12,
    "time (CET)": 11, "Time (EST)": 17, "time [UTC-05:30]": 17.5, "time (+02:00)": 10, "obs_time_jst": 3,
    "Zeit (MESZ)": 10, "time_utc_plus_2": 10, "time (local, GMT+1)": 11, "time (US/Pacific)": 19,
    **dict.fromkeys(["time (LST)", "time_local", "LocalTime", "date_local", "fecha hora local", "time (IST)",
                     "time (CET/CEST)", "time_est", "time (CT)", "time (BOT)", "time_local (UTC)"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ZONES)
def test_times_are_in_the_zone_that_their_name_states(name):
    rows = pd.DataFrame({"lat": [1.0, 2.0], "lon": [3.0, 5.0], "t": [0.5, 1.5], name: NOON})
    how = {"value": "t", "columns": {"time": name}}
    if ZONES[name] is None:
        with pytest.raises(DataError) as refused:
            read_table(rows, **how)
        assert refused.value.key == "time-zone"
        noon = read_table(rows, where=refused.value.remedies[0].value, **how).times[0]
        assert noon == np.datetime64(NOON)
        return
    expected = np.datetime64("2020-07-01", "s") + np.timedelta64(int(3600 * ZONES[name]), "s")
    assert read_table(rows, **how).times[0] == expected


def test_a_zone_is_stated_once():
    rows = {"lat": [1.0, 2.0], "lon": [3.0, 5.0], "t": [0.5, 1.5]}

    def hours(**columns):
        table = pd.DataFrame({**rows, **columns})
        return (read_table(table, value="t").times[0] - np.datetime64("2020-07-01")) / np.timedelta64(1, "h")

    berlin = pd.to_datetime([NOON, NOON]).tz_localize("Europe/Berlin")
    assert hours(**{"time (CET)": berlin}) == hours(**{"time (CET)": [f"{NOON}+02:00"] * 2}) == 10
    assert hours(time=NOON, time_local="2020-07-01 14:00", is_dst=False) == 12
    assert hours(**{"time (UTC)": NOON, "tz": "Europe/Berlin"}) == 12
    assert hours(date="2020-07-01", **{"hour (CET)": [6, 6]}) == 5
    assert hours(**{"date (local)": "2020-07-01"}) == 0
    assert hours(time=f"{NOON} EST") == 17
    assert hours(time="01.07.2020 12:00 CEST") == 10
    local = {"date (local)": "2020-07-01", "time (UTC)": "12:00"}
    with pytest.raises(ArgumentError) as refused:
        hours(**local)
    assert refused.value.key == "time-zone"
    for beside in ({"is_dst": True}, {"tz_offset": 2}, {"station_timezone": "CET"}):
        with pytest.raises(DataError) as refused:
            hours(time=NOON, **beside)
        assert refused.value.key == "time-zone"


@pytest.mark.parametrize(
    "columns",
    [{"year": 2021, "doy": 366}, {"year": 2020, "month": 6, "doy": 183}, {"year": 2020, "doy": 0.5}],
)
def test_days_of_the_year_that_cannot_be_are_refused(columns):
    rows = pd.DataFrame({"lat": [1.0, 2.0], "lon": [3.0, 5.0], "t": [0.5, 1.5]}).assign(**columns)
    with pytest.raises((ArgumentError, DataError)):
        read_table(rows, value="t")


def test_a_sign_of_zero_degrees_is_kept(tmp_path):
    rows = b"lat_deg,lat_min,lon_deg,lon_min,t\n-0,30,10,15,1\n0,30,-0,15,2\n-1,30,3,15,3\n"
    table = read_table(source_of(rows.replace(b"\n0,", b"\n2,"), tmp_path), value="t")
    assert table.latitude_degrees.tolist() == [-0.5, 2.5, -1.5]
    assert table.longitude_degrees.tolist() == [10.25, -0.25, 3.25]


def test_counters_are_no_values():
    for name in ("obs", "observation", "measurement"):
        rows = {"latitude": NORTH, "longitude": EAST, name: np.arange(1, 41)}
        with pytest.raises(ArgumentError) as refused:
            read_table(rows)
        assert refused.value.key == "no-column"
        assert read_table({**rows, name: VALUES}).name == name
        with pytest.raises(ArgumentError) as refused:
            read_table({**rows, name: VALUES, "temp": VALUES})
        assert (refused.value.key, refused.value.remedies) == ("which-value", (Setting("value", "temp"),))


def test_repeated_rows_are_said():
    both = pd.concat([TABLE, TABLE[:3]])
    assert "3 rows are copies" in read_table(both).notes[0]
    rounded = pd.concat([TABLE, TABLE[:1], TABLE[:1].assign(temp=0.5)])  # measurements that agree by chance
    assert read_table(rounded).values.size == 42
    replicates = read_table(twice(), value="temp")
    assert "80 rows share place and time" in replicates.notes[0]
    assert by_time_and_place(read_table(twice().assign(latitude=np.tile(NORTH, 2) + 1e-9))).values.shape == (
        1,
        80,
    )
    some = twice(person=("a", "b"))
    some.loc[45:, "person"] = "a"
    assert read_table(some, value="temp").notes[0].endswith("they differ in 'person'.")


def test_units_come_with_a_column_or_beside_it():
    columns = {"latitude": NORTH, "longitude": EAST}
    stated = Column(VALUES, {"units": "degC", "standard_name": "air_temperature"})
    assert read_table({**columns, "t": stated}).units == "degC"
    packed = Column(VALUES, {"units": "K", "scale_factor": 1.0, "missing_value": VALUES[0]})
    assert read_table({**columns, "t": packed}).dropped_missing == 1
    assert read_table(with_columns(unit="degF"), value="temp").units == "degF"
    with pytest.raises(DataError) as refused:
        read_table({**columns, "t": Column(VALUES * 10, {"standard_name": "wind_from_direction"})})
    assert refused.value.key == "direction"
    noisy = read_table({**columns, "t (degF)": VALUES, "noise_std (K)": np.full(40, 0.5)}, value="t")
    np.testing.assert_allclose(noisy.noise_std, 0.9)


def test_names_with_units_and_blanks_are_those_of_fields():
    frame = TABLE.rename(columns={"temp": "Water Level/Gauge (ft)"})
    assert read(frame).name == "Water_Level_Gauge"
    assert read_table(frame, value="Water_Level_Gauge").values.tolist() == VALUES.tolist()
    said = ObservationsTable(source="table:t.csv", variable="Water Level/Gauge (ft)", times=["2020-07-01"])
    assert said.variable == "Water_Level_Gauge"


def test_a_name_that_several_columns_have_is_named(tmp_path):
    frame = TABLE.assign(other=VALUES)
    frame.columns = ["latitude", "longitude", "temp", "temp"]
    for source in (frame, source_of(frame.to_csv(index=False).encode(), tmp_path)):
        with pytest.raises(ArgumentError) as refused:
            read_table(source, value="temp")
        assert refused.value.key == "duplicate-columns"


def test_rows_without_names_are_no_table():
    for given in (TABLE.to_dict("records"), TABLE.to_numpy(), TABLE["temp"]):
        with pytest.raises(ArgumentError) as refused:
            read_table(given)
        assert refused.value.key == "no-table"


def test_places_have_hemispheres_and_minutes_too():
    places = read_places(pd.DataFrame({**PARTS, "lat_hem": "S"}).to_records())
    np.testing.assert_allclose(places.latitude_degrees, -NORTH, atol=1e-7)
    np.testing.assert_allclose(places.longitude_degrees, EAST, atol=1e-7)


def test_measured_depths_that_are_nearly_one_level_are_no_levels():
    table = {"lat": np.linspace(40.0, 50.0, 40), "lon": np.linspace(0.0, 10.0, 40), "t": np.arange(40.0)}
    measured = 5.0 + 0.1 * (np.arange(40) % 10)
    assert read_table({**table, "pres": measured}, value="t").values.size == 40
    with pytest.raises(ArgumentError) as refused:
        read_table({**table, "pres": np.resize([5.0, 100.0], 40)}, value="t")
    assert refused.value.key == "levels-differ"
