"""The job of every day: each time of its rule is a run of its own, and all of them are one time series."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.era5.selection import shown_time
from cagp_dist.errors import ConfigurationError, in_words_of_the_job
from cagp_dist.mapping import Status
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

    time: np.datetime64
    status: Status | None  # of the solve; None if nothing was solved, because the series has this very result
    version: int | None  # of the series; None if the solve did not end well, and nothing was published
    replaced: str | None = None  # key of the run whose result stood in the series before

    def line(self) -> str:
        """Say it in one line."""
        if self.status is None:
            return f"{shown_time(self.time)}: in the series already"
        if self.version is None:
            return f"{shown_time(self.time)}: {self.status.value}; not published. {self.status.advice}"
        instead = "" if self.replaced is None else f", in place of that of run {self.replaced}"
        return (
            f"{shown_time(self.time)}: {self.status.value}, in version {self.version} of the series{instead}"
        )


def daily(job: Job, *, observe: Observer = silent) -> Iterator[Day]:
    """Do what is new of a job, one time after the other, the earliest first."""
    if in_object_store(job.output.root):
        raise ConfigurationError(
            f"[output] root is {job.output.root}, and a time series is changed in place: expected the path "
            "of a folder. `cagp run` publishes the runs of several days in an object store."
        )
    root = job.root
    for time in _times(job, observe):
        one = with_listed_times(job, np.array([time]))
        key = _run_key(one, observe)
        with output_lock(root):
            done = run_in_series(root, time) == key and published(root, run_key=key) is not None
        if done:
            yield Day(time, None, None)
            continue
        outcome = run(one, observe=observe)
        if outcome.path is None:
            yield Day(time, outcome.status, None)
            continue
        with output_lock(root):
            found = append_run(root, outcome.path)
        yield Day(time, outcome.status, found.version, found.replaced)


@in_words_of_the_job()
def _times(job: Job, observe: Observer) -> Times:
    """Work out the times of the job, ascending."""
    with output_lock(job.root), Clock(observe).stage("Times") as stage:
        found = resolved(job, report=stage.note).observations.listed_times
        times: Times = np.array(
            available_times(job, report=stage.note) if found is None else found, dtype="datetime64[ns]"
        )
        if times.size > 1 and isinstance(job.prior.fit_times, Newest):
            raise ConfigurationError(
                f"[prior] fit_times are the newest ones, and there are {times.size} times, whose prior would "
                'change each day. Take times = "latest", fit_times from and to, or the numbers of the prior.'
            )
        stage.summary = counted(times.size, "time")
    return times


@in_words_of_the_job()
def _run_key(job: Job, observe: Observer) -> str:
    """Ingest what is new, and work out the name of the run."""
    with output_lock(job.root), Clock(observe).stage("Observations") as stage:
        job, field, fit_field = ingest_all(job, report=stage.note)
        key = prepare_job(job, field, fit_field).run_key
        stage.summary = f"run {key}"
    return key
