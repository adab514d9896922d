"""The store of ingested fields: a time that is in it is complete, was checked, and never changes.

::

    OUT/observations.zarr/                             root group
    OUT/observations.zarr/20190301T0000-DIGEST/        batch: one variable (time, latitude, longitude)
    OUT/.observations.zarr.staging/                    work in progress
    OUT/.observations.zarr.lock                        one process at a time writes

A batch appears by one rename and is never touched again. Batches lie in any order; times are sorted on
opening.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cagp_dist.arrays import Times
from cagp_dist.digest import joint_sha256
from cagp_dist.errors import ArgumentError, DataError, StoreError
from cagp_dist.store.atomic_files import empty_folder
from cagp_dist.store.batches import (
    DIMENSIONS,
    Batch,
    DamagedStoreError,
    check_batch,
    list_batches,
    marked,
    names_with_units,
    publish_batch,
    read_batch,
    still_preliminary,
)
from cagp_dist.store.durable_files import disk_errors, sync, sync_tree
from cagp_dist.store.lock import held
from cagp_dist.store.published_variables import CONVENTIONS
from cagp_dist.store.zarr_arrays import content_sha256, open_group, write_group
from cagp_dist.text import missed
from cagp_dist.variables import variable_of

_ROOT = {"Conventions": CONVENTIONS, "title": "Ingested fields, one group per batch of times"}

BATCH_BYTES = 64 * 2**20  # a longer ingest becomes several batches, so that a kill loses at most one


@dataclass(frozen=True)
class IngestResult:
    """What an ingest did."""

    times_added: int  # times that were not in the store before
    times_present: int  # times that were there already, with equal values


def append_times(store: Path, field: xr.Dataset, *, batch_bytes: int = BATCH_BYTES) -> IngestResult:
    """Add the times of a field that are not in the store yet; the store is created when absent.

    A time that is there must have the same values, bit for bit: nothing is written if one differs.
    """
    name = _check_canonical(field)
    with writing(store) as staging:
        _create(store, staging)
        present = _present(store, field)
        new = np.flatnonzero(~present)
        per_batch = max(1, batch_bytes // (field[name].nbytes // present.size))
        for start in range(0, new.size, per_batch):
            publish_batch(store, staging, field.isel(time=new[start : start + per_batch]))
    return IngestResult(times_added=int(new.size), times_present=int(present.sum()))


def open_observations(store: Path, *, times: Sequence[str] | Times | None = None) -> xr.Dataset:
    """Read fields from the store, each batch checked against its digest before a number is used."""
    batches = _batches(store)
    wanted = _wanted(store, _times(batches), times)
    parts = [
        read_batch(store / name, wanted)
        for name, batch in batches.items()
        if np.isin(batch.times, wanted).any()
    ]
    result = xr.concat(
        parts, dim="time", data_vars="minimal", coords="minimal", join="override", combine_attrs="override"
    ).sortby("time")
    for variable in result.variables.values():
        variable.encoding = {}
    sources = dict.fromkeys(str(part.attrs.get("source", "unknown")) for part in parts)
    digests = sorted({str(part.attrs.get("source_sha256", "unknown")) for part in parts})
    result.attrs = {
        "Conventions": CONVENTIONS,
        "source": "; ".join(sources),
        "source_sha256": joint_sha256(digests),
        "content_sha256": content_sha256(result),
    }
    return marked(result, still_preliminary(parts))


def stored_times(store: Path) -> Times:
    """List the times of a store, ascending; no field is read."""
    return _times(_batches(store))


def _batches(store: Path) -> dict[str, Batch]:
    check_root(store)
    return list_batches(store)


def _times(batches: dict[str, Batch]) -> Times:
    none = np.empty(0, dtype="datetime64[ns]")
    return np.unique(np.concatenate([none, *(batch.times for batch in batches.values())]))


def _check_canonical(field: xr.Dataset) -> str:
    """Check the form of a field, and return the name of its variable."""
    names = [str(name) for name in field.data_vars]
    if len(names) != 1 or field[names[0]].dims != DIMENSIONS or field[names[0]].dtype.kind != "f":
        raise ArgumentError(
            f"the field holds {names} with dimensions {dict(field.sizes)}; expected one variable "
            f"{DIMENSIONS} of floating numbers, such as t2m. Bring it into canonical form first.",
            key="not-canonical",
        )
    for axis in DIMENSIONS:
        values = field[axis].values
        if values.size == 0 or not (values[1:] > values[:-1]).all():
            raise ArgumentError(
                f"the {axis}s of the field are empty or not ascending. Bring it into canonical form first.",
                key="not-canonical",
            )
    return names[0]


@contextmanager
def writing(store: Path) -> Iterator[Path]:
    """Hold the lock of a store and give an empty staging folder; what a dead writer left there is removed."""
    with disk_errors(store):
        store.parent.mkdir(parents=True, exist_ok=True)
    with (
        held(store.parent / f".{store.name}.lock", where=store),
        empty_folder(store.parent / f".{store.name}.staging") as staging,
    ):
        yield staging


def check_root(store: Path) -> None:
    """Check the metadata of a store itself, which no batch depends on."""
    if not (store / "zarr.json").is_file():
        if any(store.glob("*/zarr.json")):
            raise DamagedStoreError(f"the metadata {store / 'zarr.json'} is missing.", store=store)
        raise StoreError(
            f"there is no observation store at {store}. Ingest data into it first.", key="no-store"
        )
    try:
        with open_group(store) as root:
            whole = root.attrs == _ROOT and not root.variables
    except StoreError as error:
        raise DamagedStoreError(str(error), store=store) from error
    if not whole:
        raise DamagedStoreError(f"the metadata {store / 'zarr.json'} is damaged.", store=store)


def stage_root(staging: Path) -> Path:
    """Write an empty store to the staging folder and flush it to the disk."""
    staged = staging / "root"
    write_group(staged, "/", xr.Dataset(attrs=_ROOT))
    sync_tree(staged)
    return staged


def _create(store: Path, staging: Path) -> None:
    if (store / "zarr.json").is_file() or any(store.glob("*/zarr.json")):
        check_root(store)
        return
    if store.exists():
        raise StoreError(
            f"{store} exists and is not an observation store. Choose another place or move it away.",
            key="not-a-store",
        )
    with disk_errors(store):
        os.rename(stage_root(staging), store)
    sync(store.parent)


def _present(store: Path, field: xr.Dataset) -> NDArray[np.bool_]:
    """Tell which times are in the store; they must have equal values, and all batches the same grid."""
    times = field.time.values
    present = np.zeros(times.size, dtype=bool)
    (variable,) = field.data_vars
    units = variable_of(str(variable), field[variable].attrs).units
    for name, batch in list_batches(store).items():
        try:
            _check_alike(store, batch, field)
        except StoreError:
            check_batch(store / name)  # a damaged batch says so
            raise
        if not np.isin(batch.times, times).any():
            continue
        stored = read_batch(store / name, times)
        offered = field[variable].sel(time=stored.time).values
        for time, old, new in zip(stored.time.values, stored[variable].values, offered, strict=True):
            # what is there in single precision stays so
            if not np.array_equal(old, new.astype(old.dtype), equal_nan=True):
                apart = np.abs(old - new)[np.isfinite(old) & np.isfinite(new)]
                raise StoreError(
                    f"time {_shown(time)} is in {store} already with other values, which differ by up to "
                    f"{apart.max() if apart.size else np.nan:g} {units}".rstrip()
                    + f"; they came from {stored.attrs.get('source', 'elsewhere')}. "
                    "Nothing was written. Use another output root, or remove this store and ingest again.",
                    key="several-values",
                )
        present |= np.isin(times, batch.times)
    return present


def _check_alike(store: Path, batch: Batch, field: xr.Dataset) -> None:
    """Check that a field has the variable, the unit and the grid of a batch."""
    there, given = batch.variables, names_with_units(field)
    if there != given:
        raise StoreError(
            f"the field holds {given[0]}, and {store} holds {there[0]}; a store holds one variable in one "
            "unit. Use another output root.",
            key="of-another-variable",
        )
    for name, old in (("latitude", batch.latitude), ("longitude", batch.longitude)):
        new = field[name].values
        if old.shape != new.shape or np.abs(old - new).max() > 1e-4:
            raise StoreError(
                f"the field has {new.size} {name}s {new[0]:g}..{new[-1]:g}, and {store} has {old.size} "
                f"{old[0]:g}..{old[-1]:g}; a store holds one grid. Use the same area and grid, or another "
                "output root.",
                key="of-another-grid",
            )


def _wanted(store: Path, available: Times, times: Sequence[str] | Times | None) -> Times:
    if available.size == 0:
        raise DataError(f"{store} holds no time yet. Ingest data into it first.", key="no-times")
    if times is None:
        return available
    try:
        bare = [time.removesuffix("Z") if isinstance(time, str) else time for time in times]
        wanted = np.unique(np.array(bare, dtype="datetime64[ns]"))
    except ValueError as error:
        raise ArgumentError(
            f"times cannot be read ({error}); expected UTC in ISO 8601.", key="times"
        ) from error
    absent = wanted[~np.isin(wanted, available)]
    if absent.size or wanted.size == 0:
        example = f" (such as {_shown(absent[0])})" if absent.size else ""
        raise DataError(
            f"{missed(absent.size, wanted.size)} not in {store}{example}. It has "
            f"{available.size} times from {_shown(available[0])} to {_shown(available[-1])}. "
            "Ingest the others first.",
            key="absent-times",
        )
    return wanted


def _shown(time: np.datetime64) -> str:
    return str(time.astype("datetime64[m]"))
