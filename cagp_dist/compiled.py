"""Compiled evaluation of Gram tiles, and of tiles times columns without storing the tile.

Every loop over pairs of points in the package is here. A tile is evaluated row by row into a buffer
that stays in cache: first the squared distances, then the kernel profile in place. Points come as
(p, n) arrays, one contiguous row per coordinate, so that the innermost loops run over neighbours in
memory and the compiler turns them into vector instructions. All functions release the GIL.

Numba does not vectorise the C library's ``exp``, so the exponential is written out here. Only the
``contract`` freedom of fast-math is used (fused multiply-add): NaN and infinity keep their meaning
and sums keep their order, hence results do not depend on who calls or on how work is split.
"""

import math

import numpy as np
from numba import njit

MATERN12, MATERN32, MATERN52, SQUARED_EXPONENTIAL = 0, 1, 2, 3

# Sub-tile of 128 x 256 float64 = 256 KiB: stays in a second-level cache beside its columns
# (measured: 25 columns 2.2 ns per entry, against 2.7 ns for sub-tiles of 512 KiB and more).
TILE_ROWS = 128
TILE_COLUMNS = 256

_CONTRACT = {"contract"}
_LOG2_E = 1.4426950408889634
_SQRT3 = 1.7320508075688772
_SQRT5 = 2.23606797749979
# Beyond this argument exp(-a) is below 1e-303; the cut keeps 0 * inf out of the polynomials.
_FAR = 700.0
# Adding 1.5 * 2^52 rounds a small double to an integer and leaves that integer in the low bits.
_ROUND = 6755399441055744.0
# 2^f = 1 + f (q0 + q1 f + ...) on [-1/2, 1/2]: Chebyshev interpolation, relative error 6e-16;
# the leading 1 is exact, so a kernel at distance zero is its variance to the last bit.
_Q0 = 0.6931471805599462
_Q1 = 0.24022650695910075
_Q2 = 0.05550410866465167
_Q3 = 0.009618129107618665
_Q4 = 0.0013333558200794592
_Q5 = 0.00015403530424776529
_Q6 = 1.5252672924850737e-05
_Q7 = 1.3215451633221434e-06
_Q8 = 1.0205905413765595e-07
_Q9 = 7.070977866508138e-09


@njit(inline="always", fastmath=_CONTRACT)
def _exp_minus(a):
    """``exp(-a)`` for 0 <= a <= 700, relative error below 1e-14 (argument rounding included)."""
    t = -a * _LOG2_E
    shifted = t + _ROUND
    f = t - (shifted - _ROUND)
    p = _Q9 * f + _Q8
    p = p * f + _Q7
    p = p * f + _Q6
    p = p * f + _Q5
    p = p * f + _Q4
    p = p * f + _Q3
    p = p * f + _Q2
    p = p * f + _Q1
    p = p * f + _Q0
    p = p * f + 1.0
    # multiply by 2^k: add k to the exponent bits
    bits = np.float64(p).view(np.int64) + (np.float64(shifted).view(np.int64) << 52)
    return np.int64(bits).view(np.float64)


@njit(nogil=True, fastmath=_CONTRACT, cache=True)
def _squared_distances(X, i, Z, start, out):
    """``out[j] = |X[:, i] - Z[:, start + j]|^2`` by differences (never 2 - 2 x.z, math 8)."""
    size = out.size
    if X.shape[0] == 3:
        x0, x1, x2 = X[0, i], X[1, i], X[2, i]
        z0, z1, z2 = Z[0][start : start + size], Z[1][start : start + size], Z[2][start : start + size]
        for j in range(size):
            d0 = x0 - z0[j]
            d1 = x1 - z1[j]
            d2 = x2 - z2[j]
            out[j] = d0 * d0 + d1 * d1 + d2 * d2
    else:
        out[:] = 0.0
        for k in range(X.shape[0]):
            x0, z0 = X[k, i], Z[k][start : start + size]
            for j in range(size):
                d0 = x0 - z0[j]
                out[j] += d0 * d0


@njit(nogil=True, fastmath=_CONTRACT, cache=True)
def _profile(family, inverse_lengthscale, variance, row):
    """Turn squared distances into kernel values, in place."""
    if family == MATERN12:
        for j in range(row.size):
            a = min(math.sqrt(row[j]) * inverse_lengthscale, _FAR)
            row[j] = variance * _exp_minus(a)
    elif family == MATERN32:
        for j in range(row.size):
            a = min(math.sqrt(row[j]) * (_SQRT3 * inverse_lengthscale), _FAR)
            row[j] = (variance + variance * a) * _exp_minus(a)
    elif family == MATERN52:
        for j in range(row.size):
            a = min(math.sqrt(row[j]) * (_SQRT5 * inverse_lengthscale), _FAR)
            row[j] = variance * (1.0 + a + a * a * (1.0 / 3.0)) * _exp_minus(a)
    else:
        for j in range(row.size):
            u = math.sqrt(row[j]) * inverse_lengthscale
            row[j] = variance * _exp_minus(min(0.5 * (u * u), _FAR))


@njit(nogil=True, fastmath=_CONTRACT, cache=True)
def evaluate(family, inverse_lengthscale, variance, X, Z, out):
    """Write the tile ``out[i, j] = k(X[:, i], Z[:, j])``.

    Arithmetic is float64 whatever the dtype of ``out``; a float32 tile is rounded once, at the end.

    Parameters
    ----------
    family : int
        One of ``MATERN12`` .. ``SQUARED_EXPONENTIAL``.
    inverse_lengthscale, variance : float
        Kernel parameters, per unit of X and in squared units of y.
    X, Z : C-contiguous array of float64, shapes (p, n) and (p, m)
        Points, one row per coordinate.
    out : C-contiguous array of float64 or float32, shape (n, m)
        Result; about 1 ns per entry for p = 3.
    """
    row = np.empty(min(TILE_COLUMNS, Z.shape[1]))
    for start in range(0, Z.shape[1], TILE_COLUMNS):
        size = min(TILE_COLUMNS, Z.shape[1] - start)
        for i in range(X.shape[1]):
            buffer = row[:size]
            _squared_distances(X, i, Z, start, buffer)
            _profile(family, inverse_lengthscale, variance, buffer)
            out[i, start : start + size] = buffer


@njit(nogil=True, fastmath=_CONTRACT, cache=True)
def _evaluate_subtile(family, inverse_lengthscale, variance, X, first, Z, start, out):
    row = np.empty(out.shape[1])
    for i in range(out.shape[0]):
        _squared_distances(X, first + i, Z, start, row)
        _profile(family, inverse_lengthscale, variance, row)
        out[i] = row


@njit(nogil=True, cache=True)
def evaluate_tile(family, inverse_lengthscale, variance, X, Z, out):
    """Store the tile ``k(X, Z)`` for `add_tile_product`: sub-tile after sub-tile, each contiguous.

    Parameters as in `evaluate`, but ``out`` is flat, of shape (n * m,).
    """
    n, m = X.shape[1], Z.shape[1]
    offset = 0
    for first in range(0, n, TILE_ROWS):
        rows = min(TILE_ROWS, n - first)
        for start in range(0, m, TILE_COLUMNS):
            columns = min(TILE_COLUMNS, m - start)
            subtile = out[offset : offset + rows * columns].reshape(rows, columns)
            _evaluate_subtile(family, inverse_lengthscale, variance, X, first, Z, start, subtile)
            offset += rows * columns


@njit(nogil=True, cache=True)
def add_tile_product(family, inverse_lengthscale, variance, X, Z, stored, transposed, columns, out):
    """``out += T @ columns`` or ``out += T' @ columns`` with the tile ``T = k(X, Z)``, through BLAS.

    Stored and freshly evaluated tiles go through the same sub-tiles and the same BLAS calls, so the
    result is the same to the last bit.

    Parameters
    ----------
    family, inverse_lengthscale, variance, X, Z
        As in `evaluate`.
    stored : C-contiguous array of the dtype of ``columns``, shape (n * m,) or (0,)
        The tile as `evaluate_tile` leaves it; empty to evaluate it here.
    transposed : bool
        Multiply by ``T'``.
    columns : C-contiguous array, shape (m, r), or (n, r) if transposed
        float64, or float32 for tiles and products in float32.
    out : C-contiguous array of float64, shape (n, r), or (m, r) if transposed
        Accumulator. Cost n m evaluations and 2 n m r flops; memory: one sub-tile.
    """
    n, m, r = X.shape[1], Z.shape[1], columns.shape[1]
    height, width = min(n, TILE_ROWS), min(m, TILE_COLUMNS)
    scratch = np.empty(height * width, dtype=columns.dtype)
    product = np.empty((max(height, width), r), dtype=columns.dtype)
    offset = 0
    for first in range(0, n, TILE_ROWS):
        last = min(first + TILE_ROWS, n)
        for start in range(0, m, TILE_COLUMNS):
            stop = min(start + TILE_COLUMNS, m)
            size = (last - first) * (stop - start)
            if stored.size > 0:
                tile = stored[offset : offset + size].reshape(last - first, stop - start)
                offset += size
            else:
                tile = scratch[:size].reshape(last - first, stop - start)
                _evaluate_subtile(family, inverse_lengthscale, variance, X, first, Z, start, tile)
            if transposed:
                np.dot(tile.T, columns[first:last], product[: stop - start])
                target = out[start:stop]
            else:
                np.dot(tile, columns[start:stop], product[: last - first])
                target = out[first:last]
            for i in range(target.shape[0]):
                for c in range(r):
                    target[i, c] += product[i, c]


@njit(nogil=True, fastmath=_CONTRACT, cache=True)
def add_product_vector(family, inverse_lengthscale, variance, X, Z, column, out):
    """``out += k(X, Z) @ column`` for one column: the tile never leaves the first-level cache.

    Uses ``k(X, Z) = k(Z, X)'`` to run over the contiguous result. Shapes as in `add_tile_product` with
    r = 1, ``column`` (m,) and ``out`` (n,) float64; each entry of ``out`` is summed in the order of Z.
    """
    n = X.shape[1]
    row = np.empty(min(TILE_COLUMNS, n))
    for start in range(0, n, TILE_COLUMNS):
        size = min(TILE_COLUMNS, n - start)
        target = out[start : start + size]
        buffer = row[:size]
        for j in range(Z.shape[1]):
            _squared_distances(Z, j, X, start, buffer)
            _profile(family, inverse_lengthscale, variance, buffer)
            weight = column[j]
            for i in range(size):
                target[i] += weight * buffer[i]


@njit(nogil=True, fastmath=_CONTRACT, cache=True)
def add_symmetric_product_vector(
    family, inverse_lengthscale, variance, X, Z, column_x, column_z, out_x, out_z
):
    """Use the tile twice: ``out_x += k(X, Z) @ column_z`` and ``out_z += k(X, Z)' @ column_x``.

    Halves the kernel evaluations of a product with a symmetric Gram matrix. Shapes: X (p, n),
    Z (p, m), ``column_x``, ``out_x`` (n,), ``column_z``, ``out_z`` (m,), all float64.
    """
    m = Z.shape[1]
    row = np.empty(min(TILE_COLUMNS, m))
    lanes = np.empty(8)
    for start in range(0, m, TILE_COLUMNS):
        size = min(TILE_COLUMNS, m - start)
        source = column_z[start : start + size]
        target = out_z[start : start + size]
        buffer = row[:size]
        whole = size - size % 8
        for i in range(X.shape[1]):
            _squared_distances(X, i, Z, start, buffer)
            _profile(family, inverse_lengthscale, variance, buffer)
            weight = column_x[i]
            for j in range(size):
                target[j] += weight * buffer[j]
            # eight partial sums in a fixed order: a vector reduction without reassociating freely
            lanes[:] = 0.0
            for j in range(0, whole, 8):
                for lane in range(8):
                    lanes[lane] += buffer[j + lane] * source[j + lane]
            total = 0.0
            for lane in range(8):
                total += lanes[lane]
            for j in range(whole, size):
                total += buffer[j] * source[j]
            out_x[i] += total
