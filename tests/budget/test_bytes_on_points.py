"""Planned bytes and evaluations are those of the solve, for points anywhere."""

import subprocess
import sys
from contextlib import ExitStack

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import BudgetError
from cagp_dist.gram import tiled
from cagp_dist.runtime import SerialExecutor, ThreadExecutor

from .allocation import GRID, MIB, gaussian_problem, with_workers

HYBRID = cagp.Hybrid(
    [cagp.TwoLevelBlockJacobi(1, 256, 50), cagp.ConjugateGradient(60), cagp.BlockGaussSeidel(1, 256)]
)
CONDITIONED = cagp.Hybrid([cagp.BlockGaussSeidel(2, 256), cagp.ConjugateGradient(100)], condition=True)
ON_POINTS = [
    (3000, 400, 1, cagp.BlockGaussSeidel(2, 256), "diagonal", None),
    (3000, 40, 1, cagp.BlockGaussSeidel(2, 512), "diagonal", None),
    (3000, 40, 1, cagp.BlockGaussSeidel(2, 512), "diagonal", 40 * MIB),
    (2000, 1200, 1, cagp.BlockGaussSeidel(2, 256), "diagonal", 40 * MIB),
    (2000, 5, 1, cagp.BlockGaussSeidel(1, 10), "diagonal", None),
    (1000, 150, 300, cagp.BlockGaussSeidel(2, 256), "diagonal", None),
    (2000, 400, 1, cagp.GaussSeidel(2), "full", None),
    (2000, 400, 1, cagp.SOR(2, 1.5), "diagonal", None),
    (2000, 40, 1, cagp.SSOR(2, 1.5), "diagonal", None),
    (2000, 400, 1, cagp.SOR(2, 1.5, order="random"), "diagonal", None),
    (2000, 20, 1, cagp.BlockGaussSeidel(2, 256, order="multicolour"), "diagonal", None),
    (3000, 400, 1, cagp.BlockGaussSeidel(2, 256, order="multicolour"), "diagonal", 65 * MIB),
    (2000, 400, 1, cagp.SSOR(2, 1.5), "full", None),
    (2000, 400, 1, cagp.Jacobi(2), "diagonal", None),
    (2000, 400, 1, cagp.Richardson(2, 0.0005), "diagonal", None),
    (2000, 400, 1, cagp.Chebyshev(3), "diagonal", None),
    (2000, 400, 1, cagp.Chebyshev(3, preconditioner="nystrom"), "diagonal", None),
    (2000, 20, 1, cagp.Chebyshev(3, preconditioner="vecchia"), "diagonal", None),
    (2000, 20, 1, cagp.ConjugateGradient(3, preconditioner="vecchia"), "diagonal", None),
    (2000, 30, 1, cagp.Richardson(2, preconditioner="pivoted-cholesky"), "diagonal", None),
    (3000, 400, 1, cagp.BlockJacobi(2, 256), "diagonal", None),
    (3000, 40, 1, cagp.BlockJacobi(2, 512), "diagonal", 40 * MIB),
    (2000, 1200, 1, cagp.BlockJacobi(2, 256), "diagonal", 50 * MIB),
    (1000, 150, 300, cagp.BlockJacobi(2, 256), "diagonal", None),
    (2000, 400, 1, cagp.BlockJacobi(2, 256), "full", None),
    (2000, 40, 1, cagp.TwoLevelBlockGaussSeidel(2, 256, 200), "diagonal", None),
    (1000, 150, 300, cagp.TwoLevelBlockGaussSeidel(2, 256, 50), "diagonal", None),
    (2000, 1200, 1, cagp.TwoLevelBlockGaussSeidel(2, 256, 100), "diagonal", 70 * MIB),
    (2000, 400, 1, cagp.TwoLevelBlockJacobi(2, 256, 100), "full", None),
    (3000, 40, 1, cagp.TwoLevelBlockJacobi(2, 512, 100), "diagonal", 60 * MIB),
    (2000, 300, 1, cagp.ConjugateGradient(10), "diagonal", None),
    (1000, 200, 1, HYBRID, "full", None),
    (2000, 300, 1, HYBRID, "diagonal", None),
    (1000, 40, 1, CONDITIONED, "diagonal", None),
    (2000, 40, 1, CONDITIONED, "diagonal", None),
    (1000, 400, 1, cagp.ConjugateGradient(3), "full", None),
    (2000, 300, 1, cagp.RandomActions(4), "diagonal", None),
    (2000, 100, 60, cagp.RandomActions(20), "diagonal", None),
    (2000, 300, 1, cagp.UnitVectors(200), "diagonal", None),
    (1000, 400, 1, cagp.UnitVectors(40, order="random"), "full", None),
    (2000, 100, 60, cagp.SubsetOfData(400), "diagonal", None),
    (2000, 300, 1, cagp.PseudoInputs(30), "diagonal", None),
    (1000, 150, 60, cagp.PseudoInputs(30), "diagonal", None),
    (3000, 300, 1, cagp.SparseActions(100), "diagonal", None),
    (3000, 4000, 1, cagp.SparseActions(50), "diagonal", None),
    (1000, 150, 60, cagp.SparseActions(300), "full", None),
    (800, 300, 1, cagp.Eigenvectors(30), "diagonal", None),
    (1000, 300, 1, cagp.KrylovActions(30), "diagonal", None),
    (1000, 300, 1, cagp.ConjugateGradient(10, "pivoted-cholesky", 60), "diagonal", None),
    (2000, 300, 1, cagp.ConjugateGradient(5, "block-gauss-seidel", 256), "diagonal", None),
    (1000, 300, 1, cagp.MixedActions("pseudo-inputs 20, conjugate-gradient 10"), "diagonal", None),
    (1000, 300, 1, cagp.Cholesky(), "diagonal", None),
    (700, 300, 1, cagp.Cholesky(), "full", None),
    (700, 200, 300, cagp.Cholesky(), "diagonal", None),
]


def solver_and_limit(case: tuple) -> tuple:
    """What makes a case of points another one: the class of its solver, and whether memory is short."""
    solver, limit = case[3], case[5]
    return type(solver), getattr(solver, "condition", False), limit is not None


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("n", "q", "fields", "solver", "covariance", "limit", "workers"),
    [
        *with_workers(ON_POINTS, 0, 1, 2, 4, turns=(0, 4, 4), kind=solver_and_limit),
        pytest.param(2000, 300, 1, cagp.Eigenvectors(30), "diagonal", None, 2, marks=pytest.mark.exhaustive),
    ],
)
def test_planned_bytes_bound_what_is_allocated(
    n, q, fields, solver, covariance, limit, workers, warm, traced
):
    """Every array that NumPy allocates counts; buffers of compiled functions are below a MiB per worker."""
    X, y, X_test = gaussian_problem(n, q, fields)
    prior = cagp.Prior(cagp.Matern32(0.1), 0.1)
    with ExitStack() as stack:
        executor = stack.enter_context(ThreadExecutor(workers)) if workers else SerialExecutor()
        settings = {"covariance": covariance, "executor": executor, "memory_limit_bytes": limit}
        posterior, peak = traced(lambda: cagp.condition(prior, X, y, X_test, solver=solver, **settings))
    planned = posterior.stats.plan.peak_bytes
    assert peak <= planned + MIB / 4  # objects of the interpreter
    assert planned <= 6 * peak  # and the bound is worth something


def sphere(generator, count, *, spread=np.inf):
    """Points of the sphere, all over or so near to one of them."""
    points = generator.normal(size=(count, 3)) * min(spread, 1.0) + (spread < 1.0)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


BOUNDED = [
    (1000, 300, 1, cagp.ConjugateGradient(2), np.inf, None),  # known, by a Cholesky factor
    (1000, 1100, 1, cagp.GaussSeidel(0), np.inf, None),
    (1000, 12, 3000, cagp.GaussSeidel(0), np.inf, None),
    (3000, 200, 1, cagp.BlockGaussSeidel(1, 512), np.inf, 70 * MIB),  # two tasks at once
    (3000, 200, 1, cagp.BlockGaussSeidel(1, 512), np.inf, None),
    (3000, 100, 1, cagp.RandomActions(2), np.inf, None),
    (20_000, 64, 1, cagp.GaussSeidel(0), 0.001, None),  # few neighbours, many points beside them
    (20_000, 64, 25, cagp.GaussSeidel(0), 0.001, None),
    (None, 100, 1, cagp.BlockGaussSeidel(1, 480), np.inf, None),  # on a grid, by its rings
    (None, 40, 25, cagp.BlockGaussSeidel(1, 480), np.inf, None),
]


def bounded_kind(case: tuple) -> tuple:
    """By which way bounds are made: the solver, near points or all of them, points or a grid."""
    n, _, _, solver, spread, _ = case
    return n is None, type(solver), spread < 1.0


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("n", "q", "nodes", "solver", "spread", "limit", "workers"),
    with_workers(BOUNDED, 0, 3, turns=(0, 3, 3), kind=bounded_kind),
    ids=repr,
)
def test_plans_count_the_bounds_of_the_computational_variance(
    n, q, nodes, solver, spread, limit, workers, warm, warm_grids, traced
):
    generator, prior = np.random.default_rng(0), cagp.Prior(cagp.Matern32(0.1), 0.1)
    targets = sphere(generator, q * nodes, spread=spread)
    if nodes > 1:
        targets = cagp.CellMeans(targets, np.full(q * nodes, 1.0 / nodes), np.full(q, nodes))
    X = GRID if n is None else sphere(generator, n)
    y = np.ones(GRID.shape if n is None else n)
    with ExitStack() as stack:
        executor = stack.enter_context(ThreadExecutor(workers)) if workers else SerialExecutor()

        def solve():
            posterior = cagp.condition(
                prior,
                X,
                y,
                targets,
                solver=solver,
                executor=executor,
                memory_limit_bytes=limit,
                computational_bounds=True,
            )
            return posterior, posterior.certificate.bounds(executor)

        (posterior, bounds), peak = traced(solve)
        planned = posterior.stats.plan.peak_bytes
        assert peak <= planned + MIB / 4
        assert planned <= 12 * peak
        if limit is not None:
            assert planned <= limit
            unlimited = cagp.condition(
                prior, X, y, targets, solver=solver, executor=executor, computational_bounds=True
            )
            assert (unlimited.stats.plan.peak_bytes > limit) == (workers == 3)
            np.testing.assert_array_equal(unlimited.certificate.bounds(executor), bounds)


@pytest.mark.parametrize("on_grid", [False, True])
def test_bounds_are_refused_where_not_one_task_of_them_fits(on_grid):
    """Before any work if they are wanted from the beginning, else when they are asked for."""
    X = GRID if on_grid else sphere(np.random.default_rng(0), 3000)
    y, prior = np.ones(GRID.shape if on_grid else 3000), cagp.Prior(cagp.Matern32(0.1), 0.1)
    solver = cagp.GaussSeidel(0)
    text = (
        r"is unfinished computation needs about .* MiB beside the posterior, more than the .* for it\. Raise "
    )
    begun = []
    with pytest.raises(BudgetError, match=text):
        cagp.condition(
            prior,
            X,
            y,
            np.eye(3),
            solver=solver,
            memory_limit_bytes=8 * MIB,
            computational_bounds=True,
            on_plan=begun.append,
        )
    assert not begun
    posterior = cagp.condition(prior, X, y, np.eye(3), solver=solver, memory_limit_bytes=8 * MIB)
    with pytest.raises(BudgetError, match=text):
        _ = posterior.computational_variance_bounds


MEASURE = """
import re
from pathlib import Path
import numpy as np, cagp_dist as cagp
from cagp_dist.runtime import ThreadExecutor

def high_water_bytes():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

def solve(n, q, executor):
    X = np.random.default_rng(0).uniform(size=(n, 3))
    prior = cagp.Prior(cagp.Matern32(0.1), 0.1)
    y, X_test = np.ones(n), X[:q] + 0.01
    return cagp.condition(
        prior, X, y, X_test, solver=cagp.BlockGaussSeidel(2, 512), executor=executor, memory_limit_bytes=2**28
    )

with ThreadExecutor(2) as executor:
    solve(600, 40, executor)  # imports, compiled code, buffers of BLAS
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from what is held now
    before = high_water_bytes()
    posterior = solve(8000, 500, executor)
print(high_water_bytes() - before, posterior.stats.plan.peak_bytes)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.exhaustive
def test_planned_bytes_bound_the_growth_of_the_process():
    run = subprocess.run([sys.executable, "-c", MEASURE], check=True, capture_output=True, text=True)
    grown, planned = map(int, run.stdout.split())
    assert planned < 2**28
    assert grown < 1.1 * planned + 8 * MIB  # compiled buffers, stacks and pages of the allocator
    assert grown > planned / 3


def test_planned_evaluations_of_actions_are_those_that_are_made(monkeypatch):
    """One product for all random actions, and what the test points see of each of them."""
    made = []

    def counted(kernel, rows, points, columns, tile):
        made.append(rows.shape[1] * points.shape[1])
        return rows_product(kernel, rows, points, columns, tile)

    rows_product = tiled.rows_product
    monkeypatch.setattr(tiled, "rows_product", counted)
    X, y, X_test = gaussian_problem(300, 50, 1)
    prior = cagp.Prior(cagp.Matern32(0.1), 0.1)
    posterior = cagp.condition(prior, X, y, X_test, solver=cagp.RandomActions(5), executor=SerialExecutor())
    assert posterior.stats.gram_entries == sum(made) == 300**2 + 5 * 50 * 300
    made.clear()
    known = cagp.condition(prior, X, y, X_test, solver=cagp.PseudoInputs(5), executor=SerialExecutor())
    # k(X, Z), and the rows that place them, are evaluated in this process
    assert known.stats.gram_entries == sum(made) + 2 * 5 * 300 == 300**2 + 50 * 300 + 2 * 5 * 300
    made.clear()
    points = cagp.condition(
        prior, X, y, X_test, solver=cagp.UnitVectors(5, order="given"), executor=SerialExecutor()
    )
    assert not made  # no product with G: only the entries of five points, and what is seen of them
    assert points.stats.gram_entries == 5**2 + 5 * 50
    directed = cagp.condition(
        prior, X, y, X_test, solver=cagp.ConjugateGradient(5), executor=SerialExecutor()
    )
    # each product uses a tile on both sides of the diagonal
    assert directed.stats.gram_entries == 5 * 300**2 // 2 + sum(made)


@pytest.mark.parametrize(
    ("nodes", "regions"), [pytest.param(4000, 1, marks=pytest.mark.exhaustive), (500, 6)]
)
def test_plans_of_neighbours_count_means_over_wide_regions(nodes, regions, warm, traced):
    """Weights of their nodes and pairs of observations, from the functionals that are given."""
    rng = np.random.default_rng(0)
    X, centres = sphere(rng, 4000), sphere(rng, regions)
    points = [(found := sphere(rng, 3 * nodes))[np.argsort(-found @ centre)[:nodes]] for centre in centres]
    means = cagp.LinearFunctionals(
        np.concatenate(points), np.kron(np.eye(regions), np.full((nodes, 1), 1.0 / nodes))
    )
    prior, solver = cagp.Prior(cagp.Matern32(0.1), 0.1), cagp.Neighbours(48)
    posterior, peak = traced(lambda: cagp.condition(prior, X, X[:, 0], means, solver=solver))
    planned = posterior.stats.plan
    assert peak <= planned.peak_bytes + MIB / 4
    assert planned.peak_bytes <= 2 * peak
    assert planned.gram_entries >= regions * (len(X) / 3) ** 2  # each has a third of the sphere
    with pytest.raises(BudgetError) as refusal:
        cagp.condition(prior, X, X[:, 0], means, solver=solver, memory_limit_bytes=peak)
    assert refusal.value.key == "memory"


@pytest.mark.parametrize("n", [3_000, pytest.param(40_000, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "lengthscale",
    [pytest.param(0.1, marks=pytest.mark.exhaustive), 1.0],
    ids=["sparse rows", "dense rows"],
)
def test_plans_of_neighbours_count_the_errors_of_groups(n, lengthscale, warm, traced):
    rng = np.random.default_rng(1)
    X = np.column_stack([sphere(rng, n), np.arange(n) % (n // 10)])
    wanted = np.column_stack([sphere(rng, 300), np.full(300, -1.0)])
    prior = cagp.Prior(cagp.Matern32(lengthscale) + cagp.SameLabel(0.2, axis="ship"), 0.1)
    given = {"solver": cagp.Neighbours(32), "executor": SerialExecutor()}
    posterior, peak = traced(lambda: cagp.condition(prior, X, X[:, 0], wanted, **given))
    planned = posterior.stats.plan
    assert peak <= planned.peak_bytes + MIB / 4
    assert planned.peak_bytes <= 3 * peak
    assert f"errors of {n // 10:,} groups" in planned.method
    with pytest.raises(BudgetError) as refusal:
        cagp.condition(prior, X, X[:, 0], wanted, memory_limit_bytes=peak // 2, **given)
    assert refusal.value.key == "memory"
