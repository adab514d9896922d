"""Days of a job that are not done: why they failed, how often, and when they are due.

They lie in ``OUT/days.json``, those that failed in its first line. A file whose times cannot be read stands
there by its path. What becomes of single days in a pass is appended to ``OUT/days.N.jsonl``, a line each,
until the end of the pass writes the whole; N counts these, so that no line is taken twice.
"""

import datetime as dt
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.errors import (
    AbsentTimeError,
    CagpError,
    DamagedFileError,
    NotReadyError,
    NumericalError,
    StoreError,
    TimeLimitError,
)
from cagp_dist.store.atomic_files import open_lock, whole_file
from cagp_dist.store.durable_files import disk_errors, sync
from cagp_dist.store.publish import output_lock
from cagp_dist.text import counted

FILE = "days.json"
BETWEEN = ",\n"  # its entries

NOT_CONVERGED, NOT_READY, DAMAGED, REFUSED = "not converged", "source missing", "damaged", "refused"
OTHER_GRID = "another grid"
OUT_OF_TIME, NOT_STORED, UNEXPECTED = "out of time", "not stored", "unexpected"

WAIT_SECONDS = 60.0  # for another command at work in the folder, so that nothing is lost

TAIL_BYTES = 2**16  # of a file whose end is looked at: more than a line of the journal

TRIES_BEFORE_WAITING = 2
LASTING_TRIES = 7  # from which on the wait is the longest one
LONGEST_WAIT_HOURS = 24.0  # the second try is in the next pass, the third an hour later, and so on, doubled


@dataclass(frozen=True)
class FailedDay:
    """A time of a job of which there is no result yet, or a file whose times are not known."""

    what: str  # ISO 8601, UTC; or the path of a file
    kind: str  # NOT_CONVERGED, NOT_READY, DAMAGED, REFUSED or another of these words
    reason: str
    tries: int
    again: str  # ISO 8601, UTC: not tried before, unless asked to
    job: str  # digest of the job that failed: a job that was mended does not wait
    is_file: bool = False
    since: str = ""  # ISO 8601, UTC: when it failed first; empty of records that are older than this
    inputs: str = ""  # digest of what it was made of: what has changed since does not wait

    def line(self) -> str:
        """Say it in one line."""
        since = f" since {self.since}" if self.since and self.tries > 1 else ""
        wait = dt.timedelta(hours=_wait_hours(self))
        last = (dt.datetime.fromisoformat(self.again) - wait).isoformat(timespec="seconds")
        then = f"tried again from {self.again}" if wait else "the next pass tries again"
        return (
            f"{self.what}: {self.kind}, tried {counted(self.tries, 'time')}{since}, last {last}; {then}. "
            f"{self.reason}"
        )

    @property
    def word(self) -> str:
        """Say in a word what became of it: data that are not there yet are no failure."""
        return "no data yet" if self.kind == NOT_READY else "failed"

    @property
    def lasting(self) -> bool:
        """Whether it has failed so often that it is tried once a day: it will not mend itself."""
        return self.kind != NOT_READY and self.tries >= LASTING_TRIES

    @property
    def time(self) -> np.datetime64 | None:
        """The time; None of a file."""
        return None if self.is_file else np.datetime64(self.what, "ns")

    def due(self, now: dt.datetime, job: str, inputs: str) -> bool:
        """Whether it may be tried, by a job of this digest and of such inputs.

        A wait that is longer than it was when it began says that the clock was set back: it is over.
        """
        if job != self.job or inputs != self.inputs:
            return True
        left = dt.datetime.fromisoformat(self.again) - now
        return not dt.timedelta(0) < left <= dt.timedelta(hours=_wait_hours(self))


@dataclass(frozen=True)
class DoneDay:
    """A time of a job whose result is in the series."""

    run: str  # key
    inputs: str | None  # digest of what its run was made of; None where only reading that tells


def fault_of(error: CagpError) -> str:
    """Say in a word what is wrong with a day that ended with an error."""
    kinds: dict[type[CagpError], str] = {
        NotReadyError: NOT_READY,
        AbsentTimeError: NOT_READY,
        NumericalError: NOT_CONVERGED,
        DamagedFileError: DAMAGED,
        TimeLimitError: OUT_OF_TIME,
        StoreError: NOT_STORED,
    }
    if error.key == "of-another-grid":
        return OTHER_GRID
    return next((word for kind, word in kinds.items() if isinstance(error, kind)), REFUSED)


def written_day(time: np.datetime64) -> str:
    """Write a time as records have it."""
    return str(time.astype("datetime64[s]"))


@dataclass
class DayRecords:
    """The days of an output folder."""

    planned: set[str] = field(default_factory=set)  # by some pass, and not done yet
    outdated: set[str] = field(default_factory=set)  # done, of other data or another job than the last pass
    failed: dict[str, FailedDay] = field(default_factory=dict)
    done: dict[str, DoneDay] = field(default_factory=dict)
    given_up: set[str] = field(default_factory=set)  # not tried, unless all are; by an operator, who is right

    first: str = ""  # ISO 8601, UTC: no time before it is planned, as the job says; empty: any may be

    without_variable: int = 0  # files of the source that can be read and have none of the variables

    number: int = 0  # of the journal, whose lines come on top

    @classmethod
    def read(cls, root: Path, failed: str = "") -> "DayRecords":
        """Read them, or of one that may have failed alone; raises `StoreError` where that cannot be done."""
        path = root / FILE
        try:
            found = _written(path, only_failed=bool(failed)) if path.exists() else {}
            records = cls(
                set(found.get("planned", ())),
                set(found.get("outdated", ())),
                {day["what"]: FailedDay(**day) for day in found.get("failed", ())},
                {what: DoneDay(*day) for what, day in found.get("done", {}).items()},
                set(found.get("given_up", ())),
                found.get("first", ""),
                found.get("without_variable", 0),
                found.get("journal", 0),
            )
            path = records.journal(root)
            whole, _, _ = (path.read_text() if path.exists() else "").rpartition("\n")
            for line in whole.splitlines():
                if json.dumps(failed)[1:-1] in line:
                    records.take(json.loads(line))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise StoreError(
                f"{path} cannot be read ({error}). Remove it, and the failed days are tried again.",
                key="days-unreadable",
            ) from error
        return records

    def journal(self, root: Path) -> Path:
        """Where changes are appended."""
        return root / f"days.{self.number}.jsonl"

    def take(self, line: Mapping[str, Any]) -> None:
        """Take a line of the journal: a day that is done, or has failed, unless it was given up meanwhile."""
        if "done" in line:
            what, run, inputs = line["done"]
            if what not in self.given_up:
                self.planned.discard(what)
                self.failed.pop(what, None)
                self.done[what] = DoneDay(run, inputs)
        else:
            day = FailedDay(**line["failed"])
            if day.what not in self.given_up:
                self.failed[day.what] = day

    def write(self, root: Path) -> None:
        """Write them all, instead of what is there."""
        self.number += 1
        with whole_file(root / FILE) as draft:
            found = {
                "failed": [asdict(self.failed[what]) for what in sorted(self.failed)],
                "planned": sorted(self.planned),
                "outdated": sorted(self.outdated),
                "given_up": sorted(self.given_up),
                "first": self.first,
                "without_variable": self.without_variable,
                "done": {what: [day.run, day.inputs] for what, day in sorted(self.done.items())},
                "journal": self.number,
            }
            lines = [f"{json.dumps(name)}: {json.dumps(held)}" for name, held in found.items()]
            draft.write_text(f"{{{BETWEEN.join(lines)}}}\n")
        for path in root.glob("days.*.jsonl"):
            path.unlink(missing_ok=True)

    def times(self) -> Times:
        """List the times that are still to be done, failed ones among them, ascending."""
        failed = {what for what, day in self.failed.items() if not day.is_file}
        return np.array(sorted(self.planned | failed), dtype="datetime64[ns]")


@contextmanager
def _changing(root: Path) -> Iterator[DayRecords]:
    """Read the records, and write the whole of what becomes of them, if anything does or did.

    Call it inside `output_lock`.
    """
    records = DayRecords.read(root)
    # what is in them does not change
    before = replace(
        records,
        planned={*records.planned},
        outdated={*records.outdated},
        failed={**records.failed},
        done={**records.done},
        given_up={*records.given_up},
    )
    yield records
    if records != before or records.journal(root).exists():
        records.write(root)


def _append(root: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Append lines to the journal, which are on the disk then; a line that was cut off before them goes."""
    path = DayRecords(number=_number(root)).journal(root)
    with disk_errors(path), os.fdopen(open_lock(path), "r+b") as stream:
        tail, end = _tail(stream)
        begun = end - len(tail.rpartition(b"\n")[2])
        stream.truncate(begun)
        stream.seek(begun)
        stream.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        stream.flush()
        os.fsync(stream.fileno())
        if begun == 0:
            sync(root)


def _number(root: Path) -> int:
    """Read the number of the journal, the last word of the records, without the rest of them."""
    try:
        with (root / FILE).open("rb") as stream:
            found = re.search(rb'"journal":\s*(\d+)\s*\}\s*$', _tail(stream)[0])
    except FileNotFoundError:
        return 0
    return DayRecords.read(root).number if found is None else int(found[1])


def _written(path: Path, *, only_failed: bool) -> dict[str, Any]:
    """Give what the file holds, or its first and its last word."""
    with path.open() as stream:
        first = stream.readline()
        if only_failed and first.endswith(BETWEEN):
            return {**json.loads(first.removesuffix(BETWEEN) + "}"), "journal": _number(path.parent)}
        return dict(json.loads(first + stream.read()))


def _tail(stream: BinaryIO) -> tuple[bytes, int]:
    """Give the last bytes of a file, and its length."""
    end = stream.seek(0, os.SEEK_END)
    stream.seek(max(end - TAIL_BYTES, 0))
    return stream.read(), end


def note_planned(
    root: Path,
    times: Iterable[np.datetime64],
    damaged: Sequence[FailedDay],
    *,
    retry: bool = False,
    first: str | None = None,
    without_variable: int = 0,
) -> list[tuple[FailedDay, bool]]:
    """Record which times were planned, and which files could not be read for it, instead of those before.

    Those that were planned before or failed, and are earlier than ``first``, are forgotten.
    Gives what is recorded of each file, and whether it waits: it has failed like this before, and is not due.
    """
    found = []
    with output_lock(root, wait_seconds=WAIT_SECONDS), _changing(root) as records:
        for day in damaged:
            known = records.failed.get(day.what)
            now = dt.datetime.fromisoformat(day.again)
            if known is None or known.reason != day.reason or retry or known.due(now, day.job, day.inputs):
                found.append((_once_more(known, day), False))
            else:
                found.append((known, True))
        kept = {what: day for what, day in records.failed.items() if not day.is_file}
        records.failed = kept | {day.what: day for day, _ in found}
        records.planned |= (planned := set(map(written_day, times)))
        records.given_up -= planned
        records.without_variable = without_variable
        if first is not None:
            records.first = first
            records.planned = {what for what in records.planned if what >= first}
            records.failed = {
                what: day for what, day in records.failed.items() if day.is_file or what >= first
            }
    return found


def note_given_up(root: Path, times: Iterable[np.datetime64]) -> None:
    """Record that times are given up: passes leave them out, unless all are tried.

    Call it inside `output_lock`.
    """
    with _changing(root) as records:
        for what in map(written_day, times):
            records.given_up.add(what)
            records.planned.discard(what)
            records.outdated.discard(what)
            records.failed.pop(what, None)
            records.done.pop(what, None)


def note_failed(root: Path, day: FailedDay) -> FailedDay:
    """Record that a day has failed, once more perhaps; its ``again`` is now, and is put off."""
    with output_lock(root, wait_seconds=WAIT_SECONDS):
        found = _once_more(DayRecords.read(root, failed=day.what).failed.get(day.what), day)
        _append(root, [{"failed": asdict(found)}])
    return found


def note_done(root: Path, days: Mapping[np.datetime64, DoneDay]) -> None:
    """Record that times are done."""
    with output_lock(root, wait_seconds=WAIT_SECONDS):
        _append(root, ({"done": [written_day(time), day.run, day.inputs]} for time, day in days.items()))


def note_outdated(root: Path, times: Iterable[np.datetime64]) -> None:
    """Record which times are done of other data, or by another job, than those of today."""
    with output_lock(root, wait_seconds=WAIT_SECONDS), _changing(root) as records:
        records.outdated = set(map(written_day, times))


def _once_more(before: FailedDay | None, day: FailedDay) -> FailedDay:
    """Count a failure beside those before it, and put the next try off."""
    if before is None:
        return replace(day, since=day.again)
    found = replace(day, tries=before.tries + 1, since=before.since)
    again = dt.datetime.fromisoformat(day.again) + dt.timedelta(hours=_wait_hours(found))
    return replace(found, again=again.isoformat(timespec="seconds"))


def _wait_hours(day: FailedDay) -> float:
    """Tell how long after its last try a day waits for the next one."""
    if day.kind == NOT_READY or day.tries < TRIES_BEFORE_WAITING:
        return 0.0
    return min(LONGEST_WAIT_HOURS, 2.0 ** (day.tries - TRIES_BEFORE_WAITING))
