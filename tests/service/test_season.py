"""A season of daily passes: bad, late, repaired and half-written files, a full disk, retention, two releases.

The series at the end is that of one pass over good files, to the bit. ``pytest -s -m exhaustive`` prints what
each pass said.
"""

import datetime as dt
import os
import shutil
import types
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from cagp_dist import versions
from cagp_dist.errors import CagpError, FullDiskError
from cagp_dist.fields.files import local_files
from cagp_dist.service.daily import daily
from cagp_dist.service.day_records import DayRecords
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.published_runs import keep_runs
from cagp_dist.service.series_status import status_of
from cagp_dist.store import series
from cagp_dist.store.series_check import check_series
from cagp_dist.store.zarr_arrays import read_group

from ..jobs import job_text, map_grid, random_points
from ..sources import temperature

LAST, FIRST = 25, 3
MENDED = {
    "cut off": (4, 6),
    "empty": (5, 7),
    "a page of HTML": (6, 8),
    "of another variable": (7, 9),
    "on another grid": (8, 10),
    "without values": (9, 11),
    "in degrees Celsius that it calls K": (10, 12),
    "without a time": (11, 13),
    "contradicted by another file": (12, 14),
    "copied under another name": (13, 14),
    "being written": (14, 15),
    "GRIB that is none": (15, 17),
}
"""Kinds of bad files: which day's file is so, and the day on which it is replaced by a good one."""

LATE = {16: 18, 18: 21}
FULL = 19  # the pass that finds the disk full
RELEASE, NUMERICAL = 20, 23  # the first passes of a release that changes no number, and of one that does
KEPT, WINDOW = 10, 8


def day_text(day):
    return f"2020-01-{day:02d}"


def field_of(day, *, north=90.0):
    latitude, longitude = np.arange(-85.0, north, 10.0), np.arange(0.0, 360.0, 10.0)
    values = 280.0 + np.random.default_rng(day).normal(size=(1, latitude.size, longitude.size))
    return temperature(values, latitude=latitude, longitude=longitude, times=[day_text(day)])


def write(day, kind=None, folder="files"):
    """Write the file of a day, good or of a bad kind, in the working folder."""
    path = Path(folder, f"{day_text(day)}.nc")
    field = field_of(day, north=0.0 if kind == "on another grid" else 90.0)
    if kind == "of another variable":
        field = field.rename(t2m="humidity")
        field.humidity.attrs = {}
    if kind == "without values":
        field = field.where(False)
    if kind == "in degrees Celsius that it calls K":
        field["t2m"] = (field.t2m - 273.15).assign_attrs(field.t2m.attrs)
    if kind == "without a time":
        field = field.isel(time=0, drop=True)
    field.to_netcdf(path, engine="h5netcdf")
    if kind in ("cut off", "being written"):
        path.write_bytes(path.read_bytes()[:3000])
    if kind == "empty":
        path.write_bytes(b"")
    if kind == "a page of HTML":
        path.write_text("<html>503 Service Unavailable</html>")
    if kind == "GRIB that is none":
        path.write_bytes(b"GRIB" + bytes(range(256)) * 8)
    if kind == "contradicted by another file":
        (field_of(day) + 1.0).to_netcdf(path.with_name("beside.nc"), engine="h5netcdf")
    if kind == "copied under another name":
        path = path.rename(path.with_name(path.name + ".part"))
    if kind != "being written":
        os.utime(path, (1.5e9, 1.5e9))


def arrive(day):
    """Put the files of a day into the folder, and those in place of bad or late ones."""
    kind = next((kind for kind, (first, _) in MENDED.items() if first == day), None)
    if day not in LATE and day <= LAST:
        write(day, kind)
    for kind, (first, then) in MENDED.items():
        if then == day:
            for left in (f"files/{day_text(first)}.nc.part", "files/beside.nc"):
                if kind in ("copied under another name", "contradicted by another file"):
                    Path(left).unlink(missing_ok=True)
            write(first)
    for late, then in LATE.items():
        if then == day:
            write(late)


def the_job(root="out"):
    return parse_job(
        job_text(
            observations={
                "source": "file:files",
                "times": {"last": f"{WINDOW}d", "at": "00:00", "first": day_text(FIRST)},
            },
            design={
                "train": random_points(100),
                "test": random_points(20, seed=1),
                "map": map_grid(30.0),
            },
            prior={"lengthscale": 0.3, "variance": 2.0, "noise_variance": 0.5},
            solver={"name": "cholesky"},
            output={"root": root, "keep": f"{KEPT} runs"},
        )
    )


def a_pass(job, day):
    """Make the pass of a day at noon; the days it did, and what it said."""
    done, said, seen, already = set(), [], [], 0
    try:
        for each in daily(job, now=dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC) + dt.timedelta(days=day - 1)):
            seen += [each.time] * (each.time is not None)
            if each.status is not None:
                done.add(int(str(each.time)[8:10]))
            if each.failed is None and each.status is None:
                already += 1
            else:
                said.append(each.line())
    except FullDiskError as error:
        said.append(f"ended with exit code {error.exit_code}: {error}")
    said += keep_runs(job, seen)
    status = status_of(job.output.folder)
    said += [f"left out: {found}"] if (found := status.left_out()) else []
    return done, [*said, f"{already} in the series already"] if already else said


def content(root):
    """Groups of a series, without what tells versions of it and of the package apart."""
    version = series.verify_series(root)
    names = {series.VERSION, "run_key", "numerical_version"}
    return {
        name: read_group(version, name).drop_vars(names, errors="ignore").drop_attrs()
        for name in ("map", series.SCORES)
    }


@pytest.mark.exhaustive
@pytest.mark.usefixtures("one_blas_thread")
def test_a_season_of_bad_late_and_half_written_files_ends_as_one_pass_over_good_ones(tmp_path, monkeypatch):
    for folder in ("season", "clean"):
        (tmp_path / folder / "files").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "season")

    def grows(_):
        for each in Path("files").glob(f"{day_text(14)}.nc"):
            if each.stat().st_size <= 3100:
                with each.open("ab") as stream:
                    stream.write(b"more")

    monkeypatch.setattr(local_files.time, "sleep", grows)
    root, job, page, done = Path("out"), the_job(), [], {}
    for day in range(FIRST - 2, LAST + 1):
        arrive(day)
        release(day, monkeypatch)
        with monkeypatch.context() as patch:
            if day == FULL:
                patch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=1000, total=10**9))
            try:
                done[day], said = a_pass(job, day)
            except CagpError as error:  # before the first day that is asked for
                done[day], said = set(), [f"ended with exit code {error.exit_code}: {error}"]
        page.append((day, said))
    versions.version.cache_clear()
    show(page)
    check_days(done, dict(page))
    check_folder(root)
    monkeypatch.chdir(tmp_path / "clean")
    for day in range(1, LAST + 1):
        write(day)
    whole = parse_job(the_job().text.replace(f'last = "{WINDOW}d"', f'last = "{LAST}d"'))
    assert all(each.failed is None for each in daily(whole))
    for name, expected in content(Path("out")).items():
        xr.testing.assert_identical(content(tmp_path / "season/out")[name], expected)


def release(day, monkeypatch):
    """Let a release come on its day: of the package, and later of the numbers."""
    if day == RELEASE:
        installed = metadata.version
        monkeypatch.setattr(
            metadata, "version", lambda name: "999.0.0" if name == "cagp-dist" else installed(name)
        )
        versions.version.cache_clear()
    if day == NUMERICAL:
        later = versions.NumericalVersion("999.0.0", "2027-01-01", "Other numbers, so it says.")
        monkeypatch.setattr(versions, "NUMERICAL_VERSIONS", (*versions.NUMERICAL_VERSIONS, later))


def show(page):
    """Print what each pass said."""
    print()
    for day, said in page:
        print(f"{day_text(day)}: {said[0][:240] if said else 'nothing'}")
        for line in said[1:]:
            print(f"            {line[:240]}")


def check_days(done, page):
    """Each day is done by the next pass after its good file came, and not before."""
    for kind, (first, then) in MENDED.items():
        assert first in done[then], f"the day that was {kind} is filled by the next pass"
        assert first not in set().union(*(done[day] for day in range(1, then))), kind
    for late, then in LATE.items():
        assert late in done[then], "a late day is filled by the next pass"
    assert done[FULL] == set()
    assert FULL in done[FULL + 1], "no day is put off by a full disk"
    assert any("exit code 75" in line and "are free in" in line for line in page[FULL])


def check_folder(root):
    """The series is whole, says which days are of which numbers, and nothing is left over."""
    times = [int(str(time)[8:10]) for time in sorted(series.runs_of_times(root))]
    assert times == list(range(FIRST, LAST + 1))
    status = status_of(root)
    assert (status.failed, status.gaps.size, status.missing.size) == ((), 0, 0)
    found = series.runs_of_times(root)
    later = [int(str(time)[8:10]) for time in sorted(found) if found[time].numerical_version == "999.0.0"]
    assert later == list(range(NUMERICAL, LAST + 1))
    assert [int(str(time)[8:10]) for time in status.earlier] == list(range(FIRST, NUMERICAL)), "marked"
    assert DayRecords.read(root).given_up == set()
    runs = len(list((root / "runs").glob("*.zarr")))
    copies = len(list((root / "observations").glob("file-*.zarr")))
    assert runs == KEPT
    assert copies <= KEPT + len(LATE), "copies of files go with their runs"
    assert not list((root / "downloads").glob("decode-*"))
    assert check_series(root).compared == KEPT
