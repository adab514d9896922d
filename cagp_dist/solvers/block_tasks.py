"""The tasks of a block sweep: plain functions of arrays that an executor runs.

They change nothing they are given, so that a task whose worker died can be run again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from cagp_dist.gram.base import Array
from cagp_dist.gram.dense import cholesky_lower
from cagp_dist.gram.tiled import NOT_STORED, Parameters, add_tile_product
from cagp_dist.tiling import Range


@dataclass(frozen=True, eq=False)
class Factor:
    """What solves with a diagonal block: its Cholesky factor, or the block itself for its triangle.

    ``lower`` is (m, m) in Fortran order, only the lower triangle is used.
    """

    lower: Array
    whole_block: bool


@dataclass(frozen=True, eq=False)
class Solved:
    """Solution of one block and the running sums of the sweep (in block order).

    ``columns`` (m, r) is Z[b]; ``downdate`` is (r,) or (r, r); ``mean`` is (r, T).
    """

    columns: Array
    downdate: Array
    mean: Array


@dataclass(frozen=True)
class PanelTile:
    """A row tile of a panel in one step: its rows, and where it stands.

    ``rows`` counts from the panel's first row; ``above`` says whether the tile lies above the diagonal;
    ``entries`` is its place in the stored tile row, if that is stored.
    """

    rows: Range
    above: bool
    entries: Range


def factor_block(kernel: Parameters, points: Array, noise_variance: Array, whole_block: bool) -> Factor:
    """Evaluate a diagonal block and, for block Gauss-Seidel, factor it: m^3 / 3 flops, 8 m^2 bytes."""
    from cagp_dist.compiled import evaluate

    block = np.empty((points.shape[1], points.shape[1]))
    evaluate(*kernel, points, points, block)
    block[np.diag_indices(len(block))] += noise_variance
    # symmetric: the transpose is the same matrix in Fortran order, without a copy
    return Factor(cholesky_lower(block.T) if whole_block else block.T, whole_block)


def solve_block(
    factor: Factor,
    panel: Array,
    rows: Range,
    pending: list[object],
    residuals: Array,
    sums: Solved,
    adjoint: bool,
) -> Solved:
    """Solve with a diagonal block and add its part of the downdate and of the mean (math 3).

    ``pending`` is empty, or says how to update the block's rows by the step before, whose solution is in
    ``sums``: then the block is solved while panels are still being updated. Cost m^2 r flops for a triangle,
    twice that for a block.
    """
    from scipy.linalg.blas import dtrsm

    if pending:
        panel, rows = _updated_rows(panel, rows, sums, *cast("PendingUpdate", tuple(pending)))
    # BLAS wants columns contiguous: work on the transposes, Z' = Y' op(L)^-1
    target = panel[slice(*rows)].T
    if factor.whole_block:
        half = dtrsm(1.0, factor.lower, target, side=1, lower=1, trans_a=1)
        solution = dtrsm(1.0, factor.lower, half, side=1, lower=1, trans_a=0)
    else:
        solution = dtrsm(1.0, factor.lower, target, side=1, lower=1, trans_a=0 if adjoint else 1)
        half = solution * np.sqrt(factor.lower.diagonal())
    part = half @ half.T if sums.downdate.ndim == 2 else np.einsum("ij,ij->i", half, half)
    return Solved(solution.T, sums.downdate + part, sums.mean + solution @ residuals)


PendingUpdate = tuple[Parameters, Array, PanelTile, Array]


def _updated_rows(
    panel: Array,
    rows: Range,
    solved: Solved,
    kernel: Parameters,
    points: Array,
    tile: PanelTile,
    block_points: Array,
) -> tuple[Array, Range]:
    """Rows of one tile after the step of ``solved``, by the call `update_panel` makes; ``rows`` within it."""
    out = panel[slice(*tile.rows)].copy()
    add_tile_product(
        kernel,
        np.ascontiguousarray(points[:, slice(*tile.rows)]),
        block_points,
        np.negative(solved.columns),
        above=tile.above,
        stored=NOT_STORED,
        out=out,
    )
    return out, (rows[0] - tile.rows[0], rows[1] - tile.rows[0])


def factor_and_solve_block(
    kernel: Parameters,
    points: Array,
    noise_variance: Array,
    whole_block: bool,
    panel: Array,
    rows: Range,
    pending: list[object],
    residuals: Array,
    sums: Solved,
    adjoint: bool,
) -> Solved:
    """`solve_block` with a factor that nobody keeps."""
    factor = factor_block(kernel, points, noise_variance, whole_block)
    return solve_block(factor, panel, rows, pending, residuals, sums, adjoint)


def update_panel(
    kernel: Parameters,
    panel: Array,
    points: Array,
    tiles: Sequence[PanelTile],
    stored: Sequence[Array | None],
    block_points: Array,
    solved: Solved,
    noise_variance: Array | None,
    block_rows: Range,
) -> Array:
    """``Y[panel] - G[panel, b] Z[b]`` in the rows of the given tiles; other rows are kept.

    The noise is part of G where the panel holds block b, at ``block_rows``. Every tile is one call of its
    own, so a row of the result does not depend on how tiles are gathered into panels.
    """
    out = panel.copy()
    change = np.negative(solved.columns)
    for index, tile in enumerate(tiles):
        row = stored[index] if stored else None
        add_tile_product(
            kernel,
            np.ascontiguousarray(points[:, slice(*tile.rows)]),
            block_points,
            change,
            above=tile.above,
            stored=NOT_STORED if row is None else row[slice(*tile.entries)],
            out=out[slice(*tile.rows)],
        )
    if noise_variance is not None:
        out[slice(*block_rows)] -= noise_variance[:, None] * solved.columns
    return out
