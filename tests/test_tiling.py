"""Decisions of integers: everything is covered once, and only the panels know the workers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cagp_dist.tiling import (
    COLUMN_GROUP,
    SMALLEST_ROW_TILE,
    block_ranges,
    column_groups,
    panel_count,
    row_tile_size,
    split,
    subtile_shape,
    triangle_strips,
)

sizes = st.integers(1, 5000)


def assert_covers(ranges, count):
    """Consecutive, non-empty, from 0 to ``count``."""
    assert [index for start, stop in ranges for index in range(start, stop)] == list(range(count))
    assert all(start < stop for start, stop in ranges)


@given(n=st.integers(0, 5000), block_size=sizes)
def test_blocks_cover_the_points_once(n, block_size):
    blocks = block_ranges(n, block_size)
    assert_covers(blocks, n)
    assert all(stop - start == block_size for start, stop in blocks[:-1])


@given(block_size=sizes)
def test_row_tiles_are_whole_blocks(block_size):
    tile = row_tile_size(block_size)
    assert tile % block_size == 0
    assert tile == block_size or SMALLEST_ROW_TILE // 2 < tile <= SMALLEST_ROW_TILE


@given(count=st.integers(0, 3000), parts=st.integers(-2, 4000))
def test_split_is_even(count, parts):
    ranges = split(count, parts)
    assert_covers(ranges, count)
    assert len(ranges) == max(0, min(max(parts, 1), count))
    lengths = {stop - start for start, stop in ranges}
    assert not lengths or max(lengths) - min(lengths) <= 1


@given(q=st.integers(0, 20_000))
def test_column_groups_cover_the_test_points_once(q):
    groups = column_groups(q)
    assert_covers(groups, q)
    assert len(groups) == -(-q // COLUMN_GROUP)


@given(row_tiles=sizes, groups=st.integers(0, 50), workers=st.integers(1, 200))
def test_panels_keep_every_worker_busy_and_are_not_empty(row_tiles, groups, workers):
    panels = panel_count(row_tiles, groups, workers)
    assert 1 <= panels <= row_tiles
    assert workers == 1 or panels == row_tiles or panels * max(groups, 1) >= 2 * workers
    assert panel_count(row_tiles, groups, 1) == 1


@given(columns=st.integers(1, 600))
def test_subtiles_fit_their_caches(columns):
    rows, width = subtile_shape(columns)
    assert 8 * rows * width <= 256 * 2**10
    assert columns > 122 or rows * width * columns <= 10**6


@given(tiles=sizes, count=st.integers(1, 64))
def test_strips_of_the_triangle_cover_it_with_similar_areas(tiles, count):
    strips = triangle_strips(tiles, count)
    assert_covers(strips, tiles)
    assert len(strips) <= count
    areas = [sum(range(start + 1, stop + 1)) for start, stop in strips]
    # a strip is at most two rows longer than its share
    assert max(areas) <= tiles * (tiles + 1) / 2 / count + 2 * tiles


@pytest.mark.parametrize(
    ("n", "block_size", "expected"), [(5, 2, [(0, 2), (2, 4), (4, 5)]), (3, 9, [(0, 3)])]
)
def test_last_block_may_be_shorter(n, block_size, expected):
    assert block_ranges(n, block_size) == expected
