"""What the command line shows: progress while a job runs, its scores, and errors as one clear block."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Self

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

from cagp_dist.cli.records import listen, stamp, timestamp
from cagp_dist.errors import CagpError
from cagp_dist.headway import Headway
from cagp_dist.termination import TerminationError, orderly_termination
from cagp_dist.text import digits_text, in_one_line, printable
from cagp_dist.variables.units import amount, decimals, squared, symbol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from cagp_dist.arrays import Times
    from cagp_dist.service.events import Event
    from cagp_dist.service.job_fit import FittedPrior
    from cagp_dist.service.jobfile.job import Job
    from cagp_dist.service.published_runs import RunEntry
    from cagp_dist.service.run import Outcome

_log = logging.getLogger(__name__)

UNEXPECTED = 1
# What a shell reports of a program that was interrupted or terminated: 128 + SIGINT, 128 + SIGTERM
INTERRUPTED, TERMINATED = 130, 143
KEY_DIGITS = 8  # Of a key in a list; `cagp_dist.service.run.find_run` takes the first digits of a key
WIDTH_LEVEL = 0.9  # The level of the error bars whose width is shown

_NUMBERS = {
    "lengthscale": (False, ""),  # as its space says it
    "time_lengthscale_hours": (False, "in time"),
    "depth_lengthscale": (False, "in depth"),
    "variance": (True, "of the field about its mean"),
    "noise_variance": (True, "of a single observation"),
}


@contextmanager
def reported_errors(*, debug: bool, as_json: bool = False) -> Iterator[None]:
    """Turn every error into one block of text on standard error and its exit code.

    ``debug`` also shows the traceback; with ``as_json`` warnings are lines of JSON.
    """
    console = Console(stderr=True)
    listen(as_json=as_json, debug=debug)
    _warn_of_shared_code()
    try:
        with orderly_termination():
            yield
    except KeyboardInterrupt as error:
        terminated = isinstance(error, TerminationError)
        _say(
            console,
            "Terminated." if terminated else "Interrupted.",
            "Earlier results are unchanged, and nothing is half written. The same command continues from the "
            "last checkpoint, if there is one.",
        )
        raise typer.Exit(TERMINATED if terminated else INTERRUPTED) from None
    except CagpError as error:
        if debug:
            console.print_exception()
        _say(console, "Error:", str(error))
        raise typer.Exit(error.exit_code) from error
    except typer.Exit:
        raise
    except Exception as error:
        if debug:
            console.print_exception()
        text = f"{type(error).__name__}: {error}\nThis is an unexpected error"
        _say(console, "Error:", text + ("." if debug else "; --debug shows where it happened."))
        raise typer.Exit(UNEXPECTED) from error


def _warn_of_shared_code() -> None:
    """Warn of a folder of compiled functions that others may write to: what is there is run."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    try:
        found = os.stat(folder) if folder else None
    except OSError:
        return  # it will be made, by this user
    if found is not None and (found.st_uid not in (0, os.getuid()) or found.st_mode & 0o022):
        _log.warning(
            "others may write to NUMBA_CACHE_DIR=%s, and what is compiled there is run as you. Choose a "
            "folder of your own: chmod 700",
            folder,
        )


def _plain(text: str) -> str:
    """Write a text on one line, without markup or anything that a terminal obeys."""
    return escape(in_one_line(text.strip()))


def _say(console: Console, headline: str, text: str) -> None:
    text = "\n  ".join(map(printable, text.split("\n")))  # no name begins a line of its own
    said = f"{stamp()}[bold red]{headline}[/bold red] {escape(text)}"
    console.print(said, soft_wrap=True, highlight=False)


class Display:
    """Shows the stages of a job: a bar in a terminal, lines with their times (UTC) in a log file.

    Use as a context manager.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[text]}", markup=False),
            _TimeLeft(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._bar = self._bars.add_task("", visible=False, text="", ends=None)
        self._headway, self._tenths = Headway(), 0

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, event: "Event") -> None:
        """Show an event."""
        match event.kind:
            case "start":
                self._headway, self._tenths = Headway(), 0
                self._bars.remove_task(self._bar)
                self._bar = self._bars.add_task(event.stage, total=None, text="", ends=None)
            case "progress":
                self._advance(event)
            case "note":
                self._line(f"  {event.text}", style="dim")
            case "done":
                self._bars.update(self._bar, visible=False)
                self._line(f"[green]done[/green]  {event.stage:<13} {escape(event.text)}".rstrip())

    def _advance(self, event: "Event") -> None:
        """Move the bar; a log file gets a line for each tenth of the work, and none if it is not known."""
        if event.fraction is None:
            self._bars.update(self._bar, text=in_one_line(event.text))
            return
        self._headway.report(event.fraction)
        fraction, left = self._headway.fraction, self._headway.seconds_left()
        ends = None if left is None else monotonic() + left
        text = in_one_line(event.text)
        self._bars.update(self._bar, total=1.0, completed=fraction, text=text, ends=ends)
        if self._bars.disable and event.text and int(10 * fraction) > self._tenths:
            self._tenths = int(10 * fraction)
            self._line(f"  {fraction:4.0%}  {event.text}", style="dim")

    def _line(self, text: str, *, style: str = "") -> None:
        when = timestamp() + " " if self._bars.disable else ""
        self._console.print(
            when + in_one_line(text), style=style, soft_wrap=True, highlight=False, markup=style == ""
        )


class _TimeLeft(ProgressColumn):
    """Counts down to when the stage ends if it goes on as fast as was measured; nothing once it did not."""

    def render(self, task: Task) -> Text:
        """Write the seconds that are left."""
        ends = task.fields["ends"]
        if ends is None or ends < monotonic():
            return Text("")
        seconds = round(ends - monotonic())
        return Text(f"{seconds // 60}:{seconds % 60:02d} left" if seconds >= 60 else f"{seconds} s left")


def show_outcome(outcome: "Outcome", page: Path | None) -> None:
    """Print the scores of a run, what its status means, and where everything is."""
    out = Console(highlight=False)
    scores = outcome.calibration
    for name, own in outcome.by_variable.items():
        out.print(f"{_plain(name)}:" if name else "", end="\n" if name else "")
        out.print(_score_table(own))
    if outcome.regions is not None:
        _show_regions(out, outcome.regions)

    def say(label: str, text: str | None, status: str = "consistent") -> None:
        """Print a line, in yellow if a verdict found a fault."""
        if text is not None:
            style = "" if status in ("consistent", "undecided") else "yellow"
            out.print(f"{label:<8}{_plain(text)}", style=style, soft_wrap=True)

    said = scores.attrs
    say("recal.", said.get("recalibration_statement"))
    for name, own in outcome.by_variable.items():
        statement = own.attrs["calibration_statement"]
        say("bars", f"{name}: {statement}" if name else statement, own.attrs["calibration_status"])
    say("share", said.get("computational_statement"))
    say("map", said.get("sampling_statement"))
    if outcome.simulation is not None:
        found = outcome.simulation.attrs
        say("prior", found["simulation_statement"], found["simulation_status"])
    if outcome.already_done:
        out.print("This run was already published; nothing was computed.")
    say("status", f"{outcome.status.value}: {outcome.status.advice}")
    unpublished = "not published; --publish-unconverged publishes it nevertheless"
    say("run", unpublished if outcome.path is None else outcome.published_as or str(outcome.path))
    say("report", None if page is None else str(page))


def _score_table(scores: "xr.Dataset") -> Table:
    """Scores by point and by area; of a recalibrated run in a third column what they were before, by area."""
    from cagp_dist.report.wording import SCORES

    recalibrated = "nll_plain" in scores
    keys = ["{}", "{}_area_weighted", *(["{}_area_weighted_plain"] if recalibrated else [])]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("score", no_wrap=True)
    for title in ("by point", "by area", "uncorrected")[: len(keys)]:
        table.add_column(title, justify="right")
    table.add_column("meaning", style="dim")

    def add(title: str, name: str, meaning: str, level: int | None = None, *, share: bool = False) -> None:
        units = scores[name].attrs.get("units", "")
        form = "{:.1%}".format if share else "{:.3f}".format if units == "1" else partial(amount, units=units)
        found = (scores.get(key.format(name)) for key in keys)
        cells = (
            "" if each is None else form(float(each if level is None else each[level])) for each in found
        )
        table.add_row(title, *map(_plain, cells), meaning)

    for name, title, _, meaning in SCORES[:-1]:  # a p-value of dependent points means little
        add(title, name, meaning)
    for index, level in enumerate(scores["level"].values):
        add(f"coverage at {level:.0%}", "coverage", "of observations inside", index, share=True)
        if level == WIDTH_LEVEL and "mean_width" in scores:
            add(f"width at {level:.0%}", "mean_width", "of these error bars", index)
    return table


def _show_regions(out: Console, regions: "xr.Dataset") -> None:
    """Print the means over regions at the last time, with their error bars, of each variable."""
    from cagp_dist.store.group_dataset import variables_in

    names = [variable.name for variable in variables_in(regions)]
    for name in names:
        out.print(f"{_plain(name)}:" if len(names) > 1 else "", end="\n" if len(names) > 1 else "")
        _show_regions_of(out, regions, name)


def _show_regions_of(out: Console, regions: "xr.Dataset", name: str) -> None:
    """Print those of one variable."""
    times = regions.sizes.get("time", 1)
    last = regions.isel(time=-1, missing_dims="ignore")
    units = symbol(regions[f"{name}_mean"].attrs.get("units", "1"))
    unfinished = last.get(f"{name}_std_computational")
    title = None if times == 1 else f"means over regions at the last of {times} times"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", title_style="dim")
    table.add_column("region", no_wrap=True)
    for column in ("mean", "error bar", "unfinished")[: 2 + (unfinished is not None)]:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("where", style="dim")
    for index, region in enumerate(map(str, last["region"].values)):
        mean, std = (float(last[f"{name}_{kind}"][index]) for kind in ("mean", "std"))
        digits = decimals(std)
        row = [f"{mean:.{digits}f} {units}", f"± {std:.{digits}f} {units}"]
        if unfinished is not None:
            part = float(unfinished[index])
            row.append(f"≤ {part:.{decimals(part)}f} {units}" if part > 0.0 else "none")
        table.add_row(*map(_plain, (region, *row, str(last["region_definition"].values[index]))))
    out.print(table)


def show_runs(runs: "Sequence[RunEntry]") -> None:
    """Print a line for each run, and after them the faults of those that cannot be read."""
    out = Console(highlight=False)
    if not out.is_terminal:
        out = Console(highlight=False, width=240)  # a file or a pipe wants whole lines
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("", "run", "made", "time", "source", "solver"):
        table.add_column(column)
    for column in ("points", "RMSE", "CRPS", "NLL", "in 90 %"):
        table.add_column(column, justify="right")
    for column in ("status", "error bars"):
        table.add_column(column)
    for run in runs:
        if run.fault:
            table.add_row("", run.key[:KEY_DIGITS], "", "cannot be read", style="yellow")
            continue
        scores = run.scores
        table.add_row(
            "*" if run.current else "",
            run.key[:KEY_DIGITS],
            run.created[:16].replace("T", " "),
            _span(run.times),
            _plain(_file_name(run.source)),
            _plain(run.solver.partition(",")[0]),
            "" if run.observations is None else f"{run.observations:,}",
            *(_plain(amount(scores[name], run.units)) if name in scores else "" for name in ("rmse", "crps")),
            f"{scores['nll']:.3f}" if "nll" in scores else "",
            f"{scores['coverage']:.1%}" if "coverage" in scores else "",
            _plain(run.status),
            _plain(run.calibration_status),
        )
    out.print(table)
    for run in runs:
        if run.fault:
            out.print(f"{run.key}: {_plain(run.fault)}", style="yellow", soft_wrap=True)


def _file_name(source: str) -> str:
    """Leave the folders of a source out: ``file:era5.grib`` for ``file:/data/era5.grib``."""
    kind, colon, place = source.partition(":")
    return kind + colon + place.rstrip("/").rpartition("/")[2]


def _span(times: "Times") -> str:
    """First time, and how many follow: ``2019-03-01 00:00 + 9``."""
    if not times.size:
        return ""
    first = str(times.min().astype("datetime64[m]")).replace("T", " ")
    return first if times.size == 1 else f"{first} + {times.size - 1}"


def show_fit(job: "Job", fitted: "FittedPrior") -> None:
    """Print the fitted numbers, how well they are known, and a table for the job file."""
    from cagp_dist.service.job_fit import LEVEL, prior_table

    out, result = Console(highlight=False), fitted.result
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("parameter")
    for title in ("estimate", "standard error", f"{LEVEL:.0%} interval"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("meaning", style="dim")
    for (name, value, error), (low, high) in zip(fitted.estimates(), fitted.intervals(), strict=True):
        (is_variance, meaning), *_ = (said for key, said in _NUMBERS.items() if name.startswith(key))
        unit = squared(fitted.units) if is_variance else ""
        known = f"{digits_text(error, 2)} {unit}".strip() if isfinite(error) else "unknown"
        between = f"{digits_text(low, 3)} to {digits_text(high, 3)}" if isfinite(low) else "unknown"
        if name.startswith("lengthscale"):
            meaning = _plain(fitted.space.lengthscale_text(value))
        if name == "noise_variance" and fitted.model.known_noise.any():
            meaning = "beside the noise that is known"
            if fitted.noise_is_held:
                table.add_row(name, "none", "", "", meaning)
                continue
        table.add_row(name, f"{digits_text(value, 4)} {unit}".strip(), known, between, meaning)
    out.print(table if table.rows else fitted.line().partition(", ")[2])
    out.print(f"fitted  to {fitted.where} in {result.seconds:.1f} s", soft_wrap=True)
    if result.choice is not None:
        out.print(f"kernel  {result.choice.line()}", soft_wrap=True)
    if fitted.times > 1:
        out.print(
            f"times   {fitted.times:,} fields of one prior. The standard errors treat them as independent; "
            f"they carry the information of about {fitted.effective_times:.3g} independent fields",
            soft_wrap=True,
        )
    if result.log_likelihood is not None:
        out.print(f"log-likelihood  {result.log_likelihood:.2f}")
    out.print(f"status  {result.status.value}: {_plain(fitted.advice)}", soft_wrap=True)
    out.print(f"\n{escape(prior_table(job.prior, fitted))}", soft_wrap=True)
