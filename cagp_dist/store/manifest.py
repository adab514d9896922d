"""The manifest of a run: SHA-256 of every file, in the format of ``sha256sum``, beside the run.

``runs/KEY.sha256`` lists the files of ``runs/KEY.zarr``, so that ``cd runs && sha256sum -c KEY.sha256``
checks a run on any machine. It lies beside the Zarr hierarchy and not in it, because Zarr readers warn
about files they do not know.
"""

import ctypes
import errno
import os
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from cagp_dist.digest import file_sha256, read_regular
from cagp_dist.errors import ConfigurationError, DiskError, StoreError

MOST_SYNCED = 2_000  # files and folders that are waited for one by one

_LINE = "{digest}  {name}/{file}\n"
_ADVICE = "Restore the run from a copy, or remove it and run the job again."
_NOT_ALLOWED = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
}


def manifest_path(run_path: Path) -> Path:
    """Where the manifest of a run lies: ``KEY.sha256`` beside ``KEY.zarr``."""
    return run_path.with_suffix(".sha256")


def build(run_path: Path, *, name: str, known: Mapping[str, str] | None = None) -> str:
    """Text of the manifest of all files of a folder, as files of ``name``; some digests may be known."""
    known = known or {}
    return text_of({file: known.get(file) or _digest(run_path / file) for file in files(run_path)}, name=name)


def text_of(digests: Mapping[str, str], *, name: str) -> str:
    """Text of the manifest of files whose digests are known, sorted, listed as files of ``name``."""
    return "".join(_LINE.format(digest=digests[file], name=name, file=file) for file in sorted(digests))


def compare(run_path: Path) -> None:
    """Recompute every digest of a run and compare it with its manifest; one read of all files."""
    listed, where = digests_of(run_path), manifest_path(run_path)
    present = set(files(run_path))
    for file in sorted(listed.keys() | present):
        if file not in present:
            raise StoreError(f"{run_path / file} is missing; the manifest {where} lists it. {_ADVICE}")
        if file not in listed:
            raise StoreError(f"{run_path / file} does not belong there: {where} does not list it. {_ADVICE}")
        if _digest(run_path / file) != listed[file]:
            raise _damaged(run_path, file)


def read_checked(run_path: Path, file: str) -> bytes:
    """Read one small file of a run, and compare it with the manifest; raises as `compare`."""
    listed, path = digests_of(run_path), run_path / file
    try:
        content = read_regular(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    if sha256(content).hexdigest() != listed.get(file):
        raise _damaged(run_path, file)
    return content


def _damaged(run_path: Path, file: str) -> StoreError:
    where = manifest_path(run_path)
    return StoreError(f"{run_path / file} is damaged: its SHA-256 differs from {where}. {_ADVICE}")


def digests_of(run_path: Path) -> dict[str, str]:
    """Read the manifest of a run: the digest of each of its files, by their names."""
    where, advice = manifest_path(run_path), _ADVICE
    if not run_path.is_dir():
        raise StoreError(f"there is no run at {run_path}; expected a folder KEY.zarr. {advice}")
    try:
        text = read_regular(where)
    except OSError as error:
        raise StoreError(f"the manifest {where} cannot be read: {error.strerror}. {advice}") from error
    return parse(text, name=run_path.name, where=where)


def parse(text: bytes, *, name: str, where: Path | str) -> dict[str, str]:
    """Read the text of a manifest: the digest of each file of ``name``, by the names of the files."""
    lines, prefix = text.split(b"\n"), f"{name}/"
    listed: dict[str, str] = {}
    for number, line in enumerate(lines[:-1], start=1):
        digest, _, file = line.decode("utf-8", "replace").partition("  ")
        if len(digest) != 64 or not file.startswith(prefix):
            raise StoreError(f"line {number} of the manifest {where} is damaged. {_ADVICE}")
        listed[file.removeprefix(prefix)] = digest
    if lines[-1] or not listed:
        raise StoreError(f"the manifest {where} is empty or cut off. {_ADVICE}")
    return listed


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
    found = [each for each in files(path) if each not in without]
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
        if error.errno in _NOT_ALLOWED:
            raise ConfigurationError(
                f"cannot write {reason}. Expected a folder that this user may write to; "
                "choose another output root or change its permissions."
            ) from error
        raise DiskError(
            f"cannot write {reason}. What was published before is intact. "
            "Check the free space and the health of the disk, then run the job again."
        ) from error


def folder_bytes(folder: Path) -> int:
    """Sum up the sizes of the files below a folder, which may go meanwhile; 0 where there is none."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def files(run_path: Path) -> Iterator[str]:
    """Relative POSIX paths of everything below a folder that is not a folder."""
    start = len(os.path.join(run_path, ""))
    for folder, folders, files in os.walk(run_path):
        yield from (os.path.join(folder, name)[start:].replace(os.sep, "/") for name in files)
        for name in folders:
            if os.path.islink(where := os.path.join(folder, name)):  # os.walk does not enter it
                yield where[start:].replace(os.sep, "/")


def _digest(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{path} cannot be read: {error.strerror}. Check the health of the disk, or restore the file."
    )
