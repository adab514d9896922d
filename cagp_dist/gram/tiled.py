"""The Gram matrix as tiles that are computed where they are used; nothing n x n is stored.

`TiledGram` holds the points and the noise, 8 n (p + 1) bytes. The functions below it are the tasks
that executors run: plain functions of arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cagp_dist.gram.base import Array
from cagp_dist.kernels import Kernel, coordinates
from cagp_dist.runtime import Executor, Handle, SerialExecutor, single_threaded_blas
from cagp_dist.tiling import POINT_TILE, Range, block_ranges, subtile_shape, triangle_strips

Parameters = tuple[int, float, float]

NARROW = 8
"""Products of at most this many columns use every tile twice (evaluation is most of their cost)."""

STRIPS = 16
"""Tasks of a symmetric product; a constant, so that the order of its sums never changes."""

NOT_STORED = np.empty(0)
"""In place of a stored tile: evaluate it where it is used."""


@dataclass(frozen=True, eq=False)
class TiledGram:
    """``G = k(X, X) + diag(noise)`` by tiles.

    Parameters
    ----------
    kernel : Kernel
        Covariance of the field.
    X : array of float64, shape (n, p)
        Observed points, in solver order.
    noise_variance : array of float64, shape (n,)
        Added to the diagonal; squared unit of y.
    tile : int
        Points of a tile side.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.linspace(0.0, 1.0, 5).reshape(-1, 1)
    >>> gram = cagp.TiledGram(cagp.Matern12(lengthscale=1.0), X, noise_variance=np.full(5, 0.1))
    >>> (gram @ np.ones(5)).round(3)
    array([3.625, 3.953, 4.057, 3.953, 3.625])
    """

    kernel: Kernel
    X: Array
    noise_variance: Array
    tile: int = POINT_TILE

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n)."""
        return len(self.X), len(self.X)

    @cached_property
    def points(self) -> Array:
        """Points as a (p, n) array, the layout of the compiled functions."""
        return coordinates(self.X)

    def diagonal(self) -> Array:
        """Diagonal of G, shape (n,)."""
        return self.kernel.variance + self.noise_variance

    def block(self, rows: slice, columns: slice) -> Array:
        """Dense block ``G[rows, columns]``."""
        block = self.kernel(self.X[rows], self.X[columns])
        index = np.arange(len(self.X))
        same_row, same_column = np.nonzero(index[rows, None] == index[None, columns])
        block[same_row, same_column] += self.noise_variance[rows][same_row]
        return block

    def __matmul__(self, columns: Array) -> Array:
        """``G @ columns`` in this thread; `product` does it on an executor."""
        with single_threaded_blas():
            return self.product(columns, executor=SerialExecutor())

    def product(self, columns: Array, *, executor: Executor) -> Array:
        """``G @ columns``.

        Up to `NARROW` columns each tile below the diagonal is evaluated once and used for both of
        its places; wider products evaluate every tile and need no sums across tasks.

        Parameters
        ----------
        columns : array of float64, shape (n,) or (n, r)
            Right-hand sides.
        executor : Executor
            Where the tile products run. The result does not depend on it.

        Returns
        -------
        array of float64, the shape of ``columns``
            Cost n^2 evaluations (half of that when narrow) and 2 n^2 r flops; memory 8 n r bytes,
            times up to `STRIPS` when narrow.
        """
        tall = np.ascontiguousarray(columns.reshape(len(self.X), -1), dtype=np.float64)
        if tall.shape[1] <= NARROW:
            result = self._narrow_product(tall, executor)
        else:
            result = self._wide_product(tall, executor)
        result += self.noise_variance[:, None] * tall
        return result.reshape(columns.shape)

    def _narrow_product(self, columns: Array, executor: Executor) -> Array:
        tiles = block_ranges(len(self.X), self.tile)
        points: Handle[Array] = executor.submit(identity, self.points)
        shared: Handle[Array] = executor.submit(identity, columns)
        parts = [
            executor.submit(lower_strip_product, self.kernel.parameters, points, shared, tiles, strip)
            for strip in triangle_strips(len(tiles), STRIPS)
        ]
        result = np.zeros_like(columns)
        for part in parts:  # in strip order, whoever finishes first
            (rows,) = executor.gather([part])
            result[: len(rows)] += rows
        return result

    def _wide_product(self, columns: Array, executor: Executor) -> Array:
        return cross_product(self.kernel, self.X, self.X, columns, executor=executor, tile=self.tile)


def cross_product(
    kernel: Kernel, rows: Array, X: Array, columns: Array, *, executor: Executor, tile: int = POINT_TILE
) -> Array:
    """``k(rows, X) @ columns`` by tiles, shape (q, r) for rows (q, p), X (n, p), columns (n, r)."""
    points, coefficients = coordinates(X), np.ascontiguousarray(columns)
    shared_points: Handle[Array] = executor.submit(identity, points)
    shared_columns: Handle[Array] = executor.submit(identity, coefficients)
    parts = [
        executor.submit(
            rows_product,
            kernel.parameters,
            coordinates(rows[start:stop]),
            shared_points,
            shared_columns,
            tile,
        )
        for start, stop in block_ranges(len(rows), tile)
    ]
    return np.concatenate(executor.gather(parts)) if parts else np.empty((0, columns.shape[1]))


def identity(value: Array) -> Array:
    """Return the value: puts an array on a worker as the result of a task, which can be repeated."""
    return value


def rows_product(kernel: Parameters, rows: Array, points: Array, columns: Array, tile: int) -> Array:
    """``k(rows, points) @ columns`` for one tile of rows."""
    from cagp_dist.compiled import add_product, add_product_vector

    out = np.zeros((rows.shape[1], columns.shape[1]))
    if columns.shape[1] == 1:
        add_product_vector(*kernel, rows, points, columns[:, 0].copy(), out[:, 0])
        return out
    shape = subtile_shape(columns.shape[1])
    for start, stop in block_ranges(points.shape[1], tile):
        Z = np.ascontiguousarray(points[:, start:stop])
        add_product(*kernel, rows, Z, NOT_STORED, False, columns[start:stop], *shape, out)
    return out


def lower_strip_product(
    kernel: Parameters, points: Array, columns: Array, tiles: Sequence[Range], strip: Range
) -> Array:
    """Contribution of the tile rows ``strip`` of the lower triangle, used on both sides.

    Returns
    -------
    array of float64, shape (last row of the strip, r)
        To be added to the first rows of the product.
    """
    from cagp_dist.compiled import add_product_vector, add_symmetric_product_vector

    n = tiles[strip[1] - 1][1]
    out = np.zeros((columns.shape[1], n))
    vectors = np.ascontiguousarray(columns[:n].T)
    for a in range(*strip):
        row = slice(*tiles[a])
        X = np.ascontiguousarray(points[:, row])
        for vector, target in zip(vectors, out, strict=True):
            add_product_vector(*kernel, X, X, vector[row], target[row])
            for b in range(a):
                column = slice(*tiles[b])
                Z = np.ascontiguousarray(points[:, column])
                add_symmetric_product_vector(
                    *kernel, X, Z, vector[row], vector[column], target[row], target[column]
                )
    return out.T


def lower_tile(kernel: Parameters, X: Array, Z: Array, columns: int) -> Array:
    """Evaluate the tile ``k(X, Z)`` to be kept and multiplied by ``columns`` columns many times."""
    from cagp_dist.compiled import evaluate_tile

    stored = np.empty(X.shape[1] * Z.shape[1])
    evaluate_tile(*kernel, X, Z, *subtile_shape(columns), stored)
    return stored


def kernel_panel(kernel: Parameters, tiles: Sequence[Array], Z: Array) -> Array:
    """``k(X, Z)`` for the row tiles of a panel, one below the other."""
    from cagp_dist.compiled import evaluate

    out = np.empty((sum(tile.shape[1] for tile in tiles), Z.shape[1]))
    start = 0
    for tile in tiles:
        evaluate(*kernel, tile, Z, out[start : start + tile.shape[1]])
        start += tile.shape[1]
    return out


def subtract_block_column(
    kernel: Parameters,
    tiles: Sequence[Array],
    Z: Array,
    columns: Array,
    *,
    above: int,
    stored: Sequence[Array],
    out: Array,
) -> None:
    """``out -= k(rows, Z) @ columns`` for the rows of some tiles: one step of a sweep (math 3).

    Every tile is one compiled call of its own, so a row of the result does not depend on how row
    tiles are gathered into panels.

    Parameters
    ----------
    kernel : tuple
        Kernel parameters.
    tiles : list of arrays, shapes (p, rows of the tile)
        Points of the row tiles.
    Z : array of float64, shape (p, m)
        Points of the block that was eliminated.
    columns : array of float64, shape (m, r)
        Solution of the block.
    above : int
        How many of the tiles lie above the block: their part of G is used as the transpose of the
        tile below the diagonal, so that one stored tile serves both places.
    stored : list of arrays
        Per tile, its stored entries, or an empty array.
    out : array of float64, shape (rows of all tiles, r)
        Changed in place.
    """
    from cagp_dist.compiled import add_product, add_product_vector

    change = np.negative(columns)
    shape = subtile_shape(columns.shape[1])
    start = 0
    for index, X in enumerate(tiles):
        rows = out[start : start + X.shape[1]]
        if columns.shape[1] == 1:
            add_product_vector(*kernel, X, Z, change[:, 0], rows[:, 0])
        elif index < above:
            add_product(*kernel, Z, X, stored[index], True, change, *shape, rows)
        else:
            add_product(*kernel, X, Z, stored[index], False, change, *shape, rows)
        start += X.shape[1]
