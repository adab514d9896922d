"""Published runs in an object store: a run is sent whole, and one conditional write makes it the current one.

How they lie there, and why that is enough, is in `cagp_dist.store.uploads`. Of several publishers at the same
time the first is current, and one that was delayed does not take ``CURRENT`` back.
"""

import hashlib
import logging
import os
import secrets
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from cagp_dist.errors import BusyError, StoreError
from cagp_dist.store import manifest
from cagp_dist.store.atomic_files import empty_folder
from cagp_dist.store.bucket import Bucket, Marker, in_parallel
from cagp_dist.store.durable_files import disk_errors, write_durably
from cagp_dist.store.object_removal import remove_abandoned, remove_upload
from cagp_dist.store.publish import install
from cagp_dist.store.uploads import Upload, folder_of, key_of, published_uploads, stem_in

_log = logging.getLogger(__name__)

_ADVICE = "Run its job again, which replaces it."


class DamagedRunError(StoreError):
    """A published run whose objects are not those of its manifest; its job may be done again."""


class PublishedObjects:
    """The published runs at an address of a `Bucket`."""

    def __init__(self, address: str) -> None:
        self.bucket = Bucket(address)
        self.address = self.bucket.address
        self._damaged = set[str]()

    def runs(self) -> dict[str, datetime]:
        """List the keys of all published runs with the dates of their publication. Cost: one request."""
        return {upload.key: upload.made for upload in published_uploads(self.bucket)}

    def current(self) -> str | None:
        """Key of the current run; None if nothing was published. Raises StoreError if it is damaged."""
        found = self.bucket.read("CURRENT")
        return None if found is None else key_of(stem_in(self.bucket, found))

    def fetch(self, key: str, root: Path) -> Path | None:
        """Bring a run into an output folder that is locked, each object checked; None if there is none."""
        for _ in range(2):
            upload = self._last(key)
            if upload is None:
                return None
            try:
                return self._fetched(upload, root)
            except DamagedRunError:
                if self._last(key) == upload:  # not pruned or replaced meanwhile
                    self._damaged.add(upload.stem)
                    raise
        raise BusyError(
            f"the run {key} at {self.address} was replaced twice while it was read. Try again.", key="changes"
        )

    def metadata(self, key: str, *, group: str) -> bytes | None:
        """Read ``zarr.json`` of a run without fetching it; None if it is gone, or has no such group."""
        upload = self._last(key)
        if upload is None:
            return None
        try:
            folder, digests = self._digests(upload)
            return self._read(folder, "zarr.json", digests) if f"{group}/zarr.json" in digests else None
        except DamagedRunError:
            if self._last(key) != upload:
                return None  # removed, or replaced, meanwhile
            raise

    def up_to_date(self, key: str, root: Path) -> bool:
        """Whether the copy of a run in a folder is of the upload that is published."""
        upload = self._last(key)
        try:
            copied = manifest.digests_of(root / "runs" / f"{key}.zarr")
        except StoreError:
            return False
        return upload is not None and copied == self._digests(upload)[1]

    def commit(self, run: Path, root: Path) -> None:
        """Publish a verified run of a locked output folder and make it current.

        A current run that is there whole is not sent, unless `fetch` found it damaged.
        """
        key, upload = run.stem, f"{run.stem}-{secrets.token_hex(4)}"
        try:
            before = self.bucket.marker("CURRENT")
            if before is None or not self._is_whole(key, before):
                made = self._send(run, upload)
                if not self.bucket.put_marker("CURRENT", f"{upload}\n".encode(), instead_of=before):
                    self._give_way(key, made, root)
            remove_abandoned(self.bucket)
        except BusyError:
            raise
        except StoreError as error:
            raise StoreError(
                f"{error} The run is whole in {run}: the same command sends it, and computes nothing.",
                key="not-sent",
            ) from error

    def _is_whole(self, key: str, current: Marker) -> bool:
        """Whether ``CURRENT`` names the run, and all its objects are there, not found damaged by `fetch`."""
        stem = stem_in(self.bucket, current.data)
        if key_of(stem) != key or stem in self._damaged:
            return False
        try:
            folder, digests = self._digests(Upload(stem, current.modified))
        except DamagedRunError:
            return False
        return self.bucket.listed(f"runs/{folder}", deep=True)[0].keys() == digests.keys()

    def _send(self, run: Path, upload: str) -> Upload:
        """Send all objects of a run, and at last its manifest."""
        digests = manifest.digests_of(run)

        def send(file: str) -> None:
            with disk_errors(run / file):
                data = (run / file).read_bytes()
            if hashlib.sha256(data).hexdigest() != digests[file]:
                raise StoreError(
                    f"{run / file} changed after it was verified. Check the health of the disk.",
                    key="changed-since",
                )
            self.bucket.put(f"runs/{upload}.zarr/{file}", data)

        in_parallel(send, sorted(digests))
        self._check_arrived(run, f"{upload}.zarr", digests)
        text = manifest.text_of(digests, name=f"{upload}.zarr").encode()
        self.bucket.put(f"runs/{upload}.sha256", text)
        return Upload(upload, datetime.min)

    def _give_way(self, key: str, made: Upload, root: Path) -> None:
        """Another process was first: its run stays current, and of the same run only its upload stays."""
        if self.current() == key:
            remove_upload(self.bucket, made)
            self.fetch(key, root)
        _log.warning(
            "%s: another process made its run current while %s was published; that one stays current",
            self.address,
            key,
        )

    def _last(self, key: str) -> Upload | None:
        """Find the upload of a run that was published last."""
        return next(reversed(published_uploads(self.bucket, key)), None)

    def _check_arrived(self, run: Path, folder: str, digests: Mapping[str, str]) -> None:
        arrived, _ = self.bucket.listed(f"runs/{folder}", deep=True)
        sizes = {file: (run / file).stat().st_size for file in digests}
        if {file: entry.size for file, entry in arrived.items()} != sizes:
            raise StoreError(
                f"{self.address}/runs/{folder} does not hold the {len(sizes)} objects that were sent. "
                "Another program writes there, or the server lost some; run the same command again.",
                key="lost",
            )

    def _fetched(self, upload: Upload, root: Path) -> Path:
        folder, digests = self._digests(upload)
        run = root / "runs" / f"{upload.key}.zarr"
        stage = root / ".staging" / f"{upload.key}-{os.getpid()}"
        there, _ = self.bucket.listed(f"runs/{folder}", deep=True)
        for file in sorted(there.keys() ^ digests.keys()):
            wrong = "is missing" if file in digests else "does not belong there"
            raise DamagedRunError(
                f"{self.address}/runs/{folder}/{file} {wrong}, by the manifest of the run. {_ADVICE}",
                key="damaged",
            )

        def bring(file: str) -> None:
            data, path = self._read(folder, file, digests), stage / run.name / file
            with disk_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

        with empty_folder(stage):
            in_parallel(bring, sorted(digests))
            listing = stage / "manifest"
            write_durably(listing, manifest.text_of(digests, name=run.name))
            install(stage / run.name, listing, run)
        return run

    def _read(self, folder: str, file: str, digests: Mapping[str, str]) -> bytes:
        """Read an object of a run, and check it against its digest."""
        data = self.bucket.read(f"runs/{folder}/{file}")
        if data is None or hashlib.sha256(data).hexdigest() != digests.get(file):
            raise DamagedRunError(
                f"{self.address}/runs/{folder}/{file} is damaged: its SHA-256 is not that of "
                f"the manifest of the run. {_ADVICE}",
                key="damaged",
            )
        return data

    def _digests(self, upload: Upload) -> tuple[str, dict[str, str]]:
        """Read a manifest: the folder of the upload, and the digests of its objects."""
        where, folder = f"{self.address}/{upload.manifest}", folder_of(self.bucket, upload)
        text = self.bucket.read(upload.manifest)
        if text is None or not folder:
            raise DamagedRunError(f"the manifest {where} is gone, or damaged. {_ADVICE}", key="damaged")
        try:
            return folder, manifest.parse(text, name=folder, where=where)
        except StoreError as error:
            raise DamagedRunError(str(error), key="damaged") from None
