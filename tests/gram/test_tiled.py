"""Tiles: how they are gathered, stored or shared changes no bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.tiled import (
    NOT_STORED,
    add_tile_product,
    cross_product,
    kernel_panel,
    rows_product,
    stored_tile_row,
)
from cagp_dist.kernels import point_columns
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.tiling import block_ranges

from ..joined import one_after_another
from ..oracle import kernel_matrix

pytestmark = pytest.mark.usefixtures("one_blas_thread")

KERNEL = cagp.Matern32(lengthscale=0.2, variance=1.5)


def points(n, p=3, seed=0):
    return np.random.default_rng([seed, n]).uniform(size=(n, p))


@pytest.mark.parametrize("columns", [1, 2, 40])
def test_product_does_not_depend_on_the_executor(columns):
    gram = cagp.TiledGram(KERNEL, points(900), noise_variance=np.full(900, 0.1), tile=128)
    v = np.random.default_rng(1).normal(size=(900, columns))
    expected = gram.product(v, executor=SerialExecutor())
    np.testing.assert_array_equal(gram @ v, expected)
    for workers in (1, 2, 3):
        with ThreadExecutor(workers) as executor:
            np.testing.assert_array_equal(gram.product(v, executor=executor), expected)


def test_product_with_one_column_and_with_more_agree():
    """The first uses every tile twice, the second evaluates all of them."""
    gram = cagp.TiledGram(KERNEL, points(300), noise_variance=np.full(300, 0.1), tile=50)
    v = np.random.default_rng(1).normal(size=(300, 3))
    np.testing.assert_allclose((gram @ v)[:, 0], gram @ v[:, 0], rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal((gram @ v[:, 0]), (gram @ v[:, :1])[:, 0])


@one_after_another
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
    together = rows_product(KERNEL.parameters, point_columns(rows), point_columns(X), v, 64)
    alone = rows_product(KERNEL.parameters, point_columns(rows[40:50]), point_columns(X), v, 64)
    np.testing.assert_allclose(alone, together[40:50], rtol=1e-12, atol=1e-14)


@given(
    n=st.integers(1, 600),
    block=st.integers(1, 300),
    columns=st.integers(2, 130),
    which=st.integers(0, 100),
)
def test_stored_tiles_above_and_below_give_the_bits_of_fresh_ones(n, block, columns, which):
    """A tile is stored in the row of its lower block; above the diagonal its transpose is used."""
    X = points(n, p=2)
    blocks = [X[start:stop] for start, stop in block_ranges(n, block)]
    a = which % len(blocks)
    row = stored_tile_row(KERNEL.parameters, [point_columns(points) for points in blocks[: a + 1]], columns)
    assert row.shape == (len(blocks[a]) * sum(map(len, blocks[: a + 1])),)
    before = 0
    for b, other in enumerate(blocks[: a + 1]):
        entries = row[before : before + len(blocks[a]) * len(other)]
        before += len(entries)
        for above in {False, a != b}:
            rows, source = (other, blocks[a]) if above else (blocks[a], other)
            v = np.random.default_rng(2).normal(size=(len(source), columns))
            fresh, kept = np.ones((2, len(rows), columns))
            for out, stored in ((fresh, NOT_STORED), (kept, entries)):
                add_tile_product(
                    KERNEL.parameters,
                    point_columns(rows),
                    point_columns(source),
                    v,
                    above=above,
                    stored=stored,
                    out=out,
                )
            np.testing.assert_array_equal(kept, fresh)
            T = kernel_matrix(KERNEL, rows, source)
            assert (np.abs(fresh - 1.0 - T @ v) <= 1e-12 * (1.0 + T @ np.abs(v))).all()


def test_a_tile_product_with_one_column_ignores_where_the_tile_stands():
    X, Z, v = points(30), points(20, seed=1), np.ones((20, 1))
    below, above = np.zeros((2, 30, 1))
    for out, is_above in ((below, False), (above, True)):
        add_tile_product(
            KERNEL.parameters,
            point_columns(X),
            point_columns(Z),
            v,
            above=is_above,
            stored=NOT_STORED,
            out=out,
        )
    np.testing.assert_array_equal(above, below)
    np.testing.assert_allclose(below, kernel_matrix(KERNEL, X, Z) @ v, rtol=1e-13)


def test_kernel_panel_is_the_kernel():
    X, Z = points(47), points(13, seed=1)
    panel = kernel_panel(KERNEL.parameters, point_columns(X), point_columns(Z))
    np.testing.assert_array_equal(panel, KERNEL(X, Z))


def test_gram_holds_points_only():
    """8 n (p + 1) bytes, nothing n x n: a product with 20,000 points leaves no trace."""
    gram = cagp.TiledGram(KERNEL, points(20_000), noise_variance=np.full(20_000, 0.1))
    product = gram @ np.full(20_000, 1e-4)
    assert product.shape == (20_000,)
    rows = slice(300, 305)
    expected = KERNEL(gram.X[rows], gram.X) @ np.full(20_000, 1e-4) + 0.1 * 1e-4
    np.testing.assert_allclose(product[rows], expected, rtol=1e-11)
    held = [value for value in vars(gram).values() if isinstance(value, np.ndarray)]
    assert sum(value.nbytes for value in held) <= 8 * 20_000 * 7


@one_after_another
@pytest.mark.parametrize("columns", [np.ones(29), np.ones((29, 2)), np.ones((30, 2, 1)), np.float64(1.0)])
def test_columns_of_another_length_are_refused(columns):
    gram = cagp.TiledGram(KERNEL, points(30), noise_variance=np.zeros(30))
    with pytest.raises(ArgumentError) as refusal:
        gram @ columns
    assert refusal.value.key == "shapes"


@one_after_another
@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"noise_variance": np.zeros(4)}, "shapes"),
        ({"noise_variance": 0.1}, "shapes"),
        ({"noise_variance": np.array([0.0, 1.0, 2.0, np.nan, 1.0])}, "shapes"),
        ({"noise_variance": np.array([0.0, 1.0, 2.0, -1e-9, 1.0])}, "shapes"),
        ({"X": np.full((5, 2), np.nan)}, "not-finite"),
        ({"X": np.zeros(5)}, "shapes"),
        ({"tile": 0}, "no-count"),
    ],
)
def test_wrong_arguments_are_refused(settings, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.TiledGram(**{"kernel": KERNEL, "X": points(5), "noise_variance": np.zeros(5), **settings})
    assert refusal.value.key == key
