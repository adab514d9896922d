"""How the rows of a Gram matrix are cut: blocks to solve with, tiles to multiply by, panels to keep.

::

    rows      0 ................................ n
    blocks    |   |   |   |   |   |   |   |   |  |     of the solver; the last may be shorter
    tiles     |       |       |       |       |  |     a block, or several whole small ones
    panels        0       1       1       0     0      tiles of one task, on one worker, dealt out in turn

Blocks follow each other in a sweep, and its last one updates only rows that are still to be visited: dealt
out in turn, solves and updates are shared evenly at every step. Blocks of one colour, every second or fourth,
are shared evenly by an odd number of panels; with an even one each turn begins one panel further on, so that
they are by four panels or more, or nearly so. Each of two panels has every other block, and whole colours of
four. What is done with panels is in `cagp_dist.solvers.engine.tiles`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.tiling import Range, block_ranges, row_tile_size


@dataclass(frozen=True)
class PanelTile:
    """Rows of a panel in one step, from its first; ``entries``: their place in a stored tile row, if any."""

    rows: Range
    above: bool
    entries: Range


@dataclass(frozen=True)
class PanelLayout:
    """Blocks, tiles and panels of n rows."""

    row_tile: int  # rows of a tile; the last one may have fewer
    # each (start, stop): rows of each
    blocks: list[Range]
    tiles: list[Range]
    tiles_of_panel: list[list[int]]  # which tiles a panel has, one below the other
    # (int, int): panel of a tile, and how many tiles that panel has above it
    place_of_tile: list[tuple[int, int]]
    panel_of_block: list[int]  # which panel a block lies in; none lies in two
    tiles_are_blocks: bool  # whether each tile is one block

    @classmethod
    def of(cls, n: int, *, block_size: int, panels: int) -> "PanelLayout":
        """Cut n rows into blocks of a size and at most so many panels."""
        blocks, row_tile = block_ranges(n, block_size), row_tile_size(block_size)
        tiles = block_ranges(n, row_tile)
        panels = max(1, min(panels, len(tiles)))
        further = 1 if panels % 2 == 0 else 0
        place_of_tile = [((a + further * (a // panels)) % panels, a // panels) for a in range(len(tiles))]
        tiles_of_panel: list[list[int]] = [[] for _ in range(panels)]
        for a, (index, _) in enumerate(place_of_tile):
            tiles_of_panel[index].append(a)
        panel_of_block = [place_of_tile[start // row_tile][0] for start, _ in blocks]
        return cls(row_tile, blocks, tiles, tiles_of_panel, place_of_tile, panel_of_block, tiles == blocks)

    @property
    def panels(self) -> int:
        """How many panels."""
        return len(self.tiles_of_panel)

    def rows_of_panel(self, index: int) -> list[Range]:
        """Rows of a panel, from above, tile by tile; all of them at once where there is one panel."""
        if self.panels == 1:
            return [(self.tiles[0][0], self.tiles[-1][1])]
        return [self.tiles[a] for a in self.tiles_of_panel[index]]

    def of_panel(self, index: int, values: Array, *, axis: int = 0) -> Array:
        """Take the part of a panel from values of all rows, as one contiguous array."""
        leading = (slice(None),) * axis
        parts = [values[*leading, slice(*rows)] for rows in self.rows_of_panel(index)]
        return np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=axis))

    def joined(self, panels: Sequence[Array]) -> Array:
        """Rows of all panels in their order; the reverse of `of_panel` along the first axis."""
        return np.concatenate(
            [panels[index][slice(*self.within(a))] for a, (index, _) in enumerate(self.place_of_tile)]
        )

    def places(self) -> Indices:
        """Where all rows are, from above: start and stop, which panel, and the first of them there."""
        found = [
            (start, stop, index, self.within(start // self.row_tile)[0])
            for index in range(self.panels)
            for start, stop in self.rows_of_panel(index)
        ]
        return np.array(sorted(found), dtype=np.int64)

    def tile_of(self, b: int) -> int:
        """Tile that holds block b."""
        return self.blocks[b][0] // self.row_tile

    def within(self, a: int) -> Range:
        """Rows of tile a, counted from the first of its panel; all tiles above it there are whole."""
        first = self.place_of_tile[a][1] * self.row_tile
        start, stop = self.tiles[a]
        return first, first + stop - start

    def within_panel(self, b: int) -> Range:
        """Rows of block b, counted from the first of its panel."""
        a = self.tile_of(b)
        start, stop = self.blocks[b]
        offset = self.within(a)[0] - self.tiles[a][0]
        return start + offset, stop + offset

    def tiles_within(self, index: int) -> list[Range]:
        """Rows of the tiles of a panel, counted from its first."""
        return [self.within(a) for a in self.tiles_of_panel[index]]

    def panel_tiles(self, tiles: Sequence[int], b: int) -> list[PanelTile]:
        """Where some tiles of a panel stand in the step of block b."""
        width = self.blocks[b][1] - self.blocks[b][0]
        found = []
        for a in tiles:
            start, stop = self.tiles[a]
            above = self.tiles_are_blocks and a < b
            # a stored row holds its tiles one after the other; above the diagonal, that of block b
            before = width * start if above else (stop - start) * self.blocks[b][0]
            entries = (before, before + width * (stop - start))
            found.append(PanelTile(self.within(a), above, entries))
        return found

    def last_visits(self, steps: Sequence[int]) -> list[int]:
        """At which step each tile is visited for the last time: it holds a block, or several."""
        last = [0] * len(self.tiles)
        for step, b in enumerate(steps):
            last[self.tile_of(b)] = step
        return last
