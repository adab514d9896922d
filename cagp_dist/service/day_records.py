"""Days of a job: those that were planned, and of those that failed why, how often and when they are due.

They lie in ``OUT/days.json``. A file whose times cannot be read stands there by its path.
"""

import datetime as dt
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.errors import CagpError, DamagedFileError, NotReadyError, NumericalError, StoreError
from cagp_dist.store.atomic_files import whole_file
from cagp_dist.store.publish import output_lock
from cagp_dist.text import counted

FILE = "days.json"

NOT_CONVERGED, NOT_READY, DAMAGED, REFUSED = "not converged", "source missing", "damaged", "refused"

LONGEST_WAIT_HOURS = 24.0  # the second try is in the next pass, the third an hour later, and so on, doubled


@dataclass(frozen=True)
class FailedDay:
    """A time of a job of which there is no result yet, or a file whose times are not known."""

    what: str  # ISO 8601, UTC; or the path of a file
    kind: str  # NOT_CONVERGED, NOT_READY, DAMAGED or REFUSED
    reason: str
    tries: int
    again: str  # ISO 8601, UTC: not tried before, unless asked to
    job: str  # digest of the job that failed: a job that was mended does not wait

    def line(self) -> str:
        """Say it in one line."""
        return (
            f"{self.what}: {self.kind}, tried {counted(self.tries, 'time')}, again from {self.again}. "
            f"{self.reason}"
        )

    @property
    def time(self) -> np.datetime64 | None:
        """The time; None of a file."""
        with suppress(ValueError):
            return np.datetime64(self.what, "ns")
        return None

    def due(self, now: dt.datetime, job: str) -> bool:
        """Whether it may be tried, by a job of this digest."""
        return job != self.job or dt.datetime.fromisoformat(self.again) <= now


def fault_of(error: CagpError) -> str:
    """Say in a word what is wrong with a day that ended with an error."""
    kinds = {NotReadyError: NOT_READY, NumericalError: NOT_CONVERGED, DamagedFileError: DAMAGED}
    return next((word for kind, word in kinds.items() if isinstance(error, kind)), REFUSED)


def written_day(time: np.datetime64) -> str:
    """Write a time as records have it."""
    return str(time.astype("datetime64[s]"))


@dataclass
class DayRecords:
    """The days of an output folder."""

    planned: set[str] = field(default_factory=set)
    failed: dict[str, FailedDay] = field(default_factory=dict)

    @classmethod
    def read(cls, root: Path) -> "DayRecords":
        """Read them; raises `StoreError` where they cannot be understood."""
        try:
            found = json.loads((root / FILE).read_text())
            failed = [FailedDay(**day) for day in found["failed"]]
            return cls(set(found["planned"]), {day.what: day for day in failed})
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise StoreError(
                f"{root / FILE} cannot be read ({error}). Remove it, and the days that failed are tried anew."
            ) from error

    def times(self) -> Times:
        """List the times of the failed days, ascending."""
        found = [day.time for day in self.failed.values() if day.time is not None]
        return np.unique(np.array(found, dtype="datetime64[ns]"))


def note_planned(root: Path, times: Times, damaged: Sequence[FailedDay]) -> list[FailedDay]:
    """Record which times were planned, and which files could not be read for it, in place of those before."""
    with output_lock(root):
        records = DayRecords.read(root)
        before = {what: day for what, day in records.failed.items() if day.time is None}
        for what in before:
            del records.failed[what]
        records.planned |= set(map(written_day, times))
        found = [_again(before.get(day.what), day, hours=0.0) for day in damaged]
        records.failed |= {day.what: day for day in found}
        _write(root, records)
    return found


def note_failed(root: Path, day: FailedDay) -> FailedDay:
    """Record that a day has failed, once more perhaps; its ``again`` is now, and is put off."""
    with output_lock(root):
        records = DayRecords.read(root)
        before = records.failed.get(day.what)
        tries = 1 if before is None else before.tries + 1
        wait = 0.0 if tries == 1 or day.kind == NOT_READY else min(LONGEST_WAIT_HOURS, 2.0 ** (tries - 2))
        found = _again(before, day, hours=wait)
        records.failed[day.what] = found
        _write(root, records)
    return found


def note_done(root: Path, time: np.datetime64) -> None:
    """Forget that a time has failed."""
    with output_lock(root):
        records = DayRecords.read(root)
        if records.failed.pop(written_day(time), None) is not None:
            _write(root, records)


def _again(before: FailedDay | None, day: FailedDay, *, hours: float) -> FailedDay:
    again = dt.datetime.fromisoformat(day.again) + dt.timedelta(hours=hours)
    tries = 1 if before is None else before.tries + 1
    return FailedDay(**{**asdict(day), "tries": tries, "again": again.isoformat(timespec="seconds")})


def _write(root: Path, records: DayRecords) -> None:
    with whole_file(root / FILE) as draft:
        failed = [asdict(records.failed[what]) for what in sorted(records.failed)]
        found = {"planned": sorted(records.planned), "failed": failed}
        draft.write_text(json.dumps(found, indent=1) + "\n")
