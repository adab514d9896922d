"""What `cagp_dist.condition` does: plan the solve of each pattern of gaps, and solve one after the other."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from cagp_dist.arrays import Array
from cagp_dist.budget import Demand, Plan
from cagp_dist.gram.exact_variance import beside_posterior
from cagp_dist.gram.functional_gram import FunctionalGram
from cagp_dist.gram.targets import Targets
from cagp_dist.posterior.certificate import Certificate
from cagp_dist.posterior.coefficients import joined_coefficients, plan_of_weights, with_weights
from cagp_dist.posterior.kept_solves import (
    found_weights,
    kept_coefficients,
    made_weights,
    plan_of_products,
)
from cagp_dist.posterior.patterns import SolvedPattern, joined_patterns, joint_fraction, plan_together
from cagp_dist.posterior.prior_mean import remove_mean
from cagp_dist.posterior.problem import Pattern, Problems, demand_of
from cagp_dist.posterior.result import Posterior, Progress, on_targets, shaped_as_targets
from cagp_dist.posterior.trace import Step, Trace
from cagp_dist.prior import Prior
from cagp_dist.runtime import Executor
from cagp_dist.runtime.memo import Memo, MemoReader
from cagp_dist.solvers import Solver, Stats, Status
from cagp_dist.solvers.engine.kept_weights import kept_states
from cagp_dist.solvers.engine.solve_keys import solve_key
from cagp_dist.solvers.interface import Problem, State, settle

Fitted = tuple[Pattern, Array, Array]  # A pattern, and values and covariance of the coefficients of its mean


class PlannedPattern(NamedTuple):
    """The solve of one pattern of gaps."""

    part: Pattern  # fields with the same gaps
    demand: Demand
    plan: Plan
    estimate: Plan | None  # for the coefficients of its mean
    kept: MemoReader | None  # its weights, where they are there


@dataclass(frozen=True, eq=False)
class Conditioning:
    """Solves that were planned."""

    prior: Prior
    problems: Problems  # of the patterns
    solver: Solver  # with the settings that it chose for itself
    solves: Sequence[PlannedPattern]
    plan: Plan  # of all of them
    weights: Memo | None  # where weights are kept
    lanczos_steps: int  # for bounds of the computational variance
    executor: Executor


def plan_conditioning(
    prior: Prior,
    parts: Sequence[Pattern],
    targets: Targets,
    *,
    solver: Solver,
    full_covariance: bool,
    computational_bounds: bool,
    lanczos_steps: int,
    weights: Memo | None,
    executor: Executor,
    memory_limit_bytes: int,
) -> Conditioning:
    """Plan the solves of all patterns of gaps, of which the largest has to fit."""
    k = len(prior.coefficient_names)
    problems = Problems(
        prior,
        targets,
        full_covariance=full_covariance,
        executor=executor,
        memory_limit_bytes=memory_limit_bytes,
    )
    solver = settle(solver, problems.of(parts[0]), executor=executor)
    sizes = [demand_of(problems.of(part), executor, memory_limit_bytes, solver=solver) for part in parts]
    demands, plans, plan = plan_together(
        solver,
        [
            replace(
                size,
                fields=size.fields + 2 * k,  # extra right-hand sides ride along
                bounds=computational_bounds or lanczos_steps > 0,
                lanczos_steps=lanczos_steps,
                keeps_weights=weights is not None,
            )
            for size in sizes
        ],
    )
    estimates = [plan_of_weights(solver, demand, coefficients=k) for demand in demands]
    plan = with_weights(plan, estimates, fields=len(parts[0].y))
    kept = [
        found_weights(weights, prior, problems.of(part), solver, own)
        for part, own in zip(parts, plans, strict=True)
    ]
    if len(known := [each for each in kept if each is not None]) == len(kept):
        plan = plan_of_products(plan, known)
    solves = [PlannedPattern(*own) for own in zip(parts, demands, plans, estimates, kept, strict=True)]
    return Conditioning(prior, problems, solver, solves, plan, weights, lanczos_steps, executor)


def solve_pattern(
    planned: Conditioning,
    number: int,
    *,
    started: float,
    checkpoints: Memo | None,
    progress: Callable[[Progress], None] | None,
) -> tuple[SolvedPattern, Fitted | None, bool]:
    """Solve one pattern: what was found, coefficients of its mean, whether all downdates are semidefinite."""
    prior, solver, executor = planned.prior, planned.solver, planned.executor
    part, demand, plan, estimate, kept = planned.solves[number]
    plans = [each.plan for each in planned.solves]
    problem = replace(planned.problems.of(part), lanczos_steps=planned.lanczos_steps)
    kept = kept or made_weights(
        planned.weights, prior, problem, solver, plan=plan, estimate=estimate, executor=executor
    )
    if progress is not None:
        problem = replace(problem, heard=partial(_heard, progress, plans, number, started))
    coefficients = None if kept is None else kept_coefficients(kept)
    mean = remove_mean(prior, problem, part, solver, plan=estimate, executor=executor, known=coefficients)
    problem, trace = mean.problem, Trace(problem, mean.at_targets, mean.before)
    if checkpoints is not None:
        problem = replace(problem, checkpoint=checkpoints.of(solve_key(problem, solver, plan)))
    status, residual, dropped, downdate_psd = Status.COMPLETED, None, 0, True
    if solver.iterations > 0 and problem.q > 0:
        states = (
            solver.states(problem, executor=executor, plan=plan)
            if kept is None
            else kept_states(kept, problem)
        )
        for state in mean.states(states):
            trace.add(state)
            status, residual, dropped = state.status, state.relative_residual, state.dropped
            downdate_psd &= state.downdate_psd
            if progress is not None:
                elapsed = time.perf_counter() - started
                progress(_progress(state, plans, number, trace, elapsed))
    variance, status = trace.steps()[-1][2], mean.status(trace.status(status))
    certificate = Certificate(
        variance,
        # of functionals that were observed the solve is the exact one, whatever rounding has left of it
        None if status is Status.EXACT or _of_functionals(problem) else problem.exact_variance,
        beside_posterior(demand, plan),
        mean.of_exact,
    )
    found = SolvedPattern(
        part.fields,
        trace.steps(),
        trace.covariance(),
        status,
        residual,
        certificate,
        trace.iterations,
        dropped,
    )
    return found, None if mean.fitted is None else (part, *mean.fitted), downdate_psd


def _of_functionals(problem: Problem) -> bool:
    return isinstance(problem.gram, FunctionalGram)


def posterior_of(
    planned: Conditioning,
    solves: Sequence[tuple[SolvedPattern, Fitted | None, bool]],
    targets: Targets,
    *,
    started: float,
) -> Posterior:
    """Put the patterns together, in the shape of the targets."""
    found = joined_patterns([solved for solved, _, _ in solves])
    fitted = [coefficients for _, coefficients, _ in solves if coefficients is not None]
    shaped = partial(shaped_as_targets, targets=targets, single=planned.solves[0].part.single)
    steps = tuple(Step(iteration, *shaped(mean, variance)) for iteration, mean, variance in found.steps)
    last = steps[-1]
    return Posterior(
        mean=last.mean,
        variance=last.variance,
        covariance=found.covariance,
        status=found.status,
        stats=Stats(
            iterations=last.iteration,
            seconds=time.perf_counter() - started,
            gram_entries=planned.plan.gram_entries,
            relative_residual=found.relative_residual,
            plan=planned.plan,
            executor=planned.executor.description,
            iterations_by_target=on_targets(found.iterations, targets),
            downdate_psd=all(psd for _, _, psd in solves),
            dropped_actions=found.dropped_actions,
        ),
        trace=steps,
        certificate=found.certificate,
        coefficients=joined_coefficients(planned.prior.coefficient_names, fitted),
    )


def _heard(
    progress: Callable[[Progress], None], plans: Sequence[Plan], number: int, started: float, part: float
) -> None:
    """Say how far a direct solve is within its one iteration."""
    fraction, seconds = joint_fraction(plans, number, part), time.perf_counter() - started
    progress(Progress(1, plans[number].iterations, fraction, seconds, None, number + 1, len(plans)))


def _progress(state: State, plans: Sequence[Plan], number: int, trace: Trace, seconds: float) -> Progress:
    """Say how far ``state`` of solve ``number`` is."""
    plan, batches = plans[number], [max(1, len(plan.batches)) for plan in plans]
    return Progress(
        state.iteration,
        plan.iterations,
        joint_fraction(plans, number, trace.fraction(state, plan.iterations)),
        seconds,
        state.relative_residual,
        sum(batches[:number]) + plan.batch_of(state.columns),
        sum(batches),
    )
