"""Which times a job takes: a list, a window with a step, the newest ones, or months.

A rule comes to a list of times, if need be with those of the source; the job is then the one that lists them.
"""

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.errors import NotReadyError
from cagp_dist.service.jobfile.values import instant_of, resembling
from cagp_dist.text import counted

MOST_TIMES = 100_000  # Times that a rule may come to: eleven years of hours

EXPECTED = (
    'a list of ISO 8601 times, UTC, or of months (["2017-04-27T12:00"], "2017-04"), "latest", or a table: '
    '{ from = "2017-01-01", to = "2017-01-31", every = "6h" } or { last = "5d", at = "12:00" }'
)
LATEST = "latest"  # The newest time of the source, alone
KEYS = ("from", "to", "last", "first", "every", "at")

_MINUTES = {"min": 1, "h": 60, "d": 1440, "w": 10080}
_DAY = np.timedelta64(1, "D")
_LEAST = np.timedelta64(1, "us")  # 550 years in nanoseconds would overflow


@dataclass(frozen=True)
class Months:
    """All times of some months, written ``2017-04``."""

    months: tuple[str, ...]

    needs_source: ClassVar[bool] = True

    def times(self, available: Times) -> Times:
        """Choose from the times of a source, ascending."""
        of = available.astype("datetime64[M]")
        for month in self.months:
            if not (of == np.datetime64(month, "M")).any():
                raise ValueError(f"the source has no time in {month}; {_extent(available)}")
        chosen: Times = available[np.isin(of, np.array(self.months, dtype="datetime64[M]"))]
        return chosen


@dataclass(frozen=True)
class Window:
    """Times from one instant to another, both included; ``to`` a bare date means to the end of that day."""

    start: np.datetime64
    stop: np.datetime64
    every: str | None = None
    at: tuple[str, ...] = ()

    @property
    def needs_source(self) -> bool:
        """Whether the times of the source decide; with a step or clock times they do not."""
        return self.every is None and not self.at

    def in_steps_of(self, rule: "Window | Newest") -> "Window":
        """Give the window with the step, or the clock times, of another rule; raises `ValueError`."""
        found = replace(self, every=rule.every, at=rule.at)
        if not found.needs_source:
            found.times(np.empty(0, dtype="datetime64[ns]"))  # what is wrong with it is said at once
        return found

    def times(self, available: Times) -> Times:
        """Return the times, ascending; ``available`` is looked at only where there is no step."""
        if self.every is not None:
            return _steps(self.start, self.stop, _length(self.every))
        if self.at:
            return _at(self.start, self.stop, self.at)
        chosen: Times = available[(available >= self.start) & (available <= self.stop)]
        if chosen.size == 0:
            raise ValueError(f"the source has no time in this window; {_extent(available)}")
        return chosen


@dataclass(frozen=True)
class Newest:
    """Times in a stretch of the given length that ends with the newest time of the source."""

    last: str
    every: str | None = None
    at: tuple[str, ...] = ()
    first: np.datetime64 | None = None  # before which there is no time

    needs_source: ClassVar[bool] = True

    def times(self, available: Times) -> Times:
        """Choose, ascending: with a step back from the newest time, at clock times, or all that are there.

        Raises `NotReadyError` where the source has not come to ``first`` yet.
        """
        newest = available[-1]
        after = newest - _length(self.last) + _LEAST
        if self.first is not None:
            if self.first > newest:
                raise NotReadyError(
                    f"first = {_shown(self.first)} is after the newest time of the source, {_shown(newest)}"
                )
            after = max(after, self.first)
        if self.every is not None:
            step = _length(self.every)
            return _steps(newest - (newest - after) // step * step, newest, step)
        if self.at:
            return _at(after, newest, self.at, absent=NotReadyError if after == self.first else ValueError)
        newer: Times = available[available >= after]
        return newer


TimeRule = Months | Window | Newest


def times(value: object) -> tuple[str, ...] | TimeRule:
    """Check what the key ``times`` holds."""
    if value == LATEST:
        return Newest(last="1h", every="1h")  # with a step, no other time of the source is looked at
    if isinstance(value, str):
        if not _is_month(value):
            raise ValueError(f"expected {EXPECTED}")
        return Months((_month(value),))
    if isinstance(value, Mapping):
        return _rule(value)
    if isinstance(value, tuple):  # of a job that was checked before
        value = list(value)
    if not isinstance(value, list):
        raise ValueError(f"expected {EXPECTED}")
    if not value:
        raise ValueError("the list is empty; leave the key out to take all times of the source")
    months = [item for item in value if isinstance(item, str) and _is_month(item)]
    if months and len(months) < len(value):
        other = next(item for item in value if item not in months)
        raise ValueError(
            f"{months[0]!r} is a month and {other!r} is not; expected months alone or times alone"
        )
    found: set[str] = set()
    for item in value:
        one = _month(item) if months else instant_of(item)
        if one in found:
            raise ValueError(f"the time {item} is listed more than once; list each time once")
        found.add(one)
    return Months(tuple(sorted(found))) if months else tuple(sorted(found))


def parse_short_times(text: str) -> tuple[str, ...] | TimeRule | None:
    """Read the short form of the command line: the same keys, as words."""
    words = [word for word in re.split(r"[\s,=]+", text) if word]
    if words == ["all"]:
        return None
    if words == [LATEST]:
        return times(LATEST)
    if len(words) == 1 and ".." in words[0]:
        start, _, stop = words[0].partition("..")
        return times({"from": start, "to": stop})
    if words and words[0] in KEYS:
        return times(_pairs(words))
    if words and not words[0][0].isdigit():
        raise ValueError(
            f"{words[0]!r} is neither a time nor one of {', '.join(KEYS)}{resembling(words[0], KEYS)}; "
            "expected times with commas between them, months, latest, all, or words as in "
            '"from 2017-01-01 to 2017-01-31 every 6h" or "last 5d at 12:00"'
        )
    return times(words)


def _pairs(words: Sequence[str]) -> dict[str, object]:
    """Keys and the values after them; only ``at`` may have several."""
    key, values = words[0], dict[str, list[str]]()
    for word in words:
        if word in KEYS:
            key = word
            values.setdefault(key, [])
        else:
            values[key].append(word)
    for name, given in values.items():
        if len(given) != 1 and (name != "at" or not given):
            raise ValueError(f"{name!r} is followed by {len(given)} values; expected one")
    return {name: given if name == "at" else given[0] for name, given in values.items()}


def _rule(table: Mapping[str, object]) -> TimeRule:
    for key in table:
        if key not in KEYS:
            raise ValueError(f"unknown key {key}{resembling(str(key), KEYS)}; valid here: {', '.join(KEYS)}")
    every = table.get("every")
    if every is not None:
        every = _spelled(every, "every")
    at = _clocks(table["at"]) if "at" in table else ()
    if every is not None and at:
        raise ValueError(
            'every and at came together; give a step, every = "6h", or clock times, at = "12:00"'
        )
    if "last" in table:
        if "from" in table or "to" in table:
            raise ValueError(
                "last cannot be combined with from or to; give the newest times (last) or a window (from, to)"
            )
        last = _spelled(table["last"], "last")
        if every is not None or at:
            a_day = len(at) if every is None else _DAY / _length(every)
            _check_count(int(_length(last) / _DAY * a_day))
        first = _bound(table["first"], "first")[0] if "first" in table else None
        return Newest(last, every, at, first)
    if "first" in table:
        raise ValueError("first goes with last; a window begins with from")
    missing = [key for key in ("from", "to") if key not in table]
    if missing:
        raise ValueError(f"{' and '.join(missing)} missing; expected {EXPECTED}")
    start, stop = _bound(table["from"], "from")[0], _bound(table["to"], "to")[1]
    if stop < start:
        raise ValueError(f"from = {table['from']} is after to = {table['to']}")
    window = Window(start, stop, every, at)
    if not window.needs_source:
        window.times(np.empty(0, dtype="datetime64[ns]"))  # what is wrong with it is said at once
    return window


def _bound(value: object, key: str) -> tuple[np.datetime64, np.datetime64]:
    """First and last instant of a month, a date or a time; TOML dates are welcome."""
    if isinstance(value, str) and _is_month(value):
        month = np.datetime64(_month(value), "M")
        return month.astype("datetime64[us]"), (month + 1).astype("datetime64[us]") - _LEAST
    try:
        instant = np.datetime64(instant_of(value), "us")
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
    date = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    if date or (isinstance(value, str) and re.fullmatch(r"\d{4}-?\d{2}-?\d{2}", value)):
        return instant, instant + _DAY - _LEAST
    return instant, instant


def _spelled(value: object, key: str) -> str:
    """Check a length of time, which stays as it was written."""
    expected = f'expected a whole number of min, h, d or w, for example {key} = "6h"'
    found = re.fullmatch(r"(\d{1,7}) ?(min|h|d|w)", value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{key} = {value!r} is not a length of time; {expected}")
    if int(found[1]) == 0:
        raise ValueError(f"{key} = {value!r} is zero; {expected}")
    if _length(found[0]) > np.timedelta64(200 * 365, "D"):
        raise ValueError(f"{key} = {value!r} is more than 200 years; {expected}")
    return found[0]


def parse_length(text: str, key: str) -> np.timedelta64:
    """Read a length of time such as ``36h``; raises `ValueError`."""
    return _length(_spelled(text, key))


def _length(text: str) -> np.timedelta64:
    """Read a length of time that `_spelled` has checked."""
    unit = text.lstrip("0123456789")
    return np.timedelta64(int(text.removesuffix(unit)) * _MINUTES[unit.strip()], "m")


def _clocks(value: object) -> tuple[str, ...]:
    """Clock times in UTC, ``HH:MM``, ascending; one or a list of them, TOML times are welcome."""
    found: set[str] = set()
    for item in value if isinstance(value, list) else [value]:
        text = item.strftime("%H:%M") if isinstance(item, dt.time) else item
        if not isinstance(text, str) or not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", text):
            raise ValueError(
                f'at = {item!r} is not a clock time; expected HH:MM in UTC, for example at = "12:00"'
            )
        found.add(text)
    if not found:
        raise ValueError(
            'at is an empty list; expected clock times in UTC, for example at = ["00:00", "12:00"]'
        )
    return tuple(sorted(found))


def _at(
    start: np.datetime64, stop: np.datetime64, clocks: Sequence[str], absent: type[ValueError] = ValueError
) -> Times:
    """Return the clock times of every day between two instants, both included; raises ``absent`` if none."""
    days = np.arange(start.astype("datetime64[D]"), stop.astype("datetime64[D]") + _DAY)
    _check_count(days.size * len(clocks))
    minutes = [int(clock[:2]) * 60 + int(clock[3:]) for clock in clocks]
    offsets = np.array(minutes, dtype="timedelta64[m]")
    found = (days.astype("datetime64[m]")[:, None] + offsets).ravel().astype("datetime64[ns]")
    chosen: Times = found[(found >= start) & (found <= stop)]
    if chosen.size == 0:
        raise absent(
            f"no {' or '.join(clocks)} lies between {_shown(start)} and {_shown(stop)}; expected at least one"
        )
    return chosen


def _steps(start: np.datetime64, stop: np.datetime64, step: np.timedelta64) -> Times:
    """Return equally spaced times between two instants, both included."""
    _check_count(int((stop - start) // step) + 1)
    return np.arange(start, stop + _LEAST, step)


def _check_count(count: int) -> None:
    if count > MOST_TIMES:
        raise ValueError(f"the rule comes to {count:,} times; expected at most {MOST_TIMES:,}")


def _extent(available: Times) -> str:
    return f"it has {counted(available.size, 'time')} from {_shown(available[0])} to {_shown(available[-1])}"


def _shown(time: np.datetime64) -> str:
    return str(time.astype("datetime64[m]"))


def _is_month(text: str) -> bool:
    return re.fullmatch(r"\d{4}-\d{2}", text) is not None


def _month(text: str) -> str:
    return instant_of(f"{text}-01", text)[:7]


def written_times(listed: Sequence[str]) -> str:
    """Write a list of times as a job file would, as short as it can be."""
    moments = np.array(listed, dtype="datetime64[ns]")
    steps = np.unique(np.diff(moments))
    minute = np.timedelta64(1, "m")
    if moments.size > 3 and steps.size == 1 and steps[0] % minute == np.timedelta64(0, "ns"):
        minutes = int(steps[0] / minute)
        count, unit = next(
            (minutes // size, unit)
            for size, unit in ((1440, "d"), (60, "h"), (1, "min"))
            if minutes % size == 0
        )
        return f'{{ from = "{listed[0]}", to = "{listed[-1]}", every = "{count}{unit}" }}'
    return "[" + ", ".join(f'"{time}"' for time in listed) + "]"
