"""Processes that a scenario starts: in groups of their own, with deadlines, and none of them is left."""

import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path

import numpy as np

from .rows import Row, Scenario

ROOT = Path(__file__).parents[2]
MARK = "CAGP_TORTURE"
"""In the environment of all that a scenario starts."""

CLOSING_SECONDS = 20.0
"""How long what a scenario started may take to end after it."""


def end_group(process: "subprocess.Popen[bytes]") -> bool:
    """Kill a process that leads a group, and the whole group; whether it was still there."""
    alive = process.poll() is None
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return alive


@contextmanager
def python(*arguments: object, **settings) -> Iterator["subprocess.Popen[bytes]"]:
    """Python with these arguments, in the root of the repository; its group is killed in the end."""
    command = [sys.executable, *map(str, arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True, **settings)
    try:
        yield process
    finally:
        end_group(process)
        process.stdout.close()


def lines(row: Row, *arguments: object, seconds: float) -> Iterator[str]:
    """Give the lines that Python with these arguments prints, as they come.

    That none comes for so many seconds is a failure of the row, and so is an exit code other than 0.
    """
    with python(*arguments) as process:
        descriptor, rest = process.stdout.fileno(), b""
        while select.select([descriptor], [], [], seconds)[0]:
            data = os.read(descriptor, 2**16)
            *whole, rest = (rest + data).split(b"\n")
            yield from (line.decode() for line in whole)
            if not data:
                row.expect(process.wait(seconds) == 0, f"{arguments[1]} ended with {process.returncode}")
                return
        row.expect(False, f"{arguments[1]} has printed nothing for {seconds:g} s")


def do(scenario: Scenario, count: int, rng: np.random.Generator, folder: Path) -> Row:
    """Do a scenario; an error is a failure of its row, as are processes that it leaves."""
    resource_tracker.ensure_running()  # by multiprocessing, for as long as this process lives
    mark = os.environ[MARK] = uuid.uuid4().hex
    try:
        row = scenario(count, rng, folder)
    except Exception as error:
        row = Row(purpose(scenario))
        row.expect(False, f"{type(error).__name__}: {error}")
    finally:
        del os.environ[MARK]
        left = _ended(f"{MARK}={mark}", CLOSING_SECONDS)
    row.expect(not left, f"processes are left: {left}")
    return row


def purpose(scenario: Scenario) -> str:
    """First line of what a scenario says of itself."""
    function = scenario.func if isinstance(scenario, partial) else scenario
    return (function.__doc__ or "").splitlines()[0]


def _ended(mark: str, seconds: float) -> list[str]:
    """Wait for what was started with a mark; kill what is still there, and give its command lines."""
    until, looks = time.monotonic() + seconds, 0
    while looks < 2:  # a process that has just begun has no environment yet, for a moment
        there = _marked(mark)
        looks = 0 if there else looks + 1
        if time.monotonic() > until:
            break
        time.sleep(0.1)
    for number in there:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    return list(there.values())


def _marked(mark: str) -> dict[int, str]:
    """Numbers and command lines of the processes that have something in their environment."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone, or of somebody else
            if mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def wait_for(
    condition: Callable[[], object], process: "subprocess.Popen[bytes]", *, seconds: float, what: str
) -> None:
    """Wait until something holds, or the process has ended; `TimeoutError` if neither comes."""
    until = time.monotonic() + seconds
    while process.poll() is None and not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.02)
