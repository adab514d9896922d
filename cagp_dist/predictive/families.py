"""Gaussian and Student t distributions: a centre and a scale for every point."""

# Scores are written out here: scoringrules has the same to 1e-12 (tests/calibration/test_other_packages.py),
# but its log score underflows to infinity from 39 standard deviations on, and its import takes a second.

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, ndtr, ndtri, stdtr, stdtrit

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError
from cagp_dist.predictive.distribution import Predictive


@dataclass(frozen=True, eq=False)
class _CentreAndScale(Predictive):
    """Distributions of ``location + scale t``, t of a distribution about zero that the family says."""

    location: Array
    scale: Array

    def _check(self) -> None:
        """Check and broadcast the two arrays, which a frozen distribution does once."""
        location = np.asarray(self.location, dtype=np.float64)
        scale = np.asarray(self.scale, dtype=np.float64)
        for name, array in (("location", location), ("scale", scale)):
            if not np.isfinite(array).all():
                raise ArgumentError(
                    f"{np.count_nonzero(~np.isfinite(array))} of {array.size} values of {name} are NaN or "
                    "infinite; give distributions only for points that were predicted.",
                    key="not-finite",
                )
        if scale.size and scale.min() <= 0.0:
            raise ArgumentError(
                f"scale reaches {scale.min():g}; expected positive values, the noise included. Nothing is "
                "clipped: look for the solver that returned it.",
                key="not-positive",
            )
        object.__setattr__(self, "location", location)
        object.__setattr__(self, "scale", np.broadcast_to(scale, location.shape))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the points."""
        return self.location.shape

    @property
    def mean(self) -> Array:
        """The location."""
        return self.location

    def _standardised(self, values: ArrayLike) -> Array:
        """Give t of values, in units of the scale."""
        return np.asarray((np.asarray(values) - self.location) / self.scale, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Gaussian(_CentreAndScale):
    """Normal distributions of means ``location``, shape S, and standard deviations ``scale``, broadcast to S.

    To score observations, the predictive ones, **noise included**.

    Raises
    ------
    ArgumentError
        If a number is not finite or a scale not positive. Nothing is clipped.

    Examples
    --------
    >>> from cagp_dist.predictive import Gaussian
    >>> distribution = Gaussian([280.0, 290.0], 2.0)
    >>> distribution.interval(0.9)[1].round(2).tolist()
    [283.29, 293.29]
    """

    def __post_init__(self) -> None:
        self._check()

    @property
    def std(self) -> Array:
        """The scale."""
        return self.scale

    def normal_score(self, values: ArrayLike) -> Array:
        """Standardised errors."""
        return self._standardised(values)

    def at_normal_score(self, scores: ArrayLike) -> Array:
        """Values of standardised errors."""
        return np.asarray(self.location + self.scale * np.asarray(scores), dtype=np.float64)

    def log_density(self, values: ArrayLike) -> Array:
        """Logarithm of the density, ``-log(s) - (log(2 pi) + z^2) / 2``, in nats."""
        z = self.normal_score(values)
        surprise = 0.5 * np.log(2.0 * np.pi) + np.log(self.scale) + 0.5 * z**2
        return np.asarray(-surprise, dtype=np.float64)

    def crps(self, values: ArrayLike) -> Array:
        """``s (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi))`` [Gneiting & Raftery 2007]."""
        z = self.normal_score(values)
        density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        score = z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi)
        return np.asarray(self.scale * score, dtype=np.float64)

    def __getitem__(self, index: Any) -> Self:
        return type(self)(self.location[index], self.scale[index])


@dataclass(frozen=True, eq=False)
class StudentT(_CentreAndScale):
    """Student t distributions: ``location + scale t``, t with the given degrees of freedom.

    Locations, shape S, are means and medians. The scale, broadcast to S and for observations with the noise
    included, is no standard deviation: that is ``scale sqrt(v / (v - 2))`` for v degrees, and infinite for
    two or fewer. Degrees, broadcast to S, are above 1, so that there is a mean; they need not be integers.

    Raises
    ------
    ArgumentError
        If a number is not finite, a scale is not positive or degrees are not above 1.

    Examples
    --------
    >>> from cagp_dist.predictive import StudentT
    >>> distribution = StudentT([280.0], 2.0, 4.0)
    >>> distribution.interval(0.9)[1].round(2).tolist(), distribution.std.round(2).tolist()
    ([284.26], [2.83])
    """

    degrees: Array

    def __post_init__(self) -> None:
        self._check()
        degrees = np.asarray(self.degrees, dtype=np.float64)
        if not bool(np.all(np.isfinite(degrees) & (degrees > 1.0))):
            raise ArgumentError(
                f"degrees reach {degrees.min():g}; expected finite numbers above 1, for a Student t "
                "distribution of fewer degrees of freedom has no mean.",
                key="degrees-of-freedom",
            )
        object.__setattr__(self, "degrees", np.broadcast_to(degrees, self.shape))

    @property
    def std(self) -> Array:
        """``scale sqrt(v / (v - 2))``; infinite where the degrees v are 2 or fewer."""
        spread = np.full(self.shape, np.inf)
        enough = self.degrees > 2.0
        v = self.degrees[enough]
        spread[enough] = self.scale[enough] * np.sqrt(v / (v - 2.0))
        return spread

    def normal_score(self, values: ArrayLike) -> Array:
        """``Phi^-1(F(y))``, from the smaller of the two tails."""
        t = self._standardised(values)
        return np.asarray(-np.sign(t) * ndtri(stdtr(self.degrees, -np.abs(t))), dtype=np.float64)

    def at_normal_score(self, scores: ArrayLike) -> Array:
        """Values of normal scores, from the smaller of the two tails."""
        z = np.asarray(scores, dtype=np.float64)
        t = -np.sign(z) * stdtrit(self.degrees, ndtr(-np.abs(z)))
        return np.asarray(self.location + self.scale * t, dtype=np.float64)

    def log_density(self, values: ArrayLike) -> Array:
        """Logarithm of the density, in nats."""
        t, v = self._standardised(values), self.degrees
        constant = -betaln(0.5, 0.5 * v) - 0.5 * np.log(v)
        return np.asarray(
            constant - np.log(self.scale) - 0.5 * (v + 1.0) * np.log1p(t**2 / v), dtype=np.float64
        )

    def crps(self, values: ArrayLike) -> Array:
        """In closed form [Jordan et al. 2019]."""
        t, v = self._standardised(values), self.degrees
        density = np.exp(self.log_density(values) + np.log(self.scale))
        constant = 2.0 * np.sqrt(v) / (v - 1.0) * np.exp(betaln(0.5, v - 0.5) - 2.0 * betaln(0.5, 0.5 * v))
        score = t * (2.0 * stdtr(v, t) - 1.0) + 2.0 * density * (v + t**2) / (v - 1.0) - constant
        return np.asarray(self.scale * score, dtype=np.float64)

    def __getitem__(self, index: Any) -> Self:
        return type(self)(self.location[index], self.scale[index], self.degrees[index])
