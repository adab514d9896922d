"""Small file systems of memory, where this process may mount file systems."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

needs_mounts = pytest.mark.usefixtures("may_mount")
"""Of tests that are skipped where this process may not mount; found out when the first of them begins."""


def may_mount(folder: Path) -> bool:
    """Whether a file system can be mounted on a folder; it is unmounted again."""
    if os.getuid() != 0:
        return False
    mounted = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]
    try:
        if subprocess.run(mounted, capture_output=True, timeout=300.0).returncode:
            return False
    except FileNotFoundError:
        return False
    subprocess.run(["umount", folder], check=True, timeout=300.0)
    return True


@contextmanager
def small_file_system(place: Path) -> Iterator[Callable[..., None]]:
    """Mount a file system on a folder, and give a function that says what is to be free there."""
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", place], check=True, timeout=300.0)

    def change(*, size: int = 2**27, nr_inodes: int = 10_000) -> None:
        now = os.statvfs(place)
        pages = now.f_blocks - now.f_bfree + size // now.f_frsize
        options = f"remount,size={pages * now.f_frsize},nr_inodes={now.f_files - now.f_ffree + nr_inodes}"
        subprocess.run(["mount", "-o", options, place], check=True, timeout=300.0)

    try:
        yield change
    finally:
        subprocess.run(["umount", "--lazy", place], check=True, timeout=300.0)
