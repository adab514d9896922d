"""Measured cases of maps from store to store: two Dask workers against one, and the memory of everybody.

Observations are scattered uniformly over the sphere; Matern 3/2, lengthscale 0.04, noise a fortieth of the
variance. Workers are processes with one thread, each on a processor of its own where there are enough.
"""

import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
import zarr

import cagp_dist as cagp
from pipelines.benchmarks.measuring import Figures, on_sphere, peak_mebibytes
from pipelines.benchmarks.scattered import MOST, PRIOR

if TYPE_CHECKING:
    from distributed import Client

    from cagp_dist.runtime import Executor

CHUNK = 1_000_000
"""Observations that are written at a time."""

SOME, TARGETS = 1_000_000, 1_036_800
"""Observations of the timed case, and cells of its map of a quarter degree."""

RUNS = 1
"""Of each; a quarter to half a minute."""


def stored_workers() -> Figures:
    """Two Dask workers against one: a million points and targets, from store to store and in memory.

    Medians of `RUNS`, by turns, on a cluster that is connected and has run both before.
    """
    taken: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        observed, numbers = write_observations(Path(folder), SOME), count()
        X, targets = on_sphere(SOME, seed=0), on_sphere(TARGETS, seed=1)
        y = np.random.default_rng(2).standard_normal(SOME)

        def stored(executor: "Executor", step: float = 0.25) -> None:
            _mapped(observed, Path(folder) / f"map-{next(numbers)}.zarr", step, executor)

        def in_memory(executor: "Executor", q: int = TARGETS) -> None:
            cagp.condition(PRIOR, X, y, targets[:q], solver=cagp.Neighbours(), executor=executor)

        for workers in (1, 2) * RUNS:  # one cluster at a time: another one takes time, too
            with cluster(workers) as client, cagp.open_executor(client.scheduler.address) as executor:
                stored(executor, 5.0)  # compiled, and imported by workers
                in_memory(executor, 1000)
                for run in (stored, in_memory):
                    start, before = time.perf_counter(), client.run(time.process_time)
                    run(executor)
                    seconds, after = time.perf_counter() - start, client.run(time.process_time)
                    busiest = max(after[worker] - before[worker] for worker in after)
                    taken[f"{run.__name__}_{workers}"].append((seconds, busiest))
    figures: Figures = {}
    for kind, prefix in enumerate(("", "processor_")):
        for name in ("stored", "in_memory"):
            one, two = (statistics.median(each[kind] for each in taken[f"{name}_{k}"]) for k in (1, 2))
            figures |= {f"{prefix}seconds_{name}_1": one, f"{prefix}seconds_{name}_2": two}
            figures[f"{prefix}ratio_{name}"] = one / two
    return figures


def stored_large() -> Figures:
    """10^7 points, maps of 10^5 and 10^6 cells by two Dask workers, with the peak memory of each process."""
    figures: Figures = {}
    with tempfile.TemporaryDirectory() as folder:
        observed = write_observations(Path(folder), MOST)
        for name, step in (("100000", 0.8), ("1000000", 0.25)):
            with cluster(2) as client:  # anew: peaks are those of one map
                start = time.perf_counter()
                _mapped(observed, Path(folder) / f"map-{name}.zarr", step, client)
                figures[f"seconds_{name}"] = time.perf_counter() - start
                figures[f"worker_mebibytes_{name}"] = max(client.run(peak_mebibytes).values())
                figures[f"client_mebibytes_{name}"] = peak_mebibytes()
    return figures


def write_observations(folder: Path, n: int) -> Path:
    """Write n observations to a store, some at a time."""
    path = folder / "observations.zarr"
    group = zarr.create_group(os.fspath(path))
    names = ("latitude", "longitude", "value")
    for name in names:
        group.create_array(
            name, shape=(n,), chunks=(min(n, CHUNK),), dtype="float64", dimension_names=("observation",)
        )
    for start in range(0, n, CHUNK):
        rng, m = np.random.default_rng([0, start]), min(CHUNK, n - start)
        latitude = np.rad2deg(np.arcsin(rng.uniform(-1.0, 1.0, m)))
        values = latitude, rng.uniform(0.0, 360.0, m), rng.standard_normal(m)
        for name, own in zip(names, values, strict=True):
            array = group[name]
            assert isinstance(array, zarr.Array)
            array[start : start + m] = own
    return path


@contextmanager
def cluster(workers: int) -> "Iterator[Client]":
    """Client of processes on this machine, each on a processor of its own if there are so many."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as opened,
        Client(opened, set_as_default=False) as client,
    ):
        addresses, processors = sorted(client.run(os.getpid)), sorted(os.sched_getaffinity(0))
        if len(processors) >= workers:
            for address, processor in zip(addresses, processors, strict=False):
                client.run(_pin, processor, workers=[address])
        yield client


def _pin(processor: int) -> None:
    """Let all threads of this process run on one processor."""
    for task in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(task), {processor})


def _mapped(observed: Path, output: Path, step: float, executor: "Client | Executor") -> xr.Dataset:
    """Map the globe at a resolution in degrees."""
    return cagp.krige_store(
        observed,
        to={
            "latitude": np.arange(-90.0 + step / 2.0, 90.0, step),
            "longitude": np.arange(0.0, 360.0, step),
        },
        output=output,
        prior=PRIOR,
        value="value",
        executor=executor,
    )
