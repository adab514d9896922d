"""Fields with different gaps: one solve for each pattern of gaps, put together in the order of the fields."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.errors import BudgetError
from cagp_dist.posterior.certificate import Certificate, JointCertificate
from cagp_dist.remedies import Remedy
from cagp_dist.solvers.interface import Solver
from cagp_dist.solvers.status import Status
from cagp_dist.text import bytes_text

# Iteration, mean (q, T) and variance (q,), or (q, T) where it differs between fields; the prior first
Steps = list[tuple[int, Array, Array]]


def fields_by_pattern(present: Mask) -> list[Indices]:
    """Group fields by where they were observed; ``present`` (T, ...)."""
    patterns: dict[bytes, list[int]] = {}
    for field, mask in enumerate(present):
        patterns.setdefault(np.packbits(mask).tobytes(), []).append(field)
    return [np.array(fields) for fields in patterns.values()]


# Part of the points of the fullest field that several fields must share, to stand for all of it
LEAST_SHARED = 0.5


def shared_places(present: Mask) -> tuple[Mask, Indices]:
    """Choose fields (T,) and points (n,) at which all of these were observed, from ``present`` (T, n).

    Fields are added from the fullest one on, those with the same gaps together; chosen are the most values
    with at least half of the points of the fullest field.
    """
    groups = fields_by_pattern(present)
    groups.sort(key=lambda group: (int(present[group[0]].sum()), group.size), reverse=True)
    shared = np.asarray(present[groups[0][0]])
    fullest, chosen, best = int(shared.sum()), (shared, groups[0]), 0
    fields: Indices = np.arange(0)
    for group in groups:
        shared, fields = shared & present[group[0]], np.concatenate([fields, group])
        if shared.sum() < LEAST_SHARED * fullest:
            break
        if (values := int(shared.sum()) * fields.size) > best:
            chosen, best = (shared, np.sort(fields)), values
    return chosen


@dataclass(frozen=True, eq=False)
class SolvedPattern:
    """The end of the solve of one pattern."""

    fields: Indices  # (t,): which fields were solved for
    steps: Steps  # iteration, mean (q, t) and variance (q,)
    covariance: Array | None  # (q, q) or None: posterior covariance, if it was asked for
    status: Status  # how the solve ended
    relative_residual: float | None  # ``|b - G v| / |b|`` where the solver follows it
    certificate: Certificate | JointCertificate  # where bounds of the computational variance come from
    iterations: Indices  # (q,), or (q, T) where they differ between fields: that each target has had
    dropped_actions: int = 0  # actions that were skipped, if the solver has actions


def in_order(columns: Sequence[Array], groups: Sequence[Indices]) -> Array:
    """Columns (q, t) of each group of fields as columns (q, T) in the order of the fields."""
    return columns[0] if len(groups) == 1 else np.concatenate(columns, axis=1)[:, _order(groups)]


def _order(groups: Sequence[Indices]) -> Indices:
    return np.argsort(np.concatenate(groups))


def joined_patterns(parts: Sequence[SolvedPattern]) -> SolvedPattern:
    """Put patterns together; with more than one of them variances are (q, T), covariances (T, q, q)."""
    if len(parts) == 1:
        return parts[0]
    groups = [part.fields for part in parts]
    steps = []
    for position in range(max(len(part.steps) for part in parts)):
        reached = [part.steps[min(position, len(part.steps) - 1)] for part in parts]
        means = [mean for _, mean, _ in reached]
        variances = [np.broadcast_to(variance[:, None], mean.shape) for _, mean, variance in reached]
        iteration = max(iteration for iteration, _, _ in reached)
        steps.append((iteration, in_order(means, groups), in_order(variances, groups)))
    covariances = [
        np.broadcast_to(part.covariance, (len(part.fields), *part.covariance.shape))
        for part in parts
        if part.covariance is not None
    ]
    residuals = [part.relative_residual for part in parts if part.relative_residual is not None]
    return SolvedPattern(
        np.sort(np.concatenate(groups)),
        steps,
        np.concatenate(covariances)[_order(groups)] if covariances else None,
        Status.worst(part.status for part in parts),
        max(residuals, default=None),
        JointCertificate(tuple(part.certificate for part in parts), tuple(groups)),
        np.concatenate(
            [np.repeat(part.iterations[:, None], len(part.fields), axis=1) for part in parts], axis=1
        )[:, _order(groups)],
        sum(part.dropped_actions for part in parts),
    )


def plan_together(solver: Solver, demands: Sequence[Demand]) -> tuple[list[Demand], list[Plan], Plan]:
    """Plan the solve of each pattern in the memory that the results of all leave; and all of them as one."""
    if len(demands) == 1:
        plan = replace(solver.plan(demands[0]), full_covariance=demands[0].full_covariance)
        return list(demands), [plan], plan
    somehow = [solver.plan(replace(demand, memory_limit_bytes=sys.maxsize)) for demand in demands]
    kept = joint_bytes(demands, iterations=max(plan.iterations for plan in somehow))
    left = less_memory(demands, kept)
    try:
        plans = [replace(solver.plan(demand), full_covariance=demand.full_covariance) for demand in left]
    except BudgetError as error:
        raise BudgetError(
            f"{error.text} Results of {len(demands)} solves, one for each pattern of gaps, take another "
            f"{bytes_text(kept)}.",
            remedies=(*error.remedies, Remedy.SAME_POINTS),
            key=error.key,
        ) from error
    return left, plans, joint_plan(plans, joint_bytes=kept)


def joint_bytes(demands: Sequence[Demand], *, iterations: int) -> int:
    """Bytes of what all solves have found, and of what is made of it; none where there is one solve."""
    patterns, q = len(demands), demands[0].q
    if patterns == 1:
        return 0
    fields = sum(demand.fields for demand in demands)
    steps = q * (patterns + 5 * fields) * (iterations + 1)
    covariances = q * q * (patterns + 2 * fields) if demands[0].full_covariance else 0
    # where each pattern was observed, and with what noise: what the computational variance follows from
    points = sum(demand.n * (demand.p + 1) for demand in demands)
    return DOUBLE * (steps + covariances + points)


def less_memory(demands: Sequence[Demand], kept: int) -> list[Demand]:
    """Demands with so many bytes less to use."""
    return [
        replace(demand, memory_limit_bytes=max(demand.memory_limit_bytes - kept, 0)) for demand in demands
    ]


def joint_plan(plans: Sequence[Plan], *, joint_bytes: int) -> Plan:
    """Plan of solves that follow each other: blocks and bytes of the largest, the sum of all work."""
    if len(plans) == 1:
        return plans[0]
    largest = max(plans, key=lambda plan: plan.peak_bytes)
    return replace(
        largest,
        n=max(plan.n for plan in plans),
        fields=sum(plan.fields for plan in plans),
        tasks=sum(plan.tasks for plan in plans),
        gram_entries=sum(plan.gram_entries for plan in plans),
        flops=sum(plan.flops for plan in plans),
        peak_bytes=largest.peak_bytes + joint_bytes,
        solves=len(plans),
    )


def joint_fraction(plans: Sequence[Plan], number: int, fraction: float) -> float:
    """Part of all work that is done when ``fraction`` of solve ``number`` is: by flops."""
    work = [plan.work.flops for plan in plans]
    return (sum(work[:number]) + fraction * work[number]) / sum(work) if sum(work) else fraction
