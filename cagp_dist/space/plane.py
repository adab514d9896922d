"""A plane of x and y: its unit, its coordinate reference system, and where it lies on the Earth.

Distances are those in the plane. A system of latitudes and longitudes has none: its places are points of the
sphere. x is counted east and y north, whatever the order of the axes of a system.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.errors import ArgumentError, ConfigurationError, DataError
from cagp_dist.remedies import Setting
from cagp_dist.space.interface import Region
from cagp_dist.space.sphere import EPSG, edges_of_axis, one_or_all
from cagp_dist.space.systems import SPATIAL_REF, CRSLike, import_pyproj, system, text_of
from cagp_dist.text import digits_text, place_text
from cagp_dist.variables.units import conversion, plain_units

if TYPE_CHECKING:
    import xarray as xr
    from pyproj import CRS

FAR_DEGREES = 20.0  # From the area of use of a system: there places are none of it, or in another unit
BLOCKS_ACROSS = 10  # Blocks of a cross-validation along the longer side of the observations
_UDUNITS = {"metre": "m", "kilometre": "km", "US survey foot": "US_survey_foot", "foot": "ft"}


@dataclass(frozen=True, eq=False)
class Plane:
    """Where x and y lie, and from which point positions are counted, so that no digits are lost."""

    has_latitudes: ClassVar[bool] = False
    what: ClassVar[str] = "x and y"
    longest_lengthscale: ClassVar[float] = np.inf
    longest_fitted: ClassVar[float] = np.inf
    coarsest: ClassVar[float] = np.inf

    names: tuple[str, str] = ("x", "y")  # of x and y in the source
    unit: str = ""  # of both axes, as UDUNITS writes it; empty if it is not known
    crs: "CRS | None" = None
    scale: float = 1.0  # by which x and y come to the unit of the system
    mapping: "Mapping[str, xr.Variable]" = field(default_factory=dict)  # variable of the system, by its name
    centre: tuple[float, float] = (0.0, 0.0)  # x and y
    reach: tuple[float, float] = (-1.0, -1.0)  # of the observations from the centre, where these are known

    @property
    def axes(self) -> dict[str, dict[str, str]]:
        """Names and CF attributes of y and x."""
        unit = {"units": self.unit} if self.unit else {}
        return {
            letter: {
                "standard_name": f"projection_{letter}_coordinate",
                "axis": letter.upper(),
                "long_name": name,
                **unit,
            }
            for letter, name in (("y", self.names[1]), ("x", self.names[0]))
        }

    @property
    def text(self) -> str:
        """The plane for people."""
        system = "" if self.crs is None else f" of {self.crs.name}"
        unit = f" in {self.unit}" if self.unit else ""
        return f"plane of {self.names[0]} and {self.names[1]}{unit}{system}"

    @property
    def is_placed(self) -> bool:
        """Whether the system is known."""
        return self.crs is not None

    @property
    def system(self) -> "CRS":
        """The system, if it is known."""
        assert self.crs is not None
        return self.crs

    @property
    def said(self) -> dict[str, str | float]:
        """Attributes by which observations are read as those were that a result was made from."""
        crs = {} if self.crs is None else {"observations_crs": text_of(self.crs)}
        return {"observations_x": self.names[0], "observations_y": self.names[1], **crs}

    @property
    def distance_attributes(self) -> dict[str, str]:
        """CF attributes of distances in the plane."""
        return {"long_name": "distance in the plane", **({"units": self.unit} if self.unit else {})}

    @property
    def per_kilometre(self) -> float | None:
        """Units of a kilometre; None where the unit is not known."""
        if self.crs is not None:
            return 1000.0 / (self.scale * float(self.crs.axis_info[0].unit_conversion_factor))
        found = conversion("km", self.unit) if self.unit else None
        return None if found is None else found[0]

    @property
    def epsg(self) -> int:
        """Number of the system in the EPSG registry, by which GeoTIFF and Zarr have it."""
        found = None if self.crs is None else self.crs.to_epsg()
        if found is None:
            which = "the plane has no system" if self.crs is None else f"{self.crs.name} has no EPSG number"
            raise ConfigurationError(
                f"{which}, by which a file would say where it is; expected crs=NUMBER. NetCDF needs none: "
                "dataset.to_netcdf(path).",
                key="no-epsg-number",
            )
        return int(found)

    def is_of(self, other: "Plane") -> bool:
        """Whether both have the same known system."""
        if self.crs is None or other.crs is None:
            return False
        return bool(self.crs.equals(other.crs, ignore_axis_order=True))

    def is_same(self, other: object) -> bool:
        """Whether x and y of both are the same, as far as that is known."""
        if not isinstance(other, Plane):
            return False
        unknown = self.crs is None and other.crs is None
        return self is other or (self.unit == other.unit and (unknown or self.is_of(other)))

    def factor_of(self, other: object) -> float | None:
        """Factor from the unit of a plane of the same system, or of none, to this one."""
        if not isinstance(other, Plane) or not (other.crs is None or other.is_of(self)):
            return None
        return self.scale_of(other.unit, other.names[0])

    def scale_of(self, unit: str, name: str) -> float:
        """Factor that brings a coordinate from the unit that is stated for it, if one is, to this one."""
        found = conversion(unit, self.unit) if unit and self.unit else (1.0, 0.0)
        if found is None:
            raise DataError(
                f"{name!r} is in {unit!r}, and the plane in {self.unit!r}; expected one unit. Convert the "
                "coordinates, or correct what is stated.",
                key="units",
            )
        return found[0]

    def around(self, north: Array, east: Array) -> Self:
        """Check places, and count positions from the middle of them."""
        self.check(north, east)
        x, y = (0.5 * float(axis.min() + axis.max()) for axis in (east, north))
        reach = 0.5 * float(np.ptp(east)), 0.5 * float(np.ptp(north))
        return replace(self, centre=(x, y), reach=reach)

    def check(self, north: Array, east: Array, *, some: bool = False) -> None:
        """Refuse places, all of them or some, far outside the area of use of a system, and degrees.

        Small numbers are no degrees where the unit is another one, or the observations lie around zero.
        """
        area = None if self.crs is None else self.crs.area_of_use
        if self.crs is None or area is None or east.size == 0:
            return
        latitude, longitude = self._degrees(north, east)
        width = (area.east - area.west) % 360.0 or 360.0
        eastward = np.mod(longitude - area.west + FAR_DEGREES, 360.0)  # NaN of infinity
        inside = (eastward <= width + 2.0 * FAR_DEGREES) | (width + 2.0 * FAR_DEGREES >= 360.0)
        inside &= (latitude >= area.south - FAR_DEGREES) & (latitude <= area.north + FAR_DEGREES)
        wrong = not (inside.any() if some else inside.all())
        elsewhere = not _exactly_in(area, latitude, longitude).any()
        swapped = elsewhere and bool(_exactly_in(area, *self._degrees(east, north)).all())
        kilometres = (
            self.scale == 1.0
            and elsewhere
            and bool(_exactly_in(area, *self._degrees(1000.0 * north, 1000.0 * east)).all())
        )
        around = all(abs(middle) <= half for middle, half in zip(self.centre, self.reach, strict=True))
        small = self.scale * np.abs(east).max() <= 360.0 and self.scale * np.abs(north).max() <= 90.0
        degrees = small and not around and (wrong or self.scale == 1.0)
        if degrees or wrong or kilometres or swapped:
            # of the observations no reach is known yet, and of these alone columns are said
            remedies = (Setting("columns", dict(zip("xy", self.names[::-1], strict=True))),)
            observed = swapped and min(self.reach) < 0.0
            row = int(np.argmin(inside))
            hint = "Check that x (east) and y (north) were not swapped, and their units."
            if swapped:
                hint = "Swapped they lie there: here x counts east and y north, whatever a system calls them."
            elif kilometres:
                hint = "They look like kilometres, and the system has another unit: multiply them by 1,000."
            elif degrees:
                hint = "They look like degrees: leave crs out, and say so in columns, latitude and longitude."
            south_west, north_east = place_text(area.south, area.west), place_text(area.north, area.east)
            raise DataError(
                f"{self.names[0]} and {self.names[1]} are {east[row]:g} and {north[row]:g}, and "
                f"{self.crs.name} is used from {south_west} to {north_east}; expected places there. {hint}",
                key="axes-swapped" if swapped else "outside-of-use",
                remedies=remedies * observed,
            )

    def _degrees(self, north: Array, east: Array) -> tuple[Array, Array]:
        """Latitudes and longitudes, infinite where the system has no place."""
        transformer = import_pyproj().Transformer.from_crs(self.system, EPSG, always_xy=True)
        longitude, latitude = transformer.transform(self.scale * east, self.scale * north)
        return np.asarray(latitude, dtype=np.float64), np.asarray(longitude, dtype=np.float64)

    def positions(self, north: Array, east: Array) -> Array:
        """Give x and y (n,) since the centre, shape (n, 2)."""
        return np.column_stack([east - self.centre[0], north - self.centre[1]])

    def places(self, X: Array) -> tuple[Array, Array]:
        """Give y and x (n,) of positions (n, 2)."""
        return X[:, 1] + self.centre[1], X[:, 0] + self.centre[0]

    def of_columns(self, X: Array) -> tuple[Array, Array]:
        """Give y and x of an array of x and y, in this order."""
        return X[:, 1], X[:, 0]

    def keys(self, north: Array, east: Array) -> Array:
        """Coordinates as they are."""
        return np.column_stack([north, east])

    def is_pole(self, north: Array) -> Mask:
        """Say that a plane has no poles."""
        return np.zeros(np.shape(north), dtype=bool)

    def place_text(self, north: float, east: float) -> str:
        """Write x and y."""
        return f"x {east:.10g}, y {north:.10g}"

    def distances(self, lengths: Array) -> Array:
        """Distances in the unit of the axes."""
        return lengths

    def along(self, distances: Array) -> Array:
        """Positions on the axis of x."""
        return np.stack([distances, np.zeros(distances.size)], axis=1)

    def in_unit(self, lengths: Array) -> Array:
        """Distances as they are."""
        return lengths

    def of_unit(self, size: float) -> float:
        """Distances as they are."""
        return size

    def kilometres(self, lengths: Array) -> Array:
        """Kilometres of distances; NaN, but for 0, where the unit is not known."""
        return np.where(lengths == 0.0, 0.0, lengths / (self.per_kilometre or np.nan))

    def of_kilometres(self, kilometres: float) -> float:
        """So many kilometres in the unit of the axes."""
        if self.per_kilometre is None:
            raise ArgumentError(
                f"lengthscale_km is {kilometres:g}, and the unit of {self.names[0]} and {self.names[1]} is "
                "not known; expected lengthscale=..., in that unit, or crs=...",
                key="kilometres-of-plane",
            )
        return kilometres * self.per_kilometre

    def lengthscale_text(self, number: float) -> str:
        """Write a lengthscale with three digits, metres and kilometres in whichever suits its size."""
        unit = self.unit
        if unit in ("m", "km"):
            metres = number * (1000.0 if unit == "km" else 1.0)
            # 999.6 m have four digits when rounded to three: 1 km
            number, unit = (metres, "m") if metres < 999.5 else (1e-3 * metres, "km")
        return f"{digits_text(number, 3)} {unit}".rstrip()

    def lengthscales_said(self, numbers: Sequence[float]) -> dict[str, str | float | list[float]]:
        """Lengthscales in the unit of the axes and, where it is known, in kilometres; and the plane."""
        said: dict[str, str | float | list[float]] = {
            "geometry": f"{self.text}; Euclidean distance",
            **self.said,
            "lengthscale": one_or_all(numbers),
        }
        if self.unit:
            said["lengthscale_units"] = self.unit
        if (scale := self.per_kilometre) is not None:
            said["lengthscale_km"] = one_or_all([number / scale for number in numbers])
        return said | {"centre_of_plane": list(self.centre)}

    def blocks(self, north: Array, east: Array, size: float) -> Indices:
        """Squares, the first of which begins at the smallest x and y."""
        XY = np.column_stack([north, east])
        found: Indices = np.floor((XY - XY.min(axis=0)) / size).astype(np.intp)
        return found

    def block_size(self, north: Array, east: Array) -> float:
        """Give a tenth of the longer side."""
        return max(float(np.ptp(north)), float(np.ptp(east))) / BLOCKS_ACROSS

    def region(self, given: object, edges: Region) -> Region:
        """Check edges in the unit of the axes."""
        north, west, south, east = edges
        if not (np.isfinite(edges).all() and south < north and west < east):
            raise ArgumentError(
                f"the region is {given!r}; expected [north, west, south, east] in the plane: the largest y, "
                "the smallest x, the smallest y and the largest x.",
                key="region",
            )
        y, x = (np.array([low, 0.5 * (low + high), high]) for low, high in ((south, north), (west, east)))
        self.check(y, x, some=True)
        return edges

    def extent(self, north: Array, east: Array, step: float | None) -> Region:
        """Region of places, in whole steps if there is one."""
        if step is None or not step > 0.0:
            return float(north.max()), float(east.min()), float(north.min()), float(east.max())
        (south, upper), (west, right) = (
            (floor(axis.min() / step), ceil(axis.max() / step)) for axis in (north, east)
        )
        return step * max(upper, south + 1), step * west, step * south, step * max(right, west + 1)

    def edges(self, north: Array, east: Array) -> tuple[Array, Array]:
        """Edges of cells of y and x."""
        return edges_of_axis("y", north), edges_of_axis("x", east)

    def cell_nodes(self, south_north: Array, west_east: Array, per_side: int) -> tuple[Array, Array]:
        """Positions of the nodes of rectangles."""
        place, share = np.polynomial.legendre.leggauss(per_side)
        place = 0.5 * (1.0 + place)
        x0, y0 = self.centre
        y, x = (
            (low - origin)[:, None] + ((high - origin) - (low - origin))[:, None] * place
            for (low, high), origin in ((south_north, y0), (west_east, x0))
        )
        nodes = np.stack([np.tile(x, (1, per_side)), np.repeat(y, per_side, axis=1)], axis=-1)
        return nodes.reshape(-1, 2), np.tile(0.25 * np.outer(share, share).ravel(), (len(x), 1))


def plane_of(
    crs: CRSLike,
    *,
    names: tuple[str, str],
    unit: str = "",
    mapping: "Mapping[str, xr.Variable] | None" = None,
) -> Plane:
    """Give a plane by its system, or by the unit of its axes."""
    if unit and conversion(unit, "degree") is not None:
        raise DataError(
            f"{names[0]!r} and {names[1]!r} are in {unit!r}; expected lengths. Degrees are those of "
            "latitude and longitude: leave crs, x and y out.",
            key="plane-in-degrees",
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
            "that converts. Correct what is stated.",
            key="units",
        )
    if mapping is None:
        import xarray as xr

        about = {**found.to_cf(), SPATIAL_REF: found.to_wkt()}
        mapping = {SPATIAL_REF: xr.Variable((), np.int32(0), about)}
    return Plane(names, own if scale[0] == 1.0 else plain_units(unit), found, scale[0], mapping)


def _exactly_in(area: Any, latitude: Array, longitude: Array) -> Mask:
    """Which places lie in the area of use of a system, without the margin of `Plane.check`."""
    width = (area.east - area.west) % 360.0 or 360.0
    with np.errstate(invalid="ignore"):  # of infinity, where a system has no place
        eastward = np.mod(longitude - area.west, 360.0)
    inside: Mask = (eastward <= width) & (latitude >= area.south) & (latitude <= area.north)
    return inside
