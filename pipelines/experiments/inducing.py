"""Where inducing points are put among the observed points."""

from typing import get_args

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.checks import as_points, check_count, check_word
from cagp_dist.geometry import space_filling_order
from cagp_dist.kernels import Kernel
from cagp_dist.solvers.actions.pseudo_inputs import Placement
from cagp_dist.solvers.actions.subsets import random_points
from cagp_dist.solvers.stationary.low_rank import partial_cholesky

CANDIDATES = 8
"""Points for each inducing point among which it is looked for: 64 m^2 bytes."""


def inducing_points(
    kernel: Kernel, X: Array, count: int, *, placement: Placement = "space-filling", seed: int = 0
) -> Array:
    """Choose inducing points among the observed ones.

    Shapes: ``X`` (n, p); returns (m, p).
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
