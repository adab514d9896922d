"""Coarse spaces on whole rings: waves along a few latitudes, chosen wavenumber by wavenumber (math 6, 7).

In waves along its rings K is block diagonal, one ``K_k`` for each wavenumber, and so is everything here::

    partial Cholesky of all K_k together, each step at the wave (k, latitude) with the largest variance left
    S_k = columns of K_k at the latitudes chosen for k,    Mt_k = S_k (S_k' G_k S_k)^-1 S_k'

A wave of a wavenumber other than 0 and Q / 2 is two columns. Each range of wavenumbers makes as many
candidates as could be chosen, and the largest of all are taken: those that one factor of all wavenumbers
chooses.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.solvers.engine.ring_stages import Whitened
from cagp_dist.solvers.engine.ring_tasks import Columns, RingPiece, inner_diagonal, inner_products
from cagp_dist.solvers.stationary.low_rank import NOTHING_LEFT, SAME_VARIANCE


class CoarseWaves(NamedTuple):
    """Partial Cholesky factors of a range of wavenumbers."""

    left: Array  # (c,): variance that was left at each wave when it was chosen
    place: Indices  # (c, 2): its sector, and its wavenumber within the range
    # of a sector and a wavenumber: factor (steps, size), a row for each wave chosen there
    factors: dict[tuple[int, int], Array]


class RangeProjection(NamedTuple):
    """``P`` with ``P' G P = I``, and ``G P``: whitened columns (size, c) of a sector and a wavenumber."""

    basis: dict[tuple[int, int], Array]
    image: dict[tuple[int, int], Array]


def choose_waves(
    sectors: list[Whitened],
    weights: Array,
    noise: Sequence[Array],
    copies: Sequence[Array],
    columns: int,
) -> CoarseWaves:
    """Choose waves one by one, each where the variance given the others is largest."""
    left = [
        (_diagonal(sector) - variances) / copy
        for sector, variances, copy in zip(sectors, noise, copies, strict=True)
    ]
    least = NOTHING_LEFT * max((part.max(initial=0.0) for part in left), default=0.0)
    factors: dict[tuple[int, int], Array] = {}
    values: list[float] = []
    place: list[tuple[int, int]] = []
    taken, full = 0.0, False
    while not full:
        full = taken >= columns
        if full:
            for part in left:
                part[weights > 1.0] = -np.inf
        largest = max(part.max(initial=-np.inf) for part in left)
        if not largest > least:
            break
        # of equal ones the first, so that rounding has no say
        s, index = next(
            (s, int(np.argmax(part >= (1.0 - SAME_VARIANCE) * largest)))
            for s, part in enumerate(left)
            if (part >= (1.0 - SAME_VARIANCE) * largest).any()
        )
        k, row = divmod(index, left[s].shape[1])
        before = factors.get((s, k), np.empty((0, left[s].shape[1])))
        new = _row(sectors[s], k, row)
        new[row] -= noise[s][row]
        new /= np.sqrt(copies[s] * copies[s][row])
        new -= before[:, row] @ before
        new /= np.sqrt(left[s][k, row])
        factors[s, k] = np.concatenate([before, new[None]])
        values.append(float(left[s][k, row]))
        place.append((s, k))
        left[s][k] -= new**2
        left[s][k, row] = -np.inf
        taken += weights[k]
    return CoarseWaves(np.array(values), np.array(place, dtype=np.intp).reshape(-1, 2), factors)


def _diagonal(sector: Whitened) -> Array:
    """Diagonal of ``G_k``, shape (wavenumbers, size)."""
    return np.concatenate([np.einsum("kij,kij->ki", root, root) for root in sector.roots], axis=1)


def _row(sector: Whitened, k: int, row: int) -> Array:
    """Row of ``G_k``, shape (size,): ``R (T + T' - I) R'`` of one row of R."""
    band = next(index for index, (_, last) in enumerate(sector.bands) if row < last)
    first, last = sector.bands[band]
    one = Whitened(sector.gram[k : k + 1], sector.bands, [root[k : k + 1] for root in sector.roots], [])
    coupled = one.columns(np.arange(first, last)) @ one.roots[band][:, row - first, :, None]
    return np.asarray(one.apply(one.roots, coupled)[0, :, 0])


def candidates_of(waves: CoarseWaves) -> CoarseWaves:
    """Drop the factors before the candidates travel to the caller."""
    return waves._replace(factors={})


def takings(candidates: Sequence[CoarseWaves], weights: Sequence[Array], columns: int) -> list[list[int]]:
    """Which candidates of each range are taken, by number: those with the most variance left."""
    ranges = np.repeat(np.arange(len(candidates)), [len(waves.left) for waves in candidates])
    number = np.concatenate([np.arange(len(waves.left)) for waves in candidates])
    left = np.concatenate([waves.left for waves in candidates])
    width = np.concatenate([own[waves.place[:, 1]] for waves, own in zip(candidates, weights, strict=True)])
    # rounded: the same order on machines that round otherwise; equal ones in the order of their wavenumbers
    order = np.lexsort((number, ranges, -np.round(np.log(left) / SAME_VARIANCE)))
    taken: list[list[int]] = [[] for _ in candidates]
    room = float(columns)
    for index in order:
        if width[index] <= room:
            taken[ranges[index]].append(int(number[index]))
            room -= width[index]
    return taken


def project_waves(
    sectors: list[Whitened], waves: CoarseWaves, taken: Sequence[int], copies: Sequence[Array]
) -> RangeProjection:
    """Make the projection on the waves that were taken; 4 P^2 c flops for c of a wavenumber."""
    basis: dict[tuple[int, int], Array] = {}
    image: dict[tuple[int, int], Array] = {}
    for (s, k), factor in waves.factors.items():
        count = sum(tuple(waves.place[number]) == (s, k) for number in taken)
        if count == 0:
            continue
        sector = sectors[s]
        S, _ = np.linalg.qr(factor[:count].T)
        spread = (S / np.sqrt(copies[s])[:, None])[None]
        roots = [root[k : k + 1] for root in sector.roots]
        C = sector.apply(roots, spread, transposed=True)[0]
        GC = whole(sector, k) @ C
        lower = np.linalg.cholesky(C.T @ GC)
        basis[s, k] = np.ascontiguousarray(np.linalg.solve(lower, C.T).T)
        image[s, k] = np.ascontiguousarray(np.linalg.solve(lower, GC.T).T)
    return RangeProjection(basis, image)


def whole(sector: Whitened, k: int) -> Array:
    """``T + T' - I`` of a wavenumber, shape (size, size)."""
    lower = sector.gram[k]
    return np.asarray(lower + np.tril(lower, -1).T)


def projected_range(
    projection: RangeProjection,
    piece: RingPiece,
    right: Columns,
    weights: Array,
    adjoint: bool,
) -> RingPiece:
    """Project a range: ``c = P' Y``, ``Y - (G P) c``, forward ``v + P c``; the downdate gets ``c' c``."""
    if not projection.basis:
        return piece._replace(before=())
    touched = {s for s, _ in projection.basis}
    Y = [part.copy() if s in touched else part for s, part in enumerate(piece.Y)]
    added = [part.copy() if s in touched else part for s, part in enumerate(piece.weights)]
    mean, downdate = [part.copy() for part in piece.mean], [part.copy() for part in piece.downdate]
    for (s, k), basis in projection.basis.items():
        # what came over a network may lie at any byte, and products with it then round otherwise
        P, GP, b = (
            np.require(array, requirements="A") for array in (basis, projection.image[s, k], right[s][k])
        )
        c = P.T @ Y[s][k]
        Y[s][k] -= GP @ c
        if not adjoint:
            added[s][k] += P @ c
            continue
        if mean[0].ndim == 3:  # targets on the grid
            mean[s][k] += c.T @ (P.T @ b)
            downdate[s] += weights[k] * np.einsum("ij,ij->j", c, c)
            continue
        own, weight = c[None], weights[k : k + 1]
        mean[0] += inner_products(own, (P.T @ b)[None], weight)
        if downdate[0].ndim == 2:
            form = inner_products(own, own, weight)
            downdate[0] += 0.5 * (form + form.T)
        else:
            downdate[0] += inner_diagonal(own, own, weight)
    return RingPiece(Y, added, mean, downdate)


def largest_left_range(sectors: list[Whitened], projection: RangeProjection) -> float:
    """Largest eigenvalue of ``R^-1 (G_k - G_k P P' G_k) R^-T`` of a range: what a projection leaves."""
    largest = 0.0
    for s, sector in enumerate(sectors):
        for k in range(len(sector.gram)):
            coupled = whole(sector, k)
            if (image := projection.image.get((s, k))) is not None:
                coupled -= image @ image.T
            if np.abs(coupled).sum(axis=1).max(initial=0.0) > largest:
                largest = max(largest, float(np.linalg.eigvalsh(coupled)[-1]))
    return largest
