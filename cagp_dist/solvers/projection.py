"""Actions: condition on projections ``S'y`` of the data (IterGP, math 4 and 5), for any policy.

``D = S (S' G S)^-1 S'``. Actions s are made orthogonal to each other and then conjugate, which changes
neither their span nor the belief (T17)::

    d = s - sum_j d_j (d_j' G s) / curvature_j          curvature = d' G d
    v += (rho / curvature) d,   r -= (rho / curvature) G d          rho = d' r
    D += d d' / curvature

With the residual as action this is the method of conjugate gradients.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.runtime import Executor
from cagp_dist.solvers.base import Problem, State, check_no_start
from cagp_dist.solvers.policies import Policy
from cagp_dist.solvers.status import Status

RESIDUAL_AT_ROUNDING = 1e-14
"""Relative residual below which further actions add nothing but rounding errors."""

DEPENDENT_ACTION = 1e-13
"""An action whose G-norm squared shrinks below this fraction lies in the span of the earlier ones."""


@dataclass(frozen=True, eq=False)
class Direction:
    """One step of a projection.

    Attributes
    ----------
    direction, image : array, shape (n,)
        ``d`` and ``G d``; zeros where the status is BREAKDOWN, or there was nothing to solve.
    curvature : float
        ``d' G d``.
    step : array, shape (T,)
        ``rho / curvature``, the multiple of d that is added to the solution of each field.
    relative_residual : float
        ``|b - G v| / |b|`` after this step, the largest of the fields.
    status : Status
        How the solve would end here.
    """

    direction: Array
    image: Array
    curvature: float
    step: Array
    relative_residual: float
    status: Status


def project(
    product: Callable[[Array], Array],
    right: Array,
    *,
    policy: Policy,
    iterations: int,
    stop_at_rounding: bool = True,
) -> Iterator[Direction]:
    """Take the actions of a policy, one by one.

    Actions are orthogonalised twice, and directions made conjugate twice: ``sum d d' / curvature`` then stays
    a valid downdate where short recurrences would count directions twice and give negative variances.

    Parameters
    ----------
    product : callable
        ``G`` applied to columns (n, k).
    right : array of float64, shape (n, T)
        ``b``.
    policy : Policy
        What the actions are.
    iterations : int
        Largest number of actions; n give the exact solution.
    stop_at_rounding : bool
        Whether the solve ends, CONVERGED, when the residual reaches rounding level. Not for actions that are
        independent of the data: the variance would then depend on the data after all (math 1.6).

    Yields
    ------
    Direction
        8 n i flops each for conjugacy, beside a product with G for each block of actions. Keeps 3 vectors of
        length n per action. The last has status CONVERGED or BREAKDOWN where the solve ends early.
    """
    n, fields = right.shape
    steps = min(iterations, n)
    if steps == 0:
        return
    # in units of the largest entry, so that no square under- or overflows
    unit = float(np.abs(right).max(initial=0.0)) or 1.0
    residual = right / unit
    norms = np.linalg.norm(residual, axis=0)
    nothing, no_step = np.zeros(n), np.zeros(fields)
    if stop_at_rounding and not norms.any():
        yield Direction(nothing, nothing, 1.0, no_step, 0.0, Status.CONVERGED)
        return
    actions, directions, images = (np.empty((steps, n)) for _ in range(3))
    curvature = np.empty(steps)
    i = 0
    # residual is changed in place, so that the policy sees the current one
    for block in policy(lambda: residual[:, 0]):
        basis = _orthonormal(block[:, : steps - i], actions[:i])
        products = product(basis) if basis.shape[1] else basis
        for action, image in zip(basis.T, products.T.copy(), strict=True):
            actions[i], direction = action, action.copy()
            before = float(direction @ image)
            for _ in range(2):
                overlap = (directions[:i] @ image) / curvature[:i]
                direction -= directions[:i].T @ overlap
                image -= images[:i].T @ overlap
            curvature[i] = float(direction @ image)
            if not curvature[i] > DEPENDENT_ACTION * before:
                basis = basis[:, :0]
                break
            directions[i], images[i] = direction, image
            step = (direction @ residual) / curvature[i]
            np.subtract(residual, np.outer(image, step), out=residual)
            relative = _relative(residual, norms)
            i += 1
            solved = stop_at_rounding and relative <= RESIDUAL_AT_ROUNDING
            status = Status.CONVERGED if solved else Status.COMPLETED
            yield Direction(direction, image, float(curvature[i - 1]), unit * step, relative, status)
            if status is Status.CONVERGED:
                return
        if basis.shape[1] == 0:
            yield Direction(nothing, nothing, 1.0, no_step, _relative(residual, norms), Status.BREAKDOWN)
            return
        if i == steps:
            return


def _orthonormal(block: Array, earlier: Array) -> Array:
    """Actions (n, k) made orthonormal, and orthogonal to earlier ones (i, n); (n, 0) if they depend."""
    columns = block / np.linalg.norm(block, axis=0)
    for _ in range(2):
        columns -= earlier.T @ (earlier @ columns)
    basis, triangle = np.linalg.qr(columns)
    independent = np.abs(triangle.diagonal()).min(initial=1.0) >= DEPENDENT_ACTION
    return np.asarray(basis * np.sign(triangle.diagonal())) if independent else basis[:, :0]


def _relative(residual: Array, norms: Array) -> float:
    size = np.linalg.norm(residual, axis=0)
    return float(np.divide(size, norms, out=np.zeros_like(size), where=norms > 0.0).max())


def projection_states(
    problem: Problem, *, policy: Policy, iterations: int, executor: Executor, follows_residual: bool
) -> Iterator[State]:
    """Yield the belief at the targets after each `Direction`: 2 n q flops and n q evaluations beside it.

    ``follows_residual`` says whether the policy does, and hence whether the residual ends the solve.
    """
    check_no_start(problem)
    gram, targets, q = problem.gram, problem.targets, problem.q
    mean = np.zeros((q, problem.residuals.shape[1]))
    downdate = np.zeros((q, q) if problem.full_covariance else q)
    found = project(
        lambda columns: gram.product(columns, executor=executor),
        problem.residuals,
        policy=policy,
        iterations=iterations,
        stop_at_rounding=follows_residual,
    )
    done = 0
    for item in found:
        if item.direction.any():
            seen = gram.cross(
                targets, item.direction[:, None], executor=executor, product=item.image[:, None]
            )[:, 0]
            mean += np.outer(seen, item.step)
            downdate += (np.outer(seen, seen) if problem.full_covariance else seen**2) / item.curvature
            done += 1
        status = Status.EXACT if done == gram.shape[0] and item.status.ok else item.status
        residual = item.relative_residual if follows_residual else None
        yield State(done, slice(0, q), mean.copy(), downdate.copy(), status, residual)
