"""One curve for all points: Kuleshov et al. (2018).

**If the score (PIT value) of a new point is exchangeable with those of N calibration points, its probability
is right at every knot, and in between within the distance of the knots** (math 12): on average over places.
"""

from dataclasses import dataclass

from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.calibration.recalibration.order_statistics import calibration_scores, knots_through
from cagp_dist.checks import check_count
from cagp_dist.predictive import Predictive, Recalibrated


@dataclass(frozen=True, eq=False)
class Curve:
    """A fitted curve: ``fitted(distribution)`` gives the recalibrated distributions of other points."""

    # scores, levels: (K,), knots: normal scores, and the probabilities that they get
    scores: Array
    levels: Array

    def __call__(self, distribution: Predictive, X_new: ArrayLike | None = None) -> Recalibrated:
        """Distributions of new points, shape of ``distribution``; where they are makes no difference."""
        return Recalibrated(distribution, self.scores, self.levels)


@dataclass(frozen=True)
class Kuleshov:
    """Recalibration by the distribution of PIT values [Kuleshov, Fenner & Ermon 2018].

    The curve R of ``F = R(F_prediction)`` goes through the PIT values of calibration points, in order, at the
    levels ``l / (N + 1)``. That is the isotonic regression of the paper, whose data ascend, with N + 1 in
    place of N, so that something is left for the tails; of normal predictions it is the curve of quantiles of
    standardised errors, too.

    Parameters
    ----------
    knots : int
        Of more calibration points, so many are spread evenly, and more of them towards the tails. A curve
        through all of them has the same quantiles and a rough density.

    Raises
    ------
    ArgumentError
        If there are too few calibration points, or all have the same standardised error.

    Examples
    --------
    >>> import numpy as np
    >>> from cagp_dist.calibration.recalibration.quantile_curve import Kuleshov
    >>> from cagp_dist.predictive import Gaussian
    >>> errors = 0.5 * np.random.default_rng(0).standard_normal(2000)
    >>> fitted = Kuleshov().fit(Gaussian(np.zeros(2000), 1.0), errors)
    >>> fitted(Gaussian([280.0], 1.0)).std.round(2).tolist()
    [0.5]
    """

    knots: int = 99

    def fit(self, distribution: Predictive, observed: ArrayLike, X: ArrayLike | None = None) -> Curve:
        """Fit the curve to predictions of calibration points and their values, each (N,) or (T, N)."""
        check_count("knots", self.knots, least=2)
        return Curve(*knots_through(calibration_scores(distribution, observed), evenly=self.knots))
