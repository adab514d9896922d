"""What programs read of a running job: one line of JSON per event, and figures for monitoring at its end."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self

import typer

from cagp_dist.cli.display import Display, reported_errors
from cagp_dist.cli.options import option
from cagp_dist.cli.records import timestamp
from cagp_dist.text import json_line

if TYPE_CHECKING:
    from cagp_dist.service.events import Event
    from cagp_dist.service.metrics import Metrics


_log = logging.getLogger(__name__)


class LogFormat(StrEnum):
    """How progress is written to standard error."""

    TEXT = "text"
    JSON = "json"


LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format",
        "--log",
        help="Write progress to standard error as text, or as one line of JSON per event.",
    ),
]
MetricsOption = Annotated[
    Path | None,
    option(
        "--metrics",
        metavar="FILE",
        help="Write seconds, scores and exit code to this file at the end, in the format of Prometheus.",
    ),
]


class JsonLines:
    """Writes each event as a line of JSON with its time (UTC); a context manager, as `Display` is.

    The keys are ``time``, ``event`` ("start", "progress", "note", "done" or "error"), ``stage``, ``text``,
    and, where they are known, ``fraction`` of the stage that is done, its ``seconds``, and what it took:
    ``tasks``, ``products`` and ``moved_bytes`` (`cagp_dist.runtime.counting.Work`).
    """

    def __init__(self) -> None:
        self._stage = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._write("error", self._stage, str(error) or type(error).__name__)

    def __call__(self, event: "Event") -> None:
        """Write an event."""
        more: dict[str, float] = {}
        if event.kind == "start":
            self._stage = event.stage
        if event.seconds is not None:
            more["seconds"] = round(event.seconds, 3)
        if event.work is not None:
            more |= event.work.counts()
        if event.fraction is not None:
            more["fraction"] = event.fraction
        self._write(event.kind, event.stage, event.text, **more)

    def _write(self, event: str, stage: str, text: str, **more: float) -> None:
        line = {"time": timestamp("milliseconds"), "event": event, "stage": stage, "text": text, **more}
        typer.echo(json_line(line), err=True)


def log_of(log_format: LogFormat) -> Display | JsonLines:
    """Give what shows the events of a job."""
    return JsonLines() if log_format is LogFormat.JSON else Display()


@contextmanager
def reported(*, job: Path, metrics: Path | None, log_format: LogFormat, debug: bool) -> Iterator["Metrics"]:
    """Report errors as `reported_errors` does, and write figures at the end, also of a run that failed."""
    from cagp_dist.service.metrics import Metrics

    gathered, code = Metrics(job.stem), 0
    as_json = log_format is LogFormat.JSON
    try:
        with reported_errors(debug=debug, as_json=as_json):
            yield gathered
    except typer.Exit as leaving:
        code = leaving.exit_code
        raise
    finally:
        if metrics is not None:
            try:
                gathered.write(metrics, code)
            except Exception as error:  # whatever is wrong with the file, the exit code is that of the job
                _log.warning("metrics were not written to %s: %s", metrics, error)
