"""Files and folders that take the place of others whole or not at all."""

import ctypes
import errno
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cagp_dist.store.manifest import disk_errors


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside a file, which takes the place of the file if all goes well.

    Raises
    ------
    ConfigurationError, StoreError
        If the disk refuses; the file is then as it was before.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()


def exchange(new: Path, old: Path) -> None:
    """Let two folders change places.

    On Linux this is one step (``renameat2``), so that there is a folder under the name ``old`` at every
    moment. Where the kernel or the file system cannot do it, as on NFS, these are renames one after the
    other, and nothing is at ``old`` between them.

    Parameters
    ----------
    new, old : path
        Existing folders on one file system.

    Raises
    ------
    OSError
        If the disk refuses.
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
