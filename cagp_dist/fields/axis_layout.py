"""Recognise a field in whatever ERA5-like dataset holds it: names, axes, levels, steps, versions, members.

Four layouts are common: the Climate Data Store until 2024 (``time``, at times an ``expver`` dimension),
the Climate Data Store since (``valid_time``, scalar ``number``, ``expver`` beside the time), CMIP (``lat``,
``lon``, ``plev`` in Pa), and the analysis-ready Zarr stores (``2m_temperature``, axes in any order).  Nothing
is loaded here.
"""

import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.errors import DataError
from cagp_dist.fields.coordinates import LATITUDE, LONGITUDE, find_axis, in_degrees, planes_among
from cagp_dist.fields.selection import Choice, is_chosen, written_choice
from cagp_dist.memory import available_bytes
from cagp_dist.store.batches import is_preliminary
from cagp_dist.text import bytes_text
from cagp_dist.variables import variable_named

LEVEL = "cagp_level"  # attribute of a standard field: where it was cut out of a field with levels, in words
SELECTED = "cagp_selected"  # attribute of a standard field: what was selected of it, in words
STEPS = "cagp_steps"  # attribute of a field that is one of several forecast steps, some may be absent
VERSION_IS_PRELIMINARY = "cagp_preliminary"  # coordinate: whether a version, or that of a time, is
PLACE = "point"  # dimension of the places of a field that has no axes of latitude and longitude
_TIME = ("valid_time", "time")  # where both exist, time is when the analysis began, valid_time when it holds
_VERSION = "expver"
_STEP = "step"
_LEVELS = ("level", "levels", "lev", "plev", "pressure", "pressure_level", "isobaricinhpa", "isobaricinpa",
           "height", "heightaboveground", "altitude", "depth", "depthbelowland", "depthbelowlandlayer",
           "hybrid", "model_level", "theta", "potentialvorticity", "layer", "deptht", "olevel")  # fmt: skip
_VERTICAL = ("air_pressure", "height", "altitude", "depth", "model_level_number",
             "atmosphere_hybrid_sigma_pressure_coordinate")  # fmt: skip
_UNITS_OF_LEVELS = {"isobaricinhpa": "hPa", "isobaricinpa": "Pa", "isobariclayer": "Pa",
                    "pressure_level": "hPa", "heightaboveground": "m", "heightabovesea": "m",
                    "depthbelowland": "m", "depthbelowlandlayer": "m", "depthbelowsea": "m"}  # fmt: skip


def find_variable(names: Iterable[Hashable], variable: str) -> str | None:
    """Name under which a variable is present, or None."""
    exact = {str(name) for name in names}
    if variable in exact:
        return variable
    known = variable_named(variable)
    spelled = {name.lower(): name for name in sorted(exact)}
    wanted = (variable, known.name, *known.names)
    return next((spelled[a.lower()] for a in wanted if a.lower() in spelled), None)


class AbsentVariableError(DataError):
    """A variable is in none of the datasets; ``names`` are the fields that are there."""

    def __init__(self, message: str, names: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.names = list(names)


def explain_absent(variable: str, names: Iterable[Hashable]) -> AbsentVariableError:
    """Say that a variable is missing, what is there, and how to take it."""
    there = [str(name) for name in names]
    advice = "Check the source."
    if there:
        others = "it" if len(there) == 1 else "one of them"
        advice = f'To take {others}, write variable = "{there[0]}" in [observations].'
    message = f"variable {variable!r} is missing; there is {listed(there)}. {advice}"
    return AbsentVariableError(message, there)


def fields_in(dataset: xr.Dataset) -> list[str]:
    """Names of the variables that vary with latitude and longitude; all names if there is none."""
    horizontal = {dim for name in dataset.variables if _is_horizontal(name) for dim in dataset[name].dims}
    names = [str(name) for name in dataset.data_vars]
    fields = [name for name in names if len(horizontal & set(dataset[name].dims)) > 1]
    return fields or names


def standard_fields(
    dataset: xr.Dataset,
    variable: str,
    *,
    level: float | None = None,
    select: Mapping[str, Choice] | None = None,
) -> list[xr.DataArray]:
    """Give the variable the dimensions ``([expver,] time, latitude, longitude)``, still lazy."""
    dataset, field = _field(dataset, variable, select)
    field = _at_level(field, level)
    holds = dataset.variables.get("valid_time")
    if holds is None or holds.ndim != 2 or set(holds.dims) - set(field.dims) or _STEP not in holds.dims:
        return [_standard(dataset, field)]
    # one start, many hours ahead; many starts: each hour ahead is a field of its own
    steps = [{_STEP: step} for step in range(field.sizes.get(_STEP, 1))]
    parts = [_standard(dataset.isel(step), field.isel(step)) for step in steps]
    return [part.assign_attrs({STEPS: True}) for part in parts]


def held_times(
    dataset: xr.Dataset, variable: str, *, select: Mapping[str, Choice] | None = None
) -> NDArray[np.datetime64]:
    """List the times of a variable, at whatever level; no value of it is read."""
    dataset, field = _field(dataset, variable, select)
    holds = dataset.variables.get("valid_time")
    if holds is not None and holds.ndim == 2 and not set(holds.dims) - set(field.dims):
        return _nanoseconds(dataset["valid_time"]).ravel()
    return np.atleast_1d(_nanoseconds(_time_axis(dataset, field)))


def _field(
    dataset: xr.Dataset, variable: str, select: Mapping[str, Choice] | None
) -> tuple[xr.Dataset, xr.DataArray]:
    """Find a variable, and cut out what was chosen of its dimensions."""
    name = find_variable(dataset.data_vars, variable)
    if name is None:
        raise explain_absent(variable, fields_in(dataset))
    dataset = _selected(dataset, name, select)
    return dataset, dataset[name]


def _standard(dataset: xr.Dataset, field: xr.DataArray) -> xr.DataArray:
    latitude, longitude = _horizontal_axes(dataset, field)
    time = _time_axis(dataset, field)

    plain = field.drop_vars(list(field.coords))
    if time.ndim == 0:
        plain, time = plain.expand_dims("time"), time.reset_coords(drop=True).expand_dims("time")
    names = {time.dims[0]: "time"}
    if latitude.dims != longitude.dims:
        names |= {latitude.dims[0]: "latitude", longitude.dims[0]: "longitude"}
    elif latitude.ndim == 0:
        plain = plain.expand_dims(PLACE)
        latitude, longitude = (
            axis.reset_coords(drop=True).expand_dims(PLACE) for axis in (latitude, longitude)
        )
    plain = plain.rename({old: new for old, new in names.items() if old != new})
    places = list(dict.fromkeys(names.get(dim, str(dim)) for dim in (*latitude.dims, *longitude.dims)))
    versions = _versions(dataset, field, time)
    if _VERSION in plain.dims:
        order = np.arange(plain.sizes[_VERSION])
        if _VERSION in dataset.variables:  # 0001 is the final ERA5, 0005 the preliminary ERA5T
            order = np.argsort(dataset.variables[_VERSION].values.astype(np.int64), kind="stable")
        plain = plain.isel({_VERSION: order})
        versions = {name: (dims, values[order]) for name, (dims, values) in versions.items()}
    for dimension in set(plain.dims) - {_VERSION, "time", *places}:
        if plain.sizes[dimension] != 1:
            values = _along(dataset, str(dimension))
            raise DataError(
                f"{field.name!r} has {len(values)} values along {dimension!r} ({_first(values)}); expected "
                f"time, latitude and longitude alone. Choose one: write select = {{ {dimension} = "
                f"{written_choice(values[0])} }} in [observations]."
            )
        plain = plain.isel({dimension: 0})
    leading = [_VERSION] if _VERSION in plain.dims else []
    degrees: dict[str, Any] = {
        what: (
            [names.get(dim, str(dim)) for dim in axis.dims],
            in_degrees(axis.values, axis.attrs, what=f"the {what}", longitude=what == "longitude"),
        )
        for what, axis in (("latitude", latitude), ("longitude", longitude))
    }
    coordinates = {"time": _nanoseconds(time), **degrees, **versions}
    return plain.transpose(*leading, "time", *places).assign_coords(coordinates)


def _versions(
    dataset: xr.Dataset, field: xr.DataArray, time: xr.DataArray
) -> dict[str, tuple[str, NDArray[np.bool_]]]:
    """Which versions are preliminary, along their dimension, or along the time that they stand beside."""
    if _VERSION not in dataset.variables:
        return {}
    stated = dataset.variables[_VERSION]
    preliminary = is_preliminary(stated.values)
    if stated.dims == (_VERSION,) and _VERSION in field.dims:
        return {VERSION_IS_PRELIMINARY: (_VERSION, preliminary)}
    if stated.ndim == 0 or stated.dims == time.dims:
        return {VERSION_IS_PRELIMINARY: ("time", np.broadcast_to(preliminary, time.size).copy())}
    return {}


def listed(names: Iterable[Hashable]) -> str:
    """Names as a message shows them."""
    return ", ".join(repr(str(name)) for name in names) or "no variable at all"


def _selected(dataset: xr.Dataset, name: str, select: Mapping[str, Choice] | None) -> xr.Dataset:
    """Cut what was chosen of dimensions out of a dataset; the attribute `SELECTED` of the field says what."""
    if not select or SELECTED in dataset[name].attrs:  # messages of GRIB were
        return dataset
    for key, choice in select.items():
        field = dataset[name]
        if key not in field.dims and not (key in dataset.variables and dataset.variables[key].ndim == 0):
            others = [dim for dim in field.dims if not (_is_horizontal(dim) or str(dim).lower() in _TIME)]
            raise DataError(
                f"{name!r} has nothing called {key!r} to select {written_choice(choice)} of; it has the "
                f"dimensions {field.dims}. "
                + (f"Select of {listed(others)}." if others else "Leave select out.")
            )
        values = _along(dataset, key)
        found = np.flatnonzero([is_chosen(value, choice) for value in values])
        if not found.size:
            raise DataError(
                f"{name!r} has no {key} = {written_choice(choice)}; there is {_first(values)}. Choose one "
                "of these."
            )
        if key in field.dims:
            dataset = dataset.isel({key: found if found.size > 1 else int(found[0])})
    field = dataset[name].assign_attrs({SELECTED: selection_words(select)})
    return dataset.assign({name: field})


def selection_words(select: Mapping[str, Choice]) -> str:
    """Say what was selected, such as ``"number 1"``."""
    return ", ".join(f"{key} {written_choice(choice)}".replace('"', "") for key, choice in select.items())


def _along(dataset: xr.Dataset, dimension: str) -> list[object]:
    """Values of a dimension; positions where it has none."""
    if dimension in dataset.variables and dataset.variables[dimension].ndim <= 1:
        values = np.atleast_1d(dataset.variables[dimension].values)
        return [each.decode() if isinstance(each, bytes) else each for each in values.tolist()]
    return list(range(dataset.sizes[dimension]))


def _first(values: list[object]) -> str:
    """Values of a dimension, as a message shows them: eight at most."""
    return ", ".join(map(written_choice, values[:8])) + (", ..." if len(values) > 8 else "")


def _at_level(field: xr.DataArray, level: float | None) -> xr.DataArray:
    """Cut one level out of a field; the attribute `LEVEL` says which."""
    horizontal = {dim for name in field.coords if _is_horizontal(name) for dim in field[name].dims}
    found = [
        name
        for name, axis in field.coords.items()
        if _is_vertical(axis) and not (axis.ndim and {*axis.dims} <= horizontal)  # heights of stations
    ]
    found += [dim for dim in field.dims if dim not in field.coords and str(dim).lower() in _LEVELS]
    # of an axis and what belongs to it (pressures of model levels), the axis is what is chosen from
    axes = [name for name in found if name in field.dims] or found[:1]
    several = [name for name in axes if field.sizes.get(name, 1) > 1]
    if len(several) > 1:
        raise DataError(f"{field.name!r} has several vertical axes, {listed(several)}; expected one at most.")
    if not axes:
        if level is None:
            return field
        raise DataError(
            f"{field.name!r} has no level, and level is {level:g}. Leave level out, or check the variable."
        )
    axis = several[0] if several else axes[0]
    along = field[axis]  # positions, where the dimension has no coordinate
    values = np.atleast_1d(along.values).astype(np.float64)
    units = str(along.attrs.get("units", "")) or unit_of_levels(str(axis))
    units = {"millibars": "hPa", "mbar": "hPa", "1": ""}.get(units, units)
    position = choose_level(values, level, units, name=str(field.name), axis=str(axis))
    cut = field.isel({axis: position}) if axis in field.dims else field
    if values.size > 1 or level is not None:
        cut = cut.copy(deep=False)
        hectopascal = units == "Pa" and values[position] >= 100.0
        value = values[position] / 100.0 if hectopascal else values[position]
        cut.attrs = {**field.attrs, LEVEL: f"{value:g} {'hPa' if hectopascal else units}".strip()}
    return cut


def check_fits(field: xr.DataArray, count: int) -> None:
    """Refuse a selection of so many values, which the field says it has, that no memory holds."""
    size, free = 2 * count * field.dtype.itemsize, available_bytes()
    if size > free:
        raise DataError(
            f"the selection has {count:,} values, which take {bytes_text(size)} to read, and "
            f"{bytes_text(free)} of memory are free. Select fewer times, an area or a coarser grid; a file "
            "that says it has so many may be damaged."
        )


def choose_level(
    values: NDArray[np.float64], level: float | None, units: str, *, name: str, axis: str
) -> int:
    """Position of a level among those of a field; of a single one where none is wanted."""
    there = ", ".join(f"{value:g}" for value in values) + f" {units}".rstrip()
    if level is None:
        if values.size > 1:
            raise DataError(
                f"{name!r} has {values.size} levels along {axis!r}: {there}. Choose one: write "
                f"level = {values[0]:g} in [observations]."
            )
        return 0
    for wanted in (level, 100.0 * level) if units == "Pa" else (level,):  # Pa may be asked for in hPa
        near = np.flatnonzero(np.isclose(values, wanted, rtol=1e-6, atol=1e-9))
        if near.size == 1:
            return int(near[0])
    raise DataError(f"level {level:g} is not in {name!r}, which has along {axis!r}: {there}.")


def unit_of_levels(axis: str) -> str:
    """Give the unit of levels by the name of their axis; empty where it does not tell."""
    return _UNITS_OF_LEVELS.get(axis.lower(), "")


def _is_horizontal(name: Hashable) -> bool:
    return str(name).lower() in (*LATITUDE, *LONGITUDE)


def _is_vertical(axis: xr.DataArray) -> bool:
    attributes = axis.attrs
    named = str(axis.name).lower() in _LEVELS or attributes.get("standard_name") in _VERTICAL
    vertical = named or attributes.get("axis") == "Z" or "positive" in attributes
    return vertical and axis.ndim <= 1 and axis.dtype.kind in "fiu"


def _horizontal_axes(dataset: xr.Dataset, field: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Latitude and longitude of a field: an axis each, or both of each of its places."""
    latitude, longitude = (_coordinate(dataset, field, what) for what in ("latitude", "longitude"))
    if latitude.ndim == longitude.ndim == 1:
        return latitude, longitude
    if {*latitude.dims} == {*longitude.dims}:
        check_fits(latitude, latitude.size)
        return latitude, longitude.transpose(*latitude.dims)
    raise DataError(
        f"the latitude of {field.name!r} has the dimensions {latitude.dims} and its longitude "
        f"{longitude.dims}; expected an axis each, or both along the same dimensions."
    )


def _coordinate(dataset: xr.Dataset, field: xr.DataArray, what: str) -> xr.DataArray:
    """Find the latitude or longitude of a field."""
    there = {str(key): dataset[key] for key in dataset.variables}
    fixed = {  # WRF repeats its places for each time
        key: axis.squeeze([dim for dim in axis.dims if axis.sizes[dim] == 1 and axis.ndim > 2])
        for key, axis in there.items()
    }
    along = {key: axis for key, axis in fixed.items() if axis.ndim <= 2 and {*axis.dims} <= {*field.dims}}
    if (name := find_axis(along, what)) is not None:
        return along[name]
    planes = planes_among((str(dim), dataset[dim].attrs) for dim in field.dims if dim in dataset.variables)
    if planes:
        raise DataError(f"{field.name!r} has no axis of {what}: {planes}")
    elsewhere = find_axis(there, what)
    said = "absent" if elsewhere is None else f"of dimensions {there[elsewhere].dims}"
    raise DataError(
        f"the {what} of {field.name!r} is {said}, and the field has dimensions {field.dims}; expected a "
        "grid, or a latitude and a longitude for each of its places. Measurements in rows of any length are "
        'read from a table with a row for each: source = "table:PATH".'
    )


def _time_axis(dataset: xr.Dataset, field: xr.DataArray) -> xr.DataArray:
    candidates = [dataset[name] for name in _TIME if name in dataset.variables]
    along = [axis for axis in candidates if axis.ndim == 0 or (axis.ndim == 1 and axis.dims[0] in field.dims)]
    if not along:
        raise DataError(
            f"{field.name!r} of dimensions {field.dims} has no time; expected a coordinate 'time' or "
            f"'valid_time', and the dataset has {listed(dataset.variables)}."
        )
    time = _from_years(along[0])
    if time.dtype.kind != "M":
        stated = time.attrs.get("units")
        raise DataError(
            f"the times of {field.name!r} have type {time.dtype} and "
            f"{'no units' if stated is None else f'the units {stated!r}'}; expected dates of the standard "
            'calendar: units such as "days since 1900-01-01", or "years" for decimal years such as 2019.5. '
            "Set the attributes units and calendar of the time, or its values, with xarray and write the "
            "file again."
        )
    return time


def _from_years(time: xr.DataArray) -> xr.DataArray:
    """Decimal years (2019.5 is the middle of 2019) as times, to the hour; other times as they are."""
    if time.dtype.kind not in "fiu" or not re.fullmatch(
        r"(decimal )?years?( (a\.?d\.?|c\.?e\.?))?|common_years?|calendar_years?",
        str(time.attrs.get("units", "")).strip().lower(),
    ):
        return time
    years = np.asarray(time.values, dtype=np.float64)
    if not ((years >= 1678.0) & (years < 2262.0)).all():  # of NaN, too
        raise DataError(
            f"the decimal years of the field reach from {years.min():g} to {years.max():g}; expected "
            "1678..2261. Cut the file to these first."
        )
    whole = np.floor(years).astype(np.int64)
    start, end = ((whole + more - 1970).astype("datetime64[Y]").astype("datetime64[h]") for more in (0, 1))
    hours = np.rint((years - whole) * (end - start).astype(np.float64)).astype("timedelta64[h]")
    return xr.DataArray((start + hours).astype("datetime64[ns]"), dims=time.dims)


def _nanoseconds(time: xr.DataArray) -> NDArray[np.datetime64]:
    """Give times as datetime64[ns], which reaches from 1678 to 2262."""
    years = time.values.astype("datetime64[Y]").astype(np.int64) + 1970
    known = ~np.isnat(time.values)
    if not known.all():
        raise DataError("a time of the field is missing; the file is damaged or its time axis is not filled.")
    if years.size and (years.min() < 1678 or years.max() > 2261):
        raise DataError(
            f"the field has times of the years {years.min()}..{years.max()}; expected 1678..2261. Cut the "
            "file to these first."
        )
    return np.asarray(time.values.astype("datetime64[ns]"))
