"""Runs that an earlier version packed into one file each: they are checked, and brought back.

::

    OUT/packed/KEY.zip       the files of a run, not compressed again: Zarr reads it as it is, by ZipStore
    OUT/packed/KEY.sha256    the manifest of the run, as it was
"""

import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.store import manifest
from cagp_dist.store.atomic_files import empty_folder
from cagp_dist.store.durable_files import disk_errors, sync
from cagp_dist.store.lock import output_lock
from cagp_dist.store.publish import install

FOLDER = "packed"

_ADVICE = "Restore it from a copy."


def packed_runs(root: Path) -> list[Path]:
    """List the files of packed runs."""
    return sorted((root / FOLDER).glob("*.zip"))


def verify_packed(path: Path) -> None:
    """Compare every file of a packed run with its manifest; a `StoreError` names what is damaged."""
    for _ in _contents(path):
        pass


def unpack_run(root: Path, key: str) -> Path:
    """Bring a packed run back to where runs are, and return it; the packed one goes."""
    found = [path for path in packed_runs(root) if path.stem.startswith(key)]
    if len(found) != 1:
        raise ConfigurationError(
            f"{len(found)} runs in {root / FOLDER} begin with {key!r}; expected the digits of one.",
            key="several-runs",
        )
    (path,) = found
    run = root / "runs" / f"{path.stem}.zarr"
    with output_lock(root), empty_folder(root / ".staging" / f"{path.stem}-{os.getpid()}") as stage:
        with disk_errors(stage):
            for name, content in _contents(path):
                (stage / run.name / name).parent.mkdir(parents=True, exist_ok=True)
                (stage / run.name / name).write_bytes(content)
            shutil.copyfile(path.with_suffix(".sha256"), stage / "manifest")
            sync(stage / "manifest")
        install(stage / run.name, stage / "manifest", run)
        with disk_errors(path):
            path.unlink()
            path.with_suffix(".sha256").unlink()
    return run


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """Read the files of a packed run one after the other, each compared with the manifest."""
    where = path.with_suffix(".sha256")
    try:
        listed = manifest.parse(where.read_bytes(), name=f"{path.stem}.zarr", where=where)
        with zipfile.ZipFile(path) as archive:
            there = set(archive.namelist())
            if wrong := listed.keys() ^ there:
                raise StoreError(f"{path} is not what {where} lists: {min(wrong)}. {_ADVICE}", key="damaged")
            for name, digest in sorted(listed.items()):
                content = archive.read(name)
                if sha256(content).hexdigest() != digest:
                    raise StoreError(
                        f"{path} is damaged: {name} is not what {where} says. {_ADVICE}", key="damaged"
                    )
                yield name, content
    except (OSError, ValueError, RuntimeError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise StoreError(f"{path} cannot be read ({error}). {_ADVICE}", key="unreadable") from error
