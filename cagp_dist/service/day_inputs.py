"""What the result of a day depends on, told without reading a field: a day that has it already is not read.

It is a digest of the job, of the numerical version, of what else the job reads, and of the versions of the
files that have the time; of sources that are far away, of the stored batch that has it. Of a job whose mean
is the run before nothing is told: that run is read.
"""

import json
from bisect import bisect_right
from collections.abc import Callable

import numpy as np

from cagp_dist.digest import file_sha256, text_sha256
from cagp_dist.era5.file_catalogue import file_version
from cagp_dist.era5.local_files import versions_by_time
from cagp_dist.errors import DataError
from cagp_dist.means import mean_family
from cagp_dist.service.ingest import is_remote, store_path
from cagp_dist.service.jobfile.config import job_of_fit_times
from cagp_dist.service.jobfile.job import Job
from cagp_dist.service.task import targets_path
from cagp_dist.store.published_variables import FORMAT_VERSION
from cagp_dist.versions import numerical_version

Inputs = Callable[[np.datetime64], str | None]


def inputs_of_days(job: Job) -> Inputs:
    """Give what tells the digest of a day; None where only reading its field does."""
    if job.prior.is_previous or job.prior.time_kernel is not None:
        return _unknown
    try:
        versions, others = _versions(job), _others(job)
    except (DataError, OSError):
        return _unknown
    form = json.loads(json.dumps(job.canonical()))
    del form["observations"]["times"]
    fit = job_of_fit_times(job)
    times = [] if fit is None else [np.datetime64(time, "ns") for time in fit.observations.listed_times or ()]
    fitted = [versions(time) for time in times]
    if not all(fitted):
        return _unknown
    common = [form, job.output.keep_weights, numerical_version(), FORMAT_VERSION, others, fitted]
    known = text_sha256(json.dumps(common, sort_keys=True))

    def digest(time: np.datetime64) -> str | None:
        version = versions(time)
        return None if not version else text_sha256(json.dumps([known, str(time), version]))[:16]

    return digest


def _unknown(time: np.datetime64) -> None:
    """Tell nothing of a day."""


def _versions(job: Job) -> Callable[[np.datetime64], object]:
    """Give what tells which versions of which files have a time; nothing where that is not known."""
    table = job.observations
    address = table.source.partition(":")[2]
    if table.kind == "file":
        found = versions_by_time(
            address,
            scratch=job.output.folder / "downloads",
            variable=table.variable,
            level=table.level,
            select=table.select,
        )
        return lambda time: found.get(int(time.astype("datetime64[ns]").astype(np.int64)))
    if table.kind == "table":
        version = file_version(targets_path(table.source))
        return lambda _: version
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


def _others(job: Job) -> list[str]:
    """Digests of what is read beside the observations."""
    family = mean_family(
        job.prior.family,
        variable=job.observations.variable,
        covariates=job.prior.covariates,
        covariates_missing=job.prior.covariates_missing,
    )
    targets = job.design.targets
    return [family.content_sha256 or "", "" if targets is None else file_sha256(targets_path(targets))]
