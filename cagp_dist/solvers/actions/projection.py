"""Actions: condition on projections ``S'y`` of the data (IterGP, math 4 and 5), for any policy.

``D = S (S' G S)^-1 S'``. Actions s are made orthogonal to each other and then conjugate, which changes
neither their span nor the belief (T17)::

    d = s - sum_j d_j (d_j' G s) / curvature_j          curvature = d' G d
    v += (rho / curvature) d,   r -= (rho / curvature) G d          rho = d' r
    D += d d' / curvature

With the residual as action this is the method of conjugate gradients.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.runtime import Executor
from cagp_dist.solvers.actions.orthonormal import DEPENDENT_ACTION, orthonormal_basis
from cagp_dist.solvers.actions.policies import Policy
from cagp_dist.solvers.engine.recorder import RecordedResults
from cagp_dist.solvers.interface import Problem, State, check_no_start
from cagp_dist.solvers.status import Status

RESIDUAL_AT_ROUNDING = 1e-14  # Relative residual below which further actions add nothing but rounding errors


@dataclass(frozen=True, eq=False)
class Direction:
    """One step of a projection."""

    # each (n,): ``d`` and ``G d``; zeros where the status is BREAKDOWN, or there was nothing to solve or to
    # add
    direction: Array
    image: Array
    curvature: float  # ``d' G d``
    step: Array  # (T,): ``rho / curvature``, the multiple of d that is added to the solution of each field
    relative_residual: float  # ``|b - G v| / |b|`` after this step, the largest of the fields
    status: Status  # how the solve would end here
    dropped: int = 0  # actions that were skipped so far


def project(
    product: Callable[[Array], Array],
    right: Array,
    *,
    policy: Policy,
    iterations: int,
    extra_right_hand_sides: int = 0,
) -> Iterator[Direction]:
    """Take the actions of a policy, one by one, at most ``iterations``, for right-hand sides b (n, T).

    Actions are orthogonalised twice, and directions made conjugate twice: ``sum d d' / curvature`` then stays
    a valid downdate where short recurrences would count directions twice and give negative variances. 8 n i
    flops each, beside a ``product`` of G with each block of actions; 3 vectors of length n are kept per
    action. The last columns of b, ``extra_right_hand_sides``, have no say in when it ends: where actions
    follow the residual, with status CONVERGED or BREAKDOWN, see `cagp_dist.solvers.actions.policies.Block`.
    Of other actions those in the span of earlier ones are skipped; after the last one, if it was, a direction
    of zeros says how many were.
    """
    n, fields = right.shape
    steps = min(iterations, n)
    if steps == 0:
        return
    # in units of the largest entry, so that no square under- or overflows
    unit = float(np.abs(right).max(initial=0.0)) or 1.0
    residual = right / unit
    followed = residual[:, : fields - extra_right_hand_sides]  # a view: residual is changed in place
    norms = np.linalg.norm(followed, axis=0)
    nothing = Direction(np.zeros(n), np.zeros(n), 1.0, np.zeros(fields), 0.0, Status.COMPLETED)
    actions, directions, images = (np.empty((steps, n)) for _ in range(3))
    curvature = np.empty(steps)
    i = dropped = reported = 0
    # residual is changed in place, so that the policy sees the current one
    for block in policy(lambda: residual[:, 0]):
        if block.follows_residual and not followed.any():
            yield replace(nothing, status=Status.CONVERGED, dropped=dropped)
            return
        before_block = dropped
        basis = orthonormal_basis(block.columns, actions[:i])
        dropped += block.columns.shape[1] - basis.shape[1]
        basis = basis[:, : steps - i]
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
                dropped += 1
                continue
            directions[i], images[i] = direction, image
            step = (direction @ residual) / curvature[i]
            np.subtract(residual, np.outer(image, step), out=residual)
            relative = _relative(followed, norms)
            i += 1
            solved = block.follows_residual and relative <= RESIDUAL_AT_ROUNDING
            unsolved = Status.STOPPED if block.follows_residual else Status.COMPLETED
            status = Status.CONVERGED if solved else unsolved
            reported = dropped
            yield Direction(direction, image, float(curvature[i - 1]), unit * step, relative, status, dropped)
            if status is Status.CONVERGED:
                return
        if block.follows_residual and dropped > before_block:
            relative = _relative(followed, norms)
            yield replace(nothing, relative_residual=relative, status=Status.BREAKDOWN, dropped=before_block)
            return
        if i == steps:
            break
    if dropped > reported:
        yield replace(nothing, relative_residual=_relative(followed, norms), dropped=dropped)


def _relative(residual: Array, norms: Array) -> float:
    size = np.linalg.norm(residual, axis=0)
    return float(np.divide(size, norms, out=np.zeros_like(size), where=norms > 0.0).max())


def projection_states(
    problem: Problem, *, policy: Policy, iterations: int, executor: Executor, follows_residual: bool
) -> Iterator[State]:
    """Yield the belief at the targets after each `Direction`: 2 n q flops and n q evaluations beside it."""
    check_no_start(problem)
    gram, targets, q = problem.gram, problem.targets, problem.q
    mean = np.zeros((q, problem.residuals.shape[1]))
    downdate = np.zeros((q, q) if problem.full_covariance else q)
    kept = None if problem.checkpoint is None else problem.checkpoint.latest()
    products, views = RecordedResults("products", kept), RecordedResults("views", kept)
    found = project(
        lambda columns: products(columns.shape[1], lambda: gram.product(columns, executor=executor)),
        problem.residuals,
        policy=policy,
        iterations=iterations,
        extra_right_hand_sides=problem.extra_right_hand_sides,
    )
    done = 0
    for item in found:
        if item.direction.any():
            direction, image = item.direction[:, None], item.image[:, None]
            seen = views(1, partial(gram.cross, targets, direction, executor=executor, product=image))[:, 0]
            mean += np.outer(seen, item.step)
            downdate += (np.outer(seen, seen) if problem.full_covariance else seen**2) / item.curvature
            done += 1
            if problem.checkpoint is not None and not views.behind and problem.checkpoint.due():
                problem.checkpoint.save({}, lambda writer: products.write(writer) and views.write(writer))
        status = Status.EXACT if done == gram.shape[0] and item.status.ok else item.status
        residual = item.relative_residual if follows_residual else None
        yield State(done, slice(0, q), mean.copy(), downdate.copy(), status, residual, dropped=item.dropped)
