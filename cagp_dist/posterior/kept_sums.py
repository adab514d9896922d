"""What draws of the posterior add up to, kept after groups of them with the state of the generator."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget import Plan
from cagp_dist.runtime.memo import Checkpoint, MemoWriter, key_of
from cagp_dist.solvers.engine.solve_keys import solve_key
from cagp_dist.solvers.interface import Problem, Solver


class KeptSums:
    """Means (q, T), and sums of squares (q, patterns) of the errors of draws, pattern of gaps by pattern."""

    def __init__(
        self,
        checkpoint: Checkpoint | None,
        generator: np.random.Generator,
        *,
        targets: int,
        fields: int,
        patterns: int,
    ) -> None:
        self._checkpoint, self._generator = checkpoint, generator
        kept = None if checkpoint is None else checkpoint.latest()
        self._known: list[dict[str, Any]] = [] if kept is None else list(kept.metadata["patterns"])
        self._done: list[dict[str, Any]] = []
        self.mean = np.zeros((targets, fields)) if kept is None else kept.read("mean")
        self.squares = np.zeros((targets, patterns)) if kept is None else kept.read("squares")

    def begin(self, problem: Problem, solver: Solver, plans: Sequence[Plan], prior_mean: Array) -> int:
        """Begin the next pattern, and say how many of its groups are done, one for each of ``plans``."""
        if self._checkpoint is None:
            return 0
        digest = self._key(problem, solver, plans, prior_mean)
        position = len(self._done)
        known = self._known[position] if position < len(self._known) else None
        if known is not None and known["key"] == digest:
            self._generator.bit_generator.state = known["generator"]
            self._done.append(known)
            return int(known["groups"])
        self._known = []
        self.squares[:, position] = 0.0
        self._done.append({"key": digest, "groups": 0})
        return 0

    def keep(self) -> None:
        """Take note that a group is done, and keep it if it is time to."""
        if self._checkpoint is None:
            return
        last = self._done[-1]
        state = _plain(self._generator.bit_generator.state)
        self._done[-1] = {**last, "groups": last["groups"] + 1, "generator": state}
        if self._checkpoint.due():
            self._checkpoint.save({"patterns": self._done}, self._write)

    def _write(self, writer: MemoWriter) -> bool:
        return writer.write("mean", self.mean) and writer.write("squares", self.squares)

    def _key(self, problem: Problem, solver: Solver, plans: Sequence[Plan], prior_mean: Array) -> str:
        """Digest of all that the draws of a pattern depend on, what was drawn before them included."""
        solves = [solve_key(problem, solver, plan) for plan in plans]
        return key_of(_plain(self._generator.bit_generator.state), solves, prior_mean)


def _plain(state: Any) -> Any:
    """State of a generator in numbers, texts and lists, from which it can be set again."""
    if isinstance(state, dict):
        return {name: _plain(value) for name, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray | np.generic) else state
