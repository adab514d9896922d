"""Free memory: that of the machine, or what a control group leaves."""

import psutil
import pytest

from cagp_dist import memory
from cagp_dist.memory import available_bytes


@pytest.fixture
def control_groups(tmp_path, monkeypatch):
    """An empty tree of control groups; the process is at its root."""
    monkeypatch.setattr(memory, "CONTROL_GROUPS", tmp_path)
    return tmp_path


def limit(folder, maximum, current):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{maximum}\n")
    (folder / "memory.current").write_text(f"{current}\n")


def enter(monkeypatch, tmp_path, group):
    """Make /proc/self/cgroup say that this process is in ``group``."""
    told = tmp_path / "cgroup"
    told.write_text(f"0::{group}\n")
    path = memory.Path

    def redirected(name):
        return told if name == "/proc/self/cgroup" else path(name)

    monkeypatch.setattr(memory, "Path", redirected)


def test_without_control_groups_it_is_the_free_memory_of_the_machine(control_groups):
    free = psutil.virtual_memory().available * 4 / 5
    assert 0.5 * free < available_bytes() < 1.5 * free
    assert isinstance(available_bytes(), int)


def test_a_group_leaves_what_it_has_not_used(control_groups, monkeypatch, tmp_path):
    enter(monkeypatch, tmp_path, "/slurm/job_7")
    limit(control_groups / "slurm/job_7", 1000, 400)
    assert available_bytes() == 480


def test_the_tightest_of_nested_groups_counts(control_groups, monkeypatch, tmp_path):
    enter(monkeypatch, tmp_path, "/slurm/job_7/step_0")
    limit(control_groups / "slurm/job_7/step_0", "max", 400)
    limit(control_groups / "slurm", 3000, 2900)
    limit(control_groups / "slurm/job_7", 1000, 400)
    assert available_bytes() == 80


def test_files_that_a_group_has_read_are_room(control_groups, monkeypatch, tmp_path):
    enter(monkeypatch, tmp_path, "/job")
    limit(control_groups / "job", 1000, 990)
    (control_groups / "job/memory.stat").write_text("anon 90\ninactive_file 600\nslab_reclaimable 10\n")
    assert available_bytes() == 496


def test_a_group_that_is_full_leaves_nothing(control_groups, monkeypatch, tmp_path):
    enter(monkeypatch, tmp_path, "/full")
    limit(control_groups / "full", 1000, 1200)
    assert available_bytes() == 0


def test_where_there_are_no_control_groups(control_groups, monkeypatch, tmp_path):
    path = memory.Path
    missing = tmp_path / "nowhere"
    monkeypatch.setattr(memory, "Path", lambda name: missing if "cgroup" in str(name) else path(name))
    assert available_bytes() > 0
