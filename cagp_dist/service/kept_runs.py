"""The end of a pass: what ``keep`` of a job does not keep is removed."""

import logging
from collections.abc import Sequence

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.errors import CagpError
from cagp_dist.service.jobfile.job import Job
from cagp_dist.store.outputs import output_at

_log = logging.getLogger(__name__)


def keep_runs(job: Job, times: Times | Sequence[np.datetime64], *, dry: bool = False) -> list[str]:
    """Remove the runs that a job does not keep, and name them; what goes wrong is logged, and ends no pass.

    If the mean is the run before, what the times of the pass go on from stays.
    """
    if job.output.keep is None or not len(times):
        return []
    since = f"{min(times).astype('datetime64[s]')}Z" if job.prior.is_previous else None
    try:
        return output_at(job.output.root).prune(job.output.keep.rule(), since=since, dry=dry)
    except CagpError as error:
        _log.warning("old runs were not removed: %s", error)
        return []
