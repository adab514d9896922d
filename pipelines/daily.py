"""Do what is new of a job, and put it into one time series: the step of every day, or every hour.

    python -m pipelines.daily JOB.toml

Each time of the job is a run of its own, as of ``cagp run``, and has its place in ``OUT/series.zarr``. What
is there already is not solved again. Exit codes as of `cagp`: 75 says that the data of a time are not there
yet, or that another process works in the same output folder, and that a later try makes sense; 3 that a solve
did not end well, so that its time is missing.
"""

import logging
import sys
from collections.abc import Sequence

from cagp_dist.errors import CagpError
from cagp_dist.service.daily import daily
from cagp_dist.service.events import logged
from cagp_dist.service.jobfile.config import load_job

NOT_CONVERGED = 3


def main(arguments: Sequence[str]) -> int:
    """Do the job of the file that is named; print a line for each time."""
    if len(arguments) != 1:
        logging.error("usage: python -m pipelines.daily JOB.toml")
        return 2
    code = 0
    try:
        for day in daily(load_job(arguments[0]), observe=logged):
            print(day.line(), flush=True)
            if day.status is not None and not day.status.ok:
                code = NOT_CONVERGED
    except CagpError as error:
        logging.error("%s", error)
        return error.exit_code
    return code


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    sys.exit(main(sys.argv[1:]))
