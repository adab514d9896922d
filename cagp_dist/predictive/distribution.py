"""What a predictive distribution can say: one distribution for each of many points, whatever its family.

A family gives the *normal score* ``z = Phi^-1(F(y))``, its inverse and the density; unlike F the score tells
the far tails apart in floating point. All the rest follows: ``F(y) = Phi(score(y))``, ``quantile(p) =
at_score(Phi^-1(p))``, ``sample = at_score(N(0, 1))``.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError

# Of the quadrature of each piece of the axis of normal scores
NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)

# Normal scores between which quadrature goes; what lies beyond has a probability of 1e-19
_ENDS = np.array([-9.0, -4.5, -2.0, 0.0, 2.0, 4.5, 9.0])

AT_ONCE = 2**12  # Values of all points at nodes of the quadrature that are evaluated together, about

_MOST_BREAKS = 24


class Predictive(ABC):
    """The distribution of a value at each of many points; `shape` is that of the points, (q,) or (T, q).

    The distributions of different points say nothing of each other: none has a joint covariance. That is the
    business of the Gaussian posterior, ``cagp_dist.condition(..., covariance="full")``.

    Values are in the unit of the prediction, levels and probabilities are numbers between 0 and 1, and arrays
    of values broadcast against `shape`.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the points."""

    @abstractmethod
    def normal_score(self, values: ArrayLike) -> Array:
        """Give the standard normal numbers of the same probability: ``Phi^-1(F(y))``."""

    @abstractmethod
    def at_normal_score(self, scores: ArrayLike) -> Array:
        """Give the values of these normal scores, the inverse of `normal_score`."""

    @abstractmethod
    def log_density(self, values: ArrayLike) -> Array:
        """Logarithm of the density at the values, in nats; ``-inf`` where there is none."""

    @abstractmethod
    def __getitem__(self, index: Any) -> Self:
        """Distributions of some of the points, as an array of `shape` would be indexed."""

    def cdf(self, values: ArrayLike) -> Array:
        """Probability of a value no larger than each of these: the PIT values of observations."""
        return np.asarray(ndtr(self.normal_score(values)), dtype=np.float64)

    def above(self, values: ArrayLike) -> Array:
        """Probability of a value larger than each of these."""
        return np.asarray(ndtr(-self.normal_score(values)), dtype=np.float64)

    def quantile(self, levels: ArrayLike) -> Array:
        """Quantiles at one level, of `shape`, or at L levels, of shape ``(L, *shape)``."""
        chosen = np.asarray(levels, dtype=np.float64)
        if chosen.ndim > 1 or not bool(np.all((chosen > 0.0) & (chosen < 1.0))):
            raise ArgumentError(
                f"levels are {np.array2string(chosen, threshold=8)}; expected one number or a list of "
                "numbers between 0 and 1, such as 0.95.",
                key="levels",
            )
        scores = ndtri(chosen)
        return self.at_normal_score(scores.reshape(scores.shape + (1,) * len(self.shape)))

    def interval(self, level: float) -> tuple[Array, Array]:
        """Give the lower and upper end of the central interval of a level, each of `shape`."""
        lower, upper = self.quantile([0.5 - 0.5 * level, 0.5 + 0.5 * level])
        return lower, upper

    def sample(self, generator: np.random.Generator, count: int) -> Array:
        """Independent draws, shape ``(count, *shape)``; points are drawn independently of each other."""
        return self.at_normal_score(generator.standard_normal((count, *self.shape)))

    @property
    def mean(self) -> Array:
        """Mean of each distribution, of `shape`."""
        return self._moments[0]

    @property
    def std(self) -> Array:
        """Standard deviation of each distribution, of `shape`, in the unit of the values."""
        return self._moments[1]

    def crps(self, values: ArrayLike) -> Array:
        """Continuous ranked probability score ``int (F(x) - 1{x >= y})^2 dx``, in the unit of the values.

        By quadrature in the normal score, of families that have no closed form; the relative error is below
        1e-3.
        """
        # int F^2 below y and int (1 - F)^2 above it, x = at_score(z), by parts:
        # 2 int (1{y < x} - p) (x - y) dp, which needs no derivative of x
        value = np.broadcast_to(np.asarray(values, dtype=np.float64), self.shape)
        split = self.normal_score(value)
        total = np.zeros(self.shape)
        splits = np.sort(np.concatenate([split[None], self._own_breaks]), axis=0)
        for a, b in self._pieces():
            ends = [np.full(self.shape, a), *np.clip(splits, a, b), np.full(self.shape, b)]
            for start, end in pairwise(ends):
                centre, half = 0.5 * (end + start), 0.5 * (end - start)
                for nodes, weights in quadrature(self.shape):
                    z = centre + half * nodes
                    distance = self.at_normal_score(z) - value
                    tail = np.where(distance > 0.0, ndtr(-z), -ndtr(z))
                    total = add_up(2.0 * weights * half * tail * distance * _normal_density(z), total)
        return total

    @property
    def _breaks(self) -> Array:
        """Normal scores where `at_normal_score` has a kink."""
        return np.empty(0)

    @property
    def _own_breaks(self) -> Array:
        """Normal scores (K, ...), for each point its own, where `at_normal_score` has a kink."""
        return np.empty((0, *self.shape))

    def _pieces(self) -> list[tuple[float, float]]:
        """Pieces of the axis of normal scores, for quadrature; of many kinks some are passed over."""
        kinks = self._breaks
        kinks = kinks[:: -(-kinks.size // _MOST_BREAKS)] if kinks.size else kinks
        ends = np.unique(np.concatenate([_ENDS, np.clip(kinks, _ENDS[0], _ENDS[-1])]))
        return [(float(a), float(b)) for a, b in pairwise(ends)]

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        """Mean and standard deviation by quadrature over the normal score."""
        first, second = np.zeros(self.shape), np.zeros(self.shape)
        median = self.at_normal_score(np.zeros(self.shape))
        splits = np.sort(self._own_breaks, axis=0)
        for a, b in self._pieces():
            ends = [np.full(self.shape, a), *np.clip(splits, a, b), np.full(self.shape, b)]
            for start, end in pairwise(ends):
                half = 0.5 * (end - start)
                for nodes, weights in quadrature(self.shape):
                    z = start + half * (1.0 + nodes)
                    distance = self.at_normal_score(z) - median
                    share = weights * half * _normal_density(z)
                    first, second = add_up(share * distance, first), add_up(share * distance**2, second)
        return median + first, np.sqrt(np.maximum(second - first**2, 0.0))


def quadrature(shape: tuple[int, ...]) -> Iterator[tuple[Array, Array]]:
    """Nodes and weights (m, 1, ...) for points of this shape: for few points all, for many one by one."""
    step, beside = max(1, AT_ONCE // max(prod(shape), 1)), (1,) * len(shape)
    for start in range(0, NODES.size, step):
        some = slice(start, start + step)
        yield NODES[some].reshape(-1, *beside), WEIGHTS[some].reshape(-1, *beside)


def add_up(terms: Array, total: Array) -> Array:
    """Add terms (m, ...) to a total (...) one after the other: the sum does not depend on how many come."""
    for term in terms:
        total = total + term
    return total


def _normal_density(z: Array) -> Array:
    return np.asarray(np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi), dtype=np.float64)
