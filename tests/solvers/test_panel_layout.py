"""Panels have every row once, tiles in turn, and what is taken apart comes together again."""

from types import SimpleNamespace

import numpy as np
import pytest

from cagp_dist.runtime.dask import DaskExecutor
from cagp_dist.solvers.engine.kept_panels import read_rows
from cagp_dist.solvers.engine.panel_layout import PanelLayout

from ..joined import one_after_another

CUTS = [
    (1, 1, 1),  # n, block size, panels
    (10, 3, 1),
    (1000, 40, 3),  # small blocks share a tile
    (1000, 300, 4),
    (1300, 300, 2),  # several tiles in each panel
    (2600, 512, 4),
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
        for b in range(len(layout.blocks)):
            moved = layout.panel_tiles(layout.tiles_of_panel[index], b)
            assert [tile.rows for tile in moved] == layout.tiles_within(index)
            above = [layout.tiles_are_blocks and a < b for a in layout.tiles_of_panel[index]]
            assert [tile.above for tile in moved] == above


def tiles_of_workers(workers, tiles):
    """Which tiles each worker of a cluster has."""
    layout = PanelLayout.of(400 * tiles, block_size=400, panels=2 * workers)
    cluster = SimpleNamespace(_addresses=list(range(workers)))
    homes = [DaskExecutor._address(cluster, index) for index in layout.panel_of_block]
    return [np.flatnonzero(np.array(homes) == worker) for worker in range(workers)]


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_what_is_left_of_a_sweep_is_shared_evenly(workers):
    """Of two panels each, at most three tiles more than the fewest; four among three workers."""
    for tiles in (64, 98):
        shares = tiles_of_workers(workers, tiles)
        for first in range(tiles):
            left = [int(np.sum(share >= first)) for share in shares]
            assert max(left) - min(left) <= (4 if workers == 3 else 3)


@one_after_another
@pytest.mark.parametrize("workers", [2, 3, 4, 8])
@pytest.mark.parametrize("colours", [2, 4, 8])
def test_blocks_of_a_colour_are_shared_evenly(workers, colours):
    """They are solved at once: nobody has more than one above the mean, of three workers two."""
    for tiles in (64, 98):
        shares = tiles_of_workers(workers, tiles)
        for colour in range(colours):
            of_colour = [int(np.sum(share % colours == colour)) for share in shares]
            assert max(of_colour) <= np.mean(of_colour) + (2 if workers == 3 else 1)


@pytest.mark.parametrize("panels", [3, 5, 7, 9])
@pytest.mark.parametrize("colours", [2, 4])
def test_blocks_of_a_colour_are_shared_evenly_by_an_odd_number_of_panels(panels, colours):
    """It has no divisor in common with the number of colours: dealt out in turn, nobody has two more."""
    layout = PanelLayout.of(400 * 63, block_size=400, panels=panels)
    for colour in range(colours):
        of_colour = np.bincount(layout.panel_of_block[colour::colours], minlength=panels)
        assert np.ptp(of_colour) <= 1


class Saved:
    """Panels as a checkpoint has them, the rows that were read, and how often."""

    def __init__(self, parts):
        self.parts, self.read_rows, self.reads = parts, 0, 0

    def read(self, name, start, stop):
        found = self.parts[int(name.rpartition("-")[2])][start:stop]
        self.read_rows += len(found)
        self.reads += 1
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


def test_a_panel_that_was_saved_as_it_is_wanted_is_read_at_once():
    layout = PanelLayout.of(5000, block_size=40, panels=3)
    values = np.random.default_rng(0).standard_normal((5000, 1))
    saved = Saved([layout.of_panel(index, values) for index in range(3)])
    for index in range(3):
        found = read_rows(saved, (0, 1), layout.places(), layout.rows_of_panel(index))
        np.testing.assert_array_equal(found, saved.parts[index])
    assert saved.reads == 3
