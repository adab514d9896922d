"""The scenarios of `make torture` with few repetitions: what was killed or damaged costs time and no bit."""

import re
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from . import processes
from .__main__ import SCENARIOS, machine, main
from .disks import Disk, failing_disks, full_disks
from .processes import do
from .rows import Row, table
from .workers import kill_storms, killed_workers

SHORT = {
    "workers": (killed_workers, 10),
    "jobs": (SCENARIOS["jobs"][0], 10),
    "checkpoints": (SCENARIOS["checkpoints"][0], 20),
    "schedulers": (SCENARIOS["schedulers"][0], 3),
    "frozen": (SCENARIOS["frozen"][0], 2),
    "storms": (partial(kill_storms, seconds=8.0), 1),
    "failing-disks": (partial(failing_disks, alike=1_000_000), 20),
    "full-disks": (full_disks, 5),
    "damage": (SCENARIOS["damage"][0], 100),
    "at-once": (SCENARIOS["at-once"][0], 5),
    "crowds": (SCENARIOS["crowds"][0], 1),
    "netcdf-4": (SCENARIOS["netcdf-4"][0], 20),
    "grib": (SCENARIOS["grib"][0], 20),
    "job-files": (SCENARIOS["job-files"][0], 100),
}
"""Repetitions of the tests; `make torture` has more of them, and longer solves and storms.

Publications are killed in `tests.store`, more files damaged in `tests.fields` and `tests.service`; the jobs
of a month are killed in `tests.service`.
"""


@pytest.mark.exhaustive
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_what_was_promised_holds(name, tmp_path, request):
    if name == "full-disks":
        request.getfixturevalue("may_mount")
    scenario, count = SHORT[name]
    row = do(scenario, count, np.random.default_rng(0), tmp_path)
    assert row.held, table([row])
    assert row.runs == count


@pytest.mark.parametrize(("alike", "counted"), [(1, 8), (3, 4), (1_000_000, 2)])
def test_of_operations_that_are_alike_the_first_counts_and_then_one_in_so_many(tmp_path, alike, counted):
    disk = Disk(tmp_path, alike=alike)
    for number in range(7):
        disk.happens(number, "write", f"{tmp_path}/runs/key.zarr/c/{number}")
    disk.happens(7, "write", f"{tmp_path}/CURRENT")
    assert disk.count == counted


def test_a_disk_fails_at_its_operation_and_once(tmp_path):
    disk = Disk(tmp_path, alike=1, number=2, code=28)
    disk.happens(0, "write", "a.zarr/a")
    with pytest.raises(OSError, match="No space left on device"):
        disk.happens(1, "write", "a.zarr/b")
    disk.happens(2, "write", "a.zarr/c")
    assert disk.failed == "write a.zarr/b"


def test_a_row_holds_only_what_went_well():
    row = Row("killed")
    row.must_have("kills", 1, at_least=1)
    assert not row.held, "nothing was done"
    row.begin(2)
    assert not row.held, "nothing came of it"
    row.count(same=True)
    assert row.held
    row.ratios.append(3.0)
    row.begin(2)
    row.count(same=False)
    row.expect(True, "not said")
    assert not row.held
    assert (
        table([row]).splitlines()[2]
        == "| killed | 2 | 2 | 1 | 0 | 3.0x | 1 kills; **failed**: run 2: another result |"
    )


def test_a_row_holds_only_if_something_happened():
    row = Row("killed")
    row.begin(10)
    row.count(same=True)
    assert not row.held
    assert "**failed**: nothing is known to have happened" in table([row])
    row.must_have("kills", 4, at_least=5)
    assert not row.held
    assert "**failed**: kills: 4, expected at least 5" in table([row])
    row.must_have("kills", 0, at_least=0)
    assert not row.held, "what must happen must happen once"
    row.must_have("kills", 5, at_least=5)
    assert row.held
    row.named_errors, row.finished, row.identical = 1, 0, 0
    assert row.held, "an error that is allowed"


def test_times_above_what_is_promised_are_marked_and_fail_nothing():
    row = Row("killed")
    row.begin(1)
    row.count(same=True)
    row.must_have("kills", 1, at_least=1)
    row.speed("noticed within", 0.5, 5.0)
    row.speed("noticed within", 7.0, 5.0)
    row.ratios.append(3.1)
    assert row.held
    assert (
        "| **3.1x, above 3x** | 1 kills; noticed within 0.5 s; **noticed within 7.0 s, above 5 s** |"
        in table([row])
    )


def _leaves_a_process(count, rng, folder):
    """Leave one in a group of its own, whose parent has gone."""
    subprocess.run(["sh", "-c", "sleep 600 &"], start_new_session=True, check=True)
    row = Row("left")
    row.begin(count)
    row.count(same=True)
    row.must_have("runs", 1, at_least=1)
    return row


def _fails(count, rng, folder):
    """Come to no row."""
    raise RuntimeError("no cluster")


@pytest.mark.exhaustive
def test_a_scenario_that_fails_or_leaves_processes_does_not_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "CLOSING_SECONDS", 2.0)
    row = do(_leaves_a_process, 1, np.random.default_rng(0), tmp_path)
    assert row.failures == ["run 1: processes are left: ['sleep 600 ']"]
    row = do(_fails, 1, np.random.default_rng(0), tmp_path)
    assert not row.held
    assert "| Come to no row. | 0 |" in table([row])
    assert "RuntimeError: no cluster" in table([row])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("code", "seconds", "text"),
    [
        ("import time; print(1, flush=True); time.sleep(600)", 20.0, "printed nothing for 20 s"),
        ("1 / 0", 120.0, "ended with 1"),
    ],
)
def test_a_process_that_hangs_or_fails_is_a_failure(code, seconds, text, capfd):
    row = Row("lines")
    said = list(processes.lines(row, "-c", code, seconds=seconds))
    assert said == (["1"] if "print" in code else [])
    assert len(row.failures) == 1
    assert text in row.failures[0]


def test_names_and_scales_that_make_no_sense_are_refused(capsys):
    for given, text in (
        (["wrokers"], "there is no scenario wrokers; expected workers"),
        (["--scale", "0"], "0; exp"),
    ):
        with pytest.raises(SystemExit):
            main(given)
        assert text in capsys.readouterr().err
    assert "cagp-dist" in machine()


@pytest.mark.exhaustive
def test_the_command_does_scenarios_writes_the_table_and_says_whether_all_held(tmp_path, monkeypatch, capsys):
    output = tmp_path / "out" / "torture.md"
    given = ["job-files", "--scale", "0.002", "--output", str(output)]
    assert main(given) == 0
    written = output.read_text()
    assert re.search(r"; seed 0\.\n\n\| what was done \|.*\n\| job files damaged \| 20 \|", written, re.S)
    assert capsys.readouterr().out.strip() in written
    monkeypatch.setitem(SCENARIOS, "job-files", (_fails, 1))
    assert main(given) == 1
    assert "**failed**" in output.read_text()


@pytest.mark.exhaustive
def test_the_command_runs_as_a_process_of_its_own(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.torture",
            "job-files",
            "--scale",
            "0.002",
            "--output",
            tmp_path / "table",
        ],
        cwd=processes.ROOT,
        capture_output=True,
        text=True,
        timeout=300.0,
    )
    assert done.returncode == 0, done.stderr
    assert "| job files damaged | 20 |" in done.stdout
    assert "job files damaged: 20 of 20, 0 failures" in done.stderr
