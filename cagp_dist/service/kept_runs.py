"""The end of a pass: what ``keep`` of a job does not keep is removed."""

import logging
from collections.abc import Sequence

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.errors import CagpError
from cagp_dist.service.jobfile.job import Job
from cagp_dist.store.outputs import output_at
from cagp_dist.store.retention import Retention

_log = logging.getLogger(__name__)


def keep_runs(job: Job, times: Times | Sequence[np.datetime64], *, dry: bool = False) -> list[str]:
    """Remove the runs that a job does not keep, and say so; what goes wrong is logged, and ends no pass.

    If the mean is the previous run, the runs of the times of the pass stay, and what they continue from.
    """
    if job.output.keep is None or not len(times):
        return []
    since = f"{min(times).astype('datetime64[s]')}Z" if job.prior.is_previous else None
    try:
        return pruned(job.output.root, job.output.keep.rule(), since=since, dry=dry)
    except CagpError as error:
        _log.warning("old runs were not removed: %s", error)
        return []


def pruned(root: str, rule: Retention, *, since: str | None = None, dry: bool = False) -> list[str]:
    """Remove the runs that a rule does not keep, or only say which; a line for each."""
    done = "packed" if rule.pack else "removed"
    word = f"would be {done}" if dry else done
    return [f"{word}  {run}" for run in output_at(root).prune(rule, since=since, dry=dry)]
