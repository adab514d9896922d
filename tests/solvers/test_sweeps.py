"""Limits of sweeps and updates, and what dampings keep; their identities are in `tests.conformance`."""

import itertools

import numpy as np
import pytest

import cagp_dist as cagp

from ..joined import one_after_another
from ..oracle import assert_close, downdate
from ..problems import regression_problem
from .engine import solver_matrix, weights
from .stages import jacobi_damping

pytestmark = pytest.mark.usefixtures("one_blas_thread")

N = 150


@pytest.fixture(scope="module")
def problem():
    return regression_problem(N, q=25, p=2, lengthscale=0.2)


@pytest.fixture(scope="module")
def dense(problem):
    return problem.dense


@pytest.mark.parametrize(
    "solver", [cagp.SOR(3, 1.0), cagp.BlockJacobi(1, N), cagp.BlockJacobi(3, 1)], ids=repr
)
def test_relaxed_solvers_with_limits_that_are_other_solvers(problem, dense, solver):
    """w = 1 is Gauss-Seidel; one block is the exact solve; blocks of one point are Jacobi."""
    other = {
        cagp.SOR: cagp.GaussSeidel(3),
        cagp.BlockJacobi: cagp.BlockGaussSeidel(1, N)
        if solver == cagp.BlockJacobi(1, N)
        else cagp.Jacobi(3, damping=1.0 / N),
    }[type(solver)]
    mine, same = problem.condition(solver), problem.condition(other)
    assert mine.status is same.status
    assert_close(mine.mean, same.mean)
    assert_close(mine.covariance, same.covariance)


@one_after_another
@pytest.mark.parametrize(
    "solver",
    [
        cagp.Jacobi(1),
        cagp.BlockJacobi(1, 32),
        cagp.BlockJacobi(1, 7),
        cagp.Richardson(1),
        cagp.BlockGaussSeidel(1, 7, order="multicolour", colours=2),
        cagp.SOR(1, 1.9),
    ],
    ids=repr,
)
@pytest.mark.parametrize("lengthscale", [0.02, 0.2, 2.0])
def test_default_damping_never_increases_the_error(solver, lengthscale):
    """W is positive semidefinite, and so is ``Mt W Mt'``, the downdate of one update (math 1.4)."""
    problem = regression_problem(N, lengthscale=lengthscale)
    D = downdate(solver_matrix(problem, solver), problem.dense.G)
    assert np.linalg.eigvalsh(D).min() > -1e-10 * np.abs(D).max()


def test_damping_by_default_is_that_of_the_row_sums(problem, dense):
    given = problem.condition(cagp.Jacobi(3, damping=jacobi_damping(dense.G)))
    default = problem.condition(cagp.Jacobi(3))
    assert_close(default.mean, given.mean, relative=1e-12)
    assert_close(default.covariance, given.covariance, relative=1e-12)


def test_householder_john_every_sweep_contracts(problem, dense):
    """G positive definite and W > 0: the error shrinks in the G-norm with every sweep (math 2)."""
    exact = np.linalg.solve(dense.G, dense.b)
    for solver in (cagp.GaussSeidel, lambda m: cagp.BlockGaussSeidel(m, 32)):
        errors = [exact] + [exact - weights(problem, solver(m), dense.b[:, None])[:, 0] for m in (1, 2, 3, 6)]
        norms = [e @ dense.G @ e for e in errors]
        assert all(later < earlier for earlier, later in itertools.pairwise(norms))


def test_short_lengthscale_makes_one_sweep_exact():
    problem = regression_problem(80, q=5, lengthscale=1e-4)
    posterior, exact = problem.condition(cagp.GaussSeidel(1)), problem.dense.exact()
    assert_close(posterior.mean, exact[0], relative=1e-12)
    assert_close(posterior.covariance, exact[1], relative=1e-12)


def test_permuting_the_points_changes_gauss_seidel_and_nothing_exact():
    problem = regression_problem(90, q=12)
    order = np.random.default_rng(1).permutation(90)
    permuted = type(problem)(problem.prior, problem.X[order], problem.y[order], problem.X_test)
    for solver in (cagp.Cholesky(), cagp.BlockGaussSeidel(2, 90), cagp.ConjugateGradient(7)):
        mine, other = problem.condition(solver), permuted.condition(solver)
        assert_close(mine.mean, other.mean)
        assert_close(mine.covariance, other.covariance)
    for solver in (cagp.GaussSeidel(2), cagp.BlockGaussSeidel(2, 30)):
        mine, other = problem.condition(solver), permuted.condition(solver)
        assert np.abs(mine.variance - other.variance).max() > 1e-4


def test_long_lengthscale_keeps_the_variance_valid():
    """G near rank one: every variance stays between the exact one and the prior's."""
    problem = regression_problem(100, q=20, lengthscale=100.0)
    exact = problem.dense.exact()[1].diagonal()
    for solver in (cagp.GaussSeidel(3), cagp.BlockGaussSeidel(3, 25), cagp.ConjugateGradient(5)):
        variance = problem.condition(solver).variance
        assert (variance >= exact - 1e-10).all()
        assert (variance <= problem.prior.kernel.variance).all()
