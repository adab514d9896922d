"""What stages do to the columns of whole rings: the rows of one wavenumber after the other (math 7, T29).

Stages whose blocks are bands of whole rings, or that solve all points of a ring alike, do not mix
wavenumbers: on a field they are the same stages on the rows of each ``G_k``. With R the Cholesky factors of
its diagonal blocks, ``R^-1 G_k R^-T = T + T' - I`` has identities there (T its lower triangle), and with Y
and b whitened by R^-1, Z by R'::

    Sweep           N = T + (1/w - 1) I,   Z = N^-T Y,   Y <- (2/w - 1) Z - N Z,   downdate += (2/w - 1) Z' Z
    Simultaneous    Z = w Y,               Y_new = Y - (T + T' - I) Z,             downdate += Z' (Y + Y_new)
      of points     Z = R' diag(w / d) R Y                                         the same
    Recurrence      Z = momentum Z_before + step R' R Y                            the same

A pole that was observed once is a complete row of Q copies of it (`cagp_dist.latlon.grid_layout.Layout`):
what is added at the pole is the sum over its row, so that a step of points takes a Q-th of it at each copy.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.lapack import multiply_lower, solve_lower
from cagp_dist.solvers.engine.stages import BlockStage, Recurrence, Simultaneous, Sweep
from cagp_dist.tiling import Range

RingStage = BlockStage | Recurrence  # Stages that are the same for every wavenumber


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

    def scaled(self, columns: Array, scales: Array) -> Array:
        """``R' diag(scales) R`` times columns, with a number for each row; 2 width flops for each of them."""
        if all(last - first == 1 for first, last in self.bands):
            roots = np.concatenate([root[:, 0] for root in self.roots], axis=1)
            return np.asarray((scales * roots**2)[:, :, None] * columns)
        blocks = [
            root.transpose(0, 2, 1) @ (scales[first:last, None] * root)
            for root, (first, last) in zip(self.roots, self.bands, strict=True)
        ]
        return self.apply(blocks, columns)


class Applied(NamedTuple):
    """Z, what is left of Y, and two matrices whose inner products are the downdate."""

    Z: Array
    left: Array
    half: Array
    other: Array


def applied(
    stage: RingStage,
    sector: Whitened,
    Y: Array,
    *,
    adjoint: bool,
    final: bool,
    bands: int,
    scales: Array | None,
    before: Array | None,
) -> Applied:
    """Apply a stage to the whitened columns of a sector; ``scales`` (size,): what a residual of one adds."""
    if isinstance(stage, Sweep):
        return _swept(stage, sector, Y, adjoint=adjoint, final=final, bands=bands)
    if isinstance(stage, Simultaneous) and stage.colours > 1:
        rows = sector.rows(stage.members(len(sector.bands)))
        half = stage.relaxation * Y[:, rows]
        Z = np.zeros_like(Y)
        Z[:, rows] = half
        left = Y - sector.columns(rows) @ half
        return Applied(Z, left, half, Y[:, rows] + left[:, rows])
    size = stage.step if isinstance(stage, Recurrence) else stage.relaxation
    Z = size * Y if scales is None else sector.scaled(Y, size * scales)
    if isinstance(stage, Recurrence) and before is not None and stage.momentum:
        Z += stage.momentum * before
    image, other = Z.copy(), Z.copy()
    multiply_lower(sector.gram, image)
    multiply_lower(sector.gram, other, transposed=True)
    image += other
    image -= Z
    np.subtract(Y, image, out=image)
    np.add(Y, image, out=other)
    return Applied(Z, image, Z, other)


def _swept(stage: Sweep, sector: Whitened, Y: Array, *, adjoint: bool, final: bool, bands: int) -> Applied:
    """Visit the bands one after the other."""
    if stage.varies:
        order = [band for band in stage.order(bands, adjoint=False) if band < len(sector.bands)]
        rows = sector.rows(order)
        ordered = Sweep(whole_blocks=True, relaxation=stage.relaxation)
        moved = sector._replace(gram=sector.shuffled(rows))
        found = _swept(ordered, moved, Y[:, rows], adjoint=adjoint, final=final, bands=bands)
        back = np.argsort(rows)
        return Applied(*(array[:, back] if array.shape == Y.shape else array for array in found))
    Z = Y.copy()
    transposed = stage.ascending == adjoint
    weight = 2.0 / stage.relaxation - 1.0
    triangle = sector.relaxed(stage.relaxation)
    solve_lower(triangle, Z, transposed=transposed)
    if final:
        return Applied(Z, Y[:0], weight * Z, Z)
    image = Z.copy()
    multiply_lower(triangle, image, transposed=not transposed)
    return Applied(Z, weight * Z - image, weight * Z, Z)
