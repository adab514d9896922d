"""Observations of a job that all others contradict."""

import numpy as np

from cagp_dist.errors import ConfigurationError
from cagp_dist.fields.checked import CheckedObservations
from cagp_dist.pipeline.checking import check_observations
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.map_points import MapPoints, Targets
from cagp_dist.pipeline.split import Split
from cagp_dist.pipeline.suggestions import suggestions
from cagp_dist.pipeline.task import Task
from cagp_dist.service.task import PreparedJob


def checked_observations(prepared: PreparedJob, rate: float, execution: Execution) -> CheckedObservations:
    """Check all values that a job reads, those that it holds out too, by its kernel and mean.

    Limits of detection are neither checked nor used.
    """
    task = prepared.task
    observed = task.observations.measured()
    if observed.beside:
        raise ConfigurationError(
            f"the observations have {', '.join(observed.beside)} beside space, beside which they are not "
            "checked yet; expected one variable and no bias_by. Check a copy of the job without.",
            key="check-settings",
        )
    every = Split(np.arange(observed.north.size))
    alone = Task(observed, every, Targets(MapPoints(observed.X[:0])), task.model, refits=False)
    checked = check_observations(alone, rate, execution)
    said = suggestions(alone, checked, execution)
    variable = observed.variable
    return CheckedObservations(observed, checked, said, variable.long_name or variable.name, observed.units)
