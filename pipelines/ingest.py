"""Fetch the observations of a job: the step of a chain that may have to wait for data.

    python -m pipelines.ingest JOB.toml

Exit codes as of `cagp`: 75 says that the data is not there yet and that a later try makes sense.
"""

import logging
import sys
from collections.abc import Sequence

from cagp_dist.errors import CagpError
from cagp_dist.service.events import logged
from cagp_dist.service.jobfile.config import load_job
from cagp_dist.service.run import ingest_only
from pipelines import asks_for_help


def main(arguments: Sequence[str]) -> int:
    """Ingest the observations of the job file that is named."""
    if asks_for_help(arguments, __doc__):
        return 0
    if len(arguments) != 1:
        logging.error("usage: python -m pipelines.ingest JOB.toml")
        return 2
    try:
        ingest_only(load_job(arguments[0]), observe=logged)
    except CagpError as error:
        logging.error("%s", error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    sys.exit(main(sys.argv[1:]))
