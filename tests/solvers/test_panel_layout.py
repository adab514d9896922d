"""Panels have every row once, tiles in turn, and what is taken apart comes together again."""

import numpy as np
import pytest

from cagp_dist.solvers.kept_panels import read_rows
from cagp_dist.solvers.panel_layout import PanelLayout

CUTS = [
    (1, 1, 1),  # n, block size, panels
    (10, 3, 1),
    (10, 3, 2),
    (1000, 40, 3),  # small blocks share a tile
    (1000, 300, 4),
    (1030, 300, 9),  # more panels than tiles; a short last tile
]


@pytest.mark.parametrize(("n", "block_size", "panels"), CUTS)
def test_what_is_taken_apart_comes_together_again(n, block_size, panels):
    layout = PanelLayout.of(n, block_size=block_size, panels=panels)
    assert layout.panels == min(panels, len(layout.tiles))
    values = np.random.default_rng(0).standard_normal((n, 2))
    parts = [layout.of_panel(index, values) for index in range(layout.panels)]
    np.testing.assert_array_equal(layout.joined(parts), values)
    for index, part in enumerate(parts):
        assert part.flags["C_CONTIGUOUS"]
        np.testing.assert_array_equal(layout.of_panel(index, values.T, axis=1), part.T)


@pytest.mark.parametrize(("n", "block_size", "panels"), CUTS)
def test_blocks_and_tiles_are_where_the_layout_says(n, block_size, panels):
    layout = PanelLayout.of(n, block_size=block_size, panels=panels)
    rows = np.arange(n)
    parts = [layout.of_panel(index, rows) for index in range(layout.panels)]
    for b, block in enumerate(layout.blocks):
        within = slice(*layout.within_panel(b))
        np.testing.assert_array_equal(parts[layout.panel_of_block[b]][within], rows[slice(*block)])
    for index, part in enumerate(parts):
        found = [part[slice(*tile)] for tile in layout.tiles_within(index)]
        expected = [rows[slice(*layout.tiles[a])] for a in layout.tiles_of_panel[index]]
        assert [len(tile) for tile in found] == [len(tile) for tile in expected]
        np.testing.assert_array_equal(np.concatenate(found), np.concatenate(expected))
        moved = layout.panel_tiles(layout.tiles_of_panel[index], 0)
        assert [tile.rows for tile in moved] == layout.tiles_within(index)


def test_what_is_left_of_a_sweep_is_shared_evenly():
    layout = PanelLayout.of(6400, block_size=400, panels=4)
    for first in range(16):
        left = [sum(a >= first for a in tiles) for tiles in layout.tiles_of_panel]
        assert max(left) - min(left) <= 1


class Saved:
    """Panels as a checkpoint has them, and the rows that were read."""

    def __init__(self, parts):
        self.parts, self.read_rows = parts, 0

    def read(self, name, start, stop):
        found = self.parts[int(name.rpartition("-")[2])][start:stop]
        self.read_rows += len(found)
        return found


@pytest.mark.parametrize("before", [1, 2, 5])
@pytest.mark.parametrize("after", [1, 3, 4])
def test_rows_are_read_into_other_panels(before, after):
    values = np.random.default_rng(0).standard_normal((1030, 2))
    cut = PanelLayout.of(1030, block_size=300, panels=before)
    again = PanelLayout.of(1030, block_size=260, panels=after)
    saved = Saved([cut.of_panel(index, values) for index in range(cut.panels)])
    for index in range(again.panels):
        found = read_rows(saved, (0, 2), cut.places(), again.rows_of_panel(index))
        np.testing.assert_array_equal(found, again.of_panel(index, values))
    assert saved.read_rows == 1030
