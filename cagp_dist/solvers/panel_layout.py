"""How the rows of a Gram matrix are cut: blocks to solve with, tiles to multiply by, panels to keep.

::

    rows      0 ................................ n
    blocks    |   |   |   |   |   |   |   |   |  |     of the solver; the last may be shorter
    tiles     |       |       |       |       |  |     a block, or several whole small ones
    panels    |               |                  |     tiles of one task, on one worker

Integers alone: what is done with them is in `cagp_dist.solvers.tiles`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cagp_dist.tiling import Range, block_ranges, row_tile_size, split


@dataclass(frozen=True)
class PanelTile:
    """A row tile of a panel in one step: its rows, and where it stands.

    ``rows`` counts from the panel's first row; ``above`` says whether the tile lies above the diagonal;
    ``entries`` is its place in the stored tile row, if that is stored.
    """

    rows: Range
    above: bool
    entries: Range


@dataclass(frozen=True)
class PanelLayout:
    """Blocks, tiles and panels of n rows.

    Attributes
    ----------
    row_tile : int
        Rows of a tile.
    blocks, tiles, panels : list of (start, stop)
        Rows of each.
    tiles_of_panel : list of (first, stop)
        Which tiles a panel has.
    panel_of_block : list of int
        Which panel a block lies in; none lies in two.
    tiles_are_blocks : bool
        Whether each tile is one block.
    """

    row_tile: int
    blocks: list[Range]
    tiles: list[Range]
    panels: list[Range]
    tiles_of_panel: list[Range]
    panel_of_block: list[int]
    tiles_are_blocks: bool

    @classmethod
    def of(cls, n: int, *, block_size: int, panels: int) -> "PanelLayout":
        """Cut n rows into blocks of a size and at most so many panels."""
        blocks, row_tile = block_ranges(n, block_size), row_tile_size(block_size)
        tiles = block_ranges(n, row_tile)
        tiles_of_panel = split(len(tiles), panels)
        rows = [(tiles[first][0], tiles[last - 1][1]) for first, last in tiles_of_panel]
        panel_of_block = [
            next(index for index, panel in enumerate(rows) if start < panel[1]) for start, _ in blocks
        ]
        return cls(row_tile, blocks, tiles, rows, tiles_of_panel, panel_of_block, tiles == blocks)

    def tile_of(self, b: int) -> int:
        """Tile that holds block b."""
        return self.blocks[b][0] // self.row_tile

    def within_panel(self, b: int) -> Range:
        """Rows of block b, counted from the first of its panel."""
        offset = self.panels[self.panel_of_block[b]][0]
        start, stop = self.blocks[b]
        return start - offset, stop - offset

    def tiles_within(self, index: int) -> list[Range]:
        """Rows of the tiles of a panel, counted from its first."""
        offset = self.panels[index][0]
        return [
            (start - offset, stop - offset) for start, stop in self.tiles[slice(*self.tiles_of_panel[index])]
        ]

    def panel_tiles(self, index: int, tiles: Sequence[int], b: int) -> list[PanelTile]:
        """Where some tiles of a panel stand in the step of block b."""
        offset = self.panels[index][0]
        width = self.blocks[b][1] - self.blocks[b][0]
        found = []
        for a in tiles:
            start, stop = self.tiles[a]
            above = self.tiles_are_blocks and a < b
            # a stored row holds its tiles one after the other; above the diagonal, that of block b
            before = width * start if above else (stop - start) * self.blocks[b][0]
            entries = (before, before + width * (stop - start))
            found.append(PanelTile((start - offset, stop - offset), above, entries))
        return found

    def last_visits(self, steps: Sequence[int]) -> list[int]:
        """At which step each tile is visited for the last time: it holds a block, or several."""
        last = [0] * len(self.tiles)
        for step, b in enumerate(steps):
            last[self.tile_of(b)] = step
        return last
