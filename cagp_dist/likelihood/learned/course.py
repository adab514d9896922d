"""What every search for a maximum shares: evaluations that are checked, the trace, and when to stop."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.checks import check_count, check_positive
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.likelihood.bounds import TOUCHING, Limits
from cagp_dist.likelihood.learned.objective import Objective
from cagp_dist.remedies import AdvisedStatus, Remedy


class OptimumStatus(AdvisedStatus):
    """How a search ended, and what to do about it."""

    CONVERGED = ("converged", "The objective is level at the highest place that was seen, inside the bounds.")
    AT_BOUND = (
        "at-bound",
        "The search ended with a hyperparameter on its bound: the objective may rise beyond it, or the data "
        "do not determine it.",
        Remedy.WIDER_BOUNDS,
        Remedy.OTHER_MODEL,
        Remedy.EQUAL_BOUNDS,
    )
    STOPPED_EARLY = (
        "stopped-early",
        "The objective rose by less than was asked for over the last steps, or by no step at all, though it "
        "is not level.",
        Remedy.LONGER_WINDOW,
        Remedy.START_HERE,
    )
    STEPS_USED_UP = (
        "steps-used-up",
        "All steps were taken before the objective was level.",
        Remedy.MORE_STEPS,
        Remedy.START_HERE,
    )

    @property
    def ok(self) -> bool:
        """Whether the objective is level there, inside the bounds."""
        return self is OptimumStatus.CONVERGED


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


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """When a search has done enough, judged by the objective alone, never by scores at test points."""

    # The search has converged where the gradient is shorter: nats for each unit of the logarithms
    gradient_norm: float = 0.1
    window: int = 20  # Steps over which the objective has to rise
    # By how much at least, as part of its size (of one nat, where it is smaller); 0 lets it go on
    rise: float = 1e-6

    def __post_init__(self) -> None:
        check_positive("gradient_norm", self.gradient_norm)
        check_count("window", self.window, least=1)
        if self.rise != 0.0:
            check_positive("rise", self.rise, most=1.0)


class Course:
    """One search from ``start`` (size,): its bounded objective, where it has been, if it goes on."""

    def __init__(
        self,
        objective: Objective,
        start: Array,
        *,
        bounds: Sequence[Limits] | None,
        stopping: Stopping,
        callback: Callable[[OptimiserStep], None] | None,
    ) -> None:
        self.objective, self.names, self.stopping = objective, objective.names, stopping
        self.low, self.high = _box(objective, bounds)
        self.start = _within(objective, np.asarray(start, dtype=np.float64), self.low, self.high)
        self.trace: list[OptimiserStep] = []
        self.best, self.best_step = self.start, 0
        self.evaluations = 0
        self.reason: OptimumStatus | None = None
        self._callback = callback
        self._tops: list[float] = []
        self._before, self._started = 0.0, time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._before + time.perf_counter() - self._started

    def goes_on_from(self, seconds: float) -> None:
        """Let the clock continue from where a search that was cut off had it; it never goes back."""
        self._before, self._started = max(seconds, self.seconds), time.perf_counter()

    def evaluate(self, vector: Array) -> tuple[float, Array]:
        """Evaluate the objective; `NumericalError` says where it left floating point."""
        where = f"at step {len(self.trace)}, {self._said(vector)}"
        try:
            value, gradient = self.objective(vector)
        except NumericalError as error:
            raise NumericalError(f"{where}: {error.text}", key=error.key, remedies=error.remedies) from error
        except ArgumentError as error:
            if not self.trace:
                raise  # the start was chosen by the caller, the rest by the search
            raise NumericalError(f"{where}: {error.text} Give narrower bounds.", key=error.key) from error
        self.evaluations += 1
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            said = f"is {value}" if not np.isfinite(value) else "has a gradient that is not finite"
            raise NumericalError(
                f"the objective {said} {where}; expected finite numbers. Give narrower bounds, above all a "
                "larger least noise variance, or shorter steps.",
                key="likelihood-not-finite",
            )
        return float(value), gradient

    def take(self, vector: Array, value: float, gradient: Array, *, new: bool = True) -> bool:
        """Take down a step; whether the search is to go on."""
        outward = ((vector <= self.low) & (gradient < 0.0)) | ((vector >= self.high) & (gradient > 0.0))
        norm = float(np.linalg.norm(np.where(outward, 0.0, gradient)))
        step = OptimiserStep(len(self.trace), value, norm, self._hyperparameters(vector), self.seconds)
        self.add(step)
        if self.best_step == step.step:
            self.best = vector.copy()
        if self._callback is not None and new:
            self._callback(step)
        return self.reason is None

    def add(self, step: OptimiserStep) -> None:
        """Add a step to the trace, and judge whether the search is to stop."""
        self.trace.append(step)
        if not self._tops or step.value > self._tops[-1]:
            self.best_step = step.step
        self._tops.append(self.trace[self.best_step].value)
        self.reason = self._judged()

    def _judged(self) -> OptimumStatus | None:
        rule, last = self.stopping, self.trace[-1]
        if last.step == self.best_step and last.gradient_norm <= rule.gradient_norm:
            return OptimumStatus.CONVERGED
        top = self._tops[-1]
        if len(self._tops) > rule.window and rule.rise > 0.0:
            risen = top - self._tops[-1 - rule.window]
            if risen <= rule.rise * max(1.0, abs(top)):
                return OptimumStatus.STOPPED_EARLY
        return None

    def optimum(self) -> Optimum:
        """Give the highest place, and how the search ended."""
        on_limit = np.minimum(self.best - self.low, self.high - self.best) < TOUCHING
        free = self.high - self.low > TOUCHING
        at_bound = tuple(name for name, there in zip(self.names, on_limit & free, strict=False) if there)
        status = self.reason or OptimumStatus.STEPS_USED_UP
        if at_bound and status is not OptimumStatus.STEPS_USED_UP:
            status = OptimumStatus.AT_BOUND
        best = self.trace[self.best_step]
        return Optimum(
            self.best,
            best.value,
            best.hyperparameters,
            status,
            at_bound,
            best.gradient_norm,
            tuple(self.trace),
            self.evaluations,
            self.seconds,
        )

    def _hyperparameters(self, vector: Array) -> dict[str, float]:
        values = np.exp(vector[: len(self.names)]).tolist()
        return dict(zip(self.names, values, strict=True))

    def _said(self, vector: Array) -> str:
        with np.errstate(over="ignore"):
            return ", ".join(f"{name} {value:.3g}" for name, value in self._hyperparameters(vector).items())


def _box(objective: Objective, bounds: Sequence[Limits] | None) -> tuple[Array, Array]:
    """Least and largest value of every entry of the vector; only those of hyperparameters are limited."""
    low, high = np.full(objective.size, -np.inf), np.full(objective.size, np.inf)
    if bounds is None:
        return low, high
    if len(bounds) != len(objective.names):
        raise ArgumentError(
            f"bounds has {len(bounds)} pairs; expected one for each of {', '.join(objective.names)}.",
            key="bounds",
        )
    for index, (name, (least, most)) in enumerate(zip(objective.names, bounds, strict=True)):
        for number in (least, most):
            check_positive(f"a bound of {name}", number)
        if least > most:
            raise ArgumentError(
                f"the bounds of {name} are ({least:g}, {most:g}); expected the lower first.",
                key="bounds-reversed",
            )
        low[index], high[index] = np.log(least), np.log(most)
    return low, high


def _within(objective: Objective, start: Array, low: Array, high: Array) -> Array:
    """Give the start if it makes sense, rounding removed."""
    if start.shape != (objective.size,):
        raise ArgumentError(f"start has shape {start.shape}; expected ({objective.size},).", key="shapes")
    if not np.isfinite(start).all():
        index = int(np.flatnonzero(~np.isfinite(start))[0])
        raise ArgumentError(f"start[{index}] is {start[index]}; expected finite numbers.", key="not-finite")
    outside = (start < low - TOUCHING) | (start > high + TOUCHING)
    if outside.any():
        index = int(np.flatnonzero(outside)[0])
        given, least, most = np.exp([start[index], low[index], high[index]]).tolist()
        raise ArgumentError(
            f"the search would start with {objective.names[index]} {given:.6g}, outside of its bounds "
            f"({least:.6g}, {most:.6g}); start within them, or widen them.",
            key="start-outside-bounds",
        )
    return np.clip(start, low, high)
