"""Which points are observed, calibrate, are scored and are mapped: pure functions of coordinates.

The chances of random points are kept: a test point counts in area-weighted scores with its area over its
chance of being chosen.
"""

from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.verification.spatial_folds import block_folds, blocks_of, fitting_blocks
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.geometry import is_pole, space_filling_order, unit_sphere
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.regions import Region
from cagp_dist.service.jobfile.design_table import DesignTable, FoldPoints
from cagp_dist.service.map_cells import MapCells, cells_of
from cagp_dist.service.point_draws import split_points


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
    calibration : array of int, or None
        Points whose errors calibrate the predictive laws, ascending; none of them in ``train`` or ``test``.
    calibration_blocks : array of int, or None
        Which block each of them lies in, where nothing is observed in whole blocks.
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
    calibration: Indices | None = None
    calibration_blocks: Indices | None = None


def design_points(
    latitude_degrees: Array,
    longitude_degrees: Array,
    *,
    table: DesignTable,
    block_size: int,
    gridded: bool = True,
    spare_calibration: int = 0,
) -> Design:
    """Choose the observed, the scored, the calibration and the mapped points.

    A random or ``all`` choice leaves out what the others take; two strides are taken as they are. Nothing is
    observed in blocks that are held out.

    Shapes: ``latitude_degrees, longitude_degrees`` (N,).
    """
    areas = cell_areas(latitude_degrees) if gridded else np.ones(latitude_degrees.size)
    choices = split_points(
        latitude_degrees, longitude_degrees, areas, table, spare_calibration=spare_calibration
    )
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
    kept = choices["calibration"].points if "calibration" in choices else None
    blocks = None
    if kept is not None and (height := choices["calibration"].blocks_degrees) is not None:
        blocks = blocks_of(latitude_degrees[kept], longitude_degrees[kept], blocks_degrees=height)
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
        calibration=kept,
        calibration_blocks=blocks,
    )


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

    Shapes: ``latitude_degrees`` (N,).
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
