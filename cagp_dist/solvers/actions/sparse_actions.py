"""Weighted means of blocks of points as actions: fixed weights, or weights that were learned (math 11)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, get_args

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.budget.point_plans import ActionCost, plan_known_actions
from cagp_dist.checks import check_word
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.exact_variance import with_bounds
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.runtime import Executor, single_threaded_steps
from cagp_dist.solvers.actions.batch_projection import Projected, belief_states
from cagp_dist.solvers.actions.block_products import projected
from cagp_dist.solvers.actions.block_sparse import TILE, BlockLayout, Order, tile_count
from cagp_dist.solvers.actions.policies import Policy, given
from cagp_dist.solvers.interface import Calibrated, Problem, State
from cagp_dist.solvers.setting_metadata import SEED, check_settings

ACTIONS = {"least": 0, "most": 1_000_000, "example": 512}


@dataclass(frozen=True)
class SparseActions:
    """Block-sparse actions: what is conditioned on are weighted sums of the observations of blocks (math 11).

    The points are cut into as many blocks as there are actions; every action weighs the points of one block,
    and no two share one. All of G takes part: n^2 / 2 kernel entries, whatever the number of actions
    [Wenger et al. 2024, section 4].

    With weights that are drawn from a seed it is calibrated exactly, as all actions that do not look at the
    data (math 1.1). Weights that were chosen with a look at the data may make smaller errors with
    the same number of actions; the stated variance does not count that choice.

    Parameters
    ----------
    actions : int
        Blocks, at least 0; at most n are used.
    order : {"space-filling", "given"}
        Blocks of neighbours, or of points that follow each other in X.
    seed : int
        Seed of the weights, normal with variance one over the size of the block.
    values : sequence of n numbers, optional
        The weights themselves, one for each point of X.
    tuned : bool
        Whether ``values`` were chosen with a look at y. Say False only if they were not.

    Notes
    -----
    ``n^2 / 2 + n q`` kernel evaluations and ``2 n^2 + 2 n q + i^3 / 3 + i^2 q`` flops; 8 (4 i^2 + 3 i q)
    bytes. With as many actions as points it is the exact posterior.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.linspace(0.0, 1.0, 200).reshape(-1, 1)
    >>> prior = cagp.Prior(cagp.Matern52(lengthscale=0.3), noise_variance=1e-4)
    >>> solver = cagp.SparseActions(20, values=np.ones(200), tuned=False)  # means of ten neighbours
    >>> posterior = cagp.condition(prior, X, np.sin(6.0 * X[:, 0]), [[0.5]], solver=solver)
    >>> bool(abs(posterior.mean[0] - np.sin(3.0)) < 0.01), solver.calibrated
    (True, 'exact')
    """

    actions: int = field(default=512, metadata=ACTIONS)
    order: Order = "space-filling"
    seed: int = field(default=0, metadata=SEED)
    values: Sequence[float] | None = field(default=None, repr=False)
    tuned: bool = field(default=True, metadata={"job": False})

    many_fields: ClassVar[bool] = True
    needs_grid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_settings(self)
        check_word("order", self.order, get_args(Order))
        if self.values is not None:
            found = np.asarray(self.values, dtype=np.float64)
            if found.ndim != 1 or not np.isfinite(found).all():
                raise ArgumentError(
                    f"values has shape {found.shape}; expected one finite number for each observed point.",
                    key="shapes",
                )
            # plain numbers, so that the solver is a value that can be compared and hashed
            object.__setattr__(self, "values", tuple(found.tolist()))

    @property
    def iterations(self) -> int:
        """Actions."""
        return self.actions

    @property
    def calibrated(self) -> Calibrated:
        """Approximately where the weights were chosen with a look at the data, else exactly."""
        return "exact" if self.values is None or not self.tuned else "approximate"

    def plan(self, demand: Demand) -> Plan:
        """Decide bytes and flops; see `cagp_dist.solvers.interface.Solver.plan`."""
        n, q = demand.n, demand.target_points
        used = min(self.actions, n)
        tiles = tile_count(n, used)
        blocks = -(-used // max(tiles, 1))  # of a tile
        rows = max(blocks * -(-n // max(used, 1)), min(q, TILE))
        cost = ActionCost(
            memory_bytes=self.cost(demand).memory_bytes
            + DOUBLE * (q * used + 2 * demand.workers * rows * blocks),
            entries=n * n // 2 + n * q,
            flops=2 * n * n + 2 * n * q,
            tasks=tiles * (tiles + 1) // 2 + tiles * -(-q // TILE),
            sparse=True,
        )
        plan = plan_known_actions(demand, method="block-sparse actions", iterations=used, cost=cost)
        return with_bounds(plan, demand)

    def cost(self, demand: Demand) -> ActionCost:
        """Say what drawing their weights takes, from integers alone."""
        return ActionCost(memory_bytes=DOUBLE * 4 * demand.n)

    def policy(self, gram: Gram, *, executor: Executor) -> Policy:
        """All actions in one block: see `cagp_dist.MixedActions`."""
        n = gram.shape[0]
        if self.actions == 0:
            return given(lambda: np.zeros((n, 0)))
        return given(lambda: self.made(gram, executor=executor).columns(n))

    def made(self, gram: Gram, *, executor: Executor) -> "Weighted":
        """Cut the points into blocks, and draw the weights if none are given."""
        return Weighted(self, gram)

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the belief after every action."""
        if self.actions > 0:
            actions = self.made(problem.gram, executor=executor)
            yield from single_threaded_steps(belief_states(problem, actions, executor=executor))


class Weighted:
    """The actions of a solver for a Gram matrix; see `cagp_dist.solvers.actions.batch_projection.Actions`."""

    def __init__(self, solver: SparseActions, gram: Gram) -> None:
        n = gram.shape[0]
        if solver.values is not None and len(solver.values) != n:
            raise ArgumentError(
                f"values holds {len(solver.values):,} numbers; expected one for each of the {n:,} observed "
                "points.",
                key="shapes",
            )
        self._layout = BlockLayout.of(gram.X, solver.actions, order=solver.order)
        self._values = self._layout.draw(solver.seed) if solver.values is None else np.asarray(solver.values)

    def columns(self, n: int) -> Array:
        """S itself, shape (n, i)."""
        return self._layout.columns(self._values)

    def projection(self, problem: Problem, *, executor: Executor) -> Projected:
        """Look at a problem through them."""
        return projected(
            problem.gram,
            problem.residuals,
            problem.targets,
            self._layout,
            self._values,
            executor=executor,
        )
