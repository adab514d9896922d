"""Settings of the solvers and what a status says."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError

from ..joined import one_after_another
from ..pairwise import by_turns


def sor(iterations, **settings):
    return cagp.SOR(iterations, relaxation=1.5, **settings)


def ssor(iterations):
    return cagp.SSOR(iterations, relaxation=1.5)


EVERY = [
    cagp.GaussSeidel,
    cagp.ConjugateGradient,
    cagp.RandomActions,
    cagp.BlockGaussSeidel,
    cagp.Jacobi,
    cagp.BlockJacobi,
    cagp.Richardson,
    cagp.Chebyshev,
    sor,
    ssor,
]
every_solver = pytest.mark.parametrize("solver", EVERY)


@pytest.mark.parametrize(
    ("solver", "iterations"),
    by_turns({"solver": EVERY, "iterations": [-1, 2.0, "2", None, True, np.float64(4.0)]}),
)
def test_iterations_must_be_a_count(solver, iterations):
    with pytest.raises(ArgumentError) as refusal:
        solver(iterations)
    assert refusal.value.key == "no-count"


@every_solver
def test_counts_of_numpy_are_counts(solver):
    assert solver(np.int64(3)).iterations == 3


@one_after_another
@pytest.mark.parametrize("solver", [cagp.BlockGaussSeidel, cagp.BlockJacobi])
@pytest.mark.parametrize("block_size", [0, -1, 2.5, "all", None, False])
def test_block_size_must_be_a_count(solver, block_size):
    with pytest.raises(ArgumentError) as refusal:
        solver(2, block_size=block_size)
    assert refusal.value.key == "no-count"


@one_after_another
@pytest.mark.parametrize("solver", [cagp.SOR, cagp.SSOR])
@pytest.mark.parametrize("relaxation", [0.0, 2.0, -0.5, 2.5, np.nan, np.inf, "1.5", None])
def test_relaxation_must_lie_between_0_and_2(solver, relaxation):
    with pytest.raises(ArgumentError, match=r"relaxation is .*; expected"):
        solver(2, relaxation=relaxation)


@one_after_another
@pytest.mark.parametrize("solver", [cagp.Jacobi, cagp.BlockJacobi])
@pytest.mark.parametrize("damping", [0.0, -0.5, np.nan, np.inf, "0.1"])
def test_damping_must_be_positive(solver, damping):
    with pytest.raises(ArgumentError) as refusal:
        solver(2, damping=damping)
    assert refusal.value.key == "not-positive"


@one_after_another
@pytest.mark.parametrize("step", [0.0, -0.5, np.nan, np.inf, "0.1"])
def test_step_must_be_positive(step):
    with pytest.raises(ArgumentError) as refusal:
        cagp.Richardson(2, step=step)
    assert refusal.value.key == "not-positive"


@one_after_another
@pytest.mark.parametrize("solver", [cagp.Richardson, cagp.Chebyshev])
@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (
            {"preconditioner": "jacobi"},
            "preconditioner-unknown",
        ),
        (
            {"preconditioner": "block-gauss-seidel"},
            "preconditioner-unknown",
        ),
        ({"preconditioner_size": 9}, "no-preconditioner"),
        (
            {"preconditioner": "nystrom", "preconditioner_size": 0},
            "no-count",
        ),
    ],
)
def test_preconditioners_are_those_that_leave_bounds(solver, settings, key):
    with pytest.raises(ArgumentError) as refusal:
        solver(2, **settings)
    assert refusal.value.key == key


@one_after_another
@pytest.mark.parametrize("colours", [1, 0, 2.0, None])
def test_colours_must_be_a_count(colours):
    with pytest.raises(ArgumentError) as refusal:
        cagp.BlockGaussSeidel(2, order="multicolour", colours=colours)
    assert refusal.value.key == "no-count"


@one_after_another
@pytest.mark.parametrize("solver", [cagp.GaussSeidel, cagp.BlockGaussSeidel, sor])
@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"order": "shuffled"}, "unknown-word"),
        ({"order": None}, "unknown-word"),
        ({"order": "random", "seed": -1}, "no-count"),
    ],
)
def test_orders_are_those_there_are(solver, settings, key):
    with pytest.raises(ArgumentError) as refusal:
        solver(2, **settings)
    assert refusal.value.key == key


@one_after_another
@pytest.mark.parametrize("seed", [-1, 0.5, None, "seed"])
def test_seed_must_be_a_count(seed):
    with pytest.raises(ArgumentError) as refusal:
        cagp.RandomActions(2, seed=seed)
    assert refusal.value.key == "no-count"


def test_seeds_differ():
    rng = np.random.default_rng(0)
    X, y, X_test = rng.uniform(size=(40, 2)), rng.normal(size=40), rng.uniform(size=(5, 2))
    prior = cagp.Prior(cagp.Matern32(0.3), 0.1)
    one, two = (cagp.condition(prior, X, y, X_test, solver=cagp.RandomActions(3, seed=s)) for s in (1, 2))
    assert np.abs(one.mean - two.mean).max() > 1e-6


def test_exact_solver_has_no_settings():
    assert cagp.Cholesky().iterations == 1
    with pytest.raises(TypeError):
        cagp.Cholesky(iterations=3)


def test_every_status_says_what_it_means_and_what_to_do():
    assert {status.value for status in cagp.Status} == {
        "exact",
        "completed",
        "stopped",
        "neighbours",
        "converged",
        "solved",
        "share-reached",
        "share-not-reached",
        "breakdown",
        "ill-conditioned",
        "diverged",
    }
    bad = {"share-not-reached", "breakdown", "ill-conditioned", "diverged"}
    assert {status.value for status in cagp.Status if not status.ok} == bad
    assert "Lower damping" in cagp.Status.DIVERGED.advice
    for status in cagp.Status:
        assert status.advice.endswith(".")
    assert "More iterations give smaller error bars" in cagp.Status.COMPLETED.advice
    assert "variance is not calibrated" in cagp.Status.STOPPED.advice
    assert "exact up to rounding" in cagp.Status.EXACT.advice
    assert "Raise noise_variance" in cagp.Status.BREAKDOWN.advice
    assert "condition number of the Gram matrix is above 1e13" in cagp.Status.ILL_CONDITIONED.advice
    assert "Raise noise_variance, or thin points" in cagp.Status.ILL_CONDITIONED.advice
