"""The dense Gram matrix: solves, leave-one-out, its condition, and what happens where that is bad."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import NumericalError
from cagp_dist.gram.dense import cholesky_lower
from cagp_dist.gram.leave_one_out import from_others
from cagp_dist.runtime import SerialExecutor

from ..joined import one_after_another
from ..oracle import KERNELS


@pytest.fixture(scope="module")
def gram():
    X = np.random.default_rng(0).uniform(size=(80, 2))
    return cagp.DenseGram(cagp.Matern52(lengthscale=0.3), X, noise_variance=np.full(80, 0.05))


@pytest.mark.parametrize("shape", [(80,), (80, 1), (80, 5)])
def test_solve_inverts_the_product(gram, shape):
    v = np.random.default_rng(1).normal(size=shape)
    np.testing.assert_allclose(gram.solve(gram @ v), v, rtol=1e-10, atol=1e-11)


def test_half_solve_squares_to_the_inverse(gram):
    v = np.random.default_rng(1).normal(size=(80, 4))
    half = gram.half_solve(v)
    np.testing.assert_allclose(half.T @ half, v.T @ np.linalg.solve(gram @ np.eye(80), v), rtol=1e-11)


def test_factor_is_lower_in_fortran_order_and_leaves_the_matrix_alone():
    matrix = np.array([[4.0, 2.0], [2.0, 3.0]])
    factor = cholesky_lower(matrix)
    np.testing.assert_allclose(factor, [[2.0, 0.0], [1.0, np.sqrt(2.0)]])
    assert factor.flags.f_contiguous
    assert matrix.tolist() == [[4.0, 2.0], [2.0, 3.0]]


def test_a_matrix_that_is_not_positive_definite_is_an_error_with_advice():
    with pytest.raises(NumericalError) as refused:
        cholesky_lower(np.array([[1.0, 2.0], [2.0, 1.0]]))
    assert refused.value.key == "not-positive-definite"
    X = np.zeros((5, 1))
    gram = cagp.DenseGram(cagp.Matern32(1.0), X, noise_variance=np.zeros(5))
    with pytest.raises(NumericalError) as refused:
        gram.solve(np.ones(5))
    assert refused.value.key == "not-positive-definite"


@pytest.mark.parametrize("fields", [(), (3,)])
def test_leave_one_out_is_what_is_predicted_without_the_point(gram, fields):
    """Against 80 predictions from 79 points each."""
    b = np.random.default_rng(2).normal(size=(80, *fields))
    G = gram @ np.eye(80)
    K = G - 0.05 * np.eye(80)
    precision = gram.inverse_diagonal().reshape(-1, *(1 for _ in fields))
    mean, variance = from_others(b, gram.solve(b), precision)
    assert mean.shape == b.shape
    for i in range(80):
        rest = np.delete(np.arange(80), i)
        weights = np.linalg.solve(G[np.ix_(rest, rest)], K[rest, i])
        np.testing.assert_allclose(mean[i], weights @ b[rest], rtol=1e-9, atol=1e-11)
        assert variance[i].item() == pytest.approx(G[i, i] - weights @ K[rest, i], rel=1e-10)


def test_inverse_diagonal_is_that_of_the_inverse(gram):
    expected = np.diag(np.linalg.inv(gram @ np.eye(80)))
    np.testing.assert_allclose(gram.inverse_diagonal(), expected, rtol=1e-10)


@one_after_another
@pytest.mark.parametrize("noise", [1.0, 1e-4, 1e-9])
@pytest.mark.parametrize("kernel_class", KERNELS)
def test_condition_number_is_that_of_the_1_norm(kernel_class, noise):
    X = np.random.default_rng(0).uniform(size=(120, 2))
    gram = cagp.DenseGram(kernel_class(0.4, variance=2.0), X, noise_variance=np.full(120, noise))
    expected = np.linalg.cond(gram @ np.eye(120), 1)
    assert expected / 10.0 < gram.condition_number < 10.0 * expected
    assert gram.exact(executor=SerialExecutor()).condition_number == gram.condition_number


def test_condition_numbers_of_small_matrices():
    one = cagp.DenseGram(cagp.Matern32(1.0), np.zeros((1, 1)), noise_variance=np.ones(1))
    assert one.condition_number == pytest.approx(1.0, rel=1e-15)
    alone = cagp.DenseGram(
        cagp.Matern12(1e-3), np.arange(3.0).reshape(-1, 1), noise_variance=np.array([0.0, 1.0, 9.0])
    )
    assert alone.condition_number == pytest.approx(10.0, rel=1e-12)


def test_the_condition_number_of_a_large_matrix_is_the_same(monkeypatch):
    """Beyond the size that LAPACK factors as a whole the factor is laid out by rows."""
    X = np.random.default_rng(0).uniform(size=(120, 2))
    settings = {"noise_variance": np.full(120, 1e-3)}
    small = cagp.DenseGram(cagp.Matern32(0.4), X, **settings)
    expected = small.condition_number
    monkeypatch.setattr("cagp_dist.gram.dense.LARGEST_WHOLE", 64)
    large = cagp.DenseGram(cagp.Matern32(0.4), X, **settings)
    assert large.factor.flags.c_contiguous
    assert small.factor.flags.f_contiguous
    assert large.condition_number == pytest.approx(expected, rel=1e-9)
    np.testing.assert_array_equal(np.triu(large.factor, 1), 0.0)
    np.testing.assert_allclose(large.factor, small.factor, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("large", [False, True])
def test_matrix_factor_and_condition_number_take_two_matrices(large, monkeypatch, traced):
    """The 16 n^2 bytes that `Cholesky` states."""
    n = 600
    if large:
        monkeypatch.setattr("cagp_dist.gram.dense.LARGEST_WHOLE", 64)
    X = np.random.default_rng(0).uniform(size=(n, 2))
    gram = cagp.DenseGram(cagp.Matern32(0.4), X, noise_variance=np.full(n, 1e-3))
    _, peak = traced(lambda: gram.condition_number)
    assert peak < 1.5 * 8 * n**2  # the factor, beside the matrix that was there


def exact_on_a_line(kernel, noise):
    X = np.linspace(0.0, 1.0, 60).reshape(-1, 1)
    prior = cagp.Prior(kernel, noise_variance=noise)
    return cagp.condition(
        prior, X, np.sin(6.0 * X[:, 0]), [[0.505]], solver=cagp.Cholesky(), executor=SerialExecutor()
    )


def test_a_solve_that_lost_its_digits_is_not_called_exact():
    """Condition number 6e15: errors of many of the stated standard deviations."""
    posterior = exact_on_a_line(cagp.SquaredExponential(0.5), 1e-14)
    assert posterior.status is cagp.Status.ILL_CONDITIONED
    assert not posterior.status.ok
    assert "Raise noise_variance, or thin points" in posterior.status.advice
    for kernel, noise in ((cagp.SquaredExponential(0.5), 1e-6), (cagp.Matern32(0.5), 1e-4)):
        ordinary = exact_on_a_line(kernel, noise)
        assert ordinary.status is cagp.Status.EXACT
        assert ordinary.status.ok


@pytest.mark.parametrize(
    ("lengthscale", "noise", "status"),
    [(5.0, 1e-14, "ill-conditioned"), (5.0, 1e-6, "exact"), (3.0, 1e-13, "exact")],
)
def test_a_solve_on_a_grid_that_lost_its_digits_is_not_called_exact(lengthscale, noise, status):
    """The last one would be blamed by a bound: the smallest eigenvalue is far above the noise."""
    grid = cagp.LatLonGrid([-40.0, -10.0, 20.0, 50.0], 6)
    prior = cagp.Prior(cagp.SquaredExponential(lengthscale), noise_variance=noise)
    G = prior.kernel(grid.points, grid.points) + noise * np.eye(grid.size)
    assert (np.linalg.cond(G, 1) > 1e13) == (status == "ill-conditioned")
    field = grid.points[:, 2].reshape(grid.shape)
    posterior = cagp.condition(prior, grid, field, grid, solver=cagp.Rings(), executor=SerialExecutor())
    assert posterior.status.value == status
