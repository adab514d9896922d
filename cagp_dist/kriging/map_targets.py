"""Where a map is wanted: the grid of an object, a grid by its resolution, a region, or a table of places."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import floor, log10
from typing import Literal, TypeAlias, cast

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Mask, Names
from cagp_dist.checks import as_numbers
from cagp_dist.errors import ArgumentError
from cagp_dist.fields.axes import Horizontal, located, on_plane
from cagp_dist.fields.missing import observations
from cagp_dist.fields.observed_objects import ObservedObject, check_pairs
from cagp_dist.fields.tables import TableLike, check_depth_units, is_table, read_places
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.kernels import DEPTH
from cagp_dist.latlon import LatLonGrid
from cagp_dist.means import StaticField
from cagp_dist.pipeline.map_cells import MapCells, tiled
from cagp_dist.pipeline.map_points import MapPoints
from cagp_dist.remedies import Setting
from cagp_dist.space import SPHERE, Region, Space, moved
from cagp_dist.store.published_variables import COORDINATES, STATION_NAME, about_depth
from cagp_dist.variables import bare

Kind: TypeAlias = Literal["grid", "cells"]
To: TypeAlias = "xr.DataArray | xr.Dataset | LatLonGrid | float | Sequence[float] | TableLike | None"

CELLS_ACROSS = 100  # Cells along the longer side of a region for which no resolution was given, about
# A region is called area in jobs and by the Climate Data Store; here either word does
GRID_KEYS = {"resolution", "region", "area"}


@dataclass(frozen=True, eq=False)
class MapTargets:
    """Places, and the coordinates that results on them are given."""

    north: Array  # (q,), last dimension fastest: latitudes in degrees, or y of a plane
    east: Array  # longitudes, or x
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coordinates: Mapping[str, xr.Variable]  # in the order and convention in which they were given
    grid: LatLonGrid | None = None  # the full-circle grid that the points are, row by row
    axes: tuple[str, str] | None = None  # names of the axes of a grid: latitude and longitude, or y and x
    cells: LinearFunctionals | None = None  # means over the cells around the points, or areas, if wanted
    bounds: Mapping[str, xr.Variable] = field(default_factory=dict)  # edges of these cells
    static: Mapping[str, Array] = field(default_factory=dict)  # (q,), what a drift has of the table, if said
    static_units: Mapping[str, str] = field(default_factory=dict)  # of these, empty where none is stated
    fields: Mapping[str, StaticField] = field(default_factory=dict)  # of a column of the table, within areas
    known: Mask | None = None  # (q,), of the targets that have a value of the drift; None: all
    depths: Array | None = None  # (q,), where the observations have some
    hours: Array = field(default_factory=lambda: np.empty(0))  # (A,), of maps at times, the first dimension
    space: Space = SPHERE  # of the observations
    mapping: Mapping[str, xr.Variable] = field(default_factory=dict)  # system of the coordinates, by its name

    @cached_property
    def positions(self) -> Array:
        """Positions of the places, shape (q, p)."""
        return self.space.positions(self.north, self.east)

    @property
    def in_time(self) -> bool:
        """Whether these are maps at times."""
        return self.hours.size > 0

    @cached_property
    def points(self) -> MapPoints:
        """Where the map is wanted, in numbers alone, and the drift is known."""
        found = MapPoints(self.positions, self.grid, self.cells)
        found = found if self.known is None else found.part(np.flatnonzero(self.known))
        return found.at_hours(self.hours) if self.in_time else found

    def at_times(self, hours: Array, time: xr.Variable) -> "MapTargets":
        """Give all of them at times (A,), hours of observations in space and time."""
        return replace(
            self,
            dims=("time", *self.dims),
            shape=(hours.size, *self.shape),
            coordinates={"time": time, **self.coordinates},
            hours=hours,
        )

    def at_depths(self, depths: Array, about: Mapping[str, str]) -> "MapTargets":
        """Give all of them at depths (d,), the first dimension then, or at a single one ()."""
        many = max(depths.size, 1)
        dims = (DEPTH,) * depths.ndim
        return replace(
            self,
            north=np.tile(self.north, many),
            east=np.tile(self.east, many),
            dims=(*dims, *self.dims),
            shape=(*depths.shape, *self.shape),
            coordinates={DEPTH: xr.Variable(dims, depths, about), **self.coordinates},
            grid=None,
            static={name: np.tile(own, many) for name, own in self.static.items()},
            depths=np.repeat(depths, self.north.size),
        )


def find_targets(to: To, observed: ObservedObject) -> MapTargets:
    """Read what a map is wanted on; of observations with depths, with the depths of targets."""
    found, known, given = _places_of(to, observed), observed.depths, None
    if isinstance(to, (xr.DataArray, xr.Dataset)):
        names = [DEPTH] if known is None else [known.name, DEPTH]
        given = next((to[name] for name in names if name in to.coords), None)
    if known is None:
        if given is not None and given.dims == (DEPTH,) and given.size > 1:
            raise ArgumentError(
                "the targets have several depths, and the observations have none; expected the column that "
                "has it, or targets without.",
                key="depth-of-targets",
                remedies=(Setting("columns", {DEPTH: "COLUMN"}),),
            )
        return found
    if given is not None:
        found = _at_given(found, given, known.units)
    if found.depths is None:
        return found
    check_depth_units(found.coordinates[DEPTH].attrs.get("units", ""), known.units)
    only = float(known.values[0])
    if DEPTH not in observed.points.beside and (found.depths != only).any():
        raise ArgumentError(
            f"all observations have the depth {only:g}, and the targets have others, of which nothing is "
            "known; expected targets at this depth.",
            key="depth-of-targets",
        )
    return found


def _at_given(found: MapTargets, given: xr.DataArray, units: str) -> MapTargets:
    """Give targets at the depths of a coordinate: one, several as a dimension, or one of each place."""
    depths, dims = np.asarray(given.values, dtype=np.float64), tuple(map(str, given.dims))
    if not (np.isfinite(depths).all() and (depths >= 0.0).all()):
        raise ArgumentError(
            "a depth of the targets is below zero or NaN; expected depths from 0 at the surface, positive "
            "downward.",
            key="depth-sign",
        )
    about = about_depth(str(given.attrs.get("units", units)))
    if len(dims) <= 1 and not {*dims} & {*found.dims}:
        return found.at_depths(depths, about)
    if dims == found.dims:
        along = {DEPTH: xr.Variable(dims, depths, about)}
        return replace(found, depths=depths.ravel(), coordinates={**found.coordinates, **along}, grid=None)
    raise ArgumentError(
        f"the depth of the targets has the dimensions {', '.join(dims)}; expected one of its own, or "
        f"{', '.join(found.dims)}.",
        key="depth-of-targets",
    )


def _places_of(to: To, observed: ObservedObject) -> MapTargets:
    """Read where a map is wanted."""
    space = observed.space
    if to is None:
        if observed.where is None:
            step = f"{0.25 if space.has_latitudes else 1000.0}"
            unit = f"in {space.unit}" if space.unit else f"in the unit of {space.what}"
            raise ArgumentError(
                f"the observations are a table, so say where you want a map: to={step} ({unit}, over the "
                f'region of the observations), to={{"resolution": {step}, "region": [north, west, south, '
                "east]}, a grid of xarray, or a table of places.",
                key="to-missing",
            )
        return _of_object(observed.where, space)
    if isinstance(to, (xr.DataArray, xr.Dataset)):
        flat = None if space.has_latitudes else on_plane(to)  # in a plane, where both have x and y
        found = _of_object(located(to) if flat is None else flat, space)
        static, units = _static_of_object(to, found, observed.static)
        return replace(found, static=static, static_units=units)
    if isinstance(to, LatLonGrid):
        return _of_object(_grid(to.latitude_degrees, to.longitude_degrees, SPHERE), space)
    if isinstance(to, (int, float, np.integer, np.floating)) and not isinstance(to, bool):
        return of_grid(float(to), observed.points.extent(float(to)), space)
    if isinstance(to, Mapping) and to and set(to) <= GRID_KEYS:
        if {"region", "area"} <= set(to):
            raise ArgumentError(
                "to has the keys region and area, which mean the same; expected one of them.", key="to-keys"
            )
        given, resolution = to.get("region", to.get("area")), to.get("resolution")
        if given is None:
            region = observed.points.extent(_resolution(resolution, observed.points.extent()))
        else:
            region = _region(given, space)
        return of_grid(_resolution(resolution, region), region, space)
    if isinstance(to, Mapping) and (
        set(to) & GRID_KEYS or all(isinstance(given, (int, float, str)) for given in to.values())
    ):
        raise ArgumentError(
            f'to has the keys {", ".join(map(repr, to))}; a grid has "resolution" and "region", a table of '
            "places has vectors of latitudes and longitudes.",
            key="to-keys",
        )
    if isinstance(to, (str, os.PathLike)) or is_table(to):
        # of a table that has more columns, these are not looked at
        deep = [] if observed.depths is None else [observed.depths.name, DEPTH]
        return of_table(cast("TableLike", to), space, static=list(observed.static), depth=deep)
    if isinstance(to, Sequence) and np.shape(to) == (4,):
        region = _region(to, space)
        return of_grid(_resolution(None, region), region, space)
    raise ArgumentError(
        f"to is {to!r}; expected a resolution in degrees, [north, west, south, east], a mapping with "
        'the keys "resolution" and "region", a grid of xarray, or a table of places.',
        key="to-type",
    )


def of_places(
    north: ArrayLike,
    east: ArrayLike,
    space: Space = SPHERE,
    *,
    dim: str = "place",
    names: Names | None = None,
) -> MapTargets:
    """Places one by one, by latitude and longitude or y and x, with their names where they have any."""
    north, east = (np.asarray(axis, dtype=np.float64) for axis in (north, east))
    coordinates = {
        name: xr.Variable(dim, axis, {key: text for key, text in about.items() if key != "axis"})
        for (name, about), axis in zip(space.axes.items(), (north, east), strict=True)
    }
    if names is not None:
        coordinates[STATION_NAME] = xr.Variable(dim, names, COORDINATES[STATION_NAME])
    return MapTargets(north, east, (dim,), north.shape, coordinates, space=space, mapping=space.mapping)


def are_rows(to: object) -> bool:
    """Whether this is an array, or a list of pairs; a region is a list of numbers."""
    if isinstance(to, list | tuple):
        return bool(to) and all(isinstance(row, list | tuple) for row in to)
    return isinstance(to, np.ndarray)


def of_array(X: ArrayLike, space: Space, static: Sequence[str] = ()) -> MapTargets:
    """Places by latitudes and longitudes (n, 2), in degrees, or x and y in a plane, and static columns."""
    points = as_numbers("X", X)
    check_pairs(points, space, static)
    north, east = space.of_columns(points[:, :2])
    space.check(north, east)
    found = of_places(north, east, space)
    if points.shape[1] == 2:
        return found
    return replace(found, static=dict(zip(static, points[:, 2:].T, strict=True)))


def of_table(
    table: TableLike,
    space: Space = SPHERE,
    *,
    columns: Mapping[str, str] | None = None,
    static: Collection[str],
    depth: Collection[str] = (),
    timed: bool = False,
) -> MapTargets:
    """Places of a table and its static columns; of a plane by x and y, else degrees are brought there.

    ``timed`` says that the table may have times, which are passed over.
    """
    places = read_places(table, space, columns=columns, static=static, depth=depth, timed=timed)
    found = _brought(of_places(*places.beside(space), names=places.names), space)
    if (deep := places.depths) is not None:
        along = xr.Variable(found.dims, deep.values, about_depth(deep.units))
        found = replace(found, depths=deep.values, coordinates={**found.coordinates, DEPTH: along})
    return replace(found, static=places.static, static_units=places.static_units)


def _grid(north: ArrayLike, east: ArrayLike, space: Space) -> Horizontal:
    """Give a grid by its axes."""
    axes = {
        name: xr.Variable(name, axis, about)
        for (name, about), axis in zip(space.axes.items(), (north, east), strict=True)
    }
    (y, x), dims = axes.values(), tuple(axes)
    return Horizontal(y, x, dims, axes, space)


def of_grid(resolution: float, region: Region, space: Space = SPHERE) -> MapTargets:
    """Centres of the cells that tile a region, from south to north."""
    unit = space.unit or f"units of {space.what}"
    if not 0.0 < resolution <= space.coarsest:
        above = f" and at most {space.coarsest:g}" if np.isfinite(space.coarsest) else ""
        raise ArgumentError(
            f"the resolution is {resolution!r}; expected {unit}, above 0{above}.", key="resolution"
        )
    cells = tiled(region, resolution, space)
    return _of_object(_grid(cells.north, cells.east, space), space)


def _of_object(where: Horizontal, space: Space) -> MapTargets:
    """Give the targets of an object, brought to where the observations are."""
    if where.nowhere.any():
        raise ArgumentError(
            f"{np.count_nonzero(where.nowhere)} of the targets have no {where.space.what}; expected both. "
            "Say where a map is wanted: to=0.25, in degrees, or a table of places.",
            key="targets-nowhere",
        )
    axes, names, grid = where.axes, None, None
    if axes is not None:
        of = {id(axis): name for name, axis in where.coordinates.items()}
        names = of[id(where.north)], of[id(where.east)]
        if where.space.has_latitudes:
            try:
                grid = LatLonGrid.from_axes(*axes)
            except ArgumentError:  # a part of the circle, or unequally spaced: points
                grid = None
    own, (north, east), factor = where.space, where.points, space.factor_of(where.space)
    if factor is not None:
        names = names if factor == 1.0 else None
        north, east = factor * north, factor * east
    found = MapTargets(
        north,
        east,
        where.dims,
        where.shape,
        where.coordinates,
        grid,
        names,
        space=own if factor is None else space,
        mapping=(own if own.is_placed else space).mapping,
    )
    return found if factor is not None else _brought(found, space)


def _brought(targets: MapTargets, space: Space) -> MapTargets:
    """Bring targets to where the observations are; elsewhere they are no grid."""
    if space.is_same(targets.space):
        return targets
    north, east = moved(targets.space, space, targets.north, targets.east, what="target")
    return replace(targets, north=north, east=east, space=space, grid=None, axes=None)


def _static_of_object(
    to: xr.DataArray | xr.Dataset, targets: MapTargets, wanted: Iterable[str]
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


def of_kind(kind: Kind, targets: MapTargets, observed: ObservedObject) -> MapTargets:
    """Points of targets, or means over the cells around them, which end half way between, and at poles."""
    if kind not in ("grid", "cells"):
        raise ArgumentError(f'kind is {kind!r}; expected "grid" or "cells".', key="map-kind")
    if kind == "grid":
        return targets
    if targets.depths is not None:
        raise ArgumentError(
            'kind is "cells", and the observations have depths; expected kind="grid", values at the depths.',
            key="depth-of-cells",
        )
    if targets.axes is None:
        raise ArgumentError(
            'kind is "cells", but the targets are places, which have no cells; expected a resolution, a '
            "region or a grid with axes of latitude and longitude, or of x and y as the observations. Use "
            'kind="grid" for values at the places.',
            key="places-as-cells",
        )
    space, (y, x) = targets.space, (targets.coordinates[name] for name in targets.axes)
    north, east = (np.asarray(axis.values, dtype=np.float64) for axis in (y, x))
    cells = MapCells(north, east, edges=space.edges(north, east), space=space)
    index = np.indices(targets.shape)
    rows, columns = (index[targets.dims.index(str(axis.dims[0]))].ravel() for axis in (y, x))
    means = cells.means(rows, columns, observed.points.spacing(observed.points.there))
    coordinates, bounds = dict(targets.coordinates), {}
    for name, ends in zip(targets.axes, cells.edges or (), strict=True):
        axis = coordinates[name]
        bounds[f"{name}_bnds"] = xr.Variable((*axis.dims, "nv"), ends.T)
        coordinates[name] = xr.Variable(axis.dims, axis.values, {**axis.attrs, "bounds": f"{name}_bnds"})
    return replace(targets, grid=None, cells=means, coordinates=coordinates, bounds=bounds)


def _region(given: object, space: Space) -> Region:
    """Check a region: north, west, south and east."""
    try:
        north, west, south, east = (float(edge) for edge in given)  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"the region is {given!r}; expected [north, west, south, east]: four numbers.", key="region"
        ) from error
    return space.region(given, (north, west, south, east))


def _resolution(given: object, region: Region) -> float:
    """Check a resolution, or choose a round one for a region."""
    if given is not None:
        if isinstance(given, (int, float, np.integer, np.floating)) and not isinstance(given, bool):
            return float(given)
        raise ArgumentError(f"the resolution is {given!r}; expected a number.", key="resolution")
    north, west, south, east = region
    wanted = max(north - south, east - west) / CELLS_ACROSS
    decade = 10.0 ** floor(log10(wanted))
    return min(
        (factor * decade for factor in (1.0, 2.0, 2.5, 5.0, 10.0)), key=lambda step: abs(log10(step / wanted))
    )
