"""Whole jobs, started by `cagp run` as processes of their own: killed, started again, started at once."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from cagp_dist.errors import CagpError
from cagp_dist.service.verification import verify_run
from cagp_dist.store.zarr_arrays import read_group

from ..clusters import Processes
from ..jobs import job_text, random_points
from ..ports import closed_port
from .processes import end_group, wait_for
from .rows import Row
from .workers import most_tries
from .writes import faults_of_checkpoints

CAGP = Path(sys.executable).with_name("cagp")
BUSY = 75
SECONDS = 300.0
"""No process may take longer."""

DETECTED = 5.0
"""Seconds until a killed scheduler is noticed, on idle cores."""

REJOINED = 30.0
"""Seconds from then until work goes on."""

SOLVERS: dict[str, dict[str, object]] = {
    "sweeps": {"name": "block-gauss-seidel", "iterations": 8, "block_size": 200},
    "gradients": {"name": "conjugate-gradient", "iterations": 12},
}


@dataclass(frozen=True)
class Line:
    """An event that a job reported, and the products with G of a stage that is done."""

    seconds: float
    event: str
    stage: str
    text: str
    products: int


class JobFolder:
    """A job file in a folder of its own, which is the working directory of those who do it.

    As a context manager it kills them in the end, and removes the folder.
    """

    def __init__(self, folder: Path, solver: str = "sweeps", *, folds: bool = False) -> None:
        self.folder, self.log, self._solves = folder, folder / "log", 2 if folds else 1
        self._started: list[subprocess.Popen[bytes]] = []
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._started:
            end_group(process)
        shutil.rmtree(self.folder)

    def start(self, *options: str, log: Path | None = None) -> "subprocess.Popen[bytes]":
        """Begin, or go on, in a process group of its own."""
        with (log or self.log).open("wb") as stream:
            process = subprocess.Popen(
                [CAGP, "run", "job.toml", "--log-format", "json", *options],
                cwd=self.folder,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def finish(self) -> Path:
        """Do the job, or the rest of it; return the run."""
        process = self.start()
        try:
            code = process.wait(SECONDS)
        finally:
            end_group(process)
        if code != 0:
            raise RuntimeError(f"exit code {code}: {self.log.read_text()}")
        return self.runs()[0]

    def runs(self) -> list[Path]:
        return sorted((self.folder / "out" / "runs").glob("*.zarr"))

    def lines(self, log: Path | None = None) -> list[Line]:
        return lines_of(log or self.log)

    def reported(self) -> int:
        """How many iterations of all solves the last process has reported, with those that were kept."""
        return sum("iteration" in line.text for line in self.lines() if line.event == "progress")

    def products(self) -> int | None:
        """How many products with G the solves of the last process took; None if they are not done."""
        done = [line for line in self.lines() if (line.event, line.stage) == ("done", "Solve")]
        return done[0].products if done else None

    def checkpoints(self) -> list[Path]:
        """Those that are there."""
        return list((self.folder / "out" / ".checkpoints").rglob("[0-9]" * 6))

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
        keys = (self.folder / "out" / ".checkpoints").glob("*/" + "[0-9a-f]" * 64)
        solves = sorted(keys, key=lambda path: path.stat().st_mtime)  # one is done before the next begins
        for number in range(self._solves):
            reported = self.iterations(number)
            if reported and number >= len(solves):
                faults.append(f"solve {number}: iteration {reported} was reported, and nothing is kept")
            for solve in solves[number : number + 1]:
                faults += faults_of_checkpoints(solve, reported)
        return faults


def lines_of(log: Path) -> list[Line]:
    """Read the events so far, and warnings, which have no stage; a last line that is cut is left out."""
    found = []
    for text in log.read_text().splitlines(keepends=True):
        if text.startswith("{") and text.endswith("\n"):
            line = json.loads(text)
            when = datetime.fromisoformat(line["time"]).timestamp()
            about = (line["event"], line.get("stage", ""), line.get("text", ""))
            found.append(Line(when, *about, line.get("products", 0)))
    return found


def same_run(run: Path, expected: Path) -> bool:
    """Whether means and error bars of two runs agree to the last bit."""
    ours, theirs = read_group(run, "posterior"), read_group(expected, "posterior")
    return run.name == expected.name and all(
        np.array_equal(ours[name], theirs[name]) for name in ("t2m_mean", "t2m_std")
    )


@dataclass(frozen=True)
class Whole:
    """What a job does that is left alone."""

    run: Path
    seconds: float
    products: int


def killed_jobs(count: int, rng: np.random.Generator, folder: Path) -> Row:
    """Kill a job at random moments of its life, the same command again, until it gets through.

    Every second kill comes when the solve has reported a random iteration, the others at a random time.
    """
    row = Row("SIGKILL of a whole job, then the same command")
    kinds = [
        ("sweeps", False, False),
        ("sweeps", False, True),
        ("gradients", False, False),
        ("sweeps", True, False),
    ]
    solving = went_on = 0
    for done, (solver, folds, on_cluster) in enumerate(cycle(kinds)):
        if row.runs >= count:
            break
        whole = _undisturbed(folder / "whole", solver, folds=folds)
        with JobFolder(folder / f"cut-{done}", solver, folds=folds) as job:
            code: int | None = None
            while code != 0:
                kept = bool(job.checkpoints())
                with ExitStack() as stack:
                    options: tuple[str, ...] = ()
                    if on_cluster:  # killed with the job
                        file = folder / f"cut-{done}.json"
                        cluster = stack.enter_context(Processes(file, port=closed_port()))
                        options = ("--scheduler", cluster.address)
                    process = job.start(*options)
                    if row.runs >= count:
                        process.wait(SECONDS)
                    elif row.runs % 2 == 0:
                        last = 24 if folds or solver == "gradients" else 8
                        after = int(rng.integers(1, last))
                        wait_for(
                            lambda job=job, after=after: job.reported() >= after,
                            process,
                            seconds=SECONDS,
                            what=f"iteration {after}",
                        )
                    else:
                        _wait(process, rng.uniform(0.2, 1.5 if on_cluster else 1.1) * whole.seconds)
                    if end_group(process):
                        row.begin(count)
                        solving += bool(job.iterations()) and job.products() is None
                code, products = process.returncode, job.products()
                if kept and products is not None:
                    went_on += 1
                    row.expect(
                        products < whole.products,
                        f"{products} products beside a checkpoint, {whole.products} without",
                    )
                for fault in [] if job.runs() else job.faults_of_checkpoints():
                    row.expect(False, fault)
                verified_or_failed(row, job.runs())
                if code not in (0, -signal.SIGKILL):
                    row.failures.append(f"exit code {code}: {job.log.read_text()[-500:]}")
                    return row
            row.count(same=same_run(job.runs()[0], whole.run))
            left = list((job.folder / "out" / ".checkpoints").glob("*/*"))
            row.expect(not left, f"checkpoints are left: {left}")
    row.must_have("kills", row.runs, at_least=count)
    row.must_have("kills in the middle of a solve", solving, at_least=count // 4)
    row.must_have("solves continued from a checkpoint to their end", went_on, at_least=row.finished // 2)
    row.notes.append(
        f"{row.finished} jobs of one or two solves, on threads or with a cluster that is killed as well, "
        "each until it was done; at most the iteration of a kill was done again"
    )
    return row


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Wait for so long, or until a process has ended."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def verified_or_failed(row: Row, runs: list[Path]) -> None:
    """A run that is there is whole, whatever was killed."""
    for run in runs:
        try:
            verify_run(run)
        except CagpError as error:
            row.failures.append(f"run {row.runs}: {error}")


_WHOLE: dict[tuple[Path, str, bool], Whole] = {}


def _undisturbed(folder: Path, solver: str = "sweeps", *, folds: bool = False) -> Whole:
    """Do a job that is left alone, once for each folder and kind; its seconds without those of compiling."""
    key = (folder, solver, folds)
    if key not in _WHOLE:
        job = JobFolder(folder / f"{solver}-{folds}", solver, folds=folds)
        began = time.monotonic()
        run = job.finish()
        seconds, lines = time.monotonic() - began, job.lines()
        for line, after in pairwise(lines):
            if line.text.startswith("compiling"):
                seconds -= after.seconds - line.seconds
        _WHOLE[key] = Whole(run, seconds, job.products() or 0)
    return _WHOLE[key]


def jobs_at_once(count: int, rng: np.random.Generator, folder: Path) -> Row:
    """Start the same job four times at once: one does it, the others are told so."""
    row = Row("the same job started four times at once")
    whole = _undisturbed(folder / "whole")
    codes: list[int] = []
    publications = 0
    for _ in range(count):
        row.begin(count)
        with JobFolder(folder / f"four-{row.runs}") as job:
            logs = [folder / f"log-{row.runs}-{number}" for number in range(4)]
            started = []
            for log, delay in zip(logs, rng.choice([0.0, 0.0, 0.3 * whole.seconds], size=4), strict=True):
                started.append(job.start(log=log))
                time.sleep(delay)
            ended = [process.wait(SECONDS) for process in started]
            codes += ended
            published = sum(
                line.event == "done" and line.stage == "Publication"
                for log in logs
                for line in job.lines(log)
            )
            publications += published
            row.expect(published == 1, f"{published} publications")
            said = [log.read_text()[-300:] for log in logs]
            row.expect(set(ended) <= {0, BUSY}, f"exit codes {ended}: {said}")
            row.expect(0 in ended, f"nobody ended well: exit codes {ended}")
            row.named_errors += ended.count(BUSY)
            runs = job.runs()
            row.expect(len(runs) == 1, f"runs {runs}")
            verified_or_failed(row, runs)
            if runs:
                row.count(same=same_run(runs[0], whole.run))
    row.must_have("publications", publications, at_least=count)
    row.must_have(f"processes ended with exit code {BUSY}", codes.count(BUSY), at_least=count // 2)
    row.notes.append(f"{codes.count(0)} of {len(codes)} did the job or found it done")
    return row


def killed_schedulers(count: int, rng: np.random.Generator, folder: Path) -> Row:
    """Kill the scheduler of a job, and start another at the same address, as a service manager does.

    Every second time the other is only started when the job has said that the first is lost.
    """
    row = Row("SIGKILL of the scheduler of a job; another starts at its address")
    whole = _undisturbed(folder / "whole")
    detected, rejoined = [], []
    for number in range(most_tries(count)):
        if row.runs == count:
            break
        with (
            JobFolder(folder / f"scheduler-{number}") as job,
            Processes(folder / f"cluster-{number}.json", port=closed_port()) as cluster,
        ):
            process = job.start("--scheduler", cluster.address)
            wait = partial(wait_for, process=process, seconds=SECONDS)
            after = int(rng.integers(1, 6))
            wait(lambda job=job, after=after: job.iterations() >= after, what=f"iteration {after}")
            struck = time.time()
            cluster.kill_scheduler()
            if row.runs % 2:
                wait(lambda job=job: _lost(job), what="the job to notice that its scheduler is lost")
            cluster.restart()
            code = process.wait(SECONDS)
            lines, lost = job.lines(), _lost(job)
            if any((line.event, line.stage) == ("done", "Solve") and line.seconds < struck for line in lines):
                continue  # too late to hit the solve
            row.begin(count)
            row.expect(code == 0, f"exit code {code}: {job.log.read_text()[-500:]}")
            row.expect(lost, "nobody said that the scheduler was lost")
            if code == 0:
                row.count(same=same_run(job.runs()[0], whole.run))
            for line in lost:
                detected.append(line.seconds - struck)
                after_that = (each for each in lines if each.seconds >= line.seconds)
                rejoined += [each.seconds - line.seconds for each in after_that if "on Dask" in each.text][:1]
    row.must_have("schedulers killed during a solve", row.runs, at_least=count)
    row.must_have("of them noticed by the job", len(detected), at_least=count)
    row.speed("noticed within", max(detected, default=np.inf), DETECTED)
    row.speed("work goes on within another", max(rejoined, default=np.inf), REJOINED)
    return row


def _lost(job: JobFolder) -> list[Line]:
    """What the job said when an attempt ended."""
    return [line for line in job.lines() if line.text.startswith("attempt 1 of 3 ended")]
