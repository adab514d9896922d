"""What a file is, by its first bytes: names lie, and servers save their error pages under any of them."""

from enum import Enum

from cagp_dist.errors import DataError

HEAD_BYTES = 512  # how many leading bytes are looked at


class FileKind(Enum):
    """Formats that can be decoded; the value is how messages call them."""

    GRIB = "GRIB"
    NETCDF3 = "NetCDF-3"
    NETCDF4 = "NetCDF-4"
    ZIP = "zip"


_MAGIC = (
    (b"GRIB", FileKind.GRIB),
    (b"\x89HDF\r\n\x1a\n", FileKind.NETCDF4),
    (b"CDF\x01", FileKind.NETCDF3),
    (b"CDF\x02", FileKind.NETCDF3),
    (b"PK\x03\x04", FileKind.ZIP),
)

_REFUSED = (
    (b"CDF\x05", "the 64-bit data variant of NetCDF-3", "Convert it with: nccopy -k netCDF-4 OLD NEW"),
    (b"\x1f\x8b", "a gzip archive", "Unpack it with gunzip first."),
    (b"PK\x05\x06", "a zip archive without members", "Request the data again."),
    (b"version https://git-lfs", "a Git LFS pointer", "Fetch the file itself with: git lfs pull"),
    (b"{", "JSON, as servers send with an error", "Read it in a text editor, then request the data again."),
)


def file_kind(head: bytes, *, name: str) -> FileKind:
    """Recognise the format of a file."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    looks, advice = _describe(head)
    start = f" (first bytes {head[:16]!r})" if head else ""
    raise DataError(
        f"{name} is {looks}{start}; expected GRIB, NetCDF or a zip of them. {advice}", key="not-a-field"
    )


def _describe(head: bytes) -> tuple[str, str]:
    if not head:
        return "empty", "The download failed; fetch the file again."
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:15].lower().startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<body")):
        return (
            "a web page, not data",
            "The server sent a login or error page: open it in a browser, then fetch the file again.",
        )
    for magic, looks, advice in _REFUSED:
        if text.startswith(magic):
            return looks, advice
    if text.startswith(b"PAR1") or (text.isascii() and any(mark in text for mark in b",;\t")):
        return "of an unknown format", "A table of stations is named table:PATH."
    return "of an unknown format", "Check the path, or fetch the file again."
