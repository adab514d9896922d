"""Observations of a job: which times they are of, and from their source into a store, each time once."""

import datetime as dt
import json
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TypeVar

import numpy as np
import xarray as xr

from cagp_dist.arrays import Mask, Times
from cagp_dist.digest import joint_sha256, text_sha256
from cagp_dist.errors import CagpError, ConfigurationError, DataError, NotReadyError
from cagp_dist.fields.canonical import joined_times
from cagp_dist.fields.files.local_files import FileError, files_without_variable, left_out
from cagp_dist.fields.selection import Selection, parse_times
from cagp_dist.fields.sources import SOURCES, Access, open_selected, source_times, where_of
from cagp_dist.fields.synthetic import DEFAULT_TIMES, Synthetic
from cagp_dist.fields.together import together
from cagp_dist.kernels import KERNELS
from cagp_dist.service.jobfile.config import job_of_fit_times, with_fit_times, with_listed_times
from cagp_dist.service.jobfile.job import Job
from cagp_dist.service.jobfile.observations_table import ObservationsTable, SyntheticTable
from cagp_dist.service.jobfile.times_key import Newest, TimeRule
from cagp_dist.store.atomic_files import whole_file
from cagp_dist.store.batches import DamagedStoreError, preliminary_times
from cagp_dist.store.ingested import append_times, open_observations, stored_times
from cagp_dist.store.set_aside import (
    remove_old_preliminary,
    set_aside,
    set_aside_preliminary,
    times_set_aside,
)
from cagp_dist.text import counted, without_secrets
from cagp_dist.variables import variable_named

# How long a source may take to say whether it has a final field: a job does not wait for it
FINAL_WAIT_SECONDS = 10.0

RECORD = "inputs.json"

# The Climate Data Store has ERA5 up to about five days ago; with six, whole days are there
CDS_DELAY_DAYS = 6

Report = Callable[[str], None]
Damaged = Callable[[str, FileError], None]
T = TypeVar("T")


def ingest_all(job: Job, *, report: Report) -> tuple[Job, xr.Dataset, xr.Dataset | None]:
    """Bring in the field of a job, and that of ``fit_times`` if it has them; the job lists its times then."""
    job = resolved(job, report=report)
    field, other = ingest(job, report=report), job_of_fit_times(job)
    if other is None:
        return job, field, None
    return job, field, ingest(other, report=lambda text: report(f"times of the fit: {text}"))


def ingest(job: Job, *, report: Report) -> xr.Dataset:
    """Bring the observations of a job into their store and return them; a second time adds nothing.

    Call it inside an output lock. A file is always read, so that one that was replaced is noticed. With
    ``window_hours`` they are those of all times within it.
    """
    if len(job.observations.variables) > 1:
        return together([ingest(each, report=report) for each in one_by_one(job)])
    job = _with_window(job, report=report)
    return _healed(lambda: _ingest(job, report), report)


def one_by_one(job: Job) -> list[Job]:
    """Give the jobs that read one variable each."""
    table = job.observations
    if len(table.variables) == 1:
        return [job]
    return [job.model_copy(update={"observations": table.of_variable(name)}) for name in table.variables]


def _ingest(job: Job, report: Report) -> xr.Dataset:
    table, root = job.observations, job.output.folder
    stored = stored_observations(job)
    field = None
    if stored is not None and (field := _with_final_fields(job, stored, report)) is None:
        report(f"nothing to fetch, {counted(stored.sizes['time'], 'time')} already in the store")
        return stored
    if field is None:
        field = _open(job, cache=root / "downloads", report=report)
    # no copy is kept but that of the run
    if not {"latitude", "longitude"} <= set(field.dims) or np.isnat(field["time"].values).any():
        if dropped := int(field.attrs.get("dropped_missing", 0)):
            report(f"{dropped:,} row{'s' if dropped > 1 else ''} without a value left out")
        for note in field.attrs.get("notes", []):
            report(note)
        return field
    path = store_path(root, table, content=str(field.attrs["source_sha256"]))
    wanted = field["time"].values
    # stored times that share a batch with a preliminary field that is replaced come with it
    beside = np.setdiff1d(times_set_aside(path, field), wanted)
    field = _joined(open_observations(path, times=beside), field) if beside.size else field
    if (aside := set_aside_preliminary(path, field)) is not None:
        report(f"preliminary fields that now have final ones are moved to {aside}")
    added = append_times(path, field)
    if (left := preliminary_times(field)).size:
        report(f"{counted(left.size, 'time')} preliminary (ERA5T): the final fields will take their places")
    if table.kind == "file":
        reading = store_path(root, table, content=f"{table.source} {table.listed_times or ''}").stem
        note_input(path, field, reading=reading, report=report)
    report(f"{counted(added.times_added, 'time')} added, {added.times_present} there already")
    found = open_observations(path, times=wanted)
    if aside is not None:
        remove_old_preliminary(path)
    return found


def _with_final_fields(job: Job, stored: xr.Dataset, report: Report) -> xr.Dataset | None:
    """Ask the source for final fields of times that are preliminary; None if it has none, or does not say."""
    age = np.datetime64(time.time_ns(), "ns") - (left := preliminary_times(stored))
    due = left[age / np.timedelta64(1, "D") > SOURCES[job.observations.kind].final_after_days]
    if not due.size:
        return None
    report(f"{counted(due.size, 'time')} preliminary (ERA5T): asking the source for the final fields")
    due_job = with_listed_times(job, due)
    cache = job.output.folder / "downloads"
    try:
        found = _open(due_job, cache=cache, report=report, wait_seconds=FINAL_WAIT_SECONDS)
    except CagpError as error:
        report(f"the source did not answer, so the preliminary fields are used: {error}")
        return None
    final = ~np.isin(found["time"].values, preliminary_times(found))
    if not final.all():
        report(f"{counted(int(np.sum(~final)), 'time')} still preliminary")
    if not final.any():
        return None
    return _joined(stored, found, times=final)


def _joined(stored: xr.Dataset, field: xr.Dataset, times: Mask | slice = slice(None)) -> xr.Dataset:
    """Put some of the times of a field, whose source is said, beside or instead of those that are stored."""
    found = joined_times([stored, field.isel(time=times)])
    digests = [str(part.attrs["source_sha256"]) for part in (stored, field)]
    found.attrs |= {"source": field.attrs["source"], "source_sha256": joint_sha256(digests)}
    return found


def _healed(read: Callable[[], T], report: Report) -> T:
    """Read from a store; if it is damaged, set aside what is, and read once more."""
    try:
        return read()
    except DamagedStoreError as damage:
        aside = set_aside(damage.store)
        done = "Their metadata is written again." if aside is None else f"They are moved to {aside}."
        said = f"stored observations are damaged: {damage.what} {done}"
        report(said)
        try:
            return read()
        except CagpError as error:
            raise error.told(after=f"This was to replace what was stored before: {said}") from error


def peek(job: Job) -> xr.Dataset | None:
    """Look at the observations of a job without writing or saying anything: None if they are far away."""

    def report(text: str) -> None:
        pass

    if len(job.observations.variables) > 1:
        fields = [peek(each) for each in one_by_one(job)]
        known = [field for field in fields if field is not None]
        return together(known) if len(known) == len(fields) else None
    job = _with_window(job, report=report, offline=True)
    stored = stored_observations(job)
    if stored is not None or is_remote(job.observations):
        return stored
    with tempfile.TemporaryDirectory(prefix="cagp-") as scratch:
        return _open(job, cache=Path(scratch), report=report)


def is_remote(table: ObservationsTable) -> bool:
    """Whether reading the source may cost a download."""
    return SOURCES[table.kind].remote


def stored_observations(job: Job) -> xr.Dataset | None:
    """Observations that are in the store, if all times of the job are, whatever the source holds now."""
    table, content = job.observations, None
    times = table.listed_times
    if table.source == "synthetic":
        content, times = _synthetic(table).sha256(table.grid_degrees), times or DEFAULT_TIMES
    elif not is_remote(table):
        return None
    path = store_path(job.output.folder, table, content=content)
    if times is None or not path.exists():
        return None
    try:
        return open_observations(path, times=times)
    except DataError:  # other times of this source were ingested
        return None


def _with_window(job: Job, *, report: Report, offline: bool = False) -> Job:
    """Give the job that observes all that times of a job may see: those of the source in the window."""
    window, listed = job.design.window_hours, job.observations.listed_times
    if window is None or listed is None:
        return job
    if SOURCES[job.observations.kind].times is None:
        raise ConfigurationError(
            f"[design] window_hours takes all that the source has within it, and {job.observations.source} "
            "has no list of times; leave it out, and list the times that inform each other: times = "
            '{ from = "2017-04-01", to = "2017-04-02", every = "6h" }.',
            key="window-and-times",
        )
    if offline and is_remote(job.observations):
        there = ingested_times(job)
    else:
        there = available_times(job, report=report, damaged=left_out)
    if there is None:  # nothing is known yet
        return job
    wanted, reach = parse_times(listed), np.timedelta64(round(3.6e9 * window), "us")
    after = wanted[np.minimum(np.searchsorted(wanted, there), wanted.size - 1)] - there
    before = there - wanted[np.maximum(np.searchsorted(wanted, there, side="right") - 1, 0)]
    none = np.timedelta64(0, "us")
    near = (after >= none) & (after <= reach)
    if job.design.lead is None:
        near |= (before >= none) & (before <= reach)
    return with_listed_times(job, np.union1d(wanted, there[near]))


def available_times(job: Job, *, report: Report, damaged: Damaged | None = None) -> Times:
    """Ask the source of a job which times it has of all variables, ascending; raises as `ingest`."""
    source = job.observations.source
    report(f"looking up the times of {without_secrets(source, source)}")
    found = [
        source_times(
            source,
            selection_of(each.observations),
            cache_directory=job.output.folder / "downloads",
            damaged=damaged,
        )
        for each in one_by_one(job)
    ]
    return reduce(np.intersect1d, found)


def files_left_out(job: Job) -> list[str]:
    """List the files of a source that can be read and have none of the variables; raises as `ingest`."""
    if job.observations.kind != "file":
        return []
    address, scratch = job.observations.source.partition(":")[2], job.output.folder / "downloads"
    each = [
        files_without_variable(address, selection_of(one.observations), scratch=scratch)
        for one in one_by_one(job)
    ]
    return [path for path in each[0] if all(path in others for others in each[1:])]


def ingested_times(job: Job) -> Times | None:
    """Return the times of a remote source that were ingested before, ascending; None if there are none."""
    paths = [store_path(job.output.folder, each.observations, content=None) for each in one_by_one(job)]
    times = [stored_times(path) if path.exists() else np.empty(0, "datetime64[ns]") for path in paths]
    found = reduce(np.intersect1d, times)
    return found if found.size else None


def _open(job: Job, *, cache: Path, report: Report, wait_seconds: float | None = None) -> xr.Dataset:
    table = job.observations
    synthetic = None if table.synthetic is None else _synthetic(table)
    access = Access(cache, report, synthetic, wait_seconds)
    wanted = replace(selection_of(table, job.prior.bias_by), times=table.listed_times)
    return open_selected(table.source, wanted, access, undated=True)


def selection_of(table: ObservationsTable, labels: Collection[str] = ()) -> Selection:
    """Give the settings of a job that say what is wanted of its source, at all times."""
    return Selection(
        value=table.name,
        columns={} if table.columns is None else table.columns.named,
        noise_std=None if isinstance(table.noise_std, dict) else table.noise_std,
        units=None if isinstance(table.units, dict) else table.units,
        missing=table.missing,
        where=where_of(table.source, table.where, level=table.level, select=table.select),
        crs=table.crs,
        area=table.area,
        grid_degrees=table.grid_degrees,
        check_range=table.check_range,
        transform=table.transform,
        labels=labels,
        limits=True,
    )


def _synthetic(table: ObservationsTable) -> Synthetic:
    """Build the settings of the source ``synthetic``."""
    settings = table.synthetic or SyntheticTable()
    kernel = KERNELS[settings.kernel](lengthscale=settings.lengthscale, variance=settings.variance)
    return Synthetic(kernel, noise_variance=settings.noise_variance, seed=settings.seed, mean=settings.mean)


def store_path(root: Path, table: ObservationsTable, *, content: str | None) -> Path:
    """One store for each source and grid; for files and synthetic fields, for each content or settings."""
    identity = [table.source if is_remote(table) else content, table.name, table.area, table.grid_degrees]
    reading = {key: value for key, value in table.reading().items() if key != "variable"}
    if variable_named(table.name).measure:  # without a word their stores had logarithms once
        reading["transform"] = table.transform
    digest = text_sha256(json.dumps([*identity, reading] if reading else identity))[:12]
    return root / "observations" / f"{table.kind}-{digest}.zarr"


def note_input(store: Path, field: xr.Dataset, *, reading: str, report: Report) -> None:
    """Record the digest of what was read, and say so if it is another one than that of the last time."""
    path = store.parent / RECORD
    known = _records(path)
    now = {
        "source": str(field.attrs["source"]),
        "sha256": str(field.attrs["source_sha256"]),
        "read": dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "store": store.name,
    }
    before = known.get(reading)
    if before is not None and before["sha256"] != now["sha256"]:
        report(
            f"{now['source']} is not what it was on {before['read']} (SHA-256 {before['sha256'][:8]} then, "
            f"{now['sha256'][:8]} now): {_compared(store.with_name(before['store']), field)}"
        )
    elif before is not None:
        return
    with whole_file(path) as draft:
        draft.write_text(json.dumps({**known, reading: now}, indent=1, sort_keys=True) + "\n")


def _compared(before: Path, field: xr.Dataset) -> str:
    """Say how the values of a field differ from those of a store at the times that both have."""
    try:
        old = open_observations(before)
    except CagpError:
        return "the observations stored then cannot be read, so they are not compared"
    (name,) = field.data_vars
    times = np.intersect1d(old.time.values, field.time.values)
    then, now = (dataset[name].sel(time=times).values for dataset in (old, field))
    if not times.size or then.shape != now.shape:
        return "it has other times or another grid"
    differ = ~((then == now) | (np.isnan(then) & np.isnan(now)))
    count = int(differ.sum())
    if not count:
        return f"the values of the {counted(times.size, 'time')} that both have are the same"
    return (
        f"{counted(count, 'value')} of {differ.size:,} at the {counted(times.size, 'time')} that both have "
        "differ. Unless it was replaced on purpose, it is damaged: fetch it again"
    )


def _records(path: Path) -> dict[str, dict[str, str]]:
    try:
        found = json.loads(path.read_text())
        return {
            key: {name: str(entry[name]) for name in ("source", "sha256", "read", "store")}
            for key, entry in found.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def resolved(
    job: Job,
    *,
    report: Report,
    offline: bool = False,
    now: dt.datetime | None = None,
    damaged: Damaged | None = None,
) -> Job:
    """Work out which times a job takes, and which its prior is fitted to (``damaged``: `source_times`)."""
    table = job.observations

    def look(rule: TimeRule) -> Times:
        """Give the times that the source has; of one without an end, the last that is sure to be there."""
        if table.source == "cds":
            if not (isinstance(rule, Newest) and (rule.every or rule.at)):
                raise ConfigurationError(
                    'source "cds" has every hour since 1940; say which, with every or at: times = { from = '
                    '"2017-04-01", to = "2017-04-30", every = "6h" } or { last = "5d", at = "12:00" }.',
                    key="no-times",
                )
            day = np.datetime64((now or dt.datetime.now(dt.UTC)).date(), "D") - CDS_DELAY_DAYS
            return np.array([day + np.timedelta64(23, "h")], dtype="datetime64[ns]")
        if not (offline and is_remote(table)):
            return available_times(job, report=report, damaged=damaged)
        if (stored := ingested_times(job)) is None:
            raise ConfigurationError(
                f"which times these are depends on {without_secrets(table.source)}, which was not read yet. "
                "Run `cagp ingest` with the same job first, or list them, or say every: times = { from = "
                '"2017-01-01", to = "2017-01-31", every = "6h" }.',
                key="not-read-yet",
            )
        return stored

    def times_of(rule: TimeRule, key: str) -> Times:
        available = look(rule) if rule.needs_source else np.empty(0, dtype="datetime64[ns]")
        try:
            return rule.times(available)
        except ValueError as error:
            kind = NotReadyError if isinstance(error, NotReadyError) else DataError
            raise kind(f"{key}: {error}.", key="times") from error

    if isinstance(rule := table.times, TimeRule):
        found = times_of(rule, "[observations] times")
        job = with_listed_times(job, found)
        report(f"{counted(found.size, 'time')}: {_extent(found)}")
    if isinstance(rule := job.prior.fit_times, TimeRule):
        found = times_of(rule, "[prior] fit_times")
        job = with_fit_times(job, found)
        report(f"{counted(found.size, 'time')} of the fit: {_extent(found)}")
    return job


def _extent(found: Times) -> str:
    first, last = (str(time.astype("datetime64[m]")) for time in (found[0], found[-1]))
    return first if found.size == 1 else f"{first} to {last}"
