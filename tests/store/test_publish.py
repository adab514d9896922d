"""Publication: readers see one whole run, damage is found, and trouble is an error that names the path."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
import zarr

from cagp_dist.errors import ArgumentError, BusyError, DiskError, StoreError
from cagp_dist.store import durable_files, manifest
from cagp_dist.store.durable_files import sync_tree
from cagp_dist.store.publish import (
    current_run,
    make_current,
    output_lock,
    publish,
    published,
    run_key,
    verify_files,
)
from cagp_dist.store.zarr_arrays import read_group

from ..joined import one_after_another
from . import publisher


def _files(run: Path) -> list[Path]:
    return [*sorted(path for path in run.rglob("*") if path.is_file()), run.with_suffix(".sha256")]


# What a reader gets


def test_groups_come_back_as_they_were_given(root):
    run = current_run(root)
    verify_files(run)
    for name, group in publisher.make_groups(1).items():
        xr.testing.assert_identical(read_group(run, name), group)


@pytest.mark.parametrize("options", [{}, {"consolidated": False}, {"consolidated": True}])
def test_plain_xarray_opens_a_run_without_a_warning(root, options):
    run = current_run(root)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with xr.open_zarr(run, **options) as opened:
            assert opened.attrs["run_key"] == publisher.key_of(1)
        with xr.open_zarr(run, group="posterior", **options) as opened:
            assert opened.t2m_mean.dims == ("time", "point")
            assert np.isfinite(opened.t2m_std.values).all()
        with xr.open_dataset(run, group="calibration", **options) as opened:
            assert opened.pit_count.sum() == opened.pit.size
        with xr.open_datatree(run, engine="zarr", **options) as tree:
            assert set(tree.children) == {"posterior", "calibration", "trace"}
        assert {name for name, _ in zarr.open_group(run, mode="r").groups()} == set(tree.children)


def test_arrays_are_checksummed_and_unwritten_values_are_nan(root):
    array = zarr.open_array(current_run(root), path="posterior/t2m_std", mode="r")
    assert np.isnan(array.fill_value)
    assert any("Crc32c" in type(codec).__name__ for codec in array.compressors)


def test_attributes_of_the_caller_are_kept_and_structures_become_json_text(tmp_path):
    with output_lock(tmp_path):
        run = publish(
            tmp_path,
            publisher.make_groups(2, small=True),
            run_key=publisher.key_of(2),
            attributes={
                "plan": ["one line", "another"],
                "timings": {"solve": 1.5},
                "calibrated": True,
                "noise_variance": np.float64(0.5),
                "train_count": np.int64(10_000),
                "job": '[solver]\nname = "gauss-seidel"\n',
                "title": "another title",
                "run_key": "no",
            },
        )
    attributes = read_group(run).attrs
    assert attributes["plan"] == '["one line","another"]'
    assert attributes["timings"] == '{"solve":1.5}'
    assert attributes["calibrated"] is True
    assert (attributes["noise_variance"], attributes["train_count"]) == (0.5, 10_000)
    assert attributes["job"] == '[solver]\nname = "gauss-seidel"\n'
    assert attributes["title"] == "another title"
    assert attributes["run_key"] == publisher.key_of(2)
    assert attributes["Conventions"] == "CF-1.13, ACDD-1.3"


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs coreutils")
def test_the_manifest_is_one_that_sha256sum_checks(root):
    manifest = current_run(root).with_suffix(".sha256")
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", manifest.name],
        cwd=manifest.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert checked.stdout.count(": OK") == len(_files(current_run(root))) - 1


def test_a_root_without_runs_has_no_current_run(tmp_path):
    assert current_run(tmp_path) is None
    assert current_run(tmp_path / "absent") is None
    assert published(tmp_path, run_key="ab" * 8) is None


# Publishing again


def test_a_published_key_is_done(root):
    run = current_run(root)
    before = {path: path.stat().st_mtime_ns for path in _files(run)}
    assert published(root, run_key=publisher.key_of(1)) == run
    assert publisher.publish_index(root, 1, small=False) == run
    assert {path: path.stat().st_mtime_ns for path in _files(run)} == before


def test_an_older_run_becomes_current_again_and_all_runs_are_kept(root):
    first = current_run(root)
    second = publisher.publish_index(root, 2)
    assert current_run(root) == second
    verify_files(first)
    assert publisher.publish_index(root, 1, small=False) == first
    assert current_run(root) == first
    verify_files(second)


def test_a_run_is_made_current_by_its_key(root):
    first = current_run(root)
    second = publisher.publish_index(root, 2)
    make_current(root, run_key=publisher.key_of(1))
    assert current_run(root) == first
    with pytest.raises(StoreError) as refusal:
        make_current(root, run_key=publisher.key_of(3))
    assert refusal.value.key == "no-run"
    assert current_run(root) == first
    verify_files(second)


def test_a_damaged_run_is_replaced(root, caplog):
    run = current_run(root)
    damaged = run / "posterior" / "t2m_mean" / "zarr.json"
    damaged.write_bytes(damaged.read_bytes()[:-7])
    assert published(root, run_key=publisher.key_of(1)) is None
    assert "t2m_mean/zarr.json is damaged" in caplog.text
    assert publisher.publish_index(root, 1, small=False) == run
    verify_files(run)
    assert list((root / ".staging").iterdir()) == []


def test_a_run_without_its_manifest_is_replaced(root):
    run = current_run(root)
    run.with_suffix(".sha256").unlink()
    publisher.publish_index(root, 1, small=False)
    verify_files(run)


# Damage


@pytest.mark.exhaustive
def test_every_flipped_bit_is_found(root):
    run = current_run(root)
    rng = np.random.default_rng(0)
    for path in _files(run):
        good = path.read_bytes()
        for position in {0, len(good) - 1, *rng.integers(len(good), size=6).tolist()}:
            bad = bytearray(good)
            bad[position] ^= 1 << int(rng.integers(8))
            path.write_bytes(bad)
            # A flip in the manifest is found in the manifest or in the file whose line it is.
            named = ".*" if path.suffix == ".sha256" else re.escape(str(path))
            with pytest.raises(StoreError, match=named):
                verify_files(run)
        path.write_bytes(good)
    verify_files(run)


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_every_truncation_and_deletion_is_found(root, step):
    run = current_run(root)
    for path in list(_files(run))[::step]:
        good = path.read_bytes()
        named = ".*" if path.suffix == ".sha256" else re.escape(str(path))
        for length in {0, 1, len(good) // 2, len(good) - 1}:
            path.write_bytes(good[:length])
            with pytest.raises(StoreError, match=named):
                verify_files(run)
        path.unlink()
        with pytest.raises(StoreError) as refusal:
            verify_files(run)
        assert refusal.value.key in ("damaged", "unreadable")
        path.write_bytes(good)
    verify_files(run)


def test_a_manifest_cut_at_the_end_of_a_line_is_found(root):
    run = current_run(root)
    manifest = run.with_suffix(".sha256")
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join(lines[:-1]))
    with pytest.raises(StoreError) as refusal:
        verify_files(run)
    assert refusal.value.key == "damaged"


@pytest.mark.parametrize(
    "make", [lambda path: path.write_text("x"), lambda path: path.symlink_to("/etc")], ids=["file", "link"]
)
def test_a_file_too_many_is_found(root, make):
    extra = current_run(root) / "posterior" / "extra"
    make(extra)
    with pytest.raises(StoreError) as refusal:
        verify_files(current_run(root))
    assert refusal.value.key == "damaged"


def test_a_link_that_leads_nowhere_is_an_error_that_names_it(root):
    path = current_run(root) / "posterior" / "zarr.json"
    path.unlink()
    path.symlink_to("nowhere")
    with pytest.raises(StoreError) as refusal:
        verify_files(current_run(root))
    assert refusal.value.key == "unreadable"


def test_a_missing_run_is_an_error(root):
    run = current_run(root)
    shutil.rmtree(run)
    with pytest.raises(StoreError) as refused:
        verify_files(run)
    assert refused.value.key == "no-run"
    with pytest.raises(StoreError) as refused:
        current_run(root)
    assert refused.value.key == "no-run"


@pytest.mark.parametrize(
    "content", [b"", b"../../etc", b"\xff\xfe", b"abc\n", b"AB" * 16, b"ab" * 16 + b"\n\n"]
)
def test_a_damaged_pointer_is_an_error(root, content):
    (root / "CURRENT").write_bytes(content)
    with pytest.raises(StoreError) as refusal:
        current_run(root)
    assert refusal.value.key == "damaged"


def test_a_pointer_that_cannot_be_read_is_an_error(root):
    (root / "CURRENT").unlink()
    (root / "CURRENT").mkdir()
    with pytest.raises(StoreError) as refusal:
        current_run(root)
    assert refusal.value.key == "unreadable"


# What is not published


def _spoil(groups, name, variable, value):
    spoiled = groups[name].copy(deep=True)
    spoiled[variable].values.flat[3] = value
    return {**groups, name: spoiled}


@pytest.mark.parametrize(
    ("name", "variable", "value", "key"),
    [
        ("posterior", "t2m_mean", np.nan, "not-finite"),
        ("posterior", "t2m_std", np.inf, "not-finite"),
        ("posterior", "t2m_std", -0.1, "implausible"),
        ("posterior", "t2m", 21.5, "implausible"),
        ("calibration", "pit", 1.5, "implausible"),
        ("calibration", "coverage", np.nan, "not-finite"),
    ],
)
def test_implausible_values_are_not_published(root, name, variable, value, key):
    before = current_run(root)
    groups = _spoil(publisher.make_groups(3), name, variable, value)
    with output_lock(root), pytest.raises(StoreError) as refusal:
        publish(root, groups, run_key=publisher.key_of(3), attributes={})
    assert refusal.value.key == key
    assert current_run(root) == before
    assert not (root / "runs" / f"{publisher.key_of(3)}.zarr").exists()
    assert list((root / ".staging").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"run_key": "../../../tmp/x"}, "run-key"),
        ({"run_key": ""}, "run-key"),
        ({"groups": {}}, "no-groups"),
        ({"attributes": {"x": object()}}, "not-json"),
        ({"attributes": {"x": float("nan")}}, "not-json"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, arguments, key):
    settings = {
        "groups": publisher.make_groups(4, small=True),
        "run_key": "ab" * 16,
        "attributes": {},
    } | arguments
    groups = settings.pop("groups")
    with pytest.raises(ArgumentError) as refusal:
        publish(tmp_path, groups, **settings)
    assert refusal.value.key == key
    assert list(tmp_path.iterdir()) == []


def test_a_group_that_is_not_in_the_layout_is_refused(tmp_path):
    groups = {"posterior": publisher.make_groups(5)["posterior"].drop_vars("t2m_std")}
    with pytest.raises(StoreError) as refusal:
        publish(tmp_path, groups, run_key="ab" * 16, attributes={})
    assert refusal.value.key == "group-layout"


# Keys


KEY = {
    "job": {"seed": 0, "name": "x"},
    "input_hash": "ab",
    "tiling": [1024, 256],
    "dtype": "float64",
    "numerical_version": "1.0",
}


def test_a_key_depends_on_content_and_not_on_the_order_of_settings():
    key = run_key(**KEY)
    assert re.fullmatch("[0-9a-f]{32}", key)
    assert run_key(**KEY | {"job": {"name": "x", "seed": 0}}) == key


@pytest.mark.parametrize(
    "change",
    [
        {"job": {"seed": 1, "name": "x"}},
        {"input_hash": "ac"},
        {"tiling": [1024, 512]},
        {"dtype": "float32"},
        {"numerical_version": "1.1"},
    ],
)
def test_a_key_changes_with_everything_that_decides_the_result(change):
    assert run_key(**KEY | change) != run_key(**KEY)


def test_a_key_is_the_same_in_another_process():
    code = f"from cagp_dist.store.publish import run_key; print(run_key(**{KEY!r}))"
    environment = os.environ | {"PYTHONHASHSEED": "99"}
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert printed.stdout.strip() == run_key(**KEY)


def test_a_key_of_something_that_is_not_json_is_refused():
    with pytest.raises(ArgumentError) as refused:
        run_key(**KEY | {"job": {"lengthscale": float("inf")}})
    assert refused.value.key == "not-json"


# The lock


def test_a_second_process_is_told_who_holds_the_lock(tmp_path):
    process = publisher.start("hold", tmp_path)
    try:
        assert process.stdout.readline() == "held\n"
        expected = rf"{tmp_path} is in use by process {process.pid} on .*Wait until it ends"
        with pytest.raises(BusyError, match=expected) as caught, output_lock(tmp_path):
            pass
        assert caught.value.exit_code == 75
        started = time.monotonic()
        with pytest.raises(StoreError, match=expected), output_lock(tmp_path, wait_seconds=0.3):
            pass
        assert time.monotonic() - started >= 0.3
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    # The kernel has taken the lock back, and what the dead process left is removed.
    assert (tmp_path / ".staging" / "litter").exists()
    with output_lock(tmp_path):
        assert list((tmp_path / ".staging").iterdir()) == []


@pytest.mark.exhaustive
def test_the_lock_is_waited_for(tmp_path):
    process = publisher.start("hold", tmp_path)
    try:
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGKILL)
        with output_lock(tmp_path, wait_seconds=30.0):
            pass
    finally:
        process.communicate()


def test_the_lock_is_free_after_an_error(tmp_path):
    with pytest.raises(KeyError), output_lock(tmp_path):
        raise KeyError
    with output_lock(tmp_path):
        pass


@one_after_another
@pytest.mark.parametrize(
    "line",
    [
        *(f"{64 * '0'}  r.zarr/{file}" for file in ("../x", "/x", "//x", "t2m/../../x", "t2m//x", "", ".")),
        f"{64 * '0'}  other.zarr/x",
        f"{64 * 'g'}  r.zarr/x",
    ],
)
def test_a_manifest_names_files_of_its_run_alone_with_their_digests(line):
    good = f"{64 * '0'}  r.zarr/t2m/zarr.json\n"
    assert manifest.parse(good.encode(), name="r.zarr", where="it") == {"t2m/zarr.json": 64 * "0"}
    with pytest.raises(StoreError) as refusal:
        manifest.parse(f"{good}{line}\n".encode(), name="r.zarr", where="it")
    assert refusal.value.key == "damaged"


def test_very_many_files_are_flushed_in_one_step_that_may_fail(tmp_path, monkeypatch):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_text("text")
    synced = []
    monkeypatch.setattr(durable_files, "sync", synced.append)
    sync_tree(tmp_path)
    assert synced == [tmp_path / "below" / "file", tmp_path / "below", tmp_path]
    monkeypatch.setattr(durable_files, "MOST_SYNCED", 2)
    sync_tree(tmp_path)
    assert len(synced) == 3
    monkeypatch.setattr(durable_files, "_sync_file_system", lambda path: False)  # as where there is no syncfs
    sync_tree(tmp_path)
    assert len(synced) == 6
    monkeypatch.undo()
    monkeypatch.setattr(durable_files, "MOST_SYNCED", 2)
    monkeypatch.setattr(durable_files.ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syncfs=lambda _: -1))
    monkeypatch.setattr(durable_files.ctypes, "get_errno", lambda: errno.ENOSPC)
    with pytest.raises(DiskError) as refusal:
        sync_tree(tmp_path)
    assert refusal.value.key == "disk-full"
