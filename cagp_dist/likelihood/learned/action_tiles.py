"""Kernel matrices seen through block-sparse actions, and their gradients, tile by tile (math 11).

    forward    U = k(X, X) S                 (n, i), from tiles of which each is used on both sides
    backward   <W S', dk(X, X)>              by each lengthscale and variance
               sum over rows of k(X, X) W    by each entry of S

Every number of U is written by one task alone, and sums go in the order of the tiles.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.kernels import Kernel, point_columns
from cagp_dist.likelihood.learned.objective import KernelArrays
from cagp_dist.runtime import Executor, Handle
from cagp_dist.solvers.actions.block_products import tile_products
from cagp_dist.solvers.actions.block_sparse import BlockLayout
from cagp_dist.tiling import Range

# Tasks for each worker that are under way at a time: what they return is written down before more begin
AHEAD = 4


class ActionTiles:
    """The tiles of a kernel matrix at points in the order of blocks. Shapes: ``X`` (n, p)."""

    def __init__(self, X: Array, layout: BlockLayout, *, executor: Executor) -> None:
        self._layout, self._executor = layout, executor
        self._tiles = layout.tiles
        # places in the order of the blocks that each tile has, and where its blocks begin and end there
        self.rows = [layout.rows(tile) for tile in self._tiles]
        self.edges = [layout.edges_within(tile) for tile in self._tiles]
        ordered = X[layout.order]
        self._points = [point_columns(ordered[rows]) for rows in self.rows]

    def forward(self, kernel: Kernel, values: Array) -> Array:
        """``U = k(X, X) S``, rows in the order of the blocks, shape (n, i), for entries in that order."""
        out = np.empty((len(self._layout.order), self._layout.blocks))

        def submit(a: int, b: int) -> Handle[tuple[Array, Array]]:
            return self._executor.submit(
                tile_products,
                kernel.parameters,
                self._points[a],
                self._points[b],
                values[self.rows[a]],
                self.edges[a],
                values[self.rows[b]],
                self.edges[b],
                a != b,
                home=a,
            )

        for group in self._groups():
            found = self._executor.gather([submit(a, b) for a, b in group])
            for (a, b), (product, mirrored) in zip(group, found, strict=True):
                out[self.rows[a], slice(*self._tiles[b])] = product
                if a != b:
                    out[self.rows[b], slice(*self._tiles[a])] = mirrored.T
        return out

    def backward(self, kernel: KernelArrays, values: Array, weights: Array) -> tuple[Array, Array]:
        """Differentiate ``<W, k(X, X) S>`` for values (n,), weights (n, i): (m, p + 1) and (n,)."""
        by_kernel = np.zeros((len(kernel.families), kernel.inverse_lengthscales.shape[1] + 1))
        by_value = np.zeros(len(values))

        def submit(a: int, b: int) -> Handle[tuple[Array, Array, Array]]:
            rows, others = self.rows[a], self.rows[b]
            across = np.ascontiguousarray(weights[others, slice(*self._tiles[a])].T)
            return self._executor.submit(
                tile_gradients,
                kernel,
                self._points[a],
                self._points[b],
                values[rows],
                self.edges[a],
                values[others],
                self.edges[b],
                np.ascontiguousarray(weights[rows, slice(*self._tiles[b])]),
                across if a != b else across[:0],
                home=a,
            )

        for group in self._groups():
            found = self._executor.gather([submit(a, b) for a, b in group])
            for (a, b), (part, by_row, by_other) in zip(group, found, strict=True):
                by_kernel += part
                by_value[self.rows[a]] += by_row
                by_value[self.rows[b]] += by_other
        return by_kernel, by_value

    def _groups(self) -> Iterator[list[Range]]:
        """Tiles on and below the diagonal, so many at a time."""
        pairs = ((a, b) for a in range(len(self._tiles)) for b in range(a + 1))
        while group := list(islice(pairs, AHEAD * self._executor.workers)):
            yield group


def tile_gradients(
    kernel: KernelArrays,
    X: Array,
    Z: Array,
    x_values: Array,
    x_edges: Indices,
    z_values: Array,
    z_edges: Indices,
    weights: Array,
    mirrored: Array,
) -> tuple[Array, Array, Array]:
    """Differentiate by the kernel, and by the entries of S on both sides; see `add_block_gradients`."""
    from cagp_dist.compiled import add_block_gradients

    by_kernel = np.zeros((len(kernel.families), X.shape[0] + 1))
    by_row, by_other = np.zeros(X.shape[1]), np.zeros(Z.shape[1])
    add_block_gradients(
        *kernel, X, Z, x_values, x_edges, z_values, z_edges, weights, mirrored, by_kernel, by_row, by_other
    )
    return by_kernel, by_row, by_other
