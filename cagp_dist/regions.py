"""Regions of the Earth: named ones, boxes and polygons, cut into cells of known area.

A mean over a region is a sum over its cells: the field at the middle of each, weighted with the area. Boxes
are cut into cells exactly; of a cell that the edge of a polygon cuts, some points are inside or not.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import EARTH_RADIUS_KILOMETRES, unit_sphere, widest_gap
from cagp_dist.text import alternatives, counted, degrees_label, nearest

EARTH_SQUARE_KILOMETRES = 4.0 * np.pi * EARTH_RADIUS_KILOMETRES**2

FEWEST_ROWS, FEWEST_COLUMNS = 8, 4  # of cells of a box; rows about a pole go around it
POLYGON_CELLS, WITHIN_A_CELL = 24, 4  # rows of cells, at least; points along each side of a cell
PAIRS_AT_ONCE = 2**20  # edges of a polygon beside points, or other edges, at a time: 8 MB several times

POLES = unit_sphere(np.rad2deg(np.arcsin(np.linspace(-0.97, 0.97, 32))), 137.507764 * np.arange(32.0))
"""Spread over the sphere: about one of them, the edges of a polygon are told apart by longitude."""

ALONG_AN_EDGE = 64  # points of an edge of a polygon by which the box around it is found


class Cells(NamedTuple):
    """Cells of a region: where their middles are, and their areas over the sphere's, or those of a plane."""

    north: Array  # latitudes in degrees, or y
    east: Array  # longitudes, or x
    area: Array

    def chosen(self, inside: Mask) -> "Cells":
        """Take some of the cells."""
        return Cells(*(each[inside] for each in self))


@runtime_checkable
class Region(Protocol):
    """What a mean can be taken over."""

    @property
    def name(self) -> str: ...

    @property
    def definition(self) -> str: ...  # where it is, for people

    @property
    def area(self) -> float: ...  # over that of the sphere, exact

    def cells(self, resolution_degrees: float) -> Cells: ...  # of at most so many degrees

    def contains(self, latitude_degrees: Array, longitude_degrees: Array) -> Mask: ...


@dataclass(frozen=True)
class Box:
    """A region between two latitudes and two longitudes.

    Parameters
    ----------
    name : str
        What it is called.
    south, north : float
        Degrees north, in [-90, 90].
    west, east : float
        Degrees east, of any convention; from west eastward, over the antimeridian where that is on the way.
        All longitudes by default.

    Raises
    ------
    ArgumentError
        If north is not above south, or the two longitudes are one place.

    Examples
    --------
    >>> from cagp_dist.regions import Box
    >>> pacific = Box("north pacific", south=0.0, north=60.0, west=120.0, east=-100.0)
    >>> round(pacific.area, 4), pacific.contains(np.array([30.0, 30.0]), np.array([180.0, 0.0]))
    (0.1684, array([ True, False]))
    """

    name: str
    south: float = -90.0
    north: float = 90.0
    west: float = -180.0
    east: float = 180.0

    def __post_init__(self) -> None:
        edges = (self.south, self.north, self.west, self.east)
        if not np.isfinite(edges).all() or not -90.0 <= self.south < self.north <= 90.0:
            raise ArgumentError(
                f"region {self.name!r} reaches from latitude {self.south:g} to {self.north:g}; expected "
                "-90 <= south < north <= 90 degrees.",
                key="latitude-range",
            )
        if self.west == self.east or abs(self.east - self.west) > 360.0:
            raise ArgumentError(
                f"region {self.name!r} reaches from longitude {self.west:g} to {self.east:g}; expected two "
                "different longitudes at most 360 degrees apart. All of them are west = -180, east = 180.",
                key="longitude-range",
            )

    @property
    def width(self) -> float:
        """Degrees of longitude, above zero and at most 360."""
        return 360.0 - (self.west - self.east) % 360.0

    @property
    def definition(self) -> str:
        """Its edges."""
        ends = (
            degrees_label(end, axis="latitude") if end else "the equator" for end in (self.south, self.north)
        )
        latitudes = " to ".join(ends)
        if self.width == 360.0:
            return latitudes
        west, east = (degrees_label(end, axis="longitude") for end in (self.west, self.east))
        return f"{latitudes}, {west} to {east}"

    @property
    def area(self) -> float:
        """``(sin north - sin south) width / 4 pi``."""
        return float(_areas(self.south, self.north, self.width))

    def cells(self, resolution_degrees: float) -> Cells:
        """Rows of equal height, each of equal cells about as wide as high; their areas have the exact sum."""
        south, north, west, width = self.tiles(resolution_degrees)
        longitude = np.mod(west + 0.5 * width, 360.0)
        return Cells(0.5 * (south + north), longitude, _areas(south, north, width))

    def tiles(
        self, resolution_degrees: float, *, rows: int = FEWEST_ROWS, columns: int = FEWEST_COLUMNS
    ) -> tuple[Array, Array, Array, Array]:
        """South, north and west of each cell, and its width, all in degrees; so many rows, at least."""
        height, fewest = self.north - self.south, columns
        rows = max(rows, int(np.ceil(height / resolution_degrees - 1e-9)))
        edges = self.south + height * np.arange(rows + 1) / rows
        edges[-1] = self.north
        middle = 0.5 * (edges[1:] + edges[:-1])
        across = self.width * np.cos(np.deg2rad(middle)) / min(height / rows, resolution_degrees)
        each = np.maximum(np.ceil(across - 1e-9).astype(np.intp), fewest)
        place = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
        width = np.repeat(self.width / each, each)
        return np.repeat(edges[:-1], each), np.repeat(edges[1:], each), self.west + width * place, width

    def contains(self, latitude_degrees: Array, longitude_degrees: Array) -> Mask:
        """Whether points are in it, or on its edges."""
        eastward = np.mod(longitude_degrees - self.west, 360.0)
        rows = (latitude_degrees >= self.south) & (latitude_degrees <= self.north)
        return np.asarray(rows & ((eastward <= self.width) | (self.width == 360.0)))


@dataclass(frozen=True)
class Polygon:
    """A region within a ring of points, joined by arcs of great circles.

    Inside is the side of the ring that is the smaller part of the sphere, whichever way the ring is written,
    over the antimeridian and around a pole as well.

    Parameters
    ----------
    name : str
        What it is called.
    ring : tuple of (longitude, latitude)
        Degrees east and north of its corners, in the order of GeoJSON. The last may repeat the first.

    Raises
    ------
    ArgumentError
        If there are fewer than three corners, two that follow each other are one place or opposite to each
        other, or the ring crosses itself.

    Examples
    --------
    >>> from cagp_dist.regions import Polygon
    >>> octant = Polygon("octant", ring=((0.0, 0.0), (90.0, 0.0), (0.0, 90.0)))
    >>> round(octant.area, 6), octant.contains(np.array([45.0, -45.0]), np.array([45.0, 45.0]))
    (0.125, array([ True, False]))
    """

    name: str
    ring: tuple[tuple[float, float], ...]
    corners: Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        named = f"the polygon of region {self.name!r}"
        try:
            ring = tuple((float(longitude), float(latitude)) for longitude, latitude in self.ring)
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"{named} has the ring {self.ring!r}; expected corners (longitude, latitude) in degrees.",
                key="corners",
            ) from error
        if len(ring) > 1 and ring[0] == ring[-1]:
            ring = ring[:-1]
        if len(ring) < 3:
            raise ArgumentError(
                f"{named} has {len(ring)} corners; expected at least three.", key="few-corners"
            )
        longitude, latitude = np.array(ring).T
        if not np.isfinite(ring).all() or np.abs(latitude).max() > 90.0:
            raise ArgumentError(
                f"{named} has a corner at latitude {latitude[np.abs(latitude).argmax()]:g}; expected corners "
                "[longitude, latitude] in degrees, in this order.",
                key="latitude-range",
            )
        corners = unit_sphere(latitude, longitude)
        following = np.roll(corners, -1, axis=0)
        for index, length in enumerate(np.linalg.norm(np.cross(corners, following), axis=1)):
            if length < 1e-9:
                raise ArgumentError(
                    f"corners {index} and {(index + 1) % len(ring)} of {named} are one place, or opposite to "
                    "each other; expected corners that a great circle joins in one way.",
                    key="corners",
                )
        crossed = _first_crossing(corners)
        if crossed is not None:
            raise ArgumentError(
                f"the edges of {named} that begin at corners {crossed[0]} and {crossed[1]} cross each other; "
                "expected a ring that does not. Give its parts as regions of their own.",
                key="crossing-edges",
            )
        object.__setattr__(self, "ring", ring)
        object.__setattr__(self, "corners", corners)

    @property
    def definition(self) -> str:
        """How many corners, and what joins them."""
        return f"polygon of {len(self.ring)} corners joined by great circles"

    @property
    def area(self) -> float:
        """Area over that of the sphere, from the excess of its angles."""
        return abs(self._signed_area)

    def cells(self, resolution_degrees: float) -> Cells:
        """Cells of the box around it, with the part of each that is inside, and the middle of that."""
        height = min(resolution_degrees, (self.box.north - self.box.south) / POLYGON_CELLS)
        return cut(self.box.tiles(height), self.contains)

    def contains(self, latitude_degrees: Array, longitude_degrees: Array) -> Mask:
        """Whether points are in it: edges between them and a pole are counted, as from a point of an edge."""
        points = unit_sphere(latitude_degrees, longitude_degrees)
        pole, start, end = _spans(self.corners)
        following = np.roll(self.corners, -1, axis=0)
        normals = np.cross(self.corners, following)
        toward = np.sign(normals @ pole)
        longest = int(np.linalg.norm(following - self.corners, axis=1).argmax())
        points = np.vstack([points, self.corners[longest] + following[longest]])
        itself = len(points) - 1  # a point of an edge, beyond which is the inside, or the outside
        crossings = np.zeros(len(points), dtype=np.intp)
        for edge, point in _pairs(start, end, _around_pole(points, pole)):
            # edges on the way from the point to the pole, along a meridian
            between = (_dot(normals[edge], points[point]) * toward[edge] < 0.0) & (
                (edge != longest) | (point != itself)
            )
            crossings += np.bincount(point[between], minlength=len(points))
        beyond = toward[longest] * self._signed_area > 0.0
        inside = (crossings % 2 == 1) ^ (beyond ^ (crossings[itself] % 2 == 1))
        return np.asarray(inside[:-1])

    @property
    def _signed_area(self) -> float:
        """Area over that of the sphere, above zero where the ring is written counterclockwise."""
        inner = self.corners.mean(axis=0)
        length = np.linalg.norm(inner)
        inner = self.corners[0] if length < 1e-9 else inner / length
        a, b = self.corners, np.roll(self.corners, -1, axis=0)
        # of the triangles from there to the edges [Van Oosterom & Strackee 1983]
        excess = 2.0 * np.arctan2(np.cross(a, b) @ inner, 1.0 + (a * b).sum(axis=1) + a @ inner + b @ inner)
        area = excess.sum() / (4.0 * np.pi)
        return float(area - np.rint(area))

    @cached_property
    def box(self) -> Box:
        """A box around it."""
        part = np.arange(ALONG_AN_EDGE)[:, None, None] / ALONG_AN_EDGE
        a, b = self.corners, np.roll(self.corners, -1, axis=0)
        along = ((1.0 - part) * a + part * b).reshape(-1, 3)
        latitude = np.rad2deg(np.arctan2(along[:, 2], np.hypot(along[:, 0], along[:, 1])))
        margin = 0.05 * (latitude.max() - latitude.min())
        south, north = max(latitude.min() - margin, -90.0), min(latitude.max() + margin, 90.0)
        poles = self.contains(np.array([-90.0, 90.0]), np.zeros(2))
        if poles.any():
            return Box(self.name, -90.0 if poles[0] else south, 90.0 if poles[1] else north)
        first, gap = widest_gap(np.rad2deg(np.arctan2(along[:, 1], along[:, 0])))
        aside = min(0.05 * (360.0 - gap), 0.49 * gap)
        return Box(self.name, south, north, first - aside, first + 360.0 - gap + aside)


@dataclass(frozen=True, eq=False)
class Outline:
    """A region of the Earth of one or several polygons, which may have holes.

    A place in any of them is in it.

    Parameters
    ----------
    name : str
        What it is called.
    parts : tuple of tuple of Polygon
        Of each part the ring around it, and those of its holes.
    """

    name: str
    parts: tuple[tuple[Polygon, ...], ...]

    @property
    def definition(self) -> str:
        """How many polygons, corners and holes."""
        corners = sum(len(ring.ring) for part in self.parts for ring in part)
        holes = sum(len(part) - 1 for part in self.parts)
        return f"{counted(len(self.parts), 'polygon')} of {corners:,} corners and {counted(holes, 'hole')}"

    @property
    def area(self) -> float:
        """Area of the parts without their holes, over that of the sphere."""
        return sum(part[0].area - sum(hole.area for hole in part[1:]) for part in self.parts)

    @property
    def height(self) -> float:
        """Degrees of latitude of its tallest part, about."""
        return max(part[0].box.north - part[0].box.south for part in self.parts)

    def cells(self, resolution_degrees: float) -> Cells:
        """Cells of the box around each part, as those of `Polygon`."""
        return self.cells_of(min(resolution_degrees, self.height / POLYGON_CELLS))

    def cells_of(self, height: float) -> Cells:
        """Cells at most so many degrees high; small parts have four."""
        found = [
            cut(part[0].box.tiles(height, rows=2, columns=2), partial(_in_part, part)) for part in self.parts
        ]
        return Cells(*(np.concatenate(each) for each in zip(*found, strict=True)))

    def contains(self, latitude_degrees: Array, longitude_degrees: Array) -> Mask:
        """Whether points are in one of its parts."""
        inside = np.zeros(np.shape(latitude_degrees), dtype=bool)
        for part in self.parts:
            inside |= _in_part(part, latitude_degrees, longitude_degrees)
        return inside


def _in_part(part: tuple[Polygon, ...], latitude: Array, longitude: Array) -> Mask:
    """Whether points are in a polygon, and in none of its holes."""
    box = part[0].box
    inside = box.contains(latitude, longitude)
    for number, ring in enumerate(part):
        some = np.flatnonzero(inside)
        if some.size:
            inside[some] = ring.contains(latitude[some], longitude[some]) ^ (number > 0)
    return inside


@dataclass(frozen=True, eq=False)
class PlaneOutline:
    """A region of a plane of one or several polygons with straight edges, which may have holes.

    Parameters
    ----------
    name : str
        What it is called.
    parts : tuple of tuple of array, shape (m, 2)
        Of each part the corners (x, y) of the ring around it, and those of its holes.

    Raises
    ------
    ArgumentError
        If a ring has fewer than three corners, one that is not finite, or edges that cross each other.

    Examples
    --------
    >>> from cagp_dist.regions import PlaneOutline
    >>> square = PlaneOutline("square", ((np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]]),),))
    >>> square.area, square.contains(np.array([1.0]), np.array([3.0]))
    (4.0, array([False]))
    """

    name: str
    parts: tuple[tuple[Array, ...], ...]

    def __post_init__(self) -> None:
        named = f"the polygon of region {self.name!r}"
        for ring in (ring for part in self.parts for ring in part):
            if not np.isfinite(ring).all():
                raise ArgumentError(f"{named} has a corner that is not finite.", key="corners")
            if len(ring) < 3:
                raise ArgumentError(
                    f"{named} has {len(ring)} corners; expected at least three.", key="few-corners"
                )
            crossed = _first_crossing_in_plane(ring)
            if crossed is not None:
                raise ArgumentError(
                    f"the edges of {named} that begin at corners {crossed[0]} and {crossed[1]} cross each "
                    "other; expected a ring that does not. Give its parts as regions of their own.",
                    key="crossing-edges",
                )

    @property
    def definition(self) -> str:
        """How many polygons, corners and holes."""
        corners = sum(len(ring) for part in self.parts for ring in part)
        holes = sum(len(part) - 1 for part in self.parts)
        return f"{counted(len(self.parts), 'polygon')} of {corners:,} corners and {counted(holes, 'hole')}"

    @property
    def area(self) -> float:
        """Area of the parts without their holes, in the square of the unit of x and y."""
        areas = [[_area_in_plane(ring) for ring in part] for part in self.parts]
        return sum(first - sum(holes) for first, *holes in areas)

    @property
    def height(self) -> float:
        """Longer side of the box around its largest part."""
        return max(float(np.ptp(part[0], axis=0).max()) for part in self.parts)

    def cells_of(self, height: float) -> Cells:
        """Cells at most so high and wide, cut by the edges; small parts have four."""
        found = []
        for part in self.parts:
            low, high = part[0].min(axis=0), part[0].max(axis=0)
            counts = np.maximum(np.ceil((high - low) / height - 1e-9).astype(np.intp), 2)
            (x, y), (width, tall) = low, (high - low) / counts
            row, column = np.divmod(np.arange(counts.prod()), counts[0])
            tiles = y + tall * row, y + tall * (row + 1), x + width * column, np.full(row.size, width)
            found.append(cut(tiles, partial(_in_plane_part, part), on_sphere=False))
        return Cells(*(np.concatenate(each) for each in zip(*found, strict=True)))

    def contains(self, y: Array, x: Array) -> Mask:
        """Whether points are in one of its parts."""
        inside = np.zeros(np.shape(y), dtype=bool)
        for part in self.parts:
            inside |= _in_plane_part(part, y, x)
        return inside


def _in_plane_part(part: tuple[Array, ...], y: Array, x: Array) -> Mask:
    """Whether points are in a polygon, and in none of its holes: edges north of them are counted."""
    low, high = part[0].min(axis=0), part[0].max(axis=0)
    inside = (x >= low[0]) & (x <= high[0]) & (y >= low[1]) & (y <= high[1])
    for number, ring in enumerate(part):
        a, b = ring, np.roll(ring, -1, axis=0)
        some = np.flatnonzero(inside)
        together = max(1, PAIRS_AT_ONCE // len(ring))
        for start in range(0, some.size, together):
            block = some[start : start + together]
            px, py = x[block][:, None], y[block][:, None]
            across = (a[:, 0] > px) != (b[:, 0] > px)
            slope = (b[:, 1] - a[:, 1]) / np.where(a[:, 0] == b[:, 0], 1.0, b[:, 0] - a[:, 0])
            above = a[:, 1] + slope * (px - a[:, 0]) > py
            inside[block] = ((across & above).sum(axis=1) % 2 == 1) ^ (number > 0)
    return np.asarray(inside)


def _area_in_plane(ring: Array) -> float:
    """Area within a ring of corners (m, 2)."""
    (x, y), (x_next, y_next) = (ring - ring[0]).T, (np.roll(ring, -1, axis=0) - ring[0]).T
    return float(0.5 * abs(np.sum(x * y_next - x_next * y)))


def _first_crossing_in_plane(ring: Array) -> tuple[int, int] | None:
    """Find two edges that cross each other, of those that are not neighbours."""
    m = len(ring)
    a, b = ring, np.roll(ring, -1, axis=0)

    def side(first: Array, second: Array, point: Array) -> Array:
        along, toward = second - first, point - first
        return np.asarray(np.sign(along[..., 0] * toward[..., 1] - along[..., 1] * toward[..., 0]))

    together = max(1, PAIRS_AT_ONCE // m)
    for start in range(0, m, together):
        i = np.arange(start, min(start + together, m))[:, None]
        j = np.arange(m)[None]
        crossing = (side(a[i], b[i], a[j]) * side(a[i], b[i], b[j]) < 0.0) & (
            side(a[j], b[j], a[i]) * side(a[j], b[j], b[i]) < 0.0
        )
        crossing &= (j - i > 1) & (j - i < m - 1)
        if crossing.any():
            row, column = (int(each[0]) for each in np.nonzero(crossing))
            return start + row, column
    return None


def cut(
    tiles: tuple[Array, Array, Array, Array],
    contains: Callable[[Array, Array], Mask],
    *,
    on_sphere: bool = True,
) -> Cells:
    """Cut tiles (south, north, west, width) at an edge: the part of each that is inside, and its middle."""
    south, north, west, width = tiles
    step = (np.arange(WITHIN_A_CELL) + 0.5) / WITHIN_A_CELL
    y = south[:, None] + np.outer(north - south, np.repeat(step, WITHIN_A_CELL))
    x = west[:, None] + np.outer(width, np.tile(step, WITHIN_A_CELL))
    share = np.cos(np.deg2rad(y)) if on_sphere else np.ones(y.shape)
    whole = _areas(south, north, width) if on_sphere else (north - south) * width
    share *= (whole / share.sum(axis=1))[:, None] * contains(y.ravel(), x.ravel()).reshape(y.shape)
    area = share.sum(axis=1)
    kept = area > 0.0
    share, area = share[kept], area[kept]
    middle, east = ((share * axis[kept]).sum(axis=1) / area for axis in (y, x))
    return Cells(middle, np.mod(east, 360.0) if on_sphere else east, area)


REGIONS: Mapping[str, Region] = {
    region.name: region
    for region in (
        Box("global"),
        Box("northern-hemisphere", south=0.0),
        Box("southern-hemisphere", north=0.0),
        Box("tropics", south=-20.0, north=20.0),
    )
}
"""Regions that have names. The tropics are those of the verification of weather forecasts."""


def as_regions(regions: "str | Region | Iterable[str | Region]") -> tuple[Region, ...]:
    """Check regions, and give those that are named."""
    several = isinstance(regions, Iterable) and not isinstance(regions, str)
    given: list[Any] = list(cast("Iterable[Any]", regions)) if several else [regions]
    found: list[Region] = []
    for region in given:
        if isinstance(region, Region):
            found.append(region)
        elif not isinstance(region, str):
            raise ArgumentError(
                f"regions hold {region!r}; expected names of regions, such as {next(iter(REGIONS))!r}, a Box "
                "or a Polygon.",
                key="region-unknown",
            )
        elif region in REGIONS:
            found.append(REGIONS[region])
        else:
            close = nearest(region, REGIONS)
            meant = f"; did you mean {close!r}?" if close else "."
            raise ArgumentError(
                f"{region!r} is not a region; expected {alternatives(list(REGIONS))}, a Box or a "
                f"Polygon{meant}",
                key="region-type",
            )
    names = [region.name for region in found]
    for name in names:
        if names.count(name) > 1:
            raise ArgumentError(
                f"two regions are called {name!r}; expected a name of its own for each.", key="name-twice"
            )
    return tuple(found)


def _first_crossing(corners: Array) -> tuple[int, int] | None:
    """Find two edges that cross each other, of those that are not neighbours."""
    following = np.roll(corners, -1, axis=0)
    normals = np.cross(corners, following)
    m = len(corners)
    _, start, end = _spans(corners)
    found: list[tuple[int, int]] = []
    for edge, other in _pairs(start, end, start):
        i, j = np.minimum(edge, other), np.maximum(edge, other)
        apart = (j - i > 1) & (j - i < m - 1)
        i, j = i[apart], j[apart]
        # both ends of each edge on different sides of the other one, and not on the far side of the sphere
        begins, ends = _dot(corners[j], normals[i]), _dot(following[j], normals[i])
        own_begins, own_ends = _dot(normals[j], corners[i]), _dot(normals[j], following[i])
        crossing = (begins * ends < 0.0) & (own_begins * own_ends < 0.0) & (begins * own_begins < 0.0)
        found += zip(i[crossing].tolist(), j[crossing].tolist(), strict=True)
    return min(found, default=None)


def _spans(corners: Array) -> tuple[Array, Array, Array]:
    """Choose a pole that is on no edge, and give the longitudes about it that each edge spans, eastward."""
    toward = np.cross(corners, np.roll(corners, -1, axis=0)) @ POLES.T
    best = int(np.abs(toward).min(axis=0).argmax())
    begins = _around_pole(corners, POLES[best])
    ends = np.roll(begins, -1)
    eastward = toward[:, best] > 0.0
    return POLES[best], np.where(eastward, begins, ends), np.where(eastward, ends, begins)


def _around_pole(points: Array, pole: Array) -> Array:
    """Longitudes of points (n, 3) about a pole, in radians."""
    east = np.cross((0.0, 0.0, 1.0), pole)
    return np.asarray(np.arctan2(points @ np.cross(pole, east), points @ east))


def _pairs(start: Array, end: Array, longitude: Array) -> Iterator[tuple[Indices, Indices]]:
    """Pair spans of longitudes, from start eastward, with the places of longitudes in them, in blocks."""
    order = np.argsort(longitude)
    first, last = (np.searchsorted(longitude[order], edge) for edge in (start, end))
    counts = last - first + np.where(end < start, len(order), 0)  # over the seam
    block = np.cumsum(counts) // PAIRS_AT_ONCE
    for spans in np.split(np.arange(len(start)), np.flatnonzero(np.diff(block)) + 1):
        count = counts[spans]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        place = np.repeat(first[spans], count) + within
        yield np.repeat(spans, count), order[place % max(1, len(order))]


def _dot(a: Array, b: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", a, b))


def _areas(south: float | Array, north: float | Array, width: float | Array) -> Array:
    """Areas of boxes in degrees, over that of the sphere: ``(sin north - sin south) width / 4 pi``."""
    return np.asarray((np.sin(np.deg2rad(north)) - np.sin(np.deg2rad(south))) * width / 720.0)
