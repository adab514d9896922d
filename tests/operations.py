"""The operations of this process that take space on a disk, or can find it broken; any of them may fail.

Where a file or folder is made, written to, put on the disk, linked or renamed. Children of this process, and
code that writes without Python, are not seen.
"""

import builtins
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MADE = ("os.mkdir", "os.rename", "os.link", "os.symlink")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass
class Operations:
    """Those below a folder, counted from one on.

    Attributes
    ----------
    root : str
        The folder, absolute.
    before : callable
        Called just before each, with its number, what it is and the path; what it raises ends the operation.
    count : int
        How many there were.
    """

    root: str
    before: Callable[[int, str, str], object]
    count: int = 0

    def happens(self, what: str, name: str | bytes | os.PathLike[str]) -> None:
        """Count an operation, if it is below the folder."""
        path = os.path.abspath(os.fsdecode(name))
        if path.startswith(f"{self.root}/"):
            self.count += 1
            self.before(self.count, what, path)


_watching: list[Operations] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    """Python cannot remove such a hook: there is one for all that are ever watched."""
    if not _watching or not (event == "open" or event in MADE):
        return
    name = arguments[1 if event == "os.symlink" else 0]
    if not isinstance(name, str | bytes | os.PathLike):
        return
    if event == "open":
        happens = bool(isinstance(arguments[2], int) and arguments[2] & WRITING)
    else:
        happens = not (event == "os.mkdir" and os.path.isdir(name))
    if happens:
        _watching[-1].happens(event, name)


class _File(io.FileIO):
    def write(self, data: object) -> int:
        if _watching:
            _watching[-1].happens("write", str(self.name))
        return super().write(data)  # type: ignore[arg-type]


_open, _installed = io.open, list[bool]()


def _opened(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, **rest):
    """Open as `open` does; where it is to write, what is written is seen."""
    plain = isinstance(file, str | os.PathLike) and not rest
    if not (plain and set(mode) & set("wxa")):
        return _open(file, mode, buffering, encoding, errors, newline, **rest)
    raw = _File(os.fspath(file), mode.replace("b", "").replace("t", ""))
    stream = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
    return stream if "b" in mode else io.TextIOWrapper(stream, encoding, errors, newline)


@contextmanager
def operations(
    root: Path, before: Callable[[int, str, str], object] = lambda number, what, path: None
) -> Iterator[Operations]:
    """Watch the operations of this process below a folder; one watch at a time."""
    if not _installed:
        sys.addaudithook(_hook)
        _installed.append(True)
    sync = os.fsync

    def synced(descriptor: int) -> None:
        watched.happens("fsync", os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    watched = Operations(os.path.abspath(root), before)
    _watching.append(watched)
    builtins.open = io.open = _opened
    os.fsync = synced
    try:
        yield watched
    finally:
        builtins.open = io.open = _open
        os.fsync = sync
        _watching.remove(watched)


def failing(number: int, code: int) -> Callable[[int, str, str], None]:
    """Let one operation fail, with an error of the operating system."""

    def fail(at: int, what: str, path: str) -> None:
        if at == number:
            raise OSError(code, os.strerror(code), path)

    return fail
