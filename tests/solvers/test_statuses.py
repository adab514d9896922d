"""What is said of how a solve ended: solver by situation."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(120, 2))
TWICE = np.vstack([X, X[:40] + 1e-7])  # points that nearly coincide
ESTIMATED = cagp.mean_family("constant")

SITUATIONS = {
    "ordinary": (X, cagp.Prior(cagp.Matern32(0.3, 2.0), 0.1)),
    "outside the data, estimated mean": (X, cagp.Prior(cagp.Matern32(0.3, 2.0), 0.1, mean=ESTIMATED)),
    "ill-conditioned": (TWICE, cagp.Prior(cagp.SquaredExponential(3.0, 2.0), 1e-14)),
}

# Status in each situation, or the key of a refusal
TABLE = {
    cagp.Cholesky(): ("exact", "exact", "ill-conditioned"),
    cagp.Neighbours(500): ("exact", "exact", "ill-conditioned"),  # one neighbourhood of all points
    cagp.Neighbours(32): ("neighbours", "neighbours", "neighbours"),
    cagp.Neighbours(32, drift="constant"): ("neighbours", "neighbours", "neighbours"),
    cagp.Neighbours(32, drift="linear"): ("neighbours", "neighbours", "neighbours"),
    cagp.BlockGaussSeidel(2, block_size=30): ("completed", "completed", "completed"),
    cagp.Jacobi(3): ("completed", "completed", "completed"),
    cagp.Jacobi(6, damping=1.0): ("relaxation", "relaxation", "relaxation"),
    cagp.ConjugateGradient(5): ("stopped", "stopped", "stopped"),
    cagp.ConjugateGradient(300): ("converged", "converged", "ill-conditioned"),
    cagp.SubsetOfData(30): ("completed", "completed", "ill-conditioned"),
}


@pytest.mark.parametrize("solver", TABLE, ids=repr)
def test_what_is_said_follows_from_solver_and_situation(solver):
    found, values = [], np.random.default_rng(1).normal(size=len(TWICE))
    for name, (points, prior) in SITUATIONS.items():
        targets = np.array([[0.5, 0.5], [6.0, 5.0]][: 1 + ("outside" in name)])
        try:
            posterior = cagp.condition(prior, points, values[: len(points)], targets, solver=solver)
        except ArgumentError as error:
            found.append(error.key)
            continue
        found.append(posterior.status.value)
        if len(targets) == 2 and getattr(solver, "drift", "none") == "none" and posterior.status.ok:
            assert posterior.variance[1] > 2.1  # more than the prior's, for the mean
    assert tuple(found) == TABLE[solver]


@pytest.mark.parametrize("drift", ["constant", "linear"])
def test_error_bars_outside_the_data_are_those_of_universal_kriging(drift):
    """With all points as neighbours: the estimate of a constant, or of a plane, counts in full."""
    prior = cagp.Prior(cagp.Matern32(0.3, 2.0), 0.1)
    found = cagp.condition(prior, X, X[:, 0], [[6.0, 5.0]], solver=cagp.Neighbours(500, drift=drift))
    assert found.status is cagp.Status.NEIGHBOURS
    H = np.ones((120, 1)) if drift == "constant" else np.column_stack([np.ones(120), X])
    G, v = prior.kernel(X, X) + 0.1 * np.eye(120), prior.kernel(X, np.array([[6.0, 5.0]]))[:, 0]
    left = np.array([1.0, 6.0, 5.0])[: H.shape[1]] - H.T @ np.linalg.solve(G, v)
    variance = 2.0 - v @ np.linalg.solve(G, v) + left @ np.linalg.solve(H.T @ np.linalg.solve(G, H), left)
    assert variance > 2.0
    assert found.variance[0] == pytest.approx(variance, rel=1e-8)
