"""Publication when the disk refuses or the process is killed: readers see the run before or the new one."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.store import atomic_files as files
from cagp_dist.store.publish import current_run, output_lock, publish, verify_files

from . import publisher

PUBLISHER = Path(publisher.__file__)

# Trouble with the disk


def test_a_root_below_a_file_is_a_configuration_error(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(ConfigurationError) as refusal, output_lock(place):
            pass
        assert refusal.value.key == "not-writable"
        with pytest.raises(ConfigurationError, match=str(place)):
            publish(place, publisher.make_groups(6, small=True), run_key="ab" * 16, attributes={})


def test_a_root_without_permission_is_a_configuration_error(tmp_path):
    place = tmp_path / "closed"
    place.mkdir()
    place.chmod(0o555)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    code = (
        "import os, sys; from pathlib import Path; from cagp_dist.store.publish import output_lock\n"
        "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "try:\n    with output_lock(Path(sys.argv[1])): print('held')\n"
        "except Exception as error: print(type(error).__name__, error.exit_code, error)\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code, place], capture_output=True, text=True, check=True
    ).stdout
    assert printed.startswith("ConfigurationError 2 cannot write")
    assert f"{place}: Permission denied" in printed


def test_a_file_that_cannot_grow_is_a_store_error(root):
    before = current_run(root)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with output_lock(root), pytest.raises(StoreError, match=rf"{root}.*File too large"):
            publish(root, publisher.make_groups(7), run_key=publisher.key_of(7), attributes={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert current_run(root) == before
    assert list((root / ".staging").iterdir()) == []
    assert publisher.publish_index(root, 7, small=False) == current_run(root)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_failing_file_operations_are_store_errors_and_change_nothing(tmp_path):
    # Every second operation outside the staged hierarchy fails once, and a sample of those inside; after each
    # the publisher checks that CURRENT names the run before or the new one, and that it verifies.
    root = tmp_path / "out"
    output, _ = publisher.start("fail", root).communicate(timeout=300)
    assert output.endswith("done\n"), output
    failures = [line for line in output.splitlines() if line.startswith("failed")]
    assert len(failures) >= 5
    for line in failures:
        assert re.match(rf"failed \d+ (Disk|FullDisk|Store)Error: .*{root}", line), line
        assert "No space left on device" in line or "Input/output error" in line
    assert "child failed" not in output


def _traceable() -> bool:
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True).returncode == 0


needs_strace = pytest.mark.skipif(not _traceable(), reason="needs strace and leave to trace")


@needs_strace
@pytest.mark.exhaustive
def test_everything_is_on_the_disk_before_it_gets_its_name(tmp_path):
    root, log = tmp_path / "out", tmp_path / "log"
    calls = "fsync,rename,renameat,renameat2"
    subprocess.run(
        [
            "strace",
            "-f",
            "-qq",
            "-y",
            "-o",
            log,
            "-e",
            f"trace={calls}",
            sys.executable,
            PUBLISHER,
            "once",
            root,
            "1",
        ],
        check=True,
        capture_output=True,
    )
    run = current_run(root)
    flushed: set[str] = set()
    seen = []
    for line in log.read_text().splitlines():
        if match := re.search(r"fsync\(\d+<(.*?)>\)", line):
            flushed.add(match[1])
        elif match := re.search(r'rename\w*\((?:AT_FDCWD, )?"(.*?)", (?:AT_FDCWD, )?"(.*?)"', line):
            source, target = match.groups()
            if not target.startswith(str(root)):
                continue
            if target == str(run):
                inside = [run, *run.rglob("*")]
                assert {path.relative_to(run) for path in inside} <= {
                    Path(path).relative_to(source) for path in flushed if path.startswith(source)
                }
                assert seen == [str(run.with_suffix(".sha256"))]
            if target == str(root / "CURRENT"):
                assert {source, str(run.parent)} <= flushed
            if not target.startswith(str(root / ".staging")):
                assert source in flushed
                seen.append(target)
    assert seen == [str(run.with_suffix(".sha256")), str(run), str(root / "CURRENT")]
    assert str(root) in flushed


@needs_strace
@pytest.mark.exhaustive
def test_a_disk_that_fails_to_flush_is_a_store_error(root):
    before = current_run(root)
    output = subprocess.run(
        [
            *(
                "strace",
                "-f",
                "-qq",
                "-o",
                os.devnull,
                "-e",
                "trace=fsync",
                "-e",
                "inject=fsync:error=EIO:when=4",
            ),
            *(sys.executable, PUBLISHER, "once", root, "2"),
        ],
        capture_output=True,
        text=True,
    )
    assert output.returncode == 1
    assert re.search(rf"DiskError: cannot write {root}/.staging/.*: Input/output error", output.stderr)
    assert current_run(root) == before
    verify_files(before)


# Kills


@pytest.mark.slow
@pytest.mark.exhaustive
def test_kills_at_random_moments_leave_a_run_that_verifies(tmp_path):
    root = tmp_path / "out"
    looked = tmp_path / "looked"
    process = publisher.start("random", root, 15, 1, looked)
    seen = []
    try:
        while process.poll() is None:
            run = current_run(root)  # a reader that looks all the time
            if run is not None:
                verify_files(run)
                seen.append(run)
                looked.touch()
        output, _ = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 0, output
    assert output.count("killed") == 15
    assert len(set(seen)) > 5
    index_of = {f"{publisher.key_of(index)}.zarr": index for index in range(1_000)}
    order = [index_of[run.name] for run in seen]
    assert order == sorted(order), "a reader saw an older run after a newer one"
    for run in set(seen):
        verify_files(run)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_kill_before_each_file_operation_leaves_the_old_run_or_the_new_one(tmp_path):
    root = tmp_path / "out"
    output, _ = publisher.start("steps", root).communicate(timeout=300)
    assert output.endswith("done\n"), output
    steps = [line.split()[2] for line in output.splitlines() if line.startswith("step")]
    assert len(steps) > 20
    assert steps[-1] == "new"
    assert steps[0] == "old"
    assert "child failed" not in output
    with output_lock(root):
        assert list((root / ".staging").iterdir()) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("every", [1_000, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.exhaustive])])
def test_a_kill_while_a_damaged_current_run_is_replaced_never_leaves_it_missing(tmp_path, every):
    """Before each rename but the exchange of both, one step; the long run, before every file operation."""
    output, _ = publisher.start("replace", tmp_path / "out", every).communicate(timeout=300)
    assert output.endswith("done\n"), output
    steps = [line.split()[2] for line in output.splitlines() if line.startswith("step")]
    assert len(steps) >= (15 if every == 1 else 3)
    assert (steps[0], steps[-1]) == ("damaged", "replaced")
    assert sorted(steps) == steps, "a run that was replaced was damaged again"
    assert "child failed" not in output


@pytest.mark.parametrize("in_one_step", [True, False])
def test_folders_change_places(tmp_path, monkeypatch, in_one_step):
    if not in_one_step:  # a file system that does not know how
        monkeypatch.setattr(files, "_exchange_in_one_step", lambda new, old: False)
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    files.exchange(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old" / "file").read_text() == "new"
    assert (tmp_path / "new" / "file").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(FileNotFoundError):
        files.exchange(tmp_path / "absent", tmp_path / "old")
    assert (tmp_path / "old" / "file").read_text() == "new"
