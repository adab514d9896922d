"""Days that an operator takes out of a series, or gives up."""

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.errors import ConfigurationError
from cagp_dist.service.day_records import WAIT_SECONDS, DayRecords, note_given_up
from cagp_dist.service.jobfile.config import with_times
from cagp_dist.service.jobfile.job import Job
from cagp_dist.service.jobfile.times_key import TimeRule
from cagp_dist.store import series
from cagp_dist.store.publish import make_current, output_lock


def give_up(job: Job, text: str) -> Times:
    """Have passes of a job leave times out (in the short form) that are not in the series; gives them."""
    root = job.output.folder
    done = np.array(sorted(series.runs_of_times(root)), dtype="datetime64[ns]")
    times = _chosen(job, text, DayRecords.read(root).times(), "given up")
    if (there := np.intersect1d(times, done)).size:
        raise ConfigurationError(
            f"{there[0].astype('datetime64[m]')} is in the series of {root}; --remove takes it out.",
            key="in-the-series",
        )
    note_given_up(root, times)
    return times


def remove(job: Job, text: str) -> Times:
    """Take times (in the short form) out of the series of a job, and give them up; gives them.

    Their runs stay until the rule of the job removes them. The run of the newest time left is current.
    """
    root = job.output.folder
    runs = series.runs_of_times(root)
    times = _chosen(job, text, np.array(sorted(runs), dtype="datetime64[ns]"), "removed")
    note_given_up(root, times)  # before, so that no pass takes them for missing
    with output_lock(root, wait_seconds=WAIT_SECONDS):
        series.remove_times(root, list(times))
        for time in sorted(set(runs) - set(times), reverse=True):
            if (root / "runs" / f"{runs[time].key}.zarr").is_dir():
                make_current(root, run_key=runs[time].key)
                break
    return times


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
