"""Block-sparse actions: which points they weigh, with which weights, and what is known of the result."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.service.jobfile.solver_table import SOLVER_TABLES
from cagp_dist.solvers.actions.block_sparse import BlockLayout, block_sums

from ..joined import one_after_another
from ..oracle import assert_close

pytestmark = pytest.mark.usefixtures("one_blas_thread")

PRIOR = cagp.Prior(cagp.Matern32(lengthscale=0.3), noise_variance=0.05)


def data(n=50, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(size=(n, 2)), rng.normal(size=n), rng.uniform(size=(6, 2))


def posterior(solver, n=50):
    X, y, X_test = data(n)
    return cagp.condition(PRIOR, X, y, X_test, solver=solver, covariance="full")


@pytest.mark.parametrize("order", ["space-filling", "given"])
@pytest.mark.parametrize(("n", "actions"), [(50, 7), (50, 1), (50, 50), (3, 9), (1, 1)])
def test_every_point_is_in_one_block_and_blocks_are_of_like_size(n, actions, order):
    X, *_ = data(n)
    layout = BlockLayout.of(X, actions, order=order)
    values = np.random.default_rng(1).normal(size=n)
    S = layout.columns(values)
    assert S.shape == (n, min(n, actions))
    np.testing.assert_array_equal(S.sum(axis=1), values)
    assert ((S != 0.0).sum(axis=1) == 1).all()
    sizes = (S != 0.0).sum(axis=0)
    assert sizes.max() - sizes.min() <= 1
    np.testing.assert_array_equal(block_sums(np.ones((n, 1)), layout.edges)[:, 0], sizes)
    if order == "given":
        np.testing.assert_array_equal(layout.order, np.arange(n))


def test_weights_from_a_seed_are_as_long_on_average_as_unit_vectors():
    """Mean of the squared lengths of 1,000 actions: standard error sqrt(2 / 20,000) = 1 %."""
    layout = BlockLayout.of(data(20_000)[0], 1000)
    lengths = block_sums((layout.draw(3)[layout.order] ** 2)[:, None], layout.edges)
    assert abs(lengths.mean() - 1.0) < 0.04
    np.testing.assert_array_equal(layout.draw(3), layout.draw(3))
    assert not np.array_equal(layout.draw(3), layout.draw(4))


def test_given_weights_are_those_of_the_points():
    layout = BlockLayout.of(data()[0], 7)
    drawn, given = (
        posterior(solver)
        for solver in (cagp.SparseActions(7, seed=3), cagp.SparseActions(7, values=layout.draw(3)))
    )
    np.testing.assert_array_equal(given.mean, drawn.mean)
    np.testing.assert_array_equal(given.covariance, drawn.covariance)


def test_blocks_whose_weights_are_zero_are_left_out():
    layout = BlockLayout.of(data()[0], 7)
    values = layout.draw(0)
    values[layout.order[: layout.edges[1]]] = 0.0
    found = posterior(cagp.SparseActions(7, values=values))
    assert (found.stats.dropped_actions, found.stats.iterations) == (1, 6)
    X, y, X_test = data()
    S = layout.columns(values)[:, 1:]
    G, V = PRIOR.kernel(X, X) + 0.05 * np.eye(50), PRIOR.kernel(X_test, X)
    gain = V @ S @ np.linalg.inv(S.T @ G @ S) @ S.T
    assert_close(found.mean, gain @ y)
    assert_close(found.covariance, PRIOR.kernel(X_test, X_test) - gain @ V.T)


def test_weights_that_were_chosen_with_a_look_at_the_data_are_calibrated_approximately():
    values = tuple(np.ones(50))
    tuned = cagp.SparseActions(5, values=values)
    assert tuned.calibrated == "approximate"
    assert cagp.MixedActions([tuned, cagp.RandomActions(2)]).calibrated == "approximate"
    for solver in (cagp.SparseActions(5), cagp.SparseActions(5, values=values, tuned=False)):
        assert solver.calibrated == "exact"
    assert "look at the data" in cagp.SparseActions.__doc__  # with the reason


def test_solvers_with_the_same_weights_are_equal():
    one, other = (cagp.SparseActions(5, values=np.ones(50)) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != cagp.SparseActions(5, values=np.zeros(50))


@one_after_another
@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: cagp.SparseActions(-1), "no-count"),
        (lambda: cagp.SparseActions(5, "random"), "unknown-word"),
        (lambda: cagp.SparseActions(5, seed=-1), "no-count"),
        (lambda: cagp.SparseActions(5, values=np.ones((5, 2))), "shapes"),
        (lambda: cagp.SparseActions(5, values=[1.0, np.nan]), "shapes"),
        (lambda: posterior(cagp.SparseActions(5, values=np.ones(49))), "shapes"),
    ],
)
def test_what_makes_no_sense_is_refused(make, key):
    with pytest.raises(ArgumentError) as refusal:
        make()
    assert refusal.value.key == key


def test_they_can_be_mixed_with_others():
    X, y, X_test = data()
    several = np.stack([y, 2.0 * y], axis=1)
    parts = cagp.SparseActions(5, values=np.linspace(1.0, 2.0, 50)), cagp.UnitVectors(3, order="given")
    found = cagp.condition(PRIOR, X, several, X_test, solver=cagp.MixedActions(parts), covariance="full")
    layout = BlockLayout.of(X, 5)
    S = np.concatenate([layout.columns(np.linspace(1.0, 2.0, 50)), np.eye(50)[:, :3]], axis=1)
    G, V = PRIOR.kernel(X, X) + 0.05 * np.eye(50), PRIOR.kernel(X_test, X)
    gain = V @ S @ np.linalg.inv(S.T @ G @ S) @ S.T
    assert_close(found.mean, gain @ several)
    assert_close(found.covariance, PRIOR.kernel(X_test, X_test) - gain @ V.T)
    none = cagp.MixedActions([cagp.SparseActions(0), parts[1]])
    alone = cagp.condition(PRIOR, X, y, X_test, solver=parts[1])
    assert_close(cagp.condition(PRIOR, X, y, X_test, solver=none).mean, alone.mean)
    named = cagp.MixedActions("sparse-actions 5, conjugate-gradient 2")
    assert (named.parts[0], named.many_fields) == (cagp.SparseActions(5), False)


def test_whether_weights_are_tuned_is_no_key_of_job_files():
    """These have no weights of their own."""
    assert set(SOLVER_TABLES["sparse-actions"].model_fields) == {"name", "actions", "order", "seed"}
