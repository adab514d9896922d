"""A whole latitude-longitude grid, as the engine sees it: blocks are bands of rings (math 7, T29).

Ranges of wavenumbers are tasks. Where the targets are the points of the grid themselves, ``V_k = K_k`` and
the variance depends on latitude alone; other targets are columns of their own. On a mirrored grid a block is
a band together with its mirror image. Coarse spaces are waves along the rings.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import getitem
from typing import TypeVar, cast

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget import Plan
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.masked import complete_grid
from cagp_dist.gram.ring_gram import RingGram
from cagp_dist.gram.targets import Targets, list_targets, part
from cagp_dist.kernels import total_variance
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.grid_layout import Layout
from cagp_dist.runtime import Executor, Handle
from cagp_dist.runtime.counting import count
from cagp_dist.runtime.memo import MemoReader, MemoWriter
from cagp_dist.solvers.engine import ring_tasks
from cagp_dist.solvers.engine.ring_stages import RingStage, Whitened
from cagp_dist.solvers.engine.stages import BlockStage, CoarseSpace, Recurrence, Simultaneous, Stage
from cagp_dist.solvers.interface import Problem, State
from cagp_dist.solvers.stationary import ring_coarse
from cagp_dist.tiling import Range

T = TypeVar("T")


@dataclass(eq=False)
class Pieces:
    """A tall matrix by ranges of wavenumbers, and the state it began with."""

    parts: list[Handle[ring_tasks.RingPiece]]
    columns: Range
    start: State | None = None


@dataclass(frozen=True, eq=False)
class RingProjection(Stage):
    """A projection on waves along whole rings, by ranges of wavenumbers."""

    parts: Sequence[Handle[ring_coarse.RangeProjection]]

    weight_psd = idempotent = True


class RingSystem:
    """The tasks of stages on a whole grid."""

    def __init__(self, problem: Problem, *, plan: Plan, executor: Executor) -> None:
        self._gram = problem.gram
        complete = complete_grid(problem.gram)
        if complete is None:
            raise ArgumentError(
                f"{problem.gram!r} is not a complete latitude-longitude grid; expected a RingGram.",
                key="grid-type",
            )
        self._rings, self._layout = complete
        self._plan, self._executor, self._full = plan, executor, problem.full_covariance
        targets, grid = problem.targets, self._rings.grid
        on_grid = isinstance(targets, LatLonGrid) and targets.same_points(grid) and not self._full
        self._targets = None if on_grid else list_targets(targets)
        self._wavenumbers = self._rings.wavenumbers
        self._ranges = self._wavenumbers.ranges()
        self._noise = self._wavenumbers.by_ring(self._rings.noise_by_latitude)
        self._residuals = problem.residuals
        self._right: list[Handle[ring_tasks.Columns]] = []
        self._made: Sequence[Handle[list[Whitened]] | list[Whitened]] = []
        self._coarse: dict[CoarseSpace, RingProjection] = {}

    @cached_property
    def _copies(self) -> tuple[Array, ...]:
        """How many points of each row are copies of one observation, by sector."""
        return self._wavenumbers.by_ring(copies_by_latitude(self._rings, self._layout))

    @property
    def blocks(self) -> int:
        """Bands of a sector, at most."""
        return -(-max(self._wavenumbers.sizes) // self._plan.rings_per_block)

    @property
    def batches(self) -> Sequence[Sequence[Range]]:
        """Groups of targets; those of the grid itself are one."""
        return self._plan.batches

    def coupling(self, stage: Simultaneous) -> float:
        """Largest eigenvalue of ``P^-1 G`` on the bands that a stage solves at once, of all wavenumbers."""
        return max(self._executor.gather(self._submit(ring_tasks.coupling_range, shared=(stage,))))

    def coarse(self, stage: CoarseSpace) -> RingProjection:
        """Make the projection on waves along the rings, those with the largest variances."""
        if stage not in self._coarse:
            spans = self._weights
            shared = (self._noise, self._copies, stage.columns)
            chosen = self._submit(ring_coarse.choose_waves, spans, shared=shared)
            candidates = self._executor.gather(
                [self._executor.submit(ring_coarse.candidates_of, waves) for waves in chosen]
            )
            taken = ring_coarse.takings(candidates, spans, stage.columns)
            parts = self._submit(ring_coarse.project_waves, chosen, taken, shared=(self._copies,))
            self._coarse[stage] = RingProjection(parts)
        return self._coarse[stage]

    def largest_left(self, stage: Simultaneous, projection: Stage, *, steps: int) -> float:
        """Largest eigenvalue of ``P^-1 G`` that a projection leaves, of all wavenumbers, rounded up."""
        found = self._submit(ring_coarse.largest_left_range, cast("RingProjection", projection).parts)
        # the same on machines that round otherwise
        return float(np.ceil(1e6 * max(self._executor.gather(found))) / 1e6)

    def open(self, columns: Range, place: int, start: State | None) -> Pieces:
        """``Y = V'`` for a group of targets and sums of zero, or what a state has left over and found."""
        function, arguments = self._beginnings(slice(*columns), start)
        shared = (self._full, self._targets is None)
        return Pieces(
            self._submit(function, arguments, self._whitened_right(), shared=shared), columns, start
        )

    @property
    def is_volatile(self) -> bool:
        """Whether workers are processes of their own."""
        return not self._executor.shares_memory

    def save(self, works: Sequence[Pieces], writer: MemoWriter) -> bool:
        """Write the ranges of wavenumbers of each group, each by the worker that has it."""
        written = [
            self._executor.submit(ring_tasks.write_piece, writer, _name(work.columns, home), part, home=home)
            for work in works
            for home, part in enumerate(work.parts)
        ]
        return all(self._executor.gather(written))

    def restore(self, columns: Range, place: int, kept: MemoReader) -> Pieces:
        """Go on with a group of targets as it was saved."""
        parts = [
            self._executor.submit(ring_tasks.read_piece, kept, _name(columns, home), home=home)
            for home in range(len(self._ranges))
        ]
        return Pieces(parts, columns)

    def _beginnings(
        self, here: slice, start: State | None
    ) -> tuple[Callable[..., ring_tasks.RingPiece], Sequence[object]]:
        """Task that makes the columns of a range, and what it makes them from, for each range."""
        if start is not None:
            return ring_tasks.column_range, self._columns_of(start, here)
        if self._targets is None:
            return ring_tasks.grid_range, [self._noise] * len(self._ranges)
        # evaluated and transformed by one task: too much to be sent with others
        columns = self._executor.submit(
            ring_tasks.seen_columns,
            self._rings.kernel,
            part(self._targets, here),
            self._rings.grid,
            self._wavenumbers,
        )
        return ring_tasks.column_range, [
            self._executor.submit(getitem, columns, index) for index in range(len(self._ranges))
        ]

    def _columns_of(self, start: State, here: slice) -> list[ring_tasks.Columns]:
        """Give what a state has left over, as columns of each range."""
        left, sectors = [] if start.leftover is None else start.leftover(), len(self._wavenumbers.sizes)
        if self._targets is not None and len(left) == 1:
            return self._split(self._layout.spread(left[0][:, here].T))
        if self._targets is None and len(left) == sectors * len(self._ranges):
            return [left[index : index + sectors] for index in range(0, len(left), sectors)]
        raise ArgumentError(
            "the state to start from kept no leftover, or that of other targets. Ask for the state with "
            "keep_leftover, at the same targets.",
            key="no-leftover",
        )

    def forward(self, columns: Array) -> Pieces:
        """Start of a forward pass: right-hand sides (n, r)."""
        parts = [
            self._executor.submit(ring_tasks.right_piece, right, home=home)
            for home, right in enumerate(self._whitened_columns(columns))
        ]
        return Pieces(parts, (0, columns.shape[1]))

    def apply(self, stage: Stage, work: Pieces, *, adjoint: bool, final: bool = False) -> None:
        """``Z = Mt' Y`` (forward ``Mt Y``), sums with it, ``Y - G Z``; a range of wavenumbers is a task."""
        if isinstance(stage, RingProjection):
            return self._project(stage, work, adjoint=adjoint)
        count(products=work.columns[1] - work.columns[0])
        shared = (cast("RingStage", stage), self._scales(stage), adjoint, final)
        after = self._submitted(
            ring_tasks.stage_range, work.parts, self._whitened_right(), self._weights, shared=shared
        )
        for home, piece in enumerate(after):  # one by one: what was before it is gone
            work.parts[home] = piece
        return None

    def _project(self, stage: RingProjection, work: Pieces, *, adjoint: bool) -> None:
        """``c = P' Y``, then ``Y - (G P) c``, range by range."""
        pieces = zip(stage.parts, self._whitened_right(), self._weights, strict=True)
        for home, (projection, right, weights) in enumerate(pieces):
            work.parts[home] = self._executor.submit(
                ring_coarse.projected_range, projection, work.parts[home], right, weights, adjoint, home=home
            )

    @property
    def _weights(self) -> list[Array]:
        """How often each wavenumber counts, for each range."""
        return [self._wavenumbers.weights[first:last] for first, last in self._ranges]

    def _submitted(
        self, task: Callable[..., T], *by_range: Sequence[object], shared: tuple[object, ...] = ()
    ) -> Iterator[Handle[T]]:
        """Submit a task for one range of wavenumbers after the other, to the worker that has its blocks."""
        for home, own in enumerate(zip(self._whitened(), *by_range, strict=True)):
            yield self._executor.submit(task, *own, *shared, home=home)

    def _submit(
        self, task: Callable[..., T], *by_range: Sequence[object], shared: tuple[object, ...] = ()
    ) -> list[Handle[T]]:
        """Submit a task for every range of wavenumbers."""
        return list(self._submitted(task, *by_range, shared=shared))

    def _fields(self, parts: Sequence[Sequence[Array]]) -> Array:
        """Join sectors of all ranges to fields (r, P, Q)."""
        return self._wavenumbers.join([np.concatenate(sector) for sector in zip(*parts, strict=True)])

    def _scales(self, stage: Stage) -> Sequence[Array]:
        """Return what a point of each ring adds for a residual of one, by sector; none for whole blocks."""
        if isinstance(stage, BlockStage) and stage.whole_blocks:
            return ()
        if isinstance(stage, Recurrence) or (isinstance(stage, Simultaneous) and stage.identity):
            return [1.0 / copies for copies in self._copies]
        variance = total_variance(self._rings.kernel.parameters)
        return [
            1.0 / (copies * variance + noise) for copies, noise in zip(self._copies, self._noise, strict=True)
        ]

    def read(self, works: Sequence[Pieces]) -> tuple[Array, Array]:
        """Mean (q, T) and downdate of the targets of a batch."""
        found = [self._read(work) for work in works]
        return np.concatenate([mean for mean, _ in found]), np.concatenate(
            [downdate for _, downdate in found]
        )

    def _read(self, work: Pieces) -> tuple[Array, Array]:
        parts = self._executor.gather(
            [self._executor.submit(ring_tasks.sums_of, part) for part in work.parts]
        )
        if self._targets is None:
            fields = self._fields([part.mean for part in parts])
            mean = fields.reshape(len(fields), -1).T
            summed = [
                np.sum(sector, axis=0) for sector in zip(*(part.downdate for part in parts), strict=True)
            ]
            by_latitude = self._wavenumbers.to_rings(summed) / self._rings.grid.n_longitudes
            downdate = np.repeat(by_latitude, self._rings.grid.n_longitudes)
        else:  # in the order of the ranges, whoever finishes first
            mean = np.sum([part.mean[0] for part in parts], axis=0)
            downdate = np.sum([part.downdate[0] for part in parts], axis=0)
        if work.start is not None:
            here = slice(*work.columns)
            mean = mean + work.start.mean[here]
            downdate = downdate + (work.start.downdate if self._full else work.start.downdate[here])
        return np.ascontiguousarray(mean), np.asarray(downdate)

    def leftover(self, works: Sequence[Pieces]) -> ring_tasks.Columns:
        """``Y`` of a batch of one group: (n, q), or on the grid the sectors of each range of wavenumbers."""
        (work,) = works
        if self._targets is None:
            return [array for part in self._unwhitened(work) for array in part]
        return [self.residual(work)]

    def mean(self, work: Pieces, targets: Targets) -> Array:
        """``V A b`` after forward stages, shape (q, T)."""
        if self._targets is not None:
            return self._gram.cross(targets, self.weights(work), executor=self._executor)
        parts = self._submit(ring_tasks.seen_range, work.parts, self._whitened_right(), shared=(self._noise,))
        fields = self._fields(self._executor.gather(parts))
        return np.ascontiguousarray(fields.reshape(len(fields), -1).T)

    def weights(self, work: Pieces) -> Array:
        """Return what forward stages have added up to, ``A b``, shape (n, r)."""
        fields = self._fields(self._executor.gather(self._submit(ring_tasks.weights_range, work.parts)))
        return np.ascontiguousarray(self._layout.summed(fields).T)

    def residual(self, work: Pieces) -> Array:
        """``b - G v`` after forward stages, shape (n, r)."""
        fields = self._fields(self._unwhitened(work))
        return np.ascontiguousarray(self._layout.restrict(fields).T)

    def _unwhitened(self, work: Pieces) -> list[ring_tasks.Columns]:
        """``R Y`` by range."""
        return self._executor.gather(self._submit(ring_tasks.unwhitened_range, work.parts))

    def _split(self, fields: Array) -> list[ring_tasks.Columns]:
        """Fields (r, P, Q) as columns (wavenumbers, size, 2 r) of the sectors of each range."""
        sectors = self._wavenumbers.split(fields)
        return [[sector[first:last] for sector in sectors] for first, last in self._ranges]

    def _whitened_columns(self, columns: Array) -> list[Handle[ring_tasks.Columns]]:
        """``R^-1`` times columns (n, r), for each range."""
        return self._submit(ring_tasks.whitened_columns, self._split(self._layout.spread(columns.T)))

    def _whitened_right(self) -> list[Handle[ring_tasks.Columns]]:
        """``R^-1 b`` for each range, made on first use and kept."""
        if not self._right:
            self._right = self._whitened_columns(self._residuals)
        return self._right

    def _whitened(self) -> Sequence[Handle[list[Whitened]] | list[Whitened]]:
        """Whitened blocks by range, made on first use and kept."""
        if not self._made:
            width = min(self._plan.rings_per_block, max(self._wavenumbers.sizes))
            self._made = self._rings.make(
                ring_tasks.whitened_range,
                self._rings.noise_by_latitude,
                self._plan.rings_per_block,
                copies=1.5 + 2.0 * width / max(self._wavenumbers.sizes),
            )
        return self._made


def _name(columns: Range, index: int) -> str:
    return f"targets-{columns[0]}-{columns[1]}/range-{index}"


def copies_by_latitude(rings: RingGram, layout: Layout) -> Array:
    """Points of each row that are copies of one observation, (P,): all of a pole that was observed once."""
    copies = np.ones(rings.grid.shape[0])
    copies[layout.poles] = rings.grid.n_longitudes
    if rings.wavenumbers.mirrored and not np.array_equal(copies, copies[::-1]):
        raise ArgumentError(
            "one pole was observed once and the other at each of its copies, with the same noise in all; "
            "expected the same of both. Observe each pole once, as cagp_dist.condition does.",
            key="poles-differ",
        )
    return copies
