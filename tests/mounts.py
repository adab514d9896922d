"""Whether this process may mount file systems."""

import os
import subprocess
import tempfile

import pytest


def _mounts() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        mounted = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]
        try:
            allowed = subprocess.run(mounted, capture_output=True).returncode == 0
        except FileNotFoundError:
            return False
        if allowed:
            subprocess.run(["umount", folder], check=True)
        return allowed


needs_mounts = pytest.mark.skipif(
    os.getuid() != 0 or not _mounts(),
    reason="needs leave to mount file systems, as root has outside containers",
)
