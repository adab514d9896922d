"""Identities T15-T24 of the mathematics page, for conjugate gradients and random actions.

With X' = X and a short lengthscale, V = K is well conditioned, so that the downdates a solver yields
give back its matrix: ``D = K^-1 (V D V') K^-1``.
"""

import itertools

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError

from ..oracle import assert_close, conjugate_gradients
from ..problems import RegressionProblem, regression_problem
from .engine import states_of, tiled

pytestmark = pytest.mark.usefixtures("one_blas_thread")

N = 60
both = pytest.mark.parametrize(
    "solver", [cagp.ConjugateGradient(12), cagp.RandomActions(12, seed=3)], ids=["cg", "random"]
)


@pytest.fixture(scope="module")
def problem() -> RegressionProblem:
    drawn = regression_problem(N, p=3, kernel_class=cagp.Matern12, lengthscale=0.1, noise_variance=0.1)
    return RegressionProblem(drawn.prior, drawn.X, drawn.y, drawn.X)


@pytest.fixture(scope="module")
def dense(problem):
    return problem.dense


def states(problem, solver):
    """Every state of a solver, with full downdates."""
    return states_of(tiled(problem), solver, problem.dense.b[:, None], problem.X_test, full=True)


def matrices(problem, solver):
    """D after every action."""
    factor = cho_factor(problem.dense.V)
    return [cho_solve(factor, cho_solve(factor, state.downdate).T) for state in states(problem, solver)]


@both
def test_t15_directions_are_conjugate(problem, dense, solver):
    """The increments ``d_i d_i' / eta_i`` of D annihilate each other through G."""
    D = [np.zeros((N, N)), *matrices(problem, solver)]
    increments = [later - earlier for earlier, later in itertools.pairwise(D)]
    for i, increment in enumerate(increments):
        assert_close(increment @ dense.G @ increment, increment, relative=1e-8)
        assert np.linalg.matrix_rank(increment, tol=1e-8 * np.abs(increment).max()) == 1
        for other in increments[:i]:
            bound = 1e-8 * np.linalg.norm(increment) * np.linalg.norm(other) * np.linalg.norm(dense.G)
            assert np.abs(increment @ dense.G @ other).max() < bound


@both
def test_t16_matrix_is_a_projection_in_g(problem, dense, solver):
    for D in matrices(problem, solver):
        assert_close(D @ dense.G @ D, D, relative=1e-8)


def test_t16_n_actions_give_the_inverse(problem, dense):
    D = matrices(problem, cagp.RandomActions(N, seed=1))[-1]
    assert_close(D, np.linalg.inv(dense.G), relative=1e-8)


def test_t17_belief_depends_on_the_span_alone(problem, dense):
    S = np.random.default_rng(3).standard_normal((N, 12))
    W = np.random.default_rng(4).normal(size=(12, 12))
    posterior = problem.condition(cagp.RandomActions(12, seed=3))
    for actions in (S, S @ W, S[:, ::-1] * np.geomspace(1e-3, 1e3, 12)):
        mean, covariance = dense.projected(actions)
        assert_close(posterior.mean, mean)
        assert_close(posterior.covariance, covariance)


def test_t17_trace_has_the_belief_after_the_first_actions(problem, dense):
    S = np.random.default_rng(3).standard_normal((N, 12))
    for step in problem.condition(cagp.RandomActions(12, seed=3)).trace[1:]:
        mean, covariance = dense.projected(S[:, : step.iteration])
        assert_close(step.mean, mean)
        assert_close(step.variance, covariance.diagonal())


@both
def test_t18_variance_falls_with_every_action_and_stays_above_the_exact_one(problem, dense, solver):
    exact = dense.exact()[1].diagonal()
    variances = [step.variance for step in problem.condition(solver).trace]
    for earlier, later in itertools.pairwise(variances):
        assert (later <= earlier).all()
        assert (later < earlier).any()
    assert (variances[-1] >= exact - 1e-12).all()


@both
def test_t19_mean_is_the_downdate_matrix_times_the_data(problem, dense, solver):
    for state, D in zip(states(problem, solver), matrices(problem, solver), strict=True):
        assert_close(state.mean[:, 0], dense.V @ D @ dense.b, relative=1e-8)


@pytest.mark.parametrize("iterations", [N, 3 * N])
def test_t20_n_actions_are_the_exact_posterior(problem, iterations):
    exact = problem.condition(cagp.Cholesky())
    posterior = problem.condition(cagp.RandomActions(iterations, seed=2))
    assert posterior.stats.iterations == N
    assert posterior.status is cagp.Status.EXACT
    assert_close(posterior.mean, exact.mean)
    assert_close(posterior.covariance, exact.covariance)


def test_t21_belief_is_conditioning_on_projected_data(problem, dense):
    """The prior given ``S'y``, whose noise covariance is ``noise S'S``."""
    S = np.random.default_rng(3).standard_normal((N, 12))
    K = dense.G - problem.prior.noise_variance * np.eye(N)
    cross = dense.V @ S
    data_covariance = S.T @ K @ S + problem.prior.noise_variance * S.T @ S
    posterior = problem.condition(cagp.RandomActions(12, seed=3))
    assert_close(posterior.mean, dense.centre + cross @ np.linalg.solve(data_covariance, S.T @ dense.b))
    assert_close(posterior.covariance, dense.K2 - cross @ np.linalg.solve(data_covariance, cross.T))


def test_t22_unit_vectors_are_the_exact_posterior_of_a_subset(problem, dense):
    chosen = np.random.default_rng(5).choice(N, size=20, replace=False)
    subset = RegressionProblem(problem.prior, problem.X[chosen], problem.y[chosen], problem.X_test)
    posterior = subset.condition(cagp.Cholesky())
    mean, covariance = dense.projected(np.eye(N)[:, chosen])
    assert_close(posterior.mean, mean)
    assert_close(posterior.covariance, covariance)


@pytest.mark.parametrize("iterations", [1, 2, 7, 25])
def test_t23_mean_is_that_of_conjugate_gradients(problem, dense, iterations):
    iterates, _ = conjugate_gradients(dense.G, dense.b, iterations)
    trace = problem.condition(cagp.ConjugateGradient(iterations)).trace
    for step, iterate in zip(trace[1:], iterates, strict=True):
        assert_close(step.mean, dense.centre + dense.V @ iterate)


def test_t24_pseudo_inputs_at_every_point_are_the_exact_posterior(problem, dense):
    mean, covariance = dense.projected(dense.V.T)  # s_i = k(X, z_i) with Z = X
    posterior = problem.condition(cagp.Cholesky())
    assert_close(posterior.mean, mean, relative=1e-6)
    assert_close(posterior.covariance, covariance, relative=1e-6)


def test_conjugate_gradients_converge_to_the_exact_mean_and_say_so(problem, dense):
    """They stop when the residual is spent: the variance then still counts what was never looked at."""
    posterior = problem.condition(cagp.ConjugateGradient(10 * N))
    assert posterior.status is cagp.Status.CONVERGED
    assert posterior.status.ok
    assert posterior.stats.relative_residual <= 1e-14
    assert posterior.stats.iterations < N
    mean, covariance = dense.exact()
    assert_close(posterior.mean, mean, relative=1e-12)
    assert (posterior.variance >= covariance.diagonal()).all()


def test_conjugate_gradients_stop_where_the_data_is_spanned():
    """b is a combination of three eigenvectors of G: three actions reach rounding."""
    problem = regression_problem(50, q=8)
    eigenvectors = np.linalg.eigh(problem.dense.G)[1]
    y = eigenvectors[:, [-1, -4, -9]].sum(axis=1)
    prior = cagp.Prior(problem.prior.kernel, problem.prior.noise_variance)
    few = RegressionProblem(prior, problem.X, y, problem.X_test)
    posterior = few.condition(cagp.ConjugateGradient(40))
    assert posterior.stats.iterations <= 5
    assert posterior.stats.relative_residual < 1e-12
    assert_close(posterior.mean, few.dense.exact()[0])


def test_breakdown_is_reported_with_advice():
    """A Gram matrix of condition 1e16: directions become dependent before the residual is small."""
    X = np.repeat(np.linspace(0.0, 1.0, 30), 2).reshape(-1, 1)
    prior = cagp.Prior(cagp.SquaredExponential(lengthscale=1.0), noise_variance=1e-16)
    y = np.random.default_rng(0).normal(size=60)
    posterior = cagp.condition(prior, X, y, [[0.5]], solver=cagp.ConjugateGradient(60))
    assert posterior.status is cagp.Status.BREAKDOWN
    assert not posterior.status.ok
    assert "Raise noise_variance" in posterior.status.advice
    assert posterior.stats.iterations < 60
    assert posterior.stats.relative_residual > 1e-3
    assert posterior.variance[0] >= -1e-8  # of a prior variance of 1: rounding


def test_several_fields_are_refused_by_conjugate_gradients():
    problem = regression_problem(20, fields=3)
    with pytest.raises(ArgumentError, match="y holds 3 fields; conjugate gradients follow one"):
        problem.condition(cagp.ConjugateGradient(2))
