"""Probability integral transform: how well the error bars match the errors they describe.

``z = (y - mean) / std`` is standard normal and ``t = Phi(z)`` uniform if an observation follows its Gaussian
prediction. ``std`` is the *predictive* one, noise included (math 10.3); for simulated latent values the
latent.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cagp_dist.arrays import Array
from cagp_dist.errors import ArgumentError

INTERVALS = 20

# Suffix of the published name of a measure in which each point counts with the area that it stands for
AREA_WEIGHTED = "_area_weighted"

# What a report prints beside a KS p-value computed on real data (math 10.3)
CORRELATED_TEST_POINTS = (
    "The KS p-value assumes independent test points. Points of one field are correlated: "
    "errors of neighbours agree, so the PIT values of one field can lean to one side although the "
    "prediction is calibrated, and a small p-value alone does not show miscalibration. Simulation-based "
    "calibration, whose draws are independent, is the test to trust; for one real field read the "
    "statistic as a distance from uniform."
)


@dataclass(frozen=True, eq=False)
class Histogram:
    """PIT values counted in equal intervals, with the band expected of uniform values."""

    edges: Array  # (k + 1,): interval edges from 0 to 1
    # (k,): values per interval, each counted with its weight of mean 1; the last interval includes 1
    counts: Array
    # lower, upper: central 95 % range of one count if the values are independent and uniform: quantiles 0.025
    # and 0.975 of Binomial(N, 1/k); with weights, those of `effective_count` values, scaled to N. It holds
    # for each interval by itself, so that about one of twenty counts lies outside even when all is well
    lower: float
    upper: float
    expected: float  # N / k


@dataclass(frozen=True)
class NormalTests:
    """Tests of N standardised errors against independent standard normal ones."""

    # ks_statistic, ks_pvalue: Kolmogorov-Smirnov distance of the PIT values from uniform, and its two-sided
    # p-value
    ks_statistic: float
    ks_pvalue: float
    # Root mean square of z: below 1 the error bars are too wide, above 1 too narrow. Its standard error is
    # ``1 / sqrt(2 N)``
    z_std: float
    # Two-sided p-value of ``sum z^2`` under chi2 with N degrees of freedom. Far more powerful than KS against
    # a wrong scale: with N = 1,000 KS barely sees an error of 3.5 % (math 10.2)
    variance_pvalue: float
    # z_mean, mean_pvalue: mean of z and the two-sided p-value of ``sqrt(N) mean(z)`` under the standard
    # normal distribution
    z_mean: float
    mean_pvalue: float


def standardised_errors(mean: ArrayLike, predictive_std: ArrayLike, observed: ArrayLike) -> Array:
    """``z = (observed - mean) / predictive_std``, checked. Shapes: ``mean, observed`` (q,) or (T, q)."""
    centre, spread, value = checked_prediction(mean, predictive_std, observed)
    return np.asarray((value - centre) / spread, dtype=np.float64)


def pit(mean: ArrayLike, predictive_std: ArrayLike, observed: ArrayLike) -> Array:
    """PIT values ``Phi((observed - mean) / predictive_std)``, uniform on [0, 1] if calibrated.

    Arguments, shapes and errors as :func:`standardised_errors`.
    """
    from scipy.special import ndtr

    return np.asarray(ndtr(standardised_errors(mean, predictive_std, observed)), dtype=np.float64)


def histogram(
    values: ArrayLike, *, intervals: int = INTERVALS, weights: ArrayLike | None = None
) -> Histogram:
    """Count PIT values in equal intervals and give the 95 % band of each count under uniformity.

    ``values``, of any shape, are pooled, each with the area of its point where ``weights``, one for each
    entry of the last axis, are given. `ArgumentError`: there is no value, or one is outside [0, 1].
    """
    from scipy.stats import binom

    pooled = _probabilities(values)
    if intervals < 1:
        raise ArgumentError(
            f"intervals is {intervals}; expected at least 1, usually {INTERVALS}.", key="intervals"
        )
    edges = np.linspace(0.0, 1.0, intervals + 1)
    share = unit_weights(weights, np.shape(values))
    counts = np.histogram(pooled, bins=edges, weights=share.ravel())[0].astype(np.float64)
    independent = max(1, round(effective_count(share)))
    distribution, scale = binom(independent, 1.0 / intervals), pooled.size / independent
    return Histogram(
        edges=edges,
        counts=counts,
        lower=float(distribution.ppf(0.025)) * scale,
        upper=float(distribution.ppf(0.975)) * scale,
        expected=pooled.size / intervals,
    )


def ks_test(values: ArrayLike, *, weights: ArrayLike | None = None) -> tuple[float, float]:
    """Kolmogorov-Smirnov statistic of PIT values against uniform, and its two-sided p-value.

    Arguments as of `histogram`. With weights, the empirical distribution function steps by the weight of each
    value, and the p-value is that of `effective_count` equal ones. It presumes independent values; see
    ``CORRELATED_TEST_POINTS``.
    """
    from scipy.stats import kstest, kstwo

    pooled = _probabilities(values)
    if weights is None:
        result = kstest(pooled, "uniform")
        return float(result.statistic), float(result.pvalue)
    share = unit_weights(weights, np.shape(values))
    order = np.argsort(pooled)
    steps = np.append(0.0, np.cumsum(share.ravel()[order]) / share.sum())
    statistic = float(max((steps[1:] - pooled[order]).max(), (pooled[order] - steps[:-1]).max()))
    return statistic, float(kstwo.sf(statistic, max(1, round(effective_count(share)))))


def unit_weights(weights: ArrayLike | None, shape: tuple[int, ...]) -> Array:
    """Weights of mean 1 for values of a shape, one per entry of its last axis; ones without weights."""
    if weights is None:
        return np.ones(shape)
    share = np.asarray(weights, dtype=np.float64)
    if share.shape != shape[-1:]:
        raise ArgumentError(
            f"weights have shape {share.shape}; expected {shape[-1:]}, one weight per point.", key="shapes"
        )
    if not np.isfinite(share).all() or share.min() < 0.0 or share.sum() <= 0.0:
        raise ArgumentError(
            f"weights range over {share.min():g}..{share.max():g}; expected finite values, none negative and "
            "not all zero, as area_weights(latitude_degrees) returns them.",
            key="weights",
        )
    return np.broadcast_to(share / share.mean(), shape)


def effective_count(weights: Array) -> float:
    """Count the equally weighted independent values whose mean has the same variance."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def normal_tests(z: ArrayLike) -> NormalTests:
    """Test standardised errors against independent standard normal ones: shape, scale and centre.

    ``z``, of any shape, is pooled. `ArgumentError`: there is no value, or one is not finite.
    """
    from scipy.special import ndtr
    from scipy.stats import norm

    pooled = np.asarray(z, dtype=np.float64).ravel()
    if pooled.size == 0:
        raise ArgumentError(
            "there is no standardised error to test; expected at least one.", key="nothing-to-score"
        )
    if not np.isfinite(pooled).all():
        raise ArgumentError(
            f"{np.count_nonzero(~np.isfinite(pooled))} of {pooled.size} standardised errors are not finite; "
            "find the prediction they come from.",
            key="not-finite",
        )
    statistic, pvalue = ks_test(ndtr(pooled))
    squares, average = float(pooled @ pooled), float(pooled.mean())
    return NormalTests(
        ks_statistic=statistic,
        ks_pvalue=pvalue,
        z_std=float(np.sqrt(squares / pooled.size)),
        # the centre of z is known under the hypothesis, hence N degrees of freedom and not N - 1
        variance_pvalue=chi2_pvalue(squares, pooled.size),
        z_mean=average,
        mean_pvalue=float(2.0 * norm.sf(abs(average) * np.sqrt(pooled.size))),
    )


def chi2_pvalue(total: float, freedom: int) -> float:
    """Two-sided p-value of a sum of squares."""
    from scipy.stats import chi2

    return min(1.0, 2.0 * min(float(chi2.cdf(total, freedom)), float(chi2.sf(total, freedom))))


def checked_prediction(
    mean: ArrayLike, predictive_std: ArrayLike, observed: ArrayLike
) -> tuple[Array, Array, Array]:
    """Float64 copies of a prediction and its observation, of one shape, or an ArgumentError."""
    centre = np.asarray(mean, dtype=np.float64)
    spread = np.asarray(predictive_std, dtype=np.float64)
    value = np.asarray(observed, dtype=np.float64)
    if centre.ndim not in (1, 2) or centre.shape != value.shape:
        raise ArgumentError(
            f"mean has shape {centre.shape} and observed {value.shape}; expected one shape, "
            "(q,) for q points or (T, q) for T fields of q points. A posterior mean of shape (q, T) must be "
            "transposed.",
            key="shapes",
        )
    if spread.shape not in (centre.shape, centre.shape[-1:]):
        raise ArgumentError(
            f"predictive_std has shape {spread.shape}; expected {centre.shape}, as mean, "
            f"or {centre.shape[-1:]} when all fields share it.",
            key="shapes",
        )
    if centre.size == 0:
        raise ArgumentError(
            f"mean has shape {centre.shape}: there is nothing to score; pass at least one point.",
            key="nothing-to-score",
        )
    for name, array in (("mean", centre), ("predictive_std", spread), ("observed", value)):
        if not np.isfinite(array).all():
            raise ArgumentError(
                f"{np.count_nonzero(~np.isfinite(array))} of {array.size} values of {name} are NaN or "
                "infinite; score only points that were predicted and observed.",
                key="not-finite",
            )
    if spread.min() <= 0.0:
        raise ArgumentError(
            f"predictive_std reaches {spread.min():g}; expected positive values, the noise included. "
            "A standard deviation is never clipped: look for the solver that returned it.",
            key="not-positive",
        )
    return centre, np.broadcast_to(spread, centre.shape), value


def _probabilities(values: ArrayLike) -> Array:
    """Pooled values, each checked to lie in [0, 1]; NaN fails the comparison too."""
    pooled = np.asarray(values, dtype=np.float64).ravel()
    if pooled.size == 0:
        raise ArgumentError("there is no PIT value; expected at least one.", key="nothing-to-score")
    if not bool(np.all((pooled >= 0.0) & (pooled <= 1.0))):
        raise ArgumentError(
            f"PIT values range over {pooled.min():g}..{pooled.max():g}; expected [0, 1]. "
            "Use pit(mean, predictive_std, observed) to compute them.",
            key="pit-range",
        )
    return pooled
