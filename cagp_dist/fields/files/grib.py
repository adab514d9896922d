"""Messages of a GRIB file: those of a variable, told apart by their keys, as datasets that are read lazily.

A job chooses with ``level`` and ``select``; messages between which nothing was chosen are refused.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import DataError
from cagp_dist.extras import from_extra
from cagp_dist.fields.gridded import (
    PLACE,
    SELECTED,
    choose_level,
    explain_absent,
    selection_words,
    unit_of_levels,
)
from cagp_dist.fields.selection import Choice, Selection, is_chosen, parse_times, written_choice
from cagp_dist.remedies import Setting
from cagp_dist.store.batches import is_preliminary
from cagp_dist.text import counted, shown_time
from cagp_dist.variables import variable_named

eccodes = from_extra("grib", "eccodes", "reading GRIB files")

_SAME = (
    "typeOfLevel", "level", "topLevel", "bottomLevel", "number", "stepType", "percentileValue", "wavelength",
    "scaledValueOfFirstWavelength", "directionNumber", "frequencyNumber", "constituentType", "aerosolType",
    "probabilityType", "scaledValueOfLowerLimit", "scaledValueOfUpperLimit",
)  # fmt: skip
"""Keys that all messages of a field share."""

MOST_POINTS = 2**26
_SIZES = ("gridType", "numberOfPoints", "Ni", "Nj", "N")
_CORNERS = tuple(
    f"{axis}Of{end}GridPointInDegrees" for axis in ("latitude", "longitude") for end in ("First", "Last")
)
_GRID = "md5GridSection"
_OF_A_TIME = ("stepRange", "startStep", "lengthOfTimeRange", "dataType", "stream", "class", "expver",
              "dataTime", "dataDate")  # fmt: skip
"""Keys that may tell messages of one time apart; beside them, all others."""

_OF_LEVELS = ("level", "topLevel", "bottomLevel")

_OF_THE_VALUES = re.compile(
    r"7777|md5.*|.*[lL]ength.*|offset.*|section\d.*|.*Values?|values|max|min|maximum|minimum|average|avg|sd|"
    r"skew\w*|kurt\w*|const|isConstant|packing\w*|bitsPerValue|\w*ScaleFactor|.*unpackedError|"
    r"numberOf(Missing|Coded|Values).*|dataLength|count.*|(lat|lon)\w*|distinct\w*|getNumberOfValues|bitmap.*"
)
"""Keys of the numbers themselves, not of what they are."""

_SCANNING = ("iScansNegatively", "jScansPositively", "jPointsAreConsecutive", "alternativeRowScanning")

_BY_LINES = ("regular_ll", "regular_gg", "rotated_ll", "rotated_gg", "lambert_azimuthal_equal_area")
"""Grids whose places the decoder lists in the order of the values, whatever the scanning mode is, but for
rows that alternate."""

_BY_POINTS = ("reduced_gg", "reduced_ll", "reduced_rotated_gg", "healpix", "unstructured_grid")
"""Grids whose places the decoder lists in the order of the values, if these run from north to south."""

_NORTHWARD = ("lambert", "polar_stereographic", "mercator", "albers")
"""Grids whose places the decoder lists rightly if the values run eastward and northward."""

_EARTH_AXES = ("regular_ll", "regular_gg", "reduced_gg", "reduced_ll", "healpix", "mercator")
"""Grids whose rows run east, so that components along the grid are components on the globe."""

_MISSING = float(np.finfo(np.float32).max)
_NO_VERSION = "undef"


@dataclass(frozen=True, eq=False)
class Message:
    """Where a message is, what it holds and when."""

    offset: int  # bytes into the file
    part: int  # which of the fields of a message there
    keys: Mapping[str, str]  # of the keys that are looked at, those that it has
    time: np.datetime64  # when it holds

    @property
    def version(self) -> str:
        """Experiment version."""
        return self.keys.get("expver", _NO_VERSION)

    @property
    def type_of_level(self) -> str:
        """What its levels are."""
        return self.keys.get("typeOfLevel", "level")

    @property
    def level(self) -> float:
        """Number of its level; 0 for a surface."""
        return float(self.keys.get("level", 0.0))


def open_grib(
    path: Path,
    selection: Selection,
    *,
    checked: bool = True,
    report: Callable[[str], None] = lambda text: None,
) -> list[xr.Dataset]:
    """Open the messages of a variable: those of each experiment version and grid definition as a dataset.

    ``report`` is told how many messages are decoded, of each of these, where their values are read.
    """
    variable, level, select = selection.variable, selection.level, selection.select
    messages = _chosen_messages(path, variable, level=level, select=select)
    if selection.times is not None:
        moments = np.array([message.time for message in messages])
        inside = np.isin(moments, wanted := parse_times(selection.times))
        if np.isin(wanted, moments).all():  # otherwise who selects the times says which are there
            messages = [message for message, there in zip(messages, inside, strict=True) if there]
    if checked:
        _check_same(messages, variable)
        _check_times(path, messages, variable)
    groups: dict[tuple[str, str], list[Message]] = {}
    for message in messages:
        groups.setdefault((message.version, message.keys[_GRID]), []).append(message)
    said = selection_words(select)
    return [_dataset(path, variable, group, said, level, report) for group in groups.values()]


def _chosen_messages(
    path: Path, variable: str, *, level: float | None, select: Mapping[str, Choice]
) -> list[Message]:
    """Messages of a variable with the level and the keys that were chosen."""
    messages = _messages(path, variable, also=select)
    for key, choice in select.items():
        kept = [message for message in messages if is_chosen(message.keys.get(key), choice)]
        if not kept:
            there = _listed(message.keys.get(key) for message in messages)
            raise DataError(
                f"no message of {variable!r} has {key} = {written_choice(choice)}; "
                + (f"it is {there}. Choose one of these." if there else f"the messages have no key {key!r}."),
                key="not-there",
            )
        messages = kept
    if level is None:
        return messages
    by_type: dict[str, list[Message]] = {}
    for message in messages:
        by_type.setdefault(message.type_of_level, []).append(message)
    kept, refused = [], None
    for kind, of_kind in by_type.items():
        values = np.array(list(dict.fromkeys(message.level for message in of_kind)))
        try:
            found = values[choose_level(values, level, unit_of_levels(kind), name=variable, axis=kind)]
        except DataError as error:
            refused = error
        else:
            kept += [message for message in of_kind if message.level == found]
    if refused is not None and not kept:
        raise refused
    return kept


def _messages(path: Path, variable: str, *, also: Mapping[str, Choice]) -> list[Message]:
    """List the messages of the parameter that a file has under a name: its own, or one that is known."""
    known = variable_named(variable)
    wanted = {name.lower() for name in (variable, known.name, *known.names)}
    names: dict[str, None] = {}
    found: dict[int, list[Message]] = {}
    looked = dict.fromkeys([*_SAME, *_SIZES, *_CORNERS, _GRID, *_OF_A_TIME, *also])
    with _handles(path) as handles:
        for offset, part, handle in handles:
            parameter = int(eccodes.codes_get(handle, "paramId"))
            spelled = [str(eccodes.codes_get(handle, key)) for key in ("shortName", "cfVarName")]
            names[spelled[0]] = None
            if parameter in known.grib or wanted & {name.lower() for name in spelled}:
                keys = {key: value for key in looked if (value := _value(handle, key)) is not None}
                if int(keys.get("numberOfPoints", 0)) > MOST_POINTS:  # of one value for all, in 200 bytes
                    raise DataError(
                        f"a message says that it has {keys['numberOfPoints']} points; expected "
                        f"{MOST_POINTS:,} at most. The file is damaged, or made to fill the memory.",
                        key="damaged",
                    )
                found.setdefault(parameter, []).append(Message(offset, part, keys, _time(handle)))
    if not found:
        raise explain_absent(variable, names)
    return found[next((parameter for parameter in found if parameter in known.grib), next(iter(found)))]


@contextmanager
def _handles(path: Path) -> Iterator[Iterator[tuple[int, int, int]]]:
    """All fields of a file: where their message begins, which of its fields they are, and their handles."""
    eccodes.codes_grib_multi_support_on()
    try:
        with path.open("rb") as stream:
            eccodes.codes_grib_multi_support_reset_file(stream)
            yield _each(stream)
    finally:
        eccodes.codes_grib_multi_support_off()


def _each(stream: Any) -> Iterator[tuple[int, int, int]]:
    last, part = -1, 0
    while (handle := eccodes.codes_grib_new_from_file(stream)) is not None:
        try:
            offset = int(eccodes.codes_get(handle, "offset"))
            part = part + 1 if offset == last else 0
            last = offset
            yield offset, part, handle
        finally:
            eccodes.codes_release(handle)


@contextmanager
def _handle(path: Path, message: Message) -> Iterator[int]:
    """Open one message, to be read whole."""
    with path.open("rb") as stream:
        stream.seek(message.offset)
        if message.part == 0:
            handle = eccodes.codes_grib_new_from_file(stream)
            try:
                yield handle
            finally:
                eccodes.codes_release(handle)
            return
    with _handles(path) as handles:
        for offset, part, handle in handles:
            if (offset, part) == (message.offset, message.part):
                yield handle
                return
    raise DataError(f"{path} has changed while it was read; it is read again later.", key="damaged")


def _value(handle: int, key: str) -> str | None:
    """Value of a key in words; None where the message has none."""
    if not eccodes.codes_is_defined(handle, key):
        return None
    try:
        if key in _OF_LEVELS:  # of layers in the ground a fraction of a metre
            return f"{eccodes.codes_get(handle, key, ktype=float):.9g}"
        value = str(eccodes.codes_get_string(handle, key))
    except eccodes.CodesInternalError:
        return None
    return None if value in ("unknown", "undef", "MISSING", "not_found") else value


def _time(handle: int) -> np.datetime64:
    date, clock = (int(eccodes.codes_get(handle, f"validity{what}")) for what in ("Date", "Time"))
    day, hour = f"{date:08d}", f"{clock:04d}"
    text = f"{day[:4]}-{day[4:6]}-{day[6:]}T{hour[:2]}:{hour[2:]}"
    try:
        return np.datetime64(text, "ns")
    except ValueError as error:
        raise DataError(
            f"a message holds at {text}, which is not a time. Correct the keys dataDate, dataTime and "
            "stepRange "
            "of that message, with grib_set of ecCodes, or leave it out.",
            key="damaged",
        ) from error


def _check_same(messages: Sequence[Message], variable: str) -> None:
    """Refuse messages of which some are on another level, of another member or on another grid."""
    told = _told_apart(messages, _SAME)
    levels = {message.level for message in messages}
    if next(iter(told), None) == "level" and len(levels) > 1:  # of one type: as of a field with that axis
        kind = messages[0].type_of_level
        order = np.array(sorted(levels, reverse=kind.startswith("isobaric")))
        choose_level(order, None, unit_of_levels(kind), name=variable, axis=kind)
    told = told or _told_apart(messages, _SIZES)
    if not told and len({frozenset(map(message.keys.get, _CORNERS)) for message in messages}) > 1:
        told = _told_apart(messages, _CORNERS)  # not where one grid is scanned from another corner
    if told:
        raise DataError(
            f"the {len(messages)} messages of {variable!r} are not of one kind: they differ in "
            f"{_said(told)}.",
            key="several-values",
            remedies=(_advice(told, messages),),
        )


def _check_times(path: Path, messages: Sequence[Message], variable: str) -> None:
    """Refuse messages of one time between which nothing chooses; those that agree in all keys pass."""
    early = is_preliminary([message.version for message in messages]).tolist()
    alike: dict[tuple[np.datetime64, bool], list[Message]] = {}
    for message, preliminary in zip(messages, early, strict=True):
        alike.setdefault((message.time, preliminary), []).append(message)
    for (time, _), group in alike.items():
        if len(group) == 1:
            continue
        told = _told_apart(group, _OF_A_TIME) or _told_apart(*_all_keys(path, group))
        if told:
            raise DataError(
                f"{len(group)} messages of {variable!r} hold at {shown_time(time)}; expected one for each "
                f"time. They differ in {_said(told)}.",
                key="several-values",
                remedies=(_advice(told, messages),),
            )


def _all_keys(path: Path, messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
    """Read all keys of messages that say what their values are."""
    full = []
    names: dict[str, None] = {}
    for message in messages:
        keys: dict[str, str] = {}
        with _handle(path, message) as handle:
            iterator = eccodes.codes_keys_iterator_new(handle)
            while eccodes.codes_keys_iterator_next(iterator):
                name = eccodes.codes_keys_iterator_get_name(iterator)
                if not _OF_THE_VALUES.fullmatch(name) and (value := _value(handle, name)) is not None:
                    keys[name] = value
            eccodes.codes_keys_iterator_delete(iterator)
        names |= dict.fromkeys(keys)
        full.append(Message(message.offset, message.part, keys, message.time))
    return full, list(names)


def _told_apart(messages: Sequence[Message], keys: Sequence[str]) -> dict[str, list[str | None]]:
    """Of some keys, those in which messages differ, and their values."""
    values = {key: list(dict.fromkeys(message.keys.get(key) for message in messages)) for key in keys}
    return {key: found for key, found in values.items() if len(found) > 1}


def _said(told: Mapping[str, Sequence[str | None]]) -> str:
    """Say what tells messages apart: three keys at most."""
    return "; ".join(f"{key} ({_listed(values, none='none')})" for key, values in list(told.items())[:3])


def _listed(values: Any, *, none: str = "") -> str:
    there = dict.fromkeys(none if value is None else value for value in values)
    found = [value for value in there if value]
    return ", ".join(found[:8]) + (", ..." if len(found) > 8 else "")


def _advice(told: Mapping[str, Sequence[str | None]], messages: Sequence[Message]) -> Setting:
    """Say which key chooses: one with a value that leaves a message for each time, if there is one."""
    choices = [(key, value) for key, values in told.items() for value in values if value is not None]
    times = len({message.time for message in messages})
    for key, value in choices:
        kept = Counter(message.time for message in messages if message.keys.get(key) == value)
        if len(kept) == times and max(kept.values()) == 1:
            break
    else:
        key, value = choices[0]
    number = re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?", value)
    chosen_one = value if number is None else float(value) if number[2] else int(value)
    return Setting("where", {key: chosen_one})


def _dataset(
    path: Path,
    variable: str,
    messages: Sequence[Message],
    said: str,
    wanted_level: float | None,
    report: Callable[[str], None],
) -> xr.Dataset:
    """Messages of one version on one grid, in the order of the file."""
    with _handle(path, messages[0]) as handle:
        grid = _grid(handle, vector=variable_named(variable).vector)
        attributes = {
            name: value
            for name, key in (("units", "units"), ("long_name", "name"), ("standard_name", "cfName"))
            if (value := _value(handle, key)) is not None
        }
    if said:
        attributes[SELECTED] = said
    values = indexing.LazilyIndexedArray(_Values(path, messages, grid, report))
    kind, level = messages[0].keys.get("typeOfLevel", ""), messages[0].level
    coordinates: dict[str, Any] = {
        "time": ("time", np.array([message.time for message in messages], dtype="datetime64[ns]")),
        "latitude": (grid.dimensions[0], grid.latitude),
        "longitude": (grid.dimensions[-1], grid.longitude),
        "expver": messages[0].version,
    }
    if kind and (level != 0.0 or wanted_level is not None):
        coordinates[kind] = ((), level, {"units": unit_of_levels(kind), "axis": "Z"})
    return xr.Dataset(
        {variable: xr.Variable(("time", *grid.dimensions), values, attributes)}, coords=coordinates
    )


@dataclass(frozen=True, eq=False)
class _Grid:
    """Places of the values of messages."""

    dimensions: tuple[str, ...]
    latitude: Array  # axes, or of each point
    longitude: Array
    lines: tuple[int, int] | None = None  # number and length of the lines that run in turn to and fro
    order: Indices | None = None  # which of the values of a message is at each place, if not the next

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.latitude.size, self.longitude.size)[: len(self.dimensions)]

    def placed(self, values: Array) -> Array:
        """Values of a message, in its order, at the places of the grid."""
        if self.lines is not None:
            values = values.reshape(self.lines).copy()
            values[1::2] = values[1::2, ::-1]
        flat = values.reshape(-1)
        return (flat if self.order is None else flat[self.order]).reshape(self.shape)


def _grid(handle: int, *, vector: bool) -> _Grid:
    """Where the values of a message lie."""
    kind = str(eccodes.codes_get(handle, "gridType"))
    flags = {name: _value(handle, name) == "1" for name in _SCANNING}
    westward, northward, columns, alternating = flags.values()
    expected = (
        kind in _BY_LINES
        or (kind in _BY_POINTS and not any(flags.values()))
        or (kind in _NORTHWARD and northward and not westward and not columns)
    )
    if not expected:
        mode = ", ".join(name for name, is_set in flags.items() if is_set) or "no flag"
        raise DataError(
            f"the grid is of the type {kind!r} and scans with {mode}; the places of such values are not "
            "known for sure. Interpolate the file to latitudes and longitudes first, for example: "
            "cdo -f grb2 remapbil,r360x181 OLD NEW",
            key="grid-type",
        )
    if vector and kind not in _EARTH_AXES and _value(handle, "uvRelativeToGrid") == "1":
        raise DataError(
            f"the components of the vector are those along a grid of the type {kind!r}, not eastward and "
            "northward. Rotate them first, for example with: cdo rotuvb,u,v OLD NEW",
            key="grid-type",
        )
    latitude, longitude = (eccodes.codes_get_array(handle, name) for name in ("latitudes", "longitudes"))
    lines = None
    if alternating:
        length = int(eccodes.codes_get(handle, "Nj" if columns else "Ni"))
        lines = (latitude.size // length, length)
    if not kind.startswith("regular"):
        return _Grid((PLACE,), latitude, longitude, lines)
    first = float(
        eccodes.codes_get(handle, f"longitudeOf{'Last' if westward else 'First'}GridPointInDegrees")
    )
    east = np.mod(longitude - first + 1e-3, 360.0)
    order = np.lexsort((east, -latitude))
    north, row = np.unique(-latitude, return_inverse=True)
    rows = north.size
    if rows * (latitude.size // rows) != latitude.size or (np.diff(row[order]) < 0).any():
        raise DataError(
            "the rows of the grid have different lengths; expected one grid of rows and columns.",
            key="grid-type",
        )
    axis = np.mod(longitude[order][: latitude.size // rows], 360.0)
    in_order = np.array_equal(order, np.arange(order.size))
    return _Grid(("latitude", "longitude"), -north, axis, lines, None if in_order else order)


class _Values(BackendArray):
    """Values of messages, along time and the dimensions of their grid; float32, NaN where one is missing."""

    def __init__(
        self, path: Path, messages: Sequence[Message], grid: _Grid, report: Callable[[str], None]
    ) -> None:
        self._path, self._messages, self._grid = path, messages, grid
        self._report, self._decoded = report, set[int]()
        self.shape = (len(messages), *grid.shape)
        self.dtype = np.dtype(np.float32)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._outer
        )

    def _outer(self, key: tuple[Any, ...]) -> NDArray[np.float32]:
        steps = np.arange(self.shape[0])[key[0]]
        parts = [self._field(int(step), key[1:]) for step in np.atleast_1d(steps)]
        empty = np.empty((0, *self.shape[1:]), dtype=np.float32)
        found = np.stack(parts) if parts else empty
        return found if np.ndim(steps) else found[0]

    def _field(self, step: int, box: tuple[Any, ...]) -> NDArray[np.float32]:
        with _handle(self._path, self._messages[step]) as handle:
            holes = bool(eccodes.codes_get(handle, "bitmapPresent"))
            if holes:
                eccodes.codes_set(handle, "missingValue", _MISSING)
            values = np.asarray(eccodes.codes_get_array(handle, "values"), dtype=np.float64)
        self._decoded.add(step)
        self._report(f"{len(self._decoded):,} of {counted(len(self._messages), 'message')} decoded")
        if values.size != self._grid.latitude.size and values.size != int(np.prod(self.shape[1:])):
            raise DataError(
                f"a message has {values.size} values on a grid of {int(np.prod(self.shape[1:]))} points; the "
                "file is damaged.",
                key="damaged",
            )
        if holes:
            values[values == _MISSING] = np.nan
        placed = self._grid.placed(values)
        for axis in reversed(range(placed.ndim)):
            placed = placed[(slice(None),) * axis + (box[axis],)]
        return placed.astype(np.float32)
