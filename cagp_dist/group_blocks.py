"""Compiled: sums over observations that belong to groups, in matrices of which only some blocks are there.

A symmetric matrix of groups is cut into square blocks. Those on the diagonal are ``diagonals`` (B, b, b), of
which lower triangles matter; those right of it lie in ``panels``, row of blocks after row. ``table`` (B, B)
says of a pair of blocks, the smaller one first, where it begins there (-1: it is zero), and ``widths`` (B,)
how long the rows of each row of blocks are.
"""

import numpy as np

from cagp_dist.compilation import CONTRACT, compiled


@compiled(nogil=True)
def link_blocks(starts, members, size, linked):
    """Mark which blocks have a pair of members of one row; ``linked`` (B, B), members by their places."""
    seen, found = np.full(linked.shape[0], -1), np.empty(linked.shape[0], dtype=np.int64)
    for row in range(starts.size - 1):
        count = 0
        for at in range(starts[row], starts[row + 1]):
            block = members[at] // size
            if seen[block] != row:
                seen[block] = row
                found[count] = block
                count += 1
        for a in range(count):
            for b in range(count):
                linked[found[a], found[b]] = True


@compiled(nogil=True)
def link_neighbours(neighbours, groups, size, linked):
    """Mark which blocks have groups of a point and its neighbours (n, k), of groups (n, axes) or -1."""
    seen, found = np.full(linked.shape[0], -1), np.empty(linked.shape[0], dtype=np.int64)
    n, k = neighbours.shape
    for i in range(n):
        count = 0
        for j in range(-1, k):
            point = i if j < 0 else neighbours[i, j]
            if point < 0:
                continue
            for axis in range(groups.shape[1]):
                if groups[point, axis] < 0:
                    continue
                block = groups[point, axis] // size
                if seen[block] != i:
                    seen[block] = i
                    found[count] = block
                    count += 1
        for a in range(count):
            for b in range(count):
                linked[found[a], found[b]] = True


@compiled(nogil=True, fastmath=CONTRACT)
def add_groups(neighbours, weights, deviations, groups, rows, diagonals, panels, table, widths):
    """Add ``F'U U'F`` to the blocks of so many rows, of a factor U as in `cagp_dist.triangles.whiten`.

    Shapes: neighbours and weights (n, k), -1 is no neighbour, deviations (n,), groups (n, axes), each the
    place of a group or -1.
    """
    n, k = neighbours.shape
    size, axes = diagonals.shape[1], groups.shape[1]
    value, seen = np.zeros(rows), np.full(rows, -1)
    found = np.empty((k + 1) * axes, dtype=np.int64)
    blocks, places, values = np.empty_like(found), np.empty_like(found), np.empty(found.size)
    for i in range(n):
        count = 0
        for j in range(-1, k):
            point = i if j < 0 else neighbours[i, j]
            if point < 0:
                continue
            entry = (1.0 if j < 0 else -weights[i, j]) / deviations[i]
            for axis in range(axes):
                group = groups[point, axis]
                if group < 0:
                    continue
                if seen[group] != i:
                    seen[group] = i
                    value[group] = 0.0
                    found[count] = group
                    count += 1
                value[group] += entry
        members = np.sort(found[:count])  # one row of the matrix after the other
        for a in range(count):
            blocks[a], values[a] = members[a] // size, value[members[a]]
            places[a] = members[a] - size * blocks[a]
        for a in range(count):
            block, place, own = blocks[a], places[a], values[a]
            row = place * widths[block]
            for b in range(a, count):
                if blocks[b] == block:
                    diagonals[block, places[b], place] += own * values[b]
                else:
                    panels[table[block, blocks[b]] + row + places[b]] += own * values[b]


@compiled(nogil=True, fastmath=CONTRACT)
def quadratic_forms(starts, members, values, diagonals, panels, table, widths, out):
    """``out[i] = r_i' Z r_i`` for sparse rows r, and a matrix Z by its blocks.

    Returns whether there is a block of each pair of members of a row.
    """
    size = diagonals.shape[1]
    for i in range(starts.size - 1):
        total = 0.0
        for a in range(starts[i], starts[i + 1]):
            for b in range(starts[i], a + 1):
                low, high = members[b], members[a]
                if low > high:
                    low, high = high, low
                first, second = low // size, high // size
                if first == second:
                    entry = diagonals[first, high - first * size, low - first * size]
                else:
                    if table[first, second] < 0:
                        return False
                    row = low - first * size
                    entry = panels[table[first, second] + row * widths[first] + high - second * size]
                total += (1.0 if a == b else 2.0) * values[a] * values[b] * entry
        out[i] = total
    return True
