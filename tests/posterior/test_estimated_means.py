"""Means whose coefficients are estimated inside the posterior (math 1.7, T37).

For every solver that is exactly calibrated the identity is read off its means in
`tests.conformance.test_identities`; here are the exact limit, more points than one block, and all that stands
around it.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, chi2

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.posterior import coefficients
from cagp_dist.posterior.coefficients import SWEEPS

from ..joined import one_after_another
from ..oracle import assert_close, kernel_matrix, universal_kriging
from ..problems import unit_noise

pytestmark = pytest.mark.usefixtures("one_blas_thread")

KERNEL = cagp.Matern32(0.8, variance=2.0)
QUADRATIC = cagp.mean_family("quadratic-latitude")
COEFFICIENTS = np.array([280.0, 3.0, -50.0])
GRID = cagp.LatLonGrid(np.linspace(-75.0, 60.0, 6), 8)


def on_sphere(n: int, seed: int) -> np.ndarray:
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return X / np.linalg.norm(X, axis=1)[:, None]


def observations(X, noise, seed, *, fields=1, coefficients=COEFFICIENTS):
    """Fields of the prior with a quadratic mean (n, T), and their values with noise."""
    rng = np.random.default_rng(seed)
    G = kernel_matrix(KERNEL, X, X) + np.diag(np.broadcast_to(noise, len(X)))
    return (QUADRATIC.basis_at(X) @ coefficients)[:, None] + np.linalg.cholesky(G) @ rng.normal(
        size=(len(X), fields)
    )


X, X_TEST = on_sphere(60, 0), on_sphere(9, 1)
NOISE = np.random.default_rng(2).uniform(0.02, 0.4, size=60)
PRIOR = cagp.Prior(KERNEL, NOISE, mean=QUADRATIC)
Y = observations(X, NOISE, 3, fields=4)
UNFINISHED = cagp.BlockGaussSeidel(2, block_size=15)


def kriged(y, *, points=X, targets=X_TEST, noise=NOISE, basis=QUADRATIC):
    """The textbook formulas."""
    return universal_kriging(
        kernel_matrix(KERNEL, points, points) + np.diag(np.broadcast_to(noise, len(points))),
        kernel_matrix(KERNEL, targets, points),
        kernel_matrix(KERNEL, targets, targets),
        basis.basis_at(points),
        basis.basis_at(targets),
        y,
    )


def test_the_exact_posterior_is_universal_kriging():
    found = cagp.condition(PRIOR, X, Y, X_TEST, solver=cagp.Cholesky(), covariance="full")
    expected = kriged(Y)
    assert_close(found.mean, expected.mean)
    assert_close(found.covariance, expected.covariance)
    assert_close(found.variance, expected.covariance.diagonal())
    assert_close(found.coefficients.values, expected.coefficients)
    assert_close(found.coefficients.covariance, expected.coefficient_covariance)
    assert_close(found.coefficients.std, np.sqrt(expected.coefficient_covariance.diagonal()))
    assert found.coefficients.names == ("constant", "latitude", "latitude^2")
    assert found.status is cagp.Status.EXACT
    assert not found.computational_variance.any()


@pytest.mark.parametrize("missing", [0, 5])
def test_grids_by_rings_are_universal_kriging(missing):
    seen = np.ones(GRID.shape, dtype=bool)
    seen.flat[3 : 3 + missing] = False
    points = GRID.points[seen.ravel()]
    field = np.full(GRID.shape, np.nan)
    field[seen] = observations(points, 0.1, 4)[:, 0]
    prior = cagp.Prior(KERNEL, 0.1, mean=QUADRATIC)
    found = cagp.condition(prior, GRID, field, GRID, solver=cagp.Rings())
    expected = kriged(field[seen], points=points, targets=GRID.points, noise=0.1)
    assert_close(found.mean.ravel(), expected.mean)
    assert_close(found.variance.ravel(), expected.covariance.diagonal())
    sweeps = cagp.condition(prior, GRID, field, GRID, solver=cagp.BlockGaussSeidel(60, block_size=16))
    assert_close(sweeps.mean.ravel(), expected.mean, relative=1e-6)
    assert_close(sweeps.variance.ravel(), expected.covariance.diagonal(), relative=1e-6)


def test_fields_with_gaps_have_coefficients_of_their_own():
    gaps = Y.copy()
    gaps[:20, 1] = np.nan
    found = cagp.condition(PRIOR, X, gaps, X_TEST, solver=cagp.Cholesky())
    for field in range(4):
        seen = ~np.isnan(gaps[:, field])
        expected = kriged(gaps[seen, field], points=X[seen], noise=NOISE[seen])
        assert_close(found.mean[:, field], expected.mean)
        assert_close(found.variance[:, field], expected.covariance.diagonal())
        assert_close(found.coefficients.values[:, field], expected.coefficients)
        assert_close(found.coefficients.covariance[field], expected.coefficient_covariance)
        assert_close(found.coefficients.std[:, field], np.sqrt(expected.coefficient_covariance.diagonal()))


def test_regions_and_differences_have_the_mean_of_their_points():
    contrast = cagp.LinearFunctionals.of_points(X_TEST)
    assert_close(
        cagp.condition(PRIOR, X, Y, contrast, solver=UNFINISHED).variance,
        cagp.condition(PRIOR, X, Y, X_TEST, solver=UNFINISHED).variance,
    )


@pytest.mark.parametrize(
    "solver",
    [UNFINISHED, cagp.ConjugateGradient(9), cagp.Hybrid("block-gauss-seidel 1, conjugate-gradient 4", 15)],
    ids=lambda solver: type(solver).__name__,
)
def test_a_mean_that_is_added_comes_back(solver):
    """Also where directions follow the data: what they follow has the mean taken off (math 1.7)."""
    shift = np.array([5.0, -30.0, 20.0])
    before = cagp.condition(PRIOR, X, Y[:, 0], X_TEST, solver=solver)
    moved = Y[:, 0] + QUADRATIC.basis_at(X) @ shift
    after = cagp.condition(PRIOR, X, moved, X_TEST, solver=solver)
    assert_close(after.mean, before.mean + QUADRATIC.basis_at(X_TEST) @ shift)
    assert_close(after.variance, before.variance)
    assert_close(after.coefficients.values, before.coefficients.values + shift)
    assert after.stats.iterations == before.stats.iterations


def test_conjugate_gradients_end_at_universal_kriging():
    found = cagp.condition(PRIOR, X, Y[:, 0], X_TEST, solver=cagp.ConjugateGradient(60))
    expected = kriged(Y[:, 0])
    assert_close(found.mean, expected.mean, relative=1e-7)
    assert found.status.ok


def test_every_step_of_the_trace_is_a_posterior():
    found = cagp.condition(PRIOR, X, Y, X_TEST, solver=cagp.GaussSeidel(3))
    for step in found.trace:
        alone = cagp.condition(PRIOR, X, Y, X_TEST, solver=cagp.GaussSeidel(step.iteration))
        assert_close(step.mean, alone.mean)
        assert_close(step.variance, alone.variance)


def test_what_is_not_computed_is_what_exceeds_universal_kriging():
    found = cagp.condition(PRIOR, X, Y, X_TEST, solver=UNFINISHED)
    expected = found.variance - kriged(Y).covariance.diagonal()
    assert expected.min() > 1e-4
    assert_close(found.computational_variance, expected, relative=1e-7)
    solver = cagp.BlockGaussSeidel(100, block_size=15, computational_share=0.05)
    enough = cagp.condition(PRIOR, X, Y, X_TEST, solver=solver)
    share = 1.0 - kriged(Y).covariance.diagonal() / enough.variance
    assert enough.status is cagp.Status.SHARE_REACHED
    assert 1e-3 < share.max() <= 0.05


@pytest.fixture(scope="module")
def blocks():
    """More points than a block of the sweeps that find the weights: 200 beyond."""
    points, noise = on_sphere(SWEEPS.block_size + 200, 5), 0.05
    prior = cagp.Prior(KERNEL, noise, mean=QUADRATIC)
    G = kernel_matrix(KERNEL, points, points) + noise * np.eye(len(points))
    return prior, points, G


def test_beyond_one_block_the_variance_is_still_that_of_the_error_t37(blocks):
    prior, points, G = blocks
    targets = X_TEST[:4]
    solver = cagp.BlockGaussSeidel(2, block_size=300)
    found = cagp.condition(prior, points, np.eye(len(points)), targets, solver=solver, covariance="full")
    L, V = found.mean, kernel_matrix(KERNEL, targets, points)
    assert np.abs(L @ QUADRATIC.basis_at(points) - QUADRATIC.basis_at(targets)).max() < 1e-10
    error = kernel_matrix(KERNEL, targets, targets) - L @ V.T - V @ L.T + L @ G @ L.T
    assert np.abs(found.covariance - error).max() < 1e-10
    exact = kriged(points[:, 0], points=points, targets=targets, noise=0.05)
    # neither worse than least squares without weights, nor much worse than with the exact ones
    H = QUADRATIC.basis_at(points)
    plain = np.linalg.solve(H.T @ H, H.T)
    stated = found.coefficients.covariance
    assert np.linalg.eigvalsh(plain @ G @ plain.T - stated).min() > 0.0
    ratio = stated.diagonal() / exact.coefficient_covariance.diagonal()
    assert 1.0 <= ratio.min() <= ratio.max() < 1.1
    bounds = found.computational_variance_bounds
    excess = found.variance - exact.covariance.diagonal()
    assert (bounds[0] <= excess).all()
    assert (excess <= bounds[1]).all()
    assert found.computational_variance is None


def test_an_exact_solve_beside_weights_that_are_not_is_not_exact(blocks):
    """What the coefficients lack of generalised least squares is unfinished computation."""
    prior, points, _ = blocks
    solver = cagp.BlockGaussSeidel(1, block_size=2 * len(points))
    found = cagp.condition(prior, points, points[:, 0], X_TEST[:4], solver=solver)
    exact = kriged(points[:, 0], points=points, targets=X_TEST[:4], noise=0.05)
    excess = found.variance - exact.covariance.diagonal()
    assert excess.max() > 1e-9
    assert found.status is cagp.Status.COMPLETED
    bounds = found.computational_variance_bounds
    assert (bounds[0] <= excess).all()
    assert (excess <= bounds[1]).all()
    known = cagp.condition(replace(prior, mean=1.0), points, points[:, 0], X_TEST[:4], solver=solver)
    assert known.status is cagp.Status.EXACT


@pytest.mark.parametrize("latitude", [[-90.0, 0.0, 90.0], [10.0, 90.0], [-50.0, 0.0, 90.0]])
def test_poles_are_rings_where_the_weights_are_found_t37(latitude, monkeypatch):
    """A few observations may still be more than a block of whole rings: their weights are then not exact."""
    monkeypatch.setattr(coefficients, "SWEEPS", replace(SWEEPS, block_size=9))
    grid = cagp.LatLonGrid(latitude, 6)
    noise = 0.3 * 4.0 ** np.arange(len(latitude))[:, None] * np.ones(grid.shape)
    place, rows = np.arange(grid.size).reshape(grid.shape), np.abs(grid.latitude_degrees) == 90.0
    place[rows] = place[rows, :1]
    which, first = np.unique(place), np.unique(place, return_index=True)[1]
    fields = (place == which[:, None, None]).astype(float)
    points, targets = grid.points[first], X_TEST[:4]
    prior = cagp.Prior(KERNEL, noise, mean=cagp.mean_family("constant"))
    solver = cagp.BlockGaussSeidel(1, block_size=6)
    found = cagp.condition(prior, grid, fields, targets, solver=solver, covariance="full")
    G = kernel_matrix(KERNEL, points, points) + np.diag(noise.ravel()[first])
    L, V = found.mean, kernel_matrix(KERNEL, targets, points)
    assert_close(L.sum(axis=1), np.ones(4))
    expected = kernel_matrix(KERNEL, targets, targets) - L @ V.T - V @ L.T + L @ G @ L.T
    assert_close(found.covariance, expected)
    estimate = found.coefficients.values[0]
    assert_close(found.coefficients.covariance, [[estimate @ G @ estimate]])


def test_the_mean_alone_and_samples_take_the_same_coefficients():
    """Samples from unit vectors in place of random numbers have the covariance without chance (T7)."""
    stated = cagp.condition(PRIOR, X, Y[:, 0], X_TEST, solver=UNFINISHED, covariance="full")
    assert_close(cagp.posterior_mean(PRIOR, X, Y[:, 0], X_TEST, solver=UNFINISHED), stated.mean)
    prior, noise = len(X) + len(X_TEST), len(X)
    paths = cagp.sample_posterior(
        *(PRIOR, X, Y[:, 0], X_TEST),
        solver=UNFINISHED,
        samples=prior + noise,
        generator=unit_noise(prior, noise),
    )
    errors = paths - stated.mean
    assert_close(errors.T @ errors, stated.covariance)


def test_far_from_the_data_it_is_the_estimate_and_its_error():
    line = cagp.BasisMean(lambda X: np.column_stack([np.ones(len(X)), X]), ("constant", "slope"))
    prior = cagp.Prior(cagp.Matern52(0.2, 4.0), 0.01, mean=line)
    X = np.linspace(0.0, 1.0, 30).reshape(-1, 1)
    found = cagp.condition(prior, X, 1.0 + 2.0 * X[:, 0], [[1000.0]], solver=cagp.GaussSeidel(3))
    assert_close(found.mean, [2001.0])
    there = np.array([1.0, 1000.0])
    assert_close(found.variance, [4.0 + there @ found.coefficients.covariance @ there])
    assert found.variance[0] > 1e6  # no sign of divergence
    assert found.status.ok


def test_a_basis_is_a_value():
    same = cagp.Prior(KERNEL, 0.1, mean=cagp.mean_family("quadratic-latitude"))
    assert same == cagp.Prior(KERNEL, 0.1, mean=QUADRATIC)
    assert hash(same) == hash(cagp.Prior(KERNEL, 0.1, mean=QUADRATIC))
    assert same != cagp.Prior(KERNEL, 0.1, mean=cagp.mean_family("constant"))
    names = cagp.mean_family("harmonic-latitude").coefficient_names
    assert names == ("constant", "P1(sin latitude)", *(f"P{i}(sin latitude)" for i in (2, 3, 4)))
    fitted = QUADRATIC.fit(np.linspace(-80, 80, 9), np.zeros(9), np.arange(9.0) ** 2)
    assert not cagp.Prior(KERNEL, 0.1, mean=fitted).estimates_mean


@one_after_another
@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"X": X[:2], "y": Y[:2, 0]}, "few-observations"),
        (
            {"X": cagp.unit_sphere([10.0, 10, 10, -10], [0.0, 50, 90, 0]), "y": np.zeros(4)},
            "coefficient-undetermined",
        ),
        ({"X": np.zeros((4, 2)), "y": np.zeros(4), "X_test": [[0.0, 1.0]]}, "mean-of-latitudes"),
        (
            {"mean": cagp.BasisMean(lambda X: X[:, :2], ("east",))},
            "shapes",
        ),
        (
            {"mean": cagp.BasisMean(lambda X: np.where(X[:, :1] > 0.5, np.nan, 1.0), ("elevation",))},
            "mean-values",
        ),
    ],
)
def test_a_mean_that_cannot_be_estimated_is_refused(changes, key):
    given = {"X": X, "y": Y[:, 0], "X_test": X_TEST, "mean": QUADRATIC, **changes}
    prior = cagp.Prior(KERNEL, 0.1, mean=given["mean"])
    with pytest.raises(ArgumentError) as refusal:
        cagp.condition(prior, given["X"], given["y"], given["X_test"], solver=UNFINISHED)
    assert refusal.value.key == key


def test_what_needs_a_known_mean_says_so():
    with pytest.raises(ArgumentError) as refusal:
        PRIOR.mean_at(X)
    assert refusal.value.key == "mean-estimated"
    with pytest.raises(ArgumentError) as refusal:
        cagp.BasisMean(lambda X: X, "east")
    assert refusal.value.key == "coefficient-names"
    with pytest.raises(ArgumentError) as refusal:
        cagp.BasisMean(3, ("east",))
    assert refusal.value.key == "mean-type"
    with pytest.raises(ArgumentError) as refusal:
        cagp.Prior(KERNEL, 0.1, mean="flat")
    assert refusal.value.key == "mean-type"


def test_the_plan_counts_what_finds_the_weights(blocks):
    prior, points, _ = blocks
    plans, known = [], replace(prior, mean=0.0)
    for each in (known, prior):
        cagp.condition(
            *(each, points, points[:, 0], X_TEST), solver=cagp.GaussSeidel(1), on_plan=plans.append
        )
    assert plans[1].fields == plans[0].fields == 1
    assert plans[1].gram_entries - plans[0].gram_entries > 3 * len(points) ** 2
    assert plans[1].flops > plans[0].flops
    with pytest.raises(BudgetError) as refusal:
        cagp.condition(
            *(prior, points, points[:, 0], X_TEST[:1]),
            solver=cagp.SubsetOfData(5),
            memory_limit_bytes=3 * 10**6,
        )
    assert refusal.value.key == "memory"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "solver", [cagp.Cholesky(), UNFINISHED, cagp.Chebyshev(4)], ids=lambda each: type(each).__name__
)
def test_error_bars_hold_over_fields_with_any_coefficients(solver):
    """Whitened errors of 400 fields with coefficients of any size, for ten generators.

    Their squares add up to chi-squared with 400 q degrees of freedom; of ten p-values two or more are below
    0.005 with probability 1.1e-3.
    """
    p_values = []
    for seed in range(10):
        rng = np.random.default_rng([37, seed])
        points, targets = on_sphere(50, seed), on_sphere(6, 100 + seed)
        both = np.concatenate([points, targets])
        basis = QUADRATIC.basis_at(both)
        f = np.linalg.cholesky(kernel_matrix(KERNEL, both, both)) @ rng.normal(size=(56, 400))
        f += basis @ (100.0 * rng.standard_cauchy(size=(3, 400)))
        y = f[:50] + np.sqrt(0.1) * rng.normal(size=(50, 400))
        prior = cagp.Prior(KERNEL, 0.1, mean=QUADRATIC)
        found = cagp.condition(prior, points, y, targets, solver=solver, covariance="full")
        white = np.linalg.solve(np.linalg.cholesky(found.covariance), found.mean - f[50:])
        total = float((white**2).sum())
        p_values.append(2.0 * min(chi2.cdf(total, white.size), chi2.sf(total, white.size)))
    assert binom.sf(1, 10, 0.005) < 2e-3
    assert sum(p < 0.005 for p in p_values) <= 1, p_values


@pytest.mark.exhaustive
def test_coverage_of_estimated_means_against_means_that_were_plugged_in():
    """Quadratic means of 200 fields each of four designs, 110 to 130 points, a lengthscale of one radian.

    90 % intervals of the coefficients, and of the field at a place that is far from the observed half of the
    globe. Generalised least squares hold the truth in a binomial number of cases: 4.4 of its standard errors
    are exceeded with probability 1e-5. Least squares, with the standard errors that belong to independent
    residuals, hold the coefficients in less than half of the cases, and the field around the mean that they
    plug in less often, too.
    """
    normal, at_target, plugged_at_target = 1.6448536269514722, 0, 0
    for design in range(4):
        rng = np.random.default_rng([38, design])
        both = on_sphere(201, 200 + design)
        # one half of the globe is observed; the target is on the other
        both = both[np.argsort(both[:, 0])]
        points, target = both[1:][both[1:, 0] > -0.2], both[:1]
        n = len(points)
        kernel = cagp.Matern32(1.0, 4.0)
        K = kernel_matrix(kernel, np.concatenate([points, target]), np.concatenate([points, target]))
        f = np.linalg.cholesky(K) @ rng.normal(size=(n + 1, 200))
        f += QUADRATIC.basis_at(np.concatenate([points, target])) @ COEFFICIENTS[:, None]
        y = f[:n] + np.sqrt(0.1) * rng.normal(size=(n, 200))
        found = cagp.condition(
            cagp.Prior(kernel, 0.1, QUADRATIC), points, y, target, solver=cagp.BlockGaussSeidel(2, 50)
        )
        allowed = 4.4 * np.sqrt(200 * 0.9 * 0.1)
        error = np.abs(found.coefficients.values - COEFFICIENTS[:, None])
        held = (error <= normal * found.coefficients.std[:, None]).sum(axis=1)
        assert (np.abs(held - 180) <= allowed).all(), (design, held)
        there = (np.abs(found.mean[0] - f[n]) <= normal * np.sqrt(found.variance[0])).sum()
        assert abs(there - 180) <= allowed, (design, there)
        at_target += there
        H = QUADRATIC.basis_at(points)
        plain, squares, *_ = np.linalg.lstsq(H, y, rcond=None)
        spread = np.sqrt(np.linalg.inv(H.T @ H).diagonal()[:, None] * squares / (n - 3))
        plain_held = (np.abs(plain - COEFFICIENTS[:, None]) <= normal * spread).sum(axis=1)
        assert (plain_held < 100).all(), (design, plain_held)
        latitude, longitude = np.rad2deg(np.arcsin(points[:, 2])), np.rad2deg(np.arctan2(*points[:, 1::-1].T))
        plugged = cagp.condition(
            cagp.Prior(kernel, 0.1, QUADRATIC.fit(latitude, longitude, y)),
            *(points, y, target),
            solver=cagp.Cholesky(),
        )
        plugged_at_target += (np.abs(plugged.mean[0] - f[n]) <= normal * np.sqrt(plugged.variance[0])).sum()
    assert plugged_at_target < at_target
