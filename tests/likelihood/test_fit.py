"""The fit finds the optimum of the likelihood, says how sure it is, and how it ended."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import BudgetError
from cagp_dist.likelihood.observed import FieldMeans
from cagp_dist.runtime import SerialExecutor, ThreadExecutor

from ..oracle import KERNELS, assert_close
from ..pairwise import by_turns
from .textbook import curvature, log_likelihood, slope

pytestmark = pytest.mark.usefixtures("one_blas_thread")

NAMES = ("lengthscale", "variance", "noise_variance")
GRID = cagp.LatLonGrid(np.linspace(-80.0, 80.0, 9), 18)


def draw(kernel, noise_variance, X, *, fields=1, seed=0):
    """Fields (n, T) of the prior with noise."""
    G = kernel(X, X) + noise_variance * np.eye(len(X))
    return np.linalg.cholesky(G) @ np.random.default_rng(seed).normal(size=(len(X), fields))


def grid_fields(*, kernel=None, noise_variance=0.2, fields=1, seed=0, grid=GRID):
    """Fields (T, P, Q)."""
    kernel = kernel or cagp.Matern32(0.6, 3.0)
    return draw(kernel, noise_variance, grid.points, fields=fields, seed=seed).T.reshape(-1, *grid.shape)


def parameters(result):
    kernel = result.prior.kernel
    return np.array([kernel.lengthscale, kernel.variance, result.prior.noise_variance])


def errors(result):
    return np.array([getattr(result.standard_errors, name) for name in NAMES])


def line_points(n=60, seed=0):
    return np.sort(np.random.default_rng(seed).uniform(0.0, 3.0, size=(n, 1)), axis=0)


@pytest.mark.parametrize(
    ("method", "kernel_class"), by_turns({"method": ["rings", "dense"], "kernel_class": KERNELS})
)
def test_is_the_optimum_in_all_three_parameters(kernel_class, method):
    fields = grid_fields(kernel=kernel_class(0.6, 3.0), fields=2)
    result = cagp.fit(kernel_class, GRID, fields, mean=0.5, method=method)
    assert result.status is cagp.FitStatus.CONVERGED
    assert result.status.ok
    assert result.method == method
    residuals = fields.reshape(2, -1).T - 0.5

    def value(x):
        return log_likelihood(kernel_class, GRID.points, residuals, np.exp(x))

    x = np.log(parameters(result))
    assert_close(result.log_likelihood, value(x), relative=1e-10)
    # the step that is left, in standard errors
    gradient = slope(value, x)
    assert np.sqrt(gradient @ result.log_covariance @ gradient) < 0.01
    assert result.gradient_norm == pytest.approx(np.linalg.norm(gradient), abs=1e-4)


@pytest.mark.parametrize("method", ["rings", pytest.param("dense", marks=pytest.mark.exhaustive)])
def test_standard_errors_are_those_of_the_curvature(method):
    fields = grid_fields(fields=3)
    result = cagp.fit(cagp.Matern32, GRID, fields, mean=0.0, method=method)
    residuals = fields.reshape(3, -1).T
    information = -curvature(
        lambda x: log_likelihood(cagp.Matern32, GRID.points, residuals, np.exp(x)), np.log(parameters(result))
    )
    assert_close(result.log_covariance, np.linalg.inv(information), relative=1e-4)
    assert_close(errors(result), np.sqrt(np.diag(result.log_covariance)) * parameters(result), relative=1e-12)


def test_the_same_bits_from_every_executor():
    fields = grid_fields()
    results = []
    for opened in (ThreadExecutor(1), ThreadExecutor(3)):
        with opened as executor:
            results.append(cagp.fit(cagp.Matern32, GRID, fields, starts=1, executor=executor))
    results.append(cagp.fit(cagp.Matern32, GRID, fields, starts=1, executor=SerialExecutor()))
    results.append(cagp.fit(cagp.Matern32, GRID, fields, starts=1))
    for result in results[1:]:
        assert result.prior.kernel == results[0].prior.kernel
        assert result.log_likelihood == results[0].log_likelihood
        np.testing.assert_array_equal(result.log_covariance, results[0].log_covariance)


@pytest.mark.parametrize("fields", [1, 3])
def test_the_prior_goes_straight_into_the_posterior(fields):
    X = line_points()
    y = 7.0 + draw(cagp.Matern32(0.5, 2.0), 0.1, X, fields=fields)
    y = y[:, 0] if fields == 1 else y
    result = cagp.fit(cagp.Matern32, X, y)
    assert result.method == "dense"
    assert result.points == len(X)
    posterior = cagp.condition(result.prior, X, y, X[:5], solver=cagp.Cholesky())
    assert posterior.mean.shape == y[:5].shape
    far = cagp.condition(result.prior, X, y, [[1e6]], solver=cagp.Cholesky())
    assert_close(far.mean[0], np.mean(y, axis=0), relative=1e-12)


def test_the_constant_mean_of_a_grid_is_weighted_by_area():
    fields = grid_fields(fields=2) + np.array([5.0, -3.0])[:, None, None]
    result = cagp.fit(cagp.Matern32, GRID, fields, starts=1)
    expected = np.mean(fields * GRID.area_weights, axis=(1, 2))
    assert isinstance(result.prior.mean, FieldMeans)
    assert_close(result.prior.mean(GRID.points[:2]), np.stack([expected, expected]), relative=1e-12)
    single = cagp.fit(cagp.Matern32, GRID, fields[0], starts=1)
    assert single.prior.mean == pytest.approx(expected[0], rel=1e-12)


@pytest.mark.parametrize("columns", [pytest.param(1, marks=pytest.mark.exhaustive), 2])
def test_a_mean_can_be_a_function(columns):
    def mean(X):
        return np.outer(2.0 + 3.0 * X[:, 2] ** 2, np.arange(1, columns + 1))

    fields = grid_fields(fields=2)
    trend = np.broadcast_to(mean(GRID.points).T.reshape(columns, *GRID.shape), fields.shape)
    result = cagp.fit(cagp.Matern32, GRID, fields + trend, mean=mean, starts=1)
    expected = cagp.fit(cagp.Matern32, GRID, fields, mean=0.0, starts=1)
    assert result.prior.mean is mean
    assert_close(parameters(result), parameters(expected), relative=1e-6)
    on_points = cagp.fit(cagp.Matern32, GRID.points, (fields + trend).reshape(2, -1).T, mean=mean, starts=1)
    assert_close(parameters(on_points), parameters(expected), relative=1e-3)


def test_pole_rows_are_left_out():
    whole = cagp.LatLonGrid(np.linspace(-90.0, 90.0, 11), 12)
    inner = cagp.LatLonGrid(whole.latitude_degrees[1:-1], 12)
    fields = grid_fields(grid=inner)[0]
    padded = np.concatenate([np.full((1, 12), 300.0), fields, np.full((1, 12), -300.0)])
    result, expected = (
        cagp.fit(cagp.Matern32, grid, y, mean=0.0, starts=1) for grid, y in ((whole, padded), (inner, fields))
    )
    assert result.points == inner.size == expected.points
    assert parameters(result).tolist() == parameters(expected).tolist()
    # and they do not count in the average, the weight of a pole being zero
    assert cagp.fit(cagp.Matern32, whole, padded, starts=1).prior.mean == pytest.approx(
        np.average(fields, weights=inner.area_weights)
    )


@pytest.mark.exhaustive
def test_thinned_data_come_first_and_all_points_last():
    grid = cagp.LatLonGrid(np.linspace(-89.0, 89.0, 90), 480)
    field = cagp.RingGram(grid, cagp.Matern32(0.2, 3.0), noise_variance=0.2).sample(
        np.random.default_rng(0), noise=True
    )
    told = []
    result = cagp.fit(cagp.Matern32, grid, field, mean=0.0, progress=told.append)
    assert result.status.ok
    sizes = [step.points for step in told]
    assert sizes == sorted(sizes)
    assert min(sizes) < 20_000 < max(sizes) == grid.size == result.points
    assert sizes.count(grid.size) < sizes.count(min(sizes))
    assert [step.evaluations for step in told] == list(range(1, result.evaluations + 1))
    assert told[0].seconds <= told[-1].seconds <= result.seconds
    assert max(step.log_likelihood for step in told if step.points == grid.size) == result.log_likelihood
    for name, value in zip(NAMES, parameters(result), strict=True):
        assert getattr(told[-1], name) == pytest.approx(value, rel=0.01)


def test_dense_starts_on_a_subset(monkeypatch):
    monkeypatch.setattr("cagp_dist.likelihood.fit.FIRST_DENSE_POINTS", 100)
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 2))
    y = draw(cagp.Matern32(0.2, 2.0), 0.1, X)[:, 0]
    told = []
    result = cagp.fit(cagp.Matern32, X, y, progress=told.append)
    sizes = {step.points for step in told}
    assert len(sizes) == 2
    assert 64 < min(sizes) <= 96 < max(sizes) == 300
    whole = cagp.fit(cagp.Matern32, X, y, starts=1)
    assert_close(parameters(result), parameters(whole), relative=1e-2)
    assert result.status.ok


def test_bounds_hold_and_are_named():
    fields = grid_fields()
    free = cagp.fit(cagp.Matern32, GRID, fields, mean=0.0)
    for name, value in zip(NAMES, parameters(free), strict=True):
        for bounds in ((0.1 * value, 0.8 * value), (1.3 * value, 10.0 * value)):
            result = cagp.fit(cagp.Matern32, GRID, fields, mean=0.0, starts=1, bounds={name: bounds})
            found = dict(zip(NAMES, parameters(result), strict=True))
            nearest = bounds[1] if bounds[1] < value else bounds[0]
            assert found[name] == pytest.approx(nearest, rel=1e-9)
            assert result.status is cagp.FitStatus.AT_BOUND
            assert not result.status.ok
            assert result.at_bound == (name,)
            assert np.isnan(getattr(result.standard_errors, name))
            assert np.isfinite(errors(result)).sum() == 2
            assert result.log_likelihood < free.log_likelihood


@pytest.mark.exhaustive
def test_what_is_left_free_is_optimal_within_bounds():
    """The others against the textbook likelihood with one parameter held."""
    fields = grid_fields()
    residuals = fields.reshape(1, -1).T
    for index, (name, value) in enumerate(zip(NAMES, (0.5, 2.0, 0.3), strict=True)):
        result = cagp.fit(cagp.Matern32, GRID, fields, mean=0.0, starts=1, bounds={name: (value, value)})
        assert result.status is cagp.FitStatus.CONVERGED
        assert result.at_bound == ()
        x = np.log(parameters(result))
        assert parameters(result)[index] == pytest.approx(value, rel=1e-12)
        free = [other for other in range(3) if other != index]

        def value_of(z, x=x, free=free):
            full = x.copy()
            full[free] = z
            return log_likelihood(cagp.Matern32, GRID.points, residuals, np.exp(full))

        gradient = slope(value_of, x[free])
        covariance = np.linalg.inv(-curvature(value_of, x[free]))
        assert np.sqrt(gradient @ covariance @ gradient) < 0.01
        assert_close(result.log_covariance[np.ix_(free, free)], covariance, relative=1e-3)
        assert np.isnan(errors(result)[index])


def test_two_or_all_parameters_can_be_fixed():
    fields = grid_fields()
    two = cagp.fit(cagp.Matern32, GRID, fields, bounds={"variance": (2.0, 2.0), "noise_variance": (0.3, 0.3)})
    assert two.status.ok
    assert parameters(two)[1:] == pytest.approx([2.0, 0.3], rel=1e-12)
    assert np.isfinite(errors(two)).tolist() == [True, False, False]
    values = dict(zip(NAMES, (0.5, 2.0, 0.3), strict=True))
    three = cagp.fit(
        cagp.Matern32, GRID, fields, mean=0.0, bounds={name: (value, value) for name, value in values.items()}
    )
    assert parameters(three) == pytest.approx(list(values.values()), rel=1e-12)
    assert three.status.ok
    assert three.gradient_norm == 0.0
    expected = log_likelihood(cagp.Matern32, GRID.points, fields.reshape(1, -1).T, list(values.values()))
    assert_close(three.log_likelihood, expected, relative=1e-10)


def test_data_without_noise_end_at_the_smallest_ratio():
    X = np.linspace(0.0, 3.0, 12)[:, None]
    result = cagp.fit(cagp.SquaredExponential, X, np.sin(2.0 * X[:, 0]))
    assert result.status is cagp.FitStatus.AT_BOUND
    assert "noise_variance" in result.at_bound
    assert result.prior.noise_variance / result.prior.kernel.variance == pytest.approx(1e-8, rel=1e-3)
    assert np.isnan(result.standard_errors.noise_variance)
    assert "Widen" in result.status.advice


def test_pure_noise_is_not_called_an_optimum():
    fields = np.random.default_rng(3).normal(size=(5, *GRID.shape))
    result = cagp.fit(cagp.Matern32, GRID, fields, mean=0.0)
    assert not result.status.ok
    assert result.prior.kernel.variance + result.prior.noise_variance == pytest.approx(1.0, abs=0.2)


def test_too_few_steps_are_not_called_an_optimum(monkeypatch):
    monkeypatch.setattr("cagp_dist.likelihood.search.MOST_STEPS", 1)
    monkeypatch.setattr("cagp_dist.likelihood.search.MOST_CLIMBS", 1)
    result = cagp.fit(cagp.Matern32, GRID, grid_fields(fields=4), starts=1, mean=0.0)
    assert result.status is cagp.FitStatus.NOT_CONVERGED
    assert "Start from this result" in result.status.advice


def test_a_start_that_was_given_is_the_first():
    start = {"lengthscale": 0.5, "variance": 4.0, "noise_variance": 0.1}
    told = []
    result = cagp.fit(
        cagp.Matern32, GRID, grid_fields(), mean=0.0, start=start, starts=1, progress=told.append
    )
    assert told[0].lengthscale == pytest.approx(0.5)
    assert told[0].noise_variance / told[0].variance == pytest.approx(0.025)
    assert result.status.ok


def test_more_starts_are_never_worse():
    field = cagp.RingGram(GRID, cagp.Matern12(0.3, 2.0), noise_variance=1.0).sample(
        np.random.default_rng(1), noise=True
    )
    values = [cagp.fit(cagp.Matern12, GRID, field, starts=starts).log_likelihood for starts in (1, 3)]
    assert values == sorted(values)


@pytest.mark.parametrize("unit", [1e-6, pytest.param(1e6, marks=pytest.mark.exhaustive)])
def test_units_only_scale_the_result(unit):
    fields = grid_fields()
    result, expected = (cagp.fit(cagp.Matern32, GRID, c * fields, mean=0.0) for c in (unit, 1.0))
    scale = np.array([1.0, unit**2, unit**2])
    assert_close(parameters(result), scale * parameters(expected), relative=1e-5)
    assert_close(errors(result), scale * errors(expected), relative=1e-4)
    X = line_points()
    y = draw(cagp.Matern32(0.5, 2.0), 0.1, X)[:, 0]
    result, expected = (cagp.fit(cagp.Matern32, c * X, y) for c in (unit, 1.0))
    assert_close(parameters(result), np.array([unit, 1.0, 1.0]) * parameters(expected), relative=1e-5)


def test_points_may_be_there_twice():
    X = np.concatenate([line_points(40), line_points(40)])
    y = draw(cagp.Matern32(0.5, 2.0), 0.1, X)[:, 0]
    result = cagp.fit(cagp.Matern32, X, y)
    assert result.status.ok
    assert result.points == 80


@pytest.mark.exhaustive
def test_memory_is_never_exceeded():
    X = np.random.default_rng(0).uniform(size=(2000, 2))
    y = draw(cagp.Matern12(0.3, 2.0), 0.5, X)[:, 0]
    limit = 40 * 2**20
    for points, values, most in ((X, y, limit), (GRID, grid_fields(), 1000)):
        with pytest.raises(BudgetError) as refusal:
            cagp.fit(cagp.Matern12, points, values, memory_limit_bytes=most)
        assert refusal.value.key == "memory"
    found = cagp.fit(cagp.Matern12, X, y, method="vecchia", memory_limit_bytes=limit)
    assert found.status.ok
