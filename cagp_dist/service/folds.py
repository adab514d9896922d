"""Cross-validation of a job: one solve for each fold, and one with all points for what else is asked."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Plan
from cagp_dist.geometry import unit_sphere
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.posterior.left_out import each_left_out
from cagp_dist.prior import Prior
from cagp_dist.runtime import Executor
from cagp_dist.samples import sample_posterior
from cagp_dist.service.job_plan import size_of_task
from cagp_dist.service.previous import DRAWS, OWN
from cagp_dist.service.solve import LeftOut, Solution, SolveStep, solve
from cagp_dist.service.task import PreparedJob
from cagp_dist.solvers import Neighbours, Status
from cagp_dist.solvers.engine.kept_weights import WeightStore
from cagp_dist.solvers.engine.solve_checkpoints import SolveCheckpoints


def solve_task(
    task: PreparedJob,
    prior: Prior,
    *,
    executor: Executor,
    memory_limit_bytes: int | None = None,
    on_plan: Callable[[Plan], None],
    progress: Callable[[float, str], None],
    X_mean: Array | LinearFunctionals | None = None,
    X_sampled: Array | LinearFunctionals | None = None,
    fold_priors: Sequence[Prior] = (),
    checkpoints: SolveCheckpoints | None = None,
    weights: WeightStore | None = None,
) -> Solution:
    """Predict test points, map cells and places of a task.

    With folds, each test point is predicted from the points of the other folds, with a prior mean fitted to
    them; kernel and noise are those of ``fold_priors``, or of ``prior`` in all folds. Map and places are
    predicted from all points.
    """
    parts = list(task.folds())
    columns = [np.searchsorted(task.design.test, part.design.test) for part in parts]
    names = [f"fold {number + 1} of {len(parts)}" for number in range(len(parts))]
    total = len(task.new_inputs)
    if not parts:
        parts, columns, names = [task], [np.arange(total)], [""]
    elif total > task.design.test.size or X_sampled is not None:
        parts.append(task.without_test())
        columns.append(np.arange(task.design.test.size, total))
        names.append("all points")
    found: dict[int, Solution] = {}
    # all points first: what does not fit is refused before any fold is solved
    for done, number in enumerate([len(parts) - 1, *range(len(parts) - 1)]):

        def report(fraction: float, text: str, number: int = number, done: int = done) -> None:
            which = names[number]
            progress((done + fraction) / len(parts), ", ".join(filter(None, (which, text))))

        part, is_last = parts[number], number == len(parts) - 1
        found[number] = solve_part(
            part,
            fold_priors[number] if number < len(fold_priors) else prior,
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
            on_plan=on_plan if done == 0 else _unseen,
            progress=report,
            X_mean=X_mean if is_last else None,
            mean_like=part.mean_like if is_last else None,
            X_sampled=X_sampled if is_last else None,
            samples=task.design.samples,
            checkpoints=None if checkpoints is None else checkpoints.within(f"solve-{number}"),
            weights=weights,
        )
    solutions = [found[number] for number in range(len(parts))]
    together = solutions[0] if len(parts) == 1 else _together(task, solutions, columns, total)
    if task.recalibration.errors == "leave-one-out":
        progress(1.0, "each observation from all others")
        left_out = _left_out(task, prior, executor=executor, memory_limit_bytes=memory_limit_bytes)
        together = replace(together, left_out=left_out)
    if task.previous is not None:
        draws = _error_draws(
            parts[-1],
            prior,
            solutions[-1],
            executor=executor,
            memory_limit_bytes=memory_limit_bytes,
            progress=progress,
        )
        together = replace(together, error_draws=draws)
    if not fold_priors or task.design.folds is None:
        return together
    nuggets = np.array([fold_prior.noise_number for fold_prior in fold_priors])
    return replace(together, test_nugget=nuggets[task.design.folds])


def solve_part(
    task: PreparedJob,
    prior: Prior,
    *,
    executor: Executor,
    memory_limit_bytes: int | None = None,
    on_plan: Callable[[Plan], None],
    progress: Callable[[float, str], None],
    X_mean: Array | LinearFunctionals | None = None,
    mean_like: Indices | None = None,
    X_sampled: Array | LinearFunctionals | None = None,
    samples: int = 0,
    checkpoints: SolveCheckpoints | None = None,
    weights: WeightStore | None = None,
) -> Solution:
    """Solve a task without folds; errors of the run before go through the same solve, and are counted."""
    previous, columns = task.previous, task.targets
    if previous is not None:
        columns = previous.columns(task.inputs, columns, prior.kernel)
    found = solve(
        task.conditioned(prior),
        *task.observations_of(columns),
        task.new_inputs,
        solver=task.solver,
        executor=executor,
        memory_limit_bytes=memory_limit_bytes,
        on_plan=on_plan,
        progress=progress,
        X_mean=X_mean,
        mean_like=mean_like,
        X_sampled=X_sampled,
        samples=samples,
        checkpoints=checkpoints,
        weights=weights,
    )
    if previous is None:
        return found
    return previous.counted(found, task.new_inputs, X_sampled, prior.kernel, cells=task.columns.cells)


def _error_draws(
    task: PreparedJob,
    prior: Prior,
    solution: Solution,
    *,
    executor: Executor,
    memory_limit_bytes: int | None,
    progress: Callable[[float, str], None],
) -> Array:
    """Draw the error of the map, (N, r): what this solve left unknown, and what is left of earlier errors."""
    assert task.previous is not None
    assert task.design.cells is not None
    left = solution.error_draws
    count = DRAWS if left is None else len(left)
    # the map's matrix has to be that of the solve, which for neighbours depends on all targets together
    together = isinstance(task.solver, Neighbours) and not task.design.samples
    cells = unit_sphere(*task.design.cells.points())
    own = sample_posterior(
        task.conditioned(prior),
        *task.observations_of(np.where(np.isnan(task.targets), np.nan, 0.0)),
        task.new_inputs if together else cells,
        solver=task.solver,
        samples=count,
        generator=task.previous.generator(OWN),
        progress=lambda state: progress(state.fraction, f"{count} draws of the error of the map"),
        executor=executor,
        memory_limit_bytes=memory_limit_bytes,
    )[:, task.columns.cells if together else slice(None), 0]
    return own if left is None else own + left


def _left_out(
    task: PreparedJob, prior: Prior, *, executor: Executor, memory_limit_bytes: int | None
) -> LeftOut:
    """Predict each observation of a task from all the others."""
    previous, columns = task.previous, task.targets
    if previous is not None:
        columns = previous.columns(task.inputs, columns, prior.kernel)
    mean, variance = each_left_out(
        task.conditioned(prior),
        *task.observations_of(columns),
        executor=executor,
        memory_limit_bytes=memory_limit_bytes,
    )
    if task.places is not None:
        mean, variance = (fields.reshape(len(fields), -1)[:, task.places[1]] for fields in (mean, variance))
    found = LeftOut(mean, np.sqrt(variance))
    return found if previous is None else previous.counted_left_out(found, columns, task.inputs)


def _unseen(plan: Plan) -> None:
    """Leave a plan that is much like the first one unsaid."""


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
        plan=(
            *solutions[0].plan,
            size_of_task(task).solves_line(),
        ),
        fine_mean=solutions[-1].fine_mean,
        sampled=solutions[-1].sampled,
        computational_std=_placed(known, columns, total) if len(known) == len(unfinished) else None,
    )


def _placed(parts: list[Array], columns: list[Indices], total: int) -> Array:
    values = np.empty((len(parts[0]), total))
    for part, at in zip(parts, columns, strict=True):
        values[:, at] = part
    return values
