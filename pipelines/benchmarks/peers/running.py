"""Run one method of one peer in a process of its own, with a time limit and an eye on its memory."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from pipelines.benchmarks.peers.adapters.harness import Problem

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
LOOK_SECONDS = 0.2


class RunError(Exception):
    """A run gave no answer; the text is what the table shows in its place."""


@dataclass(frozen=True)
class Answer:
    """What came back.

    Attributes
    ----------
    check, result : dict
        Fields of ``Prediction`` or ``Fit`` for the small problem and for the measured one, and ``seconds`` of
        each phase.
    peak_mebibytes : float
        Most memory of the process and those it started, libraries included.
    """

    check: dict[str, object]
    result: dict[str, object]
    peak_mebibytes: float


def run(
    python: Path,
    adapter: Path,
    method: str,
    *,
    check: Problem,
    problem: Problem,
    cache: Path,
    time_limit_seconds: float,
) -> Answer:
    """Let an adapter answer a problem, after the small one.

    Parameters
    ----------
    python, adapter : path
        Interpreter and script.
    method : str
        As the adapter knows it.
    check, problem : Problem
        The small problem and the measured one.
    cache : path
        Folder for code that a peer compiles.
    time_limit_seconds : float
        After this the process and all that it started are stopped.

    Raises
    ------
    RunError
        If there is no answer: out of time, out of memory, or the last line of its standard error.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check.save(folder / "check.npz")
        problem.save(folder / "problem.npz")
        answer = folder / "answer.json"
        command = [str(python), str(adapter), method]
        command += [str(folder / "check.npz"), str(folder / "problem.npz"), str(answer)]
        with (folder / "log.txt").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=_environment(problem.threads, cache),
                cwd=folder,
                start_new_session=True,
            )
            seen = _watch(process, time_limit_seconds)
        if process.returncode != 0:
            raise RunError(_reason(process.returncode, (folder / "log.txt").read_text(errors="replace")))
        document = json.loads(answer.read_text())
    peak = max(seen, document["peak_mebibytes"])
    return Answer(document["check"], document["result"], peak)


def _environment(threads: int, cache: Path) -> dict[str, str]:
    """Variables of this process, but for the threads and what would mix the packages of two environments."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    kept |= dict.fromkeys(THREAD_VARIABLES, str(threads))
    return kept | {"KEOPS_CACHE_FOLDER": str(cache.absolute()), "PYTHONWARNINGS": "ignore"}


def _watch(process: "subprocess.Popen[bytes]", time_limit_seconds: float) -> float:
    """Wait for a process; most memory seen in it and its children together, MiB."""
    end = time.monotonic() + time_limit_seconds
    most = 0
    watched = psutil.Process(process.pid)
    try:
        while process.poll() is None:
            most = max(most, _memory(watched))
            if time.monotonic() > end:
                raise RunError(f"not done after {time_limit_seconds:g} s")
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_SECONDS)
    finally:
        if process.returncode is None:  # also when this process is interrupted
            _stop(process)
    return most / 2**20


def _memory(process: psutil.Process) -> int:
    total = 0
    try:
        for member in (process, *process.children(recursive=True)):
            total += member.memory_info().rss
    except psutil.NoSuchProcess:
        pass  # one has ended between being listed and being asked
    return total


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the process and its children; they are a group of their own."""
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _reason(code: int, log: str) -> str:
    if code == -signal.SIGKILL:
        return "stopped by the system, most likely for its memory"
    if code < 0:
        return f"stopped by {signal.Signals(-code).name}"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1] if lines else f"ended with code {code}"
