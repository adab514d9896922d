"""Damaged batches of a store of observations, set aside so that their times can be ingested again.

::

    OUT/observations/cds-DIGEST.zarr/                          what is whole stays
    OUT/observations/cds-DIGEST.damaged-20190301T060000Z/      what is not, under the names it had
"""

import os
from datetime import UTC, datetime
from pathlib import Path

from cagp_dist.store import manifest
from cagp_dist.store.batches import DamagedStoreError, check_batch
from cagp_dist.store.ingested import check_root, stage_root, writing
from cagp_dist.store.manifest import disk_errors


def set_aside(store: Path, *, now: datetime | None = None) -> Path | None:
    """Move every damaged batch out of a store; what is left can be read and added to."""
    date = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    aside = store.with_name(f"{store.stem}.damaged-{date}")
    with writing(store) as staging:
        damaged = [folder for folder in sorted(store.iterdir()) if folder.is_dir() and _is_damaged(folder)]
        with disk_errors(store):
            for folder in damaged:
                aside.mkdir(exist_ok=True)
                os.rename(folder, free_name(aside / folder.name))
            try:
                check_root(store)
            except DamagedStoreError:
                os.replace(stage_root(staging) / "zarr.json", store / "zarr.json")
        for changed in (store, store.parent):
            manifest.sync(changed)
    return aside if damaged else None


def _is_damaged(batch: Path) -> bool:
    try:
        check_batch(batch)
    except DamagedStoreError:
        return True
    return False


def free_name(path: Path) -> Path:
    """Give a name that is not taken: the same batch may be damaged twice within a second."""
    number = 2
    free = path
    while free.exists():
        free, number = path.with_name(f"{path.name}-{number}"), number + 1
    return free
