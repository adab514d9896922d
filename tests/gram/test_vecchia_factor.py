"""Vecchia's factor: the inverse and its determinant with all points before (T43), near them with a few."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import NumericalError
from cagp_dist.gram.vecchia_factor import vecchia_factor
from cagp_dist.runtime import SerialExecutor, ThreadExecutor

from ..oracle import assert_close, kernel_matrix

pytestmark = pytest.mark.usefixtures("one_blas_thread")

KERNEL = cagp.Matern32(0.3, 2.0)


def problem(n):
    rng = np.random.default_rng(n)
    X, noise = rng.uniform(size=(n, 2)), rng.uniform(0.05, 0.3, n)
    return X, noise, kernel_matrix(KERNEL, X, X) + np.diag(noise), rng.normal(size=(n, 3))


def test_with_all_points_before_it_is_the_inverse():
    X, noise, G, columns = problem(70)
    factor = vecchia_factor(KERNEL, X, noise, neighbours=100, executor=SerialExecutor())
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(G)[1], rel=1e-12)
    assert_close(factor.solve(columns), np.linalg.solve(G, columns), relative=1e-10)
    assert_close(factor.solve(columns[:, 0]), np.linalg.solve(G, columns[:, 0]), relative=1e-10)
    root = factor.draw(np.eye(70))
    assert_close(root @ root.T, G, relative=1e-11)
    assert_close(factor.whiten(root), np.eye(70), relative=1e-11)


def test_a_few_neighbours_are_near_it_on_any_executor():
    X, noise, G, _ = problem(300)
    factor = vecchia_factor(KERNEL, X, noise, neighbours=20, executor=SerialExecutor())
    assert factor.neighbours.shape == (300, 20)
    with ThreadExecutor(2) as threads:
        same = vecchia_factor(KERNEL, X, noise, neighbours=20, executor=threads)
    np.testing.assert_array_equal(same.weights, factor.weights)
    np.testing.assert_array_equal(same.variances, factor.variances)
    # conditional variances on fewer neighbours are no smaller
    assert factor.log_determinant > np.linalg.slogdet(G)[1] - 1e-9
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(G)[1], rel=0.01)
    spectrum = np.linalg.eigvals(factor.solve(G)).real
    assert 0.4 < spectrum.min() < spectrum.max() < 1.8
    one = vecchia_factor(KERNEL, X, 0.1, neighbours=20, executor=SerialExecutor())
    assert one.log_determinant != factor.log_determinant


def test_points_that_coincide_without_noise_are_refused():
    X = np.zeros((3, 2))
    with pytest.raises(NumericalError) as refused:
        vecchia_factor(KERNEL, X, 0.0, neighbours=2, executor=SerialExecutor())
    assert refused.value.key == "not-positive-definite"
