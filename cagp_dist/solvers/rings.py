"""A whole latitude-longitude grid, as the engine sees it: blocks are bands of rings (math 7, T29).

Stages whose blocks are bands of whole rings do not mix wavenumbers: on a field they are the same stages on
the rows of each ``G_k``. With R the Cholesky factors of its diagonal blocks, ``R^-1 G_k R^-T = T + T' - I``
has identities there (T its lower triangle), and with Y and b whitened by R^-1, Z by R'::

    Sweep           N = T + (1/w - 1) I,   Z = N^-T Y,   Y <- (2/w - 1) Z - N Z,   downdate += (2/w - 1) Z' Z
    Simultaneous    Z = w Y,   Y_new = Y - (T + T' - I) Z,                        downdate += Z' (Y + Y_new)

Where the targets are the points of the grid themselves, ``V_k = K_k`` and the variance depends on latitude
alone; other targets are columns of their own. On a mirrored grid a block is a band together with its mirror
image, from the outermost rings to the equator.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget import Plan
from cagp_dist.errors import ArgumentError, NumericalError
from cagp_dist.gram.base import Gram, Targets, target_points
from cagp_dist.gram.masked import MaskedRings
from cagp_dist.gram.rings import RingGram
from cagp_dist.kernels import coordinates
from cagp_dist.lapack import multiply_lower, solve_lower
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.layout import Layout
from cagp_dist.latlon.tasks import gram_range
from cagp_dist.latlon.wavenumbers import Parameters, Wavenumbers
from cagp_dist.runtime import Executor, Handle
from cagp_dist.solvers.base import Problem, State
from cagp_dist.solvers.stages import Stage, Sweep
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


@dataclass(eq=False)
class Pieces:
    """A tall matrix by ranges of wavenumbers, and the state it began with."""

    parts: list[Handle[Piece]]
    columns: Range
    start: State | None = None


class RingSystem:
    """The tasks of stages on a whole grid.

    Parameters
    ----------
    problem : Problem
        A RingGram, or MaskedRings that lack no more than copies of poles; residuals and targets. The
        factors of the grid are not needed.
    plan : Plan
        Rings of a band, groups of targets.
    executor : Executor
        Where the tasks run; the result does not depend on it.
    """

    def __init__(self, problem: Problem, *, plan: Plan, executor: Executor) -> None:
        self._gram = problem.gram
        self._rings, self._layout = whole_grid(problem.gram)
        self._plan, self._executor, self._full = plan, executor, problem.full_covariance
        targets, grid = problem.targets, self._rings.grid
        on_grid = isinstance(targets, LatLonGrid) and targets.same_points(grid) and not self._full
        self._points = None if on_grid else target_points(targets)
        self._wavenumbers = self._rings.wavenumbers
        self._ranges = self._wavenumbers.ranges()
        self._noise = self._wavenumbers.by_ring(self._rings.noise_by_latitude)
        self._residuals = problem.residuals
        self._right: list[Handle[Columns]] = []
        self._made: Sequence[Handle[list[Whitened]] | list[Whitened]] = []

    @property
    def blocks(self) -> int:
        """Bands of a sector, at most."""
        return -(-max(self._wavenumbers.sizes) // self._plan.rings_per_block)

    @property
    def batches(self) -> Sequence[Sequence[Range]]:
        """Groups of targets; those of the grid itself are one."""
        return self._plan.batches

    def solves_exactly(self, stage: Stage) -> bool:
        """Whether one such stage solves the whole system: one band of all rings."""
        return stage.relaxation == 1.0 and self.blocks == 1

    def open(self, columns: Range, place: int, start: State | None) -> Pieces:
        """``Y = V'`` for a group of targets and sums of zero, or what a state has left over and found."""
        function, arguments = self._beginnings(slice(*columns), start)
        on_grid = self._points is None
        parts = [
            self._executor.submit(function, sectors, argument, b, self._full, on_grid, home=home)
            for home, (sectors, argument, b) in enumerate(
                zip(self._whitened(), arguments, self._whitened_right(), strict=True)
            )
        ]
        return Pieces(parts, columns, start)

    def _beginnings(self, here: slice, start: State | None) -> tuple[Callable[..., Piece], Sequence[object]]:
        """Task that makes the columns of a range, and what it makes them from, for each range."""
        if start is not None:
            return column_range, self._columns_of(start, here)
        if self._points is None:
            return grid_range, [self._noise] * len(self._ranges)
        # evaluated and transformed by one task: too much to be sent with others
        points, grid = coordinates(self._points[here]), self._rings.grid
        columns = self._executor.submit(
            point_columns, self._rings.kernel.parameters, points, grid, self._wavenumbers
        )
        return column_range, [
            self._executor.submit(range_of, columns, index) for index in range(len(self._ranges))
        ]

    def _columns_of(self, start: State, here: slice) -> list[Columns]:
        """Give what a state has left over, as columns of each range."""
        left, sectors = [] if start.leftover is None else start.leftover(), len(self._wavenumbers.sizes)
        if self._points is not None and len(left) == 1:
            return self._split(self._layout.spread(left[0][:, here].T))
        if self._points is None and len(left) == sectors * len(self._ranges):
            return [left[index : index + sectors] for index in range(0, len(left), sectors)]
        raise ArgumentError(
            "the state to start from kept no leftover, or that of other targets. Ask for the state with "
            "keep_leftover, at the same targets."
        )

    def forward(self, columns: Array) -> Pieces:
        """Start of a forward pass: right-hand sides (n, r)."""
        parts = [
            self._executor.submit(right_piece, right, home=home)
            for home, right in enumerate(self._whitened_columns(columns))
        ]
        return Pieces(parts, (0, columns.shape[1]))

    def apply(self, stage: Stage, work: Pieces, *, adjoint: bool, final: bool = False) -> None:
        """``Z = Mt' Y`` (forward ``Mt Y``), sums with it, ``Y - G Z``; a range of wavenumbers is a task."""
        spans = zip(self._whitened(), self._whitened_right(), self._ranges, strict=True)
        for home, (sectors, right, (first, last)) in enumerate(spans):
            work.parts[home] = self._executor.submit(
                stage_range,
                stage,
                sectors,
                work.parts[home],
                right,
                self._wavenumbers.weights[first:last],
                adjoint,
                final,
                home=home,
            )

    def read(self, works: Sequence[Pieces]) -> tuple[Array, Array]:
        """Mean (q, T) and downdate of the targets of a batch."""
        found = [self._read(work) for work in works]
        return np.concatenate([mean for mean, _ in found]), np.concatenate(
            [downdate for _, downdate in found]
        )

    def _read(self, work: Pieces) -> tuple[Array, Array]:
        parts = self._executor.gather([self._executor.submit(sums_of, part) for part in work.parts])
        if self._points is None:
            sectors = zip(*(part.mean for part in parts), strict=True)
            fields = self._wavenumbers.join([np.concatenate(sector) for sector in sectors])
            mean = fields.reshape(len(fields), -1).T
            summed = [
                np.sum(sector, axis=0) for sector in zip(*(part.downdate for part in parts), strict=True)
            ]
            by_latitude = self._wavenumbers.to_rings(summed) / self._rings.grid.n_longitudes
            downdate = np.repeat(by_latitude, self._rings.grid.n_longitudes)
        else:  # in the order of the ranges, whoever finishes first
            mean = np.sum([part.mean[0] for part in parts], axis=0)
            downdate = np.sum([part.downdate[0] for part in parts], axis=0)
        if work.start is not None:
            here = slice(*work.columns)
            mean = mean + work.start.mean[here]
            downdate = downdate + (work.start.downdate if self._full else work.start.downdate[here])
        return np.ascontiguousarray(mean), np.asarray(downdate)

    def leftover(self, works: Sequence[Pieces]) -> Columns:
        """``Y`` of a batch of one group: (n, q), or on the grid the sectors of each range of wavenumbers."""
        (work,) = works
        parts = self._executor.gather(
            [
                self._executor.submit(unwhitened_range, sectors, part, home=home)
                for home, (sectors, part) in enumerate(zip(self._whitened(), work.parts, strict=True))
            ]
        )
        if self._points is None:
            return [array for part in parts for array in part]
        fields = self._wavenumbers.join([np.concatenate(sector) for sector in zip(*parts, strict=True)])
        return [np.ascontiguousarray(self._layout.restrict(fields).T)]

    def mean(self, work: Pieces, targets: Targets) -> Array:
        """``V A b`` after forward stages, shape (q, T)."""
        if self._points is not None:
            return self._gram.cross(targets, self.weights(work), executor=self._executor)
        parts = self._executor.gather(
            [
                self._executor.submit(seen_range, sectors, part, right, self._noise, home=home)
                for home, (sectors, part, right) in enumerate(
                    zip(self._whitened(), work.parts, self._whitened_right(), strict=True)
                )
            ]
        )
        fields = self._wavenumbers.join([np.concatenate(sector) for sector in zip(*parts, strict=True)])
        return np.ascontiguousarray(fields.reshape(len(fields), -1).T)

    def weights(self, work: Pieces) -> Array:
        """Return what forward stages have added up to, ``A b``, shape (n, r)."""
        parts = self._executor.gather(
            [
                self._executor.submit(weights_range, sectors, part, home=home)
                for home, (sectors, part) in enumerate(zip(self._whitened(), work.parts, strict=True))
            ]
        )
        fields = self._wavenumbers.join([np.concatenate(sector) for sector in zip(*parts, strict=True)])
        return np.ascontiguousarray(self._layout.summed(fields).T)

    def _split(self, fields: Array) -> list[Columns]:
        """Fields (r, P, Q) as columns (wavenumbers, size, 2 r) of the sectors of each range."""
        sectors = self._wavenumbers.split(fields)
        return [[sector[first:last] for sector in sectors] for first, last in self._ranges]

    def _whitened_columns(self, columns: Array) -> list[Handle[Columns]]:
        """``R^-1`` times columns (n, r), for each range."""
        return [
            self._executor.submit(whitened_columns, sectors, part, home=home)
            for home, (sectors, part) in enumerate(
                zip(self._whitened(), self._split(self._layout.spread(columns.T)), strict=True)
            )
        ]

    def _whitened_right(self) -> list[Handle[Columns]]:
        """``R^-1 b`` for each range, made on first use and kept."""
        if not self._right:
            self._right = self._whitened_columns(self._residuals)
        return self._right

    def _whitened(self) -> Sequence[Handle[list[Whitened]] | list[Whitened]]:
        """Whitened blocks by range, made on first use and kept."""
        if not self._made:
            width = min(self._plan.rings_per_block, max(self._wavenumbers.sizes))
            self._made = self._rings.make(
                whitened_range,
                self._rings.noise_by_latitude,
                self._plan.rings_per_block,
                copies=1.5 + 2.0 * width / max(self._wavenumbers.sizes),
            )
        return self._made


def whole_grid(gram: Gram) -> tuple[RingGram, Layout]:
    """Find the complete grid behind a Gram matrix, poles that were observed once as complete rows."""
    if isinstance(gram, MaskedRings) and not gram.layout.missing.any():
        return gram.rows_of_poles, gram.layout
    if isinstance(gram, RingGram):
        return gram, gram.layout
    raise ArgumentError(f"{gram!r} is not a complete latitude-longitude grid; expected a RingGram.")


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
    """``Y`` from columns that are not whitened yet: ``V'`` of points, or what a solve has left over."""
    return _piece(whitened_columns(sectors, columns), right, full, on_grid)


def point_columns(
    kernel: Parameters, points: Array, grid: LatLonGrid, wavenumbers: Wavenumbers
) -> list[Columns]:
    """``V'`` of points (p, q), by range of wavenumbers and sector; 8 n q bytes several times."""
    from cagp_dist.compiled import evaluate

    seen = np.empty((points.shape[1], grid.size))
    evaluate(*kernel, points, coordinates(grid.points), seen)
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
    stage: Stage,
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
    for index, (sector, Y, b) in enumerate(zip(sectors, piece.Y, right, strict=True)):
        Z, left, half, other = _applied(stage, sector, Y, adjoint, final=final and adjoint)
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
    stage: Stage, sector: Whitened, Y: Array, adjoint: bool, *, final: bool
) -> tuple[Array, Array, Array, Array]:
    """Z, what is left of Y, and two matrices whose inner products are the downdate."""
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
    Z *= stage.relaxation
    image, other = Z.copy(), Z.copy()
    multiply_lower(sector.gram, image)
    multiply_lower(sector.gram, other, transposed=True)
    left = Y - (image + other - Z)
    return Z, left, Z, Y + left


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
