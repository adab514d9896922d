"""What a name in a file or a job stands for, and what its unit and its values must be."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cagp_dist.errors import ConfigurationError, DataError
from cagp_dist.remedies import Setting
from cagp_dist.variables.units import cf_units, conversion, scaled
from cagp_dist.variables.variable import T2M, UNCHECKED, VARIABLES, Variable

if TYPE_CHECKING:
    from cagp_dist.arrays import Array

_PURE = re.compile(r"|1|-|db[zi]?|.*\b(log|ln|lg|sqrt|re)\b.*|.*\b(log|ln|lg|log10|sqrt)\(.*|.*0\.5.*")
_TRANSFORMED = {
    "logarithms": r"(.*_)?(log_?(2|10|1p|e)?|ln|lg|logit|log_?transformed|logarithm[a-z]*)(_.*)?|"
    r"log(2|10|1p).*",
    "roots": r"(.*_)?(sqrt|cbrt|square_root|cube_root|boxcox|box_cox)(_.*)?",
    "exponentials": r"(exp|expm1)_.*",
    "standardised numbers": r"(.*_)?(z_?scores?|normali[sz]ed|standardi[sz]ed|scaled|spi|spei|ranked)(_.*)?",
    "percentages": r"(.*_)?(percent(age)?|pct|perc)(_.*)?",
    "ratios": r"(.*_)?(ratio|fraction|share)_(of|to)_.*",
}  # fmt: skip
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in _TRANSFORMED.items()}
"""What the values of a quantity are instead of it, by its name."""

_RESERVED = ("time", "latitude", "longitude", "point", "level", "iteration", "zarr.json")
_MOST_BYTES = 200  # of a name in UTF-8: names of results and of their folders, of at most 255, begin with it


def canonical_name(name: str) -> str:
    """Name under which a variable is published."""
    if name in VARIABLES:
        return name
    lower = name.lower()
    for variable in VARIABLES.values():
        if any(lower == other.lower() for other in variable.names):
            return variable.name
    well_formed = re.fullmatch(r"[^\W_][^/\\\s]*", name) and name.isprintable()
    if not well_formed or len(name.encode()) > _MOST_BYTES or name in _RESERVED:
        shown = name if len(name) <= _MOST_BYTES else f"{name[:40]}..."
        raise ConfigurationError(
            f"variable {shown!r} cannot be the name of a field; expected the name of a variable of the "
            "source, such as 't2m' or 'msl', without blanks, slashes and characters that cannot be printed, "
            f"of at most {_MOST_BYTES} bytes, and not that of an axis.",
            key="variable-name",
        )
    return name


def bare(name: str) -> str:
    """Give the name of a column without units in brackets."""
    return re.sub(r"\s*[\[(][^\])]*[\])]\s*$", "", name).strip() or name


def field_name(name: str) -> str:
    """Give the name of a column without units, and _ for characters that the name of a field cannot have."""
    printable = "".join(each if each.isprintable() else " " for each in bare(name))
    return re.sub(r"[\s/\\]+", "_", printable).strip("_") or name


def variable_named(name: str) -> Variable:
    """Look up what is known of a variable without a file; of a free name, nothing but the name."""
    canonical = canonical_name(name)
    return VARIABLES.get(canonical) or Variable(canonical, canonical.replace("_", " "))


def variable_of(name: str, attributes: Mapping[object, object]) -> Variable:
    """Variable of a field in canonical form or of a published run, from its name and attributes."""

    def text(key: str) -> str:
        return str(attributes.get(key, ""))

    known, units = VARIABLES.get(name), cf_units(text("units"))
    long_name = text("long_name") or (known.long_name if known else name.replace("_", " "))
    stated = bool(units) or (known is not None and not known.is_temperature)
    if transform := text("transform"):
        return Variable(name, long_name, units, low=0.0, transform=transform)
    if known is None or (stated and units != known.units) or _is_anomaly(attributes):
        return Variable(name, long_name, units, text("standard_name"))
    return replace(known, long_name=long_name, checked=text("plausible_range") != UNCHECKED)


def transformed_by_name(name: str, long_name: str = "") -> str:
    """Say what values are instead of a quantity, such as logarithms, by its names; empty if they are it."""
    for text in (name, long_name.partition(" of ")[0]):
        spelled = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).lower()).strip("_")
        for kind, pattern in _PATTERNS.items():
            if pattern.fullmatch(spelled):
                return kind
    return ""


def own_units(name: str, attributes: Mapping[object, object], stated: str) -> str:
    """Units of values, where those that are stated are the ones of a quantity that they are no longer.

    Logarithms, standardised numbers and ratios are pure numbers; of roots and exponentials nothing is known.
    """
    kind = transformed_by_name(name, str(attributes.get("long_name", "")))
    percent = kind in ("percentages", "ratios") and stated.strip().lower() in ("%", "percent")
    if not kind or percent or _PURE.fullmatch(stated.strip().lower()):
        return stated
    return {"roots": "", "exponentials": "", "percentages": "%"}.get(kind, "1")


def describe_variable(
    name: str, attributes: Mapping[object, object], *, units: str | None = None, level: str = ""
) -> tuple[Variable, tuple[float, float]]:
    """Variable of a field as a file has it, and what brings its values to the unit of the variable.

    An anomaly by its names, or what has nothing but a name, is a free variable in its own unit.
    """
    known = variable_named(name)
    told = str(attributes.get("units", "")).strip()
    stated = own_units(name, attributes, told) if units is None else units.strip()
    place = f" at {level}" if level else ""
    named = any(attributes.get(key) for key in ("standard_name", "long_name"))
    unsaid = not (stated or named or known.units in ("K", "Pa"))  # knots, millimetres: may be anything
    other = _is_anomaly(attributes) or (units is None and stated != told)
    if known.name not in VARIABLES or unsaid or other:
        if known is T2M:
            raise DataError(
                "the field is an anomaly by its long name, not a 2 metre temperature. Rename it in the file.",
                key="anomaly",
                remedies=(Setting("value", "NAME", "with the new name"),),
            )
        long_name = str(attributes.get("long_name", "") or known.name.replace("_", " "))
        standard = str(attributes.get("standard_name", ""))
        standard = "" if standard == "unknown" else standard
        multiple, bare = (1.0, stated) if units is None else scaled(stated)
        return Variable(known.name, f"{long_name}{place}", cf_units(bare), standard), (multiple, 0.0)
    found = replace(known, long_name=f"{known.long_name}{place}")
    scale = conversion(stated, known.units)
    if scale is None:
        spoken = "kelvin, degrees Celsius or Fahrenheit" if known.is_temperature else known.units
        raise DataError(
            f"the field has units {stated!r}; expected {spoken}. Convert the values, or correct the units.",
            key="units",
            remedies=(Setting("units", known.units, "if the source states them wrongly"),),
        )
    return found, scale


def log1p_of(values: "Array", name: str, attributes: Mapping[object, object]) -> tuple[Variable, "Array"]:
    """Logarithms ``log(1 + x / 1 unit)`` of values that are not negative: the variable, and they.

    The unit is that which amounts of rain are measured by, else that of the values. What lies below 0 within
    the plausible range is rounding of packed files: 0.
    """
    import numpy as np  # names of variables are needed by the help of the command, which shall be quick

    variable, units = variable_of(name, attributes), cf_units(str(attributes.get("units", "")))
    known, factor, unit, least = variable_named(name), 1.0, units, 0.0
    if units and known.measure and (scale := conversion(units, known.measure)) is not None:
        factor, unit = scale[0], known.measure
        least = known.low * (conversion(known.units, units) or (0.0, 0.0))[0]
    if (low := float(np.nanmin(values))) < least:
        raise DataError(
            f'transform is "log1p", log(1 + x), and values of {name!r} reach down to {low:g}; expected an '
            "amount, none of it negative.",
            key="transform-negative",
        )
    amount = "" if unit in ("", "1") else f" / 1 {unit}"
    found = np.log1p(np.maximum(np.asarray(values, dtype=np.float64), 0.0) * factor)
    text = f"log(1 + {name}{amount})"
    long_name = f"log(1 + {variable.long_name}{amount})"
    return replace(
        variable_of(name, {"units": "1", "long_name": long_name, "transform": text}), checked=variable.checked
    ), found.astype(values.dtype)


def range_error(variable: Variable, low: float, high: float, units: str) -> DataError | None:
    """Say what is wrong with values that are not plausible."""
    least, most = variable.low, variable.high
    if not variable.checked or (low >= least and high <= most):
        return None
    guess: tuple[Setting, ...] = ()
    if variable.is_temperature and low > -100.0 and high < 70.0:
        guess = (Setting("units", "degC", "if it is Celsius, as it seems"),)
    elif variable.is_temperature and low > -130.0 and high < 140.0:
        guess = (Setting("units", "degF", "if it is Fahrenheit, as it seems"),)
    elif variable.units == "Pa" and least <= 100.0 * low and 100.0 * high <= most:
        guess = (Setting("units", "hPa", "if it is hPa, as it seems"),)
    stated = f" (the file says {units!r})" if units and units != variable.units else ""
    return DataError(
        f"values of {variable.name!r} reach from {low:g} to {high:g}; expected {least:g}..{most:g} "
        f"{variable.units}{stated}. Check the variable, its units, scale_factor, add_offset and _FillValue.",
        key="range",
        remedies=(
            *guess,
            Setting("missing", -9999, "if such a number marks what is missing"),
            Setting("check_range", False, "if the values are right"),
        ),
    )


def _is_anomaly(attributes: Mapping[object, object]) -> bool:
    """Whether a field is a difference from something usual, as its names say."""
    return any("anomal" in str(attributes.get(key, "")).lower() for key in ("long_name", "standard_name"))
