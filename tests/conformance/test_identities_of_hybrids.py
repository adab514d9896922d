"""Identities T25 and T36 of the mathematics page: hybrids, and data that grow; as `test_identities`."""

from dataclasses import replace

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.solvers.engine.affine import Affine

from ..oracle import assert_close, compose, conjugate_gradients, downdate
from ..solvers.stages import dense_cycles, hybrid_stages, projection_stage
from .everywhere import BLOCK, BLOCKS, DIRECTIONS, HYBRIDS, STAGES, everywhere, everywhere_one
from .places import N

pytestmark = pytest.mark.usefixtures("one_blas_thread")


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
def test_stages_on_the_first_points_are_those_of_all_padded_with_zeros_t36(where, solver):
    """``A_pad = [[A, 0], [0, 0]]``: points without stages change nothing, and stages of all go on from there.

    The second mean is that of the first, and what all points make of the residual that it leaves.
    """
    dense, X, noise, k = where.dense, where.case.X, where.case.noise, 20
    first = np.zeros((N, N))
    first[:k, :k] = compose(dense.G[:k, :k], dense_cycles(solver, dense.G[:k, :k]))[0]
    D = np.zeros((N, N))
    D[:k, :k] = downdate(first[:k, :k], dense.G[:k, :k])
    assert_close(downdate(first, dense.G), D)
    prior = cagp.Prior(where.case.gram.kernel, noise[:k])
    settings = {"solver": solver, "executor": where.executor}
    before = cagp.condition(prior, X[:k], dense.b[:k], where.targets, covariance="full", **settings)
    assert_close(before.mean, dense.V @ first @ dense.b)
    assert_close(before.covariance, dense.K2 - dense.V @ D @ dense.V.T)
    left = dense.b - dense.G @ first @ dense.b
    added = cagp.condition(replace(prior, noise_variance=noise), X, left, where.targets, **settings)
    A = compose(dense.G, [first, compose(dense.G, dense_cycles(solver, dense.G))[0]])[0]
    assert_close(before.mean + added.mean, dense.V @ A @ dense.b)


@everywhere_one(cagp.BlockGaussSeidel(1, block_size=BLOCK))
def test_a_sweep_of_each_part_as_it_arrives_is_one_of_all_t36(where, solver):
    """Where parts are whole blocks: the solve of a block needs only the weights of those before it."""
    dense, X, weights = where.dense, where.case.X, np.zeros(0)
    for start in range(0, N, BLOCK):
        part, old = slice(start, start + BLOCK), slice(0, start)
        residual = dense.b[part] - where.case.gram.kernel(X[part], X[old]) @ weights
        weights = np.append(weights, np.linalg.solve(dense.G[part, part], residual))
        found = cagp.condition(
            cagp.Prior(where.case.gram.kernel, where.case.noise[: start + BLOCK]),
            X[: start + BLOCK],
            dense.b[: start + BLOCK],
            where.targets,
            solver=solver,
            executor=where.executor,
        )
        assert_close(found.mean, dense.V[:, : start + BLOCK] @ weights)


@everywhere_one(cagp.UnitVectors(20, order="given"))
def test_points_without_actions_change_nothing_t36(where, solver):
    """Twenty actions ``(s_i, 0)`` on all points are those ``s_i`` on the first twenty points alone."""
    dense, k = where.dense, 20
    state, G, V = where.at_new(solver)[-1], dense.G[:k, :k], dense.V[:, :k]
    assert_close(state.mean[:, 0], V @ np.linalg.solve(G, dense.b[:k]))
    assert_close(state.downdate, V @ np.linalg.solve(G, V.T))
