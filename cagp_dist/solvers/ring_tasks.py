"""The tasks of a stage on whole rings: plain functions of columns of a range of wavenumbers (math 7, T29).

Stages whose blocks are bands of whole rings do not mix wavenumbers: on a field they are the same stages on
the rows of each ``G_k``. With R the Cholesky factors of its diagonal blocks, ``R^-1 G_k R^-T = T + T' - I``
has identities there (T its lower triangle), and with Y and b whitened by R^-1, Z by R'::

    Sweep           N = T + (1/w - 1) I,   Z = N^-T Y,   Y <- (2/w - 1) Z - N Z,   downdate += (2/w - 1) Z' Z
    Simultaneous    Z = w Y,   Y_new = Y - (T + T' - I) Z,                        downdate += Z' (Y + Y_new)
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import NumericalError
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.targets import seen_from
from cagp_dist.kernels import Kernel, Parameters
from cagp_dist.lapack import multiply_lower, solve_lower
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.tasks import gram_range
from cagp_dist.latlon.wavenumbers import Wavenumbers
from cagp_dist.solvers.stages import BlockStage, Simultaneous, Sweep
from cagp_dist.tiling import Range, block_ranges

Columns = list[Array]
"""Columns of a range of wavenumbers, one array (wavenumbers, size, columns) for each sector."""


class Whitened(NamedTuple):
    """``T`` of a sector (lower triangles), and the diagonal blocks R and R^-1 of each band."""

    gram: Array
    bands: list[Range]
    roots: list[Array]
    inverse_roots: list[Array]

    def relaxed(self, relaxation: float) -> Array:
        """``T + (1/w - 1) I``: what sweeps solve with; T itself, not a copy, for w = 1."""
        if relaxation == 1.0:
            return self.gram
        relaxed = self.gram.copy()
        np.einsum("kii->ki", relaxed)[:] = 1.0 / relaxation
        return relaxed

    def shuffled(self, rows: Indices) -> Array:
        """``T`` of the rows in another order: lower triangles of ``T + T' - I``; a copy."""
        out = np.empty_like(self.gram)
        for matrix, target in zip(self.gram, out, strict=True):
            target[:] = (np.tril(matrix) + np.tril(matrix, -1).T)[np.ix_(rows, rows)]
        return out

    def rows(self, bands: Iterable[int]) -> Indices:
        """Rows of some bands, in their order."""
        return np.concatenate([np.arange(0), *(np.arange(*self.bands[band]) for band in bands)])

    def columns(self, rows: Indices) -> Array:
        """Columns of ``T + T' - I``, shape (wavenumbers, size, rows)."""
        below = np.arange(self.gram.shape[1])[:, None] >= rows
        return np.where(below, self.gram[:, :, rows], self.gram[:, rows].transpose(0, 2, 1))

    def apply(self, blocks: list[Array], columns: Array, *, transposed: bool = False) -> Array:
        """Multiply columns by a block diagonal matrix: `roots` or `inverse_roots`."""
        flip = (0, 2, 1) if transposed else (0, 1, 2)
        return np.concatenate(
            [
                block.transpose(flip) @ columns[:, first:last]
                for block, (first, last) in zip(blocks, self.bands, strict=True)
            ],
            axis=1,
        )


class Piece(NamedTuple):
    """Whitened columns of a range of wavenumbers and the sums over them.

    ``Y`` are the columns, ``weights`` what forward stages have added up to. For targets on the grid ``mean``
    and ``downdate`` are (wavenumbers, size, 2 T) and (size,) for each sector, for others (q, T), and (q,) or
    (q, q), in lists of one.
    """

    Y: Columns
    weights: Columns
    mean: Columns
    downdate: Columns


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
            "or leave out pole rows and rings that nearly coincide."
        ) from error


def _piece(Y: Columns, right: Columns, full: bool, on_grid: bool) -> Piece:
    """Columns with sums of zero."""
    if on_grid:
        mean = [np.zeros((*part.shape[:2], b.shape[2])) for part, b in zip(Y, right, strict=True)]
        return Piece(Y, [], mean, [np.zeros(part.shape[2]) for part in Y])
    q, fields = Y[0].shape[2] // 2, right[0].shape[2] // 2
    return Piece(Y, [], [np.zeros((q, fields))], [np.zeros((q, q) if full else q)])


def grid_range(
    sectors: list[Whitened], noise: Sequence[Array], right: Columns, full: bool, on_grid: bool
) -> Piece:
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
) -> Piece:
    """``Y`` from columns that are not whitened yet: ``V'`` of targets, or what a solve has left over."""
    return _piece(whitened_columns(sectors, columns), right, full, on_grid)


def seen_columns(
    kernel: Kernel, targets: Array | LinearFunctionals, grid: LatLonGrid, wavenumbers: Wavenumbers
) -> list[Columns]:
    """``V'`` of q targets, by range of wavenumbers and sector; 8 n q bytes several times."""
    seen = seen_from(kernel, targets, grid.points)
    sectors = wavenumbers.split(seen.reshape(-1, *grid.shape))
    return [[sector[first:last].copy() for sector in sectors] for first, last in wavenumbers.ranges()]


def range_of(columns: list[Columns], index: int) -> Columns:
    """Take the columns of one range."""
    return columns[index]


def whitened_columns(sectors: list[Whitened], columns: Columns) -> Columns:
    """``R^-1`` times columns."""
    return [sector.apply(sector.inverse_roots, part) for sector, part in zip(sectors, columns, strict=True)]


def unwhitened_range(sectors: list[Whitened], piece: Piece) -> Columns:
    """``R Y``."""
    return [sector.apply(sector.roots, part) for sector, part in zip(sectors, piece.Y, strict=True)]


def right_piece(right: Columns) -> Piece:
    """Start of a forward pass from whitened right-hand sides."""
    return Piece(right, [np.zeros_like(part) for part in right], [], [])


def stage_range(
    stage: BlockStage,
    sectors: list[Whitened],
    piece: Piece,
    right: Columns,
    weights: Array,
    adjoint: bool,
    final: bool,
) -> Piece:
    """One stage for a range of wavenumbers; ``right`` is whitened. After a final adjoint sweep Y is empty."""
    after = Piece([], [], [], [])
    mean, downdate = list(piece.mean), list(piece.downdate)
    bands = max(len(sector.bands) for sector in sectors)  # a sector without the equator may have one fewer
    for index, (sector, Y, b) in enumerate(zip(sectors, piece.Y, right, strict=True)):
        Z, left, half, other = _applied(stage, sector, Y, adjoint, final=final and adjoint, bands=bands)
        after.Y.append(left)
        if not adjoint:
            after.weights.append(piece.weights[index] + Z)
            continue
        if mean[0].ndim == 3:  # targets on the grid
            mean[index] = mean[index] + Z.transpose(0, 2, 1) @ b
            downdate[index] = downdate[index] + weights @ np.einsum("kij,kij->kj", half, other)
        else:
            mean[0] = mean[0] + _inner(Z, b, weights)
            full = downdate[0].ndim == 2
            form = _inner(half, other, weights) if full else _inner_diagonal(half, other, weights)
            downdate[0] = downdate[0] + (0.5 * (form + form.T) if full else form)
    return Piece(after.Y, after.weights, mean, downdate)


def _applied(
    stage: BlockStage, sector: Whitened, Y: Array, adjoint: bool, *, final: bool, bands: int
) -> tuple[Array, Array, Array, Array]:
    """Z, what is left of Y, and two matrices whose inner products are the downdate."""
    if isinstance(stage, Sweep) and stage.varies:
        order = [band for band in stage.order(bands, adjoint=False) if band < len(sector.bands)]
        rows = sector.rows(order)
        ordered = Sweep(whole_blocks=True, relaxation=stage.relaxation)
        moved = sector._replace(gram=sector.shuffled(rows))
        found = _applied(ordered, moved, Y[:, rows], adjoint, final=final, bands=bands)
        back = np.argsort(rows)
        Z, left, half, other = (array[:, back] if array.shape == Y.shape else array for array in found)
        return Z, left, half, other
    Z = Y.copy()
    if isinstance(stage, Sweep):
        transposed = stage.ascending == adjoint
        weight = 2.0 / stage.relaxation - 1.0
        triangle = sector.relaxed(stage.relaxation)
        solve_lower(triangle, Z, transposed=transposed)
        if final:
            return Z, Y[:0], weight * Z, Z
        image = Z.copy()
        multiply_lower(triangle, image, transposed=not transposed)
        return Z, weight * Z - image, weight * Z, Z
    if isinstance(stage, Simultaneous) and stage.colours > 1:
        rows = sector.rows(stage.members(len(sector.bands)))
        half = stage.relaxation * Y[:, rows]
        Z[:] = 0.0
        Z[:, rows] = half
        left = Y - sector.columns(rows) @ half
        return Z, left, half, Y[:, rows] + left[:, rows]
    Z *= stage.relaxation
    image, other = Z.copy(), Z.copy()
    multiply_lower(sector.gram, image)
    multiply_lower(sector.gram, other, transposed=True)
    left = Y - (image + other - Z)
    return Z, left, Z, Y + left


def coupling_range(stage: Simultaneous, sectors: list[Whitened]) -> float:
    """Largest eigenvalue of ``R^-1 G_k R^-T`` on the bands that are solved at once; at least 1."""
    largest = 1.0
    for sector in sectors:
        rows = sector.rows(stage.members(len(sector.bands)))
        if rows.size:
            coupled = sector.columns(rows)[:, rows]
            largest = max(largest, float(np.linalg.eigvalsh(coupled)[:, -1].max()))
    return largest


def _inner(left: Array, right: Array, weights: Array) -> Array:
    """Inner products of the fields of two sets of columns (wavenumbers, size, 2 q) and (.., 2 T): (q, T)."""
    scaled = weights[:, None, None] * left
    whole = np.tensordot(scaled, right, axes=([0, 1], [0, 1]))
    return np.asarray(whole[0::2, 0::2] + whole[1::2, 1::2])


def _inner_diagonal(left: Array, right: Array, weights: Array) -> Array:
    """Diagonal of `_inner` for as many fields on both sides, (q,)."""
    squares = weights @ np.einsum("kij,kij->kj", left, right)
    return np.asarray(squares[0::2] + squares[1::2])


def sums_of(piece: Piece) -> Piece:
    """Drop the columns before the sums travel to the caller."""
    return Piece([], [], piece.mean, piece.downdate)


def seen_range(sectors: list[Whitened], piece: Piece, right: Columns, noise: Sequence[Array]) -> Columns:
    """``K v = b - r - noise v`` for a range of wavenumbers, r the residual after forward stages."""
    seen = []
    for sector, v, left, b, variances in zip(sectors, piece.weights, piece.Y, right, noise, strict=True):
        weights = sector.apply(sector.inverse_roots, v, transposed=True)
        seen.append(sector.apply(sector.roots, b - left) - variances[:, None] * weights)
    return seen


def weights_range(sectors: list[Whitened], piece: Piece) -> Columns:
    """Weights v of a range of wavenumbers."""
    return [
        sector.apply(sector.inverse_roots, v, transposed=True)
        for sector, v in zip(sectors, piece.weights, strict=True)
    ]
