"""Errors of earlier times, from runs of the same job that were published before in the same folder.

A job with ``[recalibration] history = N`` publishes the errors from which its laws are corrected, group
``errors``, and its local scale learns from those of up to N earlier times at the same places. A run counts if
all of its times are before the first of the job. Its errors are of predictions that did not use the values
either, so that no value of the job's own times, held out or not, has a part in them. The key of a run has the
digest of what was used.
"""

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.past_errors import PastErrors
from cagp_dist.era5.selection import shown
from cagp_dist.errors import ConfigurationError
from cagp_dist.geometry import coinciding
from cagp_dist.service.known_errors import KnownErrors
from cagp_dist.service.recalibration import History
from cagp_dist.service.same_job import difference, settings_of
from cagp_dist.service.task import Task
from cagp_dist.store import schema
from cagp_dist.store.arrays import content_sha256, read_group
from cagp_dist.store.earlier import EarlierRun, EarlierRuns, earlier_runs
from cagp_dist.store.layout import ERRORS, ERRORS_OF, STANDARDISED_ERROR

if TYPE_CHECKING:
    import xarray as xr

FEWEST_SHARED = 0.5
"""Part of the places of a table that an earlier run needs to have errors of: stations come and go."""

_NO_PART = ("map", "targets", "regions", "regions_resolution_degrees")
"""Of the design, what has no part in errors at points."""


def with_history(task: Task, earlier: EarlierRuns | None = None) -> Task:
    """Look up the errors of earlier times, if the job asks for them."""
    most = task.job.recalibration.history
    if most is None or task.recalibration.method == "none":
        return task
    points, chosen, about = task.points, places_of_errors(task), _described(task)
    latitude, longitude = points.latitude_degrees[chosen], points.longitude_degrees[chosen]
    times = dict[np.datetime64, None]()
    sums, counts, runs = np.zeros(chosen.size), np.zeros(chosen.size, dtype=np.intp), list[str]()
    earlier = earlier or partial(earlier_runs, task.job.root)
    for run in earlier(ERRORS, before=points.times.min(), leave_out_damaged=True):
        if (differs := difference(about, str(run.attributes[ERRORS_OF]))) is not None:
            raise ConfigurationError(
                f"{_the_run(task, run)} is of another job: {differs}. Errors under other settings do "
                f"not tell how this job errs. {_ADVICE}"
            )
        if (path := run.bring()) is None:
            continue
        group = read_group(path, ERRORS)
        index = coinciding(latitude, longitude, group["latitude"].values, group["longitude"].values)
        _check_places(index, group, _the_run(task, run), gridded=points.gridded)
        moments, errors = group["time"].values, group[STANDARDISED_ERROR].values
        new = [at for at in np.argsort(moments)[::-1] if moments[at] not in times][: most - len(times)]
        for at in new:
            sizes = np.where(index >= 0, np.abs(errors[at, index]), np.nan)
            sums += np.nan_to_num(sizes)
            counts += ~np.isnan(sizes)
        times |= dict.fromkeys(moments[new])
        runs += [path.stem] if new else []
        if len(times) >= most:
            break
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
    return schema.values_group(
        ERRORS,
        times=points.times,
        latitude_degrees=points.latitude_degrees[chosen],
        longitude_degrees=points.longitude_degrees[chosen],
        values=(known.observed - known.law.location) / known.law.scale,
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
    job = task.job
    read = settings_of(job, "observations", without=("times", "source"))
    return {
        "observations": {**read, "kind of source": job.observations.kind},
        "units": task.points.variable.units,
        "design": settings_of(job, "design", without=_NO_PART),
        "prior": settings_of(job, "prior", without=("fit_times",)),
        "solver": settings_of(job, "solver"),
        "errors": {"of": task.recalibration.errors},
    }


def _check_places(index: Indices, group: "xr.Dataset", the_run: str, *, gridded: bool) -> None:
    """Refuse errors at other places: of a grid at any other, of a table at half of them."""
    shared, theirs = int(np.count_nonzero(index >= 0)), group.sizes["point"]
    if shared == index.size == theirs or (not gridded and shared >= FEWEST_SHARED * index.size):
        return
    expected = "the same ones. Errors of another grid cannot be used" if gridded else "half of them"
    raise ConfigurationError(
        f"{the_run} has errors at {theirs:,} places, among which are {shared:,} of the "
        f"{index.size:,} places of this job; expected {expected}. {_ADVICE}"
    )


_ADVICE = "Give this job an [output] root of its own, or leave history out."


def _the_run(task: Task, run: EarlierRun) -> str:
    return f"[recalibration] history: the run {run.key} in {task.job.output.root}, of {shown(run.last)},"
