"""What an operator asks of an output folder: days done, failed and missing, drift, disk, runs."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.era5.selection import shown_time
from cagp_dist.errors import ConfigurationError
from cagp_dist.service.day_records import DayRecords, FailedDay
from cagp_dist.service.drift_check import DriftOfSeries, drift_of_series
from cagp_dist.store import series
from cagp_dist.store.manifest import folder_bytes
from cagp_dist.store.zarr_arrays import open_group
from cagp_dist.text import bytes_text, counted

SHOWN = 10  # days of a kind that are listed; the others are counted


@dataclass(frozen=True)
class SeriesStatus:
    """What stands in an output folder."""

    done: Times  # (T,) in the series, ascending
    preliminary: Times  # of these, those of preliminary observations (ERA5T)
    missing: Times  # planned by a pass, and in neither the series nor `failed`
    failed: tuple[FailedDay, ...]
    drift: DriftOfSeries | None  # none without a series
    runs: int
    used_bytes: int
    free_bytes: int

    def lines(self) -> list[str]:
        """Say it, a line for each thing and for each failed day."""
        newest = f", newest {shown_time(self.done[-1])}" if self.done.size else ""
        found = [f"done         {counted(self.done.size, 'time')}{newest}"]
        if self.preliminary.size:
            found.append(f"preliminary  {_some(self.preliminary)}")
        found.append(f"missing      {_some(self.missing)}")
        files = sum(day.is_file for day in self.failed)
        beside = f", {counted(files, 'file')} that cannot be read" if files else ""
        found.append(f"failed       {counted(len(self.failed) - files, 'day')}{beside}")
        found += [f"  {day.line()}" for day in self.failed]
        if self.drift is not None:
            found.append(f"error bars   {self.drift.line()}")
        found.append(f"runs         {counted(self.runs, 'run')} kept")
        found.append(f"disk         {bytes_text(self.used_bytes)} used, {bytes_text(self.free_bytes)} free")
        return found


def status_of(root: Path) -> SeriesStatus:
    """Look at an output folder; nothing is changed."""
    if not root.is_dir():
        raise ConfigurationError(f"there is no folder {root}; expected the output folder of a job.")
    version, records = series.current_version(root), DayRecords.read(root)
    done: Times = np.empty(0, dtype="datetime64[ns]")
    preliminary, drift = done, None
    if version is not None:
        with open_group(version, series.SCORES) as scores:
            done = np.asarray(scores["time"].values, dtype="datetime64[ns]")
            if series.IS_PRELIMINARY in scores:
                preliminary = done[scores[series.IS_PRELIMINARY].values == 1]
        drift = drift_of_series(root)
    planned = np.array(sorted(records.planned), dtype="datetime64[ns]")
    failed = np.array(
        [day.time for day in records.failed.values() if not day.is_file], dtype="datetime64[ns]"
    )
    return SeriesStatus(
        done,
        preliminary,
        np.setdiff1d(planned, np.union1d(done, failed)),
        tuple(records.failed[what] for what in sorted(records.failed)),
        drift,
        sum(1 for _ in (root / "runs").glob("*.zarr")),
        folder_bytes(root),
        shutil.disk_usage(root).free,
    )


def _some(times: Times) -> str:
    """Count times and list some of them."""
    listed = ", ".join(map(shown_time, times[:SHOWN]))
    more = f" and {times.size - SHOWN} more" if times.size > SHOWN else ""
    return f"{counted(times.size, 'time')}{': ' if listed else ''}{listed}{more}"
