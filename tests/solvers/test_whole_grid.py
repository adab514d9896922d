"""The exact solver on grids, with gaps and poles: what Cholesky gives at the observed points."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.gram import RingGram, TiledGram
from cagp_dist.posterior.problem import demand_of
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers import Problem

from ..oracle import assert_close, kernel_matrix

pytestmark = pytest.mark.usefixtures("one_blas_thread")

LATITUDE = np.array([-80.0, -45.0, -10.0, 0.0, 30.0, 77.0])
GRID = cagp.LatLonGrid(LATITUDE, 10)
PRIOR = cagp.Prior(cagp.Matern32(0.5, variance=2.0), noise_variance=0.1, mean=1.5)


def with_gaps(grid, observed, values):
    """Fields (T, P, Q) of the values (n, T) of observed points, NaN elsewhere."""
    fields = np.full((values.shape[1], *grid.shape), np.nan)
    fields[:, observed] = values.T
    return fields


def both(grid, observed, values, X_test, **settings):
    """What Rings gives on the grid, and Cholesky at the observed points."""
    settings["executor"] = SerialExecutor()
    field = with_gaps(grid, observed, values)
    return (
        cagp.condition(PRIOR, grid, field, X_test, solver=cagp.Rings(), **settings),
        cagp.condition(
            PRIOR, grid.points[observed.ravel()], values, X_test, solver=cagp.Cholesky(), **settings
        ),
    )


@pytest.mark.parametrize("first", [0.0, -180.0, 3.25])
@pytest.mark.parametrize("missing", [0, 1, 20])
def test_fields_with_gaps_are_solved_as_by_cholesky(first, missing):
    rng = np.random.default_rng(missing)
    grid = cagp.LatLonGrid(LATITUDE, 10, first_longitude_degrees=first)
    observed = np.ones(grid.shape, dtype=bool)
    observed.flat[rng.permutation(grid.size)[:missing]] = False
    X_test = rng.normal(size=(7, 3))
    X_test /= np.linalg.norm(X_test, axis=1, keepdims=True)
    values = rng.normal(size=(grid.size - missing, 2))
    posterior, reference = both(grid, observed, values, X_test, covariance="full")
    assert posterior.status is cagp.Status.EXACT
    assert_close(posterior.mean, reference.mean, relative=1e-10)
    np.testing.assert_allclose(posterior.covariance, reference.covariance, rtol=0.0, atol=1e-12)


def test_a_grid_may_be_nearly_empty():
    observed = np.zeros(GRID.shape, dtype=bool)
    observed.flat[[3, 17, 41]] = True
    posterior, reference = both(GRID, observed, np.ones((3, 1)), GRID.points[:5])
    assert_close(posterior.mean, reference.mean, relative=1e-10)
    np.testing.assert_allclose(posterior.variance, reference.variance, rtol=0.0, atol=1e-11)


def test_poles_are_single_points():
    grid = cagp.LatLonGrid(np.concatenate([[-90.0], LATITUDE, [90.0]]), 10)
    observed = np.ones(grid.shape, dtype=bool)
    observed[[0, -1], 1:] = False
    values = np.random.default_rng(0).normal(size=(62, 1))
    X_test = grid.points[observed.ravel()][::7]
    posterior, reference = both(grid, observed, values, X_test)
    assert_close(posterior.mean, reference.mean, relative=1e-10)
    np.testing.assert_allclose(posterior.variance, reference.variance, rtol=0.0, atol=1e-12)
    # whichever copies of a pole have been observed, their mean is one observation
    copied = with_gaps(grid, observed, values)
    copied[:, 0, [0, 3, 7]] = copied[:, 0, :1] + [[-0.5, 0.2, 0.3]]
    copied[:, -1, 4] = copied[:, -1, 0]
    copied[:, -1, 0] = np.nan
    again = cagp.condition(PRIOR, grid, copied, X_test, solver=cagp.Rings(), executor=SerialExecutor())
    assert_close(again.mean, posterior.mean, relative=1e-13)
    np.testing.assert_array_equal(again.variance, posterior.variance)


@pytest.mark.parametrize("descending", [False, True])
def test_the_direction_of_the_latitudes_changes_nothing(descending):
    rng = np.random.default_rng(0)
    observed, values = rng.uniform(size=GRID.shape) > 0.2, rng.normal(size=(60, 1))
    field = np.where(observed, values.reshape(GRID.shape), np.nan)
    turned = cagp.LatLonGrid(LATITUDE[::-1], 10)
    X_test = cagp.unit_sphere([33.0, 77.0], [12.0, 36.0])
    posterior, _ = both(GRID, observed, values[observed.ravel()], X_test)
    other = cagp.condition(PRIOR, turned, field[::-1], X_test, solver=cagp.Rings(), executor=SerialExecutor())
    assert_close(other.mean, posterior.mean[:, 0], relative=1e-12)
    assert_close(other.variance, posterior.variance, relative=1e-12)


@pytest.mark.parametrize(
    "X",
    [GRID.points, GRID.points[[0, 11, 22]], 1.1 * GRID.points, GRID.points[:, :2]],
    ids=["points of a grid", "scattered", "not on the sphere", "in the plane"],
)
def test_points_are_refused_and_told_how_to_be_given(X):
    prior = cagp.Prior(cagp.Matern32(0.5), noise_variance=0.1)
    with pytest.raises(ArgumentError) as caught:
        cagp.condition(prior, X, np.zeros(len(X)), X[:1], solver=cagp.Rings(), executor=SerialExecutor())
    assert (caught.value.key, caught.value.remedies) == ("no-rings", (Remedy.NEIGHBOURS,))


def test_a_grid_that_lacks_too_many_points_is_one_for_neighbours(monkeypatch):
    monkeypatch.setattr("cagp_dist.budget.demand.MOST_MISSING", 2)
    field = np.zeros(GRID.shape)
    field[0, :2] = np.nan
    prior = cagp.Prior(cagp.Matern32(0.5), noise_variance=0.1)
    assert cagp.condition(prior, GRID, field, GRID, solver=cagp.Rings()).status is cagp.Status.EXACT
    field[0, 2] = np.nan
    with pytest.raises(ArgumentError) as caught:
        cagp.condition(prior, GRID, field, GRID, solver=cagp.Rings())
    assert (caught.value.key, caught.value.remedies) == ("no-rings", (Remedy.NEIGHBOURS,))


def test_a_gram_that_offers_no_exact_solves_is_refused():
    """As a caller of the solver itself may give it."""
    gram = TiledGram(cagp.Matern32(0.5), GRID.points, noise_variance=np.full(60, 0.1))
    problem = Problem(gram, np.zeros((60, 1)), GRID.points[:2], full_covariance=False)
    rings = cagp.RingGram(GRID, gram.kernel, noise_variance=0.1, executor=SerialExecutor())
    on_grid = Problem(rings, problem.residuals, problem.targets, full_covariance=False)
    plan = cagp.Rings().plan(demand_of(on_grid, SerialExecutor(), 2**30))
    with pytest.raises(ArgumentError) as refused:
        next(cagp.Rings().states(problem, executor=SerialExecutor(), plan=plan))
    assert refused.value.key == "no-rings"


def test_noise_may_vary_with_latitude():
    noise = np.linspace(0.1, 0.5, 6)
    gram = RingGram(GRID, cagp.Matern32(0.5), noise_variance=noise, executor=SerialExecutor())
    b = np.random.default_rng(0).standard_normal((60, 1))
    new = cagp.unit_sphere([3.0, -40.0], [20.0, 200.0])
    problem = Problem(gram, b, new, full_covariance=True)
    plan = cagp.Rings().plan(demand_of(problem, SerialExecutor(), 2**30))
    (state,) = cagp.Rings().states(problem, executor=SerialExecutor(), plan=plan)
    V = kernel_matrix(gram.kernel, new, GRID.points)
    G = kernel_matrix(gram.kernel, GRID.points, GRID.points) + np.diag(np.repeat(noise, 10))
    assert_close(state.mean, V @ np.linalg.solve(G, b), relative=1e-10)
    assert_close(state.downdate, V @ np.linalg.solve(G, V.T), relative=1e-10)


def test_latitudes_without_any_observation_cost_nothing(monkeypatch):
    """Whole rows may be absent; they are no missing points."""
    monkeypatch.setattr("cagp_dist.budget.demand.MOST_MISSING", 0)
    grid = cagp.LatLonGrid(np.linspace(-75.0, 75.0, 6), 10)
    observed = np.zeros(grid.shape, dtype=bool)
    observed[[0, 1, 3, 5]] = True
    y = grid.points[observed.ravel(), 2:]
    found, exact = both(grid, observed, y, GRID.points[:3])
    assert found.status is cagp.Status.EXACT
    assert_close(found.mean, exact.mean, relative=1e-10)
    assert_close(found.variance, exact.variance, relative=1e-9)
    # also where the targets are the grid with all of its rows
    everywhere, reference = both(grid, observed, y, grid)
    assert everywhere.status is cagp.Status.EXACT
    assert_close(everywhere.mean, reference.mean, relative=1e-10)
    assert_close(everywhere.variance, reference.variance, relative=1e-9)


def test_poles_do_not_count_as_missing_points(monkeypatch):
    monkeypatch.setattr("cagp_dist.budget.demand.MOST_MISSING", 1)
    grid = cagp.LatLonGrid(np.linspace(-90.0, 90.0, 7), 12)
    observed = np.ones(grid.shape, dtype=bool)
    observed[[0, -1], 1:] = False
    observed[3, 4] = False
    y = np.random.default_rng(0).standard_normal((int(observed.sum()), 1))
    new = cagp.unit_sphere([0.0, 90.0, -90.0, 12.0], [120.0, 0.0, 50.0, 33.0])
    found, exact = both(grid, observed, y, new, covariance="full")
    assert found.status is cagp.Status.EXACT
    assert_close(found.mean, exact.mean, relative=1e-10)
    assert_close(found.covariance, exact.covariance, relative=1e-10)
