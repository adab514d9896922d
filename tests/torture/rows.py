"""What a scenario finds: one row of the table of `make torture`."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

_log = logging.getLogger(__name__)

MOST_RATIO = 3.0
"""What a loss may cost on idle cores, over the time of an undisturbed run."""


@dataclass
class Row:
    """Counts of one scenario, which fills them in as it goes.

    Attributes
    ----------
    name : str
        What was done to the program.
    runs : int
        How often.
    finished : int
        How often a result was there in the end; of damage, how often it was found.
    identical : int
        How often that result had the bits of an undisturbed one.
    named_errors : int
        How often the program ended with an error that the scenario allows, by its name.
    ratios : list of float
        Wall times over those of undisturbed runs, where a scenario compares them. They depend on the machine,
        and on who else uses it: the table marks the longest above `MOST_RATIO`, and the row holds.
    happened : dict of str to (int, int)
        What must have happened for the row to say anything: how often it did, and how often at least.
    notes : list of str
        Other figures.
    failures : list of str
        What went otherwise than promised.
    """

    name: str
    runs: int = 0
    finished: int = 0
    identical: int = 0
    named_errors: int = 0
    ratios: list[float] = field(default_factory=list)
    happened: dict[str, tuple[int, int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def begin(self, of: int) -> None:
        """Count a run, or something that was hit, and say so; of thousands a hundred times."""
        self.runs += 1
        if self.runs * 100 // of > (self.runs - 1) * 100 // of:
            _log.info("%s: %d of %d, %d failures", self.name, self.runs, of, len(self.failures))

    def count(self, *, same: bool) -> None:
        """Count a run that finished."""
        self.finished += 1
        self.identical += same
        if not same:
            self.failures.append(f"run {self.runs}: another result")

    def speed(self, text: str, found: float, promised: float) -> None:
        """Note a time in seconds, which is marked if it is longer than is promised of idle cores."""
        said = f"{text} {found:.1f} s"
        self.notes.append(f"**{said}, above {promised:g} s**" if found > promised else said)

    def expect(self, holds: object, text: str) -> None:
        """Note a failure unless something holds."""
        if not holds:
            self.failures.append(f"run {self.runs}: {text}")
            _log.error("%s: %s", self.name, self.failures[-1])

    def must_have(self, what: str, times: int, *, at_least: int) -> None:
        """Say what this row is worth nothing without, how often it happened and how often it had to."""
        self.happened[what] = times, max(1, at_least)

    @property
    def missing(self) -> list[str]:
        """What did not happen often enough."""
        if not self.happened:
            return ["nothing is known to have happened"]
        return [
            f"{what}: {times}, expected at least {least}"
            for what, (times, least) in self.happened.items()
            if times < least
        ]

    @property
    def held(self) -> bool:
        """Whether everything went as promised, and that is because something happened."""
        return (
            self.runs > 0
            and not self.failures
            and not self.missing
            and self.finished == self.identical
            and self.finished + self.named_errors > 0
        )


Scenario = Callable[[int, np.random.Generator, Path], Row]
"""Takes how often to do something, who draws moments and victims, and an empty folder."""

HEAD = ("what was done", "runs", "finished", "same bits", "named errors", "worst wall", "and")


def table(rows: Sequence[Row]) -> str:
    """Write rows as a table in Markdown."""
    lines = [HEAD, ("---", *["---:"] * (len(HEAD) - 2), "---")]
    for row in rows:
        worst = max(row.ratios, default=0.0)
        ratio = f"{worst:.1f}x" if row.ratios else ""
        if worst > MOST_RATIO:
            ratio = f"**{ratio}, above {MOST_RATIO:g}x**"
        counts = (row.runs, row.finished, row.identical, row.named_errors)
        notes = [f"{times} {what}" for what, (times, _) in row.happened.items()] + row.notes
        notes += [f"**failed**: {text}" for text in (*row.missing, *row.failures)]
        lines.append((row.name, *map(str, counts), ratio, "; ".join(notes)))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
