"""Actions: what they leave, where they end, and what is skipped; identities are in `tests.conformance`."""

import dataclasses

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers import Problem
from cagp_dist.solvers.actions.batch_projection import DenseActions, belief_states
from cagp_dist.solvers.actions.eigenvectors import fix_rotation
from cagp_dist.solvers.stationary.preconditioners import PRECONDITIONERS

from ..joined import one_after_another
from ..oracle import assert_close, kernel_matrix
from ..problems import RegressionProblem, regression_problem
from .engine import tiled
from .policies import known, policies, with_count

pytestmark = pytest.mark.usefixtures("one_blas_thread")

N, ACTIONS = 60, 12
SERIAL = SerialExecutor()
POLICIES = policies(ACTIONS, rank=20, block=15, first=(5, 4))
PLAIN = {name: solver for name, solver in POLICIES.items() if not isinstance(solver, cagp.MixedActions)}
KNOWN = known(POLICIES)
every_policy = pytest.mark.parametrize("solver", POLICIES.values(), ids=POLICIES)


def actions_of(problem, solver):
    """S of a policy that does not look at the data, (N, i)."""
    return solver.made(tiled(problem), executor=SERIAL).columns(N)


@pytest.fixture(scope="module")
def problem() -> RegressionProblem:
    drawn = regression_problem(N, p=3, kernel_class=cagp.Matern12, lengthscale=0.1, noise_variance=0.1)
    return RegressionProblem(drawn.prior, drawn.X, drawn.y, drawn.X)


@pytest.fixture(scope="module")
def dense(problem):
    return problem.dense


def test_t22_all_points_are_no_subset(problem):
    exact, posterior = problem.condition(cagp.Cholesky()), problem.condition(cagp.SubsetOfData(3 * N))
    assert posterior.status is cagp.Status.EXACT
    assert_close(posterior.covariance, exact.covariance)


def test_pivoted_points_know_more_than_points_at_random(problem):
    """The reason why they are the default: less variance is left at the points."""
    pivoted, random = (
        problem.condition(cagp.UnitVectors(ACTIONS, order=order)).variance for order in ("pivoted", "random")
    )
    assert pivoted.max() < random.max()
    assert pivoted.mean() < random.mean()


def test_eigenvectors_leave_the_least_entropy_at_the_points(problem, dense):
    """No other actions do better [Wenger et al. 2024, lemma S5]."""
    least = np.linalg.slogdet(problem.condition(POLICIES["eigenvectors"]).covariance)[1]
    vectors = np.linalg.eigh(dense.G)[1]
    assert_close(problem.condition(POLICIES["eigenvectors"]).mean, dense.projected(vectors[:, -ACTIONS:])[0])
    for name, solver in KNOWN.items():
        entropy = np.linalg.slogdet(problem.condition(solver).covariance)[1]
        assert entropy > least or name == "eigenvectors"


@pytest.mark.parametrize("name", PRECONDITIONERS)
def test_a_preconditioner_makes_the_mean_converge_and_not_the_error_bars(name):
    """A smooth field and little noise, ten iterations: the residual is a fifth of that without one.

    The variance counts ten directions all the same, and those chosen for this y teach little of others.
    """
    problem = regression_problem(200, q=5, lengthscale=0.5, noise_variance=1e-3)
    plain, better = (
        problem.condition(cagp.ConjugateGradient(10, *settings)) for settings in ((), (name, 60))
    )
    assert better.stats.relative_residual < 0.2 * plain.stats.relative_residual
    assert better.variance.mean() > 1.1 * plain.variance.mean()


def test_preconditioners_are_named_right():
    with pytest.raises(ArgumentError) as refused:
        cagp.ConjugateGradient(5, preconditioner="ilu")
    assert refused.value.key == "preconditioner-unknown"
    with pytest.raises(ArgumentError) as refused:
        cagp.ConjugateGradient(5, preconditioner_size=5)
    assert refused.value.key == "no-preconditioner"


def test_gradients_after_other_actions_follow_what_these_left(problem, dense):
    """The first of them is the residual of the belief before."""
    points = actions_of(problem, cagp.UnitVectors(5))
    v = points @ np.linalg.solve(points.T @ dense.G @ points, points.T @ dense.b)
    mean, covariance = dense.projected(np.column_stack([points, dense.b - dense.G @ v]))
    step = problem.condition(POLICIES["points, then gradients"]).trace[6]
    assert_close(step.mean, mean)
    assert_close(step.variance, covariance.diagonal())


def test_parts_that_repeat_each_other_are_skipped_and_counted(problem):
    """Pivoted points begin with the same ones, however many there are."""
    mixed = problem.condition(cagp.MixedActions([cagp.UnitVectors(5), cagp.UnitVectors(8)]))
    plain = problem.condition(cagp.UnitVectors(8))
    assert (mixed.stats.iterations, mixed.stats.dropped_actions) == (8, 5)
    assert mixed.status is cagp.Status.COMPLETED
    assert_close(mixed.covariance, plain.covariance)
    last = problem.condition(cagp.MixedActions([cagp.UnitVectors(5), cagp.UnitVectors(5)]))
    assert (last.stats.iterations, last.stats.dropped_actions) == (5, 5)
    assert len(last.trace) == 6


def test_mixed_actions_are_as_calibrated_as_their_parts(problem):
    independent, mixed = POLICIES["two kinds"], POLICIES["points, then gradients"]
    assert (independent.calibrated, independent.many_fields) == ("exact", True)
    assert (mixed.calibrated, mixed.many_fields) == ("approximate", False)
    with pytest.raises(ArgumentError) as refused:
        regression_problem(20, fields=3).condition(mixed)
    assert refused.value.key == "several-fields"
    assert problem.condition(mixed).stats.relative_residual < 1.0
    assert problem.condition(independent).stats.relative_residual is None


def test_mixed_actions_can_be_written_as_text():
    written = cagp.MixedActions(" unit-vectors 5,conjugate-gradient  7")
    assert written == cagp.MixedActions([cagp.UnitVectors(5), cagp.ConjugateGradient(7)])
    assert written.iterations == 12
    for text in ("", "unit-vectors", "unit-vectors 5 6", "cholesky 3", "unit-vectors -1"):
        with pytest.raises(ArgumentError) as refusal:
            cagp.MixedActions(text)
        assert refusal.value.key == "parts-of-solver"
    with pytest.raises(ArgumentError) as refusal:
        cagp.MixedActions([cagp.Cholesky()])
    assert refusal.value.key == "parts-of-solver"
    for parts in ([], None, cagp.UnitVectors(3)):
        with pytest.raises(ArgumentError) as refusal:
            cagp.MixedActions(parts)
        assert refusal.value.key == "parts-of-solver"


def test_pseudo_inputs_anywhere_are_the_formula(problem, dense):
    """``V K_XZ (K_ZX G K_XZ)^-1 K_ZX b`` for points that were not observed."""
    Z = np.random.default_rng(6).uniform(size=(9, 3))
    posterior = problem.condition(cagp.PseudoInputs.at_points(Z))
    mean, covariance = dense.projected(kernel_matrix(problem.prior.kernel, problem.X, Z))
    assert_close(posterior.mean, mean)
    assert_close(posterior.covariance, covariance)
    assert cagp.PseudoInputs.at_points(Z) == cagp.PseudoInputs(9, at=Z)
    with pytest.raises(ArgumentError) as refused:
        cagp.PseudoInputs.at_points(np.empty((0, 2)))
    assert refused.value.key == "no-points"
    with pytest.raises(ArgumentError) as refused:
        cagp.PseudoInputs(10, at=Z)
    assert refused.value.key == "few-pseudo-inputs"


@one_after_another
@pytest.mark.parametrize("solver", PLAIN.values(), ids=PLAIN)
def test_no_actions_are_the_prior(problem, dense, solver):
    posterior = problem.condition(with_count(solver, 0))
    np.testing.assert_array_equal(posterior.mean, dense.centre)
    assert_close(posterior.covariance, dense.K2, relative=1e-14)
    assert posterior.status is cagp.Status.COMPLETED


@one_after_another
@every_policy
def test_one_point_is_solved_exactly(solver):
    """Whatever the actions: there is one direction."""
    one = regression_problem(1, q=4)
    posterior, exact = one.condition(solver), one.condition(cagp.Cholesky())
    assert posterior.stats.iterations == 1
    assert posterior.status in (cagp.Status.EXACT, cagp.Status.CONVERGED)
    assert_close(posterior.mean, exact.mean)
    assert_close(posterior.covariance, exact.covariance)


@one_after_another
@every_policy
def test_nothing_to_learn_is_no_division_by_zero(problem, dense, solver):
    """b = 0: what follows the residual stops at once, what does not goes on as ever."""
    quiet = dataclasses.replace(problem, y=np.ravel(problem.y - dense.b))
    posterior = quiet.condition(solver)
    assert_close(posterior.mean, dense.centre, relative=1e-14)
    if solver.calibrated == "exact":
        np.testing.assert_array_equal(posterior.variance, problem.condition(solver).variance)
    else:
        assert posterior.status is cagp.Status.CONVERGED
        parts = getattr(solver, "parts", ())
        assert posterior.stats.iterations == sum(p.iterations for p in parts if p.calibrated == "exact")


def projected(problem, S):
    """The last state of given actions."""
    *_, state = belief_states(as_problem(problem), DenseActions(S), executor=SERIAL)
    return state


def as_problem(problem):
    return Problem(tiled(problem), problem.dense.b[:, None], problem.X_test, full_covariance=True)


def test_dependent_repeated_and_zero_actions_are_skipped_and_counted(problem, dense):
    """Wherever they stand, and however long they are."""
    rng = np.random.default_rng(8)
    S = rng.standard_normal((N, 5))
    mean, covariance = dense.projected(S)
    extra = {
        "repeated": S[:, [2]],
        "zero": np.zeros((N, 1)),
        "dependent": 1e30 * S[:, :3] @ rng.standard_normal((3, 1)),
        "nearly dependent": S[:, [1]] * (1.0 + 1e-14 * rng.standard_normal((N, 1))),
    }
    for columns in (*extra.values(), np.concatenate(list(extra.values()), axis=1)):
        for place in (0, 3, 5):
            state = projected(problem, np.concatenate([S[:, :place], columns, S[:, place:]], axis=1))
            assert (state.iteration, state.dropped) == (5, columns.shape[1])
            assert_close(state.mean[:, 0], mean - dense.centre, relative=1e-8)
            assert_close(state.downdate, dense.K2 - covariance, relative=1e-8)


def test_no_action_but_zeros_leaves_the_prior(problem):
    state = projected(problem, np.zeros((N, 3)))
    assert (state.iteration, state.dropped, state.status) == (0, 3, cagp.Status.COMPLETED)
    assert not state.mean.any()
    assert not state.downdate.any()


def test_more_actions_than_points_leave_the_exact_posterior(problem, dense):
    state = projected(problem, np.random.default_rng(8).standard_normal((N, N + 7)))
    assert (state.iteration, state.dropped, state.status) == (N, 7, cagp.Status.EXACT)
    assert_close(dense.K2 - state.downdate, dense.exact()[1])


def test_pseudo_inputs_that_repeat_or_see_nothing_are_skipped_and_counted(problem):
    Z = np.random.default_rng(6).uniform(size=(4, 3))
    plain = problem.condition(cagp.PseudoInputs.at_points(Z))
    far = np.full((1, 3), 1e9)  # its kernel function is zero at every observed point
    doubled = problem.condition(cagp.PseudoInputs.at_points(np.concatenate([Z[:2], Z[:1], far, Z[2:]])))
    assert (plain.stats.dropped_actions, doubled.stats.dropped_actions) == (0, 2)
    assert doubled.stats.iterations == 4
    assert doubled.status is cagp.Status.COMPLETED
    assert_close(doubled.covariance, plain.covariance)


def test_points_that_coincide_without_noise_are_skipped_and_counted():
    """Cholesky refuses this matrix; unit vectors take each place once."""
    X = np.repeat(np.linspace(0.0, 1.0, 8), 2).reshape(-1, 1)
    prior, y = cagp.Prior(cagp.Matern32(0.5), noise_variance=1e-300), np.repeat(np.arange(8.0), 2)
    posterior = cagp.condition(prior, X, y, X, solver=cagp.UnitVectors(16))
    assert (posterior.stats.iterations, posterior.stats.dropped_actions) == (8, 8)
    np.testing.assert_allclose(posterior.mean, y, atol=1e-12)
    np.testing.assert_allclose(posterior.variance, 0.0, atol=1e-12)


def test_eigenvectors_of_one_eigenvalue_do_not_depend_on_rounding():
    """A grid has pairs of them; the first of a pair alone is the same on any rotation of the found ones."""
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((30, 9)))[0]
    values = np.array([5.0, 3.0, 3.0, 3.0, 2.0, 1.0, 1.0, 0.5, 0.5])
    turned = vectors.copy()
    for group in ([1, 2, 3], [5, 6], [7, 8]):
        turned[:, group] = vectors[:, group] @ np.linalg.qr(rng.standard_normal((len(group),) * 2))[0]
    one, two = fix_rotation(values, vectors), fix_rotation(values * (1.0 + 1e-13), turned)
    for count in range(1, 10):
        assert_close(one[:, :count] @ one[:, :count].T, two[:, :count] @ two[:, :count].T)
    assert_close(one.T @ one, np.eye(9))


def test_leading_eigenvectors_are_found_by_products(problem, monkeypatch):
    """Where points are many G is not decomposed as a whole."""
    whole = problem.condition(cagp.Eigenvectors(6))
    monkeypatch.setattr("cagp_dist.solvers.actions.eigenvectors.DENSE_POINTS", 10)
    assert_close(problem.condition(cagp.Eigenvectors(6)).covariance, whole.covariance, relative=1e-8)


def test_krylov_actions_span_the_krylov_space_of_their_first(problem, dense):
    solver = POLICIES["Lanczos vectors"]
    S = actions_of(problem, solver)
    powers = [S[:, 0]]
    for _ in range(5):
        powers.append(dense.G @ powers[-1])
        powers[-1] /= np.linalg.norm(powers[-1])
    first = np.linalg.qr(np.stack(powers, axis=1))[0]
    assert_close(first @ first.T, S[:, :6] @ S[:, :6].T, relative=1e-7)


def test_krylov_actions_begin_anew_where_a_space_is_exhausted():
    """Noise alone: G is a multiple of one, and each space has one dimension."""
    X = np.arange(12.0).reshape(-1, 1) * 1e6
    prior, y = cagp.Prior(cagp.Matern32(1.0), noise_variance=0.5), np.arange(12.0)
    posterior = cagp.condition(prior, X, y, X, solver=cagp.KrylovActions(12))
    assert posterior.status is cagp.Status.EXACT
    np.testing.assert_allclose(posterior.mean, y / 1.5, rtol=0.0, atol=1e-12)


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
    with pytest.raises(ArgumentError) as refused:
        problem.condition(cagp.ConjugateGradient(2))
    assert refused.value.key == "several-fields"
