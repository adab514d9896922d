"""Solves with points of a grid missing (T28), and poles that were observed once."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.gram import gaps
from cagp_dist.gram.gaps import GridSolve
from cagp_dist.latlon.grid_layout import Layout
from cagp_dist.runtime import SerialExecutor

from ..grids import grid_problem
from ..oracle import assert_close, kernel_matrix, ring_points

pytestmark = pytest.mark.usefixtures("one_blas_thread")

NAMES = ["no poles, odd Q", "irregular, with noise by latitude", "noise that is its own mirror image"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.6])
def test_solves_are_those_of_the_observed_system(name, share):
    """Noise by latitude included: weights, the diagonal of the inverse, the determinant and downdates."""
    problem = grid_problem(name)
    observed = np.random.default_rng(0).uniform(size=problem.grid.shape) >= share
    there = np.flatnonzero(observed)
    G, b = problem.G[np.ix_(there, there)], problem.field(2)[:, observed].T
    system = GridSolve(problem.rings, Layout.of(problem.grid, observed))
    assert_close(system.weights(b), np.linalg.solve(G, b), relative=1e-10)
    assert_close(system.inverse_diagonal(), np.diag(np.linalg.inv(G)), relative=1e-10)
    assert system.logdet() == pytest.approx(np.linalg.slogdet(G)[1], rel=1e-10)
    points = cagp.unit_sphere(
        [-90.0, 12.0, 12.0, 44.0, 44.0], [3.0, 0.0, 360.0 / problem.grid.shape[1], 77.0, -80.0]
    )
    V = problem.kernel(points, problem.points[there])
    expected, atol = V @ np.linalg.solve(G, V.T), 1e-12 * problem.kernel.variance
    np.testing.assert_allclose(system.downdate(points, full=True), expected, rtol=0.0, atol=atol)
    np.testing.assert_allclose(system.downdate(points, full=False), np.diag(expected), rtol=0.0, atol=atol)


POLES = {
    "both poles": (np.linspace(-90.0, 90.0, 7), [0, -1], 0.1),
    "the north pole, descending": (np.array([90.0, 50.0, 3.0, -44.0]), [0], 0.2),
    "noise by latitude": (np.array([-90.0, -31.0, 4.0, 60.0, 90.0]), [0, -1], np.linspace(0.05, 0.4, 5)),
    "one pole complete": (np.linspace(-90.0, 90.0, 5), [-1], 0.1),
}


@pytest.mark.parametrize("gaps_too", [False, True], ids=["poles alone", "with gaps"])
@pytest.mark.parametrize(("latitude", "poles", "noise"), POLES.values(), ids=POLES)
def test_poles_observed_once_are_solved_as_the_dense_merged_system(latitude, poles, noise, gaps_too):
    """One observation of a pole is not Q of them, whichever copy it is said to be."""
    tolerance = 1e-10
    P, Q = len(latitude), 8
    kernel = cagp.Matern32(0.5, 2.0)
    observed = np.ones((P, Q), dtype=bool)
    observed[poles] = False
    observed[poles, [3, 0][: len(poles)]] = True
    if gaps_too:
        observed[1, 2:5] = False
        observed[2, 0] = False
    rings = cagp.RingGram(
        cagp.LatLonGrid(latitude, Q), kernel, noise_variance=noise, executor=SerialExecutor()
    )
    masked = cagp.MaskedRings(rings, observed)
    X = ring_points(latitude, Q)[observed.ravel()]
    variances = np.repeat(np.broadcast_to(noise, P), Q)[observed.ravel()]
    G = kernel_matrix(kernel, X, X) + np.diag(variances)
    exact = masked.exact(executor=SerialExecutor())
    b = np.random.default_rng(0).normal(size=(len(X), 3))
    assert_close(exact.weights(b), np.linalg.solve(G, b), relative=tolerance)
    assert_close(exact.inverse_diagonal(), np.diag(np.linalg.inv(G)), relative=tolerance)
    points = cagp.unit_sphere([90.0, -90.0, 90.0, 12.3, -44.0], [0.0, 77.0, 45.0, 33.0, 90.0])
    V = kernel_matrix(kernel, points, X)
    expected = V @ np.linalg.solve(G, V.T)
    assert_close(exact.downdate(points, full=True), expected, relative=tolerance)
    assert_close(exact.downdate(points, full=False), np.diag(expected), relative=tolerance)
    W = kernel_matrix(kernel, rings.X, X)
    at_grid = np.einsum("ij,ji->i", W, np.linalg.solve(G, W.T))
    assert_close(exact.downdate(rings.grid, full=False), at_grid, relative=tolerance)
    assert_close(exact.downdate(rings.X, full=False), at_grid, relative=tolerance)
    assert_close(masked.cross(rings.X, b, executor=SerialExecutor()), W @ b, relative=1e-10)


@pytest.mark.parametrize("name", [*NAMES, "poles, even Q", "noise that is not"])
def test_variances_at_points_of_the_grid_follow_from_its_inverse_t28(name, monkeypatch):
    """At missing points, observed ones, and points between them (T28), in any order; no grid is solved."""
    problem = grid_problem(name)
    rng = np.random.default_rng(1)
    observed = rng.uniform(size=problem.grid.shape) >= 0.2
    there = np.flatnonzero(observed)
    order = rng.permutation(problem.n)
    points = problem.grid.points[order]
    V = problem.K[order][:, there]
    expected = np.einsum("ij,ji->i", V, np.linalg.solve(problem.G[np.ix_(there, there)], V.T))
    few = GridSolve(problem.rings, Layout.of(problem.grid, observed))
    mixed = np.concatenate([points[:5], cagp.unit_sphere([12.3], [33.0]), points[5:]])
    by_views = few._downdate_by_views(mixed, full=False)
    atol = 1e-12 * problem.kernel.variance
    np.testing.assert_allclose(few.downdate(mixed, full=False), by_views, rtol=0.0, atol=atol)
    monkeypatch.setattr(cagp.RingGram, "solve", None)
    np.testing.assert_allclose(few.downdate(points, full=False), expected, rtol=0.0, atol=atol)


def test_missing_points_far_away_have_no_part_in_the_inverse(monkeypatch):
    """Of 5 rows of 240 points, each band meets a part of the missing points, and nothing changes by that."""
    grid = cagp.LatLonGrid([-4.0, -2.0, 0.0, 2.0, 4.0], 240)
    rings = cagp.RingGram(grid, cagp.Matern32(0.05, 3.0), noise_variance=1.0, executor=SerialExecutor())
    missing = np.random.default_rng(0).uniform(size=grid.shape) < 0.1
    few, met = GridSolve(rings, Layout.of(grid, ~missing)), []
    apart = GridSolve._apart
    monkeypatch.setattr(
        GridSolve, "_apart", lambda self, columns: met.append(apart(self, columns)) or met[-1]
    )
    found = few.inverse_diagonal()
    assert len(met) == 8
    assert max(steps.max() for steps in met) >= 100
    observed = np.flatnonzero(~missing)
    G = kernel_matrix(rings.kernel, grid.points, grid.points) + np.eye(grid.size)
    np.testing.assert_allclose(found, np.diag(np.linalg.inv(G[np.ix_(observed, observed)])), rtol=1e-10)
    monkeypatch.setattr(gaps, "NEGLIGIBLE", 1e-3)  # much of what matters: it is what is left out
    assert np.abs(few.inverse_diagonal() - found).max() > 1e-8


def test_the_downdate_of_the_grid_itself_is_that_of_its_points():
    """One pass over the factors, in place of a solve for each latitude."""
    for name in (*NAMES, "poles, even Q", "one point"):
        problem = grid_problem(name)
        exact = problem.rings.exact(executor=SerialExecutor())
        expected = problem.K @ problem.solve(problem.K)
        np.testing.assert_allclose(
            exact.downdate(problem.grid, full=False), np.diag(expected), rtol=0.0, atol=1e-12
        )
        np.testing.assert_allclose(exact.downdate(problem.grid, full=True), expected, rtol=0.0, atol=1e-11)
        by_points = exact.downdate(problem.grid.points, full=False)
        np.testing.assert_allclose(by_points, np.diag(expected), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("solver", [cagp.Rings(), cagp.ConjugateGradient(2)])
def test_a_grid_with_poles_is_factored_once(solver):
    """Weights, products and what is seen on the grid come from the same factors."""
    calls = []

    class Counting(SerialExecutor):
        def submit(self, function, *arguments, **options):
            calls.append(function.__name__)
            return super().submit(function, *arguments, **options)

    grid = cagp.LatLonGrid(np.linspace(-90.0, 90.0, 7), 10)
    field = np.random.default_rng(0).normal(size=grid.shape)
    field[2, 3:6] = np.nan
    prior = cagp.Prior(cagp.Matern32(0.5), noise_variance=0.1)
    cagp.condition(prior, grid, field, grid, solver=solver, executor=Counting())
    rings = cagp.RingGram(grid, prior.kernel, noise_variance=0.1)
    assert calls.count("factor_range") == len(rings.wavenumbers.ranges())


@pytest.mark.parametrize("loudest", [1.0, 3.9e6, 4.4e6, 1e9])
def test_the_grid_itself_is_as_precise_as_its_points_however_loud_the_noise(loudest):
    """Where the inverse's diagonal would be lost to rounding, the difference is taken as at points."""
    grid = cagp.LatLonGrid([-30.0, 0.0, 30.0], 4)
    rings = cagp.RingGram(grid, cagp.Matern32(0.5, 4.0), noise_variance=[loudest, 4.4 * loudest, loudest])
    exact = rings.exact(executor=SerialExecutor())
    V = rings.kernel(grid.points, grid.points)
    expected = np.diag(V @ np.linalg.solve(V + np.diag(rings.noise_variance), V))
    whole, at_points = (exact.downdate(targets, full=False) for targets in (grid, grid.points))
    np.testing.assert_allclose(at_points, expected, rtol=1e-12, atol=0.0)
    # each variance is 4; the difference loses the noise's digits, at most a million times rounding
    np.testing.assert_allclose(whole, expected, rtol=1e-12, atol=4.0 * 1e-9)


def test_a_solve_under_loud_noise_is_the_same_on_the_grid_and_at_its_points():
    grid = cagp.LatLonGrid([-30.0, 0.0, 30.0], 4)
    field = np.random.default_rng(0).normal(size=grid.shape)
    prior = cagp.Prior(cagp.Matern32(0.5, 4.0), noise_variance=4.4e6)
    on_grid = cagp.condition(prior, grid, field, grid, solver=cagp.Rings())
    at_points = cagp.condition(prior, grid, field, grid.points, solver=cagp.Rings())
    assert on_grid.status.ok
    np.testing.assert_allclose(on_grid.variance.ravel(), at_points.variance, rtol=1e-14, atol=0.0)
