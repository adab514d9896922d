"""Dates of other calendars against counting days one by one."""

from types import SimpleNamespace

import numpy as np
import pytest

from cagp_dist.era5.calendars import dates_of, standard_times
from cagp_dist.errors import DataError

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
            with pytest.raises(
                DataError, match=rf"of which 1 do not exist in the standard one, such as {text}"
            ):
                standard_times(np.array([count]), "days since 1897-01-01", calendar=calendar)
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


@pytest.mark.parametrize("units", ["months since 1850-01-01", "days since 1850-13-01", "days", "day as %Y"])
def test_units_that_cannot_be_read_are_refused(units):
    with pytest.raises(DataError, match=r"expected days, hours, minutes or seconds since a date"):
        standard_times(np.array([1.0]), units, calendar="noleap")


def cftime(*parts):
    """What the package cftime gives, as far as it matters."""
    names = ("year", "month", "day", "hour", "minute", "second", "microsecond")
    return SimpleNamespace(**dict(zip(names, parts, strict=True)), calendar="360_day")


def test_dates_of_cftime():
    found = dates_of(np.array([cftime(2001, 12, 30, 6, 30, 1, 5), cftime(1, 2, 28, 0, 0, 0, 0)]))
    expected = ["2001-12-30T06:30:01.000005", "0001-02-28"]
    np.testing.assert_array_equal(found, np.array(expected, dtype="datetime64[us]"))
    with pytest.raises(DataError, match=r"'360_day'.* such as 2001-02-30"):
        dates_of(np.array([cftime(2001, 2, 30, 0, 0, 0, 0)]))
