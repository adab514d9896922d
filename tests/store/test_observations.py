"""Ingest is idempotent by time, survives kills at any moment, and finds every damage before it is read."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from cagp_dist.errors import ArgumentError, BusyError, ConfigurationError, DataError, StoreError
from cagp_dist.store import batches
from cagp_dist.store.batches import DamagedStoreError
from cagp_dist.store.ingested import IngestResult, append_times, open_observations, stored_times
from cagp_dist.store.set_aside import set_aside_preliminary
from cagp_dist.store.zarr_arrays import missing_chunks

from ..joined import one_after_another
from .killed_append import STEP, field

SMALL = 2 * 3 * 4 * 4  # two times of the small field


@pytest.fixture
def store(tmp_path):
    return tmp_path / "out" / "observations.zarr"


def batch_folders(store):
    return sorted(path for path in store.iterdir() if path.is_dir())


def test_what_was_appended_is_opened_again(store):
    given_field = field([0, 1, 2])
    given_field.t2m[1, 0, 0] = np.nan
    assert append_times(store, given_field) == IngestResult(times_added=3, times_present=0)
    opened = open_observations(store)
    xr.testing.assert_equal(opened, given_field)
    assert opened.time.dtype == np.dtype("datetime64[ns]")
    assert opened.t2m.dtype == np.float32
    assert all(variable.encoding == {} for variable in opened.variables.values())
    assert opened.attrs["source"] == "made"
    assert opened.attrs["source_sha256"] == "0" * 64


def test_attributes_of_the_variables_are_kept(store):
    given_field = field([0])
    given_field.t2m.attrs = {"units": "K", "standard_name": "air_temperature"}
    append_times(store, given_field)
    assert open_observations(store).t2m.attrs == given_field.t2m.attrs


def test_another_spelling_of_its_unit_is_no_other_variable(store):
    old, new = (field([step]).rename(t2m="wind") for step in (0, 1))
    old.wind.attrs, new.wind.attrs = {"units": "m s**-1"}, {"units": "m s-1"}
    append_times(store, old)
    assert append_times(store, new) == IngestResult(times_added=1, times_present=0)
    with pytest.raises(StoreError) as refused:
        append_times(store, new.assign(wind=new.wind.assign_attrs(units="hPa")))
    assert refused.value.key == "of-another-variable"


def test_a_time_that_is_there_already_is_skipped_and_others_are_inserted(store):
    append_times(store, field([2, 5]))
    assert append_times(store, field([2, 5])) == IngestResult(times_added=0, times_present=2)
    assert len(batch_folders(store)) == 1
    assert append_times(store, field([0, 2, 3])) == IngestResult(times_added=2, times_present=1)
    xr.testing.assert_equal(open_observations(store), field([0, 2, 3, 5]))


@settings(max_examples=4, deadline=None)
@given(st.lists(st.sets(st.integers(0, 5), min_size=1), min_size=1, max_size=4))
def test_the_order_of_appends_does_not_matter(tmp_path_factory, parts):
    store = tmp_path_factory.mktemp("order") / "observations.zarr"
    for part in parts:
        append_times(store, field(sorted(part)), batch_bytes=SMALL)
    opened = open_observations(store)
    xr.testing.assert_equal(opened, field(sorted(set().union(*parts))))
    other = store.with_name("at-once.zarr")
    append_times(other, field(sorted(set().union(*parts))))
    assert open_observations(other).attrs == opened.attrs


def test_other_values_at_a_time_that_is_there_are_refused_and_nothing_is_written(store):
    append_times(store, field([0, 1]))
    changed = field([1, 2])
    changed.t2m[0, 0, 0] += 0.5
    with pytest.raises(StoreError) as refused:
        append_times(store, changed)
    assert refused.value.key == "several-values"
    xr.testing.assert_equal(open_observations(store), field([0, 1]))
    changed.t2m[0] = np.nan
    with pytest.raises(StoreError) as refused:
        append_times(store, changed)
    assert refused.value.key == "several-values"


def test_another_grid_is_refused(store):
    append_times(store, field([0]))
    shifted = field([1]).assign_coords(latitude=[-11.0, 0.0, 11.0])
    with pytest.raises(StoreError) as refused:
        append_times(store, shifted)
    assert refused.value.key == "of-another-grid"
    with pytest.raises(StoreError) as refused:
        append_times(store, field([1]).isel(longitude=[0, 1]))
    assert refused.value.key == "of-another-grid"
    rounded = field([1]).assign_coords(latitude=np.array([-10.0, 1e-6, 10.0]))
    assert append_times(store, rounded).times_added == 1


def test_only_the_wanted_times_are_read(store):
    append_times(store, field(range(6)), batch_bytes=SMALL)
    assert len(batch_folders(store)) == 3
    damaged = batch_folders(store)[0] / "t2m" / "c.0.0.0"
    damaged.write_bytes(b"")
    opened = open_observations(store, times=["2020-01-06T00:00Z", "2020-01-03"])
    xr.testing.assert_equal(opened, field([2, 5]))
    xr.testing.assert_equal(open_observations(store, times=field([3]).time.values), field([3]))
    with pytest.raises(StoreError) as refusal:
        open_observations(store)
    assert refusal.value.key == "damaged"
    with pytest.raises(StoreError) as refusal:
        append_times(store, field([0, 9]))
    assert refusal.value.key == "damaged"


def test_absent_times_are_named(store):
    append_times(store, field([0, 3]))
    with pytest.raises(DataError) as refused:
        open_observations(store, times=["2020-01-01", "2021-01-01"])
    assert refused.value.key == "absent-times"
    with pytest.raises(DataError) as refused:
        open_observations(store, times=[])
    assert refused.value.key == "absent-times"
    with pytest.raises(ArgumentError) as refusal:
        open_observations(store, times=["noon"])
    assert refusal.value.key == "times"


def test_a_process_opens_a_batch_once_to_list_it(store, monkeypatch):
    """What a daily job does: look for a day, set aside what is final now, add the day and read it."""
    append_times(store, field(range(5)), batch_bytes=SMALL // 2)
    old = [path.name for path in batch_folders(store)]
    opened = []

    def open_group(path, original=batches.open_group):
        opened.append(path.name)
        return original(path)

    batches._opened.cache_clear()
    monkeypatch.setattr(batches, "open_group", open_group)
    for day in (5, 6):
        with pytest.raises(DataError) as refused:
            open_observations(store, times=field([day]).time.values)
        assert refused.value.key == "absent-times"
        assert set_aside_preliminary(store, field([day])) is None
        assert append_times(store, field([day])).times_added == 1
        assert stored_times(store).size == day + 1
        xr.testing.assert_equal(open_observations(store, times=field([day]).time.values), field([day]))
    assert [opened.count(name) for name in old] == [1, 1, 1, 1, 1]
    assert len(opened) == 5 + 2 + 2, "of both new days: once to list them, once to read them"


def test_a_batch_that_was_exchanged_is_opened_again(store):
    append_times(store, field([0, 1]), batch_bytes=SMALL // 2)
    assert stored_times(store).size == 2
    batch, _ = batch_folders(store)
    good = (batch / "zarr.json").read_bytes()
    (batch / "zarr.json").write_bytes(b"{" + good)
    with pytest.raises(DamagedStoreError) as refusal:
        stored_times(store)
    assert refusal.value.key == "damaged"
    (batch / "zarr.json").unlink()
    with pytest.raises(DamagedStoreError) as refusal:
        stored_times(store)
    assert refusal.value.key == "damaged"
    (batch / "zarr.json").write_bytes(good)
    listed = batches.list_batches(store)
    assert stored_times(store).tolist() == field([0, 1]).time.values.tolist()
    with pytest.raises(ValueError, match="read-only"):
        listed[batch.name].times[0] = listed[batch.name].times[0]


def test_no_store_an_empty_one_and_something_else_are_told_apart(store, tmp_path):
    with pytest.raises(StoreError) as refused:
        open_observations(store)
    assert refused.value.key == "no-store"
    append_times(store, field([0]))
    for batch in batch_folders(store):
        batch.rename(tmp_path / "elsewhere")
    with pytest.raises(DataError) as refused:
        open_observations(store)
    assert refused.value.key == "no-times"
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError) as refused:
        append_times(tmp_path / "folder", field([0]))
    assert refused.value.key == "not-a-store"


def test_chunks_are_small_compressed_and_checked(store, monkeypatch):
    monkeypatch.setattr(batches, "CHUNK_BYTES", 3 * 4 * 4)
    append_times(store, field(range(4)))
    (batch,) = batch_folders(store)
    array = zarr.open_group(batch, mode="r")["t2m"]
    assert array.chunks == (1, 3, 4)
    assert "Crc32c" in str(array.compressors)
    assert missing_chunks(store) == []


@pytest.mark.parametrize("kind", ["flip", "cut", "gone", "extra"])
def test_damage_to_any_file_of_a_batch_is_found(store, kind):
    append_times(store, field([0, 1]))
    (batch,) = batch_folders(store)
    rng = np.random.default_rng(0)
    for file in sorted(path for path in batch.rglob("*") if path.is_file()):
        good = file.read_bytes()
        if kind == "flip":
            bad = bytearray(good)
            bit = int(rng.integers(0, 8 * len(good)))
            bad[bit // 8] ^= 1 << (bit % 8)
            file.write_bytes(bad)
        elif kind == "cut":
            file.write_bytes(good[:-1])
        elif kind == "gone":
            file.unlink()
        else:
            (batch / "extra").write_bytes(b"")
        with pytest.raises((StoreError, DataError)) as caught:
            open_observations(store, times=["2020-01-01"])
        assert str(store) in str(caught.value)
        file.write_bytes(good)
        (batch / "extra").unlink(missing_ok=True)
    xr.testing.assert_equal(open_observations(store), field([0, 1]))


def test_a_damaged_chunk_is_named_and_damaged_attributes_name_the_batch(store):
    append_times(store, field([0]))
    (batch,) = batch_folders(store)
    metadata = batch / "t2m" / "zarr.json"
    text = metadata.read_text()
    metadata.write_text(text.replace("NaN", "0.0"))
    with pytest.raises(StoreError) as refusal:
        open_observations(store)
    assert refusal.value.key == "damaged"
    metadata.write_text(text)
    chunk = batch / "t2m" / "c.0.0.0"
    chunk.unlink()
    with pytest.raises(StoreError) as refusal:
        open_observations(store)
    assert refusal.value.key == "damaged"


def test_one_process_at_a_time_writes(store):
    append_times(store, field([0]))
    with (store.parent / ".observations.zarr.lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        staging = store.parent / ".observations.zarr.staging"
        (staging / "work").mkdir(parents=True)
        with pytest.raises(BusyError) as refused:
            append_times(store, field([1]))
        assert refused.value.key == "in-use"
        assert (staging / "work").exists()
    assert append_times(store, field([1])).times_added == 1
    assert not staging.exists()


def test_a_full_disk_is_an_error_and_the_store_stays_as_it_was(store, monkeypatch):
    append_times(store, field([0]))

    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(batches.os, "rename", full)
    with pytest.raises(StoreError) as refusal:
        append_times(store, field([1]))
    assert refusal.value.key == "disk-full"
    monkeypatch.undo()
    assert sorted(os.listdir(store.parent)) == [".observations.zarr.lock", "observations.zarr"]
    xr.testing.assert_equal(open_observations(store), field([0]))


def test_a_folder_that_cannot_be_made_is_a_configuration_error(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigurationError) as refusal:
        append_times(tmp_path / "file" / "observations.zarr", field([0]))
    assert refusal.value.key == "not-writable"


@one_after_another
@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.assign(tp=d.t2m),
        lambda d: d.transpose("latitude", ...),
        lambda d: d.isel(time=[1, 0]),
        lambda d: d.isel(time=[]),
        lambda d: d.isel(latitude=slice(None, None, -1)),
    ],
)
def test_what_is_not_canonical_is_refused(store, change):
    with pytest.raises(ArgumentError) as refusal:
        append_times(store, change(field([0, 1])))
    assert refusal.value.key == "not-canonical"
    assert not store.parent.exists()


@pytest.mark.exhaustive
def test_a_kill_at_any_moment_leaves_whole_batches_and_the_next_append_completes_them(tmp_path):
    append_times(tmp_path / "before" / "observations.zarr", field([0, 1]))
    script = Path(__file__).with_name("killed_append.py")
    root = os.fspath(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, script, tmp_path], check=True, env=environment, timeout=600)
    tries = sorted(tmp_path.glob("try-*"), key=lambda path: int(path.name[4:]))
    assert len(tries) * STEP > 16  # a batch has four arrays, each with metadata and a chunk
    seen = set()
    for folder in tries:
        store = folder / "observations.zarr"
        started = int(folder.name[4:]) % 2 == 1
        try:
            opened = open_observations(store)
            days = (opened.time.values - np.datetime64("2020-01-01")).astype("timedelta64[D]").astype(int)
            xr.testing.assert_equal(opened, field(days.tolist()))
        except (StoreError, DataError):
            days = np.array([], dtype=int)
            assert not started
        assert days.tolist() in ([], [0, 1], [0, 1, 2, 3])
        assert not started or days.size >= 2
        seen.add(days.size)
        after = append_times(store, field([0, 1, 2, 3]))
        assert (after.times_added, after.times_present) == (4 - days.size, days.size)
        assert sorted(os.listdir(folder)) == [".observations.zarr.lock", "observations.zarr"]
        xr.testing.assert_equal(open_observations(store), field([0, 1, 2, 3]))
    assert seen == {0, 2, 4}
