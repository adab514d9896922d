"""Every day: what is new is solved once, and stands once in the time series, with what its run says."""

import datetime as dt
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from cagp_dist.cli import app
from cagp_dist.errors import (
    ArgumentError,
    BudgetError,
    BusyError,
    ClusterError,
    ConfigurationError,
    DataError,
    DiskError,
    NotReadyError,
    StoreError,
    TimeLimitError,
)
from cagp_dist.fields.files import local_files
from cagp_dist.pipeline import steps
from cagp_dist.service import daily as dailies
from cagp_dist.service import ingest as ingestion
from cagp_dist.service import removed_days
from cagp_dist.service.daily import daily
from cagp_dist.service.day_records import (
    LASTING_TRIES,
    DayRecords,
    DoneDay,
    FailedDay,
    note_done,
    note_failed,
    note_outdated,
    note_planned,
)
from cagp_dist.service.jobfile.config import parse_job, with_times
from cagp_dist.service.run import find_run
from cagp_dist.service.run import run as run_job
from cagp_dist.service.series_status import HealthLimits, status_of
from cagp_dist.solvers.engine.tiles import TileSystem
from cagp_dist.store import manifest, series
from cagp_dist.store.durable_files import allocated_bytes
from cagp_dist.store.prune import prune_runs
from cagp_dist.store.publish import current_run, output_lock
from cagp_dist.store.retention import Retention
from cagp_dist.store.series_check import check_series
from cagp_dist.store.zarr_arrays import read_group, write_group

from ..jobs import job_text, map_grid, random_points
from ..mounts import needs_mounts, small_file_system
from ..prometheus import metrics_of
from ..sources import save, temperature

pytestmark = pytest.mark.usefixtures("one_blas_thread")

DAYS = ["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"]


def write_source(path: Path, days):
    """Fields that are those of their day, in whichever order they come."""
    latitude, longitude = np.arange(-85.0, 90.0, 10.0), np.arange(0.0, 360.0, 10.0)
    values = [
        280.0 + np.random.default_rng(int(day[-2:])).normal(size=(latitude.size, longitude.size))
        for day in days
    ]
    shutil.rmtree(path, ignore_errors=True)
    save(temperature(np.array(values), latitude=latitude, longitude=longitude, times=days), path)


def the_job(folder: Path, **tables):
    return parse_job(the_text(folder, **tables))


def the_text(folder: Path, *, times="latest", **tables):
    return job_text(
        **{
            "observations": {"source": f"zarr:{folder / 'field.zarr'}", "times": times},
            "design": {
                "train": random_points(200),
                "test": random_points(40, seed=1),
                "map": map_grid(30.0),
                "regions": [{"name": "europe", "south": 35, "north": 70, "west": -10, "east": 40}],
                "regions_resolution_degrees": 10.0,
            },
            "output": {"root": folder / "out", "keep_weights": True},
            **tables,
        }
    )


ALL = "2020-01"


@pytest.fixture(scope="module")
def two_days(tmp_path_factory):
    """A folder in which the first of two days stands in the series, and the run of the second is done."""
    folder = tmp_path_factory.mktemp("days")
    write_source(folder / "field.zarr", DAYS[:2])
    list(daily(with_times(the_job(folder), DAYS[0])))
    run_job(with_times(the_job(folder), DAYS[1]))
    return folder


@pytest.fixture
def begun(two_days, tmp_path):
    """A copy of its output, and the job that goes on there."""
    shutil.copytree(two_days / "out", tmp_path / "out", symlinks=True)
    tables = {"output": {"root": tmp_path / "out", "keep_weights": True}}
    return lambda **others: the_job(two_days, **{**tables, **others})


@pytest.fixture
def solves(monkeypatch):
    """How many solves of tasks there were."""
    counted = []

    def solve(*arguments, original=steps.solve, **settings):
        counted.append(arguments[0])
        return original(*arguments, **settings)

    monkeypatch.setattr("cagp_dist.pipeline.solve_task.solve", solve)
    return counted


def opened(folder: Path, group: str) -> xr.Dataset:
    with xr.open_zarr(folder / "out" / "series.zarr", group=group) as found:
        return found.load()


def run_of(root: Path, day: str) -> str | None:
    """Key of the run whose result the series has for a day."""
    run = series.runs_of_times(root).get(np.datetime64(day, "ns"))
    return None if run is None else run.key


def rewritten(version: Path, name: str, change) -> None:
    """Give a group of a version other content, with digests that fit it."""
    group = change(read_group(version, name))
    shutil.rmtree(version / name)
    write_group(version, name, group)
    manifest.manifest_path(version).write_text(manifest.build(version, name=version.name))


def test_every_day_one_time_is_solved_and_put_into_the_series(tmp_path, solves, monkeypatch):
    applied, sweeps = [], []

    def apply(self, stage, work, *, adjoint, final=False, original=TileSystem.apply):
        applied.append(adjoint)
        return original(self, stage, work, adjoint=adjoint, final=final)

    monkeypatch.setattr(TileSystem, "apply", apply)
    for count in (1, 2):
        write_source(tmp_path / "field.zarr", DAYS[:count])
        (day,) = daily(the_job(tmp_path))
        assert (str(day.time)[:10], day.version, day.replaced) == (DAYS[count - 1], count, None)
        assert len(solves) == count
        sweeps.append(len(applied))
    assert sweeps[0] == sweeps[1] > 0, "the weights of the first day serve the other"
    (again,) = daily(the_job(tmp_path))
    assert "already" in again.line()
    assert len(solves) == 2
    runs = {
        str(xr.open_zarr(p, group="map").time.values[0])[:10]: p
        for p in (tmp_path / "out/runs").glob("*.zarr")
    }
    for name in ("map", "regions"):
        found = opened(tmp_path, name)
        assert [str(time)[:10] for time in found.time.values] == DAYS[:2]
        for index, day in enumerate(DAYS[:2]):
            xr.testing.assert_equal(found.isel(time=[index]), xr.open_zarr(runs[day], group=name).load())
        assert found.t2m_mean.attrs["units"] == "K"
    scores = opened(tmp_path, "scores")
    for index, day in enumerate(DAYS[:2]):
        of_run = xr.open_zarr(runs[day], group="calibration")
        assert scores.rmse.values[index] == of_run.rmse.item()
        np.testing.assert_array_equal(scores.coverage.values[index], of_run.coverage.values)
        assert scores.run_key.values[index] == runs[day].stem
    assert scores.version.values.tolist() == [1, 2]
    root = xr.open_zarr(tmp_path / "out/series.zarr")
    assert (root.attrs["time_coverage_start"][:10], root.attrs["time_coverage_end"][:10]) == (
        DAYS[0],
        DAYS[1],
    )
    assert series.verify_series(tmp_path / "out").name == "000002.zarr"


@pytest.mark.exhaustive
def test_runs_are_put_where_their_times_are(two_days, tmp_path):
    """The second day, the first one late, the second again, and another result of the first."""
    root = tmp_path / "out"
    root.mkdir()
    runs = two_days.glob("out/runs/*.zarr")
    first, second = sorted(runs, key=lambda path: read_group(path, "map").time.values[0])
    corrected = shutil.copytree(first, tmp_path / "corrected.zarr")
    rewritten(corrected, "map", lambda run: run.assign(t2m_mean=run.t2m_mean.copy(data=run.t2m_mean + 1)))

    def maps_are(*expected):
        found, keys = opened(tmp_path, "map"), opened(tmp_path, "scores").run_key.values.tolist()
        assert [str(time)[:10] for time in found.time.values] == DAYS[:2]
        assert keys == [run.stem for run in expected]
        for index, run in enumerate(expected):
            xr.testing.assert_equal(found.isel(time=[index]), read_group(run, "map"))

    with output_lock(root):
        assert series.append_runs(root, [second]) == [series.SeriesUpdate(1, changed=True)]
        before = series.current_version(root)
        assert series.append_runs(root, [first]) == [series.SeriesUpdate(2, changed=True)]
        assert series.append_runs(root, [second]) == [series.SeriesUpdate(2, changed=False)]
        maps_are(first, second)
        now = series.current_version(root)
        (chunk,) = (before / "map/t2m_mean").glob("c.*")
        assert chunk.name == "c.0.0.0"
        assert chunk.samefile(now / "map/t2m_mean/c.1.0.0"), "it is a link"
        rewritten(  # as of a package that did not record which fields were preliminary
            now, series.SCORES, lambda scores: scores.drop_vars(series.IS_PRELIMINARY)
        )
        replaced = series.SeriesUpdate(3, changed=True, replaced=first.stem)
        assert series.append_runs(root, [corrected]) == [replaced]
    maps_are(corrected, second)
    scores = opened(tmp_path, "scores")
    assert scores.version.values.tolist() == [3, 1]
    preliminary = scores[series.IS_PRELIMINARY]
    assert preliminary.values.tolist() == [0, series.UNKNOWN]
    meanings = dict(zip(preliminary.flag_values, preliminary.flag_meanings.split(), strict=True))
    assert meanings == {0: "not_preliminary", 1: "preliminary", series.UNKNOWN: "unknown"}
    assert {path.stem for path in (root / series.VERSIONS).iterdir()} == {"000002", "000003"}
    series.verify_series(root)


def test_several_times_come_into_the_series_at_once_and_are_as_one_after_the_other(
    two_days, tmp_path, monkeypatch
):
    days = {day: tmp_path / day for day in ("alone", "together")}
    for name, share in {"alone": 0.0, "together": 1.0}.items():
        monkeypatch.setattr(dailies, "SHARE", share)
        for made in ("observations", "runs"):
            shutil.copytree(two_days / "out" / made, days[name] / made)
        tables = {"output": {"root": days[name], "keep_weights": True}}
        found = list(daily(the_job(two_days, times=ALL, **tables)))
        assert [day.version for day in found] == ([1, 2] if share == 0.0 else [1, 1])
        assert DayRecords.read(days[name]).done.keys() == {f"{day}T00:00:00" for day in DAYS[:2]}
        assert check_series(days[name]).compared == 2
    for group in ("map", "regions", "scores"):
        one, other = (read_group(series.current_version(each), group) for each in days.values())
        xr.testing.assert_identical(
            one.drop_vars("version", errors="ignore"), other.drop_vars("version", errors="ignore")
        )


def test_a_year_of_hours_is_no_quadratic_work(tmp_path):
    """Versions of the series cost what its times do; 8,760 of them one by one link 38 million times."""
    waiting, links, versions = 0, 0, 0
    for count in range(1, 8761):
        waiting += 1
        if dailies._are_enough([10**5] * waiting, count):
            waiting, links, versions = 0, links + count, versions + 1
    assert links < 100 * 8760
    assert versions < 400
    note_planned(tmp_path, [], [])
    assert not (tmp_path / "days.json").exists(), "nothing has changed"


@pytest.mark.exhaustive
@pytest.mark.parametrize("recalibrated_first", [True, False])
def test_days_with_and_without_recalibration_are_one_series(two_days, tmp_path, recalibrated_first):
    """A local scale may be of no use on some days: these have the quantiles of their normal distributions."""
    root = tmp_path / "out"
    shutil.copytree(two_days / "out/runs", root / "runs")
    plain, other = sorted(root.glob("runs/*.zarr"), key=lambda path: read_group(path, "map").time.values[0])
    levels = xr.DataArray([0.05, 0.5, 0.95], dims="quantile_level").assign_coords(
        quantile_level=[0.05, 0.5, 0.95]
    )

    def recalibrated(run):
        quantiles = (run.t2m_mean + 2.0 * run.t2m_predictive_std * (levels - 0.5)).transpose(
            "time", "quantile_level", ...
        )
        return run.assign(local_scale=xr.full_like(run.t2m_std, 0.8), t2m_quantile=quantiles)

    rewritten(other, "map", recalibrated)
    rewritten(other, "calibration", lambda scores: scores.assign(crps_plain=scores.crps + 1.0))
    with output_lock(root):
        for run in (other, plain) if recalibrated_first else (plain, other):
            series.append_runs(root, [run])
    assert check_series(root).compared == 2
    maps, scores, wanted = opened(tmp_path, "map"), opened(tmp_path, "scores"), read_group(plain, "map")
    normal = wanted.t2m_mean - 1.6448536269514722 * wanted.t2m_predictive_std
    np.testing.assert_allclose(maps.t2m_quantile[0].sel(quantile_level=0.05), normal[0], rtol=1e-12)
    assert (maps.local_scale[0] == 1.0).all()
    assert scores.crps_plain[0] == scores.crps[0]
    xr.testing.assert_equal(maps.isel(time=[1]), read_group(other, "map"))
    assert scores.crps_plain[1] == scores.crps[1] + 1.0


@pytest.mark.exhaustive
def test_times_that_come_late_and_corrections_take_their_places(tmp_path, solves):
    source = tmp_path / "field.zarr"
    write_source(source, [DAYS[0], DAYS[2]])
    assert [day.version for day in daily(the_job(tmp_path, times=ALL))] == [1, 2]
    before = opened(tmp_path, "map")
    rewritten(  # as of a package that did not record which fields were preliminary
        series.current_version(tmp_path / "out"),
        series.SCORES,
        lambda scores: scores.drop_vars(series.IS_PRELIMINARY),
    )
    write_source(source, DAYS[:3])
    assert [day.version for day in daily(the_job(tmp_path, times=ALL))] == [None, 3, None]
    recorded = opened(tmp_path, "scores")[series.IS_PRELIMINARY]
    assert recorded.values.tolist() == [series.UNKNOWN, 0, series.UNKNOWN]
    assert recorded.dtype == np.int64
    assert dict(zip(recorded.flag_values, recorded.flag_meanings.split(), strict=True))[-1] == "unknown"
    assert check_series(tmp_path / "out").compared == 3
    assert len(solves) == 3
    late = opened(tmp_path, "map")
    assert [str(time)[:10] for time in late.time.values] == DAYS[:3]
    xr.testing.assert_equal(late.isel(time=[0, 2]), before)
    numbers = {"lengthscale": 0.3, "variance": 60.0, "noise_variance": 2.0}
    days = list(daily(the_job(tmp_path, times=["2020-01-02"], prior=numbers)))
    assert [(day.version, "instead of that of run" in day.line()) for day in days] == [(4, True)]
    corrected, scores = opened(tmp_path, "map"), opened(tmp_path, "scores")
    xr.testing.assert_equal(corrected.isel(time=[0, 2]), before)
    assert not np.array_equal(corrected.t2m_mean.values[1], late.t2m_mean.values[1])
    assert scores.version.values.tolist() == [1, 4, 2]
    xr.testing.assert_identical(scores[series.IS_PRELIMINARY].variable, recorded.variable)
    assert series.verify_series(tmp_path / "out").name == "000004.zarr"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("call", "step"),
    [
        ("symlink", 1),
        pytest.param("rename", 1, marks=pytest.mark.exhaustive),
        pytest.param("replace", 7, marks=pytest.mark.exhaustive),
        pytest.param("fsync", 19, marks=pytest.mark.exhaustive),
    ],
)
def test_a_series_that_was_cut_off_anywhere_is_the_one_before_and_goes_on(
    call, step, begun, tmp_path, monkeypatch
):
    root = tmp_path / "out"
    run = run_job(with_times(begun(), DAYS[1])).path
    whole = getattr(os, call)
    before, cuts = opened(tmp_path, "map"), 0
    for after in range(0, 1000, step):
        left = iter(range(after, -1, -1))

        def cut(*arguments, left=left, **settings):
            if next(left, -1) == 0:
                raise OSError(5, "Input/output error")
            return whole(*arguments, **settings)

        with output_lock(root), monkeypatch.context() as patched:
            patched.setattr(os, call, cut)
            try:
                (done,) = series.append_runs(root, [run])
            except StoreError:
                cuts += 1
            else:
                break
        series.verify_series(root)
        if run_of(root, DAYS[1]) is None:
            xr.testing.assert_equal(opened(tmp_path, "map"), before)
    assert cuts > 0
    assert run_of(root, DAYS[1]) == run.stem
    assert opened(tmp_path, "map").time.size == 2
    assert done.version == 2
    series.verify_series(root)


@pytest.mark.parametrize(("now", "goes_on"), [("degC", True), ("", False), ("K", False)])
def test_a_series_goes_on_where_a_unit_is_no_longer_unsaid(now, goes_on):
    """A version that reads more of a name states units that the one before did not."""
    described = {"shape": [1, 3], "data_type": "float64"}
    new, old = ({**described, "attributes": {"units": unit} if unit else {}} for unit in (now, "degC"))
    unsaid = {**described, "attributes": {}}
    series._check_same_array("map", "t_mean", new, unsaid)
    if goes_on:
        series._check_same_array("map", "t_mean", new, old)
    else:
        with pytest.raises(ConfigurationError) as refused:
            series._check_same_array("map", "t_mean", new, old)
        assert refused.value.key == "of-another-job"


@pytest.mark.exhaustive
def test_what_does_not_continue_the_series_is_refused_and_changes_nothing(begun, tmp_path):
    root = tmp_path / "out"
    before = opened(tmp_path, "map")
    without = begun(times=ALL, design={"train": random_points(200), "test": random_points(40, seed=1)})
    refused = "does not continue group 'map' of the series"
    assert [refused in day.failed.reason for day in daily(without)] == [True, True]
    design = begun().design.model_dump(mode="json", exclude_none=True)
    other = begun(times=ALL, design={**design, "map": map_grid(45.0)})
    assert [day.failed.kind for day in daily(other)] == ["another grid"] * 2
    both = run_job(with_times(begun(), ",".join(DAYS[:2]))).path
    with pytest.raises(ArgumentError) as refusal, output_lock(root):
        series.append_runs(root, [both])
    assert refusal.value.key == "several-times"
    xr.testing.assert_equal(opened(tmp_path, "map"), before)


def test_a_prior_that_moves_with_the_newest_time_is_refused_for_several(tmp_path):
    write_source(tmp_path / "field.zarr", DAYS)
    moving = {"mean": "constant", "fit_times": {"last": "2d", "at": "00:00"}}
    with pytest.raises(ConfigurationError) as refusal:
        list(daily(the_job(tmp_path, times=ALL, prior=moving)))
    assert refusal.value.key == "fit-times-moving"


@pytest.mark.exhaustive
def test_verify_compares_the_series_with_the_runs_that_it_names(begun, tmp_path):
    root = tmp_path / "out"
    list(daily(begun(times=ALL)))
    verified = CliRunner().invoke(app, ["verify", str(root)])
    assert verified.exit_code == 0
    assert "000002.zarr: 2 times, 2 equal to their runs" in verified.stdout.replace("\n", "")
    version = series.current_version(root)
    kept = shutil.copytree(version, tmp_path / "kept")

    def swapped(group):
        return group.assign(t2m_mean=group.t2m_mean.copy(data=group.t2m_mean.values[::-1]))

    def worse(group):
        return group.assign(rmse=group.rmse * np.array([1.0, 1.0 + 1e-12]))

    cases = {
        "map/t2m_mean of .* is not that of the run": ("map", swapped),
        "scores/rmse of .*000002.zarr at 2020-01-02": ("scores", worse),
        "'regions' of .* has a time twice": ("regions", lambda group: group.isel(time=[0, 0])),
        "'map' of .* does not have the times": ("map", lambda group: group.isel(time=[0])),
    }
    for text, (name, change) in cases.items():
        rewritten(version, name, change)
        with pytest.raises(StoreError, match=text):
            check_series(root)
        shutil.rmtree(version)
        shutil.copytree(kept, version)
    assert CliRunner().invoke(app, ["verify", str(root)]).exit_code == 1, "of other digests"
    manifest.manifest_path(version).write_text(manifest.build(version, name=version.name))
    prune_runs(root, Retention(runs=1))
    found = check_series(root)
    assert (found.version, found.times, found.compared) == (version, 2, 1)


def test_a_damaged_series_is_named(begun, tmp_path):
    version = series.current_version(tmp_path / "out")
    chunk = next((version / "map/t2m_mean").glob("c.*"))
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(StoreError) as refusal:
        series.verify_series(tmp_path / "out")
    assert refusal.value.key == "damaged"
    shutil.rmtree(version)
    with pytest.raises(StoreError) as refusal:
        list(daily(begun()))
    assert refusal.value.key == "lost"


def test_a_day_that_fails_ends_no_other_and_is_tried_ever_less_often(begun, tmp_path, monkeypatch):
    missing, error = True, DataError("not what it says it is")

    def run(job, original=run_job, **settings):
        if missing and job.observations.listed_times[0].startswith(DAYS[0]):
            raise error
        return original(job, **settings)

    def failed():
        return list(DayRecords.read(tmp_path / "out").failed.values())

    monkeypatch.setattr("cagp_dist.service.run.run", run)
    shutil.rmtree(tmp_path / "out")
    now, hour = dt.datetime(2020, 1, 3, tzinfo=dt.UTC), dt.timedelta(hours=1)
    job = begun(times=ALL)
    late, done = daily(job, now=now)
    assert late.failed.kind == "refused"
    assert "not what it says" in late.line()
    assert (done.status.ok, done.version) == (True, 1)
    (again, _), (waiting, _) = daily(job, now=now), daily(job, now=now)
    assert (again.failed.tries, again.waits, waiting.waits) == (2, False, True)
    (third, _) = daily(job, now=now + hour)
    (waiting, _) = daily(job, now=now + 2.9 * hour)
    assert (third.failed.tries, waiting.waits) == (3, True)
    assert failed() == [third.failed]
    mended = begun(times=ALL, solver={"name": "cholesky"})
    other = next(daily(mended, now=now))
    assert (other.failed.tries, other.waits) == (4, False), "a job that was mended does not wait"
    error = NotReadyError("not there yet")
    for _ in range(2):
        late = next(daily(mended, now=now, retry=True))
    assert (late.failed.kind, late.failed.again) == ("source missing", now.isoformat()), "data come any hour"
    missing = False
    found = list(daily(begun(times=[DAYS[1]]), now=now, retry=True))
    assert [str(day.time)[:10] for day in found] == DAYS[:2], "a day that is listed no more is filled, too"
    assert not failed()
    assert [str(time)[:10] for time in opened(tmp_path, "map").time.values] == DAYS[:2]


def test_a_file_that_stays_damaged_waits_as_a_day_does_and_one_that_is_damaged_anew_does_not(tmp_path):
    now, hour = dt.datetime(2020, 1, 3, tzinfo=dt.UTC), dt.timedelta(hours=1)

    def note(hours, reason="cut", **settings):
        at = (now + hours * hour).isoformat()
        ((record, waits),) = note_planned(
            tmp_path, [], [FailedDay("a.nc", "damaged", reason, 1, at, "job", is_file=True)], **settings
        )
        assert DayRecords.read(tmp_path).failed == {"a.nc": record}
        return record.tries, waits

    assert [note(hours) for hours in (0, 0, 0.5, 1, 2.9)] == [
        (1, False), (2, False), (2, True), (3, False), (3, True)
    ]  # fmt: skip
    assert (note(2.9, "empty"), note(2.9, "empty"), note(2.9, "empty", retry=True)) == (
        (4, False),
        (4, True),
        (5, False),
    )
    assert note_planned(tmp_path, [], []) == []
    assert not DayRecords.read(tmp_path).failed


def test_days_are_appended_and_lose_nothing_where_a_line_is_cut_off(tmp_path):
    """Each line as long as it is, whatever there is; records of before have no journal."""
    hours = np.datetime64("2020-01-01T00", "ns") + np.arange(300).astype("timedelta64[h]")
    done, records = [DoneDay(f"{hour:032d}", None) for hour in range(300)], tmp_path / "days.json"
    records.write_text(json.dumps({"planned": ["2020-01-01T00:00:00"], "failed": []}, indent=1))
    before = records.read_bytes()
    grown = []
    for hour, day in zip(hours[:200], done, strict=False):
        note_done(tmp_path, {hour: day})
        grown.append((tmp_path / "days.0.jsonl").stat().st_size)
    assert records.read_bytes() == before
    assert len(set(np.diff(grown))) == 1
    with (tmp_path / "days.0.jsonl").open("ab") as stream:
        stream.write(b'{"done": ["2020-01-0')  # cut off
    found = DayRecords.read(tmp_path)
    assert (len(found.done), found.planned) == (200, set())
    failed = FailedDay("2020-01-09T08:00:00", "refused", "no", 1, "2020-01-10T00:00:00+00:00", "job")
    assert [note_failed(tmp_path, failed).tries for _ in range(2)] == [1, 2]
    note_done(tmp_path, dict(zip(hours[201:], done[201:], strict=True)))
    found = DayRecords.read(tmp_path)
    assert len(found.done) == 299
    assert found.failed[failed.what].tries == 2
    note_outdated(tmp_path, [])  # the end of a pass
    assert [path.name for path in tmp_path.glob("days*")] == ["days.json"]
    (tmp_path / "days.0.jsonl").write_text(json.dumps({"done": [failed.what, "ab", None]}) + "\n")
    again = DayRecords.read(tmp_path)
    assert (again.done, again.failed) == (found.done, found.failed), "lines are taken once"
    note_done(tmp_path, {hours[200]: done[200]})
    assert not DayRecords.read(tmp_path).failed
    assert note_failed(tmp_path, failed).tries == 1
    note_outdated(tmp_path, hours[:1])
    records.write_text(records.read_text().replace('"done": {', '"done": {?'))
    assert [note_failed(tmp_path, failed).tries for _ in range(2)] == [2, 3], "what is done is not read"
    records.write_text("{")
    with pytest.raises(StoreError) as refusal:
        DayRecords.read(tmp_path)
    assert refusal.value.key == "days-unreadable"


def test_what_is_stored_of_a_day_or_its_time_is_its_own_fault_and_a_full_disk_is_not(begun, monkeypatch):
    def run(job, original=run_job, **settings):
        if job.observations.listed_times[0].startswith(DAYS[0]):
            raise error
        return original(job, **settings)

    monkeypatch.setattr("cagp_dist.service.run.run", run)
    job = begun(times=ALL, solver={"name": "cholesky"})
    root = job.output.folder
    full, lost = DiskError("cannot write out: No space left on device."), ClusterError("lost")
    for error in (
        full,
        lost,
        BusyError("at work"),
        OSError(errno.ENOSPC, "full"),
        KeyboardInterrupt("asked"),
    ):
        with pytest.raises(type(error), match=str(error.args[-1])):
            list(daily(job))
    assert len(DayRecords.read(root).planned) == 2
    kinds = {
        StoreError("damaged"): "not stored",
        TimeLimitError("over"): "out of time",
        BudgetError("too large"): "refused",
        ArgumentError("no points"): "refused",
        MemoryError("of an array"): "unexpected",
        OSError(errno.ENOENT, "gone"): "unexpected",
    }
    for error, kind in kinds.items():
        failed, done = daily(job, retry=True)
        said = f"{type(error).__name__}: {error}" if kind == "unexpected" else str(error)
        assert (failed.failed.kind, failed.failed.reason) == (kind, said)
        assert done.failed is None
    assert DayRecords.read(root).planned == {f"{DAYS[0]}T00:00:00"}


@needs_mounts
@pytest.mark.parametrize(
    "free_bytes",
    [0, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in (2**17, 2**21, 3 * 2**22))],
)
def test_a_full_disk_ends_the_pass_and_puts_off_no_day(tmp_path, monkeypatch, free_bytes):
    """It is found while a file is read, while its field is kept, or by what the job takes; or by the run."""
    write_source(tmp_path / "field.zarr", DAYS[:2])
    field = xr.open_zarr(tmp_path / "field.zarr", consolidated=False).load()
    (tmp_path / "files").mkdir()
    for index, day in enumerate(DAYS[:2]):
        field.isel(time=[index]).to_netcdf(tmp_path / f"files/{day}.nc", engine="h5netcdf")
    root = tmp_path / "small" / "out"
    job = job_text(
        observations={"source": f"file:{tmp_path}/files/*.nc", "times": DAYS[:2]},
        design={"train": random_points(200), "test": random_points(40, seed=1)},
        output={"root": root},
        notify={"command": ["sh", "-c", f"cat >> {tmp_path}/told"], "on": ["failure"]},
    )
    (tmp_path / "job.toml").write_text(job)

    def a_pass():
        found = CliRunner().invoke(app, ["daily", str(tmp_path / "job.toml")])
        return found.exit_code, found.stdout, found.stderr

    def fill(job, original=run_job, **settings):
        (root / "other").write_bytes(bytes(shutil.disk_usage(root).free))
        return original(job, **settings)

    with small_file_system(tmp_path / "small") as change:
        (tmp_path / "small" / "other").write_bytes(bytes(4096))
        change(size=free_bytes)
        if free_bytes > 2**23:  # enough for all that is planned
            monkeypatch.setattr("cagp_dist.service.disk.check_disk", lambda *_, **__: None)
            monkeypatch.setattr("cagp_dist.service.run.run", fill)
        code, said, notes = a_pass()
        assert (code, said) == (75, "")
        assert "are free in" in " ".join(notes.split())
        assert str(tmp_path / "small") in notes
        assert "No space left" in notes or "of disk for its run" in notes
        assert "are free in" in (tmp_path / "told").read_text(), "nobody but an operator can help"
        assert not DayRecords.read(root).failed
        monkeypatch.undo()
        (root / "other").unlink(missing_ok=True)
        change(size=2**27)
        code, said, notes = a_pass()
        assert (code, said.count("in version")) == (0, 2), notes
        if free_bytes == 0:  # there is a run now that says what one takes
            change(size=0)
            (tmp_path / "job.toml").write_text(job.replace("seed = 1", "seed = 2"))
            code, _, notes = a_pass()
            assert (code, "The last run here takes" in notes) == (75, True)
        change(size=2**27)


def test_a_day_with_too_few_stations_for_the_job_ends_no_other(tmp_path):
    rng, rows = np.random.default_rng(0), ["station,lat,lon,date,height"]
    for day, count in zip(DAYS[:3], (40, 1, 40), strict=True):
        latitude, longitude = rng.uniform(40.0, 60.0, count), rng.uniform(0.0, 30.0, count)
        rows += [f"S{k},{latitude[k]},{longitude[k]},{day},{rng.normal()}" for k in range(count)]
    (tmp_path / "stations.csv").write_text("\n".join(rows))
    source = {"source": f"table:{tmp_path / 'stations.csv'}", "variable": "height", "times": ALL}
    design = {"train": random_points(30), "test": random_points(10, seed=1)}
    (tmp_path / "job.toml").write_text(
        job_text(observations=source, design=design, output={"root": tmp_path / "out", "keep": 1})
    )
    found = CliRunner().invoke(app, ["daily", str(tmp_path / "job.toml")])
    assert found.exit_code == 6, found.output
    assert f"failed: {DAYS[1]}T00:00:00: refused, tried 1 time" in found.stdout
    assert found.stdout.count("in version") == 2
    assert found.stdout.count("removed  ") == 1, "retention has its turn"


@pytest.mark.exhaustive
def test_a_day_is_read_again_when_its_job_or_its_files_have_changed(begun, monkeypatch):
    read = set()

    def ingest(job, report, original=ingestion._ingest):
        read.add(job.observations.listed_times[0][:10])
        return original(job, report)

    monkeypatch.setattr(ingestion, "_ingest", ingest)

    def days_read(job):
        read.clear()
        list(daily(job))
        return sorted(read)

    job, other = begun(times=ALL), begun(times=ALL, solver={"name": "cholesky"})
    assert days_read(job) == [DAYS[1]], "the first one is in the series of the fixture"
    assert days_read(job) == []
    assert days_read(other) == DAYS[:2]
    (batch,) = (job.output.folder / "observations").glob(f"*/{DAYS[1].replace('-', '')}*")
    shutil.rmtree(batch)
    assert days_read(other) == [DAYS[1]]
    shutil.rmtree(job.output.folder / "runs" / f"{run_of(job.output.folder, DAYS[0])}.zarr")
    assert days_read(other) == [DAYS[0]]
    assert days_read(other) == []


def test_an_operator_sees_the_days_of_files_one_of_which_is_damaged(tmp_path, monkeypatch):
    write_source(tmp_path / "field.zarr", DAYS)
    field = xr.open_zarr(tmp_path / "field.zarr", consolidated=False).load()
    (tmp_path / "files").mkdir()
    for index, day in enumerate(DAYS):
        field.isel(time=[index]).to_netcdf(tmp_path / f"files/{day}.nc", engine="h5netcdf")
    damaged = tmp_path / f"files/{DAYS[1]}.nc"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:2000])
    (tmp_path / "files/empty.nc").write_bytes(b"")
    for path in (damaged, tmp_path / "files/empty.nc"):
        os.utime(path, (1.6e9, 1.6e9))  # a new one might be on its way, and would be looked at twice
    times = {"from": DAYS[0], "to": DAYS[3], "every": "1d"}
    text = job_text(
        observations={"source": f"file:{tmp_path}/files/*.nc", "times": times},
        design={"train": random_points(100), "test": random_points(20, seed=1)},
        output={"root": tmp_path / "out"},
    )
    (tmp_path / "job.toml").write_text(text)
    monkeypatch.setattr(dailies, "SHARE", 1.0)  # one version of the series for a pass

    reads = []

    def refuse():
        raise DataError("gone")

    def cagp(*arguments):
        found = CliRunner().invoke(app, [str(argument) for argument in arguments])
        return found.exit_code, found.stdout, found.stderr

    options = ("--times", "all", "--log", "json", "--metrics", tmp_path / "day.prom")
    code, said, notes = cagp("daily", tmp_path / "job.toml", *options)
    samples = metrics_of(tmp_path / "day.prom")
    assert samples['cagp_run_exit_code{job="job"}'] == code
    assert samples[f'cagp_days{{output="{tmp_path / "out"}",state="done"}}'] == 3
    assert code == 6, said
    lines = said.splitlines()
    unread = [str(damaged), str(tmp_path / "files/empty.nc")]
    assert [line.split(": ")[1] for line in lines if line.startswith("failed")] == unread
    assert [line[:10] for line in lines if line.startswith(tuple(DAYS))] == [DAYS[0], *DAYS[2:]]
    assert "is not what it was" not in notes
    assert '"event": "error"' not in notes
    assert "0 days, 2 files that cannot be read" in cagp("status", tmp_path / "out")[1]
    code, said, _ = cagp("daily", tmp_path / "job.toml")  # by its rule there is a time of that day
    assert (code, said.count("in the series already")) == (6, 3)
    assert f"no data yet: {DAYS[1]}T00:00:00: source missing, tried 1 time," in said, "no file has it"
    assert "2 files of it cannot be read" in said
    code, said, _ = cagp("status", tmp_path / "out")
    assert code == 6
    assert f"{DAYS[1]}T00:00:00: source missing, tried 1 time," in said
    assert "failed       0 days, 2 files that cannot be read" in said, "the source was looked at, too"
    assert "no data yet  1 day\n" in said
    assert "3 times, newest" in said
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_files, "run_child", None)  # files that have not changed are not opened
        damaged.unlink()
        assert cagp("daily", tmp_path / "job.toml", "--dry-run")[1].count("in the series, of run") == 3
        patch.setattr("cagp_dist.service.run.run", lambda job, **_: reads.append(job) or refuse())
        again = ("daily", tmp_path / "job.toml", "--times", f"{DAYS[2]}..{DAYS[3]}")
        assert cagp(*again)[1].count("in the series already") == 2
        assert [job.observations.listed_times[0][:10] for job in reads] == [DAYS[1]]
    damaged.write_bytes(whole)
    (tmp_path / "files/empty.nc").unlink()
    code, said, _ = cagp("daily", tmp_path / "job.toml", "--times", f"{DAYS[1]}..{DAYS[1]}")
    assert (code, said[:10]) == (0, DAYS[1])
    code, said, _ = cagp("status", tmp_path / "out")
    assert code == 0
    assert "missing      0 times" in said
    code, said, _ = cagp("daily", tmp_path / "job.toml", "--times", f"from {DAYS[3]} to 2020-01-05 every 1d")
    assert (code, said.count("in the series already")) == (75, 1)
    assert "no data yet: 2020-01-05T00:00:00: source missing, tried 1 time" in said


def test_an_operator_and_monitoring_see_the_state_of_a_folder(begun, tmp_path):
    root = tmp_path / "out"

    def cagp(*arguments, code):
        found = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert found.exit_code == code, found.output
        return found.stdout

    failed = FailedDay(f"{DAYS[1]}T00:00:00", "refused", "no such field", 1, "2020-01-02T06:00:00+00:00", "0")
    for hour in range(LASTING_TRIES):
        note_failed(root, replace(failed, again=f"2020-01-02T{6 + hour:02d}:00:00+00:00"))
    note_planned(root, np.array([DAYS[2]], dtype="datetime64[ns]"), [])
    said = cagp("status", root, "--metrics", tmp_path / "out.prom", code=6)
    assert "failed       1 day; 1 of them 7 times or more: look at what is wrong" in said
    assert "tried 7 times since 2020-01-02T06:00:00+00:00, last 2020-01-02T12:00:00+00:00; " in said
    assert "; tried again from 2020-01-03T12:00:00+00:00." in said
    found = json.loads(cagp("status", root, "--json", code=6))
    assert (found["newest"], found["done"], found["runs"]) == (f"{DAYS[0]}T00:00:00", 1, 2)
    assert found["missing"] == [f"{DAYS[2]}T00:00:00"]
    assert [day["what"] for day in found["failed"]] == [failed.what]
    assert found["seconds"].keys() >= {"Observations", "Solve"}
    assert found["used_bytes"] == allocated_bytes(root) > 0
    samples = metrics_of(tmp_path / "out.prom")
    of = f'output="{root}"'
    assert samples[f"cagp_newest_time_seconds{{{of}}}"] == 1577836800
    states = {"done": 1, "missing": 1, "gaps": 0, "failed": 1, "failed for long": 1, "preliminary": 0}
    for state, count in states.items():
        assert samples[f'cagp_days{{{of},state="{state}"}}'] == count
    assert samples[f"cagp_disk_free_bytes{{{of}}}"] > 0
    assert f'cagp_current_run_stage_seconds{{{of},stage="Solve"}}' in samples
    assert cagp("health", root, code=0) == f"healthy: 1 time, newest {DAYS[0]}T00:00\n"
    assert cagp("health", root, "--max-failed", 1, "--max-missing", 1, "--max-age", "60000d", code=0)
    limits = ("--max-failed", 0, "--max-missing", 0, "--max-age", "36h", "--min-free", "900000TiB")
    said = cagp("health", root, *limits, code=1)
    assert re.match(r"unhealthy: the newest time is [\d.]+ days old, at most 36 h; ", said)
    for part in ("at most 36 h; 1 day failed, at most 0; 1 day missing, at most 0; ", " free, at least "):
        assert part in said
    assert said.count("\n") == 1
    assert "there is no folder" in cagp("health", tmp_path / "nowhere", code=1)
    (tmp_path / "mount").mkdir()
    assert "its disk is not mounted" in cagp("health", tmp_path / "mount", code=1)
    (tmp_path / "mount" / "runs").mkdir()
    (tmp_path / "mount" / "days.json").mkdir()  # which cannot be read as a file
    assert "days.json cannot be read" in cagp("health", tmp_path / "mount", code=1)
    assert cagp("health", root, "--max-age", "soon", code=2) == ""
    assert (
        HealthLimits(max_age=np.timedelta64(36, "h")).faults(
            status_of(root), now=dt.datetime(2020, 1, 2, 12, tzinfo=dt.UTC)
        )
        == []
    )


def test_the_newest_day_is_current_and_days_are_removed_and_given_up(begun, tmp_path, solves):
    root, listed = tmp_path / "out", [*DAYS[:2], "2020-01-09"]
    (tmp_path / "job.toml").write_text(begun(times=listed).text)

    def cagp(*options, code=0):
        found = CliRunner().invoke(app, ["daily", str(tmp_path / "job.toml"), *options])
        assert found.exit_code == code, found.output
        return found.output

    cagp(code=75)
    newest = current_run(root)
    assert newest.stem == run_of(root, DAYS[1])
    run_job(with_times(begun(), DAYS[0]))  # it is published already, and late
    assert find_run(root) == newest
    before = opened(tmp_path, "map").isel(time=[0])
    assert "given up" in cagp("--give-up", "2020-01-09")
    cagp()
    assert "2020-01-09" not in DayRecords.read(root).failed
    assert cagp("--remove", f"{DAYS[1]}..{DAYS[1]}") == f"{DAYS[1]}T00:00: taken out of the series\n"
    xr.testing.assert_identical(opened(tmp_path, "map"), before)
    assert check_series(root).compared == 1
    assert find_run(root).stem == run_of(root, DAYS[0])
    assert cagp().count("already") == 1, "what was removed stays away"
    assert any(line.startswith("given up     2 times") for line in status_of(root).lines())
    assert status_of(root).gaps.size == 0
    assert DAYS[1] in cagp("--retry", code=75)
    assert check_series(root).compared == 2
    assert not solves
    assert int(series.current_version(root).stem) > series.KEPT
    assert len(list((root / ".series").glob("*.zarr"))) == series.KEPT
    for option in ("--remove", "--give-up"):
        assert "not all of these times" in cagp(option, "2020-02-01", code=2)
    cagp("--remove", "all")
    assert series.current_version(root) is None
    assert current_run(root) is None, "none of a day that was taken out"
    note_planned(
        root, np.arange("2020-01-01", "2020-01-07", dtype="datetime64[D]").astype("datetime64[ns]"), []
    )
    assert status_of(root).gaps.size == 2
    assert cagp("--give-up", "2020-01-08").startswith("2020-01-08T"), "the source never had it"
    assert status_of(root).gaps.size == 1


def test_what_is_removed_while_a_pass_solves_it_stays_out_of_the_series(begun, tmp_path, monkeypatch):
    """A pass is between two days, or solves one, and an operator waits for it or is waited for."""
    root = tmp_path / "out"
    job = begun(times=DAYS[:2])
    list(daily(job))
    other = begun(times=DAYS[:2], prior={"lengthscale": 0.3, "variance": 60.0, "noise_variance": 2.0})
    refused = []

    def solve(*arguments, original=steps.solve, **settings):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(removed_days, "WAIT_SECONDS", 0.0)
            with pytest.raises(BusyError):
                removed_days.remove(other, DAYS[1])
        refused.append(run_of(root, DAYS[1]))
        return original(*arguments, **settings)

    def appended(out, solved, original=dailies._appended):
        if any(str(each.time)[:10] == DAYS[1] for each in solved):
            assert removed_days.remove(other, DAYS[1]).size == 1
        return original(out, solved)

    monkeypatch.setattr("cagp_dist.pipeline.solve_task.solve", solve)
    monkeypatch.setattr(dailies, "_appended", appended)
    found = list(daily(other))
    assert len(refused) == 2, "it waits for a solve"
    assert all(refused), "and takes nothing out meanwhile"
    lines = [day.line() for day in found]
    assert f"{DAYS[1]}T00:00: removed or given up while it was solved, and left out" in lines
    assert check_series(root).compared == 1
    records = DayRecords.read(root)
    assert records.given_up == {f"{DAYS[1]}T00:00:00"}
    assert not any(DAYS[1] in what for what in (*records.planned, *records.failed, *records.done))
    assert current_run(root).stem == run_of(root, DAYS[0]), "not what was taken out"
    assert [str(day.time)[:10] for day in daily(other)] == DAYS[:1], "what was removed stays away"


def test_a_pass_waits_for_a_command_of_an_operator(begun, tmp_path, monkeypatch):
    """And a day that fails after it was given up stays given up."""
    job = begun(times=DAYS[:2], prior={"lengthscale": 0.3, "variance": 60.0, "noise_variance": 2.0})
    held, released = threading.Event(), threading.Event()

    def hold():
        with output_lock(tmp_path / "out"):
            held.set()
            released.wait(0.3)

    def refuse(*_, **settings):
        assert settings["wait_seconds"] > 0
        removed_days.give_up(job, "2020-01-09")
        raise DataError("not what it says it is")

    note_planned(tmp_path / "out", np.array(["2020-01-09"], dtype="M8[ns]"), [])
    operator = threading.Thread(target=hold)
    operator.start()
    held.wait()
    assert dailies._is_there(job, run_of(tmp_path / "out", DAYS[0]))
    operator.join()
    monkeypatch.setattr("cagp_dist.service.run.run", refuse)
    list(daily(with_times(job, "2020-01-09"), now=dt.datetime(2020, 1, 10, tzinfo=dt.UTC)))
    records = DayRecords.read(tmp_path / "out")
    assert records.given_up == {"2020-01-09T00:00:00"}
    assert records.times().size == 0


def test_a_day_that_a_pass_puts_into_the_series_while_a_command_waits_is_not_given_up(
    begun, tmp_path, monkeypatch
):
    root, job = tmp_path / "out", begun(times=DAYS[:2])
    note_planned(root, np.array([f"{DAYS[0]}T00:00"], dtype="M8[ns]"), [])
    found = iter([{}, series.runs_of_times(root)])
    monkeypatch.setattr(removed_days.series, "runs_of_times", lambda _: next(found))
    with pytest.raises(ConfigurationError) as refused:
        removed_days.give_up(job, f"{DAYS[0]}T00:00")
    assert refused.value.key == "in-the-series"
    assert not DayRecords.read(root).given_up


@pytest.mark.parametrize(
    "zone", [pytest.param("Pacific/Kiritimati", marks=pytest.mark.exhaustive), "America/Adak"]
)
def test_neither_a_clock_set_back_nor_another_time_zone_changes_what_a_pass_does(
    begun, tmp_path, solves, monkeypatch, zone
):
    """The host is moved 14 hours to the east, or 10 to the west, and its clock a day back."""
    job, now = begun(times=[*DAYS[:2], "2020-01-09"]), dt.datetime(2020, 1, 10, 0, 30, tzinfo=dt.UTC)
    first = list(daily(job, now=now))
    done, maps = DayRecords.read(tmp_path / "out").done, opened(tmp_path, "map")
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        again = list(daily(job, now=now - dt.timedelta(days=1)))
    time.tzset()
    assert [day.time for day in again] == [day.time for day in first]
    assert [day.failed and day.failed.kind for day in again] == [None, None, "source missing"]
    assert not again[2].waits, "a wait that is longer than any is over"
    assert solves == []
    assert DayRecords.read(tmp_path / "out").done == done
    xr.testing.assert_identical(opened(tmp_path, "map"), maps)
    ages = [HealthLimits(max_age=np.timedelta64(days, "D")) for days in (8, 9)]
    assert [bool(limits.faults(status_of(tmp_path / "out"), now=now)) for limits in ages] == [True, False]


def test_a_period_has_the_steps_of_the_job(begun):
    """31 noons are no 744 hours."""
    job = begun(times={"last": "5d", "at": "12:00"})
    rule = with_times(job, "2020-01-01..2020-01-31").observations.times
    times = rule.times(np.empty(0, "datetime64[ns]"))
    assert (times.size, str(times[0])[:16]) == (31, "2020-01-01T12:00")
    every = with_times(job, "from 2020-01-01 to 2020-01-31 every 1h").observations.times
    assert every.times(times[:0]).size == 744
    assert with_times(begun(), "2020-01-01..2020-01-31").observations.times.every is None, "of latest"
    with pytest.raises(ConfigurationError) as refusal:
        with_times(job, "2020-01-01T13:00..2020-01-01T14:00")
    assert refusal.value.key == "option-times"


def test_health_counts_gaps_unreadable_files_and_outdated_days(begun, tmp_path):
    """A gap is any time without a run between two that have one, unless it was given up."""
    days = np.array(DAYS, dtype="datetime64[ns]")
    none, hour = days[:0], "2020-01-05T00:00:00+00:00"
    failed = [
        FailedDay(f"{DAYS[1]}T00:00:00", "source missing", "", 1, hour, ""),
        FailedDay("2020-01-09T00:00:00", "source missing", "", 1, hour, ""),
        FailedDay("a.nc", "damaged", "", 1, hour, "", is_file=True),
        FailedDay("b.nc", "source missing", "", 1, hour, "", is_file=True),
    ]
    found = replace(
        status_of(tmp_path / "out"),
        done=days[[0, 3]],
        gaps=days[2:3],
        missing=none,
        outdated=days[:1],
        earlier=days[[0, 3]],
        failed=tuple(failed),
    )
    limits = HealthLimits(max_gaps=1, max_unreadable=0, max_outdated=1)
    assert limits.faults(found) == [
        "2 gaps, at most 1",
        "1 unreadable file, at most 0",
        "2 days outdated, at most 1",
    ]
    assert HealthLimits(max_gaps=2, max_unreadable=1, max_outdated=2).faults(found) == []
    options = ("--max-gaps", "0", "--max-unreadable", "0", "--max-outdated", "0")
    health = CliRunner().invoke(app, ["health", str(tmp_path / "out"), *options])
    assert health.exit_code == 0, health.output


def test_times_of_which_no_pass_knows_are_gaps_of_a_regular_series(tmp_path):
    def gaps(*days):
        root = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
        root.mkdir()
        note_planned(root, np.datetime64("2020-01-01T12", "ns") + np.array(days) * np.timedelta64(1, "D"), [])
        return status_of(root)

    week = gaps(0, 1, 2, 3, 9, 10)
    assert week.as_json()["gaps"] == [f"2020-01-{day:02d}T12:00:00" for day in range(5, 10)]
    assert any(line.startswith("gaps         5 times: 2020-01-05T12:00, ") for line in week.lines())
    for days in ((), (0,), (0, 1, 2, 3), (0, 31, 60, 91), (0, 2, 4, 6), (0, 1, 3, 6), (0, 1, 2, 2_000_000)):
        assert gaps(*days).gaps.size == 0, days


def test_times_before_the_first_of_the_job_are_neither_gaps_nor_missing(tmp_path):
    days = np.datetime64("2020-01-01T12", "ns") + np.array([0, 1, 3, 5, 6, 7]) * np.timedelta64(1, "D")
    (tmp_path / "runs").mkdir()
    note_planned(tmp_path, days, [])
    note_failed(tmp_path, FailedDay("2020-01-01T12:00:00", "refused", "no", 1, "2020-01-09T00:00:00Z", ""))
    before = status_of(tmp_path)
    assert (before.gaps.size, before.missing.size, len(before.failed)) == (2, 5, 1)
    note_planned(tmp_path, days[4:], [], first="2020-01-04T00:00:00")
    after = status_of(tmp_path)
    assert [str(time)[:10] for time in after.missing] == [
        "2020-01-04",
        "2020-01-06",
        "2020-01-07",
        "2020-01-08",
    ]
    assert [str(time)[:10] for time in after.gaps] == ["2020-01-05"]
    assert after.failed == ()
    note_planned(tmp_path, days[4:], [])
    assert DayRecords.read(tmp_path).first == "2020-01-04T00:00:00", "--times leaves it as it was"


def test_runs_stay_as_the_job_says_and_days_of_others_are_not_done_again(begun, tmp_path, solves):
    output = {"root": tmp_path / "out", "keep_weights": True, "keep": "1 runs"}
    (tmp_path / "job.toml").write_text(begun(times=DAYS[:2], output=output).text)

    def cagp(*arguments):
        found = CliRunner().invoke(app, ["daily", str(tmp_path / "job.toml"), *arguments])
        assert found.exit_code == 0, found.stdout
        return found.stdout

    first = run_of(tmp_path / "out", DAYS[0])
    assert f"would be removed  {tmp_path / 'out/runs' / first}.zarr" in cagp("--dry-run")
    assert f"removed  {tmp_path / 'out/runs' / first}.zarr" in cagp()
    assert "removed" not in (again := cagp())
    assert again.count("in the series already") == 2
    assert solves == []
    assert opened(tmp_path, "map").sizes["time"] == 2
    assert check_series(tmp_path / "out").compared == 1


@pytest.mark.exhaustive
def test_a_job_that_keeps_weights_has_the_numbers_of_one_that_does_not(tmp_path):
    write_source(tmp_path / "field.zarr", DAYS[:1])
    finer = {**map_grid(10.0), "std_resolution_degrees": 30.0}
    design = {"train": random_points(200), "test": random_points(40, seed=1), "map": finer}
    kept, solved = (
        run_job(
            the_job(tmp_path, design=design, output={"root": tmp_path / "out", "keep_weights": keep})
        ).path
        for keep in (True, False)
    )
    for name in ("map", "map_std", "posterior"):
        found, expected = (xr.open_zarr(path, group=name).load() for path in (kept, solved))
        xr.testing.assert_allclose(found, expected, rtol=1e-12)
    trace, whole = (xr.open_zarr(path, group="trace").load() for path in (kept, solved))
    assert trace.iteration.values.tolist() == [0, 2]
    xr.testing.assert_allclose(trace.rmse, whole.rmse.isel(iteration=[0, 2]), rtol=1e-12)


def test_a_pass_with_nothing_to_do_loads_no_solvers(two_days) -> None:
    job = two_days / "job.toml"
    job.write_text(the_text(two_days, times=DAYS[:1]))
    code = (
        "import sys; from cagp_dist.cli import app\n"
        f"app(['daily', {str(job)!r}], standalone_mode=False)\n"
        "heavy = {'scipy', 'numba', 'cagp_dist.service.run', 'cagp_dist.service.task'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"{DAYS[0]}T00:00: in the series already" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
