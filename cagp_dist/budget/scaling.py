"""How long a solve would take on more workers: from its work, messages and barriers, nothing measured again.

A solve is a sequence of rounds (docs, "More workers"), each as long as the longest of four things::

    work        (w + tasks x WORKER_TASK_SECONDS) / p        on p threads, in whole turns of the tasks that
                                                             can run at once, or as uneven as they are shared
    chain       c + links (hop + 2 latency) + bytes / bandwidth     tasks that wait for each other
    messages    sent / bandwidth                     by the worker that sends, or receives, the most
    scheduler   tasks x DASK_TASK_SECONDS            one process hands out all tasks
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cagp_dist.budget.demand import DOUBLE, Demand
from cagp_dist.budget.network import Network
from cagp_dist.budget.plan import (
    DASK_TASK_SECONDS,
    ENTRY_NANOSECONDS,
    FLOP_NANOSECONDS,
    Plan,
    useful_workers,
)
from cagp_dist.errors import ConfigurationError
from cagp_dist.memory import PROCESS_BYTES, WORKER_JOB_BYTES
from cagp_dist.text import bytes_text, counted, rough_duration
from cagp_dist.tiling import POINT_TILE, STRIPS, block_ranges, panel_count, row_tile_size

# What a worker of one thread spends between two tasks, to take the one and report the other (measured)
WORKER_TASK_SECONDS = 2e-3

# From the end of a task to the begin of one that waits for it: the scheduler hears and says (measured)
HOP_SECONDS = 5e-3

SERIAL_FLOP = 4.0  # A flop of QR and of Cholesky by columns, in this process, over one of a tile (measured)
MOST_WORKERS = 1024  # Up to which a best number of workers is looked for, by powers of two
LIMITS = ("work", "chain", "messages", "scheduler")
CALLER = "caller"  # What takes the time of a round without tasks
_PHRASES = {
    "work": "the work itself",
    CALLER: "the calling process, which does part of the work",
    "chain": "tasks that wait for each other",
    "messages": "the bandwidth of a worker",
    "scheduler": "the scheduler, which hands out about a thousand tasks a second",
}


# What the process that asks takes to find the neighbours of all, for each observation and target (measured)
SEARCH_SECONDS, TARGET_SECONDS = 1e-6, 5e-7


@dataclass(frozen=True)
class Crew:
    """Workers that need not be there: processes with some threads each, one task to a thread."""

    processes: int
    threads: int = 1
    worker_bytes: int = WORKER_JOB_BYTES  # Memory of a process, which its threads share
    shares_memory: bool = False

    @property
    def workers(self) -> int:
        """Tasks that run at once."""
        return self.processes * self.threads

    @property
    def memory_bytes(self) -> int:
        """Memory of all processes."""
        return self.worker_bytes * self.processes

    def __str__(self) -> str:
        threads = f" with {self.threads} threads each" if self.threads > 1 else ""
        return counted(self.processes, "worker") + threads


class Round(NamedTuple):
    """Tasks between two barriers, and what they have to wait for.

    ``times`` such rounds follow each other. ``work`` is of all tasks of one, ``twice`` what several workers
    do once more, ``chain`` of those that follow each other, in seconds of one core; ``width`` is how many can
    run at once, and ``uneven`` what the busiest worker has over the mean. A chain has ``links`` messages with
    an answer and carries ``chain_bytes``; ``sent`` are the bytes of the busiest worker.
    """

    times: float
    tasks: float
    work: float
    width: int
    chain: float = 0.0
    links: int = 0
    chain_bytes: float = 0.0
    sent: float = 0.0
    uneven: float = 1.0
    twice: float = 0.0

    def parts(
        self,
        crew: "Crew",
        network: Network,
        task_seconds: float,
        worker_task_seconds: float,
        hop_seconds: float,
    ) -> dict[str, float]:
        """Seconds of each of `LIMITS` in all these rounds."""
        at_once = min(crew.workers, self.width)
        turns = -(-self.width // at_once) / self.width
        alone = crew.processes == 1
        travel = 2.0 * network.latency_seconds * self.links + self.chain_bytes / network.bytes_per_second
        each = (
            (self.work + self.twice + self.tasks * worker_task_seconds) * turns * self.uneven,
            self.chain + self.links * hop_seconds + (0.0 if alone else travel),
            0.0 if alone else self.sent / network.bytes_per_second,
            self.tasks * task_seconds,
        )
        return {name: self.times * seconds for name, seconds in zip(LIMITS, each, strict=True)}


@dataclass(frozen=True)
class Scaling:
    """What a plan would take on some workers."""

    crew: Crew
    # seconds, serial_seconds: on these workers, and of all tasks one after the other on one core
    seconds: float
    serial_seconds: float
    limit: str  # Which of `LIMITS` takes most of the time
    tasks_per_second: float  # That the scheduler hands out on average

    @property
    def efficiency(self) -> float:
        """Serial time over workers times time, at most 1."""
        return self.serial_seconds / (self.crew.workers * self.seconds) if self.seconds else 1.0


def scaling(
    plan: Plan,
    crew: Crew,
    network: Network,
    *,
    task_seconds: float = DASK_TASK_SECONDS,
    worker_task_seconds: float = WORKER_TASK_SECONDS,
    hop_seconds: float = HOP_SECONDS,
) -> Scaling:
    """Estimate the time of a plan on some workers, whose memory suffices."""
    if crew.workers < 1:
        raise ConfigurationError(f"there are no solves on {crew.workers} workers; expected at least 1.")
    total, limits, tasks = 0.0, dict.fromkeys((*LIMITS, CALLER), 0.0), 0.0
    found = rounds(plan, crew)
    for each in found:
        parts = each.parts(crew, network, task_seconds, worker_task_seconds, hop_seconds)
        longest = max(parts, key=lambda name: parts[name])
        limits[longest if each.tasks or each.links else CALLER] += parts[longest]
        total += parts[longest]
        tasks += each.times * each.tasks
    return Scaling(
        crew=crew,
        seconds=total,
        serial_seconds=sum(each.times * each.work for each in found),
        limit=max(limits, key=lambda name: limits[name]),
        tasks_per_second=tasks / total if total else 0.0,
    )


def best(plan: Plan, network: Network, *, threads: int = 1) -> Scaling:
    """Find the power of two of workers, up to `MOST_WORKERS`, with the least time; the smallest of equals."""
    powers = (1 << power for power in range(MOST_WORKERS.bit_length()))
    found = (scaling(plan, Crew(processes, threads), network) for processes in powers)
    return min(found, key=lambda each: each.seconds)


def worker_bytes(plan: Plan, crew: Crew) -> int:
    """Bytes of a worker process that has the most: its share, a task of each thread, and the program."""
    parts = max((len(batch) for batch in plan.batches), default=1) * max(plan.panels, 1)
    holders = min(crew.processes, parts)
    shared = max(0, plan.peak_bytes - plan.caller_bytes - plan.task_bytes * crew.workers)
    return PROCESS_BYTES + shared * -(-parts // holders) // parts + plan.task_bytes * crew.threads


def on_crew(plan: Plan, crew: Crew, network: Network) -> Plan:
    """Give a plan the time that the model says, where there is one."""
    return plan if plan.cycle is None else replace(plan, seconds=scaling(plan, crew, network).seconds)


def scaling_lines(plan: Plan, crew: Crew, network: Network, *, solves: int = 1) -> list[str]:
    """Say time, memory, efficiency, what limits them and the best number of workers, as sentences."""
    asked, fastest = scaling(plan, crew, network), best(plan, network, threads=crew.threads)
    return [
        f"time about {rough_duration(solves * asked.seconds)} on {crew}, efficiency {asked.efficiency:.0%}, "
        f"{asked.tasks_per_second:,.0f} tasks a second; limited by {_PHRASES[asked.limit]}",
        f"memory about {bytes_text(worker_bytes(plan, crew))} of a worker, program included, and "
        f"{bytes_text(plan.caller_bytes)} of the calling process",
        f"fastest of 1, 2, 4 ... {MOST_WORKERS:,} workers: {fastest.crew.processes:,}, about "
        f"{rough_duration(solves * fastest.seconds)}, efficiency {fastest.efficiency:.0%}",
    ]


def rounds(plan: Plan, crew: Crew) -> Sequence[Round]:
    """Cut a plan into rounds, as its tasks are handed out to some workers."""
    if plan.cycle is None:
        raise ConfigurationError(
            f"there is no model of {plan.method} on more workers; expected a solver of sweeps over blocks of "
            "points, conjugate gradients, or neighbours, on points that are no complete grid. Leave out "
            "--workers."
        )
    total = _entry(plan) * plan.gram_entries + 1e-9 * FLOP_NANOSECONDS * plan.flops
    if plan.cycle.cells:
        return _of_cells(plan, total)
    return _of_blocks(plan, crew, total) if plan.cycle.stages else _of_products(plan, total)


def _entry(plan: Plan) -> float:
    """Seconds of a kernel value, which has a term for each part of a sum."""
    return 1e-9 * ENTRY_NANOSECONDS * plan.kernel_parts


def _of_cells(plan: Plan, total: float) -> list[Round]:
    """Cells of neighbours are found by the process that asks, and then solved by themselves."""
    assert plan.cycle is not None
    cells, sent = plan.cycle.cells, plan.cycle.cell_bytes
    search = min(SEARCH_SECONDS * plan.n + TARGET_SECONDS * plan.q, total)
    work = (total - search) / plan.solves
    each = Round(plan.solves, cells, work, cells, work / cells, 2, sent / cells, sent)
    return [Round(1, 0, search, 1), each]


def _of_products(plan: Plan, total: float) -> list[Round]:
    """Products with G by strips; what is done between them stays with the process that asks for them."""
    assert plan.cycle is not None
    products = plan.cycle.products
    product = min((_entry(plan) + 4e-9 * FLOP_NANOSECONDS) * plan.n**2 / 2, total / products)
    return [*_products(products, plan.n, product), Round(1, 0, total - products * product, 1)]


def _products(count: int, n: int, seconds: float) -> list[Round]:
    """Make rounds of products of G with one column, every entry below the diagonal used twice."""
    vector = DOUBLE * n
    # points and a column to every strip, and its part of the result back: all by the asking process
    there_and_back = 5 * vector * STRIPS
    return [
        Round(count, STRIPS, seconds, STRIPS, seconds / STRIPS, 2, 2 * vector, there_and_back),
        Round(count, 0, 0.0, 1, links=STRIPS),  # parts are fetched one after the other
    ]


def _of_blocks(plan: Plan, crew: Crew, total: float) -> list[Round]:
    cycle, size, steps = plan.cycle, plan.block_size, plan.iterations
    assert cycle is not None
    groups = sum(len(batch) for batch in plan.batches)
    if not groups:
        return [Round(1, 0, total, 1)]
    blocks = len(block_ranges(plan.n, size))
    row_tiles = len(block_ranges(plan.n, row_tile_size(size)))
    at_once, columns = crew.workers, plan.q / groups
    together, panels = _side_by_side(plan, at_once, groups=groups, row_tiles=row_tiles)
    batches = groups / together
    width = together * panels
    vector = DOUBLE * columns  # bytes of one row of the columns
    holders = min(panels, crew.processes)

    flop, entry = 1e-9 * FLOP_NANOSECONDS, _entry(plan)
    solve = flop * 2 * cycle.depth * size * columns
    if not plan.keep_factors and cycle.depth > 1:
        solve += flop * size**3 / 3 + entry * size**2
    tile = (entry + flop * 2 * columns) * row_tile_size(size) * size
    # what precedes the first iteration, and the part of the plan's work that it is
    found = []
    if k := cycle.coarse:
        found += _coarse_space(plan.n, k, entry)
        total -= entry * plan.n * (plan.n + k) + flop * 2 * plan.n * k * (plan.n + 5 * k)
    if cycle.products:
        estimates = _estimates(plan.n, size, cycle.products, blocks, entry)
        found += estimates
        total -= sum(each.times * each.work for each in estimates)
    projections = cycle.projections * batches
    project = flop * 4 * plan.n * cycle.coarse * columns * together
    solves = cycle.stages * steps * batches * blocks * together * solve
    left = max(total - projections * project - (solves if cycle.barriers else 0.0), 0.0)
    if cycle.projections:
        sums = DOUBLE * cycle.coarse * columns
        found.append(
            Round(
                projections,
                together * (2 * panels + 2),
                project,
                width,
                project / width,
                links=2,
                chain_bytes=2 * sums,
                sent=2 * sums * panels,
            )
        )
    if not cycle.barriers:
        # the next block is solved while panels are updated: a step waits for a solve and one tile
        sweeps, count = cycle.stages * steps, batches * blocks
        sent = vector * size * (holders - 1)
        # the last sweep leaves out visited rows: half the work; tiles that are left are shared out in turn
        work = left / (count * (sweeps - 0.5))
        uneven = 1.0 + (min(panels, at_once) - 1) / row_tiles
        # between processes a solve updates the tile of its block itself, before its panel is; not the first
        ahead = together * tile * (1.0 - 1.0 / blocks) if crew.processes > 1 else 0.0
        chain = min(solve + tile, work)
        tasks = together * (1 + panels)
        of_steps = (width, chain, 1, vector * size, sent)
        return [
            *found,
            Round(count * (sweeps - 1), tasks, work, *of_steps, twice=ahead),
            Round(count, tasks, work / 2, width, min(chain, work / 2), *of_steps[2:], uneven),
        ]
    return found + _of_colours(
        left / (cycle.stages * steps * batches * cycle.barriers),
        count=cycle.stages * steps * batches * cycle.barriers,
        together=together,
        members=blocks / cycle.barriers,
        panels=panels,
        solve=solve,
        block=vector * size,
        holders=holders,
        width=width,
    )


def _side_by_side(plan: Plan, at_once: int, *, groups: int, row_tiles: int) -> tuple[int, int]:
    """Column groups that are solved together, and panels of each, were there so many tasks at once."""
    if plan.workers == at_once:
        return len(plan.batches[0]), plan.panels
    together = min(groups, 2 * at_once)
    asked = Demand(plan.n, plan.q, 1, False, at_once, False, 0, kernel_parts=plan.kernel_parts)
    useful = useful_workers(asked, size=plan.block_size, columns=round(together * plan.q / groups))
    return together, panel_count(row_tiles, together, useful)


def _of_colours(
    updates: float,
    *,
    count: float,
    together: int,
    members: float,
    panels: int,
    solve: float,
    block: float,
    holders: int,
    width: int,
) -> list[Round]:
    """All blocks of a colour are solved, then every panel is updated by all of them."""
    solves = together * members
    at_once = max(1, round(together * min(members, panels)))
    received = block * members * min(2, together) * (holders - 1) / holders
    tasks = solves * (1 + panels)
    return [
        Round(count, solves, solves * solve, at_once, solve, 1),
        Round(count, tasks, updates, width, updates / width, links=1, chain_bytes=block, sent=received),
    ]


def _coarse_space(n: int, columns: int, entry: float) -> list[Round]:
    """Columns chosen and made orthonormal in this process, between them a product of G with all of them."""
    flop = 1e-9 * FLOP_NANOSECONDS
    sides = DOUBLE * n * columns
    tiles = len(block_ranges(n, POINT_TILE))
    product = entry * n**2 + flop * 2 * n**2 * columns
    here = entry * n * columns + SERIAL_FLOP * flop * 10 * n * columns**2
    return [
        Round(1, 0, here, 1),
        # columns to the workers, their image back, both to the panels
        Round(1, tiles, product, tiles, product / tiles, 2, 4 * sides, 4 * sides),
    ]


def _estimates(n: int, size: int, products: int, blocks: int, entry: float) -> list[Round]:
    """Make rounds that estimate how strongly blocks are coupled: a solve with each, then a product with G."""
    flop = 1e-9 * FLOP_NANOSECONDS
    solves = n * (entry * size + flop * (size * size // 3 + 2 * size))
    product = entry * n * n / 2
    solve = Round(products, blocks, solves, blocks, solves / blocks, 2, DOUBLE * size, 2 * DOUBLE * n)
    return [solve, *_products(products, n, product)]
