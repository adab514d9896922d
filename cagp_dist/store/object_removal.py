"""Removal of old runs, and of what the dead left, from an object store; see `cagp_dist.store.uploads`."""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from cagp_dist.errors import ConfigurationError
from cagp_dist.store import uploads
from cagp_dist.store.bucket import Bucket, Marker, in_parallel
from cagp_dist.store.retention import KeptRun, Retention, about_run, beyond
from cagp_dist.store.uploads import FOLDER, Upload, folder_of, key_of, published_uploads, stem_in

ABANDONED = timedelta(days=1)  # age of objects without a manifest that count as left behind


def old_run_keys(bucket: Bucket, keep: Retention, *, since: str | None = None) -> list[str]:
    """List the keys that do not stay, oldest by publication first, never the current one; as `beyond`."""
    return list(_old_runs(bucket, keep, since))


def prune_objects(bucket: Bucket, keep: Retention, *, since: str | None = None) -> list[str]:
    """Remove old runs, and abandoned objects; return the keys. A kill leaves each run whole or gone."""
    old = _old_runs(bucket, keep, since)
    for found in old.values():
        for upload in found:
            remove_upload(bucket, upload)
    remove_abandoned(bucket)
    return list(old)


def remove_abandoned(bucket: Bucket) -> list[str]:
    """Remove uploads that a later one of the run has replaced, and old ones without a manifest; name them.

    Cost: four requests, and one for each folder without a manifest.
    """
    current, published = bucket.marker("CURRENT"), published_uploads(bucket)
    if current is None:
        return []
    last = {upload.key: upload for upload in published}
    replaced = [
        upload for upload in published if upload != last[upload.key] and _is_over(bucket, upload, current)
    ]
    for upload in replaced:
        remove_upload(bucket, upload)
    named, doubtful = set[str](), set[str]()
    for upload in published:
        folder = folder_of(bucket, upload)
        named.add(folder)
        if not folder:
            doubtful.add(upload.key)  # a damaged manifest: which objects are those of the run is not known
    removed = [f"{upload.stem}.zarr" for upload in replaced]
    for folder in bucket.listed("runs", deep=False)[1]:
        match = FOLDER.fullmatch(folder)
        if match is None or folder in named or match[1] in doubtful:
            continue
        there, _ = bucket.listed(f"runs/{folder}", deep=True)
        if all(entry.modified < current.modified - ABANDONED for entry in there.values()):
            bucket.delete(f"runs/{folder}/{file}" for file in there)
            removed.append(folder)
    return removed


def remove_upload(bucket: Bucket, upload: Upload) -> None:
    """Remove an upload that ``CURRENT`` never names again: first the manifest, then the objects."""
    folder = folder_of(bucket, upload)
    bucket.delete([upload.manifest])
    if folder:
        there, _ = bucket.listed(f"runs/{folder}", deep=True)
        bucket.delete(f"runs/{folder}/{file}" for file in there)


def _old_runs(bucket: Bucket, keep: Retention, since: str | None) -> dict[str, list[Upload]]:
    """Find the uploads of each run that does not stay, but those that may still become the current one."""
    current, of_key = bucket.marker("CURRENT"), dict[str, list[Upload]]()
    for upload in published_uploads(bucket):
        of_key.setdefault(upload.key, []).append(upload)
    if not of_key:
        raise ConfigurationError(f"there is no published run at {bucket.address}.", key="no-run")
    if current is None:
        return {}
    runs = in_parallel(lambda found: _about(bucket, found[-1]), of_key.values())
    gone = beyond(
        keep,
        runs,
        current=key_of(stem_in(bucket, current.data)),
        sizes=lambda: _sizes(bucket, of_key),
        since=since,
    )
    return {key: of_key[key] for key in gone if all(_is_over(bucket, each, current) for each in of_key[key])}


def _is_over(bucket: Bucket, upload: Upload, current: Marker) -> bool:
    """Whether ``CURRENT``, read before the upload was found, names it neither now nor ever again."""
    return upload.stem != stem_in(bucket, current.data) and upload.made < current.modified - uploads.MARGIN


def _about(bucket: Bucket, upload: Upload) -> KeptRun:
    """Read what a run is of; one that is damaged, or gone, is told by its key and date alone."""
    run = KeptRun(upload.key, upload.made)
    folder = folder_of(bucket, upload)
    with suppress(ValueError, KeyError, TypeError):
        return replace(
            about_run(run.key, json.loads(bucket.read(f"runs/{folder}/zarr.json") or b"")), made=run.made
        )
    return run


def _sizes(bucket: Bucket, keys: Iterable[str]) -> dict[str, int]:
    """Sum up the objects of each run. Cost: one listing of all."""
    sizes = dict.fromkeys(keys, 0)
    for name, entry in bucket.listed("runs", deep=True)[0].items():
        if (match := FOLDER.match(name)) is not None and match[1] in sizes:
            sizes[match[1]] += entry.size
    return sizes
