"""What an operator asks of an output folder: days done, failed and missing, drift, disk, runs."""

import datetime as dt
import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from math import ceil
from pathlib import Path

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.calibration.verification.calibration_drift import CalibrationDrift
from cagp_dist.errors import CagpError, ConfigurationError, StoreError
from cagp_dist.service.day_records import (
    LASTING_TRIES,
    NOT_READY,
    OTHER_GRID,
    DayRecords,
    FailedDay,
    written_day,
)
from cagp_dist.service.drift_check import DriftOfSeries, drift_of_series
from cagp_dist.store import series
from cagp_dist.store.durable_files import allocated_bytes
from cagp_dist.store.publish import current_run
from cagp_dist.store.zarr_arrays import open_group
from cagp_dist.text import bytes_text, counted, shown_time
from cagp_dist.versions import numerical_version

SHOWN = 10  # days of a kind that are listed; the others are counted
HOURS_SHOWN = 72.0  # of an age; a longer one is shown in days
MOST_STEPS = 1_000_000  # of a series in which gaps are looked for


@dataclass(frozen=True)
class SeriesStatus:
    """What stands in an output folder; what takes longer to find is looked at when it is asked for."""

    root: Path
    done: Times  # (T,) in the series, ascending
    preliminary: Times  # of these, those of preliminary observations (ERA5T)
    missing: Times  # planned by a pass, and in neither the series nor `failed`
    gaps: Times  # between all these by the step of the series, and planned by no pass
    outdated: Times  # of `done`, those of other data or another job than the last pass saw
    earlier: Times  # of `done`, those that an earlier numerical version made
    failed: tuple[FailedDay, ...]
    given_up: Times  # by an operator
    without_variable: int  # files of the source that the last pass read, and that have none of the variables

    @property
    def newest(self) -> np.datetime64 | None:
        """The newest time of the series."""
        return self.done[-1] if self.done.size else None

    @property
    def without_run(self) -> Times:
        """Times between the first and the last of the series that have no run, but those given up."""
        others = [day.time for day in self.failed_days]
        known = np.concatenate([self.gaps, self.missing, np.array(others, dtype="datetime64[ns]")])
        if not self.done.size:
            return known[:0]
        return np.unique(known[(known > self.done[0]) & (known < self.done[-1])])

    @property
    def not_of_today(self) -> Times:
        """Times of the series of an earlier numerical version, or of other data than those of today."""
        return np.union1d(self.outdated, self.earlier)

    @property
    def failed_days(self) -> list[FailedDay]:
        """Those of the failures that are days, and no files."""
        return [day for day in self.failed if not day.is_file]

    @property
    def of_other_grids(self) -> list[FailedDay]:
        """Those of the failures that are days of another grid than that of the series."""
        return [day for day in self.failed_days if day.kind == OTHER_GRID]

    def left_out(self) -> str:
        """Count what was left out of the series for what it is; empty if nothing was."""
        found = []
        if self.without_variable:
            found.append(f"{counted(self.without_variable, 'file')} without the variable")
        if days := len(self.of_other_grids):
            found.append(f"{counted(days, 'day')} of another grid")
        return ", ".join(found)

    @property
    def unreadable(self) -> list[FailedDay]:
        """Those of the failures that are files, but for files that are being written."""
        return [day for day in self.failed if day.is_file and day.kind != NOT_READY]

    @cached_property
    def drift(self) -> DriftOfSeries | CagpError | None:
        """Whether the error bars hold, or why that is not known; none without a series."""
        try:
            return drift_of_series(self.root) if self.done.size else None
        except CagpError as error:
            return error

    @property
    def drift_found(self) -> dict[str, CalibrationDrift]:
        """What was measured of the error bars, as far as it is known, by variables; "" where there is one."""
        if not isinstance(self.drift, DriftOfSeries):
            return {}
        return {each.variable: each.found for each in self.drift.variables if each.found is not None}

    @property
    def runs(self) -> int:
        """How many runs are kept."""
        return sum(1 for _ in (self.root / "runs").glob("*.zarr"))

    @cached_property
    def used_bytes(self) -> int:
        """What the folder takes of its disk; each file is looked at."""
        return allocated_bytes(self.root)

    @property
    def free_bytes(self) -> int:
        """What is free on the disk."""
        return shutil.disk_usage(self.root).free

    @cached_property
    def seconds(self) -> dict[str, float]:
        """How long each stage of the current run took."""
        with suppress(StoreError, ValueError, KeyError):
            if (run := current_run(self.root)) is not None:
                with open_group(run) as opened:
                    return {
                        str(name): float(each) for name, each in json.loads(opened.attrs["timings"]).items()
                    }
        return {}

    def summary(self) -> str:
        """Count the days that are done, in a few words."""
        newest = "" if self.newest is None else f", newest {shown_time(self.newest)}"
        return f"{counted(self.done.size, 'time')}{newest}"

    def lines(self) -> list[str]:
        """Say it, a line for each thing and for each failed day."""
        found = [f"done         {self.summary()}"]
        if self.preliminary.size:
            found.append(f"preliminary  {_some(self.preliminary)}")
        found.append(f"missing      {_some(self.missing)}")
        if self.gaps.size:
            found.append(f"gaps         {_some(self.gaps)}, which no pass has planned")
        if self.outdated.size:
            found.append(f"outdated     {_some(self.outdated)}, done of other data or by another job")
        if self.earlier.size:
            found.append(f"earlier      {_some(self.earlier)}, of an earlier numerical version: daily --redo")
        if self.given_up.size:
            found.append(f"given up     {_some(self.given_up)}: daily --retry")
        failed = [day for day in self.failed if day.kind != NOT_READY]
        files = len(self.unreadable)
        beside = f", {counted(files, 'file')} that cannot be read" if files else ""
        if lasting := sum(day.lasting for day in failed):
            beside += f"; {lasting} of them {LASTING_TRIES} times or more: look at what is wrong"
        found.append(f"failed       {counted(len(failed) - files, 'day')}{beside}")
        found += [f"  {day.line()}" for day in failed]
        if absent := [day for day in self.failed if day.kind == NOT_READY]:
            days = sum(not day.is_file for day in absent)
            written = len(absent) - days
            beside = f", {counted(written, 'file')} being written" if written else ""
            found.append(f"no data yet  {counted(days, 'day')}{beside}")
            found += [f"  {day.line()}" for day in absent]
        if said := self.left_out():
            found.append(f"left out     {said}")
        if isinstance(self.drift, DriftOfSeries):
            found += [f"error bars   {line}" for line in self.drift.lines()]
        elif self.drift is not None:
            found.append(f"error bars   unknown: {self.drift}")
        found.append(f"runs         {counted(self.runs, 'run')} kept")
        found.append(f"disk         {bytes_text(self.used_bytes)} used, {bytes_text(self.free_bytes)} free")
        return found

    def as_json(self) -> dict[str, object]:
        """Give it as what is written as JSON; times are ISO 8601, UTC."""
        of_each: dict[str, dict[str, object]] = {
            name: {"alarm": found.alarm, "ratio": found.ratio, "low": found.low, "high": found.high}
            for name, found in self.drift_found.items()
        }
        drift: Mapping[str, object] | None = of_each.get("", of_each) or None
        if isinstance(self.drift, CagpError):
            drift = {"unknown": str(self.drift)}
        return {
            "output": str(self.root.absolute()),
            "newest": None if self.newest is None else written_day(self.newest),
            "done": int(self.done.size),
            "preliminary": [written_day(time) for time in self.preliminary],
            "missing": [written_day(time) for time in self.missing],
            "gaps": [written_day(time) for time in self.gaps],
            "outdated": [written_day(time) for time in self.outdated],
            "earlier": [written_day(time) for time in self.earlier],
            "given_up": [written_day(time) for time in self.given_up],
            "failed": [asdict(day) for day in self.failed],
            "files_without_variable": self.without_variable,
            "days_of_another_grid": len(self.of_other_grids),
            "drift": drift,
            "runs": self.runs,
            "used_bytes": self.used_bytes,
            "free_bytes": self.free_bytes,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, kw_only=True)
class HealthLimits:
    """What an output folder must keep to; None: anything goes."""

    max_age: np.timedelta64 | None = None  # of the newest time
    max_failed: int | None = None  # days whose data are there
    max_missing: int | None = None  # days
    max_gaps: int | None = None  # times between the first and the last of the series without a run
    max_unreadable: int | None = None  # files
    max_outdated: int | None = None  # times of another numerical version, or of data that have changed since
    min_free_bytes: int | None = None
    drift: bool = False  # whether drift is a fault

    def faults(self, status: SeriesStatus, *, now: dt.datetime | None = None) -> list[str]:
        """Say what a folder does not keep to."""
        found = []
        if self.max_age is not None:
            moment = np.datetime64((now or dt.datetime.now(dt.UTC)).replace(tzinfo=None), "m")
            limit = f"at most {_age(self.max_age)}"
            if status.newest is None:
                found.append(f"there is no time, of {limit}")
            elif moment - status.newest > self.max_age:
                found.append(f"the newest time is {_age(moment - status.newest)} old, {limit}")
        failed = sum(day.kind != NOT_READY for day in status.failed_days)
        for what, count, most in (
            (f"{counted(failed, 'day')} failed", failed, self.max_failed),
            (f"{counted(status.missing.size, 'day')} missing", status.missing.size, self.max_missing),
            (f"{counted(status.without_run.size, 'gap')}", status.without_run.size, self.max_gaps),
            (
                f"{counted(len(status.unreadable), 'unreadable file')}",
                len(status.unreadable),
                self.max_unreadable,
            ),
            (
                f"{counted(status.not_of_today.size, 'day')} outdated",
                status.not_of_today.size,
                self.max_outdated,
            ),
        ):
            if most is not None and count > most:
                found.append(f"{what}, at most {most}")
        if self.min_free_bytes is not None and status.free_bytes < self.min_free_bytes:
            found.append(f"{bytes_text(status.free_bytes)} free, at least {bytes_text(self.min_free_bytes)}")
        drift = status.drift if self.drift else None
        if isinstance(drift, CagpError):
            found.append(f"the drift is not known: {drift}")
        elif drift is not None and drift.alarm:
            found.append(drift.alarms())
        return found


def _age(span: np.timedelta64) -> str:
    """Write an age in hours, beyond three days in days."""
    hours = float(span / np.timedelta64(1, "h"))
    shown, unit = (hours, "h") if hours <= HOURS_SHOWN else (hours / 24.0, "days")
    return f"{ceil(10.0 * shown - 1e-6) / 10.0:.1f}".removesuffix(".0") + f" {unit}"  # no less than it is


def status_of(root: Path) -> SeriesStatus:
    """Look at an output folder; nothing is changed."""
    if not root.is_dir():
        raise ConfigurationError(
            f"there is no folder {root}; expected the output folder of a job.", key="no-folder"
        )
    if not (root / "runs").is_dir():  # which every pass makes
        raise ConfigurationError(
            f"{root} has no folder of runs: no pass has written there yet, its disk is not mounted, or it is "
            "another folder; expected the output folder of a job.",
            key="no-pass",
        )
    found, records = series.runs_of_times(root), DayRecords.read(root)
    done: Times = np.array(sorted(found), dtype="datetime64[ns]")
    preliminary: Times = np.array([time for time in done if found[time].preliminary], dtype="datetime64[ns]")
    planned, outdated = (
        np.array(sorted(each), dtype="datetime64[ns]") for each in (records.planned, records.outdated)
    )
    failed = np.array(
        [day.time for day in records.failed.values() if not day.is_file], dtype="datetime64[ns]"
    )
    given_up: Times = np.array(sorted(records.given_up), dtype="datetime64[ns]")
    known = np.union1d(np.union1d(done, failed), given_up)
    gaps = _gaps(np.union1d(planned, known))
    if records.first:  # of the job: what its source has begins there
        gaps = gaps[gaps >= np.datetime64(records.first)]
    return SeriesStatus(
        root,
        done,
        preliminary,
        np.setdiff1d(planned, known),
        gaps,
        np.intersect1d(outdated, done),
        np.array(
            [time for time in done if found[time].numerical_version != numerical_version()],
            dtype="datetime64[ns]",
        ),
        tuple(records.failed[what] for what in sorted(records.failed)),
        given_up,
        records.without_variable,
    )


def _gaps(known: Times) -> Times:
    """List what lacks between known times, if most of these are one step apart and all are whole steps."""
    steps = np.diff(known)
    if not steps.size or (known[-1] - known[0]) // (step := steps.min()) > MOST_STEPS:
        return known[:0]
    if 2 * np.count_nonzero(steps == step) <= steps.size or (steps % step).astype(np.int64).any():
        return known[:0]
    return np.setdiff1d(np.arange(known[0], known[-1], step), known)


def _some(times: Times) -> str:
    """Count times and list some of them."""
    listed = ", ".join(map(shown_time, times[:SHOWN]))
    more = f" and {times.size - SHOWN} more" if times.size > SHOWN else ""
    return f"{counted(times.size, 'time')}{': ' if listed else ''}{listed}{more}"
