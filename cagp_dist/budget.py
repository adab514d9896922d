"""How many tasks, bytes and seconds a solve takes: decided from integers before any work.

Seconds are estimates from two measured constants (one thread, see the benchmark); bytes are upper
bounds of what the solve itself allocates, beside the interpreter and the caller's arrays.
"""

import os
from dataclasses import dataclass

from cagp_dist.errors import BudgetError
from cagp_dist.tiling import (
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


TILE_CACHE_BYTES = 320 * 2**20
"""Tiles kept between sweeps, at most: a constant, however many points there are."""

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
    """

    n: int
    q: int
    fields: int
    full_covariance: bool
    workers: int
    shares_memory: bool
    memory_limit_bytes: int


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
    cached_tiles : int
        Tiles below the diagonal that are kept between sweeps (workers that share memory only).
    tasks, gram_entries, flops, peak_bytes : int
        Tasks submitted; kernel evaluations; floating-point operations; memory.
    seconds : float
        Rough time on the given workers.
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
    cached_tiles: int
    tasks: int
    gram_entries: int
    flops: int
    peak_bytes: int
    workers: int

    @property
    def widest_group(self) -> int:
        """Columns of the widest column group."""
        return max((stop - start for batch in self.batches for start, stop in batch), default=0)

    @property
    def seconds(self) -> float:
        """Rough time on ``workers`` workers."""
        return (
            1e-9
            * (ENTRY_NANOSECONDS * self.gram_entries + FLOP_NANOSECONDS * self.flops)
            / max(self.workers, 1)
        )

    def lines(self) -> list[str]:
        """Return the plan as sentences for people."""
        groups = sum(len(batch) for batch in self.batches)
        text = [
            f"{self.method}: {self.n:,} observed points, {self.q:,} test points, "
            f"{self.fields} field{'s' if self.fields != 1 else ''}, {self.iterations} iterations",
            f"Gram matrix {self.n:,} x {self.n:,} would take {_bytes(DOUBLE * self.n**2)}; "
            f"{self.gram_entries:.3g} entries are computed where they are used",
        ]
        if groups:
            blocks = len(block_ranges(self.n, self.block_size))
            text.append(
                f"{blocks} blocks of {self.block_size} points, {groups} column groups in "
                f"{len(self.batches)} batches, {self.panels} row panels, {self.tasks:,} tasks"
            )
        if self.cached_tiles:
            kept = self.cached_tiles * DOUBLE * self.block_size**2
            text.append(f"{self.cached_tiles} tiles ({_bytes(kept)}) are kept between sweeps")
        text.append(
            f"peak memory about {_bytes(self.peak_bytes)}, time about {_duration(self.seconds)} "
            f"on {self.workers} worker{'s' if self.workers != 1 else ''}"
        )
        return text


def available_bytes() -> int:
    """Four fifths of the physical memory that is free now (POSIX)."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 4 // 5


def plan_sweeps(demand: Demand, *, method: str, iterations: int, block_size: int) -> Plan:
    """Plan the adjoint sweeps of the Gauss-Seidel family.

    Raises
    ------
    BudgetError
        If even one column group at a time does not fit into ``memory_limit_bytes``.
    """
    n, q, fields, workers = demand.n, demand.q, demand.fields, demand.workers
    full_covariance, memory_limit_bytes = demand.full_covariance, demand.memory_limit_bytes
    size = min(block_size, max(n, 1))
    blocks = len(block_ranges(n, size))
    groups = [(0, q)] if full_covariance and q else column_groups(q)
    widest = max((stop - start for start, stop in groups), default=0)
    row_tiles = len(block_ranges(n, row_tile_size(size)))

    factor_bytes = DOUBLE * n * size
    keep_factors = factor_bytes <= memory_limit_bytes // 3
    fixed = (factor_bytes if keep_factors else 0) + DOUBLE * size * (size + widest) * (workers + 1)
    fixed += DOUBLE * q * (fields + 1) * (iterations + 1) + (3 * DOUBLE * q * q if full_covariance else 0)
    panel_bytes = 2 * DOUBLE * n * widest  # a panel and its successor
    room = memory_limit_bytes - fixed
    at_once = min(len(groups), room // panel_bytes) if panel_bytes else 0
    if groups and at_once < 1:
        raise BudgetError(
            f"{method} on {n:,} points needs {_bytes(fixed + panel_bytes)} even for {widest} test points "
            f"at once, more than the {_bytes(memory_limit_bytes)} that may be used. Raise memory_limit, add "
            + (
                'workers, or ask for covariance="diagonal".'
                if full_covariance
                else "workers, or lower block_size."
            )
        )
    batches = tuple(
        tuple(groups[start:stop])
        for start, stop in (split(len(groups), -(-len(groups) // at_once)) if groups else [])
    )
    together = max((len(batch) for batch in batches), default=0)
    panels = panel_count(row_tiles, together, workers)

    tile_bytes = DOUBLE * size * size
    lower_tiles = blocks * (blocks + 1) // 2
    cacheable = (
        demand.shares_memory
        and iterations > 1
        and 1 < q <= TILE_CACHE_COLUMNS
        and row_tile_size(size) == size
    )
    spare = max(0, min(TILE_CACHE_BYTES, room - together * panel_bytes))
    cached_tiles = min(lower_tiles, spare // tile_bytes) if cacheable else 0
    repeated = 1.0 - cached_tiles / max(lower_tiles, 1)
    sweeps = max(iterations - 0.5, 0.0)  # the last one leaves out the rows it has visited
    entries = n * n * (1.0 - repeated) / 2 + n * n * sweeps * len(groups) * repeated

    return Plan(
        method=method,
        n=n,
        q=q,
        fields=fields,
        iterations=iterations,
        block_size=size,
        batches=batches,
        panels=panels,
        keep_factors=keep_factors,
        cached_tiles=cached_tiles,
        tasks=len(groups) * iterations * blocks * (1 + panels),
        gram_entries=round(entries) + n * q,
        flops=round(2 * n * n * q * sweeps),
        peak_bytes=fixed + together * panel_bytes + cached_tiles * tile_bytes,
        workers=workers,
    )


def plan_actions(demand: Demand, *, method: str, iterations: int, stored_vectors: int, products: int) -> Plan:
    """Plan a solver of the action family that stores ``stored_vectors`` vectors per iteration."""
    n, q, fields = demand.n, demand.q, demand.fields
    peak = DOUBLE * (
        n * (stored_vectors * iterations + 16)
        + q * (iterations + (fields + 1) * (iterations + 1))
        + (3 * q * q if demand.full_covariance else 0)
    )
    _check_fits(method, n, peak, demand.memory_limit_bytes, "lower iterations")
    return Plan(
        method=method,
        n=n,
        q=q,
        fields=fields,
        iterations=iterations,
        block_size=min(POINT_TILE, max(n, 1)),
        batches=(),
        panels=0,
        keep_factors=False,
        cached_tiles=0,
        tasks=products * 16,
        gram_entries=products * n * n // 2 + n * q,
        flops=2 * n * n * iterations + 2 * n * q * iterations + 4 * n * iterations**2,
        peak_bytes=peak,
        workers=demand.workers,
    )


def plan_exact(demand: Demand) -> Plan:
    """Plan the exact solve by a dense Cholesky factor."""
    n, q, fields = demand.n, demand.q, demand.fields
    peak = DOUBLE * (2 * n * n + 2 * n * (q + fields) + (3 * q * q if demand.full_covariance else 0))
    _check_fits("exact Cholesky", n, peak, demand.memory_limit_bytes, "use block Gauss-Seidel")
    return Plan(
        method="exact Cholesky",
        n=n,
        q=q,
        fields=fields,
        iterations=1,
        block_size=max(n, 1),
        batches=(),
        panels=0,
        keep_factors=False,
        cached_tiles=0,
        tasks=1,
        gram_entries=n * n + n * q,
        flops=n**3 // 3 + n * n * (q + fields),
        peak_bytes=peak,
        workers=demand.workers,
    )


def _check_fits(method: str, n: int, peak: int, limit: int, remedy: str) -> None:
    if peak > limit:
        raise BudgetError(
            f"{method} on {n:,} points needs about {_bytes(peak)}, more than the {_bytes(limit)} that may be "
            f"used. Raise memory_limit, or {remedy}."
        )


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
