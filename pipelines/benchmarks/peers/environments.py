"""Environments of the peers: made by venv and pip, used again while the requirements are the same."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from pipelines.benchmarks.peers.adapters.harness import Array
from pipelines.benchmarks.peers.catalogue import Peer

STAMP = "installed.txt"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class AbsentError(Exception):
    """A peer cannot be installed here; the text says why."""


def interpreter(peer: Peer, folder: Path) -> Path:
    """Python of the peer's environment, which is made if it is not there.

    Raises
    ------
    AbsentError
        If the environment cannot be made; the last line of what was said about it.
    """
    if not peer.requirements:
        return Path(sys.executable)
    home = (folder / peer.name).absolute()
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    stamp, wanted = home / STAMP, "\n".join(peer.requirements)
    if not (stamp.exists() and stamp.read_text() == wanted):
        _run(sys.executable, "-m", "venv", "--clear", str(home))
        _run(
            str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requirements
        )
        stamp.write_text(wanted)
    return python


def asked(
    peer: Peer,
    adapter: Path,
    *arguments: str,
    folder: Path,
    limit_seconds: float | None = None,
    **given: ArrayLike,
) -> dict[str, Array]:
    """Give arrays to an adapter that reads and writes them by name, on one thread, and what it answers.

    Raises
    ------
    AbsentError
        If the environment cannot be made.
    subprocess.CalledProcessError, subprocess.TimeoutExpired
        If it ends with an error, which has what was printed, or takes too long.
    """
    python = interpreter(peer, folder)
    kept = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    with tempfile.TemporaryDirectory() as scratch:
        problem, answer = Path(scratch) / "problem.npz", Path(scratch) / "answer.npz"
        np.savez(problem, **given)
        command = [str(python), "-W", "ignore", str(adapter), *arguments, str(problem), str(answer)]
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=limit_seconds, env=kept | ONE_THREAD
        )
        with np.load(answer) as found:
            return dict(found)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        lines = [line for line in (error.stderr + error.stdout).splitlines() if line.strip()]
        said = [line for line in lines if line.startswith("ERROR")] or lines or ["no reason given"]
        raise AbsentError(said[-1]) from error
