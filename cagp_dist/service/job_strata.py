"""The strata in which a job's test points are scored."""

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.calibration.verification.strata import Strata, roughness_of, strata_of
from cagp_dist.service.task import PreparedJob


def strata_of_test(task: PreparedJob) -> list[Strata]:
    """Divide the test points of a job by latitude, surface and roughness of what was observed near them."""
    points, test = task.points, task.design.test
    return strata_of(
        points.latitude_degrees[test],
        points.longitude_degrees[test],
        roughness=roughness_of_test(task),
        units=points.variable.units,
    )


def roughness_of_test(task: PreparedJob) -> Array:
    """Roughness at the test points (T, q); of a cross-validation from the other folds alone."""
    values, design = task.points.values, task.design
    if design.folds is None:
        return roughness_of(values[:, design.train], task.inputs, task.inputs_at(design.test))
    rough = np.empty((len(values), design.test.size))
    for fold in np.unique(design.folds):
        mine = design.folds == fold
        others = design.test[~mine]
        rough[:, mine] = roughness_of(
            values[:, others], task.inputs_at(others), task.inputs_at(design.test[mine])
        )
    return rough
