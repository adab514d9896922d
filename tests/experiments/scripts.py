"""The scripts behind docs/experiments.md, which are tested at sizes that take a second."""

import importlib
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FIGURE_BYTES = 150_000


def script(name: str):
    """A module of ``pipelines.experiments``, which is no installed package."""
    if str(REPOSITORY) not in sys.path:
        sys.path.insert(0, str(REPOSITORY))
    return importlib.import_module(f"pipelines.experiments.{name}")


def printed_rows(text: str) -> list[list[str]]:
    """The cells of the tables in what a script printed, heads included, row by row."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
