"""Batches of fields: Zarr groups that appear whole, never change, and carry the digest of their files.

The name of a batch is its first time and the SHA-256 over the names and contents of all its files, so
that a bit that flips anywhere, a file that is cut or gone or added, is found before a number is used.
"""

import os
from pathlib import Path

import numpy as np
import xarray as xr

from cagp_dist.arrays import Times
from cagp_dist.digest import text_sha256
from cagp_dist.errors import StoreError
from cagp_dist.store import manifest
from cagp_dist.store.arrays import chunk_shape, open_group, verify_chunks, write_group
from cagp_dist.store.manifest import disk_errors

CHUNK_BYTES = 2 * 2**20
DIMENSIONS = ("time", "latitude", "longitude")

_DIGITS = 32


def list_batches(store: Path) -> dict[str, Times]:
    """List the batches of a store and their times.

    Parameters
    ----------
    store : path
        Folder of the store.

    Returns
    -------
    dict
        Name of the batch -> times, datetime64[ns] ascending.  About 2 ms per batch.

    Raises
    ------
    StoreError
        If a batch cannot be read.
    """
    batches = {}
    for folder in sorted(store.iterdir()):
        if folder.is_dir():
            with open_group(folder) as batch:
                batches[folder.name] = batch.time.values.astype("datetime64[ns]")
    return batches


def publish_batch(store: Path, staging: Path, part: xr.Dataset) -> None:
    """Write a batch to the staging folder, flush it to the disk, and rename it into the store.

    Parameters
    ----------
    store : path
        Folder of the store.
    staging : path
        Empty folder on the same file system.
    part : xarray.Dataset
        One variable (time, latitude, longitude) float32.

    Raises
    ------
    StoreError
        If the disk refuses; the store is unchanged then.
    """
    staged = staging / "batch"
    (values,) = part.data_vars.values()
    lengths = chunk_shape(values.shape, item_bytes=values.dtype.itemsize, limit_bytes=CHUNK_BYTES)
    write_group(staged, "/", part, chunks=dict(zip(DIMENSIONS, lengths, strict=True)))
    manifest.sync_tree(staged)
    first = str(part.time.values[0].astype("datetime64[m]")).replace("-", "").replace(":", "")
    with disk_errors(store):
        os.rename(staged, store / f"{first}-{_digest(staged)}")
    manifest.sync(store)


def read_batch(batch: Path, times: Times) -> xr.Dataset:
    """Check a batch against its digest, then read those of its times that are wanted.

    Parameters
    ----------
    batch : path
        Folder of the batch.
    times : array of datetime64[ns]
        Wanted times; others than those of the batch do not matter.

    Returns
    -------
    xarray.Dataset
        In memory.

    Raises
    ------
    StoreError
        Naming the chunk, or the batch, that is damaged or incomplete.
    """
    if _digest(batch) != batch.name[-_DIGITS:]:
        verify_chunks(batch)  # names the chunk, when it is one
        raise StoreError(
            f"batch {batch} is damaged: its files do not match the digest in its name. Remove it and ingest "
            "its times again."
        )
    with open_group(batch) as opened:
        part: xr.Dataset = opened.isel(time=np.isin(opened.time.values, times)).load()
        return part


def _digest(batch: Path) -> str:
    return text_sha256(manifest.build(batch, name="batch"))[:_DIGITS]
