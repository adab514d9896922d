"""Cells of the maps of a job: where they are, which are predicted, and how their error bars are found."""

from dataclasses import dataclass, replace

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask, Names
from cagp_dist.errors import ConfigurationError
from cagp_dist.geometry import unwrapped_longitudes
from cagp_dist.gram.cell_means import MOST_CELLS, CellMeans, means_between, nodes_per_side
from cagp_dist.pipeline import Affine, Solver
from cagp_dist.service.jobfile.design_table import MapGrid
from cagp_dist.space import SPHERE, Space

NEARER = 1e-6  # Points whose distances differ by less, relatively, are equally near
DEFAULT_SAMPLES = 400  # Of a fine map: a standard error of 3.5 % of its error bars
MOST_COLUMNS = 8_000  # Cells up to which each has a column of the solve, where the job does not say


@dataclass(frozen=True, eq=False)
class MapCells:
    """Centres of the cells of a regular map."""

    north: Array  # (rows,) ascending; never a pole, where a cell has no area
    # (columns,) ascending without a jump. In [0, 360), as in the canonical field, unless the map crosses
    # Greenwich and is no full circle: then longitudes west of Greenwich are negative.
    east: Array
    # (rows, columns) cells that are predicted; the others stay blank. None for all of them.
    shown: Mask | None = None
    # height and width of a cell, where its mean is wanted; None where the field at its centre is
    sides: tuple[float, float] | None = None
    space: Space = SPHERE

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.north.size, self.east.size

    @property
    def size(self) -> int:
        """Number of cells that are predicted."""
        rows, columns = self.shape
        return rows * columns if self.shown is None else int(np.count_nonzero(self.shown))

    @property
    def blank(self) -> int:
        """Number of cells that are not."""
        rows, columns = self.shape
        return rows * columns - self.size

    def points(self) -> tuple[Array, Array]:
        """North and east of every predicted cell, east running fastest, each (size,)."""
        north, east = np.meshgrid(self.north, self.east, indexing="ij")
        if self.shown is None:
            return north.ravel(), east.ravel()
        return north[self.shown], east[self.shown]

    @property
    def X(self) -> Array:
        """Positions of the centres of the predicted cells, (size, p)."""
        return self.space.positions(*self.points())

    def nodes_per_side(self, spacing: float) -> int:
        """Nodes along a side of a cell whose mean is wanted; 0 where the field at the centre is."""
        if self.sides is None:
            return 0
        return nodes_per_side(self.sides[0], spacing)

    def covered(self) -> tuple[Array, Array]:
        """Latitude and longitude of where the field is wanted: centres, or corners of cells."""
        latitude, longitude = self.points()
        if self.sides is None:
            return latitude, longitude
        height, width = self.sides
        corners = [(-0.5, -0.5), (-0.5, 0.5), (0.5, -0.5), (0.5, 0.5)]
        return (
            np.clip(np.concatenate([latitude + height * up for up, _ in corners]), -90.0, 90.0),
            np.concatenate([longitude + width * east for _, east in corners]),
        )

    def inputs(self, spacing: float) -> Array | CellMeans:
        """Predicted cells: positions of their centres (size, p), or means where these are wanted."""
        if self.sides is None:
            return self.X
        north, east = self.points()
        height, width = (0.5 * side for side in self.sides)
        return means_between(
            self.space,
            [north - height, north + height],
            [east - width, east + width],
            nodes_per_side=self.nodes_per_side(spacing),
        )

    def fields(self, values: Array) -> Array:
        """Values of the predicted cells (T, size) as fields (T, rows, columns), NaN where they are blank."""
        if self.shown is None:
            return values.reshape(-1, *self.shape)
        fields = np.full((len(values), *self.shape), np.nan)
        fields[:, self.shown] = values
        return fields

    def only(self, kept: Mask) -> "MapCells":
        """Leave blank those of the predicted cells (size,) that are not kept."""
        if kept.all():
            return self
        shown = np.ones(self.shape, dtype=bool) if self.shown is None else self.shown.copy()
        shown[shown] = kept
        return replace(self, shown=shown)

    def observed(self, X: Array, missing: Array) -> "MapCells":
        """Leave blank the cells that are nearest to a missing place (m, 2), and half a row from points X."""
        from scipy.spatial import cKDTree

        if not len(missing):
            return self
        there = np.asarray(cKDTree(X).query(self.X)[0])
        absent = np.asarray(cKDTree(self.space.positions(*missing.T)).query(self.X)[0])
        rows = np.diff(self.north)
        within = self.space.of_unit(0.5 * float(rows.min()) if rows.size else 0.0)
        return self.only(there <= np.maximum(absent * (1.0 + NEARER), within))


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
    """Cells that fill the area of a map, by default that of points (n,)."""
    step, globe = table.step, space.has_latitudes
    if table.area is not None:
        upper, left, lower, right = table.area if globe else space.region(list(table.area), table.area)
        right = right if right > left else right + 360.0
    else:
        upper, left, lower, right = points_area(north, east) if globe else space.extent(north, east, step)
    rows, columns = ((end - start) / step for start, end in ((lower, upper), (left, right)))
    if max(rows, 1.0) * max(columns, 1.0) > MOST_CELLS:
        raise ConfigurationError(
            f"[design] map has {rows:.3g} x {columns:.3g} cells of {step:g} {space.unit}, and may have "
            f"{MOST_CELLS:,} at most. Make the cells larger, or give the map a smaller area.",
            key="too-many-cells",
        )
    across = _centres(left, right, step)
    return MapCells(
        _centres(lower, upper, step),
        _ascending(across, full_circle=right - left > 360.0 - 1e-9) if globe else across,
        sides=None
        if table.kind == "grid"
        else ((upper - lower) / _count(rows), (right - left) / _count(columns)),
        space=space,
    )


def _ascending(eastward: Array, *, full_circle: bool) -> Array:
    """Write longitudes from west to east, in [0, 360) or, across Greenwich, negative to the west of it."""
    wrapped = np.mod(eastward, 360.0)
    if full_circle:
        return np.sort(wrapped)
    return np.where(wrapped > wrapped[-1], wrapped - 360.0, wrapped)


def _count(extent: float) -> int:
    """Count the cells along an extent in units of the resolution."""
    return max(1, round(extent))


def _centres(start: float, stop: float, resolution: float) -> Array:
    count = _count((stop - start) / resolution)
    centres = start + (np.arange(count) + 0.5) * ((stop - start) / count)
    return np.asarray(centres, dtype=np.float64)


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
