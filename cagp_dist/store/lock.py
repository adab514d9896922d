"""One writer per output root, by a lock that the kernel takes back from dead processes."""

import fcntl
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cagp_dist.digest import open_regular
from cagp_dist.errors import BusyError, ConfigurationError, StoreError
from cagp_dist.store.atomic_files import empty_folder, exchange, open_lock
from cagp_dist.store.durable_files import disk_errors, sync, sync_tree

_POLL_SECONDS = 0.2
_FOLDERS = (
    *(".staging", "runs", "packed", ".series", "observations", ".uploads"),
    *("report", ".checkpoints", ".weights", "downloads"),
)
_STAGED = re.compile(r"\.[0-9a-f]+-[0-9a-f-]+")  # by `staged_for`, and what tasks write on its way into that
# in place, not made elsewhere and renamed
_WRITTEN_BELOW = ("report", ".checkpoints", ".weights", "downloads", "observations")


@contextmanager
def output_lock(root: Path, *, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold the right to write to an output root, made if need be, by a lock of the kernel (``flock``).

    What dead processes left in ``.staging`` is removed.
    """
    lock = root / ".lock"
    with disk_errors(root):
        refuse_linked_folders(root)
        (root / "runs").mkdir(parents=True, exist_ok=True)
    with held(lock, where=root, wait_seconds=wait_seconds):
        with disk_errors(root):
            # The lock is ours: whoever wrote what is in there has died.
            shutil.rmtree(root / ".staging", ignore_errors=True)
            (root / ".staging").mkdir(exist_ok=True)
        yield


@contextmanager
def held(lock: Path, *, where: Path, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock of a file, made if need be, by which one process at a time writes ``where``."""
    with disk_errors(where):
        descriptor = open_lock(lock)
    try:
        deadline = time.monotonic() + wait_seconds
        while not _try_lock(descriptor, lock):
            if time.monotonic() >= deadline:
                holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip() or "another process"
                raise BusyError(
                    f"{where} is in use by {holder}, and one process at a time may write there. "
                    "Wait until it ends, or choose another output root.",
                    key="in-use",
                )
            time.sleep(_POLL_SECONDS)
        name = f"process {os.getpid()} on {socket.gethostname()}\n".encode()
        with disk_errors(where):
            if os.pread(descriptor, 200, 0) != name:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, name, 0)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def run_in_use(run: Path) -> Iterator[None]:
    """Keep a run from being pruned while it is read, by a shared lock of its manifest.

    Other programs do so with ``flock --shared OUT/runs/KEY.sha256 COMMAND``.
    """
    try:
        stream = open_regular(run.with_suffix(".sha256"))
    except OSError:
        yield
        return
    with stream:
        with suppress(OSError):  # a file system without locks, where nothing is pruned either
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield


@contextmanager
def unused(run: Path) -> Iterator[bool]:
    """Whether nobody reads a run by `run_in_use`, which none begins to do within."""
    try:
        stream = open_regular(run.with_suffix(".sha256"))
    except FileNotFoundError:
        yield True  # without a manifest it is no whole run
        return
    except OSError:
        yield False  # who reads it is not known
        return
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


@contextmanager
def staged_for(final: Path, *, staged_names: re.Pattern[str] = _STAGED) -> Iterator[Path]:
    """Give an empty folder beside ``final`` for what is renamed to it; several processes may do so at once.

    Each holds a shared lock of the folder that both are in. What dead processes left there, under names such
    as ``staged_names``, is removed by the next one that is alone.
    """
    folder = final.parent
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # others are at work there, or a file system has no locks of folders
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in folder.glob(".*"):
                if staged_names.fullmatch(left.name):
                    shutil.rmtree(left, ignore_errors=True)
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        with empty_folder(folder / f".{final.name}-{uuid.uuid4().hex}") as staged:
            yield staged
    finally:
        os.close(descriptor)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder, which takes the place of the folder at a path, if one is there, if all goes well.

    It is on the disk then. A path that is a link stays one, and what it leads to is replaced. What is beside
    it may be anybody's, so of leftovers only those of the same path are removed.
    """
    path = Path(os.path.realpath(path))
    names = re.compile(rf"\.{re.escape(path.name)}-[0-9a-f]{{32}}")
    with staged_for(path, staged_names=names) as stage, disk_errors(path):
        yield stage
        sync_tree(stage)
        if path.is_dir():
            exchange(stage, path)
        else:
            os.rename(stage, path)  # an error if a file is there
        sync(path.parent)


def refuse_linked_folders(root: Path) -> None:
    """Write nothing where a link below the output root leads to; the root itself may be one."""
    written = [root / name for name in _FOLDERS]
    written += [path for name in _WRITTEN_BELOW if (root / name).is_dir() for path in (root / name).iterdir()]
    for path in written:
        if path.is_symlink():
            raise ConfigurationError(
                f"{path} is a link to {os.readlink(path)}; expected a folder, since "
                "what a link leads to is not written. Remove it, or let the whole output root lie there.",
                key="link",
            )


def _try_lock(descriptor: int, lock: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StoreError(
            f"cannot lock {lock}: {error.strerror}. Expected a file system with file locks; "
            "choose another output root.",
            key="no-locks",
        ) from error
    return True
