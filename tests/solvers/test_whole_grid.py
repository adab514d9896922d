"""The exact solver for points that fill a grid: recognised in any order, or refused with advice."""

import re

import numpy as np
import pytest
from cagp_dist.solvers.whole_grid import OFF_GRID_DEGREES, degrees, place_on_grid, whole_grid_state

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers import Problem

from ..oracle import assert_close, kernel_matrix

pytestmark = pytest.mark.usefixtures("one_blas_thread")

LATITUDE = np.array([-80.0, -45.0, -10.0, 0.0, 30.0, 77.0])
PRIOR = cagp.Prior(cagp.Matern32(0.5, variance=2.0), noise_variance=0.1, mean=1.5)


def points_of(latitude, longitude):
    """All points of two axes, unit vectors, latitude by latitude."""
    phi, lam = (axis.ravel() for axis in np.meshgrid(latitude, longitude, indexing="ij"))
    return cagp.unit_sphere(phi, lam)


def circle(Q, first=0.0):
    return first + np.arange(Q) * 360.0 / Q


def conditioned(X, y, X_test, solver, **settings):
    return cagp.condition(PRIOR, X, y, X_test, solver=solver, executor=SerialExecutor(), **settings)


@pytest.mark.parametrize("first", [0.0, -180.0, 3.25])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("missing", [0, 1, 20])
def test_points_in_any_order_are_solved_as_by_cholesky(first, known, missing):
    rng = np.random.default_rng(missing)
    X = rng.permutation(points_of(LATITUDE, circle(10, first)))[missing:]
    grid = cagp.LatLonGrid(LATITUDE, 10, first_longitude_degrees=first) if known else None
    y, X_test = rng.normal(size=(len(X), 2)), rng.normal(size=(7, 3))
    X_test /= np.linalg.norm(X_test, axis=1, keepdims=True)
    posterior = conditioned(X, y, X_test, cagp.Rings(grid), covariance="full")
    reference = conditioned(X, y, X_test, cagp.Cholesky(), covariance="full")
    assert posterior.status is cagp.Status.EXACT
    assert_close(posterior.mean, reference.mean, relative=1e-10)
    np.testing.assert_allclose(posterior.covariance, reference.covariance, rtol=0.0, atol=1e-12)


def test_a_grid_that_is_given_may_be_nearly_empty():
    X = WHOLE[[3, 17, 41]]
    posterior = conditioned(X, np.ones(3), WHOLE[:5], cagp.Rings(cagp.LatLonGrid(LATITUDE, 10)))
    reference = conditioned(X, np.ones(3), WHOLE[:5], cagp.Cholesky())
    assert_close(posterior.mean, reference.mean, relative=1e-10)
    np.testing.assert_allclose(posterior.variance, reference.variance, rtol=0.0, atol=1e-11)


def test_poles_are_single_points():
    X = np.concatenate([points_of(LATITUDE, circle(10)), [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]])
    y = np.random.default_rng(0).normal(size=len(X))
    posterior = conditioned(X, y, X[::7], cagp.Rings())
    reference = conditioned(X, y, X[::7], cagp.Cholesky())
    assert_close(posterior.mean, reference.mean, relative=1e-10)
    np.testing.assert_allclose(posterior.variance, reference.variance, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("descending", [False, True])
def test_every_point_finds_its_place(descending):
    latitude = LATITUDE[::-1] if descending else LATITUDE
    grid = cagp.LatLonGrid(latitude, 10, first_longitude_degrees=-170.0)
    order = np.random.default_rng(0).permutation(grid.size)
    placed = place_on_grid(grid.points[order], grid)
    assert placed.grid is grid
    np.testing.assert_array_equal(placed.rows * 10 + placed.columns, order)
    found = place_on_grid(grid.points[order])
    assert found.grid.latitude_degrees[0] == pytest.approx(LATITUDE[0])  # recognised grids ascend
    back = found.grid.points.reshape(6, 10, 3)[found.rows, found.columns]
    np.testing.assert_allclose(back, grid.points[order], rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("Q", [1440, 1080, 7])
def test_axes_in_single_precision_are_a_grid(Q):
    latitude = np.array([-33.3, 0.1, 66.7], dtype=np.float32).astype(float)
    longitude = circle(Q).astype(np.float32).astype(float)
    placed = place_on_grid(points_of(latitude, longitude))
    assert placed.grid.shape == (3, Q)
    assert np.unique(placed.rows * Q + placed.columns).size == 3 * Q


def test_degrees_invert_the_unit_sphere():
    latitude = np.array([-90.0, -12.0, 0.0, 45.0, 90.0, 10.0, 10.0])
    longitude = np.array([0.0, 359.75, 0.0, 180.0, 0.0, 1e-9, 360.0 - 1e-9])
    found = degrees(cagp.unit_sphere(latitude, longitude))
    np.testing.assert_allclose(found[0], latitude, rtol=0.0, atol=1e-12)
    assert ((found[1] >= 0.0) & (found[1] < 360.0)).all()
    np.testing.assert_allclose(found[1][1:4], longitude[1:4], rtol=0.0, atol=1e-12)
    assert found[1][6] == 0.0  # not a full turn


WHOLE = points_of(LATITUDE, circle(10))
REFUSED = {
    "not on the sphere": (1.1 * WHOLE, r"X has shape (60, 3) and is not on the unit sphere; Rings needs"),
    "in the plane": (WHOLE[:, :2], r"X has shape (60, 2) and is not on the unit sphere"),
    "a region": (points_of(LATITUDE, np.arange(0.0, 90.0, 10.0)), "lie on no full-circle latitude-longitude"),
    "scattered": (
        WHOLE[[0, 11, 22, 33, 44, 55, 6, 7, 8, 9]],
        "points fill 17% of a grid of 6 x 10; Rings needs most of it",
    ),
    "twice": (
        np.concatenate([WHOLE, WHOLE[5:6]]),
        "two observed points are at one place of the grid; drop one",
    ),
    "poles": (np.array([[0.0, 0.0, 1.0]]), "all points are poles, which lie on no grid of longitudes"),
}


@pytest.mark.parametrize(("X", "text"), REFUSED.values(), ids=REFUSED)
def test_points_that_fill_no_grid_are_refused(X, text):
    with pytest.raises(ArgumentError, match=re.escape(text)):
        place_on_grid(X)
    prior = cagp.Prior(cagp.Matern32(0.5), noise_variance=0.1)
    with pytest.raises(ArgumentError, match=re.escape(text)):
        cagp.condition(prior, X, np.zeros(len(X)), X[:1], solver=cagp.Rings(), executor=SerialExecutor())


@pytest.mark.parametrize("east", [True, False])
def test_points_off_a_given_grid_are_refused(east):
    grid = cagp.LatLonGrid(LATITUDE, 10)

    def moved(by):
        shift = (0.0, by) if east else (by, 0.0)
        return cagp.unit_sphere([30.0 + shift[0], 0.0], [36.0 + shift[1], 72.0])

    placed = place_on_grid(moved(0.5 * OFF_GRID_DEGREES), grid)
    assert (placed.rows.tolist(), placed.columns.tolist()) == ([4, 3], [1, 2])
    with pytest.raises(
        ArgumentError, match=r"point 0 at latitude .* is not on the grid. Use BlockGaussSeidel"
    ):
        place_on_grid(moved(1.5 * OFF_GRID_DEGREES), grid)


def test_noise_that_varies_along_a_latitude_is_refused():
    gram = cagp.TiledGram(cagp.Matern32(0.5), WHOLE, noise_variance=np.linspace(0.1, 0.2, 60))
    problem = Problem(gram, np.zeros((60, 1)), WHOLE[:2], full_covariance=False)
    with pytest.raises(
        ArgumentError,
        match=r"noise variance varies along a latitude; Rings needs one value for each latitude",
    ):
        next(whole_grid_state(problem, grid=None, executor=SerialExecutor()))


def test_noise_may_vary_with_latitude():
    noise = np.repeat(np.linspace(0.1, 0.5, 6), 10)
    gram = cagp.TiledGram(cagp.Matern32(0.5), WHOLE, noise_variance=noise)
    b = np.random.default_rng(0).standard_normal((60, 1))
    new = cagp.unit_sphere([3.0, -40.0], [20.0, 200.0])
    problem = Problem(gram, b, new, full_covariance=True)
    (state,) = whole_grid_state(problem, grid=None, executor=SerialExecutor())
    V = kernel_matrix(gram.kernel, new, WHOLE)
    G = kernel_matrix(gram.kernel, WHOLE, WHOLE) + np.diag(noise)
    assert_close(state.mean, V @ np.linalg.solve(G, b), relative=1e-10)
    assert_close(state.downdate, V @ np.linalg.solve(G, V.T), relative=1e-10)


def test_latitudes_without_any_observation_cost_nothing(monkeypatch):
    """With a given grid whole rows may be absent; they are no missing points."""
    monkeypatch.setattr("cagp_dist.solvers.whole_grid.FEW_MISSING", 0)
    grid = cagp.LatLonGrid(np.linspace(-75.0, 75.0, 6), 10)
    there = grid.points.reshape(6, 10, 3)[[0, 1, 3, 5]].reshape(-1, 3)
    y = there[:, 2]
    prior = cagp.Prior(cagp.Matern32(0.5), noise_variance=0.1)
    found = cagp.condition(prior, there, y, WHOLE[:3], solver=cagp.Rings(grid))
    exact = cagp.condition(prior, there, y, WHOLE[:3], solver=cagp.Cholesky())
    assert found.status is cagp.Status.EXACT
    assert_close(found.mean, exact.mean, relative=1e-10)
    assert_close(found.variance, exact.variance, relative=1e-9)


def test_poles_do_not_count_as_missing_points(monkeypatch):
    monkeypatch.setattr("cagp_dist.solvers.whole_grid.FEW_MISSING", 1)
    grid = cagp.LatLonGrid(np.linspace(-90.0, 90.0, 7), 12)
    observed = np.ones(grid.shape, dtype=bool)
    observed[[0, -1], 1:] = False
    observed[3, 4] = False
    X = grid.points[observed.ravel()]
    y = np.random.default_rng(0).standard_normal(len(X))
    new = cagp.unit_sphere([0.0, 90.0, -90.0, 12.0], [120.0, 0.0, 50.0, 33.0])
    prior = cagp.Prior(cagp.Matern32(0.5), noise_variance=0.1)
    found = cagp.condition(prior, X, y, new, solver=cagp.Rings(), covariance="full")
    exact = cagp.condition(prior, X, y, new, solver=cagp.Cholesky(), covariance="full")
    assert found.status is cagp.Status.EXACT
    assert_close(found.mean, exact.mean, relative=1e-10)
    assert_close(found.covariance, exact.covariance, relative=1e-10)
