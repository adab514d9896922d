"""What it does to error bars that actions are chosen with a look at the data.

The setting of `test_simulation_based_calibration`: 400 points of the unit square, a field of the prior,
targets on a grid of 21 x 21. Blocks have weights from a seed, which are then moved uphill by L-BFGS-B, the
hyperparameters held at the truth.
"""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import minimize

import cagp_dist as cagp
from cagp_dist.likelihood.learned.elbo import Elbo
from cagp_dist.likelihood.learned.objective import Objective
from cagp_dist.likelihood.learned.projected_data import ProjectedData
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers.actions.block_sparse import BlockLayout
from pipelines.experiments.projected_likelihood import ProjectedLikelihood

from .test_simulation_based_calibration import N_TRAIN, PRIOR, grid

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.usefixtures("one_blas_thread")]

SIMULATIONS = 40


class Errors(NamedTuple):
    """Of each simulation: mean squares of standardised errors and of errors, and one standardised sum."""

    standardised: np.ndarray
    squared: np.ndarray
    sums: np.ndarray


def learnt(objective: type[Objective] | None, X, y, *, actions: int, steps: int) -> cagp.SparseActions:
    """Actions whose weights have been moved uphill; where they have no objective, as they were drawn."""
    layout = BlockLayout.of(X, actions)
    values = layout.draw(0)
    if objective is None:
        return cagp.SparseActions(actions, values=values, tuned=False)
    data = ProjectedData(
        cagp.Matern32, X, y[:, None], layout=layout, executor=SerialExecutor(), memory_limit_bytes=2**30
    )
    bound, truth = objective(data), np.log([0.2, 1.0, 0.01])

    def loss(entries):
        value, gradient = bound(np.concatenate([truth, entries]))
        return -value, -gradient[3:]

    found = minimize(loss, values, jac=True, method="L-BFGS-B", options={"maxiter": steps})
    return cagp.SparseActions(actions, values=found.x)


def errors_of(objective, *, actions: int, steps: int, simulations: int = SIMULATIONS) -> Errors:
    """Simulate; fields and points of every simulation are its own, the same for every objective."""
    found = []
    for seed in range(simulations):
        rng = np.random.default_rng([2026, seed])
        X, X_test = rng.uniform(size=(N_TRAIN, 2)), grid()
        joint = np.concatenate([X, X_test])
        f = np.linalg.cholesky(PRIOR.kernel(joint, joint)) @ rng.normal(size=len(joint))
        y, direction = f[:N_TRAIN] + 0.1 * rng.normal(size=N_TRAIN), rng.normal(size=len(X_test))
        solver = learnt(objective, X, y, actions=actions, steps=steps)
        posterior = cagp.condition(PRIOR, X, y, X_test, solver=solver, covariance="full")
        error = posterior.mean - f[N_TRAIN:]
        spread = np.sqrt(direction @ posterior.covariance @ direction)
        found.append((np.mean(error**2 / posterior.variance), np.mean(error**2), direction @ error / spread))
    return Errors(*np.array(found).T)


def in_standard_errors(values: np.ndarray) -> float:
    """Difference of a mean from one."""
    return float((values.mean() - 1.0) / (values.std(ddof=1) / np.sqrt(len(values))))


def test_error_bars_of_fixed_actions_are_right_and_of_learnt_ones_are_not():
    """With 50 actions. False alarms of the first line: 6e-5; the others are found with 10 and more."""
    fixed, bound, projected = (
        errors_of(objective, actions=50, steps=20) for objective in (None, Elbo, ProjectedLikelihood)
    )
    assert abs(in_standard_errors(fixed.standardised)) < 4.0
    # the bound rewards actions that see the field: errors fall by more than the variance says
    assert in_standard_errors(bound.standardised) < -10.0
    assert bound.squared.mean() < 0.5 * fixed.squared.mean()
    # the projected likelihood rewards data that look like the prior mean: errors grow, unsaid
    assert in_standard_errors(projected.standardised) > 4.0
    assert projected.squared.mean() > 2.0 * fixed.squared.mean()
