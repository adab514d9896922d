"""What a map says while it is made: a plan before long work, and how far it is - on a screen, or in a log."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Self

from cagp_dist.checks import check_positive
from cagp_dist.errors import ArgumentError, BudgetError
from cagp_dist.mapping.defaults import QUICK_SECONDS
from cagp_dist.runtime.pace import Slowness, slowness
from cagp_dist.text import bytes_text, rough_duration

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

_log = logging.getLogger(__name__)

SCREEN_SECONDS, LOG_SECONDS = 0.5, 10.0  # From one look at the progress to the next, on a screen and in a log
NEARLY = 0.99  # Part of a stage that is shown at most before it has ended


WORTH = 0.25  # Part of the whole time that a way to have it faster must save to be said
MOST_WAYS = 2


class Way(NamedTuple):
    """What to change, as it is written, and the seconds that the stage then takes."""

    text: str
    seconds: float


@dataclass(frozen=True)
class Outlook:
    """What one stage of the work is going to take."""

    stage: str  # such as "fit" or "solve"
    text: str  # what is done, for people
    seconds: float  # rough, by the constants of plans
    peak_bytes: int = 0  # 0 where it is not known
    faster: tuple[Way, ...] = ()  # by the same plans


@dataclass
class _Now:
    """The stage that is worked on; ``shown`` is the part that was shown last, which does not step back."""

    stage: str
    started: float = field(default_factory=monotonic)
    fraction: float = 0.0
    shown: float = 0.0


class Narrator:
    """Says what is going to be done and how far it is; refuses what is planned to take too long."""

    def __init__(self, *, shown: bool, time_limit_seconds: float | None, workers: int) -> None:
        if not isinstance(shown, bool):
            raise ArgumentError(f"progress is {shown!r}; expected True or False.")
        if time_limit_seconds is not None:
            check_positive("time_limit_seconds", time_limit_seconds)
        self._shown, self._limit, self._workers = shown, time_limit_seconds, workers
        self._outlooks: dict[str, Outlook] = {}
        self._slowness, self._said = Slowness(1.0, 1.0), 0.0
        self._advised: set[str] = set()
        self._begun, self._now = monotonic(), _Now("")
        self._ended = threading.Event()
        self._watcher: threading.Thread | None = None
        self._bars: Bars | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._watcher is not None:
            self._watcher.join()

    def expect(self, outlook: Outlook) -> None:
        """Take down what a stage is going to take; what was known of it before no longer counts."""
        self._outlooks[outlook.stage] = outlook

    @property
    def planned_seconds(self) -> float:
        """What all stages are going to take on this machine, as it is just now."""
        return self._slowness.now * self._nominal_seconds

    def announce(self) -> None:
        """Say what the work is going to take, where that is more than a few seconds."""
        if self.planned_seconds > 0.2 * QUICK_SECONDS:
            self._slowness = slowness(self._workers)
        alone = self._slowness.alone * self._nominal_seconds  # another program may end
        if self._limit is not None and alone > self._limit:
            less = self._faster(self._slowness.alone) or ". Ask for fewer targets, or give fewer observations"
            raise BudgetError(
                f"this would take about {rough_duration(alone)}, more than the "
                f"{rough_duration(self._limit)} of time_limit_seconds: {self._stages(self._slowness.alone)}"
                f"{less}. To run it nevertheless, give time_limit_seconds=None."
            )
        planned = self.planned_seconds
        if planned > QUICK_SECONDS and not 0.5 < planned / max(self._said, 1e-9) < 2.0:
            self._said = planned
            self._say(
                f"this takes about {rough_duration(planned)}: {self._stages(self._slowness.now)}"
                f"{self._faster(self._slowness.now)}",
                level=logging.WARNING,
            )

    @property
    def _nominal_seconds(self) -> float:
        """What all stages take by the constants of plans."""
        return sum(outlook.seconds for outlook in self._outlooks.values())

    def _stages(self, slowness: float) -> str:
        """Say what the stages are, and what each takes."""
        said = [
            f"{outlook.stage} ({outlook.text}) {rough_duration(slowness * outlook.seconds)}"
            for outlook in self._outlooks.values()
        ]
        memory = max(outlook.peak_bytes for outlook in self._outlooks.values())
        return "; ".join([*said, *[f"memory about {bytes_text(memory)}"] * (memory > 0)])

    def _faster(self, slowness: float) -> str:
        """Say what saves most of the time, and what is left of it; each way once."""
        whole, ways = self._nominal_seconds, []
        for outlook in self._outlooks.values():
            for way in outlook.faster:
                saved = outlook.seconds - way.seconds
                if saved >= WORTH * whole and way.text not in self._advised:
                    ways.append((saved, way.text))
        chosen = sorted(ways, reverse=True)[:MOST_WAYS]
        self._advised |= {text for _, text in chosen}
        left = [f"{text}: about {rough_duration(slowness * (whole - saved))}" for saved, text in chosen]
        return f". Faster: {'; '.join(left)}" if left else ""

    @contextmanager
    def stage(self, work: str | Outlook) -> Iterator[Callable[[float], None]]:
        """Work on a stage, announced if it was not; what is yielded takes the part that is done, 0 to 1."""
        name = work if isinstance(work, str) else work.stage
        if isinstance(work, Outlook):
            self.expect(work)
            self.announce()
        self._now = now = _Now(name)
        if self._shown and self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="cagp-progress", daemon=True)
            self._watcher.start()

        def report(fraction: float) -> None:
            now.fraction = fraction

        yield report
        self._outlooks.pop(name, None)

    def _watch(self) -> None:
        """Show how far the work is, from time to time, until it has ended."""
        if self._ended.wait(QUICK_SECONDS):
            return
        bars = self._open_bars()
        if bars is None:
            while not self._ended.wait(LOG_SECONDS):
                self._say(self._state(), level=logging.INFO)
            return
        with bars:
            bar = bars.add_task("", total=1.0)
            while not self._ended.wait(SCREEN_SECONDS):
                bars.update(bar, description=self._state(), completed=self._fraction(self._now))

    def _open_bars(self) -> "Bars | None":
        """Make a bar where somebody looks: in a terminal, or in a notebook that can show one."""
        if not on_screen():
            return None
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        return Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            console=Console(stderr=True),
            transient=True,
        )

    def _state(self) -> str:
        """Say which stage it is, how long it has been worked, and how long it may take."""
        now = self._now
        fraction, elapsed = self._fraction(now), monotonic() - now.started
        left = elapsed * (1.0 - fraction) / fraction if fraction > 0.0 else 0.0
        later = [outlook.seconds for name, outlook in self._outlooks.items() if name != now.stage]
        left += self._slowness.now * sum(later)
        so_far = rough_duration(monotonic() - self._begun)
        return f"{now.stage}: {fraction:.0%}, {so_far} so far, about {rough_duration(left)} left"

    def _fraction(self, now: _Now) -> float:
        """Part of the stage that is done: as it says, else by its plan; never less than before."""
        outlook = self._outlooks.get(now.stage)
        planned = self._slowness.now * (QUICK_SECONDS if outlook is None else outlook.seconds)
        elapsed = monotonic() - now.started
        now.shown = max(now.shown, min(NEARLY, now.fraction or elapsed / max(elapsed, planned, 1e-9)))
        return now.shown

    def _say(self, text: str, *, level: int) -> None:
        """Say it on the screen where somebody looks, else in the log."""
        if not self._shown:
            return
        if on_screen():
            from rich.console import Console

            Console(stderr=True).print(text, soft_wrap=True, highlight=False, markup=False)
        else:
            _log.log(level, text)


def on_screen() -> bool:
    """Whether somebody looks: a terminal, or a notebook that can show bars."""
    from rich.console import Console

    console = Console(stderr=True)
    return (console.is_jupyter and find_spec("ipywidgets") is not None) or console.is_terminal
