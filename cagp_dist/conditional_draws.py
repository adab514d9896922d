"""Compiled: draws of many values, each given its neighbours among them, many at a time."""

import numpy as np

from cagp_dist.compilation import CONTRACT, compiled


@compiled(nogil=True)
def colours_of(near):
    """Give each of n places a colour (n,) that no neighbour has.

    Row i of ``near`` (n, k) has its neighbours, below n, and -1 for none.

    Greedily, in their order: the first colour that neither its neighbours nor those that it is a neighbour of
    have.
    """
    n, k = near.shape
    found = np.full(n, -1)
    taken = np.zeros((n, 64), dtype=np.bool_)
    for i in range(n):
        for j in range(k):
            other = near[i, j]
            if other >= 0 and found[other] >= 0:
                taken[i, found[other]] = True
        colour = 0
        while colour < taken.shape[1] and taken[i, colour]:
            colour += 1
        if colour == taken.shape[1]:
            wider = np.zeros((n, 2 * colour), dtype=np.bool_)
            wider[:, :colour] = taken
            taken = wider
        found[i] = colour
        for j in range(k):
            if near[i, j] >= 0:
                taken[near[i, j], colour] = True
    return found


@compiled(nogil=True, fastmath=CONTRACT)
def add_neighbours(chosen, near, weights, values, out):
    """Add ``sum_j weights[i, j] values[near[i, j]]``, i = ``chosen[a]``, to row a of ``out`` (c, d)."""
    for a in range(chosen.size):
        i = chosen[a]
        for j in range(near.shape[1]):
            other = near[i, j]
            if other < 0:
                continue
            weight = weights[i, j]
            for d in range(values.shape[1]):
                out[a, d] += weight * values[other, d]
