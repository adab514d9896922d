"""Do a job on its observations and on fields drawn from its prior: the step of a chain that checks it.

    python -m pipelines.calibrate JOB.toml [SIMULATIONS]

Exit codes as of `cagp`: 3 says that the solve, or the fit of the prior, did not end well, so that nothing
was published. 4 says that the error bars are wrong on fields of the prior; that run is published.
"""

import logging
import sys
from collections.abc import Sequence

from cagp_dist.errors import CagpError
from cagp_dist.service.events import logged
from cagp_dist.service.jobfile.config import load_job
from cagp_dist.service.run import run
from cagp_dist.service.task import Simulations
from pipelines import asks_for_help

NOT_CONVERGED, WRONG = 3, 4
FINE = ("consistent", "undecided")


def main(arguments: Sequence[str]) -> int:
    """Do the job of the file that is named, with simulations, and print the path of its run."""
    if asks_for_help(arguments, __doc__):
        return 0
    if len(arguments) not in (1, 2) or not all(count.isdigit() for count in arguments[1:]):
        logging.error("usage: python -m pipelines.calibrate JOB.toml [SIMULATIONS]")
        return 2
    try:
        asked = Simulations(*map(int, arguments[1:]))
        outcome = run(load_job(arguments[0]), simulations=asked, observe=logged)
    except CagpError as error:
        logging.error("%s", error)
        return error.exit_code
    if outcome.simulation is None:
        logging.error("%s: %s", outcome.status.value, outcome.status.advice)
        return NOT_CONVERGED
    print(outcome.path)
    if outcome.simulation.attrs["simulation_status"] in FINE:
        return 0
    logging.warning("%s", outcome.simulation.attrs["simulation_statement"])
    return WRONG


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    sys.exit(main(sys.argv[1:]))
