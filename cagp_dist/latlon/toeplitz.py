"""The Gram matrix of a window of a latitude-longitude grid: block Toeplitz, solved directly (math 7).

On W neighbouring columns of the circle the covariance of two points still depends on two latitudes and the
difference in longitude alone: ``G[w, w'] = B_|w - w'|`` with symmetric P x P blocks. Whittle's recursion, the
block form of Levinson's, finds the first block column of the inverse, ``G A = [S, 0, ..., 0]``, from that of
one column less::

    K       = S^-1 (B_k+1 A_0 + ... + B_1 A_k)
    [A, 0] <- [A, 0] - [0, A backwards] K,        S <- S - (...)' K

in ``2 W^2 P^3`` flops, where a dense factor takes ``W^3 P^3 / 3``. With L(a) the lower block triangular
Toeplitz matrix whose first column is a, the whole inverse is a difference of two positive matrices::

    G^-1 = L(A) S^-1 L(A)' - L(B) S^-1 L(B)',     B = [0, A_W-1, ..., A_1]

which fast Fourier transforms of length 2 W apply. [Whittle 1963, doi:10.1093/biomet/50.1-2.129; Gohberg &
Heinig 1974; Akaike 1973, doi:10.1137/0124024]
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cagp_dist.arrays import Array
from cagp_dist.errors import NumericalError
from cagp_dist.geometry import unit_sphere
from cagp_dist.kernels import Kernel
from cagp_dist.latlon.grid import LatLonGrid

Spectrum = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class BlockToeplitz:
    """``G[w, w'] = B_|w - w'|``: products, solves and determinant of fields (T, P, W)."""

    blocks: Array  # (W, P, P): symmetric blocks ``B_0 .. B_W-1``; G is positive definite.

    @classmethod
    def of_window(cls, kernel: Kernel, grid: LatLonGrid, *, width: int, noise_by_latitude: Array) -> Self:
        """Gram matrix of ``width`` neighbouring columns of a grid, noise (P,) on its diagonal."""
        rings = grid.shape[0]
        longitude = np.arange(width) * (360.0 / grid.n_longitudes)
        first = unit_sphere(grid.latitude_degrees, np.zeros(rings))
        others = unit_sphere(np.repeat(grid.latitude_degrees, width), np.tile(longitude, rings))
        seen = kernel(first, others).reshape(rings, rings, width).transpose(2, 0, 1)
        blocks = 0.5 * (seen + seen.transpose(0, 2, 1))
        blocks[0] += np.diag(noise_by_latitude)
        return cls(blocks)

    @property
    def shape(self) -> tuple[int, int]:
        """(P, W)."""
        return self.blocks.shape[1], self.blocks.shape[0]

    def product(self, fields: Array) -> Array:
        """``G @ fields``: 2 W P^2 flops for each, beside the transforms."""
        transformed = self._transformed(_columns(fields)).view(np.float64)  # real blocks meet both parts
        return _rows(self._cut(np.matmul(self._symbol, transformed).view(np.complex128)))

    def solve(self, fields: Array) -> Array:
        """``G^-1 @ fields``: 32 W P^2 flops for each, beside the transforms; the recursion once."""
        # a' x as the conjugate of a-transposed times x's: no copy of the large one
        right = self._transformed(_columns(fields)).conj()
        out = np.zeros_like(right)
        for triangle, sign in zip(self._triangles, (1.0, -1.0), strict=True):
            part = self._transformed(self._cut(np.matmul(triangle.transpose(0, 2, 1), right).conj()))
            part *= sign
            out += np.matmul(triangle, part)
        return _rows(self._cut(out))

    def inverse_diagonal(self) -> Array:
        """Diagonal of ``G^-1``, shape (P, W): sums of squares of the two triangles' rows."""
        squares = np.einsum("wij,wij->wi", self._predictor[0], self._predictor[0])
        backwards = np.zeros_like(squares)
        backwards[1:] = squares[:0:-1]
        return np.ascontiguousarray(np.cumsum(squares - backwards, axis=0).T)

    def prepare(self) -> None:
        """Do what solves and products need once, so that several threads can continue from there."""
        _ = self._symbol, self._triangles

    def logdet(self) -> float:
        """Logarithm of the determinant of G: the sum of those of S at every step of the recursion."""
        return self._predictor[1]

    def _transformed(self, columns: Array) -> Spectrum:
        """Columns (W, P, T), padded with zeros, by frequency."""
        return np.fft.rfft(columns, n=self._length, axis=0)

    def _cut(self, spectrum: Spectrum) -> Array:
        """Inverse of `_transformed`, cut to the window."""
        return np.fft.irfft(spectrum, n=self._length, axis=0)[: len(self.blocks)]

    @property
    def _length(self) -> int:
        from scipy.fft import next_fast_len

        return int(next_fast_len(2 * len(self.blocks), real=True))

    @cached_property
    def _symbol(self) -> Array:
        """Transform of the circulant that G is a corner of: real, for its blocks are symmetric."""
        width, rings = self.blocks.shape[:2]
        circle = np.zeros((self._length, rings, rings))
        circle[:width] = self.blocks
        circle[self._length - width + 1 :] = self.blocks[:0:-1]
        return np.ascontiguousarray(np.fft.rfft(circle, axis=0).real)

    @cached_property
    def _triangles(self) -> tuple[Spectrum, Spectrum]:
        """Transforms of ``A S^-1/2`` and ``B S^-1/2``."""
        columns = self._predictor[0]
        backwards = np.zeros_like(columns)
        backwards[1:] = columns[:0:-1]
        return (np.fft.rfft(columns, n=self._length, axis=0), np.fft.rfft(backwards, n=self._length, axis=0))

    @cached_property
    def _predictor(self) -> tuple[Array, float]:
        """``A S^-1/2``, shape (W, P, P), and log|G|."""
        from scipy.linalg import cho_solve, solve_triangular

        width, rings = self.blocks.shape[:2]
        # [B_W-1, ..., B_1] side by side: what meets A at step k are its last k + 1 blocks
        lags = np.ascontiguousarray(self.blocks[:0:-1].transpose(1, 0, 2)).reshape(rings, -1)
        A = np.zeros((width, rings, rings))
        A[0] = np.eye(rings)
        S, logdet = self.blocks[0].copy(), 0.0
        for step in range(1, width + 1):
            factor = _factor(S, step)
            logdet += 2.0 * float(np.log(np.diag(factor)).sum())
            if step == width:
                break
            left = lags[:, lags.shape[1] - step * rings :] @ A[:step].reshape(-1, rings)
            K = cho_solve((factor, True), left, check_finite=False)
            A[1 : step + 1] -= (A[step - 1 :: -1].reshape(-1, rings) @ K).reshape(step, rings, rings)
            S -= left.T @ K
            S = 0.5 * (S + S.T)
        half = solve_triangular(factor, A.reshape(-1, rings).T, lower=True, check_finite=False)
        # A S^-1 A' = (A R^-T)(A R^-T)' with S = R R'
        return np.ascontiguousarray(half.T).reshape(A.shape), logdet


def _factor(S: Array, step: int) -> Array:
    from scipy.linalg import cholesky

    try:
        return np.asarray(cholesky(S, lower=True, check_finite=False))
    except np.linalg.LinAlgError as error:
        raise NumericalError(
            f"the Gram matrix of the region is not positive definite in floating point (column {step}): the "
            "observed points say nearly the same of each other. Raise noise_variance."
        ) from error


def _columns(fields: Array) -> Array:
    return np.ascontiguousarray(fields.transpose(2, 1, 0))


def _rows(columns: Array) -> Array:
    return np.ascontiguousarray(columns.transpose(2, 1, 0))
