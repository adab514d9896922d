"""SHA-256 in hexadecimal: of texts, of files, and of several digests together."""

import errno
import hashlib
import os
import stat
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path


def text_sha256(text: str) -> str:
    """Hash a text, in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Hash a file; about 1 s per GB."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file to read; an `OSError` if it is a device, a pipe or a socket, which may never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))


def read_regular(path: Path) -> bytes:
    """Read the whole of a file that `open_regular` opens."""
    with open_regular(path) as stream:
        return stream.read()


def joint_sha256(digests: Sequence[str]) -> str:
    """Give one digest for several in a row; a single one is its own."""
    return digests[0] if len(digests) == 1 else text_sha256("".join(digests))
