"""Cross-validation: numbers and a solve for each fold, and one with all points for what else is asked.

A fold that has a part in the numbers that predict it is not held out. Fits take long: each half of the folds
is predicted with numbers that were fitted to the other, whose blocks are as dense as all; of few places each
fold has a fit of its own.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.gram.ring_filter import RingFilter
from cagp_dist.mapping import Neighbours, Status
from cagp_dist.mapping.field_solves import Execution, LeftOut, Solution, SolveStep, solve, solve_left_out
from cagp_dist.prior import Prior
from cagp_dist.samples import sample_posterior
from cagp_dist.service.filtered_jobs import solve_filtered
from cagp_dist.service.job_fit import fit_prior
from cagp_dist.service.job_recalibration import JobSolution
from cagp_dist.service.jobs_in_time import solve_all_times
from cagp_dist.service.point_roles import Design, places_on_grid
from cagp_dist.service.previous import DRAWS, OWN
from cagp_dist.service.recalibration_plan import NOT_ASKED
from cagp_dist.service.task import PreparedJob, fit_mean

# Observed places up to which each fold has a fit of its own: a second for all of them, or two
FEW_PLACES = 400


def fit_folds(task: PreparedJob, execution: Execution) -> tuple[Prior, ...]:
    """Fit the numbers of the prior for each fold; whatever a search has reached is taken."""
    design = task.design
    if design.folds is None:
        return ()
    # the folds of a group are predicted with numbers fitted to all other groups
    # a fit of all times takes long
    count = design.count_folds if design.test.size <= FEW_PLACES and task.seen is None else 2
    groups = np.array_split(np.arange(design.count_folds), count)
    priors: list[Prior] = []
    for number, group in enumerate(groups):
        name = f"without part {number + 1} of {len(groups)} of the folds"
        left = design.test[np.isin(design.folds, group)]
        train = design.train[~np.isin(design.train, left)]
        mean = fit_mean(task.job.prior, task.family, task.points, train)
        rest = replace(task, design=replace(design, train=train), mean=mean)
        priors += [fit_prior(rest, execution.part(number, len(groups), name)).prior] * group.size
    return tuple(priors)


def parts_of(task: PreparedJob) -> list[PreparedJob]:
    """Give the jobs of a cross-validation, one for each fold."""
    return [part_of(task, fold) for fold in range(task.design.count_folds)]


def part_of(task: PreparedJob, fold: int) -> PreparedJob:
    """Give the job of a fold: its points are predicted from those of the others."""
    left = task.design.test[task.design.folds == fold]
    train = task.design.train[~np.isin(task.design.train, left)]
    design = Design(train=train, test=left, test_weights=np.ones(left.size), cells=None)
    return replace(
        task,
        design=design,
        mean=fit_mean(task.job.prior, task.family, task.points, train),
        prior=None,
        solver=task.fold_solver,
        places=places_on_grid(task.fold_solver, task.points, design),
        wanted=None,
        recalibration=NOT_ASKED,
    )


def without_test(task: PreparedJob) -> PreparedJob:
    """Leave what is predicted from all observed points: map cells and places."""
    design = replace(task.design, test=np.arange(0), test_weights=np.ones(0), folds=None)
    return replace(task, design=design, recalibration=NOT_ASKED)


def solve_task(
    task: PreparedJob,
    prior: Prior,
    execution: Execution,
    *,
    fold_priors: Sequence[Prior] = (),
    days: RingFilter | None = None,
) -> JobSolution:
    """Predict test points, cells and places of a job; with folds, each test point from the other folds."""
    folds, test, total = task.design.count_folds, task.design.test.size, len(task.new_inputs)
    names = [f"fold {fold + 1} of {folds}" for fold in range(folds)]
    columns = [np.flatnonzero(task.design.folds == fold) for fold in range(folds)]
    everywhere = without_test(task) if folds else task
    if not folds or total > test or task.sampled_inputs is not None:
        names.append("all points" if folds else "")
        columns.append(np.arange(test if folds else 0, total))
    found: dict[int, Solution] = {}
    # all points first: what does not fit is refused before any fold is solved
    for done, number in enumerate([len(names) - 1, *range(len(names) - 1)]):
        own = execution.within(f"solve-{number}").part(done, len(names), names[number])
        if done:  # a plan that is much like the first one is not said
            own = replace(own, on_plan=lambda plan: None)
        part = part_of(task, number) if number < folds else everywhere
        found[number] = solve_part(
            part, fold_priors[number] if number < len(fold_priors) else prior, own, days
        )
    solutions = [found[number] for number in range(len(names))]
    together = solutions[0] if len(names) == 1 else _together(task, solutions, columns, total)
    if task.recalibration.errors == "leave-one-out" and task.carried is None:
        execution.progress(1.0, "each observation from all others")
        together = replace(together, left_out=_left_out(task, prior, execution))
    if task.previous is not None:
        draws = _error_draws(everywhere, prior, solutions[-1], execution)
        together = replace(together, error_draws=draws)
    if not fold_priors or task.design.folds is None:
        return JobSolution(**vars(together))
    nuggets = np.array([fold_prior.noise_number for fold_prior in fold_priors])
    return JobSolution(**vars(replace(together, test_nugget=nuggets[task.design.folds])))


def solve_part(
    task: PreparedJob, prior: Prior, execution: Execution, days: RingFilter | None = None
) -> Solution:
    """Solve a job without folds; errors of the previous run go through the same solve, and are counted."""
    if task.seen is not None:
        return solve_all_times(task, prior, execution)
    if task.carried is not None:
        return solve_filtered(task, task.carried, prior, execution, days)
    found = solve(
        *task.problem(prior, _columns(task, prior)),
        task.new_inputs,
        solver=task.solver,
        execution=execution,
        X_mean=task.mean_inputs,
        mean_like=task.mean_like,
        X_sampled=task.sampled_inputs,
        samples=task.design.samples,
    )
    if task.previous is None:
        return found
    return task.previous.counted(
        found, task.new_inputs, task.sampled_inputs, prior.kernel, cells=task.columns.cells
    )


def _columns(task: PreparedJob, prior: Prior) -> Array:
    """Columns of data (n, T) of a solve: what was observed, with errors of the previous run."""
    if task.previous is None:
        return task.targets
    return task.previous.columns(task.inputs, task.targets, prior.kernel)


def _error_draws(task: PreparedJob, prior: Prior, solution: Solution, execution: Execution) -> Array:
    """Draw the error of the map, (N, r): what this solve left unknown, and what is left of earlier errors."""
    assert task.previous is not None
    assert task.design.cells is not None
    left = solution.error_draws
    count = DRAWS if left is None else len(left)
    # the map's matrix has to be that of the solve, which for neighbours depends on all targets together
    together = isinstance(task.solver, Neighbours) and not task.design.samples
    own = sample_posterior(
        *task.problem(prior, np.where(np.isnan(task.targets), np.nan, 0.0)),
        task.new_inputs if together else task.design.cells.X,
        solver=task.solver,
        samples=count,
        generator=task.previous.generator(OWN),
        progress=lambda state: execution.progress(state.fraction, f"{count} draws of the error of the map"),
        executor=execution.executor,
        memory_limit_bytes=execution.memory_limit_bytes,
    )[:, task.columns.cells if together else slice(None), 0]
    return own if left is None else own + left


def _left_out(task: PreparedJob, prior: Prior, execution: Execution) -> LeftOut:
    """Predict each observation of a job from all the others."""
    columns = _columns(task, prior)
    found = solve_left_out(*task.problem(prior, columns), task.places, execution)
    return found if task.previous is None else task.previous.counted_left_out(found, columns, task.inputs)


def _together(task: PreparedJob, solutions: list[Solution], columns: list[Indices], total: int) -> Solution:
    """Put the columns of several solves in their places; one that was done early keeps its last step."""
    steps = []
    for iteration in range(max(len(solution.steps) for solution in solutions)):
        states = [solution.steps[min(iteration, len(solution.steps) - 1)] for solution in solutions]
        steps.append(
            SolveStep(
                iteration=max(state.iteration for state in states),
                mean=_placed([state.mean for state in states], columns, total),
                std=_placed([state.std for state in states], columns, total),
                seconds=sum(state.seconds for state in states),
            )
        )
    unfinished = [solution.computational_std for solution in solutions]
    known = [values for values in unfinished if values is not None]
    return Solution(
        steps=tuple(steps),
        status=Status.worst(solution.status for solution in solutions),
        plan=(*solutions[0].plan, task.size.solves_line()),
        fine_mean=solutions[-1].fine_mean,
        sampled=solutions[-1].sampled,
        computational_std=_placed(known, columns, total) if len(known) == len(unfinished) else None,
    )


def _placed(parts: list[Array], columns: list[Indices], total: int) -> Array:
    """Put values (T, q) of several solves into their columns."""
    values = np.empty((len(parts[0]), total))
    for part, at in zip(parts, columns, strict=True):
        values[:, at] = part
    return values
