"""Units: one spelling of each, what converts one into another, and how people read them.

pint takes ``M/S`` for molar per siemens and ``Grad C`` for gigaradians, and fails on ``m s-1``.
"""

import math
import re
from collections.abc import Mapping
from unicodedata import normalize

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

_DEGREES = r"(deg(ree|rees)?|gr[ao]d[ios]*|degr[eé]s)?"
_SCALES = (
    (re.compile(rf"°?{_DEGREES}[ ._°]*(c|cel|celsius|centigrade)|摄氏度|攝氏度"), "celsius"),
    (re.compile(rf"°?{_DEGREES}[ ._°]*(f|fahrenheits?)|华氏度|華氏度"), "fahrenheit"),
    (re.compile(rf"{_DEGREES}[ ._]*(k|kelvins?)"), "k"),
)
"""Temperatures as people spell them, in lower case."""

_LOOKALIKES = str.maketrans("º˚−∕·", "°°-/ ")  # on keyboards; others are told by `unicodedata`: ℃, K, ㎧, ⁻¹

_SPELLINGS = {
    **dict.fromkeys(("pascal", "pascals"), "pa"),
    **dict.fromkeys(("mbar", "mb", "millibar", "millibars", "hectopascal", "hectopascals"), "hpa"),
    **dict.fromkeys(("meters per second", "metres per second", "meter per second", "m sec-1"), "m s-1"),
    **dict.fromkeys(("knots", "kt", "kts", "kn", "nautical mile per hour", "nmi h-1"), "knot"),
    **dict.fromkeys(("mi h-1", "mi hr-1", "mile hour-1", "mile per hour", "miles per hour"), "mph"),
    **dict.fromkeys(("kmh", "kph", "kmph", "km hr-1", "kilometers per hour"), "km h-1"),
    **dict.fromkeys(("ft sec-1", "fps", "feet per second"), "ft s-1"),
    **dict.fromkeys(("in hg", "in_hg", "inch_hg", "inch hg", "inches hg", "inches of mercury"), "inhg"),
    **dict.fromkeys(("mm hg", "mm_hg", "torr", "millimeters of mercury", "millimetres of mercury"), "mmhg"),
    **dict.fromkeys(("atmosphere", "atmospheres"), "atm"),
    **dict.fromkeys(("inch", "inches"), "in"),
    **dict.fromkeys(("foot", "feet"), "ft"),
    **dict.fromkeys(("gpdm", "decametre", "decameter"), "dam"),
    **dict.fromkeys(("metre", "metres", "meter", "meters", "m of water equivalent"), "m"),
    **dict.fromkeys(("gpm", "geopotential metre", "geopotential meter"), "m"),
    **dict.fromkeys(("millimetre", "millimetres", "millimeter", "millimeters", "kg m-2"), "mm"),
    **dict.fromkeys(("percent", "per cent"), "%"),
    **dict.fromkeys(("permil", "per mil", "per mille", "promille"), "\u2030"),
    **dict.fromkeys(("deg", "degs", "degrees"), "degree"),
    **dict.fromkeys(("radian", "radians", "radians_north", "radians_east"), "rad"),
    **dict.fromkeys(("microradian", "microradians"), "urad"),
    **dict.fromkeys(("arcminute", "arcminutes", "arc_minute", "arc_minutes"), "arcmin"),
    **dict.fromkeys(("arcsecond", "arcseconds", "arc_second", "arc_seconds"), "arcsec"),
    **dict.fromkeys(("grad", "gradian", "gradians"), "gon"),
    **dict.fromkeys(("mm s-1",), "kg m-2 s-1"),
    **dict.fromkeys(("mm day-1", "mm d-1", "kg m-2 d-1", "kg m-2 day-1"), "mm d-1"),
}  # fmt: skip
_BASES: Mapping[str, tuple[str, float, float]] = {
    "celsius": ("k", 1.0, 273.15), "fahrenheit": ("k", 5.0 / 9.0, 459.67 * 5.0 / 9.0),
    "hpa": ("pa", 100.0, 0.0), "kpa": ("pa", 1000.0, 0.0), "MPa": ("pa", 1e6, 0.0), "mPa": ("pa", 1e-3, 0.0),
    "bar": ("pa", 1e5, 0.0), "atm": ("pa", 101325.0, 0.0), "inhg": ("pa", 3386.389, 0.0),
    "mmhg": ("pa", 133.3224, 0.0), "mm": ("m", 1e-3, 0.0), "cm": ("m", 1e-2, 0.0), "dam": ("m", 10.0, 0.0),
    "km": ("m", 1e3, 0.0), "in": ("m", 0.0254, 0.0), "ft": ("m", 0.3048, 0.0),
    "km h-1": ("m s-1", 1.0 / 3.6, 0.0), "knot": ("m s-1", 1852.0 / 3600.0, 0.0),
    "mph": ("m s-1", 0.44704, 0.0), "ft s-1": ("m s-1", 0.3048, 0.0), "g kg-1": ("kg kg-1", 1e-3, 0.0),
    "mm d-1": ("kg m-2 s-1", 1.0 / 86400.0, 0.0), "rad": ("degree", 180.0 / math.pi, 0.0),
    "urad": ("degree", 1e-6 * 180.0 / math.pi, 0.0),
    "arcmin": ("degree", 1.0 / 60.0, 0.0), "arcsec": ("degree", 1.0 / 3600.0, 0.0),
    "gon": ("degree", 0.9, 0.0),
    "%": ("1", 1e-2, 0.0), "\u2030": ("1", 1e-3, 0.0), "ppm": ("1", 1e-6, 0.0), "ppb": ("1", 1e-9, 0.0),
    **dict.fromkeys(("dimensionless", "unitless", "fraction", "proportion", "0-1"), ("1", 1.0, 0.0)),
}  # fmt: skip
"""Units by others that they convert to: factor and offset. Mercury is that at 0 degrees Celsius."""

_CASED = re.compile(r"[mMpP](Pa|K|W|J|N|V|Hz|bar|eV|mol|m|g|s|l|L|t)|[mp]A|MA")
"""Symbols whose prefix is another one in the other case: mega and milli, peta and pico."""

_NAME = r"[A-Za-z%°µ_]+"
_POWER = rf"{_NAME}(-?\d)?"
_PURE = ("(0 - 1)", "(0-1)", "0-1", "~", "none", "proportion", "fraction", "dimensionless", "unitless",
         "numeric")  # fmt: skip
_UDUNITS = {"celsius": "degC", "fahrenheit": "degF", "k": "K", "pa": "Pa", "hpa": "hPa", "m s-1": "m s-1",
            "%": "%", **dict.fromkeys(_PURE, "1")}  # fmt: skip
"""How UDUNITS writes what is spelled in many ways, by `plain_units`."""


def is_unit(text: str) -> bool:
    """Whether a text is a unit that is known, or a quotient or a product of usual ones."""
    plain = plain_units(text)
    bases = {base for base, _, _ in _BASES.values()} - {"1"}
    return plain in _BASES or plain in bases or _OF_UNITS.fullmatch(plain) is not None


_OF_UNITS = re.compile(
    r"([kcmunp]?(g|l|m|mol|w|j|s|s/cm|bq|cfu)|[mu]s|ntu|fnu|psu|pss)( ([kcmdnu]?(g|l|m|mol|s|h|d|ml))-\d)*|"
    r"(cfu|mpn)[ /]100 ?ml(-1)?|(pp[mbt]v?)",
    re.IGNORECASE,
)


def plain_units(units: str) -> str:
    """One spelling of each unit: ``m s**-1``, ``m/s``, ``M/S`` and ``m s^-1`` are ``m s-1``."""
    text = normalize("NFKC", units.translate(_LOOKALIKES)).translate(_LOOKALIKES)
    text = " ".join(text.replace("**", "").replace("^", "").replace("\u03bc", "u").split())
    text = re.sub(r"[^\W\d_]+", lambda word: word[0] if _CASED.fullmatch(word[0]) else word[0].lower(), text)
    for spelled, scale in _SCALES:
        if spelled.fullmatch(text):
            return scale
    text = _SPELLINGS.get(text, text)
    if "/" in text:
        first, *below = (part.strip() for part in text.split("/"))
        found = ((part, re.fullmatch(r"([A-Za-z%]+)(\d*)", part)) for part in below)  # s2 is s-2
        text = " ".join([first, *(f"{unit[1]}-{unit[2] or 1}" if unit else part for part, unit in found)])
    return _SPELLINGS.get(text, text)


def conversion(units: str, target: str) -> tuple[float, float] | None:
    """Factor and offset that bring values from one unit to another; None if they are not known to convert."""
    multiple, bare = scaled(units)
    came, expected = plain_units(bare), plain_units(target)
    if came in ("", expected):
        return multiple, 0.0
    base, factor, offset = _BASES.get(came, (came, 1.0, 0.0))
    wanted, least, zero = _BASES.get(expected, (expected, 1.0, 0.0))
    return (multiple * factor / least, (offset - zero) / least) if base == wanted else None


def difference_factor(units: str, target: str) -> float | None:
    """Factor that brings a difference from one unit to another; None if not known, 1 if one is not stated."""
    if not units or not target:
        return 1.0
    (multiple, bare), (other, wanted) = scaled(units), scaled(target)
    found = conversion(bare, wanted)
    return None if found is None else multiple * found[0] / other


def scaled(units: str) -> tuple[float, str]:
    """Split a unit such as ``0.1 degC``, in which tenths of a degree are whole numbers."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)[ *]+([A-Za-z°º˚℃℉%].*)", units.strip())
    if found is None or float(found[1]) == 0.0:
        return 1.0, units
    return float(found[1]), found[2]


def cf_units(units: str) -> str:
    """Write a unit as CF and UDUNITS do; one that is not understood stays as it is."""
    plain = plain_units(units)
    if plain in _UDUNITS:
        return _UDUNITS[plain]
    if re.search(r"\d(\*\*|\^)|(\*\*|\^)-?\d*\.", units):  # 10^-3 and m^0.5, not 10-3 and m0.5
        return units
    text = " ".join(units.replace("**", "").replace("^", "").replace("·", " ").split())
    first, *below = (part.strip() for part in text.split("/"))
    if not below:
        return text
    parts = [f"{part}1" if re.fullmatch(_NAME, part) else part for part in below]
    if not re.fullmatch(rf"{_POWER}( {_POWER})*|1", first) or not all(
        re.fullmatch(rf"{_NAME}\d", part) for part in parts
    ):
        return units
    inverse = [f"{part[:-1]}-{part[-1]}" for part in parts]
    return " ".join([*([] if first == "1" else [first]), *inverse])


def square_of(units: str) -> str:
    """Write the square of a unit as CF and UDUNITS do; of a temperature, that of a difference of two."""
    if units == "1":
        return units
    if plain_units(units) == "celsius":
        return "K2"
    powers = [re.fullmatch(rf"({_NAME})(-?\d*)", part) for part in units.split()]
    found = [f"{power[1]}{2 * int(power[2] or 1)}" for power in powers if power is not None]
    return " ".join(found) if len(found) == len(powers) else f"({units})2"


def symbol(units: str) -> str:
    """Write a unit as people read it; empty for a pure number and where the unit is not known."""
    if units == "1":
        return ""
    if (plain := plain_units(units)) in ("celsius", "fahrenheit"):
        return "°C" if plain == "celsius" else "°F"
    shown = re.sub(r"\bu(?=(?:g|m|s|l|L|mol|Pa|V|W|Sv|Gy|Bq)(?:-?\d+)?\b)", "µ", units)
    return re.sub(r"(?<=[A-Za-z])-?\d+\b", lambda found: found[0].translate(_RAISED), shown)


def squared(units: str) -> str:
    """Write the square of a unit as people read it."""
    shown = symbol("K" if plain_units(units) == "celsius" else units)
    return shown and (f"{shown}²" if re.fullmatch(r"[A-Za-z%]+", shown) else f"({shown})²")


def amount(value: float, units: str, digits: int = 3) -> str:
    """Write a number with its unit: kelvin with so many decimals, else with one significant digit more."""
    number = f"{value:.{digits}f}" if units == "K" else f"{value:.{digits + 1}g}"
    if float(number) == 0.0 and abs(value) > 1e-6:
        number = f"{value:.2g}"
    return f"{number} {symbol(units)}".strip()


def decimals(error: float) -> int:
    """Decimals that show two digits of an error bar; two if it is zero."""
    return min(max(0, 1 - math.floor(math.log10(error))), 9) if error > 0.0 else 2


def spoken(units: str) -> str:
    """Name a unit within a sentence: ``kelvin`` where that is it, else its symbol."""
    return "kelvin" if units == "K" else symbol(units)
