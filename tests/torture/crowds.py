"""Jobs of several days at once into one output folder, while others verify, prune, export and open it."""

import subprocess
import time
from pathlib import Path

import numpy as np

from .jobs import BUSY, CAGP, SECONDS, JobFolder, same_run, verified_or_failed
from .processes import end_group
from .rows import Row

JOBS, KEPT = 8, 6
READERS = {
    "verify": ("verify", "out"),
    "prune": ("prune", "out", "--keep", str(KEPT)),
    "export": ("export", "out", "--to", "csv", "--force"),
    "open": ("open", "out", "--no-browser"),
}
"""What is run again and again meanwhile."""


def crowds(count: int, rng: np.random.Generator, folder: Path) -> Row:
    """Start eight jobs at once into one folder, and verify, prune, export and open it meanwhile."""
    row = Row("eight jobs at once into one folder, others reading and pruning it")
    days = [f"2020-01-{day + 1:02d}" for day in range(JOBS)]
    done = dict.fromkeys(READERS, 0)
    with JobFolder(folder / "alone") as alone:
        for day in days:
            alone.start("--times", day).wait(SECONDS)
        expected = {run.name: run for run in alone.runs()}
        row.expect(len(expected) == JOBS, f"jobs that are left alone publish {len(expected)} runs")
        for _ in range(count):
            row.begin(count)
            with JobFolder(folder / f"crowd-{row.runs}") as job:
                _crowd(row, job, rng.permutation(days).tolist(), done)
                runs = job.runs()
                row.expect(len(runs) in range(KEPT, JOBS + 1), f"{len(runs)} runs are left")
                verified_or_failed(row, runs)
                row.count(same=bool(runs) and all(same_run(run, expected[run.name]) for run in runs))
    for name, times in done.items():
        row.must_have(f"times that {name} ended well", times, at_least=count)
    return row


def _crowd(row: Row, job: JobFolder, days: list[str], done: dict[str, int]) -> None:
    """Have the days done, each started again while another job is at work, and count what readers did."""
    going = {day: job.start("--times", day, log=job.folder / f"log-{day}") for day in days}
    readers: dict[str, subprocess.Popen[bytes]] = {}
    until = time.monotonic() + JOBS * SECONDS
    try:
        while going and time.monotonic() < until:
            for day, process in list(going.items()):
                if (code := process.poll()) is None:
                    continue
                del going[day]
                log = job.folder / f"log-{day}"
                row.expect(code in (0, BUSY), f"a job ended with {code}: {log.read_text()[-300:]}")
                if code == BUSY:
                    row.named_errors += 1
                    going[day] = job.start("--times", day, log=log)
            if (job.folder / "out" / "CURRENT").exists():
                _read(row, job, readers, done)
            time.sleep(0.05)
        row.expect(not going, f"days {list(going)} were not done in {JOBS * SECONDS:g} s")
        for process in readers.values():
            process.wait(SECONDS)
        _read(row, job, readers, done)
    finally:
        for process in readers.values():
            end_group(process)


def _read(
    row: Row, job: JobFolder, readers: dict[str, "subprocess.Popen[bytes]"], done: dict[str, int]
) -> None:
    """Start the readers that are not at work, and say what those that have ended found."""
    for name, command in READERS.items():
        log = job.folder / f"log-{name}"
        if (before := readers.get(name)) is not None:
            if (code := before.poll()) is None:
                continue
            done[name] += code == 0
            row.expect(code in (0, BUSY), f"{name} ended with {code}: {log.read_text()[-300:]}")
        with log.open("wb") as stream:
            readers[name] = subprocess.Popen(
                [CAGP, *command], cwd=job.folder, stdout=stream, stderr=stream, start_new_session=True
            )
