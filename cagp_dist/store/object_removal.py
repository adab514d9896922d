"""Removal of old runs, and of what dead processes left, from an object store."""

import json
from collections.abc import Iterable
from dataclasses import replace

from cagp_dist.errors import ConfigurationError
from cagp_dist.store import marks
from cagp_dist.store.bucket import Bucket, in_parallel
from cagp_dist.store.marks import UPLOAD, current_key, manifest_of, published_runs, upload_in
from cagp_dist.store.retention import KeptRun, Retention, about_run, beyond


def old_run_keys(bucket: Bucket, keep: Retention, *, since: str | None = None) -> list[str]:
    """List the keys that do not stay, oldest by publication first, never the current one; as `beyond`."""
    published, current = published_runs(bucket), current_key(bucket)
    if not published:
        raise ConfigurationError(f"there is no published run at {bucket.address}.")
    found = [KeptRun(key, made) for key, made in published.items()]
    runs = in_parallel(lambda run: _about(bucket, run), found)
    return beyond(keep, runs, current=current, sizes=lambda: _sizes(bucket, published), since=since)


def _about(bucket: Bucket, run: KeptRun) -> KeptRun:
    """Read what a run is of; one that is damaged, or gone, is told by its key and date alone."""
    upload = upload_in(bucket.read(manifest_of(run.key)) or b"")
    try:
        document = json.loads(bucket.read(f"runs/{upload}/zarr.json") or b"")
        return replace(about_run(run.key, document), made=run.made)
    except (ValueError, KeyError, TypeError):
        return run


def _sizes(bucket: Bucket, keys: Iterable[str]) -> dict[str, int]:
    """Sum up the objects of each run. Cost: one listing of all."""
    sizes = dict.fromkeys(keys, 0)
    for name, entry in bucket.listed("runs", deep=True)[0].items():
        if (match := UPLOAD.match(name)) is not None and match[1] in sizes:
            sizes[match[1]] += entry.size
    return sizes


def prune_objects(bucket: Bucket, keep: Retention, *, since: str | None = None) -> list[str]:
    """Remove old runs, and abandoned objects; return the keys. A kill leaves each run whole or gone.

    A run that another process publishes or makes current meanwhile stays: see `cagp_dist.store.marks`.
    """
    removed = []
    for key in old_run_keys(bucket, keep, since=since):
        text = _unpublish(bucket, key)
        if text is not None:
            if UPLOAD.fullmatch(upload := upload_in(text)):
                remove_upload(bucket, upload)
            removed.append(key)
    remove_abandoned(bucket)
    return removed


def _unpublish(bucket: Bucket, key: str) -> bytes | None:
    """Delete the manifest of a run and return it; None if it stays, or is gone already."""
    with marks.removing(bucket, key) as mark:
        if mark is None or current_key(bucket) == key:
            return None
        text = bucket.read(manifest_of(key))
        if text is None:
            return None
        bucket.delete([manifest_of(key)])
        if not mark.stands():
            bucket.put_marker(manifest_of(key), text, instead_of=None)
            return None
        return text


def remove_abandoned(bucket: Bucket) -> list[str]:
    """Remove marks and unnamed uploads that are old by the clock of the server; name the uploads.

    Cost: one request; four more if there are marks or uploads without a manifest, and one for each of these.
    """
    objects, folders = bucket.listed("runs", deep=False)
    uploads: dict[str, list[str]] = {}
    for folder in folders:
        if (match := UPLOAD.fullmatch(folder)) is not None:
            uploads.setdefault(match[1], []).append(folder)
    doubtful = {
        key: names for key, names in uploads.items() if len(names) > 1 or f"{key}.sha256" not in objects
    }
    found = [name for name in objects if marks.is_mark(name)]
    if not doubtful and not found:
        return []
    now = marks.server_time(bucket)
    if now is None:
        return []  # another process takes this one for dead
    before = now - marks.ABANDONED
    bucket.delete(f"runs/{name}" for name in found if objects[name].modified < before)
    removed = []
    for key, names in doubtful.items():
        old = []
        for name in names:
            there, _ = bucket.listed(f"runs/{name}", deep=True)
            if there and max(entry.modified for entry in there.values()) < before:
                old.append(name)
        if old:
            removed += _remove_unnamed(bucket, key, old, names)
    return removed


def _remove_unnamed(bucket: Bucket, key: str, old: list[str], names: list[str]) -> list[str]:
    """Remove those old uploads of a run that its manifest does not name, while nobody publishes it."""
    with marks.removing(bucket, key) as mark:
        if mark is None:
            return []
        text = bucket.read(manifest_of(key))
        published = None if text is None else upload_in(text)
        if published is not None and published not in names:
            return []  # a damaged manifest: which objects are those of the run is not known
        unnamed = [name for name in old if name != published]
        for name in unnamed:
            remove_upload(bucket, name)
        return unnamed


def remove_upload(bucket: Bucket, name: str) -> None:
    """Remove an upload that no manifest names, and none will."""
    there, _ = bucket.listed(f"runs/{name}", deep=True)
    bucket.delete(f"runs/{name}/{file}" for file in there)
