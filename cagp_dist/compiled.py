"""Compiled evaluation of Gram tiles, and of tiles times columns without storing the tile.

Every loop over pairs of points is here, all in one file: what Numba keeps on disk of a function is renewed
when its file changes, not when that of one it calls does. A tile is evaluated row by row into a buffer that
stays in cache: squared distances, then the kernel profile in place. Sub-tiles of points so far apart that
their entries vanish below rounding are skipped.

A kernel comes as ``family, inverse_lengthscale, variance``: a `CompiledProfile` and two numbers, or for a sum
of kernels three tuples, the part that reaches furthest first; distances of a row are evaluated once for all
parts. With a lengthscale for each coordinate an entry of ``inverse_lengthscale`` is a tuple, and every part
has its own distances. Derivatives by logarithms of lengthscales are profiles of their own. Numba takes
seconds for every combination of types: compiled functions see every kernel as two arrays (`_packed`), and
arrays as writable also if they are not, except stored tiles.

Points come as (p, n) arrays, so that innermost loops run over neighbours in memory. All functions release the
GIL. Numba does not vectorise the C library's ``exp``: it is written out here. Of fast-math only `CONTRACT` is
used: a sum's order depends on its length alone, hence results do not depend on how work is split.
"""

import math
from functools import lru_cache, wraps
from typing import NamedTuple

import numba
import numpy as np

from cagp_dist.compilation import CONTRACT, compiled

# Where the numbers of a `CompiledProfile` stand: what kind it is, the distance in lengthscales at
# which it has fallen to 2^-60 (9e-19) of the variance, the coordinate by whose lengthscale it is a derivative
# or -1, and its value at distance zero. What lies beyond its reach is below the rounding of any sum it would
# enter, so sub-tiles wholly beyond are left out.
KIND, REACH, COORDINATE, AT_ZERO = 0, 1, 2, 3
# A polynomial of a times exp(-a), of a the distance or the square of it times a number; or that over a.
DISTANCE, SQUARE, RECIPROCAL = 0, 1, 2
SCALE, FIRST_COEFFICIENT, TERMS = 4, 5, 4
# Polynomials on pieces of s, the square of the distance; below them two powers of s, and 0 from the edge.
PIECES = 3
EDGE, FIRST_POWER, FIRST_PIECE = 4, 5, 9
FIRST_OCTAVE, PIECES_OF_OCTAVE, DEGREE = -40, 64, 4
# A product of profiles: how many, then of each the first coordinate that it is of and the one past the last,
# the period around which its distances are bent, or 0, the power of w = 1 + the distance of the factor before
# that divides the squares of its own, and where its numbers begin and end.
PRODUCT = 4
FACTORS, FIRST_FACTOR, OF_FACTOR = 4, 5, 6
# Powers of that w, with their exponent instead of a scale.
ALGEBRAIC = 5
# Of places on the globe, where other distances count as one along parallels than along meridians: by how much
# their squares differ at the equator, that of the first, what values are multiplied with, and the profile of
# distances.
GLOBE = 6
STRETCH, ALONG, MULTIPLIED, FIRST_OF_DISTANCES = 4, 5, 6, 7
# With what makes them a covariance; with the slope of that by the logarithm of the ratio of both distances;
# with the slope of squared distances.
BY_WEIGHT, BY_ITS_SLOPE, BY_SLOPE_OF_SQUARES = 0, 1, 2
# Of a label, an integer from 0: a table (labels, labels) of values; one where labels are the same, else zero.
# Below zero are points that go with no other.
TABLE, SAME = 7, 8
LABELS, FIRST_ENTRY, FEW_LABELS = 4, 5, 4

# What `_packed` says of each part of a kernel: the first number of its profile and the one past the last, its
# variance, one over its lengthscale, and from OWN on the same for each coordinate if each has its own.
FROM, TO, VARIANCE, INVERSE, OWN = 0, 1, 2, 3, 4

# Rows and columns of a sub-tile in products with one column (rows stay in first-level cache).
TILE_ROWS = 128
TILE_COLUMNS = 256
# Entries that are turned from distances into kernel values at a time: 16 KiB, half a first-level cache.
FIRST_LEVEL = 2048
# Rows of the covariance of a group of observations that are evaluated at a time, up to the diagonal.
STRIP = 8

_LOG2_E = 1.4426950408889634
# Beyond this argument exp(-a) is below 1e-303; the cut keeps 0 * inf out of the polynomials.
_FAR = 700.0
# Instead of a smaller divisor: what it divides is then multiplied by the square of one that is no larger.
_NEAR = 1e-150
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


@lru_cache(maxsize=32)
def _packed(family, inverse_lengthscale, variance):
    """Profiles of the parts of a kernel, one after the other, and a row of numbers for each part."""
    if not isinstance(family, tuple):
        family, inverse_lengthscale, variance = (family,), (inverse_lengthscale,), (variance,)
    profiles = [np.frombuffer(own, np.float64) for own in family]
    coordinates = len(inverse_lengthscale[0]) if isinstance(inverse_lengthscale[0], tuple) else 0
    parts = np.ones((len(profiles), OWN + coordinates))
    end = 0
    for part, profile in zip(parts, profiles, strict=True):
        part[FROM], end = end, end + profile.size
        part[TO] = end
    parts[:, VARIANCE] = variance
    parts[:, OWN if coordinates else INVERSE :] = np.reshape(inverse_lengthscale, (len(profiles), -1))
    numbers = profiles[0] if len(profiles) == 1 else np.concatenate(profiles)
    return _read_only(numbers), _read_only(parts)


def _packed_with_shares(families, shares, inverse_lengthscales, variances):
    """Parts of a kernel as compiled functions see them, then their shares."""
    own, variance = tuple(map(tuple, inverse_lengthscales.tolist())), tuple(variances.tolist())
    return *_packed(families, own, variance), *_packed(shares, own, variance)


def _read_only(array):
    """Give a view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def _writable(array):
    """Give an array, or a copy of one that cannot be written to."""
    return array.copy() if isinstance(array, np.ndarray) and not array.flags.writeable else array


class Embedding(NamedTuple):
    """In place of lengthscales: a kernel of linear functions of points instead of their coordinates."""

    # (parts, P): 1 where a part depends on a function, else 0; or 1: a kernel of the distance in all of them
    scales: float | tuple[tuple[float, ...], ...]
    rows: tuple[tuple[float, ...], ...]  # (P, p)


def _in_place_of(inverse_lengthscale, *points):
    """Lengthscales without an embedding, and points (p, n) in it: sums whose order is that of the columns."""
    if not isinstance(inverse_lengthscale, Embedding):
        return inverse_lengthscale, *points
    return inverse_lengthscale.scales, *(embedded(inverse_lengthscale.rows, each) for each in points)


def embedded(rows, points):
    """Linear functions (P, n) of points (p, n); each is the same whatever other points there are."""
    if len(points) != len(rows[0]):
        raise ValueError(f"points have {len(points)} coordinates; expected {len(rows[0])}")
    out = np.zeros((len(rows), points.shape[1]))
    for row, values in zip(rows, out, strict=True):
        for weight, column in zip(row, points, strict=True):
            if weight != 0.0:
                values += weight * column
    return out


def _of_kernel(*, outputs, points=(), pack=_packed, parameters=3):
    """Let a compiled function take the parameters of a kernel, and arrays that cannot be written to.

    ``pack`` makes its first arguments from the parameters; the last ``outputs`` ones are written to. Those at
    the places ``points`` after the parameters are points.
    """

    def wrap(function):
        @wraps(function, updated=())
        def call(*arguments):
            own, given = list(arguments[:parameters]), list(map(_writable, arguments[parameters:-outputs]))
            if points and isinstance(own[1], Embedding):
                own[1], *places = _in_place_of(own[1], *(given[at] for at in points))
                for at, place in zip(points, places, strict=True):
                    given[at] = place
            function(*pack(*own), *given, *arguments[-outputs:])

        return call

    return wrap


# What `_piece_at` takes apart: bits below those that count pieces, the count before the first piece, half a
# piece, and the square of the distance where pieces begin.
_PIECE_BITS = 52 - (PIECES_OF_OCTAVE.bit_length() - 1)
_BEFORE_FIRST = ((1023 + FIRST_OCTAVE) * PIECES_OF_OCTAVE) - 1
_HALF_PIECE = 1 << (_PIECE_BITS - 1)
_SMALLEST = 2.0**FIRST_OCTAVE


@numba.njit(inline="always", fastmath=CONTRACT)
def _exp_minus(a):
    """``exp(-a)`` for 0 <= a <= 700, relative error below 1.5e-15 + 1.2e-16 a (argument rounding)."""
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


@compiled(nogil=True)
def _copy_row(row, out):
    """``out[:] = row``, without the code for shapes that differ: that takes 2 s to compile."""
    for j in range(out.size):
        out[j] = row[j]


@compiled(nogil=True, fastmath=CONTRACT)
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


@compiled(nogil=True, fastmath=CONTRACT)
def _scaled_squared_distances(inverse_lengthscale, X, i, Z, start, first, last, out):
    """Squared distances in some coordinates, ``first`` to ``last``, in units of their own lengthscales."""
    size = out.size
    if last - first == 3:  # a point in space
        s0, s1, s2 = (
            inverse_lengthscale[first],
            inverse_lengthscale[first + 1],
            inverse_lengthscale[first + 2],
        )
        x0, x1, x2 = X[first, i], X[first + 1, i], X[first + 2, i]
        z0, z1 = Z[first][start : start + size], Z[first + 1][start : start + size]
        z2 = Z[first + 2][start : start + size]
        for j in range(size):
            d0 = (x0 - z0[j]) * s0
            d1 = (x1 - z1[j]) * s1
            d2 = (x2 - z2[j]) * s2
            out[j] = d0 * d0 + d1 * d1 + d2 * d2
        return
    if last - first == 1:  # a time
        x0, z0, s0 = X[first, i], Z[first][start : start + size], inverse_lengthscale[first]
        for j in range(size):
            d0 = (x0 - z0[j]) * s0
            out[j] = d0 * d0
        return
    out[:] = 0.0
    for k in range(first, last):
        x0, z0, scale = X[k, i], Z[k][start : start + size], inverse_lengthscale[k]
        for j in range(size):
            d0 = (x0 - z0[j]) * scale
            out[j] += d0 * d0


@compiled(nogil=True)
def _numbers(profiles, parts, k):
    """Profile of a part."""
    return profiles[int(parts[k, FROM]) : int(parts[k, TO])]


@compiled(nogil=True, fastmath=CONTRACT)
def _profile(numbers, inverse_lengthscale, variance, row):
    """Turn squared distances into values of a profile, in place."""
    kind = numbers[KIND]
    if kind == PIECES:
        _piecewise(numbers, inverse_lengthscale * inverse_lengthscale, variance, row)
        return
    if kind == ALGEBRAIC:
        _algebraic(numbers, variance, row)
        return
    c0, c1 = variance * numbers[FIRST_COEFFICIENT], variance * numbers[FIRST_COEFFICIENT + 1]
    c2, c3 = variance * numbers[FIRST_COEFFICIENT + 2], variance * numbers[FIRST_COEFFICIENT + 3]
    scale, linear = numbers[SCALE] * inverse_lengthscale, c2 == 0.0 and c3 == 0.0
    if kind == DISTANCE and linear:  # a tenth quicker
        for j in range(row.size):
            a = min(math.sqrt(row[j]) * scale, _FAR)
            row[j] = (c0 + a * c1) * _exp_minus(a)
    elif kind == DISTANCE:
        for j in range(row.size):
            a = min(math.sqrt(row[j]) * scale, _FAR)
            row[j] = (c0 + a * (c1 + a * (c2 + a * c3))) * _exp_minus(a)
    elif kind == SQUARE:
        for j in range(row.size):
            u = math.sqrt(row[j]) * inverse_lengthscale
            a = min(0.5 * (u * u), _FAR)
            row[j] = (c0 + a * c1) * _exp_minus(a)
    else:
        for j in range(row.size):
            a = min(math.sqrt(row[j]) * scale, _FAR)
            row[j] = (c0 + a * (c1 + a * (c2 + a * c3))) * _exp_minus(a) / max(a, _NEAR)


@numba.njit(inline="always", fastmath=CONTRACT)
def _piece_at(numbers, s, last):
    """Value of the polynomial of the piece that s falls on; of the first one if s is below."""
    bits = np.float64(s).view(np.int64)
    # the sign, exponent and leading bits of the mantissa count pieces; half a piece further is its middle
    piece = min(max(int(bits >> _PIECE_BITS) - _BEFORE_FIRST, 0), last)  # the last holds NaN, too
    x = s - np.int64((bits >> _PIECE_BITS << _PIECE_BITS) | _HALF_PIECE).view(np.float64)
    at = np.uint64(FIRST_PIECE + piece * (DEGREE + 1))
    value = numbers[at + np.uint64(DEGREE)]
    for power in range(DEGREE - 1, -1, -1):
        value = value * x + numbers[at + np.uint64(power)]
    return value


@compiled(nogil=True, fastmath=CONTRACT)
def _piecewise(numbers, factor, variance, row):
    """Turn squared distances times a factor into values of a profile that is kept in pieces, in place."""
    edge, last = numbers[EDGE], (numbers.size - FIRST_PIECE) // (DEGREE + 1) - 1
    for j in range(row.size):
        s = min(row[j] * factor, edge)
        if 0.0 < s < _SMALLEST:
            row[j] = variance * _near_zero(numbers, s)
        else:
            row[j] = variance * _piece_at(numbers, s, last)


@compiled(nogil=True, fastmath=CONTRACT)
def _algebraic(numbers, variance, row):
    """Turn squared distances into ``(c0 + c1 (w - 1) / w) w^-decay``, w = 1 + distance, in place."""
    c0, c1 = variance * numbers[FIRST_COEFFICIENT], variance * numbers[FIRST_COEFFICIENT + 1]
    decay = numbers[SCALE]
    for j in range(row.size):
        distance = math.sqrt(row[j])
        w = 1.0 + distance
        row[j] = (c0 + c1 * (distance / w)) * _exp_minus(min(decay * math.log(w), _FAR))


@compiled(nogil=True, fastmath=CONTRACT)
def _bend(period, row):
    """Turn squared distances along a circle of this length into squares of its chords, in place."""
    for j in range(row.size):
        turns = math.sqrt(row[j]) / period
        chord = period / math.pi * math.sin(math.pi * (turns - math.floor(turns)))
        row[j] = chord * chord


@compiled(nogil=True, fastmath=CONTRACT)
def _stretch(power, squared, row):
    """Divide by a power of one more than the roots of ``squared``, in place."""
    for j in range(row.size):
        row[j] *= _exp_minus(min(power * math.log(1.0 + math.sqrt(squared[j])), _FAR))


@compiled(nogil=True)
def _near_zero(numbers, s):
    """Value of a profile nearer to zero than its pieces, by two powers of s."""
    return (
        numbers[AT_ZERO]
        + numbers[FIRST_POWER + 1] * s ** numbers[FIRST_POWER]
        + numbers[FIRST_POWER + 3] * s ** numbers[FIRST_POWER + 2]
    )


@compiled(nogil=True, fastmath=CONTRACT)
def _times_squared_difference(scale, x, z, row):
    """Multiply by squared differences in one coordinate, in units of its lengthscale, in place."""
    for j in range(row.size):
        difference = min(abs(x - z[j]) * scale, _FAR)
        row[j] *= difference * difference


@compiled(nogil=True, fastmath=CONTRACT)
def _sum_profile(profiles, parts, near, row):
    """Turn squared distances into the sum of the first ``near`` parts of a kernel, at least 2, in place."""
    most = FIRST_LEVEL // 2
    squared, spare = np.empty(min(most, row.size)), np.empty(most if near > 2 else 0)
    for start in range(0, row.size, most):
        values = row[start : min(start + most, row.size)]
        size = values.size
        _copy_row(values, squared[:size])
        for k in range(near):
            part = values if k == 0 else squared[:size]
            if 0 < k < near - 1:  # the last one needs no copy
                part = spare[:size]
                _copy_row(squared, part)
            _profile(_numbers(profiles, parts, k), parts[k, INVERSE], parts[k, VARIANCE], part)
            if k > 0:
                for j in range(size):
                    values[j] += part[j]


def evaluate(family, inverse_lengthscale, variance, X, Z, out):
    """Write the tile ``out[i, j] = k(X[:, i], Z[:, j])``; ``X, Z`` (p, n) and (p, m), ``out`` (n, m)."""
    if not out.flags.c_contiguous:
        raise ValueError("out is not C-contiguous; expected an array whose rows follow each other in memory")
    if Z.shape[1] > 0:
        inverse_lengthscale, X, Z = _in_place_of(inverse_lengthscale, _writable(X), _writable(Z))
        profiles, parts = _packed(family, inverse_lengthscale, variance)
        _evaluate_subtile(profiles, parts, len(parts), X, 0, Z, 0, Z.shape[1], out.reshape(-1))


@_of_kernel(outputs=1, points=(0,))
@compiled(nogil=True)
def evaluate_diagonal(profiles, parts, points, out):
    """Write ``out[i] = k(y, y)`` with the point ``y = points[:, i]``; ``points`` (p, n), ``out`` (n,)."""
    one = np.int64(1)
    for i in range(points.shape[1]):
        _evaluate_subtile(profiles, parts, parts.shape[0], points, i, points, i, one, out[i : i + 1])


@_of_kernel(outputs=1, points=(0,))
@compiled(nogil=True)
def evaluate_subsets(profiles, parts, points, members, lower, out):
    """Write ``out[k] = k(Y, Y)`` with the points ``Y = points[:, members[k]]``, for many small sets.

    Shapes: ``points`` (p, n), ``members`` (sets, m), ``out`` (sets, m, m); of this the lower triangles alone,
    if ``lower`` is set.
    """
    m, start = members.shape[1], np.int64(0)  # a literal would be compiled for itself
    own, strip = np.empty((points.shape[0], m)), np.empty(STRIP * m)
    for k in range(members.shape[0]):
        for c in range(points.shape[0]):
            for j in range(m):
                own[c, j] = points[c, members[k, j]]
        if lower:
            _evaluate_lower(profiles, parts, own, strip, out[k])
        else:
            tile = out[k].reshape(m * m)
            _evaluate_subtile(profiles, parts, parts.shape[0], own, start, own, start, m, tile)


def _packed_pair(*parameters):
    """Give a kernel as compiled functions see it, then another function of the same distance."""
    return *_packed(*parameters[:3]), *_packed(*parameters[3:])


@_of_kernel(outputs=2, pack=_packed_pair, parameters=6)
@compiled(nogil=True, fastmath=CONTRACT)
def evaluate_subsets_and_slopes(profiles, parts, slopes, slope_parts, points, members, out, out_slopes):
    """Do as `evaluate_subsets` for a kernel of one distance and its slope at once: lower triangles alone.

    Shapes: ``points`` (p, n), ``members`` (sets, m), ``out, out_slopes`` (sets, m, m).
    """
    m, start, zero = members.shape[1], np.int64(0), np.int64(0)  # a literal would be compiled for itself
    own, squares, values = np.empty((points.shape[0], m)), np.empty(STRIP * m), np.empty(STRIP * m)
    factor, variance = parts[0, INVERSE] * parts[0, INVERSE], parts[0, VARIANCE]
    value, slope = _numbers(profiles, parts, zero), _numbers(slopes, slope_parts, zero)
    for k in range(members.shape[0]):
        for c in range(points.shape[0]):
            for j in range(m):
                own[c, j] = points[c, members[k, j]]
        for first in range(0, m, STRIP):
            last = min(first + STRIP, m)
            u2, found = squares[: (last - first) * last], values[: (last - first) * last]
            for i in range(first, last):
                _squared_distances(own, i, own, start, u2[(i - first) * last : (i - first + 1) * last])
            _scale(factor, u2, u2)
            _value_and_share(value, slope, variance, u2, found)
            for i in range(first, last):
                here = (i - first) * last
                _copy_row(found[here : here + i + 1], out[k, i, : i + 1])
                _copy_row(u2[here : here + i + 1], out_slopes[k, i, : i + 1])


@_of_kernel(outputs=1, points=(0, 2))
@compiled(nogil=True, fastmath=CONTRACT)
def evaluate_means(profiles, parts, X, row_shares, Z, shares, lower, out):
    """Write ``out[i, j] = sum_rs row_shares[i, r] shares[j, s] k(X[:, i R + r], Z[:, j S + s])``.

    Covariances of weighted means of R points each with means of S points each.

    Shapes: ``X, Z`` (p, n R) and (p, m S), ``row_shares, shares`` (n, R) and (m, S), ``out`` (n, m).
    """
    R, S, start = row_shares.shape[1], shares.shape[1], np.int64(0)  # a literal would be compiled for itself
    space = np.empty(R * Z.shape[1])
    for i in range(row_shares.shape[0]):
        columns = min(i + 1, shares.shape[0]) if lower else shares.shape[0]
        width = columns * S
        values = space[: R * width]
        _evaluate_subtile(profiles, parts, parts.shape[0], X, i * R, Z, start, width, values)
        row = values[:width]
        for j in range(width):
            row[j] *= row_shares[i, 0]
        for r in range(1, R):
            share, other = row_shares[i, r], values[r * width : (r + 1) * width]
            for j in range(width):
                row[j] += share * other[j]
        for j in range(columns):
            total = 0.0
            for s in range(S):
                total += shares[j, s] * row[j * S + s]
            out[i, j] = total


@_of_kernel(outputs=1)
@compiled(nogil=True, fastmath=CONTRACT)
def evaluate_rings(profiles, parts, gap, girth, turn, out):
    """Kernel between pairs of latitudes at every difference in longitude.

    ``out[s, j] = k(r)`` with ``r^2 = gap[j] + girth[j] turn[s]``, the squared chord by the haversine
    formula (math 8): ``gap = 4 sin^2(dphi / 2)``, ``girth = 4 cos(phi) cos(phi')``,
    ``turn = sin^2(dlambda / 2)``.

    Shapes: ``gap, girth`` (pairs,), ``turn`` (s,), ``out`` (s, pairs).
    """
    if parts.shape[1] > OWN:
        raise ValueError("distances do not tell a kernel that has a lengthscale for each coordinate")
    numbers, inverse, variance = profiles[: int(parts[0, TO])], parts[0, INVERSE], parts[0, VARIANCE]
    for s in range(turn.size):
        row = out[s]
        for j in range(gap.size):
            row[j] = gap[j] + girth[j] * turn[s]
        if parts.shape[0] == 1:
            _profile(numbers, inverse, variance, row)
        else:
            _sum_profile(profiles, parts, parts.shape[0], row)


@compiled(nogil=True, fastmath=CONTRACT)
def _evaluate_subtile(profiles, parts, near, X, first, Z, start, width, out):
    """Rows ``first`` .. of the tile, columns ``start`` .. ``start + width``, into the flat ``out``.

    ``near`` is the number of parts to evaluate, at least 1, over the same distances.
    """
    if parts.shape[1] > OWN:
        _scaled_subtile(profiles, parts, near, X, first, Z, start, width, out)
        return
    rows = out.size // width
    step = max(1, FIRST_LEVEL // min(parts.shape[0], 2) // width)
    numbers, inverse, variance = profiles[: int(parts[0, TO])], parts[0, INVERSE], parts[0, VARIANCE]
    for group in range(0, rows, step):
        last = min(group + step, rows)
        for i in range(group, last):
            _squared_distances(X, first + i, Z, start, out[i * width : (i + 1) * width])
        values = out[group * width : last * width]
        if near == 1:
            _profile(numbers, inverse, variance, values)
        else:
            _sum_profile(profiles, parts, near, values)


@compiled(nogil=True, fastmath=CONTRACT)
def _evaluate_lower(profiles, parts, points, strip, out):
    """Write the lower triangle of ``out[:m] = k(points, points)``, ``points`` (p, m), by strips of rows."""
    m, start = points.shape[1], np.int64(0)  # a literal would be compiled for itself
    for first in range(0, m, STRIP):
        last = min(first + STRIP, m)
        values = strip[: (last - first) * last]
        _evaluate_subtile(profiles, parts, parts.shape[0], points, first, points, start, last, values)
        for i in range(first, last):
            _copy_row(values[(i - first) * last : (i - first) * last + i + 1], out[i, : i + 1])


@compiled(nogil=True, fastmath=CONTRACT)
def _scaled_subtile(profiles, parts, near, X, first, Z, start, width, out):
    """`_evaluate_subtile` with a lengthscale for each coordinate: distances, and slopes, part by part."""
    rows = out.size // width
    step = max(1, FIRST_LEVEL // 2 // width)
    squared, factor = np.empty(step * width), np.empty(step * width)
    kept = np.empty(step * width)
    zero = np.int64(0)  # a literal would be compiled for itself
    for group in range(0, rows, step):
        last = min(group + step, rows)
        target = out[group * width : last * width]
        for k in range(near):
            scales, numbers = parts[k, OWN:], _numbers(profiles, parts, k)
            part = target if k == 0 else squared[: target.size]
            if numbers[KIND] == PRODUCT:
                variance = parts[k, VARIANCE]
                _product(numbers, scales, variance, X, first + group, Z, start, width, part, factor, kept)
            else:
                for i in range(last - group):
                    row = part[i * width : (i + 1) * width]
                    _scaled_squared_distances(scales, X, first + group + i, Z, start, zero, X.shape[0], row)
                _profile(numbers, 1.0, parts[k, VARIANCE], part)
            c = int(numbers[COORDINATE])
            if c >= 0:
                scale = 1.0 if numbers[KIND] == PRODUCT else scales[c]  # may be of none of its factors
                for i in range(last - group):
                    row, z = part[i * width : (i + 1) * width], Z[c][start : start + width]
                    _times_squared_difference(scale, X[c, first + group + i], z, row)
            if k > 0:
                for j in range(target.size):
                    target[j] += part[j]


@compiled(nogil=True, fastmath=CONTRACT)
def _product(numbers, scales, variance, X, first, Z, start, width, out, spare, kept):
    """Write values of a product of profiles, row by row; ``spare, kept`` are at least as long as ``out``."""
    begun = 0
    if _is_pair(numbers):
        _evaluate_pair(numbers, scales, variance, X, first, Z, start, width, out, spare[: out.size])
        begun = 2
    for factor in range(begun, int(numbers[FACTORS])):
        said = numbers[FIRST_FACTOR + factor * OF_FACTOR : FIRST_FACTOR + (factor + 1) * OF_FACTOR]
        own, begin, end = numbers[int(said[4]) : int(said[5])], int(said[0]), int(said[1])
        values = out if factor == 0 else spare[: out.size]
        if own[KIND] >= TABLE:
            if factor == 0:
                out[:] = variance
            for i in range(out.size // width):
                labels = Z[begin][start : start + width]
                _times_entries(own, X[begin, first + i], labels, out[i * width : (i + 1) * width])
        else:
            if own[KIND] == GLOBE:
                _on_globe(
                    own, variance if factor == 0 else 1.0, X, first, Z, start, width, begin, values, kept
                )
            else:
                for i in range(out.size // width):
                    row = values[i * width : (i + 1) * width]
                    _scaled_squared_distances(scales, X, first + i, Z, start, begin, end, row)
                if said[2] > 0.0:
                    _bend(said[2], values)
                if said[3] > 0.0:
                    _stretch(said[3], kept, values)
                following = FIRST_FACTOR + (factor + 1) * OF_FACTOR
                if factor + 1 < int(numbers[FACTORS]) and numbers[following + 3] > 0.0:
                    _copy_row(values, kept[: out.size])
                _profile(own, 1.0, variance if factor == 0 else 1.0, values)
            if factor > 0:
                for j in range(out.size):
                    out[j] *= values[j]


@compiled(nogil=True, fastmath=CONTRACT)
def _on_globe(numbers, variance, X, first, Z, start, width, begin, out, kept):
    """Write values of a profile of places on the globe; ``kept`` is at least as long as ``out``."""
    for i in range(out.size // width):
        row, weights = out[i * width : (i + 1) * width], kept[i * width : (i + 1) * width]
        _squares_on_globe(numbers, X, first + i, Z, start, begin, row, weights)
    _profile(numbers[FIRST_OF_DISTANCES:], 1.0, variance, out)
    for j in range(out.size):
        out[j] *= kept[j]


@compiled(nogil=True, fastmath=CONTRACT)
def _squares_on_globe(numbers, X, i, Z, start, begin, out, weights):
    """Squared distances on the globe ``(s - t)' S^-1 (s - t)``, and weights of what is made of them.

    With ``w = (-y, x, 0)`` and ``S = I + c / 2 (w_s w_s' + w_t w_t')`` in units of the distance that counts
    as one along meridians (math 24); columns ``begin`` on are x, y and z.
    """
    c, along, multiplied = numbers[STRETCH], numbers[ALONG], numbers[MULTIPLIED]
    x, y, z = X[begin, i], X[begin + 1, i], X[begin + 2, i]
    size, girth = out.size, x * x + y * y
    xs, ys, zs = (
        Z[begin][start : start + size],
        Z[begin + 1][start : start + size],
        Z[begin + 2][start : start + size],
    )
    for j in range(size):
        dx, dy, dz = xs[j] - x, ys[j] - y, zs[j] - z
        other = xs[j] * xs[j] + ys[j] * ys[j]
        flat, cross = dx * dx + dy * dy, x * dy - y * dx
        turn, both = cross * cross, 0.5 * (girth + other)
        volume = 1.0 + c * both + 0.25 * c * c * turn  # the determinant of S
        inside = (1.0 + c * both) * flat - c * turn
        part, volumes = 1.0 / volume, (1.0 + c * girth) * (1.0 + c * other)
        out[j] = dz * dz + inside * part
        weights[j] = math.sqrt(math.sqrt(volumes) * part)
    if multiplied == BY_WEIGHT:
        return
    for j in range(size):
        dx, dy = xs[j] - x, ys[j] - y
        other = xs[j] * xs[j] + ys[j] * ys[j]
        flat, cross = dx * dx + dy * dy, x * dy - y * dx
        turn, both = cross * cross, 0.5 * (girth + other)
        volume, growth = 1.0 + c * both + 0.25 * c * c * turn, both + 0.5 * c * turn
        if multiplied == BY_ITS_SLOPE:
            own = 0.5 * (girth / (1.0 + c * girth) + other / (1.0 + c * other))
            weights[j] *= along * (own - growth / volume)
        else:
            inside = (1.0 + c * both) * flat - c * turn
            weights[j] *= along * (both * flat - turn - inside * growth / volume) / volume


@compiled(nogil=True)
def _is_pair(numbers):
    """Whether a product begins with two profiles of distances, which share an exponential."""
    if numbers[FACTORS] < 2.0:
        return False
    for factor in range(2):
        said = numbers[FIRST_FACTOR + factor * OF_FACTOR : FIRST_FACTOR + (factor + 1) * OF_FACTOR]
        if numbers[int(said[4]) + KIND] != DISTANCE or said[2] > 0.0 or said[3] > 0.0:
            return False
    following = FIRST_FACTOR + 2 * OF_FACTOR  # whose squares may be divided by distances of the second
    return numbers[FACTORS] == 2.0 or numbers[following + 3] == 0.0


@compiled(nogil=True, fastmath=CONTRACT)
def _evaluate_pair(numbers, scales, variance, X, first, Z, start, width, out, distances):
    """Write values of a product of two profiles that share an exponential, row by row."""
    first_columns = numbers[FIRST_FACTOR + 1] - numbers[FIRST_FACTOR]
    second_columns = numbers[FIRST_FACTOR + OF_FACTOR + 1] - numbers[FIRST_FACTOR + OF_FACTOR]
    other = 0 if first_columns == 1.0 and second_columns > 1.0 else 1
    straight = min(first_columns, second_columns) == 1.0  # along one axis: no roots
    for factor in range(2):
        said = numbers[FIRST_FACTOR + factor * OF_FACTOR : FIRST_FACTOR + (factor + 1) * OF_FACTOR]
        begin, end = int(said[0]), int(said[1])
        values = distances if factor == other else out
        for i in range(out.size // width):
            row = values[i * width : (i + 1) * width]
            if factor == other and straight:
                _scaled_distances(scales[begin], X[begin, first + i], Z[begin], start, row)
            else:
                _scaled_squared_distances(scales, X, first + i, Z, start, begin, end, row)
    if not straight:
        _take_roots(distances)
    _pair(numbers, other, variance, out, distances)


@compiled(nogil=True, fastmath=CONTRACT)
def _scaled_distances(scale, x, z, start, out):
    """Distances in one coordinate, in units of its lengthscale."""
    there = z[start : start + out.size]
    for j in range(out.size):
        out[j] = abs((x - there[j]) * scale)


@compiled(nogil=True)
def _take_roots(row):
    """Replace squares by what they are of."""
    for j in range(row.size):
        row[j] = math.sqrt(row[j])


@compiled(nogil=True, fastmath=CONTRACT)
def _pair(numbers, other, variance, row, distances):
    """Turn squared distances of a profile into values of its product with the ``other`` one, in place.

    Of the other one, the first or the second, are the ``distances``.
    """
    one = numbers[int(numbers[FIRST_FACTOR + (1 - other) * OF_FACTOR + 4]) :]
    two = numbers[int(numbers[FIRST_FACTOR + other * OF_FACTOR + 4]) :]
    c0, c1 = variance * one[FIRST_COEFFICIENT], variance * one[FIRST_COEFFICIENT + 1]
    c2, c3 = variance * one[FIRST_COEFFICIENT + 2], variance * one[FIRST_COEFFICIENT + 3]
    d0, d1 = two[FIRST_COEFFICIENT], two[FIRST_COEFFICIENT + 1]
    d2, d3 = two[FIRST_COEFFICIENT + 2], two[FIRST_COEFFICIENT + 3]
    scale, other_scale = one[SCALE], two[SCALE]
    if c2 == 0.0 and c3 == 0.0 and d2 == 0.0 and d3 == 0.0:  # quicker
        for j in range(row.size):
            a, b = min(math.sqrt(row[j]) * scale, _FAR), min(distances[j] * other_scale, _FAR)
            row[j] = (c0 + a * c1) * (d0 + b * d1) * _exp_minus(min(a + b, _FAR))
        return
    for j in range(row.size):
        a, b = min(math.sqrt(row[j]) * scale, _FAR), min(distances[j] * other_scale, _FAR)
        left, right = c0 + a * (c1 + a * (c2 + a * c3)), d0 + b * (d1 + b * (d2 + b * d3))
        row[j] = left * right * _exp_minus(min(a + b, _FAR))


@compiled(nogil=True, fastmath=CONTRACT)
def _times_entries(numbers, label, labels, row):
    """Multiply by what goes with pairs of labels: entries of a table, or whether they are the same."""
    if label < 0.0:
        row[:] = 0.0
        return
    if numbers[KIND] == SAME:
        for j in range(row.size):
            row[j] *= 1.0 if labels[j] == label else 0.0
        return
    many = int(numbers[LABELS])
    entries = numbers[FIRST_ENTRY + int(label) * many : FIRST_ENTRY + (int(label) + 1) * many]
    if many == 2:  # comparing is quicker than looking up
        first, second = entries[0], entries[1]
        for j in range(row.size):
            row[j] *= first if labels[j] == 0.0 else second if labels[j] == 1.0 else 0.0
    elif many <= FEW_LABELS:
        first, second = entries[0], entries[1] if many > 1 else 0.0
        third, fourth = entries[2] if many > 2 else 0.0, entries[3] if many > 3 else 0.0
        for j in range(row.size):
            low = first if labels[j] == 0.0 else second if labels[j] == 1.0 else 0.0
            row[j] *= third if labels[j] == 2.0 else fourth if labels[j] == 3.0 else low
    else:
        for j in range(row.size):
            row[j] *= entries[int(labels[j])] if labels[j] >= 0.0 else 0.0


@compiled(nogil=True, fastmath=CONTRACT)
def _all_negligible(profiles, parts, lower, upper, other_lower, other_upper):
    """Whether every part has vanished between two boxes, each in units of its own lengthscales."""
    for k in range(parts.shape[0]):
        squared = 0.0
        for c in range(lower.size):
            gap = max(lower[c] - other_upper[c], other_lower[c] - upper[c], 0.0)
            squared += (gap * parts[k, OWN + c]) ** 2
        if squared <= profiles[int(parts[k, FROM]) + REACH] ** 2:
            return False
    return True


@compiled(nogil=True, fastmath=CONTRACT)
def _near_parts(profiles, parts, lower, upper, other_lower, other_upper):
    """Count the parts that are not negligible between two boxes; zero: leave the sub-tile out.

    Parts come in the order of their reach; with a lengthscale for each coordinate all are taken, or none.
    """
    if parts.shape[1] > OWN:
        vanished = _all_negligible(profiles, parts, lower, upper, other_lower, other_upper)
        return 0 if vanished else parts.shape[0]
    for k in range(parts.shape[0]):
        reach = profiles[int(parts[k, FROM]) + REACH] / parts[k, INVERSE]
        if _apart(lower, upper, other_lower, other_upper, reach):
            return k
    return parts.shape[0]


def kernel_reach(family, inverse_lengthscale):
    """Distance at which every part of a kernel has fallen to 2^-60 of its variance, unit of X."""
    if isinstance(inverse_lengthscale, Embedding):
        return math.inf
    if isinstance(family, tuple):
        return max(map(kernel_reach, family, inverse_lengthscale))
    inverse = inverse_lengthscale
    own = float(np.frombuffer(family, np.float64)[REACH])
    return own / (min(inverse) if isinstance(inverse, tuple) else inverse)


@compiled
def _bound(points, start, stop, lower, upper):
    """Write the bounding box of some points: lower and upper corner, (p,)."""
    for k in range(points.shape[0]):
        row = points[k]
        low = high = row[start]
        for i in range(start, stop):
            low, high = min(low, row[i]), max(high, row[i])
        lower[k], upper[k] = low, high


@compiled
def _boxes(points, size):
    """Bounding boxes of consecutive groups of ``size`` points: lower and upper corners, (groups, p)."""
    p, n = points.shape
    groups = (n + size - 1) // size
    lower, upper = np.empty((groups, p)), np.empty((groups, p))
    for group in range(groups):
        _bound(points, group * size, min((group + 1) * size, n), lower[group], upper[group])
    return lower, upper


@compiled
def _apart(lower, upper, other_lower, other_upper, distance):
    """Whether two boxes are more than ``distance`` apart."""
    squared = 0.0
    for k in range(lower.size):
        gap = max(lower[k] - other_upper[k], other_lower[k] - upper[k], 0.0)
        squared += gap * gap
    return squared > distance * distance


@_of_kernel(outputs=1, points=(0, 1))
@compiled(nogil=True)
def evaluate_tile(profiles, parts, X, Z, height, width, out):
    """Store the tile ``k(X, Z)`` for `add_product`: sub-tile after sub-tile, each contiguous.

    Parameters as in `add_product`, but ``out`` is flat, of shape (n * m,); sub-tiles that
    `add_product` leaves out are not written.
    """
    n, m = X.shape[1], Z.shape[1]
    x_lower, x_upper = _boxes(X, height)
    z_lower, z_upper = _boxes(Z, width)
    offset = 0
    for row in range(x_lower.shape[0]):
        rows = min(height, n - row * height)
        for column in range(z_lower.shape[0]):
            size = rows * min(width, m - column * width)
            near = _near_parts(profiles, parts, x_lower[row], x_upper[row], z_lower[column], z_upper[column])
            if near > 0:
                _evaluate_subtile(
                    profiles,
                    parts,
                    near,
                    X,
                    row * height,
                    Z,
                    column * width,
                    size // rows,
                    out[offset : offset + size],
                )
            offset += size


def add_product(family, inverse_lengthscale, variance, X, Z, stored, transposed, columns, height, width, out):
    """``out += T @ columns`` or ``out += T' @ columns`` with the tile ``T = k(X, Z)``.

    Sub-tile by sub-tile through BLAS. Stored and fresh tiles go through the same calls, so the result is
    the same to the last bit.

    Shapes: ``stored`` (n * m,) or (0,), ``columns`` (m, r), ``out`` (n, r).
    """
    X, Z, columns = map(_writable, (X, Z, columns))
    inverse_lengthscale, X, Z = _in_place_of(inverse_lengthscale, X, Z)
    packed = _packed(family, inverse_lengthscale, variance)
    _add_product(*packed, X, Z, _read_only(stored), transposed, columns, height, width, out)


@compiled(nogil=True)
def _add_product(profiles, parts, X, Z, stored, transposed, columns, height, width, out):
    """`add_product`, compiled."""
    n, m, r = X.shape[1], Z.shape[1], columns.shape[1]
    x_lower, x_upper = _boxes(X, height)
    z_lower, z_upper = _boxes(Z, width)
    scratch = np.empty(min(n, height) * min(m, width))
    product = np.empty((max(min(n, height), min(m, width)), r))
    offset = 0
    for row in range(x_lower.shape[0]):
        first = row * height
        last = min(first + height, n)
        for column in range(z_lower.shape[0]):
            start = column * width
            stop = min(start + width, m)
            size = (last - first) * (stop - start)
            offset += size
            near = _near_parts(profiles, parts, x_lower[row], x_upper[row], z_lower[column], z_upper[column])
            if near == 0:
                continue
            entries = scratch[:size]
            if stored.size > 0 and not transposed:
                entries = stored[offset - size : offset]
            elif stored.size > 0:
                # one pass in memory order; BLAS would read the transpose against it
                _copy_row(stored[offset - size : offset], entries)
            else:
                _evaluate_subtile(profiles, parts, near, X, first, Z, start, stop - start, entries)
            tile = entries.reshape(last - first, stop - start)
            if transposed:
                np.dot(tile.T, columns[first:last], product[: stop - start])
                target = out[start:stop]
            else:
                np.dot(tile, columns[start:stop], product[: last - first])
                target = out[first:last]
            for i in range(target.shape[0]):
                for c in range(r):
                    target[i, c] += product[i, c]


def add_product_vector(family, inverse_lengthscale, variance, X, Z, column, out):
    """``out += k(X, Z) @ column`` for one column (m,), each of ``out`` (n,) summed in the order of Z."""
    unused = np.empty(0)
    add_symmetric_product_vector(family, inverse_lengthscale, variance, Z, X, column, unused, unused, out)


@compiled(nogil=True, fastmath=CONTRACT)
def _dot(left, right):
    """Inner product with eight partial sums: a vector reduction whose order is fixed."""
    lanes = np.zeros(8)
    whole = left.size - left.size % 8
    for j in range(0, whole, 8):
        for lane in range(8):
            lanes[lane] += left[j + lane] * right[j + lane]
    total = 0.0
    for lane in range(8):
        total += lanes[lane]
    for j in range(whole, left.size):
        total += left[j] * right[j]
    return total


@_of_kernel(outputs=2, points=(0, 1))
@compiled(nogil=True, fastmath=CONTRACT)
def add_symmetric_product_vector(profiles, parts, X, Z, column_x, column_z, out_x, out_z):
    """Use the tile twice: ``out_x += k(X, Z) @ column_z`` and ``out_z += k(X, Z)' @ column_x``.

    Halves the kernel evaluations of a product with a symmetric Gram matrix; the tile never leaves the
    first-level cache. Shapes: X (p, n), Z (p, m), ``column_x``, ``out_x`` (n,), ``column_z``, ``out_z`` (m,);
    where ``column_z`` and ``out_x`` are (0,) the tile is used once.
    """
    n, m = X.shape[1], Z.shape[1]
    x_lower, x_upper = _boxes(X, np.int64(TILE_ROWS))  # a literal would be compiled for itself
    z_lower, z_upper = _boxes(Z, np.int64(TILE_COLUMNS))
    scratch = np.empty(FIRST_LEVEL)
    for j_group in range(z_lower.shape[0]):
        start = j_group * TILE_COLUMNS
        size = min(TILE_COLUMNS, m - start)
        source = column_z[start : start + size]
        target = out_z[start : start + size]
        step = FIRST_LEVEL // size
        for i_group in range(x_lower.shape[0]):
            near = _near_parts(
                profiles, parts, x_lower[i_group], x_upper[i_group], z_lower[j_group], z_upper[j_group]
            )
            if near == 0:
                continue
            stop = min((i_group + 1) * TILE_ROWS, n)
            for first in range(i_group * TILE_ROWS, stop, step):
                last = min(first + step, stop)
                rows = scratch[: (last - first) * size]
                _evaluate_subtile(profiles, parts, near, X, first, Z, start, size, rows)
                for i in range(first, last):
                    weight = column_x[i]
                    row = rows[(i - first) * size : (i - first + 1) * size]
                    for j in range(size):
                        target[j] += weight * row[j]
                    if out_x.size > 0:
                        out_x[i] += _dot(row, source)


@compiled(nogil=True, fastmath=CONTRACT | {"reassoc"})
def _sum_of_products(left, right):
    """Inner product in the order that is fastest for vectors: it depends on the length alone."""
    total = 0.0
    for j in range(left.size):
        total += left[j] * right[j]
    return total


@compiled(nogil=True, fastmath=CONTRACT)
def _scale(weight, row, out):
    """Write a row times a number."""
    for j in range(row.size):
        out[j] = weight * row[j]


@compiled(nogil=True, fastmath=CONTRACT)
def _add_scaled(weight, row, out):
    """Add a row times a number."""
    for j in range(row.size):
        out[j] += weight * row[j]


@_of_kernel(outputs=2, points=(0, 1))
@compiled(nogil=True, fastmath=CONTRACT)
def add_block_products(profiles, parts, X, Z, x_values, x_edges, z_values, z_edges, out, mirrored):
    """Add sums of kernel values over blocks of points, on both sides of the tile ``k(X, Z)``.

    ``out[i, b] += sum over z in block b of k(x_i, z) s_z``, and where it is asked for
    ``mirrored[a, j] += sum over x in block a of k(x, z_j) s_x``.

    Shapes: ``x_values, z_values`` (n,) and (m,), ``x_edges, z_edges`` (a + 1,) and (b + 1,), ``out`` (n,
    b), ``mirrored`` (a, m) or (0, m).
    """
    x_lower, x_upper = _block_boxes(X, x_edges)
    z_lower, z_upper = np.empty(X.shape[0]), np.empty(X.shape[0])
    strips = _strips(z_edges)
    scratch = np.empty(FIRST_LEVEL)
    for strip in range(strips.shape[0]):
        start, stop, block, past = strips[strip]
        _bound(Z, start, stop, z_lower, z_upper)
        size, values = stop - start, z_values[start:stop]
        step = FIRST_LEVEL // size
        for a in range(x_edges.size - 1):
            near = _near_parts(profiles, parts, x_lower[a], x_upper[a], z_lower, z_upper)
            if near == 0:
                continue
            for first in range(x_edges[a], x_edges[a + 1], step):
                last = min(first + step, x_edges[a + 1])
                rows = scratch[: (last - first) * size]
                _evaluate_subtile(profiles, parts, near, X, first, Z, start, size, rows)
                for i in range(first, last):
                    row = rows[(i - first) * size : (i - first + 1) * size]
                    for b in range(block, past):
                        low, high = max(z_edges[b], start) - start, min(z_edges[b + 1], stop) - start
                        out[i, b] += _sum_of_products(row[low:high], values[low:high])
                    if mirrored.shape[0] > 0:
                        _add_scaled(x_values[i], row, mirrored[a, start:stop])


@compiled
def _strips(edges):
    """Cut columns into strips of whole blocks, or of parts of one, that are evaluated together.

    Gives an array (strips, 4): first column, the one past the last, first block, the one past the last.
    """
    found = np.empty((edges[-1] // TILE_COLUMNS + edges.size, 4), dtype=np.int64)
    count, block = 0, 0
    while block < edges.size - 1:
        past = block + 1
        while past < edges.size - 1 and edges[past + 1] - edges[block] <= TILE_COLUMNS:
            past += 1
        for start in range(edges[block], edges[past], TILE_COLUMNS):
            found[count, 0], found[count, 1] = start, min(start + TILE_COLUMNS, edges[past])
            found[count, 2], found[count, 3] = block, past
            count += 1
        block = past
    return found[:count]


@compiled
def _block_boxes(points, edges):
    """Bounding boxes of blocks of points: lower and upper corners, (blocks, p)."""
    lower, upper = np.empty((edges.size - 1, points.shape[0])), np.empty((edges.size - 1, points.shape[0]))
    for block in range(edges.size - 1):
        _bound(points, edges[block], edges[block + 1], lower[block], upper[block])
    return lower, upper


@compiled(nogil=True, fastmath=CONTRACT)
def _value_and_share(of_value, of_share, variance, squares, values):
    """Turn squares of scaled distances u into kernel values, and into ``dk / d log(lengthscale) / u^2``.

    The second in place, or whatever other profile is given; of closed forms one exponential serves both.
    """
    kind = of_share[KIND]
    if kind == PIECES:
        _copy_row(squares, values)
        _piecewise(of_value, 1.0, variance, values)
        _piecewise(of_share, 1.0, variance, squares)
        return
    scale = of_value[SCALE]
    c0, c1 = of_value[FIRST_COEFFICIENT], of_value[FIRST_COEFFICIENT + 1]
    c2, c3 = of_value[FIRST_COEFFICIENT + 2], of_value[FIRST_COEFFICIENT + 3]
    d0, d1 = of_share[FIRST_COEFFICIENT], of_share[FIRST_COEFFICIENT + 1]
    d2, d3 = of_share[FIRST_COEFFICIENT + 2], of_share[FIRST_COEFFICIENT + 3]
    if kind == SQUARE:
        for j in range(squares.size):
            a = min(scale * squares[j], _FAR)
            value = variance * _exp_minus(a)
            values[j] = value * (c0 + a * (c1 + a * (c2 + a * c3)))
            squares[j] = value * (d0 + a * (d1 + a * (d2 + a * d3)))
        return
    for j in range(squares.size):
        a = min(math.sqrt(squares[j]) * scale, _FAR)
        value = variance * _exp_minus(a)
        values[j] = value * (c0 + a * (c1 + a * (c2 + a * c3)))
        squares[j] = value * (d0 + a * (d1 + a * (d2 + a * d3)))
        if kind == RECIPROCAL:
            squares[j] /= max(a, _NEAR)


@compiled(nogil=True, fastmath=CONTRACT | {"reassoc"})
def _sum_of_squared_differences(weights, scale, x, z):
    """Sum of weights times squared differences in one coordinate, in units of its lengthscale."""
    total = 0.0
    for j in range(weights.size):
        difference = min(abs(x - z[j]) * scale, _FAR)
        total += weights[j] * difference * difference
    return total


@_of_kernel(outputs=3, pack=_packed_with_shares, parameters=4)
@compiled(nogil=True, fastmath=CONTRACT)
def add_block_gradients(
    profiles,
    parts,
    shares,
    share_parts,
    X,
    Z,
    x_values,
    x_edges,
    z_values,
    z_edges,
    weights,
    mirrored,
    by_parameter,
    by_x_value,
    by_z_value,
):
    """Differentiate ``<W, k(X, Z) S>`` by everything it depends on, and the same of the mirrored tile.

    With ``w(i, j) = weights[i, block of j] s_j + mirrored[block of i, j] s_i``, the sum over all pairs of
    ``w(i, j) k(x_i, z_j)`` is differentiated by the logarithm of each lengthscale and variance, and

    ``by_z_value[j] += sum over i of k(x_i, z_j) weights[i, block of j]``,
    ``by_x_value[i] += sum over j of k(x_i, z_j) mirrored[block of i, j]``.

    Shapes: ``inverse_lengthscales`` (parts, p), ``variances`` (parts,), ``weights`` (n, b), ``mirrored``
    (a, m) or (0, m), ``by_parameter`` (parts, p + 1), ``by_x_value, by_z_value`` (n,) and (m,).
    """
    p = X.shape[0]
    x_lower, x_upper = _block_boxes(X, x_edges)
    z_lower, z_upper = np.empty(X.shape[0]), np.empty(X.shape[0])
    strips, zero = _strips(z_edges), np.int64(0)
    squares, values = np.empty(TILE_COLUMNS), np.empty(TILE_COLUMNS)
    total, pair = np.empty(TILE_COLUMNS), np.empty(TILE_COLUMNS)
    for strip in range(strips.shape[0]):
        start, stop, block, past = strips[strip]
        _bound(Z, start, stop, z_lower, z_upper)
        size = stop - start
        u2, k, sums, w = squares[:size], values[:size], total[:size], pair[:size]
        s, target = z_values[start:stop], by_z_value[start:stop]
        for a in range(x_edges.size - 1):
            if _all_negligible(shares, share_parts, x_lower[a], x_upper[a], z_lower, z_upper):
                continue  # slopes reach further than values
            across = mirrored[a if mirrored.shape[0] > 0 else 0 :, start:stop]
            for i in range(x_edges[a], x_edges[a + 1]):
                for b in range(block, past):
                    low, high = max(z_edges[b], start) - start, min(z_edges[b + 1], stop) - start
                    _scale(weights[i, b], s[low:high], w[low:high])
                if mirrored.shape[0] > 0:
                    _add_scaled(x_values[i], across[0], w)
                sums[:] = 0.0
                for part in range(parts.shape[0]):
                    scales, value = parts[part, OWN:], _numbers(profiles, parts, part)
                    share = _numbers(shares, share_parts, part)
                    _scaled_squared_distances(scales, X, i, Z, start, zero, X.shape[0], u2)
                    _value_and_share(value, share, parts[part, VARIANCE], u2, k)
                    by_parameter[part, p] += _sum_of_products(k, w)
                    for j in range(size):
                        sums[j] += k[j]
                        u2[j] *= w[j]
                    for c in range(p):
                        by_parameter[part, c] += _sum_of_squared_differences(
                            u2, scales[c], X[c, i], Z[c, start:stop]
                        )
                for b in range(block, past):
                    low, high = max(z_edges[b], start) - start, min(z_edges[b + 1], stop) - start
                    _add_scaled(weights[i, b], sums[low:high], target[low:high])
                if mirrored.shape[0] > 0:
                    by_x_value[i] += _sum_of_products(sums, across[0])


@compiled(nogil=True, fastmath=CONTRACT | {"reassoc"})
def _sum_of_differences(weights, scale, x, z):
    """Sum of weights times differences ``z - x`` in one coordinate, in units of its lengthscale."""
    total = 0.0
    for j in range(weights.size):
        total += weights[j] * max(min((z[j] - x) * scale, _FAR), -_FAR)
    return total


@_of_kernel(outputs=2, pack=_packed_with_shares, parameters=4)
@compiled(nogil=True, fastmath=CONTRACT)
def add_pair_gradients(profiles, parts, shares, share_parts, X, Z, weights, by_parameter, by_point):
    """Differentiate ``<W, k(X, Z)>`` by the parameters of the kernel, and by the points X.

    Shapes: ``X, Z`` (p, n) and (p, m), ``weights`` (n, m), ``by_parameter`` (parts, p + 1), ``by_point``
    (p, n) or (p, 0).
    """
    p, zero = X.shape[0], np.int64(0)
    squares, values = np.empty(TILE_COLUMNS), np.empty(TILE_COLUMNS)
    for i in range(X.shape[1]):
        for start in range(0, Z.shape[1], TILE_COLUMNS):
            size = min(TILE_COLUMNS, Z.shape[1] - start)
            u2, k, w = squares[:size], values[:size], weights[i, start : start + size]
            for part in range(parts.shape[0]):
                scales, value = parts[part, OWN:], _numbers(profiles, parts, part)
                share = _numbers(shares, share_parts, part)
                _scaled_squared_distances(scales, X, i, Z, start, zero, X.shape[0], u2)
                _value_and_share(value, share, parts[part, VARIANCE], u2, k)
                by_parameter[part, p] += _sum_of_products(k, w)
                for j in range(size):
                    u2[j] *= w[j]
                for c in range(p):
                    z = Z[c, start : start + size]
                    by_parameter[part, c] += _sum_of_squared_differences(u2, scales[c], X[c, i], z)
                    if by_point.shape[1] > 0:
                        by_point[c, i] += scales[c] * _sum_of_differences(u2, scales[c], X[c, i], z)


@compiled(nogil=True, fastmath=CONTRACT | {"reassoc"})
def _four_by_four(table, i, rows, j, size, out):
    """Inner products (4, 4) of the first ``size`` entries of rows from i, at most the last, and from j.

    Sums are in the order that is fastest for vectors, which depends on their size alone.
    """
    last = rows - 1
    a0, a1, a2, a3 = table[i], table[min(i + 1, last)], table[min(i + 2, last)], table[min(i + 3, last)]
    b0, b1, b2, b3 = table[j], table[j + 1], table[j + 2], table[j + 3]
    s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = 0.0
    s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = 0.0
    for k in range(size):
        x0, x1, x2, x3 = a0[k], a1[k], a2[k], a3[k]
        y0, y1, y2, y3 = b0[k], b1[k], b2[k], b3[k]
        s00 += x0 * y0
        s01 += x0 * y1
        s02 += x0 * y2
        s03 += x0 * y3
        s10 += x1 * y0
        s11 += x1 * y1
        s12 += x1 * y2
        s13 += x1 * y3
        s20 += x2 * y0
        s21 += x2 * y1
        s22 += x2 * y2
        s23 += x2 * y3
        s30 += x3 * y0
        s31 += x3 * y1
        s32 += x3 * y2
        s33 += x3 * y3
    out[0, 0], out[0, 1], out[0, 2], out[0, 3] = s00, s01, s02, s03
    out[1, 0], out[1, 1], out[1, 2], out[1, 3] = s10, s11, s12, s13
    out[2, 0], out[2, 1], out[2, 2], out[2, 3] = s20, s21, s22, s23
    out[3, 0], out[3, 1], out[3, 2], out[3, 3] = s30, s31, s32, s33


@compiled(nogil=True, fastmath=CONTRACT)
def complete_rows(table, rounding, inverses):
    """Factor a covariance matrix row by row, and solve with the rows below it, in place.

    The first m rows of ``table`` (m + r, m) hold a symmetric matrix, of which the lower triangle is read;
    they become the rows of its lower factor L, and every row v after them becomes ``L^-1 v``. A row that
    those before it determine, up to ``rounding`` of its diagonal, is left out: its column is zero. Writes one
    over the diagonal of L to ``inverses`` (m,), zero where a row is left out; returns how many are.
    """
    rows, m = table.shape
    left_out, sums = 0, np.empty((4, 4))
    for first in range(0, rows, 4):  # four rows by four columns at a time: registers hold the sums
        last = min(first + 4, rows)
        whole = min(first, m) // 4 * 4
        for j in range(0, whole, 4):
            _four_by_four(table, first, rows, j, j, sums)
            for i in range(first, last):
                row = table[i]
                for c in range(j, j + 4):
                    total, other = row[c] - sums[i - first, c - j], table[c]
                    for k in range(j, c):
                        total -= row[k] * other[k]
                    row[c] = total * inverses[c]
        for i in range(first, last):
            row = table[i]
            for c in range(whole, min(i, m)):
                row[c] = (row[c] - _sum_of_products(row[:c], table[c, :c])) * inverses[c]
            if i < m:
                rest = row[i] - _sum_of_products(row[:i], row[:i])
                if rest > rounding * row[i]:
                    row[i] = math.sqrt(rest)
                    inverses[i] = 1.0 / row[i]
                else:
                    row[i] = inverses[i] = 0.0
                    left_out += 1
    return left_out


@compiled(nogil=True)
def factor_stack(stack):
    """Replace lower triangles (count, m, m) by Cholesky factors; which has none, at which row, or -1."""
    inverses = np.empty(stack.shape[1])
    for k in range(stack.shape[0]):
        if complete_rows(stack[k], 0.0, inverses) > 0:
            for row in range(inverses.size):
                if inverses[row] == 0.0:
                    return k, row
    return -1, 0


@_of_kernel(outputs=3, points=(0, 3))
@compiled(nogil=True, fastmath=CONTRACT)
def solve_groups(
    profiles,
    parts,
    points,
    noise,
    columns,
    targets,
    order,
    edges,
    starts,
    members,
    rounding,
    mean,
    downdate,
    left_out,
):
    """Posterior of targets given the observations that their group has, group by group.

    Group s has the targets ``order[edges[s] : edges[s + 1]]`` and the observations ``members[starts[s] :
    starts[s + 1]]``. An observation known from others up to ``rounding`` of its variance is left out.

    Shapes: ``points, targets`` (p, n) and (p, q), ``noise`` (n,), ``columns`` (n, T), ``mean`` (q, T),
    ``downdate`` (q,), ``left_out`` (1,).
    """
    p, T, zero = points.shape[0], columns.shape[1], np.int64(0)
    most, size = 0, 0
    for s in range(edges.size - 1):
        g, m = edges[s + 1] - edges[s], starts[s + 1] - starts[s]
        most, size = max(most, p * max(g, m)), max(size, (m + T + g) * m)
    near, there, space = np.empty(most), np.empty(most), np.empty(size)
    inverses, strip = np.empty(most), np.empty(STRIP * most)
    for s in range(edges.size - 1):
        own, here = members[starts[s] : starts[s + 1]], order[edges[s] : edges[s + 1]]
        m, g = own.size, here.size
        Z, X = near[: p * m].reshape(p, m), there[: p * g].reshape(p, g)
        for c in range(p):
            for i in range(m):
                Z[c, i] = points[c, own[i]]
            for i in range(g):
                X[c, i] = targets[c, here[i]]
        table = space[: (m + T + g) * m].reshape(m + T + g, m)
        _evaluate_lower(profiles, parts, Z, strip, table)
        for i in range(m):
            table[i, i] += noise[own[i]]
        for t in range(T):
            for i in range(m):
                table[m + t, i] = columns[own[i], t]
        below = space[(m + T) * m : (m + T + g) * m]
        _evaluate_subtile(profiles, parts, parts.shape[0], X, zero, Z, zero, m, below)
        left_out[0] += complete_rows(table, rounding, inverses)
        for i in range(g):
            known = table[m + T + i]
            downdate[here[i]] = _sum_of_products(known, known)
            for t in range(T):
                mean[here[i], t] = _sum_of_products(known, table[m + t])


@compiled(nogil=True, fastmath=CONTRACT)
def _solve_back(table, inverses, first, row):
    """Solve ``L' x = row`` for the last entries, from ``first`` on, in place."""
    for i in range(row.size - 1, first - 1, -1):
        row[i] *= inverses[i]
        for k in range(first, i):
            row[k] -= table[i, k] * row[i]


@compiled(nogil=True, fastmath=CONTRACT)
def _precision(table, inverses, j, m, column):
    """Entry j of the diagonal of the inverse of ``L L'`` (m, m); ``column`` gets that of the inverse of L."""
    if inverses[j] == 0.0:
        return math.nan
    column[j] = inverses[j]
    total = column[j] * column[j]
    for i in range(j + 1, m):
        value = 0.0
        for k in range(j, i):
            value -= table[i, k] * column[k]
        column[i] = value * inverses[i]
        total += column[i] * column[i]
    return total


@_of_kernel(outputs=3, points=(0,))
@compiled(nogil=True, fastmath=CONTRACT)
def leave_out_groups(
    profiles,
    parts,
    points,
    noise,
    columns,
    chosen,
    owned,
    starts,
    members,
    rounding,
    solved,
    precision,
    moments,
):
    """Solve for the last members of groups given the others, with ``S``, their covariance given these.

    Group s has the observations ``members[starts[s] : starts[s + 1]]``, of which the last ``owned[s]`` are
    its own. With the columns c at these less what the others predict of them, ``solved`` gets ``S^-1 c``,
    ``precision`` the diagonal of ``S^-1``, and ``moments`` of the group ``c' S^-1 c``. An observation known
    from others up to ``rounding`` of its variance is left out; if it is an own one, its precision is NaN.

    Shapes: ``points`` (p, n), ``noise, precision`` (n,), ``columns, solved`` (n, r), ``chosen`` groups,
    ``moments`` (groups, r, r).
    """
    p, r, size = points.shape[0], columns.shape[1], 0
    for s in chosen:
        size = max(size, starts[s + 1] - starts[s])
    near, space = np.empty(p * size), np.empty((size + r) * size)
    inverses, strip = np.empty(size), np.empty(STRIP * size)
    for s in chosen:
        own = members[starts[s] : starts[s + 1]]
        m, g = own.size, owned[s]
        Z = near[: p * m].reshape(p, m)
        for c in range(p):
            for i in range(m):
                Z[c, i] = points[c, own[i]]
        table = space[: (m + r) * m].reshape(m + r, m)
        _evaluate_lower(profiles, parts, Z, strip, table)
        for i in range(m):
            table[i, i] += noise[own[i]]
        for c in range(r):
            for i in range(m):
                table[m + c, i] = columns[own[i], c]
        complete_rows(table, rounding, inverses[:m])
        first = m - g
        for a in range(r):
            for b in range(a + 1):
                total = _sum_of_products(table[m + a, first:], table[m + b, first:])
                moments[s, a, b] = moments[s, b, a] = total
        for c in range(r):
            _solve_back(table, inverses, first, table[m + c])
            for i in range(first, m):
                solved[own[i], c] = table[m + c, i]
        for j in range(first, m):
            precision[own[j]] = _precision(table, inverses, j, m, strip)
