"""Climb an objective, and keep where it was after some steps."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from cagp_dist.arrays import Array
from cagp_dist.likelihood.learned.course import OptimiserStep, Stopping
from cagp_dist.likelihood.learned.objective import Objective
from cagp_dist.likelihood.learned.optimise import Optimiser, maximise

MARKS = (0, 1, 2, 5, 10, 20, 40, 60, 80, 100, 200, 400, 600, 800, 1000)
"""Steps whose vectors are kept, beside the last."""

NEVER = Stopping(rise=0.0)
"""Stops where no step rises, and not before."""


class Way(NamedTuple):
    """Vectors of a search after some steps, the last one among them, and the steps and seconds of all."""

    vectors: dict[int, Array]
    steps: int
    seconds: float

    @property
    def end(self) -> Array:
        """Where it ended."""
        return self.vectors[self.steps]


class Remembering:
    """An objective that remembers where it was since the last step; see `Objective`."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self.seen: dict[float, Array] = {}

    @property
    def size(self) -> int:
        """Length of the vector."""
        return self._objective.size

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hyperparameters."""
        return self._objective.names

    def __call__(self, vector: Array) -> tuple[float, Array]:
        """Evaluate, and remember."""
        value, gradient = self._objective(vector)
        self.seen[value] = vector.copy()
        return value, gradient


def climb(
    objective: Objective,
    start: Array,
    optimiser: Optimiser,
    *,
    bounds: Sequence[tuple[float, float]] | None = None,
) -> Way:
    """Take the steps of an optimiser from the start, all of them unless it converges before.

    The vectors after `MARKS` are kept, and the last one; ``bounds`` as for `maximise`.
    """
    remembering, begun = Remembering(objective), time.perf_counter()
    vectors: dict[int, Array] = {}

    def reached(step: OptimiserStep) -> None:
        if vectors and (before := max(vectors)) not in MARKS:
            del vectors[before]
        vectors[step.step] = remembering.seen[step.value]
        remembering.seen.clear()

    maximise(
        remembering,
        start,
        optimiser=optimiser,
        bounds=bounds,
        stopping=NEVER,
        callback=reached,
    )
    return Way(vectors, max(vectors), time.perf_counter() - begun)
