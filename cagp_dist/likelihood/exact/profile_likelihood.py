"""The likelihood of all numbers but one, with the best admissible variance put in (math 9)."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cagp_dist.arrays import Array
from cagp_dist.errors import NumericalError
from cagp_dist.kernels import Lengthscales
from cagp_dist.likelihood.bounds import Bounds
from cagp_dist.likelihood.exact.likelihood_evaluation import Evaluation, Likelihood, information
from cagp_dist.likelihood.fit_result import FitProgress, grouped


@dataclass(frozen=True, eq=False)
class Place:
    """The likelihood at one lengthscale and ratio, or at the numbers of a sum."""

    x: Array  # (k,): (log lengthscale, log ratio); else logarithms of (lengthscales, weights, ratio)
    variance: float  # The best one within the bounds, of the first part
    # Which of weights and ratio it changes with, counted from 1, as a bound of that part's variance or of the
    # noise variance limits it; 0 if none
    follows: int
    evaluation: Evaluation  # All there is to know
    # Weights that a bound of their variance moves with another of the numbers; see `Bounds.reconciled`
    tied: tuple[tuple[int, int], ...] = ()

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
        """Value."""
        return self.evaluation.log_likelihood(self.variance)

    @cached_property
    def slope(self) -> Array:
        """Gradient by ``x``, shape (k,), the variance following (it counts where a bound limits it)."""
        gradient, first = self.evaluation.gradient(self.variance), self.evaluation.numbering.lengthscales
        slope = np.delete(gradient, first)
        if self.follows:
            slope[first - 1 + self.follows] -= gradient[first]
        for weight, other in self.tied:
            if other >= 0:
                slope[other] += slope[weight]
            slope[weight] = 0.0
        return slope

    @property
    def gradient(self) -> Array:
        """Gradient by the logarithms of all parameters, shape (k + 1,)."""
        return np.asarray(self.evaluation.numbering.natural.T @ self.evaluation.gradient(self.variance))


class Counter:
    """Counts evaluations and tells of each; ``hint``: log of the last best variance, and its steepness."""

    def __init__(self, progress: Callable[[FitProgress], None] | None) -> None:
        self._progress = progress
        self._started = time.perf_counter()
        self.evaluations = 0
        self.hint: tuple[float, float] | None = None

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._started

    def tell(self, place: Place) -> None:
        """Count one evaluation and report it."""
        self.say(place.evaluation.points, place.parts, place.log_likelihood)

    def say(
        self, points: int, parts: tuple[tuple[Lengthscales, ...], tuple[float, ...], float], value: float
    ) -> None:
        """Count an evaluation with so many points, and report its parameters and value (or NaN)."""
        self.evaluations += 1
        if self._progress is not None:
            self._progress(FitProgress(self.evaluations, points, *grouped(*parts), value, self.seconds))


# Evaluations in search of the best variance, where it has no closed form; three or four are usual
MOST_VARIANCES = 20

# Fall of the slope with the logarithm of the variance, for each value, at least; it is 0.5 if no noise
# deviates
LEAST_STEEPNESS = 0.02

# A variance is the best where the slope is below this times the fourth root of the number of values
BEST = 1e-3


DIFFERENCE = 1e-3  # Step of the differences of gradients, in logarithms
FINER = 0.1  # Steps of differences where noises deviate: the least of them changes much with the noise of all


@dataclass(frozen=True)
class ProfileLikelihood:
    """A likelihood with the variance taken out, within bounds."""

    likelihood: Likelihood
    bounds: Bounds
    counter: Counter
    # Whether the noise of each point differs by a known amount from that of all; the likelihood then takes
    # one over the variance behind the numbers, and the best variance is searched for
    deviating: bool = False
    curved: bool = False  # Whether evaluations have ``squares``, from which the expected information follows

    @property
    def box(self) -> Array:
        """Lower and upper limits of ``x``, shape (2, k)."""
        bounds = self.bounds
        return np.asarray(np.log([*bounds.lengthscales, *bounds.weights, bounds.ratio])).T

    def at(self, x: Array) -> Place:
        """Evaluate at ``x``, the logarithms of the numbers, or the nearest for which the bounds hold."""
        return self._place(*self.bounds.reconciled(x))

    def at_parameters(self, logarithms: Array) -> Place:
        """Evaluate at the logarithms of all numbers, the first variance included."""
        numbering = self.bounds.numbering
        x = numbering.natural @ logarithms
        variance = float(np.exp(x[numbering.lengthscales]))
        return self.at_variance(np.delete(x, numbering.lengthscales), variance)

    def at_variance(self, x: Array, variance: float) -> Place:
        """Evaluate at the logarithms of the other numbers and this variance, of the first part."""
        return self._place(np.clip(x, *self.box), variance=variance)

    def _place(
        self, x: Array, tied: tuple[tuple[int, int], ...] = (), *, variance: float | None = None
    ) -> Place:
        numbers, follows = np.exp(x).tolist(), 0
        try:
            if variance is None:
                variance, follows, evaluation = self._evaluated(numbers)
            else:
                own = (1.0 / variance,) if self.deviating else ()
                evaluation = self.likelihood.evaluate(*numbers, *own)
        except NumericalError as error:
            found, ratio = numbers[: self.bounds.numbering.lengthscales], numbers[-1]
            lengthscales = ", ".join(f"{lengthscale:.3g}" for lengthscale in found)
            raise NumericalError(
                f"the likelihood of lengthscale {lengthscales} with a noise variance of {ratio:.2g} times "
                f"the variance: {error.text}",
                key=error.key,
                remedies=error.remedies,
            ) from error
        place = Place(np.array(x), variance, follows, evaluation, tied)
        self.counter.tell(place)
        return place

    def _evaluated(self, numbers: list[float]) -> tuple[float, int, Evaluation]:
        """Give the best variance within the bounds, what limits it, and the likelihood there."""
        if self.deviating:
            return self._best(numbers)
        evaluation = self.likelihood.evaluate(*numbers)
        best = evaluation.quadratic / evaluation.values
        return *self.bounds.variance_at(numbers[self.bounds.numbering.lengthscales :], best), evaluation

    def curvature(self, place: Place) -> Array:
        """Give the expected information at a place where it is known, else the observed one."""
        if place.evaluation.squares is not None and self.curved:
            return place.evaluation.expected_information()
        return self.information(place)

    def information(self, place: Place) -> Array:
        """Minus second derivatives of the likelihood at a place, see `information`."""
        step, variance = DIFFERENCE, place.variance
        if not self.deviating:
            return information(lambda x: self._place(x).evaluation, place.x, variance, step=step)
        step *= FINER

        def evaluate(x: Array, other: float) -> Evaluation:
            self.counter.evaluations += 1
            return self.likelihood.evaluate(*np.exp(x).tolist(), 1.0 / other)

        return information(
            lambda x: evaluate(x, variance),
            place.x,
            variance,
            step=step,
            along_variance=lambda other: evaluate(place.x, other),
        )

    def _best(self, numbers: list[float]) -> tuple[float, int, Evaluation]:
        """Give the best variance within the bounds, what limits it, and the likelihood there."""
        first = self.bounds.numbering.lengthscales
        factors = numbers[first:]
        limits = [self.bounds.variance_at(factors, best) for best in (0.0, np.inf)]
        (low, high), side = np.log([variance for variance, _ in limits]), -1
        if self.counter.hint is None:
            alike = self.likelihood.evaluate(*numbers, 0.0)
            self.counter.hint = float(np.log(alike.quadratic / alike.values)), 0.5
        u, steepness = float(np.clip(self.counter.hint[0], low, high)), self.counter.hint[1]
        slope_before, u_before = 0.0, u
        for _ in range(MOST_VARIANCES):
            evaluation = self.likelihood.evaluate(*numbers, float(np.exp(-u)))
            self.counter.evaluations += 1
            slope = float(evaluation.gradient(float(np.exp(u)))[first])
            side = 0 if slope < 0.0 and u <= low else 1 if slope > 0.0 and u >= high else -1
            if side >= 0 or abs(slope) <= BEST * evaluation.values**0.25:
                break
            if u != u_before and slope != slope_before:
                steepness = max((slope_before - slope) / (u - u_before) / evaluation.values, LEAST_STEEPNESS)
            u_before, slope_before = u, slope
            u = float(np.clip(u + np.clip(slope / (steepness * evaluation.values), -1.0, 1.0), low, high))
        else:
            u = u_before  # that of the last evaluation
        self.counter.hint = u, steepness
        return (*limits[side], evaluation) if side >= 0 else (float(np.exp(u)), 0, evaluation)
