"""``mean = "previous"``: which run a job goes on from, and what that knew of the field, exactly."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cagp_dist.budget.demand import MOST_MISSING
from cagp_dist.errors import ConfigurationError
from cagp_dist.gram.ring_filter import RingState
from cagp_dist.pipeline import Observations
from cagp_dist.pipeline.observations import hours_since
from cagp_dist.service.jobfile.design_table import AllPoints, FoldPoints
from cagp_dist.service.jobfile.job import Job
from cagp_dist.service.point_roles import Design
from cagp_dist.store.earlier import EarlierRuns
from cagp_dist.store.publish import verify_files
from cagp_dist.store.published_variables import ERRORS_OF, STATE
from cagp_dist.store.zarr_arrays import content_sha256, read_group
from cagp_dist.text import shown_time, without_secrets
from cagp_dist.variables import Variable

# Of a prior, what may differ from one run to the next: whether its numbers do is told by the state itself
_NUMBERS = (
    "fit_to",
    "fit_times",
    "lengthscale",
    "variance",
    "noise_variance",
    "time_lengthscale_hours",
)


@dataclass(frozen=True, eq=False)
class Carried:
    """The state of the previous run that of a job; of the first one, that there is none."""

    state: RingState | None = None  # its hour is counted from the time of the job
    run: str = ""  # its key
    time: np.datetime64 | None = None
    sha256: str = ""
    # latitudes and longitudes of its grid, and the numbers of its prior
    axes: tuple[tuple[float, ...], ...] = ()
    prior: str = ""

    @property
    def provenance(self) -> dict[str, str]:
        """What the name of a run depends on."""
        return {} if self.state is None else {"previous_run": self.run, "previous_sha256": self.sha256}

    def attributes(self) -> dict[str, object]:
        """Give what a run says of it."""
        if self.state is None or self.time is None:
            return {"run": None}
        said = {"run": self.run, "time": shown_time(self.time), "hours": -self.state.hour}
        return {**said, "sha256": self.sha256}

    def line(self) -> str:
        """Say it in one line."""
        if self.time is None:
            return "no run before this time: the first one"
        return f"the field continues from run {self.run}, {shown_time(self.time)}, exactly"


def carried_of(earlier: EarlierRuns, job: Job, points: Observations) -> Carried:
    """Find the run that the field continues from: the last before the time of the job that has a state."""
    check_one_time(points.times.size)
    time = points.times[0].astype("datetime64[ns]")
    path = run_before(earlier, job, time=time, variable=points.variable)
    if path is None:
        return Carried()
    verify_files(path)
    group = read_group(path, STATE)
    of_time = group["time"].values[0].astype("datetime64[ns]")
    hours = float(hours_since(group["time"].values[:1], time)[0])
    state = RingState(hours, group["state_weight"].values[0], group["state_covariance"].values[0])
    axes = tuple(tuple(group[name].values.tolist()) for name in ("latitude", "longitude"))
    return Carried(state, path.stem, of_time, content_sha256(group), axes, str(group.attrs["state_of"]))


def check_one_time(count: int) -> None:
    """Raise `ConfigurationError` if a job has several times in one run."""
    if count != 1:
        raise ConfigurationError(
            f'[prior] mean = "previous" is for one time after another, and the job has {count} times in one '
            'run. Start `cagp daily`, which does each in order, or give times = "latest".',
            key="one-time",
        )


def run_before(earlier: EarlierRuns, job: Job, *, time: np.datetime64, variable: Variable) -> Path | None:
    """Find the last run of the same kind of job before a time, with a state for those after it.

    Runs of another variable, kernel, mean or solver are passed over.
    """
    about, other = describe_state(job, variable), ""
    for run in earlier(STATE, before=time):
        differs = _difference(about, str(run.attributes.get(ERRORS_OF, "{}")))
        if differs is not None:
            other = other or f"{run.key}, is of another job: {differs}"
        elif (path := run.bring()) is not None:
            return path
    if other:
        raise ConfigurationError(
            f'[prior] mean = "previous": the previous run, {other}. Give this job an [output] root of its '
            "own.",
            key="previous-run",
        )
    return None


def describe_state(job: Job, variable: Variable) -> dict[str, object]:
    """Say what the state of a job is of, but for points, times and the numbers of its prior."""
    observations = _settings_of(job, "observations")
    return {
        "variable": variable.name,
        "level": observations.get("level"),
        "select": observations.get("select"),
        "units": variable.units,
        "prior": _settings_of(job, "prior", without=_NUMBERS),
        "solver": _settings_of(job, "solver"),
    }


def _settings_of(job: Job, name: str, *, without: tuple[str, ...] = ()) -> dict[str, object]:
    """Give a table of the canonical form of a job, without some of its keys and without passwords."""
    table = json.loads(without_secrets(json.dumps(job.canonical()[name])))
    assert isinstance(table, dict)
    return {key: value for key, value in table.items() if key not in without}


def _difference(ours: Mapping[str, object], said: str) -> str | None:
    """Say in what an earlier run differs from this job; None where it does not."""
    theirs = json.loads(said)
    for name, own in ours.items():
        other = theirs.get(name)
        if other == own:
            continue
        if isinstance(own, dict) and isinstance(other, dict):
            keys = [key for key in {**own, **other} if own.get(key) != other.get(key)]
            own, other = ({key: of.get(key) for key in keys} for of in (own, other))
        return f"its {name} {json.dumps(other)}, and of this one {json.dumps(own)}"
    return None


def check_filter(job: Job, points: Observations, design: Design) -> None:
    """Raise `ConfigurationError` unless a job has a whole grid, and asks for what the filter gives."""
    drawn, cells = job.design, job.design.map
    held_out = design.test.size + (0 if design.calibration is None else design.calibration.size)
    wrong: dict[str, bool] = {
        "the source has no full circle of longitudes, or gaps": not points.is_whole_grid,
        "observations have a noise of their own": points.noise_variance is not None,
        '[design] train is not { kind = "all" }': not isinstance(drawn.train, AllPoints),
        "[design] test is a cross-validation": isinstance(drawn.test, FoldPoints),
        "[design] has regions": drawn.regions is not None,
        '[design] map is of kind = "cells", or has std_resolution_degrees or std_samples': cells is not None
        and (cells.kind != "grid" or cells.std_resolution_degrees is not None or bool(cells.std_samples)),
        f"more than {MOST_MISSING:,} points are held out": held_out > MOST_MISSING,
        f'[solver] name is "{job.solver.name}"': job.solver.name not in ("auto", "rings"),
    }
    for said, there in wrong.items():
        if there:
            raise ConfigurationError(
                f"[prior] time_kernel carries the state of a whole grid from run to run, and {said}; "
                'expected a grid without gaps, train = { kind = "all" }, test = { kind = "random", count = '
                '1000 }, and a map, if any, of kind = "grid", with solver "auto" or "rings". For stations '
                'and fields with gaps write another mean, such as "constant", and window_hours = 72 into '
                "[design].",
                key="state-of-grid",
            )
