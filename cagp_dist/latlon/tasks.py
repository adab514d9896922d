"""Tasks of a Gram matrix on a grid: make, factor and apply the blocks of a range of wavenumbers.

Plain functions of arrays, to be run by executors; `cagp_dist.gram.ring_gram.RingGram` combines them. None of
them changes its arguments.
"""

from collections.abc import Callable, Sequence

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.errors import NumericalError
from cagp_dist.kernels import Parameters, total_variance
from cagp_dist.lapack import (
    cholesky_in_place,
    inverse_diagonals,
    invert_in_place,
    multiply_lower,
    solve_lower,
)
from cagp_dist.latlon.entries import blocks_at
from cagp_dist.latlon.wavenumbers import Wavenumbers, ring_blocks
from cagp_dist.tiling import Range

Factors = list[Array]  # matrices of a range of wavenumbers, one stack (span, size, size) for each sector
Apply = Callable[[Factors, list[Array]], list[Array]]  # a matrix diagonal in wavenumbers, on a range


def gram_range(parameters: Parameters, wavenumbers: Wavenumbers, span: Range, noise: Array) -> Factors:
    """Lower triangles of ``G_k`` for a range of wavenumbers."""
    blocks = ring_blocks(parameters, wavenumbers, span)
    for block, values in zip(blocks, wavenumbers.by_ring(noise), strict=True):
        block[:, np.arange(values.size), np.arange(values.size)] += values
    return blocks


def factor_range(parameters: Parameters, wavenumbers: Wavenumbers, span: Range, noise: Array) -> Factors:
    """Cholesky factors of ``G_k`` for a range of wavenumbers."""
    blocks = gram_range(parameters, wavenumbers, span, noise)
    for block in blocks:
        try:
            cholesky_in_place(block)
        except NumericalError as error:
            raise NumericalError(
                "the Gram matrix of the grid is not positive definite in floating point, at one of the "
                f"wavenumbers {span[0]} to {span[1] - 1}: the noise variance is too small beside the "
                "variance of the field. Raise noise_variance, or leave out pole rows and "
                "rings that nearly coincide.",
                key="not-positive-definite",
            ) from error
    return blocks


def square_root_range(parameters: Parameters, wavenumbers: Wavenumbers, span: Range) -> Factors:
    """Matrices R with ``R R' = K_k``, by Cholesky with pivoting: K may be singular up to rounding."""
    from scipy.linalg.lapack import dpstrf

    # what is left over below this is rounding of the kernel's sums, not a part of the field
    rounding = np.finfo(np.float64).eps * total_variance(parameters)
    blocks = ring_blocks(parameters, wavenumbers, span)
    for block in blocks:
        for matrix in block:
            factor, pivots, rank, _ = dpstrf(matrix, tol=rounding * len(matrix), lower=1)
            matrix[pivots - 1] = np.tril(factor)
            matrix[:, rank:] = 0.0
    return blocks


def logdet_range(factors: Factors, weights: Array) -> float:
    """Weighted sum of ``logdet G_k``."""
    return float(
        sum(2.0 * weights @ np.log(np.diagonal(part, axis1=1, axis2=2)).sum(axis=1) for part in factors)
    )


def inverse_diagonal_range(factors: Factors, weights: Array) -> list[Array]:
    """Weighted sum of ``diag(G_k^-1)`` for each sector, shape (size,)."""
    return [weights @ inverse_diagonals(part) for part in factors]


def inverse_range(factors: Factors, rows: Sequence[Indices]) -> list[Array]:
    """``G_k^-1`` at some rows of each sector, (l_s, l_s, span): the wavenumber runs fastest."""
    found = []
    for part, chosen in zip(factors, rows, strict=True):
        inverse = part.copy()
        invert_in_place(inverse)
        (blocks,) = blocks_at([inverse], [chosen])
        for i in range(1, chosen.size):  # only lower triangles were made
            blocks[:i, i] = blocks[i, :i]
        found.append(blocks)
    return found


def solve_range(factors: Factors, columns: list[Array]) -> list[Array]:
    """``G_k^-1 columns``."""
    solved = [part.copy() for part in columns]
    for factor, part in zip(factors, solved, strict=True):
        solve_lower(factor, part)
        solve_lower(factor, part, transposed=True)
    return solved


def multiply_range(factors: Factors, columns: list[Array]) -> list[Array]:
    """``G_k columns``."""
    product = [part.copy() for part in columns]
    for factor, part in zip(factors, product, strict=True):
        multiply_lower(factor, part, transposed=True)
        multiply_lower(factor, part)
    return product


def lower_range(factors: Factors, columns: list[Array]) -> list[Array]:
    """``L_k columns``."""
    product = [part.copy() for part in columns]
    for factor, part in zip(factors, product, strict=True):
        multiply_lower(factor, part)
    return product


def root_range(roots: Factors, columns: list[Array]) -> list[Array]:
    """``R_k columns``."""
    return [root @ part for root, part in zip(roots, columns, strict=True)]
