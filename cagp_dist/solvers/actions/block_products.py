"""What a problem looks like through block-sparse actions, tile by tile; nothing of the size of S is stored.

::

    S'K S     every tile of points is evaluated once, and summed over the blocks of both sides
    V S       every tile of targets and points once

n^2 / 2 and n q kernel entries; 8 (i^2 + i q) bytes.
"""

from functools import partial

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.gram.gram_matrix import Gram
from cagp_dist.gram.targets import Targets, averaged, target_points
from cagp_dist.kernels import Kernel, Parameters, point_columns
from cagp_dist.runtime import Executor, Handle
from cagp_dist.solvers.actions.batch_projection import Projected
from cagp_dist.solvers.actions.block_sparse import TILE, BlockLayout, block_sums
from cagp_dist.tiling import block_ranges

TARGETS_OF_BOX = 64  # Targets that are left out of a sum together, where they are too far from a block


def projected(
    gram: Gram, residuals: Array, targets: Targets, layout: BlockLayout, values: Array, *, executor: Executor
) -> Projected:
    """Look at a problem through actions; ``residuals`` (n, T), ``values`` (n,)."""
    entries = values[layout.order]
    matrix = kernel_of_actions(gram.kernel, gram.X, layout, entries, executor=executor)
    noise = block_sums((entries**2 * gram.noise_variance[layout.order])[:, None], layout.edges)
    seen = cross_with_actions(gram.kernel, target_points(targets), gram.X, layout, entries, executor=executor)
    right = block_sums(entries[:, None] * residuals[layout.order], layout.edges)
    return Projected(matrix + np.diag(noise[:, 0]), averaged(targets, seen), right, 0)


def kernel_of_actions(
    kernel: Kernel, X: Array, layout: BlockLayout, entries: Array, *, executor: Executor
) -> Array:
    """``S'K S``, shape (i, i), for entries of S in the order of the blocks."""
    pieces, tiles = _pieces(X, layout, entries), layout.tiles
    pairs = [(a, b) for a in range(len(tiles)) for b in range(a + 1)]
    handles: list[Handle[Array]] = [
        executor.submit(tile_of_actions, kernel.parameters, *pieces[a], *pieces[b], home=a) for a, b in pairs
    ]
    out = np.empty((layout.blocks, layout.blocks))
    for (a, b), part in zip(pairs, executor.gather(handles), strict=True):
        rows, columns = slice(*tiles[a]), slice(*tiles[b])
        out[rows, columns] = 0.5 * (part + part.T) if a == b else part
        out[columns, rows] = out[rows, columns].T
    return out


def cross_with_actions(
    kernel: Kernel, targets: Array, X: Array, layout: BlockLayout, entries: Array, *, executor: Executor
) -> Array:
    """``k(targets, X) S``, shape (q, i), for targets (q, p)."""
    pieces, tiles = _pieces(X, layout, entries), layout.tiles
    rows = block_ranges(len(targets), TILE)
    submit = partial(executor.submit, tile_of_targets, kernel.parameters)
    pairs = [(a, b) for a in range(len(rows)) for b in range(len(tiles))]
    handles: list[Handle[Array]] = [
        submit(point_columns(targets[slice(*rows[a])]), *pieces[b], home=a) for a, b in pairs
    ]
    out = np.empty((len(targets), layout.blocks))
    for (a, b), part in zip(pairs, executor.gather(handles), strict=True):
        out[slice(*rows[a]), slice(*tiles[b])] = part
    return out


def _pieces(X: Array, layout: BlockLayout, entries: Array) -> list[tuple[Array, Array, Indices]]:
    """Points (p, n), entries (n,) and edges of the blocks of each tile."""
    rows = [layout.rows(tile) for tile in layout.tiles]
    return [
        (point_columns(X[layout.order[here]]), entries[here], layout.edges_within(tile))
        for here, tile in zip(rows, layout.tiles, strict=True)
    ]


def tile_products(
    kernel: Parameters,
    X: Array,
    Z: Array,
    x_values: Array,
    x_edges: Indices,
    z_values: Array,
    z_edges: Indices,
    both: bool,
) -> tuple[Array, Array]:
    """``k(X, Z) S_Z``, shape (n, b), and the transpose of ``k(Z, X) S_X``, (a, m), or none of its rows."""
    from cagp_dist.compiled import add_block_products

    out = np.zeros((X.shape[1], len(z_edges) - 1))
    mirrored = np.zeros(((len(x_edges) - 1) * both, Z.shape[1]))
    add_block_products(*kernel, X, Z, x_values, x_edges, z_values, z_edges, out, mirrored)
    return out, mirrored


def tile_of_actions(
    kernel: Parameters,
    X: Array,
    x_values: Array,
    x_edges: Indices,
    Z: Array,
    z_values: Array,
    z_edges: Indices,
) -> Array:
    """``S_X' k(X, Z) S_Z``, shape (a, b)."""
    out, _ = tile_products(kernel, X, Z, x_values, x_edges, z_values, z_edges, False)
    return block_sums(x_values[:, None] * out, x_edges)


def tile_of_targets(kernel: Parameters, X: Array, Z: Array, values: Array, edges: Indices) -> Array:
    """``k(X, Z) S_Z`` for targets X, shape (q, b)."""
    q = X.shape[1]
    boxes = np.array([*range(0, q, TARGETS_OF_BOX), q], dtype=np.intp)
    out, _ = tile_products(kernel, X, Z, np.zeros(q), boxes, values, edges, False)
    return out
