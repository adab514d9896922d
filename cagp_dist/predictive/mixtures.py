"""Mixtures of Student t or Gaussian distributions, where several models have a probability each."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, logsumexp, ndtr, ndtri, stdtr, stdtrit

from cagp_dist.arrays import Array, Mask
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive.distribution import Predictive, add_up, quadrature
from cagp_dist.predictive.families import Gaussian, StudentT

CLOSE = 1e-7  # Error of a normal score at which the search for a quantile ends

# Largest normal score, roughly, and how many there are, of the table of a Student t distribution
FARTHEST, KNOTS = 36.0, 721

CENTRAL = 3.0  # Normal scores up to which probabilities of normal components tell quantiles apart

# Steps of that search at most, and from which on each second one halves: three or four of Newton's are usual,
# beside a narrow component many of his may be tiny, and halving alone takes sixty
MOST_STEPS, HALVING = 200, 8


@dataclass(frozen=True, eq=False)
class Mixture(Predictive):
    """Distributions ``sum_k weights[k] F_k``, F_k Student t of the same degrees of freedom, or Gaussian.

    Shapes: ``weights`` (K,), probabilities above zero, which are divided by their sum; ``location``, means
    and medians, and ``scale``, positive and for observations with the noise included, (K, ...). Degrees are
    above 2, so that there is a standard deviation; infinite for Gaussian distributions.

    Raises
    ------
    ArgumentError
        If shapes do not fit, a number is not finite, or weights, scales or degrees are too small.

    Examples
    --------
    Two models of the same probability, of which one is sure:

    >>> from cagp_dist.predictive import Mixture
    >>> distribution = Mixture([0.5, 0.5], [[280.0], [280.0]], [[1.0], [3.0]])
    >>> distribution.std.round(2), distribution.interval(0.9)[1].round(2)
    (array([2.24]), array([283.85]))
    """

    weights: Array
    location: Array
    scale: Array
    degrees: float = np.inf

    def __post_init__(self) -> None:
        weights, location, scale = (
            np.asarray(array, dtype=np.float64) for array in (self.weights, self.location, self.scale)
        )
        if weights.ndim != 1 or not weights.size or location.shape != scale.shape:
            raise ArgumentError(
                f"weights have shape {weights.shape}, locations {location.shape} and scales {scale.shape}; "
                "expected (K,) and twice (K, ...), K at least 1.",
                key="shapes",
            )
        if location.shape[:1] != weights.shape:
            raise ArgumentError(
                f"there are {weights.size} weights and {len(location)} components; expected one for each.",
                key="shapes",
            )
        if not (np.isfinite(location).all() and np.isfinite(scale).all() and np.isfinite(weights).all()):
            raise ArgumentError(
                "a mixture holds NaN or infinity; give it only for what was predicted.", key="not-finite"
            )
        if weights.min() <= 0.0 or (scale.size and scale.min() <= 0.0):
            raise ArgumentError(
                f"weights reach {weights.min():g} and scales {scale.min() if scale.size else 1.0:g}; "
                "expected positive numbers. Leave components out that have no probability.",
                key="not-positive",
            )
        if not self.degrees > 2.0:
            raise ArgumentError(
                f"degrees are {self.degrees:g}; expected more than 2: Student t distributions of fewer "
                "degrees of freedom have no standard deviation.",
                key="degrees-of-freedom",
            )
        for name, array in (("weights", weights / weights.sum()), ("location", location), ("scale", scale)):
            object.__setattr__(self, name, array)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the points."""
        return self.location.shape[1:]

    def normal_score(self, values: ArrayLike) -> Array:
        """``Phi^-1(F(y))``, from the smaller of the two tails."""
        return self._score(self._standardised(np.asarray(values, dtype=np.float64)))

    def at_normal_score(self, scores: ArrayLike) -> Array:
        """Values of normal scores: Newton's method, between the values that components give."""
        z = np.asarray(scores, dtype=np.float64)
        shape = np.broadcast_shapes(z.shape, self.shape)
        z = np.broadcast_to(z, shape)
        lower, upper = self._ends(z)
        x = np.broadcast_to(self.mean + self.std * z, shape)
        x = np.where((x >= lower) & (x <= upper), x, 0.5 * (lower + upper))
        # each by itself, so that a quantile has the same bits whatever is asked beside it
        central = np.isinf(self.degrees) & (np.abs(z) <= CENTRAL)
        for number in range(MOST_STEPS):
            t = self._standardised(x)
            found, slope = self._central(t) if central.all() else self._far(t)
            if central.any() and not central.all():
                own = self._central(t)
                found, slope = np.where(central, own[0], found), np.where(central, own[1], slope)
            error = found - z
            todo = (np.abs(error) > CLOSE) & (upper - lower > 4.0 * np.spacing(np.abs(x)))
            if not todo.any():
                break
            lower, upper = np.where(error < 0.0, x, lower), np.where(error > 0.0, x, upper)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                step = x - error / slope
            inside: Mask = (step > lower) & (step < upper)
            if number >= HALVING and number % 2:
                inside = np.zeros_like(inside)
            x = np.where(todo, np.where(inside, step, 0.5 * (lower + upper)), x)
        return np.asarray(x, dtype=np.float64)

    def _far(self, t: Array) -> tuple[Array, Array]:
        """Give normal scores z where the components have t (K, ...), and its slope ``f(x) / phi(z)``."""
        found = self._score(t)
        with np.errstate(over="ignore"):
            return found, np.exp(self._log_density(t) + 0.5 * (np.log(2.0 * np.pi) + found**2))

    def _central(self, t: Array) -> tuple[Array, Array]:
        """Give them for normal components and scores that are far from the tails, faster."""
        scale = self.scale.reshape((len(self.weights), *(1,) * (t.ndim - self.scale.ndim), *self.shape))
        found = np.asarray(ndtri(np.tensordot(self.weights, ndtr(t), 1)))
        density = np.tensordot(self.weights, np.exp(-0.5 * t**2) / scale, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            return found, density * np.exp(0.5 * found**2)

    def log_density(self, values: ArrayLike) -> Array:
        """Logarithm of the density, in nats."""
        return self._log_density(self._standardised(np.asarray(values, dtype=np.float64)))

    def crps(self, values: ArrayLike) -> Array:
        """``int (F(x) - 1{x >= y})^2 dx`` by quadrature in the score of one distribution of the same moments.

        That needs F alone, and no quantile; the relative error is below 1e-4 where the scales of components
        differ by a factor of ten at most. Beyond the axis that is integrated over F is 0 or 1.
        """
        value = np.broadcast_to(np.asarray(values, dtype=np.float64), self.shape)
        v = self.degrees
        one: Predictive = Gaussian(self.mean, self.std)
        if not np.isinf(v):
            one = StudentT(self.mean, self.std * np.sqrt((v - 2.0) / v), np.asarray(v))
        split, pieces = one.normal_score(value), self._pieces()
        first, last = (one.at_normal_score(np.full(self.shape, end)) for end in (pieces[0][0], pieces[-1][1]))
        total = np.maximum(first - value, 0.0) + np.maximum(value - last, 0.0)
        for a, b in pieces:
            middle = np.clip(split, a, b)
            for start, end, side in ((a, middle, 1.0), (middle, b, -1.0)):
                centre, half = 0.5 * (end + start), 0.5 * (end - start)
                for nodes, weights in quadrature(self.shape):
                    z = centre + half * nodes
                    x = one.at_normal_score(z)
                    stretch = np.exp(-0.5 * (np.log(2.0 * np.pi) + z**2) - one.log_density(x))  # dx/dz
                    part = weights * half * stretch * ndtr(side * self.normal_score(x)) ** 2
                    total = add_up(part, total)
        return total

    def __getitem__(self, index: Any) -> Self:
        key = (slice(None), *(index if isinstance(index, tuple) else (index,)))
        return type(self)(self.weights, self.location[key], self.scale[key], self.degrees)

    @property
    def _moments(self) -> tuple[Array, Array]:
        """Mean and standard deviation in closed form."""
        v = self.degrees
        spread = 1.0 if np.isinf(v) else v / (v - 2.0)
        mean = np.tensordot(self.weights, self.location, 1)
        variance = np.tensordot(self.weights, spread * self.scale**2 + (self.location - mean) ** 2, 1)
        return mean, np.sqrt(variance)

    def _standardised(self, values: Array) -> Array:
        """Give t of values (..., *shape) for each component, (K, ..., *shape)."""
        extra = (1,) * max(values.ndim - len(self.shape), 0)
        whole = (len(self.weights), *extra, *self.shape)
        return np.asarray((values - self.location.reshape(whole)) / self.scale.reshape(whole))

    def _score(self, t: Array) -> Array:
        """Give the normal score of the mixture where the components have t (K, ...)."""
        smaller = self._cdf(-np.abs(t))
        below, above = (
            np.tensordot(self.weights, np.where(side, smaller, 1.0 - smaller), 1)
            for side in (t < 0.0, t >= 0.0)
        )
        return np.asarray(np.where(below < above, ndtri(below), -ndtri(above)), dtype=np.float64)

    def _cdf(self, t: Array) -> Array:
        """Distribution function of one component at t."""
        if np.isinf(self.degrees):
            return np.asarray(ndtr(t))
        v = self.degrees
        z = _tabulated(v)(np.minimum(np.sqrt(v * np.log1p(t**2 / v)), FARTHEST))
        return np.asarray(ndtr(np.copysign(z, t)))

    def _ends(self, z: Array) -> tuple[Array, Array]:
        """Smallest and largest value of a component at normal scores: the mixture's lies between."""
        below = ndtr(-np.abs(z))
        t = z if np.isinf(self.degrees) else -np.sign(z) * stdtrit(self.degrees, below)
        extra = (1,) * max(z.ndim - len(self.shape), 0)
        whole = (len(self.weights), *extra, *self.shape)
        values = self.location.reshape(whole) + self.scale.reshape(whole) * t
        return values.min(axis=0), values.max(axis=0)

    def _log_density(self, t: Array) -> Array:
        """Logarithm of the density where the components have t (K, ...)."""
        v = self.degrees
        if np.isinf(v):
            own = -0.5 * (np.log(2.0 * np.pi) + t**2)
        else:
            constant = gammaln(0.5 * (v + 1.0)) - gammaln(0.5 * v) - 0.5 * np.log(v * np.pi)
            own = constant - 0.5 * (v + 1.0) * np.log1p(t**2 / v)
        extra = (1,) * max(t.ndim - 1 - len(self.shape), 0)
        scale = self.scale.reshape((len(self.weights), *extra, *self.shape))
        shares = self.weights.reshape(-1, *(1,) * (t.ndim - 1))
        return np.asarray(logsumexp(own - np.log(scale), axis=0, b=shares), dtype=np.float64)


@lru_cache(maxsize=64)
def _tabulated(v: float) -> Callable[[Array], Array]:
    """Tabulate the normal score of Student t by ``sqrt(v log(1 + t^2 / v))``, nearly a multiple of it."""
    from scipy.interpolate import CubicSpline

    s = np.linspace(0.0, FARTHEST, KNOTS)
    score = -ndtri(stdtr(v, -np.sqrt(v * np.expm1(s**2 / v))))
    found: Callable[[Array], Array] = CubicSpline(s, score)
    return found
