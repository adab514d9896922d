"""Whole jobs, started by `cagp run` as processes of their own: killed, started again, started at once."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from itertools import cycle
from pathlib import Path

import numpy as np

from cagp_dist.errors import CagpError
from cagp_dist.service.verification import verify_run
from cagp_dist.store.arrays import read_group

from ..clusters import Processes, closed_port
from ..jobs import job_text, random_points
from .rows import Row
from .writes import faults_of_checkpoints

CAGP = Path(sys.executable).with_name("cagp")
BUSY = 75
SECONDS = 300.0
"""No process may take longer."""

DETECTED = 5.0
"""Seconds until a killed scheduler is noticed."""

SOLVERS: dict[str, dict[str, object]] = {
    "sweeps": {"name": "block-gauss-seidel", "iterations": 8, "block_size": 200},
    "gradients": {"name": "conjugate-gradient", "iterations": 12},
}


@dataclass(frozen=True)
class Line:
    """An event that a job reported."""

    seconds: float
    event: str
    stage: str
    text: str


class JobFolder:
    """A job file in a folder of its own, which is the working directory of those who do it."""

    def __init__(self, folder: Path, solver: str = "sweeps", *, folds: bool = False) -> None:
        self.folder, self.log = folder, folder / "log"
        folder.mkdir(parents=True)
        test = {"kind": "folds", "count": 2} if folds else random_points(60, seed=1)
        text = job_text(
            observations={"source": "synthetic", "grid_degrees": 7.5, "times": ["2020-01-01"]},
            design={"train": random_points(700), "test": test},
            prior={"lengthscale": 0.1, "variance": 22.0, "noise_variance": 0.5},
            solver=SOLVERS[solver],
            cluster=None,
            runtime={"checkpoint_seconds": 0.0, "silence_seconds": 5.0},
            output={"root": "out"},
        )
        (folder / "job.toml").write_text(text)

    def start(self, *options: str, log: Path | None = None) -> "subprocess.Popen[bytes]":
        """Begin, or go on, in a process group of its own."""
        with (log or self.log).open("wb") as stream:
            return subprocess.Popen(
                [CAGP, "run", "job.toml", "--log-format", "json", *options],
                cwd=self.folder,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                start_new_session=True,
            )

    def finish(self) -> Path:
        """Do the job, or the rest of it; return the run."""
        code = self.start().wait(SECONDS)
        if code != 0:
            raise RuntimeError(f"exit code {code}: {self.log.read_text()}")
        return self.runs()[0]

    def runs(self) -> list[Path]:
        return sorted((self.folder / "out" / "runs").glob("*.zarr"))

    def lines(self, log: Path | None = None) -> list[Line]:
        """Read the events so far, and warnings, which have no stage; a last line that is cut is left out."""
        found = []
        for text in (log or self.log).read_text().splitlines(keepends=True):
            if text.startswith("{") and text.endswith("\n"):
                line = json.loads(text)
                when = datetime.fromisoformat(line["time"]).timestamp()
                found.append(Line(when, line["event"], line.get("stage", ""), line.get("text", "")))
        return found

    def iterations(self, solve: int = 0) -> int:
        """How many iterations of a solve were reported by the last process."""
        fold = f"fold {solve + 1} of"
        texts = [line.text for line in self.lines() if line.event == "progress"]
        found = [
            re.search(r"iteration (\d+) of", text) for text in texts if fold in text or "fold" not in text
        ]
        return max((int(each[1]) for each in found if each), default=0)

    def faults_of_checkpoints(self) -> list[str]:
        """What is wrong with the checkpoints of a job that was cut off."""
        faults = []
        for solve in (self.folder / "out" / ".checkpoints").glob("*/solve-*"):
            number = int(solve.name.removeprefix("solve-"))
            faults += faults_of_checkpoints(solve, self.iterations(number))
        return faults


def same_run(run: Path, expected: Path) -> bool:
    """Whether means and error bars of two runs agree to the last bit."""
    ours, theirs = read_group(run, "posterior"), read_group(expected, "posterior")
    return run.name == expected.name and all(
        np.array_equal(ours[name], theirs[name]) for name in ("t2m_mean", "t2m_std")
    )


def kill(process: "subprocess.Popen[bytes]") -> bool:
    """Kill a process with all its children; whether it was still there."""
    alive = process.poll() is None
    if alive:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return alive


def killed_jobs(count: int, rng: np.random.Generator, folder: Path) -> Row:
    """Kill a job at random moments of its life, the same command again, until it gets through."""
    row = Row("SIGKILL of a whole job, then the same command")
    kinds = [
        ("sweeps", False, False),
        ("sweeps", False, True),
        ("gradients", False, False),
        ("sweeps", True, False),
    ]
    for done, (solver, folds, on_cluster) in enumerate(cycle(kinds)):
        if row.runs >= count:
            break
        expected, seconds = _undisturbed(folder / "whole", solver, folds=folds)
        job = JobFolder(folder / f"cut-{done}", solver, folds=folds)
        code: int | None = None
        while code != 0:
            with ExitStack() as stack:
                options: tuple[str, ...] = ()
                if on_cluster:  # killed with the job
                    file = folder / f"cut-{done}.json"
                    cluster = stack.enter_context(Processes(file, port=closed_port()))
                    options = ("--scheduler", cluster.address)
                process = job.start(*options)
                delay = rng.uniform(0.2, 1.5 if on_cluster else 1.1) * seconds
                try:
                    process.wait(delay if row.runs < count else SECONDS)
                except subprocess.TimeoutExpired:
                    if kill(process):
                        row.begin(count)
            code = process.returncode
            for fault in [] if job.runs() else job.faults_of_checkpoints():
                row.expect(False, fault)
            verified_or_failed(row, job.runs())
            if code not in (0, -signal.SIGKILL):
                row.failures.append(f"exit code {code}: {job.log.read_text()[-500:]}")
                return row
        row.count(same=same_run(job.runs()[0], expected))
        left = list((job.folder / "out" / ".checkpoints").glob("*/*"))
        row.expect(not left, f"checkpoints are left: {left}")
        shutil.rmtree(job.folder)
    row.notes.append(
        f"{row.finished} jobs of one or two solves, on threads or with a cluster that is killed as well, "
        "each until it was done; at most the iteration of a kill was done again"
    )
    return row


def verified_or_failed(row: Row, runs: list[Path]) -> None:
    """A run that is there is whole, whatever was killed."""
    for run in runs:
        try:
            verify_run(run)
        except CagpError as error:
            row.failures.append(f"run {row.runs}: {error}")


_WHOLE: dict[tuple[Path, str, bool], tuple[Path, float]] = {}


def _undisturbed(folder: Path, solver: str = "sweeps", *, folds: bool = False) -> tuple[Path, float]:
    """Run and seconds of a job that is left alone; done once for each folder and kind."""
    key = (folder, solver, folds)
    if key not in _WHOLE:
        job = JobFolder(folder / f"{solver}-{folds}", solver, folds=folds)
        began = time.monotonic()
        _WHOLE[key] = job.finish(), time.monotonic() - began
    return _WHOLE[key]


def jobs_at_once(count: int, rng: np.random.Generator, folder: Path) -> Row:
    """Start the same job four times at once: one does it, the others are told so."""
    row = Row("the same job started four times at once")
    expected, seconds = _undisturbed(folder / "whole")
    codes: list[int] = []
    for _ in range(count):
        row.begin(count)
        job = JobFolder(folder / f"four-{row.runs}")
        logs = [folder / f"log-{row.runs}-{number}" for number in range(4)]
        started = []
        for log, delay in zip(logs, rng.choice([0.0, 0.0, 0.3 * seconds], size=4), strict=True):
            started.append(job.start(log=log))
            time.sleep(delay)
        ended = [process.wait(SECONDS) for process in started]
        codes += ended
        published = sum(
            line.event == "done" and line.stage == "Publication" for log in logs for line in job.lines(log)
        )
        row.expect(published == 1, f"{published} publications")
        row.expect(set(ended) <= {0, BUSY}, f"exit codes {ended}: {[log.read_text()[-300:] for log in logs]}")
        row.expect(0 in ended, f"nobody ended well: exit codes {ended}")
        row.named_errors += ended.count(BUSY)
        runs = job.runs()
        row.expect(len(runs) == 1, f"runs {runs}")
        verified_or_failed(row, runs)
        row.count(same=same_run(runs[0], expected))
        shutil.rmtree(job.folder)
    row.notes.append(
        f"of {len(codes)} processes one in each four published, {codes.count(BUSY)} ended with exit code "
        f"{BUSY}, the others found the job done"
    )
    return row


def killed_schedulers(count: int, rng: np.random.Generator, folder: Path) -> Row:
    """Kill the scheduler of a job, and start another at the same address, as a service manager does."""
    row = Row("SIGKILL of the scheduler of a job; another starts at its address")
    expected, _ = _undisturbed(folder / "whole")
    detected, rejoined = [], []
    for _ in range(count):
        row.begin(count)
        job = JobFolder(folder / f"scheduler-{row.runs}")
        with Processes(folder / f"cluster-{row.runs}.json", port=closed_port()) as cluster:
            process = job.start("--scheduler", cluster.address)
            after = int(rng.integers(1, 6))
            _wait_for(lambda job=job, after=after: job.iterations() >= after, process)
            struck = time.time()
            cluster.restart_scheduler(pause=float(rng.uniform(0.0, 3.0)))
            code = process.wait(SECONDS)
        lines = job.lines()
        ended = [line for line in lines if line.text.startswith("attempt 1 of 3 ended")]
        row.expect(code == 0, f"exit code {code}: {job.log.read_text()[-500:]}")
        if code == 0:
            row.expect(ended, "nobody said that the scheduler was lost")
            row.count(same=same_run(job.runs()[0], expected))
        for line in ended:
            again = [
                later.seconds for later in lines if later.seconds >= line.seconds and "on Dask" in later.text
            ]
            detected.append(line.seconds - struck)
            rejoined += [min(again) - line.seconds] if again else []
        shutil.rmtree(job.folder)
    longest, again_after = max(detected, default=np.inf), max(rejoined, default=np.inf)
    row.expect(longest <= DETECTED, f"noticed after {longest:.1f} s")
    row.notes.append(f"noticed within {longest:.1f} s; work goes on up to {again_after:.1f} s later")
    return row


def _wait_for(condition: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    """Wait until something holds, or the process has ended."""
    until = time.monotonic() + SECONDS
    while process.poll() is None and not condition():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.02)
