"""What a child process does with a file, done in this one: its start takes longer than small files."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

START = subprocess.run


@contextmanager
def decoder_in_a_child() -> Iterator[None]:
    """Decode files in child processes again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "run", START)
        yield


@contextmanager
def decoder_here() -> Iterator[None]:
    """Decode files in this process; `tests.fields.test_files` has the child, and what it costs."""
    from cagp_dist.fields.files import _decode

    def run(command: list[str], **settings: Any) -> subprocess.CompletedProcess[str]:
        if _decode.__name__ not in command:
            return START(command, **settings)
        job = json.loads(settings["input"])
        del job["parent"]  # with which the child ends
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", io.StringIO(json.dumps(job)))
            return subprocess.CompletedProcess(command, _decode.decode_command(), "", "")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "run", run)
        yield
