"""Physical quantities by the names that files give them: unit, long name, plausible range, transform.

The table is small and on purpose: names of ERA5, CMIP and the Climate Data Store that people map. Any other
name is taken as the file spells it, with the unit and the long name that the file states.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, log1p

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import ConfigurationError, DataError

UNCHECKED = "not checked"
"""Value of the attribute ``plausible_range`` of a field whose values may be anything."""

_RESERVED = ("time", "latitude", "longitude", "point", "level", "iteration")
_COMMENT = (
    "All numbers are in transformed units, and so are the prior, the error bars and the scores. Nothing is "
    "transformed back: expm1 of a mean is the median of the quantity in {unit}, not its mean."
)


@dataclass(frozen=True)
class Log1p:
    """The transform ``log(1 + x / 1 unit)`` of a quantity that is not negative and mostly small.

    It is what models of precipitation commonly use: it brings a skewed quantity near to a normal one and is 0
    where there was none.

    Attributes
    ----------
    units : str
        Of the quantity, as `Variable.units`.
    low, high : float
        Plausible range of the quantity; what lies below 0 within it is rounding of packed files, and counts
        as 0.
    factor : float
        How many of ``unit`` are one of ``units``.
    unit : str
        What the quantity is measured by, such as ``mm``.
    """

    units: str
    low: float
    high: float
    factor: float
    unit: str

    def __call__(self, values: Array) -> Array:
        """Transform values of any shape; NaN stays."""
        return np.asarray(np.log1p(np.maximum(values, 0.0) * self.factor), dtype=np.float64)


@dataclass(frozen=True)
class Variable:
    """A quantity as it is analysed and published.

    Attributes
    ----------
    name : str
        In jobs, and in front of ``_mean`` and ``_std`` in published runs.
    long_name : str
    units : str
        As CF writes them, such as ``m s-1``; empty if they are not known.
    standard_name : str
        Of CF, empty if there is none.
    low, high : float
        What values can be; infinite where nothing is known or nothing is to be checked.
    names : tuple of str
        Other names of it in files.
    grib : tuple of int
        Numbers in ECMWF's parameter table, which GRIB files carry instead of names.
    cds : str
        Name in requests to the Climate Data Store.
    transform : Log1p or None
        Of the values of a file, before anything else is done with them.
    vector : bool
        Component along the local east or north, which is no one value at a pole.
    checked : bool
        Whether values outside the plausible range are refused.
    """

    name: str
    long_name: str
    units: str = ""
    standard_name: str = ""
    low: float = -inf
    high: float = inf
    names: tuple[str, ...] = ()
    grib: tuple[int, ...] = ()
    cds: str = ""
    transform: Log1p | None = None
    vector: bool = False
    checked: bool = True

    @property
    def is_temperature(self) -> bool:
        """Whether it is a temperature in kelvin, as opposed to a difference of two."""
        return self.units == "K" and self.low > 0.0

    @property
    def file_units(self) -> str:
        """Unit of the values before the transform."""
        return self.units if self.transform is None else self.transform.units

    @property
    def file_range(self) -> tuple[float, float]:
        """Plausible range of the values before the transform."""
        if self.transform is None:
            return self.low, self.high
        return self.transform.low, self.transform.high

    def attributes(self) -> dict[str, str]:
        """CF attributes of the field; `variable_of` is the inverse."""
        found = {"standard_name": self.standard_name, "long_name": self.long_name, "units": self.units}
        if self.transform is not None:
            found |= {
                "transform": f"log(1 + {self.name} / 1 {self.transform.unit})",
                "comment": _COMMENT.format(unit=self.transform.unit),
            }
        if not self.checked:
            found["plausible_range"] = UNCHECKED
        return {key: text for key, text in found.items() if text}


def _table(*variables: Variable) -> dict[str, Variable]:
    return {variable.name: variable for variable in variables}


def _wind(
    name: str,
    side: str,
    where: str = "",
    *,
    names: tuple[str, ...] = (),
    grib: tuple[int, ...] = (),
    cds: str = "",
) -> Variable:
    """Component of the wind; the records are 113 m/s near the ground and about 180 m/s aloft."""
    reach = 120.0 if where else 200.0
    return Variable(name, f"{where} {side} wind".strip(), "m s-1", f"{side}_wind", -reach, reach,
                    names, grib, cds, vector=True)  # fmt: skip


_AIR, _SEA_LEVEL, _GROUND = "air_temperature", "air_pressure_at_mean_sea_level", "surface_air_pressure"
_RAIN = Log1p(units="m", low=-1e-4, high=3.0, factor=1000.0, unit="mm")
_RAIN_RATE = Log1p(units="kg m-2 s-1", low=-1e-6, high=0.05, factor=86400.0, unit="mm d-1")

VARIABLES: Mapping[str, Variable] = _table(
    # near the ground: records of air are 184 K and 330 K
    Variable("t2m", "2 metre temperature", "K", _AIR, 150.0, 350.0,
             ("2t", "2m_temperature", "VAR_2T", "temperature_2m", "var167"), (167,), "2m_temperature"),
    Variable("tas", "near-surface air temperature", "K", _AIR, 150.0, 350.0),
    Variable("tasmax", "daily maximum near-surface air temperature", "K", _AIR, 150.0, 350.0),
    Variable("tasmin", "daily minimum near-surface air temperature", "K", _AIR, 150.0, 350.0),
    Variable("temperature", "temperature", "K", _AIR, 100.0, 350.0, (), (130,)),
    Variable("d2m", "2 metre dewpoint temperature", "K", "dew_point_temperature", 100.0, 340.0,
             ("2d", "2m_dewpoint_temperature", "VAR_2D", "var168"), (168,), "2m_dewpoint_temperature"),
    Variable("skt", "skin temperature", "K", "surface_temperature", 120.0, 400.0,
             ("skin_temperature", "var235"), (235,), "skin_temperature"),
    Variable("ts", "surface temperature", "K", "surface_temperature", 120.0, 400.0),
    Variable("sst", "sea surface temperature", "K", "sea_surface_temperature", 260.0, 325.0,
             ("sea_surface_temperature", "var34"), (34, 151159), "sea_surface_temperature"),
    Variable("tos", "sea surface temperature", "K", "sea_surface_temperature", 260.0, 325.0),
    Variable("msl", "mean sea level pressure", "Pa", _SEA_LEVEL, 85e3, 112e3,
             ("mean_sea_level_pressure", "prmsl", "var151"), (151,), "mean_sea_level_pressure"),
    Variable("psl", "sea level pressure", "Pa", _SEA_LEVEL, 85e3, 112e3),
    Variable("sp", "surface pressure", "Pa", _GROUND, 28e3, 112e3,
             ("surface_pressure", "var134"), (134,), "surface_pressure"),
    Variable("ps", "surface air pressure", "Pa", _GROUND, 28e3, 112e3),
    _wind("u10", "eastward", "10 metre", names=("10u", "10m_u_component_of_wind", "VAR_10U", "var165"),
          grib=(165,), cds="10m_u_component_of_wind"),
    _wind("v10", "northward", "10 metre", names=("10v", "10m_v_component_of_wind", "VAR_10V", "var166"),
          grib=(166,), cds="10m_v_component_of_wind"),
    _wind("uas", "eastward", "near-surface"),
    _wind("vas", "northward", "near-surface"),
    Variable("si10", "10 metre wind speed", "m s-1", "wind_speed", 0.0, 120.0,
             ("10si", "ws10", "10m_wind_speed"), (207,)),
    Variable("sfcWind", "near-surface wind speed", "m s-1", "wind_speed", 0.0, 120.0),
    Variable("tcwv", "total column water vapour", "kg m-2", "atmosphere_mass_content_of_water_vapor", -1.0,
             150.0, ("total_column_water_vapour", "var137"), (137,), "total_column_water_vapour"),
    Variable("tp", "log(1 + total precipitation / 1 mm)", "1", "", 0.0, log1p(3000.0),
             ("total_precipitation", "var228"), (228,), "total_precipitation", _RAIN),
    Variable("pr", "log(1 + precipitation / 1 mm d-1)", "1", "", 0.0, log1p(0.05 * 86400.0),
             transform=_RAIN_RATE),
    # on levels
    Variable("t", "temperature", "K", _AIR, 100.0, 350.0, ("temperature", "var130"), (130,)),
    Variable("ta", "air temperature", "K", _AIR, 100.0, 350.0),
    Variable("z", "geopotential", "m2 s-2", "geopotential", -2e4, 1e6, ("geopotential", "var129"), (129,)),
    Variable("zg", "geopotential height", "m", "geopotential_height", -2e3, 1e5),
    Variable("gh", "geopotential height", "m", "geopotential_height", -2e3, 1e5,
             ("geopotential_height", "var156"), (156,)),
    _wind("u", "eastward", names=("u_component_of_wind", "var131"), grib=(131,)),
    _wind("v", "northward", names=("v_component_of_wind", "var132"), grib=(132,)),
    _wind("ua", "eastward"),
    _wind("va", "northward"),
    Variable("q", "specific humidity", "kg kg-1", "specific_humidity", -1e-3, 0.1,
             ("specific_humidity", "var133"), (133,)),
    Variable("hus", "specific humidity", "kg kg-1", "specific_humidity", -1e-3, 0.1),
    Variable("r", "relative humidity", "%", "relative_humidity", -30.0, 200.0,
             ("relative_humidity", "var157"), (157,)),
    Variable("hurs", "near-surface relative humidity", "%", "relative_humidity", -30.0, 200.0),
)  # fmt: skip
"""By the names of ERA5 (``t2m``, ``msl``) and, where another, of CMIP (``tas``, ``psl``)."""

T2M = VARIABLES["t2m"]

_CELSIUS = ("degc", "celsius", "c", "degree_c", "degrees_c", "deg_c", "degree_celsius", "degrees_celsius",
            "degree c", "degrees c", "degree celsius", "degrees celsius", "deg c", "°c")  # fmt: skip
_SPELLINGS = {
    **dict.fromkeys(("kelvin", "kelvins", "degk", "deg_k", "degree_k", "degrees_k", "degrees kelvin",
                     "degrees_kelvin", "degree_kelvin"), "k"),
    **dict.fromkeys(_CELSIUS, "celsius"),
    **dict.fromkeys(("pascal", "pascals"), "pa"),
    **dict.fromkeys(("mbar", "mb", "millibar", "millibars", "hectopascal", "hectopascals"), "hpa"),
    **dict.fromkeys(("meters per second", "metres per second", "meter per second", "m s"), "m s-1"),
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


def canonical_name(name: str) -> str:
    """Name under which a variable is published.

    Parameters
    ----------
    name : str
        As a file or a job has it.

    Returns
    -------
    str
        That of the table if it knows the name, else the name itself.

    Raises
    ------
    ConfigurationError
        If no array of a published run can have this name.

    Examples
    --------
    >>> canonical_name("2m_temperature"), canonical_name("tas"), canonical_name("swh")
    ('t2m', 'tas', 'swh')
    """
    if name in VARIABLES:
        return name
    lower = name.lower()
    for variable in VARIABLES.values():
        if any(lower == other.lower() for other in variable.names):
            return variable.name
    if not re.fullmatch(r"[^\W_][^/\\\0\s]*", name) or name in _RESERVED:
        raise ConfigurationError(
            f"variable {name!r} cannot be the name of a field; expected the name of a variable of the "
            "source, such as 't2m' or 'msl', without blanks and slashes, and not that of an axis."
        )
    return name


def variable_named(name: str) -> Variable:
    """Look up what is known of a variable without a file; of a free name, nothing but the name.

    Parameters
    ----------
    name : str
        As `canonical_name` takes it.

    Examples
    --------
    >>> variable_named("msl").units, variable_named("swh").units
    ('Pa', '')
    """
    canonical = canonical_name(name)
    return VARIABLES.get(canonical) or Variable(canonical, canonical.replace("_", " "))


def variable_of(name: str, attributes: Mapping[object, object]) -> Variable:
    """Variable of a field in canonical form or of a published run, from its name and attributes.

    Parameters
    ----------
    name : str
        Of the array.
    attributes : mapping
        As `Variable.attributes` made them.
    """

    def text(key: str) -> str:
        return str(attributes.get(key, ""))

    known, units = VARIABLES.get(name), text("units")
    long_name = text("long_name") or (known.long_name if known else name.replace("_", " "))
    if known is None or (units and units != known.units) or _is_anomaly(attributes):
        return Variable(name, long_name, units, text("standard_name"))
    return replace(known, long_name=long_name, checked=text("plausible_range") != UNCHECKED)


def described(
    name: str, attributes: Mapping[object, object], *, units: str | None = None, level: str = ""
) -> tuple[Variable, tuple[float, float]]:
    """Variable of a field as a file has it, and what brings its values to the unit of the variable.

    Temperatures in degrees Celsius become kelvin, pressures in hPa become Pa; a known quantity in a unit that
    is neither its own nor one of these is refused. A field whose long name says that it is an anomaly is
    taken as a free variable in the unit of the file: a difference of one degree is one kelvin, and nothing
    is added to it.

    Parameters
    ----------
    name : str
        As the job gives it.
    attributes : mapping
        Of the array in the file.
    units : str, optional
        What the values are measured in, whatever the attributes say.
    level : str
        Where the field was cut out, such as ``"850 hPa"``.

    Returns
    -------
    variable : Variable
    factor, offset : float
        ``factor * values + offset`` is in ``variable.file_units``.

    Raises
    ------
    DataError
        If the unit is not one of the quantity's.

    Examples
    --------
    >>> variable, scale = described("tas", {"units": "degC"})
    >>> variable.units, scale
    ('K', (1.0, 273.15))
    """
    known = variable_named(name)
    stated = str(attributes.get("units", "") if units is None else units).strip()
    place = f" at {level}" if level else ""
    if known.name not in VARIABLES or _is_anomaly(attributes):
        if known is T2M:
            raise DataError(
                "the field is an anomaly by its long name, not a 2 metre temperature. Rename it in the "
                "file, and give that name as variable of the job."
            )
        long_name = str(attributes.get("long_name", "") or known.name.replace("_", " "))
        standard = str(attributes.get("standard_name", ""))
        standard = "" if standard == "unknown" else standard
        free = Variable(known.name, f"{long_name}{place}", stated, standard)
        return free, (1.0, 0.0)
    found = replace(known, long_name=f"{known.long_name}{place}")
    came, expected = _plain_units(stated), _plain_units(known.file_units)
    if came in ("", expected):
        return found, (1.0, 0.0)
    scale = _CONVERSIONS.get((came, expected))
    if scale is None:
        spoken = "kelvin or degrees Celsius" if known.is_temperature else known.file_units
        raise DataError(
            f"the field has units {stated!r}; expected {spoken}. If the file states them wrongly, write "
            f'units = "{known.file_units}" in [observations]; else convert the values.'
        )
    return found, scale


def range_error(variable: Variable, low: float, high: float, units: str) -> DataError | None:
    """Say what is wrong with values that are not plausible.

    Parameters
    ----------
    variable : Variable
    low, high : float
        Of the values, in ``variable.file_units``.
    units : str
        Of the file, as it states them.

    Returns
    -------
    DataError or None
        None if the values are plausible.
    """
    least, most = variable.file_range
    if not variable.checked or (low >= least and high <= most):
        return None
    guess = ""
    if variable.is_temperature and low > -100.0 and high < 70.0:
        guess = 'It looks like Celsius: add 273.15, or write units = "degC" in [observations]. '
    elif variable.units == "Pa" and least <= 100.0 * low and 100.0 * high <= most:
        guess = 'It looks like hPa: write units = "hPa" in [observations]. '
    stated = f" (the file says {units!r})" if units and units != variable.file_units else ""
    return DataError(
        f"values of {variable.name!r} reach from {low:g} to {high:g}; expected {least:g}..{most:g} "
        f"{variable.file_units}{stated}. {guess}Check the variable, its units and its scale_factor, "
        "add_offset and _FillValue; if the values are right, write check_range = false in [observations]."
    )


def _is_anomaly(attributes: Mapping[object, object]) -> bool:
    """Whether a field is a difference from something usual, as its names say."""
    return any("anomal" in str(attributes.get(key, "")).lower() for key in ("long_name", "standard_name"))


def _plain_units(units: str) -> str:
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
