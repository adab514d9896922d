"""Arguments and options that several commands share, and how their help ends."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

# Takes precedence over the job file, which has the default
_setting = partial(typer.Option, show_default=False)

JobFile = Annotated[Path, typer.Argument(metavar="JOB.toml", help="Job file.", show_default=False)]
Times = Annotated[
    str | None,
    _setting(
        "--times",
        metavar="TIMES",
        help="Times; overrides the job: 2017-04-27T12:00,2017-04-28T12:00, 2017-04 (a month), "
        "'from 2017-01-01 to 2017-01-31 every 6h', 2017-01-01..2017-01-31, 'last 5d at 12:00', "
        "latest, or all.",
    ),
]
Scheduler = Annotated[
    str | None,
    _setting(
        metavar="NAME",
        help="Where to compute, as in \\[cluster] scheduler of a job (`cagp run --help` lists the names); "
        "overrides the job file and DASK_SCHEDULER_ADDRESS.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Allow unencrypted connections (tcp://) to a cluster on other machines."),
]
Attempts = Annotated[
    int | None,
    _setting(
        metavar="N",
        min=1,
        max=100,
        help="How often a stage is attempted if its cluster is lost; overrides \\[runtime] attempts of the "
        "job (3).",
    ),
]
TimeLimit = Annotated[
    float | None,
    _setting(
        metavar="SECONDS",
        min=1.0,
        help="Time limit, after which the job ends with exit code 75; overrides \\[runtime] total_seconds of "
        "the job (no limit).",
    ),
]

Output = Annotated[
    str,
    typer.Argument(
        metavar="OUT",
        help="Output folder or s3://BUCKET/PATH for its current run, or OUT/KEY for another run.",
        show_default=False,
    ),
]
Root = Annotated[
    str, typer.Argument(metavar="OUT", help="Output folder or s3://BUCKET/PATH.", show_default=False)
]
PublishUnconverged = Annotated[
    bool, typer.Option("--publish-unconverged", help="Publish a run even if it did not converge.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def examples(*lines: str) -> str:
    """Format examples for the end of a help text."""
    return "\n\n".join(["Examples:", *(f"  [cyan]{line}[/cyan]" for line in lines)])
