"""How long a solve would take on more workers: from its work, messages and barriers, nothing measured anew.

A solve is a sequence of rounds (docs, "More workers"), each as long as the longest of four things::

    work        (w + tasks x WORKER_TASK_SECONDS) / p        on p workers, in whole turns of the tasks that
                                                             can run at once, or as uneven as they are shared
    chain       c + links (hop + 2 latency) + bytes / bandwidth     tasks that wait for each other
    messages    sent / bandwidth                     by the worker that sends, or receives, the most
    scheduler   tasks x DASK_TASK_SECONDS            one process hands out all tasks
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cagp_dist.budget.demand import DOUBLE
from cagp_dist.budget.network import Network
from cagp_dist.budget.plan import DASK_TASK_SECONDS, ENTRY_NANOSECONDS, FLOP_NANOSECONDS, Plan
from cagp_dist.errors import ConfigurationError
from cagp_dist.text import counted, rough_duration
from cagp_dist.tiling import POINT_TILE, STRIPS, block_ranges, panel_count, row_tile_size

# What a worker of one thread spends between two tasks, to take the one and report the other (measured)
WORKER_TASK_SECONDS = 2e-3

# From the end of a task to the begin of one that waits for it: the scheduler hears and says (measured)
HOP_SECONDS = 5e-3

SERIAL_FLOP = 4.0  # A flop of QR and of Cholesky by columns, in this process, over one of a tile (measured)
MOST_WORKERS = 1024  # Up to which a best number of workers is looked for, by powers of two
LIMITS = ("work", "chain", "messages", "scheduler")
_PHRASES = {
    "work": "the work itself",
    "chain": "tasks that wait for each other",
    "messages": "the bandwidth of a worker",
    "scheduler": "the scheduler, which hands out about a thousand tasks a second",
}


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
        workers: int,
        network: Network,
        task_seconds: float,
        worker_task_seconds: float,
        hop_seconds: float,
    ) -> dict[str, float]:
        """Seconds of each of `LIMITS` in all these rounds."""
        at_once = min(workers, self.width)
        turns = -(-self.width // at_once) / self.width
        alone = workers == 1
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
    """What a plan would take on so many workers."""

    workers: int
    # seconds, serial_seconds: on these workers, and of all tasks one after the other on one core
    seconds: float
    serial_seconds: float
    limit: str  # Which of `LIMITS` takes most of the time
    tasks_per_second: float  # That the scheduler hands out on average

    @property
    def efficiency(self) -> float:
        """Serial time over workers times time, at most 1."""
        return self.serial_seconds / (self.workers * self.seconds) if self.seconds else 1.0


def scaling(
    plan: Plan,
    workers: int,
    network: Network,
    *,
    task_seconds: float = DASK_TASK_SECONDS,
    worker_task_seconds: float = WORKER_TASK_SECONDS,
    hop_seconds: float = HOP_SECONDS,
) -> Scaling:
    """Estimate the time of a plan on so many single-threaded workers, whose memory suffices."""
    if workers < 1:
        raise ConfigurationError(f"there are no solves on {workers} workers; expected at least 1.")
    total, limits, tasks = 0.0, dict.fromkeys(LIMITS, 0.0), 0.0
    found = rounds(plan, workers)
    for each in found:
        parts = each.parts(workers, network, task_seconds, worker_task_seconds, hop_seconds)
        longest = max(parts, key=lambda name: parts[name])
        limits[longest] += parts[longest]
        total += parts[longest]
        tasks += each.times * each.tasks
    return Scaling(
        workers=workers,
        seconds=total,
        serial_seconds=sum(each.times * each.work for each in found),
        limit=max(limits, key=lambda name: limits[name]),
        tasks_per_second=tasks / total if total else 0.0,
    )


def best(plan: Plan, network: Network, *, most: int = MOST_WORKERS) -> Scaling:
    """Find the power of two of workers, at most ``most``, with the least time; the smallest of equals."""
    powers = [1 << power for power in range(most.bit_length()) if 1 << power <= most]
    return min((scaling(plan, workers, network) for workers in powers), key=lambda found: found.seconds)


def scaling_lines(plan: Plan, workers: int, network: Network, *, solves: int = 1) -> list[str]:
    """Say time, efficiency, what limits them and the best number of workers, as sentences."""
    asked, fastest = scaling(plan, workers, network), best(plan, network)
    return [
        f"model of {counted(workers, 'worker')}: about {rough_duration(solves * asked.seconds)}, efficiency "
        f"{asked.efficiency:.0%}, {asked.tasks_per_second:,.0f} tasks a second; what takes the time is "
        f"{_PHRASES[asked.limit]}",
        f"fastest of 1, 2, 4 ... {MOST_WORKERS:,} workers: {fastest.workers:,}, about "
        f"{rough_duration(solves * fastest.seconds)}, efficiency {fastest.efficiency:.0%}",
    ]


def rounds(plan: Plan, workers: int) -> Sequence[Round]:
    """Cut a plan into rounds, as its tasks are handed out to so many workers."""
    if plan.cycle is None:
        raise ConfigurationError(
            f"there is no model of {plan.method} on more workers; expected a solver of sweeps over blocks of "
            "points, or conjugate gradients, on points that are no complete grid. Leave out --workers."
        )
    total = _entry(plan) * plan.gram_entries + 1e-9 * FLOP_NANOSECONDS * plan.flops
    return _of_blocks(plan, workers, total) if plan.cycle.stages else _of_products(plan, total)


def _entry(plan: Plan) -> float:
    """Seconds of a kernel value, which has a term for each part of a sum."""
    return 1e-9 * ENTRY_NANOSECONDS * plan.kernel_parts


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


def _of_blocks(plan: Plan, workers: int, total: float) -> list[Round]:
    cycle, size, steps = plan.cycle, plan.block_size, plan.iterations
    assert cycle is not None
    groups = sum(len(batch) for batch in plan.batches)
    if not groups:
        return [Round(1, 0, total, 1)]
    blocks = len(block_ranges(plan.n, size))
    row_tiles = len(block_ranges(plan.n, row_tile_size(size)))
    together = min(groups, 2 * workers)
    batches = groups / together
    panels = panel_count(row_tiles, together, workers)
    width, columns = together * panels, plan.q / groups
    vector = DOUBLE * columns  # bytes of one row of the columns
    holders = min(panels, workers)

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
        uneven = 1.0 + (holders - 1) / row_tiles
        # between processes a solve updates the tile of its block itself, before its panel is; not the first
        ahead = together * tile * (1.0 - 1.0 / blocks) if workers > 1 else 0.0
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
