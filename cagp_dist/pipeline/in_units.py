"""What is said of transformed values, in the unit of the data (math 26).

Everything up to a `Solution` is of ``z = t(y)``: the fit, the solve, the errors and what corrects them.
Probabilities are the same of y. Medians and quantiles are taken back by the inverse; means, standard
deviations and scores are those of the distribution of y.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from cagp_dist.arrays import Array, Mask
from cagp_dist.pipeline.cross_validation import LeftOutFolds
from cagp_dist.pipeline.defaults import QUANTILE_LEVELS
from cagp_dist.pipeline.field_solves import DrawnFields, Solution
from cagp_dist.pipeline.recalibration import Distribution
from cagp_dist.predictive import Gaussian, Predictive, QuantileTable
from cagp_dist.predictive.transforms import Identity, Transform, Transformed, of_normals

LEAST_STD = 1e-150  # in units of z, where a noise-free value leaves none

AT_ONCE = 2**16  # targets whose distributions are worked out at a time
ALIKE = 0.01  # parts of a standard deviation by which draws differ whose mixture is taken for normal


class InUnits(NamedTuple):
    """Distributions in the unit of the data at points of any shape S; NaN where nothing is known."""

    mean: Array  # S
    std: Array  # S
    quantiles: Array  # (L, *S) at `QUANTILE_LEVELS`
    least: Array  # S, probability of the least value

    @property
    def median(self) -> Array:
        """Medians, S."""
        return np.asarray(self.quantiles[QUANTILE_LEVELS.index(0.5)])


def normal_in_units(mean: Array, std: Array, transform: Transform) -> InUnits:
    """Take normal distributions back, of one shape S."""
    return _in_units(np.asarray(mean)[None], np.broadcast_to(std, mean.shape)[None], transform)


def quantiles_in_units(quantiles: Array, transform: Transform) -> InUnits:
    """Take distributions back that are known by quantiles (L, *S) at `QUANTILE_LEVELS`."""
    return _in_units(quantiles, None, transform)


def field_in_units(solution: Solution, transform: Transform, factor: Array | None = None) -> InUnits:
    """Take what a solve says of the field back, (T, q), its standard deviations times a factor."""
    if solution.drawn is not None:
        assert factor is None  # no recalibration beside draws
        assert solution.quantiles is not None
        own = moments_of_draws(solution.drawn, transform)
        return InUnits(own.mean, own.std, transform.inverse(np.moveaxis(solution.quantiles, 1, 0)), own.least)
    if solution.moments is not None and factor is None:
        assert solution.quantiles is not None
        found = quantiles_in_units(np.moveaxis(solution.quantiles, 1, 0), transform)
        return found._replace(mean=solution.moments[0], std=solution.moments[1])
    mean, by = solution.mean, np.ones(1) if factor is None else factor
    if solution.quantiles is None:
        return normal_in_units(mean, by * solution.std, transform)
    return quantiles_in_units(mean + by * (np.moveaxis(solution.quantiles, 1, 0) - mean), transform)


class OfDraws(NamedTuple):
    """Moments in the unit of the data, of mixtures of draws (T, q)."""

    mean: Array
    std: Array
    least: Array  # probability of the least value


def moments_of_draws(
    found: DrawnFields, transform: Transform, noise_variance: float | Array | None = None
) -> OfDraws:
    """Take mixtures of draws back, with noise on top if that is said: what each says, averaged over them.

    By quadrature above the end of the transform, below which y has its least value; 32 D q evaluations of
    the inverse for D draws, or 32 q where these are alike.
    """
    if isinstance(transform, Identity):
        own = found if noise_variance is None else found._replace(scale=found.with_noise(noise_variance))
        return OfDraws(*own.moments, np.zeros(found.means.shape[:-2] + found.means.shape[-1:]))
    q = found.means.shape[-1]
    alike: Mask = np.asarray(found.alike(ALIKE).reshape(-1, q).all(axis=0))
    mean, std, least = np.full((3, *found.means.shape[:-2], q), np.nan)
    at_once = max(1, AT_ONCE // max(1, found.means.shape[-2]))
    for start in range(0, q, at_once):
        here = np.arange(start, min(start + at_once, q))
        for some in (here[alike[here]], here[~alike[here]]):
            if not some.size:
                continue
            own = found.part(some)
            noise = None if noise_variance is None else np.broadcast_to(noise_variance, (q,))[some]
            scale = own.scale if noise is None else own.with_noise(noise)
            scale, means = np.maximum(scale, LEAST_STD), own.means
            least[..., some] = ndtr((transform.end - means) / scale).mean(axis=-2)
            if alike[some[0]]:
                centre = means.mean(axis=-2, keepdims=True)
                spread = np.sqrt((scale**2).mean(axis=-2, keepdims=True))
                means, scale = centre, np.hypot(spread, means.std(axis=-2, keepdims=True))
            mean[..., some], std[..., some] = of_normals(means, scale, transform)
    return OfDraws(mean, std, least)


def distribution_in_units(
    found: Distribution, transform: Transform, normal: Array | None, std: Array | None = None
) -> Distribution:
    """Take distributions of observations back, (T, q); of normal ones ``normal`` has the means.

    Where standard deviations ``std`` of the values are known otherwise, they are these.
    """
    if std is not None:
        return replace(found, std=std, quantiles=transform.inverse(found.quantiles))
    if normal is None:
        by_level = quantiles_in_units(np.moveaxis(found.quantiles, 1, 0), transform)
    else:
        by_level = normal_in_units(normal, found.std, transform)
    return replace(found, std=by_level.std, quantiles=np.moveaxis(by_level.quantiles, 0, 1))


def folds_in_units(found: LeftOutFolds, transform: Transform) -> LeftOutFolds:
    """Take mean and standard deviations of what was left out back; its scores are in the unit already.

    The mean is that of an observation, which is compared with one.
    """
    if found.drawn is not None:
        of_field = moments_of_draws(found.drawn, transform)
        noisy = moments_of_draws(found.drawn, transform, found.noise_variance)
        return found._replace(mean=noisy.mean, std=of_field.std, predictive_std=noisy.std)
    field, observation = (
        normal_in_units(found.mean, std, transform)
        if quantiles is None
        else quantiles_in_units(np.moveaxis(quantiles, 1, 0), transform)
        for std, quantiles in (
            (found.std, found.quantiles),
            (found.predictive_std, found.predictive_quantiles),
        )
    )
    return found._replace(mean=observation.mean, std=field.std, predictive_std=observation.std)


def _in_units(rows: Array, std: Array | None, transform: Transform) -> InUnits:
    """Take distributions of means (1, *S) and standard deviations back, or of quantiles (L, *S)."""
    flat = rows.reshape(len(rows), -1)
    spread = None if std is None else std.reshape(-1)
    known = np.flatnonzero(np.isfinite(flat).all(axis=0) & (True if spread is None else np.isfinite(spread)))
    found = np.full((3 + len(QUANTILE_LEVELS), flat.shape[1]), np.nan)
    for start in range(0, known.size, AT_ONCE):
        some = known[start : start + AT_ONCE]
        base: Predictive
        if spread is None:
            base = QuantileTable(np.array(QUANTILE_LEVELS), flat[:, some])
        else:
            base = Gaussian(flat[0, some], np.maximum(spread[some], LEAST_STD))
        of_values = Transformed(base, transform)
        found[:3, some] = of_values.mean, of_values.std, of_values.least_probability
        found[3:, some] = of_values.quantile(QUANTILE_LEVELS)
    mean, deviation, least, *quantiles = found.reshape(-1, *rows.shape[1:])
    return InUnits(mean, deviation, np.stack(quantiles), least)
