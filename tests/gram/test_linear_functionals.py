"""Linear functionals as values: weights, nodes that are shared, combinations; what they cost."""

import numpy as np
import pytest
import scipy.sparse

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.functionals import LinearFunctionals, functional_panel
from cagp_dist.kernels import point_columns

from ..joined import one_after_another
from ..oracle import assert_close, kernel_matrix
from ..problems import regression_problem

KERNEL = cagp.Matern32(0.4, variance=2.0)


def drawn(N=40, k=6, *, part=0.3, seed=0):
    """Points (N, 2) and weights (N, k), most of them zero."""
    rng = np.random.default_rng(seed)
    W = np.where(rng.uniform(size=(N, k)) < part, rng.normal(size=(N, k)), 0.0)
    return rng.uniform(size=(N, 2)), W


@pytest.mark.parametrize(
    "form", [np.asarray, scipy.sparse.csr_array, scipy.sparse.csc_array, scipy.sparse.coo_matrix]
)
def test_weights_in_any_form_are_the_same_functionals(form):
    points, W = drawn()
    given = form(W)
    found = cagp.LinearFunctionals(points, given)
    used = (W != 0.0).any(axis=1)
    np.testing.assert_array_equal(found.nodes, points[used])
    np.testing.assert_array_equal(found.matrix().toarray(), W[used])
    assert (len(found), found.shared) == (6, True)
    assert (given != form(W)).sum() == 0  # nothing was changed


@pytest.mark.parametrize("part", [0.05, 0.3, 1.0])
def test_sums_covariances_and_prior_variance_are_those_of_the_matrix(part):
    points, W = drawn(300, 5, part=part)
    W[0] = 1.0
    found = cagp.LinearFunctionals(points, W)
    X = np.random.default_rng(1).uniform(size=(50, 2))
    K = kernel_matrix(KERNEL, points, points)
    values = np.random.default_rng(2).normal(size=(300, 3))
    assert_close(found.averaged(values[(W != 0.0).any(axis=1)]), W.T @ values)
    panel = functional_panel(KERNEL.parameters, point_columns(X), found)
    assert_close(panel, kernel_matrix(KERNEL, X, points) @ W, relative=1e-13)
    assert_close(found.prior_variance(KERNEL), np.diagonal(W.T @ K @ W), relative=1e-12)
    assert found.prior_variance(KERNEL) is found.prior_variance(cagp.Matern32(0.4, variance=2.0))
    chosen = found.part(np.array([3, 1]))
    assert_close(chosen.prior_variance(KERNEL), found.prior_variance(KERNEL)[[3, 1]], relative=1e-12)
    assert len(chosen.nodes) == (W[:, [1, 3]] != 0.0).any(axis=1).sum()
    both = found.followed_by(cagp.LinearFunctionals.of_points(points[:2]))
    expected = np.append(found.prior_variance(KERNEL), [2.0, 2.0])
    assert_close(both.prior_variance(KERNEL), expected, relative=1e-12)


def test_combinations_are_products_of_the_matrices():
    points, W = drawn()
    C = np.random.default_rng(1).normal(size=(6, 2))
    functionals = cagp.LinearFunctionals(points, W)
    found, expected = functionals.combined(C), cagp.LinearFunctionals(points, W @ C)
    np.testing.assert_array_equal(found.nodes, expected.nodes)
    assert_close(found.matrix().toarray(), expected.matrix().toarray(), relative=1e-14)
    assert len(functionals.combined([1.0, -1.0, 0.0, 0.0, 0.0, 0.0])) == 1


def test_a_node_that_functionals_share_is_evaluated_once_and_the_plan_counts_that():
    """``n N`` evaluations for the covariances of k functionals of the same N points."""
    problem = regression_problem(200, q=1)
    points, W = np.random.default_rng(0).uniform(size=(50, 2)), np.random.default_rng(1).normal(size=(50, 7))
    solver = cagp.BlockGaussSeidel(2, block_size=50)

    def entries(k):
        functionals = cagp.LinearFunctionals(points, W[:, :k])
        found = cagp.condition(problem.prior, problem.X, problem.y, functionals, solver=solver)
        return found.stats.gram_entries

    assert entries(7) == entries(2)
    single = cagp.condition(problem.prior, problem.X, problem.y, points[:2], solver=solver).stats.gram_entries
    assert entries(2) - single == 200 * (50 - 2)


def test_no_functional_and_a_sum_that_is_zero_whatever_the_field():
    problem = regression_problem(100, q=1)
    none = LinearFunctionals.of_points(np.empty((0, 2)))
    point = problem.X_test[0]
    nothing = cagp.LinearFunctionals([point, point], [1.0, -1.0])
    for solver in (cagp.BlockGaussSeidel(2, block_size=30), cagp.Cholesky()):
        found = cagp.condition(problem.prior, problem.X, problem.y, none, solver=solver)
        assert found.mean.shape == found.variance.shape == (0,)
        found = cagp.condition(problem.prior, problem.X, problem.y, nothing, solver=solver)
        assert max(abs(found.mean[0]), abs(found.variance[0])) < 1e-13


def test_weights_that_nearly_cancel_leave_no_false_alarm():
    """A difference over a millionth of the lengthscale: its variance is mostly rounding."""
    problem = regression_problem(150, q=1, kernel_class=cagp.SquaredExponential, lengthscale=0.3)
    near = problem.X_test + np.array([[3e-7, 0.0]])
    difference = cagp.LinearFunctionals(np.concatenate([problem.X_test, near]), [1.0, -1.0])
    found = cagp.condition(problem.prior, problem.X, problem.y, difference, solver=cagp.Cholesky())
    assert abs(found.variance[0]) < 1e-11


def test_bounds_of_the_computational_variance_hold_for_sums():
    """The exact variance is between them, for slopes and for means that reach far."""
    problem = regression_problem(1300, q=1)
    rng = np.random.default_rng(3)
    W = np.zeros((300, 4))
    W[:, 0], W[:, 1], W[:2, 2], W[0, 3] = 1.0 / 300, rng.normal(size=300), (1.0, -1.0), 1.0
    functionals = cagp.LinearFunctionals(rng.uniform(size=(300, 2)), W)
    given = problem.prior, problem.X, problem.y, functionals
    found = cagp.condition(*given, solver=cagp.BlockGaussSeidel(1, block_size=100))
    computational = found.variance - cagp.condition(*given, solver=cagp.Cholesky()).variance
    lower, upper = found.computational_variance_bounds
    assert (lower <= computational + 1e-9).all()
    assert (computational <= upper + 1e-9).all()


@one_after_another
@pytest.mark.parametrize(
    ("points", "weights", "key"),
    [
        (
            [[0.0], [1.0]],
            [1.0],
            "shapes",
        ),
        ([[0.0]], [np.nan], "not-finite"),
        ([[0.0], [1.0]], [[1.0, 0.0], [1.0, 0.0]], "zero-functional"),
        ([0.0], [1.0], "shapes"),
        ([[0.0]], ["a"], "no-numbers"),
        ([[0.0]], [[1.0, 1e160]], "out-of-range"),
        ([[0.0]], [1e-160], "out-of-range"),
    ],
)
def test_refused(points, weights, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.LinearFunctionals(points, weights)
    assert refusal.value.key == key


def test_combinations_are_checked():
    functionals = cagp.LinearFunctionals(*drawn())
    with pytest.raises(ArgumentError) as refusal:
        functionals.combined([1.0, -1.0])
    assert refusal.value.key == "shapes"
    with pytest.raises(ArgumentError) as refused:
        functionals.combined(np.zeros(6))
    assert refused.value.key == "zero-functional"


def test_samples_of_functionals_are_sums_of_samples():
    """Their mean and spread over 2,000 draws, within four standard errors."""
    problem = regression_problem(80, q=20)
    W = np.random.default_rng(0).normal(size=(20, 3))
    functionals = cagp.LinearFunctionals(problem.X_test, W)
    given = problem.prior, problem.X, problem.y, functionals
    solver = cagp.BlockGaussSeidel(1, block_size=20)
    found = cagp.condition(*given, solver=solver)
    samples = cagp.sample_posterior(*given, solver=solver, samples=2000, generator=np.random.default_rng(4))
    assert samples.shape == (2000, 3)
    z = (samples.mean(axis=0) - found.mean) / np.sqrt(found.variance / 2000)
    assert (np.abs(z) < 4.0).all()
    ratio = samples.var(axis=0, ddof=1) / found.variance
    assert (np.abs(ratio - 1.0) < 4.0 * np.sqrt(2.0 / 2000)).all()
