"""Solvers of the action family, as users write them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.points import plan_actions
from cagp_dist.checks import check_count
from cagp_dist.gram.exact_variance import with_bounds
from cagp_dist.runtime import Executor, single_threaded_steps
from cagp_dist.solvers.base import Calibrated, Problem, State, check_one_field
from cagp_dist.solvers.options import ITERATIONS, SEED
from cagp_dist.solvers.policies import gaussian, residuals
from cagp_dist.solvers.projection import projection_states


@dataclass(frozen=True)
class ConjugateGradient:
    """Conjugate gradients with full reorthogonalisation: CAGP-CG (math 5).

    Calibrated approximately: the search directions depend on the data, which the stated variance does not
    count (math 1.6). Error bars are usually too wide, because the directions suit the data better than chance
    would, and sometimes too narrow, as on whole grids in the first iterations: no bound holds. Several fields
    need one solve each.

    Parameters
    ----------
    iterations : int
        Actions, at least 0; at most n are used.
    """

    iterations: int = field(metadata=ITERATIONS)

    calibrated: ClassVar[Calibrated] = "approximate"
    many_fields: ClassVar[bool] = False
    needs_grid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations, least=0)

    def plan(self, demand: Demand) -> Plan:
        """Decide bytes and seconds; see `cagp_dist.solvers.base.Solver.plan`."""
        plan = plan_actions(
            demand,
            method="conjugate gradients",
            iterations=self.iterations,
            stored_vectors=3,
            products=min(self.iterations, demand.n),
        )
        return with_bounds(plan, demand)

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the belief after every action."""
        check_one_field(problem.residuals.T)
        states = projection_states(
            problem, policy=residuals, iterations=self.iterations, executor=executor, follows_residual=True
        )
        yield from single_threaded_steps(states)


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
        check_count("iterations", self.iterations, least=0)
        check_count("seed", self.seed, least=0)

    def plan(self, demand: Demand) -> Plan:
        """Decide bytes and seconds; see `cagp_dist.solvers.base.Solver.plan`."""
        plan = plan_actions(
            demand, method="random actions", iterations=self.iterations, stored_vectors=8, products=2
        )
        return with_bounds(plan, demand)

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the belief after every action."""
        n = problem.gram.shape[0]
        policy = gaussian(n, actions=min(self.iterations, n), seed=self.seed)
        states = projection_states(
            problem, policy=policy, iterations=self.iterations, executor=executor, follows_residual=False
        )
        yield from single_threaded_steps(states)
