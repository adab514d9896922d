"""Damage to what lies on the disk: published runs, checkpoints, ingested observations."""

import shutil
import warnings
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import xarray as xr
from zarr.errors import ZarrUserWarning

import cagp_dist as cagp
from cagp_dist.errors import StoreError
from cagp_dist.runtime import SerialExecutor
from cagp_dist.service.jobfile.config import parse_job
from cagp_dist.service.run import run
from cagp_dist.service.verification import verify_run
from cagp_dist.store.batches import DamagedStoreError
from cagp_dist.store.ingested import append_times, open_observations
from cagp_dist.store.memo import FolderMemo, verified
from cagp_dist.store.publish import published
from cagp_dist.store.set_aside import set_aside

from ..jobs import job_text, random_points
from ..problems import regression_problem
from .rows import Row
from .workers import same_bits

NOW = datetime(2020, 1, 1, tzinfo=UTC)


def damage_one(folder: Path, rng: np.random.Generator) -> str:
    """Do something to a file below a folder, and say what; no file is left as it was."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = files[rng.integers(len(files))]
    good, kind = path.read_bytes(), str(rng.choice(["flip", "cut", "delete", "zeros", "exchange", "longer"]))
    bad = bytearray(good)
    if kind == "flip":
        bad[rng.integers(len(good))] ^= 1 << int(rng.integers(8))
    elif kind == "cut":
        del bad[rng.integers(len(good)) :]
    elif kind == "zeros":
        start = rng.integers(len(good))
        bad[start : start + 512] = bytes(len(bad[start : start + 512]))
    elif kind == "longer":
        bad += rng.bytes(int(rng.integers(1, 100)))
    elif kind == "exchange":
        other = files[rng.integers(len(files))]
        bad = bytearray(other.read_bytes())
        if bad != good:
            other.write_bytes(good)
    if kind == "delete" or bytes(bad) == good:
        path.unlink()
        return f"delete {path}"
    path.write_bytes(bad)
    return f"{kind} {path}"


def damaged_stores(count: int, rng: np.random.Generator, folder: Path) -> Row:
    """Damage runs, checkpoints and stores in turn: each is found, and what can be healed is healed."""
    row = Row("damage to a file: bits flipped, cut, deleted, zeroed, exchanged, made longer")
    kinds = (_Run(folder), _Checkpoint(folder), _Observations(folder))
    for number in range(count):
        row.begin(count)
        kind = kinds[number % len(kinds)]
        copy = folder / "copy" / str(number)
        shutil.copytree(kind.template, copy)
        what = damage_one(kind.exposed(copy), rng)
        try:
            with warnings.catch_warnings(action="ignore", category=ZarrUserWarning):
                kind.check(copy)
        except StoreError as error:
            row.expect(str(copy) in str(error), f"{what}: no path in: {error}")
            row.named_errors += 1
            with warnings.catch_warnings(action="ignore", category=ZarrUserWarning):
                row.count(same=kind.healed(copy))
        except Exception as error:
            row.failures.append(f"run {row.runs}: {what}: {type(error).__name__}: {error}")
        else:
            row.failures.append(f"run {row.runs}: {what} was not found")
        shutil.rmtree(copy)
    row.must_have("damages found by name", row.named_errors, at_least=count)
    row.notes.append(
        "of runs, checkpoints and observations a third each; finished: found, by an error that names it; "
        "same bits: the run is done again, the solve continues from the previous checkpoint, observations "
        "are "
        "ingested again"
    )
    return row


class _Run:
    """A published run, found by `cagp verify` and by the job that would take it for done."""

    def __init__(self, folder: Path) -> None:
        self.template = folder / "template-run"
        self.path = run(self._job(self.template)).path

    def _job(self, root: Path):
        return parse_job(
            job_text(
                observations={"source": "synthetic", "grid_degrees": 30.0, "times": ["2020-01-01"]},
                design={"train": random_points(40), "test": random_points(10, seed=1)},
                output={"root": root},
            )
        )

    def exposed(self, copy: Path) -> Path:
        return copy / "runs"

    def check(self, copy: Path) -> None:
        verify_run(copy / "runs" / self.path.name)

    def healed(self, copy: Path) -> bool:
        return published(copy, run_key=self.path.stem) is None


class _Checkpoint:
    """The newest of two checkpoints of a solve."""

    def __init__(self, folder: Path) -> None:
        self.template = folder / "template-checkpoint"
        self._problem = regression_problem(60, q=10)
        self._whole = self._condition(SerialExecutor())
        self._condition(SerialExecutor(), checkpoints=FolderMemo(self.template, seconds=0.0))

    def _condition(self, executor: SerialExecutor, **settings):
        return self._problem.condition(
            cagp.BlockGaussSeidel(3, 30), covariance="diagonal", executor=executor, **settings
        )

    def exposed(self, copy: Path) -> Path:
        return max(copy.rglob("[0-9]" * 6))

    def check(self, copy: Path) -> None:
        verified(self.exposed(copy))

    def healed(self, copy: Path) -> bool:
        return same_bits(
            self._condition(SerialExecutor(), checkpoints=FolderMemo(copy, seconds=0.0)), self._whole
        )


class _Observations:
    """Ingested observations in two batches."""

    def __init__(self, folder: Path) -> None:
        self.template = folder / "template-observations"
        rng = np.random.default_rng(0)
        self._field = xr.Dataset(
            {"t2m": (("time", "latitude", "longitude"), rng.normal(280.0, 5.0, (2, 3, 4)).astype("f4"))},
            coords={
                "time": np.array(["2020-01-01", "2020-01-02"], "datetime64[ns]"),
                "latitude": [-10.0, 0.0, 10.0],
                "longitude": [0.0, 90.0, 180.0, 270.0],
            },
            attrs={"source": "made", "source_sha256": "0" * 64},
        )
        self._append(self.template / "o.zarr")

    def _append(self, store: Path) -> None:
        append_times(store, self._field, batch_bytes=self._field.t2m.nbytes // 2)

    def exposed(self, copy: Path) -> Path:
        return copy / "o.zarr"

    def check(self, copy: Path) -> None:
        open_observations(copy / "o.zarr")

    def healed(self, copy: Path) -> bool:
        """Do what an ingest does."""
        store = copy / "o.zarr"
        try:
            self._append(store)
            open_observations(store)
        except DamagedStoreError as error:
            set_aside(error.store, now=NOW)
            self._append(store)
        return bool(open_observations(store).t2m.equals(self._field.t2m))
