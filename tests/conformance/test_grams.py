"""What every Gram matrix keeps: products, diagonal and blocks are those of the dense formula."""

from dataclasses import dataclass

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.gram import Gram

from ..oracle import KERNELS, kernel_matrix

pytestmark = pytest.mark.usefixtures("one_blas_thread")

MAKERS = {
    "dense": lambda kernel, X, noise: cagp.DenseGram(kernel, X, noise_variance=noise),
    "tiled": lambda kernel, X, noise: cagp.TiledGram(kernel, X, noise_variance=noise),
    "tiled-64": lambda kernel, X, noise: cagp.TiledGram(kernel, X, noise_variance=noise, tile=64),
    "tiled-7": lambda kernel, X, noise: cagp.TiledGram(kernel, X, noise_variance=noise, tile=7),
    "tiled-1": lambda kernel, X, noise: cagp.TiledGram(kernel, X, noise_variance=noise, tile=1),
}


@dataclass(frozen=True)
class Case:
    gram: Gram
    G: np.ndarray


@pytest.fixture(params=MAKERS, scope="module")
def make(request):
    return MAKERS[request.param]


def case(make, kernel_class=cagp.Matern32, n=130, p=3) -> Case:
    rng = np.random.default_rng([n, p])
    X, noise = rng.uniform(size=(n, p)), rng.uniform(0.01, 2.0, size=n)
    kernel = kernel_class(lengthscale=0.3, variance=1.5)
    return Case(make(kernel, X, noise), kernel_matrix(kernel, X, X) + np.diag(noise))


@pytest.mark.parametrize("kernel_class", KERNELS)
@pytest.mark.parametrize("columns", [None, 1, 2, 30])
def test_product(make, kernel_class, columns):
    made = case(make, kernel_class)
    v = np.random.default_rng(0).normal(size=130 if columns is None else (130, columns))
    product = made.gram @ v
    assert product.shape == v.shape
    assert (np.abs(product - made.G @ v) <= 1e-13 * (made.G @ np.abs(v))).all()


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65])
@pytest.mark.parametrize("columns", [1, 12])
def test_product_of_any_size(make, n, columns):
    made = case(make, n=n, p=2)
    v = np.random.default_rng(0).normal(size=(n, columns))
    np.testing.assert_allclose(made.gram @ v, made.G @ v, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("columns", [3, 12])
def test_product_takes_any_memory_order_and_leaves_it_alone(make, columns):
    gram = case(make).gram
    v = np.random.default_rng(0).normal(size=(130, columns))
    expected = gram @ v
    for other in (np.asfortranarray(v), np.repeat(v, 2, axis=1)[:, ::2], np.repeat(v, 3, axis=0)[::3]):
        np.testing.assert_allclose(gram @ other, expected, rtol=1e-12, atol=1e-12)
    integers = np.arange(130 * columns).reshape(130, columns)
    np.testing.assert_allclose(gram @ integers, gram @ integers.astype(float), rtol=1e-12)
    v.flags.writeable = False
    np.testing.assert_array_equal(gram @ v, expected)


def test_product_is_linear_and_symmetric(make):
    gram = case(make).gram
    u, v = np.random.default_rng(1).normal(size=(2, 130))
    np.testing.assert_allclose(gram @ (2.0 * u - v), 2.0 * (gram @ u) - gram @ v, rtol=1e-11, atol=1e-12)
    assert u @ (gram @ v) == pytest.approx(v @ (gram @ u), rel=1e-12)


def test_shape_and_diagonal(make):
    made = case(make)
    assert made.gram.shape == (130, 130)
    np.testing.assert_allclose(made.gram.diagonal(), np.diag(made.G), rtol=1e-15)


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (slice(0, 10), slice(0, 10)),
        (slice(0, 10), slice(60, 130)),
        (slice(20, 50), slice(40, 44)),
        (slice(None), slice(None)),
        (slice(129, 130), slice(0, 130)),
        (slice(5, 5), slice(0, 3)),
        (slice(100, None), slice(None, -90)),
    ],
)
def test_block(make, rows, columns):
    made = case(make)
    block = made.gram.block(rows, columns)
    expected = made.G[rows, columns]
    assert block.shape == expected.shape
    np.testing.assert_allclose(block, expected, rtol=1e-13)
    block += 1.0  # a copy: the matrix stays as it is
    np.testing.assert_allclose(made.gram.block(rows, columns), expected, rtol=1e-13)
