"""Errors of earlier times, from runs of the same job that were published before in the same folder.

A job with ``[recalibration] history = N`` publishes the errors from which its laws are corrected, group
``errors``, and its local scale learns from those of up to N earlier times at the same places. A run counts if
all of its times are before the first of the job. Its errors are of predictions that did not use the values
either, so that no value of the job's own times, held out or not, has a part in them. The key of a run has the
digest of what was used.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.past_errors import PastErrors
from cagp_dist.era5.selection import shown
from cagp_dist.errors import ConfigurationError
from cagp_dist.geometry import coinciding
from cagp_dist.service.known_errors import KnownErrors
from cagp_dist.service.recalibration import History
from cagp_dist.service.task import Task
from cagp_dist.store import schema
from cagp_dist.store.arrays import content_sha256, open_group, read_group
from cagp_dist.store.layout import ERRORS, ERRORS_OF, STANDARDISED_ERROR

if TYPE_CHECKING:
    import xarray as xr

FEWEST_SHARED = 0.5
"""Part of the places of a table that an earlier run needs to have errors of: stations come and go."""

_NO_PART = ("map", "targets", "regions", "regions_resolution_degrees")
"""Of the design, what has no part in errors at points."""


def with_history(task: Task) -> Task:
    """Look up the errors of earlier times, if the job asks for them.

    Raises
    ------
    ConfigurationError
        If an earlier run has errors at other places, in another unit, or of another design, prior or solver.
    StoreError
        If one is damaged.
    """
    most = task.job.recalibration.history
    if most is None or task.recalibration.method == "none":
        return task
    points, chosen, about = task.points, places_of_errors(task), _described(task)
    latitude, longitude = points.latitude_degrees[chosen], points.longitude_degrees[chosen]
    times = dict[np.datetime64, None]()
    sums, counts, runs = np.zeros(chosen.size), np.zeros(chosen.size, dtype=np.intp), list[str]()
    for path in _earlier_runs(task.job.root, points.times.min()):
        if len(times) >= most:
            break
        group = read_group(path, ERRORS)
        _check_same(group, about, path)
        index = coinciding(latitude, longitude, group["latitude"].values, group["longitude"].values)
        _check_places(index, group, path, gridded=points.gridded)
        moments, errors = group["time"].values, group[STANDARDISED_ERROR].values
        new = [at for at in np.argsort(moments)[::-1] if moments[at] not in times][: most - len(times)]
        for at in new:
            sizes = np.where(index >= 0, np.abs(errors[at, index]), np.nan)
            sums += np.nan_to_num(sizes)
            counts += ~np.isnan(sizes)
        times |= dict.fromkeys(moments[new])
        runs += [path.stem] if new else []
    return replace(
        task,
        recalibration=replace(task.recalibration, history=_history(task, chosen, sums, counts, times, runs)),
    )


def _history(
    task: Task,
    chosen: Indices,
    sums: Array,
    counts: Indices,
    times: dict[np.datetime64, None],
    runs: list[str],
) -> History:
    import xarray as xr

    if not times:
        return History()
    past = PastErrors(task.inputs_at(chosen), sums, counts, task.points.variable.units)
    used = np.array(sorted(times))
    content = {
        "places": (("point", "axis"), past.points),
        "sums": ("point", sums),
        "counts": ("point", counts),
    }
    digest = content_sha256(xr.Dataset({**content, "times": ("time", used)}))
    return History(past, tuple(shown(time) for time in used), tuple(sorted(runs)), digest)


def errors_group(task: Task, known: KnownErrors) -> "xr.Dataset":
    """Arrange the errors that correct the laws of a job for publication, for jobs of later times."""
    points, chosen, units = task.points, places_of_errors(task), task.points.variable
    return schema.errors_group(
        times=points.times,
        latitude_degrees=points.latitude_degrees[chosen],
        longitude_degrees=points.longitude_degrees[chosen],
        errors=(known.observed - known.law.location) / known.law.scale,
        variable=units,
        names=None if points.names is None else points.names[chosen],
    ).assign_attrs({ERRORS_OF: json.dumps(_described(task), sort_keys=True)})


def places_of_errors(task: Task) -> Indices:
    """Points of the field at which there are errors that correct the laws, in the order of these."""
    match task.recalibration.errors:
        case "points":
            return task.calibrating
        case "folds":
            return task.design.test
        case _:
            return task.design.train


def _described(task: Task) -> dict[str, object]:
    """Everything of a job that its standardised errors depend on, but for times and values."""
    form, observations = task.job.canonical(), task.job.observations
    read = {
        key: value for key, value in _table(form, "observations").items() if key not in ("times", "source")
    }
    design, prior = _table(form, "design"), _table(form, "prior")
    return {
        "observations": {**read, "kind of source": observations.kind},
        "units": task.points.variable.units,
        "design": {key: value for key, value in design.items() if key not in _NO_PART},
        "prior": {key: value for key, value in prior.items() if key != "fit_times"},
        "solver": form["solver"],
        "errors": {"of": task.recalibration.errors},
    }


def _table(form: dict[str, object], name: str) -> dict[str, object]:
    table = form[name]
    assert isinstance(table, dict)
    return table


def _earlier_runs(root: Path, first: np.datetime64) -> Iterator[Path]:
    """Find runs with errors whose times are all before a moment: latest first, of one time the last made."""
    found = []
    for path in (root / "runs").glob("*.zarr"):
        if not (path / ERRORS / "zarr.json").is_file():
            continue
        with open_group(path, ERRORS) as group, open_group(path) as run:
            last = group["time"].values.max()
            if last < first:
                found.append((last, str(run.attrs.get("date_created", "")), path))
    yield from (path for *_, path in sorted(found, reverse=True))


def _check_same(group: "xr.Dataset", about: dict[str, object], path: Path) -> None:
    """Refuse the errors of a job that differs in more than its times."""
    theirs = json.loads(str(group.attrs[ERRORS_OF]))
    for name, ours in about.items():
        other = theirs.get(name)
        if other == ours:
            continue
        if isinstance(ours, dict) and isinstance(other, dict):
            keys = [key for key in {**ours, **other} if ours.get(key) != other.get(key)]
            ours, other = ({key: of.get(key) for key in keys} for of in (ours, other))
        raise ConfigurationError(
            f"{_the_run(path, group)} is of another job: its {name} {json.dumps(other)}, and of this one "
            f"{json.dumps(ours)}. Errors under other settings do not tell how this job errs. {_ADVICE}"
        )


def _check_places(index: Indices, group: "xr.Dataset", path: Path, *, gridded: bool) -> None:
    """Refuse errors at other places: of a grid at any other, of a table at half of them."""
    shared, theirs = int(np.count_nonzero(index >= 0)), group.sizes["point"]
    if shared == index.size == theirs or (not gridded and shared >= FEWEST_SHARED * index.size):
        return
    expected = "the same ones. Errors of another grid cannot be used" if gridded else "half of them"
    raise ConfigurationError(
        f"{_the_run(path, group)} has errors at {theirs:,} places, among which are {shared:,} of the "
        f"{index.size:,} places of this job; expected {expected}. {_ADVICE}"
    )


_ADVICE = "Give this job an [output] root of its own, or leave history out."


def _the_run(path: Path, group: "xr.Dataset") -> str:
    return (
        f"[recalibration] history: the run {path.stem} in {path.parent.parent}, of "
        f"{shown(group['time'].values.max())},"
    )
