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

from cagp_dist.arrays import Array
from cagp_dist.checks import as_numbers
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import SAME_DEGREES, cell_edges, spacing_degrees, unit_sphere, widest_gap
from cagp_dist.gram.cell_means import MOST_CELLS, CellMeans, box_means, nodes_per_side
from cagp_dist.kriging.axes import Horizontal, horizontal
from cagp_dist.kriging.observed_objects import ObservedObject, check_pairs
from cagp_dist.latlon import LatLonGrid
from cagp_dist.mapping.map_points import MapPoints
from cagp_dist.missing import observations
from cagp_dist.store.published_variables import COORDINATES, STATION_NAME
from cagp_dist.tables import DataFrameLike, Names, TableLike, read_places
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

    latitude_degrees: Array  # (q,), last dimension fastest
    longitude_degrees: Array
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coordinates: Mapping[str, xr.Variable]  # in the order and convention in which they were given
    grid: LatLonGrid | None = None  # the full-circle grid that the points are, row by row
    axes: tuple[str, str] | None = None  # names of the latitude and the longitude axis of a grid
    cells: CellMeans | None = None  # means over the cells around the points, where these are wanted
    bounds: Mapping[str, xr.Variable] = field(default_factory=dict)  # edges of these cells
    static: Mapping[str, Array] = field(default_factory=dict)  # (q,), what a drift has of the table, if said
    hours: Array | None = None  # (A,), of maps at times, which are the first dimension

    @cached_property
    def unit_vectors(self) -> Array:
        """Unit vectors of the places, shape (q, 3)."""
        return unit_sphere(self.latitude_degrees, self.longitude_degrees)

    @cached_property
    def points(self) -> MapPoints:
        """Where the map is wanted, in numbers alone."""
        found = MapPoints(self.unit_vectors, self.grid, self.cells)
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
            raise ArgumentError(
                "the observations are a table, so say where you want a map: to=0.25 (degrees, "
                'over the region of the observations), to={"resolution": 0.25, "region": [north, west, '
                "south, east]}, a grid of xarray, or a table of places."
            )
        return _of_object(observed.where)
    if isinstance(to, (xr.DataArray, xr.Dataset)):
        found = _of_object(horizontal(to))
        return replace(found, static=_static_of_object(to, found, observed.static))
    if isinstance(to, LatLonGrid):
        return of_axes(to.latitude_degrees, to.longitude_degrees)
    if isinstance(to, (int, float, np.integer, np.floating)) and not isinstance(to, bool):
        return of_grid(float(to), region_of(observed))
    if isinstance(to, Mapping) and to and set(to) <= GRID_KEYS:
        if {"region", "area"} <= set(to):
            raise ArgumentError("to has the keys region and area, which mean the same; expected one of them.")
        given = to.get("region", to.get("area"))
        region = region_of(observed) if given is None else _region(given)
        return of_grid(_resolution(to.get("resolution"), region), region)
    if isinstance(to, Mapping) and (
        set(to) & GRID_KEYS or all(isinstance(given, (int, float, str)) for given in to.values())
    ):
        raise ArgumentError(
            f'to has the keys {", ".join(map(repr, to))}; a grid has "resolution" and "region", a table of '
            "places has vectors of latitudes and longitudes."
        )
    if isinstance(to, (Mapping, str, os.PathLike, DataFrameLike)):
        return of_table(to, static=list(observed.static))
    if isinstance(to, Sequence) and np.shape(to) == (4,):
        region = _region(to)
        return of_grid(_resolution(None, region), region)
    raise ArgumentError(
        f"to is {to!r}; expected a resolution in degrees, [north, west, south, east], a mapping with "
        'the keys "resolution" and "region", a grid of xarray, or a table of places.'
    )


def of_places(
    latitude_degrees: ArrayLike,
    longitude_degrees: ArrayLike,
    *,
    dim: str = "place",
    names: Names | None = None,
) -> Targets:
    """Places one by one, with their names where they have any."""
    latitude = np.asarray(latitude_degrees, dtype=np.float64)
    longitude = np.asarray(longitude_degrees, dtype=np.float64)
    coordinates = {
        "latitude": xr.Variable(dim, latitude, _attributes("latitude")),
        "longitude": xr.Variable(dim, longitude, _attributes("longitude")),
    }
    if names is not None:
        coordinates[STATION_NAME] = xr.Variable(dim, names, COORDINATES[STATION_NAME])
    return Targets(latitude, longitude, (dim,), latitude.shape, coordinates)


def are_rows(to: object) -> bool:
    """Whether this is an array, or a list of pairs; a region is a list of numbers."""
    if isinstance(to, list | tuple):
        return bool(to) and all(isinstance(row, list | tuple) for row in to)
    return isinstance(to, np.ndarray)


def of_array(X: ArrayLike) -> Targets:
    """Places by their latitudes and longitudes (n, 2), in degrees."""
    points = as_numbers("X", X)
    check_pairs(points)
    return of_places(points[:, 0], points[:, 1])


def of_table(
    table: TableLike, *, latitude: str | None = None, longitude: str | None = None, static: Collection[str]
) -> Targets:
    """Places of a table, by the names of its columns, and its static columns."""
    places = read_places(table, latitude=latitude, longitude=longitude, static=static)
    found = of_places(places.latitude_degrees, places.longitude_degrees, names=places.names)
    return replace(found, static=places.static)


def of_axes(latitude_degrees: ArrayLike, longitude_degrees: ArrayLike) -> Targets:
    """Points of a grid by its axes."""
    latitude = xr.Variable("latitude", latitude_degrees, {**_attributes("latitude"), "axis": "Y"})
    longitude = xr.Variable("longitude", longitude_degrees, {**_attributes("longitude"), "axis": "X"})
    coordinates = {"latitude": latitude, "longitude": longitude}
    return _of_object(Horizontal(latitude, longitude, ("latitude", "longitude"), coordinates))


def of_grid(resolution_degrees: float, region: tuple[float, float, float, float]) -> Targets:
    """Centres of the cells that tile a region (north, west, south, east), from south to north."""
    north, west, south, east = region
    if not 0.0 < resolution_degrees <= 90.0:
        raise ArgumentError(
            f"the resolution is {resolution_degrees!r}; expected degrees, above 0 and at most 90."
        )
    cells = (north - south) * (east - west) / resolution_degrees**2
    if cells > MOST_CELLS:
        raise ArgumentError(
            f"the region has {cells:.3g} cells of {resolution_degrees:g} degrees; expected {MOST_CELLS:,} at "
            "most. Take a coarser resolution or a smaller region."
        )
    return of_axes(_centres(south, north, resolution_degrees), _centres(west, east, resolution_degrees))


def region_of(observed: ObservedObject) -> tuple[float, float, float, float]:
    """North, west, south and east of the observations in whole degrees, or those of the globe."""
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


def _of_object(where: Horizontal) -> Targets:
    if where.nowhere.any():
        raise ArgumentError(
            f"{np.count_nonzero(where.nowhere)} of the targets have no latitude or longitude; expected both. "
            "Say where a map is wanted: to=0.25, in degrees, or a table of places."
        )
    latitude, longitude = where.points
    grid = None
    axes = where.axes
    if axes is not None:
        try:
            grid = LatLonGrid.from_axes(*axes)
        except ArgumentError:  # a part of the circle, or unequally spaced: points
            grid = None
    names = None
    if axes is not None:
        of = {id(axis): name for name, axis in where.coordinates.items()}
        names = of[id(where.latitude)], of[id(where.longitude)]
    return Targets(latitude, longitude, where.dims, where.shape, where.coordinates, grid, names)


def _static_of_object(
    to: xr.DataArray | xr.Dataset, targets: Targets, wanted: Iterable[str]
) -> dict[str, Array]:
    """Values of the wanted variables of a dataset at targets that are its points."""
    if not isinstance(to, xr.Dataset):
        return {}
    return {
        name: np.asarray(
            observations(
                to[name].transpose(*targets.dims).values,
                to[name].attrs,
                what=repr(name),
                encoding=to[name].encoding,
            ),
            dtype=np.float64,
        ).ravel()
        for name in wanted
        if name in to and set(map(str, to[name].dims)) == set(targets.dims)
    }


def of_kind(kind: Kind, targets: Targets, observed: ObservedObject) -> Targets:
    """Points of targets, or the cells around them."""
    if kind not in ("grid", "cells"):
        raise ArgumentError(f'kind is {kind!r}; expected "grid" or "cells".')
    return as_cells(targets, observed) if kind == "cells" else targets


def as_cells(targets: Targets, observed: ObservedObject) -> Targets:
    """Means over the cells of a grid, which end half way between its points and at the poles."""
    if targets.axes is None:
        raise ArgumentError(
            'kind is "cells", but the targets are places, which have no cells; expected a resolution, a '
            'region or a grid with axes of latitude and longitude. Use kind="grid" for values at the places.'
        )
    north, east = (np.asarray(targets.coordinates[name].values, np.float64) for name in targets.axes)
    sides = _sides("latitude", np.clip(north, -90.0, 90.0)), _sides("longitude", _eastward(east))
    sides = np.clip(sides[0], -90.0, 90.0), sides[1] + (east - _eastward(east))
    rows, columns = (
        np.argsort(axis)[np.searchsorted(np.sort(axis), values)]
        for axis, values in (
            (np.clip(north, -90.0, 90.0), targets.latitude_degrees),
            (east, targets.longitude_degrees),
        )
    )
    points = observed.points
    there = points.there
    places = np.stack([points.latitude_degrees[there], points.longitude_degrees[there]])
    if points.hours is not None:  # a place is there at each of its times
        places = np.unique(places, axis=1)
    spacing = spacing_degrees(*places)
    height = round(float(np.ptp(sides[0], axis=0).max()), 6)  # axes are rounded
    cells = box_means(
        *sides[0][:, rows], *sides[1][:, columns], nodes_per_side=nodes_per_side(height, spacing)
    )
    coordinates, bounds = dict(targets.coordinates), {}
    for name, ends in zip(targets.axes, sides, strict=True):
        axis = coordinates[name]
        bounds[f"{name}_bnds"] = xr.Variable((*axis.dims, "nv"), ends.T)
        coordinates[name] = xr.Variable(axis.dims, axis.values, {**axis.attrs, "bounds": f"{name}_bnds"})
    return replace(targets, grid=None, cells=cells, coordinates=coordinates, bounds=bounds)


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


def _region(given: object) -> tuple[float, float, float, float]:
    try:
        north, west, south, east = (float(edge) for edge in given)  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"the region is {given!r}; expected [north, west, south, east] in degrees."
        ) from error
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
        raise ArgumentError(f"the resolution is {given!r}; expected a number of degrees.")
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


def _attributes(what: str) -> dict[str, str]:
    direction = {"latitude": "north", "longitude": "east"}[what]
    return {"standard_name": what, "long_name": what, "units": f"degrees_{direction}"}
