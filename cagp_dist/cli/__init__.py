"""The `cagp` command: it parses, calls the service and prints. The only package that prints.

Scores and paths go to standard output; progress and errors go to standard error. Exit codes: 0 done or
nothing to do, 1 error, or not healthy (`cagp health`), 2 bad job file or arguments, 3 solved or fitted but
not converged, 4 error bars that drifted (`cagp drift`), 6 some days failed (`cagp daily`, `cagp status`),
75 data not there yet, output folder in use or time over, 130 interrupted, 143 terminated.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand

from cagp_dist.cli import daily_commands as service
from cagp_dist.cli import run_commands as runs
from cagp_dist.cli.check_command import CHECK_EXAMPLES, check_command
from cagp_dist.cli.display import Display, reported_errors, show_fit, show_outcome
from cagp_dist.cli.logs import LogFormat, LogFormatOption, MetricsOption, log_of, reported
from cagp_dist.cli.options import (
    Attempts,
    Debug,
    Insecure,
    JobFile,
    Output,
    PublishUnconverged,
    Scheduler,
    TimeLimit,
    Times,
    argument,
    loaded_job,
    option,
    unwrapped,
)
from cagp_dist.cli.options import examples as _examples
from cagp_dist.text import in_one_line

if TYPE_CHECKING:
    from cagp_dist.service.jobfile.job import Job
    from cagp_dist.service.metrics import Metrics
    from cagp_dist.service.task import Simulations

NOT_CONVERGED = 3

app = typer.Typer(
    help="Maps of observations by kriging (Gaussian-process regression), with error bars that are checked.",
    epilog="Start with [bold]cagp demo[/bold].",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Entry point of the `cagp` command."""
    app()


class _JobCommand(TyperCommand):
    """A command whose help ends with what a job file may name; the registries are read when it is shown."""

    @property
    def epilog(self) -> str:
        """Examples, and the names of the registries."""
        from cagp_dist.fields.sources import SOURCE_FORMS
        from cagp_dist.kernels import KERNEL_FORMS
        from cagp_dist.runtime.schedulers import EXPECTED_SCHEDULER
        from cagp_dist.solvers.registry import SOLVERS

        families = {
            "Sources": SOURCE_FORMS,
            "Kernels": KERNEL_FORMS,
            "Solvers (auto, the default, chooses one and is enough)": ("auto", *SOLVERS),
        }
        names = [f"  {family}: {', '.join(families[family])}" for family in families]
        return "\n\n".join([self._examples, "In a job file:", *names, f"  Schedulers: {EXPECTED_SCHEDULER}"])

    @epilog.setter
    def epilog(self, examples: str) -> None:
        self._examples = examples


def _show_version(wanted: bool) -> None:
    if wanted:
        import cagp_dist

        typer.echo(f"cagp_dist {cagp_dist.__version__}")
        raise typer.Exit


@app.callback()
def cagp(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Stand for the command itself; its options are all there is to do."""


@app.command(epilog=_examples("cagp demo", "cagp demo --output demo", "cagp demo --scheduler serial"))
def demo(
    output: Annotated[Path, typer.Option(metavar="DIR", help="Output folder.")] = Path("cagp-demo"),
    scheduler: Scheduler = None,
    insecure: Insecure = False,
    debug: Debug = False,
) -> None:
    """Map the built-in global field: 10,000 points observed, 2,000 held out, in 10 seconds on two cores.

    Errors at another 2,000 points recalibrate the error bars; scores before and after are printed at the end.
    The first call compiles functions for your processor and keeps them.
    """
    with reported_errors(debug=debug):
        from cagp_dist.service.demo import demo_job
        from cagp_dist.service.jobfile.config import with_scheduler

        _run(with_scheduler(demo_job(output), scheduler, insecure=insecure), publish_unconverged=False)


@app.command(
    "run",
    cls=_JobCommand,
    epilog=_examples(
        "cagp run job.toml",
        "cagp run job.toml --scheduler tcp://127.0.0.1:8786",
        "cagp run job.toml --times 'last 5d at 12:00'",
        "cagp run job.toml --publish-unconverged",
        "cagp run job.toml --log-format json --metrics /var/lib/node_exporter/cagp.prom",
    ),
)
def run_command(
    job: JobFile,
    times: Times = None,
    scheduler: Scheduler = None,
    insecure: Insecure = False,
    attempts: Attempts = None,
    time_limit: TimeLimit = None,
    output: Annotated[
        str | None,
        option(
            metavar="OUT", help="Output folder, or s3://BUCKET/PATH; overrides \\[output] root of the job."
        ),
    ] = None,
    publish_unconverged: PublishUnconverged = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    metrics: MetricsOption = None,
    debug: Debug = False,
) -> None:
    """Run a job: read observations, solve, score, publish the run, write its report.

    A finished job is not run again. `cagp example` prints a job file to start from.
    """
    with reported(job=job, metrics=metrics, log_format=log_format, debug=debug) as gathered:
        changed = loaded_job(job, times, scheduler, insecure, attempts, time_limit, output)
        _run(changed, publish_unconverged=publish_unconverged, log_format=log_format, metrics=gathered)


@app.command(
    "calibrate",
    epilog=_examples(
        "cagp calibrate job.toml",
        "cagp calibrate job.toml --simulations 200",
        "cagp calibrate job.toml --seed 1 --scheduler serial",
    ),
)
def calibrate_command(
    job: JobFile,
    simulations: Annotated[
        int,
        typer.Option(metavar="N", min=2, help="Number of fields to draw; more fields reveal smaller faults."),
    ] = 1000,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the fields.")] = 0,
    times: Times = None,
    scheduler: Scheduler = None,
    insecure: Insecure = False,
    attempts: Attempts = None,
    time_limit: TimeLimit = None,
    publish_unconverged: PublishUnconverged = False,
    debug: Debug = False,
) -> None:
    """Run a job, and test its error bars on fields drawn from its own prior.

    The points, the prior and the solver stay the same. On these fields the prior is right by construction,
    so any fault of the error bars comes from the solver. The run is that of `cagp run`, with one more group
    for the simulations and one more section in its report.
    """
    with reported_errors(debug=debug):
        from cagp_dist.service.task import Simulations

        changed = loaded_job(job, times, scheduler, insecure, attempts, time_limit)
        drawn = Simulations(simulations, seed)
        _run(changed, publish_unconverged=publish_unconverged, simulations=drawn)


@app.command(
    epilog=_examples(
        "cagp plan job.toml",
        "cagp plan job.toml --scheduler serial",
        "cagp plan job.toml --workers 512 --threads 8",
    )
)
def plan(
    job: JobFile,
    times: Times = None,
    scheduler: Scheduler = None,
    insecure: Insecure = False,
    workers: Annotated[
        int | None,
        option(
            metavar="N",
            min=1,
            help="Plan for N Dask workers, which need not exist, and show what each of them gets.",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        option(
            metavar="N",
            min=1,
            help="Threads of each such worker, which share its memory. Default: \\[cluster] threads of the "
            "job, or 1.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Show what a job costs in points, tasks, bytes and flops, without starting it."""
    with reported_errors(debug=debug):
        from cagp_dist.budget.workers import Crew
        from cagp_dist.errors import ConfigurationError
        from cagp_dist.service.job_plan import JobPlan, plan_job

        def show(found: JobPlan) -> None:
            typer.echo("\n".join(map(in_one_line, [found.size.line(), *found.lines()])))

        checked = loaded_job(job, times, scheduler, insecure)
        if threads is not None and workers is None:
            raise ConfigurationError(
                "--threads needs --workers: it is the number of threads of each worker.",
                key="threads-without-workers",
            )
        crew = None if workers is None else Crew(workers, threads or checked.cluster.threads)
        plan_job(checked, crew=crew, on_plan=show)  # shown also where the disk is too small


@app.command("fit", epilog=_examples("cagp fit job.toml", "cagp fit job.toml --scheduler serial"))
def fit_command(
    job: JobFile,
    times: Times = None,
    scheduler: Scheduler = None,
    insecure: Insecure = False,
    debug: Debug = False,
) -> None:
    r"""Fit the parameters of the prior and print them as a table for the job file.

    The fit uses the observed points; with fit_to = "field" in \[prior] it uses the whole field, test points
    included. Parameters that the job states are ignored. Nothing is published, but the observations are
    kept, as by `cagp ingest`. Exit code 3 means that the fit did not end well.
    """
    with reported_errors(debug=debug):
        from cagp_dist.service.run import fit_job

        placed = loaded_job(job, times, scheduler, insecure)
        with Display() as display:
            fitted = fit_job(placed, observe=display)
        show_fit(placed, fitted)
        if not fitted.ok:
            raise typer.Exit(NOT_CONVERGED)


@app.command("ingest", epilog=_examples("cagp ingest job.toml", "cagp ingest job.toml --times 2017-04"))
def ingest_command(job: JobFile, times: Times = None, debug: Debug = False) -> None:
    """Read or download the observations of a job and keep them in its output folder; solve nothing.

    Times that the folder has already are not read again. `cagp run` does this by itself.
    """
    with reported_errors(debug=debug), Display() as display:
        from cagp_dist.service.run import ingest_only

        ingest_only(loaded_job(job, times), observe=display)


@app.command(
    epilog=_examples("cagp report out", "cagp report out --to page", "cagp report out/runs/KEY.zarr")
)
def report(
    output: Output,
    to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to write to.", show_default="OUT/report/KEY")
    ] = None,
    debug: Debug = False,
) -> None:
    """Write the report of the current run again: one HTML page and its figures."""
    with reported_errors(debug=debug):
        from cagp_dist.report import write_report
        from cagp_dist.service.run import find_run

        typer.echo(write_report(find_run(output), to))


@app.command(
    "verify", epilog=_examples("cagp verify out", "cagp verify out/KEY", "cagp verify out/KEY --solve 20")
)
def verify_command(
    output: Annotated[
        Path,
        argument(
            metavar="OUT",
            help="Output folder or s3://BUCKET/PATH for all its runs, or OUT/KEY for one of them.",
        ),
    ],
    points: Annotated[
        int,
        typer.Option(
            "--solve",
            metavar="N",
            min=0,
            help="Also predict N test points of each run again from its job and observations, and compare.",
        ),
    ] = 0,
    debug: Debug = False,
) -> None:
    """Check every file and value of every published run; exit code 1 means that one is damaged.

    Files are compared with their checksums. No chunk may be missing and no value implausible. The time series
    of an output folder must have each time once, with the values of the run that it names. A job may publish
    there at the same time. Call --solve in the folder where the job was run; exit code 2 means that no run
    could be solved again.
    """
    with reported_errors(debug=debug):
        from cagp_dist.service.run import verify_runs
        from cagp_dist.service.verification import NotSolvedAgainError, solve_again
        from cagp_dist.store.atomic_files import read_unless_removed
        from cagp_dist.store.packed import packed_runs, verify_packed
        from cagp_dist.store.series_check import check_series

        runs, not_again = verify_runs(output), list[NotSolvedAgainError]()
        for packed in packed_runs(output):
            verify_packed(packed)
            typer.echo(f"undamaged  {packed}")
        for path in runs:
            typer.echo(f"undamaged  {path}")
            again = partial(solve_again, path, points=points)
            try:
                if points and (difference := read_unless_removed(path, again)) is not None:
                    typer.echo(f"solved again, differs by at most {difference:.1e} prior standard deviations")
            except NotSolvedAgainError as error:
                not_again.append(error)
                typer.echo(in_one_line(str(error)))
        if (found := check_series(output)) is not None:
            typer.echo(
                f"undamaged  {found.version}: {found.times} times, {found.compared} equal to their runs"
            )
        if runs and len(not_again) == len(runs):
            raise typer.Exit(NotSolvedAgainError.exit_code)


app.command("check", epilog=CHECK_EXAMPLES)(check_command)
app.command("daily", epilog=service.DAILY_EXAMPLES)(service.daily_command)
app.command("status", epilog=service.STATUS_EXAMPLES)(service.status_command)
app.command("health", epilog=service.HEALTH_EXAMPLES)(service.health_command)
app.command("list", epilog=_examples("cagp list out"))(runs.list_all)
app.command("open", epilog=_examples("cagp open out", "cagp open out/KEY --no-browser"))(runs.open_report)
app.command(
    "view",
    epilog=_examples(
        "cagp view out",
        "cagp view out/KEY --port 8000 --no-browser",
        "cagp view out --export public/maps",
    ),
)(runs.view)
app.command("prune", epilog=_examples("cagp prune out --keep 30 --dry-run", "cagp prune out --keep 30"))(
    runs.prune_command
)
app.command("unpack", epilog=_examples("cagp unpack out/KEY"))(runs.unpack_command)
app.command("drift", epilog=_examples("cagp drift out", "cagp drift out --last 60"))(runs.drift_command)
app.command(epilog=_examples("cagp index out"))(runs.index)
app.command(
    epilog=_examples(
        "cagp export out --to netcdf",
        "cagp export out --to netcdf --group map --output map.nc",
        "cagp export out --to geotiff --output maps",
        "cagp export out --to zarr --output map.zarr",
        "cagp export out/KEY --to csv --group posterior --output places",
    )
)(runs.export)
app.command(epilog=_examples("cagp certificates ~/cagp-cluster"))(runs.certificates)


@app.command(
    epilog=_examples("cagp example > job.toml", "cagp example --stations europe", "cagp run europe/job.toml")
)
def example(
    stations: Annotated[
        Path | None,
        option(metavar="DIR", help="Write a job for a table of stations, with its tables, to this folder."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Print a job file to start from, or write one for a table of stations, with its tables."""
    with reported_errors(debug=debug):
        if stations is None:
            from cagp_dist.service.demo import demo_job_text

            typer.echo(demo_job_text("out"), nl=False)
        else:
            from cagp_dist.kriging.examples import JOB_FILES, write_examples

            for path in write_examples(stations, JOB_FILES, replace=False):
                typer.echo(path)


for _command in app.registered_commands:
    _command.help = unwrapped(_command.callback and _command.callback.__doc__)


def _run(
    job: "Job",
    *,
    publish_unconverged: bool,
    simulations: "Simulations | None" = None,
    log_format: LogFormat = LogFormat.TEXT,
    metrics: "Metrics | None" = None,
) -> None:
    """Run a job, show its progress and its outcome, and exit with its code."""
    from cagp_dist.report import report_page, write_report
    from cagp_dist.service.disk import full_disks_told
    from cagp_dist.service.events import Clock, Event
    from cagp_dist.service.notify import notifying
    from cagp_dist.service.published_runs import keep_runs
    from cagp_dist.service.run import run as run_job

    with log_of(log_format) as display, notifying(job) as notes, full_disks_told(job.output.folder):

        def observe(event: Event) -> None:
            if metrics is not None:
                metrics(event)
            display(event)

        outcome = run_job(
            job, simulations=simulations, publish_unconverged=publish_unconverged, observe=observe
        )
        if metrics is not None:
            metrics.outcome = outcome
        notes.add_run(outcome)
        page, removed = None, list[str]()
        if outcome.path is not None:
            removed = keep_runs(job, outcome.times)
            page = report_page(outcome.path)
            if not (outcome.already_done and page.exists()):
                with Clock(observe).stage("Report"):
                    page = write_report(outcome.path, page.parent)
    show_outcome(outcome, page)
    for line in removed:
        typer.echo(line)
    if not outcome.status.ok:
        raise typer.Exit(NOT_CONVERGED)
