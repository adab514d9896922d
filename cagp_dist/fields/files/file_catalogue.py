"""What is known of files, worked out once for each version of a file, as its size and times of change tell.

It lies in the cache folder. A file that has not changed costs one `stat`, however many there are.
"""

import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.digest import file_sha256
from cagp_dist.errors import CagpError, DamagedFileError
from cagp_dist.fields.files.decoded_files import Told, told_of
from cagp_dist.fields.selection import Selection
from cagp_dist.store.atomic_files import replacing
from cagp_dist.versions import version

FOLDER = "known-of-files"

# size, times of change in nanoseconds and number of a file; None: it is none
Version = tuple[int, ...] | None

T = TypeVar("T")


# of what costs much to find out and may change without the file: a machine that was busy or short of memory
REMEMBERED, REMEMBERED_SECONDS = ("time-limit", "memory", "damaged"), 86_400.0


class Listing(TypedDict):
    """What a file has: times in nanoseconds since 1970, or the names of other fields, or an error."""

    times: list[int]
    names: list[str]
    error: Told | None
    looked: float  # when it was looked at, Unix time


def listing_of(error: CagpError) -> Listing:
    """Write down why a file could not be listed."""
    return {"times": [], "names": [], "error": told_of(error), "looked": time.time()}


class Listed(NamedTuple):
    """A file and what it has."""

    path: Path
    listing: Listing
    version: Version

    @property
    def times(self) -> Times:
        """Its times, as it has them."""
        return np.array(self.listing["times"], dtype="datetime64[ns]")


def file_version(path: Path) -> Version:
    """Tell a file from others that have its path before or after."""
    with suppress(OSError):
        about = path.stat()
        if stat.S_ISREG(about.st_mode):
            return about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino
    return None


def times_listed(
    versions: Mapping[Path, Version],
    *,
    scratch: Path,
    selection: Selection,
    read: Callable[[Sequence[Path]], Sequence[Listing]],
) -> list[Listed]:
    """List the times of files; those that are new or have changed are given to ``read``."""
    # another decoder may read what this one cannot
    sought = json.dumps([version("cagp-dist"), selection.as_json()])
    found: list[Listing] = known_of_files(
        versions,
        scratch / FOLDER / f"times-{hashlib.sha256(sought.encode()).hexdigest()[:16]}.json",
        read,
        valid=_is_listing,
        # not what another try may read
        lasting=lambda listing: (
            (error := listing["error"]) is None
            or error["kind"] == DamagedFileError.__name__
            or error["key"] in REMEMBERED
        ),
    )
    return [Listed(path, listing, versions[path]) for path, listing in zip(versions, found, strict=True)]


def digests_of_files(paths: Iterable[Path], *, scratch: Path) -> list[str]:
    """SHA-256 of each file."""
    versions = {path: file_version(path) for path in paths}
    return known_of_files(versions, scratch / FOLDER / "sha256.json", lambda new: [*map(file_sha256, new)])


def _is_listing(found: object) -> bool:
    """Whether what was kept has the shape of a `Listing`."""
    if not isinstance(found, dict) or found.keys() != Listing.__annotations__.keys():
        return False
    error = found["error"]
    return (
        all(isinstance(found[name], list) for name in ("times", "names"))
        and isinstance(found["looked"], int | float)
        and all(isinstance(time, int) for time in found["times"])
        and (error is None or (isinstance(error, dict) and error.keys() == Told.__annotations__.keys()))
        and (
            error is None
            or error["kind"] == DamagedFileError.__name__
            or abs(time.time() - found["looked"]) < REMEMBERED_SECONDS
        )
    )


def forget_unreadable(scratch: Path) -> None:
    """Have files that could not be listed read once more."""
    for kept in (scratch / FOLDER).glob("times-*.json"):
        found = {name: entry for name, entry in _known(kept).items() if not _has_failed(entry[1])}
        with suppress(OSError), replacing(kept) as draft:
            draft.write_text(json.dumps(found))


def _has_failed(listing: object) -> bool:
    return not isinstance(listing, dict) or listing.get("error") is not None


def known_of_files(
    versions: Mapping[Path, Version],
    kept: Path,
    read: Callable[[Sequence[Path]], Sequence[T]],
    *,
    valid: Callable[[object], bool] = lambda found: isinstance(found, str),
    lasting: Callable[[T], bool] = lambda _: True,
) -> list[T]:
    """Give what was read of each file; those that are new or have changed are given to ``read``."""
    known = {name: entry for name, entry in _known(kept).items() if valid(entry[1])}
    names = {path: os.fspath(path.absolute()) for path in versions}
    found: dict[Path, T] = {}
    for path, name in names.items():
        entry = known.get(name)
        if entry is not None and versions[path] is not None and entry[0] == list(versions[path] or ()):
            found[path] = entry[1]
    unknown = [path for path in versions if path not in found]
    if unknown:
        found |= zip(unknown, read(unknown), strict=True)
        new = {names[path]: [versions[path], found[path]] for path in unknown if lasting(found[path])}
        # not what is gone or has changed meanwhile
        good = {
            name: entry
            for name, entry in {**known, **new}.items()
            if (now := file_version(Path(name))) is not None and list(entry[0] or ()) == list(now)
        }
        # a folder that cannot be written costs time, no more
        with suppress(OSError), replacing(kept) as draft:
            draft.write_text(json.dumps(good))
    return [found[path] for path in versions]


def _known(path: Path) -> dict[str, list[Any]]:
    """Read what was kept; nothing where it is damaged."""
    try:
        found = json.loads(path.read_text())
        return {
            name: entry
            for name, entry in found.items()
            if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list)
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
