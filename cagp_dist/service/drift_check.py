"""Calibration of the last times of the series of an output folder: within chance, or drifted."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cagp_dist.arrays import Array, Indices, Times
from cagp_dist.calibration.verification.calibration_drift import CalibrationDrift, measure_drift
from cagp_dist.calibration.verification.verdict import compact_cells
from cagp_dist.errors import ConfigurationError
from cagp_dist.geometry import unit_sphere
from cagp_dist.store import series
from cagp_dist.store.zarr_arrays import open_group, read_group
from cagp_dist.text import counted, shown_time

FEWEST_TIMES = 12  # Two in each batch of `cagp_dist.calibration.verification.calibration_drift`
LAST = 30  # How many times are looked at, unless asked otherwise


@dataclass(frozen=True)
class DriftOfSeries:
    """What the last times of a series say of the error bars."""

    times: Times  # (T,) those that were looked at, ascending
    found: CalibrationDrift | None  # none if there are fewer than `FEWEST_TIMES`, which decide nothing

    @property
    def alarm(self) -> bool:
        """Whether the error bars of these times are wrong by more than chance explains."""
        return self.found is not None and self.found.alarm

    def line(self) -> str:
        """Say it in one line."""
        count = len(self.times)
        if self.found is None:
            return f"undecided: {count} of the {FEWEST_TIMES} times that it takes have held-out observations"
        said, found = "within chance", self.found
        if self.alarm:
            said = f"drift: the error bars are too {'narrow' if found.ratio > 1.0 else 'wide'}"
        return (
            f"{said}: over {count} times, {shown_time(self.times[0])} to {shown_time(self.times[-1])}, "
            f"errors are {found.ratio:.3f} times as large as the error bars say; chance explains "
            f"{found.low:.3f} to {found.high:.3f} ({found.values:,} observations)"
        )


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
            f"there is no time series in {root}; expected the output folder of `python -m pipelines.daily`.",
            key="no-series",
        )
    scores = read_group(version, series.SCORES)
    runs = [root / "runs" / f"{key}.zarr" for key in scores[series.RUN_KEY].values]
    newest = [at for at, run in enumerate(runs) if run.is_dir()][-last:]
    found = [(at, pit, X) for at in newest for pit, X in [_pits(runs[at])] if pit.size]
    times: Times = scores["time"].values[[at for at, *_ in found]]
    if len(found) < FEWEST_TIMES:
        return DriftOfSeries(times, None)
    number = np.repeat(np.arange(len(found)), [pit.size for _, pit, _ in found])
    pits, cells = np.concatenate([pit for _, pit, _ in found]), _cells([X for *_, X in found])
    return DriftOfSeries(times, measure_drift(pits, times=number, cells=cells))


def _pits(run: Path) -> tuple[Array, Array]:
    """PIT values of a run, shape (N,), and positions of each, shape (N, p)."""
    with open_group(run, "calibration") as calibration:
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
