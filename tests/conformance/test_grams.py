"""What every Gram matrix keeps: what `cagp_dist.gram.Gram` promises is that of the dense formula.

Points are a random cloud, or a whole latitude-longitude grid, or a part of one. Grids compute by Fourier
transforms, which mix all entries of a column: their rounding errors are relative to the largest entry of a
product, those of the others to each entry.
"""

from contextlib import nullcontext

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.runtime import SerialExecutor, ThreadExecutor

from ..joined import one_after_another
from ..oracle import KERNELS_AND_SUMS
from ..pairwise import by_turns, pairwise
from .grams import MAKERS, Case

pytestmark = pytest.mark.usefixtures("one_blas_thread")


@pytest.fixture(params=MAKERS, scope="module")
def maker(request):
    return MAKERS[request.param]


def case(maker, kernel_class=cagp.Matern32, n=130, p=3) -> Case:
    return maker.make(kernel_class(lengthscale=0.3, variance=1.5), n, p)


@pytest.mark.parametrize(
    ("maker", "kernel_class", "columns"),
    by_turns({"maker": list(MAKERS), "kernel_class": KERNELS_AND_SUMS, "columns": [None, 1, 2, 30]}),
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
    by_turns({"maker": list(MAKERS), "n": [1, 2, 63, 64, 65], "columns": [0, 1, 12]}),
    indirect=["maker"],
)
def test_product_of_any_size(maker, n, columns):
    made = case(maker, n=n, p=2)
    v = np.random.default_rng(0).normal(size=(n, columns))
    atol = 1e-13 * (np.abs(made.G @ v).max(initial=0.0) if maker.mixes else 1.0)
    assert (made.gram @ v).shape == v.shape
    np.testing.assert_allclose(made.gram @ v, made.G @ v, rtol=1e-12, atol=atol)


@pytest.mark.parametrize("columns", [3, pytest.param(12, marks=pytest.mark.exhaustive)])
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


@pytest.mark.parametrize(
    ("maker", "kernel_class"),
    by_turns({"maker": list(MAKERS), "kernel_class": KERNELS_AND_SUMS}, start=1),
    indirect=["maker"],
)
def test_product_is_its_own_adjoint_and_positive(maker, kernel_class):
    made = case(maker, kernel_class)
    U, V = np.random.default_rng(1).normal(size=(2, 130, 4))
    scale = 1e-13 * np.abs(U).T @ made.G @ np.abs(V)
    assert (np.abs(U.T @ (made.gram @ V) - (made.gram @ U).T @ V) <= scale).all()
    assert ((U * (made.gram @ U)).sum(axis=0) > 0.0).all()


def test_products_with_unit_vectors_are_the_matrix(maker):
    made = case(maker, n=65)
    np.testing.assert_allclose(made.gram @ np.eye(65), made.G, rtol=0.0, atol=1e-13 * made.G.max())


@one_after_another
@pytest.mark.parametrize(
    ("name", "kernel_class", "columns", "n"),
    pairwise(
        {
            "name": [name for name in MAKERS if MAKERS[name].solve],
            "kernel_class": KERNELS_AND_SUMS,
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


def test_shape_points_noise_and_diagonal(maker):
    made = case(maker)
    assert made.gram.shape == (130, 130)
    assert made.gram.kernel == cagp.Matern32(lengthscale=0.3, variance=1.5)
    np.testing.assert_allclose(made.gram.X, made.X, rtol=0.0, atol=1e-14)
    np.testing.assert_array_equal(made.gram.noise_variance, made.noise)
    np.testing.assert_allclose(made.gram.diagonal(), np.diag(made.G), rtol=1e-15)
    prior = made.gram.kernel.diagonal(made.gram.X)
    np.testing.assert_allclose(made.gram.diagonal(), prior + made.noise, rtol=1e-15)
    before = made.gram.diagonal()
    made.gram.diagonal()[:] = 0.0
    np.testing.assert_array_equal(made.gram.diagonal(), before)


def test_it_is_the_kernel_of_its_points_plus_its_noise(maker):
    """So that tiles can be evaluated from these three, whatever the structure."""
    gram = case(maker, n=65).gram
    tiles = gram.kernel(gram.X, gram.X) + np.diag(gram.noise_variance)
    product = gram @ np.eye(65)
    np.testing.assert_allclose(product, tiles, rtol=0.0, atol=1e-13 * tiles.max())


@pytest.mark.parametrize(("columns", "threads"), [(1, True), (12, False)])
def test_product_on_an_executor_is_the_product(maker, columns, threads):
    made = case(maker)
    v = np.random.default_rng(0).normal(size=(130, columns))
    with ThreadExecutor(2) if threads else nullcontext(SerialExecutor()) as executor:
        product = made.gram.product(v, executor=executor)
    assert product.shape == v.shape
    bound = 1e-13 * (made.G @ np.abs(v))
    assert (np.abs(product - made.G @ v) <= (bound.max() if maker.mixes else bound)).all()


def targets_of(p, count=17):
    """Points in the cube of the clouds, or on the sphere of the grids; the first is a pole."""
    if p != 3:
        return np.random.default_rng(count).uniform(size=(count, p))
    rng = np.random.default_rng(count)
    points = cagp.unit_sphere(rng.uniform(-90.0, 90.0, count), rng.uniform(-180.0, 360.0, count))
    points[:1] = [[0.0, 0.0, 1.0]]
    return points


@pytest.mark.parametrize(
    ("maker", "kernel_class", "columns", "count"),
    by_turns(
        {"maker": list(MAKERS), "kernel_class": KERNELS_AND_SUMS, "columns": [1, 12], "count": [0, 1, 17, 70]}
    ),
    indirect=["maker"],
)
def test_cross_product_to_points(maker, kernel_class, columns, count):
    made = case(maker, kernel_class)
    points, v = targets_of(3, count), np.random.default_rng(1).normal(size=(130, columns))
    found = made.gram.cross(points, v, executor=SerialExecutor())
    assert found.shape == (count, columns)
    V = made.cross(points)
    assert (np.abs(found - V @ v) <= 1e-12 * (V @ np.abs(v)) + 1e-13).all()


GRIDS = [name for name in MAKERS if "rings" in name]


@one_after_another
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("known", [False, True])
def test_cross_product_to_a_grid(name, known):
    """The grid itself where the points are of one, half of it, and any other; with or without the product."""
    made = case(MAKERS[name])
    v = np.random.default_rng(1).normal(size=(130, 4))
    own = made.grid
    other = cagp.LatLonGrid([-90.0, -12.0, 44.0], 5, first_longitude_degrees=-180.0)
    product = made.gram @ v if known else None
    for targets in (other,) if own is None else (own, own.points[::-2], other):
        found = made.gram.cross(targets, v, executor=SerialExecutor(), product=product)
        V = made.cross(getattr(targets, "points", targets))
        assert found.shape == (len(V), 4)
        bound = 1e-12 * (V @ np.abs(v)) + 1e-13
        if targets is not other:  # made as G v less the noise: errors are those of G v
            bound = 1e-13 * (np.abs(v).sum(axis=0) + (made.G @ np.abs(v)).max(axis=0))
        assert (np.abs(found - V @ v) <= bound).all()
    assert (own is None) == (name not in GRIDS)


def test_an_equal_grid_is_the_grid_itself_and_a_turned_one_is_not():
    for name in GRIDS:
        made = case(MAKERS[name])
        v = np.random.default_rng(1).normal(size=(130, 2))
        latitude, Q = made.grid.latitude_degrees, made.grid.n_longitudes
        for grid in (
            cagp.LatLonGrid(latitude, Q),
            cagp.LatLonGrid(latitude, Q, first_longitude_degrees=11.0),
            cagp.LatLonGrid(latitude[::-1], Q),
            cagp.LatLonGrid(latitude[:-1], Q),
            cagp.LatLonGrid(latitude, Q + 1),
        ):
            found = made.gram.cross(grid, v, executor=SerialExecutor())
            expected = made.cross(grid.points) @ v
            np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-11)


EXACT = [name for name in MAKERS if not name.startswith("tiled") and "noise by point" not in name]
"""Where nothing is iterated: for noise by point see `tests.gram.test_masked`."""


@one_after_another
@pytest.mark.parametrize(
    ("name", "kernel_class", "n", "fields"),
    pairwise({"name": EXACT, "kernel_class": KERNELS_AND_SUMS, "n": [1, 2, 65, 130], "fields": [1, 3]}),
)
def test_exact_solves(name, kernel_class, n, fields):
    """Weights, downdates to points and to grids; conditions are below 1e4."""
    made = case(MAKERS[name], kernel_class, n=n)
    exact = made.gram.exact(executor=SerialExecutor())
    assert exact is not None
    b = np.random.default_rng(0).normal(size=(n, fields))
    before = b.copy()
    weights = exact.weights(b)
    assert weights.shape == b.shape
    np.testing.assert_allclose(weights, np.linalg.solve(made.G, b), rtol=0.0, atol=1e-10 * np.abs(b).max())
    np.testing.assert_array_equal(b, before)
    tiny = cagp.LatLonGrid([-90.0, -12.0, 44.0], 5, first_longitude_degrees=-180.0)
    for targets in (targets_of(3), targets_of(3, 0), tiny, *([] if made.grid is None else [made.grid])):
        V = made.cross(getattr(targets, "points", targets))
        expected = V @ np.linalg.solve(made.G, V.T)
        whole = exact.downdate(targets, full=True)
        assert whole.shape == expected.shape
        np.testing.assert_allclose(whole, expected, rtol=0.0, atol=1e-11)
        np.testing.assert_allclose(whole, whole.T, rtol=0.0, atol=1e-15)
        diagonal = exact.downdate(targets, full=False)
        assert diagonal.shape == (len(V),)
        np.testing.assert_allclose(diagonal, np.diag(expected), rtol=0.0, atol=1e-11)


@one_after_another
@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("kernel_class", KERNELS_AND_SUMS)
def test_condition_numbers_of_exact_solves(name, kernel_class):
    """Within a factor 10 of that in the 1-norm, or not below that of the observed system in the 2-norm."""
    made = case(MAKERS[name], kernel_class)
    found = made.gram.exact(executor=SerialExecutor()).condition_number
    if name == "dense":
        expected = np.linalg.cond(made.G, 1)
        assert expected / 10.0 < found < 10.0 * expected
    else:
        assert found >= np.linalg.cond(made.G, 2)


@pytest.mark.parametrize("name", [name for name in MAKERS if name.startswith("tiled")])
def test_tiles_offer_no_exact_solves(name):
    assert case(MAKERS[name]).gram.exact(executor=SerialExecutor()) is None
