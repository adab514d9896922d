"""Solvers on whole grids, with the beliefs that they yield, and the dense formula of bands."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import cagp_dist as cagp
from cagp_dist.posterior.problem import demand_of
from cagp_dist.solvers import Problem

from ..oracle import compose
from .engine import LIMIT, SERIAL
from .stages import dense_stage

CASES = [
    ("poles, even Q", cagp.Matern32, 0.3),
    ("poles, even Q", cagp.SquaredExponential, 0.6),
    ("poles, odd Q, even P, descending", cagp.Matern12, 0.3),
    ("no poles, odd Q", cagp.Matern52, 0.3),
    ("Gaussian latitudes", cagp.Matern32, 0.1),
    ("irregular latitudes", cagp.Matern32, 1.0),
    ("irregular, with noise by latitude", cagp.Matern32, 0.3),
    ("noise that is its own mirror image", cagp.Matern32, 0.3),
    ("noise that is not", cagp.Matern32, 0.3),
    ("one latitude", cagp.Matern32, 0.3),
    ("the equator", cagp.Matern32, 0.3),
    ("one longitude", cagp.Matern32, 0.3),
    ("two mirrored latitudes, two longitudes", cagp.Matern32, 0.3),
    ("one point", cagp.Matern32, 0.3),
]


@dataclass(frozen=True)
class Belief:
    """A state as fields: mean (P, Q) or (T, P, Q), variance (P, Q)."""

    iteration: int
    mean: np.ndarray
    variance: np.ndarray
    status: cagp.Status
    relative_residual: float | None


def beliefs(rings, field, solver, *, executor=SERIAL) -> Iterator[Belief]:
    """What a solver yields for a field (P, Q) or fields (T, P, Q) at all points of the grid."""
    problem = Problem(rings, field.reshape(-1, rings.grid.size).T.copy(), rings.grid, full_covariance=False)
    plan = solver.plan(demand_of(problem, executor, LIMIT))
    for state in solver.states(problem, executor=executor, plan=plan):
        yield Belief(
            state.iteration,
            state.mean.T.reshape(field.shape),
            (rings.kernel.variance - state.downdate).reshape(rings.grid.shape),
            state.status,
            state.relative_residual,
        )


def sweeps(rings, field, *, iterations, rings_per_block=1, **settings):
    """Block Gauss-Seidel with bands of rings as blocks."""
    block_size = rings_per_block * rings.grid.n_longitudes
    return beliefs(rings, field, cagp.BlockGaussSeidel(iterations, block_size), **settings)


def directions(rings, field, *, iterations, **settings):
    """Conjugate gradients."""
    return beliefs(rings, field, cagp.ConjugateGradient(iterations), **settings)


def exact_posterior(rings, field):
    """Mean and variance at all points, by the factors of the wavenumbers."""
    (belief,) = beliefs(rings, field, cagp.Rings())
    assert belief.status is cagp.Status.EXACT
    return belief.mean, belief.variance


def sweep_order(problem):
    """Points in the order of the sweep, and how many stay together: a ring, with its image if mirrored."""
    P, Q = problem.grid.shape
    if problem.layout.mirrored and P > 1:
        pairs = [(p, P - 1 - p) for p in range(P // 2)] + [(P // 2,)] * (P % 2)
        order, unit = list(itertools.chain(*pairs)), 2
    else:
        order, unit = list(range(P)), 1
    return np.arange(P * Q).reshape(P, Q)[order].ravel(), unit * Q


def dense_beliefs(problem, solver, rings_per_block):
    """A and D after each iteration of a solver whose blocks are bands, in the order of the grid."""
    order, unit = sweep_order(problem)
    back = np.argsort(order)
    G = problem.G[np.ix_(order, order)]
    stage = dense_stage(type(solver)(1, block_size=unit * rings_per_block), G)
    for m in range(1, solver.iterations + 1):
        A, D, _ = compose(G, [stage] * m)
        yield A[np.ix_(back, back)], D[np.ix_(back, back)]


RING_SOLVERS = {"sweeps": cagp.BlockGaussSeidel, "all at once": cagp.BlockJacobi}
NEW = cagp.unit_sphere([0.0, 12.3, -80.0, 90.0, 40.0, -90.0], [0.0, 111.1, 30.0, 5.0, -140.0, 70.0])
PRIOR = cagp.Prior(cagp.Matern32(0.5), noise_variance=0.1)
