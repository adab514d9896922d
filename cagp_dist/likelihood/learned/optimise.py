"""Maximise an objective, such as a lower bound of the likelihood, by all numbers that it learns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.checks import check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.likelihood.bounds import Limits
from cagp_dist.likelihood.learned.course import (
    Course,
    OptimiserStep,
    Optimum,
    OptimumStatus,
    Stopping,
)
from cagp_dist.likelihood.learned.objective import Objective
from cagp_dist.runtime.memo import Checkpoint, Memo, MemoReader, MemoWriter, key_of

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]  # As SciPy has it


class Optimiser(Protocol):
    """A way of taking steps: settings whose ``repr`` says all of them."""

    def climb(self, course: Course, checkpoint: Checkpoint | None) -> None:
        """Evaluate and take steps while the course goes on, and keep what is needed to go on later."""


@dataclass(frozen=True, kw_only=True)
class LBFGS:
    """L-BFGS-B: few steps, each with one evaluation or a few, for objectives without chance in them."""

    steps: int = 100  # At most so many
    memory: int = 10  # Steps whose change of the gradient says how the objective is curved

    def __post_init__(self) -> None:
        check_count("steps", self.steps, least=0)
        check_count("memory", self.memory, least=1)

    def climb(self, course: Course, checkpoint: Checkpoint | None) -> None:
        """Take steps until the course says that it is enough, no step rises, or they are used up."""
        from scipy.optimize import minimize

        evaluations = _Evaluations(course, checkpoint)

        def descent(x: Vector) -> tuple[float, Array]:
            value, gradient = evaluations.at(x)
            return -value, -gradient

        def taken(xk: Vector) -> None:
            if not course.take(xk, *evaluations.at(xk), new=evaluations.new):
                raise StopIteration

        start = course.start.ravel()
        if not course.take(start, *evaluations.at(start), new=evaluations.new) or self.steps == 0:
            return
        found = minimize(
            descent,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(course.low, course.high, strict=True)),
            callback=taken,
            options={
                "maxiter": self.steps,
                "maxfun": 10**9,
                "maxcor": self.memory,
                "ftol": 0.0,  # when to stop is said elsewhere
                "gtol": 0.0,
            },
        )
        if course.reason is None and found.nit < self.steps:
            course.reason = OptimumStatus.STOPPED_EARLY  # no step along the line rises


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
    checkpoints: Memo | None = None,
    fingerprint: str = "",
) -> Optimum:
    """Climb from one start to the highest place that can be reached. Shapes: ``start`` (size,)."""
    course = Course(objective, start, bounds=bounds, stopping=stopping, callback=callback)
    checkpoint = None
    if checkpoints is not None:
        if not fingerprint:
            raise ArgumentError(
                "checkpoints given without a fingerprint of the objective: what another one has left there "
                "could be taken for its own. Give fingerprint=objective.fingerprint, or a digest of data, "
                "model and settings.",
                key="no-fingerprint",
            )
        settings = (fingerprint, optimiser, stopping, course.names)
        checkpoint = checkpoints.of(key_of("climb", settings, course.start, course.low, course.high))
    optimiser.climb(course, checkpoint)
    return course.optimum()


class _Evaluations:
    """Evaluations in their order; those that a checkpoint has are not worked out again."""

    def __init__(self, course: Course, checkpoint: Checkpoint | None) -> None:
        self._course, self._checkpoint = course, checkpoint
        self._kept: MemoReader | None = None if checkpoint is None else checkpoint.latest()
        self._said: list[dict[str, Any]] = (
            [] if self._kept is None else list(self._kept.metadata["evaluations"])
        )
        self._gradients: list[Array] = []
        self._last: tuple[Array, float, Array] | None = None
        self._taken = 0
        self.new = True

    def at(self, vector: Array) -> tuple[float, Array]:
        """Give value and gradient: the last once more, one that was kept, or a new one."""
        if self._last is None or not np.array_equal(self._last[0], vector):
            own = np.array(vector)
            self._last = (own, *(self._course.evaluate(own) if self._checkpoint is None else self._next(own)))
        return self._last[1:]

    def _next(self, vector: Array) -> tuple[float, Array]:
        assert self._checkpoint is not None
        index, self._taken = self._taken, self._taken + 1
        where = key_of(vector)
        self.new = self._kept is None or index >= len(self._said) or self._said[index]["where"] != where
        if self._kept is not None and not self.new:
            said, gradient = self._said[index], self._kept.read("gradients", index, index + 1)[0]
            self._gradients.append(gradient)
            self._course.evaluations += 1
            self._course.goes_on_from(said["seconds"])
            return said["value"], gradient
        self._kept = None
        del self._said[index:]
        value, gradient = self._course.evaluate(vector)
        self._gradients.append(gradient)
        self._said.append({"where": where, "value": value, "seconds": self._course.seconds})
        if self._checkpoint.due():
            self._checkpoint.save({"evaluations": self._said}, self._write)
        return value, gradient

    def _write(self, writer: MemoWriter) -> bool:
        return writer.write("gradients", np.stack(self._gradients))
