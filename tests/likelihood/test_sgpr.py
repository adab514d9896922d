"""What Titsias' bound costs, where its inducing points are, and what tells one from another."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from pipelines.experiments.inducing import CANDIDATES, inducing_points
from pipelines.experiments.sgpr import Sgpr, sgpr_bytes

from ..joined import one_after_another

pytestmark = pytest.mark.usefixtures("one_blas_thread")

LIMIT = 2**30


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("n", "m", "fields", "workers"),
    [
        (6000, 100, 1, 1),
        (3000, 300, 3, 2),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in ((12_000, 100, 1, 1), (3000, 300, 3, 1), (6000, 100, 1, 2), (12_000, 100, 1, 2))
        ),
    ],
)
def test_an_evaluation_holds_no_more_than_is_checked_before(n, m, fields, workers, traced):
    """Of order m^2 and some tiles beside the data: never all of ``k(Z, X)``."""
    rng = np.random.default_rng(0)
    X, b = rng.uniform(size=(n, 3)), rng.normal(size=(n, fields))

    def evaluated():
        bound = Sgpr(
            cagp.Matern32,
            X,
            b,
            inducing=X[:m],
            learn_inducing=True,
            executor=executor,
            memory_limit_bytes=LIMIT,
        )
        return bound(bound.vector(cagp.Matern32(0.3), 0.1))

    with ThreadExecutor(workers) as threads:
        executor = threads if workers > 1 else SerialExecutor()
        evaluated()  # compiles, imports
        peak = traced(evaluated)[1]
    one, allowed = (sgpr_bytes(n, m, p=3, fields=fields, workers=count) for count in (1, workers))
    assert 0.4 * one < peak < allowed  # two workers may have their tiles one after the other
    assert sgpr_bytes(10**6, 512, p=3, fields=1, workers=2) < 150e6, "k(Z, X) alone would take 4 GB"


def test_points_that_fill_space_tell_more_than_random_ones():
    """Every one of these is as far from the others as can be; the bound is higher for it."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(900, 2)) ** 3  # crowded in a corner
    kernel = cagp.Matern32(0.3)
    b = np.linalg.cholesky(kernel(X, X) + 0.01 * np.eye(900)) @ rng.normal(size=(900, 1))
    found = {}
    for placement in ("space-filling", "random"):
        Z = inducing_points(kernel, X, 30, placement=placement)
        assert Z.shape == (30, 2)
        assert len(np.unique(Z, axis=0)) == 30
        assert {tuple(z) for z in Z} <= {tuple(x) for x in X}
        bound = Sgpr(cagp.Matern32, X, b, inducing=Z, executor=SerialExecutor(), memory_limit_bytes=LIMIT)
        found[placement] = bound(bound.vector(kernel, 0.01))[0]
    assert found["space-filling"] > found["random"] + 100.0
    assert CANDIDATES * 30 < 900, "looked for among fewer points than there are"


def test_random_points_are_nested_and_drawn_with_a_seed():
    X = np.random.default_rng(0).uniform(size=(50, 2))
    few, more = (inducing_points(cagp.Matern32(0.3), X, m, placement="random", seed=3) for m in (5, 60))
    np.testing.assert_array_equal(few, more[:5])
    assert len(more) == 50
    other = inducing_points(cagp.Matern32(0.3), X, 5, placement="random", seed=4)
    assert not np.array_equal(few, other)


def test_points_that_add_nothing_are_left_out():
    """Twenty places, each three times: no twenty-first inducing point, whose k(Z, Z) would be singular."""
    X = np.repeat(np.random.default_rng(0).uniform(size=(20, 2)), 3, axis=0)
    assert len(inducing_points(cagp.Matern32(0.3), X, 30)) == 20


@one_after_another
@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"count": 0}, "no-count"),
        ({"placement": "pivoted"}, "unknown-word"),
        ({"seed": -1}, "no-count"),
    ],
)
def test_a_placement_that_makes_no_sense_is_refused(given, key):
    with pytest.raises(ArgumentError) as refusal:
        inducing_points(cagp.Matern32(0.3), np.eye(4), **{"count": 2, **given})
    assert refusal.value.key == key


def test_a_bound_has_a_fingerprint_of_all_that_it_depends_on():
    rng = np.random.default_rng(0)
    X, b = rng.uniform(size=(20, 2)), rng.normal(size=(20, 1))
    first = {"kernel": cagp.Matern32, "X": X, "residuals": b, "inducing": X[:4]}

    def made(**change):
        given = {**first, **change}
        return Sgpr(
            given.pop("kernel"),
            given.pop("X"),
            given.pop("residuals"),
            executor=SerialExecutor(),
            memory_limit_bytes=LIMIT,
            **given,
        ).fingerprint

    assert made() == made()
    changes = (
        {"kernel": cagp.Matern52},
        {"X": X + 1e-9},
        {"residuals": -b},
        {"inducing": X[:5]},
        {"learn_inducing": True},
        {"jitter": 1e-8},
        {"anisotropic": True},
    )
    assert len({made(), *(made(**change) for change in changes)}) == 1 + len(changes)
