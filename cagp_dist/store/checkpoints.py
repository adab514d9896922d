"""Checkpoints of solves: folders of arrays with a manifest, there whole or not at all.

::

    OUT/.checkpoints/KEY/SOLVE/000007/manifest.json    what it is of, and SHA-256 of each file
                                     /NAME/            a Zarr array, written by one task

A checkpoint is written under another name, flushed to the disk and renamed; the newest two are kept. One that
is damaged, or of another solve, is passed over for the one before.
"""

import errno
import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from cagp_dist.arrays import Array, Indices
from cagp_dist.digest import file_sha256, text_sha256
from cagp_dist.errors import StoreError
from cagp_dist.solvers.engine.solve_checkpoints import CheckpointMetadata, CheckpointReader, CheckpointWriter
from cagp_dist.store.durable_files import disk_errors, files_below, sync, sync_tree, write_durably
from cagp_dist.store.lock import staged_for
from cagp_dist.termination import termination_requested

_log = logging.getLogger(__name__)

KEPT = 2  # checkpoints of a solve that stay

CHUNK_BYTES = 8 * 2**20

OLD_SECONDS = 30 * 24 * 3600.0  # age at which checkpoints of runs that were never finished are removed


@dataclass
class CheckpointClock:
    """When something was kept the last time, by whichever solve of a job."""

    last: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Checkpoints:
    """Where a job keeps what its solves have reached."""

    folder: Path  # made when something is kept; workers that see it, under the same path, can write to it
    seconds: float = 60.0  # least time between two: what a loss costs at most, beside an iteration
    _clock: CheckpointClock = field(default_factory=CheckpointClock, repr=False, compare=False)

    def within(self, name: str) -> Self:
        """Those of a part of the job."""
        return replace(self, folder=self.folder / name)

    def of(self, fingerprint: str) -> "SolveCheckpoint":
        """Those of a solve, which its fingerprint tells from all others."""
        return SolveCheckpoint(self.folder, fingerprint, self.seconds, self._clock)

    def remove(self) -> None:
        """Remove them all, when the job is done."""
        shutil.rmtree(self.folder, ignore_errors=True)


def checkpoints_folder(root: Path) -> Path:
    """Give the folder in which each run below an output folder has that of its checkpoints."""
    return root.absolute() / ".checkpoints"


def checkpoints_of_run(root: Path, run_key: str, *, seconds: float) -> Checkpoints:
    """Give the checkpoints of a run, at an absolute path; those of others a month old are removed."""
    folder = checkpoints_folder(root)
    for other in folder.glob("*") if folder.is_dir() else ():
        if other.name != run_key and time.time() - other.stat().st_mtime > OLD_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    return Checkpoints(folder / run_key, seconds)


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
                f"the checkpoint {self.path} cannot be read: {error}. Remove it and run the same job again."
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


@dataclass(frozen=True)
class FolderKept(Folder):
    """A checkpoint that is there."""

    metadata: CheckpointMetadata = field(default_factory=dict)


class SolveCheckpoint:
    """The checkpoints of one solve in a folder; those with another fingerprint are passed over."""

    def __init__(self, folder: Path, fingerprint: str, seconds: float, clock: CheckpointClock) -> None:
        self._folder, self._fingerprint, self._seconds, self._clock = folder, fingerprint, seconds, clock
        self._seen = True

    def due(self) -> bool:
        """Whether the last checkpoint of the job is old enough, or the process is about to end."""
        old = time.monotonic() - self._clock.last >= self._seconds
        return self._seen and (old or termination_requested())

    def latest(self) -> CheckpointReader | None:
        """Find the newest one that is whole and of this solve; others are named in the log."""
        for path in reversed(self._all()):
            try:
                metadata = verified(path)
            except StoreError as error:
                _log.warning("%s. The one before is taken, or the solve begins again.", error)
                continue
            if metadata["fingerprint"] == self._fingerprint:
                return FolderKept(path, metadata)
        return None

    def save(
        self, metadata: CheckpointMetadata, write: Callable[[CheckpointWriter], bool]
    ) -> CheckpointReader | None:
        """Keep what ``write`` writes, and remove all but the newest two."""
        there = self._all()
        number = int(there[-1].name) + 1 if there else 1
        metadata = {**metadata, "fingerprint": self._fingerprint}
        with staged_for(self._folder / f"{number:06d}") as folder:
            staged = Folder(folder)
            if not write(staged):
                self._seen = False
                _log.warning(
                    "workers do not see %s: nothing is kept of this solve until it ends. Put [output] root "
                    "on a file system that all of them share.",
                    self._folder,
                )
                return None
            while (kept := keep_folder(staged, self._folder / f"{number:06d}", metadata)) is None:
                number += 1  # another process was first
        for old in self._all()[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        self._clock.last = time.monotonic()
        return kept

    def _all(self) -> list[Path]:
        """Paths of all, the oldest first."""
        return sorted(self._folder.glob("[0-9]" * 6))


def keep_folder(staged: Folder, final: Path, metadata: CheckpointMetadata) -> FolderKept | None:
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
        if not _rename(staged.path, final):
            return None
    sync(final.parent)
    return FolderKept(final, metadata)


def _digest(content: object) -> str:
    return text_sha256(json.dumps(content, sort_keys=True))


def verified(path: Path, *, what: str = "the checkpoint") -> CheckpointMetadata:
    """Check every file of a folder and return what it is about; `StoreError` names the damage."""
    listing = path / "manifest.json"
    try:
        content = json.loads(listing.read_text())
        found = content.pop("sha256")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise StoreError(f"{what} {path} is damaged: {listing.name} cannot be read") from error
    if found != _digest(content):
        raise StoreError(f"{what} {path} is damaged: {listing.name} differs from its SHA-256")
    there = set(files_below(path)) - {listing.name}
    for file in sorted(there | content["files"].keys()):
        if file not in there or file not in content["files"]:
            state = "missing" if file not in there else "not part of it"
            raise StoreError(f"{what} {path} is damaged: {file} is {state}")
        if file_sha256(path / file) != content["files"][file]:
            raise StoreError(f"{what} {path} is damaged: {file} differs from its SHA-256")
    metadata: CheckpointMetadata = content["about"]
    return metadata
