"""The objectives of conjugate directions are those of block-sparse actions, for actions of any kind."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.likelihood.learned.elbo import Elbo
from cagp_dist.likelihood.learned.objective import Hyperparameters
from cagp_dist.likelihood.learned.projected_data import ProjectedData
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers.actions.block_sparse import BlockLayout

from .scripts import script

pytestmark = pytest.mark.exhaustive

N, ACTIONS = 23, 5
X = np.random.default_rng(0).uniform(size=(N, 2))
Y = np.random.default_rng(1).standard_normal(N)
HYPERPARAMETERS = np.log([0.4, 0.7, 1.3, 0.2])


def objective(name):
    module = script("gradient_actions")
    names = Hyperparameters.of(cagp.Matern32, X, anisotropic=True)
    chosen = getattr(module, name)
    return module.GradientActions(names, X, Y, actions=ACTIONS, objective=chosen)


@pytest.mark.parametrize("name", ["lower_bound", "projected"])
def test_with_block_sparse_actions_value_and_gradient_are_those_of_the_other_code(name):
    data = ProjectedData(
        cagp.Matern32,
        X,
        Y[:, None],
        layout=BlockLayout.of(X, ACTIONS),
        executor=SerialExecutor(),
        memory_limit_bytes=2**30,
        anisotropic=True,
    )
    weights = np.random.default_rng(2).uniform(0.5, 2.0, N)
    other = {"lower_bound": Elbo, "projected": script("projected_likelihood").ProjectedLikelihood}[name]
    value, gradient = other(data)(np.concatenate([HYPERPARAMETERS, weights]))
    found, slope = objective(name).at(HYPERPARAMETERS, data.layout.columns(weights))
    assert found == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(slope, gradient[:4], rtol=1e-8, atol=1e-8 * np.abs(gradient[:4]).max())


def test_directions_are_those_of_the_solver_and_the_bound_rises_with_them():
    bound = objective("lower_bound")
    S = bound.directions(HYPERPARAMETERS)
    kernel, noise = bound.hyperparameters.read(HYPERPARAMETERS)
    mean = cagp.condition(cagp.Prior(kernel, noise), X, Y, X, solver=cagp.ConjugateGradient(ACTIONS)).mean
    G = kernel(X, X) + noise * np.eye(N)
    np.testing.assert_allclose(kernel(X, X) @ S @ np.linalg.solve(S.T @ G @ S, S.T @ Y), mean, atol=1e-9)
    values = [bound.at(HYPERPARAMETERS, S[:, :i])[0] for i in range(1, ACTIONS + 1)]
    likelihood = -0.5 * (Y @ np.linalg.solve(G, Y) + np.linalg.slogdet(2.0 * np.pi * G)[1])
    assert (np.array(values) < likelihood).all()
    assert bound(HYPERPARAMETERS)[0] == pytest.approx(values[-1], rel=1e-12)
    assert (np.diff(values) > 0.0).all()
