"""The pieces of the sweep engine that no public call returns: the solver's matrix, Y and Z of a sweep."""

from dataclasses import dataclass

import numpy as np
from cagp_dist.solvers.adjoint import no_sums, representer_weights
from cagp_dist.solvers.sweep import SweepSystem
from numpy.typing import NDArray

import cagp_dist as cagp
from cagp_dist.budget import Demand
from cagp_dist.gram import TiledGram
from cagp_dist.runtime import SerialExecutor, single_threaded_blas
from cagp_dist.solvers import Problem

from ..problems import RegressionProblem

Array = NDArray[np.float64]
Sweeps = cagp.GaussSeidel | cagp.BlockGaussSeidel

SERIAL = SerialExecutor()


def tiled(problem: RegressionProblem) -> TiledGram:
    """G of a problem."""
    noise = np.full(len(problem.X), problem.prior.noise_variance)
    return TiledGram(problem.prior.kernel, problem.X, noise_variance=noise)


def plan_of(solver: Sweeps, n: int, *, q: int = 1, fields: int = 1, workers: int = 1):
    """The plan of a solve on workers that share memory."""
    return solver.plan(Demand(n, q, fields, False, workers, True, 2**30))


def weights(problem: RegressionProblem, solver: Sweeps, b: Array, *, executor=SERIAL) -> Array:
    """``A b`` by the forward engine, for b (n, T)."""
    with single_threaded_blas():
        return representer_weights(
            Problem(tiled(problem), b, problem.X_test, full_covariance=False),
            plan=plan_of(solver, len(b), fields=b.shape[1], workers=executor.workers),
            whole_blocks=isinstance(solver, cagp.BlockGaussSeidel),
            executor=executor,
        )


def solver_matrix(problem: RegressionProblem, solver: Sweeps) -> Array:
    """A, column by column."""
    return weights(problem, solver, np.eye(len(problem.X)))


@dataclass(frozen=True)
class Swept:
    """What sweeps leave behind: Y (n, r) and Z (n, r) of the last sweep, downdate (r,) and mean (r, T)."""

    Y: Array
    Z: Array
    downdate: Array
    mean: Array


def sweep(
    problem: RegressionProblem,
    solver: Sweeps,
    *,
    columns: Array | None = None,
    adjoint: bool,
    b: Array | None = None,
    workers: int = 1,
) -> Swept:
    """``solver.iterations`` sweeps on V' (adjoint) or on given columns (forward), none of them final."""
    n = len(problem.X)
    b = np.zeros((n, 1)) if b is None else b
    width = len(problem.X_test) if columns is None else columns.shape[1]
    system = SweepSystem(
        tiled(problem),
        b,
        plan=plan_of(solver, n, q=width, workers=workers),
        whole_blocks=isinstance(solver, cagp.BlockGaussSeidel),
        executor=SERIAL,
    )
    panels = system.cross_panels(problem.X_test) if columns is None else system.value_panels(columns)
    sums = SERIAL.submit(no_sums, width, b.shape[1], False)
    for _ in range(solver.iterations):
        solved = list(system.sweep(panels, sums, adjoint=adjoint))
        sums = solved[-1]
    blocks = solved[::-1] if adjoint else solved
    return Swept(
        Y=np.concatenate([panel.result() for panel in panels]),
        Z=np.concatenate([block.result().columns for block in blocks]),
        downdate=sums.result().downdate,
        mean=sums.result().mean,
    )
