"""Several policies in turn: some actions of one kind, then some of another (math 4)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, runtime_checkable

from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.point_plans import ActionCost, plan_actions
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.exact_variance import with_bounds
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.runtime import Executor, single_threaded_steps
from cagp_dist.solvers.actions.action_solvers import ConjugateGradient, RandomActions
from cagp_dist.solvers.actions.eigenvectors import Eigenvectors
from cagp_dist.solvers.actions.krylov_actions import KrylovActions
from cagp_dist.solvers.actions.policies import Policy
from cagp_dist.solvers.actions.projection import projection_states
from cagp_dist.solvers.actions.pseudo_inputs import PseudoInputs
from cagp_dist.solvers.actions.sparse_actions import SparseActions
from cagp_dist.solvers.actions.subsets import UnitVectors
from cagp_dist.solvers.interface import Problem, State, check_one_field
from cagp_dist.solvers.named_parts import MadeOfParts, SolverPart, parts_of_text

# Solvers that can be a part, by their names in job files
ACTION_SOLVERS: Mapping[str, Callable[[int], "ActionSolver"]] = MappingProxyType(
    {
        "conjugate-gradient": ConjugateGradient,
        "random-actions": RandomActions,
        "unit-vectors": UnitVectors,
        "pseudo-inputs": PseudoInputs,
        "sparse-actions": SparseActions,
        "eigenvectors": Eigenvectors,
        "krylov-actions": KrylovActions,
    }
)

EXAMPLE = "unit-vectors 50, conjugate-gradient 20"  # Parts in a text, for messages


@runtime_checkable
class ActionSolver(SolverPart, Protocol):
    """A solver whose actions others can continue from."""

    @property
    def iterations(self) -> int: ...  # actions

    def policy(self, gram: Gram, *, executor: Executor) -> Policy:
        """Its actions, at most ``iterations``."""

    def cost(self, demand: Demand) -> ActionCost:
        """Say what making them takes."""


@dataclass(frozen=True)
class MixedActions(MadeOfParts):
    """Actions of several kinds in turn, one belief from all of them (math 4).

    Each part continues from what those before have learned: conjugate gradients after unit vectors follow the
    residual that these have left. Calibrated exactly if every part is, since the actions then do not depend
    on the data (math 1.1); approximately if one of them is `ConjugateGradient`, or `SparseActions` with
    weights that were learned.

    Parameters
    ----------
    parts : sequence of solvers, or str
        `UnitVectors`, `PseudoInputs`, `SparseActions`, `Eigenvectors`, `KrylovActions`, `RandomActions`,
        `ConjugateGradient`, each with its own number of actions. In job files, names and numbers:
        ``"unit-vectors 50, conjugate-gradient 20"``.

    Raises
    ------
    ArgumentError
        If there is no part, or one of another kind.

    Notes
    -----
    A product with G of all actions of a part, but one for each action of conjugate gradients;
    8 (8 n i + 3 q i) bytes for i actions in all.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.linspace(0.0, 1.0, 200).reshape(-1, 1)
    >>> prior = cagp.Prior(cagp.Matern52(lengthscale=0.3), noise_variance=1e-4)
    >>> solver = cagp.MixedActions([cagp.UnitVectors(8), cagp.ConjugateGradient(4)])
    >>> posterior = cagp.condition(prior, X, np.sin(6.0 * X[:, 0]), [[0.5]], solver=solver)
    >>> bool(abs(posterior.mean[0] - np.sin(3.0)) < 0.01), posterior.stats.iterations, solver.calibrated
    (True, 12, 'approximate')
    """

    parts: tuple[ActionSolver, ...] | str = field(
        metadata={
            "description": "names of actions and their numbers, in turn",
            "example": "unit-vectors 3, random-actions 2",
        }
    )

    needs_grid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        parts: Any = self.parts
        if isinstance(parts, str):
            parts = parts_of_text(parts, ACTION_SOLVERS, numbers="actions", example=EXAMPLE)
        if not isinstance(parts, Sequence) or not parts:
            raise ArgumentError(
                f"parts is {parts!r}; expected a list of at least one of {', '.join(ACTION_SOLVERS)}.",
                key="parts-of-solver",
            )
        for part in parts:
            if isinstance(part, type) or not isinstance(part, ActionSolver):
                raise ArgumentError(
                    f"parts holds {part!r}; expected solvers with actions: {', '.join(ACTION_SOLVERS)}.",
                    key="parts-of-solver",
                )
        object.__setattr__(self, "parts", tuple(parts))

    @property
    def _solvers(self) -> tuple[ActionSolver, ...]:
        assert not isinstance(self.parts, str)
        return self.parts

    @property
    def iterations(self) -> int:
        """Actions of all parts."""
        return sum(part.iterations for part in self._solvers)

    def plan(self, demand: Demand) -> Plan:
        """Decide bytes and flops; see `cagp_dist.solvers.interface.Solver.plan`."""
        costs = [part.cost(demand) for part in self._solvers]
        together = [part.iterations for part in self._solvers if part.many_fields]
        plan = plan_actions(
            demand,
            method="mixed actions",
            iterations=self.iterations,
            stored_vectors=8,
            products=self.iterations - sum(together) + 2 * len(together),
            at_once=min(max(together, default=1), demand.n),
            beside=ActionCost(*(sum(numbers) for numbers in list(zip(*costs, strict=True))[:4])),
        )
        return with_bounds(plan, demand)

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the belief after every action."""
        if not self.many_fields:
            check_one_field(problem.fields)
        yield from single_threaded_steps(self._states(problem, executor))

    def _states(self, problem: Problem, executor: Executor) -> Iterator[State]:
        policies = [part.policy(problem.gram, executor=executor) for part in self._solvers]
        yield from projection_states(
            problem,
            policy=lambda residual: chain.from_iterable(policy(residual) for policy in policies),
            iterations=self.iterations,
            executor=executor,
            follows_residual=not self.many_fields,
        )
