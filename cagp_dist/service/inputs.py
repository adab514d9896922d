"""Digests of the files that were ingested, so that a file that is another one than before is noticed."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cagp_dist.errors import CagpError
from cagp_dist.store.atomic_files import whole_file
from cagp_dist.text import counted

if TYPE_CHECKING:
    import xarray as xr

RECORD = "inputs.json"


def note_input(store: Path, field: "xr.Dataset", *, reading: str, report: Callable[[str], None]) -> None:
    """Record the digest of what was read, and say so if it is another one than that of the last time.

    The record is ``OUT/observations/inputs.json``.
    """
    path = store.parent / RECORD
    known = _read(path)
    now = {
        "source": str(field.attrs["source"]),
        "sha256": str(field.attrs["source_sha256"]),
        "read": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "store": store.name,
    }
    before = known.get(reading)
    if before is not None and before["sha256"] != now["sha256"]:
        report(
            f"{now['source']} is not what it was on {before['read']} (SHA-256 {before['sha256'][:8]} then, "
            f"{now['sha256'][:8]} now): {_compared(store.with_name(before['store']), field)}"
        )
    elif before is not None:
        return
    with whole_file(path) as draft:
        draft.write_text(json.dumps({**known, reading: now}, indent=1, sort_keys=True) + "\n")


def _compared(before: Path, field: "xr.Dataset") -> str:
    """Say how the values of a field differ from those of a store at the times that both have."""
    from cagp_dist.store.ingested import open_observations

    try:
        old = open_observations(before)
    except CagpError:
        return "what was ingested then cannot be read, and is not compared"
    (name,) = field.data_vars
    times = np.intersect1d(old.time.values, field.time.values)
    then, now = (dataset[name].sel(time=times).values for dataset in (old, field))
    if not times.size or then.shape != now.shape:
        return "it has other times or another grid"
    differ = ~((then == now) | (np.isnan(then) & np.isnan(now)))
    count = int(differ.sum())
    if not count:
        return f"the values of the {counted(times.size, 'time')} that both have are the same"
    return (
        f"{counted(count, 'value')} of {differ.size:,} at the {counted(times.size, 'time')} that both have "
        "differ. If it was not replaced on purpose, it is damaged: fetch it again"
    )


def _read(path: Path) -> dict[str, dict[str, str]]:
    try:
        found = json.loads(path.read_text())
        return {
            key: {name: str(entry[name]) for name in ("source", "sha256", "read", "store")}
            for key, entry in found.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
