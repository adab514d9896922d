"""Quantiles of N calibration scores: between order statistics, whose levels are ``l / (N + 1)``.

Of N + 1 exchangeable scores without ties, the last is at most the l-th smallest of the others with
probability ``l / (N + 1)``, exactly. It says nothing of levels below ``1 / (N + 1)`` or above ``N / (N +
1)``.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.recalibration.fewest import fewest, outermost
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive import Predictive
from cagp_dist.text import counted

SMALLEST_LEVEL = 0.05  # Tail probability that the points of a curve must resolve: 20 points at least
ROUNDING = 1e-10  # Of the largest value: errors that differ by less are those of arithmetic


def q_lin(levels: ArrayLike, scores: ArrayLike) -> Array:
    """Quantiles of scores (N,) at levels of any shape, linear between order statistics (math 12).

    For ``l / (N + 1) <= level <= (l + 1) / (N + 1)`` and scores ``a_(1) <= ... <= a_(N)``::

        a_(l) + (level (N + 1) - l) (a_(l + 1) - a_(l))

    A new exchangeable score lies at or below it with a probability within ``1 / (N + 1)`` of the level.
    `ArgumentError`: N points do not resolve a level (`check_resolved`), or a score is not finite.

    Examples
    --------
    >>> q_lin([0.25, 0.5], [3.0, 1.0, 2.0, 5.0, 7.0]).tolist()
    [1.5, 3.0]
    """
    ordered = np.sort(_finite(scores))
    check_resolved(levels, ordered.size)
    below, share = between(levels, ordered.size)
    return np.asarray(ordered[below] + share * (ordered[below + 1] - ordered[below]), dtype=np.float64)


def between(levels: ArrayLike, count: int) -> tuple[Indices, Array]:
    """Find levels among ``count`` order statistics: index of the lower one, from 0, and share of the gap."""
    place = np.asarray(levels, dtype=np.float64) * (count + 1)
    below = np.clip(np.floor(place).astype(np.intp), 1, max(count - 1, 1))
    return below - 1, np.clip(place - below, 0.0, 1.0)


def check_resolved(levels: ArrayLike, count: int, *, shared: bool = False) -> None:
    """Raise `ArgumentError` unless ``count`` calibration points (``shared``: a part) resolve every level."""
    chosen = np.asarray(levels, dtype=np.float64).ravel()
    if not chosen.size or not bool(np.all((chosen > 0.0) & (chosen < 1.0))):
        raise ArgumentError(
            f"levels are {np.array2string(chosen, threshold=8)}; expected numbers between 0 and 1.",
            key="levels",
        )
    extreme = outermost(chosen.tolist())
    if count < (needed := fewest(extreme)):
        raise ArgumentError(
            f"{counted(count, 'calibration point')} cannot resolve the level {extreme:g}; expected at least "
            f"{needed} (1 over the probability of its tail){' in each part of the split' if shared else ''}. "
            "Keep more points for calibration, or ask for levels nearer to the middle.",
            key="few-errors",
        )


def calibration_scores(distribution: Predictive, observed: ArrayLike) -> Array:
    """Give normal scores of the calibration points that were observed, shape (N,); NaN is left out."""
    values = np.asarray(observed, dtype=np.float64)
    if values.shape != distribution.shape:
        raise ArgumentError(
            f"observed has shape {values.shape} and the predictions {distribution.shape}; expected one "
            f"value, or NaN, "
            "for each prediction.",
            key="shapes",
        )
    there = ~np.isnan(values)
    scores = _finite(distribution[there].normal_score(values[there]))
    if scores.size > 1 and np.ptp(scores) <= 1e-12 * np.abs(scores).max():
        raise ArgumentError(
            f"the errors of all {scores.size} calibration points are the same multiple, {scores[0]:g}, of "
            "their standard deviations, so no width can be estimated. Look for calibration values that are "
            "copies of their predictions, or for a constant field.",
            key="constant",
        )
    check_not_constant(distribution[there].quantile(0.5), values[there])
    return scores


def check_not_constant(predicted: Array, observed: Array) -> None:
    """Raise `ArgumentError` if all values differ from the predicted ones by one number, up to rounding."""
    errors = observed - predicted
    if errors.size > 1 and np.ptp(errors) <= ROUNDING * np.abs(observed).max():
        raise ArgumentError(
            f"the errors of all {errors.size} calibration values are {errors.mean():g}, up to rounding, so "
            "no width can be estimated. Look for calibration values that are copies of their predictions, "
            "or for a constant field.",
            key="constant",
        )


def knots_through(
    scores: Array, *, evenly: int, smallest_level: float = SMALLEST_LEVEL
) -> tuple[Array, Array]:
    """Give order statistics of scores (N,), more towards the ends, and their levels ``l / (N + 1)``."""
    check_resolved(smallest_level, scores.size)
    count = scores.size
    chosen = np.linspace(0.0, count - 1.0, min(evenly, count)).round().astype(np.intp)
    doubling = 2 ** np.arange(int(np.log2(count))) - 1
    ranks = np.unique(np.concatenate([chosen, doubling, count - 1 - doubling]))
    ordered = np.sort(scores)
    values = np.unique(ordered[ranks])
    first, last = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    return values, np.asarray(0.5 * (first + 1 + last) / (count + 1), dtype=np.float64)


def _finite(scores: Any) -> Array:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ArgumentError(
            f"calibration scores have shape {values.shape}, {np.count_nonzero(~np.isfinite(values))} of "
            "them not finite; expected (N,) finite numbers.",
            key="not-finite",
        )
    return values
