"""Actions: condition on projections ``S'y`` of the data (IterGP, math 4 and 5).

``D = S (S' G S)^-1 S'``. Conjugate gradients choose the next action from the residual, so the matrix
depends on the data and the belief is conservative, not calibrated; random actions are calibrated.
"""

from collections.abc import Iterator

import numpy as np

from cagp_dist.gram.base import Array
from cagp_dist.gram.dense import cholesky_lower
from cagp_dist.gram.tiled import cross_product
from cagp_dist.runtime import Executor
from cagp_dist.solvers.base import Problem, State
from cagp_dist.solvers.conjugacy import conjugate_directions
from cagp_dist.solvers.status import Status


def conjugate_gradient_states(problem: Problem, *, iterations: int, executor: Executor) -> Iterator[State]:
    """Conjugate gradients on ``G v = b``: the belief after each of `conjugate_directions`.

    Yields
    ------
    State
        One per action: n^2 kernel evaluations / 2, 2 n^2 flops, and 8 n i flops for conjugacy.
        Keeps 3 vectors of length n per action.
    """
    gram, points = problem.gram, problem.test_points
    q = len(points)
    mean = np.zeros(q)
    downdate = np.zeros((q, q) if problem.full_covariance else q)
    found = conjugate_directions(
        lambda direction: gram.product(direction, executor=executor),
        problem.residuals[:, 0],
        iterations=iterations,
    )
    done = 0
    for item in found:
        if item.step != 0.0:
            column = item.direction[:, None]
            seen = cross_product(gram.kernel, points, gram.X, column, executor=executor)[:, 0]
            mean += item.step * seen
            downdate += (np.outer(seen, seen) if problem.full_covariance else seen**2) / item.norm
            done += 1
        yield State(
            done, slice(0, q), mean[:, None].copy(), downdate.copy(), item.status, item.relative_residual
        )


def random_action_states(
    problem: Problem, *, iterations: int, seed: int, executor: Executor
) -> Iterator[State]:
    """Independent Gaussian actions: calibrated, but slow to learn (math 4, 4.1).

    All actions are projected in one batch; the first i columns of an orthonormal basis span the
    first i actions, so one Cholesky factor gives the belief after every action (T17).

    Yields
    ------
    State
        One per action. Cost n^2 evaluations, 2 n^2 i flops; memory 24 n i bytes.
    """
    gram, points = problem.gram, problem.test_points
    n, q = gram.shape[0], len(points)
    draws = np.random.default_rng(seed).standard_normal((n, min(iterations, n)))
    basis = np.linalg.qr(draws).Q
    factor = cholesky_lower(basis.T @ gram.product(basis, executor=executor))
    seen = cross_product(gram.kernel, points, gram.X, basis, executor=executor)
    half = _forward_solve(factor, seen.T)
    data = _forward_solve(factor, basis.T @ problem.residuals)
    mean = np.zeros((q, problem.residuals.shape[1]))
    downdate = np.zeros((q, q) if problem.full_covariance else q)
    for i in range(basis.shape[1]):
        mean += np.outer(half[i], data[i])
        downdate += np.outer(half[i], half[i]) if problem.full_covariance else half[i] ** 2
        status = Status.EXACT if i + 1 == n else Status.COMPLETED
        yield State(i + 1, slice(0, q), mean.copy(), downdate.copy(), status)


def _forward_solve(factor: Array, columns: Array) -> Array:
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(factor, columns, lower=True, check_finite=False))
