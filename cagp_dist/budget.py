"""How many tasks, bytes and seconds a solve takes: decided from integers before any work.

Seconds are estimates from measured constants (one thread, see the benchmark); bytes are upper bounds of
what the solve itself allocates, beside the interpreter and the caller's arrays.
"""

import math
from dataclasses import dataclass, replace

from cagp_dist.errors import BudgetError
from cagp_dist.remedies import Remedy
from cagp_dist.text import bytes_text, counted, rough_duration
from cagp_dist.tiling import (
    COLUMN_GROUP,
    POINT_TILE,
    Range,
    block_ranges,
    column_groups,
    panel_count,
    row_tile_size,
    split,
)

ENTRY_NANOSECONDS = 1.1
FLOP_NANOSECONDS = 1 / 45
DOUBLE = 8


TILE_CACHE_BYTES = 340 * 2**20
"""Tiles kept between sweeps, at most: a constant, however many points there are."""

TASK_SECONDS = 5e-5
DASK_TASK_SECONDS = 1e-3
"""What it costs to hand out a task, to a thread and through a Dask scheduler."""

CELL_ENTRIES = 2 * 2**20
"""Kernel values that a task which averages over cells holds at a time, and their products by weights."""

TASK_BYTES = 1500
TASK_TILE_BYTES = 300
"""What a task that was handed out takes in this process, and for each of its tiles (measured)."""

GRID_COLUMNS = 16
"""Fields of a grid that are solved at once."""

FEW_MISSING = 8192
"""Missing points of a grid up to which an exact identity is used: a dense matrix of that size is 0.5 GiB."""

MOST_WINDOW_FLOPS = 10**14
"""Of the factor of a window of a grid: half an hour on one core."""

PRODUCTS_OF_NOISE = 12
"""Products to a relative residual of 1e-10 over the root of the condition number: ``log(2 / 1e-10) / 2``."""

LEAST_ALIKE = 0.25
"""Views in units of cells up to which sums over a grid are taken view by view."""

GAP_PRODUCTS = 80
"""Products that a solve with more missing points takes, about."""

MOST_PRODUCTS = 2000
"""Products after which an iteration is given up."""

RANGE_BYTES = 96 * 2**20
"""Blocks of one range of wavenumbers: enough for a task, small enough for a worker."""

FEWEST_RANGES = 4

TABLE_ENTRIES = 200_000
"""Kernel values that are evaluated and transformed at a time, 1.6 MB: they stay in the second-level cache."""

RING_GROUP_ENTRIES = 2**26
"""Entries of a tall matrix of one column group on a grid, about: 0.5 GiB."""

TILE_CACHE_COLUMNS = 122
"""Above this many columns evaluating a tile is too small a part of the work to keep it."""


@dataclass(frozen=True)
class Demand:
    """What is asked for and what there is to do it with.

    Attributes
    ----------
    n, q, fields : int
        Observed points, test points, fields that share the points.
    full_covariance : bool
        Whether the (q, q) covariance is wanted.
    workers : int
        Tasks that run at once.
    shares_memory : bool
        Whether the workers share this process's memory.
    memory_limit_bytes : int
        What the solve may allocate.
    p : int
        Coordinates of a point.
    grid : GridSize or None
        The grid that was observed, where it is one.
    mean_targets : int
        Points at which the mean alone is wanted, beside the q.
    cell_nodes : int
        Where targets are means over cells, nodes of all of them; 0 where they are points.
    bounds : bool
        Whether bounds of the computational variance are wanted beside the posterior.
    """

    n: int
    q: int
    fields: int
    full_covariance: bool
    workers: int
    shares_memory: bool
    memory_limit_bytes: int
    p: int = 3
    grid: "GridSize | None" = None
    mean_targets: int = 0
    cell_nodes: int = 0
    bounds: bool = False

    @property
    def target_points(self) -> int:
        """Points whose covariances with the observed ones are evaluated: the targets, or nodes of cells."""
        return self.cell_nodes or self.q


@dataclass(frozen=True)
class GridSize:
    """A latitude-longitude grid of observed points.

    Attributes
    ----------
    latitudes, longitudes : int
        P and Q.
    missing : int
        Points that were not observed; copies of an observed pole are not missing.
    mirrored : bool
        Whether the grid is its own mirror image, which halves the blocks of its Gram matrix.
    targets_are_grid : bool
        Whether the targets are the points of the same grid.
    target_views : int or None
        Of targets that are a grid, or cells: how many of them see this one differently, up to rotation. None
        where the targets are points, of which no two may see it alike.
    noise_spread : float
        Largest noise of a point over the smallest, both in units of the mean of their latitudes: 1 where the
        noise does not vary along latitudes.
    """

    latitudes: int
    longitudes: int
    missing: int = 0
    mirrored: bool = False
    targets_are_grid: bool = False
    target_views: int | None = None
    noise_spread: float = 1.0
    window: int = 0
    missing_in_window: int = 0

    @property
    def solves_window(self) -> bool:
        """Whether the window is solved directly; see `solves_window`."""
        even = self.noise_spread == 1.0
        return even and solves_window(
            self.latitudes, self.window, gaps=self.missing_in_window, missing=self.missing
        )

    @property
    def size(self) -> int:
        """Points, P Q."""
        return self.latitudes * self.longitudes

    @property
    def has_rings(self) -> bool:
        """Whether all points of a latitude are alike: none is missing, and the noise is the same."""
        return not self.missing and self.noise_spread == 1.0

    @property
    def products(self) -> int:
        """How many products an exact solve takes, about; 0 where an identity gives it."""
        if self.missing <= FEW_MISSING and self.noise_spread == 1.0:
            return 0
        of_noise = math.ceil(PRODUCTS_OF_NOISE * math.sqrt(self.noise_spread))
        return min(max(of_noise, GAP_PRODUCTS if self.missing else 0), MOST_PRODUCTS)

    @property
    def wavenumbers(self) -> int:
        """How many blocks the Gram matrix has, ``Q // 2 + 1``."""
        return self.longitudes // 2 + 1

    @property
    def block_bytes(self) -> int:
        """Bytes of the blocks of the Gram matrix, one for each wavenumber and sector."""
        return (
            DOUBLE * self.wavenumbers * sum(size**2 for size in sector_sizes(self.latitudes, self.mirrored))
        )

    @property
    def cosine_bytes(self) -> int:
        """Bytes of the cosines of all wavenumbers at all differences in longitude."""
        return DOUBLE * self.wavenumbers**2

    @property
    def task_bytes(self) -> int:
        """Bytes of a task that makes blocks, beside them: a copy of its own, cosines, kernel values."""
        ranges = range_count(self.wavenumbers, self.block_bytes)
        return (self.block_bytes + 3 * self.cosine_bytes) // ranges + 2 * DOUBLE * TABLE_ENTRIES


@dataclass(frozen=True)
class Plan:
    """What a solve is going to do.

    Attributes
    ----------
    method : str
        The solver, for people.
    n, q, fields, iterations : int
        Observed points, test points, fields, sweeps or actions.
    block_size : int
        Points of a block (or of a tile side).
    batches : tuple of tuples of (start, stop)
        Column groups of each batch; batches run one after the other to stay within memory.
    panels : int
        Row panels of a column group.
    keep_factors : bool
        Whether the factors of the diagonal blocks stay in memory between sweeps.
    stored_rows : tuple of int
        Rows of tiles, left of the diagonal and on it, that are kept between sweeps (only where workers
        share memory).
    rings_per_block : int
        Latitudes of a block where blocks are bands of rings of a whole grid; 0 where they are points.
    tasks, gram_entries, flops, peak_bytes, workers : int
        Tasks submitted; kernel evaluations; floating-point operations; memory; tasks that run at once.
    seconds : float
        Rough time on the given workers.
    solves : int
        Solves that follow each other, one for each pattern of gaps. Work and time are the sum of all; n is
        that of the pattern with the most observed points, blocks and memory those of the largest solve.
    direct : bool
        Whether the solve is no iteration; ``iterations`` is then 1.
    """

    method: str
    n: int
    q: int
    fields: int
    iterations: int
    block_size: int
    batches: tuple[tuple[Range, ...], ...]
    panels: int
    keep_factors: bool
    stored_rows: tuple[int, ...]
    tasks: int
    gram_entries: int
    flops: int
    peak_bytes: int
    workers: int
    seconds: float
    rings_per_block: int = 0
    solves: int = 1
    direct: bool = False

    def batch_of(self, columns: slice) -> int:
        """Find the batch that some columns belong to, counted from 1."""
        begun = [batch for batch in self.batches if batch and batch[0][0] <= columns.start]
        return max(1, len(begun))

    @property
    def widest_group(self) -> int:
        """Columns of the widest column group."""
        return max((stop - start for batch in self.batches for start, stop in batch), default=0)

    @property
    def cached_tiles(self) -> int:
        """Tiles in the stored rows."""
        return sum(row + 1 for row in self.stored_rows)

    def lines(self) -> list[str]:
        """Return the plan as sentences for people."""
        groups = sum(len(batch) for batch in self.batches)
        text = [
            f"{self.method}: {counted(self.n, 'observed point')}, {counted(self.q, 'test point')}, "
            + counted(self.fields, "field")
            + ("" if self.direct else f", {counted(self.iterations, 'iteration')}"),
            f"Gram matrix {self.n:,} x {self.n:,} would take {bytes_text(DOUBLE * self.n**2)}; "
            f"{self.gram_entries:.3g} entries are computed where they are used",
        ]
        if self.solves > 1:
            text.append(
                f"{self.solves} solves, one for each pattern of gaps, with up to so many observed points; "
                "work and time are those of all, blocks and memory those of the largest"
            )
        if self.rings_per_block:
            text.append(
                f"blocks are bands of {counted(self.rings_per_block, 'latitude')} of the grid, and mirror "
                f"images on a mirrored one, {self.tasks:,} tasks"
            )
        elif groups:
            blocks = len(block_ranges(self.n, self.block_size))
            text.append(
                f"{counted(blocks, 'block')} of {self.block_size} points, "
                f"{counted(groups, 'column group')} in {len(self.batches)} "
                f"batch{'es' if len(self.batches) > 1 else ''}, "
                f"{counted(self.panels, 'row panel')}, {self.tasks:,} tasks"
            )
        if self.cached_tiles:
            kept = self.cached_tiles * DOUBLE * self.block_size**2
            text.append(f"{self.cached_tiles} tiles ({bytes_text(kept)}) are kept between sweeps")
        text.append(
            f"peak memory about {bytes_text(self.peak_bytes)}, time about {rough_duration(self.seconds)} "
            f"on {counted(self.workers, 'worker')}"
        )
        return text


def sector_sizes(latitudes: int, mirrored: bool) -> tuple[int, ...]:
    """Rows of the blocks of one wavenumber: (P,), or (ceil(P / 2), P // 2) for sums and differences."""
    half = latitudes // 2
    return (latitudes - half, half) if mirrored and half else (latitudes,)


def range_count(wavenumbers: int, block_bytes: int) -> int:
    """Into how many tasks the wavenumbers of a grid are split."""
    # where latitudes are few, cosines are more than the blocks
    largest = max(block_bytes, DOUBLE * wavenumbers**2)
    return min(wavenumbers, max(FEWEST_RANGES, -(-largest // RANGE_BYTES)))


def plan_sweeps(
    demand: Demand,
    *,
    method: str,
    iterations: int,
    block_size: int,
    stages: int = 1,
    at_once: bool = False,
    diagonals_alone: bool = False,
    remedies: tuple[Remedy, ...] = (),
) -> Plan:
    """Plan the adjoint stages of an affine solver on tiles.

    Parameters
    ----------
    demand : Demand
        What is asked for.
    method : str
        The solver, for people.
    iterations, stages : int
        Cycles of so many stages.
    block_size : int
        Points of a block.
    at_once : bool
        Whether stages solve all blocks before they update any: one more tall matrix.
    diagonals_alone : bool
        Whether stages take only the diagonals of the blocks: no factors.
    remedies : tuple of Remedy
        Settings of the solver that would save memory.

    Raises
    ------
    BudgetError
        If even one column group at a time does not fit into ``memory_limit_bytes``.
    """
    n, q, workers = demand.n, demand.q, demand.workers
    size = min(block_size, max(n, 1))
    blocks = len(block_ranges(n, size))
    row_tiles = len(block_ranges(n, row_tile_size(size)))
    if iterations == 0:
        groups: list[Range] = []
    else:
        groups = [(0, q)] if demand.full_covariance and q else column_groups(q)
    widest = max((stop - start for start, stop in groups), default=0)

    depth = 1 if diagonals_alone else size  # of a factor
    factor_bytes = DOUBLE * n * depth
    keep_factors = factor_bytes <= demand.memory_limit_bytes // 3
    # a factor is copied while it is made; a solve holds its columns twice, sums after it once more
    in_flight = DOUBLE * size * (2 * depth + (2 + at_once) * widest) * workers
    fixed = common_bytes(demand, iterations) + (factor_bytes if keep_factors else 0) + in_flight
    # panels, their successors, and solutions still in use (between processes, also the panels before);
    # all tasks of a sweep are handed out at once
    group_bytes = (3 + at_once + (not demand.shares_memory)) * DOUBLE * n * widest + stages * blocks * (
        TASK_BYTES * (1 + panel_count(row_tiles, 1, workers)) + TASK_TILE_BYTES * row_tiles
    )
    room = demand.memory_limit_bytes - fixed
    # two groups per worker keep it busy; more would only take memory
    together = min(len(groups), 2 * workers, room // group_bytes) if groups else 0
    if groups and together < 1:
        fewer = Remedy.VARIANCES_ALONE if demand.full_covariance else Remedy.FEWER_TEST_POINTS
        asked = f"even for {widest} test points at once"
        if demand.mean_targets:
            asked = f"for the mean at {demand.mean_targets:,} test points"
        raise BudgetError(
            f"{method} on {n:,} points needs {bytes_text(fixed + group_bytes)} {asked}, "
            f"more than the {bytes_text(demand.memory_limit_bytes)} that may be used.",
            remedies=(Remedy.MORE_MEMORY, fewer, *remedies),
        )
    batches = tuple(
        tuple(groups[start:stop])
        for start, stop in (split(len(groups), -(-len(groups) // together)) if groups else [])
    )
    together = max((len(batch) for batch in batches), default=0)
    panels = panel_count(row_tiles, together, workers)

    repeats = (
        demand.shares_memory
        and stages * iterations > 1
        and 1 < q <= TILE_CACHE_COLUMNS
        and row_tile_size(size) == size
    )
    spare = min(TILE_CACHE_BYTES, room - together * group_bytes) if repeats else 0
    stored_rows = _rows_that_fit(blocks, spare // (DOUBLE * size * size))
    stored = sum(row + 1 for row in stored_rows)
    fresh = 1.0 - stored / max(blocks * (blocks + 1) / 2, 1)
    # the last sweep leaves out the rows it has visited; blocks that are solved at once leave out none
    sweeps = stages * iterations - (0.0 if at_once or iterations == 0 else 0.5)
    factored = 1 if keep_factors else stages * iterations
    entries = round(n * n * sweeps * len(groups) * fresh) + stored * size * size + n * demand.target_points
    entries += 0 if diagonals_alone else blocks * factored * size * size
    flops = (
        round(2 * n * n * q * sweeps)
        + 2 * n * depth * q * stages * iterations
        + (0 if diagonals_alone else n * size * size // 3 * factored)
    )
    tasks = len(groups) * stages * iterations * blocks * (1 + panels + at_once)
    return Plan(
        method=method,
        n=n,
        q=q,
        fields=demand.fields,
        iterations=iterations,
        block_size=size,
        batches=batches,
        panels=panels,
        keep_factors=keep_factors,
        stored_rows=stored_rows,
        tasks=tasks,
        gram_entries=entries if groups else 0,
        flops=flops if groups else 0,
        peak_bytes=fixed + together * group_bytes + stored * DOUBLE * size * size,
        workers=workers,
        seconds=_seconds(demand, entries, flops, tasks) if groups else 0.0,
    )


def plan_actions(demand: Demand, *, method: str, iterations: int, stored_vectors: int, products: int) -> Plan:
    """Plan a solver of the action family that holds ``stored_vectors`` vectors per action.

    At most n actions are used. ``products`` counts products with G in units of n^2 / 2 evaluations: as many
    as actions where they are taken one by one, and two for all of them at once.
    """
    n, q, used = demand.n, demand.q, min(iterations, demand.n)
    peak = common_bytes(demand, used) + DOUBLE * (n * (stored_vectors * used + 24) + 3 * q * used)
    entries, flops = products * n * n // 2 + n * demand.target_points * used, 2 * n * n * used
    if demand.grid is not None and used > 0:
        grid, at_once = demand.grid, 2 * used // products
        peak += grid.block_bytes + grid.task_bytes * demand.workers + 6 * DOUBLE * grid.size * at_once
        entries = grid.size * grid.latitudes // 2 + (
            0 if grid.targets_are_grid else n * demand.target_points * used
        )
        flops = grid.wavenumbers * grid.latitudes**2 * (grid.wavenumbers + 8 * used)
    if peak > demand.memory_limit_bytes:
        raise _too_large(demand, method, peak, Remedy.FEWER_ITERATIONS)
    working = used > 0 and q > 0
    flops += 2 * n * q * used + 4 * n * used**2
    return _plan_without_tiles(demand, method, used, peak, entries * working, flops * working, products * 16)


def plan_exact(demand: Demand) -> Plan:
    """Plan the exact solve by a dense Cholesky factor."""
    n, q, fields = demand.n, demand.q, demand.fields
    peak = common_bytes(demand, 1) + DOUBLE * (2 * n * n + 3 * n * (q + fields))
    if peak > demand.memory_limit_bytes:
        raise _too_large(demand, "exact Cholesky", peak, Remedy.BLOCK_GAUSS_SEIDEL)
    flops = n**3 // 3 + n * n * (q + fields)
    entries = n * n + n * demand.target_points
    return _plan_without_tiles(demand, "exact Cholesky", None, peak, entries, flops, 1)


def plan_ring_sweeps(
    demand: Demand, grid: GridSize, *, method: str, iterations: int, block_size: int
) -> Plan:
    """Plan adjoint sweeps over bands of whole rings of a complete grid.

    Raises
    ------
    BudgetError
        If they do not fit into ``memory_limit_bytes``.
    """
    width = min(max(1, block_size // grid.longitudes), grid.latitudes)
    tasks_of_a_sweep = range_count(grid.wavenumbers, grid.block_bytes)
    on_grid = grid.targets_are_grid and not demand.full_covariance
    if iterations == 0 or demand.q == 0:
        groups: list[Range] = []
    elif on_grid or demand.full_covariance:
        groups = [(0, demand.q)]
    else:
        groups = split(demand.q, -(-demand.q // max(1, min(COLUMN_GROUP, RING_GROUP_ENTRIES // grid.size))))
    widest = max((stop - start for start, stop in groups), default=0)
    whitened = round(grid.block_bytes * (1.5 + 2.0 * width / grid.latitudes))
    columns = grid.block_bytes if on_grid else 2 * DOUBLE * (grid.size + 2 * grid.latitudes) * widest
    # the columns, what they are made from, and those of the tasks in flight
    peak = (
        common_bytes(demand, iterations)
        + whitened
        + columns * 2
        + (columns * 4 // tasks_of_a_sweep + grid.task_bytes) * demand.workers
    )
    peak += 6 * DOUBLE * grid.size * demand.fields
    if peak > demand.memory_limit_bytes:
        raise _too_large(demand, f"{method} on the grid", peak, Remedy.COARSER_GRID)
    width_of_columns = grid.latitudes if on_grid else 2 * widest * len(groups)
    flops = grid.wavenumbers * grid.latitudes**2 * (grid.latitudes + 4 * width_of_columns * iterations)
    entries = grid.size * grid.latitudes // 2 * len(groups[:1])
    entries += 0 if on_grid else grid.size * demand.target_points
    tasks = tasks_of_a_sweep * (2 + iterations) * len(groups)
    return replace(
        _plan_without_tiles(demand, method, iterations, peak, entries, flops, tasks),
        batches=tuple((group,) for group in groups),
        block_size=width * grid.longitudes,
        rings_per_block=width,
    )


def solves_window(latitudes: int, width: int, *, gaps: int, missing: int) -> bool:
    """Whether a window of a circle is solved directly: much of the circle is missing, little of the window.

    Parameters
    ----------
    latitudes, width : int
        Rows and columns of the window; no columns if it is not known.
    gaps, missing : int
        Points of the window, and of the whole grid, that were not observed.
    """
    flops = 2 * width**2 * latitudes**3
    return width > 0 and gaps <= FEW_MISSING < missing and flops <= MOST_WINDOW_FLOPS


def plan_exact_grid(demand: Demand, grid: GridSize) -> Plan:
    """Plan an exact solve on a latitude-longitude grid.

    One block of the Gram matrix for each wavenumber, of all latitudes, and a right-hand side for each field,
    latitude and test point; with many missing points, many for each test point.
    """
    if grid.solves_window:
        return _plan_window(demand, grid)
    many = grid.products > 0
    targets = 0 if grid.targets_are_grid and grid.has_rings else demand.q
    views = targets if grid.target_views is None else min(targets, grid.target_views)
    # an iteration is a product and a solve
    solves = demand.fields * max(2 * grid.products, 1) + (2 * grid.latitudes if grid.missing else 0)
    solves += targets * 2 * grid.products if many else views
    # solves, coordinates of the points, and of those that were observed; fields and their weights
    in_flight = (min(solves, GRID_COLUMNS) * 6 + 12 + (0 if grid.has_rings else 24)) * DOUBLE * grid.size
    in_flight += (3 if grid.has_rings else 4) * DOUBLE * grid.size * demand.fields
    if not many:
        in_flight += 2 * DOUBLE * grid.missing * (grid.missing + targets)
    if demand.full_covariance:
        in_flight += 3 * DOUBLE * grid.size * demand.q
    peak = common_bytes(demand, 1) + grid.block_bytes + grid.task_bytes * demand.workers + in_flight
    if peak > demand.memory_limit_bytes:
        raise _too_large(demand, "the exact solve on a grid", peak, Remedy.COARSER_GRID)
    # the prior seen by each view, and for the mean at other points than the grid's by each of them
    points = demand.target_points if targets else 0
    nodes = -(-demand.target_points // max(demand.q, 1))
    of_views = points if many or grid.target_views is None else views * nodes
    alike = demand.cell_nodes > 0 and views <= LEAST_ALIKE * targets
    seen = of_views + (0 if grid.targets_are_grid else views * nodes if alike else points)
    entries = grid.size * grid.latitudes // 2 + demand.n * seen
    flops = grid.wavenumbers * grid.latitudes**2 * (grid.wavenumbers + grid.latitudes // 3 + 8 * solves)
    if not many:
        flops += grid.missing**2 * (grid.missing // 3 + targets)
    return _plan_without_tiles(demand, "exact on the grid", None, peak, entries, flops, 16)


def _plan_window(demand: Demand, grid: GridSize) -> Plan:
    """Plan an exact solve on a part of the circle: block Toeplitz, a solve for each gap and each target."""
    matrix = grid.window * grid.latitudes**2
    points, missing = grid.window * grid.latitudes, grid.missing_in_window
    solves = demand.fields * (2 if missing else 1) + missing + demand.q
    # blocks, lags and predictor; transforms of both triangles and of the product
    factor = 16 * DOUBLE * matrix
    # columns that are in memory at once; of those being solved their transforms, of twice the length
    in_flight = (16 * GRID_COLUMNS * 3 + 4 * GRID_COLUMNS * 24 * demand.workers + 12) * DOUBLE * points
    in_flight += DOUBLE * (8 * grid.size * demand.fields + 6 * grid.size + points * demand.q)
    in_flight += 3 * DOUBLE * missing * (missing + demand.q)
    if demand.full_covariance:
        in_flight += 3 * DOUBLE * points * demand.q
    peak = common_bytes(demand, 1) + factor + in_flight
    if peak > demand.memory_limit_bytes:
        raise _too_large(demand, "the exact solve on a regional grid", peak, Remedy.COARSER_GRID)
    entries = grid.latitudes * points + (points + demand.n) * demand.target_points
    flops = 2 * grid.window * grid.latitudes * matrix + 36 * matrix * solves + missing**3 // 3
    return _plan_without_tiles(demand, "exact on the regional grid", None, peak, entries, flops, 16)


def _plan_without_tiles(
    demand: Demand, method: str, iterations: int | None, peak: int, entries: int, flops: int, tasks: int
) -> Plan:
    """Plan a solve whose columns are not batched; with no iterations to count it is a direct one."""
    return Plan(
        method=method,
        n=demand.n,
        q=demand.q,
        fields=demand.fields,
        iterations=1 if iterations is None else iterations,
        direct=iterations is None,
        block_size=min(POINT_TILE, max(demand.n, 1)),
        batches=(),
        panels=0,
        keep_factors=False,
        stored_rows=(),
        tasks=tasks,
        gram_entries=entries,
        flops=flops,
        peak_bytes=peak,
        workers=demand.workers,
        seconds=_seconds(demand, entries, flops, tasks),
    )


def common_bytes(demand: Demand, iterations: int) -> int:
    """Count copies of the inputs, and the posterior after every iteration twice (sums, and the trace)."""
    inputs = demand.n * (5 * demand.p + 3 * demand.fields)
    outputs = demand.q * (2 * (demand.fields + 1) * (iterations + 1) + 3 * demand.p)
    # downdate, its successor and the part of a block, for a few blocks; prior covariance and result
    squares = 8 * demand.q**2 if demand.full_covariance else 0
    # coordinates; the mean in pieces, as a whole, and with the prior's
    means = demand.mean_targets * (3 * demand.p + 3 * demand.fields)
    # nodes, weights and their copies; values of mean and of actions there; covariances that are averaged
    nodes = demand.cell_nodes * (4 * demand.p + 8 + 3 * demand.fields)
    nodes += (CELL_ENTRIES * (demand.workers + 1)) if demand.cell_nodes else 0
    nodes += demand.cell_nodes * demand.q if demand.full_covariance else 0
    return DOUBLE * (inputs + outputs + squares + means + nodes)


def _rows_that_fit(blocks: int, tiles: int) -> tuple[int, ...]:
    """Choose tile rows, long ones first, with at most ``tiles`` tiles in all."""
    chosen = []
    for row in reversed(range(blocks)):
        if row + 1 <= tiles:
            chosen.append(row)
            tiles -= row + 1
    return tuple(chosen)


def _seconds(demand: Demand, entries: int, flops: int, tasks: int) -> float:
    working = 1e-9 * (ENTRY_NANOSECONDS * entries + FLOP_NANOSECONDS * flops) / max(demand.workers, 1)
    return working + tasks * (TASK_SECONDS if demand.shares_memory else DASK_TASK_SECONDS)


def _too_large(demand: Demand, method: str, peak: int, remedy: Remedy) -> BudgetError:
    return BudgetError(
        f"{method} on {demand.n:,} points needs about {bytes_text(peak)}, more than the "
        f"{bytes_text(demand.memory_limit_bytes)} that may be used.",
        remedies=(Remedy.MORE_MEMORY, remedy),
    )
