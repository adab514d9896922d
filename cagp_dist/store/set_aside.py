"""Batches moved out of a store of observations, so that their times can be ingested again.

::

    OUT/observations/cds-DIGEST.damaged-20190301T060000Z/      what was damaged, under the names it had
    OUT/observations/cds-DIGEST.preliminary-20200703T060000Z/  preliminary fields that have final ones now
"""

import os
import shutil
from datetime import UTC, datetime
from glob import escape
from pathlib import Path

import numpy as np
import xarray as xr

from cagp_dist.arrays import Times
from cagp_dist.store.batches import DamagedStoreError, check_batch, list_batches, preliminary_times
from cagp_dist.store.durable_files import disk_errors, sync
from cagp_dist.store.ingested import check_root, stage_root, writing

KEPT = 5  # how many folders with preliminary fields of a store are kept


def set_aside(store: Path, *, now: datetime | None = None) -> Path | None:
    """Move every damaged batch out of a store; what is left can be read and added to."""
    with writing(store) as staging:
        damaged = [folder.name for folder in sorted(store.iterdir()) if folder.is_dir() and _damaged(folder)]
        aside = _move(store, damaged, "damaged", now)
        with disk_errors(store):
            try:
                check_root(store)
            except DamagedStoreError:
                os.replace(stage_root(staging) / "zarr.json", store / "zarr.json")
        sync(store)
    return aside


def _damaged(batch: Path) -> bool:
    try:
        check_batch(batch)
    except DamagedStoreError:
        return True
    return False


def set_aside_preliminary(store: Path, field: xr.Dataset, *, now: datetime | None = None) -> Path | None:
    """Move batches out of a store that have a time as preliminary that a field has as final."""
    if not store.is_dir():
        return None
    with writing(store):
        return _move(store, _superseded(store, field), "preliminary", now)


def times_set_aside(store: Path, field: xr.Dataset) -> Times:
    """Give the times of all batches that `set_aside_preliminary` would move, sorted."""
    batches = list_batches(store) if store.is_dir() else {}
    times = [time for name in (_superseded(store, field) if batches else ()) for time in batches[name].times]
    return np.unique(np.array(times, dtype="datetime64[ns]"))


def _superseded(store: Path, field: xr.Dataset) -> list[str]:
    """Batches that have a time as preliminary that a field has as final."""
    final = np.setdiff1d(field["time"].values, preliminary_times(field))
    return [name for name, batch in list_batches(store).items() if np.isin(batch.preliminary, final).any()]


def remove_old_preliminary(store: Path) -> list[Path]:
    """Remove all but the last `KEPT` folders of preliminary fields, once the final ones were read back."""
    with writing(store):
        old = sorted(store.parent.glob(f"{escape(store.stem)}.preliminary-*"))[:-KEPT]
        for folder in old:
            shutil.rmtree(folder, ignore_errors=True)
    return [folder for folder in old if not folder.exists()]


def _move(store: Path, names: list[str], why: str, now: datetime | None) -> Path | None:
    """Move batches into a folder beside the store, and return it; None if there are none."""
    date = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    aside = store.with_name(f"{store.stem}.{why}-{date}")
    with disk_errors(store):
        for name in names:
            aside.mkdir(exist_ok=True)
            free, number = aside / name, 2
            while free.exists():  # the same batch may be damaged twice within a second
                free, number = aside / f"{name}-{number}", number + 1
            os.rename(store / name, free)
    if not names:
        return None
    for changed in (store, store.parent):
        sync(changed)
    return aside
