"""Grids with missing points: the part of the dense matrix that was observed, and how fast it is solved."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.runtime import SerialExecutor

from ..grids import GridProblem, grid_problem
from ..joined import one_after_another
from ..oracle import assert_close, kernel_matrix

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


@one_after_another
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


@one_after_another
@every_case
def test_solve_is_that_of_the_dense_matrix(name, mask):
    _, masked, G = masked_problem(name, mask)
    exact = masked.exact(executor=SerialExecutor())
    b = columns_for(G, 3)
    # |v - v*| <= |G^-1| |r|, and conditions are below 1e4
    assert_close(exact.weights(b), np.linalg.solve(G, b), relative=1e-9)
    assert_close(exact.inverse_diagonal(), np.diag(np.linalg.inv(G)), relative=1e-9)
    assert exact.logdet() == pytest.approx(np.linalg.slogdet(G)[1], rel=1e-9, abs=1e-9)


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


@given(bits=st.integers(1, 2**20 - 1))
def test_any_mask(bits):
    """Whatever is missing of a 4 x 5 grid."""
    grid = cagp.LatLonGrid([-40.0, -10.0, 20.0, 90.0], 5)
    rings = cagp.RingGram(grid, cagp.Matern52(0.7), noise_variance=0.05, executor=SerialExecutor())
    observed = np.array([bool(bits >> i & 1) for i in range(20)]).reshape(4, 5)
    masked = cagp.MaskedRings(rings, observed)
    there = observed.ravel()
    G = kernel_matrix(rings.kernel, rings.X[there], rings.X[there]) + 0.05 * np.eye(int(there.sum()))
    b = columns_for(G)
    np.testing.assert_allclose(masked @ b, G @ b, rtol=0.0, atol=1e-13 * np.abs(G).sum())
    weights = masked.exact(executor=SerialExecutor()).weights(b[:, None])[:, 0]
    assert np.linalg.norm(b - G @ weights) <= 1e-10 * np.linalg.norm(b)


@one_after_another
@pytest.mark.parametrize(
    ("observed", "key"),
    [
        (np.ones((12, 9), dtype=bool), "shapes"),
        (
            np.ones((9, 12)),
            "shapes",
        ),
        (np.arange(108).reshape(9, 12), "shapes"),
        (np.ones(108, dtype=bool), "shapes"),
        (True, "shapes"),
        (np.zeros((9, 12), dtype=bool), "nothing-observed"),
    ],
)
def test_masks_that_are_none_are_refused(observed, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.MaskedRings(grid_problem().rings, observed)
    assert refusal.value.key == key


def test_what_is_no_ring_gram_is_refused():
    with pytest.raises(ArgumentError) as refusal:
        cagp.MaskedRings(grid_problem().grid, np.ones((9, 12), dtype=bool))
    assert refusal.value.key == "grid-type"


def test_columns_of_another_shape_or_not_finite_are_refused():
    _, masked, G = masked_problem("poles, even Q", "scattered")
    n, use = len(G), masked.__matmul__
    for shape in ((), (n - 1,), (108,), (9, 12), (n, 2, 2)):
        text = re.escape(
            f"columns has shape {shape}; expected ({n},) or ({n}, r), an entry for each observed"
        )
        with pytest.raises(ArgumentError, match=text):
            use(np.zeros(shape))
    b = np.zeros(n)
    b[3] = np.nan
    with pytest.raises(ArgumentError) as refusal:
        use(b)
    assert refusal.value.key == "not-finite"
    with pytest.raises(ArgumentError) as refusal:
        use(np.full(n, 1j))
    assert refusal.value.key == "no-numbers"


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
    weights = masked.exact(executor=SerialExecutor()).weights(y[..., observed].reshape(-1, len(X)).T)
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
    with pytest.raises(ArgumentError) as refusal:
        cagp.condition(cagp.Prior(masked.kernel, 0.1), grid, np.ones(12), grid, solver=cagp.Rings())
    assert refusal.value.key == "shapes"
    for name in ("rings", "observed", "layout", "X", "noise_variance"):
        with pytest.raises(AttributeError):
            setattr(masked, name, None)
