"""Identities T1-T25, T36 and T37 of the mathematics page, for every Gram matrix on every executor.

In series typical Gram matrices meet every solver that an identity is about, and others a third of them and a
few; by threads and on a Dask cluster typical ones meet the few. The oracle is the dense formula. Where the
observed points are the targets, what solvers yield gives back their matrices: ``A = K^-1 (V A)`` and
``D = K^-1 (V D V') K^-1``. The table in docs/math.md says where the other identities are tested.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.posterior.prior_draws import CovarianceDraws
from cagp_dist.posterior.problem import demand_of
from cagp_dist.posterior.sampling import Sampler, draw_groups
from cagp_dist.solvers import Solver
from cagp_dist.solvers.affine import Affine
from cagp_dist.solvers.preconditioners import find_preconditioner

from ..oracle import (
    algorithm_2,
    assert_close,
    assert_same_bits,
    compose,
    conjugate_gradients,
    downdate,
    kernel_matrix,
    ring_points,
)
from ..problems import unit_noise
from ..solvers.engine import LIMIT
from ..solvers.policies import known, policies
from ..solvers.stages import (
    Diverging,
    dense_cycles,
    dense_stage,
    half_sweep,
    hybrid_stages,
    projection_stage,
    visits,
)
from .grams import Case
from .places import ANYWHERE, EXECUTORS, GRAMS, N, Place, opened, place
from .registered import SOLVERS

pytestmark = pytest.mark.usefixtures("one_blas_thread")

Array = np.ndarray
BLOCK = 13
"""Of points: three blocks of 36; on grids of six rings, bands of two."""
STAGES = {
    "gauss-seidel": cagp.GaussSeidel(3),
    "block-gauss-seidel": cagp.BlockGaussSeidel(3, BLOCK),
    "blocks in random order": cagp.BlockGaussSeidel(2, BLOCK, order="random", seed=1),
    "points in random order": cagp.GaussSeidel(2, order="random"),
    "sor": cagp.SOR(2, 1.4),
    "ssor": cagp.SSOR(2, 0.6),
    "jacobi": cagp.Jacobi(3),
    "block-jacobi": cagp.BlockJacobi(2, BLOCK),
    "richardson": cagp.Richardson(3),
    "chebyshev": cagp.Chebyshev(4),
    "two-level-block-gauss-seidel": cagp.TwoLevelBlockGaussSeidel(2, BLOCK, coarse=5),
    "two-level-block-jacobi": cagp.TwoLevelBlockJacobi(2, BLOCK, coarse=5, damping=0.3),
    "diverging": Diverging(2, damping=0.7),
}
ACTIONS = 8
POLICIES = policies(ACTIONS, rank=9, block=BLOCK, first=(3, 3))
GRADIENTS = {name: policy for name, policy in POLICIES.items() if isinstance(policy, cagp.ConjugateGradient)}
KNOWN = known(POLICIES)
INDEPENDENT = {
    name: policy
    for name, policy in POLICIES.items()
    if policy.calibrated == "exact" and not isinstance(policy, cagp.MixedActions)
}
BLOCKS, DIRECTIONS = cagp.BlockGaussSeidel(2, BLOCK), cagp.ConjugateGradient(4)
HYBRIDS = {
    "gradients, blocks": cagp.Hybrid([DIRECTIONS, BLOCKS]),
    "blocks, gradients": cagp.Hybrid([BLOCKS, DIRECTIONS]),
    "four parts": cagp.Hybrid([cagp.SSOR(1, 1.4), cagp.ConjugateGradient(2), BLOCKS, DIRECTIONS]),
    "polynomials": cagp.Hybrid([cagp.Chebyshev(3), DIRECTIONS, cagp.Chebyshev(2), BLOCKS]),
    "what is known": cagp.Hybrid(
        [cagp.TwoLevelBlockGaussSeidel(1, BLOCK, coarse=5), cagp.RandomActions(3), cagp.Richardson(2)]
    ),
    "stages alone": cagp.Hybrid(
        [cagp.Richardson(2), cagp.TwoLevelBlockGaussSeidel(1, BLOCK, coarse=5), cagp.Chebyshev(3), BLOCKS]
    ),
}
EXACT = {
    **STAGES,
    **INDEPENDENT,
    "two kinds": POLICIES["two kinds"],
    "hybrid": HYBRIDS["what is known"],
    "cholesky": cagp.Cholesky(),
    "rings": cagp.Rings(),
}
"""One of every class whose matrix does not depend on the data."""
REGISTERED = {
    f"registered {name}": solver
    for name, solver in SOLVERS.items()
    if solver.calibrated == "exact" and not solver.needs_grid
}
"""The same in every order, with preconditioners, and with blocks of other sizes."""
FEW = ("gauss-seidel", "block-gauss-seidel", "conjugate gradients", "random", "gradients, blocks", "rings")
"""What runs by threads and on the cluster."""
POINTS = ("dense", "tiled", "tiled-7")
TYPICAL = ("tiled", "rings", "masked rings")
"""Gram matrices that every solver meets, and that run on every executor."""


@pytest.fixture(scope="module")
def places(request) -> Iterator[Callable[[str, str], Place]]:
    """Each Gram matrix on each executor, made when it is first asked for; it remembers its solves."""
    with ExitStack() as stack:
        client = partial(request.getfixturevalue, "two_dask_workers")
        executors = cache(lambda name: stack.enter_context(opened(name, client)))
        yield cache(lambda gram, executor: place(gram, executors(executor)))


@pytest.fixture
def where(request, places) -> Place:
    """The Gram matrix and the executor of a test."""
    return places(*request.param)


def everywhere(
    solvers: dict[str, Solver],
    *,
    few: tuple[str, ...] = FEW,
    more: dict[str, Solver] | None = None,
    given: bool = False,
) -> pytest.MarkDecorator:
    """Every Gram matrix in series, and typical ones on every executor.

    In series typical ones meet all solvers, and others every third one, by turns, and the ``few``, which run
    on the other executors too (grids on a cluster at leisure). With ``given`` only matrices that
    `cagp.condition` makes. Each of ``more`` solvers meets one typical one; the others at leisure.
    """
    few = tuple(name for name in few if name in solvers)
    assert few
    cases = []
    for g, gram in enumerate(GRAMS):
        for i, (name, solver) in enumerate(solvers.items()):
            if gram in TYPICAL or name in few or (g + i) % 3 == 0:
                cases.append((gram, "serial", name, solver, ()))
    for (g, gram), (i, name) in itertools.product(enumerate(TYPICAL), enumerate(more or {})):
        marks = [pytest.mark.exhaustive] if (g + i) % 3 else []
        cases.append((gram, "serial", name, more[name], marks))
    for executor, gram, name in itertools.product(EXECUTORS[1:], TYPICAL, few):
        marks = [pytest.mark.cluster] if executor == "dask" else []
        if executor == "dask" and gram != "tiled":
            marks.append(pytest.mark.exhaustive)
        cases.append((gram, executor, name, solvers[name], marks))
    return pytest.mark.parametrize(
        ("where", "solver"),
        [
            pytest.param((gram, executor), solver, id=f"{gram}-{executor}-{name}", marks=marks)
            for gram, executor, name, solver, marks in cases
            if not (solver.needs_grid and gram in POINTS) and not (given and gram in ("dense", "tiled-7"))
        ],
        indirect=["where"],
    )


def everywhere_one(solver: Solver) -> pytest.MarkDecorator:
    """Every Gram matrix, and typical ones on every executor, with one solver."""
    name = type(solver).__name__
    return everywhere({name: solver}, few=(name,))


@everywhere(EXACT, more=REGISTERED)
def test_the_variance_is_that_of_the_worst_case_t1(where, solver):
    """``w' Kaug w = kt + s2`` with ``w = [-A' V_x'; 1]`` and ``Kaug`` the Gram of observed and new point."""
    dense, noise = where.dense, 0.3
    A, _ = where.matrices(solver)[-1]
    variance = (dense.K2 - where.at_new(solver)[-1].downdate).diagonal()
    for x, V_x in enumerate(dense.V):
        Kaug = np.block([[dense.G, V_x[:, None]], [V_x, dense.K2[x, x] + noise]])
        w = np.append(-A.T @ V_x, 1.0)
        assert w @ Kaug @ w == pytest.approx(variance[x] + noise, rel=1e-10)
        # and a field of norm one whose error is as large: the representer Kaug w
        worst = Kaug @ w / np.sqrt(w @ Kaug @ w)
        assert worst @ np.linalg.solve(Kaug, worst) == pytest.approx(1.0, rel=1e-9)
        assert worst[-1] - (A.T @ V_x) @ worst[:-1] == pytest.approx(np.sqrt(variance[x] + noise), rel=1e-9)


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


@pytest.mark.parametrize(
    ("norm", "noise", "text"),
    [
        (-1.0, 0.0, "rkhs_norm is -1.0; expected"),
        (np.inf, 0.0, "rkhs_norm is inf; expected"),
        (1.0, -0.1, "noise_variance holds NaN, infinity or numbers below zero; expected variances"),
        (1.0, [0.1, 0.2], r"noise_variance has shape \(2,\); expected one number, or one for each target"),
    ],
)
def test_what_a_worst_case_needs_is_checked(norm, noise, text):
    prior = cagp.Prior(cagp.Matern12(0.6), 0.1)
    posterior = cagp.condition(prior, ANYWHERE, np.ones(5), ANYWHERE, solver=cagp.GaussSeidel(2))
    with pytest.raises(ArgumentError, match=text):
        posterior.worst_case_error(norm, noise_variance=noise)


@everywhere(STAGES)
def test_the_mean_by_the_adjoint_is_that_by_the_stages_themselves_t2(where, solver):
    """Actions have no adjoint pass of their own: theirs is T19."""
    dense, b = where.dense, where.dense.b[:, None]
    v, left = where.forward(solver, b)
    assert_close(where.at_new(solver)[-1].mean, dense.V @ v)
    assert_close(left, b - dense.G @ v)


@everywhere(STAGES)
def test_the_belief_is_that_of_the_recursion_over_stages_t3(where, solver):
    """``D_j = Mt + Mt' - Mt G Mt' + M D_{j-1} M'``; on complete grids blocks are bands of rings."""
    dense = where.dense
    A, D, _ = compose(dense.G, where.cycles(solver))
    state = where.at_new(solver)[-1]
    assert_close(state.mean[:, 0], dense.V @ A @ dense.b)
    assert_close(state.downdate, dense.V @ D @ dense.V.T)
    for found, expected in zip(where.matrices(solver)[-1], (A, D), strict=True):
        assert_close(found, expected)


@everywhere(EXACT, more=REGISTERED)
def test_the_unfinished_part_is_what_the_leftover_says_t4(where, solver):
    """``kt - kbar = Y0' G^-1 Y0``, with kbar the exact covariance; as matrices."""
    dense = where.dense
    computational = dense.K2 - where.at_new(solver)[-1].downdate - dense.exact()[1]
    left = where.leftover(solver)
    expected = left.T @ np.linalg.solve(dense.G, left)
    assert np.abs(computational - expected).max() < 1e-11 * np.abs(dense.K2).max()


@everywhere(EXACT, more=REGISTERED)
def test_the_downdate_and_the_leftover_are_those_of_the_weights_t5(where, solver):
    """``V D V' = Wt' V' + V Wt - Wt' G Wt`` and ``Y0 = V' - G Wt`` with ``Wt = A' V'``."""
    dense = where.dense
    Wt = where.matrices(solver)[-1][0].T @ dense.V.T
    expected = Wt.T @ dense.V.T + dense.V @ Wt - Wt.T @ dense.G @ Wt
    assert_close(where.at_new(solver)[-1].downdate, expected, relative=1e-10)
    left = dense.V.T - dense.G @ Wt
    assert np.abs(where.leftover(solver) - left).max() < 1e-11 * np.abs(dense.V).max()


@everywhere(EXACT, more=REGISTERED)
def test_the_belief_about_the_solution_is_what_the_errors_left_t6(where, solver):
    """``G^-1 - D = M G^-1 M'`` with ``M = I - A G``, as matrices (n, n)."""
    (A, D), G = where.matrices(solver)[-1], where.dense.G
    inverse, M = np.linalg.inv(G), np.eye(N) - A @ G
    assert np.abs(inverse - D - M @ inverse @ M.T).max() < 1e-9 * np.abs(inverse).max()


@everywhere(EXACT)
def test_samples_have_the_stated_covariance_t7(where, solver):
    """``K'' - V A V' - V A' V' + V A G A' V'``, of unit vectors in place of white noise: exactly."""
    gram, problem = where.case.gram, where.problem(where.targets)
    draws = CovarianceDraws(gram.kernel, gram.X, where.targets)
    rank = draws.root.shape[1]
    sampler = Sampler(problem, solver, draws, demand_of(problem, where.executor, LIMIT), where.executor)
    groups = draw_groups(rank + N, points=N + len(where.targets))
    noise = unit_noise(rank, N)
    ((mean, errors),) = sampler.groups(noise, groups, sampler.plans(groups), done=lambda *_: None)
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


@everywhere(POLICIES)
def test_directions_are_conjugate_t15(where, solver):
    """The increments ``d_i d_i' / eta_i`` of D annihilate each other through G."""
    G = where.dense.G
    D = [np.zeros((N, N)), *(D for _, D in where.matrices(solver))]
    assert len(D) == ACTIONS + 1
    increments = [later - earlier for earlier, later in itertools.pairwise(D)]
    for i, increment in enumerate(increments):
        assert_close(increment @ G @ increment, increment, relative=1e-8)
        assert np.trace(increment @ G) == pytest.approx(1.0, rel=1e-8)  # of rank one
        for other in increments[:i]:
            bound = 1e-8 * np.linalg.norm(increment) * np.linalg.norm(other) * np.linalg.norm(G)
            assert np.abs(increment @ G @ other).max() < bound


@everywhere(POLICIES)
def test_the_matrix_is_a_projection_t16(where, solver):
    """``D G D = D`` after every action."""
    for _, D in where.matrices(solver):
        assert_close(D @ where.dense.G @ D, D, relative=1e-8)


@everywhere_one(cagp.RandomActions(N, seed=1))
def test_n_actions_give_the_inverse_t16(where, solver):
    assert_close(where.matrices(solver)[-1][1], np.linalg.inv(where.dense.G), relative=1e-8)


@everywhere(KNOWN, few=("random", "pivoted points"))
def test_the_belief_depends_on_the_span_of_the_actions_alone_t17(where, solver):
    """After each of them; mixed by any invertible matrix, in any order, of any length."""
    S, W = where.actions(solver), np.random.default_rng(4).normal(size=(ACTIONS, ACTIONS))
    states = where.at_new(solver)
    for actions in (S, S @ W, S[:, ::-1] * np.geomspace(1e-3, 1e3, ACTIONS)):
        where.assert_projected(states[-1], actions)
    for state in states:
        where.assert_projected(state, S[:, : state.iteration])


@everywhere_one(POLICIES["two kinds"])
def test_mixed_actions_are_those_of_all_parts_t17(where, solver):
    inputs, random = solver.parts
    normal = np.random.default_rng(random.seed).standard_normal((N, random.iterations))
    where.assert_projected(where.at_new(solver)[-1], np.concatenate([where.actions(inputs), normal], axis=1))


@everywhere(POLICIES)
def test_variance_falls_with_every_action_and_stays_above_the_exact_one_t18(where, solver):
    """At the observed points, and at new ones; there is something to learn from every action."""
    exact = where.case.K - where.case.K @ np.linalg.solve(where.dense.G, where.case.K)
    variances = [np.diag(where.case.K)]
    variances += [np.diag(where.case.K - where.case.K @ D @ where.case.K) for _, D in where.matrices(solver)]
    for earlier, later in itertools.pairwise(variances):
        assert (later <= earlier + 1e-13).all()
        assert (later < earlier).any()
    assert (variances[-1] >= exact.diagonal() - 1e-12).all()
    downdates = [np.zeros(len(where.targets)), *(state.downdate.diagonal() for state in where.at_new(solver))]
    assert all((later >= earlier).all() for earlier, later in itertools.pairwise(downdates))


@everywhere(POLICIES)
def test_the_mean_is_the_downdate_matrix_times_the_data_t19(where, solver):
    dense = where.dense
    for state, (_, D) in zip(where.at_new(solver), where.matrices(solver), strict=True):
        assert_close(state.mean[:, 0], dense.V @ D @ dense.b, relative=1e-8)


@everywhere(INDEPENDENT, few=("random", "pivoted points"))
def test_n_actions_are_the_exact_posterior_t20(where, solver):
    """Of more than n those that are left over are not taken."""
    state = where.at_new(dataclasses.replace(solver, iterations=3 * N))[-1]
    assert (state.iteration, state.status) == (N, cagp.Status.EXACT)
    mean, covariance = where.dense.exact()
    assert_close(state.mean[:, 0], mean, relative=1e-8)
    assert_close(where.dense.K2 - state.downdate, covariance, relative=1e-8)


@everywhere(KNOWN, few=("random", "pivoted points"))
def test_the_belief_is_conditioning_on_projected_data_t21(where, solver):
    """The prior given ``S'y``, whose noise covariance is ``S' N S``."""
    dense, S = where.dense, where.actions(solver)
    S = S / np.linalg.norm(S, axis=0)
    data_covariance = S.T @ where.case.K @ S + S.T @ (where.case.noise[:, None] * S)
    gain, state = np.linalg.solve(data_covariance, (dense.V @ S).T).T, where.at_new(solver)[-1]
    assert_close(state.mean[:, 0], gain @ S.T @ dense.b)
    assert_close(state.downdate, gain @ (dense.V @ S).T)


SUBSETS = {order: cagp.UnitVectors(13, order=order, seed=5) for order in ("pivoted", "random", "given")}


@everywhere(SUBSETS | {"subset of data": cagp.SubsetOfData(13, seed=5)}, few=("pivoted", "subset of data"))
def test_unit_vectors_are_the_exact_posterior_of_a_subset_t22(where, solver):
    dense = where.dense
    named = SUBSETS["random"] if isinstance(solver, cagp.SubsetOfData) else solver
    chosen = np.argmax(where.actions(named), axis=0)
    assert len(set(chosen)) == 13
    G, V, state = dense.G[np.ix_(chosen, chosen)], dense.V[:, chosen], where.at_new(solver)[-1]
    assert_close(state.mean[:, 0], V @ np.linalg.solve(G, dense.b[chosen]))
    assert_close(state.downdate, V @ np.linalg.solve(G, V.T))
    assert state.status is cagp.Status.COMPLETED


@everywhere(GRADIENTS)
def test_the_mean_is_that_of_conjugate_gradients_t23(where, solver):
    """With a preconditioner ``P = L L'``: on ``L^-1 G L^-T``, carried back by ``L^-T``."""
    dense, root = where.dense, np.eye(N)
    if solver.preconditioner is not None:
        settings = find_preconditioner(solver.preconditioner, solver.preconditioner_size)
        inverse = settings.of(where.case.gram, executor=where.executor).solve(np.eye(N))
        root = np.linalg.cholesky(inverse)  # L^-T, up to a rotation that conjugate gradients do not see
    iterates, _ = conjugate_gradients(root.T @ dense.G @ root, root.T @ dense.b, ACTIONS)
    for state, iterate in zip(where.at_new(solver), iterates, strict=True):
        assert_close(state.mean[:, 0], dense.V @ root @ iterate, relative=1e-8)


PAUSING = cagp.MixedActions([cagp.ConjugateGradient(3), cagp.ConjugateGradient(5)])


@everywhere_one(PAUSING)
def test_gradients_that_pause_are_gradients_t23(where, solver):
    halves, whole = where.at_new(solver)[-1], where.at_new(cagp.ConjugateGradient(ACTIONS))[-1]
    assert_close(halves.mean, whole.mean)
    assert_close(halves.downdate, whole.downdate)


@everywhere_one(cagp.PseudoInputs(N))
def test_pseudo_inputs_at_every_point_are_the_exact_posterior_t24(where, solver):
    state = where.at_new(cagp.PseudoInputs.at_points(where.case.X))[-1]
    mean, covariance = where.dense.exact()
    assert state.status is cagp.Status.EXACT
    assert_close(state.mean[:, 0], mean, relative=1e-6)
    assert_close(where.dense.K2 - state.downdate, covariance, relative=1e-6)


@everywhere(HYBRIDS)
def test_mean_and_covariance_of_a_hybrid_are_those_of_one_matrix_t25(where, solver):
    """Of all stages and of the actions on the way; only without actions grids are swept by rings."""
    dense, state = where.dense, where.at_new(solver)[-1]
    by_rings = all(isinstance(part, Affine) and part.by_rings for part in solver.parts)
    cycles = (lambda part, _: where.cycles(part)) if by_rings else dense_cycles
    stages, iterates = hybrid_stages(solver.parts, dense.G, dense.b, cycles)
    A, D, _ = compose(dense.G, stages)
    assert_close(state.mean[:, 0], dense.V @ A @ dense.b)
    assert_close(state.mean[:, 0], dense.V @ iterates[-1])
    assert_close(state.downdate, dense.V @ D @ dense.V.T)
    assert_close(state.downdate, dense.V @ downdate(A, dense.G) @ dense.V.T)


@everywhere_one(HYBRIDS["gradients, blocks"])
def test_conjugate_gradients_then_sweeps_in_closed_form_t25(where, solver):
    """``D = D_E + M_E^m DS M_E'^m``, and ``G^-1 - D = M_E^m (G^-1 - DS) M_E'^m``."""
    G, V, b = where.dense.G, where.dense.V, where.dense.b
    iterates, S = conjugate_gradients(G, b, DIRECTIONS.iterations)
    DS = projection_stage(G, S)
    A_E, D_E, M_E = compose(G, dense_cycles(BLOCKS, G))
    D, inverse = D_E + M_E @ DS @ M_E.T, np.linalg.inv(G)
    assert np.abs(inverse - D - M_E @ (inverse - DS) @ M_E.T).max() < 1e-9 * np.abs(inverse).max()
    state = where.at_new(solver)[-1]
    assert_close(state.downdate, V @ D @ V.T)
    assert_close(state.mean[:, 0], V @ (M_E @ iterates[-1] + A_E @ b))


@everywhere_one(HYBRIDS["blocks, gradients"])
def test_sweeps_then_conjugate_gradients_in_closed_form_t25(where, solver):
    """``D = DS + (I - DS G) D_E (I - G DS)``; the mean is that of conjugate gradients begun at ``v_E``."""
    G, V, b = where.dense.G, where.dense.V, where.dense.b
    A_E, D_E, _ = compose(G, dense_cycles(BLOCKS, G))
    begun = A_E @ b
    iterates, S = conjugate_gradients(G, b - G @ begun, DIRECTIONS.iterations)
    DS = projection_stage(G, S)
    rest = np.eye(N) - DS @ G
    state = where.at_new(solver)[-1]
    assert_close(state.downdate, V @ (DS + rest @ D_E @ rest.T) @ V.T)
    assert_close(state.mean[:, 0], V @ (begun + iterates[-1]))
    residual = np.linalg.norm(b - G @ (begun + iterates[-1])) / np.linalg.norm(b)
    assert state.relative_residual == pytest.approx(residual, rel=1e-9)


CONDITIONED = {
    "blocks, gradients": [BLOCKS, DIRECTIONS],
    "random blocks, random": [STAGES["blocks in random order"], cagp.RandomActions(5, seed=1)],
    "polynomials, gradients": [cagp.Chebyshev(3), DIRECTIONS],
    "two levels, random": [STAGES["two-level-block-gauss-seidel"], cagp.SSOR(1, 1.4), cagp.RandomActions(4)],
}
CONDITIONED = {name: cagp.Hybrid(parts, condition=True) for name, parts in CONDITIONED.items()}


@everywhere(CONDITIONED, few=("blocks, gradients",))
def test_a_belief_conditioned_on_actions_in_closed_form_t25(where, solver):
    """``D = D_E + H (S'GH)^-1 H'``, ``v = v_E + H (S'GH)^-1 S' r_E`` with ``H = S - D_E G S`` (math 6 c).

    It is the D of its own A, and of no larger variance than a projection on the same S.
    """
    dense, *before, last = where.dense, *solver.parts
    G, V, b = dense.G, dense.V, dense.b
    A_E, D_E, _ = compose(G, [stage for part in before for stage in dense_cycles(part, G)])
    left = b - G @ (A_E @ b)
    if isinstance(last, cagp.ConjugateGradient):
        S = conjugate_gradients(G, left, last.iterations)[1]
    else:
        S = np.random.default_rng(last.seed).standard_normal((N, last.iterations))
    S = np.linalg.qr(S)[0]
    H = S - D_E @ G @ S
    gain = H @ np.linalg.inv(S.T @ G @ H)
    A, D = A_E + gain @ S.T @ (np.eye(N) - G @ A_E), D_E + gain @ H.T
    state = where.at_new(solver)[-1]
    assert_close(state.mean[:, 0], V @ A @ b)
    assert_close(state.downdate, V @ D @ V.T)
    assert_close(state.downdate, V @ downdate(A, G) @ V.T)
    less = state.downdate - where.at_new(cagp.Hybrid(solver.parts))[-1].downdate
    assert np.linalg.eigvalsh(less).min() > -1e-9
    assert np.diag(less).max() > 1e-5
    if isinstance(last, cagp.ConjugateGradient):
        residual = np.linalg.norm(b - G @ (A @ b)) / np.linalg.norm(b)
        assert state.relative_residual == pytest.approx(residual, rel=1e-8)
    else:
        assert state.relative_residual is None


@everywhere({name: STAGES[name] for name in ("gauss-seidel", "ssor", "jacobi", "richardson")})
def test_data_that_grow_have_the_belief_of_stages_padded_with_zeros_t36(where, solver):
    """``A_pad = [[A, 0], [0, 0]]``: stages on the first points, then on all; then points without stages.

    A stream sees any points as points, so that the second half has the matrix that the solver has with the
    Gram matrix at hand, but for blocks, which on complete grids are others.
    """
    dense, X, noise, k = where.dense, where.case.X, where.case.noise, 20
    first = np.zeros((N, N))
    first[:k, :k] = compose(dense.G[:k, :k], dense_cycles(solver, dense.G[:k, :k]))[0]
    A, D, _ = compose(dense.G, [first, where.matrices(solver)[-1][0]])
    prior = cagp.Prior(where.case.gram.kernel, 1.0)
    stream = cagp.GrowingData(prior, where.targets, solver=solver, executor=where.executor)
    stream.append(X[:k], dense.b[:k], noise_variance=noise[:k])
    before, mean = stream.posterior(covariance="full"), stream.mean()
    assert_close(before.covariance, dense.K2 - dense.V @ downdate(first, dense.G) @ dense.V.T)
    none = dataclasses.replace(solver, iterations=0)
    stream.append(X[k:], dense.b[k:], noise_variance=noise[k:], solver=none)
    assert stream.n == N
    assert_same_bits(stream.posterior(covariance="full"), before)
    assert_close(stream.mean(), mean, relative=1e-13)
    stream.advance()
    after = stream.posterior(covariance="full")
    assert_close(after.mean, dense.V @ A @ dense.b)
    assert_close(stream.mean(), dense.V @ A @ dense.b)
    assert_close(after.covariance, dense.K2 - dense.V @ D @ dense.V.T)


@everywhere_one(cagp.UnitVectors(20, order="given"))
def test_points_without_actions_change_nothing_t36(where, solver):
    """Twenty actions ``(s_i, 0)`` on all points are those ``s_i`` on the first twenty points alone."""
    dense, k = where.dense, 20
    state, G, V = where.at_new(solver)[-1], dense.G[:k, :k], dense.V[:, :k]
    assert_close(state.mean[:, 0], V @ np.linalg.solve(G, dense.b[:k]))
    assert_close(state.downdate, V @ np.linalg.solve(G, V.T))


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
    } - {cagp.SubsetOfData}
