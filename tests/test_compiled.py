"""Compiled tiles, products and triangles against NumPy.

`test_uncompiled` runs this file a second time without compilation, where a kernel value costs
microseconds; sizes are therefore as small as crossing the edges of sub-tiles allows.
"""

import threading
import time

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from cagp_dist import compilation, compiled, triangles
from cagp_dist.geometry import unit_sphere
from cagp_dist.kernels import Matern, point_columns
from cagp_dist.profiles import Part
from cagp_dist.tiling import subtile_shape

from .oracle import KERNELS, PROFILES, kernel_matrix
from .pairwise import by_turns, pairwise

FAMILIES = [kernel_class(lengthscale=0.8, variance=1.7) for kernel_class in KERNELS]
by_family = pytest.mark.parametrize("kernel", FAMILIES, ids=lambda kernel: type(kernel).__name__)
needs_compilation = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="this run is without compilation")
NOT_STORED = np.empty(0)


def points(n: int, p: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, n, p]).normal(size=(n, p))


def product(kernel, X, Z, columns, *, shape, transposed=False, stored=NOT_STORED):
    out = np.zeros((len(Z) if transposed else len(X), columns.shape[1]))
    compiled.add_product(
        *kernel.parameters, point_columns(X), point_columns(Z), stored, transposed, columns, *shape, out
    )
    return out


def stored_tile(kernel, X, Z, shape):
    out = np.full(len(X) * len(Z), np.nan)  # what is left out must not be read
    compiled.evaluate_tile(*kernel.parameters, point_columns(X), point_columns(Z), *shape, out)
    return out


def profiles(kernel_class):
    """One part as the functions that differentiate take it: its profile, and that of its share."""
    return tuple((kernel_class(1.0).profile(part),) for part in (Part.VALUE, Part.SHARE))


@by_family
@pytest.mark.parametrize(("n", "m", "p"), [(1, 1, 1), (3, 5, 2), (40, 60, 3), (2, 2100, 3), (17, 13, 7)])
def test_evaluate_is_the_formula(kernel, n, m, p):
    X, Z, out = points(n, p), points(m, p, seed=1), np.empty((n, m))
    compiled.evaluate(*kernel.parameters, point_columns(X), point_columns(Z), out)
    np.testing.assert_allclose(out, kernel_matrix(kernel, X, Z), rtol=1e-13, atol=0.0)


@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0), (0, 0)])
def test_evaluate_of_no_points(n, m):
    out = np.empty((n, m))
    compiled.evaluate(*FAMILIES[1].parameters, np.empty((2, n)), np.empty((2, m)), out)


def test_exponential_is_accurate_to_rounding():
    a = np.concatenate([np.linspace(0.0, 1.0, 501), np.linspace(1.0, 700.0, 1001), [700.0, 1e-300, 5e-324]])
    values = np.array([compiled._exp_minus(x) for x in a])
    exact = np.exp(-a.astype(np.longdouble))
    # the rounding of a / ln 2 is one of at most 2^-53 |a / ln 2| in the exponent
    assert (np.abs(values / exact - 1.0) < 1.5e-15 + 1.2e-16 * a).all()
    assert compiled._exp_minus(0.0) == 1.0


@by_family
def test_the_negligible_distance_is_where_the_kernel_falls_below_two_to_minus_sixty(kernel):
    unit = type(kernel)(lengthscale=1.0)
    profile, distance = PROFILES[type(kernel).__name__], compiled.kernel_reach(*unit.parameters[:2])
    assert profile(np.float64(distance)) < 2.0**-60
    assert profile(np.float64(0.98 * distance)) > 2.0**-60  # and little is evaluated in vain


def slope(kernel, distance):
    """Derivative of the formula of math 8 by the logarithm of the lengthscale, by complex differentiation."""
    h = 1e-30
    u = distance / kernel.lengthscale * np.exp(-1j * h)
    return kernel.variance * PROFILES[type(kernel).__name__](u).imag / h


@by_family
def test_slopes_are_the_derivative_of_the_formula(kernel):
    X, Z, out = points(23, 3), points(31, 3, seed=1), np.empty((23, 31))
    compiled.evaluate(*kernel.slope_parameters()[0], point_columns(X), point_columns(Z), out)
    np.testing.assert_allclose(out, slope(kernel, cdist(X, Z)), rtol=1e-12, atol=0.0)


@by_family
def test_the_negligible_distance_of_slopes_is_where_they_fall_below_two_to_minus_sixty(kernel):
    unit = type(kernel)(lengthscale=1.0)
    distance = compiled.kernel_reach(*unit.slope_parameters()[0][:2])
    assert slope(unit, np.float64(distance)) < 2.0**-60
    assert slope(unit, np.float64(0.98 * distance)) > 2.0**-60
    assert (np.diff(slope(unit, np.linspace(distance, 3.0 * distance, 100))) <= 0.0).all()


@by_family
def test_slopes_far_away_are_zero_and_finite(kernel):
    X = np.array([[0.0], [1e4], [1e150], [1e308]])
    out = np.empty((4, 4))
    with np.errstate(over="ignore"):  # as in the test of huge coordinates below
        compiled.evaluate(*kernel.slope_parameters()[0], point_columns(X), point_columns(X), out)
    assert (np.abs(out) < 1e-290).all()


@by_family
def test_products_take_slopes_as_kernels(kernel):
    X, Z = points(9, 2), points(14, 2, seed=1)
    T, columns = slope(kernel, cdist(X, Z)), points(14, 3, seed=2)
    out = np.zeros((9, 3))
    arrays = point_columns(X), point_columns(Z)
    compiled.add_product(*kernel.slope_parameters()[0], *arrays, NOT_STORED, False, columns, 4, 5, out)
    np.testing.assert_allclose(out, T @ columns, rtol=0.0, atol=1e-13 * (T @ np.abs(columns)).max())
    one = np.zeros(9)
    compiled.add_product_vector(*kernel.slope_parameters()[0], *arrays, columns[:, 0].copy(), one)
    np.testing.assert_allclose(one, T @ columns[:, 0], rtol=0.0, atol=1e-13 * (T @ np.abs(columns)).max())


@by_family
@pytest.mark.parametrize("coordinate", [0, 1, 2])
def test_slopes_by_coordinate_are_the_derivative_of_the_formula(kernel, coordinate):
    """By complex differentiation of one lengthscale; products leave out what is far in units of its own."""
    own = np.array([0.5, 4.0, 0.03])
    X, Z = own * points(9, 3), own * points(14, 3, seed=1)
    X[4:8] += 1e4 * own  # a sub-tile that is left out
    Z[0] = X[0]
    differences, step = (X[:, None] - Z[None]) / own, 1e-30
    turned = np.where(np.arange(3) == coordinate, np.exp(-1j * step), 1.0)
    distance = np.sqrt(np.einsum("ijk,ijk->ij", differences * turned, differences * turned))
    expected = kernel.variance * PROFILES[type(kernel).__name__](distance).imag / step
    parameters = type(kernel)(tuple(own), kernel.variance).slope_parameters()[coordinate]
    arrays, out = (point_columns(X), point_columns(Z)), np.empty((9, 14))
    compiled.evaluate(*parameters, *arrays, out)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-290)
    assert out[0, 0] == 0.0
    columns, product = points(14, 3, seed=2), np.zeros((9, 3))
    compiled.add_product(*parameters, *arrays, NOT_STORED, False, columns, 4, 5, product)
    np.testing.assert_allclose(product, expected @ columns, rtol=0.0, atol=1e-13 * kernel.variance * 14)


@by_family
def test_slopes_by_coordinate_far_away_are_zero_and_finite(kernel):
    X, out = np.outer([0.0, 1e-200, 1e4, 1e150, 1e308], [1.0, 1.0, 1.0]), np.empty((5, 5))
    parameters = type(kernel)((1.0, 1e-150, 1.0), kernel.variance).slope_parameters()[0]
    with np.errstate(over="ignore"):  # as in the test of huge coordinates below
        compiled.evaluate(*parameters, point_columns(X), point_columns(X), out)
    assert (np.abs(out) < 1e-290).all()


@by_family
@pytest.mark.parametrize("slopes", [False, True])
def test_rings_are_the_kernel_of_the_chord(kernel, slopes):
    """Pairs of latitudes at several differences in longitude, by the haversine formula, and by points."""
    first, second = (
        np.array([-90.0, -90.0, -30.0, 10.0, 10.0, 89.9]),
        np.array([-90.0, 90, 5, 10, 10.001, 90]),
    )
    turns = np.array([0.0, 1e-5, 0.25, 90.0, 180.0])
    phi, other = np.deg2rad(first), np.deg2rad(second)
    gap, girth = 4.0 * np.sin(0.5 * (phi - other)) ** 2, 4.0 * np.cos(phi) * np.cos(other)
    out = np.empty((5, 6))
    parameters = kernel.slope_parameters()[0] if slopes else kernel.parameters
    compiled.evaluate_rings(*parameters, gap, girth, np.sin(0.5 * np.deg2rad(turns)) ** 2, out)
    X, Z = unit_sphere(first, np.zeros(6)), [unit_sphere(second, np.full(6, turn)) for turn in turns]
    chord = np.stack([np.linalg.norm(X - points, axis=1) for points in Z])
    exact = (
        slope(kernel, chord)
        if slopes
        else kernel.variance * PROFILES[type(kernel).__name__](chord / kernel.lengthscale)
    )
    # chords of points carry the rounding of their coordinates, 2e-16
    np.testing.assert_allclose(out, exact, rtol=1e-12, atol=2e-15 * kernel.variance / kernel.lengthscale)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_rings_of_no_pairs_or_no_longitudes(shape):
    turns, pairs = shape
    out = np.empty(shape)
    compiled.evaluate_rings(*FAMILIES[1].parameters, np.zeros(pairs), np.zeros(pairs), np.zeros(turns), out)


@pytest.mark.parametrize(
    ("kernel", "transposed", "sizes"),
    by_turns(
        {
            "kernel": FAMILIES,
            "transposed": [False, True],
            "sizes": [
                (1, 1, 1, (128, 256)),
                (9, 14, 3, (4, 5)),
                (8, 10, 2, (4, 5)),
                (3, 4, 0, (2, 2)),
                (0, 4, 2, (2, 2)),
                (4, 0, 2, (2, 2)),
                (70, 140, 2, (64, 128)),
            ],
        }
    ),
)
def test_product_is_that_of_numpy_and_is_added(kernel, transposed, sizes):
    n, m, r, shape = sizes
    X, Z = points(n, 3), points(m, 3, seed=1)
    T = kernel_matrix(kernel, X, Z)
    T = T.T if transposed else T
    columns = np.random.default_rng(2).normal(size=(T.shape[1], r))
    start = np.random.default_rng(3).normal(size=(len(T), r))
    out = start.copy()
    compiled.add_product(
        *kernel.parameters, point_columns(X), point_columns(Z), NOT_STORED, transposed, columns, *shape, out
    )
    bound = 1e-13 * (np.abs(start) + np.abs(T) @ np.abs(columns))
    assert (np.abs(out - start - T @ columns) <= bound).all()


@pytest.mark.parametrize(
    ("kernel", "transposed", "shape"),
    pairwise({"kernel": FAMILIES, "transposed": [False, True], "shape": [(4, 5), (3, 11), (64, 128)]}),
)
def test_stored_and_fresh_tiles_give_the_same_bits(kernel, transposed, shape):
    X, Z = points(10, 2), points(21, 2, seed=1)
    columns = np.random.default_rng(2).normal(size=(10 if transposed else 21, 3))
    np.testing.assert_array_equal(
        product(
            kernel, X, Z, columns, shape=shape, transposed=transposed, stored=stored_tile(kernel, X, Z, shape)
        ),
        product(kernel, X, Z, columns, shape=shape, transposed=transposed),
    )


@pytest.mark.parametrize(
    ("kernel", "size"),
    by_turns({"kernel": FAMILIES, "size": [(5, 300), (260, 6), (30, 140), (1, 1), (0, 3), (3, 0)]}),
)
def test_product_with_one_column(kernel, size):
    n, m = size
    X, Z = points(n, 3), points(m, 3, seed=1)
    column, start = points(m, 1, seed=2)[:, 0], points(n, 1, seed=3)[:, 0]
    out = start.copy()
    compiled.add_product_vector(*kernel.parameters, point_columns(X), point_columns(Z), column, out)
    T = kernel_matrix(kernel, X, Z)
    assert (np.abs(out - start - T @ column) <= 1e-13 * (np.abs(start) + T @ np.abs(column))).all()


@pytest.mark.parametrize(
    ("kernel", "size"), by_turns({"kernel": FAMILIES, "size": [(1, 1), (140, 9), (7, 270), (0, 3), (3, 0)]})
)
def test_product_on_both_sides(kernel, size):
    n, m = size
    X, Z = points(n, 2), points(m, 2, seed=1)
    column_x, column_z = points(n, 1, seed=2)[:, 0], points(m, 1, seed=3)[:, 0]
    out_x, out_z = np.ones(n), np.ones(m)
    compiled.add_symmetric_product_vector(
        *kernel.parameters, point_columns(X), point_columns(Z), column_x, column_z, out_x, out_z
    )
    T = kernel_matrix(kernel, X, Z)
    assert (np.abs(out_x - 1.0 - T @ column_z) <= 1e-13 * (1.0 + T @ np.abs(column_z))).all()
    assert (np.abs(out_z - 1.0 - T.T @ column_x) <= 1e-13 * (1.0 + T.T @ np.abs(column_x))).all()


def clusters(per_cluster: int, distance: float, seed: int = 0) -> np.ndarray:
    """Two clumps of points ``distance`` apart."""
    X = 0.1 * points(2 * per_cluster, 2, seed=seed)
    X[per_cluster:, 0] += distance
    return X


@by_family
@pytest.mark.parametrize("factor", [0.9, 1.5])
def test_far_subtiles_are_left_out_below_rounding(kernel, factor):
    """Beyond the negligible distance the product changes by less than n 2^-60 variance."""
    distance = factor * compiled.kernel_reach(*kernel.parameters[:2])
    X, Z = clusters(4, distance), clusters(6, distance, seed=1)
    shape = (4, 6)
    tile = stored_tile(kernel, X, Z, shape)
    assert np.isnan(tile).any() == (factor > 1.0)  # sub-tiles between the clumps were not written
    columns = np.random.default_rng(2).uniform(-1.0, 1.0, size=(12, 2))
    out = product(kernel, X, Z, columns, shape=shape)
    T = kernel_matrix(kernel, X, Z)
    rounding = 1e-13 * (np.abs(T) @ np.abs(columns))
    assert (np.abs(out - T @ columns) <= rounding + 12 * 2.0**-60 * kernel.variance).all()
    np.testing.assert_array_equal(product(kernel, X, Z, columns, shape=shape, stored=tile), out)
    assert np.isfinite(product(kernel, X, Z, columns[:8], shape=shape, transposed=True, stored=tile)).all()


@by_family
def test_far_groups_are_left_out_of_products_with_one_column(kernel):
    distance = 2.0 * compiled.kernel_reach(*kernel.parameters[:2])
    X, Z = clusters(6, distance), clusters(8, distance, seed=1)
    column_x, column_z, T = points(12, 1)[:, 0], points(16, 1)[:, 0], kernel_matrix(kernel, X, Z)
    near, far, near_z, far_z = slice(0, 6), slice(6, 12), slice(0, 8), slice(8, 16)
    for rows, columns, together in ((near, near_z, True), (near, far_z, False), (far, near_z, False)):
        out, out_x, out_z = np.zeros(6), np.zeros(6), np.zeros(8)
        x, z = point_columns(X[rows]), point_columns(Z[columns])
        compiled.add_product_vector(*kernel.parameters, x, z, column_z[columns], out)
        compiled.add_symmetric_product_vector(
            *kernel.parameters, x, z, column_x[rows], column_z[columns], out_x, out_z
        )
        assert np.any(out) == np.any(out_x) == np.any(out_z) == together
        np.testing.assert_allclose(out, T[rows, columns] @ column_z[columns], rtol=1e-12, atol=1e-16)


@by_family
def test_huge_coordinates_make_neither_nan_nor_a_crash(kernel):
    X = np.array([[0.0, 0.0], [1e150, -1e150], [1e154, 1e154], [1e308, -1e308]])
    columns, tile = np.ones((4, 2)), np.empty((4, 4))
    with np.errstate(over="ignore"):  # NumPy scalars warn without compilation; infinity is meant
        out = product(kernel, X, X, columns, shape=(2, 2))
        compiled.evaluate(*kernel.parameters, point_columns(X), point_columns(X), tile)
    np.testing.assert_allclose(out, kernel.variance * columns, rtol=1e-15)
    assert tile.diagonal().tolist() == [kernel.variance] * 4
    assert (np.abs(tile - kernel.variance * np.eye(4)) < 1e-290).all()


@needs_compilation
@given(
    n=st.integers(1, 400),
    m=st.integers(1, 400),
    r=st.integers(1, 140),
    p=st.integers(1, 4),
    family=st.integers(0, 3),
    transposed=st.booleans(),
)
def test_products_of_any_shape(n, m, r, p, family, transposed):
    kernel = FAMILIES[family]
    X, Z = points(n, p), points(m, p, seed=1)
    T = kernel_matrix(kernel, X, Z)
    T = T.T if transposed else T
    columns = np.random.default_rng(n).normal(size=(T.shape[1], r))
    shape = subtile_shape(r)
    out = product(kernel, X, Z, columns, shape=shape, transposed=transposed)
    assert (np.abs(out - T @ columns) <= 1e-13 * (T @ np.abs(columns))).all()
    tile = stored_tile(kernel, X, Z, shape)
    again = product(kernel, X, Z, columns, shape=shape, transposed=transposed, stored=tile)
    np.testing.assert_array_equal(again, out)


@needs_compilation
@given(n=st.integers(1, 700), m=st.integers(1, 700), p=st.integers(1, 3), family=st.integers(0, 3))
def test_products_with_one_column_of_any_shape(n, m, p, family):
    kernel = FAMILIES[family]
    X, Z = points(n, p), points(m, p, seed=1)
    column_x, column_z, T = points(n, 1)[:, 0], points(m, 1)[:, 0], kernel_matrix(kernel, X, Z)
    out, out_x, out_z = np.zeros(n), np.zeros(n), np.zeros(m)
    x, z = point_columns(X), point_columns(Z)
    compiled.add_product_vector(*kernel.parameters, x, z, column_z, out)
    compiled.add_symmetric_product_vector(*kernel.parameters, x, z, column_x, column_z, out_x, out_z)
    bound = 1e-13 * (T @ np.abs(column_z))
    assert (np.abs(out - T @ column_z) <= bound).all()
    assert (np.abs(out_x - T @ column_z) <= bound).all()
    assert (np.abs(out_z - T.T @ column_x) <= 1e-13 * (T.T @ np.abs(column_x))).all()


@pytest.mark.parametrize(
    ("m", "r", "transposed"), pairwise({"m": [1, 2, 9, 20], "r": [1, 3], "transposed": [False, True]})
)
def test_triangles_times_columns_and_back(m, r, transposed):
    rng = np.random.default_rng([m, r])
    lower = np.tril(rng.normal(size=(3, m, m))) / m + 2.0 * np.eye(m)
    L = lower.transpose(0, 2, 1) if transposed else lower
    columns = rng.normal(size=(3, m, r))
    # what lies above the diagonal must not be read
    stored, out = lower + np.triu(np.full((m, m), np.nan), 1), columns.copy()
    triangles.multiply_small_lower(stored, out, transposed)
    np.testing.assert_allclose(out, L @ columns, rtol=1e-13, atol=1e-13)
    triangles.solve_small_lower(stored, out, transposed)
    np.testing.assert_allclose(out, columns, rtol=1e-12, atol=1e-13)


@needs_compilation
def test_products_release_the_interpreter():
    """Another thread works on while a product of about 0.2 s runs; on a busy machine at some time."""
    X, columns = points(6000, 3), np.ones((6000, 8))

    def turns():
        worker = threading.Thread(
            target=product, args=(FAMILIES[1], X, X, columns), kwargs={"shape": (128, 256)}
        )
        worker.start()
        counted = 0
        while worker.is_alive():
            time.sleep(0.002)
            counted += 1
        return counted

    assert any(turns() > 5 for _ in range(20))


def test_code_is_compiled_also_where_nothing_can_be_kept_on_disk(monkeypatch, caplog):
    def njit(*arguments, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return original(*arguments, **options)

    original = numba.njit
    monkeypatch.setattr(numba, "njit", njit)

    @compilation.compiled(nogil=True)
    def double(x):
        return 2 * x

    assert double(21) == 42
    assert "no locator available; set NUMBA_CACHE_DIR to a folder you can write to" in caplog.text


@needs_compilation
def test_compilation_is_announced_once_and_only_where_there_is_some():
    @numba.njit
    def half(x):
        return 0.5 * x

    said = []
    with compilation.compilation_watched(lambda: said.append("now")):
        assert half(2.0) == 1.0
        assert half(2) == 1.0  # compiled again, for an integer
    assert said == ["now"]
    with compilation.compilation_watched(lambda: said.append("again")):
        assert half(4.0) == 2.0
    half(np.float32(2.0))
    assert said == ["now"]


@needs_compilation
def test_compilation_is_refused_where_a_worker_only_loads():
    @numba.njit
    def third(x):
        return x / 3.0

    with compilation.no_compilation(), pytest.raises(compilation.NotKeptError):
        third(3.0)
    assert not third.signatures
    assert third(3.0) == 1.0
    with compilation.no_compilation():
        assert third(6.0) == 2.0


SHORT, LONG = KERNELS[1](lengthscale=0.1, variance=1.7), KERNELS[2](lengthscale=0.8, variance=0.6)
SUMS = [
    SHORT + LONG,
    LONG + SHORT + KERNELS[3](lengthscale=2.0, variance=0.2),
    KERNELS[2](lengthscale=(0.8, 0.3), variance=1.1),
    KERNELS[2](lengthscale=(0.8, 0.3), variance=1.1) + SHORT,
]
by_sum = pytest.mark.parametrize("kernel", SUMS, ids=["two", "three", "by coordinate", "by coordinate, two"])


@by_sum
@pytest.mark.parametrize(
    ("n", "m", "r", "shape", "transposed"), [(9, 14, 3, (4, 5), False), (30, 41, 2, (64, 128), True)]
)
def test_products_with_sums_are_those_of_numpy(kernel, n, m, r, shape, transposed):
    X, Z = points(n, 2), points(m, 2, seed=1)
    T = kernel_matrix(kernel, X, Z)
    T = T.T if transposed else T
    columns = np.random.default_rng(2).normal(size=(T.shape[1], r))
    out = product(kernel, X, Z, columns, shape=shape, transposed=transposed)
    assert (np.abs(out - T @ columns) <= 1e-13 * (np.abs(T) @ np.abs(columns)) + 1e-16).all()
    stored = stored_tile(kernel, X, Z, shape)
    again = product(kernel, X, Z, columns, shape=shape, transposed=transposed, stored=stored)
    np.testing.assert_array_equal(again, out)


@by_sum
def test_products_of_sums_with_one_column(kernel):
    X, Z = points(33, 2), points(140, 2, seed=1)
    column_x, column_z = points(33, 1, seed=2)[:, 0], points(140, 1, seed=3)[:, 0]
    T, arrays = kernel_matrix(kernel, X, Z), (point_columns(X), point_columns(Z))
    alone, out_x, out_z = np.zeros(33), np.zeros(33), np.zeros(140)
    compiled.add_product_vector(*kernel.parameters, *arrays, column_z, alone)
    compiled.add_symmetric_product_vector(*kernel.parameters, *arrays, column_x, column_z, out_x, out_z)
    for found, matrix, column in ((alone, T, column_z), (out_x, T, column_z), (out_z, T.T, column_x)):
        assert (np.abs(found - matrix @ column) <= 1e-13 * (matrix @ np.abs(column)) + 1e-16).all()


@by_sum
def test_small_sets_of_points_are_evaluated_as_each_alone(kernel):
    X, members = points(9, 2), np.array([[0, 3, 5], [8, 8, 1]])
    out = np.empty((2, 3, 3))
    compiled.evaluate_subsets(*kernel.parameters, point_columns(X), members, False, out)
    np.testing.assert_array_equal(out, [kernel(X[row], X[row]) for row in members])


@pytest.mark.parametrize("kernel", [*FAMILIES, Matern(0.8, 0.8, 1.7)], ids=repr)
def test_values_and_slopes_of_small_sets_at_once_are_those_of_each(kernel):
    """Up to rounding: one exponential serves both."""
    X, members = point_columns(points(14, 3)), np.array([np.arange(11), np.arange(13, 2, -1)])
    (slope,) = kernel.slope_parameters()
    expected, found = np.empty((2, 2, 11, 11)), np.empty((2, 2, 11, 11))
    for parameters, out in zip((kernel.parameters, slope), expected, strict=True):
        compiled.evaluate_subsets(*parameters, X, members, True, out)
    compiled.evaluate_subsets_and_slopes(*kernel.parameters, *slope, X, members, *found)
    lower = np.tril_indices(11)
    np.testing.assert_allclose(found[..., *lower], expected[..., *lower], rtol=1e-13, atol=1e-15)


@needs_compilation
def test_kernels_and_read_only_arrays_of_all_kinds_go_through_one_version():
    x, column, out = point_columns(points(5, 2)), points(5, 1)[:, 0].copy(), np.zeros(5)
    compiled.add_product_vector(*SHORT.parameters, x, x, column, out)
    versions = len(compiled.add_symmetric_product_vector.__wrapped__.signatures)
    x.flags.writeable = column.flags.writeable = False
    for kernel in (LONG, *SUMS):
        compiled.add_product_vector(*kernel.parameters, x, x, column, out)
    assert len(compiled.add_symmetric_product_vector.__wrapped__.signatures) == versions


def test_a_tile_that_is_not_contiguous_is_refused():
    x = point_columns(points(5, 2))
    with pytest.raises(ValueError, match="out is not C-contiguous; expected an array whose rows follow"):
        compiled.evaluate(*SHORT.parameters, x, x, np.empty((5, 10))[:, ::2])


def test_lengthscales_by_coordinate_are_refused_where_points_are_not_given():
    with pytest.raises(ValueError, match="a kernel that has a lengthscale for each coordinate"):
        compiled.evaluate_rings(*SUMS[2].parameters, np.zeros(1), np.zeros(1), np.zeros(1), np.empty((1, 1)))


def test_far_apart_a_sum_is_its_parts_that_reach_so_far():
    """Two clumps beyond the reach of the short part alone, then beyond that of both."""
    kernel = SHORT + LONG
    for distance, near in ((5.0, LONG), (40.0, None)):
        X, Z = clusters(4, distance), clusters(6, distance, seed=1)
        tile = stored_tile(kernel, X, Z, (4, 6)).reshape(2, 2, 4, 6)  # by sub-tile
        np.testing.assert_array_equal(tile[0, 0], kernel(X[:4], Z[:6]))
        if near is None:
            assert np.isnan(tile[0, 1]).all()
        else:
            np.testing.assert_array_equal(tile[0, 1], near(X[:4], Z[6:]))
            assert (np.abs(tile[0, 1] - kernel(X[:4], Z[6:])) < 2.0**-60 * kernel.variance).all()


def test_lengthscales_by_coordinate_decide_what_is_far():
    for lengthscale, left_out in (((0.1, 100.0), True), ((100.0, 0.1), False)):
        kernel = KERNELS[1](lengthscale)
        X, Z = clusters(4, 5.0), clusters(6, 5.0, seed=1)
        assert np.isnan(stored_tile(kernel, X, Z, (4, 6))).any() == left_out
        assert compiled.kernel_reach(*kernel.parameters[:2]) == pytest.approx(2630.0, rel=5e-3)


def block_case():
    """Points of a tile, s of each, edges of blocks on both sides; some blocks share a strip, one is cut."""
    X, Z = points(9, 3), points(621, 3, seed=1)
    rng = np.random.default_rng(3)
    edges = np.array([0, 2, 5, 9]), np.cumsum([0, 1, 3, 100, 150, 60, 300, 7])
    return X, Z, rng.normal(size=9), rng.normal(size=621), *edges


def indicator(values, edges):
    """Entries of blocks as columns."""
    dense = np.zeros((len(values), len(edges) - 1))
    dense[np.arange(len(values)), np.repeat(np.arange(len(edges) - 1), np.diff(edges))] = values
    return dense


@pytest.mark.parametrize(
    "form", [SHORT, SHORT + LONG, KERNELS[1]((0.7, 1.3, 0.9), 1.7)], ids=["one", "sum", "by coordinate"]
)
def test_sums_over_blocks_are_products(form):
    X, Z, x_values, z_values, x_edges, z_edges = block_case()
    K = form(X, Z)
    out, mirrored = np.ones((9, 7)), np.ones((3, 621))
    given = point_columns(X), point_columns(Z), x_values, x_edges, z_values, z_edges
    compiled.add_block_products(*form.parameters, *given, out, mirrored)
    np.testing.assert_allclose(out, 1.0 + K @ indicator(z_values, z_edges), rtol=1e-12)
    np.testing.assert_allclose(mirrored, 1.0 + indicator(x_values, x_edges).T @ K, rtol=1e-12)
    again = np.ones((9, 7))
    compiled.add_block_products(*form.parameters, *given, again, np.empty((0, 621)))
    np.testing.assert_array_equal(again, out)


@pytest.mark.parametrize("kernel_class", KERNELS)
@pytest.mark.parametrize("both", [True, False])
def test_sums_over_blocks_are_differentiated(kernel_class, both):
    X, Z, x_values, z_values, x_edges, z_edges = block_case()
    weights = np.random.default_rng(4).normal(size=(9, 7))
    mirrored = np.random.default_rng(5).normal(size=(3, 621)) if both else np.empty((0, 621))
    expand = weights @ indicator(np.ones(621), z_edges).T
    across = indicator(np.ones(9), x_edges) @ mirrored if both else np.zeros((9, 621))
    W = expand * z_values + across * x_values[:, None]
    numbers = np.log([0.7, 1.3, 0.9, 2.1])

    def kernel(numbers):
        return kernel_class(tuple(np.exp(numbers[:3]).tolist()), float(np.exp(numbers[3])))(X, Z)

    step = 1e-5
    expected = [
        np.vdot(W, kernel(numbers + step * e) - kernel(numbers - step * e)) / (2.0 * step) for e in np.eye(4)
    ]
    by_parameter, by_x_value, by_z_value = np.zeros((1, 4)), np.zeros(9), np.zeros(621)
    compiled.add_block_gradients(
        *profiles(kernel_class),
        np.exp(-numbers[None, :3]),
        np.exp(numbers[3:]),
        point_columns(X),
        point_columns(Z),
        x_values,
        x_edges,
        z_values,
        z_edges,
        weights,
        mirrored,
        by_parameter,
        by_x_value,
        by_z_value,
    )
    np.testing.assert_allclose(by_parameter[0], expected, rtol=1e-6)
    K = kernel(numbers)
    np.testing.assert_allclose(by_z_value, (K * expand).sum(axis=0), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(by_x_value, (K * across).sum(axis=1), rtol=1e-10, atol=1e-12)


def test_rings_of_a_sum_are_the_sum_of_rings():
    gap, girth, turn = np.array([0.0, 0.3, 1.0]), np.array([1.0, 0.5, 0.1]), np.linspace(0.0, 1.0, 5)
    tables = np.zeros((3, 5, 3))
    for table, kernel in zip(tables, (SHORT + LONG, SHORT, LONG), strict=True):
        compiled.evaluate_rings(*kernel.parameters, gap, girth, turn, table)
    np.testing.assert_array_equal(tables[0], tables[1] + tables[2])


@pytest.mark.parametrize("kernel_class", KERNELS)
def test_pairs_are_differentiated_by_kernel_and_points(kernel_class):
    """Of ``<W, k(X, Z)>``, against differences; 300 columns are more than are taken at a time."""
    X, Z = points(3, 2), points(300, 2, seed=1)
    W = np.random.default_rng(2).normal(size=(3, 300))
    numbers = np.log([0.7, 1.3, 2.1])

    def value(numbers, X):
        kernel = kernel_class(tuple(np.exp(numbers[:2]).tolist()), float(np.exp(numbers[2])))
        return float(np.vdot(W, kernel_matrix(kernel, X, Z)))

    scales, variance = np.exp(-numbers[None, :2]), np.exp(numbers[2:])
    by_kernel, by_point = np.zeros((1, 3)), np.zeros((2, 3))
    given = *profiles(kernel_class), scales, variance, point_columns(X), point_columns(Z), W
    compiled.add_pair_gradients(*given, by_kernel, by_point)
    step = 1e-5
    expected = [
        (value(numbers + step * e, X) - value(numbers - step * e, X)) / (2.0 * step) for e in np.eye(3)
    ]
    np.testing.assert_allclose(by_kernel[0], expected, rtol=1e-7, atol=1e-8)
    for c, i in np.ndindex(2, 3):
        move = np.zeros_like(X)
        move[i, c] = step
        slope = (value(numbers, X + move) - value(numbers, X - move)) / (2.0 * step)
        assert by_point[c, i] == pytest.approx(slope, rel=1e-6, abs=1e-8)
    again, nothing = np.zeros((1, 3)), np.zeros((2, 0))
    compiled.add_pair_gradients(*given, again, nothing)
    np.testing.assert_array_equal(again, by_kernel)


@pytest.mark.parametrize("kernel_class", KERNELS)
def test_pairs_of_points_that_coincide_have_no_slope(kernel_class):
    """Also where the kernel has a kink; nor have those that are beyond all reach."""
    X = np.array([[0.5], [1e9]]).T
    by_kernel, by_point = np.zeros((1, 2)), np.zeros((1, 2))
    families, one = profiles(kernel_class), np.ones(1)
    compiled.add_pair_gradients(*families, one[None], one, X, X, np.ones((2, 2)), by_kernel, by_point)
    np.testing.assert_allclose(by_kernel, [[0.0, 2.0]], atol=1e-250)
    np.testing.assert_allclose(by_point, 0.0, atol=1e-250)
