"""Bands of rings, one after the other, at once, in other orders and with coarse spaces: the dense formula."""

import itertools
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from scipy.linalg import block_diag, eigh

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.posterior.problem import demand_of
from cagp_dist.solvers import Problem
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.engine.stages import CoarseSpace

from ..grids import grid_problem
from ..oracle import assert_close, compose, kernel_matrix
from ..pairwise import by_turns
from .engine import LIMIT, SERIAL, states_of
from .rings import CASES, NEW, PRIOR, RING_SOLVERS, dense_beliefs, sweep_order
from .stages import coloured_stages, dense_stage, projection_stage
from .waves import coarse_waves, waves_of

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def assert_mean_alone_is_that_mean(problem, solver, b, targets, mean, rings_per_block):
    """Forward stages over bands of so many rings reach the mean of the adjoint ones (T2)."""
    asked = Problem(problem.rings, b, targets, full_covariance=False)
    plan = solver.plan(demand_of(asked, SERIAL, LIMIT))
    assert plan.rings_per_block == rings_per_block
    assert_close(solver.mean(asked, executor=SERIAL, plan=plan)[0], mean, relative=1e-11)


@pytest.mark.parametrize(
    ("name", "rings_per_block", "solver_class", "targets", "fields"),
    by_turns(
        {
            "name": [name for name, _, _ in CASES[:9]],
            "rings_per_block": [1, 2, 3],
            "solver_class": list(RING_SOLVERS),
            "targets": ["points", "points, full", "grid", "grid, full"],
            "fields": [1, 3],
        }
    ),
)
def test_bands_of_rings_are_the_dense_formula_for_any_targets(
    name, rings_per_block, solver_class, targets, fields
):
    """Points that lie on no grid, the grid itself, and whole covariances; T2 by the forward stages too."""
    problem = grid_problem(name)
    b = problem.field(fields).reshape(fields, -1).T
    solver = RING_SOLVERS[solver_class](3, block_size=rings_per_block * problem.grid.n_longitudes)
    points = NEW if targets.startswith("points") else problem.points
    wanted = NEW if targets.startswith("points") else problem.grid
    full = targets.endswith("full")
    V = kernel_matrix(problem.kernel, points, problem.points)
    states = states_of(problem.rings, solver, b, wanted, full=full)
    for state, (A, D) in zip(states, dense_beliefs(problem, solver, rings_per_block), strict=True):
        downdate = V @ D @ V.T
        assert_close(state.mean, V @ A @ b)
        assert_close(state.downdate, downdate if full else downdate.diagonal())
    assert_mean_alone_is_that_mean(problem, solver, b, wanted, states[-1].mean, rings_per_block)


@pytest.mark.parametrize(
    ("solver_class", "damping"), [("sweeps", None), ("all at once", None), ("all at once", 0.3)]
)
@pytest.mark.parametrize("name", ["no poles, odd Q", "irregular latitudes"])
def test_conditioning_on_a_grid_is_the_dense_formula(name, solver_class, damping):
    """`cagp.condition` with the grid for X, T fields and a mean; targets are points, then the grid."""
    problem, width = grid_problem(name), 2
    prior = cagp.Prior(problem.kernel, float(problem.layout.noise[0]), mean=lambda X: 3.0 + X[:, 2])
    fields = 3.0 + problem.field(2)
    settings = {} if damping is None else {"damping": damping}
    solver = RING_SOLVERS[solver_class](3, block_size=width * problem.grid.n_longitudes, **settings)
    order, unit = sweep_order(problem)
    back = np.argsort(order)
    stage = dense_stage(
        type(solver)(1, block_size=unit * solver.block_size // problem.grid.n_longitudes, **settings),
        problem.G[np.ix_(order, order)],
    )[np.ix_(back, back)]
    A, D, _ = compose(problem.G, [stage] * 3)
    b = (fields.reshape(2, -1) - 3.0 - problem.points[:, 2]).T
    for targets, points in ((NEW, NEW), (problem.grid, problem.points)):
        posterior = cagp.condition(
            prior, problem.grid, fields, targets, solver=solver, covariance="full", executor=SERIAL
        )
        V, K2 = (kernel_matrix(problem.kernel, points, other) for other in (problem.points, points))
        mean = 3.0 + points[:, 2:] + V @ A @ b
        found = posterior.mean if targets is NEW else posterior.mean.reshape(2, -1).T
        assert_close(found, mean)
        assert_close(posterior.covariance, K2 - V @ D @ V.T)
        assert_close(posterior.variance.ravel(), (K2 - V @ D @ V.T).diagonal())
        assert posterior.stats.plan.rings_per_block == width
        forward = cagp.posterior_mean(prior, problem.grid, fields, targets, solver=solver, executor=SERIAL)
        assert_close(forward, posterior.mean, relative=1e-11)


def largest_left(G, blocks_inverse, projection) -> float:
    """``lambda_max(B^-1 (G - G P P' G))``."""
    left = G - G @ projection @ G
    root = np.linalg.cholesky(blocks_inverse)
    return float(np.linalg.eigvalsh(root.T @ left @ root)[-1])


def two_level_stages(problem, solver, rings_per_block):
    """``Mt`` of a cycle as a list, in the order of the grid."""
    order, unit = sweep_order(problem)
    back = np.argsort(order)
    G, width = problem.G, unit * rings_per_block
    block = cagp.BlockGaussSeidel if isinstance(solver, cagp.TwoLevelBlockGaussSeidel) else cagp.BlockJacobi
    settings = {} if block is cagp.BlockGaussSeidel else {"damping": 1.0}
    Mt = dense_stage(block(1, width, **settings), G[np.ix_(order, order)])[np.ix_(back, back)]
    layout = problem.layout
    waves = waves_of(layout.latitude, layout.n_longitudes, mirrored=layout.mirrored)
    projection = projection_stage(G, coarse_waves(problem.K, waves, solver.coarse))
    if block is cagp.BlockGaussSeidel:
        return [Mt, projection]
    limit = 2.0 / (np.ceil(1e6 * largest_left(G, Mt, projection)) / 1e6)
    return [projection, (solver.damping or min(1.0, 0.75 * limit)) * Mt, projection]


TWO_LEVEL = {"sweeps": cagp.TwoLevelBlockGaussSeidel, "all at once": cagp.TwoLevelBlockJacobi}


@pytest.mark.parametrize(
    ("name", "rings_per_block", "solver_class", "targets", "coarse"),
    by_turns(
        {
            "name": [name for name, _, _ in CASES[:9]],
            "rings_per_block": [1, 2],
            "solver_class": list(TWO_LEVEL),
            "targets": ["points", "points, full", "grid", "grid, full"],
            "coarse": [1, 8, 21],
        }
    ),
)
def test_coarse_spaces_of_waves_are_the_dense_formula(name, rings_per_block, solver_class, targets, coarse):
    """Waves along the rings, chosen by their variances; T2 by the forward stages too."""
    problem = grid_problem(name, cagp.Matern32, 0.7)
    b = problem.field(2).reshape(2, -1).T
    solver = TWO_LEVEL[solver_class](3, rings_per_block * problem.grid.n_longitudes, coarse=coarse)
    on_grid, full = targets.startswith("grid"), targets.endswith("full")
    points, wanted = (problem.points, problem.grid) if on_grid else (NEW, NEW)
    V = kernel_matrix(problem.kernel, points, problem.points)
    stages = two_level_stages(problem, solver, rings_per_block)
    states = states_of(problem.rings, solver, b, wanted, full=full)
    for m, state in enumerate(states, start=1):
        A, D, _ = compose(problem.G, stages * m)
        downdate = V @ D @ V.T
        assert_close(state.mean, V @ A @ b)
        assert_close(state.downdate, downdate if full else downdate.diagonal())
    assert_mean_alone_is_that_mean(problem, solver, b, wanted, states[-1].mean, rings_per_block)


@dataclass(frozen=True)
class CoarseAlone(Affine):
    """A projection on a coarse space, and nothing else."""

    columns: int = 9

    label: ClassVar[str] = "projection"
    points_per_block: ClassVar[None] = None
    by_rings: ClassVar[bool] = True

    def cycle(self, gram, *, executor, blocks):
        return (CoarseSpace(self.columns),)


@pytest.mark.parametrize("columns", [1, 2, 9, 1000])
def test_a_pole_observed_once_is_one_wave(columns):
    """The coarse space is that of the observed points; of all there are, the exact solve."""
    grid = cagp.LatLonGrid(np.linspace(90.0, -90.0, 7), 10)
    there = np.ones(grid.shape, dtype=bool)
    there[[0, -1], 1:] = False
    field = np.where(there, np.random.default_rng(0).normal(size=grid.shape), np.nan)
    X = grid.points[there.ravel()]
    K, V = kernel_matrix(PRIOR.kernel, X, X), kernel_matrix(PRIOR.kernel, NEW, X)
    waves = waves_of(grid.latitude_degrees, 10, mirrored=True, single=(0, 6))
    G = K + 0.1 * np.eye(len(K))
    A, D, _ = compose(G, [projection_stage(G, coarse_waves(K, waves, columns))])
    found = cagp.condition(PRIOR, grid, field, NEW, solver=CoarseAlone(1, columns=columns), covariance="full")
    assert found.stats.plan.rings_per_block == 1
    assert_close(found.mean, V @ A @ field[there])
    assert_close(found.covariance, kernel_matrix(PRIOR.kernel, NEW, NEW) - V @ D @ V.T)


@pytest.mark.parametrize("solver", [cagp.Jacobi(3), cagp.Richardson(3), cagp.Chebyshev(3)], ids=repr)
def test_points_solved_alike_go_by_tiles_where_memory_is_too_short_for_rings(solver):
    """The same belief up to rounding; blocks would be others, so that those are refused."""
    grid = cagp.LatLonGrid(np.linspace(-85.0, 87.0, 600), 2)
    field, targets = np.random.default_rng(0).normal(size=grid.shape), grid.points[:5] + 0.01
    by_rings, by_tiles = (
        cagp.condition(PRIOR, grid, field, targets, solver=solver, executor=SERIAL, memory_limit_bytes=limit)
        for limit in (64 * 2**20, 10 * 2**20)
    )
    assert [found.stats.plan.rings_per_block for found in (by_rings, by_tiles)] == [1, 0]
    assert "all points at once, one wavenumber of the rings after" in "".join(by_rings.stats.plan.lines())
    assert_close(by_rings.mean, by_tiles.mean)
    assert_close(by_rings.variance, by_tiles.variance)
    with pytest.raises(BudgetError) as refusal:
        cagp.condition(
            PRIOR,
            grid,
            field,
            targets,
            solver=cagp.TwoLevelBlockGaussSeidel(1, 2),
            memory_limit_bytes=10 * 2**20,
        )
    assert refusal.value.key == "memory"


def test_a_damping_that_the_waves_leave_too_large_is_refused_with_the_range():
    problem = grid_problem("irregular latitudes", cagp.Matern32, 0.7)
    prior = cagp.Prior(problem.kernel, float(problem.layout.noise[0]))
    solver = cagp.TwoLevelBlockJacobi(1, 10, coarse=4, damping=1.0)
    projection, blocks, _ = two_level_stages(problem, solver, 1)
    limit = 1.9 / largest_left(problem.G, blocks, projection)
    for damping in (0.99 * limit, 1.01 * limit):
        asked = replace(solver, damping=damping)
        if damping < limit:
            found = cagp.condition(prior, problem.grid, problem.field(), NEW, solver=asked)
            assert found.stats.downdate_psd
            continue
        with pytest.raises(ArgumentError) as refusal:
            cagp.condition(prior, problem.grid, problem.field(), NEW, solver=asked)
        assert refusal.value.key == "relaxation"


@pytest.mark.parametrize("rings_per_block", [1, 2])
def test_bands_in_another_order_are_blocks_of_points_in_that_order(rings_per_block):
    """Not mirrored: bands are blocks of consecutive points, and both have the orders of the seed."""
    problem = grid_problem("irregular latitudes")
    b, Q = problem.field(2).reshape(2, -1).T, problem.grid.n_longitudes
    solver = cagp.BlockGaussSeidel(3, rings_per_block * Q, order="random", seed=4)
    tiles = cagp.TiledGram(problem.kernel, problem.points, noise_variance=problem.rings.noise_variance)
    for targets, points in ((NEW, NEW), (problem.grid, problem.points)):
        full = targets is NEW
        on_rings = states_of(problem.rings, solver, b, targets, full=full)
        on_tiles = states_of(tiles, solver, b, points, full=full)
        for state, other in zip(on_rings, on_tiles, strict=True):
            assert_close(state.mean, other.mean)
            assert_close(state.downdate, other.downdate)


@pytest.mark.parametrize("name", ["no poles, odd Q", "poles, even Q"])
def test_mirrored_bands_may_stand_in_another_order(name):
    """Both sectors in the same order of bands: the state of one sweep is that of the first of two."""
    problem = grid_problem(name)
    b, Q = problem.field().reshape(-1, 1), problem.grid.n_longitudes
    given, shuffled = (cagp.BlockGaussSeidel(40, Q, order=order, seed=1) for order in ("given", "random"))
    one, two = (states_of(problem.rings, solver, b, NEW, full=True) for solver in (given, shuffled))
    assert np.abs(one[0].downdate - two[0].downdate).max() > 1e-3
    exact = problem.rings.exact(executor=SERIAL).downdate(NEW, full=True)
    for earlier, later in itertools.pairwise(two):
        assert np.linalg.eigvalsh(later.downdate - earlier.downdate).min() > -1e-12
        assert np.linalg.eigvalsh(exact - later.downdate).min() > -1e-12
    asked = Problem(problem.rings, b, NEW, full_covariance=False)
    plan = shuffled.plan(demand_of(asked, SERIAL, LIMIT))
    assert_close(shuffled.mean(asked, executor=SERIAL, plan=plan)[0], two[-1].mean, relative=1e-11)


@pytest.mark.parametrize("name", ["irregular latitudes", "poles, even Q"])
def test_bands_of_a_colour_are_solved_at_once(name):
    """By the dense formula; damped by what couples them, the largest eigenvalue of all wavenumbers."""
    problem = grid_problem(name)
    b, Q = problem.field(2).reshape(2, -1).T, problem.grid.n_longitudes
    order, unit = sweep_order(problem)
    back = np.argsort(order)

    def coupling(G, blocks):
        at_once = np.concatenate(blocks)
        P = block_diag(*[G[np.ix_(block, block)] for block in blocks])
        return eigh(G[np.ix_(at_once, at_once)], P, eigvals_only=True)[-1]

    dense = coloured_stages(problem.G[np.ix_(order, order)], unit, 2, coupling)
    stages = [Mt[np.ix_(back, back)] for Mt in dense] * 3
    A, D, _ = compose(problem.G, stages)
    solver = cagp.BlockGaussSeidel(3, Q, order="multicolour", colours=2)
    for targets, points in ((NEW, NEW), (problem.grid, problem.points)):
        full = targets is NEW
        V = kernel_matrix(problem.kernel, points, problem.points)
        *_, state = states_of(problem.rings, solver, b, targets, full=full)
        assert_close(state.mean, V @ A @ b, relative=1e-7)  # the bound is rounded up to six digits
        downdate = V @ D @ V.T
        assert_close(state.downdate, downdate if full else downdate.diagonal(), relative=1e-7)
        assert state.downdate_psd
