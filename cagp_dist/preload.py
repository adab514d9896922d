"""Makes a Dask worker ready before it takes tasks: ``dask worker --preload cagp_dist.preload``.

The first task of a worker otherwise imports the package and loads compiled code, a second or two in which
everything that depends on it waits. Where a worker was lost in the middle of a solve and another one takes
its place, all workers do.
"""

import contextlib

import numpy as np


def dask_setup(worker: object) -> None:
    """Import what tasks need, and load compiled code that is on disk; called by Dask when a worker starts.

    Nothing is compiled here, which may take longer than anyone waits for a worker: where code is not on disk
    yet, the first task that needs it compiles it.

    Parameters
    ----------
    worker : distributed.Worker
        Is not looked at.
    """
    from cagp_dist.compilation import NotKeptError, only_what_is_kept

    with only_what_is_kept(), contextlib.suppress(NotKeptError):
        _touch()


def _touch() -> None:
    """Evaluate a few entries by each way that tasks take, for a kernel with one lengthscale."""
    from cagp_dist.gram.tiled import kernel_panel, lower_strip_product, rows_product
    from cagp_dist.kernels import Matern32
    from cagp_dist.solvers import projected_tiles, recurrence_tiles, tile_tasks, tiles  # noqa: F401

    kernel, points = Matern32(1.0).parameters, np.zeros((3, 2))
    kernel_panel(kernel, points, points)
    for columns in (1, 2):
        rows_product(kernel, points, points, np.zeros((2, columns)), 2)
    lower_strip_product(kernel, points, np.zeros(2), [(0, 1), (1, 2)], (0, 2))
