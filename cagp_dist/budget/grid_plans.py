"""Plans of solvers on latitude-longitude grids: by rings, by wavenumbers."""

from dataclasses import replace

from cagp_dist.budget.demand import DOUBLE, Demand, GridSize, range_count, sector_sizes
from cagp_dist.budget.plan import Plan, check_peak, common_bytes, plan_without_tiles
from cagp_dist.remedies import Remedy
from cagp_dist.tiling import COLUMN_GROUP, Range, split

GRID_COLUMNS = 16  # Fields of a grid that are solved at once
LEAST_ALIKE = 0.25  # Views in units of cells up to which sums over a grid are taken view by view
TRANSFORM_FLOPS = 300  # Of a Fourier transform along longitude, for each wavenumber, about
EIGEN_FLOPS = (
    20  # Of the modes of a symmetric matrix, for each cube of its size: 9, at half the speed of products
)
DAY_PRODUCTS, DAY_FIELDS = (
    100,
    40,
)  # Of a day of a filter: products of a column with all modes, and fields in memory
RING_GROUP_ENTRIES = 2**26  # Entries of a tall matrix of one column group on a grid, about: 0.5 GiB


def plan_ring_sweeps(
    demand: Demand,
    grid: GridSize,
    *,
    method: str,
    iterations: int,
    block_size: int | None,
    stages: int = 1,
    shuffled: bool = False,
    coarse: int = 0,
    projections: int = 0,
    work_matrices: int = 0,
) -> Plan:
    """Plan stages over bands of whole rings; without ``block_size`` points are solved one by one."""
    width = min(max(1, (block_size or 1) // grid.longitudes), grid.latitudes)
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
        + columns * (2 + work_matrices)
        + ((columns * 4 + shuffled * (whitened + columns * 4)) // tasks_of_a_sweep + grid.task_bytes)
        * demand.workers
    )
    peak += 6 * DOUBLE * grid.size * demand.fields
    # candidates of every range, of which the largest are taken, with their images
    peak += 3 * DOUBLE * grid.latitudes * coarse * tasks_of_a_sweep
    check_peak(demand, f"{method} on the grid", peak, Remedy.COARSER_GRID)
    width_of_columns = grid.latitudes if on_grid else 2 * widest * len(groups)
    cycles = stages * iterations
    flops = grid.wavenumbers * grid.latitudes**2 * (grid.latitudes + 4 * width_of_columns * cycles)
    flops += 4 * grid.latitudes * coarse * width_of_columns * projections
    entries = grid.size * grid.latitudes // 2 * len(groups[:1])
    entries += 0 if on_grid else grid.size * demand.target_points
    tasks = tasks_of_a_sweep * (2 + stages * iterations + projections) * len(groups)
    return replace(
        plan_without_tiles(demand, method, iterations, peak, entries, flops, tasks),
        batches=tuple((group,) for group in groups),
        block_size=1 if block_size is None else width * grid.longitudes,
        rings_per_block=width,
        sum_parts=tasks_of_a_sweep,
    )


def plan_exact_grid(demand: Demand, grid: GridSize) -> Plan:
    """Plan an exact solve on a latitude-longitude grid."""
    targets = 0 if grid.targets_are_grid and not grid.missing else demand.q
    if targets and not demand.full_covariance:
        targets -= demand.q if grid.targets_are_grid else grid.target_places
    views = targets if grid.target_views is None else min(targets, grid.target_views)
    solves = demand.fields * (2 if grid.missing else 1) + views
    # solves, coordinates of the points, and of those that were observed; fields and their weights
    together = GRID_COLUMNS if grid.missing else min(solves, GRID_COLUMNS)
    in_flight = (together * 6 + 12 + (24 if grid.missing else 0)) * DOUBLE * grid.size
    in_flight += (4 if grid.missing else 3) * DOUBLE * grid.size * demand.fields
    if grid.missing:  # the blocks of the inverse, and copies of those being made
        ranges = range_count(grid.wavenumbers, grid.block_bytes)
        in_flight = max(in_flight, grid.block_bytes * (ranges + 3 * demand.workers) // ranges)
    in_flight += 2 * DOUBLE * grid.missing * (grid.missing + targets)
    if demand.full_covariance:
        in_flight += 3 * DOUBLE * grid.size * demand.q
    peak = common_bytes(demand, 1) + grid.block_bytes + grid.task_bytes * demand.workers + in_flight
    check_peak(demand, "the exact solve on a grid", peak, Remedy.NEIGHBOURS, Remedy.COARSER_GRID)
    # the prior seen by each view, and for the mean at other points than the grid's by each of them
    points = demand.target_points - grid.target_places if targets else 0
    nodes = -(-demand.target_points // max(demand.q, 1))
    of_views = points if grid.target_views is None else views * nodes
    alike = demand.cell_nodes > 0 and views <= LEAST_ALIKE * targets
    seen = of_views + (0 if grid.targets_are_grid else views * nodes if alike else points)
    entries = grid.size * grid.latitudes // 2 + demand.n * seen
    flops = grid.wavenumbers * grid.latitudes**2 * (grid.wavenumbers + grid.latitudes // 3 + 8 * solves)
    if grid.missing:
        flops += grid.wavenumbers * grid.latitudes**2 * (2 * grid.latitudes // 3 + TRANSFORM_FLOPS)
    flops += grid.missing**2 * (grid.missing // 3 + targets)
    return plan_without_tiles(demand, "exact on the grid", None, peak, entries, flops, 16)


def plan_filtered_grid(demand: Demand, grid: GridSize, *, held_out: int, views: int, crossed: int) -> Plan:
    """Plan a day of a field that continues from that before it: the modes of the grid, and its products.

    Points of the grid are ``held_out``; others see it in ``views``, and ``crossed`` are off its points.
    """
    sizes = sector_sizes(grid.latitudes, grid.mirrored)
    cubes, squares = (grid.wavenumbers * sum(size**power for size in sizes) for power in (3, 2))
    peak = common_bytes(demand, 1) + 2 * grid.block_bytes + grid.task_bytes * demand.workers
    peak += DOUBLE * (grid.size * (DAY_FIELDS + 3 * min(views, GRID_COLUMNS)) + 3 * held_out**2)
    check_peak(demand, "the filter of a grid", peak, Remedy.COARSER_GRID)
    entries = grid.size * (grid.latitudes // 2 + views + crossed)
    flops = (EIGEN_FLOPS + 2 * (held_out > 0)) * cubes + 4 * squares * (DAY_PRODUCTS + views)
    flops += 2 * held_out**3 + held_out**2 * grid.wavenumbers
    return plan_without_tiles(demand, "a day of a filter on the grid", None, peak, entries, flops, 16)


def inverse_diagonal_flops(grid: GridSize) -> int | None:
    """Count the flops of the diagonal of the inverse of the observed points' matrix (T28)."""
    if not grid.solved_by_rings:
        return None
    solves = 8 * grid.latitudes if grid.missing else grid.latitudes // 3
    return grid.wavenumbers * grid.latitudes**2 * solves + grid.missing**2 * grid.size
