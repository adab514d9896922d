"""Compressors that unpack no more than a chunk has: what is larger is refused before memory is taken.

Megabytes of zeros unpack to gigabytes, and what a chunk of an array has is known before. Decoding here, and
not in a child process as of GRIB, costs nothing and reads whatever fsspec reaches.
"""

import asyncio
import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
from numcodecs.abc import Codec
from zarr.abc.codec import BytesBytesCodec
from zarr.core.buffer.cpu import as_numpy_array_wrapper
from zarr.registry import get_codec_class, register_codec

from cagp_dist.errors import StoreError
from cagp_dist.memory import MOST_CHUNK_BYTES
from cagp_dist.text import bytes_text

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer

COMPRESSORS = frozenset({"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"})
NAME = "cagp_dist.bounded"  # of the codecs here, in metadata that is read

_SLACK_BYTES = 2**20  # for checksums, and for blocks that are not full
_ZSTD_BLOCK_BYTES = 2**17


class BoundedNumcodec(Codec):  # type: ignore[misc]
    """A compressor of Zarr 2 that gives at most so many bytes; written again, it is the compressor."""

    codec_id = NAME

    def __init__(self, codec: Mapping[str, Any], limit_bytes: int) -> None:
        self._inner, self._limit_bytes = numcodecs.get_codec(dict(codec)), limit_bytes

    def encode(self, buf: Any) -> Any:
        return self._inner.encode(buf)

    def decode(self, buf: Any, out: Any = None) -> Any:
        return numcodecs.compat.ndarray_copy(unpacked_chunk(self._inner, buf, self._limit_bytes), out)

    def get_config(self) -> Any:
        return self._inner.get_config()


@dataclass(frozen=True)
class BoundedCodec(BytesBytesCodec):
    """A compressor of Zarr 3 that gives at most what a chunk has; written again, it is the compressor."""

    inner: BytesBytesCodec
    compressor: Codec
    is_fixed_size = False

    @classmethod
    def from_dict(cls, data: Any) -> "BoundedCodec":
        codec = data["configuration"]["codec"]
        name = codec["name"].removeprefix("numcodecs.")
        settings = codec.get("configuration", {}) if name == "lzma" else {}  # others decode without
        inner = get_codec_class(codec["name"]).from_dict(codec)
        return cls(inner, numcodecs.get_codec({"id": name, **settings}))  # type: ignore[arg-type]

    def to_dict(self) -> Any:
        return self.inner.to_dict()

    def evolve_from_array_spec(self, array_spec: "ArraySpec") -> "BoundedCodec":
        return replace(self, inner=self.inner.evolve_from_array_spec(array_spec))

    async def _decode_single(self, chunk_bytes: "Buffer", chunk_spec: "ArraySpec") -> "Buffer":
        kind = chunk_spec.dtype.to_native_dtype()
        numbers = prod(chunk_spec.shape) * kind.itemsize
        limit = MOST_CHUNK_BYTES if kind.kind in "OT" else numbers  # text is as long as it is

        def decode() -> "Buffer":
            return as_numpy_array_wrapper(
                lambda data: unpacked_chunk(self.compressor, data, limit), chunk_bytes, chunk_spec.prototype
            )

        return await asyncio.to_thread(decode)

    async def _encode_single(self, chunk_bytes: "Buffer", chunk_spec: "ArraySpec") -> "Buffer | None":
        return await self.inner._encode_single(chunk_bytes, chunk_spec)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: "ArraySpec") -> int:
        return self.inner.compute_encoded_size(input_byte_length, chunk_spec)


numcodecs.register_codec(BoundedNumcodec)  # the Zarr library finds codecs by their names
register_codec(NAME, BoundedCodec)


def unpacked_chunk(codec: Codec, data: Any, limit_bytes: int) -> Any:
    """Decode a chunk; `StoreError` where it has more bytes than it should."""
    most = with_slack(limit_bytes)
    plain = numcodecs.compat.ensure_bytes(data)
    match codec.codec_id:
        case "blosc" if int.from_bytes(plain[12:16], "little") > len(plain):
            raise EOFError("a chunk is cut off")  # which the library would read on behind
        case "blosc" | "lz4" | "zstd":
            size = _STATED[codec.codec_id](plain)
            found = codec.decode(plain) if size <= most else None
        case "zlib":
            stream = zlib.decompressobj()
            found = stream.decompress(plain, most + 1)
            if len(found) <= most and not stream.eof:
                raise zlib.error("incomplete or truncated stream")
        case "gzip":
            found = gzip.GzipFile(fileobj=BytesIO(plain)).read(most + 1)
        case "bz2":
            found = bz2.BZ2File(BytesIO(plain)).read(most + 1)
        case "lzma":
            with lzma.LZMAFile(BytesIO(plain), format=codec.format, filters=codec.filters) as file:
                found = file.read(most + 1)
        case other:
            raise StoreError(f"codec {other!r} has no limit.", key="codec")
    if found is None or len(found) > most:
        raise StoreError(
            f"a chunk of {bytes_text(len(plain))} unpacks to more than the {bytes_text(limit_bytes)} that "
            "its array says; it was not unpacked further. The store is damaged, or made to fill the memory: "
            "fetch it again from whom you trust.",
            key="unpacked-size",
        )
    return found


def with_slack(size_bytes: int) -> int:
    """Bytes that so many of an array have at most where they are packed badly, or have checksums."""
    return size_bytes + size_bytes // 8 + _SLACK_BYTES


def bounded(node: dict[str, Any]) -> None:
    """Put the compressors of an array, by its metadata, instead of those that have no limit."""
    if "chunks" in node:
        kinds = [node, *(codec for codec in node.get("filters") or () if isinstance(codec, dict))]
        stated = [kind[key] for kind in kinds for key in ("dtype", "astype") if kind.get(key)]
        limit = prod(node["chunks"]) * max(map(item_bytes, stated))
        for key in ("compressor", "filters"):
            node[key] = _each(node.get(key), lambda codec: _bounded_2(codec, limit))
    node |= {"codecs": _each(node["codecs"], _bounded_3)} if "codecs" in node else {}


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    return [change(one) for one in value] if isinstance(value, list) else change(value)


def _bounded_2(codec: Any, limit_bytes: int) -> Any:
    if not isinstance(codec, dict) or codec.get("id") not in COMPRESSORS:
        return codec
    return {"id": NAME, "codec": codec, "limit_bytes": limit_bytes}


def _bounded_3(codec: Any) -> Any:
    named = codec if isinstance(codec, dict) else {"name": codec, "configuration": {}}
    if str(named.get("name")).removeprefix("numcodecs.") in COMPRESSORS:
        return {"name": NAME, "configuration": {"codec": named}}
    inner = named.get("configuration")
    if isinstance(inner, dict):
        changed = {key: _each(inner[key], _bounded_3) for key in ("codecs", "index_codecs") if key in inner}
        return {**named, "configuration": {**inner, **changed}}
    return codec


def item_bytes(dtype: Any) -> int:
    """Bytes of a number of a data type of either format."""
    try:
        return int(np.dtype(dtype).itemsize)
    except TypeError:
        return 8  # dates and differences of Zarr 3, by other names than those of NumPy


def _zstd_frames(data: bytes) -> Iterator[int]:
    """Most bytes that each frame unpacks to, by the heads of frames and blocks (RFC 8878, 3.1.1)."""
    at = 0
    while at + 5 <= len(data):
        if int.from_bytes(data[at : at + 4], "little") >> 4 == 0x184D2A5:  # a frame to be skipped
            at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
            continue
        descriptor = data[at + 4]
        single = descriptor >> 5 & 1
        at += 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3]
        length = (single, 2, 4, 8)[descriptor >> 6]
        stated = int.from_bytes(data[at : at + length], "little") + (256 if length == 2 else 0)
        at += length
        blocks, last = 0, False
        while not last and at + 3 <= len(data):
            head = int.from_bytes(data[at : at + 3], "little")
            last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
            blocks += _ZSTD_BLOCK_BYTES if kind == 2 else size
            at += 3 + (1 if kind == 1 else size)
        at += 4 * (descriptor >> 2 & 1)
        yield stated if length else blocks


_STATED: dict[str, Callable[[bytes], int]] = {
    "blosc": lambda data: int.from_bytes(data[4:8], "little"),
    "lz4": lambda data: int.from_bytes(data[:4], "little"),
    "zstd": lambda data: sum(_zstd_frames(data)),
}
"""What says in the compressed bytes how many they unpack to; the libraries give no more than that."""
