"""Which points are observed, which are scored and which are mapped: pure functions of coordinates."""

from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import ConfigurationError
from cagp_dist.geometry import space_filling_order, unit_sphere
from cagp_dist.service.jobfile.tables import AllPoints, DesignTable, MapGrid, RandomPoints, StridePoints

MOST_CELLS = 10_000_000
"""Cells of a map, at most: a tenth of a degree for the whole globe, and some to spare."""


@dataclass(frozen=True, eq=False)
class MapCells:
    """Centres of the cells of a regular map.

    Attributes
    ----------
    latitude_degrees : array of float64, shape (rows,)
        Ascending; never a pole, where a cell has no area.
    longitude_degrees : array of float64, shape (columns,)
        Ascending, in [0, 360), as in the canonical field, also when the map crosses Greenwich.
    """

    latitude_degrees: Array
    longitude_degrees: Array

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.latitude_degrees.size * self.longitude_degrees.size

    def points(self) -> tuple[Array, Array]:
        """Latitude and longitude of every cell, longitude running fastest, each of shape (size,)."""
        latitude, longitude = np.meshgrid(self.latitude_degrees, self.longitude_degrees, indexing="ij")
        return latitude.ravel(), longitude.ravel()


@dataclass(frozen=True, eq=False)
class Design:
    """The chosen points.

    Attributes
    ----------
    train : array of int, shape (n,)
        Observed points in solver order, blocks of neighbours (`space_filling_order`).
    test : array of int, shape (q,)
        Scored points, ascending; none of them in ``train``.
    cells : MapCells or None
        The map, if one was asked for.
    """

    train: Indices
    test: Indices
    cells: MapCells | None


def design_points(
    latitude_degrees: Array, longitude_degrees: Array, *, table: DesignTable, block_size: int
) -> Design:
    """Choose the observed, the scored and the mapped points.

    Random points are drawn with equal probability for each *point*, not each area: on a
    latitude-longitude grid they are denser towards the poles, which the area-weighted scores make up for.
    A random or ``all`` choice leaves out what the other one takes; two strides are taken as they are.

    Parameters
    ----------
    latitude_degrees, longitude_degrees : array of float64, shape (N,)
        All points of the field.
    table : DesignTable
        The ``[design]`` of a job.
    block_size : int
        Points of a block in solver order.

    Returns
    -------
    Design

    Raises
    ------
    ConfigurationError
        If more points are asked than exist, train and test overlap, or one of them is empty.
    """
    train, test = _split(latitude_degrees, longitude_degrees, table)
    shared = np.intersect1d(train, test)
    if shared.size:
        raise ConfigurationError(
            f"[design] train and test share {shared.size} of {test.size} test points; a score on observed "
            "points says nothing. Give the two strides one step and different offsets, or a random test."
        )
    for name, chosen in (("train", train), ("test", test)):
        if chosen.size == 0:
            raise ConfigurationError(
                f"[design] {name} selects none of the {latitude_degrees.size} points; choose a smaller "
                "step or count for the other set, or a larger area."
            )
    ordered = space_filling_order(
        unit_sphere(latitude_degrees[train], longitude_degrees[train]), block_size=block_size
    )
    cells = None if table.map is None else map_cells(table.map, latitude_degrees, longitude_degrees)
    return Design(train=train[ordered], test=test, cells=cells)


def _split(latitude: Array, longitude: Array, table: DesignTable) -> tuple[Indices, Indices]:
    """Choose train and test: strides first, for they say which points; then draws; then all the rest."""
    everything = np.arange(latitude.size)
    tables = {"train": table.train, "test": table.test}
    chosen: dict[str, Indices] = {}
    for name, wanted in tables.items():
        if isinstance(wanted, StridePoints):
            chosen[name] = _stride(latitude, longitude, wanted)
    for stream, (name, wanted) in enumerate(tables.items()):
        if isinstance(wanted, RandomPoints):
            taken = next(iter(chosen.values()), everything[:0])
            chosen[name] = _draw(name, wanted, total=latitude.size, taken=taken, stream=stream)
    if isinstance(table.train, AllPoints):
        chosen["train"] = np.setdiff1d(everything, chosen["test"])
    return chosen["train"], chosen["test"]


def _draw(name: str, wanted: RandomPoints, *, total: int, taken: Indices, stream: int) -> Indices:
    """Draw points that are not taken, ascending; the stream keeps equal seeds of two draws apart."""
    free = np.setdiff1d(np.arange(total), taken)
    if wanted.count > free.size:
        others = f", of which the other set takes {taken.size}" if taken.size else ""
        raise ConfigurationError(
            f"[design] {name}.count asks for {wanted.count} points, but the field has {total}{others}; "
            f"at most {free.size} can be asked. Lower the count, or take a larger area or a finer grid."
        )
    generator = np.random.default_rng(np.random.SeedSequence(wanted.seed, spawn_key=(stream,)))
    return np.sort(generator.choice(free, size=wanted.count, replace=False))


def _stride(latitude: Array, longitude: Array, wanted: StridePoints) -> Indices:
    """Take every ``step``-th row of every ``step``-th column of the grid, from ``offset``."""
    rows = _rank(latitude)
    columns = _rank(_eastward(longitude))
    kept = (rows % wanted.step == wanted.offset) & (columns % wanted.step == wanted.offset)
    return np.flatnonzero(kept)


def _rank(degrees: Array) -> Indices:
    """Rank of each value among the different values, equal to a millionth of a degree."""
    return np.unique(np.round(degrees, 6), return_inverse=True)[1].reshape(-1)


def map_cells(table: MapGrid, latitude_degrees: Array, longitude_degrees: Array) -> MapCells:
    """Cells that fill the area of a map.

    Parameters
    ----------
    table : MapGrid
        Resolution, rounded so that whole cells fill the area, and the area; if none is given it is that
        of the points: the whole globe, or the box around them.
    latitude_degrees, longitude_degrees : array of float64, shape (N,)
        All points of the field.

    Returns
    -------
    MapCells

    Raises
    ------
    ConfigurationError
        If the map has more than `MOST_CELLS` cells.
    """
    if table.area is None:
        north, west, south, east = points_area(latitude_degrees, longitude_degrees)
    else:
        north, west, south, east = table.area
        east = east if east > west else east + 360.0
    rows, columns = (extent / table.resolution_degrees for extent in (north - south, east - west))
    if max(rows, 1.0) * max(columns, 1.0) > MOST_CELLS:
        raise ConfigurationError(
            f"[design] map has {rows:.3g} x {columns:.3g} cells of {table.resolution_degrees:g} degrees, "
            f"and may have {MOST_CELLS:,} at most. Raise resolution_degrees, or give the map a smaller area."
        )
    longitude = _centres(west, east, table.resolution_degrees)
    return MapCells(
        latitude_degrees=_centres(south, north, table.resolution_degrees),
        longitude_degrees=np.sort(np.mod(longitude, 360.0)),
    )


def _centres(start: float, stop: float, resolution: float) -> Array:
    count = max(1, round((stop - start) / resolution))
    centres = start + (np.arange(count) + 0.5) * ((stop - start) / count)
    return np.asarray(centres, dtype=np.float64)


def points_area(latitude_degrees: Array, longitude_degrees: Array) -> tuple[float, float, float, float]:
    """North, west, south and east of the smallest box that holds the points.

    A full circle of longitudes is 0..360, and a full circle that reaches within one row of a pole
    reaches the pole. A box across the Greenwich meridian has a negative west.
    """
    south, north = float(latitude_degrees.min()), float(latitude_degrees.max())
    eastward = np.unique(_eastward(longitude_degrees))
    west, east = float(eastward[0]), float(eastward[-1])
    spacing = float(np.median(np.diff(eastward))) if eastward.size > 1 else 0.0
    if 360.0 - (east - west) > 1.5 * spacing:
        return north, west, south, east
    row = float(np.median(np.diff(np.unique(latitude_degrees)))) if north > south else 0.0
    return (
        90.0 if north + row > 90.0 - 1e-6 else north,
        0.0,
        -90.0 if south - row < -90.0 + 1e-6 else south,
        360.0,
    )


def _eastward(longitude: Array) -> Array:
    """Longitudes without a jump: counted from behind the widest gap between them, west in [-180, 360)."""
    wrapped = np.mod(longitude, 360.0)
    values = np.unique(wrapped)
    gaps = np.diff(values, append=values[0] + 360.0)
    if gaps[-1] >= gaps.max() - 1e-6:
        return wrapped
    west = values[int(np.argmax(gaps)) + 1]
    return np.where(wrapped >= west, wrapped - 360.0, wrapped)
