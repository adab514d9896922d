"""Days that an operator takes out of a series, or gives up."""

from collections.abc import Container
from pathlib import Path

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.service.day_records import WAIT_SECONDS, DayRecords, note_given_up
from cagp_dist.service.jobfile.config import with_times
from cagp_dist.service.jobfile.job import Job
from cagp_dist.service.jobfile.times_key import TimeRule
from cagp_dist.service.series_status import status_of
from cagp_dist.store import series
from cagp_dist.store.publish import current_run, forget_current, make_current, output_lock


def give_up(job: Job, text: str) -> Times:
    """Have passes of a job leave times out (in the short form) that are not in the series; gives them.

    They have failed, are missing, or are gaps, which the source may never have.
    """
    root = job.output.folder
    gaps = status_of(root).gaps if (root / "runs").is_dir() else np.empty(0, dtype="datetime64[ns]")
    times = _chosen(job, text, np.union1d(DayRecords.read(root).times(), gaps), "given up")
    _check_not_done(root, times)
    with output_lock(root, wait_seconds=WAIT_SECONDS):
        _check_not_done(root, times)  # a pass may have put one in meanwhile
        note_given_up(root, times)
    return times


def _check_not_done(root: Path, times: Times) -> None:
    """Raise `ConfigurationError` where the series has one of these times."""
    done = np.array(sorted(series.runs_of_times(root)), dtype="datetime64[ns]")
    if (there := np.intersect1d(times, done)).size:
        raise ConfigurationError(
            f"{there[0].astype('datetime64[m]')} is in the series of {root}; --remove takes it out.",
            key="in-the-series",
        )


def remove(job: Job, text: str) -> Times:
    """Take times (in the short form) out of the series of a job, and give them up; gives them.

    Their runs stay until the rule of the job removes them. Where one of them was current, the run of the
    newest time left is, if there is one. A pass may be running: this waits until it is between two days, and
    what the pass makes of these times afterwards stays out of the series.
    """
    root = job.output.folder
    known = np.array(sorted(series.runs_of_times(root)), dtype="datetime64[ns]")
    times = _chosen(job, text, known, "removed")
    with output_lock(root, wait_seconds=WAIT_SECONDS):
        note_given_up(root, times)  # before, so that no pass takes them for missing after a kill
        runs = series.runs_of_times(root)  # as they are now
        series.remove_times(root, list(times))
        not_current(root, {runs[time].key for time in times if time in runs})
    return times


def not_current(root: Path, keys: Container[str]) -> None:
    """Let the run of the newest time of the series be current, if one of these is, or none that is there.

    Call it inside `output_lock`.
    """
    try:
        current = current_run(root)
    except StoreError:
        current = None  # it names a run that is gone
    if current is not None and current.stem not in keys:
        return
    runs = series.runs_of_times(root)
    newest_first = (runs[time].key for time in sorted(runs, reverse=True))
    found = next((key for key in newest_first if (root / "runs" / f"{key}.zarr").is_dir()), None)
    if found is None:
        forget_current(root)
    else:
        make_current(root, run_key=found)


def _chosen(job: Job, text: str, known: Times, what: str) -> Times:
    """Choose from the times that may be; `ConfigurationError` if it is none of them, or one is not there."""
    found = with_times(job, text).observations.times if known.size else None
    try:
        wanted = found.times(known) if isinstance(found, TimeRule) else np.array(found or known)
    except ValueError as error:
        raise ConfigurationError(f"{text}: {error}.", key="no-such-time") from error
    wanted = np.array(wanted, dtype="datetime64[ns]")
    chosen: Times = np.intersect1d(wanted, known)
    if not chosen.size or (not isinstance(found, TimeRule) and chosen.size < wanted.size):
        raise ConfigurationError(
            f"{text}: not all of these times may be {what}; `cagp status {job.output.folder}` lists those "
            "that are done, failed and missing.",
            key="no-such-time",
        )
    return chosen
