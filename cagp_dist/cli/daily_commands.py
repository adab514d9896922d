"""Commands of a service: `cagp daily` and `cagp status`."""

from pathlib import Path
from typing import Annotated

import typer

from cagp_dist.cli.display import reported_errors
from cagp_dist.cli.logs import LogFormat, MetricsOption, log_of, reported
from cagp_dist.cli.options import Debug, Insecure, JobFile, Scheduler, Times, examples

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
        typer.Option("--log", help="Progress on standard error as text, or as one line of JSON per event."),
    ] = LogFormat.TEXT,
    metrics: MetricsOption = None,
    debug: Debug = False,
) -> None:
    """Do the days of a job that are new, each by itself, and put them into its time series.

    A day that fails is recorded with its reason and ends no other; the next passes try it again, ever less
    often. Exit code 0: all days are done; 6: some have failed (`cagp status OUT` lists them).
    """
    from cagp_dist.service.daily import daily, planned_times
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
            _list(loaded.root, [str(time)[:19] for time in planned_times(loaded, observe=observe)])
            return
        failed = 0
        for day in daily(loaded, observe=observe, retry=retry):
            typer.echo(day.line())
            failed += day.failed is not None
        if failed:
            raise typer.Exit(SOME_FAILED)


def _list(root: Path, times: list[str]) -> None:
    """Print the days of a job, and what stands of them."""
    import numpy as np

    from cagp_dist.service.day_records import DayRecords
    from cagp_dist.store.series import run_in_series

    records = DayRecords(root)
    for time in times:
        moment = np.datetime64(time, "ns")
        failed, run = records.find(moment), run_in_series(root, moment)
        if failed is not None:
            typer.echo(f"failed before: {failed.line()}")
        else:
            typer.echo(f"{time}: {'new' if run is None else f'in the series, of run {run}'}")


def status_command(
    root: Annotated[Path, typer.Argument(metavar="OUT", help="Output folder.", show_default=False)],
    debug: Debug = False,
) -> None:
    """Say what stands in an output folder: days done, failed, missing and preliminary, drift, disk and runs.

    Missing are days between the first and the last, at the usual step, that are neither done nor failed.
    Exit code 6: some days have failed.
    """
    with reported_errors(debug=debug):
        from cagp_dist.service.series_status import status_of

        found = status_of(root)
        for line in found.lines():
            typer.echo(line)
        if found.failed:
            raise typer.Exit(SOME_FAILED)
