"""Quantities as they are analysed and published; known ones have names of ERA5, CMIP and the data store."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Literal

Transform = Literal["none", "log1p"]  # of values, when they are read

UNCHECKED = "not checked"  # attribute ``plausible_range`` of a field whose values may be anything

COMMENT = (
    "All numbers are in transformed units, and so are the prior, the error bars and the scores. Nothing is "
    "transformed back: expm1 of a mean is the median of the quantity, not its mean."
)
"""Attribute of what was transformed."""


@dataclass(frozen=True)
class Variable:
    """A quantity as it is analysed and published."""

    name: str  # in jobs, and in front of ``_mean`` and ``_std`` in published runs
    long_name: str
    units: str = ""  # as CF writes them, such as ``m s-1``; empty if they are not known
    standard_name: str = ""
    low: float = -inf  # what values can be; infinite where nothing is known or nothing is to be checked
    high: float = inf
    names: tuple[str, ...] = ()  # others of it in files
    grib: tuple[int, ...] = ()  # numbers in ECMWF's parameter table, which GRIB files carry instead of names
    cds: str = ""  # name in requests to the Climate Data Store
    measure: str = ""  # what amounts of rain are measured by, such as ``mm``, whatever files have them in
    transform: str = ""  # what the values are instead of the quantity, such as ``log(1 + tp / 1 mm)``
    vector: bool = False  # component along the local east or north, which is no one value at a pole
    checked: bool = True  # whether values outside the plausible range are refused

    @property
    def is_temperature(self) -> bool:
        """Whether it is a temperature in kelvin, as opposed to a difference of two."""
        return self.units == "K" and self.low > 0.0

    def attributes(self) -> dict[str, str]:
        """CF attributes of the field; `variable_of` is the inverse."""
        found = {"standard_name": self.standard_name, "long_name": self.long_name, "units": self.units}
        if self.transform:
            found |= {"transform": self.transform, "comment": COMMENT}
        if not self.checked:
            found["plausible_range"] = UNCHECKED
        return {key: text for key, text in found.items() if text}

    @property
    def heading(self) -> str:
        """What a page about it is called."""
        if self.name == "t2m" and self.is_temperature:
            return "Temperature at 2 m"
        return self.long_name[:1].upper() + self.long_name[1:]

    @property
    def noun(self) -> str:
        """What one value of it is called within a sentence."""
        return "temperature" if self.is_temperature else self.long_name

    @property
    def comparatives(self) -> tuple[str, str]:
        """What more of it and less of it are called."""
        return ("warmer", "colder") if self.is_temperature else ("higher", "lower")


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

_KNOWN = (
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
    # packed files have rain a little below zero
    Variable("tp", "total precipitation", "m", "", -1e-4, 3.0,
             ("total_precipitation", "var228"), (228,), "total_precipitation", measure="mm"),
    Variable("pr", "precipitation", "kg m-2 s-1", "precipitation_flux", -1e-6, 0.05, measure="mm d-1"),
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

VARIABLES: Mapping[str, Variable] = {variable.name: variable for variable in _KNOWN}
"""By the names of ERA5 (``t2m``, ``msl``) and, where another, of CMIP (``tas``, ``psl``)."""

T2M = VARIABLES["t2m"]
