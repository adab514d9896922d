"""Values in a folder, there whole or not at all, checked file by file before they are used.

::

    FOLDER/KEY/000007/manifest.json    what it is of, and SHA-256 of each file
                     /NAME/            a Zarr array, written by one task

A value is written under another name beside the keys, flushed to the disk and renamed. Of a key whose value
goes on, the newest two are kept; one that is damaged is passed over for the one before. Several processes may
use one folder: whoever writes holds a shared lock of it.
"""

import errno
import json
import logging
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from cagp_dist.arrays import Array, Indices
from cagp_dist.digest import file_sha256, text_sha256
from cagp_dist.errors import StoreError
from cagp_dist.runtime.memo import MemoMetadata, MemoReader, MemoWriter
from cagp_dist.store.durable_files import disk_errors, files_below, sync, sync_tree, write_durably
from cagp_dist.store.lock import staged_for
from cagp_dist.termination import termination_requested

_log = logging.getLogger(__name__)

KEPT = 2  # states of a piece of work that stay

CHUNK_BYTES = 8 * 2**20

_KEY = re.compile(r"[0-9a-f]{32}|[0-9a-f]{64}")  # Of a run, or of a value

UNUSED_SECONDS = 30 * 24 * 3600.0  # what was not used for so long is removed


@dataclass
class _Clock:
    """When something was kept the last time, by whichever piece of work."""

    last: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class FolderMemo:
    """A folder in which values are kept."""

    folder: Path  # made when something is kept; workers that see it, under the same path, can write to it
    seconds: float = 60.0  # least time between two states of work: what a loss costs at most, beside a step
    _clock: _Clock = field(default_factory=_Clock, repr=False, compare=False)

    def find(self, key: str) -> MemoReader | None:
        """Find a value that is whole; damaged ones are named in the log and removed."""
        found = self.of(key).latest()
        if found is not None:
            with suppress(OSError):  # where nothing may be written it can be used all the same
                os.utime(self.folder / key)
        return found

    def get_or(self, key: str, write: Callable[[MemoWriter], MemoMetadata]) -> MemoReader:
        """Find a value, or keep what ``write`` writes, with what it says of that."""
        if (found := self.find(key)) is not None:
            return found
        with staged_for(self.folder / key) as folder:
            remove_unused(self.folder)
            metadata = {**write(Folder(folder)), "key": key}
            # another process may have been first
            found = keep_folder(Folder(folder), self.folder / key / _name(1), metadata) or self.find(key)
        if found is None:
            raise StoreError(
                f"the folder {self.folder / key} cannot be replaced; remove it.", key="memo-in-the-way"
            )
        return found

    def of(self, key: str) -> "FolderCheckpoint":
        """Checkpoints of a piece of work."""
        return FolderCheckpoint(self.folder / key, self.seconds, self._clock)

    def iterations(self) -> int:
        """Count the iterations of the newest solve of which something is kept; 0 where nothing is."""
        with suppress(OSError, ValueError, KeyError):
            newest = max(self.folder.glob("*/[0-9]*/manifest.json"), key=os.path.getmtime, default=None)
            if newest is not None:
                states = json.loads(newest.read_text())["about"]["states"]
                return max((int(each["iteration"]) for each in states), default=0)
        return 0

    def remove(self) -> None:
        """Remove all values, when the job is done."""
        shutil.rmtree(self.folder, ignore_errors=True)


def checkpoints_folder(root: Path) -> Path:
    """Give the folder in which each run below an output folder has that of its checkpoints."""
    return root.absolute() / ".checkpoints"


def checkpoints_of_run(root: Path, run_key: str, *, seconds: float) -> FolderMemo:
    """Give the checkpoints of a run, at an absolute path; those of others a month old are removed."""
    remove_unused(checkpoints_folder(root), but=run_key)
    return FolderMemo(checkpoints_folder(root) / run_key, seconds)


def remove_unused(folder: Path, *, but: str = "") -> None:
    """Remove what was not used for a month from a folder of values."""
    for path in folder.glob("[0-9a-f]*"):
        with suppress(OSError):
            ours = _KEY.fullmatch(path.name) and path.name != but
            if ours and time.time() - path.stat().st_mtime > UNUSED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class Folder:
    """Arrays in a folder; small enough to travel inside tasks."""

    path: Path

    def write(self, name: str, array: Array | Indices) -> bool:
        """Write an array, whole or not at all; False where this process does not see the folder.

        A cluster may give the task to a second worker while the first goes on: each attempt has its own name.
        """
        if not self.path.is_dir():
            return False
        final = self.path / name
        attempt = self.path.with_name(f".{self.path.name.lstrip('.')}-{uuid.uuid4().hex}")
        rows = max(1, CHUNK_BYTES * len(array) // max(array.nbytes, 1)) if array.ndim else 1
        with disk_errors(final):
            try:
                created = zarr.create_array(
                    os.fspath(attempt),
                    shape=array.shape,
                    chunks=(min(max(len(array), 1), rows), *(max(size, 1) for size in array.shape[1:])),
                    dtype=array.dtype,
                    compressors=[Crc32cCodec()],
                    fill_value=np.nan if array.dtype.kind == "f" else 0,
                    config={"write_empty_chunks": True},
                )
                created[...] = array
                final.parent.mkdir(parents=True, exist_ok=True)
                _rename(attempt, final)  # of two attempts, which wrote the same, the first stays
            finally:
                shutil.rmtree(attempt, ignore_errors=True)
        return True

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Array:
        """Read an array, or some of its rows."""
        try:
            found = zarr.open_array(os.fspath(self.path / name), mode="r")[start:stop]
        except (OSError, ValueError, KeyError) as error:
            raise StoreError(
                f"the checkpoint {self.path} cannot be read: {error}. Remove it and run the same job again.",
                key="memo-unreadable",
            ) from error
        return np.asarray(found)


def _rename(attempt: Path, final: Path) -> bool:
    """Rename a folder; whether no other attempt has been there before."""
    try:
        os.rename(attempt, final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _name(number: int) -> str:
    return f"{number:06d}"


@dataclass(frozen=True)
class KeptFolder(Folder):
    """A value that is there."""

    metadata: MemoMetadata = field(default_factory=dict)


class FolderCheckpoint:
    """The states of one piece of work, numbered, in the folder of its key."""

    def __init__(self, folder: Path, seconds: float, clock: _Clock) -> None:
        self._folder, self._seconds, self._clock = folder, seconds, clock
        self._seen = True

    def due(self) -> bool:
        """Whether what was kept last is old enough, or the process is about to end."""
        old = time.monotonic() - self._clock.last >= self._seconds
        return self._seen and (old or termination_requested())

    def latest(self) -> MemoReader | None:
        """Find the newest state that is whole; damaged ones are named in the log and removed."""
        for path in reversed(self._all()):
            try:
                metadata = verified(path)
                if metadata["key"] != self._folder.name:
                    raise StoreError(
                        f"the checkpoint {path} is damaged: it has another key", key="memo-damaged"
                    )
            except StoreError as error:
                _log.warning("%s. The one before is taken, or the work is done again.", error)
                shutil.rmtree(path, ignore_errors=True)
                continue
            return KeptFolder(path, metadata)
        return None

    def save(self, metadata: MemoMetadata, write: Callable[[MemoWriter], bool]) -> MemoReader | None:
        """Keep what ``write`` writes, and remove all but the newest two."""
        there = self._all()
        number = int(there[-1].name) + 1 if there else 1
        metadata = {**metadata, "key": self._folder.name}
        with staged_for(self._folder) as folder:
            staged = Folder(folder)
            if not write(staged):
                self._seen = False
                _log.warning(
                    "workers do not see %s: nothing is kept of this solve until it ends. Put [output] root "
                    "on a file system that all of them share.",
                    self._folder.parent,
                )
                return None
            while (kept := keep_folder(staged, self._folder / _name(number), metadata)) is None:
                number += 1  # another process was first
        for old in self._all()[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        self._clock.last = time.monotonic()
        return kept

    def _all(self) -> list[Path]:
        """Paths of all, the oldest first."""
        return sorted(self._folder.glob("[0-9]" * 6))


def keep_folder(staged: Folder, final: Path, metadata: MemoMetadata) -> KeptFolder | None:
    """Write the manifest of a folder, what it is of and the digest of each file; flush and rename it.

    None where another process has been there before, which left its own.
    """
    listing = staged.path / "manifest.json"
    with disk_errors(staged.path):
        files = {file: file_sha256(staged.path / file) for file in sorted(files_below(staged.path))}
        files.pop(listing.name, None)
        content = {"about": dict(metadata), "files": files}
        listing.unlink(missing_ok=True)
        write_durably(listing, json.dumps({**content, "sha256": _digest(content)}, indent=1))
        sync_tree(staged.path)
        final.parent.mkdir(parents=True, exist_ok=True)
        if not _rename(staged.path, final):
            return None
    sync(final.parent)
    sync(final.parent.parent)
    return KeptFolder(final, metadata)


def _digest(content: object) -> str:
    return text_sha256(json.dumps(content, sort_keys=True))


def verified(path: Path) -> MemoMetadata:
    """Check every file of a folder and return what it is about; `StoreError` names the damage."""
    listing = path / "manifest.json"

    def damaged(what: str) -> StoreError:
        return StoreError(f"the checkpoint {path} is damaged: {what}", key="memo-damaged")

    try:
        content = json.loads(listing.read_text())
        found = content.pop("sha256")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise damaged(f"{listing.name} cannot be read") from error
    if found != _digest(content):
        raise damaged(f"{listing.name} differs from its SHA-256")
    there = set(files_below(path)) - {listing.name}
    for file in sorted(there | content["files"].keys()):
        if file not in there or file not in content["files"]:
            raise damaged(f"{file} is {'missing' if file not in there else 'not part of it'}")
        if file_sha256(path / file) != content["files"][file]:
            raise damaged(f"{file} differs from its SHA-256")
    metadata: MemoMetadata = content["about"]
    return metadata
