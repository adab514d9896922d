"""Filter of fields of a grid against solves with all times."""

import numpy as np
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, FitError
from cagp_dist.runtime import SerialExecutor, ThreadExecutor
from cagp_dist.runtime.dask import DaskExecutor

HOURS = np.array([0.0, 24.0, 30.0, 96.0, 97.5])
SPACE = cagp.Matern32(0.4, 3.0)
MIRRORED = cagp.LatLonGrid(np.linspace(-75.0, 75.0, 6), 9)
WITH_A_POLE = cagp.LatLonGrid(np.array([-90.0, -50.0, -10.0, 5.0, 60.0]), 8)
IN_TIME = [cagp.Matern12(40.0), cagp.Matern32(40.0)]


def days(grid, in_time, executor=None):
    kernel = cagp.SpaceTime(SPACE, in_time)
    noise = 0.2 + 0.3 * np.cos(np.deg2rad(grid.latitude_degrees)) ** 2
    fields = np.random.default_rng(0).normal(size=(HOURS.size, *grid.shape))
    found = cagp.RingFilter(grid, kernel, noise_variance=noise, executor=executor)
    prior = cagp.Prior(kernel, np.repeat(noise, grid.n_longitudes).reshape(grid.shape))
    return found, prior, fields


def batch(prior, grid, hours, fields, to, at):
    """Solve by solves in space with all times, none of which knows of states."""
    X = grid.points if not np.isclose(np.abs(grid.latitude_degrees), 90.0).any() else grid
    if X is not grid:
        prior = cagp.Prior(prior.kernel, np.asarray(prior.noise_variance).ravel())
        fields = fields.reshape(len(fields), -1)
    found = cagp.condition_over_times(prior, X, hours, fields, to, at=at)
    return found.mean, found.variance


@pytest.mark.parametrize("in_time", IN_TIME, ids=["matern12", "matern32"])
@pytest.mark.parametrize("grid", [MIRRORED, WITH_A_POLE], ids=["mirrored", "pole"])
def test_the_filter_is_the_batch_of_the_hours_up_to_now_t45(grid, in_time):
    """To 1e-10, after each hour, on the grid, between its points, and ahead."""
    found, prior, fields = days(grid, in_time)
    elsewhere = cagp.unit_sphere([12.0, -48.0, -88.0], [1.0, 100.0, 300.0])
    state = None
    for t, hour in enumerate(HOURS):
        state = found.updated(state, hour, fields[t])
        upto = (HOURS[: t + 1], fields[: t + 1])
        mean, variance = batch(prior, grid, *upto, grid.points, [hour])
        on_grid, by_latitude = found.on_grid(state)
        np.testing.assert_allclose(on_grid.ravel(), mean[0], rtol=0.0, atol=1e-10)
        np.testing.assert_allclose(
            np.repeat(by_latitude, grid.n_longitudes), variance[0], rtol=0.0, atol=1e-10
        )
    for hour, known in ((HOURS[-1], state), (150.0, found.forecast(state, 150.0))):
        mean, variance = batch(prior, grid, HOURS, fields, elsewhere, [hour])
        for ours, theirs in zip(found.at(known, elsewhere), (mean[0], variance[0]), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("grid", [MIRRORED, WITH_A_POLE], ids=["mirrored", "pole"])
def test_a_value_is_predicted_from_all_others_of_its_hour_and_the_hours_before(grid):
    """Against dense solves without it, with a pole as one place."""
    found, prior, fields = days(grid, IN_TIME[1])
    state = found.updated(found.updated(None, HOURS[0], fields[0]), HOURS[1], fields[1])
    mean, variance = found.left_out(found.innovation(state, HOURS[2], fields[2]))
    index, Q = np.arange(grid.size), grid.n_longitudes
    pole = np.abs(np.repeat(grid.latitude_degrees, Q)) == 90.0
    places = np.flatnonzero(~pole | (index % Q == 0))
    noise, values = np.asarray(prior.noise_variance).ravel(), fields[:3].copy()
    values[:, grid.latitude_degrees == -90.0] = values[:, grid.latitude_degrees == -90.0].mean(
        2, keepdims=True
    )
    X = np.column_stack([np.tile(grid.points[places], (3, 1)), np.repeat(HOURS[:3], places.size)])
    y, own = values.reshape(3, -1)[:, places].ravel(), np.tile(noise[places], 3)
    for place in (0, 2 * Q + 3):
        rest = np.arange(y.size) != 2 * places.size + np.flatnonzero(places == place)[0]
        oracle = cagp.condition(
            cagp.Prior(prior.kernel, own[rest]), X[rest], y[rest], X[~rest], solver=cagp.Cholesky()
        )
        assert abs(mean.flat[place] - oracle.mean[0]) < 1e-9
        assert abs(variance[place // Q, 0] - oracle.variance[0] - own[~rest][0]) < 1e-9


@pytest.mark.parametrize("in_time", IN_TIME, ids=["matern12", "matern32"])
def test_the_lengthscale_in_time_is_that_of_largest_likelihood(in_time):
    """By the likelihood of all hours at once, 5 % to both sides, of a field that lasts."""
    found, prior, fields = days(MIRRORED, in_time)
    fields += 3.0 * np.sin(HOURS / 60.0)[:, None, None] * fields[0]
    order = np.array([2, 0, 3, 1, 4])
    best, error = found.fitted_hours(HOURS[order], fields[order])
    noise, flat = np.asarray(prior.noise_variance).ravel(), fields.reshape(HOURS.size, -1)
    likelihoods = [
        cagp.log_likelihood_over_times(
            cagp.Prior(cagp.SpaceTime(SPACE, type(in_time)(factor * best)), noise),
            *(MIRRORED.points, HOURS, flat),
        )
        for factor in (0.95, 1.0, 1.05)
    ]
    assert likelihoods[1] > max(likelihoods[0], likelihoods[2])
    step = np.log(1.05)
    curvature = (2.0 * likelihoods[1] - likelihoods[0] - likelihoods[2]) / step**2
    assert error == pytest.approx(best / np.sqrt(curvature), rel=0.05)
    going_on, anew = found.with_time(type(in_time)(best)), days(MIRRORED, type(in_time)(best))[0]
    states = [each.updated(each.updated(None, 0.0, fields[0]), 24.0, fields[1]) for each in (going_on, anew)]
    np.testing.assert_array_equal(states[0].weights, states[1].weights)


def test_fields_that_never_change_do_not_tell_a_lengthscale_in_time():
    found, _, fields = days(MIRRORED, IN_TIME[0])
    signal = np.linalg.cholesky(SPACE(MIRRORED.points, MIRRORED.points) + 1e-9 * np.eye(MIRRORED.size))
    fields[:] = (signal @ np.random.default_rng(3).normal(size=MIRRORED.size)).reshape(MIRRORED.shape)
    with pytest.raises(FitError) as refused:
        found.fitted_hours(HOURS, fields)
    assert refused.value.key == "lengthscale-in-time"


def test_threads_and_a_cluster_give_the_bits_of_the_series(two_dask_workers):
    results = []
    with ThreadExecutor(2) as threads:
        for executor in (SerialExecutor(), threads, DaskExecutor(two_dask_workers)):
            found, _, fields = days(MIRRORED, IN_TIME[1], executor)
            state = found.updated(found.updated(None, 0.0, fields[0]), 30.0, fields[1])
            results.append(
                (
                    *found.on_grid(state),
                    *found.at(state, cagp.unit_sphere([12.0], [1.0])),
                    *found.left_out(found.innovation(state, 96.0, fields[2])),
                )
            )
    for other in results[1:]:
        for ours, theirs in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_what_is_no_series_of_complete_fields_is_refused():
    found, _, fields = days(MIRRORED, IN_TIME[0])
    state = found.updated(None, 10.0, fields[0])
    with pytest.raises(ArgumentError) as refused:
        found.updated(state, 9.0, fields[1])
    assert refused.value.key == "hour-before-state"
    with pytest.raises(ArgumentError) as refusal:
        found.updated(state, 20.0, np.where(np.arange(9) + np.arange(6)[:, None] == 0, np.nan, fields[1]))
    assert refusal.value.key == "shapes"
    with pytest.raises(ArgumentError) as refused:
        found.fitted_hours([0.0, 0.0], fields[:2])
    assert refused.value.key == "few-times"
    with pytest.raises(ArgumentError) as refused:
        days(MIRRORED, cagp.Matern52(3.0))
    assert refused.value.key == "not-markov"
