"""Leave-one-out prediction, for every Gram matrix that can be inverted."""

from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array


class LeaveOneOut(NamedTuple):
    """What all other points predict at each point.

    Attributes
    ----------
    mean : array of float64, the shape of the values
        Predicted value, in the unit of the field.
    variance : array of float64, shape (n,), or (P, Q) on a grid
        Variance of the observed value about it, noise included.
    """

    mean: Array
    variance: Array


def from_others(values: Array, weights: Array, precision: Array) -> LeaveOneOut:
    """Predict each value from all others, exactly and all at once.

    ``mean = b - [G^-1 b]_i / [G^-1]_ii``, ``variance = 1 / [G^-1]_ii`` (math 7; [Rasmussen & Williams 2006,
    eq. 5.12]). ``weights`` are ``G^-1 b``, ``precision`` is the diagonal of ``G^-1``; with a mean that is
    estimated both are of ``G^-1 - G^-1 H (H' G^-1 H)^-1 H' G^-1``.
    """
    return LeaveOneOut(values - weights / precision, np.asarray(1.0 / precision))
