"""Files of arrays and groups of a Zarr store of this package, by the specification of Zarr 3.

The Zarr library is made for stores that are far away and of any layout: an array with one small chunk takes
it a dozen steps between threads. For a group of twelve arrays of 1,000 numbers it needs 63 ms of a processor
to write and 13 ms to read, and 53 inodes; here these are 5 ms, 5 ms and 36, and series have thousands of such
groups. Large arrays take as long. The library also reads the fill value where a chunk is missing, follows
links, and unpacks whatever a chunk says; here these are errors, as only the one layout of this package is
read. The library reads what is written here, and writes what is read here.

References
----------
https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html and codecs/sharding-indexed
"""

import base64
import errno
import json
import os
import struct
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import google_crc32c
import numpy as np
import xarray as xr
from numcodecs.vlen import VLenUTF8
from numcodecs.zstd import Zstd
from xarray.backends.common import BackendArray
from xarray.core import indexing
from zarr.abc.store import RangeByteRequest, SuffixByteRequest

from cagp_dist.errors import StoreError
from cagp_dist.memory import MOST_CHUNK_BYTES
from cagp_dist.store.bounded_codecs import unpacked_chunk, with_slack
from cagp_dist.store.durable_files import files_below
from cagp_dist.store.plain import MOST_INNER_CHUNKS, MOST_METADATA_BYTES, read_file

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest

    # number of a chunk, and along an axis where its numbers go, and are in it
    Piece: TypeAlias = tuple[int, slice | np.ndarray, slice | np.ndarray]

METADATA = "zarr.json"
ZSTD_LEVEL = 3

NAN_ATTRIBUTE = base64.b64encode(struct.pack("<d", np.nan)).decode()  # as xarray spells ``_FillValue``

_FEW_BYTES = 8 * 2**20  # for which no threads are started
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


class StoredArray(BackendArray):
    """An array that `write_array` wrote, or the Zarr library in that layout; xarray reads parts of it.

    Its metadata is not trusted: links, other codecs, and chunks that are too large or unpack to more than
    they have are errors. A chunk that is missing is an error, too, and not the fill value.
    """

    def __init__(self, store: Path, path: str, node: Mapping[str, Any]) -> None:
        self.store, self.path, self.attributes = store, path, dict(node["attributes"])
        self.shape, self.dimensions = tuple(node["shape"]), tuple(node.get("dimension_names") or ())
        self.file = self.chunk = tuple(node["chunk_grid"]["configuration"]["chunk_shape"])
        self._separator = node["chunk_key_encoding"].get("configuration", {}).get("separator", "/")
        codecs, shards = node["codecs"], None
        if codecs[0]["name"] == "sharding_indexed" and len(codecs) == 1:
            shards = codecs[0]["configuration"]
            self.chunk, codecs = tuple(shards["chunk_shape"]), shards["codecs"]
        self.is_sharded = shards is not None
        kind, (first, *self._packed) = node["data_type"], (codec["name"] for codec in codecs)
        if (
            first != ("vlen-utf8" if kind == "string" else "bytes")
            or not {*self._packed} <= {"zstd", "crc32c"}
            or (shards is not None and any(shards.get(key, value) != value for key, value in _INDEX.items()))
            or any(size < 1 or length % size for length, size in zip(self.file, self.chunk, strict=True))
            or len(self.shape) != len(self.file)
        ):
            raise StoreError(
                f"array {path!r} has codecs {node['codecs']}; expected those of this package.", key="codec"
            )
        order = codecs[0].get("configuration", {}).get("endian", "little")
        self._stored = np.dtype("O" if kind == "string" else kind).newbyteorder(order)
        if self._stored.kind not in "Ofiub":
            raise StoreError(
                f"array {path!r} is of {kind!r}; expected numbers, truth values or text.", key="codec"
            )
        self.dtype = np.dtypes.StringDType() if kind == "string" else self._stored.newbyteorder("=")
        self._chunk_bytes = prod(self.chunk) * self._stored.itemsize
        self._grid = tuple(length // size for length, size in zip(self.file, self.chunk, strict=True))
        if self._chunk_bytes > MOST_CHUNK_BYTES or prod(self._grid) > MOST_INNER_CHUNKS:
            raise StoreError(
                f"array {path!r} has chunks {self.chunk} in files {self.file}, which is too much.",
                key="chunks",
            )

    def files(self) -> Iterator[tuple[tuple[int, ...], str]]:
        """Place of every file of chunks, and its path relative to the store."""
        for place in _places(self.shape, self.file):
            yield place, self._name(place)

    def read_file(self, place: tuple[int, ...]) -> np.ndarray:
        """Read all that is in a file of chunks."""
        starts = [at * length for at, length in zip(place, self.file, strict=True)]
        ends = map(min, self.shape, (start + length for start, length in zip(starts, self.file, strict=True)))
        return self._read(tuple(map(slice, starts, ends)))

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        """Read what xarray asks for."""
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        """Read places that each axis names by a number, a slice or an array."""
        axes = [_pieces(at, *of) for at, *of in zip(key, self.shape, self.chunk, strict=True)]
        found = np.empty([count for count, _ in axes], dtype=self.dtype)
        indexes: dict[tuple[int, ...], np.ndarray] = {}

        def put(pieces: "tuple[Piece, ...]") -> None:
            content = self._content(tuple(chunk for chunk, *_ in pieces), indexes)
            part = self._decoded(content)[_box([inside for *_, inside in pieces])]
            found[_box([into for _, into, _ in pieces])] = part

        every = list(product(*(pieces for _, pieces in axes)))
        if found.nbytes < _FEW_BYTES:
            for pieces in every:
                put(pieces)
        else:
            with ThreadPoolExecutor() as threads:
                list(threads.map(put, every))
        return found[(*(slice(None) if np.ndim(at) or isinstance(at, slice) else 0 for at in key), ...)]

    def _content(self, chunk: tuple[int, ...], indexes: dict[tuple[int, ...], np.ndarray]) -> bytes:
        """Read the bytes of a chunk; the index of a shard is read once."""
        most = with_slack(self._chunk_bytes) if self._stored.kind != "O" else MOST_CHUNK_BYTES
        if not self.is_sharded:
            return self._bytes(chunk, None, most)
        file = tuple(at // count for at, count in zip(chunk, self._grid, strict=True))
        if (index := indexes.get(file)) is None:
            size = 16 * prod(self._grid)
            content = _checked(self._bytes(file, SuffixByteRequest(size + 4), size + 4))
            index = indexes[file] = np.frombuffer(content, dtype="<u8").reshape(*self._grid, 2)
        start, length = map(
            int, index[tuple(at % count for at, count in zip(chunk, self._grid, strict=True))]
        )
        if start == _NOWHERE:
            raise StoreError(f"chunk {chunk} of {self.store / self._name(file)} is missing.", key="damaged")
        return self._bytes(file, RangeByteRequest(start, start + length), most)

    def _bytes(self, file: tuple[int, ...], part: "ByteRequest | None", most: int) -> bytes:
        """Read a file, or a part of it."""
        found = read_file(self.store, self._name(file), part, most)
        if found is None:
            raise StoreError(
                f"chunk {self._name(file)} of {self.store} is missing; it would read as the fill value. "
                "Restore the store from a copy or write it again.",
                key="damaged",
            )
        return found

    def _decoded(self, content: bytes) -> np.ndarray:
        """Check and unpack a chunk."""
        for codec in reversed(self._packed):
            if codec == "crc32c":
                content = _checked(content)
            else:
                most = MOST_CHUNK_BYTES if self._stored.kind == "O" else self._chunk_bytes
                content = unpacked_chunk(Zstd(), content, most)
        if self._stored.kind == "O":
            return np.asarray(VLenUTF8().decode(content)).astype(self.dtype).reshape(self.chunk)
        return np.frombuffer(content, dtype=self._stored).reshape(self.chunk)

    def _name(self, file: tuple[int, ...]) -> str:
        """Path of a file of chunks, relative to the store."""
        return "/".join(filter(None, (self.path, self._separator.join(("c", *map(str, file))))))


def stored_arrays(store: Path, group: str) -> dict[str, StoredArray]:
    """Read the metadata of the arrays of a group, by their names."""
    _node(store, group, "group")
    names = sorted(name for name in os.listdir(store / group) if (store / group / name / METADATA).is_file())
    paths = {name: "/".join(filter(None, (group, name))) for name in names}
    nodes = {name: _node(store, path) for name, path in paths.items()}
    return {
        name: StoredArray(store, paths[name], node)
        for name, node in nodes.items()
        if node["node_type"] == "array"
    }


def stored_groups(store: Path, group: str) -> Iterator[str]:
    """Paths of a group and of all groups below it."""
    _node(store, group, "group")
    for folder, _, names in sorted(os.walk(store / group)):
        path = Path(folder).relative_to(store).as_posix().removeprefix(".")
        if METADATA in names and _node(store, path)["node_type"] == "group":
            yield path


def stored_dataset(store: Path, group: str) -> xr.Dataset:
    """Open a group as `xarray.open_dataset` would, which takes twice the time."""
    found = {}
    for name, array in stored_arrays(store, group).items():
        encoding: dict[str, Any] = {"chunks": array.chunk, "dtype": array.dtype}  # else text is no text
        if array.attributes.get("_FillValue") == NAN_ATTRIBUTE:  # which is NaN in memory, too
            encoding["_FillValue"] = np.nan
            del array.attributes["_FillValue"]
        lazy = indexing.LazilyIndexedArray(array)
        found[name] = xr.Variable(array.dimensions, lazy, array.attributes, encoding)
    attributes = _node(store, group, "group")["attributes"]
    decoded, attributes, named = xr.conventions.decode_cf_variables(found, attributes, decode_timedelta=False)
    values: dict[Any, xr.Variable] = {}
    coordinates: dict[Any, xr.Variable] = {}
    for name, variable in decoded.items():
        # values that were read are kept, and are not those of another variable when they are changed
        variable.data = indexing.MemoryCachedArray(indexing.CopyOnWriteArray(variable._data))
        (coordinates if name in named or variable.dims == (name,) else values)[name] = variable
    return xr.Dataset(values, coordinates, attributes)


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


def _node(store: Path, path: str, kind: str | None = None) -> dict[str, Any]:
    """Read the metadata of an array or a group."""
    file = "/".join(filter(None, (path, METADATA)))
    content = read_file(store, file, None, MOST_METADATA_BYTES)
    if content is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(store / file))
    node: dict[str, Any] = json.loads(content)
    if node["zarr_format"] != 3 or node["node_type"] not in ((kind,) if kind else ("array", "group")):
        raise StoreError(
            f"{store / file} is of format {node['zarr_format']}, and of a {node['node_type']}.",
            key="unreadable",
        )
    return node


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


def _pieces(at: Any, size: int, length: int) -> "tuple[int, list[Piece]]":
    """Count the places that an axis is asked for, and give for each chunk where they go and are."""
    if isinstance(at, slice) and (asked := range(size)[at]).step == 1:
        found: list[Piece] = []
        for chunk in range(asked.start // length, -(-asked.stop // length) if asked else 0):
            low, high = max(chunk * length, asked.start), min((chunk + 1) * length, asked.stop)
            into, inside = (slice(low - start, high - start) for start in (asked.start, chunk * length))
            found.append((chunk, into, inside))
        return len(asked), found
    places = np.array(range(size)[at], dtype=np.int64) if isinstance(at, slice) else np.atleast_1d(at)
    chunks = places // length
    numbers = np.unique(chunks).tolist()
    here = [np.flatnonzero(chunks == number) for number in numbers]
    pieces = zip(numbers, here, strict=True)
    return places.size, [(number, into, places[into] - number * length) for number, into in pieces]


def _box(places: "list[slice | np.ndarray]") -> tuple[Any, ...]:
    """Name places along all axes for NumPy."""
    if all(isinstance(each, slice) for each in places):
        return (*places, ...)
    return np.ix_(*(np.arange(each.start, each.stop) if isinstance(each, slice) else each for each in places))


def _checksum(content: bytes) -> bytes:
    """Give the CRC32C that follows a chunk."""
    return int(google_crc32c.value(content)).to_bytes(4, "little")


def _checked(content: bytes) -> bytes:
    """Compare bytes with the CRC32C that follows them, and give them without."""
    if len(content) < 4 or _checksum(content[:-4]) != content[-4:]:
        raise ValueError("its checksum is not that of its content")
    return content[:-4]


def _write_json(path: Path, document: Mapping[str, object]) -> None:
    """Write metadata; values of NumPy among the attributes become numbers and lists."""

    def plain(value: object) -> object:
        if isinstance(value, np.ndarray | np.generic):
            return value.tolist()
        raise TypeError(f"an attribute is {value!r}; expected text, numbers, truth values and lists of them.")

    path.write_text(json.dumps(document, default=plain), encoding="utf-8")
