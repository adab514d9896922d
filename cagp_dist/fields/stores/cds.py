"""Fields from the Climate Data Store: each request is cached by content and resumed by its id.

A request can wait for hours: its id is written beside the cache entry as soon as the store has given it.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from cagp_dist.digest import joint_sha256
from cagp_dist.errors import ConfigurationError, DataError, NotReadyError
from cagp_dist.fields.canonical import joined_times
from cagp_dist.fields.selection import Selection, parse_times
from cagp_dist.fields.stores.cds_cache import COLLECTION, CacheEntry, requests_for
from cagp_dist.fields.stores.cds_client import Patience, connect_to_cds
from cagp_dist.remedies import Setting

if TYPE_CHECKING:
    from ecmwf.datastores import Client, Remote

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]

_OVER = ("failed", "rejected", "dismissed", "deleted")  # states in which a request ends without a result


def open_cds(
    selection: Selection,
    *,
    cache_directory: Path,
    progress: Progress | None = None,
    patience: Patience | None = None,
    wait_seconds: float | None = None,
) -> xr.Dataset:
    """Fetch a field from the Climate Data Store, or from the cache when it was fetched before."""
    if selection.times is None:
        raise ConfigurationError(
            'source "cds" has too many times to fetch all of them, and none is named.',
            key="no-times",
            remedies=(Setting("times", ["2017-04-27T12:00"]),),
        )
    if selection.level is not None:
        raise ConfigurationError(
            f'level is {selection.level:g}, and source "cds" asks for single levels; leave it out. Fields on '
            'pressure levels come from "zarr:arco-era5", or from a file that was downloaded.',
            key="no-level",
        )
    report = progress or logger.info
    patience = patience or Patience()
    requests = requests_for(
        parse_times(selection.times),
        variable=selection.variable,
        area=selection.area,
        grid_degrees=selection.grid_degrees,
    )
    reading = Selection(value=selection.variable, units=selection.units, check_range=selection.check_range)
    entries = [CacheEntry(cache_directory / "cds", request, reading=reading) for request in requests]
    fields = {entry.key: field for entry in entries if (field := entry.cached()) is not None}
    absent = [entry for entry in entries if entry.key not in fields]
    if absent and wait_seconds is not None:
        patience = replace(
            patience,
            queue_seconds=min(wait_seconds, patience.queue_seconds),
            answer_seconds=min(wait_seconds, patience.answer_seconds),
            tries=1,
        )
        if any(entry.asked_lately() for entry in absent):
            raise NotReadyError(
                "the store was asked for this less than a day ago. Ask again tomorrow.", key="asked-lately"
            )
        for entry in absent:
            entry.note_asked()
    if absent:
        deadline = time.monotonic() + patience.queue_seconds
        with connect_to_cds(patience) as store:
            queued = [(entry, _submit_or_resume(store, entry, report)) for entry in absent]
            for entry, remote in queued:
                _wait(entry, remote, report, patience, deadline)
                fields[entry.key] = _deliver(entry, remote, report)
    parts = [fields[entry.key] for entry in entries]
    digest = joint_sha256([str(part.attrs["source_sha256"]) for part in parts])
    return joined_times(parts).assign_attrs(source=f"cds:{COLLECTION}", source_sha256=digest)


def _submit_or_resume(store: "Client", entry: CacheEntry, report: Progress) -> "Remote":
    remembered = entry.request_id()
    if remembered is not None:
        remote = _found_again(store, remembered)
        if remote is not None:
            report(f"CDS request {remembered} is taken up again")
            return remote
        entry.remember(None)
    remote = store.submit(COLLECTION, entry.request)
    entry.remember(remote.request_id)
    report(f"CDS request {remote.request_id} is submitted")
    return remote


def _found_again(store: "Client", request_id: str) -> "Remote | None":
    """Find the remembered request, unless it failed or the store has dropped it meanwhile."""
    import requests

    try:
        remote = store.get_remote(request_id)
        return remote if remote.status in ("accepted", "running", "successful") else None
    except requests.HTTPError as error:
        if error.response is not None and error.response.status_code == 404:
            return None
        raise


def _wait(entry: CacheEntry, remote: "Remote", report: Progress, patience: Patience, deadline: float) -> None:
    pause, seen = patience.poll_seconds, None
    while True:
        try:
            ready = remote.results_ready
        except Exception:
            if remote.last_status in _OVER:
                entry.remember(None)
            raise
        if remote.last_status != seen:
            seen = remote.last_status
            report(f"CDS request {remote.request_id} is {seen}")
        if ready:
            return
        if time.monotonic() + pause > deadline:
            raise NotReadyError(
                f"CDS request {remote.request_id} is still {seen} after {patience.queue_seconds:g} s. It "
                "stays in the queue: run the same command again later to take it up.",
                key="queued",
            )
        time.sleep(pause)
        pause = min(1.5 * pause, patience.poll_limit_seconds)


def _deliver(entry: CacheEntry, remote: "Remote", report: Progress) -> xr.Dataset:
    import requests

    try:
        field = entry.accept(remote.get_results())
    except (DataError, RuntimeError, FileNotFoundError, requests.HTTPError):
        # incomplete, expired or unusable, and it would be so again; a broken line keeps the id
        entry.remember(None)
        raise
    report(f"CDS request {remote.request_id} is delivered")
    return field
