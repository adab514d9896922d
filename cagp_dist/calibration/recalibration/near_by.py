"""What is known near a place: errors of calibration points, and values of the field (math 19)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cagp_dist.arrays import Array, Indices, Mask
from cagp_dist.predictive import Gaussian

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

ENTRIES_AT_ONCE = 4_000_000  # Errors near by that are in memory at a time: 32 MB
_LEAST_WEIGHT = 1e-3
_FLOOR = 0.1


@dataclass(frozen=True, eq=False)
class Training:
    """What predictions were made from: places (n, p) and values (T, n), NaN where there are none."""

    points: Array
    values: Array

    @cached_property
    def tree(self) -> "cKDTree":
        return _tree(self.points)

    def near(self, points: Array, k: int) -> Array:
        """Values at the k nearest places, (T, q, k)."""
        return self.values[:, np.asarray(self.tree.query(points, k=range(1, k + 1), workers=-1)[1])]


@dataclass(frozen=True, eq=False)
class NearBy:
    """Errors and values of calibration points, found by place: T times, N places that have some."""

    points: Array  # (N, p)
    # values, errors: (T, N), NaN where nothing was observed
    values: Array
    errors: Array
    # What the predictions were made from; None where that is these points themselves
    training: Training | None
    # (N,): which block each place lies in; a place's own block is left out with it. None: each is its own
    groups: Indices | None
    neighbours: tuple[int, ...]  # Numbers of places whose errors are averaged, ascending
    contrast: int  # Number of values that are compared with a prediction

    @cached_property
    def typical(self) -> float:
        """Mean size of an error."""
        return float(np.nanmean(np.abs(self.errors)))

    @cached_property
    def tree(self) -> "cKDTree":
        return _tree(self.points)

    def opposed(self, chosen: Indices) -> Array:
        """Correlation of errors with those of the nearest place, the next, ..., where it is negative."""
        _, index = self._nearest(self.points[chosen], chosen)
        sign = np.sign(self.errors)
        agreement = [np.nanmean(sign[:, chosen] * sign[:, column]) for column in index.T]
        return np.minimum(np.sin(0.5 * np.pi * np.array(agreement)), 0.0)

    def features(
        self, distribution: Gaussian, points: Array, *, own: Indices | None = None, opposed: Array
    ) -> Iterator[Array]:
        """Yield the terms of the scale at some points after others, each (T, some, F).

        ``own`` says which calibration point each of them is (-1 for none), so that its errors are left out.
        Where the training is known one column more is last: what the errors near by lean to.
        """
        step = max(1, ENTRIES_AT_ONCE // (len(self.values) * self.neighbours[-1]))
        for start in range(0, len(points), step):
            part = slice(start, start + step)
            mine = None if own is None else own[part]
            distance, index = self._nearest(points[part], mine)
            near = self.errors[:, index]
            if mine is not None:
                its = np.where(mine >= 0, self.errors[:, mine], np.nan)[..., None]
                near = without_own(near, np.nan_to_num(its), np.where(np.isnan(its), 0.0, opposed))
            k = self.contrast
            values = (
                self.values[:, index[:, :k]] if self.training is None else self.training.near(points[part], k)
            )
            gaps = np.abs(values - distribution[:, part].location[..., None])
            typical = self.typical * distribution[:, part].scale
            contrast = _average(np.ones(gaps.shape[1:]), gaps, otherwise=typical)
            terms = [*self._sizes(distance, index, np.abs(near)), np.log1p(contrast / typical)]
            if self.training is not None:
                k = self.neighbours[0]
                terms.append(_average(_weights(distance[:, :k]), near[..., :k], otherwise=np.array(0.0)))
            yield np.stack(terms, axis=-1)

    def _sizes(self, distance: Array, index: Indices, sizes: Array) -> list[Array]:
        """Errors near by, of each time and of all times together, from their sizes (T, q, K)."""
        terms, typical = list[Array](), np.array(self.typical)
        for k in self.neighbours:
            local = _average(_weights(distance[:, :k]), sizes[..., :k], otherwise=typical)
            terms.append(np.log(local / self.typical + _FLOOR))
        if len(sizes) > 1:
            k = self.neighbours[0]
            sums = np.nansum(sizes[..., :k], axis=0)
            counts = np.count_nonzero(~np.isnan(sizes[..., :k]), axis=0)
            weights = _weights(distance[:, :k])
            usual = (weights * sums).sum(axis=1) / (weights * counts).sum(axis=1)
            terms.append(np.broadcast_to(np.log(usual / self.typical + _FLOOR), sizes.shape[:2]))
        return terms

    def _nearest(self, points: Array, own: Indices | None) -> tuple[Array, Indices]:
        """Distances and numbers of the nearest places (q, K), ascending; a point's own place left out."""
        if own is not None and self.groups is not None:
            return self._outside(points, self.groups[own])
        wanted = self.neighbours[-1] + (own is not None)
        distance, index = map(np.asarray, self.tree.query(points, k=range(1, wanted + 1), workers=-1))
        if own is None:
            return distance, index
        mine: Mask = index == own[:, None]
        mine[~mine.any(axis=1), -1] = True  # it is no calibration point, or others hide it
        return distance[~mine].reshape(len(own), -1), index[~mine].reshape(len(own), -1)

    def _outside(self, points: Array, groups: Indices) -> tuple[Array, Indices]:
        """Find the nearest places outside the group of each point."""
        shape = len(points), self.neighbours[-1]
        distance, index = np.empty(shape), np.empty(shape, dtype=np.intp)
        for group in np.unique(groups):
            mine, others = groups == group, np.flatnonzero(self.groups != group)
            ranks = range(1, shape[1] + 1)
            near, at = _tree(self.points[others]).query(points[mine], k=ranks, workers=-1)
            distance[mine], index[mine] = near, others[at]
        return distance, index


def without_own(errors: Array, own: Array, correlation: Array) -> Array:
    """Errors when another value, ``own``, is left out too: ``(z_j - r z_i) / sqrt(1 - r^2)`` (T38)."""
    return np.asarray((errors - correlation * own) / np.sqrt(1.0 - correlation**2))


def _weights(distance: Array) -> Array:
    farthest = distance[:, -1:]
    share = np.divide(distance, farthest, out=np.zeros_like(distance), where=farthest > 0.0)
    return np.asarray(np.maximum(_LEAST_WEIGHT, 1.0 - share**2), dtype=np.float64)


def _average(weights: Array, values: Array, *, otherwise: Array) -> Array:
    """Weighted mean over the last axis of what is not NaN; weights (q, k), values (T, q, k)."""
    there = ~np.isnan(values)
    if there.all():
        return np.asarray(np.einsum("qk,tqk->tq", weights, values) / weights.sum(axis=1), dtype=np.float64)
    total = np.einsum("qk,tqk->tq", weights, there.astype(np.float64))
    found = np.einsum("qk,tqk->tq", weights, np.where(there, values, 0.0))
    where_none = np.broadcast_to(otherwise, total.shape).copy()
    return np.asarray(np.divide(found, total, out=where_none, where=total > 0.0))


def _tree(points: Array) -> "cKDTree":
    from scipy.spatial import cKDTree

    return cKDTree(points)
