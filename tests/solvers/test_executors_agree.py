"""Serial, threads and Dask with any number of workers: the same result to the last bit.

The problem is large enough for several blocks, row panels, column groups and kept tiles. Only workers
that share memory keep tiles, so the comparison also shows that keeping them changes nothing.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import cagp_dist as cagp
from cagp_dist.errors import BudgetError
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.runtime.dask import DaskExecutor
from cagp_dist.solvers.engine.tile_tasks import SolvedBlock, add_to_sums, no_sums
from cagp_dist.solvers.stationary import spectrum

from ..oracle import assert_same_bits
from ..problems import RegressionProblem
from .engine import weights

N = 1050
SOLVERS = {
    "gauss-seidel": cagp.GaussSeidel(2),
    "small-blocks": cagp.BlockGaussSeidel(2, block_size=100),
    "blocks": cagp.BlockGaussSeidel(2, block_size=210),
    "overrelaxed": cagp.SOR(2, relaxation=1.4),
    "random": cagp.GaussSeidel(2, order="random"),
    "blocks-in-random-order": cagp.BlockGaussSeidel(2, block_size=100, order="random"),
    "there-and-back": cagp.SSOR(2, relaxation=1.4),
    "colours": cagp.BlockGaussSeidel(2, block_size=150, order="multicolour"),
    "share": cagp.BlockGaussSeidel(20, block_size=210, computational_share=0.3),
    "jacobi": cagp.Jacobi(2),
    "block-jacobi": cagp.BlockJacobi(2, block_size=210),
    "small-block-jacobi": cagp.BlockJacobi(2, block_size=100, damping=0.1),
    "richardson": cagp.Richardson(2),
    "chebyshev": cagp.Chebyshev(3),
    "preconditioned": cagp.Chebyshev(2, preconditioner="nystrom", preconditioner_size=50),
    "by-vecchia": cagp.Chebyshev(2, preconditioner="vecchia", preconditioner_size=10),
    "two-level": cagp.TwoLevelBlockGaussSeidel(2, block_size=210, coarse=30),
    "two-level-at-once": cagp.TwoLevelBlockJacobi(2, block_size=210, coarse=30),
    "hybrid": cagp.Hybrid([cagp.BlockGaussSeidel(1, 100), cagp.ConjugateGradient(5), cagp.SOR(1, 1.4)]),
    "conditioned": cagp.Hybrid([cagp.BlockGaussSeidel(1, 100), cagp.ConjugateGradient(5)], condition=True),
    "conjugate-gradient": cagp.ConjugateGradient(5),
    "random-actions": cagp.RandomActions(12, seed=0),
    "few-random-actions": cagp.RandomActions(3, seed=0),
    "swept-gradients": cagp.ConjugateGradient(3, "block-gauss-seidel", 210),
    "unit-vectors": cagp.UnitVectors(40),
    "pseudo-inputs": cagp.PseudoInputs(20),
    "sparse-actions": cagp.SparseActions(20),
    "eigenvectors": cagp.Eigenvectors(2),
    "krylov-actions": cagp.KrylovActions(3),
    "mixed-actions": cagp.MixedActions("unit-vectors 10, conjugate-gradient 2"),
    "cholesky": cagp.Cholesky(),
    "neighbours": cagp.Neighbours(10, coarse=16),
}
QUESTIONS = {
    "wide": (600, "diagonal"),
    "narrow": (40, "full"),
    "cells": (120, "diagonal"),
    "functionals": (120, "full"),
}
SOME_SOLVERS = {
    "cells": ("blocks", "conjugate-gradient", "cholesky"),
    "functionals": ("blocks", "jacobi", "neighbours"),
}
CASES = [
    (name, question)
    for name in SOLVERS
    for question in QUESTIONS
    if name in SOME_SOLVERS.get(question, SOLVERS)
]
FEW_CASES = [(name, "narrow") for name in SOLVERS if name != "eigenvectors"]
FEW_CASES += [
    ("gauss-seidel", "wide"),
    ("blocks", "cells"),
    ("blocks", "functionals"),
    ("neighbours", "wide"),
    ("neighbours", "functionals"),
]
SENT = (
    "chebyshev",
    "preconditioned",
    "by-vecchia",
    "two-level-at-once",
    "colours",
    "conjugate-gradient",
    "pseudo-inputs",
    "sparse-actions",
    "neighbours",
)
SENT_CASES = [(name, "narrow") for name in SENT]
SENT_CASES += [
    ("gauss-seidel", "wide"),
    ("blocks", "cells"),
    ("neighbours", "wide"),
    ("neighbours", "functionals"),
]
FORWARD = ("blocks", "block-jacobi")
"""Cases and forward solves in which every kind of task is sent to other processes in every run."""


def by_workers(workers: int, cases: list[tuple[str, str]]) -> pytest.MarkDecorator:
    """Some cases on so many workers, and at leisure all of them on one, two and three."""
    at_leisure = [pytest.param(number, CASES, marks=pytest.mark.exhaustive) for number in (1, 2, 3)]
    return pytest.mark.parametrize(("workers", "cases"), [(workers, cases), *at_leisure])


@pytest.fixture(scope="module", autouse=True)
def settings_of_this_process() -> Iterator[None]:
    """Two BLAS threads outside of solves, as users have them, where bits must not depend on their number.

    Bounds of spectra are from four products: they need not be sharp here, but the same.
    """
    with threadpool_limits(limits=2, user_api="blas"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(spectrum, "LANCZOS_STEPS", 4)
        patch.setattr(spectrum, "STEPS_OF_DEFAULT", 4)
        yield


def drawn(n: int, block_size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points of the sphere, what was observed there, and targets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X = X[cagp.space_filling_order(X, block_size=block_size)]
    X_test = rng.normal(size=(600, 3))
    return X, X[:, 0] + rng.normal(size=n) / 10.0, X_test / np.linalg.norm(X_test, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def points() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return drawn(N, 210)


def solve(points, name, question, executor):
    X, y, X_test = points
    q, covariance = QUESTIONS[question]
    prior = cagp.Prior(cagp.Matern32(lengthscale=0.1), noise_variance=0.01)
    targets = X_test[:q]
    if question == "cells":  # of 1 to 7 nodes
        counts = np.resize([1, 7, 4], 30)
        targets = cagp.CellMeans(targets, np.repeat(1.0 / counts, counts), counts)
    if question == "functionals":  # of nodes that they share
        targets = cagp.LinearFunctionals(targets, np.random.default_rng(5).normal(size=(q, 12)))
    return cagp.condition(
        prior, X, y, targets, solver=SOLVERS[name], covariance=covariance, executor=executor
    )


@pytest.fixture(scope="module")
def reference(points):
    """Solves in series, each made once, when it is asked for."""
    return cache(lambda *case: solve(points, *case, SerialExecutor()))


def forward_solves(points, executor) -> list[np.ndarray]:
    """Representer weights by forward sweeps and by blocks that do not wait for each other."""
    X, y, X_test = points
    problem = RegressionProblem(cagp.Prior(cagp.Matern32(0.1), 0.01), X, y, X_test)
    return [weights(problem, SOLVERS[name], y[:, None], executor=executor) for name in FORWARD]


def bounded(executor) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of one solve after three Lanczos steps.

    Of more points than neighbours that are all of them, from which bounds cannot become closer.
    """
    X, y, X_test = drawn(1500, 500)
    prior, solver = cagp.Prior(cagp.Matern32(1.5), 0.1), cagp.BlockGaussSeidel(2, block_size=500)
    settings = {"solver": solver, "executor": executor}
    plain = cagp.condition(prior, X, y, X_test[:30], **settings).certificate.bounds(executor)
    closer = cagp.condition(prior, X, y, X_test[:30], lanczos_steps=3, **settings).certificate.bounds(
        executor
    )
    assert (closer[1] < plain[1]).any()
    return closer


@pytest.fixture(scope="module")
def bounds():
    return bounded(SerialExecutor())


def test_the_problem_exercises_panels_groups_and_kept_tiles(points, reference):
    with ThreadExecutor(3) as executor:
        wide = solve(points, "blocks", "wide", executor).stats.plan
        narrow = solve(points, "blocks", "narrow", executor).stats.plan
    assert len(wide.batches[0]) == 2
    assert wide.panels > 1
    assert wide.cached_tiles == 0
    assert narrow.panels > 2
    assert narrow.cached_tiles == 15
    assert reference("blocks", "narrow").stats.plan.panels == 1


@by_workers(2, FEW_CASES)
def test_threads(points, reference, bounds, workers, cases):
    with ThreadExecutor(workers) as executor:
        for case in cases:
            assert_same_bits(solve(points, *case, executor), reference(*case))
        for found, expected in zip(bounded(executor), bounds, strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("full", [False, True])
def test_sums_do_not_depend_on_where_a_solution_lies_in_memory(full):
    """Dask unpacks arrays where they lie in its messages, at any byte."""
    rng = np.random.default_rng(0)
    columns, before, after = rng.normal(size=(3, 300, 200))
    residuals = rng.normal(size=(300, 1))
    buffer = np.empty(columns.nbytes + 4, dtype=np.uint8)
    moved = buffer[4:].view(np.float64).reshape(columns.shape)
    moved[...] = columns
    assert not moved.flags.aligned
    sums = no_sums(200, 1, full)
    here, there = (
        add_to_sums(sums, SolvedBlock(Z, np.zeros(0), np.zeros(0)), before, after, (0, 300), residuals)
        for Z in (columns, moved)
    )
    np.testing.assert_array_equal(here.mean, there.mean)
    np.testing.assert_array_equal(here.downdate, there.downdate)


class Remembering(ThreadExecutor):
    """Two processes, as far as solvers can tell; remembers which functions it ran."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.processes, self.shares_memory, self.kinds = 2, False, set()

    def submit(self, function, *arguments, **settings):
        self.kinds.add(getattr(function, "func", function))
        return super().submit(function, *arguments, **settings)


@by_workers(3, FEW_CASES)
def test_threads_that_pretend_to_be_processes(points, reference, bounds, workers, cases):
    """Between processes the next block is solved before its panel is updated, and no tile is kept.

    What `test_dask` solves has every kind of task.
    """
    of_case = {}
    with Remembering(workers) as executor:
        for case in cases:
            executor.kinds = of_case[case] = set()
            posterior = solve(points, *case, executor)
            assert posterior.stats.plan.cached_tiles == 0
            assert_same_bits(posterior, reference(*case))
        executor.kinds = set().union(*(of_case[case] for case in SENT_CASES))
        for found, expected in zip(bounded(executor), bounds, strict=True):
            np.testing.assert_array_equal(found, expected)
        forward_solves(points, executor)
    assert set().union(*of_case.values()) <= executor.kinds


def test_memory_that_is_short_changes_the_plan_and_no_bit(points, reference):
    """Less and less memory, until the solve is refused."""
    X, y, X_test = points
    prior = cagp.Prior(cagp.Matern32(lengthscale=0.1), noise_variance=0.01)
    plans = []
    for question in ("wide", "narrow"):
        q, covariance = QUESTIONS[question]
        generous = reference("blocks", question)
        for percent in range(90, 0, -10):
            limit = generous.stats.plan.peak_bytes * percent // 100
            try:
                with ThreadExecutor(2) as executor:
                    posterior = cagp.condition(
                        prior,
                        X,
                        y,
                        X_test[:q],
                        solver=SOLVERS["blocks"],
                        covariance=covariance,
                        executor=executor,
                        memory_limit_bytes=limit,
                    )
            except BudgetError:
                break
            assert posterior.stats.plan.peak_bytes <= limit
            plans.append(posterior.stats.plan)
            assert_same_bits(posterior, generous)
    assert {len(plan.batches) for plan in plans} == {1, 2}
    assert {plan.keep_factors for plan in plans} == {True, False}
    assert len({plan.cached_tiles for plan in plans}) > 3


@pytest.mark.cluster
@by_workers(2, SENT_CASES)
def test_dask(points, reference, bounds, cluster_of, workers, cases):
    executor = DaskExecutor(cluster_of(workers))
    assert executor.workers == workers
    for case in cases:
        posterior = solve(points, *case, executor)
        assert_same_bits(posterior, reference(*case))
        if case == ("blocks", "cells"):
            expected = reference(*case).certificate.bounds(SerialExecutor())
            np.testing.assert_array_equal(posterior.certificate.bounds(executor), expected)
    here = [*forward_solves(points, SerialExecutor()), *bounds]
    there = [*forward_solves(points, executor), *bounded(executor)]
    for found, expected in zip(there, here, strict=True):
        np.testing.assert_array_equal(found, expected)
