"""Observed points in a window of a grid, with gaps in it: exact solves as those of the dense matrix."""

from contextlib import ExitStack

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.budget import GridSize
from cagp_dist.budget.demand import FEW_MISSING, solves_window
from cagp_dist.errors import NumericalError
from cagp_dist.gram import window_solves as window
from cagp_dist.gram.window_solves import WindowSolve
from cagp_dist.latlon.grid_layout import Layout
from cagp_dist.latlon.toeplitz import BlockToeplitz
from cagp_dist.posterior.problem import grid_size
from cagp_dist.runtime import SerialExecutor, ThreadExecutor

from ..oracle import assert_close

pytestmark = pytest.mark.usefixtures("one_blas_thread")

REGIONS = {
    "across Greenwich": (np.linspace(40.0, 56.0, 7), 60, 50, 14, 0.15),
    "without gaps, irregular": (np.array([-40.0, -33.0, -31.0, -10.0, 0.0]), 48, 0, 9, 0.0),
    "with a pole": (np.linspace(76.0, 90.0, 6), 36, 5, 11, 0.2),
    "most of the circle": (np.linspace(-10.0, 10.0, 4), 24, 20, 20, 0.1),
    "one column": (np.linspace(-10.0, 10.0, 8), 24, 23, 1, 0.0),
}


class Region:
    """A layout, its noise by latitude, and the dense Gram matrix of its observed points."""

    def __init__(self, latitude, n_longitudes, first, width, share):
        rng = np.random.default_rng(0)
        self.grid = cagp.LatLonGrid(latitude, n_longitudes, first_longitude_degrees=-3.0)
        self.columns = (first + np.arange(width)) % n_longitudes
        observed = np.zeros(self.grid.shape, dtype=bool)
        observed[:, self.columns] = rng.uniform(size=(latitude.size, width)) >= share
        observed[0, self.columns[[0, -1]]] = True
        pole = latitude == 90.0
        observed[pole] = np.arange(n_longitudes) == 0
        self.layout = Layout.of(self.grid, observed)
        self.noise = np.linspace(0.05, 0.2, latitude.size)
        self.kernel = cagp.Matern32(0.3, 2.0)
        self.X = self.grid.points[self.layout.index]
        self.G = self.kernel(self.X, self.X) + np.diag(np.repeat(self.noise, n_longitudes)[self.layout.index])
        self.solve = WindowSolve(self.kernel, self.layout, self.noise, SerialExecutor())
        anywhere = rng.normal(size=(12, 3))
        anywhere /= np.linalg.norm(anywhere, axis=1, keepdims=True)
        self.targets = np.concatenate([self.grid.points[::3], anywhere])


@pytest.fixture(params=REGIONS, scope="module")
def region(request):
    return Region(*REGIONS[request.param])


def test_the_window_is_the_smallest_part_of_the_circle(region):
    first, width = region.layout.window
    assert width == region.columns.size
    assert first == region.columns[0]
    inside = region.layout.missing[:, region.columns]
    assert region.layout.missing_in_window == np.count_nonzero(inside)


def test_weights_and_downdates_are_those_of_the_dense_matrix(region, monkeypatch):
    b = np.random.default_rng(1).normal(size=(len(region.X), 3))
    weights = region.layout.summed(region.solve.weights(region.layout.spread(b.T))).T
    assert_close(weights, np.linalg.solve(region.G, b), relative=1e-9)
    monkeypatch.setattr(window, "MISSING_ENTRIES", 40)
    inverse = region.layout.restrict(region.solve.inverse_diagonal()[None])[0]
    single = region.X[:, 2] == 1.0  # a pole, which is a row of the window
    assert_close(inverse[~single], np.diag(np.linalg.inv(region.G))[~single], relative=1e-9)
    V = region.kernel(region.targets, region.X)
    expected = V @ np.linalg.solve(region.G, V.T)
    np.testing.assert_allclose(
        region.solve.downdate(region.targets, full=True), expected, rtol=0.0, atol=1e-8
    )
    diagonal = region.solve.downdate(region.targets, full=False)
    np.testing.assert_allclose(diagonal, np.diag(expected), rtol=0.0, atol=1e-8)
    assert region.solve.condition_number >= 0.999 * np.linalg.cond(region.G)
    assert region.solve.relative_residual is None


def test_more_targets_in_the_window_than_gaps_and_fewer_give_the_same(region):
    points = region.grid.points.reshape(*region.grid.shape, 3)[:, region.columns].reshape(-1, 3)
    whole = region.solve.downdate(points, full=False)
    one_by_one = np.concatenate([region.solve.downdate(point[None], full=False) for point in points])
    np.testing.assert_allclose(whole, one_by_one, rtol=0.0, atol=1e-9)


def test_deafening_noise_is_not_lost_to_rounding():
    region = Region(*REGIONS["across Greenwich"])
    loud = WindowSolve(region.kernel, region.layout, np.full(7, 1e9), SerialExecutor())
    V = region.kernel(region.targets, region.X)
    expected = np.einsum("qn,qn->q", V, V) / 1e9  # G is the noise, to nine digits
    np.testing.assert_allclose(loud.downdate(region.targets, full=False), expected, rtol=1e-6)


def test_a_nearly_singular_window_is_refined_or_refused_with_advice():
    grid = cagp.LatLonGrid(np.arange(12.0) + 30.0, 360)
    observed = np.zeros(grid.shape, dtype=bool)
    observed[:, 3:28] = True
    layout = Layout.of(grid, observed)
    b = np.random.default_rng(0).normal(size=(1, 12 * 25))
    X = grid.points[layout.index]
    kernel = cagp.Matern52(0.2)
    noise = np.full(12, 1e-5)
    weights = layout.restrict(WindowSolve(kernel, layout, noise, SerialExecutor()).weights(layout.spread(b)))
    G = kernel(X, X) + 1e-5 * np.eye(300)
    # weights of 1e4 to 1e5: what the dense product itself rounds by is 1e-9
    assert np.linalg.norm(G @ weights[0] - b[0]) <= 1e-9 * np.linalg.norm(b)
    gram = BlockToeplitz.of_window(kernel, grid, width=25, noise_by_latitude=noise)
    unrefined = gram.product(gram.solve(b.reshape(1, 12, 25))).ravel() - b[0]
    assert np.linalg.norm(unrefined) > 10.0 * window.TOLERANCE * np.linalg.norm(b)
    singular = WindowSolve(cagp.SquaredExponential(0.2), layout, np.full(12, 1e-10), SerialExecutor())
    with pytest.raises(NumericalError, match="Raise noise_variance"):
        singular.weights(layout.spread(b))


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_condition_on_a_regional_field_is_exact(covariance):
    """Thirteen thousand points of the circle are missing, so that the window is solved by itself."""
    rng = np.random.default_rng(2)
    region = cagp.LatLonWindow.from_axes(np.arange(50.0, 52.25, 0.25), np.arange(-1.5, 2.0, 0.25))
    y = rng.normal(size=(2, *region.shape))
    y[:, 3, 4:9] = np.nan
    fields = region.embed(y)
    layout = Layout.of(region.grid, np.isfinite(fields[0]))
    assert np.count_nonzero(layout.missing) > FEW_MISSING
    assert grid_size(layout).solves_window
    prior = cagp.Prior(cagp.Matern32(0.02, 3.0), noise_variance=0.01, mean=0.5)
    targets = np.concatenate([region.grid.points[:6], cagp.unit_sphere([51.03, 49.0], [0.4, 8.0])])
    ours = cagp.condition(prior, region.grid, fields, targets, solver=cagp.Rings(), covariance=covariance)
    X, values = region.grid.points[layout.index], layout.restrict(fields).T
    reference = cagp.condition(prior, X, values, targets, solver=cagp.Cholesky(), covariance="full")
    assert ours.status is cagp.Status.EXACT
    assert "regional grid" in ours.stats.plan.method
    assert_close(ours.mean, reference.mean, relative=1e-9)
    np.testing.assert_allclose(ours.variance, reference.variance, rtol=0.0, atol=1e-9)
    if covariance == "full":
        np.testing.assert_allclose(ours.covariance, reference.covariance, rtol=0.0, atol=1e-9)


def test_a_window_is_solved_by_itself_where_that_is_cheap():
    assert solves_window(105, 237, gaps=1000, missing=130_000)
    assert not solves_window(105, 237, gaps=1000, missing=FEW_MISSING)  # the whole circle is cheaper
    assert not solves_window(105, 237, gaps=FEW_MISSING + 1, missing=130_000)
    assert not solves_window(721, 1000, gaps=0, missing=300_000)
    assert not GridSize(105, 1440, missing=130_000).solves_window


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("q", "fields", "covariance", "workers"),
    [
        (150, 1, "full", 0),
        (20, 40, "diagonal", 2),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in (
                (600, 1, "diagonal", 0),
                (600, 1, "diagonal", 2),
                (150, 1, "full", 2),
                (20, 40, "diagonal", 0),
            )
        ),
    ],
)
def test_planned_bytes_bound_what_is_allocated(q, fields, covariance, workers, traced):
    rng = np.random.default_rng(0)
    region = cagp.LatLonWindow.from_axes(np.arange(30) * 0.25 + 40.0, np.arange(60) * 0.25)
    y = rng.normal(size=(fields, *region.shape))
    y[:, rng.uniform(size=region.shape) < 0.1] = np.nan
    field, targets = region.embed(y), region.grid.points[:: region.grid.size // q][:q] + 1e-3
    prior = cagp.Prior(cagp.Matern32(0.05), 0.1)
    settings = {"solver": cagp.Rings(), "covariance": covariance}
    cagp.condition(prior, region.grid, field[:1], targets[:2], **settings)  # imports
    with ExitStack() as stack:
        executor = stack.enter_context(ThreadExecutor(workers)) if workers else SerialExecutor()
        posterior, peak = traced(
            lambda: cagp.condition(prior, region.grid, field, targets, executor=executor, **settings)
        )
    planned = posterior.stats.plan.peak_bytes
    assert peak <= planned + 2**18
    assert planned <= 6 * peak
