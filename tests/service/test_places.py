"""Observed points of a job are placed on the grid they fill, in any order, or refused with advice."""

from types import SimpleNamespace

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.pipeline import Observations
from cagp_dist.pipeline.grid_places import grid_of_points
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import SerialExecutor
from cagp_dist.service.point_roles import places_on_grid

from ..oracle import assert_close

pytestmark = pytest.mark.usefixtures("one_blas_thread")

LATITUDE = np.array([-80.0, -45.0, -10.0, 0.0, 30.0, 77.0])
PRIOR = cagp.Prior(cagp.Matern32(0.5, variance=2.0), noise_variance=0.1, mean=1.5)


def circle(Q, first=0.0):
    return first + np.arange(Q) * 360.0 / Q


def points_at(latitude, longitude):
    """Points of a field, without values."""
    latitude, longitude = np.asarray(latitude, dtype=float), np.asarray(longitude, dtype=float)
    times = np.array(["2020-01-01"], dtype="datetime64[ns]")
    return Observations.from_points(latitude, longitude, np.zeros((1, latitude.size)), times=times)


def all_points(latitude, longitude):
    """All points of two axes, latitude by latitude."""
    return points_at(*(axis.ravel() for axis in np.meshgrid(latitude, longitude, indexing="ij")))


WHOLE = all_points(LATITUDE, circle(10))


def placed(points, train=None):
    chosen = np.arange(points.north.size) if train is None else np.asarray(train)
    return grid_of_points(points.north[chosen], points.east[chosen])


def unit_vectors(points, train):
    return cagp.unit_sphere(points.north[train], points.east[train])


@pytest.mark.parametrize("first", [0.0, -180.0, 3.25])
@pytest.mark.parametrize("missing", [0, 1, 20])
def test_points_in_any_order_are_solved_as_by_cholesky(first, missing):
    rng = np.random.default_rng(missing)
    points = all_points(LATITUDE, circle(10, first))
    train = rng.permutation(60)[missing:]
    grid, index = placed(points, train)
    y, X_test = rng.normal(size=(len(train), 2)), rng.normal(size=(7, 3))
    X_test /= np.linalg.norm(X_test, axis=1, keepdims=True)
    fields = np.full((2, grid.size), np.nan)
    fields[:, index] = y.T
    settings = {"covariance": "full", "executor": SerialExecutor()}
    posterior = cagp.condition(
        PRIOR, grid, fields.reshape(2, *grid.shape), X_test, solver=cagp.Rings(), **settings
    )
    reference = cagp.condition(
        PRIOR, unit_vectors(points, train), y, X_test, solver=cagp.Cholesky(), **settings
    )
    assert posterior.status is cagp.Status.EXACT
    assert_close(posterior.mean, reference.mean, relative=1e-10)
    np.testing.assert_allclose(posterior.covariance, reference.covariance, rtol=0.0, atol=1e-12)


def test_poles_are_single_points():
    points = points_at(
        np.concatenate([WHOLE.north, [90.0, -90.0]]),
        np.concatenate([WHOLE.east, [0.0, 12.3]]),
    )
    train = np.random.default_rng(0).permutation(62)
    grid, index = placed(points, train)
    assert grid.shape == (8, 10)
    rows, columns = np.divmod(index, 10)
    poles = np.abs(points.north[train]) == 90.0
    assert columns[poles].tolist() == [0, 0]
    np.testing.assert_array_equal(grid.latitude_degrees[rows], points.north[train])
    y = np.random.default_rng(1).normal(size=62)
    field = np.full(grid.size, np.nan)
    field[index] = y
    X = unit_vectors(points, train)
    posterior = cagp.condition(PRIOR, grid, field.reshape(grid.shape), X[::7], solver=cagp.Rings())
    reference = cagp.condition(PRIOR, X, y, X[::7], solver=cagp.Cholesky())
    assert_close(posterior.mean, reference.mean, relative=1e-10)
    np.testing.assert_allclose(posterior.variance, reference.variance, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("descending", [False, True])
def test_every_point_finds_its_place(descending):
    points = all_points(LATITUDE[::-1] if descending else LATITUDE, circle(10, -170.0))
    order = np.random.default_rng(0).permutation(60)
    grid, index = placed(points, order)
    assert grid.latitude_degrees[0] == LATITUDE[0]  # grids of jobs ascend
    np.testing.assert_array_equal(np.sort(index), np.arange(60))
    np.testing.assert_allclose(grid.points[index], unit_vectors(points, order), rtol=0.0, atol=1e-12)
    if not descending:
        np.testing.assert_array_equal(index, order)


@pytest.mark.parametrize("Q", [1440, 1080, 7])
def test_axes_in_single_precision_are_a_grid(Q):
    latitude = np.array([-33.3, 0.1, 66.7], dtype=np.float32).astype(float)
    grid, index = placed(all_points(latitude, circle(Q).astype(np.float32).astype(float)))
    assert grid.shape == (3, Q)
    np.testing.assert_array_equal(index, np.arange(3 * Q))


@pytest.mark.parametrize("first", [0.0, 350.0, 3.25])
@pytest.mark.parametrize("missing", [0, 11])
def test_points_of_a_region_are_placed_on_the_circle_and_solved_as_by_cholesky(first, missing):
    rng = np.random.default_rng(missing)
    points = all_points(LATITUDE, np.sort((first + np.arange(12.0) * 2.5) % 360.0))
    train = rng.permutation(72)[missing:]
    grid, index = placed(points, train)
    assert grid.shape == (6, 144)
    assert grid.first_longitude_degrees == first
    np.testing.assert_allclose(grid.points[index], unit_vectors(points, train), rtol=0.0, atol=1e-12)
    y, X_test = rng.normal(size=len(train)), rng.normal(size=(7, 3))
    X_test /= np.linalg.norm(X_test, axis=1, keepdims=True)
    field = np.full(grid.size, np.nan)
    field[index] = y
    posterior = cagp.condition(PRIOR, grid, field.reshape(grid.shape), X_test, solver=cagp.Rings())
    reference = cagp.condition(PRIOR, unit_vectors(points, train), y, X_test, solver=cagp.Cholesky())
    assert_close(posterior.mean, reference.mean, relative=1e-10)
    np.testing.assert_allclose(posterior.variance, reference.variance, rtol=0.0, atol=1e-12)


def chosen(points, index):
    return points_at(points.north[index], points.east[index])


REFUSED = {
    "a region off the circle": all_points(LATITUDE, np.arange(9) * 7.0007),
    "scattered in a region": chosen(all_points(LATITUDE, np.arange(9.0)), [0, 10, 20, 30, 40, 50, 8, 16]),
    "scattered": chosen(WHOLE, [0, 11, 22, 33, 44, 55, 6, 7, 8, 9]),
    "twice": chosen(WHOLE, [*range(60), 5]),
    "a pole twice": points_at([90.0, 90.0, 0.0, 0.0], [0.0, 180.0, 0.0, 180.0]),
    "poles": points_at([90.0, -90.0], [0.0, 0.0]),
    "a longitude that is off": points_at([*WHOLE.north[:-1], 77.0], [*WHOLE.east[:-1], 324.001]),
}


def test_points_that_fill_no_grid_are_refused():
    for points in REFUSED.values():
        with pytest.raises(ArgumentError) as refused:
            placed(points)
        assert (refused.value.key, refused.value.remedies) == ("no-rings", (Remedy.NEIGHBOURS,))


def test_a_point_off_its_latitude_is_a_row_of_its_own():
    """Any latitudes make a grid: nine missing points, and the same posterior."""
    latitude = WHOLE.north.copy()
    latitude[25] += 1e-3
    points = points_at(latitude, WHOLE.east)
    grid, index = placed(points)
    assert grid.shape == (7, 10)
    np.testing.assert_allclose(grid.points[index], unit_vectors(points, np.arange(60)), rtol=0.0, atol=1e-12)


def test_any_solver_that_needs_a_grid_gets_it():
    """Whichever its class is."""
    design = SimpleNamespace(train=np.arange(WHOLE.north.size))
    grid, index = places_on_grid(SimpleNamespace(needs_grid=True), WHOLE, design)
    assert grid.shape == (6, 10)
    assert np.unique(index).size == 60
    assert places_on_grid(SimpleNamespace(needs_grid=False), WHOLE, design) is None
    assert places_on_grid(cagp.Rings(), WHOLE, design) is not None
    assert places_on_grid(cagp.Cholesky(), WHOLE, design) is None
