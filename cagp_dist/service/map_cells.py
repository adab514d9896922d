"""What a job file says of its map: which cells, how their error bars are found, and places of a table."""

from dataclasses import dataclass, replace

import numpy as np

from cagp_dist.arrays import Array, Indices, Names
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.geometry import unwrapped_longitudes
from cagp_dist.pipeline import Affine, Solver
from cagp_dist.pipeline.map_cells import MapCells, tiled
from cagp_dist.service.jobfile.design_table import MapGrid
from cagp_dist.space import SPHERE, Space

DEFAULT_SAMPLES = 400  # Of a fine map: a standard error of 3.5 % of its error bars
MOST_COLUMNS = 8_000  # Cells up to which each has a column of the solve, where the job does not say


@dataclass(frozen=True, eq=False)
class Wanted:
    """Places of a table that are to be predicted, q of them."""

    north: Array
    east: Array
    space: Space = SPHERE
    names: Names | None = None

    @property
    def X(self) -> Array:
        """Their positions, shape (q, p)."""
        return self.space.positions(self.north, self.east)

    def at(self, chosen: Indices) -> "Wanted":
        """Take some of them."""
        names = None if self.names is None else self.names[chosen]
        return replace(self, north=self.north[chosen], east=self.east[chosen], names=names)


def cells_of(
    table: MapGrid | None, north: Array, east: Array, *, space: Space = SPHERE
) -> tuple[MapCells | None, MapCells | None]:
    """Cells of the map with error bars, and those of the finer one of the mean, where they are asked for."""
    if table is None:
        return None, None
    whole = map_cells(table, north, east, space=space)
    if table.std_resolution_degrees is None:
        return whole, None
    coarse = table.model_copy(update={"resolution_degrees": table.std_resolution_degrees})
    return map_cells(coarse, north, east, space=space), whole


def samples_of_map(table: MapGrid | None, cells: MapCells | None, solver: Solver) -> int:
    """Decide from how many samples the error bars of a map are estimated; 0 where they are not.

    By themselves where a column for each cell would take more than ten times as long.
    """
    if table is None or cells is None or cells.size == 0:
        return 0
    if table.std_samples is not None:
        return table.std_samples
    suits = isinstance(solver, Affine) and solver.computational_share is None and solver.iterations > 0
    fine = table.std_resolution_degrees is None and cells.size > MOST_COLUMNS
    return DEFAULT_SAMPLES if suits and fine else 0


def map_cells(table: MapGrid, north: Array, east: Array, *, space: Space = SPHERE) -> MapCells:
    """Cells that fill the area of a map, by default that of points (n,), from west to east."""
    step, globe = table.step, space.has_latitudes
    if table.area is not None:
        upper, left, lower, right = table.area if globe else space.region(list(table.area), table.area)
        right = right if right > left else right + 360.0
    else:
        upper, left, lower, right = points_area(north, east) if globe else space.extent(north, east, step)
    try:
        cells = tiled((upper, left, lower, right), step, space, means=table.kind == "cells")
    except ArgumentError as error:
        raise ConfigurationError(f"[design] map: {error}", key=error.key) from error
    if not globe:
        return cells
    # in [0, 360), as in the canonical field, but across Greenwich negative to the west of it
    wrapped = np.mod(cells.east, 360.0)
    order = np.argsort(wrapped) if right - left > 360.0 - 1e-9 else np.arange(wrapped.size)
    ordered = wrapped[order]
    ordered = np.where(ordered > ordered[-1], ordered - 360.0, ordered)
    edges = cells.edges
    if edges is not None:
        edges = edges[0], edges[1][:, order] + (ordered - cells.east[order])
    return replace(cells, east=ordered, edges=edges)


def points_area(latitude_degrees: Array, longitude_degrees: Array) -> tuple[float, float, float, float]:
    """North, west, south and east of points; a full circle that ends within a row of a pole reaches it."""
    south, north = float(latitude_degrees.min()), float(latitude_degrees.max())
    unwrapped = np.unique(unwrapped_longitudes(longitude_degrees))
    west, east = float(unwrapped[0]), float(unwrapped[-1])
    spacing = float(np.median(np.diff(unwrapped))) if unwrapped.size > 1 else 0.0
    if 360.0 - (east - west) > 1.5 * spacing:
        return north, west, south, east
    row = float(np.median(np.diff(np.unique(latitude_degrees)))) if north > south else 0.0
    return (
        90.0 if north + row > 90.0 - 1e-6 else north,
        0.0,
        -90.0 if south - row < -90.0 + 1e-6 else south,
        360.0,
    )
