"""The adjoint engine: mean and variance at the test points from sweeps on ``V'`` (math 1.2).

For the stationary Gauss-Seidel schemes one adjoint pass yields the posterior after every sweep::

    Y = V'                            n x q
    repeat:  Z = Mt' Y;  downdate += Z' W Z;  mean += Z' b;  Y -= G Z

so that ``mean = V A b`` and ``downdate = V D(A) V'`` with ``D(A) = A + A' - A G A'`` (T2, T3), which
makes the error of the mean exactly ``N(0, K'' - V D V')`` under the model (theorem 1.1).
"""

from collections.abc import Iterator, Sequence

import numpy as np

from cagp_dist.budget import Plan
from cagp_dist.gram.base import Array
from cagp_dist.runtime import Executor, Handle
from cagp_dist.solvers.base import Problem, State
from cagp_dist.solvers.block_tasks import Solved
from cagp_dist.solvers.status import Status
from cagp_dist.solvers.sweep import SweepSystem
from cagp_dist.tiling import Range


def adjoint_states(
    problem: Problem, *, plan: Plan, whole_blocks: bool, executor: Executor
) -> Iterator[State]:
    """Yield the belief after every sweep, batch of test points by batch.

    Parameters
    ----------
    problem : Problem
        n points, T fields, q test points.
    plan : Plan
        From `cagp_dist.budget.plan_sweeps`.
    whole_blocks : bool
        Block Gauss-Seidel, else point Gauss-Seidel.
    executor : Executor
        Where tasks run.

    Yields
    ------
    State
        ``plan.iterations`` states per batch. A sweep costs n^2 kernel evaluations per column group
        and 2 n^2 q flops; memory as in ``plan.peak_bytes``.
    """
    system = SweepSystem(
        problem.gram, problem.residuals, plan=plan, whole_blocks=whole_blocks, executor=executor
    )
    for batch in plan.batches:  # what a batch held is gone before the next one begins
        yield from _batch_states(system, problem, batch, iterations=plan.iterations, executor=executor)


def _batch_states(
    system: SweepSystem, problem: Problem, batch: Sequence[Range], *, iterations: int, executor: Executor
) -> Iterator[State]:
    status = Status.EXACT if system.exact else Status.COMPLETED
    homes = [index * len(system.panels) for index in range(len(batch))]
    panels = [
        system.cross_panels(problem.test_points[start:stop], home=home)
        for (start, stop), home in zip(batch, homes, strict=True)
    ]
    sums = [
        executor.submit(no_sums, stop - start, problem.residuals.shape[1], problem.full_covariance)
        for start, stop in batch
    ]
    for iteration in range(1, iterations + 1):
        sums = [
            _last(
                system.sweep(group_panels, group_sums, adjoint=True, final=iteration == iterations, home=home)
            )
            for group_panels, group_sums, home in zip(panels, sums, homes, strict=True)
        ]
        done = executor.gather([executor.submit(only_sums, handle) for handle in sums])
        yield State(
            iteration=iteration,
            columns=slice(batch[0][0], batch[-1][1]),
            mean=np.concatenate([part.mean for part in done]),
            downdate=np.concatenate([part.downdate for part in done]),
            status=status,
        )


def representer_weights(problem: Problem, *, plan: Plan, whole_blocks: bool, executor: Executor) -> Array:
    """Forward sweeps: ``v = A b``, shape (n, T), with the same A as the adjoint pass.

    ``k(x, X) v`` is then the mean anywhere, at the cost of T columns instead of q (math 3).
    """
    system = SweepSystem(
        problem.gram, problem.residuals, plan=plan, whole_blocks=whole_blocks, executor=executor
    )
    fields = problem.residuals.shape[1]
    panels = system.value_panels(problem.residuals)
    weights: list[Handle[Array] | None] = [None] * len(system.blocks)
    sums = executor.submit(no_sums, fields, fields, False)
    for iteration in range(1, plan.iterations + 1):
        final = iteration == plan.iterations
        for block, solved in enumerate(system.sweep(panels, sums, adjoint=False, final=final)):
            weights[block] = executor.submit(add_solution, weights[block], solved)
    values = executor.gather([handle for handle in weights if handle is not None])
    return np.concatenate(values) if values else np.zeros_like(problem.residuals)


def no_sums(columns: int, fields: int, full_covariance: bool) -> Solved:
    """Return the sums before the first sweep: zeros."""
    shape = (columns, columns) if full_covariance else (columns,)
    return Solved(np.empty((0, columns)), np.zeros(shape), np.zeros((columns, fields)))


def only_sums(solved: Solved) -> Solved:
    """Drop the solution of the last block before the sums travel to the caller."""
    return Solved(solved.columns[:0], solved.downdate, solved.mean)


def add_solution(weights: Array | None, solved: Solved) -> Array:
    """Add the solution of a block to its weights."""
    return solved.columns.copy() if weights is None else weights + solved.columns


def _last(handles: Iterator[Handle[Solved]]) -> Handle[Solved]:
    *_, last = handles
    return last
