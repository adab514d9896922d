"""Scores of a Gaussian prediction against observations: accuracy, sharpness and calibration in numbers.

Every standard deviation here is the *predictive* one, noise included (math 13): an observation is
compared, not the unseen field. The log score and the CRPS are proper: no prediction beats the true law
on average.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from cagp_dist.arrays import Array
from cagp_dist.calibration.pit import checked, ks_test, pit, unit_weights
from cagp_dist.errors import ArgumentError

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)


@dataclass(frozen=True, eq=False)
class Scores:
    """What :func:`scores` measures; units of the observations where not said otherwise.

    Every score comes twice: with each value counted once, and ``_area_weighted``, with the weights given.
    Without weights the two are equal.

    Attributes
    ----------
    rmse, rmse_area_weighted : float
        Root mean square error against the (noisy) observations.
    nll, nll_area_weighted : float
        Mean negative log predictive density, nats; smaller is better.
    crps, crps_area_weighted : float
        Mean continuous ranked probability score; smaller is better.
    coverage, coverage_area_weighted : array, shape (L,)
        Fraction of observations inside the central interval of each level; near the level if calibrated.
    levels : array, shape (L,)
        Levels of the central intervals, in (0, 1).
    ks_statistic, ks_pvalue, ks_statistic_area_weighted, ks_pvalue_area_weighted : float
        Distance of the PIT values from uniform, no unit; the p-value presumes independent test points
        (see ``cagp_dist.calibration.pit.CORRELATED_TEST_POINTS``).
    """

    rmse: float
    rmse_area_weighted: float
    nll: float
    nll_area_weighted: float
    crps: float
    crps_area_weighted: float
    coverage: Array
    coverage_area_weighted: Array
    levels: Array
    ks_statistic: float
    ks_pvalue: float
    ks_statistic_area_weighted: float
    ks_pvalue_area_weighted: float


def scores(
    mean: ArrayLike,
    predictive_std: ArrayLike,
    observed: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    levels: Sequence[float] = LEVELS,
) -> Scores:
    """All scores of a Gaussian prediction, pooled over points and fields.

    Parameters
    ----------
    mean, observed : array_like, shape (q,) or (T, q)
        Prediction and noisy observation, one unit.
    predictive_std : array_like, the shape of ``mean``, or (q,) when all T fields share it
        ``sqrt(latent variance + noise variance)``, **noise included**.
    weights : array_like, shape (q,), optional
        Area that each point stands for, on any positive scale (it is normalised to mean 1).
    levels : sequence of float
        Levels of the central intervals whose coverage is counted.

    Raises
    ------
    ArgumentError
        If shapes disagree, a value is not finite, a standard deviation is not positive, weights are
        negative or all zero, or a level lies outside (0, 1).

    Examples
    --------
    >>> result = scores([280.0, 290.0], [1.0, 1.0], [281.0, 290.0])
    >>> round(result.rmse, 4), round(result.nll, 4), result.coverage[-1]
    (0.7071, 1.1689, np.float64(1.0))
    """
    probabilities = pit(mean, predictive_std, observed)
    statistic, pvalue = ks_test(probabilities)
    statistic_by_area, pvalue_by_area = ks_test(probabilities, weights=weights)
    return Scores(
        rmse=rmse(mean, observed),
        rmse_area_weighted=rmse(mean, observed, weights=weights),
        nll=nll(mean, predictive_std, observed),
        nll_area_weighted=nll(mean, predictive_std, observed, weights=weights),
        crps=crps(mean, predictive_std, observed),
        crps_area_weighted=crps(mean, predictive_std, observed, weights=weights),
        coverage=coverage(mean, predictive_std, observed, levels=levels),
        coverage_area_weighted=coverage(mean, predictive_std, observed, levels=levels, weights=weights),
        levels=_levels(levels),
        ks_statistic=statistic,
        ks_pvalue=pvalue,
        ks_statistic_area_weighted=statistic_by_area,
        ks_pvalue_area_weighted=pvalue_by_area,
    )


def rmse(mean: ArrayLike, observed: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Root mean square error ``sqrt(mean(w (mean - observed)^2))``, in the unit of the observations.

    Examples
    --------
    >>> rmse([0.0, 0.0], [3.0, 3.0])
    3.0
    """
    centre, _, value = checked(mean, np.ones(np.shape(mean)), observed)
    return float(np.sqrt(_average((centre - value) ** 2, weights)))


def nll(
    mean: ArrayLike, predictive_std: ArrayLike, observed: ArrayLike, *, weights: ArrayLike | None = None
) -> float:
    """Mean Gaussian negative log predictive density, ``mean(w (log(2 pi s^2) + z^2) / 2)``, in nats.

    Examples
    --------
    >>> round(nll([0.0], [1.0], [0.0]), 6)
    0.918939
    """
    centre, spread, value = checked(mean, predictive_std, observed)
    z = (value - centre) / spread
    return _average(0.5 * np.log(2.0 * np.pi) + np.log(spread) + 0.5 * z**2, weights)


def crps(
    mean: ArrayLike, predictive_std: ArrayLike, observed: ArrayLike, *, weights: ArrayLike | None = None
) -> float:
    """Mean continuous ranked probability score of a Gaussian, in the unit of the observations.

    ``int (F(x) - 1{x >= y})^2 dx = s (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi))`` (math 13); for
    ``s -> 0`` it is the absolute error.

    Examples
    --------
    >>> round(crps([0.0], [1.0], [0.0]), 6)
    0.233695
    """
    centre, spread, value = checked(mean, predictive_std, observed)
    z = (value - centre) / spread
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    return _average(spread * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi)), weights)


def coverage(
    mean: ArrayLike,
    predictive_std: ArrayLike,
    observed: ArrayLike,
    *,
    levels: Sequence[float] = LEVELS,
    weights: ArrayLike | None = None,
) -> Array:
    """Fraction of observations inside the central Gaussian interval of each level.

    Returns
    -------
    array of float64, shape (L,)

    Examples
    --------
    >>> coverage([0.0, 0.0], [1.0, 1.0], [0.5, 3.0], levels=[0.5, 0.9]).tolist()
    [0.5, 0.5]
    """
    centre, spread, value = checked(mean, predictive_std, observed)
    distance = np.abs((value - centre) / spread)
    half_widths = ndtri(0.5 + 0.5 * _levels(levels))
    shares = [_average(1.0 * (distance <= half_width), weights) for half_width in half_widths]
    return np.minimum(shares, 1.0)  # weights add up to one up to rounding


def _average(values: Array, weights: ArrayLike | None) -> float:
    """Mean over all fields and points, each point weighted by its share of the area."""
    if weights is None:
        return float(values.mean())
    return float((values * unit_weights(weights, values.shape)).mean())


def _levels(levels: Sequence[float]) -> Array:
    """Levels as a vector, each in (0, 1)."""
    chosen = np.asarray(levels, dtype=np.float64)
    if chosen.ndim != 1 or not bool(np.all((chosen > 0.0) & (chosen < 1.0))):
        raise ArgumentError(
            f"levels are {list(levels)}; expected a list of numbers between 0 and 1, such as 0.95."
        )
    return chosen
