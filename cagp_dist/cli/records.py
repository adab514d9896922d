"""What is written on standard error beside progress: records of Python's logging, with their times."""

import logging
import sys
from datetime import UTC, datetime

import typer

from cagp_dist.text import json_line, printable

# Loggers of the cluster's libraries. Where a scheduler is lost they say so many times, with tracebacks.
OTHERS = ("distributed", "tornado", "asyncio", "bokeh")


def timestamp(timespec: str = "seconds") -> str:
    """Write the time, UTC: 2026-01-31T06:00:00Z."""
    return datetime.now(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def stamp() -> str:
    """Give what a line on standard error begins with: the time, or nothing where somebody is watching."""
    return "" if sys.stderr.isatty() else f"{timestamp()} "


class Records(logging.Handler):
    """Writes warnings and errors that were logged, as lines of JSON or of text.

    What the libraries of the cluster (`OTHERS`) say is written as JSON, or for debugging with tracebacks.
    """

    def __init__(self, *, as_json: bool, debug: bool) -> None:
        super().__init__(logging.WARNING)
        self._as_json, self._debug = as_json, debug

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; one that cannot be written is left out, as everywhere in logging."""
        theirs = record.name.partition(".")[0] in OTHERS
        try:
            if self._as_json:
                typer.echo(json_line(_line(record)), err=True)
            elif self._debug or not theirs:
                between = "\n" if self._debug else "\n  "  # no name begins a line of its own
                text = self.format(record) if self._debug else record.getMessage()
                said = between.join(map(printable, text.split("\n")))
                typer.echo(f"{stamp()}{record.levelname}: {said}", err=True)
        except Exception:
            self.handleError(record)


def listen(*, as_json: bool, debug: bool) -> None:
    """Write what is logged from now on, instead of an earlier `Records`."""
    root = logging.getLogger()
    for handler in [*root.handlers]:
        if isinstance(handler, Records):
            root.removeHandler(handler)
    root.addHandler(Records(as_json=as_json, debug=debug))


def _line(record: logging.LogRecord) -> dict[str, str]:
    text, error = record.getMessage(), record.exc_info[1] if record.exc_info else None
    if error is not None:
        text = " ".join(filter(None, [text.strip(), f"({type(error).__name__}: {error})"]))
    return {
        "time": timestamp("milliseconds"),
        "event": "log",
        "level": record.levelname.lower(),
        "logger": record.name,
        "text": text,
    }
