"""Where rings cannot be swept: what is refused, and what goes by tiles."""

import itertools

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.posterior.problem import demand_of
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers import Problem

from ..grids import grid_problem
from ..oracle import assert_close, kernel_matrix
from .engine import LIMIT, SERIAL, states_of
from .rings import NEW, PRIOR, RING_SOLVERS, sweeps

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def test_poles_that_are_copies_on_one_side_alone_are_refused():
    """Where their noise hides it: parities would not separate what a point adds."""
    grid = cagp.LatLonGrid([90.0, 0.0, -90.0], 4)
    observed = np.ones(grid.shape, dtype=bool)
    observed[0, 1:] = False
    rings = cagp.RingGram(grid, PRIOR.kernel, noise_variance=[0.1, 0.1, 0.4])
    masked = cagp.MaskedRings(rings, observed)
    with pytest.raises(ArgumentError) as refused:
        states_of(masked, cagp.Jacobi(1), np.zeros((9, 1)), NEW)
    assert refused.value.key == "poles-differ"
    assert len(states_of(masked, cagp.BlockGaussSeidel(1, 4), np.zeros((9, 1)), NEW)) == 1


SOLVES = {"sweeps": cagp.BlockGaussSeidel(1, 12), "directions": cagp.ConjugateGradient(1)}
both = pytest.mark.parametrize("solver", SOLVES.values(), ids=SOLVES)


@both
def test_fields_that_are_not_of_the_grid_are_refused(solver):
    grid = grid_problem("poles, even Q").grid
    for field, key in (
        (np.zeros((12, 9)), "shapes"),
        (np.full((9, 12), np.nan), "nothing-observed"),
        (np.full((9, 12), np.inf), "infinite"),
    ):
        with pytest.raises(ArgumentError) as refusal:
            cagp.condition(PRIOR, grid, field, grid, solver=solver)
        assert refusal.value.key == key


def test_conjugate_gradients_take_one_field():
    problem = grid_problem("no poles, odd Q")
    solver = cagp.ConjugateGradient(1)
    with pytest.raises(ArgumentError) as refused:
        cagp.condition(PRIOR, problem.grid, problem.field(2), problem.grid, solver=solver)
    assert refused.value.key == "several-fields"
    posterior = cagp.condition(PRIOR, problem.grid, problem.field(1), problem.grid, solver=solver)
    assert posterior.mean.shape == (1, *problem.grid.shape)
    assert posterior.variance.shape == problem.grid.shape


def test_blocks_that_do_not_fit_into_memory_are_refused():
    class Cramped(SerialExecutor):
        memory_bytes = 1000

    problem = grid_problem()
    rings = cagp.RingGram(problem.grid, problem.kernel, noise_variance=0.1, executor=Cramped())
    with pytest.raises(BudgetError) as refusal:
        next(sweeps(rings, problem.field(), iterations=1))
    assert refusal.value.key == "memory"


@both
def test_solves_that_do_not_fit_into_memory_are_refused_before_they_start(solver):
    problem, begun = grid_problem("no poles, odd Q"), []
    with pytest.raises(BudgetError) as refusal:
        cagp.condition(
            PRIOR,
            problem.grid,
            problem.field(),
            problem.grid,
            solver=solver,
            memory_limit_bytes=5000,
            progress=begun.append,
        )
    assert refusal.value.key == "memory"
    assert begun == []


def test_a_grid_that_is_not_whole_is_swept_in_tiles():
    """A point is missing: blocks are blocks of points, as for any other points."""
    problem = grid_problem("no poles, odd Q")
    field = problem.field()
    field[3, 4] = np.nan
    there = np.isfinite(field).ravel()
    solver = cagp.BlockGaussSeidel(2, 20)
    on_grid = cagp.condition(PRIOR, problem.grid, field, NEW, solver=solver, covariance="full")
    plain = cagp.condition(
        PRIOR, problem.grid.points[there], field.ravel()[there], NEW, solver=solver, covariance="full"
    )
    assert on_grid.stats.plan.rings_per_block == 0
    np.testing.assert_array_equal(on_grid.mean, plain.mean)
    np.testing.assert_array_equal(on_grid.covariance, plain.covariance)


def test_rings_cannot_be_swept_where_a_point_is_missing():
    """The plan of a complete grid does not fit another one."""
    problem = grid_problem("no poles, odd Q")
    observed = np.ones(problem.grid.shape, dtype=bool)
    solver = cagp.BlockGaussSeidel(1, 13)
    whole = Problem(problem.rings, np.zeros((problem.n, 1)), NEW, full_covariance=False)
    plan = solver.plan(demand_of(whole, SERIAL, LIMIT))
    observed[2, 2] = False
    part = cagp.MaskedRings(problem.rings, observed)
    asked = Problem(part, np.zeros((problem.n - 1, 1)), NEW, full_covariance=False)
    with pytest.raises(ArgumentError) as refusal:
        next(solver.states(asked, executor=SERIAL, plan=plan))
    assert refusal.value.key == "grid-type"


@pytest.mark.parametrize("unlike", [2.0, [0.5, *[1.0] * 62], [*[1.0] * 62, 3.0]], ids=["all", "less", "more"])
def test_noise_that_is_not_that_of_the_latitudes_is_solved_by_tiles(unlike):
    """A matrix made by hand is planned as what it is, whichever points are unlike their latitude."""
    grid = cagp.LatLonGrid(np.linspace(-70.0, 60.0, 7), 9)
    rings = cagp.RingGram(grid, PRIOR.kernel, noise_variance=0.1)
    noise = 0.1 * np.broadcast_to(unlike, grid.size)
    gram = cagp.MaskedRings(rings, np.ones(grid.shape, dtype=bool), noise_variance=noise)
    b = np.random.default_rng(1).normal(size=(grid.size, 1))
    solver = cagp.BlockGaussSeidel(1, block_size=100)
    assert solver.plan(demand_of(Problem(gram, b, NEW, False), SERIAL, LIMIT)).rings_per_block == 0
    (state,) = states_of(gram, solver, b, NEW)
    G = kernel_matrix(PRIOR.kernel, grid.points, grid.points) + np.diag(noise)
    V = kernel_matrix(PRIOR.kernel, NEW, grid.points)
    assert_close(state.mean, V @ np.linalg.solve(G, b))
    assert_close(state.downdate, np.einsum("qn,nq->q", V, np.linalg.solve(G, V.T)))


@pytest.mark.parametrize("solver_class", RING_SOLVERS)
@pytest.mark.parametrize("full", [False, True])
def test_a_pole_observed_once_is_one_point_of_its_band(solver_class, full):
    """Sweeps over bands with poles end at the posterior of the points, each pole one of them."""
    grid = cagp.LatLonGrid(np.linspace(90.0, -90.0, 7), 10)
    field = np.random.default_rng(0).normal(size=grid.shape)
    solver = RING_SOLVERS[solver_class](400, block_size=40)
    covariance = "full" if full else "diagonal"
    posterior = cagp.condition(PRIOR, grid, field, NEW, solver=solver, covariance=covariance)
    exact = cagp.condition(PRIOR, grid, field, NEW, solver=cagp.Rings(), covariance=covariance)
    assert posterior.stats.plan.rings_per_block == 4
    np.testing.assert_allclose(posterior.mean, exact.mean, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(posterior.variance, exact.variance, rtol=0.0, atol=1e-8)
    observed = np.ones(grid.shape, dtype=bool)
    observed[[0, -1], 1:] = False
    single = field.copy()
    single[[0, -1], 0] = field[[0, -1]].mean(axis=1)
    points = cagp.condition(
        PRIOR, grid.points[observed.ravel()], single[observed], NEW, solver=cagp.Cholesky()
    )
    np.testing.assert_allclose(posterior.mean, points.mean, rtol=0.0, atol=1e-8)
    for step, after in itertools.pairwise(posterior.trace):
        assert (after.variance <= step.variance + 1e-12).all()
        assert (after.variance >= points.variance - 1e-12).all()
