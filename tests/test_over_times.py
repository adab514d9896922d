"""Places that were all observed at every time: modes against dense solves of all points and times."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError
from cagp_dist.posterior.left_out import each_left_out
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.runtime.dask import DaskExecutor

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
def test_modes_of_places_are_the_posterior_of_all_times_t44(in_time):
    """At observed and other times, with a noise by place; of the last kernel most modes are rounding."""
    kernel, X, Z = cagp.SpaceTime(PRODUCT.space, in_time), places(40, 0), places(6, 1)
    rng = np.random.default_rng(2)
    noise, y = rng.uniform(0.1, 1.0, 40), rng.normal(size=(len(HOURS), 40))
    prior = cagp.Prior(kernel, noise, mean=rising)
    found = cagp.condition_over_times(prior, X, HOURS, y, Z, at=AT)
    mean, variance = by_points(noise, X, y, Z, kernel)
    np.testing.assert_allclose(found.mean, mean, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(found.variance, variance, rtol=0.0, atol=1e-8)
    assert found.status.value == "exact"


GRIDS = {
    "mirrored": np.linspace(-75.0, 75.0, 6),
    "pole": np.array([-90.0, -50.0, -10.0, 5.0, 60.0]),
    "both poles": np.linspace(90.0, -90.0, 5),
}
by_grid = pytest.mark.parametrize("latitudes", GRIDS.values(), ids=GRIDS)


def fields_on(latitudes, seed=3, mean=rising):
    """A grid with noise by latitude, its prior and fields; and the same as places, of a pole one."""
    grid, rng = cagp.LatLonGrid(latitudes, 7), np.random.default_rng(seed)
    y = rng.normal(size=(len(HOURS), *grid.shape))
    noise = np.repeat(rng.uniform(0.1, 1.0, len(latitudes)), 7)
    merged, there = y.copy(), np.ones(grid.size, dtype=bool)
    for pole in np.flatnonzero(np.abs(latitudes) == 90.0):
        merged[:, pole] = y[:, pole].mean(axis=1, keepdims=True)
        there[7 * pole + 1 : 7 * pole + 7] = False
    prior = cagp.Prior(PRODUCT, noise.reshape(grid.shape), mean=mean)
    places = cagp.Prior(PRODUCT, np.tile(noise[there], len(HOURS)), mean=mean)
    return grid, y, prior, (places, grid.points[there], merged.reshape(len(HOURS), -1)[:, there])


@by_grid
def test_whole_grids_are_the_posterior_of_their_points_t44(latitudes):
    """On the grid and beside it, jointly by samples, and their density."""
    grid, y, prior, (dense_prior, X, values) = fields_on(latitudes)
    beside = cagp.unit_sphere([3.0, 44.0, 90.0], [12.0, 80.0, 0.0])
    drawn = latitudes is GRIDS["both poles"]
    for to, Z in ((grid, grid.points), (beside, beside)):
        found = cagp.condition_over_times(prior, grid, HOURS, y, to, at=AT)
        exact = cagp.condition(
            *(dense_prior, at_all_times(X, HOURS), values.ravel(), at_all_times(Z, AT)),
            solver=cagp.Cholesky(),
            covariance="full" if drawn else "diagonal",
        )
        assert found.mean.shape == (len(AT), *(grid.shape if to is grid else (3,)))
        np.testing.assert_allclose(found.mean.ravel(), exact.mean, rtol=0.0, atol=1e-11)
        np.testing.assert_allclose(found.variance.ravel(), exact.variance, rtol=0.0, atol=1e-11)
        assert found.status is cagp.Status.EXACT
        if to is grid and drawn:
            samples, chosen = 500, slice(0, 40 * len(AT), 9)
            fields = cagp.sample_over_times(
                *(prior, grid, HOURS, y), at=AT, samples=samples, generator=np.random.default_rng(0)
            )
            errors = (fields.reshape(samples, -1) - exact.mean)[:, chosen]
            covariance = exact.covariance[chosen, chosen]
            spread = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / samples)
            assert (np.abs(errors.T @ errors / samples - covariance) < 5.0 * spread).all()
    points = at_all_times(X, HOURS)
    G = PRODUCT(points, points) + np.diag(np.asarray(dense_prior.noise_variance))
    expected = multivariate_normal(rising(points), G).logpdf(values.ravel())
    assert cagp.log_likelihood_over_times(prior, grid, HOURS, y) == pytest.approx(expected, rel=1e-12)


def test_the_likelihood_of_places_is_that_of_the_dense_kronecker_form_t44():
    rng = np.random.default_rng(7)
    X, noise, y = places(40, 0), rng.uniform(0.1, 1.0, 40), rng.normal(size=(len(HOURS), 40))
    K = np.kron(PRODUCT.time(HOURS[:, None], HOURS[:, None]), PRODUCT.space(X, X))
    expected = multivariate_normal(
        rising(at_all_times(X, HOURS)), K + np.diag(np.tile(noise, len(HOURS)))
    ).logpdf(y.ravel())
    found = cagp.log_likelihood_over_times(cagp.Prior(PRODUCT, noise, mean=rising), X, HOURS, y)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("mean", [rising, cagp.mean_family("quadratic-latitude")], ids=["known", "estimated"])
@by_grid
def test_leave_one_out_over_times_is_that_of_each_observation_alone(latitudes, mean):
    grid, y, prior, (dense_prior, X, values) = fields_on(latitudes, mean=mean)
    found = cagp.leave_one_out_over_times(prior, grid, HOURS, y)
    assert found.mean.shape == found.variance.shape == y.shape
    points = at_all_times(X, HOURS)
    expected = each_left_out(dense_prior, points, values.ravel())
    there = np.isclose(grid.points[:, None], X[None]).all(axis=2).argmax(axis=0)
    for ours, theirs in zip(found, expected, strict=True):
        flat = ours.reshape(len(HOURS), -1)[:, there].ravel()
        np.testing.assert_allclose(flat, theirs.ravel(), rtol=0.0, atol=1e-9)


def test_threads_and_a_cluster_give_the_same_bits(two_dask_workers):
    grid, y, prior, _ = fields_on(GRIDS["mirrored"])
    beside, found = cagp.unit_sphere([12.0], [1.0]), []
    heard: list[float] = []
    with ThreadExecutor(2) as threads:
        for executor in (SerialExecutor(), threads, DaskExecutor(two_dask_workers)):
            parts = [
                cagp.condition_over_times(
                    *(prior, grid, HOURS, y, to),
                    at=AT,
                    executor=executor,
                    progress=lambda state: heard.append(state.fraction),
                )
                for to in (grid, beside)
            ]
            half = heard[: len(heard) // 2]  # modes, wavenumber by wavenumber
            assert heard == 2 * half
            assert half == sorted(half)
            assert len(half) > 2
            assert half[-1] == 1.0
            heard.clear()
            left_out = cagp.leave_one_out_over_times(prior, grid, HOURS, y, executor=executor)
            found.append([each for part in parts for each in (part.mean, part.variance)] + [*left_out])
    for other in found[1:]:
        for ours, theirs in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_degrees_and_dates_are_refused():
    X, y = places(4, 0), np.zeros((2, 4))
    prior, degrees = cagp.Prior(PRODUCT, 0.1), np.array([[48.0, 11.0], [50.0, 9.0], [52.0, 8.0], [47.0, 7.0]])
    dates = np.array(["2024-07-01", "2024-07-02"], "datetime64[ns]")
    for where, hours, to, at, key in (
        (degrees, [0.0, 1.0], X, None, "columns"),
        (X, [0.0, 1.0], degrees, None, "columns"),
        (2.0 * X, [0.0, 1.0], X, None, "unit-vectors"),
        (X, dates, X, None, "hours"),
        (X, [0.0, 1.0], X, dates, "hours"),
        (X, [0.0, 1.0], X, [np.nan], "hours"),
    ):
        with pytest.raises(ArgumentError) as refusal:
            cagp.condition_over_times(prior, where, hours, y, to, at=at)
        assert refusal.value.key == key
    assert cagp.condition_over_times(prior, X, [0, 1], y, X, at=0.5).mean.shape == (1, 4)


def test_what_is_no_complete_series_is_refused():
    X, y = places(4, 0), np.zeros((2, 4))
    metric = cagp.SpaceTime(cagp.Matern32(0.3), lengthscale_time=6.0)
    for kernel, hours, key in (
        (metric, [0.0, 1.0], "no-product"),
        (cagp.Matern32(0.3), [0.0, 1.0], "no-product"),
        (PRODUCT, [1.0, 1.0], "times"),
        (PRODUCT, [0.0, 1.0, 2.0], "shapes"),
    ):
        with pytest.raises(ArgumentError) as refusal:
            cagp.condition_over_times(cagp.Prior(kernel, 0.1), X, hours, y, X)
        assert refusal.value.key == key
    y[1, 2] = np.nan
    with pytest.raises(ArgumentError) as caught:
        cagp.condition_over_times(cagp.Prior(PRODUCT, 0.1), X, [0.0, 1.0], y, X)
    assert caught.value.key == "gaps-over-times"
    grid, fields, prior, _ = fields_on(GRIDS["mirrored"])
    uneven = np.random.default_rng(0).uniform(0.1, 1.0, grid.shape)
    with pytest.raises(ArgumentError) as caught:
        cagp.condition_over_times(cagp.Prior(prior.kernel, uneven), grid, HOURS, fields, grid)
    assert caught.value.key == "no-rings"
    with pytest.raises(ArgumentError) as refusal:
        cagp.condition_over_times(cagp.Prior(PRODUCT, 0.0), X, [0.0, 1.0], np.zeros((2, 4)), X)
    assert refusal.value.key == "not-positive"
    estimated = cagp.Prior(PRODUCT, 0.1, cagp.mean_family("constant"))
    with pytest.raises(ArgumentError) as refusal:
        cagp.log_likelihood_over_times(estimated, X, [0.0, 1.0], y)
    assert refusal.value.key == "mean"


def test_a_mean_is_estimated_from_all_times():
    """As `condition` does it of points in space and time."""
    rng = np.random.default_rng(0)
    X, hours, at = places(9, 1), np.array([0.0, 2.0, 7.0, 8.0]), np.array([1.0, 7.0, 20.0])
    y = 280.0 + rng.standard_normal((4, 9))
    prior, wanted = cagp.Prior(PRODUCT, 0.2, cagp.mean_family("quadratic-latitude")), places(5, 2)
    found = cagp.condition_over_times(prior, X, hours, y, wanted, at=at)
    points = np.column_stack([np.tile(X, (4, 1)), np.repeat(hours, 9)])
    targets = np.column_stack([np.tile(wanted, (3, 1)), np.repeat(at, 5)])
    dense = cagp.condition(prior, points, y.ravel(), targets, solver=cagp.Cholesky())
    np.testing.assert_allclose(found.mean.ravel(), dense.mean, rtol=1e-9)
    np.testing.assert_allclose(found.variance.ravel(), dense.variance, rtol=1e-8)
    np.testing.assert_allclose(found.coefficients.values, dense.coefficients.values, rtol=1e-6)
    np.testing.assert_allclose(found.coefficients.std, dense.coefficients.std, rtol=1e-6)
