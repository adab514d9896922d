"""Means over cells: the joint posterior of the nodes, averaged."""

from dataclasses import replace

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.geometry import box_nodes
from cagp_dist.gram import DenseGram
from cagp_dist.gram.cell_means import CellMeans
from cagp_dist.gram.functionals import views_of_functionals
from cagp_dist.gram.targets import seen_from
from cagp_dist.runtime import SerialExecutor, ThreadExecutor

from ..joined import one_after_another
from ..oracle import assert_close, assert_same_bits, block_stage, compose, dense
from ..problems import regression_problem

SOLVERS = [
    cagp.BlockGaussSeidel(3, block_size=70),
    cagp.GaussSeidel(2),
    cagp.BlockJacobi(2, block_size=70),
    cagp.Cholesky(),
    cagp.ConjugateGradient(12),
    cagp.RandomActions(20, seed=3),
]


def ragged(counts=(3, 1, 9, 4, 1, 600, 2, 25), *, width=1.0):
    """Cells of a few and of many nodes, and W as a matrix."""
    rng = np.random.default_rng(0)
    corners = rng.uniform(high=1.0 - width, size=(len(counts), 2))
    nodes = np.repeat(corners, counts, axis=0) + width * rng.uniform(size=(sum(counts), 2))
    parts = [rng.uniform(size=count) for count in counts]
    weights = np.concatenate([part / part.sum() for part in parts])
    W = np.zeros((len(counts), len(nodes)))
    W[np.repeat(np.arange(len(counts)), counts), np.arange(len(nodes))] = weights
    return cagp.CellMeans(nodes, weights, counts), W


def of_cells(problem, cells):
    return replace(problem, X_test=cells)


def of_nodes(problem, cells):
    return replace(problem, X_test=cells.nodes)


@one_after_another
@pytest.mark.parametrize("fields", [None, 3])
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
def test_averages_of_the_joint_posterior_of_the_nodes(solver, fields):
    if fields is not None and not solver.many_fields:
        fields = 1
    problem = regression_problem(200, q=1, fields=fields)
    cells, W = ragged()
    found = of_cells(problem, cells).condition(solver)
    nodes = of_nodes(problem, cells).condition(solver)
    assert_close(found.mean, W @ nodes.mean)
    assert_close(found.covariance, W @ nodes.covariance @ W.T, relative=1e-8)
    assert_close(found.variance, np.diagonal(W @ nodes.covariance @ W.T), relative=1e-8)
    alone = of_cells(problem, cells).condition(solver, covariance="diagonal")
    assert_close(alone.variance, found.variance, relative=1e-8)


def test_dense_formulas():
    problem = regression_problem(200, q=1)
    cells, W = ragged()
    dense = of_nodes(problem, cells).dense
    A, _, _ = compose(dense.G, 3 * [block_stage(dense.G, 70)])
    for solver, (mean, covariance) in (
        (SOLVERS[0], dense.belief(A)),
        (cagp.Cholesky(), dense.exact()),
    ):
        found = of_cells(problem, cells).condition(solver)
        assert_close(found.mean, W @ mean)
        assert_close(found.variance, np.diagonal(W @ covariance @ W.T), relative=1e-8)
        first = found.trace[0]
        assert_close(first.mean, W @ dense.centre)
        assert_close(first.variance, np.diagonal(W @ dense.K2 @ W.T))


@one_after_another
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
def test_cells_of_one_node_are_points_to_the_bit(solver, covariance):
    problem = regression_problem(200, q=600)
    cells = CellMeans.of_points(problem.X_test)
    same = [problem, replace(problem, X_test=cells)]
    found, points = (case.condition(solver, covariance=covariance) for case in reversed(same))
    assert_same_bits(found, points)


def test_tiny_cells_are_points():
    problem = regression_problem(200, q=30)
    offsets = 1e-9 * np.array([[-1.0, -1.0], [1.0, 1.0], [-1.0, 1.0], [1.0, -1.0]])
    nodes = (problem.X_test[:, None] + offsets).reshape(-1, 2)
    cells = cagp.CellMeans(nodes, np.full(120, 0.25), np.full(30, 4))
    points = problem.condition(SOLVERS[0])
    found = of_cells(problem, cells).condition(SOLVERS[0])
    assert_close(found.mean, points.mean, relative=1e-7)
    assert_close(found.variance, points.variance, relative=1e-6)


def test_a_mean_is_surer_than_its_nodes():
    problem = regression_problem(200, q=1, noise_variance=0.5)
    cells, W = ragged()
    found = of_cells(problem, cells).condition(cagp.Cholesky(), covariance="diagonal")
    nodes = of_nodes(problem, cells).condition(cagp.Cholesky(), covariance="diagonal")
    several = cells.counts > 1
    assert (found.variance[several] < (W @ nodes.variance)[several]).all()


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_threads_change_no_bit(covariance):
    problem = of_cells(regression_problem(700, q=1, fields=2), ragged()[0])
    solver = cagp.BlockGaussSeidel(2, block_size=64)
    reference = problem.condition(solver, executor=SerialExecutor(), covariance=covariance)
    for threads in (2, 5):
        with ThreadExecutor(threads) as executor:
            assert_same_bits(problem.condition(solver, executor=executor, covariance=covariance), reference)


def test_mean_alone_is_that_of_the_posterior():
    problem = of_cells(regression_problem(200, q=1, fields=2), ragged()[0])
    mean = cagp.posterior_mean(problem.prior, problem.X, problem.y, problem.X_test, solver=SOLVERS[0])
    assert_close(mean, problem.condition(SOLVERS[0]).mean)


@pytest.mark.parametrize("n", [200, 1500])
def test_computational_variance_is_bracketed(n):
    cells, W = ragged(width=0.1)
    problem = of_cells(regression_problem(n, q=1), cells)
    found = problem.condition(cagp.BlockGaussSeidel(1, block_size=70), covariance="diagonal")
    gram = DenseGram(problem.prior.kernel, problem.X, noise_variance=np.full(n, problem.prior.noise_variance))
    half = gram.half_solve(problem.prior.kernel(problem.X, cells.nodes) @ W.T)
    K2 = problem.prior.kernel(cells.nodes, cells.nodes)
    exact = np.diagonal(W @ K2 @ W.T) - np.einsum("ij,ij->j", half, half)
    low, high = found.computational_variance_bounds
    scale = found.variance.max()
    assert (low <= found.variance - exact + 1e-9 * scale).all()
    assert (high >= found.variance - exact - 1e-9 * scale).all()
    if n <= 1024:
        assert_close(found.computational_variance, found.variance - exact, relative=1e-6)


def test_a_share_of_cells_is_reached():
    problem = of_cells(regression_problem(200, q=1, noise_variance=0.5), ragged(width=0.1)[0])
    solver = cagp.BlockGaussSeidel(50, block_size=70, computational_share=0.1)
    found = problem.condition(solver, covariance="diagonal")
    assert found.status is cagp.Status.SHARE_REACHED
    assert (found.computational_variance_bounds[1] <= 0.1 * found.variance).all()


GRID = cagp.LatLonGrid(np.linspace(-60.0, 60.0, 7), 12, first_longitude_degrees=-180.0)
ON_SPHERE = cagp.Prior(cagp.Matern32(0.5, variance=2.0), noise_variance=0.1)
GAPS = {
    "none": np.s_[:0, :0],
    "a point": np.s_[2, 3],
    "two thirds of the circle": np.s_[:, 4:],
    "every third of every other row": np.s_[::2, ::3],
}
MAPPED = cagp.cell_means([-80.0, -20.0, 0.0, 40.0], [10.0, 50.0, 90.0]).followed_by(
    CellMeans.of_points(np.concatenate([GRID.points[[0, 25, 27]], cagp.unit_sphere([12.0], [33.0])]))
)
EXACT = (cagp.Cholesky, cagp.Rings)


def on_grid(gaps):
    """A field with gaps, which points were observed, and the dense posterior at the nodes, averaged."""
    field = np.random.default_rng(4).normal(size=GRID.shape)
    field[GAPS[gaps]] = np.nan
    if gaps == "two thirds of the circle":
        field[3, 1] = np.nan
    seen = ~np.isnan(field)
    W = np.zeros((len(MAPPED), len(MAPPED.nodes)))
    W[np.repeat(np.arange(len(MAPPED)), MAPPED.counts), np.arange(len(MAPPED.nodes))] = MAPPED.weights
    mean, covariance = dense(ON_SPHERE, GRID.points[seen.ravel()], field[seen], MAPPED.nodes).exact()
    return field, W @ mean, W @ covariance @ W.T


@one_after_another
@pytest.mark.parametrize("gaps", GAPS)
@pytest.mark.parametrize(
    "solver",
    [cagp.BlockGaussSeidel(2, 24), *(made() for made in EXACT), cagp.ConjugateGradient(10)],
    ids=repr,
)
def test_observed_grids(solver, gaps):
    field, mean, covariance = on_grid(gaps)
    for wanted in ("full", "diagonal"):
        found = cagp.condition(ON_SPHERE, GRID, field, MAPPED, solver=solver, covariance=wanted)
        if isinstance(solver, EXACT):
            assert found.status is cagp.Status.EXACT
            np.testing.assert_allclose(found.mean, mean, rtol=0.0, atol=1e-8)
            np.testing.assert_allclose(found.variance, np.diag(covariance), rtol=0.0, atol=1e-8)
        assert (found.variance >= np.diag(covariance) - 1e-8).all()
        low, high = found.computational_variance_bounds
        np.testing.assert_allclose(low, high)
        np.testing.assert_allclose(found.variance - high, np.diag(covariance), rtol=0.0, atol=1e-8)
        if wanted == "full" and isinstance(solver, EXACT):
            np.testing.assert_allclose(found.covariance, covariance, rtol=0.0, atol=1e-8)


def test_sweeps_on_a_complete_grid_are_over_bands_of_rings():
    """As for points; the mean alone and the nodes one by one agree."""
    field, solver = on_grid("none")[0], cagp.BlockGaussSeidel(2, block_size=24)
    found = cagp.condition(ON_SPHERE, GRID, field, MAPPED, solver=solver)
    assert found.stats.plan.rings_per_block == 2
    nodes = cagp.condition(ON_SPHERE, GRID, field, MAPPED.nodes, solver=solver, covariance="full")
    W = np.zeros((len(MAPPED), len(MAPPED.nodes)))
    W[np.repeat(np.arange(len(MAPPED)), MAPPED.counts), np.arange(len(MAPPED.nodes))] = MAPPED.weights
    assert_close(found.mean, W @ nodes.mean)
    assert_close(found.variance, np.diagonal(W @ nodes.covariance @ W.T), relative=1e-8)
    assert_close(cagp.posterior_mean(ON_SPHERE, GRID, field, MAPPED, solver=solver), found.mean)


@pytest.mark.parametrize("shift", [0.0, 11.0])
def test_cells_that_lie_alike_between_the_longitudes_are_one_view(shift):
    edges = np.linspace(-90.0, 90.0, 4), shift + np.linspace(0.0, 360.0, 25)
    cells = cagp.cell_means(*edges, nodes_per_side=3)
    seeing, view, steps = views_of_functionals(cells, GRID)
    assert len(seeing) == 3 * 2  # cells of 15 degrees begin on a longitude of the grid, or between two
    turn = np.deg2rad(30.0 * steps).repeat(9)
    x, y, z = seeing.part(view).nodes.T
    turned = np.stack([x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn), z], axis=1)
    np.testing.assert_allclose(turned, cells.nodes, rtol=0.0, atol=1e-12)
    other = CellMeans(cells.nodes, cells.weights[::-1], cells.counts[::-1])
    nearly = CellMeans(cells.nodes, np.roll(cells.weights, 1), cells.counts)
    assert len(views_of_functionals(other, GRID)[0]) == 6  # weights of a cell are symmetric
    assert len(views_of_functionals(cells.followed_by(nearly), GRID)[0]) == 12
    assert len(views_of_functionals(cells.part(slice(0)), GRID)[0]) == 0


@pytest.mark.parametrize("gaps", GAPS)
def test_sums_over_a_grid_are_the_same_view_by_view(gaps, monkeypatch):
    field, seen = on_grid(gaps)[0], []
    cells = cagp.cell_means(np.linspace(-90.0, 90.0, 4), np.linspace(7.0, 367.0, 25)).part(
        np.random.default_rng(0).permutation(72)
    )
    fields = np.stack([field, 2.0 * field + 1.0])
    with monkeypatch.context() as context:
        context.setattr("cagp_dist.gram.targets.LEAST_ALIKE", 0.0)
        one_by_one = cagp.condition(ON_SPHERE, GRID, fields, cells, solver=cagp.Rings())
    monkeypatch.setattr(
        "cagp_dist.gram.targets.seen_from", lambda *given: seen.append(len(given[1])) or seen_from(*given)
    )
    found = cagp.condition(ON_SPHERE, GRID, fields, cells, solver=cagp.Rings())
    assert seen == [6]  # of three latitudes, in two places between the longitudes
    if gaps in ("none", "a point"):
        spent, others = (posterior.stats.gram_entries for posterior in (found, one_by_one))
        observed = int((~np.isnan(field)).sum())
        assert spent == others == 84 * 7 // 2 + observed * 2 * 6 * 16
    assert_close(found.mean, one_by_one.mean)
    assert_close(found.variance, one_by_one.variance)


def test_a_cell_may_have_many_nodes(monkeypatch):
    """More than are held at a time: fewer rows of points are then."""
    problem, (cells, _) = regression_problem(200, q=1), ragged()
    expected = of_cells(problem, cells).condition(SOLVERS[0])
    monkeypatch.setattr("cagp_dist.gram.functionals.NODES_AT_ONCE", 4)
    monkeypatch.setattr("cagp_dist.gram.functionals.ROWS_AT_ONCE", 30)
    monkeypatch.setattr("cagp_dist.gram.functionals.SQUARE_NODES", 4)
    found = of_cells(problem, cells).condition(SOLVERS[0])
    assert_close(found.mean, expected.mean)
    assert_close(found.covariance, expected.covariance)


def test_nodes_integrate_over_areas():
    south, north, west, east = (np.array([degrees]) for degrees in (30.0, 60.0, 350.0, 380.0))
    latitude, longitude, weights = (part[0] for part in box_nodes(south, north, west, east, nodes_per_side=5))
    low, high = np.sin(np.deg2rad([30.0, 60.0]))
    assert weights.sum() == pytest.approx(1.0)
    sine = np.sin(np.deg2rad(latitude))
    assert weights @ sine**2 == pytest.approx((high**3 - low**3) / 3.0 / (high - low))
    assert weights @ longitude == pytest.approx(365.0)
    assert ((longitude > 350.0) & (longitude < 380.0)).all()


def test_nodes_of_a_grid_of_cells_are_in_their_cells():
    cells = cagp.cell_means([-90.0, -45.0, 0.0, 90.0], [0.0, 180.0, 360.0], nodes_per_side=3)
    latitude = np.rad2deg(np.arcsin(cells.nodes[:, 2])).reshape(3, 2, 9)
    for row, (south, north) in enumerate(((-90.0, -45.0), (-45.0, 0.0), (0.0, 90.0))):
        assert ((latitude[row] > south) & (latitude[row] < north)).all()
    y = cells.nodes[:, 1].reshape(3, 2, 9)
    assert (y[:, 0] > 0.0).all()
    assert (y[:, 1] < 0.0).all()


def test_the_plan_counts_covariances_of_all_nodes():
    problem = regression_problem(200, q=8)
    cells, _ = ragged()
    for solver in SOLVERS:
        points = problem.condition(solver, covariance="diagonal").stats
        found = of_cells(problem, cells).condition(solver, covariance="diagonal").stats
        more = len(cells.nodes) - len(cells)
        actions = {cagp.ConjugateGradient: 12, cagp.RandomActions: 20}.get(type(solver), 1)
        assert found.gram_entries - points.gram_entries == actions * 200 * more
        assert found.plan.peak_bytes > points.plan.peak_bytes


@one_after_another
@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (([[0.0], [1.0]], [0.5], [2]), "cell-counts"),
        (([[0.0], [1.0]], [0.5, 0.5], [1]), "cell-counts"),
        (([[0.0], [1.0]], [0.5, 0.6], [2]), "cell-weights"),
        (([[0.0], [1.0]], [1.5, -0.5], [2]), "cell-weights"),
        (([[0.0], [1.0]], [0.5, 0.5], [2, 0]), "cell-counts"),
    ],
)
def test_bad_cells(arguments, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.CellMeans(*arguments)
    assert refusal.value.key == key


@one_after_another
@pytest.mark.parametrize(
    ("edges", "key"),
    [
        (([0.0, -10.0], [0.0, 10.0]), "edges"),
        (([0.0, 10.0], [0.0]), "edges"),
        (([0.0, 91.0], [0.0, 10.0]), "latitude-range"),
        (([0.0, 10.0], [0.0, 370.0]), "cells-overlap"),
    ],
)
def test_bad_edges(edges, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.cell_means(*edges)
    assert refusal.value.key == key


def test_cells_in_other_coordinates_are_refused():
    problem = regression_problem(20, q=1)
    with pytest.raises(ArgumentError) as refusal:
        of_cells(problem, cagp.cell_means([0.0, 1.0], [0.0, 1.0])).condition(cagp.Cholesky())
    assert refusal.value.key == "coordinates-differ"
