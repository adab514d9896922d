"""Solvers of the action family, as users write them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import ClassVar

import numpy as np

from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.plan import ENTRY_FLOPS
from cagp_dist.budget.point_plans import ActionCost, plan_actions
from cagp_dist.checks import check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.exact_variance import with_bounds
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.runtime import Executor, single_threaded_steps
from cagp_dist.solvers.actions.policies import Policy, given, residuals
from cagp_dist.solvers.actions.projection import projection_states
from cagp_dist.solvers.interface import Calibrated, Problem, State, check_one_field
from cagp_dist.solvers.setting_metadata import ITERATIONS, SEED, check_settings
from cagp_dist.solvers.stationary.preconditioners import PRECONDITIONERS, find_preconditioner
from cagp_dist.tiling import STRIPS


@dataclass(frozen=True)
class ConjugateGradient:
    """Conjugate gradients with full reorthogonalisation: CAGP-CG (math 5).

    Calibrated approximately: the search directions depend on the data, and the stated variance does not allow
    for this (math 1.6). Error bars are usually too wide, because the directions suit the data better than
    chance would. They are sometimes too narrow, as on whole grids in the first iterations: no bound holds.
    Several fields need one solve each.

    With a preconditioner P the directions follow ``P^-1 r``; the mean is the iterate of preconditioned
    conjugate gradients (T23), which needs fewer iterations the nearer P is to G. P does not depend on the
    data, and is no part of the belief: the variance counts as many directions as without it, and those teach
    little of other fields. Error bars may stay near the prior's where errors are those of the exact solve;
    use a preconditioner for the mean.

    Parameters
    ----------
    iterations : int
        Actions, at least 0; at most n are used.
    preconditioner : {"pivoted-cholesky", "nystrom", "block-gauss-seidel", "vecchia"}, optional
        See `cagp_dist.solvers.stationary.preconditioners`. The first two need noise above zero at every
        point; the sweeps of the third go by tiles of points, on a grid too. With the last 3 to 11 iterations
        bring the mean of scattered points within 1e-6 of the exact one.
    preconditioner_size : int, optional
        Its rank, the points of its blocks, or neighbours; by default 100, 1,024 points of a block, and 60
        neighbours.
    """

    iterations: int = field(metadata=ITERATIONS)
    preconditioner: str | None = field(
        default=None, metadata={"later": True, "description": f"one of {', '.join(PRECONDITIONERS)}"}
    )
    preconditioner_size: int | None = field(default=None, metadata={"later": True, "least": 1, "most": 10**9})

    calibrated: ClassVar[Calibrated] = "approximate"
    many_fields: ClassVar[bool] = False
    needs_grid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations, least=0)
        if self.preconditioner is not None:
            find_preconditioner(self.preconditioner, self.preconditioner_size)
        elif self.preconditioner_size is not None:
            raise ArgumentError(
                f"preconditioner_size is {self.preconditioner_size!r} without a preconditioner; name one of "
                f"{', '.join(PRECONDITIONERS)}, or leave it out.",
                key="no-preconditioner",
            )

    def plan(self, demand: Demand) -> Plan:
        """Decide bytes and flops; see `cagp_dist.solvers.interface.Solver.plan`."""
        plan = plan_actions(
            demand,
            method="conjugate gradients",
            iterations=self.iterations,
            stored_vectors=3,
            products=min(self.iterations, demand.n),
            beside=self.cost(demand),
        )
        if self.preconditioner is None and demand.grid is None and plan.iterations > 0:
            strip = demand.n**2 // 2 * (ENTRY_FLOPS * demand.kernel_parts + 4) // STRIPS
            plan = replace(plan, chain_flops=plan.iterations * strip)
        return with_bounds(plan, demand)

    def cost(self, demand: Demand) -> ActionCost:
        """Say what the preconditioner takes, from integers alone."""
        if self.preconditioner is None:
            return ActionCost()
        cost = find_preconditioner(self.preconditioner, self.preconditioner_size).cost(demand)
        used = min(self.iterations, demand.n)
        return ActionCost(
            cost.memory_bytes,
            cost.entries + used * cost.entries_of_solve,
            cost.flops + used * cost.flops_of_solve,
            used * cost.tasks_of_solve,
        )

    def policy(self, gram: Gram, *, executor: Executor) -> Policy:
        """Follow the residual, or what a preconditioner makes of it, for so many actions."""
        follow: Policy = residuals
        if self.preconditioner is not None:
            settings = find_preconditioner(self.preconditioner, self.preconditioner_size)
            follow = partial(residuals, solve=settings.of(gram, executor=executor).solve)
        return lambda residual: islice(follow(residual), self.iterations)

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the belief after every action."""
        check_one_field(problem.fields)
        yield from single_threaded_steps(self._states(problem, executor))

    def _states(self, problem: Problem, executor: Executor) -> Iterator[State]:
        yield from projection_states(
            problem,
            policy=self.policy(problem.gram, executor=executor),
            iterations=self.iterations,
            executor=executor,
            follows_residual=True,
        )


@dataclass(frozen=True)
class RandomActions:
    """Gaussian random actions: calibrated if the prior is right, and the slowest to converge (math 4).

    Calibrated exactly, since the actions are drawn without regard to the data (math 1.1).

    Parameters
    ----------
    iterations : int
        Actions, at least 0; at most n are used.
    seed : int
        Seed of the actions. They must be independent of the data.
    """

    iterations: int = field(metadata=ITERATIONS)
    seed: int = field(default=0, metadata=SEED)

    calibrated: ClassVar[Calibrated] = "exact"
    many_fields: ClassVar[bool] = True
    needs_grid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, demand: Demand) -> Plan:
        """Decide bytes and flops; see `cagp_dist.solvers.interface.Solver.plan`."""
        plan = plan_actions(
            demand, method="random actions", iterations=self.iterations, stored_vectors=8, products=2
        )
        return with_bounds(plan, demand)

    def cost(self, demand: Demand) -> ActionCost:
        """Nothing beside the actions themselves."""
        return ActionCost()

    def policy(self, gram: Gram, *, executor: Executor) -> Policy:
        """Draw the actions."""
        shape = gram.shape[0], min(self.iterations, gram.shape[0])
        return given(lambda: np.random.default_rng(self.seed).standard_normal(shape))

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the belief after every action."""
        policy = self.policy(problem.gram, executor=executor)
        states = projection_states(
            problem, policy=policy, iterations=self.iterations, executor=executor, follows_residual=False
        )
        yield from single_threaded_steps(states)
