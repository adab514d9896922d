"""Maximise an objective, such as a lower bound of the likelihood, by hyperparameters and what else it learns.

How steps are taken is the matter of an optimiser, `LBFGS` or `Adam`; when it is enough that of the objective
itself (`Stopping`), never of scores at test points: these would then no longer be scores of unseen data.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.likelihood.adam import Adam
from cagp_dist.likelihood.bounds import Limits
from cagp_dist.likelihood.course import Course, Stopping
from cagp_dist.likelihood.lbfgs import LBFGS
from cagp_dist.likelihood.objective import Objective
from cagp_dist.likelihood.optimum import OptimiserStep, Optimum, OptimumStatus
from cagp_dist.solvers.checkpoints import Checkpoint, Checkpoints, add_arrays
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
    checkpoints: Checkpoints | None = None,
    fingerprint: str = "",
) -> Optimum:
    """Climb from one start to the highest place that can be reached.

    Parameters
    ----------
    objective : Objective
        A function of a vector that begins with the logarithms of the hyperparameters, with its gradient.
    start : array of float64, shape (size,)
        Where to begin.
    optimiser : Optimiser
        `LBFGS` or `Adam`, with their settings.
    bounds : sequence of (float, float), optional
        Least and largest value of each hyperparameter, in its own unit and in the order of
        ``objective.names``; equal ones hold it fixed. What else is learnt has no bounds.
    stopping : Stopping
        When the search has converged, or rises so little that it ends.
    callback : callable, optional
        Called with an `OptimiserStep` at the start and after every step. Of a search that goes on, with the
        new ones.
    checkpoints : Checkpoints, optional
        Where the search keeps what it has reached (`cagp_dist.store.checkpoints.Checkpoints`), so that the
        same call goes on where it was cut off, with the same bits.
    fingerprint : str
        Says, with checkpoints, what the objective is made of: a digest of data, model and settings, such as
        `cagp_dist.likelihood.sgpr.Sgpr.fingerprint`.

    Returns
    -------
    Optimum
        The highest place that was seen, the status with its remedy, and the trace.

    Raises
    ------
    ArgumentError
        If the start or the bounds make no sense, or checkpoints come without a fingerprint.
    NumericalError
        If the objective or its gradient is not finite somewhere; says where.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> from cagp_dist.likelihood.sgpr import Sgpr
    >>> from cagp_dist.runtime import SerialExecutor
    >>> rng = np.random.default_rng(0)
    >>> X, Z = rng.uniform(size=(200, 1)), np.linspace(0.0, 1.0, 12).reshape(-1, 1)
    >>> b = np.sin(8.0 * X) + 0.1 * rng.normal(size=(200, 1))
    >>> bound = Sgpr(
    ...     cagp.Matern52, X, b, inducing=Z, executor=SerialExecutor(), memory_limit_bytes=10**8
    ... )
    >>> found = maximise(bound, bound.vector(cagp.Matern52(0.5), 0.1))
    >>> found.status.ok, round(found.hyperparameters["noise_variance"], 3)
    (True, 0.011)
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
