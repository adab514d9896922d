"""The globe: latitudes and longitudes in degrees, whose points are unit vectors, their distances chords."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import (
    EARTH_RADIUS_KILOMETRES,
    SAME_DEGREES,
    bands_and_pieces,
    box_nodes,
    cell_edges,
    chord_of_kilometres,
    degrees,
    is_pole,
    kilometres_of_chord,
    unit_sphere,
    widest_gap,
)
from cagp_dist.space.interface import Region
from cagp_dist.space.systems import import_pyproj
from cagp_dist.text import counted, place_text

if TYPE_CHECKING:
    import xarray as xr
    from pyproj import CRS

AROUND_DEGREES = 90.0  # Places without a wider gap in longitude lie around the globe
BLOCKS_DEGREES = 5.0
LONGEST_CHORD = 2.0  # That of two antipodes
LONGEST_OF_A_FIT = 35.0  # Ten times the diagonal of a cube around the sphere, where every fit ends
BEYOND = (
    "A chord above 2 is longer than the diameter of the Earth and has no length in kilometres: the field "
    "varies like a trend, which the prior mean may describe better, for example mean='quadratic-latitude'."
)
EPSG = 4326

_LATITUDE = {"standard_name": "latitude", "long_name": "latitude", "units": "degrees_north", "axis": "Y"}
_LONGITUDE = {"standard_name": "longitude", "long_name": "longitude", "units": "degrees_east", "axis": "X"}


@dataclass(frozen=True)
class Sphere:
    """The globe: north and east are latitude and longitude in degrees, in any convention."""

    has_latitudes: ClassVar[bool] = True
    axes: ClassVar[Mapping[str, Mapping[str, str]]] = {"latitude": _LATITUDE, "longitude": _LONGITUDE}
    what: ClassVar[str] = "latitudes and longitudes"
    text: ClassVar[str] = "globe"
    unit: ClassVar[str] = "degrees"
    scale: ClassVar[float] = 1.0
    is_placed: ClassVar[bool] = True
    mapping: "ClassVar[Mapping[str, xr.Variable]]" = MappingProxyType({})
    said: ClassVar[Mapping[str, str | float]] = {"earth_radius_km": EARTH_RADIUS_KILOMETRES}
    longest_lengthscale: ClassVar[float] = LONGEST_CHORD
    longest_fitted: ClassVar[float] = LONGEST_OF_A_FIT
    coarsest: ClassVar[float] = 90.0
    distance_attributes: ClassVar[Mapping[str, str]] = {"units": "km", "long_name": "distance on the ground"}

    @property
    def system(self) -> "CRS":
        """WGS 84."""
        found: CRS = import_pyproj().CRS.from_epsg(EPSG)
        return found

    def is_same(self, other: object) -> bool:
        """Whether the other is the globe as well."""
        return isinstance(other, Sphere)

    def factor_of(self, other: object) -> float | None:
        """One for the globe."""
        return 1.0 if isinstance(other, Sphere) else None

    def around(self, north: Array, east: Array) -> Self:
        """Give the globe, whose unit vectors lose no digits."""
        return self

    def check(self, north: Array, east: Array, *, some: bool = False) -> None:
        """Refuse nothing: `positions` refuses latitudes beyond the poles."""

    def positions(self, north: Array, east: Array) -> Array:
        """Give unit vectors (n, 3)."""
        return unit_sphere(north, east)

    def places(self, X: Array) -> tuple[Array, Array]:
        """Latitude, and longitude in [0, 360)."""
        return degrees(X)

    def of_columns(self, X: Array) -> tuple[Array, Array]:
        """Latitude and longitude, in this order."""
        return X[:, 0], X[:, 1]

    def keys(self, north: Array, east: Array) -> Array:
        """Latitudes, and longitudes in [0, 360)."""
        return np.column_stack([north, np.mod(east, 360.0)])

    def is_pole(self, north: Array) -> Mask:
        """Whether a latitude is a pole."""
        return is_pole(north)

    def place_text(self, north: float, east: float) -> str:
        """Write latitude and longitude."""
        return place_text(north, east)

    def distances(self, lengths: Array) -> Array:
        """Kilometres on the ground."""
        return self.kilometres(lengths)

    def along(self, distances: Array) -> Array:
        """Give unit vectors on the equator."""
        angle = distances / EARTH_RADIUS_KILOMETRES
        return np.stack([np.cos(angle), np.sin(angle), np.zeros(angle.size)], axis=1)

    def in_unit(self, lengths: Array) -> Array:
        """Angles in degrees of chords."""
        return np.rad2deg(2.0 * np.arcsin(np.minimum(0.5 * lengths, 1.0)))

    def of_unit(self, size: float) -> float:
        """Chord of an angle in degrees."""
        return float(2.0 * np.sin(0.5 * np.deg2rad(size)))

    def kilometres(self, lengths: Array) -> Array:
        """Kilometres on the ground of chords."""
        return np.asarray(2.0 * EARTH_RADIUS_KILOMETRES * np.arcsin(np.minimum(0.5 * lengths, 1.0)))

    def of_kilometres(self, kilometres: float) -> float:
        """Chord of so many kilometres on the ground."""
        return chord_of_kilometres(kilometres)

    def lengthscale_text(self, number: float) -> str:
        """Write a lengthscale in kilometres and as a chord."""
        if number > LONGEST_CHORD:
            return f"chord {number:.4g}. {BEYOND}"
        kilometres = kilometres_of_chord(number)
        return f"{kilometres:.4g} km (chord {number:.4g}, Earth of {EARTH_RADIUS_KILOMETRES} km)"

    def lengthscales_said(self, numbers: Sequence[float]) -> dict[str, str | float | list[float]]:
        """Lengthscales as chords and in kilometres, and what chords beyond the diameter mean."""
        said: dict[str, str | float | list[float]] = {
            "lengthscale_chord": one_or_all(numbers),
            "lengthscale_km": one_or_all([kilometres_of_chord(chord) for chord in numbers]),
            **self.said,
        }
        return said | ({"lengthscale_comment": BEYOND} if max(numbers) > LONGEST_CHORD else {})

    def blocks(self, north: Array, east: Array, size: float) -> Indices:
        """Bands of latitude, and pieces of them that are about as wide as high."""
        return bands_and_pieces(north, np.mod(east, 360.0), size)

    def block_size(self, north: Array, east: Array) -> float:
        """Height of a band in degrees."""
        return BLOCKS_DEGREES

    def region(self, given: object, edges: Region) -> Region:
        """Check edges in degrees; one across the date line has its east beyond 180."""
        north, west, south, east = edges
        if east <= west and np.isfinite([west, east]).all():
            east += 360.0  # across the date line
        if not (-90.0 <= south < north <= 90.0 and -360.0 <= west < east <= west + 360.0 <= 720.0):
            raise ArgumentError(
                f"the region is {given!r}; expected [north, west, south, east] in degrees, -90 <= south < "
                "north <= 90, longitudes -180..180 or 0..360.",
                key="region",
            )
        return north, west, south, east

    def extent(self, north: Array, east: Array, step: float | None) -> Region:
        """Region in whole degrees, of places around the globe all of it."""
        start, gap = widest_gap(east)
        eastern = bool((east > 180.0).any())  # 0..360
        upper, lower = min(90.0, ceil(north.max())), max(-90.0, floor(north.min()))
        if gap <= AROUND_DEGREES:
            west = 0.0 if eastern else -180.0
            whole = upper - lower > 180.0 - AROUND_DEGREES
            return (
                (90.0, west, -90.0, west + 360.0)
                if whole
                else (float(upper), west, float(lower), west + 360.0)
            )
        west = float(floor(start if eastern else (start + 180.0) % 360.0 - 180.0))
        width = max(1.0, float(ceil(np.max((east - west) % 360.0))))
        return float(max(upper, lower + 1)), west, float(lower), west + width

    def edges(self, north: Array, east: Array) -> tuple[Array, Array]:
        """Edges of cells in degrees, of which those of latitude end at the poles."""
        offset = np.mod(east - widest_gap(east)[0], 360.0)
        offset = np.where(offset > 360.0 - SAME_DEGREES, 0.0, offset)  # from behind the widest gap
        south_north = edges_of_axis("latitude", np.clip(north, -90.0, 90.0))
        west_east = edges_of_axis("longitude", offset)
        return np.clip(south_north, -90.0, 90.0), west_east + (east - offset)

    def cell_nodes(self, south_north: Array, west_east: Array, per_side: int) -> tuple[Array, Array]:
        """Give unit vectors of the nodes of boxes of equal area."""
        latitude, longitude, weights = box_nodes(*south_north, *west_east, nodes_per_side=per_side)
        return unit_sphere(latitude.ravel(), longitude.ravel()), weights


SPHERE = Sphere()


def edges_of_axis(name: str, axis: Array) -> Array:
    """Lower and upper edge of the cell of each value of an axis, in any order, shape (2, n)."""
    order = np.argsort(axis)
    if axis.size < 2 or np.diff(axis[order]).min() < SAME_DEGREES:
        raise ArgumentError(
            f"cells were asked for around {counted(axis.size, name)}"
            f"{', of which some are the same' if axis.size > 1 else ''}; expected at least two different "
            "ones, whose cells meet half way between them.",
            key="no-cells",
        )
    ends, sides = cell_edges(axis[order]), np.empty((2, axis.size))
    sides[:, order] = ends[:-1], ends[1:]
    return sides


def one_or_all(numbers: Sequence[float]) -> float | list[float]:
    """Give one number, or all of several."""
    return float(numbers[0]) if len(numbers) == 1 else list(numbers)
