"""Noise that differs between the points of a grid: what is solved how, what it costs, and what poles have."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.posterior.problem import Problems, demand_of, patterns
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import SerialExecutor

from ..oracle import assert_same_bits

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


def test_noise_by_point_is_not_solved_by_rings_and_sweeps_go_over_points():
    problem, demand = problem_of(spread(2.0))
    assert isinstance(problem.gram, cagp.MaskedRings)
    assert not demand.grid.even_noise
    assert problem.gram.exact(executor=SerialExecutor()) is None
    with pytest.raises(ArgumentError) as caught:
        solve(spread(2.0))
    assert (caught.value.key, caught.value.remedies) == ("no-rings", (Remedy.NEIGHBOURS,))
    sweeps = cagp.BlockGaussSeidel(2, 36)
    assert sweeps.plan(problem_of(0.1)[1]).rings_per_block == 3
    assert sweeps.plan(demand).rings_per_block == 0


def test_a_pole_has_the_mean_noise_of_its_observed_copies():
    grid = cagp.LatLonGrid([-90.0, 10.0], 7)
    field, noise = np.full((2, 7), np.nan), spread(100.0, (2, 7))
    field[0, 2:5] = 3.0
    pole = cagp.unit_sphere([-90.0], [123.0])
    posterior = solve(noise, field=field, grid=grid, targets=pole)
    own = noise[0, 2:5].mean()
    assert posterior.mean[0] == pytest.approx(3.0 * 2.0 / (2.0 + own), rel=1e-12)
    assert posterior.variance[0] == pytest.approx(2.0 - 4.0 / (2.0 + own), rel=1e-12)


def test_masked_rings_check_their_noise():
    rings = cagp.RingGram(GRID, KERNEL, noise_variance=0.1)
    everywhere = np.ones(GRID.shape, dtype=bool)
    with pytest.raises(ArgumentError) as refusal:
        cagp.MaskedRings(rings, everywhere, noise_variance=spread(2.0))
    assert refusal.value.key == "shapes"
    with pytest.raises(ArgumentError) as refusal:
        cagp.MaskedRings(rings, everywhere, noise_variance=np.where(np.arange(108) == 3, -1.0, 1.0))
    assert refusal.value.key == "not-positive"
    assert cagp.MaskedRings(rings, everywhere, noise_variance=np.full(108, 0.1)).even_noise
