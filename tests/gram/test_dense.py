"""The dense Gram matrix: solves, and the error when it is not positive definite."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import NumericalError
from cagp_dist.gram.dense import cholesky_lower


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
    with pytest.raises(
        NumericalError, match=r"a 2 x 2 block .* not positive definite .* raise noise_variance"
    ):
        cholesky_lower(np.array([[1.0, 2.0], [2.0, 1.0]]))
    X = np.zeros((5, 1))
    gram = cagp.DenseGram(cagp.Matern32(1.0), X, noise_variance=np.zeros(5))
    with pytest.raises(NumericalError, match=r"5 x 5 block of the Gram matrix .* or thin the points"):
        gram.solve(np.ones(5))
