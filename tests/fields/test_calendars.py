"""Dates of other calendars against counting days one by one."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from cagp_dist.errors import DataError
from cagp_dist.fields.calendars import standard_dates, standard_times
from cagp_dist.fields.files.local_files import open_file

from ..joined import one_after_another

USUAL = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
MONTHS = {"noleap": USUAL, "366_day": (31, 29, *USUAL[2:]), "360_day": (30,) * 12}


def days_from(year, calendar, count):
    """(year, month, day) of so many days after the first of a year, each after the other."""
    month = day = 1
    for _ in range(count):
        yield year, month, day
        day += 1
        if day > MONTHS[calendar][month - 1]:
            day, month = 1, month + 1
        if month > 12:
            month, year = 1, year + 1


@pytest.mark.parametrize("calendar", MONTHS)
def test_every_day_of_nine_years(calendar):
    written = [f"{year}-{month:02d}-{day:02d}" for year, month, day in days_from(1897, calendar, 9 * 365)]
    there, expected = [], []
    for count, text in enumerate(written):
        try:
            expected.append(np.datetime64(text, "ms"))
            there.append(count)
        except ValueError:  # 30 February, or 29 February of 1897
            with pytest.raises(DataError) as refusal:
                standard_times(np.array([count]), "days since 1897-01-01", calendar=calendar)
            assert refusal.value.key == "calendar"
    assert (len(there) == len(written)) == (calendar == "noleap")
    found = standard_times(np.array(there), "days since 1897-01-01", calendar=calendar)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("units", "value", "date"),
    [
        ("days since 1850-1-1", 54059.5, "1998-02-09T12"),
        ("days since 0001-01-01 00:00:00", 730000.0, "2001-01-01"),
        ("hours since 2000-03-01 06:00:0.0 UTC", -1.0 / 3.0, "2000-03-01T05:40"),
        ("seconds since 2000-12-31T23:59:59Z", 1, "2001-01-01"),
        ("Days Since 2001-01-01 00:00:00 +00:00", 59, "2001-03-01"),
    ],
)
def test_units(units, value, date):
    found = standard_times(np.array([value, np.nan]), units, calendar="noleap")
    assert found[0] == np.datetime64(date)
    assert np.isnat(found[1])


@one_after_another
@pytest.mark.parametrize("units", ["eons since 1850-01-01", "days since 1850-13-01", "days", "day as %Y"])
def test_units_that_cannot_be_read_are_refused(units):
    with pytest.raises(DataError) as refusal:
        standard_times(np.array([1.0]), units, calendar="noleap")
    assert refusal.value.key == "calendar"


@pytest.mark.parametrize(
    ("units", "calendar", "value", "date"),
    [
        ("months since 1960-01-01", "standard", 722, "2020-03-01"),
        ("months since 1960-01-01", "", -0.5, "1959-12-16T12"),
        ("Month since 1960-1-15 12:00", "gregorian", 1, "1960-02-15T12"),
        ("months since 1960-01-01", "360", 722.5, "2020-03-16"),
        ("months since 1960-01-01", "360_day", 1.0, "1960-02-01"),
        ("months since 1960-01-01", "noleap", 1.0, "1960-02-01"),
        ("years since 2000-07-01", "standard", 20, "2020-07-01"),
        ("years since 2000-01-01", "360_day", 0.5, "2000-07-01"),
    ],
)
def test_months_and_years_are_those_of_the_calendar(units, calendar, value, date):
    found = standard_times(np.array([value, np.nan]), units, calendar=calendar)
    assert found[0] == np.datetime64(date)
    assert np.isnat(found[1])


def test_months_are_read_from_files(tmp_path):
    path = tmp_path / "monthly.nc"
    time = ("time", [720.0, 721.0], {"units": "months since 1960-01-01", "calendar": "standard"})
    axes = {"latitude": [10.0, 0.0], "longitude": [5.0, 15.0], "time": time}
    values = np.full((2, 2, 2), 280.0)
    raw = xr.Dataset({"t2m": (("time", "latitude", "longitude"), values, {"units": "K"})}, axes)
    raw.to_netcdf(path, engine="scipy")
    found = open_file(path, scratch=tmp_path).time.values
    assert found.astype("datetime64[D]").astype(str).tolist() == ["2020-01-01", "2020-02-01"]


def cftime(*parts):
    """What the package cftime gives, as far as it matters."""
    names = ("year", "month", "day", "hour", "minute", "second", "microsecond")
    return SimpleNamespace(**dict(zip(names, parts, strict=True)), calendar="360_day")


def test_dates_of_cftime():
    found = standard_dates(np.array([cftime(2001, 12, 30, 6, 30, 1, 5), cftime(1, 2, 28, 0, 0, 0, 0)]))
    expected = ["2001-12-30T06:30:01.000005", "0001-02-28"]
    np.testing.assert_array_equal(found, np.array(expected, dtype="datetime64[us]"))
    with pytest.raises(DataError) as refusal:
        standard_dates(np.array([cftime(2001, 2, 30, 0, 0, 0, 0)]))
    assert refusal.value.key == "calendar"
