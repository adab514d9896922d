"""Addresses of object stores, and the folders on this machine that stand for them."""

import os
import re
from pathlib import Path

from cagp_dist.digest import text_sha256

SCHEME = "s3://"

_ADDRESS = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[A-Za-z0-9_.=+-]+)*)/?")


def in_object_store(root: str) -> bool:
    """Whether a root is the address of an object store."""
    return root.startswith(SCHEME)


def folder_of(root: str) -> Path:
    """Output folder of a root on this machine: itself, or that where the work for an address is done."""
    return cache_of(root) / "work" if in_object_store(root) else Path(root)


def parse_address(address: str) -> tuple[str, str]:
    """Split an address into its bucket and the path in it."""
    found = _ADDRESS.fullmatch(address)
    if found is None or {".", ".."} & set(found[2].split("/")):
        raise ValueError(
            "it is not an address of an object store; expected s3://BUCKET or s3://BUCKET/PATH, of letters, "
            'digits and "-_.=+". Keys are taken from the environment (AWS_ACCESS_KEY_ID and so on)'
        )
    return found[1], found[2].strip("/")


def cache_of(address: str) -> Path:
    """Folder on this machine for what belongs to an address."""
    bucket, path = parse_address(address)
    configured = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(configured) if Path(configured).is_absolute() else Path.home() / ".cache"
    return cache / "cagp_dist" / "s3" / f"{bucket}-{text_sha256(f'{bucket}/{path}')[:12]}"
