"""When the rows of a table were measured: columns of times, of dates and of times of day, put together."""

import datetime as dt
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Indices, Mask, Times
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.column_names import ANY, DATE, DAY_OF_YEAR, EMPTY, PART_OF_YEAR, TIME, plain
from cagp_dist.fields.column_roles import IGNORED
from cagp_dist.fields.tables.columns import Columns, refuse_rows, such_rows
from cagp_dist.fields.zones import ABBREVIATIONS, Zone, zone_in, zone_of
from cagp_dist.remedies import Setting
from cagp_dist.text import are_days

HOUR = ("hour", "hour_utc", "hour_of_day", "stunde")
TIME_OF_DAY = (
    *("time_of_day", "time_utc", "utc_time", "clock_time", "hhmm"),
    *("uhrzeit", "zeit", "heure", "hora", "ora", "godzina"),
)
CLOCK = (*HOUR, *TIME_OF_DAY, "minute", "second")  # columns that say when on a day, beside one of dates

FORMS = {4: "%Y", 6: "%Y%m", 8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
"""What whole numbers of so many digits are read as."""

VALID = ("valid_time", "obs_time", "observation_time")  # columns that say when values hold, of forecasts, too
FIRST_YEAR = 1000  # of columns of years, which have four digits

EPOCH = {9: "s", 10: "s", 12: "ms", 13: "ms"}  # of whole numbers of so many digits since 1970, if no dates
EARLIEST_YEAR = 1850  # numbers that would be dates to the hour of earlier years count from 1970

MOST_LOOKED_AT = 1000  # cells that tell whether a column has times of day
LAST_HOUR, LAST_CLOCK = 24, 2400
_SECONDS = {"minute": 60, "second": 1}

EXPECTED = (
    "ISO 8601, such as 2017-04-27T12:00, or 27.04.2017 12:00, 20170427, 2017042712 or seconds since 1970"
)
_DOTTED = re.compile(
    r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?:[ T]+(\d{1,2})(:\d{2}(?::\d{2}(?:\.\d+)?)?(?:[+-]\d\d:?\d\d)?))?"
)
_SLASHED = re.compile(r"\d{1,2}/\d{1,2}/\d{4}\b.*")
_OF_DAY = re.compile(r"(\d{1,2}:\d{2})(:\d{2}(?:\.\d+)?)?")
_COARSE = re.compile(r"\d{4}(?:-?(\d{2}))?")
_LATE = re.compile(r"(\d.*[ T]|\d{8})24((?::?00(?::?00(?:\.0*)?)?)?(?:\s*(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?)")
_YYMMDD = re.compile(r"\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
_LEAD = re.compile(r"step|lead(_?time|_?hours?)|(fc(st)?|forecast)_(hours?|step|period)|fhour|fxx")
_COUNTED = re.compile(
    r"(cal_)?age_(ka|a|kyr|yr|years?)(_bp)?|juld|julian_?date|jd|mjd|(decimal|fractional)_?year|year_?(decimal|fraction)"
)
_NAMES_TIME = re.compile(
    r".*(time|date|day|datum|zeit|fecha|utc|unix|epoch|posix|yyyy|yearm).*|(.*_)?(data|dato|dt|ts|ym)(_.*)?"
)
_NAMES_YEAR = re.compile(
    r"jahr|ano|annee|anno|rok|ar|vuosi|jaar|yr|yyyy|w(ater)?_?ye?a?r|(hydro\w*|season)_year"
)
_NAMES_CLOCK = re.compile(
    r".*(time|uhrzeit|hour)(_.*)?|"
    r"(.*_)?(zeit|heure|hora|ora|orario|godzina|czas|tid|klokke(n|slett)?|kello(naika)?|"
    r"tijd|tijdstip|cas|saat|hhmm)(_.*)?"
)
_CLOCK = re.compile(
    r"(([01]?\d|2[0-4]):[0-5]\d(:[0-5]\d(\.\d+)?)?(\s*(UTC|GMT|Z|[ap]\.?m\.?))?|([01]\d|2[0-4])[0-5]\d\s*(UTC|GMT|Z))",
    re.IGNORECASE,
)
_DATED = re.compile(r"\d{4}-\d\d?-\d\d?\b|\d\d?\.\d\d?\.\d{4}\b")
_DIGITS = re.compile(r"\d{3,4}")
_ABBREVIATED = {
    "year": ("yr", "yyyy", "yy"), "month": ("mo", "mon", "mm"), "day": ("dy", "dd"), "hour": ("hr", "hh"),
    "minute": ("mi", "mn", "mm"),
}  # fmt: skip
"""Parts of dates as NDBC, ICOADS and others write them, where year and month, and day, stand together."""
_UTC = re.compile(r"\s*\b(UTC|GMT|Z)$", re.IGNORECASE)
_ZONE = re.compile(rf"\d{{2}}:\d{{2}}[\d:.]*\s*(Z|[+-]\d{{2}}(?::?\d{{2}})?|{ABBREVIATIONS})$", re.IGNORECASE)


@dataclass(frozen=True)
class Moments:
    """When some rows were measured."""

    times: Times | None  # (n,), in UTC; None if the table does not say
    columns: frozenset[str]  # what was looked at for them
    notes: tuple[str, ...] = ()  # what people should know of them
    zoned: bool = False  # whether they were written with their zones


def about_time(frame: Columns) -> frozenset[str]:
    """Columns that say when, by their names."""
    usual, short = (*TIME, *DATE, *CLOCK, *DAY_OF_YEAR, *PART_OF_YEAR), _abbreviated(frame).values()
    return frozenset(name for name in frame.columns if plain(name) in usual or name in short)


def _abbreviated(frame: Columns) -> dict[str, str]:
    """Columns of parts of dates with short names, ``YY MM DD hh mm``, if they make a date together."""
    spelled = {name: plain(name) for name in frame.columns}
    found: dict[str, str] = {}
    for part, short in _ABBREVIATED.items():
        free = [name for name in frame.columns if name not in found.values() and frame.is_numeric(name)]
        names = [name for usual in (part, *short) for name in free if spelled[name] == usual]
        if part in ("month", "minute"):  # MM and mm
            names.sort(key=lambda name: name.isupper() != (part == "month"))
        if names:
            found[part] = names[0]
    if not {"year", "month"} <= found.keys() or ("day" not in found and spelled[found["month"]] == "mm"):
        return {}
    months = frame.columns[found["month"]]
    if not bool(((months >= 1) & (months <= 12)).all()):
        return {}
    return {part: name for part, name in found.items() if spelled[name] != part}


def moments_of(frame: Columns, given: str | None, kept: Indices, apart: Collection[str] = ()) -> Moments:
    """Read when some rows were measured; of columns in ``apart`` something else was said."""
    if given == IGNORED:
        return Moments(None, about_time(frame))
    chosen = frame.find("time", given, TIME, needed=False)
    others = [name for name in frame.columns if plain(name) in TIME and name not in (chosen, *apart)]
    others.sort(key=lambda name: TIME.index(plain(name)))
    dated = bool(others) or "year" in (*map(plain, frame.columns), *_abbreviated(frame))
    candidates = [name for name in (chosen, *others) if name is not None]
    may_be_numbers = {
        name
        for name in candidates
        if dated and plain(name) not in ("date", *DATE[:3]) and (others or plain(name) in (*TIME, *CLOCK))
    }
    of_day = [
        name for name in candidates if _is_of_day(frame.columns[name][kept], numbers=name in may_be_numbers)
    ]
    days = [name for name in candidates if name not in of_day]
    if days:
        day, base, local = _day(frame, days[:1] if given is not None and days[0] == chosen else days, kept)
        used, to_day = {day}, True
        _check_refined(frame, day, kept, apart)
        if given is None:
            _check_reference(frame, day, kept)
    else:
        date = {part: name for part, name in _date(frame, kept, apart).items() if part in DATE[:3]}
        if not date and of_day:
            raise _no_time(
                f"column {chosen!r} of {frame.title} has times of day, and no column has dates; it has "
                f"{frame.listed}.",
                "COLUMN",
            )
        if not date:
            _check_other_times(frame, kept, apart)
            return Moments(None, frozenset())
        base, of_year = _from_parts(frame, date, kept, apart)
        local, used, to_day = base, {*date.values(), *of_year}, "day" in date or bool(of_year)
        day = next(iter(date.values()))
    clock = _clock(frame, of_day, {*apart, *used}, kept) if are_days(local) else []
    if not to_day:
        if any(_varies(frame, name, kept) for name in clock):
            raise _no_time(
                f"{frame.title} has a column {clock[0]!r} with different times of day and none for the day, "
                "so that it does not say when.",
                "COLUMN",
            )
        clock = []
    for name in clock:
        if (base != local).any() and _says_utc(frame, name, kept):
            raise ArgumentError(
                f"column {name!r} of {frame.title} has times in UTC, and {day!r} has days of another zone. "
                "Write both in UTC, or the time with its day in one column.",
                key="time-zone",
            )
        since = _since_midnight(frame, name, kept)
        base, local = base + since, local + since
        used.add(name)
    zones, note = _zones(frame, day, kept) if days else (False, "")
    zone = None if zones else _zone_of_columns(frame, [*clock, *sorted(used)], apart)
    if zone is not None and not zone[1].is_utc and (clock or _says_hours(frame, day, kept, local)):
        base, note = _out_of_zone(frame, base, *zone, kept)
    _check_unused(frame, base, local, kept, apart=(*used, *apart), of_day=of_day)
    zoned = zones or zone is not None
    return Moments(base, frozenset(used), tuple(filter(None, [note])), zoned)


def _zone_of_columns(frame: Columns, names: Sequence[str], apart: Collection[str]) -> tuple[str, Zone] | None:
    """Zone that the first of some columns states by its name or its attributes, and that column."""
    every = {name: zone_of(name, frame.attributes.get(name, {})) for name in names if name not in apart}
    stated = {name: zone for name, zone in every.items() if zone is not None}
    first = next(iter(stated.items()), None)
    for name, zone in stated.items():
        if first is not None and (zone.hours, zone.place) != (first[1].hours, first[1].place):
            raise ArgumentError(
                f"column {first[0]!r} of {frame.title} has times in {first[1].said!r}, and {name!r} in "
                f"{zone.said!r}. Write both in UTC, or the time with its day in one column.",
                key="time-zone",
            )
    return first


def _out_of_zone(frame: Columns, local: Times, name: str, zone: Zone, kept: Indices) -> tuple[Times, str]:
    """Bring times of a zone to UTC, and say so."""
    utc = zone.in_utc(local, name, column=True)
    refuse_rows(
        frame,
        kept,
        np.isnat(utc),
        lambda row: f"column {name!r} of {frame.title} has {local[row].astype('datetime64[s]')}",
        f"times that clocks in {zone.said} show once. Write them with their offset.",
        key="no-time-in-cell",
    )
    return utc, f"column {name!r} of {frame.title} has times in {zone.said}: all are brought to UTC."


def _says_hours(frame: Columns, name: str, kept: Indices, local: Times) -> bool:
    """Whether cells of a column have times of day, if only midnight; dates are the same in all zones."""
    cells = frame.columns[name][kept]
    if cells.dtype.kind in "OUT":
        return any(":" in str(cell) for cell in cells[:MOST_LOOKED_AT].tolist())
    return not are_days(local) or (cells.dtype.kind == "M" and "date" not in plain(name).split("_"))


def _no_time(text: str, *columns: str) -> ArgumentError:
    """Say that the table does not say when its rows were measured, and what to name."""
    return ArgumentError(
        text,
        key="no-time",
        remedies=(
            *(Setting("columns", {"time": name}) for name in columns),
            Setting("columns", {"time": IGNORED}, "to map all rows as one field"),
        ),
    )


def _date(frame: Columns, kept: Indices, apart: Collection[str]) -> dict[str, str]:
    """Give the columns, none of those in ``apart``, that make a time together by the names of `DATE`."""
    short = _abbreviated(frame)
    found = {
        part: name
        for part in DATE
        if (name := frame.find("time", None, (part,), needed=False) or short.get(part)) and name not in apart
    }
    there = [part in found for part in DATE]
    date = dict(list(found.items())[: there.index(False) if False in there else None])
    others = [found[part] for part in found.keys() - date.keys()]
    if not date:
        others += [name for name in frame.columns if plain(name) in (*DAY_OF_YEAR, *PART_OF_YEAR)]
    of_year = any(plain(name) in DAY_OF_YEAR for name in frame.columns)
    for name in others:
        if name not in apart and _varies(frame, name, kept) and not ("year" in date and of_year):
            absent = DATE[there.index(False)]
            raise _no_time(
                f"{frame.title} has a column {name!r} with different values and none for the {absent}, so "
                "that it does not say when.",
                "COLUMN",
            )
    return date


def _from_parts(
    frame: Columns, date: Mapping[str, str], kept: Indices, apart: Collection[str]
) -> tuple[Times, list[str]]:
    """Read days from columns of years and, as there are, months and days, or days of the year."""
    moments = dates_from_columns(frame, date, kept)
    of_year = [name for name in frame.columns if plain(name) in DAY_OF_YEAR and name not in apart]
    parts = [name for name in frame.columns if plain(name) in PART_OF_YEAR and name not in apart]
    if "day" not in date and not of_year and parts:
        raise _no_time(
            f"{frame.title} has the column {parts[0]!r} beside {date['year']!r}, and none for the day, so "
            "that it does not say when."
        )
    for name in of_year:
        numbers = frame.numbers(name)[kept]
        years = frame.numbers(date["year"])[kept]
        length = np.where((years % 4 == 0) & ((years % 100 != 0) | (years % 400 == 0)), 366, 365)
        wrong = ~((numbers >= 1) & (numbers <= length) & (numbers == np.round(numbers)))
        refuse_rows(
            frame,
            kept,
            wrong,
            lambda row, name=name, numbers=numbers: (  # type: ignore[misc]
                f"column {name!r} of {frame.title} is {numbers[row]:g}"
            ),
            "1 to 365, or 366 in a leap year: the day of the year that stands beside it.",
        )
        found = moments.astype("datetime64[Y]").astype("datetime64[D]") + (numbers - 1).astype(np.int64)
        unit = {1: "Y", 2: "M", 3: "D"}[len(date)]
        disagree = found.astype(f"datetime64[{unit}]") != moments.astype(f"datetime64[{unit}]")
        if disagree.any():
            row = int(disagree.argmax())
            raise ArgumentError(
                f"column {name!r} of {frame.title} is {numbers[row]:g} in {frame.where(int(kept[row]))}, "
                f"which is {found[row]}, and other columns say {moments[row].astype('datetime64[D]')}.",
                key="times-disagree",
                remedies=(Setting("where", {name: ANY}, "if it says something else"),),
            )
        moments = found.astype("datetime64[ns]")
    return moments, of_year


def _check_reference(frame: Columns, day: str, kept: Indices) -> None:
    """Refuse times beside a lead time, which may be those at which forecasts began."""
    leads = [name for name in frame.columns if _LEAD.fullmatch(plain(name))]
    if plain(day) in VALID or any(plain(name) in VALID for name in frame.columns):
        return
    for name in leads:
        column = frame.columns[name][kept]
        since = frame.numbers(name)[kept] if column.dtype.kind in "iufm" else np.zeros(kept.size)
        if (since[~np.isnan(since)] != 0.0).any():
            raise ArgumentError(
                f"{frame.title} has the column {name!r}, which seems to be a lead time, and {day!r} may be "
                "when a forecast began. Name the column of times at which the values hold.",
                key="reference-time",
                remedies=(Setting("columns", {"time": day}, "if it is that"),),
            )


def _check_other_times(frame: Columns, kept: Indices, apart: Collection[str]) -> None:
    """Refuse columns that seem to say when, but have no usual name, where no other does."""
    dates = [
        name
        for name in frame.columns
        if name not in apart and plain(name) not in CLOCK and _may_be_dates(frame, name, kept)
    ]
    remedies = [Setting("columns", {"time": name}) for name in dates[:1]]
    for name in frame.columns:
        if name in apart or not _varies(frame, name, kept):
            continue
        cells = frame.columns[name][kept]
        if plain(name) in TIME_OF_DAY or (
            _is_clock(cells) and (dates or _NAMES_CLOCK.fullmatch(plain(name)))
        ):
            raise ArgumentError(
                f"{frame.title} has no column of dates of a usual name, and {name!r} has different times of "
                "day. Name the column of dates, beside which it is read.",
                key="no-time",
                remedies=(*remedies, Setting("where", {name: ANY}, "if it does not say when")),
            )
        if _COUNTED.fullmatch(plain(name)) and frame.is_numeric(name):
            raise ArgumentError(
                f"{frame.title} has no column of times, and {name!r} seems to count days or years; expected "
                f"{EXPECTED}.",
                key="no-time",
                remedies=(
                    Setting("where", {name: ANY}, "if it says something else"),
                    Setting("columns", {"time": IGNORED}, "to map all rows as one field"),
                ),
            )
        if name in dates or _may_be_years(frame, name, cells):
            raise ArgumentError(
                f"{frame.title} has no column of times of a usual name, and {name!r} has different ones.",
                key="no-time",
                remedies=(
                    Setting("columns", {"time": name}),
                    Setting("where", {name: ANY}, "if it says something else"),
                ),
            )


def _may_be_dates(frame: Columns, name: str, kept: Indices) -> bool:
    """Whether a column has dates, by its cells, and by its name where these may be something else."""
    cells = frame.columns[name][kept]
    if cells.dtype.kind == "M":
        return True
    first = next((str(cell).strip() for cell in cells.tolist() if str(cell).strip()), "")
    if not (_NAMES_TIME.fullmatch(plain(name)) or _DATED.match(first)):
        return False
    texts = [text for text in dict.fromkeys(_written(cells)) if text.lower() not in EMPTY]
    if cells.dtype.kind in "iuf" and min(map(len, texts), default=0) < 8:  # hours, or year and month
        return bool(texts) and all(re.fullmatch(r"(18|19|20)\d\d(0[1-9]|1[0-2])", text) for text in texts)
    return bool(texts) and not np.isnat(_moments(texts)).any()


def _may_be_years(frame: Columns, name: str, cells: NDArray[Any]) -> bool:
    """Whether a column has years by its name and its numbers."""
    if _NAMES_YEAR.fullmatch(plain(name)) is None or not frame.is_numeric(name):
        return False
    return bool(((cells >= 1800) & (cells <= 2100) & (np.mod(cells, 1) == 0)).all())


def _is_clock(cells: NDArray[Any]) -> bool:
    """Whether all cells that are not empty are times of day, such as 12:00 or 1200 UTC."""
    if cells.dtype.kind not in "OUT":
        return False
    texts = (str(cell).strip() for cell in cells.tolist())
    there = [_CLOCK.fullmatch(text) is not None for text in texts if text.lower() not in EMPTY]
    return bool(there) and all(there)


def _day(frame: Columns, days: Sequence[str], kept: Indices) -> tuple[str, Times, Times]:
    """Take a column with days, and times of day if there are any: its name, times in UTC and local ones."""
    zones = {name: zone_of(name, frame.attributes.get(name, {})) for name in days}
    known = [name for name in days if (zone := zones[name]) is None or zone.is_utc]
    read = [
        (name, utc, _local(frame, name, kept, utc))
        for name in known or days  # others show the same times
        for utc in [read_times(frame, name, kept)]
    ]
    first = next((entry for entry in read if not are_days(entry[2])), read[0])
    for name, utc, local in read:
        agree = np.zeros(kept.size, dtype=bool)
        for one in (utc, local):
            for other in first[1:]:
                agree |= one.astype("datetime64[D]") == other.astype("datetime64[D]")
        if not are_days(local):
            agree = utc == first[1]
        if not agree.all():
            row = int(agree.argmin())
            moments = " and ".join(str(each[row].astype("datetime64[s]")) for each in (first[1], utc))
            raise ArgumentError(
                f"columns {first[0]!r} and {name!r} of {frame.title} disagree in "
                f"{frame.where(int(kept[row]))} ({such_rows(~agree)}): {moments}.",
                key="times-disagree",
                remedies=tuple(Setting("columns", {"time": column}) for column in (first[0], name)),
            )
    return first


def _local(frame: Columns, name: str, kept: Indices, utc: Times) -> Times:
    """Give times as the clocks of their zones showed them."""
    import pandas as pd

    column = frame.columns[name][kept]
    if column.dtype.kind not in "OUT":
        return utc
    codes, distinct = pd.factorize(np.array([str(cell).strip() for cell in column.tolist()], dtype=object))
    zones = [_ZONE.search(text) for text in distinct]
    if not any(zones):
        return utc
    shown = [
        text if zone is None else text[: zone.start(1)].strip()
        for text, zone in zip(distinct, zones, strict=True)
    ]
    return np.asarray(_moments(shown)[codes])


def _varies(frame: Columns, name: str, kept: Indices) -> bool:
    """Whether a column has different cells."""
    return len(set(map(str, frame.columns[name][kept].tolist()))) > 1


def _says_utc(frame: Columns, name: str, kept: Indices) -> bool:
    """Whether times of day are in UTC by the name of their column or by what is written."""
    cells = frame.columns[name][kept].tolist()
    return "utc" in plain(name).split("_") or any(_UTC.search(str(cell).strip()) for cell in cells)


def _check_refined(frame: Columns, day: str, kept: Indices, apart: Collection[str]) -> None:
    """Refuse dates that have no month or no day where another column has it."""
    every = frame.columns[day][kept].tolist()
    if not all(_COARSE.fullmatch(str(cell).strip()) for cell in every):
        return
    cells = {str(cell).strip() for cell in every}
    found = [_COARSE.fullmatch(cell) for cell in cells]
    finer = DATE[2:3] if all(match[1] for match in found if match is not None) else DATE[1:3]
    finer = (*finer, *DAY_OF_YEAR, *PART_OF_YEAR)
    beside = [name for name in frame.columns if plain(name) in finer and name not in (day, *apart)]
    if beside:
        raise ArgumentError(
            f"column {day!r} of {frame.title} has dates without a day, such as {min(cells)!r}, and column "
            f"{beside[0]!r} stands beside it. Write the date in one column, such as 2017-04-27, or in "
            "columns year, month and day.",
            key="no-day",
        )


def _check_unused(
    frame: Columns,
    base: Times,
    local: Times,
    kept: Indices,
    *,
    apart: Collection[str],
    of_day: Collection[str],
) -> None:
    """Refuse further columns of times of day that contradict the times, in UTC and as written."""
    day = np.timedelta64(1, "D")
    for name in frame.columns:
        part = plain(name)
        says_when = part in (*HOUR, *TIME_OF_DAY) or name in of_day
        if not says_when or name in apart or not _varies(frame, name, kept):
            continue
        since, unit = _since_midnight(frame, name, kept), np.timedelta64(1, "h" if part in HOUR else "m")
        agree = [(((one - one.astype("datetime64[D]")) - since) % day < unit).all() for one in (base, local)]
        if not any(agree):
            raise ArgumentError(
                f"column {name!r} of {frame.title} has other times of day than the columns that say when.",
                key="times-disagree",
                remedies=(Setting("where", {name: ANY}, "if it does not count"),),
            )


def _clock(frame: Columns, of_day: Sequence[str], apart: Collection[str], kept: Indices) -> list[str]:
    """Columns that together say when on a day."""
    if of_day:
        return [of_day[0]]
    by_name = {_without_zone(frame, name): name for name in frame.columns if name not in apart}
    by_name |= {plain(name): name for name in frame.columns if name not in apart}
    by_name |= {part: name for part, name in _abbreviated(frame).items() if name not in apart}
    if "time" in by_name and _is_of_day(frame.columns[by_name["time"]][kept], numbers=False):
        return [by_name["time"]]
    for usual in TIME_OF_DAY:
        if usual in by_name:
            return [by_name[usual]]
    hour = next((by_name[usual] for usual in HOUR if usual in by_name), None)
    parts = [by_name[part] for part in _SECONDS if part in by_name]
    if hour is not None:
        return [hour, *parts]
    clocks = [name for name in frame.columns if name not in apart and _is_clock(frame.columns[name][kept])]
    named = [name for name in clocks if _NAMES_CLOCK.fullmatch(plain(name))]
    if len(named) == 1:
        return named
    if clocks:
        raise ArgumentError(
            f"{' and '.join(map(repr, named or clocks))} of {frame.title} "
            f"{'has' if len(clocks) == 1 else 'have'} times of day, and it cannot be told whether and which "
            "of them says when. Call the one that does time_of_day.",
            key="times-of-day",
            remedies=tuple(Setting("where", {name: ANY}, "if it does not say when") for name in clocks[-1:]),
        )
    for name in parts:
        if _varies(frame, name, kept):
            raise _no_time(
                f"{frame.title} has a column {name!r} with different values and none for the hour, so that "
                "it does not say when.",
                "COLUMN",
            )
    return []


def _without_zone(frame: Columns, name: str) -> str:
    """Spell a name without the zone that it states, as in ``hour_local``."""
    stated = zone_of(name, frame.attributes.get(name, {})) is not None
    parts = plain(name).split("_")
    return "_".join(part for part in parts if not (stated and zone_in(part, alone=True))) or plain(name)


def _is_of_day(column: NDArray[Any], *, numbers: bool) -> bool:
    """Whether cells are times of day, such as 12:00, or 1200 where ``numbers`` may be such."""
    if column.dtype.kind == "m":
        return True
    if column.dtype.kind in "iuf":
        return numbers and bool(((column >= 0) & (column <= LAST_CLOCK)).all())
    if column.dtype.kind == "M":
        return False
    cells = [cell for cell in column.tolist() if str(cell).strip().lower() not in EMPTY]
    return bool(cells) and all(
        isinstance(cell, dt.time)
        or _OF_DAY.fullmatch(_in_24_hours(_UTC.sub("", str(cell).strip()))) is not None
        or (numbers and re.fullmatch(r"\d{1,4}", str(cell).strip()) is not None)
        for cell in cells
    )


def _since_midnight(frame: Columns, name: str, kept: Indices) -> NDArray[np.timedelta64]:
    """Read times of day: 12:00, 1200, or hours, minutes or seconds by the name of their column."""
    import pandas as pd

    parts = {short: part for part, short in _abbreviated(frame).items()}
    column, part = frame.columns[name][kept], parts.get(name) or _without_zone(frame, name)
    if column.dtype.kind == "m":
        return column.astype("timedelta64[ns]")
    texts = [_in_24_hours(_UTC.sub("", str(cell).strip())) for cell in column.tolist()]
    found = [_OF_DAY.fullmatch(text) for text in texts]
    if all(found):
        written = [f"{match[1]}{match[2] or ':00'}" for match in found if match is not None]
        since = pd.to_timedelta(written, errors="coerce").to_numpy().astype("timedelta64[ns]")
        wrong = np.isnat(since) | (since > np.timedelta64(LAST_HOUR, "h"))
    else:
        padded = column.dtype.kind in "OUT" and all(map(_DIGITS.fullmatch, texts))  # 0015
        numbers = np.array(texts, dtype=np.float64) if padded else frame.numbers(name)[kept]
        of_hour = np.zeros(numbers.size)
        seconds = _SECONDS.get(part, 3600)
        last = LAST_HOUR if seconds == 3600 else 59
        if part not in _SECONDS and (padded or part not in HOUR):
            largest = np.fmax.reduce(numbers)
            if not padded and part != "hhmm" and 0 < largest <= LAST_HOUR:
                raise ArgumentError(
                    f"column {name!r} of {frame.title} has numbers up to {largest:g}, which may be hours or "
                    "minutes past midnight, as in 1200. Call the column hour or hhmm, or write 12:00.",
                    key="hours-or-minutes",
                )
            numbers, of_hour = np.floor(numbers / 100.0), np.mod(numbers, 100.0)
        in_parts = part in HOUR and not {"minute", "second"} & {*map(plain, frame.columns), *parts.values()}
        whole_numbers = (np.mod(numbers + of_hour, 1.0) == 0) | in_parts  # 12.5 is half past twelve
        wrong = ~((numbers >= 0) & (numbers + of_hour / 60 <= last) & (of_hour < 60) & whole_numbers)
        whole = np.rint(np.where(wrong, 0.0, seconds * numbers + 60 * of_hour)).astype(np.int64)
        since = whole.astype("timedelta64[s]").astype("timedelta64[ns]")
    refuse_rows(
        frame,
        kept,
        wrong,
        lambda row: f"column {name!r} of {frame.title} holds {texts[row]!r}",
        "12:00, 1200 or hours, minutes or seconds of their own.",
        why=", which is not a time of day",
        key="no-time-in-cell",
    )
    return np.asarray(since)


def read_times(frame: Columns, name: str, kept: Indices) -> Times:
    """Read times in UTC."""
    import pandas as pd

    column = frame.columns[name][kept]
    if column.dtype.kind == "M":
        texts, moments = column.astype(str), column
    else:
        texts = np.array(_written(column), dtype=object)
        if "yyyymm" in (spelled := plain(name).replace("_", "")) and "yyyymmdd" not in spelled:
            texts = np.array([re.sub(r"^(\d{4})(\d\d)$", r"\1-\2", text) for text in texts], dtype=object)
        codes, distinct = pd.factorize(texts)
        moments = _moments(list(distinct))[codes]
    wrong: Mask = np.isnat(moments)
    six = wrong.any() and _YYMMDD.fullmatch(texts[wrong.argmax()])
    slashed = wrong.any() and _SLASHED.fullmatch(texts[wrong.argmax()])
    slashes = " In 01/02/2017 the day is ambiguous: write 2017-02-01." if slashed else ""
    if six:
        slashes = " It may be a year and month, or a year of two digits, month and day: write 2007-01."
    refuse_rows(
        frame,
        kept,
        wrong,
        lambda row: f"column {name!r} of {frame.title} holds {str(texts[row])!r}",
        f"{EXPECTED}.{slashes}",
        why=", which is not a time",
        key="no-time-in-cell",
    )
    return np.asarray(moments, dtype="datetime64[ns]")


def _written(column: NDArray[Any]) -> list[str]:
    """Cells as texts; whole numbers of eight digits and more without decimals."""
    if column.dtype.kind != "f":
        return [str(cell).strip() for cell in column.tolist()]
    known = column[~np.isnan(column)]
    if known.size and ((known >= 1e7) & (known == np.round(known))).all():
        return ["" if np.isnan(cell) else str(int(cell)) for cell in column.tolist()]
    return [f"{cell!r} (a number)" for cell in column.tolist()]  # days since when?


def _moments(texts: list[str]) -> Times:
    """Read the times of different texts; NaT where one is none."""
    import pandas as pd

    late = [_LATE.fullmatch(text) for text in texts]
    if any(late):  # midnight at the end of a day
        starts = [
            text if end is None else f"{end[1]}00{end[2]}" for text, end in zip(texts, late, strict=True)
        ]
        return _moments(starts) + np.array([end is not None for end in late]) * np.timedelta64(1, "D")
    lengths = {len(text) for text in texts}
    if all(text.isdecimal() for text in texts):
        if lengths == {6} and all(map(_YYMMDD.fullmatch, texts)):
            return np.full(len(texts), np.datetime64("NaT", "ns"))  # 200701 may be 1 July 2020
        form = FORMS.get(lengths.pop()) if len(lengths) == 1 else None
        units = {EPOCH.get(len(text)) for text in texts}
        if form is not None:
            dates = pd.to_datetime(texts, format=form, errors="coerce")
            if None in units or (dates.year >= EARLIEST_YEAR).any():
                return np.asarray(dates.to_numpy(), dtype="datetime64[ns]")
        unit = units.pop() if len(units) == 1 else None
        if unit is not None:
            return np.array(texts, dtype=np.int64).astype(f"datetime64[{unit}]").astype("datetime64[ns]")
    moments = pd.to_datetime([_iso(text) for text in texts], format="ISO8601", utc=True, errors="coerce")
    return np.asarray(moments.tz_localize(None).to_numpy(), dtype="datetime64[ns]")


def _in_24_hours(text: str) -> str:
    """Write the time of day at the end of a text without AM or PM."""
    found = _HALF_DAYS.fullmatch(text)
    if found is None:
        return text
    hour = int(found[2]) % 12 + (12 if found[4].lower() == "p" else 0)
    return f"{found[1]}{hour:02}{found[3]}"


_HALF_DAYS = re.compile(
    r"(.*[ T]|)(1[0-2]|0?[1-9])(:[0-5]\d(?::[0-5]\d(?:\.\d+)?)?)\s*([ap])\.?m\.?", re.IGNORECASE
)


def _iso(text: str) -> str:
    """Write a time as ISO 8601 has it, if it is day.month.year, or has the letters of a zone."""
    text = _in_24_hours(_UTC.sub("", text))
    if (found := _ZONE.search(text)) and (zone := zone_in(found[1], alone=True)) and found[1].isalpha():
        minutes = round(60 * (zone.hours or 0.0))
        offset = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
        text = f"{text[: found.start(1)].strip()}{offset}"
    found = _DOTTED.fullmatch(text)
    if found is None:
        return text
    day, month, year, hour, rest = found.groups()
    return f"{year}-{month:>02}-{day:>02}" + ("" if hour is None else f"T{hour:>02}{rest}")


def _zones(frame: Columns, name: str, kept: Indices) -> tuple[bool, str]:
    """Whether times state zones, and which, if not all state the same."""
    column = frame.columns[name][kept]
    if column.dtype.kind not in "OUT":
        return False, ""
    found = [_ZONE.search(str(cell).strip()) for cell in column.tolist()]
    zones = sorted({match[1].upper() for match in found if match is not None})
    without = sum(match is None for match in found)
    if len(zones) + (without > 0) < 2:
        return bool(zones), ""
    said = f"column {name!r} of {frame.title} has times in {', '.join(zones[:5])}"
    if len(zones) > 5:
        said += f" and {len(zones) - 5} other zones"
    taken = f", and {without:,} of {len(found):,} without a zone, which are taken as UTC" if without else ""
    return not without, f"{said}{taken}: all are brought to UTC."


def dates_from_columns(frame: Columns, columns: Mapping[str, str], kept: Indices) -> Times:
    """Read times in UTC from columns of years and, as far as there are any, of months to minutes."""
    import pandas as pd

    found = {part: frame.numbers(name)[kept] for part, name in columns.items()}
    first_day = dict.fromkeys(("year", "month", "day"), np.ones(kept.size))
    moments = pd.to_datetime(pd.DataFrame(first_day | found), errors="coerce")
    whole = np.all([part == np.round(part) for part in found.values()], axis=0)
    wrong = np.asarray(moments.isna()) | ~whole | (found["year"] < FIRST_YEAR)

    def said(row: int) -> str:
        numbers = ", ".join(f"{name} {found[part][row]:g}" for part, name in columns.items())
        return f"{frame.title} has {numbers}"

    expected = "whole numbers of a date, and years of four digits."
    refuse_rows(frame, kept, wrong, said, expected, why=", which is not a time", key="no-time-in-cell")
    return np.asarray(moments.to_numpy(), dtype="datetime64[ns]")
