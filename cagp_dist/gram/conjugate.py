"""Preconditioned conjugate gradients for several right-hand sides at once."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cagp_dist.gram.base import Array

Operator = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """What conjugate gradients reached.

    Attributes
    ----------
    value : array of float64, shape (r, n)
        A solution in each row.
    products : int
        Products with the matrix (and with the preconditioner) that it took.
    relative_residual : array of float64, shape (r,)
        ``|b - G v| / |b|``, recomputed from the solution, not taken from the recurrence.
    tolerance : float
        What was asked for.
    """

    value: Array
    products: int
    relative_residual: Array
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether every residual is within 1.1 times the tolerance."""
        return bool((self.relative_residual <= 1.1 * self.tolerance).all())


def conjugate_gradients(
    product: Operator,
    right: Array,
    *,
    precondition: Operator,
    tolerance: float,
    iterations: int,
) -> LinearSolution:
    """Solve ``G v = b`` for symmetric positive definite G, row by row of ``right``.

    Parameters
    ----------
    product, precondition : callable
        ``G`` and an approximation of ``G^-1`` applied to the rows of an array (r, n).
    right : array of float64, shape (r, n)
        Right-hand sides.
    tolerance : float
        Relative residual at which a row is done.
    iterations : int
        Products at most.

    Returns
    -------
    LinearSolution
        Each iteration is one product, one application of the preconditioner and 10 n r flops; the true
        residual at the end is one product more. Memory 40 n r bytes. Source: [Saad 2003, algorithm 9.1].
    """
    value = np.zeros_like(right)
    residual = right.copy()
    norms = np.linalg.norm(right, axis=1)
    bound = tolerance * norms
    direction = np.zeros_like(right)
    before = np.ones(len(right))
    products = 0
    while products < iterations:
        active = np.linalg.norm(residual, axis=1) > bound
        if not active.any():
            break
        preconditioned = precondition(residual)
        along = _dot(residual, preconditioned)
        direction = preconditioned + (along / before if products else 0.0 * along)[:, None] * direction
        image = product(direction)
        products += 1
        curvature = _dot(direction, image)
        step = np.divide(along, curvature, out=np.zeros_like(along), where=active & (curvature > 0.0))
        value += step[:, None] * direction
        residual -= step[:, None] * image
        before = np.where(along > 0.0, along, 1.0)
    left = np.linalg.norm(right - product(value), axis=1) if products else norms
    relative = np.divide(left, norms, out=np.zeros_like(left), where=norms > 0.0)
    return LinearSolution(value, products, relative, tolerance)


def _dot(left: Array, right: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", left, right))
