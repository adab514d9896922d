"""Conformal prediction: laws and intervals that are right for any law of the errors.

Both methods here need one thing: that the score of a new point is exchangeable with those of the calibration
points, as it is where both are drawn from the same places by chance. Then probabilities are exact for each
N, on average over the draw of the calibration points; for one draw the coverage of an interval that l of
N + 1 scores bound has the law Beta(l, N + 1 - l) [Vovk 2012].
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.calibration.order_statistics import (
    SMALLEST_LEVEL,
    calibration_scores,
    check_resolved,
    knots_through,
)
from cagp_dist.checks import as_points, check_between, check_count
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive import Gaussian, Predictive, Recalibrated, Steps
from cagp_dist.text import counted


@dataclass(frozen=True, eq=False)
class FittedConformal:
    """The scores of calibration points, ascending, shape (N,); a call gives the laws of other points."""

    scores: Array
    method: "Conformal"

    def __call__(self, law: Predictive, X_new: ArrayLike | None = None) -> Predictive:
        """Laws of new points, of the shape of ``law``; where they are makes no difference."""
        if self.method.randomised:
            generator = np.random.default_rng(self.method.seed)
            tau = generator.uniform(np.finfo(float).tiny, 1.0, size=law.shape)
            return Steps(law, self.scores, tau)
        most, smallest = self.method.knots, self.method.smallest_level
        return Recalibrated(law, *knots_through(self.scores, most=most, smallest_level=smallest))


@dataclass(frozen=True)
class Conformal:
    """Split conformal predictive system of standardised errors [Vovk et al. 2020].

    Parameters
    ----------
    randomised : bool
        Laws in steps with a random number of each point (`Steps`), whose PIT values are exactly uniform. If
        not, laws that lie between the steps of the system, whatever the random numbers, and have a density:
        the curve of `Kuleshov`.
    seed : int
        Of the random numbers: a draw for each call.
    knots, smallest_level
        As for `Kuleshov`.

    Raises
    ------
    ArgumentError
        If there are too few calibration points, or all have the same standardised error.

    Examples
    --------
    >>> import numpy as np
    >>> from cagp_dist.calibration.conformal import Conformal
    >>> from cagp_dist.predictive import Gaussian
    >>> errors = 0.5 * np.random.default_rng(0).standard_normal(2000)
    >>> fitted = Conformal().fit(Gaussian(np.zeros(2000), 1.0), errors)
    >>> fitted(Gaussian([280.0], 1.0)).interval(0.9)[1].round(1).tolist()
    [280.8]
    """

    randomised: bool = False
    seed: int = 0
    knots: int = 99
    smallest_level: float = SMALLEST_LEVEL

    def fit(self, law: Predictive, observed: ArrayLike, X: ArrayLike | None = None) -> FittedConformal:
        """Keep the scores of calibration points, whose predictions and values are (N,) or (T, N)."""
        check_count("knots", self.knots, least=2)
        check_count("seed", self.seed, least=0)
        scores = np.sort(calibration_scores(law, observed))
        check_resolved(self.smallest_level, scores.size)
        return FittedConformal(scores, self)


@dataclass(frozen=True, eq=False)
class FittedIntervals:
    """Split-conformal intervals that were fitted; a call gives the laws of other points.

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

    def __call__(self, law: Gaussian, X_new: ArrayLike | None = None) -> Recalibrated:
        """Laws of new points, of the shape of ``law``, (q,) or (T, q), at X_new (q, p)."""
        weighted = _weighted(law, X_new, self.places, self.sizes, self.neighbours)
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

    Raises
    ------
    ArgumentError
        If there are too few calibration points, all have the same standardised error, or neighbours are asked
        for and no points X were given.

    Examples
    --------
    Errors that are larger in one half of the interval:

    >>> import numpy as np
    >>> from cagp_dist.calibration.conformal import SplitConformal
    >>> from cagp_dist.predictive import Gaussian
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(2000, 1))
    >>> errors = np.where(X[:, 0] < 0.5, 1.0, 4.0) * rng.standard_normal(2000)
    >>> fitted = SplitConformal(neighbours=200).fit(Gaussian(np.zeros(2000), 2.0), errors, X)
    >>> law = fitted(Gaussian([0.0, 0.0], 2.0), [[0.25], [0.75]])
    >>> law.interval(0.9)[1].round(1).tolist()
    [1.5, 6.6]
    """

    neighbours: int = 0
    share: float = 0.5
    seed: int = 0
    knots: int = 99
    smallest_level: float = SMALLEST_LEVEL

    def fit(self, law: Gaussian, observed: ArrayLike, X: ArrayLike | None = None) -> FittedIntervals:
        """Fit to predictions of calibration points X (N, p) and their values, each (N,) or (T, N)."""
        check_count("knots", self.knots, least=2)
        check_count("neighbours", self.neighbours, least=0)
        check_between("share", self.share, 0.0, 1.0)
        calibration_scores(law, observed)
        values = np.asarray(observed, dtype=np.float64)
        places, sizes, rest = None, np.ones(1), np.arange(values.shape[-1])
        if self.neighbours:
            points = _points("X", X, law)
            order = np.random.default_rng(self.seed).permutation(len(points))
            known, rest = np.split(order, [round(self.share * len(points))])
            found = np.abs(law[..., known].normal_score(values[..., known]))
            number = np.count_nonzero(~np.isnan(found), axis=tuple(range(found.ndim - 1)))
            known, found = known[number > 0], found[..., number > 0]
            if known.size < self.neighbours:
                raise ArgumentError(
                    f"local sizes are learned from {counted(known.size, 'calibration point')}; expected at "
                    f"least {self.neighbours}, the number of neighbours. Keep more points, or take fewer "
                    "neighbours."
                )
            places = points[known]
            sizes = np.nanmean(found, axis=tuple(range(found.ndim - 1)))
            weighted = _weighted(law[..., rest], points[rest], places, sizes, self.neighbours)
        else:
            weighted = law
        scores = np.abs(calibration_scores(weighted, values[..., rest]))
        knots, levels = knots_through(scores, most=self.knots, smallest_level=self.smallest_level)
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
    law: Gaussian, X: ArrayLike | None, places: Array | None, sizes: Array, neighbours: int
) -> Gaussian:
    """Give the laws with standard deviations times local sizes."""
    if places is None:
        return law
    from scipy.spatial import cKDTree

    _, nearest = cKDTree(places).query(_points("X_new", X, law), k=neighbours)
    local = sizes[np.reshape(nearest, (-1, neighbours))].mean(axis=1)
    return Gaussian(law.mean, law.std * np.maximum(local, np.finfo(float).tiny))


def _points(name: str, X: ArrayLike | None, law: Gaussian) -> Array:
    if X is None:
        raise ArgumentError(f"{name} is missing; scores with local sizes need the points of the predictions.")
    points = as_points(name, X)
    if law.shape[-1:] != (len(points),):
        raise ArgumentError(
            f"{name} holds {counted(len(points), 'point')} and predictions have shape {law.shape}; "
            "expected one point for each prediction."
        )
    return points
