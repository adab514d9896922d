"""Check of the time series against its own manifest, and against the published runs that it names."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr

from cagp_dist.arrays import Times
from cagp_dist.errors import StoreError
from cagp_dist.store import series
from cagp_dist.store.atomic_files import read_unless_removed
from cagp_dist.store.zarr_arrays import open_group, read_group

_ADVICE = (
    "Remove the link OUT/series.zarr, and run the daily job for all times that are to be in the series: "
    "those whose runs are published are not solved again."
)


@dataclass(frozen=True)
class CheckedSeries:
    """A series that is whole."""

    version: Path  # What ``OUT/series.zarr`` links to
    times: int  # How many it has
    compared: int  # How many of them were compared with their runs; the runs of the others were removed


def check_series(root: Path) -> CheckedSeries | None:
    """Check every file of the series: each time once, with the values of its run."""
    if series.current_version(root) is None:
        return None
    return read_unless_removed(root / series.NAME, lambda: _check(root))


def _check(root: Path) -> CheckedSeries | None:
    version = series.verify_series(root)
    if version is None:
        return None
    scores = read_group(version, series.SCORES)
    times, keys = scores["time"].values, scores[series.RUN_KEY].values
    names = series.groups_of(version)
    for name in names:
        with open_group(version, name) as group:
            _check_times(version, name, group["time"].values, times)
    compared = 0
    for index, key in enumerate(keys):
        run = root / "runs" / f"{key}.zarr"
        check = partial(_check_time, version, names, times[index], run)
        compared += read_unless_removed(run, check) is not None
    return CheckedSeries(version, len(times), compared)


def _check_times(version: Path, name: str, found: Times, expected: Times) -> None:
    """Look that a group has the times of the scores, ascending, each once."""
    if not (np.diff(found) > np.timedelta64(0)).all():
        raise StoreError(
            f"group {name!r} of {version} has a time twice, or out of order. {_ADVICE}", key="damaged"
        )
    if not np.array_equal(found, expected):
        odd = np.setxor1d(found, expected)[0]
        raise StoreError(
            f"group {name!r} of {version} does not have the times of its scores: {odd} is in one of them "
            f"only. {_ADVICE}",
            key="damaged",
        )


def _check_time(version: Path, names: list[str], time: np.datetime64, run: Path) -> Path:
    """Compare all that the series has of a time with its run, and return the run."""
    published: Mapping[str, xr.Dataset] = series.of_run(run)
    if {*published} != {*names}:
        raise StoreError(
            f"{version} has the groups {', '.join(names)}, and the run {run.stem} {', '.join(published)}. "
            f"{_ADVICE}",
            key="damaged",
        )
    for name, group in published.items():
        with open_group(version, name) as opened:
            there = opened.sel(time=[time]).load()
        for array in map(str, group.data_vars):
            unknown = {series.IS_PRELIMINARY: series.UNKNOWN, series.NUMERICAL_VERSION: ""}
            if array in unknown and (array not in there or there[array].item() == unknown[array]):
                continue  # of a result that is older than this variable
            if array not in there or not there[array].equals(group[array]):
                raise StoreError(
                    f"{name}/{array} of {version} at {time} is not that of the run {run.stem}, which it "
                    f"names. {_ADVICE}",
                    key="damaged",
                )
    return run
