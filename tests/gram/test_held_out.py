"""Distinct views of a grid, and solves with few or many points missing (T28)."""

import numpy as np
import pytest
from cagp_dist.gram.held_out import FewMissing, ManyMissing, Views, as_targets
from hypothesis import given
from hypothesis import strategies as st

import cagp_dist as cagp

from ..grids import grid_problem
from ..oracle import assert_close

pytestmark = pytest.mark.usefixtures("one_blas_thread")

NAMES = ["no poles, odd Q", "irregular, with noise by latitude", "noise that is its own mirror image"]


@pytest.mark.parametrize("Q", [7, 12, 360, 1200, 1440])
@pytest.mark.parametrize("turn", [-360.0, 0.0, 360.0])
def test_points_of_the_grid_see_it_in_one_way_for_each_latitude(Q, turn):
    """Also where 360 / Q is no binary fraction, and a longitude falls just short of its column."""
    columns = np.arange(Q)
    for longitude in (columns * (360.0 / Q), 360.0 * columns / Q, columns / (Q / 360.0)):
        views = Views.of(as_targets(np.full(Q, 12.5), longitude + turn), cagp.LatLonGrid([0.0], Q))
        assert len(views.latitude_degrees) == 1
        assert views.longitude_degrees[0] < 1e-8
        np.testing.assert_array_equal(views.steps % Q, columns)


@given(
    latitude=st.lists(st.sampled_from([-90.0, -3.25, 0.0, 41.0]), min_size=1, max_size=12),
    shift=st.sampled_from([0.0, 1e-13, 0.7, 29.999999]),
    turns=st.integers(-3, 3),
)
def test_views_and_steps_lead_back_to_the_points(latitude, shift, turns):
    grid = cagp.LatLonGrid([0.0], 12)
    longitude = shift + 30.0 * np.arange(len(latitude)) + 360.0 * turns
    views = Views.of(as_targets(latitude, longitude), grid)
    assert len(views.latitude_degrees) == len(set(latitude))
    assert ((views.longitude_degrees >= 0.0) & (views.longitude_degrees < 30.0)).all()
    np.testing.assert_array_equal(views.latitude_degrees[views.view], latitude)
    away = views.longitude_degrees[views.view] + 30.0 * views.steps - longitude
    np.testing.assert_allclose(np.mod(away + 180.0, 360.0) - 180.0, 0.0, atol=1e-8)


def test_no_points_have_no_views():
    views = Views.of(as_targets([], []), cagp.LatLonGrid([0.0], 12))
    assert len(views.latitude_degrees) == len(views.view) == 0


def systems(problem, observed):
    return FewMissing.of(problem.rings, ~observed), ManyMissing(problem.rings, observed)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.6])
def test_weights_solve_the_observed_system_and_vanish_elsewhere(name, share):
    """Noise by latitude included, whatever stands at the missing points."""
    problem = grid_problem(name)
    observed = np.random.default_rng(0).uniform(size=problem.grid.shape) >= share
    there = np.flatnonzero(observed)
    residuals = problem.field(2)
    expected = np.linalg.solve(problem.G[np.ix_(there, there)], residuals[:, observed].T).T
    few, many = systems(problem, observed)
    for system, relative in ((few, 1e-10), (many, 1e-8)):
        weights = system.weights(residuals)
        assert weights.shape == residuals.shape
        assert (weights[:, ~observed] == 0.0).all()
        assert_close(weights[:, observed], expected, relative=relative)
    assert few.relative_residual is None
    assert 0.0 <= many.relative_residual <= 1.1e-10


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("full", [False, True])
def test_downdates_are_those_of_the_observed_system(name, full):
    problem = grid_problem(name)
    observed = np.random.default_rng(0).uniform(size=problem.grid.shape) >= 0.3
    there = np.flatnonzero(observed)
    targets = as_targets(
        [-90.0, 12.0, 12.0, 44.0, 44.0], [3.0, 0.0, 360.0 / problem.grid.shape[1], 77.0, -80.0]
    )
    V = problem.kernel(targets.points, problem.points[there])
    expected = V @ np.linalg.solve(problem.G[np.ix_(there, there)], V.T)
    for system, tolerance in zip(systems(problem, observed), (1e-12, 1e-8), strict=True):
        downdate = system.downdate(targets, full=full)
        reference = expected if full else np.diag(expected)
        np.testing.assert_allclose(downdate, reference, rtol=0.0, atol=tolerance * problem.kernel.variance)
