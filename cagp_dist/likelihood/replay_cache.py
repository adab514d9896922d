"""Evaluations of a fit that are kept, so that a fit that was cut off finds its way again without them.

A search takes the same way every time: what it asks for first is what it asked for before. Evaluations come
from a checkpoint in their order, as long as they are at the very same numbers; the rest is worked out.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from cagp_dist.likelihood.exact.likelihood_evaluation import Evaluation, Likelihood
from cagp_dist.likelihood.numbering import Model, Numbering
from cagp_dist.likelihood.observed import Gridded, ResidualsAtPoints
from cagp_dist.runtime.memo import Checkpoint, MemoMetadata, MemoWriter, key_of

ARRAYS = ("traces", "slopes", "squares", "excess")


class Evaluations:
    """The evaluations of a fit in their order, whichever level of the search they are of."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        kept = checkpoint.latest()
        self._all: list[dict[str, Any]] = [] if kept is None else list(kept.metadata["evaluations"])
        self._taken = 0
        self._levels = 0

    def of(self, likelihood: Likelihood) -> "ReplayCache":
        """Give a likelihood whose evaluations are kept."""
        self._levels += 1
        return ReplayCache(likelihood, self, self._levels)

    def next(self, likelihood: Likelihood, numbers: Sequence[float], *, level: int) -> Evaluation:
        """Recall the next evaluation if it is of these numbers, or work it out."""
        where = {"level": level, "numbers": list(numbers)}
        known = self._all[self._taken] if self._taken < len(self._all) else None
        if known is not None and known["where"] == where:
            found = _evaluation(known["found"])
        else:
            del self._all[self._taken :]
            found = likelihood.evaluate(*numbers)
            self._all.append({"where": where, "found": _about(found)})
        self._taken += 1
        if self._taken == len(self._all) and known is None and self._checkpoint.due():
            self._checkpoint.save({"evaluations": self._all}, _nothing_else)
        return found


class ReplayCache:
    """A likelihood whose evaluations are kept; otherwise the same."""

    def __init__(self, likelihood: Likelihood, evaluations: Evaluations, level: int) -> None:
        self._likelihood, self._evaluations, self._level = likelihood, evaluations, level
        self.points, self.fields = likelihood.points, likelihood.fields

    def evaluate(self, *numbers: float) -> Evaluation:
        """Evaluate at these numbers, or recall what was found there."""
        return self._evaluations.next(self._likelihood, [*map(float, numbers)], level=self._level)


def _about(found: Evaluation) -> MemoMetadata:
    """Everything in numbers and lists: JSON keeps every bit of a float64."""
    said = {field.name: getattr(found, field.name) for field in fields(found)}
    said["numbering"] = found.numbering.own
    for name in ARRAYS:
        said[name] = None if said[name] is None else np.asarray(said[name]).tolist()
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in said.items()}


def _evaluation(said: MemoMetadata) -> Evaluation:
    arrays = {name: None if said[name] is None else np.array(said[name], dtype=float) for name in ARRAYS}
    return Evaluation(**{**said, **arrays, "numbering": Numbering(tuple(map(tuple, said["numbering"])))})


def _nothing_else(writer: MemoWriter) -> bool:
    return True


def search_key(model: Model, data: ResidualsAtPoints | Gridded, settings: object) -> str:
    """Key of the evaluations of a search."""
    if isinstance(data, Gridded):
        where = [data.grid.latitude_degrees, data.grid.longitude_degrees, data.missing]
    else:
        where = [data.X, data.deviations]
        if (sums := data.functionals) is not None:
            where += [sums.places, sums.weights, sums.counts.astype(np.float64)]
    return key_of("search", model, settings, *where, data.residuals, data.basis)
