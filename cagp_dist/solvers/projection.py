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
from cagp_dist.solvers.status import Status

RESIDUAL_AT_ROUNDING = 1e-14
"""Relative residual below which further actions only add rounding errors."""

DEPENDENT_ACTION = 1e-13
"""An action whose G-norm squared shrinks below this fraction lies in the span of the earlier ones."""


def conjugate_gradient_states(problem: Problem, *, iterations: int, executor: Executor) -> Iterator[State]:
    """Conjugate gradients on ``G v = b`` from zero, with full reorthogonalisation (math 5).

    The directions d_i are made G-conjugate twice in every iteration, so that
    ``sum_i d_i d_i' / (d_i' G d_i)`` stays a valid downdate where the two-term recurrence would
    overcount and give negative variances.

    Yields
    ------
    State
        One per action: n^2 kernel evaluations / 2, 2 n^2 flops, and 8 n i flops for conjugacy.
        Keeps 3 vectors of length n per action.
    """
    gram, points = problem.gram, problem.test_points
    # in units of its largest entry, so that no square under- or overflows
    unit = float(np.abs(problem.residuals).max(initial=0.0)) or 1.0
    residual = problem.residuals[:, 0] / unit
    start_norm = float(np.linalg.norm(residual))
    n, q = len(residual), len(points)
    steps = min(iterations, n)
    actions, directions, products = (np.empty((steps, n)) for _ in range(3))
    norms = np.empty(steps)
    mean = np.zeros(q)
    downdate = np.zeros((q, q) if problem.full_covariance else q)

    def state(iteration: int, status: Status) -> State:
        relative = float(np.linalg.norm(residual)) / start_norm if start_norm else 0.0
        return State(iteration, slice(0, q), unit * mean[:, None], downdate.copy(), status, relative)

    if start_norm == 0.0:
        yield state(0, Status.CONVERGED)
        return
    for i in range(steps):
        action = residual / np.linalg.norm(residual)
        for _ in range(2):
            action -= actions[:i].T @ (actions[:i] @ action)
        size = np.linalg.norm(action)
        if size < DEPENDENT_ACTION:
            yield state(i, Status.BREAKDOWN)
            return
        actions[i] = action / size
        direction = actions[i].copy()
        product = gram.product(direction, executor=executor)
        before = float(direction @ product)
        for _ in range(2):
            along = (directions[:i] @ product) / norms[:i]
            direction -= directions[:i].T @ along
            product -= products[:i].T @ along
        norms[i] = float(direction @ product)
        if not norms[i] > DEPENDENT_ACTION * before:
            yield state(i, Status.BREAKDOWN)
            return
        directions[i], products[i] = direction, product
        step = float(direction @ residual) / norms[i]
        residual -= step * product
        seen = cross_product(gram.kernel, points, gram.X, direction[:, None], executor=executor)[:, 0]
        mean += step * seen
        downdate += (np.outer(seen, seen) if problem.full_covariance else seen**2) / norms[i]
        converged = float(np.linalg.norm(residual)) <= RESIDUAL_AT_ROUNDING * start_norm
        yield state(i + 1, Status.CONVERGED if converged else Status.COMPLETED)
        if converged:
            return


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
