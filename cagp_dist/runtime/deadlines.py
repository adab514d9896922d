"""How long work on a cluster may make no headway before it is given up."""

import time
from dataclasses import dataclass, field

from cagp_dist.errors import TimeLimitError


@dataclass(frozen=True)
class Deadlines:
    """Patience with a cluster, in seconds; a connection that breaks is noticed at once."""

    # Without an answer of the scheduler, or a sign of life of a worker, until it counts as lost. The tasks of
    # a worker then go to the others.
    silence_seconds: float = 60.0
    # In which tasks wait, none ends and no worker works on one: all are gone, or paused because their memory
    # is full
    idle_seconds: float = 60.0
    # In which no task ends although workers work. Must be longer than any task takes.
    stall_seconds: float = 3600.0
    rejoin_seconds: float = 120.0  # To wait for a scheduler and its first worker before a new attempt
    # To wait until worker jobs of a batch system begin. Those that have by then must do.
    queue_seconds: float = 14400.0
    attempts: int = 3  # How often in all a stage of a job is begun, or gone on with, when its cluster is lost
    # For a whole job, from when this is made; None: no limit. Looked at while a cluster is waited for, and
    # between iterations.
    total_seconds: float | None = None
    _started: float = field(default_factory=time.monotonic, init=False, repr=False, compare=False)

    def check(self) -> None:
        """Raise `TimeLimitError` if the time for the whole job is over."""
        if self.total_seconds is not None and time.monotonic() - self._started > self.total_seconds:
            raise TimeLimitError(
                f"the job was not done after {self.total_seconds:g} s, which is all that [runtime] "
                "total_seconds or --time-limit allows. Start the same job again, with more time or workers."
            )
