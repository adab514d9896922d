"""Fit the prior of a job and print it as a table for the job file: the step of a chain before `regress`.

    python -m pipelines.fit JOB.toml

Exit codes as of `cagp`: 3 says that the fit did not end well.
"""

import logging
import sys
from collections.abc import Sequence

from cagp_dist.errors import CagpError
from cagp_dist.service.events import logged
from cagp_dist.service.job_fit import prior_table
from cagp_dist.service.jobfile.config import load_job
from cagp_dist.service.run import fit_job
from pipelines import asks_for_help

NOT_CONVERGED = 3


def main(arguments: Sequence[str]) -> int:
    """Fit the prior of the job file that is named and print it."""
    if asks_for_help(arguments, __doc__):
        return 0
    if len(arguments) != 1:
        logging.error("usage: python -m pipelines.fit JOB.toml")
        return 2
    try:
        job = load_job(arguments[0])
        fitted = fit_job(job, observe=logged)
    except CagpError as error:
        logging.error("%s", error)
        return error.exit_code
    print(prior_table(job.prior, fitted))
    if fitted.warning:
        logging.warning("%s", fitted.warning)
        return NOT_CONVERGED
    return 0


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    sys.exit(main(sys.argv[1:]))
