"""Kills within what is written: before a file operation of a checkpoint, at any moment of a publication."""

import hashlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

import cagp_dist as cagp
from cagp_dist.errors import CagpError
from cagp_dist.runtime import SerialExecutor
from cagp_dist.store.memo import KEPT, FolderMemo, verified
from cagp_dist.store.publish import current_run, verify_files

from ..problems import regression_problem
from ..store import publisher
from .processes import lines
from .rows import Row

PROBLEM = regression_problem(90, q=20)
SOLVERS = {"sweeps": cagp.BlockGaussSeidel(4, 45), "gradients": cagp.ConjugateGradient(4)}
SECONDS = 120.0
"""No kill, with what comes after it, may take longer."""

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
EVENTS = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"}


def killed_checkpoints(count: int, rng: np.random.Generator, folder: Path) -> Row:
    """Kill a solve before ``count`` of the file operations of its checkpoints, drawn at random; go on."""
    row, operations = Row("SIGKILL before a write, flush, rename or removal of a checkpoint"), 0
    given = (folder / "checkpoints", count, rng.integers(2**31))
    for text in lines(row, "-m", "tests.torture.writes", *given, seconds=SECONDS):
        line = json.loads(text)
        if "operations" in line:
            operations = line["operations"]
            continue
        row.begin(min(count, operations))
        for fault in line["faults"]:
            row.expect(False, fault)
        row.count(same=line["same"])
    row.must_have("kills", row.runs, at_least=min(count, operations))
    row.notes.append(
        f"{operations} such operations in a solve by sweeps and one by gradients; at most the iteration of "
        "the kill is done again"
    )
    return row


def killed_publications(count: int, rng: np.random.Generator, folder: Path) -> Row:
    """Kill a process that publishes one run after the other, at random moments; a reader looks on."""
    row = Row("SIGKILL of a publication, while a reader looks at the current run")
    root, looked = folder / "publications", folder / "looked"
    looks = Looks(root, looked)
    with looks:
        given = (publisher.__file__, "random", root, count, rng.integers(2**31), looked)
        for text in lines(row, *given, seconds=SECONDS):
            if text.startswith("killed"):
                row.begin(count)
                row.count(same=True)  # the publisher has verified the current run, and that none is lost
    for fault in looks.faults:
        row.expect(False, fault)
    row.must_have("kills", row.runs, at_least=count)
    row.must_have("looks", len(looks.seen), at_least=count)
    row.must_have("runs that were looked at", len(set(looks.seen)), at_least=count // 4)
    row.notes.append("each was whole")
    return row


class Looks:
    """A reader of the current run in a thread, as long as it is entered; after each look it makes a file.

    Attributes
    ----------
    seen : list of Path
        Runs that were whole.
    faults : list of str
        What was wrong with others.
    """

    def __init__(self, root: Path, looked: Path) -> None:
        self.seen: list[Path] = []
        self.faults: list[str] = []
        self._root, self._looked, self._over = root, looked, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(SECONDS)

    def _look(self) -> None:
        while not self._over.wait(0.01):
            try:
                run = current_run(self._root)
                if run is not None:
                    verify_files(run)
                    self.seen.append(run)
            except (CagpError, OSError) as error:
                self.faults.append(f"the reader found: {error}")
            self._looked.touch()


def faults_of_checkpoints(solve: Path, reported: int) -> list[str]:
    """What is wrong with the checkpoints of a solve that keeps every iteration and reported so many."""
    faults, newest = [], 0
    for kept in sorted(solve.rglob("[0-9]" * 6))[-KEPT:]:  # one more may be about to be removed
        try:
            about = verified(kept)
        except CagpError as error:
            faults.append(str(error))
            continue
        if "states" not in about:  # actions: as many as products with G
            newest = json.loads((kept / "products" / "zarr.json").read_text())["shape"][1]
            continue
        newest = len(about["states"])
        if int(kept.name) != newest:  # they are numbered as they are written
            faults.append(f"{kept} is of iteration {newest}: iterations that were kept were done again")
    if newest < reported:
        faults.append(f"{solve}: iteration {reported} was reported, and {newest} is kept")
    return faults


def digest(posterior: cagp.Posterior) -> str:
    """Hash every number of a posterior and its trace."""
    arrays = [posterior.mean, posterior.variance]
    arrays += [array for step in posterior.trace for array in (step.mean, step.variance)]
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def before_operation(root: Path, number: float, action: Callable[[], None]) -> Callable[[], int]:
    """Act just before the ``number``-th file operation of this process below ``root``; returns a counter.

    Opening for writing, making, renaming and removing files and folders, and flushing anything.
    """
    seen = 0

    def count() -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            action()

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
        if not (writes or event in EVENTS):
            return
        folder = arguments[-1] if event in ("os.remove", "os.rmdir") else None
        path = str(arguments[0])
        if isinstance(folder, int) and folder >= 0:  # a name within a folder that is open
            path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
        if path.startswith(str(root)):
            count()

    fsync = os.fsync

    def counted_fsync(descriptor: int) -> None:
        count()
        fsync(descriptor)

    sys.addaudithook(hook)
    os.fsync = counted_fsync
    return lambda: seen


def _solve(solver: str, root: Path, report: int | None = None) -> cagp.Posterior:
    """Solve with checkpoints; write the number of each iteration that is done to a descriptor."""

    def progress(state: cagp.Progress) -> None:
        if report is not None:
            os.write(report, bytes([state.iteration]))

    return PROBLEM.condition(
        SOLVERS[solver],
        covariance="diagonal",
        executor=SerialExecutor(),
        checkpoints=FolderMemo(root, seconds=0.0),
        progress=progress,
    )


def _in_child(work: Callable[[int], None]) -> tuple[int, bytes]:
    """Fork, work, exit: its status, and what it wrote to the descriptor that it is given."""
    reader, writer = os.pipe()
    child = publisher.in_child(lambda: work(writer))
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read()
    return os.waitpid(child, 0)[1], said


def _operations(solver: str, root: Path) -> int:
    """How many file operations an undisturbed solve has."""

    def work(writer: int) -> None:
        counted = before_operation(root, np.inf, lambda: None)
        _solve(solver, root)
        os.write(writer, str(counted()).encode())

    return int(_in_child(work)[1])


def _kill_and_go_on(solver: str, root: Path, number: int, expected: str) -> dict[str, object]:
    """Kill a solve before an operation, look at what is there, and go on; what was found."""

    def cut(writer: int) -> None:
        before_operation(root, number, lambda: os.kill(os.getpid(), signal.SIGKILL))
        _solve(solver, root, writer)

    def go_on(writer: int) -> None:
        found = digest(_solve(solver, root, writer))
        os.write(writer, b"\0" + found.encode())

    status, reported = _in_child(cut)
    faults = [] if os.WIFSIGNALED(status) else [f"operation {number} was not reached"]
    faults += faults_of_checkpoints(root, max(reported, default=0))
    status, said = _in_child(go_on)
    again, _, found = said.partition(b"\0")
    faults += faults_of_checkpoints(root, max(again, default=0))
    if status:
        faults.append(f"operation {number}: afterwards status {status}")
    if left := [str(path) for path in root.rglob(".[0-9]*")]:
        faults.append(f"operation {number}: {left} are left")
    return {"faults": faults, "same": found.decode() == expected}


def main(folder: Path, count: int, seed: int) -> None:
    """Print a line of JSON for each kill; forks, and solves itself only what starts no thread."""
    whole = {
        name: digest(PROBLEM.condition(solver, covariance="diagonal", executor=SerialExecutor()))
        for name, solver in SOLVERS.items()
    }
    folder.mkdir(parents=True, exist_ok=True)  # by the first solve it would be one more operation
    operations = {name: _operations(name, folder / f"whole-{name}") for name in SOLVERS}
    moments = [(name, number) for name, most in operations.items() for number in range(1, most + 1)]
    print(json.dumps({"operations": len(moments)}), flush=True)
    drawn = np.random.default_rng(seed).permutation(len(moments))[:count]
    for which in sorted(drawn.tolist()):
        name, number = moments[which]
        found = _kill_and_go_on(name, folder / f"{name}-{number}", number, whole[name])
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
