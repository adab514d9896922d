"""Files of arrays and groups of a Zarr store, written as the specification of Zarr 3 has them.

The Zarr library is made for stores that are far away and of any layout: of an array with one small chunk it
writes five files in a dozen steps between threads. Here are two, of the one layout that this package writes,
and the library reads them as its own.

References
----------
https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html and codecs/sharding-indexed
"""

import base64
import json
import struct
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numcodecs.vlen import VLenUTF8
from numcodecs.zstd import Zstd

from cagp_dist.store.durable_files import files_below

METADATA = "zarr.json"
ZSTD_LEVEL = 3

NAN_ATTRIBUTE = base64.b64encode(struct.pack("<d", np.nan)).decode()  # as xarray spells ``_FillValue``

_NOWHERE = 2**64 - 1  # of a chunk that a shard does not have
_CHECKSUM = {"name": "crc32c"}
_COMPRESSED = [{"name": "zstd", "configuration": {"level": ZSTD_LEVEL, "checksum": False}}, _CHECKSUM]
_INDEX = {
    "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, _CHECKSUM],
    "index_location": "end",
}
_INLINE = {"kind": "inline", "must_understand": False}


def write_group_metadata(folder: Path, attributes: Mapping[str, object]) -> None:
    """Make a folder a group."""
    _write_json(folder / METADATA, {"attributes": attributes, "zarr_format": 3, "node_type": "group"})


def write_array(
    folder: Path,
    values: np.ndarray,
    *,
    dimensions: tuple[object, ...],
    attributes: Mapping[str, object],
    chunk: tuple[int, ...],
    shard: tuple[int, ...] | None,
    threads: Executor,
) -> None:
    """Write numbers, truth values or text (objects) into a new folder, each chunk compressed and checksummed.

    All chunks are written, also those that equal the fill value: NaN, 0, False, "". Those of a ``shard``,
    whose lengths are multiples of theirs, share a file. Several are encoded at once, in ``threads``.
    """
    kind, is_text = values.dtype.kind, values.dtype.kind == "O"
    fill = {"f": np.nan, "b": False, "O": ""}.get(kind, 0)
    as_bytes: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}
    if is_text:
        as_bytes = {"name": "vlen-utf8", "configuration": {}}
    elif values.dtype.itemsize == 1:
        as_bytes = {"name": "bytes"}
    codecs = [as_bytes, *_COMPRESSED]
    if shard is not None:
        configuration = {"chunk_shape": chunk, "codecs": codecs, **_INDEX}
        codecs = [{"name": "sharding_indexed", "configuration": configuration}]
    file = shard or chunk
    folder.mkdir()
    _write_json(
        folder / METADATA,
        {
            "shape": values.shape,
            "data_type": "string" if is_text else values.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": file}},
            # files c.0.0 beside the metadata, and not c/0/0: each folder would take as many inodes as a file
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "fill_value": "NaN" if kind == "f" else fill,
            "codecs": codecs,
            "attributes": attributes,
            **({"dimension_names": dimensions} if dimensions else {}),
            "zarr_format": 3,
            "node_type": "array",
            "storage_transformers": [],
        },
    )
    values = values.astype(values.dtype.newbyteorder("<"), copy=False)

    def encoded(part: np.ndarray) -> bytes:
        """Encode a chunk; behind the end of the array it is filled."""
        if part.shape != chunk:
            inside, part = part, np.full(chunk, fill, dtype=values.dtype)
            part[tuple(map(slice, inside.shape))] = inside
        content: bytes = Zstd(level=ZSTD_LEVEL).encode(
            VLenUTF8().encode(part.ravel()) if is_text else part.tobytes()
        )
        return content + _checksum(content)

    def write(place: tuple[int, ...]) -> None:
        part = _part(values, place, file)
        with (folder / "".join(("c", *(f".{at}" for at in place)))).open("xb") as stream:
            if shard is None:
                stream.write(encoded(part))
                return
            grid = tuple(length // short for length, short in zip(shard, chunk, strict=True))
            index = np.full((*grid, 2), _NOWHERE, dtype="<u8")  # also of chunks behind the end of the array
            places = list(_places(part.shape, chunk))
            contents = threads.map(lambda at: encoded(_part(part, at, chunk)), places)
            for at, content in zip(places, contents, strict=True):
                index[at] = stream.tell(), len(content)
                stream.write(content)
            stream.write(index.tobytes() + _checksum(index.tobytes()))

    places = list(_places(values.shape, file))
    if shard is None and len(places) > 1:
        list(threads.map(write, places))  # raises what one of them raises
    else:
        for place in places:
            write(place)


def consolidate(path: Path) -> None:
    """Copy all metadata into the root, so that readers open a group quickly; a run never changes.

    Consolidated metadata is not in the text of the specification; readers may ignore it.
    """
    nodes: dict[str, Any] = {}
    for file in sorted(files_below(path)):
        folder, _, name = file.rpartition("/")
        if folder and name == METADATA:
            nodes[folder] = json.loads((path / file).read_bytes())
            if nodes[folder]["node_type"] == "group":
                nodes[folder]["consolidated_metadata"] = {**_INLINE, "metadata": {}}
    root = json.loads((path / METADATA).read_bytes())
    root["consolidated_metadata"] = {**_INLINE, "metadata": nodes}
    _write_json(path / METADATA, root)


def _places(shape: tuple[int, ...], lengths: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Places of all blocks of these lengths in an array."""
    return np.ndindex(*(-(-size // length) for size, length in zip(shape, lengths, strict=True)))


def _part(values: np.ndarray, place: tuple[int, ...], lengths: tuple[int, ...]) -> np.ndarray:
    """Give a block of an array; it is smaller at the end."""
    at: list[Any] = [
        slice(index * length, (index + 1) * length) for index, length in zip(place, lengths, strict=True)
    ]
    part: np.ndarray = values[(*at, ...)]  # an array also of no dimensions
    return part


def _checksum(content: bytes) -> bytes:
    """Give the CRC32C that follows a chunk."""
    return int(google_crc32c.value(content)).to_bytes(4, "little")


def _write_json(path: Path, document: Mapping[str, object]) -> None:
    """Write metadata; values of NumPy among the attributes become numbers and lists."""

    def plain(value: object) -> object:
        if isinstance(value, np.ndarray | np.generic):
            return value.tolist()
        raise TypeError(f"an attribute is {value!r}; expected text, numbers, truth values and lists of them.")

    path.write_text(json.dumps(document, default=plain), encoding="utf-8")
