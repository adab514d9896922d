"""Months of daily jobs, each of which is killed now and then."""

import json
from pathlib import Path

import numpy as np

from ..service.month_of_kills import DAYS, differences, write_jobs
from .processes import lines
from .rows import Row

SECONDS = 1800.0
"""No month may take longer."""


def killed_months(count: int, rng: np.random.Generator, folder: Path, *, days: int = DAYS) -> Row:
    """Kill each job of a month none to three times; each day is in the series once, with the same bits."""
    row, kills, hits = Row(f"{days} daily jobs, each killed up to three times"), 0, 0
    for _ in range(count):
        row.begin(count)
        month = folder.resolve() / f"month-{row.runs}"
        write_jobs(month)
        said = list(
            lines(row, "-m", "tests.service.month_of_kills", month, rng.integers(1000), days, seconds=SECONDS)
        )
        counted = next((json.loads(line) for line in reversed(said) if line.startswith("{")), None)
        if counted is None:
            row.expect(False, f"the month came to no end: {said[-1:]}")
            continue
        kills, hits = kills + counted["kills"], hits + counted["hits"]
        found = differences(month, days)
        row.count(same=not found)
        for difference in found:
            row.expect(False, difference)
    row.must_have("kills hit a job", hits, at_least=count * days // 3)
    row.notes.append(f"{kills} kills in all; the same jobs once more have nothing to do")
    return row
