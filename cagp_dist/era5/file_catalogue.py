"""Which times files have: listed once for each version of a file, as its size and time of change tell.

The list lies in the cache folder. A file that has not changed costs one `stat`, however many there are.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.era5.selection import Selection
from cagp_dist.errors import DamagedFileError
from cagp_dist.store.atomic_files import replacing

FOLDER = "times-of-files"


class Listing(TypedDict):
    """What a file has: times in nanoseconds since 1970, or the names of other fields, or an error."""

    times: list[int]
    names: list[str]
    error: tuple[str, str] | None  # kind and message


class Listed(NamedTuple):
    """A file and what it has."""

    path: Path
    listing: Listing

    @property
    def times(self) -> Times:
        """Its times, as it has them."""
        return np.array(self.listing["times"], dtype="datetime64[ns]")


def times_listed(
    paths: Sequence[Path],
    *,
    scratch: Path,
    selection: Selection,
    read: Callable[[Sequence[Path]], Sequence[Listing]],
) -> list[Listed]:
    """List the times of files; those that are new or have changed are given to ``read``."""
    sought = json.dumps([selection.get("variable"), selection.get("level"), selection.get("select")])
    kept = scratch / FOLDER / f"{hashlib.sha256(sought.encode()).hexdigest()[:16]}.json"
    known = _known(kept)
    versions = {os.fspath(path.absolute()): _version(path) for path in paths}
    found = {
        name: entry
        for name, version in versions.items()
        if (entry := known.get(name)) and entry[0] == version
    }
    unknown = [path for path in paths if os.fspath(path.absolute()) not in found]
    for path, listing in zip(unknown, read(unknown) if unknown else (), strict=True):
        found[os.fspath(path.absolute())] = [versions[os.fspath(path.absolute())], listing]
    if unknown:
        # not what is gone or has changed meanwhile, nor what another try may read
        good = {
            name: entry
            for name, entry in {**known, **found}.items()
            if entry[0] is not None
            and entry[0] == _version(Path(name))
            and (entry[1]["error"] is None or entry[1]["error"][0] == DamagedFileError.__name__)
        }
        # a folder that cannot be written costs time, no more
        with suppress(OSError), replacing(kept) as draft:
            draft.write_text(json.dumps(good))
    return [Listed(path, found[os.fspath(path.absolute())][1]) for path in paths]


def _version(path: Path) -> list[int] | None:
    try:
        about = path.stat()
    except OSError:
        return None
    return [about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino]


def _known(path: Path) -> dict[str, list[Any]]:
    """Read the list; nothing where it is damaged."""
    try:
        found = json.loads(path.read_text())
        return {name: entry for name, entry in found.items() if len(entry) == 2 and "times" in entry[1]}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
