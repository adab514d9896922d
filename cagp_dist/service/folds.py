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
from cagp_dist.pipeline import Status
from cagp_dist.pipeline.field_solves import Execution, LeftOut, Solution, SolveStep, solve, solve_left_out
from cagp_dist.prior import Prior
from cagp_dist.service.filtered_jobs import solve_filtered
from cagp_dist.service.job_fit import fit_prior
from cagp_dist.service.job_recalibration import JobSolution
from cagp_dist.service.jobs_in_time import solve_all_times
from cagp_dist.service.point_roles import Design, places_on_grid
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
        together = replace(together, left_out=_left_out(task, prior, execution))
    if not fold_priors or task.design.folds is None:
        return JobSolution(**vars(together))
    nuggets = np.array([fold_prior.noise_number for fold_prior in fold_priors])
    return JobSolution(**vars(replace(together, test_nugget=nuggets[task.design.folds])))


def solve_part(
    task: PreparedJob, prior: Prior, execution: Execution, days: RingFilter | None = None
) -> Solution:
    """Solve a job without folds."""
    if task.seen is not None:
        return solve_all_times(task, prior, execution)
    if task.carried is not None:
        return solve_filtered(task, task.carried, prior, execution, days)
    return solve(
        *task.problem(prior, task.targets),
        task.new_inputs,
        solver=task.solver,
        execution=execution,
        X_mean=task.mean_inputs,
        mean_like=task.mean_like,
        X_sampled=task.sampled_inputs,
        samples=task.design.samples,
    )


def _left_out(task: PreparedJob, prior: Prior, execution: Execution) -> LeftOut:
    """Predict each observation of a job from all the others."""
    return solve_left_out(*task.problem(prior, task.targets), task.places, execution)


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
