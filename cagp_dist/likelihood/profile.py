"""The likelihood of (lengthscale, ratio) with the best admissible variance put in (math 9)."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.likelihood.bounds import Bounds
from cagp_dist.likelihood.evaluation import NATURAL, Evaluation, Likelihood
from cagp_dist.likelihood.result import FitProgress


@dataclass(frozen=True, eq=False)
class Place:
    """The likelihood at one lengthscale and ratio.

    Attributes
    ----------
    x : array of float64, shape (2,)
        (log lengthscale, log ratio).
    variance : float
        The best one within the bounds.
    follows_noise : bool
        Whether a bound of the noise variance limits it, so that it changes with the ratio.
    evaluation : Evaluation
        All there is to know.
    """

    x: Array
    variance: float
    follows_noise: bool
    evaluation: Evaluation

    @property
    def parameters(self) -> tuple[float, float, float]:
        """(lengthscale, variance, noise variance)."""
        lengthscale, ratio = np.exp(self.x)
        return float(lengthscale), self.variance, float(ratio * self.variance)

    @cached_property
    def log_likelihood(self) -> float:
        """Value; NaN where only the gradient is estimated."""
        return self.evaluation.log_likelihood(self.variance)

    @cached_property
    def slope(self) -> Array:
        """Gradient by ``x``, the variance following (it counts only where a bound limits it), shape (2,)."""
        by_lengthscale, by_variance, by_ratio = self.evaluation.gradient(self.variance)
        return np.array([by_lengthscale, by_ratio - (by_variance if self.follows_noise else 0.0)])

    @property
    def gradient(self) -> Array:
        """Gradient by the logarithms of the three parameters, shape (3,)."""
        return np.asarray(NATURAL.T @ self.evaluation.gradient(self.variance))


class Counter:
    """Counts evaluations and tells the caller of each."""

    def __init__(self, progress: Callable[[FitProgress], None] | None) -> None:
        self._progress = progress
        self._started = time.perf_counter()
        self.evaluations = 0

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._started

    def tell(self, place: Place) -> None:
        """Count one evaluation and report it."""
        self.evaluations += 1
        if self._progress is not None:
            value = place.log_likelihood
            points = place.evaluation.points
            self._progress(FitProgress(self.evaluations, points, *place.parameters, value, self.seconds))


@dataclass(frozen=True)
class Profile:
    """A likelihood with the variance taken out, within bounds."""

    likelihood: Likelihood
    bounds: Bounds
    counter: Counter

    @property
    def box(self) -> Array:
        """Lower and upper limits of ``x``, shape (2, 2)."""
        return np.asarray(np.log([self.bounds.lengthscale, self.bounds.ratio])).T

    def at(self, x: Array) -> Place:
        """Evaluate at ``x`` (log lengthscale, log ratio)."""
        lengthscale, ratio = np.exp(x)
        evaluation = self.likelihood.evaluate(float(lengthscale), float(ratio))
        best = evaluation.quadratic / evaluation.values
        variance, follows_noise = self.bounds.variance_at(float(ratio), best)
        place = Place(np.array(x), variance, follows_noise, evaluation)
        self.counter.tell(place)
        return place
