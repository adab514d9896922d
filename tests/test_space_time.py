"""Kernels of space and time: values, slopes, posteriors and fits against formulae and dense matrices."""

import pickle

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import cagp_dist as cagp
from cagp_dist.compiled import evaluate
from cagp_dist.errors import ArgumentError
from cagp_dist.kernels import point_columns
from cagp_dist.likelihood.fit_result import each
from cagp_dist.likelihood.numbering import Model
from cagp_dist.space_time import SpaceTimeOf


def points(n, seed=0, hours=240.0):
    """Points of Europe within ten days, (n, 4)."""
    rng = np.random.default_rng(seed)
    places = cagp.unit_sphere(rng.uniform(45.0, 60.0, n), rng.uniform(-5.0, 20.0, n))
    return np.column_stack([places, rng.uniform(0.0, hours, n)])


PRODUCT = cagp.SpaceTime(cagp.Matern32(0.05, 2.0), cagp.Matern12(20.0))
METRIC = cagp.SpaceTime(cagp.Matern52(0.05, 2.0), lengthscale_time=20.0)
CYCLE = cagp.SpaceTime(cagp.Matern32(0.3, 3.0), cagp.Periodic(cagp.Matern52(8.0), period=24.0))
STRETCHED = cagp.SpaceTime(cagp.Matern32(0.05, 2.0), cagp.Gneiting(20.0, interaction=0.7))


def test_values_are_those_of_the_formulae():
    X, Z = points(300), points(200, seed=1)
    by_place = cdist(X[:, :3], Z[:, :3]) / 0.05
    by_hour = np.abs(X[:, 3:] - Z[:, 3]) / 20.0
    expected = 2.0 * (1.0 + np.sqrt(3.0) * by_place) * np.exp(-np.sqrt(3.0) * by_place - by_hour)
    np.testing.assert_allclose(PRODUCT(X, Z), expected, rtol=0.0, atol=1e-14)
    together = np.sqrt(5.0) * np.hypot(by_place, by_hour)
    expected_of_metric = 2.0 * (1.0 + together + together**2 / 3.0) * np.exp(-together)
    np.testing.assert_allclose(METRIC(X, Z), expected_of_metric, rtol=0.0, atol=1e-14)
    np.testing.assert_allclose((PRODUCT + METRIC)(X, Z), expected + expected_of_metric, rtol=0.0, atol=1e-14)
    assert (PRODUCT + METRIC).variance == 4.0
    space, time = cagp.Matern(0.8, 0.05, 2.0), cagp.Matern(1.1, 20.0)
    tables = space(X[:, :3], Z[:, :3]) * time(X[:, 3:], Z[:, 3:])
    np.testing.assert_allclose(cagp.SpaceTime(space, time)(X, Z), tables, rtol=0.0, atol=1e-14)
    lag = np.abs(X[:, 3:] - Z[:, 3])
    around = np.sqrt(5.0) * np.abs(24.0 / np.pi * np.sin(np.pi * lag / 24.0)) / 8.0
    cycle = np.sqrt(3.0) * by_place * 0.05 / 0.3
    of_cycle = 3.0 * (1.0 + cycle) * np.exp(-cycle) * (1.0 + around + around**2 / 3.0) * np.exp(-around)
    np.testing.assert_allclose(CYCLE(X, Z), of_cycle, rtol=0.0, atol=1e-13)
    np.testing.assert_allclose(CYCLE.time(X[:, 3:], Z[:, 3:]) * CYCLE.space(X[:, :3], Z[:, :3]), of_cycle)
    w = 1.0 + lag / 20.0
    near = np.sqrt(3.0) * by_place / w**0.35
    stretched = 2.0 * w**-1.5 * (1.0 + near) * np.exp(-near)
    np.testing.assert_allclose(STRETCHED(X, Z), stretched, rtol=0.0, atol=1e-14)
    for kernel in (PRODUCT, CYCLE, STRETCHED):
        assert pickle.loads(pickle.dumps(kernel)) == kernel
        np.testing.assert_array_equal(np.diag(kernel(X, X)), kernel.variance)
        assert np.linalg.eigvalsh(kernel(X, X))[0] > -1e-12
    assert (3.0 * PRODUCT).variance == 6.0


@pytest.mark.parametrize(
    "family",
    [SpaceTimeOf(cagp.Matern32, cagp.Matern12), SpaceTimeOf(cagp.Matern52), CYCLE.family, STRETCHED.family],
    ids=lambda family: family.__name__,
)
def test_slopes_are_those_of_differences(family):
    model, numbers, X = Model.of((family, family)), np.array([0.05, 20.0, 0.2, 90.0, 0.4, 0.1]), points(60)
    for number, slope in enumerate(model.derivatives(numbers)):
        step = np.where(np.arange(numbers.size) == number, 1e-5, 0.0)
        ends = [model.unit(list(numbers * np.exp(sign * step)))(X, X) for sign in (1.0, -1.0)]
        out = np.empty((60, 60))
        evaluate(*slope, point_columns(X), point_columns(X), out)
        np.testing.assert_allclose(out, (ends[0] - ends[1]) / 2e-5, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize(
    "kernel",
    [PRODUCT, METRIC, PRODUCT + METRIC, pytest.param(CYCLE + STRETCHED, marks=pytest.mark.exhaustive)],
)
def test_solvers_agree_with_the_dense_posterior(kernel):
    """Factor, sweeps to convergence and all neighbours; far tiles in time are left out without a trace."""
    X, targets = points(200, hours=5000.0), points(30, seed=1, hours=5000.0)
    y = np.random.default_rng(2).normal(size=200)
    prior = cagp.Prior(kernel, 0.1)
    G = kernel(X, X) + 0.1 * np.eye(200)
    K = kernel(targets, X)
    mean = K @ np.linalg.solve(G, y)
    variance = kernel.variance - np.einsum("ij,ji->i", K, np.linalg.solve(G, K.T))
    sweeps = 40 if kernel.parts[0].time is not CYCLE.time else 1000  # what lasts links all blocks
    solvers = (cagp.Cholesky(), cagp.BlockGaussSeidel(sweeps, block_size=50), cagp.Neighbours(200))
    for solver in solvers:
        found = cagp.condition(prior, X, y, targets, solver=solver, executor=None)
        np.testing.assert_allclose(found.mean, mean, rtol=0.0, atol=1e-9)
        np.testing.assert_allclose(found.variance, variance, rtol=0.0, atol=1e-9)


LASTING = cagp.SpaceTime(cagp.Matern32(0.002, 0.1), cagp.Matern12(500.0))
"""What is peculiar to a place: little of the variance, and the shortest lengthscale in space."""


@pytest.mark.parametrize("kernel", [METRIC, PRODUCT + LASTING])
def test_neighbours_are_near_in_space_and_time(kernel):
    """Their error bars are within 3 % of the exact ones; those of the nearest in space alone are not."""
    X, targets = points(2000), points(100, seed=1)
    y = np.random.default_rng(2).normal(size=2000)
    prior = cagp.Prior(kernel, 0.1)
    exact = cagp.condition(prior, X, y, targets, solver=cagp.Cholesky()).variance
    near = cagp.condition(prior, X, y, targets, solver=cagp.Neighbours(64)).variance
    assert np.all(near >= exact * (1.0 - 1e-9))
    assert np.median(np.sqrt(near / exact)) < 1.03
    chosen = cdist(targets / [0.05, 0.05, 0.05, 1e4], X / [0.05, 0.05, 0.05, 1e4]).argsort(axis=1)[:, :64]
    alone = []
    for target, places in zip(targets, chosen, strict=True):
        k = kernel(target[None], X[places])[0]
        G = kernel(X[places], X[places]) + 0.1 * np.eye(64)
        alone.append(kernel.variance - k @ np.linalg.solve(G, k))
    assert np.median(np.sqrt(np.array(alone) / exact)) > 1.03


def test_causal_neighbours_come_before_their_target():
    """All give the dense posterior of the past, few have the distribution of their weights (T37)."""
    X, rng = points(120), np.random.default_rng(3)
    X[:, 3] = np.round(X[:, 3] / 24.0) * 24.0  # some at the time of a target, which count
    targets = points(40, seed=1, hours=260.0) - [0.0, 0.0, 0.0, 20.0]
    targets[:20, 3] = np.round(targets[:20, 3] / 24.0) * 24.0
    y, prior = rng.normal(size=(120, 2)), cagp.Prior(PRODUCT, 0.1)
    found = cagp.condition(prior, X, y, targets, solver=cagp.Neighbours(120, causal=True), covariance="full")
    assert found.status is cagp.Status.NEIGHBOURS
    seen = X[:, 3] <= targets[:, 3:]
    assert (~seen.any(axis=1)).any()
    for target, past, mean, variance in zip(targets, seen, found.mean, found.variance, strict=True):
        k, G = PRODUCT(target[None], X[past])[0], PRODUCT(X[past], X[past]) + 0.1 * np.eye(past.sum())
        np.testing.assert_allclose(mean, k @ np.linalg.solve(G, y[past]), rtol=0.0, atol=1e-12)
        np.testing.assert_allclose(variance, 2.0 - k @ np.linalg.solve(G, k), rtol=0.0, atol=1e-12)
    few = cagp.Neighbours(6, causal=True)
    W = cagp.posterior_mean(prior, X, np.eye(120), targets, solver=few)
    assert (W[~seen] == 0.0).all()
    V, G = PRODUCT(targets, X), PRODUCT(X, X) + 0.1 * np.eye(120)
    distribution = PRODUCT(targets, targets) - V @ W.T - W @ V.T + W @ G @ W.T
    joint = cagp.condition(prior, X, y, targets, solver=few, covariance="full")
    np.testing.assert_allclose(joint.covariance, distribution, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(joint.mean, W @ y, rtol=0.0, atol=1e-12)
    with pytest.raises(ArgumentError) as refusal:
        cagp.condition(cagp.Prior(PRODUCT.space, 0.1), X[:, :3], y, targets[:, :3], solver=few)
    assert refusal.value.key == "causal-without-time"
    with pytest.raises(ArgumentError) as refusal:
        cagp.condition(cagp.Prior(PRODUCT, 0.1, cagp.mean_family("constant")), X, y, targets, solver=few)
    assert refusal.value.key == "causal-mean"


@pytest.mark.parametrize(
    ("seed", "n"),
    [(0, 900), *(pytest.param(seed, 1500, marks=pytest.mark.exhaustive) for seed in (0, 1, 2))],
)
def test_fits_find_both_lengthscales(seed, n):
    """Within four standard errors by Vecchia's likelihood."""
    X = points(n)
    G = PRODUCT(X, X) + 0.05 * np.eye(len(X))
    y = np.linalg.cholesky(G) @ np.random.default_rng(seed).normal(size=len(X))
    result = cagp.fit(SpaceTimeOf(cagp.Matern32, cagp.Matern12), X, y, mean=0.0, method="vecchia")
    kernel, errors = result.prior.kernel, result.standard_errors
    found = np.array([*kernel.lengthscale, kernel.variance, result.prior.noise_variance])
    spread = np.array([*errors.lengthscale, errors.variance, errors.noise_variance]) / found
    assert result.status.ok
    assert np.all(np.abs(np.log(found) - np.log([0.05, 20.0, 2.0, 0.05])) < 4.0 * spread)
    assert np.all(spread[:3] < 0.2)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kernel", "n", "hours"),
    [
        pytest.param(STRETCHED, 400, 40.0, marks=pytest.mark.exhaustive),
        (CYCLE + PRODUCT, 250, 120.0),
    ],
)
def test_cycles_and_gneitings_class_are_fitted(kernel, n, hours):
    """Every number within four standard errors of the truth, which are finite."""
    X = points(n, hours=hours)
    factor = np.linalg.cholesky(kernel(X, X) + 0.2 * np.eye(n))
    y = factor @ np.random.default_rng(1).normal(size=n)
    result = cagp.fit(tuple(part.family for part in kernel.parts), X, y, mean=0.0)
    found, errors = result.prior.kernel, result.standard_errors
    truth = [[*each(part.lengthscale), part.variance] for part in kernel.parts]
    ours = [[*each(part.lengthscale), part.variance] for part in found.parts]
    lengthscales = np.reshape(each(errors.lengthscale), (-1, 2))
    spread = np.column_stack([lengthscales, each(errors.variance)]) / ours
    assert result.status.ok
    assert np.isfinite(errors.noise_variance)
    assert np.all(np.abs(np.log(ours) - np.log(truth)) < 4.0 * spread)


def gram_of_a_grid():
    return cagp.RingGram(cagp.LatLonGrid([-30.0, 30.0], 4), PRODUCT, noise_variance=0.1)


LATER = np.array([[0.0, 0.0, 0.0, hour] for hour in range(5)])


def test_what_is_no_kernel_of_space_and_time_is_refused():
    space, time = cagp.Matern32(0.3, 2.0), cagp.Matern12(7.5)
    X = points(5)
    for make, said in {
        lambda: cagp.SpaceTime(space): "expected one of them",
        lambda: cagp.SpaceTime(space, time, lengthscale_time=7.5): "expected one of them",
        lambda: cagp.SpaceTime(space, cagp.Matern12(7.5, 3.0)): "the variance of the field is that of",
        lambda: cagp.SpaceTime(space + space, time): "Sums are sums of SpaceTime kernels",
        lambda: cagp.SpaceTime(space, lengthscale_time=-1.0): "lengthscale_time is -1",
        lambda: cagp.Periodic(cagp.Matern52(8.0, 2.0), 24.0): "variance 1",
        lambda: cagp.Periodic(cagp.Matern52(8.0), -24.0): "period is -24",
        lambda: cagp.Gneiting(8.0, interaction=1.5): "a number from 0 to 1",
        lambda: cagp.condition_over_times(
            cagp.Prior(STRETCHED, 0.1), X[:, :3], [0.0], X[:, :1].T, X[:, :3]
        ): "expected a product",
        lambda: PRODUCT(X[:, :3], X[:, :3]): "X has 3 columns",
        lambda: PRODUCT(2.0 * X, X): "length 2",
        lambda: cagp.fit(SpaceTimeOf(cagp.Matern32), X[:, :3], X[:, 0]): "X has 3 columns",
        lambda: cagp.fit(SpaceTimeOf(cagp.Matern32), X * [1, 1, 1, 0], X[:, 0]): "the same time",
        lambda: gram_of_a_grid(): "a grid has no time",
        lambda: cagp.fit(SpaceTimeOf(cagp.Matern32), X, X[:, 0], method="elbo"): 'expected method "auto"',
        lambda: cagp.fit(SpaceTimeOf(cagp.Matern32), X, X[:, 0], anisotropic=True): "no lengthscales by",
        lambda: cagp.fit(SpaceTimeOf(cagp.Matern32), X[[0] * 5] + LATER, X[:, 0]): "at the same place",
        lambda: cagp.fit((SpaceTimeOf(cagp.Matern32), cagp.Matern12), X, X[:, 0]): "all kernels of space",
    }.items():
        with pytest.raises(ArgumentError, match=said):
            make()
