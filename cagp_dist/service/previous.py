"""``mean = "previous"``: the last published posterior as the prior mean, its error counted in the variance.

The field about its mean by latitude persists (math 14.1)::

    f_t - H c = p (f_(t-1) - H c) + g_t        g_t ~ GP(0, (1 - p^2) k)

What a run of an earlier time left unknown, ``e = f_(t-1) - m_(t-1)``, varies in space, and is correlated in
ways that a standard deviation at each place does not tell. So each run publishes draws of its error on its
map, and the next one puts them through its own solve: with L its linear map from observations to targets, its
error is ``p (e(X') - L e(X))`` and, independent of that, what a prior of kernel ``(1 - p^2) k`` leaves.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cagp_dist.arrays import Array, Times
from cagp_dist.errors import ConfigurationError
from cagp_dist.fields.selection import shown_time
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import averaged, target_points
from cagp_dist.kernels import Kernel
from cagp_dist.mapping import Observations
from cagp_dist.mapping.field_solves import LeftOut, Solution, SolveStep
from cagp_dist.means import latitude_of
from cagp_dist.service.cell_values import FEWEST_CELLS, CellGrid
from cagp_dist.service.jobfile.job import Job
from cagp_dist.service.map_cells import Wanted
from cagp_dist.service.point_roles import Design
from cagp_dist.store.earlier import EarlierRuns
from cagp_dist.store.publish import verify_files
from cagp_dist.store.published_variables import ERROR_DRAW, ERROR_DRAWS, ERRORS_OF
from cagp_dist.store.zarr_arrays import content_sha256, read_group
from cagp_dist.text import place_text, without_secrets
from cagp_dist.variables import Variable

DRAWS = 100  # Of the error of each run: a standard error of 7 % of the standard deviation that they stand for
# Of a prior, what may differ from one run to the next, as fitted numbers do
_NUMBERS = (
    "persistence",
    "fit_to",
    "fit_times",
    "lengthscale",
    "variance",
    "noise_variance",
    "time_lengthscale_hours",
)
# Purposes of random numbers: what interpolation misses at points and at cells, and errors of a solve
AT_POINTS, AT_CELLS, OWN = 0, 1, 2
_STREAM = 0x70726576  # Names the streams of random numbers of these draws


@dataclass(frozen=True, eq=False)
class Earlier:
    """What is taken from the run of an earlier time."""

    run: str  # its key
    time: np.datetime64
    hours: float  # until the time of the job
    persistence: float  # p, correlation of the field about its mean at the two times
    cells: CellGrid  # of its map
    mean: Array  # (r, 1) posterior mean at the r cells
    errors: Array  # (r, N) draws of its error
    sha256: str  # digest of map and draws

    def mean_at(self, targets: Array | LinearFunctionals) -> Array:
        """``p m(X')``, shape (q,)."""
        found = self.cells.at(target_points(targets), self.mean)
        return np.asarray(self.persistence * averaged(targets, found)[:, 0])

    def errors_at(self, targets: Array | LinearFunctionals) -> Array:
        """``p e(X')`` for each draw, shape (q, N), without what interpolation misses."""
        found = self.cells.at(target_points(targets), self.errors)
        return np.asarray(self.persistence * averaged(targets, found))

    def missed_at(self, targets: Array | LinearFunctionals, kernel: Kernel) -> Array:
        """Variance (q,) of ``p`` times what interpolation misses; of functionals, averaged over nodes."""
        found = self.cells.missed(target_points(targets), kernel)[:, None]
        return np.asarray(self.persistence**2 * averaged(targets, found)[:, 0])


@dataclass(frozen=True, eq=False)
class Previous:
    """The run before that of a job; of the first one, that there is none."""

    time: np.datetime64  # of the job
    earlier: Earlier | None = None

    @property
    def unseen(self) -> float:
        """Part of the variance of the field of which the previous run knows nothing, ``1 - p^2``."""
        return 1.0 if self.earlier is None else 1.0 - self.earlier.persistence**2

    @property
    def provenance(self) -> dict[str, str]:
        """What the name of a run depends on."""
        found = self.earlier
        return {} if found is None else {"previous_run": found.run, "previous_sha256": found.sha256}

    def attributes(self) -> dict[str, object]:
        """Give what a run says of it."""
        found = self.earlier
        if found is None:
            return {"run": None}
        said = {
            "run": found.run,
            "time": shown_time(found.time),
            "hours": found.hours,
            "sha256": found.sha256,
        }
        return {**said, "persistence": found.persistence, "draws": found.errors.shape[1]}

    def line(self) -> str:
        """Say it in one line."""
        if self.earlier is None:
            return "no run before this time: the first one, with a mean by latitude alone"
        return (
            f"the mean is that of run {self.earlier.run}, {shown_time(self.earlier.time)}, with persistence "
            f"{self.earlier.persistence:.3g}, beside a mean by latitude"
        )

    def generator(self, purpose: int) -> np.random.Generator:
        """Give a stream of random numbers of this time, for one purpose."""
        moment = int(self.time.astype("datetime64[ns]").astype(np.int64)) % 2**64
        return np.random.default_rng(np.random.SeedSequence(DRAWS, spawn_key=(_STREAM, moment, purpose)))

    def columns(self, X: Array, observed: Array, kernel: Kernel) -> Array:
        """Observations (n, 1) without the mean of the previous run, and draws of its errors: (n, 1 + N)."""
        if self.earlier is None:
            return observed
        missed = np.sqrt(self.earlier.missed_at(X, kernel))[:, None]
        errors = self.earlier.errors_at(X)
        errors += missed * self.generator(AT_POINTS).standard_normal(errors.shape)
        known = observed - self.earlier.mean_at(X)[:, None]
        return np.concatenate([known, np.where(np.isnan(observed), np.nan, errors)], axis=1)

    def counted(
        self,
        solution: Solution,
        X_new: Array | LinearFunctionals,
        X_sampled: Array | LinearFunctionals | None,
        kernel: Kernel,
        *,
        cells: slice,
    ) -> Solution:
        """Put the mean back, and count the errors of the previous run in each standard deviation."""
        if self.earlier is None:
            return replace(solution, computational_std=None)
        targets = _Targets.of(self.earlier, X_new, kernel)
        sampled, last = solution.sampled, solution.steps[-1].mean
        left = targets.left(last)[cells]
        missed = targets.missed[cells]
        if sampled is not None and X_sampled is not None:
            mapped = _Targets.of(self.earlier, X_sampled, kernel)
            left, missed = mapped.left(sampled.mean), mapped.missed
            mean, std = mapped.applied(sampled.mean, sampled.std)
            sampled = replace(sampled, mean=mean, std=std)
        left += np.sqrt(missed)[:, None] * self.generator(AT_CELLS).standard_normal(left.shape)
        return replace(
            solution,
            steps=tuple(
                SolveStep(step.iteration, *targets.applied(step.mean, step.std), step.seconds)
                for step in solution.steps
            ),
            sampled=sampled,
            computational_std=None,
            error_draws=left.T,
        )

    def counted_left_out(self, found: LeftOut, columns: Array, X: Array) -> LeftOut:
        """Do the same for predictions (1 + N, n) of each of the `columns` from all the others."""
        if self.earlier is None:
            return found
        extra = np.mean((columns[:, 1:].T - found.mean[1:]) ** 2, axis=0)
        return LeftOut(found.mean[:1] + self.earlier.mean_at(X), np.sqrt(found.std[:1] ** 2 + extra))


@dataclass(frozen=True, eq=False)
class _Targets:
    """At q targets the mean (q,), the errors (q, N) and the variance (q,) that interpolation misses."""

    mean: Array
    errors: Array
    missed: Array

    @classmethod
    def of(cls, earlier: Earlier, targets: Array | LinearFunctionals, kernel: Kernel) -> "_Targets":
        return cls(earlier.mean_at(targets), earlier.errors_at(targets), earlier.missed_at(targets, kernel))

    def left(self, mean: Array) -> Array:
        """``p (e(X') - L e(X))``, shape (q, N), from means (1 + N, q)."""
        return np.asarray(self.errors - mean[1:].T)

    def applied(self, mean: Array, std: Array) -> tuple[Array, Array]:
        """Of means and standard deviations (1 + N, q), those of the field, each (1, q)."""
        extra = np.mean(self.left(mean) ** 2, axis=1) + self.missed
        return mean[:1] + self.mean, np.sqrt(std[:1] ** 2 + extra)


def check_one_time(count: int) -> None:
    """Raise `ConfigurationError` if a job has several times in one run."""
    if count != 1:
        raise ConfigurationError(
            f'[prior] mean = "previous" is for one time after another, and the job has {count} times in one '
            'run. Start `python -m pipelines.daily`, which does each in order, or give times = "latest".'
        )


def previous_of(earlier: EarlierRuns, job: Job, *, times: Times, variable: Variable) -> Previous:
    """Find the run whose posterior is the prior mean of a job: of the latest time before it.

    Runs of another variable, kernel, mean or solver are passed over; fitted numbers may differ.
    """
    check_one_time(times.size)
    time = times[0].astype("datetime64[ns]")
    path = run_before(earlier, ERROR_DRAWS, job, time=time, variable=variable)
    if path is None:
        return Previous(time)
    assert job.prior.persistence is not None
    return Previous(time, _earlier(path, time, variable, persistence=job.prior.persistence))


def run_before(
    earlier: EarlierRuns, group: str, job: Job, *, time: np.datetime64, variable: Variable
) -> Path | None:
    """Find the last run of the same kind of job before a time that has a group for those after it."""
    about, other = describe_errors(job, variable), ""
    for run in earlier(group, before=time):
        differs = _difference(about, str(run.attributes.get(ERRORS_OF, "{}")))
        if differs is not None:
            other = other or f"{run.key}, is of another job: {differs}"
        elif (path := run.bring()) is not None:
            return path
    if other:
        raise ConfigurationError(
            f'[prior] mean = "previous": the previous run, {other}. Give this job an [output] root of its '
            "own."
        )
    return None


def describe_errors(job: Job, variable: Variable) -> dict[str, object]:
    """Say what the errors of a job are errors of, but for points, times and the numbers of its prior."""
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


def check_map_of_errors(
    previous: Previous, points: Observations, design: Design, wanted: Wanted | None
) -> None:
    """Raise `ConfigurationError` unless the maps of a job and of the previous run know all that is asked."""
    if design.cells is None or design.cells.blank:
        raise ConfigurationError(
            '[prior] mean = "previous" takes mean and errors from the map, which has '
            f"{0 if design.cells is None else design.cells.blank:,} blank cells here; write mask = "
            '"none" in [design] map, or give it an area without them.'
        )
    places = [(points.north, points.east), design.cells.points()]
    if wanted is not None:
        places.append((wanted.north, wanted.east))
    if design.region_means is not None:
        nodes = design.region_means.nodes
        places.append((latitude_of(nodes), np.rad2deg(np.arctan2(nodes[:, 1], nodes[:, 0]))))
    own = CellGrid(design.cells.north, design.cells.east)
    if min(own.latitude_degrees.size, own.longitude_degrees.size) < FEWEST_CELLS:
        raise ConfigurationError(
            '[prior] mean = "previous" interpolates mean and errors between the cells of the map, which has '
            f"{own.latitude_degrees.size} x {own.longitude_degrees.size} of them; expected at least "
            f"{FEWEST_CELLS} along each axis. Give [design] map a finer resolution or a larger area."
        )
    maps = {"this job": own}
    if (before := previous.earlier) is not None:
        maps[f"the previous run, {before.run} of {shown_time(before.time)},"] = before.cells
    for of, cells in maps.items():
        for latitude, longitude in places:
            outside = cells.outside(latitude, longitude)
            if outside.any():
                first = int(np.flatnonzero(outside)[0])
                raise ConfigurationError(
                    f'[prior] mean = "previous": the map of {of} does not hold {np.count_nonzero(outside):,} '
                    f"of {outside.size:,} points, such as {place_text(latitude[first], longitude[first])}. "
                    "Give [design] map an area with all points and targets; where runs with a smaller one "
                    "are there already, with an [output] root of its own."
                )


def _earlier(path: Path, time: np.datetime64, variable: Variable, *, persistence: float) -> Earlier:
    """Read the map of a run, and the draws of its error."""
    verify_files(path)
    group, errors = read_group(path, "map"), read_group(path, ERROR_DRAWS)
    name, of_time = f"{variable.name}_mean", errors["time"].values[0].astype("datetime64[ns]")
    draws = np.asarray(errors[ERROR_DRAW].values[0], dtype=np.float64)
    hours = float((time - of_time).astype(np.int64)) / 3.6e12
    return Earlier(
        run=path.stem,
        time=of_time,
        hours=hours,
        persistence=persistence ** (hours / 24.0),
        cells=CellGrid(group["latitude"].values, group["longitude"].values),
        mean=np.asarray(group[name].values[0], dtype=np.float64).reshape(-1, 1),
        errors=draws.reshape(len(draws), -1).T,
        sha256=content_sha256(group[[name]].merge(errors[[ERROR_DRAW]])),
    )
