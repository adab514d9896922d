"""A variable of an xarray object as fields at places, whoever asks: laid out lazily, then loaded and checked.

Its dimensions come as ``([version,] [fields,] places...)``: fields are told apart by their times, or by their
members, and places have an axis of latitude and of longitude, or one or two dimensions of their own. Of
versions, as the Climate Data Store has them along ``expver``, the final value counts where there is one.
Every other dimension has one value, or one is chosen of it.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.arrays import Array, Indices, Marks, Mask, Times
from cagp_dist.errors import DataError
from cagp_dist.fields.axes import Clock, Horizontal, Role, clock_of, horizontal, located, role_of
from cagp_dist.fields.beside import Beside, beside, has_fill
from cagp_dist.fields.column_names import ANY
from cagp_dist.fields.missing import ROUNDING, observations
from cagp_dist.fields.quantities import refuse_direction
from cagp_dist.fields.selection import ANYWHERE, Asked, Choice, is_chosen, written_choice
from cagp_dist.fields.tables.neighbours import says_quality
from cagp_dist.memory import available_bytes
from cagp_dist.remedies import Setting
from cagp_dist.space import SPHERE, Space
from cagp_dist.space.systems import variables_of
from cagp_dist.store.batches import is_preliminary
from cagp_dist.text import bytes_text, counted
from cagp_dist.variables import variable_named

SELECTED = "cagp_selected"  # attribute of a variable: what was selected of it, in words, by its decoder
SHOWN_NAMES = 12  # of variables, in a message
PLACE = "point"  # dimension of places without axes, where results name it
NAMED = "column"  # attribute of depths of points: name of the column that has them
LABEL = {"role": "label"}  # attributes of coordinates of points that say who has made an observation
OF_GROUP = "cagp_group"  # attribute of a dataset that is one of several groups
GROUP = "group"  # what a group of NetCDF or a node of a tree is chosen by

_UNITS_OF_LEVELS = {"isobaricinhpa": "hPa", "isobaricinpa": "Pa", "isobariclayer": "Pa",
                    "pressure_level": "hPa", "heightaboveground": "m", "heightabovesea": "m",
                    "depthbelowland": "m", "depthbelowlandlayer": "m", "depthbelowsea": "m"}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Gridded:
    """Fields of a variable at places, not yet loaded."""

    values: xr.DataArray  # ([version,] [fields,] places...), without coordinates
    where: Horizontal  # of the places
    dimension: str | None  # of the fields; None where there is one without it
    clock: Clock | None  # when they hold; None if nothing says so
    coordinates: Mapping[str, xr.Variable]  # along nothing, or nothing but the fields
    preliminary: Mask | None  # of each version where they have a dimension, else of each field
    level: str = ""  # that was cut out of several, in words
    chosen: str = ""  # what else was chosen, in words
    of_steps: bool = False  # whether some fields of it may never have been computed
    beside: tuple[Beside, ...] = ()  # what says which of the values count

    @property
    def fields(self) -> int:
        """T."""
        return 1 if self.dimension is None else self.values.sizes[self.dimension]

    @property
    def has_versions(self) -> bool:
        """Whether its first dimension is that of versions."""
        return self.values.ndim > len(self.where.dims) + (self.dimension is not None)

    @property
    def times(self) -> Times | None:
        """Times (T,) in the standard calendar; None if nothing says when the fields hold."""
        moments = None if self.clock is None else self.clock.moments()
        return None if moments is None else np.broadcast_to(moments, self.fields)


def named_dataset(field: xr.DataArray, name: str) -> tuple[xr.Dataset, str]:
    """Give an array as a dataset, and the name that it has there: its own, or this one if it cannot be."""
    own = field.name is not None and field.name not in field.coords
    name = str(field.name) if own else name
    return field.to_dataset(name=name), name


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

    names: Sequence[str] = ()


def explain_absent(variable: str, names: Iterable[Hashable]) -> AbsentVariableError:
    """Say that a variable is missing, what is there, and how to take it."""
    there = [str(name) for name in names]
    error = AbsentVariableError(
        f"variable {variable!r} is missing; there is {listed(there)}.",
        key="absent-variable",
        remedies=(Setting("value", there[0], "to take it" if len(there) == 1 else ""),) if there else (),
    )
    error.names = there
    return error


def listed(names: Iterable[Hashable]) -> str:
    """Names as a message shows them: some, and how many more there are."""
    given = [repr(str(name)) for name in names]
    more = f" and {len(given) - SHOWN_NAMES:,} more" if len(given) > SHOWN_NAMES else ""
    return ", ".join(given[:SHOWN_NAMES]) + more or "no variable at all"


def fields_in(given: xr.Dataset, asked: Asked = ANYWHERE) -> list[str]:
    """Names of the variables at the places of an object that may be observed; all names if there is none."""
    try:
        where = located(given, None, asked)
    except DataError:
        return [str(name) for name in given.data_vars]
    every = given.variables
    bounds = {str(variable.attrs.get("bounds")) for variable in every.values()}
    found = [
        str(name)
        for name, held in ((name, every[name]) for name in given.data_vars)
        if set(where.dims) <= set(held.dims)
        and name not in bounds | set(where.coordinates)
        and held.dtype.kind in "fiu"
        and role_of(str(name), held) is not Role.LEVEL
        and not says_quality(str(name))
        and not str(name).lower().endswith(("_bnds", "_bounds", "_mask"))
    ]
    return found or [str(name) for name in given.data_vars]


def chosen_variable(given: xr.Dataset, value: str | None, asked: Asked = ANYWHERE) -> str:
    """Name of the variable that is asked for, or of the only one that may be observed."""
    if value is not None:
        name = find_variable(given.data_vars, value)
        if name is None:
            raise explain_absent(value, fields_in(given, asked))
        return name
    located(given, None, asked)
    fields = fields_in(given, asked)
    if len(fields) != 1:
        raise DataError(
            f"the dataset has {counted(len(fields), 'variable')} that may be observed ({listed(fields)}); "
            "expected one, or its name.",
            key="which-variable",
            remedies=(Setting("value", fields[0] if fields else "NAME"),),
        )
    return fields[0]


def laid_out(
    given: xr.Dataset,
    name: str,
    select: Mapping[str, Choice] | None = None,
    *,
    level: float | None = None,
    asked: Asked | None = ANYWHERE,
    members: bool = False,
) -> list[Gridded]:
    """Lay out a variable; of starts and steps of forecasts, each step is laid out on its own.

    Parameters
    ----------
    select : mapping, optional
        What is chosen of dimensions, or of coordinates and variables along them: values at which these are
        others are missing. ``"*"`` stands for all values of one that would be refused.
    level : float, optional
        Which level, where there are several, whatever their axis is called: in its unit, or in hPa for Pa.
    asked : Asked, optional
        What was said of a plane; None: on the globe alone.
    members : bool
        Whether fields may be told apart by a dimension without times, such as the members of an ensemble.
    """
    given, said, by_value = _selected(given, name, select or {})
    field = given[name]
    if field.dtype.kind not in "fiu":
        raise DataError(
            f"{name!r} has the type {field.dtype}; expected numbers. Convert it, with its unit: "
            "data.astype(float).",
            key="no-numbers",
        )
    where = horizontal(given, field) if asked is None else located(given, field, asked)
    given, at_level = _at_level(given, name, level, where)
    field, clock = given[name], clock_of(given, given[name])
    chosen = ", ".join(filter(None, said))
    if clock is not None and {*clock.axis.dims} & {*where.dims}:
        clock = None  # of the scan lines of a satellite
    if clock is not None and clock.axis.ndim == 2:
        first, second = clock.axis.dims
        if clock.axis.sizes[first] > 1 and clock.axis.sizes[second] > 1:  # many starts, many steps
            along = second if role_of(str(second), given.get(second)) is Role.STEP else first
            known = given.assign_coords({clock.name: clock.axis})  # one step alone would not tell
            parts = [known.isel({along: step}) for step in range(field.sizes[along])]
            found = [laid_out(part, name, by_value, asked=asked, members=members)[0] for part in parts]
            return [replace(part, of_steps=True, level=at_level, chosen=chosen) for part in found]
        clock = replace(clock, axis=clock.axis.squeeze(first if clock.axis.sizes[first] == 1 else second))
    version = next((str(dim) for dim in field.dims if role_of(str(dim)) is Role.VERSION), None)
    others = [str(dim) for dim in field.dims if str(dim) not in (*where.dims, version)]
    dimension = str(clock.axis.dims[0]) if clock is not None and clock.axis.ndim else None
    several = [dim for dim in others if dim != dimension and field.sizes[dim] > 1]
    if dimension is None and members and len(several) == 1:
        role = role_of(several[0], given.variables.get(several[0]))
        if role in (Role.MEMBER, Role.TIME):
            (dimension,), several = several, []
    for dim in several:
        if role_of(dim, given.variables.get(dim)) is Role.TIME:
            raise DataError(
                f"{name!r} has no dates along {dim!r}; expected a coordinate of times, or one time alone.",
                key="no-dates",
            )
        there = values_along(given, dim)
        raise DataError(
            f"{name!r} has {counted(len(there), 'value')} along {dim!r} ({_first(there)}); expected "
            "latitude, longitude and at most a time.",
            key="several-values",
            remedies=(Setting("where", {dim: there[0]}),),
        )
    order = [version, dimension, *where.dims]
    cut = {dim: 0 for dim in others if dim != dimension}
    near = [
        replace(each, held=each.held.isel({dim: 0 for dim in cut if dim in each.held.dims}))
        for each in beside(given, field, by_value)
        if version not in each.held.dims and each.name not in where.coordinates
    ]
    field = field.isel(cut)
    values = field.reset_coords(drop=True).transpose(*(dim for dim in order if dim is not None))
    preliminary = _preliminary(given, version, dimension)
    if version is not None and version in given.variables:  # 0001 is the final ERA5, 0005 preliminary
        ranked = np.argsort(given.variables[version].values.astype(np.int64), kind="stable")
        values = values.isel({version: ranked})
        preliminary = None if preliminary is None else preliminary[ranked]
    of_steps = clock is not None and clock.of_steps and dimension is not None
    coordinates = {
        str(key): axis.variable
        for key, axis in field.coords.items()
        if str(key) not in where.coordinates and set(axis.dims) <= {dimension}
    }
    if clock is not None:
        coordinates[clock.name] = clock.axis
        begins = coordinates.get("time")
        if clock.name == "valid_time" and begins is not None and not begins.equals(clock.axis):
            coordinates |= {"forecast_reference_time": begins, "time": coordinates.pop("valid_time")}
    return [
        Gridded(
            values,
            where,
            dimension,
            clock,
            coordinates,
            preliminary,
            at_level,
            chosen,
            of_steps,
            tuple(near),
        )
    ]


def _preliminary(given: xr.Dataset, version: str | None, dimension: str | None) -> Mask | None:
    """Which versions are preliminary, along their dimension, or along the fields that they stand beside."""
    for name, stated in given.variables.items():
        expected = ((version,),) if version is not None else ((), (dimension,))
        if role_of(str(name)) is Role.VERSION and stated.dims in expected:
            return np.asarray(is_preliminary(stated.values))
    return None


def load(
    laid: Gridded, fields: Indices, *kept: Indices, missing: Marks = None, computed: bool = False
) -> tuple[NDArray[np.floating], Mask]:
    """Read some fields at rows and columns, or at places: values (T, ...), and which are preliminary (T,).

    Values are decoded, NaN where one is missing, and of the final version where there is one. ``computed``
    says that they may come from a computation, where the object has no encoding.
    """
    places = laid.where.dims
    box = laid.values if laid.dimension is None else laid.values.isel({laid.dimension: runs(fields)})
    size = len(fields) * prod(axis.size for axis in kept)
    check_fits(box, size)
    if len(kept) == len(places):
        box = box.isel(dict(zip(places, map(runs, kept), strict=True)))
    elif kept:
        box = box.load().stack(any_place=places, create_index=False).isel(any_place=kept[0])
    what = repr(box.name or "the field")
    encoding = laid.values.encoding if computed else (laid.values.encoding or None)
    values = observations(box.values, box.attrs, what=what, encoding=encoding, missing=missing)
    units, standard = (str(box.attrs.get(key, "")) for key in ("units", "standard_name"))
    refuse_direction(str(box.name), units, standard, values)
    if laid.dimension is None:
        values = np.expand_dims(values, int(laid.has_versions))
    early: Mask = np.zeros(len(fields), dtype=bool)
    if laid.has_versions:
        versions, values = values, values[0]
        for later in versions[1:]:
            values = np.where(np.isnan(values), later, values)
        if laid.preliminary is not None:
            final = ~np.isnan(versions[~laid.preliminary]).all(axis=0)
            first = ~np.isnan(versions[laid.preliminary]).all(axis=0)
            early = np.asarray((first & ~final).reshape(len(early), -1).any(axis=1))
    elif laid.preliminary is not None:
        early = np.broadcast_to(laid.preliminary, laid.fields)[fields]
    for each in laid.beside:
        if each.wanted is not None or not each.is_mask or has_fill(values):
            values = each.applied(values, _cut_as_values(laid, each.held, fields, kept))
    return values, early


def _cut_as_values(
    laid: Gridded, held: xr.Variable, fields: Indices, kept: Sequence[Indices]
) -> NDArray[np.generic]:
    """Read what lies along dimensions of the values where `load` reads these, in the same shape."""
    places = laid.where.dims
    at: dict[str, Indices] = {} if laid.dimension is None else {laid.dimension: fields}
    if len(kept) == len(places):
        at |= dict(zip(places, kept, strict=True))
    box = held.isel({dim: runs(positions) for dim, positions in at.items() if dim in held.dims})
    sizes = {dim: at[dim].size if dim in at else laid.values.sizes[dim] for dim in (*list(at)[:1], *places)}
    flags = np.asarray(box.set_dims(sizes).values)
    if laid.dimension is None:
        flags = flags[None]
    if kept and len(kept) != len(places):
        flags = flags.reshape(len(flags), -1)[:, kept[0]]
    return flags


def runs(positions: Indices) -> slice | Indices:
    """Turn contiguous positions into a slice, which files and remote stores read far quicker."""
    if not positions.size:
        return positions
    first, last = int(positions[0]), int(positions[-1])
    return slice(first, last + 1) if last - first + 1 == positions.size else positions


def check_fits(field: xr.DataArray, count: int) -> None:
    """Refuse a selection of so many values, which the field says it has, that no memory holds."""
    size, free = 2 * count * field.dtype.itemsize, available_bytes()
    if size > free:
        raise DataError(
            f"the selection has {count:,} values, which take {bytes_text(size)} to read, and "
            f"{bytes_text(free)} of memory are free. Select fewer times, an area or a coarser grid; a file "
            "that says it has so many may be damaged.",
            key="memory",
        )


def check_finite(values: NDArray[np.floating], name: str) -> None:
    """Refuse infinite values, and a variable without any value."""
    infinite = int(np.count_nonzero(np.isinf(values)))
    if infinite:
        raise DataError(
            f"{name!r} holds infinity in {infinite:,} of {values.size:,} values; expected finite numbers, or "
            "NaN where there is none. Check its _FillValue.",
            key="infinite",
        )
    if np.isnan(values).all():
        raise DataError(
            f"{name!r} is NaN everywhere: nothing was observed. Check times and area.", key="nothing-observed"
        )


def places_once(
    values: NDArray[np.floating], north: Array, east: Array, space: Space = SPHERE, *, axis: int = -1
) -> Indices:
    """Positions of places along an axis of the values, each once; `DataError` where two of one differ."""
    keys = space.keys(north, east).round(6)
    keys[space.is_pole(north), 1] = 0.0
    if space.has_latitudes:
        keys[keys >= 360.0] = 0.0  # a tiny negative longitude
    _, first, place = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[place.ravel()] != np.arange(len(keys)))
    if again.size == 0:
        return np.arange(len(keys))
    held = np.moveaxis(values, axis, 0).reshape(len(keys), -1)
    here, copies = held[again], held[first[place.ravel()[again]]]
    # columns at 0 and 360 degrees that were worked out differ by their rounding
    near = np.abs(here - copies) <= ROUNDING * np.nanmax(np.abs(held), initial=0.0)
    differ = ~(near | (np.isnan(here) & np.isnan(copies))).all(axis=1)
    if differ.any():
        at = int(again[differ.argmax()])
        raise DataError(
            f"{space.place_text(north[at], east[at])} appears twice with different values "
            f"({counted(int(differ.sum()), 'such place')}); expected each once. Leave one of them out, or "
            "average them.",
            key="place-twice",
        )
    return np.sort(first)


def grid_once(
    values: NDArray[np.floating], north: Array, east: Array, space: Space = SPHERE
) -> tuple[Indices, Indices]:
    """Rows and columns of a grid (..., P, Q), each once; 0 and 360 degrees are one meridian."""
    rows = places_once(values, north, np.zeros(north.size), space, axis=-2)
    return rows, places_once(values[..., rows, :], np.zeros(east.size), east, space)


def times_of(given: xr.Dataset, name: str, select: Mapping[str, Choice] | None = None) -> Times:
    """List the times of a variable, at whatever level, NaT of one without any; no value of it is read."""
    dims = given[name].dims
    columns = {str(key) for key, axis in given.variables.items() if axis.dims == dims}
    chosen = {key: choice for key, choice in (select or {}).items() if key not in columns}  # none of points
    given, _, _ = _selected(given, name, chosen)
    return dates_of(clock_of(given, given[name]), name).ravel()


def dates_of(clock: Clock | None, name: str) -> Times:
    """Give the times of a field as datetime64[ns], which reaches from 1678 to 2262; NaT of one without."""
    if clock is None:
        return np.array(["NaT"], dtype="datetime64[ns]")
    times = clock.moments()
    if times is None:
        stated = clock.axis.attrs.get("units")
        raise DataError(
            f"the times of {name!r}, {clock.name!r}, have type {clock.axis.dtype} and "
            f"{'no units' if stated is None else f'the units {stated!r}'}; expected dates of the standard "
            'calendar: units such as "days since 1900-01-01", or "years" for decimal years such as 2019.5. '
            "Set the attributes units and calendar of the time, or its values, with xarray.",
            key="no-dates",
        )
    known = ~np.isnat(times)
    if not known.all():
        raise DataError(
            f"{clock.name!r} is missing at {counted(int((~known).sum()), 'time')}; expected dates.",
            key="times",
        )
    years = times.astype("datetime64[Y]").astype(np.int64) + 1970
    if years.size and (years.min() < 1678 or years.max() > 2261):
        raise DataError(
            f"{name!r} has times of the years {years.min()}..{years.max()}; expected 1678..2261. Cut it to "
            "these first.",
            key="years",
        )
    return np.asarray(times.astype("datetime64[ns]"))


def _selected(
    given: xr.Dataset, name: str, select: Mapping[str, Choice]
) -> tuple[xr.Dataset, list[str], dict[str, Choice]]:
    """Cut what was chosen of dimensions out of a dataset, and say what; of GRIB, messages were chosen.

    What was chosen of variables along several dimensions, and what all values are wanted of, is given too.
    """
    said = [str(given[name].attrs.get(SELECTED, ""))]
    by_value: dict[str, Choice] = {}
    for key, choice in {} if said[0] else select.items():
        if key == GROUP and OF_GROUP in given.attrs:
            continue
        field = given[name]
        axis = given.variables.get(key)
        along = key in field.dims or (axis is not None and key != name and {*axis.dims} <= {*field.dims})
        if not along:
            there = [str(dim) for dim in field.dims if given.sizes[dim] > 1]
            raise DataError(
                f"{name!r} has nothing called {key!r} to select {written_choice(choice)} of; it has the "
                f"dimensions {tuple(field.dims)}.",
                key="nothing-to-select",
                remedies=tuple(Setting("where", {dim: values_along(given, dim)[0]}) for dim in there[:1]),
            )
        if choice == ANY or (axis is not None and axis.ndim > 1):
            by_value[key] = choice
            said.append("" if choice == ANY else selection_words({key: choice}))
            continue
        values = values_along(given, key)
        found = np.flatnonzero([is_chosen(value, choice) for value in values])
        if not found.size:
            raise DataError(
                f"{name!r} has no {key} = {written_choice(choice)}; there is {_first(values)}.",
                key="not-there",
                remedies=(Setting("where", {key: values[0]}),),
            )
        if key in field.dims:
            given = given.isel({key: found if found.size > 1 else int(found[0])})
        elif axis is not None and axis.ndim:
            given = given.isel({axis.dims[0]: found})
        said.append(selection_words({key: choice}))
    return given, said, by_value


def _at_level(given: xr.Dataset, name: str, level: float | None, where: Horizontal) -> tuple[xr.Dataset, str]:
    """Cut one level out of a dataset, and say which; one among several needs to be chosen."""
    field = given[name]
    axes = {
        key: axis
        for key, axis in variables_of(given).items()
        if role_of(key, axis) is Role.LEVEL and axis.dtype.kind in "fiu" and key != name
    }
    # of an axis and what belongs to it, such as the pressures of model levels, the axis is chosen from
    along = {
        str(dim): next((key for key in (dim, *axes) if key in axes and axes[key].dims == (dim,)), None)
        for dim in field.dims
        if str(dim) not in where.dims  # heights of stations are none
    }
    found = {dim: axis for dim, axis in along.items() if axis is not None or role_of(dim) is Role.LEVEL}
    several = [dim for dim in found if field.sizes[dim] > 1]
    if len(several) > 1:
        raise DataError(
            f"{name!r} has several vertical axes, {listed(several)}; expected one at most.",
            key="several-levels",
        )
    dim = next(iter([*several, *found]), None)
    scalar = next((key for key, axis in axes.items() if axis.ndim == 0 and key in field.coords), None)
    axis = scalar if dim is None else (found[dim] or dim)
    if axis is None:
        if level is not None:
            raise DataError(
                f"{name!r} has no level, and level is {level:g}. Leave level out, or check the variable.",
                key="no-level",
            )
        return given, ""
    held = axes.get(axis, xr.Variable(axis, np.arange(field.sizes.get(axis, 1))))
    values = np.atleast_1d(held.values).astype(np.float64)
    units = str(held.attrs.get("units", "")) or unit_of_levels(axis)
    units = {"millibars": "hPa", "mbar": "hPa", "1": ""}.get(units, units)
    position = choose_level(values, level, units, name=name, axis=axis)
    given = given if dim is None else given.isel({dim: position})
    if values.size == 1 and level is None:
        return given, ""
    hectopascal = units == "Pa" and values[position] >= 100.0
    value = values[position] / 100.0 if hectopascal else values[position]
    return given, f"{value:g} {'hPa' if hectopascal else units}".strip()


def choose_level(
    values: NDArray[np.float64], level: float | None, units: str, *, name: str, axis: str
) -> int:
    """Position of a level among those of a field; of a single one where none is wanted."""
    there = ", ".join(f"{value:g}" for value in values) + f" {units}".rstrip()
    remedy = Setting("where", {"level": float(values[0])})
    if level is None:
        if values.size > 1:
            raise DataError(
                f"{name!r} has {values.size} levels along {axis!r}: {there}; expected one.",
                key="several-levels",
                remedies=(remedy,),
            )
        return 0
    for wanted in (level, 100.0 * level) if units == "Pa" else (level,):  # Pa may be asked for in hPa
        near = np.flatnonzero(np.isclose(values, wanted, rtol=1e-6, atol=1e-9))
        if near.size == 1:
            return int(near[0])
    raise DataError(
        f"level {level:g} is not in {name!r}, which has along {axis!r}: {there}.",
        key="not-there",
        remedies=(remedy,),
    )


def unit_of_levels(axis: str) -> str:
    """Give the unit of levels by the name of their axis; empty where it does not tell."""
    return _UNITS_OF_LEVELS.get(axis.lower(), "")


def selection_words(select: Mapping[str, Choice]) -> str:
    """Say what was selected, such as ``"number 1"``."""
    return ", ".join(f"{key} {written_choice(choice)}".replace('"', "") for key, choice in select.items())


def values_along(given: xr.Dataset, dimension: str) -> list[object]:
    """Values of a dimension; positions where it has none."""
    if dimension in given.variables and given.variables[dimension].ndim <= 1:
        held = np.atleast_1d(given.variables[dimension].values)
        held = held.astype(str) if held.dtype.kind in "mM" else held
        return [each.decode() if isinstance(each, bytes) else each for each in held.tolist()]
    return list(range(given.sizes[dimension]))


def _first(values: Sequence[object]) -> str:
    """Values of a dimension, as a message shows them: eight at most."""
    return ", ".join(map(written_choice, values[:8])) + (", ..." if len(values) > 8 else "")
