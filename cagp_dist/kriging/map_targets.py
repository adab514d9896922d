"""Where a map is wanted: the grid of an object, a grid by its resolution, a region, or a table of places."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, floor, log10
from typing import Literal, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Mask, Names
from cagp_dist.checks import as_numbers
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.axes import Horizontal, located, on_plane
from cagp_dist.fields.missing import observations
from cagp_dist.fields.observed_objects import ObservedObject, check_pairs
from cagp_dist.fields.tables import DataFrameLike, TableLike, read_places
from cagp_dist.fields.tables.column_names import bare
from cagp_dist.geometry import (
    SAME_DEGREES,
    cell_edges,
    median_spacing,
    spacing_degrees,
    unit_sphere,
    widest_gap,
)
from cagp_dist.gram.cell_means import MOST_CELLS, CellMeans, box_means, nodes_per_side, rectangle_means
from cagp_dist.latlon import LatLonGrid
from cagp_dist.mapping import Observations
from cagp_dist.mapping.map_points import MapPoints
from cagp_dist.plane import Plane, check_in_use, moved
from cagp_dist.store.published_variables import COORDINATES, STATION_NAME
from cagp_dist.text import counted

Kind: TypeAlias = Literal["grid", "cells"]
To: TypeAlias = "xr.DataArray | xr.Dataset | LatLonGrid | float | Sequence[float] | TableLike | None"

CELLS_ACROSS = 100  # Cells along the longer side of a region for which no resolution was given, about
AROUND_DEGREES = 90.0  # Places without a wider gap in longitude lie around the globe
# A region is called area in jobs and by the Climate Data Store; here either word does
GRID_KEYS = {"resolution", "region", "area"}


@dataclass(frozen=True, eq=False)
class Targets:
    """Places, and the coordinates that results on them are given."""

    north: Array  # (q,), last dimension fastest: latitudes in degrees, or y of a plane
    east: Array  # longitudes, or x
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coordinates: Mapping[str, xr.Variable]  # in the order and convention in which they were given
    grid: LatLonGrid | None = None  # the full-circle grid that the points are, row by row
    axes: tuple[str, str] | None = None  # names of the axes of a grid: latitude and longitude, or y and x
    cells: CellMeans | None = None  # means over the cells around the points, where these are wanted
    bounds: Mapping[str, xr.Variable] = field(default_factory=dict)  # edges of these cells
    static: Mapping[str, Array] = field(default_factory=dict)  # (q,), what a drift has of the table, if said
    static_units: Mapping[str, str] = field(default_factory=dict)  # of these, empty where none is stated
    known: Mask | None = None  # (q,), of the targets that have a value of the drift; None: all
    hours: Array | None = None  # (A,), of maps at times, which are the first dimension
    plane: Plane | None = None  # in which the places are, as the observations
    mapping: Mapping[str, xr.Variable] = field(default_factory=dict)  # system of the coordinates, by its name

    @cached_property
    def positions(self) -> Array:
        """Unit vectors of the places, shape (q, 3), or x and y of a plane since its centre, shape (q, 2)."""
        if self.plane is not None:
            return self.plane.positions(self.east, self.north)
        return unit_sphere(self.north, self.east)

    @cached_property
    def points(self) -> MapPoints:
        """Where the map is wanted, in numbers alone, and the drift is known."""
        found = MapPoints(self.positions, self.grid, self.cells)
        found = found if self.known is None else found.part(np.flatnonzero(self.known))
        return found if self.hours is None else found.at_hours(self.hours)

    def at_times(self, hours: Array, time: xr.Variable) -> "Targets":
        """Give all of them at times (A,), hours of observations in space and time."""
        return replace(
            self,
            dims=("time", *self.dims),
            shape=(hours.size, *self.shape),
            coordinates={"time": time, **self.coordinates},
            hours=hours,
        )


def find_targets(to: To, observed: ObservedObject) -> Targets:
    """Read what a map is wanted on."""
    if to is None:
        if observed.where is None:
            step, unit = "0.25", "degrees"
            if observed.plane is not None:
                step, unit = "1000.0", "in the unit of x and y"
            raise ArgumentError(
                f"the observations are a table, so say where you want a map: to={step} ({unit}, over the "
                f'region of the observations), to={{"resolution": {step}, "region": [north, west, south, '
                "east]}, a grid of xarray, or a table of places."
            )
        return _of_object(observed.where, observed.plane)
    if isinstance(to, (xr.DataArray, xr.Dataset)):
        flat = None if observed.plane is None else on_plane(to)  # in a plane, where both have x and y
        found = _of_object(located(to) if flat is None else flat, observed.plane)
        static, units = _static_of_object(to, found, observed.static)
        return replace(found, static=static, static_units=units)
    plane = observed.plane
    if isinstance(to, LatLonGrid):
        return _of_object(_grid(to.latitude_degrees, to.longitude_degrees, None), plane)
    if isinstance(to, (int, float, np.integer, np.floating)) and not isinstance(to, bool):
        return of_grid(float(to), region_of(observed, float(to)), plane)
    if isinstance(to, Mapping) and to and set(to) <= GRID_KEYS:
        if {"region", "area"} <= set(to):
            raise ArgumentError("to has the keys region and area, which mean the same; expected one of them.")
        given, resolution = to.get("region", to.get("area")), to.get("resolution")
        if given is None:
            region = region_of(observed, _resolution(resolution, region_of(observed)))
        else:
            region = _region(given, plane)
        return of_grid(_resolution(resolution, region), region, plane)
    if isinstance(to, Mapping) and (
        set(to) & GRID_KEYS or all(isinstance(given, (int, float, str)) for given in to.values())
    ):
        raise ArgumentError(
            f'to has the keys {", ".join(map(repr, to))}; a grid has "resolution" and "region", a table of '
            "places has vectors of latitudes and longitudes."
        )
    if isinstance(to, (Mapping, str, os.PathLike, DataFrameLike)):
        return of_table(to, plane, static=list(observed.static))
    if isinstance(to, Sequence) and np.shape(to) == (4,):
        region = _region(to, plane)
        return of_grid(_resolution(None, region), region, plane)
    raise ArgumentError(
        f"to is {to!r}; expected a resolution in degrees, [north, west, south, east], a mapping with "
        'the keys "resolution" and "region", a grid of xarray, or a table of places.'
    )


def of_places(
    north: ArrayLike,
    east: ArrayLike,
    plane: Plane | None = None,
    *,
    dim: str = "place",
    names: Names | None = None,
) -> Targets:
    """Places one by one, by latitude and longitude or y and x, with their names where they have any."""
    north, east = (np.asarray(axis, dtype=np.float64) for axis in (north, east))
    coordinates = {
        name: xr.Variable(dim, axis, {key: text for key, text in about.items() if key != "axis"})
        for (name, about), axis in zip(_axes_of(plane).items(), (north, east), strict=True)
    }
    if names is not None:
        coordinates[STATION_NAME] = xr.Variable(dim, names, COORDINATES[STATION_NAME])
    return Targets(north, east, (dim,), north.shape, coordinates, plane=plane, mapping=_mapping(plane))


def are_rows(to: object) -> bool:
    """Whether this is an array, or a list of pairs; a region is a list of numbers."""
    if isinstance(to, list | tuple):
        return bool(to) and all(isinstance(row, list | tuple) for row in to)
    return isinstance(to, np.ndarray)


def of_array(X: ArrayLike, plane: Plane | None) -> Targets:
    """Places by their latitudes and longitudes (n, 2), in degrees, or their x and y in a plane."""
    points = as_numbers("X", X)
    check_pairs(points, plane)
    north, east = (points if plane is None else points[:, ::-1]).T
    if plane is not None:
        check_in_use(plane, east, north)
    return of_places(north, east, plane)


def of_table(
    table: TableLike,
    plane: Plane | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    static: Collection[str],
) -> Targets:
    """Places of a table and its static columns; of a plane by x and y, else degrees are brought there."""
    roles = dict(columns or {})
    if plane is not None:
        roles |= dict(zip("xy", plane.names, strict=True))
    places = read_places(table, columns=roles, static=static, plane=plane is not None)
    if (held := places.plane) is not None and plane is not None:
        east, north = (held.xy * [plane.scale_of(held.unit, name) for name in held.names]).T
        check_in_use(plane, east, north)
        found = of_places(north, east, plane, names=places.names)
    else:
        found = of_places(places.latitude_degrees, places.longitude_degrees, names=places.names)
        found = found if plane is None else _brought(found, plane)
    return replace(found, static=places.static, static_units=places.static_units)


def _grid(north: ArrayLike, east: ArrayLike, plane: Plane | None) -> Horizontal:
    """Give a grid by its axes, of degrees or of a plane."""
    axes = {
        name: xr.Variable(name, axis, about)
        for (name, about), axis in zip(_axes_of(plane).items(), (north, east), strict=True)
    }
    (y, x), dims = axes.values(), tuple(axes)
    return Horizontal(y, x, dims, axes, plane)


def of_grid(
    resolution: float, region: tuple[float, float, float, float], plane: Plane | None = None
) -> Targets:
    """Centres of the cells that tile a region (north, west, south, east), from south to north."""
    north, west, south, east = region
    unit, most = ("degrees", 90.0) if plane is None else (plane.unit or "units of x and y", np.inf)
    if not 0.0 < resolution <= most:
        above = " and at most 90" if plane is None else ""
        raise ArgumentError(f"the resolution is {resolution!r}; expected {unit}, above 0{above}.")
    cells = (north - south) * (east - west) / resolution**2
    if cells > MOST_CELLS:
        raise ArgumentError(
            f"the region has {cells:.3g} cells of {resolution:g} {unit}; expected {MOST_CELLS:,} at "
            "most. Take a coarser resolution or a smaller region."
        )
    return _of_object(
        _grid(_centres(south, north, resolution), _centres(west, east, resolution), plane), plane
    )


def region_of(observed: ObservedObject, step: float | None = None) -> tuple[float, float, float, float]:
    """North, west, south and east of the observations in whole degrees, or those of the globe.

    Of a plane: y and x in whole steps, if there is one.
    """
    if observed.plane is not None:
        x, y = observed.plane.back(observed.points.positions)
        if step is None or not step > 0.0:
            return float(y.max()), float(x.min()), float(y.min()), float(x.max())
        (west, east), (south, north) = (
            (floor(axis.min() / step), ceil(axis.max() / step)) for axis in (x, y)
        )
        return step * max(north, south + 1), step * west, step * south, step * max(east, west + 1)
    points, where = observed.points, observed.where
    latitude, longitude = points.latitude_degrees, points.longitude_degrees
    if where is not None:
        latitude, longitude = where.points
    start, gap = widest_gap(longitude)
    eastern = bool((longitude > 180.0).any())  # 0..360
    north, south = min(90.0, ceil(latitude.max())), max(-90.0, floor(latitude.min()))
    if gap <= AROUND_DEGREES:
        west = 0.0 if eastern else -180.0
        whole = north - south > 180.0 - AROUND_DEGREES
        return (
            (90.0, west, -90.0, west + 360.0) if whole else (float(north), west, float(south), west + 360.0)
        )
    west = float(floor(start if eastern else (start + 180.0) % 360.0 - 180.0))
    extent = max(1.0, float(ceil(np.max((longitude - west) % 360.0))))
    return float(max(north, south + 1)), west, float(south), west + extent


def _of_object(where: Horizontal, plane: Plane | None) -> Targets:
    """Give the targets of an object, brought to the plane of the observations or to the globe."""
    if where.nowhere.any():
        raise ArgumentError(
            f"{np.count_nonzero(where.nowhere)} of the targets have no {where.what}; expected both. "
            "Say where a map is wanted: to=0.25, in degrees, or a table of places."
        )
    axes, names, grid = where.axes, None, None
    if axes is not None:
        of = {id(axis): name for name, axis in where.coordinates.items()}
        names = of[id(where.north)], of[id(where.east)]
        if where.plane is None:
            try:
                grid = LatLonGrid.from_axes(*axes)
            except ArgumentError:  # a part of the circle, or unequally spaced: points
                grid = None
    own, (north, east) = where.plane, where.points
    same = False
    if own is not None and plane is not None and (own.crs is None or own.is_of(plane)):
        same, scales = True, [plane.scale_of(own.unit, name) for name in own.names]
        names = names if scales == [1.0, 1.0] else None
        east, north = scales[0] * east, scales[1] * north
    found = Targets(
        north,
        east,
        where.dims,
        where.shape,
        where.coordinates,
        grid,
        names,
        plane=plane if same else own,
        mapping=_mapping(plane if own is not None and own.crs is None else own),
    )
    return found if same or (plane is None and own is None) else _brought(found, plane)


def _brought(targets: Targets, plane: Plane | None) -> Targets:
    """Bring targets of globe or plane to where the observations are, where they are no grid."""
    east, north = moved(targets.plane, plane, targets.east, targets.north, what="target")
    return replace(targets, north=north, east=east, plane=plane, grid=None, axes=None)


def _mapping(plane: Plane | None) -> Mapping[str, xr.Variable]:
    """Variable of the system, by its name."""
    return {} if plane is None else plane.mapping


def _static_of_object(
    to: xr.DataArray | xr.Dataset, targets: Targets, wanted: Iterable[str]
) -> tuple[dict[str, Array], dict[str, str]]:
    """Values and units of the wanted variables at targets that are their points; a DataArray is one."""
    held = to if isinstance(to, xr.Dataset) else {to.name: to}
    static, units = {}, {}
    for name in wanted:
        found = held.get(name, held.get(bare(name)))
        if found is None or set(map(str, found.dims)) != set(targets.dims):
            continue
        numbers = found.transpose(*targets.dims).values
        told = observations(numbers, found.attrs, what=repr(name), encoding=found.encoding)
        static[name] = np.asarray(told, dtype=np.float64).ravel()
        units[name] = str(found.attrs.get("units", ""))
    return static, units


def of_kind(kind: Kind, targets: Targets, observed: ObservedObject) -> Targets:
    """Points of targets, or means over the cells around them, which end half way between, and at poles."""
    if kind not in ("grid", "cells"):
        raise ArgumentError(f'kind is {kind!r}; expected "grid" or "cells".')
    if kind == "grid":
        return targets
    if targets.axes is None:
        raise ArgumentError(
            'kind is "cells", but the targets are places, which have no cells; expected a resolution, a '
            "region or a grid with axes of latitude and longitude, or of x and y as the observations. Use "
            'kind="grid" for values at the places.'
        )
    sides, cells = (_cells_of_globe if targets.plane is None else _cells_of_plane)(targets, observed.points)
    coordinates, bounds = dict(targets.coordinates), {}
    for name, ends in zip(targets.axes, sides, strict=True):
        axis = coordinates[name]
        bounds[f"{name}_bnds"] = xr.Variable((*axis.dims, "nv"), ends.T)
        coordinates[name] = xr.Variable(axis.dims, axis.values, {**axis.attrs, "bounds": f"{name}_bnds"})
    return replace(targets, grid=None, cells=cells, coordinates=coordinates, bounds=bounds)


def _cells_of_plane(targets: Targets, points: Observations) -> tuple[tuple[Array, Array], CellMeans]:
    """Edges of y and x, each (2, n), and means over the cells between them."""
    assert targets.plane is not None
    assert targets.axes is not None
    sides, edges = [], []
    for name, values in zip(targets.axes, (targets.north, targets.east), strict=True):
        axis = np.asarray(targets.coordinates[name].values, np.float64)
        sides.append(_sides(name, axis))
        order = np.argsort(axis)
        edges.append(sides[-1][:, order[np.searchsorted(axis[order], values)]])
    spacing = median_spacing(np.unique(points.positions[points.there], axis=0))
    nodes = nodes_per_side(max(float(np.ptp(each, axis=0).max()) for each in sides), spacing)
    means = rectangle_means(
        *(edge - middle for edge, middle in zip(edges, targets.plane.centre[::-1], strict=True)),
        nodes_per_side=nodes,
    )
    return (sides[0], sides[1]), means


def _cells_of_globe(targets: Targets, points: Observations) -> tuple[tuple[Array, Array], CellMeans]:
    """Edges of latitude and longitude, each (2, n), and means over the cells between them."""
    assert targets.axes is not None
    north, east = (np.asarray(targets.coordinates[name].values, np.float64) for name in targets.axes)
    sides = _sides("latitude", np.clip(north, -90.0, 90.0)), _sides("longitude", _eastward(east))
    sides = np.clip(sides[0], -90.0, 90.0), sides[1] + (east - _eastward(east))
    rows, columns = (
        np.argsort(axis)[np.searchsorted(np.sort(axis), values)]
        for axis, values in (
            (np.clip(north, -90.0, 90.0), targets.north),
            (east, targets.east),
        )
    )
    there = points.there
    places = np.stack([points.latitude_degrees[there], points.longitude_degrees[there]])
    if points.hours is not None:  # a place is there at each of its times
        places = np.unique(places, axis=1)
    spacing = spacing_degrees(*places)
    height = round(float(np.ptp(sides[0], axis=0).max()), 6)  # axes are rounded
    means = box_means(
        *sides[0][:, rows], *sides[1][:, columns], nodes_per_side=nodes_per_side(height, spacing)
    )
    return sides, means


def _eastward(longitude: Array) -> Array:
    """Longitudes from behind the widest gap between them, in [0, 360)."""
    offset = np.mod(longitude - widest_gap(longitude)[0], 360.0)
    return np.where(offset > 360.0 - SAME_DEGREES, 0.0, offset)


def _sides(what: str, axis: Array) -> Array:
    """Lower and upper edge of the cell of each value of an axis, in any order, shape (2, n)."""
    order = np.argsort(axis)
    if axis.size < 2 or np.diff(axis[order]).min() < SAME_DEGREES:
        raise ArgumentError(
            f'kind is "cells", but the targets have {counted(axis.size, what)}'
            f"{', of which some are the same' if axis.size > 1 else ''}; expected at least two different "
            "ones, whose cells meet half way between them."
        )
    ends, sides = cell_edges(axis[order]), np.empty((2, axis.size))
    sides[:, order] = ends[:-1], ends[1:]
    return sides


def _region(given: object, plane: Plane | None) -> tuple[float, float, float, float]:
    """Check a region: north, west, south and east."""
    try:
        north, west, south, east = (float(edge) for edge in given)  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"the region is {given!r}; expected [north, west, south, east]: four numbers."
        ) from error
    if plane is not None:
        if not (np.isfinite([north, west, south, east]).all() and south < north and west < east):
            raise ArgumentError(
                f"the region is {given!r}; expected [north, west, south, east] in the plane: the largest y, "
                "the smallest x, the smallest y and the largest x."
            )
        x, y = (np.array([low, 0.5 * (low + high), high]) for low, high in ((west, east), (south, north)))
        check_in_use(plane, x, y, some=True)
        return north, west, south, east
    if east <= west and np.isfinite([west, east]).all():
        east += 360.0  # across the date line
    if not (-90.0 <= south < north <= 90.0 and -360.0 <= west < east <= west + 360.0 <= 720.0):
        raise ArgumentError(
            f"the region is {given!r}; expected [north, west, south, east] in degrees, -90 <= south < north "
            "<= 90, longitudes -180..180 or 0..360."
        )
    return north, west, south, east


def _resolution(given: object, region: tuple[float, float, float, float]) -> float:
    """Check a resolution, or choose a round one for a region."""
    if given is not None:
        if isinstance(given, (int, float, np.integer, np.floating)) and not isinstance(given, bool):
            return float(given)
        raise ArgumentError(f"the resolution is {given!r}; expected a number.")
    north, west, south, east = region
    wanted = max(north - south, east - west) / CELLS_ACROSS
    decade = 10.0 ** floor(log10(wanted))
    return min(
        (factor * decade for factor in (1.0, 2.0, 2.5, 5.0, 10.0)), key=lambda step: abs(log10(step / wanted))
    )


def _centres(start: float, stop: float, resolution: float) -> Array:
    count = max(1, round((stop - start) / resolution))
    step = (stop - start) / count
    return np.asarray(np.round(start + (np.arange(count) + 0.5) * step, 9))


def _axes_of(plane: Plane | None) -> Mapping[str, Mapping[str, object]]:
    """Names and CF attributes of the axes of a grid: latitude and longitude, or y and x."""
    if plane is not None:
        return {"y": plane.axis(1), "x": plane.axis(0)}
    letters = {"latitude": "Y", "longitude": "X"}
    return {what: {**COORDINATES[what], "axis": letter} for what, letter in letters.items()}
