"""The objective with the wrong determinant is the one that was published, and only that is wrong with it."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import cagp_dist as cagp
from cagp_dist.likelihood.learned.elbo import Elbo
from cagp_dist.likelihood.learned.projected_data import ProjectedData
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers.actions.block_sparse import BlockLayout

from .scripts import script

pytestmark = pytest.mark.exhaustive

N, ACTIONS, FIELDS = 23, 5, 2
X = np.random.default_rng(0).uniform(size=(N, 2))
Y = np.random.default_rng(1).standard_normal((N, FIELDS))


@pytest.fixture
def data():
    return ProjectedData(
        cagp.Matern32,
        X,
        Y,
        layout=BlockLayout.of(X, ACTIONS),
        executor=SerialExecutor(),
        memory_limit_bytes=2**30,
    )


@pytest.fixture
def vector():
    return np.concatenate([np.log([0.4, 1.3, 0.2]), np.random.default_rng(2).uniform(0.5, 2.0, N)])


@pytest.fixture
def wrong(data):
    return script("wrong_determinant").WrongDeterminant(data)


def lengths(data, vector):
    """Squared lengths of the columns of the dense S."""
    return np.diag((S := data.layout.columns(vector[3:])).T @ S)


def test_the_logarithm_of_the_trace_takes_the_place_of_that_of_the_determinant(data, vector, wrong):
    d = lengths(data, vector)
    right, _ = Elbo(data)(vector)
    value, _ = wrong(vector)
    assert value == pytest.approx(right - FIELDS / 2 * (np.log(d).sum() - np.log(d.sum())), rel=1e-12)


def test_the_gradient_is_that_of_the_value(vector, wrong):
    """Central differences of step h err by h^2 of the third derivative, and by rounding over h: some 1e-8."""
    _, gradient = wrong(vector)
    h = 1e-5
    steps = h * np.eye(len(vector))
    differences = [(wrong(vector + step)[0] - wrong(vector - step)[0]) / (2 * h) for step in steps]
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-6 * np.abs(gradient).max())


def test_it_grows_without_bound_as_actions_shrink_and_the_bound_does_not(data, vector, wrong):
    """S -> c S leaves the bound as it is and adds (1 - i) T log c to the wrong one, beyond the likelihood."""
    smaller = vector.copy()
    smaller[3:] *= 1e-10
    change = wrong(smaller)[0] - wrong(vector)[0]
    assert change == pytest.approx((1 - ACTIONS) * FIELDS * np.log(1e-10), rel=1e-9)
    assert Elbo(data)(smaller)[0] == pytest.approx(Elbo(data)(vector)[0], rel=1e-9)
    length, variance, noise = np.exp(vector[:3])
    gram = cagp.Matern32(length, variance)(X, X) + noise * np.eye(N)
    likelihood = multivariate_normal(cov=gram).logpdf(Y.T).sum()
    assert Elbo(data)(smaller)[0] < likelihood < wrong(smaller)[0]
