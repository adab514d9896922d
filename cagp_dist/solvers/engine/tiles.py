"""A Gram matrix in tiles, as the engine sees it: panels of tall matrices, stages applied to them (math 3).

A sweep solves ``Z[b] = N[b]^-1 Y[b]`` for block after block, its adjoint the other way round, and after each
``Y[a] -= G[a,b] Z[b]`` for all tiles a, made on the fly. The tasks of one step run in parallel: columns come
in independent groups, rows in panels.
"""

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Plan
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.functionals import LinearFunctionals, functional_panel
from cagp_dist.gram.targets import Targets, averaged, list_targets, part, target_points
from cagp_dist.gram.tiled import cross_product, kernel_panel, put_value, stored_tile_row
from cagp_dist.gram.vecchia_factor import VecchiaFactor
from cagp_dist.kernels import point_columns
from cagp_dist.runtime import Executor, Handle
from cagp_dist.runtime.counting import count
from cagp_dist.runtime.memo import MemoReader, MemoWriter
from cagp_dist.solvers.engine import tile_tasks
from cagp_dist.solvers.engine.kept_panels import Panels, restored_panels, save_panels
from cagp_dist.solvers.engine.panel_layout import PanelLayout
from cagp_dist.solvers.engine.projected_tiles import PanelProjection, by_panels
from cagp_dist.solvers.engine.recurrence_tiles import PanelInverse, panel_inverse, recur
from cagp_dist.solvers.engine.stages import (
    BlockStage,
    CoarseSpace,
    ConditioningStage,
    LowRankInverse,
    ProjectionStage,
    Recurrence,
    Simultaneous,
    Stage,
    Sweep,
)
from cagp_dist.solvers.interface import Problem, State
from cagp_dist.solvers.stationary.coarse import coarse_projection, largest_eigenvalue
from cagp_dist.tiling import Range, subtile_shape


class TileSystem:
    """The tasks of stages, bound to a Gram matrix, residuals and an executor."""

    def __init__(self, problem: Problem, *, plan: Plan, executor: Executor) -> None:
        gram, residuals = problem.gram, problem.residuals
        self._gram = gram
        self._kernel = gram.kernel.parameters
        self._executor = executor
        self._plan = plan
        # between processes a step costs messages: solve the next block before its panel is updated
        self._solves_ahead = executor.processes > 1
        self._right = residuals
        self._full = problem.full_covariance
        self._targets = list_targets(problem.targets)
        layout = PanelLayout.of(gram.shape[0], block_size=plan.block_size, panels=plan.panels)
        self._layout = layout
        points, noise_variance = point_columns(gram.X), gram.noise_variance
        self._panel_points = [
            executor.submit(put_value, layout.of_panel(index, points, axis=1), home=index)
            for index in range(layout.panels)
        ]
        self._block_points = [
            executor.submit(put_value, np.ascontiguousarray(points[:, start:stop]), home=home)
            for (start, stop), home in zip(layout.blocks, layout.panel_of_block, strict=True)
        ]
        self._noise = [noise_variance[start:stop] for start, stop in layout.blocks]
        self._residuals = [
            executor.submit(put_value, np.ascontiguousarray(residuals[start:stop]), home=home)
            for (start, stop), home in zip(layout.blocks, layout.panel_of_block, strict=True)
        ]
        self._factors: dict[tuple[object, ...], Handle[Array]] = {}
        self._projections: dict[ProjectionStage | ConditioningStage, PanelProjection] = {}
        self._coarse: dict[CoarseSpace, ProjectionStage] = {}
        self._inverses: dict[LowRankInverse | VecchiaFactor, PanelInverse] = {}
        self._leftover: Array | None = None
        self.keeps_weights = False
        """Whether passes from targets keep what was added to each block, too."""
        self._stored = {
            a: executor.submit(stored_tile_row, self._kernel, self._block_points[: a + 1], plan.widest_group)
            for a in plan.stored_rows
        }

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self._layout.blocks)

    @property
    def batches(self) -> Sequence[Sequence[Range]]:
        """Column groups of each batch of targets."""
        return self._plan.batches

    def coupling(self, stage: Simultaneous) -> float:
        """Bound ``lambda_max(P^-1 G)`` on blocks solved at once by norms of ``L_a^-1 G_ab L_b^-T``."""
        members = stage.members(self.blocks)
        kept = self._plan.keep_factors
        pairs = [(i, j) for i in range(len(members)) for j in range(i)]
        found = self._executor.gather(
            [
                self._executor.submit(
                    tile_tasks.coupled_blocks,
                    self._kernel,
                    [self._block_points[b] for b in (members[i], members[j])],
                    [self._noise[b] for b in (members[i], members[j])],
                    [self._factor(stage, b) for b in (members[i], members[j])] if kept else [],
                    home=self._layout.panel_of_block[members[i]],
                )
                for i, j in pairs
            ]
        )
        norms = np.eye(len(members))
        for (i, j), norm in zip(pairs, found, strict=True):
            norms[i, j] = norms[j, i] = norm
        return float(np.linalg.eigvalsh(norms)[-1])

    def coarse(self, stage: CoarseSpace) -> ProjectionStage:
        """Make the projection on the covariances of all points with a few of them."""
        if stage not in self._coarse:
            self._coarse[stage] = coarse_projection(
                self._gram, columns=stage.columns, executor=self._executor
            )
        return self._coarse[stage]

    def largest_left(self, stage: Simultaneous, projection: Stage, *, steps: int) -> float:
        """Largest eigenvalue of ``P^-1 G`` that a projection leaves, by Lanczos iteration."""
        return largest_eigenvalue(
            self._gram,
            cast("ProjectionStage", projection),
            block_size=self._plan.block_size,
            executor=self._executor,
            steps=steps,
        )

    def open(self, columns: Range, place: int, start: State | None) -> Panels:
        """``Y = V'`` for a group of targets and sums of zero, or what a state has left over and found."""
        home = place * self._layout.panels
        here = slice(*columns)
        if start is None:
            rows = self.cross_panels(part(self._targets, here), home=home)
            sums = self._executor.submit(
                tile_tasks.no_sums, columns[1] - columns[0], self._right.shape[1], self._full
            )
        else:
            downdate = start.downdate if self._full else start.downdate[here]
            rows = self.value_panels(self._leftover_of(start)[:, here], home=home)
            sums = self._executor.submit(tile_tasks.sums_so_far, downdate, start.mean[here])
        return Panels(rows, sums, columns, home, keeps_weights=self.keeps_weights)

    @property
    def is_volatile(self) -> bool:
        """Whether workers are processes of their own."""
        return not self._executor.shares_memory

    def save(self, works: Sequence[Panels], writer: MemoWriter) -> bool:
        """Write the panels of groups, each by the worker that has it, and their sums."""
        return all(save_panels(work, self._layout, writer, executor=self._executor) for work in works)

    def restore(self, columns: Range, place: int, kept: MemoReader) -> Panels:
        """Go on with a group of targets as it was saved, also where there are other panels now."""
        home = place * self._layout.panels
        return restored_panels(columns, self._layout, kept, home=home, executor=self._executor)

    def _leftover_of(self, start: State) -> Array:
        """Give what a state has left over, shape (n, q); fetched once for all groups."""
        if self._leftover is None:
            found = [] if start.leftover is None else start.leftover()
            if len(found) != 1:
                raise ArgumentError(
                    "the state to start from kept no leftover, or that of a whole grid, which blocks of "
                    "points cannot continue from. Ask for the state with keep_leftover, at points.",
                    key="no-leftover",
                )
            self._leftover = found[0]
        return self._leftover

    def forward(self, columns: Array) -> Panels:
        """Start of a pass, forward or adjoint, with columns (n, r) of its own; it keeps weights."""
        r = columns.shape[1]
        sums = self._executor.submit(tile_tasks.no_sums, r, self._right.shape[1], False)
        return Panels(self.value_panels(columns), sums, (0, r), keeps_weights=True)

    def apply(self, stage: Stage, work: Panels, *, adjoint: bool, final: bool = False) -> None:
        """``Z = Mt' Y`` (forward ``Mt Y``), sums with it, ``Y - G Z``, which a ``final`` stage leaves out.

        The handles of ``work`` are replaced as soon as what they stand for is no longer needed.
        """
        if isinstance(stage, ProjectionStage | ConditioningStage):
            if stage not in self._projections:
                self._projections[stage] = PanelProjection(
                    stage, self._right, layout=self._layout, executor=self._executor
                )
            return self._projections[stage].apply(work, adjoint=adjoint, final=final)
        count(products=work.width)
        if isinstance(stage, Sweep):
            blocks = self._sweep(stage, work, adjoint=adjoint, final=final)
        elif isinstance(stage, Recurrence):
            blocks = self._updated_at_once(self._recurred(stage, work), work)
        else:
            blocks = self._updated_at_once(self._solved_at_once(cast("Simultaneous", stage), work), work)
        for b, solved in blocks:
            if work.keeps_weights:
                work.weights[b] = self._executor.submit(tile_tasks.add_solution, work.weights.get(b), solved)
            work.sums = solved

    def read(self, works: Sequence[Panels]) -> tuple[Array, Array]:
        """Mean (q, T) and downdate of the targets of a batch."""
        done = self._executor.gather(
            [self._executor.submit(tile_tasks.only_sums, work.sums) for work in works]
        )
        mean = np.concatenate([part.mean for part in done])
        return mean, np.concatenate([part.downdate for part in done])

    def leftover(self, works: Sequence[Panels]) -> list[Array]:
        """``Y`` of the targets of a batch, one array (n, q); 8 n q bytes."""
        groups = [self._layout.joined(self._executor.gather(work.rows)) for work in works]
        return [np.concatenate(groups, axis=1)]

    def columns(self, work: Panels, chosen: Indices) -> Array:
        """Return some columns of ``Y`` of a group, shape (n, c)."""
        parts = [self._executor.submit(tile_tasks.take_columns, panel, chosen) for panel in work.rows]
        return self._layout.joined(self._executor.gather(parts))

    def weights(self, work: Panels) -> Array:
        """Return what stages have added up to, ``A b`` or in an adjoint pass ``A' b``, shape (n, r)."""
        r = work.columns[1] - work.columns[0]
        parts = [
            work.weights.get(b) or self._executor.submit(np.zeros, (stop - start, r))
            for b, (start, stop) in enumerate(self._layout.blocks)
        ]
        return np.concatenate(self._executor.gather(parts))

    def residual(self, work: Panels) -> Array:
        """``b - G v`` after forward stages, shape (n, r)."""
        return self._layout.joined(self._executor.gather(work.rows))

    def mean(self, work: Panels, targets: Targets) -> Array:
        """``V A b`` after forward stages, shape (q, T); n q evaluations and 2 n q T flops."""
        # on every Gram by tiles: that of a grid would make factors, which no plan of tiles counts
        at_points = cross_product(
            self._gram.kernel,
            target_points(targets),
            self._gram.X,
            self.weights(work),
            executor=self._executor,
        )
        return averaged(targets, at_points)

    def cross_panels(self, targets: Array | LinearFunctionals, *, home: int = 0) -> list[Handle[Array]]:
        """``k(X, targets)`` by panels: the start ``Y = V'`` of the adjoint sweeps; r points, or cells."""
        if isinstance(targets, LinearFunctionals):
            return [
                self._executor.submit(functional_panel, self._kernel, points, targets, home=home + index)
                for index, points in enumerate(self._panel_points)
            ]
        Z = self._executor.submit(put_value, np.ascontiguousarray(targets.T), home=home)
        return [
            self._executor.submit(kernel_panel, self._kernel, self._panel_points[index], Z, home=home + index)
            for index in range(self._layout.panels)
        ]

    def value_panels(self, columns: Array, *, home: int = 0) -> list[Handle[Array]]:
        """Rows of ``columns`` (n, r) by panels."""
        return by_panels(columns, self._layout, executor=self._executor, home=home)

    def _sweep(
        self, stage: Sweep, work: Panels, *, adjoint: bool, final: bool
    ) -> Iterator[tuple[int, Handle[tile_tasks.SolvedBlock]]]:
        """Visit every block once; after a ``final`` sweep only rows still to be visited are updated."""
        panels, sums, home = work.rows, work.sums, work.home
        steps = list(stage.order(self.blocks, adjoint=adjoint))
        last_visit = self._layout.last_visits(steps)
        before = panels
        for step, b in enumerate(steps):
            own = self._layout.panel_of_block[b]
            ahead = self._solves_ahead and step > 0
            sums = self._executor.submit(
                tile_tasks.solve_block,
                *self._solve_with(stage, b),
                before[own] if ahead else panels[own],
                self._layout.within_panel(b),
                self._pending_update(b, steps[step - 1]) if ahead else [],
                self._residuals[b],
                sums,
                adjoint,
                priority=2,
                home=home + own,
            )
            before = list(panels)
            # look-ahead: the panel of the next block goes first
            following = self._layout.panel_of_block[steps[step + 1]] if step + 1 < len(steps) else -1
            for index in sorted(range(len(panels)), key=lambda index: index != following):
                tiles = self._layout.tiles_of_panel[index]
                if final:
                    tiles = [a for a in tiles if last_visit[a] > step + self._solves_ahead]
                if not tiles:
                    continue
                noise, priority = index == own and not final, int(index == following)
                panels[index] = self._updated(work, index, tiles, b, sums, noise=noise, priority=priority)
            yield b, sums

    def _solved_at_once(self, stage: Simultaneous, work: Panels) -> dict[int, Handle[tile_tasks.SolvedBlock]]:
        """Solutions of all blocks from the same panels."""
        return {
            b: self._executor.submit(
                tile_tasks.solve_alone,
                *self._solve_with(stage, b),
                work.rows[self._layout.panel_of_block[b]],
                self._layout.within_panel(b),
                home=work.home + self._layout.panel_of_block[b],
            )
            for b in stage.members(self.blocks)
        }

    def _recurred(self, stage: Recurrence, work: Panels) -> dict[int, Handle[tile_tasks.SolvedBlock]]:
        """Z of all blocks from the panels, and from Z of the step before, which is replaced."""
        rows = work.rows
        if stage.inverse is not None:
            if stage.inverse not in self._inverses:
                self._inverses[stage.inverse] = panel_inverse(
                    stage.inverse, layout=self._layout, executor=self._executor
                )
            rows = self._inverses[stage.inverse].applied(rows, home=work.home)
        found = {}
        for b in range(self.blocks):
            own = self._layout.panel_of_block[b]
            found[b] = self._executor.submit(
                recur,
                stage.step,
                stage.momentum,
                work.before.get(b) if stage.momentum else None,
                rows[own],
                self._layout.within_panel(b),
                home=work.home + own,
            )
        work.before = dict(found) if stage.accelerated else {}
        return found

    def _updated_at_once(
        self, solutions: dict[int, Handle[tile_tasks.SolvedBlock]], work: Panels
    ) -> Iterator[tuple[int, Handle[tile_tasks.SolvedBlock]]]:
        """Update the panels by solutions of blocks; yields as `_sweep`, in block order."""
        before, sums = list(work.rows), work.sums
        blocks = sorted(solutions)
        for b in blocks:
            for index in range(self._layout.panels):
                tiles, noise = self._layout.tiles_of_panel[index], index == self._layout.panel_of_block[b]
                work.rows[index] = self._updated(work, index, tiles, b, solutions[b], noise=noise)
        for b in blocks:
            own = self._layout.panel_of_block[b]
            sums = self._executor.submit(
                tile_tasks.add_to_sums,
                sums,
                solutions[b],
                before[own],
                work.rows[own],
                self._layout.within_panel(b),
                self._residuals[b],
                home=work.home + own,
            )
            yield b, sums

    def _updated(
        self,
        work: Panels,
        index: int,
        tiles: Sequence[int],
        b: int,
        solved: Handle[tile_tasks.SolvedBlock],
        *,
        noise: bool,
        priority: int = 0,
    ) -> Handle[Array]:
        """Panel ``index`` less G times the solution of block b, in the rows of some of its tiles."""
        return self._executor.submit(
            tile_tasks.update_panel,
            self._kernel,
            work.rows[index],
            self._panel_points[index],
            self._layout.panel_tiles(tiles, b),
            self._stored_rows(tiles, b, work.width),
            self._block_points[b],
            solved,
            self._noise[b] if noise else None,
            self._layout.within_panel(b),
            priority=priority,
            home=work.home + index,
        )

    def _solve_with(self, stage: BlockStage, b: int) -> tuple[BlockStage, object]:
        """Stage and factor that solve block b; one that is not kept is made inside the solve, never early."""
        if not self._plan.keep_factors:
            return stage.within(b), [self._kernel, self._block_points[b], self._noise[b]]
        return stage.within(b), self._factor(stage, b)

    def _factor(self, stage: BlockStage, b: int) -> Handle[Array]:
        """Give the factor of a diagonal block, made on first use and kept."""
        key = *stage.kind_of_factor, b
        if key not in self._factors:
            self._factors[key] = self._executor.submit(
                tile_tasks.factor_block,
                self._kernel,
                self._block_points[b],
                self._noise[b],
                stage,
                priority=2,
                home=self._layout.panel_of_block[b],
            )
        return self._factors[key]

    def _pending_update(self, b: int, previous: int) -> list[object]:
        """Collect what `solve_block` needs to update the rows of block b by the step before."""
        own, tile = self._layout.panel_of_block[b], self._layout.tile_of(b)
        return [
            self._kernel,
            self._panel_points[own],
            *self._layout.panel_tiles([tile], previous),
            self._block_points[previous],
        ]

    def _stored_rows(self, tiles: Sequence[int], b: int, width: int) -> list[Handle[Array] | None]:
        """Per tile the stored row that holds it, if any: that of the lower block, sub-tile by sub-tile."""
        if not self._stored or subtile_shape(width) != subtile_shape(self._plan.widest_group):
            return []
        return [self._stored.get(max(a, b)) for a in tiles]
