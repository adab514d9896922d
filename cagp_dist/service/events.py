"""Messages of a running job, for the command line, a log or a test."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

from cagp_dist.runtime.counting import Work, counted_work

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Event:
    """One message of a running job."""

    stage: str  # what is being done, for people: "Observations", "Solve"
    # each stage starts and is done once; notes say what was found or decided
    kind: Literal["start", "progress", "note", "done"]
    text: str = ""  # one line for people
    fraction: float | None = None  # part of the stage that is done, 0 to 1, where it is known
    work: Work | None = None  # what a stage that is done has taken
    seconds: float | None = None  # how long it took


Observer = Callable[[Event], None]


def silent(event: Event) -> None:
    """Observe and say nothing."""


def logged(event: Event) -> None:
    """Observe by writing stages and notes to the log."""
    if event.kind in ("note", "done"):
        _log.info("%s: %s", event.stage, event.text or event.kind)


class Clock:
    """Stages of a job: each one is announced, timed and announced as done."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.seconds: dict[str, float] = {}
        self.work: dict[str, Work] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator["JobStage"]:
        """Announce and time a stage and count its work; one that fails is never announced as done."""
        started = perf_counter()
        self._observer(Event(name, "start"))
        stage = JobStage(name, self._observer)
        with counted_work() as work:
            yield stage
        self.seconds[name], self.work[name] = perf_counter() - started, work
        self._observer(Event(name, "done", stage.summary, work=work, seconds=self.seconds[name]))


class JobStage:
    """The current stage; ``summary`` is what is said of it when it is done."""

    def __init__(self, name: str, observer: Observer) -> None:
        self._name = name
        self._observer = observer
        self.summary = ""

    def note(self, text: str) -> None:
        """Say something worth knowing."""
        self._observer(Event(self._name, "note", text))

    def progress(self, fraction: float | None, text: str = "") -> None:
        """Say how much is done."""
        self._observer(Event(self._name, "progress", text, fraction))
