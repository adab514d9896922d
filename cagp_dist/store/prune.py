"""Removal of old runs from an output folder: the current one stays, and each is there whole or not at all.

With them go the copies of files in ``OUT/observations`` that no run left was made from, which nothing reads
but to say how a file has changed. What was fetched from far away stays there.
"""

import json
import logging
import os
import shutil
from collections.abc import Container
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from cagp_dist.digest import read_regular
from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.store import manifest
from cagp_dist.store.durable_files import disk_errors, folder_bytes, sync
from cagp_dist.store.ingested import stored_times
from cagp_dist.store.lock import output_lock, unused
from cagp_dist.store.publish import current_run
from cagp_dist.store.retention import KeptRun, Retention, about_run, beyond

_log = logging.getLogger(__name__)


def old_runs(root: Path, keep: Retention, *, since: str | None = None) -> list[Path]:
    """List the runs of an output folder that do not stay, oldest first; ``since`` as of `beyond`."""
    paths = _runs_in(root)
    current = current_run(root)
    gone = beyond(
        keep,
        map(_about, paths.values()),
        current=None if current is None else current.stem,
        sizes=lambda: {key: folder_bytes(path) for key, path in paths.items()},
        since=since,
    )
    return [paths[key] for key in gone]


def old_copies(root: Path, gone: Container[Path] = ()) -> list[Path]:
    """List the stores of observations that are copies of files, and belong to no run beside those ``gone``.

    These have no time of such a run, and were written before the oldest of them was made: a day that has
    failed keeps its copy, and so do the times that a prior is fitted to, for a while.
    """
    left = [_about(run) for run in _runs_in(root).values() if run not in gone]
    if not left or not all(run.first and run.last for run in left):  # one cannot be read, or has no time
        return []
    spans = np.array([[run.first[:19], run.last[:19]] for run in left], dtype="datetime64[s]")
    oldest = min(run.made for run in left).timestamp()
    found = []
    for store in sorted((root / "observations").glob("file-*.zarr")):
        with suppress(StoreError, OSError):  # a damaged one is set aside by who reads it
            times = stored_times(store).astype("datetime64[s]")[:, None]
            used = ((times >= spans[:, 0]) & (times <= spans[:, 1])).any()
            if not used and store.stat().st_mtime < oldest:
                found.append(store)
    return found


def prune_runs(root: Path, keep: Retention, *, since: str | None = None) -> list[Path]:
    """Remove those that are not in use, with manifests and reports, and `old_copies`.

    A kill leaves each run whole or gone.
    """
    _runs_in(root)  # no folder is made where there is none
    removed = []
    with output_lock(root):
        for run in old_runs(root, keep, since=since):
            with unused(run) as free:
                if not free:
                    _log.warning("%s is being read, and stays until the next time", run)
                    continue
                with disk_errors(run):
                    os.rename(run, root / ".staging" / run.name)
                    manifest.manifest_path(run).unlink(missing_ok=True)
                removed.append(run)
        with disk_errors(root):
            for left in (root / "runs").glob("*.sha256"):  # by a kill between the two lines above
                if not left.with_suffix(".zarr").exists():
                    left.unlink()
        sync(root / "runs")
        for run in removed:
            shutil.rmtree(root / ".staging" / run.name, ignore_errors=True)
            shutil.rmtree(root / "report" / run.stem, ignore_errors=True)
        return removed + _without_copies(root)


def _without_copies(root: Path) -> list[Path]:
    """Remove the copies of files that belong to no run, and the locks of stores that are not there."""
    copies = old_copies(root)
    with disk_errors(root):
        for store in copies:
            os.rename(store, root / ".staging" / store.name)
            shutil.rmtree(root / ".staging" / store.name, ignore_errors=True)
        for left in (root / "observations").glob(".*.zarr.*"):  # nobody writes: the lock is ours
            if left.suffix == ".staging":
                shutil.rmtree(left, ignore_errors=True)
            elif left.suffix == ".lock" and not left.with_name(left.stem.removeprefix(".")).exists():
                left.unlink(missing_ok=True)
    return copies


def _runs_in(root: Path) -> dict[str, Path]:
    """List the runs of an output folder by their keys; an error if there is none."""
    paths = {path.stem: path for path in (root / "runs").glob("*.zarr")}
    if not paths:
        raise ConfigurationError(
            f"there is no published run in {root}; expected the folder that [output] root of a job names.",
            key="no-run",
        )
    return paths


def _about(run: Path) -> KeptRun:
    """Read what decides on a run; one that cannot be read was made at the date of its folder."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return about_run(run.stem, json.loads(read_regular(run / "zarr.json")))
    return KeptRun(run.stem, datetime.fromtimestamp(run.stat().st_mtime, UTC))
