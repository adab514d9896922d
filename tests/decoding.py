"""What a child process does with a file, done in this one: its start takes longer than small files."""

import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import pytest

from cagp_dist.fields.files import local_files

IN_A_CHILD = local_files.ended_child


@contextmanager
def decoder_in_a_child() -> Iterator[None]:
    """Decode files in child processes again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_files, "ended_child", IN_A_CHILD)
        yield


@contextmanager
def decoder_here() -> Iterator[None]:
    """Decode files in a thread of this process; `tests.fields.test_files` has the child and its costs."""
    from cagp_dist.fields.files import _decode

    def ended(
        request: Mapping[str, object], time_limit_seconds: float, look: Callable[[], None]
    ) -> tuple[int, str]:
        with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as thread:
            patch.setattr(sys, "stdin", io.StringIO(json.dumps(request)))
            code = thread.submit(_decode.decode_command)
            while not wait([code], timeout=0.01).done:
                look()
            return code.result(), ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_files, "ended_child", ended)
        yield
