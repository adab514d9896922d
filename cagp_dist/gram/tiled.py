"""The Gram matrix as tiles that are computed where they are used; nothing n x n is stored.

The functions below `TiledGram` are the tasks that executors run: plain functions of arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.checks import as_points, check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.gram.gram_matrix import ExactSolve, check_noise
from cagp_dist.gram.targets import Targets, averaged, target_points
from cagp_dist.kernels import Kernel, Parameters, point_columns
from cagp_dist.runtime import Executor, Handle, SerialExecutor, single_threaded_blas
from cagp_dist.runtime.counting import count
from cagp_dist.tiling import POINT_TILE, STRIPS, Range, block_ranges, subtile_shape, triangle_strips

T = TypeVar("T")

NOT_STORED = np.empty(0)  # Instead of a stored tile: evaluate it where it is used


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
        Added to the diagonal; squared unit of y, at least zero.
    tile : int
        Points of a tile side.

    Raises
    ------
    ArgumentError
        If points are not finite or not those of the kernel, or the noise has another shape or a negative
        entry.

    Examples
    --------
    >>> import numpy as np, cagp_dist as cagp
    >>> X = np.linspace(0.0, 1.0, 5).reshape(-1, 1)
    >>> gram = cagp.TiledGram(cagp.Matern12(lengthscale=1.0), X, noise_variance=np.full(5, 0.1))
    >>> (gram @ np.ones(5)).round(3)
    array([3.326, 3.736, 3.871, 3.736, 3.326])
    """

    kernel: Kernel
    X: Array
    noise_variance: Array
    tile: int = POINT_TILE

    def __post_init__(self) -> None:
        self.kernel.check_coordinates(as_points("X", self.X))
        check_noise(self.noise_variance, n=len(self.X))
        check_count("tile", self.tile, least=1)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n)."""
        return len(self.X), len(self.X)

    @cached_property
    def points(self) -> Array:
        """Points as a (p, n) array, the layout of the compiled functions."""
        return point_columns(self.X)

    def diagonal(self) -> Array:
        """Diagonal of G, shape (n,)."""
        return self.kernel.diagonal(self.X) + self.noise_variance

    def __matmul__(self, columns: Array) -> Array:
        """``G @ columns`` in this thread; `product` does it on an executor."""
        with single_threaded_blas():
            return self.product(columns, executor=SerialExecutor())

    def product(self, columns: Array, *, executor: Executor) -> Array:
        """``G @ columns`` for columns (n,) or (n, r); the result does not depend on the executor.

        With one column each tile below the diagonal is evaluated once and used for both of its places; with
        more, every tile is evaluated where it stands, and no sums across tasks are needed. Cost n^2
        evaluations (half of that for one column) and 2 n^2 r flops; memory 8 n r bytes, times up to `STRIPS`
        for one column.
        """
        n = len(self.X)
        if columns.ndim not in (1, 2) or len(columns) != n:
            raise ArgumentError(
                f"columns has shape {columns.shape}; expected ({n},) or ({n}, r).", key="shapes"
            )
        tall = np.ascontiguousarray(columns[:, None] if columns.ndim == 1 else columns, dtype=np.float64)
        count(products=tall.shape[1])
        if tall.shape[1] == 1:
            result = self._vector_product(tall[:, 0], executor)[:, None]
        else:
            result = cross_product(self.kernel, self.X, self.X, tall, executor=executor, tile=self.tile)
        result += self.noise_variance[:, None] * tall
        return result.reshape(columns.shape)

    def cross(
        self, targets: Targets, columns: Array, *, executor: Executor, product: Array | None = None
    ) -> Array:
        """``k(targets, X) @ columns``, shape (q, r); q n evaluations, 2 q n r flops."""
        return averaged(
            targets, cross_product(self.kernel, target_points(targets), self.X, columns, executor=executor)
        )

    def exact(self, *, executor: Executor) -> ExactSolve | None:
        """None: tiles are swept; for an exact solve store them (`DenseGram`)."""
        return None

    def _vector_product(self, column: Array, executor: Executor) -> Array:
        tiles = block_ranges(len(self.X), self.tile)
        points: Handle[Array] = executor.submit(put_value, self.points)
        shared: Handle[Array] = executor.submit(put_value, column)
        parts = [
            executor.submit(
                lower_strip_product, self.kernel.parameters, points, shared, tiles, strip, home=index
            )
            for index, strip in enumerate(triangle_strips(len(tiles), STRIPS))
        ]
        result = np.zeros_like(column)
        for part in parts:  # in strip order, whoever finishes first
            (rows,) = executor.gather([part])
            result[: len(rows)] += rows
        return result


def cross_product(
    kernel: Kernel, rows: Array, X: Array, columns: Array, *, executor: Executor, tile: int = POINT_TILE
) -> Array:
    """``k(rows, X) @ columns`` by tiles, shape (q, r) for rows (q, p), X (n, p), columns (n, r)."""
    points: Handle[Array] = executor.submit(put_value, point_columns(X))
    shared: Handle[Array] = executor.submit(put_value, np.ascontiguousarray(columns))
    parts = [
        executor.submit(
            rows_product,
            kernel.parameters,
            point_columns(rows[start:stop]),
            points,
            shared,
            tile,
            home=index,
        )
        for index, (start, stop) in enumerate(block_ranges(len(rows), tile))
    ]
    return np.concatenate(executor.gather(parts)) if parts else np.empty((0, columns.shape[1]))


def put_value(value: T) -> T:
    """Return the value: puts it on a worker as the result of a task, which can be repeated."""
    return value


def rows_product(kernel: Parameters, rows: Array, points: Array, columns: Array, tile: int) -> Array:
    """``k(rows, points) @ columns`` for one tile of rows."""
    out = np.zeros((rows.shape[1], columns.shape[1]))
    for start, stop in block_ranges(points.shape[1], tile):
        Z = np.ascontiguousarray(points[:, start:stop])
        add_tile_product(kernel, rows, Z, columns[start:stop], above=False, stored=NOT_STORED, out=out)
    return out


def lower_strip_product(
    kernel: Parameters, points: Array, column: Array, tiles: Sequence[Range], strip: Range
) -> Array:
    """Contribution of tile rows ``strip`` of the lower triangle to ``G @ column``, up to the last of them."""
    from cagp_dist.compiled import add_product_vector, add_symmetric_product_vector

    out = np.zeros(tiles[strip[1] - 1][1])
    for a in range(*strip):
        row = slice(*tiles[a])
        X = np.ascontiguousarray(points[:, row])
        add_product_vector(*kernel, X, X, column[row], out[row])
        for b in range(a):
            other = slice(*tiles[b])
            Z = np.ascontiguousarray(points[:, other])
            add_symmetric_product_vector(*kernel, X, Z, column[row], column[other], out[row], out[other])
    return out


def stored_tile_row(kernel: Parameters, blocks: Sequence[Array], columns: int) -> Array:
    """Evaluate the tiles left of and on the diagonal in one row, to be multiplied many times."""
    from cagp_dist.compiled import evaluate_tile

    X = blocks[-1]
    out = np.empty(X.shape[1] * sum(Z.shape[1] for Z in blocks))
    start = 0
    for Z in blocks:
        stop = start + X.shape[1] * Z.shape[1]
        evaluate_tile(*kernel, X, Z, *subtile_shape(columns), out[start:stop])
        start = stop
    return out


def kernel_panel(kernel: Parameters, points: Array, Z: Array) -> Array:
    """``k(points, Z)`` for the rows of a panel."""
    from cagp_dist.compiled import evaluate

    out = np.empty((points.shape[1], Z.shape[1]))
    evaluate(*kernel, points, Z, out)
    return out


def add_tile_product(
    kernel: Parameters, X: Array, Z: Array, columns: Array, *, above: bool, stored: Array, out: Array
) -> None:
    """``out += k(X, Z) @ columns``, X (p, n) and Z (p, m), in the one way every executor computes it."""
    from cagp_dist.compiled import add_product, add_product_vector

    shape = subtile_shape(columns.shape[1])
    if columns.shape[1] == 1:
        add_product_vector(*kernel, X, Z, columns[:, 0], out[:, 0])
    elif above:
        add_product(*kernel, Z, X, stored, True, columns, *shape, out)
    else:
        add_product(*kernel, X, Z, stored, False, columns, *shape, out)
