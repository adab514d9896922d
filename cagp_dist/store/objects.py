"""Published runs in an object store, which has neither renames nor locks; see `cagp_dist.store.marks`.

Each upload has a name of its own, so that two publishers never write the same object. The manifest makes a
run visible, ``CURRENT`` makes it current, when all its objects are there and no process that prunes removes
any. Both are written on condition that they are as they were: of several publishers of a key the first wins,
and one that was delayed does not take ``CURRENT`` back. Without conditional writes the last one wins in both;
a run is whole in any case.
"""

import hashlib
import logging
import os
import secrets
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from cagp_dist.errors import BusyError, StoreError
from cagp_dist.store import manifest, marks
from cagp_dist.store.atomic_files import empty_folder
from cagp_dist.store.bucket import Bucket, Marker, in_parallel
from cagp_dist.store.durable_files import disk_errors, write_durably
from cagp_dist.store.object_removal import remove_abandoned, remove_upload
from cagp_dist.store.publish import install

_log = logging.getLogger(__name__)

_ATTEMPTS = 3
_ADVICE = "Run its job again, which replaces it."


class DamagedRunError(StoreError):
    """A published run whose objects are not those of its manifest; its job may be done again."""


class PublishedObjects:
    """The published runs at an address of a `Bucket`."""

    def __init__(self, address: str) -> None:
        self.bucket = Bucket(address)
        self.address = self.bucket.address
        self._damaged: dict[str, Marker] = {}

    def runs(self) -> dict[str, datetime]:
        """List the keys of all published runs with the dates of their publication. Cost: one request."""
        return marks.published_runs(self.bucket)

    def current(self) -> str | None:
        """Key of the current run; None if nothing was published. Raises StoreError if it is damaged."""
        return marks.current_key(self.bucket)

    def fetch(self, key: str, root: Path) -> Path | None:
        """Bring a run into an output folder that is locked, each object checked; None if there is none."""
        for _ in range(2):
            marker = self.bucket.marker(marks.manifest_of(key))
            if marker is None:
                return None
            try:
                return self._fetched(key, marker, root)
            except DamagedRunError:
                if self.bucket.marker(marks.manifest_of(key)) == marker:  # not pruned or replaced meanwhile
                    self._damaged[key] = marker
                    raise
        raise BusyError(f"the run {key} at {self.address} was replaced twice while it was read. Try again.")

    def metadata(self, key: str, *, group: str) -> bytes | None:
        """Read ``zarr.json`` of a run without fetching it; None if it is gone, or has no such group."""
        marker = self.bucket.marker(marks.manifest_of(key))
        if marker is None:
            return None
        try:
            upload, digests = self._digests(key, marker.data)
            return self._read(upload, "zarr.json", digests) if f"{group}/zarr.json" in digests else None
        except DamagedRunError:
            if self.bucket.marker(marks.manifest_of(key)) != marker:
                return None  # removed, or replaced, meanwhile
            raise

    def up_to_date(self, key: str, root: Path) -> bool:
        """Whether the copy of a run in a folder is of the upload that is published."""
        text = self.bucket.read(marks.manifest_of(key))
        try:
            copied = manifest.digests_of(root / "runs" / f"{key}.zarr")
        except StoreError:
            return False
        return text is not None and copied == self._digests(key, text)[1]

    def commit(self, run: Path, root: Path) -> None:
        """Publish a verified run of a locked output folder and make it current.

        A run that is published whole is not sent, unless `fetch` found it damaged.
        """
        notes = root / ".uploads"
        try:
            self._remove_left_by_dead(notes)
            if not any(self._publish(run, root, notes, anew=attempt > 0) for attempt in range(_ATTEMPTS)):
                raise BusyError(
                    f"the run {run.stem} was removed from {self.address} by another process each of "
                    f"{_ATTEMPTS} times that it was published. Run the same command again."
                )
            remove_abandoned(self.bucket)
        except BusyError:
            raise
        except StoreError as error:
            raise StoreError(
                f"{error} The run is whole in {run}: the same command sends it, and computes nothing."
            ) from error

    def _publish(self, run: Path, root: Path, notes: Path, *, anew: bool) -> bool:
        """Send a run that is not there whole, or ``anew``, make it current; False if it may be removed."""
        key, token = run.stem, secrets.token_hex(4)
        upload = f"{key}-{token}.zarr"
        with disk_errors(notes):
            notes.mkdir(exist_ok=True)
        # so that the next process here knows what this one left, should it die
        write_durably(notes / upload, "")
        before = self.bucket.marker(marks.manifest_of(key))
        digests = None if self._whole(key, before) and not anew else manifest.digests_of(run)
        if digests is not None:
            in_parallel(
                lambda file: self._send(run / file, f"runs/{upload}/{file}", digests[file]), sorted(digests)
            )
        current = self.bucket.marker("CURRENT")
        with marks.publishing(self.bucket, key, token) as mark:
            if digests is None:
                there = self._whole(key, self.bucket.marker(marks.manifest_of(key)))
            else:
                self._check_arrived(run, upload, digests)
                text = manifest.text_of(digests, name=upload).encode()
                there = self.bucket.put_marker(marks.manifest_of(key), text, instead_of=before)
                if not there:
                    remove_upload(self.bucket, upload)
                    there = self.fetch(key, root) is not None
                    if there:
                        _log.warning(
                            "%s: another process has published the run %s; it stays", self.address, key
                        )
            if there:
                self._make_current(key, current)
                there = mark.stands()
        with disk_errors(notes):
            (notes / upload).unlink()
        return there

    def _whole(self, key: str, marker: Marker | None) -> bool:
        """Whether the objects that a manifest names are there, and `fetch` did not find them damaged."""
        if marker is None or marker == self._damaged.get(key):
            return False
        try:
            upload, digests = self._digests(key, marker.data)
        except DamagedRunError:
            return False
        return self.bucket.listed(f"runs/{upload}", deep=True)[0].keys() == digests.keys()

    def _check_arrived(self, run: Path, upload: str, digests: Mapping[str, str]) -> None:
        arrived, _ = self.bucket.listed(f"runs/{upload}", deep=True)
        sizes = {file: (run / file).stat().st_size for file in digests}
        if {file: entry.size for file, entry in arrived.items()} != sizes:
            raise StoreError(
                f"{self.address}/runs/{upload} does not hold the {len(sizes)} objects that were sent. "
                "Another program writes there, or the server lost some; run the same command again."
            )

    def _send(self, path: Path, name: str, digest: str) -> None:
        with disk_errors(path):
            data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreError(f"{path} changed after it was verified. Check the health of the disk.")
        self.bucket.put(name, data)

    def _make_current(self, key: str, before: Marker | None) -> None:
        data = f"{key}\n".encode()
        if before is not None and before.data == data:
            return
        if not self.bucket.put_marker("CURRENT", data, instead_of=before):
            _log.warning(
                "%s: another process made its run current while %s was published; that one stays current",
                self.address,
                key,
            )

    def _fetched(self, key: str, marker: Marker, root: Path) -> Path:
        upload, digests = self._digests(key, marker.data)
        run = root / "runs" / f"{key}.zarr"
        stage = root / ".staging" / f"{key}-{os.getpid()}"
        there, _ = self.bucket.listed(f"runs/{upload}", deep=True)
        for file in sorted(there.keys() ^ digests.keys()):
            wrong = "is missing" if file in digests else "does not belong there"
            raise DamagedRunError(
                f"{self.address}/runs/{upload}/{file} {wrong}, by the manifest of the run. {_ADVICE}"
            )

        def bring(file: str) -> None:
            data, path = self._read(upload, file, digests), stage / run.name / file
            with disk_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

        with empty_folder(stage):
            in_parallel(bring, sorted(digests))
            listing = stage / "manifest"
            write_durably(listing, manifest.text_of(digests, name=run.name))
            install(stage / run.name, listing, run)
        return run

    def _read(self, upload: str, file: str, digests: Mapping[str, str]) -> bytes:
        """Read an object of a run, and check it against its digest."""
        data = self.bucket.read(f"runs/{upload}/{file}")
        if data is None or hashlib.sha256(data).hexdigest() != digests.get(file):
            raise DamagedRunError(
                f"{self.address}/runs/{upload}/{file} is damaged: its SHA-256 is not that of "
                f"the manifest of the run. {_ADVICE}"
            )
        return data

    def _digests(self, key: str, text: bytes) -> tuple[str, dict[str, str]]:
        """Read a manifest: the name of the upload, and the digests of its objects."""
        where = f"{self.address}/{marks.manifest_of(key)}"
        upload = marks.upload_in(text)
        try:
            digests = manifest.parse(text, name=upload, where=where)
        except StoreError as error:
            raise DamagedRunError(str(error)) from None
        match = marks.UPLOAD.fullmatch(upload)
        if match is None or match[1] != key:
            raise DamagedRunError(f"the manifest {where} is that of another run. {_ADVICE}")
        return upload, digests

    def _remove_left_by_dead(self, notes: Path) -> None:
        """Remove what dead processes left when they published from a folder, whose lock we have."""
        for note in sorted(notes.glob("*.zarr")) if notes.is_dir() else ():
            if (match := marks.UPLOAD.fullmatch(note.name)) is not None:
                key, token = match.groups()
                text = self.bucket.read(marks.manifest_of(key))
                if text is None or marks.upload_in(text) != note.name:
                    remove_upload(self.bucket, note.name)
                marks.take_away(self.bucket, key, token)
            with disk_errors(note):
                note.unlink()
