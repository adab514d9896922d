"""Conjugate directions, kept conjugate against rounding: what every CG of the package iterates on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from cagp_dist.gram.base import Array
from cagp_dist.solvers.status import Status

RESIDUAL_AT_ROUNDING = 1e-14
"""Relative residual below which further actions only add rounding errors."""

DEPENDENT_ACTION = 1e-13
"""An action whose G-norm squared shrinks below this fraction lies in the span of the earlier ones."""


@dataclass(frozen=True, eq=False)
class Direction:
    """One step of conjugate gradients.

    Attributes
    ----------
    direction, product : array, shape (n,)
        ``d_i`` and ``G d_i``; no information if the status is BREAKDOWN.
    norm : float
        ``d_i' G d_i``.
    step : float
        What ``d_i`` is multiplied with in the solution, in the unit of ``b``.
    relative_residual : float
        ``|b - G v| / |b|`` after this step.
    status : Status
        How the solve would end here.
    """

    direction: Array
    product: Array
    norm: float
    step: float
    relative_residual: float
    status: Status


def conjugate_directions(
    product: Callable[[Array], Array], right: Array, *, iterations: int
) -> Iterator[Direction]:
    """Conjugate gradients on ``G v = b`` from zero, with full reorthogonalisation (math 5).

    The directions d_i are made G-conjugate twice in every iteration, so that
    ``sum_i d_i d_i' / (d_i' G d_i)`` stays a valid downdate where the two-term recurrence would
    overcount and give negative variances.

    Parameters
    ----------
    product : callable
        ``G`` applied to a vector (n,).
    right : array of float64, shape (n,)
        ``b``.
    iterations : int
        Directions at most; n are the exact solution.

    Yields
    ------
    Direction
        One per product with G and 8 n i flops for conjugacy. Keeps 3 vectors of length n per direction.
        The last has status CONVERGED or BREAKDOWN where the iteration ends early.
    """
    n = len(right)
    # in units of its largest entry, so that no square under- or overflows
    unit = float(np.abs(right).max(initial=0.0)) or 1.0
    residual = right / unit
    start_norm = float(np.linalg.norm(residual))
    nothing = np.zeros(n)
    if start_norm == 0.0:
        yield Direction(nothing, nothing, 1.0, 0.0, 0.0, Status.CONVERGED)
        return
    steps = min(iterations, n)
    actions, directions, products = (np.empty((steps, n)) for _ in range(3))
    norms = np.empty(steps)
    for i in range(steps):
        left = float(np.linalg.norm(residual))
        action = residual / left
        for _ in range(2):
            action -= actions[:i].T @ (actions[:i] @ action)
        size = np.linalg.norm(action)
        broken = Direction(nothing, nothing, 1.0, 0.0, left / start_norm, Status.BREAKDOWN)
        if size < DEPENDENT_ACTION:
            yield broken
            return
        actions[i] = action / size
        direction = actions[i].copy()
        image = product(direction)
        before = float(direction @ image)
        for _ in range(2):
            along = (directions[:i] @ image) / norms[:i]
            direction -= directions[:i].T @ along
            image -= products[:i].T @ along
        norms[i] = float(direction @ image)
        if not norms[i] > DEPENDENT_ACTION * before:
            yield broken
            return
        directions[i], products[i] = direction, image
        step = float(direction @ residual) / norms[i]
        residual -= step * image
        relative = float(np.linalg.norm(residual)) / start_norm
        status = Status.CONVERGED if relative <= RESIDUAL_AT_ROUNDING else Status.COMPLETED
        yield Direction(direction, image, float(norms[i]), unit * step, relative, status)
        if status is Status.CONVERGED:
            return
