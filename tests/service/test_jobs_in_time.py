"""Jobs whose times inform each other: `krige` says the same of the same observations."""

import json
import tomllib

import numpy as np
import pandas as pd
import pytest

import cagp_dist as cagp
from cagp_dist.errors import ConfigurationError, DataError
from cagp_dist.pipeline import Observations
from cagp_dist.service.daily import daily
from cagp_dist.service.job_fit import prior_table
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import fit_job, run
from cagp_dist.service.task import SeenTimes
from cagp_dist.service.verification import solve_again
from cagp_dist.space_time import SpaceTimeOf
from cagp_dist.store.series import runs_of_times
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, map_grid, random_points

pytestmark = pytest.mark.usefixtures("one_blas_thread")

PRIOR = {
    "kernel": "matern32",
    "mean": "constant",
    "time_kernel": "matern12",
    "lengthscale": 0.1,
    "time_lengthscale_hours": 30.0,
    "variance": 9.0,
    "noise_variance": 0.25,
}
KERNEL = cagp.SpaceTime(cagp.Matern32(0.1, 9.0), cagp.Matern12(30.0))
GIVEN = {"value": "height", "kernel": KERNEL, "noise_std": 0.5, "mean": "constant"}
TIMES = pd.date_range("2024-07-01", periods=8, freq="12h")


def station_table(*, lost=0.2, times=TIMES, stations=24, seed=4):
    """Values of a field of `KERNEL` at stations, by time and place as a job reads them."""
    rng = np.random.default_rng(seed)
    latitude, longitude = rng.uniform(45.0, 56.0, stations), rng.uniform(3.0, 16.0, stations)
    hours = 12.0 * np.arange(len(times))
    points = np.column_stack(
        [np.tile(cagp.unit_sphere(latitude, longitude), (len(times), 1)), np.repeat(hours, stations)]
    )
    values = np.linalg.cholesky(KERNEL(points, points)) @ rng.standard_normal(len(points))
    table = pd.DataFrame(
        {
            "station": np.tile([f"S{n:02}" for n in range(stations)], len(times)),
            "latitude": np.tile(latitude, len(times)),
            "longitude": np.tile(longitude, len(times)),
            "time": np.repeat(times, stations),
            "height": 20.0 + values + 0.5 * rng.standard_normal(len(points)),
        }
    )
    table = table[rng.random(len(table)) > lost]
    place = table.station.map({name: n for n, name in enumerate(pd.unique(table.station))})
    return table.assign(place=place).sort_values(["time", "place"]).drop(columns="place")


def the_job(folder, table, **tables):
    table.to_csv(folder / "stations.csv", index=False)
    given = {
        "observations": {"source": f"table:{folder / 'stations.csv'}", "variable": "height"},
        "design": {"train": {"kind": "all"}, "test": random_points(4, seed=1), "map": map_grid(3.0)},
        "prior": PRIOR,
        "solver": None,
        "output": {"root": folder / "out"},
    }
    return parse_job(job_text(**{**given, **tables}))


def observed_by(path, table):
    """Rows of the stations that a run observed."""
    return table[table.station.isin(read_group(path, "observations").station_name.values)]


def targets_of(path):
    """Places of the test points and the cells of the map, in the order of a solve."""
    posterior, cells = read_group(path, "posterior"), read_group(path, "map")
    latitude, longitude = np.meshgrid(cells.latitude, cells.longitude, indexing="ij")
    return pd.DataFrame(
        {
            "latitude": np.concatenate([posterior.latitude.values, latitude.ravel()]),
            "longitude": np.concatenate([posterior.longitude.values, longitude.ravel()]),
        }
    )


def published(path, name):
    """Values of a run at test points and cells, (time, target)."""
    groups = read_group(path, "posterior"), read_group(path, "map")
    parts = [group[f"height_{name}"].values.reshape(group.sizes["time"], -1) for group in groups]
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("causal", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_a_job_says_what_krige_says_of_the_same_observations_to_the_bit(tmp_path, causal):
    table, test = station_table(), random_points(4, seed=1)
    design = {"train": {"kind": "all"}, "test": test, "map": map_grid(3.0), "causal": causal}
    path = run(the_job(tmp_path, table, design=design)).path
    found = cagp.krige(observed_by(path, table), to=targets_of(path), at=TIMES, causal=causal, **GIVEN)
    for name in ("mean", "std"):
        np.testing.assert_array_equal(published(path, name), found[name].values)
    assert solve_again(path, points=2) < 1e-12


def test_numbers_that_are_left_out_are_those_of_krige_and_can_be_pasted(tmp_path):
    table = station_table(stations=12)
    job = the_job(tmp_path, table, prior={key: PRIOR[key] for key in ("kernel", "mean", "time_kernel")})
    path = run(job).path
    fitted = {**GIVEN, "kernel": SpaceTimeOf(cagp.Matern32, cagp.Matern12), "noise_std": None}
    found = cagp.krige(observed_by(path, table), to=targets_of(path), at=TIMES, **fitted)
    for name in ("mean", "std"):
        np.testing.assert_array_equal(published(path, name), found[name].values)
    said = json.loads(read_group(path).attrs["prior"])
    assert said["time_lengthscale_hours"] == found.attrs["lengthscale_hours"]
    low, high = json.loads(read_group(path).attrs["fit"])["intervals"]["time_lengthscale_hours"]
    assert low < said["time_lengthscale_hours"] < high
    assert solve_again(path, points=2) < 1e-12
    pasted = tomllib.loads(prior_table(job.prior, fit_job(job)))["prior"]
    again = run(the_job(tmp_path, table, prior=pasted, output={"root": tmp_path / "again"})).path
    np.testing.assert_allclose(published(again, "mean"), published(path, "mean"), rtol=0.0, atol=1e-4)


@pytest.mark.exhaustive
def test_a_day_sees_its_window_and_late_days_fill_later(tmp_path):
    """Each day is `krige` of its window; a day that comes late changes those that may see it."""
    table = station_table(times=TIMES[:4], stations=12)
    late = table.time == TIMES[1]
    test = random_points(4, seed=1)
    design = {
        "train": {"kind": "all"},
        "test": test,
        "map": {**map_grid(6.0), "area": [57.0, 3.0, 45.0, 15.0]},
        "window_hours": 12,
        "causal": True,
    }
    first = list(daily(the_job(tmp_path, table[~late], design=design)))
    assert [day.failed for day in first] == [None] * 3
    again = list(daily(the_job(tmp_path, table, design=design)))
    assert [day.status is None for day in again] == [True, False, False, True]
    for day in again[1:3]:
        path = tmp_path / "out" / "runs" / f"{runs_of_times(tmp_path / 'out')[day.time].key}.zarr"
        rows = observed_by(path, table)
        rows = rows[(rows.time <= day.time) & (rows.time >= day.time - np.timedelta64(12, "h"))]
        found = cagp.krige(rows, to=targets_of(path), at=[day.time], **GIVEN)
        assert rows.time.nunique() == 2
        for name in ("mean", "std"):
            np.testing.assert_allclose(published(path, name), found[name].values, rtol=0.0, atol=1e-12)


def test_a_time_sees_its_window_in_all_times_of_the_source(tmp_path):
    """A gap is known from the hours on both sides, which the job does not list."""
    table = station_table(stations=12)
    times = {
        "source": f"table:{tmp_path / 'stations.csv'}",
        "variable": "height",
        "times": ["2024-07-02T12:00"],
    }
    design = {
        "train": {"kind": "all"},
        "test": random_points(3, seed=1),
        "map": map_grid(6.0),
        "window_hours": 12,
    }
    path = run(the_job(tmp_path, table, observations=times, design=design)).path
    rows = observed_by(path, table)
    rows = rows[(abs(rows.time - TIMES[3]) <= pd.Timedelta("12h"))]
    found = cagp.krige(rows, to=targets_of(path), at=[TIMES[3]], **GIVEN)
    assert rows.time.nunique() == 3
    for name in ("mean", "std"):
        np.testing.assert_allclose(published(path, name), found[name].values, rtol=0.0, atol=1e-12)
    assert solve_again(path, points=2) < 1e-12


def test_folds_predict_stations_from_the_hours_of_others_alone(tmp_path):
    table = station_table(stations=8, lost=0.0)
    design = {"train": {"kind": "all"}, "test": {"kind": "folds", "count": 8, "blocks_degrees": 0.01}}
    path = run(the_job(tmp_path, table, design=design, solver={"name": "cholesky"})).path
    posterior, places = read_group(path, "posterior"), table.drop_duplicates("station")
    for number, name in enumerate(posterior.station_name.values):
        rows, place = table[table.station != name], places[places.station == name][["latitude", "longitude"]]
        found = cagp.krige(rows, to=place, at=TIMES, **GIVEN)
        np.testing.assert_allclose(
            posterior.height_mean.values[:, number], found["mean"].values[:, 0], rtol=0.0, atol=1e-10
        )
    assert read_group(path).attrs["cross_validation"].startswith("8 folds")


def test_a_plan_says_how_many_values_a_time_sees(tmp_path):
    table = station_table()
    design = {"train": {"kind": "all"}, "test": random_points(4, seed=1), "map": map_grid(3.0)}
    found = plan_job(the_job(tmp_path, table, design=design))
    size = found.size
    assert (found.plan.n, found.plan.q, found.solves) == (size.joined, 8 * (4 + size.mapped), 1)
    windowed = plan_job(the_job(tmp_path, table, design={**design, "window_hours": 12.0, "causal": True}))
    assert (windowed.plan.q, windowed.solves) == (4 + size.mapped, 8)
    assert windowed.plan.n < 0.4 * found.plan.n
    assert "each uses different values" in "\n".join(windowed.lines())
    unfitted = {"kernel": "matern32", "mean": "constant", "time_kernel": "auto"}
    told = plan_job(the_job(tmp_path, table, prior=unfitted)).lines()[0]
    assert told.startswith(
        f"a kernel of space and time, and noise, are fitted first, to {size.joined} observations, about"
    )


@pytest.mark.parametrize(
    ("tables", "key"),
    [
        ({"prior": {**PRIOR, "time_kernel": "auto"}}, "prior"),
        ({"prior": {**PRIOR, "mean": "climatology:normals.zarr"}}, "prior"),
        ({"prior": {**PRIOR, "fit_to": "field"}}, "prior"),
        ({"prior": {**PRIOR, "time_lengthscale_hours": [3.0, 4.0]}}, "prior"),
        ({"prior": {"time_kernel": "metric", "kernel": "matern"}}, "prior"),
        ({"prior": {"time_kernel": "metric", "hyperparameters": "integrate"}}, "prior"),
        ({"prior": {"time_kernel": "metric", "time_lengthscale_hours": 3.0}}, "prior"),
        ({"prior": {**PRIOR, "mean": "previous", "time_kernel": "metric"}}, "prior"),
        ({"prior": {"mean": "constant"}, "design": {"window_hours": 24.0}}, "prior"),
        ({"design": {"regions": ["global"]}}, "prior"),
        ({"design": {"map": {**map_grid(3.0), "std_samples": 100}}}, "prior"),
        ({"solver": {"name": "rings"}}, "solver"),
        ({"recalibration": {"method": "sharp"}}, "recalibration"),
        ({"output": {"root": "out", "keep_weights": True}}, "output"),
    ],
)
def test_what_does_not_go_with_a_kernel_in_time_is_refused(tmp_path, tables, key):
    with pytest.raises(ConfigurationError) as refusal:
        the_job(tmp_path, station_table(), **tables)
    assert refusal.value.key == key


def test_one_time_is_no_fit_in_time_and_asks_for_a_window(tmp_path):
    table = station_table()
    alone, design = table[table.time == TIMES[0]], {"train": {"kind": "all"}, "test": random_points(4)}
    with pytest.raises(ConfigurationError) as refusal:
        run(the_job(tmp_path, alone))
    assert refusal.value.key == "one-time"
    job = the_job(tmp_path, alone, prior={"time_kernel": "metric"}, design={**design, "window_hours": 24.0})
    with pytest.raises(DataError) as refusal:
        run(job)
    assert refusal.value.key == "few-times"
    assert run(the_job(tmp_path, alone, design={**design, "window_hours": 24.0})).status.ok
    with pytest.raises(ConfigurationError) as refusal:
        the_job(tmp_path, alone, design={**design, "window_hours": 24.0, "lead_hours": 30.0})
    assert refusal.value.key == "design"


def test_a_window_needs_a_source_that_lists_its_times(tmp_path):
    design = {"train": random_points(20), "test": random_points(4, seed=1), "window_hours": 24.0}
    source = {"source": "synthetic", "grid_degrees": 10.0, "times": ["2024-07-01"]}
    with pytest.raises(ConfigurationError) as refusal:
        run(the_job(tmp_path, station_table(), observations=source, design=design))
    assert refusal.value.key == "window-and-times"


def test_a_forecast_is_scored_by_its_lead(tmp_path):
    """What ended so long before, against `krige` of it; scores are those of this lag."""
    table = station_table(lost=0.0, stations=40)
    design = {
        "train": {"kind": "all"},
        "test": random_points(12, seed=1),
        "map": map_grid(6.0),
        "lead_hours": 24.0,
    }
    with pytest.raises(DataError) as refusal:
        run(the_job(tmp_path, table, design=design))
    assert refusal.value.key == "nothing-observed"
    times = [str(time) for time in TIMES[3:]]
    source = {"source": f"table:{tmp_path / 'stations.csv'}", "variable": "height", "times": times}
    path = run(the_job(tmp_path, table, design={**design, "window_hours": 36.0}, observations=source)).path
    rows, last = observed_by(path, table), TIMES[-1]
    rows = rows[(rows.time <= last - pd.Timedelta("24h")) & (rows.time >= last - pd.Timedelta("36h"))]
    found = cagp.krige(rows, to=targets_of(path), at=[last], **GIVEN)
    np.testing.assert_allclose(published(path, "std")[-1], found["std"].values[0], rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(published(path, "mean")[-1], found["mean"].values[0], rtol=0.0, atol=1e-10)
    strata = read_group(path, "calibration")
    lags = strata.stratum.values[strata.stratum_kind.values == "lag"].tolist()
    assert lags == ["6 to 24 hours"]


@pytest.mark.parametrize(("window", "lead"), [(None, None), (30.0, None), (None, 0.0), (48.0, 12.0)])
def test_counts_and_lags_are_those_of_every_pair_of_times(window, lead):
    """With gaps; a place that was heard at no time that is seen has no lag."""
    rng = np.random.default_rng(2)
    moments = np.sort(rng.choice(200, size=15, replace=False)) * np.timedelta64(1, "h") + TIMES.values[0]
    values = np.where(rng.random((15, 5)) < 0.4, 1.0, np.nan)
    points = Observations.from_points(np.zeros(5), np.arange(5.0), values, times=moments)
    train, near = np.array([0, 2, 4]), np.array([[0, 2], [2, 4], [4, 4]])
    before = (moments[2:, None] - moments) / np.timedelta64(1, "h")
    sees = np.abs(before) <= (np.inf if window is None else window)
    sees &= True if lead is None else before >= lead
    seen = SeenTimes(points, window, lead)
    counts = sees @ points.present[:, train].sum(axis=1)
    np.testing.assert_array_equal(seen.counts(moments[2:], train), counts)
    lags = np.where(sees[..., None] & points.present[:, near].any(axis=2), np.abs(before)[..., None], np.inf)
    lags = lags.min(axis=1)
    np.testing.assert_allclose(seen.lags(moments[2:], near), np.where(np.isinf(lags), np.nan, lags))


@pytest.mark.exhaustive
def test_forecasts_hold_their_error_bars_at_stations_that_were_held_out(tmp_path):
    """Over 12 fields of the prior, as errors of one field a day ahead agree at all stations of a day."""
    times = pd.date_range("2024-07-01", periods=24, freq="12h")
    source = {"source": f"table:{tmp_path / 'stations.csv'}", "variable": "height"}
    source["times"] = [str(time) for time in times[4:]]
    design = {"train": {"kind": "all"}, "test": random_points(15, seed=1), "window_hours": 48.0}
    inside = []
    for seed in range(12):
        table = station_table(times=times, stations=40, seed=seed)
        job = the_job(tmp_path, table, observations=source, design={**design, "lead_hours": 24.0})
        inside.append(run(job).calibration.coverage.sel(level=0.9).item())
    assert abs(np.mean(inside) - 0.9) < 3.0 * np.std(inside, ddof=1) / np.sqrt(12)
    assert np.std(inside, ddof=1) < 0.1
