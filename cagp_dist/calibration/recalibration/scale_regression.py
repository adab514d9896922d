"""Scale of errors by what is known of each: Student t regression of the logarithm of the scale."""

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, digamma

from cagp_dist.arrays import Array, Indices

KNOWN_OF_TAILS = 1.5
"""Fisher information on 1 / degrees in one normal error whose centre and scale are estimated too.

Near the normal distribution its density has the factor ``1 + (z^4 - 2 z^2 - 1) / (4 degrees)``. The variance
of that term is 3.5, of which 2.0 is also a change of scale.
"""

LEAST_DEGREES = 2.1  # At 2 a Student t distribution has no standard deviation
_PARTS = 5


class ScaleRegression(NamedTuple):
    """What :func:`regress_scale` finds."""

    # (F + 1,): of the logarithm of the scale: the constant, and one number for each feature
    coefficients: Array
    centre: float  # Median of the errors in units of their scale
    degrees: float  # Degrees of freedom
    log_score: float  # Mean log density of the errors, nats
    share: float = 0.0  # Of what the errors lean to by themselves; 0 where that is not known

    def log_density(self, features: Array, errors: Array, *, lean: Array | None = None) -> Array:
        """Log density of each error, shape (n,), under the distribution of its features (n, F)."""
        log_scale = self.coefficients[0] + features @ self.coefficients[1:]
        left = errors if lean is None else errors - self.share * lean
        scaled = left * np.exp(-log_scale) - self.centre
        nu = self.degrees
        constant = betaln(0.5, 0.5 * nu) + 0.5 * np.log(nu)
        return np.asarray(-constant - log_scale - 0.5 * (nu + 1.0) * np.log1p(scaled**2 / nu))


def regress_scale(features: Array, errors: Array, *, lean: Array | None = None) -> ScaleRegression:
    """Fit ``errors = c lean + exp(b_0 + features @ b) (m + t)``, t a Student t, by the log score.

    Numbers other than the constant have a standard normal prior. Tails are never lighter than n errors can
    tell: 1 / degrees is at least one standard error, ``(1.5 n)^(-1/2)``. Shapes: ``features`` (n, F), others
    (n,).
    """
    n = len(errors)
    columns = np.column_stack([np.ones(n), features])
    unit = float(np.sqrt(np.mean(errors**2)))
    relative = errors / unit
    leans = np.zeros((n, 0)) if lean is None else lean[:, None] / unit
    shape = slice(0, columns.shape[1])
    shares = slice(shape.stop, shape.stop + leans.shape[1])

    def loss(numbers: Array) -> tuple[float, Array]:
        centre, degrees = numbers[-2], 1.0 / numbers[-1]
        log_scale = columns @ numbers[shape]
        scaled = (relative - leans @ numbers[shares]) * np.exp(-log_scale)
        share = (scaled - centre) ** 2 / degrees
        tail, weight = np.log1p(share), (degrees + 1.0) / degrees * (scaled - centre) / (1.0 + share)
        shrunk = np.append(0.0, numbers[1:-1])
        value = betaln(0.5, 0.5 * degrees) + 0.5 * np.log(degrees)
        value += np.mean(log_scale + 0.5 * (degrees + 1.0) * tail) + 0.5 * float(shrunk @ shrunk) / n
        by_share = -leans.T @ (weight * np.exp(-log_scale))
        by_scale = columns.T @ (1.0 - weight * scaled)
        by_number = np.concatenate([by_scale, by_share, [-weight.sum()]]) / n + shrunk / n
        by_degrees = 0.5 * (digamma(0.5 * degrees) - digamma(0.5 * (degrees + 1.0)) + 1.0 / degrees)
        by_degrees += 0.5 * np.mean(tail - weight * (scaled - centre) / degrees)
        return float(value), np.append(by_number, -(degrees**2) * by_degrees)

    start = np.zeros(shares.stop + 2)
    start[0], start[-1] = -0.5, 0.2
    lightest = min(1.0 / math.sqrt(KNOWN_OF_TAILS * n), 0.5 / LEAST_DEGREES)
    bounds = [(-30.0, 30.0)] * (start.size - 1) + [(lightest, 1.0 / LEAST_DEGREES)]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    penalty = 0.5 * float(found[1:-1] @ found[1:-1]) / n
    log_score = penalty - loss(found)[0] - float(np.log(unit))
    coefficients = found[shape] + np.append(np.log(unit), np.zeros(shape.stop - 1))
    share = float(found[shares].sum())
    return ScaleRegression(coefficients, float(found[-2]), 1.0 / float(found[-1]), log_score, share)


def gain_elsewhere(
    features: Array, errors: Array, group: Indices, *, lean: Array | None = None
) -> tuple[float, float]:
    """Rise of the mean log score in fifths of the groups (n,) that were left out of a fit, and its error."""
    names, number = np.unique(group, return_inverse=True)
    part_of_group = np.random.default_rng(0).permutation(names.size) % min(_PARTS, names.size)
    part, gain = part_of_group[number], 0.5 * (np.log(2.0 * np.pi) + errors**2)
    for left in range(int(part.max()) + 1):
        out = part == left
        leans = (None, None) if lean is None else (lean[~out], lean[out])
        found = regress_scale(features[~out], errors[~out], lean=leans[0])
        gain[out] += found.log_density(features[out], errors[out], lean=leans[1])
    mean = float(gain.mean())
    sums = np.bincount(number, weights=gain - mean)
    return mean, float(np.sqrt(sums @ sums) / gain.size)
