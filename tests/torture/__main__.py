"""Kill, freeze and damage what the program runs on, at random and often, and write down what came of it.

    python -m tests.torture [NAME ...] [--scale FACTOR] [--seed SEED] [--output FILE]

Each scenario is repeated with another draw of moments and victims; the table says how often a result was
there in the end, and how often with the bits of an undisturbed run. Exit code 1 says that something went
otherwise than promised. All of it at scale 1 takes hours.
"""

import argparse
import logging
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np

from .crowds import crowds
from .damage import damaged_stores
from .disks import failing_disks, full_disks
from .inputs import damaged_files, damaged_job_files
from .jobs import jobs_at_once, killed_jobs, killed_schedulers
from .months import killed_months
from .processes import do, purpose
from .rows import Row, Scenario, table
from .season import seasons
from .workers import frozen_workers, kill_storms, killed_workers
from .writes import killed_checkpoints, killed_publications

SCENARIOS: dict[str, tuple[Scenario, int]] = {
    "workers": (partial(killed_workers, points=6000), 100),
    "jobs": (killed_jobs, 200),
    "checkpoints": (killed_checkpoints, 1000),  # which is all
    "publications": (killed_publications, 200),
    "schedulers": (killed_schedulers, 20),
    "frozen": (frozen_workers, 10),
    "storms": (partial(kill_storms, seconds=120.0), 5),
    "failing-disks": (failing_disks, 200),
    "full-disks": (full_disks, 60),
    "damage": (damaged_stores, 2000),
    "at-once": (jobs_at_once, 100),
    "crowds": (crowds, 5),
    "months": (killed_months, 3),
    "season": (seasons, 1),
    "netcdf-4": (partial(damaged_files, kind="netcdf-4"), 5000),
    "netcdf-3": (partial(damaged_files, kind="netcdf-3"), 5000),
    "grib": (partial(damaged_files, kind="grib"), 5000),
    "job-files": (damaged_job_files, 10_000),
}
"""Each scenario with its repetitions at scale 1."""

PACKAGES = ("cagp-dist", "numpy", "scipy", "numba", "dask", "distributed", "zarr", "xarray")


def machine() -> str:
    """Date, machine and versions, in one line."""
    names = (line.partition(": ")[2] for line in _cpuinfo() if line.startswith("model name"))
    model = next(names, platform.machine()).strip()
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, {model}, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}, {versions}"
    )


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.is_file() else []


def _chosen(arguments: Sequence[str] | None) -> argparse.Namespace:
    listed = "\n".join(
        f"  {name:13} {count:6}  {purpose(scenario)}" for name, (scenario, count) in SCENARIOS.items()
    )
    command = argparse.ArgumentParser(
        prog="python -m tests.torture",
        description=f"{__doc__}\nNames, and repetitions at scale 1:\n\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("names", nargs="*", metavar="NAME", help="those to run (all)")
    command.add_argument(
        "--scale", type=float, default=1.0, help="factor of the repetitions, of which at least 1 stays (1)"
    )
    command.add_argument("--seed", type=int, default=0, help="of moments and victims (%(default)s)")
    command.add_argument("--output", type=Path, default=Path("out/torture.md"), help="(%(default)s)")
    chosen = command.parse_args(arguments)
    if unknown := sorted(set(chosen.names) - set(SCENARIOS)):
        command.error(f"there is no scenario {', '.join(unknown)}; expected {', '.join(SCENARIOS)}.")
    if not chosen.scale > 0.0:
        command.error(f"--scale is {chosen.scale:g}; expected a positive factor.")
    return chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """Run scenarios one after the other; the table is written after each."""
    chosen = _chosen(arguments)
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for name in chosen.names or SCENARIOS:
        scenario, count = SCENARIOS[name]
        number = list(SCENARIOS).index(name)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=f"torture-{name}-") as folder:
            row = do(
                scenario,
                max(1, round(chosen.scale * count)),
                np.random.default_rng([chosen.seed, number]),
                Path(folder),
            )
        row.notes.append(f"{(time.monotonic() - began) / 60.0:.0f} minutes")
        rows.append(row)
        chosen.output.write_text(f"{machine()}; seed {chosen.seed}.\n\n{table(rows)}", encoding="utf-8")
    print(table(rows))
    return 0 if all(row.held for row in rows) else 1


def _prepare() -> None:
    """Show how far scenarios are, and not what is said of damage that is meant; one thread each for BLAS."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.ERROR)
    logging.getLogger(__package__).setLevel(logging.INFO)
    logging.getLogger("cagp_dist").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"


if __name__ == "__main__":
    _prepare()
    sys.exit(main())
