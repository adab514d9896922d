"""Maximise an objective, such as a lower bound of the likelihood, by hyperparameters and what else it learns.

How steps are taken is the matter of an optimiser, `LBFGS` or `Adam`; when it is enough that of the objective
itself (`Stopping`), never of scores at test points: these would then no longer be scores of unseen data.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.likelihood.bounds import Limits
from cagp_dist.likelihood.course import Course, Stopping
from cagp_dist.likelihood.lbfgs import LBFGS
from cagp_dist.likelihood.learned.adam import Adam
from cagp_dist.likelihood.learned.objective import Objective
from cagp_dist.likelihood.optimum import OptimiserStep, Optimum, OptimumStatus
from cagp_dist.solvers.engine.solve_checkpoints import Checkpoint, SolveCheckpoints, add_arrays
from cagp_dist.versions import version

__all__ = ["LBFGS", "Adam", "Optimiser", "OptimiserStep", "Optimum", "OptimumStatus", "Stopping", "maximise"]

FORMAT = 1
"""Of what is kept; checkpoints of another format are not found."""


class Optimiser(Protocol):
    """A way of taking steps: settings whose ``repr`` says all of them."""

    def climb(self, course: Course, checkpoint: Checkpoint | None) -> None:
        """Evaluate and take steps while the course goes on, and keep what is needed to go on later."""
        ...


DEFAULT = LBFGS()
ENOUGH = Stopping()


def maximise(
    objective: Objective,
    start: Array,
    *,
    optimiser: Optimiser = DEFAULT,
    bounds: Sequence[Limits] | None = None,
    stopping: Stopping = ENOUGH,
    callback: Callable[[OptimiserStep], None] | None = None,
    checkpoints: SolveCheckpoints | None = None,
    fingerprint: str = "",
) -> Optimum:
    """Climb from one start to the highest place that can be reached.

    Shapes: ``start`` (size,).
    """
    course = Course(objective, start, bounds=bounds, stopping=stopping, callback=callback)
    checkpoint = None
    if checkpoints is not None:
        if not fingerprint:
            raise ArgumentError(
                "checkpoints came without a fingerprint of the objective: what another one has left there "
                "could be taken for its own. Give fingerprint=objective.fingerprint, or a digest of data, "
                "model and settings."
            )
        digest = _digest(course, (fingerprint, optimiser, stopping))
        checkpoint = checkpoints.within(digest[:16]).of(digest)
    optimiser.climb(course, checkpoint)
    return course.optimum()


def _digest(course: Course, settings: object) -> str:
    """Digest of all that the way of a search depends on."""
    found = hashlib.sha256(repr((FORMAT, version("cagp-dist"), settings, course.names)).encode())
    add_arrays(found, [course.start, course.low, course.high])
    return found.hexdigest()
