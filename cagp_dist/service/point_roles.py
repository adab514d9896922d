"""Which points are observed, calibrate, are scored and are mapped: pure functions of coordinates.

Draws are in proportion to the area of the cells, or equally likely, and a test point counts by area with its
area over its chance. Each draw has random numbers of its own; calibration points come last and change no
others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.calibration.verification.spatial_folds import blocks_of
from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.geometry import space_filling_order, unwrapped_longitudes
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.kernels import DEPTH
from cagp_dist.pipeline import GridPlaces, Observations, Solver, Split
from cagp_dist.pipeline.map_cells import MapCells
from cagp_dist.regions import Region
from cagp_dist.service.jobfile.design_table import (
    AllPoints,
    BlockPoints,
    DesignTable,
    FoldPoints,
    RandomPoints,
    StridePoints,
)
from cagp_dist.service.map_cells import cells_of
from cagp_dist.space import SPHERE, Space
from cagp_dist.text import counted

STREAMS = {"train": 0, "test": 1, "calibration": 2}  # Spawn keys of the draws, which keep equal seeds apart
BLOCK_STREAM = 3  # Added to the stream of a draw for the choice of its blocks
LEAST_LEFT = 1e-12  # Chance of being left by the other draws, at least: rounding takes none of it


@dataclass(frozen=True, eq=False)
class Design:
    """The chosen points."""

    train: Indices  # (n,) observed points in solver order, blocks of neighbours (`space_filling_order`)
    test: Indices  # (q,) scored points, ascending; none of them in ``train``, unless there are folds
    test_weights: Array  # (q,) area that each scored point stands for, mean 1
    cells: MapCells | None  # the map, if one was asked for
    mean_cells: MapCells | None = None  # finer cells, where the mean alone is wanted
    # a cross-validation, in which every observed point is scored, predicted from the folds but its own
    in_folds: Split | None = None
    # of which the error bars of ``cells`` are estimated; 0 where each cell has a column of the solve
    samples: int = 0
    regions: tuple[Region, ...] = ()  # over which means are wanted
    region_means: LinearFunctionals | None = None  # these means, if there are any
    # points whose errors calibrate the predictive distributions, ascending; none in ``train`` or ``test``
    calibration: Indices | None = None
    # which block each of them lies in, where nothing is observed in whole blocks
    calibration_blocks: Indices | None = None

    @property
    def folds(self) -> Indices | None:
        """Fold of each scored point (q,) of a cross-validation."""
        return None if self.in_folds is None else self.in_folds.folds

    @property
    def count_folds(self) -> int:
        """How many folds a cross-validation has; 0 without one."""
        return 0 if self.folds is None else int(self.folds.max()) + 1

    @property
    def without_largest_fold(self) -> Indices:
        """Observed points that predict the largest fold."""
        if self.folds is None:
            return self.train
        return self.train[~np.isin(self.train, self.test[self.folds == np.bincount(self.folds).argmax()])]


def places_on_grid(solver: Solver, points: Observations, design: Design) -> GridPlaces | None:
    """Grid and places of the observed points for a solver that needs them, else None."""
    return points.grid_of(design.train) if solver.needs_grid else None


def design_points(points: Observations, *, table: DesignTable, block_size: int) -> Design:
    """Choose the observed, the scored, the calibration and the mapped points."""
    north, east, space = points.north, points.east, points.space
    areas = points.areas
    choices = split_points(north, east, areas, table, space=space)
    train, test = choices["train"].points, choices["test"].points
    shared = np.intersect1d(train, test)
    if shared.size and not isinstance(table.test, FoldPoints):
        raise ConfigurationError(
            f"[design] train and test share {shared.size} of {test.size} test points; a score on observed "
            "points says nothing. Give the two strides one step and different offsets, or a random test.",
            key="test-in-train",
        )
    for name, chosen in (("train", train), ("test", test)):
        if chosen.size == 0:
            raise ConfigurationError(
                f"[design] {name} selects none of the {north.size} points; choose a smaller "
                "step or count for the other set, or a larger area.",
                key="empty-selection",
            )
    in_folds = None
    if isinstance(table.test, FoldPoints):
        in_folds = _in_folds(table.test, points, test)
        test = in_folds.held_out
    ordered = space_filling_order(space.positions(north[train], east[train]), block_size=block_size)
    cells, mean_cells = cells_of(table.map, points)
    stood_for = areas[test] / choices["test"].chance[test]
    kept = choices["calibration"].points if "calibration" in choices else None
    blocks = None
    if kept is not None and (size := choices["calibration"].blocks) is not None:
        blocks = blocks_of(north[kept], east[kept], space=space, blocks=size)
    return Design(
        train=train[ordered],
        test=test,
        test_weights=stood_for / stood_for.mean(),
        cells=cells,
        mean_cells=mean_cells,
        regions=table.regions or (),
        region_means=table.region_means,
        in_folds=in_folds,
        calibration=kept,
        calibration_blocks=blocks,
    )


def design_of_variables(points: Observations, variables: int, table: DesignTable, block_size: int) -> Design:
    """Choose places, of points that are all places once for each variable: a place is held out of all."""
    n, each = points.north.size // variables, np.arange(variables)
    there = points.present.reshape(-1, variables, n).any(axis=1)
    places = replace(points.at(np.arange(n)), values=np.where(there, 1.0, np.nan))
    if DEPTH in places.beside:
        found = design_of_profiles(places, table, block_size)
    else:
        found = design_points(replace(places, beside={}), table=table, block_size=block_size)
    train = (each * n + found.train[:, None]).ravel()
    test = (each[:, None] * n + found.test).ravel()
    in_folds = found.in_folds
    if in_folds is not None and in_folds.folds is not None:
        folds = np.tile(in_folds.folds, variables)
        in_folds = Split(test, test, folds, folds, in_folds.blocks)
    return replace(
        found,
        train=train[points.present[:, train].any(axis=0)],
        test=test,
        test_weights=np.tile(found.test_weights, variables),
        in_folds=in_folds,
    )


def design_of_profiles(points: Observations, table: DesignTable, block_size: int) -> Design:
    """Choose places, at each of which points may have several depths: a place is held out at all of them."""
    _, first, of = np.unique(points.positions, axis=0, return_index=True, return_inverse=True)
    # in the order of the points, by which draws are repeated
    appears = np.argsort(first)
    rank = np.empty(first.size, dtype=np.intp)
    rank[appears] = np.arange(first.size)
    of, n = rank[of.reshape(-1)], first.size
    there = np.zeros((points.fields, n), dtype=bool)
    times, seen = np.nonzero(points.present)
    there[times, of[seen]] = True
    places = replace(points.at(first[appears]), values=np.where(there, 1.0, np.nan), beside={})
    found = design_points(places, table=table, block_size=block_size)
    order = np.argsort(of, kind="stable")
    counts = np.bincount(of, minlength=n)
    begins = np.cumsum(counts) - counts

    def rows_of(chosen: Indices) -> tuple[Indices, Indices]:
        """Points at some places, in their order, and which of these each is at."""
        at = np.repeat(np.arange(chosen.size), counts[chosen])
        within = np.arange(at.size) - np.repeat(np.cumsum(counts[chosen]) - counts[chosen], counts[chosen])
        return order[begins[chosen][at] + within], at

    train, _ = rows_of(found.train)
    test, at = rows_of(found.test)
    ascending = np.argsort(test)
    test, at = test[ascending], at[ascending]
    in_folds = found.in_folds
    if in_folds is not None and in_folds.folds is not None:
        folds = in_folds.folds[at]
        in_folds = Split(test, test, folds, folds, in_folds.blocks)
    weights = found.test_weights[at]
    return replace(found, train=train, test=test, test_weights=weights / weights.mean(), in_folds=in_folds)


def _in_folds(wanted: FoldPoints, points: Observations, chosen: Indices) -> Split:
    """Deal places to folds; sizes and counts that the job does not give suit a region that is small."""
    given = wanted.model_fields_set
    in_degrees: float | Literal["auto"] = wanted.blocks_degrees if "blocks_degrees" in given else "auto"
    try:
        return Split.into_folds(
            points,
            chosen,
            count=wanted.count if "count" in given else "auto",
            blocks=in_degrees if wanted.blocks is None else wanted.blocks,
            seed=wanted.seed,
        )
    except ArgumentError as error:
        raise ConfigurationError(f"[design] test: {error}", key=error.key) from error


@dataclass(frozen=True, eq=False)
class Choice:
    """Chosen points, ascending, the chance (N,) of all points, and the size of the blocks if by such."""

    points: Indices
    chance: Array
    blocks: float | None = None


@dataclass(frozen=True, eq=False)
class Gap:
    """Blocks of the field without observed points."""

    inside: Mask  # (N,) points of the blocks
    around: Mask  # (N,) these, and those of the margin


def split_points(
    north: Array, east: Array, areas: Array, table: DesignTable, *, space: Space = SPHERE
) -> dict[str, Choice]:
    """Choose train, test and, if any are wanted, calibration points.

    Gaps come first and then strides, for they say which points; then draws, the calibration points last; then
    all the rest.
    """
    tables = {"train": table.train, "test": table.test}
    gaps = _gaps(north, east, table, space)
    unobserved = np.zeros(north.size, dtype=bool)
    for gap in gaps.values():
        unobserved |= gap.around
    allowed = {"train": ~unobserved} | {name: gap.inside for name, gap in gaps.items()}
    chosen: dict[str, Choice] = {}
    for name, wanted in tables.items():
        if isinstance(wanted, StridePoints):
            kept = _stride(north, east, wanted, space)
            kept &= allowed.get(name, True)
            chosen[name] = Choice(np.flatnonzero(kept), kept.astype(np.float64))
    for name, wanted in tables.items():
        if isinstance(wanted, RandomPoints | BlockPoints):
            chosen[name] = _draw(name, wanted, areas, others=chosen, allowed=allowed.get(name))
    outside = ~gaps["test"].around if "test" in gaps else np.ones(north.size, dtype=bool)
    allowed.setdefault("calibration", outside)
    if table.calibration is not None:
        chosen["calibration"] = _draw(
            "calibration", table.calibration, areas, others=chosen, allowed=allowed["calibration"]
        )
    if isinstance(table.train, AllPoints):
        taken, chance = _taken(chosen, north.size)
        rest = np.setdiff1d(np.flatnonzero(allowed["train"]), taken)
        chosen["train"] = Choice(rest, 1.0 - chance)
    if isinstance(table.test, FoldPoints):
        chosen["test"] = chosen["train"]
    return chosen


def _gaps(north: Array, east: Array, table: DesignTable, space: Space) -> dict[str, Gap]:
    """Blocks of the test and calibration points, where they are chosen by blocks; none of both."""
    gaps: dict[str, Gap] = {}
    free = np.ones(north.size, dtype=bool)
    for name, wanted in (("test", table.test), ("calibration", table.calibration)):
        if isinstance(wanted, BlockPoints):
            gaps[name] = _gap(name, wanted, north, east, space, free)
            free = free & ~gaps[name].around
    return gaps


def _gap(name: str, wanted: BlockPoints, north: Array, east: Array, space: Space, free: Mask) -> Gap:
    """Choose some of the blocks that have free points, each with equal probability."""
    from scipy.spatial import cKDTree

    block = blocks_of(north, east, space=space, blocks=wanted.size)
    there = np.unique(block[free])
    if there.size < 2:
        raise ConfigurationError(
            f"[design] {name}: the {int(np.count_nonzero(free)):,} points lie in one block of "
            f"{wanted.size:g} {space.unit}, without which nothing is observed. Make its blocks smaller, or "
            "take a larger area.",
            key="few-blocks",
        )
    count = min(max(1, round(wanted.share * there.size)), there.size - 1)
    generator = _generator(wanted.seed, STREAMS[name] + BLOCK_STREAM)
    chosen = generator.choice(there, size=count, replace=False)
    inside = np.isin(block, chosen) & free
    around = inside.copy()
    if wanted.around > 0.0 and inside.any():
        X, within = space.positions(north, east), space.of_unit(wanted.around)
        near = cKDTree(X[inside]).query(X[~inside], distance_upper_bound=within)[0]
        around[~inside] = np.isfinite(near)
    return Gap(inside, around)


def _taken(chosen: Mapping[str, Choice], total: int) -> tuple[Indices, Array]:
    """Points of any choice, and the chance of being one of them."""
    points, chance = np.arange(0), np.zeros(total)
    for choice in chosen.values():
        points, chance = np.union1d(points, choice.points), chance + choice.chance
    return points, chance


def _generator(seed: int, stream: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream,)))


def _draw(
    name: str,
    wanted: RandomPoints | BlockPoints,
    areas: Array,
    *,
    others: Mapping[str, Choice],
    allowed: Mask | None,
) -> Choice:
    """Draw allowed points that the others left: sizes over the chance of being left, altogether as sizes."""
    total = areas.size
    taken, chance_taken = _taken(others, total)
    free = np.setdiff1d(np.arange(total) if allowed is None else np.flatnonzero(allowed), taken)
    if wanted.count > free.size:
        raise _too_many(name, wanted, total=total, taken=taken.size, free=free.size)
    generator = _generator(wanted.seed, STREAMS[name])
    left = np.maximum(1.0 - chance_taken[free], LEAST_LEFT)
    by_area = isinstance(wanted, BlockPoints) or wanted.weight == "area"
    sizes = areas[free] if by_area else np.ones(free.size)
    probability = inclusion_probabilities(sizes / left, wanted.count)
    chance = np.zeros(total)
    chance[free] = probability * left
    if np.ptp(sizes / left) == 0.0:
        drawn = generator.choice(free, size=wanted.count, replace=False)
    else:
        drawn = free[systematic_sample(probability, generator)]
    return Choice(np.sort(drawn), chance, wanted.size if isinstance(wanted, BlockPoints) else None)


def _too_many(
    name: str, wanted: RandomPoints | BlockPoints, *, total: int, taken: int, free: int
) -> ConfigurationError:
    asked = f"[design] {name}.count asks for {counted(wanted.count, 'point')}, but"
    if isinstance(wanted, BlockPoints):
        return ConfigurationError(
            f"{asked} its blocks, a share of {wanted.share:g} of all that have points, have {free:,}. Lower "
            f"the count, or raise {name}.share.",
            key="few-points",
        )
    sets = "the other sets take" if name == "calibration" else "the other set takes"
    others = f", of which {sets} {taken:,}" if taken else ""
    blocks = " outside the blocks that are held out" if taken + free < total else ""
    return ConfigurationError(
        f"{asked} the field has {total:,}{others}; at most {free:,}{blocks} can be asked. Lower the count, "
        "or take a larger area or a finer grid.",
        key="few-points",
    )


def inclusion_probabilities(sizes: Array, count: int) -> Array:
    """Probabilities in proportion to size that sum to ``count``; where that is above 1, it is 1."""
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
    """Draw each item with exactly its probability: systematic sampling [Madow 1949].

    Those are taken in which one of the points ``u, u + 1, ...`` falls, laid end to end in random order.
    """
    order = generator.permutation(probability.size)
    count = round(float(probability.sum()))
    ends = np.cumsum(probability[order])
    ends *= count / ends[-1]  # rounding of the sum
    position = np.searchsorted(ends, generator.random() + np.arange(count), side="right")
    return np.asarray(order[np.minimum(position, order.size - 1)], dtype=np.intp)


def _stride(north: Array, east: Array, wanted: StridePoints, space: Space) -> Mask:
    """Take every ``step``-th row of every ``step``-th column of the grid, from ``offset``."""
    rows = _rank(north)
    columns = _rank(unwrapped_longitudes(east) if space.has_latitudes else east)
    return np.asarray((rows % wanted.step == wanted.offset) & (columns % wanted.step == wanted.offset))


def _rank(degrees: Array) -> Indices:
    """Rank of each value among the different values, equal to a millionth of a degree."""
    return np.unique(np.round(degrees, 6), return_inverse=True)[1].reshape(-1)
