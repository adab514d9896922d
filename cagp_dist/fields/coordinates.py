"""Latitudes and longitudes of data: which variable they are, and their degrees north and east.

Attributes of CF decide before names do (CF 1.11, 4.1 and 4.2). Angles other than degrees are converted;
degrees of a rotated grid and metres of a projected one are refused with what to use instead. cf-xarray takes
variables called `latent` for latitudes, and knows no data variables, no `XLAT` and no `Degrees_North`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.errors import DataError
from cagp_dist.fields.column_names import BREADTHS, LATITUDE, LENGTHS, LONGITUDE, counted_from, plain
from cagp_dist.fields.missing import Attributes, unpacked
from cagp_dist.remedies import Setting
from cagp_dist.variables.units import conversion

if TYPE_CHECKING:
    import xarray as xr

_NAMES = {"latitude": (*LATITUDE, *BREADTHS), "longitude": (*LONGITUDE, *LENGTHS)}
_UNITS = {"latitude": re.compile(r"degrees?_?(north|n)"), "longitude": re.compile(r"degrees?_?(east|e)")}
_AXIS = {"latitude": "Y", "longitude": "X"}
_ANY_DEGREES = re.compile(r"(degrees?|deg|°)?")

_NOT_STATED = ("", "1", "none", "unknown", "dimensionless", "unitless", "-")
_DEGREES = re.compile(r".*(deg|°|º).*")
_BACKWARD = re.compile(r".*((deg(ree)?s?|°|º)[ _.]*(w|west|south)|(deg(ree)?s?[ _.]+|°|º)s)")
_FORWARD = re.compile(r".*(north|east)|deg(ree)?s?[ _.]*[ne]")
_SOUTHWARD = re.compile(r"[Dd]eg(ree)?s?S")
_OF_COLUMNS = {True: ("e", "east", "w", "west"), False: ("n", "north", "s", "south")}
_PLAIN_COLUMNS = ("dd", "decimal", "wgs84", "wgs 84", "epsg:4326")
_LENGTHS = ("m", "metre", "metres", "meter", "meters", "km", "kilometre", "kilometres", "kilometer",
            "kilometers", "ft", "feet", "foot", "us_survey_foot", "us-ft")  # fmt: skip
_ROTATED_NAMES = ("rlat", "rlon", "grid_latitude", "grid_longitude", "rotlat", "rotlon")

ROTATED = (
    "in degrees of a rotated grid; expected geographical ones. Give the latitude and longitude of every "
    "point, which have two dimensions: data.assign_coords(lat=..., lon=...)."
)
PROJECTED = (
    "on a projected plane; expected degrees on the globe. Convert it to latitude and longitude, with pyproj "
    "for example, or keep the plane, with its system if that is known."
)


def find_axis(among: "Mapping[str, xr.Variable]", what: str) -> str | None:
    """Name of the variable that is the latitude or longitude, at best that of a dimension; None for none."""
    tests = (
        lambda name, attributes: attributes.get("standard_name") == what,
        lambda name, attributes: _UNITS[what].fullmatch(str(attributes.get("units", "")).lower()),
        lambda name, attributes: plain(name) in _NAMES[what],
        lambda name, attributes: (
            attributes.get("axis") == _AXIS[what]
            and _ANY_DEGREES.fullmatch(str(attributes.get("units", "")).strip().lower())
        ),
    )
    plausible = {
        name: axis
        for name, axis in among.items()
        if axis.dtype.kind in "fiu"
        and not str(axis.attrs.get("standard_name", "")).startswith(("grid_", "projection_"))
        and name.lower() not in _ROTATED_NAMES
        # of an ocean model, true in the tropics alone, or of a grid that is rotated
        and not any(word in str(axis.attrs.get("long_name", "")).lower() for word in ("nominal", "rotated"))
    }
    for test in tests:
        found = [name for name, axis in plausible.items() if test(name, axis.attrs)]
        found.sort(key=lambda name: plain(name) not in ("latitude", "longitude", "lat", "lon"))
        if found:  # bounds have a dimension more
            return min(found, key=lambda name: (name not in among[name].dims, among[name].ndim or 2.5))
    return None


def in_degrees(
    values: ArrayLike,
    attributes: Attributes,
    *,
    name: str = "",
    what: str,
    longitude: bool,
    column: bool = False,
) -> Array:
    """Give latitudes or longitudes in degrees north or east; a name such as ``lon_W`` counts, too."""
    kind = not_on_the_globe("", attributes)
    if kind is not None:
        raise of_a_plane(f"{what} is {kind}")
    stated = str(attributes.get("units", "")).strip()
    numbers, units = unpacked(values, attributes, what=what), " ".join(stated.lower().split())
    direction = "east" if longitude else "north"
    letters = _OF_COLUMNS[longitude] if column else ()
    start = "" if _FORWARD.fullmatch(units) else counted_from(name)
    if start == "pole" and not longitude:
        return 90.0 - in_degrees(values, attributes, what=what, longitude=False, column=column)
    if start == ("west" if longitude else "south") and not (units in letters[:2] or _is_backward(stated)):
        numbers = in_degrees(values, attributes, what=what, longitude=longitude, column=column)
        stated = units = f"degrees_{start}"
    if _is_backward(stated) or units in letters[2:]:
        if (numbers < 0.0).any():
            raise DataError(
                f"{what} is in {stated!r} and has numbers below zero, such as {numbers.min():g}, so "
                f"that it cannot be told in which direction it counts; expected degrees_{direction}. Correct "
                "its units, or its name.",
                key="units",
            )
        return -numbers
    angle = conversion(units, "degree") if units else None
    if angle is not None:
        return numbers * angle[0]
    if units in _NOT_STATED or _DEGREES.fullmatch(units) or units in letters[:2]:
        return numbers
    if column and units in (*_PLAIN_COLUMNS, "x" if longitude else "y"):
        return numbers
    remedy = "Rename the column, without the brackets" if column else "Correct its attribute units"
    raise DataError(
        f"{what} has the units {stated!r}; expected degrees_{direction}, or radian. {remedy}.", key="units"
    )


def _is_backward(stated: str) -> bool:
    """Whether units are degrees west or south."""
    units = " ".join(stated.lower().split())
    return bool(_BACKWARD.fullmatch(units) or _SOUTHWARD.fullmatch(stated))


def not_on_the_globe(name: str, attributes: Attributes) -> str | None:
    """Say what an axis is, and what to use instead, if it is one of a rotated or a projected grid."""
    standard = str(attributes.get("standard_name", ""))
    if standard.startswith("grid_") or name.lower() in _ROTATED_NAMES:
        return ROTATED
    if standard.startswith("projection_") or is_length(attributes):
        return PROJECTED
    return None


def of_a_plane(text: str) -> DataError:
    """Give the error of an axis that is `ROTATED` or `PROJECTED`, as its text ends."""
    if text.endswith(ROTATED):
        return DataError(text, key="rotated")
    keep = Setting("columns", {"x": "NAME", "y": "NAME"}, "to keep the plane")
    return DataError(text, key="plane", remedies=(keep,))


def is_length(attributes: Attributes) -> bool:
    """Whether the unit of an axis is a length."""
    return str(attributes.get("units", "")).strip().lower() in _LENGTHS


def planes_among(axes: Iterable[tuple[str, Attributes]]) -> str:
    """Say which of the axes of an object are those of a rotated or projected grid; empty if none is."""
    kinds = {name: not_on_the_globe(name, attributes) for name, attributes in axes}
    found = {name: kind for name, kind in kinds.items() if kind is not None}
    if not found:
        return ""
    kind = next(iter(found.values()))
    names = [repr(name) for name in found if found[name] == kind]
    return f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} {kind}"
