"""Two-level methods: what a projection on a coarse space is, and what it brings at long lengthscales."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.gram import TiledGram
from cagp_dist.solvers.engine.projected_tiles import PanelProjection
from cagp_dist.solvers.engine.ring_system import RingSystem
from cagp_dist.solvers.stationary.coarse import coarse_projection, largest_eigenvalue

from ..oracle import assert_close, block_diagonal, block_stage, compose
from ..problems import regression_problem
from .engine import SERIAL, tiled
from .stages import coarse_columns, projection_stage

pytestmark = pytest.mark.usefixtures("one_blas_thread")


@pytest.fixture(scope="module")
def problem():
    """A lengthscale several times as wide as a block of 40 points."""
    return regression_problem(400, q=60, p=1, lengthscale=1.0, seed=3)


def test_projection_solves_in_the_span_of_its_columns():
    problem = regression_problem(150, q=5)
    G, projection = problem.dense.G, coarse_projection(tiled(problem), columns=20, executor=SERIAL)
    assert projection.basis.shape == (150, 20)
    assert_close(projection.basis.T @ G @ projection.basis, np.eye(20), relative=1e-12)
    assert_close(projection.image, G @ projection.basis, relative=1e-12)
    assert_close(projection.basis @ projection.basis.T, projection_stage(G, coarse_columns(G, 20)))


@pytest.mark.parametrize("kernel", [cagp.SquaredExponential(3.0), cagp.Matern52(100.0)], ids=repr)
def test_columns_that_depend_on_others_are_left_out(kernel):
    """Points that are told apart by rounding alone, and each of them twice."""
    X = np.repeat(np.linspace(0.0, 1.0, 100), 2)[:, None]
    gram = TiledGram(kernel, X, noise_variance=np.full(200, 1e-4))
    projection = coarse_projection(gram, columns=200, executor=SERIAL)
    k = projection.basis.shape[1]
    assert 2 <= k <= 100
    G = kernel(X, X) + 1e-4 * np.eye(200)
    assert np.abs(projection.basis.T @ G @ projection.basis - np.eye(k)).max() < 1e-6


@pytest.mark.parametrize("coarse", [1, 10, 40])
def test_largest_eigenvalue_is_that_of_the_errors_a_projection_leaves(coarse):
    problem = regression_problem(400, q=5)
    G, gram = problem.dense.G, tiled(problem)
    projection = coarse_projection(gram, columns=coarse, executor=SERIAL)
    left = G - projection.image @ projection.image.T
    exact = np.linalg.eigvals(np.linalg.solve(block_diagonal(G, 40), left)).real.max()
    found = largest_eigenvalue(gram, projection, block_size=40, executor=SERIAL, steps=20)
    assert 0.9 * exact < found < exact * (1.0 + 1e-9)


def test_damping_that_diverges_is_refused_with_the_range(problem):
    gram = tiled(problem)
    projection = coarse_projection(gram, columns=8, executor=SERIAL)
    limit = 1.9 / largest_eigenvalue(gram, projection, block_size=40, executor=SERIAL, steps=40)
    problem.condition(cagp.TwoLevelBlockJacobi(1, 40, coarse=8, damping=0.99 * limit))
    with pytest.raises(ArgumentError) as refusal:
        problem.condition(cagp.TwoLevelBlockJacobi(1, 40, coarse=8, damping=1.01 * limit))
    assert refusal.value.key == "relaxation"


@pytest.mark.parametrize("solver_class", [cagp.TwoLevelBlockGaussSeidel, cagp.TwoLevelBlockJacobi])
def test_coarse_space_of_all_points_is_the_exact_solve(solver_class):
    problem = regression_problem(90, q=20)
    posterior = problem.condition(solver_class(1, block_size=30, coarse=1000))
    mean, covariance = problem.dense.exact()
    assert_close(posterior.mean, mean)
    assert_close(posterior.covariance, covariance)


@pytest.mark.parametrize(("system", "name"), [(PanelProjection, "apply"), (RingSystem, "_project")])
def test_projections_in_a_row_are_done_once(system, name, monkeypatch):
    """In a pass forward, an adjoint one, and in hybrids from one part to the next."""
    calls = []
    project = getattr(system, name)

    def counted(*args, **kwargs):
        calls.append(args)
        return project(*args, **kwargs)

    monkeypatch.setattr(system, name, counted)
    prior = cagp.Prior(cagp.Matern32(lengthscale=1.0), noise_variance=0.1)
    grid = cagp.LatLonGrid(np.linspace(-60.0, 60.0, 5), 8)
    at = grid if system is RingSystem else grid.points
    y = np.random.default_rng(0).standard_normal(grid.shape)
    y = y if system is RingSystem else y.reshape(-1)
    cycles, sweeps = cagp.TwoLevelBlockJacobi(3, 8, coarse=4), cagp.TwoLevelBlockGaussSeidel(2, 8, coarse=4)
    for solver, expected in [
        (cycles, 4),
        (sweeps, 2),
        (cagp.Hybrid([cycles, cycles]), 7),
        (cagp.Hybrid([sweeps, cycles]), 5),
    ]:
        calls.clear()
        cagp.condition(prior, at, y, [[0.0, 0.0, 1.0]], solver=solver)
        assert len(calls) == expected, solver
    calls.clear()
    cagp.posterior_mean(prior, at, y, [[0.0, 0.0, 1.0]], solver=cycles)
    assert len(calls) == 4, "forward"


def test_long_lengthscales_need_a_coarse_space(problem):
    """Stated over exact standard deviation, of blocks far narrower than a lengthscale."""
    exact = np.sqrt(problem.dense.exact()[1].diagonal())

    def ratio(solver):
        return np.sqrt(problem.condition(solver, covariance="diagonal").variance) / exact

    alone = ratio(cagp.BlockGaussSeidel(5, 40))
    sweeps = ratio(cagp.TwoLevelBlockGaussSeidel(4, 40, coarse=8))
    at_once = ratio(cagp.TwoLevelBlockJacobi(4, 40, coarse=8))
    # the other way round, the projection before the sweep: hardly more than sweeps alone
    dense = problem.dense
    cycle = [projection_stage(dense.G, coarse_columns(dense.G, 8)), block_stage(dense.G, 40)]
    before = np.sqrt(dense.belief(compose(dense.G, cycle * 4)[0])[1].diagonal()) / exact
    assert np.median(alone) > 1.3
    assert np.median(before) > 1.2
    assert sweeps.max() < 1.1
    assert at_once.max() < 1.1
