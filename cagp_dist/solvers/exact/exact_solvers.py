"""Exact solvers: no computational uncertainty is left."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.demand import MOST_MISSING
from cagp_dist.budget.grid_plans import plan_exact_grid
from cagp_dist.budget.point_plans import plan_exact
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.dense import DenseGram
from cagp_dist.gram.gram_matrix import ExactSolve, Gram
from cagp_dist.gram.targets import Targets, list_targets, part
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, blas_threads_for, single_threaded_blas
from cagp_dist.solvers.interface import Calibrated, Problem, State, check_no_start, no_op
from cagp_dist.solvers.status import Status


class ExactSolver(ABC):
    """A solver without settings of the exact posterior."""

    iterations: ClassVar[int] = 1
    calibrated: ClassVar[Calibrated] = "exact"
    many_fields: ClassVar[bool] = True

    @abstractmethod
    def opened(self, problem: Problem, executor: Executor) -> tuple[Gram, ExactSolve]:
        """Give the matrix and its exact solves; those that were made before, if they were."""

    @abstractmethod
    def threads(self, problem: Problem) -> AbstractContextManager[object]:
        """Let BLAS use the threads that a solve takes."""

    @final
    def weights(self, problem: Problem, *, executor: Executor) -> tuple[Array, Problem]:
        """``G^-1 b`` (n, T) of the residuals, and the problem with the solve."""
        with self.threads(problem):
            gram, solve = self.opened(problem, executor)
            return solve.weights(problem.residuals), replace(problem, opened=(gram, solve))

    @final
    def mean(
        self, problem: Problem, *, executor: Executor, plan: Plan, done: Callable[[int], None] = no_op
    ) -> tuple[Array, Status]:
        """``V G^-1 b`` (q, T) alone: a solve for each right-hand side, with gaps more; and how it ended."""
        with self.threads(problem):
            gram, solve = self.opened(problem, executor)
            weights = solve.weights(problem.residuals)
            done(1)
            parts = [
                gram.cross(targets, weights, executor=executor) for _, targets in _in_parts(problem, plan)
            ]
            mean = parts[0] if len(parts) == 1 else np.concatenate(parts)
            return mean, Status.of_direct_solve(solve.condition_number)


@dataclass(frozen=True)
class Cholesky(ExactSolver):
    """The exact posterior by a dense Cholesky factor: n^3 / 3 flops, 16 n^2 bytes.

    Calibrated exactly: it is the posterior itself. Runs in the calling process, whatever the executor; many
    targets are done in parts. From 2,048 points on it uses all threads of BLAS; how many there are may change
    the last bits of the result.
    """

    needs_grid: ClassVar[bool] = False

    def plan(self, demand: Demand) -> Plan:
        """Decide bytes and flops; see `cagp_dist.solvers.interface.Solver.plan`."""
        return plan_exact(demand)

    def opened(self, problem: Problem, executor: Executor) -> tuple[Gram, ExactSolve]:
        """Give the dense matrix and solves by its factor, n^3 / 3 flops."""
        if problem.opened is not None:
            return problem.opened
        gram = problem.gram
        dense = DenseGram(gram.kernel, gram.X, noise_variance=gram.noise_variance)
        return dense, dense.exact(executor=executor)

    def threads(self, problem: Problem) -> AbstractContextManager[object]:
        """All of them where there are many points."""
        return blas_threads_for(problem.gram.shape[0])

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the exact state of each part of the targets."""
        with self.threads(problem):
            yield from exact_states(problem, *self.opened(problem, executor), executor, plan=plan)


@dataclass(frozen=True)
class Rings(ExactSolver):
    """The exact posterior for X on a latitude-longitude grid, complete or with gaps (math 7).

    With up to 5,000 missing points it takes the inverse of the grid's blocks, and of a matrix of that size,
    and points of the grid itself need no solves; others take one for each latitude and offset. More missing
    points, and noise that varies along a latitude, are for `Neighbours`. A million points take seconds. Means
    over cells take a solve as points do: one for all cells that lie alike between the longitudes of the grid.
    Calibrated exactly: it is the posterior itself.
    """

    needs_grid: ClassVar[bool] = True

    def plan(self, demand: Demand) -> Plan:
        """Decide bytes and flops; see `cagp_dist.solvers.interface.Solver.plan`."""
        if demand.grid is None:
            raise _no_rings("X is an array of points, and Rings needs a cagp_dist.LatLonGrid.")
        if not demand.grid.even_noise:
            raise _no_rings("the noise varies along a latitude, and Rings needs the same along each.")
        if not demand.grid.solved_by_rings:
            raise _no_rings(
                f"the grid lacks {demand.grid.missing:,} points; Rings is for at most {MOST_MISSING:,}."
            )
        return plan_exact_grid(demand, demand.grid)

    def opened(self, problem: Problem, executor: Executor) -> tuple[Gram, ExactSolve]:
        """Give the matrix and its own exact solves."""
        if problem.opened is not None:
            return problem.opened
        exact = problem.gram.exact(executor=executor)
        if exact is None:
            raise _no_rings("X is no grid, or the noise varies along a latitude.")
        return problem.gram, exact

    def threads(self, problem: Problem) -> AbstractContextManager[object]:
        """One: wavenumbers are solved side by side."""
        return single_threaded_blas()

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the one, exact state."""
        with self.threads(problem):
            states = list(exact_states(problem, *self.opened(problem, executor), executor, plan=plan))
        yield from states


def _no_rings(text: str) -> ArgumentError:
    """Say why rings do not solve a problem, and what does."""
    return ArgumentError(text, key="no-rings", remedies=(Remedy.NEIGHBOURS,))


def exact_states(
    problem: Problem,
    gram: Gram,
    exact: ExactSolve,
    executor: Executor,
    *,
    plan: Plan,
    points: Indices | None = None,
) -> Iterator[State]:
    """Yield the posterior of an exactly solved Gram matrix, part of the targets by part."""
    check_no_start(problem)
    residuals = problem.residuals if points is None else problem.residuals[points]
    weights = exact.weights(residuals)
    status = Status.of_direct_solve(exact.condition_number)
    if status.ok and len(residuals) < problem.gram.shape[0]:
        status = Status.COMPLETED
    for columns, targets in _in_parts(problem, plan):
        mean = gram.cross(targets, weights, executor=executor)
        downdate = exact.downdate(targets, full=problem.full_covariance)
        yield State(1, columns, mean, downdate, status)


def _in_parts(problem: Problem, plan: Plan) -> Iterator[tuple[slice, Targets]]:
    """Targets as the plan has them: all of them at once, or parts that fit into memory."""
    if len(plan.batches) < 2:
        yield slice(0, problem.q), problem.targets
        return
    targets = list_targets(problem.targets)
    for batch in plan.batches:
        columns = slice(batch[0][0], batch[-1][1])
        yield columns, part(targets, columns)
