"""Tells a command or a web address how a pass ended; what goes wrong with that is logged and no more."""

import json
import logging
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from cagp_dist.errors import CagpError, FullDiskError, NotReadyError
from cagp_dist.service.daily import Day
from cagp_dist.service.day_records import NOT_READY, written_day
from cagp_dist.service.drift_check import drift_of_series
from cagp_dist.service.jobfile.job import Job
from cagp_dist.service.jobfile.notify_table import REFERENCE, NotifyTable, Occasion
from cagp_dist.store.addresses import in_object_store
from cagp_dist.store.series import current_version
from cagp_dist.text import counted, is_loopback, without_secrets

if TYPE_CHECKING:
    from cagp_dist.service.run import Outcome

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ToldDay:
    """What is told of a day."""

    day: str  # ISO 8601, UTC; or the path of a file whose times cannot be read
    status: str
    reason: str = ""
    run: str = ""  # its key


@dataclass
class PassNotes:
    """What a pass has come to so far: only days that it has tried."""

    done: list[ToldDay] = field(default_factory=list)
    failed: list[ToldDay] = field(default_factory=list)

    def add(self, day: Day) -> None:
        """Take note of a day that was tried; data that are not there yet are no failure."""
        if day.failed is not None:
            if not (day.waits or day.failed.kind == NOT_READY):
                self.failed.append(ToldDay(day.failed.what, day.failed.kind, day.failed.reason))
        elif day.status is not None and day.time is not None:
            self.done.append(ToldDay(written_day(day.time), day.status.value, run=day.run))

    def add_run(self, outcome: "Outcome") -> None:
        """Take note of a run by itself, of one or more times, unless it was there already."""
        if outcome.already_done:
            return
        status, last = outcome.status, written_day(outcome.times[-1])
        if status.ok:
            self.done.append(ToldDay(last, status.value, run=outcome.path.stem if outcome.path else ""))
        else:
            self.failed.append(ToldDay(last, status.value, status.advice))


@contextmanager
def notifying(job: Job) -> Iterator[PassNotes]:
    """Tell whom ``[notify]`` names, once of each occasion, how a pass ended, also one that failed."""
    table, notes = job.notify, PassNotes()
    if table is None:
        yield notes
        return
    root = job.output.root
    about = {"output": root if in_object_store(root) else str(job.output.folder.absolute())}
    try:
        yield notes
    except Exception as error:
        later = isinstance(error, CagpError) and error.exit_code == NotReadyError.exit_code
        if not later or isinstance(error, FullDiskError):  # which nobody but an operator can help
            _tell(table, "failure", str(error), notes.failed, about)
        raise
    if notes.failed:
        _tell(table, "failure", f"{counted(len(notes.failed), 'day')} failed", notes.failed, about)
    if notes.done:
        _tell(table, "success", f"{counted(len(notes.done), 'day')} done", notes.done, about)
        if "drift" in table.on and (said := _drift(job)):
            _tell(table, "drift", said, [], about)


def _drift(job: Job) -> str:
    """Say whether the error bars of the series have drifted; nothing if not."""
    try:
        if in_object_store(job.output.root) or current_version(job.output.folder) is None:
            return ""
        found = drift_of_series(job.output.folder)
    except CagpError as error:
        _log.warning("the drift is not known: %s", error)
        return ""
    return found.alarms()


def _tell(
    table: NotifyTable, occasion: Occasion, text: str, days: list[ToldDay], about: Mapping[str, str]
) -> None:
    """Tell it to all, each within the time limit."""
    if occasion not in table.on:
        return
    text = f"cagp {about['output']}: {without_secrets(text)}"
    told = [asdict(day) | {"reason": without_secrets(day.reason)} for day in days]
    body = json.dumps({"event": occasion, "text": text, **about, "days": told}).encode()
    hooks: list[tuple[str, Callable[[NotifyTable, bytes], None]]] = []
    if table.command is not None:
        hooks.append((table.command[0], _run_command))
    if table.url is not None:
        hooks.append((_host(table.url), _post))
    for whom, hook in hooks:
        try:
            hook(table, body)
        except Exception as error:  # whatever a hook does, the pass goes on
            _log.warning("[notify] %s was not told of %s: %s", whom, occasion, _bare(table, error))


def _host(url: str) -> str:
    """Give what is said of an address: its path may be a secret of letters alone."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}://{re.split('[/?#]', rest.rpartition('@')[2])[0]}" if separator else "url"


def _run_command(table: NotifyTable, body: bytes) -> None:
    """Start the command in a group of its own, which is killed at its end or when time is over."""
    command = [_filled(word) for word in table.command or ()]
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        given.write(body)
        given.seek(0)
        process = subprocess.Popen(
            command, stdin=given, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
        )
        try:
            code = process.wait(table.timeout_seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code:
            said.seek(0)
            last = said.read(10_000).decode("utf-8", "replace").strip()[-300:]
            raise _HookError(f"exit code {code}." if _has_reference(table) else f"exit code {code}. {last}")


class _HookError(Exception):
    """In words of our own, without any value of the environment."""


class _NoRedirect(HTTPRedirectHandler):
    """A redirection would take the headers to another host."""

    def redirect_request(self, *arguments: Any, **settings: Any) -> None:
        return None


def _post(table: NotifyTable, body: bytes) -> None:
    """Post to the address; also a server that answers slowly has no more than the time limit."""
    assert table.url is not None
    url = _filled(table.url)
    if re.search(r"\s", url) or "@" in urlsplit(url).netloc:
        names = ", ".join(REFERENCE.findall(table.url)) or "url"
        raise _HookError(f"{names} has a space or a login in it; expected the address alone")
    loopback = is_loopback(urlsplit(url).hostname)
    if urlsplit(url).scheme != "https" and not loopback:
        raise _HookError("expected https://, or an address of this machine")
    headers = {name: _filled(value) for name, value in (table.headers or {}).items()}
    request = Request(url, body, {"Content-Type": "application/json", "User-Agent": "cagp_dist"} | headers)
    handlers = [_NoRedirect(), *([ProxyHandler({})] if loopback else [])]
    failures: list[Exception] = []

    def send() -> None:
        try:
            build_opener(*handlers).open(request, timeout=table.timeout_seconds).close()
        except Exception as error:
            if isinstance(error, HTTPError):
                error.close()
            failures.append(error)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(table.timeout_seconds)
    if thread.is_alive() or (failures and isinstance(_cause(failures[0]), TimeoutError)):
        raise _HookError(f"no answer within {table.timeout_seconds:g} s")
    if failures:
        raise failures[0]


def _filled(text: str) -> str:
    """Put values of the environment in; raises where one is not set."""
    missing = [name for name in REFERENCE.findall(text) if name not in os.environ]
    if missing:
        raise _HookError(f"{missing[0]} is not set in the environment")
    values = {name: os.environ[name].strip() for name in REFERENCE.findall(text)}
    if wrong := [name for name, value in values.items() if not value.isprintable()]:
        raise _HookError(f"{wrong[0]} has control characters in it")
    return REFERENCE.sub(lambda found: values[found[1]], text)


def _has_reference(table: NotifyTable) -> bool:
    parts = (table.url or "", *(table.headers or {}).values(), *(table.command or ()))
    return any(map(REFERENCE.search, parts))


def _cause(error: Exception) -> object:
    return error.reason if isinstance(error, URLError) and not isinstance(error, HTTPError) else error


def _bare(table: NotifyTable, error: Exception) -> str:
    """Write an error without what came from the environment, which others quote in part, or escaped."""
    if isinstance(error, _HookError) or not _has_reference(table):
        return without_secrets(str(error)) or type(error).__name__
    if isinstance(error, HTTPError):
        return f"HTTP Error {error.code}"
    number = getattr(_cause(error), "errno", None)
    said = f": {os.strerror(number)}" if isinstance(number, int) else ""
    return f"{type(_cause(error)).__name__}{said}"
