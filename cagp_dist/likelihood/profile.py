"""The likelihood of all numbers but one, with the best admissible variance put in (math 9)."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.kernels import Lengthscales
from cagp_dist.likelihood.bounds import Bounds
from cagp_dist.likelihood.evaluation import Evaluation, Likelihood
from cagp_dist.likelihood.result import FitProgress, grouped


@dataclass(frozen=True, eq=False)
class Place:
    """The likelihood at one lengthscale and ratio, or at the numbers of a sum.

    Attributes
    ----------
    x : array of float64, shape (k,)
        (log lengthscale, log ratio); else logarithms of (lengthscales, weights, ratio).
    variance : float
        The best one within the bounds, of the first part.
    follows : int
        Which of weights and ratio it changes with, counted from 1, as a bound of that part's variance or of
        the noise variance limits it; 0 if none.
    evaluation : Evaluation
        All there is to know.
    """

    x: Array
    variance: float
    follows: int
    evaluation: Evaluation

    @property
    def parameters(self) -> tuple[float, ...]:
        """(lengthscale, variance, noise variance), of a sum (lengthscales, variances, noise variance)."""
        return self.evaluation.numbering.parameters(np.exp(self.x).tolist(), self.variance)

    @property
    def parts(self) -> tuple[tuple[Lengthscales, ...], tuple[float, ...], float]:
        """The same, those of the parts together."""
        return self.evaluation.numbering.grouped(self.parameters)

    @cached_property
    def log_likelihood(self) -> float:
        """Value; NaN where only the gradient is estimated."""
        return self.evaluation.log_likelihood(self.variance)

    @cached_property
    def slope(self) -> Array:
        """Gradient by ``x``, shape (k,), the variance following (it counts where a bound limits it)."""
        gradient, first = self.evaluation.gradient(self.variance), self.evaluation.numbering.lengthscales
        slope = np.delete(gradient, first)
        if self.follows:
            slope[first - 1 + self.follows] -= gradient[first]
        return slope

    @property
    def gradient(self) -> Array:
        """Gradient by the logarithms of all parameters, shape (k + 1,)."""
        return np.asarray(self.evaluation.numbering.natural.T @ self.evaluation.gradient(self.variance))


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
            numbers = grouped(*place.parts)
            self._progress(FitProgress(self.evaluations, points, *numbers, value, self.seconds))


@dataclass(frozen=True)
class Profile:
    """A likelihood with the variance taken out, within bounds."""

    likelihood: Likelihood
    bounds: Bounds
    counter: Counter

    @property
    def box(self) -> Array:
        """Lower and upper limits of ``x``, shape (2, k)."""
        bounds = self.bounds
        return np.asarray(np.log([*bounds.lengthscales, *bounds.weights, bounds.ratio])).T

    def at(self, x: Array) -> Place:
        """Evaluate at ``x``, the logarithms of the numbers."""
        numbers = np.exp(x).tolist()
        evaluation = self.likelihood.evaluate(*numbers)
        best = evaluation.quadratic / evaluation.values
        variance, follows = self.bounds.variance_at(numbers[self.bounds.numbering.lengthscales :], best)
        place = Place(np.array(x), variance, follows, evaluation)
        self.counter.tell(place)
        return place
