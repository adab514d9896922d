"""Compiled products and solves with stacks of small lower triangles and few columns.

`cagp_dist.lapack` calls BLAS for larger ones. Beside `CONTRACT` one sum has the freedom of ``reassoc``: its
order depends on its length alone.
"""

import numpy as np

from cagp_dist.compilation import CONTRACT, compiled


@compiled(nogil=True, fastmath=CONTRACT)
def multiply_small_lower(factors, columns, transposed):
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
def solve_small_lower(factors, columns, transposed):
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


@compiled(nogil=True, fastmath=CONTRACT | {"reassoc"})
def solve_rows_back(table, inverses, rows):
    """``v <- L^-T v`` for rows v (r, m), in place, L from `cagp_dist.compiled.complete_rows`."""
    for r in range(rows.shape[0]):
        row = rows[r]
        for j in range(row.size - 1, -1, -1):
            row[j] *= inverses[j]
            weight, factor = row[j], table[j]
            for i in range(j):
                row[i] -= weight * factor[i]


@compiled(nogil=True, fastmath=CONTRACT)
def whiten(neighbours, weights, deviations, columns, out):
    """``out[i] = (columns[i] - sum_j weights[i, j] columns[neighbours[i, j]]) / deviations[i]``.

    Shapes: neighbours and weights (n, k), where -1 is no neighbour, deviations (n,), columns and out (n, r).
    """
    for i in range(neighbours.shape[0]):
        own, row = out[i], columns[i]
        for c in range(own.size):
            own[c] = row[c]
        for j in range(neighbours.shape[1]):
            if neighbours[i, j] >= 0:
                weight, row = weights[i, j], columns[neighbours[i, j]]
                for c in range(own.size):
                    own[c] -= weight * row[c]
        for c in range(own.size):
            own[c] /= deviations[i]


@compiled(nogil=True, fastmath=CONTRACT)
def unwhiten(neighbours, weights, deviations, white, out):
    """Solve `whiten` for its columns: each row by way of those before it."""
    for i in range(neighbours.shape[0]):
        own, row = out[i], white[i]
        for c in range(own.size):
            own[c] = row[c] * deviations[i]
        for j in range(neighbours.shape[1]):
            if neighbours[i, j] >= 0:
                weight, row = weights[i, j], out[neighbours[i, j]]
                for c in range(own.size):
                    own[c] += weight * row[c]


@compiled(nogil=True, fastmath=CONTRACT)
def scatter(neighbours, weights, deviations, white, out):
    """Add the transpose of `whiten` times ``white`` (n, r) to ``out`` (n, r)."""
    value = np.empty(white.shape[1])
    for i in range(neighbours.shape[0]):
        row, own = white[i], out[i]
        for c in range(value.size):
            value[c] = row[c] / deviations[i]
            own[c] += value[c]
        for j in range(neighbours.shape[1]):
            if neighbours[i, j] >= 0:
                weight, row = weights[i, j], out[neighbours[i, j]]
                for c in range(value.size):
                    row[c] -= weight * value[c]
