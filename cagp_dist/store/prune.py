"""Removal of old runs from an output folder: the current one stays, and each is there whole or not at all."""

import json
import logging
import os
import shutil
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cagp_dist.digest import read_regular
from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.store import manifest
from cagp_dist.store.batches import PRELIMINARY
from cagp_dist.store.lock import output_lock, unused
from cagp_dist.store.manifest import disk_errors, folder_bytes
from cagp_dist.store.packed import pack_run
from cagp_dist.store.publish import current_run, verify_files
from cagp_dist.store.published_variables import ERROR_DRAWS, ERRORS_OF, STATE
from cagp_dist.store.retention import KeptRun, Retention, beyond

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


def prune_runs(root: Path, keep: Retention, *, since: str | None = None) -> list[Path]:
    """Remove those that are not in use, with manifests and reports; a kill leaves each whole or gone."""
    _runs_in(root)  # no folder is made where there is none
    removed = []
    with output_lock(root):
        for run in old_runs(root, keep, since=since):
            with disk_errors(run), unused(run) as free:
                if not free:
                    _log.warning("%s is being read, and stays until the next time", run)
                    continue
                if keep.pack and (wrong := _packed_in_vain(root, run)):
                    _log.warning("%s is not packed, and stays: %s", run, wrong)
                    continue
                os.rename(run, root / ".staging" / run.name)
                manifest.manifest_path(run).unlink(missing_ok=True)
                removed.append(run)
        with disk_errors(root):
            for left in (root / "runs").glob("*.sha256"):  # by a kill between the two lines above
                if not left.with_suffix(".zarr").exists():
                    left.unlink()
        manifest.sync(root / "runs")
        for run in removed:
            shutil.rmtree(root / ".staging" / run.name, ignore_errors=True)
            shutil.rmtree(root / "report" / run.stem, ignore_errors=True)
    return removed


def _runs_in(root: Path) -> dict[str, Path]:
    """List the runs of an output folder by their keys; an error if there is none."""
    paths = {path.stem: path for path in (root / "runs").glob("*.zarr")}
    if not paths:
        raise ConfigurationError(
            f"there is no published run in {root}; expected the folder that [output] root of a job names."
        )
    return paths


def _packed_in_vain(root: Path, run: Path) -> StoreError | None:
    """Pack a run; a damaged one, whose fault is returned, waits for somebody to look."""
    try:
        verify_files(run)
    except StoreError as error:
        return error
    pack_run(root, run)
    return None


def about_run(key: str, document: Mapping[str, Any]) -> KeptRun:
    """Read what decides from the metadata of a run, the ``zarr.json`` of its root."""
    attributes, groups = document["attributes"], document.get("consolidated_metadata", {}).get("metadata", {})
    kinds = [groups[name]["attributes"].get(ERRORS_OF, "") for name in (ERROR_DRAWS, STATE) if name in groups]
    times = [str(attributes.get(f"time_coverage_{end}", "")) for end in ("start", "end")]
    return KeptRun(
        key,
        datetime.fromisoformat(str(attributes["date_created"])).astimezone(UTC),
        job=" ".join([_asked_for(str(attributes.get("job", key))), *times]),
        preliminary=PRELIMINARY in attributes,
        last=times[1],
        previous=json.loads(attributes.get("previous", "{}")).get("run") or "",
        chain=next(iter(kinds), ""),
    )


def _asked_for(text: str) -> str:
    """Give what a job asks for, without its times, which a command may have replaced, and comments."""
    try:
        tables = tomllib.loads(text)
        tables.get("observations", {}).pop("times", None)
    except (ValueError, AttributeError):
        return text
    return json.dumps(tables, sort_keys=True, default=str)


def _about(run: Path) -> KeptRun:
    """Read what decides on a run; one that cannot be read was made at the date of its folder."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return about_run(run.stem, json.loads(read_regular(run / "zarr.json")))
    return KeptRun(run.stem, datetime.fromtimestamp(run.stat().st_mtime, UTC))
