"""Recalibration that lost to one curve and to a local scale, for the tables that show it.

The conformal predictive system of Vovk et al. (2020) with its random numbers, ranks of errors of one width
(Marx et al. 2022) and split-conformal intervals with local sizes of errors (Lei et al. 2018). All need one
thing: that the score of a new point is exchangeable with those of the calibration points. Then probabilities
are exact for each N, on average over the draw of the calibration points (math 12).
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from cagp_dist.arrays import Array
from cagp_dist.calibration.recalibration.order_statistics import (
    SMALLEST_LEVEL,
    calibration_scores,
    check_resolved,
    knots_through,
)
from cagp_dist.checks import as_points, check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive import Gaussian, Predictive, Recalibrated
from cagp_dist.text import counted


@dataclass(frozen=True)
class Marx:
    """Ranks of the errors ``y - mean``: the same widths at all points, whatever deviations were predicted."""

    def fit(self, distribution: Gaussian, observed: ArrayLike, X: ArrayLike | None = None) -> "FittedMarx":
        """Fit the curve to predictions of calibration points and their values, each (N,) or (T, N)."""
        errors = calibration_scores(Gaussian(distribution.mean, np.asarray(1.0)), observed)
        std = float(np.sqrt(np.mean(errors**2))) if errors.size else 1.0
        scores = calibration_scores(Gaussian(distribution.mean, np.asarray(std)), observed)
        return FittedMarx(std, *knots_through(scores, evenly=99))


@dataclass(frozen=True, eq=False)
class FittedMarx:
    """A curve over distributions as wide as the errors: tails beyond the knots are theirs."""

    std: float
    scores: Array
    levels: Array

    def __call__(self, distribution: Gaussian, X_new: ArrayLike | None = None) -> Recalibrated:
        """Laws of new points, of the shape of ``law``; where they are makes no difference."""
        return Recalibrated(Gaussian(distribution.mean, np.asarray(self.std)), self.scores, self.levels)


@dataclass(frozen=True, eq=False)
class FittedVovk:
    """The scores of calibration points, ascending, shape (N,), and the seed of the random numbers."""

    scores: Array
    seed: int

    def __call__(self, distribution: Predictive, X_new: ArrayLike | None = None) -> "Steps":
        """Laws of new points, of the shape of ``law``; where they are makes no difference."""
        tau = np.random.default_rng(self.seed).uniform(np.finfo(float).tiny, 1.0, size=distribution.shape)
        return Steps(distribution, self.scores, tau)


@dataclass(frozen=True)
class Vovk:
    """Split conformal predictive system of standardised errors, with a random number of each point."""

    seed: int = 0

    def fit(self, distribution: Predictive, observed: ArrayLike, X: ArrayLike | None = None) -> FittedVovk:
        """Keep the scores of calibration points, whose predictions and values are (N,) or (T, N)."""
        scores = np.sort(calibration_scores(distribution, observed))
        check_resolved(SMALLEST_LEVEL, scores.size)
        return FittedVovk(scores, self.seed)


@dataclass(frozen=True, eq=False)
class Steps(Predictive):
    """Distributions that rise in steps at the scores of N calibration points [Vovk et al. 2020].

    With the score z of a value y, and a number tau of each point::

        F(y) = (#{j: z_j < z} + tau (#{j: z_j = z} + 1)) / (N + 1)

    If the new score is exchangeable with the others and tau is uniform on (0, 1), **F at the observation is
    exactly uniform**. ``F`` does not fall to 0 nor rise to 1: ``tau / (N + 1)`` of the probability is below
    all values and ``(1 - tau) / (N + 1)`` above. Quantiles, and with them samples, moments and CRPS, put it
    on the values of the smallest and the largest score. A distribution in steps has no density.

    Parameters
    ----------
    base : Predictive
        The distributions whose normal scores are meant.
    scores : array_like, shape (N,)
        Scores of the calibration points, ascending; equal ones are there more than once.
    tau : array_like, of the shape of ``base``
        Between 0 and 1, neither of them.

    Raises
    ------
    ArgumentError
        If there is no score, scores do not ascend, or tau is out of range or of another shape.

    Examples
    --------
    >>> from cagp_dist.predictive import Gaussian
    >>> distribution = Steps(Gaussian([0.0], 1.0), scores=[-1.0, 0.0, 2.0], tau=[0.5])
    >>> distribution.cdf(0.5).round(3).tolist(), distribution.quantile([0.2, 0.5, 0.8]).ravel().tolist()
    ([0.625], [-1.0, 0.0, 2.0])
    """

    base: Predictive
    scores: Array
    tau: Array

    def __post_init__(self) -> None:
        scores, tau = (np.asarray(array, dtype=np.float64) for array in (self.scores, self.tau))
        if scores.ndim != 1 or not scores.size or not np.all(np.diff(scores) >= 0.0):
            raise ArgumentError(
                f"scores have shape {scores.shape}; expected (N,), N at least 1, in ascending order.",
                key="shapes",
            )
        if tau.shape != self.base.shape or not np.all((tau > 0.0) & (tau < 1.0)):
            raise ArgumentError(
                f"tau has shape {tau.shape}; expected {self.base.shape}, a number between 0 and 1 for each "
                "point.",
                key="shapes",
            )
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "tau", tau)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the points."""
        return self.base.shape

    def normal_score(self, values: ArrayLike) -> Array:
        """Give the normal scores of ``F``."""
        z = self.base.normal_score(values)
        below, at_most = (np.searchsorted(self.scores, z, side=side) for side in ("left", "right"))
        ranks = below + self.tau * (at_most - below + 1)
        return np.asarray(ndtri(ranks / (self.scores.size + 1)), dtype=np.float64)

    def at_normal_score(self, scores: ArrayLike) -> Array:
        """Smallest value of a step with at least this probability; the outermost ones beyond the steps."""
        ranks = ndtr(np.asarray(scores, dtype=np.float64)) * (self.scores.size + 1)
        # just beyond the j-th score, j from 1, F is (j + tau) / (N + 1)
        step = np.ceil(ranks - self.tau - 1e-9).astype(np.intp)
        return self.base.at_normal_score(self.scores[np.clip(step, 1, self.scores.size) - 1])

    def log_density(self, values: ArrayLike) -> Array:
        """Minus infinity: there is no density."""
        return np.full(np.broadcast_shapes(np.shape(values), self.shape), -np.inf)

    def __getitem__(self, index: Any) -> Self:
        return type(self)(self.base[index], self.scores, self.tau[index])


@dataclass(frozen=True, eq=False)
class FittedIntervals:
    """Split-conformal intervals that were fitted; a call gives the distributions of other points.

    Attributes
    ----------
    scores, levels : array, shape (2 K,)
        Knots of a curve that is symmetric about zero.
    places : array, shape (M, p), or None
        Points that the local sizes were learned at.
    sizes : array, shape (M,)
        Sizes of standardised errors there.
    neighbours : int
        How many of them a local size is the mean of.
    """

    scores: Array
    levels: Array
    places: Array | None
    sizes: Array
    neighbours: int

    def __call__(self, distribution: Gaussian, X_new: ArrayLike | None = None) -> Recalibrated:
        """Laws of new points, of the shape of ``law``, (q,) or (T, q), at X_new (q, p)."""
        weighted = _weighted(distribution, X_new, self.places, self.sizes, self.neighbours)
        return Recalibrated(weighted, self.scores, self.levels)


@dataclass(frozen=True)
class SplitConformal:
    """Split-conformal intervals, with scores that are weighted by local sizes of errors [Lei et al. 2018].

    The score is ``|y - mean| / (std s(x))``. The central interval of level ``l / (N + 1)`` reaches as far as
    the l-th smallest score to both sides, and holds a new observation with this probability.

    Parameters
    ----------
    neighbours : int
        s(x) is the mean of ``|y - mean| / std`` at so many points next to x; 0 leaves it at 1.
    share : float
        Part of the calibration points that s is learned from, drawn by chance; the intervals are those of the
        others, for which it was not chosen. Not used without neighbours.
    seed : int
        Of this draw.
    knots, smallest_level
        As for `Kuleshov`; levels are those of the intervals, and ``1 - smallest_level`` the widest one that
        must be resolved.

    Examples
    --------
    Errors that are larger in one half of the interval:

    >>> import numpy as np
    >>> from cagp_dist.predictive import Gaussian
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(2000, 1))
    >>> errors = np.where(X[:, 0] < 0.5, 1.0, 4.0) * rng.standard_normal(2000)
    >>> fitted = SplitConformal(neighbours=200).fit(Gaussian(np.zeros(2000), 2.0), errors, X)
    >>> distribution = fitted(Gaussian([0.0, 0.0], 2.0), [[0.25], [0.75]])
    >>> distribution.interval(0.9)[1].round(1).tolist()
    [1.5, 6.6]
    """

    neighbours: int = 0
    share: float = 0.5
    seed: int = 0
    knots: int = 99
    smallest_level: float = SMALLEST_LEVEL

    def fit(self, distribution: Gaussian, observed: ArrayLike, X: ArrayLike | None = None) -> FittedIntervals:
        """Fit to predictions of calibration points X (N, p) and their values, each (N,) or (T, N)."""
        check_count("knots", self.knots, least=2)
        check_count("neighbours", self.neighbours, least=0)
        calibration_scores(distribution, observed)
        values = np.asarray(observed, dtype=np.float64)
        places, sizes, rest = None, np.ones(1), np.arange(values.shape[-1])
        if self.neighbours:
            points = _points("X", X, distribution)
            order = np.random.default_rng(self.seed).permutation(len(points))
            known, rest = np.split(order, [round(self.share * len(points))])
            found = np.abs(distribution[..., known].normal_score(values[..., known]))
            number = np.count_nonzero(~np.isnan(found), axis=tuple(range(found.ndim - 1)))
            known, found = known[number > 0], found[..., number > 0]
            if known.size < self.neighbours:
                raise ArgumentError(
                    f"local sizes are learned from {counted(known.size, 'calibration point')}; expected at "
                    f"least {self.neighbours}, the number of neighbours. Keep more points, or take fewer "
                    "neighbours.",
                    key="few-errors",
                )
            places = points[known]
            sizes = np.nanmean(found, axis=tuple(range(found.ndim - 1)))
            weighted = _weighted(distribution[..., rest], points[rest], places, sizes, self.neighbours)
        else:
            weighted = distribution
        scores = np.abs(calibration_scores(weighted, values[..., rest]))
        knots, levels = knots_through(scores, evenly=self.knots, smallest_level=self.smallest_level)
        inside = knots > 0.0
        knots, levels = knots[inside], levels[inside]
        return FittedIntervals(
            np.concatenate([-knots[::-1], knots]),
            0.5 + 0.5 * np.concatenate([-levels[::-1], levels]),
            places,
            sizes,
            self.neighbours,
        )


def _weighted(
    distribution: Gaussian, X: ArrayLike | None, places: Array | None, sizes: Array, neighbours: int
) -> Gaussian:
    """Give the distributions with standard deviations times local sizes."""
    if places is None:
        return distribution
    from scipy.spatial import cKDTree

    _, nearest = cKDTree(places).query(_points("X_new", X, distribution), k=neighbours)
    local = sizes[np.reshape(nearest, (-1, neighbours))].mean(axis=1)
    return Gaussian(distribution.mean, distribution.std * np.maximum(local, np.finfo(float).tiny))


def _points(name: str, X: ArrayLike | None, distribution: Gaussian) -> Array:
    if X is None:
        raise ArgumentError(
            f"{name} is missing; scores with local sizes need the points of the predictions.", key="no-places"
        )
    points = as_points(name, X)
    if distribution.shape[-1:] != (len(points),):
        raise ArgumentError(
            f"{name} holds {counted(len(points), 'point')} and predictions have shape {distribution.shape}; "
            "expected one point for each prediction.",
            key="shapes",
        )
    return points
