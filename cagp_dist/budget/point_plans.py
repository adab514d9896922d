"""Plans of solvers on points: sweeps over tiles in batches of columns, actions, a dense factor."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from cagp_dist.budget.demand import DOUBLE, Demand
from cagp_dist.budget.plan import (
    ENTRY_FLOPS,
    Plan,
    check_peak,
    common_bytes,
    plan_without_tiles,
    useful_workers,
)
from cagp_dist.errors import BudgetError
from cagp_dist.remedies import Remedy
from cagp_dist.text import bytes_text
from cagp_dist.tiling import STRIPS, Range, block_ranges, column_groups, panel_count, row_tile_size, split

# Tiles kept between sweeps, at most: a constant, however many points there are
TILE_CACHE_BYTES = 340 * 2**20

# Above this many columns evaluating a tile is too small a part of the work to keep it
TILE_CACHE_COLUMNS = 122

PART_ENTRIES = 2**25  # Covariances of points and targets that an exact solve holds at a time, about: 0.25 GiB

# What a task that was handed out takes in this process, and for each of its tiles (measured)
TASK_BYTES = 1500
TASK_TILE_BYTES = 300


class ActionCost(NamedTuple):
    """What making actions in advance takes: bytes while they are made, evaluations, flops, tasks."""

    memory_bytes: int = 0
    entries: int = 0
    flops: int = 0
    tasks: int = 0
    sparse: bool = False
    has_images: bool = False


@dataclass(frozen=True, kw_only=True)
class Sweeps:
    """Adjoint stages of an affine solver, in integers."""

    # iterations, stages: cycles of so many stages
    iterations: int
    block_size: int  # Points of a block
    stages: int = 1
    at_once: bool = False  # Whether stages solve all blocks before they update any: one more tall matrix
    diagonals_alone: bool = False  # Whether stages take only the diagonals of the blocks: no factors
    # products, after_solves: products of G with one column before the first stage, and how many of them
    # follow a solve with every block, whose factor is not kept
    products: int = 0
    after_solves: int = 0
    shuffled: bool = False  # Whether a solve copies its factor and its columns into another order
    # coarse, projections: columns of a coarse space, and projections on it in all cycles, which are no stages
    # here
    coarse: int = 0
    projections: int = 0
    # Colours whose blocks are solved at once and how strongly they are coupled worked out first; 0: none
    colours: int = 0
    work_matrices: int = 0  # Tall matrices that are kept from one stage to the next


def plan_sweeps(
    demand: Demand,
    sweeps: Sweeps,
    *,
    method: str,
    beside: ActionCost | None = None,
    remedies: tuple[Remedy, ...] = (),
) -> Plan:
    """Plan sweeps on tiles; `BudgetError` if even one column group at a time does not fit."""
    n, q, workers = demand.n, demand.q, demand.workers
    beside, iterations, colours = beside or ActionCost(), sweeps.iterations, sweeps.colours
    size = min(sweeps.block_size, max(n, 1))
    blocks = len(block_ranges(n, size))
    row_tiles = len(block_ranges(n, row_tile_size(size)))
    groups: list[Range] = []
    if iterations > 0:
        groups = [(0, q)] if demand.full_covariance and q else column_groups(q)
    widest = max((stop - start for start, stop in groups), default=0)

    depth = 1 if sweeps.diagonals_alone else size  # of a factor
    factor_bytes = DOUBLE * n * depth
    keep_factors = factor_bytes <= demand.memory_limit_bytes // 3
    # a factor is copied while it is made; a solve holds its columns twice, sums after it once more
    factors = 2 + sweeps.shuffled + 3 * (colours > 0)  # two blocks, what is between them, its squares
    columns = (2 + sweeps.at_once + 2 * sweeps.shuffled) * widest
    in_flight = DOUBLE * size * (factors * depth + columns) * workers
    fixed = common_bytes(demand, iterations) + (factor_bytes if keep_factors else 0) + in_flight
    coarse = min(sweeps.coarse, n) if iterations > 0 and q > 0 else 0
    fixed += coarse_bytes(n, coarse, demand.fields) + beside.memory_bytes
    group_bytes = _group_bytes(
        demand, sweeps, widest=widest, blocks=blocks, row_tiles=row_tiles, coarse=coarse
    )
    room = demand.memory_limit_bytes - fixed
    # two groups per worker keep it busy; more would only take memory
    together = min(len(groups), 2 * workers, room // group_bytes) if groups else 0
    if groups and together < 1:
        raise _too_much(demand, method, fixed + group_bytes, widest=widest, remedies=remedies)
    batches = _batches(groups, together)
    together = max((len(batch) for batch in batches), default=0)
    useful = useful_workers(demand, size=size, columns=together * widest)
    panels = panel_count(row_tiles, together, useful)
    spare = min(TILE_CACHE_BYTES, room - together * group_bytes) if _repeats(demand, sweeps, size) else 0
    stored_rows = _rows_that_fit(blocks, spare // (DOUBLE * size * size))
    stored = sum(row + 1 for row in stored_rows)
    products = 2 * sweeps.after_solves if coarse else 0  # each of half the evaluations
    alike = blocks // min(colours, blocks) if colours else 0
    entries, flops = _work(
        demand,
        sweeps,
        size=size,
        blocks=blocks,
        depth=depth,
        coarse=coarse,
        products=products,
        groups=len(groups),
        stored=stored,
        factored=0 if sweeps.diagonals_alone else 1 if keep_factors else sweeps.stages * iterations,
        alike=alike,
    )
    entries, flops = entries + beside.entries, flops + beside.flops
    tasks = iterations * sweeps.stages * blocks * (1 + panels + sweeps.at_once)
    tasks += sweeps.projections * (2 * panels + 2)
    tasks = tasks * len(groups) + products * (STRIPS + blocks) + blocks * alike // 2 if groups else 0
    chain = _chain(demand, sweeps, size=size, depth=depth, blocks=blocks, columns=widest)
    peak = fixed + together * group_bytes + stored * DOUBLE * size * size
    work = (entries, flops, tasks) if groups else (0, 0, tasks)
    return replace(
        plan_without_tiles(demand, method, iterations, peak, *work),
        block_size=size,
        batches=batches,
        panels=panels,
        keep_factors=keep_factors,
        stored_rows=stored_rows,
        chain_flops=len(batches) * chain,
        caller_bytes=fixed - in_flight - factor_bytes * keep_factors,
        task_bytes=in_flight // max(workers, 1),
    )


def _group_bytes(
    demand: Demand, sweeps: Sweeps, *, widest: int, blocks: int, row_tiles: int, coarse: int
) -> int:
    """Count what a group of columns takes while it is solved."""
    # panels, their successors, and solutions still in use (between processes, also the panels before)
    matrices = 3 + sweeps.at_once + sweeps.work_matrices + (not demand.shares_memory)
    tasks = sweeps.stages * blocks * _task_bytes(row_tiles, demand.workers)  # of a sweep all are handed out
    products = DOUBLE * coarse * widest * (row_tiles + 3)  # by tile, and their sum
    return matrices * DOUBLE * demand.n * widest + tasks + products


def _chain(demand: Demand, sweeps: Sweeps, *, size: int, depth: int, blocks: int, columns: int) -> int:
    """Count the flops of the tasks of a batch that wait for each other: solves of blocks, and a tile of each.

    Blocks that are solved at once, or all of a colour, wait for those of the colours before.
    """
    turns = min(max(sweeps.colours, 1), blocks) if sweeps.at_once else blocks
    solve = 2 * depth * size * columns
    tile = row_tile_size(size) * size * (2 * columns + ENTRY_FLOPS * demand.kernel_parts)
    return sweeps.iterations * sweeps.stages * turns * (solve + tile)


def _repeats(demand: Demand, sweeps: Sweeps, size: int) -> bool:
    """Whether tiles are used so often, and by so few columns, that keeping them pays."""
    again = demand.shares_memory and sweeps.stages * sweeps.iterations > 1
    return again and 1 < demand.q <= TILE_CACHE_COLUMNS and row_tile_size(size) == size


def _batches(groups: list[Range], together: int) -> tuple[tuple[Range, ...], ...]:
    """Deal groups of columns out to batches of nearly the same size."""
    parts = split(len(groups), -(-len(groups) // together)) if groups else []
    return tuple(tuple(groups[start:stop]) for start, stop in parts)


def _task_bytes(row_tiles: int, workers: int) -> int:
    """Bytes of the tasks of a block, which are described beside the columns."""
    return TASK_BYTES * (1 + panel_count(row_tiles, 1, workers)) + TASK_TILE_BYTES * row_tiles


def _too_much(
    demand: Demand, method: str, needed: int, *, widest: int, remedies: tuple[Remedy, ...]
) -> BudgetError:
    """Say that not even one group of columns fits."""
    fewer = Remedy.VARIANCES_ALONE if demand.full_covariance else Remedy.FEWER_TEST_POINTS
    asked = f"even for {widest} test points at once"
    if demand.mean_targets:
        asked = f"for the mean at {demand.mean_targets:,} test points"
    return BudgetError(
        f"{method} on {demand.n:,} points needs {bytes_text(needed)} {asked}, "
        f"more than the {bytes_text(demand.memory_limit_bytes)} that may be used.",
        key="memory",
        remedies=(Remedy.MORE_MEMORY, fewer, *remedies),
    )


def _work(
    demand: Demand,
    sweeps: Sweeps,
    *,
    size: int,
    blocks: int,
    depth: int,
    coarse: int,
    products: int,
    groups: int,
    stored: int,
    factored: int,
    alike: int,
) -> tuple[int, int]:
    """Count evaluations and flops, with ``factored`` factors of a block and ``alike`` ones of its colour."""
    n, q = demand.n, demand.q
    fresh = 1.0 - stored / max(blocks * (blocks + 1) / 2, 1)
    # the last sweep leaves out the rows it has visited; blocks that are solved at once leave out none
    whole = sweeps.stages * sweeps.iterations
    passes = whole - (0.0 if sweeps.at_once or whole == 0 else 0.5)
    entries = round(n * n * passes * groups * fresh) + stored * size * size + n * demand.target_points
    entries += sweeps.products * n * n + blocks * factored * size * size
    entries += n * n + n * coarse if coarse else 0
    # pairs of blocks of a colour: a tile, two triangular solves, two products
    entries += n * size * alike // 2 + products * n * size
    flops = round(2 * n * n * q * passes) + 2 * n * depth * q * whole
    flops += n * size * size // 3 * factored
    flops += 2 * n * coarse * (n + 5 * coarse + 2 * q * sweeps.projections)
    flops += products * n * (size * size // 3 + 2 * size) + 3 * n * size * size * alike
    return entries, flops


def coarse_bytes(n: int, columns: int, fields: int) -> int:
    """Bytes of a projection on k columns: basis and image, four times as much while they are made."""
    return DOUBLE * columns * (6 * n + 4 * columns + 2 * fields)


def plan_actions(
    demand: Demand,
    *,
    method: str,
    iterations: int,
    stored_vectors: int,
    products: int,
    at_once: int | None = None,
    beside: ActionCost | None = None,
) -> Plan:
    """Plan a solver of the action family; ``products`` with G are in units of n^2 / 2 evaluations."""
    n, q, used = demand.n, demand.q, min(iterations, demand.n)
    made = ActionCost() if beside is None else beside
    peak = common_bytes(demand, used) + DOUBLE * (n * (stored_vectors * used + 24) + 3 * q * used)
    peak += made.memory_bytes
    entries, flops = products * n * n // 2 + n * demand.target_points * used, 2 * n * n * used
    if demand.grid is not None and used > 0:
        grid, at_once = demand.grid, at_once or 2 * used // products
        peak += grid.block_bytes + grid.task_bytes * demand.workers + 6 * DOUBLE * grid.size * at_once
        entries = grid.size * grid.latitudes // 2 + (
            0 if grid.targets_are_grid else n * demand.target_points * used
        )
        flops = grid.wavenumbers * grid.latitudes**2 * (grid.wavenumbers + 8 * used)
    check_peak(demand, method, peak, Remedy.FEWER_ITERATIONS)
    working = used > 0 and q > 0
    entries, flops = entries + made.entries, flops + made.flops + 2 * n * q * used + 4 * n * used**2
    tasks = products * STRIPS + made.tasks
    plan = plan_without_tiles(demand, method, used, peak, entries * working, flops * working, tasks)
    return replace(plan, task_bytes=DOUBLE * n * (demand.p + 2))  # points, a column, a product


def plan_known_actions(demand: Demand, *, method: str, iterations: int, cost: ActionCost) -> Plan:
    """Plan a projection onto actions that are known in advance, at most n, with one product with G."""
    n, q, used = demand.n, demand.q, min(iterations, demand.n)
    # the small matrix, its factor and what is between; what the targets see, twice, and half of the solution
    peak = common_bytes(demand, used) + DOUBLE * (4 * used**2 + 3 * q * used + 2 * demand.fields * used)
    entries, flops = used * demand.target_points, used**3 // 3 + q * used**2 + 2 * q * demand.fields * used
    product, tasks = 0, cost.tasks + 1
    if cost.sparse:
        peak += max(cost.memory_bytes, DOUBLE * demand.target_points * used)
        entries += used**2
    else:
        # the actions, their basis while it is made, its product with G and a copy for the tasks
        peak += max(cost.memory_bytes, DOUBLE * n * (6 * used + 24))
        if demand.cell_nodes:
            peak += DOUBLE * 2 * demand.cell_nodes * used
        if not cost.has_images:
            product, tasks = n * n // (2 if used == 1 else 1), tasks + STRIPS
            flops += 2 * n * n * used + 4 * n * used**2
        flops += 2 * n * used**2 + 2 * n * used * q
        entries += (n - used) * demand.target_points if used else 0
        if demand.grid is not None and used > 0:
            grid = demand.grid
            peak += grid.block_bytes + grid.task_bytes * demand.workers + 6 * DOUBLE * grid.size * used
            if not cost.has_images:
                product = grid.size * grid.latitudes // 2
            if grid.targets_are_grid:
                entries = 0
    check_peak(demand, method, peak, Remedy.FEWER_ITERATIONS)
    working = used > 0 and q > 0
    entries, flops = entries + product + cost.entries, flops + cost.flops
    return plan_without_tiles(demand, method, used, peak, entries * working, flops * working, tasks)


def plan_exact(demand: Demand, *, method: str = "exact Cholesky", points: int | None = None) -> Plan:
    """Plan the exact solve by a dense Cholesky factor: of all points, or of so many of them."""
    q, fields = demand.q, demand.fields
    m = demand.n if points is None else min(points, demand.n)
    parts = 1 if demand.full_covariance else -(-m * q // PART_ENTRIES)
    groups = split(q, max(1, min(parts, q)))
    widest = max((stop - start for start, stop in groups), default=0)
    peak = common_bytes(demand, 1) + DOUBLE * (2 * m * m + 3 * m * (widest + fields))
    if points is not None:
        peak += DOUBLE * 2 * demand.n  # the order that they are drawn from
    check_peak(demand, method, peak, Remedy.NEIGHBOURS, Remedy.FEWER_TEST_POINTS)
    flops = m**3 // 3 + m * m * (q + fields)
    entries = m * m + m * demand.target_points
    plan = plan_without_tiles(demand, method, None, peak, entries, flops, 1)
    return plan if len(groups) == 1 else replace(plan, batches=tuple((group,) for group in groups))


def _rows_that_fit(blocks: int, tiles: int) -> tuple[int, ...]:
    """Choose tile rows, long ones first, with at most ``tiles`` tiles in all."""
    chosen = []
    for row in reversed(range(blocks)):
        if row + 1 <= tiles:
            chosen.append(row)
            tiles -= row + 1
    return tuple(chosen)
