"""Plans: everything is covered once, nothing exceeds the limit, and it is told in sentences."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cagp_dist as cagp
from cagp_dist.budget import Demand, GridSize, Plan
from cagp_dist.budget.point_plans import TILE_CACHE_BYTES, TILE_CACHE_COLUMNS
from cagp_dist.errors import BudgetError
from cagp_dist.text import counted
from cagp_dist.tiling import COLUMN_GROUP, POINT_TILE, block_ranges, row_tile_size

from ..joined import one_after_another
from .allocation import MIB


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
action_solvers = st.one_of(
    st.builds(cagp.ConjugateGradient, st.integers(0, 100)),
    st.builds(cagp.RandomActions, st.integers(0, 100)),
    st.builds(cagp.UnitVectors, st.integers(0, 100), order=st.sampled_from(["pivoted", "given"])),
    st.builds(cagp.SubsetOfData, st.integers(1, 5000)),
    st.builds(cagp.PseudoInputs, st.integers(0, 100)),
    st.builds(cagp.SparseActions, st.integers(0, 5000)),
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
        assert plan.work.flops > plan.flops > 0
    else:
        assert plan.gram_entries == plan.flops == plan.tasks == plan.widest_group == plan.work.flops == 0
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
    assert str(plan.work) in lines[-1]
    assert lines[-1].endswith("1 worker" if asked.workers == 1 else f"{asked.workers} workers")


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


def test_work_adds_up_and_counts_every_term_of_a_kernel():
    once, twice = (cagp.BlockGaussSeidel(m, 1024).plan(demand(30_000, 1000, limit=2**40)) for m in (5, 10))
    assert 1.9 < twice.work.flops / once.work.flops < 2.2
    both = once.work + 2 * twice.work
    assert both.flops == once.work.flops + 2 * twice.work.flops
    assert both.peak_bytes == max(once.peak_bytes, twice.peak_bytes)
    of_sum = cagp.BlockGaussSeidel(5, 1024).plan(replace(demand(30_000, 1000, limit=2**40), kernel_parts=3))
    assert of_sum.work.flops - once.work.flops == 2 * (once.work.flops - once.flops)


def test_a_wide_question_is_answered_in_batches_when_memory_is_short():
    solver = cagp.BlockGaussSeidel(2, 512)
    plans = [solver.plan(demand(20_000, 4000, workers=4, limit=limit * MIB)) for limit in (8000, 1200, 400)]
    assert [len(plan.batches) for plan in plans] == [1, 2, 8]
    with pytest.raises(BudgetError) as refusal:
        solver.plan(demand(20_000, 4000, limit=200 * MIB))
    assert refusal.value.key == "memory"
    with pytest.raises(BudgetError) as refusal:
        solver.plan(demand(20_000, 4000, full=True, limit=600 * MIB))
    assert refusal.value.key == "memory"


@one_after_another
@pytest.mark.parametrize(
    "solver",
    [
        cagp.ConjugateGradient(100),
        cagp.RandomActions(100),
        cagp.Cholesky(),
    ],
)
def test_refusals_say_what_to_do(solver):
    with pytest.raises(BudgetError) as refusal:
        solver.plan(demand(20_000, 100, limit=40 * MIB))
    assert refusal.value.key == "memory"


def test_no_iteration_and_no_test_points_need_no_work():
    for solver in (cagp.GaussSeidel(0), cagp.ConjugateGradient(0), cagp.RandomActions(0)):
        plan = solver.plan(demand())
        assert plan.gram_entries == plan.flops == 0
    for solver in (cagp.GaussSeidel(3), cagp.ConjugateGradient(3), cagp.RandomActions(3)):
        assert solver.plan(demand(q=0)).gram_entries == 0


def test_tile_cache_is_bounded_however_many_points_there_are():
    for n in (20_000, 200_000, 2_000_000):
        plan = cagp.BlockGaussSeidel(5, 1024).plan(demand(n, 50, limit=2**50))
        assert 0 < plan.cached_tiles * 8 * 1024**2 <= TILE_CACHE_BYTES


def test_only_products_that_follow_solves_of_blocks_count_them():
    """Chebyshev applies a preconditioner and makes no factor, so that its work is linear in the rank."""
    n, q, m = 4096, 200, 5

    def flops(solver):
        return solver.plan(Demand(n, q, 1, False, 1, True, 2**34)).flops

    for rank in (128, 256):
        sweeps = 2 * n * n * q * m + 2 * n * q * m
        low_rank = 2 * n * rank * (n + 5 * rank + 2 * q * m)
        assert (
            flops(cagp.Chebyshev(m, preconditioner="nystrom", preconditioner_size=rank)) == sweeps + low_rank
        )
    estimates = 40 // 2 * n * (512**2 // 3 + 2 * 512)
    given = flops(cagp.TwoLevelBlockJacobi(m, 512, 256))
    stages = 2 * n * n * q * m + 2 * n * 512 * q * m + n * 512**2 // 3
    assert given == stages + estimates + 2 * n * 256 * (n + 5 * 256 + 2 * q * (m + 1))
