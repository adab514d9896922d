"""One block sweep, forward or adjoint, point or block: the heart of the Gauss-Seidel family (math 3).

::

    for b in order:                       forward: ascending, adjoint: descending
        Z[b]  = N[b]^-1 Y[b]              N[b]: diagonal block (block) or its triangle (point)
        Y[a] -= G[a,b] Z[b]   for all a   one compiled product per tile, tiles made on the fly

With the whole diagonal block every block is solved exactly (block Gauss-Seidel); with its lower
triangle L[b] in the forward sweep, and L[b]' in the adjoint one, the blocks only organise the work and
the result is that of point Gauss-Seidel. After an adjoint sweep Y = Y_old - G Z with Z = Mt' Y_old
(T12), and ``sum_b Z[b]' W[b] Z[b]`` is the downdate, W the diagonal (point) or diagonal block (block).
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from cagp_dist.budget import Plan
from cagp_dist.gram.base import Array
from cagp_dist.gram.tiled import (
    TiledGram,
    identity,
    kernel_panel,
    stored_tile_row,
)
from cagp_dist.runtime import Executor, Handle
from cagp_dist.solvers.block_tasks import (
    Factor,
    PanelTile,
    Solved,
    factor_and_solve_block,
    factor_block,
    solve_block,
    update_panel,
)
from cagp_dist.tiling import Range, block_ranges, row_tile_size, split


class SweepSystem:
    """The tasks of a sweep, bound to a Gram matrix, right-hand sides and an executor.

    Parameters
    ----------
    gram : TiledGram
        n points in solver order.
    residuals : array, shape (n, T)
        ``b``; the adjoint sweep sums ``Z' b``.
    plan : Plan
        Block size, panels, what is kept.
    whole_blocks : bool
        Block Gauss-Seidel, else point Gauss-Seidel.
    executor : Executor
        Where the tasks run; the result does not depend on it.
    """

    def __init__(
        self, gram: TiledGram, residuals: Array, *, plan: Plan, whole_blocks: bool, executor: Executor
    ) -> None:
        self._kernel = gram.kernel.parameters
        self._executor = executor
        self._whole_blocks = whole_blocks
        self._keep_factors = plan.keep_factors
        # between processes a step costs messages: solve the next block before its panel is updated
        self._solves_ahead = executor.processes > 1
        n = gram.shape[0]
        self.blocks = block_ranges(n, plan.block_size)
        self._row_tile = row_tile_size(plan.block_size)
        self._tiles = block_ranges(n, self._row_tile)
        self._tiles_are_blocks = self._tiles == self.blocks
        self._tiles_of_panel = split(len(self._tiles), plan.panels)
        self.panels = [
            (self._tiles[first][0], self._tiles[last - 1][1]) for first, last in self._tiles_of_panel
        ]
        self._panel_of_block = [
            next(index for index, panel in enumerate(self.panels) if start < panel[1])
            for start, _ in self.blocks
        ]
        self._panel_points = self._pieces(gram.points, self.panels, range(len(self.panels)))
        self._block_points = self._pieces(gram.points, self.blocks, self._panel_of_block)
        self._noise = [gram.noise_variance[start:stop] for start, stop in self.blocks]
        self._residuals = [
            executor.submit(identity, np.ascontiguousarray(residuals[start:stop]), home=home)
            for (start, stop), home in zip(self.blocks, self._panel_of_block, strict=True)
        ]
        self._factors: dict[int, Handle[Factor]] = {}
        self._stored = {
            a: executor.submit(stored_tile_row, self._kernel, self._block_points[: a + 1], plan.widest_group)
            for a in plan.stored_rows
        }

    def _pieces(self, points: Array, ranges: Sequence[Range], homes: Sequence[int]) -> list[Handle[Array]]:
        return [
            self._executor.submit(identity, np.ascontiguousarray(points[:, start:stop]), home=home)
            for (start, stop), home in zip(ranges, homes, strict=True)
        ]

    def cross_panels(self, points: Array, *, home: int = 0) -> list[Handle[Array]]:
        """``k(X, points)`` by panels: the start ``Y = V'`` of the adjoint sweeps; points (r, p)."""
        Z = self._executor.submit(identity, np.ascontiguousarray(points.T), home=home)
        return [
            self._executor.submit(kernel_panel, self._kernel, self._panel_points[index], Z, home=home + index)
            for index in range(len(self.panels))
        ]

    def value_panels(self, columns: Array) -> list[Handle[Array]]:
        """Rows of ``columns`` (n, r) by panels: the start of a forward sweep."""
        return [
            self._executor.submit(identity, np.ascontiguousarray(columns[slice(*panel)]), home=index)
            for index, panel in enumerate(self.panels)
        ]

    def sweep(
        self,
        panels: list[Handle[Array]],
        sums: Handle[Solved],
        *,
        adjoint: bool,
        final: bool = False,
        home: int = 0,
    ) -> Iterator[Handle[Solved]]:
        """Visit every block once; ``panels`` is updated in place (new handles, old values untouched).

        Tasks of panel i prefer the worker ``home + i``. After a ``final`` sweep nobody reads the panels, so
        only rows that are still to be visited are updated: half the work.

        Yields
        ------
        handle of Solved
            Per visited block, its solution; the last one holds the sums over the whole sweep, begun
            with those of ``sums``.
        """
        order = range(len(self.blocks))
        steps: Sequence[int] = list(reversed(order)) if adjoint else list(order)
        before = panels
        for step, b in enumerate(steps):
            own = self._panel_of_block[b]
            ahead = self._solves_ahead and step > 0
            sums = self._executor.submit(
                *self._solve_with(b),
                before[own] if ahead else panels[own],
                self._within_panel(b),
                self._pending_update(b, steps[step - 1]) if ahead else [],
                self._residuals[b],
                sums,
                adjoint,
                priority=2,
                home=home + own,
            )
            before = list(panels)
            # look-ahead: the panel of the next block goes first
            following = self._panel_of_block[steps[step + 1]] if step + 1 < len(steps) else -1
            for index in sorted(range(len(panels)), key=lambda index: index != following):
                tiles = self._unvisited(index, b, adjoint=adjoint) if final else self._tiles_of_panel[index]
                if tiles[0] == tiles[1]:
                    continue
                panels[index] = self._executor.submit(
                    update_panel,
                    self._kernel,
                    panels[index],
                    self._panel_points[index],
                    self._panel_tiles(index, tiles, b),
                    self._stored_rows(tiles, b),
                    self._block_points[b],
                    sums,
                    self._noise[b] if index == own and not final else None,
                    self._within_panel(b),
                    priority=int(index == following),
                    home=home + index,
                )
            yield sums

    @property
    def exact(self) -> bool:
        """Whether one sweep solves the whole system: one block, solved as a whole."""
        return self._whole_blocks and len(self.blocks) == 1

    def _solve_with(self, b: int) -> tuple[Callable[..., Solved], *tuple[object, ...]]:
        """Task function and first arguments that solve block b: with its kept factor, or a fresh one.

        A factor that is not kept is made inside the solve: as a task of its own it could run long before
        it is needed, and all factors would be in memory after all.
        """
        evaluated = self._kernel, self._block_points[b], self._noise[b], self._whole_blocks
        if not self._keep_factors:
            return factor_and_solve_block, *evaluated
        if b not in self._factors:
            self._factors[b] = self._executor.submit(
                factor_block, *evaluated, priority=2, home=self._panel_of_block[b]
            )
        return solve_block, self._factors[b]

    def _unvisited(self, index: int, b: int, *, adjoint: bool) -> Range:
        """Tiles of a panel with rows that come after block b in the sweep."""
        first, last = self._tiles_of_panel[index]
        start, stop = self.blocks[b]
        if adjoint:
            ahead = sum(tile[0] < start for tile in self._tiles[first:last])
            return first, first + ahead
        ahead = sum(tile[1] > stop for tile in self._tiles[first:last])
        return last - ahead, last

    def _pending_update(self, b: int, previous: int) -> list[object]:
        """Collect what `solve_block` needs to update the rows of block b by the step before."""
        own, tile = self._panel_of_block[b], self.blocks[b][0] // self._row_tile
        return [
            self._kernel,
            self._panel_points[own],
            *self._panel_tiles(own, (tile, tile + 1), previous),
            self._block_points[previous],
        ]

    def _panel_tiles(self, index: int, tiles: Range, b: int) -> list[PanelTile]:
        offset = self.panels[index][0]
        width = self.blocks[b][1] - self.blocks[b][0]
        found = []
        for a in range(*tiles):
            start, stop = self._tiles[a]
            above = self._tiles_are_blocks and a < b
            # a stored row holds its tiles one after the other; above the diagonal, that of block b
            before = width * start if above else (stop - start) * self.blocks[b][0]
            entries = (before, before + width * (stop - start))
            found.append(PanelTile((start - offset, stop - offset), above, entries))
        return found

    def _stored_rows(self, tiles: Range, b: int) -> list[Handle[Array] | None]:
        """Per tile the stored row that holds it, if it is stored: the row of the lower block."""
        return [self._stored.get(max(a, b)) for a in range(*tiles)] if self._stored else []

    def _within_panel(self, b: int) -> Range:
        offset = self.panels[self._panel_of_block[b]][0]
        start, stop = self.blocks[b]
        return start - offset, stop - offset
