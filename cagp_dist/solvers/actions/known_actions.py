"""Solvers whose actions are all known before the first is taken: what every one of them plans and yields."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.point_plans import ActionCost, plan_known_actions
from cagp_dist.gram.exact_variance import with_bounds
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.runtime import Executor, single_threaded_steps
from cagp_dist.solvers.actions.batch_projection import Actions, belief_states
from cagp_dist.solvers.actions.policies import Policy, given
from cagp_dist.solvers.interface import Calibrated, Problem, State
from cagp_dist.solvers.setting_metadata import check_settings


@dataclass(frozen=True)
class KnownActions(ABC):
    """A projection whose actions follow from points, kernel, noise and a seed.

    Calibrated exactly for that reason, after any number of actions (math 1.1). A new one is a frozen
    dataclass with ``iterations`` and its own settings that says how they are `made`, and what they cost.
    """

    calibrated: ClassVar[Calibrated] = "exact"
    many_fields: ClassVar[bool] = True
    needs_grid: ClassVar[bool] = False

    label: ClassVar[str]  # The actions, for people
    iterations: int  # Actions, at most n

    def __post_init__(self) -> None:
        check_settings(self)

    @abstractmethod
    def made(self, gram: Gram, *, executor: Executor) -> Actions:
        """Make the actions, in the order in which they are taken: at most ``iterations``, and at most n."""

    @abstractmethod
    def cost(self, demand: Demand) -> ActionCost:
        """Say what making them takes, and what form they have, from integers alone."""

    @final
    def plan(self, demand: Demand) -> Plan:
        """Decide bytes and flops; see `cagp_dist.solvers.interface.Solver.plan`."""
        plan = plan_known_actions(
            demand, method=self.label, iterations=self.iterations, cost=self.cost(demand)
        )
        return with_bounds(plan, demand)

    @final
    def policy(self, gram: Gram, *, executor: Executor) -> Policy:
        """All actions in one block, made when their turn comes: see `cagp_dist.MixedActions`."""
        return given(lambda: self.made(gram, executor=executor).columns(gram.shape[0]))

    @final
    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the belief after every action."""
        if self.iterations > 0:
            yield from single_threaded_steps(self._states(problem, executor))

    def _states(self, problem: Problem, executor: Executor) -> Iterator[State]:
        actions = self.made(problem.gram, executor=executor)
        yield from belief_states(problem, actions, executor=executor)
