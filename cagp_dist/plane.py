"""A plane of x and y: its unit, its coordinate reference system by pyproj, and where it lies on the Earth.

Distances are those in the plane. A system of latitudes and longitudes has none: its places are points of the
sphere. x is counted east and y north, whatever the order of the axes of a system.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Mask
from cagp_dist.errors import ArgumentError, ConfigurationError, DataError
from cagp_dist.extras import from_extra
from cagp_dist.remedies import Setting
from cagp_dist.text import counted, place_text
from cagp_dist.variables.units import conversion, plain_units

if TYPE_CHECKING:
    from pyproj import CRS

CRSLike: TypeAlias = "int | str | CRS | Mapping[str, object] | None"

FAR_DEGREES = 20.0  # From the area of use of a system: there places are none of it, or in another unit
SPATIAL_REF = "spatial_ref"  # As GDAL and rioxarray call the variable that holds the system
_UDUNITS = {"metre": "m", "kilometre": "km", "US survey foot": "US_survey_foot", "foot": "ft"}
_OF_MAPPINGS = ("grid_mapping_name", "crs_wkt", SPATIAL_REF)  # attributes, of which one is there


@dataclass(frozen=True, eq=False)
class Plane:
    """Where x and y lie, and from which point positions are counted, so that no digits are lost."""

    names: tuple[str, str] = ("x", "y")
    unit: str = ""  # of both axes, as UDUNITS writes it; empty if it is not known
    crs: "CRS | None" = None
    scale: float = 1.0  # by which x and y come to the unit of the system
    mapping: Mapping[str, xr.Variable] = field(default_factory=dict)  # variable of the system, by its name
    centre: tuple[float, float] = (0.0, 0.0)
    reach: tuple[float, float] = (-1.0, -1.0)  # of the observations from the centre, where these are known

    @property
    def per_kilometre(self) -> float | None:
        """Units of a kilometre; None where the unit is not known."""
        if self.crs is not None:
            return 1000.0 / (self.scale * float(self.crs.axis_info[0].unit_conversion_factor))
        found = conversion("km", self.unit) if self.unit else None
        return None if found is None else found[0]

    @property
    def epsg(self) -> int:
        """Number of the system in the EPSG registry, by which GeoTIFF has it."""
        found = None if self.crs is None else self.crs.to_epsg()
        if found is None:
            which = "the plane has no system" if self.crs is None else f"{self.crs.name} has no EPSG number"
            raise ConfigurationError(
                f"{which}, by which GeoTIFF would say where it is; expected crs=NUMBER. NetCDF needs none: "
                "dataset.to_netcdf(path)."
            )
        return int(found)

    def of_kilometres(self, kilometres: float) -> float:
        """So many kilometres in the unit of the axes."""
        if self.per_kilometre is None:
            raise ArgumentError(
                f"lengthscale_km is {kilometres:g}, and the unit of {self.names[0]} and {self.names[1]} is "
                "not known; expected lengthscale=..., in that unit, or crs=..."
            )
        return kilometres * self.per_kilometre

    @property
    def text(self) -> str:
        """The plane for people."""
        system = "" if self.crs is None else f" of {self.crs.name}"
        unit = f" in {self.unit}" if self.unit else ""
        return f"plane of {self.names[0]} and {self.names[1]}{unit}{system}"

    @property
    def said(self) -> dict[str, str]:
        """Attributes of a result by which observations are read as those were that it was made from."""
        crs = {} if self.crs is None else {"observations_crs": self.crs.to_string()}
        return {"observations_x": self.names[0], "observations_y": self.names[1], **crs}

    def is_of(self, other: "Plane") -> bool:
        """Whether both have the same known system."""
        if self.crs is None or other.crs is None:
            return False
        return bool(self.crs.equals(other.crs, ignore_axis_order=True))

    def is_same(self, other: "Plane") -> bool:
        """Whether x and y of both are the same, as far as that is known."""
        unknown = self.crs is None and other.crs is None
        return self.unit == other.unit and (unknown or self.is_of(other))

    def scale_of(self, unit: str, name: str) -> float:
        """Factor that brings a coordinate from the unit that is stated for it, if one is, to this one."""
        found = conversion(unit, self.unit) if unit and self.unit else (1.0, 0.0)
        if found is None:
            raise DataError(
                f"{name!r} is in {unit!r}, and the plane in {self.unit!r}; expected one unit. Convert the "
                "coordinates, or correct what is stated."
            )
        return found[0]

    def positions(self, x: Array, y: Array) -> Array:
        """Give x and y (n,) since the centre, shape (n, 2)."""
        return np.column_stack([x - self.centre[0], y - self.centre[1]])

    def back(self, positions: Array) -> tuple[Array, Array]:
        """Give x and y (n,) of positions (n, 2)."""
        return positions[:, 0] + self.centre[0], positions[:, 1] + self.centre[1]

    def axis(self, number: int) -> dict[str, str]:
        """CF attributes of x (0) or y (1)."""
        letter = "xy"[number]
        about = {"standard_name": f"projection_{letter}_coordinate", "axis": letter.upper()}
        return {**about, "long_name": self.names[number], **({"units": self.unit} if self.unit else {})}


def plane_of(
    crs: CRSLike, *, names: tuple[str, str], unit: str = "", mapping: Mapping[str, xr.Variable] | None = None
) -> Plane:
    """Give a plane by its system, or by the unit of its axes."""
    if unit and conversion(unit, "degree") is not None:
        raise DataError(
            f"{names[0]!r} and {names[1]!r} are in {unit!r}; expected lengths. Degrees are those of "
            "latitude and longitude: leave crs, x and y out."
        )
    if crs is None:
        return Plane(names, plain_units(unit))
    found = system(crs)
    own = str(found.axis_info[0].unit_name)
    own = _UDUNITS.get(own, own.replace(" ", "_"))
    scale = conversion(unit, own) if unit else (1.0, 0.0)
    if scale is None:
        raise DataError(
            f"{names[0]!r} and {names[1]!r} are in {unit!r}, and {found.name} is in {own!r}; expected a unit "
            "that converts. Correct what is stated."
        )
    if mapping is None:
        about = {**found.to_cf(), SPATIAL_REF: found.to_wkt()}
        mapping = {SPATIAL_REF: xr.Variable((), np.int32(0), about)}
    return Plane(names, own if scale[0] == 1.0 else plain_units(unit), found, scale[0], mapping)


def system(crs: CRSLike) -> "CRS":
    """Find a coordinate reference system whose axes are lengths in a plane."""
    pyproj = import_pyproj()
    try:
        found: CRS = pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError as error:
        raise ArgumentError(
            f"crs is {crs!r}, which pyproj does not know; expected an EPSG number such as 32632, "
            '"EPSG:32632", WKT, or a string of PROJ.'
        ) from error
    if found.is_geographic:
        raise ArgumentError(
            f"crs is {found.name}, of latitudes and longitudes in degrees, whose distances are those on the "
            "globe. Leave crs, x and y out."
        )
    if not (found.is_projected or found.is_engineering):
        raise ArgumentError(f"crs is {found.name}; expected the system of a plane, such as that of UTM.")
    return found


def describes_system(variable: xr.DataArray | xr.Variable) -> bool:
    """Whether this is a grid mapping, as CF has it."""
    return bool(set(_OF_MAPPINGS) & set(variable.attrs))


def has_system(given: xr.DataArray | xr.Dataset) -> bool:
    """Whether a variable of an object describes a system."""
    return any(describes_system(each) for each in variables_of(given).values())


def system_in(
    given: xr.DataArray | xr.Dataset, values: xr.DataArray | None
) -> tuple[str, xr.Variable] | None:
    """Find the variable with the system of an object, by the CF attribute ``grid_mapping``, and its name."""
    every = variables_of(given)
    held = [name for name, each in every.items() if describes_system(each)]
    fields = [values] if values is not None else [*getattr(given, "data_vars", {}).values()]
    said = [str(each.attrs.get("grid_mapping", each.encoding.get("grid_mapping", ""))) for each in fields]
    named = {text.split(":")[0].split()[0] for text in said if text}
    if values is None:  # none is read
        named &= set(every)
    if len(named) == 1:
        name = named.pop()
        if name not in every:
            raise DataError(
                f"the grid mapping {name!r} is named and not there; expected a variable of this name. Give "
                "the whole dataset with value=NAME, or say the system, crs=..."
            )
        return name, every[name].variable
    return (held[0], every[held[0]].variable) if len(held) == 1 else None


def variables_of(given: xr.DataArray | xr.Dataset) -> dict[str, xr.DataArray]:
    """Coordinates of an object, and variables of a dataset."""
    return {str(name): given[name] for name in (*given.coords, *getattr(given, "data_vars", ()))}


def system_of_cf(name: str, attributes: Mapping[Any, Any]) -> "CRS":
    """Read the system that CF attributes describe."""
    pyproj = import_pyproj()
    try:
        return cast("CRS", pyproj.CRS.from_cf(dict(attributes)))
    except (pyproj.exceptions.CRSError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the grid mapping {name!r} describes no system that pyproj knows ({error}); say it, crs=..."
        ) from error


def moved(
    source: Plane | None, target: Plane | None, x: Array, y: Array, *, what: str
) -> tuple[Array, Array]:
    """Coordinates (n,) in another plane, of which nothing is guessed; None: longitudes and latitudes."""
    if source is target or (source and target and source.is_same(target)):
        return x, y
    unknown = [each is not None and each.crs is None for each in (source, target)]
    if source and target and all(unknown):
        factors = [target.scale_of(source.unit, name) for name in source.names]
        return factors[0] * x, factors[1] * y
    if any(unknown):
        ends = (source, target) if what == "observation" else (target, source)
        where = ["latitudes and longitudes" if each is None else f"the {each.text}" for each in ends]
        raise ArgumentError(
            f"the observations lie on {where[0]}, the targets on {where[1]}, and it is not known how one "
            "lies to the other; expected both in one system, or crs=... beside x and y."
        )
    east, north = _moved(source, target, x, y)
    wrong = ~(np.isfinite(east) & np.isfinite(north))
    if wrong.any():
        row = int(wrong.argmax())
        names = [
            "latitude and longitude" if each is None else f"the {each.text}" for each in (source, target)
        ]
        raise DataError(
            f"{counted(int(wrong.sum()), what)} of {wrong.size:,} cannot be brought from {names[0]} to "
            f"{names[1]}, such as {x[row]:g}, {y[row]:g}; expected places where both are defined."
        )
    return east, north


def _moved(source: Plane | None, target: Plane | None, x: Array, y: Array) -> tuple[Array, Array]:
    """Coordinates in another plane, infinite where it has none."""
    pyproj = import_pyproj()
    systems = [None if each is None else each.crs for each in (source, target)]
    first, second = (cast("CRS", pyproj.CRS.from_epsg(4326) if crs is None else crs) for crs in systems)
    before, after = (1.0 if each is None else each.scale for each in (source, target))
    try:
        found = pyproj.Transformer.from_crs(first, second, always_xy=True).transform(before * x, before * y)
    except pyproj.exceptions.ProjError as error:
        raise ArgumentError(
            f"nothing is known of how {first.name} lies to {second.name} ({error}); expected observations "
            "and targets in one system."
        ) from error
    east, north = (np.asarray(axis, dtype=np.float64) / after for axis in found)
    return east, north


def check_in_use(plane: Plane, x: Array, y: Array, *, some: bool = False) -> None:
    """Refuse places, all of them or some, far outside the area of use of a system, and degrees.

    Small numbers are no degrees where the unit is another one, and where the observations lie around zero.
    """
    area = None if plane.crs is None else plane.crs.area_of_use
    if plane.crs is None or area is None or x.size == 0:
        return
    east, north = _moved(plane, None, x, y)
    width = (area.east - area.west) % 360.0 or 360.0
    eastward = np.mod(east - area.west + FAR_DEGREES, 360.0)  # NaN of infinity
    inside = (eastward <= width + 2.0 * FAR_DEGREES) | (width + 2.0 * FAR_DEGREES >= 360.0)
    inside &= (north >= area.south - FAR_DEGREES) & (north <= area.north + FAR_DEGREES)
    wrong = not (inside.any() if some else inside.all())
    elsewhere = not _exactly_in(area, east, north).any()
    swapped = elsewhere and bool(_exactly_in(area, *_moved(plane, None, y, x)).all())
    kilometres = (
        plane.scale == 1.0
        and elsewhere
        and bool(_exactly_in(area, *_moved(plane, None, 1000.0 * x, 1000.0 * y)).all())
    )
    around = all(abs(middle) <= half for middle, half in zip(plane.centre, plane.reach, strict=True))
    small = plane.scale * np.abs(x).max() <= 360.0 and plane.scale * np.abs(y).max() <= 90.0
    degrees = small and not around and (wrong or plane.scale == 1.0)
    if degrees or wrong or kilometres or swapped:
        observed = (
            swapped and min(plane.reach) < 0.0
        )  # these are the observations, of which no reach is known
        row = int(np.argmin(inside))
        hint = "Check that x (east) and y (north) were not swapped, and their units."
        if swapped:
            hint = "Swapped they lie there: here x counts east and y north, whatever a system calls them."
        elif kilometres:
            hint = "They look like kilometres, and the unit of the system is another: multiply them by 1,000."
        elif degrees:
            hint = (
                "They look like degrees: leave crs out, and name them in columns as latitude and longitude."
            )
        raise DataError(
            f"{plane.names[0]} and {plane.names[1]} are {x[row]:g} and {y[row]:g}, and {plane.crs.name} is "
            f"used from {place_text(area.south, area.west)} to {place_text(area.north, area.east)}; expected "
            f"places there. {hint}",
            key="axes-swapped" if swapped else "outside-of-use",
            remedies=(Setting("columns", dict(zip("xy", plane.names[::-1], strict=True))),) * observed,
        )


def _exactly_in(area: Any, east: Array, north: Array) -> Mask:
    """Which places lie in the area of use of a system, without the margin of `check_in_use`."""
    width = (area.east - area.west) % 360.0 or 360.0
    with np.errstate(invalid="ignore"):  # of infinity, where a system has no place
        eastward = np.mod(east - area.west, 360.0)
    inside: Mask = (eastward <= width) & (north >= area.south) & (north <= area.north)
    return inside


def import_pyproj() -> Any:
    """Import pyproj, which an extra brings, with its own PROJ: eccodes may have loaded another before."""
    deep: int = getattr(os, "RTLD_DEEPBIND", 0)  # of Linux
    if not deep:
        return _pyproj()
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags | deep)
    try:
        return _pyproj()
    finally:
        sys.setdlopenflags(flags)


def _pyproj() -> Any:
    """Import pyproj and its exceptions."""
    found = from_extra("projections", "pyproj", "a coordinate reference system, crs,")
    import_module("pyproj.exceptions")
    return found
