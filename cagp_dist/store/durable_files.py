"""Files and folders that are on the disk when a call returns, and errors of the disk that name a remedy."""

import ctypes
import errno
import os
import shutil
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cagp_dist.errors import ConfigurationError, DiskError, FullDiskError
from cagp_dist.text import bytes_text

MOST_SYNCED = 2_000  # files and folders that are waited for one by one

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of errors of a disk, or of a user's part of it, that takes no more."""

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
        if error.errno in FULL:
            raise full_disk(path, error.strerror) from error
        raise DiskError(
            f"cannot write {reason}. What was published before is intact. "
            "Check the free space and the health of the disk, then run the job again.",
            key="disk",
        ) from error


def full_disk(path: Path, reason: str | None = None) -> FullDiskError:
    """Give the error of a disk that is full below a path, with what is free and what there is of it."""
    usage, folder = disk_usage(path), existing_folder(path)
    system = os.statvfs(folder)
    inodes = f", and {system.f_favail:,} of {system.f_files:,} files can be made there" * bool(system.f_files)
    return FullDiskError(
        f"cannot write {path}: {reason or os.strerror(errno.ENOSPC)}. {bytes_text(usage.free)} of "
        f"{bytes_text(usage.total)} are free in {folder}{inodes}. What was published before is intact. Free "
        "space there, and run the same again: it continues with what is done.",
        key="disk-full",
    )


def is_full(error: BaseException) -> bool:
    """Whether an error says that a disk, or the part of it that a user may have, is full."""
    return isinstance(error, OSError) and error.errno in FULL


def disk_usage(path: Path) -> "shutil._ntuple_diskusage":
    """Bytes of the disk of a path, which need not exist yet: ``total``, ``used`` and ``free``."""
    return shutil.disk_usage(existing_folder(path))


def existing_folder(path: Path) -> Path:
    """Give the folder of a path, or the next above it that is there."""
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.is_dir())


def folder_bytes(folder: Path) -> int:
    """Sum up the sizes of the files below a folder, which may go meanwhile; 0 where there is none."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def allocated_bytes(folder: Path) -> int:
    """Count what a folder takes of its disk, as `du` does: whole blocks, folders too, hard links once."""
    seen, total = set(), 0
    for place, _, names in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in names)):
            with suppress(FileNotFoundError):
                of = os.lstat(path)
                if (of.st_dev, of.st_ino) not in seen:
                    seen.add((of.st_dev, of.st_ino))
                    total += 512 * of.st_blocks
    return total


def files_below(folder: Path) -> Iterator[str]:
    """Relative POSIX paths of everything below a folder that is not a folder."""
    start = len(os.path.join(folder, ""))
    for place, folders, names in os.walk(folder):
        links = (name for name in folders if os.path.islink(os.path.join(place, name)))  # not entered
        yield from (os.path.join(place, name)[start:].replace(os.sep, "/") for name in (*names, *links))
