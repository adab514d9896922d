"""An exact solve with many targets: part by part, the same posterior in a bounded part of the memory."""

from collections.abc import Callable

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.budget import Demand
from cagp_dist.budget import point_plans as points
from cagp_dist.solvers.interface import Solver


@pytest.mark.parametrize("solver", [cagp.Cholesky(), cagp.SubsetOfData(20)], ids=repr)
def test_parts_give_the_posterior_of_the_whole(solver: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    X, X_test = generator.uniform(size=(40, 2)), generator.uniform(size=(25, 2))
    prior = cagp.Prior(cagp.Matern32(0.3, 2.0), 0.1)
    y, said = generator.standard_normal((40, 2)), []
    whole = cagp.condition(prior, X, y, X_test, solver=solver)
    monkeypatch.setattr(points, "PART_ENTRIES", 200)
    parts = cagp.condition(prior, X, y, X_test, solver=solver, progress=said.append)
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(parts.variance, whole.variance, rtol=0.0, atol=1e-12)
    assert parts.status is whole.status
    assert len(said) > 1
    assert said[-1].fraction == 1.0


def test_six_million_cells_of_a_hundred_stations_take_no_matrix_of_both() -> None:
    demand = Demand(
        n=100,
        q=6_000_000,
        fields=1,
        full_covariance=False,
        workers=2,
        shares_memory=True,
        memory_limit_bytes=2 * 2**30,
    )
    assert cagp.Cholesky().plan(demand).peak_bytes < 8 * 100 * 6_000_000 / 2


@pytest.mark.exhaustive
def test_parts_with_cells_of_most_unequal_sizes_stay_within_the_plan(
    traced: Callable[..., tuple[cagp.Posterior, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(0)
    counts = np.array([*[1] * 99, 6000])
    nodes = generator.standard_normal((counts.sum(), 3))
    nodes /= np.linalg.norm(nodes, axis=1, keepdims=True)
    cells = cagp.CellMeans(nodes, np.repeat(1.0 / counts, counts), counts)
    prior, X, y = cagp.Prior(cagp.Matern32(0.3), 0.1), nodes[:1000], np.ones(1000)
    solver = cagp.Cholesky()
    cagp.condition(prior, X, y, cells, solver=solver)  # imports, compiled code
    monkeypatch.setattr(points, "PART_ENTRIES", 10_000)
    parts, peak = traced(lambda: cagp.condition(prior, X, y, cells, solver=solver))
    plan = parts.stats.plan
    assert len(plan.batches) > 1
    assert peak <= plan.peak_bytes + 2**18  # objects of the interpreter
    assert peak < 8 * 1000 * 6000, "no matrix of points and nodes"
