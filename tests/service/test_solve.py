"""One solve for all times, or one for each: what is reported of them together."""

from itertools import permutations

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.pipeline.field_solves import Execution, solve
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers import Status
from cagp_dist.solvers.status import WORST_FIRST

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def solved(y, solver, prior=None):
    X = np.linspace(0.0, 1.0, len(y)).reshape(-1, 1)
    return solve(
        prior or cagp.Prior(cagp.Matern32(0.3), 0.1, lambda X: np.zeros((len(X), y.shape[1]))),
        X,
        y,
        X[:3],
        solver=solver,
        execution=Execution(SerialExecutor()),
    )


def test_every_end_of_a_solve_has_its_place_and_those_that_failed_come_first():
    assert set(WORST_FIRST) == set(Status)
    assert len(WORST_FIRST) == len(Status)
    ok = [status.ok for status in WORST_FIRST]
    assert ok == sorted(ok)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_status_is_the_worst_of_the_times_in_any_order(order):
    """Conjugate gradients: a field of zeros is solved at once, others are not."""
    rng = np.random.default_rng(0)
    y = np.stack([np.zeros(40), rng.normal(size=40), np.zeros(40)], axis=1)[:, list(order)]
    found = solved(y, cagp.ConjugateGradient(3))
    alone = [solved(y[:, [i]], cagp.ConjugateGradient(3)).status for i in range(3)]
    assert set(alone) == {Status.CONVERGED, Status.STOPPED}
    assert found.status is Status.STOPPED


def test_progress_counts_each_batch_of_targets_once():
    rng = np.random.default_rng(0)
    X, y, said = rng.normal(size=(1500, 3)), rng.normal(size=(1500, 1)), []
    solve(
        cagp.Prior(cagp.Matern32(0.3), 0.1, lambda X: np.zeros((len(X), 1))),
        X,
        y,
        rng.normal(size=(1100, 3)),
        solver=cagp.BlockGaussSeidel(2, block_size=500),
        execution=Execution(
            SerialExecutor(), 31_000_000, progress=lambda part, line: said.append((part, line))
        ),
    )
    batches = len(said) // 2
    assert batches > 1
    assert [line for _, line in said] == [
        f"batch {batch} of {batches}, iteration {iteration} of 2"
        for batch in range(1, batches + 1)
        for iteration in (1, 2)
    ]
    parts = [part for part, _ in said]
    assert parts == sorted(parts)
    assert parts[-1] == 1.0


@pytest.mark.parametrize("solver", [cagp.BlockGaussSeidel(2, 10), cagp.ConjugateGradient(3)], ids=repr)
def test_times_with_different_gaps_and_noise_by_point_are_each_what_they_are_alone(solver):
    """One of them with the same gaps as another; conjugate gradients take one at a time anyway."""
    rng = np.random.default_rng(0)
    y, noise = rng.normal(size=(40, 4)), rng.uniform(0.05, 0.5, size=40)
    y[:5, 1] = y[30:, 2] = np.nan
    prior = cagp.Prior(cagp.Matern32(0.3), noise, lambda X: X * np.arange(4.0))
    found = solved(y, solver, prior)
    assert [step.mean.shape for step in found.steps] == [(4, 3)] * (solver.iterations + 1)
    assert [step.std.shape for step in found.steps] == [(4, 3)] * (solver.iterations + 1)
    X = np.linspace(0.0, 1.0, 40).reshape(-1, 1)
    for t in range(4):
        seen = np.isfinite(y[:, t])
        own = cagp.Prior(cagp.Matern32(0.3), noise[seen], lambda X, t=t: t * X[:, 0])
        alone = cagp.condition(own, X[seen], y[seen, t], X[:3], solver=solver, executor=SerialExecutor())
        if found.computational_std is not None:
            left = np.sqrt(alone.computational_variance)
            np.testing.assert_allclose(found.computational_std[t], left, rtol=1e-8)
            assert left.max() > 0.01
        for step, expected in zip(found.steps, alone.trace, strict=True):
            np.testing.assert_allclose(step.mean[t], expected.mean, rtol=1e-11, atol=1e-12)
            np.testing.assert_allclose(step.std[t], np.sqrt(expected.variance), rtol=1e-11)
