"""Nearest points among those that come before, in an order of all points (math 9)."""

import numpy as np

from cagp_dist.arrays import Array, Indices


def nearest_preceding(X: Array, centres: Array, ranks: Indices, count: int, *, workers: int = 1) -> Indices:
    """For each of ``centres`` (q, p) the ``count`` nearest of ``X`` (n, p) before its rank; (q, count)."""
    from scipy.spatial import cKDTree

    found = np.full((len(centres), count), -1, dtype=np.intp)
    upper = len(X)
    # The tree of the first ``upper`` points is asked by ranks in its last quarter: three quarters of it or
    # more come before them, so that of 4/3 count neighbours, and some for chance, count do.
    while upper > 0 and count > 0:
        lower = upper * 3 // 4 if upper > 2 * count else 0
        asked = np.flatnonzero((ranks > lower) & (ranks <= upper))
        if asked.size:
            tree, most = cKDTree(X[:upper], balanced_tree=False), 4 * count // 3 + 32
            while asked.size:
                most = min(most, upper)
                near = np.asarray(tree.query(centres[asked], k=np.arange(1, most + 1), workers=workers)[1])
                before = near < ranks[asked, None]
                place = np.cumsum(before, axis=1, dtype=np.int32)
                rows, columns = np.nonzero(before & (place <= count))
                done = place[:, -1] >= np.minimum(count, ranks[asked])
                kept = done[rows]
                rows, columns = rows[kept], columns[kept]
                found[asked[rows], place[rows, columns] - 1] = near[rows, columns]
                asked, most = asked[~done], 2 * most
        upper = lower
    return found
