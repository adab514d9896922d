"""What the search for the maximum of an objective returns: value, status, and the way it took."""

from dataclasses import dataclass
from enum import Enum

from cagp_dist.arrays import Array
from cagp_dist.remedies import Remedy, advice


class OptimumStatus(Enum):
    """How a search ended, and what to do about it."""

    CONVERGED = "converged"
    AT_BOUND = "at-bound"
    STOPPED_EARLY = "stopped-early"
    STEPS_USED_UP = "steps-used-up"

    @property
    def ok(self) -> bool:
        """Whether the objective is level there, inside the bounds."""
        return self is OptimumStatus.CONVERGED

    @property
    def meaning(self) -> str:
        """What this means."""
        return _MEANING[self]

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """What to do."""
        return _REMEDIES[self]

    @property
    def advice(self) -> str:
        """What this means and what to do."""
        return f"{self.meaning} {advice(self.remedies)}".rstrip()


_MEANING = {
    OptimumStatus.CONVERGED: "The objective is level at the highest place that was seen, inside the bounds.",
    OptimumStatus.AT_BOUND: (
        "The search ended with a hyperparameter on its bound: the objective may rise beyond it, or the data "
        "do not determine it."
    ),
    OptimumStatus.STOPPED_EARLY: (
        "The objective rose by less than was asked for over the last steps, or by no step at all, though it "
        "is not level."
    ),
    OptimumStatus.STEPS_USED_UP: "All steps were taken before the objective was level.",
}

_REMEDIES: dict[OptimumStatus, tuple[Remedy, ...]] = {
    OptimumStatus.CONVERGED: (),
    OptimumStatus.AT_BOUND: (Remedy.WIDER_BOUNDS, Remedy.OTHER_MODEL, Remedy.EQUAL_BOUNDS),
    OptimumStatus.STOPPED_EARLY: (Remedy.LONGER_WINDOW, Remedy.START_HERE),
    OptimumStatus.STEPS_USED_UP: (Remedy.MORE_STEPS, Remedy.START_HERE),
}


@dataclass(frozen=True)
class OptimiserStep:
    """Where a search was after one step."""

    step: int  # 0 is the start
    value: float  # Of the objective, nats
    # Euclidean norm of its gradient by the whole vector, without what points out of the bounds
    gradient_norm: float
    hyperparameters: dict[str, float]  # In their own units, by name
    seconds: float  # Since the start; of a search that went on, without what lay between


@dataclass(frozen=True, eq=False)
class Optimum:
    """The highest place that a search has seen."""

    vector: Array  # (size,): logarithms of the hyperparameters, then what else the objective learns
    value: float  # Of the objective there, nats
    hyperparameters: dict[str, float]  # In their own units, by name
    status: OptimumStatus  # How the search ended, with ``ok`` and ``advice``
    at_bound: tuple[str, ...]  # Hyperparameters on a bound that does not fix them
    gradient_norm: float  # As in `OptimiserStep`, there
    trace: tuple[OptimiserStep, ...]  # The way, from the start on
    evaluations: int  # Values with gradient, those of line searches and of a search that was cut off included
    seconds: float  # Wall time
