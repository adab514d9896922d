"""Hours that inform each other: maps from all hours against maps of each hour, on hourly ERA5.

    python -m pipelines.experiments.hours [--quick] [--output FOLDER] [--data FILE]

80 points of the British Isles stand for stations, over 48 hours of March 2019 (2 m temperature). A part of
their values is not told, in three ways: a fifth of all hours of all stations, a day at half of the stations,
a fifth of the stations altogether. `cagp.krige` is called as a user would, for each hour by itself and with
``at="observed"``; kernel, noise and mean are fitted by it. What was not told is scored. Prints a table.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import cagp_dist as cagp
from cagp_dist.arrays import Array, Mask
from cagp_dist.calibration.verification.scores import scores
from cagp_dist.era5.sources import open_source
from pipelines.experiments.output import parser, print_table
from pipelines.experiments.real_fields import UNITED_KINGDOM

LEVEL = 0.9


def stations(path: Path, count: int, hours: int) -> tuple[pd.DataFrame, Array]:
    """Places, and their values (T, n) in K."""
    with tempfile.TemporaryDirectory() as scratch:
        field = open_source(f"file:{path}", cache_directory=Path(scratch))["t2m"][:hours].load()
    chosen = np.random.default_rng(0).choice(field[0].size, count, replace=False)
    rows, columns = np.unravel_index(chosen, field[0].shape)
    places = pd.DataFrame(
        {"latitude": field.latitude.values[rows], "longitude": field.longitude.values[columns]}
    )
    return places, field.values[:, rows, columns].astype(np.float64)


def designs(shape: tuple[int, int]) -> dict[str, Mask]:
    """Which values are told, (T, n)."""
    rng, (hours, count) = np.random.default_rng(1), shape
    of_day = np.ones(shape, dtype=bool)
    of_day[hours // 2 : hours // 2 + min(24, hours // 3), rng.permutation(count)[: count // 2]] = False
    of_stations = np.ones(shape, dtype=bool)
    of_stations[:, rng.permutation(count)[: count // 5]] = False
    return {
        "a fifth of all hours": rng.random(shape) > 0.2,
        "a day at half of the stations": of_day,
        "a fifth of the stations": of_stations,
    }


def predicted(places: pd.DataFrame, values: Array, told: Mask, *, together: bool) -> tuple[Array, Array, str]:
    """Mean and standard deviation of observations (T, n), and the kernel."""
    times = pd.date_range("2019-03-01", periods=len(values), freq="h")
    table = pd.concat([places.assign(time=when) for when in times], ignore_index=True)
    table["temperature (K)"] = values.ravel()
    field = cagp.krige(table[told.ravel()], to=places, at="observed" if together else None, progress=False)
    kernel = field.attrs["kernel"].replace("lengthscale", "l").replace("variance", "v")
    return field["mean"].values, np.hypot(field["std"].values, field.attrs["noise_std"]), kernel


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, and print a table."""
    command = parser(__doc__)
    command.add_argument("--data", type=Path, default=UNITED_KINGDOM, help="GRIB of hours (%(default)s)")
    chosen = command.parse_args(arguments)
    places, values = stations(chosen.data, *((20, 12) if chosen.quick else (80, 48)))
    rows = []
    for what, told in designs(values.shape).items():
        for together in (False, True):
            begun = time.perf_counter()
            mean, std, kernel = predicted(places, values, told, together=together)
            seconds, left_out = time.perf_counter() - begun, ~told
            found = scores(mean[left_out], std[left_out], values[left_out], levels=(LEVEL,))
            rows.append(
                [
                    what,
                    "all hours" if together else "each hour",
                    f"{found.rmse:.3f}",
                    f"{found.crps:.3f}",
                    f"{float(np.asarray(found.coverage).item()):.3f}",
                    f"{seconds:.1f}",
                ]
            )
            print(f"{what}: {kernel}", flush=True)
    print_table(["not told", "from", "RMSE [K]", "CRPS [K]", "90 % coverage", "seconds"], rows)


if __name__ == "__main__":
    main()
