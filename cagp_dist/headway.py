"""How far a work is, and how long the rest of it takes by what was measured of it."""

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic


@dataclass
class Headway:
    """The part of a work that is done, 0 to 1, which does not step back."""

    fraction: float = 0.0
    _first: tuple[float, float] | None = None  # the first report: what came before is preparation
    _last: float = 0.0  # when the last one came

    def report(self, fraction: float) -> None:
        """Take down which part is done now."""
        if fraction > self.fraction:
            self.fraction, self._last = fraction, monotonic()
            self._first = self._first or (self._last, fraction)

    def seconds_left(self) -> float | None:
        """Seconds to the end at the measured rate; None before two reports, or where it was outrun."""
        if self._first is None or self.fraction == self._first[1]:
            return None
        began, before = self._first
        left = (self._last - began) * (1.0 - self.fraction) / (self.fraction - before)
        left -= monotonic() - self._last
        return left if left > 0.0 else None


@dataclass(frozen=True)
class Listener:
    """Who is told now and then how far a work is, and is asked more often whether it may go on."""

    say: Callable[[str], None]
    check: Callable[[], None] = lambda: None  # raises where the work has to stop

    def __call__(self, text: str) -> None:
        """Say how far the work is."""
        self.say(text)
