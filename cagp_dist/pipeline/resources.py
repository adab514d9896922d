"""Where work is done, with how much memory, and how a map is solved."""

from dataclasses import dataclass

from cagp_dist.runtime import Executor
from cagp_dist.solvers import Solver


@dataclass(frozen=True)
class Resources:
    """An executor, and the bytes that may be allocated on it, if not all that it has."""

    executor: Executor
    memory_limit_bytes: int | None = None

    @property
    def memory_bytes(self) -> int:
        """What may be allocated."""
        limit = self.memory_limit_bytes
        return self.executor.memory_bytes if limit is None else limit


@dataclass(frozen=True)
class SolveSettings(Resources):
    """How a map is solved, and from which observations where each has its own time."""

    solver: "str | Solver" = "auto"
    lead_hours: float | None = None  # how long before a target they end; None: later ones inform it, too
    window_hours: float | None = None  # how far in time from a target they may lie
