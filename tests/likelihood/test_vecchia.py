"""Vecchia's likelihood: the exact one where nothing is left out (T43), else near it, on any executor."""

from graphlib import TopologicalSorter

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError, NumericalError
from cagp_dist.gram.preceding import nearest_preceding
from cagp_dist.likelihood.exact.dense_likelihood import DenseLikelihood
from cagp_dist.likelihood.numbering import Model
from cagp_dist.likelihood.observed import spread_cells
from cagp_dist.likelihood.vecchia import conditionals
from cagp_dist.likelihood.vecchia.conditionals import conditionals_of, group_conditionals
from cagp_dist.likelihood.vecchia.vecchia_likelihood import VecchiaLikelihood
from cagp_dist.runtime import SerialExecutor

from ..joined import one_after_another
from ..oracle import assert_close, kernel_matrix
from .textbook import slope

pytestmark = pytest.mark.usefixtures("one_blas_thread")

LIMIT = 2**30
WAYS = {"executor": SerialExecutor(), "memory_limit_bytes": LIMIT}
SUM = (cagp.Matern32, cagp.Matern52)
CASES = {
    "one kernel": (Model((cagp.Matern32,)), (0.4, 0.2)),
    "a sum": (Model(SUM), (0.4, 1.5, 0.7, 0.2)),
    "by coordinate": (Model((cagp.Matern12,), 2), (0.4, 0.9, 0.2)),
}


def problem(n, fields=2, seed=0):
    rng = np.random.default_rng([seed, n])
    return rng.uniform(size=(n, 2)), rng.normal(size=(n, fields)), rng.uniform(-0.05, 0.4, n)


def numbers(evaluation):
    heads = [evaluation.log_determinant, evaluation.quadratic, evaluation.own_trace, evaluation.own_slope]
    return np.array([*heads, *evaluation.traces, *evaluation.slopes])


@pytest.fixture
def small(monkeypatch):
    """Groups of 5 with 12 neighbours."""
    monkeypatch.setattr(conditionals, "GROUP", 5)
    monkeypatch.setattr(conditionals, "NEIGHBOURS", 12)


@one_after_another
@pytest.mark.parametrize(("model", "at"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize("deviate", [False, True])
def test_with_all_points_before_it_is_the_likelihood(model, at, restricted, deviate):
    """T43: value and gradient, beside an estimated mean and with the noise of each point."""
    X, y, own = problem(83)
    more = {
        "basis": np.column_stack([np.ones(83), X]) if restricted else None,
        "deviations": own if deviate else None,
    }
    at = (*at, 0.8) if deviate else at
    found = VecchiaLikelihood(model, X, y, **WAYS, **more).evaluate(*at)
    dense = DenseLikelihood(model, X, y, memory_limit_bytes=LIMIT, **more).evaluate(*at)
    assert_close(numbers(found), numbers(dense), relative=1e-11)
    assert (found.points, found.fields, found.coefficients) == (83, 2, 3 if restricted else 0)


def information(X, lengthscale, variance, noise, own=None):
    """``tr(G^-1 dG G^-1 dG') / 2`` by log (lengthscale, variance, ratio), dK by differences."""
    if not len(X):
        return np.zeros((3, 3))
    h = 1e-5
    up, down = (kernel_matrix(cagp.Matern32(lengthscale * np.exp(s), variance), X, X) for s in (h, -h))
    R = kernel_matrix(cagp.Matern32(lengthscale, variance), X, X) + noise * np.eye(len(X))
    G = R + np.diag(np.zeros(len(X)) if own is None else own)
    parts = [np.linalg.solve(G, d) for d in ((up - down) / (2.0 * h), R, noise * np.eye(len(X)))]
    return np.array([[0.5 * np.einsum("ij,ji->", a, b) for a in parts] for b in parts])


@pytest.mark.parametrize("deviate", [False, True])
def test_expected_information_is_the_dense_one(deviate):
    X, y, own = problem(83)
    at, more = ((0.4, 0.2, 0.8), {"deviations": own}) if deviate else ((0.4, 0.2), {})
    found = VecchiaLikelihood(cagp.Matern32, X, y, curved=True, **WAYS, **more).evaluate(*at)
    expected = 2.0 * information(X, 0.4, 1.25, 0.25, own if deviate else None)  # of two fields
    np.testing.assert_allclose(found.expected_information(), expected, rtol=1e-7)


@pytest.mark.parametrize("sampled", [False, True])
def test_it_is_a_sum_of_conditionals(sampled, small, monkeypatch):
    """Value, gradient and information; of a sample also what its covariance has beyond that."""
    if sampled:
        monkeypatch.setattr(conditionals, "MOST_CONDITIONALS", 40)
    X, y, _ = problem(103)
    likelihood = VecchiaLikelihood(cagp.Matern32, X, y, curved=True, **WAYS)
    groups = group_conditionals(X)
    assert likelihood.conditionals == conditionals_of(103) == (38 if sampled else 103)
    assert sum(group.weight * group.size for group in groups) == pytest.approx(103)

    def log_density(x):
        lengthscale, variance, ratio = np.exp(x)
        G = kernel_matrix(cagp.Matern32(lengthscale, variance), X, X) + ratio * variance * np.eye(103)
        total = 0.0
        for group in groups:
            for members, sign in ((group.members, 1.0), (group.members[: group.before], -1.0)):
                if len(members):
                    of = multivariate_normal(np.zeros(len(members)), G[np.ix_(members, members)])
                    total += sign * group.weight * of.logpdf(y[members].T).sum()
        return total

    found, x = likelihood.evaluate(0.4, 0.2), np.log([0.4, 1.3, 0.2])
    assert_close(found.log_likelihood(1.3), log_density(x), relative=1e-11)
    assert_close(found.gradient(1.3), slope(log_density, x), relative=1e-7)
    each = np.array(
        [
            information(X[group.members], 0.4, 1.3, 0.26)
            - information(X[group.members[: group.before]], 0.4, 1.3, 0.26)
            for group in groups
        ]
    )
    weights = np.array([group.weight for group in groups])
    np.testing.assert_allclose(
        found.expected_information(), 2.0 * np.tensordot(weights, each, axes=1), rtol=1e-6
    )
    if not sampled:
        assert found.excess is None
        return
    np.testing.assert_allclose(
        found.excess, 2.0 * np.tensordot(weights**2 - weights, each, axes=1), rtol=1e-6, atol=1e-6
    )
    assert weights.max() > 3.0


def test_conditionals_make_a_density(small):
    """Each point is in one cell, and no cell waits for another that waits for it."""
    X, _, _ = problem(203)
    groups = group_conditionals(X)
    cell_of = np.full(203, -1)
    for cell, group in enumerate(groups):
        assert (cell_of[group.members[group.before :]] == -1).all()
        cell_of[group.members[group.before :]] = cell
    assert (cell_of >= 0).all()
    before = {cell: set(cell_of[group.members[: group.before]]) for cell, group in enumerate(groups)}
    assert len(list(TopologicalSorter(before).static_order())) == 41
    assert sum(group.before == 12 for group in groups) >= 37  # all but the first ones have all of theirs


@pytest.mark.parametrize("count", [23, 60, 180])
def test_most_neighbours_are_the_nearest_and_some_are_far(count):
    close, far, taken = np.arange(180), 8 * np.arange(count), np.zeros(1440, dtype=bool)
    kept = conditionals._thinned(close, far, taken)
    assert not taken.any()
    assert (len(kept), kept[-1]) == (180, max(179, far[-1]))
    assert (np.diff(kept) > 0).all()
    np.testing.assert_array_equal(kept[:150], np.arange(150))
    assert count < 60 or (kept[150:] % 8 == 0).all()


def test_nearest_preceding_is_what_distances_say():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    centres, ranks = rng.normal(size=(40, 3)), rng.integers(0, 301, 40)
    found = nearest_preceding(X, centres, ranks, 7)
    for centre, rank, near in zip(centres, ranks, found, strict=True):
        by_distance = np.argsort(np.linalg.norm(X[:rank] - centre, axis=1))[:7]
        np.testing.assert_array_equal(near[: len(by_distance)], by_distance)
        assert (near[len(by_distance) :] == -1).all()


def drawn(n, lengthscale, noise_variance, seed):
    rng = np.random.default_rng([seed, n])
    X = rng.normal(size=(n, 3))
    X /= np.linalg.norm(X, axis=1)[:, None]
    G = kernel_matrix(cagp.Matern32(lengthscale, 4.0), X, X) + noise_variance * np.eye(n)
    return X, np.linalg.cholesky(G) @ rng.standard_normal(n)


def logarithms(result):
    return np.log(
        [result.prior.kernel.lengthscale, result.prior.kernel.variance, result.prior.noise_variance]
    )


def off(result, X, y, **more):
    """Newton steps to the maximum of the exact likelihood, in standard errors."""
    parts, noise = result.prior.kernel.parts, result.prior.noise_variance
    variance = parts[0].variance
    at = [*(part.lengthscale for part in parts), *(part.variance / variance for part in parts[1:])]
    scale = (1.0 / variance,) if "deviations" in more else ()
    model = tuple(type(part) for part in parts)
    dense = DenseLikelihood(model, X, y, memory_limit_bytes=LIMIT, **more)
    found = dense.evaluate(*at, noise / variance, *scale)
    step = result.log_covariance @ found.numbering.natural.T @ found.gradient(variance)
    return np.abs(step) / np.sqrt(np.diag(result.log_covariance))


ONE = {"starts": 1, "executor": SerialExecutor(), "method": "vecchia"}


@pytest.mark.parametrize(("lengthscale", "noise_variance"), [(0.1, 0.1), (0.4, 0.2)])
def test_fits_end_within_a_fifth_of_a_standard_error_of_the_exact_ones(
    lengthscale, noise_variance, monkeypatch
):
    """800 points on 60 neighbours."""
    monkeypatch.setattr(conditionals, "NEIGHBOURS", 60)
    X, y = drawn(800, lengthscale, noise_variance, 0)
    found = cagp.fit(cagp.Matern32, X, y, mean=0.0, **ONE)
    assert (found.method, found.status.ok, found.conditionals) == ("vecchia", True, 800)
    assert (off(found, X, y[:, None]) < 0.2).all()


def test_a_sum_is_fitted_and_ends_near_the_exact_one(monkeypatch):
    monkeypatch.setattr(conditionals, "NEIGHBOURS", 60)
    rng = np.random.default_rng(0)
    X, kernel = rng.uniform(size=(300, 2)), cagp.Matern32(0.05, 2.0) + cagp.Matern32(0.8, 6.0)
    y = np.linalg.cholesky(kernel_matrix(kernel, X, X) + 0.05 * np.eye(300)) @ rng.normal(size=(300, 6))
    found = cagp.fit((cagp.Matern32, cagp.Matern32), X, y, mean=0.0, **ONE)
    assert found.status.ok
    assert (off(found, X, y) < 0.2).all()


def test_more_than_the_most_are_fitted_by_a_sample_that_is_said(monkeypatch):
    """2,000 points by 600 conditionals: within 4 of its standard errors, which exceed those of all."""
    monkeypatch.setattr(conditionals, "NEIGHBOURS", 40)
    X, y = drawn(2000, 0.2, 0.3, 1)
    whole = cagp.fit(cagp.Matern32, X, y, mean=0.0, **ONE)
    monkeypatch.setattr(conditionals, "MOST_CONDITIONALS", 600)
    found = cagp.fit(cagp.Matern32, X, y, mean=0.0, **ONE)
    assert (found.points, found.conditionals, found.status.ok) == (2000, 600, True)
    error, smaller = (np.sqrt(np.diag(result.log_covariance)) for result in (found, whole))
    assert (np.abs(logarithms(found) - np.log([0.2, 4.0, 0.3])) < 4.0 * error).all()
    # a noise is known by the number of conditionals
    assert 1.2 * smaller[2] < error[2] < 2.2 * smaller[2]
    assert (error > smaller).all()


def test_the_noise_of_each_point_beside_an_estimated_mean(monkeypatch):
    """As the dense likelihood has it, from which it lacks little with 60 neighbours."""
    monkeypatch.setattr(conditionals, "NEIGHBOURS", 60)
    X, y = drawn(400, 0.3, 0.1, 2)
    own = np.where(np.arange(400) % 2, 0.0, 2.0)
    y = y + np.sqrt(own) * np.random.default_rng(4).normal(size=400) + 3.0 + X[:, 2]
    plane = cagp.BasisMean(lambda X: np.column_stack([np.ones(len(X)), X[:, 2]]), ("level", "slope"))
    found = cagp.fit(cagp.Matern32, X, y, mean=plane, noise_deviations=own, **ONE)
    assert found.status.ok
    assert (off(found, X, y[:, None], deviations=own, basis=plane.basis_at(X)) < 0.2).all()


def test_what_cannot_be_is_refused(small):
    X, y, _ = problem(60)
    with pytest.raises(ArgumentError) as refused:
        cagp.fit(cagp.Matern32, X, y, method="blocks")
    assert refused.value.key == "method-unknown"
    with pytest.raises(BudgetError) as refusal:
        VecchiaLikelihood(cagp.Matern32, X, y, executor=SerialExecutor(), memory_limit_bytes=10_000)
    assert refusal.value.key == "memory"
    with pytest.raises(NumericalError) as refusal:
        VecchiaLikelihood(cagp.SquaredExponential, X, y, **WAYS).evaluate(50.0, 0.0)
    assert refusal.value.key == "not-positive-definite"


@pytest.mark.parametrize(("n", "most"), [(1000, 320), (1003, 500), (97, 64)])
@pytest.mark.parametrize("decimals", [15, 1], ids=["no ties", "ties"])
def test_spread_cells_are_whole_cells_of_neighbours(n, most, decimals):
    X = problem(n)[0].round(decimals)
    chosen = spread_cells(X, most, cell_size=32)
    assert len(np.unique(chosen)) == len(chosen) <= max(most, 64)
    order = cagp.space_filling_order(X, block_size=32)
    cell_of = np.empty(n, dtype=int)
    cell_of[order] = np.arange(n) // 32
    cells, counts = np.unique(cell_of[chosen], return_counts=True)
    np.testing.assert_array_equal(counts, np.bincount(cell_of)[cells])
    assert cells[0] == 0
    assert cells[-1] == cell_of.max()
