"""Plans: everything is covered once, nothing exceeds the limit, and the bytes are those of the solve."""

import itertools
import re
import subprocess
import sys
import tracemalloc
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cagp_dist as cagp
from cagp_dist.budget import Demand, GridSize, Plan
from cagp_dist.budget.points import TILE_CACHE_BYTES, TILE_CACHE_COLUMNS
from cagp_dist.errors import BudgetError
from cagp_dist.gram import tiled
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.solvers.affine import Affine
from cagp_dist.text import counted
from cagp_dist.tiling import COLUMN_GROUP, POINT_TILE, block_ranges, row_tile_size

MIB = 2**20


def demand(n=1000, q=100, fields=1, *, full=False, workers=2, shares=True, limit=2**30, p=3) -> Demand:
    return Demand(n, q, fields, full, workers, shares, limit, p)


demands = st.builds(
    Demand,
    n=st.integers(1, 30_000),
    q=st.integers(0, 4000),
    fields=st.integers(1, 60),
    full_covariance=st.booleans(),
    workers=st.integers(1, 64),
    shares_memory=st.booleans(),
    memory_limit_bytes=st.integers(10**5, 10**11),
    p=st.integers(1, 8),
)
sweep_solvers = st.one_of(
    st.builds(cagp.GaussSeidel, st.integers(0, 30)),
    st.builds(cagp.BlockGaussSeidel, st.integers(0, 30), block_size=st.integers(1, 40_000)),
    st.builds(cagp.SOR, st.integers(0, 30), relaxation=st.just(1.5)),
    st.builds(cagp.SSOR, st.integers(0, 30), relaxation=st.just(1.5)),
    st.builds(cagp.Jacobi, st.integers(0, 30)),
    st.builds(cagp.BlockJacobi, st.integers(0, 30), block_size=st.integers(1, 40_000)),
    st.builds(cagp.Richardson, st.integers(0, 30)),
    st.builds(cagp.Chebyshev, st.integers(0, 30)),
    st.builds(
        cagp.TwoLevelBlockJacobi,
        st.integers(0, 30),
        block_size=st.integers(1, 40_000),
        coarse=st.integers(1, 2000),
    ),
)
hybrids = st.builds(
    lambda m, k, size: cagp.Hybrid([cagp.BlockGaussSeidel(m, size), cagp.ConjugateGradient(k)]),
    st.integers(0, 30),
    st.integers(1, 100),
    st.integers(1, 40_000),
)
HYBRID = cagp.Hybrid(
    [cagp.TwoLevelBlockJacobi(1, 256, 50), cagp.ConjugateGradient(60), cagp.BlockGaussSeidel(1, 256)]
)
CONDITIONED = cagp.Hybrid([cagp.BlockGaussSeidel(2, 256), cagp.ConjugateGradient(100)], condition=True)
action_solvers = st.one_of(
    st.builds(cagp.ConjugateGradient, st.integers(0, 100)),
    st.builds(cagp.RandomActions, st.integers(0, 100)),
    st.builds(cagp.UnitVectors, st.integers(0, 100), order=st.sampled_from(["pivoted", "given"])),
    st.builds(cagp.SubsetOfData, st.integers(1, 5000)),
    st.builds(cagp.PseudoInputs, st.integers(0, 100)),
    st.builds(cagp.Eigenvectors, st.integers(0, 100)),
    st.builds(cagp.KrylovActions, st.integers(0, 100)),
    st.builds(
        cagp.ConjugateGradient,
        st.integers(0, 100),
        st.sampled_from(["nystrom", "block-gauss-seidel"]),
        st.integers(1, 5000),
    ),
    st.just(cagp.MixedActions("unit-vectors 30, conjugate-gradient 10")),
    st.just(cagp.Cholesky()),
)


def attempt(solver, asked: Demand) -> Plan | None:
    """The plan, or None if it is refused with numbers and a way out."""
    try:
        return solver.plan(asked)
    except BudgetError as error:
        text = str(error)
        numbers = r"[\d.e+]+ (B|KiB|MiB|GiB|TiB)"
        assert re.search(
            rf"on {asked.n:,} points needs .*{numbers}.* more than the {numbers} that may be used", text
        )
        assert "Raise memory_limit_bytes, " in text
        return None


@given(solver=sweep_solvers, asked=demands)
def test_sweeps_cover_the_test_points_once_within_the_limit(solver, asked):
    plan = attempt(solver, asked)
    if plan is None:
        return
    groups = [group for batch in plan.batches for group in batch]
    wanted = asked.q if solver.iterations else 0
    assert [column for start, stop in groups for column in range(start, stop)] == list(range(wanted))
    assert all(batch for batch in plan.batches)
    if groups:
        assert plan.peak_bytes <= asked.memory_limit_bytes
        assert plan.widest_group == max(stop - start for start, stop in groups)
        assert asked.full_covariance or plan.widest_group <= COLUMN_GROUP
        assert len(groups) == 1 or not asked.full_covariance
        stages = solver.iterations * solver.stages
        assert plan.tasks == len(groups) * stages * len(block_ranges(asked.n, plan.block_size)) * (
            1 + plan.panels + solver.at_once
        )
        assert plan.seconds > 0.0
    else:
        assert plan.gram_entries == plan.flops == plan.tasks == plan.widest_group == plan.seconds == 0
    row_tiles = -(-asked.n // row_tile_size(plan.block_size))
    assert 1 <= plan.panels <= row_tiles
    assert plan.iterations == solver.iterations
    assert plan.block_size == min(getattr(solver, "block_size", POINT_TILE), asked.n)
    depth = (
        1 if isinstance(solver, cagp.Jacobi | cagp.Richardson | cagp.Chebyshev) else plan.block_size
    )  # a diagonal, or a triangle
    assert not plan.keep_factors or 8 * asked.n * depth <= asked.memory_limit_bytes / 3


@given(solver=sweep_solvers, asked=demands)
def test_tiles_are_kept_only_where_that_helps(solver, asked):
    plan = attempt(solver, asked)
    if plan is None or not plan.stored_rows:
        return
    assert asked.shares_memory
    assert solver.stages * solver.iterations > 1
    assert 1 < asked.q <= TILE_CACHE_COLUMNS
    assert row_tile_size(plan.block_size) == plan.block_size
    blocks = len(block_ranges(asked.n, plan.block_size))
    assert len(set(plan.stored_rows)) == len(plan.stored_rows)
    assert all(0 <= row < blocks for row in plan.stored_rows)
    assert plan.cached_tiles <= blocks * (blocks + 1) // 2
    assert plan.cached_tiles * 8 * plan.block_size**2 <= TILE_CACHE_BYTES
    without = solver.plan(Demand(**{**vars(asked), "shares_memory": False}))
    assert plan.gram_entries < without.gram_entries
    assert plan.peak_bytes > without.peak_bytes


@given(solver=st.one_of(sweep_solvers, hybrids), asked=demands, factor=st.integers(2, 50))
def test_more_memory_never_means_more_batches(solver, asked, factor):
    plan = attempt(solver, asked)
    richer = attempt(
        solver, Demand(**{**vars(asked), "memory_limit_bytes": factor * asked.memory_limit_bytes})
    )
    assert plan is None or (richer is not None and len(richer.batches) <= len(plan.batches))


@given(solver=action_solvers, asked=demands)
def test_actions_stay_within_the_limit(solver, asked):
    plan = attempt(solver, asked)
    if plan is None:
        return
    assert plan.peak_bytes <= asked.memory_limit_bytes
    assert plan.batches == ()
    assert plan.widest_group == 0
    assert plan.cached_tiles == 0
    assert plan.iterations == min(solver.iterations, asked.n)


@given(solver=st.one_of(sweep_solvers, hybrids, action_solvers), asked=demands)
def test_a_plan_is_told_in_sentences(solver, asked):
    plan = attempt(solver, asked)
    if plan is None:
        return
    lines = plan.lines()
    sizes = (
        (asked.n, "observed point"),
        (asked.q, "test point"),
        (asked.fields, "field"),
        *([] if plan.direct else [(plan.iterations, "iteration")]),
    )
    assert lines[0].endswith(": " + ", ".join(counted(size, noun) for size, noun in sizes))
    assert f"Gram matrix {asked.n:,} x {asked.n:,} would take" in lines[1]
    assert any("column group" in line for line in lines) == bool(plan.batches)
    assert any("are kept between sweeps" in line for line in lines) == bool(plan.cached_tiles)
    assert "peak memory about" in lines[-1]
    assert lines[-1].endswith("1 worker" if asked.workers == 1 else f"{asked.workers} workers")


@pytest.mark.parametrize(
    ("n", "q", "iterations", "text"),
    [
        (100, 10, 1, "time about 1 s"),
        (10_000, 1000, 5, r"time about \d+ s"),
        (64_700, 1000, 30, r"time about \d+ min"),
        (1_000_000, 1000, 5, r"time about \d+\.\d h"),
    ],
)
def test_durations_have_a_fitting_unit(n, q, iterations, text):
    plan = cagp.BlockGaussSeidel(iterations, 1024).plan(demand(n, q, limit=2**40))
    assert re.search(text, plan.lines()[-1])


def test_kept_tiles_are_told():
    lines = cagp.BlockGaussSeidel(3, 500).plan(demand(2000, 50)).lines()
    assert "10 tiles (19.1 MiB) are kept between sweeps" in lines
    assert "4 blocks of 500 points, 1 column group in 1 batch, 4 row panels, " in lines[2]


@pytest.mark.parametrize(
    ("solver", "grid", "method"),
    [
        (cagp.Cholesky(), None, "exact Cholesky"),
        (cagp.Rings(), GridSize(18, 36), "exact on the grid"),
    ],
)
def test_a_direct_solve_has_no_iterations_to_tell(solver, grid, method):
    plan = solver.plan(replace(demand(648, 50), grid=grid))
    assert plan.lines()[0] == f"{method}: 648 observed points, 50 test points, 1 field"


def test_bytes_have_a_fitting_unit():
    units = [
        cagp.GaussSeidel(1).plan(demand(n, 1, limit=2**50)).lines()[1].split("would take ")[1].split(";")[0]
        for n in (10, 300, 1000, 64_700, 1_038_240)
    ]
    assert units == ["800 B", "703 KiB", "7.63 MiB", "31.2 GiB", "7.84 TiB"]


def test_seconds_follow_the_work_and_the_workers():
    solver = cagp.BlockGaussSeidel(5, 1024)
    one, four = (solver.plan(demand(30_000, 1000, workers=w, limit=2**40)).seconds for w in (1, 4))
    assert 3.0 < one / four <= 4.0
    double = cagp.BlockGaussSeidel(10, 1024).plan(demand(30_000, 1000, workers=1, limit=2**40)).seconds
    assert 1.9 < double / one < 2.2
    dask = solver.plan(demand(30_000, 1000, workers=4, shares=False, limit=2**40)).seconds
    assert dask > four


def test_a_wide_question_is_answered_in_batches_when_memory_is_short():
    solver = cagp.BlockGaussSeidel(2, 512)
    plans = [solver.plan(demand(20_000, 4000, workers=4, limit=limit * MIB)) for limit in (8000, 1200, 400)]
    assert [len(plan.batches) for plan in plans] == [1, 2, 8]
    with pytest.raises(
        BudgetError, match=r"even for 500 test points at once, .* fewer test points, or lower block_size"
    ):
        solver.plan(demand(20_000, 4000, limit=200 * MIB))
    with pytest.raises(BudgetError, match=r'ask for covariance="diagonal"'):
        solver.plan(demand(20_000, 4000, full=True, limit=600 * MIB))


@pytest.mark.parametrize(
    ("solver", "text"),
    [
        (cagp.ConjugateGradient(100), "conjugate gradients on 20,000 points needs .* or lower iterations"),
        (cagp.RandomActions(100), "random actions on 20,000 points needs .* or lower iterations"),
        (
            cagp.Cholesky(),
            r"exact Cholesky on 20,000 points needs about 6.\d+ GiB, .* use BlockGaussSeidel",
        ),
    ],
)
def test_refusals_say_what_to_do(solver, text):
    with pytest.raises(BudgetError, match=text):
        solver.plan(demand(20_000, 100, limit=40 * MIB))


def test_no_iteration_and_no_test_points_need_no_work():
    for solver in (cagp.GaussSeidel(0), cagp.ConjugateGradient(0), cagp.RandomActions(0)):
        plan = solver.plan(demand())
        assert plan.gram_entries == plan.flops == 0
    for solver in (cagp.GaussSeidel(3), cagp.ConjugateGradient(3), cagp.RandomActions(3)):
        assert solver.plan(demand(q=0)).gram_entries == 0


def gaussian_problem(n, q, fields):
    rng = np.random.default_rng(0)
    shape = n if fields == 1 else (n, fields)
    return rng.uniform(size=(n, 3)), rng.normal(size=shape), rng.uniform(size=(q, 3))


@pytest.fixture(scope="module")
def warm():
    """Imports and compiled code are there before memory is measured: also that of several tiles."""
    X, y, X_test = gaussian_problem(POINT_TILE + 100, 20, 1)
    for solver in (cagp.BlockGaussSeidel(2, 30), cagp.ConjugateGradient(2), cagp.Cholesky()):
        cagp.condition(cagp.Prior(cagp.Matern32(0.1), 0.1), X, y, X_test, solver=solver)


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
    (2000, 300, 1, HYBRID, "diagonal", None),
    (1000, 200, 1, HYBRID, "full", None),
    (2000, 40, 1, CONDITIONED, "diagonal", None),
    (1000, 400, 1, cagp.ConjugateGradient(3), "full", None),
    (2000, 300, 1, cagp.RandomActions(4), "diagonal", None),
    (2000, 100, 60, cagp.RandomActions(20), "diagonal", None),
    (2000, 300, 1, cagp.UnitVectors(200), "diagonal", None),
    (1000, 400, 1, cagp.UnitVectors(40, order="random"), "full", None),
    (2000, 100, 60, cagp.SubsetOfData(400), "diagonal", None),
    (2000, 300, 1, cagp.PseudoInputs(30), "diagonal", None),
    (1000, 150, 60, cagp.PseudoInputs(30), "diagonal", None),
    (800, 300, 1, cagp.Eigenvectors(30), "diagonal", None),
    (1000, 300, 1, cagp.KrylovActions(30), "diagonal", None),
    (1000, 300, 1, cagp.ConjugateGradient(10, "pivoted-cholesky", 60), "diagonal", None),
    (2000, 300, 1, cagp.ConjugateGradient(5, "block-gauss-seidel", 256), "diagonal", None),
    (1000, 300, 1, cagp.MixedActions("pseudo-inputs 20, conjugate-gradient 10"), "diagonal", None),
    (1000, 300, 1, cagp.Cholesky(), "diagonal", None),
    (700, 300, 1, cagp.Cholesky(), "full", None),
    (700, 200, 300, cagp.Cholesky(), "diagonal", None),
]


def with_workers(cases: list[tuple], *turns: int) -> list:
    """Each case with one of these numbers of workers in turn, and with the others at leisure."""
    found = []
    for number, case in enumerate(cases):
        quick = turns[(number + number // len(turns)) % len(turns)]
        for workers in turns:
            marks = () if workers == quick else pytest.mark.exhaustive
            found.append(pytest.param(*case, workers, marks=marks))
    return found


@pytest.mark.parametrize(
    ("n", "q", "fields", "solver", "covariance", "limit", "workers"),
    [
        *with_workers(ON_POINTS, 0, 1, 2, 4),
        pytest.param(2000, 300, 1, cagp.Eigenvectors(30), "diagonal", None, 2, marks=pytest.mark.exhaustive),
    ],
)
def test_planned_bytes_bound_what_is_allocated(n, q, fields, solver, covariance, limit, workers, warm):
    """Every array that NumPy allocates counts; buffers of compiled functions are below a MiB per worker."""
    X, y, X_test = gaussian_problem(n, q, fields)
    prior = cagp.Prior(cagp.Matern32(0.1), 0.1)
    with ExitStack() as stack:
        executor = stack.enter_context(ThreadExecutor(workers)) if workers else SerialExecutor()
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        before = tracemalloc.get_traced_memory()[0]
        posterior = cagp.condition(
            prior,
            X,
            y,
            X_test,
            solver=solver,
            covariance=covariance,
            executor=executor,
            memory_limit_bytes=limit,
        )
        peak = tracemalloc.get_traced_memory()[1] - before
    planned = posterior.stats.plan.peak_bytes
    assert peak <= planned + MIB / 4  # objects of the interpreter
    assert planned <= 6 * peak  # and the bound is worth something


def sphere(generator, count, *, spread=np.inf):
    """Points of the sphere, all over or so near to one of them."""
    points = generator.normal(size=(count, 3)) * min(spread, 1.0) + (spread < 1.0)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def traced(solve):
    """What ``solve`` returns, and the most that it allocated."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        found = solve()
        return found, tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize(
    ("n", "q", "nodes", "solver", "spread", "limit"),
    [
        (1000, 300, 1, cagp.ConjugateGradient(2), np.inf, None),  # known, by a Cholesky factor
        (1000, 1100, 1, cagp.GaussSeidel(0), np.inf, None),
        (1000, 12, 3000, cagp.GaussSeidel(0), np.inf, None),
        (3000, 200, 1, cagp.BlockGaussSeidel(1, 512), np.inf, None),
        (3000, 200, 1, cagp.BlockGaussSeidel(1, 512), np.inf, 70 * MIB),  # two tasks at once
        (3000, 100, 1, cagp.RandomActions(2), np.inf, None),
        (20_000, 64, 1, cagp.GaussSeidel(0), 0.001, None),  # few neighbours, many points beside them
        (20_000, 64, 25, cagp.GaussSeidel(0), 0.001, None),
        (None, 100, 1, cagp.BlockGaussSeidel(1, 480), np.inf, None),  # on a grid, by its rings
        (None, 40, 25, cagp.BlockGaussSeidel(1, 480), np.inf, None),
    ],
    ids=repr,
)
def test_plans_count_the_bounds_of_the_computational_variance(
    n, q, nodes, solver, spread, limit, workers, warm, warm_grids
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


GRID = cagp.LatLonGrid(np.linspace(-85.0, 87.0, 60), 120)
CELLS = cagp.cell_means(np.linspace(-90.0, 90.0, 10), np.linspace(3.0, 363.0, 13))
ON_GRIDS = {
    "whole": np.zeros(GRID.shape, dtype=bool),
    "few gaps": np.random.default_rng(1).uniform(size=GRID.shape) < 0.01,
}


@pytest.fixture(scope="module")
def warm_grids():
    """Imports and compiled code of grids are there before memory is measured."""
    grid, prior = cagp.LatLonGrid([-40.0, 0.0, 30.0], 8), cagp.Prior(cagp.Matern32(0.3), 0.1)
    for solver in (
        cagp.Rings(),
        cagp.BlockGaussSeidel(2, 8),
        cagp.BlockJacobi(2, 8),
        cagp.ConjugateGradient(2),
    ):
        for field in (np.ones((3, 8)), np.where(np.eye(3, 8) > 0.0, np.nan, 1.0)):
            cagp.condition(prior, grid, field, grid, solver=solver)
            cagp.condition(prior, grid, field, grid.points[:3] + 0.01, solver=solver, covariance="full")


ON_A_GRID = [
    (cagp.Rings(), None, 1, "diagonal"),
    (cagp.Rings(), 100, 1, "diagonal"),
    (cagp.Rings(), 100, 1, "full"),
    (cagp.Rings(), 10, 40, "diagonal"),
    (cagp.Rings(), "cells", 1, "diagonal"),
    (cagp.Rings(), "cells", 2, "full"),
    (cagp.BlockGaussSeidel(2, 480), "cells", 1, "diagonal"),
    (cagp.BlockGaussSeidel(2, 480), None, 1, "diagonal"),
    (cagp.BlockGaussSeidel(2, 480), 300, 1, "diagonal"),
    (cagp.BlockGaussSeidel(2, 480, order="random"), 300, 1, "diagonal"),
    (cagp.BlockGaussSeidel(2, 480, order="multicolour"), 300, 1, "diagonal"),
    (cagp.BlockGaussSeidel(2, 480), 300, 1, "full"),
    (cagp.BlockGaussSeidel(2, 480), 10, 40, "diagonal"),
    (cagp.BlockJacobi(2, 480), None, 1, "diagonal"),
    (cagp.BlockJacobi(2, 480), 300, 1, "diagonal"),
    (cagp.ConjugateGradient(5), None, 1, "diagonal"),
    (cagp.RandomActions(5), 100, 3, "diagonal"),
    (cagp.UnitVectors(40), None, 1, "diagonal"),
    (cagp.PseudoInputs(20), "cells", 3, "diagonal"),
    (cagp.PseudoInputs(20), None, 1, "diagonal"),
    (cagp.KrylovActions(5), 100, 3, "diagonal"),
]


def with_gaps(cases: list[tuple]) -> list:
    """Each case in series on a whole grid, and by two threads on one with gaps.

    Blocks of a grid with gaps are swept by tiles, as above: most of these cases are for leisure.
    """
    found = []
    for (solver, q, fields, covariance), gaps, workers in itertools.product(cases, ON_GRIDS, (0, 2)):
        tiles = gaps == "few gaps" and isinstance(solver, (cagp.BlockGaussSeidel, cagp.BlockJacobi))
        ordered = getattr(solver, "order", "given") != "given"
        slow = tiles and (q is None or covariance == "full" or ordered)
        quick = (workers == 2) == (gaps == "few gaps") and not slow
        marks = () if quick else pytest.mark.exhaustive
        found.append(pytest.param(solver, q, fields, covariance, gaps, workers, marks=marks))
    return found


@pytest.mark.parametrize(
    ("solver", "q", "fields", "covariance", "gaps", "workers"), with_gaps(ON_A_GRID), ids=repr
)
def test_planned_bytes_bound_what_is_allocated_on_grids(
    solver, q, fields, covariance, gaps, workers, warm_grids
):
    if gaps != "whole" and q is None and isinstance(solver, (cagp.BlockGaussSeidel, cagp.BlockJacobi)):
        q = 500  # all points of the grid in tiles take long
    field = np.random.default_rng(0).normal(size=(fields, *GRID.shape))
    field[:, ON_GRIDS[gaps]] = np.nan
    targets = GRID if q is None else CELLS if q == "cells" else GRID.points[:q] + 0.01
    prior = cagp.Prior(cagp.Matern32(0.1), 0.1)
    with ExitStack() as stack:
        executor = stack.enter_context(ThreadExecutor(workers)) if workers else SerialExecutor()
        posterior, peak = traced(
            lambda: cagp.condition(
                prior, GRID, field, targets, solver=solver, covariance=covariance, executor=executor
            )
        )
    planned = posterior.stats.plan.peak_bytes
    assert peak <= planned + MIB / 4
    assert planned <= 12 * peak


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


def test_tile_cache_is_bounded_however_many_points_there_are():
    for n in (20_000, 200_000, 2_000_000):
        plan = cagp.BlockGaussSeidel(5, 1024).plan(demand(n, 50, limit=2**50))
        assert 0 < plan.cached_tiles * 8 * 1024**2 <= TILE_CACHE_BYTES


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


GRID_CASES = [
    (solver, gaps, targets)
    for solver in (
        cagp.Rings(),
        cagp.ConjugateGradient(6),
        cagp.RandomActions(6),
        cagp.RandomActions(40),
        cagp.BlockGaussSeidel(2, block_size=400),
        cagp.TwoLevelBlockJacobi(2, block_size=400, coarse=60),
        cagp.Chebyshev(2),
    )
    for gaps in (False, True)
    for targets in ("the grid", "points")
    # with gaps tiles of points are swept, as above
    if not (gaps and isinstance(solver, Affine))
]


@pytest.mark.parametrize(("solver", "gaps", "targets", "workers"), with_workers(GRID_CASES, 0, 2))
def test_planned_bytes_bound_what_is_allocated_on_a_grid(solver, gaps, targets, workers, warm):
    """Factors of the blocks, tables of distances and transforms included; poles and gaps too."""
    grid = cagp.LatLonGrid(np.linspace(-90.0, 89.0, 90), 120)
    y = np.random.default_rng(0).normal(size=grid.shape)
    if gaps:
        y.flat[::60] = np.nan
    points = cagp.unit_sphere(np.linspace(-80.0, 80.0, 300), np.arange(300.0))
    X_test = grid if targets == "the grid" else points
    prior = cagp.Prior(cagp.Matern32(0.3), 0.1)
    small = cagp.LatLonGrid([-20.0, 0.0, 30.0], 8)
    cagp.condition(prior, small, small.points[:, 2].reshape(small.shape), small, solver=solver)
    with ExitStack() as stack:
        executor = stack.enter_context(ThreadExecutor(workers)) if workers else SerialExecutor()
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        before = tracemalloc.get_traced_memory()[0]
        posterior = cagp.condition(prior, grid, y, X_test, solver=solver, executor=executor)
        peak = tracemalloc.get_traced_memory()[1] - before
    planned = posterior.stats.plan.peak_bytes
    assert peak <= planned + MIB / 4
    assert planned <= 6 * peak


TALL = cagp.LatLonGrid(np.linspace(-85.0, 87.0, 1500), 2)
"""So many latitudes that factors of its wavenumbers take more than a solve in tiles."""


def traced_peak(compute) -> int:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        compute()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("gaps", [False, True], ids=["whole", "with a gap"])
@pytest.mark.parametrize("solver", [cagp.Jacobi(1), cagp.GaussSeidel(1), cagp.SOR(1, 1.5)], ids=repr)
def test_planned_bytes_bound_point_solvers_on_grids(solver, gaps, warm_grids):
    """They go by tiles, Jacobi where rings take too much: nothing of theirs takes the factors of the grid."""
    field = np.random.default_rng(0).normal(size=TALL.shape)
    if gaps:
        field[700, 1] = np.nan
    prior, targets, plans = cagp.Prior(cagp.Matern32(0.3), 0.1), TALL.points[:50] + 0.01, []
    cagp.condition(prior, TALL, field, targets[:1], solver=solver, executor=SerialExecutor())  # compiled

    def compute():
        cagp.condition(
            prior,
            TALL,
            field,
            targets,
            solver=solver,
            executor=SerialExecutor(),
            memory_limit_bytes=64 * MIB,
            on_plan=plans.append,
        )

    assert traced_peak(compute) <= plans[0].peak_bytes + MIB / 4


@pytest.mark.parametrize("gaps", [False, True], ids=["whole", "with a gap"])
@pytest.mark.parametrize("solver", [cagp.Jacobi(1), cagp.GaussSeidel(1)], ids=repr)
def test_means_of_point_solvers_on_the_grid_itself_take_no_factors(solver, gaps, warm_grids):
    field = np.random.default_rng(0).normal(size=TALL.shape)
    if gaps:
        field[700, 1] = np.nan
    prior, means = cagp.Prior(cagp.Matern32(0.3), 0.1), []

    def compute():
        executor = SerialExecutor()
        limit = 18 * MIB  # the factors take 43
        means.append(
            cagp.posterior_mean(
                prior, TALL, field, TALL, solver=solver, executor=executor, memory_limit_bytes=limit
            )
        )

    compute()
    assert traced_peak(compute) < 18 * MIB
    at = [0, 1, 1400, 2999]
    expected = cagp.condition(prior, TALL, field, TALL.points[at], solver=solver).mean
    np.testing.assert_allclose(means[0].ravel()[at], expected, rtol=0.0, atol=1e-9)


def test_point_jacobi_keeps_diagonals_and_no_blocks(warm_grids):
    """Its blocks of 512 points would take 8 MiB."""
    X, y, X_test = gaussian_problem(2000, 1, 1)
    prior, plans = cagp.Prior(cagp.Matern32(0.1), 0.1), []
    cagp.condition(prior, X[:9], y[:9], X_test, solver=cagp.Jacobi(1))  # compiled

    def compute():
        executor = SerialExecutor()
        cagp.condition(prior, X, y, X_test, solver=cagp.Jacobi(2), executor=executor, on_plan=plans.append)

    assert traced_peak(compute) <= plans[0].peak_bytes + MIB / 4 < 2 * MIB


@pytest.mark.parametrize("fields", [1, 12])
@pytest.mark.parametrize("where", ["points", "a whole grid"])
def test_means_at_many_targets_are_planned_with_the_targets(where, fields, warm_grids):
    """What does not fit is refused before any work."""
    rng, q = np.random.default_rng(0), 60_000
    targets = cagp.unit_sphere(rng.uniform(-80.0, 80.0, q), rng.uniform(0.0, 360.0, q))
    prior, solver = cagp.Prior(cagp.Matern32(0.3), 0.1), cagp.BlockGaussSeidel(1, 100)
    small = cagp.LatLonGrid(np.linspace(-80.0, 75.0, 10), 20)
    X, y = (
        (small.points, rng.normal(size=(200, fields)))
        if where == "points"
        else (
            small,
            rng.normal(size=(fields, *small.shape)),
        )
    )

    def compute(limit=2**30):
        executor = SerialExecutor()
        cagp.posterior_mean(prior, X, y, targets, solver=solver, executor=executor, memory_limit_bytes=limit)

    compute()
    peak = traced_peak(compute)
    on_points = "for the mean at 60,000 test points" if where == "points" else "on the grid"
    with pytest.raises(BudgetError, match=on_points):
        compute(int(0.99 * peak))
    compute(12 * peak)


def test_planned_bytes_bound_a_grid_under_loud_noise(warm_grids):
    """Its variances come from solves, not from the inverse's diagonal; the plan knows no noise."""
    field, plans = np.random.default_rng(0).normal(size=GRID.shape), []
    prior = cagp.Prior(cagp.Matern32(0.1), 1e7)

    def compute():
        executor = SerialExecutor()
        cagp.condition(prior, GRID, field, GRID, solver=cagp.Rings(), executor=executor, on_plan=plans.append)

    compute()
    assert traced_peak(compute) <= plans[0].peak_bytes + MIB / 4
