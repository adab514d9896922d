"""The published runs of an output folder, each in a line, and the end of those that a job does not keep."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cagp_dist.arrays import Times
from cagp_dist.errors import CagpError, ConfigurationError, StoreError
from cagp_dist.service.jobfile.job import Job
from cagp_dist.store.addresses import in_object_store
from cagp_dist.store.outputs import output_at, readable
from cagp_dist.store.publish import current_run
from cagp_dist.store.retention import Retention
from cagp_dist.store.zarr_arrays import open_group

_log = logging.getLogger(__name__)

SHOWN_SCORES = ("rmse", "crps", "nll")
COVERAGE_LEVEL = 0.9


@dataclass(frozen=True, eq=False)
class RunEntry:
    """What a list says of a run, as it records it; empty where it does not, or cannot be read."""

    path: Path  #: ``OUT/runs/<run_key>.zarr``
    current: bool  #: whether ``CURRENT`` names it
    times: Times = field(default_factory=lambda: np.empty(0, dtype="datetime64[s]"))  #: (T,)
    created: str = ""  #: ISO 8601, UTC
    source: str = ""
    solver: str = ""
    status: str = ""
    calibration_status: str = ""
    observations: int | None = None  #: observed points
    scores: Mapping[str, float] = field(default_factory=dict)  #: rmse, crps, nll, and coverage of 90 %
    units: str = ""  #: of rmse and crps
    fault: str = ""  #: why the run could not be read

    @property
    def key(self) -> str:
        """The key of the run."""
        return self.path.stem


def list_runs(root: Path | str) -> list[RunEntry]:
    """List the published runs of an output folder by their first time, then by when they were made.

    Runs of ``s3://BUCKET/PATH`` are fetched. One says that it is current. One that cannot be read is listed
    last, with its fault. Chunks are checked by their checksums, files are not compared with the manifest:
    `verify_runs` does that. About 20 ms a run. `ConfigurationError`: nothing was published there.
    """
    name, root = root, readable(root, every=True)
    paths = sorted((root / "runs").glob("*.zarr"))
    if not paths:
        raise ConfigurationError(
            f"there is no published run in {name}; expected the folder that [output] root of a job names. "
            "Run `cagp run JOB.toml` first.",
            key="no-run",
        )
    try:
        current = current_run(root)
    except StoreError:
        current = None  # a damaged pointer: the runs are there all the same
    entries = [_entry(path, current=path == current) for path in paths]
    return sorted(entries, key=lambda run: (bool(run.fault), str(run.times[:1]), run.created, run.key))


def _entry(path: Path, *, current: bool) -> RunEntry:
    try:
        with open_group(path) as root:
            attributes = dict(root.attrs)
        provenance = attributes.get("provenance")
        origin = json.loads(provenance) if isinstance(provenance, str) else {}
        count = attributes.get("train_count")
        scores, units = _scores(path)
        return RunEntry(
            path=path,
            current=current,
            times=_times(path),
            created=str(attributes.get("date_created", "")),
            source=str(origin.get("source", "")),
            solver=str(attributes.get("solver", "")),
            status=str(attributes.get("status", "")),
            calibration_status=str(attributes.get("calibration_status", "")),
            observations=int(count) if isinstance(count, int | float) else None,
            scores=scores,
            units=units,
        )
    except Exception as error:  # codecs and metadata readers raise whatever their library raises
        return RunEntry(path=path, current=current, fault=str(error) or type(error).__name__)


def _times(path: Path) -> Times:
    """Read the times of the first group that has any."""
    for name in sorted(found.parent.parent.name for found in path.glob("*/time/zarr.json")):
        with open_group(path, name) as group:
            return np.asarray(group["time"].values).astype("datetime64[s]")
    return np.empty(0, dtype="datetime64[s]")


def _scores(path: Path) -> tuple[dict[str, float], str]:
    """Scores and the unit of those that have one."""
    if not (path / "calibration" / "zarr.json").is_file():
        return {}, ""
    with open_group(path, "calibration") as group:
        scores = {name: float(group[name]) for name in SHOWN_SCORES}
        level = np.flatnonzero(np.isclose(group["level"].values, COVERAGE_LEVEL))
        if level.size:
            scores["coverage"] = float(group["coverage"].values[level[0]])
        return scores, str(group["rmse"].attrs.get("units", ""))


def keep_runs(job: Job, times: Times | Sequence[np.datetime64], *, dry: bool = False) -> list[str]:
    """Remove the runs that a job does not keep, and say so; what goes wrong is logged, and ends no pass.

    If the mean is the previous run, the runs of the times of the pass stay, and what they continue from.
    """
    if job.output.keep is None or not len(times):
        return []
    if not in_object_store(job.output.root) and not any((job.output.folder / "runs").glob("*.zarr")):
        return []
    since = f"{min(times).astype('datetime64[s]')}Z" if job.prior.is_previous else None
    try:
        return pruned(job.output.root, job.output.keep.rule(), since=since, dry=dry)
    except CagpError as error:
        _log.warning("old runs were not removed: %s", error)
        return []


def pruned(root: str, rule: Retention, *, since: str | None = None, dry: bool = False) -> list[str]:
    """Remove the runs that a rule does not keep, or only say which; a line for each."""
    word = "would be removed" if dry else "removed"
    return [f"{word}  {run}" for run in output_at(root).prune(rule, since=since, dry=dry)]
