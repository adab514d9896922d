"""Arguments and options that several commands share, and how their help ends."""

from functools import partial
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cagp_dist.service.jobfile.job import Job

# Where there is no default, or the job file has it
option = partial(typer.Option, show_default=False)
argument = partial(typer.Argument, show_default=False)

JobFile = Annotated[Path, argument(metavar="JOB.toml", help="Job file.")]
Times = Annotated[
    str | None,
    option(
        "--times",
        metavar="TIMES",
        help="Times; overrides the job: 2017-04-27T12:00,2017-04-28T12:00, 2017-04 (a month), 'from "
        "2017-01-01 to 2017-01-31 every 6h', 2017-01-01..2017-01-31 (with every or at of the job), "
        "'last 5d at 12:00', latest, or all.",
    ),
]
Scheduler = Annotated[
    str | None,
    option(
        metavar="NAME",
        help="Where to compute, as in \\[cluster] scheduler of a job: local, serial, slurm, pbs, the address "
        "of a Dask scheduler, such as tcp://127.0.0.1:8786, or its .json file. Overrides the job file and "
        "DASK_SCHEDULER_ADDRESS.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Allow unencrypted connections (tcp://) to a cluster on other machines."),
]
Attempts = Annotated[
    int | None,
    option(
        metavar="N",
        min=1,
        max=100,
        help="How often a stage is attempted if its cluster is lost; overrides \\[runtime] attempts of the "
        "job (3).",
    ),
]
TimeLimit = Annotated[
    float | None,
    option(
        metavar="SECONDS",
        min=1.0,
        help="Time limit, after which the job ends with exit code 75; overrides \\[runtime] total_seconds of "
        "the job (no limit).",
    ),
]

Output = Annotated[
    str,
    argument(
        metavar="OUT",
        help="Output folder or s3://BUCKET/PATH for its current run, or OUT/KEY for another run.",
    ),
]
OutputFolder = Annotated[Path, argument(metavar="OUT", help="Output folder.")]
Root = Annotated[str, argument(metavar="OUT", help="Output folder or s3://BUCKET/PATH.")]
PublishUnconverged = Annotated[
    bool,
    typer.Option(
        "--publish-unconverged",
        help="Publish a run even if its solver ended before it reached what the job asks for, or became "
        "unstable. Its numbers may then be wrong. The exit code is still 3.",
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def unwrapped(docstring: str | None) -> str:
    """Join the lines of each paragraph: a terminal breaks them at its own width."""
    paragraphs = cleandoc(docstring or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def examples(*lines: str) -> str:
    """Format examples for the end of a help text."""
    return "\n\n".join(["Examples:", *(f"  [cyan]{line}[/cyan]" for line in lines)])


def loaded_job(
    path: Path,
    times: str | None,
    scheduler: str | None = None,
    insecure: bool = False,
    attempts: int | None = None,
    time_limit: float | None = None,
    output: str | None = None,
) -> "Job":
    """Read a job file; the options override it."""
    from cagp_dist.service.jobfile.config import (
        load_job,
        with_output,
        with_runtime,
        with_scheduler,
        with_times,
    )

    job = load_job(path)
    job = with_runtime(
        job if times is None else with_times(job, times), attempts=attempts, total_seconds=time_limit
    )
    return with_scheduler(job if output is None else with_output(job, output), scheduler, insecure=insecure)
