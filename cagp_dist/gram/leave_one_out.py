"""Leave-one-out prediction, for every Gram matrix that can be inverted."""

from typing import NamedTuple, Protocol

import numpy as np

from cagp_dist.arrays import Array


class LeaveOneOut(NamedTuple):
    """What all other points predict at each point.

    Attributes
    ----------
    mean : array of float64, the shape of the residuals
        Predicted value, in the unit of the field.
    variance : array of float64, shape (n,), or (P, Q) on a grid
        Variance of the observed value about it, noise included.
    """

    mean: Array
    variance: Array


class Invertible(Protocol):
    """A Gram matrix with solves and the diagonal of its inverse."""

    def solve(self, columns: Array) -> Array: ...

    def inverse_diagonal(self) -> Array: ...


def leave_one_out(gram: Invertible, residuals: Array) -> LeaveOneOut:
    """Predict each point from all others, exactly and all at once.

    ``mean = b - [G^-1 b]_i / [G^-1]_ii``, ``variance = 1 / [G^-1]_ii`` (math 7; [Rasmussen & Williams 2006,
    eq. 5.12]). ``residuals`` b (n,) or (n, T) are observed values minus the prior mean, which the result is
    to have added. Cost of the inverse's diagonal and of a solve.
    """
    variance = 1.0 / gram.inverse_diagonal()
    solved = gram.solve(residuals)
    return LeaveOneOut(residuals - (variance * solved.T).T, np.asarray(variance))
