"""Compiled products and solves with stacks of small lower triangles and few columns.

`cagp_dist.lapack` calls BLAS for larger ones. Beside `CONTRACT` one sum has the freedom of ``reassoc``: its
order depends on its length alone.
"""

import math

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
def complete_rows(table, rounding, inverses):
    """Factor a covariance matrix row by row, and solve with the rows below it, in place.

    The first m rows of ``table`` (m + r, m) hold a symmetric matrix, of which the lower triangle is read;
    they become the rows of its lower factor L, and every row v after them becomes ``L^-1 v``. A row that
    those before it determine, up to ``rounding`` of its diagonal, is left out: its column is zero. Writes one
    over the diagonal of L to ``inverses`` (m,), zero where a row is left out; returns how many are.
    """
    left_out, m = 0, table.shape[1]
    for i in range(table.shape[0]):
        row = table[i]
        for j in range(min(i, m)):
            row[j] = (row[j] - _short_dot(row, table[j], j)) * inverses[j]
        if i < m:
            rest = row[i] - _short_dot(row, row, i)
            if rest > rounding * row[i]:
                row[i] = math.sqrt(rest)
                inverses[i] = 1.0 / row[i]
            else:
                row[i] = inverses[i] = 0.0
                left_out += 1
    return left_out


@compiled(nogil=True, fastmath=CONTRACT | {"reassoc"})
def solve_rows_back(table, inverses, rows):
    """``v <- L^-T v`` for rows v (r, m), in place, L from `complete_rows`."""
    for r in range(rows.shape[0]):
        row = rows[r]
        for j in range(row.size - 1, -1, -1):
            row[j] *= inverses[j]
            weight, factor = row[j], table[j]
            for i in range(j):
                row[i] -= weight * factor[i]


@compiled(nogil=True)
def unknown_leaves(nearest, leaf, sizes, found, count):
    """Choose for each target the first ``count`` of some leaves that its neighbours have not all points of.

    Shapes: nearest (q, k), leaf (n,) of each point, sizes (leaves,), found (q, f); the result (q, count) has
    -1 where there are fewer.
    """
    chosen, known = np.full((nearest.shape[0], count), -1), np.zeros(sizes.size, dtype=np.int64)
    for t in range(nearest.shape[0]):
        place = 0
        for point in nearest[t]:
            known[leaf[point]] += 1
        for each in found[t]:
            if place < count and known[each] < sizes[each]:
                chosen[t, place] = each
                place += 1
        for point in nearest[t]:
            known[leaf[point]] = 0
    return chosen


@compiled(nogil=True)
def shared_neighbours(nearest, points, most, at_once):
    """Group targets that follow each other, as many as can share their neighbours at no more cost than alone.

    Groups are halves of halves of runs of ``most`` targets. One of g targets with m different neighbours
    counts as ``m^3 / 3 + g m^2`` flops, more where rows are short, what kernel values take, and ``at_once``.

    Shapes: ``nearest`` (q, k); returns (groups + 1,), (groups + 1,).
    """
    q, k = nearest.shape
    alone = _group_flops(1, k) + at_once
    edges, starts = np.zeros(q + 1, dtype=np.int64), np.zeros(q + 1, dtype=np.int64)
    members, seen = np.empty(q * k, dtype=np.int64), np.full(points, -1)
    mark, groups, start, size = 0, 0, 0, most
    while start < q:
        stop = min(start + size, q)
        first = starts[groups]
        count = first
        for t in range(start, stop):
            for j in range(k):
                if nearest[t, j] >= 0 and seen[nearest[t, j]] != mark:
                    seen[nearest[t, j]] = mark
                    members[count] = nearest[t, j]
                    count += 1
        mark += 1
        g = stop - start
        if g > 1 and _group_flops(g, count - first) + at_once > g * alone:
            size = max(1, g // 2)
            continue
        groups += 1
        edges[groups], starts[groups] = stop, count
        start, size = stop, most
    return edges[: groups + 1], starts[: groups + 1], members[: starts[groups]]


@compiled(nogil=True)
def _group_flops(targets, members):
    """Flops of a group at the speed of long rows; kernel values take as long as a dozen each."""
    m = float(members)
    return (m**2 / 3.0 + targets * m) * (m + 128.0) + 12.0 * (m**2 + targets * m)


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
