"""BLAS and LAPACK on stacks of small matrices, in place and without the GIL.

`numpy.linalg` works on stacks but copies and cannot use a triangle; `scipy.linalg` works in place but holds
the GIL. The functions here call SciPy's own BLAS and LAPACK through the addresses it publishes for compiled
code (`scipy.linalg.cython_blas`), matrix by matrix; single columns go through compiled loops of our own,
three to six times as fast for matrices of twenty to a hundred rows.

A stack is a C-contiguous float64 array (count, m, m) of which only the lower triangles matter; columns are
C-contiguous (count, m, r). Fortran sees the transposes: its upper triangle is our lower one, and it
multiplies from the right.
"""

import ctypes
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import NumericalError

_TEXT = ctypes.c_char_p
_INT = ctypes.POINTER(ctypes.c_int)
_REAL = ctypes.POINTER(ctypes.c_double)
_DATA = ctypes.c_void_p
_SIGNATURES = {
    "dpotrf": ("lapack", (_TEXT, _INT, _DATA, _INT, _INT)),
    "dpotri": ("lapack", (_TEXT, _INT, _DATA, _INT, _INT)),
    "dtrsm": ("blas", (_TEXT, _TEXT, _TEXT, _TEXT, _INT, _INT, _REAL, _DATA, _INT, _DATA, _INT)),
    "dtrmm": ("blas", (_TEXT, _TEXT, _TEXT, _TEXT, _INT, _INT, _REAL, _DATA, _INT, _DATA, _INT)),
    "dsymm": ("blas", (_TEXT, _TEXT, _INT, _INT, _REAL, _DATA, _INT, _DATA, _INT, _REAL, _DATA, _INT)),
}


LARGEST_WHOLE = 8192  # rows that LAPACK factors at once: OpenBLAS 0.3 crashes on 16,000 with two threads
BLOCK = 2048  # columns of a larger matrix that are factored at a time
SMALL = 256  # rows up to which compiled loops factor a matrix in two thirds of the time of LAPACK
FEW_COLUMNS = 4  # columns up to which compiled loops are faster than calls of BLAS
STRIP = 96  # columns of an inverse that are made at a time


@lru_cache
def _routine(name: str) -> Callable[..., None]:
    from numba.extending import get_cython_function_address

    library, arguments = _SIGNATURES[name]
    address = get_cython_function_address(f"scipy.linalg.cython_{library}", name)
    return ctypes.CFUNCTYPE(None, *arguments)(address)


def cholesky_in_place(stack: Array) -> None:
    """Replace the lower triangle of every matrix by its Cholesky factor, m^3 / 3 flops each."""
    addresses = _addresses(stack, written=True)
    if stack.shape[1] > LARGEST_WHOLE:
        for matrix in stack:
            _cholesky_by_blocks(matrix)
        return
    if stack.shape[1] > SMALL:
        failed = _in_place("dpotrf", addresses, stack.shape[1])
    else:
        from cagp_dist.compiled import factor_stack

        which, row = factor_stack(stack)
        failed = (which, row + 1) if which >= 0 else None
    if failed is not None:
        raise NumericalError(
            f"matrix {failed[0]} of a stack of {stack.shape[1]} x {stack.shape[1]} ones is not positive "
            f"definite (minor {failed[1]}). Points may coincide or nearly so: raise noise_variance.",
            key="not-positive-definite",
        )
    # LAPACK lets NaN pass, and it spreads to the last entry
    finite = np.isfinite(stack[:, -1:, -1:]).all(axis=(1, 2))
    if not finite.all():
        raise NumericalError(
            f"matrix {np.flatnonzero(~finite)[0]} of a stack holds NaN or infinity; check kernel and noise.",
            key="not-finite",
        )


def _cholesky_by_blocks(matrix: Array) -> None:
    """Factor a large matrix block column by block column, right-looking; one more block column of memory."""
    n = len(matrix)
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        block = matrix[start:stop, start:stop].copy()
        cholesky_in_place(block[None])
        matrix[start:stop, start:stop] = block
        below = np.ascontiguousarray(matrix[stop:, start:stop].T)
        solve_lower(block[None], below[None])
        matrix[stop:, start:stop] = below.T
        for first in range(stop, n, BLOCK):
            last = min(first + BLOCK, n)
            matrix[first:, first:last] -= below[:, first - stop :].T @ below[:, first - stop : last - stop]


def complete_long_rows(table: Array, rounding: float, inverses: Array) -> int:
    """Do as `cagp_dist.compiled.complete_rows`, by LAPACK: four times as fast for a thousand rows."""
    from cagp_dist.compiled import complete_rows

    m = table.shape[1]
    square, before = table[:m], table[:m].copy()
    failed = _in_place("dpotrf", _addresses(square[None], written=True), m)
    pivots = square.diagonal()
    if failed is not None or not (pivots**2 > rounding * before.diagonal()).all():
        square[:] = before
        return int(complete_rows(table, rounding, inverses))
    inverses[:] = 1.0 / pivots
    first, size, one = table.ctypes.data, ctypes.c_int(m), ctypes.c_double(1.0)
    if rows := len(table) - m:
        below, count = first + 8 * m * m, ctypes.c_int(rows)
        _routine("dtrsm")(b"L", b"U", b"T", b"N", size, count, one, first, size, below, size)
    return 0


def inverse_diagonals(factors: Array) -> Array:
    """Diagonals of ``(L L')^-1`` for every factor L, (count, m), m^3 / 3 flops each; by `STRIP` columns."""
    addresses = _addresses(factors)
    solve = _routine("dtrsm")
    count, m = factors.shape[:2]
    out = np.empty((count, m))
    size, one = ctypes.c_int(m), ctypes.c_double(1.0)
    for start in range(0, m, STRIP):
        width = min(STRIP, m - start)
        identity = np.eye(m - start, width)
        columns = np.empty_like(identity)
        rows, wide = ctypes.c_int(m - start), ctypes.c_int(width)
        offset = 8 * start * (m + 1)
        for index, address in enumerate(addresses):
            columns[:] = identity
            solve(b"R", b"U", b"N", b"N", wide, rows, one, address + offset, size, columns.ctypes.data, wide)
            np.einsum("ij,ij->j", columns, columns, out=out[index, start : start + width])
    return out


def invert_in_place(factors: Array) -> None:
    """Replace every factor L by the lower triangle of ``(L L')^-1``, 2 m^3 / 3 flops each."""
    failed = _in_place("dpotri", _addresses(factors, written=True), factors.shape[1])
    if failed is not None:
        raise NumericalError(
            f"matrix {failed[0]} of a stack of {factors.shape[1]} x {factors.shape[1]} factors is singular "
            f"(row {failed[1]}). Raise noise_variance.",
            key="not-positive-definite",
        )


def _in_place(name: str, addresses: range, rows: int) -> tuple[int, int] | None:
    """Call LAPACK on one lower triangle after the other; which it fails on first, and at which row."""
    routine = _routine(name)
    size, info = ctypes.c_int(rows), ctypes.c_int()
    for index, address in enumerate(addresses):
        routine(b"U", size, address, size, info)
        if info.value != 0:
            return index, info.value
    return None


def mirror_lower(matrix: Array) -> None:
    """Copy the lower triangle of a matrix (m, m) to its upper one, strip by strip."""
    for start in range(0, len(matrix), BLOCK):
        stop = min(start + BLOCK, len(matrix))
        square = np.tril(matrix[start:stop, start:stop])
        matrix[start:stop, start:stop] = square + np.tril(square, -1).T
        matrix[start:stop, stop:] = matrix[stop:, start:stop].T


def solve_lower(factors: Array, columns: Array, *, transposed: bool = False) -> None:
    """``columns <- L^-1 columns`` or ``L^-T columns`` for every matrix, m^2 r flops each.

    Of columns with fewer rows than L has, by as many of its first rows and columns.
    """
    _triangular("dtrsm", factors, columns, transposed)


def multiply_lower(factors: Array, columns: Array, *, transposed: bool = False) -> None:
    """``columns <- L columns`` or ``L' columns`` for every matrix, m^2 r flops each."""
    _triangular("dtrmm", factors, columns, transposed)


def multiply_symmetric(stack: Array, columns: Array) -> Array:
    """``S columns`` for every symmetric matrix S, 2 m^2 r flops each."""
    out = np.empty_like(columns)
    rights, results = (_addresses(each, columns_of=stack, written=each is out) for each in (columns, out))
    multiply, one, none = _routine("dsymm"), ctypes.c_double(1.0), ctypes.c_double(0.0)
    rows, width = ctypes.c_int(columns.shape[1]), ctypes.c_int(columns.shape[2])
    leading = ctypes.c_int(stack.shape[1])
    for matrix, right, result in zip(_addresses(stack), rights, results, strict=True):
        multiply(b"R", b"U", width, rows, one, matrix, leading, right, width, none, result, width)
    return out


def _triangular(name: str, factors: Array, columns: Array, transposed: bool) -> None:
    matrices, rights = _addresses(factors), _addresses(columns, columns_of=factors, written=True)
    if columns.size == 0:
        return
    if columns.shape[2] <= FEW_COLUMNS:  # too little work to call BLAS for, and to fight over the GIL for
        from cagp_dist import triangles

        apply = triangles.multiply_small_lower if name == "dtrmm" else triangles.solve_small_lower
        apply(factors, columns, transposed)
        return
    routine = _routine(name)
    flag = b"T" if transposed else b"N"
    rows, width = ctypes.c_int(columns.shape[1]), ctypes.c_int(columns.shape[2])
    leading, one = ctypes.c_int(factors.shape[1]), ctypes.c_double(1.0)
    for matrix, right in zip(matrices, rights, strict=True):
        routine(b"R", b"U", flag, b"N", width, rows, one, matrix, leading, right, width)


def _addresses(stack: Array, *, columns_of: Array | None = None, written: bool = False) -> range:
    """Addresses of the matrices of a stack; what compiled code would read or write wrongly is refused."""
    if not stack.flags.c_contiguous or stack.dtype != np.float64:
        raise TypeError("a stack must be C-contiguous float64")
    if written and not stack.flags.writeable:
        raise ValueError("a stack that is written to is read-only")
    if columns_of is None and (stack.ndim != 3 or stack.shape[1] != stack.shape[2]):
        raise ValueError(f"a stack of shape {stack.shape}; expected (count, m, m)")
    if columns_of is not None:
        count, m = columns_of.shape[:2]
        if stack.ndim != 3 or len(stack) != count or stack.shape[1] > m:
            raise ValueError(f"columns have shape {stack.shape}; expected ({count}, {m}, r), or fewer rows")
    step = 8 * stack.shape[1] * stack.shape[2]
    if step == 0:
        return range(0)
    start: int = stack.__array_interface__["data"][0]  # which is quicker to ask for than `ctypes.data`
    return range(start, start + len(stack) * step, step)
