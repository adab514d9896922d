"""The Gram matrix as a plain array: the oracle of the tests and the core of the exact solver."""

from functools import cached_property

import numpy as np

from cagp_dist.errors import NumericalError
from cagp_dist.gram.base import Array
from cagp_dist.gram.tiled import check_noise
from cagp_dist.kernels import Kernel
from cagp_dist.lapack import LARGEST_WHOLE, cholesky_in_place


class DenseGram:
    """``G = k(X, X) + diag(noise)`` stored, 8 n^2 bytes.

    Parameters
    ----------
    kernel : Kernel
        Covariance of the field.
    X : array of float64, shape (n, p)
        Observed points.
    noise_variance : array of float64, shape (n,)
        Added to the diagonal.
    """

    def __init__(self, kernel: Kernel, X: Array, *, noise_variance: Array) -> None:
        check_noise(noise_variance, n=len(X))
        self._matrix = kernel(X, X)
        self._matrix[np.diag_indices(len(X))] += noise_variance

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n)."""
        return self._matrix.shape[0], self._matrix.shape[1]

    def __matmul__(self, columns: Array) -> Array:
        """``G @ columns``, 2 n^2 r flops."""
        return np.asarray(self._matrix @ columns)

    def diagonal(self) -> Array:
        """Diagonal of G, shape (n,)."""
        return self._matrix.diagonal().copy()

    def block(self, rows: slice, columns: slice) -> Array:
        """Dense block ``G[rows, columns]``."""
        return self._matrix[rows, columns].copy()

    @cached_property
    def _factor(self) -> Array:
        return cholesky_lower(self._matrix)

    def solve(self, columns: Array) -> Array:
        """``G^-1 @ columns`` by Cholesky, n^3 / 3 flops once."""
        from scipy.linalg import solve_triangular

        half = self.half_solve(columns)
        return np.asarray(solve_triangular(self._factor, half, lower=True, trans="T", check_finite=False))

    def half_solve(self, columns: Array) -> Array:
        """``L^-1 @ columns`` with ``G = L L'``; its Gram matrix is ``columns' G^-1 columns``."""
        from scipy.linalg import solve_triangular

        return np.asarray(solve_triangular(self._factor, columns, lower=True, check_finite=False))


def cholesky_lower(matrix: Array) -> Array:
    """Lower Cholesky factor of a symmetric positive definite matrix, zero above the diagonal.

    Raises
    ------
    NumericalError
        If the matrix is not positive definite in floating point.
    """
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
            f"({error}). Points may coincide or nearly so: raise noise_variance or thin the points."
        ) from error
