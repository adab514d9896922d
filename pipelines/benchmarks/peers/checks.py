"""Gross errors found by us and by titanlib's spatial consistency test: the same stations, the same errors.

    python -m pipelines.benchmarks.peers.checks [--environments FOLDER] [--geostat FOLDER] [--data FILE]

Highest and lowest temperatures of November 1989 at some 200 stations in Colorado, with their elevation, and
temperatures of ERA5 at 300 points of the British Isles, six hours one day apart, read with an error of 0.3 K.
None, 1, 2 or 5 % of the values, drawn anew each time, are off by 4 to 15 K, up or down. `cagp_dist.check` has
its rate of 0.05, and in Colorado ``mean="elevation"``. titanlib asks for a threshold of the squared error in
standard deviations; three are tried. Prints hits and false flags, summed over draws.
"""

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import cagp_dist as cagp
from cagp_dist.arrays import Mask
from pipelines.benchmarks.peers.catalogue import ADAPTERS, Peer
from pipelines.benchmarks.peers.environments import asked
from pipelines.experiments.hours import stations
from pipelines.experiments.not_normal import DATA
from pipelines.experiments.output import print_table
from pipelines.experiments.real_fields import UNITED_KINGDOM

TITANLIB = Peer(
    "titanlib",
    ADAPTERS / "checks_by_titanlib.py",
    requirements=("titanlib==0.4.0", "numpy==2.4.6"),
    methods=(),
)
SEED, DRAWS, SHARES = 45, 6, (0.0, 0.01, 0.02, 0.05)
SMALLEST, LARGEST = 4.0, 15.0  # K
PLACES, HOURS_APART, READING = 300, 24, 0.3
THRESHOLDS = (4.0, 9.0, 16.0)


def tables(geostat: Path, fields: Path, draws: int) -> dict[str, list[pd.DataFrame]]:
    """Stations of each comparison, one table for each draw: places, perhaps elevations, and values."""
    found: dict[str, list[pd.DataFrame]] = {}
    colorado = pd.read_csv(geostat / "colorado_1989_11.csv").rename(columns={"elevation_m": "elevation"})
    for name, column in (("Colorado, highest", "tmax_degC"), ("Colorado, lowest", "tmin_degC")):
        table = colorado[["latitude", "longitude", "elevation"]].assign(value=colorado[column]).dropna()
        found[name] = [table.reset_index(drop=True)] * draws
    places, values = stations(fields, PLACES, draws * HOURS_APART)
    generator = np.random.default_rng(SEED)
    found["ERA5, an hour"] = [
        places.assign(value=each - 273.15 + READING * generator.standard_normal(PLACES))
        for each in values[::HOURS_APART]
    ]
    return found


def by_us(table: pd.DataFrame) -> tuple[Mask, float]:
    """Give flags, and seconds of processors."""
    worked = time.process_time()
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        mean = "elevation" if "elevation" in table else "constant"
        found = cagp.check(table, value="value", units="degC", mean=mean, progress=False)
    return found["flag"].to_numpy(), time.process_time() - worked


def by_titanlib(table: pd.DataFrame, environments: Path) -> tuple[Mask, float]:
    """Give flags at each threshold (K, n), and seconds of processors for one of them."""
    elevation = table["elevation"] if "elevation" in table else np.zeros(len(table))
    found = asked(
        TITANLIB,
        TITANLIB.adapter,
        folder=environments,
        latitude=table.latitude,
        longitude=table.longitude,
        elevation=elevation,
        values=table.value,
        thresholds=THRESHOLDS,
    )
    return found["flags"], float(found["processor_seconds"]) / len(THRESHOLDS)


def rows(tables: dict[str, list[pd.DataFrame]], environments: Path) -> Iterator[Sequence[str]]:
    """Lines: each table with each share of errors."""
    for name, of_draws in tables.items():
        for share in SHARES:
            hits, false = np.zeros((2, 1 + len(THRESHOLDS)), dtype=int)
            seconds, count = np.zeros(2), 0
            for draw, table in enumerate(of_draws[: 1 if share == 0.0 and "Colorado" in name else None]):
                generator = np.random.default_rng([SEED, draw, round(1000 * share)])
                wrong = np.zeros(len(table), dtype=bool)
                wrong[generator.choice(len(table), round(share * len(table)), replace=False)] = True
                sign = generator.choice([-1.0, 1.0], len(table))
                gross = sign * generator.uniform(SMALLEST, LARGEST, len(table))
                read = table.assign(value=(table.value + np.where(wrong, gross, 0.0)).round(1))
                (ours, taken), (theirs, their_time) = by_us(read), by_titanlib(read, environments)
                flags = np.vstack([ours, theirs])
                hits += (flags & wrong).sum(axis=1)
                false += (flags & ~wrong).sum(axis=1)
                seconds += taken, their_time
                count += 1
            yield (
                name,
                f"{share:.0%}",
                f"{count * round(share * len(of_draws[0]))} of {count * len(of_draws[0]):,}",
                *(f"{a}, {b}" for a, b in zip(hits, false, strict=True)),
                *(f"{each / count:.2g} s" for each in seconds),
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, and print a table."""
    command = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("--environments", type=Path, default=Path(".peers"))
    command.add_argument("--geostat", type=Path, default=DATA)
    command.add_argument("--data", type=Path, default=UNITED_KINGDOM)
    command.add_argument("--draws", type=int, default=DRAWS)
    chosen = command.parse_args(arguments)
    theirs = [f"titanlib, {threshold:g}" for threshold in THRESHOLDS]
    print_table(
        ["temperatures", "errors", "wrong", "check", *theirs, "time of check", "of titanlib"],
        rows(tables(chosen.geostat, chosen.data, chosen.draws), chosen.environments),
    )


if __name__ == "__main__":
    main()
