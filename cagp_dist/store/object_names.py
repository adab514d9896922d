"""How the objects of published runs are named in an object store, and what their names say.

::

    s3://BUCKET/PATH/runs/KEY-UPLOAD.zarr/     objects of one upload of a run, never changed
                     runs/KEY.sha256           digest of each of them: a run is published when this is there
                     runs/KEY.publishing-MARK  a process publishes the run just now
                     runs/KEY.removing-MARK    a process removes objects of the run just now
                     CURRENT                   the key of the run that readers open
"""

import re
from datetime import datetime

from cagp_dist.errors import StoreError
from cagp_dist.store.bucket import Bucket

UPLOAD = re.compile(r"([0-9a-f]{16,64})-([0-9a-f]{8})\.zarr")
"""Folder of an upload: the key of its run, and what tells it from other uploads of this run."""

_MANIFEST = re.compile(r"([0-9a-f]{16,64})\.sha256")


def manifest_of(key: str) -> str:
    """Name of the object that publishes a run."""
    return f"runs/{key}.sha256"


def upload_in(text: bytes) -> str:
    """Name of the upload that the first line of a manifest names."""
    return text.partition(b"\n")[0].decode("utf-8", "replace").partition("  ")[2].partition("/")[0]


def published_runs(bucket: Bucket) -> dict[str, datetime]:
    """List the keys of all published runs with the dates of their publication. Cost: one request."""
    found, _ = bucket.listed("runs", deep=False)
    named = ((_MANIFEST.fullmatch(name), entry) for name, entry in found.items())
    return {match[1]: entry.modified for match, entry in named if match is not None}


def current_key(bucket: Bucket) -> str | None:
    """Key of the current run; None if nothing was published."""
    found = bucket.read("CURRENT")
    if found is None:
        return None
    key = found.decode("ascii", "replace").removesuffix("\n")
    if not re.fullmatch("[0-9a-f]{16,64}", key):
        raise StoreError(
            f"{bucket.address}/CURRENT holds {key[:80]!r}; expected the hexadecimal key of a run. "
            "Run the job again to publish anew."
        )
    return key
