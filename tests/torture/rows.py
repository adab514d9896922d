"""What a scenario finds: one row of the table of `make torture`."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

_log = logging.getLogger(__name__)


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
    worst_ratio : float or None
        Longest wall time over that of an undisturbed run, where a scenario compares them.
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
    worst_ratio: float | None = None
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def begin(self, of: int) -> None:
        """Count a run, or something that was hit, and say so."""
        self.runs += 1
        _log.info("%s: %d of %d, %d failures", self.name, self.runs, of, len(self.failures))

    def count(self, *, same: bool) -> None:
        """Count a run that finished."""
        self.finished += 1
        self.identical += same
        if not same:
            self.failures.append(f"run {self.runs}: another result")

    def took(self, seconds: float, undisturbed: float) -> None:
        """Keep the worst ratio."""
        self.worst_ratio = max(self.worst_ratio or 0.0, seconds / undisturbed)

    def expect(self, holds: object, text: str) -> None:
        """Note a failure unless something holds."""
        if not holds:
            self.failures.append(f"run {self.runs}: {text}")
            _log.error("%s: %s", self.name, self.failures[-1])

    @property
    def held(self) -> bool:
        """Whether everything went as promised."""
        return self.runs > 0 and not self.failures and self.finished == self.identical


Scenario = Callable[[int, np.random.Generator, Path], Row]
"""Takes how often to do something, who draws moments and victims, and an empty folder."""

HEAD = ("what was done", "runs", "finished", "same bits", "named errors", "worst wall", "and")


def table(rows: Sequence[Row]) -> str:
    """Write rows as a table in Markdown."""
    lines = [HEAD, ("---", *["---:"] * (len(HEAD) - 2), "---")]
    for row in rows:
        ratio = "" if row.worst_ratio is None else f"{row.worst_ratio:.1f}x"
        counts = (row.runs, row.finished, row.identical, row.named_errors)
        notes = [*row.notes, *(f"**failed**: {text}" for text in row.failures)]
        lines.append((row.name, *map(str, counts), ratio, "; ".join(notes)))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
