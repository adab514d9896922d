"""A season of days that come late, damaged or preliminary, on clusters that die, across a new release."""

import datetime as dt
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from cagp_dist import versions
from cagp_dist.pipeline import steps
from cagp_dist.service.daily import daily
from cagp_dist.service.jobfile.config import load_job, with_times
from cagp_dist.service.published_runs import keep_runs
from cagp_dist.store import series
from cagp_dist.store.series_check import check_series
from cagp_dist.store.zarr_arrays import read_group

from ..clusters import Processes
from ..decoding import decoder_here
from ..jobs import job_text, map_grid, random_points
from ..ports import closed_port
from ..sources import smooth, temperature
from .jobs import CAGP, lines_of
from .processes import end_group, wait_for
from .rows import Row

DAYS = 90
BEGIN = np.datetime64("2020-06-01", "ns")

LATE = {5: 2, 12: 1, 30: 3, 55: 4, 71: 6}
"""How many days later than the others the file of a day comes."""

MENDED = {19: 22, 60: 63}
"""When the file of a day, which comes cut, is replaced by a whole one."""

FINAL = {34: 39}
"""When the file of a day is final, which comes with a preliminary field, and a final one that is blank."""

WORKER, SCHEDULER = 24, 40
"""When a worker, or the scheduler, is killed inside the solve of the day; the next where it came too late."""

RELEASE = 46
"""When a release of the package comes that changes no number."""

SHOWN = {6: "a day is late", 20: "a file is damaged", 36: "a field is preliminary", DAYS - 1: "the end"}
"""When `cagp status` is printed, and why."""

WINDOW = 14
"""How many days back a pass looks."""

KEPT = 20
"""Runs that stay."""

SECONDS = 300.0
"""No pass may take longer."""


def seasons(count: int, rng: np.random.Generator, folder: Path) -> Row:
    """Do a season of 90 days with late, cut and preliminary files, kills, a release and retention."""
    row = Row("a season of 90 daily passes: late, cut and preliminary files, kills, a release, retention")
    for number in range(count):
        row.begin(count)
        season = Season(folder.resolve() / f"season-{number}", row)
        season.arrive(0)
        season.warm()
        season.begin_reference()
        for day in range(DAYS):
            season.arrive(day)
            season.do(day)
            if day in SHOWN:
                season.show(day)
        season.judge()
    return row


class Season:
    """A folder with the files of a season, and the outputs of its passes and of one pass without faults."""

    def __init__(self, folder: Path, row: Row) -> None:
        self.folder, self.row = folder, row
        self.reference, self.reference_pass = folder / "reference", 0
        self.kills = dict.fromkeys(("worker", "scheduler"), 0)
        self.solves = folder / "solves"
        for each in (folder, self.reference):
            (each / "files").mkdir(parents=True)
        for root, keep in (("rough", {"keep": f"{KEPT} runs"}), ("reference/whole", {}), ("warm", {})):
            text = job_text(
                observations={"source": "file:files", "times": "latest"},
                design={
                    "train": random_points(700),
                    "test": random_points(60, seed=1),
                    "map": map_grid(30.0),
                },
                prior={"lengthscale": 0.1, "variance": 22.0, "noise_variance": 0.5},
                solver={"name": "block-gauss-seidel", "iterations": 12, "block_size": 200},
                runtime={"checkpoint_seconds": 0.0, "silence_seconds": 5.0},
                output={"root": Path(root).name, **keep},
            )
            (folder / f"{root}.toml").write_text(text)

    def arrive(self, day: int) -> None:
        """Put the files into the folder that come on a day, or in place of others."""
        coming = [late for late, days in LATE.items() if late + days == day]
        for each in [*coming, *([] if day in LATE else [day])]:
            path = _write(self.folder, each, final=each not in FINAL)
            if each in MENDED:
                path.write_bytes(path.read_bytes()[:3000])
        for each in [which for which, then in {**MENDED, **FINAL}.items() if then == day]:
            _write(self.folder, each)

    def begin_reference(self) -> None:
        """Begin one pass over all days without faults, in a folder of its own, beside the season."""
        for day in range(DAYS):
            _write(self.reference, day)
        first, last = (str(when(each))[:10] for each in (0, DAYS - 1))
        self.reference_pass = self._fork(
            self.reference, "whole", f"from {first} to {last} every 1d", day=DAYS
        )

    def do(self, day: int) -> None:
        """Make the pass of a day: in a fork, or as a command on a cluster that is hit."""
        victim = {WORKER: "worker", SCHEDULER: "scheduler"}
        for first, name in victim.items():
            if first <= day < first + 4 and not self.kills[name]:
                self.kills[name] += self._hit(day, name)
                return
        self._expect_end(self._fork(self.folder, "rough", window(day), day=day), f"the pass of day {day}")

    def warm(self) -> None:
        """Make a pass in this process, so that forks need not import anything."""
        _pass_of(self.folder, "warm", window(0), day=0)
        self.solves.unlink()

    def _fork(self, folder: Path, job: str, times: str, *, day: int) -> int:
        """Make a pass in a fork of this process; its number."""
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            with (folder / "log").open("a") as log, redirect_stdout(log), redirect_stderr(log):
                try:
                    os.fsync = lambda descriptor: None  # forks live in one kernel, which is not killed
                    if day >= RELEASE:
                        of_release()
                    _pass_of(folder, job, times, day=day)
                    os._exit(0)
                except BaseException as error:
                    print(f"{type(error).__name__}: {error}", flush=True)
                    os._exit(99)
        return child

    def _expect_end(self, child: int, what: str) -> None:
        """Wait for a fork, which must end well."""
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        logs = [(each / "log").read_text()[-2000:] for each in (self.folder, self.reference)] if code else []
        self.row.expect(code == 0, f"{what} ended with {code}: {logs}")

    def _hit(self, day: int, victim: str) -> bool:
        """Make a pass on a cluster, and kill part of it once a sweep was seen; whether that hit the solve."""
        log = self.folder / f"{victim}-{day}.log"
        with Processes(self.folder / f"{victim}-{day}.json", port=closed_port()) as cluster:
            options = ("--times", window(day), "--scheduler", cluster.address, "--log", "json")
            with log.open("wb") as said:
                process = subprocess.Popen(
                    [CAGP, "daily", "rough.toml", *options],
                    cwd=self.folder,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    start_new_session=True,
                )
            try:
                self._kill(cluster, process, log, victim)
                struck = time.time()
                code = process.wait(SECONDS)
            finally:
                end_group(process)
        self.row.expect(code == 0, f"the pass of day {day}, whose {victim} was killed, ended with {code}")
        done = [line for line in lines_of(log) if (line.event, line.stage) == ("done", "Solve")]
        with self.solves.open("a") as file:
            file.write("".join(f"{when(day)}\n" for _ in done))
        return not any(line.seconds < struck for line in done)

    def _kill(self, cluster: Processes, process: "subprocess.Popen[bytes]", log: Path, victim: str) -> None:
        """Kill a worker or the scheduler when the first sweep was seen, and start another."""
        wait = partial(wait_for, process=process, seconds=SECONDS)
        wait(lambda: any("iteration 1 of" in line.text for line in lines_of(log)), what="the first sweep")
        if victim == "worker":
            cluster.replace(0)
            return
        cluster.kill_scheduler()
        wait(
            lambda: any("attempt 1 of 3 ended" in line.text for line in lines_of(log)), what="that to be said"
        )
        cluster.restart()

    def show(self, day: int) -> None:
        """Print what an operator sees."""
        found = subprocess.run(
            [CAGP, "status", "rough"], cwd=self.folder, capture_output=True, text=True, check=False
        )
        print(f"\nday {day}, {str(when(day))[:10]}, {SHOWN[day]}: cagp status, exit code {found.returncode}")
        print(found.stdout + found.stderr, flush=True)
        at_the_end = day == DAYS - 1
        self.row.expect(not at_the_end or found.returncode == 0, f"at the end, status says {found.stdout}")

    def judge(self) -> None:
        """Compare with the pass over all days without faults, and look at what was solved and kept."""
        self._expect_end(self.reference_pass, "the pass without faults")
        solved = self.solves.read_text().split()
        rough, whole = self.folder / "rough", self.reference / "whole"
        check_series(rough)
        found, expected = read_series(rough), read_series(whole)
        times = found[series.SCORES]["time"].values
        self.row.expect(
            list(times) == [when(day) for day in range(DAYS)], f"the series has the times {times}"
        )
        self.row.count(same=all(found[name].identical(expected[name]) for name in expected))
        twice = {time for time in solved if solved.count(time) > 1}
        self.row.expect(len(set(solved)) == DAYS, f"{len(set(solved))} days were solved")
        self.row.expect(twice == {str(when(day)) for day in FINAL}, f"solved more than once: {twice}")
        runs = sorted((rough / "runs").glob("*.zarr"))
        self.row.expect(len(runs) == KEPT, f"{len(runs)} runs are kept")
        made_by = {json.loads(read_group(run).attrs["provenance"])["cagp_dist"] for run in runs}
        self.row.expect(made_by == {NEXT}, f"the runs at the end are those of {made_by}")
        for name, times in self.kills.items():
            self.row.must_have(f"{name} killed inside a solve", times, at_least=1)
        self.row.must_have("days late", len(LATE), at_least=5)
        self.row.notes.append(f"{len(MENDED)} files cut and {len(FINAL)} preliminary at first")
        self.row.notes.append(f"{len(solved)} solves, {len(runs)} runs kept")


NEXT = "999.0.0"
"""Version of the package after the release."""


def when(day: int) -> np.datetime64:
    return BEGIN + np.timedelta64(day, "D")


def _write(folder: Path, day: int, *, final: bool = True) -> Path:
    """Write the file of a day; without its final field, as ERA5 and ERA5T lie in one file."""
    rng = np.random.default_rng([1, day, 0 if final else 1])
    latitude, longitude = np.arange(-86.25, 90.0, 7.5), np.arange(0.0, 360.0, 7.5)
    values = smooth(latitude, longitude) + rng.normal(size=(1, latitude.size, longitude.size))
    field = temperature(values, latitude=latitude, longitude=longitude, times=[when(day)])
    if not final:
        both = [field.where(False), field]
        field = xr.concat(both, dim="expver").assign_coords(expver=[1, 5]).transpose("time", "expver", ...)
    path = folder / "files" / f"{str(when(day))[:10]}.nc"
    draft = path.with_suffix(".part")
    field.to_netcdf(draft, engine="h5netcdf")
    return draft.replace(path)


def _pass_of(folder: Path, job: str, times: str, *, day: int) -> None:
    """Do what `cagp daily` does, at noon of a day."""
    now = dt.datetime.fromisoformat(f"{str(when(day))[:10]}T12:00+00:00")
    with chdir(folder), counted_solves(folder / "solves"), decoder_here():
        loaded = with_times(load_job(f"{job}.toml"), times)
        done = []
        for each in daily(loaded, now=now):
            print(each.line(), flush=True)
            done.append(each.time)
        keep_runs(loaded, [time for time in done if time is not None])


def window(day: int) -> str:
    """The times that the pass of a day looks at, as the command takes them."""
    first, last = (str(when(each))[:10] for each in (max(0, day - WINDOW + 1), day))
    return f"from {first} to {last} every 1d"


def read_series(root: Path) -> dict[str, xr.Dataset]:
    """Groups of a series, without what tells its versions apart."""
    version = series.verify_series(root)
    assert version is not None
    groups = {name: read_group(version, name) for name in ("map", series.SCORES)}
    return {
        name: group.drop_vars(series.VERSION, errors="ignore").drop_attrs() for name, group in groups.items()
    }


@contextmanager
def counted_solves(file: Path) -> Iterator[None]:
    """Write the time of each solve into a file."""
    solve = steps.solve

    def counted(task, *arguments, **settings):
        with file.open("a") as listed:
            listed.write(f"{task.observations.times[0].astype('datetime64[ns]')}\n")
        return solve(task, *arguments, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cagp_dist.pipeline.solve_task.solve", counted)
        yield


def of_release() -> None:
    """Let the package be of another version; in a fork, which need not put anything back."""
    installed = metadata.version
    metadata.version = lambda package: NEXT if package == "cagp-dist" else installed(package)
    versions.version.cache_clear()
