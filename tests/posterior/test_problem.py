"""What a plan is told of a grid: that of the matrix that is then made."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.latlon.grid_layout import Layout, Views
from cagp_dist.posterior.problem import Problems, demand_of, grid_size, patterns
from cagp_dist.runtime import SerialExecutor

PRIOR = cagp.Prior(cagp.Matern32(0.5), 0.1)


def demand(grid, field, targets):
    executor = SerialExecutor()
    problems = Problems(PRIOR, targets, full_covariance=False, executor=executor, memory_limit_bytes=2**30)
    problem = problems.of(patterns(grid, field)[0])
    return demand_of(problem, executor, 2**30), problem


FIELDS = {
    "whole": ([], False),
    "a gap": ([(2, 3)], False),
    "both poles": ([], True),
    "one pole and a gap": ([(2, 3), (0, slice(None))], True),
    "a latitude without observations": ([(2, slice(None))], False),
}


@pytest.mark.parametrize(("gaps", "poles"), FIELDS.values(), ids=FIELDS)
def test_the_size_of_a_grid_is_that_of_its_matrix(gaps, poles):
    """Poles that are observed once have noise of their own: with one of them a grid is no mirror image."""
    latitude = np.linspace(-90.0, 90.0, 7) if poles else np.linspace(-75.0, 75.0, 7)
    grid = cagp.LatLonGrid(latitude, 8)
    field = np.random.default_rng(0).normal(size=grid.shape)
    for gap in gaps:
        field[gap] = np.nan
    asked, problem = demand(grid, field, grid)
    gram = problem.gram
    rings = gram if isinstance(gram, cagp.RingGram) else gram.rows_of_poles
    assert asked.grid.block_bytes == rings.wavenumbers.block_bytes
    assert asked.grid.missing == np.count_nonzero(gram.layout.missing)
    assert (asked.grid.latitudes, asked.grid.longitudes) == rings.grid.shape
    assert asked.grid.targets_are_grid == (rings.grid.shape == grid.shape)
    assert asked.grid.target_views == grid.shape[0]


def test_the_north_pole_alone_breaks_the_mirror():
    grid = cagp.LatLonGrid([-90.0, -40.0, 40.0, 90.0], 6)
    seen = np.ones(grid.shape, dtype=bool)
    seen[0, 1:] = False
    assert grid.mirrored
    assert not grid_size(Layout.of(grid, seen)).mirrored


@pytest.mark.parametrize(
    "targets",
    [
        cagp.LatLonGrid([-80.0, -10.0, 25.0], 12),
        cagp.LatLonGrid([-80.0, -10.0, 25.0], 12, first_longitude_degrees=7.0),
        cagp.LatLonGrid([-80.0, -10.0], 24),
        cagp.LatLonGrid([-80.0, -10.0], 18),
        cagp.LatLonGrid([-80.0, -10.0], 5),
        cagp.LatLonGrid([-80.0, -10.0], 4),
    ],
    ids=["the same longitudes", "turned", "twice as many", "some in common", "one in common", "fewer"],
)
def test_views_of_a_grid_are_counted_without_its_points(targets):
    grid = cagp.LatLonGrid([-50.0, 0.0, 50.0], 12)
    planned = grid_size(Layout.of(grid, np.ones(grid.shape, dtype=bool)), targets).target_views
    assert planned == len(Views.of(targets.points, grid).points)


def test_a_latitude_without_observations_is_no_reason_to_plan_a_solve_for_each_target():
    grid = cagp.LatLonGrid(np.linspace(-80.0, 80.0, 40), 80)
    field = np.random.default_rng(0).normal(size=grid.shape)
    whole = cagp.Rings().plan(demand(grid, np.where(np.eye(*grid.shape) > 0, np.nan, field), grid)[0])
    field[3] = np.nan
    empty = cagp.Rings().plan(demand(grid, field, grid)[0])
    by_points = cagp.Rings().plan(demand(grid, field, grid.points)[0])
    between = cagp.LatLonGrid(grid.latitude_degrees, 80, first_longitude_degrees=1.0).points
    by_solves = cagp.Rings().plan(demand(grid, field, between)[0])
    assert empty.flops < whole.flops < 0.1 * by_solves.flops
    assert by_points.flops < 0.1 * by_solves.flops
