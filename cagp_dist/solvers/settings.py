"""The solvers as users write them: frozen settings that know their plan and their states."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from cagp_dist.budget import Demand, Plan, plan_actions, plan_exact, plan_rings, plan_sweeps
from cagp_dist.checks import check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.base import Array
from cagp_dist.gram.dense import DenseGram
from cagp_dist.gram.grid import LatLonGrid
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, single_threaded_blas
from cagp_dist.solvers.adjoint import adjoint_states, representer_weights
from cagp_dist.solvers.base import Problem, State
from cagp_dist.solvers.options import BLOCK_SIZE, ITERATIONS, SEED
from cagp_dist.solvers.projection import conjugate_gradient_states, random_action_states
from cagp_dist.solvers.status import Status
from cagp_dist.solvers.whole_grid import whole_grid_state
from cagp_dist.tiling import POINT_TILE


@dataclass(frozen=True)
class GaussSeidel:
    """Point Gauss-Seidel sweeps in the order of X: Algorithm 2 of [Hegde et al. 2025], in tiles.

    Calibrated for any number of iterations; m covariance terms for m mean sweeps.

    Parameters
    ----------
    iterations : int
        Sweeps over all points, at least 0. Cost of one: n^2 (q / 512 evaluations + 2 q flops).

    Examples
    --------
    >>> import cagp_dist as cagp
    >>> cagp.GaussSeidel(iterations=5)
    GaussSeidel(iterations=5)
    """

    iterations: int = field(metadata=ITERATIONS)

    calibrated: ClassVar[bool] = True
    many_fields: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations, least=0)

    def plan(self, demand: Demand) -> Plan:
        """Decide tiles, tasks and bytes; see `cagp_dist.solvers.base.Solver.plan`."""
        return plan_sweeps(
            demand,
            method="Gauss-Seidel",
            iterations=self.iterations,
            block_size=POINT_TILE,
        )

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the belief after every sweep."""
        with single_threaded_blas():
            yield from adjoint_states(problem, plan=plan, whole_blocks=False, executor=executor)

    def weights(self, problem: Problem, *, executor: Executor, plan: Plan) -> Array:
        """Representer weights ``A b``, shape (n, T), by forward sweeps."""
        with single_threaded_blas():
            return representer_weights(problem, plan=plan, whole_blocks=False, executor=executor)


@dataclass(frozen=True)
class BlockGaussSeidel:
    """Block Gauss-Seidel: blocks of consecutive points are solved exactly, one after the other.

    Give the points in an order in which neighbours stand together (`cagp_dist.space_filling_order`):
    compact blocks converge fastest. Calibrated in any order. One block is the exact solve, blocks of
    one point are `GaussSeidel`.

    Parameters
    ----------
    iterations : int
        Sweeps over all blocks, at least 0.
    block_size : int
        Points of a block, at least 1. Memory 8 n block_size bytes for the factors.
    """

    iterations: int = field(metadata=ITERATIONS)
    block_size: int = field(default=1024, metadata=BLOCK_SIZE)

    calibrated: ClassVar[bool] = True
    many_fields: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations, least=0)
        check_count("block_size", self.block_size, least=1)

    def plan(self, demand: Demand) -> Plan:
        """Decide tiles, tasks and bytes; see `cagp_dist.solvers.base.Solver.plan`."""
        return plan_sweeps(
            demand,
            method="block Gauss-Seidel",
            iterations=self.iterations,
            block_size=self.block_size,
            remedies=(Remedy.SMALLER_BLOCKS,),
        )

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the belief after every sweep."""
        with single_threaded_blas():
            yield from adjoint_states(problem, plan=plan, whole_blocks=True, executor=executor)

    def weights(self, problem: Problem, *, executor: Executor, plan: Plan) -> Array:
        """Representer weights ``A b``, shape (n, T), by forward sweeps."""
        with single_threaded_blas():
            return representer_weights(problem, plan=plan, whole_blocks=True, executor=executor)


@dataclass(frozen=True)
class ConjugateGradient:
    """Conjugate gradients with full reorthogonalisation: CAGP-CG, conservative (math 5).

    Its search directions depend on the data, hence the stated variance is larger than the variance
    of the error, and several fields need one solve each.

    Parameters
    ----------
    iterations : int
        Actions, at least 0; at most n are used.
    """

    iterations: int = field(metadata=ITERATIONS)

    calibrated: ClassVar[bool] = False
    many_fields: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations, least=0)

    def plan(self, demand: Demand) -> Plan:
        """Decide bytes and seconds; see `cagp_dist.solvers.base.Solver.plan`."""
        return plan_actions(
            demand,
            method="conjugate gradients",
            iterations=self.iterations,
            stored_vectors=3,
            products=min(self.iterations, demand.n),
        )

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the belief after every action."""
        if problem.residuals.shape[1] > 1:
            raise ArgumentError(
                f"y holds {problem.residuals.shape[1]} fields; conjugate gradients follow one residual, so "
                "each field has its own variance. Call condition() once per field, or use BlockGaussSeidel."
            )
        with single_threaded_blas():
            yield from conjugate_gradient_states(problem, iterations=self.iterations, executor=executor)


@dataclass(frozen=True)
class RandomActions:
    """Gaussian random actions: calibrated, and the slowest to learn; a yardstick (math 4.1).

    Parameters
    ----------
    iterations : int
        Actions, at least 0; at most n are used.
    seed : int
        Seed of the actions. They must be independent of the data.
    """

    iterations: int = field(metadata=ITERATIONS)
    seed: int = field(default=0, metadata=SEED)

    calibrated: ClassVar[bool] = True
    many_fields: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations, least=0)
        check_count("seed", self.seed, least=0)

    def plan(self, demand: Demand) -> Plan:
        """Decide bytes and seconds; see `cagp_dist.solvers.base.Solver.plan`."""
        return plan_actions(
            demand,
            method="random actions",
            iterations=self.iterations,
            stored_vectors=6,
            products=2,
        )

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the belief after every action."""
        with single_threaded_blas():
            yield from random_action_states(
                problem, iterations=self.iterations, seed=self.seed, executor=executor
            )


@dataclass(frozen=True)
class Rings:
    """The exact posterior where X fills a full-circle latitude-longitude grid, or nearly (math 7).

    X are `cagp_dist.unit_sphere` points in any order; a pole is one point. Up to 8,192 grid points may be
    missing or held out at the cost of a whole-grid solve for each latitude that misses any; with more, each
    test point needs an iteration of its own. A million points take seconds.

    Parameters
    ----------
    grid : LatLonGrid, optional
        The grid that X is on. By default it is recognised from X, which has to fill more than half of it.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> grid = cagp.LatLonGrid(np.linspace(-75.0, 75.0, 11), 24)
    >>> prior = cagp.Prior(cagp.Matern32(lengthscale=0.5), noise_variance=1e-4)
    >>> y = grid.points[:, 2]
    >>> posterior = cagp.condition(prior, grid.points[1:], y[1:], grid.points[:1], solver=cagp.Rings())
    >>> bool(abs(posterior.mean[0] - y[0]) < 0.01), posterior.status.value
    (True, 'exact')
    """

    grid: LatLonGrid | None = None

    iterations: ClassVar[int] = 1
    calibrated: ClassVar[bool] = True
    many_fields: ClassVar[bool] = True

    def plan(self, demand: Demand) -> Plan:
        """Decide bytes and seconds; without ``grid`` for a global one that has about n points."""
        return plan_rings(demand, shape=None if self.grid is None else self.grid.shape)

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the one, exact state."""
        with single_threaded_blas():
            yield from whole_grid_state(problem, grid=self.grid, executor=executor)


@dataclass(frozen=True)
class Cholesky:
    """The exact posterior by a dense Cholesky factor: n^3 / 3 flops, 16 n^2 bytes.

    Runs in the calling process, whatever the executor, on all threads of BLAS; their number may change
    its last bits.
    """

    iterations: ClassVar[int] = 1
    calibrated: ClassVar[bool] = True
    many_fields: ClassVar[bool] = True

    def plan(self, demand: Demand) -> Plan:
        """Decide bytes and seconds; see `cagp_dist.solvers.base.Solver.plan`."""
        return plan_exact(demand)

    def states(self, problem: Problem, *, executor: Executor, plan: Plan) -> Iterator[State]:
        """Yield the one, exact state."""
        gram = problem.gram
        dense = DenseGram(gram.kernel, gram.X, noise_variance=gram.noise_variance)
        half = dense.half_solve(gram.kernel(gram.X, problem.test_points))
        data = dense.half_solve(problem.residuals)
        yield State(
            iteration=1,
            columns=slice(0, len(problem.test_points)),
            mean=half.T @ data,
            downdate=half.T @ half if problem.full_covariance else np.einsum("ij,ij->j", half, half),
            status=Status.EXACT,
        )
