"""Values that may be wrong: noise that is wider for a few of them, by what all others predict (math 26).

The noise of a value is that of the fit with probability ``1 - share``, and wider by ``variance`` with
probability ``share``. Both maximise the likelihood of each value given all others, by expectation and
maximisation. The probability of being wrong looks at the value itself: error bars are no longer exactly
calibrated by theorem, and simulation says how well they hold.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cagp_dist.arrays import Array

Outliers = Literal["keep", "robust"]

GAIN = 6.0  # of the likelihood, from which on wider noise is taken
TOLD = 20.0  # from which on it is said where it was not asked for
LEAST_RATIO = 3.0  # standard deviations of wider noise, at least, in those of the usual prediction
MOST_SHARE = 0.25
STEPS, CLOSE = 500, 1e-6
LEAST_SCALE = 1e-6  # of variances that have a factor
MOST_FITTED = 50_000  # errors that decide on share and width, evenly of more


@dataclass(frozen=True, eq=False)
class Contamination:
    """Which values may be wrong."""

    share: float  # of all values
    variance: float  # by which their noise is wider, squared unit
    probability: Array  # of each value that it is one of them; NaN where there is none
    gain: float  # of the log-likelihood of each value given all others

    @property
    def taken(self) -> bool:
        """Whether there are any, as far as the likelihood says."""
        return self.gain >= GAIN

    def attributes(self, *, wider: bool) -> dict[str, object]:
        """Say how many values count less, where ``wider`` noise was taken for some."""
        said: dict[str, object] = {
            "outliers": "robust" if wider else "robust: the likelihood found none",
            "outlier_gain": round(self.gain, 2),
            "outlier_share": self.share if wider else 0.0,
        }
        if wider:
            said["outlier_std"] = float(np.sqrt(self.variance))
            said["outlier_comment"] = (
                "How much a value counts follows from the value itself: error bars hold as simulations show, "
                "not by theorem."
            )
        return said

    def excess(self, noise: Array) -> Array:
        """Variance beside the noise that counts each value as much as it is right: 1 / E[1 / variance]."""
        p = np.nan_to_num(self.probability)
        kept = (1.0 - p) + p * noise / (noise + self.variance)
        return np.asarray(noise * (1.0 / kept - 1.0))


def contamination(
    errors: Array, variance: Array, *, before: Array | None = None, rescaled: bool = False
) -> Contamination:
    """Fit share and width to errors of predictions, and their variances with the usual noise.

    The gain is over the likelihood of ``before`` (one number for each), by default of none being wrong.
    Wrong values make the others look uncertain: ``rescaled``, variances have a factor that is fitted as well,
    about as they would be after another fit.
    """
    known = np.isfinite(errors) & (variance > 0.0)  # else digits were lost
    e2, v = errors[known] ** 2, variance[known]
    plain = _log_density(e2, v)
    probability = np.full(errors.shape, np.nan)
    if not e2.any():
        return Contamination(0.0, 0.0, probability, 0.0)
    base = float((plain if before is None else before[known]).sum())
    if rescaled:  # so that no gain is that of a model whose error bars are all too wide or too narrow
        base = float(_log_density(e2, max(float(np.mean(e2 / v)), LEAST_SCALE) * v).sum())
    least = (LEAST_RATIO**2 - 1.0) * float(np.median(v))
    many = max(3, e2.size // 20)
    share, width = 0.02, max(4.0 * least, float(np.mean(np.sort(e2)[-many:])))
    few = slice(None, None, -(-e2.size // MOST_FITTED))
    of, usual, kept, factor = e2[few], v[few], plain[few], 1.0
    for _ in range(STEPS):
        settled = True
        p = _probability(of, usual, share, width, kept)
        total = float(p.sum())
        following = min(max(total / of.size, 1e-12), MOST_SHARE)
        part = width / (usual + width)
        wider = max(float((p * part * (part * of + usual)).sum()) / max(total, 1e-300), least)
        if rescaled:
            right = 1.0 - p
            scale = max(float((right * of / v[few]).sum() / max(right.sum(), 1e-300)), LEAST_SCALE)
            usual, kept = scale * v[few], _log_density(of, scale * v[few])
            settled, factor = abs(scale - factor) <= CLOSE * factor, scale
        settled &= abs(following - share) <= CLOSE * share and abs(wider - width) <= CLOSE * width
        share, width = following, wider
        if settled:
            break
    v, plain = factor * v, _log_density(e2, factor * v)
    probability[known] = _probability(e2, v, share, width, plain)
    wrong = np.log(share) + _log_density(e2, v + width)
    gain = float(np.logaddexp(wrong, np.log1p(-share) + plain).sum()) - base
    return Contamination(share, width, probability, gain)


def log_densities(errors: Array, variance: Array) -> Array:
    """Log densities of errors; NaN where there is none."""
    return _log_density(errors**2, variance)


def _log_density(squares: Array, variance: Array) -> Array:
    return np.asarray(-0.5 * (np.log(2.0 * np.pi * variance) + squares / variance))


def _probability(e2: Array, v: Array, share: float, width: float, plain: Array) -> Array:
    """Probability (k,) that an error is one of the wider ones."""
    odds = np.log(share / (1.0 - share)) + _log_density(e2, v + width) - plain
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(odds, -700.0, 700.0))))
