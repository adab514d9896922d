"""Going on from a state: a solve in two parts is the solve in one, and what is left over says why (T5)."""

import dataclasses
from contextlib import nullcontext

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.posterior.problem import demand_of
from cagp_dist.runtime import ThreadExecutor
from cagp_dist.solvers import Problem

from ..grids import grid_problem
from ..oracle import assert_close, compose
from ..pairwise import by_turns, pairwise
from ..problems import regression_problem
from .engine import LIMIT, SERIAL, states_of, tiled
from .stages import dense_cycles, dense_stage, half_sweep

pytestmark = pytest.mark.usefixtures("one_blas_thread")

SOLVERS = {
    "gauss-seidel": lambda m: cagp.GaussSeidel(m),
    "blocks": lambda m: cagp.BlockGaussSeidel(m, block_size=64),
    "overrelaxed": lambda m: cagp.SOR(m, relaxation=1.5),
    "there and back": lambda m: cagp.SSOR(m, relaxation=1.5),
    "random order": lambda m: cagp.GaussSeidel(m, order="random", seed=5),
    "blocks in random order": lambda m: cagp.BlockGaussSeidel(m, block_size=64, order="random"),
    "colours": lambda m: cagp.BlockGaussSeidel(m, block_size=64, order="multicolour", colours=2),
    "jacobi": lambda m: cagp.Jacobi(m),
    "block jacobi": lambda m: cagp.BlockJacobi(m, block_size=64),
    "richardson": lambda m: cagp.Richardson(m),
    "two-level": lambda m: cagp.TwoLevelBlockGaussSeidel(m, block_size=64, coarse=20),
}
every_solver = pytest.mark.parametrize("make", SOLVERS.values(), ids=SOLVERS.keys())
NEW = cagp.unit_sphere([0.0, 12.3, -80.0, 90.0, 40.0], [0.0, 111.1, 30.0, 5.0, -140.0])


def assert_same_state(found, expected, check):
    """Iteration, targets, status, mean, downdate and leftover."""
    assert found.iteration == expected.iteration
    assert found.columns == expected.columns
    assert found.status is expected.status
    check(found.mean, expected.mean)
    check(found.downdate, expected.downdate)
    mine, other = found.leftover(), expected.leftover()
    assert len(mine) == len(other) > 0
    for array, same in zip(mine, other, strict=True):
        check(array, same)


@pytest.mark.parametrize(
    ("name", "shape"),
    by_turns(
        {
            "name": list(SOLVERS),
            "shape": [
                (300, 40, 0, False),
                (300, 40, 3, True),
                (700, 600, 2, False),
                (300, 40, 0, True),
                (300, 40, 3, False),
            ],
        }
    ),
)
def test_two_and_three_are_five_to_the_last_bit(name, shape):
    """On tiles: several blocks, panels and groups of columns."""
    make, (n, q, workers, full) = SOLVERS[name], shape
    problem = regression_problem(n, q=q, p=3, lengthscale=0.2, fields=2)
    given = tiled(problem), problem.dense.b, problem.X_test
    with ThreadExecutor(workers) if workers else nullcontext(SERIAL) as executor:
        settings = {"full": full, "executor": executor, "keep_leftover": True}
        *_, once = states_of(given[0], make(5), *given[1:], **settings)
        *_, two = states_of(given[0], make(2), *given[1:], **settings)
        assert two.iteration == 2
        rest = states_of(given[0], make(3), *given[1:], start=two, **settings)
        assert [state.iteration for state in rest] == [3, 4, 5]
        assert_same_state(rest[-1], once, np.testing.assert_array_equal)
        # without a leftover to keep, the same belief for half the work of the last sweep
        *_, last = states_of(given[0], make(3), *given[1:], start=two, **{**settings, "keep_leftover": False})
        assert last.leftover is None
        np.testing.assert_array_equal(last.mean, once.mean)
        np.testing.assert_array_equal(last.downdate, once.downdate)


@every_solver
def test_a_state_may_be_gone_on_from_elsewhere(make):
    """Begun by threads and ended in series, in three parts; what was begun is not changed by it."""
    problem = regression_problem(300, q=30, p=3, lengthscale=0.2)
    gram, b = tiled(problem), problem.dense.b[:, None]
    *_, once = states_of(gram, make(6), b, problem.X_test, keep_leftover=True)
    with ThreadExecutor(3) as executor:
        *_, first = states_of(gram, make(1), b, problem.X_test, executor=executor, keep_leftover=True)
        before = first.mean.copy(), first.downdate.copy(), first.leftover()[0].copy()
        *_, second = states_of(
            gram, make(2), b, problem.X_test, executor=executor, start=first, keep_leftover=True
        )
        after = first.mean, first.downdate, first.leftover()[0]
        # what is left over lies with the executor: it is fetched before that closes
        kept = second.leftover()
        second = dataclasses.replace(second, leftover=lambda: kept)
    *_, third = states_of(gram, make(3), b, problem.X_test, start=second, keep_leftover=True)
    assert_same_state(third, once, np.testing.assert_array_equal)
    for array, same in zip(after, before, strict=True):
        np.testing.assert_array_equal(array, same)


@every_solver
def test_every_state_but_a_last_one_that_need_not_has_its_leftover(make):
    """Each is to be read before the next one is asked for."""
    problem = regression_problem(150, q=10)
    dense, gram = problem.dense, tiled(problem)
    asked = Problem(gram, dense.b[:, None], problem.X_test, full_covariance=False)
    solver = make(3)
    plan = solver.plan(demand_of(asked, SERIAL, LIMIT))
    for state in solver.states(asked, executor=SERIAL, plan=plan):
        if state.iteration == 3:
            assert state.leftover is None
            continue
        A, _, _ = compose(dense.G, dense_cycles(make(state.iteration), dense.G))
        assert_close(state.leftover()[0], dense.V.T - dense.G @ A.T @ dense.V.T)


def test_another_solver_may_go_on():
    """Stages that differ: the second solver's are applied to the data first (math 1.2, 6)."""
    problem = regression_problem(150, q=20)
    dense, gram = problem.dense, tiled(problem)
    b = dense.b[:, None]
    *_, begun = states_of(
        gram, cagp.BlockGaussSeidel(2, 40), b, problem.X_test, full=True, keep_leftover=True
    )
    *_, ended = states_of(gram, cagp.SSOR(1, 1.3), b, problem.X_test, full=True, start=begun)
    blocks = dense_stage(cagp.BlockGaussSeidel(1, 40), dense.G)
    halves = [half_sweep(dense.G, 1.3), half_sweep(dense.G, 1.3, ascending=False)]
    A, D, _ = compose(dense.G, [*halves, blocks, blocks])
    assert ended.iteration == 3
    assert_close(ended.mean[:, 0], dense.V @ A @ dense.b)
    assert_close(ended.downdate, dense.V @ D @ dense.V.T)


@pytest.mark.parametrize(
    ("solver_class", "asked", "name", "workers"),
    pairwise(
        {
            "solver_class": [cagp.BlockGaussSeidel, cagp.BlockJacobi],
            "asked": [("points", False), ("points", True), ("grid", False)],
            "name": ["no poles, odd Q", "poles, even Q", "irregular, with noise by latitude"],
            "workers": [0, 3],
        }
    ),
)
def test_bands_of_rings_go_on_too(solver_class, asked, name, workers):
    """To rounding: sums over wavenumbers are added to those of the state."""
    targets, full = asked
    problem = grid_problem(name)
    b = problem.field(2).reshape(2, -1).T
    block_size = 2 * problem.grid.n_longitudes
    wanted = problem.grid if targets == "grid" else NEW

    def near(found, expected):
        assert_close(found, expected, relative=1e-13)

    with ThreadExecutor(workers) if workers else nullcontext(SERIAL) as executor:
        settings = {"full": full, "executor": executor, "keep_leftover": True}
        *_, once = states_of(problem.rings, solver_class(5, block_size), b, wanted, **settings)
        *_, two = states_of(problem.rings, solver_class(2, block_size), b, wanted, **settings)
        rest = states_of(problem.rings, solver_class(3, block_size), b, wanted, start=two, **settings)
        assert [state.iteration for state in rest] == [3, 4, 5]
        assert_same_state(rest[-1], once, near)


def test_a_leftover_is_gone_once_the_solve_went_on():
    problem = regression_problem(150, q=10)
    asked = Problem(tiled(problem), problem.dense.b[:, None], problem.X_test, full_covariance=False)
    solver = cagp.BlockGaussSeidel(3, 40)
    states = solver.states(asked, executor=SERIAL, plan=solver.plan(demand_of(asked, SERIAL, LIMIT)))
    first = next(states)
    next(states)
    with pytest.raises(ArgumentError) as refused:
        first.leftover()
    assert refused.value.key == "no-leftover"


@pytest.mark.parametrize("begins", ["rings", "tiles"])
def test_rings_and_tiles_go_on_from_each_other_with_other_blocks(begins):
    problem = grid_problem("irregular latitudes")  # not mirrored: bands are blocks of consecutive points
    b, Q = problem.field().reshape(-1, 1), problem.grid.n_longitudes
    tiles = cagp.TiledGram(problem.kernel, problem.points, noise_variance=problem.rings.noise_variance)
    grams = (problem.rings, tiles) if begins == "rings" else (tiles, problem.rings)
    first, second = cagp.BlockGaussSeidel(2, 3 * Q), cagp.BlockJacobi(2, Q)

    def in_two_parts(one, other):
        *_, begun = states_of(one, first, b, NEW, full=True, keep_leftover=True)
        return states_of(other, second, b, NEW, full=True, start=begun)[-1]

    ended, expected = in_two_parts(*grams), in_two_parts(tiles, tiles)
    assert_close(ended.mean, expected.mean, relative=1e-12)
    assert_close(ended.downdate, expected.downdate, relative=1e-12)


def test_groups_of_targets_go_on_from_their_own_columns():
    problem = grid_problem("no poles, odd Q")
    b = problem.field().reshape(-1, 1)
    solver = cagp.BlockGaussSeidel(2, problem.grid.n_longitudes)
    *_, begun = states_of(problem.rings, solver, b, NEW, full=False, keep_leftover=True)
    *_, whole = states_of(problem.rings, solver, b, NEW, full=False, start=begun)
    asked = Problem(problem.rings, b, NEW, full_covariance=False, start=begun)
    plan = solver.plan(demand_of(asked, SERIAL, LIMIT))
    halves = dataclasses.replace(plan, batches=(((0, 2),), ((2, len(NEW)),)))
    parts = [s for s in solver.states(asked, executor=SERIAL, plan=halves) if s.iteration == 4]
    assert_close(np.concatenate([part.mean for part in parts]), whole.mean, relative=1e-12)
    assert_close(np.concatenate([part.downdate for part in parts]), whole.downdate, relative=1e-12)


@pytest.mark.parametrize("solver", [cagp.ConjugateGradient(2), cagp.RandomActions(2), cagp.Cholesky()])
def test_solvers_that_cannot_go_on_say_so(solver):
    problem = regression_problem(60, q=5)
    gram, b = tiled(problem), problem.dense.b[:, None]
    *_, begun = states_of(gram, cagp.GaussSeidel(1), b, problem.X_test, full=False, keep_leftover=True)
    asked = Problem(gram, b, problem.X_test, full_covariance=False, start=begun)
    with pytest.raises(ArgumentError) as refused:
        next(solver.states(asked, executor=SERIAL, plan=solver.plan(demand_of(asked, SERIAL, LIMIT))))
    assert refused.value.key == "start-of-solver"


def test_a_state_without_a_leftover_is_refused():
    problem = regression_problem(60, q=5)
    gram, b = tiled(problem), problem.dense.b[:, None]
    *_, begun = states_of(gram, cagp.GaussSeidel(1), b, problem.X_test, full=False)
    with pytest.raises(ArgumentError) as refused:
        states_of(gram, cagp.GaussSeidel(1), b, problem.X_test, full=False, start=begun)
    assert refused.value.key == "no-leftover"


@pytest.mark.parametrize(
    "solver", [cagp.BlockGaussSeidel(5, 40, order="random"), cagp.GaussSeidel(5)], ids=lambda s: s.order
)
def test_the_mean_after_some_cycles_is_that_of_the_state_after_them(solver):
    """T2 at every target after a number of cycles of its own, where every cycle has another order too."""
    problem = regression_problem(150, q=12)
    counts = np.resize([1, 3, 5], 12)
    trace = problem.condition(solver).trace
    found = cagp.posterior_mean(
        problem.prior, problem.X, problem.y, problem.X_test, solver=solver, iterations_by_target=counts
    )
    expected = np.array([trace[count].mean[place] for place, count in enumerate(counts)])
    assert_close(found, expected, relative=1e-11)
