"""Days of a folder of files: each depends on its own files, and what is wrong with others is told once."""

import datetime as dt
import logging
import os
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

from cagp_dist.cli import app
from cagp_dist.errors import AbsentTimeError, ConfigurationError, DataError, NotReadyError
from cagp_dist.fields.files import _decode, local_files
from cagp_dist.fields.files.decoded_files import told_of
from cagp_dist.fields.files.local_files import file_times, open_file
from cagp_dist.fields.selection import Selection
from cagp_dist.service.daily import daily
from cagp_dist.service.day_records import DayRecords, FailedDay
from cagp_dist.service.jobfile.config import parse_job

from ..jobs import job_text, map_grid, random_points
from ..sources import temperature

DAYS = ["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"]
NOW, HOUR = dt.datetime(2020, 1, 5, tzinfo=dt.UTC), dt.timedelta(hours=1)


def write(folder, *days, cut=None, name=None, north=90.0):
    """Write a file of some days, or some bytes of it."""
    folder.mkdir(exist_ok=True)
    path = folder / (name or f"{days[0]}.nc")
    latitude, longitude = np.arange(-85.0, north, 10.0), np.arange(0.0, 360.0, 10.0)
    values = np.stack([np.full((latitude.size, 36), 280.0 + int(day[-2:])) for day in days])
    values += np.random.default_rng(0).normal(size=values.shape)
    temperature(values, latitude=latitude, longitude=longitude, times=list(days)).to_netcdf(
        path, engine="h5netcdf"
    )
    if cut is not None:
        path.write_bytes(path.read_bytes()[:cut])
    os.utime(path, (1.6e9, 1.6e9))  # long ago
    return path


def the_job(folder, *days, **tables):
    return parse_job(
        job_text(
            **{
                "observations": {"source": f"file:{folder}/files/*.nc", "times": list(days)},
                "design": {"train": random_points(200), "test": random_points(40, seed=1)},
                "output": {"root": folder / "out"},
                **tables,
            }
        )
    )


@pytest.fixture
def attempts(monkeypatch):
    """Days that were tried, each in vain."""
    tried = []

    def run(job, **_):
        tried.append(job.observations.listed_times[0][:10])
        raise DataError("not what it says it is")

    monkeypatch.setattr("cagp_dist.service.run.run", run)
    return tried


def test_a_time_that_no_file_has_is_missing_whatever_else_is_damaged(tmp_path, caplog):
    write(tmp_path / "files", DAYS[0])
    bad = [write(tmp_path / "files", DAYS[k], cut=2000) for k in (1, 2)]
    caplog.set_level(logging.WARNING)
    found = list(daily(the_job(tmp_path, DAYS[3]), now=NOW))
    assert [day.failed.what for day in found if day.time is None] == list(map(str, bad))
    missing = next(day.failed for day in found if day.time == np.datetime64(DAYS[3]))
    assert missing.kind == "source missing"
    assert "2 files of it cannot be read" in missing.reason
    assert not any(str(path) in missing.reason for path in bad)
    assert all(day.failed.reason.count(day.failed.what) == 1 for day in found if day.time is None)
    assert not [each for each in caplog.messages if "left out" in each], "they were told already"


def test_a_file_that_does_not_go_with_the_job_is_told_and_ends_no_other_day(tmp_path, monkeypatch, attempts):
    """One field without a time among dated ones, and one that a decoder says is wrongly asked for."""
    for day in DAYS[:2]:
        write(tmp_path / "files", day)
    undated, asked = (write(tmp_path / "files", DAYS[2], name=name) for name in ("undated.nc", "wrong.nc"))
    with xr.open_dataset(undated) as field:
        still = field.load().isel(time=0, drop=True)
    still.to_netcdf(undated, engine="h5netcdf")

    def listing(path, *rest, original=_decode._listing):
        found = original(path, *rest)
        if path.name == asked.name:
            found |= {
                "times": [],
                "error": told_of(ConfigurationError("is not as columns says", key="columns")),
            }
        return found

    monkeypatch.setattr(_decode, "_listing", listing)
    found = list(daily(the_job(tmp_path, *DAYS[:2]), now=NOW))
    files = {day.failed.what: day.failed for day in found if day.time is None}
    assert files.keys() == {str(undated), str(asked)}
    assert "has a field without a time" in files[str(undated)].reason
    assert f"{asked}: is not as columns says" in files[str(asked)].reason
    assert attempts == DAYS[:2]
    with pytest.raises(AbsentTimeError):  # the field without a time is not taken for it
        open_file(tmp_path / "files", Selection(times=DAYS[2:3]), scratch=tmp_path / "cache")


def test_files_are_listed_once_whichever_times_of_them_are_wanted(tmp_path, monkeypatch):
    """Also where an area or units are asked for, which change nothing of the times that a file has."""
    for day in DAYS[:3]:
        write(tmp_path / "files", day)
    listed = []

    def listing(path, *rest, original=_decode._listing):
        listed.append(path.name)
        return original(path, *rest)

    monkeypatch.setattr(_decode, "_listing", listing)
    scratch = tmp_path / "cache"
    file_times(tmp_path / "files", scratch=scratch)
    for day in DAYS[:2]:
        found = Selection(times=[day], area=(60.0, 0.0, 0.0, 90.0), units="K")
        assert open_file(tmp_path / "files", found, scratch=scratch).time.size == 1
    assert sorted(listed) == [f"{day}.nc" for day in DAYS[:3]]


def test_a_failed_day_waits_until_its_files_change_and_not_for_others(tmp_path, attempts):
    paths = [write(tmp_path / "files", day) for day in DAYS[:2]]
    job = the_job(tmp_path, *DAYS[:2])

    def tried(after=0.0):
        attempts.clear()
        list(daily(job, now=NOW + after * HOUR))
        return sorted(attempts)

    assert [tried(), tried(), tried()] == [DAYS[:2], DAYS[:2], []]
    os.utime(paths[1])
    assert [tried(), tried()] == [[DAYS[1]], []]
    write(tmp_path / "files", DAYS[0], name="again.nc")
    assert [tried(), tried()] == [[DAYS[0]], []]
    assert tried(-30.0) == DAYS[:2], "the clock was set back"
    assert tried(-30.0) == []


def test_days_whose_files_are_not_known_wait_for_any_file(tmp_path, attempts):
    write(tmp_path / "files", *DAYS[:2], name="a.nc")
    prior = {"time_kernel": "matern12", "time_lengthscale_hours": 24.0}
    prior |= {"lengthscale": 0.3, "variance": 60.0, "noise_variance": 2.0}
    job = the_job(tmp_path, DAYS[0], prior=prior, solver={"name": "cholesky"})
    for _ in range(3):
        list(daily(job, now=NOW))
    assert len(attempts) == 2
    write(tmp_path / "files", DAYS[3])
    list(daily(job, now=NOW))
    assert len(attempts) == 3


def test_a_wait_ends_by_time_job_or_inputs():
    day = FailedDay("2020-01-01T00:00:00", "refused", "no", 2, (NOW + HOUR).isoformat(), "job", inputs="a")
    assert not day.due(NOW, "job", "a")
    assert day.due(NOW + HOUR, "job", "a")
    assert day.due(NOW, "other", "a")
    assert day.due(NOW, "job", "b")
    assert day.due(NOW - HOUR / 2, "job", "a"), "a clock that was set back"
    assert replace(day, kind="source missing").due(NOW, "job", "a"), "it waits for no longer than a pass"


def test_a_file_that_is_being_written_is_not_damaged(tmp_path, monkeypatch):
    whole = write(tmp_path / "files", DAYS[0])
    half = write(tmp_path / "files", DAYS[1], cut=2000)
    write(tmp_path / "files", DAYS[2], name="c.nc.part", cut=100)
    os.utime(half)

    def sleep(_):
        with half.open("ab") as stream:
            stream.write(b"more")

    monkeypatch.setattr(local_files.time, "sleep", sleep)
    told = {}
    scratch = tmp_path / "cache"
    times = file_times(tmp_path / "files", scratch=scratch, damaged=told.__setitem__)
    assert times.astype("datetime64[D]").astype(str).tolist() == DAYS[:1]
    assert {path: type(error) for path, error in told.items()} == {str(half): NotReadyError}
    day, *_ = daily(the_job(tmp_path, DAYS[0]), now=NOW)
    assert (day.failed.what, day.failed.kind) == (str(half), "source missing")
    assert DayRecords.read(tmp_path / "out").failed[str(half)].kind == "source missing"

    def decode(*arguments, original=local_files._decode):
        os.utime(whole)
        return original(*arguments)

    monkeypatch.setattr(local_files, "_decode", decode)
    with pytest.raises(NotReadyError) as refusal:
        open_file(tmp_path / "files", Selection(times=DAYS[:1]), scratch=scratch)
    assert refusal.value.key == "being-written"


@pytest.mark.exhaustive
@pytest.mark.usefixtures("decoder_in_a_child")
def test_a_file_that_ends_or_holds_up_its_decoder_costs_one_start_and_is_remembered(tmp_path, monkeypatch):
    """A decoder that stops at some files and leaves those before it listed; others are listed after it."""
    paths = [write(tmp_path / "files", day) for day in DAYS]
    decoder, starts = tmp_path / "decoder", tmp_path / "starts"
    decoder.write_text(
        f"#!{os.sys.executable}\n"
        "import os, sys, time, signal\n"
        "from cagp_dist.fields.files import _decode\n"
        f"open({str(starts)!r}, 'a').write('start\\n')\n"
        "listing = _decode._listing\n"
        "def listed(path, *rest):\n"
        f"    if path.name.startswith({DAYS[1]!r}):\n"
        "        time.sleep(60)\n"
        f"    if path.name.startswith({DAYS[2]!r}):\n"
        "        os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    return listing(path, *rest)\n"
        "_decode._listing = listed\n"
        "sys.exit(_decode.decode_command(signal.alarm))\n"
    )
    decoder.chmod(0o755)
    monkeypatch.setattr(local_files.sys, "executable", os.fspath(decoder))
    monkeypatch.setattr(local_files, "LIST_SECONDS", 1)
    for _ in range(2):
        told = {}
        times = file_times(tmp_path / "files", scratch=tmp_path / "cache", damaged=told.__setitem__)
        assert times.astype("datetime64[D]").astype(str).tolist() == [DAYS[0], DAYS[3]]
        assert {path: error.key for path, error in told.items()} == {
            str(paths[1]): "time-limit",
            str(paths[2]): "damaged",
        }
        assert starts.read_text().count("start") == 3


def test_a_day_of_another_grid_is_refused_before_its_run_is_there(tmp_path):
    write(tmp_path / "files", DAYS[0])
    other = write(tmp_path / "files", DAYS[1], north=0.0)
    design = {"train": random_points(200), "test": random_points(40, seed=1)}
    job = the_job(tmp_path, *DAYS[:2], design={**design, "map": map_grid(30.0)})
    first, second = daily(job, now=NOW)
    assert (first.failed, second.failed.kind) == (None, "another grid")
    for said in (str(other), "3 x 12 points", "6 x 12 points", "Give [design] map an area"):
        assert said in second.failed.reason
    assert "emove" not in second.failed.reason
    assert len([*(tmp_path / "out/runs").glob("*.zarr")]) == 1


def test_what_dead_processes_decoded_is_removed_by_the_next_one_that_is_alone(tmp_path):
    (tmp_path / "decode-dead").mkdir()
    (tmp_path / "decode-dead/field").write_bytes(b"0")
    (tmp_path / "known-of-files").mkdir()
    with local_files.scratch_folder(tmp_path) as first:
        assert not (tmp_path / "decode-dead").exists()
        with local_files.scratch_folder(tmp_path) as second:
            assert os.path.isdir(first), "of a process that is alive"
        assert not os.path.exists(second)
    assert [path.name for path in tmp_path.iterdir()] == ["known-of-files"]


def test_files_without_the_variable_and_days_of_another_grid_are_counted(tmp_path, monkeypatch):
    def run(job, **_):
        raise DataError("of another grid", key="of-another-grid")

    monkeypatch.setattr("cagp_dist.service.run.run", run)
    write(tmp_path / "files", DAYS[0])
    path = write(tmp_path / "files", DAYS[1])
    with xr.open_dataset(path) as opened:
        lacking = opened.load().rename(t2m="humidity")
    lacking.humidity.attrs = {}
    lacking.to_netcdf(path, engine="h5netcdf")
    job = the_job(tmp_path, DAYS[0])
    (tmp_path / "job.toml").write_text(job.text)

    def cagp(*arguments):
        return CliRunner().invoke(app, [*arguments, "--metrics", str(tmp_path / "cagp.prom")])

    said = "1 file without the variable, 1 day of another grid"
    assert f"left out: {said}\n" in cagp("daily", str(tmp_path / "job.toml")).stdout
    assert f"left out     {said}\n" in cagp("status", str(tmp_path / "out")).stdout
    text = (tmp_path / "cagp.prom").read_text()
    assert 'cagp_files_without_variable{output="' in text
    assert 'state="of another grid"} 1.0\n' in text
    health = CliRunner().invoke(app, ["health", str(tmp_path / "out"), "--max-unreadable", "0"])
    assert (health.exit_code, said in health.stdout) == (0, True)
    path.unlink()
    list(daily(job))
    assert DayRecords.read(tmp_path / "out").without_variable == 0
