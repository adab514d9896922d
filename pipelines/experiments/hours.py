"""Hours that inform each other: maps from all hours against maps of each hour, on hourly ERA5.

    python -m pipelines.experiments.hours [--quick] [--output FOLDER] [--data FILE]

400 points of the British Isles stand for stations, over 48 hours of March 2019 (2 m temperature). A part of
their values is not told, in three ways: a fifth of all hours of all stations, a day at half of the stations,
a fifth of the stations altogether. `cagp.Kriging` is called as a user would, for each hour by itself and with
``at="observed"``, from the nearest values in space and time and, with the same fit, exactly from all. What
was not told is scored. Prints a table.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import cagp_dist as cagp
from cagp_dist.arrays import Array, Mask
from cagp_dist.calibration.verification.scores import scores
from cagp_dist.fields.sources import open_source
from pipelines.experiments.output import parser, print_table
from pipelines.experiments.real_fields import UNITED_KINGDOM

LEVEL = 0.9
NAMES = {
    (False, "auto"): "each hour",
    (True, "neighbours"): "all hours, neighbours",
    (True, "cholesky"): "all hours, exactly",
}


def stations(path: Path, count: int, hours: int, *, seed: int = 0) -> tuple[pd.DataFrame, Array]:
    """Places, and their values (T, n) in K."""
    with tempfile.TemporaryDirectory() as scratch:
        field = open_source(f"file:{path}", cache_directory=Path(scratch))["t2m"][:hours].load()
    chosen = np.random.default_rng(seed).choice(field[0].size, count, replace=False)
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


def models(places: pd.DataFrame, values: Array, told: Mask) -> Iterator[tuple[str, Array, Array]]:
    """Mean and standard deviation of observations (T, n), of each model by its name."""
    times = pd.date_range("2019-03-01", periods=len(values), freq="h")
    table = pd.concat([places.assign(time=when) for when in times], ignore_index=True)
    table["temperature (K)"] = values.ravel()
    for together, solvers in ((False, ("auto",)), (True, ("neighbours", "cholesky"))):
        model = cagp.Kriging(at="observed" if together else None, progress=False).fit(table[told.ravel()])
        for solver in solvers:
            field = model.set_params(solver=solver).predict(places)
            std = np.hypot(field["std"].values, field.attrs["noise_std"])
            yield NAMES[together, solver], field["mean"].values, std
        print(field.attrs["kernel"].replace("lengthscale", "l").replace("variance", "v"), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, and print a table."""
    command = parser(__doc__)
    command.add_argument("--data", type=Path, default=UNITED_KINGDOM, help="GRIB of hours (%(default)s)")
    chosen = command.parse_args(arguments)
    places, values = stations(chosen.data, *((20, 12) if chosen.quick else (400, 48)))
    rows = []
    for what, told in designs(values.shape).items():
        worked = time.process_time()
        for name, mean, std in models(places, values, told):
            left_out, seconds = ~told, time.process_time() - worked
            found = scores(mean[left_out], std[left_out], values[left_out], levels=(LEVEL,))
            rows.append(
                [
                    what,
                    name,
                    f"{found.rmse:.3f}",
                    f"{found.crps:.3f}",
                    f"{float(np.asarray(found.coverage).item()):.3f}",
                    f"{seconds:.0f}",
                ]
            )
            print(f"{what}: {' '.join(rows[-1][1:])}", flush=True)
            worked = time.process_time()
    print_table(["not told", "from", "RMSE [K]", "CRPS [K]", "90 % coverage", "processor seconds"], rows)


if __name__ == "__main__":
    main()
