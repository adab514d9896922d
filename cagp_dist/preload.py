"""Makes a Dask worker ready before it takes tasks: ``dask worker --preload cagp_dist.preload``.

``python -m cagp_dist.preload`` compiles the same functions and keeps them on disk. Otherwise the first task
of a worker takes a second or two more, and where it stands in for a lost one all others wait for it.
"""

import contextlib
from collections.abc import Callable
from functools import partial

import numpy as np


def dask_setup(worker: object) -> None:
    """Import what tasks need, and load compiled code that is on disk; called by Dask when a worker starts."""
    from cagp_dist.compilation import NotKeptError, no_compilation

    for evaluate in ways_of_evaluation():
        with no_compilation(), contextlib.suppress(NotKeptError):
            evaluate()


def evaluate_every_way() -> None:
    """Load what `ways_of_evaluation` needs from disk, and compile what is not there, 9 s in all."""
    for evaluate in ways_of_evaluation():
        evaluate()


def ways_of_evaluation() -> list[Callable[[], object]]:
    """Give functions that evaluate a kernel at two points by all ways of solvers, for any kernel to come."""
    # what solvers send to workers is in these modules
    from cagp_dist import lapack
    from cagp_dist.compiled import evaluate_rings
    from cagp_dist.gram.neighbourhoods import Settings, cell_distributions
    from cagp_dist.gram.tiled import kernel_panel, lower_strip_product, rows_product, stored_tile_row
    from cagp_dist.gram.vecchia_factor import conditional_weights
    from cagp_dist.kernels import Matern32

    kernel, points = Matern32(1.0).parameters, np.zeros((3, 2))
    cell = np.zeros((3, 2)), np.ones(3), np.zeros((3, 1)), np.zeros((1, 2))
    column, columns = np.zeros((2, 1)), np.zeros((2, 2))
    return [
        partial(kernel_panel, kernel, points, points),
        partial(stored_tile_row, kernel, [points], 2),
        partial(rows_product, kernel, points, points, columns, 2),
        partial(rows_product, kernel, points, points, column, 2),
        partial(lower_strip_product, kernel, points, column[:, 0], [(0, 1), (1, 2)], (0, 2)),
        partial(evaluate_rings, *kernel, np.zeros(1), np.zeros(1), np.zeros(1), np.empty((1, 1))),
        partial(conditional_weights, kernel, points, np.ones(2), np.array([[-1, 0], [0, 1]])),
        partial(cell_distributions, Matern32(1.0), *cell, Settings(2, 0, 1)),
        partial(lapack.multiply_lower, np.eye(2)[None], column[None]),
    ]


if __name__ == "__main__":
    evaluate_every_way()
