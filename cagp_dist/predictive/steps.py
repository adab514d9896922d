"""Laws in steps: the conformal predictive system of Vovk et al."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive.base import Predictive


@dataclass(frozen=True, eq=False)
class Steps(Predictive):
    """Laws that rise in steps at the scores of N calibration points [Vovk et al. 2020].

    With the score z of a value y, and a number tau of each point::

        F(y) = (#{j: z_j < z} + tau (#{j: z_j = z} + 1)) / (N + 1)

    If the new score is exchangeable with the others and tau is uniform on (0, 1), **F at the observation is
    exactly uniform**. ``F`` does not fall to 0 nor rise to 1: ``tau / (N + 1)`` of the probability is below
    all values and ``(1 - tau) / (N + 1)`` above. Quantiles, and with them samples, moments and CRPS, put it
    on the values of the smallest and the largest score. A law in steps has no density.

    Parameters
    ----------
    base : Predictive
        The laws whose normal scores are meant.
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
    >>> from cagp_dist.predictive import Gaussian, Steps
    >>> law = Steps(Gaussian([0.0], 1.0), scores=[-1.0, 0.0, 2.0], tau=[0.5])
    >>> law.cdf(0.5).round(3).tolist(), law.quantile([0.2, 0.5, 0.8]).ravel().tolist()
    ([0.625], [-1.0, 0.0, 2.0])
    """

    base: Predictive
    scores: Array
    tau: Array

    def __post_init__(self) -> None:
        scores, tau = (np.asarray(array, dtype=np.float64) for array in (self.scores, self.tau))
        if scores.ndim != 1 or not scores.size or not np.all(np.diff(scores) >= 0.0):
            raise ArgumentError(
                f"scores have shape {scores.shape}; expected (N,), N at least 1, in ascending order."
            )
        if tau.shape != self.base.shape or not np.all((tau > 0.0) & (tau < 1.0)):
            raise ArgumentError(
                f"tau has shape {tau.shape}; expected {self.base.shape}, a number between 0 and 1 for each "
                "point."
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
