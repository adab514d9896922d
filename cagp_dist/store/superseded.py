"""Batches of a store of observations whose preliminary fields have final ones now, moved out of their way.

::

    OUT/observations/cds-DIGEST.zarr/                          what is final, or has no final field yet, stays
    OUT/observations/cds-DIGEST.preliminary-20200703T060000Z/  what was used until then; the last few are kept
"""

import os
import shutil
from datetime import UTC, datetime
from glob import escape
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.store import manifest
from cagp_dist.store.batches import list_batches
from cagp_dist.store.ingested import writing
from cagp_dist.store.manifest import disk_errors
from cagp_dist.store.preliminary import preliminary_times
from cagp_dist.store.repair import free_name

KEPT = 5
"""How many folders with preliminary fields of a store are kept."""


def set_aside_preliminary(store: Path, field: xr.Dataset, *, now: datetime | None = None) -> Path | None:
    """Move batches out of a store that have a time as preliminary that a field has as final.

    All times of such a batch (`times_set_aside`) are gone from the store then, and are to be added again.
    """
    if not store.is_dir():
        return None
    date = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    aside = store.with_name(f"{store.stem}.preliminary-{date}")
    with writing(store):
        over = _superseded(store, field)
        with disk_errors(store):
            for name in over:
                aside.mkdir(exist_ok=True)
                os.rename(store / name, free_name(aside / name))
        for changed in (store, store.parent) if over else ():
            manifest.sync(changed)
    return aside if over else None


def times_set_aside(store: Path, field: xr.Dataset) -> NDArray[np.datetime64]:
    """Give the times of all batches that `set_aside_preliminary` would move, sorted."""
    if not store.is_dir():
        return np.array([], dtype="datetime64[ns]")
    batches = list_batches(store)
    return np.unique([time for name in _superseded(store, field) for time in batches[name].times]).astype(
        "datetime64[ns]"
    )


def _superseded(store: Path, field: xr.Dataset) -> list[str]:
    """Batches that have a time as preliminary that a field has as final."""
    final = np.setdiff1d(field["time"].values, preliminary_times(field))
    return [name for name, batch in list_batches(store).items() if np.isin(batch.preliminary, final).any()]


def remove_old_preliminary(store: Path) -> list[Path]:
    """Remove all but the last `KEPT` folders of `set_aside_preliminary`, and return what was removed.

    Call it when the final fields are in the store and were read back from it.
    """
    with writing(store):
        old = sorted(store.parent.glob(f"{escape(store.stem)}.preliminary-*"))[:-KEPT]
        for folder in old:
            shutil.rmtree(folder, ignore_errors=True)
    return [folder for folder in old if not folder.exists()]
