"""The disk that a job takes: stated before it begins, enough for it, and refused where it is not free."""

import os
import shutil
import subprocess
import types
from pathlib import Path

import pytest

from cagp_dist.calibration.simulation.beliefs import errors_bytes
from cagp_dist.errors import BudgetError
from cagp_dist.report import write_report
from cagp_dist.runtime import SerialExecutor
from cagp_dist.service.disk import (
    RUN_BYTES,
    DiskNeed,
    bytes_of_errors,
    check_disk,
    check_spilling,
)
from cagp_dist.service.job_plan import JobPlan, plan_job
from cagp_dist.service.job_size import Size
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.store.durable_files import allocated_bytes, folder_bytes

from ..jobs import job_text, map_grid, random_points

MIB = 2**20


@pytest.fixture(scope="module", autouse=True)
def figures_are_not_rendered():
    """Figures take their part of the disk here."""


def job(root, *, samples=0, **runtime):
    return parse_job(
        job_text(
            observations={"source": "synthetic", "grid_degrees": 6.0, "times": ["2020-01-01", "2020-01-02"]},
            design={
                "train": random_points(300),
                "test": random_points(50, seed=1),
                "map": {**map_grid(12.0), "std_samples": samples},
            },
            runtime=runtime,
            output={"root": root},
        )
    )


def blocks(folder: Path) -> int:
    return sum(512 * path.stat().st_blocks for path in folder.rglob("*"))


def free(monkeypatch, count):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: types.SimpleNamespace(free=count))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("seconds", "samples"),
    [(0.0, 50), *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in ((0.0, 0), (1e7, 0)))],
)
def test_a_job_takes_no_more_than_its_plan_says(tmp_path, monkeypatch, seconds, samples):
    """With its report, and as much as there ever is of checkpoints, those of samples of a map among them."""
    asked = job(tmp_path / "out", samples=samples, checkpoint_seconds=seconds)
    found, kept, of_samples = plan_job(asked), [0], [0]
    need = found.disk_need(seconds)
    assert samples == 0 or need.checkpoint_bytes == 3 * (
        found.sampled.checkpoint_bytes + found.plan.checkpoint_bytes
    )
    assert need.line() in found.lines()

    def measure(event):
        folder = tmp_path / "out" / ".checkpoints"
        sizes = {path: path.stat().st_size for path in folder.rglob("c/**/*") if path.is_file()}
        kept[0] = max(kept[0], sum(sizes.values()))
        of_samples[0] = max(of_samples[0], sum(sizes[path] for path in sizes if "squares" in path.parts))

    outcome = run(asked, observe=measure)
    write_report(outcome.path)
    taken = sum(blocks(tmp_path / "out" / folder) for folder in ("runs", "report"))
    assert 0.2 * need.run_bytes < taken <= need.run_bytes
    assert kept[0] <= need.checkpoint_bytes
    assert (of_samples[0] > 0) == (samples > 0)
    assert (kept[0] > 0) == (need.checkpoint_bytes > 0) == (seconds == 0.0)


@pytest.mark.parametrize(
    ("checkpoint_seconds", "checkpoints"),
    [
        (0.0, (2 * 3 * 2 + 1) * 100 + (2 + 1) * 7),  # two of each pass are kept, and one is written
        (60.0, (2 * 3 * 2 + 1) * 100 + (2 + 1) * 7),
        (1e7, 0),
    ],
)
def test_what_a_job_needs_is_summed_up(checkpoint_seconds, checkpoints):
    """Three solves of two passes each, and samples of one pass."""
    planned = JobPlan(
        Size(observed=1000, tested=293, mapped=7, times=3),
        types.SimpleNamespace(solves=2, checkpoint_bytes=100, fields=1),
        sampled=types.SimpleNamespace(solves=1, checkpoint_bytes=7),
    )
    need = planned.disk_need(checkpoint_seconds)
    assert need == DiskNeed(RUN_BYTES + 8 * 3 * (1000 + 8 * 300), checkpoints)


def test_checkpoints_of_a_simulation_are_two_and_the_next_one():
    assert bytes_of_errors(targets=50, fields=20) == 3 * errors_bytes(targets=50, fields=20)


def test_a_job_that_does_not_fit_on_the_disk_is_refused_before_it_begins(tmp_path, monkeypatch):
    asked, text = (
        job(tmp_path / "out", checkpoint_seconds=0.0),
        r"8\.\d* MiB of disk for its run, and 6\.\d* MiB for",
    )
    free(monkeypatch, 8 * MIB)
    with pytest.raises(
        BudgetError, match=rf"takes about {text} checkpoints, and 8 MiB are free in {tmp_path}/out"
    ):
        plan_job(asked)
    assert not (tmp_path / "out").exists()
    begun = []
    with pytest.raises(BudgetError, match=f"takes about {text} checkpoints"):
        run(asked, observe=lambda event: begun.append(event.fraction))
    assert not any(begun), "no iteration was done"


@pytest.mark.parametrize(
    "count",
    [
        9 * MIB,
        30 * MIB - 1,
    ],
)
def test_the_error_says_what_helps(tmp_path, monkeypatch, count):
    free(monkeypatch, count)
    with pytest.raises(BudgetError) as refusal:
        check_disk(tmp_path, DiskNeed(10 * MIB, 20 * MIB))
    assert refusal.value.key == "disk"
    free(monkeypatch, 30 * MIB)
    check_disk(tmp_path / "not" / "there", DiskNeed(10 * MIB, 20 * MIB))


def test_checkpoints_that_are_there_take_no_more(tmp_path, monkeypatch):
    free(monkeypatch, 29 * MIB)
    (tmp_path / "kept").write_bytes(bytes(MIB))
    check_disk(tmp_path, DiskNeed(10 * MIB, 20 * MIB), there=tmp_path)


def test_files_that_go_while_they_are_counted_count_nothing(tmp_path, monkeypatch):
    """Checkpoints of a run that is under way are replaced all the time."""
    (tmp_path / "folder").mkdir()
    for name in ("kept", "going", "folder/more"):
        (tmp_path / name).write_bytes(bytes(100))
    assert folder_bytes(tmp_path) == 300
    lstat = os.lstat

    def looked_at(path, **settings):
        if Path(path).name == "going":
            Path(path).unlink()
            (tmp_path / "folder" / "more").unlink()
            (tmp_path / "folder").rmdir()
        return lstat(path, **settings)

    monkeypatch.setattr(os, "lstat", looked_at)
    assert folder_bytes(tmp_path) == 100
    monkeypatch.undo()
    assert folder_bytes(tmp_path / "not there") == 0


def test_a_plan_counts_the_checkpoints_of_its_own_run_alone(tmp_path, monkeypatch):
    """As the run does which goes on with them; and it is shown also where the disk is too small."""
    asked, plans = job(tmp_path / "out", checkpoint_seconds=0.0), []
    need = plan_job(asked).disk_need(0.0)

    def cut(event):
        if any((tmp_path / "out" / ".checkpoints").rglob("manifest.json")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(asked, observe=cut)
    (own,) = (tmp_path / "out" / ".checkpoints").iterdir()
    enough = need.run_bytes + need.checkpoint_bytes - folder_bytes(own)
    free(monkeypatch, enough)
    plan_job(asked, on_plan=plans.append)
    own.rename(own.with_name("0" * 32))
    with pytest.raises(BudgetError) as refusal:
        plan_job(asked, on_plan=plans.append)
    assert refusal.value.key == "disk"
    assert plans[0] == plans[1]
    assert need.line() in plans[1].lines()


def test_what_workers_can_hold_neither_in_memory_nor_on_disks_is_refused():
    class Workers(SerialExecutor):
        shares_memory, memory_bytes, spill_bytes = False, 100 * MIB, 20 * MIB

    check_spilling(types.SimpleNamespace(peak_bytes=120 * MIB), Workers())
    text = (
        r"about 121 MiB\. The workers hold 100 MiB in memory, .* have 20 MiB free\. Lower \[cluster\] memory"
    )
    with pytest.raises(BudgetError, match=text):
        check_spilling(types.SimpleNamespace(peak_bytes=121 * MIB), Workers())


def test_what_a_folder_takes_is_what_du_says(tmp_path):
    """Two links to one file, a folder, and a file that is mostly a hole."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"1" * 100_000)
    (tmp_path / "link").hardlink_to(tmp_path / "folder" / "file")
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(10_000_000)
    said = subprocess.run(
        ["du", "--summarize", "--block-size=1", str(tmp_path)], check=True, capture_output=True, text=True
    ).stdout.split()[0]
    assert allocated_bytes(tmp_path) == int(said)
    assert folder_bytes(tmp_path) == 10_200_000
