"""Jobs on tables of stations: cross-validation, map and places against dense formulas."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy.linalg import null_space
from scipy.stats import multivariate_normal

import cagp_dist as cagp
from cagp_dist.calibration.verification.pit import pit
from cagp_dist.calibration.verification.spatial_folds import block_folds
from cagp_dist.errors import ConfigurationError, DataError
from cagp_dist.export import export_run
from cagp_dist.geometry import unit_sphere
from cagp_dist.kernels import Matern32
from cagp_dist.kriging.examples import PLACES, write_examples
from cagp_dist.pipeline.fitted_model import sites_of_fit
from cagp_dist.report import write_report
from cagp_dist.service.ingest import ingest
from cagp_dist.service.job_plan import plan_job
from cagp_dist.service.jobfile.config import parse_job, with_times
from cagp_dist.service.run import run
from cagp_dist.service.task import prepare_job
from cagp_dist.service.verification import solve_again, verify_run
from cagp_dist.store.publish import verify_files
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, map_grid
from ..joined import one_after_another
from ..oracle import universal_kriging

LENGTHSCALE, VARIANCE, NUGGET = 0.1, 30.0, 0.4
NUMBERS = {"mean": "constant", "lengthscale": LENGTHSCALE, "variance": VARIANCE, "noise_variance": NUGGET}
DAYS = ("2020-06-01", "2020-06-02", "2020-06-03")


def write(path, rows):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    return path


@pytest.fixture
def stations(tmp_path):
    """60 stations of Europe across Greenwich on three days, a tenth of the values missing, two noises."""
    rng = np.random.default_rng(3)
    latitude, longitude = rng.uniform(38.0, 62.0, 60), rng.uniform(-12.0, 30.0, 60)
    noise = np.where(np.arange(60) % 2, 0.3, 1.5)
    rows = [["station", "LAT", "LON", "date", "TAVG (degC)", "err"]]
    for day, text in enumerate(DAYS):
        value = 40.0 - 0.5 * latitude + 3.0 * np.sin(np.deg2rad(6.0 * longitude)) + day
        value = value + noise * rng.standard_normal(60)
        rows += [
            [f"S{k}", latitude[k], longitude[k], text, f"{value[k]:.3f}", noise[k]]
            for k in np.flatnonzero(rng.random(60) > 0.1)
        ]
    write(tmp_path / "stations.csv", rows)
    write(tmp_path / "places.csv", [["name", "lat", "lon"], ["Berlin", 52.5, 13.4], ["Lisbon", 38.7, -9.1]])
    return tmp_path


def job(folder, *, observations=None, design=None, **tables):
    """A job; None leaves a key of the design out."""
    settings = {
        "observations": {
            "source": f"table:{folder / 'stations.csv'}",
            "variable": "TAVG",
            "noise_std": "err",
            **(observations or {}),
        },
        "design": {
            "train": {"kind": "all"},
            "test": {"kind": "folds", "count": 4, "blocks_degrees": 6.0},
            "map": map_grid(6.0),
            "targets": f"table:{folder / 'places.csv'}",
            **(design or {}),
        },
        "prior": NUMBERS,
        "solver": {"name": "cholesky"},
        "cluster": {"scheduler": "serial"},
        "output": {"root": folder / "out"},
    }
    settings["design"] = {key: value for key, value in settings["design"].items() if value is not None}
    return parse_job(job_text(**settings | tables))


def read(path, group):
    with xr.open_zarr(path, group=group) as dataset:
        return dataset.load()


def dense(X, y, noise, X_new):
    """Mean and latent variance of one field by ordinary kriging."""
    kernel = Matern32(LENGTHSCALE, VARIANCE)
    ones = np.ones((len(X), 1)), np.ones((len(X_new), 1))
    found = universal_kriging(kernel(X, X) + np.diag(noise), kernel(X_new, X), kernel(X_new, X_new), *ones, y)
    return found.mean, found.covariance.diagonal()


def test_folds_map_and_places_are_those_of_dense_formulas(stations):
    outcome = run(job(stations, prior=NUMBERS))
    said = json.loads(read(outcome.path, None).attrs["prior"])
    assert (said["mean"], said["mean_estimate"]) == ("constant", "generalised")
    verify_files(outcome.path)
    groups = {name: read(outcome.path, name) for name in ("posterior", "map", "targets", "calibration")}
    posterior = groups["posterior"]
    latitude, longitude = posterior.latitude.values, posterior.longitude.values
    observed = posterior.TAVG.values
    assert posterior.sizes == {"time": 3, "point": 60}
    assert posterior.TAVG.attrs["units"] == "degC"
    assert posterior.attrs["missing_observations"] == np.isnan(observed).sum() > 5
    X, noise = unit_sphere(latitude, longitude), np.where(np.arange(60) % 2, 0.3, 1.5)
    # places stand in the order in which the table has them first; the noise follows the station
    with (stations / "stations.csv").open() as stream:
        order = list(dict.fromkeys(row["station"] for row in csv.DictReader(stream)))
    noise = noise[[int(name[1:]) for name in order]]
    folds = block_folds(latitude, longitude, count=4, blocks=6.0, generator=np.random.default_rng(0))
    cells = np.meshgrid(groups["map"].latitude, groups["map"].longitude, indexing="ij")
    X_map = unit_sphere(cells[0].ravel(), cells[1].ravel())
    X_places = unit_sphere(np.array([52.5, 38.7]), np.array([13.4, -9.1]))
    for time in range(3):
        there = ~np.isnan(observed[time])
        for fold in range(4):
            kept, left = there & (folds != fold), folds == fold
            mean, variance = dense(
                *(X[kept], observed[time, kept], noise[kept] ** 2 + NUGGET, X[left]),
            )
            np.testing.assert_allclose(posterior.TAVG_mean[time, left], mean, atol=1e-9)
            np.testing.assert_allclose(posterior.TAVG_std[time, left], np.sqrt(variance), atol=1e-9)
        arguments = X[there], observed[time, there], noise[there] ** 2 + NUGGET
        mean, variance = dense(*arguments, X_map)
        np.testing.assert_allclose(groups["map"].TAVG_mean[time].values.ravel(), mean, atol=1e-9)
        np.testing.assert_allclose(groups["map"].TAVG_std[time].values.ravel(), np.sqrt(variance), atol=1e-9)
        mean, variance = dense(*arguments, X_places)
        np.testing.assert_allclose(groups["targets"].TAVG_mean[time], mean, atol=1e-9)
        np.testing.assert_allclose(groups["targets"].TAVG_std[time], np.sqrt(variance), atol=1e-9)
    np.testing.assert_allclose(groups["targets"].longitude, [13.4, 350.9])
    # names go with the places, into the groups and out of them
    assert groups["posterior"].station_name.values.tolist() == order
    assert groups["calibration"].station_name.values.tolist() == order
    assert read(outcome.path, "observations").station_name.values.tolist() == order
    assert groups["targets"].station_name.values.tolist() == ["Berlin", "Lisbon"]
    assert groups["targets"].station_name.attrs["standard_name"] == "platform_name"
    table, netcdf = (
        export_run(outcome.path, to=form, groups=["targets"], output=stations)[0]
        for form in ("csv", "netcdf")
    )
    with table.open() as stream:
        assert [row["station_name"] for row in csv.DictReader(stream)] == 3 * ["Berlin", "Lisbon"]
    columns = json.loads((stations / "targets.csv-metadata.json").read_text())["tableSchema"]["columns"]
    assert (columns[3]["name"], columns[3]["datatype"]) == ("station_name", "string")
    with xr.open_dataset(netcdf, engine="h5netcdf") as dataset:
        assert dataset.station_name.values.tolist() == ["Berlin", "Lisbon"]
        assert dataset.station_name.encoding["dtype"] == np.dtype("S1")
    # an observation is predicted with the noise of its own station
    predictive = np.sqrt(posterior.TAVG_std.values**2 + noise**2 + NUGGET)
    np.testing.assert_allclose(posterior.TAVG_predictive_std, predictive, rtol=1e-12)
    there = ~np.isnan(observed)
    expected = pit(posterior.TAVG_mean.values[there], predictive[there], observed[there])
    np.testing.assert_allclose(groups["calibration"].pit.values[there], expected, atol=1e-12)
    assert np.isnan(groups["calibration"].pit.values[~there]).all()
    error = posterior.TAVG_mean.values[there] - observed[there]
    np.testing.assert_allclose(groups["calibration"].rmse, np.sqrt(np.mean(error**2)), rtol=1e-12)


def test_report_and_plan_of_a_station_job(stations):
    parsed = job(stations, solver={"name": "block-gauss-seidel", "iterations": 3, "block_size": 16})
    plan = plan_job(parsed)
    assert plan.lines()
    line = plan.size.line()
    assert line.startswith("60 points observed, predicted in 4 folds, ")
    assert line.endswith(", 2 places of a table, 3 times")
    events = []
    outcome = run(parsed, observe=events.append)
    assert outcome.status.ok
    solving = [event.text for event in events if (event.stage, event.kind) == ("Solve", "progress")]
    # three times with gaps of their own, three sweeps each
    parts = [f"batch {part} of 3, iteration {sweep} of 3" for part in (1, 2, 3) for sweep in (1, 2, 3)]
    which = ["all points"] + [f"fold {number} of 4" for number in (1, 2, 3, 4)]
    assert solving[-len(which) * len(parts) :] == [f"{name}, {part}" for name in which for part in parts]
    attributes = read(outcome.path, None).attrs
    for group in ("posterior", "map", "targets", "calibration", "trace", "observations"):
        said = read(outcome.path, group).attrs
        assert said["source"].endswith("of observations from table stations.csv")
        assert said["license"].startswith("that of the observations, table stations.csv")
        assert said["acknowledgement"].startswith("Made from table stations.csv.")
        assert said["history"].endswith(f"run {outcome.path.stem}")
        assert (said["noise_variance"], said["noise_variance_units"]) == (attributes["noise_variance"], "K2")
    assert attributes["cross_validation"].startswith(
        "4 folds: each observed place was predicted from the other"
    )
    page = write_report(outcome.path, stations / "report").read_text()
    assert "°C" in page
    assert "60 observed places, not all of them at each time" in page
    words = " ".join(page.split())
    targets = read(outcome.path, "targets")
    mean, std = float(targets.TAVG_mean[0, 1]), float(targets.TAVG_std[0, 1])
    assert "<h2>At your places</h2>" in words
    assert (
        f'<td>Lisbon</td><td class="number">38.70</td><td class="number">-9.10</td>'
        f'<td class="number">{mean:.1f} °C</td><td class="number">±{std:.1f} °C</td>'
    ) in words
    assert (
        "Not every place was observed at every time, and times with different gaps were solved separately"
        in words
    )
    assert "observed at the same places" not in words
    assert (
        "Every observed place is a test point, and all count equally. 4 folds: each observed "
        "place was predicted from the other folds" in words
    )
    assert "drawn in proportion to area" not in words
    trace = read(outcome.path, "trace")
    assert trace.sizes["iteration"] == 4
    np.testing.assert_allclose(trace.rmse[-1], read(outcome.path, "calibration").rmse)


@pytest.mark.parametrize(
    ("solver", "prior"),
    [
        ({"name": "block-gauss-seidel", "iterations": 3, "block_size": 16}, None),
        pytest.param({"name": "conjugate-gradient", "iterations": 8}, None, marks=pytest.mark.exhaustive),
        pytest.param(
            {"name": "block-gauss-seidel", "iterations": 3, "block_size": 16},
            {
                "mean": "quadratic-latitude",
            },
            marks=pytest.mark.exhaustive,
        ),
    ],
)
@pytest.mark.exhaustive
def test_folds_and_gaps_on_a_cluster_are_those_of_one_thread_to_the_last_bit(
    stations, solver, prior, two_dask_workers
):
    tables = {"solver": solver} | ({} if prior is None else {"prior": prior})
    serial = run(job(stations, **tables)).path
    scheduler = two_dask_workers.scheduler.address
    where = {"cluster": {"scheduler": scheduler}, "output": {"root": stations / "dask"}}
    parallel = run(job(stations, **tables, **where)).path
    assert parallel.stem == serial.stem
    assert read(parallel, None).attrs["executor"].startswith("Dask cluster")
    for group in ("posterior", "map", "targets", "calibration", "trace", "observations"):
        one, other = read(serial, group), read(parallel, group)
        assert one.variables.keys() == other.variables.keys()
        for name in one.variables.keys() - {"seconds"}:
            values = one[name].values
            assert np.array_equal(values, other[name].values, equal_nan=values.dtype.kind == "f"), name


def test_the_plan_counts_fits_and_all_folds(stations):
    plan = plan_job(job(stations))
    assert plan.fold.q == 15 < plan.plan.q
    assert plan.of_solves.flops == plan.plan.work.flops + 4 * plan.fold.work.flops
    assert plan.lines()[-1] == f"in all {plan.work}"
    fitted = plan_job(job(stations, prior={"kernel": "matern32", "mean": "constant"}))
    assert "5 fits of about" in fitted.fit  # of all, and without each of the four folds
    assert fitted.work.flops == plan.work.flops + fitted.of_fits.flops
    assert fitted.of_fits.flops > 5 * 60**3
    outcome = run(job(stations))
    said = json.loads(read(outcome.path, None).attrs["plan"])
    assert said[-1].startswith("5 solves, one with all points and one with 15 test points")


@pytest.mark.exhaustive
def test_numbers_are_fitted_beside_the_known_noise(stations):
    parsed = job(stations, prior={"kernel": "matern32", "mean": "constant"})
    outcome = run(parsed)
    attributes = read(outcome.path, None).attrs
    known = np.mean([0.3**2, 1.5**2])
    prior = json.loads(attributes["prior"])
    assert 0.0 < prior["noise_variance"] < known
    assert attributes["noise_variance"] == pytest.approx(known + prior["noise_variance"], rel=0.05)
    assert json.loads(attributes["known_noise_std"]) == {"smallest": 0.3, "largest": 1.5}
    # the likelihood is that with the noise of each station
    prepared = prepare_job(parsed, ingest(parsed, report=lambda line: None))
    sites = sites_of_fit(prepared.points, np.sort(prepared.design.train))
    X = unit_sphere(prepared.points.north[sites.chosen], prepared.points.east[sites.chosen])
    y = prepared.points.values[np.ix_(sites.times, sites.chosen)]
    contrasts = null_space(np.ones((1, len(X))))  # of the restricted likelihood beside a constant
    kernel = Matern32(prior["lengthscale"], prior["variance"])
    G = kernel(X, X) + np.diag(prepared.points.noise_variance[sites.chosen] + prior["noise_variance"])
    distribution = multivariate_normal(np.zeros(len(X) - 1), contrasts.T @ G @ contrasts)
    expected = distribution.logpdf(y @ contrasts).sum()
    assert json.loads(attributes["fit"])["log_likelihood"] == pytest.approx(expected, abs=1e-4)
    assert "fitted to them, kernel and noise too." in attributes["cross_validation"]


@pytest.mark.exhaustive
def test_a_job_without_a_test_is_cross_validated_in_ten_folds(stations):
    lines = job(stations).text.splitlines()
    kept = "\n".join(line for line in lines if not line.startswith("test ="))
    outcome = run(parse_job(kept))
    said = read(outcome.path, None).attrs["cross_validation"]
    assert said.startswith("10 folds")
    assert "Blocks" not in said
    few = job(stations, observations={"area": [52.0, -12.0, 43.0, 0.0]}, design={"test": None, "train": None})
    assert few.canonical()["design"]["train"] == {"kind": "all"}
    attributes = read(run(few).path, None).attrs
    assert attributes["train_count"] == 6
    assert attributes["cross_validation"].startswith("6 folds: ")


@pytest.mark.exhaustive
def test_blocks_that_are_not_asked_for_suit_a_small_region(stations):
    wanted = {"kind": "folds", "count": 40}
    attributes = read(run(job(stations, design={"test": wanted, "map": None})).path, None).attrs
    assert attributes["cross_validation"].startswith("40 folds: ")
    assert attributes["cross_validation"].endswith(" Blocks are 2.5 degrees high: there are too few of 5.")
    with pytest.raises(ConfigurationError) as refusal:
        run(job(stations, design={"test": {**wanted, "blocks_degrees": 5.0}}))
    assert refusal.value.key == "few-blocks"


@pytest.mark.exhaustive
def test_the_name_of_a_run_follows_the_places(stations):
    parsed = job(stations)
    first = run(parsed)
    assert run(parsed).already_done
    write(stations / "places.csv", [["lat", "lon"], [60.0, 10.0]])
    second = run(parsed)
    assert second.path != first.path
    assert read(second.path, "targets").sizes["point"] == 1
    table = stations / "stations.csv"
    written = table.read_text().splitlines()
    table.write_text("\n".join(written[:-1]) + "\n")  # one measurement less
    third = run(parsed)
    assert not third.already_done
    assert third.path not in (first.path, second.path)


@pytest.mark.parametrize(("missing", "notes"), [(0, []), (1, ["1 row without a value left out"])])
def test_rows_without_a_value_are_counted_if_there_are_any(stations, missing, notes):
    table = stations / "stations.csv"
    head, *rows = table.read_text().splitlines()
    for number in range(missing):
        cells = rows[number].split(",")
        rows[number] = ",".join([*cells[:4], "", cells[5]])
    table.write_text("\n".join([head, *rows]) + "\n")
    said = []
    ingest(job(stations), report=said.append)
    assert said == notes


def test_area_and_times_are_selected_and_known_quantities_converted(stations):
    parsed = job(
        stations,
        observations={"times": [DAYS[1]], "area": [62.0, -12.0, 38.0, 5.0], "units": "K", "variable": "TAVG"},
    )
    posterior = read(run(parsed).path, "posterior")
    assert posterior.time.values.astype("datetime64[D]").astype(str).tolist() == [DAYS[1]]
    longitude = posterior.longitude.values
    assert ((longitude >= 348.0) | (longitude <= 5.0)).all()
    assert posterior.TAVG.attrs["units"] == "K"  # said to be kelvin: a free name, nothing is converted
    renamed = (stations / "stations.csv").read_text().replace("TAVG (degC)", "tas (degC)")
    (stations / "stations.csv").write_text(renamed)
    tas = read(run(job(stations, observations={"variable": "tas"})).path, "posterior").tas
    assert tas.attrs["units"] == "K"
    assert 270.0 < float(tas.mean()) < 300.0


@pytest.mark.exhaustive
def test_names_are_those_of_the_column_that_the_job_says(stations):
    text = (stations / "stations.csv").read_text().replace("station,", "Messstelle,")
    (stations / "stations.csv").write_text(text)
    columns = {"latitude": "LAT"}
    assert "station_name" not in read(run(job(stations, observations={"columns": columns})).path, "posterior")
    named = run(job(stations, observations={"columns": {**columns, "name": "Messstelle"}})).path
    with (stations / "stations.csv").open() as stream:
        order = list(dict.fromkeys(row["Messstelle"] for row in csv.DictReader(stream)))
    assert read(named, "posterior").station_name.values.tolist() == order
    table = export_run(named, to="csv", groups=["posterior"], output=stations)[0]
    with table.open() as stream:
        assert [row["station_name"] for row in csv.DictReader(stream)][:60] == order


def test_columns_without_a_name_keep_the_form_of_a_job(stations):
    columns = {"latitude": "LAT", "longitude": None, "time": None}
    given = job(stations, observations={"columns": {"latitude": "LAT"}})
    assert given.canonical()["observations"]["columns"] == columns


WRONG = {
    "a column that is not there": ({"observations": {"variable": "TMAX"}}, "has no column 'TMAX'; it has"),
    "names that are no column": ({"observations": {"columns": {"name": "site"}}}, "has no column 'site'"),
    "noise that is no column": ({"observations": {"noise_std": "sd"}}, "has no column 'sd'"),
    "a level": ({"observations": {"level": 850}}, "level is 850, for fields on a grid"),
    "an empty area": ({"observations": {"area": [-10.0, 0.0, -20.0, 5.0]}}, "no measurement in the area"),
    "another time": ({"observations": {"times": ["2021-01-01"]}}, "the selected time is not in"),
    "too many folds": (
        {"design": {"test": {"kind": "folds", "count": 50, "blocks_degrees": 40.0}}},
        r"\[design\] test: the 60 places lie in \d+ blocks?, .* make the blocks smaller",
    ),
    "no places": (
        {"design": {"targets": "table:nowhere.csv"}},
        r"\[design\] targets: there is no table nowhere",
    ),
}


@pytest.mark.parametrize("changed", WRONG)
def test_what_a_job_gets_wrong_is_said(stations, changed):
    tables, message = WRONG[changed]
    with pytest.raises((ConfigurationError, DataError), match=message):
        run(job(stations, **tables))
    assert not (stations / "out" / "CURRENT").exists()


def test_a_table_without_times_gives_a_run_without_time(tmp_path):
    rng = np.random.default_rng(5)
    places = rng.uniform([40.0, 5.0], [50.0, 20.0], (40, 2))
    held = [["lat", "lon", "value"], *([*place, float(np.sin(place.sum()))] for place in places)]
    write(tmp_path / "stations.csv", held)
    settings = {
        "design": {
            "train": {"kind": "all"},
            "test": {"kind": "random", "count": 8},
            "map": {"kind": "grid", "resolution_degrees": 2.0},
        },
        "prior": {"mean": "constant", "lengthscale": 0.1, "variance": 1.0, "noise_variance": 0.01},
    }
    bare = {"source": f"table:{tmp_path / 'stations.csv'}", "variable": "value"}
    text = job_text(observations=bare, output={"root": tmp_path / "out"}, **settings)
    path = run(parse_job(text)).path
    groups = {name: read_group(path, name) for name in ("posterior", "map", "calibration", "observations")}
    assert groups["posterior"]["value_mean"].dims == groups["calibration"]["pit"].dims == ("point",)
    assert groups["map"]["value_std"].dims == ("latitude", "longitude")
    assert not any("time" in group.variables for group in groups.values())
    assert "time_coverage_start" not in read_group(path).attrs
    seen, cells = groups["observations"], groups["map"]
    table = {name: seen[name].values for name in ("latitude", "longitude", "value")}
    numbers = {"kernel": "matern32", "lengthscale": 0.1, "variance": 1.0, "noise_std": 0.1}
    found = cagp.krige(table, to=cells[["latitude", "longitude"]], value="value", mean="constant", **numbers)
    np.testing.assert_allclose(cells["value_mean"], found["mean"], rtol=1e-9)
    np.testing.assert_allclose(cells["value_std"], found["std"], rtol=1e-9)
    assert verify_run(path) == path
    assert solve_again(path, points=3) < 1e-6
    page = write_report(path, tmp_path / "report").read_text()
    assert "<h1>Value</h1>" in page
    assert "NaT" not in page
    for kind in ("csv", "netcdf", "geotiff", "zarr"):
        assert export_run(path, to=kind, output=tmp_path / kind)
    for times in ("2020-06-01,2020-06-02", "latest"):
        with pytest.raises(ConfigurationError) as error:
            run(with_times(parse_job(text), times))
        assert error.value.key == "no-times"
    timed = job_text(observations={**bare, "times": [DAYS[0]]}, output={"root": tmp_path / "out"}, **settings)
    assert "time" in read_group(run(parse_job(timed)).path, "map").dims


@one_after_another
@pytest.mark.parametrize(
    ("observations", "key"),
    [
        ({"source": "sample", "noise_std": 0.3}, "observations"),
        ({"source": "sample", "missing": -9999}, "observations"),
        ({"source": "table:x.csv", "variable": "t", "noise_std": 0.0}, "observations"),
        (
            {"source": "table:x.csv", "variable": "t", "columns": {"lattitude": "a"}},
            "observations.columns.lattitude",
        ),
    ],
)
def test_keys_of_tables_are_checked(observations, key):
    with pytest.raises(ConfigurationError) as refusal:
        parse_job(job_text(observations=observations))
    assert refusal.value.key == key


def test_targets_must_be_a_table():
    design = {"train": {"kind": "all"}, "targets": "places.csv"}
    with pytest.raises(ConfigurationError) as refusal:
        parse_job(job_text(design=design))
    assert refusal.value.key == "design.targets"


@pytest.mark.exhaustive
def test_the_job_of_the_documentation_runs(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "stations.md").read_text()
    text = page.partition("```toml\n")[2].partition("```")[0]
    write_examples(tmp_path)
    monkeypatch.chdir(tmp_path)
    events = []
    outcome = run(parse_job(text), observe=events.append)
    assert outcome.status.ok
    solving = [event.text for event in events if event.stage == "Solve"]
    assert solving[-12:] == ["all points", *(f"fold {number} of 10" for number in range(1, 11)), "exact"]
    assert read(outcome.path, "targets").sizes["point"] == len(PLACES)
