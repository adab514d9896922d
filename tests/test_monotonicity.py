"""When the variance falls from stage to stage, and when it may rise (math 1.4), by dense matrices alone."""

from collections.abc import Iterator

import numpy as np
import pytest

import cagp_dist as cagp

from .oracle import assert_close, block_stage, compose, kernel_matrix, point_stage

Array = np.ndarray

N, CASES = 12, 200
ROUNDING = 1e-10
"""Of the prior variance; a difference below this is none."""


def cases() -> Iterator[tuple[Array, Array, np.random.Generator]]:
    """G (n, n) and V (q, n) of random problems in the unit square, and a generator for orders.

    Kernel variance 1; lengthscales from 0.1 to 2 and noise variances from 1e-3 to 0.1.
    """
    for seed in range(CASES):
        rng = np.random.default_rng([14, seed])
        X, X_test = rng.uniform(size=(N, 2)), rng.uniform(size=(5, 2))
        kernel = cagp.Matern32(lengthscale=float(np.exp(rng.uniform(np.log(0.1), np.log(2.0)))))
        noise = float(np.exp(rng.uniform(np.log(1e-3), np.log(0.1))))
        yield kernel_matrix(kernel, X, X) + noise * np.eye(N), kernel_matrix(kernel, X_test, X), rng


def in_order(G: Array, order: Array) -> Array:
    """The stage ``Mt`` of a point sweep that visits the points in this order."""
    place = np.argsort(order)
    return point_stage(G[np.ix_(order, order)])[np.ix_(place, place)]


def variances(G: Array, V: Array, stages: list[Array]) -> Array:
    """Latent variances after 0, 1, ..., m stages, shape (m + 1, q); the prior's are 1."""
    downdates = [compose(G, stages[:m])[1] for m in range(len(stages) + 1)]
    return np.stack([1.0 - np.einsum("qi,ij,qj->q", V, D, V) for D in downdates])


def largest_rise(course: Array) -> float:
    """By how much a variance rises at most from one stage to the next."""
    return float(np.diff(course, axis=0).max())


@pytest.mark.parametrize("stage", [point_stage, lambda G: block_stage(G, 4)], ids=["points", "blocks"])
def test_equal_stages_never_raise_the_variance(stage):
    for G, V, _ in cases():
        course = variances(G, V, [stage(G)] * 6)
        assert largest_rise(course) <= ROUNDING
        assert course[-1].sum() < course[0].sum()


def test_a_list_that_is_repeated_as_a_whole_counts_as_one_stage():
    """Forward and backward in turn: the variance may rise after a half, never after a whole repetition."""
    backward = np.arange(N)[::-1]
    for G, V, _ in cases():
        course = variances(G, V, [point_stage(G), in_order(G, backward)] * 3)
        assert largest_rise(course[::2]) <= ROUNDING


def test_two_sweeps_in_different_orders_may_raise_the_variance():
    rises = []
    for G, V, rng in cases():
        course = variances(G, V, [in_order(G, rng.permutation(N)), in_order(G, rng.permutation(N))])
        rises.append(largest_rise(course))
    # by a tenth of the prior's variance and more: nothing that rounding could do
    assert max(rises) > 0.1
    assert sum(rise > ROUNDING for rise in rises) > CASES / 2


def test_a_stage_in_front_never_raises_the_variance():
    """The order in which the adjoint engine meets the stages, so that its downdate only grows."""
    for G, V, rng in cases():
        stages = [in_order(G, rng.permutation(N)) for _ in range(4)]
        course = np.concatenate([variances(G, V, stages[4 - m :])[-1:] for m in range(5)])
        assert largest_rise(course) <= ROUNDING


def test_the_downdate_is_a_sum_of_one_term_for_each_stage():
    for G, _, rng in cases():
        stages = [in_order(G, rng.permutation(N)) for _ in range(3)]
        total, after = np.zeros((N, N)), np.eye(N)
        for Mt in stages[::-1]:
            W = np.linalg.inv(Mt) + np.linalg.inv(Mt).T - G
            total += after @ Mt @ W @ Mt.T @ after.T
            after = after @ (np.eye(N) - Mt @ G)
        assert_close(total, compose(G, stages)[1], relative=1e-8)


def test_no_list_of_sweeps_raises_the_variance_above_the_prior_or_below_the_exact_one():
    for G, V, rng in cases():
        course = variances(G, V, [in_order(G, rng.permutation(N)) for _ in range(4)])
        exact = 1.0 - np.einsum("qi,iq->q", V, np.linalg.solve(G, V.T))
        assert (course <= 1.0 + ROUNDING).all()
        assert (course >= exact - ROUNDING).all()


def test_every_stage_of_a_sweep_has_a_positive_semidefinite_weight():
    """W = N + N' - G with N the inverse of Mt is the diagonal of G, in any order (math 2)."""
    for G, _, rng in cases():
        N_stage = np.linalg.inv(in_order(G, rng.permutation(N)))
        np.testing.assert_allclose(N_stage + N_stage.T - G, np.diag(np.diag(G)), atol=1e-9)


def test_an_undamped_jacobi_stage_may_raise_the_variance_above_the_prior():
    """Its weight 2 D_G - G is indefinite for a smooth kernel: nothing bounds the variance then."""
    highest = max(variances(G, V, [np.diag(1.0 / np.diag(G))] * 2).max() for G, V, _ in cases())
    assert highest > 2.0
