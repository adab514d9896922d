"""What each column of a table says, by its name, its units and its cells, so that none is passed over unseen.

A column that nobody named may change what another one means: rows of 5 and of 100 dbar are no repeated
measurements, numbers of several elements no field. What each of them is, is told here once; those that were
not used are refused, said, or, where they cannot matter, passed over.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import ArgumentError, DataError
from cagp_dist.fields.categories import (
    is_bad,
    is_sign,
    may_be_bad,
    may_tell,
    measured_first,
    mixes_quantities,
)
from cagp_dist.fields.column_names import (
    ANY,
    DATE,
    DAY_OF_YEAR,
    EMPTY,
    LATITUDE,
    LONGITUDE,
    NAME,
    NOISE_STD,
    PART_OF_YEAR,
    TIME,
    VALUE,
    counted_from,
    plain,
)
from cagp_dist.fields.tables.columns import NUMBER, Columns, shown_text
from cagp_dist.fields.tables.degrees import hemisphere_of, part_of
from cagp_dist.remedies import Setting
from cagp_dist.text import counted
from cagp_dist.variables import bare
from cagp_dist.variables.stated_units import Units, extremes, stated_units
from cagp_dist.variables.units import is_unit, plain_units

MOST_SHOWN = 5
FEWEST_COUNTED = 5  # whole numbers that rise by one from row to row count the rows
MOST_SIGNS = 4  # different cells of a column of signs
MOST_CLASSES = 20  # different texts of a column of flags or classes; what has more is free text
MOST_LEVELS = 10  # different levels, heights or periods of a table that mixes them
PLACES_PER_LEVEL = 3  # at least; where each place has its own, as elevations are, it belongs to the place
NOMINAL = 4  # so many different levels are those of instruments or layers; more may be measured numbers
NARROW, MEASURED_ALIKE = 0.05, 0.5  # spread, as part of the largest, of few and of more that are one level


class Kind(Enum):
    """What a column says."""

    PLACE = auto()  # where, in degrees or on a plane
    ELEVATION = auto()  # of a place
    HEIGHT = auto()  # how high or deep something was measured
    NAME = auto()  # what a place is called
    DAY = auto()  # when: parts of a date, and counts of days
    TIME = auto()  # when something happened, was expected or was written
    ZONE = auto()  # of times
    COUNTER = auto()  # numbers of rows or of places
    SCALE = auto()  # what a value is yet to be multiplied by, or its sign
    QUALITY = auto()  # how good a measurement is
    FLAG = auto()  # marks and codes of other kinds
    REMARK = auto()
    NOISE = auto()
    ELEMENT = auto()  # which quantity was measured
    MATERIAL = auto()  # in what it was measured: a horizon, a fraction, a medium
    PERIOD = auto()  # over how long it was added up or averaged
    SYSTEM = auto()  # what coordinates or heights count from
    UNIT = auto()  # of what was measured
    LEVEL = auto()  # at which pressure, wavelength or probability
    VERSION = auto()  # which of several measurements it is: member, version, step
    QUANTITY = auto()  # what was measured
    OTHER = auto()  # it cannot be told


_UNIT_WORDS = "units?|uom|einheit(en)?|masseinheit|unit[ae]s?|unidad(es)?|unidade|eenheid|enhe[td]|yksikko"
_NAMES = {
    Kind.COUNTER: r"unnamed.*|level_0|(.*_)?(index|rows?|nr|id|fid|oid|objectid|seq|sequence|rec|record)|"
    r"(obs|row|rec|record|sample|measurement)_?(no|num|number)",
    Kind.SYSTEM: r"(utm_)?zone|epsg|srid|crs|(vertical_?|v)?datum",
    Kind.PLACE: r"(lat|lon)[a-z]*_?(min|max|north|south|east|west|[nsew])|(min|max)_?(lat|lon)[a-z]*|"
    r"x|y|easting|northing|utm_.*|geometry|geohash",
    Kind.ELEVATION: r".*elev.*|alt(itude)?(_.*)?|(station|site|stn|ground|surface|terrain)_?height.*|.*asl",
    Kind.ZONE: r"(.*_)?(tz|tzid|tzone|time_?zone)(_.*)?|"
    r"(.*_)?(utc|gmt|tz)_?(offset|shift|diff(erence)?|delta)(_.*)?|"
    r"(hours_?|offset_?)(from|to|off)_?(utc|gmt)(_.*)?|zeitzone|zona_horaria|fuseau(_horaire)?|fuso(_h?orario)?|"
    r"huso_horario|zona_oraria|aikavyohyke|tidszon[e]?|tidssone|tijdzone|strefa(_czasowa)?|casov[ae]_(zona|pasmo)|"
    r"(is_)?dst|(is_)?daylight(_.*)?|(is_)?(summer|winter)_?time|sommerzeit",
    Kind.ELEMENT: r"elements?|param|parameter(_?(name|code|id|cd|type|label))?|element_.*|variable(_?name)?|"
    r"data_?type|measurand|(analyte|pollutant|species|constituent|characteristic)(_?(name|code|id))?|"
    r"(observed_?)?property|quantity|short_?name",
    Kind.MATERIAL: r"(soil_?)?horizons?|(size_?|sample_?)?fraction|matrix|medium|sample_?(type|medium)|"
    r"(activity_)?media_?(name)?|tissue",
    Kind.QUALITY: r"(.*_)?(quality|q[acf])(_?(level|code|control|flag|status|value|\d))?|.*qf|"
    r"(.*_)?(validity|gultigkeit|qualitat(sniveau)?|validite|validez|validita|reliability)(_?(flag|code))?|"
    r".*flags?(_[a-z]|_?\d)?|(.*_)?(qualifiers?|mask(ed)?|(is_)?valid|outliers?|bad|rejected|suspect|(left_)?censor(ed|ing)?|"
    r"(non_?)?detect(ed|s)?)|(data|sensor|instrument|measurement|obs)_?status",
    Kind.FLAG: r"(.*_)?(attributes|code|status)|.*_cd",
    Kind.SCALE: r"(.*_)?(sign|multipl(ier|icator)|divisor|exponent|scal(e|ing)_?factor|power_of_(10|ten)|"
    r"add_?offset)|"
    r"((value|result|data|obs|unit|conversion|calibration|correction|dilution|gain)_?)?"
    r"(factor|mult|scal(e|ing)|exp|pow(er)?(10)?|offset|correction)",
    Kind.REMARK: r"(.*_)?(remarks?|comments?|notes?|description)",
    Kind.NOISE: r"(.*_)?(err|error|std|stdev|stddev|sd|sigma|se|uncertainty|rmse|noise(_.*)?)",
    Kind.UNIT: rf"(.*_)?({_UNIT_WORDS})(_?code)?|unit_of_measure(ment)?|.*unit_?code",
    Kind.PERIOD: r"(.*_)?(period|duration|interval)_(sec|s|min|minutes?|hrs?|hours?|h|days?|d|code|type)|"
    r"(.*_)?(averaging|accumulation|aggregation|integration)(_?(time|period|interval|window|hours?))?(_.*)?|"
    r"(time_?)?(window|duration)|(sampling|measurement|observation|rain|precip.*)_?(period|duration|interval)",
    Kind.DAY: r"juld|julian.*|jd|mjd|(decimal|fractional)_?year|year_?(decimal|fraction)|ordinal|day.*|"
    r"hour.*|(local|utc|gmt|lst|lt)_hour|minute|second|month",
    Kind.HEIGHT: r".*height.*|(.*_)?hgt(_.*)?|z|.*depth.*|"
    r"((hzn|horizon|layer|sample|soil)_?)?(top|bot|bottom|upper|lower)(_?c?m)?",
    Kind.LEVEL: r"(pressure_|model_|n_)?levels?|lev|pres(s|sure)?|p|quantile|percentile|probability|"
    r"wave_?length|freq(uency)?|band|channel|bin|layer",
    Kind.VERSION: r"step|lead_?(time|hours?)|forecast.*|fc.*hour|fhour|"
    r"members?|number|realization|ensemble.*|version|expver",
    Kind.TIME: r".*time.*|.*date.*",
    Kind.NAME: r"name|station.*|wmo|country|site(_name)?|place|city|location|source|network",
    Kind.QUANTITY: r"temp.*|.*_temp(erature)?(_.*)?|t(2m|_?max|_?min|avg|mean)?|ta[vs].*|[uvtq]\d*m?|"
    r".*precip.*|.*rain.*|prcp|tp|.*wind.*|ws|gust|.*humid.*|rh|dew.*|td|d2m|t2m|slp|mslp?|(.*_)?(sea_level|surface|station)_pressure|"
    r"snow.*|snwd|.*cloud.*|tcc|.*radiation.*|[gd][hn]i|vis.*|pm_?\d.*|o3|ozone|no[2x]?|so2|co2?|ch4|nh3|"
    r"(p?sal|salinity)(_.*)?|.*oxygen.*|doxy|chl.*|nitrate|phosphate|silicate|ph|turbidity|cond.*|density|"
    r"albedo|ndvi|evap.*|runoff|discharge|soil_moisture|vwc|sst|ssh|sla|swh|hs|period|speed|.*_speed|.*concentration",
}  # fmt: skip
_GRADES = re.compile(
    r"q_[a-z][a-z0-9]*|qn(_?\d+)?|qn_[a-z]\w*"
)  # of ECA&D and DWD, if they are whole numbers
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in _NAMES.items()}
"""Names of columns, spelled by `plain`; the first that fits tells."""

_UNITS = {"celsius", "fahrenheit", "k", "%", "m s-1", "knot", "km h-1", "mph", "ft s-1", "w m-2", "j m-2",
          "mm", "mm d-1", "mm h-1", "kg m-2 s-1", "g kg-1", "kg kg-1", "ug m-3", "mg m-3",
          "ppm", "ppb", "psu", "mg l-1", "umol kg-1", "ml l-1", "dbz"}  # fmt: skip
"""Of quantities that are measured, and are no levels."""

_HOURS = {"h", "hr", "hours", "hour", "min", "minutes", "d", "days", "day"}
_OF_A_THING = re.compile(
    r".*(snow|wave|swell|cloud|canopy|tree|surge|tide|boundary|geopot|dynamic|mixe?d|secchi|optical|"
    r"sea_surface|water|air_|ice_).*(height|depth|hgt|fraction|quality)(_c?m|_ft)?"
)
"""A height, depth, fraction or quality that is what was measured."""

_LIMIT_MARK = re.compile(r"[<>\u2264\u2265]=?")
_LIMIT_WORD = re.compile(
    r"n\.?d\.?|uj?|[bl]dl|b?[lm][do][dlq]|<?\s*(lod|loq|mdl)|not[ _]detect(ed)?|non-?detects?|"
    r"(present )?below.*|less than|greater than",
    re.IGNORECASE,
)
_SAYS_LIMITS = re.compile(r".*(remark|qual|censor|detect|sign|limit|cd|code).*")
_WEATHER = re.compile(r"temp|^t(2m|_?max|_?min|avg|mean)?$|^ta[vs]|precip|rain|prcp|wind|humid|dew|slp")
_NO_VALUE = {Kind.PLACE, Kind.ELEVATION, Kind.HEIGHT, Kind.NAME, Kind.DAY, Kind.ZONE, Kind.COUNTER,
             Kind.QUALITY, Kind.FLAG, Kind.REMARK, Kind.ELEMENT, Kind.MATERIAL, Kind.SYSTEM,
             Kind.UNIT, Kind.SCALE}  # fmt: skip
_CANNOT_MATTER = {Kind.COUNTER, Kind.QUALITY, Kind.FLAG, Kind.REMARK, Kind.NOISE, Kind.QUANTITY}
_TELLS_APART = {Kind.DAY, Kind.TIME, Kind.ELEMENT, Kind.MATERIAL, Kind.PERIOD, Kind.SYSTEM, Kind.UNIT,
                Kind.LEVEL, Kind.VERSION, Kind.ZONE}  # fmt: skip
_CLASSES = {Kind.QUALITY: "flags", Kind.MATERIAL: "materials", Kind.SYSTEM: "systems"}
_MEASURED_AT = {Kind.HEIGHT: "levels", Kind.LEVEL: "levels", Kind.PERIOD: "periods"}
"""What rows of one quantity may not differ in, though no place has two: keys of errors."""
_TOGETHER = {"flags": "if all values are good", "systems": "if all of them are in one system"}
"""When rows that differ may be used together; what is not here, where they measure the same quantity."""
_MAY_DIFFER = {*_CLASSES, *_MEASURED_AT, Kind.ELEMENT, Kind.ZONE, Kind.SCALE}
_UTC = {"utc", "gmt", "z", "zulu", "0", "0.0", "+0", "+00", "+00:00", "00:00", "+0000", "etc/utc", "utc+0",
        "utc+00:00", "gmt+0", "false", "no", "n"}  # fmt: skip


def kinds_of(frame: Columns) -> dict[str, Kind]:
    """Say of each column of a table what it is."""
    return {name: _kind(frame, name) for name in frame.columns}


def _kind(frame: Columns, name: str) -> Kind:
    spelled = plain(name)
    if spelled in (*LATITUDE, *LONGITUDE) or hemisphere_of(name) or part_of(name) or counted_from(name):
        return Kind.PLACE
    if spelled in NOISE_STD:
        return Kind.NOISE
    if spelled in (*DATE, *DAY_OF_YEAR, *PART_OF_YEAR):
        return Kind.DAY
    if spelled in TIME:
        return Kind.TIME
    if spelled in NAME[:-1]:
        return Kind.NAME
    if spelled not in VALUE:
        if _OF_A_THING.fullmatch(spelled):
            return Kind.QUANTITY
        if _GRADES.fullmatch(spelled) and _are_codes(frame.columns[name]):
            return Kind.QUALITY
        if spelled in ("period", "duration"):  # of waves, or that rain was added up over
            of_waves = frame.is_numeric(name) and plain_units(frame.units(name)) not in _HOURS
            return Kind.QUANTITY if of_waves else Kind.PERIOD
        for kind, pattern in _PATTERNS.items():
            if pattern.fullmatch(spelled):
                return Kind.COUNTER if spelled == "number" and _counts_rows(frame.columns[name]) else kind
        if plain_units(frame.units(name)) in _UNITS:
            return Kind.QUANTITY
        if _counts_rows(frame.columns[name]):
            return Kind.COUNTER
    return Kind.OTHER


def _are_codes(column: NDArray[Any]) -> bool:
    """Whether all numbers are whole and small, as grades are."""
    if column.dtype.kind not in "iuf":
        return False
    known = column[~np.isnan(column)] if column.dtype.kind == "f" else column
    return bool(known.size and ((known == np.round(known)) & (np.abs(known) < 100)).all())


def _counts_rows(column: NDArray[Any]) -> bool:
    """Whether whole numbers rise by one from row to row."""
    if column.dtype.kind not in "iuf" or column.size < FEWEST_COUNTED:
        return False
    return bool((np.diff(column) == 1).all() and column[0] == np.round(column[0]))


def value_column(frame: Columns, kinds: Mapping[str, Kind], used: Collection[str]) -> str:
    """Find the column that holds the values, if that can be told."""
    others = [name for name in frame.columns if name not in used and kinds[name] not in _NO_VALUE]
    numeric = [name for name in others if frame.is_numeric(name)]
    usual = [name for name in others if plain(name) in VALUE]
    for found in (usual, numeric, others):
        if len(found) == 1:
            return str(frame.find("value", found[0], ()))
    reason = "several columns that may be the value" if numeric else "no column for the value"
    likely = sorted(numeric, key=lambda name: not _WEATHER.search(plain(name)))[:MOST_SHOWN] or ["COLUMN"]
    raise ArgumentError(
        f"{frame.title} has {reason}; it has {frame.listed}.",
        key="which-value" if numeric else "no-column",
        remedies=tuple(Setting("value", shown_text(name)[1:-1]) for name in likely[:1]),
    )


def units_of(
    frame: Columns,
    kinds: Mapping[str, Kind],
    column: str,
    kept: Indices,
    said: Collection[str],
    given: str | None,
    values: Array,
) -> Units:
    """Units of the values of some rows: stated with their column, or in one beside it, or as given."""
    stated = frame.units(column)
    for name, kind in kinds.items():
        if frame.is_numeric(name) or name == column or not is_about(name, frame.columns, {column}):
            continue
        if kind is not Kind.UNIT and (name in said or not _are_units(frame.columns[name][kept])):
            continue
        found = [text for text in _distinct(frame.columns[name][kept]) if text]
        if len(found) > 1 and name not in said:
            raise ArgumentError(
                f"the values {column!r} of {frame.title} are in several units: column {name!r} has "
                f"{_listed(found)}; expected one. Convert them before, or use rows of one unit.",
                key="several-units",
                remedies=(Setting("where", {name: found[0]}),),
            )
        words = rf"_?({_UNIT_WORDS}|code|of|measure(ment)?|value|result|data|obs)"
        stem = re.sub(words, "", plain(name))
        if not plain(column).startswith(stem):
            continue  # of something that is not there, such as heights
        if len(found) == 1 and stated and plain_units(found[0]) != plain_units(stated) and name not in said:
            raise ArgumentError(
                f"column {column!r} of {frame.title} is in {stated!r}, and {name!r} says {found[0]!r}.",
                key="several-units",
                remedies=(Setting("where", {name: ANY}, "if that of the column is right"),),
            )
        stated = stated or (found[0] if len(found) == 1 else "")
    about = {**frame.attributes.get(column, {}), "units": stated}
    what = f"values of column {column!r} of {frame.title}"
    return stated_units(bare(column), about, given, partial(extremes, [values]), what)


def _are_units(cells: NDArray[Any]) -> bool:
    """Whether all cells are units, and not all letters, whatever their column is called."""
    if cells.dtype.kind not in "OUT" or not is_unit(str(cells[0]).strip()):
        return False
    found = [text for text in _distinct(cells) if text]
    return len(found) > 1 and all(map(is_unit, found)) and any(len(text) > 1 for text in found)


def check_neighbours(
    frame: Columns,
    kinds: Mapping[str, Kind],
    looked_at: Collection[str],
    keys: Sequence[NDArray[np.generic]],
    values: Array,
    kept: Indices,
    *,
    zoned: bool,
    plane: bool,
    keyed_by_time: bool,
) -> list[str]:
    """Refuse what unused columns say against reading these rows as one quantity; notes on what remains.

    Rows with the same ``keys`` (places, times, names) are repeated measurements, unless a column tells them
    apart: one that is known to, or that cannot be told and does so for over half of them. The first two keys
    are places. ``zoned`` says that times came with their zones, ``plane`` that places have x and y,
    ``keyed_by_time`` that there are times.
    """
    places, notes = len(np.unique(np.column_stack(keys[:2]), axis=0)), []
    for name, kind in kinds.items():
        text = frame.columns[name].dtype.kind in "OUTb"
        offset = keyed_by_time and says_offset(name) and frame.columns[name].dtype.kind in "iufm"
        told = text or kind in _MAY_DIFFER or may_tell(name) or offset
        if name in looked_at or kind in (Kind.PLACE, Kind.UNIT) or not told:
            continue
        found = _distinct(frame.columns[name][kept])
        there = [cell for cell in found if cell != ""]
        if offset and is_about(name, frame.columns, looked_at):
            check_offsets(name, frame.columns[name][kept])
            continue
        if kind is Kind.ZONE and not zoned and not {str(cell).lower() for cell in there} <= _UTC:
            raise DataError(
                f"column {name!r} of {frame.title} has the time zones {_listed(found)}, and times without a "
                "zone are taken as UTC. Write times with their offset, such as 2020-07-01T12:00+02:00.",
                key="time-zone",
                remedies=(Setting("where", {name: ANY}, "if the times are in UTC"),),
            )
        about = is_about(name, frame.columns, looked_at)
        limits = [cell for cell in there if _is_limit(name, cell)]
        if limits and about:
            measured = [Setting("where", {name: cell}) for cell in found if cell not in limits]
            raise DataError(
                f"some values of {frame.title} are limits and no numbers: column {name!r} has "
                f"{_listed(limits)}; expected what was measured.",
                key="limit",
                remedies=(*measured[:1], Setting("where", {name: ANY}, "to take limits as measurements")),
            )
        # an empty cell may be a minus
        as_written = found if len(found) > MOST_SIGNS else _distinct(frame.columns[name][kept], empty=())
        signs = kind is Kind.SCALE or text or may_tell(name)
        if about and signs and (is_sign(name, as_written) or (kind is Kind.SCALE and scales(name, there))):
            raise DataError(
                f"column {name!r} of {frame.title} ({_listed(as_written)}) seems to say by what the values "
                "are yet to be multiplied, or their signs; expected the values themselves. Work them out "
                "before.",
                key="values-scaled",
                remedies=(Setting("where", {name: ANY}, "if the values are right without it"),),
            )
        whole = all(isinstance(cell, (str, int)) or cell == round(cell) for cell in there)
        whole |= kind is Kind.QUALITY
        on_globe = not plane and plain(name) in ("zone", "utm_zone")
        classes = whole and len(found) <= MOST_CLASSES and not on_globe
        codes = frame.columns[name].dtype.kind in "iu" and plain(name) != "quantity"
        if kind in _CLASSES and classes and about and len(found) > 1:
            key = _CLASSES[kind]
        elif kind is Kind.ELEMENT and len(there) > 1 and (codes or not frame.is_numeric(name)):
            key = "elements"
        elif kind in _MEASURED_AT and about and _are_levels(there, places):
            key = _MEASURED_AT[kind]
        else:
            if about and not (kind is Kind.NAME and plain(name) in (*NAME, "country")):
                notes += _check_categories(frame, name, kind, found)
            continue
        raise _apart(name, f"the rows of {frame.title} differ", found, key)
    return notes + _check_repeats(frame, kinds, looked_at, keys, values, kept)


def _check_categories(frame: Columns, name: str, kind: Kind, found: Sequence[Any]) -> list[str]:
    """Refuse categories of which some say that values are bad, or another quantity; notes on what may be."""
    there = [cell for cell in found if cell != ""]
    if not there or len(there) > MOST_CLASSES:
        return []
    if len(found) == 1 and may_be_bad(name, there[0]):
        return [
            f"column {name!r} of {frame.title} is {there[0]} in every row, which marks bad or doubtful "
            "values in several schemes of quality flags: check what it means here."
        ]
    bad = [cell for cell in there if is_bad(name, cell)]
    if bad and (len(bad) == len(found) or kind is not Kind.QUALITY):
        rest = [cell for cell in measured_first(name, found) if cell not in bad]
        raise DataError(
            f"some values of {frame.title} are bad: column {name!r} has {_listed(bad)}; expected good ones.",
            key="flags-differ",
            remedies=(
                *(Setting("where", {name: cell}, "to use these rows") for cell in rest[:1]),
                Setting("where", {name: ANY}, "if all values are good"),
            ),
        )
    if kind not in (Kind.REMARK, Kind.QUALITY) and mixes_quantities(name, found):
        key = "levels" if kind is Kind.VERSION else "categories"
        raise _apart(name, f"the rows of {frame.title} differ", measured_first(name, found), key)
    return []


def scales(name: str, cells: Sequence[Any]) -> bool:
    """Whether numbers of a factor, an exponent or an offset change the values."""
    numbers = [cell if isinstance(cell, (int, float)) else _number(cell) for cell in cells]
    neutral = 0.0 if re.search(r"exp|pow|magnitude|offset|correction", plain(name)) else 1.0
    return bool(numbers) and None not in numbers and any(number != neutral for number in numbers)


def _number(cell: str) -> float | None:
    return float(cell) if NUMBER.fullmatch(cell) else None


def says_quality(name: str) -> bool:
    """Whether a column or a variable says, by its name, how good measurements are."""
    spelled = plain(name)
    return bool(_PATTERNS[Kind.QUALITY].fullmatch(spelled) and not _OF_A_THING.fullmatch(spelled))


def says_scale(name: str) -> bool:
    """Whether a column or a variable says, by its name, by what values are yet to be multiplied."""
    return _PATTERNS[Kind.SCALE].fullmatch(plain(name)) is not None


def check_offsets(name: str, offsets: NDArray[Any]) -> None:
    """Refuse times that are yet to be added to that of the values."""
    known = offsets[offsets == offsets]
    if known.size and (known != np.zeros(1, known.dtype)).any():
        ends = known.astype("timedelta64[s]") if known.dtype.kind == "m" else known
        raise DataError(
            f"{name!r} seems to have times since that of the values ({ends.min()} to {ends.max()}), which "
            "are yet to be added to it; expected when each value was measured. Add them before.",
            key="time-offset",
            remedies=(Setting("where", {name: ANY}, "if the times are right without it"),),
        )


def says_offset(name: str) -> bool:
    """Whether a column or a variable has, by its name, times since that of the values, to be added to it."""
    return _OFFSETS.fullmatch(plain(name)) is not None


_OFFSETS = re.compile(r"(.*_)?(d_?time|delta_?time|time_?(offset|delta|difference|since_reference))(_.*)?")


def is_about(name: str, names: Iterable[str], looked_at: Collection[str]) -> bool:
    """Whether what a name says is not about another one that is not looked at, as ``rh_qc`` is about rh."""
    spelled = f"_{plain(name)}_"
    others = {column: plain(column) for column in names if column != name}
    within = {
        column: len(other)
        for column, other in others.items()
        if f"_{other}_" in spelled or (len(other) > 2 and spelled.startswith(f"_{other}"))
    }
    return not within or max(within, key=lambda column: within[column]) in looked_at


def _is_limit(name: str, cell: object) -> bool:
    """Whether a cell beside a value says that it is a limit: a mark, or a word where they are expected."""
    word = _SAYS_LIMITS.fullmatch(plain(name)) and _LIMIT_WORD.fullmatch(str(cell))
    return bool(word or _LIMIT_MARK.fullmatch(str(cell)))


def _are_levels(found: Sequence[Any], places: int) -> bool:
    """Whether places were measured at few levels, each of them at several places."""
    if not 1 < len(found) <= min(MOST_LEVELS, places // PLACES_PER_LEVEL):
        return False
    if any(isinstance(level, str) for level in found):
        return True
    alike = NARROW if len(found) <= NOMINAL else MEASURED_ALIKE
    return bool(max(found) - min(found) > alike * max(map(abs, found)))


def _check_repeats(
    frame: Columns,
    kinds: Mapping[str, Kind],
    looked_at: Collection[str],
    keys: Sequence[NDArray[np.generic]],
    values: Array,
    kept: Indices,
) -> list[str]:
    """Refuse rows with the same keys that another column tells apart; else say how many there are."""
    import pandas as pd

    own = [name for name in frame.columns if plain(name) in NAME[1:-1]]
    keys = [*keys, *(frame.columns[name][kept].astype(str) for name in own)]
    group = pd.DataFrame(dict(enumerate(keys))).groupby(list(range(len(keys))), dropna=False, sort=False)
    number, size = group.ngroup().to_numpy(), group[0].transform("size").to_numpy()
    repeated = np.flatnonzero(size > 1)
    if repeated.size == 0:
        return []
    groups = len(np.unique(number[repeated]))
    found, partly = [], []
    for name, column in frame.columns.items():
        if name in looked_at or name in own or kinds[name] in _CANNOT_MATTER:
            continue
        cells = column[kept]
        codes, distinct = pd.factorize(cells if cells.dtype.kind in "biufM" else cells.astype(str))
        apart = len(pd.unique(number[repeated] * (len(distinct) + 1) + codes[repeated])) - groups
        if 2 * apart > repeated.size - groups or (apart and kinds[name] in _TELLS_APART):
            found.append((-apart, len(distinct), name))
        elif apart:
            partly.append(name)
    if found:
        _, _, name = min(found, key=lambda entry: entry[:2])
        rows = f"{counted(repeated.size, 'row')} of {frame.title}"
        same = f"{rows} have the same place and time as another row and differ"
        raise _apart(name, same, _distinct(frame.columns[name][kept]), "levels")
    equal = int(pd.DataFrame(dict(enumerate([*keys, values]))).duplicated().sum())
    copies = (
        f" {counted(equal, 'row')} repeat{'s' if equal == 1 else ''} place, time and value of another row: "
        "if they are copies, error bars are too small."
    )
    copies = copies if equal else ""
    differ = f"; they differ in {' and '.join(map(repr, partly[:MOST_SHOWN]))}" if partly else ""
    return [
        f"{counted(repeated.size, 'row')} share place and time with another row and count as repeated "
        f"measurements{differ}.{copies}"
    ]


def _apart(name: str, said: str, distinct: Sequence[Any], key: str) -> ArgumentError:
    """Say that a column tells rows apart, and how to choose among them."""
    distinct = measured_first(name, distinct) if key == "flags" else distinct
    return ArgumentError(
        f"{said} in column {name!r} ({_listed(distinct)}), of which nothing is said.",
        key=f"{key}-differ",
        remedies=(
            Setting("where", {name: distinct[0]}, "to use these rows"),
            Setting("where", {name: ANY}, _TOGETHER.get(key, "if all of them measure the same quantity")),
        ),
    )


def _distinct(cells: NDArray[Any], empty: Collection[str] = EMPTY) -> list[Any]:
    """Give the different cells, those of most rows first: numbers, or texts; empty where there is none."""
    import pandas as pd

    codes, found = pd.factorize(cells, use_na_sentinel=False)
    ranked = np.argsort(-np.bincount(codes, minlength=len(found)), kind="stable")
    distinct = (iso_times(found) if cells.dtype.kind == "M" else np.asarray(found))[ranked].tolist()
    numbers = cells.dtype.kind in "biuf"
    distinct = [cell if numbers and not pd.isna(cell) else str(cell).strip() for cell in distinct]
    return list(dict.fromkeys("" if str(cell).lower() in empty else cell for cell in distinct))


def _listed(cells: Sequence[Any]) -> str:
    """List cells, the first ones if there are many."""
    shown = ", ".join(
        shown_text(cell) if isinstance(cell, str) else repr(cell) for cell in cells[:MOST_SHOWN]
    )
    return shown if len(cells) <= MOST_SHOWN else f"{shown} and {len(cells) - MOST_SHOWN:,} others"


def iso_times(column: NDArray[np.generic]) -> NDArray[np.object_]:
    """Write times of a column as ISO 8601."""
    import pandas as pd

    codes, distinct = pd.factorize(column, use_na_sentinel=False)
    return np.asarray(np.array([iso_time(value) for value in distinct], dtype=object)[codes])


def iso_time(value: object) -> str:
    """Write a time as ISO 8601, without the time of day at midnight; what is no time as it is."""
    import pandas as pd

    time = pd.to_datetime(str(value).strip(), errors="coerce")
    return str(value).strip() if pd.isna(time) else time.isoformat().removesuffix("T00:00:00")
