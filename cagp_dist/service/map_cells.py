"""What a job file says of its map: which cells, how their error bars are found, and places of a table."""

from dataclasses import dataclass, replace

import numpy as np

from cagp_dist.arrays import Array, Indices, Names
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.pipeline import Affine, Observations, Solver
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
    depths: Array | None = None  # where the observations have some

    @property
    def X(self) -> Array:
        """Their positions, shape (q, p)."""
        return self.space.positions(self.north, self.east)

    def at(self, chosen: Indices) -> "Wanted":
        """Take some of them."""
        names = None if self.names is None else self.names[chosen]
        depths = None if self.depths is None else self.depths[chosen]
        return replace(self, north=self.north[chosen], east=self.east[chosen], names=names, depths=depths)


def cells_of(
    table: MapGrid | None, points: Observations | None = None
) -> tuple[MapCells | None, MapCells | None]:
    """Cells of the map with error bars, and those of the finer one of the mean, where they are asked for."""
    if table is None:
        return None, None
    whole = map_cells(table, points)
    if table.std_resolution_degrees is None:
        return whole, None
    coarse = table.model_copy(update={"resolution_degrees": table.std_resolution_degrees})
    return map_cells(coarse, points), whole


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


def map_cells(table: MapGrid, points: Observations | None = None) -> MapCells:
    """Cells that fill the area of a map, by default that of the points, from west to east."""
    space = SPHERE if points is None else points.space
    step, globe = table.step, space.has_latitudes
    if table.area is not None:
        upper, left, lower, right = table.area if globe else space.region(list(table.area), table.area)
        right = right if right > left else right + 360.0
    else:
        assert points is not None
        upper, left, lower, right = points.extent(step)
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
