"""Removal of old runs from an output folder: the current one stays, and each is there whole or not at all."""

import os
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from cagp_dist.errors import ArgumentError, ConfigurationError, StoreError
from cagp_dist.store import manifest
from cagp_dist.store.lock import output_lock
from cagp_dist.store.manifest import disk_errors
from cagp_dist.store.publish import current_run
from cagp_dist.store.zarr_arrays import open_group


def old_runs(root: Path, *, keep: int) -> list[Path]:
    """List the runs of an output folder beyond the newest, oldest first; never the current one."""
    if keep < 1:
        raise ArgumentError(f"keep is {keep}; expected at least 1 run to keep.")
    if not any((root / "runs").glob("*.zarr")):
        raise ConfigurationError(
            f"there is no published run in {root}; expected the folder that [output] root of a job names."
        )
    current = current_run(root)
    runs = sorted((root / "runs").glob("*.zarr"), key=_made)
    return [path for path in runs[:-keep] if path != current]


def prune_runs(root: Path, *, keep: int) -> list[Path]:
    """Remove old runs with their manifests and reports; a kill at any moment leaves each whole or gone."""
    old_runs(root, keep=keep)  # no folder is made where there is none
    with output_lock(root):
        found = old_runs(root, keep=keep)
        for run in found:
            with disk_errors(run):
                os.rename(run, root / ".staging" / run.name)
                manifest.manifest_path(run).unlink(missing_ok=True)
        with disk_errors(root):
            for left in (root / "runs").glob("*.sha256"):  # by a kill between the two lines above
                if not left.with_suffix(".zarr").exists():
                    left.unlink()
        manifest.sync(root / "runs")
        for run in found:
            shutil.rmtree(root / ".staging" / run.name, ignore_errors=True)
            shutil.rmtree(root / "report" / run.stem, ignore_errors=True)
    return found


def _made(run: Path) -> tuple[str, str]:
    """When a run was made, as ISO 8601; by the date of its folder if it cannot be read."""
    with suppress(StoreError, KeyError), open_group(run) as root:
        return str(root.attrs["date_created"]), run.name
    date = datetime.fromtimestamp(run.stat().st_mtime, UTC)
    return date.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), run.name
