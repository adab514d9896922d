"""Planned bytes are those of the solve, for grids."""

import itertools
from contextlib import ExitStack

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import BudgetError
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.solvers.engine.affine import Affine

from .allocation import GRID, MIB, gaussian_problem, with_workers

CELLS = cagp.cell_means(np.linspace(-90.0, 90.0, 10), np.linspace(3.0, 363.0, 13))
ON_GRIDS = {
    "whole": np.zeros(GRID.shape, dtype=bool),
    "few gaps": np.random.default_rng(1).uniform(size=GRID.shape) < 0.01,
}
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
    (cagp.SparseActions(20), None, 1, "diagonal"),
    (cagp.KrylovActions(5), 100, 3, "diagonal"),
]


def with_gaps(cases: list[tuple]) -> list:
    """Each solver once in series on a whole grid, and once by two threads on one with gaps.

    The other cases are for leisure, and so are blocks of a grid with gaps, swept by tiles as those of points.
    """
    found, seen = [], set()
    for (solver, q, fields, covariance), gaps, workers in itertools.product(cases, ON_GRIDS, (0, 2)):
        tiles = gaps == "few gaps" and isinstance(solver, (cagp.BlockGaussSeidel, cagp.BlockJacobi))
        kind = type(solver), gaps
        quick = (workers == 2) == (gaps == "few gaps") and not tiles and kind not in seen
        if quick:
            seen.add(kind)
        marks = () if quick else pytest.mark.exhaustive
        found.append(pytest.param(solver, q, fields, covariance, gaps, workers, marks=marks))
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("solver", "q", "fields", "covariance", "gaps", "workers"), with_gaps(ON_A_GRID), ids=repr
)
def test_planned_bytes_bound_what_is_allocated_on_grids(
    solver, q, fields, covariance, gaps, workers, warm_grids, traced
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


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("solver", "gaps", "targets", "workers"),
    with_workers(GRID_CASES, 0, 2, turns=(0, 2, 2), kind=lambda case: (type(case[0]), case[1])),
)
def test_planned_bytes_bound_what_is_allocated_on_a_grid(solver, gaps, targets, workers, warm, traced):
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
        posterior, peak = traced(
            lambda: cagp.condition(prior, grid, y, X_test, solver=solver, executor=executor)
        )
    planned = posterior.stats.plan.peak_bytes
    assert peak <= planned + MIB / 4
    assert planned <= 6 * peak


TALL = cagp.LatLonGrid(np.linspace(-85.0, 87.0, 1500), 2)
"""So many latitudes that factors of its wavenumbers take more than a solve in tiles."""


def tall(solvers: list, turns: tuple[bool | None, ...]) -> pytest.MarkDecorator:
    """Each solver on the whole grid or on one with a gap by turns, on the other one, or both, at leisure."""
    return pytest.mark.parametrize(
        ("solver", "gaps"),
        [
            pytest.param(solver, gaps, marks=() if gaps == turn else pytest.mark.exhaustive)
            for solver, turn in zip(solvers, turns, strict=True)
            for gaps in (False, True)
        ],
        ids=repr,
    )


@tall([cagp.Jacobi(1), cagp.GaussSeidel(1), cagp.SOR(1, 1.5)], (False, True, None))
def test_planned_bytes_bound_point_solvers_on_grids(solver, gaps, warm_grids, traced):
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

    assert traced(compute)[1] <= plans[0].peak_bytes + MIB / 4


@pytest.mark.exhaustive
@tall([cagp.Jacobi(1), cagp.GaussSeidel(1)], (True, False))
def test_means_of_point_solvers_on_the_grid_itself_take_no_factors(solver, gaps, warm_grids, traced):
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
    assert traced(compute)[1] < 18 * MIB
    at = [0, 1, 1400, 2999]
    expected = cagp.condition(prior, TALL, field, TALL.points[at], solver=solver).mean
    np.testing.assert_allclose(means[0].ravel()[at], expected, rtol=0.0, atol=1e-9)


def test_point_jacobi_keeps_diagonals_and_no_blocks(warm_grids, traced):
    """Its blocks of 512 points would take 8 MiB."""
    X, y, X_test = gaussian_problem(2000, 1, 1)
    prior, plans = cagp.Prior(cagp.Matern32(0.1), 0.1), []
    cagp.condition(prior, X[:9], y[:9], X_test, solver=cagp.Jacobi(1))  # compiled

    def compute():
        executor = SerialExecutor()
        cagp.condition(prior, X, y, X_test, solver=cagp.Jacobi(2), executor=executor, on_plan=plans.append)

    assert traced(compute)[1] <= plans[0].peak_bytes + MIB / 4 < 2 * MIB


@pytest.mark.exhaustive
@pytest.mark.parametrize(("where", "fields"), [("points", 1), ("a whole grid", 12)])
def test_means_at_many_targets_are_planned_with_the_targets(where, fields, warm_grids, traced):
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
    peak = traced(compute)[1]
    on_points = "for the mean at 60,000 test points" if where == "points" else "on the grid"
    with pytest.raises(BudgetError, match=on_points):
        compute(int(0.99 * peak))
    compute(12 * peak)


@pytest.mark.exhaustive
def test_planned_bytes_bound_a_grid_under_loud_noise(warm_grids, traced):
    """Its variances come from solves, not from the inverse's diagonal; the plan knows no noise."""
    field, plans = np.random.default_rng(0).normal(size=GRID.shape), []
    prior = cagp.Prior(cagp.Matern32(0.1), 1e7)

    def compute():
        executor = SerialExecutor()
        cagp.condition(prior, GRID, field, GRID, solver=cagp.Rings(), executor=executor, on_plan=plans.append)

    compute()
    assert traced(compute)[1] <= plans[0].peak_bytes + MIB / 4
