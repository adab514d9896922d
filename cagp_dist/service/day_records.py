"""Days of a job that failed: why, how often, and when they are tried again (``OUT/failed-days.json``)."""

import datetime as dt
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cagp_dist.era5.selection import shown_time
from cagp_dist.errors import CagpError, NotReadyError, NumericalError
from cagp_dist.store.atomic_files import whole_file

FILE = "failed-days.json"

LONGEST_WAIT_HOURS = 24.0
"""Between two tries; the second is made in the next pass, the third an hour after it, and so on, doubled."""


@dataclass(frozen=True)
class FailedDay:
    """A time of a job of which there is no result yet."""

    time: str  # ISO 8601, UTC
    kind: str  # "source missing", "damaged", "refused" or "not converged"
    reason: str
    tries: int
    again: str  # ISO 8601, UTC: not tried before, unless asked to

    def line(self) -> str:
        """Say it in one line."""
        return f"{self.time}: {self.kind}, tried {self.tries} times, again from {self.again}. {self.reason}"

    def due(self, now: dt.datetime) -> bool:
        """Whether it may be tried."""
        return dt.datetime.fromisoformat(self.again) <= now


def fault_of(error: CagpError) -> str:
    """Say in a word what is wrong with a day that ended with an error."""
    if isinstance(error, NotReadyError):
        return "source missing"
    if isinstance(error, NumericalError):
        return "not converged"
    return "damaged" if "damaged" in str(error) else "refused"


class DayRecords:
    """The failed days of an output folder; each change is on the disk at once."""

    def __init__(self, root: Path) -> None:
        self._path = root / FILE
        self._all = {day.time: day for day in failed_days(root)}

    def find(self, time: np.datetime64) -> FailedDay | None:
        """Give the record of a time, if it has failed."""
        return self._all.get(shown_time(time))

    def failed(self, time: np.datetime64, kind: str, reason: str, *, now: dt.datetime) -> FailedDay:
        """Record that a time has failed, once more perhaps."""
        before = self.find(time)
        tries = 1 if before is None else before.tries + 1
        wait = min(LONGEST_WAIT_HOURS, 2.0 ** (tries - 2)) if tries > 1 else 0.0
        again = (now + dt.timedelta(hours=wait)).isoformat(timespec="seconds")
        day = FailedDay(shown_time(time), kind, reason, tries, again)
        self._all[day.time] = day
        self._write()
        return day

    def done(self, time: np.datetime64) -> None:
        """Forget that a time has failed."""
        if self._all.pop(shown_time(time), None) is not None:
            self._write()

    def _write(self) -> None:
        with whole_file(self._path) as draft:
            draft.write_text(
                json.dumps([asdict(day) for _, day in sorted(self._all.items())], indent=1) + "\n"
            )


def failed_days(root: Path) -> list[FailedDay]:
    """Read the failed days of an output folder, ascending; none where there is no record that can be read."""
    try:
        return [FailedDay(**day) for day in json.loads((root / FILE).read_text())]
    except (OSError, ValueError, TypeError):
        return []
