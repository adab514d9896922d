"""Where inducing points are put among the observed points."""

from typing import get_args

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.checks import as_points, check_count, check_word
from cagp_dist.geometry import space_filling_order
from cagp_dist.kernels import Kernel
from cagp_dist.solvers.low_rank import partial_cholesky
from cagp_dist.solvers.pseudo_inputs import Placement
from cagp_dist.solvers.subsets import random_points

CANDIDATES = 8
"""Points for each inducing point among which it is looked for: 64 m^2 bytes."""


def inducing_points(
    kernel: Kernel, X: Array, count: int, *, placement: Placement = "space-filling", seed: int = 0
) -> Array:
    """Choose inducing points among the observed ones.

    Parameters
    ----------
    kernel : Kernel
        With which numbers the field is expected to vary, for the space-filling placement.
    X : array of float64, shape (n, p)
        Observed points.
    count : int
        m, at least 1.
    placement : {"space-filling", "random"}
        As in `cagp_dist.PseudoInputs`. Space filling: next comes the point whose prior variance, given the
        field at those before, is largest, among at most 8 m points that are evenly spread. Random: drawn
        with ``seed``; a larger count begins with the same points.
    seed : int
        Of the random placement.

    Returns
    -------
    array of float64, shape (m, p)
        Fewer, if the points are fewer or, space filling, the field at these says all about the others up to
        rounding. Cost 8 m^3 flops and 64 m^2 bytes.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.linspace(0.0, 1.0, 9).reshape(-1, 1)
    >>> inducing_points(cagp.Matern32(0.5), X, 3).ravel()
    array([0. , 1. , 0.5])
    """
    points = as_points("X", X)
    check_count("count", count, least=1)
    check_word("placement", placement, get_args(Placement))
    check_count("seed", seed, least=0)
    if placement == "random":
        return points[random_points(len(points), count, seed)]
    if len(points) > CANDIDATES * count:
        order = space_filling_order(points, block_size=1)
        points = points[order[np.linspace(0, len(points) - 1, CANDIDATES * count).round().astype(int)]]
    return points[partial_cholesky(kernel, points, rank=count).chosen]
