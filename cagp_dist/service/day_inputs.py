"""What the result of a day depends on, told without reading a field: a day that has it already is not read.

It is a digest of the job, of the numerical version, of what else the job reads, and of the versions of the
files that have the time; of sources that are far away, of the stored batch that has it; and of a job whose
mean is the previous run, of the key of that run. With times that inform each other, all are read.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.digest import file_sha256, text_sha256
from cagp_dist.errors import DataError, StoreError
from cagp_dist.fields.files.file_catalogue import file_version
from cagp_dist.fields.files.local_files import versions_by_time
from cagp_dist.service.ingest import is_remote, one_by_one, selection_of, store_path
from cagp_dist.service.jobfile.config import job_of_fit_times
from cagp_dist.service.jobfile.design_table import targets_path
from cagp_dist.service.jobfile.job import Job
from cagp_dist.store.earlier import earlier_runs, whole_seconds
from cagp_dist.store.published_variables import FORMAT_VERSION, STATE
from cagp_dist.store.series import RunOfTime
from cagp_dist.versions import numerical_versions

Inputs = Callable[[np.datetime64], list[str] | None]


def inputs_of_days(job: Job, runs: Mapping[np.datetime64, RunOfTime]) -> Inputs:
    """Give what tells the digest of a day by each numerical version, the newest first.

    It is None where only reading its field does. ``runs`` are those of the series, also those that come into
    it later.
    """
    if job.prior.in_time or job.prior.background is not None:
        return _unknown
    try:
        versions, others = _versions(job), _others(job)
        before = _runs_before(job, runs) if job.prior.is_previous else None
    except (DataError, StoreError, OSError):
        return _unknown
    fit = job_of_fit_times(job)
    times = [] if fit is None else [np.datetime64(time, "ns") for time in fit.observations.listed_times or ()]
    fitted = [versions(time) for time in times]
    if not all(fitted):
        return _unknown
    known = []
    for number in numerical_versions():
        form = json.loads(json.dumps(job.canonical(number)))
        del form["observations"]["times"]
        common = [form, job.output.keep_weights, number, FORMAT_VERSION, others, fitted]
        known.append(text_sha256(json.dumps(common, sort_keys=True)))

    def digests(time: np.datetime64) -> list[str] | None:
        if not (version := versions(time)):
            return None
        of_day = [str(time), version, *([] if before is None else before(time))]
        return [text_sha256(json.dumps([each, *of_day]))[:16] for each in known]

    return digests


def inputs_of_all_days(job: Job) -> str:
    """Tell what the source of a job has, as far as that shows without reading it: a digest, or nothing."""
    try:
        found = [_files(each) for each in one_by_one(job)]
    except (DataError, StoreError, OSError):
        return ""
    return text_sha256(json.dumps(found, sort_keys=True))[:16] if any(found) else ""


def _files(job: Job) -> object:
    """Give the versions of the files of a source, by their times; nothing of other sources."""
    table = job.observations
    if table.kind == "table":
        return file_version(targets_path(table.source))
    if table.kind != "file":
        return None
    address = table.source.partition(":")[2]
    return versions_by_time(address, selection_of(table), scratch=job.output.folder / "downloads")


def _unknown(time: np.datetime64) -> None:
    """Tell nothing of a day."""


def _versions(job: Job) -> Callable[[np.datetime64], object]:
    """Give what tells which versions of which files have a time; nothing where that is not known."""
    if len(job.observations.variables) > 1:
        of_each = [_versions(each) for each in one_by_one(job)]

        def of_all(time: np.datetime64) -> list[object] | None:
            found = [versions(time) for versions in of_each]
            return found if all(found) else None

        return of_all
    table = job.observations
    if table.kind in ("file", "table"):
        found = _files(job)
        if isinstance(found, dict):
            return lambda time: found.get(int(time.astype("datetime64[ns]").astype(np.int64)))
        return lambda _: found
    if not is_remote(table):
        return lambda _: table.source
    store = store_path(job.output.folder, table, content=None)
    names = sorted(path.name for path in store.iterdir()) if store.is_dir() else []

    def batches(time: np.datetime64) -> list[str]:
        """Name the latest batches that begin no later: one of them has the time."""
        written = str(time.astype("datetime64[m]")).replace("-", "").replace(":", "")
        latest = names[: bisect_right(names, f"{written}.")]
        return [name for name in latest if name.startswith(latest[-1].partition("-")[0])]

    return batches


def _runs_before(job: Job, runs: Mapping[np.datetime64, RunOfTime]) -> Callable[[np.datetime64], list[str]]:
    """Give the key of the run of the last time before in the series, and of others of times in between."""
    last = np.datetime64("9999-12-31", "s")
    of_series = {run.key for run in runs.values()}
    beside = [*earlier_runs(job.output.folder, STATE, before=last, without=of_series)]
    times: Times = np.empty(0, dtype="datetime64[ns]")

    def keys(time: np.datetime64) -> list[str]:
        nonlocal times
        if len(times) != len(runs):
            times = np.array(sorted(runs), dtype="datetime64[ns]")
        at = int(np.searchsorted(times, time)) - 1
        since = None if at < 0 else whole_seconds(times[at])
        between = [run.key for run in beside if run.last < time and (since is None or run.last > since)]
        return [*([] if at < 0 else [runs[times[at]].key]), *between]

    return keys


def _others(job: Job) -> list[str]:
    """Digests of what is read beside the observations."""
    targets = job.design.targets
    return [
        job.prior.mean_sha256(job.observations.variables[0]),
        "" if targets is None else file_sha256(targets_path(targets)),
    ]
