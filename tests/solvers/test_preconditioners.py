"""Preconditioners against dense formulas (math 4.2): inverse, determinant, spectrum; same bits anywhere."""

import numpy as np
import pytest
from scipy.linalg import block_diag, eigvalsh, lapack

import cagp_dist as cagp
from cagp_dist.budget import Demand
from cagp_dist.errors import ArgumentError
from cagp_dist.gram import TiledGram
from cagp_dist.runtime import SerialExecutor, ThreadExecutor, single_threaded_blas
from cagp_dist.solvers.stationary.low_rank import nystrom, partial_cholesky
from cagp_dist.solvers.stationary.preconditioners import (
    PRECONDITIONERS,
    DiagonalPlusLowRank,
    Nystrom,
    PivotedCholesky,
    SymmetricSweep,
    Vecchia,
    find_preconditioner,
)

from ..oracle import assert_close, block_lower, kernel_matrix

pytestmark = pytest.mark.usefixtures("one_blas_thread")

SERIAL = SerialExecutor()
N = 130
KERNEL = cagp.Matern32(lengthscale=0.3, variance=2.0)
RNG = np.random.default_rng(5)
X = RNG.uniform(size=(N, 2))
K = kernel_matrix(KERNEL, X, X)
NOISES = {"one noise": np.full(N, 0.02), "noise by point": 0.02 * 40.0 ** RNG.uniform(-0.5, 0.5, size=N)}

low_rank = pytest.mark.parametrize(
    "settings", [PivotedCholesky(25), Nystrom(25, seed=3), PivotedCholesky(10**6), Nystrom(N)], ids=repr
)
noises = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())


@noises
@low_rank
def test_diagonal_plus_low_rank_is_the_dense_formula(settings, noise):
    gram = TiledGram(KERNEL, X, noise_variance=noise)
    P = settings.of(gram, executor=SERIAL)
    dense = np.diag(noise) + P.factor @ P.factor.T
    columns = RNG.standard_normal((N, 4))
    assert_close(P @ columns, dense @ columns)
    assert_close(P.solve(columns), np.linalg.solve(dense, columns))
    assert_close(P.solve(columns[:, 0]), np.linalg.solve(dense, columns[:, 0]))
    # K - U U' is at least zero, so that the spectrum begins at 1 and its end is bounded
    missed = K - P.factor @ P.factor.T
    assert np.linalg.eigvalsh(missed).min() > -1e-12
    spectrum = eigvalsh(K + np.diag(noise), dense)
    assert spectrum[0] > 1.0 - 1e-10
    assert spectrum[-1] <= 1.0 + np.linalg.norm(missed, 2) / noise.min() + 1e-9
    if getattr(settings, "rank", 0) >= N or getattr(settings, "points", 0) >= N:
        assert_close(dense, K + np.diag(noise), relative=1e-12)


def test_partial_cholesky_is_that_of_lapack():
    factor, chosen = partial_cholesky(KERNEL, X, rank=40)
    theirs, pivots, _, _ = lapack.dpstrf(K, lower=1)
    np.testing.assert_array_equal(chosen, pivots[:40] - 1)
    assert_close(factor[pivots - 1], np.tril(theirs)[:, :40])


@noises
def test_partial_cholesky_with_noise_takes_the_point_of_largest_posterior_variance(noise):
    factor, chosen = partial_cholesky(KERNEL, X, rank=30, noise_variance=noise)
    G = K + np.diag(noise)
    for step in range(30):
        given = chosen[:step]
        left = np.diag(K - K[:, given] @ np.linalg.solve(G[np.ix_(given, given)], K[given]))
        others = np.setdiff1d(np.arange(N), given)
        assert chosen[step] == others[np.argmax(left[others])]
    L = factor[chosen]
    assert_close(np.tril(L) @ np.tril(L).T, G[np.ix_(chosen, chosen)])
    assert_close(factor @ L.T, G[:, chosen])


def test_partial_cholesky_ends_where_no_variance_is_left():
    """Ten points, each of them three times; the field is known after ten steps."""
    twice = np.repeat(X[:10], 3, axis=0)
    factor, chosen = partial_cholesky(KERNEL, twice, rank=30)
    assert len(chosen) == factor.shape[1] == 10
    assert len(np.unique(twice[chosen], axis=0)) == 10
    assert_close(factor @ factor.T, kernel_matrix(KERNEL, twice, twice))
    assert partial_cholesky(KERNEL, X[:0], rank=3).factor.shape == (0, 0)


def test_nystrom_leaves_out_what_pseudo_inputs_repeat():
    Z = np.concatenate([X[:8], X[:8]])
    U = nystrom(KERNEL, X, Z)
    assert U.shape == (N, 8)
    assert_close(U @ U.T, K[:, :8] @ np.linalg.solve(K[:8, :8], K[:8]))


@noises
@pytest.mark.parametrize("block_size", [1, 17, 64, 500])
def test_symmetric_sweep_is_the_dense_formula(noise, block_size):
    gram = TiledGram(KERNEL, X, noise_variance=noise)
    operator = SymmetricSweep(block_size).of(gram, executor=SERIAL)
    G = K + np.diag(noise)
    edges = range(0, N, block_size)
    B = block_diag(*[G[i : i + block_size, i : i + block_size] for i in edges])
    N_up = block_lower(G, block_size)
    P = N_up @ np.linalg.solve(B, N_up.T)
    columns = RNG.standard_normal((N, 3))
    with single_threaded_blas():
        assert_close(operator.solve(columns), np.linalg.solve(P, columns))
        assert_close(operator.solve(columns[:, :1]), np.linalg.solve(P, columns[:, :1]))


@noises
def test_the_factor_of_vecchia_has_eigenvalues_around_one(noise):
    """Every conditional variance is right, so that ``U' G U`` has ones on its diagonal."""
    gram = TiledGram(KERNEL, X, noise_variance=noise)
    factor = Vecchia(12).of(gram, executor=SERIAL)
    white = factor.whiten(factor.whiten(K + np.diag(noise)).T)
    assert_close(white.diagonal(), np.ones(N))
    assert 0.0 < np.linalg.eigvalsh(white)[0] < 1.0
    demand = Demand(N, 5, 1, False, 2, True, 2**30)
    assert Vecchia(12).cost(demand).memory_bytes >= factor.weights.nbytes + factor.neighbours.nbytes


@pytest.mark.parametrize("name", PRECONDITIONERS)
def test_workers_do_not_change_a_bit(name):
    gram = TiledGram(KERNEL, X, noise_variance=NOISES["noise by point"])
    right = RNG.standard_normal((N, 1))
    with ThreadExecutor(3) as threads, single_threaded_blas():
        found = [find_preconditioner(name, 20).of(gram, executor=e).solve(right) for e in (SERIAL, threads)]
    np.testing.assert_array_equal(*found)


def test_factors_are_kept_or_made_again_with_the_same_result(monkeypatch):
    gram = TiledGram(KERNEL, X, noise_variance=NOISES["one noise"])
    right, settings = RNG.standard_normal((N, 1)), SymmetricSweep(32)
    demand = Demand(N, 5, 1, False, 2, True, 2**30)
    with single_threaded_blas():
        kept, cost = settings.of(gram, executor=SERIAL).solve(right), settings.cost(demand)
        monkeypatch.setattr("cagp_dist.solvers.stationary.preconditioners.FACTORS_KEPT_BYTES", 0)
        np.testing.assert_array_equal(settings.of(gram, executor=SERIAL).solve(right), kept)
    assert settings.cost(demand).memory_bytes < cost.memory_bytes
    assert settings.cost(demand).flops_of_solve > cost.flops_of_solve


def test_cost_grows_with_rank_up_to_the_points():
    demand = Demand(1000, 5, 1, False, 2, True, 2**30)
    for made in (PivotedCholesky, Nystrom):
        small, large, whole = (made(rank).cost(demand) for rank in (10, 100, 10**9))
        assert small.memory_bytes < large.memory_bytes < whole.memory_bytes == made(1000).cost(demand)[0]
        assert large.entries == 100_000


def test_what_is_wrong_is_said():
    with pytest.raises(ArgumentError) as refused:
        DiagonalPlusLowRank(np.zeros(3), np.ones((3, 1)))
    assert refused.value.key == "no-noise"
    with pytest.raises(ArgumentError) as refused:
        find_preconditioner("ilu")
    assert refused.value.key == "preconditioner-unknown"
    with pytest.raises(ArgumentError) as refusal:
        find_preconditioner("pivoted-cholesky", 0)
    assert refusal.value.key == "no-count"
    assert find_preconditioner("nystrom") == Nystrom()
