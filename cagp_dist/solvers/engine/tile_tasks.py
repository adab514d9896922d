"""The tasks of a stage on tiles: plain functions of arrays that an executor runs.

They do not change their arguments, so a task whose worker died can be run again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.gram.tiled import NOT_STORED, add_tile_product
from cagp_dist.kernels import Parameters, total_variance
from cagp_dist.solvers.engine.panel_layout import PanelTile
from cagp_dist.solvers.engine.stages import BlockStage, Simultaneous, Sweep
from cagp_dist.tiling import Range


@dataclass(frozen=True, eq=False)
class SolvedBlock:
    """Z[b] (m, r) of one block, and sums of the solve so far: downdate (r,) or (r, r), mean (r, T)."""

    columns: Array
    downdate: Array
    mean: Array


def no_sums(columns: int, fields: int, full_covariance: bool) -> SolvedBlock:
    """Return the sums before the first stage: zeros."""
    shape = (columns, columns) if full_covariance else (columns,)
    return SolvedBlock(np.empty((0, columns)), np.zeros(shape), np.zeros((columns, fields)))


def sums_so_far(downdate: Array, mean: Array) -> SolvedBlock:
    """Make sums to continue from."""
    return SolvedBlock(np.empty((0, len(mean))), downdate, mean)


def only_sums(solved: SolvedBlock) -> SolvedBlock:
    """Drop the solution of the last block before the sums travel to the caller."""
    return SolvedBlock(solved.columns[:0], solved.downdate, solved.mean)


def add_solution(weights: Array | None, solved: SolvedBlock) -> Array:
    """Add the solution of a block to its weights."""
    return solved.columns.copy() if weights is None else weights + solved.columns


def take_columns(panel: Array, chosen: Indices) -> Array:
    """Copy some columns of a panel."""
    return panel[:, chosen]


def factor_block(kernel: Parameters, points: Array, noise_variance: Array, stage: BlockStage) -> Array:
    """Evaluate a diagonal block and factor it as the stage needs it: m^3 / 3 flops, 8 m^2 bytes."""
    from cagp_dist.compiled import evaluate

    if isinstance(stage, Simultaneous) and not stage.whole_blocks:
        return stage.factor_points(total_variance(kernel) + noise_variance)
    block = np.empty((points.shape[1], points.shape[1]))
    evaluate(*kernel, points, points, block)
    block[np.diag_indices(len(block))] += noise_variance
    # symmetric: the transpose is the same matrix in Fortran order, without a copy
    return stage.factor(block.T)


def coupled_blocks(
    kernel: Parameters, points: Sequence[Array], noise: Sequence[Array], factors: Sequence[Array]
) -> float:
    """Upper bound of ``|L_a^-1 G_ab L_b^-T|``, at most 1: ``|(T'T)^2|_F^(1/4)`` of that matrix T."""
    from scipy.linalg.blas import dtrsm

    from cagp_dist.compiled import evaluate

    between = np.empty((points[0].shape[1], points[1].shape[1]))
    evaluate(*kernel, points[0], points[1], between)
    stage = Sweep(whole_blocks=True)
    first, second = factors or [
        factor_block(kernel, place, variance, stage) for place, variance in zip(points, noise, strict=True)
    ]
    # the transpose, in the order of Fortran
    between = dtrsm(1.0, first, between.T, side=1, lower=1, trans_a=1)
    between = dtrsm(1.0, second, between, side=0, lower=1, overwrite_b=True)
    square = between.T @ between
    return min(1.0, float(np.linalg.norm(square @ square) ** 0.25))


# A factor, or the kernel, points and noise of its block: one that is not kept is made where it is used
Factor = Array | list[Any]


def _made(factor: Factor, stage: BlockStage) -> Array:
    if isinstance(factor, np.ndarray):
        return factor
    kernel, points, noise = factor
    return factor_block(kernel, points, noise, stage)


def solve_block(
    stage: Sweep,
    factor: Factor,
    panel: Array,
    rows: Range,
    pending: list[object],
    residuals: Array,
    sums: SolvedBlock,
    adjoint: bool,
) -> SolvedBlock:
    """Solve with a diagonal block and add its part of the downdate and of the mean (math 3).

    ``pending`` is empty, or says how to update the block's rows by the step before, whose solution is in
    ``sums``: then the block is solved while panels are still being updated.
    """
    if pending:
        panel, rows = _updated_rows(panel, rows, sums, *cast("PendingUpdate", tuple(pending)))
    columns, half = stage.solve(_made(factor, stage), panel[slice(*rows)], adjoint=adjoint)
    half = half.T
    part = half @ half.T if sums.downdate.ndim == 2 else np.einsum("ij,ij->i", half, half)
    return SolvedBlock(columns, sums.downdate + part, sums.mean + columns.T @ residuals)


def solve_alone(stage: Simultaneous, factor: Factor, panel: Array, rows: Range) -> SolvedBlock:
    """Solve with a diagonal block of a stage that solves all blocks at once; its sums come later."""
    columns = stage.solve(_made(factor, stage), panel[slice(*rows)])
    return SolvedBlock(columns, np.zeros(0), np.zeros(0))


def add_to_sums(
    sums: SolvedBlock, solved: SolvedBlock, before: Array, after: Array, rows: Range, residuals: Array
) -> SolvedBlock:
    """Add ``Z' Y + Z' Y_new`` of a block to the downdate, and ``Z' b`` to the mean (math 1.2)."""
    # what came over a network may lie at any byte, and products with its transpose then round otherwise
    Z = np.require(solved.columns, requirements="A")
    Y = before[slice(*rows)] + after[slice(*rows)]
    if sums.downdate.ndim == 2:
        part = Z.T @ Y
        part = 0.5 * (part + part.T)  # what is not symmetric cancels over the blocks
    else:
        part = np.einsum("ij,ij->j", Z, Y)
    return SolvedBlock(Z, sums.downdate + part, sums.mean + Z.T @ residuals)


PendingUpdate = tuple[Parameters, Array, PanelTile, Array]


def _updated_rows(
    panel: Array,
    rows: Range,
    solved: SolvedBlock,
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


def update_panel(
    kernel: Parameters,
    panel: Array,
    points: Array,
    tiles: Sequence[PanelTile],
    stored: Sequence[Array | None],
    block_points: Array,
    solved: SolvedBlock,
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
