"""What a job is going to cost: points, tasks, bytes and flops of all its parts, before any work."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from pathlib import Path

import numpy as np

from cagp_dist.budget import Demand, Plan, Work
from cagp_dist.budget.grid_plans import plan_filtered_grid
from cagp_dist.budget.workers import Crew, worker_lines
from cagp_dist.calibration.recalibration.methods import SHARP
from cagp_dist.errors import CagpError, ConfigurationError, in_words_of_the_job
from cagp_dist.gram.cell_means import MOST_NODES
from cagp_dist.kernels import VARIABLE
from cagp_dist.pipeline import (
    MOST_FLAT,
    Cholesky,
    Neighbours,
    Rings,
    Solver,
    bytes_of_weights,
    chosen_solver,
    solver_name,
)
from cagp_dist.pipeline.censoring import DRAWS, FIT_DRAWS, ROUNDS
from cagp_dist.pipeline.cross_validation import usual_errors
from cagp_dist.pipeline.defaults import FOLDS
from cagp_dist.pipeline.field_solves import bounds_are_cheap
from cagp_dist.pipeline.fitted_model import sites_of_fit
from cagp_dist.pipeline.fitting import Sites, method_of
from cagp_dist.pipeline.labelled_fit import work_of_searches
from cagp_dist.pipeline.labels import Labels
from cagp_dist.pipeline.maps_at_times import work_in_time
from cagp_dist.pipeline.recalibration import Errors
from cagp_dist.pipeline.solve_plans import (
    demands_of_patterns,
    plan_of_patterns,
    plan_of_samples,
    work_of_left_out,
)
from cagp_dist.pipeline.steps import fits_of_folds
from cagp_dist.pipeline.transform_choice import compared_by_fits
from cagp_dist.pipeline.values_plans import (
    ROUNDS_OF_WEIGHTS,
    work_of_check,
    work_of_draws,
    work_of_mixtures,
    work_of_numbers,
    work_of_transforms,
)
from cagp_dist.service.carried_state import check_filter, check_one_time
from cagp_dist.service.disk import DiskNeed, check_disk, checkpoint_bytes, run_bytes
from cagp_dist.service.filtered_jobs import seen_elsewhere
from cagp_dist.service.ingest import peek, resolved
from cagp_dist.service.job_fit import at_fit_times, fitted_to, fitted_to_sites
from cagp_dist.service.job_size import Size
from cagp_dist.service.jobfile.config import job_of_fit_times
from cagp_dist.service.jobfile.design_table import BlockPoints, RandomPoints
from cagp_dist.service.jobfile.job import Job, OutputTable
from cagp_dist.service.jobfile.solver_table import AnySolverTable
from cagp_dist.service.map_cells import cells_of, samples_of_map
from cagp_dist.service.point_roles import places_on_grid
from cagp_dist.service.sharp_jobs import SharpPlan, plan_sharp
from cagp_dist.service.task import (
    ChosenPoints,
    choice_line,
    choose_points,
    mean_of_job,
    prepare_job,
    wanted_places,
)
from cagp_dist.service.workers import Workforce, memory_limit, workforce_of
from cagp_dist.store.memo import checkpoints_folder
from cagp_dist.text import counted, without_secrets

_GLOBE = (90.0, 0.0, -90.0, 360.0)


@dataclass(frozen=True)
class JobPlan:
    """Size of a job and the plan of its solver."""

    size: Size
    plan: Plan  # carried out once for all times, or once for each; of a cross-validation the largest solve
    fit: str = ""  # what is fitted before, for people; empty if nothing is
    of_fits: Work | None = None  # of that, and of fits without each fold
    # of what is done for values that are not normal, or may be wrong: what that is, and what it takes
    of_values: tuple[tuple[str, Work], ...] = ()
    of_errors: Work | None = None  # that correct error bars, where these are not in the solve
    fold: Plan | None = None  # of one fold of a cross-validation, where its solves are not all alike
    # of the samples of the map, which are drawn before; of the solve with the most observed points
    sampled: Plan | None = None
    sharp: SharpPlan | None = None  # of the solves of a sharp GP, which come after
    # what the job takes of the disk of its output folder, in a line; empty where that is not asked for
    disk: str = ""
    choice: str = ""  # which solver was chosen, in a line; empty where the job names one
    weights_bytes: int = 0  # of weights that are kept, about
    crew: Crew | None = None  # workers that need not be there

    @property
    def solves(self) -> int:
        """How often the plan is carried out."""
        return self.size.fields // self.plan.fields

    def disk_need(self, checkpoint_seconds: float) -> DiskNeed:
        """Estimate what the job takes of the disk, with so many seconds between its checkpoints."""
        size, solves = self.size, self.solves * self.size.solves
        kept = checkpoint_bytes(self.plan, solves=solves, checkpoint_seconds=checkpoint_seconds)
        if self.sampled is not None:
            kept += checkpoint_bytes(self.sampled, solves=1, checkpoint_seconds=checkpoint_seconds)
        run = run_bytes(observed=size.observed, predicted=size.predicted, times=size.times)
        return DiskNeed(run, kept, self.weights_bytes)

    @property
    def of_solves(self) -> Work:
        """All solves, of folds and of times."""
        fold = self.plan if self.fold is None else self.fold
        once = (self.size.solves - self.size.folds) * self.plan.work + self.size.folds * fold.work
        return self.solves * once

    @property
    def work(self) -> Work:
        """The whole job."""
        samples = None if self.sampled is None else self.sampled.work
        sharp = None if self.sharp is None else self.sharp.work
        others = (self.of_fits, samples, self.of_errors, sharp, *(work for _, work in self.of_values))
        return reduce(add, [each for each in others if each is not None], self.of_solves)

    def lines(self) -> list[str]:
        """Return the plan as sentences for people."""
        text = [f"{what}: about {work}" for what, work in self.of_values]
        text += [self.fit] * bool(self.fit) + [self.choice] * bool(self.choice)
        text += [] if self.sampled is None else self.sampled.lines()
        text += self.plan.lines()
        text += [] if self.crew is None else worker_lines(self.plan, self.crew)
        text += [self.disk] * bool(self.disk)
        if self.solves > 1:
            why = "each uses different values" if self.size.apart else "the solver follows the values"
            which = "time" if self.size.draws == 1 else "draw of each time"
            text.append(f"{self.solves} such solves, one for each {which}: {why}")
        if self.of_errors is not None:
            observed = counted(self.size.observed, "observed point")
            said = {
                "leave-one-out": f"leave-one-out errors of the {observed}",
                "drawn": f"a solve without {counted(self.size.with_errors, 'point')}, for their errors",
                "blocks": f"{FOLDS} solves without a tenth of the blocks each, for the errors there",
            }
            text.append(f"{said[self.size.errors]}: {self.of_errors}")
        if self.size.gaps is not None and self.plan.solves > 1:
            text.append(self.size.gaps.line())
        if self.sharp is not None:
            text += self.sharp.lines()
        if self.size.folds:
            text.append(
                f'{self.size.solves_line()}; [design] test = {{ kind = "random", count = 1000 }} is scored '
                "with one solve"
            )
        if self.work.flops > self.plan.work.flops:
            text.append(f"in all {self.work}")
        return text


@in_words_of_the_job()
def plan_job(
    job: Job,
    *,
    crew: Crew | None = None,
    on_plan: Callable[[JobPlan], None] = lambda plan: None,
) -> JobPlan:
    """Plan a job without writing anything; a crew takes the place of its workers."""
    job = resolved(job, report=lambda text: None, offline=True)
    # points of a field that can be looked at without a download
    seen = None
    if (field := peek(job)) is not None:
        covered = mean_of_job(job, field) if job.prior.covariates or job.prior.background else None
        seen = choose_points(job, field, covered)
    size = _with_draws(job, _size(job, seen), seen)
    if job.prior.is_previous and seen is not None:
        check_filter(job, seen.points, seen.design)
    if job.prior.is_previous:
        check_one_time(size.times)
    solver = _unseen_solver(job.solver, size.observed) if seen is None else seen.solver
    with workforce_of(job.cluster) if crew is None else nullcontext(crew) as workforce:
        found = _plan_solve(job, size, solver, seen, workforce)
        if not workforce.shares_memory:
            threads = max(1, workforce.workers // workforce.processes)
            found = replace(found, crew=Crew(workforce.processes, threads))
    found = replace(found, weights_bytes=kept_bytes(job.output, solver, found))
    need = found.disk_need(job.runtime.checkpoint_seconds)
    found = replace(found, disk=need.line(), choice=choice_line(job.solver, solver))
    of_values = _of_values(job, size, seen, solver, workers=found.plan.workers)
    found = replace(found, of_values=of_values)
    if job.prior.numbers is None:
        fit, of_fits = _fit(job, size, seen, workers=found.plan.workers)
        found = replace(found, fit=fit, of_fits=of_fits)
    on_plan(found)
    check_disk(job.output.folder, need, there=_own_checkpoints(job))
    return found


def _own_checkpoints(job: Job) -> Path | None:
    """Where the job has its checkpoints if it was begun; None while that is not known."""
    checkpoints = checkpoints_folder(job.output.folder)
    if not checkpoints.is_dir():
        return None  # most jobs: the observations are not read again for their digest
    with suppress(CagpError):  # the run says what is wrong, and until then has kept nothing
        other = job_of_fit_times(job)
        field = peek(job)
        fit_field = None if other is None else peek(other)
        if field is not None and (other is None or fit_field is not None):
            return checkpoints / prepare_job(job, field, fit_field).run_key
    return None


def _fit(job: Job, size: Size, seen: ChosenPoints | None, *, workers: int) -> tuple[str, Work | None]:
    """Say what the numbers of a job are fitted to, and what that takes; with folds there are more fits."""
    table = job.prior
    often = 1
    if size.folds and table.fit_to == "observed" and not table.fit_times:
        many = table.in_time or len(job.observations.variables) > 1 or job.observations.in_depth
        often += fits_of_folds(size.observed, size.folds, many_numbers=many)
    if table.in_time:
        values, deviating = size.joined, False
        if seen is not None and (of_times := seen.seen) is not None:
            values = int(np.count_nonzero(of_times.points.present[:, seen.design.train]))
            deviating = of_times.points.noise_variance is not None
        work = often * work_in_time(values, size.observed, deviating=deviating, workers=workers)
        text = f"a kernel of space and time, and noise, are fitted first, to {values:,} observations"
        return f"{text}, about {work}", work
    labelled = bool(table.bias_by) or len(job.observations.variables) > 1 or job.observations.in_depth
    text = "the parameters of [prior] are fitted first, to "
    sites, listed = None, table.fit_times
    if isinstance(listed, tuple):
        text += fitted_to(table.fit_to, observed=size.observed, field=None) + at_fit_times(len(listed))
    elif seen is None:
        text += fitted_to(table.fit_to, observed=size.observed, field=None)
    else:
        decide = seen.points if table.fit_to == "field" else seen.points.only(seen.design.train)
        sites = sites_of_fit(decide)
        text += fitted_to_sites(table, decide, sites)
    if sites is None and table.fit_to == "observed":
        sites = Sites(np.arange(size.observed), np.arange(1), method_of(size.observed))
    if table.is_previous and table.time_lengthscale_hours is None:
        text += "; then the lengthscale in time, by the modes of the grid, which serve the day too"
    if sites is None:
        return text, None
    noisy = seen is not None and seen.points.noise_variance is not None
    if labelled:
        names = job.observations.variables
        labels = Labels(table.bias_by, names if len(names) > 1 else ())
        of_each = [sites.chosen.size // len(names)] * len(names)
        if seen is not None and seen.variables:
            own = seen.points.beside[VARIABLE][sites.chosen].astype(np.intp)
            of_each = np.bincount(own, minlength=len(names)).tolist()
        searches, work = work_of_searches(
            sites,
            table.kernel,
            labels,
            of_each,
            deviating=noisy,
            in_depth=job.observations.in_depth,
            workers=workers,
        )
        text += f", in {searches} searches"
    else:
        if size.hidden:  # fits follow draws, and draws fits, after a short one to the other values
            often *= ROUNDS
            sites = replace(sites, times=np.arange(FIT_DRAWS * sites.times.size))
        work = sites.work(table.kernel, deviating=noisy, workers=workers)
    return f"{text}: {f'{often} fits of ' if often > 1 else ''}about {work}", often * work


def _with_draws(job: Job, size: Size, seen: ChosenPoints | None) -> Size:
    """Count values that are censored, each field of which is drawn many times, where they were read."""
    if seen is None or size.joined:
        return size
    train, limits = seen.design.train, seen.points.limits
    values = seen.points.values[:, train]
    hidden = np.zeros(values.shape, dtype=bool) if limits is None else limits[:, train]
    if job.prior.transforms and np.nanmin(values) == 0.0:
        hidden = hidden | (values == 0.0)
    count = int(np.count_nonzero(hidden))
    return replace(size, hidden=count, draws=DRAWS) if count else size


def _of_values(
    job: Job, size: Size, seen: ChosenPoints | None, solver: Solver, *, workers: int
) -> tuple[tuple[str, Work], ...]:
    """Say what is done for values that are not normal, or may be wrong, and what that takes, about."""
    prior, found = job.prior, []
    noisy = seen is not None and seen.points.noise_variance is not None
    if job.observations.quality == "flag":
        work = work_of_check(
            size.observed + size.tested * (not size.folds),
            fields=size.times,
            kernel=prior.kernel,
            parts=prior.parts,
            deviating=noisy,
            fitted=prior.numbers is None,
            workers=workers,
        )
        found.append(("values are checked first", work))
    compared = () if size.hidden else _compared(job, seen)
    if compared:
        fits, work = work_of_transforms(
            compared,
            places=size.observed,
            fields=size.times,
            parts=prior.parts,
            deviating=noisy,
            workers=workers,
        )
        found.append((f"the transform is found by {fits} fits", work))
    if size.hidden:
        each = -(-size.hidden // size.times)
        drawn, draws = False, size.solves * work_of_draws(size.observed, each, fields=size.times)
        if prior.numbers is None:
            draws += ROUNDS * work_of_draws(size.observed, each, fields=size.times, draws=FIT_DRAWS)
            few = size.observed <= MOST_FLAT  # at most: beyond some it depends on what the fit finds
            drawn = prior.hyperparameters == "integrate" or (prior.hyperparameters == "auto" and few)
            if drawn:
                once = work_of_numbers(
                    size.observed, each, size.predicted, fields=size.times, kernel=prior.kernel
                )
                draws += size.solves * once
        mixtures = work_of_mixtures(size.predicted, fields=size.times, merged=not drawn)
        found.append((f"{counted(size.hidden, 'censored value')} are drawn {DRAWS} times", draws + mixtures))
    if prior.outliers == "robust" and prior.numbers is None:
        sites = Sites(np.arange(size.observed), np.arange(1), method_of(size.observed))
        work = ROUNDS_OF_WEIGHTS * sites.work(prior.kernel, deviating=True, workers=workers)
        text = f"if values look wrong, {ROUNDS_OF_WEIGHTS} fits that give them less weight"
        if isinstance(solver, Rings) and job.solver.build() is None:
            text += f", and a solve by {solver_name(chosen_solver(size.observed))} instead of rings"
        found.append((text, work))
    return tuple(found)


def _compared(job: Job, seen: ChosenPoints | None) -> tuple[str, ...]:
    """Name the transforms whose likelihoods are worked out by fits of their own."""
    asked = job.prior.transform
    if asked not in ("box-cox", "asinh", "auto"):
        return ()
    return compared_by_fits(asked, 1.0 if seen is None else float(np.nanmin(seen.points.values)))


def _demands(
    job: Job,
    size: Size,
    solver: Solver,
    seen: ChosenPoints | None,
    workforce: Workforce,
    *,
    of_fold: bool = False,
) -> list[Demand]:
    """Give the demand of each pattern of gaps, as far as they are known."""
    of_all = Demand(
        n=size.joined or size.observed,
        q=size.targets,
        fields=size.fields if solver.many_fields and not size.joined else 1,
        full_covariance=False,
        workers=workforce.workers,
        shares_memory=workforce.shares_memory,
        memory_limit_bytes=memory_limit(job.cluster, workforce) or workforce.memory_bytes,
        kernel_parts=job.prior.parts,
        groups=size.biases,
        cell_nodes=size.cell_nodes,
        bounds=bounds_are_cheap(solver, observed=size.joined or size.observed, targets=size.targets),
    )
    if seen is None or size.joined:
        return [of_all]
    design, places = seen.design, places_on_grid(solver, seen.points, seen.design)
    if isinstance(solver, Neighbours) and design.region_means is not None:
        # how wide a region is among its neighbours, one lengthscale for all coordinates does not change
        scale = np.ones(seen.X.shape[1])
        of_all = replace(of_all, wide=solver.touched(seen.X, design.region_means, scale=scale))
    present = np.repeat(seen.points.present[:, design.train], size.draws, axis=0)
    if of_fold and places is not None:  # elsewhere that with all points stands for it
        present &= np.isin(design.train, design.without_largest_fold)
    targets = None if places is None or of_fold else seen.predicted.points.wanted
    return demands_of_patterns(of_all, present, solver, places, targets)


def plan_fold(
    job: Job, size: Size, solver: Solver, seen: ChosenPoints | None, workforce: Workforce
) -> Plan | None:
    """Plan one fold of a cross-validation, where its solves are not all alike."""
    if not 0 < size.folds < size.solves:
        return None
    demands = [
        replace(each, q=size.together * size.tested_at_once, cell_nodes=0, wide=())
        for each in _demands(job, size, solver, seen, workforce, of_fold=True)
    ]
    return plan_of_patterns(solver, demands, coefficients=job.prior.coefficients)


def work_of_errors(
    job: Job, size: Size, seen: ChosenPoints | None, workforce: Workforce, *, solver: Solver | None = None
) -> Work | None:
    """Count what the errors take that correct error bars, where these are not in the solve."""
    if size.errors not in ("leave-one-out", "drawn", "blocks"):
        return None
    if solver is None:
        assert seen is not None
        solver = seen.solver
    demands, coefficients = _demands(job, size, solver, seen, workforce), job.prior.coefficients
    if size.errors == "leave-one-out":
        return work_of_left_out(demands, coefficients=coefficients)
    folds = FOLDS if size.errors == "blocks" else 1
    targets = -(-max(size.with_errors, size.joined) // folds)
    demands = [replace(each, q=targets, cell_nodes=0, wide=()) for each in demands]
    plan = plan_of_patterns(solver, demands, coefficients=coefficients)
    return folds * (size.fields // plan.fields) * plan.work


def _plan_solve(
    job: Job, size: Size, solver: Solver, seen: ChosenPoints | None, workforce: Workforce
) -> JobPlan:
    """Plan the solve of a job that is not going to be done now; `cagp_dist.condition` plans one that is."""
    of_folds = solver if seen is None else seen.fold_solver
    only_folds = size.folds == size.solves
    solver = of_folds if only_folds else solver
    demands = _demands(job, size, solver, seen, workforce, of_fold=only_folds)
    if job.prior.is_previous and seen is not None and (grid := demands[0].grid) is not None:
        held_out = size.tested + size.calibrated
        views, crossed = seen_elsewhere(seen, held_out)
        day = plan_filtered_grid(demands[0], grid, held_out=held_out, views=views, crossed=crossed)
        return JobPlan(size=size, plan=day)  # leave-one-out errors come with the day
    planned = partial(plan_of_patterns, solver, coefficients=job.prior.coefficients)
    fold = plan_fold(job, size, of_folds, seen, workforce)
    sampled = None
    if size.samples:
        sampled = plan_of_samples(
            solver,
            demands,
            targets=size.mapped,
            cell_nodes=size.mapped * size.nodes_per_cell,
            samples=size.samples,
            times=size.times,
        )
    of_errors = work_of_errors(job, size, seen, workforce, solver=solver)
    found = JobPlan(size=size, plan=planned(demands), fold=fold, sampled=sampled, of_errors=of_errors)
    if job.recalibration.method != SHARP:
        return found
    sharp = plan_sharp(
        job.recalibration,
        demands,
        planned=planned,
        calibrated=size.calibrated,
        targets=size.tested + size.places + (0 if size.nodes_per_cell else size.columns_of_map),
        times=found.solves,
        sampled=None if size.nodes_per_cell else found.sampled,
    )
    return replace(found, sharp=sharp)


def _unseen_solver(table: AnySolverTable, observed: int) -> Solver:
    """Give the solver of a job whose points are drawn from a field that was not read yet: no whole grid."""
    named = table.build()
    return chosen_solver(observed) if named is None else named


def kept_bytes(table: OutputTable, solver: Solver, found: JobPlan) -> int:
    """Count the bytes of the weights that a job keeps, about."""
    return found.size.solves * bytes_of_weights(solver, found.plan) if table.keep_weights else 0


def _size(job: Job, seen: ChosenPoints | None) -> Size:
    if seen is not None:
        return seen.size
    wanted = wanted_places(job.design.targets)
    design, table = job.design, job.observations
    times = table.listed_times
    if (
        times is None
        or not isinstance(design.train, RandomPoints)
        or not isinstance(design.test, RandomPoints | BlockPoints)
    ):
        raise ConfigurationError(
            f"the plan depends on the field, and {without_secrets(table.source)} was not read yet. Run `cagp "
            "ingest` with the same job first, or give observations.times and draw train and test by count.",
            key="not-read-yet",
        )
    several = len(table.variables)
    solver, mapped, samples = _unseen_solver(job.solver, several * design.train.count), [0, 0], 0
    errors: tuple[Errors, int] = "none", 0
    if job.recalibration.method != "none" and design.calibration is not None:
        errors = "points", design.calibration.count
    elif job.recalibration.method != "none":
        near = not job.prior.in_time and not isinstance(design.test, BlockPoints)
        errors = usual_errors(design.train.count, alone=isinstance(solver, Cholesky), near=near)
    if design.map is not None:
        area = design.map.area or table.area or _GLOBE
        somewhere = design.map.model_copy(update={"area": area})
        found = cells_of(somewhere)
        deep = len(design.map.depths or (0.0,))
        mapped = [0 if cells is None else deep * cells.size for cells in found]
        samples = samples_of_map(design.map, found[0], solver)
    return Size(
        observed=several * design.train.count,
        tested=several * design.test.count,
        mapped=several * mapped[0],
        times=len(times),
        mean_mapped=several * mapped[1],
        places=0 if wanted is None else several * wanted.north.size,
        nodes_per_cell=0 if design.map is None or design.map.kind == "grid" else MOST_NODES**2,
        samples=samples,
        regions=several * len(design.regions or ()),
        region_nodes=0 if design.region_means is None else several * len(design.region_means.nodes),
        variables=several,
        errors=errors[0],
        with_errors=errors[1],
    )
