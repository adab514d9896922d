"""Standard deviations and quantiles of many recalibrated distributions, in parts that fit into memory."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cagp_dist.arrays import Array, Indices
from cagp_dist.calibration.recalibration.methods import Fitted
from cagp_dist.predictive import Gaussian, StudentT

# Distributions that are in memory at a time: of a map of a million cells no more than a part
DISTRIBUTIONS_AT_ONCE = 100_000


class Corrected(NamedTuple):
    """Numbers of distributions of T times and q points."""

    std: Array  # (T, q)
    quantiles: Array  # (T, L, q)
    # (T, q): of Student t distributions, their scale over the standard deviation of the Gaussian
    # distribution; else ones
    scale: Array


def corrected_distributions(
    fitted: Fitted, plain: Gaussian, X: Array, *, levels: Sequence[float]
) -> Corrected:
    """Give standard deviations and quantiles that correct Gaussian ones, ``plain`` (T, q)."""
    std, scale = np.empty(plain.shape), np.ones(plain.shape)
    quantiles = np.empty((plain.shape[0], len(levels), plain.shape[1]))
    for some in in_parts(np.arange(plain.shape[1]), times=plain.shape[0]):
        of_some = plain[:, some]
        distribution = fitted(of_some, X[some])
        std[:, some] = distribution.std
        quantiles[:, :, some] = np.moveaxis(distribution.quantile(levels), 0, 1)
        if isinstance(distribution, StudentT):
            scale[:, some] = distribution.scale / of_some.scale
    return Corrected(std, quantiles, scale)


def in_parts(chosen: Indices, *, times: int) -> Iterator[Indices]:
    """Yield points after others, so many that their distributions at all times are in memory together."""
    step = max(1, DISTRIBUTIONS_AT_ONCE // max(times, 1))
    for start in range(0, chosen.size, step):
        yield chosen[start : start + step]
