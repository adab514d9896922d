"""A small job, its serial result and the comparison of two published runs."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from ..jobs import job_text, map_grid, random_points
from ..ports import closed_port

REPOSITORY = Path(__file__).parents[2]
CAGP = Path(sys.executable).with_name("cagp")

ITERATIONS = 3
JOB = job_text(
    design={"train": random_points(900), "test": random_points(60, seed=1), "map": map_grid(20.0)},
    prior={"lengthscale": 0.05, "variance": 22.0, "noise_variance": 0.5},
    solver={"name": "block-gauss-seidel", "iterations": ITERATIONS, "block_size": 256},
    cluster=None,
)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the working tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """The environment of a process of the cluster: this virtual environment first, one thread each."""
    threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    path = f"{CAGP.parent}:{os.environ['PATH']}:/usr/sbin"
    return {**os.environ, **dict.fromkeys(threads, "1"), "PATH": path}


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """A function that names a TCP port of loopback which nobody listens on."""
    return closed_port


@pytest.fixture(scope="session")
def write_job() -> Callable[..., Path]:
    """A function that writes the small job, with as many iterations as are asked for, into a folder."""

    def write(folder: Path, iterations: int = ITERATIONS) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "small.toml"
        path.write_text(JOB.replace(f"iterations = {ITERATIONS}\n", f"iterations = {iterations}\n"))
        return path

    return write


@pytest.fixture(scope="session")
def serial_run(
    tmp_path_factory: pytest.TempPathFactory, write_job: Callable[..., Path]
) -> Callable[[int], Path]:
    """A function that gives the published run of the small job, computed in one thread of one process."""

    @cache
    def run(iterations: int) -> Path:
        folder = tmp_path_factory.mktemp("serial")
        write_job(folder, iterations)
        command = [CAGP, "run", "small.toml", "--scheduler", "serial"]
        subprocess.run(command, cwd=folder, check=True, timeout=3600, text=True)
        return current_run(folder / "out")

    return run


@pytest.fixture(scope="session")
def assert_same_result(serial_run: Callable[[int], Path]) -> Callable[..., None]:
    """A function that compares the current run of an output folder with the serial one, to the last bit."""

    def compare(output: Path, iterations: int = ITERATIONS) -> None:
        serial, run = serial_run(iterations), current_run(output)
        assert run.name == serial.name, "the run key must not depend on where the work was done"
        for group in ("posterior", "map", "calibration", "trace", "observations"):
            expected = xr.open_zarr(serial, group=group).drop_vars("seconds", errors="ignore").load()
            actual = xr.open_zarr(run, group=group).drop_vars("seconds", errors="ignore").load()
            assert set(actual.variables) == set(expected.variables)
            for name, variable in expected.variables.items():
                found = actual.variables[name]
                assert found.dims == variable.dims
                assert found.dtype == variable.dtype
                np.testing.assert_array_equal(found.values, variable.values, err_msg=f"{group}/{name}")

    return compare


def current_run(output: Path) -> Path:
    """The published run that ``CURRENT`` names."""
    return output / "runs" / f"{(output / 'CURRENT').read_text().strip()}.zarr"
