"""Identities T1-T14 of the mathematics page, for every affine solver that they hold for."""

import itertools

import numpy as np
import pytest

import cagp_dist as cagp

from ..oracle import (
    algorithm_2,
    assert_close,
    block_diagonal,
    block_lower,
    compose,
    downdate,
)
from ..problems import regression_problem
from .engine import solver_matrix, sweep, weights
from .stages import Diverging, dense_cycles, dense_stage, half_sweep, jacobi_damping, visits, weight

pytestmark = pytest.mark.usefixtures("one_blas_thread")

N = 150
SOLVERS = [
    cagp.GaussSeidel(1),
    cagp.GaussSeidel(4),
    cagp.BlockGaussSeidel(1, 32),
    cagp.BlockGaussSeidel(3, 32),
    cagp.BlockGaussSeidel(2, 1),
    cagp.BlockGaussSeidel(2, 149),
    cagp.GaussSeidel(3, order="random", seed=1),
    cagp.BlockGaussSeidel(3, 32, order="random"),
]
RELAXED = [
    cagp.SOR(1, 1.5),
    cagp.SOR(3, 0.6),
    cagp.SOR(3, 1.3, order="random"),
    cagp.SSOR(1, 1.5),
    cagp.SSOR(2, 1.0),
    cagp.SSOR(3, 0.6),
    cagp.Jacobi(1),
    cagp.Jacobi(4),
    cagp.Jacobi(2, damping=0.02),
    Diverging(2, damping=0.4),
    cagp.BlockJacobi(1, 32),
    cagp.BlockJacobi(3, 32),
    cagp.BlockJacobi(2, 149, damping=0.8),
    cagp.BlockJacobi(2, 1, damping=0.01),
    cagp.BlockGaussSeidel(1, 32, order="multicolour", colours=2),
    cagp.BlockGaussSeidel(3, 7, order="multicolour", colours=4),
    cagp.BlockGaussSeidel(2, 32, order="multicolour", colours=9),
    cagp.Richardson(1),
    cagp.Richardson(4),
    cagp.Richardson(2, step=0.01),
    cagp.Chebyshev(1),
    cagp.Chebyshev(4),
    cagp.TwoLevelBlockGaussSeidel(1, 32, coarse=1),
    cagp.TwoLevelBlockGaussSeidel(3, 149, coarse=20),
    cagp.TwoLevelBlockJacobi(2, 32, coarse=20, damping=0.5),
]
STATIONARY = [
    solver
    for solver in [*SOLVERS, *RELAXED]
    if getattr(solver, "order", "given") != "random" and not isinstance(solver, cagp.Chebyshev)
]
every_stationary_solver = pytest.mark.parametrize("solver", STATIONARY, ids=repr)
every_affine_solver = pytest.mark.parametrize("solver", [*SOLVERS, *RELAXED], ids=repr)
every_solver = pytest.mark.parametrize("solver", SOLVERS, ids=repr)


@pytest.fixture(scope="module")
def problem():
    return regression_problem(N, q=25, p=2, lengthscale=0.2)


@pytest.fixture(scope="module")
def dense(problem):
    return problem.dense


def diagonal(solver, G):
    """W = N + N' - G: the diagonal, or the diagonal blocks."""
    block = isinstance(solver, cagp.BlockGaussSeidel)
    return block_diagonal(G, solver.block_size) if block else np.diag(np.diag(G))


@every_affine_solver
def test_t1_variance_is_the_worst_case_error(problem, dense, solver):
    """``w' Kaug w = kt(x, x) + noise`` with ``w = [-A'V_x'; 1]``."""
    A, noise = solver_matrix(problem, solver), problem.prior.noise_variance
    variance = problem.condition(solver).variance
    for x, (V_x, expected) in enumerate(zip(dense.V, variance + noise, strict=True)):
        w = np.append(-A.T @ V_x, 1.0)
        Kaug = np.block([[dense.G, V_x[:, None]], [V_x, dense.K2[x, x] + noise]])
        assert w @ Kaug @ w == pytest.approx(expected, rel=1e-9)


@every_affine_solver
def test_t2_adjoint_mean_is_the_forward_mean(problem, dense, solver):
    posterior = problem.condition(solver)
    v = weights(problem, solver, dense.b[:, None])[:, 0]
    assert_close(posterior.mean, dense.centre + dense.V @ v)


@every_affine_solver
def test_t3_downdate_is_that_of_the_recursion(problem, dense, solver):
    A, D, _ = compose(dense.G, dense_cycles(solver, dense.G))
    assert_close(solver_matrix(problem, solver), A)
    assert_close(dense.K2 - problem.condition(solver).covariance, dense.V @ D @ dense.V.T)


@every_affine_solver
def test_t4_computational_covariance_is_the_leftover_in_the_inverse_gram(problem, dense, solver):
    leftover = sweep(problem, solver, adjoint=True).Y
    computational = problem.condition(solver).covariance - dense.exact()[1]
    expected = leftover.T @ np.linalg.solve(dense.G, leftover)
    assert np.abs(computational - expected).max() < 1e-9 * np.abs(dense.K2).max()


@every_affine_solver
def test_t5_downdate_and_leftover_by_the_weights_of_the_test_points(problem, dense, solver):
    Wt = solver_matrix(problem, solver).T @ dense.V.T
    expected = Wt.T @ dense.V.T + dense.V @ Wt - Wt.T @ dense.G @ Wt
    assert_close(dense.K2 - problem.condition(solver).covariance, expected)
    swept = sweep(problem, solver, adjoint=True)
    assert_close(swept.Y, dense.V.T - dense.G @ Wt)
    assert_close(swept.downdate, expected.diagonal())


@every_affine_solver
def test_t6_inverse_gram_minus_downdate_is_what_the_sweeps_leave_of_it(problem, dense, solver):
    G_inverse = np.linalg.inv(dense.G)
    _, _, M_total = compose(dense.G, dense_cycles(solver, dense.G))
    left = G_inverse - downdate(solver_matrix(problem, solver), dense.G)
    assert np.abs(left - M_total @ G_inverse @ M_total.T).max() < 1e-9 * np.abs(G_inverse).max()


@pytest.mark.parametrize("relaxation", [0.3, 1.0, 1.7])
@pytest.mark.parametrize("iterations", [1, 3])
def test_t8_symmetric_overrelaxation_is_a_sweep_and_one_back(problem, dense, relaxation, iterations):
    """The product formula as one symmetric stage, and the two half sweeps as stages of their own."""
    solver = cagp.SSOR(iterations, relaxation)
    halves = [half_sweep(dense.G, relaxation), half_sweep(dense.G, relaxation, ascending=False)]
    whole = dense_stage(solver, dense.G)
    assert_close(whole, whole.T, relative=1e-12)
    A, D, M = compose(dense.G, [whole] * iterations)
    for found, expected in zip(compose(dense.G, halves * iterations), (A, D, M), strict=True):
        assert_close(found, expected)
    assert_close(solver_matrix(problem, solver), A)
    posterior = problem.condition(solver)
    assert_close(posterior.mean, dense.centre + dense.V @ A @ dense.b)
    assert_close(dense.K2 - posterior.covariance, dense.V @ D @ dense.V.T)


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
    """W is positive semidefinite (math 1.4), so that every update lowers the covariance."""
    G = regression_problem(N, lengthscale=lengthscale).dense.G
    W = weight(solver, G)
    assert np.linalg.eigvalsh(W).min() > -1e-10 * np.abs(W).max()


def test_damping_by_default_is_that_of_the_row_sums(problem, dense):
    given = problem.condition(cagp.Jacobi(3, damping=jacobi_damping(dense.G)))
    default = problem.condition(cagp.Jacobi(3))
    assert_close(default.mean, given.mean, relative=1e-12)
    assert_close(default.covariance, given.covariance, relative=1e-12)


@every_stationary_solver
def test_t9_closed_form_of_a_stationary_scheme(problem, dense, solver):
    Mt, W = dense_stage(solver, dense.G), weight(solver, dense.G)
    M = np.eye(N) - Mt @ dense.G
    powers = [np.linalg.matrix_power(M, i) for i in range(solver.iterations + 1)]
    A = solver_matrix(problem, solver)
    assert_close(A, np.linalg.solve(dense.G, np.eye(N) - powers[-1].T).T)  # (I - M^m) G^-1
    assert_close(downdate(A, dense.G), sum(P @ Mt @ W @ Mt.T @ P.T for P in powers[:-1]))


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_t10_closed_form_of_point_gauss_seidel(problem, dense, iterations):
    L, U = np.tril(dense.G), np.triu(dense.G, 1)
    L_inverse = np.linalg.inv(L)
    half = L_inverse * np.sqrt(np.diag(dense.G))
    D = np.zeros((N, N))
    for _ in range(iterations):
        D += half @ half.T
        half = L_inverse @ U @ half
    assert_close(downdate(solver_matrix(problem, cagp.GaussSeidel(iterations)), dense.G), D)


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_t11_algorithm_2(problem, dense, iterations):
    mean, total = algorithm_2(dense.G, dense.V, dense.b, iterations)
    posterior = problem.condition(cagp.GaussSeidel(iterations))
    assert_close(posterior.mean, dense.centre + mean)
    assert_close(posterior.covariance, dense.K2 - total)


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("solver", [cagp.GaussSeidel(1), cagp.BlockGaussSeidel(1, 32)], ids=repr)
def test_t12_a_sweep_leaves_y_minus_g_z(problem, dense, solver, workers):
    """Adjoint: ``Z = L^-T Y``; forward: ``Z = L^-1 Y``; in both ``Y <- Y - G Z``."""
    block_size = getattr(solver, "block_size", 1)
    L, root = block_lower(dense.G, block_size), np.linalg.cholesky(diagonal(solver, dense.G))
    swept = sweep(problem, solver, adjoint=True, b=dense.b[:, None], workers=workers)
    assert_close(swept.Z, np.linalg.solve(L.T, dense.V.T))
    assert_close(swept.Y, dense.V.T - dense.G @ swept.Z)
    assert_close(swept.downdate, ((root.T @ swept.Z) ** 2).sum(axis=0))
    assert_close(swept.mean[:, 0], swept.Z.T @ dense.b)
    start = np.random.default_rng(0).normal(size=(N, 3))
    swept = sweep(problem, solver, adjoint=False, columns=start, workers=workers)
    assert_close(swept.Z, np.linalg.solve(L, start))
    assert_close(swept.Y, start - dense.G @ swept.Z)


def test_t13_one_block_is_the_inverse_and_single_points_are_gauss_seidel(problem, dense):
    A = solver_matrix(problem, cagp.BlockGaussSeidel(1, N))
    assert_close(A, np.linalg.inv(dense.G))
    assert_close(downdate(A, dense.G), np.linalg.inv(dense.G))
    points = solver_matrix(problem, cagp.GaussSeidel(3))
    assert_close(solver_matrix(problem, cagp.BlockGaussSeidel(3, 1)), points)


@every_solver
def test_t14_the_last_block_has_no_residual_after_a_forward_sweep(problem, dense, solver):
    """The null space of the belief: ``(G e_i)'(A b - v*) = 0`` for the points of the last block."""
    rank = visits(solver, N, 1)
    last = np.flatnonzero(rank == rank.max())
    swept = sweep(problem, solver, adjoint=False, columns=dense.b[:, None])
    assert np.abs(swept.Y[last]).max() < 1e-12 * np.abs(dense.b).max()
    assert np.abs(swept.Y).max() > 1e-6 * np.abs(dense.b).max()
    A = solver_matrix(problem, solver)
    belief = np.linalg.inv(dense.G) - downdate(A, dense.G)
    null = dense.G[:, last]
    scale = np.abs(np.linalg.inv(dense.G)).max() * np.linalg.norm(null, axis=0).max()
    assert np.abs(belief @ null).max() < 1e-10 * scale


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
