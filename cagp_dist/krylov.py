"""Conjugate gradients for several right-hand sides at once, with any preconditioner.

::

    z = M^-1 r                                  precondition
    d = z - (d_last' G z / curvature_last) d_last
    curvature = d' G d,   rho = d' r,   v += (rho / curvature) d,   r -= (rho / curvature) G d

The new direction is made conjugate to the last one by an inner product, not by a ratio of residual norms. In
exact arithmetic that is the same; it is also right where the preconditioner is not symmetric, like a
Gauss-Seidel sweep, or changes (flexible conjugate gradients, [Notay 2000, doi:10.1137/S1064827599362314]).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import NumericalError

Operator = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """What conjugate gradients reached."""

    value: Array  #: (r, n): a solution in each row
    residual: Array  #: (r, n): ``b - G v`` of the recurrence
    products: int  #: Iterations: products with the matrix, and applications of the preconditioner
    relative_residual: Array  #: (r,): ``|b - G v| / |b|``
    tolerance: float  #: The relative residual that was asked for

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
    recompute: bool = True,
) -> LinearSolution:
    """Solve ``G v = b`` for symmetric positive definite G, row by row of ``right`` (r, n).

    ``product`` and ``precondition`` apply G, and an approximation of its inverse, to rows. A row is done at
    the relative residual ``tolerance``, or after ``iterations`` products. With ``recompute`` the relative
    residual is that of the solution, which takes one more product, else that of the recurrence. An iteration
    takes 16 n r flops beside these two, and 64 n r bytes.

    Raises
    ------
    NumericalError
        If a norm is not finite.
    """
    # in units of a power of two near the largest entry of each row: no square under- or overflows, and no
    # other bit changes
    _, exponent = np.frexp(np.abs(right).max(axis=1, initial=0.0))
    unit = np.ldexp(1.0, exponent - 1)[:, None]
    residual = right / unit
    norms = _norms(residual)
    value = np.zeros_like(residual)
    bound = tolerance * norms
    direction, image = np.zeros_like(residual), np.zeros_like(residual)
    curvature = np.zeros(len(right))
    products = 0
    while products < iterations:
        active = _norms(residual) > bound
        if not active.any():
            break
        fresh = precondition(residual)
        fresh_image = product(fresh)
        overlap = _ratio(_dot(image, fresh), curvature)
        direction = fresh - overlap[:, None] * direction
        image = fresh_image - overlap[:, None] * image
        products += 1
        curvature = _finite(_dot(direction, image))
        if not (curvature[active] > 0.0).any():
            break  # no row can move: a matrix or preconditioner that is not positive definite
        rho = _dot(direction, residual)
        step = np.where(active, _ratio(rho, curvature), 0.0)
        value += step[:, None] * direction
        residual -= step[:, None] * image
    final = right / unit - product(value) if recompute and products else residual
    relative = _ratio(_norms(final), norms)
    value *= unit
    residual *= unit
    return LinearSolution(value, residual, products, relative, tolerance)


def _norms(rows: Array) -> Array:
    return _finite(np.linalg.norm(rows, axis=1))


def _finite(values: Array) -> Array:
    if not np.isfinite(values).all():
        raise NumericalError(
            "conjugate gradients met values that are NaN or infinite, in a right-hand side or in what the "
            "matrix or the preconditioner made of it. Check the observed values, or raise noise_variance."
        )
    return values


def _ratio(numerator: Array, denominator: Array) -> Array:
    """Quotient, zero where the denominator is not above zero."""
    return np.asarray(
        np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0.0)
    )


def _dot(left: Array, right: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", left, right))
