"""The exact likelihood on a latitude-longitude grid: one small dense problem per wavenumber (math 7, 9).

Determinant, traces and quadratic forms are sums over blocks R_k, each wavenumber counted by its weight (T26),
such as ``log|R| = sum_k w_k log|R_k|``. Ranges of wavenumbers are tasks, which return some sums; these are
added in the order of the ranges.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.budget.demand import DOUBLE, TABLE_ENTRIES
from cagp_dist.errors import BudgetError
from cagp_dist.gram.tiled import put_value
from cagp_dist.lapack import cholesky_in_place, invert_in_place, mirror_lower, solve_lower
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.wavenumbers import Wavenumbers, ring_blocks
from cagp_dist.likelihood.exact.likelihood_evaluation import Evaluation, ModelLikelihood
from cagp_dist.likelihood.exact.restricted import column_space
from cagp_dist.likelihood.numbering import Families, Model, UnitModel
from cagp_dist.remedies import Remedy
from cagp_dist.runtime import Executor, Handle, single_threaded_blas
from cagp_dist.text import bytes_text
from cagp_dist.tiling import Range


class GridLikelihood(ModelLikelihood):
    """What likelihoods of fields (T, P, Q) on grids, with a basis (k, P, Q), begin with."""

    def __init__(
        self,
        kernel: Families | Model,
        grid: LatLonGrid,
        residuals: Array,
        basis: Array | None,
        executor: Executor,
        memory_limit_bytes: int,
        needed: Callable[..., int],
        *,
        missing: int = 0,
    ) -> None:
        self._executor = executor
        self._wavenumbers = Wavenumbers(grid.latitude_degrees, grid.n_longitudes, grid.mirrored)
        fields, coefficients = len(residuals), 0
        if basis is not None:  # it stands behind the fields
            columns = column_space(basis.reshape(len(basis), -1).T)
            residuals = np.concatenate([residuals, columns.T.reshape(-1, *residuals.shape[1:])])
            coefficients = columns.shape[1]
        super().__init__(kernel, grid.size - missing, fields, coefficients)
        wanted = needed(self._wavenumbers, fields=len(residuals), workers=executor.workers)
        if wanted > memory_limit_bytes:
            exact, gaps = ("exact ", f" of which {missing:,} are missing") if missing else ("", "")
            raise BudgetError(
                f"the {exact}likelihood of a grid of {grid.shape[0]} x {grid.shape[1]} points{gaps} needs "
                f"{bytes_text(wanted)} on {executor.workers} workers, more than the "
                f"{bytes_text(memory_limit_bytes)} that may be used.",
                key="memory",
                remedies=(Remedy.MORE_MEMORY, Remedy.FEWER_WORKERS, Remedy.THINNED_GRID),
            )
        spans, sectors = self._wavenumbers.ranges(), self._wavenumbers.split(residuals)
        self._ranges = [WavenumberRange(self._wavenumbers, span, coefficients) for span in spans]
        self._columns: list[list[Handle[Array]]] = [
            [executor.submit(put_value, sector[slice(*span)].copy(), home=index) for sector in sectors]
            for index, span in enumerate(spans)
        ]


class RingLikelihood(GridLikelihood):
    """Exact likelihood and gradient on a full-circle grid."""

    def __init__(
        self,
        kernel: Families | Model,
        grid: LatLonGrid,
        residuals: Array,
        *,
        executor: Executor,
        memory_limit_bytes: int,
        basis: Array | None = None,
        curved: bool = False,
    ) -> None:
        self._curved, needed = curved, partial(ring_bytes, curved=curved)
        super().__init__(kernel, grid, residuals, basis, executor, memory_limit_bytes, needed)

    def evaluate(self, *numbers: float) -> Evaluation:
        """Evaluate at (lengthscale, ratio), or (lengthscales, weights, ratio) of a sum."""
        model = self._model.at(numbers)
        with single_threaded_blas():
            parts = self._executor.gather(
                [
                    self._executor.submit(range_sums, model, part, columns, self._curved, home=index)
                    for index, (part, columns) in enumerate(zip(self._ranges, self._columns, strict=True))
                ]
            )
        total, squares = sum(parts, np.zeros_like(parts[0])), None
        if self._curved:
            k = len(model.derivatives) + 1
            total, squares = total[: -k * k], total[-k * k :].reshape(k, k)
        return self._evaluation(total, squares=squares)


class WavenumberRange(NamedTuple):
    """What a task works on: a range of the wavenumbers of a grid, and how many coefficients a mean has."""

    wavenumbers: Wavenumbers
    span: Range
    coefficients: int


def range_sums(model: UnitModel, part: WavenumberRange, columns: list[Array], curved: bool) -> Array:
    """Contribution of a range: log|R|, q, traces, slopes, (2 + 2 k,), or what `restrict` takes."""
    return derivative_sums(inverted_range(model, part, columns), model, part, curved)


@dataclass(frozen=True, eq=False)
class Inverted:
    """What a range of wavenumbers knows of R at one set of numbers; for each sector one entry."""

    # ``log|R_k|``, shape (span,), and ``b_k' R_k^-1 b_k``, as `ring_inner_products` gives it
    heads: list[tuple[Array, Array]]
    inverses: list[Array]  # (span, size, size): ``R_k^-1``
    solutions: list[Array]  # (span, size, 2 T): ``R_k^-1 b_k``


def inverted_range(model: UnitModel, part: WavenumberRange, columns: list[Array]) -> Inverted:
    """Factor and invert the blocks of a range; arguments as of `range_sums`."""
    inverses, solutions, heads = ring_blocks(model.kernel, part.wavenumbers, part.span), [], []
    for blocks, right in zip(inverses, columns, strict=True):
        diagonal = np.einsum("kii->ki", blocks)  # a view that can be written to
        diagonal += model.ratio
        cholesky_in_place(blocks)
        log_determinants = 2.0 * np.log(diagonal).sum(axis=1)
        solved = right.copy()
        solve_lower(blocks, solved)
        heads.append((log_determinants, ring_inner_products(solved, solved, part.coefficients)))
        solve_lower(blocks, solved, transposed=True)
        _invert(blocks)
        solutions.append(solved)
    return Inverted(heads, inverses, solutions)


def derivative_sums(
    inverted: Inverted, model: UnitModel, part: WavenumberRange, curved: bool = False
) -> Array:
    """Give the sums of `range_sums` from what was inverted."""
    (wavenumbers, span, coefficients), ratio = part, model.ratio
    weights = wavenumbers.weights[slice(*span)]
    heads, inverses, solutions = inverted.heads, inverted.inverses, inverted.solutions
    tails = [
        (
            ratio * np.einsum("kii->ki", inverse).sum(axis=1),
            ratio * ring_inner_products(solved, solved, coefficients),
        )
        for inverse, solved in zip(inverses, solutions, strict=True)
    ]
    sums: list[list[tuple[Array, Array]]] = [[] for _ in inverses]
    slopes: list[list[Array]] = [[] for _ in inverses]
    for derivative in model.derivatives:  # one at a time: each is as large as the matrix itself
        sectors = ring_blocks(derivative, wavenumbers, span)
        for sector, (slope, inverse, solved) in enumerate(zip(sectors, inverses, solutions, strict=True)):
            form = _symmetric_form(slope, solved, coefficients)
            sums[sector].append((_symmetric_inner(inverse, slope), form))
            if curved:
                slopes[sector].append(slope)
    total: Array | float = 0.0
    for (log_determinants, quadratic), tail, found in zip(heads, tails, sums, strict=True):
        traces, forms = zip(*found, tail, strict=True)
        if coefficients:
            each = np.concatenate(
                [log_determinants[:, None], np.stack(traces, axis=1), quadratic, *forms], axis=1
            )
        else:
            each = np.stack([log_determinants, quadratic, *traces, *forms], axis=1)
        total = total + weights @ each
    if not curved:
        return np.asarray(total)
    k = len(model.derivatives) + 1
    squares = np.zeros((k, k))
    for inverse, of_sector in zip(inverses, slopes, strict=True):
        for stack in of_sector:  # lower triangles
            for matrix in stack:
                mirror_lower(matrix)
        squares += np.tensordot(weights, _squares_of(inverse, of_sector, ratio), axes=1)
    return np.concatenate([np.asarray(total), squares.ravel()])


def _squares_of(inverse: Array, slopes: Sequence[Array], ratio: float) -> Array:
    """``tr(R^-1 dR R^-1 dR')`` for every two numbers, the last of them the ratio: (w, k, k)."""
    products = [inverse @ slope for slope in slopes]
    products.append(ratio * inverse)
    squares = np.empty((*inverse.shape[:-2], len(products), len(products)))
    for i, left in enumerate(products):
        for j, right in enumerate(products[: i + 1]):
            # the last product is symmetric
            squares[..., i, j] = np.einsum("...ab,...ba->...", left, right)
            squares[..., j, i] = squares[..., i, j]
    return squares


def ring_inner_products(left: Array, right: Array, coefficients: int) -> Array:
    """``sum over columns of l'r`` for stacks, (k,); with coefficients all products of fields, (k, c c)."""
    if coefficients == 0:
        return np.asarray(np.einsum("kir,kir->k", left, right))
    count, size, _ = left.shape
    # real and imaginary parts of each field stand side by side
    parts = (each.reshape(count, size, -1, 2) for each in (left, right))
    return np.asarray(np.einsum("kias,kibs->kab", *parts).reshape(count, -1))


def _invert(factors: Array) -> None:
    """Replace every factor L by the whole of ``(L L')^-1``."""
    invert_in_place(factors)
    for matrix in factors:
        mirror_lower(matrix)


def _symmetric_inner(left: Array, right: Array) -> Array:
    """``tr(A B)`` for stacks of symmetric matrices of which ``right`` has only its lower triangles."""
    whole = np.einsum("kij,kij->k", left, right)
    return np.asarray(2.0 * whole - np.einsum("kii,kii->k", left, right))


def _symmetric_form(lower: Array, columns: Array, coefficients: int) -> Array:
    """``v' A v`` for stacks of symmetric matrices given by lower triangles; see `ring_inner_products`."""
    whole = ring_inner_products(lower @ columns, columns, coefficients)
    if coefficients == 0:
        return np.asarray(2.0 * whole - np.einsum("kii,kir->k", lower, columns**2))
    fields = columns.shape[2] // 2
    square = whole.reshape(-1, fields, fields)
    weighted = np.einsum("kii->ki", lower)[:, :, None] * columns
    both = (square + square.transpose(0, 2, 1)).reshape(whole.shape)
    return both - ring_inner_products(weighted, columns, coefficients)


def ring_bytes(wavenumbers: Wavenumbers, *, fields: int, workers: int, curved: bool = False) -> int:
    """Bytes of one evaluation: for each worker what a range takes, and the residuals and their transforms."""
    ranges = wavenumbers.ranges()
    blocks = wavenumbers.block_bytes // len(ranges)
    cosines = DOUBLE * wavenumbers.count * max(last - first for first, last in ranges)
    tables = DOUBLE * TABLE_ENTRIES
    points = wavenumbers.latitude_degrees.size * wavenumbers.n_longitudes
    at_once = min(workers, len(ranges))
    return (3 * (blocks + cosines + tables) + 3 * curved * blocks) * at_once + 6 * DOUBLE * points * fields
