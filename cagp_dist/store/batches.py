"""Batches of fields: Zarr groups that appear whole, never change, and carry the digest of their files.

The name of a batch is its first time and the SHA-256 over the names and contents of all its files. Of some
times a source has the preliminary field alone: ERA5T (``expver`` 0005), which the final ERA5 (0001) replaces
two to three months later. It is the same for most times.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from cagp_dist.arrays import Array, Times
from cagp_dist.digest import text_sha256
from cagp_dist.errors import StoreError
from cagp_dist.store import manifest
from cagp_dist.store.atomic_files import folder_identity
from cagp_dist.store.durable_files import disk_errors, sync, sync_tree
from cagp_dist.store.zarr_arrays import chunk_shape, open_group, verify_chunks, write_group
from cagp_dist.variables.units import cf_units

CHUNK_BYTES = 2 * 2**20
DIMENSIONS = ("time", "latitude", "longitude")

PRELIMINARY = "preliminary_times"  # attribute of a field: its preliminary times, ISO 8601, or absent

_DIGITS = 32


class DamagedStoreError(StoreError):
    """A store of observations holds a batch, or metadata, that is not what was written."""

    def __init__(self, text: str, *, store: Path) -> None:
        super().__init__(
            f"{text} `cagp run` and `cagp ingest` set what is damaged aside and ingest its times again.",
            key="damaged",
        )
        self.what = text
        self.store = store  # its folder; `cagp_dist.store.set_aside.set_aside` takes it


@dataclass(frozen=True, eq=False)
class Batch:
    """What is known of a batch without its fields; arrays are read-only."""

    times: Times  # datetime64[ns]: ascending
    preliminary: Times  # datetime64[ns]: those of them that are preliminary
    variables: tuple[str, ...]  # names with units, such as ``t2m [K]``: one
    latitude: Array  # float64, degrees
    longitude: Array


def list_batches(store: Path) -> dict[str, Batch]:
    """List the batches of a store."""
    folders = [folder for folder in sorted(store.iterdir()) if folder.is_dir()]
    return {folder.name: _opened(folder, folder_identity(folder)) for folder in folders}


@lru_cache(maxsize=2**14)
def _opened(batch: Path, identity: tuple[int, ...]) -> Batch:
    """Open a batch, whose metadata and axes must be those of a batch of its name."""
    try:
        with open_group(batch) as opened:
            times = np.asarray(opened.time.values).astype("datetime64[ns]")
            axes = [opened[axis].values.ndim == 1 for axis in DIMENSIONS]
            whole = all(axes) and [values.dims for values in opened.data_vars.values()] == [DIMENSIONS]
            places = (_shared(opened[axis].values.astype(np.float64).tobytes()) for axis in DIMENSIONS[1:])
            found = Batch(times, preliminary_times(opened), names_with_units(opened), *places)
    except Exception as error:  # exchanged metadata raises whatever a decoder, NumPy or xarray raise
        raise DamagedStoreError(f"batch {batch} is damaged ({error}).", store=batch.parent) from error
    if not (whole and times.size and batch.name.startswith(_first(times))):
        what = f"batch {batch} is damaged: its name is not that of its times."
        raise DamagedStoreError(what, store=batch.parent)
    for values in (found.times, found.preliminary):
        values.flags.writeable = False
    return found


@lru_cache(maxsize=64)
def _shared(axis: bytes) -> Array:
    """Give one array for all batches of a grid."""
    return np.frombuffer(axis, dtype=np.float64)


def names_with_units(dataset: xr.Dataset) -> tuple[str, ...]:
    """Names of the variables of a field, each with its unit in the spelling of CF."""
    return tuple(
        f"{name} [{cf_units(values.attrs.get('units', ''))}]" for name, values in dataset.data_vars.items()
    )


def publish_batch(store: Path, staging: Path, part: xr.Dataset) -> None:
    """Write a batch to the staging folder, flush it to the disk, and rename it into the store."""
    staged = staging / "batch"
    (values,) = part.data_vars.values()
    lengths = chunk_shape(values.shape, item_bytes=values.dtype.itemsize, limit_bytes=CHUNK_BYTES)
    write_group(staged, "/", part, chunks=dict(zip(DIMENSIONS, lengths, strict=True)))
    sync_tree(staged)
    with disk_errors(store):
        os.rename(staged, store / f"{_first(part.time.values)}-{_digest(staged)}")
    sync(store)


def read_batch(batch: Path, times: Times) -> xr.Dataset:
    """Check a batch against its digest, then read those of its times that are wanted."""
    check_batch(batch)
    with open_group(batch) as opened:
        part: xr.Dataset = opened.isel(time=np.isin(opened.time.values, times)).load()
        return part


def check_batch(batch: Path) -> None:
    """Compare the files of a batch with the digest in its name."""
    if _digest(batch) == batch.name[-_DIGITS:]:
        return
    what = f"batch {batch} is damaged: its files do not match the digest in its name."
    try:
        verify_chunks(batch)  # names the chunk, when it is one
    except StoreError as error:
        raise DamagedStoreError(str(error), store=batch.parent) from error
    raise DamagedStoreError(what, store=batch.parent)


def _first(times: Times) -> str:
    return str(times[0].astype("datetime64[m]")).replace("-", "").replace(":", "")


def _digest(batch: Path) -> str:
    return text_sha256(manifest.build(batch, name="batch"))[:_DIGITS]


def is_preliminary(versions: ArrayLike) -> NDArray[np.bool_]:
    """Tell which experiment versions, numbers or text such as ``0005``, are preliminary."""
    given = np.asarray(versions)
    texts = [each.decode() if isinstance(each, bytes) else str(each) for each in given.ravel().tolist()]
    found = [text.strip().lstrip("0").removesuffix(".0") == "5" for text in texts]
    return np.array(found, dtype=bool).reshape(given.shape)


def preliminary_times(field: xr.Dataset) -> Times:
    """List the times of a field that are preliminary, ascending, datetime64[ns]; empty if all are final."""
    said = np.array(str(field.attrs.get(PRELIMINARY, "")).split(), dtype="datetime64[ns]")
    return np.intersect1d(said, field["time"].values)


def marked(field: xr.Dataset, times: ArrayLike) -> xr.Dataset:
    """Give a field the attribute `PRELIMINARY` of those of these times that it has; none, if it has none."""
    left = np.intersect1d(np.asarray(times, dtype="datetime64[ns]"), field["time"].values)
    others = {name: value for name, value in field.attrs.items() if name != PRELIMINARY}
    said = {PRELIMINARY: " ".join(map(str, left.astype("datetime64[s]")))} if left.size else {}
    found = field.copy(deep=False)
    found.attrs = {**others, **said}
    return found


def still_preliminary(parts: Iterable[xr.Dataset]) -> Times:
    """List the times that are preliminary in every part that has them."""
    split = [(left := preliminary_times(part), np.setdiff1d(part["time"].values, left)) for part in parts]
    none = np.empty(0, dtype="datetime64[ns]")
    preliminary, final = (np.concatenate([none, *times]) for times in zip(*split, strict=True))
    return np.setdiff1d(preliminary, final)
