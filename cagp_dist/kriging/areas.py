"""Areas as people have them: polygons of shapely, geopandas and GeoJSON, regions of the globe, masks.

A mean over an area is a weighted sum of the field at the middles of cells, each cut at the edge of the area.
Polygons are taken by their ``__geo_interface__``, so that none of the libraries that make them is needed.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import xarray as xr

from cagp_dist.arrays import Array, Mask
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.axes import located
from cagp_dist.fields.observed_objects import ObservedObject
from cagp_dist.geometry import unit_sphere
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.kriging.map_dataset import descriptions, field_dims
from cagp_dist.kriging.map_targets import MapTargets
from cagp_dist.pipeline.defaults import QUANTILE_LEVELS
from cagp_dist.regions import Box, Cells, Outline, PlaneOutline, Polygon, as_regions, cut
from cagp_dist.regions import Region as GlobalRegion
from cagp_dist.space import SPHERE, Plane, Space, moved, plane_of
from cagp_dist.store.published_variables import QUANTILE_LEVEL


class Geometry(Protocol):
    """A polygon of shapely, a GeoDataFrame of geopandas, a shape of pyshp."""

    @property
    def __geo_interface__(self) -> Mapping[str, Any]: ...


AreaLike: TypeAlias = (
    str | os.PathLike[str] | GlobalRegion | xr.DataArray | Mapping[str, Any] | Geometry | Iterable[Any]
)
"""A polygon, GeoJSON or the path of a file of it, a `Region` or the name of one, a mask; or several."""

MaskLike: TypeAlias = "AreaLike | Mask | None"

SHARE_OF_QUADRATURE = 0.01  # By which part an error bar may change where the cells of an area are halved
MOST_NODES = 2**14  # of an area: their covariances with each other take seconds
NO_VARIANCE = 1e-12  # of that of the field: below, an error bar is rounding
ROWS = 8  # of the cells of an area at first: each further level has twice as many
SAME_PLACE = 1e-9  # Chord of corners that are one place
LEAST_ACROSS = 300.0  # Degrees of longitude from which on a step is one across the antimeridian
PIECES = 256  # of the way around a polygon: longer edges are cut before they are brought to another space
NAMES = ("name", "NAME", "Name")  # properties of GeoJSON that name an area


class Area(Protocol):
    """What a mean is taken over, in the space of the observations."""

    @property
    def name(self) -> str: ...

    def cells(self, rows: int) -> Cells: ...  # about so many from south to north

    def contains(self, north: Array, east: Array) -> Mask: ...


@dataclass(frozen=True, eq=False)
class OfRegion:
    """A region of the globe, or polygons of a plane, as an area."""

    region: GlobalRegion | PlaneOutline

    @property
    def name(self) -> str:
        """What it is called."""
        return self.region.name

    def contains(self, north: Array, east: Array) -> Mask:
        """Whether places are in it."""
        return self.region.contains(north, east)

    def cells(self, rows: int) -> Cells:
        """Cells of which about so many stand from south to north."""
        region = self.region
        if isinstance(region, Outline | PlaneOutline):
            return region.cells_of(region.height / rows)
        if isinstance(region, Polygon):
            return cut(region.box.tiles(180.0, rows=rows, columns=2), region.contains)
        if isinstance(region, Box):
            return region.cells((region.north - region.south) / rows)
        return region.cells(180.0 / rows)


@dataclass(frozen=True, eq=False)
class OfPoint:
    """A place, as an area that has shrunk to it."""

    name: str
    north: float
    east: float

    def contains(self, north: Array, east: Array) -> Mask:
        """Whether places are it."""
        return np.asarray((north == self.north) & (east == self.east))

    def cells(self, rows: int) -> Cells:
        """Itself."""
        return Cells(np.array([self.north]), np.array([self.east]), np.ones(1))


@dataclass(frozen=True, eq=False)
class OfMask:
    """The cells of a grid where a mask is true."""

    name: str
    space: Space
    south_north: Array  # (2, P), rows from south to north
    west_east: Array  # (2, Q), columns from west to east
    inside: Mask  # (P, Q)

    def contains(self, north: Array, east: Array) -> Mask:
        """Whether places are in a cell where the mask is true."""
        (south, upper), (west, right) = self.south_north, self.west_east
        if self.space.has_latitudes:
            east = west[0] + np.mod(east - west[0], 360.0)
        row = np.clip(np.searchsorted(south, north, side="right") - 1, 0, south.size - 1)
        column = np.clip(np.searchsorted(west, east, side="right") - 1, 0, west.size - 1)
        there = (north >= south[row]) & (north <= upper[row])
        there &= (east >= west[column]) & (east <= right[column])
        return np.asarray(there & self.inside[row, column])

    @cached_property
    def _box(self) -> tuple[float, float, float, float]:
        rows, columns = (np.flatnonzero(self.inside.any(axis=axis)) for axis in (1, 0))
        (south, upper), (west, right) = self.south_north, self.west_east
        return south[rows[0]], upper[rows[-1]], west[columns[0]], right[columns[-1]]

    def cells(self, rows: int) -> Cells:
        """Cells of the box around it, cut at its edge."""
        south, north, west, east = self._box
        if self.space.has_latitudes:
            tiles = Box(self.name, south, north, west, east).tiles(180.0, rows=rows, columns=2)
            return cut(tiles, self.contains)
        height = (north - south) / rows
        columns = max(2, int(np.ceil((east - west) / height - 1e-9)))
        row, column = np.divmod(np.arange(rows * columns), columns)
        width = (east - west) / columns
        edges = south + height * row, south + height * (row + 1), west + width * column
        return cut((*edges, np.full(row.size, width)), self.contains, on_sphere=False)


class Shape(NamedTuple):
    """A geometry of GeoJSON, what it is called, and the system of its coordinates where it says one."""

    name: str
    geometry: Mapping[str, Any]
    system: Any = None


def as_areas(given: AreaLike, space: Space) -> list[Area]:
    """Read areas in the space of observations; `ArgumentError` where one is none, empty or not valid."""
    found = [area for each in _parted(given) for area in _read(each, space)]
    if not found:
        raise ArgumentError("the areas are none; expected at least one.", key="no-regions")
    counts: dict[str, int] = {}
    names = [area.name for area in found]
    for number, area in enumerate(found):
        counts[area.name] = counts.get(area.name, 0) + 1
        if names.count(area.name) > 1:
            found[number] = _Named(f"{area.name} ({counts[area.name]})", area)
    return found


@dataclass(frozen=True, eq=False)
class _Named:
    """An area by another name."""

    name: str
    area: Area

    def contains(self, north: Array, east: Array) -> Mask:
        """Whether places are in it."""
        return self.area.contains(north, east)

    def cells(self, rows: int) -> Cells:
        """Its cells."""
        return self.area.cells(rows)


def _parted(given: AreaLike) -> list[Any]:
    """Give several areas one by one."""
    if isinstance(given, xr.Dataset):
        raise ArgumentError(
            f"the areas are a dataset, of {', '.join(map(str, given.data_vars)) or 'nothing'}; expected one "
            'of its variables, a mask: dataset["NAME"].',
            key="area-type",
        )
    # a GeoDataFrame has all that a region has, and warns where it is asked for its area
    if hasattr(given, "__geo_interface__") or (isinstance(given, Mapping) and "type" in given):
        return [given]
    if isinstance(given, Mapping):
        return [_Called(str(name), each) for name, each in given.items()]
    if isinstance(given, str | os.PathLike | GlobalRegion | xr.DataArray):
        return [given]
    if isinstance(given, Iterable):
        return list(given)
    return [given]


class _Called(NamedTuple):
    """An area and the name that was given to it."""

    name: str
    given: Any


def _read(given: Any, space: Space) -> list[Area]:
    """Read one area, or those of one collection."""
    if isinstance(given, _Called):
        found = _read(given.given, space)
        if len(found) == 1:
            return [_Named(given.name, found[0])]
        return [_Named(f"{given.name} {area.name}", area) for area in found]
    if isinstance(given, xr.DataArray):
        return _of_mask(given, space)
    if hasattr(given, "__geo_interface__") or isinstance(given, Mapping) or _is_file(given):
        return [_of_shape(shape, space) for shape in _shapes(given)]
    if isinstance(given, str | GlobalRegion):
        if not space.has_latitudes:
            raise ArgumentError(
                f"the area is {given!r}, a region of the globe, and the observations lie on the "
                f"{space.text}; expected a polygon with x and y, or a mask on such a grid.",
                key="area-of-another-space",
            )
        return [OfRegion(region) for region in as_regions(given)]
    raise ArgumentError(
        f"the area is a {type(given).__name__}; expected a polygon of shapely or GeoJSON, a GeoDataFrame, a "
        'region such as "global" or a Box, or a mask: a DataArray that is true inside.',
        key="area-type",
    )


def _is_file(given: Any) -> bool:
    return isinstance(given, os.PathLike) or (isinstance(given, str) and given.endswith(("json", "JSON")))


def _shapes(given: Any) -> list[Shape]:
    """Geometries of an object with a ``__geo_interface__``, of GeoJSON, or of a file of it."""
    system = getattr(given, "crs", None)
    if _is_file(given):
        try:
            with open(given, encoding="utf-8") as file:
                given = json.load(file)
        except (OSError, ValueError) as error:
            raise ArgumentError(
                f"the areas {os.fspath(given)!r} cannot be read ({error}); expected a file of GeoJSON.",
                key="area-file",
            ) from error
    data = given if isinstance(given, Mapping) else given.__geo_interface__
    if data.get("type") == "FeatureCollection":
        features = data["features"]
        return [_of_feature(each, f"area {at + 1}", system) for at, each in enumerate(features)]
    if data.get("type") == "Feature":
        return [_of_feature(data, "area", system)]
    return [Shape("area", data, system)]


def _of_feature(feature: Mapping[str, Any], otherwise: str, system: Any) -> Shape:
    """Take a feature of GeoJSON, named by its id or by a property."""
    properties, own = feature.get("properties") or {}, feature.get("id")
    name = next((str(properties[key]) for key in NAMES if properties.get(key)), None)
    if name is None and own is not None and not str(own).isdigit():
        name = str(own)
    if not feature.get("geometry"):
        raise ArgumentError(
            f"{name or otherwise} has no geometry; expected a polygon. Leave such rows out.", key="empty-area"
        )
    return Shape(name or otherwise, feature["geometry"], system)


def _of_shape(shape: Shape, space: Space) -> Area:
    """Give a geometry as an area of a space."""
    kind, corners = shape.geometry.get("type"), shape.geometry.get("coordinates")
    if kind == "GeometryCollection" or kind not in ("Polygon", "MultiPolygon", "Point"):
        raise ArgumentError(
            f"{shape.name} is a {kind}; expected a Polygon or MultiPolygon, or a Point.", key="area-type"
        )
    if not corners:
        raise ArgumentError(
            f"{shape.name} is an empty {kind}; expected one with corners. Leave it out.", key="empty-area"
        )
    bring = partial(_brought, space=space, source=_space_of(shape.system, space))
    if kind == "Point":
        (east, north), *_ = bring(np.array([corners[:2]], dtype=np.float64), cuts=False)
        space.check(np.array([north]), np.array([east]))
        return OfPoint(shape.name, float(north), float(east))
    parts = [
        [bring(np.array([point[:2] for point in ring], dtype=np.float64)) for ring in part]
        for part in (corners if kind == "MultiPolygon" else [corners])
    ]
    if space.has_latitudes:
        rings = tuple(tuple(Polygon(shape.name, _cleaned(ring)) for ring in part) for part in parts)
        return OfRegion(Outline(shape.name, rings))
    for ring in (ring for part in parts for ring in part):
        space.check(ring[:, 1], ring[:, 0], some=True)
    plane = tuple(
        tuple(ring[:-1] if (ring[0] == ring[-1]).all() else ring for ring in part) for part in parts
    )
    found = PlaneOutline(shape.name, plane)
    if not found.area > 0.0:
        raise ArgumentError(
            f"{shape.name} has no area: its corners lie on a line; expected a polygon.", key="empty-area"
        )
    return OfRegion(found)


def _space_of(system: Any, space: Space) -> Space:
    """Give the space of coordinates by what they say of their system; that of the observations otherwise."""
    if system is None:
        return space
    if getattr(system, "is_geographic", False):
        return SPHERE
    return plane_of(system, names=("x", "y"))


def _brought(ring: Array, *, space: Space, source: Space, cuts: bool = True) -> Array:
    """Bring corners (m, 2) to a space, with points between those that are far from each other."""
    if not np.isfinite(ring).all():
        raise ArgumentError("a polygon has a corner that is not finite.", key="corners")
    if space.is_same(source):
        return ring
    if cuts and len(ring) > 1:
        sides = np.diff(ring, axis=0)
        lengths = np.linalg.norm(sides, axis=1)
        counts = np.maximum(np.ceil(PIECES * lengths / lengths.sum()), 1).astype(np.intp)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        part = (within / np.repeat(counts, counts))[:, None]
        between = np.repeat(ring[:-1], counts, axis=0) + part * np.repeat(sides, counts, axis=0)
        ring = np.vstack([between, ring[-1:]])
    north, east = moved(source, space, ring[:, 1], ring[:, 0], what="target")
    return np.column_stack([east, north])


def _cleaned(ring: Array) -> tuple[tuple[float, float], ...]:
    """Corners without repeats, and without ways that go out and come back, as files draw the antimeridian."""
    latitude, steps = ring[:, 1], np.abs(np.diff(ring[:, 0]))
    if ((steps > 180.0) & (steps < LEAST_ACROSS)).any():
        raise ArgumentError(
            f"a polygon has an edge of {steps[(steps > 180.0) & (steps < LEAST_ACROSS)][0]:g} degrees of "
            "longitude, and edges take the short way around; expected corners at most 180 degrees apart. Add "
            "corners between them, or take cagp.Box.",
            key="long-edge",
        )
    if np.abs(latitude).max() > 90.0:
        return tuple((float(x), float(y)) for x, y in ring)  # which `Polygon` refuses
    X = unit_sphere(latitude, ring[:, 0])
    kept: list[int] = []
    for at in range(len(X)):
        if kept and np.linalg.norm(X[at] - X[kept[-1]]) < SAME_PLACE:
            continue
        if len(kept) > 1 and np.linalg.norm(X[at] - X[kept[-2]]) < SAME_PLACE:
            kept.pop()
            continue
        kept.append(at)
    while len(kept) > 1 and np.linalg.norm(X[kept[0]] - X[kept[-1]]) < SAME_PLACE:
        kept.pop()
    return tuple((float(x), float(y)) for x, y in ring[kept])


def _of_mask(mask: xr.DataArray, space: Space) -> list[Area]:
    """Take the cells where a mask is true; along another dimension it is several areas."""
    where = located(mask)
    if where.axes is None:
        raise ArgumentError(
            "the mask has no axes of latitude and longitude, or of x and y; expected a regular grid.",
            key="mask-grid",
        )
    if not space.is_same(where.space) and space.factor_of(where.space) != 1.0:
        raise ArgumentError(
            f"the mask lies on the {where.space.text}, and the observations on the {space.text}; expected "
            "one space. Give the polygon that it was made from.",
            key="area-of-another-space",
        )
    others = [dim for dim in map(str, mask.dims) if dim not in where.dims]
    if len(others) > 1:
        raise ArgumentError(
            f"the mask has the dimensions {', '.join(map(str, mask.dims))}; expected at most one beside "
            f"{' and '.join(where.dims)}.",
            key="mask-grid",
        )
    values = mask.transpose(*others, *where.dims).values
    if values.dtype.kind not in "biu" or not np.isin(values, (0, 1)).all():
        raise ArgumentError(
            f"the mask has values of {values.dtype}; expected true and false, such as land > 0.5.",
            key="mask-values",
        )
    names = [str(mask.name or "mask")]
    if others:
        axis = mask[others[0]].values if others[0] in mask.coords else np.arange(mask.sizes[others[0]])
        names = [f"{each}" if others[0] in mask.coords else f"{others[0]} {each}" for each in axis]
    north, east = where.axes
    rows, columns = np.argsort(north), np.argsort(east)
    south_north, west_east = where.space.edges(north[rows], east[columns])
    found: list[Area] = []
    for name, each in zip(names, values.astype(bool).reshape(-1, *where.shape), strict=True):
        inside = each[np.ix_(rows, columns)]
        if not inside.any():
            raise ArgumentError(
                f"the mask {name!r} is false everywhere; expected a place inside.", key="empty-area"
            )
        found.append(OfMask(name, space, south_north, west_east, inside))
    return found


def nodes_of(areas: Sequence[Area], space: Space, rows: int) -> LinearFunctionals:
    """Means over areas, of whose cells about so many stand from south to north."""
    every = [area.cells(rows) for area in areas]
    for area, cells in zip(areas, every, strict=True):
        if not cells.area.size:
            raise ArgumentError(
                f"{area.name} has no area that can be found; expected a polygon that is wide enough, or a "
                "Point.",
                key="empty-area",
            )
        if rows <= ROWS and cells.area.size > MOST_NODES:
            raise ArgumentError(
                f"{area.name} is so narrow that {cells.area.size:,} square cells are in it, of which {rows} "
                f"stand from south to north; expected at most {MOST_NODES:,}. Take a wider polygon, or "
                "divide it.",
                key="narrow-area",
            )
        stated = area.region.area if isinstance(area, OfRegion) and space.has_latitudes else None
        inside = cells.area.sum()
        if stated is not None and abs(inside - (1.0 - stated)) < abs(inside - stated):
            raise ArgumentError(
                f"the cells inside {area.name} have the area of what lies outside, so that it cannot be told "
                "which side is meant; expected a ring that does not go around the Earth. Take cagp.Box for a "
                "band of latitudes, or divide the polygon.",
                key="area-of-polygon",
            )
    north, east = (np.concatenate(each) for each in list(zip(*every, strict=True))[:2])
    if isinstance(space, Plane):
        space.check(north, east, some=True)
    weights = np.concatenate([cells.area / cells.area.sum() for cells in every])
    counts = np.array([cells.area.size for cells in every], dtype=np.intp)
    return LinearFunctionals.of_terms(space.positions(north, east), weights, counts)


def inside_any(areas: Sequence[Area], north: Array, east: Array) -> Mask:
    """Whether places are in one of the areas."""
    found = np.zeros(np.shape(north), dtype=bool)
    for area in areas:
        rest = np.flatnonzero(~found)
        found[rest] = area.contains(north[rest], east[rest])
    return found


def masked(targets: MapTargets, mask: "AreaLike | Mask | None") -> MapTargets:
    """Leave out the targets that are in none of some areas, or where an array of their shape is false."""
    if mask is None:
        return targets
    if isinstance(mask, np.ndarray):
        if mask.shape != targets.shape or mask.dtype != bool:
            raise ArgumentError(
                f"the mask is an array of {mask.dtype} of shape {mask.shape}, and the targets have "
                f"{targets.shape}; expected true and false in this shape, a DataArray, or polygons.",
                key="mask-grid",
            )
        inside: Mask = mask.ravel()
    else:
        inside = inside_any(as_areas(mask, targets.space), targets.north, targets.east)
    if not inside.any():
        raise ArgumentError(
            f"none of the {inside.size:,} targets is inside of the mask; expected some. Check that both are "
            "in one system, and longitude before latitude in polygons.",
            key="mask-empty",
        )
    return targets if inside.all() else replace(targets, known=inside)


def area_targets(
    areas: Sequence[Area], observed: ObservedObject, combined: Array, levels: Sequence[int]
) -> MapTargets:
    """Means over areas and combinations of them, a column each, by so many rows of cells; level by level."""
    space = observed.space
    means = [nodes_of(areas, space, rows) for rows in levels]
    every = [each.combined(np.hstack([np.eye(len(areas)), combined])) for each in means]
    wanted = reduce(LinearFunctionals.followed_by, every)
    weights = np.abs(np.hstack([np.eye(len(areas)), combined]))
    middle = weights.T @ means[0].centres / weights.sum(axis=0)[:, None]
    north, east = space.places(middle)
    many = len(levels)
    return MapTargets(
        np.tile(north, many),
        np.tile(east, many),
        ("area",),
        (many * north.size,),
        {},
        cells=wanted,
        space=space,
        mapping=space.mapping,
    )


def pairs_of(differences: Iterable[tuple[str, str]] | None, areas: Sequence[Area]) -> tuple[Array, list[str]]:
    """Columns that take one area from another, and what these differences are called."""
    names, given = [area.name for area in areas], list(differences or ())
    columns = np.zeros((len(areas), len(given)))
    for number, pair in enumerate(given):
        if isinstance(pair, str) or len(pair) != 2 or not set(pair) <= set(names) or pair[0] == pair[1]:
            raise ArgumentError(
                f"a difference is of {pair!r}; expected pairs of two of the areas, which are "
                f"{', '.join(map(repr, names))}.",
                key="difference-of-areas",
            )
        columns[names.index(pair[0]), number], columns[names.index(pair[1]), number] = 1.0, -1.0
    return columns, [f"{first} - {second}" for first, second in given]


def area_nodes(
    areas: Sequence[Area], observed: ObservedObject, levels: Sequence[int]
) -> tuple[MapTargets, list[Array]]:
    """Middles of the cells of areas, of so many rows, and for each level the weights (N, areas) of means."""
    space, parts, weights = observed.space, [], []
    for rows in levels:
        nodes_of(areas, space, rows)  # refuses areas that have none
        parts.append([area.cells(rows) for area in areas])
    total = sum(cells.area.size for level in parts for cells in level)
    start = 0
    for level in parts:
        own = np.zeros((total, len(areas)))
        for number, cells in enumerate(level):
            own[start : start + cells.area.size, number] = cells.area / cells.area.sum()
            start += cells.area.size
        weights.append(own)
    north, east = (
        np.concatenate([getattr(cells, name) for level in parts for cells in level])
        for name in ("north", "east")
    )
    targets = MapTargets(north, east, ("node",), (total,), {}, space=space, mapping=space.mapping)
    return targets, weights


def check_means(observed: ObservedObject, *, logarithms: bool) -> None:
    """Refuse observations whose field has no means over areas."""
    given = {
        "several variables": bool(observed.variables),
        "depths": observed.depths is not None,
        "transform='log1p'": logarithms,
    }
    if refused := [name for name, there in given.items() if there]:
        raise ArgumentError(
            f"{' and '.join(refused)} and means over areas do not go together; expected observations of one "
            "field in its unit. Means over samples of the field at points are means, too.",
            key="areas-with-others",
        )


def change_of(before: Array, after: Array, variance: float) -> float:
    """Largest part by which error bars changed; 0 where none is known."""
    known = np.isfinite(before) & np.isfinite(after)
    least = np.sqrt(NO_VARIANCE * variance)
    changes = np.abs(after - before)[known] / np.maximum(after[known], least)
    return float(changes.max(initial=0.0))


def most_nodes(targets: MapTargets, count: int) -> int:
    """Nodes of the area that has most, by the last of its levels."""
    assert targets.cells is not None
    return int(targets.cells.counts[-count:].max())


def dataset_of_areas(
    mean: Array,
    std: Array,
    areas: Sequence[Area],
    differences: Sequence[str],
    observed: ObservedObject,
    targets: MapTargets,
    said: Mapping[str, Any],
) -> xr.Dataset:
    """Give means over areas, and differences of them, their names."""
    k, before = len(areas), field_dims(observed, targets)[:-1]
    texts = descriptions(observed)
    for text in texts.values():
        text |= {"long_name": f"{text['long_name']}, mean over the area", "cell_methods": "area: mean"}
    fields: dict[str, Any] = {
        name: ((*before, "area"), values[..., :k], texts[name])
        for name, values in (("mean", mean), ("std", std))
    }
    coordinates: dict[str, Any] = {"area": ("area", [area.name for area in areas])}
    if differences:
        for name, values in (("mean", mean), ("std", std)):
            about = {**texts[name], "long_name": f"{texts[name]['long_name']}: difference of two areas"}
            fields[f"difference_{name}"] = (*before, "difference"), values[..., k:], about
        coordinates["difference"] = "difference", list(differences)
    every = {
        name: axis
        for name, axis in {**observed.coordinates, **targets.coordinates}.items()
        if set(map(str, axis.dims)) <= set(before)
    }
    title = f"{said['title']}, means over areas"
    return xr.Dataset(fields, coords={**every, **coordinates}, attrs={**said, "title": title})


def with_errors_of_draws(result: xr.Dataset, draws: Array, areas: int) -> xr.Dataset:
    """Add quantiles of draws (size, ..., areas and differences), and the errors of their mean and spread."""
    size, std = len(draws), draws.std(axis=0, ddof=1)
    fourth = ((draws - draws.mean(axis=0)) ** 4).mean(axis=0)
    of_std = np.sqrt(np.maximum(fourth - std**4, 0.0) / (4.0 * size)) / np.where(std > 0.0, std, 1.0)
    errors = {"mean": std / np.sqrt(size), "std": of_std}
    parts = {"": slice(0, areas)} | (
        {"difference_": slice(areas, None)} if "difference" in result.dims else {}
    )
    found = result
    for stem, part in parts.items():
        for name, error in errors.items():
            held = result[f"{stem}{name}"]
            about = f"standard error of the {held.attrs['long_name']}, from {size:,} draws"
            units = {key: text for key, text in held.attrs.items() if key == "units"}
            found[f"{stem}{name}_standard_error"] = held.dims, error[..., part], {"long_name": about, **units}
    mean = result["mean"]
    said = {key: text for key, text in mean.attrs.items() if key in ("units", "cell_methods")}
    said["long_name"] = str(mean.attrs["long_name"]).replace("mean of", "quantile of", 1)
    levels = np.array(QUANTILE_LEVELS)
    found["field_quantile"] = (
        (QUANTILE_LEVEL, *mean.dims),
        np.quantile(draws[..., :areas], levels, axis=0),
        said,
    )
    return found.assign_coords({QUANTILE_LEVEL: (QUANTILE_LEVEL, levels, {"units": "1"})})
