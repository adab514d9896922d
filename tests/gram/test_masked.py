"""Grids with missing points: the part of the dense matrix that was observed, and how fast it is solved."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.runtime import SerialExecutor

from ..grids import GridProblem, grid_problem
from ..oracle import assert_close, kernel_matrix
from ..pairwise import pairwise

pytestmark = pytest.mark.usefixtures("one_blas_thread")

NAMES = [
    "poles, even Q",
    "poles, odd Q, even P, descending",
    "irregular, with noise by latitude",
    "one latitude",
    "one longitude",
    "one point",
]


def scattered(shape, share, *, seed=0):
    return np.random.default_rng(seed).uniform(size=shape) >= share


def continent(shape, share):
    """A rectangle across the date line that leaves out about a share of the points."""
    P, Q = shape
    observed = np.ones(shape, dtype=bool)
    height, width = round(P * np.sqrt(share)), round(Q * np.sqrt(share))
    rows = slice(P // 4, P // 4 + height)
    observed[rows, :width] = False
    return np.roll(observed, -width // 2, axis=1)


def only_the_first(shape):
    observed = np.zeros(shape, dtype=bool)
    observed[0, 0] = True
    return observed


def without_a_row(shape):
    observed = np.ones(shape, dtype=bool)
    observed[shape[0] // 2 :] = shape[0] == 1
    return observed


MASKS = {
    "whole": lambda shape: np.ones(shape, dtype=bool),
    "scattered": lambda shape: scattered(shape, 0.3) | only_the_first(shape),
    "continent": lambda shape: continent(shape, 0.2) | only_the_first(shape),
    "one point": only_the_first,
    "without rows": without_a_row,
}
every_case = pytest.mark.parametrize(("name", "mask"), [(name, mask) for name in NAMES for mask in MASKS])


def masked_problem(name, mask) -> tuple[GridProblem, cagp.MaskedRings, np.ndarray]:
    problem = grid_problem(name)
    observed = MASKS[mask](problem.grid.shape)
    there = np.flatnonzero(observed)
    return problem, cagp.MaskedRings(problem.rings, observed), problem.G[np.ix_(there, there)]


def columns_for(G, *shape, seed=0):
    return np.random.default_rng([seed, len(G)]).normal(size=(len(G), *shape))


@every_case
def test_product_and_diagonal_are_those_of_the_observed_points(name, mask):
    problem, masked, G = masked_problem(name, mask)
    n = len(G)
    assert masked.shape == (n, n)
    np.testing.assert_allclose(masked.X, problem.points[masked.observed.ravel()], rtol=0.0, atol=1e-14)
    np.testing.assert_allclose(masked.diagonal(), np.diag(G), rtol=1e-15)
    np.testing.assert_array_equal(masked.noise_variance, problem.noise[masked.observed.ravel()])
    assert masked.kernel == problem.kernel
    for shape in ((), (1,), (4,), (0,)):
        v = columns_for(G, *shape)
        product = masked @ v
        assert product.shape == v.shape
        np.testing.assert_allclose(product, G @ v, rtol=0.0, atol=1e-13 * np.abs(G).sum(axis=0).max())


@pytest.mark.parametrize(
    ("name", "mask", "preconditioned"),
    pairwise({"name": NAMES, "mask": list(MASKS), "preconditioned": [True, False]}),
)
def test_solve_is_that_of_the_dense_matrix(name, mask, preconditioned):
    _, masked, G = masked_problem(name, mask)
    for shape in ((), (1,), (3,), (0,)):
        b = columns_for(G, *shape)
        solution = masked.solution(b, tolerance=1e-11, preconditioned=preconditioned)
        assert solution.ok
        # |v - v*| <= |G^-1| |r|, and conditions are below 1e4
        expected = np.linalg.solve(G, b)
        assert_close(solution.value.T.reshape(b.shape), expected, relative=1e-7)
        solved = masked.solve(b, tolerance=1e-11)
        assert solved.shape == b.shape
        assert_close(solved, expected, relative=1e-7)


@every_case
def test_the_residual_that_is_stated_is_the_true_one(name, mask):
    _, masked, G = masked_problem(name, mask)
    b = columns_for(G, 3)
    for tolerance in (1e-2, 1e-6, 1e-11):
        solution = masked.solution(b, tolerance=tolerance)
        true = np.linalg.norm(b - G @ solution.value.T, axis=0) / np.linalg.norm(b, axis=0)
        np.testing.assert_allclose(solution.relative_residual, true, rtol=1e-2, atol=1e-13)
        assert (true <= 1.1 * tolerance).all()
        assert solution.tolerance == tolerance


@pytest.mark.parametrize("missing", [0, 1, 2, 5])
@pytest.mark.parametrize("name", ["poles, even Q", "irregular, with noise by latitude"])
def test_as_many_products_as_missing_points_and_one_more(name, missing):
    """The preconditioner differs from the inverse by a matrix of that rank (math 7)."""
    problem = grid_problem(name)
    observed = np.ones(problem.grid.shape, dtype=bool)
    observed.flat[np.random.default_rng(missing).choice(problem.n, missing, replace=False)] = False
    masked = cagp.MaskedRings(problem.rings, observed)
    b = columns_for(np.empty(masked.shape))
    assert masked.solution(b, tolerance=1e-9).products <= missing + 1


def test_copies_of_a_pole_are_not_missing_points():
    """A pole that was observed once takes no products more than a complete row."""
    problem = grid_problem("poles, even Q")
    observed = np.ones(problem.grid.shape, dtype=bool)
    observed[[0, -1]] = False
    observed[0, 5] = observed[-1, 0] = True
    masked = cagp.MaskedRings(problem.rings, observed)
    there = np.flatnonzero(observed)
    b = columns_for(np.empty(masked.shape), 3)
    solution = masked.solution(b, tolerance=1e-9)
    assert solution.products == 1
    assert_close(solution.value.T, np.linalg.solve(problem.G[np.ix_(there, there)], b), relative=1e-8)


@pytest.fixture(scope="module")
def wide():
    """30 x 60 points, lengthscale and noise such that plain iterations are many."""
    grid = cagp.LatLonGrid(np.linspace(-87.0, 87.0, 30), 60)
    return cagp.RingGram(grid, cagp.Matern32(0.2), noise_variance=0.02, executor=SerialExecutor())


def products(rings, observed, *, preconditioned):
    masked = cagp.MaskedRings(rings, observed)
    b = (rings.sample(np.random.default_rng(0), noise=True))[observed]
    solution = masked.solution(b, tolerance=1e-8, preconditioned=preconditioned)
    assert solution.ok
    return solution.products


def test_a_missing_continent_takes_few_products(wide):
    observed = continent(wide.grid.shape, 0.2)
    assert 0.17 < 1.0 - observed.mean() < 0.23
    plain = products(wide, observed, preconditioned=False)
    assert products(wide, observed, preconditioned=True) <= min(60, plain // 5)


def test_scattered_missing_points_take_half_the_products_of_plain_iterations(wide):
    observed = scattered(wide.grid.shape, 0.2)
    plain = products(wide, observed, preconditioned=False)
    assert products(wide, observed, preconditioned=True) <= plain // 2


def test_columns_are_solved_together_as_well_as_alone():
    """Easy, hard and vanishing columns: none is held up or spoilt by another."""
    _, masked, G = masked_problem("poles, even Q", "scattered")
    b = columns_for(G, 4)
    b[:, 1] = 0.0
    b[:, 2] *= 1e-150
    b[:, 3] = np.linalg.eigh(G)[1][:, -1]
    together = masked.solve(b, tolerance=1e-10)
    for j in range(4):
        alone = masked.solve(b[:, j], tolerance=1e-10)
        np.testing.assert_allclose(together[:, j], alone, rtol=0.0, atol=1e-8 * np.abs(alone).max())
    assert (together[:, 1] == 0.0).all()


def test_nothing_to_solve_takes_no_product():
    _, masked, G = masked_problem("poles, even Q", "scattered")
    solution = masked.solution(np.zeros((len(G), 2)))
    assert solution.ok
    assert solution.products == 0
    assert (solution.value == 0.0).all()
    assert (solution.relative_residual == 0.0).all()


def test_the_last_product_that_is_allowed_is_the_last():
    _, masked, G = masked_problem("poles, even Q", "scattered")
    b = columns_for(G)
    residuals = [masked.solution(b, iterations=i, tolerance=1e-12).relative_residual[0] for i in (1, 2, 4, 8)]
    assert residuals == sorted(residuals, reverse=True)
    solution = masked.solution(b, iterations=2, tolerance=1e-12)
    assert solution.products == 2
    assert not solution.ok


def test_a_tolerance_that_is_not_reached_is_an_error_with_advice():
    _, masked, G = masked_problem("poles, even Q", "scattered")
    with pytest.raises(
        NumericalError,
        match=r"after \d+ products the largest relative residual is .*; asked for was 1e-17. Loosen the "
        r"tolerance, raise noise_variance, or use cagp_dist.condition",
    ):
        masked.solve(columns_for(G), tolerance=1e-17)


def test_embedding_and_restriction_are_adjoint():
    _, masked, G = masked_problem("irregular, with noise by latitude", "scattered")
    values, fields = columns_for(G, 2).T, masked.rings.sample(np.random.default_rng(0), fields=2)
    embedded = masked.layout.embed(values)
    assert embedded.shape == fields.shape
    assert (embedded[:, ~masked.observed] == 0.0).all()
    np.testing.assert_array_equal(embedded[:, masked.observed], values)
    np.testing.assert_array_equal(masked.layout.restrict(fields), fields[:, masked.observed])
    assert (embedded * fields).sum() == pytest.approx(
        (values * masked.layout.restrict(fields)).sum(), rel=1e-13
    )


def test_the_mask_is_the_callers_own():
    problem = grid_problem()
    observed = scattered(problem.grid.shape, 0.3)
    masked = cagp.MaskedRings(problem.rings, observed)
    there = observed.copy()
    observed[:] = True
    np.testing.assert_array_equal(masked.observed, there)
    assert masked.shape[0] == there.sum()


@given(bits=st.integers(1, 2**20 - 1), tolerance=st.sampled_from([1e-4, 1e-8]))
def test_any_mask(bits, tolerance):
    """Whatever is missing of a 4 x 5 grid."""
    grid = cagp.LatLonGrid([-40.0, -10.0, 20.0, 90.0], 5)
    rings = cagp.RingGram(grid, cagp.Matern52(0.7), noise_variance=0.05, executor=SerialExecutor())
    observed = np.array([bool(bits >> i & 1) for i in range(20)]).reshape(4, 5)
    masked = cagp.MaskedRings(rings, observed)
    there = observed.ravel()
    G = kernel_matrix(rings.kernel, rings.X[there], rings.X[there]) + 0.05 * np.eye(int(there.sum()))
    b = columns_for(G)
    np.testing.assert_allclose(masked @ b, G @ b, rtol=0.0, atol=1e-13 * np.abs(G).sum())
    assert np.linalg.norm(b - G @ masked.solve(b, tolerance=tolerance)) <= 1.11 * tolerance * np.linalg.norm(
        b
    )


@pytest.mark.parametrize(
    ("observed", "text"),
    [
        (np.ones((12, 9), dtype=bool), "observed has shape (12, 9) and type bool; expected (9, 12) of bool"),
        (
            np.ones((9, 12)),
            "observed has shape (9, 12) and type float64; expected (9, 12) of bool, True where",
        ),
        (np.arange(108).reshape(9, 12), "and type int64; expected (9, 12) of bool"),
        (np.ones(108, dtype=bool), "observed has shape (108,) and type bool"),
        (True, "observed has shape () and type bool"),
        (np.zeros((9, 12), dtype=bool), "observed is False everywhere: nothing was observed; expected at"),
    ],
)
def test_masks_that_are_none_are_refused(observed, text):
    with pytest.raises(ArgumentError, match=re.escape(text)):
        cagp.MaskedRings(grid_problem().rings, observed)


def test_what_is_no_ring_gram_is_refused():
    with pytest.raises(ArgumentError, match=r"rings is a LatLonGrid; expected a cagp_dist.RingGram"):
        cagp.MaskedRings(grid_problem().grid, np.ones((9, 12), dtype=bool))


@pytest.mark.parametrize("method", ["__matmul__", "solve", "solution"])
def test_columns_of_another_shape_or_not_finite_are_refused(method):
    _, masked, G = masked_problem("poles, even Q", "scattered")
    n, use = len(G), getattr(masked, method)
    for shape in ((), (n - 1,), (108,), (9, 12), (n, 2, 2)):
        text = re.escape(
            f"columns has shape {shape}; expected ({n},) or ({n}, r), an entry for each observed"
        )
        with pytest.raises(ArgumentError, match=text):
            use(np.zeros(shape))
    b = np.zeros(n)
    b[3] = np.nan
    with pytest.raises(
        ArgumentError, match=r"columns holds NaN or infinite values \(1 of \d+\); mark those points as not"
    ):
        use(b)
    with pytest.raises(ArgumentError, match=r"columns is not numeric"):
        use(np.full(n, 1j))


@pytest.mark.parametrize("tolerance", [0.0, 1.0, -1e-8, 2.0, np.nan, np.inf])
def test_tolerances_that_mean_nothing_are_refused(tolerance):
    _, masked, G = masked_problem("poles, even Q", "scattered")
    with pytest.raises(ArgumentError, match=r"tolerance is .*; expected a number between 0 and 1"):
        masked.solve(columns_for(G), tolerance=tolerance)


@pytest.mark.parametrize("iterations", [0, -1, 1.5, True])
def test_iterations_that_are_no_count_are_refused(iterations):
    _, masked, G = masked_problem("poles, even Q", "scattered")
    with pytest.raises(ArgumentError, match=r"iterations is .*; expected an integer of at least 1"):
        masked.solution(columns_for(G), iterations=iterations)


@pytest.mark.parametrize("fields", [None, 3])
def test_posterior_mean_fills_the_gaps(fields):
    grid = cagp.LatLonGrid(np.linspace(-75.0, 75.0, 7), 10)
    kernel = cagp.Matern32(0.5, 2.0)
    observed = np.ones(grid.shape, dtype=bool)
    observed[2:4, 3:6] = False
    shape = grid.shape if fields is None else (fields, *grid.shape)
    y = np.random.default_rng(0).standard_normal(shape)
    X = grid.points[observed.ravel()]
    G = kernel_matrix(kernel, X, X) + 0.1 * np.eye(len(X))
    expected = kernel_matrix(kernel, grid.points, X) @ np.linalg.solve(G, y[..., observed].T)
    masked = cagp.MaskedRings(cagp.RingGram(grid, kernel, noise_variance=0.1), observed)
    weights = masked.solve(y[..., observed].reshape(-1, len(X)).T, tolerance=1e-12)
    by_weights = masked.cross(grid, weights, executor=SerialExecutor())
    assert_close(by_weights.T.reshape(shape), expected.T.reshape(shape), relative=1e-10)
    field = np.where(observed, y, np.nan)
    posterior = cagp.condition(cagp.Prior(kernel, 0.1), grid, field, grid, solver=cagp.Rings())
    assert posterior.mean.shape == shape
    assert_close(posterior.mean, expected.T.reshape(shape), relative=1e-10)


def test_a_masked_gram_stays_what_it_is():
    grid = cagp.LatLonGrid([-30.0, 0.0, 30.0], 4)
    masked = cagp.MaskedRings(
        cagp.RingGram(grid, cagp.Matern32(0.5), noise_variance=0.1), np.ones(grid.shape, dtype=bool)
    )
    with pytest.raises(ArgumentError, match=r"y has shape \(12,\); expected \(3, 4\) .*, or T such"):
        cagp.condition(cagp.Prior(masked.kernel, 0.1), grid, np.ones(12), grid, solver=cagp.Rings())
    for name in ("rings", "observed", "layout", "X", "noise_variance"):
        with pytest.raises(AttributeError):
            setattr(masked, name, None)
