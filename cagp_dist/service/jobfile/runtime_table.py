"""``[runtime]`` of a job file: patience with a cluster, attempts, and how often a solve is kept."""

from typing import Annotated

from pydantic import Field

from cagp_dist.runtime.deadlines import Deadlines
from cagp_dist.service.jobfile.fields import key
from cagp_dist.service.jobfile.table_base import JobTable

Seconds = Annotated[
    float, Field(description="a number of seconds above 0", examples=[60.0], gt=0.0, le=10_000_000.0)
]


CHECKPOINT_SECONDS = 60.0
"""Time between checkpoints: little is lost, and little is spent on them."""


class RuntimeTable(JobTable):
    """``[runtime]``: patience with a cluster, attempts, and how often a solve is kept. Changes no result."""

    attempts: int = key(Deadlines.attempts, "an integer from 1 to 100", 3, ge=1, le=100)
    silence_seconds: Seconds = Deadlines.silence_seconds
    idle_seconds: Seconds = Deadlines.idle_seconds
    stall_seconds: Seconds = Deadlines.stall_seconds
    rejoin_seconds: Seconds = Deadlines.rejoin_seconds
    queue_seconds: Seconds = Deadlines.queue_seconds
    total_seconds: Seconds | None = Deadlines.total_seconds
    checkpoint_seconds: float = key(
        CHECKPOINT_SECONDS, "a number of seconds of at least 0", 60.0, ge=0.0, le=10_000_000.0
    )

    def deadlines(self) -> Deadlines:
        """Make the deadlines; the time of the whole job begins."""
        return Deadlines(**self.model_dump(exclude={"checkpoint_seconds"}))
