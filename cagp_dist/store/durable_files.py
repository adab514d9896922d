"""Files and folders that are on the disk when a call returns, and errors of the disk that name a remedy."""

import ctypes
import errno
import os
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cagp_dist.errors import ConfigurationError, DiskError

MOST_SYNCED = 2_000  # files and folders that are waited for one by one

_NOT_PERMITTED = {errno.EACCES, errno.EPERM, errno.EROFS}
_IN_THE_WAY = {errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}


def write_durably(path: Path, text: str) -> None:
    """Write a new file and wait until its content is on the disk."""
    with disk_errors(path), path.open("x", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def sync_tree(path: Path, *, without: Container[str] = ()) -> None:
    """Wait until a folder, with every file and folder below it, is on the disk.

    Of very many files all of the file system is waited for, in one step where the kernel can do that.
    ``without`` are files below it that are there already.
    """
    found = [each for each in files_below(path) if each not in without]
    found += [os.path.relpath(folder, path) for folder, *_ in os.walk(path, topdown=False)]
    if len(found) > MOST_SYNCED and _sync_file_system(path):
        return
    for each in found:
        sync(path / each)


def _sync_file_system(path: Path) -> bool:
    """Wait until the file system of a folder is on the disk; whether there is a call for that."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        return False
    with disk_errors(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            if syncfs(descriptor) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
        finally:
            os.close(descriptor)
    return True


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on the disk."""
    with disk_errors(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into an error of this package that names the path and the remedy."""
    try:
        yield
    except OSError as error:
        reason = f"{path}: {error.strerror or error}"
        if error.errno in _NOT_PERMITTED | _IN_THE_WAY:
            advice = (
                "change its permissions" if error.errno in _NOT_PERMITTED else "remove what is in the way"
            )
            raise ConfigurationError(
                f"cannot write {reason}. Expected a folder that this user may write to; "
                f"choose another output root or {advice}.",
                key="not-writable",
            ) from error
        raise DiskError(
            f"cannot write {reason}. What was published before is intact. "
            "Check the free space and the health of the disk, then run the job again.",
            key="disk",
        ) from error


def folder_bytes(folder: Path) -> int:
    """Sum up the sizes of the files below a folder, which may go meanwhile; 0 where there is none."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def files_below(folder: Path) -> Iterator[str]:
    """Relative POSIX paths of everything below a folder that is not a folder."""
    start = len(os.path.join(folder, ""))
    for place, folders, names in os.walk(folder):
        links = (name for name in folders if os.path.islink(os.path.join(place, name)))  # not entered
        yield from (os.path.join(place, name)[start:].replace(os.sep, "/") for name in (*names, *links))
