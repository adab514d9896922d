"""Kriging from neighbours: identities T40-T42 of the mathematics page, its limits, and what is hard for it.

W is read off the means of unit vectors; that the distribution is that of any such W is T37.
"""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy.optimize import brentq

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.gram.neighbourhoods import LeafMeans, Settings, cells, groups
from cagp_dist.gram.tiled import TiledGram
from cagp_dist.kernels import point_columns
from cagp_dist.runtime import SerialExecutor
from cagp_dist.solvers.interface import SOME_POINTS, Problem
from cagp_dist.solvers.local import neighbours

from ..joined import one_after_another
from ..oracle import assert_close, kernel_matrix
from .everywhere import everywhere
from .places import N

pytestmark = pytest.mark.usefixtures("one_blas_thread")

SOLVERS = {
    "neighbours": cagp.Neighbours(9),
    "each by itself": cagp.Neighbours(7, group=1),
    "coarse": cagp.Neighbours(6, coarse=5),
    "constant drift": cagp.Neighbours(9, drift="constant"),
    "coarse and linear drift": cagp.Neighbours(9, coarse=4, drift="linear"),
}


@everywhere(SOLVERS, few=("neighbours", "coarse and linear drift"))
def test_the_law_of_the_weights_is_the_law_of_the_errors_t37_t40_t41(where, solver):
    """``E = K'' - V W' - W V' + W G W'`` of all targets together, and never below the exact covariance."""
    dense, (state,) = where.dense, where.at_new(solver)
    (unit,) = where.states(solver, where.targets, np.eye(N))
    W = unit.mean
    assert_close(state.mean, W @ dense.b[:, None])
    covariance = dense.K2 - W @ dense.V.T - dense.V @ W.T + W @ dense.G @ W.T
    assert np.abs(dense.K2 - state.downdate - covariance).max() < 1e-12 * dense.K2.max()
    left = dense.V.T - dense.G @ W.T
    unfinished = left.T @ np.linalg.solve(dense.G, left)
    assert np.abs(covariance - dense.exact()[1] - unfinished).max() < 1e-11 * dense.K2.max()
    if solver.drift != "none":  # T42: constants are given back
        assert np.abs(W.sum(axis=1) - 1.0).max() < 1e-12


@everywhere({"all": cagp.Neighbours(N), "more": cagp.Neighbours(10 * N, group=3)}, few=("all",))
def test_all_points_give_the_exact_posterior(where, solver):
    mean, covariance = where.dense.exact()
    (state,) = where.at_new(solver)
    assert state.status is cagp.Status.EXACT
    assert_close(state.mean[:, 0], mean)
    assert np.abs(where.dense.K2 - state.downdate - covariance).max() < 1e-11 * where.dense.K2.max()


RNG = np.random.default_rng(3)
X = RNG.uniform(size=(400, 2))
TARGETS = np.concatenate([RNG.uniform(size=(150, 2)), X[:10]])
Y = RNG.normal(size=(400, 3))
PRIOR = cagp.Prior(cagp.Matern32((0.3, 0.5), 2.0) + cagp.Matern12(0.1, 0.3), 10.0 ** RNG.uniform(-4, -1, 400))


def belief(solver, y=Y, targets=TARGETS, prior=PRIOR, points=X, **settings):
    return cagp.condition(prior, points, y, targets, solver=solver, **settings)


def law_of(weights, targets=TARGETS, prior=PRIOR):
    """``E(W)`` for weights (q, n), densely."""
    G = kernel_matrix(prior.kernel, X, X) + np.diag(prior.noise_variance)
    V, K = kernel_matrix(prior.kernel, targets, X), kernel_matrix(prior.kernel, targets, targets)
    return K - V @ weights.T - weights @ V.T + weights @ G @ weights.T


def test_a_target_by_itself_has_the_posterior_of_its_nearest_points_t40():
    """By the distances along the coordinates at which the correlation has fallen to 0.7."""
    found = belief(cagp.Neighbours(12, group=1))

    def correlation(distance, axis):
        return PRIOR.kernel(distance * np.eye(2)[[axis]], np.zeros((1, 2)))[0, 0] / PRIOR.kernel.variance

    scale = [1.0 / brentq(lambda d, axis=axis: correlation(d, axis) - 0.7, 1e-3, 1.0) for axis in range(2)]
    for target in (0, 77, 155):
        near = np.argsort(np.linalg.norm((X - TARGETS[target]) * scale, axis=1))[:12]
        prior = dataclasses.replace(PRIOR, noise_variance=PRIOR.noise_variance[near])
        alone = belief(cagp.Cholesky(), Y[near], TARGETS[target : target + 1], prior, X[near])
        np.testing.assert_allclose(found.mean[target], alone.mean[0], rtol=1e-9)
        np.testing.assert_allclose(found.variance[target], alone.variance[0], rtol=1e-9)


def test_more_neighbours_never_raise_a_variance():
    """Of targets that share with no other, whose neighbourhoods are nested."""
    variances = [belief(cagp.Neighbours(k, group=1)).variance for k in (1, 3, 10, 30, 100, 400)]
    assert all((more <= fewer * (1.0 + 1e-12)).all() for fewer, more in itertools.pairwise(variances))
    np.testing.assert_allclose(variances[-1], belief(cagp.Cholesky()).variance, rtol=1e-9)


FUNCTIONALS = np.zeros((60, 6))
FUNCTIONALS[:4, 0] = 0.25  # a cell
FUNCTIONALS[:, 1] = 1.0 / 60.0  # a wide region
FUNCTIONALS[[10, 20], [2, 2]] = 1.0, -1.0  # a difference
FUNCTIONALS[30, 3] = 1.0  # a point
FUNCTIONALS[4:30, 4] = 0.1
FUNCTIONALS[[0, 1], [5, 5]] = 1.0, -1.0  # a slope
NODES = np.concatenate([0.5 + 0.01 * RNG.uniform(size=(4, 2)), RNG.uniform(size=(56, 2))])


@pytest.mark.parametrize("solver", [cagp.Neighbours(20), cagp.Neighbours(20, coarse=8, drift="constant")])
def test_functionals_have_the_law_of_their_weights_t41(solver):
    """Narrow ones are solved as they are, wide ones are sums of the weights of their nodes."""
    wanted = cagp.LinearFunctionals(NODES, FUNCTIONALS)
    found = belief(solver, targets=wanted, covariance="full")
    W = belief(solver, y=np.eye(len(X)), targets=wanted).mean
    G = kernel_matrix(PRIOR.kernel, X, X) + np.diag(PRIOR.noise_variance)
    V = FUNCTIONALS.T @ kernel_matrix(PRIOR.kernel, NODES, X)
    K = FUNCTIONALS.T @ kernel_matrix(PRIOR.kernel, NODES, NODES) @ FUNCTIONALS
    expected = K - V @ W.T - W @ V.T + W @ G @ W.T
    assert_close(found.mean, W @ Y)
    assert np.abs(found.covariance - expected).max() < 1e-12 * np.abs(K).max()
    assert_close(found.variance, found.covariance.diagonal())


def test_a_linear_drift_gives_planes_back_t42():
    """Whatever its coefficients are; and on the sphere what is linear along the surface."""
    plane = np.column_stack([np.ones(len(X)), X])
    found = belief(cagp.Neighbours(20, drift="linear"), plane)
    np.testing.assert_allclose(found.mean, np.column_stack([np.ones(len(TARGETS)), TARGETS]), atol=1e-12)
    W = belief(cagp.Neighbours(20, drift="linear"), np.eye(len(X))).mean
    np.testing.assert_allclose(found.variance, law_of(W).diagonal(), rtol=1e-9)
    on_a_line = np.column_stack([X[:, 0], np.zeros(len(X))])
    with pytest.raises(NumericalError) as refusal:
        belief(cagp.Neighbours(20, drift="linear"), points=on_a_line)
    assert refusal.value.key == "local-drift"


def test_an_estimated_mean_is_counted_where_it_comes_from_some_of_the_points(monkeypatch):
    """T37 with coefficients from a hundred points of four hundred."""
    monkeypatch.setattr("cagp_dist.solvers.local.neighbours.SOME_POINTS", 100)
    assert SOME_POINTS > 1000
    mean = cagp.BasisMean(lambda Z: np.column_stack([np.ones(len(Z)), Z[:, 0]]), ("one", "x"))
    prior = dataclasses.replace(PRIOR, mean=mean)
    found = belief(cagp.Neighbours(15), prior=prior, covariance="full")
    W = belief(cagp.Neighbours(15), np.eye(len(X)), prior=prior).mean
    np.testing.assert_allclose(W @ mean.basis_at(X), mean.basis_at(TARGETS), atol=1e-10)
    assert np.abs(found.covariance - law_of(W)).max() < 1e-12
    assert found.status is cagp.Status.NEIGHBOURS


def test_observations_that_others_determine_are_left_out():
    """Duplicates without noise, and targets on observations: no variance below zero, no NaN."""
    twice, y = np.concatenate([X[:80], X[:80]]), np.concatenate([Y[:80, 0], Y[:80, 0]])
    prior = cagp.Prior(cagp.Matern32(0.3), np.zeros(160) + 1e-300)
    found = belief(cagp.Neighbours(30), y, np.concatenate([X[:5], TARGETS[:20]]), prior, twice)
    np.testing.assert_allclose(found.mean[:5], y[:5], atol=1e-9)
    assert np.isfinite(found.mean).all()
    assert (found.variance >= 0.0).all()
    assert found.variance[:5].max() < 1e-12
    assert found.stats.dropped_actions > 0


@pytest.mark.parametrize("exponent", [-10, 0])
def test_noise_over_ten_decades_and_few_points(exponent):
    noise = 10.0 ** np.random.default_rng(0).uniform(exponent, exponent + 10, 400)
    prior = dataclasses.replace(PRIOR, noise_variance=noise)
    W = belief(cagp.Neighbours(25), np.eye(400), prior=prior).mean
    found = belief(cagp.Neighbours(25), prior=prior)
    assert np.abs(found.variance - law_of(W, prior=prior).diagonal()).max() < 1e-9
    one = belief(
        cagp.Neighbours(25), Y[:1], prior=dataclasses.replace(PRIOR, noise_variance=0.1), points=X[:1]
    )
    assert one.status is cagp.Status.EXACT


def test_more_targets_do_not_change_one_that_is_by_itself():
    """Nor does their order, or that of the observations."""
    solver, shuffle = cagp.Neighbours(12, group=1), np.random.default_rng(0).permutation(400)
    found, few = belief(solver), belief(solver, targets=TARGETS[40:60])
    assert np.array_equal(few.mean, found.mean[40:60])
    prior = dataclasses.replace(PRIOR, noise_variance=PRIOR.noise_variance[shuffle])
    turned = belief(solver, Y[shuffle], TARGETS[::-1], prior, X[shuffle])
    np.testing.assert_allclose(turned.mean[::-1], found.mean, rtol=1e-10)
    np.testing.assert_allclose(turned.variance[::-1], found.variance, rtol=1e-10)


@pytest.mark.parametrize("k", [1, 5, 64])
def test_a_halo_has_all_neighbours_of_its_cell(k):
    """Of clustered points and targets, on the sphere."""
    rng = np.random.default_rng(k)
    centres = rng.normal(size=(9, 3))
    points = np.concatenate(
        [centre + 10.0 ** rng.uniform(-3, 0) * rng.normal(size=(300, 3)) for centre in centres]
    )
    targets = np.concatenate([points[::7] + 0.01, rng.normal(size=(200, 3))])
    scale, seen = np.array([3.0, 3.0, 1.0]), []
    for cell in cells(points, targets, scale=scale, neighbours=k):
        seen += cell.targets.tolist()
        apart = np.linalg.norm((points[:, None] - targets[cell.targets]) * scale, axis=2)
        nearest = np.argsort(apart, axis=0)[:k]
        assert np.isin(nearest, cell.halo).all()
        mine = points[cell.halo] * scale
        for here, members in groups(mine, targets[cell.targets] * scale, Settings(k, 0, 16)).each():
            assert np.isin(nearest[:, here], cell.halo[members]).all()
            assert len(here) <= 16
    assert sorted(seen) == list(range(len(targets)))


def test_means_of_leaves_have_their_covariances():
    """Of all observations, each in one leaf, weighted by their precision."""
    means, noise = LeafMeans(PRIOR.kernel, X, PRIOR.noise_variance), PRIOR.noise_variance
    L = means.of(np.eye(len(X)))
    np.testing.assert_allclose(L.sum(axis=1), 1.0, rtol=1e-12)
    assert ((L > 0.0).sum(axis=0) == 1).all()
    heaviest = np.argmax(L, axis=1)
    assert all(noise[heaviest[a]] == noise[L[a] > 0.0].min() for a in range(len(L)))
    G = kernel_matrix(PRIOR.kernel, X, X) + np.diag(noise)
    leaf, middle = np.argmax(L > 0.0, axis=0), np.array([[5.0, 5.0]])
    ((some, *chosen),) = means.near(middle, np.zeros((1, 1), dtype=np.intp), 10)
    (without,) = means.near(middle, np.flatnonzero(leaf == some)[None], 9)  # known from all its observations
    assert without.tolist() == chosen
    square, found = np.zeros((9, 9)), np.empty((len(X), 9))
    means.square(chosen, square)
    assert_close(square, np.tril((L @ G @ L.T)[np.ix_(chosen, chosen)]))
    means.with_points(chosen, point_columns(X), np.arange(len(X)), found)
    assert_close(found, G @ L[chosen].T)
    groups_of_leaves = [np.sort(chosen)[start : start + 7] for start in range(3)]
    means.keep(groups_of_leaves)  # which costs less than each by itself
    for leaves in groups_of_leaves:
        own = np.empty((7, 7))
        means.square(leaves, own)
        assert_close(np.tril(own), np.tril((L @ G @ L.T)[np.ix_(leaves, leaves)]))
    of_kernel = means.panel(chosen, lambda points: kernel_matrix(PRIOR.kernel, X, points.T))
    assert_close(of_kernel, kernel_matrix(PRIOR.kernel, X, X) @ L[chosen].T)


def test_a_group_has_the_means_of_all_its_targets():
    """Also where they lie apart: none has a wider error bar than alone."""
    prior = cagp.Prior(cagp.Matern32(2.0), 1.0)
    together, alone = (
        belief(cagp.Neighbours(8, coarse=30, group=group), prior=prior).variance for group in (64, 1)
    )
    assert (together <= alone * (1.0 + 1e-9)).all()
    assert (together < 0.999 * alone).any()


def test_coarse_means_are_worth_more_than_as_many_neighbours():
    """With much noise, and a lengthscale that is long against the spacing: as 400 points, not as 40."""
    prior = cagp.Prior(cagp.Matern32(2.0), 1.0)
    exact, coarse, plain = (
        np.sqrt(belief(solver, prior=prior).variance).mean()
        for solver in (cagp.Cholesky(), cagp.Neighbours(20, coarse=20, group=1), cagp.Neighbours(40, group=1))
    )
    assert exact < coarse < exact + 0.3 * (plain - exact)


def test_auto_takes_what_is_within_a_hundredth_of_four_times_as_many(caplog):
    rng = np.random.default_rng(1)
    points = cagp.unit_sphere(np.degrees(np.arcsin(rng.uniform(-1, 1, 3000))), rng.uniform(0, 360, 3000))
    short, long = (cagp.Prior(cagp.Matern32(scale), 0.1) for scale in (0.05, 1.0))
    with caplog.at_level("INFO"):
        belief(cagp.Neighbours("auto"), points[:, 0], points[:50], short, points)
        belief(cagp.Neighbours("auto"), points[:, 0], points[:50], long, points)
    first, second = (record.message for record in caplog.records if "times as many" in record.message)
    assert first.startswith("32 neighbours:")
    assert "coarse means: error bars at" in second
    assert not any(record.levelname == "WARNING" for record in caplog.records)


def test_what_auto_looks_at_does_not_grow_with_the_observations(monkeypatch):
    """Targets far apart, each among the observations near it; and none after it, if causal."""
    looked, cell_distributions = [], neighbours.cell_distributions

    def counted(kernel, X, *rest):
        looked.append(X)
        return cell_distributions(kernel, X, *rest)

    monkeypatch.setattr(neighbours, "cell_distributions", counted)
    rng, executor = np.random.default_rng(0), SerialExecutor()
    X, targets = (
        np.column_stack(
            [cagp.unit_sphere(*rng.uniform((-60, 0), (60, 360), (n, 2)).T), rng.uniform(0, 24, n)]
        )
        for n in (20_000, 31)
    )
    targets[-1, -1] = -1.0
    prior = cagp.Prior(cagp.SpaceTime(cagp.Matern32(0.05), lengthscale_time=3.0), 0.1)
    for causal in (False, True):
        for n in (2_000, 20_000):
            gram = TiledGram(prior.kernel, X[:n], noise_variance=np.full(n, 0.1))
            problem = Problem(gram, np.empty((n, 0)), targets, full_covariance=False)
            looked.clear()
            settled = cagp.Neighbours("auto", causal=causal).settled(problem, executor=executor)
            assert (settled.neighbours, settled.wider) == (32, pytest.approx(1.0, abs=0.01))
            assert max(map(len, looked)) == neighbours.ROOM * 4 * 32
            assert len(looked) == 2 * (len(targets) - causal)


@one_after_another
@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"neighbours": 0}, "no-count"),
        ({"neighbours": "many"}, "no-count"),
        ({"coarse": -1}, "no-count"),
        ({"group": 0}, "no-count"),
        ({"drift": "cubic"}, "unknown-word"),
    ],
)
def test_settings_are_checked(settings, key):
    with pytest.raises(ArgumentError) as refusal:
        cagp.Neighbours(**settings)
    assert refusal.value.key == key


def test_a_linear_drift_is_that_of_each_neighbourhood():
    """Whatever other targets there are: at both poles, and of clusters far apart with slopes of their own."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(2000, 3))
    Z /= np.linalg.norm(Z, axis=1)[:, None]
    prior, solver = cagp.Prior(cagp.Matern32(0.1), 0.01), cagp.Neighbours(24, drift="linear")
    poles = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]])
    found = cagp.condition(prior, Z, 1e4 * Z[:, 0], poles, solver=solver)
    assert (np.abs(found.mean) < 5.0 * np.sqrt(found.variance)).all()
    line = np.concatenate([np.arange(100.0), 1e6 + np.arange(100.0)])[:, None]
    y = np.where(line < 1e5, 1e3 * line, -1e3 * (line - 1e6))[:, 0]
    far = np.array([[50.3], [1e6 + 50.3]])
    together = cagp.condition(prior, line, y, far, solver=cagp.Neighbours(16, drift="linear"))
    np.testing.assert_allclose(together.mean, [50300.0, -50300.0], rtol=1e-9)


def test_a_column_that_few_points_tell_of_is_estimated_from_them():
    """Of more points than an estimate takes, one has an offset of its own."""
    Z = np.random.default_rng(0).uniform(size=(2200, 2))
    offset = np.zeros(2200)
    offset[1234] = 1.0
    mean = cagp.BasisMean(
        lambda P: np.column_stack([np.ones(len(P)), (Z[1234] == P).all(axis=1)]), ("one", "offset")
    )
    y = np.sin(5.0 * Z[:, 0]) + 3.0 * offset
    found = cagp.condition(
        cagp.Prior(cagp.Matern32(0.3), 1e-4, mean), Z, y, Z[1234:1235], solver=cagp.Neighbours(20)
    )
    assert found.mean[0] == pytest.approx(y[1234], abs=0.1)
    assert found.variance[0] < 0.1


def test_no_targets_need_no_choice():
    assert belief(cagp.Neighbours("auto"), targets=np.empty((0, 2))).mean.shape == (0, 3)
