"""Commands of a service: `cagp daily` and `cagp status`."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cagp_dist.cli.display import reported_errors
from cagp_dist.cli.logs import LogFormat, MetricsOption, log_of, reported
from cagp_dist.cli.options import Debug, Insecure, JobFile, Scheduler, Times, examples

if TYPE_CHECKING:
    import numpy as np

DAILY_EXAMPLES = examples(
    "cagp daily job.toml",
    "cagp daily job.toml --times 2024-01-01..2024-01-31",
    "cagp daily job.toml --retry --log json --metrics /var/lib/node_exporter/cagp.prom",
    "cagp daily job.toml --dry-run",
)
STATUS_EXAMPLES = examples("cagp status out")

SOME_FAILED = 6


def daily_command(
    job: JobFile,
    times: Times = None,
    retry: Annotated[
        bool,
        typer.Option("--retry", help="Try all days that have failed, those that wait, too."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the days and what stands of them, and stop.")
    ] = False,
    scheduler: Scheduler = None,
    insecure: Insecure = False,
    log: Annotated[
        LogFormat,
        typer.Option(
            "--log",
            "--log-format",
            help="Progress on standard error as text, or as lines of JSON.",
        ),
    ] = LogFormat.TEXT,
    metrics: MetricsOption = None,
    debug: Debug = False,
) -> None:
    """Do the days of a job that are new, each by itself, and put them into its time series.

    A day that fails is recorded with its reason and ends no other; the next passes try it again, ever less
    often. Exit code 0: all days are done; 75: some have no data yet; 6: some have failed (`cagp status OUT`
    lists them).
    """
    from cagp_dist.errors import NotReadyError
    from cagp_dist.service.daily import daily, planned_times
    from cagp_dist.service.day_records import NOT_READY
    from cagp_dist.service.events import Event
    from cagp_dist.service.jobfile.config import load_job, with_scheduler, with_times

    with reported(job=job, metrics=metrics, log_format=log, debug=debug) as gathered, log_of(log) as display:
        loaded = load_job(job)
        loaded = with_scheduler(
            loaded if times is None else with_times(loaded, times), scheduler, insecure=insecure
        )

        def observe(event: Event) -> None:
            gathered(event)
            display(event)

        if dry_run:
            _, moments, damaged = planned_times(loaded, observe=observe, locked=False)
            _list(loaded.root, moments, damaged)
            return
        kinds = set()
        for day in daily(loaded, observe=observe, retry=retry):
            typer.echo(day.line())
            if day.failed is not None:
                kinds.add(day.failed.kind)
        if kinds:
            raise typer.Exit(NotReadyError.exit_code if kinds == {NOT_READY} else SOME_FAILED)


def _list(root: Path, times: "np.ndarray", damaged: Iterable[str]) -> None:
    """Print the days of a job, and what stands of them."""
    from cagp_dist.service.day_records import DayRecords, written_day
    from cagp_dist.store.series import run_in_series

    for path in damaged:
        typer.echo(f"{path}: its times cannot be read")
    failed = DayRecords.read(root).failed
    for time in times:
        day, run = failed.get(written_day(time)), run_in_series(root, time)
        if day is not None:
            typer.echo(f"failed before: {day.line()}")
        else:
            typer.echo(f"{written_day(time)}: {'new' if run is None else f'in the series, of run {run}'}")


def status_command(
    root: Annotated[Path, typer.Argument(metavar="OUT", help="Output folder.", show_default=False)],
    debug: Debug = False,
) -> None:
    """Say what stands in an output folder: days done, failed, missing and preliminary, drift, disk and runs.

    Missing are days that a pass has planned and that are neither done nor failed.
    Exit code 6: some days have failed.
    """
    with reported_errors(debug=debug):
        from cagp_dist.service.series_status import status_of

        found = status_of(root)
        for line in found.lines():
            typer.echo(line)
        if found.failed:
            raise typer.Exit(SOME_FAILED)
