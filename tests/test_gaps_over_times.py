"""Fields whose gaps differ between times, against dense solves of the points that were observed."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.gram import series_gaps
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.runtime.dask import DaskExecutor

HOURS = np.array([0.0, 1.0, 2.5, 7.0, 30.0, 12.0])  # in no order, unequally spaced
AT = np.array([2.5, -3.0, 9.0])
KERNEL = cagp.SpaceTime(cagp.Matern32(0.4, 2.0), cagp.Matern52(6.0))


def rising(X):
    return 0.3 + 0.01 * X[:, 3]


def at_all_times(where, hours):
    return np.column_stack([np.tile(where, (len(hours), 1)), np.repeat(hours, len(where))])


def grid_with_gaps(latitudes, seed=0, missing=0.3):
    """A grid with noise by latitude, values with gaps, a pole that is missing once, and what is observed."""
    grid, rng = cagp.LatLonGrid(latitudes, 7), np.random.default_rng(seed)
    y = rng.normal(size=(len(HOURS), *grid.shape))
    y[rng.random(y.shape) < missing] = np.nan
    y[2] = np.nan  # a day
    noise = np.repeat(np.linspace(0.2, 0.5, len(latitudes)), 7).reshape(grid.shape)
    observed, values = ~np.isnan(y), y.copy()
    for pole in np.flatnonzero(np.abs(latitudes) == 90.0):
        y[1, pole] = np.nan
        values[:, pole, 0] = np.nanmean(
            np.where(np.isnan(y[:, pole]).all(axis=1)[:, None], 0.0, y[:, pole]), axis=1
        )
        observed[:, pole] = False
        observed[:, pole, 0] = ~np.isnan(y[:, pole]).all(axis=1)
    return grid, y, noise, observed, values


def dense(grid, noise, observed, values, Z=None):
    """Mean, covariance and log-likelihood of the points that were observed."""
    X, there = at_all_times(grid.points, HOURS), observed.ravel()
    prior = cagp.Prior(KERNEL, np.tile(noise.ravel(), len(HOURS))[there], mean=rising)
    Z = at_all_times(grid.points if Z is None else Z, AT)
    found = cagp.condition(
        *(prior, X[there], values.ravel()[there], Z), solver=cagp.Cholesky(), covariance="full"
    )
    G = KERNEL(X[there], X[there]) + np.diag(np.tile(noise.ravel(), len(HOURS))[there])
    density = multivariate_normal(rising(X[there]), G).logpdf(values.ravel()[there])
    return found.mean, found.covariance, density


@pytest.mark.parametrize("latitudes", [np.linspace(-90.0, 50.0, 5), np.linspace(-60.0, 60.0, 6)])
def test_gappy_grids_are_the_posterior_of_what_was_observed_t46(latitudes):
    """At observed and other hours, on the grid and beside it, with a pole, a mean and noise by latitude."""
    grid, y, noise, observed, values = grid_with_gaps(latitudes)
    prior, Z = cagp.Prior(KERNEL, noise, mean=rising), cagp.unit_sphere([3.0, 44.0], [12.0, 80.0])
    for to, where in ((grid, None), (Z, Z)):
        mean, covariance, density = dense(grid, noise, observed, values, where)
        found = cagp.condition_over_times(prior, grid, HOURS, y, to, at=AT, solver=cagp.Rings())
        np.testing.assert_allclose(found.mean.ravel(), mean, rtol=0.0, atol=1e-10)
        np.testing.assert_allclose(found.variance.ravel(), np.diag(covariance), rtol=0.0, atol=1e-10)
        assert found.status.value == "exact"
        assert found.relative_residual < 1e-10
    likelihood = cagp.log_likelihood_over_times(prior, grid, HOURS, y, solver=cagp.Rings())
    assert likelihood == pytest.approx(density, rel=1e-12)


def test_gappy_series_of_places_are_the_posterior_of_what_was_observed_t46():
    """With a noise by place, and of a grid as places."""
    rng, X = np.random.default_rng(1), cagp.unit_sphere([48.0, 52.0, 50.0, 41.0], [11.0, 13.0, 8.0, 2.0])
    y, noise, Z = rng.normal(size=(len(HOURS), 4)), rng.uniform(0.1, 1.0, 4), cagp.unit_sphere([49.0], [9.0])
    y[rng.random(y.shape) < 0.4] = np.nan
    there, points = ~np.isnan(y).ravel(), at_all_times(X, HOURS)
    exact = cagp.condition(
        cagp.Prior(KERNEL, np.tile(noise, len(HOURS))[there], mean=rising),
        *(points[there], y.ravel()[there], at_all_times(Z, AT)),
        solver=cagp.Cholesky(),
    )
    prior = cagp.Prior(KERNEL, noise, mean=rising)
    found = cagp.condition_over_times(prior, X, HOURS, y, Z, at=AT, solver=cagp.Cholesky())
    np.testing.assert_allclose(found.mean.ravel(), exact.mean, rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(found.variance.ravel(), exact.variance, rtol=0.0, atol=1e-10)
    grid, y, noise, _, _ = grid_with_gaps(np.linspace(-60.0, 60.0, 5))
    prior = cagp.Prior(KERNEL, noise, mean=rising)
    by_rings = cagp.condition_over_times(prior, grid, HOURS, y, grid, solver=cagp.Rings())
    prior, places = cagp.Prior(KERNEL, noise.ravel(), mean=rising), y.reshape(len(HOURS), -1)
    by_places = cagp.condition_over_times(
        *(prior, grid.points, HOURS, places, grid.points), solver=cagp.Cholesky()
    )
    np.testing.assert_allclose(by_rings.mean.ravel(), by_places.mean.ravel(), rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(by_rings.variance.ravel(), by_places.variance.ravel(), rtol=0.0, atol=1e-10)


def test_error_bars_of_many_gaps_come_from_draws(monkeypatch):
    """The mean stays exact; variances are within five of their standard errors, on average within one."""
    grid, y, noise, observed, values = grid_with_gaps(np.linspace(-90.0, 50.0, 4))
    monkeypatch.setattr(series_gaps, "FEW_IN_SERIES", 0)
    prior, samples = cagp.Prior(KERNEL, noise, mean=rising), 100
    found = cagp.condition_over_times(
        prior, grid, HOURS, y, grid, at=AT, solver=cagp.Rings(), samples=samples
    )
    mean, covariance, _ = dense(grid, noise, observed, values)
    np.testing.assert_allclose(found.mean.ravel(), mean, rtol=0.0, atol=1e-10)
    assert found.relative_error == pytest.approx(np.sqrt(2.0 / samples))
    ratio = found.variance.ravel() / np.diag(covariance)
    assert np.abs(ratio - 1.0).max() < 5.0 * found.relative_error
    assert abs(ratio.mean() - 1.0) < found.relative_error
    assert found.status.value == "solved"
    with pytest.raises(ArgumentError, match="for the determinant"):
        cagp.log_likelihood_over_times(prior, grid, HOURS, y, solver=cagp.Rings())


@pytest.mark.exhaustive
def test_samples_over_times_have_the_joint_law_of_all_hours(monkeypatch):
    """Whitened by the dense posterior, squares have mean 1 and variance 2; with many gaps, at other hours."""
    grid, y, noise, observed, values = grid_with_gaps(np.linspace(-90.0, 50.0, 4))
    monkeypatch.setattr(series_gaps, "FEW_IN_SERIES", 0)
    count = 150
    drawn = cagp.sample_over_times(
        *(cagp.Prior(KERNEL, noise, mean=rising), grid, HOURS, y),
        at=AT,
        solver=cagp.Rings(),
        samples=count,
        generator=np.random.default_rng(3),
    )
    assert drawn.shape == (count, len(AT), *grid.shape)
    mean, covariance, _ = dense(grid, noise, observed, values)
    one = np.array([i for i in range(len(mean)) if i % grid.size >= 7 or i % 7 == 0])  # of the pole
    errors = (drawn.reshape(count, -1) - mean)[:, one]
    white = np.linalg.solve(np.linalg.cholesky(covariance[np.ix_(one, one)]), errors.T)
    assert abs((white**2).mean() - 1.0) < 4.0 * np.sqrt(2.0 / white.size)
    assert abs(white.mean()) < 4.0 / np.sqrt(white.size)
    assert np.abs(white @ white.T / count - np.eye(len(one))).max() < 5.5 / np.sqrt(count)
    np.testing.assert_allclose(drawn[:, :, 0, :1], drawn[:, :, 0, 1:2], rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_leave_one_out_over_times_is_that_of_each_observation_alone_t46(missing):
    """Of whole and of gappy grids; the copies of a pole together."""
    grid, y, noise, observed, values = grid_with_gaps(np.linspace(-90.0, 50.0, 4), missing=missing)
    prior = cagp.Prior(KERNEL, noise, mean=rising)
    if missing == 0.0:
        y[2], values[2] = 1.0, 1.0
        y[1, 0], values[1, 0], observed[2] = 0.5, 0.5, observed[3]
        observed[1, 0, 0] = True
    found = cagp.leave_one_out_over_times(prior, grid, HOURS, y, solver=cagp.Rings())
    X, there = at_all_times(grid.points, HOURS), observed.ravel()
    G = KERNEL(X[there], X[there]) + np.diag(np.tile(noise.ravel(), len(HOURS))[there])
    inverse, b = np.linalg.inv(G), values.ravel()[there]
    precision = np.diag(inverse)
    expected = b - inverse @ (b - rising(X[there])) / precision
    np.testing.assert_allclose(found.mean[observed], expected, rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(found.variance[observed], 1.0 / precision, rtol=0.0, atol=1e-10)
    assert np.isnan(found.mean[1:3]).any() == (missing > 0.0)


def test_every_executor_gives_the_same_bits_of_gappy_series(monkeypatch):
    grid, y, noise, _, _ = grid_with_gaps(np.linspace(-60.0, 60.0, 6))
    monkeypatch.setattr(series_gaps, "FEW_IN_SERIES", 0)
    found = []
    with ThreadExecutor(2) as threads:
        for executor in (SerialExecutor(), threads):
            found.append(
                cagp.condition_over_times(
                    *(cagp.Prior(KERNEL, noise), grid, HOURS, y, grid),
                    solver=cagp.Rings(),
                    samples=3,
                    executor=executor,
                )
            )
    np.testing.assert_array_equal(found[0].mean, found[1].mean)
    np.testing.assert_array_equal(found[0].variance, found[1].variance)


@pytest.mark.cluster
@pytest.mark.exhaustive
def test_dask_workers_give_the_same_bits_of_gappy_series(two_dask_workers):
    grid, y, noise, _, _ = grid_with_gaps(np.linspace(-60.0, 60.0, 6))
    found = [
        cagp.condition_over_times(
            cagp.Prior(KERNEL, noise), grid, HOURS, y, grid, solver=cagp.Rings(), executor=executor
        )
        for executor in (SerialExecutor(), DaskExecutor(two_dask_workers))
    ]
    np.testing.assert_array_equal(found[0].mean, found[1].mean)
    np.testing.assert_array_equal(found[0].variance, found[1].variance)


def test_what_gappy_series_cannot_be_solved_with_is_refused():
    grid, y, _, _, _ = grid_with_gaps(np.linspace(-60.0, 60.0, 6))
    uneven = np.random.default_rng(2).uniform(0.1, 1.0, grid.shape)
    for noise, solver, said in (
        (0.1, cagp.GaussSeidel(3), "mean is estimated, and solver is GaussSeidel"),
        (uneven, cagp.Rings(), "varies along a latitude"),
        (np.ones(3), cagp.Rings(), "one for each of the 42 places"),
    ):
        with pytest.raises(ArgumentError, match=said):
            cagp.condition_over_times(cagp.Prior(KERNEL, noise), grid, HOURS, y, grid, solver=solver)
    y[0, 0, 0] = np.inf
    with pytest.raises(ArgumentError, match="y holds infinity"):
        cagp.condition_over_times(cagp.Prior(KERNEL, 0.1), grid, HOURS, y, grid, solver=cagp.Rings())


@pytest.mark.parametrize("y", [[[1.0, np.nan, 2.0]], [[1.0, np.nan, 2.0], [0.0, np.nan, 1.0]]])
def test_a_place_that_was_never_observed_is_no_observation(y):
    """At one time, at all, and where there is no observation but the prior."""
    X, hours, prior = (
        cagp.unit_sphere([48.0, 52.0, 50.0], [11.0, 13.0, 8.0]),
        HOURS[: len(y)],
        cagp.Prior(KERNEL, 0.1),
    )
    told, own = np.asarray(y)[:, [0, 2]], X[[0, 2]]
    for function, targets in ((cagp.condition_over_times, (X,)), (cagp.log_likelihood_over_times, ())):
        found, exact = (
            function(prior, where, hours, values, *targets, solver=cagp.Cholesky())
            for where, values in ((X, y), (own, told))
        )
        for name in ("mean", "variance") if targets else ():
            np.testing.assert_allclose(getattr(found, name), getattr(exact, name), rtol=0.0, atol=1e-12)
        if not targets:
            assert found == pytest.approx(exact, rel=1e-12)
    nothing = np.full((len(y), 3), np.nan)
    found = cagp.condition_over_times(prior, X, hours, nothing, X, solver=cagp.Cholesky())
    assert not found.mean.any()
    np.testing.assert_allclose(found.variance, KERNEL.variance, rtol=1e-12)
