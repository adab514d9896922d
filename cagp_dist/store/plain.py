"""Zarr stores of which only plain numbers are read: no value is decoded before its metadata was checked.

The metadata of an array names its codecs, and some of them run what the bytes tell them (``pickle``). What is
read has limits: documents and chunks are of a size, compressors unpack no more than a chunk has, and of a
folder only its own files are opened.
"""

import asyncio
import errno
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.storage import FsspecStore, LocalStore

from cagp_dist.digest import open_regular
from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.memory import MOST_CHUNK_BYTES
from cagp_dist.store import web
from cagp_dist.store.bounded_codecs import COMPRESSORS, bounded, item_bytes, with_slack
from cagp_dist.text import bytes_text, without_secrets

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

    Buffers: TypeAlias = list[Buffer | None]
    Node: TypeAlias = dict[str, object]

MOST_METADATA_BYTES = 16 * 2**20
MOST_SHARD_BYTES = 2 * 2**30  # of a file with many chunks, which is read whole where all are wanted
MOST_INNER_CHUNKS = 2**20  # of such a file, whose list of them is read first

_CHECKSUMS = frozenset({"adler32", "crc32", "crc32c", "fletcher32"})
FILTERS = _CHECKSUMS | {"bitround", "delta", "fixedscaleoffset", "quantize", "shuffle"}
"""Codecs by their names in Zarr 2; in Zarr 3 the same with ``numcodecs.`` before the name."""

_FORMAT_3 = frozenset({"bytes", "transpose", "sharding_indexed", "blosc", "gzip", "zstd", "crc32c"})
_TEXT = frozenset({"string", "vlen-utf8"})
_METADATA = frozenset({"zarr.json", ".zarray", ".zgroup", ".zmetadata"})
_NUMBER = re.compile(
    r"[<>|=]?[biuf][1248]|bool|u?int(8|16|32|64)|float(16|32|64)"
    r"|[<>=]?[Mm]8\[\d*(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]|numpy\.(datetime64|timedelta64)"
)
_CONFIGURED_DTYPES = ("dtype", "astype")
_INNER_CODECS = ("codecs", "index_codecs")


class PlainStore(Store):
    """A store that can only be read, and hands on only metadata that passed the check, fetched once.

    ``text`` allows variable-length UTF-8. A `zarr.storage.WrapperStore` would hand on what Zarr adds later.
    """

    def __init__(self, inner: Store, *, text: bool = False) -> None:
        super().__init__(read_only=True)
        self._inner = inner
        self._text = text
        self._checked: dict[str, Buffer | None] = {}
        self._sizes: dict[str, int] = {}

    def __eq__(self, value: object) -> bool:
        return isinstance(value, PlainStore) and value._inner == self._inner

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return str(self._inner)

    async def get(
        self, key: str, prototype: "BufferPrototype", byte_range: "ByteRequest | None" = None
    ) -> "Buffer | None":
        name = key.rpartition("/")[2]
        if name not in _METADATA:
            return await self._read(key, prototype, byte_range, self._most_bytes(key))
        if key not in self._checked:
            found = await self._read(key, prototype, None, MOST_METADATA_BYTES)
            if found is not None:
                content, sizes = check_metadata(key, found.to_bytes(), text=self._text)
                self._sizes |= {at: max(size, self._sizes.get(at, 0)) for at, size in sizes.items()}
                found = prototype.buffer.from_bytes(content)
            self._checked[key] = found
        return self._checked[key]

    def _most_bytes(self, key: str) -> int:
        """Most bytes of a file of the array that it belongs to."""
        folders = (key[:end] for end in range(len(key) - 1, 0, -1) if key[end] == "/")
        return next((self._sizes[at] for at in (*folders, "") if at in self._sizes), MOST_CHUNK_BYTES)

    async def _read(
        self, key: str, prototype: "BufferPrototype", byte_range: "ByteRequest | None", most_bytes: int
    ) -> "Buffer | None":
        """Read an object, or a range of it, of so many bytes at most."""
        if isinstance(self._inner, LocalStore):
            content = await asyncio.to_thread(read_file, self._inner.root, key, byte_range, most_bytes)
            return None if content is None else prototype.buffer.from_bytes(content)
        by_range = byte_range is None and not web.is_web(self._inner)
        asked = RangeByteRequest(0, most_bytes + 1) if by_range else byte_range
        with web.at_most(most_bytes):
            found = await self._inner.get(key, prototype, asked)
        if found is not None and len(found) > most_bytes:
            raise StoreError(_too_large(key, most_bytes), key="unpacked-size")
        start, stop = _bounds(byte_range, sys.maxsize)
        if found is not None and len(found) > stop - start:
            raise StoreError(
                f"the server sent {bytes_text(len(found))} of {key}, and was asked for less. It knows no "
                "ranges (HTTP 206), which chunks in shards are read by: copy the store to a disk first.",
                key="no-ranges",
            )
        return found

    async def get_partial_values(
        self, prototype: "BufferPrototype", key_ranges: "Iterable[tuple[str, ByteRequest | None]]"
    ) -> "Buffers":
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        return await self._inner.exists(key)

    @property
    def supports_consolidated_metadata(self) -> bool:
        return self._inner.supports_consolidated_metadata

    @property
    def supports_listing(self) -> bool:
        return self._inner.supports_listing

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        return self._inner.list_prefix(prefix)

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        return self._inner.list_dir(prefix)

    def list(self) -> AsyncIterator[str]:
        return self._inner.list()

    def close(self) -> None:
        self._inner.close()
        super().close()

    @property
    def supports_writes(self) -> bool:
        return False

    @property
    def supports_deletes(self) -> bool:
        return False

    async def set(self, key: str, value: "Buffer") -> NoReturn:
        raise StoreError(f"{self} was opened for reading; {key} cannot be written.", key="read-only")

    async def delete(self, key: str) -> NoReturn:
        raise StoreError(f"{self} was opened for reading; {key} cannot be deleted.", key="read-only")


def plain_store(address: str, *, options: Mapping[str, str] | None = None, text: bool = False) -> PlainStore:
    """Open the store at an address for reading plain numbers."""
    path = address.removeprefix("file://")
    if "://" not in path and "::" not in path:
        return PlainStore(LocalStore(path, read_only=True), text=text)
    if any(part.partition(":")[0] == "reference" for part in address.split("::")):
        raise ConfigurationError(
            f"{without_secrets(address, address)} names a reference file; expected a Zarr store. The "
            "templates of reference files can run code. Write the data as a Zarr store, or name the files "
            "that it refers to.",
            key="reference-file",
        )
    *wrappers, last = address.split("::")
    scheme = last.partition("://")[0]
    wrapped = not wrappers or (len(wrappers) == 1 and wrappers[0].startswith("zip://"))
    if scheme not in web.SCHEMES or not wrapped:
        known = ", ".join(f"{each}://" for each in web.SCHEMES if each != "memory")
        raise ConfigurationError(
            f"{without_secrets(address, address)} is an address of a kind that is not read; expected the "
            f"path of a folder, {known}, or zip://::https://HOST/FILE.zip. Others follow links out of a "
            "store, or do not end. Copy the store to a folder or to one of these.",
            key="address",
        )
    settings = {**(options or {}), **web.settings(address)}
    inner = FsspecStore.from_url(address, storage_options=settings, read_only=True)
    return PlainStore(inner, text=text)


def check_all_arrays(store: PlainStore) -> dict[str, zarr.Array[Any]]:
    """Read the metadata of all arrays in all groups of a store, and with that check it."""
    members = zarr.open_group(store, mode="r").members(max_depth=None)
    return {path: member for path, member in members if isinstance(member, zarr.Array)}


def read_file(root: Path, key: str, byte_range: "ByteRequest | None", most_bytes: int) -> bytes | None:
    """Read a file of a folder, or a range of it; links are refused, which may lead anywhere."""
    path, parts = os.path.join(root, key), os.path.normpath(key).split("/")
    try:
        with open_regular(path) as stream:
            if any(os.path.islink(os.path.join(root, *parts[:end])) for end in range(1, len(parts) + 1)):
                raise StoreError(
                    f"{path} is a link, or lies behind one; expected files of the store itself, because a "
                    "link may lead to any file there is. Copy the store with what its links lead to: cp -rL.",
                    key="link",
                )
            size = os.fstat(stream.fileno()).st_size
            start, stop = _bounds(byte_range, size)
            if stop - start > most_bytes:
                raise StoreError(_too_large(path, most_bytes), key="unpacked-size")
            stream.seek(start)
            return stream.read(max(stop - start, 0))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENXIO):
            raise StoreError(
                f"{path} is not a regular file, but a pipe, a socket or a device, which may never end. "
                "Copy the store again.",
                key="no-file",
            ) from error
        raise


def _bounds(byte_range: "ByteRequest | None", size: int) -> tuple[int, int]:
    """First byte of a range, and the one after its last, of so many."""
    match byte_range:
        case RangeByteRequest(start, end):
            return start, min(end, size)
        case OffsetByteRequest(offset):
            return offset, size
        case SuffixByteRequest(suffix):
            return max(0, size - suffix), size
    return 0, size


def _too_large(key: str, most_bytes: int) -> str:
    return (
        f"{key} has more than {bytes_text(most_bytes)}, the most that such a file of a store can have. It "
        "is damaged, or made to fill the memory: fetch it again from a trusted source."
    )


def check_metadata(key: str, content: bytes, *, text: bool = False) -> tuple[bytes, dict[str, int]]:
    """Check a metadata document and what is consolidated in it; give it with limits, and most bytes of files.

    Attributes are values that nothing decodes; what is no JSON, or lacks something, the Zarr library refuses.
    """
    folder, _, name = key.rpartition("/")
    try:
        document = json.loads(content)
    except ValueError:
        return content, {}
    sizes: dict[str, int] = {}
    for place, node in _nodes(folder, document, consolidated_2=name == ".zmetadata"):
        refused = [
            f"{what} {shown}" for what, shown in _refused(node, allowed=_TEXT if text else frozenset())
        ]
        if refused:
            raise StoreError(
                f"array {place!r} has {', '.join(refused)}; expected numbers or times, encoded with "
                f"{', '.join(sorted(COMPRESSORS | FILTERS))}. Decoding anything else can run code that the "
                "store brings along, so nothing of it was decoded. If you trust the store, write it again "
                "without this array.",
                key="codec",
            )
        try:
            sizes[place] = max(_chunk_bytes(node), sizes.get(place, 0))
        except StoreError as error:
            raise StoreError(
                f"array {place!r} has {error}; nothing of it was decoded. Write the store again with smaller "
                "chunks, with xarray: dataset.chunk(time=24).to_zarr(path).",
                key="chunks",
            ) from None
        bounded(node)
    return json.dumps(document).encode(), sizes


def _chunk_bytes(node: "Node") -> int:
    """Most bytes that a file of an array has, whose chunks have `MOST_CHUNK_BYTES` at most."""
    lengths = _lengths(node.get("chunks")) or _lengths(_chunk_shape(node.get("chunk_grid")))
    dtype, most, codecs = node.get("data_type", node.get("dtype")), 0, list(_listed(node.get("codecs")))
    item = item_bytes(_name(dtype))
    while codecs:  # shards have chunks of their own
        codec = codecs.pop()
        if isinstance(codec, dict) and (inner := _lengths(_chunk_shape(codec))):
            count = prod(lengths) // max(prod(inner), 1)
            if count > MOST_INNER_CHUNKS:
                raise StoreError(f"shards of more than {MOST_INNER_CHUNKS:,} chunks", key="chunks")
            # of each chunk the list in a shard has 16 bytes, and compressors add some
            most = most or min(with_slack(prod(lengths) * item) + 64 * count, MOST_SHARD_BYTES)
            lengths, codecs = inner, list(_listed(codec["configuration"].get("codecs")))
    size = prod(lengths) * item
    if size > MOST_CHUNK_BYTES:
        raise StoreError(
            f"chunks of {bytes_text(size)}; expected {bytes_text(MOST_CHUNK_BYTES)} at most", key="chunks"
        )
    return most or (MOST_CHUNK_BYTES if _name(dtype) in _TEXT or not lengths else with_slack(size))


def _chunk_shape(named: object) -> object:
    configuration = named.get("configuration") if isinstance(named, dict) else None
    return configuration.get("chunk_shape") if isinstance(configuration, dict) else None


def _lengths(shape: object) -> list[int]:
    """Lengths of a chunk; none if they are not numbers."""
    found = _listed(shape)
    numbers = [each for each in found if isinstance(each, int)]
    return numbers if len(numbers) == len(found) else []


def _nodes(place: str, document: object, *, consolidated_2: bool) -> Iterator[tuple[str, "Node"]]:
    """Yield the document, and every array or group that is consolidated in it, each with its path."""
    if not isinstance(document, dict):
        return
    yield place, document
    inline = document.get("consolidated_metadata")
    if isinstance(inline, dict) and isinstance(inline.get("metadata"), dict):
        for path, node in inline["metadata"].items():
            yield from _nodes(_joined(place, path), node, consolidated_2=False)
    if consolidated_2 and isinstance(document.get("metadata"), dict):
        for path, node in document["metadata"].items():
            folder, _, name = path.rpartition("/")
            if name != ".zattrs":
                yield from _nodes(_joined(place, folder), node, consolidated_2=False)


def _joined(place: str, path: str) -> str:
    return "/".join(filter(None, (place, path)))


def _refused(node: "Node", *, allowed: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield what is not plain; keys of both formats are looked at, whichever the document claims to be."""
    for key in ("dtype", "data_type"):
        if key in node and not _is_number(node[key]) and _name(node[key]) not in allowed:
            yield "dtype", repr(_name(node[key]) or node[key])
    for codec in (*_listed(node.get("filters")), *_listed(node.get("compressor"))):
        yield from _refused_codec(codec, "id", COMPRESSORS | FILTERS)
    known = _FORMAT_3 | {f"numcodecs.{name}" for name in COMPRESSORS | FILTERS} | allowed
    for codec in _listed(node.get("codecs")):
        yield from _refused_codec(codec, "name", known)
    for transformer in _listed(node.get("storage_transformers")):
        yield "storage transformer", repr(_name(transformer) or transformer)


def _refused_codec(codec: object, key: str, known: frozenset[str]) -> Iterator[tuple[str, str]]:
    settings = codec if isinstance(codec, dict) else {key: codec}
    name = settings.get(key)
    if not isinstance(name, str) or name not in known:
        yield "codec", repr(codec if name is None else name)
    configuration = settings if key == "id" else settings.get("configuration")
    if not isinstance(configuration, dict):
        return
    for setting in _CONFIGURED_DTYPES:
        if configuration.get(setting) is not None and not _is_number(configuration[setting]):
            yield f"codec {name!r} with {setting}", repr(configuration[setting])
    for setting in _INNER_CODECS:
        for inner in _listed(configuration.get(setting)):
            yield from _refused_codec(inner, key, known)


def _listed(value: object) -> tuple[object, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)


def _is_number(dtype: object) -> bool:
    name = _name(dtype)
    return name is not None and _NUMBER.fullmatch(name) is not None


def _name(value: object) -> str | None:
    """Name of a data type or codec of Zarr 3, with or without a configuration, or a dtype of Zarr 2."""
    name = value.get("name") if isinstance(value, dict) else value
    return name if isinstance(name, str) else None
