"""Old runs are removed, the current one never, and a kill leaves each of them whole or gone."""

import errno
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cagp_dist.cli import app
from cagp_dist.errors import ArgumentError, ConfigurationError, StoreError
from cagp_dist.fields.canonical import canonical
from cagp_dist.store import group_dataset
from cagp_dist.store.ingested import append_times
from cagp_dist.store.lock import run_in_use, unused
from cagp_dist.store.prune import old_copies, old_runs, prune_runs
from cagp_dist.store.publish import current_run, make_current, output_lock, verify_files
from cagp_dist.store.retention import Retention, about_run

from ..sources import temperature
from . import publisher


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Four runs, made a day apart in this order: 3, 1, 2, 0; the last one is current."""
    root = tmp_path_factory.mktemp("template") / "out"
    for day, index in enumerate((3, 1, 2, 0)):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(group_dataset, "datetime", _day(day))
            publisher.publish_index(root, index)
    for name in ("report", "export"):
        for index in range(4):
            (root / name / publisher.key_of(index)).mkdir(parents=True)
    return root


def _day(day):
    class Day(group_dataset.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2019, 3, 1 + day, tzinfo=tz)

    return Day


@pytest.fixture
def root(template, tmp_path):
    return Path(shutil.copytree(template, tmp_path / "out"))


def left(root, folder="runs", suffix=".zarr"):
    names = {path.name for path in (root / folder).glob("*")}
    return {index for index in range(4) if publisher.key_of(index) + suffix in names}


def test_the_newest_runs_stay_with_their_manifests_and_reports(root):
    gone = [root / "runs" / f"{publisher.key_of(index)}.zarr" for index in (3, 1)]
    assert old_runs(root, Retention(runs=2)) == gone
    assert left(root) == {0, 1, 2, 3}
    assert prune_runs(root, Retention(runs=2)) == gone
    assert left(root) == left(root, suffix=".sha256") == left(root, "report", "") == {0, 2}
    assert left(root, "export", "") == {0, 1, 2, 3}
    assert list((root / ".staging").iterdir()) == []
    assert prune_runs(root, Retention(runs=2)) == []
    verify_files(current_run(root))


def test_the_current_run_stays_however_old_it_is(root):
    make_current(root, run_key=publisher.key_of(3))
    prune_runs(root, Retention(runs=1))
    assert left(root) == {0, 3}
    verify_files(current_run(root))


def test_of_two_runs_of_one_second_the_one_made_last_is_newer(tmp_path):
    first, second = sorted(range(2), key=publisher.key_of, reverse=True)
    for index in (first, second):
        publisher.publish_index(tmp_path, index)
    make_current(tmp_path, run_key=publisher.key_of(first))
    assert old_runs(tmp_path, Retention(runs=1)) == []


def test_a_run_that_cannot_be_read_counts_by_the_date_of_its_folder(root):
    damaged = root / "runs" / f"{publisher.key_of(1)}.zarr"
    (damaged / "zarr.json").write_bytes(b"")
    os.utime(damaged, (0, 0))
    assert prune_runs(root, Retention(runs=3)) == [damaged]


def test_nothing_is_removed_where_the_current_run_is_not_known(root):
    (root / "CURRENT").write_text("no key")
    with pytest.raises(StoreError) as refusal:
        prune_runs(root, Retention(runs=1))
    assert refusal.value.key == "damaged"
    assert left(root) == {0, 1, 2, 3}


def test_what_is_read_stays_until_the_next_time(root, caplog):
    run, other = (root / "runs" / f"{publisher.key_of(index)}.zarr" for index in (3, 1))
    with run_in_use(run):
        assert prune_runs(root, Retention(runs=2)) == [other]
    assert "is being read" in caplog.text
    verify_files(run)
    assert prune_runs(root, Retention(runs=2)) == [run]
    with run_in_use(run):  # without a manifest nothing is to be kept
        pass


def test_a_job_is_the_same_whichever_times_a_command_asked_for():
    def about(job, **others):
        attributes = {"date_created": "2020-03-01T00:00:00Z", "job": job, "time_coverage_end": "2020-02-01"}
        return about_run("0", {"attributes": {**attributes, **others}})

    text = '[observations]\nsource = "cds"\ntimes = "latest"\n'
    early = about(text, preliminary_times="2020-02-01")
    final = about(text.replace('"latest"', '["2020-02-01"]  # of May') + "# --times 2020-02-01\n")
    assert (early.job, early.preliminary, final.preliminary) == (final.job, True, False)
    assert about(text.replace("cds", "sample")).job != early.job
    assert about("no table").job != early.job


def test_wrong_arguments_are_refused(root, tmp_path):
    with pytest.raises(ArgumentError) as refused:
        prune_runs(root, Retention(runs=0))
    assert refused.value.key == "keep"
    with pytest.raises(ConfigurationError) as refused:
        prune_runs(tmp_path / "absent", Retention(runs=1))
    assert refused.value.key == "no-run"
    assert not (tmp_path / "absent").exists()


@pytest.mark.exhaustive
def test_a_kill_at_any_moment_leaves_each_run_whole_or_gone(template, tmp_path):
    rule = Retention(runs=1)
    for number in range(1, 60):
        root = Path(shutil.copytree(template, tmp_path / str(number)))

        def work(root: Path = root, number: int = number) -> None:
            publisher.at_event(root, number, lambda path: os.kill(os.getpid(), signal.SIGKILL), every=3)
            prune_runs(root, rule)

        _, status = os.waitpid(publisher.in_child(work), 0)
        assert current_run(root).stem == publisher.key_of(0)
        for run in (root / "runs").glob("*.zarr"):
            verify_files(run)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        prune_runs(root, rule)
        assert left(root) == left(root, suffix=".sha256") == {0}
        assert list((root / ".staging").iterdir()) == []
    assert number > 8


def test_the_command_says_what_it_removes_and_waits_for_nobody(root):
    def cagp(*arguments):
        return CliRunner().invoke(app, ["prune", str(root), *arguments])

    would = cagp("--keep", "3", "--dry-run")
    gone = root / "runs" / f"{publisher.key_of(3)}.zarr"
    assert (would.exit_code, would.stdout) == (0, f"would be removed  {gone}\n")
    assert left(root) == {0, 1, 2, 3}
    with output_lock(root):
        busy = cagp("--keep", "3")
    assert (busy.exit_code, busy.stdout) == (75, "")
    assert "is in use by process" in busy.stderr
    assert cagp("--keep", "3").stdout == f"removed  {gone}\n"
    assert cagp("--keep", "0").exit_code == 2


def test_copies_of_files_go_with_the_runs_that_were_made_from_them(root):
    """Those of runs that are there stay, those of days without a run for a while, and what was fetched."""
    days = [f"2019-02-0{1 + index}T00:00:00" for index in range(6)]
    for index in range(4):
        about = root / "runs" / f"{publisher.key_of(index)}.zarr/zarr.json"
        found = json.loads(about.read_text())
        found["attributes"] |= {f"time_coverage_{end}": f"{days[index]}Z" for end in ("start", "end")}
        about.write_text(json.dumps(found))

    def copied(index, kind="file", made=1.5e9):
        axis = np.array([0.0, 10.0])
        field = temperature(np.full((1, 2, 2), 280.0), latitude=axis, longitude=axis, times=[days[index]])
        store = root / "observations" / f"{kind}-{index:012x}.zarr"
        append_times(store, canonical(field))
        os.utime(store, (made, made))
        return store

    stores = [copied(index) for index in range(5)]
    fresh, fetched = copied(5, made=1.6e9), copied(3, kind="cds")
    gone_run = root / "runs" / f"{publisher.key_of(3)}.zarr"
    gone = [gone_run, stores[3], stores[4]]
    assert old_copies(root, [gone_run]) == gone[1:]
    assert prune_runs(root, Retention(runs=3)) == gone
    left_over = {path.name for path in (root / "observations").iterdir()}
    there = [*stores[:3], fresh, fetched]
    assert left_over == {store.name for store in there} | {f".{store.name}.lock" for store in there}
    assert prune_runs(root, Retention(runs=3)) == []


def test_a_run_that_may_be_read_stays_where_descriptors_run_out(root, monkeypatch):
    """Who reads a run cannot be seen then; one without a manifest is none."""
    run = root / "runs" / f"{publisher.key_of(1)}.zarr"

    def refused(path):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    with monkeypatch.context() as patched:
        patched.setattr("cagp_dist.store.lock.open_regular", refused)
        with unused(run) as free:
            assert not free
    with unused(run) as free:
        assert free
    run.with_suffix(".sha256").unlink()
    with unused(run) as free:
        assert free
