"""Files and folders that take the place of others whole or not at all."""

import ctypes
import errno
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from cagp_dist.errors import BusyError
from cagp_dist.store.durable_files import disk_errors

READS = 5  # how often what another process replaces meanwhile is read

T = TypeVar("T")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside a file, which takes the place of the file if all goes well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))  # no link to elsewhere
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Do as `replacing`, with errors of this package."""
    with disk_errors(path), replacing(path) as temporary:
        yield temporary


@contextmanager
def empty_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder for work in progress, which is removed at the end."""
    try:
        with disk_errors(path):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def open_lock(path: Path) -> int:
    """Open the file of a lock, made if need be, and nothing that a link or a pipe of that name leads to."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    return descriptor


def exchange(new: Path, old: Path) -> None:
    """Let two folders change places, on Linux in one step (``renameat2``).

    Where the kernel or the file system cannot do it, as on NFS, nothing is at ``old`` for a moment.
    """
    sys.audit("os.rename", os.fspath(new), os.fspath(old), -1, -1)
    if _exchange_in_one_step(new, old):
        return
    with tempfile.TemporaryDirectory(dir=new.parent) as folder:
        aside = Path(folder) / "old"
        os.rename(old, aside)
        try:
            os.rename(new, old)
        except OSError:
            os.rename(aside, old)
            raise
        os.rename(aside, new)


def _exchange_in_one_step(new: Path, old: Path) -> bool:
    """Whether the kernel and the file system can do it."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    here, exchanged = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if renameat2(here, os.fsencode(new), here, os.fsencode(old), exchanged) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EXDEV):
        return False
    raise OSError(code, os.strerror(code), os.fspath(old))


def folder_identity(folder: Path) -> tuple[int, ...]:
    """Tell a Zarr folder from others that have its name before or after; empty if there is none."""
    found: list[int] = []
    with suppress(OSError):
        for path in (folder, folder / "zarr.json"):
            status = path.stat()
            found += [status.st_dev, status.st_ino, status.st_mtime_ns]
    return tuple(found)


def read_unless_removed(folder: Path, read: Callable[[], T]) -> T | None:
    """Read a folder that another process may replace or remove meanwhile, always as a whole."""
    for _ in range(READS):
        before = folder_identity(folder)
        if not before:
            return None
        try:
            return read()
        except Exception as error:  # of what went away, readers raise whatever their libraries raise
            if folder_identity(folder) == before:
                raise
            failure = error
    raise BusyError(
        f"{folder} was replaced {READS} times while it was read. Try again when nobody writes there.",
        key="changes",
    ) from failure
