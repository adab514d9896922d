"""Polynomials in G and in ``P^-1 G``: the dense formula, bounds of the spectrum, and what they promise."""

import numpy as np
import pytest
from scipy.linalg import eigh

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.runtime import ThreadExecutor
from cagp_dist.runtime.counting import counted_work
from cagp_dist.solvers.stationary.preconditioners import find_preconditioner

from ..joined import one_after_another
from ..oracle import assert_close, compose, downdate
from ..pairwise import by_turns
from ..problems import RegressionProblem, regression_problem
from .engine import SERIAL, opened, states_of, tiled
from .stages import chebyshev_matrix

pytestmark = pytest.mark.usefixtures("one_blas_thread")

N = 300
LOW_RANK = ["pivoted-cholesky", "nystrom"]
KINDS = [*LOW_RANK, "vecchia"]


@pytest.fixture(scope="module")
def problem() -> RegressionProblem:
    noise = 0.02 * 40.0 ** np.random.default_rng(1).uniform(-0.5, 0.5, size=N)
    return regression_problem(N, q=20, lengthscale=0.3, noise_variance=noise)


def preconditioned(problem, solver):
    """P, and the stage with the bounds that the solver works with."""
    made = find_preconditioner(solver.preconditioner, solver.preconditioner_size)
    P = np.linalg.inv(made.of(tiled(problem), executor=SERIAL).solve(np.eye(N)))
    _, (stage,) = opened(problem, solver, problem.dense.b[:, None], q=5, workers=1)
    return P, stage


@pytest.mark.parametrize(
    ("kind", "rank", "iterations"), by_turns({"kind": list(KINDS), "rank": [1, 40], "iterations": [1, 2, 6]})
)
def test_preconditioned_chebyshev_is_the_polynomial(problem, kind, rank, iterations):
    """``Dt = Wt' (V' + Y)`` for all i from one pass (T5), and the mean by the forward pass (T2)."""
    dense = problem.dense
    solver = cagp.Chebyshev(iterations, preconditioner=kind, preconditioner_size=rank)
    P, stage = preconditioned(problem, solver)
    A = chebyshev_matrix(dense.G, stage.low, stage.high, iterations, np.linalg.inv(P))
    assert_close(A, A.T, relative=1e-8)
    mean, covariance = dense.belief(A)
    with ThreadExecutor(3) as executor:
        posterior = problem.condition(solver, executor=executor)
    assert_close(posterior.mean, mean)
    assert_close(posterior.covariance, covariance)
    forward = cagp.posterior_mean(problem.prior, problem.X, problem.y, problem.X_test, solver=solver)
    assert_close(forward, mean)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [None, 0.003])
def test_preconditioned_richardson_is_the_stationary_scheme(problem, kind, step):
    dense = problem.dense
    solver = cagp.Richardson(4, step, preconditioner=kind, preconditioner_size=30)
    P, stage = preconditioned(problem, solver)
    assert stage.step == (2.0 / (stage.low + stage.high) if step is None else step)
    A, D, _ = compose(dense.G, [stage.step * np.linalg.inv(P)] * 4)
    posterior = problem.condition(solver)
    assert_close(posterior.mean, dense.belief(A)[0])
    assert_close(posterior.covariance, dense.K2 - dense.V @ D @ dense.V.T)
    assert posterior.stats.downdate_psd


@pytest.mark.parametrize(
    ("kind", "rank"), [(None, None), *[(kind, rank) for kind in LOW_RANK for rank in (1, 20, N)]]
)
def test_the_spectrum_is_within_its_bounds(problem, kind, rank):
    """So that the downdate is positive semidefinite, ``(1 - r^2) / lambda`` with ``|r| <= 1``."""
    solver = cagp.Chebyshev(3, preconditioner=kind, preconditioner_size=rank)
    G = problem.dense.G
    if kind is None:
        P = np.eye(N)
        _, (stage,) = opened(problem, solver, problem.dense.b[:, None], q=5, workers=1)
    else:
        P, stage = preconditioned(problem, solver)
    spectrum = eigh(G, P, eigvals_only=True)
    assert stage.low * (1.0 - 1e-9) <= spectrum[0]
    assert spectrum[-1] <= stage.high * (1.0 + 1e-9)
    assert stage.high <= (3.0 if kind is None else 1.06) * spectrum[-1]
    for iterations in (1, 2, 7):
        A = chebyshev_matrix(G, stage.low, stage.high + 1e-9, iterations, np.linalg.inv(P))
        D = downdate(A, G)
        assert np.linalg.eigvalsh(0.5 * (D + D.T)).min() > -1e-9 * np.abs(D).max()


@one_after_another
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [0.9, 0.98, 1.02, 10.0])
def test_a_preconditioned_step_that_diverges_is_refused(problem, kind, part):
    solver = cagp.Richardson(2, preconditioner=kind, preconditioner_size=20)
    P, _ = preconditioned(problem, solver)
    largest = 2.0 / eigh(problem.dense.G, P, eigvals_only=True)[-1]
    given = cagp.Richardson(2, float(part * largest), preconditioner=kind, preconditioner_size=20)
    if part > 1.0:
        with pytest.raises(ArgumentError) as refused:
            problem.condition(given)
        assert refused.value.key == "relaxation"
    else:
        posterior = problem.condition(given)
        assert posterior.status.ok
        assert posterior.stats.downdate_psd == (part < 0.95)


def test_a_good_preconditioner_needs_few_iterations(problem):
    """At the rank of what is smooth 12 products are nearly exact, where 12 of G alone are far from it."""
    exact = problem.dense.exact()[1].diagonal()
    good = problem.condition(cagp.Chebyshev(12, preconditioner="pivoted-cholesky", preconditioner_size=100))
    plain = problem.condition(cagp.Chebyshev(12))
    assert np.sqrt(good.variance / exact).max() < 1.01
    assert np.sqrt(plain.variance / exact).min() > 1.2


@pytest.mark.parametrize("neighbours", [1, 30])
def test_polynomials_with_the_factor_of_vecchia_do_not_grow(problem, neighbours):
    """``|r| <= 1`` up to the sum of the bounds, of which the lower one need not be sharp."""
    P, stage = preconditioned(
        problem, cagp.Chebyshev(3, preconditioner="vecchia", preconditioner_size=neighbours)
    )
    G = problem.dense.G
    spectrum = eigh(G, P, eigvals_only=True)
    assert stage.low <= 1.0 <= stage.high
    assert spectrum[-1] <= stage.low + stage.high
    assert 0.3 * stage.low <= spectrum[0] <= 1.2 * stage.low
    assert spectrum[-1] <= stage.high <= 1.06 * spectrum[-1]
    for iterations in (1, 2, 7):
        A = chebyshev_matrix(G, stage.low, stage.high, iterations, np.linalg.inv(P))
        D = downdate(A, G)
        assert np.linalg.eigvalsh(0.5 * (D + D.T)).min() > -1e-9 * np.abs(D).max()


def test_three_products_with_the_factor_of_vecchia_are_nearly_exact(problem):
    exact = problem.dense.exact()[1].diagonal()
    near = problem.condition(cagp.Chebyshev(3, preconditioner="vecchia"))
    swept = problem.condition(cagp.BlockGaussSeidel(10, 30))
    assert np.sqrt(near.variance / exact).max() < 1.01 < np.sqrt(swept.variance / exact).max()
    steps = problem.condition(cagp.ConjugateGradient(6, preconditioner="vecchia"))
    assert steps.stats.relative_residual < 1e-6


def test_few_steps_bound_a_spectrum_and_promise_nothing(problem, monkeypatch):
    """At many points steps end where both ends stand still: nearly the same belief, at less than half."""
    solver = cagp.Chebyshev(3, preconditioner="vecchia", preconditioner_size=30)
    with counted_work() as sure:
        expected = problem.condition(solver)
    monkeypatch.setattr("cagp_dist.solvers.stationary.spectrum.SURE_POINTS", 0)
    with counted_work() as counted:
        found = problem.condition(solver)
    assert 2 * (counted.products - 60) < sure.products - 60
    np.testing.assert_allclose(np.sqrt(found.variance), np.sqrt(expected.variance), rtol=0.005)
    assert expected.stats.downdate_psd
    assert not found.stats.downdate_psd


@pytest.mark.parametrize("bounds", [(0.95, 0.95), (0.1, 0.2), (1e-6, 40.0)])
def test_error_bars_are_exact_with_bounds_that_are_wrong(problem, bounds, monkeypatch):
    """``D = A + A' - A G A'`` (T5) whatever the polynomial is: bounds only decide how good it is."""
    monkeypatch.setattr("cagp_dist.solvers.stationary.spectrum._around_one", lambda *_: (*bounds, False))
    dense = problem.dense
    solver = cagp.Chebyshev(2, preconditioner="vecchia", preconditioner_size=2)
    P, stage = preconditioned(problem, solver)
    assert stage.low == bounds[0]
    A = chebyshev_matrix(dense.G, stage.low, stage.high, 2, np.linalg.inv(P))
    mean, covariance = dense.belief(A)
    posterior = problem.condition(solver)
    assert_close(posterior.mean, mean)
    assert_close(posterior.covariance, covariance)


def test_points_that_coincide_without_noise_are_refused(problem):
    X = np.concatenate([problem.X[:50], problem.X[:1]])
    prior = cagp.Prior(problem.prior.kernel, noise_variance=1e-18)
    for solver in (cagp.Chebyshev(2, preconditioner="vecchia"), cagp.ConjugateGradient(2, "vecchia")):
        with pytest.raises(NumericalError) as refusal:
            cagp.condition(prior, X, problem.y[:51], problem.X_test, solver=solver)
        assert refusal.value.key == "not-positive-definite"


def test_going_on_from_a_state_begins_a_polynomial_afresh():
    """Two of degree 2, the second applied to the data first: still a belief of theorem 1.1 (math 1.2)."""
    problem = regression_problem(120, q=10)
    dense, b = problem.dense, problem.dense.b[:, None]
    solver = cagp.Chebyshev(2)
    *_, begun = states_of(tiled(problem), solver, b, problem.X_test, full=True, keep_leftover=True)
    *_, ended = states_of(tiled(problem), solver, b, problem.X_test, full=True, start=begun)
    part = chebyshev_matrix(dense.G, 0.02, dense.G.sum(axis=1).max(), 2, np.eye(120))
    A, D, _ = compose(dense.G, [part, part])
    assert ended.iteration == 4
    assert_close(ended.mean[:, 0], dense.V @ A @ dense.b)
    assert_close(ended.downdate, dense.V @ D @ dense.V.T)
