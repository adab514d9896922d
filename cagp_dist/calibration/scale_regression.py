"""Scale of errors by what is known of each: Student t regression of the logarithm of the scale."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, digamma

from cagp_dist.arrays import Array

MOST_DEGREES = 1e4
"""A Student t law of so many degrees of freedom is a normal law, to 1e-4 of its density."""

LEAST_DEGREES = 2.1
"""At 2 a Student t law has no standard deviation."""


class ScaleRegression(NamedTuple):
    """What :func:`regress_scale` finds.

    Attributes
    ----------
    coefficients : array, shape (F + 1,)
        The constant, and one number for each feature.
    degrees : float
        Degrees of freedom.
    log_score : float
        Mean log density of the errors, nats.
    """

    coefficients: Array
    degrees: float
    log_score: float


def regress_scale(features: Array, errors: Array) -> ScaleRegression:
    """Fit ``errors = exp(b_0 + features @ b) t``, t a Student t of some degrees of freedom, by the log score.

    Coefficients other than the constant have a standard normal prior, which keeps those of features that few
    errors cannot tell apart at numbers that make sense.

    Parameters
    ----------
    features : array, shape (n, F)
        What is known of each error, without the error itself.
    errors : array, shape (n,)
        In units of one scale; not all of them zero.

    Returns
    -------
    ScaleRegression
        O(n F) time for each of about 30 steps.

    Examples
    --------
    Errors that are doubled where a feature is one:

    >>> generator = np.random.default_rng(0)
    >>> feature = generator.integers(2, size=20_000)
    >>> found = regress_scale(feature[:, None], 2.0**feature * generator.standard_normal(20_000))
    >>> np.exp(found.coefficients).round(1).tolist(), found.degrees > 50.0
    ([1.0, 2.0], True)
    """
    n = len(errors)
    columns = np.column_stack([np.ones(n), features])
    unit = float(np.sqrt(np.mean(errors**2)))
    squares = (errors / unit) ** 2

    def loss(numbers: Array) -> tuple[float, Array]:
        coefficients, degrees = numbers[:-1], 1.0 / numbers[-1]
        log_scale = columns @ coefficients
        share = squares * np.exp(-2.0 * log_scale) / degrees
        tail, weight = np.log1p(share), share / (1.0 + share)
        shrunk = np.append(0.0, coefficients[1:])
        value = betaln(0.5, 0.5 * degrees) + 0.5 * np.log(degrees)
        value += np.mean(log_scale + 0.5 * (degrees + 1.0) * tail) + 0.5 * float(shrunk @ shrunk) / n
        by_scale = columns.T @ (1.0 - (degrees + 1.0) * weight) / n + shrunk / n
        by_degrees = 0.5 * (digamma(0.5 * degrees) - digamma(0.5 * (degrees + 1.0)) + 1.0 / degrees)
        by_degrees += 0.5 * np.mean(tail - (degrees + 1.0) / degrees * weight)
        return float(value), np.append(by_scale, -(degrees**2) * by_degrees)

    start = np.zeros(columns.shape[1] + 1)
    start[0], start[-1] = -0.5, 0.2
    bounds = [(-30.0, 30.0)] * columns.shape[1] + [(1.0 / MOST_DEGREES, 1.0 / LEAST_DEGREES)]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    coefficients = found.x[:-1]
    log_score = 0.5 * float(coefficients[1:] @ coefficients[1:]) / n - float(found.fun) - np.log(unit)
    coefficients[0] += np.log(unit)
    return ScaleRegression(coefficients, 1.0 / float(found.x[-1]), log_score)
