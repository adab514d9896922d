"""Identities T25 and T36 of the mathematics page: hybrids, and data that grow; as `test_identities`."""

import dataclasses

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.solvers.affine import Affine

from ..oracle import assert_close, assert_same_bits, compose, conjugate_gradients, downdate
from ..solvers.stages import dense_cycles, hybrid_stages, projection_stage
from .everywhere import BLOCKS, DIRECTIONS, HYBRIDS, STAGES, everywhere, everywhere_one
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
