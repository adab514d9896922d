"""Compiled: which targets share their neighbours, and which leaves stand beside these."""

import numpy as np

from cagp_dist.compilation import compiled


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
            if t > start and _group_flops(stop - start, count - first) + at_once > (stop - start) * alone:
                break  # too many already
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
