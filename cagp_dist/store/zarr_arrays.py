"""The one place where arrays reach a disk: Zarr 3, zstd, a checksum per chunk, nothing left implicit.

Without a checksum a flipped bit is read as data, and a chunk that is missing reads as the fill value, as does
one that was not written because it equals it: floats are filled with NaN, and empty chunks are written.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path

import numpy as np
import xarray as xr

from cagp_dist.errors import ArgumentError, DiskError, StoreError
from cagp_dist.store.durable_files import files_below, full_disk, is_full
from cagp_dist.store.zarr_files import (
    METADATA,
    NAN_ATTRIBUTE,
    StoredArray,
    stored_arrays,
    stored_dataset,
    stored_groups,
    write_array,
    write_group_metadata,
)

CHUNK_BYTES = 8 * 2**20  # upper bound of one chunk, uncompressed, where the caller does not choose

SHARD_BYTES = 2**30  # upper bound of the chunks of one file, uncompressed

ROOT = "/"


def write_group(
    path: str | os.PathLike[str],
    group: str,
    dataset: xr.Dataset,
    *,
    chunks: Mapping[str, int] | None = None,
    sharded: bool = False,
) -> None:
    """Write a dataset as a new group of a Zarr store, every chunk compressed and checksummed.

    ``sharded``: the chunks of a variable share files, up to `SHARD_BYTES` of values in each.

    Encodings that variables carry are dropped: an inherited int16 packing would round variances to nothing.
    """
    name = group.strip("/")
    if (Path(path) / name / METADATA).exists():
        raise StoreError(
            f"group {group!r} is in {path} already; groups are written once and never changed. "
            "Write to a new folder.",
            key="group-exists",
        )
    for dimension, length in (chunks or {}).items():
        if length < 1:
            raise ArgumentError(
                f"chunk length of {dimension!r} is {length}; expected at least 1.", key="chunks"
            )
    plain = dataset.assign({key: _plain(key, variable) for key, variable in dataset.variables.items()})
    variables, attributes = xr.conventions.encode_dataset_coordinates(plain)
    folder = Path(path) / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_group_metadata(folder, attributes)
        for above in list(folder.parents)[: len(Path(name).parts)]:
            if not (above / METADATA).exists():
                write_group_metadata(above, {})
        with ThreadPoolExecutor() as threads:  # none starts for arrays of one chunk
            for key, variable in variables.items():
                values, said = _numbers(variable)
                if values.dtype.kind == "f" and key not in plain.coords:
                    said["_FillValue"] = NAN_ATTRIBUTE  # CF forbids it on coordinates
                chunk = _chunk(variable, chunks or {})
                write_array(
                    folder / str(key),
                    values,
                    dimensions=variable.dims,
                    attributes=said,
                    chunk=chunk,
                    shard=_shard(variable, chunk) if sharded else None,
                    threads=threads,
                )
    except OSError as error:
        if is_full(error):
            raise full_disk(Path(path), error.strerror) from error
        raise DiskError(
            f"cannot write group {group!r} of {path}: {error.strerror or error}. "
            "Check free space and permissions, then run again.",
            key="disk",
        ) from error


def read_group(path: str | os.PathLike[str], group: str = ROOT) -> xr.Dataset:
    """Read a whole group into memory, checking that every chunk is there, and its checksum."""
    with open_group(path, group) as found:
        try:
            return found.load()
        except Exception:  # codecs raise whatever their library raises on damaged bytes
            verify_chunks(path, group)  # names the chunk
            raise


def open_group(path: str | os.PathLike[str], group: str = ROOT) -> xr.Dataset:
    """Open a group; chunks are read and checked when they are asked for, a missing one is an error."""
    name = group.strip("/")
    if not (Path(path) / name / METADATA).exists():
        raise StoreError(
            f"there is no group {group!r} in {path}; expected a Zarr store written by this package.",
            key="no-group",
        )
    try:
        return opened(path, name)
    except Exception as error:  # JSON, key and value errors of damaged metadata, checksums of coordinates
        raise _unreadable(path, group, error) from error


def opened(path: str | os.PathLike[str], group: str) -> xr.Dataset:
    """Open a group as `open_group`, with the errors of the libraries."""
    return stored_dataset(Path(path), group)


def missing_chunks(path: str | os.PathLike[str], group: str = ROOT) -> list[str]:
    """Chunk files that should exist and do not, as paths relative to the store."""
    present = set(files_below(Path(path)))
    return [key for array in _arrays(path, group) for _, key in array.files() if key not in present]


def verify_chunks(path: str | os.PathLike[str], group: str = ROOT) -> int:
    """Read every chunk of every array below a group and compare it with its checksum."""
    count = 0
    for array in _arrays(path, group):
        for place, key in array.files():
            where = Path(path) / key
            if not where.is_file():
                raise StoreError(
                    f"chunk {where} is missing; it would read as the fill value. "
                    "Restore the store from a copy or write it again.",
                    key="damaged",
                )
            try:
                array.read_file(place)
            except Exception as error:  # codecs raise whatever their library raises on damaged bytes
                raise StoreError(
                    f"chunk {where} is damaged ({error}). Restore the store from a copy or write it again.",
                    key="damaged",
                ) from error
            count += 1
    return count


def content_sha256(dataset: xr.Dataset) -> str:
    """Hash the names, dimensions and numbers of a dataset, and nothing else."""
    digest = hashlib.sha256()
    for key in sorted(map(str, dataset.variables)):
        values = dataset.variables[key].values
        if values.dtype.kind not in "fiubMU":
            raise ArgumentError(
                f"variable {key!r} has dtype {values.dtype}; expected numbers, times or text.",
                key="no-numbers",
            )
        is_text = values.dtype.kind == "U"
        kind = "text" if is_text else values.dtype.str
        digest.update(f"{key}{dataset.variables[key].dims}{values.shape}{kind}".encode())
        plain = np.ascontiguousarray(values)
        digest.update(json.dumps(plain.tolist()).encode() if is_text else plain.tobytes())
    return digest.hexdigest()


def chunk_shape(
    shape: tuple[int, ...], *, item_bytes: int, limit_bytes: int = CHUNK_BYTES
) -> tuple[int, ...]:
    """Chunk lengths that fill at most a number of bytes: leading axes are cut first, trailing stay whole."""
    lengths = [max(1, length) for length in shape]
    for axis, length in enumerate(lengths):
        rest = item_bytes * prod(lengths[axis + 1 :])
        lengths[axis] = min(length, max(1, limit_bytes // rest))
        if lengths[axis] > 1:
            break
    return tuple(lengths)


def _unreadable(path: str | os.PathLike[str], group: str, error: Exception) -> StoreError:
    return StoreError(
        f"cannot read the metadata of group {group!r} in {path} ({error}); expected a Zarr 3 store. "
        "Restore it from a copy or write it again.",
        key="unreadable",
    )


def _plain(key: object, variable: xr.Variable) -> xr.Variable:
    """Copy without encoding, text as objects (Zarr 3 has no fixed-width text), no NaT."""
    bare = variable.copy(deep=False)
    bare.encoding = {}
    kind = bare.dtype.kind
    if kind in "UOT":
        values = np.asarray(bare.values, dtype=object)
        if not all(isinstance(value, str) for value in values.flat):
            raise ArgumentError(
                f"variable {key!r} holds objects that are neither numbers nor text.", key="no-numbers"
            )
        return xr.Variable(bare.dims, values, bare.attrs)
    if kind == "M":
        if np.isnat(bare.values).any():
            raise ArgumentError(
                f"variable {key!r} holds NaT; drop the missing times before they are stored.", key="times"
            )
    elif kind not in "fiub":
        raise ArgumentError(
            f"variable {key!r} has dtype {bare.dtype}; expected float, int, bool, datetime or text.",
            key="no-numbers",
        )
    return bare


def _numbers(variable: xr.Variable) -> tuple[np.ndarray, dict[str, object]]:
    """Values and attributes as they are stored: a time is a count of seconds, or of nanoseconds."""
    values, said = np.asarray(variable.values), dict(variable.attrs)
    if values.dtype.kind == "M":
        values, unit = values.astype("datetime64[ns]").astype(np.int64), "nanoseconds"
        if not (values % 1_000_000_000).any():
            values, unit = values // 1_000_000_000, "seconds"
        said |= {"units": f"{unit} since 1970-01-01", "calendar": "proleptic_gregorian"}
    return values, said


def _chunk(variable: xr.Variable, chunks: Mapping[str, int]) -> tuple[int, ...]:
    """Lengths of the chunks of a variable."""
    whole = tuple(max(1, min(length, chunks.get(str(dim), length))) for dim, length in variable.sizes.items())
    return chunk_shape(whole, item_bytes=max(1, variable.dtype.itemsize))


def _shard(variable: xr.Variable, chunk: tuple[int, ...]) -> tuple[int, ...] | None:
    """Lengths of what shares a file; None where that would be one chunk."""
    chunks_of = list(zip(variable.shape, chunk, strict=True))
    if all(size <= length for size, length in chunks_of):
        return None
    rounded = tuple(-(-size // length) * length for size, length in chunks_of)
    wide = chunk_shape(rounded, item_bytes=max(1, variable.dtype.itemsize), limit_bytes=SHARD_BYTES)
    return tuple(max(length, most // length * length) for most, length in zip(wide, chunk, strict=True))


def _arrays(path: str | os.PathLike[str], group: str) -> list[StoredArray]:
    """Give all arrays of a group and of those below it."""
    store = Path(path)
    try:
        groups = list(stored_groups(store, group.strip("/")))
        return [array for each in groups for array in stored_arrays(store, each).values()]
    except Exception as error:  # JSON, key and value errors of damaged metadata, or no store at all
        raise _unreadable(path, group, error) from error
