"""The objects of published runs in an object store, and marks by which publishers and removers keep apart.

::

    s3://BUCKET/PATH/runs/KEY-UPLOAD.zarr/     objects of one upload of a run, never changed
                     runs/KEY.sha256           digest of each of them: a run is published when this is there
                     runs/KEY.publishing-MARK  a process publishes the run just now
                     runs/KEY.removing-MARK    a process removes objects of the run just now
                     CURRENT                   the key of the run that readers open

Who publishes a run first writes ``runs/KEY.publishing-MARK``, who removes objects of it first writes
``runs/KEY.removing-MARK``. Then each looks for marks of the other kind. A remover that finds one leaves the
run alone; a publisher waits until there is none. Each takes its mark away when it is done.

**Why they keep apart.** S3 shows a write to every request that begins after its answer. Of a publisher and a
remover of one run, one wrote its mark last. Its look comes after both writes, so that it finds the other's
mark, unless the other is done. Hence while a remover acts no publisher does: if ``CURRENT`` does not name the
run then, nobody makes it do so before the remover is done, and whoever publishes it later reads that it is
gone. Neither clocks nor conditional writes have a part in this.

**The dead.** A mark that is older than another one by `ABANDONED`, by the dates that the server gave to both,
counts as left by a dead process and is taken away by the owner of the other mark, before this one does
anything else. Should its process live, because it was only suspended, then it finds out: each looks for its
own mark once more *after* it acted, a publisher after it wrote ``CURRENT``, a remover after it deleted the
manifest and before it deletes anything else. If its mark is there, whoever takes it away later also reads
what was done. If not, the publisher publishes again, and the remover puts the manifest back.

One case is left: a remover that is suspended for more than a day between reading a manifest and its next
request, while a publisher replaces that run and clears its former objects away. What it does then may leave
``CURRENT`` with a run that has gaps; readers refuse it by name, and its job, run again, mends it.
"""

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from cagp_dist.errors import BusyError, StoreError
from cagp_dist.store.bucket import Bucket, Stored

ABANDONED = timedelta(days=1)  # age of marks and unnamed objects that count as left behind

_PATIENCE_SECONDS, _POLL_SECONDS = 30.0, 0.5
_MARK = re.compile(r"\w+\.(publishing|removing)-[0-9a-f]{8}")
UPLOAD = re.compile(r"([0-9a-f]{16,64})-([0-9a-f]{8})\.zarr")  # key of its run, mark of the upload

_MANIFEST = re.compile(r"([0-9a-f]{16,64})\.sha256")

_OTHER = {"publishing": "removing", "removing": "publishing"}


class Mark:
    """The mark of this process, which is publishing or removing a run; no other mark has its token."""

    def __init__(self, bucket: Bucket, key: str, doing: str, token: str) -> None:
        self._bucket, self._key, self._doing = bucket, key, doing
        self._name = f"{key}.{doing}-{token}"

    def write(self) -> None:
        """Write it."""
        self._bucket.put(f"runs/{self._name}", b"")

    def stands(self) -> bool:
        """Whether it is still there."""
        return self.written() is not None

    def written(self) -> datetime | None:
        """When it was written, by the clock of the server; None if it is not there."""
        entry = self._of_run().get(self._name)
        return None if entry is None else entry.modified

    def opposed(self) -> bool:
        """Whether there are marks of the other kind, after those of dead processes were taken away."""
        there = self._of_run()
        if self._name not in there:
            return True  # taken for that of a dead process: the other one acts
        now = there[self._name].modified
        others = {name for name in there if name.startswith(f"{self._key}.{_OTHER[self._doing]}-")}
        dead = {name for name in others if now - there[name].modified > ABANDONED}
        self._bucket.delete(f"runs/{name}" for name in dead)
        return dead != others

    def remove(self) -> None:
        """Take it away."""
        self._bucket.delete([f"runs/{self._name}"])

    def _of_run(self) -> dict[str, Stored]:
        return self._bucket.listed("runs", deep=False, begins=f"{self._key}.")[0]


@contextmanager
def publishing(bucket: Bucket, key: str, token: str) -> Iterator[Mark]:
    """Keep removers away from a run. If an error ends it, the mark stays until `take_away`."""
    mark = Mark(bucket, key, "publishing", token)
    mark.write()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while mark.opposed():
        if time.monotonic() >= deadline:
            mark.remove()
            raise BusyError(
                f"objects of the run {key} at {bucket.address} are being removed by another process, or one "
                f"that died left runs/{key}.removing-... there, which counts for a day. Run the same command "
                "again; if no process prunes there, delete that object first."
            )
        time.sleep(_POLL_SECONDS)
    yield mark
    mark.remove()


@contextmanager
def removing(bucket: Bucket, key: str) -> Iterator[Mark | None]:
    """Keep publishers away from a run; None if there is one, and nothing may be removed."""
    mark = Mark(bucket, key, "removing", secrets.token_hex(4))
    mark.write()
    try:
        yield None if mark.opposed() else mark
    finally:
        mark.remove()


def take_away(bucket: Bucket, key: str, token: str) -> None:
    """Take away the mark of a publication that did not end."""
    Mark(bucket, key, "publishing", token).remove()


def is_mark(name: str) -> bool:
    """Whether an object below ``runs`` is a mark."""
    return _MARK.fullmatch(name) is not None


def server_time(bucket: Bucket) -> datetime | None:
    """Date of this moment by the clock of the server, in three requests; None if it cannot be told."""
    mark = Mark(bucket, "clock", "removing", secrets.token_hex(4))
    mark.write()
    date = mark.written()
    mark.remove()
    return date


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
            "Run the job again to publish it again."
        )
    return key
