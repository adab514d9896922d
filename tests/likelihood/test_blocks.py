"""Blocks of neighbours that count as independent: sums of dense likelihoods, on any executor."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import BudgetError
from cagp_dist.likelihood import blocks
from cagp_dist.likelihood.blocks import BlockLikelihood
from cagp_dist.likelihood.exact import DenseLikelihood, dense_bytes
from cagp_dist.likelihood.observed import spread_cells
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import SerialExecutor, ThreadExecutor

from ..oracle import assert_close

pytestmark = pytest.mark.usefixtures("one_blas_thread")

LIMIT = 2**30


def places(n, seed=0):
    rng = np.random.default_rng([seed, n])
    return rng.normal(size=(n, 3)), rng.normal(size=(n, 2))


def in_blocks(X, residuals, *, executor=None, memory_limit_bytes=LIMIT):
    return BlockLikelihood(
        cagp.Matern32,
        X,
        residuals,
        executor=executor or SerialExecutor(),
        memory_limit_bytes=memory_limit_bytes,
    )


def dense(X, residuals):
    return DenseLikelihood(cagp.Matern32, X, residuals, memory_limit_bytes=LIMIT)


def numbers(evaluation):
    return np.array(
        [evaluation.log_determinant, evaluation.quadratic, *evaluation.traces, *evaluation.slopes]
    )


def test_one_block_is_the_dense_likelihood():
    X, residuals = places(60)
    found = in_blocks(X, residuals).evaluate(0.4, 0.2)
    assert (found.points, found.fields, found.solved) == (60, 2, True)
    assert_close(numbers(found), numbers(dense(X, residuals).evaluate(0.4, 0.2)), relative=1e-12)


@pytest.mark.parametrize("n", [200, 201, 238])
def test_several_blocks_are_a_sum_of_dense_likelihoods(n, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_POINTS", 60)
    X, residuals = places(n)
    found = in_blocks(X, residuals).evaluate(0.4, 0.2)
    size = -(-n // 4)
    order = cagp.space_filling_order(X, block_size=size)
    parts = [order[start : start + size] for start in range(0, n, size)]
    assert [len(part) for part in parts][:3] == [size] * 3
    expected = sum(numbers(dense(X[p], residuals[p]).evaluate(0.4, 0.2)) for p in parts)
    assert_close(numbers(found), expected, relative=1e-12)
    assert found.points == n


def test_far_apart_groups_are_exact(monkeypatch):
    """Blocks that do not know of each other: nothing is lost."""
    monkeypatch.setattr(blocks, "BLOCK_POINTS", 40)
    X, residuals = places(80)
    X[40:] += 1e4
    found = in_blocks(X, residuals).evaluate(0.4, 0.2)
    assert_close(numbers(found), numbers(dense(X, residuals).evaluate(0.4, 0.2)), relative=1e-12)


def test_the_same_bits_on_threads(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_POINTS", 50)
    X, residuals = places(333)
    with ThreadExecutor(3) as threads:
        there = in_blocks(X, residuals, executor=threads).evaluate(0.4, 0.2)
    here = in_blocks(X, residuals).evaluate(0.4, 0.2)
    np.testing.assert_array_equal(numbers(there), numbers(here))


def test_memory_is_that_of_the_blocks_worked_on_at_once(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_POINTS", 50)
    X, residuals = places(400)
    with ThreadExecutor(3) as threads:
        needed = 3 * dense_bytes(50, 2)
        in_blocks(X, residuals, executor=threads, memory_limit_bytes=needed)
        with pytest.raises(BudgetError, match=r"blocks of 50 points needs .* on 3 workers") as told:
            in_blocks(X, residuals, executor=threads, memory_limit_bytes=needed - 1)
        assert told.value.remedies == (Remedy.MORE_MEMORY, Remedy.FEWER_WORKERS)


@pytest.mark.exhaustive
def test_the_numbers_of_a_draw_are_found_from_blocks():
    """3,000 points of a draw in blocks of 1,000: within 4 standard errors, and near those of all at once."""
    rng = np.random.default_rng(4)
    latitude, longitude = np.degrees(np.arcsin(rng.uniform(-1, 1, 3000))), rng.uniform(0, 360, 3000)
    X = cagp.unit_sphere(latitude, longitude)
    kernel = cagp.Matern32(0.2, 4.0)
    gram = kernel(X, X) + 0.3 * np.eye(3000)
    y = np.linalg.cholesky(gram) @ rng.standard_normal(3000)
    found = cagp.fit(cagp.Matern32, X, y, mean=0.0, method="blocks")
    assert (found.method, found.points, found.status.ok) == ("blocks", 3000, True)
    errors = found.standard_errors
    assert abs(found.prior.kernel.lengthscale - 0.2) < 4.0 * errors.lengthscale < 0.1
    assert abs(found.prior.kernel.variance - 4.0) < 4.0 * errors.variance < 4.0
    assert abs(found.prior.noise_variance - 0.3) < 4.0 * errors.noise_variance < 0.3


@pytest.mark.parametrize(("n", "most"), [(1000, 320), (1003, 500), (97, 64)])
def test_spread_cells_are_whole_cells_of_neighbours(n, most):
    X, _ = places(n)
    chosen = spread_cells(X, most, cell_size=32)
    assert len(np.unique(chosen)) == len(chosen) <= max(most, 64)
    order = cagp.space_filling_order(X, block_size=32)
    cell_of = np.empty(n, dtype=int)
    cell_of[order] = np.arange(n) // 32
    cells, counts = np.unique(cell_of[chosen], return_counts=True)
    np.testing.assert_array_equal(counts, np.bincount(cell_of)[cells])
    assert cells[0] == 0
    assert cells[-1] == cell_of.max()
