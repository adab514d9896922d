"""Bounds of the exact posterior variance against dense factors: never wrong, and close."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.gram import MaskedRings, RingGram, TiledGram
from cagp_dist.gram import exact_variance as module
from cagp_dist.gram.exact_variance import ExactVariance, neighbour_bounds
from cagp_dist.runtime import SerialExecutor, ThreadExecutor

from ..joined import one_after_another
from ..oracle import KERNELS, kernel_matrix

pytestmark = pytest.mark.usefixtures("one_blas_thread")
SERIAL = SerialExecutor()


def exact_variance(kernel, X, noise, targets):
    """``k(x, x) - V G^-1 V'`` by a dense solve."""
    V = kernel_matrix(kernel, targets, X)
    G = kernel_matrix(kernel, X, X) + np.diag(noise)
    return kernel.variance - np.einsum("ij,ji->i", V, np.linalg.solve(G, V.T))


def the_case(n=400, q=70, p=2, noise=0.05):
    rng = np.random.default_rng([n, q, p])
    return rng.uniform(size=(n, p)), noise * rng.uniform(0.5, 2.0, size=n), rng.uniform(size=(q, p))


@pytest.fixture
def few_neighbours(monkeypatch):
    """Small problems as if they were large ones: several groups, members and row chunks."""
    for name, value in {"FEW_POINTS": 10, "NEIGHBOURS": 12, "GROUP": 8, "MOST_MEMBERS": 40}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "ENTRIES", 4000)


@one_after_another
@pytest.mark.parametrize("kernel_class", KERNELS)
@pytest.mark.parametrize("lengthscale", [0.02, 0.1, 1.0])
@pytest.mark.usefixtures("few_neighbours")
def test_the_exact_variance_lies_between_the_bounds(kernel_class, lengthscale):
    X, noise, targets = the_case()
    kernel = kernel_class(lengthscale, variance=2.0)
    lower, upper = neighbour_bounds(kernel, X, noise, targets, executor=SERIAL)
    exact = exact_variance(kernel, X, noise, targets)
    assert (lower <= exact + 1e-12).all()
    assert (upper >= exact - 1e-12).all()
    assert (upper <= 2.0).all()


@pytest.mark.usefixtures("few_neighbours")
def test_the_bounds_are_those_of_the_trial_solution():
    """``V G^-1 V' = 2 V u - u'Gu + r'G^-1 r`` with u on the members of a group, ``r'G^-1 r <= r'N^-1 r``."""
    X, noise, targets = the_case()
    kernel = cagp.Matern32(0.1, variance=2.0)
    found = neighbour_bounds(kernel, X, noise, targets, executor=SERIAL)
    G = kernel_matrix(kernel, X, X) + np.diag(noise)
    V = kernel_matrix(kernel, targets, X)
    groups = list(module._groups(kernel, X, targets))
    assert sorted(np.concatenate([here for here, _ in groups])) == list(range(len(targets)))
    assert len(groups) > len(targets) / 8  # some were split: too many members
    for here, members in groups:
        assert len(members) <= 40
        u = np.zeros((len(X), len(here)))
        u[members] = np.linalg.solve(G[np.ix_(members, members)], V[np.ix_(here, members)].T)
        r = V[here].T - G @ u
        upper = 2.0 - np.einsum("ij,ij->j", u, 2.0 * V[here].T - G @ u)
        np.testing.assert_allclose(found[1, here], upper, rtol=1e-10)
        lower = np.maximum(upper - (r**2 / noise[:, None]).sum(axis=0), 0.0)
        np.testing.assert_allclose(found[0, here], lower, rtol=1e-8, atol=1e-10)
        for target, point in enumerate(here):  # each has its nearest points
            nearest = np.argsort(np.linalg.norm(X - targets[point], axis=1))[:12]
            assert set(nearest) <= set(members), target


def test_they_are_close_where_covariances_fall_with_distance():
    X, _, targets = the_case(n=1500, q=60)
    noise, kernel = np.full(1500, 0.1), cagp.Matern32(0.06, variance=2.0)
    lower, upper = neighbour_bounds(kernel, X, noise, targets, executor=SERIAL)
    exact = exact_variance(kernel, X, noise, targets)
    assert (lower <= exact + 1e-12).all()
    assert (upper >= exact - 1e-12).all()
    np.testing.assert_allclose(lower, exact, rtol=0.05)
    assert np.median(1.0 - lower / exact) < 0.005
    np.testing.assert_allclose(upper, exact, rtol=1e-3)


@pytest.mark.usefixtures("few_neighbours")
def test_near_is_what_the_kernel_takes_for_near():
    """With a long lengthscale in the second coordinate, and in sums, whose parts may differ."""
    X, noise, targets = the_case(n=300)
    narrow = cagp.Matern32((0.05, 0.5), variance=2.0)
    for kernel in (narrow, narrow + cagp.Matern52((0.1, 1.0), variance=1.0)):
        lower, upper = neighbour_bounds(kernel, X, noise, targets, executor=SERIAL)
        V = kernel(targets, X)
        downdate = np.einsum("ij,ji->i", V, np.linalg.solve(kernel(X, X) + np.diag(noise), V.T))
        exact = kernel.diagonal(targets) - downdate
        assert (lower <= exact + 1e-12).all()
        assert (upper >= exact - 1e-12).all()
        assert np.median(upper / exact) < 1.01
        here, members = next(module._groups(kernel, X, targets))
        nearest = np.argsort(np.linalg.norm((X - targets[here[0]]) / (0.05, 0.5), axis=1))[:12]
        assert set(nearest) <= set(members)


def test_few_points_give_the_exact_variance():
    X, noise, targets = the_case()
    kernel = cagp.Matern32(0.1, variance=2.0)
    given = ExactVariance(TiledGram(kernel, X, noise_variance=noise), targets)
    assert given.known
    lower, upper = given.bounds(SERIAL)
    np.testing.assert_array_equal(lower, upper)
    np.testing.assert_allclose(upper, exact_variance(kernel, X, noise, targets), rtol=0.0, atol=1e-13)
    assert given.bounds(SERIAL) is given.bounds(SERIAL)  # worked out once


@pytest.mark.parametrize("on_grid", [True, False])
@pytest.mark.parametrize("poles", [True, False])
def test_complete_grids_give_the_exact_variance(on_grid, poles):
    top = 90.0 if poles else 75.0
    grid, kernel = cagp.LatLonGrid(np.linspace(-top, top, 7), 12), cagp.Matern32(0.3, variance=2.0)
    observed = np.ones(grid.shape, dtype=bool)
    rings = RingGram(grid, kernel, noise_variance=0.1)
    if poles:
        observed[[0, -1], 1:] = False
    gram = MaskedRings(rings, observed) if poles else rings
    targets = grid if on_grid else cagp.unit_sphere([1.0, 50.0], [3.0, 77.0])
    given = ExactVariance(gram, targets)
    assert given.known
    lower, upper = given.bounds(SERIAL)
    np.testing.assert_array_equal(lower, upper)
    points = grid.points if on_grid else targets
    expected = exact_variance(kernel, gram.X, gram.noise_variance, points)
    np.testing.assert_allclose(upper, expected, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("gaps", [True, False])
def test_a_grid_with_gaps_or_with_noise_by_point_is_treated_as_points(gaps, monkeypatch):
    monkeypatch.setattr(module, "FEW_POINTS", 10)
    rng = np.random.default_rng(0)
    grid = cagp.LatLonGrid(np.linspace(-75.0, 75.0, 7), 12)
    observed = rng.uniform(size=grid.shape) > (0.2 if gaps else -1.0)
    noise = None if gaps else rng.uniform(0.01, 3.0, size=grid.size)
    rings = RingGram(grid, cagp.Matern32(0.3), noise_variance=0.1)
    gram = MaskedRings(rings, observed, noise_variance=noise)
    given = ExactVariance(gram, grid)
    assert not given.known
    lower, upper = given.bounds(SERIAL)
    expected = exact_variance(gram.kernel, gram.X, gram.noise_variance, grid.points)
    assert (lower <= expected + 1e-12).all()
    assert (upper >= expected - 1e-12).all()


@pytest.mark.usefixtures("few_neighbours")
def test_threads_give_the_same_bits():
    X, noise, targets = the_case()
    expected = neighbour_bounds(cagp.Matern32(0.1), X, noise, targets, executor=SERIAL)
    with ThreadExecutor(3) as executor:
        found = neighbour_bounds(cagp.Matern32(0.1), X, noise, targets, executor=executor)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.usefixtures("few_neighbours")
def test_edge_cases():
    X, noise, targets = the_case()
    kernel = cagp.Matern32(0.1, variance=2.0)
    assert neighbour_bounds(kernel, X, noise, targets[:0], executor=SERIAL).shape == (2, 0)
    lower, upper = neighbour_bounds(kernel, X, noise, X[:20], executor=SERIAL)  # targets that were observed
    exact = exact_variance(kernel, X, noise, X[:20])
    assert (lower <= exact + 1e-12).all()
    assert (upper >= exact - 1e-12).all()
    lower, _ = neighbour_bounds(kernel, X, 0.0 * noise, targets, executor=SERIAL)
    np.testing.assert_array_equal(lower, 0.0)  # nothing bounds G from below
    together = np.repeat(X[:5], 80, axis=0)  # singular without noise: no trial problem has a factor
    bounds = neighbour_bounds(kernel, together, np.zeros(400), targets, executor=SERIAL)
    np.testing.assert_array_equal(bounds[0], 0.0)
    np.testing.assert_array_equal(bounds[1], 2.0)
