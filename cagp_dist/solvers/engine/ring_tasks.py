"""The tasks of a stage on whole rings: plain functions of columns of a range of wavenumbers (math 7, T29).

What a stage does to the columns of one sector is in `cagp_dist.solvers.engine.ring_stages`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import NumericalError
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import seen_from
from cagp_dist.kernels import Kernel, Parameters
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.tasks import gram_range
from cagp_dist.latlon.wavenumbers import Wavenumbers
from cagp_dist.runtime.memo import MemoReader, MemoWriter
from cagp_dist.solvers.engine.ring_stages import RingStage, Whitened, applied
from cagp_dist.solvers.engine.stages import Recurrence, Simultaneous
from cagp_dist.tiling import Range, block_ranges

# Columns of a range of wavenumbers, one array (wavenumbers, size, columns) for each sector
Columns = list[Array]


class RingPiece(NamedTuple):
    """Whitened columns of a range of wavenumbers and the sums over them.

    ``Y`` are the columns, ``weights`` what forward stages have added up to. For targets on the grid ``mean``
    and ``downdate`` are (wavenumbers, size, 2 T) and (size,) for each sector, for others (q, T), and (q,) or
    (q, q), in lists of one. ``before`` are Z of the step before, of a recurrence.
    """

    Y: Columns
    weights: Columns
    mean: Columns
    downdate: Columns
    before: Sequence[Array] = ()


def whitened_range(
    parameters: Parameters,
    wavenumbers: Wavenumbers,
    span: Range,
    noise: Array,
    rings_per_block: int,
) -> list[Whitened]:
    """``G_k`` of a range of wavenumbers, whitened by the factors of its diagonal blocks."""
    whitened: list[Whitened] = []
    for gram in gram_range(parameters, wavenumbers, span, noise):
        bands = block_ranges(gram.shape[1], rings_per_block)
        roots: list[Array] = []
        inverse_roots: list[Array] = []
        for first, last in bands:
            root = _cholesky(gram[:, first:last, first:last])
            inverse = np.asarray(np.linalg.inv(root), dtype=np.float64)
            gram[:, first:last, :first] = inverse @ gram[:, first:last, :first]
            gram[:, first:last, first:last] = np.eye(last - first)
            gram[:, last:, first:last] = gram[:, last:, first:last] @ inverse.transpose(0, 2, 1)
            roots.append(root)
            inverse_roots.append(inverse)
        whitened.append(Whitened(gram, bands, roots, inverse_roots))
    return whitened


def _cholesky(blocks: Array) -> Array:
    try:
        # reads the lower triangles alone
        return np.asarray(np.linalg.cholesky(blocks), dtype=np.float64)
    except np.linalg.LinAlgError as error:
        raise NumericalError(
            "a diagonal block of the grid is not positive definite in floating point. Raise noise_variance, "
            "or leave out pole rows and rings that nearly coincide.",
            key="not-positive-definite",
        ) from error


def _piece(Y: Columns, right: Columns, full: bool, on_grid: bool) -> RingPiece:
    """Columns with sums of zero."""
    if on_grid:
        mean = [np.zeros((*part.shape[:2], b.shape[2])) for part, b in zip(Y, right, strict=True)]
        return RingPiece(Y, [], mean, [np.zeros(part.shape[2]) for part in Y])
    q, fields = Y[0].shape[2] // 2, right[0].shape[2] // 2
    return RingPiece(Y, [], [np.zeros((q, fields))], [np.zeros((q, q) if full else q)])


def grid_range(
    sectors: list[Whitened], noise: Sequence[Array], right: Columns, full: bool, on_grid: bool
) -> RingPiece:
    """``Y = R^-1 K``, the columns of all points of the grid: ``R^-1 K = (R^-1 G R^-T) R' - R^-1 N``."""
    Y = []
    for sector, variances in zip(sectors, noise, strict=True):
        count, size = sector.gram.shape[:2]
        whole = sector.gram + np.tril(sector.gram, -1).transpose(0, 2, 1)
        product = sector.apply(sector.roots, whole.transpose(0, 2, 1)).transpose(0, 2, 1)
        start = np.ascontiguousarray(product)
        start -= sector.apply(sector.inverse_roots, np.broadcast_to(np.diag(variances), (count, size, size)))
        Y.append(start)
    return _piece(Y, right, full, on_grid)


def column_range(
    sectors: list[Whitened], columns: Columns, right: Columns, full: bool, on_grid: bool
) -> RingPiece:
    """``Y`` from columns that are not whitened yet: ``V'`` of targets, or what a solve has left over."""
    return _piece(whitened_columns(sectors, columns), right, full, on_grid)


def seen_columns(
    kernel: Kernel, targets: Array | LinearFunctionals, grid: LatLonGrid, wavenumbers: Wavenumbers
) -> list[Columns]:
    """``V'`` of q targets, by range of wavenumbers and sector; 8 n q bytes several times."""
    seen = seen_from(kernel, targets, grid.points)
    sectors = wavenumbers.split(seen.reshape(-1, *grid.shape))
    return [[sector[first:last].copy() for sector in sectors] for first, last in wavenumbers.ranges()]


def whitened_columns(sectors: list[Whitened], columns: Columns) -> Columns:
    """``R^-1`` times columns."""
    return [sector.apply(sector.inverse_roots, part) for sector, part in zip(sectors, columns, strict=True)]


def unwhitened_range(sectors: list[Whitened], piece: RingPiece) -> Columns:
    """``R Y``."""
    return [sector.apply(sector.roots, part) for sector, part in zip(sectors, piece.Y, strict=True)]


def right_piece(right: Columns) -> RingPiece:
    """Start of a forward pass from whitened right-hand sides."""
    return RingPiece(right, [np.zeros_like(part) for part in right], [], [])


def stage_range(
    sectors: list[Whitened],
    piece: RingPiece,
    right: Columns,
    weights: Array,
    stage: RingStage,
    scales: Sequence[Array],
    adjoint: bool,
    final: bool,
) -> RingPiece:
    """One stage for a range of wavenumbers; ``right`` is whitened. After a final adjoint sweep Y is empty."""
    after = RingPiece([], [], [], [])
    before: Columns = []
    mean, downdate = list(piece.mean), list(piece.downdate)
    bands = max(len(sector.bands) for sector in sectors)  # a sector without the equator may have one fewer
    for index, (sector, Y, b) in enumerate(zip(sectors, piece.Y, right, strict=True)):
        found = applied(
            stage,
            sector,
            Y,
            adjoint=adjoint,
            final=final and adjoint,
            bands=bands,
            scales=scales[index] if scales else None,
            before=piece.before[index] if piece.before else None,
        )
        after.Y.append(found.left)
        if isinstance(stage, Recurrence) and stage.accelerated:
            before.append(found.Z)
        if not adjoint:
            after.weights.append(piece.weights[index] + found.Z)
            continue
        Z, half, other = found.Z, found.half, found.other
        if mean[0].ndim == 3:  # targets on the grid
            mean[index] = mean[index] + Z.transpose(0, 2, 1) @ b
            downdate[index] = downdate[index] + weights @ np.einsum("kij,kij->kj", half, other)
        else:
            mean[0] = mean[0] + inner_products(Z, b, weights)
            full = downdate[0].ndim == 2
            form = inner_products(half, other, weights) if full else inner_diagonal(half, other, weights)
            downdate[0] = downdate[0] + (0.5 * (form + form.T) if full else form)
    return RingPiece(after.Y, after.weights, mean, downdate, before)


def coupling_range(sectors: list[Whitened], stage: Simultaneous) -> float:
    """Largest eigenvalue of ``R^-1 G_k R^-T`` on the bands that are solved at once; at least 1."""
    largest = 1.0
    for sector in sectors:
        rows = sector.rows(stage.members(len(sector.bands)))
        if rows.size:
            coupled = sector.columns(rows)[:, rows]
            largest = max(largest, float(np.linalg.eigvalsh(coupled)[:, -1].max()))
    return largest


def inner_products(left: Array, right: Array, weights: Array) -> Array:
    """Inner products of the fields of two sets of columns (wavenumbers, size, 2 q) and (.., 2 T): (q, T)."""
    scaled = weights[:, None, None] * left
    whole = np.tensordot(scaled, right, axes=([0, 1], [0, 1]))
    return np.asarray(whole[0::2, 0::2] + whole[1::2, 1::2])


def inner_diagonal(left: Array, right: Array, weights: Array) -> Array:
    """Diagonal of `inner` for as many fields on both sides, (q,)."""
    squares = weights @ np.einsum("kij,kij->kj", left, right)
    return np.asarray(squares[0::2] + squares[1::2])


def sums_of(piece: RingPiece) -> RingPiece:
    """Drop the columns before the sums travel to the caller."""
    return RingPiece([], [], piece.mean, piece.downdate)


def seen_range(sectors: list[Whitened], piece: RingPiece, right: Columns, noise: Sequence[Array]) -> Columns:
    """``K v = b - r - noise v`` for a range of wavenumbers, r the residual after forward stages."""
    seen = []
    for sector, v, left, b, variances in zip(sectors, piece.weights, piece.Y, right, noise, strict=True):
        weights = sector.apply(sector.inverse_roots, v, transposed=True)
        seen.append(sector.apply(sector.roots, b - left) - variances[:, None] * weights)
    return seen


def weights_range(sectors: list[Whitened], piece: RingPiece) -> Columns:
    """Weights v of a range of wavenumbers."""
    return [
        sector.apply(sector.inverse_roots, v, transposed=True)
        for sector, v in zip(sectors, piece.weights, strict=True)
    ]


def write_piece(writer: MemoWriter, name: str, piece: RingPiece) -> bool:
    """Write the arrays of a range, and how many there are of each kind."""
    counts = np.array([len(arrays) for arrays in piece])
    seen = [writer.write(f"{name}/counts", counts)]
    for kind, arrays in zip(RingPiece._fields, piece, strict=True):
        seen += [writer.write(f"{name}/{kind}-{index}", array) for index, array in enumerate(arrays)]
    return all(seen)


def read_piece(kept: MemoReader, name: str) -> RingPiece:
    """Read what `write_piece` wrote."""
    counts = kept.read(f"{name}/counts")
    return RingPiece(
        *(
            [kept.read(f"{name}/{kind}-{index}") for index in range(int(count))]
            for kind, count in zip(RingPiece._fields, counts, strict=True)
        )
    )
