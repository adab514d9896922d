"""How long work may take, and how long it may make no headway on a cluster, before it is given up."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cagp_dist.errors import TimeLimitError
from cagp_dist.remedies import Remedy

POLL_SECONDS = 0.5  # between two looks at what is waited for
FIRST_LINE_SECONDS = 10.0  # to wait before that is said; then twice as long, and so on

# Part of the time limit after which work is stopped that takes so many times as long, as it was measured
MEASURED_PART, FAR_BEYOND = 0.1, 2.0


@dataclass(frozen=True)
class Deadlines:
    """Patience with a cluster, in seconds; a connection that breaks is noticed at once."""

    silence_seconds: float = 60.0  # without an answer of the scheduler or a worker, until it counts as lost
    idle_seconds: float = 60.0  # in which tasks wait and no worker works on one: all are gone or paused
    stall_seconds: float = 3600.0  # in which no task ends although workers work: longer than any task
    rejoin_seconds: float = 120.0  # to wait for a scheduler and its first worker before a new attempt
    worker_seconds: float = 120.0  # to wait for the first worker of a cluster that needs no queue
    start_after_seconds: float = 300.0  # from which on worker jobs that have begun are enough to begin with
    queue_seconds: float = 14400.0  # to wait until the first worker job begins
    attempts: int = 3  # how often in all a stage of a job is begun, or gone on with, when its cluster is lost
    total_seconds: float | None = None  # for a whole job, from when this is made; None: no limit
    _started: float = field(default_factory=time.monotonic, init=False, repr=False, compare=False)

    def check(self, expected_seconds: float = 0.0) -> None:
        """Raise `TimeLimitError` if the time is over, or will be by far, as measured seconds say."""
        limit, spent = self.total_seconds, time.monotonic() - self._started
        if limit is None:
            return
        if spent > limit:
            text = f"the work was not done after the {limit:g} s that it is allowed."
        elif spent > MEASURED_PART * limit and expected_seconds > FAR_BEYOND * limit:
            text = (
                f"by what was done in {spent:.3g} s, the work takes about {expected_seconds:.3g} s; it is "
                f"allowed {limit:g} s."
            )
        else:
            return
        remedies = (Remedy.MORE_TIME, Remedy.NEIGHBOURS, Remedy.FEWER_TEST_POINTS)
        raise TimeLimitError(text, key="time-limit", remedies=remedies)

    def looks(self, most_seconds: float, say: Callable[[float], None]) -> Iterator[None]:
        """Yield now and then for so long, and say how long it has been after 10 s, 20 s, 40 s and so on."""
        began, line = time.monotonic(), FIRST_LINE_SECONDS
        while True:
            yield
            self.check()
            if (waited := time.monotonic() - began) > most_seconds:
                return
            if waited >= line:
                say(waited)
                line *= 2.0
            time.sleep(POLL_SECONDS)
