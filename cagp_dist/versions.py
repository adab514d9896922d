"""Versions of installed packages: looked up once, since each takes milliseconds and a run names ten."""

from functools import cache
from importlib import metadata


@cache
def version(package: str) -> str:
    """Give the version of an installed package, as it was when it was first asked for."""
    return metadata.version(package)
