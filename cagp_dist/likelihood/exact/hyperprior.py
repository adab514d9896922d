"""What is assumed of the numbers of a prior where they are integrated over: weakly informative, in extents.

- **Lengthscale**: the penalised-complexity prior of fields on a surface [Fuglstad et al. 2019, theorem 2.6],
  ``p(l) = a / l^2 exp(-a / l)``, with its median at a tenth of the largest distance between two observed
  points. Its tail is heavy: lengthscales of the whole extent and more have a probability of 7 %.
- **Noise**: the noise's share of the standard deviation of an observation, ``sqrt(noise / (noise +
  variance))``, is uniform between 0 and 1.
- **Variance**: ``p(s^2) = 1 / s^2`` [Berger, De Oliveira & Sanso 2001], where noise and variance are both
  unknown.
- **A nugget beside a known noise**: its share of the standard deviation of both is uniform too.

What intervals hold with it is measured by ``python -m pipelines.experiments.few_observations``.
"""

from math import log

import numpy as np

from cagp_dist.arrays import Array

MEDIAN_LENGTHSCALE = 0.1  # In units of the largest distance between two observed points

# Between which lengthscales are looked at, in the same units: shorter ones are not told from each other by
# the points, nor longer ones from a trend with another variance
SHORTEST, LONGEST = 0.01, 10.0

SMALLEST_RATIO, LARGEST_RATIO = 1e-8, 1e4  # The same of the noise variance in units of the variance


def log_prior_of_lengthscale(lengthscale: Array, extent: float) -> Array:
    """Logarithm of the density of the logarithm of lengthscales, up to a constant."""
    return np.asarray(-np.log(lengthscale) - MEDIAN_LENGTHSCALE * extent * log(2.0) / lengthscale)


def log_prior_of_ratio(ratio: Array) -> Array:
    """Logarithm of the density of log(g), with ``u = sqrt(g / (1 + g))`` uniform, up to a constant."""
    return np.asarray(0.5 * np.log(ratio) - 1.5 * np.log1p(ratio))
