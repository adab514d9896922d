"""Compiled searches for the observed points nearest to each of many targets, and for targets that share them.

Points are dealt out in leaves with bounding boxes, halves of halves. A target sees the leaves that may hold
its neighbours by those of a target near it: with a neighbours' distance r of one a distance d away, its own
are within r + d.
"""

import math

import numpy as np

from cagp_dist.compilation import CONTRACT, compiled

LEAF_POINTS = 32  # points of a leaf, at most, unless they are all at one place
TOGETHER = 8  # targets that follow each other whose leaves are looked up together
FIRST_GUESS, NEXT_GUESS = 1.15, 1.4  # of a radius that holds enough points, by the one before
SLACK = 1.0 + 1e-9  # of radii, for rounding
_NEAR = 1e-150  # a radius whose square is a number


def nearest_points(X, targets, k):
    """Give the k nearest of points X (n, p) to each target (q, p); of equally far ones the first.

    Shape (q, k), the nearest first. Targets that follow each other are best near each other.
    """
    points = np.array(X, dtype=np.float64)
    order, edges = _leaves(points)
    by_column = np.ascontiguousarray(points.T)
    lower, upper = (extreme.reduceat(by_column, edges[:-1], axis=1) for extreme in (np.minimum, np.maximum))
    middle = 0.5 * (lower + upper)
    half = np.maximum(upper - middle, middle - lower) + 1e-15 * np.maximum(np.abs(lower), np.abs(upper))
    found = np.empty((len(targets), k), dtype=np.int64)
    _search(by_column, order, edges, middle, half, np.array(targets, dtype=np.float64), found)
    return found


@compiled(nogil=True)
def _leaves(points):
    """Sort points (n, p) by leaf, in place; their order, and where leaves begin and end."""
    n, p = points.shape
    order, edges = np.arange(n), np.zeros(n + 1, dtype=np.int64)
    starts, stops = np.empty(n + 1, dtype=np.int64), np.empty(n + 1, dtype=np.int64)
    starts[0], stops[0], waiting, leaves = 0, n, 1, 0
    while waiting > 0:
        waiting -= 1
        start, stop = starts[waiting], stops[waiting]
        middle = start
        if stop - start > LEAF_POINTS:
            widest, axis, cut = 0.0, 0, 0.0
            for c in range(p):
                low = high = points[start, c]
                for i in range(start, stop):
                    low, high = min(low, points[i, c]), max(high, points[i, c])
                if high - low > widest:
                    widest, axis, cut = high - low, c, 0.5 * (low + high)
            last = stop - 1
            while widest > 0.0 and middle <= last:
                if points[middle, axis] <= cut:
                    middle += 1
                else:
                    for c in range(p):
                        points[middle, c], points[last, c] = points[last, c], points[middle, c]
                    order[middle], order[last] = order[last], order[middle]
                    last -= 1
        if start < middle < stop:
            starts[waiting], stops[waiting] = middle, stop
            starts[waiting + 1], stops[waiting + 1] = start, middle
            waiting += 2
        else:
            leaves += 1
            edges[leaves] = stop
    return order, edges[: leaves + 1]


@compiled(nogil=True, fastmath=CONTRACT)
def _search(points, order, edges, middle, half, targets, found):
    """Write the nearest of points (p, n), sorted by leaf, to each target; they are named by ``order``.

    Leaves have boxes (p, leaves), of which ``middle`` and half the sides are given.
    """
    (p, leaves), n, k = middle.shape, points.shape[1], found.shape[1]
    gaps, every = np.empty(leaves), np.arange(leaves)
    chosen, some = np.empty(leaves, dtype=np.int64), np.empty((2, p, leaves))
    squares, places = np.empty(n), np.empty(n, dtype=np.int64)
    radius, before = np.inf, 0  # of the neighbours of a target
    for first in range(0, targets.shape[0], TOGETHER):
        last = min(first + TOGETHER, targets.shape[0])
        spread, near, of_first = 0.0, leaves, radius + _distance(targets, before, first)
        for t in range(first, last):
            spread = max(spread, _distance(targets, first, t))
        for t in range(first, last):
            if t == first:
                which = every
                _gaps(targets[t], middle, half, leaves, gaps)
            else:
                which = chosen
                _gaps(targets[t], some[0], some[1], near, gaps)
            bound = min(of_first + _distance(targets, first, t), radius + _distance(targets, before, t))
            count, guess = 0, min(bound, FIRST_GUESS * radius)
            while True:  # points are about as dense as they were around the target before
                squared, count = (guess * SLACK) ** 2, 0
                for each in range(near):
                    if gaps[each] <= squared:
                        start, stop = edges[which[each]], edges[which[each] + 1]
                        count = _within(
                            points, order, start, stop, targets[t], squared, squares, places, count
                        )
                if count >= k:
                    break
                if not guess < np.inf:
                    raise ValueError("coordinates in units of the lengthscale are too large, or no numbers")
                if guess >= bound:  # but for rounding
                    bound = 2.0 * bound + _NEAR
                guess = min(bound, NEXT_GUESS * guess) if guess > 0.0 else bound
            radius, before = math.sqrt(_take_nearest(squares, places, count, found[t])), t
            if t == first:
                of_first, near = radius, 0
                reach = ((radius + 2.0 * spread) * SLACK) ** 2
                for leaf in range(leaves):
                    if gaps[leaf] <= reach:
                        chosen[near] = leaf
                        for c in range(p):
                            some[0, c, near], some[1, c, near] = middle[c, leaf], half[c, leaf]
                        near += 1


@compiled(nogil=True)
def _distance(points, i, j):
    """Distance of two of some points (n, p)."""
    total = 0.0
    for c in range(points.shape[1]):
        total += (points[i, c] - points[j, c]) ** 2
    return math.sqrt(total)


@compiled(nogil=True, fastmath=CONTRACT)
def _gaps(target, middle, half, count, out):
    """Write squares of the distances of a target from the first boxes."""
    out[:count] = 0.0
    for c in range(target.size):
        at, centres, sides = target[c], middle[c, :count], half[c, :count]
        for j in range(count):
            beyond = abs(at - centres[j]) - sides[j]
            beyond = 0.5 * (beyond + abs(beyond))  # without a branch
            out[j] += beyond * beyond


@compiled(nogil=True, fastmath=CONTRACT)
def _within(points, order, start, stop, target, bound, squares, places, count):
    """Add the points of a leaf within a distance to those that were found, and count them."""
    size = stop - start
    own = squares[count : count + size]
    own[:] = 0.0
    for c in range(target.size):
        row, middle = points[c, start:stop], target[c]
        for j in range(size):
            own[j] += (row[j] - middle) * (row[j] - middle)
    kept = count
    for j in range(size):
        value = own[j]
        squares[kept], places[kept] = value, order[start + j]
        kept += int(value <= bound)  # without a branch
    return kept


@compiled(nogil=True)
def _take_nearest(squares, places, count, out):
    """Write the places of the smallest squares, in their order, equal ones by place; the largest of them."""
    k = out.size
    _select(squares, places, count, k)
    largest = squares[0]
    for j in range(1, k):
        largest = max(largest, squares[j])
    ties, less = 0, 0
    for j in range(count):
        if squares[j] == largest:
            ties += 1
        elif squares[j] < largest:
            squares[less], squares[j] = squares[j], squares[less]
            places[less], places[j] = places[j], places[less]
            less += 1
    tied, at = np.empty(ties, dtype=np.int64), 0
    for j in range(less, count):
        if squares[j] == largest:
            tied[at] = places[j]
            at += 1
    tied.sort()
    for j in range(less, k):
        squares[j], places[j] = largest, tied[j - less]
    _sort(squares, places, less)
    for j in range(k):
        out[j] = places[j]
    return largest


@compiled(nogil=True)
def _sort(squares, places, k):
    """Sort the first k squares, equal ones by place (Shell)."""
    gap = 1
    while gap < k // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for j in range(gap, k):
            value, place, at = squares[j], places[j], j
            while at >= gap and (
                squares[at - gap] > value or (squares[at - gap] == value and places[at - gap] > place)
            ):
                squares[at], places[at] = squares[at - gap], places[at - gap]
                at -= gap
            squares[at], places[at] = value, place
        gap //= 3


@compiled(nogil=True)
def _select(squares, places, count, k):
    """Bring the k smallest squares to the begin, in any order (Hoare)."""
    low, high = 0, count - 1
    while low < high:
        pivot = squares[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while squares[i] < pivot:
                i += 1
            while squares[j] > pivot:
                j -= 1
            if i <= j:
                squares[i], squares[j] = squares[j], squares[i]
                places[i], places[j] = places[j], places[i]
                i += 1
                j -= 1
        if k - 1 <= j:
            high = j
        elif k - 1 >= i:
            low = i
        else:
            return


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
