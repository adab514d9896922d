"""Publication of a run: readers see the previous run or this one, whole, whatever happens to the writer.

::

    OUT/.lock                one process at a time writes here
    OUT/.staging/            work in progress; emptied by the next process that holds the lock
    OUT/runs/KEY.zarr        a run, never changed once it is here
    OUT/runs/KEY.sha256      digest of each of its files
    OUT/CURRENT              the key of the run that readers open: the one published last, or the newest of a
                             folder of days

A run is staged, read back and checked, flushed to the disk, and renamed into ``runs``; only then is
``CURRENT`` replaced. A kill at any moment leaves a complete older state and, at most, litter.
"""

import json
import logging
import os
import re
from collections.abc import Container, Mapping
from pathlib import Path

import numpy as np
import xarray as xr

from cagp_dist.digest import read_regular, text_sha256
from cagp_dist.errors import ArgumentError, StoreError
from cagp_dist.store import manifest
from cagp_dist.store import published_variables as layout
from cagp_dist.store.atomic_files import READS, empty_folder, exchange
from cagp_dist.store.durable_files import disk_errors, sync, sync_tree, write_durably
from cagp_dist.store.georeference import georeferenced
from cagp_dist.store.group_dataset import check_group, root_attributes
from cagp_dist.store.lock import output_lock
from cagp_dist.store.zarr_arrays import read_group, write_group
from cagp_dist.store.zarr_files import consolidate
from cagp_dist.text import without_secrets

__all__ = [
    "current_run",
    "forget_current",
    "make_current",
    "output_lock",
    "publish",
    "published",
    "run_key",
    "verify_files",
]

_log = logging.getLogger(__name__)

SERIES = "series.zarr"  # link to the series of all days, in the output folder of a daily job

_KEY = re.compile(r"[0-9a-f]{16,64}")


def publish(
    root: Path, groups: Mapping[str, xr.Dataset], *, run_key: str, attributes: Mapping[str, object]
) -> Path:
    """Publish a run and make it the current one, unless a folder of days has a newer one.

    Call it inside `output_lock`. A key that is published already and verifies is done: nothing is
    written but ``CURRENT``. A published run that is damaged is replaced.

    Parameters
    ----------
    root : path
        Output root; the run is ``root/runs/KEY.zarr``, which is returned.
    groups : mapping of str to Dataset
        Groups as `cagp_dist.store.schema` and `cagp_dist.store.scored_groups` build them.
    run_key : str
        16 to 64 hexadecimal digits, from `run_key`.
    attributes : mapping of str to object
        Attributes of the root group, on top of those `root_attributes` works out; lists and mappings become
        JSON text.

    Raises
    ------
    ArgumentError
        If the key is malformed, there is no group or an attribute cannot be written as JSON.
    StoreError, ConfigurationError
        If a group does not fit the layout, holds NaN or implausible values, or the disk is full or fails; if
        ``root`` is not writable. Nothing is published then.
    """
    if not _KEY.fullmatch(run_key):
        raise ArgumentError(
            f"run_key is {run_key!r}; expected 16 to 64 hexadecimal digits, from run_key(...).", key="run-key"
        )
    if not groups:
        raise ArgumentError(
            "there is no group to publish; expected posterior, calibration and so on.", key="no-groups"
        )
    run = published(root, run_key=run_key)
    if run is None:
        run = _publish_new(root, groups, run_key, _plain_attributes(groups, run_key, attributes))
    advance(root, run)
    return run


def published(root: Path, *, run_key: str) -> Path | None:
    """Path of a run that is published already and verifies, else None: damage is named in the log."""
    run = _run_path(root, run_key)
    if not run.exists():
        return None
    try:
        verify_files(run)
    except StoreError as error:
        _log.warning("a published run is damaged and will be replaced: %s", error)
        return None
    return run


def current_run(root: Path) -> Path | None:
    """Path of the run that ``CURRENT`` names, not verified; None if nothing was published yet.

    Raises `StoreError` if ``CURRENT`` is unreadable or damaged, or names a run that is not there.
    """
    pointer = root / "CURRENT"
    advice = "Run the job again to publish it again, or write the key of a run in OUT/runs into it."
    before = None
    for _ in range(READS):
        try:
            key = read_regular(pointer).decode("ascii", "replace").removesuffix("\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(
                f"cannot read {pointer}: {error.strerror}. {advice}", key="unreadable"
            ) from error
        if not _KEY.fullmatch(key):
            raise StoreError(
                f"{pointer} holds {key[:80]!r}; expected the hexadecimal key of a run. {advice}",
                key="damaged",
            )
        run = _run_path(root, key)
        if run.is_dir():
            return run
        if key == before:
            break  # else a newer run came since it was read, and this one was removed
        before = key
    raise StoreError(f"{pointer} names the run {key}, but {run} is missing. {advice}", key="no-run")


def make_current(root: Path, *, run_key: str) -> None:
    """Point ``CURRENT`` at a published run, in one step. Call it inside `output_lock`."""
    run = _run_path(root, run_key)
    if not run.is_dir():
        raise StoreError(f"there is no run at {run} to make current; publish it first.", key="no-run")
    new = root / ".staging" / f"CURRENT-{os.getpid()}"
    with disk_errors(root / "CURRENT"):
        new.parent.mkdir(exist_ok=True)
        new.unlink(missing_ok=True)
        write_durably(new, f"{run_key}\n")
        os.replace(new, root / "CURRENT")
    sync(root)


def forget_current(root: Path) -> None:
    """Leave no run the current one, until the next is published. Call it inside `output_lock`."""
    with disk_errors(root / "CURRENT"):
        (root / "CURRENT").unlink(missing_ok=True)
    sync(root)


def advance(root: Path, run: Path) -> None:
    """Make a run the current one, but in a folder with a series of days no earlier one over a later one.

    Call it inside `output_lock`.
    """
    try:
        current = current_run(root)
    except StoreError:
        current = None  # a damaged pointer is replaced
    if current is not None and current.stem == run.stem:
        return  # nothing is written where all is done
    if current is not None and (root / SERIES).is_symlink() and _last_time(current) > _last_time(run):
        return
    make_current(root, run_key=run.stem)


def _last_time(run: Path) -> str:
    """Read the last time of a run, as ISO 8601; empty where it has none or cannot be read."""
    try:
        return str(json.loads(read_regular(run / "zarr.json"))["attributes"]["time_coverage_end"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def verify_files(run_path: Path) -> None:
    """Check every file of a published run, in one read of all; `StoreError` names the one that is wrong."""
    manifest.compare(run_path)


def run_key(
    *, job: Mapping[str, object], input_hash: str, tiling: object, dtype: str, numerical_version: str
) -> str:
    """Name of a run: a digest of all that decides its content."""
    content = {
        "job": job,
        "input_hash": input_hash,
        "tiling": tiling,
        "dtype": dtype,
        "code_version": numerical_version,  # it was the version of the package, and keys stay as they were
        "format_version": layout.FORMAT_VERSION,
    }
    return text_sha256(_json("the run key", content))[:32]


def _publish_new(
    root: Path, groups: Mapping[str, xr.Dataset], key: str, attributes: layout.Attributes
) -> Path:
    """Stage, read back, and install."""
    run = _run_path(root, key)
    with empty_folder(root / ".staging" / f"{key}-{os.getpid()}") as stage:
        staged, listing = stage / run.name, stage / "manifest"
        with disk_errors(stage):
            run.parent.mkdir(exist_ok=True)
            write_group(staged, "/", xr.Dataset(attrs=attributes))
            for name, group in groups.items():
                write_group(staged, name, georeferenced(group), sharded=True)
            consolidate(staged)
            for name in groups:
                check_group(name, read_group(staged, name))
            write_durably(listing, manifest.build(staged, name=run.name))
        install(staged, listing, run)
    return run


def install(staged: Path, listing: Path, run: Path, *, without: Container[str] = ()) -> None:
    """Flush a run to the disk, but files that are there, and rename it into place, inside `output_lock`."""
    sync_tree(staged, without=without)
    with disk_errors(run):
        os.replace(listing, manifest.manifest_path(run))
        if run.exists():
            exchange(staged, run)
        else:
            os.rename(staged, run)
    sync(run.parent)


def _plain_attributes(
    groups: Mapping[str, xr.Dataset], key: str, attributes: Mapping[str, object]
) -> layout.Attributes:
    """Attributes of the root: lists and mappings as JSON text, which NetCDF can hold too."""
    merged: dict[str, object] = {**root_attributes(groups, run_key=key), **attributes, "run_key": key}
    plain: layout.Attributes = {}
    for name, given in merged.items():
        value = given.item() if isinstance(given, np.generic) else given
        text = _json(f"attribute {name!r}", value)
        said = value if isinstance(value, str | bool | int | float) else text
        plain[name] = without_secrets(said) if isinstance(said, str) else said
    return plain


def _json(what: str, value: object) -> str:
    """Write a value as JSON, in one way."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"{what} cannot be written as JSON: {error}. Expected text, finite numbers, truth values, "
            "lists and mappings.",
            key="not-json",
        ) from error


def _run_path(root: Path, key: str) -> Path:
    """Where a run lies."""
    return root / "runs" / f"{key}.zarr"
