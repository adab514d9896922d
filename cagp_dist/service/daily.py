"""The job of every day: each time of its rule is a run of its own, and all of them are one time series."""

import datetime as dt
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.digest import text_sha256
from cagp_dist.era5.selection import shown_time
from cagp_dist.errors import (
    CagpError,
    ConfigurationError,
    DataError,
    NumericalError,
    in_words_of_the_job,
)
from cagp_dist.mapping import Status
from cagp_dist.service.day_records import (
    DAMAGED,
    NOT_CONVERGED,
    WAIT_SECONDS,
    DayRecords,
    FailedDay,
    fault_of,
    note_done,
    note_failed,
    note_planned,
    written_day,
)
from cagp_dist.service.events import Clock, Observer, silent
from cagp_dist.service.ingest import available_times, ingest_all, resolved
from cagp_dist.service.jobfile.config import with_listed_times
from cagp_dist.service.jobfile.job import Job
from cagp_dist.service.jobfile.times_key import Newest
from cagp_dist.service.run import run
from cagp_dist.service.task import prepare_job
from cagp_dist.store.addresses import in_object_store
from cagp_dist.store.publish import output_lock, published
from cagp_dist.store.series import append_run, run_in_series
from cagp_dist.text import counted


@dataclass(frozen=True)
class Day:
    """What became of a time."""

    time: np.datetime64 | None  # none of a file whose times cannot be read
    status: Status | None = None  # of the solve; None if nothing was solved
    version: int | None = None  # of the series; None if nothing was published
    replaced: str | None = None  # key of the run whose result stood in the series before
    failed: FailedDay | None = None  # why there is no result, and when the time is tried again
    run: str = ""  # key of the run that was published
    waits: bool = False  # it failed before, and is not due yet

    def line(self) -> str:
        """Say it in one line."""
        if self.failed is not None:
            return f"{'waiting: ' if self.waits else 'failed: '}{self.failed.line()}"
        assert self.time is not None  # of what has not failed
        if self.status is None:
            return f"{shown_time(self.time)}: in the series already"
        instead = "" if self.replaced is None else f", in place of that of run {self.replaced}"
        return (
            f"{shown_time(self.time)}: {self.status.value}, in version {self.version} of the series{instead}"
        )


def daily(
    job: Job, *, observe: Observer = silent, retry: bool = False, now: dt.datetime | None = None
) -> Iterator[Day]:
    """Do what is new of a job, one time after the other, the earliest first; a time that fails ends no other.

    Times that have failed are tried again, ever less often, also those that the job does not list any more;
    ``retry`` has all of them tried. A file whose times cannot be read is a failure of its own.
    """
    root, digest = job.root, text_sha256(job.text)[:16]
    job, times, damaged = planned_times(job, observe=observe)
    at = (now or dt.datetime.now(dt.UTC)).isoformat(timespec="seconds")
    unread = [
        FailedDay(path, DAMAGED, str(error), 1, at, digest, is_file=True) for path, error in damaged.items()
    ]
    for file in note_planned(root, times, unread):
        yield Day(None, failed=file)
    records = DayRecords.read(root)
    for time in np.union1d(times, records.times()):
        moment = now or dt.datetime.now(dt.UTC)
        before = records.failed.get(written_day(time))
        if before is not None and not (retry or before.due(moment, digest)):
            yield Day(time, failed=before, waits=True)
            continue
        try:
            day = _one(with_listed_times(job, np.array([time])), root, time, observe)
        except _DayError as failure:
            day = Day(time, failed=_failed(time, failure.kind, str(failure), moment, digest))
        if day.status is not None and day.version is None:
            reason = f"{day.status.value}; not published. {day.status.advice}"
            day = replace(day, failed=_failed(time, NOT_CONVERGED, reason, moment, digest))
        if day.failed is None:
            note_done(root, time)
        else:
            day = replace(day, failed=note_failed(root, day.failed))
        yield day


def _failed(time: np.datetime64, kind: str, reason: str, now: dt.datetime, job: str) -> FailedDay:
    return FailedDay(written_day(time), kind, reason, 1, now.isoformat(timespec="seconds"), job)


class _DayError(Exception):
    """What is wrong with the data or the solve of one time."""

    def __init__(self, error: CagpError) -> None:
        super().__init__(str(error))
        self.kind = fault_of(error)


def _one(job: Job, root: Path, time: np.datetime64, observe: Observer) -> Day:
    """Do one time, unless the series has its result."""
    try:
        key = _run_key(job, observe)
    except (DataError, NumericalError) as error:
        raise _DayError(error) from error
    with output_lock(root):
        if run_in_series(root, time) == key:
            removed = job.output.keep is not None and not (root / "runs" / f"{key}.zarr").exists()
            if removed or published(root, run_key=key) is not None:
                return Day(time)
    try:
        outcome = run(job, observe=observe)
    except (DataError, NumericalError) as error:
        raise _DayError(error) from error
    if outcome.path is None:
        return Day(time, outcome.status)
    with output_lock(root, wait_seconds=WAIT_SECONDS):
        found = append_run(root, outcome.path)
    return Day(time, outcome.status, found.version, found.replaced, run=outcome.path.stem)


def _check_folder(job: Job) -> None:
    if in_object_store(job.output.root):
        raise ConfigurationError(
            f"[output] root is {job.output.root}, and a time series is changed in place: expected the path "
            "of a folder. `cagp run` publishes the runs of several days in an object store."
        )


@in_words_of_the_job()
def planned_times(
    job: Job, *, observe: Observer = silent, locked: bool = True
) -> tuple[Job, Times, dict[str, DataError]]:
    """Work out times, ascending, and what the prior is fitted to; and which files were left out."""
    _check_folder(job)
    damaged: dict[str, DataError] = {}
    newest = isinstance(job.prior.fit_times, Newest)
    with output_lock(job.root) if locked else nullcontext(), Clock(observe).stage("Times") as stage:
        job = resolved(job, report=stage.note, damaged=damaged.__setitem__)
        found = job.observations.listed_times
        times: Times = np.array(
            available_times(job, report=stage.note, damaged=damaged.__setitem__) if found is None else found,
            dtype="datetime64[ns]",
        )
        if times.size > 1 and newest:
            raise ConfigurationError(
                f"[prior] fit_times are the newest ones, and there are {times.size} times, whose prior would "
                'change each day. Take times = "latest", fit_times from and to, or the numbers of the prior.'
            )
        stage.summary = counted(times.size, "time")
    return job, times, damaged


@in_words_of_the_job()
def _run_key(job: Job, observe: Observer) -> str:
    """Ingest what is new, and work out the name of the run."""
    with output_lock(job.root), Clock(observe).stage("Observations") as stage:
        job, field, fit_field = ingest_all(job, report=stage.note)
        key = prepare_job(job, field, fit_field).run_key
        stage.summary = f"run {key}"
    return key
