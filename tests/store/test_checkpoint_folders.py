"""Folders of arrays that tasks on workers write, some of them twice and some of them not to the end."""

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import zarr

from cagp_dist.errors import ConfigurationError
from cagp_dist.store.memo import Folder, FolderMemo, verified

ARRAY = np.arange(12.0).reshape(4, 3)


class KilledError(BaseException):
    """Ends an attempt in the middle, as a lost worker does."""


def killed_while_writing(folder, name, monkeypatch):
    """Write an array up to the moment when its metadata are there and its values are not, and leave that."""
    with monkeypatch.context() as killed:
        killed.setattr(zarr.Array, "__setitem__", _killed)
        killed.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KilledError):
            folder.write(name, ARRAY)


def _killed(*_):
    raise KilledError


def test_an_array_that_a_lost_worker_began_is_written_by_another(tmp_path, monkeypatch):
    def write(draft):
        killed_while_writing(draft, "panels/rows-0-4", monkeypatch)
        assert draft.write("panels/rows-0-4", ARRAY)
        return True

    checkpoint = FolderMemo(tmp_path, seconds=0.0).of("a")
    for _ in range(2):
        kept = checkpoint.save({}, write)
        np.testing.assert_array_equal(kept.read("panels/rows-0-4"), ARRAY)
        verified(kept.path)
    hidden = [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert len(hidden) == 1, "what the first attempt left is removed with the next checkpoint"


@pytest.mark.parametrize("kind", ["weights", "checkpoints"])
@pytest.mark.parametrize("same", [True, False])
def test_processes_that_write_at_once_keep_what_each_has_begun(kind, same, tmp_path):
    """Also where both write the same: locks do not tell two processes from two saves of one."""

    def save(key, write):
        if kind == "weights":
            return FolderMemo(tmp_path).get_or(key * 64, write)
        return FolderMemo(tmp_path, seconds=0.0).of(key).save({}, write)

    def inner(draft):
        draft.write("array", 2.0 * ARRAY)
        return {"made": "inner"} if kind == "weights" else True

    def outer(draft):
        draft.write("first", ARRAY)
        kept.append(save("a" if same else "b", inner))
        draft.write("array", ARRAY)
        return {"made": "outer"} if kind == "weights" else True

    (tmp_path / ".config").mkdir()  # nothing of ours
    (tmp_path / f".{'0' * 6}-{'f' * 32}").mkdir()  # of a process that died
    kept = []
    kept.insert(0, save("a", outer))
    both = same and kind == "weights"
    assert kept[0].metadata.get("made") == (None if kind == "checkpoints" else "inner" if both else "outer")
    np.testing.assert_array_equal(kept[0].read("array"), (2.0 if both else 1.0) * ARRAY)
    np.testing.assert_array_equal(kept[1].read("array"), 2.0 * ARRAY)
    for each in kept:
        verified(each.path)
    assert {path.name for path in tmp_path.iterdir()} == {
        ".config",
        *(each.path.parent.name for each in kept),
    }
    assert {*tmp_path.glob("[ab]*/*")} == {each.path for each in kept}


def test_an_array_that_is_there_stays_as_it_is(tmp_path):
    folder = Folder(tmp_path)
    assert folder.write("a/b", ARRAY)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert folder.write("a/b", ARRAY)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert sorted(path.name for path in tmp_path.parent.glob(f".{tmp_path.name}-*")) == []


def test_an_array_that_many_write_at_once_is_whole(tmp_path):
    folder, size, errors = Folder(tmp_path), 200_000, []
    array = np.random.default_rng(0).standard_normal(size)

    def write():
        try:
            assert folder.write("a/b", array)
        except BaseException as error:  # seen by the test, and not by a thread
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    np.testing.assert_array_equal(folder.read("a/b"), array)


def test_an_array_that_cannot_take_its_place_is_an_error_that_names_it(tmp_path):
    folder = Folder(tmp_path / "here")
    assert not folder.write("a", ARRAY), "the folder is not seen"
    folder.path.mkdir()
    Path(folder.path / "a").write_text("a file")
    with pytest.raises(ConfigurationError) as refusal:
        folder.write("a", ARRAY)
    assert refusal.value.key == "not-writable"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]
