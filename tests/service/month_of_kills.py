"""A month of daily jobs, each killed none to three times at random moments and started again.

``python -m tests.service.month_of_kills FOLDER SEED DAYS`` has a job file in ``FOLDER/whole`` and in
``FOLDER/killed`` (`write_jobs`), each of a source ``field.zarr`` beside it that grows by a day before each
job. The month of ``whole`` is not disturbed. After every kill the series in ``killed`` is verified, and has
the days before. In the end the whole month is asked for once more, which must not solve anything.

Jobs are forked from a process in which everything is imported, and call what `python -m pipelines.daily`
calls; on one day they are started as that command itself. A third of the kills come at a random time, a
third just before a random one of the files, folders and links that the job makes or removes, and a third just
before it gives something its final name. The last line has the number of kills and how many hit a job.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr

from cagp_dist.service import run as running
from cagp_dist.store import manifest, series
from cagp_dist.store.zarr_arrays import read_group
from pipelines import daily

from ..jobs import job_text, map_grid, random_points

DAYS = 30

MADE = {"open", "os.mkdir", "os.link", "os.symlink", "os.rename", "os.remove", "os.rmdir"}
COMMAND = 2
"""The day whose jobs are processes of their own."""

FEWEST = 5
"""Final names that a job gives, unless it was done already when it began."""

ROOT = Path(__file__).parents[2]


def write_jobs(folder: Path) -> None:
    """Write the job files of a month that is disturbed, and of one that is not."""
    for name in ("warm", "whole", "killed"):
        write_job(folder / name, times="latest")


def write_job(folder: Path, *, times: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.toml").write_text(
        job_text(
            observations={"source": "zarr:field.zarr", "times": times},
            design={
                "train": random_points(60),
                "test": random_points(30, seed=1),
                "map": map_grid(60.0),
                "regions": [{"name": "north", "south": 30, "north": 80, "west": 0, "east": 180}],
                "regions_resolution_degrees": 20.0,
            },
            solver={"name": "block-gauss-seidel", "iterations": 2, "block_size": 30},
            output={"root": "out", "keep_weights": True},
        )
    )


def differences(folder: Path, days: int) -> list[str]:
    """What is not in order with two months: each has every day once, and the bits of the other."""
    faults, found = [], []
    for name in ("whole", "killed"):
        root = folder / name / "out"
        version = series.verify_series(root)
        if version is None:
            return [f"the month {name} has no series"]
        scores = read_group(version, series.SCORES)
        if list(scores["time"].values) != [day(number) for number in range(days)]:
            faults.append(f"the month {name} has the times {scores['time'].values}")
        keys = scores["run_key"].values.tolist()
        runs = {path.stem: path for path in (root / "runs").glob("*.zarr")}
        if version.name != f"{days:06d}.zarr" or (np.diff(scores["version"].values) != 1).any():
            faults.append(f"the month {name} was not added day by day: {version.name}")
        if sorted(runs) != sorted(keys):
            faults.append(f"the month {name} has the runs {sorted(runs)}, and names {sorted(keys)}")
        else:
            found.append((keys, chunks(version), [chunks(runs[key]) for key in keys]))
    if len(found) == 2 and found[0] != found[1]:
        faults.append("the months differ in their bits")
    return faults


def chunks(store: Path) -> dict[str, str]:
    """Digests of all values of a store, but for wall times; its attributes say when, and differ."""
    of_files = manifest.digests_of(store).items()
    return {name: digest for name, digest in of_files if "/c/" in name and "trace/seconds/" not in name}


def day(number: int) -> np.datetime64:
    return np.datetime64("2020-06-01", "ns") + np.timedelta64(number, "D")


def add_day(source: Path, number: int) -> None:
    latitude, longitude = np.arange(-80.0, 90.0, 20.0), np.arange(0.0, 360.0, 20.0)
    values = 280.0 + np.random.default_rng(number).normal(size=(1, latitude.size, longitude.size))
    field = xr.Dataset(
        {"t2m": (("time", "latitude", "longitude"), values.astype("f4"), {"units": "K"})},
        coords={"time": [day(number)], "latitude": latitude, "longitude": longitude},
    )
    more = {"append_dim": "time"} if source.exists() else {"encoding": {"time": _HOURS}}
    field.to_zarr(source, zarr_format=3, consolidated=False, **more)


_HOURS = {"units": "hours since 2020-01-01", "dtype": "int64"}


class Events:
    """Counts what a process makes below a folder, and acts just before one of these."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.counts = {"made": 0, "named": 0}
        self.last: tuple[str, int] | None = None
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in MADE or not (path := os.path.abspath(str(arguments[0]))).startswith(self.folder):
            return
        named = event == "os.symlink" or (event == "os.rename" and ".zarr/" not in path)
        for kind in ("made", "named") if named else ("made",):
            self.counts[kind] += 1
            if self.last == (kind, self.counts[kind]):
                os.kill(os.getpid(), signal.SIGKILL)


def forked(folder: Path, last: tuple[str, int] | None = None) -> int:
    """Start the job of the day in a fork, which dies at its ``last`` event; the number of the child."""
    child = os.fork()
    if child == 0:
        try:
            with open(folder / "log", "a") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            os.chdir(folder)
            events = Events(folder / "out")
            events.last = last
            code = daily.main(["job.toml"])
            if events.counts["named"] >= FEWEST:
                (folder / "events").write_text(json.dumps(events.counts))
            os._exit(code)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            os._exit(99)
    return child


def started(folder: Path) -> int:
    """Start the job of the day as the command that schedules start; the number of the process."""
    with open(folder / "log", "a") as log:
        command = [sys.executable, "-m", "pipelines.daily", "job.toml"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment).pid


def finish(folder: Path, start: Callable[[Path], int]) -> float:
    """Do the job of the day to its end, and return the seconds it took."""
    began = time.monotonic()
    _, status = os.waitpid(start(folder), 0)
    if status:
        sys.exit(f"a job that nobody killed ended with {status}: {(folder / 'log').read_text()[-2000:]}")
    return time.monotonic() - began


def kill(folder: Path, rng: np.random.Generator, *, seconds: float, command: bool) -> bool:
    """Start the job of the day and kill it; whether that came before its end."""
    kind = "time" if command else rng.choice(["time", "made", "named"])
    if kind == "time":
        child = started(folder) if command else forked(folder)
        time.sleep(rng.uniform(0.0, seconds))
        os.kill(child, signal.SIGKILL)
    else:
        counts = json.loads((folder / "events").read_text())
        child = forked(folder, (kind, int(rng.integers(1, counts[kind] + 1))))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if status:
        sys.exit(f"a job to be killed ended with {status}: {(folder / 'log').read_text()[-2000:]}")
    return False


def check(folder: Path, number: int) -> None:
    """Look that the series is whole and has every day before this one once, whatever else."""
    version = series.verify_series(folder / "out")
    times = [] if version is None else read_group(version, series.SCORES)["time"].values
    expected = [day(each) for each in range(max(number, len(times)))]
    if list(times) != expected or len(times) > number + 1:
        sys.exit(f"on day {number} the series has the times {times}")


def month(folder: Path, days: int, rng: np.random.Generator | None) -> tuple[int, int]:
    """Do the jobs of so many days; how many kills there were, and how many of them hit."""
    kills = hits = 0
    seconds = {True: 4.0, False: 1.0}
    for number in range(days):
        add_day(folder / "field.zarr", number)
        command = rng is not None and number == COMMAND
        for _ in range(0 if rng is None else rng.integers(4)):
            hit = kill(folder, rng, seconds=seconds[command], command=command)
            kills, hits = kills + 1, hits + hit
            check(folder, number)
        seconds[command] = max(seconds[command], finish(folder, started if command else forked))
    return kills, hits


def asked_again(folder: Path) -> int:
    """Ask for all days of the month in a fork that cannot solve; how many were there already."""
    write_job(folder, times="2020-06")
    said = folder / "again"
    child = os.fork()
    if child == 0:
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.chdir(folder)
        running.solve = lambda *_, **__: os._exit(98)
        code = daily.main(["job.toml"])
        sys.stdout.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"asked for again, the month ended with {status}: {said.read_text()[-2000:]}")
    return said.read_text().count("in the series already")


def main(folder: Path, seed: int, days: int) -> int:
    add_day(folder / "warm" / "field.zarr", 0)
    os.chdir(folder / "warm")
    daily.main(["job.toml"])  # so that forks need not import anything
    shutil.rmtree("out")
    finish(folder / "warm", forked)  # how much a first job makes
    os.fsync = lambda descriptor: None  # forks live in one kernel, which is not killed
    for name in ("whole", "killed"):
        shutil.copy(folder / "warm" / "events", folder / name)
    whole = os.fork()
    if whole == 0:
        month(folder / "whole", days, None)
        os._exit(0)
    kills, hits = month(folder / "killed", days, np.random.default_rng(seed))
    _, status = os.waitpid(whole, 0)
    again = asked_again(folder / "killed")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    print(json.dumps({"kills": kills, "hits": hits, "again": again, "processor_seconds": seconds}))
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), *map(int, sys.argv[2:])))
