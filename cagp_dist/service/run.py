"""A job from beginning to end: observations, points, prior, solve, scores, published run."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from glob import escape
from pathlib import Path
from threading import Thread
from typing import Never, TypeVar

import numpy as np
import xarray as xr

from cagp_dist.arrays import Times
from cagp_dist.budget import Plan
from cagp_dist.calibration.recalibration.methods import SHARP
from cagp_dist.calibration.recalibration.sharp import FittedSharp
from cagp_dist.errors import ArgumentError, ConfigurationError, in_words_of_the_job
from cagp_dist.fields.canonical import several_variables
from cagp_dist.fields.checked import CheckedObservations
from cagp_dist.pipeline import Status
from cagp_dist.pipeline.field_solves import Execution
from cagp_dist.pipeline.fitted_model import FittedModel
from cagp_dist.pipeline.recalibration import Distributions, OutOfSampleErrors
from cagp_dist.pipeline.solve_task import Learn, Step, solve_task
from cagp_dist.pipeline.steps import fit
from cagp_dist.pipeline.task import Priors, Result, Task
from cagp_dist.preload import evaluate_every_way
from cagp_dist.runtime import Executor, ExecutorLike, SerialExecutor
from cagp_dist.service.checking import checked_observations
from cagp_dist.service.disk import (
    DiskNeed,
    bytes_of_errors,
    check_disk,
    check_spilling,
    checkpoint_bytes,
    run_bytes,
    weights_folder,
)
from cagp_dist.service.events import Clock, JobStage, Observer, silent
from cagp_dist.service.filtered_jobs import check_goes_on
from cagp_dist.service.in_memory import IN_MEMORY, observations_of, written_observations
from cagp_dist.service.ingest import ingest_all
from cagp_dist.service.job_fit import FittedPrior, fit_prior
from cagp_dist.service.job_plan import JobPlan, kept_bytes, plan_fold, work_of_errors
from cagp_dist.service.jobfile.config import load_job
from cagp_dist.service.jobfile.job import ClusterTable, Job
from cagp_dist.service.results import (
    attributes_of,
    groups_of,
    self_contained,
    simulation_group_of,
)
from cagp_dist.service.sharp_jobs import FACTORS, sharpened
from cagp_dist.service.simulated_jobs import MOST_POINTS, simulate_job
from cagp_dist.service.task import PreparedJob, Simulations, choice_line, prepare_job
from cagp_dist.service.transformed_jobs import TransformedJob, transformed_job
from cagp_dist.service.values_as_they_are import without_flagged, words_of_means, words_of_values
from cagp_dist.service.verification import verify_run
from cagp_dist.service.workers import Workers, memory_limit, workers_of
from cagp_dist.store.addresses import in_object_store
from cagp_dist.store.atomic_files import READS, read_unless_removed
from cagp_dist.store.earlier import EarlierRuns
from cagp_dist.store.memo import FolderMemo, checkpoints_of_run
from cagp_dist.store.outputs import Output, output_at, readable
from cagp_dist.store.packed import packed_runs
from cagp_dist.store.publish import current_run, output_lock
from cagp_dist.store.published_variables import scored_groups
from cagp_dist.store.zarr_arrays import read_group
from cagp_dist.termination import check_termination
from cagp_dist.text import counted

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The end of a job."""

    path: Path | None  # the published run; None if the solve did not end well, and nobody asked to publish
    status: Status  # how the solve ended, with its remedy
    calibration: xr.Dataset  # group of the run: the scores
    already_done: bool  # whether the same run was there already and nothing was computed
    simulation: xr.Dataset | None = None  # group of the run, if fields were simulated
    regions: xr.Dataset | None = None  # group of the run, if means over regions were asked for
    # the scores of each of several variables by its name; of one, those above by ""
    by_variable: Mapping[str, xr.Dataset] = field(default_factory=dict)
    published_as: str = ""  # where readers find it: its path, or the address of which that is a copy

    @property
    def times(self) -> Times:
        """Times of the run; NaT where it has none."""
        known = self.calibration.coords.get("time")
        return np.array(["NaT"], dtype="datetime64[ns]") if known is None else np.asarray(known.values)

    def __repr__(self) -> str:
        """Say where the run is and how it ended; the scores are in ``calibration``."""
        place = self.published_as or "not published"
        lines = [f"{self.status.value}, {place}{', already published' * self.already_done}"]
        for name, scores in self.by_variable.items() or [("", self.calibration)]:
            said = scores.attrs.get("calibration_statement", "")
            lines += [f"{name}: {said}" if name else said] * bool(said)
        return "\n".join(lines)


def anything(prepared: PreparedJob) -> None:
    """Let every run go on."""


@in_words_of_the_job()
def run(
    job: Job | Path | str,
    *,
    observations: xr.DataArray | xr.Dataset | None = None,
    executor: ExecutorLike = None,
    simulations: Simulations | None = None,
    publish_unconverged: bool = False,
    check: Callable[[PreparedJob], None] = anything,
    observe: Observer = silent,
    wait_seconds: float = 0.0,
) -> Outcome:
    """Run a job, unless its run is already published.

    The name of the run is known before the solve: a digest of the job, the observations, the errors of
    earlier times that it learns from, the tiling and the versions. If a run of this name is published and
    undamaged, nothing is fitted or computed. Else a job without parameters of its prior fits them first.

    Parameters
    ----------
    job : Job, or path
        A job file, checked or not.
    observations : xarray.DataArray or xarray.Dataset, optional
        Used instead of the source of the job: a grid or places with the variable that the job names, as in a
        file; ``times``, ``area`` and the other keys select from them.
    executor : Executor, Dask client or cluster, or str, optional
        Where tasks run, as for `cagp_dist.condition`; overrides [cluster] scheduler of the job.
    simulations : Simulations, optional
        Also draw fields from the prior of the job and solve for them, to test its error bars. The run then
        has a group ``simulation``, and its own name.
    publish_unconverged : bool
        Also publish a run whose status is not ok.
    check : callable, optional
        Gets the points and the grids of the run before anything is solved; what it raises ends the run.
    observe : callable
        Gets an `Event` for everything worth showing.
    wait_seconds : float
        How long another process that writes to the output folder is waited for.

    Returns
    -------
    Outcome

    Raises
    ------
    CagpError
        ConfigurationError, BudgetError, ClusterError: the job cannot be done as it is written; DataError,
        NotReadyError: its observations; NumericalError: the fit of its prior or the solve; StoreError:
        the disk; TimeLimitError: the time that the job allows is over. Whatever is
        raised, the runs published before are unchanged and no part of a new one is there.

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> outcome = cagp.run("job.toml", observations=field)  # doctest: +SKIP
    >>> outcome.status.value, outcome.path  # doctest: +SKIP
    ('exact', PosixPath('out/runs/1034d6a7017f078dc92e773b04799b4c.zarr'))
    """
    if not isinstance(job, Job):
        job = load_job(job)
    held = None if observations is None else observations_of(job, observations)
    if simulations is not None:
        _check_simulated(job)
    clock, output = Clock(observe), output_at(job.output.root)
    with (
        workers_of(job.cluster, job.runtime.deadlines(), executor) as workers,
        output_lock(output.folder, wait_seconds=wait_seconds),
        written_observations(job, held) as job,
        _compiling_meanwhile(job),
    ):
        with clock.stage("Observations") as stage:
            output.begin()
            if in_object_store(job.output.root):
                stage.note(f"the work is done in {output.folder}")
            job, field, fit_field = ingest_all(job, report=stage.note)
            if held is not None:
                read = str(field.attrs["source"])
                field = field.assign_attrs(source=read.replace(job.observations.source, IN_MEMORY))
            stage.summary = _described(field)
        with clock.stage("Points") as stage:
            prepared = prepare_job(job, field, fit_field, earlier=output.earlier)
            if simulations is not None and prepared.points.limits is not None:
                raise ConfigurationError(
                    "fields of the prior are not drawn where values are limits of detection; compare with "
                    "held-out observations, as each run does.",
                    key="simulation-of-limits",
                )
            prepared = replace(prepared, simulations=simulations)
            check(prepared)
            stage.summary = prepared.size.line()
            if prepared.carried is not None:
                stage.note(prepared.carried.line())
        checkpoints = checkpoints_of_run(
            job.output.folder, prepared.run_key, seconds=job.runtime.checkpoint_seconds
        )
        if (done := output.published(prepared.run_key)) is not None:
            checkpoints.remove()  # left where the process was killed as soon as it had published
            return _already_done(output, done, prepared)
        work = _Stages(job.cluster, clock, workers)
        prepared, compared = _values_as_asked(prepared, work, field, fit_field, output.earlier)
        fit, model = _fit(prepared, work, checkpoints)
        check_goes_on(prepared, model)
        words = _logged(words_of_values(prepared, model, workers()))
        prepared = prepared.beside_outliers(model)
        task = prepared.task
        if task.carried is not None and fit is not None:
            task = replace(task, carried=replace(task.carried, days=fit.days))
        learn = None
        if prepared.recalibration.method == SHARP:
            learn = partial(_sharpened, prepared, work)
        result = _solved(task, model, learn, _JobSteps(prepared, work, checkpoints))
        solution = result.solution
        with clock.stage("Results"):
            groups = groups_of(prepared, result)
        words |= _logged(words_of_means(prepared, groups))
        if not (solution.status.ok or publish_unconverged):
            by_variable = _scores(prepared, groups)
            return Outcome(None, solution.status, groups["calibration"], False, by_variable=by_variable)
        if simulations is not None:
            kept = replace(checkpoints, folder=checkpoints.folder / "simulation")
            simulate = partial(_simulated, prepared, model, simulations, kept.folder)
            groups["simulation"] = work.done("Simulation", simulate, kept)
        attributes = attributes_of(
            prepared,
            result,
            groups=groups,
            fitted=fit,
            executor=workers().description,
            clock=clock,
        )
        attributes |= words
        if compared:
            attributes["transform_log_likelihoods"] = compared
        with clock.stage("Publication"):
            key, source = prepared.run_key, prepared.provenance["source"]
            whole = self_contained(groups, attributes, prepared.points, source=source, run_key=key)
            path = output.publish(whole, run_key=key, attributes=attributes)
            checkpoints.remove()
    return _outcome(path, solution.status, groups, output, prepared)


def _check_simulated(job: Job) -> None:
    """Raise `ConfigurationError` where fields of the prior are not drawn."""
    if job.prior.in_time:
        raise ConfigurationError(
            "fields of the prior are not drawn with [prior] time_kernel; test the job without it, or compare "
            "with held-out observations, as each run does.",
            key="simulation-in-time",
        )
    if len(job.observations.variables) > 1:
        raise ConfigurationError(
            "fields of the prior are not drawn for several variables; test the job with one of them, or "
            "compare with held-out observations, as each run does.",
            key="simulation-of-variables",
        )
    if job.prior.bias_by:
        raise ConfigurationError(
            "fields of the prior are not drawn with [prior] bias_by; test the job without it, or compare "
            "with held-out observations, as each run does.",
            key="simulation-of-shared-errors",
        )
    if job.prior.transforms:
        raise ConfigurationError(
            "fields of the prior are not drawn with [prior] transform; test the job without it, or compare "
            "with held-out observations, as each run does.",
            key="simulation-of-transformed",
        )
    if job.prior.is_previous:
        raise ConfigurationError(
            'fields of the prior are not drawn with [prior] mean = "previous"; test the job with another '
            "mean, or compare with held-out observations, as each run does.",
            key="simulation-of-previous",
        )


def _outcome(
    path: Path,
    status: Status,
    groups: Mapping[str, xr.Dataset],
    output: Output,
    prepared: PreparedJob,
    *,
    done: bool = False,
) -> Outcome:
    return Outcome(
        path,
        status,
        groups["calibration"],
        already_done=done,
        simulation=groups.get("simulation"),
        regions=groups.get("regions"),
        by_variable=_scores(prepared, groups),
        published_as=output.name_of(path),
    )


def _logged(words: dict[str, str]) -> dict[str, str]:
    """Log what is said of values."""
    for said in words.values():
        logger.warning("%s", said)
    return words


def _scored(prepared: PreparedJob) -> dict[str, str]:
    """Name the groups of held-out verification by variables."""
    return scored_groups([variable.name for variable in prepared.variables])


def _scores(prepared: PreparedJob, groups: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Give the groups of held-out verification by variables."""
    return {name: groups[group] for name, group in _scored(prepared).items()}


@dataclass(frozen=True)
class _Stages:
    """What the stages of a job have in common: each is announced, and done by its workers."""

    table: ClusterTable
    clock: Clock
    workers: Workers

    def done(
        self, name: str, do: Callable[[JobStage, Execution], T], checkpoints: FolderMemo | None = None
    ) -> T:
        """Do a stage, again where its cluster is lost; it ends where time is over, or it is asked to end."""
        with self.clock.stage(name) as stage:

            def report(fraction: float | None, text: str) -> None:
                stage.progress(fraction, text)
                self.workers.deadlines.check()
                check_termination()

            def attempt(executor: Executor) -> T:
                limit = memory_limit(self.table, executor)
                with _compilation_noted(stage):
                    return do(stage, Execution(executor, limit, checkpoints, progress=report))

            return self.workers.attempt(attempt, stage.note)


def _fit(
    prepared: PreparedJob, work: _Stages, checkpoints: FolderMemo
) -> tuple[FittedPrior | None, FittedModel]:
    """Fit the numbers of a job that leaves them out."""
    if prepared.job.prior.numbers is not None:
        return None, fit(prepared.task, Execution(SerialExecutor()))

    def fit_all(stage: JobStage, execution: Execution) -> FittedPrior:
        fitted = _fitted(prepared, stage, execution)
        stage.note(f"parameters are {fitted.model.numbers}")
        return fitted

    found = work.done("Fit", fit_all, checkpoints)
    if found.model.is_doubtful:  # as of a call: a map with doubtful numbers that says so is more than none
        logger.warning("%s", found.warning)
    return found, found.model


@in_words_of_the_job()
def fit_job(job: Job, *, observe: Observer = silent) -> FittedPrior:
    """Fit the numbers of a job's prior, whether it states them or not, also where that does not end well."""
    with _observations_read(job, observe) as (prepared, work, field, fit_field):
        prepared, _ = _values_as_asked(prepared, work, field, fit_field, _no_runs)
        return work.done("Fit", partial(_fitted, prepared))


@in_words_of_the_job()
def check_job(job: Job, rate: float, *, observe: Observer = silent) -> CheckedObservations:
    """Check the observations of a job: which values all others contradict. Nothing is published."""
    with _observations_read(job, observe) as (prepared, work, _, _):
        return work.done("Check", partial(_checked, prepared, rate=rate))


@contextmanager
def _observations_read(
    job: Job, observe: Observer
) -> Iterator[tuple[PreparedJob, _Stages, xr.Dataset, xr.Dataset | None]]:
    """Read the observations of a job and those of its fit, for stages where its tasks run."""
    clock = Clock(observe)
    with workers_of(job.cluster, job.runtime.deadlines()) as workers:
        with output_lock(job.output.folder):
            with clock.stage("Observations") as stage:
                job, field, fit_field = ingest_all(job, report=stage.note)
                stage.summary = _described(field)
            with clock.stage("Points") as stage:
                prepared = prepare_job(job, field, fit_field, earlier=_no_runs)
                stage.summary = prepared.size.line()
        yield prepared, _Stages(job.cluster, clock, workers), field, fit_field


def _no_runs(*_: object, **__: object) -> Iterator[Never]:
    """Find no earlier runs, where these have no part."""
    return iter(())


def _values_as_asked(
    prepared: PreparedJob,
    work: _Stages,
    field: xr.Dataset,
    fit_field: xr.Dataset | None,
    earlier: EarlierRuns,
) -> tuple[PreparedJob, str]:
    """Leave out values that are flagged, or transform all, as a job asks; say which it compared."""
    observations = prepared.job.observations
    if observations.quality == "flag":
        found = work.done("Check", partial(_checked, prepared, rate=observations.flag_rate))
        return without_flagged(prepared, found, field, fit_field, earlier), ""
    if prepared.job.prior.transforms or prepared.points.limits is not None:
        chosen = work.done("Transform", partial(_transformed, prepared))
        return chosen.prepared, chosen.by.text()
    return prepared, ""


def _checked(
    prepared: PreparedJob, stage: JobStage, execution: Execution, *, rate: float
) -> CheckedObservations:
    """Check what the job reads, also what it holds out, and sum it up."""
    found = checked_observations(prepared, rate, execution)
    stage.summary = f"{found.checked.count:,} of {found.points.count:,} values flagged"
    return found


def _transformed(prepared: PreparedJob, stage: JobStage, execution: Execution) -> TransformedJob:
    """Transform the values as a job asks, and sum it up."""
    found = transformed_job(prepared, execution)
    stage.summary = found.line()
    return found


def _fitted(prepared: PreparedJob, stage: JobStage, execution: Execution) -> FittedPrior:
    """Say what is fitted to what, fit it, and sum it up."""
    fitted = fit_prior(prepared, execution, note=stage.note)
    stage.summary = fitted.line()
    return fitted


@dataclass(frozen=True)
class _JobSteps:
    """The steps of a task as stages of a job; the solve shows where and how before it begins."""

    prepared: PreparedJob
    work: _Stages
    checkpoints: FolderMemo

    def __call__(self, name: Step, do: Callable[[Execution], T], /, *, about: Callable[[T], str]) -> T:
        """Do a step as a stage."""

        def in_stage(stage: JobStage, execution: Execution) -> T:
            if name == "solve":
                execution = self._showing_plans(stage, execution)
            found = do(execution)
            stage.summary = about(found)
            return found

        return self.work.done(name.capitalize(), in_stage, self.checkpoints if name == "solve" else None)

    def _showing_plans(self, stage: JobStage, execution: Execution) -> Execution:
        """Say where the solve is done, and how, and whether the disk has room for it."""
        prepared, job, executor = self.prepared, self.prepared.job, execution.executor
        root = job.output.folder
        stage.note(f"on {executor.description}")
        if executor.dashboard is not None:
            stage.note(f"Dask dashboard: {executor.dashboard}")
        sampled: list[Plan] = []

        def show(plan: Plan) -> None:
            fold = plan_fold(job, prepared.size, prepared.fold_solver, prepared, executor)
            found = JobPlan(prepared.size, plan, fold=fold, choice=choice_line(job.solver, prepared.solver))
            before = None if plan.sums or not sampled else sampled[0]
            found = replace(
                found,
                of_errors=None if plan.sums else work_of_errors(job, prepared.size, prepared, executor),
                weights_bytes=kept_bytes(job.output, prepared.solver, found),
            )
            need = replace(found, sampled=before).disk_need(job.runtime.checkpoint_seconds)
            sampled.extend([plan] * bool(plan.sums))
            for line in replace(found, disk=need.line()).lines():
                stage.note(line)
            if kept := 0 if plan.sums else self.checkpoints.iterations():
                stage.note(f"continues from iteration {kept} of {plan.iterations}, which a checkpoint has")
            check_disk(root, need, there=self.checkpoints.folder)
            check_spilling(plan, executor)
            stage.progress(None, f"first of {plan.iterations} iterations" if plan.iterations > 1 else "")

        # by an absolute path: workers may have been started in other folders
        weights = FolderMemo(weights_folder(root)) if job.output.keep_weights else None
        return replace(execution, on_plan=show, weights=weights)


def _solved(task: Task, model: FittedModel, learn: Learn | None, steps: _JobSteps) -> Result:
    """Do the steps after the fit; a recalibration that cannot learn is one of the job file."""
    try:
        return solve_task(task, model, steps, learn=learn)
    except ArgumentError as error:
        if error.key == "recalibration":
            raise ConfigurationError(
                f'[recalibration] method = "{task.recalibration.method}": {error.__cause__ or error}',
                key="recalibration",
            ) from error
        raise


def _sharpened(
    prepared: PreparedJob, work: _Stages, task: Task, priors: Priors, errors: OutOfSampleErrors | None
) -> Distributions:
    """Find lengthscales for the quantiles; say how many solves that takes before it begins."""
    assert errors is not None  # calibration points, which the job keeps

    def find(stage: JobStage, execution: Execution) -> Distributions:
        most = min(FACTORS, len(prepared.recalibration.levels))
        stage.note(
            f"{FACTORS + 1} solves like that of the job for calibration points, then up to {most} for all "
            "others"
        )
        found = sharpened(prepared, priors.model, errors, execution)
        assert isinstance(found.everywhere, FittedSharp)
        factors = np.exp(-found.everywhere.stretches[:, 0])
        stage.summary = f"lengthscales {factors.min():.2g} to {factors.max():.2g} times that of the prior"
        return found

    return work.done("Sharp quantiles", find)


@contextmanager
def _compiling_meanwhile(job: Job) -> Iterator[None]:
    """Load or compile what a solve in this process needs, beside the reading of its observations."""
    if job.cluster.scheduler != "local" or job.solver.name == "rings":
        yield
        return
    thread = Thread(target=evaluate_every_way, name="compilation")
    thread.start()
    try:
        yield
    finally:
        thread.join()


@contextmanager
def _compilation_noted(stage: JobStage) -> Iterator[None]:
    """Say so when functions are compiled in this process; a note, and what the bar says until it moves."""
    from cagp_dist.compilation import compilation_watched

    def say() -> None:
        stage.note("compiling functions for this processor, once; this takes some seconds")
        stage.progress(None, "compiling, once")

    with compilation_watched(say):
        yield


def _described(field: xr.Dataset) -> str:
    if "point" in field.sizes:
        name = next(iter(field.data_vars))
        values, times = int(field[name].notnull().sum()), field.sizes["time"]
        places = field.sizes["point"] // max(len(several_variables(field)), 1)
        many = f"{counted(values, 'value')} of {counted(places, 'place')} at {counted(times, 'time')}"
        return f"{many} from {field.attrs['source']}"
    held = field[next(iter(field.data_vars))]
    missing = int(held.isnull().sum())
    lacking = f", {missing:,} of them missing," if missing else ""
    return f"{' x '.join(map(str, held.shape))} values{lacking} from {field.attrs['source']}"


def _simulated(
    prepared: PreparedJob,
    model: FittedModel,
    asked: Simulations,
    kept: Path,
    stage: JobStage,
    execution: Execution,
) -> xr.Dataset:
    """Group ``simulation``: the job on fields of its prior."""
    size, seconds = prepared.size, prepared.job.runtime.checkpoint_seconds
    of_run = run_bytes(observed=size.observed, predicted=size.predicted, times=size.times)

    def check(of_checkpoints: int) -> None:
        check_disk(prepared.job.output.folder, DiskNeed(of_run, of_checkpoints), there=kept)

    if not prepared.solver.many_fields:
        check(bytes_of_errors(targets=min(prepared.design.test.size, MOST_POINTS), fields=asked.count))
    stage.note("fields are drawn from the prior of the job, observed at its points and solved as it says")

    def planned(plan: Plan) -> None:
        check(checkpoint_bytes(plan, solves=1, checkpoint_seconds=seconds))

    found = simulate_job(prepared, model, asked, replace(execution, on_plan=planned), note=stage.note)
    stage.summary = f"{asked.count:,} fields: {found.calibration.verdict.kind}"
    return simulation_group_of(prepared.points, found)


def _already_done(output: Output, path: Path, prepared: PreparedJob) -> Outcome:
    """Make a run that was published before the current one, and read its scores."""
    output.make_current(path)
    names = [*_scored(prepared).values()] + ["simulation"] * (prepared.simulations is not None)
    names += ["regions"] * bool(prepared.design.regions)
    groups = {name: read_group(path, name) for name in names}
    status = Status(str(read_group(path).attrs["status"]))
    return _outcome(path, status, groups, output, prepared, done=True)


def ingest_only(job: Job, *, observe: Observer = silent) -> None:
    """Bring the observations of a job into its output folder, and do no more."""
    with output_lock(job.output.folder), Clock(observe).stage("Observations") as stage:
        _, field, _ = ingest_all(job, report=stage.note)
        stage.summary = _described(field)


def find_run(output: Path | str) -> Path:
    """Find the run that a path means: itself, the current one of an output folder, or that of a key in it.

    Of ``OUT/KEY`` some digits are enough. Of ``s3://BUCKET/PATH`` a copy is made, or found, on this machine.
    """
    name, output = output, readable(output)
    if output.suffix == ".zarr" and output.is_dir():
        return output
    if packed := _packed(output):
        raise ConfigurationError(
            f"{name} is packed, as one file. Bring the run back first: `cagp unpack {packed}`.", key="packed"
        )
    of_key = [] if output.exists() else sorted((output.parent / "runs").glob(f"{escape(output.name)}*.zarr"))
    if len(of_key) > 1:
        raise ConfigurationError(
            f"{len(of_key)} runs in {output.parent} begin with {output.name}: "
            f"{', '.join(path.stem for path in of_key)}. Give more digits.",
            key="several-runs",
        )
    found = of_key[0] if of_key else current_run(output)
    if found is None and (output.parent / "runs").is_dir():
        above = os.path.dirname(name) or "."
        raise ConfigurationError(
            f"there is no published run in {above} whose key begins with {output.name}. `cagp list {above}` "
            "shows those that are there.",
            key="no-run",
        )
    if found is None:
        raise ConfigurationError(
            f"there is no published run in {name}; expected the folder that [output] root of a job names. "
            "Run `cagp run JOB.toml` first.",
            key="no-run",
        )
    return found


def _packed(output: Path) -> str:
    """Name ``OUT/KEY`` where a path means a packed run, by its file or by its key; else nothing."""
    if output.suffix == ".zip" and output.is_file():
        return f"{output.parent.parent}/{output.stem}"
    here = packed_runs(output.parent) if not output.exists() else []
    is_there = any((output.parent / "runs").glob(f"{escape(output.name)}*.zarr"))
    return str(output) if not is_there and any(path.stem.startswith(output.name) for path in here) else ""


def verify_runs(output: Path | str) -> list[Path]:
    """Check files and values of a run, or of every run of an output folder, and return their paths."""
    folder = readable(output, every=True, anew=True)
    found = find_run(folder)
    verified: list[Path] = []
    for _ in range(READS):
        runs = sorted((folder / "runs").glob("*.zarr")) or [found]
        if not (left := [run for run in runs if run not in verified]):
            break
        verified += [run for run in left if read_unless_removed(run, partial(verify_run, run)) is not None]
    return sorted(verified)
