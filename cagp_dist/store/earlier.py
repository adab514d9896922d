"""Runs of earlier times, from which jobs of later times learn."""

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from cagp_dist.errors import StoreError
from cagp_dist.store import manifest
from cagp_dist.store.zarr_arrays import open_group


@dataclass(frozen=True, eq=False)
class EarlierRun:
    """A run of an earlier time, from its metadata; a damaged one is taken to be the last made of its time."""

    last: np.datetime64  # its last time
    made: str  # when it was made, as ISO 8601
    key: str
    attributes: Mapping[str, object]  # of the group that was asked for
    bring: Callable[[], Path | None]  # its path, fetched if need be; None if it was removed meanwhile
    damage: StoreError | None = None


class EarlierRuns(Protocol):
    """Where earlier runs are looked up: `earlier_runs` of a folder, or `Output.earlier`."""

    def __call__(self, group: str, *, before: np.datetime64) -> Iterator[EarlierRun]: ...


def earlier_runs(
    folder: Path, group: str, *, before: np.datetime64, without: Container[str] = ()
) -> Iterator[EarlierRun]:
    """Find the runs of a folder, but some keys, that have a group and whose times are before a moment."""
    runs = (run for run in (folder / "runs").glob("*.zarr") if run.stem not in without)
    found = (_in_folder(run, group) for run in runs)
    yield from latest_first(found, before=before)


def latest_first(found: Iterable[EarlierRun | None], *, before: np.datetime64) -> Iterator[EarlierRun]:
    """Sort runs, and leave those out that are not before a moment; raise at one that is damaged."""
    moment = whole_seconds(before)
    runs = [run for run in found if run is not None and run.last < moment]
    for run in sorted(runs, key=lambda run: (run.last, run.made, run.key), reverse=True):
        if run.damage is not None:
            raise run.damage
        yield run


def whole_seconds(moment: np.datetime64) -> np.datetime64:
    """Cut a moment to seconds, as runs say their times."""
    seconds: np.datetime64 = moment.astype("datetime64[s]")
    return seconds


def run_metadata(
    key: str, metadata: bytes, group: str, bring: Callable[[], Path | None]
) -> EarlierRun | None:
    """Read the metadata of a run, ``zarr.json`` of its root; None if it has no such group."""
    document = json.loads(metadata)
    root, groups = document["attributes"], document["consolidated_metadata"]["metadata"]
    if group not in groups:
        return None
    last = np.datetime64(str(root["time_coverage_end"]).removesuffix("Z"), "s")
    return EarlierRun(last, str(root.get("date_created", "")), key, groups[group]["attributes"], bring)


def run_at(path: Path, group: str) -> EarlierRun | None:
    """Read the metadata of a run in a folder; None if it has no such group, StoreError if it is damaged."""
    return run_metadata(path.stem, manifest.read_checked(path, "zarr.json"), group, lambda: path)


def _in_folder(run: Path, group: str) -> EarlierRun | None:
    """Read the metadata of a run; of a damaged one its last time, from its coordinate."""
    try:
        return run_at(run, group)
    except StoreError as damage:
        if not _has(run, group):
            return None  # of another kind; or removed meanwhile, where the folder is not locked
        try:
            with open_group(run, group) as values:
                last = whole_seconds(values["time"].values.max())
        except (StoreError, KeyError):
            raise damage from None
        return EarlierRun(last, "~", run.stem, {}, lambda: None, damage)


def _has(run: Path, group: str) -> bool:
    """Whether a run has a group, by its manifest; where that is damaged, by its files."""
    file = f"{group}/zarr.json"
    try:
        return file in manifest.digests_of(run)
    except StoreError:
        return (run / file).is_file()
