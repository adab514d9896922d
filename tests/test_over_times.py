"""Places that were observed at every time: solves in space against dense solves of all points and times."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.runtime import SerialExecutor, ThreadExecutor

HOURS = np.array([0.0, 1.0, 2.5, 7.0, 30.0, 31.0, 12.0])  # in no order, unequally spaced
AT = np.array([-3.0, 2.5, 9.0, 60.0])
PRODUCT = cagp.SpaceTime(cagp.Matern32(0.3, 2.0), cagp.Matern52(6.0))


def at_all_times(where, hours):
    return np.column_stack([np.tile(where, (len(hours), 1)), np.repeat(hours, len(where))])


def places(n, seed):
    rng = np.random.default_rng(seed)
    return cagp.unit_sphere(rng.uniform(40.0, 60.0, n), rng.uniform(0.0, 30.0, n))


def rising(X):
    return 0.3 + 0.01 * X[:, 3]


def by_points(noise, X, y, Z, kernel=PRODUCT):
    """Solve for all points and times at once."""
    prior = cagp.Prior(kernel, np.tile(noise, len(HOURS)), mean=rising)
    found = cagp.condition(
        prior, at_all_times(X, HOURS), y.ravel(), at_all_times(Z, AT), solver=cagp.Cholesky()
    )
    return found.mean.reshape(len(AT), -1), found.variance.reshape(len(AT), -1)


@pytest.mark.parametrize("in_time", [cagp.Matern12(6.0), cagp.Matern52(6.0), cagp.SquaredExponential(90.0)])
def test_solves_in_space_are_the_posterior_of_all_times_t44(in_time):
    """At observed and other times, with a noise by place; of the last kernel most modes are rounding."""
    kernel, X, Z = cagp.SpaceTime(PRODUCT.space, in_time), places(40, 0), places(6, 1)
    rng = np.random.default_rng(2)
    noise, y = rng.uniform(0.1, 1.0, 40), rng.normal(size=(len(HOURS), 40))
    prior = cagp.Prior(kernel, noise, mean=rising)
    found = cagp.condition_over_times(prior, X, HOURS, y, Z, at=AT, solver=cagp.Cholesky())
    mean, variance = by_points(noise, X, y, Z, kernel)
    np.testing.assert_allclose(found.mean, mean, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(found.variance, variance, rtol=0.0, atol=1e-8)
    assert found.status.value == "exact"


def test_grids_with_the_same_gaps_t44():
    grid = cagp.LatLonGrid(np.linspace(-80.0, 80.0, 9), 12)
    rng = np.random.default_rng(3)
    y = rng.normal(size=(len(HOURS), *grid.shape))
    y[:, 3, 4] = np.nan
    noise = np.repeat(rng.uniform(0.1, 1.0, 9), 12).reshape(grid.shape)  # by latitude
    prior, there = cagp.Prior(PRODUCT, noise, mean=rising), ~np.isnan(y[0]).ravel()
    found = cagp.condition_over_times(prior, grid, HOURS, y, grid, at=AT, solver=cagp.Rings())
    mean, variance = by_points(
        noise.ravel()[there], grid.points[there], y.reshape(len(HOURS), -1)[:, there], grid.points
    )
    np.testing.assert_allclose(found.mean.reshape(mean.shape), mean, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(found.variance.reshape(mean.shape), variance, rtol=0.0, atol=1e-12)


def test_the_likelihood_is_that_of_the_dense_kronecker_form_t44():
    """Of places, and of a grid with gaps and a pole, whose Q copies are one observation."""
    rng = np.random.default_rng(7)

    def dense(X, noise, y):
        K = np.kron(PRODUCT.time(HOURS[:, None], HOURS[:, None]), PRODUCT.space(X, X))
        points = at_all_times(X, HOURS)
        return multivariate_normal(rising(points), K + np.diag(np.tile(noise, len(HOURS)))).logpdf(y.ravel())

    X, noise, y = places(40, 0), rng.uniform(0.1, 1.0, 40), rng.normal(size=(len(HOURS), 40))
    prior = cagp.Prior(PRODUCT, noise, mean=rising)
    found = cagp.log_likelihood_over_times(prior, X, HOURS, y, solver=cagp.Cholesky())
    assert found == pytest.approx(dense(X, noise, y), rel=1e-12)

    grid = cagp.LatLonGrid(np.linspace(-80.0, 90.0, 7), 10)
    noise = np.repeat(rng.uniform(0.1, 1.0, 7), 10)  # by latitude
    y = rng.normal(size=(len(HOURS), *grid.shape))
    y[:, 2, 3:5] = np.nan
    merged = y.copy()
    merged[:, -1] = y[:, -1].mean(axis=1, keepdims=True)
    there = ~np.isnan(y[0]).ravel()
    there[-9:] = False  # copies of the pole
    prior = cagp.Prior(PRODUCT, noise.reshape(grid.shape), mean=rising)
    found = cagp.log_likelihood_over_times(prior, grid, HOURS, y, solver=cagp.Rings())
    expected = dense(grid.points[there], noise[there], merged.reshape(len(HOURS), -1)[:, there])
    assert found == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ArgumentError, match="know no determinant"):
        cagp.log_likelihood_over_times(prior, grid, HOURS, y, solver=cagp.GaussSeidel(3))
    uneven = cagp.Prior(PRODUCT, rng.uniform(0.1, 1.0, grid.shape))
    with pytest.raises(ArgumentError, match="varies along a latitude"):
        cagp.log_likelihood_over_times(uneven, grid, HOURS, y, solver=cagp.Rings())


@pytest.mark.parametrize("in_time", [cagp.Matern12(6.0), cagp.Matern32(6.0)])
def test_whole_grids_are_smoothed_as_their_points_are_solved(in_time):
    """With a pole, a noise by latitude, a mean, and an hour that is asked for twice."""
    grid = cagp.LatLonGrid(np.linspace(-90.0, 60.0, 6), 8)
    y = np.random.default_rng(4).normal(size=(len(HOURS), *grid.shape))
    noise = np.repeat(np.linspace(0.2, 0.7, 6), 8).reshape(grid.shape)
    prior = cagp.Prior(cagp.SpaceTime(PRODUCT.space, in_time), noise, mean=rising)
    at = np.concatenate([AT, AT[:1]])
    smoothed, solved = (
        cagp.condition_over_times(prior, grid, HOURS, y, to, at=at, solver=cagp.Rings())
        for to in (grid, grid.points)
    )
    np.testing.assert_allclose(smoothed.mean.reshape(solved.mean.shape), solved.mean, rtol=0.0, atol=1e-10)
    variance = smoothed.variance.reshape(solved.variance.shape)
    np.testing.assert_allclose(variance, solved.variance, rtol=0.0, atol=1e-10)
    assert not np.array_equal(variance, solved.variance)  # the two do not go the same way


def test_solvers_that_stop_early_state_their_own_error():
    """The variance of errors is what is stated: over 40 fields of the prior, within four standard errors."""
    X, Z = places(30, 4), places(3, 5)
    points, prior = np.concatenate([at_all_times(X, HOURS), at_all_times(Z, AT)]), cagp.Prior(PRODUCT, 0.2)
    draws = np.linalg.cholesky(PRODUCT(points, points) + 1e-9 * np.eye(len(points)))
    rng, n, errors = np.random.default_rng(6), len(HOURS) * 30, []
    solver = cagp.BlockGaussSeidel(iterations=1, block_size=10)
    for _ in range(40):
        f = draws @ rng.normal(size=len(points))
        y = (f[:n] + np.sqrt(0.2) * rng.normal(size=n)).reshape(len(HOURS), 30)
        found = cagp.condition_over_times(prior, X, HOURS, y, Z, at=AT, solver=solver)
        errors.append((found.mean.ravel() - f[n:]) / np.sqrt(found.variance.ravel()))
    exact = cagp.condition_over_times(prior, X, HOURS, y, Z, at=AT, solver=cagp.Cholesky())
    assert np.any(found.variance > 1.02 * exact.variance)  # it did stop early
    squares = np.mean(np.square(errors), axis=1)  # of 40 independent fields
    assert abs(squares.mean() - 1.0) < 4.0 * squares.std(ddof=1) / np.sqrt(40)


def test_every_executor_gives_the_same_bits():
    X, y, Z = places(40, 0), np.random.default_rng(1).normal(size=(len(HOURS), 40)), places(5, 1)
    found = []
    with ThreadExecutor(2) as threads:
        for executor in (SerialExecutor(), threads):
            prior, solver = cagp.Prior(PRODUCT, 0.1), cagp.Neighbours(10)
            found.append(cagp.condition_over_times(prior, X, HOURS, y, Z, solver=solver, executor=executor))
    np.testing.assert_array_equal(found[0].mean, found[1].mean)
    np.testing.assert_array_equal(found[0].variance, found[1].variance)
    np.testing.assert_array_equal(found[0].hours, HOURS)


def test_degrees_and_dates_are_refused():
    X, y, solver = places(4, 0), np.zeros((2, 4)), cagp.Cholesky()
    prior, degrees = cagp.Prior(PRODUCT, 0.1), np.array([[48.0, 11.0], [50.0, 9.0], [52.0, 8.0], [47.0, 7.0]])
    dates = np.array(["2024-07-01", "2024-07-02"], "datetime64[ns]")
    for where, hours, to, at, said in (
        (degrees, [0.0, 1.0], X, None, "X has 2 columns"),
        (X, [0.0, 1.0], degrees, None, "X_test has 2 columns"),
        (2.0 * X, [0.0, 1.0], X, None, "length 2"),
        (X, dates, X, None, "expected hours, finite numbers"),
        (X, [0.0, 1.0], X, dates, "expected hours, finite"),
        (X, [0.0, 1.0], X, [np.nan], "expected hours, finite"),
    ):
        with pytest.raises(ArgumentError, match=said):
            cagp.condition_over_times(prior, where, hours, y, to, at=at, solver=solver)
    assert cagp.condition_over_times(prior, X, [0, 1], y, X, at=0.5, solver=solver).mean.shape == (1, 4)


def test_what_is_no_complete_series_is_refused():
    X, y = places(4, 0), np.zeros((2, 4))
    metric = cagp.SpaceTime(cagp.Matern32(0.3), lengthscale_time=6.0)
    for kernel, hours, said in (
        (metric, [0.0, 1.0], "expected a product"),
        (cagp.Matern32(0.3), [0.0, 1.0], "expected a product"),
        (PRODUCT, [1.0, 1.0], "no two the same"),
        (PRODUCT, [0.0, 1.0, 2.0], "T = 3 times"),
    ):
        with pytest.raises(ArgumentError, match=said):
            cagp.condition_over_times(cagp.Prior(kernel, 0.1), X, hours, y, X, solver=cagp.Cholesky())
    estimated = cagp.Prior(PRODUCT, 0.1, cagp.mean_family("constant"))
    with pytest.raises(ArgumentError, match="coefficients to estimate"):
        cagp.log_likelihood_over_times(estimated, X, [0.0, 1.0], y, solver=cagp.Cholesky())


@pytest.mark.parametrize("gaps", [0, 3])
def test_a_mean_is_estimated_from_all_times(gaps):
    """As `condition` does it of points in space and time."""
    rng = np.random.default_rng(gaps)
    X, hours, at = places(9, 1), np.array([0.0, 2.0, 7.0, 8.0]), np.array([1.0, 7.0, 20.0])
    y = 280.0 + rng.standard_normal((4, 9))
    y.ravel()[rng.choice(36, gaps, replace=False)] = np.nan
    prior, wanted = cagp.Prior(PRODUCT, 0.2, cagp.mean_family("quadratic-latitude")), places(5, 2)
    found = cagp.condition_over_times(prior, X, hours, y, wanted, at=at, solver=cagp.Cholesky())
    points = np.column_stack([np.tile(X, (4, 1)), np.repeat(hours, 9)])
    there = ~np.isnan(y.ravel())
    targets = np.column_stack([np.tile(wanted, (3, 1)), np.repeat(at, 5)])
    dense = cagp.condition(prior, points[there], y.ravel()[there], targets, solver=cagp.Cholesky())
    np.testing.assert_allclose(found.mean.ravel(), dense.mean, rtol=1e-9)
    np.testing.assert_allclose(found.variance.ravel(), dense.variance, rtol=1e-8)
    np.testing.assert_allclose(found.coefficients.values, dense.coefficients.values, rtol=1e-6)
    np.testing.assert_allclose(found.coefficients.std, dense.coefficients.std, rtol=1e-6)
