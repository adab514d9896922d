"""In which unit values are, by what their source states, by what is asked for, and by their names."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array
from cagp_dist.errors import DataError
from cagp_dist.variables.units import cf_units, conversion, plain_units, scaled
from cagp_dist.variables.variable import VARIABLES
from cagp_dist.variables.variable_names import own_units, transformed_by_name, variable_named

UNSTATED = ("", "-", "none", "unknown", "undefined", "n/a", "na", "?")
PURE = ("1", "dimensionless", "unitless")
_OF_PURE = re.compile(
    r"psu|pss(-?78)?|ph( units?)?|ntu|fnu|index|counts?|1|dimensionless|unitless", re.IGNORECASE
)
"""What is asked for of numbers without a unit, and changes none."""

LARGEST_FRACTION = 2.0  # of values that are stated to have no unit, where percent are asked for

_DIFFERENCE = re.compile(
    r"anomal|difference|departure|bias|spread|variab|deviation|(^|_)(delta|std(dev)?|sd|err(or)?|sigma|range)(_|$)",
    re.IGNORECASE,
)
"""What says by its name that values are differences, to which no offset is added."""

_OF_TEMPERATURE = (
    r"(?:t|ta|td|tas|t2m|d2m|sst|(?:.*_)?(?:air|temp|temperature|dew_?point)|"
    r"t_?(?:max|min|mean|avg))(?:_\d*m)?"
)
_ENDS = re.compile(
    rf"{_OF_TEMPERATURE}_([kcf])|"
    r".*_(kelvin|celsius|fahrenheit|deg_?c|deg_?f|h?pa|kpa|mbar|mm|cm|kmh|kph|mph|kts?|knots?)",
    re.IGNORECASE,
)
_OF_MANY = r"(?i:kelvin|celsius|fahrenheit|deg_?c|deg_?f|hpa|mbar|mm|cm)"
_PARTS = r"(?i:(?:ten|hundred|thousand|10|100|1000)ths?)"
_SAYS = re.compile(rf"(?i:{_OF_TEMPERATURE})_([KCF])|(?!.*_(?:\d+|{_PARTS})_{_OF_MANY}$).*_({_OF_MANY})")
"""Ends of names that can be nothing but a unit, and not that of a depth, level or threshold before it, nor
one that values are tenths of, as those of ``rain_tenth_mm``.

Others are taken for one where units are asked for.
"""

_TEMPERATURE = VARIABLES["t"]


@dataclass(frozen=True)
class Units:
    """The units of values, and what brings them to these."""

    name: str  # as they are stated, or asked for; empty if nothing says
    factor: float = 1.0
    offset: float = 0.0
    note: str = ""  # what people should know of it

    def applied(self, values: Array) -> Array:
        """Bring values to these units."""
        return values if (self.factor, self.offset) == (1.0, 0.0) else self.factor * values + self.offset


def stated_units(
    name: str,
    attributes: Mapping[Any, object],
    given: str | None,
    reach: Callable[[], tuple[float, float]],
    what: str,
) -> Units:
    """Say in which units values are, and how they come to those that are asked for.

    Parameters
    ----------
    name : str
        Of the quantity; where nothing else states a unit, that of ``tmax_degC``, if values are plausible.
    attributes : mapping
        Its ``units``, ``long_name`` and ``standard_name``, as far as they are stated.
    given : str, optional
        Units that are asked for. Where others are stated, values are converted; but values that cannot be in
        those, and can be in these, are taken to be in these.
    reach : callable
        Gives the least and the largest of the values, as they are stored.
    what : str
        How messages call the values.

    Raises
    ------
    DataError
        With the key ``units``, where values do not convert.
    """
    stated = str(attributes.get("units", "")).strip()
    own = own_units(name, attributes, stated)
    texts = (name, *(str(attributes.get(key, "")) for key in ("long_name", "standard_name")))
    if given is None:
        kind = transformed_by_name(name, str(attributes.get("long_name", "")))
        found_in = None if stated or kind or any(map(_DIFFERENCE.search, texts)) else _SAYS.fullmatch(name)
        if found_in is not None:
            ending = cf_units(found_in[1] or found_in[2])
            return Units(ending if is_plausible(name, ending, *reach()) else "")
        note = f"{what} seem to be {kind}, and {stated!r} is the unit of what they were made of"
        return Units(own, note="" if own == stated else f"{note}: it is not that of the result.")
    transformed = own != stated
    stated = stated or unit_of_name(name)
    if stated.lower() in UNSTATED or plain_units(given) in map(plain_units, (own, stated)):
        return Units(given)
    if stated.lower() in PURE and _OF_PURE.fullmatch(given.strip()):
        return Units(given)
    found = None if transformed or scaled(given)[0] != 1.0 else conversion(stated, given)
    note = f"{what} are converted from {stated!r} to {given!r}."
    if found is not None and any(map(_DIFFERENCE.search, texts)):
        return Units(given, found[0], 0.0, note)
    low, high = reach()
    if stated.lower() in PURE and plain_units(given) == "%" and high > LARGEST_FRACTION:
        return Units(given, note=f"{what} reach to {high:g}, so that they are no fractions but in {given!r}.")
    known = found is not None or variable_named(name).name in VARIABLES
    if known and is_plausible(name, given, low, high) and not is_plausible(name, stated, low, high):
        said = f"{what} reach from {low:g} to {high:g}, which is not plausible in {stated!r}, as is stated"
        return Units(given, note=f"{said}: they are taken to be in {given!r}.")
    if found is None:
        raise DataError(
            f"{what} are in {stated!r}, as is stated with them, and units says {given!r}, to which that "
            "does not convert. Leave units out; or, if the source is wrong, correct its units: the "
            "attribute, or the brackets behind the name of the column.",
            key="units",
        )
    return Units(given, *found, note)


def unit_of_name(name: str) -> str:
    """Give the unit that the name of a quantity ends in, as ``tmax_K`` and ``rain_mm``; empty of others."""
    found = _ENDS.fullmatch(name)
    if found is None or re.fullmatch(rf".*_{_PARTS}_", name[: found.start(found.lastindex or 0)]):
        return ""
    return found[1] or found[2]


def extremes(parts: Iterable[NDArray[np.floating]]) -> tuple[float, float]:
    """Give the least and the largest of the values that are there; NaN if there is none."""
    held = [part.reshape(-1) for part in parts if part.size]
    least, most = ([float(of.reduce(part)) for part in held] for of in (np.fmin, np.fmax))
    return min(least, default=np.nan), max(most, default=np.nan)


def is_plausible(name: str, units: str, low: float, high: float) -> bool:
    """Whether values in some units can be those of a quantity, as far as it or a temperature is known."""
    known = VARIABLES.get(variable_named(name).name)
    bounds = known or _TEMPERATURE
    scale = conversion(units, bounds.units)
    if scale is None:
        return known is None
    return bounds.low <= scale[0] * low + scale[1] <= scale[0] * high + scale[1] <= bounds.high
