"""Commands of a service: `cagp daily`, `cagp status` and `cagp health`."""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cagp_dist.cli.display import reported_errors
from cagp_dist.cli.logs import LogFormat, LogFormatOption, MetricsOption, log_of, reported
from cagp_dist.cli.options import (
    Debug,
    Insecure,
    JobFile,
    OutputFolder,
    Scheduler,
    examples,
    loaded_job,
    option,
)
from cagp_dist.cli.options import Times as TimesOption
from cagp_dist.text import in_one_line

if TYPE_CHECKING:
    import numpy as np

    from cagp_dist.arrays import Times
    from cagp_dist.service.day_records import FailedDay
    from cagp_dist.service.metrics import Metrics

DAILY_EXAMPLES = examples(
    "cagp daily job.toml",
    "cagp daily job.toml --times 2024-01-01..2024-01-31",
    "cagp daily job.toml --retry --log json --metrics /var/lib/node_exporter/cagp.prom",
    "cagp daily job.toml --times 2024-01-01..2024-12-31 --redo",
    "cagp daily job.toml --dry-run",
    "cagp daily job.toml --give-up 2024-01-17T12:00",
    "cagp daily job.toml --remove 2024-01-18T12:00",
)
STATUS_EXAMPLES = examples("cagp status out", "cagp status out --json", "cagp status out --metrics out.prom")
HEALTH_EXAMPLES = examples(
    "cagp health out",
    "cagp health out --max-age 36h --max-failed 0 --min-free 10GiB",
    "cagp health out --max-gaps 0 --max-unreadable 0",
)

SOME_FAILED = 6


def daily_command(
    job: JobFile,
    times: TimesOption = None,
    retry: Annotated[
        bool,
        typer.Option(
            "--retry", help="Try all failed days now, also those that wait or were given up or removed."
        ),
    ] = False,
    redo: Annotated[
        bool,
        typer.Option("--redo", help="Solve again the days that an earlier numerical version made."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the days with their state, and stop.")
    ] = False,
    give_up: Annotated[
        str | None,
        option("--give-up", metavar="TIMES", help="Leave failed or missing days and gaps out, and stop."),
    ] = None,
    remove: Annotated[
        str | None,
        option("--remove", metavar="TIMES", help="Take days out of the series, leave them out, and stop."),
    ] = None,
    scheduler: Scheduler = None,
    insecure: Insecure = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    metrics: MetricsOption = None,
    debug: Debug = False,
) -> None:
    """Run each new day of a job separately, and add the results to its time series.

    A failed day is recorded with its reason and does not stop the others; later passes try it again, at
    growing intervals. Exit code 0: all days are done. 75: some have no data yet, or the disk is full. 6: some
    have failed (`cagp status OUT` lists them).
    """
    from cagp_dist.service import removed_days
    from cagp_dist.service.daily import daily, planned_times
    from cagp_dist.service.disk import full_disks_told
    from cagp_dist.service.events import Event
    from cagp_dist.service.notify import notifying
    from cagp_dist.service.published_runs import keep_runs
    from cagp_dist.service.series_status import status_of
    from cagp_dist.text import shown_time

    with reported(job=job, metrics=metrics, log_format=log_format, debug=debug) as gathered:
        loaded = loaded_job(job, times, scheduler, insecure)
        if give_up is not None or remove is not None:
            for time in removed_days.give_up(loaded, give_up) if give_up is not None else ():
                typer.echo(f"{shown_time(time)}: given up")
            for time in removed_days.remove(loaded, remove) if remove is not None else ():
                typer.echo(f"{shown_time(time)}: taken out of the series")
            return
        failed: list[FailedDay] = []
        seen: list[np.datetime64 | None] = []
        with (
            log_of(log_format) as display,
            notifying(loaded) as notes,
            full_disks_told(loaded.output.folder),
            _state_told(gathered, loaded.output.folder),
        ):

            def observe(event: Event) -> None:
                gathered(event)
                display(event)

            if dry_run:
                _, moments, damaged = planned_times(loaded, observe=observe, locked=False)
                _list(loaded.output.folder, moments, damaged)
                for line in keep_runs(loaded, moments, dry=True):
                    typer.echo(line)
                return
            for day in daily(loaded, observe=observe, retry=retry, redo=redo):
                typer.echo(in_one_line(day.line()))
                seen.append(day.time)
                notes.add(day)
                if day.failed is not None:
                    failed.append(day.failed)
            if len(failed) < len(seen):
                for line in keep_runs(loaded, [time for time in seen if time is not None]):
                    typer.echo(line)
            if said := status_of(loaded.output.folder).left_out():
                typer.echo(f"left out: {said}")
        _leave(failed)


@contextmanager
def _state_told(metrics: "Metrics", root: Path) -> Iterator[None]:
    """Give the metrics the state of the output folder at the end, also after an error."""
    from cagp_dist.errors import CagpError
    from cagp_dist.service.series_status import status_of

    try:
        yield
    finally:
        with suppress(CagpError):
            metrics.state = status_of(root)


def _leave(failed: Collection["FailedDay"], *, missing: bool = False) -> None:
    """Leave with the exit code of these failures, if there are any."""
    from cagp_dist.errors import NotReadyError
    from cagp_dist.service.day_records import NOT_READY

    if missing or any(day.kind != NOT_READY for day in failed):
        raise typer.Exit(SOME_FAILED)
    if failed:
        raise typer.Exit(NotReadyError.exit_code)


def _list(root: Path, times: "Times", damaged: Mapping[str, Exception]) -> None:
    """Print the days that a pass would look at, with their state."""
    import numpy as np

    from cagp_dist.service.day_records import DayRecords, written_day
    from cagp_dist.store.series import runs_of_times
    from cagp_dist.versions import numerical_version

    for error in damaged.values():
        typer.echo(in_one_line(f"left out: {error}"))
    records, runs = DayRecords.read(root), runs_of_times(root)
    for time in np.union1d(times, records.times()):
        day, run = records.failed.get(written_day(time)), runs.get(time)
        if day is not None:
            typer.echo(in_one_line(f"{day.word}: {day.line()}"))
        else:
            earlier = run is not None and run.numerical_version != numerical_version()
            unsolved = "given up" if written_day(time) in records.given_up else "new"
            said = unsolved if run is None else f"in the series, of run {run.key}"
            typer.echo(
                f"{written_day(time)}: {said}{', of an earlier version, see --redo' if earlier else ''}"
            )


def status_command(
    root: OutputFolder,
    as_json: Annotated[bool, typer.Option("--json", help="Write one object of JSON.")] = False,
    metrics: Annotated[
        Path | None,
        option(
            "--metrics",
            metavar="FILE",
            help="Also write the state to this file, in the format of Prometheus.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Show the state of an output folder: days done, failed, missing and preliminary, drift, disk and runs.

    A day is missing if a pass has planned it but not reached it. Exit code 6: some days have failed or are
    missing. 75: otherwise, the data of some days are not there yet, which is no failure.
    """
    with reported_errors(debug=debug):
        from cagp_dist.service.metrics import exposition, state_families
        from cagp_dist.service.series_status import status_of
        from cagp_dist.store.atomic_files import whole_file

        found = status_of(root)
        for line in [json.dumps(found.as_json(), indent=1)] if as_json else found.lines():
            typer.echo(line if as_json else in_one_line(line))
        if metrics is not None:
            with whole_file(metrics) as draft:
                draft.write_text(exposition(state_families(found)), encoding="utf-8")
        _leave(found.failed, missing=found.missing.size > 0)


def health_command(
    root: OutputFolder,
    max_age: Annotated[
        str | None,
        option(metavar="TIME", help="Largest age of the newest time, such as 36h or 7d."),
    ] = None,
    max_failed: Annotated[
        int | None,
        option(metavar="N", min=0, help="Most failed days, not counting days without data."),
    ] = None,
    max_missing: Annotated[
        int | None,
        option(metavar="N", min=0, help="Most missing days, which no pass has reached."),
    ] = None,
    max_gaps: Annotated[
        int | None,
        option(metavar="N", min=0, help="Most times without a run between the first and the last one."),
    ] = None,
    max_unreadable: Annotated[
        int | None,
        option(metavar="N", min=0, help="Most files of the source that cannot be read."),
    ] = None,
    max_outdated: Annotated[
        int | None,
        option(metavar="N", min=0, help="Most days of an earlier numerical version or of data that changed."),
    ] = None,
    min_free: Annotated[
        str | None,
        option(metavar="SIZE", help="Least free disk space, such as 10GiB."),
    ] = None,
    drift: Annotated[
        bool, typer.Option("--drift", help="Count a drift of the error bars as a fault.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Say in one line whether an output folder meets its limits, with exit code 0 or 1. Changes nothing.

    Use it in health checks of systemd, Compose and Kubernetes. Without limits it checks only that a pass has
    written to the folder, so that its disk is mounted, and that the series can be read.
    """
    from cagp_dist.errors import CagpError, ConfigurationError

    with reported_errors(debug=debug):
        from cagp_dist.service.jobfile.times_key import parse_length
        from cagp_dist.service.jobfile.values import parse_bytes
        from cagp_dist.service.series_status import HealthLimits, status_of

        try:
            limits = HealthLimits(
                max_age=None if max_age is None else parse_length(max_age, "--max-age"),
                max_failed=max_failed,
                max_missing=max_missing,
                max_gaps=max_gaps,
                max_unreadable=max_unreadable,
                max_outdated=max_outdated,
                min_free_bytes=None if min_free is None else int(str(parse_bytes(min_free))),
                drift=drift,
            )
        except ValueError as error:
            raise ConfigurationError(str(error), key="limits") from error
        try:
            status = status_of(root)
            faults = limits.faults(status)
        except CagpError as error:
            faults = [str(error)]
        except OSError as error:  # of a disk that has gone
            faults = [f"{error.filename or root} cannot be read: {error.strerror or error}"]
        if faults:
            typer.echo(in_one_line(f"unhealthy: {'; '.join(faults)}"))
            raise typer.Exit(1)
        said = status.left_out()
        typer.echo(f"healthy: {status.summary()}{'; left out: ' if said else ''}{said}")
