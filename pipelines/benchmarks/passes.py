"""What a pass of a daily job costs beside the days that are done: ``python -m pipelines.benchmarks.passes``.

With ``--bad`` the folder of a year has three bad files, too: one whose listing takes minutes, or longer than
it may, one of 20,000 variables, and one that is cut off.

A folder of small daily files, and an output folder with that many days: two of them are done by `cagp daily`,
the others are written as it would leave them, because to do 3,650 days takes an hour. Then the commands of an
operator are timed, each in a process of its own: processor seconds, and seconds on the clock.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from cagp_dist.service.day_inputs import inputs_of_days
from cagp_dist.service.day_records import DayRecords, DoneDay, written_day
from cagp_dist.service.ingest import resolved
from cagp_dist.service.jobfile.config import load_job, with_times
from cagp_dist.store import manifest, series
from cagp_dist.store.zarr_arrays import read_group, write_group
from cagp_dist.store.zarr_files import consolidate

COUNTS = (60, 365, 3650)
BEGIN = np.datetime64("2010-01-01", "ns")
WINDOW = 14
YEAR = 365
HUGE = 20_000  # scalar variables of a file
SLOW = 30_000  # with an attribute each, so that all are opened: minutes, or longer than may be
CUT_BYTES = 3000
SOME_FAILED = 6  # exit code of a pass with files that cannot be read

JOB = """
[observations]
source = "file:files"

[design]
train = { kind = "random", count = 100, seed = 0 }
test = { kind = "random", count = 20, seed = 1 }
map = { kind = "grid", resolution_degrees = 30.0 }

[prior]
lengthscale = 0.3
variance = 10.0
noise_variance = 1.0

[cluster]
scheduler = "serial"

[output]
root = "out"
keep = "30 runs"
"""


def measure(count: int) -> dict[str, tuple[float, float]]:
    """Time the commands on an output folder of so many days: processor seconds and seconds on the clock."""
    found = {}
    for number in range(count):
        _write_day(number)
    found["first pass: times of all files listed, two days done"] = _timed(
        "daily", "job.toml", *_window(0, 1)
    )
    _fill(count)
    found["nothing to do, all days asked for"] = _timed("daily", "job.toml", *_window(0, count - 1))
    window = _window(count - WINDOW, count - 1)
    found[f"nothing to do, {WINDOW} days asked for"] = _timed("daily", "job.toml", *window)
    _write_day(count)
    found["one new day"] = _timed("daily", "job.toml", *_window(count - WINDOW + 1, count))
    found["cagp status"] = _timed("status", "out")
    found["cagp health"] = _timed("health", "out", "--max-failed", "0")
    return found


def measure_beside_bad_files() -> dict[str, tuple[float, float]]:
    """Time passes over a year of days whose folder has a slow, a huge and a damaged file."""
    for number in range(YEAR):
        _write_day(number)
    for name, number, scalars in (("huge.nc", -1, HUGE), ("slow.nc", -2, SLOW)):
        with h5py.File(_write_day(number, name), "a") as file:
            for scalar in range(scalars):
                held = file.create_dataset(f"scalar_{scalar}", data=float(scalar))
                if scalars == SLOW:
                    held.attrs["units"] = "1"
    cut = _write_day(-3, "damaged.nc")
    cut.write_bytes(cut.read_bytes()[:CUT_BYTES])
    found = {}
    for which in ("first", "second"):
        found[f"{which} pass, two days asked for"] = _timed(
            "daily", "job.toml", *_window(0, 1), code=SOME_FAILED
        )
    _fill(YEAR)
    for which in ("all days", f"{WINDOW} days"):
        first = 0 if which == "all days" else YEAR - WINDOW
        found[f"nothing to do, {which} asked for"] = _timed(
            "daily", "job.toml", *_window(first, YEAR - 1), code=SOME_FAILED
        )
    return found


def _day(number: int) -> np.datetime64:
    return BEGIN + np.timedelta64(number, "D")


def _window(first: int, last: int) -> tuple[str, str]:
    return "--times", f"from {str(_day(first))[:10]} to {str(_day(last))[:10]} every 1d"


def _write_day(number: int, name: str = "") -> Path:
    """Write the file of a day, 9 x 18 points, under its date or another name."""
    latitude, longitude = np.arange(-80.0, 90.0, 20.0), np.arange(0.0, 360.0, 20.0)
    values = 280.0 + np.random.default_rng(abs(number)).normal(size=(1, latitude.size, longitude.size))
    field = xr.Dataset(
        {"t2m": (("time", "latitude", "longitude"), values.astype("f4"), {"units": "K"})},
        coords={"time": [_day(number)], "latitude": latitude, "longitude": longitude},
    )
    Path("files").mkdir(exist_ok=True)
    path = Path("files", name or f"{str(_day(number))[:10]}.nc")
    field.to_netcdf(path, engine="h5netcdf")
    return path


def _fill(count: int) -> None:
    """Write the series and the records of so many days; those after the second have its result."""
    root = Path("out")
    before = series.current_version(root)
    assert before is not None
    times = np.array([_day(number) for number in range(count)])
    final = root / series.VERSIONS / f"{count:06d}.zarr"
    shutil.copytree(before, final, ignore=lambda *_: [*series.GRIDDED, series.SCORES])
    for name in (*series.GRIDDED, series.SCORES):
        if (before / name).is_dir():
            group = read_group(before, name)
            which = np.minimum(np.arange(count), 1)
            whole = group.isel(time=which).assign_coords(time=times)
            write_group(final, name, whole, chunks=None if name == series.SCORES else {"time": 1})
            if name != series.SCORES:  # axes are not in pieces
                write_group("axes.zarr", name, whole[["time"]])
                shutil.rmtree(final / name / "time")
                shutil.move(f"axes.zarr/{name}/time", final / name)
    consolidate(final)
    manifest.manifest_path(final).write_text(manifest.build(final, name=final.name))
    (root / series.NAME).unlink()
    (root / series.NAME).symlink_to(Path(series.VERSIONS) / final.name)
    job = resolved(with_times(load_job("job.toml"), _window(0, count - 1)[1]), report=lambda _: None)
    runs = series.runs_of_times(root)
    inputs = inputs_of_days(job, runs)
    done = {}
    for day in times:
        digests = inputs(day)
        done[written_day(day)] = DoneDay(runs[day].key, None if digests is None else digests[0])
    DayRecords(done=done).write(root)


def _timed(*arguments: str, code: int = 0) -> tuple[float, float]:
    """Run a command; its processor seconds, with those of its children, and its seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "cagp_dist", *arguments], capture_output=True, text=True, check=False
    )
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != code:
        raise RuntimeError(
            f"{arguments} ended with {done.returncode}: {done.stdout[-500:]} {done.stderr[-500:]}"
        )
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{' '.join(arguments)}: {seconds:.1f} s of processor, {wall:.1f} s", flush=True)
    return seconds, wall


def main() -> None:
    """Print a table, and all figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bad", action="store_true", help="a year of files, and three bad ones")
    bad, found = parser.parse_args().bad, {}
    counts = (YEAR,) if bad else COUNTS
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            Path("job.toml").write_text(JOB)
            found[count] = measure_beside_bad_files() if bad else measure(count)
            os.chdir("/")
    for name in found[counts[0]]:
        figures = (f"{found[count][name][0]:.1f} ({found[count][name][1]:.1f})" for count in counts)
        print(f"| {name} | {' | '.join(figures)} |")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
