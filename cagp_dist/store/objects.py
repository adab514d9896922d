"""Published runs in an object store, which has neither renames nor locks.

::

    s3://BUCKET/PATH/runs/KEY-UPLOAD.zarr/   objects of one upload of a run, never changed
                     runs/KEY.sha256         digest of each of them: the run is published when this is there
                     CURRENT                 the key of the run that readers open

Each upload has a name of its own, so that two publishers never write the same object. One object, its
manifest, makes a run visible, and another one makes it current; S3 writes an object whole or not at all and
shows it to every reader that asks afterwards. A publisher that dies leaves objects that nothing names.

The manifest is written on condition that there is none, so that of several publishers of a key the first
wins; ``CURRENT`` on condition that it is as it was when the run was complete, so that a publisher that was
delayed does not take it back. Without conditional writes the last one wins in both; a run is whole in any
case.
"""

import hashlib
import logging
import os
import re
import secrets
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath

from cagp_dist.errors import ArgumentError, BusyError, ConfigurationError, StoreError
from cagp_dist.store import manifest
from cagp_dist.store.bucket import Bucket, Marker, in_parallel
from cagp_dist.store.manifest import disk_errors
from cagp_dist.store.publish import install

_log = logging.getLogger(__name__)

ABANDONED = timedelta(days=1)
"""Age from which objects that no manifest names count as left behind, wherever their publisher ran."""

_MANIFEST = re.compile(r"([0-9a-f]{16,64})\.sha256")
_UPLOAD = re.compile(r"([0-9a-f]{16,64})-[0-9a-f]{8}\.zarr")


class DamagedRunError(StoreError):
    """A published run whose objects are not those of its manifest; its job may be done again."""


class PublishedObjects:
    """The published runs at an address.

    Parameters
    ----------
    address : str
        ``s3://BUCKET/PATH``.

    Raises
    ------
    ConfigurationError
        If it is no such address, or s3fs is not installed. Its methods also raise it where there is no such
        bucket or no credentials, or the server refuses them; and StoreError where it does not answer.
    """

    def __init__(self, address: str) -> None:
        self.bucket = Bucket(address)
        self.address = self.bucket.address
        self._damaged: dict[str, Marker] = {}

    def runs(self) -> dict[str, datetime]:
        """List the keys of all published runs with the dates of their publication. Cost: one request."""
        found, _ = self.bucket.listed("runs", deep=False)
        named = ((_MANIFEST.fullmatch(name), entry) for name, entry in found.items())
        return {match[1]: entry.modified for match, entry in named if match is not None}

    def current(self) -> str | None:
        """Key of the current run; None if nothing was published.

        Raises
        ------
        StoreError
            If ``CURRENT`` is damaged.
        """
        found = self.bucket.read("CURRENT")
        if found is None:
            return None
        key = found.decode("ascii", "replace").removesuffix("\n")
        if not re.fullmatch("[0-9a-f]{16,64}", key):
            raise StoreError(
                f"{self.address}/CURRENT holds {key[:80]!r}; expected the hexadecimal key of a run. "
                "Run the job again to publish anew."
            )
        return key

    def fetch(self, key: str, root: Path) -> Path | None:
        """Bring a run into an output folder, each object checked against its digest; None if there is none.

        Call it inside `output_lock` of the folder. A copy that is there is replaced.

        Raises
        ------
        DamagedRunError
            Naming the object that is damaged, missing, or not part of the run.

        Notes
        -----
        Cost: one read of all objects, of which 16 are in memory at a time.
        """
        for _ in range(2):
            marker = self.bucket.marker(self._manifest(key))
            if marker is None:
                return None
            try:
                return self._fetched(key, marker, root)
            except DamagedRunError:
                if self.bucket.marker(self._manifest(key)) == marker:  # not pruned or replaced meanwhile
                    self._damaged[key] = marker
                    raise
        raise BusyError(f"the run {key} at {self.address} was replaced twice while it was read. Try again.")

    def up_to_date(self, key: str, root: Path) -> bool:
        """Whether the copy of a run in a folder is of the upload that is published."""
        text = self.bucket.read(self._manifest(key))
        try:
            copied = manifest.digests_of(root / "runs" / f"{key}.zarr")
        except StoreError:
            return False
        return text is not None and copied == self._digests(key, text)[1]

    def commit(self, run: Path, root: Path) -> None:
        """Publish a verified run of an output folder and make it current.

        Call it inside `output_lock` of the folder. A run whose key is published already is not sent, unless
        `fetch` found it damaged.

        Parameters
        ----------
        run : path
            ``ROOT/runs/KEY.zarr``.
        root : path
            The folder; what an earlier process left in the store from here is removed.

        Raises
        ------
        StoreError
            If the server does not answer. The run is whole in its folder, and unless its manifest was
            written no reader sees it; the next commit goes on.
        """
        key = run.stem
        notes = root / ".uploads"
        try:
            self._remove_left_by_dead(notes)
            if self.bucket.read(self._manifest(key)) is None or key in self._damaged:
                self._upload(run, root, notes)
            else:
                self._make_current(key, self.bucket.marker("CURRENT"))
            if self.bucket.read(self._manifest(key)) is None:
                raise BusyError(
                    f"the run {key} was removed from {self.address} by another process while it was made "
                    "current. Run the same command again."
                )
            self.remove_abandoned()
        except BusyError:
            raise
        except StoreError as error:
            raise StoreError(
                f"{error} The run is whole in {run}: the same command sends it, and computes nothing."
            ) from error

    def old_runs(self, *, keep: int) -> list[str]:
        """List the keys beyond the newest by publication, oldest first; the current one is never among them.

        Raises
        ------
        ArgumentError
            If ``keep`` is below 1.
        ConfigurationError
            If nothing was published there.
        """
        if keep < 1:
            raise ArgumentError(f"keep is {keep}; expected at least 1 run to keep.")
        published, current = self.runs(), self.current()
        if not published:
            raise ConfigurationError(f"there is no published run at {self.address}.")
        return [key for key in sorted(published, key=published.__getitem__)[:-keep] if key != current]

    def prune(self, *, keep: int) -> list[str]:
        """Remove the runs that `old_runs` lists, and abandoned objects; return the keys.

        A kill at any moment leaves each run whole or gone. A run that another process makes current
        meanwhile stays.
        """
        removed = []
        for key in self.old_runs(keep=keep):
            text = self.bucket.read(self._manifest(key))
            if text is None:
                continue
            self.bucket.delete([self._manifest(key)])
            # A publisher writes CURRENT and then looks for the manifest: one of the two sees the other.
            if self.current() == key:
                self.bucket.put_marker(self._manifest(key), text, instead_of=None)
                continue
            if _UPLOAD.fullmatch(upload := _upload_in(text)):
                self._remove_upload(upload)
            removed.append(key)
        self.remove_abandoned()
        return removed

    def remove_abandoned(self) -> list[str]:
        """Remove uploads that no manifest names and that got no object for `ABANDONED`; return their names.

        Cost: one request, and one or two for each upload that may be abandoned.
        """
        manifests, folders = self.bucket.listed("runs", deep=False)
        uploads: dict[str, list[str]] = {}
        for folder in folders:
            if (match := _UPLOAD.fullmatch(folder)) is not None:
                uploads.setdefault(match[1], []).append(folder)
        removed = []
        for key, names in uploads.items():
            if len(names) == 1 and f"{key}.sha256" in manifests:
                continue
            text = self.bucket.read(self._manifest(key))
            published = None if text is None else _upload_in(text)
            if published is not None and published not in names:
                continue  # a damaged manifest: which objects are those of the run is not known
            for name in names:
                if name != published and self._last_written(name) < datetime.now(UTC) - ABANDONED:
                    self._remove_upload(name)
                    removed.append(name)
        return removed

    def _upload(self, run: Path, root: Path, notes: Path) -> None:
        """Send all objects, check that they are there, then commit: the manifest, and ``CURRENT``."""
        key, digests = run.stem, manifest.digests_of(run)
        name = f"{key}-{secrets.token_hex(4)}.zarr"
        with disk_errors(notes):
            notes.mkdir(exist_ok=True)
        manifest.write_durably(
            notes / name, ""
        )  # so that the next process here knows it, should this one die
        in_parallel(
            lambda file: self._send(run / file, f"runs/{name}/{file}", digests[file]), sorted(digests)
        )
        arrived, _ = self.bucket.listed(f"runs/{name}", deep=True)
        sizes = {file: (run / file).stat().st_size for file in digests}
        if {file: entry.size for file, entry in arrived.items()} != sizes:
            raise StoreError(
                f"{self.address}/runs/{name} does not hold the {len(sizes)} objects that were sent. "
                "Another program writes there, or the server lost some; run the same command again."
            )
        current = self.bucket.marker("CURRENT")
        text = manifest.text_of(digests, name=name).encode()
        if self.bucket.put_marker(self._manifest(key), text, instead_of=self._damaged.pop(key, None)):
            self._make_current(key, current)
        else:
            _log.warning("%s: another process has published the run %s; it stays", self.address, key)
            self._remove_upload(name)
            self.fetch(key, root)
            self._make_current(key, current)
        with disk_errors(notes):
            (notes / name).unlink()

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
        staged, listing = stage / run.name, stage / "manifest"
        there, _ = self.bucket.listed(f"runs/{upload}", deep=True)
        advice = "Run its job again, which replaces it."
        for file in sorted(there.keys() ^ digests.keys()):
            wrong = "is missing" if file in digests else "does not belong there"
            raise DamagedRunError(
                f"{self.address}/runs/{upload}/{file} {wrong}, by the manifest of the run. {advice}"
            )

        def bring(file: str) -> None:
            data = self.bucket.read(f"runs/{upload}/{file}")
            if data is None or hashlib.sha256(data).hexdigest() != digests[file]:
                raise DamagedRunError(
                    f"{self.address}/runs/{upload}/{file} is damaged: its SHA-256 is not that of "
                    f"the manifest of the run. {advice}"
                )
            with disk_errors(staged / file):
                (staged / file).parent.mkdir(parents=True, exist_ok=True)
                (staged / file).write_bytes(data)

        try:
            with disk_errors(stage):
                shutil.rmtree(stage, ignore_errors=True)
                staged.mkdir(parents=True)
            in_parallel(bring, sorted(digests))
            manifest.write_durably(listing, manifest.text_of(digests, name=run.name))
            install(staged, listing, run)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
        return run

    def _digests(self, key: str, text: bytes) -> tuple[str, dict[str, str]]:
        """Read a manifest: the name of the upload, and the digests of its objects.

        Names that would leave the folder of a run are refused: whoever may write to a bucket must not write
        to the disks of its readers.
        """
        where = f"{self.address}/{self._manifest(key)}"
        upload = _upload_in(text)
        try:
            digests = manifest.parse(text, name=upload, where=where)
        except StoreError as error:
            raise DamagedRunError(str(error)) from None
        match = _UPLOAD.fullmatch(upload)
        plain = all(str(PurePosixPath(file)) == file and ".." not in file.split("/") for file in digests)
        if match is None or match[1] != key or not plain or any(file.startswith("/") for file in digests):
            raise DamagedRunError(f"the manifest {where} names objects of other folders. Run the job again.")
        return upload, digests

    def _remove_left_by_dead(self, notes: Path) -> None:
        """Remove what dead processes sent from a folder, whose lock we have, and did not publish."""
        for note in sorted(notes.glob("*.zarr")) if notes.is_dir() else ():
            if (match := _UPLOAD.fullmatch(note.name)) is not None:
                text = self.bucket.read(self._manifest(match[1]))
                if text is None or _upload_in(text) != note.name:
                    self._remove_upload(note.name)
            with disk_errors(note):
                note.unlink()

    def _remove_upload(self, name: str) -> None:
        there, _ = self.bucket.listed(f"runs/{name}", deep=True)
        self.bucket.delete(f"runs/{name}/{file}" for file in there)

    def _last_written(self, upload: str) -> datetime:
        there, _ = self.bucket.listed(f"runs/{upload}", deep=True)
        return max((entry.modified for entry in there.values()), default=datetime.now(UTC))

    @staticmethod
    def _manifest(key: str) -> str:
        return f"runs/{key}.sha256"


def _upload_in(text: bytes) -> str:
    """Name of the upload that the first line of a manifest names."""
    return text.partition(b"\n")[0].decode("utf-8", "replace").partition("  ")[2].partition("/")[0]
