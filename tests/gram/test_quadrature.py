"""Lanczos quadrature against dense eigenvectors: it brackets ``y' G^-1 y``, whatever rounding does."""

import itertools

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.quadrature import quadrature_bounds

from ..oracle import PROFILES, compose, kernel_matrix
from ..solvers.stages import dense_stage

SOLVERS = [
    cagp.GaussSeidel(1),
    cagp.BlockGaussSeidel(1, block_size=7),
    cagp.SOR(1, relaxation=1.6),
    cagp.SSOR(1, relaxation=0.7),
    cagp.Jacobi(1),
    cagp.BlockJacobi(1, block_size=7),
]


def random_problem(seed: int):
    """G, noise and columns: leftovers of solvers, with noise down to 1e-8, by point, and repeated points."""
    rng = np.random.default_rng([21, seed])
    n, p = int(rng.integers(1, 25)), int(rng.integers(1, 4))
    X = rng.uniform(size=(n, p))
    if seed % 3 == 0:
        X = X[rng.integers(n, size=n)]
    kernel = getattr(cagp, list(PROFILES)[seed % 4])(10.0 ** rng.uniform(-1.5, 1.0), variance=2.0)
    noise = 10.0 ** rng.uniform(-8.0, 0.5) * (rng.uniform(0.01, 1.0, n) if seed % 2 else np.ones(n))
    G = kernel_matrix(kernel, X, X) + np.diag(noise)
    V = kernel_matrix(kernel, rng.uniform(size=(5, p)), X)
    A, _, _ = compose(G, [dense_stage(SOLVERS[seed % 6], G)] * int(rng.integers(6)))
    return G, noise, V.T - G @ A.T @ V.T


def exact_form(G, noise, columns):
    """By eigenvectors of ``N^-1/2 K N^-1/2``, of which none is negative."""
    scale = 1.0 / np.sqrt(noise)
    values, vectors = np.linalg.eigh(scale[:, None] * (G - np.diag(noise)) * scale)
    return ((vectors.T @ (scale[:, None] * columns)) ** 2 / (1.0 + np.maximum(values, 0.0))[:, None]).sum(
        axis=0
    )


@pytest.mark.parametrize("problems", [60, pytest.param(200, marks=pytest.mark.exhaustive)])
def test_it_brackets_the_truth_in_every_problem(problems):
    """After every step; and each bound is at least as good as the one before."""
    closed = 0
    for seed in range(problems):
        G, noise, columns = random_problem(seed)
        exact = exact_form(G, noise, columns)
        to_the_end = seed % 4 == 0
        bounds = quadrature_bounds(G.__matmul__, np.diag(G), noise, columns)
        steps = itertools.islice(bounds, len(G) + 2 if to_the_end else 8)
        rounding = 1e-9 * exact.max() + 1e-20
        before = np.stack([np.zeros(5), np.full(5, np.inf)])
        for lower, upper in steps:
            assert (lower <= exact + rounding).all(), seed
            assert (exact <= upper + rounding).all(), seed
            assert (lower >= before[0]).all(), seed
            assert (upper <= before[1]).all(), seed
            before = np.stack([lower, upper])
        closed += to_the_end and bool((upper - lower <= 1e-3 * exact + rounding).all())
    # of a fourth: after n steps both are it, but where rounding takes much of the smallest noise
    assert closed > 0.9 * problems / 4


def test_lower_and_upper_bound_are_those_of_gauss_and_of_gauss_radau():
    """``|u|^2 (T^-1)_11`` by the matrix T itself, and with a last row that makes 1 an eigenvalue."""
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(60, 2))
    noise = rng.uniform(0.05, 0.2, 60)
    G = kernel_matrix(cagp.Matern32(0.2), X, X) + np.diag(noise)
    y = rng.normal(size=60)
    A = G / np.sqrt(np.outer(noise, noise))
    u = y / np.sqrt(noise)
    basis, _ = np.linalg.qr(np.stack([np.linalg.matrix_power(A, k) @ u for k in range(5)], axis=1))
    T = basis.T @ A @ basis
    for k, found in enumerate(
        itertools.islice(quadrature_bounds(G.__matmul__, np.diag(G), noise, y[:, None]), 5)
    ):
        if k == 0:
            np.testing.assert_allclose(found[:, 0], [0.0, u @ u], rtol=1e-10)
            continue
        gauss = T[:k, :k]
        radau = T[: k + 1, : k + 1].copy()
        radau[k, k] = 1.0 + T[k, k - 1] ** 2 * np.linalg.inv(gauss - np.eye(k))[-1, -1]
        assert np.linalg.eigvalsh(radau)[0] == pytest.approx(1.0, abs=1e-9)
        expected = [u @ u * np.linalg.inv(matrix)[0, 0] for matrix in (gauss, radau)]
        np.testing.assert_allclose(found[:, 0], expected, rtol=1e-7)


def test_columns_do_not_know_of_each_other_and_may_be_zero():
    G, noise, columns = random_problem(1)
    columns[:, 2] = 0.0
    together = list(itertools.islice(quadrature_bounds(G.__matmul__, np.diag(G), noise, columns), 6))
    for column in range(5):
        alone = quadrature_bounds(G.__matmul__, np.diag(G), noise, columns[:, [column]])
        for found, expected in zip(alone, together, strict=False):
            np.testing.assert_allclose(found[:, 0], expected[:, column], rtol=1e-7, atol=1e-300)
    np.testing.assert_array_equal(np.array(together)[:, :, 2], 0.0)


def test_nothing_bounds_a_matrix_without_noise():
    with pytest.raises(ArgumentError) as refused:
        next(quadrature_bounds(np.eye(3).__matmul__, np.ones(3), np.array([0.1, 0.0, 0.1]), np.ones((3, 1))))
    assert refused.value.key == "no-noise"
