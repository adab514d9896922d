"""Noise that differs between the points of a grid: what is solved how, what it costs, and what poles have."""

from dataclasses import replace

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.gram.gaps import GridSolve
from cagp_dist.latlon.grid_layout import Layout
from cagp_dist.posterior.problem import Problems, demand_of, patterns
from cagp_dist.runtime import SerialExecutor

from ..oracle import assert_close, assert_same_bits, kernel_matrix, ring_points

pytestmark = pytest.mark.usefixtures("one_blas_thread")

KERNEL = cagp.Matern32(0.5, 2.0)
LATITUDE, Q = np.linspace(-80.0, 80.0, 9), 12
GRID = cagp.LatLonGrid(LATITUDE, Q)
FIELD = np.random.default_rng(0).normal(size=GRID.shape)
TARGETS = cagp.unit_sphere([0.0, 12.3, -80.0], [0.0, 111.1, 30.0])


def spread(factor, shape=GRID.shape):
    """Noise around 0.1 whose largest is ``factor`` times the smallest, along every latitude."""
    exponent = np.random.default_rng(1).uniform(-0.5, 0.5, size=shape)
    exponent[:, :2] = [-0.5, 0.5]
    return 0.1 * float(factor) ** exponent


def solve(noise, *, field=FIELD, targets=TARGETS, solver=None, grid=GRID, **settings):
    prior = cagp.Prior(KERNEL, noise)
    settings = {"executor": SerialExecutor(), **settings}
    return cagp.condition(prior, grid, field, targets, solver=solver or cagp.Rings(), **settings)


def problem_of(noise, field=FIELD, grid=GRID, kernel=KERNEL):
    executor = SerialExecutor()
    problem = Problems(
        cagp.Prior(kernel, noise),
        TARGETS,
        full_covariance=False,
        executor=executor,
        memory_limit_bytes=2**30,
    ).of(patterns(grid, field)[0])
    return problem, demand_of(problem, executor, 2**30)


@pytest.mark.parametrize("solver", [cagp.Rings(), cagp.BlockGaussSeidel(2, 36)], ids=repr)
@pytest.mark.parametrize("gaps", [False, True])
def test_equal_noise_at_every_point_is_one_noise(solver, gaps):
    field = FIELD.copy()
    field[2, 3:5] = np.nan if gaps else 0.0
    assert_same_bits(
        solve(np.full(GRID.shape, 0.1), field=field, solver=solver), solve(0.1, field=field, solver=solver)
    )


def test_noise_by_latitude_keeps_the_rings():
    by_latitude = np.linspace(0.05, 0.4, 9)
    problem, demand = problem_of(np.repeat(by_latitude, Q).reshape(GRID.shape))
    assert isinstance(problem.gram, cagp.RingGram)
    np.testing.assert_array_equal(problem.gram.noise_by_latitude, by_latitude)
    assert demand.grid.has_rings
    assert not demand.grid.mirrored
    assert demand.grid.block_bytes == problem.gram.wavenumbers.block_bytes
    mirrored = np.repeat(0.1 + np.abs(LATITUDE), Q).reshape(GRID.shape)
    assert problem_of(mirrored)[1].grid.mirrored
    posterior = solve(np.repeat(by_latitude, Q).reshape(GRID.shape))
    assert posterior.status is cagp.Status.EXACT


def test_noise_of_points_that_were_not_observed_is_not_used():
    """And where they alone break the rings, the rings are there."""
    field, noise = FIELD.copy(), np.full(GRID.shape, 0.1)
    field[2, 3:5] = np.nan
    noise[2, 3:5] = 1e9, 1e-9
    posterior = solve(noise, field=field)
    assert posterior.status is cagp.Status.EXACT
    assert_same_bits(posterior, solve(0.1, field=field))


@pytest.mark.parametrize("factor", [2.0, 100.0, 1e6])
@pytest.mark.parametrize("targets", [TARGETS, GRID], ids=["points", "grid"])
def test_rings_solves_noise_by_point_as_the_dense_formula(factor, targets):
    noise = spread(factor)
    posterior = solve(noise, targets=targets, covariance="full")
    X = ring_points(LATITUDE, Q)
    G = kernel_matrix(KERNEL, X, X) + np.diag(noise.ravel())
    points = targets if targets is TARGETS else X
    V = kernel_matrix(KERNEL, points, X)
    assert_close(posterior.mean.ravel(), V @ np.linalg.solve(G, FIELD.ravel()), relative=1e-8)
    expected = kernel_matrix(KERNEL, points, points) - V @ np.linalg.solve(G, V.T)
    np.testing.assert_allclose(posterior.covariance, expected, rtol=0.0, atol=1e-8)
    alone = solve(noise, targets=targets)
    for variance in (posterior.variance, alone.variance):
        np.testing.assert_allclose(variance.ravel(), expected.diagonal(), rtol=0.0, atol=1e-8)
    assert posterior.status is alone.status is cagp.Status.SOLVED
    assert 0.0 < posterior.stats.relative_residual <= 1.1e-10


@pytest.mark.parametrize("factor", [2.0, 30.0])
def test_products_are_no_more_than_planned(factor):
    """And not many fewer: the plan's seconds follow from them."""
    noise = spread(factor)
    problem, demand = problem_of(noise)
    assert isinstance(problem.gram, cagp.MaskedRings)
    relative = noise / np.exp(np.log(noise).mean(axis=1, keepdims=True))
    assert demand.grid.noise_spread == pytest.approx(relative.max() / relative.min())
    assert not demand.grid.has_rings
    b = np.random.default_rng(3).normal(size=(GRID.size, 1))
    taken = problem.gram.solution(b, tolerance=1e-10).products
    assert 0.1 * demand.grid.products < taken <= demand.grid.products
    plain = problem.gram.solution(b, tolerance=1e-10, preconditioned=False).products
    assert taken < plain


def test_a_plan_counts_the_iteration_for_every_target():
    even, uneven = (cagp.Rings().plan(problem_of(noise)[1]) for noise in (0.1, spread(30.0)))
    assert uneven.seconds > even.seconds
    assert uneven.flops > 10 * even.flops
    few = problem_of(spread(30.0))[1]
    assert cagp.Rings().plan(replace(few, q=300)).flops > 50 * uneven.flops
    sweeps = cagp.BlockGaussSeidel(2, 36)
    assert sweeps.plan(problem_of(0.1)[1]).rings_per_block == 3
    assert sweeps.plan(problem_of(spread(30.0))[1]).rings_per_block == 0


@pytest.mark.exhaustive
def test_bytes_are_no_more_than_planned(traced):
    grid = cagp.LatLonGrid(np.linspace(-80.0, 80.0, 60), 120)
    fields = np.random.default_rng(0).normal(size=(40, *grid.shape))
    noise = spread(10.0, grid.shape)
    solve(noise[:2], field=fields[:1, :2], grid=cagp.LatLonGrid([-10.0, 20.0], 120))  # imports, compilation
    targets = cagp.unit_sphere(np.zeros(30), np.arange(30.0))
    posterior, peak = traced(lambda: solve(noise, field=fields, grid=grid, targets=targets))
    assert 0.2 * posterior.stats.plan.peak_bytes < peak <= posterior.stats.plan.peak_bytes


def test_a_pole_has_the_mean_noise_of_its_observed_copies():
    grid = cagp.LatLonGrid([-90.0, 10.0], 7)
    field, noise = np.full((2, 7), np.nan), spread(100.0, (2, 7))
    field[0, 2:5] = 3.0
    pole = cagp.unit_sphere([-90.0], [123.0])
    posterior = solve(noise, field=field, grid=grid, targets=pole)
    own = noise[0, 2:5].mean()
    assert posterior.mean[0] == pytest.approx(3.0 * 2.0 / (2.0 + own), rel=1e-12)
    assert posterior.variance[0] == pytest.approx(2.0 - 4.0 / (2.0 + own), rel=1e-12)


def test_conditioning_is_that_of_all_noise():
    """Points with hardly any noise among loud ones: the mean of their latitude says nothing of that."""
    kernel = cagp.SquaredExponential(2.0, 2.0)
    noise = np.where(np.arange(Q) % 2 == 0, 1e-9, 1.0) * np.ones(GRID.shape)
    gram = problem_of(noise, kernel=kernel)[0].gram
    found = gram.exact(executor=SerialExecutor()).condition_number
    assert found >= np.linalg.cond(
        kernel_matrix(kernel, GRID.points, GRID.points) + np.diag(noise.ravel()), 2
    )


def test_an_iteration_that_does_not_get_there_is_an_error(monkeypatch):
    monkeypatch.setattr("cagp_dist.gram.gaps.TOLERANCE", 1e-18)
    with pytest.raises(NumericalError, match=r"needed is 1e-18. Raise noise_variance, or use block Gauss-S"):
        solve(spread(10.0))


def test_masked_rings_check_their_noise():
    rings = cagp.RingGram(GRID, KERNEL, noise_variance=0.1)
    everywhere = np.ones(GRID.shape, dtype=bool)
    with pytest.raises(
        ArgumentError, match=r"shape \(9, 12\); expected \(108,\), one for each observed point"
    ):
        cagp.MaskedRings(rings, everywhere, noise_variance=spread(2.0))
    with pytest.raises(ArgumentError, match=r"noise_variance\[3\] is -1; expected finite numbers above zero"):
        cagp.MaskedRings(rings, everywhere, noise_variance=np.where(np.arange(108) == 3, -1.0, 1.0))
    even = cagp.MaskedRings(rings, everywhere, noise_variance=np.full(108, 0.1))
    assert even.noise_range == (1.0, 1.0)
    exact = GridSolve(rings, Layout.of(GRID, everywhere), noise_variance=spread(2.0).ravel())
    assert exact.relative_residual == 0.0
