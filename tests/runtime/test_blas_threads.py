"""BLAS threads follow the size of the matrices: threads that wait for each other make small ones slow."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import cagp_dist as cagp
from cagp_dist.likelihood.exact import dense_likelihood as exact
from cagp_dist.runtime import blas_threads_for
from cagp_dist.runtime.executor import FEWEST_FOR_THREADS


def blas_threads():
    return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


@pytest.mark.parametrize(("size", "threads"), [(1, 1), (FEWEST_FOR_THREADS - 1, 1), (FEWEST_FOR_THREADS, 2)])
def test_small_matrices_have_one_thread(size, threads):
    with threadpool_limits(limits=2, user_api="blas"):
        with blas_threads_for(size):
            assert blas_threads() == threads
        assert blas_threads() == 2


@pytest.mark.parametrize(("fewest", "threads"), [(81, 1), (80, 2)])
def test_a_dense_likelihood_follows_its_size(fewest, threads, monkeypatch):
    seen = set()
    dense_sums = exact.dense_sums

    def watched(*arguments):
        seen.add(blas_threads())
        return dense_sums(*arguments)

    monkeypatch.setattr(exact, "dense_sums", watched)
    monkeypatch.setattr("cagp_dist.runtime.executor.FEWEST_FOR_THREADS", fewest)
    rng = np.random.default_rng(0)
    X, residuals = rng.normal(size=(80, 3)), rng.normal(size=(80, 1))
    with threadpool_limits(limits=2, user_api="blas"):
        exact.DenseLikelihood(cagp.Matern32, X, residuals, memory_limit_bytes=2**30).evaluate(0.4, 0.2)
    assert seen == {threads}
