"""Maps at given times from the observations of all times, against the dense posterior and separate maps."""

import datetime as dt
import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import multivariate_normal

import cagp_dist as cagp
from cagp_dist.errors import ArgumentError, BudgetError, TimeLimitError
from cagp_dist.pipeline import maps_at_times
from cagp_dist.predictive import Gaussian

KERNEL = cagp.SpaceTime(cagp.Matern32(0.05, 4.0), lengthscale_time=10.0)
HOURS = np.arange(12.0)
KNOWN = {"kernel": KERNEL, "noise_std": 0.3, "mean": 15.0, "progress": False}
SPACE = {"kernel": cagp.Matern32(0.05, 4.0), "noise_std": 0.3, "mean": 15.0, "progress": False}


@pytest.fixture(scope="module")
def drawn():
    """Stations of twelve hours with noise .3, a third of whose values is not told; latitude, X, field."""
    rng = np.random.default_rng(0)
    latitude, longitude = rng.uniform(47.0, 55.0, 25), rng.uniform(6.0, 15.0, 25)
    X = np.column_stack([np.tile(cagp.unit_sphere(latitude, longitude), (12, 1)), np.repeat(HOURS, 25)])
    field = np.linalg.cholesky(KERNEL(X, X) + 1e-9 * np.eye(300)) @ rng.normal(size=300) + 15.0
    table = pd.DataFrame(
        {
            "lat": np.tile(latitude, 12),
            "lon": np.tile(longitude, 12),
            "time": np.repeat(pd.date_range("2024-07-01", periods=12, freq="h"), 25),
            "temperature (degC)": field + 0.3 * rng.normal(size=300),
        }
    )
    return table, X, field, rng.random(300) > 1.0 / 3.0


def test_maps_are_those_of_all_values_with_their_hours(drawn):
    """Given kernel, noise and mean: the dense posterior at an observed time, between times and after."""
    table, X, _, told = drawn
    at = ["2024-07-01T05:00", "2024-07-01T06:30", "2024-07-01T14:00"]
    found = cagp.krige(table[told], to=2.0, at=at, kernel=KERNEL, noise_std=0.3, mean=15.0)
    assert found["mean"].dims == ("time", "latitude", "longitude")
    np.testing.assert_array_equal(found.time, pd.to_datetime(at))
    latitude, longitude = np.meshgrid(found.latitude, found.longitude, indexing="ij")
    places = cagp.unit_sphere(latitude.ravel(), longitude.ravel())
    targets = np.column_stack([np.tile(places, (3, 1)), np.repeat([5.0, 6.5, 14.0], len(places))])
    y = table["temperature (degC)"].to_numpy()[told]
    expected = cagp.condition(cagp.Prior(KERNEL, 0.09, 15.0), X[told], y, targets, solver=cagp.Cholesky())
    np.testing.assert_allclose(found["mean"].values.ravel(), expected.mean, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(found["std"].values.ravel() ** 2, expected.variance, rtol=0.0, atol=1e-9)
    assert found.attrs["status"] == "exact"
    assert found.attrs["lengthscale_hours"] == 10.0
    by_prior = cagp.krige(table[told], to=2.0, at=at, prior=cagp.Prior(KERNEL, 0.09, 15.0))
    xr.testing.assert_equal(by_prior["mean"], found["mean"])
    aware = pd.to_datetime(at).tz_localize("UTC").tz_convert("Europe/Berlin")
    moved = cagp.krige(table[told], to=2.0, at=aware, kernel=KERNEL, noise_std=0.3, mean=15.0)
    xr.testing.assert_equal(moved["mean"], found["mean"])


def test_a_kernel_is_chosen_and_hours_inform_each_other(drawn):
    """Errors at values that were not told are smaller than those of separate maps, and as large as stated."""
    table, _, field, told = drawn
    places = table[["lat", "lon"]].drop_duplicates()
    found = cagp.krige(table[told], to=places, at="observed", progress=False)
    separate = cagp.krige(table[told], to=places, progress=False)
    errors = (found["mean"].values - field.reshape(12, 25))[~told.reshape(12, 25)]
    apart = (separate["mean"].values - field.reshape(12, 25))[~told.reshape(12, 25)]
    assert np.sqrt(np.mean(errors**2)) < 0.8 * np.sqrt(np.mean(apart**2))
    stated = found["std"].values[~told.reshape(12, 25)]
    assert 0.6 < np.sqrt(np.mean((errors / stated) ** 2)) < 1.6  # some ten independent errors
    assert 3.0 < found.attrs["lengthscale_hours"] < 40.0
    assert "SpaceTime" in found.attrs["kernel"]
    assert found.attrs["fit_status"] == "converged"
    assert found.attrs["hyperparameters"].startswith("plugged in: ")


@pytest.mark.parametrize("shared", [0.3, pytest.param(0.0, marks=pytest.mark.exhaustive)])
def test_what_lasts_at_a_place_is_told_from_weather(shared):
    """Drawn from a metric kernel plus a product: that sum is chosen, with numbers near the true ones.

    Neighbours share what lasts, or each place has its own.
    """
    rng, times = np.random.default_rng(4), pd.date_range("2024-07-01", periods=12, freq="3h")
    latitude, longitude = rng.uniform(45.0, 60.0, 14), rng.uniform(0.0, 25.0, 14)
    weather = cagp.SpaceTime(cagp.Matern32(0.3, 4.0), lengthscale_time=6.0)
    lasting = cagp.SpaceTime(cagp.Matern12(max(shared, 1e-4), 2.0), cagp.Matern12(300.0))
    X = np.column_stack(
        [np.tile(cagp.unit_sphere(latitude, longitude), (12, 1)), np.repeat(3.0 * np.arange(12), 14)]
    )
    factor = np.linalg.cholesky((weather + lasting)(X, X) + 0.01 * np.eye(168))
    columns = {"lat": np.tile(latitude, 12), "lon": np.tile(longitude, 12), "time": np.repeat(times, 14)}
    table = pd.DataFrame({**columns, "temperature (degC)": factor @ rng.normal(size=168) + 15.0})
    model = cagp.Kriging(at="observed", progress=False).fit(table)
    changing, staying = model.prior_.kernel.parts
    assert changing.time is None
    assert 3.0 < changing.lengthscale[1] < 12.0
    assert isinstance(staying.time, cagp.Matern12)
    assert staying.time.lengthscale > 50.0  # of 33 hours that were observed
    assert 0.5 < staying.variance < 8.0
    assert (staying.space.lengthscale > 0.02) == (shared > 0.0)


@pytest.mark.exhaustive
def test_many_stations_with_nothing_set_predict_as_with_true_numbers(monkeypatch):
    """CRPS and 90 % bars at twelve places without a station, for 16 stations that count as many."""
    monkeypatch.setattr(maps_at_times, "COMPARED", 150)
    monkeypatch.setattr(maps_at_times, "FITTED", 150)  # less than a dozen hours of all of them
    rng, hours = np.random.default_rng(1), np.arange(48.0)
    latitude, longitude = rng.uniform(45.0, 60.0, 28), rng.uniform(0.0, 25.0, 28)
    weather = cagp.SpaceTime(cagp.Matern32(0.08, 4.0), lengthscale_time=8.0)
    kernel = weather + cagp.SpaceTime(cagp.Matern12(1e-4, 0.5), cagp.Matern12(1e5))
    X = np.column_stack([np.tile(cagp.unit_sphere(latitude, longitude), (48, 1)), np.repeat(hours, 28)])
    factor = np.linalg.cholesky(kernel(X, X) + 1e-9 * np.eye(len(X)))
    field = (factor @ rng.normal(size=len(X)) + 15.0).reshape(48, 28)
    times = pd.date_range("2024-07-01", periods=48, freq="h")
    places = pd.DataFrame({"lat": latitude, "lon": longitude})
    table = pd.concat([places[:16].assign(time=when) for when in times], ignore_index=True)
    table["temperature (degC)"] = (field[:, :16] + 0.1 * rng.normal(size=(48, 16))).ravel()
    crps, at = [], np.arange(4, 48, 8)
    for settings in ({"kernel": kernel, "noise_std": 0.1}, {}):
        found = cagp.krige(table, to=places[16:], at=times[at], progress=False, **settings)
        mean, std, true = found["mean"].values, found["std"].values, field[at][:, 16:]
        crps.append(Gaussian(mean.ravel(), std.ravel()).crps(true.ravel()).reshape(true.shape).mean(axis=0))
    # places are far apart: twelve independent means over hours, whose standard errors the bounds are from
    lost, inside = crps[1] - crps[0], (np.abs(mean - true) < 1.645 * std).mean(axis=0)
    errors = [np.std(each, ddof=1) / np.sqrt(12.0) for each in (lost, inside)]
    assert lost.mean() < 3.0 * errors[0] < 0.1 * crps[0].mean()
    assert abs(inside.mean() - 0.9) < 3.0 * errors[1] < 0.15


@pytest.mark.parametrize("jitter", [0.0, 0.4])
@pytest.mark.parametrize("stations", [10, 300])
def test_whole_hours_of_mixed_lags_are_chosen(jitter, stations):
    """Each hour with all its values, or those of some stations; of few stations lags of a day as well.

    Of many stations hours follow each other: else bars of hours that are missing are too narrow.
    """
    rng, hours = np.random.default_rng(1), np.repeat(np.arange(400.0), stations)
    places = np.tile(np.arange(stations), 400)
    where = cagp.unit_sphere(rng.uniform(46.0, 55.0, stations), rng.uniform(5.0, 17.0, stations))[places]
    X = np.column_stack([where, hours + jitter * rng.random(hours.size)])
    order = rng.permutation(hours.size)
    X, places, hours = X[order], places[order], hours[order]
    chosen = maps_at_times.whole_times(X, places, 500)
    assert 350 <= chosen.size <= 600
    kept = np.unique(places[chosen])
    assert kept.size == stations or stations == 300
    expected = np.isin(hours, times := np.unique(hours[chosen])) & np.isin(places, kept)
    np.testing.assert_array_equal(chosen, np.flatnonzero(expected))
    lags = set(np.abs(times[:, None] - times).ravel())
    assert lags >= ({1.0, 2.0, 3.0, 4.0, 5.0} if stations == 300 else {1.0, 2.0, 3.0, 6.0, 12.0, 24.0})
    assert (np.diff(times) == 1.0).sum() == 10 or stations == 10  # two runs of six
    assert max(lags) > 350.0


def test_noise_of_each_place_counts(drawn):
    table, X, _, _ = drawn
    noisy = table.assign(noise_std=np.where(table.lat > 51.0, 2.0, 0.3))
    noise = noisy["noise_std"].to_numpy() ** 2
    found = cagp.krige(noisy, to=2.0, at=["2024-07-01T05:00"], kernel=KERNEL, mean=15.0)
    latitude, longitude = np.meshgrid(found.latitude, found.longitude, indexing="ij")
    places = cagp.unit_sphere(latitude.ravel(), longitude.ravel())
    targets = np.column_stack([places, np.full(len(places), 5.0)])
    y = noisy["temperature (degC)"].to_numpy()
    expected = cagp.condition(cagp.Prior(KERNEL, noise, 15.0), X, y, targets, solver=cagp.Cholesky())
    np.testing.assert_allclose(found["std"].values.ravel() ** 2, expected.variance, rtol=0.0, atol=1e-9)


def test_what_maps_at_times_do_not_have_is_said(drawn):
    table, *_ = drawn
    at = ["2024-07-01T05:00"]
    for settings, key in (
        ({"at": ["noon"]}, "times"),
        ({"at": []}, "times"),
        ({"at": at, "hyperparameters": "integrate"}, "at-with-others"),
        ({"causal": True}, "causal-without-times"),
        ({"at": at, "lengthscale_km": 300.0}, "at-with-others"),
        ({"at": at, "kernel": cagp.Matern32(0.1)}, "kernel-of-time"),
        ({"at": at, "kernel": KERNEL, "noise_std": 0.3, "solver": "rings"}, "no-rings"),
        ({"at": 12}, "times"),  # hours
        ({"at": [3.0, 5.0]}, "times"),
        ({"at": "01/07/2024"}, "times"),
        ({"at": "2500-01-01"}, "times"),
        ({"at": at, "prior": cagp.Prior(cagp.Matern32(0.1), 0.1)}, "kernel-of-time"),
        ({"kernel": KERNEL}, "kernel-of-time"),
        ({"prior": cagp.Prior(KERNEL, 0.1)}, "kernel-of-time"),
    ):
        with pytest.raises(ArgumentError) as refusal:
            cagp.krige(table, to=2.0, **settings)
        assert refusal.value.key == key
    with pytest.raises(ArgumentError) as refused:
        cagp.krige(table[:25].drop(columns="time"), to=2.0, at=at, kernel=KERNEL, noise_std=0.3)
    assert refused.value.key == "no-times"
    with pytest.raises(ArgumentError) as refused:
        cagp.Kriging(at=at).fit(table[["lat", "lon"]].to_numpy(), table["temperature (degC)"])
    assert refused.value.key == "no-times"
    with pytest.raises(ArgumentError) as refused:
        cagp.Kriging(**SPACE).fit(table).predict(2.0, at=at)
    assert refused.value.key == "at-after-fit"
    with pytest.raises(ArgumentError) as refused:
        cagp.Kriging(**SPACE).fit(table).cross_validate(by="day")
    assert refused.value.key == "days-fitted-separately"
    with pytest.raises(ArgumentError) as refusal:
        cagp.Kriging(at=at, **KNOWN).fit(table).cross_validate(by="day")
    assert refusal.value.key == "few-places"


def test_times_are_read_in_every_form(drawn):
    table, *_ = drawn
    settings = {"to": 2.0, "kernel": KERNEL, "noise_std": 0.3, "mean": 15.0}
    expected = cagp.krige(table, at="2024-07-01T05:30", **settings)
    moment = dt.datetime(2024, 7, 1, 5, 30)
    for at in (
        [moment, moment],
        pd.Timestamp(moment),
        np.datetime64(moment, "s"),
        np.array([moment], "datetime64[ns]"),
        pd.DatetimeIndex([moment]),
        ["2024-07-01 07:30+02:00"],
    ):
        xr.testing.assert_equal(cagp.krige(table, at=at, **settings), expected)


def test_long_work_is_stopped_and_many_targets_are_cut(drawn, monkeypatch):
    table, *_ = drawn
    at = pd.date_range("2024-07-01", periods=40, freq="10min")
    settings = {"to": 1.0, "at": at, "kernel": KERNEL, "noise_std": 0.3, "mean": 15.0}
    with pytest.raises(TimeLimitError):
        cagp.krige(table, time_limit_seconds=1e-9, **settings)
    whole = cagp.krige(table, **settings)
    with pytest.raises(BudgetError):
        cagp.krige(table, memory_limit_bytes=2**20, **settings)
    monkeypatch.setattr(maps_at_times, "MOST_TOGETHER", 500)
    parts = cagp.krige(table, **settings)
    np.testing.assert_allclose(parts["mean"], whole["mean"], rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(parts["std"], whole["std"], rtol=0.0, atol=1e-9)


def test_a_gap_in_a_series_is_filled_and_far_times_are_said(drawn):
    """A field without any value is no obstacle; a month later the map is the prior, which is said."""
    rng = np.random.default_rng(3)
    field = xr.DataArray(
        15.0 + rng.normal(size=(4, 5, 6)),
        coords={
            "time": pd.date_range("2024-07-01", periods=4, freq="h"),
            "latitude": np.linspace(48.0, 52.0, 5),
            "longitude": np.linspace(6.0, 11.0, 6),
        },
        dims=("time", "latitude", "longitude"),
    )
    field[2] = np.nan
    settings = {"kernel": KERNEL, "noise_std": 0.3, "mean": 15.0}
    filled = cagp.krige(field, at="observed", **settings)
    assert filled.sizes["time"] == 4
    assert float(filled["std"].max()) < 1.5
    with pytest.warns(UserWarning, match="no observation is near any target at these times"):
        cagp.krige(field, at="2024-08-01", **settings)
    sweeps = cagp.BlockGaussSeidel(2, block_size=20)
    unfinished = cagp.krige(field, at="2024-07-01T02:00", solver=sweeps, **settings)
    assert (unfinished["std_computational"] > 0.0).all()


def dense(X, y, targets, noise=0.09, mean=15.0, kernel=KERNEL):
    """Mean and standard deviation of the dense posterior, (q,)."""
    found = cagp.condition(cagp.Prior(kernel, noise, mean), X, y, targets, solver=cagp.Cholesky())
    return found.mean, np.sqrt(found.variance)


def placed(found, hours):
    """Targets of a series of maps on a grid, (q, 4)."""
    latitude, longitude = np.meshgrid(found.latitude, found.longitude, indexing="ij")
    places = cagp.unit_sphere(latitude.ravel(), longitude.ravel())
    return np.column_stack([np.tile(places, (len(hours), 1)), np.repeat(hours, len(places))])


def test_rows_in_any_order_twice_and_with_zones_are_what_they_are(drawn):
    """Zones are converted, a value that is there twice counts twice, each row has its own noise and time."""
    table, X, *_ = drawn
    at = ["2024-07-01T05:10"]
    plain = cagp.krige(table, to=2.0, at=at, **KNOWN)
    assert plain.time.attrs["comment"].startswith("UTC")
    shuffled = table.sample(frac=1.0, random_state=0)
    shuffled["time"] = shuffled["time"].dt.tz_localize("UTC").dt.tz_convert("Asia/Kolkata")
    moved = cagp.krige(shuffled, to=2.0, at=at, **KNOWN)
    np.testing.assert_allclose(moved["mean"], plain["mean"], rtol=0.0, atol=1e-9)
    rng = np.random.default_rng(5)
    twice = pd.concat([table, table[:50]], ignore_index=True)
    minutes = np.append(some := rng.integers(0, 50, len(table)), some[:50])
    twice["time"] += pd.to_timedelta(minutes, unit="min")  # a swath: no two rows need have one time
    twice["noise_std"] = rng.uniform(0.2, 1.0, len(twice))
    with pytest.warns(UserWarning, match="50 rows repeat place, time and value|noise"):
        found = cagp.krige(twice, to=2.0, at=at, kernel=KERNEL, mean=15.0)
    points = np.vstack([X, X[:50]])
    points[:, 3] += minutes / 60.0
    mean, std = dense(
        points, twice["temperature (degC)"], placed(found, [31 / 6]), twice["noise_std"].to_numpy() ** 2
    )
    np.testing.assert_allclose(found["mean"].values.ravel(), mean, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(found["std"].values.ravel(), std, rtol=0.0, atol=1e-9)


def test_days_are_those_of_the_calendar():
    """From 28 February to 1 March it is three days in a year of twelve months of 30 days."""

    class Date:
        calendar = "360_day"

        def __init__(self, year, month, day, hour=0, minute=0, second=0, microsecond=0):
            self.parts = (year, month, day, hour, minute, second, microsecond)
            self.year, self.month, self.day, self.hour, self.minute, self.second, self.microsecond = (
                self.parts
            )

        def replace(self, **parts):
            names = ("year", "month", "day", "hour", "minute", "second", "microsecond")
            if parts.get("day", 1) > 30:
                raise ValueError("day is out of range")
            return Date(**(dict(zip(names, self.parts, strict=True)) | parts))

        def __lt__(self, other):
            return self.parts < other.parts

        def __eq__(self, other):
            return self.parts == other.parts

        def __hash__(self):
            return hash(self.parts)

    rng = np.random.default_rng(4)
    latitude, longitude, dates = [48.0, 50.0, 52.0], [6.0, 9.0], [Date(2001, 2, 28), Date(2001, 3, 1)]
    field = xr.DataArray(
        15.0 + rng.normal(size=(2, 3, 2)),
        coords={"time": np.array(dates, dtype=object), "latitude": latitude, "longitude": longitude},
        dims=("time", "latitude", "longitude"),
    )
    kernel = cagp.SpaceTime(cagp.Matern32(0.05, 4.0), lengthscale_time=60.0)
    known = KNOWN | {"kernel": kernel}
    found = cagp.krige(field, at=["2001-02-30", "2001-03-01T12:00"], **known)
    X = np.vstack([placed(field, [hours]) for hours in (0.0, 72.0)])
    mean, std = dense(X, field.values.ravel(), placed(field, [48.0, 84.0]), kernel=kernel)
    np.testing.assert_allclose(found["mean"].values.ravel(), mean, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(found["std"].values.ravel(), std, rtol=0.0, atol=1e-9)
    assert found.time.values[0] == Date(2001, 2, 30)
    assert cagp.krige(field, at="observed", **known).time.values.tolist() == dates
    scores = cagp.Kriging(at="observed", **known).fit(field).cross_validate(None, by="day")
    assert sorted(set(scores.hours.values)) == [0.0, 72.0]
    with pytest.raises(ArgumentError) as refusal:
        cagp.krige(field, at="2001-02-31", **known)
    assert refusal.value.key == "times"
    days = np.array(["2004-02-28", "2004-03-01"], dtype="datetime64[D]")
    named = field.assign_coords(time=days.astype("datetime64[ns]")).to_dataset(name="t2m")
    between = cagp.krige(
        named.assign_attrs(source_calendar="noleap"), to=field, at="2004-03-01", **known
    )  # read from a file: dates have their names, and lie a day apart in each year
    X = np.vstack([placed(field, [hours]) for hours in (0.0, 24.0)])
    mean, _ = dense(X, field.values.ravel(), placed(field, [24.0]), kernel=kernel)
    np.testing.assert_allclose(between["mean"].values.ravel(), mean, rtol=0.0, atol=1e-9)


def test_one_time_is_mapped_by_itself(drawn):
    """With a kernel of space and time that has its numbers it is one field at any time."""
    table, X, *_ = drawn
    alone = table[:25]
    with pytest.warns(UserWarning, match="all observations have the same time"):
        found = cagp.krige(alone, to=2.0, at=["2024-07-01T05:00"], kernel="matern32", noise_std=0.3)
    expected = cagp.krige(alone, to=2.0, kernel="matern32", noise_std=0.3)
    xr.testing.assert_equal(found["mean"], expected["mean"])
    assert found.time.values == np.datetime64("2024-07-01")
    with pytest.warns(UserWarning, match="all observations have the same time"):
        cagp.krige(alone, to=2.0, at="observed", **SPACE)
    for settings in ({"kernel": KERNEL.family, "noise_std": 0.3}, {"kernel": KERNEL}):
        with pytest.raises(ArgumentError) as refused:
            cagp.krige(alone, to=2.0, at="observed", **settings)
        assert refused.value.key == "one-time"
    later = cagp.krige(alone, to=2.0, at=["2024-07-01T05:00"], **KNOWN)
    mean, std = dense(X[:25], alone["temperature (degC)"], placed(later, [5.0]))
    np.testing.assert_allclose(later["mean"].values.ravel(), mean, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(later["std"].values.ravel(), std, rtol=0.0, atol=1e-9)
    assert later.evidence.values.tolist() == [1]


def test_a_causal_map_does_not_look_ahead_and_says_what_it_has(drawn):
    """That of the observations up to its time, for every solver; before the first one it is the prior."""
    table, X, _, told = drawn
    at = pd.to_datetime(["2024-07-01T06:30", "2024-06-30T00:00", "2024-07-01T06:00", "2024-07-01T20:00"])
    y = table["temperature (degC)"].to_numpy()
    for solver in ("cholesky", cagp.Neighbours(300)):
        found = cagp.krige(table[told], to=2.0, at=at, causal=True, solver=solver, **KNOWN)
        for number, hour in enumerate([6.5, -24.0, 6.0, 20.0]):
            seen = told & (X[:, 3] <= hour)
            mean, std = 15.0, 2.0
            if seen.any():
                mean, std = dense(X[seen], y[seen], placed(found, [hour]))
            np.testing.assert_allclose(found["mean"][number].values.ravel(), mean, rtol=0.0, atol=1e-9)
            np.testing.assert_allclose(found["std"][number].values.ravel(), std, rtol=0.0, atol=1e-9)
        assert found.evidence.values.tolist() == [1, 2, 1, 1]
    smoothed = cagp.krige(table[told], to=2.0, at=at, **KNOWN)
    assert smoothed.evidence.values.tolist() == [0, 1, 0, 1]
    assert (smoothed["std"][0] < found["std"][0]).all()


def test_a_model_is_fitted_once_and_gives_maps_series_samples_and_scores(drawn):
    """Scores of stations and days that are left out are those of the dense posterior without them."""
    table, X, *_ = drawn
    table = table.assign(time=table["time"] + pd.to_timedelta(20, unit="h"))  # over midnight
    model = cagp.Kriging(at="observed", **KNOWN).fit(table)
    places = table[["lat", "lon"]][:3]
    hourly = pd.date_range("2024-07-01T20:00", periods=30, freq="30min", tz="UTC")
    series = model.predict(places, at=hourly)
    assert series["mean"].dims == ("time", "place")
    mean, _ = dense(
        X,
        table["temperature (degC)"],
        np.column_stack([np.tile(X[:3, :3], (30, 1)), np.repeat(np.arange(30) / 2.0, 3)]),
    )
    np.testing.assert_allclose(series["mean"].values.ravel(), mean, rtol=0.0, atol=1e-9)
    xr.testing.assert_equal(cagp.krige(table, to=places, at=hourly, **KNOWN)["mean"], series["mean"])
    assert model.predict(places).sizes["time"] == 12
    np.testing.assert_allclose(
        model.predict(places.to_numpy(), at=hourly), series["mean"].values.T, atol=1e-12
    )
    draws = model.sample(places, 400, at=hourly[:4])
    spread = draws["temperature"].std("sample") / series["std"][:4]
    assert np.abs(spread - 1.0).max() < 5.0 / np.sqrt(800)
    y, X = table["temperature (degC)"].to_numpy(), X + np.array([0.0, 0.0, 0.0, 20.0])
    stations = np.unique(X[:, :3], axis=0, return_inverse=True)[1].ravel()
    for by, group, count in (("station", stations, 25), ("day", X[:, 3] // 24, 2)):
        scores = model.cross_validate(None, by=by)
        assert scores.fold.max() == count - 1
        for value in (0, 60, 299):
            own = group == group[value]
            mean, std = dense(X[~own], y[~own], X[[value]])
            row = np.flatnonzero(np.isclose(scores.observed, y[value], rtol=0.0, atol=1e-12))
            np.testing.assert_allclose(scores["mean"][row], mean, rtol=0.0, atol=1e-9)
            np.testing.assert_allclose(scores["std"][row], std, rtol=0.0, atol=1e-9)
            assert scores.time.values[row[0]] == table["time"].iloc[value]
    assert model.cross_validate(4, blocks_degrees=2.0).fold.max() == 3


def test_drifts_cells_and_recalibration_go_with_times(drawn):
    """Universal kriging and means over cells against dense matrices; too narrow distributions are widened."""
    table, X, *_ = drawn
    height = 10.0 * np.sin(3.0 * table["lat"]) + table["lon"]
    raised = table.assign(elevation=height)
    raised["temperature (degC)"] -= 0.65 * height
    at, places = ["2024-07-01T05:30"], raised[["lat", "lon", "elevation"]][:5]
    settings = {"kernel": KERNEL, "noise_std": 0.3, "progress": False}
    found = cagp.krige(raised, to=places, at=at, mean="elevation", **settings)
    H = np.column_stack([np.ones(300), height])
    G, y = KERNEL(X, X) + 0.09 * np.eye(300), raised["temperature (degC)"].to_numpy()
    Z = np.column_stack([X[:5, :3], np.full(5, 5.5)])
    known = np.linalg.solve(G, np.column_stack([KERNEL(X, Z), H]))
    weights, solved = known[:, :5], known[:, 5:]
    square = H.T @ solved
    coefficients = np.linalg.solve(square, solved.T @ y)
    unseen = H[:5] - weights.T @ H
    mean = weights.T @ y + unseen @ coefficients
    variance = KERNEL.variance - np.einsum("ij,ij->j", KERNEL(X, Z), weights)
    variance += np.einsum("ij,ji->i", unseen, np.linalg.solve(square, unseen.T))
    np.testing.assert_allclose(found["mean"].values[0], mean, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(found["std"].values[0] ** 2, variance, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(found.drift_coefficient, coefficients, rtol=0.0, atol=1e-8)
    assert abs(coefficients[1] + 0.65) < 4.0 * found.drift_coefficient_std[1]

    cells = cagp.krige(table, to=2.0, at=["2024-07-01T05:30", "2024-07-01T08:00"], kind="cells", **KNOWN)
    side = round(cells.attrs["nodes_per_cell"] ** 0.5)
    edges = (np.append(bounds[:, 0], bounds[-1, 1]) for bounds in (cells.latitude_bnds, cells.longitude_bnds))
    nodes = cagp.cell_means(*edges, nodes_per_side=side)
    shares = np.kron(np.eye(2), nodes.matrix().toarray())
    Z = np.column_stack([np.tile(nodes.nodes, (2, 1)), np.repeat([5.5, 8.0], len(nodes.nodes))])
    mean, std = dense(X, table["temperature (degC)"], cagp.LinearFunctionals(Z, shares))
    np.testing.assert_allclose(cells["mean"].values.ravel(), mean, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(cells["std"].values.ravel(), std, rtol=0.0, atol=1e-9)

    narrow = KNOWN | {"kernel": 0.1 * KERNEL, "noise_std": 0.1}
    wide = cagp.krige(table, to=places, at=at, recalibration="kuleshov", **narrow)
    assert (wide["predictive_std"] > 1.5 * np.hypot(wide["std"], 0.1)).all()


def test_separate_maps_say_where_other_times_would_help(drawn):
    """By a likelihood that is the dense one; of fields without anything in common nothing is said."""
    table, X, *_ = drawn
    said = cagp.krige(table, to=2.0, **SPACE).attrs["other_times"]
    gain = float(re.search(r"higher by (\d+) ", said)[1])
    some = X[(X[:, 3] >= 2) & (X[:, 3] < 10)]
    y = table["temperature (degC)"].to_numpy()[(X[:, 3] >= 2) & (X[:, 3] < 10)] - 15.0
    in_space, apart = SPACE["kernel"](some[:, :3], some[:, :3]), np.abs(some[:, 3:] - some[:, 3])
    distributions = (
        multivariate_normal(None, in_space * in_time + 0.09 * np.eye(200))
        for in_time in (apart == 0.0, *(np.exp(-apart / hours) for hours in (1.0, 3.0, 10.0, 30.0)))
    )
    separate, *together = (distribution.logpdf(y) for distribution in distributions)
    assert abs(gain - (max(together) - separate)) <= 0.5
    assert gain > 20.0
    rng = np.random.default_rng(7)
    table = table.assign(**{"temperature (degC)": 15.0 + rng.normal(size=300)})
    assert "other_times" not in cagp.krige(table, to=2.0, **SPACE).attrs


def test_a_mean_by_latitude_is_one_of_the_places_of_maps_in_time(drawn):
    """The map is that of the same columns, given as functions of points in space and time."""
    table = drawn[0][::4]
    at, family = ["2024-07-01T05:00"], cagp.MEANS["quadratic-latitude"]
    found = cagp.krige(table, to=2.0, at=at, kernel="matern32", noise_std=0.3, mean="quadratic-latitude")
    basis = cagp.BasisMean(lambda X: family.basis_at(X[:, :3]), family.coefficient_names)
    same = cagp.krige(table, to=2.0, at=at, kernel="matern32", noise_std=0.3, mean=basis)
    np.testing.assert_allclose(found["mean"], same["mean"], rtol=1e-6)
