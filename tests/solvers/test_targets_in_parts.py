"""An exact solve with many targets: part by part, the same posterior in a bounded part of the memory."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.budget import Demand, points
from cagp_dist.solvers.base import Solver


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
