"""A public benchmark: land surface temperature seen by a satellite, with a third of the cells held out.

    python -m pipelines.experiments.satellite [--quick] [--output FOLDER] [--data FOLDER] [--kernel NAME ...]

FOLDER has ``satellite_train.nc`` and ``satellite_true.nc`` (300 x 500 cells, 4 August 2016) of Heaton et al.
(2019). 105,569 values are there to learn from, 42,740 others are scored. Everything is learnt from the first
by `cagp_dist.krige` as a user calls it; ``--kernel`` has it called with these kernels, "default" without one.
Prints MAE, RMSE, CRPS, interval score and coverage of 95 %, seconds and memory, beside some lines of Table 3
of the paper, and writes ``satellite.json``.
"""

import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import cagp_dist as cagp
from cagp_dist.calibration.verification.scores import scores
from pipelines.experiments.output import parser, print_table, save_rows

DATA = Path("../shared/data/heaton")
LEVEL = 0.95
KERNELS = ("default", "matern", "matern32")
QUICK_ROWS = slice(100, 160)

PUBLISHED = {
    "SPDE": (1.10, 1.53, 0.83, 8.85, 0.97),
    "nearest-neighbour process, conjugate": (1.21, 1.64, 0.85, 7.57, 0.95),
    "nearest-neighbour process, response": (1.24, 1.68, 0.87, 7.50, 0.94),
    "LatticeKrig": (1.22, 1.68, 0.87, 7.55, 0.96),
    "periodic embedding": (1.29, 1.79, 0.91, 7.44, 0.93),
    "multi-resolution approximation": (1.33, 1.85, 0.94, 8.00, 0.92),
}
"""MAE, RMSE, CRPS, interval score and coverage, from Table 3 of the paper."""


@dataclass(frozen=True)
class Found:
    """Scores, what was learnt, and what it took; peak memory is that of the process so far."""

    kernel: str
    learnt: str
    mae: float
    rmse: float
    crps: float
    interval_score: float
    coverage: float
    seconds: float
    processor_seconds: float
    peak_mebibytes: float


def read(folder: Path, rows: slice) -> tuple[xr.DataArray, dict[str, Any], np.ndarray]:
    """Grid of values to learn from, places that are held out, and what was seen there."""
    with xr.open_dataset(folder / "satellite_train.nc") as file:
        train = file["MaskTemp"].isel(latitude=rows).load()
    with xr.open_dataset(folder / "satellite_true.nc") as file:
        truth = file["TrueTemp"].isel(latitude=rows).load()
    held_out = train.isnull() & truth.notnull()
    cells = truth.where(held_out).stack(place=("latitude", "longitude")).dropna("place")
    places = {name: cells[name].values for name in ("latitude", "longitude")}
    return train, places, cells.values


def krige(train: xr.DataArray, places: dict[str, Any], truth: np.ndarray, kernel: str) -> Found:
    """Learn, predict and score."""
    settings = {} if kernel == "default" else {"kernel": kernel}
    begun, worked = time.perf_counter(), time.process_time()
    field = cagp.krige(train, to=places, **settings)
    seconds, worked = time.perf_counter() - begun, time.process_time() - worked
    # what is held out are observations: their noise comes on top
    mean, std = field["mean"].values, np.hypot(field["std"].values, field.attrs["noise_std"])
    scored = scores(mean, std, truth, levels=(LEVEL,))
    return Found(
        kernel=kernel,
        learnt=f"{field.attrs['kernel']}, noise {field.attrs['noise_std']:.3g}",
        mae=float(np.abs(mean - truth).mean()),
        rmse=scored.rmse,
        crps=scored.crps,
        interval_score=float(scored.interval_score[0]),
        coverage=float(scored.coverage[0]),
        seconds=seconds,
        processor_seconds=worked,
        peak_mebibytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Krige with each kernel, print, write."""
    made = parser(__doc__)
    made.add_argument("--data", type=Path, default=DATA, help="folder of the two files (%(default)s)")
    made.add_argument("--kernel", nargs="+", default=KERNELS, metavar="NAME", help="kernels (%(default)s)")
    chosen = made.parse_args(arguments)
    train, places, truth = read(chosen.data, QUICK_ROWS if chosen.quick else slice(None))
    print(f"{int(train.notnull().sum()):,} observed, {len(truth):,} held out", flush=True)
    found = [krige(train, places, truth, kernel) for kernel in chosen.kernel]
    head = ("method", "MAE", "RMSE", "CRPS", "interval score", "coverage", "seconds", "of processors", "MiB")
    rows = [
        (
            f"cagp.krige, kernel {each.kernel}",
            *(f"{value:.3f}" for value in (each.mae, each.rmse, each.crps, each.interval_score)),
            f"{each.coverage:.3f}",
            *(f"{value:.1f}" for value in (each.seconds, each.processor_seconds)),
            f"{each.peak_mebibytes:,.0f}",
        )
        for each in found
    ]
    rows += [(name, *(f"{value:.2f}" for value in values), "", "", "") for name, values in PUBLISHED.items()]
    print_table(head, rows)
    for each in found:
        print(f"{each.kernel}: {each.learnt}", flush=True)
    save_rows(chosen.output / "satellite.json", [asdict(each) for each in found])


if __name__ == "__main__":
    main()
