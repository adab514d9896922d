"""Do a job and publish its run, without a report: the step of a chain that computes.

    python -m pipelines.regress JOB.toml

Exit codes as of `cagp`: 3 says that the solve, or the fit of the prior, did not end well, so that nothing
was published.
"""

import logging
import sys
from collections.abc import Sequence

from cagp_dist.errors import CagpError
from cagp_dist.service.events import logged
from cagp_dist.service.jobfile.config import load_job
from cagp_dist.service.run import run
from pipelines import asks_for_help

NOT_CONVERGED = 3


def main(arguments: Sequence[str]) -> int:
    """Do the job of the file that is named and print the path of its run."""
    if asks_for_help(arguments, __doc__):
        return 0
    if len(arguments) != 1:
        logging.error("usage: python -m pipelines.regress JOB.toml")
        return 2
    try:
        outcome = run(load_job(arguments[0]), observe=logged)
    except CagpError as error:
        logging.error("%s", error)
        return error.exit_code
    if not outcome.status.ok:
        logging.error("%s: %s", outcome.status.value, outcome.status.advice)
        return NOT_CONVERGED
    print(outcome.path)
    return 0


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    sys.exit(main(sys.argv[1:]))
