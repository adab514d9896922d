"""Compiled products and solves with stacks of small lower triangles and few columns.

`cagp_dist.lapack` calls BLAS for larger ones. Beside `CONTRACT` one sum has the freedom of ``reassoc``: its
order depends on its length alone.
"""

import numpy as np

from cagp_dist.compilation import CONTRACT, compiled


@compiled(nogil=True, fastmath=CONTRACT)
def multiply_lower(factors, columns, transposed):
    """``columns[k] <- L_k columns[k]``, or ``L_k' columns[k]``.

    Shapes: factors (count, m, m), columns (count, m, r), all float64.
    """
    x = np.empty(columns.shape[1])
    for k in range(columns.shape[0]):
        for c in range(columns.shape[2]):
            for i in range(x.size):
                x[i] = columns[k, i, c]
            if transposed:
                for i in range(x.size):
                    row, value = factors[k, i], x[i]
                    for j in range(i):
                        x[j] += row[j] * value
                    x[i] = row[i] * value
            else:
                for i in range(x.size - 1, -1, -1):
                    row = factors[k, i]
                    x[i] = row[i] * x[i] + _short_dot(row, x, i)
            for i in range(x.size):
                columns[k, i, c] = x[i]


@compiled(nogil=True, fastmath=CONTRACT)
def solve_lower(factors, columns, transposed):
    """``columns[k] <- L_k^-1 columns[k]``, or ``L_k^-T columns[k]``, shapes as in `multiply_lower`."""
    x = np.empty(columns.shape[1])
    for k in range(columns.shape[0]):
        for c in range(columns.shape[2]):
            for i in range(x.size):
                x[i] = columns[k, i, c]
            if transposed:
                for i in range(x.size - 1, -1, -1):
                    row = factors[k, i]
                    value = x[i] / row[i]
                    for j in range(i):
                        x[j] -= row[j] * value
                    x[i] = value
            else:
                for i in range(x.size):
                    row = factors[k, i]
                    x[i] = (x[i] - _short_dot(row, x, i)) / row[i]
            for i in range(x.size):
                columns[k, i, c] = x[i]


@compiled(nogil=True, fastmath=CONTRACT | {"reassoc"})
def _short_dot(left, right, size):
    """Inner product of the first ``size`` entries, summed in the order that is fastest for vectors."""
    total = 0.0
    for j in range(size):
        total += left[j] * right[j]
    return total
