"""Where published runs lie in an object store, which has neither renames nor locks.

::

    s3://BUCKET/PATH/runs/KEY-UPLOAD.zarr/     objects of one upload of a run, never changed
                     runs/KEY-UPLOAD.sha256    digest of each of them, written when all are there
                     CURRENT                   KEY-UPLOAD of the run that readers open

Who publishes reads ``CURRENT``, sends a run under a name that no other upload has, and replaces ``CURRENT``
on condition that it is as it was read. That one write publishes: readers see the run before or this one,
whole.

**Why removal needs no lock.** An upload whose manifest is older than ``CURRENT``, and which ``CURRENT`` does
not name, is never named by it again: its publisher read ``CURRENT`` before, so that its condition does not
hold. Hence what is older than ``CURRENT`` may be removed. Both dates are those of the server, which may be
off by `MARGIN`.

Earlier versions wrote ``runs/KEY.sha256``, whose first line names the upload, and KEY into ``CURRENT``.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from cagp_dist.errors import StoreError
from cagp_dist.store.bucket import Bucket

MARGIN = timedelta(minutes=1)  # by which dates of a server tell which of two objects was written first

FOLDER = re.compile(r"([0-9a-f]{16,64})-[0-9a-f]{8}\.zarr")  # of an upload, with the key of its run

_STEM = r"[0-9a-f]{16,64}(?:-[0-9a-f]{8})?"


@dataclass(frozen=True)
class Upload:
    """A run that is published, and when its manifest was written."""

    stem: str
    made: datetime

    @property
    def key(self) -> str:
        """Key of the run."""
        return key_of(self.stem)

    @property
    def manifest(self) -> str:
        """Name of the object with its digests."""
        return f"runs/{self.stem}.sha256"


def folder_of(bucket: Bucket, upload: Upload) -> str:
    """Name of the folder of its objects; empty if only a manifest that is damaged or gone says it."""
    if upload.stem != upload.key:
        return f"{upload.stem}.zarr"
    text = (bucket.read(upload.manifest) or b"").partition(b"\n")[0].decode("utf-8", "replace")
    match = FOLDER.fullmatch(text.partition("  ")[2].partition("/")[0])
    return match[0] if match is not None and match[1] == upload.key else ""


def key_of(stem: str) -> str:
    """Key of the run of an upload."""
    return stem.partition("-")[0]


def published_uploads(bucket: Bucket, key: str = "") -> list[Upload]:
    """List what is published, or of one run, the last one at the end. Cost: one request."""
    found, _ = bucket.listed("runs", deep=False, begins=key)
    named = ((re.fullmatch(rf"({_STEM})\.sha256", name), entry.modified) for name, entry in found.items())
    uploads = [Upload(match[1], made) for match, made in named if match is not None]
    if key:
        uploads = [upload for upload in uploads if upload.key == key]
    return sorted(uploads, key=lambda upload: (upload.made, upload.stem))


def stem_in(bucket: Bucket, current: bytes) -> str:
    """Read which upload ``CURRENT`` names."""
    stem = current.decode("ascii", "replace").removesuffix("\n")
    if not re.fullmatch(_STEM, stem):
        raise StoreError(
            f"{bucket.address}/CURRENT holds {stem[:80]!r}; expected the name of an upload, that is the "
            "hexadecimal key of a run with eight digits behind it. Run the job again to publish it again.",
            key="damaged",
        )
    return stem
