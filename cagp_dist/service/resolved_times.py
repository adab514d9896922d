"""Rules for times, resolved: from then on the job is the one that lists them, with the same run key."""

import datetime as dt
from collections.abc import Callable
from functools import partial

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.errors import ConfigurationError, DataError
from cagp_dist.service.ingest import available_times, ingested_times, is_remote
from cagp_dist.service.jobfile.config import with_fit_times, with_listed_times
from cagp_dist.service.jobfile.job import Job
from cagp_dist.service.jobfile.times_key import Newest, TimeRule
from cagp_dist.text import counted, without_secrets

CDS_DELAY_DAYS = 6
"""The Climate Data Store has ERA5 up to about five days ago; with six, whole days are there."""


def resolved(
    job: Job, *, report: Callable[[str], None], offline: bool = False, now: dt.datetime | None = None
) -> Job:
    """Work out which times a job takes, and which its prior is fitted to."""
    look = partial(_available, job, report=report, offline=offline, now=now)
    if isinstance(rule := job.observations.times, TimeRule):
        found = _times_of(rule, look, key="[observations] times")
        job = with_listed_times(job, found)
        report(f"{counted(found.size, 'time')}: {_extent(found)}")
    if isinstance(rule := job.prior.fit_times, TimeRule):
        found = _times_of(rule, look, key="[prior] fit_times")
        job = with_fit_times(job, found)
        report(f"{counted(found.size, 'time')} of the fit: {_extent(found)}")
    return job


def _times_of(rule: TimeRule, look: Callable[[TimeRule], Times], *, key: str) -> Times:
    """Work out a rule, from the times of the source if it needs them."""
    available = look(rule) if rule.needs_source else np.empty(0, dtype="datetime64[ns]")
    try:
        return rule.times(available)
    except ValueError as error:
        raise DataError(f"{key}: {error}.") from error


def _available(
    job: Job,
    rule: TimeRule,
    *,
    report: Callable[[str], None],
    offline: bool,
    now: dt.datetime | None,
) -> Times:
    table = job.observations
    if table.source == "cds":
        if not (isinstance(rule, Newest) and (rule.every or rule.at)):
            raise ConfigurationError(
                'source "cds" has every hour since 1940; say which, with every or at: times = '
                '{ from = "2017-04-01", to = "2017-04-30", every = "6h" } or { last = "5d", at = "12:00" }.'
            )
        day = np.datetime64((now or dt.datetime.now(dt.UTC)).date(), "D") - CDS_DELAY_DAYS
        return np.array([day + np.timedelta64(23, "h")], dtype="datetime64[ns]")
    if not (offline and is_remote(table)):
        return available_times(job, report=report)
    stored = ingested_times(job)
    if stored is None:
        raise ConfigurationError(
            f"which times these are depends on {without_secrets(table.source)}, which was not read "
            "yet. Run `cagp ingest` with the same job first, or list them, or say every: times = "
            '{ from = "2017-01-01", to = "2017-01-31", every = "6h" }.'
        )
    return stored


def _extent(found: Times) -> str:
    first, last = (str(time.astype("datetime64[m]")) for time in (found[0], found[-1]))
    return first if found.size == 1 else f"{first} to {last}"
