"""Where a job publishes: a folder, or an object store with a folder that stands for it on this machine.

All work is done, and every run verified, in the folder; renames, or one object, commit it.
"""

import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from cagp_dist.store import object_removal, prune, publish
from cagp_dist.store.addresses import SCHEME, cache_of, folder_of, in_object_store
from cagp_dist.store.bucket import in_parallel
from cagp_dist.store.earlier import EarlierRun, earlier_runs, latest_first, run_metadata
from cagp_dist.store.lock import output_lock
from cagp_dist.store.retention import Retention

if TYPE_CHECKING:
    import xarray as xr

    from cagp_dist.store.objects import PublishedObjects

    Groups: TypeAlias = Mapping[str, xr.Dataset]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FolderOutput:
    """An output folder; methods are called inside its `output_lock`, but those on old runs."""

    folder: Path

    def begin(self) -> None:
        pass  # the lock shows that one can write there

    def earlier(self, group: str, *, before: np.datetime64) -> Iterator[EarlierRun]:
        return earlier_runs(self.folder, group, before=before)

    def published(self, run_key: str) -> Path | None:
        return publish.published(self.folder, run_key=run_key)

    def publish(self, groups: "Groups", *, run_key: str, attributes: Mapping[str, object]) -> Path:
        return publish.publish(self.folder, groups, run_key=run_key, attributes=attributes)

    def make_current(self, run: Path) -> None:
        publish.advance(self.folder, run)

    def name_of(self, run: Path) -> str:
        return str(run)

    def prune(self, keep: Retention, *, since: str | None = None, dry: bool = False) -> list[str]:
        if not dry:
            return list(map(str, prune.prune_runs(self.folder, keep, since=since)))
        runs = prune.old_runs(self.folder, keep, since=since)
        return list(map(str, runs + prune.old_copies(self.folder, runs)))


@dataclass(frozen=True)
class ObjectOutput:
    """An address in an object store; the work is done in an output folder. Methods as of `FolderOutput`."""

    work: FolderOutput
    objects: "PublishedObjects"

    @property
    def folder(self) -> Path:
        return self.work.folder

    def begin(self) -> None:
        self.objects.runs()

    def earlier(self, group: str, *, before: np.datetime64) -> Iterator[EarlierRun]:
        """Find those of the store; one that is not in the folder is fetched when its path is asked for.

        Cost: three small requests for each run, and the objects of those that are fetched.
        """

        def fetched(key: str) -> Path | None:
            return self.work.published(key) or self.objects.fetch(key, self.folder)

        def found(key: str) -> EarlierRun | None:
            metadata = self.objects.metadata(key, group=group)
            return None if metadata is None else run_metadata(key, metadata, group, partial(fetched, key))

        yield from latest_first(in_parallel(found, self.objects.runs()), before=before)

    def published(self, run_key: str) -> Path | None:
        """Fetch a run; or find it in the folder, whence an earlier process did not get it to the store."""
        from cagp_dist.store.objects import DamagedRunError

        try:
            run = self.objects.fetch(run_key, self.folder)
        except DamagedRunError as error:
            _log.warning("a published run is damaged and will be replaced: %s", error)
            run = None
        return run or self.work.published(run_key)

    def publish(self, groups: "Groups", *, run_key: str, attributes: Mapping[str, object]) -> Path:
        run = self.work.publish(groups, run_key=run_key, attributes=attributes)
        self.objects.commit(run, self.folder)
        return run

    def make_current(self, run: Path) -> None:
        """Send a run if it is not there, and replace ``CURRENT`` in both places."""
        self.work.make_current(run)
        self.objects.commit(run, self.folder)

    def name_of(self, run: Path) -> str:
        return f"{self.objects.address}/{run.stem}"

    def prune(self, keep: Retention, *, since: str | None = None, dry: bool = False) -> list[str]:
        """Remove them from the store; what is in the folder stays."""
        remove = object_removal.old_run_keys if dry else object_removal.prune_objects
        return [f"{self.objects.address}/{key}" for key in remove(self.objects.bucket, keep, since=since)]


Output: TypeAlias = FolderOutput | ObjectOutput


def output_at(root: str) -> Output:
    """Give the output that a job or a command names."""
    if not in_object_store(root):
        return FolderOutput(Path(root))
    return ObjectOutput(FolderOutput(folder_of(root)), published_objects(root))


def published_objects(address: str) -> "PublishedObjects":
    """Open the runs at an address; s3fs is imported here and not before."""
    from cagp_dist.store.objects import PublishedObjects

    return PublishedObjects(address)


def readable(output: Path | str, *, every: bool = False, anew: bool = False) -> Path:
    """Give a path that `find_run` takes, for what readers name: runs of an object store are fetched."""
    text = str(output)
    address = text if in_object_store(text) else re.sub("^s3:/", SCHEME, text)  # as a Path spells it
    if not in_object_store(address):
        return Path(output)
    from cagp_dist.store.objects import DamagedRunError

    objects, part = published_objects(address), ""
    published = objects.runs()
    if not published and "/" in objects.address.removeprefix(SCHEME):
        above, _, part = objects.address.rpartition("/")
        objects = published_objects(above)
        published = objects.runs()
    root = cache_of(objects.address) / "copies"
    with output_lock(root, wait_seconds=60.0):
        current = objects.current()
        wanted = [key for key in published if (key.startswith(part) if part else every or key == current)]
        for key in wanted:
            try:
                if anew or not objects.up_to_date(key, root):
                    objects.fetch(key, root)
            except DamagedRunError as error:
                if anew or not every:
                    raise
                _log.warning("left out: %s", error)
        for copy in (root / "runs").glob("*.zarr"):
            if copy.stem not in published:
                shutil.rmtree(copy)
                shutil.rmtree(root / "report" / copy.stem, ignore_errors=True)
                copy.with_suffix(".sha256").unlink(missing_ok=True)
        if current is not None and (root / "runs" / f"{current}.zarr").is_dir():
            publish.make_current(root, run_key=current)
        else:
            (root / "CURRENT").unlink(missing_ok=True)
    return root / part if part else root
