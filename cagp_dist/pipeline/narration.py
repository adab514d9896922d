"""What a map says while it is made: what is done, and how far it is - on a screen, or in a log."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Self, TypeAlias

from cagp_dist.budget import Plan
from cagp_dist.checks import check_positive
from cagp_dist.errors import ArgumentError
from cagp_dist.headway import Headway
from cagp_dist.pipeline.defaults import QUICK_SECONDS
from cagp_dist.runtime.deadlines import Deadlines
from cagp_dist.text import bytes_text, in_one_line, rough_duration

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

_log = logging.getLogger(__name__)

Report: TypeAlias = Callable[..., None]  # takes the part that is done, or None, and perhaps a text

SCREEN_SECONDS, LOG_SECONDS = 0.5, 10.0  # From one look at the progress to the next, on a screen and in a log

SOONER = (
    "It takes less time with fewer targets, with parameters of the prior that you know, with "
    "solver=cagp.Neighbours(32), whose error bars are wider, or on more cores."
)
SOONER_FIT = "It takes less time with parameters of the prior that you know, as prior=, or on more cores."


@dataclass
class _Stage:
    """What is worked on."""

    name: str
    text: str = ""  # what is done, for people
    step: str = ""  # how far it is, where that is no part of a known whole
    started: float = field(default_factory=monotonic)
    headway: Headway = field(default_factory=Headway)
    told: bool = False
    hastens: bool = True  # whether what makes a map faster is a help

    @property
    def seconds(self) -> float:
        """Since it began."""
        return monotonic() - self.started


class Narrator:
    """Says what is done and how far it is, once it takes long; stops work whose time is over."""

    def __init__(self, *, shown: bool, time_limit_seconds: float | None = None) -> None:
        if not isinstance(shown, bool):
            raise ArgumentError(f"progress is {shown!r}; expected True or False.", key="progress-type")
        if time_limit_seconds is not None:
            check_positive("time_limit_seconds", time_limit_seconds)
        self._shown, self._deadlines = shown, Deadlines(total_seconds=time_limit_seconds)
        self._begun, self._now = monotonic(), _Stage("")
        self._ended = threading.Event()
        self._advised: set[str] = set()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._watcher is not None:
            self._watcher.join()

    @contextmanager
    def stage(self, name: str, about: str | Plan = "", *, hastens: bool = True) -> Iterator[Report]:
        """Work on a stage; what is yielded takes the part that is done, or None, and what is done.

        What would take less time is said unless ``hastens`` is False, as it is no help there.
        """
        self._deadlines.check()
        text = about if isinstance(about, str) else _text(about)
        self._now = now = _Stage(name, text, hastens=hastens)
        if self._shown and self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="cagp-progress", daemon=True)
            self._watcher.start()

        def report(fraction: float | None, step: str = "") -> None:
            now.step = step
            now.headway.report(fraction or 0.0)
            left = now.headway.seconds_left()
            self._deadlines.check(0.0 if left is None else monotonic() - self._begun + left)

        yield report

    def check(self) -> None:
        """Raise `TimeLimitError` if the time is over."""
        self._deadlines.check()

    def tell(self, plan: Plan) -> None:
        """Take down how the stage is worked on."""
        self._now.text = _text(plan)

    def _watch(self) -> None:
        """Say what each long stage does, and show how far it is, until all have ended."""
        if self._ended.wait(QUICK_SECONDS):
            return
        bars, logged = self._open_bars(), monotonic()
        with bars or nullcontext():
            bar = None if bars is None else bars.add_task("", total=1.0)
            while True:
                now = self._now
                if not now.told and now.seconds >= QUICK_SECONDS:
                    now.told = True
                    self._tell(now)
                if bars is not None and bar is not None:
                    bars.update(bar, description=in_one_line(self._state()), completed=now.headway.fraction)
                elif monotonic() - logged >= LOG_SECONDS:
                    logged = monotonic()
                    self._say(self._state(), level=logging.INFO)
                if self._ended.wait(min(SCREEN_SECONDS, LOG_SECONDS)):
                    return

    def _tell(self, now: _Stage) -> None:
        """Say what a stage does; the first time of a fit, and of all else, also what would take less time."""
        text = now.text or now.step
        about = f"{now.name}: {text}" if text else now.name
        advice = SOONER_FIT if now.name == "fit" else SOONER
        new = now.hastens and advice not in self._advised
        self._say(f"{about}. {advice}" if new else about, level=logging.WARNING)
        if new:
            self._advised.add(advice)

    def _open_bars(self) -> "Bars | None":
        """Make a bar where somebody looks: in a terminal, or in a notebook that can show one."""
        if not on_screen():
            return None
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        return Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            console=Console(stderr=True),
            transient=True,
        )

    def _state(self) -> str:
        """Say which stage it is, how far it is, and how long the rest takes by what was measured."""
        now = self._now
        so_far = f"{rough_duration(monotonic() - self._begun)} so far"
        done = f"{now.headway.fraction:.0%}" * (now.headway.fraction > 0.0)
        left = now.headway.seconds_left()
        about = "" if left is None else f"about {rough_duration(left)} left"
        return f"{now.name}: {', '.join(filter(None, (now.step, done, so_far, about)))}"

    def _say(self, text: str, *, level: int) -> None:
        """Say it on the screen where somebody looks, else in the log."""
        text = in_one_line(text)
        if on_screen():
            from rich.console import Console

            Console(stderr=True).print(text, soft_wrap=True, highlight=False, markup=False)
        else:
            _log.log(level, text)


def _text(plan: Plan) -> str:
    """Say what a plan does, in a line."""
    sweeps = "" if plan.direct else f", up to {plan.iterations:,} sweeps"
    solves = f", {plan.solves:,} solves" if plan.solves > 1 else ""
    return (
        f"{plan.method}, {plan.n:,} observed points, {plan.q:,} targets{sweeps}{solves}, memory about "
        f"{bytes_text(plan.peak_bytes)}"
    )


def on_screen() -> bool:
    """Whether somebody looks: a terminal, or a notebook that can show bars."""
    from rich.console import Console

    console = Console(stderr=True)
    return (console.is_jupyter and find_spec("ipywidgets") is not None) or console.is_terminal
