"""Identities T1-T14 and T37 of the mathematics page, for every Gram matrix on every executor.

In series typical Gram matrices meet every solver that an identity is about, and others a sixth of them and a
few; by threads and on a Dask cluster typical ones meet the few. The oracle is the dense formula. Where the
observed points are the targets, what solvers yield gives back their matrices: ``A = K^-1 (V A)`` and
``D = K^-1 (V D V') K^-1``. The table in docs/math.md says where the other identities are tested.
"""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.posterior.prior_draws import CovarianceDraws
from cagp_dist.posterior.problem import demand_of
from cagp_dist.posterior.sampling import Sampler, draw_groups

from ..joined import one_after_another
from ..oracle import algorithm_2, assert_close, compose, kernel_matrix, ring_points
from ..problems import unit_noise
from ..solvers.engine import LIMIT
from ..solvers.stages import dense_cycles, dense_stage, half_sweep, visits
from .everywhere import BLOCK, EXACT, REGISTERED, STAGES, everywhere, everywhere_one
from .grams import Case
from .places import ANYWHERE, N, Place
from .registered import SOLVERS

pytestmark = pytest.mark.usefixtures("one_blas_thread")


@everywhere(EXACT, more=REGISTERED)
def test_variance_leftover_and_weights_say_the_same_t1_t4_t5_t6(where, solver):
    """The worst case, what is unfinished, downdate and leftover follow from one matrix A."""
    dense, state = where.dense, where.at_new(solver)[-1]
    (A, D), G, V = where.matrices(solver)[-1], dense.G, dense.V
    covariance, left, weights = dense.K2 - state.downdate, where.leftover(solver), A.T @ V.T
    assert_worst_case(dense, covariance.diagonal(), weights)
    # T4: kt - kbar = Y0' G^-1 Y0, with kbar the exact covariance; as matrices
    unfinished = left.T @ np.linalg.solve(G, left)
    assert np.abs(covariance - dense.exact()[1] - unfinished).max() < 1e-11 * np.abs(dense.K2).max()
    # T5: V D V' = Wt' V' + V Wt - Wt' G Wt and Y0 = V' - G Wt with Wt = A' V'
    assert_close(state.downdate, weights.T @ V.T + V @ weights - weights.T @ G @ weights, relative=1e-10)
    assert np.abs(left - (V.T - G @ weights)).max() < 1e-11 * np.abs(V).max()
    # T6: G^-1 - D = M G^-1 M' with M = I - A G, as matrices (n, n)
    inverse, M = np.linalg.inv(G), np.eye(N) - A @ G
    assert np.abs(inverse - D - M @ inverse @ M.T).max() < 1e-9 * np.abs(inverse).max()


def assert_worst_case(dense, variance, weights, noise=0.3):
    """T1: ``w' Kaug w = kt + s2``, ``w = [-A' V_x'; 1]`` and ``Kaug`` the Gram of observed and new point."""
    for x, V_x in enumerate(dense.V):
        Kaug = np.block([[dense.G, V_x[:, None]], [V_x, dense.K2[x, x] + noise]])
        w = np.append(-weights[:, x], 1.0)
        assert w @ Kaug @ w == pytest.approx(variance[x] + noise, rel=1e-10)
        # and a field of norm one whose error is as large: the representer Kaug w
        worst = Kaug @ w / np.sqrt(w @ Kaug @ w)
        assert worst @ np.linalg.solve(Kaug, worst) == pytest.approx(1.0, rel=1e-9)
        error = worst[-1] - weights[:, x] @ worst[:-1]
        assert error == pytest.approx(np.sqrt(variance[x] + noise), rel=1e-9)


@pytest.mark.parametrize("on_grid", [False, True])
def test_the_largest_error_that_a_posterior_states_is_that_bound_t1(on_grid):
    """Fields have noise at the observed points and none at the new ones; none of them has a larger error."""
    grid, rng = cagp.LatLonGrid([-50.0, 0.0, 71.0], 5), np.random.default_rng(0)
    X, n, targets = grid.points, grid.size, ANYWHERE
    prior = cagp.Prior(cagp.Matern12(0.6, variance=2.0), 0.1)
    fields = np.eye(n).reshape(n, *grid.shape) if on_grid else np.eye(n)
    solver = cagp.BlockGaussSeidel(2, 5)
    posterior = cagp.condition(prior, grid if on_grid else X, fields, targets, solver=solver)
    G, V = kernel_matrix(prior.kernel, X, X) + 0.1 * np.eye(n), kernel_matrix(prior.kernel, targets, X)
    K = np.block([[G, V.T], [V, kernel_matrix(prior.kernel, targets, targets)]])
    drawn = np.linalg.cholesky(K) @ rng.normal(size=(n + len(targets), 200))
    bound = posterior.worst_case_error(1.0)
    norms = np.sqrt(np.einsum("ij,ij->j", drawn, np.linalg.solve(K, drawn)))
    assert (np.abs(drawn[n:] - posterior.mean @ drawn[:n]) <= bound[:, None] * norms * (1.0 + 1e-9)).all()
    worst = K @ np.concatenate([-posterior.mean.T, np.eye(len(targets))])  # the representers
    norms = np.sqrt(np.einsum("ij,ij->j", worst, np.linalg.solve(K, worst)))
    errors = (worst[n:] - posterior.mean @ worst[:n]).diagonal()
    np.testing.assert_allclose(errors / norms, bound, rtol=1e-9)
    noisy = posterior.worst_case_error(5.0, noise_variance=0.3)
    np.testing.assert_allclose(noisy, 5.0 * np.sqrt(posterior.variance + 0.3), rtol=1e-14)


@one_after_another
@pytest.mark.parametrize(
    ("norm", "noise", "key"),
    [
        (-1.0, 0.0, "not-positive"),
        (np.inf, 0.0, "not-positive"),
        (1.0, -0.1, "not-positive"),
        (1.0, [0.1, 0.2], "shapes"),
    ],
)
def test_what_a_worst_case_needs_is_checked(norm, noise, key):
    prior = cagp.Prior(cagp.Matern12(0.6), 0.1)
    posterior = cagp.condition(prior, ANYWHERE, np.ones(5), ANYWHERE, solver=cagp.GaussSeidel(2))
    with pytest.raises(ArgumentError) as refusal:
        posterior.worst_case_error(norm, noise_variance=noise)
    assert refusal.value.key == key


@everywhere(STAGES)
def test_mean_and_belief_are_those_of_the_stages_t2_t3(where, solver):
    """Mean of the adjoint pass and of the stages themselves (of actions, which have none, see T19).

    ``D_j = Mt + Mt' - Mt G Mt' + M D_{j-1} M'``; on complete grids blocks are bands of rings.
    """
    dense, b, state = where.dense, where.dense.b[:, None], where.at_new(solver)[-1]
    v, left = where.forward(solver, b)
    assert_close(state.mean, dense.V @ v)
    assert_close(left, b - dense.G @ v)
    A, D, _ = compose(dense.G, where.cycles(solver))
    assert_close(state.mean[:, 0], dense.V @ A @ dense.b)
    assert_close(state.downdate, dense.V @ D @ dense.V.T)
    for found, expected in zip(where.matrices(solver)[-1], (A, D), strict=True):
        assert_close(found, expected)


@everywhere(EXACT)
def test_samples_have_the_stated_covariance_t7(where, solver):
    """``K'' - V A V' - V A' V' + V A G A' V'``, of unit vectors in place of white noise: exactly."""
    gram, problem = where.case.gram, where.problem(where.targets)
    draws = CovarianceDraws(gram.kernel, gram.X, where.targets)
    rank = draws.root.shape[1]
    sampler = Sampler(problem, solver, draws, demand_of(problem, where.executor, LIMIT), where.executor)
    groups = draw_groups(rank + N, points=N + len(where.targets))
    noise = unit_noise(rank, N)
    ((mean, errors, _),) = sampler.groups(noise, groups, sampler.plans(groups), done=lambda *_: None)
    state = where.at_new(solver)[-1]
    assert_close(mean, state.mean)
    assert_close(errors @ errors.T, where.dense.K2 - state.downdate)


@everywhere({"under": cagp.SSOR(3, 0.4), "one": cagp.SSOR(2, 1.0), "over": cagp.SSOR(2, 1.7)}, few=("over",))
def test_symmetric_overrelaxation_is_a_sweep_and_one_back_t8(where, solver):
    """The product formula as one symmetric stage, and the two half sweeps as stages of their own."""
    G, w = where.dense.G, solver.relaxation
    whole = dense_stage(solver, G)
    assert_close(whole, whole.T, relative=1e-12)
    A, D, _ = compose(G, [half_sweep(G, w), half_sweep(G, w, ascending=False)] * solver.iterations)
    for found, halves, product in zip(
        where.matrices(solver)[-1], (A, D), compose(G, [whole] * solver.iterations), strict=False
    ):
        assert_close(found, halves)
        assert_close(found, product)


@everywhere({n: s for n, s in STAGES.items() if "random order" not in n and n != "chebyshev"})
def test_the_closed_form_of_a_stationary_scheme_t9(where, solver):
    """``A = (I - M^m) G^-1`` and ``D = sum_{i<m} M^i Mt W Mt' M'^i``, after every iteration.

    Random orders and polynomials have another stage in every cycle.
    """
    G = where.dense.G
    Mt = where.cycles(solver)[0]
    M, inverse = np.eye(N) - Mt @ G, np.linalg.inv(Mt)
    step = Mt @ (inverse + inverse.T - G) @ Mt.T
    power, expected = np.eye(N), np.zeros((N, N))
    for A, D in where.matrices(solver):
        expected += power @ step @ power.T
        power = M @ power
        assert_close(A, np.linalg.solve(G, np.eye(N) - power.T).T)
        assert_close(D, expected)


@everywhere_one(cagp.GaussSeidel(3))
def test_the_closed_form_of_point_gauss_seidel_t10(where, solver):
    """Equation 12 of [Hegde, Adil & Cockayne 2025]; on grids points are visited latitude by latitude."""
    G = where.dense.G
    L, U = np.tril(G), np.triu(G, 1)
    half, expected = np.linalg.inv(L) * np.sqrt(np.diag(G)), np.zeros((N, N))
    for _, D in where.matrices(solver):
        expected += half @ half.T
        half = np.linalg.solve(L, U @ half)
        assert_close(D, expected)


@everywhere_one(cagp.GaussSeidel(3))
def test_algorithm_2_t11(where, solver):
    """As it is printed, after every iteration."""
    dense = where.dense
    for state in where.at_new(solver):
        mean, total = algorithm_2(dense.G, dense.V, dense.b, state.iteration)
        assert_close(state.mean[:, 0], mean)
        assert_close(state.downdate, total)


SWEEPS = {"points": cagp.GaussSeidel(1), "blocks": cagp.BlockGaussSeidel(1, BLOCK)}


@everywhere(SWEEPS, few=tuple(SWEEPS))
def test_a_sweep_leaves_y_minus_g_z_t12(where, solver):
    """Adjoint: ``Z = L^-T V'``, whose sums are mean and downdate; forward: ``Z = L^-1 Y``."""
    dense, blocks = where.dense, where.blocks(solver)
    L = np.where(blocks[:, None] >= blocks, dense.G, 0.0)
    root = np.linalg.cholesky(np.where(blocks[:, None] == blocks, dense.G, 0.0))
    Z, state = np.linalg.solve(L.T, dense.V.T), where.at_new(solver)[-1]
    assert_close(where.leftover(solver), dense.V.T - dense.G @ Z)
    assert_close(state.downdate, (root.T @ Z).T @ (root.T @ Z))
    assert_close(state.mean[:, 0], Z.T @ dense.b)
    right = np.random.default_rng(0).normal(size=(N, 3))
    Z, left = where.forward(solver, right)
    assert_close(Z, np.linalg.solve(L, right))
    assert_close(left, right - dense.G @ Z)


@everywhere_one(cagp.BlockGaussSeidel(1, 3 * N))
def test_one_block_is_the_inverse_t13(where, solver):
    ((A, D),), inverse = where.matrices(solver), np.linalg.inv(where.dense.G)
    assert_close(A, inverse)
    assert_close(D, inverse)
    assert where.at_new(solver)[-1].status is cagp.Status.EXACT


@everywhere_one(cagp.BlockGaussSeidel(2, 1))
def test_blocks_of_one_point_are_gauss_seidel_t13(where, solver):
    """On a complete grid no block is smaller than a ring: there rings of one point."""
    if where.n_longitudes:
        latitude, noise = np.linspace(-70.0, 80.0, N), np.linspace(0.1, 1.0, N)
        grid = cagp.LatLonGrid(latitude, 1)
        rings = cagp.RingGram(grid, where.case.gram.kernel, noise_variance=noise, executor=where.executor)
        where = Place(Case(rings, ring_points(latitude, 1), noise), where.executor)
    (A, D) = where.matrices(solver)[-1]
    expected = compose(where.dense.G, dense_cycles(cagp.GaussSeidel(2), where.dense.G))
    assert_close(A, expected[0])
    assert_close(D, expected[1])


FORWARD = {name: STAGES[name] for name in STAGES if "gauss-seidel" in name or "random order" in name}
FORWARD.pop("two-level-block-gauss-seidel")


@everywhere(FORWARD)
def test_the_last_block_has_no_residual_after_a_forward_sweep_t14(where, solver):
    """The null space of the belief: ``(G e_i)'(A b - v*) = 0`` for the points of the last block."""
    G, b = where.dense.G, where.dense.b[:, None]
    rank = visits(solver, N, 1, where.blocks(solver))
    last = rank == rank.max()
    _, left = where.forward(solver, b)
    assert np.abs(left[last]).max() < 1e-12 * np.abs(b).max()
    assert np.abs(left).max() > 1e-6 * np.abs(b).max()
    inverse, D = np.linalg.inv(G), where.matrices(solver)[-1][1]
    scale = np.abs(inverse).max() * np.linalg.norm(G, axis=0).max()
    assert np.abs((inverse - D) @ G[:, last]).max() < 1e-10 * scale


@everywhere(
    {name: solver for name, solver in EXACT.items() if name != "diverging"}, more=REGISTERED, given=True
)
def test_the_variance_counts_the_coefficients_of_a_mean_t37(where, solver):
    """``L H = H'`` and ``kt = K'' - L V' - V L' + L G L'``, with L read off the means (math 1.7).

    Through `cagp.condition`, which makes its Gram matrix itself: by tiles or by rings.
    """
    mean = cagp.BasisMean(lambda X: np.column_stack([np.ones(len(X)), X[:, 2], X[:, 0]]), ("one", "z", "x"))
    found, dense = where.condition(solver, mean), where.dense
    L, basis = found.mean, mean.basis_at(where.case.X)
    assert np.abs(L @ basis - mean.basis_at(where.targets)).max() < 1e-10
    expected = dense.K2 - L @ dense.V.T - dense.V @ L.T + L @ dense.G @ L.T
    assert np.abs(found.covariance - expected).max() < 1e-10 * np.abs(dense.K2).max()
    assert_close(found.variance, found.covariance.diagonal())


def test_every_solver_that_is_exactly_calibrated_is_tested():
    assert len(REGISTERED) >= 20
    assert all(solver.many_fields for solver in REGISTERED.values())
    assert {type(solver) for solver in EXACT.values()} >= {
        type(solver) for solver in SOLVERS.values() if solver.calibrated == "exact"
    } - {cagp.SubsetOfData, cagp.Neighbours}  # neighbours have a file of their own
