"""The exact likelihood on a latitude-longitude grid with missing points (math 7.4, 9).

With R of the whole grid, A = R^-1 and b zero at the r missing points m, the observed points o have::

    log|R_oo|                = log|R| + log|A_mm|
    v = R_oo^-1 b_o          = A (b - e) at o,  with  A_mm e = [A b]_m,  which makes it vanish at m
    tr(R_oo^-1 dR_oo)        = sum_k w_k tr((A_k - A_k B_k A_k) dR_k)

where B_k are the blocks of the matrix that is ``A_mm^-1`` at the missing points and zero elsewhere.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.budget.demand import DOUBLE
from cagp_dist.lapack import cholesky_in_place, invert_in_place, mirror_lower, solve_lower
from cagp_dist.latlon.entries import PlacesOnGrid, blocks_at
from cagp_dist.latlon.grid import LatLonGrid
from cagp_dist.latlon.wavenumbers import Wavenumbers
from cagp_dist.likelihood.exact.likelihood_evaluation import Evaluation
from cagp_dist.likelihood.exact.ring_likelihood import (
    GridLikelihood,
    Inverted,
    WavenumberRange,
    derivative_sums,
    inverted_range,
    ring_bytes,
    ring_inner_products,
)
from cagp_dist.likelihood.numbering import Families, Model, UnitModel
from cagp_dist.runtime import Executor, single_threaded_blas

if TYPE_CHECKING:
    from cagp_dist.runtime import Handle


class MaskedRingLikelihood(GridLikelihood):
    """Exact likelihood of fields (T, P, Q) on a full-circle grid that lack the same points."""

    def __init__(
        self,
        kernel: Families | Model,
        grid: LatLonGrid,
        residuals: Array,
        missing: Mask,
        *,
        executor: Executor,
        memory_limit_bytes: int,
        basis: Array | None = None,
    ) -> None:
        r = int(np.count_nonzero(missing))
        residuals = np.where(missing, 0.0, residuals)
        basis = None if basis is None else np.where(missing, 0.0, basis)
        needed = partial(masked_bytes, missing=r)
        super().__init__(kernel, grid, residuals, basis, executor, memory_limit_bytes, needed, missing=r)
        self._missing = PlacesOnGrid.of(self._wavenumbers, missing)

    def evaluate(self, *numbers: float) -> Evaluation:
        """Evaluate at (lengthscale, ratio), or (lengthscales, weights, ratio) of a sum."""
        model, executor = self._model.at(numbers), self._executor
        with single_threaded_blas():
            inverted = [
                executor.submit(inverted_range, model, part, self._columns[home], home=home)
                for home, part in enumerate(self._ranges)
            ]
            log_determinant, extra, blocks = self._of_missing(inverted)
            parts = executor.gather(
                [
                    executor.submit(
                        observed_sums,
                        inverted[home],
                        [block[:, :, slice(*part.span)] for block in blocks],
                        self._missing.sector_rows,
                        [each[slice(*part.span)] for each in extra],
                        self._columns[home],
                        model,
                        part,
                        home=home,
                    )
                    for home, part in enumerate(self._ranges)
                ]
            )
        total = sum(parts, np.zeros_like(parts[0]))
        total[0] += log_determinant
        return self._evaluation(total)

    def _of_missing(self, inverted: "Sequence[Handle[Inverted]]") -> tuple[float, list[Array], list[Array]]:
        """``log|A_mm|``, the columns of e in each sector, and the blocks of ``A_mm^-1``."""
        executor, missing = self._executor, self._missing
        parts = executor.gather(
            [
                executor.submit(_at_missing, each, missing.sector_rows, home=home)
                for home, each in enumerate(inverted)
            ]
        )
        matrix = missing.entries(
            [np.concatenate(sector, axis=2) for sector in zip(*(p[0] for p in parts), strict=True)]
        )
        solved = [np.concatenate(sector) for sector in zip(*(part[1] for part in parts), strict=True)]
        del parts
        wrong = self._wavenumbers.join(solved)[:, missing.rows, missing.columns]
        cholesky_in_place(matrix[None])
        log_determinant = 2.0 * float(np.log(matrix.diagonal()).sum())
        e = np.ascontiguousarray(wrong.T)
        solve_lower(matrix[None], e[None])
        solve_lower(matrix[None], e[None], transposed=True)
        grid = self._wavenumbers.latitude_degrees.size, self._wavenumbers.n_longitudes
        extra = np.zeros((e.shape[1], *grid))
        extra[:, missing.rows, missing.columns] = e.T
        invert_in_place(matrix[None])
        mirror_lower(matrix)
        return log_determinant, self._wavenumbers.split(extra), missing.adjoint(matrix)


def _at_missing(inverted: Inverted, rows: list[Indices]) -> tuple[list[Array], list[Array]]:
    """Blocks of the inverse at some rows of each sector, and the solutions."""
    return blocks_at(inverted.inverses, rows), inverted.solutions


def observed_sums(
    inverted: Inverted,
    blocks: list[Array],
    rows: list[Indices],
    extra: list[Array],
    columns: list[Array],
    model: UnitModel,
    part: WavenumberRange,
) -> Array:
    """Contribution of a range of wavenumbers; blocks are (l_s, l_s, span), columns (span, size, 2 T)."""
    heads, inverses, solutions = [], [], []
    for (log_determinants, _), inverse, solved, block, chosen, wrong, right in zip(
        inverted.heads, inverted.inverses, inverted.solutions, blocks, rows, extra, columns, strict=True
    ):
        observed = solved - inverse @ wrong
        heads.append((log_determinants, ring_inner_products(right, observed, part.coefficients)))
        solutions.append(observed)
        strip = np.ascontiguousarray(inverse[:, :, chosen])
        product = strip @ np.ascontiguousarray(block.transpose(2, 0, 1))
        inverses.append(inverse - product @ strip.transpose(0, 2, 1))
    return derivative_sums(Inverted(heads, inverses, solutions), model, part)


def masked_bytes(wavenumbers: Wavenumbers, *, fields: int, workers: int, missing: int) -> int:
    """Bytes of one evaluation: inverses, their parts at missing points twice, and three matrices of these."""
    kept = 3 * wavenumbers.block_bytes + 3 * DOUBLE * missing**2
    return ring_bytes(wavenumbers, fields=fields, workers=workers) + kept
