"""Identities T15-T24 of the mathematics page, which are about actions; as `test_identities`."""

import itertools

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.solvers.stationary.preconditioners import find_preconditioner

from ..oracle import assert_close, conjugate_gradients
from ..solvers.policies import with_count
from .everywhere import ACTIONS, GRADIENTS, INDEPENDENT, KNOWN, POLICIES, everywhere, everywhere_one
from .places import N

pytestmark = pytest.mark.usefixtures("one_blas_thread")


@everywhere(POLICIES)
def test_every_action_projects_along_its_direction_t15_t16_t18_t19(where, solver):
    """One matrix D, of conjugate directions, gives mean and variances after every action."""
    dense, K, matrices = where.dense, where.case.K, [D for _, D in where.matrices(solver)]
    states = where.at_new(solver)
    assert len(matrices) == len(states) == ACTIONS
    assert_conjugate(dense.G, [np.zeros((N, N)), *matrices])
    for D, state in zip(matrices, states, strict=True):
        assert_close(D @ dense.G @ D, D, relative=1e-8)  # T16
        assert_close(state.mean[:, 0], dense.V @ D @ dense.b, relative=1e-8)  # T19
    # T18, at the observed points and at new ones; there is something to learn from every action
    variances = [np.diag(K), *(np.diag(K - K @ D @ K) for D in matrices)]
    for earlier, later in itertools.pairwise(variances):
        assert (later <= earlier + 1e-13).all()
        assert (later < earlier).any()
    assert (variances[-1] >= np.diag(K - K @ np.linalg.solve(dense.G, K)) - 1e-12).all()
    downdates = [np.zeros(len(where.targets)), *(state.downdate.diagonal() for state in states)]
    assert all((later >= earlier).all() for earlier, later in itertools.pairwise(downdates))


def assert_conjugate(G, D):
    """T15: the increments ``d_i d_i' / eta_i`` of D annihilate each other through G."""
    increments = [later - earlier for earlier, later in itertools.pairwise(D)]
    for i, increment in enumerate(increments):
        assert_close(increment @ G @ increment, increment, relative=1e-8)
        assert np.trace(increment @ G) == pytest.approx(1.0, rel=1e-8)  # of rank one
        for other in increments[:i]:
            bound = 1e-8 * np.linalg.norm(increment) * np.linalg.norm(other) * np.linalg.norm(G)
            assert np.abs(increment @ G @ other).max() < bound


@everywhere_one(cagp.RandomActions(N, seed=1))
def test_n_actions_give_the_inverse_t16(where, solver):
    assert_close(where.matrices(solver)[-1][1], np.linalg.inv(where.dense.G), relative=1e-8)


@everywhere(KNOWN, few=("random", "pivoted points"))
def test_the_belief_is_that_of_data_projected_on_the_span_of_the_actions_t17_t21(where, solver):
    """After each of them; mixed by any invertible matrix, in any order, of any length.

    The prior given ``S'y``, whose noise covariance is ``S' N S`` (T21).
    """
    dense, S, states = where.dense, where.actions(solver), where.at_new(solver)
    W = np.random.default_rng(4).normal(size=(ACTIONS, ACTIONS))
    for actions in (S, S @ W, S[:, ::-1] * np.geomspace(1e-3, 1e3, ACTIONS)):
        where.assert_projected(states[-1], actions)
    for state in states:
        where.assert_projected(state, S[:, : state.iteration])
    S = S / np.linalg.norm(S, axis=0)
    data_covariance = S.T @ where.case.K @ S + S.T @ (where.case.noise[:, None] * S)
    gain = np.linalg.solve(data_covariance, (dense.V @ S).T).T
    assert_close(states[-1].mean[:, 0], gain @ S.T @ dense.b)
    assert_close(states[-1].downdate, gain @ (dense.V @ S).T)


@everywhere_one(POLICIES["two kinds"])
def test_mixed_actions_are_those_of_all_parts_t17(where, solver):
    inputs, random = solver.parts
    normal = np.random.default_rng(random.seed).standard_normal((N, random.iterations))
    where.assert_projected(where.at_new(solver)[-1], np.concatenate([where.actions(inputs), normal], axis=1))


@everywhere(INDEPENDENT, few=("random", "pivoted points"))
def test_n_actions_are_the_exact_posterior_t20(where, solver):
    """Of more than n those that are left over are not taken."""
    state = where.at_new(with_count(solver, 3 * N))[-1]
    assert (state.iteration, state.status) == (N, cagp.Status.EXACT)
    mean, covariance = where.dense.exact()
    assert_close(state.mean[:, 0], mean, relative=1e-8)
    assert_close(where.dense.K2 - state.downdate, covariance, relative=1e-8)


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
