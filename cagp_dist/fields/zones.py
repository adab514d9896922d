"""Zones of times, by the names, attributes and cells that state them: UTC, offsets, usual abbreviations.

What is a clock of its own place, or stands for several zones, is refused. An abbreviation means what the tz
database and RFC 822 have for it; IST, BST, AST, CST and PST are used in several parts of the world.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.errors import DataError
from cagp_dist.fields.column_names import ANY, units_in
from cagp_dist.remedies import Setting
from cagp_dist.variables import bare

_HOURS = {
    **dict.fromkeys(("utc", "gmt", "ut", "tu", "tuc", "z", "zulu", "universal", "wet"), 0.0),
    "cet": 1.0, "mez": 1.0, "met": 1.0, "cest": 2.0, "mesz": 2.0, "eet": 2.0, "eest": 3.0, "msk": 3.0,
    "est": -5.0, "edt": -4.0, "mst": -7.0, "mdt": -6.0, "pdt": -7.0, "hst": -10.0, "akst": -9.0, "akdt": -8.0,
    "brt": -3.0, "jst": 9.0, "kst": 9.0, "hkt": 8.0, "sgt": 8.0, "wib": 7.0, "sast": 2.0, "awst": 8.0,
    "acst": 9.5, "aest": 10.0, "aedt": 11.0, "nzst": 12.0, "nzdt": 13.0,
}  # fmt: skip
"""Hours ahead of UTC."""

_ALONE = {"ut", "tu", "z", "wet", "met"}  # words of other meanings, where more is said
_SEVERAL = re.compile(r"cst|cdt|ist|bst|ast|adt|pst|sst|gst|ect|act|amt|wst|wt|et|ct|mt|pt")
_UNKNOWN = re.compile(r"(?!START|TEXT|INT|FMT|FLOAT|TT|TDT|DT)[A-Z]{2,4}T")
_LOCAL = re.compile(r"local(e|es|time)?|lokal(zeit)?|orts?zeit|solar|sidereal|apparent|civil|wall|sommerzeit|"
                    r"winterzeit|legale|daylight")  # fmt: skip
_LOCAL_CODES = {"lt", "lst", "lmt", "lct", "ltz", "lmst", "loc", "dst"}
_SIGN = r"(?P<sign>[-+\u2212\u00b1]|plus|minus)[\s_]*"
_SIZE = r"(?P<hours>\d{1,2})(?::?(?P<minutes>\d\d))?(?!\d)"
_OFFSET = re.compile(rf"(?<![a-z])(?:utc|gmt)[\s_]*{_SIGN}{_SIZE}", re.IGNORECASE)
_BARE = re.compile(rf"{_SIGN}{_SIZE}(?:\.(?P<part>\d+))?\s*(h|hrs?|hours?)?", re.IGNORECASE)
_PLACE = re.compile(
    r"\b(?:Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Canada|Etc|Europe|Indian|Pacific|US)"
    r"/[A-Za-z_+\-0-9]+(?:/[A-Za-z_]+)?"
)
_ATTRIBUTES = ("time_zone", "timezone", "tz", "zone", "utc_offset")

ABBREVIATIONS = "|".join(sorted((each.upper() for each in _HOURS if len(each) > 2), key=len, reverse=True))
"""In cells, as alternatives of a regular expression."""


@dataclass(frozen=True)
class Zone:
    """A zone of times."""

    said: str  # how it is stated
    hours: float | None = None  # ahead of UTC; None of a place, and where it cannot be told
    place: str = ""  # of the tz database, if it is stated by one

    @property
    def is_utc(self) -> bool:
        """Whether it is UTC."""
        return self.hours == 0.0

    def in_utc(self, times: Times, name: str, *, column: bool) -> Times:
        """Bring times, of the column or the coordinate of this name, to UTC.

        NaT stands where the clocks of a place showed a time twice, or never. Raises `DataError` where it
        cannot be told which zone is meant.
        """
        if self.place:
            import pandas as pd

            there = pd.DatetimeIndex(times).tz_localize(self.place, ambiguous="NaT", nonexistent="NaT")
            return np.asarray(there.tz_convert("UTC").tz_localize(None).to_numpy(), dtype="datetime64[ns]")
        if self.hours is None:
            raise DataError(
                f"the times {name!r} are in {self.said!r}, and it cannot be told by how much that differs "
                "from UTC. "
                + (
                    "Write them in UTC, or with their offset, such as 2020-07-01T12:00+02:00; or state the "
                    "offset behind their name, such as time (UTC+2)."
                    if column
                    else 'Give them the attribute time_zone, such as "UTC" or "+02:00".'
                ),
                key="time-zone",
                remedies=(Setting("where", {name: ANY}, "if they are in UTC"),) if column else (),
            )
        return times - np.timedelta64(round(3600 * self.hours), "s")


def zone_of(name: str, attributes: Mapping[Any, object]) -> Zone | None:
    """Zone of times by an attribute of them, or by their name; None if nothing says one."""
    for key in _ATTRIBUTES:
        if text := str(attributes.get(key, "")).strip():
            return zone_in(f"+{text}" if text[0].isdigit() else text, alone=True) or Zone(text)
    units, long_name = (str(attributes.get(key, "")) for key in ("units", "long_name"))
    stated = {units_in(name): True, units: True, units_in(long_name): True}
    texts = stated | {bare(text): False for text in (name, long_name)}
    found = [zone for text, alone in texts.items() if text and (zone := zone_in(text, alone=alone))]
    known = [zone for zone in found if zone.place or zone.hours]
    return next(iter((*known, *(zone for zone in found if not zone.is_utc), *found)), None)


def zone_in(text: str, *, alone: bool) -> Zone | None:
    """Zone that a text states, which says nothing else if ``alone``; None if it states none."""
    if place := _PLACE.search(text):
        try:
            return Zone(text, place=ZoneInfo(place[0]).key)
        except (KeyError, ValueError, OSError):
            return Zone(text)
    offset = _OFFSET.search(text) or (_BARE.fullmatch(text.strip()) if alone else None)
    if offset is not None:
        part = offset.groupdict().get("part")
        size = int(offset["hours"]) + int(offset["minutes"] or 0) / 60.0 + float(f"0.{part or 0}")
        back = offset["sign"].lower() in ("-", "\u2212", "minus")
        known = size <= 14.0 and offset["sign"] != "\u00b1"
        return Zone(text, (-size if back else size) if known else None)
    spelled = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower()
    words = [word for word in re.split(r"[\W\d_]+", spelled) if word]
    ends = words if alone else [*words[:1], *words[-1:]] if len(words) < 4 else []
    hours = {_HOURS[word] for word in ends if word in _HOURS and (alone or word not in _ALONE)}
    several = [word for word in ends if _SEVERAL.fullmatch(word)]
    if not alone:  # ct may be anything, and est estimated
        several = [word for word in ends if (word in several and len(word) > 2) or word == "est"]
    local = any(map(_LOCAL.fullmatch, words)) or not _LOCAL_CODES.isdisjoint(ends)
    unknown = alone and not hours and _UNKNOWN.fullmatch(text) is not None
    if local or several or unknown or len(hours) > 1:
        return Zone(text)
    return Zone(text, hours.pop()) if hours else None
