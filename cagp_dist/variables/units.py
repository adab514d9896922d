"""Units: one spelling of each, what converts one into another, and how people read them."""

import re
from collections.abc import Mapping

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

_CELSIUS = ("degc", "celsius", "c", "degree_c", "degrees_c", "deg_c", "degree_celsius", "degrees_celsius",
            "degree c", "degrees c", "degree celsius", "degrees celsius", "deg c", "°c")  # fmt: skip
_SPELLINGS = {
    **dict.fromkeys(("kelvin", "kelvins", "degk", "deg_k", "degree_k", "degrees_k", "degrees kelvin",
                     "degrees_kelvin", "degree_kelvin"), "k"),
    **dict.fromkeys(_CELSIUS, "celsius"),
    **dict.fromkeys(("pascal", "pascals"), "pa"),
    **dict.fromkeys(("mbar", "mb", "millibar", "millibars", "hectopascal", "hectopascals"), "hpa"),
    **dict.fromkeys(("meters per second", "metres per second", "meter per second"), "m s-1"),
    **dict.fromkeys(("metre", "metres", "meter", "meters", "m of water equivalent"), "m"),
    **dict.fromkeys(("gpm", "geopotential metre", "geopotential meter"), "m"),
    **dict.fromkeys(("millimetre", "millimetres", "millimeter", "millimeters", "kg m-2"), "mm"),
    **dict.fromkeys(("percent", "per cent"), "%"),
    **dict.fromkeys(("mm s-1",), "kg m-2 s-1"),
    **dict.fromkeys(("mm day-1", "mm d-1", "kg m-2 d-1", "kg m-2 day-1"), "mm d-1"),
}  # fmt: skip
_CONVERSIONS: Mapping[tuple[str, str], tuple[float, float]] = {
    ("celsius", "k"): (1.0, 273.15),
    ("hpa", "pa"): (100.0, 0.0),
    ("kpa", "pa"): (1000.0, 0.0),
    ("mm", "m"): (1e-3, 0.0),
    ("cm", "m"): (1e-2, 0.0),
    ("km", "m"): (1e3, 0.0),
    ("km h-1", "m s-1"): (1.0 / 3.6, 0.0),
    ("g kg-1", "kg kg-1"): (1e-3, 0.0),
    ("mm d-1", "kg m-2 s-1"): (1.0 / 86400.0, 0.0),
}
"""From one unit to another: factor and offset."""


def plain_units(units: str) -> str:
    """One spelling of each unit: ``m s**-1``, ``m/s`` and ``m s^-1`` are ``m s-1``."""
    text = " ".join(units.strip().lower().replace("**", "").replace("^", "").replace("·", " ").split())
    text = _SPELLINGS.get(text, text)
    if "/" in text:
        first, *rest = (part.strip() for part in text.split("/"))
        text = " ".join([first, *(re.sub(r"^([a-z%]+)(\d*)$", _inverse, part) for part in rest)])
    return _SPELLINGS.get(text, text)


def _inverse(found: re.Match[str]) -> str:
    """``s2`` below a stroke as ``s-2``."""
    return f"{found[1]}-{found[2] or 1}"


def conversion(units: str, target: str) -> tuple[float, float] | None:
    """Factor and offset that bring values from one unit to another; None if they are not known to convert.

    Parameters
    ----------
    units : str
        Of the values, as a file states them; empty counts as the target.
    target : str
        What is wanted.

    Examples
    --------
    >>> conversion("hPa", "Pa"), conversion("m/s", "m s**-1"), conversion("psi", "Pa")
    ((100.0, 0.0), (1.0, 0.0), None)
    >>> conversion("0.1 degC", "K")
    (0.1, 273.15)
    """
    multiple, bare = scaled(units)
    came, expected = plain_units(bare), plain_units(target)
    known = (1.0, 0.0) if came in ("", expected) else _CONVERSIONS.get((came, expected))
    return known and (multiple * known[0], known[1])


def scaled(units: str) -> tuple[float, str]:
    """Split a unit such as ``0.1 degC``, in which tenths of a degree are whole numbers.

    Returns
    -------
    multiple : float
        1 where there is no number before the unit.
    units : str
        Without it.

    Examples
    --------
    >>> scaled("0.1 degC"), scaled("K"), scaled("1e-3")
    ((0.1, 'degC'), (1.0, 'K'), (1.0, '1e-3'))
    """
    found = re.fullmatch(r"(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)[ *]+([A-Za-z°%].*)", units.strip())
    if found is None or float(found[1]) == 0.0:
        return 1.0, units
    return float(found[1]), found[2]


def symbol(units: str) -> str:
    """Write a unit as people read it; empty for a pure number and where the unit is not known.

    Examples
    --------
    >>> symbol("m2 s-2"), symbol("K"), symbol("1")
    ('m² s⁻²', 'K', '')
    """
    if units == "1":
        return ""
    return re.sub(r"(?<=[A-Za-z])-?\d+\b", lambda found: found[0].translate(_RAISED), units)


def squared(units: str) -> str:
    """Write the square of a unit as people read it.

    Examples
    --------
    >>> squared("K"), squared("m s-1"), squared("1")
    ('K²', '(m s⁻¹)²', '')
    """
    shown = symbol(units)
    return shown and (f"{shown}²" if re.fullmatch(r"[A-Za-z%]+", shown) else f"({shown})²")


def amount(value: float, units: str, digits: int = 3) -> str:
    """Write a number with its unit: kelvin with so many decimals, else with one significant digit more.

    Examples
    --------
    >>> amount(1.23456, "K"), amount(153.2, "Pa"), amount(1.234e-4, "kg kg-1", 2)
    ('1.235 K', '153.2 Pa', '0.000123 kg kg⁻¹')
    """
    number = f"{value:.{digits}f}" if units == "K" else f"{value:.{digits + 1}g}"
    return f"{number} {symbol(units)}".strip()


def spoken(units: str) -> str:
    """Name a unit within a sentence: ``kelvin`` where that is it, else its symbol."""
    return "kelvin" if units == "K" else symbol(units)
