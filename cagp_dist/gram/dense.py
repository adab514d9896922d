"""The Gram matrix as a plain array: the oracle of the tests and the core of the exact solver."""

from functools import cached_property
from typing import cast

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import NumericalError
from cagp_dist.gram.functionals import LinearFunctionals
from cagp_dist.gram.gram_matrix import ExactSolve, check_noise
from cagp_dist.gram.targets import Targets, covariance_with, seen_from
from cagp_dist.kernels import Kernel
from cagp_dist.lapack import LARGEST_WHOLE, cholesky_in_place, inverse_diagonals
from cagp_dist.runtime import Executor
from cagp_dist.runtime.counting import count
from cagp_dist.tiling import block_ranges

STRIP_ROWS = 256  # Of the matrix, whose absolute values exist at a time


class DenseGram:
    """``G = k(X, X) + diag(noise_variance)`` stored, 8 n^2 bytes. Shapes: X (n, p), noise_variance (n,).

    X may be n linear functionals that were observed, such as means over areas, whose covariances stand in G.
    """

    def __init__(self, kernel: Kernel, X: Array | LinearFunctionals, *, noise_variance: Array) -> None:
        check_noise(noise_variance, n=len(X))
        self.kernel, self.X, self.noise_variance = kernel, cast(Array, X), noise_variance
        self.matrix = covariance_with(kernel, X, X)  # G itself, not to be changed
        self.matrix[np.diag_indices(len(X))] += noise_variance

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n)."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def __matmul__(self, columns: Array) -> Array:
        """``G @ columns``, 2 n^2 r flops."""
        return np.asarray(self.matrix @ columns)

    def product(self, columns: Array, *, executor: Executor) -> Array:
        """``G @ columns``, in this process, whatever the executor."""
        count(products=1 if columns.ndim == 1 else columns.shape[1])
        return self @ columns

    def cross(
        self, targets: Targets, columns: Array, *, executor: Executor, product: Array | None = None
    ) -> Array:
        """``k(targets, X) @ columns``, shape (q, r); 8 n q bytes."""
        # laid out as for points, whose sums cells of one node repeat to the bit
        return np.asarray(np.ascontiguousarray(seen_from(self.kernel, targets, self.X)) @ columns)

    def diagonal(self) -> Array:
        """Diagonal of G, shape (n,)."""
        return self.matrix.diagonal().copy()

    @cached_property
    def factor(self) -> Array:
        """Lower Cholesky factor of G, n^3 / 3 flops once."""
        return cholesky_lower(self.matrix)

    @cached_property
    def condition_number(self) -> float:
        """Estimate of the condition number of G in the 1-norm (LAPACK's dpocon), n^2 flops."""
        # some rows after others: the matrix is symmetric, and no copy of it is made
        strips = (self.matrix[start:stop] for start, stop in block_ranges(len(self.matrix), STRIP_ROWS))
        norm = max((float(np.abs(strip).sum(axis=1).max()) for strip in strips), default=0.0)
        return condition_number(self.factor, norm=norm)

    def solve(self, columns: Array) -> Array:
        """``G^-1 @ columns``, 2 n^2 r flops."""
        from scipy.linalg import solve_triangular

        half = self.half_solve(columns)
        return np.asarray(solve_triangular(self.factor, half, lower=True, trans="T", check_finite=False))

    def half_solve(self, columns: Array) -> Array:
        """``L^-1 @ columns`` with ``G = L L'``; its Gram matrix is ``columns' G^-1 columns``."""
        from scipy.linalg import solve_triangular

        return np.asarray(solve_triangular(self.factor, columns, lower=True, check_finite=False))

    def inverse_diagonal(self) -> Array:
        """Diagonal of ``G^-1``, shape (n,); n^3 / 3 flops, and up to 8 n^2 bytes while it is made."""
        return np.asarray(inverse_diagonals(np.ascontiguousarray(self.factor)[None])[0])

    def exact(self, *, executor: Executor) -> ExactSolve:
        """Solves by the Cholesky factor, in this process whatever the executor: its own."""
        return self

    weights = solve

    def logdet(self) -> float:
        """Logarithm of the determinant of G."""
        return 2.0 * float(np.log(np.diag(self.factor)).sum())

    def downdate(self, targets: Targets, *, full: bool) -> Array:
        """``V G^-1 V'``, shape (q,) or (q, q); n^2 q flops."""
        half = self.half_solve(covariance_with(self.kernel, self.X, targets))
        return half.T @ half if full else np.asarray(np.einsum("ij,ij->j", half, half))


def condition_number(factor: Array, *, norm: float) -> float:
    """Condition number in the 1-norm from a lower Cholesky factor and the norm of the matrix, estimated."""
    from scipy.linalg.lapack import dpocon

    if factor.size == 0:
        return 1.0
    # laid out by rows it is an upper factor by columns, which LAPACK takes without a copy
    upper = factor.flags.c_contiguous
    reciprocal, _ = dpocon(factor.T if upper else factor, norm, uplo="U" if upper else "L")
    return 1.0 / reciprocal if reciprocal > 0.0 else np.inf


def cholesky_lower(matrix: Array) -> Array:
    """Lower Cholesky factor of a symmetric positive definite matrix, zero above the diagonal."""
    from scipy.linalg import LinAlgError, cholesky

    try:
        if len(matrix) > LARGEST_WHOLE:
            factor = np.array(matrix, order="C")
            cholesky_in_place(factor[None])
            for row in range(len(factor)):
                factor[row, row + 1 :] = 0.0
            return factor
        return np.asarray(cholesky(matrix, lower=True, check_finite=False), order="F")
    except (LinAlgError, NumericalError) as error:
        raise NumericalError(
            f"a {matrix.shape[0]} x {matrix.shape[0]} block of the Gram matrix is not positive definite "
            f"({error}). Points may coincide or nearly so: raise noise_variance or thin the points.",
            key="not-positive-definite",
        ) from error
