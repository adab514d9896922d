"""What every Gram matrix keeps: products, diagonal, blocks and solves are those of the dense formula.

Points are a random cloud, or a whole latitude-longitude grid, or a part of one. Grids compute by Fourier
transforms, which mix all entries of a column: their rounding errors are relative to the largest entry of a
product, those of the others to each entry.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.gram import Gram
from cagp_dist.runtime import SerialExecutor

from ..oracle import KERNELS, kernel_matrix, ring_points
from ..pairwise import pairwise

pytestmark = pytest.mark.usefixtures("one_blas_thread")

Array = np.ndarray
GRID_SHAPES = {1: (1, 1), 2: (1, 2), 63: (7, 9), 64: (8, 8), 65: (5, 13), 130: (13, 10)}
MISSING = 15
SHAPES_WITH_MISSING = {1: (4, 4), 2: (1, 17), 63: (6, 13), 64: (79, 1), 65: (8, 10), 130: (5, 29)}


@dataclass(frozen=True)
class Case:
    gram: Gram
    G: Array


@dataclass(frozen=True)
class Maker:
    """Makes a Gram matrix of n points (in p dimensions, where that can be chosen), and its dense matrix."""

    make: Callable[[cagp.Matern32, int, int], Case]
    mixes: bool = False
    """Whether rounding errors are relative to the largest entry of a product."""
    solve: Callable[[Gram, Array], Array] | None = None
    """How it solves, where it does."""


def cloud(gram_class, **settings):
    """Random points, noise by point."""

    def make(kernel, n, p):
        rng = np.random.default_rng([n, p])
        X, noise = rng.uniform(size=(n, p)), rng.uniform(0.01, 2.0, size=n)
        gram = gram_class(kernel, X, noise_variance=noise, **settings)
        return Case(gram, kernel_matrix(kernel, X, X) + np.diag(noise))

    return make


def whole_grid(latitudes, *, even_noise):
    """All points of a grid, noise by latitude, which is its own mirror image or not."""

    def make(kernel, n, p):
        P, Q = GRID_SHAPES[n]
        latitude, noise = latitudes(P), np.random.default_rng(n).uniform(0.01, 2.0, size=P)
        noise = 0.5 * (noise + noise[::-1]) if even_noise else noise
        gram = cagp.RingGram(
            cagp.LatLonGrid(latitude, Q), kernel, noise_variance=noise, executor=SerialExecutor()
        )
        assert len(gram.wavenumbers.sizes) == (2 if even_noise and P > 1 else 1)
        X = ring_points(latitude, Q)
        return Case(gram, kernel_matrix(kernel, X, X) + np.diag(np.repeat(noise, Q)))

    return make


def part_of_a_grid(kernel, n, p):
    """n points of a grid of n + 15, the rest missing: ten together, five scattered."""
    P, Q = SHAPES_WITH_MISSING[n]
    observed = np.ones(n + MISSING, dtype=bool)
    observed[:10] = False
    observed[10 + np.random.default_rng(n).choice(n + 5, 5, replace=False)] = False
    latitude, noise = regular(P), np.linspace(0.01, 2.0, P)
    rings = cagp.RingGram(
        cagp.LatLonGrid(latitude, Q), kernel, noise_variance=noise, executor=SerialExecutor()
    )
    X = ring_points(latitude, Q)[observed]
    return Case(
        cagp.MaskedRings(rings, observed.reshape(P, Q)),
        kernel_matrix(kernel, X, X) + np.diag(np.repeat(noise, Q)[observed]),
    )


def regular(P):
    return np.linspace(-80.0, 80.0, P) if P > 1 else np.zeros(1)


def with_poles(P):
    return np.linspace(90.0, -90.0, P) if P > 1 else np.array([90.0])


MAKERS = {
    "dense": Maker(cloud(cagp.DenseGram), solve=cagp.DenseGram.solve),
    "tiled": Maker(cloud(cagp.TiledGram)),
    "tiled-64": Maker(cloud(cagp.TiledGram, tile=64)),
    "tiled-7": Maker(cloud(cagp.TiledGram, tile=7)),
    "tiled-1": Maker(cloud(cagp.TiledGram, tile=1)),
    "rings": Maker(whole_grid(regular, even_noise=True), mixes=True, solve=cagp.RingGram.solve),
    "rings with poles": Maker(
        whole_grid(with_poles, even_noise=False), mixes=True, solve=cagp.RingGram.solve
    ),
    "masked rings": Maker(
        part_of_a_grid,
        mixes=True,
        solve=lambda gram, columns: gram.solve(columns, tolerance=1e-12),
    ),
}


@pytest.fixture(params=MAKERS, scope="module")
def maker(request):
    return MAKERS[request.param]


def case(maker, kernel_class=cagp.Matern32, n=130, p=3) -> Case:
    return maker.make(kernel_class(lengthscale=0.3, variance=1.5), n, p)


@pytest.mark.parametrize(
    ("maker", "kernel_class", "columns"),
    pairwise({"maker": list(MAKERS), "kernel_class": KERNELS, "columns": [None, 1, 2, 30]}),
    indirect=["maker"],
)
def test_product(maker, kernel_class, columns):
    made = case(maker, kernel_class)
    v = np.random.default_rng(0).normal(size=130 if columns is None else (130, columns))
    product = made.gram @ v
    assert product.shape == v.shape
    bound = 1e-13 * (made.G @ np.abs(v))
    assert (np.abs(product - made.G @ v) <= (bound.max() if maker.mixes else bound)).all()


@pytest.mark.parametrize(
    ("maker", "n", "columns"),
    pairwise({"maker": list(MAKERS), "n": [1, 2, 63, 64, 65], "columns": [0, 1, 12]}),
    indirect=["maker"],
)
def test_product_of_any_size(maker, n, columns):
    made = case(maker, n=n, p=2)
    v = np.random.default_rng(0).normal(size=(n, columns))
    atol = 1e-13 * (np.abs(made.G @ v).max(initial=0.0) if maker.mixes else 1.0)
    assert (made.gram @ v).shape == v.shape
    np.testing.assert_allclose(made.gram @ v, made.G @ v, rtol=1e-12, atol=atol)


@pytest.mark.parametrize("columns", [3, 12])
def test_product_takes_any_memory_order_and_leaves_it_alone(maker, columns):
    gram = case(maker).gram
    v = np.random.default_rng(0).normal(size=(130, columns))
    expected = gram @ v
    for other in (np.asfortranarray(v), np.repeat(v, 2, axis=1)[:, ::2], np.repeat(v, 3, axis=0)[::3]):
        np.testing.assert_allclose(gram @ other, expected, rtol=1e-12, atol=1e-12)
    integers = np.arange(130 * columns).reshape(130, columns)
    np.testing.assert_allclose(gram @ integers, gram @ integers.astype(float), rtol=1e-12)
    v.flags.writeable = False
    np.testing.assert_array_equal(gram @ v, expected)


def test_product_is_linear_and_symmetric(maker):
    gram = case(maker).gram
    u, v = np.random.default_rng(1).normal(size=(2, 130))
    np.testing.assert_allclose(gram @ (2.0 * u - v), 2.0 * (gram @ u) - gram @ v, rtol=1e-11, atol=1e-12)
    assert u @ (gram @ v) == pytest.approx(v @ (gram @ u), rel=1e-12)


@pytest.mark.parametrize("kernel_class", KERNELS)
def test_product_is_its_own_adjoint_and_positive(maker, kernel_class):
    made = case(maker, kernel_class)
    U, V = np.random.default_rng(1).normal(size=(2, 130, 4))
    scale = 1e-13 * np.abs(U).T @ made.G @ np.abs(V)
    assert (np.abs(U.T @ (made.gram @ V) - (made.gram @ U).T @ V) <= scale).all()
    assert ((U * (made.gram @ U)).sum(axis=0) > 0.0).all()


def test_products_with_unit_vectors_are_the_matrix(maker):
    made = case(maker, n=65)
    np.testing.assert_allclose(made.gram @ np.eye(65), made.G, rtol=0.0, atol=1e-13 * made.G.max())


@pytest.mark.parametrize(
    ("name", "kernel_class", "columns", "n"),
    pairwise(
        {
            "name": [name for name in MAKERS if MAKERS[name].solve],
            "kernel_class": KERNELS,
            "columns": [None, 0, 1, 12],
            "n": [1, 2, 65, 130],
        }
    ),
)
def test_solve(name, kernel_class, columns, n):
    """Conditions are below 1e4, so a residual of 1e-12 is an error of 1e-8."""
    maker = MAKERS[name]
    made = case(maker, kernel_class, n=n)
    b = np.random.default_rng(0).normal(size=n if columns is None else (n, columns))
    before = b.copy()
    solution = maker.solve(made.gram, b)
    assert solution.shape == b.shape
    np.testing.assert_allclose(
        solution, np.linalg.solve(made.G, b), rtol=0.0, atol=1e-8 * np.abs(b).max(initial=0.0)
    )
    np.testing.assert_array_equal(b, before)


def test_shape_and_diagonal(maker):
    made = case(maker)
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
def test_block(maker, rows, columns):
    made = case(maker)
    block = made.gram.block(rows, columns)
    expected = made.G[rows, columns]
    assert block.shape == expected.shape
    np.testing.assert_allclose(block, expected, rtol=1e-13)
    block += 1.0  # a copy: the matrix stays as it is
    np.testing.assert_allclose(made.gram.block(rows, columns), expected, rtol=1e-13)
