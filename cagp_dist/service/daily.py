"""The job of every day: each time of its rule is a run of its own, and all of them are one time series."""

import datetime as dt
import logging
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.digest import text_sha256
from cagp_dist.errors import (
    BusyError,
    CagpError,
    ClusterError,
    ConfigurationError,
    DataError,
    DiskError,
    StoreError,
    in_words_of_the_job,
)
from cagp_dist.fields.files.file_catalogue import file_version, forget_unreadable
from cagp_dist.fields.files.local_files import FileError
from cagp_dist.pipeline import Status
from cagp_dist.service.day_inputs import Inputs, inputs_of_all_days, inputs_of_days
from cagp_dist.service.day_records import (
    NOT_CONVERGED,
    UNEXPECTED,
    WAIT_SECONDS,
    DayRecords,
    DoneDay,
    FailedDay,
    fault_of,
    note_done,
    note_failed,
    note_outdated,
    note_planned,
    written_day,
)
from cagp_dist.service.events import Clock, Observer, silent
from cagp_dist.service.ingest import available_times, files_left_out, ingest_all, is_remote, resolved
from cagp_dist.service.jobfile.config import with_listed_times
from cagp_dist.service.jobfile.job import Job
from cagp_dist.service.jobfile.times_key import Newest
from cagp_dist.service.removed_days import not_current
from cagp_dist.service.series_grid import check_grid
from cagp_dist.store import series
from cagp_dist.store.addresses import in_object_store
from cagp_dist.store.durable_files import folder_bytes, is_full
from cagp_dist.store.lock import refuse_linked_folders
from cagp_dist.store.publish import output_lock, published
from cagp_dist.text import counted, shown_time
from cagp_dist.versions import numerical_version, numerical_versions

if TYPE_CHECKING:
    from cagp_dist.service.task import PreparedJob

_log = logging.getLogger(__name__)

# A new version of the series costs what its times do: of a long one it waits for runs of this share of them,
# so that a year of hours is no quadratic work, or of so many bytes, which are in memory together
SHARE, MOST_BYTES = 1 / 50, 2**28


@dataclass(frozen=True)
class Day:
    """What became of a time."""

    time: np.datetime64 | None  # none of a file whose times cannot be read
    status: Status | None = None  # of the solve; None if nothing was solved
    version: int | None = None  # of the series; None if nothing was published
    replaced: str | None = None  # key of the run whose result stood in the series before
    failed: FailedDay | None = None  # why there is no result, and when the time is tried again
    run: str = ""  # key of the run that has its result, where that was looked at
    waits: bool = False  # it failed before, and is not due yet
    outdated: bool = False  # it has changed, and the run that it went on from was removed
    given_up: bool = False  # by an operator, while it was solved

    def line(self) -> str:
        """Say it in one line."""
        if self.failed is not None:
            what = "waiting" if self.waits else self.failed.word
            return f"{what}: {self.failed.line()}"
        assert self.time is not None  # of what has not failed
        if self.given_up:
            return f"{shown_time(self.time)}: removed or given up while it was solved, and left out"
        if self.status is None:
            but = ", of other data or another job: the run that it went on from was removed"
            return f"{shown_time(self.time)}: in the series already{but if self.outdated else ''}"
        instead = "" if self.replaced is None else f", instead of that of run {self.replaced}"
        return (
            f"{shown_time(self.time)}: {self.status.value}, in version {self.version} of the series{instead}"
        )


@dataclass(frozen=True)
class _Solved:
    """A time whose run is published, and that is not in the series yet."""

    time: np.datetime64
    path: Path
    status: Status
    already_done: bool
    done: DoneDay  # what is noted when the series has it
    size: int  # bytes of the run


def daily(
    job: Job,
    *,
    observe: Observer = silent,
    retry: bool = False,
    redo: bool = False,
    now: dt.datetime | None = None,
) -> Iterator[Day]:
    """Do what is new of a job, one time after the other, the earliest first; a time that fails ends no other.

    Times that have failed are tried again, ever less often, or as soon as their files have changed, also
    those that the job does not list any more; ``retry`` has all of them tried, also those given up. A file
    whose times cannot be read is a failure of its own. A time whose job and files are those of its run is not
    read. Times of an earlier numerical version keep their result; ``redo`` has those of the job solved again.
    """
    root, digest = job.output.folder, text_sha256(job.text)[:16]
    moving = isinstance(job.prior.fit_times, Newest)  # the prior of each pass is another one
    rule, first = job.observations.times, None  # which --times leaves as it was
    if isinstance(rule, Newest):
        first = "" if rule.first is None else written_day(rule.first)
    if retry:
        refuse_linked_folders(root)
        forget_unreadable(root / "downloads")
    job, times, damaged = planned_times(job, observe=observe)
    at = (now or dt.datetime.now(dt.UTC)).isoformat(timespec="seconds")
    unread = [
        FailedDay(
            path,
            fault_of(error),
            str(error),
            1,
            at,
            digest,
            is_file=True,
            inputs=str(file_version(Path(path))),
        )
        for path, error in damaged.items()
    ]
    if not retry:
        left_out = DayRecords.read(root).given_up
        times = times[[written_day(time) not in left_out for time in times]]
    settled = _Settled(job, redo=redo)
    new = [time for time in times if not settled(time)]
    without = 0
    with suppress(DataError):  # of no file that can be read: each of its days says so
        without = len(files_left_out(job))
    for file, waits in note_planned(root, new, unread, retry=retry, first=first, without_variable=without):
        yield Day(None, failed=file, waits=waits)
    records = DayRecords.read(root)
    solved: list[_Solved] = []

    def tried(day: Day, moment: dt.datetime) -> Day:
        if day.failed is None:
            return day
        assert day.time is not None
        inputs = settled.inputs(day.time)
        failed = replace(day.failed, again=moment.isoformat(timespec="seconds"), job=digest, inputs=inputs)
        return replace(day, failed=note_failed(root, failed))

    for time in np.union1d(times, records.times()):
        before = records.failed.get(written_day(time))
        if settled(time):
            if before is not None or written_day(time) in records.planned:  # by a job that went back
                note_done(root, {time: records.done[written_day(time)]})
            yield Day(time)
            continue
        moment = now or dt.datetime.now(dt.UTC)
        if before is not None and not (retry or before.due(moment, digest, settled.inputs(time))):
            yield Day(time, failed=before, waits=True)
            continue
        found = _one(with_listed_times(job, np.array([time])), time, observe, settled)
        if isinstance(found, Day):
            if found.failed is None and not found.outdated:
                note_done(root, {time: settled.done(time, found.run)})
            yield tried(found, moment)
            continue
        solved.append(found)
        if _are_enough([each.size for each in solved], len(settled.runs)):
            yield from (tried(day, moment) for day in _appended(root, solved))
            solved = []
    yield from (tried(day, now or dt.datetime.now(dt.UTC)) for day in _appended(root, solved))
    note_outdated(root, [] if moving else settled.outdated(DayRecords.read(root)))


def _are_enough(sizes: Sequence[int], in_series: int) -> bool:
    """Whether runs of these sizes in bytes go into the series, which has as many times with them."""
    return len(sizes) > SHARE * in_series or sum(sizes) > MOST_BYTES


class _Settled:
    """Whether the series has what a run of a time would give, as job and files tell without being read."""

    def __init__(self, job: Job, *, redo: bool) -> None:
        self._job, self._done = job, DayRecords.read(job.output.folder).done
        self._redo = redo  # what an earlier numerical version made
        self.runs = series.runs_of_times(job.output.folder)
        self._inputs = inputs_of_days(job, self.runs)
        self._whole = cache(partial(inputs_of_all_days, job))

    def __call__(self, time: np.datetime64) -> bool:
        done, run = self._done.get(written_day(time)), self.runs.get(time)
        if done is None or done.inputs is None or run is None or run.key != done.run:
            return False
        if self.is_redone(time):
            return False
        if run.preliminary and is_remote(self._job.observations):  # there may be a final field now
            return False
        removable = self._job.output.keep is not None  # by a rule of the job, and not solved again
        there = removable or (self._job.output.folder / "runs" / f"{run.key}.zarr").is_dir()
        return there and done.inputs in (self._inputs(time) or ())

    def inputs(self, time: np.datetime64) -> str:
        """Tell what a time would be made of; where that is not known, what all times are made of."""
        return next(iter(self._inputs(time) or ()), "") or self._whole()

    def is_redone(self, time: np.datetime64) -> bool:
        """Whether a time of the series is of an earlier numerical version, and these are solved again."""
        return self._redo and self.runs[time].numerical_version != numerical_version()

    def done(self, time: np.datetime64, run: str) -> DoneDay:
        """Take note of a run, and of what was read: of files as they were before, of batches as they are."""
        before = self.runs.get(time)
        if before is None or before.key != run:
            preliminary = before is not None and before.preliminary
            self.runs[time] = series.RunOfTime(run, preliminary, numerical_version())
        inputs = self._read()(time)
        return DoneDay(run, None if inputs is None else inputs[0])

    def outdated(self, records: DayRecords) -> list[np.datetime64]:
        """List the days of the series whose result is of other data, or by another job."""
        inputs = self._read()
        return [
            time
            for time, run in self.runs.items()
            if (done := records.done.get(written_day(time))) is not None
            and done.run == run.key
            and done.inputs is not None
            and (now := inputs(time)) is not None
            and done.inputs not in now
        ]

    def has_changed(self, time: np.datetime64) -> bool:
        """Whether a day was made of other data, or by another job, as far as that is known."""
        done = self._done.get(written_day(time))
        return done is not None and done.inputs is not None and done.inputs not in (self._read()(time) or ())

    def _read(self) -> Inputs:
        remote = is_remote(self._job.observations)
        return inputs_of_days(self._job, self.runs) if remote else self._inputs


def _one(job: Job, time: np.datetime64, observe: Observer, settled: _Settled) -> Day | _Solved:
    """Solve one time, unless the series has its result; what goes wrong is its own failure, but for some."""
    from cagp_dist.service.run import run  # a pass with nothing to do takes two thirds of the time without

    try:
        if (known := settled.runs.get(time)) is not None and not settled.is_redone(time):
            prepared = _prepared(job, observe)
            keys = map(prepared.run_key_of, numerical_versions())
            if known.key in keys and _is_there(job, known.key):
                return Day(time, run=known.key)
            if _lost_run_before(prepared, [each for each in settled.runs if each < time]):
                return Day(time, run=known.key, outdated=settled.has_changed(time))
        outcome = run(
            job,
            check=partial(check_grid, job.output.folder),
            observe=observe,
            wait_seconds=WAIT_SECONDS,  # for a command of an operator
        )
    except Exception as error:
        return Day(time, failed=_failure(time, error, (DiskError, BusyError, ClusterError)))
    if outcome.path is None:
        reason = f"{outcome.status.value}; not published. {outcome.status.advice}"
        return Day(time, outcome.status, failed=_failed(time, NOT_CONVERGED, reason))
    done = settled.done(time, outcome.path.stem)
    size = folder_bytes(outcome.path)
    return _Solved(time, outcome.path, outcome.status, outcome.already_done, done, size)


def _appended(root: Path, solved: Sequence[_Solved]) -> list[Day]:
    """Put runs into the series together; a disk or a series that is damaged ends the pass.

    Those of days that were given up or removed meanwhile are left out.
    """
    if not solved:
        return []
    left: list[Day] = []
    try:
        with output_lock(root, wait_seconds=WAIT_SECONDS):
            given_up = DayRecords.read(root).given_up
            if out := [each for each in solved if written_day(each.time) in given_up]:
                not_current(root, {each.path.stem for each in out})
                left = [Day(each.time, given_up=True) for each in out]
                solved = [each for each in solved if each not in out]
            updates = series.append_runs(root, [each.path for each in solved])
    except Exception as error:
        return [Day(each.time, failed=_failure(each.time, error, (StoreError,))) for each in solved]
    note_done(root, {each.time: each.done for each in solved})
    return left + [
        Day(each.time, run=each.path.stem)
        if each.already_done and not update.changed
        else Day(each.time, each.status, update.version, update.replaced, run=each.path.stem)
        for each, update in zip(solved, updates, strict=True)
    ]


def _failure(time: np.datetime64, error: Exception, of_all: tuple[type[CagpError], ...]) -> FailedDay:
    """Say what went wrong with a time; raise the error where it ends the pass, as a full disk does."""
    if isinstance(error, of_all) or is_full(error):
        raise error
    if isinstance(error, CagpError):
        return _failed(time, fault_of(error), str(error))
    _log.warning("%s failed unexpectedly", shown_time(time), exc_info=error)
    return _failed(time, UNEXPECTED, f"{type(error).__name__}: {error}")


def _is_there(job: Job, key: str) -> bool:
    """Whether a run is published and undamaged, or was removed as the job says."""
    with output_lock(job.output.folder, wait_seconds=WAIT_SECONDS):
        removed = job.output.keep is not None and not (job.output.folder / "runs" / f"{key}.zarr").exists()
        return removed or published(job.output.folder, run_key=key) is not None


def _lost_run_before(prepared: "PreparedJob", before: list[np.datetime64]) -> bool:
    """Whether a time went on from one of those before it in the series whose run was removed."""
    if prepared.carried is None:
        return False
    earlier = prepared.carried.time
    return bool(before) and (earlier is None or bool(earlier < max(before)))


def _failed(time: np.datetime64, kind: str, reason: str) -> FailedDay:
    return FailedDay(written_day(time), kind, reason, 1, "", "")


@in_words_of_the_job()
def planned_times(
    job: Job, *, observe: Observer = silent, locked: bool = True
) -> tuple[Job, Times, dict[str, FileError]]:
    """Work out times, ascending, and what the prior is fitted to; and which files were left out."""
    if in_object_store(job.output.root):
        raise ConfigurationError(
            f"[output] root is {job.output.root}, and a time series is changed in place: expected the path "
            "of a folder. `cagp run` publishes the runs of several days in an object store.",
            key="series-in-place",
        )
    damaged: dict[str, FileError] = {}
    newest = isinstance(job.prior.fit_times, Newest)
    with output_lock(job.output.folder) if locked else nullcontext(), Clock(observe).stage("Times") as stage:
        job = resolved(job, report=stage.note, damaged=damaged.__setitem__)
        found = job.observations.listed_times
        times: Times = np.array(
            available_times(job, report=stage.note, damaged=damaged.__setitem__) if found is None else found,
            dtype="datetime64[ns]",
        )
        if found is not None and job.observations.kind == "file":  # files that cannot be read are told, too
            with suppress(DataError):
                available_times(job, report=stage.note, damaged=damaged.__setitem__)
        if times.size > 1 and newest:
            raise ConfigurationError(
                f"[prior] fit_times are the newest ones, and there are {times.size} times, whose prior would "
                'change each day. Take times = "latest", fit_times from and to, or the parameters of the '
                "prior.",
                key="fit-times-moving",
            )
        stage.summary = counted(times.size, "time")
    return job, times, damaged


@in_words_of_the_job()
def _prepared(job: Job, observe: Observer) -> "PreparedJob":
    """Ingest what is new, and work out what the run depends on."""
    from cagp_dist.service.task import prepare_job

    with (
        output_lock(job.output.folder, wait_seconds=WAIT_SECONDS),
        Clock(observe).stage("Observations") as stage,
    ):
        job, field, fit_field = ingest_all(job, report=stage.note)
        prepared = prepare_job(job, field, fit_field)
        stage.summary = f"run {prepared.run_key}"
    return prepared
