"""Which points are observed, which are scored and which are mapped: pure functions of coordinates.

Random points are drawn in proportion to the area of their cells, so that averages over them are averages
over the ground; or, if the job says so, each point of the field with equal probability. The chances are
kept: a test point counts in area-weighted scores with its area over its chance of being chosen.
"""

from dataclasses import dataclass, replace

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.calibration.folds import block_folds, fitting_blocks
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.geometry import is_pole, space_filling_order, unit_sphere
from cagp_dist.gram.cells import MOST_CELLS, CellMeans, box_means, nodes_per_side
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.regions import Region
from cagp_dist.service.jobfile.tables import (
    AllPoints,
    DesignTable,
    FoldPoints,
    MapGrid,
    RandomPoints,
    StridePoints,
)
from cagp_dist.solvers import Solver
from cagp_dist.solvers.affine import Affine
from cagp_dist.text import counted

NEARER = 1e-6
"""Points whose distances differ by less, relatively, are equally near."""


DEFAULT_SAMPLES = 400
"""Of a fine map: a standard error of 3.5 % of its error bars."""

MOST_COLUMNS = 8_000
"""Cells up to which each has a column of the solve, where the job does not say."""


@dataclass(frozen=True, eq=False)
class MapCells:
    """Centres of the cells of a regular map.

    Attributes
    ----------
    latitude_degrees : array of float64, shape (rows,)
        Ascending; never a pole, where a cell has no area.
    longitude_degrees : array of float64, shape (columns,)
        Ascending without a jump. In [0, 360), as in the canonical field, unless the map crosses Greenwich and
        is no full circle: then longitudes west of Greenwich are negative.
    shown : array of bool, shape (rows, columns), or None
        Cells that are predicted; the others stay blank. None for all of them.
    sides_degrees : (float, float) or None
        Height and width of a cell, where its mean is wanted; None where the field at its centre is.
    """

    latitude_degrees: Array
    longitude_degrees: Array
    shown: Mask | None = None
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
        """Nodes along a side of a cell whose mean is wanted; 0 where the field at the centre is.

        One more than observed points, so that little is left of how far those are from single nodes.
        """
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
        return box_means(
            latitude - height,
            latitude + height,
            longitude - width,
            longitude + width,
            nodes_per_side=self.nodes_per_side(spacing_degrees),
        )

    def fields(self, values: Array) -> Array:
        """Values of the predicted cells (T, size) as fields (T, rows, columns), NaN where they are blank."""
        if self.shown is None:
            return values.reshape(-1, *self.shape)
        fields = np.full((len(values), *self.shape), np.nan)
        fields[:, self.shown] = values
        return fields

    def observed(
        self, latitude_degrees: Array, longitude_degrees: Array, missing_degrees: Array
    ) -> "MapCells":
        """Leave blank the cells where the source has no values.

        A cell is predicted if the nearest point of the source, or any within half a row of its centre, has
        values.

        Parameters
        ----------
        latitude_degrees, longitude_degrees : array of float64, shape (N,)
            Points of the source with values.
        missing_degrees : array of float64, shape (m, 2)
            Latitude and longitude of those without.

        Returns
        -------
        MapCells
            These, if no point is missing or no cell is blank.
        """
        from scipy.spatial import cKDTree

        if not len(missing_degrees):
            return self
        centres = unit_sphere(*self.points())
        there = np.asarray(cKDTree(unit_sphere(latitude_degrees, longitude_degrees)).query(centres)[0])
        missing = np.asarray(cKDTree(unit_sphere(*missing_degrees.T)).query(centres)[0])
        rows = np.diff(self.latitude_degrees)
        within = 2.0 * np.sin(0.25 * np.deg2rad(float(rows.min()) if rows.size else 0.0))
        shown = there <= np.maximum(missing * (1.0 + NEARER), within)
        return self if shown.all() else replace(self, shown=shown.reshape(self.shape))


@dataclass(frozen=True, eq=False)
class Design:
    """The chosen points.

    Attributes
    ----------
    train : array of int, shape (n,)
        Observed points in solver order, blocks of neighbours (`space_filling_order`).
    test : array of int, shape (q,)
        Scored points, ascending; none of them in ``train``, unless there are folds.
    test_weights : array of float64, shape (q,)
        Area that each scored point stands for, mean 1.
    cells : MapCells or None
        The map, if one was asked for.
    mean_cells : MapCells or None
        Finer cells, where the mean alone is wanted.
    samples : int
        Of which the error bars of ``cells`` are estimated; 0 where each cell has a column of the solve.
    regions : tuple of Region
        Over which means are wanted.
    region_means : LinearFunctionals or None
        These means, if there are any.
    folds : array of int, shape (q,), or None
        In a cross-validation, in which every observed point is scored, the fold of each: it is predicted from
        the other folds.
    """

    train: Indices
    test: Indices
    test_weights: Array
    cells: MapCells | None
    mean_cells: MapCells | None = None
    folds: Indices | None = None
    samples: int = 0
    regions: tuple[Region, ...] = ()
    region_means: LinearFunctionals | None = None


@dataclass(frozen=True, eq=False)
class _Choice:
    """Chosen points, ascending, and the chance that each point of the field had, shape (N,)."""

    points: Indices
    chance: Array


def design_points(
    latitude_degrees: Array,
    longitude_degrees: Array,
    *,
    table: DesignTable,
    block_size: int,
    gridded: bool = True,
) -> Design:
    """Choose the observed, the scored and the mapped points.

    A random or ``all`` choice leaves out what the other one takes; two strides are taken as they are.

    Parameters
    ----------
    latitude_degrees, longitude_degrees : array of float64, shape (N,)
        All points of the field.
    table : DesignTable
        The ``[design]`` of a job.
    block_size : int
        Points of a block in solver order.
    gridded : bool
        Whether each point stands for the area of a cell of a grid; stations all count the same.

    Returns
    -------
    Design

    Raises
    ------
    ConfigurationError
        If more points are asked than exist, train and test overlap, or one of them is empty.
    """
    areas = cell_areas(latitude_degrees) if gridded else np.ones(latitude_degrees.size)
    choices = _split(latitude_degrees, longitude_degrees, areas, table)
    train, test = choices["train"].points, choices["test"].points
    folds = isinstance(table.test, FoldPoints)
    shared = np.intersect1d(train, test)
    if shared.size and not folds:
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
    cells, mean_cells = cells_of(table.map, latitude_degrees, longitude_degrees)
    stood_for = areas[test] / choices["test"].chance[test]
    return Design(
        train=train[ordered],
        test=test,
        test_weights=stood_for / stood_for.mean(),
        cells=cells,
        mean_cells=mean_cells,
        regions=table.regions or (),
        region_means=table.region_means,
        folds=_folds(table.test, latitude_degrees[test], longitude_degrees[test])
        if isinstance(table.test, FoldPoints)
        else None,
    )


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

    Where the job does not say, 400, whose standard deviations have a standard error of 3.5 %, for a map of
    more than 8,000 cells by an affine solver that does all of its iterations: a column for each cell would
    then take more than ten times as long (of 4,050 cells it takes 8 times as long as 408 samples).
    """
    if table is None or cells is None or cells.size == 0:
        return 0
    if table.std_samples is not None:
        return table.std_samples
    suits = isinstance(solver, Affine) and solver.computational_share is None and solver.iterations > 0
    fine = table.std_resolution_degrees is None and cells.size > MOST_COLUMNS
    return DEFAULT_SAMPLES if suits and fine else 0


def blocks_of_folds(wanted: FoldPoints, latitude: Array, longitude: Array) -> float:
    """Height of the blocks of a cross-validation; the default suits a region that is too small for it."""
    if "blocks_degrees" in wanted.model_fields_set:
        return wanted.blocks_degrees
    count = count_of_folds(wanted, latitude, longitude)
    return fitting_blocks(latitude, longitude, count=count, blocks_degrees=wanted.blocks_degrees)


def count_of_folds(wanted: FoldPoints, latitude: Array, longitude: Array) -> int:
    """Folds of a cross-validation; the default is no more than there are places."""
    if "count" in wanted.model_fields_set:
        return wanted.count
    places = np.stack([latitude, np.mod(longitude, 360.0)], axis=1)
    return max(2, min(wanted.count, len(np.unique(places, axis=0))))


def _folds(wanted: FoldPoints, latitude: Array, longitude: Array) -> Indices:
    try:
        return block_folds(
            latitude,
            longitude,
            count=count_of_folds(wanted, latitude, longitude),
            blocks_degrees=blocks_of_folds(wanted, latitude, longitude),
            generator=np.random.default_rng(wanted.seed),
        )
    except ArgumentError as error:
        raise ConfigurationError(f"[design] test: {error}") from error


def cell_areas(latitude_degrees: Array) -> Array:
    """Area of the cell of each point of a latitude-longitude grid, in units of a cell at the equator.

    ``cos(latitude)``. A pole, whose copies were merged into one point, has the cap that reaches half way to
    the next row, ``Q tan(D / 4) / 2`` for a row of Q points at a distance D.

    Parameters
    ----------
    latitude_degrees : array of float64, shape (N,)
    """
    areas = np.asarray(np.cos(np.deg2rad(latitude_degrees)), dtype=np.float64)
    for pole in np.flatnonzero(is_pole(latitude_degrees)):
        distances = np.abs(latitude_degrees - latitude_degrees[pole])
        others = distances[~is_pole(latitude_degrees)]
        if others.size == 0:
            return np.ones_like(areas)
        row = np.count_nonzero(np.abs(others - others.min()) < 1e-6)
        areas[pole] = 0.5 * row * np.tan(0.25 * np.deg2rad(others.min()))
    return areas


def _split(latitude: Array, longitude: Array, areas: Array, table: DesignTable) -> dict[str, _Choice]:
    """Choose train and test: strides first, for they say which points; then draws; then all the rest."""
    tables = {"train": table.train, "test": table.test}
    chosen: dict[str, _Choice] = {}
    for name, wanted in tables.items():
        if isinstance(wanted, StridePoints):
            kept = _stride(latitude, longitude, wanted)
            chosen[name] = _Choice(np.flatnonzero(kept), kept.astype(np.float64))
    for stream, (name, wanted) in enumerate(tables.items()):
        if isinstance(wanted, RandomPoints):
            other = next(iter(chosen.values()), _Choice(np.arange(0), np.zeros(latitude.size)))
            chosen[name] = _draw(name, wanted, areas, other=other, stream=stream)
    if isinstance(table.train, AllPoints):
        none = _Choice(np.arange(0), np.zeros(latitude.size))
        held_out = chosen.get("test", none)
        rest = np.setdiff1d(np.arange(latitude.size), held_out.points)
        chosen["train"] = _Choice(rest, 1.0 - held_out.chance)
    if isinstance(table.test, FoldPoints):
        chosen["test"] = chosen["train"]
    return chosen


def _draw(name: str, wanted: RandomPoints, areas: Array, *, other: _Choice, stream: int) -> _Choice:
    """Draw points that the other choice left; the stream keeps equal seeds of two draws apart.

    A point is left with probability ``1 - chance`` of the other choice; what is drawn from the rest is in
    proportion to size over that, so that altogether it is in proportion to size.
    """
    total, taken = areas.size, other.points
    free = np.setdiff1d(np.arange(total), taken)
    if wanted.count > free.size:
        others = f", of which the other set takes {taken.size:,}" if taken.size else ""
        raise ConfigurationError(
            f"[design] {name}.count asks for {counted(wanted.count, 'point')}, but the field has "
            f"{total:,}{others}; at most {free.size:,} can be asked. Lower the count, or take a larger area "
            "or a finer grid."
        )
    generator = np.random.default_rng(np.random.SeedSequence(wanted.seed, spawn_key=(stream,)))
    left = 1.0 - other.chance[free]
    sizes = areas[free] if wanted.weight == "area" else np.ones(free.size)
    probability = inclusion_probabilities(sizes / left, wanted.count)
    chance = np.zeros(total)
    chance[free] = probability * left
    if np.ptp(sizes / left) == 0.0:
        drawn = generator.choice(free, size=wanted.count, replace=False)
    else:
        drawn = free[systematic_sample(probability, generator)]
    return _Choice(np.sort(drawn), chance)


def inclusion_probabilities(sizes: Array, count: int) -> Array:
    """Probabilities in proportion to size that sum to ``count``; where that is above 1, it is 1.

    Parameters
    ----------
    sizes : array of float64, shape (N,)
        Positive.
    count : int
        At most N.

    Returns
    -------
    array of float64, shape (N,)

    Examples
    --------
    >>> inclusion_probabilities(np.array([4.0, 1.0, 1.0]), 2).tolist()
    [1.0, 0.5, 0.5]
    """
    probability = np.zeros(sizes.size)
    certain = np.zeros(sizes.size, dtype=bool)
    while True:
        rest = ~certain
        left = count - np.count_nonzero(certain)
        probability[certain] = 1.0
        if not rest.any():
            return probability
        probability[rest] = left * sizes[rest] / sizes[rest].sum()
        above = rest & (probability > 1.0)
        if not above.any():
            return probability
        certain |= above


def systematic_sample(probability: Array, generator: np.random.Generator) -> Indices:
    """Draw each item with exactly its probability, as many items as the probabilities sum to.

    The items are laid end to end in random order, each as long as its probability, and those are taken in
    which one of the points ``u, u + 1, u + 2, ...`` falls, u uniform on [0, 1): systematic sampling
    [Madow 1949].
    """
    order = generator.permutation(probability.size)
    count = round(float(probability.sum()))
    ends = np.cumsum(probability[order])
    ends *= count / ends[-1]  # rounding of the sum
    position = np.searchsorted(ends, generator.random() + np.arange(count), side="right")
    return np.asarray(order[np.minimum(position, order.size - 1)], dtype=np.intp)


def _stride(latitude: Array, longitude: Array, wanted: StridePoints) -> Mask:
    """Take every ``step``-th row of every ``step``-th column of the grid, from ``offset``."""
    rows = _rank(latitude)
    columns = _rank(_eastward(longitude))
    return np.asarray((rows % wanted.step == wanted.offset) & (columns % wanted.step == wanted.offset))


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
