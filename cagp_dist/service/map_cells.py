"""Cells of the maps of a job: where they are, which are predicted, and how their error bars are found."""

from dataclasses import dataclass, replace

import numpy as np

from cagp_dist.arrays import Array, Mask
from cagp_dist.errors import ConfigurationError
from cagp_dist.geometry import unit_sphere, unwrapped_longitudes
from cagp_dist.gram.cell_means import MOST_CELLS, CellMeans, means_between, nodes_per_side
from cagp_dist.mapping import Affine, Solver
from cagp_dist.service.jobfile.design_table import MapGrid
from cagp_dist.space import SPHERE

NEARER = 1e-6  # Points whose distances differ by less, relatively, are equally near
DEFAULT_SAMPLES = 400  # Of a fine map: a standard error of 3.5 % of its error bars
MOST_COLUMNS = 8_000  # Cells up to which each has a column of the solve, where the job does not say


@dataclass(frozen=True, eq=False)
class MapCells:
    """Centres of the cells of a regular map."""

    latitude_degrees: Array  # (rows,) ascending; never a pole, where a cell has no area
    # (columns,) ascending without a jump. In [0, 360), as in the canonical field, unless the map crosses
    # Greenwich and is no full circle: then longitudes west of Greenwich are negative.
    longitude_degrees: Array
    # (rows, columns) cells that are predicted; the others stay blank. None for all of them.
    shown: Mask | None = None
    # height and width of a cell, where its mean is wanted; None where the field at its centre is
    sides_degrees: tuple[float, float] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.latitude_degrees.size, self.longitude_degrees.size

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
        """Latitude and longitude of every predicted cell, longitude running fastest, each (size,)."""
        latitude, longitude = np.meshgrid(self.latitude_degrees, self.longitude_degrees, indexing="ij")
        if self.shown is None:
            return latitude.ravel(), longitude.ravel()
        return latitude[self.shown], longitude[self.shown]

    def nodes_per_side(self, spacing_degrees: float) -> int:
        """Nodes along a side of a cell whose mean is wanted; 0 where the field at the centre is."""
        if self.sides_degrees is None:
            return 0
        return nodes_per_side(self.sides_degrees[0], spacing_degrees)

    def covered(self) -> tuple[Array, Array]:
        """Latitude and longitude of where the field is wanted: centres, or corners of cells."""
        latitude, longitude = self.points()
        if self.sides_degrees is None:
            return latitude, longitude
        height, width = self.sides_degrees
        corners = [(-0.5, -0.5), (-0.5, 0.5), (0.5, -0.5), (0.5, 0.5)]
        return (
            np.clip(np.concatenate([latitude + height * up for up, _ in corners]), -90.0, 90.0),
            np.concatenate([longitude + width * east for _, east in corners]),
        )

    def inputs(self, spacing_degrees: float) -> Array | CellMeans:
        """Predicted cells on the unit sphere: their centres (size, 3), or means where these are wanted."""
        latitude, longitude = self.points()
        if self.sides_degrees is None:
            return unit_sphere(latitude, longitude)
        height, width = (0.5 * side for side in self.sides_degrees)
        return means_between(
            SPHERE,
            [latitude - height, latitude + height],
            [longitude - width, longitude + width],
            nodes_per_side=self.nodes_per_side(spacing_degrees),
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

    def observed(
        self, latitude_degrees: Array, longitude_degrees: Array, missing_degrees: Array
    ) -> "MapCells":
        """Leave blank the cells that are nearest to a missing point, and half a row from others."""
        from scipy.spatial import cKDTree

        if not len(missing_degrees):
            return self
        centres = unit_sphere(*self.points())
        there = np.asarray(cKDTree(unit_sphere(latitude_degrees, longitude_degrees)).query(centres)[0])
        missing = np.asarray(cKDTree(unit_sphere(*missing_degrees.T)).query(centres)[0])
        rows = np.diff(self.latitude_degrees)
        within = 2.0 * np.sin(0.25 * np.deg2rad(float(rows.min()) if rows.size else 0.0))
        return self.only(there <= np.maximum(missing * (1.0 + NEARER), within))


def cells_of(
    table: MapGrid | None, latitude_degrees: Array, longitude_degrees: Array
) -> tuple[MapCells | None, MapCells | None]:
    """Cells of the map with error bars, and those of the finer one of the mean, where they are asked for."""
    if table is None:
        return None, None
    whole = map_cells(table, latitude_degrees, longitude_degrees)
    if table.std_resolution_degrees is None:
        return whole, None
    coarse = table.model_copy(update={"resolution_degrees": table.std_resolution_degrees})
    return map_cells(coarse, latitude_degrees, longitude_degrees), whole


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


def map_cells(table: MapGrid, latitude_degrees: Array, longitude_degrees: Array) -> MapCells:
    """Cells that fill the area of a map."""
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
    return MapCells(
        latitude_degrees=_centres(south, north, table.resolution_degrees),
        longitude_degrees=_ascending(
            _centres(west, east, table.resolution_degrees), full_circle=east - west > 360.0 - 1e-9
        ),
        sides_degrees=None
        if table.kind == "grid"
        else ((north - south) / _count(rows), (east - west) / _count(columns)),
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
