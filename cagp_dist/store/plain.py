"""Zarr stores of which only plain numbers are read: no value is decoded before its metadata was checked.

The metadata of an array names its codecs, and some of them run what the bytes tell them (``pickle``).
"""

import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import zarr
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore

from cagp_dist.errors import ConfigurationError, StoreError
from cagp_dist.text import without_secrets

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

    Buffers: TypeAlias = list[Buffer | None]
    Node: TypeAlias = Mapping[str, object]

COMPRESSORS = frozenset({"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"})
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

    def __eq__(self, value: object) -> bool:
        return isinstance(value, PlainStore) and value._inner == self._inner

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return str(self._inner)

    async def get(
        self, key: str, prototype: "BufferPrototype", byte_range: "ByteRequest | None" = None
    ) -> "Buffer | None":
        if key.rpartition("/")[2] not in _METADATA:
            return await self._inner.get(key, prototype, byte_range)
        if key not in self._checked:
            found = await self._inner.get(key, prototype)
            if found is not None:
                check_metadata(key, found.to_bytes(), text=self._text)
            self._checked[key] = found
        return self._checked[key]

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
        raise StoreError(f"{self} was opened for reading; {key} cannot be written.")

    async def delete(self, key: str) -> NoReturn:
        raise StoreError(f"{self} was opened for reading; {key} cannot be deleted.")


def plain_store(address: str, *, options: Mapping[str, str] | None = None, text: bool = False) -> PlainStore:
    """Open the store at an address for reading plain numbers."""
    if "://" not in address and "::" not in address:
        return PlainStore(LocalStore(address, read_only=True), text=text)
    if any(part.partition(":")[0] == "reference" for part in address.split("::")):
        raise ConfigurationError(
            f"{without_secrets(address, address)} names a reference file; expected a Zarr store. The "
            "templates of reference files can run code. Write the data as a Zarr store, or name the files "
            "that it refers to."
        )
    inner = FsspecStore.from_url(address, storage_options=dict(options or {}), read_only=True)
    return PlainStore(inner, text=text)


def check_all_arrays(store: PlainStore) -> dict[str, zarr.Array[Any]]:
    """Read the metadata of all arrays in all groups of a store, and with that check it."""
    members = zarr.open_group(store, mode="r").members(max_depth=None)
    return {path: member for path, member in members if isinstance(member, zarr.Array)}


def check_metadata(key: str, content: bytes, *, text: bool = False) -> None:
    """Check one metadata document, and all that are consolidated in it.

    Attributes are values that nothing decodes; what is no JSON, or lacks something, the Zarr library refuses.
    """
    folder, _, name = key.rpartition("/")
    try:
        document = json.loads(content)
    except ValueError:
        return
    for place, node in _nodes(folder, document, consolidated_2=name == ".zmetadata"):
        refused = [
            f"{what} {shown}" for what, shown in _refused(node, allowed=_TEXT if text else frozenset())
        ]
        if refused:
            raise StoreError(
                f"array {place!r} has {', '.join(refused)}; expected numbers or times, encoded with "
                f"{', '.join(sorted(COMPRESSORS | FILTERS))}. Decoding anything else can run code that the "
                "store brings along, so nothing of it was decoded. If you trust the store, write it again "
                "without this array."
            )


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
