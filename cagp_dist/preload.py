"""Makes a Dask worker ready before it takes tasks: ``dask worker --preload cagp_dist.preload``.

Otherwise the first task of a worker takes a second or two more, and where it stands in for a lost one all
others wait for it. ``python -m cagp_dist.preload`` compiles the same functions and keeps them on disk, with
``--all`` those that fewer calls need as well.
"""

import contextlib
import sys
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


def seldom_evaluated() -> list[Callable[[], object]]:
    """Give functions that evaluate a kernel as samples, learned actions and weights of targets do.

    Also as fits of many points, values left out, draws of censored ones, and errors that groups of
    observations share.
    """
    from cagp_dist.compiled import add_block_gradients, evaluate_diagonal, evaluate_subsets_and_slopes
    from cagp_dist.conditional_draws import add_neighbours, colours_of
    from cagp_dist.factors import SameLabel
    from cagp_dist.gp import condition
    from cagp_dist.gram.left_out_groups import Groups, LeftOutInGroups
    from cagp_dist.gram.neighbourhoods import LEAF, Settings, cell_distributions, cell_weights
    from cagp_dist.gram.vecchia_factor import vecchia_factor
    from cagp_dist.kernels import Matern32
    from cagp_dist.prior import Prior
    from cagp_dist.profiles import Part
    from cagp_dist.runtime import SerialExecutor
    from cagp_dist.solvers.actions.block_products import tile_products
    from cagp_dist.solvers.local.neighbours import Neighbours

    kernel, points, edges = Matern32(1.0), np.arange(6.0).reshape(2, 3), np.array([0, 3])
    values, sums = np.ones(3), np.zeros((1, 3))
    many, column = np.arange(8.0 * LEAF).reshape(-1, 2), np.ones((4 * LEAF, 1))
    settings, one = Settings(2, 1, 1), np.ones((1, 2))
    own = (kernel.profile(Part.VALUE),), (kernel.profile(Part.SHARE),), one, np.ones(1)
    nearest, serial = Neighbours(2), SerialExecutor()
    factor = vecchia_factor(kernel, many, 1.0, neighbours=2, executor=serial)
    blocks = points, points, values, edges, values, edges
    here, ships = np.arange(8.0)[:, None], np.outer(np.arange(8.0), [1.0, 0.0, 0.0, 0.0])
    ships[:, 3] = np.arange(8) // 2
    shared = Prior(kernel + SameLabel(0.2, axis="ship"), 0.1)
    group, each_other = np.array([[0, 1]]), np.array([[1], [0]])
    slopes = *kernel.parameters, *kernel.slope_parameters()[0]
    return [
        partial(evaluate_diagonal, *kernel.parameters, points, values),
        partial(
            evaluate_subsets_and_slopes, *slopes, points, group, np.empty((1, 2, 2)), np.empty((1, 2, 2))
        ),
        partial(factor.draw, column),
        partial(factor.solve, column),
        partial(tile_products, kernel.parameters, *blocks, True),
        partial(add_block_gradients, *own, *blocks, sums.T, sums, np.zeros((1, 3)), values, values),
        partial(
            cell_weights, kernel, many, column[:, 0], np.arange(len(many)), many[:1], settings, len(many)
        ),
        partial(cell_distributions, kernel, many, column[:, 0], column, many[:1], settings),
        partial(
            LeftOutInGroups,
            kernel,
            here,
            np.ones(8),
            here[:, 0],
            np.ones((8, 1)),
            Groups.of(kernel, here),
            serial,
        ),
        partial(colours_of, each_other),
        partial(add_neighbours, group[0], each_other, np.ones((2, 1)), np.eye(2), np.eye(2)),
        partial(condition, shared, ships, here[:, 0], ships[:2], solver=nearest, executor=serial),
    ]


if __name__ == "__main__":
    evaluate_every_way()
    if "--all" in sys.argv:
        for evaluate in seldom_evaluated():
            evaluate()
