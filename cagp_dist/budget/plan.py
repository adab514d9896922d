"""`Plan`: what a solve is going to do, and what the plans of all solvers count alike."""

import math
from dataclasses import dataclass

from cagp_dist.budget.demand import DOUBLE, Demand
from cagp_dist.errors import BudgetError
from cagp_dist.remedies import Remedy
from cagp_dist.text import bytes_text, counted
from cagp_dist.tiling import POINT_TILE, Range, block_ranges

ENTRY_FLOPS = 50  # A kernel value takes as long as so many flops of a product of matrices

# Flops that take as long as a Dask scheduler does to hand out a task
DASK_TASK_FLOPS = 45_000_000

SMALL_CREW = 16  # Workers that all get work, however little there is

# Kernel values that a task which averages over cells holds at a time, and their products by weights
CELL_ENTRIES = 2 * 2**20


@dataclass(frozen=True)
class Work:
    """What a part of a job takes, in integers; of several parts that follow each other their sum."""

    flops: int  #: kernel values included
    tasks: int  #: submitted
    peak_bytes: int  #: of the part that has most

    def __add__(self, other: "Work") -> "Work":
        peak = max(self.peak_bytes, other.peak_bytes)
        return Work(self.flops + other.flops, self.tasks + other.tasks, peak)

    def __rmul__(self, times: int) -> "Work":
        return Work(times * self.flops, times * self.tasks, self.peak_bytes)

    def __str__(self) -> str:
        memory = bytes_text(self.peak_bytes)
        return f"{self.flops:.3g} flops, {counted(self.tasks, 'task')}, peak memory about {memory}"


@dataclass(frozen=True)
class Plan:
    """What a solve is going to do."""

    method: str  #: the solver, for people
    n: int  #: observed points
    q: int  #: test points
    fields: int
    iterations: int  #: sweeps or actions
    block_size: int  #: points of a block (or of a tile side)
    batches: tuple[tuple[Range, ...], ...]  #: column groups of each; one after the other, to fit into memory
    panels: int  #: row panels of a column group
    keep_factors: bool  #: whether the factors of the diagonal blocks stay in memory between sweeps
    #: rows of tiles, left of the diagonal and on it, that are kept between sweeps, where workers share memory
    stored_rows: tuple[int, ...]
    tasks: int  #: submitted
    gram_entries: int  #: kernel evaluations
    flops: int
    peak_bytes: int
    workers: int  #: tasks that run at once
    #: latitudes of a block where blocks are bands of rings of a whole grid, 1 where all points of a ring are
    #: solved alike; 0 where blocks are points
    rings_per_block: int = 0
    #: solves that follow each other, one for each pattern of gaps: work is the sum of all; n is
    #: that of the pattern with the most observed points, blocks and memory those of the largest solve
    solves: int = 1
    direct: bool = False  #: whether the solve is no iteration; ``iterations`` is then 1
    chain_flops: int = 0  #: of tasks that wait for each other, kernel values included; 0: not counted
    full_covariance: bool = False  #: whether the whole covariance of the test points is asked for
    kernel_parts: int = 1  #: terms of the sum that a kernel value is
    sum_parts: int = 1  #: of the sums over observed points: one for each task of a sweep over bands of rings
    sums: int = 0  #: columns of sums over draws, where its checkpoints have these alone
    kept_columns: int = 0  #: columns of values at the targets that checkpoints of a direct solver have
    caller_bytes: int = 0  #: of the peak, what the process that asks holds; beside tasks, the rest is shared
    task_bytes: int = 0  #: of the peak, what a task holds while it runs

    def batch_of(self, columns: slice) -> int:
        """Find the batch that some columns belong to, counted from 1."""
        begun = [batch for batch in self.batches if batch and batch[0][0] <= columns.start]
        return max(1, len(begun))

    @property
    def work(self) -> Work:
        """All of it, with kernel values as flops."""
        entries = ENTRY_FLOPS * self.kernel_parts * self.gram_entries
        return Work(self.flops + entries, self.tasks, self.peak_bytes)

    @property
    def widest_group(self) -> int:
        """Columns of the widest column group."""
        return max((stop - start for batch in self.batches for start, stop in batch), default=0)

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of a checkpoint, at most: columns twice, as for a recurrence, products, states, bounds.

        Direct solvers keep values at targets, if anything.
        """
        if self.direct:
            return DOUBLE * self.q * self.kept_columns
        if self.sums:
            return DOUBLE * self.q * self.sums
        widest = max((batch[-1][1] - batch[0][0] for batch in self.batches if batch), default=0)
        products = (self.n + self.q) * self.iterations
        # sums beside the states before them, and of a full covariance that of the last state
        states = self.q * (self.fields + 1) * (self.iterations + self.sum_parts - 1)
        squares = self.q**2 * (self.sum_parts + 1) if self.full_covariance else 0
        return DOUBLE * (2 * self.n * widest + products + states + squares + 2 * self.q)

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
                f"{self.solves} solves, one for each pattern of gaps, with up to that many observed "
                "points; work is the total, blocks and memory are those of the largest"
            )
        if self.rings_per_block and self.block_size == 1:
            text.append(
                f"all points at once, one wavenumber of the rings after the other, {self.tasks:,} tasks"
            )
        elif self.rings_per_block:
            text.append(
                f"blocks are bands of {counted(self.rings_per_block, 'latitude')} of the grid, and mirror "
                f"images on a mirrored one, {self.tasks:,} tasks"
            )
        elif groups and self.direct:
            text.append(f"test points in {groups:,} parts of {self.widest_group:,} at most")
        elif groups:
            blocks = len(block_ranges(self.n, self.block_size))
            text.append(
                f"{counted(blocks, 'block')} of {self.block_size} points, {counted(groups, 'column group')} "
                f"in {len(self.batches)} batch{'es' if len(self.batches) > 1 else ''}, "
                f"{counted(self.panels, 'row panel')}, {self.tasks:,} tasks"
            )
        if self.cached_tiles:
            kept = self.cached_tiles * DOUBLE * self.block_size**2
            text.append(f"{self.cached_tiles} tiles ({bytes_text(kept)}) are kept between sweeps")
        text.append(f"{self.work} on {counted(self.workers, 'worker')}")
        return text


def plan_without_tiles(
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
        kernel_parts=demand.kernel_parts,
        caller_bytes=peak,
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


def useful_workers(demand: Demand, *, size: int, columns: int) -> int:
    """Count the workers of a step of sweeps, over columns of all groups, that get their tasks in time.

    Twice as many tasks take it as long as a worker has for its share of the work.
    """
    if demand.shares_memory or demand.workers <= SMALL_CREW:
        return demand.workers
    work = demand.n * size * (2 * columns + ENTRY_FLOPS * demand.kernel_parts)
    return min(demand.workers, max(SMALL_CREW, math.isqrt(work // (2 * DASK_TASK_FLOPS))))


def check_peak(demand: Demand, method: str, peak: int, *remedies: Remedy) -> None:
    """Raise `BudgetError` if a solve needs more than it may use, with what may help."""
    if peak > demand.memory_limit_bytes:
        raise BudgetError(
            f"{method} on {demand.n:,} points needs about {bytes_text(peak)}, more than the "
            f"{bytes_text(demand.memory_limit_bytes)} that may be used.",
            remedies=(Remedy.MORE_MEMORY, *remedies),
            key="memory",
        )
