"""Some of the points: unit vectors as actions, the exact posterior from a subset of the data (math 4)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.budget import Demand, Plan
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.budget.point_plans import ActionCost, plan_exact
from cagp_dist.checks import check_word
from cagp_dist.gram.dense import DenseGram
from cagp_dist.gram.exact_variance import with_bounds
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.runtime import Executor, blas_threads_for
from cagp_dist.solvers.actions.batch_projection import UnitActions
from cagp_dist.solvers.actions.known_actions import KnownActions
from cagp_dist.solvers.exact.exact_solvers import exact_states
from cagp_dist.solvers.interface import Calibrated, Problem, State
from cagp_dist.solvers.setting_metadata import ITERATIONS, SEED, check_settings
from cagp_dist.solvers.stationary.low_rank import partial_cholesky, planned_flops

Order = Literal["pivoted", "random", "given"]


def random_points(n: int, count: int, seed: int) -> Indices:
    """First ``count`` of n points in a random order; more of them begin with the same ones."""
    return np.random.default_rng(seed).permutation(n)[:count]


def pivoted_points(gram: Gram, count: int, *, noise_variance: Array | None = None) -> Indices:
    """Points in the order of a partial Cholesky factor; where it ends, the others in the order of X."""
    chosen = partial_cholesky(gram.kernel, gram.X, rank=count, noise_variance=noise_variance).chosen
    if len(chosen) == count:
        return chosen
    others = np.setdiff1d(np.arange(gram.shape[0]), chosen)
    return np.concatenate([chosen, others[: count - len(chosen)]])


@dataclass(frozen=True)
class UnitVectors(KnownActions):
    """Unit vectors: the points are observed one by one, the partial Cholesky decomposition of G (math 4).

    After i actions it is the exact posterior from the first i points of the order, and says so by its
    variance (T22). Calibrated exactly, since no order here looks at the data (math 1.1).

    Parameters
    ----------
    iterations : int
        Points, at least 0; at most n are used.
    order : {"pivoted", "random", "given"}
        Pivoted: next comes the point whose variance, given those before, is largest. Random: drawn with
        ``seed``. Given: the order of X.
    seed : int
        Seed of the random order.

    Notes
    -----
    i^2 + i q kernel evaluations, n i more for the pivoted order; i^3 / 3 + i^2 q flops and n i^2 for the
    pivoted order; 8 (2 i q + 2 i^2) bytes, 8 n i more for the pivoted order. In the calling process.
    """

    iterations: int = field(metadata=ITERATIONS)
    order: Order = "pivoted"
    seed: int = field(default=0, metadata=SEED)

    label: ClassVar[str] = "unit vectors"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_word("order", self.order, get_args(Order))

    def made(self, gram: Gram, *, executor: Executor) -> UnitActions:
        """Choose the points."""
        n = gram.shape[0]
        count = min(self.iterations, n)
        if self.order == "random":
            return UnitActions(random_points(n, count, self.seed))
        if self.order == "given":
            return UnitActions(np.arange(count))
        return UnitActions(pivoted_points(gram, count, noise_variance=gram.noise_variance))

    def cost(self, demand: Demand) -> ActionCost:
        """Say what choosing them takes, from integers alone."""
        n, used = demand.n, min(self.iterations, demand.n)
        if self.order != "pivoted":
            return ActionCost(sparse=True)
        return ActionCost(DOUBLE * n * (used + 6), n * used, planned_flops(n, used), sparse=True)


@dataclass(frozen=True)
class SubsetOfData:
    """The exact posterior from a random subset of the points, by a Cholesky factor (math 4).

    The plainest approximation there is, and calibrated exactly: what the other points would have said counts
    as uncertainty, because the subset is drawn without regard to the data (math 1.1). The same belief as
    that of `UnitVectors` in random order with the same seed (T22), in one step.

    Parameters
    ----------
    points : int
        Size of the subset, at least 1; at most n are used.
    seed : int
        Seed of the draw.

    Notes
    -----
    m^3 / 3 + m^2 q flops and 8 (2 m^2 + 3 m q) bytes for m points, in the calling process, as `Cholesky`.
    """

    points: int = field(metadata={"least": 1, "most": 10**9, "example": 1000})
    seed: int = field(default=0, metadata=SEED)

    iterations: ClassVar[int] = 1
    calibrated: ClassVar[Calibrated] = "exact"
    many_fields: ClassVar[bool] = True
    needs_grid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_settings(self)

    def plan(self, demand: Demand) -> Plan:
        """Decide bytes and flops; see `cagp_dist.solvers.interface.Solver.plan`."""
        if self.points >= demand.n:
            return plan_exact(demand, method="a subset of the data")
        return with_bounds(plan_exact(demand, method="a subset of the data", points=self.points), demand)

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the state of each part of the targets."""
        gram, n = problem.gram, problem.gram.shape[0]
        chosen = random_points(n, self.points, self.seed)
        with blas_threads_for(len(chosen)):
            subset = DenseGram(gram.kernel, gram.X[chosen], noise_variance=gram.noise_variance[chosen])
            exact = subset.exact(executor=executor)
            yield from exact_states(problem, subset, exact, executor, plan=plan, points=chosen)
