"""Runs of earlier times in an output folder, from which jobs of later times learn."""

import json
import logging
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import numpy as np

from cagp_dist.errors import StoreError
from cagp_dist.store import manifest
from cagp_dist.store.arrays import open_group

_log = logging.getLogger(__name__)


def earlier_runs(
    folder: Path, group: str, *, before: np.datetime64, leave_out_damaged: bool
) -> Iterator[Path]:
    """Find the runs of an output folder that have a group, and whose times are all before a moment.

    Parameters
    ----------
    folder : path
        Output folder.
    group : str
        Name of the group.
    before : datetime64
        The moment.
    leave_out_damaged : bool
        Leave runs out, with a warning, whose metadata do not say their times; what they hold is not looked
        at.

    Yields
    ------
    path
        The latest first; of those of one time, the one that was made last.

    Raises
    ------
    StoreError
        If the metadata of a run are damaged, both its own and those of the group.

    Notes
    -----
    Cost: two small files of each run in the folder.
    """
    found = []
    for run in (folder / "runs").glob("*.zarr"):
        try:
            if (made := _made(run, group)) is not None and made[0] < before:
                found.append((*made, run))
        except StoreError as error:
            if not leave_out_damaged:
                raise
            _log.warning(LEFT_OUT, run.stem, error)
    yield from (run for *_, run in sorted(found, reverse=True))


LEFT_OUT = "the run %s is left out of the earlier ones: %s"
"""A warning: the key of a run, and what is wrong with it."""


def _made(run: Path, group: str) -> tuple[np.datetime64, str] | None:
    """Last time of a run and when it was made; None if it has no such group.

    The second is not known where the metadata of the run are damaged, and those of the group say the first.
    """
    listed = manifest.digests_of(run)
    if f"{group}/zarr.json" not in listed:
        return None
    try:
        attributes = json.loads(_checked(run, "zarr.json", listed))["attributes"]
    except StoreError as damage:
        try:
            for file in listed:
                if file.startswith(f"{group}/time/"):
                    _checked(run, file, listed)
            with open_group(run, group) as values:
                return values["time"].values.max(), ""
        except StoreError:
            raise damage from None
    return moment_of(attributes)


def _checked(run: Path, file: str, listed: Mapping[str, str]) -> bytes:
    """Read a file of a run, and compare it with the manifest."""
    where = run / file
    try:
        content = where.read_bytes()
    except FileNotFoundError:
        content = b""
    if sha256(content).hexdigest() != listed.get(file):
        raise StoreError(
            f"{where} is damaged: its SHA-256 differs from {manifest.manifest_path(run)}. Restore the run "
            "from a copy, or remove it and run its job again."
        )
    return content


def moment_of(attributes: Mapping[str, object]) -> tuple[np.datetime64, str]:
    """Last time of a run and when it was made, from its attributes: runs are sorted by them."""
    last = np.datetime64(str(attributes["time_coverage_end"]).removesuffix("Z"))
    return last, str(attributes.get("date_created", ""))
