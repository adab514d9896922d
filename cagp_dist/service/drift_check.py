"""Calibration of the last times of the series of an output folder: within chance, or drifted."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cagp_dist.arrays import Array, Indices, Times
from cagp_dist.calibration.verification.calibration_drift import CalibrationDrift, measure_drift
from cagp_dist.calibration.verification.verdict import compact_cells
from cagp_dist.errors import ConfigurationError
from cagp_dist.geometry import unit_sphere
from cagp_dist.store import series
from cagp_dist.store.published_variables import scored_groups, variables_of_run
from cagp_dist.store.zarr_arrays import open_group, read_group
from cagp_dist.text import counted, shown_time

FEWEST_TIMES = 12  # Two in each batch of `cagp_dist.calibration.verification.calibration_drift`
LAST = 30  # How many times are looked at, unless asked otherwise


@dataclass(frozen=True)
class DriftOfVariable:
    """What the last times of a series say of the error bars of a variable."""

    variable: str  # empty where the series has one
    times: Times  # (T,) those that were looked at, ascending
    found: CalibrationDrift | None  # none if there are fewer than `FEWEST_TIMES`, which decide nothing

    @property
    def alarm(self) -> bool:
        """Whether the error bars of these times are wrong by more than chance explains."""
        return self.found is not None and self.found.alarm

    def line(self) -> str:
        """Say it in one line."""
        count, of = len(self.times), f"{self.variable}: " if self.variable else ""
        if self.found is None:
            took = f"{count} of the {FEWEST_TIMES} times that it takes"
            return f"{of}undecided: {took} have held-out observations"
        said, found = "within chance", self.found
        if self.alarm:
            said = f"drift: the error bars are too {'narrow' if found.ratio > 1.0 else 'wide'}"
        return (
            f"{of}{said}: over {count} times, {shown_time(self.times[0])} to {shown_time(self.times[-1])}, "
            f"errors are {found.ratio:.3f} times as large as the error bars say; chance explains "
            f"{found.low:.3f} to {found.high:.3f} ({found.values:,} observations)"
        )


@dataclass(frozen=True)
class DriftOfSeries:
    """What the last times of a series say of the error bars of each variable."""

    variables: tuple[DriftOfVariable, ...]

    @property
    def alarm(self) -> bool:
        """Whether the error bars of any variable are wrong by more than chance explains."""
        return any(each.alarm for each in self.variables)

    def lines(self) -> list[str]:
        """Say it, a line for each variable."""
        return [each.line() for each in self.variables]

    def alarms(self) -> str:
        """Say what has drifted, in one line."""
        return "; ".join(each.line() for each in self.variables if each.alarm)


def drift_of_series(root: Path, *, last: int = LAST) -> DriftOfSeries:
    """Compare the errors at held-out observations of the last times of a series with their error bars."""
    if last < FEWEST_TIMES:
        raise ConfigurationError(
            f"{counted(last, 'time')} cannot decide on a drift; expected --last {FEWEST_TIMES} or more.",
            key="few-times",
        )
    version = series.current_version(root)
    if version is None:
        raise ConfigurationError(
            f"there is no time series in {root}; expected the output folder of `cagp daily`.",
            key="no-series",
        )
    scores = read_group(version, series.SCORES)
    kept = [root / "runs" / f"{key}.zarr" for key in scores[series.RUN_KEY].values]
    runs = {time: run for time, run in zip(scores["time"].values, kept, strict=True) if run.is_dir()}
    groups = {"": "calibration"}
    if runs:
        with open_group(list(runs.values())[-1]) as newest:
            groups = scored_groups(variables_of_run(newest.attrs))
    return DriftOfSeries(
        tuple(
            _drift_of(variable, group, dict(list(runs.items())[-last:]), looks=len(groups))
            for variable, group in groups.items()
        )
    )


def _drift_of(
    variable: str, group: str, runs: Mapping[np.datetime64, Path], *, looks: int
) -> DriftOfVariable:
    """Look at the error bars of one variable in the runs of some times."""
    found = [(time, pit, X) for time, run in runs.items() for pit, X in [_pits(run, group)] if pit.size]
    times: Times = np.array([time for time, *_ in found], dtype="datetime64[ns]")
    if len(found) < FEWEST_TIMES:
        return DriftOfVariable(variable, times, None)
    number = np.repeat(np.arange(len(found)), [pit.size for _, pit, _ in found])
    values, cells = np.concatenate([pit for _, pit, _ in found]), _cells([X for *_, X in found])
    return DriftOfVariable(variable, times, measure_drift(values, times=number, cells=cells, looks=looks))


def _pits(run: Path, group: str) -> tuple[Array, Array]:
    """PIT values of a group of a run, shape (N,), and positions of each, shape (N, p)."""
    with open_group(run, group) as calibration:
        pit = calibration["pit"].values[0]
        if "latitude" in calibration.variables:
            X = unit_sphere(calibration["latitude"].values, calibration["longitude"].values)
        else:
            X = np.stack([calibration["x"].values, calibration["y"].values], axis=1)
    return pit[~np.isnan(pit)], X[~np.isnan(pit)]


def _cells(positions: list[Array]) -> Indices:
    """Compact cell of each position; one that comes again is in the same cell."""
    distinct, index = np.unique(np.concatenate(positions), axis=0, return_inverse=True)
    return compact_cells(distinct)[index.ravel()]
