"""Arguments and options that several commands share, and how their help ends."""

from pathlib import Path
from typing import Annotated

import typer

Output = Annotated[
    Path,
    typer.Argument(
        metavar="OUT", help="Output folder: its current run; or OUT/KEY, one run in it.", show_default=False
    ),
]
PublishUnconverged = Annotated[
    bool, typer.Option("--publish-unconverged", help="Publish a run even if it did not converge.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def examples(*lines: str) -> str:
    """Write examples as the end of a help text."""
    return "\n\n".join(["Examples:", *(f"  [cyan]{line}[/cyan]" for line in lines)])
