"""Calendars of climate models: their dates are taken as the dates of the same name in the standard calendar.

Every date of a calendar without leap years exists in the standard one. Of others some do not, such as
30 February of a year of twelve months of 30 days: these are refused.
"""

import re
from collections.abc import Iterable, Mapping
from typing import cast

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Indices, Times
from cagp_dist.errors import DataError

SOURCE_CALENDAR = "source_calendar"  # attribute of a dataset whose times were in another calendar: which

STANDARD = ("", "standard", "gregorian", "proleptic_gregorian")  # names of the standard calendar

_USUAL = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_LEAP = (31, 29, *_USUAL[2:])
_MONTHS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("noleap", "365_day"), _USUAL),
    **dict.fromkeys(("all_leap", "366_day"), _LEAP),
    **dict.fromkeys(("360_day", "360"), (30,) * 12),
}
"""Days of the months of every year."""

_MILLISECONDS = {"day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1_000}
_SINCE = (
    r"s? since (\d{1,4})-(\d{1,2})-(\d{1,2})"
    r"(?:[T ]+(\d{1,2})(?::(\d{1,2}))?(?::(\d{1,2}(?:\.\d*)?))?)?\s*(?:Z|UTC|[+-]?0{1,2}(?::?00)?)?"
)
_UNITS = re.compile(rf"(day|hour|minute|second|hr|min|sec|d|h|s){_SINCE}", re.IGNORECASE)
_MONTHLY = re.compile(rf"(month|mon|year|yr){_SINCE}", re.IGNORECASE)
_SHORT = {"hr": "hour", "min": "minute", "sec": "second", "d": "day", "h": "hour", "s": "second"}


def is_other(attributes: Mapping[str, object]) -> bool:
    """Whether an array, by its attributes, holds times that only this module reads: calendars, months."""
    units = str(attributes.get("units", "")).strip()
    return (calendar_of(attributes) in _MONTHS and " since " in units) or bool(_MONTHLY.fullmatch(units))


def calendar_of(attributes: Mapping[str, object]) -> str:
    """Name of the calendar of an array, in lower case; empty if it states none."""
    return str(attributes.get("calendar", "")).strip().lower()


def decode(raw: xr.Dataset) -> xr.Dataset:
    """Decode a dataset that was opened with ``decode_cf=False``, times of other calendars included."""
    times: dict[str, xr.Variable] = {}
    calendars: dict[str, None] = {}
    for name, variable in raw.variables.items():
        if not is_other(variable.attrs):
            continue
        calendar, attributes = calendar_of(variable.attrs), dict(variable.attrs)
        if calendar in _MONTHS:
            calendars[calendar] = None
        moments = standard_times(variable.values, str(attributes.pop("units")), calendar=calendar)
        times[str(name)] = xr.Variable(
            variable.dims, moments, {key: value for key, value in attributes.items() if key != "calendar"}
        )
    said = {SOURCE_CALENDAR: ", ".join(calendars)} if calendars else {}
    return xr.decode_cf(raw.assign(times).assign_attrs(said), decode_timedelta=False)


def standard_times(values: NDArray[np.generic], units: str, *, calendar: str) -> Times:
    """Give counted times as dates of the standard calendar."""
    monthly = _MONTHLY.fullmatch(units.strip())
    if monthly is not None:
        return _by_months(np.asarray(values, dtype=np.float64), monthly, units, calendar)
    months = _MONTHS[calendar]
    starts, year = np.concatenate([[0], np.cumsum(months)]), sum(months)
    found = _UNITS.fullmatch(units.strip())
    if found is None or not 1 <= int(found[3]) <= 12:
        raise DataError(
            f"the times have the units {units!r} in the calendar {calendar!r}; expected months, days, hours, "
            'minutes or seconds since a date, such as "days since 1850-01-01".',
            key="calendar",
        )
    step = found[1].lower()
    day = year * int(found[2]) + int(starts[int(found[3]) - 1]) + int(found[4]) - 1
    seconds = 3600 * int(found[5] or 0) + 60 * int(found[6] or 0) + float(found[7] or 0.0)
    counted = np.asarray(values, dtype=np.float64)
    known = np.isfinite(counted)
    since = np.rint(np.where(known, counted, 0.0) * _MILLISECONDS[_SHORT.get(step, step)]).astype(np.int64)
    days, rest = np.divmod(since + round(1000.0 * seconds), _MILLISECONDS["day"])
    years, of_year = np.divmod(days + day, year)
    month = np.asarray(np.searchsorted(starts, of_year, side="right")) - 1
    dates = _dates(years, month, of_year - starts[month], calendar=calendar)
    return np.where(known, dates + rest.astype("timedelta64[ms]"), np.datetime64("NaT", "ms"))


def _by_months(counted: Array, since: re.Match[str], units: str, calendar: str) -> Times:
    """Give times counted in months or years: so many after a date, and a part of the next one."""
    step = 12 if since[1].lower().startswith("y") else 1
    year, month, day = (int(since[part]) for part in (2, 3, 4))
    if not 1 <= month <= 12 or not 1 <= day <= 28:
        raise DataError(
            f"the times have the units {units!r}; expected a date of which every month has the day, 1 to 28. "
            "Count the times in days with xarray and write the file again.",
            key="calendar",
        )
    if _MONTHS.get(calendar) == (30,) * 12:
        days = f"days{units.strip()[since.end(1) :].removeprefix('s')}"
        return standard_times(30.0 * step * counted, days, calendar=calendar)
    known = np.isfinite(counted)
    whole = np.floor(np.where(known, counted, 0.0))
    first = 12 * (year - 1970) + month - 1 + step * whole.astype(np.int64)
    start, end = (
        (first + more).astype("datetime64[M]").astype("datetime64[D]").astype("datetime64[ms]")
        for more in (0, step)
    )
    of_day = 3600 * int(since[5] or 0) + 60 * int(since[6] or 0) + float(since[7] or 0.0)
    offset = (day - 1) * _MILLISECONDS["day"] + round(1000.0 * of_day)
    part = np.rint((np.where(known, counted, 0.0) - whole) * (end - start).astype(np.float64))
    moments = start + (part.astype(np.int64) + offset).astype("timedelta64[ms]")
    return np.where(known, moments, np.datetime64("NaT", "ms"))


def _dates(years: Indices, months: Indices, days: Indices, *, calendar: str) -> Times:
    """Dates of the standard calendar; months and days are counted from 0."""
    first = (12 * (years - 1970) + months).astype("datetime64[M]")
    dates = first.astype("datetime64[D]") + days
    absent = np.flatnonzero(dates.astype("datetime64[M]") != first)
    if absent.size:
        one = absent[0]
        raise DataError(
            f"has times in the calendar {calendar!r}, of which {absent.size:,} do not exist in the standard "
            f"one, such as {first.flat[one]}-{days.flat[one] + 1:02d}. Put the field into that calendar "
            "first, in Python with the package cftime: dataset.convert_calendar('standard', "
            "align_on='year'), or leave these times out.",
            key="calendar",
        )
    return dates.astype("datetime64[ms]")


def standard_dates(objects: NDArray[np.object_]) -> Times:
    """Give dates of the package cftime, or others with year, month, day and so on, as standard ones."""
    dates, since = _days_and_time(objects)
    days = _dates(*dates, calendar=calendar_of_dates(objects) or "unknown")
    moments: Times = np.asarray(days.astype("datetime64[us]") + since, dtype="datetime64[us]")
    return moments.reshape(objects.shape)


def calendar_of_dates(moments: NDArray[np.generic]) -> str:
    """Calendar of dates of the package cftime, in lower case; empty of others."""
    return str(getattr(moments.flat[0], "calendar", "")).lower() if moments.dtype.kind == "O" else ""


def evenly_counted(moments: NDArray[np.generic], calendar: str) -> Times:
    """Give moments that are as far apart as dates are in their calendar, where months have other lengths.

    Dates are those of the package cftime, or standard ones of the same name. In a calendar without leap years
    28 February and 1 March are a day apart in all years.
    """
    months = _MONTHS.get(calendar)
    if months is None:
        if moments.dtype.kind == "O":
            return standard_dates(cast("NDArray[np.object_]", moments))
        return cast("Times", moments)
    if moments.dtype.kind == "M":
        day, month = moments.astype("datetime64[D]"), moments.astype("datetime64[M]")
        since = (moments - day).astype("timedelta64[us]").ravel()
        of_month = (day - month.astype("datetime64[D]")).astype(np.int64).ravel()
        counted = month.astype(np.int64).ravel()
        years, in_year = 1970 + counted // 12, counted % 12
    else:
        (years, in_year, of_month), since = _days_and_time(cast("NDArray[np.object_]", moments))
    starts = np.concatenate([[0], np.cumsum(months)])
    ordinal = (years - 1970) * starts[-1] + starts[in_year] + of_month
    found = ordinal.astype("datetime64[D]").astype("datetime64[us]") + since
    return np.asarray(found).reshape(moments.shape)


def _days_and_time(objects: NDArray[np.object_]) -> tuple[NDArray[np.int64], NDArray[np.timedelta64]]:
    """Years, months and days (3, n), the last two from 0, and times of day."""
    parts = np.array(
        [
            (t.year, t.month - 1, t.day - 1, t.hour, t.minute, t.second, t.microsecond)
            for t in objects.ravel().tolist()
        ],
        dtype=np.int64,
    )
    microseconds = parts[:, 3:] @ np.array([3_600_000_000, 60_000_000, 1_000_000, 1])
    return parts[:, :3].T, microseconds.astype("timedelta64[us]")


def noting(field: xr.Dataset, parts: Iterable[xr.Dataset]) -> xr.Dataset:
    """Give a field the attribute `SOURCE_CALENDAR` of what it was made from."""
    found = dict.fromkeys(str(part.attrs[SOURCE_CALENDAR]) for part in parts if SOURCE_CALENDAR in part.attrs)
    return field.assign_attrs({SOURCE_CALENDAR: ", ".join(found)}) if found else field


def named(source: str, field: xr.Dataset) -> str:
    """Name of the source of a field, with the other calendar that its times were in, if they were."""
    calendar = field.attrs.get(SOURCE_CALENDAR)
    return f"{source} (calendar {calendar}, dates taken as they are)" if calendar else source
