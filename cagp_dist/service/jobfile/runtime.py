"""``[runtime]`` of a job file: patience with a cluster, and how often it is tried again."""

from typing import Annotated

from pydantic import Field

from cagp_dist.runtime.deadlines import Deadlines
from cagp_dist.service.jobfile.base import Table

Seconds = Annotated[
    float, Field(description="a number of seconds above 0", examples=[60.0], gt=0.0, le=10_000_000.0)
]


class RuntimeTable(Table):
    """``[runtime]``: when a cluster is given up, and how often it is tried again. Changes no result."""

    attempts: Annotated[int, Field(description="an integer from 1 to 100", examples=[3], ge=1, le=100)] = (
        Deadlines.attempts
    )
    silence_seconds: Seconds = Deadlines.silence_seconds
    idle_seconds: Seconds = Deadlines.idle_seconds
    stall_seconds: Seconds = Deadlines.stall_seconds
    rejoin_seconds: Seconds = Deadlines.rejoin_seconds
    total_seconds: Seconds | None = Deadlines.total_seconds

    def deadlines(self) -> Deadlines:
        """Make the deadlines; the time of the whole job begins."""
        return Deadlines(**self.model_dump())
