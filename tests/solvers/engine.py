"""What no public call returns: a solver's matrix, and its states on any Gram matrix."""

import numpy as np
from numpy.typing import NDArray

import cagp_dist as cagp
from cagp_dist.budget import Demand
from cagp_dist.gram import Gram, TiledGram
from cagp_dist.posterior.problem import demand_of
from cagp_dist.runtime import SerialExecutor, single_threaded_blas
from cagp_dist.solvers import Problem, State
from cagp_dist.solvers.engine.adjoint import forward_passes
from cagp_dist.solvers.engine.affine import Affine
from cagp_dist.solvers.engine.tiles import TileSystem
from cagp_dist.solvers.stationary.spectrum import admissible

from ..problems import RegressionProblem

Array = NDArray[np.float64]

SERIAL = SerialExecutor()
LIMIT = 2**30


def tiled(problem: RegressionProblem) -> TiledGram:
    """G of a problem."""
    noise = np.full(len(problem.X), problem.prior.noise_variance)
    return TiledGram(problem.prior.kernel, problem.X, noise_variance=noise)


def plan_of(solver: Affine, n: int, *, q: int = 1, fields: int = 1, workers: int = 1):
    """The plan of a solve on workers that share memory."""
    return solver.plan(Demand(n, q, fields, False, workers, True, LIMIT))


def opened(problem: RegressionProblem, solver: Affine, b: Array, *, q: int, workers: int, executor=SERIAL):
    """A system on tiles for b (n, T) and q columns, and the solver's cycle on it."""
    asked = Problem(tiled(problem), b, problem.X_test, full_covariance=False)
    plan = plan_of(solver, len(b), q=q, fields=b.shape[1], workers=workers)
    system = TileSystem(asked, plan=plan, executor=executor)
    cycle = solver.cycle(asked.gram, executor=executor, blocks=system.blocks)
    return system, tuple(
        admissible(system, stage, gram=asked.gram, executor=executor, setting=solver.setting)
        for stage in cycle
    )


def weights(problem: RegressionProblem, solver: Affine, b: Array, *, executor=SERIAL) -> Array:
    """``A b`` by the forward engine, for b (n, T)."""
    with single_threaded_blas():
        system, cycle = opened(problem, solver, b, q=1, workers=executor.workers, executor=executor)
        *_, work = forward_passes(system, cycle, b, iterations=solver.iterations)
        return system.weights(work)


def solver_matrix(problem: RegressionProblem, solver: Affine) -> Array:
    """A, column by column."""
    return weights(problem, solver, np.eye(len(problem.X)))


def states_of(
    gram: Gram,
    solver,
    b: Array,
    targets: Array | cagp.LatLonGrid,
    *,
    full: bool = False,
    executor=SERIAL,
    start: State | None = None,
    keep_leftover: bool = False,
) -> list[State]:
    """Every state of a solver on a Gram matrix, for b (n, T), as `cagp.condition` would ask for it."""
    problem = Problem(gram, b, targets, full_covariance=full, start=start, keep_leftover=keep_leftover)
    plan = solver.plan(demand_of(problem, executor, LIMIT))
    return list(solver.states(problem, executor=executor, plan=plan))
