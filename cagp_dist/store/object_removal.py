"""Removal of old runs, and of what dead processes left, from an object store."""

from cagp_dist.errors import ArgumentError, ConfigurationError
from cagp_dist.store import marks
from cagp_dist.store.bucket import Bucket
from cagp_dist.store.marks import UPLOAD, current_key, manifest_of, published_runs, upload_in


def old_run_keys(bucket: Bucket, *, keep: int) -> list[str]:
    """List the keys beyond the newest by publication, oldest first; the current one is never among them."""
    if keep < 1:
        raise ArgumentError(f"keep is {keep}; expected at least 1 run to keep.")
    published, current = published_runs(bucket), current_key(bucket)
    if not published:
        raise ConfigurationError(f"there is no published run at {bucket.address}.")
    oldest_first = sorted(published, key=lambda key: (published[key], key))
    return [key for key in oldest_first[:-keep] if key != current]


def prune_objects(bucket: Bucket, *, keep: int) -> list[str]:
    """Remove old runs, and abandoned objects; return the keys. A kill leaves each run whole or gone.

    A run that another process publishes or makes current meanwhile stays: see `cagp_dist.store.marks`.
    """
    removed = []
    for key in old_run_keys(bucket, keep=keep):
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
