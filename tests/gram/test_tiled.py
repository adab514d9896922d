"""Tiles: how they are gathered, stored or shared changes no bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cagp_dist as cagp
from cagp_dist.gram.tiled import (
    NARROW,
    NOT_STORED,
    cross_product,
    kernel_panel,
    lower_tile,
    rows_product,
    subtract_block_column,
)
from cagp_dist.kernels import coordinates
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.tiling import block_ranges

from ..oracle import kernel_matrix

pytestmark = pytest.mark.usefixtures("one_blas_thread")

KERNEL = cagp.Matern32(lengthscale=0.2, variance=1.5)


def points(n, p=3, seed=0):
    return np.random.default_rng([seed, n]).uniform(size=(n, p))


@pytest.mark.parametrize("columns", [1, NARROW, NARROW + 1, 40])
def test_product_does_not_depend_on_the_executor(columns):
    gram = cagp.TiledGram(KERNEL, points(900), noise_variance=np.full(900, 0.1), tile=128)
    v = np.random.default_rng(1).normal(size=(900, columns))
    expected = gram.product(v, executor=SerialExecutor())
    np.testing.assert_array_equal(gram @ v, expected)
    for workers in (1, 2, 3):
        with ThreadExecutor(workers) as executor:
            np.testing.assert_array_equal(gram.product(v, executor=executor), expected)


def test_narrow_and_wide_products_agree():
    gram = cagp.TiledGram(KERNEL, points(300), noise_variance=np.full(300, 0.1), tile=50)
    v = np.random.default_rng(1).normal(size=(300, NARROW + 1))
    wide = gram @ v
    np.testing.assert_allclose(gram @ v[:, :NARROW], wide[:, :NARROW], rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal((gram @ v[:, 0]), (gram @ v[:, :1])[:, 0])


@pytest.mark.parametrize("columns", [1, 5, 31])
@pytest.mark.parametrize("q", [0, 1, 63, 200])
def test_cross_product(q, columns):
    rows, X = points(q, seed=1), points(150)
    v = np.random.default_rng(2).normal(size=(150, columns))
    product = cross_product(KERNEL, rows, X, v, executor=SerialExecutor(), tile=64)
    assert product.shape == (q, columns)
    np.testing.assert_allclose(product, kernel_matrix(KERNEL, rows, X) @ v, rtol=1e-12, atol=1e-13)
    with ThreadExecutor(2) as executor:
        np.testing.assert_array_equal(cross_product(KERNEL, rows, X, v, executor=executor, tile=64), product)


def test_rows_of_a_product_do_not_depend_on_their_tile_but_for_rounding():
    rows, X, v = points(90, seed=1), points(150), np.random.default_rng(2).normal(size=(150, 5))
    together = rows_product(KERNEL.parameters, coordinates(rows), coordinates(X), v, 64)
    alone = rows_product(KERNEL.parameters, coordinates(rows[40:50]), coordinates(X), v, 64)
    np.testing.assert_allclose(alone, together[40:50], rtol=1e-12, atol=1e-14)


def block_column(tiles, Z, columns, out, *, above=0, stored=None):
    subtract_block_column(
        KERNEL.parameters,
        [coordinates(tile) for tile in tiles],
        coordinates(Z),
        columns,
        above=above,
        stored=[NOT_STORED] * len(tiles) if stored is None else stored,
        out=out,
    )
    return out


@pytest.mark.parametrize("columns", [1, 3, 40, 130])
def test_row_tiles_gathered_differently_give_the_same_bits(columns):
    X, Z = points(700), points(256, seed=1)
    v = np.random.default_rng(2).normal(size=(256, columns))
    start = np.random.default_rng(3).normal(size=(700, columns))
    tiles = [X[a:b] for a, b in block_ranges(700, 256)]
    together = block_column(tiles, Z, v, start.copy())
    np.testing.assert_allclose(together, start - kernel_matrix(KERNEL, X, Z) @ v, rtol=1e-11, atol=1e-12)
    alone = [block_column([X[a:b]], Z, v, start[a:b].copy()) for a, b in block_ranges(700, 256)]
    np.testing.assert_array_equal(np.concatenate(alone), together)
    pairs = [block_column(tiles[:2], Z, v, start[:512].copy()), alone[2]]
    np.testing.assert_array_equal(np.concatenate(pairs), together)


@given(
    n=st.integers(1, 600),
    block=st.integers(1, 300),
    columns=st.integers(1, 130),
    which=st.integers(0, 100),
)
def test_stored_tiles_above_and_below_give_the_bits_of_fresh_ones(n, block, columns, which):
    """A tile is stored as k(lower block, upper block); above the block its transpose is used."""
    X = points(n, p=2)
    ranges = block_ranges(n, block)
    b = which % len(ranges)
    Z, tiles = X[slice(*ranges[b])], [X[slice(*r)] for r in ranges]
    v = np.random.default_rng(2).normal(size=(len(Z), columns))
    start = np.random.default_rng(3).normal(size=(n, columns))
    stored = [
        lower_tile(KERNEL.parameters, *map(coordinates, (Z, tile) if a < b else (tile, Z)), columns)
        for a, tile in enumerate(tiles)
    ]
    fresh = block_column(tiles, Z, v, start.copy(), above=b)
    np.testing.assert_array_equal(block_column(tiles, Z, v, start.copy(), above=b, stored=stored), fresh)
    half = [tile if a % 2 else NOT_STORED for a, tile in enumerate(stored)]
    np.testing.assert_array_equal(block_column(tiles, Z, v, start.copy(), above=b, stored=half), fresh)
    expected = start - kernel_matrix(KERNEL, X, Z) @ v
    np.testing.assert_allclose(fresh, expected, rtol=1e-11, atol=1e-11 * np.abs(v).max() * len(Z))


def test_block_column_leaves_the_columns_alone():
    v = np.ones((20, 4))
    v.flags.writeable = False
    block_column([points(30)], points(20, seed=1), v, np.zeros((30, 4)))


def test_kernel_panel_is_the_kernel():
    tiles, Z = [points(40), points(7, seed=2)], points(13, seed=1)
    panel = kernel_panel(KERNEL.parameters, [coordinates(tile) for tile in tiles], coordinates(Z))
    np.testing.assert_array_equal(panel, KERNEL(np.concatenate(tiles), Z))


def test_gram_holds_points_only():
    """8 n (p + 1) bytes, nothing n x n: a product with 20,000 points leaves no trace."""
    gram = cagp.TiledGram(KERNEL, points(20_000), noise_variance=np.full(20_000, 0.1))
    product = gram @ np.full(20_000, 1e-4)
    assert product.shape == (20_000,)
    rows = slice(300, 305)
    expected = gram.block(rows, slice(None)) @ np.full(20_000, 1e-4)
    np.testing.assert_allclose(product[rows], expected, rtol=1e-11)
    held = [value for value in vars(gram).values() if isinstance(value, np.ndarray)]
    assert sum(value.nbytes for value in held) <= 8 * 20_000 * 7
