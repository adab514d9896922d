"""The sampled gradient against the exact one, its stated error against its spread, and fits by it."""

import numpy as np
import pytest
from scipy.stats import chi2

import cagp_dist as cagp
from cagp_dist.budget import Demand
from cagp_dist.budget.point_plans import Sweeps, plan_sweeps
from cagp_dist.likelihood.bounds import Scales, make_bounds
from cagp_dist.likelihood.exact.dense_likelihood import DenseLikelihood
from cagp_dist.likelihood.exact.profile_likelihood import Counter, ProfileLikelihood
from cagp_dist.likelihood.sampled import pathwise
from cagp_dist.likelihood.sampled import sweeps as sweeping
from cagp_dist.likelihood.sampled.pathwise import PathwiseLikelihood
from cagp_dist.likelihood.search import climb, settle_parameters
from cagp_dist.posterior.fourier import draw_waves, evaluate_waves
from cagp_dist.runtime import SerialExecutor

from ..oracle import KERNELS, assert_close, block_lower, kernel_matrix
from ..pairwise import by_turns

pytestmark = pytest.mark.usefixtures("one_blas_thread")

LENGTHSCALE, RATIO = 0.3, 0.1


def sphere(n, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return X / np.linalg.norm(X, axis=1)[:, None]


def drawn(kernel_class, X, *, fields=1, seed=0):
    G = 2.0 * (kernel_matrix(kernel_class(LENGTHSCALE), X, X) + RATIO * np.eye(len(X)))
    return np.linalg.cholesky(G) @ np.random.default_rng([seed, len(X), fields]).normal(size=(len(X), fields))


def sampled(kernel_class, X, residuals, **settings):
    settings = {"seed": 0, "executor": SerialExecutor(), "memory_limit_bytes": 2**30, **settings}
    return PathwiseLikelihood(kernel_class, X, residuals, **settings)


def exact(kernel_class, X, residuals):
    return DenseLikelihood(kernel_class, X, residuals, memory_limit_bytes=2**30)


@pytest.fixture
def small_blocks(monkeypatch):
    """Several blocks, few waves, so that small problems take the way of large ones."""
    monkeypatch.setattr(pathwise, "BLOCK", 64)
    monkeypatch.setattr(pathwise, "WAVES", 64)


@pytest.mark.parametrize(("kernel_class", "p"), by_turns({"kernel_class": KERNELS, "p": [1, 3]}))
def test_waves_have_the_covariance_of_the_kernel(kernel_class, p):
    points = 0.4 * np.random.default_rng(p).normal(size=(p, 8))
    draws = [draw_waves(kernel_class, p, 16, np.random.default_rng([p, index])) for index in range(3000)]
    fields = evaluate_waves(draws, 0.7, points)
    products = fields[:, None] * fields[None]
    expected = kernel_matrix(kernel_class(0.7), points.T, points.T)
    error = products.std(axis=2) / np.sqrt(len(draws))
    # 36 different entries, each normal about its mean: beyond 4.5 once in 4,000 runs
    assert np.abs((products.mean(axis=2) - expected) / error).max() < 4.5


def test_angles_of_fast_waves_are_accurate():
    waves = draw_waves(cagp.Matern12, 2, 512, np.random.default_rng(0))
    points = np.random.default_rng(1).normal(size=(2, 20))
    angles = (waves.frequencies / 0.01) @ points + waves.phases[:, None]
    assert np.abs(angles).max() > 1e4
    assert_close(
        evaluate_waves([waves], 0.01, points)[:, 0], waves.amplitudes @ np.cos(angles), relative=1e-5
    )


@pytest.mark.parametrize("kernel_class", KERNELS)
def test_gradient_is_unbiased(kernel_class, small_blocks, monkeypatch):
    monkeypatch.setattr(pathwise, "TOLERANCE", 1e-7)
    monkeypatch.setattr(pathwise, "MOST_SWEEPS", 300)
    X = sphere(300)
    residuals = drawn(kernel_class, X, fields=2)
    found = sampled(kernel_class, X, residuals, samples=500).evaluate(LENGTHSCALE, RATIO)
    expected = exact(kernel_class, X, residuals).evaluate(LENGTHSCALE, RATIO)
    assert found.solved
    assert_close(found.quadratic, expected.quadratic, relative=1e-9)
    assert_close(found.slopes, expected.slopes, relative=1e-5)
    assert found.log_determinant is None
    assert np.isnan(found.log_likelihood(1.0))
    # chi2 of two estimates in their stated covariance: beyond this once in 1,000 runs
    missed = found.traces - expected.traces
    assert missed @ np.linalg.solve(found.trace_covariance, missed) < chi2(2).isf(1e-3)
    # the error that is left is small: the test would see a bias of three percent
    assert (np.sqrt(np.diag(found.trace_covariance)) < 0.01 * np.abs(expected.traces)).all()


def test_stated_error_of_the_gradient_is_its_spread(small_blocks):
    X = sphere(200)
    residuals = drawn(cagp.Matern32, X)
    expected = exact(cagp.Matern32, X, residuals).evaluate(LENGTHSCALE, RATIO).gradient(2.0)[[0, 2]]
    squares = []
    for seed in range(40):
        found = sampled(cagp.Matern32, X, residuals, seed=seed, samples=48).evaluate(LENGTHSCALE, RATIO)
        missed = found.gradient(2.0)[[0, 2]] - expected
        squares.append(missed @ np.linalg.solve(found.gradient_covariance(), missed))
    # the sum is near chi2 with 80 degrees; the covariance itself, from 48 samples, adds some percent
    assert chi2(80).ppf(1e-3) < sum(squares) < 1.1 * chi2(80).isf(1e-3)


def test_a_step_is_the_best_in_its_plane():
    """Of what a sweep would add, and the step before: no other step in it leaves an error of less energy."""
    n, columns, block = 90, 4, 20
    X = sphere(n)
    X = X[cagp.space_filling_order(X, block_size=block)]
    R = kernel_matrix(cagp.Matern32(LENGTHSCALE), X, X) + RATIO * np.eye(n)
    right, start = np.random.default_rng(0).normal(size=(2, n, columns))
    exact_solution = np.linalg.solve(R, right)
    found = [start]
    for sweeps in (1, 2, 3, 4):
        solution = sweeping.solve_by_sweeps(
            cagp.TiledGram(cagp.Matern32(LENGTHSCALE), X, noise_variance=np.full(n, RATIO)),
            right,
            start=start,
            tolerance=1e-15,
            most_sweeps=sweeps,
            plan=plan_sweeps(
                Demand(n, columns, 0, False, 1, True, 2**30),
                Sweeps(iterations=sweeps, block_size=block),
                method="test",
            ),
            executor=SerialExecutor(),
        )
        assert solution.products == sweeps
        assert not solution.ok
        found.append(solution.value.T)
        assert_close(solution.residual.T, right - R @ found[-1], relative=1e-10)
    steps = np.diff(found, axis=0)
    for m, step in enumerate(steps):
        left = right - R @ found[m]
        change = np.linalg.solve(block_lower(R, block), left)
        for column in range(columns):
            # before the first step there is none
            others = [change[:, column]] if m == 0 else [change[:, column], steps[m - 1][:, column]]
            plane = np.stack(others, axis=1)
            best = plane @ np.linalg.solve(plane.T @ R @ plane, plane.T @ left[:, column])
            assert_close(step[:, column], best, relative=1e-8)
    errors = [((v - exact_solution) * (R @ (v - exact_solution))).sum(axis=0) for v in found]
    assert (np.diff(errors, axis=0) < 0.0).all()


def test_a_column_of_zeros_is_left_alone():
    n = 60
    X = sphere(n)
    right = np.random.default_rng(0).normal(size=(n, 3))
    right[:, 1] = 0.0
    solution = sweeping.solve_by_sweeps(
        cagp.TiledGram(cagp.Matern32(LENGTHSCALE), X, noise_variance=np.full(n, RATIO)),
        right,
        start=np.zeros_like(right),
        tolerance=1e-10,
        most_sweeps=200,
        plan=plan_sweeps(
            Demand(n, 3, 0, False, 1, True, 2**30), Sweeps(iterations=200, block_size=20), method="test"
        ),
        executor=SerialExecutor(),
    )
    R = kernel_matrix(cagp.Matern32(LENGTHSCALE), X, X) + RATIO * np.eye(n)
    assert solution.ok
    assert not solution.value[1].any()
    assert_close(solution.value.T, np.linalg.solve(R, right), relative=1e-8)


def test_systems_are_solved_to_the_tolerance(small_blocks):
    X = sphere(400)
    likelihood = sampled(cagp.Matern32, X, drawn(cagp.Matern32, X), samples=6)
    evaluation = likelihood.evaluate(LENGTHSCALE, 0.02)
    R = kernel_matrix(cagp.Matern32(LENGTHSCALE), likelihood._X, likelihood._X) + 0.02 * np.eye(400)
    right = np.concatenate([likelihood._residuals, likelihood._samples(LENGTHSCALE, 0.02)], axis=1)
    residual = right - R @ likelihood._weights
    assert evaluation.solved
    assert (
        np.linalg.norm(residual, axis=0) < 1.001 * pathwise.TOLERANCE * np.linalg.norm(right, axis=0)
    ).all()


def test_solutions_are_where_the_next_ones_begin(small_blocks, monkeypatch):
    sweeps = []
    original = sweeping.conjugate_gradients

    def counted(*given, **settings):
        found = original(*given, **settings)
        sweeps.append(found.products)
        return found

    monkeypatch.setattr(sweeping, "conjugate_gradients", counted)
    X = sphere(400)
    likelihood = sampled(cagp.Matern32, X, drawn(cagp.Matern32, X), samples=4)
    for ratio in (0.02, 0.02, 0.0205):
        likelihood.evaluate(LENGTHSCALE, ratio)
    first, again, nearby = sweeps
    assert first > 3
    assert again == 0
    assert nearby < 0.6 * first


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kernel_class", "fields"),
    [pytest.param(cagp.Matern32, 1, marks=pytest.mark.exhaustive), (cagp.Matern12, 3)],
)
def test_fit_is_near_the_exact_one(kernel_class, fields, small_blocks, monkeypatch):
    monkeypatch.setattr(pathwise, "WAVES", 256)
    X = sphere(700)
    y = 3.0 + drawn(kernel_class, X, fields=fields)
    expected = cagp.fit(kernel_class, X, y)
    told = []
    result = cagp.fit(kernel_class, X, y, method="pathwise", progress=told.append)
    assert result.status is cagp.FitStatus.CONVERGED
    assert result.method == "pathwise"
    assert result.log_likelihood is None
    assert result.points == 700
    assert result.prior.mean == expected.prior.mean if fields == 1 else True
    # starts are tried on fewer points with a value, then the gradient of all is followed
    assert all(np.isnan(step.log_likelihood) == (step.points == 700) for step in told)
    found, sought = (
        np.log([r.prior.kernel.lengthscale, r.prior.kernel.variance, r.prior.noise_variance])
        for r in (result, expected)
    )
    # the Monte Carlo part is a third of a standard error or less: three of its own
    error = np.sqrt(np.diag(expected.log_covariance))
    assert (np.abs(found - sought) < error).all()
    ratio = np.sqrt(np.diag(result.log_covariance)) / error
    assert (ratio > 0.7).all()
    assert (ratio < 1.6).all()


def test_a_grid_can_be_fitted_by_sampling(small_blocks):
    grid = cagp.LatLonGrid(np.linspace(-80.0, 80.0, 12), 24)
    field = cagp.RingGram(grid, cagp.Matern32(0.5, 2.0), noise_variance=0.2).sample(
        np.random.default_rng(0), noise=True
    )
    result = cagp.fit(cagp.Matern32, grid, field, method="pathwise")
    expected = cagp.fit(cagp.Matern32, grid, field)
    assert result.points == grid.size
    assert result.prior.kernel.lengthscale == pytest.approx(
        expected.prior.kernel.lengthscale, abs=expected.standard_errors.lengthscale
    )


def test_systems_that_are_not_solved_are_told(small_blocks, monkeypatch):
    monkeypatch.setattr(pathwise, "MOST_SWEEPS", 1)
    X = sphere(300)
    result = cagp.fit(cagp.Matern32, X, drawn(cagp.Matern32, X)[:, 0], method="pathwise")
    assert result.status is cagp.FitStatus.NOT_CONVERGED


@pytest.mark.parametrize("curvature", [np.diag([60.0, 80.0, 50.0]), -np.eye(3), 1e4 * np.eye(3)])
def test_roots_are_found_from_any_curvature(curvature):
    """On an exact gradient the root is the optimum."""
    X = sphere(150)
    residuals = drawn(cagp.Matern32, X, fields=4)
    bounds = make_bounds(None, Scales(0.1, 2.0, 2.0))
    profile = ProfileLikelihood(exact(cagp.Matern32, X, residuals), bounds, Counter(None))
    start = np.log([0.5, 0.3])
    found, expected = settle_parameters(profile, start, curvature), climb(profile, start)
    if curvature[0, 0] < 1e3:
        assert_close(np.exp(found.x), np.exp(expected.x), relative=0.02)
    else:  # steps much too short look like arrival; the caller judges by the curvature found at the end
        assert expected.log_likelihood > found.log_likelihood
